"""Runs passes one after the other and watches them: time, op counts, statistics, change, validity, locations.

With nothing switched on it costs four reads of the clock per pass.
"""

from __future__ import annotations

import io
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal, TextIO

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Operation, OpResult
from xdsl.passes import ModulePass
from xdsl.printer import Printer
from xdsl.utils.exceptions import PassFailedException

from headrace.dialects.support import journal, locations
from headrace.dialects.support.diagnostics import CompileError, nearest
from headrace.passes.infra.base import Pass
from headrace.passes.infra.changes import Change, Snapshot
from headrace.passes.infra.legality import Legality
from headrace.passes.infra.verify import offences, unlocated

ALL = "*"
HISTORY_ATTRIBUTE = "headrace.passes"
"""Name of the module attribute that lists the passes that a module has been through. It is kept where it is."""
MOST = 5
"""Ops that a report lists one by one."""

Kind = Literal[
    "invalid-ir",
    "lost-location",
    "false-claim",
    "changed-results",
    "endless-rewrite",
    "illegal-op",
    "crash",
]
"""What a pass can do wrong."""


class PassBug(Exception):
    """A pass broke its contract: a bug in the pass, not in the program. The text says everything the fields say.

    >>> raise PassBug("false-claim", "cse", "says that it changed nothing", op="tensor.sub", location="layer/Sub")
    """

    def __init__(
        self, kind: Kind, spec: str, what: str, *, op: str = "", location: str = "", details: Sequence[str] = ()
    ) -> None:
        self.kind: Kind = kind
        self.spec = spec
        """The pass with its options, as a pipeline has it."""
        self.op = op
        """Name of the op at fault, empty when there is none."""
        self.location = location
        """Model location of that op."""
        lines = [f"pass '{spec}' {what} [{kind}]", *([f"op: '{op}'"] if op else [])]
        lines += [f"at: {location}"] if location else []
        super().__init__("\n  ".join([*lines, *details]))

    @property
    def pass_name(self) -> str:
        """The name of the pass, without options."""
        return self.spec.partition("{")[0]

    def trace(self) -> str:
        """Where a pass that crashed did, as Python has it; empty for others."""
        if self.kind != "crash" or self.__cause__ is None:
            return ""
        from traceback import format_exception

        cause = self.__cause__
        frames = cause.__traceback__.tb_next if cause.__traceback__ is not None else None  # the first is the manager's
        return "".join(format_exception(type(cause), cause, frames)).rstrip()

    def to_json(self) -> dict[str, str]:
        """The fields as a JSON-ready dictionary."""
        names = {"code": self.kind, "pass": self.spec, "op": self.op, "location": self.location}
        return names | {"what": str(self)}


@dataclass(frozen=True)
class Watch:
    """What to check, measure and print while passes run. Pass names in `before` and `after` may be `ALL`."""

    verify_each: bool = False
    """After each pass: verify, check locations, `requires`/`ensures`, and that its claim about change is true."""
    measure: bool = False
    """Count ops and take statistics, into the records."""
    before: frozenset[str] = frozenset()
    after: frozenset[str] = frozenset()
    after_change: bool = False
    """After each pass that changed something, what it changed, as unified diffs of the functions, sections, configs
    and recipes that it touched."""
    generic: bool = False
    debuginfo: bool = False
    stream: TextIO | None = None
    """Where IR goes; standard error when None."""
    progress: Callable[[int, int, ModulePass], None] | None = None
    """Called before each pass with its number, the number of passes and the pass."""
    check: Callable[[ModulePass, ModuleOp], None] | None = None
    """Called after each pass and its audit; raises to stop."""
    dump: Callable[[int, ModulePass, ModuleOp], None] | None = None
    """Called after each pass that changed something (or does not say) with its number from 1 on, the pass and the
    module."""
    on_stage: Callable[[str, ModuleOp], None] | None = None
    """Called after each stage that has a name, with the name and the module as it stands."""


