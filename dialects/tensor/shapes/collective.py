"""Shape, tiling and work rules of collectives, and which sockets take part in one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import NamedTuple

from headrace.dialects.tensor.shapes import TT, Attrs, ShapeError, Tiling, counts_flops, infers, tiles
from headrace.dialects.tensor.shapes.axes import axis_of, one
from headrace.dialects.tensor.shapes.broadcasting import NUMERIC, follow_all, require_dtype
from headrace.dialects.tensor.shapes.movement import all_but

COMMUNICATING = frozenset(
    f"tensor.{n}" for n in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "permute")
)
"""Ops whose results depend on what other sockets have."""
PER_SOCKET = frozenset(("tensor.socket_slice", "tensor.socket_index", "tensor.socket_choose"))
"""Ops whose results depend on which socket it is, and on nothing that others have."""
KINDS = ("add", "max", "min", "mul")
"""How a collective combines what the sockets have."""


class Group(NamedTuple):
    """The sockets that take part in a collective: axes of the mesh, major first. A socket's coordinate on axis i is
    `socket // strides[i] % sizes[i]`."""

    axes: tuple[str, ...]
    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def sockets(self) -> int:
        """How many sockets a group has."""
        return prod(self.sizes)

    def divides(self, sockets: int) -> bool:
        """Whether so many sockets fall into such groups."""
        return all(sockets % (size * stride) == 0 for size, stride in zip(self.sizes, self.strides, strict=True))

    def rank(self, socket: int) -> int:
        """The place of a socket in its group."""
        found = 0
        for size, stride in zip(self.sizes, self.strides, strict=True):
            found = found * size + socket // stride % size
        return found

    def members(self, socket: int) -> tuple[int, ...]:
        """The sockets of the group of a socket, in order of their places."""
        first = socket
        for size, stride in zip(self.sizes, self.strides, strict=True):
            first -= socket // stride % size * stride
        found = [first]
        for size, stride in zip(self.sizes, self.strides, strict=True):
            found = [at + i * stride for at in found for i in range(size)]
        return tuple(found)


def group_of(attrs: Attrs) -> Group:
    """The group that the attributes of a collective say; `ShapeError` when they say none."""
    group = Group(tuple(attrs["axes"]), tuple(attrs["sizes"]), tuple(attrs["strides"]))
    if not group.axes:
        raise ShapeError("axes is empty; a collective is over one axis of the mesh or more")
    if not len(group.axes) == len(group.sizes) == len(group.strides):
        raise ShapeError(
            f"axes, sizes and strides have {len(group.axes)}, {len(group.sizes)} and {len(group.strides)} "
            "elements; each axis has one of each"
        )
    for name, size, stride in zip(*group, strict=True):
        if size < 1 or stride < 1:
            raise ShapeError(f"axis '{name}' has size {size} and stride {stride}; both are at least 1")
    taken = sorted((stride, size) for size, stride in zip(group.sizes, group.strides, strict=True) if size > 1)
    for (stride, size), (following, _) in pairwise(taken):
        if following % (stride * size):
            raise ShapeError(f"strides {list(group.strides)} of sizes {list(group.sizes)} share sockets")
    return group


def _kind(attrs: Attrs, x: TT) -> None:
    if attrs["kind"] not in KINDS:
        raise ShapeError(f'kind is "{attrs["kind"]}" but must be one of {", ".join(KINDS)}')
    require_dtype(x.dtype, NUMERIC, "a number type, not i1", "input")


def _cut(x: TT, axis: int, count: int) -> TT:
    size = x.shape[axis]
    if size % count:
        raise ShapeError(f"dim {axis} has size {size}, which {count} sockets do not share evenly")
    return TT((*x.shape[:axis], size // count, *x.shape[axis + 1 :]), x.dtype)


def _joined(x: TT, axis: int, count: int) -> TT:
    return TT((*x.shape[:axis], x.shape[axis] * count, *x.shape[axis + 1 :]), x.dtype)


@infers("tensor.all_reduce")
def _(attrs: Attrs, operands: Sequence[TT]) -> TT:
    group_of(attrs)
    _kind(attrs, one(operands))
    return operands[0]


@infers("tensor.permute")
def _(attrs: Attrs, operands: Sequence[TT]) -> TT:
    group_of(attrs)
    return one(operands)


@infers("tensor.all_gather")
def _(attrs: Attrs, operands: Sequence[TT]) -> TT:
    x = one(operands)
    return _joined(x, axis_of(attrs["axis"], len(x.shape)), group_of(attrs).sockets)


@infers("tensor.reduce_scatter")
def _(attrs: Attrs, operands: Sequence[TT]) -> TT:
    x = one(operands)
    _kind(attrs, x)
    return _cut(x, axis_of(attrs["axis"], len(x.shape)), group_of(attrs).sockets)


@infers("tensor.socket_slice")
def _(attrs: Attrs, operands: Sequence[TT]) -> TT:
    x = one(operands)
    return _cut(x, axis_of(attrs["axis"], len(x.shape)), group_of(attrs).sockets)


@infers("tensor.all_to_all")
def _(attrs: Attrs, operands: Sequence[TT]) -> TT:
    x = one(operands)
    split, concat = (axis_of(attrs[name], len(x.shape), name) for name in ("split", "concat"))
    count = group_of(attrs).sockets
    return _joined(_cut(x, split, count), concat, count)


@infers("tensor.socket_index")
def _(attrs: Attrs, operands: Sequence[TT]) -> TT:
    group_of(attrs)
    return TT((), "i32")


@infers("tensor.socket_choose")
def _(attrs: Attrs, operands: Sequence[TT]) -> TT:
    count = group_of(attrs).sockets
    if len(operands) != count:
        raise ShapeError(f"{len(operands)} operands for a group of {count} sockets; each has one")
    if len(set(operands)) > 1:
        raise ShapeError(f"operands are {', '.join(map(str, operands))}; they are of one type")
    return operands[0]


@tiles("tensor.socket_choose")
def _(attrs: Attrs, operands: Sequence[TT], results: Sequence[TT]) -> Tiling:
    follows = follow_all(len(results[0].shape))
    return Tiling(results[0].shape, (follows,) * len(operands), (follows,))


@tiles("tensor.all_reduce", "tensor.permute")
def _(attrs: Attrs, operands: Sequence[TT], results: Sequence[TT]) -> Tiling:
    follows = follow_all(len(results[0].shape))
    return Tiling(results[0].shape, (follows,), (follows,))


@tiles("tensor.all_gather", "tensor.reduce_scatter", "tensor.socket_slice")
def _(attrs: Attrs, operands: Sequence[TT], results: Sequence[TT]) -> Tiling:
    dims, follows = all_but(operands[0], axis_of(attrs["axis"], len(operands[0].shape)))
    return Tiling(dims, (follows,), (follows,))


@tiles("tensor.all_to_all")
def _(attrs: Attrs, operands: Sequence[TT], results: Sequence[TT]) -> Tiling:
    x = operands[0]
    coupled = {axis_of(attrs[name], len(x.shape), name) for name in ("split", "concat")}
    free = [d for d in range(len(x.shape)) if d not in coupled]
    every = follow_all(len(free))
    follows = tuple(every[free.index(d)] if d in free else None for d in range(len(x.shape)))
    return Tiling(tuple(x.shape[d] for d in free), (follows,), (follows,))


@counts_flops("tensor.all_reduce", "tensor.reduce_scatter")
def _(attrs: Attrs, operands: Sequence[TT], results: Sequence[TT]) -> int:
    """What one socket adds up: its share of the sums."""
    count = group_of(attrs).sockets
    return operands[0].elements * (count - 1) // count


@counts_flops(*(f"tensor.{n}" for n in ("all_gather", "all_to_all", "permute")), *sorted(PER_SOCKET))
def _(attrs: Attrs, operands: Sequence[TT], results: Sequence[TT]) -> int:
    return 0
