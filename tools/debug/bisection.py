"""Finds the pass and the one rewrite after which something is wrong.

    found = bisect(module, Trial(passes, Predicate.parse("execution")))
    print(found)

First the shortest failing prefix of the pipeline, then, by the fuel of the journal, the first rewrite of its last pass
with which it fails: without that rewrite it does not.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass, replace

from xdsl.dialects.builtin import ModuleOp

from headrace.dialects.support import locations
from headrace.dialects.support.diagnostics import CompileError
from headrace.dialects.support.journal import Journal, Rewrite, recording
from headrace.passes.infra.manager import PassManager, Watch
from headrace.tools.debug import edits
from headrace.tools.debug.failures import Failure, Progress, Trial, print_module
from headrace.tools.debug.numbers import quiet

ENDLESS = "endless-rewrite"
LINES = 60
"""Lines of a difference that are shown."""


@dataclass(frozen=True)
class Bisection:
    """What was found."""

    trial: Trial
    """The guilty pass alone, and the failure that it has; it fails on `before`."""
    failure: Failure | None
    """How it fails; None where the predicate looks at the result."""
    number: int
    """Position of the pass in the pipeline, from 0."""
    count: int
    """Passes of the pipeline."""
    before: ModuleOp
    """The program before that pass."""
    rewrite: Rewrite | None = None
    """The rewrite; None where the pass fails without one, or does not count its rewrites."""
    fuel: int = 0
    """Its number among the rewrites of the pass, from 1."""
    rewrites: int = 0
    """Rewrites that the pass makes."""
    difference: str = ""
    """What that rewrite (or, where there is none, the pass) changed, as a unified diff."""
    note: str = ""

    @property
    def spec(self) -> str:
        """The pass with its options."""
        return str(self.trial.passes[0])

    def __str__(self) -> str:
        lines = [f"pass {self.number + 1} of {self.count}: {self.spec}"]
        if self.failure is not None:
            what = f" ({self.failure.what})" if self.failure.what else ""
            lines.append(f"fails with: {self.failure.kind}{what}")
            lines += [f"  {line}" for line in self.failure.text.splitlines()[:12]]
        if self.rewrite is not None:
            lines.append(f"rewrite {self.fuel} of {self.rewrites}: {self.rewrite.pattern} on '{self.rewrite.op}'")
            lines.append(f"  at: {locations.text(self.rewrite.location) or 'an unknown location'}")
        if self.note:
            lines.append(self.note)
        if self.difference:
            shown = self.difference.splitlines()
            lines += ["", *shown[:LINES]]
            lines += [f"… {len(shown) - LINES} lines more"] if len(shown) > LINES else []
        return "\n".join(lines)


def bisect(module: ModuleOp, trial: Trial, progress: Progress | None = None) -> Bisection:
    """Find the pass of a trial and the rewrite with which it finds something on `module`. `CompileError` when it finds
    nothing, or already without any pass."""
    say = progress or quiet
    passes = trial.passes
    if trial.predicate.of_result:
        number, before = _boundary(module, trial, say)
        failure = None
    else:
        say(f"running {len(passes)} passes")
        trial, ended = trial.settled(module)
        failure = ended.failure
        if not ended.found or failure is None or ended.before is None:
            raise trial.nothing(ended)
        number, before = failure.number, ended.before
    return _rewrite(replace(trial, passes=(passes[number],)), failure, number, len(passes), before, say)


def _boundary(module: ModuleOp, trial: Trial, say: Progress) -> tuple[int, ModuleOp]:
    """The pass before which the predicate does not hold and after which it does, and the module before it."""

    def holds(length: int) -> bool | None:
        say(f"running {length} passes")
        return replace(trial, passes=trial.passes[:length]).run(module).found

    if holds(0):
        raise CompileError("fails-already", "the predicate holds before the first pass")
    length = _first(holds, len(trial.passes))
    if length is None:
        raise trial.nothing(trial.run(module))
    before = module.clone()
    PassManager(trial.context(), trial.passes[: length - 1], Watch()).run(before)
    return length - 1, before


def _first(holds: Callable[[int], bool | None], most: int) -> int | None:
    """An n of 1..most with which it holds and without which (n - 1) it does not, given that it does not hold for 0; of
    several the first that halving meets. What cannot be told (None) is taken for not holding."""
    if not holds(most):
        return None
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle
    return high


def _rewrite(
    trial: Trial, failure: Failure | None, number: int, count: int, before: ModuleOp, say: Progress
) -> Bisection:
    """Find the rewrite of the last pass."""
    found = Bisection(trial, failure, number, count, before)
    journal = Journal()
    ended = trial.run(before, journal)
    total = len(journal.applied)
    if not ended.found:
        return replace(
            found, note="the pass alone, on the program before it, does not fail: it depends on what ran before"
        )
    if failure is not None and failure.kind == ENDLESS and total:
        note = "the pattern turns in a circle: no single rewrite is at fault; this is the last one"
        return replace(found, rewrite=journal.applied[-1], fuel=total, rewrites=total, note=note)
    if not total:
        return replace(found, note="the pass counts no rewrites", difference=_difference(trial, before, None, 0))
    verdicts: dict[int, bool | None] = {total: True}

    def holds(fuel: int) -> bool | None:
        if fuel not in verdicts:
            say(f"running {trial.text} with {fuel} of {total} rewrites")
            verdicts[fuel] = trial.run(before, Journal(fuel=fuel)).found
        return verdicts[fuel]

    if holds(0):
        note = f"the pass fails before its first rewrite (of {total})"
        return replace(found, rewrites=total, note=note, difference=_difference(trial, before, None, 0))
    fuel = _first(holds, total)
    assert fuel is not None, "it fails with all of its rewrites"
    journal = Journal(fuel=fuel)
    trial.run(before, journal)
    note = ""
    if holds(fuel - 1) is None:
        known = max(n for n, verdict in verdicts.items() if n < fuel and verdict is False)
        note = f"with {known + 1} to {fuel - 1} rewrites nobody can tell: the one at fault is {known + 1} to {fuel}"
    difference = _difference(trial, before, fuel - 1, fuel)
    return replace(found, rewrite=journal.applied[-1], fuel=fuel, rewrites=total, note=note, difference=difference)


def _difference(trial: Trial, before: ModuleOp, first: int | None, second: int) -> str:
    """What changes between two amounts of fuel, as a unified diff (from the program itself to the whole pass where
    `first` is None). Values have names, so that those of later ops stay the same."""
    named = before.clone()
    edits.name_values(named)
    old = named.clone() if first is None else _after(trial, named, Journal(fuel=first))
    new = _after(trial, named, Journal() if first is None else Journal(fuel=second))
    lines = difflib.unified_diff(
        print_module(old).splitlines(), print_module(new).splitlines(), "before", "after", lineterm="", n=2
    )
    return "\n".join(line if len(line) < 400 else line[:400] + " …" for line in lines)


def _after(trial: Trial, module: ModuleOp, journal: Journal) -> ModuleOp:
    """A copy as a pass leaves it, however it ends."""
    copy = module.clone()
    try:
        with recording(journal):
            PassManager(trial.context(), trial.passes, Watch()).run(copy)
    except Exception:
        pass
    return copy
