"""Matrix products by way of NumPy's BLAS: which form is fast on this machine, and weights laid out for it.

OpenBLAS builds for AVX-512 have kernels for small products (m·n·k ≤ 10⁶) that read their operands in place. A product
by constant weights is then fastest as one batched call over *panels*: the weights as [n/width, k, width], each panel
without gaps, and the rows in blocks of 4, 6, 8, 12 or 16. That reaches the processor's peak at any number of rows,
where a whole product first rearranges both operands. Without such kernels the whole product is the fast form.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from headrace.runtime.kernels.scratch import Array, aligned

SMALL_PRODUCT = 1_000_000  # OpenBLAS: sgemm_small_kernel_permit of the SkylakeX family
SMALL_KERNEL_CORES = ("skylakex", "cooperlake", "sapphirerapids")
WIDE = ((16, 64), (12, 64), (8, 64), (4, 64), (6, 32), (6, 16))
"""(rows, columns) of blocks that reach at least 95 % of the peak, best first where k allows."""
OUT_OF_CACHE = 2 << 20
"""Bytes of weights from which reading them in order beats reading them by the fewest instructions."""


def core_name() -> str:
    """The processor family that NumPy's OpenBLAS uses kernels for, lower case; empty when it cannot be told."""
    folder = Path(np.__file__).parent
    for path in sorted([*folder.parent.glob("numpy.libs/*openblas*"), *folder.glob(".dylibs/*openblas*")]):
        try:
            library = ctypes.CDLL(str(path))
        except OSError:
            continue
        for symbol in ("scipy_openblas_get_corename64_", "scipy_openblas_get_corename", "openblas_get_corename"):
            try:
                get = getattr(library, symbol)
            except AttributeError:
                continue
            get.restype = ctypes.c_char_p
            return (get() or b"").decode().lower()
    return ""


@cache
def has_small_kernels() -> bool:
    """Whether small single-precision products run without rearranging their operands."""
    return core_name() in SMALL_KERNEL_CORES


@cache
def has_fast_exp2() -> bool:
    """Whether f32 `exp2` has a vector kernel of its own, about twice as fast as `exp`."""
    try:
        features: dict[str, bool] = import_module("numpy._core._multiarray_umath").__cpu_features__
    except (ImportError, AttributeError):
        return False
    return features.get("AVX512_SKX", False) and sys.platform == "linux"


def block_of(rows: int, k: int) -> tuple[int, int] | None:
    """The best (rows, columns) of a block for a product of so many rows; None when no block is small enough."""
    if rows <= 16:  # every panel is read once
        for n in (64, 32):
            if rows * n * k <= SMALL_PRODUCT:
                return rows, n
    fits = [(m, n) for m, n in WIDE if m * n * k <= SMALL_PRODUCT]
    whole = next(((m, n) for m, n in fits if rows % m == 0), None)
    if whole is not None:
        return whole
    many = next(((m, n) for m, n in fits if rows >= 6 * m), None)
    if many is not None:
        return many
    if rows <= 16 and rows * 16 * k <= SMALL_PRODUCT:
        return rows, 16
    return next(((m, n) for m, n in fits if rows >= m), None)


class Packs:
    """Constant operands in the layout that their products want, made once and shared by all bound programs that use
    this object. Keeps the originals alive, so that an address names its contents."""

    def __init__(self) -> None:
        self._made: dict[Any, tuple[Array, Any]] = {}

    def get(self, kind: str, source: Array, make: Any) -> Any:
        """`make()` for this kind and source, or what it gave before."""
        key = (kind, source.ctypes.data, source.shape, source.strides, source.dtype.str)
        if key not in self._made:
            self._made[key] = (source, make())
        return self._made[key][1]

    def constant(self, key: Any, make: Any) -> Any:
        """`make()` for this key, or what it gave before."""
        if key not in self._made:
            self._made[key] = (np.empty(0), make())
        return self._made[key][1]

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays made."""
        return sum(a.nbytes for _, made in self._made.values() for a in _arrays(made))


def _arrays(made: Array | tuple[Array | None, ...]) -> list[Array]:
    return [part for part in (made if isinstance(made, tuple) else (made,)) if part is not None]


def panels(b: Array, width: int) -> Array:
    """[k, n] as [n // width, k, width] without gaps; the last n % width columns are left out."""
    k, n = b.shape
    count = n // width
    made = aligned(count * k * width * b.itemsize).view(b.dtype).reshape(count, k, width)
    np.copyto(made, columns_cut(b, width))
    return made


def columns_cut(b: Array, width: int) -> Array:
    """The panels of [..., k, n] as a view [..., n // width, k, width]; the last n % width columns are left out."""
    *lead, k, n = b.shape
    *outer, down, along = b.strides
    return as_strided(b, (*lead, n // width, k, width), (*outer, along * width, down, along))


def rows_cut(a: Array, height: int) -> Array:
    """The first m // height · height rows of [..., m, k] as a view [..., m // height, height, k]."""
    *lead, m, k = a.shape
    *outer, down, along = a.strides
    return as_strided(a, (*lead, m // height, height, k), (*outer, down * height, down, along))
