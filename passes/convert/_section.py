"""What one section will hold: processes, memories and transfers, planned from tensor ops and then written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from xdsl.ir import Block, Operation, Region, SSAValue

from headrace.dialects.dataflow.ops import (
    BufferOp,
    GatherOp,
    LoadOp,
    ScatterOp,
    SectionOp,
    StageOp,
    StoreOp,
    YieldOp,
)
from headrace.dialects.dataflow.types import StreamType
from headrace.dialects.support import locations
from headrace.dialects.support.access import View, identity, row_major
from headrace.dialects.support.journal import count, decline
from headrace.dialects.support.locations import Location
from headrace.dialects.tensor.base import attributes_of, ir_type, tt
from headrace.dialects.tensor.shapes import TT
from headrace.dialects.tensor.storage import ConstantOp
from headrace.passes.analysis.views import Ref, is_movement, passed, producer, reshape_strides, resolve


@dataclass(eq=False)
class _Source:
    """Something that sends one stream: an output of a node, or a load of an external tensor."""

    type: TT
    external: SSAValue | None = None
    view: View | None = None
    stream: SSAValue | None = None
    moves: list[Operation] = field(default_factory=list[Operation])
    """The movement ops that its view takes the place of."""


@dataclass(eq=False)
class _Memory:
    """A buffer or a stored tensor: who writes it and who reads it, through which views."""

    type: TT
    writers: list[tuple[_Source, View]] = field(default_factory=list[tuple[_Source, View]])
    readers: list[_Reader] = field(default_factory=list["_Reader"])
    fill: float = 0.0
    made: bool = False
    moves: list[Operation] = field(default_factory=list[Operation])
    """The movement ops that the views of its writers and readers take the place of."""

    def location(self, origins: Iterable[Location]) -> Location:
        """That of what is written into it and of the moves."""
        return locations.fuse([*origins, *(op.location for op in self.moves)])


@dataclass(eq=False)
class _Reader:
    memory: _Memory
    view: View
    type: TT
    stream: SSAValue | None = None


@dataclass(eq=False)
class _Node:
    """A process: a stage of tensor ops (none: it copies), a gather or a scatter."""

    kind: str
    ops: tuple[Operation, ...]
    inputs: list[_Reader]
    operands: tuple[SSAValue, ...]
    outputs: list[_Source]
    location: Location
    table: SSAValue | None = None
    result: SSAValue | None = None
    sent: tuple[SSAValue, ...] = ()
    """The results that its outputs carry: those that something reads."""


def _is_scalar_constant(value: SSAValue) -> bool:
    op = producer(value)
    return isinstance(op, ConstantOp) and prod(tt(value).shape) == 1


class SectionPlan:
    """Plans one section: which nodes, which memories, which loads; then writes it."""

    def __init__(
        self, name: str, ops: Sequence[Operation], tables: Mapping[Operation, SSAValue], transposes: str = "views"
    ) -> None:
        """`tables` are the tensors off chip that those ops write rows of. `transposes`: whether transposes are `views`
        or copying `stages`."""
        self.name = name
        self.staged = transposes == "stages"
        self.own = set(ops)
        self.tables = tables
        self.nodes: list[_Node] = []
        self.sources: dict[SSAValue, _Source] = {}
        self.scattered: dict[SSAValue, _Node] = {}
        self.memories: dict[object, _Memory] = {}
        self.loads: dict[tuple[SSAValue, View, tuple[int, ...]], _Source] = {}
        self.stores: dict[SSAValue, _Memory] = {}

    # -- planning ------------------------------------------------------------------------------------------------

    def compute(self, op: Operation) -> None:
        """Plan the process of one compute op."""
        if self._offchip_gather(op):
            return
        if op in self.tables:
            self._offchip_scatter(op)
            return
        operands = tuple(v for v in dict.fromkeys(op.operands) if not _is_scalar_constant(v))
        inputs = [self.read(v) for v in operands]
        sent = tuple(r for r in op.results if r.first_use is not None) or tuple(op.results)
        outputs = [_Source(tt(r)) for r in sent]
        self.sources.update(zip(sent, outputs, strict=True))
        self.nodes.append(_Node("stage", (op,), inputs, operands, outputs, op.location, sent=sent))

    def _offchip_gather(self, op: Operation) -> bool:
        if op.name != "tensor.gather" or attributes_of(op).get("axis", 0) != 0:
            return False
        table = resolve(op.operands[0])
        whole = table.contiguous and not table.view.offset and table.shape == tt(table.root).shape
        if not whole or not self._is_external(table.root):
            return False
        source = _Source(tt(op.results[0]))
        self.sources[op.results[0]] = source
        location = locations.fuse(x.location for x in (op, *passed(op.operands[0], table.root)))
        self.nodes.append(_Node("gather", (op,), [self.read(op.operands[1])], (), [source], location, table=table.root))
        return True

    def _offchip_scatter(self, op: Operation) -> None:
        """Rows of a tensor off chip are replaced at run-time indices, which come as a column."""
        _, indices, rows = op.operands
        index = tt(indices)
        flat = resolve(indices, self.is_root)
        column = Ref(flat.root, View(flat.view.offset, flat.view.strides[:1]), index.shape[:1])
        moves = passed(indices, flat.root)
        inputs = [self._read(column, TT(column.shape, index.dtype), moves), self.read(rows)]
        node = _Node("scatter", (op,), inputs, (), [], op.location, table=self.tables[op], result=op.results[0])
        self.nodes.append(node)
        self.scattered[op.results[0]] = node

    def is_own(self, value: SSAValue) -> bool:
        """Whether a value is computed in this section."""
        return producer(value) in self.own

    def read(self, value: SSAValue) -> _Reader:
        """A stream that denotes `value`, out of a buffer."""
        if self.staged:
            self._stage_transposes(value)
        ref = resolve(value, self.is_root)
        return self._read(ref, tt(value), passed(value, ref.root))

    def _stage_transposes(self, value: SSAValue) -> None:
        """Let a stage copy each transpose on the way to a value into a memory of its own."""
        op = producer(value)
        if op is None or not is_movement(op) or value in self.memories:
            return
        for operand in op.operands:
            self._stage_transposes(operand)
        if op.name == "tensor.transpose":
            memory = _Memory(tt(value))
            self._copy(value, identity(memory.type.shape), memory, op.location, "transposes are stages")
            self.memories[value] = memory
            self.sources.setdefault(value, memory.writers[-1][0])  # what is written on is the copy, too

    def _read(self, ref: Ref, type: TT, moves: Sequence[Operation]) -> _Reader:
        root = ref.root
        if self._is_external(root):
            whole = tt(root).elements
            if prod(ref.shape) == whole and all(s for n, s in zip(ref.shape, ref.view.strides, strict=True) if n > 1):
                return self._reader(self._root_memory(root), ref.view, type, moves)
            return self._read_part(ref, type, moves)
        return self._reader(self._root_memory(root), ref.view, type, moves)

    def is_root(self, value: SSAValue) -> bool:
        """Whether a movement result already has a memory of its own here."""
        return value in self.memories

    def _is_external(self, root: SSAValue) -> bool:
        op = producer(root)
        return not self.is_own(root) and (op is None or not is_movement(op))

    def _read_part(self, ref: Ref, type: TT, moves: Sequence[Operation]) -> _Reader:
        shape = tuple(n if s else 1 for n, s in zip(ref.shape, ref.view.strides, strict=True))
        key = (ref.root, ref.view, shape)
        if key not in self.memories:
            memory = self.memories[key] = _Memory(TT(shape, type.dtype))
            memory.writers.append((self._load(ref.root, ref.view, shape), identity(shape)))
        dense = row_major(shape)
        strides = tuple(d if s or n == 1 else 0 for n, s, d in zip(ref.shape, ref.view.strides, dense, strict=True))
        self.loads[key].moves += moves
        return self._reader(self.memories[key], View(0, strides), type, ())

    def _reader(self, memory: _Memory, view: View, type: TT, moves: Sequence[Operation]) -> _Reader:
        reader = _Reader(memory, view, type)
        memory.moves += moves
        memory.readers.append(reader)
        return reader

    def _load(self, root: SSAValue, view: View, shape: tuple[int, ...]) -> _Source:
        key = (root, view, shape)
        if key not in self.loads:
            self.loads[key] = _Source(TT(shape, tt(root).dtype), root, view)
        return self.loads[key]

    def _root_memory(self, root: SSAValue) -> _Memory:
        if root not in self.memories:
            memory = self.memories[root] = _Memory(tt(root))
            self._write(root, identity(tt(root).shape), memory, top=True)
        return self.memories[root]

    def store(self, value: SSAValue) -> None:
        """Plan `value` as a result of the section."""
        if value in self.scattered or value in self.stores:
            return
        memory = self.stores[value] = _Memory(tt(value))
        self._write(value, identity(tt(value).shape), memory)  # off-chip memory has no fill: a pad is copied

    def _write(self, value: SSAValue, view: View, memory: _Memory, top: bool = False) -> None:
        """Let the elements of `value` be written into `memory` through `view`."""
        op = producer(value)
        if value in self.sources:
            memory.writers.append((self.sources[value], view))
            return
        if op is None or not is_movement(op):
            shape = tt(value).shape
            memory.writers.append((self._load(value, identity(shape), shape), view))
            return
        memory.moves.append(op)
        attrs = attributes_of(op)
        match op.name:
            case "tensor.transpose":
                strides = [0] * len(attrs["perm"])
                for to, source in enumerate(attrs["perm"]):
                    strides[source] = view.strides[to]
                self._write(op.operands[0], View(view.offset, tuple(strides)), memory, top)
                return
            case "tensor.reshape":
                below = tt(op.operands[0]).shape
                found = reshape_strides(tt(value).shape, view.strides, below)
                if found is not None:
                    self._write(op.operands[0], View(view.offset, found), memory, top)
                    return
            case "tensor.concat":
                axis: int = attrs["axis"] % len(tt(value).shape)
                at = view.offset
                for part in op.operands:
                    self._write(part, View(at, view.strides), memory)
                    at += tt(part).shape[axis] * view.strides[axis]
                return
            case "tensor.pad" if top:
                low: tuple[int, ...] = attrs["lo"]
                memory.fill = float(attrs.get("value", 0.0))
                at = view.offset + sum(n * s for n, s in zip(low, view.strides, strict=True))
                self._write(op.operands[0], View(at, view.strides), memory)
                return
            case _:
                pass
        self._copy(value, view, memory, op.location)

    def _copy(self, value: SSAValue, view: View, memory: _Memory, location: Location, why: str = "") -> None:
        ref = resolve(value, lambda v: v is not value and self.is_root(v))
        if self._is_external(ref.root) and all(s for n, s in zip(ref.shape, ref.view.strides, strict=True) if n > 1):
            source = self._load(ref.root, ref.view, ref.shape)
            source.moves += passed(value, ref.root)
            memory.writers.append((source, view))
            return
        op = producer(value)
        if op is not None:
            why = why or "no address program writes its elements where they go"
            decline("fold-into-addresses", op, f"{why}: a stage copies them")
        count("copying stages")
        reader = self._read(ref, tt(value), passed(value, ref.root))
        source = _Source(tt(value))
        self.nodes.append(_Node("stage", (), [reader], (value,), [source], location))
        memory.writers.append((source, view))

    # -- writing -------------------------------------------------------------------------------------------------

    def write(
        self, outside: Callable[[SSAValue], SSAValue], results: Sequence[SSAValue], location: Location
    ) -> SectionOp:
        """The section op; `outside` gives the new values of externals, `results` the values it must return."""
        externals = list(
            dict.fromkeys(
                [s.external for s in self.loads.values() if s.external is not None]
                + [n.table for n in self.nodes if n.table is not None]
            )
        )
        self.block = Block(arg_types=[v.type for v in externals])
        for argument, value in zip(self.block.args, externals, strict=True):
            argument.location = locations.of_value(value)
        self.inside = dict(zip(externals, self.block.args, strict=True))
        self.names: dict[str, int] = {}
        self.scatter_results: dict[SSAValue, SSAValue] = {}
        for node in self.nodes:
            self._write_node(node)
        values: list[SSAValue] = []
        for value in results:
            if value in self.scatter_results:
                values.append(self.scatter_results[value])
                continue
            memory = self.stores[value]
            streams = [self._stream(source) for source, _ in memory.writers]
            op = StoreOp(streams, [view for _, view in memory.writers], ir_type(memory.type))
            self._add(op, memory.location([locations.of_value(value)]))
            values.append(op.tensor)
        self.block.add_op(YieldOp(values))
        self.block.last_op.location = location  # pyright: ignore[reportOptionalMemberAccess]
        section = SectionOp(self.name, [outside(v) for v in externals], [v.type for v in values], Region(self.block))
        section.location = location
        count("sections")
        count("processes", len(self.nodes))
        return section

    def _add(self, op: Operation, location: Location) -> None:
        op.location = location
        self.block.add_op(op)

    def _stream(self, source: _Source) -> SSAValue:
        if source.stream is None:
            assert source.external is not None and source.view is not None, "a node writes its streams before use"
            op = LoadOp(self.inside[source.external], source.view, StreamType.of(source.type))
            origins = [locations.of_value(source.external), *(move.location for move in source.moves)]
            self._add(op, locations.fuse(origins))
            source.stream = op.out
        return source.stream

    def _input(self, reader: _Reader) -> SSAValue:
        memory = reader.memory
        if not memory.made:
            memory.made = True
            op = BufferOp(
                [self._stream(source) for source, _ in memory.writers],
                [view for _, view in memory.writers],
                memory.type.shape,
                [StreamType.of(r.type) for r in memory.readers],
                [r.view for r in memory.readers],
                memory.fill,
            )
            self._add(op, memory.location(map(locations.of_value, op.ins)))
            for r, out in zip(memory.readers, op.outs, strict=True):
                r.stream = out
        assert reader.stream is not None
        return reader.stream

    def _write_node(self, node: _Node) -> None:
        streams = [self._input(reader) for reader in node.inputs]
        if node.kind == "gather":
            assert node.table is not None
            op = GatherOp(self.inside[node.table], streams[0], StreamType.of(node.outputs[0].type))
            self._add(op, node.location)
            node.outputs[0].stream = op.out
            return
        if node.kind == "scatter":
            assert node.table is not None and node.result is not None
            op = ScatterOp(self.inside[node.table], streams[0], streams[1])
            self._add(op, node.location)
            self.scatter_results[node.result] = op.tensor
            return
        block = Block(arg_types=[ir_type(r.type) for r in node.inputs])
        mapping: dict[SSAValue, SSAValue] = dict(zip(node.operands, block.args, strict=True))
        for argument, value in zip(block.args, node.operands, strict=True):
            argument.location = locations.of_value(value)
        out: list[SSAValue] = []
        for op in node.ops:
            for value in op.operands:
                if value not in mapping:
                    constant = producer(value)
                    assert constant is not None
                    copy = constant.clone()
                    block.add_op(copy)
                    mapping[value] = copy.results[0]
            copy = op.clone(mapping)
            block.add_op(copy)
            out = [new for old, new in zip(op.results, copy.results, strict=True) if old in node.sent]
        block.add_op(YieldOp(out or [block.args[0]]))
        block.last_op.location = node.location  # pyright: ignore[reportOptionalMemberAccess]
        stem = node.ops[0].name.removeprefix("tensor.") if node.ops else "copy"
        number = self.names[stem] = self.names.get(stem, -1) + 1
        stage = StageOp(f"{stem}_{number}", streams, [StreamType.of(s.type) for s in node.outputs], Region(block))
        self._add(stage, node.location)
        for source, stream in zip(node.outputs, stage.outs, strict=True):
            source.stream = stream
