"""Orders: sorted elements, their positions, and counts by comparison."""

from __future__ import annotations

from headrace.dialects.support import dtypes
from headrace.dialects.tensor.shapes import TT
from headrace.frontends.building import Refused, Value
from headrace.frontends.torch.node import Node
from headrace.frontends.torch.ops import converts


def _sorted(n: Node, x: Value, axis: int, descending: bool = False) -> tuple[Value, Value]:
    values, indices = n.ops("sort", x, axis=axis, descending=descending)
    return values, indices


@converts("sort")
def _sort(n: Node) -> tuple[Value, Value]:
    """Always stable."""
    x = n["self"]
    if not x.rank:
        return x, n.scalar(0, "i64")
    return _sorted(n, x, n.dim("dim", x.rank, -1), bool(n.get("descending")))


@converts("topk")
def _topk(n: Node) -> tuple[Value, Value]:
    """The first of the sorted ones, in order whether or not that is asked for."""
    x, count = n["self"], n.number("k")
    if not x.rank:
        return (x, n.scalar(0, "i64")) if count else (n.filled(0, n.type), n.filled(0, TT(n.type.shape, "i64")))
    axis = n.dim("dim", x.rank, -1)
    values, indices = _sorted(n, x, axis, bool(n.get("largest", True)))
    return n.slice(values, axis, 0, count), n.slice(indices, axis, 0, count)


@converts("kthvalue")
def _kthvalue(n: Node) -> tuple[Value, Value]:
    x = n["self"]
    if not x.rank:
        return x, n.scalar(0, "i64")
    axis, k = n.dim("dim", x.rank, -1), n.number("k")
    values, indices = _sorted(n, x, axis)
    return n.done(n.slice(values, axis, k - 1, k)), n.done(n.slice(indices, axis, k - 1, k), 1)


@converts("median", "nanmedian")
def _median(n: Node) -> Value | tuple[Value, Value]:
    """The lower one of two in the middle. A NaN is the median, or (`nanmedian`) counts for nothing."""
    x = n["self"]
    whole = not n.has("dim")
    x = n.reshape(x, (x.type.elements,)) if whole or not x.rank else x
    axis = 0 if whole else n.dim("dim", x.rank)
    size = x.shape[axis]
    if not size:
        return n.filled(float("nan"), n.type)
    values, indices = _sorted(n, x, axis)
    if not dtypes.is_float(x.dtype):
        found = [n.slice(y, axis, (size - 1) // 2, (size + 1) // 2) for y in (values, indices)]
    else:
        unknown = n.cast(n.op("is_nan", x), "i64")
        numbers = n.op("sub", n.scalar(size, "i64"), n.op("reduce_sum", unknown, axes=(axis,), keepdims=True))
        last = n.op("max", n.op("sub", numbers, n.scalar(1, "i64")), n.scalar(0, "i64"))
        at = n.op("div", last, n.scalar(2, "i64"))
        if n.stem == "median":  # the first NaN is behind the numbers
            at = n.op("select", n.op("less", numbers, n.scalar(size, "i64")), numbers, at)
        found = [n.op("gather_elements", y, at, axis=axis) for y in (values, indices)]
    return n.done(found[0]) if whole else (n.done(found[0]), n.done(found[1], 1))


@converts("histc")
def _histc(n: Node) -> Value:
    """How many elements lie in each of equal bins, the last of which has its upper end too."""
    x, bins, low, high = n["self"], n.number("bins", 100), n.number("min", 0), n.number("max", 0)
    x = n.reshape(x, (x.type.elements,))
    if not x.type.elements:
        return n.filled(0, n.type)
    least, most = n.scalar(low, x.dtype), n.scalar(high, x.dtype)
    if low == high:
        if low or high:
            raise Refused(f"its bins are all at {low}", "give min and max that differ")
        least, most = (n.op(f"reduce_{end}", x, axes=(0,), keepdims=False) for end in ("min", "max"))
        same = n.op("equal", least, most)
        one = n.scalar(1, x.dtype)
        least, most = (n.op("select", same, n.op(way, end, one), end) for way, end in (("sub", least), ("add", most)))
    if not dtypes.is_float(x.dtype):
        raise Refused("PyTorch counts integers in another way on each device", "cast to float before torch.histc")
    at = n.op("div", n.op("mul", n.op("sub", x, least), n.scalar(bins, x.dtype)), n.op("sub", most, least))
    at = n.op("min", n.op("floor", at), n.scalar(bins - 1, x.dtype))
    inside = n.op("and", n.op("greater_equal", x, least), n.op("less_equal", x, most))
    bin = n.op("select", inside, at, n.scalar(-1, x.dtype))
    numbers = n.op("iota", shape=(bins, 1), dtype=x.dtype, axis=0)
    counted = n.op("equal", numbers, n.reshape(bin, (1, x.type.elements)))
    return n.done(n.op("reduce_sum", n.cast(counted, "i64"), axes=(1,), keepdims=False))


@converts("searchsorted", "bucketize")
def _searchsorted(n: Node) -> Value:
    """How many of the sorted ones are below a value, or (`right`) not above it; a NaN is above all."""
    line = n["sorted_sequence" if n.stem == "searchsorted" else "boundaries"]
    value = n.get("self")
    right = bool(n.get("right")) or n.get("side") == "right"
    kind = n.common("self")
    value = n.cast(value, kind) if isinstance(value, Value) else n.scalar(value, kind)
    if isinstance(n.get("sorter"), Value):
        line = n.op("gather_elements", line, n["sorter"], axis=line.rank - 1)
    wide = value.dtype if dtypes.is_float(value.dtype) and not dtypes.is_float(line.dtype) else line.dtype
    line, value = n.cast(line, wide), n.cast(value, wide)
    if not line.type.elements or not value.type.elements:
        return n.filled(0, n.type)
    if line.rank > 1:
        line = n.reshape(line, (*line.shape[:-1], 1, line.shape[-1]))
    below = n.op("less_equal" if right else "less", line, n.reshape(value, (*value.shape, 1)))
    if dtypes.is_float(wide):
        below = n.op("or", below, n.broadcast(n.op("is_nan", n.reshape(value, (*value.shape, 1))), below.shape))
    return n.done(n.op("reduce_sum", n.cast(below, "i64"), axes=(below.rank - 1,), keepdims=False))
