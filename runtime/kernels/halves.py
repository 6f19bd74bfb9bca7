"""f16 and bf16: functions of one number from a table of all 65,536, which is faster than to widen, compute and round,
and gives to the bit what the op means."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from headrace.dialects.tensor.meaning import evaluate
from headrace.dialects.tensor.meaning.special import NARROW
from headrace.runtime.kernels.calls import Call, Step, coalesce, tiles
from headrace.runtime.kernels.scratch import Array, aligned_copy

TABLED = frozenset(
    f"tensor.{name}"
    for name in (
        *("exp", "log", "sqrt", "rsqrt", "reciprocal", "erf", "tanh", "sigmoid", "sin", "cos", "tan"),
        *("silu", "softplus", "gelu", "elu", "leaky_relu", "hard_sigmoid"),
    )
)
"""Elementwise ops of one operand that take more than one pass, or a slow one."""


def table_steps(call: Call) -> list[Step] | None:
    """The op by table; None where it has none. A power with a constant exponent is a function of one number."""
    x, o = call.inputs[0], call.output
    if x.dtype not in NARROW or o.dtype != x.dtype:
        return None
    others: tuple[Array, ...] = ()
    if call.name == "tensor.pow":
        y = call.inputs[1]
        if 1 not in call.constants or any(s for n, s in zip(y.shape, y.strides, strict=True) if n > 1) or not y.size:
            return None
        others = (y[(0,) * y.ndim],)
    elif call.name not in TABLED:
        return None
    if o.size == 0:
        return []
    table = _table(call.name, _Attrs(call.attrs), x.dtype.str, *(float(y) for y in others))
    (x,), (o,) = coalesce([np.broadcast_to(x, o.shape)], [o])
    steps: list[Step] = []
    for xs, os in tiles([x, o]):
        mark = call.scratch.mark()
        index = call.scratch.take(xs.shape, np.intp)
        whole = xs.shape == os.shape and os.flags.c_contiguous  # else x repeats, or the output has gaps
        target = os if whole else call.scratch.take(xs.shape, os.dtype)
        steps += [
            (np.copyto, (index, xs.view(np.uint16))),
            (np.take, (table, index, 0, target.view(np.uint16), "wrap")),
        ]
        if target is not os:
            steps.append((np.copyto, (os, target)))
        call.scratch.release(mark)
    return steps


class _Attrs(dict[str, Any]):
    """Attributes that tell tables apart."""

    def __init__(self, attrs: Mapping[str, Any]) -> None:
        super().__init__(attrs)
        self._key = repr(sorted(attrs.items()))

    def __hash__(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Attrs) and self._key == other._key


@lru_cache(maxsize=64)
def _table(name: str, attrs: _Attrs, dtype: str, *others: float) -> Array:
    """Bits of the result by bits of the operand."""
    kind = next(x for x in NARROW if x.str == dtype)
    numbers = np.arange(1 << 16, dtype=np.uint16).view(kind)
    with np.errstate(all="ignore"):
        (found,) = evaluate(name, attrs, numbers, *(np.array(y, kind) for y in others))
    made = aligned_copy(np.asarray(found).view(np.uint16))
    made.flags.writeable = False
    return made
