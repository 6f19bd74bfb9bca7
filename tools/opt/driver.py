"""One run of headrace-opt: read, transform, print."""

from __future__ import annotations

import re
import sys
from collections import ChainMap
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from headrace.compiler import OWN, PHASE_LAP, Clock
from headrace.dialects.support import locations
from headrace.dialects.support.diagnostics import CompileError
from headrace.dialects.support.journal import Journal, recording
from headrace.passes import pipelines as phases
from headrace.passes.infra.manager import PassManager, Stage
from headrace.passes.infra.registry import available, installed, loaded, staged
from headrace.tools.opt.arguments import read
from headrace.tools.opt.expectations import expectations, mismatches
from headrace.tools.opt.parsing import Refusal, Refused, context, one_line, parse
from headrace.tools.watching import Watching, text_of

if TYPE_CHECKING:
    from headrace.dialects.machine.device import Device
    from headrace.tools.execution import Execution
    from headrace.tools.why import Follow

SPLIT = re.compile(r"^// -----[^\n]*\n?", re.M)
POSITION = re.compile(r"(?P<file>[^\s()]+):(?P<line>\d+):(?P<column>\d+)")


def pipelines() -> dict[str, str]:
    """The named pipelines (`passes/pipelines.py`), name to text."""
    return dict(phases.PIPELINES)


