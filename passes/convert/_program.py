"""The entry function as a program: regions, ports, and a launch for every section that it and its callees run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Block, Operation, SSAValue

from headrace.dialects.dataflow.ops import (
    ScatterOp,
    SectionOp,
)
from headrace.dialects.machine.attributes import device_of
from headrace.dialects.machine.cost import launch_mode
from headrace.dialects.rdu.ops import (
    LaunchOp,
    PortOp,
    ProgramOp,
    RegionOp,
)
from headrace.dialects.support import locations
from headrace.dialects.support.diagnostics import CompileError
from headrace.dialects.support.locations import Location
from headrace.dialects.tensor.base import tt
from headrace.dialects.tensor.program import set_shardings, set_stacks, signature
from headrace.dialects.tensor.shapes import TT
from headrace.dialects.tensor.storage import WeightOp
from headrace.passes.analysis.views import is_movement, producer, resolve
from headrace.passes.convert._config import word

Place = tuple[str, int]


class ProgramBuilder:
    """Walks the entry function, and through calls, and writes regions, ports and launches."""

    def __init__(self, module: ModuleOp, *, by_host: bool = False) -> None:
        self.module = module
        self.functions = {f.sym_name.data: f for f in module.body.block.ops if isinstance(f, func.FuncOp)}
        self.block = Block()
        self.regions: dict[str, RegionOp] = {}
        self.order: list[RegionOp] = []
        self.stems: dict[str, int] = {}
        self.weights: dict[str, str] = {}
        self.launches: list[LaunchOp] = []
        self.mode = "sw" if by_host else launch_mode(device_of(module))
        self.ties: dict[SSAValue, Place] = {}

    def run(self) -> ProgramOp:
        main = self.functions.get("main")
        if main is None:
            raise CompileError(
                "no-main", "convert-dataflow-to-rdu: the module has no function @main", fix="name it main"
            )
        names = signature(main)
        states = dict(names.states)
        places: list[Place] = []
        ports: list[PortOp] = []
        for name, value in zip(names.inputs, main.body.block.args, strict=True):
            where = locations.of_value(value)
            region = self._region(name, "state" if name in states else "input", tt(value), where)
            places.append((region, 0))
            ports.append(PortOp("input", name, region, tt(value)))
            ports[-1].location = where
        results = self._walk(main, places, [None] * len(names.results), None, [()] * len(places))
        last = main.body.block.last_op
        assert last is not None
        for name, (region, offset), value in zip(names.results, results, last.operands, strict=True):
            if self.regions[region].kind.data == "temp":
                self.regions[region].kind = StringAttr("output")
            ports.append(PortOp("output", name, region, tt(value), offset))
            ports[-1].location = locations.fuse([last.location, *(op.location for op in _moves(value))])
        for op in (*self.order, *ports, *self.launches):
            self.block.add_op(op)
        program = ProgramOp("main", self.block, names.states)
        set_shardings(program, names.shardings)
        set_stacks(program, names.stacks)
        program.location = main.location
        return program

    def _region(self, stem: str, kind: str, type: TT, location: Location, key: str = "") -> str:
        base = word(stem)
        count = self.stems.get(base, 0)
        name = base if not count else f"{base}.{count}"
        while name in self.regions:
            count += 1
            name = f"{base}.{count}"
        self.stems[base] = count + 1
        op = RegionOp(name, kind, type, key)
        op.location = location
        self.regions[name] = op
        self.order.append(op)
        return name

    def _walk(
        self,
        function: func.FuncOp,
        args: Sequence[Place],
        wanted: Sequence[Place | None],
        caller: Location | None,
        moves: Sequence[Sequence[Location]],
    ) -> list[Place]:
        """Launch everything a function does; `args` are where its arguments lie, `wanted` where its results should,
        `moves` the movement ops outside that the offsets of its arguments take the place of."""
        block = function.body.block
        moved: dict[SSAValue, Sequence[Location]] = dict(zip(block.args, moves, strict=True))
        at: dict[SSAValue, Place] = dict(zip(block.args, args, strict=True))
        tied: dict[SSAValue, Place] = {}
        last = block.last_op
        assert isinstance(last, func.ReturnOp)
        for value, place in zip(last.operands, wanted, strict=True):
            if place is not None:
                self._tie(value, place, tied)
        for op in block.ops:
            if op.name == "tensor.concat" and op.results[0] not in tied:
                where = locations.fuse(x.location for x in (op, *(x for part in op.operands for x in _moves(part))))
                region = self._region(f"{function.sym_name.data}.concat", "temp", tt(op.results[0]), where)
                self._tie(op.results[0], (region, 0), tied)
        for op in block.ops:
            match op:
                case WeightOp():
                    at[op.result] = self._weight(op)
                case SectionOp():
                    self._section(op, at, tied, caller, moved)
                case func.CallOp():
                    callee = self.functions[op.callee.string_value()]
                    inner = op.location if caller is None else locations.call_site(op.location, caller)
                    places = [self._place(v, at, tied) for v in op.operands]
                    around = [_moved(v, moved) for v in op.operands]
                    found = self._walk(callee, places, [tied.get(r) for r in op.results], inner, around)
                    at.update(zip(op.results, found, strict=True))
                case _ if is_movement(op) or isinstance(op, func.ReturnOp):
                    pass
                case _:
                    raise CompileError(
                        "not-mapped",
                        f"convert-dataflow-to-rdu: {op.name} stands outside of sections",
                        fix="run convert-tensor-to-dataflow first",
                        location=locations.of(op),
                    )
        return [self._place(v, at, tied) for v in last.operands]

    def _weight(self, op: WeightOp) -> Place:
        key = op.key.data
        if key not in self.weights:
            self.weights[key] = self._region(key, "weight", tt(op.result), op.location, key)
        return self.weights[key], 0

    def _tie(self, value: SSAValue, place: Place, tied: dict[SSAValue, Place]) -> None:
        """Make what produces `value` write it at `place`, where its producer is free to choose."""
        op = producer(value)
        if op is None:
            return
        if op.name == "tensor.concat":
            tied[value] = place
            offset = place[1]
            for part in op.operands:
                self._tie(part, (place[0], offset), tied)
                offset += tt(part).elements
            return
        ref = resolve(value)
        dense = ref.contiguous and tt(ref.root).elements == tt(value).elements
        if dense and (ref.root is not value or not is_movement(op)):
            tied[ref.root] = place

    def _place(self, value: SSAValue, at: dict[SSAValue, Place], tied: dict[SSAValue, Place]) -> Place:
        if value in at:
            return at[value]
        op = producer(value)
        if op is not None and op.name == "tensor.concat" and value in tied:
            region, offset = tied[value]
            for part in op.operands:
                if self._place(part, at, tied) != (region, offset):
                    raise CompileError(
                        "not-mapped",
                        "convert-dataflow-to-rdu: a part of a concatenation lies elsewhere",
                        why="the same value is needed in two places",
                        fix="copy it first",
                        location=locations.of(op),
                    )
                offset += tt(part).elements
            return tied[value]
        ref = resolve(value, lambda v: v in at)
        if not ref.contiguous:
            raise CompileError(
                "not-mapped",
                f"convert-dataflow-to-rdu: a {value.type} between sections is not a dense part of its memory",
                why="a region is addressed by an offset alone",
                fix="store it by itself, as convert-tensor-to-dataflow does",
                location=locations.of(op) if op is not None else "",
            )
        region, offset = self._place(ref.root, at, tied) if ref.root is not value else _lost(value)
        return region, offset + ref.view.offset

    def _section(
        self,
        op: SectionOp,
        at: dict[SSAValue, Place],
        tied: dict[SSAValue, Place],
        caller: Location | None,
        moved: Mapping[SSAValue, Sequence[Location]],
    ) -> None:
        here = op.location if caller is None else locations.call_site(op.location, caller)
        places = [self._place(v, at, tied) for v in op.ins]
        last = op.body.block.last_op
        assert last is not None
        for i, (result, inner) in enumerate(zip(op.outs, last.operands, strict=True)):
            if isinstance(inner.owner, ScatterOp):
                base = op.ins[op.body.block.args.index(inner.owner.base)]  # pyright: ignore[reportArgumentType]
                place = self._place(base, at, tied)
                self._check_owned(op, place)
            else:
                place = tied.get(result) or (self._region(f"{op.sym.data}.out{i}", "temp", tt(result), here), 0)
            at[result] = place
            places.append(place)
        launch = LaunchOp(op.sym.data, places, self.mode if self.launches else "sw")  # a run begins with the host
        launch.location = locations.fuse([here, *(move for v in op.ins for move in _moved(v, moved))])
        self.launches.append(launch)

    def _check_owned(self, op: SectionOp, place: Place) -> None:
        """A write in place needs memory that is the program's own: nothing else may want the old rows."""
        region = self.regions[place[0]]
        if region.kind.data == "weight":
            raise CompileError(
                "write-to-weight",
                f"convert-dataflow-to-rdu: section \"{op.sym.data}\" writes rows of weight '{region.key.data}'",
                why="weights are shared and read-only",
                fix="make it a state: an input and an output named with --state",
                location=locations.of(op),
            )


def _moves(value: SSAValue) -> list[Operation]:
    """The movement ops outside of sections that a value comes through, from below; past a concatenation they belong to
    its memory."""
    found: list[Operation] = []
    op = producer(value)
    while op is not None and is_movement(op):
        found.append(op)
        op = producer(op.operands[0]) if op.name != "tensor.concat" else None
    return found[::-1]


def _moved(value: SSAValue, outside: Mapping[SSAValue, Sequence[Location]]) -> list[Location]:
    """The locations of those ops; from an argument on, those that it came through `outside`."""
    ops = _moves(value)
    root = ops[0].operands[0] if ops else value
    return [*outside.get(root, ()), *(op.location for op in ops)]


def _lost(value: SSAValue) -> Place:
    raise CompileError("not-mapped", f"convert-dataflow-to-rdu: a value of type {value.type} has no memory")
