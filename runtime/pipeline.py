"""When everything in a config happens: a max-plus recurrence over chunks of steps, and the critical path through it.

A *process* works through `chunks` equal parts of its run, one every `pace` cycles at best. It reads buffers and writes
buffers. A buffer passes `frames` frames: a reader's chunk starts when every writer has finished the frames it needs, a
writer's when the readers have freed the room for its frames. With k the chunk,

    start[k] = max(arrive[k], start[k-1] + pace)      =>   start = maximum.accumulate(arrive - k·pace) + k·pace

which is one vector operation a process. Room flows against the order of the processes, so sweeps are repeated until
nothing moves; times only grow, so the least solution is found. The critical path is walked backwards from the last
event, run by run, and its parts sum to the total.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
EPSILON = 1e-6
MOST_SWEEPS = 5000


class Access(NamedTuple):
    """A process at a buffer. A reader's chunk needs its frames by start + `lead` - `latency` and frees them at start +
    pace + `lead`; a writer's needs the room by start + `lead` and has its frames there by start + pace + `tail` +
    `latency`. `part` says which part of the process it is."""

    buffer: int
    lead: float
    tail: float
    latency: float
    part: int = 0


@dataclass
class Process:
    """One pipeline of units. `tail`: cycles from the end of its last chunk's pace to its last result, in `part`."""

    chunks: int
    pace: float
    tail: float = 0.0
    part: int = 0
    reads: list[Access] = field(default_factory=list[Access])
    writes: list[Access] = field(default_factory=list[Access])


@dataclass(frozen=True)
class Buffer:
    """A memory between processes."""

    frames: int
    copies: int


class Span(NamedTuple):
    """A stretch of the critical path: cycles of `process`, working (`kind` 'pace'), filling ('tail', in `part`) or
    waiting for words on their way ('latency')."""

    process: int
    kind: str
    cycles: float
    part: int = 0


