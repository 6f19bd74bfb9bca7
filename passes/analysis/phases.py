"""What a section's time is made of: which stages work at the same time, how many units each gets, and what moves.

A buffer whose readers follow its writers tile by tile lets both work at the same time; one that must be whole before it
is read is a *barrier*, and the stages behind it belong to a later *phase*. The units of a phase idle in the others, so
a section takes the sum of its phases, each as long as its slowest stage with the units it was given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import log, prod
from typing import Any, NamedTuple

import numpy as np
from xdsl.ir import Operation, SSAValue

from headrace.dialects.dataflow.ops import BufferOp, LoadOp, StageOp, StoreOp, stream_of, views
from headrace.dialects.dataflow.types import StreamType
from headrace.dialects.machine.cost import launch_mode, launch_seconds, memory_bytes_per_cycle
from headrace.dialects.machine.device import Device
from headrace.dialects.support import dtypes
from headrace.passes.analysis.bodies import Body
from headrace.passes.analysis.memory import fitting_frames
from headrace.passes.analysis.pieces import CONTRACTIONS, Split, Stored, pieces, splits

Array = np.ndarray[Any, np.dtype[Any]]


class Place(NamedTuple):
    """When a process works: its phase, from 0, and how many processes of that phase it waits for tile by tile."""

    phase: int
    depth: int


def phases(processes: Iterable[Operation], device: Device) -> dict[Operation, Place]:
    """When each process of a tiled section works; `processes` in an order in which writers come first."""
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
            barrier = isinstance(buffer, BufferOp) and not fitting_frames(buffer, device, 2)
            place = max(place, Place(last.phase + 1, 0) if barrier else Place(last.phase, last.depth + 1))
        found[process] = place
    return found


def options(stage: StageOp, device: Device, most: int) -> list[tuple[Split, int, float]]:
    """The ways to spread a stage that are worth it, with the units and the cycles for all of its steps of each; the
    slowest first."""
    body = Body.of(stage.body.block)
    if not any(op.name in CONTRACTIONS for op in body.ops):
        most = min(most, MOST_UNITS)
    steps, chain = stream_of(stage.outs[0]).steps, len(pieces(body, device))
    found = splits(body, device, most, _stored(stage, body))
    return [(split, chain * split.units, steps * split.interval) for split in found]


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


def is_barrier(stream: SSAValue, device: Device) -> bool:
    """Whether what is loaded must be on the chip whole before any of it is used."""
    uses = [use.operation for use in stream.uses]
    return isinstance(stream.owner, LoadOp) and any(
        isinstance(op, BufferOp) and not fitting_frames(op, device, 2) for op in uses
    )


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

    def share(self, demands: Sequence[Array], budget: float) -> list[int] | None:
        """For each phase, given the units that it takes for each time, the number of its time, such that the sum of
        the times is least within a budget of units for all of them; None when nothing fits."""
        if len(demands) == 1:
            fits = np.flatnonzero(demands[0] <= budget)
            return [int(fits[0])] if len(fits) else None
        return self.cheapest([self.priced(demand, budget) for demand in demands], budget)

    def priced(self, demand: Array, budget: float) -> Priced:
        """What a phase takes at each of the prices."""
        new = np.append(True, demand[1:] != demand[:-1])  # of times that take equal units the least is best
        first = np.flatnonzero(new)
        scale = self.times[-1] / max(1.0, budget)
        with np.errstate(invalid="ignore"):
            at = first[np.argmin(self.times[first] + scale * PRICES[:, None] * demand[first], 1)]
        return Priced(at, self.times[at], demand[at])

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


class Tally:
    """Adds up a section process by process; `cycles` is its modelled time when its stages share `units`."""

    def __init__(self, device: Device, units: int, grid: Grid) -> None:
        self.device = device
        self.units = units
        self.grid = grid
        self.demand: dict[int, Array] = {}
        self.priced: dict[int, Priced] = {}
        """Of the phases that did not change since they were asked for."""
        self.steps: dict[int, int] = {}
        self.depth: dict[int, tuple[int, int]] = {}
        self.waited: Counter[int] = Counter()
        self.loaded = 0
        self.first = -1

    def add(self, place: Place, demand: Array, steps: int) -> None:
        """A process: when it works, the units that it takes for each time of the grid, and its steps."""
        level, depth = place
        self.first = level if self.first < 0 else min(self.first, level)
        self.demand[level] = self.demand.get(level, 0.0) + demand
        self.priced.pop(level, None)
        self.steps[level] = max(self.steps.get(level, 1), steps)
        low, high = self.depth.get(level, (depth, depth))
        self.depth[level] = min(low, depth), max(high, depth)

    def load(self, level: int, nbytes: int, barrier: bool) -> None:
        """Bytes that come from off chip for a phase; with a `barrier` the phase begins when all of them are there."""
        self.loaded += nbytes
        if barrier:
            self.waited[level] += nbytes

    def _times(self) -> list[int] | None:
        """The numbers of the times of the phases: `Grid.share`, which looks again at those alone that changed."""
        if len(self.demand) == 1:
            return self.grid.share(list(self.demand.values()), self.units)
        for level, demand in self.demand.items():
            if level not in self.priced:
                self.priced[level] = self.grid.priced(demand, self.units)
        return self.grid.cheapest([self.priced[level] for level in self.demand], self.units)

    def cycles(self, stored: int) -> float:
        """Cycles of the section when it stores that many bytes off chip: the phases one after the other behind their
        first loads, or the traffic if that takes longer; and the launch."""
        device = self.device
        rate = memory_bytes_per_cycle(device, "hbm" if device.hbm else "ddr")
        times = self._times()
        if times is None:
            return float("inf")
        time = self.waited[self.first] / rate
        for level, at in zip(self.demand, times, strict=True):
            low, high = self.depth[level]
            time += float(self.grid.times[at]) * (1 + (high - low) / self.steps[level])
        launch = launch_seconds(device, launch_mode(device)) * device.clock
        return max(time, (self.loaded + stored) / rate) + launch
