"""What passes did and why they did not: rewrites made, patterns that declined, statistics, decisions of searches.

The journal is ambient, so that a pass keeps its signature: code that rewrites calls `may`, `decline`, `count` and
`decide`, which write into the journal that `recording` switched on and do nearly nothing when there is none.

    with recording(Journal()) as journal:
        pass_.run(ctx, module)
    journal.why("encoder/MatMul_3")

`fuel` bounds the rewrites: once it is spent `may` says no and the IR stays as it is, so that the first rewrite that
breaks a program is found by bisection.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from xdsl.ir import Attribute, Operation

from headrace.dialects.support import locations


class Rewrite(NamedTuple):
    """One rewrite that was made."""

    pass_name: str
    pattern: str
    op: str
    """Name of the op that it was made at."""
    location: Attribute
    """Model location of that op, as it was before."""

    def __str__(self) -> str:
        at = locations.text(self.location)
        return f"{self.pattern} on '{self.op}'{f' at {at}' if at else ''}"


class Declined(NamedTuple):
    """A pattern that looked at an op and did not apply."""

    pass_name: str
    pattern: str
    op: str
    location: Attribute
    reason: str

    def __str__(self) -> str:
        return f"{self.pattern}: {self.reason}"


class Candidate(NamedTuple):
    """One choice that a search weighed. `score` is its cost in the search's own unit (lower is better), None for one
    that was refused before it had a cost; `reason` says why it lost, and is empty for the one that was taken."""

    name: str
    score: float | None = None
    reason: str = ""


class Decision(NamedTuple):
    """What a search pass decided at one op, and what it weighed."""

    pass_name: str
    what: str
    """What was to be chosen, such as "tile" or "section cut"."""
    op: str
    location: Attribute
    chosen: str
    unit: str
    """Unit of the scores."""
    candidates: tuple[Candidate, ...]


@dataclass
class Journal:
    """What was written while this journal was on. `pass_name` is the running pass, set by the pass manager."""

    fuel: int | None = None
    """Rewrites that may still be made; None: any number."""
    pass_name: str = ""
    applied: list[Rewrite] = field(default_factory=list[Rewrite])
    declined: dict[Declined, int] = field(default_factory=dict[Declined, int])
    """Each distinct refusal once, with how often it was given."""
    statistics: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    """(pass, name) → number."""
    highest: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    """(pass, name) → the highest of the numbers given, where a sum would say nothing."""
    decisions: list[Decision] = field(default_factory=list[Decision])

    def counts(self) -> Counter[str]:
        """How often each pattern applied."""
        return Counter(one.pattern for one in self.applied)

    def statistics_of(self, pass_name: str) -> dict[str, int]:
        """The statistics of one pass by name."""
        numbers = {**self.statistics, **self.highest}
        return {name: number for (of, name), number in numbers.items() if of == pass_name}

    def why(self, location: str) -> list[str]:
        """The reasons given at ops of this location, as lines `pattern: reason`."""
        return [str(one) for one in self.declined if locations.text(one.location) == location]


_current: Journal | None = None


def current() -> Journal | None:
    """The journal that is on, if any."""
    return _current


@contextmanager
def recording(journal: Journal) -> Generator[Journal]:
    """Write into `journal` until the block ends; the one that was on before goes on afterwards."""
    global _current
    before, _current = _current, journal
    try:
        yield journal
    finally:
        _current = before


def may(pattern: str, op: Operation) -> bool:
    """Whether the rewrite `pattern` may be made at `op` now, which notes it as made. Asked right before the rewrite;
    False when the fuel is spent, and then nothing may be changed."""
    journal = _current
    if journal is None:
        return True
    if journal.fuel is not None:
        if journal.fuel <= 0:
            return False
        journal.fuel -= 1
    journal.applied.append(Rewrite(journal.pass_name, pattern, op.name, op.location))
    return True


def made(pattern: str, op: str, location: Attribute) -> None:
    """Note a rewrite that was made at an op of this name and location, after the fact: for drivers of patterns that
    change the IR themselves. They ask `out_of_fuel` before they run one."""
    journal = _current
    if journal is not None:
        if journal.fuel is not None:
            journal.fuel -= 1
        journal.applied.append(Rewrite(journal.pass_name, pattern, op, location))


def out_of_fuel() -> bool:
    """Whether no further rewrite may be made."""
    return _current is not None and _current.fuel is not None and _current.fuel <= 0


def decline(pattern: str, op: Operation, reason: str) -> None:
    """Say why `pattern` does not apply to `op`, at which it looked."""
    journal = _current
    if journal is not None:
        key = Declined(journal.pass_name, pattern, op.name, op.location, reason)
        journal.declined[key] = journal.declined.get(key, 0) + 1


def count(name: str, number: int = 1) -> None:
    """Add to a statistic of the running pass."""
    journal = _current
    if journal is not None:
        journal.statistics[journal.pass_name, name] += number


def highest(name: str, number: int) -> None:
    """Note a number of which the highest is a statistic of the running pass."""
    journal = _current
    if journal is not None:
        key = journal.pass_name, name
        journal.highest[key] = max(journal.highest.get(key, number), number)


def decide(what: str, op: Operation, chosen: str, candidates: Sequence[Candidate], unit: str = "") -> None:
    """Note what a search chose at `op` and what it weighed. Building the candidates may cost: ask `current()` first."""
    journal = _current
    if journal is not None:
        at = op.location
        journal.decisions.append(Decision(journal.pass_name, what, op.name, at, chosen, unit, tuple(candidates)))
