"""Runs `// RUN:` lines inside this process: headrace-opt and filecheck are called, not started.

A line is commands joined by `|`, each `headrace-opt …`, `not headrace-opt …` or `filecheck …`, with `2>&1` allowed. Any
other line is given to a shell. A headrace-opt that ends in an internal error fails the line, `not` or no `not`.
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
from pathlib import Path

PLAIN = re.compile(r"^(?:not )?(?:headrace-opt|filecheck)(?: [^|;&><`$]*)?(?:2>&1 *)?$")
RUN = re.compile(r"^\s*// RUN:(.*)$", re.M)
BIN = Path(sys.executable).parent


def run_lines(path: Path) -> list[str]:
    """The RUN lines of a file with their substitutions made; lines that end in a backslash go on."""
    lines = "\n".join(RUN.findall(path.read_text(encoding="utf-8"))).replace("\\\n", " ").splitlines()
    scratch = Path(os.environ.get("TMPDIR", "/tmp")) / f"headrace-{os.getpid()}-{path.stem}"
    values = {"%s": str(path), "%S": str(path.parent), "%t": str(scratch)}
    return [re.sub(r"%[sSt]\b", lambda m: values[m[0]], line).strip() for line in lines]


def run_line(line: str) -> tuple[int, str]:
    """Run one line: its exit code (that of the first command that fails) and everything it printed."""
    commands = [c.strip() for c in line.split("|")]
    if not all(PLAIN.match(c) for c in commands):
        return _shell(line)
    text, shown, failed = "", "", 0
    for command in commands:
        merge = command.endswith("2>&1")
        words = shlex.split(command.removesuffix("2>&1"))
        invert = words[0] == "not"
        name, *args = words[1:] if invert else words
        out, err = io.StringIO(), io.StringIO()
        code = _opt(args, text, out, err) if name == "headrace-opt" else _filecheck(args, text, err)
        broken = "internal error" in err.getvalue()
        code = 1 if broken else int(code == 0) if invert else code
        failed = failed or code
        shown += err.getvalue()
        text = out.getvalue() + (err.getvalue() if merge else "")
    return failed, shown + text


def _opt(args: list[str], stdin: str, out: io.StringIO, err: io.StringIO) -> int:
    from headrace.tools import opt

    return opt.run(args, io.StringIO(stdin), out, err)


def _filecheck(args: list[str], text: str, err: io.StringIO) -> int:
    from filecheck.finput import FInput
    from filecheck.matcher import Matcher
    from filecheck.options import parse_argv_options
    from filecheck.parser import Parser

    with contextlib.redirect_stdout(err), contextlib.redirect_stderr(err):
        try:
            options = parse_argv_options(["filecheck", *args])
            code = Matcher(options, FInput("<stdin>", text), Parser.from_opts(options)).run()
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
