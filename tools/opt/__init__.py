"""headrace-opt: reads IR, runs passes, prints IR. The pass author's driver.

    headrace-opt test.mlir -p 'fold-constants,tile{max-bytes=65536}'

Errors are `file:line:col: error: …` on standard error. Exit codes: 0 ok, 1 a bug of ours or diagnostics that were not
as expected, 2 bad usage or bad input.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from typing import TextIO

from headrace.dialects.support.diagnostics import CompileError
from headrace.passes.infra.manager import PassBug
from headrace.tools.opt.arguments import Usage
from headrace.tools.opt.driver import Driver, pipelines
from headrace.tools.opt.parsing import Refusal, Refused, context, one_line, parse

BROKEN_PIPE = 141
"""What a shell reports of a process that its reader left; this driver ends with 0 instead."""


__all__ = ["Driver", "Refusal", "Refused", "context", "main", "parse", "pipelines", "run"]


def run(
    argv: Sequence[str],
    stdin: TextIO | None = None,
    stdout: TextIO | None = None,
    stderr: TextIO | None = None,
    *,
    reproducers: bool = False,
) -> int:
    """Run the driver with these arguments and streams; the exit code. Raises nothing (`--help` leaves the process).
    With `reproducers`, programs on which a pass fails are written to a folder of temporary files unless told
    otherwise."""
    err = stderr or sys.stderr
    driver: Driver | None = None
    try:
        driver = Driver(argv, stdin or sys.stdin, stdout or sys.stdout, err, reproducers)
        return driver.run()
    except Usage as error:
        print(f"headrace-opt: error: {error}", file=err)
        return 2
    except CompileError as error:
        for one in error.diagnostics:
            print(f"headrace-opt: error: {one_line(one)}", file=err)
        return 2
    except BrokenPipeError:  # whoever read our output has gone
        return BROKEN_PIPE
    except PassBug as error:
        print("\n".join(filter(None, [f"headrace-opt: internal error: {error}", error.trace()])), file=err)
        return 1
    except Exception:
        print("headrace-opt: internal error; please report it with the input and this trace", file=err)
        traceback.print_exc(file=err)
        return 1
    finally:
        for line in filter(None, driver.last_words if driver is not None else ()):
            print(line, file=err)


def main() -> None:
    """Entry point of the console script."""
    code = run(sys.argv[1:], reproducers=True)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = BROKEN_PIPE
    if code == BROKEN_PIPE:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # keeps the interpreter from complaining when it closes the stream
    sys.exit(code % BROKEN_PIPE)
