"""Shape, tiling and work rules of ops that only move elements."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from headrace.dialects.tensor.shapes import (
    TT,
    Attrs,
    Follow,
    ShapeError,
    Tiling,
    adapts,
    counts_flops,
    infers,
    tiles,
)
from headrace.dialects.tensor.shapes.axes import axis_of, one

NAMES = ("reshape", "transpose", "broadcast", "slice", "concat", "split", "pad")


@counts_flops(*(f"tensor.{name}" for name in NAMES))
def _(attrs: Attrs, operands: Sequence[TT], results: Sequence[TT]) -> int:
    return 0


def _sizes(shape: Sequence[int]) -> tuple[int, ...]:
    for n in shape:
        if n < 0:
            raise ShapeError(f"shape {list(shape)} has a negative size")
    return tuple(shape)


def _per_dim(x: TT, what: str, values: Sequence[int]) -> None:
    if len(values) != len(x.shape):
        raise ShapeError(f"{what} {list(values)} has {len(values)} entries but {x} has {len(x.shape)} dims")


@infers("tensor.reshape")
def _(attrs: Attrs, operands: Sequence[TT]) -> TT:
    x = one(operands)
    shape = _sizes(attrs["shape"])
    if prod(shape) != x.elements:
        raise ShapeError(f"{x} has {x.elements} elements but shape {list(shape)} has {prod(shape)}")
    return TT(shape, x.dtype)


def reshape_groups(source: Sequence[int], target: Sequence[int]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Minimal runs of source dims and target dims that hold the same elements; dims of size 1 are in no group.
    Empty when there are no elements."""
    if 0 in source or 0 in target:
        return []
    left = [d for d, n in enumerate(source) if n != 1]
    right = [d for d, n in enumerate(target) if n != 1]
    groups: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    i = j = 0
    while i < len(left) and j < len(right):
        first_i, first_j = i, j
        a, b = source[left[i]], target[right[j]]
        i, j = i + 1, j + 1
        while a != b:
            if a < b:
                a, i = a * source[left[i]], i + 1
            else:
                b, j = b * target[right[j]], j + 1
        groups.append((tuple(left[first_i:i]), tuple(right[first_j:j])))
    return groups


