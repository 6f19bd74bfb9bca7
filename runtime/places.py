"""Where the arrays of a config live, and address programs resolved to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headrace.dialects.support import dtypes
from headrace.dialects.support.access import View
from headrace.runtime.merge import Move, joined_shape

Key = tuple[int, int]
"""A value of a config: (unit, value of its body)."""


@dataclass
class Place:
    """Memory that the plan addresses: a parameter (`param` ≥ 0) or an array of its own, live from action `first` to
    `last`. `signature` tells which cells writers leave as `fill`; None when all are written."""

    dtype: str
    elements: int
    param: int = -1
    fill: float = 0.0
    signature: Any = None
    first: int = 1 << 30
    last: int = -1

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.elements * dtypes.byte_size(self.dtype)


@dataclass(frozen=True, slots=True)
class End:
    """An address program resolved to a place: element c of the denoted tensor is at offset + Σ c · strides."""

    place: int
    offset: int
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Home:
    """Where a buffer lives: in `place`, each address mapped through `digits` (extent, buffer stride, place stride)
    from `base`; no digits means address by address."""

    place: int
    base: int = 0
    digits: tuple[tuple[int, int, int], ...] | None = None

    def resolve(self, view: View, shape: Sequence[int]) -> End | None:
        """The address program through the mapping; None when it is no longer affine."""
        if self.digits is None:
            return End(self.place, self.base + view.offset, view.strides)
        offset = self.base
        low: list[int] = []
        high: list[int] = []
        for extent, stride, target in self.digits:
            digit = view.offset // stride % extent
            offset += digit * target
            low.append(digit)
            high.append(digit)
        strides: list[int] = []
        for n, step in zip(shape, view.strides, strict=True):
            if n == 1 or step == 0:
                strides.append(0)
                continue
            sign, step = (1, step) if step > 0 else (-1, -step)
            total = 0
            for k, (extent, stride, target) in enumerate(self.digits):
                digit = step // stride % extent
                total += digit * target
                if sign > 0:
                    high[k] += (n - 1) * digit
                else:
                    low[k] -= (n - 1) * digit
            strides.append(sign * total)
        if any(a < 0 or b >= extent for a, b, (extent, _, _) in zip(low, high, self.digits, strict=True)):
            return None
        return End(self.place, offset, tuple(strides))


def digits_of(
    shape: Sequence[int], strides: Sequence[int], targets: Sequence[int], elements: int
) -> tuple[tuple[int, int, int], ...] | None:
    """A copy of a tensor of `shape` as a mapping from every address of a dense buffer (`strides`) to another memory
    (`targets`); None when the copy does not write each of the `elements` addresses once."""
    found = sorted(((s, n, t) for n, s, t in zip(shape, strides, targets, strict=True) if n > 1), reverse=True)
    joined: list[tuple[int, int, int]] = []
    place = 1
    for stride, n, target in reversed(found):
        if stride != place:
            return None
        place *= n
        if joined and joined[-1][2] * joined[-1][0] == target:
            joined[-1] = (joined[-1][0] * n, joined[-1][1], joined[-1][2])
        else:
            joined.append((n, stride, target))
    if place != elements:
        return None
    return tuple(reversed(joined)) or ((1, 1, 0),)


@dataclass(frozen=True, slots=True)
class Binding:
    """A body value in memory: `end` addresses its joined tiles; `unit` numbers the loops that `moves` speaks of. The
    first `still` loops leave the address alone: the place holds one chunk of them."""

    end: End
    tile: tuple[int, ...]
    moves: tuple[Move, ...]
    unit: int
    still: int = 0

    def fixed(self, low: int, loops: int) -> Binding:
        """The same value in a place that holds one chunk of the first `loops` loops, whose first address is `low`."""
        end = End(self.end.place, self.end.offset - low, self.end.strides)
        return Binding(end, self.tile, self.moves, self.unit, loops)

    def shape(self, counts: Sequence[int]) -> tuple[int, ...]:
        """Shape of the joined tiles of so many iterations."""
        return joined_shape(self.tile, self.moves, counts)

    def shift(self, at: Sequence[int]) -> int:
        """Address shift of the loop indices `at`."""
        return sum(
            i * move[1] * self.end.strides[move[0]]
            for i, move in zip(at[self.still :], self.moves[self.still :], strict=True)
            if i and move is not None
        )
