"""The analytic model: a config's time in closed form from its steady state, without a time for any chunk.

For each cluster two times: when its first chunk starts and when its last one does. The last starts no earlier than its
pace allows from the first, than its writers' last frames arrive, and, where room is short, than its readers free it; so
the end is fill, drain and first loads along the longest path, and the run of the slowest. A third time is when a
cluster goes on that has filled its buffers before a reader began. A buffer whose way from
writer to reader and back as room takes long limits the pace to a frame per lap over its copies. Of a resource that
clusters share while they work, each waits for what the others ask of it in that time, but for none longer than for
itself: the time of fair sharing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from headrace.runtime.pipeline import Access, Pipeline, Span
from headrace.runtime.timing_demand import Course, Demand

Array = np.ndarray[Any, np.dtype[Any]]
ROUNDS = 4
"""How often the times in which resources are shared are computed anew."""
MOST_SWEEPS = 12


FIRST, LAST, STALLED = range(3)


@dataclass(frozen=True)
class _Cause:
    """Why a time is what it is: the spans from another cluster's time, and which that is: of its FIRST or LAST chunk,
    or of the one before which it STALLED."""

    spans: tuple[Span, ...]
    process: int
    which: int


class _Steady:
    """The two times of every cluster, at given paces."""

    def __init__(self, pipeline: Pipeline, pace: list[float]) -> None:
        self.pipeline = pipeline
        self.processes = pipeline.processes
        self.pace = pace
        self.first = [0.0] * len(pace)
        self.last = [self._run(i, p.chunks - 1) for i, p in enumerate(self.processes)]
        self.stall: dict[int, tuple[int, float]] = {}  # process -> the chunk before which it waits for room, and until
        self.cause: dict[tuple[int, int], _Cause] = {}
        order = range(len(pace))
        for _ in range(MOST_SWEEPS):
            moved = sum(self._read(i) for i in order)
            moved += sum(self._room(i) for i in reversed(order))
            if not moved:
                break

    def _run(self, i: int, chunk: int) -> float:
        """When a chunk starts, from the start of the first one: at the pace, and `copies` frames a lap."""
        found = chunk * self.pace[i]
        for lap in self.pipeline.laps[i]:
            laps, rest = divmod(chunk, lap.copies * lap.chunks)
            ahead, rest = divmod(rest, lap.chunks)
            found = max(found, laps * lap.cycles + ahead * lap.frame + rest * self.pace[i])
        return found

    def _later(self, i: int, which: int, at: float, cause: _Cause) -> bool:
        times = self.last if which == LAST else self.first
        if at <= times[i] + 1e-6 * (1 + abs(times[i])):
            return False
        times[i] = at
        self.cause[i, which] = cause
        if which == FIRST:
            run = self._run(i, self.processes[i].chunks - 1)
            self._later(i, LAST, at + run, _Cause((Span(i, "pace", run),), i, FIRST))
        return True

    def _read(self, i: int) -> bool:
        """What process i waits for at the buffers that it reads."""
        moved, p = False, self.processes[i]
        for a in p.reads:
            frames = self.pipeline.buffers[a.buffer].frames
            needed = self.pipeline.needed(i, a.buffer)
            first = int(needed[0])
            # the first chunk that needs the last frame, and how many follow it
            rest = p.chunks - 1 - int(np.searchsorted(needed, frames - 1))
            for w, b in self.pipeline.writers[a.buffer]:
                q = self.processes[w]
                wait = b.tail + b.latency + a.latency - a.lead
                way = (
                    Span(i, "tail", -a.lead, a.part),
                    Span(i, "latency", b.latency + a.latency, a.part),
                    Span(w, "tail", b.tail, b.part),
                    Span(w, "pace", self.pace[w]),
                )
                chunk = int(self.pipeline.chunk_of[q.chunks, frames][first])
                fill = Span(w, "pace", self._run(w, chunk))
                at = self.first[w] + fill.cycles + self.pace[w] + wait
                if chunk == q.chunks - 1:  # the whole of it
                    moved |= self._later(i, FIRST, self.last[w] + self.pace[w] + wait, _Cause(way, w, LAST))
                else:
                    moved |= self._later(i, FIRST, at, _Cause((*way, fill), w, FIRST))
                drain = Span(i, "pace", rest * self.pace[i])
                at = self.last[w] + self.pace[w] + wait + drain.cycles
                moved |= self._later(i, LAST, at, _Cause((drain, *way), w, LAST))
        return moved

    def _room(self, i: int) -> bool:
        """What process i waits for at the buffers that it writes: for the reader to begin when they are full, and its
        last chunk for the reader to free a frame."""
        moved, p = False, self.processes[i]
        for a in p.writes:
            frames, copies = self.pipeline.buffers[a.buffer].frames, self.pipeline.copies(i, a)
            if copies >= frames:
                continue
            for r, b in self.pipeline.readers[a.buffer]:
                q = self.processes[r]
                freed = self.pipeline.chunk_of[q.chunks, frames]
                back = Span(i, "tail", b.lead - a.lead, a.part)
                if not self._follows(r, i):
                    chunk = int(freed[frames - 1 - copies])
                    each = (self.last[r] - self.first[r]) / max(1, q.chunks - 1)
                    way = (back, Span(r, "pace", self.pace[r] + chunk * each))
                    moved |= self._later(i, LAST, self.first[r] + sum(s.cycles for s in way), _Cause(way, r, FIRST))
                moved |= self._stall(i, a, r, FIRST, 0, self.first[r], back)
                if r in self.stall:
                    moved |= self._stall(i, a, r, STALLED, *self.stall[r], back)
        return moved

    def _follows(self, i: int, other: int) -> bool:
        """Whether a process is done when it is because another one is."""
        at, seen = (i, LAST), set[tuple[int, int]]()
        while at not in seen and at in self.cause:
            seen.add(at)
            at = self.cause[at].process, self.cause[at].which
            if at[0] == other and at[1] == LAST:
                return True
        return False

    def _stall(self, i: int, access: Access, reader: int, which: int, chunk: int, at: float, back: Span) -> bool:
        """A reader goes on with a chunk at a time: the writer goes on when that has freed a frame, and may be done
        later for it."""
        p, q = self.processes[i], self.processes[reader]
        frames = self.pipeline.buffers[access.buffer].frames
        frame = chunk * frames // q.chunks
        wanted = frame + self.pipeline.copies(i, access)
        if wanted >= frames:
            return False
        mine = int(np.searchsorted(self.pipeline.frame_of[p.chunks, frames], wanted))
        freed = int(self.pipeline.chunk_of[q.chunks, frames][frame])
        way = (back, Span(reader, "pace", self._run(reader, freed - chunk) + self.pace[reader]))
        at += sum(s.cycles for s in way)
        run = self._run(i, p.chunks - 1 - mine)
        known = self.stall.get(i)
        if known is not None and at + run <= known[1] + self._run(i, p.chunks - 1 - known[0]) + 1e-6 * (1 + at):
            return False
        self.stall[i] = mine, at
        self.cause[i, STALLED] = _Cause(way, reader, which)
        self._later(i, LAST, at + run, _Cause((Span(i, "pace", run),), i, STALLED))
        return True

    @property
    def ends(self) -> list[float]:
        """When each process's last result is there."""
        return [t + x + p.tail for t, x, p in zip(self.last, self.pace, self.processes, strict=True)]

    def path(self) -> list[Span]:
        """What the end waits for, from the end back to the start; the cycles sum to the end."""
        ends = self.ends
        if not ends:
            return []
        i = max(range(len(ends)), key=lambda n: ends[n])
        spans = [Span(i, "tail", self.processes[i].tail, self.processes[i].part), Span(i, "pace", self.pace[i])]
        which, seen = LAST, set[tuple[int, int]]()
        while (i, which) not in seen:
            seen.add((i, which))
            cause = self.cause.get((i, which))
            if cause is None and which == LAST:
                cause = _Cause((Span(i, "pace", self._run(i, self.processes[i].chunks - 1)),), i, FIRST)
            if cause is None:
                break
            spans += cause.spans
            i, which = cause.process, cause.which
        missing = max(ends) - sum(s.cycles for s in spans)
        return [*spans, Span(i, "pace", missing)] if abs(missing) > 1e-9 * (1 + max(ends)) else spans


