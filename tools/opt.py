"""headrace-opt: reads IR, runs passes, prints IR. The pass author's driver.

    headrace-opt test.mlir -p 'fold-constants,tile{max-bytes=65536}'

Errors are `file:line:col: error: …` on standard error. Exit codes: 0 ok, 1 a bug of ours or diagnostics that were not
as expected, 2 bad usage or bad input.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
import traceback
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from xdsl.context import Context
from xdsl.dialects.builtin import FileLineColLoc, IntAttr, LocationAttr, ModuleOp, StringAttr, UnknownLoc
from xdsl.ir import Dialect, Operation
from xdsl.parser import Parser
from xdsl.passes import ModulePass
from xdsl.printer import Printer
from xdsl.utils.exceptions import DiagnosticException, ParseError, VerifyException
from xdsl.utils.lexer import Span

from headrace.dialects.support import locations
from headrace.dialects.support.diagnostics import CompileError, nearest
from headrace.passes.infra.manager import ALL, PassBug, PassManager, Watch, timing_table
from headrace.passes.infra.registry import available, build
from headrace.passes.infra.verify import offences

if TYPE_CHECKING:
    from headrace.dialects.machine.device import Device
    from headrace.tools.numbers import Numbers

DIALECTS = {
    "builtin": "xdsl.dialects.builtin:Builtin",
    "func": "xdsl.dialects.func:Func",
    "test": "xdsl.dialects.test:Test",
    "tensor": "headrace.dialects.tensor:Tensor",
    "dataflow": "headrace.dialects.dataflow:Dataflow",
    "rdu": "headrace.dialects.rdu:Rdu",
    "machine": "headrace.dialects.machine:Machine",
}
BROKEN_PIPE = 141
"""What a shell reports of a process that its reader left; this driver ends with 0 instead."""
SPLIT = re.compile(r"^// -----[^\n]*\n?", re.M)
EXPECTED = re.compile(r"//.*?expected-(error|warning|note)(-re)?(?:\s*@([+-]\d+|above|below|\*))?\s*\{\{(.*?)\}\}")
POSITION = re.compile(r"(?P<file>[^\s()]+):(?P<line>\d+):(?P<column>\d+)")


class Refusal(NamedTuple):
    """One thing wrong with the input: where (line and column from 1; line 0: nowhere), and what."""

    line: int
    column: int
    message: str


class Refused(Exception):
    """The input is bad; the driver reports the refusals and goes on with the next chunk."""

    def __init__(self, *refusals: Refusal) -> None:
        super().__init__(*refusals)
        self.refusals = refusals


class LocatingParser(Parser):
    """Gives every op without `loc(…)` its file:line:col, and remembers where each op stood."""

    def __init__(self, ctx: Context, text: str, name: str, first_line: int = 0) -> None:
        super().__init__(ctx, text, name)
        self.first_line = first_line
        self.starts = [-1, *(m.start() for m in re.finditer("\n", text))]
        self.positions: dict[Operation, tuple[int, int]] = {}
        self.placed: ParseError | None = None

    def line_column(self, pos: int) -> tuple[int, int]:
        """Line (of the whole file) and column of an offset into this chunk, both from 1."""
        line = bisect_right(self.starts, pos - 1)
        return line + self.first_line, pos - self.starts[line - 1]

    def parse_operation(self) -> Operation:
        pos = self.pos
        try:
            op = super().parse_operation()
        except ParseError as error:
            if error.msg.endswith("is not registered") and error is not self.placed:
                error.span = Span(pos, self.pos, self.lexer.input)  # xDSL points at the token after the op's name
                self.placed = error
            raise
        except (VerifyException, CompileError, ValueError) as error:
            self.raise_error(_plain(error), pos, self.pos)
        line, column = self.line_column(pos)
        self.positions[op] = (line, column)
        if isinstance(op.location, UnknownLoc):
            op.location = FileLineColLoc(StringAttr(self.lexer.input.name), IntAttr(line), IntAttr(column))
        return op


def context(allow_unregistered: bool = False) -> Context:
    """A context with all dialects registered; each is imported when its first op or type is met."""
    ctx = Context(allow_unregistered=allow_unregistered)
    for name, path in DIALECTS.items():
        ctx.register_dialect(name, _lazy_dialect(path))
    return ctx


def pipelines() -> dict[str, str]:
    """The named pipelines (`passes/pipelines.py`), name to text; empty where there are none."""
    if find_spec("headrace.passes.pipelines") is None:
        return {}
    return dict(getattr(import_module("headrace.passes.pipelines"), "PIPELINES", {}))


def shortened(named: dict[str, str]) -> dict[str, str]:
    """Pipeline texts in which the pipelines that they contain go by name."""
    found: dict[str, str] = {}
    for name, text in named.items():
        for other, part in named.items():
            if other != name and len(part) < len(text):
                text = re.sub(rf"(?<![^,]){re.escape(part)}(?![^,])", other, text)
        found[name] = text
    return found


def parse(ctx: Context, text: str, name: str, first_line: int = 0) -> tuple[ModuleOp, dict[Operation, tuple[int, int]]]:
    """The verified module of `text` and where each of its ops stood (line, column). Raises `Refused`."""
    if not re.sub(r"//[^\n]*", "", text).strip():
        empty = ModuleOp([])
        empty.location = _at(name, first_line + 1)
        return empty, {}
    parser = LocatingParser(ctx, text, name, first_line)
    try:
        module = parser.parse_module()
    except ParseError as error:
        line, column = parser.line_column(_position(error, text))
        raise Refused(Refusal(line, column, _clearer(ctx, error, text))) from error
    if isinstance(module.location, UnknownLoc):
        module.location = _at(name, first_line + 1)
    wrong: list[tuple[Operation, str]] = [*offences(module)]
    if not wrong and any(op.name == "func.func" for op in module.body.block.ops):
        wrong += import_module("headrace.dialects.tensor.program").faults(module)
    if wrong:
        where = parser.positions
        raise Refused(*(Refusal(*where.get(op, (0, 0)), _named(op, message)) for op, message in wrong))
    return module, parser.positions


def _named(op: Operation, message: str) -> str:
    """A verifier's message with the name of its op, once."""
    return message if message.startswith(f"{op.name}:") else f"'{op.name}': {message}"


