"""Convolution as products of gathered windows, tiled over rows, and pooling one dim at a time.

Everything runs channels-last: an NCHW view whose channels lie innermost is used as it is, any other is rearranged
first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from headrace.dialects.support import dtypes
from headrace.dialects.tensor.meaning.contraction import divisors
from headrace.dialects.tensor.shapes.contraction import Window, windows
from headrace.runtime.kernels.calls import Call, Step, binds, contiguous_rows, is_float, merge_dims, scalar, strided
from headrace.runtime.kernels.contraction import product
from headrace.runtime.kernels.elementwise import maximum
from headrace.runtime.kernels.scratch import Array, aligned_copy

TILE_PIXELS = 128
TILE_BYTES = 1 << 20


def channels_last(x: Array) -> Array:
    """[N, C, …] seen as [N, …, C]."""
    return np.moveaxis(x, 1, -1)


def padded(call: Call, x: Array, found: Sequence[Window], value: float, steps: list[Step]) -> Array:
    """[N, *sizes, C] with its spatial dims padded as far as the last window reaches, in scratch; x itself when
    nothing is to pad and its channels lie without gaps."""
    low = [w.low for w in found]
    sizes = [max(w.low + w.size + w.high, w.reach) for w in found]
    if tuple(sizes) == x.shape[1:-1]:
        if contiguous_rows(x):
            return x
        made = call.scratch.take(x.shape, x.dtype)
        steps.append((np.copyto, (made, x)))
        return made
    made = call.scratch.take((x.shape[0], *sizes, x.shape[-1]), x.dtype)
    inside: list[slice] = [slice(None)]
    fill = scalar(value, x.dtype)
    for d, (at, w) in enumerate(zip(low, found, strict=True)):
        before, behind = slice(0, at), slice(at + w.size, None)
        for border in (before, behind):
            part = made[(*inside, border)]
            if part.size:
                steps.append((np.copyto, (part, fill)))
        inside.append(slice(at, at + w.size))
        del d
    steps.append((np.copyto, (made[tuple(inside)], x)))
    return made


def windows_of(x: Array, found: Sequence[Window]) -> Array:
    """[N, *sizes, C] as [N, *out, *kernel, C]: the elements of every window, without a copy."""
    n, c = x.shape[0], x.shape[-1]
    outs = [w.out for w in found]
    kernels = [w.kernel for w in found]
    along = x.strides[1:-1]
    steps = [w.stride * s for w, s in zip(found, along, strict=True)]
    taps = [w.dilation * s for w, s in zip(found, along, strict=True)]
    return strided(x, (n, *outs, *kernels, c), (x.strides[0], *steps, *taps, x.strides[-1]))


@binds("tensor.conv")
def conv(call: Call) -> list[Step] | None:
    """Windows as rows of a matrix times the filters, a tile of pixels at a time."""
    x, w = call.inputs[:2]
    o = call.output
    accumulate = call.attrs.get("accumulate")
    if not is_float(*call.inputs, o) or accumulate not in (None, dtypes.from_numpy(x.dtype)) or o.size == 0:
        return None
    bias = call.inputs[2] if len(call.inputs) > 2 else None
    kernel = w.shape[2:]
    found = windows(call.attrs, x.shape[2:], kernel)
    groups = call.attrs["groups"]
    steps: list[Step] = []
    y = channels_last(o)
    if call.attrs.get("algorithm") == "winograd":
        from headrace.runtime.kernels import winograd

        made = winograd.conv(call, channels_last(x), w, bias, y, found)
        if made is not None:
            return made
    source = padded(call, channels_last(x), found, 0, steps)
    inputs, outputs = w.shape[1], w.shape[0] // groups
    if inputs == 1 and outputs == 1 and groups > 1:
        return [*steps, *_depthwise(call, source, w, bias, y, found)]
    for g in range(groups):
        part = slice(g * outputs, (g + 1) * outputs)
        shift = None if bias is None else bias[part]
        gathered = prod(kernel) > 1
        if shift is not None and gathered and {1, 2} <= call.constants:
            filters, constant, shift = _filters_and_bias(call, w[part], shift), True, None
        else:
            filters, constant = _filters(call, w[part], steps)
        view = windows_of(source[..., g * inputs : (g + 1) * inputs], found)
        steps += _tiles(call, view, filters, constant, shift, y[..., part])
    return steps


def _filters(call: Call, w: Array, steps: list[Step]) -> tuple[Array, bool]:
    """[O, C, *kernel] as [(*kernel, C), O], and whether that is made already."""
    order = (*range(2, w.ndim), 1, 0)
    columns = prod(w.shape[1:])
    if 1 in call.constants:
        return call.packs.get("filters", w, lambda: aligned_copy(w.transpose(order)).reshape(columns, -1)), True
    made = call.scratch.take([w.shape[d] for d in order], w.dtype)
    steps.append((np.copyto, (made, w.transpose(order))))
    return made.reshape(columns, -1), False


def _filters_and_bias(call: Call, w: Array, bias: Array) -> Array:
    """The filters with the bias as one more row, for columns that end in a one."""
    order = (*range(2, w.ndim), 1, 0)

    def make() -> Array:
        return np.concatenate([w.transpose(order).reshape(-1, w.shape[0]), bias[None]])

    return call.packs.get(f"filters and bias {bias.ctypes.data}", w, make)


def _rows_of_tile(rows: int, pixels: int, columns: int, itemsize: int) -> int:
    """Rows of pixels in a tile: about TILE_PIXELS, less when the columns get large, in equal parts."""
    wanted = max(1, min(TILE_PIXELS // pixels, TILE_BYTES // max(1, pixels * columns * itemsize)))
    if rows * pixels <= TILE_PIXELS:
        wanted = rows
    parts = -(-rows // wanted)
    return -(-rows // parts)


def _tiles(call: Call, view: Array, filters: Array, constant: bool, bias: Array | None, y: Array) -> list[Step]:
    """y [N, *out, O] from windows [N, *out, *kernel, C]."""
    rank = (view.ndim - 2) // 2
    n, rows = y.shape[0], y.shape[1]
    pixels = prod(y.shape[2:-1])
    columns = filters.shape[0]
    height = _rows_of_tile(rows, pixels, columns, y.itemsize)
    single = prod(view.shape[1 + rank : -1]) == 1
    steps: list[Step] = []
    for image in range(n):
        for at in range(0, rows, height):
            mark = call.scratch.mark()
            block = view[image, at : at + height]
            target = y[image, at : at + height]
            if single:
                a = block[(*(slice(None),) * rank, *(0,) * rank)]
            else:
                a = call.scratch.take((prod(target.shape[:-1]), columns), block.dtype)
                taps = prod(block.shape[rank:])
                gaps = strided(a, block.shape, _spread(block.shape, rank, a))
                steps.append((np.copyto, (gaps, block)))
                if taps < columns:
                    steps.append((np.copyto, (a[:, taps:], scalar(1, a.dtype))))
            flat = merge_dims(target, 0, target.ndim - 1)
            if flat is not None and not contiguous_rows(flat):
                flat = None
            shape = (prod(target.shape[:-1]), target.shape[-1])
            dense = flat if flat is not None else call.scratch.take(shape, y.dtype)
            steps += product(call, a, filters, dense if a.ndim == 2 else dense.reshape(target.shape), constant)
            if flat is not None:
                if bias is not None:
                    steps.append((np.add, (flat, bias, flat)))
            elif bias is not None:
                steps.append((np.add, (dense.reshape(target.shape), bias, target)))
            else:
                steps.append((np.copyto, (target, dense.reshape(target.shape))))
            call.scratch.release(mark)
    return steps


def _spread(shape: Sequence[int], rank: int, rows: Array) -> list[int]:
    """Strides that see [pixels, columns] as `shape`, whose first `rank` dims are the pixels."""
    steps = [0] * len(shape)
    size = rows.strides[0]
    for d in reversed(range(rank)):
        steps[d], size = size, size * shape[d]
    size = rows.itemsize
    for d in reversed(range(rank, len(shape))):
        steps[d], size = size, size * shape[d]
    return steps


def _depthwise(call: Call, x: Array, w: Array, bias: Array | None, y: Array, found: Sequence[Window]) -> list[Step]:
    """One filter a channel: a product and a sum for every tap, on tiles of rows."""
    taps = np.moveaxis(w[:, 0], 0, -1)  # [*kernel, C]
    view = windows_of(x, found)
    rank = len(found)
    pixels = prod(y.shape[2:])
    height = max(1, min(y.shape[1], 32_768 // max(pixels, 1)))
    steps: list[Step] = []
    for image in range(y.shape[0]):
        for at in range(0, y.shape[1], height):
            mark = call.scratch.mark()
            block, target = view[image, at : at + height], y[image, at : at + height]
            t = call.scratch.take(target.shape, y.dtype)
            total = call.scratch.take(target.shape, y.dtype)
            for i, position in enumerate(np.ndindex(*taps.shape[:-1])):
                source = block[(*(slice(None),) * rank, *position)]
                steps.append((np.multiply, (source, taps[position], t if i else total)))
                if i:
                    steps.append((np.add, (total, t, total)))
            steps.append((np.copyto, (target, total)) if bias is None else (np.add, (total, bias, target)))
            call.scratch.release(mark)
    return steps


# Pooling


def _pool(call: Call, f: Callable[..., Any], fill: float) -> tuple[list[Step], tuple[Window, ...]]:
    """f over every window into the output, one spatial dim after the other, longest strides first."""
    x, o = call.inputs[0], call.output
    found = windows(call.attrs, x.shape[2:], call.attrs["kernel"])
    steps: list[Step] = []
    current = x
    sizes = [max(w.low + w.size + w.high, w.reach) for w in found]
    if tuple(sizes) != x.shape[2:]:
        current = np.moveaxis(padded(call, channels_last(x), found, fill, steps), -1, 1)
    order = sorted(range(len(found)), key=lambda d: (-abs(current.strides[2 + d]), d))
    memory = sorted(range(x.ndim), key=lambda d: -abs(current.strides[d]))
    for done, d in enumerate(order):
        w = found[d]
        axis = 2 + d
        shape = list(current.shape)
        shape[axis] = w.out
        last = done == len(order) - 1
        target = o if last else _ordered(call, shape, memory, x.dtype)
        taps: list[Array] = []
        for k in range(w.kernel):
            at = k * w.dilation
            cut = [slice(None)] * x.ndim
            cut[axis] = slice(at, at + (w.out - 1) * w.stride + 1, w.stride)
            taps.append(current[tuple(cut)])
        if not last and tuple(sizes[e] for e in order[done + 1 :]) != tuple(
            current.shape[2 + e] for e in order[done + 1 :]
        ):
            raise AssertionError("a pooled dim changed before its turn")
        if len(taps) == 1:
            steps.append((np.copyto, (target, taps[0])))
        else:
            steps.append((f, (taps[0], taps[1], target)))
            steps += [(f, (target, tap, target)) for tap in taps[2:]]
        current = target
    return steps, found


def _ordered(call: Call, shape: Sequence[int], memory: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """Scratch of `shape` whose dims lie in memory in the order `memory`, outermost first."""
    made = call.scratch.take([shape[d] for d in memory], dtype)
    back = sorted(range(len(memory)), key=lambda i: memory[i])
    return made.transpose(back)


@binds("tensor.max_pool")
def max_pool(call: Call) -> list[Step] | None:
    """Maxima along one dim, then along the next."""
    if not is_float(call.inputs[0], call.output) or call.output.size == 0:
        return None
    return _pool(call, maximum, float("-inf"))[0]


@binds("tensor.avg_pool")
def avg_pool(call: Call) -> list[Step] | None:
    """Sums along one dim, then along the next, times the inverse of what each window counts."""
    if not is_float(call.inputs[0], call.output) or call.output.size == 0:
        return None
    steps, found = _pool(call, np.add, 0)
    counts = divisors(found, call.attrs["count_include_pad"])
    factors: Array = (1.0 / counts).astype(call.output.dtype)
    if (factors == factors.flat[0]).all():
        factors = scalar(float(factors.flat[0]), call.output.dtype)
    return [*steps, (np.multiply, (call.output, factors, call.output))]
