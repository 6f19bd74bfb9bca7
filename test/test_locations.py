"""Every op and argument says which nodes of the model it stands for, through every pass, print and parse."""

from __future__ import annotations

import io
from collections.abc import Iterator
from functools import cache

import pytest
import workloads
from workloads import NAMES
from xdsl.dialects.builtin import (
    CallSiteLoc,
    FileLineColLoc,
    FusedLoc,
    IntAttr,
    ModuleOp,
    NameLoc,
    NoneAttr,
    StringAttr,
    UnknownLoc,
)
from xdsl.ir import BlockArgument, Operation
from xdsl.printer import Printer

from headrace.compiler import import_model
from headrace.dialects.machine.attributes import set_device
from headrace.dialects.machine.device import load_device
from headrace.dialects.support import locations
from headrace.dialects.support.locations import Location, named, nodes, origins
from headrace.passes.infra.registry import build
from headrace.passes.pipelines import PHASES
from headrace.tools.opt import context, parse, pipelines

FOLDED = "Constant"
"""The kind of node that an op may take in without naming it: the 0.5 in a gelu."""


def places(module: ModuleOp) -> Iterator[tuple[Operation | BlockArgument, Location]]:
    """All that has a location, with it."""
    for op in module.walk():
        yield op, op.location
        for region in op.regions:
            for block in region.blocks:
                for argument in block.args:
                    yield argument, argument.location


def standing(module: ModuleOp, ops: bool = False) -> set[str]:
    """The nodes that anything in a module stands for; of `ops` alone if wanted."""
    found = [where for what, where in places(module) if isinstance(what, Operation) or not ops]
    return {node for where in found for node in nodes(where)}


def unknown(module: ModuleOp) -> list[object]:
    """What has no location."""
    return [what for what, where in places(module) if not list(nodes(where))]


def text(module: ModuleOp, generic: bool = False, debuginfo: bool = True) -> str:
    out = io.StringIO()
    Printer(out, print_generic_format=generic, print_debuginfo=debuginfo).print_op(module)
    return out.getvalue()


@cache
def kinds(name: str) -> dict[str, str]:
    """What each node of a workload is."""
    return {node.name: node.op_type for node in workloads.small(name).model().graph.node}


def imported(name: str) -> ModuleOp:
    return import_model(workloads.small(name).model()).module


def through(module: ModuleOp, folded: set[str], round_trips: bool = False) -> set[str]:
    """Take a module through all passes and hold each to its locations; the nodes that are left. `folded` are those that
    an op may take in."""
    set_device(module, load_device("sn40l"))
    ctx = context()
    known = standing(module)
    assert not unknown(module)
    before = standing(module, ops=True)
    last = {phase.passes[-1] for phase in PHASES.values()}
    for one in build("default", pipelines=pipelines()):
        one.apply(ctx, module)
        assert not unknown(module), f"{one.name}: without a location"
        now = standing(module, ops=True)
        assert now <= known, f"{one.name}: no nodes of the model: {sorted(now - known)}"
        lost = before - now - folded
        assert not lost, f"{one.name}: nodes that no op stands for any more: {sorted(lost)}"
        before = now
        if round_trips and one.name in last:
            for generic in (False, True):
                again, _ = parse(ctx, text(module, generic), "again")
                same = [where for _, where in places(again)] == [where for _, where in places(module)]
                assert same, f"{one.name}: other locations after print and parse, generic {generic}"
    return before


# Passes


@pytest.mark.parametrize("name", NAMES)
def test_no_pass_loses_or_invents_a_location(name: str) -> None:
    module = imported(name)
    inputs = {node for f in module.body.block.ops for a in f.regions[0].block.args for node in nodes(a.location)}
    folded = {node for node, kind in kinds(name).items() if kind == FOLDED} | inputs
    left = through(module, folded, round_trips=True)
    assert left & kinds(name).keys()


@pytest.mark.parametrize("name", NAMES)
def test_every_node_has_a_unit(name: str) -> None:
    """What an importer turned into an op is found again in the routed program, on what carries it out."""
    module = imported(name)
    made = standing(module, ops=True) & kinds(name).keys()
    left = through(module, {node for node in made if kinds(name)[node] == FOLDED})
    assert {node for node in made - left if kinds(name)[node] != FOLDED} == set()


