"""Shape, tiling and work rules of reductions."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.dialects.tensor.shapes import TT, Attrs, Follow, ShapeError, Tiling, counts_flops, infers, tiles
from headrace.dialects.tensor.shapes.axes import axes_of, axis_of, one

ARITHMETIC = ("tensor.reduce_sum", "tensor.reduce_mean", "tensor.reduce_prod")
ORDER = ("tensor.reduce_max", "tensor.reduce_min")
ARG = ("tensor.argmax", "tensor.argmin")


def _reduced(x: TT, axes: Sequence[int], keepdims: bool) -> tuple[int, ...]:
    if keepdims:
        return tuple(1 if d in axes else n for d, n in enumerate(x.shape))
    return tuple(n for d, n in enumerate(x.shape) if d not in axes)


def _needs_numbers(x: TT) -> None:
    if x.dtype == "i1":
        raise ShapeError(f"operand {x} holds truth values; cast it to a number type first")


def _needs_elements(x: TT, axes: Sequence[int]) -> None:
    for d in axes:
        if x.shape[d] == 0:
            raise ShapeError(f"nothing to reduce: dim {d} of {x} has size 0")


@infers(*ARITHMETIC)
def _(attrs: Attrs, operands: Sequence[TT]) -> TT:
    x = one(operands)
    _needs_numbers(x)
    axes = axes_of(attrs["axes"], len(x.shape))
    return TT(_reduced(x, axes, attrs["keepdims"]), x.dtype)


@infers(*ORDER)
def _(attrs: Attrs, operands: Sequence[TT]) -> TT:
    x = one(operands)
    axes = axes_of(attrs["axes"], len(x.shape))
    _needs_elements(x, axes)
    return TT(_reduced(x, axes, attrs["keepdims"]), x.dtype)


@infers(*ARG)
def _(attrs: Attrs, operands: Sequence[TT]) -> TT:
    x = one(operands)
    axes = (axis_of(attrs["axis"], len(x.shape)),)
    _needs_numbers(x)
    _needs_elements(x, axes)
    return TT(_reduced(x, axes, attrs["keepdims"]), "i64")


@infers("tensor.cumsum")
def _(attrs: Attrs, operands: Sequence[TT]) -> TT:
    x = one(operands)
    _needs_numbers(x)
    axis_of(attrs["axis"], len(x.shape))
    return x


@infers("tensor.sort")
def _(attrs: Attrs, operands: Sequence[TT]) -> tuple[TT, TT]:
    x = one(operands)
    axis_of(attrs["axis"], len(x.shape))
    return x, TT(x.shape, "i64")


def reduction_tiling(x: TT, axes: Sequence[int], keepdims: bool) -> Tiling:
    """The dims that are not reduced are parallel."""
    kept = [d for d in range(len(x.shape)) if d not in axes]
    number = {d: i for i, d in enumerate(kept)}
    operand = tuple(Follow(number[d]) if d in number else None for d in range(len(x.shape)))
    result = operand if keepdims else tuple(f for f in operand if f is not None)
    return Tiling(tuple(x.shape[d] for d in kept), (operand,), (result,))


@tiles(*ARITHMETIC, *ORDER)
def _(attrs: Attrs, operands: Sequence[TT], results: Sequence[TT]) -> Tiling:
    return reduction_tiling(operands[0], axes_of(attrs["axes"], len(operands[0].shape)), attrs["keepdims"])


@tiles(*ARG)
def _(attrs: Attrs, operands: Sequence[TT], results: Sequence[TT]) -> Tiling:
    return reduction_tiling(operands[0], (axis_of(attrs["axis"], len(operands[0].shape)),), attrs["keepdims"])


@tiles("tensor.cumsum")
def _(attrs: Attrs, operands: Sequence[TT], results: Sequence[TT]) -> Tiling:
    return reduction_tiling(operands[0], (axis_of(attrs["axis"], len(operands[0].shape)),), True)


@tiles("tensor.sort")
def _(attrs: Attrs, operands: Sequence[TT], results: Sequence[TT]) -> Tiling:
    """Every dim but `axis` is parallel."""
    found = reduction_tiling(operands[0], (axis_of(attrs["axis"], len(operands[0].shape)),), True)
    return Tiling(found.dims, found.operands, found.results * 2)


def sort_steps(length: int) -> int:
    """Steps of a bitonic network that sorts `length` elements: each compares all of them in pairs."""
    levels = max(length - 1, 0).bit_length()
    return levels * (levels + 1) // 2


@counts_flops("tensor.sort")
def _(attrs: Attrs, operands: Sequence[TT], results: Sequence[TT]) -> int:
    x = operands[0]
    return x.elements // 2 * sort_steps(x.shape[axis_of(attrs["axis"], len(x.shape))])


@counts_flops(*ORDER, *ARG, "tensor.cumsum", "tensor.reduce_sum", "tensor.reduce_prod")
def _(attrs: Attrs, operands: Sequence[TT], results: Sequence[TT]) -> int:
    return operands[0].elements


@counts_flops("tensor.reduce_mean")
def _(attrs: Attrs, operands: Sequence[TT], results: Sequence[TT]) -> int:
    return operands[0].elements + results[0].elements
