"""Sets of addresses as runs, exactly: which cells a stream touches, and which unit of a buffer owns them.

A set is two arrays, `low` and `high`: disjoint half-open runs in order. Every address of every tile is in it; a run is
only how its neighbours are written down, so nothing is assumed about the shape of the set.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from headrace.dialects.support.access import Loop, Stream, View
from headrace.tools.audit.program import Buffer, Floats, Ints, no_ints

Bools = np.ndarray[Any, np.dtype[np.bool_]]
Term = tuple[int, int]
"""(count, stride): the sums i · stride with 0 ≤ i < count."""


@dataclass(frozen=True, eq=False)
class Cells:
    """A set of addresses."""

    low: Ints
    high: Ints

    @property
    def count(self) -> int:
        """How many addresses."""
        return int((self.high - self.low).sum())

    @property
    def bounds(self) -> tuple[int, int]:
        """The least address and the greatest."""
        return (int(self.low[0]), int(self.high[-1]) - 1) if len(self.low) else (0, -1)

    def moved(self, by: int) -> Cells:
        """Every address so much further."""
        return Cells(self.low + by, self.high + by)

    def clipped(self, low: int, high: int) -> Cells:
        """What lies in low … high - 1."""
        keep = (self.high > low) & (self.low < high)
        return Cells(np.maximum(self.low[keep], low), np.minimum(self.high[keep], high))

    def minus(self, other: Cells) -> Cells:
        """What is not in the other set."""
        if not len(other.low) or not len(self.low):
            return self
        gap_low = np.concatenate([[min(self.low[0], other.low[0])], other.high])
        gap_high = np.concatenate([other.low, [max(self.high[-1], other.high[-1])]])
        return _both(self, Cells(gap_low, gap_high))

    def meets(self, other: Cells) -> bool:
        """Whether some address is in both."""
        return bool(_both(self, other).count)


NONE = Cells(no_ints(), no_ints())


def _both(a: Cells, b: Cells) -> Cells:
    """What is in both sets."""
    first = np.searchsorted(b.high, a.low, side="right")
    last = np.searchsorted(b.low, a.high, side="left")
    width = np.maximum(last - first, 0)
    mine = np.repeat(np.arange(len(a.low)), width)
    other = np.arange(len(mine)) - np.repeat(np.cumsum(width) - width, width) + first[mine]
    low, high = np.maximum(a.low[mine], b.low[other]), np.minimum(a.high[mine], b.high[other])
    return Cells(low[low < high], high[low < high])


def union(sets: Iterable[Cells]) -> Cells:
    """All addresses of some sets."""
    some = list(sets)
    return _merged(
        np.concatenate([no_ints(), *(s.low for s in some)]), np.concatenate([no_ints(), *(s.high for s in some)])
    )


def _merged(low: Ints, high: Ints) -> Cells:
    order = np.argsort(low, kind="stable")
    low, reach = low[order], np.maximum.accumulate(high[order])
    if not len(low):
        return NONE
    new = np.concatenate([[True], low[1:] > reach[:-1]])
    return Cells(low[new], reach[np.concatenate([new[1:], [True]])])


def sums(offset: int, terms: Iterable[Term]) -> Cells:
    """Every address offset + Σ i · stride."""
    positive: list[Term] = []
    for count, stride in terms:
        if count > 1 and stride:
            offset += min(0, (count - 1) * stride)
            positive.append((count, abs(stride)))
    found = Cells(np.array([offset], np.int64), np.array([offset + 1], np.int64))
    for count, stride in sorted(positive, key=lambda term: term[1]):
        shift = np.arange(count, dtype=np.int64)[:, None] * stride
        if len(found.low) == 1 and stride <= found.high[0] - found.low[0]:
            found = Cells(found.low, found.high + int(shift[-1, 0]))
        else:
            found = _merged((found.low + shift).ravel(), (found.high + shift).ravel())
    return found


def terms_of(loops: Iterable[Loop], view: View) -> list[Term]:
    """What loops do to an address."""
    return [(x.count, x.step * view.strides[x.dim] if x.dim >= 0 else 0) for x in loops]


def tile_terms(stream: Stream, view: View) -> list[Term]:
    """What the elements of a tile do to its address."""
    return list(zip(stream.tile, view.strides, strict=True))


def touched(stream: Stream, view: View, loops: Sequence[Loop]) -> Cells:
    """The addresses of all tiles that the loops reach."""
    return sums(view.offset, [*tile_terms(stream, view), *terms_of(loops, view)])


def elements_moved(stream: Stream) -> int:
    """Elements of all tiles, those of loops that repeat a tile once."""
    return prod(stream.tile) * prod(x.count for x in stream.loops if x.dim >= 0)


def shifts(loops: Sequence[Loop], view: View) -> Ints:
    """What is added to the address at every point of a loop nest, outermost first."""
    found = np.zeros(1, np.int64)
    for count, stride in terms_of(loops, view):
        found = (found[:, None] + np.arange(count, dtype=np.int64) * stride).ravel()
    return found


def owned(buffer: Buffer, cells: Cells, moves: Ints) -> Ints:
    """How many of the cells, moved by each of `moves`, every unit of the buffer owns: an array [move, unit]."""
    block, period = buffer.block
    units = buffer.size
    if units == 1:
        return np.full((len(moves), 1), cells.count)
    distinct, back = np.unique(moves % period, return_inverse=True)
    low, length = cells.low % period, cells.high - cells.low
    most = int(length.max(initial=0)) + 1
    key, many = np.unique(low * most + length, return_counts=True)
    runs = np.stack([key // most, key % most])
    return np.concatenate([_owned(runs, many, part, block, period, units) for part in _parts(distinct, len(many))])[
        back
    ]


MOST = 1 << 21
"""Runs looked at together."""


def _parts(moves: Ints, runs: int) -> list[Ints]:
    return np.array_split(moves, max(1, -(-len(moves) * runs // MOST)))


def _owned(runs: Ints, many: Ints, moves: Ints, block: int, period: int, units: int) -> Ints:
    low = (moves[:, None] + runs[0]) % period
    high = low + runs[1]
    row = np.broadcast_to(np.arange(len(moves))[:, None] * (units + 1), low.shape)
    size = len(moves) * (units + 1)
    weight = np.broadcast_to(many, low.shape)

    def add(at: Ints, by: Ints) -> Floats:
        """The sums of `by` by row and unit."""
        sums: Floats = np.bincount((row + at).ravel(), (by * weight).ravel(), size).astype(np.float64)
        return sums.reshape(len(moves), units + 1)

    # cells from the start of the period to the end of the run less those to its start, block by block
    whole = np.clip(period - block * np.arange(units), 0, block)
    found = np.zeros((len(moves), units))
    for end, sign in ((high, 1), (low, -1)):
        rounds, rest = end // period, end % period
        full = rest // block
        here = add(full, np.ones_like(full))
        covered = here.sum(axis=1, keepdims=True) - np.cumsum(here, axis=1)[:, :units]  # runs that end in a later block
        found += sign * (covered * whole + add(full, rest - full * block)[:, :units])
        found += sign * (rounds * weight).sum(axis=1)[:, None] * whole
    return np.rint(found).astype(np.int64)
