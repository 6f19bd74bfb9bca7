"""bank-memories: spread every buffer over memory units and their banks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, prod

from xdsl.context import Context
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64
from xdsl.ir import SSAValue

from headrace.dialects.dataflow.ops import BufferOp, GatherOp, ScatterOp, SectionOp, StageOp, stream_of, views
from headrace.dialects.machine.attributes import device_of
from headrace.dialects.machine.cost import words_of
from headrace.dialects.machine.device import Device
from headrace.dialects.support import dtypes, locations
from headrace.dialects.support.access import View, row_major
from headrace.dialects.support.diagnostics import Collector
from headrace.dialects.support.journal import Candidate, count, current, decide
from headrace.passes.analysis.bodies import Body
from headrace.passes.analysis.memory import covered, crowded, free_dims, held_bytes, units_for
from headrace.passes.analysis.phases import MOST_MEMORIES
from headrace.passes.analysis.pieces import body_interval, traffic
from headrace.passes.analysis.runs import runs_of
from headrace.passes.analysis.sections import sections
from headrace.passes.infra.base import Pass, option


def stage_cycles(section: SectionOp, device: Device) -> float:
    """Cycles of the slowest stage of a section, with the units that it has: what the memories have to keep up with."""
    slowest = 1.0
    for op in section.body.block.ops:
        if isinstance(op, StageOp):
            body = Body.of(op.body.block)
            slowest = max(slowest, stream_of(op.outs[0]).steps * body_interval(body, body.types, device) / op.units)
        elif isinstance(op, GatherOp | ScatterOp):  # an address generator passes a word a cycle
            rows = stream_of(op.out if isinstance(op, GatherOp) else op.rows)
            nbytes = rows.tile_elements * dtypes.byte_size(rows.dtype)
            slowest = max(slowest, rows.steps * words_of(device, nbytes))
    return slowest


def port_words(op: BufferOp, device: Device) -> tuple[list[int], list[int]]:
    """The words that pass through each port that writes a buffer, and through each that reads it: as often as the units
    of its stages ask for them. What several units read alike is read once and multicast."""

    def words(value: SSAValue) -> int:
        of = stream_of(value)
        return of.steps * max(asked.get(value, 0), words_of(device, of.tile_elements * dtypes.byte_size(of.dtype)))

    asked: dict[SSAValue, int] = {}
    for value, _, stage, number in _stage_ports(op):
        reads, writes = traffic(Body.of(stage.body.block), stage.parts, device)
        asked[value] = max(asked.get(value, 0), writes[number] if value in op.ins else reads[number])
    return [words(v) for v in op.ins], [words(v) for v in op.outs]


def port_cycles(op: BufferOp, words: tuple[list[int], list[int]], dim: int, device: Device) -> float:
    """Cycles that one unit would take to pass all `words` of a buffer's ports, if every index of `dim` were asked for
    as often as the busiest."""
    shape = op.buffer_type.shape
    ports = iter(op.ports)

    def most(some: Sequence[int]) -> float:
        if not shape:
            return sum(some)
        parts = [(covered(shape, *next(ports), dim), float(n)) for n in some]
        return crowded(parts, shape[dim])

    writes, reads = most(words[0]), most(words[1])
    return max(reads / device.pmu.read_ports, writes / device.pmu.write_ports)


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


def grains(op: BufferOp, dim: int) -> set[int]:
    """Of how many indices of a dim the tiles are that the units of stages read at a time."""
    shape = op.buffer_type.shape
    stride, extent = row_major(shape)[dim], shape[dim]
    found: set[int] = set()
    for value, view, stage, number in _stage_ports(op):
        if value in op.ins:
            continue
        body = Body.of(stage.body.block)
        tile = dict(enumerate(stream_of(value).tile))
        for axis in body.axes():
            parts = dict(stage.parts).get(axis.dim_of(body.outputs[0]), 1)
            if (along := axis.dim_of(number)) >= 0:
                tile[along] //= parts
        sizes = [tile[i] * abs(s) // stride for i, s in enumerate(view.strides) if stride <= abs(s) < stride * extent]
        found.update(n for n in sizes if n > 1)
    return found


def _evenly(extent: int, need: int, grains: Iterable[int]) -> int:
    """Units that share a dim evenly: at least as many as needed, and fewer than twice as many. No tile lies in more of
    them than it must, if there is such a number."""

    def aligned(n: int) -> bool:
        return all(g % (extent // n) == 0 or extent // n % g == 0 for g in grains)

    even = [n for n in range(need, min(extent, 2 * need) + 1) if extent % n == 0]
    return next((n for n in even if aligned(n)), even[0] if even else need)


@dataclass(frozen=True)
class Share:
    """How a buffer lies over memory units, and how many connections that makes."""

    dim: int
    units: int
    flows: int = 0

    def __str__(self) -> str:
        return f"{self.units} units along dim {self.dim}" if self.units > 1 else "1 unit"


def share(op: BufferOp, target: float, device: Device, most: int, thrift: int = 0, runs: int = 1) -> Share | None:
    """The first of the `shares`; None when no dim spreads the buffer over units."""
    return next(iter(shares(op, target, device, most, thrift, runs)), None)


def shares(op: BufferOp, target: float, device: Device, most: int, thrift: int = 0, runs: int = 1) -> list[Share]:
    """The dims and numbers of units that hold the buffer and pass its tiles within `target` cycles, the one with the
    fewest connections to the stages around it first. `thrift` 0 takes more units where they share the dim evenly, 1
    does not, 2 takes the fewest units instead of the fewest connections."""
    frames, copies = op.frames.value.data, op.copies.value.data
    shape = op.buffer_type.shape
    ports = cuts(op)
    words = port_words(op, device)
    found: list[tuple[tuple[int, int, int, int], Share]] = []
    for rank, dim in enumerate(free_dims(op, frames) if shape else [0]):
        least = units_for(op, device, frames, copies, dim, runs)
        extent = shape[dim] if shape else 1
        if not least:
            continue
        traffic = min(ceil(port_cycles(op, words, dim, device) / target), most)
        need = min(max(least, traffic), extent)
        even = _evenly(extent, need, grains(op, dim) if need > 1 else ())
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
    most: int = option(MOST_MEMORIES, "most units that a buffer takes for its traffic", low=1)

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        device = device_of(module)
        found = Collector()
        runs = runs_of(module)
        changed = [self._section(section, device, found, runs) for section in sections(module)]
        found.raise_if_any()
        return any(changed)

    def _section(self, section: SectionOp, device: Device, found: Collector, runs: int) -> bool:
        buffers = [op for op in section.body.block.ops if isinstance(op, BufferOp)]
        budget = int(device.count("pmu") * self.share)
        target = stage_cycles(section, device)
        thrift = 0
        while True:
            chosen = {op: share(op, target, device, self.most, thrift, runs) for op in buffers}
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
                self._explain(op, shares(op, target, device, self.most, thrift, runs))
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
