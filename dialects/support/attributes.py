"""Making attributes that a program has thousands of."""

from __future__ import annotations

from typing import Any, TypeVar

from xdsl.ir import Attribute

A = TypeVar("A", bound=Attribute)


def fitting(cls: type[A], **parameters: Any) -> A:
    """An attribute of parameters (or data) that are known to fit it. Its verifier, which takes most of the time of
    making one, does not run."""
    found = cls.__new__(cls)
    vars(found).update(parameters)
    return found
