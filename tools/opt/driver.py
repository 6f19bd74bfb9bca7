"""One run of headrace-opt: read, transform, print."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from importlib import import_module
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.printer import Printer
from xdsl.utils.exceptions import DiagnosticException

from headrace.dialects.support import locations
from headrace.dialects.support.diagnostics import CompileError, nearest
from headrace.passes.infra.manager import ALL, PassManager, Watch, timing_table
from headrace.passes.infra.registry import available, build
from headrace.tools.opt.arguments import read
from headrace.tools.opt.expectations import expectations, mismatches
from headrace.tools.opt.parsing import Refusal, Refused, context, one_line, parse, plain

if TYPE_CHECKING:
    from headrace.dialects.machine.device import Device
    from headrace.tools.execution import Execution

SPLIT = re.compile(r"^// -----[^\n]*\n?", re.M)
POSITION = re.compile(r"(?P<file>[^\s()]+):(?P<line>\d+):(?P<column>\d+)")


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


class Driver:
    """One run of headrace-opt. Streams are given, so that it can run inside a test process."""

    def __init__(self, argv: Sequence[str], stdin: TextIO, stdout: TextIO, stderr: TextIO) -> None:
        self.args = read(argv)
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
        if args.help_pass or args.help_op:
            return self.help(args.help_pass, args.help_op)
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

    def help(self, of_pass: str | None, of_op: str | None) -> int:
        """Print what the documentation says about a pass or pipeline, and an op."""
        from headrace.tools.docs.ops import op_help
        from headrace.tools.docs.passes import pass_help

        pages = [*([pass_help(of_pass)] if of_pass else []), *([op_help(of_op)] if of_op else [])]
        print("\n\n".join(pages), file=self.stdout)
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
        execution = self._execution()
        watch = Watch(
            verify_each=args.verify_each,
            measure=args.timing,
            before=frozenset([ALL] if args.print_ir_before_all else args.print_ir_before),
            after=frozenset([ALL] if args.print_ir_after_all else args.print_ir_after),
            after_change=args.print_ir_after_change,
            generic=args.print_op_generic,
            debuginfo=args.print_debuginfo,
            stream=self.stderr,
            check=execution.check if execution else None,
        )
        manager = PassManager(ctx, passes, watch)
        try:
            if execution:
                execution.start(module)
            manager.run(module)
        except CompileError as error:
            raise Refused(*self._refusals(error, named)) from error
        except DiagnosticException as error:
            raise Refused(Refusal(0, 0, "\n".join([plain(error), *getattr(error, "__notes__", ())]))) from error
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
            found.append(Refusal(*(at or (0, 0)), one_line(one) + shown + notes))
        return found

    def _execution(self) -> Execution | None:
        args = self.args
        if args.check_execution is None:
            return None
        from headrace.tools.execution import Execution

        return Execution(args.weights, args.check_execution, args.tolerance, lambda line: print(line, file=self.stderr))

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
