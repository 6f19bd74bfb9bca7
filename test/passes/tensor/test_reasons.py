"""Passes say why they leave something as it is."""

from __future__ import annotations

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.dialects.func import Func
from xdsl.parser import Parser

from headrace.dialects.support.journal import Journal, recording
from headrace.dialects.tensor import Tensor
from headrace.passes.tensor import fold_batch_norm, fold_constants, fuse


def parse(text: str) -> ModuleOp:
    ctx = Context()
    for dialect in (Builtin, Func, Tensor):
        ctx.load_dialect(dialect)
    return Parser(ctx, text).parse_module()


def reasons(journal: Journal) -> str:
    return "\n".join(journal.why("here"))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("%0 = tensor.sigmoid %x : tensor<4xf32> -> tensor<4xf32> loc(\"here\")\n"
         "%r = tensor.add %x, %0 : tensor<4xf32>, tensor<4xf32> -> tensor<4xf32>",
         "the sigmoid is not only multiplied"),
        ("%0 = tensor.sigmoid %x : tensor<4xf32> -> tensor<4xf32> loc(\"here\")\n"
         "%1 = tensor.exp %x : tensor<4xf32> -> tensor<4xf32>\n"
         "%r = tensor.mul %1, %0 : tensor<4xf32>, tensor<4xf32> -> tensor<4xf32>",
         "the sigmoid is multiplied with something else than its operand"),
        ("%r = tensor.sqrt %x : tensor<4xf32> -> tensor<4xf32> loc(\"here\")", "the square root is not of a mean"),
        ("%r = tensor.exp %x : tensor<4xf32> -> tensor<4xf32> loc(\"here\")",
         "the exponential is neither of x - max(x) nor of -x"),
        ("%c = tensor.constant dense<0.7> : tensor<f32>\n%one = tensor.constant dense<1.0> : tensor<f32>\n"
         "%0 = tensor.mul %x, %c : tensor<4xf32>, tensor<f32> -> tensor<4xf32>\n"
         "%1 = tensor.erf %0 : tensor<4xf32> -> tensor<4xf32> loc(\"here\")\n"
         "%2 = tensor.add %1, %one : tensor<4xf32>, tensor<f32> -> tensor<4xf32>\n"
         "%r = tensor.mul %x, %2 : tensor<4xf32>, tensor<4xf32> -> tensor<4xf32>",
         "the constants inside tensor.erf are not those of tensor.gelu"),
    ],
)  # fmt: skip
def test_fuse(body: str, reason: str) -> None:
    module = parse(f"func.func @main(%x : tensor<4xf32>) -> tensor<4xf32> {{\n{body}\nreturn %r : tensor<4xf32>\n}}")
    with recording(Journal()) as journal:
        assert not fuse.fuse(module)
    assert reason in reasons(journal)


def test_fold_constants() -> None:
    module = parse("""
        func.func @main(%i : tensor<1xi64>) -> (tensor<64x9999xf32>, tensor<1x64xf32>) {
          %w = tensor.weight "w" : tensor<9999x64xf32>
          %0 = tensor.transpose %w {perm = array<i64: 1, 0>} : tensor<9999x64xf32> -> tensor<64x9999xf32> loc("here")
          %1 = tensor.gather %w, %i : tensor<9999x64xf32>, tensor<1xi64> -> tensor<1x64xf32>
          return %0, %1 : tensor<64x9999xf32>, tensor<1x64xf32>
        }""")
    with recording(Journal()) as journal:
        assert not fold_constants.fold(module, 1024, 0)
    assert "storing views of 'w' would take 5119488 bytes instead of 2559744" in reasons(journal)


def test_fold_batch_norm() -> None:
    module = parse("""
        func.func @main(%x : tensor<1x2x4xf32>, %s : tensor<2xf32>) -> tensor<1x2x4xf32> {
          %0 = tensor.batch_norm %x, %s, %s, %s, %s : tensor<1x2x4xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>,
            tensor<2xf32> -> tensor<1x2x4xf32> loc("here")
          return %0 : tensor<1x2x4xf32>
        }""")
    with recording(Journal()) as journal:
        assert not fold_batch_norm.fold(module)
    assert "what it normalizes is not made by a convolution" in reasons(journal)
