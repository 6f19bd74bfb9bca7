"""How the ops of a program, at one level, compare with a reference that knows the values of places in the model.

*Accumulated*: the program runs by itself, so that errors add up from op to op. *Isolated*: each op gets the reference's
values instead of its own, so that what deviates is wrong by itself. A program whose ops all agree alone and whose
results deviate has drifted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import ModuleOp

from headrace.dialects.support.dtypes import to_numpy
from headrace.tools.execution.deviation import Deviation, deviation
from headrace.tools.execution.trace import Key, Place, Trace, trace

if TYPE_CHECKING:
    import numpy as np

    from headrace.dialects.support.weights import WeightStore

    Array = np.ndarray[Any, np.dtype[Any]]

Places = Mapping[Place, Sequence["Array"]]
"""Place in the model → the values that are known of it, in the model's order."""


@dataclass(frozen=True)
class Step:
    """An op compared with the reference: its name, its place in the model, and how far its result is off."""

    op: str
    location: str
    deviation: Deviation

    def to_json(self) -> dict[str, Any]:
        """The fields as a JSON-ready dictionary."""
        return {"op": self.op, "location": self.location, **self.deviation.to_json()}

    def __str__(self) -> str:
        return f"{self.location} ({self.op}) {self.deviation}"


@dataclass(frozen=True)
class Steps:
    """The ops of a level: how many were compared, the first that deviates when errors add up, the first that deviates
    by itself, and the largest error that an op makes by itself."""

    compared: int
    accumulated: Step | None = None
    isolated: Step | None = None
    largest: Step | None = None
    kernel: bool = False
    """Whether the runtime computes the op that deviates by itself otherwise than it means."""

    @property
    def drifts(self) -> bool:
        """Whether errors that are small by themselves add up to one that is not."""
        return self.accumulated is not None and self.isolated is None

    def to_json(self) -> dict[str, Any]:
        """The fields as a JSON-ready dictionary."""
        steps = {"accumulated": self.accumulated, "isolated": self.isolated, "largest_isolated": self.largest}
        found = {name: one.to_json() if one is not None else None for name, one in steps.items()}
        return {"compared": self.compared, **found, "drifts": self.drifts, "kernel": self.kernel}


def places_of(run: Trace) -> dict[Place, list[Array]]:
    """What a run says about places in the model: the last value of each type that was made there."""
    found: dict[Place, dict[Any, Array]] = {}
    for value in run.values:
        for place in value.places:
            found.setdefault(place, {})[_type(value.array)] = value.array
    last = {place: number for number, value in enumerate(run.values) for place in value.places}
    return {place: list(found[place].values()) for place in sorted(found, key=lambda place: last[place])}


def compare_steps(
    module: ModuleOp,
    store: WeightStore,
    inputs: Mapping[str, Array],
    places: Places,
    tolerance: float | None = None,
) -> Steps:
    """Compare the ops of a program with what is known of their places in the model."""
    run = trace(module, store, inputs)
    known = _match(run, places, tolerance)
    if not known:
        return Steps(0)
    accumulated = _first(_steps(run, known, tolerance))
    keys = {number: key for key, number in run.numbers.items()}
    given = {key: known[number] for key, number in run.numbers.items() if number in known}
    alone = _steps(trace(module, store, inputs, given), known, tolerance)
    isolated, fault = _first(alone), None
    if isolated is not None:
        number = next(n for n, step in alone.items() if step is isolated)
        fault = kernel_fault(module, store, inputs, keys[number], given, tolerance)
        if fault is not None:
            isolated = replace(isolated, op=fault[0], location=fault[1])
    largest = max(alone.values(), key=lambda step: step.deviation.relative)
    return Steps(len(known), accumulated, isolated, largest, fault is not None)


def _match(run: Trace, places: Places, tolerance: float | None) -> dict[int, Array]:
    """What each value should be, of those that are known. A node of the model may become several ops: the last one that
    makes a value of the node's type makes the node's value. An op that several nodes became makes that of the last."""
    order = {place: number for number, place in enumerate(places)}
    last: dict[tuple[Place, Any], int] = {}
    for number, value in enumerate(run.values):
        for place in value.places:
            last[place, _type(value.array)] = number
    found: dict[int, Array] = {}
    for number, value in enumerate(run.values):
        type = _type(value.array)
        for place in sorted((x for x in value.places if x in order), key=lambda x: -order[x]):
            candidates = [x for x in places[place] if _type(x) == type]
            if candidates and (last[place, type] == number or len(candidates) > 1):
                rounded = [x.astype(value.array.dtype, copy=False) for x in candidates]
                found[number] = min(rounded, key=lambda x: deviation(value.array, x, tolerance).relative)
                break
    return found


def _steps(run: Trace, known: Mapping[int, Array], tolerance: float | None) -> dict[int, Step]:
    found: dict[int, Step] = {}
    for number, reference in known.items():
        value = run.values[number]
        found[number] = Step(value.op, value.location, deviation(value.array, reference, tolerance))
    return found


def _first(steps: Mapping[int, Step]) -> Step | None:
    return next((step for step in steps.values() if not step.deviation.ok), None)


def kernel_fault(
    module: ModuleOp,
    store: WeightStore,
    inputs: Mapping[str, Array],
    key: Key,
    given: Mapping[Key, Array],
    tolerance: float | None,
) -> tuple[str, str] | None:
    """The op, and its place, that the runtime computes otherwise than it means, among those of the unit that makes a
    value; None at other levels and when the units do what they are told."""
    from headrace.tools.execution.programs import units_of

    if units_of(module) is None:
        return None
    from headrace.tools.execution.units import chain_fault

    return chain_fault(module, store, inputs, key, given, lambda a, b: deviation(a, b, tolerance).ok)


def _type(array: Array) -> tuple[Any, ...]:
    """The shape and kind of an array; an f32 value may have become bf16."""
    return array.shape, "<f4" if array.dtype == to_numpy("bf16") else array.dtype.str
