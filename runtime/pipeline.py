"""When everything in a config happens: a max-plus recurrence over chunks of steps, and the critical path through it.

A *process* works through `chunks` equal parts of its run, each `pace` cycles of work. It reads buffers and writes
buffers. A buffer passes `frames` frames: a reader's chunk starts when every writer has finished the frames it needs, a
writer's when the readers have freed the room for its frames. Nothing else holds a chunk up, so its tiles follow one
another and need no times of their own. With k the chunk,

    start[k] = max(arrive[k], start[k-1] + pace)      =>   start = maximum.accumulate(arrive - k·pace) + k·pace

which is one vector operation a process. A process whose `speed` changes over time, because it shares something, keeps
this form on its own clock, which counts the work done. Room flows against the order of the processes, so sweeps are
repeated until nothing moves; times only grow, so the least solution is found. A writer that comes back to the same room
every `copies` frames is a *lap*: another prefix maximum, over every `copies`-th frame. The critical path is walked
backwards from the last event, run by run, and its parts sum to the total.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
EPSILON = 1e-6
MOST_SWEEPS = 5000


class Access(NamedTuple):
    """A process at a buffer. A reader's chunk needs its frames by start + `lead` - `latency` and frees them at the
    chunk's end + `lead`; a writer's needs the room by start + `lead` and has its frames there at the chunk's end +
    `tail` + `latency`. `part` says which part of the process it is."""

    buffer: int
    lead: float
    tail: float
    latency: float
    part: int = 0


@dataclass(frozen=True, eq=False)
class Speed:
    """Cycles of work done by each time, linear in between; the last two points are further out than any schedule."""

    time: Array
    done: Array

    def work(self, time: Array) -> Array:
        """Work done by a time."""
        return np.interp(time, self.time, self.done)

    def when(self, work: Array) -> Array:
        """When that much work is done."""
        return np.interp(work, self.done, self.time)


@dataclass
class Process:
    """One pipeline of units. `tail`: cycles from the end of its last chunk to its last result, in `part`. Without a
    `speed` it does a cycle of work a cycle. Its chunks are those of `runs` runs."""

    chunks: int
    pace: float
    tail: float = 0.0
    part: int = 0
    reads: list[Access] = field(default_factory=list[Access])
    writes: list[Access] = field(default_factory=list[Access])
    speed: Speed | None = None
    runs: int = 1

    def finish(self, start: Array) -> Array:
        """When chunks end that start then."""
        return start + self.pace if self.speed is None else self.speed.when(self.speed.work(start) + self.pace)


@dataclass(frozen=True)
class Buffer:
    """A memory between processes. One that is kept passes its frames in the first of so many `runs` of its readers."""

    frames: int
    copies: int
    runs: int = 1


class Lap(NamedTuple):
    """A writer's way around: it starts a frame at least `cycles` after it started the one `copies` before, each of
    `chunks` chunks. The slowest on the way takes `frame` cycles a frame."""

    copies: int
    chunks: int
    cycles: float
    frame: float


class Span(NamedTuple):
    """A stretch of the critical path: cycles of `process`, working (`kind` 'pace'), held up by what it shares
    ('shared'), filling ('tail', in `part`) or waiting for words on their way ('latency')."""

    process: int
    kind: str
    cycles: float
    part: int = 0


@dataclass
class Schedule:
    """Start and end of every chunk of every process, and the end of everything."""

    start: list[Array]
    finish: list[Array]
    end: float
    settled: bool


def _last_frame(chunks: int, frames: int) -> Array:
    """The last frame that each chunk touches."""
    return -(-(np.arange(1, chunks + 1) * frames) // chunks) - 1


def _last_chunk(chunks: int, frames: int) -> Array:
    """The last chunk that touches each frame."""
    return -(-(np.arange(1, frames + 1) * chunks) // frames) - 1


class Pipeline:
    """Processes, in an order in which buffers flow, and the buffers between them."""

    def __init__(self, processes: Sequence[Process], buffers: Sequence[Buffer]) -> None:
        self.processes = processes
        self.buffers = buffers
        self.writers: list[list[tuple[int, Access]]] = [[] for _ in buffers]
        self.readers: list[list[tuple[int, Access]]] = [[] for _ in buffers]
        for i, p in enumerate(processes):
            for a in p.writes:
                self.writers[a.buffer].append((i, a))
            for a in p.reads:
                self.readers[a.buffer].append((i, a))
        self.frame_of = {
            (p.chunks, buffers[a.buffer].frames): _last_frame(p.chunks, buffers[a.buffer].frames)
            for p in processes
            for a in (*p.reads, *p.writes)
        }
        self.chunk_of = {key: _last_chunk(*key) for key in self.frame_of}
        self._needed: dict[tuple[int, int, int], Array] = {}
        self.start: list[Array] = []
        self.finish: list[Array] = []

    # Buffers

    def needed(self, process: int, buffer: int) -> Array:
        """The last frame of a buffer that each chunk of a reader needs."""
        chunks, of = self.processes[process].chunks, self.buffers[buffer]
        if of.runs == 1:
            return self.frame_of[chunks, of.frames]
        key = chunks, of.frames, of.runs
        if key not in self._needed:
            first = _last_frame(max(1, chunks // of.runs), of.frames)
            self._needed[key] = np.append(first, np.full(chunks - len(first), of.frames - 1))
        return self._needed[key]

    def written(self, buffer: int) -> Array:
        """When each frame of a buffer is complete."""
        frames = self.buffers[buffer].frames
        at = np.zeros(frames)
        for i, a in self.writers[buffer]:
            chunk = self.chunk_of[self.processes[i].chunks, frames]
            np.maximum(at, self.finish[i][chunk] + (a.tail + a.latency), out=at)
        return at

    def freed(self, buffer: int) -> Array:
        """When every reader is done with each frame of a buffer."""
        frames = self.buffers[buffer].frames
        at = np.zeros(frames)
        for i, a in self.readers[buffer]:
            np.maximum(at, self.finish[i][self.chunk_of[self.processes[i].chunks, frames]] + a.lead, out=at)
        return at

    def copies(self, process: int, access: Access) -> int:
        """Frames that a writer finds room for, no more than there are: a process or its reader that takes several
        frames at once needs room for them."""
        buffer = self.buffers[access.buffer]
        readers = [self.processes[i] for i, _ in self.readers[access.buffer]]
        if not readers:
            return buffer.frames
        spans = [-(-buffer.frames // q.chunks) for q in (self.processes[process], *readers)]
        return min(buffer.frames, max(buffer.copies, sum(spans) if max(spans) > 1 else 0))

    def _room(self, process: int, access: Access) -> tuple[Array, Array] | None:
        """Chunks of a writer that wait for room, and the frames that must be free for them."""
        buffer = self.buffers[access.buffer]
        copies = self.copies(process, access)
        if copies >= buffer.frames:
            return None
        wanted = self.frame_of[self.processes[process].chunks, buffer.frames] - copies
        chunks = np.flatnonzero(wanted >= 0)
        return chunks, wanted[chunks]

    @cached_property
    def laps(self) -> list[list[Lap]]:
        """The laps of each process that are slower than its pace, at full speed: from the start of a frame along the
        longest way that frames of that number take to a reader, and back as room."""
        found: list[list[Lap]] = []
        for i, p in enumerate(self.processes):
            mine: list[Lap] = []
            for a in p.writes:
                frames, copies = self.buffers[a.buffer].frames, self.copies(i, a)
                if copies >= frames or p.chunks % frames:
                    continue
                begin = self._ways(i, frames)
                for r, b in self.readers[a.buffer]:
                    q = self.processes[r]
                    if r in begin and r != i:
                        cycles = begin[r] + q.chunks // frames * q.pace + b.lead - a.lead
                        if cycles > copies * (p.chunks // frames) * p.pace + EPSILON:
                            on = [x for n, x in enumerate(self.processes) if n in begin and n <= r]
                            frame = max(x.chunks // frames * x.pace for x in on)
                            mine.append(Lap(copies, p.chunks // frames, cycles, frame))
            found.append(mine)
        return found

    def _ways(self, process: int, frames: int) -> dict[int, float]:
        """The earliest start of a frame at each process behind one, from its start there, through buffers that pass the
        same number of frames."""
        begin = {process: 0.0}
        for i in range(process + 1, len(self.processes)):
            p = self.processes[i]
            for a in p.reads if p.chunks % frames == 0 else ():
                if self.buffers[a.buffer].frames != frames or self.buffers[a.buffer].runs > 1:
                    continue
                for w, b in self.writers[a.buffer]:
                    if w in begin and w < i:
                        q = self.processes[w]
                        at = begin[w] + q.chunks // frames * q.pace + b.tail + b.latency + a.latency - a.lead
                        begin[i] = max(begin.get(i, 0.0), at)
        return begin

    # Schedules

    def _arrive(self, process: int) -> Array:
        p = self.processes[process]
        arrive = np.zeros(p.chunks)
        for a in p.reads:
            at = self.written(a.buffer)[self.needed(process, a.buffer)]
            np.maximum(arrive, at + (a.latency - a.lead), out=arrive)
        for a in p.writes:
            room = self._room(process, a)
            if room is not None:
                chunks, frames = room
                at = self.freed(a.buffer)[frames] - a.lead
                arrive[chunks] = np.maximum(arrive[chunks], at)
        return arrive

    def _paced(self, process: int, arrive: Array) -> Array:
        """The earliest starts when chunks arrive then: each after the one before, and every lap."""
        p = self.processes[process]
        steps = np.arange(p.chunks) * p.pace

        def in_turn(at: Array) -> Array:
            if p.speed is None:
                return np.maximum.accumulate(at - steps) + steps
            # what needs no wait keeps its time to the bit: there and back through the clock would move it
            work = np.maximum.accumulate(p.speed.work(at) - steps) + steps
            return np.maximum(at, p.speed.when(work))

        start = in_turn(arrive)
        for lap in self.laps[process]:
            first = start[:: lap.chunks]
            rows = -(-len(first) // lap.copies)
            table = np.full(rows * lap.copies, -np.inf)
            table[: len(first)] = first
            table = table.reshape(rows, lap.copies)
            climb = np.arange(rows)[:, None] * lap.cycles
            table = (np.maximum.accumulate(table - climb, 0) + climb).ravel()[: len(first)]
            if (table > first + EPSILON).any():
                start[:: lap.chunks] = np.maximum(first, table)
                start = in_turn(start)
        return start

    def _longest(self) -> float:
        """No schedule is longer than everything one after another; one that would be never ends."""
        total = 0.0
        for p in self.processes:
            waits = sum(abs(a.lead) + abs(a.tail) + abs(a.latency) for a in (*p.reads, *p.writes))
            slowest = 1.0 if p.speed is None else float((np.diff(p.speed.done) / np.diff(p.speed.time)).min())
            total += p.chunks * (p.pace / slowest + abs(p.tail) + waits)
        return total

    def solve(self) -> Schedule:
        """The earliest schedule; not `settled` when buffers hold too few frames for the network to end."""
        longest = self._longest()
        order = range(len(self.processes))
        self.start = [self._paced(i, np.zeros(p.chunks)) for i, p in enumerate(self.processes)]
        self.finish = [p.finish(s) for p, s in zip(self.processes, self.start, strict=True)]
        settled = False
        for sweep in range(MOST_SWEEPS):
            moved = 0.0
            for i in order if sweep % 2 == 0 else reversed(order):
                new = np.maximum(self._paced(i, self._arrive(i)), self.start[i])
                rise = float((new - self.start[i]).max(initial=0.0))
                if rise > EPSILON:
                    self.start[i], self.finish[i] = new, self.processes[i].finish(new)
                    moved = max(moved, rise)
            if moved <= EPSILON:
                settled = True
                break
            if any(s[-1] > longest + 1 for s in self.start):
                break
        ends = [float(f[-1]) + p.tail for f, p in zip(self.finish, self.processes, strict=True)]
        return Schedule(self.start, self.finish, max(ends, default=0.0), settled)

    # The critical path

    def critical_path(self, schedule: Schedule) -> list[Span]:
        """What the end waits for, from the end back to the start. The cycles sum to the end (unless not settled)."""
        self.start, self.finish = schedule.start, schedule.finish
        ends = [float(f[-1]) + p.tail for f, p in zip(self.finish, self.processes, strict=True)]
        if not ends:
            return []
        i = int(np.argmax(ends))
        k = self.processes[i].chunks - 1
        spans = self._ended(i, k, self.processes[i].tail, self.processes[i].part)
        slack = EPSILON * (10 + schedule.end)
        limit = 4 * sum(q.chunks for q in self.processes) + 16
        for _ in range(limit):
            start = self.start[i]
            # back to the chunk that something other than this process held up
            gaps = np.flatnonzero(start[1 : k + 1] > self.finish[i][:k] + slack)
            j = int(gaps[-1]) + 1 if len(gaps) else 0
            if k > j:
                spans += self._worked(i, float(start[j]), float(start[k]))
            if start[j] <= slack:
                if start[j] > 0:
                    spans.append(Span(i, "latency", float(start[j])))
                break
            cause = self._cause(i, j, slack)
            if cause is None:  # not settled: give the rest to this process
                spans.append(Span(i, "latency", float(start[j])))
                break
            found, i, k = cause
            spans += found
        return spans

    def _worked(self, process: int, start: float, end: float, less: float = 0.0) -> list[Span]:
        """A time in which a process works, `less` what follows overlaps of it: its own cycles, and those lost to what
        it shares."""
        speed = self.processes[process].speed
        own = end - start if speed is None else float(np.diff(speed.work(np.array([start, end])))[0])
        spans = [Span(process, "pace", own + less)]
        if end - start > own:
            spans.append(Span(process, "shared", end - start - own))
        return spans

    def _ended(self, process: int, chunk: int, tail: float, part: int) -> list[Span]:
        """A chunk and what follows it, no part negative."""
        start, end = float(self.start[process][chunk]), float(self.finish[process][chunk])
        if tail >= 0:
            return [*self._worked(process, start, end), Span(process, "tail", tail, part)]
        return self._worked(process, start, end, tail)

    def _cause(self, i: int, j: int, slack: float) -> tuple[list[Span], int, int] | None:
        """Why chunk j of process i did not start earlier: spans, and the chunk that held it up."""
        p, at = self.processes[i], float(self.start[i][j])
        for a in p.reads:
            frames = self.buffers[a.buffer].frames
            frame = int(self.needed(i, a.buffer)[j])
            for w, b in self.writers[a.buffer]:
                k = int(self.chunk_of[self.processes[w].chunks, frames][frame])
                done = float(self.finish[w][k]) + b.tail
                if abs(done + b.latency + a.latency - a.lead - at) <= slack:
                    way = Span(i, "latency", b.latency + a.latency, a.part)
                    return [Span(i, "tail", -a.lead, a.part), way, *self._ended(w, k, b.tail, b.part)], w, k
        for a in p.writes:
            room = self._room(i, a)
            if room is None:
                continue
            hit = np.flatnonzero(room[0] == j)
            if not len(hit):
                continue
            frame = int(room[1][hit[0]])
            frames = self.buffers[a.buffer].frames
            for r, b in self.readers[a.buffer]:
                k = int(self.chunk_of[self.processes[r].chunks, frames][frame])
                if abs(float(self.finish[r][k]) + b.lead - a.lead - at) <= slack:
                    return [Span(i, "tail", -a.lead, a.part), *self._ended(r, k, b.lead, b.part)], r, k
        return None
