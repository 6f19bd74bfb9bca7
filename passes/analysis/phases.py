"""What a section's time is made of: which stages work at the same time, how many units each gets, and what moves.

A buffer whose readers follow its writers tile by tile lets both work at the same time; one that must be whole before it
is read is a *barrier*, and the stages behind it belong to a later *phase*. The units of a phase idle in the others, so
a section takes the sum of its phases, each as long as its slowest stage with the units it was given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import log, prod
from typing import Any, NamedTuple

import numpy as np
from xdsl.ir import Operation, OpResult, SSAValue

from headrace.dialects.dataflow.ops import BufferOp, StageOp, StoreOp, stream_of, views
from headrace.dialects.dataflow.types import StreamType
from headrace.dialects.machine.cost import agcu_rate, memory_bytes_per_cycle, memory_cycles
from headrace.dialects.machine.device import Device
from headrace.dialects.support import dtypes
from headrace.dialects.tensor.shapes.bodies import Axis
from headrace.passes.analysis.bodies import Body
from headrace.passes.analysis.memory import covered, crowded, fitting_frames, frame_count, free_dims, units_for
from headrace.passes.analysis.pieces import CONTRACTIONS, Split, Stored, peers, pieces, splits

Array = np.ndarray[Any, np.dtype[Any]]


class Place(NamedTuple):
    """When a process works: its phase, from 0, and how many processes of that phase it waits for tile by tile."""

    phase: int
    depth: int


class Memories:
    """The buffers of a tiled section, each looked at once."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._frames: dict[BufferOp, int] = {}
        self._spread: dict[BufferOp, tuple[int, int]] = {}

    def frames(self, buffer: BufferOp) -> int:
        """In how many frames a buffer passes its tensor on; with one it must be whole before it is read."""
        if buffer not in self._frames:
            self._frames[buffer] = frame_count(buffer, fitting_frames(buffer, self.device, 2))
        return self._frames[buffer]

    def spread(self, buffer: BufferOp) -> tuple[int, int]:
        """The dim along which a buffer is likely to be spread, and the most memory units for its traffic."""
        if buffer not in self._spread:
            frames, shape = fitting_frames(buffer, self.device, 2), buffer.buffer_type.shape
            dim = free_dims(buffer, frames)[0] if shape else 0
            extent = shape[dim] if shape else 1
            self._spread[buffer] = dim, max(units_for(buffer, self.device, frames, 2), min(MOST_MEMORIES, extent))
        return self._spread[buffer]


def phases(processes: Iterable[Operation], device: Device, memories: Memories | None = None) -> dict[Operation, Place]:
    """When each process of a tiled section works; `processes` in an order in which writers come first."""
    memories = memories or Memories(device)
    found: dict[Operation, Place] = {}
    for process in processes:
        place = Place(0, 0)
        for value in process.operands:
            buffer = value.owner
            made = buffer.ins if isinstance(buffer, BufferOp) else (value,)
            before = [found[v.owner] for v in made if v.owner in found]  # pyright: ignore[reportArgumentType]
            if not before:
                continue
            last = max(before)
            barrier = isinstance(buffer, BufferOp) and memories.frames(buffer) == 1
            place = max(place, Place(last.phase + 1, 0) if barrier else Place(last.phase, last.depth + 1))
        found[process] = place
    return found


def options(stage: StageOp, memories: Memories, most: int) -> list[tuple[Split, int, float]]:
    """The ways to spread a stage that are worth it, with the units and the cycles for all of its steps of each, of its
    units or of the memories that it reads; the slowest first."""
    body, device = Body.of(stage.body.block), memories.device
    if not any(op.name in CONTRACTIONS for op in body.ops):
        most = min(most, MOST_UNITS)
    steps, chain = stream_of(stage.outs[0]).steps, len(pieces(body, device))
    ports = _ports(stage, memories)
    found: list[tuple[Split, int, float]] = []
    uneven = divisible(stage, body) is not None
    for split in splits(body, device, most, _stored(stage, body), uneven=uneven, steps=steps):
        cycles = max([split.interval, *(port.cycles(split.reads) for port in ports)])
        if not found or steps * cycles < found[-1][2]:
            found.append((split, chain * split.units, steps * cycles))
    return found


