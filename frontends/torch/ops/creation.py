"""Tensors of numbers: filled, counted and made of scalars."""

from __future__ import annotations

from headrace.frontends.building import Value
from headrace.frontends.torch.node import Node
from headrace.frontends.torch.ops import converts


@converts("full", "full_like")
def _full(n: Node) -> Value:
    return n.filled(n.number("fill_value"), n.type)


@converts("fill.Scalar")
def _fill(n: Node) -> Value:
    return n.filled(n.number("value"), n.type)


@converts("zeros", "zeros_like", "empty", "empty_permuted", "empty_strided", "empty_like", "new_zeros", "new_empty")
def _zeros(n: Node) -> Value:
    """What PyTorch leaves undefined is zero."""
    return n.filled(0, n.type)


@converts("ones", "ones_like", "new_ones")
def _ones(n: Node) -> Value:
    return n.filled(1, n.type)


@converts("scalar_tensor")
def _scalar(n: Node) -> Value:
    return n.scalar(n.number("s"), n.type.dtype)


@converts("arange")
def _arange(n: Node) -> Value:
    import numpy as np

    from headrace.dialects.support.dtypes import to_numpy

    start, step = n.number("start", 0), n.number("step", 1)
    (count,) = n.type.shape
    return n.constant((start + np.arange(count) * step).astype(to_numpy(n.type.dtype)))
