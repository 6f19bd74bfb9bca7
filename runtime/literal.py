"""A config executed as the fabric would: tile by tile, through flows, site by site. Slow and plain; the merged plan
must agree with it.

A flow is a queue of at most `credits` tokens; a token holds the tiles of all sites for one step. A PMU holds `copies`
frames of its buffer and reuses them in turn: a reader waits until all writers have finished its frame, a writer waits
until all readers have left the frame that it would overwrite. A PCU fires when every input has a token and every
output has a credit. Site pairs decide what arrives: what no pair carries is not delivered.

A launch reads its parameters as they were when it began.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from headrace.dialects.support import dtypes
from headrace.dialects.support.access import Loop, Stream, View
from headrace.dialects.support.diagnostics import CompileError
from headrace.dialects.tensor.meaning import evaluate
from headrace.runtime import geometry
from headrace.runtime.chain import constant
from headrace.runtime.check import source_sites
from headrace.runtime.merge import CONSTANT
from headrace.runtime.program import Agcu, Config, Flow, Pcu, Pmu, elements

Array = np.ndarray[Any, np.dtype[Any]]


def run_config(config: Config, params: Sequence[Array]) -> None:
    """Run one launch: `params` are the flat arrays of its parameters, read and written in place.

    `CompileError` when it deadlocks (with the cycle of units that wait for each other) or a site lacks data.
    """
    _Fabric(config, [params]).run()


def stream_config(config: Config, params: Sequence[Sequence[Array]]) -> None:
    """Run one launch of several runs, one behind the other: `params` are the arrays of each run.

    `CompileError` when it deadlocks (with the cycle of units that wait for each other) or a site lacks data.
    """
    _Fabric(config, params).run()


class _Channel:
    """A flow at work: tokens in flight, and how many were sent and taken. What fills a memory that is kept is sent in
    the first of `runs` runs."""

    def __init__(self, config: Config, flow: Flow, runs: int = 1) -> None:
        self.flow = flow
        self.stream = flow.stream
        self.src, self.dst = config.units[flow.src], config.units[flow.dst]
        self.queue: deque[tuple[Array, Array]] = deque()
        self.sent = self.taken = 0
        self.each = flow.stream.steps
        self.steps = self.each * (1 if isinstance(self.dst, Pmu) and self.dst.kept else runs)
        self.connected = np.zeros((len(self.src.sites), len(self.dst.sites)), np.bool_)
        self.connected[flow.pairs[:, 0], flow.pairs[:, 1]] = True
        if isinstance(self.src, Agcu):  # any site of an address generator reaches all addresses
            self.connected[:] = self.connected.any(axis=0, keepdims=True)
        if isinstance(self.dst, Agcu):
            self.connected[:] = self.connected.any(axis=1, keepdims=True)
        self.points = geometry.indices(self.stream.time)
        self.name = f"'{self.src.name}' -> '{self.dst.name}'"

    @property
    def has_credit(self) -> bool:
        return len(self.queue) < self.flow.credits

    @property
    def done(self) -> bool:
        return self.taken == self.steps

    def addresses(self, step: int, view: View) -> Array:
        """Address of every element of a step's tiles: an array [site, *tile]."""
        return _addresses(self.stream, view, tuple(int(x) for x in self.point(step)))

    def point(self, step: int) -> Array:
        """The loop indices of a step."""
        return self.points[step % self.each]

    def send(self, tiles: Array) -> None:
        """Put a token on the way: `tiles` are [site of the stream, *tile] in the order of the space loops; what no
        pair of sites carries is marked as absent."""
        origin = self.sites(self.src, self.flow.src_view, self.sent, True)
        target = self.sites(self.dst, self.flow.dst_view, self.sent, False)
        present = np.broadcast_to(self.connected[origin, target], tiles.shape)
        if isinstance(self.src, Pcu) and isinstance(self.dst, Pcu):
            tiles, present = tiles.copy(), np.zeros(tiles.shape, np.bool_)
            made = self.by_source(tiles)
            for a, b in self.flow.pairs:
                tiles[b], present[b] = made[a], True
        self.queue.append((tiles, present))
        self.sent += 1

    def by_source(self, tiles: Array) -> dict[int, Array]:
        """The tile that each source site made."""
        places = source_sites(self.stream, len(self.src.sites)) or ()
        return {source: tiles[place].copy() for place, source in enumerate(places)}

    def sites(self, unit: Any, view: View | None, step: int, sends: bool) -> Array:
        """Which site of a unit holds each element of a step's tiles."""
        rank = len(self.stream.tile)
        match unit:
            case Pcu():
                places = source_sites(self.stream, len(unit.sites)) if sends else range(len(unit.sites))
                return np.array(places or (0,)).reshape(-1, *(1,) * rank)
            case Pmu():
                assert view is not None
                return geometry.owner_of(self.addresses(step, view), unit.shape, unit.split_dim, len(unit.sites))
            case _:
                return np.zeros((1,) * (rank + 1), np.int64)

    def take(self) -> tuple[Array, Array]:
        """The next token: tiles and which of their elements have arrived."""
        self.taken += 1
        return self.queue.popleft()

    def take_all(self) -> Array:
        """The next token; every element must have arrived."""
        tiles, present = self.take()
        if not present.all():
            raise CompileError(
                "undelivered",
                f"a site of {self.name} lacks elements of its tile in step {self.taken - 1}",
                why="no pair of sites carries them",
            )
        return tiles


