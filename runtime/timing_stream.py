"""The time of several runs of a config that follow each other without a pause.

A pipeline repeats itself from some run on. The event model follows the first runs, and the others take as long as the
last half of those, each; the analytic model has the first run and, in closed form, the interval of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headrace.dialects.machine.device import Device
from headrace.runtime.pipeline import Span
from headrace.runtime.program import Config
from headrace.runtime.timing_analytic import analytic, interval
from headrace.runtime.timing_demand import Course, Demand
from headrace.runtime.timing_event import event

MODELS = {"event": event, "analytic": analytic}
"""Models of the time of a config, by name."""
FOLLOWED = {"event": 8, "analytic": 1}
"""Runs that a model follows at most."""


def course(config: Config, memories: Sequence[str], device: Device, model: str, runs: int) -> tuple[Demand, Course]:
    """What so many runs ask of the device, and what a model says of them."""
    followed = min(runs, FOLLOWED[model])
    demand = Demand(config, memories, device, followed)
    found = MODELS[model](demand)
    more = runs - followed
    if not more or not demand.clusters:
        return demand, found
    half = followed // 2
    each = (found.ends[-1] - found.ends[-1 - half]) / half if half else interval(demand)
    again = [demand.works_again(c) for c in demand.clusters]
    slowest = max(range(len(again)), key=lambda i: found.length[i] * again[i])
    ends = found.ends or [found.total]
    return Demand(config, memories, device, runs), replace(
        found,
        end=[at + more * each * works for at, works in zip(found.end, again, strict=True)],
        length=[x * (runs / followed if works else 1) for x, works in zip(found.length, again, strict=True)],
        spans=[Span(slowest, "shared", more * each), *found.spans],
        total=found.total + more * each,
        ends=[*ends, *(ends[-1] + each * n for n in range(1, more + 1))],
    )
