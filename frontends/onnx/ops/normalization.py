"""Softmax and the norms: imported whole, `tensor` has one decomposition for each."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from headrace.frontends.building import Refused, Value
from headrace.frontends.onnx.node import Node
from headrace.frontends.onnx.ops import converts


@converts("Softmax", "LogSoftmax")
def _softmax(n: Node) -> Value:
    name = "softmax" if n.op_type == "Softmax" else "log_softmax"
    return n.op(name, n[0], axis=n.axis(n.int("axis", -1), n[0].rank))


def _fit(n: Node, x: Value, shape: Sequence[int]) -> Value:
    """A scale or bias in the shape of the normalized dims."""
    while x.rank > len(shape) and x.shape[0] == 1:
        x = n.reshape(x, x.shape[1:])
    return n.broadcast(x, shape)


@converts("LayerNormalization")
def _layer_norm(n: Node) -> Sequence[Value | None]:
    x, scale, bias = n[0], n[1], n.get(2)
    axis, epsilon = n.axis(n.int("axis", -1), x.rank), n.float("epsilon", 1e-5)
    shape = x.shape[axis:]
    scale = _fit(n, scale, shape)
    operands = (x, scale) if bias is None else (x, scale, _fit(n, bias, shape))
    y = n.op("layer_norm", *operands, axis=axis, epsilon=epsilon)
    if not any(n.outputs[1:]):
        return (y,)
    axes = tuple(range(axis, x.rank))
    wide = n.cast(x, "f32")
    mean = n.op("reduce_mean", wide, axes=axes, keepdims=True)
    away = n.op("sub", wide, mean)
    variance = n.op("reduce_mean", n.op("mul", away, away), axes=axes, keepdims=True)
    return y, mean, n.op("rsqrt", n.op("add", variance, n.scalar(epsilon, "f32")))


@converts("RMSNormalization")
def _rms_norm(n: Node) -> Value:
    x = n[0]
    axis = n.axis(n.int("axis", -1), x.rank)
    return n.op("rms_norm", x, _fit(n, n[1], x.shape[axis:]), axis=axis, epsilon=n.float("epsilon", 1e-5))


@converts("BatchNormalization")
def _batch_norm(n: Node) -> Value:
    if n.flag("training_mode") or any(n.outputs[1:]):
        raise Refused("it is in training mode", "export the model for inference (model.eval())")
    x = n[0]
    statistics = [n.cast(n[i], x.dtype) for i in range(1, 5)]
    if x.rank == 1:
        raise Refused(f"{x.type} has no channel dim", code="bad-node")
    return n.op("batch_norm", x, *statistics, epsilon=n.float("epsilon", 1e-5))


@converts("InstanceNormalization")
def _instance_norm(n: Node) -> Value:
    """A group norm with a group per channel."""
    x = n[0]
    if x.rank < 3:
        raise Refused(f"{x.type} has no spatial dims", code="bad-node")
    return n.op("group_norm", x, n[1], n[2], groups=x.shape[1], epsilon=n.float("epsilon", 1e-5))


@converts("GroupNormalization")
def _group_norm(n: Node) -> Value:
    """Scale and bias are per channel; before opset 21 they were per group."""
    x, groups = n[0], n.int("num_groups")
    if x.rank < 2 or groups < 1 or x.shape[1] % groups:
        raise Refused(f"{groups} groups do not divide {x.type}", code="bad-node")
    scale, bias = n[1], n[2]
    if n.opset < 21:
        each = (groups, x.shape[1] // groups)
        scale, bias = (n.reshape(n.broadcast(n.reshape(v, (groups, 1)), each), (prod(each),)) for v in (scale, bias))
    return n.op("group_norm", x, scale, bias, groups=groups, epsilon=n.float("epsilon", 1e-5))


@converts("MeanVarianceNormalization")
def _mean_variance(n: Node) -> Value:
    x = n[0]
    axes = tuple(sorted(n.axis(a, x.rank) for a in n.int_list("axes", (0, 2, 3))))
    away = n.op("sub", x, n.op("reduce_mean", x, axes=axes, keepdims=True))
    variance = n.op("reduce_mean", n.op("mul", away, away), axes=axes, keepdims=True)
    return n.op("div", away, n.op("add", n.op("sqrt", variance), n.scalar(1e-9, x.dtype)))


@converts("LRN")
def _lrn(n: Node) -> Value:
    """x / (bias + alpha · mean of x² over `size` neighbouring channels) ** beta."""
    x, size = n[0], n.int("size")
    if x.rank < 2 or size < 1:
        raise Refused(f"{x.type} has no channels, or size is {size}", code="bad-node")
    shape = x.shape
    squares = n.reshape(n.op("mul", x, x), (shape[0], 1, shape[1], prod(shape[2:])))
    before, after = (size - 1) // 2, size - 1 - (size - 1) // 2
    mean = n.op(
        "avg_pool",
        n.op("pad", squares, lo=(0, 0, before, 0), hi=(0, 0, after, 0)),
        kernel=(size, 1),
    )
    scaled = n.op("mul", n.reshape(mean, shape), n.scalar(n.float("alpha", 1e-4), x.dtype))
    base = n.op("add", scaled, n.scalar(n.float("bias", 1.0), x.dtype))
    return n.op("div", x, n.op("pow", base, n.scalar(n.float("beta", 0.75), x.dtype)))
