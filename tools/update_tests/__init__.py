"""Writes the generated parts of tests anew: blocks of CHECK lines, and files that RUN lines compare with.

    python -m headrace.tools.update_tests [FILE|FOLDER …] [--check] [--only PASS]

A block is what stands between two comments of a lit test; everything else in the file stays as it is.

    // BEGIN CHECK @main
    // END CHECK

gets the CHECK lines of the function @main (of all functions without a name) from the output of the RUN line with the
prefix CHECK, with a variable for each value. A file that a RUN line ends with (`| diff %S/Inputs/x.txt -`) gets the
output itself. What is printed is what changes in terms of ops; a block in which only names of values would change is
left alone.

Nothing is written when anything is refused: a pass fails, the output is no valid IR, running it gives other results
than the input, or a block does not match its own output. With `--check` nothing is written either. Exit code 1 when
something differs (`--check`) or is refused, 2 for bad usage.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from headrace.dialects.support import files
from headrace.dialects.support.diagnostics import CompileError, nearest
from headrace.passes.infra.registry import available, build
from headrace.tools import opt, run_lines
from headrace.tools.run_lines import Command
from headrace.tools.update_tests import changes
from headrace.tools.update_tests.blocks import BEGIN, END, Block, Line, generated, marked, read, written

EXECUTION = "--check-execution"
DIFF = re.compile(r"^diff (?:-u )?(?P<file>%[sS][\w./-]*) -$")


@dataclass
class Update:
    """What becomes of one test."""

    path: Path
    texts: dict[Path, str] = field(default_factory=dict[Path, str])
    """New contents of the files that change."""
    changes: list[str] = field(default_factory=list[str])
    refused: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])


@dataclass(frozen=True)
class Source:
    """A RUN line whose output becomes part of a test: the commands that make the output, and where it goes."""

    number: int
    commands: tuple[Command, ...]
    prefixes: tuple[str, ...]
    golden: Path | None = None


def has_generated(path: Path) -> bool:
    """Whether anything in a test is generated."""
    text = path.read_text(encoding="utf-8")
    return any(BEGIN.match(line) or END.match(line) for line in text.splitlines()) or any(
        one.golden for one in sources(path, text)
    )


def sources(path: Path, text: str) -> list[Source]:
    """The RUN lines of a test that give output to compare with."""
    found: list[Source] = []
    for number, line in run_lines.run_lines(text):
        *first, last = (part.strip() for part in line.split("|"))
        first = [part.replace("%s", str(path)).replace("%S", str(path.parent)) for part in first]
        made = run_lines.commands(" | ".join(first)) if first else None
        golden = DIFF.match(last)
        if made is None:
            continue
        if golden is not None:
            name = golden["file"].replace("%s", str(path)).replace("%S", str(path.parent))
            found.append(Source(number, tuple(made), (), Path(name)))
        elif last.startswith("filecheck"):
            given = re.findall(r"--?check-prefix(?:es)?[= ]([\w,-]+)", last)
            prefixes = [prefix for names in given for prefix in names.split(",")] or ["CHECK"]
            found.append(Source(number, tuple(made), tuple(prefixes)))
    return found


def update(path: Path, execute: bool = True) -> Update:
    """What becomes of one test; with `execute` the programs are also run, before and after the passes."""
    found = Update(path)
    text = path.read_text(encoding="utf-8")
    try:
        lines = text.splitlines()
        wanted = marked(lines)
        prefixes = {block.prefix for block in wanted}
        users = [one for one in sources(path, text) if one.golden is not None or prefixes & {*one.prefixes}]
        outputs = {one: _output(one, execute) for one in users}
        for one, output in outputs.items():
            if one.golden is not None:
                _golden(found, one.golden, output)
        new = _blocks(found, lines, wanted, outputs)
    except CompileError as error:
        found.refused += map(str, error.diagnostics)
        return found
    if new != lines:
        found.texts[path] = "\n".join(new) + "\n"
        found.notes += _hand_written(path.name, new, outputs)
    return found


def _blocks(found: Update, lines: list[str], wanted: list[Block], outputs: dict[Source, str]) -> list[str]:
    """The lines of the test with its blocks as they should be."""
    new = list(lines)
    own: dict[str, list[str]] = {}
    for block in reversed(wanted):
        users = {one: output for one, output in outputs.items() if block.prefix in one.prefixes}
        checks = _checks(found.path, block, users)
        text = written(lines, block, checks)
        before = read(lines, block)
        if not before or changes.canonical(before) != changes.canonical(checks):
            new[block.first : block.last + 1] = text
            what = changes.difference(before, checks) if before else [f"+ {len(checks)} lines"]
            title = " ".join([f"{block.prefix} of line {block.first + 1}", *block.symbols])
            found.changes[:0] = [title, *(f"  {line}" for line in what)]
        own[block.prefix] = text + own.get(block.prefix, [])
    for prefix, text in own.items():
        for one, output in outputs.items():
            wrong = run_lines.mismatch("\n".join(text), output, prefix) if prefix in one.prefixes else ""
            if wrong:
                wrong = wrong.splitlines()[0]
                raise CompileError("bad-block", f"the {prefix} blocks do not match their own output: {wrong}")
    return new


def _checks(path: Path, block: Block, users: dict[Source, str]) -> list[Line]:
    if not users:
        raise CompileError(
            "bad-block", f"no RUN line uses the prefix {block.prefix}", location=f"line {block.first + 1}"
        )
    answers: list[list[Line]] = []
    for output in users.values():
        parts = output.split("// -----\n")
        if block.part >= len(parts):
            what = f"the output has {len(parts)} parts and the block is in part {block.part + 1}"
            raise CompileError("bad-block", what, location=f"line {block.first + 1}", fix="add --split-input-file")
        answers.append(generated(parts[block.part], block.symbols, (str(path), "<stdin>")))
    if any(changes.canonical(one) != changes.canonical(answers[0]) for one in answers):
        what = f"the RUN lines of lines {', '.join(str(one.number) for one in users)} differ in what they print"
        raise CompileError(
            "bad-block", what, location=f"line {block.first + 1}", fix="give each its own --check-prefix"
        )
    return answers[0]


def _golden(found: Update, path: Path, output: str) -> None:
    old = path.read_text(encoding="utf-8") if path.exists() else ""
    if old == output:
        return
    found.texts[path] = output
    before, after = _all_lines(old, found.path), _all_lines(output, found.path)
    what = changes.difference(before, after) or ["names of values"]
    found.changes += [path.name, *(f"  {line}" for line in (what if old else [f"+ {len(after)} lines"]))]


def _all_lines(text: str, path: Path) -> list[Line]:
    """The lines of a file of IR as patterns, to be compared; those of any other text as they are."""
    parts = text.split("// -----\n")
    found = [line for part in parts if part.startswith("builtin.module") for line in generated(part, (), (str(path),))]
    return found or [Line("", line) for line in text.splitlines()]


def _output(source: Source, execute: bool) -> str:
    """What a RUN line prints. `CompileError` when it fails, or when what it prints is wrong."""
    code, output, errors = run_lines.run(source.commands)
    if code:
        raise CompileError(
            "failed", f"the RUN line fails: {errors.strip() or f'exit code {code}'}", location=_at(source)
        )
    if any(one.inverted for one in source.commands):
        return output
    loose = any("--allow-unregistered-dialect" in one.args for one in source.commands)
    for part in output.split("// -----\n") if output.startswith("builtin.module") else ():
        try:
            opt.parse(opt.context(loose), part, "output")
        except opt.Refused as error:
            what = "; ".join(f"{one.line}:{one.column}: {one.message}" for one in error.refusals)
            raise CompileError("invalid-ir", f"the output is no valid IR: {what}", location=_at(source)) from None
    if execute:
        _executes(source)
    return output


def _executes(source: Source) -> None:
    """Refuse passes after which the program gives other results. Programs that cannot run are left out."""
    for at, one in enumerate(source.commands):
        if one.name != "headrace-opt" or not run_lines.pipeline(one) or EXECUTION in one.args:
            continue
        checked = replace(one, args=(*one.args, EXECUTION))
        code, _, errors = run_lines.run((*source.commands[:at], checked))
        if code == 1 and "internal error" in errors:
            bug = re.search(r"internal error: (.*)", errors, re.S)
            what = bug[1].strip() if bug else f"{EXECUTION} ends in {errors.splitlines()[-1]}"
            raise CompileError("not-executed", what, location=_at(source))


def _at(source: Source) -> str:
    return f"RUN line {source.number}"


def _hand_written(name: str, lines: list[str], outputs: dict[Source, str]) -> list[str]:
    """Checks outside blocks that fail in the updated test: these are for the author to mend."""
    found: list[str] = []
    for source, output in outputs.items():
        for prefix in source.prefixes if source.golden is None else ():
            wrong = run_lines.mismatch("\n".join(lines), output, prefix, name)
            if wrong:
                found.append(f"lines that are written by hand no longer match: {wrong.splitlines()[0]}")
    return found


def uses(path: Path, name: str) -> bool:
    """Whether a RUN line of a test runs this pass."""
    texts = [run_lines.pipeline(c) for line in run_lines.substituted(path) for c in run_lines.commands(line) or ()]
    return any(_runs(text, name) for text in texts)


def _runs(text: str, name: str) -> bool:
    try:
        return any(one.name == name for one in build(text, pipelines=opt.pipelines()))
    except CompileError:  # a test of what is no pipeline
        return False


def tests(given: Iterable[Path]) -> list[Path]:
    """The lit tests among files and below folders in which anything is generated."""
    found: list[Path] = []
    for path in given:
        below = sorted(path.rglob("*.mlir")) if path.is_dir() else [path]
        found += [p for p in below if path.is_file() or not run_lines.IGNORED & set(p.parts)]
    return [path for path in found if has_generated(path)]


def report(one: Update) -> None:
    """Say what becomes of a test."""
    name = one.path if not one.path.is_absolute() else _relative(one.path)
    for line in one.changes:
        print(f"{name}: {line}")
    for line in one.refused:
        print(f"{name}: refused: {line}", file=sys.stderr)
    for line in one.notes:
        print(f"{name}: note: {line}", file=sys.stderr)


def _relative(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point."""
    cli = argparse.ArgumentParser("update_tests", description="Write the generated parts of tests anew.")
    cli.add_argument("tests", nargs="*", type=Path, help="lit tests, or folders of them; test/ by default")
    cli.add_argument("--check", action="store_true", help="write nothing; exit code 1 when something differs")
    cli.add_argument("--only", metavar="PASS", help="only tests that run this pass")
    args = cli.parse_args(argv)
    given: list[Path] = args.tests or [Path("test")]
    missing = [str(path) for path in given if not path.exists()]
    if missing:
        print(f"update_tests: error: no such file: {', '.join(missing)}", file=sys.stderr)
        return 2
    if args.only and args.only not in available():
        hint = nearest(args.only, available())
        print(f"update_tests: error: unknown pass '{args.only}'; {hint}", file=sys.stderr)
        return 2
    chosen = [path.absolute() for path in tests(given) if not args.only or uses(path.absolute(), args.only)]
    found = [update(path, execute=not args.check) for path in chosen]
    for one in found:
        report(one)
    return _finish(found, args.check)


def _finish(found: list[Update], check: bool) -> int:
    refused = sum(bool(one.refused) for one in found)
    texts = {path: text for one in found for path, text in one.texts.items()}
    summary = f"update_tests: {len(found)} tests with generated parts"
    if refused:
        print(f"{summary}, {refused} refused: nothing was written", file=sys.stderr)
        return 1
    if check:
        differ = sum(bool(one.texts) for one in found)
        print(f"{summary}, {differ} differ; run without --check to write them" if differ else f"{summary}: ok")
        return 1 if differ else 0
    files.write_texts(texts)
    print(f"{summary}, {len(texts)} files written")
    return 1 if any(one.notes for one in found) else 0
