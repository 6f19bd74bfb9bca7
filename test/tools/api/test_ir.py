"""`headrace.ir`: looking at IR from Python."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from onnx_models import array, single
from pygments.token import Error, Token

import headrace
from headrace.tools.lexer import MlirLexer

ROOT = Path(__file__).parents[3]
TEXT = """
func.func @main(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = tensor.weight "encoder.0.w" : tensor<4x4xf32>
  %1 = tensor.matmul %x, %0 : tensor<2x4xf32>, tensor<4x4xf32> -> tensor<2x4xf32>
  %2 = tensor.sigmoid %1 : tensor<2x4xf32> -> tensor<2x4xf32> loc("layer/Sigmoid")
  %3 = tensor.mul %1, %2 : tensor<2x4xf32>, tensor<2x4xf32> -> tensor<2x4xf32> loc("layer/Mul")
  func.return %3 : tensor<2x4xf32>
}
func.func private @other(%x: tensor<4xf32>) -> tensor<4xf32> {
  func.return %x : tensor<4xf32>
}
"""


def test_passes_give_another_module_and_the_difference_is_what_they_changed() -> None:
    m = headrace.ir.parse(TEXT)
    n = m.run("fuse")
    assert m.counts()["tensor.sigmoid"] == 1 and not n.ops("sigmoid")
    text = str(m.diff(n))
    assert "+++ after func.func @main" in text and "@other" not in text, "only what was touched"
    assert [line for line in text.splitlines() if line.startswith("+  ")] == [
        "+  %3 = tensor.silu %0 : tensor<2x4xf32> -> tensor<2x4xf32>",
        "+  func.return %3 : tensor<2x4xf32>",
    ]
    assert "%encoder.0.w" in text, "a weight is called by its key"
    again = m.diff(headrace.ir.parse(n.text()))
    assert "tensor.silu" in str(again) and "@other" not in str(again), "modules that come from elsewhere"


def test_equal_modules_have_no_difference() -> None:
    m = headrace.ir.parse(TEXT)
    for other in (m, headrace.ir.parse(TEXT), m.run("cse")):
        assert not m.diff(other)
        assert str(m.diff(other)) == "no difference"


def test_an_op_says_where_it_came_from() -> None:
    (silu,) = headrace.ir.parse(TEXT).run("fuse").ops("tensor.silu")
    assert silu.origin() == "layer/Sigmoid + layer/Mul"
    assert str(silu).startswith("%0 = tensor.silu")


def test_an_op_says_what_became_of_it_and_why() -> None:
    (sigmoid,) = headrace.ir.parse(TEXT).ops("sigmoid")
    story = str(sigmoid.why("fuse"))
    assert "silu" in story and "layer/Sigmoid" in story


def test_a_model_is_loaded_at_any_phase_without_its_weights() -> None:
    model, _ = single("Gemm", [array(3, 4), array(4, 5, seed=1)], known=[1])
    m = headrace.ir.load(model)
    assert m.ops("matmul")[0].origin() == "op"
    assert headrace.ir.load(model, to="dataflow", device="sn40l").ops("dataflow.stage")


def test_what_is_wrong_with_a_text_is_said_at_once() -> None:
    with pytest.raises(headrace.CompileError) as caught:
        headrace.ir.parse(TEXT.replace("-> tensor<2x4xf32> loc", "-> tensor<2x5xf32> loc"), "x.mlir")
    assert caught.value.location == "x.mlir:6:23"


def test_long_things_are_shown_in_short(capsys: pytest.CaptureFixture[str]) -> None:
    numbers = ", ".join(map(str, range(999)))
    head = "func.func @main() -> tensor<999xi64> {\n"
    m = headrace.ir.parse(
        f"{head}  %0 = tensor.constant dense<[{numbers}]> : tensor<999xi64>\n  return %0 : tensor<999xi64>\n}}"
    )
    m.show(most=2)
    shown = capsys.readouterr().out
    assert len(shown) < 300 and "checksum" in shown and "2 more lines" in shown
    assert headrace.ir.parse(m.text()).counts() == m.counts(), "the text is whole"


def test_a_notebook_shows_html_with_origins(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    notebook = SimpleNamespace(get_ipython=object, display=SimpleNamespace(display=shown.append))
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    m = headrace.ir.parse(TEXT)
    m.show()
    m.diff(m.run("fuse")).show()
    html, difference = (one._repr_html_() for one in shown)
    assert '<span title="layer/Sigmoid">' in html and "tensor.sigmoid" in html
    assert "&lt;" in difference and "<span style" in difference


def test_without_pygments_nothing_is_coloured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pygments", None)
    html = headrace.ir.parse(TEXT)._repr_html_()
    assert '<span title="layer/Sigmoid">' in html and "tensor&lt;2x4xf32&gt;" in html and 'style="color' not in html


def test_the_lexer_is_found_by_name_and_knows_every_test() -> None:
    for path in sorted((ROOT / "test").rglob("*.mlir")):
        text = path.read_text(encoding="utf-8")
        tokens = list(MlirLexer(stripnl=False, ensurenl=False).get_tokens(text))
        assert "".join(value for _, value in tokens) == text
        plain = {value for kind, value in tokens if kind in (Error, Token.Text) and value.isascii()}
        assert not plain, f"{path}: {plain}"
