"""Norms, dropout and pooling."""

from __future__ import annotations

from math import prod

from headrace.frontends.building import Refused, Value
from headrace.frontends.torch.node import Node
from headrace.frontends.torch.ops import converts


def _last(n: Node, x: Value, shape: tuple[int, ...]) -> Value:
    """x with the dims that are normalised as one."""
    return n.reshape(x, (*x.shape[: x.rank - len(shape)], prod(shape)))


@converts("layer_norm")
def _layer_norm(n: Node) -> Value:
    shape, x = n.ints("normalized_shape"), n["input"]
    flat = _last(n, x, shape)
    scale = (
        n.reshape(n["weight"], (prod(shape),))
        if n.has("weight")
        else n.filled(1, type(x.type)((prod(shape),), x.dtype))
    )
    operands = [flat, scale, *((n.reshape(n["bias"], (prod(shape),)),) if n.has("bias") else ())]
    return n.reshape(n.op("layer_norm", *operands, axis=flat.rank - 1, epsilon=float(n.number("eps", 1e-5))), x.shape)


@converts("rms_norm")
def _rms_norm(n: Node) -> Value:
    import numpy as np

    shape, x = n.ints("normalized_shape"), n["input"]
    flat = _last(n, x, shape)
    scale = (
        n.reshape(n["weight"], (prod(shape),))
        if n.has("weight")
        else n.filled(1, type(x.type)((prod(shape),), x.dtype))
    )
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


@converts("max_pool2d_with_indices", "max_pool3d_with_indices")
def _max_pool(n: Node) -> tuple[Value | None, ...]:
    """The positions of the maxima are not supported; what uses them is refused."""
    x = n["self"]
    kernel = n.ints("kernel_size")
    rank = 2 if "2d" in n.stem else 3
    kernel = kernel * rank if len(kernel) == 1 else kernel
    strides = n.spread("stride", rank, ()) or kernel
    pads = n.spread("padding", rank, (0,))
    if n.get("ceil_mode"):
        raise Refused("its windows begin beyond the input (ceil_mode)")
    unbatched = x.rank == rank + 1
    y = n.op(
        "max_pool",
        n.reshape(x, (1, *x.shape)) if unbatched else x,
        kernel=kernel,
        strides=strides,
        pads=(*pads, *pads),
        dilations=n.spread("dilation", rank, (1,)),
    )
    return n.done(y), None


@converts("_adaptive_avg_pool2d", "adaptive_avg_pool2d")
def _adaptive(n: Node) -> Value:
    x = n["self"]
    if n.type.shape[-2:] == (1, 1):
        return n.op("reduce_mean", x, axes=(x.rank - 2, x.rank - 1), keepdims=True)
    raise Refused("its windows differ in size", "pool with a fixed kernel")