@dataclass
class Record:
    """What one run of one pass did. Ops and statistics are there when the watch measures."""

    spec: str
    stage: str = ""
    begin: float = 0.0
    """When it began, on the clock of `time.perf_counter`."""
    wall: float = 0.0
    """Seconds on that clock."""
    seconds: float = 0.0
    """CPU time of the process."""
    changed: bool | None = None
    """None: a pass that does not say (only passes from outside Headrace)."""
    ops: Mapping[str, int] = field(default_factory=dict[str, int])
    """Op name → how many there are after the pass."""
    delta: dict[str, int] = field(default_factory=dict[str, int])
    """Op name → how many more (or fewer, negative) there are after the pass."""
    statistics: dict[str, int] = field(default_factory=dict[str, int])
    """What the pass counted, by name."""
    rewrites: dict[str, int] = field(default_factory=dict[str, int])
    """Pattern → how often it applied."""

    @property
    def ops_after(self) -> int:
        """How many ops there are after the pass."""
        return sum(self.ops.values())

    @property
    def ops_before(self) -> int:
        """How many ops there were before the pass."""
        return self.ops_after - sum(self.delta.values())


@dataclass(frozen=True)
class Stage:
    """Passes that run one after the other, and which ops may be in the module before and after them."""

    name: str
    passes: tuple[ModulePass, ...]
    takes: Legality | None = None
    gives: Legality | None = None
    advice: Callable[[ModuleOp], str] | None = None
    """What to do with a module that the stage does not take."""


class PassManager:
    """Runs `passes` (or stages of passes) over modules. `records` holds one entry per pass run, in order."""

    def __init__(self, ctx: Context, passes: Iterable[ModulePass | Stage], watch: Watch | None = None) -> None:
        self.ctx = ctx
        self.stages = tuple(one if isinstance(one, Stage) else Stage("", (one,)) for one in passes)
        self.watch = watch or Watch()
        self.records: list[Record] = []

    @property
    def passes(self) -> tuple[ModulePass, ...]:
        """All passes, in order."""
        return tuple(one for stage in self.stages for one in stage.passes)

    def run(self, module: ModuleOp) -> bool:
        """Run all passes on `module` in place; True if any changed it.

        A refusal (`CompileError`) is raised on with a note that names the pass. Any other exception of a pass becomes a
        `PassBug`, and so does a broken contract when `watch.verify_each` is set.
        """
        watch = self.watch
        names = [one.name for one in self.passes]
        for name in sorted({*watch.before, *watch.after} - {ALL, *names}):
            raise CompileError("unknown-pass", f"pass '{name}' is not in the pipeline", fix=nearest(name, names))
        writing = journal.current()
        if writing is None and (watch.measure or watch.verify_each):
            writing = journal.Journal()
        with journal.recording(writing) if writing is not None else nullcontext():
            return _Run(self, module, writing).stages()