class _Ports(NamedTuple):
    """Where a stage reads a buffer: with which operands, which part of a dim each of them comes by, and the words a
    cycle that all units of the buffer may pass. That is what their ports do, or one word each where a stage works on
    one tile only: links are balanced for the average of a whole run, and such a stage has its words all at once."""

    extent: int
    operands: tuple[tuple[int, tuple[int, int]], ...]
    rate: int

    def cycles(self, words: Sequence[int]) -> float:
        """Cycles of a step, until the words of all operands have passed."""
        if len(self.operands) == 1:
            i, (first, last) = self.operands[0]
            return words[i] * self.extent / (last - first) / self.rate
        return crowded([(part, float(words[i])) for i, part in self.operands], self.extent) / self.rate


def _ports(stage: StageOp, memories: Memories) -> list[_Ports]:
    """Where a stage reads buffers."""
    taken: dict[BufferOp, list[tuple[int, tuple[int, int]]]] = {}
    steps = stream_of(stage.outs[0]).steps
    for i, value in enumerate(stage.ins):
        if not isinstance(value, OpResult) or not isinstance(buffer := value.op, BufferOp):
            continue
        shape = buffer.buffer_type.shape
        if shape:
            view = buffer.out_views.data[value.index].view
            part = covered(shape, stream_of(value), view, memories.spread(buffer)[0])
            taken.setdefault(buffer, []).append((i, part))
    found: list[_Ports] = []
    for buffer, operands in taken.items():
        dim, units = memories.spread(buffer)
        rate = units * (1 if steps == 1 else memories.device.pmu.read_ports)
        found.append(_Ports(buffer.buffer_type.shape[dim], tuple(operands), rate))
    return found


def divisible(stage: StageOp, body: Body) -> Axis | None:
    """The axis of a product's columns (a convolution's channels), if the stage can become two along it: no loop runs
    over it, and what it works on comes from buffers and goes to buffers or stores."""
    contraction = next((op.name for op in body.ops if op.name in CONTRACTIONS), None)
    if contraction is None:
        return None
    out = body.outputs[0]
    dim = 1 if contraction == "tensor.conv" else len(body.types[out].shape) - 1
    axis = next((axis for axis in body.axes() if axis.dim_of(out) == dim), None)
    if axis is None:
        return None
    for i, value in enumerate(stage.ins):
        if not isinstance(value.owner, BufferOp):
            return None
        if (follow := axis.follows.get(i)) is not None and (
            (follow.scale, follow.extent, follow.offset) != (1, 1, 0)
            or any(loop.dim == follow.dim for loop in stream_of(value).time)
        ):
            return None
    for v, value in zip(body.outputs, stage.outs, strict=True):
        if any(loop.dim == axis.dim_of(v) for loop in stream_of(value).time) or not all(
            isinstance(use.operation, BufferOp | StoreOp) for use in value.uses
        ):
            return None
    return axis


def _stored(stage: StageOp, body: Body) -> tuple[Stored, ...]:
    """What goes from a stage straight to off-chip memory."""
    return tuple(
        Stored(value, views(use.operation.in_views)[use.index].strides)
        for value, out in zip(body.outputs, stage.outs, strict=True)
        for use in out.uses
        if isinstance(use.operation, StoreOp)
    )


def moved(stream: SSAValue) -> int:
    """Bytes of the tensor that a stream denotes."""
    assert isinstance(stream.type, StreamType)
    of = stream.type.stream
    return prod(of.full_shape) * dtypes.byte_size(of.dtype)


class Peers(NamedTuple):
    """What a stage asks of the links to other sockets: cycles of them in all, and cycles that its first tile waits for
    them besides."""

    cycles: float
    wait: float


def peers_of(stage: StageOp, device: Device) -> Peers:
    """What the collectives of a stage ask of the links to other sockets."""
    body, steps = Body.of(stage.body.block), stream_of(stage.outs[0]).steps
    each, wait = peers(body, body.types, device, steps=steps)
    return Peers(steps * each, wait)


class Load(NamedTuple):
    """What comes from off chip: all bytes, those without which its readers do not begin, and those for which there is
    room before they do."""

    bytes: int
    first: float
    room: float


