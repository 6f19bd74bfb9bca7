"""The NumPy meaning of every tensor op: what a program computes, written once and used by folding, interpreters, tests,
`headrace compare` and the runtime's literal mode. Imports NumPy and nothing of the IR."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import numpy as np

FAMILIES = ("elementwise", "contraction", "reduction", "movement", "indexing", "random", "collective", "composite")
Array = np.ndarray[Any, np.dtype[Any]]
Attrs = Mapping[str, Any]
Meaning = Callable[..., "Array | tuple[Array, ...]"]

_meaning: dict[str, Meaning] = {}
_loaded = False


def means(*names: str) -> Callable[[Meaning], Meaning]:
    """Register the meaning of ops: a function of (attrs, *arrays)."""

    def register(rule: Meaning) -> Meaning:
        _meaning.update(dict.fromkeys(names, rule))
        return rule

    return register


def evaluate(name: str, attrs: Attrs, *arrays: Array) -> tuple[Array, ...]:
    """The results of one op on arrays. Never modifies its arguments; results may be views of them."""
    global _loaded
    if not _loaded:
        _loaded = True
        for family in FAMILIES:
            import_module(f"{__name__}.{family}")
    found = _meaning[name](attrs, *arrays)
    return tuple(np.asarray(x) for x in (found if isinstance(found, tuple) else (found,)))  # NumPy scalars to arrays