@pytest.mark.parametrize("name", NAMES)
def test_lines_of_text_survive_as_names_do(name: str) -> None:
    written = text(imported(name), debuginfo=False)
    module, _ = parse(context(), written, "model.mlir")
    constants = {
        f"model.mlir:{op.location.line.data}:{op.location.column.data}"
        for op in module.walk()
        if op.name == "tensor.constant" and isinstance(op.location, FileLineColLoc)
    }
    first = next(iter(module.body.block.ops))
    arguments = {node for a in first.regions[0].block.args for node in nodes(a.location)}
    through(module, constants | arguments)


# Kinds of locations

A, B = named("a"), named('quoted "b" \\ back')
FILE = FileLineColLoc(StringAttr("dir/file.py"), IntAttr(3), IntAttr(7))
NONE = NoneAttr()
KINDS = {
    "name": A,
    "quoted": B,
    "utf8": named("größe/层"),
    "child": NameLoc(StringAttr("layer"), FILE),
    "file": FILE,
    "fused": FusedLoc((A, B, FILE), NONE),
    "metadata": FusedLoc((A, B), StringAttr("why")),
    "callsite": CallSiteLoc(A, CallSiteLoc(FILE, B)),
    "nested": FusedLoc(
        (CallSiteLoc(A, FusedLoc((B, FILE), NONE)), NameLoc(StringAttr("n"), FusedLoc((A, B), NONE))), NONE
    ),
}
PROGRAM = """\
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = tensor.exp %x : tensor<4x8xf32> -> tensor<4x8xf32>
  func.return %0 : tensor<4x8xf32>
}
"""


@pytest.mark.parametrize("generic", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_print_and_parse(kind: str, generic: bool) -> None:
    module, _ = parse(context(), PROGRAM, "p")
    for what, _ in list(places(module)):
        what.location = KINDS[kind]
    again, _ = parse(context(), text(module, generic), "again")
    assert [where for _, where in places(again)] == [KINDS[kind]] * 5


def test_parsed_arguments_have_their_place() -> None:
    module, _ = parse(context(), PROGRAM, "p.mlir")
    assert [locations.text(where) for what, where in places(module) if isinstance(what, BlockArgument)] == [
        "p.mlir:1:17"
    ]


def test_clones_keep_locations() -> None:
    module = imported("attn")
    assert [where for _, where in places(module.clone())] == [where for _, where in places(module)]


# What an op stands for


def test_origins_of_fused_and_named() -> None:
    op = ModuleOp([])
    op.location = locations.fuse([A, FILE, A])
    assert origins(op) == ["a", "dir/file.py:3:7"]
    op.location = locations.standing_for("layer", [named("h.0/x"), named("h.1/x")])
    assert locations.text(op.location) == "layer" and origins(op) == ["h.0/x", "h.1/x"]
    assert locations.standing_for("layer", [A, A]) == A
    op.location = KINDS["child"]
    assert origins(op) == ["layer"], "where a node was written is not what it is called"


def test_origins_of_a_call_are_those_of_its_layer() -> None:
    inner = locations.standing_for("x", [named("h.0/x"), named("h.1/x")])
    layer = locations.standing_for("h.1", [named("h.1/x"), named("h.1/y")])
    op = ModuleOp([])
    op.location = locations.call_site(inner, layer)
    assert locations.text(op.location) == "x in h.1" and origins(op) == ["h.1/x"]
    op.location = locations.call_site(inner, named("somewhere"))
    assert origins(op) == ["h.0/x", "h.1/x"]


def test_origins_of_an_op_without_are_those_around_it() -> None:
    module, _ = parse(context(), PROGRAM, "p.mlir")
    (function,) = module.body.block.ops
    inner = function.regions[0].block.first_op
    assert inner is not None
    inner.location = UnknownLoc()
    assert origins(inner) == ["p.mlir:1:1"]
    for what, _ in list(places(module)):
        what.location = UnknownLoc()
    assert origins(inner) == []


def test_fusing_again_changes_nothing() -> None:
    """Equal locations are one, however they were made."""
    for one in KINDS.values():
        again = locations.fuse([one, *(KINDS[kind] for kind in KINDS), one])
        assert locations.fuse([again, again.clone() if hasattr(again, "clone") else again]) == again
    a = locations.standing_for("n", [named("1"), named("2")])
    b = locations.standing_for("n", [named("1"), named("2")])
    assert a is not b and locations.fuse([a, b]) == a
    assert locations.fuse([a, locations.standing_for("n", [named("1"), named("3")])]) != a
