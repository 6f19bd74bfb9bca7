"""--check-numbers names the pass that changes the results."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from headrace.dialects.support.diagnostics import CompileError
from headrace.passes.infra.base import Pass
from headrace.passes.infra.manager import PassBug, PassManager, Watch
from headrace.passes.infra.rewriting import LocatingRewriter, lower
from headrace.tools import opt as driver
from headrace.tools.numbers import Numbers, difference

PROGRAM = """\
func.func @main(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %w = tensor.weight "w" : tensor<3xf32>
  %0 = tensor.add %x, %w : tensor<2x3xf32>, tensor<3xf32> -> tensor<2x3xf32>
  func.return %0 : tensor<2x3xf32>
}
"""


@dataclass(frozen=True)
class AddToSub(Pass):
    """Wrong on purpose."""

    name = "add-to-sub"

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        from headrace.dialects.tensor.elementwise import AddOp, SubOp

        def handle(op: AddOp, rewriter: LocatingRewriter) -> None:
            rewriter.replace(op, SubOp.create(operands=op.operands, result_types=[op.results[0].type]))

        return lower(module, {AddOp: handle})


def test_the_pass_that_changes_the_numbers_is_named() -> None:
    ctx = driver.context()
    module, _ = driver.parse(ctx, PROGRAM, "x.mlir")
    numbers = Numbers()
    numbers.start(module)
    with pytest.raises(PassBug, match=r"pass 'add-to-sub' changes the numbers: result 'result0'\[\d, \d\] was"):
        PassManager(ctx, [AddToSub()], Watch(verify_each=True, check=numbers.check)).run(module)


def test_a_right_pass_passes_with_files_and_with_seeds(opt, tmp_path: Path) -> None:
    np.savez(tmp_path / "w.npz", w=np.ones(3, np.float32))
    np.savez(tmp_path / "x.npz", arg0=np.ones((2, 3), np.float32))
    for more in ([], ["--weights", str(tmp_path / "w.npz"), "--inputs", str(tmp_path / "x.npz")]):
        result = opt(PROGRAM, "-p", "cse", "--check-numbers", *more)
        assert (result.code, result.err) == (0, "numbers after cse: largest error 0.0e+00\n")
    assert opt(PROGRAM, "-p", "cse", "--check-numbers", "--weights", "random:x").code == 2
    assert opt(PROGRAM, "-p", "cse", "--check-numbers", "--inputs", str(tmp_path / "none.npz")).code == 2
    wrong = opt(PROGRAM, "-p", "cse", "--check-numbers", "--inputs", str(tmp_path / "w.npz"))
    assert wrong.code == 2
    assert "Traceback" not in wrong.err


def test_differences() -> None:
    one = np.array([1.0, np.nan, np.inf, -2.0], np.float32)
    assert difference(one, one.copy(), "y", "p") == 0.0
    for wrong in ([1.001, np.nan, np.inf, -2.0], [1.0, 0.0, np.inf, -2.0], [1.0, np.nan, -np.inf, -2.0]):
        with pytest.raises(PassBug):
            difference(one, np.array(wrong, np.float32), "y", "p")
    with pytest.raises(PassBug, match="changed the type"):
        difference(one, one.astype(np.float64), "y", "p")
    with pytest.raises(PassBug):
        difference(np.array([1, 2]), np.array([1, 3]), "y", "p")


def test_what_cannot_run_is_refused() -> None:
    ctx = driver.context()
    module, _ = driver.parse(ctx, 'func.func @main() {\n  "test.op"() : () -> ()\n  func.return\n}', "x.mlir")
    with pytest.raises(CompileError, match=r"test\.op is not a tensor op"):
        Numbers().start(module)
