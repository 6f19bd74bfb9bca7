"""Reductions, positions of extremes, norms and running combinations."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from math import prod

from headrace.frontends.building import Value
from headrace.frontends.torch.node import Node, is_float
from headrace.frontends.torch.ops import converts
from headrace.frontends.torch.ops.elementwise import NARROW, countable, truth
from headrace.frontends.torch.ops.functions import log1p

PLAIN = {"sum": "reduce_sum", "mean": "reduce_mean", "amax": "reduce_max", "amin": "reduce_min", "prod": "reduce_prod"}


def reduce(n: Node, name: str, x: Value) -> Value:
    """A reduction along the dims of argument `dim`; one of no dims, of a scalar, is the scalar."""
    axes = n.dims("dim", x.rank)
    if not x.rank:
        return x
    return n.op(name, x, axes=axes, keepdims=bool(n.get("keepdim", False)))


@converts(*PLAIN)
def _plain(n: Node) -> Value:
    return reduce(n, PLAIN[n.stem], n.cast(n["self"], n.type.dtype))


@converts("max.default", "min.default")
def _overall(n: Node) -> Value:
    return reduce(n, f"reduce_{n.stem}", n["self"])


@converts("any", "all")
def _any(n: Node) -> Value:
    """Of nothing it is false (any) or true (all); along an empty list of dims it is each element's own truth."""
    x = truth(n, n["self"])
    if n.has("dim") and n.get("dim") == []:
        return n.cast(x, n.type.dtype)
    if not x.type.elements:
        return n.filled(n.stem == "all", n.type)
    return n.cast(reduce(n, "reduce_max" if n.stem == "any" else "reduce_min", x), n.type.dtype)


# Moments and norms


def _along(n: Node, x: Value) -> Value:
    """A scalar as a tensor of one element: an op that goes along a dim needs one."""
    return n.reshape(x, (1,)) if not x.rank else x


def _variance(n: Node) -> tuple[Value, Value]:
    """The variance along the dims, and the mean; f16 and bf16 in f32."""
    x = _along(n, n.cast(n["self"], "f32") if n["self"].dtype in NARROW else n["self"])
    axes = n.dims("dim", x.rank)
    count = prod(x.shape[d] for d in axes)
    mean = reduce(n, "reduce_mean", x)
    center = n.reshape(mean, tuple(1 if d in axes else size for d, size in enumerate(x.shape)))
    apart = n.op("sub", x, center)
    total = reduce(n, "reduce_sum", n.op("mul", apart, apart))
    correction = n.number("correction", int(n.get("unbiased", True)))
    return n.op("div", total, float(max(count - correction, 0))), mean


@converts("var")
def _var(n: Node) -> Value:
    return n.done(_variance(n)[0])


@converts("var_mean")
def _var_mean(n: Node) -> tuple[Value, Value]:
    variance, mean = _variance(n)
    return n.done(variance), n.done(mean, 1)


Reduce = Callable[[Node, str, Value], Value]


def norm(n: Node, x: Value, order: float, reduce: Reduce = reduce) -> Value:
    """The vector norm of an order along the dims that `reduce` reduces."""
    if order == 0:
        return reduce(n, "reduce_sum", n.cast(truth(n, x), x.dtype))
    size = n.op("abs", x)
    if math.isinf(order):
        return reduce(n, "reduce_max" if order > 0 else "reduce_min", size)
    if order == 1:
        return reduce(n, "reduce_sum", size)
    if order == 2:
        return n.op("sqrt", reduce(n, "reduce_sum", n.op("mul", x, x)))
    return n.op("pow", reduce(n, "reduce_sum", n.op("pow", size, order)), 1 / order)


@converts("linalg_vector_norm")
def _vector_norm(n: Node) -> Value:
    x = n.cast(n["self"], n.type.dtype)
    x = n.cast(x, "f32" if x.dtype in NARROW else x.dtype)
    return n.cast(norm(n, x, float(n.number("ord", 2))), n.type.dtype)


@converts("dist")
def _dist(n: Node) -> Value:
    """The norm of the difference."""
    dtype = n.type.dtype
    x = n.op("sub", n.tensor("self", dtype), n.tensor("other", dtype))
    x = n.cast(x, "f32" if dtype in NARROW else dtype)
    return n.cast(norm(n, x, float(n.number("p", 2))), dtype)


PRODUCTS = 25
"""Rows from which PyTorch computes Euclidean distances by a product."""


@converts("_cdist_forward")
def _cdist(n: Node) -> Value:
    """The norm of each row of one matrix less each of another; of many rows |a|² + |b|² - 2ab, as in PyTorch."""
    a, b, order, mode = n["x1"], n["x2"], float(n.number("p")), n.number("compute_mode", 0)
    if not n.type.elements or not a.shape[-1]:
        return n.filled(0, n.type)
    rows = max(a.shape[-2], b.shape[-2])
    if order == 2 and (mode == 1 or (mode == 0 and rows > PRODUCTS)):
        squares = [
            n.op("reduce_sum", n.op("mul", x, x), axes=(x.rank - 1,), keepdims=keep)
            for x, keep in ((a, True), (b, False))
        ]
        squares[1] = n.reshape(squares[1], (*b.shape[:-2], 1, b.shape[-2]))
        swapped = n.transpose(b, (*range(b.rank - 2), b.rank - 1, b.rank - 2))
        y = n.op("add", n.op("mul", n.op("matmul", a, swapped), -2.0), n.op("add", *squares))
        return n.done(n.op("sqrt", n.op("max", y, 0.0)))
    a = n.reshape(a, (*a.shape[:-1], 1, a.shape[-1]))
    b = n.reshape(b, (*b.shape[:-2], 1, *b.shape[-2:]))
    return n.done(norm(n, n.op("sub", a, b), order, _last))


