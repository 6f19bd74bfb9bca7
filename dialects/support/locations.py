"""Model locations: where an op came from, kept through every rewrite.

A location is a builtin IR attribute. Importers use `named("encoder/MatMul_3")`; rewrites inherit, merges fuse, a call
site joins the callee's location with the caller's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from xdsl.dialects.builtin import (
    ArrayAttr,
    CallSiteLoc,
    FileLineColLoc,
    FusedLoc,
    IntAttr,
    NameLoc,
    NoneAttr,
    StringAttr,
    UnknownLoc,
)
from xdsl.dialects.builtin import LocationAttr as Location
from xdsl.ir import Attribute, Operation

from headrace.dialects.support.attributes import fitting, string

NOTHING = NoneAttr()


def named(name: str) -> Location:
    """The location of a named model node."""
    return fitting(NameLoc, desc=string(name), location=NOTHING)


def file_line(path: str, line: int, column: int = 0) -> Location:
    """A position in a source file."""
    return FileLineColLoc(StringAttr(path), IntAttr(line), IntAttr(column))


def is_known(location: Attribute) -> bool:
    """Whether a location says anything."""
    return type(location) is not UnknownLoc


def _parts(location: FusedLoc) -> Iterable[Location]:
    return cast("ArrayAttr[Location]", location.locations)


def leaves(location: Location) -> list[Location]:
    """The known locations that a location is fused of, in order; itself when it is not fused."""
    kind = type(location)  # isinstance of an abstract class is slow, and these have no subclasses
    if kind is FusedLoc:
        return [leaf for part in _parts(cast("FusedLoc", location)) for leaf in leaves(part)]
    return [] if kind is UnknownLoc else [location]


def fuse(locations: Iterable[Location]) -> Location:
    """One location for an op that replaces several: their distinct known locations in order."""
    found: dict[str | Location, Location] = {}
    for location in locations:
        for leaf in leaves(location):
            found.setdefault(_identity(leaf), leaf)
    if not found:
        return UnknownLoc()
    if len(found) == 1:
        return next(iter(found.values()))
    return fitting(FusedLoc, locations=ArrayAttr(tuple(found.values())), metadata=NOTHING)  # a list would have no hash


def _identity(leaf: Location) -> str | Location:
    """Equal for equal locations: the name of one that has nothing but a name, as hashing an attribute is slow."""
    if type(leaf) is NameLoc and type(leaf.location) is NoneAttr:
        return leaf.desc.data
    return leaf


def call_site(callee: Location, caller: Location) -> Location:
    """The location of an op of a shared function, seen from one call of it."""
    return CallSiteLoc(callee, caller) if is_known(caller) else callee


def text(location: Attribute, most: int = 3) -> str:
    """A location as a user reads it: `name`, `file:line:col`, `a + b + …`, `callee in caller`. Empty when unknown."""
    if isinstance(location, NameLoc):
        return location.desc.data
    if isinstance(location, FileLineColLoc):
        return f"{location.filename.data}:{location.line.data}:{location.column.data}"
    if isinstance(location, CallSiteLoc):
        return f"{text(location.callee, most)} in {text(location.caller, most)}"
    if isinstance(location, FusedLoc):
        leaves = [text(leaf, most) for leaf in _parts(location)]
        return " + ".join(leaves[:most]) + (f" + {len(leaves) - most} more" if len(leaves) > most else "")
    return ""


def of(op: Operation) -> str:
    """The location text of an op; of the nearest enclosing op that has one when its own is unknown."""
    current: Operation | None = op
    while current is not None:
        found = text(current.location)
        if found:
            return found
        current = current.parent_op()
    return ""
