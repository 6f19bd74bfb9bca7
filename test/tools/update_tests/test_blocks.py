"""update_tests: what it writes, what it says of changes, what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, TensorType, f64

from headrace.passes.infra import registry
from headrace.passes.infra.base import Pass
from headrace.tools import run_lines, update_tests
from headrace.tools.opt import driver
from headrace.tools.update_tests import blocks, changes

TEST = """\
// RUN: headrace-opt %s -p cse | filecheck %s

// Written by hand: stays.
// CHECK: builtin.module
//   BEGIN: is no block
// BEGIN CHECK
// END CHECK
func.func @main(%x : tensor<2xf32>, %y : tensor<2xf32>) -> tensor<2xf32> {
  %a = tensor.exp %x : tensor<2xf32> -> tensor<2xf32>
  %0 = tensor.exp %x : tensor<2xf32> -> tensor<2xf32>
  %1 = tensor.sub %a, %y : tensor<2xf32>, tensor<2xf32> -> tensor<2xf32>
  %2 = tensor.mul %0, %1 : tensor<2xf32>, tensor<2xf32> -> tensor<2xf32>
  return %2 : tensor<2xf32>
}
"""
WRITTEN = """\
// BEGIN CHECK (generated: `python -m headrace.tools.update_tests`)
// CHECK-LABEL: func.func @main(
// CHECK-SAME:  %[[X:.*]]: tensor<2xf32>, %[[Y:.*]]: tensor<2xf32>) -> tensor<2xf32> {
// CHECK-NEXT:    %[[A:.*]] = tensor.exp %[[X]] : tensor<2xf32> -> tensor<2xf32>
// CHECK-NEXT:    %[[SUB:.*]] = tensor.sub %[[A]], %[[Y]] : tensor<2xf32>, tensor<2xf32> -> tensor<2xf32>
// CHECK-NEXT:    %[[MUL:.*]] = tensor.mul %[[A]], %[[SUB]] : tensor<2xf32>, tensor<2xf32> -> tensor<2xf32>
// CHECK-NEXT:    func.return %[[MUL]] : tensor<2xf32>
// CHECK-NEXT:  }
// END CHECK
"""
Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """`run(*arguments)` runs update_tests in a folder of its own: exit code and everything printed."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str]:
        code = update_tests.main([*arguments, *([] if any(a.endswith(".mlir") for a in arguments) else ["."])])
        return code, "".join(capsys.readouterr())

    return call


def passes(path: Path) -> bool:
    """Whether all RUN lines of a test pass."""
    return all(run_lines.run_line(line)[0] == 0 for line in run_lines.substituted(path))


def block(*lines: str) -> list[blocks.Line]:
    """The lines of a block of one function as they are read back."""
    kinds = ["LABEL", "SAME", *["NEXT"] * (len(lines) - 2)]
    text = [f"// CHECK-{kind}: {line}" for kind, line in zip(kinds, lines, strict=True)]
    return blocks.read(["// BEGIN CHECK", *text, "// END CHECK"], blocks.Block(0, len(text) + 1, "CHECK", (), 0))


