"""NumPy meaning of random words."""

from __future__ import annotations

import numpy as np

from headrace.dialects.tensor.meaning import Array, Attrs, means
from headrace.dialects.tensor.shapes.random import FACTORS, ROUNDS, STEPS

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_FIRST, _SECOND = map(np.uint64, FACTORS)


@means("tensor.philox")
def philox(attrs: Attrs, state: Array, rows: Array, columns: Array) -> Array:
    """Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers, as easy as 1, 2, 3; SC 2011)."""
    with np.errstate(over="ignore"):  # of scalars
        place = rows + columns
        low = np.asarray(state[0] + place)
        high = np.asarray(state[1] + (low < place).astype(np.uint64))
    a, b, c, d = low & _LOW, low >> _HALF, high & _LOW, high >> _HALF
    keys = [int(state[2]) & 0xFFFFFFFF, int(state[2]) >> 32]
    for _ in range(ROUNDS):
        first, second = a * _FIRST, c * _SECOND
        a = (second >> _HALF) ^ b ^ np.uint64(keys[0])
        c = (first >> _HALF) ^ d ^ np.uint64(keys[1])
        b, d = second & _LOW, first & _LOW
        keys = [(k + step) & 0xFFFFFFFF for k, step in zip(keys, STEPS, strict=True)]
    return np.stack([a, b, c, d], axis=-1).astype(np.uint32)
