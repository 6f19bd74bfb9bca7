"""Ops that only move elements."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from headrace.frontends.building import Refused, Value
from headrace.frontends.onnx.node import Node
from headrace.frontends.onnx.ops import converts


@converts("Reshape")
def _reshape(n: Node) -> Value:
    """A 0 keeps the operand's size (unless allowzero), one -1 takes what is left."""
    x, shape = n[0], list(n.ints(n[1], "shape"))
    if not n.flag("allowzero"):
        for i, size in enumerate(shape):
            if size == 0:
                if i >= x.rank:
                    raise Refused(f"shape {shape} keeps dim {i}, but the operand has {x.rank} dims", code="bad-node")
                shape[i] = x.shape[i]
    if shape.count(-1) > 1:
        raise Refused(f"shape {shape} leaves more than one size open", code="bad-node")
    if -1 in shape:
        rest = prod(s for s in shape if s != -1)
        if rest <= 0 or x.type.elements % rest:
            raise Refused(f"{x.type} does not fit shape {shape}", code="bad-shape")
        shape[shape.index(-1)] = x.type.elements // rest
    return n.reshape(x, shape)


@converts("Flatten")
def _flatten(n: Node) -> Value:
    axis = n.int("axis", 1)
    if not -n[0].rank <= axis <= n[0].rank:
        raise Refused(f"axis {axis} is out of range for {n[0].rank} dims", code="bad-node")
    axis = axis if axis >= 0 else axis + n[0].rank
    return n.reshape(n[0], (prod(n[0].shape[:axis]), prod(n[0].shape[axis:])))


@converts("Squeeze")
def _squeeze(n: Node) -> Value:
    x, operand = n[0], n.get(1)
    if operand is None:
        axes = {d for d, s in enumerate(x.shape) if s == 1}
    else:
        axes = {n.axis(a, x.rank) for a in n.ints(operand, "axes")}
    for d in axes:
        if x.shape[d] != 1:
            raise Refused(f"dim {d} of {x.type} has size {x.shape[d]}, not 1", code="bad-shape")
    return n.reshape(x, [s for d, s in enumerate(x.shape) if d not in axes])


@converts("Unsqueeze")
def _unsqueeze(n: Node) -> Value:
    x, axes = n[0], n.ints(n[1], "axes")
    rank = x.rank + len(axes)
    new = {n.axis(a, rank) for a in axes}
    if len(new) < len(axes):
        raise Refused(f"axes {list(axes)} name a dim twice", code="bad-node")
    sizes = iter(x.shape)
    return n.reshape(x, [1 if d in new else next(sizes) for d in range(rank)])


@converts("Transpose")
def _transpose(n: Node) -> Value:
    perm = n.int_list("perm", None)
    return n.transpose(n[0], tuple(reversed(range(n[0].rank))) if perm is None else perm)


@converts("Expand")
def _expand(n: Node) -> Value:
    """Broadcasting in both directions: a size of 1 in the wanted shape keeps the operand's."""
    x, wanted = n[0], n.ints(n[1], "shape")
    rank = max(x.rank, len(wanted))
    have, want = (1,) * (rank - x.rank) + x.shape, (1,) * (rank - len(wanted)) + wanted
    return n.broadcast(x, tuple(h if w == 1 else w for h, w in zip(have, want, strict=True)))


@converts("Tile")
def _tile(n: Node) -> Value:
    """Each dim in two: how often, and what is repeated."""
    x, repeats = n[0], n.ints(n[1], "repeats")
    if len(repeats) != x.rank or any(r < 0 for r in repeats):
        raise Refused(f"repeats {list(repeats)} do not fit {x.type}", code="bad-node")
    if all(r == 1 for r in repeats):
        return x
    apart = tuple(v for s in x.shape for v in (1, s))
    wide = tuple(v for r, s in zip(repeats, x.shape, strict=True) for v in (r, s))
    y = n.broadcast(n.reshape(x, apart), wide)
    return n.reshape(y, [r * s for r, s in zip(repeats, x.shape, strict=True)])


