"""Finds the repeated part of a sequence and of the dataflow over it: plain Python, no IR.

A sequence of *steps* in program order, each with a kind (equal kinds may stand for each other) and operands. A *tandem
repeat* is a stretch whose kinds repeat with some period; `Repeat` is one whose dataflow repeats as well, exactly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

PERIODS = 12  # candidates tried, most voted first
ROTATIONS = 6  # ways to cut a stretch into periods tried, thinnest cut first
GRAMS = (1, 4, 16)  # lengths of the runs of kinds that vote for a period


@dataclass(frozen=True, slots=True)
class Step:
    """One step. `kind` says what it computes but for operands; `detail` may differ between repeats if no operand comes
    from inside the repeat (the step is then left outside). `operands` are (step number, result number), or (-1, token)
    for a value from outside the sequence."""

    kind: int
    detail: Hashable
    operands: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Kinds repeat with `period` from `start`, `length` steps in all (at least two periods)."""

    start: int
    length: int
    period: int

    @property
    def saved(self) -> int:
        """Steps that need not be there if the period is there once."""
        return (self.length // self.period - 1) * self.period


@dataclass(frozen=True)
class Repeat:
    """`count` iterations of `period` steps from `start`, isomorphic in kinds, details and dataflow.

    `body` are the offsets of the steps inside the repeated part, in order; `outside` those whose details differ. For
    each step in `body`, `sources` says for each operand which earlier body step (offset, result) it comes from within
    the same iteration, or None: a parameter.
    """

    start: int
    period: int
    count: int
    body: tuple[int, ...]
    outside: tuple[int, ...]
    sources: dict[int, tuple[tuple[int, int] | None, ...]]

    @property
    def saved(self) -> int:
        """Steps that need not be there if the body is there once."""
        return (self.count - 1) * len(self.body)


def stretches(kinds: Sequence[int]) -> list[Stretch]:
    """Tandem repeats of a sequence, the one that saves most first; ties go to the shorter period, then to the earlier.

    Periods are voted for by the distances between occurrences of a kind, and of short runs of kinds, which are rarer
    within a period, so that the search is near linear.
    """
    votes: Counter[int] = Counter()
    for size in GRAMS:
        positions: dict[Hashable, list[int]] = {}
        for i in range(len(kinds) - size + 1):
            positions.setdefault(tuple(kinds[i : i + size]), []).append(i)
        for at in positions.values():
            votes.update(b - a for a, b in pairwise(at))
    found: list[Stretch] = []
    for period, _ in sorted(votes.items(), key=lambda item: (-item[1], item[0]))[:PERIODS]:
        found += _runs(kinds, period)
    return sorted(found, key=lambda x: (-x.saved, x.period, x.start))


def _runs(kinds: Sequence[int], period: int) -> list[Stretch]:
    found: list[Stretch] = []
    start = 0
    last = len(kinds) - period
    for i in range(last + 1):
        if i < last and kinds[i] == kinds[i + period]:
            continue
        if i - start >= period:
            found.append(Stretch(start, i - start + period, period))
        start = i + 1
    return found


def repeats(steps: Sequence[Step], stretch: Stretch) -> list[Repeat]:
    """The repeats that a stretch holds, the one that saves most first; none when its dataflow does not repeat.

    Of the ways to cut the stretch into periods, those with the fewest values alive at the cut are tried.
    """
    count, extra = divmod(stretch.length, stretch.period)
    alive = _alive(steps, stretch)
    middle = count // 2 * stretch.period

    def thinnest(offsets: range) -> list[int]:
        return sorted(offsets, key=lambda i: (alive[i + middle], i))[:ROTATIONS]

    offsets = thinnest(range(extra + 1))
    if count > 2:  # one iteration less leaves every cut free
        offsets += thinnest(range(extra + 1, stretch.period))
    found: list[Repeat] = []
    looks = _looks(steps, stretch)
    for offset in offsets:
        start = stretch.start + offset
        count = (stretch.start + stretch.length - start) // stretch.period
        one = _isomorphic(steps, looks, start, stretch.period, count)
        if one is not None:
            found.append(one)
    return sorted(found, key=lambda x: -x.saved)


def _alive(steps: Sequence[Step], stretch: Stretch) -> list[int]:
    """How many values made inside the stretch are alive before each of its steps, and still used in it."""
    first, size = stretch.start, stretch.length
    last_use: dict[tuple[int, int], int] = {}
    for i in range(first, first + size):
        for operand in steps[i].operands:
            if operand[0] >= first:
                last_use[operand] = i
    change = [0] * (size + 1)
    for (made, _), used in last_use.items():
        change[made + 1 - first] += 1
        change[used + 1 - first] -= 1
    alive: list[int] = []
    now = 0
    for delta in change:
        now += delta
        alive.append(now)
    return alive


def _looks(steps: Sequence[Step], stretch: Stretch) -> dict[int, int]:
    """A number for each step of a stretch: equal ones have equal details, and operands equally far back. Steps of two
    iterations with equal numbers agree wherever the iterations are cut."""
    numbers: dict[Hashable, int] = {}
    found: dict[int, int] = {}
    for i in range(stretch.start, stretch.start + stretch.length):
        step = steps[i]
        back = tuple([(i - made, result) if made >= 0 else None for made, result in step.operands])
        found[i] = numbers.setdefault((step.detail, back), len(numbers))
    return found


def _isomorphic(steps: Sequence[Step], looks: Mapping[int, int], start: int, period: int, count: int) -> Repeat | None:
    """The longest run of iterations, at least two, that agree with the middle one."""
    pattern = start + count // 2 * period
    outside = _varying(steps, start, period, count)
    body = tuple(t for t in range(period) if t not in outside)
    if not body:
        return None
    sources = {t: _sources(steps, pattern, period, t, outside) for t in body}
    first, size, run = 0, 0, 0
    for k in range(count):
        run = run + 1 if _agrees(steps, looks, start + k * period, pattern, period, sources, outside) else 0
        if run > size:
            first, size = k - run + 1, run
    if size < 2:
        return None
    return Repeat(start + first * period, period, size, body, tuple(sorted(outside)), sources)


def _varying(steps: Sequence[Step], start: int, period: int, count: int) -> set[int]:
    """Offsets of steps whose details differ between iterations and that need nothing from inside their iteration."""
    outside: set[int] = set()
    for t in range(period):
        detail = steps[start + t].detail
        if all(steps[i].detail == detail for i in range(start + t, start + t + count * period, period)):
            continue
        inner = False
        for k in range(count):
            low = start + k * period
            inner |= any(
                low <= made < low + period and made - low not in outside for made, _ in steps[low + t].operands
            )
        if not inner:
            outside.add(t)
    return outside


def _sources(
    steps: Sequence[Step], low: int, period: int, t: int, outside: set[int]
) -> tuple[tuple[int, int] | None, ...]:
    return tuple(
        (made - low, result) if low <= made < low + period and made - low not in outside else None
        for made, result in steps[low + t].operands
    )


def _agrees(
    steps: Sequence[Step],
    looks: Mapping[int, int],
    low: int,
    pattern: int,
    period: int,
    sources: dict[int, tuple[tuple[int, int] | None, ...]],
    outside: set[int],
) -> bool:
    """Whether the details and sources of the iteration from `low` are those of the iteration from `pattern`."""
    high = low + period
    for t, wanted in sources.items():
        if looks[low + t] == looks[pattern + t]:
            continue
        step = steps[low + t]
        if step.detail != steps[pattern + t].detail:
            return False
        for (made, result), source in zip(step.operands, wanted, strict=True):
            if source is not None:
                if made != low + source[0] or result != source[1]:
                    return False
            elif low <= made < high and made - low not in outside:
                return False
    return True
