"""Makes what a new pass or a new op needs: the code, its test, its registration, its page. All of it or nothing.

    python -m headrace.tools.new pass hoist-casts [--level tensor|dataflow|rdu]
    python -m headrace.tools.new op tensor.softsign --formula 'x / (1 + abs(x))'

What is made does something true and passes `make check` and its tests as it is. Run in the root of the repository.
Exit code 2 for a name, level or formula that is refused, 1 when what was made does not work; then nothing is written.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from headrace.dialects.support import files
from headrace.dialects.support.diagnostics import CompileError
from headrace.tools.check_types import link
from headrace.tools.new import formulas, ops, passes

MOST_LINES = 12
"""Of what a tool says that does not like what was made."""


class Broken(Exception):
    """What was made does not work; carries what a tool said of it."""


def create(root: Path, texts: Mapping[Path, str], test: Path) -> list[Path]:
    """Write files, bring pages and blocks of tests up to date, run the test; the files that changed. `Broken` when
    something does not work, and then everything is as before."""
    pages = [path for path in (root / "docs").iterdir() if path.is_file()]
    before = {path: path.read_bytes() if path.exists() else None for path in (*texts, *pages)}
    files.write_texts({path: _formatted(root, path, text) for path, text in texts.items()})
    try:
        _tool(root, "update_tests", test)
        _tool(root, "run_lines", test)
        _tool(root, "docs", root)
    except BaseException:
        files.restore(before)
        raise
    return [path for path, data in before.items() if path.read_bytes() != data]


def _formatted(root: Path, path: Path, text: str) -> str:
    """The text of a Python file as `make format` would leave it."""
    ruff = shutil.which("ruff", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if path.suffix != ".py" or ruff is None:
        return text
    command = [ruff, "format", "--stdin-filename", path, "-"]
    done = subprocess.run(command, cwd=root, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Broken(f"{path}: {done.stderr}")
    return done.stdout


def _tool(root: Path, name: str, argument: Path) -> None:
    """Run one of the tools in a process of its own, which imports the code as it is now."""
    environment = {**os.environ, "PYTHONPATH": str(link(root).parent)}
    command = [sys.executable, "-m", f"headrace.tools.{name}", str(argument)]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        said = f"{done.stdout}{done.stderr}".strip().splitlines()
        raise Broken("\n".join([f"`python -m headrace.tools.{name}` does not like it:", *said[-MOST_LINES:]]))


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    cli = argparse.ArgumentParser("new", description="Make a pass or an op, with its test and its page.")
    kinds = cli.add_subparsers(dest="kind", required=True, metavar="pass|op")
    one = kinds.add_parser("pass", help="a pass that rewrites double negations, to start from")
    one.add_argument("name", help="verb and object, such as hoist-casts")
    one.add_argument("--level", default="tensor", help="tensor (default), dataflow or rdu")
    one = kinds.add_parser("op", help="an elementwise op of one operand")
    one.add_argument("name", help="such as tensor.softsign")
    one.add_argument("--family", default="elementwise", help="elementwise (default)")
    one.add_argument("--formula", required=True, help="what it computes, such as 'x / (1 + abs(x))'")
    return cli


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point."""
    args = arguments().parse_args(argv)
    root = Path.cwd()
    try:
        if not (root / "pyproject.toml").is_file() or not (root / "passes").is_dir():
            raise CompileError("bad-folder", f"{root} is not the root of the repository")
        if args.kind == "pass":
            texts = passes.plan(root, args.name, args.level)
            code, test = texts
            advice = (
                f"put your rewrite into {code.relative_to(root)} and its program into {test.relative_to(root)}, then"
            )
            steps = [f"python -m headrace.tools.update_tests {test.relative_to(root)}", "make docs && make check"]
        else:
            texts = ops.plan(root, args.name, args.family, formulas.read(args.formula))
            test = root / ops.TEST_FILE
            advice = "where it helps: an importer, patterns, a kernel (docs/guides/add-an-op.md); then"
            steps = ["pytest test/dialects/tensor test/dialects/rdu", "make check"]
        changed = create(root, texts, test)
    except CompileError as error:
        for one in error.diagnostics:
            print(one, file=sys.stderr)
        return 2
    except Broken as error:
        print(f"new: {error}\nnothing was written", file=sys.stderr)
        return 1
    for path in changed:
        print(f"wrote {path.relative_to(root)}")
    print("\n  ".join([f"next: {advice}", *steps]))
    return 0
