"""Memory of a bound program: one aligned block shared by arrays that are not live at the same time, and a pool for
the scratch of single calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
ALIGN = 64


@dataclass(frozen=True, slots=True)
class Request:
    """An array of `nbytes` that must keep its contents from step `first` to step `last`, both included."""

    nbytes: int
    first: int
    last: int


def aligned(nbytes: int) -> Array:
    """A block of bytes that starts on a cache line."""
    raw = np.empty(nbytes + ALIGN, np.uint8)
    start = -raw.ctypes.data % ALIGN
    return raw[start : start + nbytes]


def pack(requests: Sequence[Request]) -> tuple[list[int], int]:
    """Byte offsets for all requests so that those live together do not overlap, and the block's size. Largest first,
    lowest free offset: deterministic."""
    order = sorted(range(len(requests)), key=lambda i: (-requests[i].nbytes, requests[i].first, i))
    placed: list[int] = []
    offsets = [0] * len(requests)
    end = 0
    for i in order:
        this = requests[i]
        at = 0
        clashes = sorted(
            (offsets[j], offsets[j] + _round(requests[j].nbytes))
            for j in placed
            if requests[j].first <= this.last and this.first <= requests[j].last
        )
        for low, high in clashes:
            if at + this.nbytes <= low:
                break
            at = max(at, high)
        offsets[i] = at
        placed.append(i)
        end = max(end, at + _round(this.nbytes))
    return offsets, end


def _round(nbytes: int) -> int:
    return -(-nbytes // ALIGN) * ALIGN


class Pool:
    """Scratch that lasts for one group of calls: `take` gives arrays, `reset` lets the next group use the same
    memory.

    Arrays taken between two resets never overlap; those taken after a reset overlap earlier ones.
    """

    def __init__(self, block: int = 1 << 20) -> None:
        self._block = block
        self._blocks: list[Array] = []
        self._current = 0
        self._used = 0

    def take(self, shape: Sequence[int], dtype: Any) -> Array:
        """An uninitialised array on a cache line."""
        dtype = np.dtype(dtype)
        count = 1
        for n in shape:
            count *= n
        nbytes = count * dtype.itemsize
        while True:
            if self._current == len(self._blocks):
                self._blocks.append(aligned(max(self._block, _round(nbytes))))
            block = self._blocks[self._current]
            if self._used + nbytes <= block.nbytes:
                at, self._used = self._used, self._used + _round(nbytes)
                return np.ndarray(tuple(shape), dtype, block, at)
            self._current, self._used = self._current + 1, 0

    def reset(self) -> None:
        """Start handing out the same memory again."""
        self._current = self._used = 0

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(block.nbytes for block in self._blocks)
