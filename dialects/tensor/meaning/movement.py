"""NumPy meaning of ops that only move elements. Results are views where NumPy can make one."""

from __future__ import annotations

import numpy as np

from headrace.dialects.tensor.meaning import Array, Attrs, means


@means("tensor.reshape")
def _(attrs: Attrs, x: Array) -> Array:
    return x.reshape(attrs["shape"])


@means("tensor.transpose")
def _(attrs: Attrs, x: Array) -> Array:
    return x.transpose(attrs["perm"])


@means("tensor.broadcast")
def _(attrs: Attrs, x: Array) -> Array:
    return np.broadcast_to(x, attrs["shape"])


@means("tensor.slice")
def _(attrs: Attrs, x: Array) -> Array:
    cut = tuple(
        slice(start, None if stop < 0 else stop, step)
        for start, stop, step in zip(attrs["starts"], attrs["stops"], attrs["steps"], strict=True)
    )
    return x[cut]


@means("tensor.concat")
def _(attrs: Attrs, *operands: Array) -> Array:
    return np.concatenate(operands, axis=attrs["axis"])


@means("tensor.split")
def _(attrs: Attrs, x: Array) -> tuple[Array, ...]:
    ends = np.cumsum(attrs["sizes"])[:-1]
    return tuple(np.split(x, ends, axis=attrs["axis"]))


@means("tensor.pad")
def _(attrs: Attrs, x: Array) -> Array:
    width = list(zip(attrs["lo"], attrs["hi"], strict=True))
    mode = attrs["mode"]
    if mode != "constant" and width:
        return np.pad(x, width, mode=mode)
    shape = tuple(lo + n + hi for n, (lo, hi) in zip(x.shape, width, strict=True))
    result = np.full(shape, x.dtype.type(attrs["value"]), dtype=x.dtype)
    result[tuple(slice(lo, lo + n) for n, (lo, _) in zip(x.shape, width, strict=True))] = x
    return result
