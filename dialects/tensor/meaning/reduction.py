"""NumPy meaning of reductions."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from headrace.dialects.support.dtypes import to_numpy
from headrace.dialects.tensor.meaning import Array, Attrs, means

NARROW = (to_numpy("f16"), to_numpy("bf16"))


def _accumulator(x: Array) -> np.dtype[Any]:
    """Narrow floats accumulate in f32; the result is rounded once."""
    return np.dtype(np.float32) if x.dtype in NARROW else x.dtype


def _total(reduce: Callable[..., Any], attrs: Attrs, x: Array, dtype: np.dtype[Any]) -> Array:
    with np.errstate(all="ignore"):  # an overflow gives an infinity, or wraps
        return np.asarray(reduce(x, axis=attrs["axes"], dtype=dtype, keepdims=attrs["keepdims"]))


def _rounded(total: Array, x: Array) -> Array:
    with np.errstate(all="ignore"):
        return total.astype(x.dtype, copy=False)


@means("tensor.reduce_sum")
def _(attrs: Attrs, x: Array) -> Array:
    return _rounded(_total(np.add.reduce, attrs, x, _accumulator(x)), x)


@means("tensor.reduce_mean")
def _(attrs: Attrs, x: Array) -> Array:
    count = prod(x.shape[d] for d in attrs["axes"])
    if x.dtype.kind == "u":
        return _rounded(_total(np.add.reduce, attrs, x, np.dtype(np.uint64)) // np.uint64(count), x)
    if x.dtype.kind == "i":
        total = _total(np.add.reduce, attrs, x, np.dtype(np.int64))
        return _rounded(np.sign(total) * (np.abs(total) // count), x)
    total = _total(np.add.reduce, attrs, x, _accumulator(x))
    with np.errstate(all="ignore"):
        return _rounded(total / total.dtype.type(count), x)


@means("tensor.reduce_prod")
def _(attrs: Attrs, x: Array) -> Array:
    return _rounded(_total(np.multiply.reduce, attrs, x, _accumulator(x)), x)


@means("tensor.reduce_max")
def _(attrs: Attrs, x: Array) -> Array:
    return np.asarray(np.maximum.reduce(x, axis=attrs["axes"], keepdims=attrs["keepdims"]))


@means("tensor.reduce_min")
def _(attrs: Attrs, x: Array) -> Array:
    return np.asarray(np.minimum.reduce(x, axis=attrs["axes"], keepdims=attrs["keepdims"]))


def _arg(find: Any, attrs: Attrs, x: Array) -> Array:
    axis, keepdims = attrs["axis"], attrs["keepdims"]
    if not attrs["select_last"]:
        return np.asarray(find(x, axis=axis, keepdims=keepdims), dtype=np.int64)
    found = find(np.flip(x, axis), axis=axis, keepdims=keepdims)
    return np.asarray(x.shape[axis] - 1 - found, dtype=np.int64)


@means("tensor.argmax")
def _(attrs: Attrs, x: Array) -> Array:
    return _arg(np.argmax, attrs, x)


@means("tensor.argmin")
def _(attrs: Attrs, x: Array) -> Array:
    return _arg(np.argmin, attrs, x)


@means("tensor.cumsum")
def _(attrs: Attrs, x: Array) -> Array:
    axis = attrs["axis"] % x.ndim
    along = np.flip(x, axis) if attrs["reverse"] else x
    wide = _accumulator(x)
    with np.errstate(all="ignore"):
        total = np.add.accumulate(along, axis=axis, dtype=wide)
    if attrs["exclusive"]:
        head, tail = [slice(None)] * x.ndim, [slice(None)] * x.ndim
        head[axis], tail[axis] = slice(0, -1), slice(1, None)
        shifted = np.zeros_like(total)
        shifted[tuple(tail)] = total[tuple(head)]
        total = shifted
    if attrs["reverse"]:
        total = np.flip(total, axis)
    return _rounded(total, x)


@means("tensor.sort")
def _(attrs: Attrs, x: Array) -> tuple[Array, Array]:
    axis = attrs["axis"] % x.ndim
    key = x.astype(np.float32) if x.dtype.kind == "V" else x  # NumPy does not order narrow types itself
    if attrs["descending"]:  # from the back, so that equal elements keep their order
        order = x.shape[axis] - 1 - np.flip(np.argsort(np.flip(key, axis), axis=axis, kind="stable"), axis)
    else:
        order = np.argsort(key, axis=axis, kind="stable")
    order = np.asarray(order, np.int64)
    return np.take_along_axis(x, order, axis), order
