"""What the flows of a config ask of units' ports, memory units, links and off-chip memory: words and cycles a step.

Everything is read off the program: tiles and loops say how much, address programs say where in a memory, site pairs and
routes say over which links. A step is one tile a site.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from headrace.dialects.machine.cost import bank_conflict, credit_rate, route_latency, words_of
from headrace.dialects.machine.device import Device
from headrace.dialects.rdu.cost import Feed, feed
from headrace.dialects.support import dtypes
from headrace.dialects.support.access import Stream, View, row_major, run_of
from headrace.runtime import geometry
from headrace.runtime.program import Agcu, Config, Flow, Pcu, Pmu, Unit

Array = np.ndarray[Any, np.dtype[Any]]


def tile_bytes(stream: Stream) -> int:
    """Bytes of one tile."""
    return stream.tile_elements * dtypes.byte_size(stream.dtype)


def places(stream: Stream) -> Array:
    """For every site of the space loops, a number that is the same for sites that carry the same tile."""
    found = np.zeros(1, np.int64)
    for loop in stream.space:
        moves = loop.dim >= 0 and loop.step != 0
        at = np.arange(loop.count, dtype=np.int64) if moves else np.zeros(loop.count, np.int64)
        found = (found[:, None] * (loop.count if moves else 1) + at).ravel()
    return found


@dataclass(frozen=True, eq=False)
class Traffic:
    """One flow. `feed` says how many words a site takes of a tile (one of a memory: the tile). All numbers are for one
    step; `reads` and `writes` are the words through the busiest memory unit at each end, and the most of one stream."""

    config: Config
    flow: Flow
    device: Device
    runs: int = 1

    @cached_property
    def source(self) -> Unit:
        """The unit that sends."""
        return self.config.units[self.flow.src]

    @cached_property
    def target(self) -> Unit:
        """The unit that takes."""
        return self.config.units[self.flow.dst]

    @cached_property
    def feed(self) -> Feed:
        """What a site of the target asks of its port, or a tile's words."""
        stream, target = self.flow.stream, self.target
        if isinstance(target, Pcu) and not isinstance(self.source, Pcu):
            return feed(target.ops, target.types, self.flow.dst_port, self.device)
        last = next((d for d in reversed(range(len(stream.tile))) if stream.tile[d] > 1), None)
        return Feed(words_of(self.device, tile_bytes(stream)), last)

    @property
    def words(self) -> int:
        """Vector words of one site a step."""
        return self.feed.words

    @cached_property
    def places(self) -> Array:
        """Which tile each compute site of the flow carries (`places`)."""
        return places(self.flow.stream)

    @cached_property
    def tiles(self) -> int:
        """Distinct tiles a step."""
        return int(self.places.max(initial=0)) + 1 if len(self.places) else 1

    @property
    def bytes(self) -> int:
        """Bytes of distinct elements a step."""
        return self.tiles * tile_bytes(self.flow.stream)

    @property
    def steps(self) -> int:
        """Steps in all runs of the config."""
        return self.flow.stream.steps * self.runs

    # Memory units

    def _ports(self, unit: Unit, view: View | None) -> tuple[float, float]:
        """Words a step through the busiest unit of a memory group, and the most of one stream there."""
        if not isinstance(unit, Pmu) or view is None:
            return 0.0, 0.0
        flow = self.flow
        other = self.source if unit is self.target else self.target
        if isinstance(other, Agcu) and len(other.sites) > 1:  # each moves its share at its own speed, not step by step
            side = 1 if unit is self.target else 0
            return self.words / len(np.unique(flow.pairs[:, side])), self.words / len(other.sites)
        terms = tuple(geometry.tile_terms(flow.stream, view))
        shifts = geometry.shifts(flow.stream.space, view)
        first = np.unique(self.places, return_index=True)[1]
        held = np.zeros(len(unit.sites))
        most = 0.0
        for at in first.tolist():
            owners = geometry.owners(terms, view.offset + int(shifts[at]), unit.shape, unit.split_dim, len(unit.sites))
            share = self.words / len(owners)
            most = max(most, share)
            held[list(owners)] += share
        return float(held.max()), most

    @cached_property
    def reads(self) -> tuple[float, float]:
        """Words read from the busiest memory unit a step, and the most of one stream."""
        return self._ports(self.source, self.flow.src_view)

    @cached_property
    def writes(self) -> tuple[float, float]:
        """Words written to the busiest memory unit a step, and the most of one stream."""
        return self._ports(self.target, self.flow.dst_view)

    def conflict(self, unit: Pmu, view: View | None, pitch: int) -> int:
        """Accesses on the busiest bank in a word, when the lanes of a word walk the tile as the port asks and rows of
        `pitch` bytes lie in diagonal stripes (0: plain interleaving)."""
        dim = self.feed.lane_dim
        if view is None or dim is None or dim >= len(view.strides):
            return 1
        size = dtypes.byte_size(self.flow.stream.dtype)
        stride = abs(view.strides[dim]) * size
        lanes = min(self.flow.stream.tile[dim], max(1, self.device.network.link_bytes // size))
        if stride <= size or lanes < 2:
            return 1
        return bank_conflict(self.device, stride, lanes=lanes, pitch_bytes=pitch)

    # The network

    @cached_property
    def hops(self) -> int:
        """Links of the longest route."""
        starts = self.flow.starts
        return int(np.diff(starts).max(initial=0)) if len(starts) > 1 else 0

    @property
    def latency(self) -> float:
        """Cycles of a word over the longest route, and out of a memory unit where it comes from one."""
        return route_latency(self.device, self.hops) + (self.device.pmu.latency if isinstance(self.source, Pmu) else 0)

    @property
    def routed(self) -> bool:
        """Whether the flow's pairs have ways over the mesh."""
        return 0 < len(self.flow.pairs) == len(self.flow.starts) - 1

    def credited(self, wait: float = 0.0) -> float:
        """Cycles a step that the flow's credits take over its longest route when a word waits that long for its
        receiver: those of what one pair of sites carries of a tile."""
        if not self.routed:
            return 0.0
        words = min((most for _, most in (self.reads, self.writes) if most), default=float(self.words))
        return words / credit_rate(self.device, self.hops, self.flow.credits, wait)

    @cached_property
    def links(self) -> tuple[Array, Array]:
        """Mesh links that the flow uses, and the words a step on each. Words for several sites travel once."""
        if not self.routed:
            return np.zeros(0, np.int64), np.zeros(0)
        flow = self.flow
        pairs, starts = np.asarray(flow.pairs, np.int64), np.asarray(flow.starts, np.int64)
        if isinstance(self.target, Pcu) and not isinstance(self.source, Pcu):
            site = pairs[:, 1]
            net = pairs[:, 0] * (int(self.places.max(initial=0)) + 1) + self.places[site]
        elif isinstance(self.source, Pcu):
            site, net = pairs[:, 0], np.arange(len(pairs))
        else:
            site, net = np.zeros(len(pairs), np.int64), np.arange(len(pairs))
        words = self.words / np.bincount(site)[site]  # shared by the memory units that hold the tile
        pair = np.repeat(np.arange(len(pairs)), np.diff(starts))
        size = int(flow.links.max(initial=0)) + 1
        key, first = np.unique(net[pair] * size + flow.links, return_index=True)
        on = key % size
        load = np.bincount(on, words[pair[first]], size)
        used = np.flatnonzero(load)
        return used, load[used]


def layout(unit: Pmu, flows: Sequence[Traffic], device: Device) -> int:
    """Bytes of a row of a buffer's diagonal stripes, 0 for plain interleaving: of the strides that the buffer has, the
    one with which its ports meet fewest banks twice."""
    size = dtypes.byte_size(unit.dtype)
    pitches = [0, *(s * size for s in row_major(unit.shape) if s > 1)] if device.pmu.diagonal else [0]

    def cost(pitch: int) -> float:
        total = 0.0
        for t in flows:
            for end, view, (busiest, _) in (
                (t.source, t.flow.src_view, t.reads),
                (t.target, t.flow.dst_view, t.writes),
            ):
                if end is unit:
                    total += busiest * t.steps * t.conflict(unit, view, pitch)
        return total

    return min(pitches, key=cost) if len(pitches) > 1 else 0


def off_chip_bytes(traffic: Traffic, unit: Agcu, device: Device) -> int:
    """Bytes that a flow of an address generator moves off chip a step, whole bursts where its runs are shorter."""
    flow = traffic.flow
    view = flow.src_view if traffic.source is unit else flow.dst_view
    nbytes = traffic.bytes
    if view is not None:
        run = run_of(flow.stream.tile, view.strides) * dtypes.byte_size(flow.stream.dtype)
    else:  # gather, scatter: whole rows of the parameter
        type = traffic.config.params[unit.param].type
        run = prod(type.shape[1:]) * dtypes.byte_size(type.dtype)
    if run >= nbytes and view is not None:
        return nbytes
    run = min(run, nbytes)
    burst = device.agcu.burst_bytes
    return -(-nbytes // run) * -(-run // burst) * burst
