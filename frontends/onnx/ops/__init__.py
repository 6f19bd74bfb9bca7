"""The op tables of the ONNX importer: one function per ONNX op, grouped by family.

A conversion takes a `Node` and gives the value of its result, or a tuple of values when it has several (None for an
optional result it does not make). It raises `Refused` with a reason for what it cannot express.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import TypeVar

from headrace.frontends.building import Value
from headrace.frontends.onnx.node import Node

FAMILIES = (
    "elementwise",
    "activation",
    "contraction",
    "reduction",
    "movement",
    "indexing",
    "normalization",
    "host",
    "random",
    "loss",
    "attention",
)

Convert = Callable[[Node], "Value | Sequence[Value | None]"]
T = TypeVar("T", bound=Convert)
_table: dict[str, Convert] = {}


def converts(*op_types: str) -> Callable[[T], T]:
    """Register the conversion of ONNX ops of the standard domain."""

    def register(convert: T) -> T:
        _table.update(dict.fromkeys(op_types, convert))
        return convert

    return register


@cache
def table() -> dict[str, Convert]:
    """Every conversion by ONNX op type."""
    for family in FAMILIES:
        import_module(f"{__name__}.{family}")
    return _table
