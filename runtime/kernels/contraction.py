"""Matrix products."""

from __future__ import annotations

from functools import partial

import numpy as np

from headrace.dialects.support import dtypes
from headrace.runtime.kernels import blas
from headrace.runtime.kernels.calls import Call, Step, binds, contiguous_rows, is_float, merge_dims
from headrace.runtime.kernels.scratch import ALIGN, Array, aligned_copy

panels_matmul = partial(np.matmul, order="C")
"""Goes through the panels one after the other, so that each is read from memory once."""

WORTH_COPYING = 96
"""Rows from which rearranging the right operand for the small kernels pays."""


@binds("tensor.matmul")
def matmul(call: Call) -> list[Step] | None:
    """np.matmul with the fastest form for the operands at hand."""
    a, b = call.inputs
    o = call.output
    accumulate = call.attrs.get("accumulate")
    if not is_float(a, b, o) or accumulate not in (None, dtypes.from_numpy(a.dtype)):
        return None
    if a.size == 0 or b.size == 0:
        return None
    if b.ndim == 1:
        b, o = b[:, None], o[..., None]
    if a.ndim == 1:
        a, o = a[None, :], o[..., None, :]
    return product(call, a, b, o)


def product(call: Call, a: Array, b: Array, o: Array, constant: bool | None = None) -> list[Step]:
    """Steps of o = a · b for [..., m, k], [..., k, n] and [..., m, n]; `constant` says that b does not change
    (default: as the call says of its second input)."""
    if constant is None:
        constant = 1 in call.constants
    after: list[Step] = []
    if not contiguous_rows(o):
        target, o = o, call.scratch.take(o.shape, o.dtype)
        after.append((np.copyto, (target, o)))
    before: list[Step] = []
    if a.shape[-1] > 1 and not _readable(a):
        source, a = a, call.scratch.take(a.shape, a.dtype)
        before.append((np.copyto, (a, source)))
    while b.ndim > 2 and b.shape[0] == 1:
        b = b[0]
    if not b.flags.aligned and not (constant and b.ndim == 2):
        if constant:
            b = call.packs.get("aligned", b, lambda source=b: aligned_copy(source))
        else:
            source, b = b, call.scratch.take(b.shape, b.dtype)
            before.append((np.copyto, (b, source)))
    if b.ndim == 2:
        rows, results = merge_dims(a, 0, a.ndim - 1), merge_dims(o, 0, o.ndim - 1)
        if rows is not None and results is not None:
            a, o = rows, results
    while a.ndim > max(b.ndim, 2) and a.shape[0] == o.shape[0] == 1:
        a, o = a[0], o[0]
    return [*before, *_product(call, a, b, o, constant), *after]


def _readable(x: Array) -> bool:
    """Whether BLAS takes [..., m, k] as it is."""
    if contiguous_rows(x):
        return True
    return x.strides[-2] == x.itemsize and x.strides[-1] >= x.itemsize * x.shape[-2]


