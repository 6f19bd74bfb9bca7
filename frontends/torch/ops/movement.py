"""Views and copies: shapes, orders, parts and joins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.frontends.building import Refused, Value
from headrace.frontends.torch.node import Node
from headrace.frontends.torch.ops import converts

if TYPE_CHECKING:
    from headrace.frontends.building import Array


@converts(
    "view", "_unsafe_view", "reshape", "unsqueeze", "squeeze", "flatten", "unflatten", "view_copy", "_reshape_copy"
)
def _view(n: Node) -> Value:
    x = n["self"]
    if x.dtype != n.type.dtype:
        raise Refused("it looks at the bits of another type", "cast with .to(dtype)")
    return n.reshape(x, n.type.shape)


@converts("permute", "permute_copy")
def _permute(n: Node) -> Value:
    x = n["self"]
    return n.transpose(x, [d % x.rank for d in n.ints("dims")]) if x.rank else x


@converts("_local_scalar_dense")
def _item(n: Node) -> Value:
    """The only element, as a number."""
    return n.reshape(n["self"], ())


@converts("transpose")
def _transpose(n: Node) -> Value:
    x = n["self"]
    perm = list(range(x.rank))
    a, b = n.dim("dim0", x.rank), n.dim("dim1", x.rank)
    if x.rank:
        perm[a], perm[b] = perm[b], perm[a]
    return n.transpose(x, perm)


@converts("t")
def _t(n: Node) -> Value:
    x = n["self"]
    return n.transpose(x, tuple(reversed(range(x.rank))))


@converts("expand", "expand_copy")
def _expand(n: Node) -> Value:
    return n.broadcast(n["self"], n.type.shape)


def _bounds(n: Node, size: int) -> tuple[int, int, int]:
    """Start, end and step of a part of a dim, within it."""
    start, end = (min(max(i + size if i < 0 else i, 0), size) for i in (n.number("start", 0), n.number("end", size)))
    return start, max(start, end), n.number("step", 1)


@converts("slice", "slice_copy")
def _slice(n: Node) -> Value:
    x = n["self"]
    axis = n.dim("dim", x.rank, 0)
    start, end, step = _bounds(n, x.shape[axis])
    return x if (start, end, step) == (0, x.shape[axis], 1) else n.slice(x, axis, start, end, step)


@converts("select", "select_copy")
def _select(n: Node) -> Value:
    x, index = n["self"], n.get("index")
    axis = n.dim("dim", x.rank)
    if isinstance(index, Value) and not index.known:
        return n.op("gather", x, n.cast(index, "i64"), axis=axis)
    index = n.number("index")
    index += x.shape[axis] if index < 0 else 0
    return n.reshape(n.slice(x, axis, index, index + 1), n.type.shape)


@converts("cat")
def _cat(n: Node) -> Value:
    parts = [n.cast(x, n.type.dtype) for x in n.tensors("tensors")]
    parts = [x for x in parts if x.shape != (0,)] or parts[:1]  # PyTorch leaves out empty vectors
    if len(parts) == 1:
        return parts[0]
    return n.op("concat", *parts, axis=n.dim("dim", parts[0].rank, 0))


@converts("stack")
def _stack(n: Node) -> Value:
    parts = [n.cast(x, n.type.dtype) for x in n.tensors("tensors")]
    axis = n.dim("dim", parts[0].rank + 1, 0)
    rows = [n.reshape(x, (*x.shape[:axis], 1, *x.shape[axis:])) for x in parts]
    return n.op("concat", *rows, axis=axis) if len(rows) > 1 else rows[0]


@converts("split_with_sizes", "split_with_sizes_copy")
def _split(n: Node) -> tuple[Value, ...]:
    x = n["self"]
    axis = n.dim("dim", x.rank, 0)
    found: list[Value] = []
    at = 0
    for size in n.ints("split_sizes"):
        found.append(n.slice(x, axis, at, at + size))
        at += size
    return tuple(found)


@converts("unbind")
def _unbind(n: Node) -> tuple[Value, ...]:
    x = n["self"]
    axis = n.dim("dim", x.rank, 0)
    shape = (*x.shape[:axis], *x.shape[axis + 1 :])
    return tuple(n.reshape(n.slice(x, axis, i, i + 1), shape) for i in range(x.shape[axis]))


@converts("constant_pad_nd")
def _pad(n: Node) -> Value:
    """Pads are pairs from the last dim on; negative ones crop."""
    x = n["self"]
    pads = n.ints("pad")
    value = n.number("value", 0)
    if not x.type.elements or not n.type.elements:
        return n.filled(value, n.type)
    lo, hi = [0] * x.rank, [0] * x.rank
    for i in range(len(pads) // 2):
        lo[x.rank - 1 - i], hi[x.rank - 1 - i] = pads[2 * i], pads[2 * i + 1]
    for axis in range(x.rank):
        first, last = max(-lo[axis], 0), x.shape[axis] - max(-hi[axis], 0)
        if first >= last:
            return n.filled(value, n.type)
        if (first, last) != (0, x.shape[axis]):
            x = n.slice(x, axis, first, last)
    lo, hi = [max(v, 0) for v in lo], [max(v, 0) for v in hi]
    if not any((*lo, *hi)):
        return x
    return n.op("pad", x, lo=tuple(lo), hi=tuple(hi), mode="constant", value=float(value))


@converts("flip")
def _flip(n: Node) -> Value:
    """Backwards along dims."""
    x = n["self"]
    dims = n.ints("dims") if x.rank else ()
    for axis in sorted({d % x.rank for d in dims}):
        if x.shape[axis] > 1:
            x = n.slice(x, axis, x.shape[axis] - 1, -1, -1)
    return x


@converts("repeat")
def _repeat(n: Node) -> Value:
    """Copies of the whole side by side: a new dim before each that is repeated."""
    x, times = n["self"], n.ints("repeats")
    shape = (*(1,) * (len(times) - x.rank), *x.shape)
    apart = [size for pair in zip((1,) * len(times), shape, strict=True) for size in pair]
    spread = [size for pair in zip(times, shape, strict=True) for size in pair]
    return n.reshape(n.broadcast(n.reshape(x, apart), spread), n.type.shape)


@converts("copy")
def _copy(n: Node) -> Value:
    return n.done(n["src"])


@converts("slice_scatter")
def _slice_scatter(n: Node) -> Value:
    """What is before, the new part, what is after; with steps, rows at positions."""
    x, part = n["self"], n.cast(n["src"], n["self"].dtype)
    axis = n.dim("dim", x.rank, 0)
    size = x.shape[axis]
    start, end, step = _bounds(n, size)
    if start == end:
        return x
    part = n.broadcast(part, (*x.shape[:axis], len(range(start, end, step)), *x.shape[axis + 1 :]))
    if step == 1:
        sides = [n.slice(x, axis, 0, start), part, n.slice(x, axis, end, size)]
        sides = [side for side in sides if side.shape[axis]]
        return n.op("concat", *sides, axis=axis) if len(sides) > 1 else part
    at = n.int64s(range(start, end, step))
    at = n.reshape(at, (*(1,) * axis, part.shape[axis], *(1,) * (x.rank - axis - 1)))
    return n.op("scatter_elements", x, n.broadcast(at, part.shape), part, axis=axis)


def _diagonal_of(n: Node, x: Value) -> tuple[int, int, int, int, int]:
    """The two dims of a diagonal, where it starts in each, and its length."""
    a, b, offset = n.dim("dim1", x.rank, 0), n.dim("dim2", x.rank, 1), n.number("offset", 0)
    down, right = max(-offset, 0), max(offset, 0)
    return a, b, down, right, max(min(x.shape[a] - down, x.shape[b] - right), 0)


@converts("diagonal", "diagonal_copy")
def _diagonal(n: Node) -> Value:
    """Every (length + 1)th element of the square that has it as its diagonal; it becomes the last dim."""
    x = n["self"]
    a, b, down, right, length = _diagonal_of(n, x)
    if not n.type.elements:
        return n.filled(0, n.type)
    x = n.slice(n.slice(x, a, down, down + length), b, right, right + length)
    others = [d for d in range(x.rank) if d not in (a, b)]
    x = n.transpose(x, (*others, a, b))
    x = n.reshape(x, (*x.shape[:-2], length * length))
    return n.slice(x, x.rank - 1, 0, length * length, length + 1)


@converts("diagonal_scatter")
def _diagonal_scatter(n: Node) -> Value:
    """The elements of the diagonal written at their coordinates."""
    import numpy as np

    x, part = n["self"], n["src"]
    a, b, down, right, length = _diagonal_of(n, x)
    if not part.type.elements:
        return x
    others = [d for d in range(x.rank) if d not in (a, b)]
    steps = np.arange(length)
    at = n.constant(np.stack([steps + down, steps + right], axis=1))
    rows = n.transpose(x, (a, b, *others))
    new = n.transpose(n.cast(part, x.dtype), (part.rank - 1, *range(part.rank - 1)))
    y = n.op("scatter_nd", rows, at, new)
    return n.transpose(y, [(a, b, *others).index(d) for d in range(x.rank)])


def _storage(n: Node, x: Value) -> Array:
    """For each element of a view the position of the dense tensor's element that it shows."""
    import numpy as np

    sizes, strides, offset = n.ints("size"), n.ints("stride"), n.number("storage_offset", 0)
    at = np.full(sizes, offset, np.int64)
    for d, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        at += (np.arange(size, dtype=np.int64) * stride).reshape((-1,) + (1,) * (len(sizes) - 1 - d))
    if at.size and not 0 <= at.min() <= at.max() < x.type.elements:
        raise Refused("it shows elements that are not its operand's", "index the whole tensor")
    return at


