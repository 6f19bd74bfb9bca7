"""The op tables of the PyTorch importer: one function per ATen op, grouped by family.

A conversion takes a `Node` and gives the value of its result, or a tuple of values when it has several (None for one
that nobody may use). It raises `Refused` with a reason for what it cannot express.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import TypeVar

from headrace.frontends.torch.node import Node, Result

FAMILIES = (
    "elementwise",
    "functions",
    "creation",
    "random",
    "reduction",
    "movement",
    "indexing",
    "ordering",
    "contraction",
    "normalization",
    "windows",
    "spectral",
    "numbers",
)

Convert = Callable[[Node], Result]
T = TypeVar("T", bound=Convert)
_table: dict[str, Convert] = {}
_complex: dict[str, Convert] = {}


def converts(*kinds: str) -> Callable[[T], T]:
    """Register the conversion of ATen ops, by name (all overloads) or by name and overload (`add.Tensor`)."""

    def register(convert: T) -> T:
        _table.update(dict.fromkeys(kinds, convert))
        return convert

    return register


def converts_complex(*kinds: str) -> Callable[[T], T]:
    """Register the conversion of ATen ops where an operand or a result is of complex numbers."""

    def register(convert: T) -> T:
        _complex.update(dict.fromkeys(kinds, convert))
        return convert

    return register


@cache
def table(*, complex: bool = False) -> dict[str, Convert]:
    """Every conversion by ATen op, of `complex` numbers or others."""
    for family in FAMILIES:
        import_module(f"{__name__}.{family}")
    return _complex if complex else _table


def conversion(kind: str, *, complex: bool = False) -> Convert | None:
    """The conversion of an op such as `aten.add.Tensor`, of `complex` numbers or others; None when there is none."""
    found = table(complex=complex)
    namespace, name, overload = (*kind.split("."), "", "")[:3]
    if namespace != "aten":
        return found.get(kind)
    return found.get(f"{name}.{overload}") or found.get(name)