@converts("Slice")
def _slice(n: Node) -> Value:
    """Bounds beyond the dim (such as the largest integer for "to the end") are limited to it."""
    x, starts, ends = n[0], n.ints(n[1], "starts"), n.ints(n[2], "ends")
    axes_operand, steps_operand = n.get(3), n.get(4)
    axes = range(len(starts)) if axes_operand is None else n.ints(axes_operand, "axes")
    steps = (1,) * len(starts) if steps_operand is None else n.ints(steps_operand, "steps")
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise Refused("its starts, ends, axes and steps differ in length", code="bad-node")
    lows, highs, strides = [0] * x.rank, list(x.shape), [1] * x.rank
    seen: set[int] = set()
    for start, end, given, step in zip(starts, ends, axes, steps, strict=True):
        axis = n.axis(given, x.rank)
        if step == 0 or axis in seen:
            raise Refused(f"axis {given} has step 0 or is named twice", code="bad-node")
        seen.add(axis)
        lows[axis], highs[axis], strides[axis] = *_bounds(start, end, step, x.shape[axis]), step
    if lows == [0] * x.rank and tuple(highs) == x.shape and strides == [1] * x.rank:
        return x
    return n.op("slice", x, starts=tuple(lows), stops=tuple(highs), steps=tuple(strides))


def _bounds(start: int, end: int, step: int, size: int) -> tuple[int, int]:
    """ONNX bounds as bounds of `tensor.slice`: counted from the front and within the dim."""
    low, high = (0, size) if step > 0 else (-1, size - 1)
    start, end = (v + size if v < 0 else v for v in (start, end))
    start = min(max(start, 0), high)
    end = min(max(end, low), high)
    if size == 0:
        return 0, 0
    return start, end if (end - start) * step > 0 else start


@converts("Concat")
def _concat(n: Node) -> Value:
    axis = n.axis(n.int("axis"), n[0].rank)
    return n.op("concat", *n.operands, axis=axis) if len(n.operands) > 1 else n[0]


