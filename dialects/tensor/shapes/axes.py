"""Axis arithmetic that shape rules and meanings share."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.dialects.tensor.shapes import TT, ShapeError


def axis_of(axis: int, rank: int, what: str = "axis") -> int:
    """`axis` counted from the front; negative ones count from the back. `ShapeError` when it is out of range."""
    if not -rank <= axis < rank:
        raise ShapeError(f"{what} {axis} is out of range for rank {rank}")
    return axis % rank


def axes_of(axes: Sequence[int], rank: int, what: str = "axes") -> tuple[int, ...]:
    """Distinct axes counted from the front, in ascending order. `ShapeError` on a repeated or bad one."""
    found = [axis_of(axis, rank, what) for axis in axes]
    if len(set(found)) != len(found):
        raise ShapeError(f"{what} {list(axes)} repeat a dim of a rank-{rank} operand")
    return tuple(sorted(found))


def one(operands: Sequence[TT]) -> TT:
    """The only operand."""
    if len(operands) != 1:
        raise ShapeError(f"expected 1 operand, found {len(operands)}")
    return operands[0]
