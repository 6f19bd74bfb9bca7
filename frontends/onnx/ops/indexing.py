"""Ops whose positions are data."""

from __future__ import annotations

from itertools import pairwise
from math import isfinite

from headrace.frontends.building import Refused, Value
from headrace.frontends.onnx.node import Node
from headrace.frontends.onnx.ops import converts


def _indices(n: Node, x: Value) -> Value:
    """Indices as i32 or i64."""
    return x if x.dtype in ("i32", "i64") else n.cast(x, "i64")


@converts("Gather")
def _gather(n: Node) -> Value:
    """Indices known while importing that lie in a line are a slice, which moves nothing on the chip."""
    x, indices = n[0], n[1]
    axis = n.axis(n.int("axis", 0), x.rank)
    if indices.known and indices.rank <= 1 and 0 < indices.type.elements <= 64 and not x.known:
        at = n.ints(indices, "indices")
        size = x.shape[axis]
        if any(not -size <= i < size for i in at):
            raise Refused(f"indices {list(at)} leave dim {axis} of {x.type}", code="bad-shape")
        at = [i % size for i in at]
        step = at[1] - at[0] if len(at) > 1 else 1
        if step > 0 and all(b - a == step for a, b in pairwise(at)):
            y = n.slice(x, axis, at[0], at[-1] + 1, step)
            return y if indices.rank else n.reshape(y, (*x.shape[:axis], *x.shape[axis + 1 :]))
    return n.op("gather", x, _indices(n, indices), axis=axis)


@converts("GatherElements")
def _gather_elements(n: Node) -> Value:
    return n.op("gather_elements", n[0], _indices(n, n[1]), axis=n.axis(n.int("axis", 0), n[0].rank))


@converts("GatherND")
def _gather_nd(n: Node) -> Value:
    return n.op("gather_nd", n[0], _indices(n, n[1]), batch_dims=n.int("batch_dims", 0))


@converts("ScatterElements")
def _scatter_elements(n: Node) -> Value:
    axis = n.axis(n.int("axis", 0), n[0].rank)
    return n.op("scatter_elements", n[0], _indices(n, n[1]), n[2], axis=axis, reduction=n.string("reduction", "none"))


@converts("ScatterND")
def _scatter_nd(n: Node) -> Value:
    return n.op("scatter_nd", n[0], _indices(n, n[1]), n[2], reduction=n.string("reduction", "none"))


@converts("OneHot")
def _one_hot(n: Node) -> Value:
    """values[1] where the index (which may count from the back) equals the position along the new axis."""
    indices, values = n[0], n[2]
    depth = n.one(n[1], "depth")
    depth = int(depth) if isfinite(depth) else 0
    axis = n.axis(n.int("axis", -1), indices.rank + 1)
    if values.shape != (2,) or depth < 1:
        raise Refused(f"its values are {values.type} and its depth {depth}", code="bad-node")
    i = n.cast(indices, "i64")
    i = n.op("select", n.op("less", i, n.scalar(0, "i64")), n.op("add", i, n.scalar(depth, "i64")), i)
    i = n.reshape(i, (*i.shape[:axis], 1, *i.shape[axis:]))
    shape = tuple(depth if d == axis else 1 for d in range(i.rank))
    at = n.op("iota", shape=shape, dtype="i64", axis=axis)
    off, on = (n.reshape(n.slice(values, 0, k, k + 1), ()) for k in (0, 1))
    return n.op("select", n.op("equal", i, at), on, off)
