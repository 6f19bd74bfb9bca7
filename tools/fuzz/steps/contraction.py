"""Steps of matmuls, convolutions, pools and reductions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from xdsl.ir import SSAValue

from headrace.dialects.support.dtypes import FLOATS
from headrace.tools.fuzz.maker import Maker
from headrace.tools.fuzz.nearby import Declined
from headrace.tools.fuzz.steps import step


def accumulate(m: Maker, dtype: str) -> dict[str, Any]:
    """The element type that products are summed in, now and then."""
    wider = {"f16": ("f32", "f64"), "bf16": ("f32",), "f32": ("f64",), "i8": ("i32", "i64"), "ui8": ("ui32", "i32")}
    return {"accumulate": m.choose(*wider[dtype])} if dtype in wider and m.chance(0.2) else {}


@step(5)
def matmul(m: Maker) -> Sequence[SSAValue]:
    """By a weight, stored either way round, with a bias or without."""
    x = m.pick(lambda s: len(s) >= 1, of=m.choose("float", "float", "float", "number"))
    dtype, k, n = m.dtype_of(x), m.shape(x)[-1], m.dim()
    if m.chance(0.2):
        w = m.op("transpose", m.weight((n, k), (k or 1) ** -0.5, dtype=dtype), perm=(1, 0))
    else:
        w = m.weight((k, n), (k or 1) ** -0.5, dtype=dtype)
    y = m.op("matmul", x, w, **accumulate(m, dtype))
    return [m.op("add", y, m.weight((n,), dtype=m.dtype_of(y)))] if m.chance(0.4) else [y]


@step(3)
def product(m: Maker) -> Sequence[SSAValue]:
    """Of two values, of vectors, or with weights on the left; batch dims broadcast."""
    x = m.pick(lambda s: len(s) >= 1, of=m.choose("float", "float", "number"))
    k, dtype = m.shape(x)[-1], m.dtype_of(x)
    match m.random.randrange(4):
        case 0:
            return [m.op("matmul", x, m.weight((k,), (k or 1) ** -0.5, dtype=dtype), **accumulate(m, dtype))]
        case 1:
            rank = len(m.shape(x))
            rows = m.shape(x)[-2] if rank > 1 else k
            batch = m.choose((), (), (2,), (3, 1)) if rank < 4 else ()
            return [m.op("matmul", m.weight((*batch, m.dim(), rows), (rows or 1) ** -0.5, dtype=dtype), x)]
        case 2:
            rank = len(m.shape(x))
            if rank < 2:
                raise Declined("a vector")
            other = m.op("transpose", x, perm=(*range(rank - 2), rank - 1, rank - 2))
            return [m.op("matmul", x, m.op("mul", other, 1 / (k or 1) if dtype in FLOATS else 1))]
        case _:
            y = m.pick(lambda s: len(s) >= 1 and s[-2:][0] == k, of=dtype)
            if m.shape(x) and dtype in FLOATS:
                y = m.op("mul", y, 1 / (k or 1))
            return [m.op("matmul", x, y)]


def windows(m: Maker, spatial: Sequence[int]) -> dict[str, Any]:
    """Strides, dilations and pads, some left out."""
    attrs: dict[str, Any] = {}
    if m.chance(0.6):
        attrs["strides"] = tuple(m.choose(1, 1, 2, 3) for _ in spatial)
    if m.chance(0.3):
        attrs["dilations"] = tuple(m.choose(1, 2) for _ in spatial)
    if m.chance(0.6):
        attrs["pads"] = tuple(m.choose(0, 1, 1, 2) for _ in (*spatial, *spatial))
    return attrs


def channels_first(m: Maker, of: str) -> SSAValue:
    """A value with a batch, channels and one to three spatial dims."""
    try:
        return m.pick(lambda s: 3 <= len(s) <= 5 and math.prod(s) <= 1024, of=of)
    except Declined:
        x = m.pick(lambda s: 8 <= math.prod(s) <= 1024, of=of)
        n = math.prod(m.shape(x))
        c = m.choose(*[d for d in (1, 2, 4) if n % d == 0])
        rest = n // c
        side = m.choose(*[d for d in range(1, rest + 1) if rest % d == 0])
        shape = m.choose((1, c, rest), (1, c, side, rest // side))
        return m.op("reshape", x, shape=shape)


@step(3)
def conv(m: Maker) -> Sequence[SSAValue]:
    x = channels_first(m, m.choose("float", "float", "number"))
    channels, spatial, dtype = m.shape(x)[1], m.shape(x)[2:], m.dtype_of(x)
    kernel = tuple(m.random.randint(1, max(1, min(3, n))) for n in spatial)
    groups = m.choose(*[g for g in (1, 1, 1, 2, 3, channels) if g and channels % g == 0])
    out = groups * m.choose(1, 1, 2, 3)
    scale = (channels * math.prod(kernel) or 1) ** -0.5
    w = m.weight((out, channels // groups, *kernel), scale, dtype=dtype)
    attrs = {**windows(m, spatial), **accumulate(m, dtype), "groups": groups}
    bias = [m.weight((out,), dtype=dtype)] if m.chance(0.5) else []
    y = m.op("conv", x, w, *bias, **attrs)
    if m.dtype_of(y) in FLOATS and m.chance(0.3):
        return [batch_norm(m, y)]
    return [y]


def batch_norm(m: Maker, x: SSAValue) -> SSAValue:
    """With statistics that are weights or constants."""
    c, dtype = (m.shape(x)[1],), m.dtype_of(x)
    variance = m.op("abs", m.weight(c, 1.0, dtype=dtype)) if m.chance(0.3) else m.weight(c, 0.1, 1.5, dtype=dtype)
    others = (m.weight(c, 0.1, 1.0, dtype=dtype), m.weight(c, dtype=dtype), m.weight(c, dtype=dtype))
    return m.op("batch_norm", x, *others, variance, epsilon=m.choose(1e-5, 0.1))


@step(2)
def pool(m: Maker) -> Sequence[SSAValue]:
    name = m.choose("max_pool", "avg_pool")
    x = channels_first(m, "float" if name == "avg_pool" else m.choose("float", "number"))
    spatial = m.shape(x)[2:]
    attrs = windows(m, spatial)
    attrs["kernel"] = tuple(m.random.randint(1, max(1, min(3, n))) for n in spatial)
    attrs["ceil"] = m.chance(0.3)
    if name == "avg_pool":
        attrs["count_include_pad"] = m.chance(0.4)
    return [m.op(name, x, **attrs)]


@step(4)
def reduce(m: Maker) -> Sequence[SSAValue]:
    """Over some dims, over none and over all."""
    x = m.pick(of=m.choose("float", "float", "number", "any"))
    rank = len(m.shape(x))
    axes = [d - (rank if m.chance(0.2) else 0) for d in range(rank) if m.chance(0.4)]
    if m.chance(0.15):
        axes = list(range(rank))
    names = ("max", "min") if m.dtype_of(x) == "i1" else ("sum", "sum", "mean", "mean", "max", "min", "prod")
    return [m.op(f"reduce_{m.choose(*names)}", x, axes=tuple(axes), keepdims=m.chance(0.6))]


@step(1)
def cumsum(m: Maker) -> Sequence[SSAValue]:
    x = m.pick(lambda s: len(s) >= 1, of=m.choose("float", "number"))
    return [m.op("cumsum", x, axis=m.signed_axis(x), exclusive=m.chance(0.3), reverse=m.chance(0.3))]


@step(1)
def sort(m: Maker) -> Sequence[SSAValue]:
    """Elements in order, their positions, or both."""
    x = m.pick(lambda s: len(s) >= 1, of=m.choose("float", "float", "any"))
    values, indices = m.ops("sort", x, axis=m.signed_axis(x), descending=m.chance(0.5))
    return m.choose([values], [indices], [values, indices])


@step(2)
def position(m: Maker) -> Sequence[SSAValue]:
    """Of the largest or smallest element, as an integer or a number."""
    x = m.pick(lambda s: len(s) >= 1, of=m.choose("float", "float", "number"))
    attrs = {"axis": m.signed_axis(x), "keepdims": m.chance(0.5), "select_last": m.chance(0.3)}
    y = m.op(m.choose("argmax", "argmin"), x, **attrs)
    return [y, m.op("cast", y, to=m.dtype)] if m.chance(0.5) else [y]
