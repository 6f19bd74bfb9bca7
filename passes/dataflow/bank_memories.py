"""bank-memories: spread every buffer over memory units and their banks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, prod

from xdsl.context import Context
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64
from xdsl.ir import SSAValue

from headrace.dialects.dataflow.ops import BufferOp, SectionOp, StageOp, stream_of, views
from headrace.dialects.machine.attributes import device_of
from headrace.dialects.machine.cost import sram_cycles
from headrace.dialects.machine.device import Device
from headrace.dialects.support import dtypes, locations
from headrace.dialects.support.access import View, row_major
from headrace.dialects.support.diagnostics import Collector
from headrace.dialects.support.journal import Candidate, count, current, decide
from headrace.dialects.tensor.shapes import TT
from headrace.dialects.tensor.shapes.bodies import Axis, cut
from headrace.passes.analysis.bodies import Body
from headrace.passes.analysis.memory import free_dims, held_bytes, units_for
from headrace.passes.analysis.pieces import CONTRACTIONS, body_interval, feed_words
from headrace.passes.analysis.sections import sections
from headrace.passes.infra.base import Pass, option

BUSY = 0.7
"""Share of the slowest stage's time that a memory unit's port works at most, so that streams that leave one unit do not
wait for each other on its links."""


def stage_cycles(section: SectionOp, device: Device) -> float:
    """Cycles of the slowest stage of a section, with the units that it has: what the memories have to keep up with."""
    slowest = 1.0
    for op in section.body.block.ops:
        if isinstance(op, StageOp):
            body, types, _ = _parts(op)
            slowest = max(slowest, stream_of(op.outs[0]).steps * body_interval(body, types, device))
    return slowest


def _parts(stage: StageOp) -> tuple[Body, tuple[TT, ...], list[tuple[Axis, int]]]:
    """The body of a stage, the types of its values on one of its units, and the axes that it is cut along."""
    body = Body.of(stage.body.block)
    by_dim = {axis.dim_of(body.outputs[0]): axis for axis in body.axes()} if stage.parts else {}
    along = [(by_dim[dim], parts) for dim, parts in stage.parts if dim in by_dim]
    return body, cut(body.ops, body.types, [(axis, axis.size // parts) for axis, parts in along]), along


def port_cycles(op: BufferOp, device: Device) -> float:
    """Cycles that one unit would take to pass everything that goes in and out of a buffer. What several units of a
    stage read alike is read once and multicast; an operand that a unit takes again for each of its blocks is read as
    often."""
    size = device.network.link_bytes
    nbytes = [0, 0]
    for value in (*op.ins, *op.outs):
        stream = stream_of(value)
        most = stream.tile_elements * dtypes.byte_size(stream.dtype)
        for use in value.uses if value in op.outs else ():
            if isinstance(stage := use.operation, StageOp):
                body, types, along = _parts(stage)
                apart = prod(parts for axis, parts in along if use.index in axis.follows)
                if any(x.name in CONTRACTIONS for x in body.ops):
                    most = max(most, apart * feed_words(body, types, use.index, device) * size)
        nbytes[value in op.ins] += stream.steps * most
    return max(sram_cycles(device, nbytes[0]), sram_cycles(device, nbytes[1], write=True))


def cuts(op: BufferOp) -> list[tuple[tuple[int, int], ...]]:
    """For every port that a parallel stage is at: (buffer dim, parts) of the parts that take different tiles there."""
    found: list[tuple[tuple[int, int], ...]] = []
    for value, view, stage, number in _stage_ports(op):
        body = Body.of(stage.body.block)
        by_dim = {axis.dim_of(body.outputs[0]): axis for axis in body.axes()}
        v = body.outputs[number] if value in op.ins else number
        here: list[tuple[int, int]] = []
        for dim, parts in stage.parts:
            axis = by_dim.get(dim)
            along = axis.dim_of(v) if axis is not None else -1
            if along >= 0:
                here.append((_dim_of_stride(op.buffer_type.shape, view.strides[along]), parts))
        found.append(tuple(here))
    return found


def _stage_ports(op: BufferOp) -> Iterator[tuple[SSAValue, View, StageOp, int]]:
    for value, view in zip(op.ins, views(op.in_views), strict=True):
        if isinstance(stage := value.owner, StageOp):
            yield value, view, stage, stage.outs.index(value)  # pyright: ignore[reportArgumentType]
    for value, view in zip(op.outs, views(op.out_views), strict=True):
        for use in value.uses:
            if isinstance(stage := use.operation, StageOp):
                yield value, view, stage, use.index


def _dim_of_stride(shape: Sequence[int], stride: int) -> int:
    return next((d for d, s in enumerate(row_major(shape)) if abs(stride) >= s), len(shape) - 1)


def nets(ports: Sequence[tuple[tuple[int, int], ...]], dim: int, units: int) -> int:
    """Connections between a buffer cut into `units` along `dim` and the units of its stages: parts along the same dim
    meet few memory units, parts along others all of them."""
    total = 0
    for port in ports:
        along = prod(parts for d, parts in port if d == dim)
        across = prod(parts for d, parts in port if d != dim)
        total += across * (max(along, units) if along > 1 else units)
    return total


@dataclass(frozen=True)
class Share:
    """How a buffer lies over memory units, and how many connections that makes."""

    dim: int
    units: int
    flows: int = 0

    def __str__(self) -> str:
        return f"{self.units} units along dim {self.dim}" if self.units > 1 else "1 unit"


def share(op: BufferOp, target: float, device: Device, most: int, thrift: int = 0) -> Share | None:
    """The first of the `shares`; None when no dim spreads the buffer over units."""
    return next(iter(shares(op, target, device, most, thrift)), None)


def shares(op: BufferOp, target: float, device: Device, most: int, thrift: int = 0) -> list[Share]:
    """The dims and numbers of units that hold the buffer and pass its tiles within `target` cycles, the one with the
    fewest connections to the stages around it first. `thrift` 0 takes more units where they share the dim evenly, 1
    does not, 2 takes the fewest units instead of the fewest connections."""
    frames, copies = op.frames.value.data, op.copies.value.data
    shape = op.buffer_type.shape
    ports = cuts(op)
    traffic = min(ceil(port_cycles(op, device) / (BUSY * target)), most)
    found: list[tuple[tuple[int, int, int, int], Share]] = []
    for rank, dim in enumerate(free_dims(op, frames) if shape else [0]):
        least = units_for(op, device, frames, copies, dim)
        extent = shape[dim] if shape else 1
        if not least:
            continue
        need = min(max(least, traffic), extent)
        even = next((n for n in range(need, min(extent, 2 * need) + 1) if extent % n == 0), need)
        units = need if thrift else even
        flows = nets(ports, dim, units) if units > 1 else 0
        short = max(least, traffic) - need  # a dim with too few indices for the traffic is the last choice
        found.append(
            (((0, units, flows, rank) if thrift > 1 else (short, flows, units, rank)), Share(dim, units, flows))
        )
    return [how for _, how in sorted(found, key=lambda x: x[0])]


@dataclass(frozen=True)
class BankMemoriesPass(Pass):
    """Give every buffer its memory units, the dim along which they share it, and its banks.

    Assumes sized buffers, parallel stages and a device in the module. A buffer takes the units that hold it, and more
    where one unit's ports would be slower than the slowest stage of the section, as long as the device has them. It is
    cut along the dim that gives the fewest connections to the units of its stages. A buffer that no dim spreads over
    units is refused with the numbers. Banks are interleaved by words; a reader whose lanes are an even stride apart
    meets fewer banks, which the timing model counts.

        dataflow.buffer [768, 2304] …   =>   dataflow.buffer [768, 2304] … {units = 18, split_dim = 1, banks = 32}
    """

    name = "bank-memories"
    share: float = option(0.9, "share of the device's memory units that a section may take", low=0.0, high=1.0)
    most: int = option(16, "most units that a buffer takes for its traffic", low=1)

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        device = device_of(module)
        found = Collector()
        changed = [self._section(section, device, found) for section in sections(module)]
        found.raise_if_any()
        return any(changed)

    def _section(self, section: SectionOp, device: Device, found: Collector) -> bool:
        buffers = [op for op in section.body.block.ops if isinstance(op, BufferOp)]
        budget = int(device.count("pmu") * self.share)
        target = stage_cycles(section, device)
        thrift = 0
        while True:
            chosen = {op: share(op, target, device, self.most, thrift) for op in buffers}
            if thrift > 1 or sum(x.units for x in chosen.values() if x) <= budget:
                break
            if target > 1e15:
                thrift += 1
            else:
                target *= 4  # the memories take longer than the stages then
        changed = False
        for op, how in chosen.items():
            if how is None:
                self._refuse(op, device, found)
                continue
            count("memory units", how.units)
            if current() is not None:
                self._explain(op, shares(op, target, device, self.most, thrift))
            wanted = IntegerAttr(how.units, i64), IntegerAttr(how.dim, i64), IntegerAttr(device.pmu.banks, i64)
            if (op.units, op.split_dim, op.banks) != wanted:
                op.units, op.split_dim, op.banks = wanted
                changed = True
        return changed

    def _explain(self, op: BufferOp, ways: Sequence[Share]) -> None:
        chosen, *others = ways
        why = "more connections or units, or too few indices"
        losers = [Candidate(str(x), x.flows, why) for x in others if str(x) != str(chosen)]
        decide("memory units", op, str(chosen), (Candidate(str(chosen), chosen.flows), *losers), "connections")

    def _refuse(self, op: BufferOp, device: Device, found: Collector) -> None:
        frames, copies = op.frames.value.data, op.copies.value.data
        extent = op.buffer_type.shape[free_dims(op, frames)[0]] if op.buffer_type.shape else 1
        found.add(
            "buffer-too-large",
            f"bank-memories: a buffer of {op.buffer_type} does not spread over memory units of {device.pmu.bytes} "
            "bytes",
            why=f"it holds {held_bytes(op, frames, copies)} bytes and its longest free dim has {extent} indices to "
            "share",
            fix="make tiles smaller, or cut the section",
            location=locations.of(op),
        )
