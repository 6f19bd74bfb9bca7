"""One run of ops on whole arrays, bound to a list of calls."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.dialects.support import dtypes
from headrace.dialects.tensor.meaning import evaluate
from headrace.dialects.tensor.shapes import TT
from headrace.runtime.arena import Pool

Array = np.ndarray[Any, np.dtype[Any]]
Step = tuple[Callable[..., Any], tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Op:
    """A tensor op on values named by any hashable key."""

    name: str
    attrs: Mapping[str, Any]
    operands: tuple[Any, ...]
    results: tuple[Any, ...]
    types: tuple[TT, ...]


def bind(ops: Sequence[Op], inputs: Mapping[Any, Array], outputs: Mapping[Any, Array], pool: Pool) -> list[Step]:
    """Calls that run `ops` on the arrays of `inputs` and leave the values of `outputs` in their arrays."""
    values: dict[Hashable, Array] = {**inputs}
    steps: list[Step] = []
    for op in ops:
        targets: list[Array] = []
        for r, type in zip(op.results, op.types, strict=True):
            values[r] = outputs[r] if r in outputs else pool.take(type.shape, dtypes.to_numpy(type.dtype))
            targets.append(values[r])
        steps.append((_evaluate, (op.name, op.attrs, [values[v] for v in op.operands], targets)))
    return steps


def _evaluate(name: str, attrs: Mapping[str, Any], operands: list[Array], results: list[Array]) -> None:
    for target, value in zip(results, evaluate(name, attrs, *operands), strict=True):
        np.copyto(target, value)


def constant(attrs: Mapping[str, Any], type: TT) -> Array:
    """The array of a constant of a body: `value` holds the little-endian bytes of its elements, or of one that all
    share, or an array."""
    value = attrs["value"]
    dtype = dtypes.to_numpy(type.dtype)
    held = np.frombuffer(value, dtype) if isinstance(value, bytes) else np.asarray(value, dtype)
    if held.size == 1:
        return np.broadcast_to(held.reshape(()), type.shape)
    return held.reshape(type.shape)
