"""Norms."""

from __future__ import annotations

from math import prod

from headrace.frontends.building import Value
from headrace.frontends.torch.node import Node
from headrace.frontends.torch.ops import converts


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
    """What training would keep of the batch has no elements."""
    x = n["input"]
    (channels,) = n["running_mean"].shape
    of = type(x.type)((channels,), x.dtype)
    scale = n["weight"] if n.has("weight") else n.filled(1, of)
    bias = n["bias"] if n.has("bias") else n.filled(0, of)
    y = n.op("batch_norm", x, scale, bias, n["running_mean"], n["running_var"], epsilon=float(n.number("eps")))
    return y, *(n.filled(0, type) if type and not type.elements else None for type in n.results[1:])


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
