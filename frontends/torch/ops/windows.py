"""Pools, sampling at points, and the gradients of pools, pads and resampling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

from headrace.dialects.support import dtypes
from headrace.frontends.building import Refused, Value
from headrace.frontends.convolution import padded_or_cropped, transposed
from headrace.frontends.torch.node import Node
from headrace.frontends.torch.ops import converts

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class _Windows:
    """Sizes of windows, and where they lie."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    ceil: bool

    @staticmethod
    def of(n: Node, rank: int) -> _Windows:
        """Those of a pooling op."""
        kernel = n.spread("kernel_size", rank)
        return _Windows(
            kernel,
            n.spread("stride", rank, ()) or kernel,
            n.spread("padding", rank, (0,)),
            n.spread("dilation", rank, (1,)),
            bool(n.get("ceil_mode", False)),
        )

    def attributes(self) -> dict[str, Any]:
        """As the ops have them."""
        return {
            "kernel": self.kernel,
            "strides": self.strides,
            "pads": (*self.pads, *self.pads),
            "dilations": self.dilations,
            "ceil": self.ceil,
        }

    def positions(self, out: tuple[int, ...]) -> list[Array]:
        """What each window reads in each dim, [window, element]; some are in the padding."""
        import numpy as np

        return [
            (np.arange(count) * stride - pad)[:, None] + (np.arange(k) * dilation)[None]
            for count, stride, pad, k, dilation in zip(
                out, self.strides, self.pads, self.kernel, self.dilations, strict=True
            )
        ]

    def counts(self, size: tuple[int, ...], out: tuple[int, ...], *, pads: bool = True) -> Array:
        """How many elements each window has, with those of its padding or without."""
        import numpy as np

        found = np.ones((1,) * len(size))
        for axis, (length, count) in enumerate(zip(size, out, strict=True)):
            first = np.arange(count) * self.strides[axis] - self.pads[axis]
            last = np.minimum(first + self.kernel[axis], length + self.pads[axis])
            if not pads:
                first, last = np.maximum(first, 0), np.minimum(last, length)
            shape = [count if a == axis else 1 for a in range(len(size))]
            found = found * (last - first).reshape(shape)
        return found


def _known(n: Node, numbers: Array, dtype: str) -> Value:
    """Numbers that are known here, rounded once to a float type or twice to a narrow one."""
    return n.cast(n.constant(numbers.astype("float64" if dtype == "f64" else "float32")), dtype)


def _batched(n: Node, x: Value, rank: int) -> Value:
    """x as [N, C, spatial…]."""
    return n.reshape(x, (1,) * (rank + 2 - x.rank) + x.shape) if x.rank < rank + 2 else x


def _rank(n: Node) -> int:
    """How many spatial dims an op of this name has."""
    return next(rank for rank in (1, 2, 3) if f"{rank}d" in n.stem)


@converts("max_pool1d", "max_pool2d", "max_pool3d", "max_pool2d_with_indices", "max_pool3d_with_indices")
def _max_pool(n: Node) -> Value | tuple[Value | None, ...]:
    """The position of a maximum is that of the first in its window; a NaN is the largest."""
    rank, x = _rank(n), n["self"]
    windows = _Windows.of(n, rank)
    x = _batched(n, x, rank)
    y = n.op("max_pool", x, **windows.attributes())
    if len(n.results) == 1:
        return n.done(y)
    return n.done(y), _places(n, x, windows.positions(y.shape[2:])) if n.uses(1) else None


