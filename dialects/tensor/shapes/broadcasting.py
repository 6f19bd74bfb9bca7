"""What shape rules of several families share: element types, broadcasting, how an operand follows the result."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.dialects.support import dtypes
from headrace.dialects.tensor.shapes import TT, Follow, ShapeError

SIGNED = ("f64", "f32", "f16", "bf16", "i8", "i16", "i32", "i64")
UNSIGNED = ("ui8", "ui16", "ui32", "ui64")
NUMERIC = SIGNED + UNSIGNED
INTEGERS = ("i1", "i8", "i16", "i32", "i64", *UNSIGNED)


def one_dtype(operands: Sequence[TT], names: Sequence[str]) -> str:
    """The element type that all operands share."""
    first = operands[0].dtype
    for name, type in zip(names, operands, strict=True):
        if type.dtype != first:
            raise ShapeError(f"{names[0]} has element type {first} but {name} has {type.dtype}; cast one of them")
    return first


def require_dtype(dtype: str, allowed: Sequence[str], kind: str, name: str = "operand") -> None:
    """`ShapeError` unless the element type is one of `allowed`, described by `kind`."""
    if dtype not in allowed:
        raise ShapeError(f"{name} has element type {dtype} but must be {kind}")


def require_float(dtype: str, name: str = "operand") -> None:
    """`ShapeError` unless the element type is a floating-point type."""
    require_dtype(dtype, dtypes.FLOATS, "a floating-point type (f64, f32, f16, bf16)", name)


def broadcast_shape(shapes: Sequence[tuple[int, ...]], names: Sequence[str]) -> tuple[int, ...]:
    """NumPy broadcasting: align at the last dim, sizes equal or 1. `ShapeError` names the dims that disagree."""
    if shapes.count(shapes[0]) == len(shapes):
        return shapes[0]
    rank = max(map(len, shapes))
    result = [1] * rank
    owner = [0] * rank
    for k, shape in enumerate(shapes):
        lead = rank - len(shape)
        for d, size in enumerate(shape):
            at = lead + d
            if size == 1 or size == result[at]:
                continue
            if result[at] != 1:
                other = owner[at]
                other_dim = at - (rank - len(shapes[other]))
                raise ShapeError(
                    f"{names[other]} dim {other_dim} has size {result[at]} but {names[k]} dim {d} has size {size}; "
                    "broadcasting needs equal sizes or 1"
                )
            result[at] = size
            owner[at] = k
    return tuple(result)


def follow_broadcast(shape: tuple[int, ...], result: tuple[int, ...]) -> tuple[Follow | None, ...]:
    """How an operand of `shape` broadcast to `result` follows the result's dims: dims of size 1 that are stretched are
    needed whole by every block."""
    lead = len(result) - len(shape)
    return tuple(Follow(lead + d) if size == result[lead + d] else None for d, size in enumerate(shape))


def follow_all(rank: int) -> tuple[Follow | None, ...]:
    """Every dim follows the parallel dim of the same number."""
    return tuple(Follow(d) for d in range(rank))


def follow_except(shape: tuple[int, ...], coupled: Sequence[int]) -> tuple[tuple[int, ...], tuple[Follow | None, ...]]:
    """Parallel dims of an op that couples some dims of `shape`: sizes of the others, and how `shape` follows them."""
    dims: list[int] = []
    follow: list[Follow | None] = []
    for d, size in enumerate(shape):
        if d in coupled:
            follow.append(None)
        else:
            follow.append(Follow(len(dims)))
            dims.append(size)
    return tuple(dims), tuple(follow)
