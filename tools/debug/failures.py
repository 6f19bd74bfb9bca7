"""How a pipeline fails on a module, and whether that is the failure that is looked for."""

from __future__ import annotations

import hashlib
import io
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.printer import Printer

from headrace.dialects.support.diagnostics import CompileError, nearest
from headrace.dialects.support.journal import Journal, recording
from headrace.passes.infra.manager import Kind, PassBug, PassManager, Watch
from headrace.tools.debug.numbers import Numbers
from headrace.tools.opt import context

if TYPE_CHECKING:
    pass

BUGS: tuple[str, ...] = get_args(Kind)
PREDICATES = ("failure", "crash", "refused", "execution", "digest", *(kind for kind in BUGS if kind != "crash"))
"""What a predicate may be, besides a command of the user's."""


@dataclass(frozen=True)
class Failure:
    """How a pass failed. Two failures are the same when kind, pass and `what` are."""

    kind: str
    """`refused`, or a kind of `PassBug`."""
    spec: str
    """The pass with its options; empty when it failed before the first."""
    what: str
    """Of a crash: the exception and the function that raised it. Of a refusal: its code. Else empty."""
    text: str = field(default="", compare=False)
    """The error as it was reported."""
    number: int = field(default=-1, compare=False)
    """Position of the pass in the pipeline; -1 before the first."""
    op: str = field(default="", compare=False)
    location: str = field(default="", compare=False)

    @property
    def pass_name(self) -> str:
        """Name of the pass."""
        return self.spec.partition("{")[0]

    @classmethod
    def of(cls, error: Exception, number: int, spec: str) -> Failure:
        """The failure that an exception stands for."""
        text = str(error)
        if isinstance(error, PassBug):
            cause = error.__cause__
            what = _raised(cause) if error.kind == "crash" and isinstance(cause, Exception) else ""
            return cls(error.kind, spec, what, text, number, error.op, error.location)
        if isinstance(error, CompileError):
            return cls("refused", spec, error.code, text, number, location=error.location)
        return cls("crash", spec, _raised(error), f"{type(error).__name__}: {text}", number)


