"""Routes over the mesh: a way is a string of steps from switch to switch, `e`ast (+x), `w`est, `s`outh (+y), `n`orth.

As text runs are counted: `e3s2` is `eeess`; a way between units at one switch is `stay`. As numbers a link is
4 · (y · columns + x) + step, for the link that leaves switch (x, y), with steps in the order e, w, s, n.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from operator import add
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np

    Ints = np.ndarray[Any, np.dtype[np.int64]]

STEPS = "ewsn"
STAY = "stay"
_RUN = re.compile(r"(.)\1*")
_COUNTED = re.compile(rf"([{STEPS}])(\d*)")
_WAY = re.compile(rf"(?:[{STEPS}]\d*)+")
MOST_STEPS = 1 << 16
_ROWS = 1 << 33  # more than there can be: coordinates have 32 bits, and a way may leave their range


class Routes(NamedTuple):
    """The routes of a flow: pairs (source site, destination site), and the way and the virtual channel of each."""

    pairs: tuple[tuple[int, int], ...]
    ways: tuple[str, ...]
    channels: tuple[int, ...]


@lru_cache(1 << 16)
def way_text(way: str) -> str:
    """The short form of a way: `eeess` as `e3s2`."""
    return _RUN.sub(lambda m: m[1] if len(m[0]) == 1 else f"{m[1]}{len(m[0])}", way) or STAY


@lru_cache(1 << 16)
def parse_way(text: str) -> str | None:
    """The way of a short form; None when it is none."""
    if text == STAY:
        return ""
    if not _WAY.fullmatch(text):
        return None
    runs = [(step, int(count or 1)) for step, count in _COUNTED.findall(text)]
    return "".join(step * count for step, count in runs) if sum(n for _, n in runs) <= MOST_STEPS else None


def numbers_of(columns: Iterable[int], rows: Iterable[int]) -> list[int]:
    """Switches (column, row) as one number each: that of a switch plus that of a move is that of where it ends."""
    return list(map(add, map(_ROWS.__mul__, columns), rows))


def switch_at(number: int) -> tuple[int, int]:
    """The switch (x, y) of a number."""
    x = (number + _ROWS // 2) // _ROWS
    return x, number - x * _ROWS


@lru_cache(1 << 16)
def move_of(way: str) -> int:
    """How far a way goes, as a number to add to that of the switch where it starts."""
    return (way.count("e") - way.count("w")) * _ROWS + way.count("s") - way.count("n")


def links_of(ways: Sequence[str], sources: Ints, columns: int) -> tuple[Ints, Ints]:
    """Link numbers of ways that start at `sources` [n, 2], one after another, and where each way begins (n + 1)."""
    import numpy as np

    starts = np.cumsum([0, *map(len, ways)])
    letters = np.frombuffer("".join(ways).encode(), np.uint8)
    table = np.zeros(256, np.int64)
    table[np.frombuffer(STEPS.encode(), np.uint8)] = np.arange(4)
    step = table[letters]
    lengths = np.diff(starts)
    at: list[Ints] = []
    for axis, (forward, backward) in enumerate(((0, 1), (2, 3))):
        move = (step == forward).astype(np.int64) - (step == backward)
        before = np.cumsum(move) - move  # moves of all ways before this step
        begin = np.concatenate([[0], np.cumsum(move)])[starts[:-1]]
        at.append(before - np.repeat(begin, lengths) + np.repeat(sources[:, axis], lengths))
    return 4 * (at[1] * columns + at[0]) + step, starts


def ways_of(links: Ints, starts: Sequence[int]) -> tuple[str, ...]:
    """The ways of link numbers; way i is `links[starts[i]:starts[i+1]]`."""
    import numpy as np

    letters = np.frombuffer(STEPS.encode(), np.uint8)[np.asarray(links, np.int64) % 4].tobytes().decode()
    return tuple(letters[a:b] for a, b in pairwise(starts))
