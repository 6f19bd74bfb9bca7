"""Random words, a block of places at a time, so that the ten rounds stay in cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from headrace.dialects.tensor.shapes.random import FACTORS, ROUNDS, STEPS
from headrace.runtime.kernels.calls import Call, Step, binds, scalar
from headrace.runtime.kernels.scratch import Array, Scratch

PLACES = 8192
"""Places that go through the rounds together: six arrays of them fit in a core's own cache."""
WORD = np.dtype(np.uint64)


@binds("tensor.philox")
def philox(call: Call) -> list[Step]:
    """The keys of all rounds, then the rounds of each block."""
    state, rows, columns = call.inputs
    out = call.output
    places = out.shape[:-1]
    keys, steps = _keys(call.scratch, state)
    given = [np.broadcast_to(rows, places), np.broadcast_to(columns, places), out]
    for arrays in _blocks(given, len(places)):
        mark = call.scratch.mark()
        steps += _words(call.scratch, state, keys, *arrays)
        call.scratch.release(mark)
    return steps


def _blocks(arrays: Sequence[Array], rank: int) -> Iterator[Sequence[Array]]:
    """The arrays cut along their first `rank` dims, which they share."""
    shape = arrays[0].shape
    size = arrays[0].size
    if size <= PLACES or rank == 0:
        if size:
            yield arrays
        return
    inner = size // shape[0]
    if inner >= PLACES:
        for i in range(shape[0]):
            yield from _blocks([x[i] for x in arrays], rank - 1)
        return
    step = PLACES // inner
    for i in range(0, shape[0], step):
        yield [x[i : i + step] for x in arrays]


def _keys(scratch: Scratch, state: Array) -> tuple[tuple[Array, Array], list[Step]]:
    """The two words of the key in each round."""
    first, second = scratch.take((ROUNDS,), WORD), scratch.take((ROUNDS,), WORD)
    key, low, half = state[2:3], scalar(0xFFFFFFFF, WORD), scalar(32, WORD)
    added = [np.arange(ROUNDS, dtype=WORD) * np.uint64(step) for step in STEPS]
    steps: list[Step] = [
        (np.add, (key, added[0], first)),
        (np.bitwise_and, (first, low, first)),
        (np.right_shift, (key, half, second)),
        (np.add, (second, added[1], second)),
        (np.bitwise_and, (second, low, second)),
    ]
    return (first, second), steps


def _words(
    scratch: Scratch, state: Array, keys: tuple[Array, Array], rows: Array, columns: Array, out: Array
) -> list[Step]:
    """The words of some places."""
    a, b, c, d, p, q = (scratch.take(rows.shape, WORD) for _ in range(6))
    low, half = scalar(0xFFFFFFFF, WORD), scalar(32, WORD)
    factors = [scalar(x, WORD) for x in FACTORS]
    steps: list[Step] = [
        (np.add, (rows, columns, p)),
        (np.add, (p, state[0:1].reshape(()), a)),
        (np.less, (a, p, q)),  # the carry
        (np.add, (q, state[1:2].reshape(()), c)),
        (np.right_shift, (a, half, b)),
        (np.bitwise_and, (a, low, a)),
        (np.right_shift, (c, half, d)),
        (np.bitwise_and, (c, low, c)),
    ]
    for i in range(ROUNDS):
        steps += [
            (np.multiply, (a, factors[0], p)),
            (np.multiply, (c, factors[1], q)),
            (np.right_shift, (q, half, a)),
            (np.bitwise_xor, (a, b, a)),
            (np.bitwise_xor, (a, keys[0][i : i + 1].reshape(()), a)),
            (np.right_shift, (p, half, c)),
            (np.bitwise_xor, (c, d, c)),
            (np.bitwise_xor, (c, keys[1][i : i + 1].reshape(()), c)),
            (np.bitwise_and, (q, low, b)),
            (np.bitwise_and, (p, low, d)),
        ]
    return [*steps, *((np.copyto, (out[..., k], x, "unsafe")) for k, x in enumerate((a, b, c, d)))]