@dataclass
class Schedule:
    """Start of every chunk of every process, and the end of the last."""

    start: list[Array]
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
        self.start: list[Array] = []

    def written(self, buffer: int) -> Array:
        """When each frame of a buffer is complete."""
        frames = self.buffers[buffer].frames
        at = np.zeros(frames)
        for i, a in self.writers[buffer]:
            p = self.processes[i]
            chunk = self.chunk_of[p.chunks, frames]
            np.maximum(at, self.start[i][chunk] + (p.pace + a.tail + a.latency), out=at)
        return at

    def freed(self, buffer: int) -> Array:
        """When every reader is done with each frame of a buffer."""
        frames = self.buffers[buffer].frames
        at = np.zeros(frames)
        for i, a in self.readers[buffer]:
            p = self.processes[i]
            np.maximum(at, self.start[i][self.chunk_of[p.chunks, frames]] + (p.pace + a.lead), out=at)
        return at

    def _room(self, process: int, access: Access) -> tuple[Array, Array] | None:
        """Chunks of a writer that wait for room, and the frames that must be free for them."""
        buffer = self.buffers[access.buffer]
        p = self.processes[process]
        # a process or its reader that takes several frames at once needs room for them
        spans = [
            -(-buffer.frames // q.chunks) for q in (p, *(self.processes[i] for i, _ in self.readers[access.buffer]))
        ]
        copies = max(buffer.copies, sum(spans) if max(spans) > 1 else 0)
        if copies >= buffer.frames or not self.readers[access.buffer]:
            return None
        wanted = self.frame_of[p.chunks, buffer.frames] - copies
        chunks = np.flatnonzero(wanted >= 0)
        return chunks, wanted[chunks]

    def _arrive(self, process: int) -> Array:
        p = self.processes[process]
        arrive = np.zeros(p.chunks)
        for a in p.reads:
            at = self.written(a.buffer)[self.frame_of[p.chunks, self.buffers[a.buffer].frames]]
            np.maximum(arrive, at + (a.latency - a.lead), out=arrive)
        for a in p.writes:
            room = self._room(process, a)
            if room is not None:
                chunks, frames = room
                at = self.freed(a.buffer)[frames] - a.lead
                arrive[chunks] = np.maximum(arrive[chunks], at)
        return arrive

    def _longest(self) -> float:
        """No schedule is longer than everything one after another; one that would be never ends."""
        total = 0.0
        for p in self.processes:
            waits = sum(abs(a.lead) + abs(a.tail) + abs(a.latency) for a in (*p.reads, *p.writes))
            total += p.chunks * (p.pace + abs(p.tail) + waits)
        return total

    def solve(self) -> Schedule:
        """The earliest schedule; not `settled` when buffers hold too few frames for the network to end."""
        longest = self._longest()
        steps = [np.arange(p.chunks) * p.pace for p in self.processes]
        self.start = [s.copy() for s in steps]
        order = range(len(self.processes))
        settled = False
        for sweep in range(MOST_SWEEPS):
            moved = 0.0
            for i in order if sweep % 2 == 0 else reversed(order):
                new = np.maximum.accumulate(self._arrive(i) - steps[i]) + steps[i]
                np.maximum(new, self.start[i], out=new)
                moved = max(moved, float((new - self.start[i]).max(initial=0.0)))
                self.start[i] = new
            if moved <= EPSILON:
                settled = True
                break
            if any(s[-1] > longest + 1 for s in self.start):
                break
        ends = [float(self.start[i][-1]) + p.pace + p.tail for i, p in enumerate(self.processes)]
        return Schedule(self.start, max(ends, default=0.0), settled)

    def critical_path(self, schedule: Schedule) -> list[Span]:
        """What the end waits for, from the end back to the start. The cycles sum to the end (unless not settled)."""
        self.start = schedule.start
        ends = [float(s[-1]) + p.pace + p.tail for s, p in zip(self.start, self.processes, strict=True)]
        if not ends:
            return []
        i = int(np.argmax(ends))
        p = self.processes[i]
        spans = self._finish(i, p.tail, p.part)
        k = p.chunks - 1
        slack = EPSILON * (10 + schedule.end)
        limit = 4 * sum(q.chunks for q in self.processes) + 16
        for _ in range(limit):
            p = self.processes[i]
            start = self.start[i]
            # back to the chunk that something other than this process held up
            gaps = np.flatnonzero(np.diff(start[: k + 1]) > p.pace + slack)
            j = int(gaps[-1]) + 1 if len(gaps) else 0
            if k > j:
                spans.append(Span(i, "pace", float(start[k] - start[j])))
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

    def _finish(self, process: int, tail: float, part: int) -> list[Span]:
        """A chunk's pace and what follows it, no part negative."""
        pace = self.processes[process].pace
        if tail >= 0:
            return [Span(process, "pace", pace), Span(process, "tail", tail, part)]
        return [Span(process, "pace", pace + tail)]

    def _cause(self, i: int, j: int, slack: float) -> tuple[list[Span], int, int] | None:
        """Why chunk j of process i did not start earlier: spans, and the chunk that held it up."""
        p, at = self.processes[i], float(self.start[i][j])
        for a in p.reads:
            frames = self.buffers[a.buffer].frames
            frame = int(self.frame_of[p.chunks, frames][j])
            for w, b in self.writers[a.buffer]:
                q = self.processes[w]
                k = int(self.chunk_of[q.chunks, frames][frame])
                done = float(self.start[w][k]) + q.pace + b.tail
                if abs(done + b.latency + a.latency - a.lead - at) <= slack:
                    way = Span(i, "latency", b.latency + a.latency, a.part)
                    return [Span(i, "tail", -a.lead, a.part), way, *self._finish(w, b.tail, b.part)], w, k
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
                q = self.processes[r]
                k = int(self.chunk_of[q.chunks, frames][frame])
                if abs(float(self.start[r][k]) + q.pace + b.lead - a.lead - at) <= slack:
                    return [Span(i, "tail", -a.lead, a.part), *self._finish(r, b.lead, b.part)], r, k
        return None