class Driver:
    """One run of headrace-opt. Streams are given, so that it can run inside a test process."""

    def __init__(
        self, argv: Sequence[str], stdin: TextIO, stdout: TextIO, stderr: TextIO, reproducers: bool = False
    ) -> None:
        self.args = read(argv)
        self.stdin, self.stdout, self.stderr = stdin, stdout, stderr
        self.name = "<stdin>" if self.args.input == "-" else self.args.input
        self.clock = Clock()
        self.passes, self.dialects = loaded(self.args.load_pass_plugin)
        self.own: list[Stage] = []
        """What -p says."""
        self.shown = ""
        self.device: Device | None = None
        self.reproducers = reproducers
        """Whether programs on which a pass fails are kept when no option says."""
        self.last_words: list[str] = []
        """Lines to print after everything else."""

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
        if args.lint:
            return self.lint(self._read())
        known = ChainMap[str, Any](self.passes, dict(available()))
        parts = staged(args.passes, known, pipelines())
        self.own = [Stage(name or OWN, passes) for name, passes in parts]
        if args.device:
            from headrace.dialects.machine.device import load_device

            self.device = load_device(args.device)
        text = self._read()
        chunks: list[str] = SPLIT.split(text) if args.split_input_file else [text]
        offsets = self._offsets(text) if args.split_input_file else [0]
        code = 0
        printed: list[str] = []
        self.clock.lap("start")
        try:
            for number, (chunk, first_line) in enumerate(zip(chunks, offsets, strict=True)):
                result, output = self._chunk(chunk, first_line, str(number) if len(chunks) > 1 else "")
                code = max(code, result)
                printed.append(output)
            self._write("// -----\n".join(printed) if any(printed) else "")
            self.clock.lap("write")
        finally:
            self._watching().report(self.clock.steps, self.clock.spans, self.clock.records)
        return code

    def _watching(self, part: str = "") -> Watching:
        names = {field.name for field in fields(Watching)}
        given = {name: value for name, value in vars(self.args).items() if name in names}
        return Watching(**given, stream=self.stderr, part=part)

    def list_passes(self) -> int:
        """Print the passes level by level, each with the first line of its docstring, then the pipelines."""
        level = ""
        for name, factory in available().items():
            found = factory()
            if level != (level := found.__module__.split(".")[-2]):
                print(f"passes of {level}:", file=self.stdout)
            self._list(name, found)
        refused: list[CompileError] = []
        others = {**installed(), **self.passes}
        print("passes of others:", file=self.stdout) if others else None
        for name, one in others.items():
            try:
                self._list(name, one(), f"from {one.source}: ")
            except CompileError as error:
                self._list(name, None, f"from {one.source}: refused")
                refused.append(error)
        print("pipelines, by name wherever a pass may stand:", file=self.stdout)
        for name, text in pipelines().items():
            print(f"  {name:26} {text}", file=self.stdout)
        if refused:
            raise CompileError.many(d for error in refused for d in error.diagnostics)
        return 0

    def _list(self, name: str, kind: type[ModulePass] | None, source: str = "") -> None:
        about = ((kind.__doc__ if kind is not None else "") or "").strip().splitlines() or [""]
        print(f"  {name:26} {source}{about[0]}", file=self.stdout)

    def help(self, of_pass: str | None, of_op: str | None) -> int:
        """Print what the documentation says about a pass or pipeline, and an op."""
        from headrace.tools.docs.ops import op_help
        from headrace.tools.docs.passes import pass_help

        pages = [*([pass_help(of_pass, self.passes)] if of_pass else []), *([op_help(of_op)] if of_op else [])]
        print("\n\n".join(pages), file=self.stdout)
        return 0

    def lint(self, text: str) -> int:
        """Print everything wrong or doubtful with a text; 2 when anything is wrong."""
        from headrace.tools.opt.lint import lint, to_json

        store = None
        if not self.args.weights.startswith("random:"):
            from headrace.compiler import weight_store

            store = weight_store(self.args.weights)
        tested = re.search(r"^// RUN:.*--verify-diagnostics", text, re.M)
        split = self.args.split_input_file or re.search(r"^// RUN:.*--split-input-file", text, re.M)
        parts = zip(SPLIT.split(text), self._offsets(text), strict=True) if split else [(text, 0)]
        found = [
            one
            for part, first_line in parts
            for one in lint(
                context(self.args.allow_unregistered_dialect),
                part,
                self.name,
                first_line,
                store,
                expectations(part, first_line) if tested else (),
            )
        ]
        shown = to_json(found) if self.args.json else "\n".join(map(str, found))
        print(shown, end="\n" if shown else "", file=self.stdout)
        return 2 if any(one.severity == "error" for one in found) else 0

    def report(self, refusals: Iterable[Refusal]) -> None:
        """Print refusals the way compilers do."""
        for line, column, message in refusals:
            where = f"{self.name}:{line}:{column}" if line else self.name
            print(f"{where}: error: {message}", file=self.stderr)

    def _chunk(self, text: str, first_line: int, part: str) -> tuple[int, str]:
        """Parse, transform and print one chunk: exit code and output. `part` tells its dumps from those of others."""
        refusals: tuple[Refusal, ...] = ()
        output = ""
        try:
            output = self._transform(text, first_line, part)
        except Refused as error:
            refusals = error.refusals
        if self.args.verify_diagnostics:
            wrong = mismatches(expectations(text, first_line), refusals)
            self.report(wrong)
            return (1 if wrong else 0), output
        self.report(refusals)
        return (2 if refusals else 0), output

    def _transform(self, text: str, first_line: int, part: str) -> str:
        args, clock = self.args, self.clock
        ctx = context(args.allow_unregistered_dialect, self.dialects)
        module, positions = parse(ctx, text, self.name, first_line)
        if self.device is not None:
            from headrace.dialects.machine.attributes import set_device

            set_device(module, self.device)
        clock.lap("parse")
        named = {locations.text(op.location): at for op, at in reversed(positions.items())}
        execution = self._execution()
        look = self._watching(part)

        follow: Follow | None = None

        def finished(name: str, module: ModuleOp) -> None:
            clock.lap(f"{PHASE_LAP}{name}")
            look.on_phase(name, module)
            if follow:
                follow.phase(name, module)
            clock.lap("look at the phases")

        def check(one: ModulePass, module: ModuleOp) -> None:
            if follow:
                follow.after(one, module)
            if execution:
                execution.check(one, module)

        watch = replace(look.watch, check=check if execution or args.why else None, on_stage=finished)
        try:
            if args.why:
                from headrace.tools.why import Follow

                follow = Follow(module, args.why)
            begin, stages = self._stages(module)
            look.on_phase(begin, module)
            manager = PassManager(ctx, stages, watch)
            manager.records = clock.records
            if args.print_pipeline:
                self._print_pipeline(manager.passes)
            if execution:
                execution.start(module)
            clock.lap("load passes")
            try:
                with self._journal(follow):
                    manager.run(module)
            except Exception as error:
                self._reproduce(error, text, first_line, manager.passes)
                raise
        except CompileError as error:
            raise Refused(*self._refusals(error, named)) from error
        finally:
            if sys.exc_info()[0] is not None:
                clock.lap(f"{PHASE_LAP}that failed")
        output = text_of(module, args.print_op_generic, args.print_debuginfo)
        clock.lap("print")
        return output

    @contextmanager
    def _journal(self, follow: Follow | None) -> Generator[None]:
        """Lets passes make only so many rewrites as `--fuel` says, and says which was the last; tells what `--why` asks
        for, of passes that fail as well."""
        if self.args.fuel is None and follow is None:
            yield
            return
        journal = follow.journal if follow else Journal()
        journal.fuel = self.args.fuel
        try:
            with recording(journal):
                yield
        except Exception:
            if follow:
                follow.failed(journal.pass_name)
            raise
        finally:
            if follow:
                print(follow.text(), file=self.stderr)
        if journal.fuel is None:
            return
        made = journal.applied
        last = f"; the last, of {made[-1].pass_name}: {made[-1]}" if made else ""
        print(f"fuel: {len(made)} of {self.args.fuel} rewrites made{last}", file=self.stderr)

    def _reproduce(self, error: Exception, text: str, first_line: int, passes: tuple[ModulePass, ...]) -> None:
        """Write the program on which a pass failed; a refusal only when that was asked for."""
        args = self.args
        refused = isinstance(error, CompileError)
        if (args.reproducer is None and (refused or not self.reproducers)) or (refused and args.verify_diagnostics):
            return
        from headrace.tools.debug import Numbers, Predicate, Source, Trial, absolute, reproduce
        from headrace.tools.debug.reproducer import default_place

        def read() -> ModuleOp:
            module, _ = parse(new_context(), text, self.name, first_line)
            if self.device is not None:
                from headrace.dialects.machine.attributes import set_device

                set_device(module, self.device)
            return module

        def new_context() -> Context:
            return context(args.allow_unregistered_dialect, self.dialects)

        flags = ["--allow-unregistered-dialect"] * args.allow_unregistered_dialect
        flags += [x for plugin in args.load_pass_plugin for x in ("--load-pass-plugin", absolute(plugin))]
        source = Source(self.name, args.device or "", tuple(flags))
        numbers = Numbers(args.weights, args.check_execution or "random:0", args.tolerance)
        trial = Trial(passes, Predicate(), numbers, new_context)
        self.last_words.append(reproduce(source, read, trial, error, args.reproducer or default_place()))

    def _stages(self, module: ModuleOp) -> tuple[str, Sequence[Stage]]:
        """The phase after which the module stands, and what to run on it."""
        args = self.args
        if args.start is None and args.to is None:
            return phases.START, self.own
        begin = args.start or phases.reached(module)
        stages = phases.stages(begin or phases.START, args.to or phases.NAMES[-1])
        if args.start is not None or not begin:
            phases.check_from(module, args.start or phases.START)
        return begin, [*stages, *self.own]

    def _print_pipeline(self, passes: Sequence[ModulePass]) -> None:
        """The passes of a chunk, unless they are those of the chunk before."""
        text = ",".join(map(str, passes))
        if text != self.shown:
            self.shown = text
            print(text, file=self.stderr)

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
        path = Path(self.args.output)
        if not path.exists() or path.is_file():
            from headrace.dialects.support.files import write_text

            write_text(path, text)
            return
        try:
            path.write_text(text, encoding="utf-8")  # a device or a pipe
        except OSError as error:
            raise CompileError("cannot-write", f"{path}: {error.strerror}") from None