@lru_cache(maxsize=4096)
def _addresses(stream: Stream, view: View, point: tuple[int, ...]) -> Array:
    base = view.offset + sum(
        i * x.step * view.strides[x.dim] for i, x in zip(point, stream.time, strict=True) if x.dim >= 0
    )
    places = geometry.shifts(stream.space, view)
    tile = geometry.addresses(list(zip(stream.tile, view.strides, strict=True)), base).reshape(stream.tile)
    return places.reshape(-1, *(1,) * len(stream.tile)) + tile


class _Fabric:
    """One launch in execution."""

    def __init__(self, config: Config, params: Sequence[Sequence[Array]]) -> None:
        self.config = config
        self.channels = [_Channel(config, flow, len(params)) for flow in config.flows]
        self.into: list[list[_Channel]] = [[] for _ in config.units]
        self.out_of: list[list[_Channel]] = [[] for _ in config.units]
        for channel in self.channels:
            self.into[channel.flow.dst].append(channel)
            self.out_of[channel.flow.src].append(channel)
        for channels in self.into:
            channels.sort(key=lambda c: c.flow.dst_port)
        self.written = params
        writes = [u.param for u in config.units if isinstance(u, Agcu) and u.direction in ("store", "scatter")]
        self.read = [
            [p.copy() if any(np.may_share_memory(p, mine[q]) for q in writes) else p for p in mine] for mine in params
        ]
        self.memory = {
            u: np.full((unit.copies, elements(unit.shape)), unit.fill, dtypes.to_numpy(unit.dtype))
            for u, unit in enumerate(config.units)
            if isinstance(unit, Pmu)
        }

    def run(self) -> None:
        while not all(channel.done for channel in self.channels):
            moved = [self.step(u) for u in range(len(self.config.units))]
            if not any(moved):
                self.deadlock()

    def step(self, u: int) -> bool:
        """Let a unit do what it can once; whether it did anything."""
        unit = self.config.units[u]
        match unit:
            case Pcu():
                return self.compute(u, unit)
            case Pmu():
                moved = [self.write(u, unit, c) for c in self.into[u]] + [
                    self.serve(u, unit, c) for c in self.out_of[u]
                ]
            case Agcu(direction="load"):
                moved = [self.load(unit, c) for c in self.out_of[u]]
            case Agcu(direction="store"):
                moved = [self.store(unit, c) for c in self.into[u]]
            case Agcu(direction="gather"):
                return self.gather(u, unit)
            case Agcu():
                return self.scatter(u, unit)
        return any(moved)

    # Compute units

    def compute(self, u: int, unit: Pcu) -> bool:
        if not self.can_fire(u):
            return False
        tiles = [c.take_all() for c in self.into[u]]
        made: list[list[Array]] = []
        for site in range(len(unit.sites)):
            values: dict[int, Array] = {port: tile[site] for port, tile in enumerate(tiles)}
            for op in unit.ops:
                if op.name == CONSTANT:
                    values[op.results[0]] = constant(op.attrs, unit.types[op.results[0]])
                    continue
                with np.errstate(all="ignore"):
                    values.update(
                        zip(op.results, evaluate(op.name, op.attrs, *(values[v] for v in op.operands)), strict=True)
                    )
            made.append([values[v] for v in unit.outputs])
        for channel in self.out_of[u]:
            places = source_sites(channel.stream, len(unit.sites)) or ()
            channel.send(np.stack([made[site][channel.flow.src_port] for site in places]))
        return True

    def can_fire(self, u: int) -> bool:
        more = any(c.sent < c.steps for c in self.out_of[u]) or any(not c.done for c in self.into[u])
        return more and all(c.queue for c in self.into[u]) and all(c.has_credit for c in self.out_of[u])

    # Memory units

    def frame(self, unit: Pmu, channel: _Channel, step: int, view: View) -> tuple[int, int]:
        """Number of the frame that a step belongs to, and its address shift."""
        loops = channel.stream.time[: unit.frames]
        number = 0
        shift = 0
        for i, loop in zip(channel.point(step), loops, strict=False):
            number = number * loop.count + int(i)
            shift += int(i) * _stride(loop, view)
        return number + (0 if unit.kept else step // channel.each * prod(x.count for x in loops)), shift

    def frames(self, unit: Pmu, channel: _Channel, step: int) -> int:
        """How many whole frames lie before a step."""
        return step // prod(x.count for x in channel.stream.time[unit.frames :])

    def write(self, u: int, unit: Pmu, channel: _Channel) -> bool:
        view = channel.flow.dst_view
        if not channel.queue or view is None:
            return False
        step = channel.taken
        number, shift = self.frame(unit, channel, step, view)
        left = min((self.frames(unit, c, c.sent) for c in self.out_of[u]), default=number)
        if number - left >= unit.copies:
            return False
        tiles, present = channel.take()
        at = channel.addresses(step, view) - shift
        self.memory[u][number % unit.copies][at[present]] = tiles[present]
        return True

    def serve(self, u: int, unit: Pmu, channel: _Channel) -> bool:
        view = channel.flow.src_view
        step = channel.sent
        if step == channel.steps or not channel.has_credit or view is None:
            return False
        number, shift = self.frame(unit, channel, step, view)
        if any(self.frames(unit, c, c.taken) <= number for c in self.into[u]):
            return False
        channel.send(self.memory[u][number % unit.copies][channel.addresses(step, view) - shift])
        return True

    # Address generators

    def load(self, unit: Agcu, channel: _Channel) -> bool:
        if channel.sent == channel.steps or not channel.has_credit or channel.flow.src_view is None:
            return False
        source = self.read[channel.sent // channel.each][unit.param]
        channel.send(source[channel.addresses(channel.sent, channel.flow.src_view)])
        return True

    def store(self, unit: Agcu, channel: _Channel) -> bool:
        if not channel.queue or channel.flow.dst_view is None:
            return False
        at = channel.addresses(channel.taken, channel.flow.dst_view)
        target = self.written[channel.taken // channel.each][unit.param]
        tiles, present = channel.take()
        target[at[present]] = tiles[present]
        return True

    def rows(
        self, unit: Agcu, channel: _Channel, step: int, index: Array, table: Array
    ) -> tuple[Array, tuple[Any, ...]]:
        """The table, and the place in it of a tile of rows whose indices are `index` [site, *tile]."""
        shape = self.config.params[unit.param].type.shape
        if index.size and not (-shape[0] <= index.min() and index.max() < shape[0]):
            raise CompileError("index-out-of-range", f"'{unit.name}' is given a row outside a table of {shape[0]} rows",
                               fix=f"indices must lie in {-shape[0]}..{shape[0] - 1}")  # fmt: skip
        rank = len(index.shape) - 1
        point = [int(x) for x in channel.point(step)] + [0] * len(channel.stream.space)
        origin = channel.stream.origin(point)[rank:]
        cut = tuple(slice(o, o + n) for o, n in zip(origin, channel.stream.tile[rank:], strict=True))
        return table.reshape(shape), (index, *cut)

    def gather(self, u: int, unit: Agcu) -> bool:
        if not self.can_fire(u):
            return False
        index = self.into[u][0].take_all()
        for channel in self.out_of[u]:
            source = self.read[channel.sent // channel.each][unit.param]
            table, at = self.rows(unit, channel, channel.sent, index, source)
            tiles = table[at]
            channel.send(np.broadcast_to(tiles, (channel.stream.sites, *tiles.shape[1:])))
        return True

    def scatter(self, u: int, unit: Agcu) -> bool:
        if not self.can_fire(u):
            return False
        channel = self.into[u][1]
        step = channel.taken
        index, tiles = self.into[u][0].take_all(), channel.take_all()
        table, at = self.rows(unit, channel, step, index, self.written[step // channel.each][unit.param])
        table[at] = tiles
        return True

    # Deadlock

    def waits_for(self, u: int) -> list[tuple[int, str]]:
        """Units that could let a stuck unit go on, and what it waits for."""
        unit = self.config.units[u]
        found: list[tuple[int, str]] = []
        for channel in self.into[u]:
            if not channel.queue and (not channel.done or not isinstance(unit, Pmu)):
                found.append((channel.flow.src, f"'{unit.name}' waits for data of {channel.name}"))
        for channel in self.out_of[u]:
            if not channel.has_credit and channel.sent < channel.steps:
                found.append((channel.flow.dst, f"'{unit.name}' waits for a credit of {channel.name}"))
        if isinstance(unit, Pmu):
            for channel in self.into[u]:
                if channel.queue:  # a full buffer: some reader has not left its frame
                    slowest = min(
                        self.out_of[u], key=lambda c: (self.frames(unit, c, c.sent), c.flow.dst), default=None
                    )
                    if slowest is not None:
                        found.append(
                            (slowest.flow.dst, f"'{unit.name}' has no free frame until {slowest.name} moves on")
                        )
        return found

    def deadlock(self) -> None:
        """Raise the error that shows who waits for whom."""
        stuck = [c.flow.dst for c in self.channels if not c.done]
        start = next((u for u in stuck if self.waits_for(u)), stuck[0])
        path: list[int] = []
        told: list[str] = []
        u = start
        while u not in path:
            path.append(u)
            waits = self.waits_for(u)
            if not waits:
                break
            u, why = waits[0]
            told.append(why)
        cycle = told[path.index(u) :] if u in path else told
        raise CompileError(
            "deadlock",
            f"config '{self.config.name}' stops with work left",
            why="; ".join(cycle),
            fix="give a buffer more copies or a flow more credits",
        )


def _stride(loop: Loop, view: View) -> int:
    return loop.step * view.strides[loop.dim] if loop.dim >= 0 else 0
