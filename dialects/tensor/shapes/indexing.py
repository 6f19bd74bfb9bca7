"""Shape, tiling and work rules of ops that move elements to or from positions held in a tensor."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.dialects.support.dtypes import BITS, STORED
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
from headrace.dialects.tensor.shapes.axes import axis_of

REDUCTIONS = ("none", "add", "mul", "min", "max")


def _count(operands: Sequence[TT], n: int) -> None:
    if len(operands) != n:
        raise ShapeError(f"expected {n} operands, found {len(operands)}")


def _indices(x: TT) -> None:
    if x.dtype not in ("i32", "i64"):
        raise ShapeError(f"indices are i32 or i64, found {x}")


def _reduction(attrs: Attrs, data: TT) -> str:
    reduction = attrs["reduction"]
    if reduction not in REDUCTIONS:
        raise ShapeError(f"reduction '{reduction}' is not one of {', '.join(REDUCTIONS)}")
    if reduction != "none" and data.dtype == "i1":
        raise ShapeError(f"reduction '{reduction}' needs numbers but data is {data}")
    return reduction


def _same_elements(data: TT, updates: TT) -> None:
    if data.dtype != updates.dtype:
        raise ShapeError(f"updates are {updates} but data has elements {data.dtype}")


@counts_flops("tensor.gather", "tensor.gather_elements", "tensor.gather_nd", "tensor.iota")
def _(attrs: Attrs, operands: Sequence[TT], results: Sequence[TT]) -> int:
    return 0


@counts_flops("tensor.scatter_elements", "tensor.scatter_nd")
def _(attrs: Attrs, operands: Sequence[TT], results: Sequence[TT]) -> int:
    return 0 if attrs["reduction"] == "none" else operands[2].elements


@infers("tensor.gather")
def _(attrs: Attrs, operands: Sequence[TT]) -> TT:
    _count(operands, 2)
    data, indices = operands
    axis = axis_of(attrs["axis"], len(data.shape))
    _indices(indices)
    return TT(data.shape[:axis] + indices.shape + data.shape[axis + 1 :], data.dtype)


@tiles("tensor.gather")
def _(attrs: Attrs, operands: Sequence[TT], results: Sequence[TT]) -> Tiling:
    """Every result dim is parallel: the index dims follow the indices, the others the data."""
    data, indices = operands
    axis, q = axis_of(attrs["axis"], len(data.shape)), len(indices.shape)
    of_data = tuple(None if d == axis else Follow(d if d < axis else d - 1 + q) for d in range(len(data.shape)))
    of_indices = tuple(Follow(axis + d) for d in range(q))
    result = results[0].shape
    return Tiling(result, (of_data, of_indices), (tuple(Follow(d) for d in range(len(result))),))


@infers("tensor.gather_elements")
def _(attrs: Attrs, operands: Sequence[TT]) -> TT:
    _count(operands, 2)
    data, indices = operands
    axis = axis_of(attrs["axis"], len(data.shape))
    _indices(indices)
    _elementwise_indices(data, indices, axis)
    return TT(indices.shape, data.dtype)


def _elementwise_indices(data: TT, indices: TT, axis: int) -> None:
    if len(indices.shape) != len(data.shape):
        raise ShapeError(f"indices {indices} need as many dims as data {data}")
    for d, (n, m) in enumerate(zip(indices.shape, data.shape, strict=True)):
        if d != axis and n > m:
            raise ShapeError(f"dim {d} of indices has size {n} but of data only {m}")


@tiles("tensor.gather_elements")
def _(attrs: Attrs, operands: Sequence[TT], results: Sequence[TT]) -> Tiling:
    """Every result dim is parallel; the data follows on all dims but `axis`."""
    rank = len(operands[0].shape)
    axis = axis_of(attrs["axis"], rank)
    every = tuple(Follow(d) for d in range(rank))
    return Tiling(results[0].shape, (tuple(None if d == axis else Follow(d) for d in range(rank)), every), (every,))


def _nd(data: TT, indices: TT, batch: int) -> int:
    """The checked length of an index tuple."""
    _indices(indices)
    if not indices.shape:
        raise ShapeError("indices need at least 1 dim, which holds the coordinates")
    if not 0 <= batch < min(len(data.shape), len(indices.shape)):
        raise ShapeError(f"batch_dims {batch} is out of range for data {data} and indices {indices}")
    if data.shape[:batch] != indices.shape[:batch]:
        raise ShapeError(f"the first {batch} dims of data {data} and indices {indices} differ")
    k = indices.shape[-1]
    if not 1 <= k <= len(data.shape) - batch:
        raise ShapeError(
            f"index tuples have {k} coordinates but data {data} has {len(data.shape) - batch} dims to index"
        )
    return k


@infers("tensor.gather_nd")
def _(attrs: Attrs, operands: Sequence[TT]) -> TT:
    _count(operands, 2)
    data, indices = operands
    batch = attrs["batch_dims"]
    k = _nd(data, indices, batch)
    return TT(indices.shape[:-1] + data.shape[batch + k :], data.dtype)


@tiles("tensor.gather_nd")
def _(attrs: Attrs, operands: Sequence[TT], results: Sequence[TT]) -> Tiling:
    """Every result dim is parallel: batch dims on both, index dims on the indices, the rest on the data."""
    data, indices = operands
    batch, k, q = attrs["batch_dims"], indices.shape[-1], len(indices.shape) - 1
    head = tuple(Follow(d) for d in range(batch))
    tail = tuple(Follow(q + i) for i in range(len(data.shape) - batch - k))
    of_indices = (*(Follow(d) for d in range(q)), None)
    result = results[0].shape
    return Tiling(result, ((*head, *((None,) * k), *tail), of_indices), (tuple(Follow(d) for d in range(len(result))),))


@infers("tensor.scatter_elements")
def _(attrs: Attrs, operands: Sequence[TT]) -> TT:
    _count(operands, 3)
    data, indices, updates = operands
    axis = axis_of(attrs["axis"], len(data.shape))
    _reduction(attrs, data)
    _indices(indices)
    _same_elements(data, updates)
    _elementwise_indices(data, indices, axis)
    if indices.shape != updates.shape:
        raise ShapeError(f"indices {indices} and updates {updates} differ in shape")
    return data


@tiles("tensor.scatter_elements")
def _(attrs: Attrs, operands: Sequence[TT], results: Sequence[TT]) -> Tiling:
    """Dims other than `axis` are parallel where the updates cover them."""
    data, indices, _ = operands
    axis = axis_of(attrs["axis"], len(data.shape))
    follows: list[Follow | None] = []
    dims: list[int] = []
    for d, (n, m) in enumerate(zip(data.shape, indices.shape, strict=True)):
        if d == axis or n != m:
            follows.append(None)
        else:
            follows.append(Follow(len(dims)))
            dims.append(n)
    every = tuple(follows)
    return Tiling(tuple(dims), (every,) * 3, (every,))


@infers("tensor.scatter_nd")
def _(attrs: Attrs, operands: Sequence[TT]) -> TT:
    _count(operands, 3)
    data, indices, updates = operands
    _reduction(attrs, data)
    _same_elements(data, updates)
    if not data.shape:
        raise ShapeError("data needs at least 1 dim")
    k = _nd(data, indices, 0)
    wanted = indices.shape[:-1] + data.shape[k:]
    if updates.shape != wanted:
        raise ShapeError(f"updates are {updates} but indices and data give {TT(wanted, data.dtype)}")
    return data


@tiles("tensor.scatter_nd")
def _(attrs: Attrs, operands: Sequence[TT], results: Sequence[TT]) -> Tiling:
    """The data dims behind the indexed ones are parallel."""
    data, indices, updates = operands
    k = indices.shape[-1]
    tail = tuple(Follow(i) for i in range(len(data.shape) - k))
    of_data = (*((None,) * k), *tail)
    of_updates = (*((None,) * (len(updates.shape) - len(tail))), *tail)
    return Tiling(data.shape[k:], (of_data, (None,) * len(indices.shape), of_updates), (of_data,))


@infers("tensor.iota")
def _(attrs: Attrs, operands: Sequence[TT]) -> TT:
    _count(operands, 0)
    shape, dtype = tuple(attrs["shape"]), attrs["dtype"]
    if dtype not in BITS or dtype in ("i1", *STORED):
        raise ShapeError(f"dtype '{dtype}' is not a number type")
    if any(n < 0 for n in shape):
        raise ShapeError(f"shape {list(shape)} has a negative size")
    axis_of(attrs["axis"], len(shape))
    return TT(shape, dtype)


@tiles("tensor.iota")
def _(attrs: Attrs, operands: Sequence[TT], results: Sequence[TT]) -> Tiling:
    """Every dim but `axis` is parallel."""
    shape = results[0].shape
    axis = axis_of(attrs["axis"], len(shape))
    follows = tuple(None if d == axis else Follow(d - (d > axis)) for d in range(len(shape)))
    return Tiling(tuple(n for d, n in enumerate(shape) if d != axis), (), (follows,))


@adapts("tensor.iota")
def _(attrs: Attrs, operands: Sequence[TT], results: Sequence[TT]) -> Attrs:
    return {**attrs, "shape": results[0].shape}