class _Run:
    """One run of a manager over one module."""

    def __init__(self, manager: PassManager, module: ModuleOp, writing: journal.Journal | None) -> None:
        watch = manager.watch
        self.ctx, self.watch, self.records, self.todo = manager.ctx, watch, manager.records, manager.stages
        self.total = sum(len(stage.passes) for stage in manager.stages)
        self.module = module
        self.journal = writing
        self.ops = _count(module) if watch.measure else Counter[str]()
        self.snapshot = Snapshot(module) if watch.verify_each or watch.after_change else None
        self.unlocated = set(unlocated(module)) if watch.verify_each else set[Operation]()
        self.verified = False

    def stages(self) -> bool:
        changed = False
        number = 0
        for stage in self.todo:
            if stage.takes is not None:
                fix = stage.advice(self.module) if stage.advice is not None else ""
                stage.takes.check(self.module, f"phase {stage.name} does not take it", fix)
            for one in stage.passes:
                if self.watch.progress is not None:
                    self.watch.progress(number, self.total, one)
                number += 1
                record = Record(str(one), stage.name)
                self.records.append(record)
                self._pass(number, one, record)
                changed |= record.changed is not False
            if stage.gives is not None:
                stage.gives.check(self.module, f"phase {stage.name} left it", "a pass of the phase must convert it")
            if stage.name and self.watch.on_stage is not None:
                self.watch.on_stage(stage.name, self.module)
        return changed

    def _pass(self, number: int, one: ModulePass, record: Record) -> None:
        watch = self.watch
        module = self.module
        if {one.name, ALL} & watch.before:
            self._print(f"IR before {one}", self._text())
        if watch.verify_each and isinstance(one, Pass) and one.requires is not None:
            one.requires.check(module, f"{one.name} does not take it")
        self._execute(one, record)
        changes: list[Change] | None = None
        if self.snapshot is not None:
            changes = self.snapshot.changes()
        if {one.name, ALL} & watch.after:
            self._print(f"IR after {one}", self._text())
        if watch.after_change and changes:
            self._print(f"change by {one}", "\n".join(c.text(watch.generic, watch.debuginfo) for c in changes))
        if watch.verify_each and changes is not None:
            self._audit(one, record, changes)
        if self.snapshot is not None and changes:
            self.snapshot.update(changes)
        self._note(one)
        if watch.dump is not None and record.changed is not False:
            watch.dump(number, one, module)
        if watch.check is not None:
            watch.check(one, module)

    def _note(self, one: ModulePass) -> None:
        """Add a pass to those that the module has been through, where it keeps them."""
        history = self.module.attributes.get(HISTORY_ATTRIBUTE)
        if isinstance(history, StringAttr):
            done = f"{history.data},{one}" if history.data else str(one)
            self.module.attributes[HISTORY_ATTRIBUTE] = StringAttr(done)
            if self.snapshot is not None:
                self.snapshot.attributes = dict(self.module.attributes)

    def _execute(self, one: ModulePass, record: Record) -> None:
        """Run one pass, with its time, its counts and what the journal has of it."""
        writing = self.journal
        made, counted = 0, Counter[tuple[str, str]]()
        if writing is not None:
            writing.pass_name = one.name
            made, counted = len(writing.applied), writing.statistics.copy()
        record.begin = time.perf_counter()
        start = time.process_time()
        try:
            record.changed = (
                one.run(self.ctx, self.module) if isinstance(one, Pass) else one.apply(self.ctx, self.module)
            )
        except CompileError as error:
            error.add_note(f"while running pass '{one}'")
            raise
        except PassFailedException as error:  # how passes of xDSL refuse
            raise CompileError("pass-failed", f"{one.name}: {error}") from error
        except Exception as error:
            raise _broken(one, error) from error
        finally:
            record.seconds = time.process_time() - start
            record.wall = time.perf_counter() - record.begin
            if self.watch.measure and writing is not None:
                record.statistics = {
                    name: number - counted[one.name, name]
                    for (of, name), number in writing.statistics.items()
                    if of == one.name and number != counted[of, name]
                }
                record.statistics |= {name: n for (of, name), n in writing.highest.items() if of == one.name}
                record.rewrites = dict(Counter(rewrite.pattern for rewrite in writing.applied[made:]))
        if self.watch.measure:
            before = self.ops
            if record.changed is not False:
                self.ops = _count(self.module)
                names = sorted({*self.ops, *before})
                record.delta = {n: self.ops[n] - before[n] for n in names if self.ops[n] != before[n]}
            record.ops = self.ops

    def _audit(self, one: ModulePass, record: Record, changes: list[Change]) -> None:
        """Hold a pass to its contract."""
        module = self.module
        wrong = offences(module) if changes or not self.verified else []
        if wrong:
            first = wrong[0].op
            raise PassBug(
                "invalid-ir",
                str(one),
                "left invalid IR",
                op=first.name,
                location=locations.of(first),
                details=[f"{locations.of(op)}: '{op.name}': {message}" for op, message in wrong],
            )
        self.verified = True
        self._audit_locations(one, changes)
        if record.changed is False and changes:
            op, location, fate = changes[0].culprit()
            more = [f"in {change.where()}" for change in changes[:MOST]]
            raise PassBug(
                "false-claim",
                str(one),
                f"says that it changed nothing, but '{op}' {fate}",
                op=op,
                location=location,
                details=[*more, *changes[0].text().splitlines()],
            )
        if record.changed is True and not changes:
            made = [made for made in self.journal.applied if made.pass_name == one.name] if self.journal else []
            raise PassBug(
                "false-claim",
                str(one),
                "says that it changed something, and nothing did",
                op=made[-1].op if made else "",
                location=locations.text(made[-1].location) if made else "",
                details=[f"it notes a rewrite: {rewrite}" for rewrite in made[-MOST:]],
            )
        record.changed = bool(changes)
        if isinstance(one, Pass) and one.ensures is not None:
            self._audit_ensures(one, one.ensures)

    def _audit_locations(self, one: ModulePass, changes: list[Change]) -> None:
        lost = unlocated(self.module)
        if len(lost) <= len(self.unlocated):
            self.unlocated = set(lost)
            return
        new = [op for op in lost if op not in self.unlocated] or lost
        around = [_around(op) for op in new[:MOST]]
        snapshot = self.snapshot
        assert snapshot is not None
        firsts = {change.first.after: change.first.before for change in changes if change.first is not None}
        for op, near in zip(new, around, strict=False):
            before = firsts.get(op) or snapshot.before(op)
            if before is not None:
                near.insert(
                    0, (locations.text(before.location), f"stands for '{before.name}' at {locations.of(before)}")
                )
        gone = [f"gone is '{op.name}' at {locations.of(op)}" for op in snapshot.gone()[:MOST]]
        known = [location for location, _ in around[0] if location]
        names = ", ".join(f"'{name}'" for name in sorted({op.name for op in new}))
        raise PassBug(
            "lost-location",
            str(one),
            f"made {len(new)} op{'s' if len(new) > 1 else ''} without a location: {names}",
            op=new[0].name,
            location=known[0] if known else locations.of(new[0]),
            details=[
                f"'{op.name}' {'; '.join(text for _, text in near) or 'has no neighbours with a location'}"
                for op, near in zip(new, around, strict=False)
            ]
            + gone,
        )

    def _audit_ensures(self, one: ModulePass, rule: Legality) -> None:
        try:
            rule.check(self.module, f"{one.name} left it")
        except CompileError as error:
            offender = next(op for op in self.module.walk() if not rule.allows_op(op))
            raise PassBug(
                "illegal-op",
                str(one),
                f"left an op that it must not leave: '{offender.name}'",
                op=offender.name,
                location=locations.of(offender),
                details=[f"{d.location}: {d.what}" for d in error.diagnostics],
            ) from None

    def _text(self) -> str:
        out = io.StringIO()
        watch = self.watch
        Printer(out, print_generic_format=watch.generic, print_debuginfo=watch.debuginfo).print_op(self.module)
        return out.getvalue()

    def _print(self, title: str, text: str) -> None:
        print(f"// ----- {title} -----\n{text}\n", file=self.watch.stream or sys.stderr)


