"""What one compute unit can hold of a stage body, and what a tile of it costs there: `dialects.rdu.cost` on bodies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import prod
from typing import NamedTuple

from headrace.dialects.machine.cost import Cost, memory_bytes_per_cycle, words_of
from headrace.dialects.machine.device import Device
from headrace.dialects.rdu import cost
from headrace.dialects.rdu.cost import CONTRACTIONS, REDUCING, Piece
from headrace.dialects.support.access import run_of
from headrace.dialects.support.dtypes import byte_size
from headrace.dialects.tensor.shapes import TT
from headrace.dialects.tensor.shapes.bodies import Axis, cut
from headrace.passes.analysis.bodies import Body

__all__ = [
    "CONTRACTIONS",
    "REDUCING",
    "Piece",
    "Split",
    "body_interval",
    "piece_cost",
    "pieces",
    "splits",
    "traffic",
]


def pieces(body: Body, device: Device) -> list[Piece]:
    """Cut a body into what one unit holds each (`dialects.rdu.cost.pieces`)."""
    return cost.pieces(body.ops, body.outputs, device)


def piece_cost(
    body: Body, piece: Piece, types: Sequence[TT], device: Device, *, steps: int = 1, units: int = 1
) -> Cost:
    """Cycles of one tile through one unit that holds the piece; `types` are those of the tiles of one unit. `steps` of
    `units` units: for a collective."""
    copied = max((types[v].elements for v in body.outputs), default=0)
    ops = (body.ops[i] for i in piece.ops)
    return cost.body_cost(ops, types, piece.mode, device, copied=copied, steps=steps, units=units)


def body_interval(body: Body, types: Sequence[TT], device: Device, *, steps: int = 1, units: int = 1) -> float:
    """Cycles between tiles when every piece has so many units: the slowest piece, or what the tiles of all units take
    of the links to other sockets."""
    size = {"steps": steps, "units": units}
    slowest = max(piece_cost(body, piece, types, device, **size).interval for piece in pieces(body, device))
    return max(slowest, units * peers(body, types, device, **size)[0])


def peers(body: Body, types: Sequence[TT], device: Device, *, steps: int = 1, units: int = 1) -> tuple[float, float]:
    """Cycles that one tile takes of the links to other sockets, and the cycles that it waits for them besides; `types`
    are those of the tiles of one of `units`, each of which does so many steps."""
    found = [
        cost.communication(op, types, device, steps=steps, units=units)
        for op in body.ops
        if op.name in cost.COMMUNICATING
    ]
    return sum(x.interval for x in found) * device.clock, sum(x.latency for x in found) * device.clock


def port_words(body: Body, types: Sequence[TT], device: Device) -> int:
    """Cycles that the busiest port of a unit takes for one tile, at one vector word a cycle."""
    words = [cost.feed(body.ops, types, v, device).words for v in range(body.inputs)]
    words += [_words(types[v], device) for v in body.outputs]
    return max(words, default=0)


@dataclass(frozen=True)
class Split:
    """A way to spread a body over symmetric units: `parts` of its first output's dims, the cycles between tiles when
    every unit has its part, and what it reads of each input and writes of each output for a tile (`traffic`).

    Parts are equal; with a `rest` (dim, indices) they are of what is left of that dim when so many indices at its end
    are a part of their own, a smaller one.
    """

    parts: tuple[tuple[int, int], ...]
    interval: float
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    rest: tuple[int, int] | None = None

    @property
    def rest_parts(self) -> tuple[tuple[int, int], ...]:
        """The parts of the rest: those of the other dims."""
        return tuple((dim, n) for dim, n in self.parts if self.rest is not None and dim != self.rest[0])

    @property
    def units(self) -> int:
        """Units for each piece of the body."""
        return prod(n for _, n in self.parts) + (prod(n for _, n in self.rest_parts) if self.rest is not None else 0)


class Stored(NamedTuple):
    """A value of a body that goes straight to off-chip memory, and the strides of its dims there, in elements."""

    value: int
    strides: tuple[int, ...]

    def cycles(self, types: Sequence[TT], device: Device, units: int) -> float:
        """Cycles that memory takes for one tile of each unit when rows are shorter than a burst, which is moved whole;
        0 when none is."""
        type = types[self.value]
        size, burst = byte_size(type.dtype), device.agcu.burst_bytes
        run = run_of(type.shape, self.strides)
        if run * size >= burst:
            return 0.0
        memory = "hbm" if device.hbm is not None else "ddr"
        return units * type.elements // run * burst / memory_bytes_per_cycle(device, memory)


def splits(
    body: Body, device: Device, most: int, stored: Sequence[Stored] = (), uneven: bool = False, steps: int = 1
) -> list[Split]:
    """The ways to spread a body over at most `most` units for each piece that are worth it, least units first: each is
    faster than all that take no more. Costs are those of the parts, so a part that leaves lanes or stages idle counts
    as slow as it is. Parts with rows of what is `stored` off chip that are shorter than a burst are taken only where
    they are faster than all others. One or two dims are cut, in equal parts; of equals the order of `_preferred`
    decides.

    Units share the links to other sockets, so a collective gets no more units than these can feed, in `steps` steps.

    With `uneven` the columns of a product (the channels of a convolution) are also cut into parts that fill lanes or
    stages, and a rest, where that saves at least a `WORTH` of the units that equal parts take.
    """
    steps = steps if any(op.name in cost.COMMUNICATING for op in body.ops) else 1
    key = (
        *((op.name, tuple(sorted(op.attrs.items())), op.operands, op.results) for op in body.ops),
        *(body.types, body.outputs, most, uneven, id(device), tuple(stored), steps),
    )
    if key not in _splits:
        if len(_splits) > MOST_REMEMBERED:
            _splits.clear()
        _splits[key] = device, _find_splits(body, device, most, stored, uneven, steps)
    return _splits[key][1]


MOST_REMEMBERED = 4096
_splits: dict[object, tuple[Device, list[Split]]] = {}
"""What `splits` found. Holds the devices, so that their ids stay theirs."""


WORTH = 0.04
"""Share of its units that an uneven split saves at least: it makes a stage of its own for the rest."""
FEWEST_UNEVEN = 16
"""Fewest columns of units for which equal parts do not come close."""


def _find_splits(
    body: Body, device: Device, most: int, stored: Sequence[Stored], uneven: bool, steps: int
) -> list[Split]:
    axes = {axis.dim_of(body.outputs[0]): axis for axis in body.axes()}
    order = {dim: i for i, dim in enumerate(_preferred(body, axes))}
    every = [Split(parts, 0.0) for parts in _candidates(axes, order, most)]
    if uneven and order:
        every += _uneven(axes, next(iter(order)), device, most)
    ways: list[tuple[Split, bool]] = []
    for split in sorted(every, key=lambda s: (s.units, s.rest is not None, len(s.parts), _rank(s.parts, order))):
        types = _part(body, axes, split.parts, split.rest)
        memory = max((x.cycles(types, device, split.units) for x in stored), default=0.0)
        own = body_interval(body, types, device, steps=steps, units=split.units)
        interval = max(own, port_words(body, types, device), memory)
        ways.append((replace(split, interval=interval), memory > 0))
    whole = min((split.interval for split, short in ways if not short), default=float("inf"))
    found: list[Split] = []
    for split, short in ways:
        if (not found or split.interval < found[-1].interval) and (not short or split.interval < whole):
            found.append(split)
    even = [split for split in found if split.rest is None]
    kept = [split for split in found if split.rest is None or _saves(split, even, most)]
    read = [traffic(body, split.parts, device, split.rest) for split in kept]
    return [replace(split, reads=reads, writes=writes) for split, (reads, writes) in zip(kept, read, strict=True)]


def _saves(split: Split, even: Sequence[Split], most: int) -> bool:
    """Whether a split takes fewer units than equal parts that are as fast."""
    units = next((other.units for other in even if other.interval <= split.interval), most + most)
    return split.units <= units * (1 - WORTH)


def _uneven(axes: dict[int, Axis], dim: int, device: Device, most: int) -> Iterator[Split]:
    """Splits of `dim` into parts of full lanes or stages and a rest, alone and with equal parts of another dim."""
    size = axes[dim].size
    widths = {n * w for w in (device.pcu.lanes, device.pcu.stages) for n in range(1, size // (FEWEST_UNEVEN * w) + 1)}
    for width in sorted(widths):
        count, rest = divmod(size, width)
        if rest and count < most:
            yield Split(((dim, count),), 0.0, rest=(dim, rest))
            for other, axis in axes.items():
                for n in range(2, most // (count + 1) + 1 if other != dim else 0):
                    if axis.size % n == 0:
                        yield Split(((dim, count), (other, n)), 0.0, rest=(dim, rest))


def _part(
    body: Body, axes: Mapping[int, Axis], parts: Sequence[tuple[int, int]], rest: tuple[int, int] | None
) -> tuple[TT, ...]:
    """Types of a body's values on one unit, but one of the rest."""
    size = {dim: axes[dim].size - (rest[1] if rest is not None and rest[0] == dim else 0) for dim, _ in parts}
    return cut(body.ops, body.types, [(axes[dim], size[dim] // n) for dim, n in parts])


def traffic(
    body: Body, parts: Sequence[tuple[int, int]], device: Device, rest: tuple[int, int] | None = None
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The vector words that all units of a body spread in `parts`, and a `rest`, read of each input and write of each
    output for a tile; what several units of the parts read alike is read once."""
    axes = {axis.dim_of(body.outputs[0]): axis for axis in body.axes()}
    others = [(dim, n) for dim, n in parts if rest is not None and dim != rest[0]]
    groups = [(_part(body, axes, parts, rest), list(parts))]
    if rest is not None:
        left = [(axes[rest[0]], rest[1]), *((axes[dim], axes[dim].size // n) for dim, n in others)]
        groups.append((cut(body.ops, body.types, left), others))

    def distinct(v: int, some: Sequence[tuple[int, int]]) -> int:
        return prod(n for dim, n in some if axes[dim].dim_of(v) >= 0)

    reads = tuple(
        sum(cost.feed(body.ops, types, v, device).words * distinct(v, some) for types, some in groups)
        for v in range(body.inputs)
    )
    return reads, tuple(
        sum(_words(types[v], device) * distinct(v, some) for types, some in groups) for v in body.outputs
    )


def _words(tile: TT, device: Device) -> int:
    return words_of(device, tile.elements * byte_size(tile.dtype))


def _preferred(body: Body, axes: dict[int, Axis]) -> list[int]:
    """Dims to cut, the best first where the cost is the same: columns of a matmul and channels of a convolution (each
    unit keeps its share of the weights), rows elsewhere."""
    dims = sorted(dim for dim, axis in axes.items() if axis.size > 1)
    contraction = next((op.name for op in body.ops if op.name in CONTRACTIONS), "")
    if contraction == "tensor.conv":
        return sorted(dims, key=lambda d: d != 1)
    return dims[::-1] if contraction else dims


def _candidates(axes: dict[int, Axis], order: dict[int, int], most: int) -> Iterator[tuple[tuple[int, int], ...]]:
    counts = {d: [n for n in range(2, min(most, axes[d].size) + 1) if axes[d].size % n == 0] for d in order}
    yield ()
    for dim, some in counts.items():
        yield from (((dim, n),) for n in some)
    for a, b in combinations(counts, 2):
        yield from (((a, n), (b, m)) for n in counts[a] for m in counts[b] if n * m <= most)


def _rank(parts: tuple[tuple[int, int], ...], order: dict[int, int]) -> tuple[tuple[int, int], ...]:
    """Sorts splits of equally many units: preferred dims first, and most parts there."""
    return tuple((order[dim], -n) for dim, n in parts)
