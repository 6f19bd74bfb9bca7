"""How lit runs a test: each RUN line in a fork of a process that has loaded what Headrace stands on, and none of it.

A fork is as fresh as a process of its own, so that a pass that needs what another test imported fails, at a fifth of
the time: xDSL and NumPy are loaded once a worker.
"""

# pyright: basic
import gc
import os
import signal
import traceback
from importlib import import_module
from pathlib import Path

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
    "ml_dtypes",
    "numpy",
    "xdsl.dialects.builtin",
    "xdsl.dialects.func",
    "xdsl.dialects.test",
    "xdsl.irdl.declarative_assembly_format",
    "xdsl.parser",
    "xdsl.passes",
    "xdsl.pattern_rewriter",
    "xdsl.printer",
)
SECONDS = 120
"""How long one RUN line may take."""


class ForkedFormat(lit.formats.FileBasedTest):
    """Runs the RUN lines of a file, each in a fork."""

    def execute(self, test, litConfig):
        """The result of one file."""
        for name in FOUNDATION:
            import_module(name)
        gc.freeze()
        lines = run_lines.substituted(Path(test.getSourcePath()))
        if not lines:
            return lit.Test.Result(lit.Test.UNRESOLVED, "no RUN line")
        for line in lines:
            code, shown = forked(line)
            if code:
                return lit.Test.Result(lit.Test.FAIL, f"RUN: {line}\nexit {code}\n{shown}")
        return lit.Test.Result(lit.Test.PASS)


def forked(line: str) -> tuple[int, str]:
    """Run one line in a fork: its exit code (negative: the signal that ended it) and what it printed."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        signal.alarm(SECONDS)
        try:
            code, shown = run_lines.run_line(line)
        except BaseException:
            code, shown = 1, traceback.format_exc()
        with os.fdopen(writer, "wb") as stream:
            stream.write(shown.encode())
        os._exit(min(code, 255) if code > 0 else int(bool(code)))
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        shown = stream.read().decode()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code, shown + (f"\ntook over {SECONDS} s" if code == -signal.SIGALRM else "")