def _clearer(ctx: Context, error: ParseError, text: str) -> str:
    """The parser's message; where xDSL says too little, what was expected or what is near."""
    message = error.msg.strip()
    if message == "in block definition":
        ends = "; the text ends inside a region" if not text[error.span.start :].strip() else ""
        return f"expected an op, a block or '}}'{ends}"
    unknown = re.fullmatch(r"Operation (\S+) is not registered", message)
    if unknown is None:
        return error.msg
    near = _names_near(ctx, unknown[1])
    close = get_close_matches(unknown[1], near, 1, 0.6) if "." in unknown[1] else near
    return f"{message}; did you mean '{close[0]}'?" if close else message


def _names_near(ctx: Context, name: str) -> list[str]:
    """The ops of the dialect that an op's name begins with; without one, ops that are called so in any of ours."""
    dialect, dot, _ = name.partition(".")
    if not dot:
        return [f"{one}.{name}" for one in DIALECTS if ctx.get_optional_op(f"{one}.{name}") is not None]
    if dialect not in DIALECTS:
        return [name.replace(dialect, one, 1) for one in get_close_matches(dialect, DIALECTS, 1)]
    return [op.name for op in _lazy_dialect(DIALECTS[dialect])().operations]


def _position(error: ParseError, text: str) -> int:
    """Where an error is: xDSL reports undefined values at the end of the text, we at their first use."""
    undefined = re.search(r"values used but not defined: \[(%[^,\]]+)", error.msg)
    code = re.sub(r"//[^\n]*", lambda m: " " * len(m[0]), text)
    use = undefined and re.search(rf"{re.escape(undefined[1])}(?![\w.$-])", code)
    return use.start() if use else error.span.start


def _at(name: str, line: int) -> LocationAttr:
    return FileLineColLoc(StringAttr(name), IntAttr(line), IntAttr(1))


def _lazy_dialect(path: str) -> Any:
    module, _, name = path.partition(":")

    def load() -> Dialect:
        return getattr(import_module(module), name)

    return load


def _plain(error: BaseException) -> str:
    """The message of an error, without xDSL's print of the module around it."""
    while error.__cause__ is not None and isinstance(error.__cause__, DiagnosticException):
        error = error.__cause__
    if isinstance(error, CompileError):
        return _one_line(error.diagnostics[0])
    return str(error).strip().removeprefix("Operation does not verify: ")


def _one_line(diagnostic: Any) -> str:
    text = f"{diagnostic.what} [{diagnostic.code}]"
    for label in ("why", "fix"):
        if getattr(diagnostic, label):
            text += f"\n  {label}: {getattr(diagnostic, label)}"
    return text


# ---------------------------------------------------------------------------------------------------- diagnostics


