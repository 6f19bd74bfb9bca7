"""The recurrence over chunks against a plain simulation, with and without changing speeds, and the critical path
against the end."""

from __future__ import annotations

import random

import numpy as np
import pytest

from headrace.runtime import pipeline
from headrace.runtime.pipeline import Access, Buffer, Pipeline, Process, Speed


def simulate(processes: list[Process], buffers: list[Buffer]) -> list[list[float]]:
    """Starts of all chunks: every rule applied to every chunk until nothing changes."""
    start = [[0.0] * p.chunks for p in processes]

    def frames(p: Process, b: int, k: int) -> int:
        return -(-(k + 1) * buffers[b].frames // p.chunks) - 1

    def chunk(p: Process, b: int, f: int) -> int:
        return -(-(f + 1) * p.chunks // buffers[b].frames) - 1

    def finish(p: Process, start: float) -> float:
        """The end of a chunk: its work, stretch of time by stretch of time."""
        if p.speed is None:
            return start + p.pace
        left, at = p.pace, start
        for a, b, c, d in zip(p.speed.time, p.speed.time[1:], p.speed.done, p.speed.done[1:], strict=False):
            if at < b:
                speed = (d - c) / (b - a)
                if left <= (b - at) * speed:
                    return at + left / speed
                left, at = left - (b - at) * speed, b
        raise AssertionError("a clock that stops")

    changed = True
    while changed:
        changed = False
        for i, p in enumerate(processes):
            for k in range(p.chunks):
                at = finish(p, start[i][k - 1]) if k else 0.0
                for a in p.reads:
                    for w, q in enumerate(processes):
                        for b in q.writes:
                            if b.buffer == a.buffer:
                                made = finish(q, start[w][chunk(q, a.buffer, frames(p, a.buffer, k))]) + b.tail
                                at = max(at, made + b.latency + a.latency - a.lead)
                for a in p.writes:
                    f = frames(p, a.buffer, k) - buffers[a.buffer].copies
                    for r, q in enumerate(processes):
                        for b in q.reads:
                            if b.buffer == a.buffer and f >= 0:
                                at = max(at, finish(q, start[r][chunk(q, a.buffer, f)]) + b.lead - a.lead)
                if at > start[i][k] + 1e-9:
                    start[i][k], changed = at, True
    return start


def chain(
    paces: list[float], chunks: int, copies: int, frames: int | None = None
) -> tuple[list[Process], list[Buffer]]:
    processes = [Process(chunks, pace) for pace in paces]
    buffers = [Buffer(chunks if frames is None else frames, copies) for _ in paces[1:]]
    for n in range(len(buffers)):
        processes[n].writes.append(Access(n, 0.0, 0.0, 0.0))
        processes[n + 1].reads.append(Access(n, 0.0, 0.0, 0.0))
    return processes, buffers


def test_a_pipeline_takes_its_fill_and_its_slowest_stage() -> None:
    found = Pipeline(*chain([3, 5, 2], 10, 2)).solve()
    assert found.settled and found.end == 3 + 10 * 5 + 2


def test_whole_buffers_run_one_after_another() -> None:
    assert Pipeline(*chain([3, 5, 2], 10, 1, frames=1)).solve().end == 30 + 50 + 20


def test_one_copy_lets_neighbours_alternate() -> None:
    assert Pipeline(*chain([3, 5], 10, 1)).solve().end == 10 * (3 + 5)


def test_a_short_way_around_waits_for_room() -> None:
    """A buffer read early and late holds two frames: a third comes when the late reader is done with the first."""
    processes, buffers = chain([1, 1, 1, 1, 1], 12, 2)
    buffers.append(Buffer(12, 2))
    processes[0].writes.append(Access(4, 0, 0, 0))
    processes[4].reads.append(Access(4, 0, 0, 0))
    few = Pipeline(processes, buffers).solve()
    buffers[4] = Buffer(12, 5)
    enough = Pipeline(processes, buffers).solve()
    assert enough.end == 5 + 11
    assert few.end > enough.end + 10


def test_a_slow_time_counts_for_less() -> None:
    """Half speed until 20, full speed from then on: four chunks of 5 and two more."""
    (only,) = chain([5], 6, 2)[0]
    only.speed = Speed(np.array([0.0, 20.0, 1e6]), np.array([0.0, 10.0, 1e6 - 10.0]))
    found = Pipeline([only], []).solve()
    assert found.finish[0].tolist() == [10, 20, 25, 30, 35, 40] and found.end == 40
    spans = {s.kind: s.cycles for s in Pipeline([only], []).critical_path(found) if s.kind == "shared"}
    assert spans == {"shared": 10}


def test_neighbours_that_alternate_take_no_sweep_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "MOST_SWEEPS", 8)
    for copies, end in ((1, 2000 * (3 + 5)), (2, 3 + 2000 * 5)):
        found = Pipeline(*chain([3, 5], 2000, copies)).solve()
        assert found.settled and found.end == end
    assert Pipeline(*chain([3, 5, 2], 2000, 1)).solve().settled


@pytest.mark.parametrize("seed", range(60))
def test_random_networks_agree_with_a_simulation(seed: int) -> None:
    pick = random.Random(seed)
    count = pick.randint(2, 6)
    base = pick.choice([1, 2, 3, 6])
    processes = [Process(base * pick.choice([1, 2, 4]), pick.randint(1, 9), pick.randint(0, 5)) for _ in range(count)]
    for p in processes:
        if pick.random() < 0.3:
            time = np.cumsum([0, pick.randint(1, 40), pick.randint(1, 40), 1e5])
            speed = [pick.choice([0.25, 0.5, 1.0]) for _ in range(3)]
            p.speed = Speed(time, np.concatenate([[0.0], np.cumsum(np.diff(time) * speed)]))
    buffers: list[Buffer] = []
    for r in range(1, count):
        for w in {pick.randrange(r), r - 1}:
            frames = pick.choice([1, base])
            buffers.append(Buffer(frames, pick.randint(1, 3)))
            lead = pick.choice([0, 2])
            processes[w].writes.append(Access(len(buffers) - 1, lead, pick.randint(0, 4), pick.randint(0, 6)))
            processes[r].reads.append(Access(len(buffers) - 1, lead, 0, pick.randint(0, 6)))
    try:
        found = Pipeline(processes, buffers)
        schedule = found.solve()
        if not schedule.settled:  # a network that blocks: the simulation would not end either
            return
        expected = simulate(processes, buffers)
    except RecursionError:
        return
    for mine, theirs in zip(schedule.start, expected, strict=True):
        assert np.allclose(mine, theirs)
    spans = found.critical_path(schedule)
    assert sum(s.cycles for s in spans) == pytest.approx(schedule.end)
