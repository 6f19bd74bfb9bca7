"""Memory of a bound program: one aligned block shared by arrays that are not live at the same time."""

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