def load_of(stream: SSAValue, memories: Memories) -> Load:
    """What it takes to load a stream into the buffers that it goes to."""
    nbytes = moved(stream)
    frames = [memories.frames(use.operation) for use in stream.uses if isinstance(use.operation, BufferOp)]
    count = min(frames, default=1)
    return Load(nbytes, nbytes / count, nbytes * min(2, count) / count)


MOST_MEMORIES = 32
"""Memory units that a buffer takes for its traffic at most (`bank-memories`)."""
MOST_UNITS = 256
"""Most units for one piece of a stage without a contraction: each has its own words, and more of them than that take
more flow identifiers at the memory units than the network has."""
STEP = 1.02
"""Ratio of neighbouring times on the grid on which units are shared out."""
PRICES = np.geomspace(1e-6, 1e6, 97)
"""Cycles that a unit is worth, relative to the average, among which the best is taken."""


class Grid:
    """Times from `least` to `most` cycles, among which stages get theirs."""

    def __init__(self, least: float, most: float) -> None:
        least = max(least, 1.0)
        count = max(2, int(log(max(most, least) / least) / log(STEP)) + 2)
        self.times: Array = least * STEP ** np.arange(count)

    def units(self, options: Sequence[tuple[int, float]]) -> Array:
        """Units that a stage takes to be done within each time, the least of `options` (units, cycles), most cycles
        first; beyond the fastest of them infinitely many."""
        counts = np.array([units for units, _ in options], np.float64)
        cycles = np.array([cycles for _, cycles in options])
        if len(options) == 0:
            return np.zeros(len(self.times))
        enough = np.searchsorted(-cycles, -self.times * (1 + 1e-9))
        return np.where(enough < len(counts), counts[np.minimum(enough, len(counts) - 1)], np.inf)

    def cycles(self, options: Sequence[tuple[int, float]]) -> Array:
        """Cycles that a stage takes with the `units` for each time; 0 where there are none."""
        cycles = np.array([*(cycles for _, cycles in options), 0.0])
        enough = np.searchsorted(-cycles[:-1], -self.times * (1 + 1e-9))
        return cycles[np.minimum(enough, len(options))]

    def share(self, demands: Sequence[Array], budget: float) -> list[int] | None:
        """For each phase, given the units that it takes for each time, the number of its time, such that the sum of
        the times is least within a budget of units for all of them; None when nothing fits."""
        if len(demands) == 1:
            fits = np.flatnonzero(demands[0] <= budget)
            return [int(fits[0])] if len(fits) else None
        return self.cheapest([self.priced(demand, budget) for demand in demands], budget)

    def priced(self, demand: Array, budget: float, times: Array | None = None) -> Priced:
        """What a phase takes at each of the prices; `times` are its own for each time of the grid."""
        times = self.times if times is None else times
        new = np.append(True, demand[1:] != demand[:-1])  # of times that take equal units the least is best
        first = np.flatnonzero(new)
        scale = self.times[-1] / max(1.0, budget)
        with np.errstate(invalid="ignore"):
            at = first[np.argmin(times[first] + scale * PRICES[:, None] * demand[first], 1)]
        return Priced(at, times[at], demand[at])

    def cheapest(self, phases: Sequence[Priced], budget: float) -> list[int] | None:
        """The numbers of the times at the price at which their sum is least within the budget."""
        fits = np.flatnonzero(np.sum([phase.units for phase in phases], 0) <= budget)
        if not len(fits):
            return None
        best = fits[np.argmin(np.sum([phase.times for phase in phases], 0)[fits])]
        return [int(phase.at[best]) for phase in phases]


class Priced(NamedTuple):
    """The best time of a phase for each price of a unit: its number on the grid, the time, and the units it takes."""

    at: Array
    times: Array
    units: Array


class Run(NamedTuple):
    """Processes of one phase, for each time of the grid: the units that they take together, the cycles of the slowest,
    and for each number of processes that some wait for, tile by tile, the cycles of the longest step of those, and
    those that a tile there waits for other sockets; and the cycles of the links to other sockets that all of them take
    together."""

    phase: int
    units: Array
    slowest: Array
    fills: dict[int, Array]
    waits: Mapping[int, float] = {}
    peers: float = 0.0

    def with_(self, other: Run) -> Run:
        """Both, of one phase."""
        fills = dict(self.fills)
        for depth, step in other.fills.items():
            fills[depth] = np.maximum(fills[depth], step) if depth in fills else step
        waits = {**self.waits}
        for depth, wait in other.waits.items():
            waits[depth] = max(waits.get(depth, 0.0), wait)
        units, slowest = self.units + other.units, np.maximum(self.slowest, other.slowest)
        return Run(self.phase, units, slowest, fills, waits, self.peers + other.peers)


