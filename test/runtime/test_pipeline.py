"""The recurrence over chunks against a plain simulation, and the critical path against the end."""

from __future__ import annotations

import random

import numpy as np
import pytest

from headrace.runtime.pipeline import Access, Buffer, Pipeline, Process


def simulate(processes: list[Process], buffers: list[Buffer]) -> list[list[float]]:
    """Starts of all chunks: every rule applied to every chunk until nothing changes."""
    start = [[0.0] * p.chunks for p in processes]

    def frames(p: Process, b: int, k: int) -> int:
        return -(-(k + 1) * buffers[b].frames // p.chunks) - 1

    def chunk(p: Process, b: int, f: int) -> int:
        return -(-(f + 1) * p.chunks // buffers[b].frames) - 1

    changed = True
    while changed:
        changed = False
        for i, p in enumerate(processes):
            for k in range(p.chunks):
                at = start[i][k - 1] + p.pace if k else 0.0
                for a in p.reads:
                    for w, q in enumerate(processes):
                        for b in q.writes:
                            if b.buffer == a.buffer:
                                made = start[w][chunk(q, a.buffer, frames(p, a.buffer, k))] + q.pace + b.tail
                                at = max(at, made + b.latency + a.latency - a.lead)
                for a in p.writes:
                    f = frames(p, a.buffer, k) - buffers[a.buffer].copies
                    for r, q in enumerate(processes):
                        for b in q.reads:
                            if b.buffer == a.buffer and f >= 0:
                                at = max(at, start[r][chunk(q, a.buffer, f)] + q.pace + b.lead - a.lead)
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


@pytest.mark.parametrize("seed", range(60))
def test_random_networks_agree_with_a_simulation(seed: int) -> None:
    pick = random.Random(seed)
    count = pick.randint(2, 6)
    base = pick.choice([1, 2, 3, 6])
    processes = [Process(base * pick.choice([1, 2, 4]), pick.randint(1, 9), pick.randint(0, 5)) for _ in range(count)]
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
