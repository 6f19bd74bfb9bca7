"""Rows at indices."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.dialects.support import dtypes
from headrace.dialects.tensor.shapes import TT
from headrace.frontends.building import Refused, Value
from headrace.frontends.torch.node import Node
from headrace.frontends.torch.ops import converts
from headrace.frontends.torch.ops.elementwise import floor_divide
from headrace.frontends.torch.ops.reduction import norm


@converts("embedding")
def _embedding(n: Node) -> Value:
    """Rows of a table. `padding_idx` and the rest say what becomes of gradients."""
    return n.op("gather", n["weight"], n["indices"], axis=0)


@converts("embedding_renorm")
def _embedding_renorm(n: Node) -> Value:
    """Rows that are looked up and longer than the most are shortened to it."""
    table, index, most = n["self"], n["indices"], float(n.number("max_norm"))
    if not index.type.elements or not n.type.elements:
        return table
    size = norm(n, table, float(n.number("norm_type")), lambda n, name, x: n.op(name, x, axes=(1,), keepdims=True))
    rows = n.reshape(n.cast(index, "i64"), (index.type.elements, 1))
    seen = n.op("scatter_nd", n.filled(False, TT(size.shape, "i1")), rows, n.filled(True, TT(rows.shape, "i1")))
    factor = n.op("div", n.scalar(most, size.dtype), n.op("add", size, 1e-7))
    long = n.op("and", seen, n.op("greater", size, n.scalar(most, size.dtype)))
    return n.op("select", long, n.op("mul", table, factor), table)


@converts("_embedding_bag", "_embedding_bag_forward_only")
def _embedding_bag(n: Node) -> tuple[Value | None, ...]:
    """Rows of a table, summed, averaged or their maximum by bag; also the bag of each row, and how many are in each.
    A row's bag is that of the last offset up to it; bags without rows are zero."""
    table, index, offsets = n["weight"], n["indices"], n.cast(n["offsets"], "i64")
    if n.get("include_last_offset"):
        offsets = n.slice(offsets, 0, 0, offsets.shape[0] - 1)
    (rows,), (bags,), width = index.shape, offsets.shape, table.shape[1]
    mode = ("add", "mean", "max")[int(n.number("mode", 0))]
    if not rows or not n.type.elements:
        return n.filled(0, n.type), *(n.filled(0, type) if type else None for type in n.results[1:])
    bag = _bag(n, offsets, rows)
    part = n.op("gather", table, index, axis=0)
    if n.has("per_sample_weights"):
        part = n.op("mul", part, n.reshape(n["per_sample_weights"], (rows, 1)))
    counted = n.filled(1, TT((rows,), "i64"))
    padding = n.number("padding_idx", -1)
    least = 0 if mode != "max" else dtypes.lowest(part.dtype)
    if padding >= 0:
        kept = n.op("not_equal", index, n.scalar(padding, index.dtype))
        counted = n.cast(kept, "i64")
        part = n.op("select", n.reshape(kept, (rows, 1)), part, n.scalar(least, part.dtype))
    where = n.reshape(bag, (rows, 1))
    reduction = "max" if mode == "max" else "add"
    y = n.op("scatter_nd", n.filled(least, TT((bags, width), part.dtype)), where, part, reduction=reduction)
    counts = n.op("scatter_nd", n.filled(0, TT((bags,), "i64")), where, counted, reduction="add")
    if mode == "mean":
        most = n.cast(n.op("max", counts, n.scalar(1, "i64")), y.dtype)
        y = n.op("div", y, n.reshape(most, (bags, 1)))
    elif mode == "max":
        y = n.op("select", n.op("equal", n.reshape(counts, (bags, 1)), 0), n.scalar(0, y.dtype), y)
    sizes = n.filled(0, TT((bags,), "i64")) if mode == "add" else counts
    others = (bag, sizes, None if mode == "max" else sizes)
    return y, *(_as(n, x, result) for result, x in enumerate(others, 1))


def _bag(n: Node, offsets: Value, rows: int) -> Value:
    """The bag of each row."""
    at = n.op("iota", shape=(rows, 1), dtype="i64", axis=0)
    before = n.cast(n.op("less_equal", n.reshape(offsets, (1, offsets.shape[0])), at), "i64")
    return n.op("sub", n.op("reduce_sum", before, axes=(1,), keepdims=False), 1)


