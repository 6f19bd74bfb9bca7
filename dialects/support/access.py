"""Streams of tiles and the address programs that make or take them: plain Python, shared by every level below `tensor`.

A *stream* is a sequence of steps; in each step every site carries one tile. Loops say how the tile moves over the
tensor that the stream denotes; a *view* says where that tensor's elements lie in a row-major memory. Together they are
what an address generator is configured with: counters, strides and an offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod


@dataclass(frozen=True, slots=True)
class Loop:
    """`count` iterations, each advancing the tile by `step` elements along `dim`; `dim` -1 repeats the same tile."""

    count: int
    dim: int
    step: int


@dataclass(frozen=True)
class Stream:
    """Tiles of extent `tile` and element type `dtype`, moved by `time` loops (steps) and `space` loops (sites).

    Loops are listed outermost first; site numbers count the space loops in row-major order. The coordinate of tile
    element t at loop indices i is c[d] = t[d] + Σ i_l · step_l over the loops l on dim d.
    """

    tile: tuple[int, ...]
    dtype: str
    time: tuple[Loop, ...] = ()
    space: tuple[Loop, ...] = ()

    @cached_property
    def loops(self) -> tuple[Loop, ...]:
        """Time loops, then space loops."""
        return self.time + self.space

    @property
    def steps(self) -> int:
        """How many tiles a site carries."""
        return prod(loop.count for loop in self.time)

    @property
    def sites(self) -> int:
        """How many sites carry tiles in a step."""
        return prod(loop.count for loop in self.space)

    @property
    def tile_elements(self) -> int:
        """Elements of one tile."""
        return prod(self.tile)

    @cached_property
    def full_shape(self) -> tuple[int, ...]:
        """Shape of the whole tensor that the stream denotes."""
        shape = list(self.tile)
        for loop in self.loops:
            if loop.dim >= 0:
                shape[loop.dim] += (loop.count - 1) * loop.step
        return tuple(shape)

    def origin(self, index: Sequence[int]) -> tuple[int, ...]:
        """Coordinate of the tile's first element at the given loop indices (time, then space)."""
        at = [0] * len(self.tile)
        for loop, i in zip(self.loops, index, strict=True):
            if loop.dim >= 0:
                at[loop.dim] += i * loop.step
        return tuple(at)

    @property
    def partitions(self) -> bool:
        """Whether the tiles of all steps and sites cover the denoted tensor exactly once: loops on each dim nest with
        steps equal to the extent inside them, and none repeats."""
        extent = list(self.tile)
        for loop in reversed(self.loops):
            if loop.count == 1:
                continue
            if loop.dim < 0:
                return False
        for dim in range(len(extent)):
            on_dim = sorted((x for x in self.loops if x.dim == dim and x.count > 1), key=lambda x: x.step)
            for loop in on_dim:
                if loop.step != extent[dim]:
                    return False
                extent[dim] *= loop.count
        return True


@dataclass(frozen=True, slots=True)
class View:
    """Where coordinate c of a denoted tensor lies in a row-major memory: offset + Σ c[d] · strides[d], in elements."""

    offset: int
    strides: tuple[int, ...]

    def bounds(self, shape: Sequence[int]) -> tuple[int, int]:
        """Lowest and highest address that a tensor of `shape` touches through this view."""
        low = high = self.offset
        for size, stride in zip(shape, self.strides, strict=True):
            reach = (size - 1) * stride
            low, high = low + min(reach, 0), high + max(reach, 0)
        return low, high


def run_of(tile: Sequence[int], strides: Sequence[int]) -> int:
    """Elements of a tile that lie one after another in the memory that strides address."""
    run = 1
    for stride, count in sorted((abs(s), n) for n, s in zip(tile, strides, strict=True) if n > 1 and s):
        if stride != run:
            break
        run *= count
    return run


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a dense row-major tensor, in elements."""
    strides = [1] * len(shape)
    for d in range(len(shape) - 2, -1, -1):
        strides[d] = strides[d + 1] * shape[d + 1]
    return tuple(strides)


def identity(shape: Sequence[int]) -> View:
    """The view of a dense row-major tensor."""
    return View(0, row_major(shape))