def analytic(demand: Demand) -> Course:
    """The times of a config."""
    pipeline = Pipeline(demand.processes, demand.buffers)
    clusters = demand.clusters
    own = [p.pace for p in pipeline.processes]
    resources = demand.resources.contended()
    pace, bound = list(own), [c.bound for c in clusters]
    steady = _Steady(pipeline, pace)
    for _ in range(ROUNDS if resources.kinds else 0):
        need, setter = _shared(demand, steady)
        new = [max(x, float(n) / p.chunks) for x, n, p in zip(own, need, pipeline.processes, strict=True)]
        bound = [
            resources.kinds[int(r)] if x > y * (1 + 1e-9) else c.bound
            for r, x, y, c in zip(setter, new, own, clusters, strict=True)
        ]
        if all(abs(x - y) <= 1e-4 * y for x, y in zip(new, pace, strict=True)):
            break
        pace = new
        steady = _Steady(pipeline, pace)
    spans: list[Span] = []
    for s in steady.path():
        c = clusters[s.process]
        part = min(1.0, own[s.process] / max(pace[s.process], 1e-12)) if s.kind == "pace" and c.work else 1.0
        spans.append(s._replace(cycles=s.cycles * part))
        if part < 1.0:
            spans.append(Span(s.process, "shared", s.cycles * (1 - part)))
    return Course(
        steady.first,
        [t + x for t, x in zip(steady.last, pace, strict=True)],
        [x * p.chunks for x, p in zip(pace, pipeline.processes, strict=True)],
        bound,
        spans,
        max(steady.ends, default=0.0),
    )


