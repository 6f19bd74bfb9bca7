"""The `// RUN:` lines of lit tests: read, and run inside this process.

    python -m headrace.tools.run_lines FILE …

A line is commands joined by `|`, each `headrace-opt …`, `not headrace-opt …` or `filecheck …`, with `2>&1` allowed:
these are called, not started. Any other line is given to a shell. A headrace-opt that ends in an internal error fails
the line, `not` or no `not`.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

PLAIN = re.compile(r"^(?:not )?(?:headrace-opt|filecheck)(?: [^|;&><`$]*)?(?:2>&1 *)?$")
BIN = Path(sys.executable).parent
IGNORED = frozenset({"Inputs", "data"})
"""Folders under test/ whose files are read by tests and are none themselves."""


class RunLine(NamedTuple):
    """One RUN line as it stands: its number in the file and its text, continued lines joined."""

    number: int
    text: str


@dataclass(frozen=True)
class Command:
    """One command of a RUN line."""

    name: str
    args: tuple[str, ...]
    inverted: bool = False
    """Whether it must fail (`not`)."""
    merged: bool = False
    """Whether the next command also reads its standard error (`2>&1`)."""


class Outcome(NamedTuple):
    """What commands gave: exit code of the first that failed, what the last one wrote, and all standard error."""

    code: int
    output: str
    errors: str


def run_lines(text: str) -> list[RunLine]:
    """The RUN lines of a test."""
    found: list[RunLine] = []
    going_on = False
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r"\s*// RUN:(.*)$", line)
        if match is None:
            continue
        part = match[1].strip()
        shown = part.removesuffix("\\")
        if going_on:
            found[-1] = RunLine(found[-1].number, f"{found[-1].text} {shown}")
        else:
            found.append(RunLine(number, shown))
        going_on = shown != part
    return found


def substituted(path: Path, text: str | None = None) -> list[str]:
    """The RUN lines of a file with %s, %S and %t replaced; `text` stands for the file where it is given."""
    scratch = Path(os.environ.get("TMPDIR", "/tmp")) / f"headrace-{os.getpid()}-{path.stem}"
    values = {"%s": str(path), "%S": str(path.parent), "%t": str(scratch)}
    lines = run_lines(path.read_text(encoding="utf-8") if text is None else text)
    return [re.sub(r"%[sSt]\b", lambda m: values[m[0]], line.text).strip() for line in lines]


def commands(line: str) -> list[Command] | None:
    """The commands of a RUN line; None when only a shell can run it."""
    parts = [part.strip() for part in line.split("|")]
    if not all(PLAIN.match(part) for part in parts):
        return None
    found: list[Command] = []
    for part in parts:
        words = shlex.split(part.removesuffix("2>&1"))
        inverted = words[0] == "not"
        name, *args = words[inverted:]
        found.append(Command(name, tuple(args), inverted, part.endswith("2>&1")))
    return found


def pipeline(command: Command) -> str:
    """The pass pipeline that a headrace-opt command runs; empty for none."""
    for at, arg in enumerate(command.args):
        flag, equals, value = arg.partition("=")
        if flag in ("-p", "--passes"):
            return value if equals else "".join(command.args[at + 1 : at + 2])
    return ""


def run(wanted: Iterable[Command], text: str = "") -> Outcome:
    """Run commands one after the other, each on what the one before wrote."""
    failed, errors = 0, ""
    for one in wanted:
        out, err = io.StringIO(), io.StringIO()
        call = _opt if one.name == "headrace-opt" else _filecheck
        code = call(one.args, text, out, err)
        if "internal error" in err.getvalue():
            code = 1
        elif one.inverted:
            code = int(code == 0)
        failed = failed or code
        errors += err.getvalue()
        text = out.getvalue() + (err.getvalue() if one.merged else "")
    return Outcome(failed, text, errors)


def run_line(line: str) -> tuple[int, str]:
    """Run one line: its exit code (that of the first command that fails) and everything it printed."""
    wanted = commands(line)
    if wanted is None:
        return _shell(line)
    code, output, errors = run(wanted)
    return code, errors + output


def _opt(args: Sequence[str], stdin: str, out: io.StringIO, err: io.StringIO) -> int:
    from headrace.tools import opt

    return opt.run(args, io.StringIO(stdin), out, err)


def mismatch(checks: str, text: str, prefix: str = "CHECK", name: str = "checks") -> str:
    """What filecheck says of `text` given the lines of `checks`, which it calls `name`; empty when they match."""
    errors = io.StringIO()
    code = _filecheck([name, f"--check-prefix={prefix}"], text, io.StringIO(), errors, checks)
    return errors.getvalue() if code else ""


def _filecheck(args: Sequence[str], text: str, out: io.StringIO, err: io.StringIO, checks: str | None = None) -> int:
    """Check `text` against the file that the arguments name, or against `checks`."""
    from filecheck.finput import FInput
    from filecheck.matcher import Matcher
    from filecheck.options import parse_argv_options
    from filecheck.parser import Parser, pattern_for_opts

    with contextlib.redirect_stdout(err), contextlib.redirect_stderr(err):
        try:
            options = parse_argv_options(["filecheck", *args])
            if checks is None:
                parser = Parser.from_opts(options)
            else:
                parser = Parser(options, io.StringIO(checks), *pattern_for_opts(options))
            code = Matcher(options, FInput("<stdin>", text), parser).run()
        except Exception:
            traceback.print_exc()
            code = 2
    if code:
        err.write(f"\ninput of filecheck:\n{text}")
    return code


def _shell(line: str) -> tuple[int, str]:
    environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}"}
    parts = [f"! {c.strip()[4:]}" if c.strip().startswith("not ") else c for c in line.split("|")]
    done = subprocess.run(
        ["/bin/sh", "-c", " | ".join(parts)], capture_output=True, text=True, env=environment, check=False, timeout=120
    )
    return done.returncode, done.stdout + done.stderr


def main() -> int:
    """Run the RUN lines of files; exit code 1 with what they printed when one fails."""
    failed = 0
    for name in sys.argv[1:]:
        for line in substituted(Path(name)):
            code, shown = run_line(line)
            failed += code != 0
            if code:
                print(f"RUN: {line}\nexit {code}\n{shown}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
