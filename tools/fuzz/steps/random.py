"""Steps of random words: masks and uniform numbers of a state that is an input."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.ir import SSAValue

from headrace.dialects.support.dtypes import to_numpy
from headrace.tools.fuzz.maker import Maker
from headrace.tools.fuzz.steps import step

DIGITS = {"f64": 24, "f32": 24, "f16": 11, "bf16": 8}
"""Random digits of a number, by element type."""


def _words(m: Maker) -> SSAValue:
    """Words of places in rows and columns; the last dim holds the four of a block."""
    state = m.rng.integers(0, 2**64, 3, np.uint64)
    if m.chance(0.2):
        state[0] = 2**64 - 3  # the lower half of the counter wraps
    *lead, size = m.new_shape((1, 2, 2, 3))
    rows = np.asarray(m.rng.integers(0, 1000, (*lead, 1)), np.uint64)
    columns = np.arange(size, dtype=np.uint64)
    given = m.constant(state) if m.scope.kind == "recipe" else m.argument(state)
    return m.op("philox", given, m.given(rows), m.constant(columns))


@step(1)
def random_words(m: Maker) -> Sequence[SSAValue]:
    """As they are, or with the words of a row of blocks side by side."""
    words = _words(m)
    if m.chance(0.3):
        return [words]
    *lead, blocks, count = m.shape(words)
    return [m.op("reshape", words, shape=(*lead, blocks * count))]


@step(2)
def dropout(m: Maker) -> Sequence[SSAValue]:
    """Elements kept where a word is small, or uniform numbers."""
    (words,) = random_words(m)
    dtype = m.dtype if m.dtype in DIGITS else "f32"
    if m.chance(0.3):
        low = m.op("and", words, (1 << DIGITS[dtype]) - 1)
        return [m.op("mul", m.op("cast", low, to=dtype), 2.0 ** -DIGITS[dtype])]
    x = m.given(m.sample(m.shape(words), dtype))
    scale, zero = (m.constant(np.asarray(v, to_numpy(dtype))) for v in (1.5, 0))
    kept = m.op("less", words, int(m.rng.integers(0, 2**32)))
    return [m.op("mul", x, m.op("select", kept, scale, zero))]
