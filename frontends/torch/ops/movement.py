"""Views and copies: shapes, orders, parts and joins."""

from __future__ import annotations

from headrace.frontends.building import Value
from headrace.frontends.torch.node import Node
from headrace.frontends.torch.ops import converts


@converts(
    "view", "_unsafe_view", "reshape", "unsqueeze", "squeeze", "flatten", "unflatten", "view_copy", "_reshape_copy"
)
def _view(n: Node) -> Value:
    x = n["self"]
    if n.has("dtype"):
        from headrace.frontends.building import Refused

        raise Refused("it looks at the bits of another type", "cast with .to(dtype)")
    return n.reshape(x, n.type.shape)


@converts("permute", "permute_copy")
def _permute(n: Node) -> Value:
    x = n["self"]
    return n.transpose(x, [d % x.rank for d in n.ints("dims")]) if x.rank else x


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


@converts("slice", "slice_copy")
def _slice(n: Node) -> Value:
    x = n["self"]
    axis, size = n.dim("dim", x.rank, 0), 0
    size = x.shape[axis]
    start, end, step = n.number("start", 0), n.number("end", size), n.number("step", 1)
    start, end = (min(max(i + size if i < 0 else i, 0), size) for i in (start, end))
    if (start, end, step) == (0, size, 1):
        return x
    return n.slice(x, axis, start, max(start, end), step)


@converts("select", "select_copy")
def _select(n: Node) -> Value:
    x = n["self"]
    axis, index = n.dim("dim", x.rank), n.number("index")
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
    lo, hi = [0] * x.rank, [0] * x.rank
    for i in range(len(pads) // 2):
        lo[x.rank - 1 - i], hi[x.rank - 1 - i] = pads[2 * i], pads[2 * i + 1]
    for axis in range(x.rank):
        first, last = max(-lo[axis], 0), x.shape[axis] - max(-hi[axis], 0)
        if (first, last) != (0, x.shape[axis]):
            x = n.slice(x, axis, first, last)
    lo, hi = [max(v, 0) for v in lo], [max(v, 0) for v in hi]
    if not any((*lo, *hi)):
        return x
    return n.op("pad", x, lo=tuple(lo), hi=tuple(hi), mode="constant", value=float(n.number("value", 0)))


@converts("flip")
def _flip(n: Node) -> Value:
    """Rows in reverse order."""
    import numpy as np

    x = n["self"]
    for axis in {d % max(x.rank, 1) for d in n.ints("dims")} if x.rank else ():
        x = n.op("gather", x, n.constant(np.arange(x.shape[axis])[::-1].copy()), axis=axis)
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
    import numpy as np

    x, part = n["self"], n.cast(n["src"], n["self"].dtype)
    axis = n.dim("dim", x.rank, 0)
    size = x.shape[axis]
    start, end, step = n.number("start", 0), n.number("end", size), n.number("step", 1)
    start, end = (min(max(i + size if i < 0 else i, 0), size) for i in (start, end))
    end = max(start, end)
    if (start, end, step) == (0, size, 1) or start == end:
        return x if start == end else part
    if step == 1:
        sides = [n.slice(x, axis, 0, start), part, n.slice(x, axis, end, size)]
        return n.op("concat", *(side for side in sides if side.shape[axis]), axis=axis)
    at = n.reshape(
        n.constant(np.arange(start, end, step)), (*(1,) * axis, part.shape[axis], *(1,) * (x.rank - axis - 1))
    )
    return n.op("scatter_elements", x, n.broadcast(at, part.shape), part, axis=axis)
