"""`headrace-opt --lint`: all mistakes of a text at once, each at its place."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest

from headrace.tools import opt
from headrace.tools.opt import Refused, context, parse
from headrace.tools.opt.lint import lint

GOOD = """\
func.func @main(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %0 = tensor.neg %x : tensor<4xf32> -> tensor<4xf32>
  %1 = tensor.add %0, %y
    : tensor<4xf32>, tensor<4xf32> -> tensor<4xf32>
  %2 = dataflow.section "s"(%1) : (tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4xf32>):
    %s = dataflow.load %a at 0 [1] : tensor<4xf32> -> !dataflow.stream<tensor<4xf32>>
    %t = dataflow.store (%s at 0 [1]) : (!dataflow.stream<tensor<4xf32>>) -> tensor<4xf32>
    dataflow.yield %t : tensor<4xf32>
  }
  func.return %2 : tensor<4xf32>
}
"""
BAD = """\
// Comments are %no code.
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = tensor.ngeg %x : tensor<4xf32> -> tensor<4xf32>
  %1 = tensor.exp %0 : tensor<4xf32> -> tensor<4xf32>
  %2 = tensor.add %1,
    : tensor<4xf32>, tensor<4xf32> -> tensor<4xf32>
  %3 = tensor.add %1, %nowhere : tensor<4xf32>, tensor<4xf32> -> tensor<4xf32> // %nowhere
  %4 = tensor.exp %3 : tensor<4xf32> -> tensor<5xf32>
  !!
  %5 = tensor.exp %3 …: tensor<4xf32> -> tensor<4xf32>
  return %3 : tensor<4xf32>
}
func.func private @f(%x: tensor<4xi1>) -> tensor<4xi1> {
  %0 = tensor.relu %x : tensor<4xi1> -> tensor<4xi1>
  %0 = tensor.not %x : tensor<4xi1> -> tensor<4xi1>
  return %0 : tensor<4xi1>
}
func.func @g( {
  %0 = tensor.not %x : tensor<4xi1> -> tensor<4xi1>
  return %0 : tensor<4xi1>
}
func.func @h(%x: tensor<4xf32>) -> tensor<4xf32> {
  %d = tensor.sin %x : tensor<4xf32> -> tensor<3xf32>
  return %x : tensor<4xf32>
"""


def run(path: Path, text: str, *flags: str) -> tuple[int, str]:
    path.write_text(text)
    out = io.StringIO()
    code = opt.run([str(path), "--lint", *flags], io.StringIO(), out, io.StringIO())
    return code, out.getvalue()


def places(text: str) -> list[tuple[str, str]]:
    """What the text holds at each finding, and the code of the finding."""
    lines = [*text.splitlines(), ""]
    return [(lines[f.line - 1][f.column - 1 : f.end_column - 1], f.code) for f in lint(context(), text, "f")]


def test_one_mistake_hides_no_other() -> None:
    assert places(BAD) == [
        ("tensor.ngeg", "unknown-op"),
        (":", "parse-error"),
        ("%nowhere", "undefined-value"),
        ("%4 = tensor.exp %3 : tensor<4xf32> -> tensor<5xf32>", "invalid-op"),
        ("!", "parse-error"),
        ("!", "parse-error"),
        ("…", "parse-error"),
        ("%0 = tensor.relu %x : tensor<4xi1> -> tensor<4xi1>", "invalid-op"),
        ("%0", "parse-error"),
        ("{", "parse-error"),
        ("%d = tensor.sin %x : tensor<4xf32> -> tensor<3xf32>", "invalid-op"),
        ("", "parse-error"),  # the text ends inside a region
    ]


def test_what_is_good_has_no_findings(tmp_path: Path) -> None:
    assert run(tmp_path / "a.mlir", GOOD) == (0, "")
    assert run(tmp_path / "a.mlir", "// nothing\n") == (0, "")
    assert run(tmp_path / "a.mlir", GOOD, "--json") == (0, "[]\n")


def test_what_is_doubtful_is_a_warning(tmp_path: Path) -> None:
    text = """\
func.func @main(%x: tensor<4xf32>, %more: tensor<4xf32>) -> tensor<4xf32> {
  %d = tensor.exp %x : tensor<4xf32> -> tensor<4xf32>   // dead
  return %x : tensor<4xf32>
}
func.func private @g(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}
"""
    assert places(text) == [
        ("%more", "unused-argument"),
        ("%d = tensor.exp %x : tensor<4xf32> -> tensor<4xf32>", "unused-value"),
        ("func.func private @g(%x: tensor<4xf32>) -> tensor<4xf32> {", "uncalled-function"),
    ]
    code, shown = run(tmp_path / "a.mlir", text)
    assert code == 0
    first = f"{tmp_path / 'a.mlir'}:1:36: warning: nothing uses argument %more of @main [unused-argument]"
    assert shown.splitlines()[0] == first


def test_a_program_that_is_none_is_told(tmp_path: Path) -> None:
    text = GOOD.replace(
        "-> tensor<4xf32> {\n  %0", '-> tensor<4xf32> attributes {tensor.result_names = ["a", "b"]} {\n  %0'
    )
    ((where, code),) = places(text)
    assert where.startswith("func.func @main") and code == "invalid-program"


def test_weights_are_looked_up(tmp_path: Path) -> None:
    text = """\
func.func @main() -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = tensor.weight "w" : tensor<4xf32>
  %1 = tensor.weight "wide" : tensor<4xf32>
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}
"""
    np.savez(tmp_path / "w.npz", w2=np.zeros(4, np.float32), wide=np.zeros(5, np.float32))
    code, shown = run(tmp_path / "a.mlir", text, "--weights", str(tmp_path / "w.npz"))
    assert code == 2
    first, second = shown.splitlines()
    assert "2:3: error: there is no weight 'w'; did you mean 'w2'? [unknown-weight]" in first
    assert "3:3: error: weight 'wide' is f32[5], not" in second
    assert run(tmp_path / "a.mlir", text) == (0, "")


def test_json_says_where_from_and_to(tmp_path: Path) -> None:
    code, shown = run(tmp_path / "a.mlir", GOOD.replace("tensor.neg", "tensor.negg"), "--json")
    assert code == 2
    assert json.loads(shown) == [
        {
            "file": str(tmp_path / "a.mlir"),
            "line": 2,
            "column": 8,
            "end_line": 2,
            "end_column": 19,
            "severity": "error",
            "code": "unknown-op",
            "message": "Operation tensor.negg is not registered; did you mean 'tensor.neg'?",
        }
    ]


def test_parts_and_expected_errors_of_a_test(tmp_path: Path) -> None:
    wrong = GOOD.replace("-> tensor<4xf32>\n  %1", "-> tensor<3xf32>\n  %1")
    run_line = "// RUN: headrace-opt %s --split-input-file --verify-diagnostics\n"
    text = run_line + wrong + "// -----\n" + wrong
    assert run(tmp_path / "a.mlir", text)[1].count("error:") == 4  # each type does not fit its definition nor its use
    mark = "  // expected-error@*{{tensor.neg: result type}}\n  // expected-error@*{{used with type}}\n"
    marked = run_line + mark + wrong + "// -----\n" + mark + wrong
    assert run(tmp_path / "a.mlir", marked)[1].count("error:") == 0


@pytest.mark.parametrize("step", range(4))
def test_a_text_is_refused_exactly_when_something_is_wrong(step: int) -> None:
    """Every token left out in turn."""
    words = GOOD.split(" ")
    for at in range(step, len(words), 4):
        text = " ".join(words[:at] + words[at + 1 :])
        try:
            parse(context(), text, "f")
            refused = False
        except Refused:
            refused = True
        assert any(f.severity == "error" for f in lint(context(), text, "f")) == refused, text
    for at in range(step, len(GOOD), 16):
        lint(context(), GOOD[:at], "f")
