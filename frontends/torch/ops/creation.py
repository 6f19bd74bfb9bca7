"""Tensors of numbers: filled, counted and made of scalars."""

from __future__ import annotations

from headrace.dialects.support import dtypes
from headrace.frontends.building import Value
from headrace.frontends.torch.node import Node
from headrace.frontends.torch.ops import converts

FILL = {"full": "fill_value", "full_like": "fill_value", "fill": "value"}


@converts(*FILL)
def _full(n: Node) -> Value:
    return n.filled(n.number(FILL[n.stem]), n.type)


@converts("empty", "empty_permuted", "empty_strided", "new_empty_strided")
def _empty(n: Node) -> Value:
    """What PyTorch leaves undefined is zero."""
    return n.filled(0, n.type)


@converts("scalar_tensor")
def _scalar(n: Node) -> Value:
    return n.scalar(n.number("s"), n.type.dtype)


@converts("arange", "range")
def _arange(n: Node) -> Value:
    import numpy as np

    start, step, dtype = n.number("start", 0), n.number("step", 1), n.type.dtype
    if dtypes.is_float(dtype) or isinstance(start, float) or isinstance(step, float):
        (count,) = n.type.shape
        return n.constant((start + np.arange(count) * step).astype(dtypes.to_numpy(dtype)))
    counted = n.op("iota", shape=n.type.shape, dtype=dtype, axis=0)
    if step != 1:
        counted = n.op("mul", counted, step)
    return n.op("add", counted, start) if start else counted


@converts("tril_indices", "triu_indices")
def _triangle(n: Node) -> Value:
    """Rows and columns of the elements below or above a diagonal, row by row."""
    import numpy as np

    row, column = np.indices((n.number("row"), n.number("col"))).reshape(2, -1)
    offset = n.number("offset", 0)
    chosen = column - row <= offset if n.stem == "tril_indices" else column - row >= offset
    return n.constant(np.stack([row[chosen], column[chosen]]).astype(dtypes.to_numpy(n.type.dtype)))
