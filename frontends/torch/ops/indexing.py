"""Rows at indices."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.frontends.building import Refused, Value
from headrace.frontends.torch.node import Node
from headrace.frontends.torch.ops import converts


@converts("embedding")
def _embedding(n: Node) -> Value:
    return n.op("gather", n["weight"], n["indices"], axis=0)


@converts("index_select")
def _index_select(n: Node) -> Value:
    x = n["self"]
    return n.done(n.op("gather", x, n.reshape(n["index"], (n["index"].type.elements,)), axis=n.dim("dim", x.rank)))


@converts("gather")
def _gather(n: Node) -> Value:
    x = n["self"]
    return n.op("gather_elements", x, n["index"], axis=n.dim("dim", x.rank))


def _indices(n: Node, x: Value) -> list[Value | None]:
    """The indices of each dim of x; a mask that is known while importing becomes the positions where it is true."""
    import numpy as np

    found: list[Value | None] = []
    for index in n.get("indices", ()):
        if index is None or index.dtype not in ("i1", "ui8"):
            found.append(None if index is None else n.cast(index, "i64"))
            continue
        mask = n.builder.array(index)
        if mask is None:
            raise Refused(
                "a mask that is computed when the model runs selects an unknown number of elements",
                "shapes are static: keep all elements and mask them, as with torch.where",
                code="dynamic-shape",
            )
        found += [n.constant(positions.astype(np.int64)) for positions in np.nonzero(mask)]
    return found


def _at(given: Sequence[Value | None]) -> tuple[tuple[int, ...], tuple[int, ...], bool]:
    """Dims that are indexed, the shape of the indices together, and whether the dims are neighbours."""
    import numpy as np

    dims = tuple(d for d, index in enumerate(given) if index is not None)
    shape = np.broadcast_shapes(*(index.shape for index in given if index is not None))
    return dims, shape, dims == tuple(range(dims[0], dims[-1] + 1))


@converts("index", "_unsafe_index")
def _index(n: Node) -> Value:
    """Indexed dims that are neighbours are replaced where they are; others come first."""
    x = n["self"]
    given = _indices(n, x)
    dims, shape, near = _at(given)
    if len(dims) == 1:
        index = given[dims[0]]
        assert index is not None
        return n.done(n.op("gather", x, index, axis=dims[0]))
    others = [d for d in range(x.rank) if d not in dims]
    table = n.transpose(x, (*dims, *others))
    columns = [n.reshape(n.broadcast(index, shape), (*shape, 1)) for index in given if index is not None]
    y = n.op("gather_nd", table, n.op("concat", *columns, axis=len(shape)))
    if near and dims[0]:
        rank, first = len(shape), dims[0]
        lead = range(rank, rank + first)
        y = n.transpose(y, (*lead, *range(rank), *range(rank + first, y.rank)))
    return n.done(y)


@converts("index_put", "_unsafe_index_put")
def _index_put(n: Node) -> Value:
    """Coordinates of all dims up to the last one that is indexed, so that what is written are rows."""
    x, values = n["self"], n.cast(n["values"], n["self"].dtype)
    masks = [index for index in n.get("indices", ()) if index is not None and index.dtype in ("i1", "ui8")]
    if len(masks) == 1 and n.builder.array(masks[0]) is None and not n.get("accumulate"):
        return _masked(n, x, masks[0], values)
    given = _indices(n, x)
    dims, shape, near = _at(given)
    inner = [d for d in range(dims[-1]) if d not in dims]
    lead = [x.shape[d] for d in inner]
    grid = (*lead, *shape) if near else (*shape, *lead)
    first, outer = (len(lead), 0) if near else (0, len(shape))
    columns: list[Value] = []
    for d in range(dims[-1] + 1):
        index = given[d]
        if index is None:
            axis = outer + inner.index(d)
            column = n.op("iota", shape=grid, dtype="i64", axis=axis)
        else:
            ones = (1,) * (len(grid) - first - len(shape))
            column = n.broadcast(n.reshape(n.broadcast(index, shape), (*shape, *ones)), grid)
        columns.append(n.reshape(column, (*grid, 1)))
    coordinates = n.op("concat", *columns, axis=len(grid)) if len(columns) > 1 else columns[0]
    rest = x.shape[dims[-1] + 1 :]
    reduction = "add" if n.get("accumulate") else "none"
    return n.op("scatter_nd", x, coordinates, n.broadcast(values, (*grid, *rest)), reduction=reduction)


def _masked(n: Node, x: Value, mask: Value, values: Value) -> Value:
    """The same values wherever a mask is true."""
    first = next(d for d, index in enumerate(n.get("indices")) if index is not None)
    rest = x.rank - first - mask.rank
    mask = n.reshape(n.cast(mask, "i1"), (*(1,) * first, *mask.shape, *(1,) * rest))
    if values.rank > rest:
        if any(size != 1 for size in values.shape[: values.rank - rest]):
            raise Refused(
                "values are written where a mask is true that is computed when the model runs",
                "shapes are static: write torch.where(mask, values, x)",
                code="dynamic-shape",
            )
        values = n.reshape(values, values.shape[values.rank - rest :])
    return n.op("select", mask, values, x)