def _product(call: Call, a: Array, b: Array, o: Array, constant: bool) -> list[Step]:
    rows, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    if constant and b.ndim == 2:
        return _by_weights(call, a, b, o)
    if not _readable(b) and n > 1:
        copy = call.scratch.take(b.shape, b.dtype)
        return [(np.copyto, (copy, b)), (np.matmul, (a, copy, o))]
    if rows == 1 or n == 1 or a.dtype != np.float32 or not blas.has_small_kernels() or not contiguous_rows(a):
        return [(np.matmul, (a, b, o))]
    in_place = contiguous_rows(b)
    if rows * n * k <= blas.SMALL_PRODUCT and in_place:
        return [(np.matmul, (a, b, o))]
    if in_place and n <= 128:
        height = next((m for m in (16, 12, 8, 4) if m * n * k <= blas.SMALL_PRODUCT and rows >= m), None)
        if height is not None:
            return _in_blocks(a, b, o, height)
    stable = call.kept is not None and 1 in call.kept.stable
    uses = call.kept.uses if call.kept is not None and stable else 1
    if rows * uses < WORTH_COPYING:
        return [(np.matmul, (a, b, o))]
    height, width = blas.block_of(rows, k) or (0, 0)
    if n <= 256 and width > 32 and k <= 128:
        height, width = height, 32  # narrow panels are copied faster, and there is little to gain by wide ones
    if height == 0 or n % width:
        return [(np.matmul, (a, b, o))]
    shape = (*b.shape[:-2], n // width, k, width)
    if call.kept is not None and stable:
        packed = call.scratch.slot(call.kept.slot, shape, b.dtype)
        held = call.kept.holds(b, width)
    else:
        packed, held = call.scratch.take(shape, b.dtype), False
    copying: list[Step] = [] if held else [(np.copyto, (packed, blas.columns_cut(b, width)))]
    return [*copying, *_by_panels(a, packed, None, o, height)]


def _in_blocks(a: Array, b: Array, o: Array, height: int) -> list[Step]:
    """Rows in blocks of `height` by all of b, in place."""
    full = a.shape[-2] - a.shape[-2] % height
    blocks = b if b.ndim == 2 else b[..., None, :, :]
    steps: list[Step] = [(panels_matmul, (blas.rows_cut(a, height), blocks, blas.rows_cut(o, height)))]
    if full < a.shape[-2]:
        steps.append((np.matmul, (a[..., full:, :], b, o[..., full:, :])))
    return steps


def _by_panels(a: Array, packed: Array, rest: Array | None, o: Array, height: int) -> list[Step]:
    """Rows in blocks of `height` by panels [..., count, k, width], and by the columns that no panel holds."""
    count, width = packed.shape[-3], packed.shape[-1]
    columns = count * width
    rows = a.shape[-2]
    full = rows - rows % height
    steps: list[Step] = []
    cut = blas.columns_cut(o[..., :columns], width)  # [..., count, rows, width]
    if full:
        blocks = blas.rows_cut(a, height)
        targets = blas.rows_cut(cut, height)
        if full == height:
            steps.append((panels_matmul, (a[..., None, :full, :], packed, cut[..., :full, :])))
        else:
            steps.append((panels_matmul, (blocks[..., None, :, :, :], packed[..., None, :, :], targets)))
    if full < rows:
        steps.append((panels_matmul, (a[..., None, full:, :], packed, cut[..., full:, :])))
    if rest is not None:
        if full:
            steps.append((np.matmul, (blas.rows_cut(a, height), rest, blas.rows_cut(o[..., columns:], height))))
        if full < rows:
            steps.append((np.matmul, (a[..., full:, :], rest, o[..., full:, columns:])))
    return steps


def _by_weights(call: Call, a: Array, b: Array, o: Array) -> list[Step]:
    """o = a · b for a constant b of two dims."""
    rows, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    large = b.nbytes >= blas.OUT_OF_CACHE
    if rows == 1 and a.ndim == 2:
        by_columns = not contiguous_rows(b) and b.strides[0] == b.itemsize
        if large and (by_columns or not blas.has_small_kernels()):
            in_place = by_columns and b.flags.aligned
            lines = b.T if in_place else call.packs.get("columns", b, lambda: aligned_copy(b.T))
            return [(np.vecdot, (lines, a, o[0]))]
        if not (large and n >= 32):
            b = _in_lines(call, b)
            if o.flags.c_contiguous and a.flags.c_contiguous and k > 1:  # np.dot takes 0 · NaN for 0 where k is 1
                return [(np.dot, (a[0], b, o[0]))]
            return [(np.matmul, (a, b, o))]
    if a.dtype == np.float32 and blas.has_small_kernels() and contiguous_rows(a) and n >= 16:
        found = (1, 32) if rows == 1 else blas.block_of(rows, k)
        while found is not None and found[1] > n:
            found = (found[0], found[1] // 2)
        if found is not None and found[1] >= 16:
            height, width = found
            packed, rest = call.packs.get(f"panels{width}", b, lambda: _pack(b, width))
            return _by_panels(a, packed, rest, o, height)
    if not (_readable(b) and b.flags.aligned):
        b = call.packs.get("dense", b, lambda source=b: aligned_copy(source))
    if rows <= 3 and a.ndim == 2 and b.nbytes > 1 << 16:
        return [(np.matmul, (a[i], b, o[i])) for i in range(rows)]
    return [(np.matmul, (a, b, o))]


def _in_lines(call: Call, b: Array) -> Array:
    """A constant b whose rows (or columns) start on cache lines: vector loads that cross lines cost a tenth."""
    in_lines = b.ctypes.data % ALIGN == 0 and max(b.strides) % ALIGN == 0
    if _readable(b) and (in_lines or (b.nbytes >= blas.OUT_OF_CACHE and b.flags.aligned)):
        return b
    across = not contiguous_rows(b) and b.strides[0] == b.itemsize
    return call.packs.get("lines", b, lambda: aligned_copy(b.T).T if across else aligned_copy(b))


def _pack(b: Array, width: int) -> tuple[Array, Array | None]:
    left = b.shape[1] % width
    return blas.panels(b, width), aligned_copy(b[:, b.shape[1] - left :]) if left else None