@converts("_pdist_forward")
def _pdist(n: Node) -> Value:
    """The norm of each row less each that follows."""
    import numpy as np

    x = n["self"]
    if not n.type.elements or not x.shape[-1]:
        return n.filled(0, n.type)
    first, second = (n.op("gather", x, n.constant(at), axis=0) for at in np.triu_indices(x.shape[0], 1))
    return n.done(norm(n, n.op("sub", first, second), float(n.number("p", 2)), _last))


def _last(n: Node, name: str, x: Value) -> Value:
    return n.op(name, x, axes=(x.rank - 1,), keepdims=False)


# Positions


@converts("argmax", "argmin")
def _arg(n: Node) -> Value:
    x = countable(n, n["self"])
    x = _along(n, x) if n.has("dim") else n.reshape(x, (x.type.elements,))
    return n.done(n.op(n.stem, x, axis=n.dim("dim", x.rank, 0), keepdims=False))


@converts("max.dim", "min.dim")
def _extreme(n: Node) -> tuple[Value, Value]:
    x = _along(n, countable(n, n["self"]))
    axis = n.dim("dim", x.rank)
    values = n.op(f"reduce_{n.stem}", x, axes=(axis,), keepdims=False)
    return n.done(values), n.done(n.op(f"arg{n.stem}", x, axis=axis, keepdims=False), 1)


@converts("_softmax", "_log_softmax")
def _softmax(n: Node) -> Value:
    x = _along(n, n.cast(n["self"], n.type.dtype))
    return n.done(n.op(n.stem.lstrip("_"), x, axis=n.dim("dim", x.rank)) if x.type.elements else x)


# Running combinations


@converts("cumsum")
def _cumsum(n: Node) -> Value:
    x = _along(n, n.cast(n["self"], n.type.dtype))
    return n.done(n.op("cumsum", x, axis=n.dim("dim", x.rank)))


Parts = tuple[Value, ...]


def scan(n: Node, parts: Sequence[Value], axis: int, combine: Callable[[Parts, Parts], Parts]) -> Parts:
    """Every element with all before it along `axis`, by an associative combination of an earlier and a later part:
    the reach doubles with each step."""
    size, reach, found = parts[0].shape[axis], 1, tuple(parts)
    while reach < size:
        heads = [n.slice(x, axis, 0, reach) for x in found]
        before = tuple(n.slice(x, axis, 0, size - reach) for x in found)
        after = tuple(n.slice(x, axis, reach, size) for x in found)
        combined = combine(before, after)
        found = tuple(n.op("concat", head, x, axis=axis) for head, x in zip(heads, combined, strict=True))
        reach *= 2
    return found


@converts("cumprod")
def _cumprod(n: Node) -> Value:
    dtype = n.type.dtype
    x = _along(n, n.cast(n["self"], dtype))
    x = n.cast(x, "f32" if dtype in NARROW else dtype)
    (found,) = scan(n, [x], n.dim("dim", x.rank), lambda a, b: (n.op("mul", a[0], b[0]),))
    return n.done(found)


@converts("logcumsumexp")
def _logcumsumexp(n: Node) -> Value:
    """log(exp(a) + exp(b)) = high + log1p(exp(low - high)); two equal infinities are the sum."""
    dtype = n.type.dtype
    x = _along(n, n["self"])
    x = n.cast(x, "f32" if dtype in NARROW else dtype)

    def add(a: Parts, b: Parts) -> Parts:
        high, low = n.op("max", a[0], b[0]), n.op("min", a[0], b[0])
        both = n.op("and", n.op("is_inf", high), n.op("equal", high, low))
        apart = n.op("select", both, n.scalar(-math.inf, x.dtype), n.op("sub", low, high))
        return (n.op("add", high, log1p(n, n.op("exp", apart))),)

    (found,) = scan(n, [x], n.dim("dim", x.rank), add)
    return n.done(found)


@converts("cummax", "cummin")
def _running_extreme(n: Node) -> tuple[Value, Value]:
    """The extreme so far and where it is: the last of equals, the last NaN."""
    x = _along(n, n["self"])
    axis = n.dim("dim", x.rank)
    wins = "greater_equal" if n.stem == "cummax" else "less_equal"

    def better(a: Parts, b: Parts) -> Parts:
        later = n.op(wins, countable(n, b[0]), countable(n, a[0]))
        if is_float(x):
            later = n.op("and", later, n.op("not", n.op("is_nan", a[0])))
            later = n.op("or", later, n.op("is_nan", b[0]))
        return tuple(n.op("select", later, y, z) for y, z in zip(b, a, strict=True))

    places = n.op("iota", shape=x.shape, dtype="i64", axis=axis)
    values, found = scan(n, [x, places], axis, better)
    return n.done(values), n.done(found, 1)
