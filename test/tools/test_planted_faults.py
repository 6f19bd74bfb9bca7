"""Faults planted in a model of 500 ops are found unattended: each is named by pass, op and place in the model."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, UnknownLoc
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern

from headrace.dialects.support import locations
from headrace.dialects.support.journal import Journal, may, recording
from headrace.dialects.tensor.base import attributes_of, create
from headrace.dialects.tensor.elementwise import AddOp, SubOp
from headrace.dialects.tensor.storage import ConstantOp, constant
from headrace.passes import pipelines
from headrace.passes.infra.base import Pass
from headrace.passes.infra.manager import PassBug, PassManager, Watch
from headrace.passes.infra.registry import build
from headrace.passes.infra.rewriting import LocatingRewriter, lower, rewrite
from headrace.tools import opt as driver
from headrace.tools.debug import Predicate, Source, Trial, bisect, count, reduce, write
from headrace.tools.debug.failures import print_module
from headrace.tools.execution import Execution

LAYERS = 50


def text(layers: int = LAYERS) -> str:
    """A model of 10 ops a layer, each with a place in the model; a layer scales by a constant that can be folded."""
    lines = ['func.func @main(%x0: tensor<4x8xf32> {tensor.name = "x"}) -> tensor<4x8xf32>']
    lines += ['    attributes {tensor.result_names = ["y"]} {']
    for i in range(layers):
        x, at = f"%x{i}", f"layer.{i}"
        of, scalar = ": tensor<4x8xf32>, tensor<4x8xf32> -> tensor<4x8xf32>", "tensor<f32>"
        lines += [
            f'%w{i} = tensor.weight "w{i}" : tensor<8x8xf32> loc("{at}/w")',
            f"%m{i} = tensor.matmul {x}, %w{i} : tensor<4x8xf32>, tensor<8x8xf32> -> tensor<4x8xf32>"
            f' loc("{at}/MatMul")',
            f'%a{i} = tensor.constant dense<{3 + i}.1> : {scalar} loc("{at}/A")',
            f'%b{i} = tensor.constant dense<0.{7 + i}> : {scalar} loc("{at}/B")',
            f'%s{i} = tensor.div %a{i}, %b{i} : {scalar}, {scalar} -> {scalar} loc("{at}/Div")',
            f'%t{i} = tensor.tanh %m{i} : tensor<4x8xf32> -> tensor<4x8xf32> loc("{at}/Tanh")',
            f'%d{i} = tensor.sub {x}, %t{i} {of} loc("{at}/Sub")',
            f'%u{i} = tensor.mul %d{i}, %s{i} : tensor<4x8xf32>, {scalar} -> tensor<4x8xf32> loc("{at}/Mul")',
            f'%v{i} = tensor.sigmoid %u{i} : tensor<4x8xf32> -> tensor<4x8xf32> loc("{at}/Sigmoid")',
            f'%x{i + 1} = tensor.add {x}, %v{i} {of} loc("{at}/Add")',
        ]
    return "\n".join([*lines, f"func.return %x{layers} : tensor<4x8xf32>", "}"])


def model(layers: int = LAYERS) -> tuple[Context, ModuleOp]:
    """The model, parsed."""
    ctx = driver.context()
    module, _ = driver.parse(ctx, text(layers), "model.mlir")
    return ctx, module


@dataclass(frozen=True)
class SwapSub(Pass):
    """Swaps the operands of one sub. Wrong on purpose."""

    name: ClassVar[str] = "swap-sub"
    which: int = 17

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        subs = [op for op in module.walk() if isinstance(op, SubOp)]
        op = subs[self.which]
        op.operands = list(op.operands)[::-1]
        return True


def _truncated(array: np.ndarray) -> np.ndarray:
    """The number as bf16 has it, cut off instead of rounded to the nearest even."""
    return (array.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


def _toward_zero(array: np.ndarray) -> np.ndarray:
    """The next number towards zero: an error of one in the last place, as of a division that does not round."""
    return np.nextafter(array, np.float32(0))


ROUNDINGS = {"even": np.array, "truncate": _truncated, "zero": _toward_zero}


@dataclass(frozen=True)
class FoldWrong(Pass):
    """Folds divisions of constants; one of them is rounded in another way. Wrong on purpose."""

    name: ClassVar[str] = "fold-wrong"
    rounding: str = "even"
    which: str = "layer.31/Div"

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        from headrace.dialects.tensor import meaning
        from headrace.dialects.tensor.elementwise import DivOp

        def handle(op: DivOp, rewriter: LocatingRewriter) -> None:
            arrays = [x.owner.array() for x in op.operands if isinstance(x.owner, ConstantOp)]
            if len(arrays) < 2:
                return
            (found,) = meaning.evaluate(op.name, attributes_of(op), *arrays)
            if locations.text(op.location) == self.which:
                found = ROUNDINGS[self.rounding](found)
            rewriter.replace(op, constant(found, op.location))

        return lower(module, {DivOp: handle})


def check(*passes: Pass, layers: int = LAYERS) -> str:
    """Run passes under the check of execution: what the failure says."""
    ctx, module = model(layers)
    execution = Execution(say=lambda _: None)
    execution.start(module)
    with pytest.raises(PassBug) as caught:
        PassManager(ctx, passes, Watch(verify_each=True, check=execution.check)).run(module)
    assert caught.value.kind == "changed-results"
    return str(caught.value)


def test_the_model_has_500_ops_and_no_fault() -> None:
    ctx, module = model()
    assert sum(1 for _ in module.walk()) >= 500
    execution = Execution(say=lambda _: None)
    execution.start(module)
    passes = build(pipelines.PIPELINES["tensor"])
    PassManager(ctx, [*passes, FoldWrong()], Watch(verify_each=True, check=execution.check)).run(module)


def test_swapped_operands() -> None:
    said = check(*build("cse,canonicalize"), SwapSub(), *build("dce"))
    assert "pass 'swap-sub" in said and "changed-results" in said
    first = re.search(r"first op that deviates: '(.*)' at (\S+)\[\d, \d\] was (\S+), is (\S+): abs", said)
    assert first is not None and first[1] == "tensor.sub" and first[2] == "layer.17/Sub"
    assert float(first[3]) == pytest.approx(-float(first[4])) and "ulp" in said


@pytest.mark.parametrize("rounding", ["truncate", "zero"])
def test_a_fold_with_a_wrong_rounding(rounding: str) -> None:
    """Also an error of one in the last place, which no tolerance of the results would show."""
    said = check(FoldWrong(rounding))
    assert "pass 'fold-wrong" in said and "folds 'tensor.div' to another value" in said
    assert "at: layer.31/Div" in said and "op: 'tensor.div'" in said
    assert rounding == "truncate" or "1 ulp" in said


@dataclass(frozen=True)
class SwapSubs(Pass):
    """Puts the operands of sums in order, and those of one sub too. Wrong on purpose."""

    name: ClassVar[str] = "swap-subs"
    which: str = "layer.17/Sub"

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        changed = False
        for op in module.walk():
            wrong = op.name == "tensor.sub" and locations.text(op.location) == self.which
            if (wrong or op.name in ("tensor.add", "tensor.mul")) and may("swap", op):
                op.operands = list(op.operands)[::-1]
                changed = True
        return changed


class TurnSums(RewritePattern):
    """b + a for a + b, and never at rest."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: AddOp, rewriter: PatternRewriter, /) -> None:
        a, b = op.operands
        rewriter.replace(op, create(op.name, [b, a], {}, op.location))