@converts("_embedding_bag_backward", "_embedding_bag_dense_backward")
def _embedding_bag_backward(n: Node) -> Value:
    """Each row of the table gets what the bags of it got, a mean's share of it."""
    dy, index, sizes = (n["grad" if n.has("grad") else "grad_output"], n["indices"], n["bag_size"])
    (rows,), width, (count, _) = index.shape, dy.shape[1], n.type.shape
    mode = ("add", "mean", "max")[int(n.number("mode", 0))]
    if mode == "max" or n.get("scale_grad_by_freq"):
        raise Refused("gradients of maxima of bags, and those that are scaled by how often a row is used, are not made")
    if not rows or not n.type.elements:
        return n.filled(0, n.type)
    if mode == "mean":
        most = n.op("max", n.cast(sizes, "i64"), n.scalar(1, "i64"))
        dy = n.op("div", dy, n.reshape(n.cast(most, dy.dtype), (dy.shape[0], 1)))
    bag = n["offset2bag"]
    if not bag.type.elements:
        bag = _bag(n, n.cast(n["offsets"], "i64"), rows)
    part = n.op("gather", dy, bag, axis=0)
    if n.has("per_sample_weights"):
        part = n.op("mul", part, n.reshape(n["per_sample_weights"], (rows, 1)))
    padding = n.number("padding_idx", -1)
    if padding >= 0:
        kept = n.op("not_equal", index, n.scalar(padding, index.dtype))
        part = n.op("select", n.reshape(kept, (rows, 1)), part, n.scalar(0, part.dtype))
    zeros = n.filled(0, TT((count, width), part.dtype))
    return n.op("scatter_nd", zeros, n.reshape(n.cast(index, "i64"), (rows, 1)), part, reduction="add")


def _as(n: Node, x: Value | None, result: int) -> Value | None:
    """A result in its type; an empty one has no elements; None when it is another."""
    type = n.results[result]
    if x is None or type is None:
        return None
    return n.filled(0, type) if not type.elements else n.cast(x, type.dtype) if x.shape == type.shape else None


def _line(n: Node, x: Value) -> Value:
    """A tensor in which a scalar has one dim."""
    return x if x.rank else n.reshape(x, (1,))


@converts("index_select")
def _index_select(n: Node) -> Value:
    x, index = _line(n, n["self"]), n["index"]
    return n.done(n.op("gather", x, n.reshape(index, (index.type.elements,)), axis=n.dim("dim", x.rank)))


@converts("gather")
def _gather(n: Node) -> Value:
    x, index = _line(n, n["self"]), _line(n, n["index"])
    if not index.type.elements:
        return n.filled(0, n.type)
    return n.done(n.op("gather_elements", x, index, axis=n.dim("dim", x.rank)))


@converts("take")
def _take(n: Node) -> Value:
    """Elements counted in row-major order, from the end where an index is negative."""
    x, index = n["self"], n.cast(n["index"], "i64")
    if not index.type.elements:
        return n.filled(0, n.type)
    return n.op("gather", n.reshape(x, (x.type.elements,)), index, axis=0)


@converts("put")
def _put(n: Node) -> Value:
    """Elements counted in row-major order."""
    x = n["self"]
    flat, index = n.reshape(x, (x.type.elements,)), n["index"]
    if not index.type.elements:
        return x
    index = n.reshape(index, (index.type.elements,))
    new = n.reshape(n.cast(n["source"], x.dtype), index.shape)
    reduction = "add" if n.get("accumulate") else "none"
    return n.reshape(_written(n, "scatter_elements", flat, index, new, reduction, axis=0), x.shape)


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
    given = [index for index in n.get("indices", ()) if index is not None]
    if len(given) == 1 and given[0].dtype in ("i1", "ui8") and n.builder.array(given[0]) is None:
        return _masked(n, x, given[0], values)
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
    return _written(n, "scatter_nd", x, coordinates, n.broadcast(values, (*grid, *rest)), reduction)


