"""Where two runs begin to differ: the first op of a program whose inputs agree with another run and whose result does
not.

Values are matched by their place in the model: ops of one name, type and place in order, else the last op of a place,
whose result the place is. What remains is right if its content is that of any value before, to the bit, wherever a pass
has put it; else it is looked through.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from headrace.tools.execution.deviation import Deviation, deviation
from headrace.tools.execution.trace import Key, Place, Trace, Value

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

Type = tuple[tuple[int, ...], str]


@dataclass(frozen=True)
class First:
    """The first op that deviates: its value, the one before that it should be, and how far it is from that."""

    key: Key | None
    value: Value
    reference: Value
    deviation: Deviation


def first_deviation(before: Trace, after: Trace, wrong: Iterable[str], tolerance: float | None = None) -> First | None:
    """The first op of the program `after` that makes the results called `wrong` differ; None when they are inputs."""
    matcher = _Matcher(before, after, tolerance)
    region: set[int] = set()
    todo: list[int] = []
    for name in wrong:
        number, was = after.results[name], before.results[name]
        if number is not None:
            matcher.give(
                number, before.values[was] if was is not None else Value("", name, (), before.arrays[name], ())
            )
            todo.append(number)
    while todo:
        number = todo.pop()
        if number not in region and not matcher.agrees(number):
            region.add(number)
            todo += after.values[number].inputs
    for number in sorted(region):
        reference = matcher.counterpart(number)
        if reference is not None:
            value = after.values[number]
            return First(after.key(number), value, reference, deviation(value.array, reference.array, tolerance))
    return None


class _Matcher:
    """Which value of one run is which of another."""

    def __init__(self, before: Trace, after: Trace, tolerance: float | None) -> None:
        self.before, self.after, self.tolerance = before.values, after.values, tolerance
        self.contents = {_content(value.array) for value in before.values}
        self.of_place = _by_place(before.values)
        self.before_groups, self.after_groups = _groups(before.values), _groups(after.values)
        self.last = {places[-1] for places in _by_place(after.values).values()}
        self._verdicts: dict[int, tuple[bool, Value | None]] = {}

    def give(self, number: int, reference: Value) -> None:
        """Say that a value is wrong, and what it should be."""
        self._verdicts[number] = False, reference

    def agrees(self, number: int) -> bool:
        """Whether a value is known to be right."""
        return self._verdict(number)[0]

    def counterpart(self, number: int) -> Value | None:
        """What a value that is known to be wrong should be."""
        return self._verdict(number)[1]

    def _verdict(self, number: int) -> tuple[bool, Value | None]:
        if number not in self._verdicts:
            self._verdicts[number] = self._judge(number)
        return self._verdicts[number]

    def _judge(self, number: int) -> tuple[bool, Value | None]:
        value = self.after[number]
        group = _group(value)
        mine, theirs = self.after_groups[group], self.before_groups.get(group, [])
        type = _type(value.array)
        candidates = sorted({k for place in value.places for k in self.of_place.get((place, *type), ())}, reverse=True)
        if len(mine) == len(theirs) and value.places:
            counterpart = theirs[mine.index(number)]
            right = any(self._equal(value, k) for k in (counterpart, *candidates))
            return right, None if right else self.before[counterpart]
        if candidates and number in self.last:
            right = self._equal(value, candidates[0])
            return right, None if right else self.before[candidates[0]]
        return _content(value.array) in self.contents or any(self._equal(value, k) for k in candidates), None

    def _equal(self, value: Value, number: int) -> bool:
        return deviation(value.array, self.before[number].array, self.tolerance).ok


def _type(array: Array) -> Type:
    return array.shape, array.dtype.str


def _content(array: Array) -> tuple[Any, ...]:
    return (*_type(array), blake2b(array.tobytes()).digest())


def _by_place(values: Sequence[Value]) -> dict[tuple[Place, tuple[int, ...], str], list[int]]:
    """Numbers of values by place and type, in order."""
    return _collect(values, lambda value: [(place, *_type(value.array)) for place in value.places])


def _group(value: Value) -> tuple[Any, ...]:
    return value.op, value.places, _type(value.array)


def _groups(values: Sequence[Value]) -> dict[tuple[Any, ...], list[int]]:
    return _collect(values, lambda value: [_group(value)])


def _collect(values: Sequence[Value], keys: Callable[[Value], list[Any]]) -> dict[Any, list[int]]:
    found: dict[Any, list[int]] = defaultdict(list)
    for number, value in enumerate(values):
        for key in keys(value):
            found[key].append(number)
    return dict(found)
