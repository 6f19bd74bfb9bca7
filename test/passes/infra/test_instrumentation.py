"""Every pass tells the journal what it does, and can be stopped between any two rewrites.

Each pass is run on its own test program, `test/passes/<level>/<pass>.mlir`, as the first RUN line there has it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from headrace.dialects.support.journal import Journal, recording
from headrace.passes.infra.manager import PassManager, Watch
from headrace.passes.infra.registry import available, build
from headrace.tools.opt import context, parse, pipelines

PASSES = Path(__file__).parents[1]
MUST_RUN = frozenset(
    {
        *("convert-tensor-to-dataflow", "convert-dataflow-to-rdu"),
        *("size-buffers", "bank-memories", "allocate-memory", "place", "route"),
        *("check-native-types", "check-deadlock", "check-resources"),
    }
)
"""Passes without which there is no program, and checks: they take no fuel, and count what they do."""
FUELS = 6


@dataclass
class Case:
    """A pass and the programs of its test, as they are before it runs."""

    one: ModulePass
    modules: list[ModuleOp]


def case(name: str) -> Case:
    """The pass `name`, with the options that its test gives it, and programs that it has something to do on."""
    level = available()[name]().__module__.split(".")[-2]
    text = (PASSES / level / f"{name.replace('-', '_')}.mlir").read_text(encoding="utf-8")
    line = next(line for line in text.splitlines() if line.startswith("// RUN: headrace-opt"))
    found = re.search(r"-p ('([^']*)'|\S+)", line)
    assert found is not None
    passes = build(found[2] or found[1], pipelines=pipelines())
    at = next(i for i, one in enumerate(passes) if one.name == name)
    modules = [parse(context(), part, "x.mlir")[0] for part in text.split("// -----")]
    for module in modules:
        PassManager(context(), passes[:at]).run(module)
    return Case(passes[at], modules)


def run(one: ModulePass, module: ModuleOp, fuel: int | None = None) -> tuple[bool, Journal]:
    """Run a pass, held to its contract; whether it changed anything, and what it wrote."""
    with recording(Journal(fuel)) as journal:
        changed = PassManager(context(), [one], Watch(verify_each=True)).run(module)
    return changed, journal


@pytest.mark.parametrize("name", available())
def test_every_pass_says_what_it_does(name: str) -> None:
    here = case(name)
    written = [run(here.one, module)[1] for module in here.modules]
    if name in MUST_RUN:
        assert not any(journal.applied for journal in written)
        assert any(journal.statistics or journal.decisions for journal in written)
    else:
        assert any(journal.applied for journal in written)
    for journal in written:
        assert {one.pass_name for one in (*journal.applied, *journal.declined, *journal.decisions)} <= {name}


@pytest.mark.parametrize("name", [name for name in available() if name not in MUST_RUN])
def test_fuel_stops_a_pass_between_two_rewrites(name: str) -> None:
    here = case(name)
    for module in here.modules:
        changed, journal = run(here.one, module.clone())
        total = len(journal.applied)
        assert changed == (total > 0)
        for fuel in range(min(total, FUELS)):
            stopped = module.clone()
            changed, partial = run(here.one, stopped, fuel)
            assert partial.applied == journal.applied[:fuel]
            assert changed == (fuel > 0)
            assert fuel or module.is_structurally_equivalent(stopped)
