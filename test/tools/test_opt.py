"""headrace-opt: what it prints, what it refuses, what it costs."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """\
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  func.return %x : tensor<4xf32>
}
"""
DRIVER = Path(sys.executable).with_name("headrace-opt")


def test_prints_and_reads_back(opt) -> None:
    first = opt(PROGRAM)
    assert first.code == 0
    assert opt(first.out).out == first.out
    assert '"func.return"(%x)' in opt(PROGRAM, "--print-op-generic").out


def test_ops_get_their_place_in_the_file_as_location(opt) -> None:
    assert 'func.return %x : tensor<4xf32> loc("<stdin>":2:3)' in opt(PROGRAM, "--print-debuginfo").out
    named = PROGRAM.replace("tensor<4xf32>\n}", 'tensor<4xf32> loc("node")\n}')
    assert 'func.return %x : tensor<4xf32> loc("node")' in opt(named, "--print-debuginfo").out


@pytest.mark.parametrize("text", ["", "\n\n", "// only a comment\n"])
def test_an_empty_file_is_an_empty_module(opt, text: str) -> None:
    result = opt(text)
    assert (result.code, result.out) == (0, "builtin.module {\n}\n")


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["-p", "no-such-pass"], "unknown pass 'no-such-pass'"),
        (["--no-such-flag"], "unrecognized arguments"),
        (["-p", "x{"], "cannot read the pipeline"),
        (["--help-pass", "nonsense"], "unknown pass 'nonsense'"),
        (["--print-ir-after", "nonsense"], "pass 'nonsense' is not in the pipeline"),
        (["-o", "/nonexistent/folder/x.mlir"], "cannot-write"),
    ],
)
def test_bad_usage_is_exit_code_2_without_a_traceback(opt, arguments: list[str], part: str) -> None:
    result = opt(PROGRAM, *arguments)
    assert result.code == 2
    assert part in result.err
    assert "Traceback" not in result.err


def test_unreadable_input_is_refused(opt, tmp_path: Path) -> None:
    from headrace.tools.opt import run

    binary = tmp_path / "x.mlir"
    binary.write_bytes(b"\x08\xff\xfe\x00")
    assert run([str(binary)]) == 2
    assert run([str(tmp_path / "missing.mlir")]) == 2


def test_expected_errors_must_come(opt) -> None:
    wrong = PROGRAM.replace("  func.return %x : tensor<4xf32>", "  // expected-error @+1 {{same types}}\n  func.return")
    assert opt(wrong, "--verify-diagnostics").code == 0
    assert opt(wrong.replace("same types", "nonsense"), "--verify-diagnostics").code == 1
    assert opt(wrong.replace("@+1", "@+2"), "--verify-diagnostics").code == 1
    assert opt(wrong.replace("// expected", "// unexpected-"), "--verify-diagnostics").code == 1
    assert (
        opt(wrong.replace("-error", "-error-re").replace("same types", "same .ypes"), "--verify-diagnostics").code == 0
    )
    missing = opt("// expected-error {{x}}\n" + PROGRAM, "--verify-diagnostics")
    assert missing.code == 1
    assert 'expected error "x" was not produced' in missing.err


def test_all_offenders_are_reported(opt) -> None:
    text = "func.func @a() -> i32 {\n  func.return\n}\nfunc.func @b() -> i32 {\n  func.return\n}\n"
    assert [line.partition(" error")[0] for line in opt(text).err.splitlines()] == ["<stdin>:2:3:", "<stdin>:5:3:"]


def test_lists_passes_with_a_line_each(opt) -> None:
    result = opt("", "--list-passes")
    assert result.code == 0
    assert all(len(line.split()) > 1 for line in result.out.splitlines())


def test_start_is_cheap_and_loads_no_numpy(tmp_path: Path) -> None:
    """The whole process on a small file, and what it imports."""
    path = tmp_path / "x.mlir"
    path.write_text(PROGRAM.replace("  func", "  %0 = tensor.neg %x : tensor<4xf32> -> tensor<4xf32>\n  func"))
    code = (
        "import sys; from headrace.tools.opt import run; assert run(sys.argv[1:]) == 0;"
        "print(sorted({'numpy', 'onnx'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", code, path, "-p", "cse"]
    shown = subprocess.run(command, capture_output=True, text=True, check=False)
    assert shown.stdout.splitlines()[-1:] == ["[]"], shown.stderr
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([DRIVER, path, "-p", "cse"], capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert spent < 0.8, f"{spent:.2f} CPU s; it takes about 0.35 on an idle machine"