def _raised(error: Exception) -> str:
    """The type of an exception and the function that raised it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = trace.tb_frame.f_code.co_qualname if trace is not None else ""
    return f"{type(error).__name__}{f' in {where}' if where else ''}"


@dataclass(frozen=True)
class Predicate:
    """What is looked for: a kind of failure, the digest of the results, or what a command says of the IR."""

    kind: str = "failure"
    """One of `PREDICATES`, or `command`."""
    value: str = ""
    """Code of a refusal, digest of the results, or the command."""
    same: Failure | None = None
    """Only this failure counts."""

    @classmethod
    def parse(cls, text: str) -> Predicate:
        """Read `--predicate`: a name of `PREDICATES` (`refused=CODE`, `digest=HEX`), else a command."""
        name, _, value = text.partition("=")
        if name in PREDICATES:
            if value and name not in ("refused", "digest"):
                raise CompileError("bad-option", f"--predicate {text}: '{name}' takes no value")
            return cls("changed-results" if name == "execution" else name, value)
        if not text.strip():
            raise CompileError(
                "bad-option", "--predicate is empty", fix=f"one of {', '.join(PREDICATES)}, or a command"
            )
        words = shlex.split(text)
        if len(words) == 1 and "/" not in text and not Path(text).exists():
            hint = nearest(text, PREDICATES)
            raise CompileError("bad-option", f"--predicate {text}: no such predicate, and no command", fix=hint)
        return cls("command", text)

    @property
    def of_result(self) -> bool:
        """Whether it looks at the IR that passes leave, not at how they fail."""
        return self.kind in ("digest", "command")

    @property
    def verifies(self) -> bool:
        """Whether the IR has to be audited after each pass."""
        return self.kind == "failure" or (self.kind in BUGS and self.kind not in ("crash", "changed-results"))

    @property
    def executes(self) -> bool:
        """Whether programs have to be run."""
        return self.kind in ("changed-results", "digest")

    def holds(self, failure: Failure) -> bool:
        """Whether this is the failure that is looked for."""
        if self.same is not None:
            return failure == self.same
        return self.kind == "failure" or (failure.kind == self.kind and self.value in ("", failure.what))

    def only(self, failure: Failure) -> Predicate:
        """The predicate that holds for just this failure."""
        return self if self.of_result else replace(self, kind=failure.kind, value="", same=failure)


@dataclass
class Ended:
    """How a trial ended. `found`: what is looked for is there; None when that cannot be told."""

    found: bool | None
    failure: Failure | None = None
    before: ModuleOp | None = None
    """The module before the pass that failed, when it was kept."""
    module: ModuleOp | None = None
    """The module after the passes, when none failed."""


@dataclass(frozen=True)
class Trial:
    """A pipeline, what is looked for when it runs, and the numbers that programs are run on."""

    passes: tuple[ModulePass, ...]
    predicate: Predicate
    numbers: Numbers = Numbers()
    context: Callable[[], Context] = context
    """Makes the context that passes run in."""

    def __call__(self, module: ModuleOp) -> bool:
        """Whether what is looked for is there; `module` stays as it is."""
        return self.run(module).found is True

    def run(self, module: ModuleOp, fuel: Journal | None = None, keep: bool = False) -> Ended:
        """Run the passes on a copy, writing into the journal `fuel` and obeying it. `keep` keeps the module before a
        failure, and has the failure explained as well as it can be."""
        module = module.clone()
        predicate = self.predicate
        state = _State(keep, module)
        digest = predicate.value
        if predicate.kind == "digest" and not digest:
            digest = self.digest(module) or ""
        execution = None
        spec = ""
        try:
            if predicate.kind == "changed-results":
                execution = self.numbers.execution(module, explain=keep)
                execution.start(module)
            check = execution.check if execution is not None else None
            watch = Watch(verify_each=predicate.verifies, progress=state.step, check=check)
            with recording(fuel) if fuel is not None else nullcontext():
                PassManager(self.context(), self.passes, watch).run(module)
        except Exception as error:
            if state.number >= 0:
                spec = str(self.passes[state.number])
            failure = Failure.of(error, state.number, spec)
            return Ended(_verdict(predicate, failure), failure, state.before)
        if not predicate.of_result:
            return Ended(False, module=module)
        if predicate.kind == "command":
            return Ended(run_command(predicate.value, module), module=module)
        after = self.digest(module)
        return Ended(after != digest if after and digest else None, module=module)

    def settled(self, module: ModuleOp) -> tuple[Trial, Ended]:
        """The trial that looks for just the failure that the passes have on `module`, and how it ends. Where any
        failure will do and they have none, a change of results is looked for."""
        trial, ended = self, self.run(module, keep=True)
        if self.predicate.kind == "failure" and ended.failure is None:
            trial = replace(self, predicate=Predicate("changed-results"))
            ended = trial.run(module, keep=True)
        if ended.found and ended.failure is not None:
            trial = replace(trial, predicate=trial.predicate.only(ended.failure))
        return trial, ended

    def nothing(self, ended: Ended) -> CompileError:
        """The refusal to look further: what is looked for was not found."""
        name = "execution" if self.predicate.kind == "changed-results" else self.predicate.kind
        if ended.failure is None:
            what = f"the passes run to their end, and the predicate '{name}' does not hold"
            return CompileError("does-not-fail", what, fix="check the pipeline, and the seeds of weights and inputs")
        where = f"pass '{ended.failure.spec}'" if ended.failure.spec else "the program itself"
        return CompileError(
            "fails-otherwise",
            f"{where} fails with {ended.failure.kind}, before the predicate '{name}' holds",
            why=ended.failure.text,
            fix=f"look at that first: --predicate {ended.failure.kind}" if ended.failure.spec else "",
        )

    def digest(self, module: ModuleOp) -> str | None:
        """The digest of the results of a program, to the last bit; None when it cannot be run."""
        from headrace.tools.execution import programs

        try:
            results = programs.run(module, self.numbers.store(module), self.numbers.arrays(module))
        except CompileError:
            return None
        found = hashlib.sha256()
        for name, array in sorted(results.items()):
            found.update(f"{name} {array.dtype} {array.shape} ".encode() + array.tobytes())
        return found.hexdigest()[:16]

    @cached_property
    def text(self) -> str:
        """The pipeline as `-p` takes it."""
        return pipeline_text(self.passes)


@dataclass
class _State:
    """Follows a run: which pass is running, and the module before it."""

    keep: bool
    module: ModuleOp
    number: int = -1
    before: ModuleOp | None = None

    def step(self, number: int, count: int, one: ModulePass) -> None:
        self.number = number
        if self.keep:
            self.before = self.module.clone()


def _verdict(predicate: Predicate, failure: Failure) -> bool | None:
    """Of another failure than the one that is looked for nobody can tell what would have come after it."""
    if predicate.of_result:
        return None
    return True if predicate.holds(failure) else None


def pipeline_text(passes: Sequence[ModulePass]) -> str:
    """A pipeline as `headrace-opt -p` takes it."""
    return ",".join(map(str, passes))


def run_command(command: str, module: ModuleOp) -> bool:
    """Whether a command ends with exit code 0, given a file with the module; `{}` in the command stands for the file,
    which else comes last."""
    with tempfile.TemporaryDirectory(prefix="headrace-") as folder:
        path = Path(folder) / "module.mlir"
        path.write_text(print_module(module, locations=True), encoding="utf-8")
        quoted = shlex.quote(str(path))
        line = command.replace("{}", quoted) if "{}" in command else f"{command} {quoted}"
        done = subprocess.run(line, shell=True, capture_output=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode in (126, 127):
        why = done.stderr.decode(errors="replace").strip()
        raise CompileError("bad-option", f"--predicate: the command cannot be run: {command}", why=why)
    return done.returncode == 0


def print_module(module: ModuleOp, locations: bool = False) -> str:
    """The text of a module."""
    out = io.StringIO()
    Printer(out, print_debuginfo=locations).print_op(module)
    return out.getvalue() + "\n"


Interesting = Callable[[ModuleOp], bool]
Progress = Callable[[str], None]