@tiles("tensor.reshape")
def _(attrs: Attrs, operands: Sequence[TT], results: Sequence[TT]) -> Tiling:
    source, target = operands[0].shape, results[0].shape
    operand: list[Follow | None] = [None] * len(source)
    result: list[Follow | None] = [None] * len(target)
    dims: list[int] = []
    for left, right in reshape_groups(source, target):
        a, b = source[left[0]], target[right[0]]
        if a % b:
            continue  # the outermost result dim is not a factor of the outermost operand dim
        operand[left[0]] = Follow(len(dims), a // b, a // b)
        result[right[0]] = Follow(len(dims))
        dims.append(b)
    return Tiling(tuple(dims), (tuple(operand),), (tuple(result),))


@adapts("tensor.reshape", "tensor.broadcast")
def _(attrs: Attrs, operands: Sequence[TT], results: Sequence[TT]) -> Attrs:
    return {**attrs, "shape": results[0].shape}


def permutation(attrs: Attrs, rank: int) -> tuple[int, ...]:
    """The checked `perm` of a transpose."""
    perm = tuple(attrs["perm"])
    if sorted(perm) != list(range(rank)):
        raise ShapeError(f"perm {list(perm)} is not a permutation of the {rank} dims of the operand")
    return perm


@infers("tensor.transpose")
def _(attrs: Attrs, operands: Sequence[TT]) -> TT:
    x = one(operands)
    return TT(tuple(x.shape[p] for p in permutation(attrs, len(x.shape))), x.dtype)


@tiles("tensor.transpose")
def _(attrs: Attrs, operands: Sequence[TT], results: Sequence[TT]) -> Tiling:
    perm = attrs["perm"]
    rank = len(perm)
    where = {p: d for d, p in enumerate(perm)}
    operand = tuple(Follow(where[d]) for d in range(rank))
    return Tiling(results[0].shape, (operand,), (tuple(Follow(d) for d in range(rank)),))


@infers("tensor.broadcast")
def _(attrs: Attrs, operands: Sequence[TT]) -> TT:
    x = one(operands)
    shape = _sizes(attrs["shape"])
    lead = len(shape) - len(x.shape)
    if lead < 0:
        raise ShapeError(f"{x} has more dims than shape {list(shape)}")
    for d, n in enumerate(x.shape):
        if n not in (1, shape[lead + d]):
            raise ShapeError(f"dim {d} of {x} has size {n}, which does not broadcast to {shape[lead + d]}")
    return TT(shape, x.dtype)


@tiles("tensor.broadcast")
def _(attrs: Attrs, operands: Sequence[TT], results: Sequence[TT]) -> Tiling:
    x, y = operands[0].shape, results[0].shape
    lead = len(y) - len(x)
    operand = tuple(Follow(lead + d) if n == y[lead + d] else None for d, n in enumerate(x))
    return Tiling(y, (operand,), (tuple(Follow(d) for d in range(len(y))),))


def slice_size(start: int, stop: int, step: int) -> int:
    """How many indices start, start+step, … lie before stop."""
    return len(range(start, stop, step))


@infers("tensor.slice")
def _(attrs: Attrs, operands: Sequence[TT]) -> TT:
    x = one(operands)
    starts, stops, steps = attrs["starts"], attrs["stops"], attrs["steps"]
    for what in ("starts", "stops", "steps"):
        _per_dim(x, what, attrs[what])
    shape: list[int] = []
    for d, (n, start, stop, step) in enumerate(zip(x.shape, starts, stops, steps, strict=True)):
        if step == 0:
            raise ShapeError(f"step of dim {d} is 0")
        low, high = (0, n) if step > 0 else (-1, n - 1)
        if not (low <= start <= high and low <= stop <= high):
            raise ShapeError(
                f"slice {start} to {stop} by {step} leaves dim {d} of {x}, which has size {n}"
                f" (bounds must lie in {low}..{high})"
            )
        shape.append(slice_size(start, stop, step))
    return TT(tuple(shape), x.dtype)


@tiles("tensor.slice")
def _(attrs: Attrs, operands: Sequence[TT], results: Sequence[TT]) -> Tiling:
    """Every dim sliced forwards is parallel; a dim sliced backwards is coupled."""
    operand: list[Follow | None] = []
    result: list[Follow | None] = []
    dims: list[int] = []
    for start, step, n in zip(attrs["starts"], attrs["steps"], results[0].shape, strict=True):
        if step < 0:
            operand.append(None)
            result.append(None)
            continue
        operand.append(Follow(len(dims), step, 1, start))
        result.append(Follow(len(dims)))
        dims.append(n)
    return Tiling(tuple(dims), (tuple(operand),), (tuple(result),))


@adapts("tensor.slice")
def _(attrs: Attrs, operands: Sequence[TT], results: Sequence[TT]) -> Attrs:
    """A dim whose operand block is just what the result block needs starts at its first index."""
    starts, stops = list(attrs["starts"]), list(attrs["stops"])
    for d, (step, have, made) in enumerate(zip(attrs["steps"], operands[0].shape, results[0].shape, strict=True)):
        if step > 0 and have == (made - 1) * step + 1:
            starts[d], stops[d] = 0, have
    return {**attrs, "starts": tuple(starts), "stops": tuple(stops)}


@infers("tensor.concat")
def _(attrs: Attrs, operands: Sequence[TT]) -> TT:
    if not operands:
        raise ShapeError("expected at least 1 operand")
    first = operands[0]
    axis = axis_of(attrs["axis"], len(first.shape))
    for i, x in enumerate(operands):
        if x.dtype != first.dtype:
            raise ShapeError(f"operand {i} is {x} but operand 0 has elements {first.dtype}")
        if len(x.shape) != len(first.shape):
            raise ShapeError(f"operand {i} is {x} but operand 0 has {len(first.shape)} dims")
        for d, (n, m) in enumerate(zip(x.shape, first.shape, strict=True)):
            if d != axis and n != m:
                raise ShapeError(f"dim {d} of operand {i} has size {n} but of operand 0 has {m}")
    shape = list(first.shape)
    shape[axis] = sum(x.shape[axis] for x in operands)
    return TT(tuple(shape), first.dtype)


def all_but(x: TT, axis: int) -> tuple[tuple[int, ...], tuple[Follow | None, ...]]:
    """Sizes and follows when every dim but one is parallel, in order."""
    axis = axis_of(axis, len(x.shape))
    follows = tuple(None if d == axis else Follow(d - (d > axis)) for d in range(len(x.shape)))
    return tuple(n for d, n in enumerate(x.shape) if d != axis), follows


@tiles("tensor.concat", "tensor.split")
def _(attrs: Attrs, operands: Sequence[TT], results: Sequence[TT]) -> Tiling:
    dims, follows = all_but(operands[0], attrs["axis"])
    return Tiling(dims, (follows,) * len(operands), (follows,) * len(results))


@infers("tensor.split")
def _(attrs: Attrs, operands: Sequence[TT]) -> tuple[TT, ...]:
    x = one(operands)
    axis = axis_of(attrs["axis"], len(x.shape))
    sizes = _sizes(attrs["sizes"])
    if not sizes:
        raise ShapeError("sizes is empty")
    if sum(sizes) != x.shape[axis]:
        raise ShapeError(f"sizes {list(sizes)} add up to {sum(sizes)} but dim {axis} of {x} has size {x.shape[axis]}")
    return tuple(TT((*x.shape[:axis], n, *x.shape[axis + 1 :]), x.dtype) for n in sizes)


@infers("tensor.pad")
def _(attrs: Attrs, operands: Sequence[TT]) -> TT:
    x = one(operands)
    mode = attrs["mode"]
    if mode not in ("constant", "reflect", "edge"):
        raise ShapeError(f"mode '{mode}' is not constant, reflect or edge")
    shape: list[int] = []
    for what in ("lo", "hi"):
        _per_dim(x, what, attrs[what])
    for d, (n, lo, hi) in enumerate(zip(x.shape, attrs["lo"], attrs["hi"], strict=True)):
        if lo < 0 or hi < 0:
            raise ShapeError(f"dim {d} is padded by {lo} and {hi}; negative padding is a slice")
        most = {"constant": None, "reflect": max(n - 1, 0), "edge": None if n else 0}[mode]
        if most is not None and max(lo, hi) > most:
            raise ShapeError(f"dim {d} of size {n} is padded by {lo} and {hi} but mode '{mode}' allows at most {most}")
        shape.append(lo + n + hi)
    return TT(tuple(shape), x.dtype)


@tiles("tensor.pad")
def _(attrs: Attrs, operands: Sequence[TT], results: Sequence[TT]) -> Tiling:
    """Untouched dims are parallel."""
    follows: list[Follow | None] = []
    dims: list[int] = []
    for n, lo, hi in zip(operands[0].shape, attrs["lo"], attrs["hi"], strict=True):
        if lo or hi:
            follows.append(None)
        else:
            follows.append(Follow(len(dims)))
            dims.append(n)
    return Tiling(tuple(dims), (tuple(follows),), (tuple(follows),))