def _masked(n: Node, x: Value, mask: Value, values: Value) -> Value:
    """Values where a mask is true: the same everywhere, or the next ones in the order of the mask's elements. There are
    as many as it is true, which PyTorch checks when it runs: the last one stands for more."""
    first = next(d for d, index in enumerate(n.get("indices")) if index is not None)
    lead, rest = x.shape[:first], x.shape[first + mask.rank :]
    spread = n.reshape(n.cast(mask, "i1"), (*(1,) * first, *mask.shape, *(1,) * len(rest)))
    values = n.reshape(values, (1,) * (len(lead) + 1 + len(rest) - values.rank) + values.shape)
    count = values.shape[first]
    if not count or not x.type.elements:
        return x
    if count > 1:
        flat = n.cast(n.reshape(spread, (mask.type.elements,)), "i64")
        at = n.op("min", n.op("cumsum", flat, axis=0, exclusive=True), n.scalar(count - 1, "i64"))
        values = n.op("gather", values, at, axis=first)
        values = n.reshape(values, (*values.shape[:first], *mask.shape, *values.shape[first + 1 :]))
    else:
        values = n.reshape(values, (*values.shape[:first], *(1,) * mask.rank, *values.shape[first + 1 :]))
    if n.get("accumulate"):
        values = n.op("or" if x.dtype == "i1" else "add", x, values)
    return n.done(n.op("select", spread, values, x))


# Parts written at indices

REDUCTIONS = {
    "add": "add", "sum": "add", "mean": "add", "multiply": "mul", "prod": "mul", "amax": "max", "amin": "min"
}  # fmt: skip


def _part(n: Node, x: Value, index: Value) -> Value:
    """The elements that are written: as many as the index has of a tensor, or one number everywhere."""
    found = n.get("src", n.get("value"))
    if not isinstance(found, Value):
        return n.broadcast(n.scalar(found, x.dtype), index.shape)
    part = n.cast(_line(n, found), x.dtype)
    for axis, size in enumerate(index.shape):
        part = n.slice(part, axis, 0, size) if part.shape[axis] != size else part
    return part


@converts("scatter", "scatter_add")
def _scatter(n: Node) -> Value:
    x, index = _line(n, n["self"]), _line(n, n["index"])
    how = n.get("reduce", "add" if n.stem == "scatter_add" else None)
    if not index.type.elements:
        return n["self"]
    return n.done(_scattered(n, x, index, _part(n, x, index), REDUCTIONS[how] if how else "none"))


def _scattered(n: Node, x: Value, index: Value, part: Value, reduction: str) -> Value:
    """Elements written along dim `dim`."""
    return _written(n, "scatter_elements", x, index, part, reduction, axis=n.dim("dim", x.rank))


def _written(n: Node, op: str, x: Value, index: Value, part: Value, reduction: str, **attrs: int) -> Value:
    """Elements or rows written at indices; truth values are combined as numbers."""
    if x.dtype != "i1" or reduction == "none":
        return n.op(op, x, index, part, reduction=reduction, **attrs)
    reduction = {"add": "max", "mul": "min"}.get(reduction, reduction)
    return n.cast(n.op(op, n.cast(x, "ui8"), index, n.cast(part, "ui8"), reduction=reduction, **attrs), "i1")


@converts("scatter_reduce", "index_reduce")
def _scatter_reduce(n: Node) -> Value:
    """Elements combined with what is there, or only with one another; a mean is a sum over a count."""
    x, index = _line(n, n["self"]), _line(n, n["index"])
    if not index.type.elements:
        return n["self"]
    how, include = n.get("reduce"), bool(n.get("include_self", True))
    if n.stem == "index_reduce":
        part = n.cast(_line(n, n["source"]), x.dtype)
        axis = n.dim("dim", x.rank)
        index = n.reshape(index, (*(1,) * axis, part.shape[axis], *(1,) * (x.rank - axis - 1)))
        index = n.broadcast(index, part.shape)
    else:
        part = _part(n, x, index)
    reduction = REDUCTIONS[how]
    base = x
    if not include:  # what is written starts from the number that changes nothing
        low, high = dtypes.lowest(x.dtype), dtypes.highest(x.dtype)
        first = {"add": 0, "mul": 1, "max": low, "min": high}[reduction]
        base = _scattered(n, x, index, n.filled(first, part.type), "none")
    y = _scattered(n, base, index, part, reduction)
    if how == "mean":
        counts = n.filled(int(include), x.type)
        if not include:
            counts = _scattered(n, n.filled(1, x.type), index, n.filled(0, part.type), "none")
        counts = _scattered(n, counts, index, n.filled(1, part.type), "add")
        y = n.op("div", y, counts) if dtypes.is_float(x.dtype) else floor_divide(n, y, counts)
    return n.done(y)


