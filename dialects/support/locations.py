"""Model locations: where an op came from, kept through every rewrite.

A location is a builtin IR attribute. Importers use `named("encoder/MatMul_3")`, on ops and on arguments; rewrites
inherit, merges fuse, a call site joins the callee's location with the caller's. A name may stand for other locations
(`standing_for`): an op of a function that was outlined from several layers is called by one name and holds theirs.
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
from xdsl.ir import Attribute, BlockArgument, Operation, SSAValue

from headrace.dialects.support.attributes import by_identity, fitting, string

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


def _identity(leaf: Location) -> str:
    """Equal for equal locations; hashing an attribute is slow."""
    if type(leaf) is NameLoc and type(leaf.location) is NoneAttr:
        return leaf.desc.data
    return _spelled(leaf)


@by_identity
def _spelled(leaf: Location) -> str:
    """All of a location that is more than a name; no name begins as it does."""

    def all_of(location: Location) -> str:
        return "\0".join(map(_identity, leaves(location)))

    if isinstance(leaf, NameLoc):
        return f"\0{leaf.desc.data}\0({all_of(cast('Location', leaf.location))})"
    if isinstance(leaf, CallSiteLoc):
        return f"\0({all_of(cast('Location', leaf.callee))}\0at {all_of(cast('Location', leaf.caller))})"
    return f"\0{text(leaf)}"


def standing_for(name: str, locations: Iterable[Location]) -> Location:
    """A name for what stands for all of `locations`. Where they are one, it is that one."""
    below = fuse(locations)
    return fitting(NameLoc, desc=string(name), location=below) if type(below) is FusedLoc else below


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


def of_value(value: SSAValue) -> Location:
    """Where a value comes from: the location of its op or argument, else of the op around the argument."""
    if isinstance(value, BlockArgument):
        around = value.block.parent_op()
        return value.location if is_known(value.location) or around is None else around.location
    owner = value.owner
    return owner.location if isinstance(owner, Operation) else UnknownLoc()


def origins(op: Operation) -> list[str]:
    """The model nodes that an op stands for, by name (`file:line:col` where a program has no names), in order; those of
    the nearest op around it when its own location is unknown."""
    current: Operation | None = op
    while current is not None:
        found = list(dict.fromkeys(nodes(current.location)))
        if found:
            return found
        current = current.parent_op()
    return []


def nodes(location: Location) -> Iterable[str]:
    """The model nodes that a location names, in order."""
    for leaf in leaves(location):
        if isinstance(leaf, NameLoc):
            below = list(nodes(leaf.location)) if isinstance(leaf.location, NameLoc | FusedLoc | CallSiteLoc) else []
            yield from below or [leaf.desc.data]
        elif isinstance(leaf, CallSiteLoc):
            # The layer that is called holds the nodes of one iteration, the op in it those of all.
            inner, here = ([*nodes(cast("Location", x))] for x in (leaf.callee, leaf.caller))
            around = set(here)
            yield from [node for node in inner if node in around] or inner
        else:
            yield text(leaf)


def of(op: Operation) -> str:
    """The location text of an op; of the nearest enclosing op that has one when its own is unknown."""
    current: Operation | None = op
    while current is not None:
        found = text(current.location)
        if found:
            return found
        current = current.parent_op()
    return ""
