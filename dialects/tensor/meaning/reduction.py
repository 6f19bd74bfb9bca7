"""NumPy meaning of reductions."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from headrace.dialects.support.dtypes import to_numpy
from headrace.dialects.tensor.meaning import Array, means

NARROW = (to_numpy("f16"), to_numpy("bf16"))


def _accumulator(x: Array) -> np.dtype[Any]:
    """Narrow floats accumulate in f32; the result is rounded once."""
    return np.dtype(np.float32) if x.dtype in NARROW else x.dtype


@means("tensor.reduce_sum")
def _(attrs: Mapping[str, Any], x: Array) -> Array:
    wide = _accumulator(x)
    total = np.add.reduce(x, axis=attrs["axes"], dtype=wide, keepdims=attrs["keepdims"])
    return np.asarray(total).astype(x.dtype, copy=False)


@means("tensor.reduce_mean")
def _(attrs: Mapping[str, Any], x: Array) -> Array:
    axes = attrs["axes"]
    count = prod(x.shape[d] for d in axes)
    if x.dtype.kind in "iu":  # integers: the exact sum, divided with truncation towards zero
        total = np.asarray(np.add.reduce(x, axis=axes, dtype=x.dtype, keepdims=attrs["keepdims"]))
        size = x.dtype.type(count)
        return total // size if x.dtype.kind == "u" else np.sign(total) * (np.abs(total) // size)
    total = np.asarray(np.add.reduce(x, axis=axes, dtype=_accumulator(x), keepdims=attrs["keepdims"]))
    return (total / total.dtype.type(count)).astype(x.dtype, copy=False)


@means("tensor.reduce_prod")
def _(attrs: Mapping[str, Any], x: Array) -> Array:
    wide = _accumulator(x)
    total = np.multiply.reduce(x, axis=attrs["axes"], dtype=wide, keepdims=attrs["keepdims"])
    return np.asarray(total).astype(x.dtype, copy=False)


@means("tensor.reduce_max")
def _(attrs: Mapping[str, Any], x: Array) -> Array:
    return np.asarray(np.maximum.reduce(x, axis=attrs["axes"], keepdims=attrs["keepdims"]))


@means("tensor.reduce_min")
def _(attrs: Mapping[str, Any], x: Array) -> Array:
    return np.asarray(np.minimum.reduce(x, axis=attrs["axes"], keepdims=attrs["keepdims"]))


def _arg(find: Any, attrs: Mapping[str, Any], x: Array) -> Array:
    axis, keepdims = attrs["axis"], attrs["keepdims"]
    if not attrs["select_last"]:
        return np.asarray(find(x, axis=axis, keepdims=keepdims), dtype=np.int64)
    found = find(np.flip(x, axis), axis=axis, keepdims=keepdims)
    return np.asarray(x.shape[axis] - 1 - found, dtype=np.int64)


@means("tensor.argmax")
def _(attrs: Mapping[str, Any], x: Array) -> Array:
    return _arg(np.argmax, attrs, x)


@means("tensor.argmin")
def _(attrs: Mapping[str, Any], x: Array) -> Array:
    return _arg(np.argmin, attrs, x)


@means("tensor.cumsum")
def _(attrs: Mapping[str, Any], x: Array) -> Array:
    axis = attrs["axis"] % x.ndim
    along = np.flip(x, axis) if attrs["reverse"] else x
    wide = _accumulator(x)
    total = np.add.accumulate(along, axis=axis, dtype=wide)
    if attrs["exclusive"]:
        head, tail = [slice(None)] * x.ndim, [slice(None)] * x.ndim
        head[axis], tail[axis] = slice(0, -1), slice(1, None)
        shifted = np.zeros_like(total)
        shifted[tuple(tail)] = total[tuple(head)]
        total = shifted
    if attrs["reverse"]:
        total = np.flip(total, axis)
    return total.astype(x.dtype, copy=False)
