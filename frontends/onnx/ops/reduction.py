"""Reductions, positions of extremes and running sums."""

from __future__ import annotations

from headrace.frontends.building import Refused, Value
from headrace.frontends.onnx.node import Node
from headrace.frontends.onnx.ops import converts

PLAIN = {
    "ReduceSum": "reduce_sum",
    "ReduceMean": "reduce_mean",
    "ReduceMax": "reduce_max",
    "ReduceMin": "reduce_min",
    "ReduceProd": "reduce_prod",
}


def _axes(n: Node) -> tuple[int, ...] | None:
    """The reduced dims, counted from the front; None when the node reduces nothing. An input from opset 18 on (13 for
    ReduceSum), an attribute before."""
    x, operand, noop = n[0], n.get(1), n.flag("noop_with_empty_axes")
    n.ignore("keepdims")
    if operand is not None:
        axes = n.ints(operand, "axes")
    else:
        axes = n.int_list("axes", ())
    if not axes:
        return None if noop else tuple(range(x.rank))
    axes = tuple(n.axis(a, x.rank) for a in axes)
    if len(set(axes)) < len(axes):
        raise Refused(f"axes {list(axes)} name a dim twice", code="bad-node")
    return tuple(sorted(axes))


def _reduce(n: Node, name: str, x: Value, axes: tuple[int, ...] | None) -> Value:
    return x if axes is None else n.op(name, x, axes=axes, keepdims=n.flag("keepdims", True))


@converts(*PLAIN)
def _plain(n: Node) -> Value:
    return _reduce(n, PLAIN[n.op_type], n[0], _axes(n))


@converts("ReduceL1")
def _l1(n: Node) -> Value:
    x = n[0] if n[0].dtype.startswith("ui") else n.op("abs", n[0])
    return _reduce(n, "reduce_sum", x, _axes(n))


@converts("ReduceSumSquare")
def _sum_square(n: Node) -> Value:
    return _reduce(n, "reduce_sum", n.op("mul", n[0], n[0]), _axes(n))


@converts("ReduceL2")
def _l2(n: Node) -> Value:
    return n.op("sqrt", _sum_square(n))


@converts("ReduceLogSum")
def _log_sum(n: Node) -> Value:
    return n.op("log", _reduce(n, "reduce_sum", n[0], _axes(n)))


@converts("ReduceLogSumExp")
def _log_sum_exp(n: Node) -> Value:
    """The largest element is taken out first, so that exp does not overflow."""
    x, axes = n[0], _axes(n)
    if axes is None:
        return n.op("log", n.op("exp", x))
    top = n.op("reduce_max", x, axes=axes, keepdims=True)
    finite = n.op("select", n.op("is_inf", top), n.scalar(0, x.dtype), top)
    total = n.op("reduce_sum", n.op("exp", n.op("sub", x, finite)), axes=axes, keepdims=True)
    y = n.op("add", n.op("log", total), finite)
    return y if n.flag("keepdims", True) else n.reshape(y, [s for d, s in enumerate(y.shape) if d not in axes])


@converts("ArgMax", "ArgMin")
def _arg(n: Node) -> Value:
    return n.op(
        n.op_type.lower(),
        n[0],
        axis=n.axis(n.int("axis", 0), n[0].rank),
        keepdims=n.flag("keepdims", True),
        select_last=n.flag("select_last_index"),
    )


@converts("CumSum")
def _cumsum(n: Node) -> Value:
    axis = n.axis(n.one_int(n[1], "axis"), n[0].rank)
    return n.op("cumsum", n[0], axis=axis, exclusive=n.flag("exclusive"), reverse=n.flag("reverse"))


@converts("TopK")
def _top_k(n: Node) -> tuple[Value, Value]:
    """The first of the sorted ones, in order whether or not that is asked for; of equals the first."""
    x, count = n[0], n.one_int(n[1], "k")
    axis = n.axis(n.int("axis", -1), x.rank)
    if not 0 <= count <= x.shape[axis]:
        raise Refused(f"k is {count} but dim {axis} has size {x.shape[axis]}", code="bad-node")
    n.ignore("sorted")
    values, indices = n.ops("sort", x, axis=axis, descending=n.flag("largest", True))
    return n.slice(values, axis, 0, count), n.slice(indices, axis, 0, count)


@converts("Hardmax")
def _hardmax(n: Node) -> Value:
    """1 at the first largest element along the axis, 0 elsewhere."""
    x = n[0]
    axis = n.axis(n.int("axis", -1), x.rank)
    top = n.op("argmax", x, axis=axis, keepdims=True)
    shape = tuple(s if d == axis else 1 for d, s in enumerate(x.shape))
    at = n.op("iota", shape=shape, dtype="i64", axis=axis)
    return n.cast(n.op("equal", at, top), x.dtype)


@converts("LpNormalization")
def _lp_normalization(n: Node) -> Value:
    """The operand divided by its 1- or 2-norm along the axis; 0 where the norm is 0."""
    x, p = n[0], n.int("p", 2)
    axes = (n.axis(n.int("axis", -1), x.rank),)
    if p == 1:
        norm = n.op("reduce_sum", n.op("abs", x), axes=axes, keepdims=True)
    elif p == 2:
        norm = n.op("sqrt", n.op("reduce_sum", n.op("mul", x, x), axes=axes, keepdims=True))
    else:
        raise Refused(f"p is {p} but must be 1 or 2", code="bad-node")
    zero = n.scalar(0, x.dtype)
    return n.op("select", n.op("equal", norm, zero), zero, n.op("div", x, norm))