def _dense(n: Node) -> Value:
    """The operand of an op that addresses memory as one line of elements."""
    x = n["self"]
    if not n.is_dense("self"):
        raise Refused("it addresses the memory of a view", "call .contiguous() before, or index")
    return n.reshape(x, (x.type.elements,))


@converts("resize")
def _resize(n: Node) -> Value:
    """The first elements under another shape; what PyTorch leaves undefined is zero."""
    x, count = _dense(n), n.type.elements
    if count > x.type.elements:
        x = n.op("concat", x, n.filled(0, type(x.type)((count - x.type.elements,), x.dtype)), axis=0)
    return n.reshape(n.slice(x, 0, 0, count) if count < x.type.elements else x, n.type.shape)


@converts("as_strided", "as_strided_copy")
def _as_strided(n: Node) -> Value:
    x = _dense(n)
    at = _storage(n, x)
    return n.op("gather", x, n.constant(at), axis=0) if at.size else n.filled(0, n.type)


@converts("as_strided_scatter")
def _as_strided_scatter(n: Node) -> Value:
    x = _dense(n)
    at = _storage(n, x)
    if not at.size:
        return n["self"]
    new = n.reshape(n.cast(n["src"], x.dtype), (at.size,))
    return n.reshape(n.op("scatter_elements", x, n.constant(at.reshape(-1)), new, axis=0), n["self"].shape)


@converts("unfold", "unfold_copy")
def _unfold(n: Node) -> Value:
    """Windows along a dim, which become the last one: cut where they do not overlap, else looked up."""
    x, size, step = n["self"], n.number("size"), n.number("step")
    if not n.type.elements:
        return n.filled(0, n.type)
    if not x.rank:
        return n.reshape(x, n.type.shape)
    axis = n.dim("dimension", x.rank)
    count = n.type.shape[axis]
    if size <= step and count * step <= x.shape[axis]:
        y = n.slice(x, axis, 0, count * step)
        y = n.reshape(y, (*x.shape[:axis], count, step, *x.shape[axis + 1 :]))
        y = n.slice(y, axis + 1, 0, size)
    else:
        at = n.int64s([first * step + i for first in range(count) for i in range(size)])
        y = n.op("gather", x, n.reshape(at, (count, size)), axis=axis)
    return n.transpose(y, [d for d in range(y.rank) if d != axis + 1] + [axis + 1])
