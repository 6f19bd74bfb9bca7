"""The event model: every chunk of every cluster in time, with room in buffers, credits, and resources shared fairly.

The recurrence of `runtime.pipeline` gives the times of all chunks for given speeds; what clusters are at work when, and
how much, gives the speeds: in each stretch of time between two changes of who works, resources are divided max-min
fairly among those at work (`runtime.sharing`). Both are repeated until they agree. A change early on is right before
one that follows from it, and what is held up keeps its last speed for as long as it takes, so few rounds do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from headrace.runtime.pipeline import Buffer, Pipeline, Process, Schedule, Speed
from headrace.runtime.sharing import Resources, fair_speeds
from headrace.runtime.timing_demand import Course, Demand

Array = np.ndarray[Any, np.dtype[Any]]
MOST_ROUNDS = 12
MOST_STRETCHES = 256
"""Most changes of who works that speeds follow; pauses between chunks shorter than those count as work on average."""
SETTLED = 1e-3
"""Change of the end, as a part of it, that two rounds stay below when they are the last."""
STUBBORN = 0.9
"""How much of the last change of the end a change back is when rounds do not come to rest by themselves."""
LEAST_PART = 1 / 4
"""How small a part of the way to new speeds a round goes at least."""
BUSY = 0.98
"""Part of a stretch for which a cluster works at its speed when only that speed holds it back."""
SLOWEST = 1e-6


def event(demand: Demand) -> Course:
    """The times of a config."""
    pipeline = Pipeline(demand.processes, demand.buffers)
    schedule = pipeline.solve()
    settled = schedule.settled
    if not settled:  # what `check-deadlock` refuses: time it as if there were room
        pipeline = Pipeline(demand.processes, [Buffer(b.frames, b.frames, b.runs) for b in demand.buffers])
        schedule = pipeline.solve()
    shared = demand.resources.contended()
    held = np.zeros((len(demand.clusters), len(shared.kinds)))
    moved, part = 0.0, 1.0
    for _ in range(MOST_ROUNDS if shared.kinds else 0):
        found = _speeds(pipeline.processes, schedule, shared, part)
        if found is None:
            break
        end, last, (processes, held) = schedule.end, moved, found
        pipeline = Pipeline(processes, pipeline.buffers)
        schedule = pipeline.solve()
        moved = schedule.end - end
        if max(abs(moved), abs(last)) <= SETTLED * end:
            break
        if moved * last < 0 and abs(moved) > STUBBORN * abs(last):  # there and back: go part of the way
            part = max(LEAST_PART, part / 2)
    kinds = [shared.kinds[int(np.argmax(x))] if x.any() else "" for x in held]
    return Course(
        [float(s[0]) for s in schedule.start],
        [float(f[-1]) for f in schedule.finish],
        [float((f - s).sum()) for s, f in zip(schedule.start, schedule.finish, strict=True)],
        [kind or c.bound for kind, c in zip(kinds, demand.clusters, strict=True)],
        pipeline.critical_path(schedule),
        schedule.end,
        settled,
        _ends(pipeline, schedule, demand.runs),
    )


def _ends(pipeline: Pipeline, schedule: Schedule, runs: int) -> list[float]:
    """When each run has ended."""
    found = np.zeros(runs)
    for p, finish in zip(pipeline.processes, schedule.finish, strict=True):
        if p.runs == runs:
            each = p.chunks // runs
            np.maximum(found, finish[each - 1 :: each] + p.tail, out=found)
    return np.maximum.accumulate(found).tolist()


def _speeds(
    processes: Sequence[Process], schedule: Schedule, resources: Resources, part: float
) -> tuple[list[Process], Array] | None:
    """The processes, changed by a `part` of the way from the speeds that they have to those that they could have while
    they work as in the schedule, and the cycles that each resource holds each of them up; None when nothing is short.
    """
    users: list[int] = np.flatnonzero(resources.rates.any(1)).tolist()
    time = _stretches([schedule.start[i] for i in users], [schedule.finish[i] for i in users], schedule.end)
    length = np.diff(time)
    used = np.zeros((len(length), len(processes)))  # part of the stretch that a process works at full speed
    speeds = np.ones_like(used)
    for i in users:
        p = processes[i]
        at, clock = np.stack([schedule.start[i], schedule.finish[i]], 1).ravel(), time
        if p.speed is not None:  # a chunk proceeds with the clock of its process, not evenly
            at, clock = p.speed.work(at), p.speed.work(time)
            speeds[:, i] = np.diff(clock) / length
        worked = np.interp(clock, at, np.repeat(np.arange(p.chunks + 1.0), 2)[1:-1] * p.pace)
        used[:, i] = np.diff(worked) / length
    wants = np.where(used > BUSY * speeds, 1.0, used)
    fair, setter = fair_speeds(resources, wants)
    if (fair >= 1.0).all() and (speeds >= 1.0).all():
        return None
    fair = np.maximum(fair, SLOWEST) ** part * speeds ** (1 - part)
    found = list(processes)
    lost = np.zeros((len(processes), len(resources.kinds)))
    for i in users:
        at_work = np.flatnonzero(used[:, i] > 0)
        if not len(at_work):
            continue
        # outside its work a process keeps the speed that it had: it may take longer than it did
        last = np.maximum.accumulate(np.where(used[:, i] > 0, np.arange(len(length)), at_work[0]))
        mine = fair[last, i]
        held = (setter[:, i] >= 0) & (wants[:, i] >= 1.0)
        np.add.at(lost[i], setter[held, i], (length * (1 - fair[:, i]))[held])
        found[i] = replace(processes[i], speed=None if (mine >= 1.0).all() else _speed(time, mine, schedule.end))
    return found, lost


def _speed(time: Array, speed: Array, end: float) -> Speed:
    """A clock that runs at the given speeds between given times and at the last one ever after."""
    far = 64 * end / SLOWEST
    done = np.concatenate([[0.0], np.cumsum(np.diff(time) * speed)])
    return Speed(np.append(time, time[-1] + far), np.append(done, done[-1] + far * speed[-1]))


def _stretches(start: Sequence[Array], finish: Sequence[Array], end: float) -> Array:
    """The times at which processes begin or end work, pauses between chunks included when they are long."""
    begin = np.array([s[0] for s in start])
    stop = np.array([f[-1] for f in finish])
    gaps = [(s[1:] - f[:-1], f[:-1], s[1:]) for s, f in zip(start, finish, strict=True) if len(s) > 1]
    points = [np.zeros(1), begin, stop, np.array([end])]
    if gaps:
        size, a, b = (np.concatenate(x) for x in zip(*gaps, strict=True))
        most = max(0, MOST_STRETCHES - 2 * len(start)) // 2
        longest = np.argsort(-size, kind="stable")[:most]
        longest = longest[size[longest] > end / MOST_STRETCHES]
        points += [a[longest], b[longest]]
    found = np.unique(np.concatenate(points))
    keep = np.concatenate([[True], np.diff(found) > 1e-9 * max(1.0, end)])
    return found[keep]