def _around(op: Operation) -> list[tuple[str, str]]:
    """What an op without a location has to do with ops that have one: (their location, a sentence on it)."""
    found: list[tuple[str, str]] = []

    def note(other: Operation | None, text: str) -> None:
        location = locations.text(other.location) if other is not None else ""
        if other is not None and location:
            found.append((location, f"{text} '{other.name}' at {location}"))

    for operand in op.operands:
        note(operand.op if isinstance(operand, OpResult) else None, "takes a value of")
    for result in op.results:
        for use in result.uses:
            note(use.operation, "is used by")
    note(op.prev_op, "stands behind")
    note(op.next_op, "stands before")
    note(op.parent_op(), "is inside of")
    return found[:MOST]


def _broken(one: ModulePass, error: Exception) -> PassBug:
    """The bug that an exception out of a pass is, with the op that the innermost function had at hand."""
    from headrace.passes.infra.rewriting import EndlessRewrite

    if isinstance(error, EndlessRewrite):
        return PassBug("endless-rewrite", str(one), f"does not end: {error}", op=error.op, location=error.location)
    op = _op_at_hand(error.__traceback__)
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    raised = f"raised {type(error).__name__}: {error}"
    details = [*getattr(error, "__notes__", ())]
    if place is not None:
        details.append(f"in {place.tb_frame.f_code.co_qualname}, {place.tb_frame.f_code.co_filename}:{place.tb_lineno}")
    name, location = (op.name, locations.of(op)) if op is not None else ("", "")
    return PassBug("crash", str(one), raised, op=name, location=location, details=details)


