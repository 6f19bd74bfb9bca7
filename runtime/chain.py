"""Ops of a run and their constants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.dialects.support import dtypes
from headrace.dialects.tensor.shapes import TT

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Op:
    """A tensor op on values named by any hashable key."""

    name: str
    attrs: Mapping[str, Any]
    operands: tuple[Any, ...]
    results: tuple[Any, ...]


def constant(attrs: Mapping[str, Any], type: TT) -> Array:
    """The array of a constant of a body: `value` holds the little-endian bytes of its elements, or of one that all
    share, or an array."""
    value = attrs["value"]
    dtype = dtypes.to_numpy(type.dtype)
    held = np.frombuffer(value, dtype) if isinstance(value, bytes) else np.asarray(value, dtype)
    if held.size == 1:
        return np.broadcast_to(held.reshape(()), type.shape)
    return held.reshape(type.shape)
