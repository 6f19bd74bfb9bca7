"""Steps of composite ops: softmax, norms, attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from xdsl.ir import SSAValue

from headrace.tools.fuzz.maker import Maker
from headrace.tools.fuzz.steps import narrowed, step
from headrace.tools.fuzz.steps.contraction import batch_norm


@step(2)
def softmax(m: Maker) -> Sequence[SSAValue]:
    x = m.pick(lambda s: len(s) >= 1)
    return [m.op(m.choose("softmax", "softmax", "log_softmax"), x, axis=m.signed_axis(x))]


@step(2)
def norm(m: Maker) -> Sequence[SSAValue]:
    """Over the last dims."""
    x = m.pick(lambda s: len(s) >= 1)
    rank, dtype = len(m.shape(x)), m.dtype_of(x)
    axis = rank - 1 if m.chance(0.7) else m.axis(x)
    shape = m.shape(x)[axis:]
    attrs = {"axis": axis - (rank if m.chance(0.5) else 0), "epsilon": m.choose(1e-5, 0.1)}
    scale = m.weight(shape, 0.1, 1.0, dtype=dtype)
    if m.chance(0.4):
        return [m.op("rms_norm", x, scale, **attrs)]
    bias = [m.weight(shape, 0.1, dtype=dtype)] if m.chance(0.7) else []
    return [m.op("layer_norm", x, scale, *bias, **attrs)]


@step(1)
def channel_norm(m: Maker) -> Sequence[SSAValue]:
    x = m.pick(lambda s: len(s) >= 2)
    c, dtype = m.shape(x)[1], m.dtype_of(x)
    if m.chance(0.4):
        return [batch_norm(m, x)]
    groups = m.choose(*[g for g in range(1, c + 1) if c % g == 0], 1)
    attrs = {"groups": groups, "epsilon": m.choose(1e-5, 0.1)}
    return [m.op("group_norm", x, m.weight((c,), 0.1, 1.0, dtype=dtype), m.weight((c,), dtype=dtype), **attrs)]


@step(2)
def attention(m: Maker) -> Sequence[SSAValue]:
    """Of a value with itself, or with keys and values of weights; masks that are added or that keep."""
    x = m.pick(lambda s: 2 <= len(s) <= 4 and math.prod(s) <= 512)
    dtype, (*batch, t, d) = m.dtype_of(x), m.shape(x)
    key, value, s = x, x, t
    if m.chance(0.5):
        s, e = m.dim(), m.dim()
        lead = narrowed(m, batch)
        key, value = m.weight((*lead, s, d), dtype=dtype), m.weight((*lead, s, e), dtype=dtype)
    attrs: dict[str, Any] = {"causal": m.chance(0.4)}
    if m.chance(0.3):
        attrs["scale"] = m.choose(0.5, 1.0)
    masks: list[SSAValue] = []
    if m.chance(0.4):
        shape = narrowed(m, (*batch, t, s))
        masks = [m.given(m.sample(shape, m.choose("i1", dtype)))]
    return [m.op("attention", x, key, value, *masks, **attrs)]
