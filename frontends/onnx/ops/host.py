"""Constants and shapes: what an importer knows, so that other ops' shapes, axes and indices can be computed from it."""

from __future__ import annotations

from math import ceil, isfinite

from headrace.dialects.support import dtypes
from headrace.dialects.tensor.shapes import TT
from headrace.frontends.building import HOST_LIMIT, Refused, Value
from headrace.frontends.onnx.node import Node
from headrace.frontends.onnx.ops import converts


@converts("Constant")
def _constant(n: Node) -> Value:
    import numpy as np

    name = n.outputs[0]
    if n.has("value"):
        ref = n.tensor("value")
        return Value(name, ref.type, n.location, ref=ref)
    kinds = {"value_float": ("float", "f32"), "value_floats": ("float_list", "f32")}
    kinds |= {"value_int": ("int", "i64"), "value_ints": ("int_list", "i64")}
    for attribute, (kind, dtype) in kinds.items():
        if n.has(attribute):
            array = np.array(getattr(n, kind)(attribute), dtypes.to_numpy(dtype))
            return Value(name, TT(array.shape, dtype), n.location, array=array)
    kind = next((k for k in ("value_string", "value_strings", "sparse_value") if n.has(k)), "no value")
    raise Refused(f"it holds {kind}, which has no tensor type of Headrace", code="unsupported-dtype")


@converts("Shape")
def _shape(n: Node) -> Value:
    rank = n[0].rank
    start, end = n.int("start", 0), n.int("end", rank)
    low, high = (min(max(v + rank if v < 0 else v, 0), rank) for v in (start, end))
    return n.int64s(n[0].shape[low:high])


@converts("Size")
def _size(n: Node) -> Value:
    return n.scalar(n[0].type.elements, "i64")


@converts("ConstantOfShape")
def _constant_of_shape(n: Node) -> Value:
    shape = n.ints(n[0], "shape")
    if any(s < 0 for s in shape):
        raise Refused(f"shape {list(shape)} has a negative size", code="bad-shape")
    if not n.has("value"):
        return n.broadcast(n.scalar(0.0, "f32"), shape)
    ref = n.tensor("value")
    if ref.type.elements != 1:
        raise Refused(f"its value is {ref.type}, not one element", code="bad-node")
    value = n.reshape(Value(f"{n.outputs[0]}.value", ref.type, n.location, ref=ref), ())
    return n.broadcast(value, shape)


@converts("Range")
def _range(n: Node) -> Value:
    """start + delta · (0, 1, 2 …); how many there are must be known."""
    start, limit, delta = (n.one(n[i], what) for i, what in enumerate(("start", "limit", "delta")))
    dtype = n[0].dtype
    if delta == 0 or not all(isfinite(v) for v in (start, limit, delta)):
        raise Refused(f"it counts from {start} to {limit} by {delta}", code="bad-node")
    count = max(ceil((limit - start) / delta), 0)
    if count <= HOST_LIMIT:
        import numpy as np

        return n.constant(np.asarray(start + delta * np.arange(count), dtypes.to_numpy(dtype)))
    steps = n.op("iota", shape=(count,), dtype=dtype, axis=0)
    return n.op("add", n.op("mul", steps, n.scalar(delta, dtype)), n.scalar(start, dtype))


@converts("EyeLike")
def _eye_like(n: Node) -> Value:
    x, k = n[0], n.int("k", 0)
    if x.rank != 2:
        raise Refused(f"{x.type} is not a matrix", code="bad-node")
    dtype = n.dtype(n.int("dtype")) if n.has("dtype") else x.dtype
    row = n.op("add", n.op("iota", shape=(x.shape[0], 1), dtype="i64", axis=0), n.scalar(k, "i64"))
    return n.cast(n.op("equal", row, n.op("iota", shape=(1, x.shape[1]), dtype="i64", axis=1)), dtype)