def _op_at_hand(traceback: TracebackType | None) -> Operation | None:
    """The op that a pass was at when it raised: a local variable of the innermost function that has one."""
    found: Operation | None = None
    while traceback is not None:
        local = traceback.tb_frame.f_locals
        ops = [value for value in local.values() if isinstance(value, Operation) and not isinstance(value, ModuleOp)]
        preferred = local.get("op")
        if isinstance(preferred, Operation) and not isinstance(preferred, ModuleOp):
            found = preferred
        elif ops:
            found = ops[-1]
        traceback = traceback.tb_next
    return found


def timing_table(records: Sequence[Record], others: Iterable[tuple[str, float]] = ()) -> str:
    """A table of CPU seconds, op counts and change, one row per pass; `others` are rows such as parse and print."""
    extra = list(others)
    total = sum(r.seconds for r in records) + sum(s for _, s in extra)
    rows = [f"{'CPU s':>9} {'share':>6} {'ops':>7} {'±':>6}  pass"]

    def row(seconds: float, ops: str, delta: str, name: str) -> str:
        return f"{seconds:9.4f} {seconds / total if total else 0:6.1%} {ops:>7} {delta:>6}  {name}"

    rows += [row(s, "", "", name) for name, s in extra]
    for r in records:
        mark = "" if r.changed is not False else " (no change)"
        rows.append(row(r.seconds, str(r.ops_after), f"{r.ops_after - r.ops_before:+d}", r.spec + mark))
    rows.append(row(total, "", "", "total"))
    return "\n".join(rows)


def statistics_table(records: Sequence[Record]) -> str:
    """A line for each number that a pass counted, each pattern that applied, and each op that became more or fewer."""
    rows: list[tuple[str, str, str]] = []
    for number, record in enumerate(records, 1):
        entries = [(str(n), name) for name, n in sorted(record.statistics.items())]
        entries += [(str(n), f"rewrites: {pattern}") for pattern, n in sorted(record.rewrites.items())]
        entries += [(f"{n:+d}", f"ops: {name}") for name, n in record.delta.items()]
        rows += [(f"{number} {record.spec}", amount, name) for amount, name in entries]
    width = max((len(amount) for _, amount, _ in rows), default=0)
    lines: list[str] = []
    title = ""
    for spec, amount, name in rows:
        if spec != title:
            title = spec
            lines.append(spec)
        lines.append(f"  {amount:>{width}}  {name}")
    return "\n".join(lines) or "no pass counted or changed anything"


def _count(module: ModuleOp) -> Counter[str]:
    """How many ops of each name there are. A loop of its own, as it is taken after every pass: `module.walk` hands ops
    up through every level."""
    names = [module.name]
    regions = [*module.regions]
    while regions:
        for block in regions.pop().blocks:
            op = block.first_op
            while op is not None:
                names.append(op.name)
                if op.regions:
                    regions += op.regions
                op = op.next_op
    return Counter(names)
