"""Reductions, positions of extremes and running sums."""

from __future__ import annotations

from math import prod

from headrace.dialects.support import dtypes
from headrace.frontends.building import Value
from headrace.frontends.torch.node import Node
from headrace.frontends.torch.ops import converts
from headrace.frontends.torch.ops.elementwise import truth

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


@converts("any", "all")
def _any(n: Node) -> Value:
    x = n.cast(truth(n, n["self"]), "i32")
    return n.cast(reduce(n, "reduce_max" if n.stem == "any" else "reduce_min", x), "i1")


@converts("var.correction")
def _var(n: Node) -> Value:
    x = n["self"]
    axes = n.dims("dim", x.rank)
    count = prod(x.shape[d] for d in axes)
    mean = n.op("reduce_mean", x, axes=axes, keepdims=True)
    apart = n.op("sub", x, mean)
    total = n.op("reduce_sum", n.op("mul", apart, apart), axes=axes, keepdims=bool(n.get("keepdim", False)))
    correction = n.number("correction", 1)
    divisor = max(count - correction, 0)
    return n.op("div", total, n.scalar(divisor, x.dtype))


@converts("cumsum")
def _cumsum(n: Node) -> Value:
    x = n.cast(n["self"], n.type.dtype)
    return n.op("cumsum", x, axis=n.dim("dim", x.rank)) if x.rank else x


@converts("argmax", "argmin")
def _arg(n: Node) -> Value:
    x = n["self"]
    if not n.has("dim"):
        flat = n.reshape(x, (x.type.elements,))
        return n.done(n.op(n.stem, flat, axis=0, keepdims=False))
    keep = bool(n.get("keepdim", False))
    return n.done(n.op(n.stem, x, axis=n.dim("dim", x.rank), keepdims=keep))


@converts("max.dim", "min.dim")
def _extreme(n: Node) -> tuple[Value, Value]:
    x = n["self"]
    axis, keep = n.dim("dim", x.rank), bool(n.get("keepdim", False))
    values = n.op("reduce_max" if n.stem == "max" else "reduce_min", x, axes=(axis,), keepdims=keep)
    return values, n.cast(n.op(f"arg{n.stem}", x, axis=axis, keepdims=keep), "i64")


@converts("_softmax", "_log_softmax", "softmax", "log_softmax")
def _softmax(n: Node) -> Value:
    x = n["self"]
    x = n.cast(x, n.type.dtype) if dtypes.is_float(n.type.dtype) else x
    return n.op(n.stem.lstrip("_"), x, axis=n.dim("dim", x.rank))
