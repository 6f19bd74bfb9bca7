"""NumPy meaning of matmul, convolution and pooling.

Float sums run in the accumulate type (never below f32, whatever it says) and are rounded once. Integer sums are exact
modulo the accumulate type.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from headrace.dialects.support import dtypes
from headrace.dialects.tensor.meaning import Array, Attrs, means
from headrace.dialects.tensor.meaning.special import is_floating, narrow, wide
from headrace.dialects.tensor.shapes.contraction import Window, accumulate_type, windows

EXACT = 2**53  # integers below this are exact in f64, whose matmul is fast


def _types(attrs: Attrs, dtype: np.dtype[Any]) -> tuple[np.dtype[Any], np.dtype[Any]]:
    """What to sum in, and the result's type."""
    accumulate = accumulate_type(attrs, dtypes.from_numpy(dtype))
    if not is_floating(dtype):
        return dtypes.to_numpy(accumulate), dtypes.to_numpy(accumulate)
    return dtypes.to_numpy("f32" if accumulate in ("f16", "bf16") else accumulate), dtype


def _largest(x: Array) -> int:
    return max(abs(int(x.max())), abs(int(x.min()))) if x.size else 0


def _product(a: Array, b: Array, accumulate: np.dtype[Any]) -> Array:
    """a @ b summed in `accumulate`; integers by way of f64 where that is exact."""
    if not is_floating(accumulate) and _largest(a) * _largest(b) * a.shape[-1] < EXACT:
        total = np.matmul(a.astype(np.float64), b.astype(np.float64))
        signed = total.astype(np.int64)
        return signed.astype(accumulate)
    return np.matmul(a.astype(accumulate, copy=False), b.astype(accumulate, copy=False))


@means("tensor.matmul")
def matmul(attrs: Attrs, a: Array, b: Array) -> Array:
    """np.matmul in the accumulate type."""
    accumulate, result = _types(attrs, a.dtype)
    return np.asarray(narrow(_product(a, b, accumulate), result))


def _pad(x: Array, found: tuple[Window, ...], value: Any) -> Array:
    """x with its spatial dims padded by `value`, behind as far as the last window reaches."""
    widths = [(w.low, max(w.high, w.reach - w.size - w.low)) for w in found]
    if not any(map(any, widths)):
        return x
    return np.pad(x, [(0, 0), (0, 0), *widths], constant_values=value)


@means("tensor.conv")
def conv(attrs: Attrs, x: Array, w: Array, bias: Array | None = None) -> Array:
    """Windows of the input as columns, then one matmul per group."""
    accumulate, result = _types(attrs, x.dtype)
    groups = attrs["groups"]
    kernel = w.shape[2:]
    found = windows(attrs, x.shape[2:], kernel)
    rank = len(kernel)
    padded = _pad(x, found, 0)
    n, outputs, out = x.shape[0], w.shape[0], tuple(window.out for window in found)
    view = sliding_window_view(padded, [window.extent for window in found], axis=tuple(range(2, 2 + rank)))
    starts = [slice(0, (window.out - 1) * window.stride + 1, window.stride) for window in found]
    taps = [slice(None, None, window.dilation) for window in found]
    view = view[(slice(None), slice(None), *starts, *taps)]
    order = (0, 1, *range(2 + rank, 2 + 2 * rank), *range(2, 2 + rank))
    columns = view.transpose(order).reshape(n, groups, w.shape[1] * prod(kernel), prod(out))
    filters = w.reshape(groups, outputs // groups, -1)
    total = _product(filters, columns, accumulate).reshape(n, outputs, *out)
    if bias is not None:
        total += bias.astype(accumulate).reshape(-1, *(1,) * rank)
    return narrow(total, result)


def _taps(x: Array, found: tuple[Window, ...]) -> list[Array]:
    """For every kernel position, the elements that all windows have there."""
    taps: list[Array] = []
    for position in np.ndindex(*(w.kernel for w in found)):
        starts = [p * w.dilation for p, w in zip(position, found, strict=True)]
        spans = [slice(s, s + (w.out - 1) * w.stride + 1, w.stride) for s, w in zip(starts, found, strict=True)]
        taps.append(x[(slice(None), slice(None), *spans)])
    return taps


@means("tensor.max_pool")
def max_pool(attrs: Attrs, x: Array) -> Array:
    """The largest of each window."""
    found = windows(attrs, x.shape[2:], attrs["kernel"])
    wider = wide(x)
    lowest = -np.inf if is_floating(wider.dtype) else np.iinfo(wider.dtype).min
    first, *others = _taps(_pad(wider, found, lowest), found)
    total = first.copy()
    for tap in others:
        np.maximum(total, tap, out=total)
    return narrow(total, x.dtype)


def divisors(found: tuple[Window, ...], include_pad: bool) -> Array:
    """The number of elements that each window of an average counts, as f64 of the result's spatial shape."""
    total = np.ones((), np.float64)
    for window in found:
        total = np.multiply.outer(total, np.array(window.counted(include_pad), np.float64))
    return total


@means("tensor.avg_pool")
def avg_pool(attrs: Attrs, x: Array) -> Array:
    """The mean of each window."""
    found = windows(attrs, x.shape[2:], attrs["kernel"])
    wider = wide(x)
    first, *others = _taps(_pad(wider, found, 0), found)
    total = first.copy()
    for tap in others:
        total += tap
    with np.errstate(all="ignore"):
        total /= divisors(found, attrs["count_include_pad"]).astype(total.dtype)
    return narrow(total, x.dtype)
