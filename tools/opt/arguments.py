"""The command line of headrace-opt."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any


class Usage(Exception):
    """Bad command line; carries the text."""


class _Arguments(argparse.ArgumentParser):
    """An argument parser that raises instead of leaving the process."""

    def error(self, message: str) -> Any:
        given, _, unknown = message.partition("unrecognized arguments: ")
        flag = unknown.split(" ")[0].split("=")[0]
        if not given and flag.startswith("--"):
            message += f"; {_near(flag, self._option_string_actions)}"
        raise Usage(message)


def _near(flag: str, known: Iterable[str]) -> str:
    close = get_close_matches(flag, known, 1, 0.5)
    return f"did you mean '{close[0]}'?" if close else "`headrace-opt --help` lists the options"


def read(argv: Sequence[str]) -> argparse.Namespace:
    """The options of a command line; raises `Usage`."""
    found = arguments().parse_args(argv)
    if found.input == "-" and str(found.check_execution).endswith(".mlir"):  # the file after a flag that takes no value
        found.input, found.check_execution = found.check_execution, "random:0"
    return found


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    usage = "headrace-opt [FILE] [-p PIPELINE] [--to PHASE] [OPTION …]"
    cli = _Arguments("headrace-opt", usage, description="Read IR, run passes, print IR.", allow_abbrev=False)
    cli.add_argument("input", nargs="?", default="-", help="file of IR; standard input when it is '-' or missing")
    add = cli.add_argument
    add("-o", "--output", default="-", help="where the result goes; standard output by default")
    add("-p", "--passes", default="", metavar="PIPELINE", help="passes in order: 'a,b{x=1 y=2,3}'; may name pipelines")
    add("--to", metavar="PHASE", help="first run the phases up to this one: tensor, dataflow or rdu")
    add("--from", dest="start", metavar="PHASE", help="the phase that made the IR; by default that is read off it")
    add("--device", metavar="NAME|TOML", help="put this device into the module before the passes run")
    add("--load-pass-plugin", action="append", default=[], metavar="FILE|MODULE",
        help="take passes and dialects from a Python file or module")  # fmt: skip

    add = cli.add_argument_group("input and output").add_argument
    add("--split-input-file", action="store_true", help="treat parts between '// -----' lines one by one")
    add("--allow-unregistered-dialect", action="store_true", help="accept ops of unknown dialects in generic form")
    add("--print-op-generic", action="store_true", help="print in generic form")
    add("--print-debuginfo", action="store_true", help="print locations")

    add = cli.add_argument_group("checks").add_argument
    add("--verify-diagnostics", action="store_true", help="errors must be those of '// expected-error {{…}}' comments")
    add("--verify-each", action=argparse.BooleanOptionalAction, default=True, help="audit the IR after each pass")
    add("--check-execution", nargs="?", const="random:0", metavar="NPZ|random:SEED",
        help="run the program after each pass on these inputs (random:0); the results must stay the same")  # fmt: skip
    add("--weights", default="random:0", metavar="FILE|random:SEED", help="weights for --check-execution and --lint")
    add("--tolerance", type=float, metavar="REL", help="error over the largest magnitude that --check-execution allows")
    add("--fuel", type=int, metavar="N", help="let the passes make at most so many rewrites")
    add("--reproducer", metavar="FILE|DIR|none", help="where the program on which a pass fails goes, with its RUN line;"
        " refusals only when given (default: headrace-reproducers in the folder for temporary files)")  # fmt: skip
    add("--lint", action="store_true", help="say everything that is wrong or doubtful with the IR at once; run no pass")
    add("--json", action="store_true", help="what --lint finds as JSON, for editors")

    add = cli.add_argument_group("looking at the passes (to standard error, or to files)").add_argument
    add("--print-ir-after-change", action="store_true", help="what each pass changed, as a diff")
    add("--print-ir-before", action="append", default=[], metavar="PASS", help="IR before this pass")
    add("--print-ir-after", action="append", default=[], metavar="PASS", help="IR after this pass")
    add("--print-ir-before-all", action="store_true", help="IR before every pass")
    add("--print-ir-after-all", action="store_true", help="IR after every pass")
    add("--dump-phases", metavar="DIR", help="write the IR after each phase to this folder")
    add("--dump-passes", metavar="DIR", help="write the IR after each pass that changed it to this folder")
    add("--timing", action="store_true", help="CPU time, op counts and change by pass")
    add("--statistics", action="store_true", help="what each pass counted, rewrote and changed")
    add("--trace", metavar="FILE", help="write a trace of steps and passes, for ui.perfetto.dev")
    add("--print-pipeline", action="store_true", help="the passes as text that -p takes")
    add("--why", metavar="NAME", help="what became of a node, path, kind of op or value %%x, pass by pass, and why")

    add = cli.add_argument_group("help (and stop)").add_argument
    add("--list-passes", action="store_true", help="list the passes and pipelines, and where they come from")
    add("--help-pass", metavar="PASS", help="explain one pass and its options, with an example")
    add("--help-op", metavar="OP", help="explain one op, with an example")
    add("--version", action="store_true", help="print the version")
    return cli