class Tally:
    """Adds up a section, runs of processes in the order of their phases; `cycles` is its modelled time when its stages
    share `units`."""

    def __init__(self, device: Device, units: int, grid: Grid) -> None:
        memory = "hbm" if device.hbm else "ddr"
        self.units = units
        self.grid = grid
        self.rate = memory_bytes_per_cycle(device, memory)
        self.pace = agcu_rate(device, memory)
        """Bytes that one address generator passes a cycle."""
        self.latency = device.agcu.latency + memory_cycles(device, memory, 1)
        self.generators = device.count("agcu")
        self.open: Run | None = None
        self.fill: Array = np.zeros(0)
        """Cycles from the first tile of the open phase to the first of its last stage, and of the longest step."""
        self.longest: Array = np.zeros(0)
        self.waits: dict[int, float] = {}
        """Of the open phase, for each depth the cycles that a tile waits for other sockets."""
        self.peers = 0.0
        self.closed: list[Priced] = []
        """Of the phases before the open one, at each of the prices: their times, and their units."""
        self.closed_units: Array = np.zeros(len(PRICES))
        self.loads: list[tuple[int, Load]] = []
        """What is loaded, with the number of the phase that waits for it."""
        self.loaded = 0

    def add(self, run: Run) -> None:
        """Processes of the phase that is open, or of a later one."""
        if self.open is None or self.open.phase != run.phase:
            if self.open is not None:
                priced = self.grid.priced(self.open.units, self.units, self._times(self.open))
                self.closed.append(priced)
                self.closed_units = self.closed_units + priced.units
            self.open = Run(run.phase, np.zeros_like(run.units), np.zeros_like(run.units), {})
            self.fill = self.longest = np.zeros_like(run.units)
            self.waits = {}
        self.peers += run.peers
        for depth, wait in run.waits.items():
            self.waits[depth] = max(self.waits.get(depth, 0.0), wait)
        fills = self.open.fills
        for depth, step in run.fills.items():
            known = fills.get(depth)
            fills[depth] = step if known is None else np.maximum(known, step)
            self.fill = self.fill + (fills[depth] if known is None else fills[depth] - known)
            self.longest = np.maximum(self.longest, step)
        units, slowest = self.open.units + run.units, np.maximum(self.open.slowest, run.slowest)
        self.open = Run(run.phase, units, slowest, fills)

    def _times(self, run: Run) -> Array:
        """Cycles of the open phase: of its slowest stage, of a step of each of the others on the way through, and of
        what the way through waits for other sockets."""
        return run.slowest + self.fill - self.longest + sum(self.waits.values())

    def load(self, load: Load) -> None:
        """What comes from off chip for the phase that is open."""
        self.loads.append((len(self.closed), load))
        self.loaded += load.bytes

    def _arrivals(self, stored: int) -> dict[int, float]:
        """For each phase that waits for loads, when the last of them is there. All begin at once and share the memory
        by their generators; what one of them no longer takes, the others do."""
        if not self.loads:
            return {}
        phases = [phase for phase, _ in self.loads]
        nbytes, first, room = (np.array(x, np.float64) for x in zip(*(load for _, load in self.loads), strict=True))
        order = {phase: i for i, phase in enumerate(dict.fromkeys(phases))}
        ranks = np.array([order[phase] for phase in phases])
        dealt = share_generators(nbytes, ranks, self.generators, stored, self.rate / self.pace)
        done = np.sort(room / dealt)  # in bytes of each generator
        at_work = dealt.sum() - np.append(0.0, np.cumsum(dealt[np.argsort(room / dealt)])[:-1])
        speed = np.minimum(self.pace, self.rate / np.maximum(at_work, 1.0))
        ends = np.cumsum(np.diff(done, prepend=0.0) / speed)
        there = np.interp(first / dealt, np.append(0.0, done), np.append(0.0, ends)) + self.latency
        found: dict[int, float] = {}
        for phase, time in zip(phases, there, strict=True):
            found[phase] = max(found.get(phase, 0.0), float(time))
        return found

    def cycles(self, stored: int, launch: float) -> float:
        """Cycles of the section when it stores that many bytes off chip: the phases one after the other, each behind
        its loads, or the traffic off chip or to other sockets if that takes longer; and the launch."""
        run = self.open
        traffic = max((self.loaded + stored) / self.rate, self.peers)
        if run is None:
            return traffic + launch
        times = self._times(run)
        if not self.closed:
            fits = np.flatnonzero(run.units <= self.units)[:1]
            phases = [times[fits]]
        else:
            priced = self.grid.priced(run.units, self.units, times)
            fits = np.flatnonzero(self.closed_units + priced.units <= self.units)
            phases = [phase.times[fits] for phase in (*self.closed, priced)]
        if not len(fits):
            return float("inf")
        arrivals = self._arrivals(stored)
        best = int(np.argmin(np.sum(phases, 0)))
        time = 0.0
        for number, cycles in enumerate(phases):
            time = max(time, arrivals.get(number, 0.0)) + float(cycles[best])
        return max(time, traffic) + launch


