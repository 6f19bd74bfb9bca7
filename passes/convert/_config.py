"""One section as one config: stages, buffers and transfers become units, streams become flows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import IntegerAttr, StringAttr, i64
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
from headrace.dialects.machine.cost import memory_bytes_per_cycle
from headrace.dialects.machine.device import Device
from headrace.dialects.rdu.attributes import ParamAttr
from headrace.dialects.rdu.ops import (
    AgcuOp,
    ConfigOp,
    FlowOp,
    PcuOp,
    PmuOp,
    UnitOp,
)
from headrace.dialects.rdu.ops import YieldOp as UnitYieldOp
from headrace.dialects.support import dtypes, locations
from headrace.dialects.support.access import Loop, Stream, View
from headrace.dialects.support.diagnostics import CompileError
from headrace.dialects.support.locations import Location
from headrace.dialects.tensor.base import ir_type, tt
from headrace.dialects.tensor.shapes.bodies import Axis, cut
from headrace.dialects.tensor.storage import WeightOp
from headrace.passes.analysis.bodies import Body
from headrace.passes.analysis.phases import AHEAD, phases
from headrace.passes.analysis.pieces import CONTRACTIONS
from headrace.passes.analysis.views import producer


@dataclass(frozen=True)
class _End:
    """One end of a flow: unit, port, and the address program where the unit is a memory."""

    unit: str
    port: int
    view: View | None


class ConfigBuilder:
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
        """Deal the device's address generators out over loads and stores, at most one for each unit at the other end:
        one generator passes less than the memory can give. Each gets what it needs to move its bytes in `AHEAD` times
        less than the memory takes for all; the others go where most is moved, and rather to what is used first, since
        generators share the memory evenly: what is used later arrives while that is worked on."""
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
        total = sum(nbytes.values())
        if not total:
            return
        device = self.device
        memory = memory_bytes_per_cycle(device, "hbm" if device.hbm is not None else "ddr")
        enough = AHEAD * memory / device.agcu.bytes_per_cycle
        least = {name: min(ends[name], 1 + int(enough * moved / total)) for name, moved in nbytes.items()}
        ranks = self._first_uses()
        urgent = {name: moved / 2 ** ranks.get(name, 0) for name, moved in nbytes.items()}
        counts = dict.fromkeys(nbytes, 1)
        free = device.count("agcu") - sum(isinstance(u, AgcuOp) for u in units.values())
        for weights, most in ((nbytes, least), (urgent, ends)):
            while free > 0:
                name = max((n for n in counts if counts[n] < most[n]), key=lambda n: weights[n] / counts[n], default="")
                if not name:
                    break
                counts[name] += 1
                free -= 1
        for name, number in counts.items():
            units[name].count = IntegerAttr(number, i64)

    def _first_uses(self) -> dict[str, int]:
        """For each load, how many phases of the section in which something loaded is used first come before its own."""
        ops = list(self.section.body.block.ops)
        place = phases([op for op in ops if isinstance(op, StageOp | GatherOp | ScatterOp)], self.device)
        first: dict[str, int] = {}
        for op in ops:
            if isinstance(op, LoadOp):
                users = [use.operation for use in op.out.uses]
                behind = [use.operation for user in users for out in user.results for use in out.uses]
                used = [place[user].phase for user in (*users, *behind) if user in place]
                first[self.ends[op.out][0].unit] = min(used, default=0)
        order = sorted(set(first.values()))
        return {name: order.index(phase) for name, phase in first.items()}

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
        name = self._name(f"load_{word(self.params[param].title.data)}")
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
        name = self._name(word(op.sym.data))
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


def param_names(section: SectionOp) -> list[str]:
    found: list[str] = []
    for i, value in enumerate(section.ins):
        op = producer(value)
        found.append(op.key.data if isinstance(op, WeightOp) else value.name_hint or f"in{i}")
    return found


def word(text: str) -> str:
    """A model's name as a symbol: letters, digits, `_` and `.`."""
    return "".join(c if c.isalnum() or c in "_." else "_" for c in text) or "_"
