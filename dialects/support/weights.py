"""Weight stores: where the bytes of a model's weights are. The IR names a weight by key; nothing in it holds bytes.

A store maps keys to a shape, a dtype and a way to get the array. Importers fill it with views of memory-mapped files, so
that making a store copies nothing. A store may be *shape only*: types without bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from headrace.dialects.support import dtypes
from headrace.dialects.support.diagnostics import CompileError

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Weight:
    """One weight: its type, and `load` which gives its array (read-only, possibly unaligned) or None when the store has
    no bytes for it."""

    shape: tuple[int, ...]
    dtype: str
    load: Callable[[], Array] | None = None

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return prod(self.shape) * dtypes.byte_size(self.dtype)


class WeightStore:
    """Weights by key, in the order they were added.

    >>> store = WeightStore(); store.add("w", (2,), "f32"); store["w"].nbytes
    8
    """

    def __init__(self) -> None:
        self._weights: dict[str, Weight] = {}

    def add(self, key: str, shape: tuple[int, ...], dtype: str, load: Callable[[], Array] | None = None) -> None:
        """Add a weight; `ValueError` when the key is taken."""
        if key in self._weights:
            raise ValueError(f"weight key {key!r} is taken")
        self._weights[key] = Weight(shape, dtype, load)

    def add_array(self, key: str, array: Array) -> None:
        """Add a weight that is in memory."""
        self.add(key, tuple(array.shape), dtypes.from_numpy(array.dtype), lambda: array)

    def array(self, key: str) -> Array:
        """The bytes of a weight as an array of its shape and dtype; never write to it.

        `CompileError` when there is no such weight or the store has only its shape.
        """
        weight = self._weights.get(key)
        if weight is None:
            raise CompileError("missing-weight", f"no weight '{key}' in the store")
        if weight.load is None:
            raise CompileError(
                "missing-weight",
                f"weight '{key}' has a shape but no bytes",
                why="the model was imported shape-only",
                fix="import it with its weights to run it",
            )
        return weight.load()

    @property
    def shape_only(self) -> bool:
        """Whether some weight has no bytes."""
        return any(weight.load is None for weight in self._weights.values())

    @property
    def nbytes(self) -> int:
        """Size of all weights in bytes."""
        return sum(weight.nbytes for weight in self._weights.values())

    def __getitem__(self, key: str) -> Weight:
        return self._weights[key]

    def __contains__(self, key: object) -> bool:
        return key in self._weights

    def __iter__(self) -> Iterator[str]:
        return iter(self._weights)

    def __len__(self) -> int:
        return len(self._weights)