class StreamTally:
    """Adds up a section through which `runs` runs follow each other, like `Tally`; `cycles` is its modelled time for
    one of them: that of the slowest stage when all work at the same time and share `units`, or of what moves in each
    run, and a part of what is done once for all of them."""

    def __init__(self, device: Device, units: int, grid: Grid, runs: int) -> None:
        memory = "hbm" if device.hbm else "ddr"
        self.units, self.runs = units, runs
        self.rate = memory_bytes_per_cycle(device, memory)
        self.latency = device.agcu.latency + memory_cycles(device, memory, 1)
        self.taken: Array = np.zeros(len(grid.times))
        self.slowest: Array = np.zeros(len(grid.times))
        self.phases: set[int] = set()
        self.peers = 0.0
        self.once = self.each = 0.0
        """Bytes loaded in the first run, if the weights are kept, and in each."""

    def add(self, run: Run) -> None:
        """More processes."""
        self.taken = self.taken + run.units
        self.slowest = np.maximum(self.slowest, run.slowest)
        self.phases.add(run.phase)
        self.peers += run.peers

    def load(self, load: Load, kept: bool = False) -> None:
        """What comes from off chip."""
        if kept:
            self.once += load.bytes
        else:
            self.each += load.bytes

    def cycles(self, stored: int, launch: float, keeps: bool = True) -> float:
        """Cycles of a run when the section stores that many bytes off chip in each, with weights kept or loaded again
        in each run."""
        fits = np.flatnonzero(self.taken <= self.units)
        if not len(fits):
            return float("inf")
        once, each = (self.once, self.each) if keeps else (0.0, self.each + self.once)
        interval = max(float(self.slowest[fits[0]]), (each + stored) / self.rate, self.peers)
        fill = interval * (len(self.phases) - 1) + self.latency
        return interval + (launch + once / self.rate + fill) / self.runs


AHEAD = 2
"""How many times faster than the memory takes for all bytes of a section the generators of each load pass its own."""


def share_generators(nbytes: Array, ranks: Array, generators: int, stored: int, enough: float) -> Array:
    """How many address generators each load gets, in parts of one, about as `convert-dataflow-to-rdu` deals them out:
    what moves its bytes `AHEAD` times faster than the memory does, and of those left most what is used first."""
    total = nbytes.sum() + stored
    least = 1 + AHEAD * enough * nbytes / total
    urgent = np.append(nbytes / 2.0**ranks, float(stored))
    least = np.append(least, 1 + AHEAD * enough * stored / total)
    order = np.argsort(least / np.maximum(urgent, 1e-9))
    least, urgent = least[order], urgent[order]
    # the first k of them are raised to one level: what is left of the generators when the others have their least
    level = (generators - (least.sum() - np.cumsum(least))) / np.maximum(np.cumsum(urgent), 1e-9)
    raised = np.flatnonzero(level * urgent >= least)
    counts = np.empty_like(least)
    counts[order] = np.maximum(least, level[raised[-1]] * urgent) if len(raised) else least * generators / least.sum()
    return counts[:-1]