class Expectation(NamedTuple):
    """One `expected-error {{…}}`: the line it is for (0: any line), the text or pattern, and where it stands."""

    line: int
    text: str
    is_pattern: bool
    stands: int

    def matches(self, refusal: Refusal) -> bool:
        """Whether this is the refusal that was expected."""
        if self.line not in (0, refusal.line):
            return False
        return bool(re.search(self.text, refusal.message)) if self.is_pattern else self.text in refusal.message


def expectations(text: str, first_line: int = 0) -> list[Expectation]:
    """The expected errors that the comments of `text` announce."""
    lines = text.splitlines()
    found: list[Expectation] = []
    for number, line in enumerate(lines, 1 + first_line):
        for kind, is_pattern, offset, message in EXPECTED.findall(line):
            if kind != "error":
                raise CompileError("bad-test", f"expected-{kind}: only errors are reported", location=f"line {number}")
            target = number
            if offset == "*":
                target = 0
            elif offset in ("above", "below"):
                target += _to_code(lines, number - 1 - first_line, -1 if offset == "above" else 1)
            elif offset:
                target += int(offset)
            found.append(Expectation(target, message, bool(is_pattern), number))
    return found


def _to_code(lines: Sequence[str], at: int, step: int) -> int:
    """The distance to the next line that is no expectation itself."""
    distance = step
    while 0 <= at + distance < len(lines) and EXPECTED.search(lines[at + distance]):
        distance += step
    return distance


def mismatches(expected: Iterable[Expectation], refusals: Iterable[Refusal]) -> list[Refusal]:
    """What differs between the expected and the real errors, as refusals; empty when they agree one to one."""
    left = list(refusals)
    wrong: list[Refusal] = []
    for one in expected:
        hit = next((r for r in left if one.matches(r)), None)
        if hit is None:
            wrong.append(Refusal(one.stands, 1, f'expected error "{one.text}" was not produced'))
        else:
            left.remove(hit)
    return wrong + [Refusal(r.line, r.column, f"unexpected error: {r.message}") for r in left]


# --------------------------------------------------------------------------------------------------------- driver


class _Usage(Exception):
    """Bad command line; carries the text."""


class _Arguments(argparse.ArgumentParser):
    """An argument parser that raises instead of leaving the process."""

    def error(self, message: str) -> Any:
        raise _Usage(message)


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    cli = _Arguments("headrace-opt", description="Read IR, run passes, print IR.", allow_abbrev=False)
    add = cli.add_argument
    add("input", nargs="?", default="-", help="file of IR; standard input when it is '-' or missing")
    add("-o", "--output", default="-", help="where the result goes; standard output by default")
    add("-p", "--passes", default="", metavar="PIPELINE", help="passes in order: 'a,b{x=1 y=2,3}'; may name pipelines")
    add("--device", metavar="NAME|TOML", help="put this device into the module before the passes run")
    add("--split-input-file", action="store_true", help="treat parts between '// -----' lines one by one")
    add("--verify-diagnostics", action="store_true", help="errors must be those of '// expected-error {{…}}' comments")
    add("--verify-each", action=argparse.BooleanOptionalAction, default=True, help="audit the IR after each pass")
    add("--check-numbers", action="store_true", help="run the program after each pass; the results must stay the same")
    add("--weights", default="random:0", metavar="FILE|random:SEED", help="weights for --check-numbers")
    add("--inputs", default="random:0", metavar="NPZ|random:SEED", help="inputs for --check-numbers")
    add("--allow-unregistered-dialect", action="store_true", help="accept ops of unknown dialects in generic form")
    add("--print-op-generic", action="store_true", help="print in generic form")
    add("--print-debuginfo", action="store_true", help="print locations")
    add("--print-ir-before", action="append", default=[], metavar="PASS", help="IR before this pass, to standard error")
    add("--print-ir-after", action="append", default=[], metavar="PASS", help="IR after this pass, to standard error")
    add("--print-ir-before-all", action="store_true", help="IR before every pass")
    add("--print-ir-after-all", action="store_true", help="IR after every pass")
    add("--print-ir-after-change", action="store_true", help="what each pass changed, as a diff")
    add("--timing", action="store_true", help="CPU time, op counts and change by pass, to standard error")
    add("--print-pipeline", action="store_true", help="the pipeline with all names expanded, to standard error")
    add("--list-passes", action="store_true", help="list the passes and pipelines, and stop")
    add("--help-pass", metavar="PASS", help="explain one pass and its options, and stop")
    add("--version", action="store_true", help="print the version, and stop")
    return cli


