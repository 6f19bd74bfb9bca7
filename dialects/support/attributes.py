"""Attributes that a program has thousands of: making them, and asking about them."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute

MOST_REMEMBERED = 1 << 16
A = TypeVar("A", bound=Attribute)
T = TypeVar("T")


def fitting(cls: type[A], **parameters: Any) -> A:
    """An attribute of parameters (or data) that are known to fit it. Its verifier, which takes most of the time of
    making one, does not run."""
    found = cls.__new__(cls)
    vars(found).update(parameters)
    return found


def string(text: str) -> StringAttr:
    """A string attribute."""
    return fitting(StringAttr, data=text)


def by_identity(function: Callable[[A], T]) -> Callable[[A], T]:
    """Remember what a function gave for an attribute, by the identity of the attribute: hashing one costs more than
    most of what is asked about it."""
    seen: dict[int, tuple[A, T]] = {}  # each entry keeps its attribute alive, and so its identity

    @wraps(function)
    def remembered(attribute: A) -> T:
        entry = seen.get(id(attribute))
        if entry is None:
            if len(seen) >= MOST_REMEMBERED:
                seen.clear()
            entry = seen[id(attribute)] = (attribute, function(attribute))
        return entry[1]

    return remembered
