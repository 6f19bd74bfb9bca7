"""Reductions: sums of floats as products with a constant vector where the memory allows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from headrace.runtime.kernels import blas
from headrace.runtime.kernels.calls import Call, Step, binds, contiguous_rows, is_float, merge_dims, scalar
from headrace.runtime.kernels.scratch import Array


def _full(count: int, value: float, dtype: np.dtype[Any]) -> Array:
    return np.full(count, value, dtype)


def column(count: int, value: float, dtype: np.dtype[Any], packs: blas.Packs) -> Array:
    """A constant vector [count]."""
    return packs.constant(("column", count, value, dtype.str), lambda: _full(count, value, dtype))


def kept(call: Call, axes: tuple[int, ...]) -> Array:
    """The output with the reduced dims as dims of size 1."""
    out = call.output
    if out.ndim == call.inputs[0].ndim:
        return out
    return np.expand_dims(out, tuple(a % call.inputs[0].ndim for a in axes))


def row_sums(x: Array, out: Array, weight: float, packs: blas.Packs) -> Step | None:
    """out[..., 0] = weight · Σ x over the last dim, [..., n] → [..., 1]; None when BLAS cannot read x."""
    if x.dtype.kind != "f" or not contiguous_rows(x) or x.ndim < 2:
        return None
    ones = column(x.shape[-1], weight, x.dtype, packs)
    return np.matmul, (x, ones, out[..., 0])


def _sum(call: Call, mean: bool) -> list[Step] | None:
    x = call.inputs[0]
    axes = tuple(a % x.ndim for a in call.attrs["axes"])
    if not is_float(x, call.output) or x.size == 0:
        return None
    out = kept(call, axes)
    weight = 1.0
    for a in axes:
        weight /= x.shape[a] if mean else 1
    if not axes:
        return [(np.copyto, (out, x))]
    order = [d for d in range(x.ndim) if d not in axes]
    reduced = _by_stride(axes, x)
    view = x.transpose(*order, *reduced)
    flat = merge_dims(view, len(order), x.ndim)
    results = out.transpose(*order, *axes)
    results = _drop(results, len(order))
    if flat is not None:
        columns = column(flat.shape[-1], weight, x.dtype, call.packs)
        if contiguous_rows(flat) and flat.shape[-1] > 1:
            rows = merge_dims(flat, 0, flat.ndim - 1)
            flat_out = merge_dims(results, 0, results.ndim) if results.ndim else results[None]
            if rows is not None and rows.ndim == 2 and flat_out is not None:
                return [(np.matmul, (rows, columns, flat_out))]
            return [(np.matmul, (flat, columns, results))] if flat.ndim > 1 else [(np.vecdot, (flat, columns, results))]
        # the dims that stay lie inside those that go: a row vector times the matrix
        inner = merge_dims(flat.swapaxes(-1, -2), flat.ndim - 1, flat.ndim) if flat.ndim >= 2 else None
        if inner is not None and contiguous_rows(inner) and results.ndim and contiguous_rows(results):
            return [(np.matmul, (columns, inner, results))]
    steps: list[Step] = [(np.add.reduce, (x, axes, None, out, True))]
    if mean:
        steps.append((np.multiply, (out, scalar(weight, out.dtype), out)))
    return steps


def _by_stride(axes: tuple[int, ...], x: Array) -> list[int]:
    """Dims ordered as they lie in memory, outermost first."""
    return sorted(axes, key=lambda d: -abs(x.strides[d]))


def _drop(x: Array, keep: int) -> Array:
    """Without the trailing dims of size 1."""
    return x[(..., *(0,) * (x.ndim - keep))]


@binds("tensor.reduce_sum")
def reduce_sum(call: Call) -> list[Step] | None:
    """Sum over the axes."""
    x = call.inputs[0]
    if x.dtype.kind in "iu" and x.dtype == call.output.dtype and x.size:
        axes = tuple(a % x.ndim for a in call.attrs["axes"])
        return [(np.add.reduce, (x, axes, x.dtype, kept(call, axes), True))]
    return _sum(call, False)


@binds("tensor.reduce_mean")
def reduce_mean(call: Call) -> list[Step] | None:
    """Mean over the axes."""
    return _sum(call, True)


def _reduce(name: str, f: Callable[..., Any], kinds: str) -> None:
    @binds(name)
    def bind(call: Call) -> list[Step] | None:
        x = call.inputs[0]
        if x.dtype.kind not in kinds or x.size == 0 or x.dtype != call.output.dtype:
            return None
        axes = tuple(a % x.ndim for a in call.attrs["axes"])
        return [(f, (x, axes, x.dtype, kept(call, axes), True))]


_reduce("tensor.reduce_max", np.maximum.reduce, "fiub")
_reduce("tensor.reduce_min", np.minimum.reduce, "fiub")
_reduce("tensor.reduce_prod", np.multiply.reduce, "fiu")


def _arg(name: str, f: Callable[..., Any]) -> None:
    def run(x: Array, axis: int, out: Array) -> None:
        f(x, axis=axis, out=out, keepdims=True)

    @binds(name)
    def bind(call: Call) -> list[Step] | None:
        if call.attrs["select_last"] or call.output.dtype != np.intp or call.inputs[0].size == 0:
            return None
        axis = call.attrs["axis"] % call.inputs[0].ndim
        return [(run, (call.inputs[0], axis, kept(call, (axis,))))]


_arg("tensor.argmax", np.argmax)
_arg("tensor.argmin", np.argmin)


@binds("tensor.cumsum")
def cumsum(call: Call) -> list[Step] | None:
    """Running sums along a dim, from either end."""
    x, out = call.inputs[0], call.output
    if x.dtype != out.dtype or x.size == 0 or np.may_share_memory(x, out):
        return None
    axis = call.attrs["axis"] % x.ndim
    if call.attrs["reverse"]:
        x, out = np.flip(x, axis), np.flip(out, axis)
    if not call.attrs["exclusive"]:
        return [(np.add.accumulate, (x, axis, x.dtype, out))]
    first = (slice(None),) * axis
    steps: list[Step] = [(np.copyto, (out[(*first, slice(0, 1))], scalar(0, x.dtype)))]
    if x.shape[axis] > 1:
        steps.append((np.add.accumulate, (x[(*first, slice(0, -1))], axis, x.dtype, out[(*first, slice(1, None))])))
    return steps