def _places(n: Node, x: Value, positions: Sequence[Array]) -> Value:
    """Where in its plane each window's maximum is: all windows side by side, and the place of the largest of each.
    `positions` are for each dim what each window reads; some may be outside."""
    import numpy as np

    size, dims = x.shape[2:], len(positions)
    whole = (*(len(rows) for rows in positions), *(rows.shape[1] for rows in positions))
    flat, inside = np.zeros(whole, np.int64), np.ones(whole, bool)
    for axis, (rows, length) in enumerate(zip(positions, size, strict=True)):
        spread = rows.reshape([w if d in (axis, dims + axis) else 1 for d, w in enumerate(whole)])
        flat = flat * length + np.clip(spread, 0, length - 1)
        inside = inside & (spread >= 0) & (spread < length)
    count, each = prod(whole[:dims]), prod(whole[dims:])
    table = n.constant(flat.reshape(count, each))
    plane = n.reshape(x, (*x.shape[:2], prod(size)))
    values = n.op("gather", plane, table, axis=2)
    if not inside.all():
        least = float("-inf") if dtypes.is_float(x.dtype) else dtypes.lowest(x.dtype)
        values = n.op("select", n.constant(inside.reshape(count, each)), values, n.scalar(least, x.dtype))
    chosen = n.op("argmax", values, axis=3, keepdims=True)
    spread = n.broadcast(n.reshape(table, (1, 1, count, each)), values.shape)
    return n.done(n.op("gather_elements", spread, n.cast(chosen, "i64"), axis=3), 1)


@converts("avg_pool1d", "avg_pool2d", "avg_pool3d")
def _avg_pool(n: Node) -> Value:
    rank = _rank(n)
    x, windows = _batched(n, n["self"], rank), _Windows.of(n, rank)
    divisor = n.number("divisor_override", None)
    include = divisor is not None or bool(n.get("count_include_pad", True))
    y = n.op("avg_pool", x, **windows.attributes(), count_include_pad=include)
    if divisor is not None:
        y = n.op("mul", y, _known(n, windows.counts(x.shape[2:], y.shape[2:]) / divisor, y.dtype))
    return n.done(y)