@dataclass(frozen=True)
class TurnSumsPass(Pass):
    """Applies a pattern that turns in a circle. Wrong on purpose."""

    name: ClassVar[str] = "turn-sums"

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        return rewrite(module, [TurnSums()])


def test_a_pattern_that_never_ends() -> None:
    ctx, module = model()
    with pytest.raises(PassBug) as caught, recording(Journal()) as journal:
        PassManager(ctx, [*build("cse"), TurnSumsPass()]).run(module)
    bug = caught.value
    assert (bug.kind, bug.pass_name, bug.op) == ("endless-rewrite", "turn-sums", "tensor.add")
    assert bug.location == "layer.0/Add" and "TurnSums" in str(bug)
    assert len(journal.applied) < 5000, "that many take a fraction of a second"


@dataclass(frozen=True)
class ConvertLosing(Pass):
    """Converts to sections, and forgets where one op came from. Wrong on purpose."""

    name: ClassVar[str] = "convert-losing"
    which: str = "layer.23/Tanh"

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        for one in build("convert-tensor-to-dataflow"):
            assert isinstance(one, Pass)
            one.run(ctx, module)
        for op in module.walk():
            if op.name == "tensor.tanh" and locations.text(op.location) == self.which:
                op.location = UnknownLoc()
        return True


@dataclass(frozen=True)
class SaysNothingChanged(Pass):
    """Swaps the operands of one sub and says that nothing changed. Wrong on purpose."""

    name: ClassVar[str] = "says-nothing-changed"
    which: int = 41

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        SwapSub(self.which).run(ctx, module)
        return False


def audited(*passes: ModulePass) -> PassBug:
    """Run passes under the audit: the failure."""
    ctx, module = model()
    with pytest.raises(PassBug) as caught:
        PassManager(ctx, passes, Watch(verify_each=True)).run(module)
    return caught.value


def test_a_conversion_that_drops_a_location() -> None:
    bug = audited(*build("cse"), ConvertLosing())
    assert (bug.kind, bug.pass_name, bug.op) == ("lost-location", "convert-losing", "tensor.tanh")
    assert "layer.23/Tanh" in str(bug)


def test_a_pass_that_says_unchanged_but_changed() -> None:
    bug = audited(*build("cse"), SaysNothingChanged(), *build("dce"))
    assert (bug.kind, bug.pass_name, bug.op) == ("false-claim", "says-nothing-changed", "tensor.sub")
    assert bug.location == "layer.41/Sub"


def test_swapped_operands_are_bisected_to_one_rewrite_and_reduced(tmp_path: Path) -> None:
    _, module = model()
    passes = (*build("cse,canonicalize"), SwapSubs(), *build("dce"))
    found = bisect(module, Trial(passes, Predicate("changed-results")))
    assert found.spec == "swap-subs" and found.rewrite is not None
    assert (found.rewrite.pattern, found.rewrite.op) == ("swap", "tensor.sub")
    assert locations.text(found.rewrite.location) == "layer.17/Sub"
    assert found.fuel == 17 * 2 + 1 and found.rewrites > 2 * LAYERS
    changed = [line for line in found.difference.splitlines()[3:] if line.startswith(("+", "-"))]
    assert len(changed) == 2 and all("tensor.sub" in line for line in changed)
    for near in (None, found.rewrite.location):
        small = reduce(found.before, found.trial, near=near)
        assert count(small) <= 2 and "layer.17/Sub" in print_module(small, locations=True)
    path = write(found.trial, small, Source("model.mlir"), str(tmp_path / "small.mlir"), str(found).splitlines())
    assert path is not None and "--check-execution random:0" in path.read_text()
