"""Launches that repeat: which of a program's are rounds of the same configs, and which regions follow one another from
round to round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from headrace.dialects.rdu.ops import LaunchOp
from headrace.passes.analysis.repeats import stretches


@dataclass(frozen=True)
class Rounds:
    """Launches of the same configs in the same order, round after round."""

    rounds: tuple[tuple[LaunchOp, ...], ...]


def rounds(launches: Sequence[LaunchOp]) -> list[Rounds]:
    """The rounds among launches, none of which is in two of them. The host may launch the first of them; the chip
    launches the rest."""
    by_hand = [i for i, launch in enumerate(launches) if launch.mode.data == "sw" and i]
    return [one for a, b in pairwise([0, *by_hand, len(launches)]) for one in _among(launches[a:b])]


def _among(launches: Sequence[LaunchOp]) -> list[Rounds]:
    """Those that repeat most first."""
    numbers: dict[str, int] = {}
    kinds = [numbers.setdefault(launch.config.string_value(), len(numbers)) for launch in launches]
    taken: set[int] = set()
    found: list[Rounds] = []
    for stretch in stretches(kinds):
        period, times = stretch.period, stretch.length // stretch.period
        at = range(stretch.start, stretch.start + times * period)
        if taken.isdisjoint(at):
            taken.update(at)
            found.append(Rounds(tuple(tuple(launches[i : i + period]) for i in at[::period])))
    return found


def followed(found: Sequence[Rounds]) -> list[list[str]]:
    """Regions, by name, that rounds take one after the other as the same parameter: each list has to lie at a constant
    distance for these rounds to be a loop. A region is in one list at most; what fits into none is left out."""
    after: dict[str, str] = {}
    before: dict[str, str] = {}
    for one in found:
        for same in zip(*one.rounds, strict=True):
            for places in zip(*(launch.places for launch in same), strict=True):
                names = [name for name, _ in places]
                if len(set(names)) < len(names) or len({offset for _, offset in places}) > 1:
                    continue  # one region for all rounds, or none of an equal distance
                links = list(pairwise(names))
                if all(after.get(a, b) == b and before.get(b, a) == a for a, b in links):
                    new_after, new_before = {**after, **dict(links)}, {**before, **{b: a for a, b in links}}
                    if _is_open(new_after, names[0]):
                        after, before = new_after, new_before
    chains: list[list[str]] = []
    for name in after:
        if name not in before:
            chain = [name]
            while chain[-1] in after:
                chain.append(after[chain[-1]])
            chains.append(chain)
    return chains


def _is_open(after: dict[str, str], start: str) -> bool:
    """Whether the regions that follow one do not lead back to it."""
    at = after.get(start)
    while at is not None and at != start:
        at = after.get(at)
    return at is None
