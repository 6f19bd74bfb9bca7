"""Bisecting: the pass, the rewrite of it, and what that changed."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, UnknownLoc
from xdsl.ir import Operation
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from headrace.dialects.support import journal, locations
from headrace.dialects.support.diagnostics import CompileError
from headrace.dialects.support.weights import WeightStore
from headrace.dialects.tensor.elementwise import SubOp
from headrace.passes.infra.base import Pass
from headrace.passes.infra.registry import build
from headrace.passes.infra.rewriting import rewrite
from headrace.tools.debug import Numbers, Predicate, Source, Trial, bisect, reduce_failure, write
from headrace.tools.debug.failures import PREDICATES, print_module
from headrace.tools.opt import context, parse

COUNT = 12
FAULT = "layer.7/Sub"


def model() -> ModuleOp:
    """A chain of subs, each with a place."""
    lines = ["func.func @main(%x0: tensor<4x8xf32>, %b: tensor<4x8xf32>) -> tensor<4x8xf32> {"]
    lines += [
        f'%x{i + 1} = tensor.sub %x{i}, %b : tensor<4x8xf32>, tensor<4x8xf32> -> tensor<4x8xf32> loc("layer.{i}/Sub")'
        for i in range(COUNT)
    ]
    text = "\n".join([*lines, f"func.return %x{COUNT} : tensor<4x8xf32>", "}"])
    return parse(context(), text, "model.mlir")[0]


@dataclass(frozen=True)
class Faulty(Pass):
    """Renames values, and does one thing wrong at one sub."""

    name: ClassVar[str] = "faulty"
    fault: str = "swap"

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        changed = False
        for op in [op for op in module.walk() if isinstance(op, SubOp)]:
            if not journal.may("touch", op):
                continue
            changed = True
            op.attributes["test.touched"] = op.attributes.get("test.touched") or op.location
            if locations.text(op.location) == FAULT:
                self.break_(op)
        if self.fault == "always":
            raise KeyError("nothing")
        return changed and self.fault != "claim"

    def break_(self, op: SubOp) -> None:
        """Do the wrong thing."""
        match self.fault:
            case "swap":
                op.operands = list(op.operands)[::-1]
            case "crash":
                raise ValueError("cannot")
            case "lose":
                op.location = UnknownLoc()
            case "refuse":
                raise CompileError("no-sub", "a sub is refused", location=FAULT)
            case "invalid":
                op.attributes["wrong"] = op.location
            case _:
                pass


def find(predicate: str, *passes: Pass):
    return bisect(model(), Trial(passes, Predicate.parse(predicate)))


@pytest.mark.parametrize(
    ("fault", "predicate", "kind"),
    [
        ("swap", "execution", "changed-results"),
        ("swap", "failure", "changed-results"),
        ("crash", "crash", "crash"),
        ("crash", "failure", "crash"),
        ("lose", "failure", "lost-location"),
        ("lose", "lost-location", "lost-location"),
        ("invalid", "invalid-ir", "invalid-ir"),
        ("refuse", "refused", "refused"),
        ("refuse", "refused=no-sub", "refused"),
        ("swap", "digest", ""),
    ],
)
def test_the_rewrite_is_named(fault: str, predicate: str, kind: str) -> None:
    before = print_module(model())
    found = find(predicate, *build("cse,canonicalize"), Faulty(fault), *build("dce"))
    assert (found.number, found.count, found.spec) == (2, 4, str(Faulty(fault)))
    assert (found.failure.kind if found.failure else "") == kind
    assert found.rewrite is not None
    assert (found.fuel, found.rewrites) == (8, 8 if fault in ("crash", "refuse") else COUNT)
    assert (found.rewrite.pattern, found.rewrite.op) == ("touch", "tensor.sub")
    assert locations.text(found.rewrite.location) == FAULT
    changed = [line for line in found.difference.splitlines()[3:] if line.startswith(("+", "-"))]
    assert len(changed) == 2 and all("tensor.sub" in line for line in changed), "one op changes, and values keep names"
    assert f"rewrite 8 of {found.rewrites}: touch on 'tensor.sub'\n  at: {FAULT}" in str(found)
    assert print_module(found.before) == before


def test_a_pass_that_fails_without_a_rewrite() -> None:
    found = find("crash", Faulty("always"))
    assert found.rewrite is None and "before its first rewrite" in found.note and str(found)
    assert found.difference.count("test.touched") == COUNT


def test_a_wrong_claim_is_the_first_rewrite() -> None:
    found = find("failure", Faulty("claim"))
    assert found.failure is not None and found.failure.kind == "false-claim" and found.fuel == 1


def test_a_command_is_asked_with_the_program(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\nlines = open(sys.argv[1]).readlines()\n"
        "sys.exit(not any('touched' in line and 'layer.5' in line for line in lines))"
    )
    for command in (f"{sys.executable} {script}", f"{sys.executable} {script} {{}} more"):
        found = find(command, *build("cse"), Faulty(""))
        assert found.number == 1 and found.fuel == 6
    with pytest.raises(CompileError, match="cannot be run"):
        find(f"{tmp_path}/nothing", Faulty(""))


@pytest.mark.parametrize(
    ("predicate", "passes", "code"),
    [
        ("failure", "cse,dce", "does-not-fail"),
        ("execution", "cse", "does-not-fail"),
        ("crash", "cse", "does-not-fail"),
        ("digest", "cse", "does-not-fail"),
        ("true", "cse", "fails-already"),
        ("grep -q softmax {}", "cse", "does-not-fail"),
        ("refused=x", "tile", "fails-otherwise"),
        ("executoin", "cse", "bad-option"),
        ("", "cse", "bad-option"),
        ("crash=x", "cse", "bad-option"),
    ],
)
def test_nothing_to_find(predicate: str, passes: str, code: str) -> None:
    with pytest.raises(CompileError) as caught:
        find("/bin/true" if predicate == "true" else predicate, *build(passes))
    assert caught.value.code == code


def test_every_predicate_can_be_given() -> None:
    assert [Predicate.parse(name).kind for name in ("crash", "execution", "refused=x")] == [
        "crash",
        "changed-results",
        "refused",
    ]
    assert all(Predicate.parse(name) for name in PREDICATES)
    assert Predicate.parse("./script.sh --flag").kind == "command"


def test_a_failure_is_reduced_with_its_pass() -> None:
    passes = (*build("cse,canonicalize"), Faulty("swap"), *build("dce"))
    small, trial = reduce_failure(model(), Trial(passes, Predicate()))
    assert trial.text == "faulty{fault=swap}" or trial.text.startswith("faulty")
    text = print_module(small, locations=True)
    assert text.count("tensor.sub") == 1 and FAULT in text
    assert trial(small)


@dataclass(frozen=True)
class Unclip(Pass):
    """Takes clips away: wrong for large numbers."""

    name: ClassVar[str] = "unclip"

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        clips = [op for op in module.walk() if op.name == "tensor.clip" and journal.may("unclip", op)]
        for op in clips:
            op.results[0].replace_all_uses_with(op.operands[0])
            op.detach()
            op.drop_all_references()
        return bool(clips)


CLIPPED = """
func.func @main(%x: tensor<4x8xf32> {tensor.name = "x"}) -> tensor<4x8xf32> {
  %w = tensor.weight "w" : tensor<8x8xf32>
  %0 = tensor.matmul %x, %w : tensor<4x8xf32>, tensor<8x8xf32> -> tensor<4x8xf32>
  %1 = tensor.clip %0 {min = -100.0, max = 100.0} : tensor<4x8xf32> -> tensor<4x8xf32> loc("first")
  %2 = tensor.mul %1, %1 : tensor<4x8xf32>, tensor<4x8xf32> -> tensor<4x8xf32>
  %3 = tensor.clip %2 {min = -100.0, max = 100.0} : tensor<4x8xf32> -> tensor<4x8xf32> loc("second")
  %4 = tensor.tanh %3 : tensor<4x8xf32> -> tensor<4x8xf32>
  %5 = tensor.sub %3, %4 : tensor<4x8xf32>, tensor<4x8xf32> -> tensor<4x8xf32>
  func.return %5 : tensor<4x8xf32>
}
"""


def test_a_failure_that_takes_certain_numbers(tmp_path: Path) -> None:
    """The squares are out of range, which random numbers in their place would not be: they are what they were."""
    module = parse(context(), CLIPPED, "x.mlir")[0]
    store = WeightStore()
    store.add_array("w", np.eye(8, dtype=np.float32))
    numbers = Numbers(store, {"x": np.full((4, 8), 20, np.float32)})
    trial = Trial((*build("cse"), Unclip()), Predicate(), numbers)
    found = bisect(module, trial)
    assert found.rewrite is not None and locations.text(found.rewrite.location) == "second"
    small, trial = reduce_failure(found.before, found.trial)
    text = print_module(small)
    assert text.count(" = tensor.") == 1 and "tensor.clip" in text and "tensor<1x1xf32>" in text
    path = write(trial, small, Source("x.mlir"), f"{tmp_path}/")
    assert path is not None and "%S/x.unclip.inputs.npz" in path.read_text()
    with np.load(tmp_path / "x.unclip.inputs.npz") as arrays:
        assert [array.tolist() for array in arrays.values()] == [[[400]]]
    assert not replace(trial, numbers=Numbers())(small)


class Flip(RewritePattern):
    """Swaps operands, for ever."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if isinstance(op, SubOp):
            op.operands = list(op.operands)[::-1]
            rewriter.handle_operation_modification(op)


@dataclass(frozen=True)
class Endless(Pass):
    """Never comes to rest."""

    name: ClassVar[str] = "endless"

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        return rewrite(module, [Flip()])


def test_patterns_that_turn_in_a_circle() -> None:
    found = find("failure", *build("cse"), Endless())
    assert found.failure is not None and found.failure.kind == "endless-rewrite"
    assert found.rewrite is not None and found.rewrite.pattern == "Flip" and "circle" in found.note
    small, _ = reduce_failure(model(), found.trial)
    assert print_module(small).count("tensor.sub") == 1
