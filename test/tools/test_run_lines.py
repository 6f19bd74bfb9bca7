"""RUN lines are read and run as lit would, in this process or in a fork of it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import lit_format
import pytest

from headrace.tools import opt, run_lines
from headrace.tools.run_lines import Command

PROGRAM = "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {\n  func.return %x : tensor<2xf32>\n}\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A lit test that passes."""
    file = tmp_path / "x.mlir"
    file.write_text(f"// RUN: headrace-opt %s \\\n// RUN:   -p cse | filecheck %s\n// CHECK: func.return %x\n{PROGRAM}")
    return file


def test_lines_that_go_on_are_one_and_names_of_files_are_put_in(path: Path) -> None:
    assert run_lines.run_lines(path.read_text()) == [(1, "headrace-opt %s  -p cse | filecheck %s")]
    assert run_lines.substituted(path) == [f"headrace-opt {path}  -p cse | filecheck {path}"]
    assert run_lines.substituted(path, "// RUN: %S/a %st") == [f"{path.parent}/a %st"]


def test_commands_of_a_line() -> None:
    assert run_lines.commands("not headrace-opt a -p 'x{y=1 z=2},w' 2>&1 | filecheck a") == [
        Command("headrace-opt", ("a", "-p", "x{y=1 z=2},w"), inverted=True, merged=True),
        Command("filecheck", ("a",)),
    ]
    for other in ("cat a | filecheck a", "headrace-opt a > b", "headrace-opt a; true", "headrace-opt $X"):
        assert run_lines.commands(other) is None
    for text, found in (("-p a,b", "a,b"), ("--passes=a", "a"), ("--passes a", "a"), ("-p", ""), ("a", "")):
        (command,) = run_lines.commands(f"headrace-opt x {text}") or [None]
        assert command is not None
        assert run_lines.pipeline(command) == found


@pytest.mark.parametrize(
    ("line", "code", "shown"),
    [
        ("headrace-opt %s | filecheck %s", 0, ""),
        ("headrace-opt %s --print-op-generic | filecheck %s", 1, "Couldn't match"),
        ("headrace-opt %s -p cze | filecheck %s", 2, "unknown pass 'cze'"),
        ("not headrace-opt %s -p cze", 0, "unknown pass 'cze'"),
        ("not headrace-opt %s", 1, ""),
        ("not headrace-opt %s -p cze 2>&1 | filecheck %s", 1, "Couldn't match"),
        ("headrace-opt %s | filecheck %s --check-prefix=NONE", 2, "No check strings found"),
        ("headrace-opt %s | cat | filecheck %s", 0, ""),
        ("not headrace-opt %s -p cze > /dev/null 2>&1", 0, ""),
    ],
)
def test_exit_codes(path: Path, line: str, code: int, shown: str) -> None:
    found, text = run_lines.run_line(line.replace("%s", str(path)))
    assert found == code, text
    assert shown in text


