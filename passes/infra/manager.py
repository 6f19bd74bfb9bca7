"""Runs passes one after the other and watches them: time, op counts, change, validity, locations.

With nothing switched on it costs two clock reads and an op count per pass.
"""

from __future__ import annotations

import difflib
import io
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TextIO

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute
from xdsl.passes import ModulePass
from xdsl.printer import Printer

from headrace.dialects.support import locations
from headrace.passes.infra.base import Pass
from headrace.passes.infra.verify import offences, unlocated

ALL = "*"


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


@dataclass(frozen=True)
class Watch:
    """What to check and print while passes run. Pass names in `before` and `after` may be `ALL`."""

    verify_each: bool = False
    """After each pass: verify, check locations, `requires`/`ensures`, and that its claim about change is true."""
    before: frozenset[str] = frozenset()
    after: frozenset[str] = frozenset()
    after_change: bool = False
    """After each pass that changed something, the difference as a unified diff."""
    generic: bool = False
    debuginfo: bool = False
    stream: TextIO | None = None
    """Where IR goes; standard error when None."""
    progress: Callable[[int, int, ModulePass], None] | None = None
    """Called before each pass with its number, the number of passes and the pass."""
    check: Callable[[ModulePass, ModuleOp], None] | None = None
    """Called after each pass and its audit; raises to stop."""


@dataclass
class Record:
    """What one run of one pass did."""

    spec: str
    seconds: float = 0.0
    """CPU time of the process."""
    changed: bool | None = None
    """None: a pass that does not say (only passes from outside Headrace)."""
    ops_before: int = 0
    ops_after: int = 0
    delta: dict[str, int] = field(default_factory=dict[str, int])
    """Op name → how many more (or fewer, negative) there are after the pass."""


class PassManager:
    """Runs `passes` over modules. `records` holds one entry per pass run, in order."""

    def __init__(self, ctx: Context, passes: Iterable[ModulePass], watch: Watch | None = None) -> None:
        self.ctx = ctx
        self.passes: tuple[ModulePass, ...] = tuple(passes)
        self.watch = watch or Watch()
        self.records: list[Record] = []

    def run(self, module: ModuleOp) -> bool:
        """Run all passes on `module` in place; True if any changed it.

        An exception of a pass is raised on with a note that names the pass; a pass that breaks its contract raises
        `PassBug` when `watch.verify_each` is set.
        """
        changed = False
        counts = _count(module)
        for number, one in enumerate(self.passes):
            if self.watch.progress is not None:
                self.watch.progress(number, len(self.passes), one)
            record, counts = self._run_one(one, module, counts)
            self.records.append(record)
            changed |= record.changed is not False
        return changed

    def _run_one(self, one: ModulePass, module: ModuleOp, counts: Counter[str]) -> tuple[Record, Counter[str]]:
        watch = self.watch
        record = Record(str(one), ops_before=counts.total())
        if {one.name, ALL} & watch.before:
            self._print(f"IR before {one}", self._text(module))
        text = self._text(module) if watch.after_change else ""
        snapshot = module.clone() if watch.verify_each else None
        unlocated_before = len(unlocated(module)) if watch.verify_each else 0
        start = time.process_time()
        try:
            if watch.verify_each and isinstance(one, Pass) and one.requires is not None:
                one.requires.check(module, f"{one.name} requires")
            record.changed = one.run(self.ctx, module) if isinstance(one, Pass) else one.apply(self.ctx, module)
        except Exception as error:
            error.add_note(f"while running pass '{one}'")
            raise
        record.seconds = time.process_time() - start
        after = counts if record.changed is False else _count(module)
        record.ops_after = after.total()
        record.delta = {
            name: after[name] - counts[name] for name in sorted({*after, *counts}) if after[name] != counts[name]
        }
        if {one.name, ALL} & watch.after:
            self._print(f"IR after {one}", self._text(module))
        if watch.after_change:
            self._print_difference(one, text, self._text(module))
        if snapshot is not None:
            self._audit(one, record, module, snapshot, unlocated_before)
        if watch.check is not None:
            watch.check(one, module)
        return record, after

    def _audit(self, one: ModulePass, record: Record, module: ModuleOp, before: ModuleOp, lost_before: int) -> None:
        wrong = offences(module)
        if wrong:
            lines = [f"{locations.of(op)}: '{op.name}': {message}" for op, message in wrong]
            first = wrong[0].op
            raise PassBug(
                "invalid-ir", str(one), "left invalid IR", op=first.name, location=locations.of(first), details=lines
            )
        lost = unlocated(module)
        if len(lost) > lost_before:
            names = ", ".join(sorted({op.name for op in lost}))
            raise PassBug("lost-location", str(one), f"made ops without a location: {names}")
        equal = before.is_structurally_equivalent(module) and _result_types(before) == _result_types(module)
        if record.changed is not None and record.changed == equal:
            claim = f"says that it changed {'something, and nothing did' if equal else 'nothing'}"
            raise PassBug("false-claim", str(one), claim)
        record.changed = not equal
        if isinstance(one, Pass) and one.ensures is not None:
            one.ensures.check(module, f"{one.name} ensures")

    def _text(self, module: ModuleOp) -> str:
        out = io.StringIO()
        Printer(out, print_generic_format=self.watch.generic, print_debuginfo=self.watch.debuginfo).print_op(module)
        return out.getvalue()

    def _print(self, title: str, text: str) -> None:
        print(f"// ----- {title} -----\n{text}\n", file=self.watch.stream or sys.stderr)

    def _print_difference(self, one: ModulePass, before: str, after: str) -> None:
        if before == after:
            return
        lines = difflib.unified_diff(before.splitlines(), after.splitlines(), "before", "after", lineterm="", n=2)
        self._print(f"change by {one}", "\n".join(lines))


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


def _result_types(module: ModuleOp) -> list[Attribute]:
    """Types of all results in order, which xDSL's structural comparison leaves out."""
    return [result.type for op in module.walk() for result in op.results]


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