class Driver:
    """One run of headrace-opt. Streams are given, so that it can run inside a test process."""

    def __init__(self, argv: Sequence[str], stdin: TextIO, stdout: TextIO, stderr: TextIO) -> None:
        self.args = arguments().parse_args(argv)
        self.stdin, self.stdout, self.stderr = stdin, stdout, stderr
        self.name = "<stdin>" if self.args.input == "-" else self.args.input
        self.times: dict[str, float] = {"parse": 0.0, "print": 0.0}
        self.records: list[Any] = []
        self.device: Device | None = None

    def run(self) -> int:
        """Do what the command line says; the exit code."""
        args = self.args
        if args.version:
            from importlib.metadata import version

            print(f"headrace-opt {version('headrace')} (xdsl {version('xdsl')})", file=self.stdout)
            return 0
        if args.list_passes:
            return self.list_passes()
        if args.help_pass:
            return self.help_pass(args.help_pass)
        passes = build(args.passes, pipelines=pipelines())
        if args.device:
            from headrace.dialects.machine.device import load_device

            self.device = load_device(args.device)
        self._check_names([*args.print_ir_before, *args.print_ir_after], passes)
        if args.print_pipeline:
            print(",".join(map(str, passes)), file=self.stderr)
        text = self._read()
        chunks: list[str] = SPLIT.split(text) if args.split_input_file else [text]
        offsets = self._offsets(text) if args.split_input_file else [0]
        code = 0
        printed: list[str] = []
        for chunk, first_line in zip(chunks, offsets, strict=True):
            result, output = self._chunk(chunk, first_line, passes)
            code = max(code, result)
            printed.append(output)
        self._write("// -----\n".join(printed) if any(printed) else "")
        if args.timing:
            print(timing_table(self.records, self.times.items()), file=self.stderr)
        return code

    def list_passes(self) -> int:
        """Print the passes level by level, each with the first line of its docstring, then the pipelines."""
        level = ""
        for name, factory in available().items():
            found = factory()
            if level != (level := found.__module__.split(".")[-2]):
                print(f"passes of {level}:", file=self.stdout)
            about = ((found.__doc__ or "").strip().splitlines() or [""])[0]
            print(f"  {name:26} {about}", file=self.stdout)
        print("pipelines, by name wherever a pass may stand:", file=self.stdout)
        for name, text in shortened(pipelines()).items():
            print(f"  {name:26} {text}", file=self.stdout)
        return 0

    def help_pass(self, name: str) -> int:
        """Print the help page of one pass or pipeline."""
        from headrace.passes.infra.base import describe

        passes, named = available(), pipelines()
        if name in named:
            print(f"{name} is a pipeline:\n{named[name]}", file=self.stdout)
        elif name in passes:
            print(describe(passes[name]()), file=self.stdout)
        else:
            raise CompileError("unknown-pass", f"unknown pass '{name}'", fix=nearest(name, [*passes, *named]))
        return 0

    def report(self, refusals: Iterable[Refusal]) -> None:
        """Print refusals the way compilers do."""
        for line, column, message in refusals:
            where = f"{self.name}:{line}:{column}" if line else self.name
            print(f"{where}: error: {message}", file=self.stderr)

    def _chunk(self, text: str, first_line: int, passes: Sequence[ModulePass]) -> tuple[int, str]:
        """Parse, transform and print one chunk: exit code and output."""
        refusals: tuple[Refusal, ...] = ()
        output = ""
        try:
            output = self._transform(text, first_line, passes)
        except Refused as error:
            refusals = error.refusals
        if self.args.verify_diagnostics:
            wrong = mismatches(expectations(text, first_line), refusals)
            self.report(wrong)
            return (1 if wrong else 0), output
        self.report(refusals)
        return (2 if refusals else 0), output

    def _transform(self, text: str, first_line: int, passes: Sequence[ModulePass]) -> str:
        args = self.args
        start = time.process_time()
        ctx = context(args.allow_unregistered_dialect)
        module, positions = parse(ctx, text, self.name, first_line)
        if self.device is not None:
            from headrace.dialects.machine.attributes import set_device

            set_device(module, self.device)
        self.times["parse"] += time.process_time() - start
        named = {locations.text(op.location): at for op, at in reversed(positions.items())}
        numbers = self._numbers()
        watch = Watch(
            verify_each=args.verify_each,
            before=frozenset([ALL] if args.print_ir_before_all else args.print_ir_before),
            after=frozenset([ALL] if args.print_ir_after_all else args.print_ir_after),
            after_change=args.print_ir_after_change,
            generic=args.print_op_generic,
            debuginfo=args.print_debuginfo,
            stream=self.stderr,
            check=numbers.check if numbers else None,
        )
        manager = PassManager(ctx, passes, watch)
        try:
            if numbers:
                numbers.start(module)
            manager.run(module)
        except CompileError as error:
            raise Refused(*self._refusals(error, named)) from error
        except DiagnosticException as error:
            raise Refused(Refusal(0, 0, "\n".join([_plain(error), *getattr(error, "__notes__", ())]))) from error
        finally:
            self.records += manager.records
        start = time.process_time()
        output = _text(module, args.print_op_generic, args.print_debuginfo)
        self.times["print"] += time.process_time() - start
        return output

    def _refusals(self, error: CompileError, named: dict[str, tuple[int, int]]) -> list[Refusal]:
        """The diagnostics of a pass with lines of this file; a location is a place in it or the name of an op in it."""
        notes = "".join(f"\n  {note}" for note in getattr(error, "__notes__", ()))
        found: list[Refusal] = []
        for one in error.diagnostics:
            at = named.get(one.location)
            shown = ""
            for match in POSITION.finditer(one.location) if at is None else ():
                if match["file"] == self.name:
                    at = int(match["line"]), int(match["column"])
                    break
            if one.location and one.location != f"{self.name}:{at[0]}:{at[1]}" if at else one.location:
                shown = f"\n  at: {one.location}"
            found.append(Refusal(*(at or (0, 0)), _one_line(one) + shown + notes))
        return found

    def _numbers(self) -> Numbers | None:
        if not self.args.check_numbers:
            return None
        from headrace.tools.numbers import Numbers

        return Numbers(self.args.weights, self.args.inputs, lambda line: print(line, file=self.stderr))

    def _check_names(self, names: Sequence[str], passes: Sequence[ModulePass]) -> None:
        running = [one.name for one in passes]
        for name in names:
            if name not in running:
                raise CompileError("unknown-pass", f"pass '{name}' is not in the pipeline", fix=nearest(name, running))

    def _read(self) -> str:
        if self.args.input == "-":
            return self.stdin.read()
        path = Path(self.args.input)
        try:
            return path.read_bytes().decode("utf-8")
        except OSError as error:
            raise CompileError("cannot-read", f"{path}: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise CompileError(
                "not-text", f"{path}: byte {error.start} is not UTF-8 text; this driver reads IR"
            ) from None

    @staticmethod
    def _offsets(text: str) -> list[int]:
        """Lines before each chunk."""
        starts = [0, *(m.end() for m in SPLIT.finditer(text))]
        ends = [*starts[1:], len(text)]
        return list(accumulate((text.count("\n", a, b) for a, b in zip(starts, ends, strict=True)), initial=0))[:-1]

    def _write(self, text: str) -> None:
        if self.args.output == "-":
            self.stdout.write(text)
            self.stdout.flush()
            return
        try:
            Path(self.args.output).write_text(text, encoding="utf-8")
        except OSError as error:
            raise CompileError("cannot-write", f"{self.args.output}: {error.strerror}") from None