@converts("Split")
def _split(n: Node) -> Sequence[Value]:
    """Sizes from the operand, else equal parts, of which the last may be smaller (opset 18)."""
    x, operand = n[0], n.get(1)
    axis = n.axis(n.int("axis", 0), x.rank)
    if operand is not None:
        sizes = n.ints(operand, "split")
    else:
        count = n.int("num_outputs", len(n.outputs))
        if count < 1 or count != len(n.outputs):
            raise Refused(f"num_outputs is {count} for {len(n.outputs)} results", code="bad-node")
        each = -(-x.shape[axis] // count)
        sizes = (*((each,) * (count - 1)), x.shape[axis] - each * (count - 1))
    if len(sizes) != len(n.outputs):
        raise Refused(f"it has {len(n.outputs)} results for {len(sizes)} parts", code="bad-node")
    return (x,) if len(sizes) == 1 and sizes[0] == x.shape[axis] else n.ops("split", x, axis=axis, sizes=tuple(sizes))


@converts("Pad")
def _pad(n: Node) -> Value:
    x, pads, value, axes_operand = n[0], n.ints(n[1], "pads"), n.get(2), n.get(3)
    mode = n.string("mode", "constant")
    axes = range(x.rank) if axes_operand is None else [n.axis(a, x.rank) for a in n.ints(axes_operand, "axes")]
    if len(pads) != 2 * len(axes):
        raise Refused(f"pads {list(pads)} do not fit {len(axes)} dims", code="bad-node")
    lo, hi = [0] * x.rank, [0] * x.rank
    for i, axis in enumerate(axes):
        lo[axis], hi[axis] = pads[i], pads[len(axes) + i]
    if any(p < 0 for p in (*lo, *hi)):  # a negative pad removes elements
        starts = tuple(max(-p, 0) for p in lo)
        stops = tuple(s - max(-p, 0) for s, p in zip(x.shape, hi, strict=True))
        x = n.op("slice", x, starts=starts, stops=stops, steps=(1,) * x.rank)
        lo, hi = [max(p, 0) for p in lo], [max(p, 0) for p in hi]
    if not any((*lo, *hi)):
        return x
    if mode == "wrap":
        return _wrap(n, x, lo, hi)
    if mode != "constant":
        return n.op("pad", x, lo=tuple(lo), hi=tuple(hi), mode=mode)
    if value is None or value.known:
        fill = 0.0 if value is None else float(n.one(value, "constant_value"))
        return n.op("pad", x, lo=tuple(lo), hi=tuple(hi), value=fill)
    return _pad_with(n, x, lo, hi, n.reshape(value, ()))


def _pad_with(n: Node, x: Value, lo: Sequence[int], hi: Sequence[int], value: Value) -> Value:
    """Padding with a value that is computed when the model runs."""
    for d in range(x.rank):
        parts = [x]
        for count, at in ((lo[d], 0), (hi[d], len(parts))):
            if count:
                shape = (*x.shape[:d], count, *x.shape[d + 1 :])
                parts.insert(0 if at == 0 else len(parts), n.broadcast(value, shape))
        x = n.op("concat", *parts, axis=d) if len(parts) > 1 else x
    return x


def _wrap(n: Node, x: Value, lo: Sequence[int], hi: Sequence[int]) -> Value:
    """Padding with the opposite end, as if the operand repeated."""
    for d in range(x.rank):
        size, parts = x.shape[d], [x]
        if max(lo[d], hi[d]) > size:
            raise Refused(f"dim {d} of size {size} wraps by {lo[d]} and {hi[d]}, more than once around")
        if lo[d]:
            parts.insert(0, n.slice(x, d, size - lo[d], size))
        if hi[d]:
            parts.append(n.slice(x, d, 0, hi[d]))
        x = n.op("concat", *parts, axis=d) if len(parts) > 1 else x
    return x


@converts("DepthToSpace")
def _depth_to_space(n: Node) -> Value:
    x, block, mode = n[0], n.int("blocksize"), n.string("mode", "DCR")
    if x.rank != 4 or block < 1 or x.shape[1] % (block * block):
        raise Refused(f"{x.type} has no blocks of {block}×{block} channels", code="bad-node")
    b, c, h, w = x.shape
    c //= block * block
    if mode == "DCR":
        y = n.transpose(n.reshape(x, (b, block, block, c, h, w)), (0, 3, 4, 1, 5, 2))
    else:
        y = n.transpose(n.reshape(x, (b, c, block, block, h, w)), (0, 1, 4, 2, 5, 3))
    return n.reshape(y, (b, c, h * block, w * block))


@converts("SpaceToDepth")
def _space_to_depth(n: Node) -> Value:
    x, block, mode = n[0], n.int("blocksize"), n.string("mode", "DCR")
    if x.rank != 4 or block < 1 or x.shape[2] % block or x.shape[3] % block:
        raise Refused(f"{x.type} has no blocks of {block}×{block} elements", code="bad-node")
    b, c, h, w = x.shape
    y = n.reshape(x, (b, c, h // block, block, w // block, block))
    perm = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return n.reshape(n.transpose(y, perm), (b, c * block * block, h // block, w // block))


@converts("CenterCropPad")
def _center_crop_pad(n: Node) -> Value:
    """Cuts or pads (with zeros) around the middle of each dim."""
    x, shape = n[0], n.ints(n[1], "shape")
    axes = [n.axis(a, x.rank) for a in n.int_list("axes", tuple(range(x.rank)))]
    if len(axes) != len(shape):
        raise Refused(f"shape {list(shape)} does not fit {len(axes)} axes", code="bad-node")
    for axis, size in zip(axes, shape, strict=True):
        have = x.shape[axis]
        if size < have:
            x = n.slice(x, axis, (have - size) // 2, (have - size) // 2 + size)
        elif size > have:
            lo, hi = [0] * x.rank, [0] * x.rank
            lo[axis], hi[axis] = (size - have) // 2, size - have - (size - have) // 2
            x = n.op("pad", x, lo=tuple(lo), hi=tuple(hi))
    return x


@converts("Trilu")
def _trilu(n: Node) -> Value:
    """Keeps one triangle of the last two dims and puts zeros elsewhere."""
    x, operand = n[0], n.get(1)
    if x.rank < 2:
        raise Refused(f"{x.type} has no matrices", code="bad-node")
    k = 0 if operand is None else n.one_int(operand, "k")
    rows, columns = x.shape[-2:]
    k = min(max(k, -rows), columns)
    row = n.op("add", n.op("iota", shape=(rows, 1), dtype="i64", axis=0), n.scalar(k, "i64"))
    column = n.op("iota", shape=(1, columns), dtype="i64", axis=1)
    keep = n.op("greater_equal" if n.flag("upper", True) else "less_equal", column, row)
    return n.op("select", keep, x, n.scalar(0, x.dtype))