def test_a_block_is_written_and_the_rest_stays(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "x.mlir"
    path.write_text(TEST)
    assert run("--check") == (
        1,
        "x.mlir: CHECK of line 6\nx.mlir:   + 7 lines\n"
        "update_tests: 1 tests with generated parts, 1 differ; run without --check to write them\n",
    )
    assert path.read_text() == TEST
    assert run()[0] == 0
    assert path.read_text() == TEST.replace("// BEGIN CHECK\n// END CHECK\n", WRITTEN)
    assert passes(path)
    assert run("--check") == (0, "update_tests: 1 tests with generated parts: ok\n")


def test_other_names_of_values_are_no_change(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "x.mlir"
    text = TEST.replace("// BEGIN CHECK\n// END CHECK\n", WRITTEN).replace("%a", "%other").replace("%y", "%bias")
    path.write_text(text)
    assert run()[0] == 0
    assert path.read_text() == text
    assert passes(path)


def test_a_change_is_told_in_ops(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "x.mlir"
    text = TEST.replace("// BEGIN CHECK\n// END CHECK\n", WRITTEN)
    path.write_text(
        text.replace("tensor.sub %a, %y", "tensor.sub %y, %a").replace("%2 = tensor.mul", "%2 = tensor.add")
    )
    code, shown = run("--only", "cse")
    assert code == 0
    assert [line.removeprefix("x.mlir: ") for line in shown.splitlines()[:-1]] == [
        "CHECK of line 6",
        "  in func.func @main:",
        "    - tensor.mul",
        "    + tensor.add",
        "    ~ tensor.sub: works on %Y, %A instead of %A, %Y",
    ]
    assert passes(path)


OLD = (
    "func.func @f(",
    "%[[X:.*]]: tensor<4xf32>)",
    "%[[A:.*]] = tensor.slice %[[X]] {starts = array<i64: 0, 1>, steps = [1, 2]} : tensor<4xf32> -> tensor<2xf32>",
    "%[[B:.*]] = tensor.exp %[[A]] : tensor<2xf32> -> tensor<2xf32>",
    "%[[C:.*]] = tensor.neg %[[X]] : tensor<4xf32> -> tensor<4xf32>",
    "func.return %[[B]], %[[C]] : tensor<2xf32>, tensor<4xf32>",
)


@pytest.mark.parametrize(
    ("new", "told"),
    [
        (OLD, []),
        ([line.replace("[A", "[Q") for line in OLD], []),
        ([line.replace(" = array", "  =   array") for line in OLD], []),
        ([line.replace("i64: 0, 1", "i64: 2, 1") for line in OLD],
         ["~ tensor.slice: starts array<i64: 0, 1> → array<i64: 2, 1>"]),
        ([line.replace(", steps = [1, 2]", "") for line in OLD], ["~ tensor.slice: steps [1, 2] → absent"]),
        ([line.replace("2xf32", "2xf64") for line in OLD[:4]] + list(OLD[4:]),
         ["~ tensor.slice: tensor<2xf32> → tensor<2xf64>",
          "~ tensor.exp: tensor<2xf32> -> tensor<2xf32> → tensor<2xf64> -> tensor<2xf64>"]),
        ([*OLD[:3], OLD[4], OLD[3], OLD[5]], ["tensor.neg in another place"]),
        ([*OLD[:3], OLD[3].replace("%[[A]]", "%[[X]]"), *OLD[4:]], ["~ tensor.exp: works on %X instead of %A"]),
        ([*OLD[:5], OLD[5].replace("%[[B]], %[[C]]", "%[[C]], %[[B]]")],
         ["~ func.return: works on %C, %B instead of %B, %C"]),
        ([*OLD[:4], *(f"%[[D{n}:.*]] = tensor.abs %[[X]] : tensor<4xf32>" for n in range(3)), *OLD[4:]],
         ["+ 3 × tensor.abs"]),
        ([*OLD[:3], *OLD[4:]], ["- tensor.exp"]),
    ],
)  # fmt: skip
def test_differences(new: list[str], told: list[str]) -> None:
    found = changes.difference(block(*OLD), block(*new))
    assert found == [*["in func.func @f:"] * bool(told), *(f"  {line}" for line in told)]


def test_functions_that_come_and_go() -> None:
    one, other = ([blocks.Line("LABEL", f"func.func @{name}("), blocks.Line("NEXT", "func.return")] for name in "fg")
    assert changes.difference([*one, *other], one) == ["- func.func @g"]
    assert changes.difference(one, [*one, *other]) == ["+ func.func @g"]


def test_text_that_filecheck_would_take_for_a_pattern(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "x.mlir"
    path.write_text(
        TEST.replace("  %a =", '  %w = tensor.weight "{{.*}} [[X]] %x" : tensor<2xf32>\n'
                     "  %c = tensor.constant dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32>\n  %a =")
    )  # fmt: skip
    assert run()[0] == 0
    assert passes(path)
    path.write_text(path.read_text().replace("{{.*}} [[X]]", "[[X]] {{.*}}"))
    assert not passes(path)


def test_parts_symbols_prefixes_and_locations(run: Run, tmp_path: Path) -> None:
    func = TEST[TEST.index("func.func") :]
    path = tmp_path / "x.mlir"
    path.write_text(
        "// RUN: headrace-opt %s --split-input-file --print-debuginfo | filecheck %s --check-prefix=PLAIN\n"
        "// RUN: headrace-opt %s --split-input-file -p cse | filecheck %s\n"
        f"// BEGIN PLAIN @second\n// END PLAIN\n{func}{func.replace('@main', '@second')}"
        f"// -----\n// BEGIN CHECK\n// END CHECK\n// BEGIN PLAIN\n// END PLAIN\n{func.replace('@main', '@third')}"
    )
    assert run()[0] == 0
    text = path.read_text()
    assert text.count("LABEL") == 3
    assert "@main" not in "".join(line for line in text.splitlines() if line.startswith("//"))
    assert str(tmp_path) not in text
    assert passes(path)
    path.write_text(text.replace("\nfunc.func @second", "\n\n\n\nfunc.func @second"))
    assert run("--check")[0] == 0


def test_files_that_a_run_line_compares_with(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "x.mlir"
    path.write_text(TEST.replace("filecheck %s", "diff %S/Inputs/x.txt -").replace("BEGIN", "").replace("END", ""))
    (tmp_path / "Inputs").mkdir()
    golden = tmp_path / "Inputs" / "x.txt"
    golden.write_text("")
    assert run()[0] == 0
    assert golden.read_text().startswith("builtin.module {\n  func.func @main(")
    assert passes(path)
    assert run("--check")[0] == 0
    golden.write_text(golden.read_text().replace("exp", "log"))
    code, shown = run("--check")
    assert code == 1
    assert "x.mlir:     - tensor.log\nx.mlir:     + tensor.exp\n" in shown


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("-p cse", "-p 'tile{rows=0}'", "rows=0 must be at least"),
        ("-p cse", "-p convert-dataflow-to-rdu", "the RUN line fails"),
        ("tensor.exp %x :", "tensor.nonsense %x :", "is not registered"),
        ("BEGIN CHECK", "BEGIN CHECK @mian", "the output has no @mian\n  fix: did you mean '@main'?"),
        ("BEGIN CHECK\n// END CHECK", "BEGIN TILED\n// END TILED", "no RUN line uses the prefix TILED"),
        ("END CHECK\n", "the end\n", "no END CHECK"),
        ("END CHECK", "END OTHER", "END OTHER ends no block"),
        ("// BEGIN CHECK\n", "", "END CHECK ends no block"),
        ("// BEGIN CHECK\n", "// BEGIN CHECK\n// BEGIN CHECK\n", "BEGIN in the block of line 6"),
        ("func.func", "// -----\n// BEGIN CHECK\n// END CHECK\nfunc.func", "the output has 1 parts"),
        ("\n\n", "\n// RUN: headrace-opt %s | filecheck %s\n\n", "the RUN lines of lines 1, 2 differ"),
    ],
)
def test_what_is_refused_is_not_written_and_neither_is_anything_else(
    run: Run, tmp_path: Path, old: str, new: str, part: str
) -> None:
    bad, good = tmp_path / "bad.mlir", tmp_path / "good.mlir"
    bad.write_text(TEST.replace(old, new, 1))
    good.write_text(TEST)
    code, shown = run()
    assert code == 1
    assert part in shown
    assert "Traceback" not in shown
    assert (bad.read_text(), good.read_text()) == (TEST.replace(old, new, 1), TEST)


@dataclass(frozen=True)
class BreakPass(Pass):
    """Wrong on purpose: swaps the operands of a sub, or gives an op a type that it cannot have."""

    name = "break"

    how: str = "swap"

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        op = next(op for op in module.walk() if op.name == "tensor.sub")
        if self.how == "swap":
            op.operands = [op.operands[1], op.operands[0]]
        else:
            op.results[0]._type = TensorType(f64, [2])
        return True


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the pass known."""
    known: dict[str, Any] = {**registry.available(), "break": lambda: BreakPass}
    for module in (registry, driver):
        monkeypatch.setattr(module, "available", lambda: known)


@pytest.mark.usefixtures("broken")
@pytest.mark.parametrize(
    ("passes", "part"),
    [("break", "'break' change"), ("'break{how=\"type\"}'", "left invalid IR"),
     ("'break{how=\"type\"}' --no-verify-each", "the output is no valid IR")],
)  # fmt: skip
def test_a_pass_that_is_wrong_is_not_made_the_expectation(run: Run, tmp_path: Path, passes: str, part: str) -> None:
    path = tmp_path / "x.mlir"
    path.write_text(TEST.replace("-p cse", f"-p {passes}"))
    code, shown = run()
    assert code == 1
    assert part in shown
    assert "BEGIN CHECK\n// END CHECK" in path.read_text()


def test_hand_written_lines_that_no_longer_match_are_told(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "x.mlir"
    path.write_text(TEST + "// CHECK: tensor.log\n")
    code, shown = run()
    assert code == 1
    assert 'lines that are written by hand no longer match: x.mlir:22: error: Couldn\'t match "tensor.log".' in shown


def test_run_lines_that_have_no_block_are_not_run(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "x.mlir"
    path.write_text("// RUN: headrace-opt %s -p nonsense | filecheck %s --check-prefix=OTHER\n" + TEST)
    assert run("--only", "cse")[0] == 0
    assert "CHECK-NEXT" in path.read_text()


def test_bad_usage(run: Run, tmp_path: Path) -> None:
    (tmp_path / "x.mlir").write_text(TEST)
    assert run("--only", "csee") == (2, "update_tests: error: unknown pass 'csee'; did you mean 'cse'?\n")
    assert run("y.mlir") == (2, "update_tests: error: no such file: y.mlir\n")
    assert run("--only", "dce") == (0, "update_tests: 0 tests with generated parts, 0 files written\n")