def _text(module: ModuleOp, generic: bool, debuginfo: bool) -> str:
    import io

    out = io.StringIO()
    Printer(out, print_generic_format=generic, print_debuginfo=debuginfo).print_op(module)
    return out.getvalue() + "\n"


def run(
    argv: Sequence[str], stdin: TextIO | None = None, stdout: TextIO | None = None, stderr: TextIO | None = None
) -> int:
    """Run the driver with these arguments and streams; the exit code. Raises nothing (`--help` leaves the process)."""
    err = stderr or sys.stderr
    try:
        return Driver(argv, stdin or sys.stdin, stdout or sys.stdout, err).run()
    except _Usage as error:
        print(f"headrace-opt: error: {error}", file=err)
        return 2
    except CompileError as error:
        for one in error.diagnostics:
            print(f"headrace-opt: error: {_one_line(one)}", file=err)
        return 2
    except BrokenPipeError:  # whoever read our output has gone
        return BROKEN_PIPE
    except PassBug as error:
        print(f"headrace-opt: internal error: {error}", file=err)
        return 1
    except Exception:
        print("headrace-opt: internal error; please report it with the input and this trace", file=err)
        traceback.print_exc(file=err)
        return 1


def main() -> None:
    """Entry point of the console script."""
    code = run(sys.argv[1:])
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = BROKEN_PIPE
    if code == BROKEN_PIPE:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # keeps the interpreter from complaining when it closes the stream
    sys.exit(code % BROKEN_PIPE)


if __name__ == "__main__":
    main()
