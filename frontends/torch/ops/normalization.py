"""Norms, dropout and pooling."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from headrace.dialects.support import dtypes
from headrace.frontends.building import Refused, Value
from headrace.frontends.torch.node import Node
from headrace.frontends.torch.ops import converts

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]


def _last(n: Node, x: Value, shape: tuple[int, ...]) -> Value:
    """x with the dims that are normalised as one."""
    return n.reshape(x, (*x.shape[: x.rank - len(shape)], prod(shape)))


def _scale(n: Node, x: Value, size: int) -> Value:
    """What the normalised elements are multiplied by: the weight, or one."""
    return n.reshape(n["weight"], (size,)) if n.has("weight") else n.filled(1, type(x.type)((size,), x.dtype))


@converts("layer_norm")
def _layer_norm(n: Node) -> Value:
    shape, x = n.ints("normalized_shape"), n["input"]
    flat = _last(n, x, shape)
    scale = _scale(n, x, prod(shape))
    operands = [flat, scale, *((n.reshape(n["bias"], (prod(shape),)),) if n.has("bias") else ())]
    return n.reshape(n.op("layer_norm", *operands, axis=flat.rank - 1, epsilon=float(n.number("eps", 1e-5))), x.shape)


@converts("rms_norm")
def _rms_norm(n: Node) -> Value:
    import numpy as np

    shape, x = n.ints("normalized_shape"), n["input"]
    flat = _last(n, x, shape)
    scale = _scale(n, x, prod(shape))
    epsilon = n.number("eps", None)
    epsilon = float(np.finfo(np.float32).eps) if epsilon is None else float(epsilon)
    return n.reshape(n.op("rms_norm", flat, scale, axis=flat.rank - 1, epsilon=epsilon), x.shape)


@converts("_native_batch_norm_legit_no_training")
def _batch_norm(n: Node) -> tuple[Value | None, ...]:
    x = n["input"]
    (channels,) = n["running_mean"].shape
    of = type(x.type)((channels,), x.dtype)
    scale = n["weight"] if n.has("weight") else n.filled(1, of)
    bias = n["bias"] if n.has("bias") else n.filled(0, of)
    y = n.op("batch_norm", x, scale, bias, n["running_mean"], n["running_var"], epsilon=float(n.number("eps")))
    return y, None, None


@converts("native_dropout")
def _dropout(n: Node) -> tuple[Value, Value]:
    """In inference nothing is dropped; so it is with a probability of 0."""
    x = n["input"]
    if n.get("train", True) is not False and n.number("p"):
        raise Refused("it drops elements at random", "call model.eval(), or train without dropout (p=0)")
    return x, n.filled(True, type(x.type)(x.shape, "i1"))


@converts("native_layer_norm")
def _native_layer_norm(n: Node) -> tuple[Value | None, ...]:
    """Also the mean, and one over the standard deviation."""
    shape, x = n.ints("normalized_shape"), n["input"]
    axes = tuple(range(x.rank - len(shape), x.rank))
    return _layer_norm(n), *(_moments(n, x, axes) if n.uses(1) or n.uses(2) else (None, None))


@converts("native_group_norm")
def _native_group_norm(n: Node) -> tuple[Value | None, ...]:
    """Also the mean of each group, and one over its standard deviation."""
    x, groups = n["input"], n.number("group")
    of = type(x.type)((x.shape[1],), x.dtype)
    scale = n["weight"] if n.has("weight") else n.filled(1, of)
    bias = n["bias"] if n.has("bias") else n.filled(0, of)
    y = n.op("group_norm", x, scale, bias, groups=groups, epsilon=float(n.number("eps")))
    if not (n.uses(1) or n.uses(2)):
        return y, None, None
    each = n.reshape(x, (x.shape[0], groups, prod(x.shape[1:]) // groups))
    return y, *_moments(n, each, (2,))


def _moments(n: Node, x: Value, axes: tuple[int, ...]) -> tuple[Value, Value]:
    x = n.cast(x, "f32") if x.dtype in ("f16", "bf16") else x
    mean = n.op("reduce_mean", x, axes=axes, keepdims=True)
    apart = n.op("sub", x, mean)
    variance = n.op("reduce_mean", n.op("mul", apart, apart), axes=axes, keepdims=True)
    deviation = n.op("rsqrt", n.op("add", variance, n.scalar(float(n.number("eps")), x.dtype)))
    return n.done(mean, 1), n.done(deviation, 2)


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

    def counts(self, size: tuple[int, ...], out: tuple[int, ...]) -> Array:
        """How many elements each window has, those of its padding with it."""
        import numpy as np

        found = np.ones((1,) * len(size), np.float32)
        for axis, (length, count) in enumerate(zip(size, out, strict=True)):
            first = np.arange(count) * self.strides[axis] - self.pads[axis]
            last = np.minimum(first + self.kernel[axis], length + self.pads[axis])
            shape = [count if a == axis else 1 for a in range(len(size))]
            found = found * (last - first).reshape(shape).astype(np.float32)
        return found


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
    y = n.done(n.op("max_pool", x, **windows.attributes()))
    if len(n.results) == 1:
        return y
    return y, _places(n, x, windows) if n.uses(1) else None


def _places(n: Node, x: Value, windows: _Windows) -> Value:
    """Where in its plane each window's maximum is: all windows side by side, and the place of the largest of each."""
    import numpy as np

    size = x.shape[2:]
    shape = n.type.shape
    out = shape[len(shape) - len(size) :]
    at = [
        (np.arange(count) * stride - pad)[:, None] + (np.arange(k) * dilation)[None]
        for count, stride, pad, k, dilation in zip(
            out, windows.strides, windows.pads, windows.kernel, windows.dilations, strict=True
        )
    ]
    dims = len(size)
    whole = (*out, *windows.kernel)
    flat, inside = np.zeros(whole, np.int64), np.ones(whole, bool)
    for axis, (rows, length) in enumerate(zip(at, size, strict=True)):
        spread = rows.reshape([w if d in (axis, dims + axis) else 1 for d, w in enumerate(whole)])
        flat = flat * length + np.clip(spread, 0, length - 1)
        inside = inside & (spread >= 0) & (spread < length)
    count, each = prod(out), prod(windows.kernel)
    table = n.constant(flat.reshape(count, each))
    plane = n.reshape(x, (*x.shape[:2], prod(size)))
    least = float("-inf") if dtypes.is_float(x.dtype) else dtypes.lowest(x.dtype)
    values = n.op("gather", plane, table, axis=2)
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
        import numpy as np

        counts = windows.counts(x.shape[2:], y.shape[2:]) / np.float32(divisor)
        y = n.op("mul", y, n.cast(n.constant(counts), y.dtype))
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
    rank, x = _rank(n), n["self"]
    out = n.type.shape[-rank:]
    size = x.shape[-rank:]
    kind = "max" if "max" in n.stem else "avg"
    if all(out) and all(length % count == 0 for length, count in zip(size, out, strict=True)) and x.type.elements:
        kernel = tuple(length // count for length, count in zip(size, out, strict=True))
        y = n.op(f"{kind}_pool", _batched(n, x, rank), kernel=kernel, strides=kernel)
    else:
        y = x
        for axis, (length, count) in enumerate(zip(size, out, strict=True), x.rank - rank):
            bounds = [(i * length // count, -(-(i + 1) * length // count)) for i in range(count)]
            name = "reduce_max" if kind == "max" else "reduce_mean"
            parts = [n.op(name, n.slice(y, axis, a, b), axes=(axis,), keepdims=True) for a, b in bounds]
            if not parts:
                return n.filled(0, n.type)
            y = n.op("concat", *parts, axis=axis) if len(parts) > 1 else parts[0]
    y = n.done(y)
    return y if len(n.results) == 1 else (y, None)