def test_an_internal_error_is_a_failure_even_of_what_must_fail(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(args, stdin, out, err) -> int:
        err.write("headrace-opt: internal error: …\n")
        return 1

    monkeypatch.setattr(opt, "run", broken)
    assert run_lines.run_line(f"not headrace-opt {path}")[0] == 1


def test_mismatches() -> None:
    assert run_lines.mismatch("// CHECK: b\n// A: nonsense", "a\nb\n") == ""
    assert run_lines.mismatch("// CHECK: c", "a\nb\n", name="x.mlir").startswith("x.mlir:1: error: Couldn't match")


def test_lit_runs_a_file_in_a_fork_up_to_the_line_that_fails(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lit_format.forked(path)[:2] == (0, "")
    path.write_text(path.read_text() + "// RUN: headrace-opt %s -p cze\n// RUN: headrace-opt %s -p czf\n")
    code, shown, _ = lit_format.forked(path)
    assert code == 2
    assert "unknown pass 'cze'" in shown
    assert "czf" not in shown
    path.write_text(PROGRAM)
    assert lit_format.forked(path)[:2] == (1, "no RUN line")
    monkeypatch.setattr(lit_format, "run_file", lambda path: os.kill(os.getpid(), signal.SIGKILL))
    assert lit_format.forked(path)[:2] == (-signal.SIGKILL, "")
    monkeypatch.setattr(lit_format, "run_file", lambda path: 1 / 0)
    code, shown, _ = lit_format.forked(path)
    assert code == 1
    assert "ZeroDivisionError" in shown


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[lit_format.Worker]:
    """Runs files as a worker of lit does; a file fails when something of one before it is left, or says that it ran
    warm."""

    def run_file(path: Path) -> tuple[int, str]:
        left = [name for name in ("left", "opt_left") if name in vars(sys) or hasattr(opt, name)]
        sys.left = opt.opt_left = True  # pyright: ignore[reportAttributeAccessIssue]
        return int(bool(left) or "fails" in path.read_text()), "warm" if os.getppid() != test_process else "cold"

    test_process = os.getpid()
    monkeypatch.setattr(lit_format, "run_file", run_file)
    monkeypatch.setattr(lit_format, "FOUNDATION", ())
    lit_format.worker.cache_clear()
    one = lit_format.worker(False)
    yield one
    if one.warm is not None:
        one.warm.pipe.close()
    lit_format.worker.cache_clear()


def test_a_test_runs_warm_when_all_that_it_names_ran_cold_and_nothing_is_left_of_others(
    worker: lit_format.Worker, tmp_path: Path
) -> None:
    file = tmp_path / "x.mlir"
    test = SimpleNamespace(getSourcePath=lambda: str(file))

    def ran(line: str, program: str = PROGRAM) -> tuple[int, str]:
        file.write_text(f"// RUN: headrace-opt %s {line}\n{program}")
        result = lit_format.ForkedFormat().execute(test, None)  # a copy for each test, as lit has it
        return int(result.code.isFailure), result.output

    assert ran("-p cse") == (0, "cold")
    assert ran("-p cse") == (0, "warm")
    assert ran("-p cse") == (0, "warm")
    assert ran("-p dce # fails") == (1, "cold")
    assert ran("-p dce") == (0, "cold"), "only what passed counts"
    assert ran("-p dce,cse") == (0, "warm")
    assert ran("-p dce", f"{PROGRAM}rdu.program @x {{}}") == (0, "cold")
    assert ran("-p dce --lint") == (0, "cold")
    worker.cold = True
    assert ran("-p cse") == (0, "cold")


def test_what_a_test_loads_is_handed_on_but_for_its_own_modules() -> None:
    sys.modules["headrace_plugin"] = sys.modules["headrace.nonsense"] = sys
    try:
        names = ["headrace.tools.opt", "headrace_plugin", "headrace.nonsense", "json", "pytest"]
        assert [*lit_format.loadable(names)] == ["headrace.tools.opt", "json"]
    finally:
        del sys.modules["headrace_plugin"], sys.modules["headrace.nonsense"]


def test_a_warm_process_that_ends_fails_the_test(worker: lit_format.Worker, path: Path) -> None:
    worker.run(path)
    assert worker.warm is not None
    worker.warm.modules = ["no_such_module"]
    assert worker.run(path) == (1, "the process that runs warm tests ended", ())


def test_lit_loads_no_dialect_and_no_pass_before_the_fork() -> None:
    """What a worker has loaded, a test may leave out without being told."""
    import subprocess

    code = (
        "import sys; from importlib import import_module\n"
        f"for name in {lit_format.FOUNDATION!r}: import_module(name)\n"
        "from headrace.passes.infra.registry import LEVELS\n"
        "print([m for m in sys.modules for p in (*(f'headrace.passes.{x}' for x in LEVELS), "
        "*(f'headrace.dialects.{x}.' for x in ('tensor', 'dataflow', 'rdu'))) if m.startswith(p)])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