def interval(demand: Demand) -> float:
    """Cycles from run to run when runs follow each other: of the slowest cluster, of what is asked most of, or of the
    longest lap from a writer to a reader and back as room, over the runs that there is room for."""
    pipeline = Pipeline(demand.processes, demand.buffers)
    run = _held_back(pipeline)
    again = np.array([demand.works_again(c) for c in demand.clusters], np.bool_)
    found = [c.work for c, more in zip(demand.clusters, again, strict=True) if more]
    found += demand.asked_by(again).tolist()
    for i, p in enumerate(pipeline.processes):
        found += [lap.cycles * p.chunks / (lap.copies * lap.chunks) for lap in pipeline.laps[i]]
        ways: tuple[dict[int, float], dict[int, float]] | None = None
        for a in p.writes if again[i] else ():
            for r, b in pipeline.readers[a.buffer]:
                if r != i:
                    ways = ways or _ways(pipeline, run, i)
                    found += _laps(pipeline, i, a, r, b, ways)
    return max(found, default=0.0)


def _held_back(pipeline: Pipeline) -> list[float]:
    """Cycles from the first to the last chunk of each process in one run for which everything was loaded ahead."""
    ahead = [replace(p, pace=p.pace if p.reads else 0.0) for p in pipeline.processes]
    steady = _Steady(Pipeline(ahead, pipeline.buffers), [p.pace for p in ahead])
    own = [(p.chunks - 1) * p.pace for p in pipeline.processes]
    return [max(x, last - first) for x, first, last in zip(own, steady.first, steady.last, strict=True)]


