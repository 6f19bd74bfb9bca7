"""How lit runs a test: in a fork of a process that has loaded the driver and what it and the ops stand on, but no
dialect's ops or attributes and no pass.

So a pass that needs what another test imported fails, as it would in a process of its own, at an eighth of the time.
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
    "headrace.dialects.machine.device",
    "headrace.dialects.support.access",
    "headrace.dialects.support.formats",
    "headrace.dialects.support.syntax",
    "headrace.dialects.tensor.shapes.bodies",
    "headrace.dialects.tensor.shapes.broadcasting",
    "headrace.dialects.tensor.shapes.composite",
    "headrace.dialects.tensor.shapes.contraction",
    "headrace.dialects.tensor.shapes.elementwise",
    "headrace.dialects.tensor.shapes.indexing",
    "headrace.dialects.tensor.shapes.movement",
    "headrace.dialects.tensor.shapes.reduction",
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
SECONDS = 120
"""How long one file may take."""


class ForkedFormat(lit.formats.FileBasedTest):
    """Runs the RUN lines of a file in a fork."""

    def execute(self, test, litConfig):
        """The result of one file."""
        for name in FOUNDATION:
            import_module(name)
        gc.freeze()
        code, shown = forked(Path(test.getSourcePath()))
        return lit.Test.Result(lit.Test.FAIL if code else lit.Test.PASS, shown)


def forked(path: Path) -> tuple[int, str]:
    """Run the RUN lines of a file in a fork up to the first that fails: its exit code (negative: the signal that ended
    the fork) and what is to be shown."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        signal.alarm(SECONDS)
        gc.disable()  # it does not live long
        try:
            code, shown = run_file(path)
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
