"""Address arithmetic of the runtime: which addresses a flow touches, who owns them, and strided arrays over them.

An address set is kept as *terms*: pairs (count, stride) beside an offset, standing for every sum offset + Σ i·stride
with 0 ≤ i < count. A tile, its loops and a view always give such a set.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from headrace.dialects.support.access import Loop, Stream, View

Array = np.ndarray[Any, np.dtype[Any]]
Terms = tuple[tuple[int, int], ...]


def normal(terms: Iterable[tuple[int, int]], offset: int) -> tuple[Terms, int]:
    """The same address set with positive strides, ascending, dense neighbours joined and repeats dropped."""
    found: list[tuple[int, int]] = []
    for count, stride in terms:
        if count == 1 or stride == 0:
            continue
        if stride < 0:
            offset, stride = offset + (count - 1) * stride, -stride
        found.append((stride, count))
    found.sort()
    joined: list[tuple[int, int]] = []
    for stride, count in found:
        if joined and joined[-1][1] * joined[-1][0] == stride:
            joined[-1] = (joined[-1][0] * count, joined[-1][1])
        else:
            joined.append((count, stride))
    return tuple(joined), offset


def loop_terms(loops: Iterable[Loop], view: View) -> list[tuple[int, int]]:
    """Terms of the loops that move the tile, in address space."""
    return [(x.count, x.step * view.strides[x.dim]) for x in loops if x.dim >= 0]


def tile_terms(stream: Stream, view: View) -> list[tuple[int, int]]:
    """Terms of one tile in address space."""
    return list(zip(stream.tile, view.strides, strict=True))


def injective(terms: Terms) -> bool:
    """Whether normal terms give distinct sums: each stride passes everything that the smaller ones reach."""
    reach = 0
    for count, stride in terms:
        if stride <= reach:
            return False
        reach += (count - 1) * stride
    return True


def covers(terms: Terms, offset: int, elements: int) -> bool:
    """Whether normal terms are exactly the addresses 0 … elements-1, each once."""
    return offset == 0 and (terms == ((elements, 1),) or (elements == 1 and not terms))


def size(terms: Iterable[tuple[int, int]]) -> int:
    """How many sums the terms denote, with multiplicity."""
    return prod(count for count, _ in terms)


def addresses(terms: Iterable[tuple[int, int]], offset: int) -> Array:
    """Every sum, first term outermost."""
    found = np.array([offset], np.int64)
    for count, stride in terms:
        found = (found[:, None] + np.arange(count, dtype=np.int64) * stride).ravel()
    return found


def mark(mask: Array, terms: Terms, offset: int) -> None:
    """Set the cells of a flat boolean array that normal terms denote. They must lie within it."""
    strided(mask, offset, [n for n, _ in terms], [s for _, s in terms])[...] = True


def strided(flat: Array, offset: int, shape: Sequence[int], strides: Sequence[int]) -> Array:
    """An array of `shape` over a flat dense one: element c is flat[offset + Σ c·strides] (strides in elements)."""
    item = flat.itemsize
    if 0 in shape:
        return np.empty(tuple(shape), flat.dtype)
    return np.ndarray(tuple(shape), flat.dtype, flat, offset * item, tuple(s * item for s in strides))


@lru_cache(maxsize=65536)
def owners(terms: Terms, offset: int, shape: tuple[int, ...], split_dim: int, sites: int) -> tuple[int, ...]:
    """Which of `sites` memory units hold some address of the set, when dim `split_dim` of a row-major `shape` is cut
    into equal blocks, one a unit."""
    if sites == 1 or not shape:
        return (0,)
    unit = prod(shape[split_dim + 1 :])
    length = shape[split_dim]
    block = -(-length // sites)
    terms, offset = normal(terms, offset)
    terms = tuple(part for term in terms for part in _parts(*term, unit, unit * length))
    low = sum((count - 1) * stride for count, stride in terms if stride < unit)
    exact = offset % unit + low < unit and all(s < unit or s % unit == 0 for _, s in terms)
    if exact:  # indices of the split dim do instead of addresses
        terms, offset, unit = tuple((c, s // unit) for c, s in terms if s >= unit), offset // unit, 1
    run = 1  # so many addresses in a row
    found = np.array([offset], np.int64)
    for count, stride in sorted((t for t in terms if t[1] % (unit * length)), key=lambda term: term[1]):
        if stride <= run and len(found) == 1:
            run += (count - 1) * stride
        else:
            found = np.unique((found[:, None] + np.arange(count, dtype=np.int64) * stride).ravel())
    first, last = found // unit, (found + run - 1) // unit
    begin = first % length
    end = begin + np.minimum(last - first, length - 1)
    edges = np.zeros(sites + 1, np.int64)
    for low, high in ((begin, np.minimum(end, length - 1)), (np.zeros_like(begin), end - length)):
        there = high >= low
        np.add.at(edges, low[there] // block, 1)
        np.add.at(edges, high[there] // block + 1, -1)
    return tuple(int(x) for x in np.flatnonzero(edges.cumsum()[:sites] > 0))


def _parts(count: int, stride: int, unit: int, period: int) -> Terms:
    """A term cut where it crosses a unit of the split dim, and to one period of it (what lies beyond repeats)."""
    inner: Terms = ()
    if stride < unit < count * stride and unit % stride == 0 and count * stride % unit == 0:
        inner = ((unit // stride, stride),)
        count, stride = -(-count * stride // unit), unit
    if stride >= unit and period % stride == 0:
        count = min(count, period // stride)
    return (*inner, (count, stride))


def owner_of(at: Array, shape: Sequence[int], split_dim: int, sites: int) -> Array:
    """The memory unit that holds each address."""
    if sites == 1 or not shape:
        return np.zeros_like(at)
    unit, length = prod(shape[split_dim + 1 :]), shape[split_dim]
    return at // unit % length // -(-length // sites)


def indices(loops: Sequence[Loop]) -> Array:
    """All index vectors of a loop nest, outermost first: an array [product of counts, number of loops]."""
    counts = [x.count for x in loops]
    return np.indices(counts).reshape(len(counts), -1).T if counts else np.zeros((1, 0), np.int64)


def shifts(loops: Sequence[Loop], view: View) -> Array:
    """Address shift of the tile at each point of a loop nest, outermost loop first."""
    return addresses([(x.count, x.step * view.strides[x.dim] if x.dim >= 0 else 0) for x in loops], 0)
