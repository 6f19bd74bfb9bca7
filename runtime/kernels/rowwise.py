"""Softmax and the norms: passes over tiles of rows, sums as products with a constant vector."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headrace.runtime.kernels import blas
from headrace.runtime.kernels.calls import (
    CACHE_ELEMENTS,
    Call,
    Step,
    binds,
    coalesce,
    contiguous_rows,
    is_float,
    merge_dims,
    rows_of,
    scalar,
    tiles,
)
from headrace.runtime.kernels.elementwise import LOG2_E
from headrace.runtime.kernels.reduction import column
from headrace.runtime.kernels.scratch import Array

MANY = 2048
"""Elements from which a pass saved is worth more than a call."""


def last_axis(x: Array, o: Array, axis: int) -> tuple[Array, Array]:
    """Both with `axis` last and as few leading dims as the strides allow."""
    x, o = np.moveaxis(x, axis, -1), np.moveaxis(o, axis, -1)
    rows, results = merge_dims(x, 0, x.ndim - 1), merge_dims(o, 0, o.ndim - 1)
    return (rows, results) if rows is not None and results is not None else (x, o)


def _sums(x: Array, out: Array, call: Call) -> Step:
    """out[..., 0] = Σ x over the last dim."""
    if contiguous_rows(x):
        return np.matmul, (x, column(x.shape[-1], 1.0, x.dtype, call.packs), out[..., 0])
    return np.add.reduce, (x, -1, None, out, True)


def softmax_rows(
    call: Call, x: Array, o: Array, factor: float = 1.0, bounded: bool = False, inverse: Array | None = None
) -> list[Step]:
    """o = softmax(factor · x) over the last dim, for factor > 0; o may be x.

    `bounded`: no element is much below the others (no mask was added), so exp2 keeps to its fast range. With `inverse`
    [..., 1] the exponentials are left undivided and the inverse of their sums goes there.
    """
    if x.size == x.shape[-1] and inverse is None and contiguous_rows(x) and contiguous_rows(o):
        return _softmax_row(call, x.reshape(-1), o.reshape(-1), factor)
    steps: list[Step] = []
    quick = bounded and x.dtype == np.float32 and x.size >= MANY and blas.has_fast_exp2()
    weight = factor * LOG2_E if quick else factor
    arrays = [x, o] if inverse is None else [x, inverse, o]
    for tile in tiles(arrays) if x.ndim == 2 else [arrays]:
        xs, os = tile[0], tile[-1]
        mark = call.scratch.mark()
        m = call.scratch.take((*xs.shape[:-1], 1), xs.dtype)
        s = call.scratch.take(m.shape, xs.dtype) if inverse is None else tile[1]
        steps += [(np.maximum.reduce, (xs, -1, None, m, True)), (np.subtract, (xs, m, os))]
        if weight != 1:
            steps.append((np.multiply, (os, scalar(weight, xs.dtype), os)))
        steps += [
            (np.exp2 if quick else np.exp, (os, os)),
            _sums(os, s, call),
            (np.divide, (scalar(1, xs.dtype), s, s)),
        ]
        if inverse is None:
            steps.append((np.multiply, (os, s, os)))
        call.scratch.release(mark)
    return steps


def _softmax_row(call: Call, x: Array, o: Array, factor: float) -> list[Step]:
    m, s = call.scratch.take((), x.dtype), call.scratch.take((), x.dtype)
    steps: list[Step] = [(np.maximum.reduce, (x, 0, None, m)), (np.subtract, (x, m, o))]
    if factor != 1:
        steps.append((np.multiply, (o, scalar(factor, x.dtype), o)))
    steps += [(np.exp, (o, o)), (np.dot, (o, column(o.size, 1.0, o.dtype, call.packs), s))]
    return [*steps, (np.divide, (o, s, o))]


@binds("tensor.softmax")
def softmax(call: Call) -> list[Step] | None:
    """Exponentials over their sum."""
    if not is_float(call.inputs[0]) or call.output.size == 0:
        return None
    x, o = last_axis(call.inputs[0], call.output, call.attrs["axis"])
    return softmax_rows(call, x, o)


@binds("tensor.log_softmax")
def log_softmax(call: Call) -> list[Step] | None:
    """Less the maximum, less the logarithm of the sum of exponentials."""
    if not is_float(call.inputs[0]) or call.output.size == 0:
        return None
    x, o = last_axis(call.inputs[0], call.output, call.attrs["axis"])
    steps: list[Step] = []
    for xs, os in tiles([x, o]) if x.ndim == 2 else [[x, o]]:
        mark = call.scratch.mark()
        m = call.scratch.take((*xs.shape[:-1], 1), xs.dtype)
        t = call.scratch.take(xs.shape, xs.dtype)
        steps += [(np.maximum.reduce, (xs, -1, None, m, True)), (np.subtract, (xs, m, os)), (np.exp, (os, t))]
        steps += [_sums(t, m, call), (np.log, (m, m)), (np.subtract, (os, m, os))]
        call.scratch.release(mark)
    return steps


def _vector(v: Array) -> Array | None:
    """A parameter of a norm as [columns]."""
    return merge_dims(v, 0, v.ndim) if v.ndim else None


def _dense_rows(call: Call, axis: int) -> tuple[Array, Array, list[Step], list[Step]]:
    """Input and output as [rows, columns], with the copies before and after that they need."""
    x, o = call.inputs[0], call.output
    before: list[Step] = []
    after: list[Step] = []
    rows, results = rows_of(x, axis), rows_of(o, axis)
    if results is None:
        dense = call.scratch.take(o.shape, o.dtype)
        after.append((np.copyto, (o, dense)))
        results = dense.reshape(-1, results_columns(o.shape, axis))
    if rows is None:
        dense = call.scratch.take(x.shape, x.dtype)
        before.append((np.copyto, (dense, x)))
        rows = dense.reshape(results.shape)
    return rows, results, before, after


def results_columns(shape: Sequence[int], axis: int) -> int:
    """Elements of the dims from `axis` on."""
    count = 1
    for n in shape[axis:]:
        count *= n
    return count


def inverse_root(v: Array, count: int, epsilon: float) -> list[Step]:
    """v = 1 / sqrt(v / count + epsilon)."""
    return [
        (np.multiply, (v, scalar(1 / count, v.dtype), v)),
        (np.add, (v, scalar(epsilon, v.dtype), v)),
        (np.sqrt, (v, v)),
        (np.divide, (scalar(1, v.dtype), v, v)),
    ]


def normalize_rows(
    call: Call, x: Array, o: Array, epsilon: float, centre: bool, scale: Array | None, bias: Array | None
) -> list[Step]:
    """Rows to variance 1 (and mean 0 with `centre`), then scale and bias of [columns]; o may be x."""
    count = x.shape[-1]
    weights = column(count, 1 / count, x.dtype, call.packs)
    steps: list[Step] = []
    for xs, os in tiles([x, o]):
        mark = call.scratch.mark()
        if xs.shape[0] == 1:
            xs, os = xs[0], os[0]
            m, v = call.scratch.take((), x.dtype), call.scratch.take((), x.dtype)
            mean: Step = (np.dot, (xs, weights, m))
            squares: Step = (np.dot, (os, os, v)) if centre else (np.dot, (xs, xs, v))
        else:
            m, v = call.scratch.take((len(xs), 1), x.dtype), call.scratch.take((len(xs), 1), x.dtype)
            mean = (np.matmul, (xs, weights, m[:, 0]))
            squares = (np.vecdot, (os, os, v[:, 0])) if centre else (np.vecdot, (xs, xs, v[:, 0]))
        if centre:
            steps += [mean, (np.subtract, (xs, m, os))]
        steps += [squares, *inverse_root(v, count, epsilon), (np.multiply, (os if centre else xs, v, os))]
        if scale is not None:
            steps.append((np.multiply, (os, scale, os)))
        if bias is not None:
            steps.append((np.add, (os, bias, os)))
        call.scratch.release(mark)
    return steps


def _norm(call: Call, centre: bool) -> list[Step] | None:
    if not is_float(*call.inputs, call.output) or call.output.size == 0:
        return None
    axis = call.attrs["axis"] % call.inputs[0].ndim
    vectors = [_vector(v) for v in call.inputs[1:]]
    columns = results_columns(call.inputs[0].shape, axis)
    if any(v is None or v.shape != (columns,) for v in vectors):
        return None
    rows, results, before, after = _dense_rows(call, axis)
    scale, bias = vectors[0], vectors[1] if len(vectors) > 1 else None
    steps = normalize_rows(call, rows, results, call.attrs["epsilon"], centre, scale, bias)
    return [*before, *steps, *after]


@binds("tensor.layer_norm")
def layer_norm(call: Call) -> list[Step] | None:
    """Mean by a product, variance by a dot product of the centred row with itself."""
    return _norm(call, True)


@binds("tensor.rms_norm")
def rms_norm(call: Call) -> list[Step] | None:
    """Mean square by a dot product."""
    return _norm(call, False)


def _channels(v: Array, rank: int) -> Array:
    return v.reshape(-1, *(1,) * (rank - 2))


def affine(call: Call, x: Array, factor: Array, shift: Array, o: Array) -> list[Step]:
    """o = x · factor + shift, tiled."""
    (xs, fs, ss), (os,) = coalesce([x, factor, shift], [o])
    steps: list[Step] = []
    for a, f, s, b in tiles([xs, fs, ss, os], 2 * CACHE_ELEMENTS):
        steps += [(np.multiply, (a, f, b)), (np.add, (b, s, b))]
    return steps


@binds("tensor.batch_norm")
def batch_norm(call: Call) -> list[Step] | None:
    """Per channel; one product and one sum when the parameters are constant."""
    if not is_float(*call.inputs, call.output) or call.output.size == 0:
        return None
    x, scale, bias, mean, variance = call.inputs
    epsilon = scalar(call.attrs["epsilon"], x.dtype)
    rank = x.ndim
    if {1, 2, 3, 4} <= call.constants:
        factor = (scale.astype(np.float64) / np.sqrt(variance.astype(np.float64) + float(epsilon))).astype(x.dtype)
        shift = (bias.astype(np.float64) - mean.astype(np.float64) * factor).astype(x.dtype)
        return affine(call, x, _channels(factor, rank), _channels(shift, rank), call.output)
    f = call.scratch.take(scale.shape, x.dtype)
    steps: list[Step] = [(np.add, (variance, epsilon, f)), (np.sqrt, (f, f)), (np.divide, (scale, f, f))]
    (xs, ms), (os,) = coalesce([x, _channels(mean, rank)], [call.output])
    steps.append((np.subtract, (xs, ms, os)))
    return [*steps, *affine(call, call.output, _channels(f, rank), _channels(bias, rank), call.output)]


@binds("tensor.group_norm")
def group_norm(call: Call) -> list[Step] | None:
    """Rows of a sample's group, then scale and bias per channel."""
    if not is_float(*call.inputs, call.output) or call.output.size == 0:
        return None
    x, scale, bias = call.inputs
    o = call.output
    before: list[Step] = []
    if not x.flags.c_contiguous:
        dense = call.scratch.take(x.shape, x.dtype)
        before.append((np.copyto, (dense, x)))
        x = dense
    y = o if o.flags.c_contiguous else call.scratch.take(o.shape, o.dtype)
    shape = (x.shape[0] * call.attrs["groups"], -1)
    steps = normalize_rows(call, x.reshape(shape), y.reshape(shape), call.attrs["epsilon"], True, None, None)
    return [*before, *steps, *affine(call, y, _channels(scale, x.ndim), _channels(bias, x.ndim), o)]