@converts("masked_scatter")
def _masked_scatter(n: Node) -> Value:
    """The elements of a tensor, in order, where a mask is true: how many are so before says which."""
    source = n["source"]
    shape = n.type.shape
    x, mask = n.broadcast(n["self"], shape), n.broadcast(n.cast(n["mask"], "i1"), shape)
    if not source.type.elements or not n.type.elements:
        return x
    flat = n.cast(n.reshape(mask, (n.type.elements,)), "i64")
    at = n.op("cumsum", flat, axis=0, exclusive=True)
    at = n.op("min", at, n.scalar(source.type.elements - 1, "i64"))
    new = n.op("gather", n.reshape(source, (source.type.elements,)), at, axis=0)
    return n.op("select", mask, n.reshape(n.cast(new, x.dtype), shape), x)


@converts("repeat_interleave.Tensor")
def _repeat_interleave(n: Node) -> Value:
    """The position of each copy's original: how many runs end at or before it."""
    repeats = n.cast(n["repeats"], "i64")
    size = n.type.shape[0]
    if not size:
        return n.filled(0, n.type)
    ends = n.reshape(n.op("cumsum", repeats, axis=0), (1, repeats.shape[0]))
    at = n.op("iota", shape=(size, 1), dtype="i64", axis=0)
    before = n.cast(n.op("less_equal", ends, at), "i64")
    return n.done(n.op("reduce_sum", before, axes=(1,), keepdims=False))


# Experts


@converts("_grouped_mm")
def _grouped_mm_of_torch(n: Node) -> Value:
    """As that of transformers, of rows by groups of rows."""
    x, weight = n["self"], n["mat2"]
    if n.has("bias") or n.has("out_dtype") or not n.has("offs") or (x.rank, weight.rank) != (2, 3):
        raise Refused("only rows times the matrix of their group are supported", "give offs, and neither bias nor type")
    return _by_group(n, x, weight)


@converts("transformers.grouped_mm_fallback.default")
def _grouped_mm(n: Node) -> Value:
    return _by_group(n, n["input"], n["weight"])


def _by_group(n: Node, x: Value, weight: Value) -> Value:
    """Rows that are sorted by group, each times the matrix of its group; `offs` says where groups end.

    Few rows take their matrices each: a product of a row reads one matrix. With more rows than groups each row is as
    long as all groups together, zero but for the part of its own, and one product reads every matrix once: it makes as
    many multiplications as groups that do not count.
    """
    rows, (groups, depth, width) = x.shape[0], weight.shape
    group = _group(n, rows, groups)
    if rows <= groups:
        own = n.op("gather", weight, n.op("min", group, n.scalar(groups - 1, "i64")), axis=0)
        y = n.reshape(n.op("matmul", n.reshape(x, (rows, 1, depth)), own), (rows, width))
        inside = n.op("less", n.reshape(group, (rows, 1)), n.scalar(groups, "i64"))
        return n.op("select", inside, y, n.scalar(0, x.dtype))
    spread = _spread(n, x, group, groups)
    return n.op("matmul", spread, n.reshape(weight, (groups * depth, width)))


def _group(n: Node, rows: int, groups: int) -> Value:
    """The group of each row: how many groups end at or before it."""
    ends = n.reshape(n.cast(n["offs"], "i64"), (1, groups))
    at = n.op("iota", shape=(rows, 1), dtype="i64", axis=0)
    return n.op("reduce_sum", n.cast(n.op("less_equal", ends, at), "i64"), axes=(1,), keepdims=False)


def _spread(n: Node, x: Value, group: Value, groups: int) -> Value:
    """Rows as long as all groups together, zero but for the part of their own."""
    rows, depth = x.shape
    numbers = n.op("iota", shape=(1, groups, 1), dtype="i64", axis=1)
    mine = n.op("equal", n.reshape(group, (rows, 1, 1)), numbers)
    spread = n.op("select", mine, n.reshape(x, (rows, 1, depth)), n.scalar(0, x.dtype))
    return n.reshape(spread, (rows, groups * depth))


@converts("transformers.grouped_mm_fallback_backward.default")
def _grouped_mm_backward(n: Node) -> tuple[Value, Value]:
    """Gradients of rows and of matrices: those of a matrix are sums over the rows of its group."""
    x, weight, gradient = n["input"], n["weight"], n["grad_output"]
    rows, (groups, depth, width) = x.shape[0], weight.shape
    group = _group(n, rows, groups)
    back = n.reshape(n.transpose(weight, (0, 2, 1)), (groups * width, depth))
    of_rows = n.op("matmul", _spread(n, gradient, group, groups), back)
    of_matrices = n.op("matmul", n.transpose(_spread(n, x, group, groups), (1, 0)), gradient)
    return of_rows, n.reshape(of_matrices, weight.shape)
