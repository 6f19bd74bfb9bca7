"""Making attributes that a program has thousands of."""

from __future__ import annotations

from typing import TypeVar

from xdsl.ir import Attribute

A = TypeVar("A", bound=Attribute)


def fitting(cls: type[A], **parameters: Attribute) -> A:
    """An attribute of parameters that are known to fit it: its verifier, which takes most of the time of making one,
    does not run."""
    found = cls.__new__(cls)
    vars(found).update(parameters)
    return found
