"""NumPy meaning of ops that move elements to or from positions held in a tensor. An index may count from the back; one
that is out of range is a `CompileError` that names it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from headrace.dialects.support.diagnostics import CompileError
from headrace.dialects.support.dtypes import to_numpy
from headrace.dialects.tensor.meaning import Array, Attrs, means


def _in_range(indices: Array, size: int, dim: int) -> Array:
    """`indices` counted from the front, as positions of a dim of `size`."""
    bad = (indices < -size) | (indices >= size)
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        raise CompileError(
            "index-out-of-range",
            f"index {int(indices[where])} at position {list(where)} of the indices is out of range"
            f" for dim {dim} of size {size}",
            fix=f"indices lie in {-size}..{size - 1}",
        )
    return np.where(indices < 0, indices + size, indices)


@means("tensor.gather")
def _(attrs: Attrs, data: Array, indices: Array) -> Array:
    axis = attrs["axis"] % data.ndim
    try:
        return np.asarray(np.take(data, indices, axis=axis))
    except IndexError:
        _in_range(indices, data.shape[axis], axis)
        raise


def _grid(shape: Sequence[int], skip: int | None = None) -> list[Any]:
    """Open coordinates of every dim of `shape`, but `skip`."""
    rank = len(shape)
    return [
        None if d == skip else np.arange(n).reshape((1,) * d + (n,) + (1,) * (rank - 1 - d))
        for d, n in enumerate(shape)
    ]


@means("tensor.gather_elements")
def _(attrs: Attrs, data: Array, indices: Array) -> Array:
    axis = attrs["axis"] % data.ndim
    at = _grid(indices.shape, axis)
    at[axis] = _in_range(indices, data.shape[axis], axis)
    return data[tuple(at)]


def _coordinates(data: Array, indices: Array, batch: int) -> tuple[Array, ...]:
    k = indices.shape[-1]
    return tuple(_in_range(indices[..., i], data.shape[batch + i], batch + i) for i in range(k))


@means("tensor.gather_nd")
def _(attrs: Attrs, data: Array, indices: Array) -> Array:
    batch = attrs["batch_dims"]
    lead = _grid(indices.shape[:-1])[:batch]
    return np.asarray(data[(*lead, *_coordinates(data, indices, batch))])


APPLY: dict[str, Callable[..., Any]] = {
    "add": np.add.at,
    "mul": np.multiply.at,
    "min": np.minimum.at,
    "max": np.maximum.at,
}


def _scatter(reduction: str, data: Array, at: tuple[Any, ...], updates: Array) -> Array:
    result = data.copy()
    if reduction == "none":
        result[at] = updates
    else:
        APPLY[reduction](result, at, updates)
    return result


@means("tensor.scatter_elements")
def _(attrs: Attrs, data: Array, indices: Array, updates: Array) -> Array:
    axis = attrs["axis"] % data.ndim
    at = _grid(indices.shape, axis)
    at[axis] = _in_range(indices, data.shape[axis], axis)
    return _scatter(attrs["reduction"], data, tuple(at), updates)


@means("tensor.scatter_nd")
def _(attrs: Attrs, data: Array, indices: Array, updates: Array) -> Array:
    return _scatter(attrs["reduction"], data, _coordinates(data, indices, 0), updates)


@means("tensor.iota")
def _(attrs: Attrs) -> Array:
    shape: tuple[int, ...] = tuple(attrs["shape"])
    axis: int = attrs["axis"] % len(shape)
    line: Array = np.arange(int(shape[axis])).astype(to_numpy(attrs["dtype"]))
    return np.broadcast_to(line.reshape((-1,) + (1,) * (len(shape) - 1 - axis)), shape)
