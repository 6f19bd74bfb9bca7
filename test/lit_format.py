"""How lit runs a test: in a fork, so that none sees what another left behind.

* *Cold*: a fork of a process that has loaded the driver and what it stands on, but no dialect or pass. A pass that
  needs what another test imported fails, as it would in a process of its own, at an eighth of the time.
* *Warm*: a fork of a process that has loaded the modules that cold tests needed, and has run no test.

A worker runs a test warm when each pass, option and dialect that the test names was named by one that it has run cold
and that passed. `lit -Dcold=1` runs all of them cold.
"""

# pyright: basic
from __future__ import annotations

import gc
import json
import os
import re
import signal
import sys
import traceback
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from multiprocessing import Pipe
from pathlib import Path
from typing import NamedTuple

import lit.formats
import lit.Test

from headrace.tools import run_lines

FOUNDATION = (
    "argparse",
    "difflib",
    "filecheck.finput",
    "filecheck.matcher",
    "filecheck.options",
    "filecheck.parser",
    "headrace.dialects.machine.device",
    "headrace.dialects.support.access",
    "headrace.dialects.support.formats",
    "headrace.dialects.support.syntax",
    "headrace.passes.infra.rewriting",
    "headrace.tools.opt.driver",
    "importlib.resources.readers",
    "ml_dtypes",
    "numpy",
    "tomllib",
    "xdsl.dialects.builtin",
    "xdsl.dialects.func",
    "xdsl.dialects.test",
    "xdsl.irdl.declarative_assembly_format",
    "xdsl.parser",
    "xdsl.passes",
    "xdsl.pattern_rewriter",
    "xdsl.printer",
    "zipfile",
)
REHEARSAL = """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = tensor.exp %x : tensor<4xf32> -> tensor<4xf32>
  %1 = tensor.add %0, %x : tensor<4xf32>, tensor<4xf32> -> tensor<4xf32>
  func.return %1 : tensor<4xf32>
}
"""
SECONDS = 120
"""How long one file may take."""


class Ran(NamedTuple):
    """What came of a file: its exit code (negative: the signal that ended the fork), what is to be shown, and the
    modules that it loaded, in order."""

    code: int
    shown: str
    loaded: tuple[str, ...] = ()


class ForkedFormat(lit.formats.FileBasedTest):
    """Runs the RUN lines of a file in a fork."""

    def __init__(self, cold: bool = False) -> None:
        super().__init__()
        self.cold = cold
        """Whether all tests run cold."""

    def execute(self, test, litConfig):
        """The result of one file. Each test comes to a worker with a copy of this format."""
        ran = worker(self.cold).run(Path(test.getSourcePath()))
        return lit.Test.Result(lit.Test.FAIL if ran.code else lit.Test.PASS, ran.shown)


@cache
def worker(cold: bool) -> Worker:
    """What this process of lit knows."""
    return Worker(cold)


class Worker:
    """Runs files one after the other."""

    def __init__(self, cold: bool) -> None:
        self.cold = cold
        self.seen: set[str] = set()
        """What the tests name that ran cold and passed."""
        self.warm: Warm | None = None

    def run(self, path: Path) -> Ran:
        """Run one file, warm or cold."""
        wanted = named(path)
        if not self.cold and wanted <= self.seen:
            self.warm = self.warm or Warm()
            return self.warm.run(path)
        for name in FOUNDATION:
            import_module(name)
        gc.freeze()
        ran = forked(path)
        if not self.cold and ran.code == 0:
            self.seen |= wanted
            self.warm = self.warm or Warm()
            self.warm.modules += ran.loaded
        return ran


def named(path: Path) -> set[str]:
    """The passes, options and dialects that a test names: the words of its RUN lines, and what stands before the dot of
    each word with one."""
    text = path.read_text(encoding="utf-8")
    words = {word for line in run_lines.run_lines(text) for word in re.findall(r"[\w-]+", line.text)}
    return words | {f"{dialect}." for dialect in re.findall(r"(?<![\w%@.])([a-z_]\w*)\.(?=[a-z_])", text)}


class Warm:
    """A process that loads modules and runs files in forks of itself."""

    def __init__(self) -> None:
        self.modules: list[str] = []
        """To be loaded before the next file."""
        self.pipe, other = Pipe()
        if os.fork() == 0:
            self.pipe.close()
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            try:
                serve(other)
            except EOFError:  # the worker is gone
                os._exit(0)
            except BaseException:
                traceback.print_exc()
            os._exit(1)
        other.close()

    def run(self, path: Path) -> Ran:
        """Run one file."""
        try:
            self.pipe.send((self.modules, path))
            self.modules = []
            return self.pipe.recv()
        except (EOFError, OSError):
            return Ran(1, "the process that runs warm tests ended")


def serve(pipe) -> None:
    """Load modules and run files until the other end is closed. Before the first file a program of no test is run: the
    formats, patterns and tables that it fills are the same for all."""
    rehearsed = False
    while True:
        modules, path = pipe.recv()
        if modules:
            for name in modules:
                import_module(name)
            if not rehearsed:
                rehearsed = True
                checks = run_lines.mismatch(f"// CHECK: {REHEARSAL.splitlines()[1]}", REHEARSAL)
                run_lines.run([run_lines.Command("headrace-opt", ("-", "-p", "cse"))], REHEARSAL)
                assert not checks
            gc.freeze()
        pipe.send(forked(path))


def forked(path: Path) -> Ran:
    """Run the RUN lines of a file in a fork up to the first that fails."""
    reader, writer = os.pipe()
    before = set(sys.modules)
    child = os.fork()
    if child == 0:
        os.close(reader)
        signal.alarm(SECONDS)
        gc.disable()  # it does not live long
        try:
            code, shown = run_file(path)
        except BaseException:
            code, shown = 1, traceback.format_exc()
        with os.fdopen(writer, "w", encoding="utf-8") as stream:
            json.dump((shown, [*loadable(name for name in sys.modules if name not in before)]), stream)
        os._exit(min(code, 255) if code > 0 else int(bool(code)))
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as stream:
        shown, loaded = json.loads(stream.read() or '["", []]')
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return Ran(code, shown + (f"\ntook over {SECONDS} s" if code == -signal.SIGALRM else ""), tuple(loaded))


def loadable(names: Iterable[str]) -> Iterable[str]:
    """Those of modules that another process may load too: no test's own."""
    for name in names:
        root = name.partition(".")[0]
        if root in ("headrace", "xdsl", "numpy") or root in sys.stdlib_module_names:
            spec = getattr(sys.modules[name], "__spec__", None)
            if spec is not None and spec.name == name:
                yield name


def run_file(path: Path) -> tuple[int, str]:
    """Run the RUN lines of a file up to the first that fails."""
    lines = run_lines.substituted(path)
    if not lines:
        return 1, "no RUN line"
    for line in lines:
        code, shown = run_lines.run_line(line)
        if code:
            return code, f"RUN: {line}\nexit {code}\n{shown}"
    return 0, ""
