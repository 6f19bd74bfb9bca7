"""Ops that only move elements: views where the strides allow, copies otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from headrace.dialects.support.diagnostics import CompileError
from headrace.dialects.tensor.meaning import evaluate
from headrace.runtime.kernels.calls import Call, Step, binds, coalesce, scalar
from headrace.runtime.kernels.scratch import Array

VIEWS = frozenset({"tensor.reshape", "tensor.transpose", "tensor.broadcast", "tensor.slice", "tensor.split"})
"""Ops whose results can be views of their operand."""


def views_of(name: str, attrs: Mapping[str, Any], x: Array) -> tuple[Array, ...] | None:
    """The results of a movement op as views of x; None when an element would have to move."""
    if name not in VIEWS:
        return None
    results = evaluate(name, attrs, x)
    return results if all(r.size == 0 or np.may_share_memory(r, x) for r in results) else None


def copy(source: Array, target: Array) -> list[Step]:
    """One copy, over as few dims as the strides allow."""
    if source.size == 0:
        return []
    (a,), (b,) = coalesce([source], [target])
    return [(np.copyto, (b, a))]


@binds("tensor.transpose", "tensor.broadcast", "tensor.slice", "tensor.split", any_dtype=True)
def view(call: Call) -> list[Step] | None:
    """Copies of the views."""
    results = views_of(call.name, call.attrs, call.inputs[0])
    if results is None:
        return None
    return [step for source, target in zip(results, call.outputs, strict=True) for step in copy(source, target)]


@binds("tensor.reshape", any_dtype=True)
def reshape(call: Call) -> list[Step] | None:
    """A copy through a view of either side."""
    x, o = call.inputs[0], call.output
    if (results := views_of(call.name, call.attrs, x)) is not None:
        return copy(results[0], o)
    if o.flags.c_contiguous:
        return copy(x, o.reshape(x.shape))
    dense = call.scratch.take(x.shape, x.dtype)
    return [*copy(x, dense), *copy(dense.reshape(o.shape), o)]


@binds("tensor.concat", any_dtype=True)
def concat(call: Call) -> list[Step] | None:
    """A copy of every operand to its place."""
    axis = call.attrs["axis"] % call.output.ndim
    steps: list[Step] = []
    at = 0
    for x in call.inputs:
        steps += copy(x, call.output[(*(slice(None),) * axis, slice(at, at + x.shape[axis]))])
        at += x.shape[axis]
    return steps


@binds("tensor.pad", any_dtype=True)
def pad(call: Call) -> list[Step] | None:
    """The border by a constant, and a copy."""
    if call.attrs["mode"] != "constant":
        return None
    x, o = call.inputs[0], call.output
    value = scalar(0, o.dtype) if call.attrs["value"] == 0 else np.array(call.attrs["value"]).astype(o.dtype)
    steps: list[Step] = []
    inside: tuple[slice, ...] = ()
    source: tuple[slice, ...] = ()
    for n, low, size in zip(x.shape, call.attrs["lo"], o.shape, strict=True):
        first, last = max(low, 0), max(min(low + n, size), 0)
        for border in (slice(0, first), slice(last, size)):
            part = o[(*inside, border)]
            if part.size:
                steps.append((np.copyto, (part, value)))
        inside = (*inside, slice(first, last))
        source = (*source, slice(max(-low, 0), max(-low, 0) + max(last - first, 0)))
    return [*steps, *copy(x[source], o[inside])]


@binds("tensor.iota", any_dtype=True)
def iota(call: Call) -> list[Step] | None:
    """A copy of the values, made once."""
    (values,) = evaluate(call.name, call.attrs)
    return copy(values, call.output)


class Gather:
    """np.take into the output, with the bounds checked."""

    def __init__(self, axis: int) -> None:
        self.axis = axis

    def __call__(self, data: Array, indices: Array, out: Array) -> None:
        """Raises CompileError for an index out of range."""
        size = data.shape[self.axis]
        low, high = int(indices.min()), int(indices.max())
        if low < -size or high >= size:
            raise CompileError(
                "index-out-of-range",
                f"index {low if low < -size else high} is out of range for dim {self.axis} of size {size}",
                fix=f"indices lie in {-size}..{size - 1}",
            )
        np.take(data, indices, self.axis, out, "wrap")


@binds("tensor.gather", any_dtype=True)
def gather(call: Call) -> list[Step] | None:
    """Rows by their indices."""
    data, indices = call.inputs
    if not call.output.flags.c_contiguous or indices.size == 0 or call.output.size == 0:
        return None
    return [(Gather(call.attrs["axis"] % data.ndim), (data, indices, call.output))]