def _ways(pipeline: Pipeline, run: Sequence[float], start: int) -> tuple[dict[int, float], dict[int, float]]:
    """When the first and the last chunk of each process behind one start at the earliest, from its own first start;
    each takes that long from first to last by itself."""
    first, last = {start: 0.0}, {start: run[start]}
    for i in range(start + 1, len(pipeline.processes)):
        p = pipeline.processes[i]
        for a in p.reads:
            frames = pipeline.buffers[a.buffer].frames
            needed = pipeline.needed(i, a.buffer)
            rest = p.chunks - 1 - int(np.searchsorted(needed, frames - 1))
            for w, b in pipeline.writers[a.buffer]:
                if w not in first or w >= i:
                    continue
                q = pipeline.processes[w]
                wait = q.pace + b.tail + b.latency + a.latency - a.lead
                chunk = int(pipeline.chunk_of[q.chunks, frames][int(needed[0])])
                begin = last[w] if chunk == q.chunks - 1 else first[w] + chunk * q.pace
                first[i] = max(first.get(i, 0.0), begin + wait)
                last[i] = max(last.get(i, 0.0), last[w] + wait + rest * p.pace)
        if i in first:
            last[i] = max(last[i], first[i] + run[i])
    return first, last


def _laps(
    pipeline: Pipeline, writer: int, access: Access, reader: int, other: Access, ways: tuple[dict[int, float], ...]
) -> list[float]:
    """Cycles a run of the way of a frame from its writer to a reader and back as room for one of a later run."""
    first, last = ways
    if reader not in first:
        return []
    q = pipeline.processes[reader]
    buffer = pipeline.buffers[access.buffer]
    frames = buffer.frames
    runs, rest = divmod(max(buffer.copies, pipeline.copies(writer, access)), frames)
    each = (last[reader] - first[reader]) / max(1, q.chunks - 1)

    # a run later, the frame for which the first one of a run has to wait: from the start of that
    chunk = int(pipeline.chunk_of[q.chunks, frames][(frames - rest) % frames])
    way = first[reader] + chunk * each + q.pace + other.lead - access.lead
    return [way / (runs + 1 if rest else runs)]


def _shared(demand: Demand, steady: _Steady) -> tuple[Array, Array]:
    """For each cluster the cycles that its run takes at the resource that holds it up longest, and which that is."""
    resources = demand.resources.contended()
    owner, begin, end, part = _bursts(steady)
    work = np.array([c.work for c in demand.clusters])[owner] * part
    overlap = np.minimum(end[:, None], end) - np.maximum(begin[:, None], begin)
    share = np.clip(overlap, 0.0, None) / (end - begin)[None, :]  # of j's work, what falls into i's time
    share[owner[:, None] == owner] = 0.0
    asked, weights = resources.rates[owner] * work[:, None], resources.weights[owner]
    with np.errstate(divide="ignore", invalid="ignore"):
        own = np.where(weights > 0, asked / weights, 0.0)  # for a unit of weight
    # of what j asks in i's time, i waits for no more than for itself, each by its weight
    waits = np.minimum(share[:, :, None] * asked[None], own[:, None, :] * weights[None])
    needed = np.zeros((len(demand.clusters), len(resources.kinds)))
    np.add.at(needed, owner, np.where(asked > 0, waits.sum(1) + asked, 0.0))
    setter = np.argmax(needed, 1)
    return np.take_along_axis(needed, setter[:, None], 1)[:, 0], setter


def _bursts(steady: _Steady) -> tuple[Array, Array, Array, Array]:
    """When clusters work: which one, from when to when, and the part of its work. One that fills its buffers and then
    waits for a reader to begin works in two bursts."""
    found: list[tuple[int, float, float, float]] = []
    for i, p in enumerate(steady.processes):
        begin, end, ahead, waited = steady.first[i], steady.last[i] + steady.pace[i], 1.0, steady.first[i]
        for a in p.writes:
            frames, copies = steady.pipeline.buffers[a.buffer].frames, steady.pipeline.copies(i, a)
            if copies < frames:
                ahead = min(ahead, copies / frames)
                waited = max([waited, *(steady.first[r] for r, _ in steady.pipeline.readers[a.buffer])])
        filled = begin + ahead * p.chunks * steady.pace[i]
        if ahead < 1.0 and filled < waited < end:
            found += [(i, begin, filled, ahead), (i, waited, end, 1.0 - ahead)]
        else:
            found.append((i, begin, max(end, begin + 1e-9), 1.0))
    owner, begin, end, part = zip(*found, strict=True)
    return np.array(owner), np.array(begin), np.array(end), np.array(part)
