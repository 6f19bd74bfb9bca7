"""convert-dataflow-to-rdu: sections become configs of virtual units and flows, functions launches over regions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, StringAttr, i64
from xdsl.ir import Block, Operation, SSAValue

from headrace.dialects.dataflow.ops import (
    BufferOp,
    GatherOp,
    LoadOp,
    ScatterOp,
    SectionOp,
    StageOp,
    StoreOp,
    YieldOp,
    stream_of,
    views,
)
from headrace.dialects.machine.attributes import device_of
from headrace.dialects.machine.cost import launch_mode
from headrace.dialects.machine.device import Device
from headrace.dialects.rdu.attributes import ParamAttr
from headrace.dialects.rdu.ops import (
    AgcuOp,
    ConfigOp,
    FlowOp,
    LaunchOp,
    PcuOp,
    PmuOp,
    PortOp,
    ProgramOp,
    RegionOp,
    UnitOp,
)
from headrace.dialects.rdu.ops import YieldOp as UnitYieldOp
from headrace.dialects.support import dtypes, locations
from headrace.dialects.support.access import Loop, Stream, View
from headrace.dialects.support.diagnostics import CompileError
from headrace.dialects.support.locations import Location
from headrace.dialects.tensor.base import ir_type, tt
from headrace.dialects.tensor.program import signature
from headrace.dialects.tensor.shapes import TT
from headrace.dialects.tensor.shapes.bodies import Axis, cut
from headrace.dialects.tensor.storage import WeightOp
from headrace.passes.analysis.bodies import Body
from headrace.passes.analysis.pieces import CONTRACTIONS
from headrace.passes.analysis.views import is_movement, producer, resolve
from headrace.passes.infra.base import Pass


@dataclass(frozen=True)
class _End:
    """One end of a flow: unit, port, and the address program where the unit is a memory."""

    unit: str
    port: int
    view: View | None


class _Config:
    """Turns one section into one config."""

    def __init__(self, section: SectionOp, names: Sequence[str], device: Device) -> None:
        self.section = section
        self.device = device
        self.block = Block()
        self.names: dict[str, int] = {}
        self.ends: dict[SSAValue, tuple[_End, Stream]] = {}
        self.params = [
            ParamAttr(StringAttr(n), StringAttr("in"), ir_type(tt(v))) for n, v in zip(names, section.ins, strict=True)
        ]
        self.param_of: dict[SSAValue, int] = {a: i for i, a in enumerate(section.body.block.args)}

    def run(self) -> ConfigOp:
        last = self.section.body.block.last_op
        assert isinstance(last, YieldOp)
        for i, value in enumerate(last.values):
            direction = "inout" if isinstance(value.owner, ScatterOp) else "out"
            self.param_of[value] = len(self.params)
            self.params.append(ParamAttr(StringAttr(f"out{i}"), StringAttr(direction), ir_type(tt(value))))
        for op in self.section.body.block.ops:
            match op:
                case LoadOp():
                    self._load(op)
                case BufferOp():
                    self._buffer(op)
                case StageOp():
                    self._stage(op)
                case StoreOp():
                    self._store(op)
                case GatherOp():
                    self._gather(op)
                case ScatterOp():
                    self._scatter(op)
                case YieldOp():
                    pass
                case _:
                    raise CompileError(
                        "not-mapped",
                        f"convert-dataflow-to-rdu: no units for {op.name}",
                        fix="lower it to stages and buffers first",
                        location=locations.of(op),
                    )
        self._spread()
        config = ConfigOp(self.section.sym.data, self.params, self.block)
        config.location = self.section.location
        return config

    def _spread(self) -> None:
        """Deal the device's address generators out over loads and stores by the bytes they move, at most one for each
        unit at the other end: one generator passes less than the memory can give."""
        units = {op.title: op for op in self.block.ops if isinstance(op, UnitOp)}
        nbytes: dict[str, int] = {}
        ends: dict[str, int] = {}
        for flow in self.block.ops:
            if not isinstance(flow, FlowOp):
                continue
            stream = flow.stream.stream
            for name, other in (flow.ends, flow.ends[::-1]):
                if isinstance(unit := units[name], AgcuOp) and unit.direction.data in ("load", "store"):
                    moved = stream.steps * stream.sites * stream.tile_elements * dtypes.byte_size(stream.dtype)
                    nbytes[name] = nbytes.get(name, 0) + moved
                    ends[name] = max(ends.get(name, 1), units[other].size)
        free = self.device.count("agcu") - sum(isinstance(u, AgcuOp) for u in units.values())
        total = sum(nbytes.values())
        if free <= 0 or not total:
            return
        for name, moved in nbytes.items():
            units[name].count = IntegerAttr(min(ends[name], 1 + free * moved // total), i64)

    def _name(self, stem: str) -> str:
        number = self.names.get(stem, -1) + 1
        self.names[stem] = number
        return stem if number == 0 else f"{stem}.{number}"

    def _add(self, op: Operation, location: Location) -> None:
        op.location = location
        self.block.add_op(op)

    def _flow(self, value: SSAValue, to: _End, stream: Stream | None = None, location: Location | None = None) -> None:
        """Connect what sends `value` to an end; `stream` is the finer stream of the taking side, if it has one."""
        source, sent = self.ends[value]
        flow = FlowOp(source.unit, source.port, to.unit, to.port, stream or sent, source.view, to.view)
        owner = value.owner
        self._add(flow, location or (owner.location if isinstance(owner, Operation) else self.section.location))

    def _load(self, op: LoadOp) -> None:
        param = self.param_of[op.tensor]
        name = self._name(f"load_{_word(self.params[param].title.data)}")
        self._add(AgcuOp(name, "load", param), op.location)
        self.ends[op.out] = _End(name, 0, op.view.view), stream_of(op.out)

    def _buffer(self, op: BufferOp) -> None:
        name = self._name("buffer")
        unit = PmuOp(
            name,
            op.buffer_type,
            max(1, op.units.value.data),
            op.frames.value.data,
            op.copies.value.data,
            op.fill.value.data,
            op.split_dim.value.data,
            max(1, op.banks.value.data),
        )
        self._add(unit, op.location)
        for port, (value, view) in enumerate(zip(op.ins, views(op.in_views), strict=True)):
            self._flow(value, _End(name, port, view))
        for port, (value, view) in enumerate(zip(op.outs, views(op.out_views), strict=True)):
            self.ends[value] = _End(name, port, view), stream_of(value)

    def _stage(self, op: StageOp) -> None:
        body = Body.of(op.body.block)
        parts = _parts(op, body)
        types = cut(body.ops, body.types, [(axis, axis.size // count) for axis, count in parts])
        block, values = body.block(types)
        block.add_op(end := UnitYieldOp(values))
        end.location = op.location
        mode = "systolic" if any(o.name in CONTRACTIONS for o in body.ops) else "simd"
        name = self._name(_word(op.sym.data))
        self._add(PcuOp(name, mode, op.units, block), op.location)

        def stream(v: int, value: SSAValue) -> Stream:
            space = [
                Loop(count, follow.dim, axis.size // count * follow.scale)
                if (follow := axis.follows.get(v)) is not None
                else Loop(count, -1, 0)
                for axis, count in parts
            ]
            return Stream(types[v].shape, types[v].dtype, stream_of(value).time, tuple(space))

        for i, value in enumerate(op.ins):
            self._flow(value, _End(name, i, None), stream(i, value), op.location)
        for port, (v, value) in enumerate(zip(body.outputs, op.outs, strict=True)):
            self.ends[value] = _End(name, port, None), stream(v, value)

    def _store(self, op: StoreOp) -> None:
        name = self._name("store")
        self._add(AgcuOp(name, "store", self.param_of[op.tensor]), op.location)
        for port, (value, view) in enumerate(zip(op.ins, views(op.in_views), strict=True)):
            self._flow(value, _End(name, port, view))

    def _gather(self, op: GatherOp) -> None:
        name = self._name("gather")
        self._add(AgcuOp(name, "gather", self.param_of[op.table]), op.location)
        self._flow(op.indices, _End(name, 0, None), location=op.location)
        self.ends[op.out] = _End(name, 0, None), stream_of(op.out)

    def _scatter(self, op: ScatterOp) -> None:
        name = self._name("scatter")
        self._add(AgcuOp(name, "scatter", self.param_of[op.tensor]), op.location)
        self._flow(op.indices, _End(name, 0, None), location=op.location)
        self._flow(op.rows, _End(name, 1, None), location=op.location)


def _parts(op: StageOp, body: Body) -> list[tuple[Axis, int]]:
    out = body.outputs[0]
    by_dim = {axis.dim_of(out): axis for axis in body.axes()}
    found: list[tuple[Axis, int]] = []
    for dim, count in op.parts:
        if dim not in by_dim or by_dim[dim].size % count:
            raise CompileError(
                "bad-parts",
                f'convert-dataflow-to-rdu: stage "{op.sym.data}" cannot be cut into {count} parts along dim {dim}',
                why="its body couples that dim"
                if dim not in by_dim
                else f"the tile has {by_dim[dim].size} indices there",
                fix="choose parts that parallelize would choose",
                location=locations.of(op),
            )
        found.append((by_dim[dim], count))
    return found


def _word(text: str) -> str:
    return "".join(c if c.isalnum() or c in "_." else "_" for c in text) or "_"


Place = tuple[str, int]


class _Program:
    """Walks the entry function, and through calls, and writes regions, ports and launches."""

    def __init__(self, module: ModuleOp) -> None:
        self.module = module
        self.functions = {f.sym_name.data: f for f in module.body.block.ops if isinstance(f, func.FuncOp)}
        self.block = Block()
        self.regions: dict[str, RegionOp] = {}
        self.order: list[RegionOp] = []
        self.stems: dict[str, int] = {}
        self.weights: dict[str, str] = {}
        self.launches: list[LaunchOp] = []
        self.mode = launch_mode(device_of(module))
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
            region = self._region(name, "state" if name in states else "input", tt(value))
            places.append((region, 0))
            ports.append(PortOp("input", name, region, tt(value)))
        results = self._walk(main, places, [None] * len(names.results), None)
        for name, (region, offset), type in zip(names.results, results, main.function_type.outputs, strict=True):
            if self.regions[region].kind.data == "temp":
                self.regions[region].kind = StringAttr("output")
            ports.append(PortOp("output", name, region, tt(type), offset))
        for op in (*self.order, *ports, *self.launches):
            if not locations.is_known(op.location):
                op.location = main.location
            self.block.add_op(op)
        program = ProgramOp("main", self.block, names.states)
        program.location = main.location
        return program

    def _region(self, stem: str, kind: str, type: TT, key: str = "", location: Location | None = None) -> str:
        word = _word(stem)
        count = self.stems.get(word, 0)
        name = word if not count else f"{word}.{count}"
        while name in self.regions:
            count += 1
            name = f"{word}.{count}"
        self.stems[word] = count + 1
        op = RegionOp(name, kind, type, key)
        if location is not None:
            op.location = location
        self.regions[name] = op
        self.order.append(op)
        return name

    def _walk(
        self, function: func.FuncOp, args: Sequence[Place], wanted: Sequence[Place | None], caller: Location | None
    ) -> list[Place]:
        """Launch everything a function does; `args` are where its arguments lie, `wanted` where its results should."""
        block = function.body.block
        at: dict[SSAValue, Place] = dict(zip(block.args, args, strict=True))
        tied: dict[SSAValue, Place] = {}
        last = block.last_op
        assert isinstance(last, func.ReturnOp)
        for value, place in zip(last.operands, wanted, strict=True):
            if place is not None:
                self._tie(value, place, tied)
        for op in block.ops:
            if op.name == "tensor.concat" and op.results[0] not in tied:
                self._tie(
                    op.results[0],
                    (
                        self._region(
                            f"{function.sym_name.data}.concat", "temp", tt(op.results[0]), location=op.location
                        ),
                        0,
                    ),
                    tied,
                )
        for op in block.ops:
            match op:
                case WeightOp():
                    at[op.result] = self._weight(op)
                case SectionOp():
                    self._section(op, at, tied, caller)
                case func.CallOp():
                    callee = self.functions[op.callee.string_value()]
                    inner = op.location if caller is None else locations.call_site(op.location, caller)
                    places = [self._place(v, at, tied) for v in op.operands]
                    found = self._walk(callee, places, [tied.get(r) for r in op.results], inner)
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
            self.weights[key] = self._region(key, "weight", tt(op.result), key, op.location)
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
        region, offset = self._place(ref.root, at, tied) if ref.root is not value else _lost(value)
        return region, offset + ref.view.offset

    def _section(
        self, op: SectionOp, at: dict[SSAValue, Place], tied: dict[SSAValue, Place], caller: Location | None
    ) -> None:
        places = [self._place(v, at, tied) for v in op.ins]
        last = op.body.block.last_op
        assert last is not None
        for i, (result, inner) in enumerate(zip(op.outs, last.operands, strict=True)):
            if isinstance(inner.owner, ScatterOp):
                base = op.ins[op.body.block.args.index(inner.owner.base)]  # pyright: ignore[reportArgumentType]
                place = self._place(base, at, tied)
                self._check_owned(op, place)
            else:
                place = tied.get(result) or (
                    self._region(f"{op.sym.data}.out{i}", "temp", tt(result), location=op.location),
                    0,
                )
            at[result] = place
            places.append(place)
        launch = LaunchOp(op.sym.data, places, self.mode)
        launch.location = op.location if caller is None else locations.call_site(op.location, caller)
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


def _lost(value: SSAValue) -> Place:
    raise CompileError("not-mapped", f"convert-dataflow-to-rdu: a value of type {value.type} has no memory")


def _param_names(section: SectionOp) -> list[str]:
    found: list[str] = []
    for i, value in enumerate(section.ins):
        op = producer(value)
        found.append(op.key.data if isinstance(op, WeightOp) else value.name_hint or f"in{i}")
    return found


@dataclass(frozen=True)
class ConvertDataflowToRduPass(Pass):
    """Turn sections into configs of virtual units and flows, and functions into launches over off-chip regions.

    Assumes tiled stages and sized buffers. A stage becomes one group of compute units with its whole body
    (split-to-units cuts it), a buffer a group of memory units, loads and stores address generators. Calls are followed:
    a shared function is one config launched once per call. Dense slices and reshapes between sections become element
    offsets of regions; a concatenation's parts are written in place.

        %b = dataflow.buffer … (%s …) to (…)       =>   rdu.pmu @buffer …
        %t = dataflow.stage "gemm"(%b, %w) …            rdu.pcu @gemm "systolic" { … }
                                                        rdu.flow @buffer -> @gemm carries <…> {from = …}
    """

    name = "convert-dataflow-to-rdu"

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        top = module.body.block
        functions = [op for op in top.ops if isinstance(op, func.FuncOp)]
        if not functions:
            return False
        device = device_of(module)
        program = _Program(module).run()
        configs = [
            _Config(op, _param_names(op), device).run()
            for f in functions
            for op in f.body.block.ops
            if isinstance(op, SectionOp)
        ]
        used = {launch.config.string_value() for launch in program.launches}
        top.insert_ops_before([c for c in configs if c.sym_name.data in used] + [program], functions[0])
        for f in functions:
            f.detach()
            f.erase()
        return True