@converts(
    "_adaptive_avg_pool2d",
    "_adaptive_avg_pool3d",
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
)
def _adaptive(n: Node) -> Value | tuple[Value | None, ...]:
    """Windows of one size are a pool; others are reduced one by one, dim by dim."""
    import numpy as np

    rank, x = _rank(n), n["self"]
    out = n.type.shape[-rank:]
    size = x.shape[-rank:]
    kind = "max" if "max" in n.stem else "avg"
    if not x.type.elements or not n.type.elements:
        nothing = [n.filled(0, type) for type in n.results if type]
        return nothing[0] if len(nothing) == 1 else tuple(nothing)
    if all(length % count == 0 for length, count in zip(size, out, strict=True)):
        kernel = tuple(length // count for length, count in zip(size, out, strict=True))
        y = n.op(f"{kind}_pool", _batched(n, x, rank), kernel=kernel, strides=kernel)
    else:
        y = x
        name = "reduce_max" if kind == "max" else "reduce_mean"
        for axis, (length, count) in enumerate(zip(size, out, strict=True), x.rank - rank):
            bounds = _adaptive_bounds(length, count)
            parts = [n.op(name, n.slice(y, axis, a, b), axes=(axis,), keepdims=True) for a, b in bounds]
            y = n.op("concat", *parts, axis=axis) if len(parts) > 1 else parts[0]
    y = n.done(y)
    if len(n.results) == 1:
        return y
    if not n.uses(1):
        return y, None
    windows: list[Array] = []
    for length, count in zip(size, out, strict=True):
        bounds = _adaptive_bounds(length, count)
        most = max(last - first for first, last in bounds)
        rows = [[i if i < last else -1 for i in range(first, first + most)] for first, last in bounds]
        windows.append(np.array(rows))
    return y, _places(n, _batched(n, x, rank), windows)


def _adaptive_bounds(length: int, count: int) -> list[tuple[int, int]]:
    """Where `count` windows over a dim begin and end."""
    return [(i * length // count, -(-(i + 1) * length // count)) for i in range(count)]


# Gradients


@converts("max_pool3d_with_indices_backward", "adaptive_max_pool2d_backward", "adaptive_max_pool3d_backward")
def _max_pool_backward(n: Node) -> Value:
    """Each result's gradient is added where in its plane the maximum was."""
    rank, x, dy, at = _rank(n), n["self"], n["grad_output"], n["indices"]
    if not dy.type.elements:
        return n.filled(0, n.type)
    lines = prod(x.shape[:-rank]), prod(dy.shape[-rank:])
    zeros = n.filled(0, type(x.type)((lines[0], prod(x.shape[-rank:])), x.dtype))
    y = n.op("scatter_elements", zeros, n.reshape(at, lines), n.reshape(dy, lines), axis=1, reduction="add")
    return n.reshape(y, x.shape)


@converts("avg_pool2d_backward", "avg_pool3d_backward")
def _avg_pool_backward(n: Node) -> Value:
    """What a window gets is shared by its elements. Where windows overlap that is a transposed convolution by ones."""
    import numpy as np

    rank, x, dy = _rank(n), n["self"], n["grad_output"]
    windows = _Windows.of(n, rank)
    size, out = x.shape[-rank:], dy.shape[-rank:]
    if not dy.type.elements:
        return n.filled(0, n.type)
    divisor = n.number("divisor_override", None)
    if divisor is None:
        shares = 1 / windows.counts(size, out, pads=bool(n.get("count_include_pad", True)))
    else:
        shares = np.full((1,) * rank, 1 / divisor)
    shares = shares.reshape(-1)[0] if (shares == shares.reshape(-1)[0]).all() else shares
    rows = n.reshape(dy, (prod(x.shape[:-rank]), 1, *out))
    share = n.op("mul", rows, _known(n, np.asarray(shares), dy.dtype))
    kernel, strides, pads = windows.kernel, windows.strides, windows.pads
    spare = [
        length + 2 * pad - k - (count - 1) * stride
        for length, pad, k, count, stride in zip(size, pads, kernel, out, strides, strict=True)
    ]
    if kernel == strides:
        apart = [v for count in out for v in (count, 1)]
        filled = [v for count, k in zip(out, kernel, strict=True) for v in (count, k)]
        y = n.broadcast(n.reshape(share, (*share.shape[:2], *apart)), (*share.shape[:2], *filled))
        y = n.reshape(y, (*share.shape[:2], *(count * k for count, k in zip(out, kernel, strict=True))))
        y = padded_or_cropped(n, y, [-p for p in pads], [e - p for e, p in zip(spare, pads, strict=True)])
    else:
        ones = n.filled(1, type(x.type)((1, 1, *kernel), x.dtype))
        y = transposed(n, share, ones, None, strides, (*pads, *pads), windows.dilations, spare, 1)
    return n.done(y)


def _along(n: Node, x: Value, axis: int, matrix: Array) -> Value:
    """Each line along a dim times a matrix [new, old] that is known here."""
    old, shape = x.shape[axis], (*x.shape[:axis], len(matrix), *x.shape[axis + 1 :])
    before, after = prod(x.shape[:axis]), prod(x.shape[axis + 1 :])
    if after == 1:
        weights = _known(n, matrix.T, x.dtype)
        return n.reshape(n.op("matmul", n.reshape(x, (before, old)), weights), shape)
    weights = _known(n, matrix, x.dtype)
    return n.reshape(n.op("matmul", weights, n.reshape(x, (before, old, after))), shape)


@converts("_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward")
def _adaptive_backward(n: Node) -> Value:
    """The transposed means of each dim."""
    import numpy as np

    rank, x, y = _rank(n), n["self"], n["grad_output"]
    if not y.type.elements:
        return n.filled(0, n.type)
    if prod(y.shape[-rank:]) == 1:
        return n.broadcast(n.op("mul", y, 1 / prod(x.shape[-rank:])), x.shape)
    for axis in range(x.rank - rank, x.rank):
        means = np.zeros((x.shape[axis], y.shape[axis]))
        for i, (a, b) in enumerate(_adaptive_bounds(*means.shape)):
            means[a:b, i] = 1 / (b - a)
        y = _along(n, y, axis, means)
    return n.done(y)


RESAMPLING = {
    "upsample_nearest1d_backward": ("nearest", 1),
    "upsample_nearest2d_backward": ("nearest", 2),
    "upsample_nearest3d_backward": ("nearest", 3),
    "_upsample_nearest_exact1d_backward": ("exact", 1),
    "_upsample_nearest_exact2d_backward": ("exact", 2),
    "_upsample_nearest_exact3d_backward": ("exact", 3),
    "upsample_linear1d_backward": ("linear", 1),
    "upsample_bilinear2d_backward": ("linear", 2),
    "upsample_trilinear3d_backward": ("linear", 3),
    "upsample_bicubic2d_backward": ("cubic", 2),
}
"""How each dim is resampled, and how many are."""


@converts(*RESAMPLING)
def _resampling_backward(n: Node) -> Value:
    """The transposed weights of each dim."""
    kind, rank = RESAMPLING[n.stem]
    y, size = n["grad_output"], n.ints("input_size")[2:]
    if not y.type.elements:
        return n.filled(0, n.type)
    names = ("scales_d", "scales_h", "scales_w")[3 - rank :] if rank > 1 else ("scales",)
    for axis, (length, name) in enumerate(zip(size, names, strict=True), 2):
        given = n.number(name, None)
        weights = _resampling(kind, length, y.shape[axis], given, corners=bool(n.get("align_corners", False)))
        y = _along(n, y, axis, weights.T)
    return n.done(y)


def _resampling(kind: str, size: int, out: int, factor: float | None, *, corners: bool) -> Array:
    """The weight of each element of a line of `size` for each of one of `out`; positions are those of float32."""
    import numpy as np

    f32 = np.float32
    at = np.arange(out, dtype=f32)
    if corners:
        at = at * f32((size - 1) / (out - 1) if out > 1 else 0)
    else:
        step = f32(1 / factor if factor else size / out)
        at = at * step if kind == "nearest" else (at + f32(0.5)) * step - f32(0 if kind == "exact" else 0.5)
    if kind == "linear":
        at = np.maximum(at, 0)
    first = np.floor(at)
    t = (at - first).astype(np.float64)
    if kind == "cubic":
        a = -0.75
        far = [((a * d - 5 * a) * d + 8 * a) * d - 4 * a for d in (t + 1, 2 - t)]
        near = [((a + 2) * d - (a + 3)) * d * d + 1 for d in (t, 1 - t)]
        taps = [(-1, far[0]), (0, near[0]), (1, near[1]), (2, far[1])]
    else:
        taps = [(0, 1 - t), (1, t)] if kind == "linear" else [(0, np.ones(out))]
    weights = np.zeros((out, size))
    for offset, share in taps:
        np.add.at(weights, (np.arange(out), np.clip(first + offset, 0, size - 1).astype(np.int64)), share)
    return weights


@converts("replication_pad1d_backward", "replication_pad2d_backward", "replication_pad3d_backward")
def _replication_backward(n: Node) -> Value:
    """What pads got belongs to the elements at the ends."""
    rank, x, y = _rank(n), n["self"], n["grad_output"]
    pads = n.ints("padding")
    if not y.type.elements:
        return n.filled(0, n.type)
    for i, axis in enumerate(range(x.rank - 1, x.rank - 1 - rank, -1)):
        y = _folded(n, y, axis, pads[2 * i], pads[2 * i + 1])
    return n.done(y)


def _folded(n: Node, y: Value, axis: int, lo: int, hi: int) -> Value:
    """A dim without `lo` elements before and `hi` after, which are added to its ends; negative counts lengthen it."""
    if lo < 0 or hi < 0:
        before, after = [0] * y.rank, [0] * y.rank
        before[axis], after[axis] = max(-lo, 0), max(-hi, 0)
        y, lo, hi = n.op("pad", y, lo=tuple(before), hi=tuple(after)), max(lo, 0), max(hi, 0)
    size = y.shape[axis]
    if size == lo + hi + 1:
        return n.op("reduce_sum", y, axes=(axis,), keepdims=True)
    ends = [(0, lo + 1), (lo + 1, size - hi - 1), (size - hi - 1, size)]
    parts = [n.slice(y, axis, a, b) for a, b in ends if a < b]
    parts[0] = n.op("reduce_sum", parts[0], axes=(axis,), keepdims=True) if lo else parts[0]
    parts[-1] = n.op("reduce_sum", parts[-1], axes=(axis,), keepdims=True) if hi else parts[-1]
    return n.op("concat", *parts, axis=axis) if lo or hi else y


# Resampling at points


@converts("grid_sampler_3d")
def _grid_sampler(n: Node) -> Value:
    """The elements around each point, weighed by how near they are, or the nearest; none outside."""
    if not n.type.elements:
        return n.filled(0, n.type)
    points = _Points.of(n)
    plane = n.reshape(n["input"], (*points.lead, prod(points.size)))
    total: Value | None = None
    for corner in product(*points.taps):
        part = n.op("gather_elements", plane, points.spread(n, points.element(n, corner)), axis=2)
        part = n.op("mul", part, points.across(n, _product(n, [tap.weight for tap in corner])))
        total = part if total is None else n.op("add", total, part)
    assert total is not None
    return n.reshape(total, n.type.shape)


@converts("grid_sampler_2d_backward", "grid_sampler_3d_backward")
def _grid_sampler_backward(n: Node) -> tuple[Value | None, ...]:
    """Each element gets what the points near it got; a point moves what it got by what its neighbours differ."""
    x, grid, dy = n["input"], n["grid"], n["grad_output"]
    mode = n.number("interpolation_mode")
    if mode == 2:
        raise Refused("gradients of bicubic samples are not made", "sample with mode='bilinear'")
    wanted = tuple(n.get("output_mask"))
    if not dy.type.elements or not x.type.elements:
        return tuple(n.filled(0, type) if type else None for type in n.results)
    points = _Points.of(n)
    plane = n.reshape(x, (*points.lead, prod(points.size)))
    dy = n.reshape(dy, (*points.lead, points.count))
    elements: list[Value] = []
    shares: list[Value] = []
    moved: list[Value | None] = [None] * len(points.size)
    for corner in product(*points.taps):
        element = points.element(n, corner)
        weights = [tap.weight for tap in corner]
        elements.append(points.spread(n, element))
        shares.append(n.op("mul", dy, points.across(n, _product(n, weights))))
        if not wanted[1] or mode == 1:
            continue
        part = n.op("mul", dy, n.op("gather_elements", plane, elements[-1], axis=2))
        part = n.op("reduce_sum", part, axes=(1,), keepdims=False)
        for axis, tap in enumerate(corner):
            slope = n.op("mul", part, _product(n, [*weights[:axis], tap.slope, *weights[axis + 1 :]]))
            before = moved[axis]
            moved[axis] = slope if before is None else n.op("add", before, slope)
    found: list[Value | None] = [None, None]
    if wanted[0]:
        at, part = (n.op("concat", *x, axis=2) if len(x) > 1 else x[0] for x in (elements, shares))
        zeros = n.filled(0, type(x.type)(plane.shape, x.dtype))
        found[0] = n.reshape(n.op("scatter_elements", zeros, at, part, axis=2, reduction="add"), x.shape)
    if wanted[1] and mode == 1:
        found[1] = n.filled(0, grid.type)
    elif wanted[1]:
        ways = [n.op("mul", way, slope) for way, slope in zip(moved, points.slopes(n), strict=True) if way is not None]
        columns = [n.reshape(way, (*grid.shape[:-1], 1)) for way in reversed(ways)]
        found[1] = n.op("concat", *columns, axis=grid.rank - 1)
    return tuple(found)


@dataclass(frozen=True)
class _Tap:
    """An element of a dim near each point: its number, its weight, and how that changes with the position."""

    element: Value
    weight: Value
    slope: Value


@dataclass(frozen=True)
class _Points:
    """Where a tensor [batch, channel, dims…] is sampled."""

    lead: tuple[int, int]
    size: tuple[int, ...]
    count: int
    padding: int
    corners: bool
    positions: tuple[Value, ...]
    """In each dim, before those outside are taken back in."""
    taps: tuple[tuple[_Tap, ...], ...]

    @staticmethod
    def of(n: Node) -> _Points:
        """Those of a grid; its last dim has the last dim of the tensor first."""
        grid, (batch, channels, *size) = n["grid"], n["input"].shape
        count, padding, corners = prod(grid.shape[1:-1]), n.number("padding_mode"), bool(n.get("align_corners"))
        positions: list[Value] = []
        for axis, length in enumerate(size):
            at = n.slice(grid, grid.rank - 1, len(size) - 1 - axis, len(size) - axis)
            ones = n.op("add", n.reshape(at, (batch, count)), 1.0)
            if corners:
                positions.append(n.op("mul", ones, (length - 1) / 2))
            else:
                positions.append(n.op("mul", n.op("sub", n.op("mul", ones, float(length)), 1.0), 0.5))
        nearest = n.number("interpolation_mode") == 1
        taps = (
            _taps(n, _inside(n, at, length, padding, corners), length, nearest)
            for at, length in zip(positions, size, strict=True)
        )
        return _Points((batch, channels), tuple(size), count, padding, corners, tuple(positions), tuple(taps))

    def element(self, n: Node, corner: Sequence[_Tap]) -> Value:
        """The number in its plane of an element near each point."""
        found = corner[0].element
        for length, tap in zip(self.size[1:], corner[1:], strict=True):
            found = n.op("add", n.op("mul", found, length), tap.element)
        return found

    def across(self, n: Node, x: Value) -> Value:
        """Numbers of points, the same for all channels."""
        return n.reshape(x, (self.lead[0], 1, self.count))

    def spread(self, n: Node, x: Value) -> Value:
        """Numbers of points for each channel."""
        return n.broadcast(self.across(n, x), (*self.lead, self.count))

    def slopes(self, n: Node) -> list[Value]:
        """How positions change with the coordinates, by dim."""
        found: list[Value] = []
        for at, length in zip(self.positions, self.size, strict=True):
            zero, top = n.scalar(0, at.dtype), n.scalar(length - 1, at.dtype)
            slope = n.scalar((length - 1) / 2 if self.corners else length / 2, at.dtype)
            if self.padding == 2:
                low, turned, span = _turned(n, at, length, self.corners)
                back = n.op("less", at, low), n.op("greater_equal", turned, span)
                slope = n.op("select", n.op("xor", *back), n.op("neg", slope), slope)
                at = _reflected(n, at, length, self.corners)
            if self.padding:
                within = n.op("and", n.op("greater", at, zero), n.op("less", at, top))
                slope = n.op("select", within, slope, zero)
            found.append(slope)
        return found


def _product(n: Node, factors: Sequence[Value]) -> Value:
    found = factors[0]
    for factor in factors[1:]:
        found = n.op("mul", found, factor)
    return found


def _taps(n: Node, at: Value, length: int, nearest: bool) -> tuple[_Tap, ...]:
    """The elements of a dim of `length` around positions; those outside weigh nothing."""
    one, zero, top = (n.scalar(v, at.dtype) for v in (1, 0, length - 1))
    if nearest:
        given = [(n.op("round", at), one, zero)]
    else:
        first = n.op("floor", at)
        ahead = n.op("sub", at, first)
        given = [(first, n.op("sub", one, ahead), n.scalar(-1, at.dtype)), (n.op("add", first, one), ahead, one)]
    found: list[_Tap] = []
    for element, weight, slope in given:
        inside = n.op("and", n.op("greater_equal", element, zero), n.op("less_equal", element, top))
        kept, weight, slope = (n.op("select", inside, x, zero) for x in (element, weight, slope))
        found.append(_Tap(n.cast(kept, "i64"), weight, slope))
    return tuple(found)


def _inside(n: Node, at: Value, length: int, padding: int, corners: bool) -> Value:
    """Positions in a dim of `length`; those outside stay (0), are taken to the border (1) or reflected (2)."""
    if padding == 2:
        at = _reflected(n, at, length, corners)
    return n.op("min", n.op("max", at, 0.0), n.scalar(length - 1, at.dtype)) if padding else at


def _reflected(n: Node, at: Value, length: int, corners: bool) -> Value:
    """Positions, mirrored at both ends as often as it takes: at the outermost elements, or half an element further."""
    if corners and length == 1:
        return n.op("mul", at, 0.0)
    low, turned, span = _turned(n, at, length, corners)
    back = n.op("sub", n.op("mul", span, 2.0), turned)
    return n.op("add", n.op("min", turned, back), low)


def _turned(n: Node, at: Value, length: int, corners: bool) -> tuple[Value, Value, Value]:
    """The lower end, how far positions are from it after whole turns there and back, and how far it is to the upper."""
    low, span = (0.0, max(length - 1.0, 1.0)) if corners else (-0.5, float(length))
    turned = n.op("mod", n.op("abs", n.op("sub", at, low)), n.scalar(2 * span, at.dtype))
    return n.scalar(low, at.dtype), turned, n.scalar(span, at.dtype)
