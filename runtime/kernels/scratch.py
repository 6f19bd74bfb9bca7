"""Temporary memory of bound calls: one stack of aligned blocks that later groups of calls use again."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
ALIGN = 64


def aligned(nbytes: int) -> Array:
    """Uninitialised bytes that start on a cache line."""
    raw = np.empty(nbytes + ALIGN, np.uint8)
    start = -raw.ctypes.data % ALIGN
    return raw[start : start + nbytes]


def aligned_copy(x: Array) -> Array:
    """A dense row-major copy that starts on a cache line."""
    made = aligned(x.nbytes).view(x.dtype).reshape(x.shape)
    np.copyto(made, x)
    return made


class Scratch:
    """Hands out arrays whose contents last until a `release` to a mark set before them.

    Steps run in the order in which they were bound, so memory given back is simply handed out again: its size is the
    most that is held at once. Blocks never move.
    """

    def __init__(self, block: int = 1 << 20) -> None:
        self._block = block
        self._blocks: list[Array] = []
        self._at = (0, 0)  # (block, bytes used of it)
        self._slots: list[Array] = []

    def take(self, shape: Sequence[int], dtype: Any) -> Array:
        """An uninitialised array that starts on a cache line."""
        dtype = np.dtype(dtype)
        nbytes = prod(shape) * dtype.itemsize
        index, used = self._at
        while True:
            if index == len(self._blocks):
                self._blocks.append(aligned(max(self._block, -(-nbytes // ALIGN) * ALIGN)))
            block = self._blocks[index]
            if used + nbytes <= block.nbytes:
                self._at = (index, used + -(-nbytes // ALIGN) * ALIGN)
                return np.ndarray(tuple(shape), dtype, block, used)
            index, used = index + 1, 0

    def slot(self, index: int, shape: Sequence[int], dtype: Any) -> Array:
        """Memory number `index` outside of the stack: the same at every call as long as it is large enough."""
        dtype = np.dtype(dtype)
        nbytes = prod(shape) * dtype.itemsize
        while index >= len(self._slots):
            self._slots.append(aligned(0))
        if self._slots[index].nbytes < nbytes:
            self._slots[index] = aligned(nbytes)
        return np.ndarray(tuple(shape), dtype, self._slots[index])

    def mark(self) -> tuple[int, int]:
        """The present top of the stack."""
        return self._at

    def release(self, mark: tuple[int, int]) -> None:
        """Give back everything taken since `mark` was called."""
        self._at = mark

    def reset(self) -> None:
        """Give back everything."""
        self._at = (0, 0)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(block.nbytes for block in (*self._blocks, *self._slots))
