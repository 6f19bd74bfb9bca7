"""Convolutions that several importers express by others."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.frontends.building import Site, Value


def transposed(
    n: Site,
    x: Value,
    w: Value,
    bias: Value | None,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    extra: Sequence[int],
    groups: int,
) -> Value:
    """The transposed convolution of x [N, C, spatial…] by w [C, O/groups, kernel…]: one of the operand with zeros
    between its elements, by the mirrored filter. `pads` are cut from the full result before and after each spatial dim,
    `extra` is added after."""
    dims = len(strides)
    reach = [(k - 1) * d for k, d in zip(w.shape[2:], dilations, strict=True)]
    x = _spread(n, x, strides)
    lo = [r - p for r, p in zip(reach, pads[:dims], strict=True)]
    hi = [r - p + e for r, p, e in zip(reach, pads[dims:], extra, strict=True)]
    x = padded_or_cropped(n, x, lo, hi)
    operands = (x, _mirrored(n, w, groups), *(() if bias is None else (bias,)))
    ones, none = (1,) * dims, (0,) * (2 * dims)
    return n.op("conv", *operands, strides=ones, pads=none, dilations=tuple(dilations), groups=groups)


def _spread(n: Site, x: Value, strides: Sequence[int]) -> Value:
    """stride - 1 zeros between neighbours of each spatial dim."""
    if all(s == 1 for s in strides):
        return x
    lead, size = x.shape[:2], x.shape[2:]
    split = tuple(v for length in size for v in (length, 1))
    hi = (0, 0, *(v for s in strides for v in (0, s - 1)))
    x = n.op("pad", n.reshape(x, (*lead, *split)), lo=(0,) * len(hi), hi=hi)
    x = n.reshape(x, (*lead, *(length * s for length, s in zip(size, strides, strict=True))))
    return padded_or_cropped(n, x, [0] * len(size), [1 - s for s in strides])


def padded_or_cropped(n: Site, x: Value, lo: Sequence[int], hi: Sequence[int]) -> Value:
    """Zeros around the spatial dims; a negative count cuts instead."""
    if any(v < 0 for v in (*lo, *hi)):
        starts = (0, 0, *(max(-v, 0) for v in lo))
        stops = (*x.shape[:2], *(s - max(-v, 0) for s, v in zip(x.shape[2:], hi, strict=True)))
        x = n.op("slice", x, starts=starts, stops=stops, steps=(1,) * x.rank)
    if any(v > 0 for v in (*lo, *hi)):
        x = n.op("pad", x, lo=(0, 0, *(max(v, 0) for v in lo)), hi=(0, 0, *(max(v, 0) for v in hi)))
    return x


def _mirrored(n: Site, w: Value, groups: int) -> Value:
    """The filter [C, O/groups, kernel…] as [O, C/groups, kernel…], its kernel dims backwards."""
    c, o, kernel = w.shape[0], w.shape[1], w.shape[2:]
    starts = (0, 0, *(k - 1 for k in kernel))
    w = n.op("slice", w, starts=starts, stops=(c, o, *((-1,) * len(kernel))), steps=(1, 1, *((-1,) * len(kernel))))
    if groups == 1:
        return n.transpose(w, (1, 0, *range(2, w.rank)))
    w = n.reshape(w, (groups, c // groups, o, *kernel))
    w = n.transpose(w, (0, 2, 1, *range(3, w.rank)))
    return n.reshape(w, (groups * o, c // groups, *kernel))
