"""Deadlock: the units of a config run on counts of tiles, with the frames and copies that their buffers have.

A worker is a compute unit, an indexed address generator, or a flow between memories; a step takes a tile of each of its
sources and gives one to each of its goals, all or nothing. What lies between workers is a store: a buffer, or the one
tile that a flow from worker to worker holds. Whoever can work does; when nobody can and work is left, it is stuck. The
order does not matter, as no worker ever takes from another what that one could have had.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import prod

from headrace.tools.audit.looking import Look, few
from headrace.tools.audit.program import Buffer, Compute, Flow, Generator

INDEXED = ("gather", "scatter")


@dataclass(eq=False)
class Store:
    """A buffer (or a flow's one tile). A port counts the tiles that went through it; `frame` is how many make one."""

    name: str
    copies: int
    wrote: list[int] = field(default_factory=list[int])
    write_frame: list[int] = field(default_factory=list[int])
    read: list[int] = field(default_factory=list[int])
    read_frame: list[int] = field(default_factory=list[int])
    users: list[Worker] = field(default_factory=list["Worker"])

    def writer(self, worker: Worker, frame: int) -> int:
        """A new port to write."""
        self.wrote.append(0)
        self.write_frame.append(frame)
        self.users.append(worker)
        return len(self.wrote) - 1

    def reader(self, worker: Worker, frame: int) -> int:
        """A new port to read."""
        self.read.append(0)
        self.read_frame.append(frame)
        self.users.append(worker)
        return len(self.read) - 1

    def free(self, port: int) -> int:
        """Tiles that a writer may write: frame f lies where frame f - copies lay, which all readers must have left."""
        if not self.read:
            return 1 << 60
        left = min(n // frame for n, frame in zip(self.read, self.read_frame, strict=True))
        return (left + self.copies) * self.write_frame[port] - self.wrote[port]

    def full(self, port: int) -> int:
        """Tiles that a reader may read: of frames that all writers have finished."""
        if not self.wrote:
            return 1 << 60
        done = min(n // frame for n, frame in zip(self.wrote, self.write_frame, strict=True))
        return done * self.read_frame[port] - self.read[port]


@dataclass(eq=False)
class Worker:
    """Who moves tiles."""

    name: str
    steps: int = 0
    done: int = 0
    sources: list[tuple[Store, int]] = field(default_factory=list[tuple[Store, int]])
    goals: list[tuple[Store, int]] = field(default_factory=list[tuple[Store, int]])

    def able(self) -> int:
        """Steps that it can do now."""
        most = self.steps - self.done
        for store, port in self.sources:
            most = min(most, store.full(port))
        for store, port in self.goals:
            most = min(most, store.free(port))
        return most

    def move(self, steps: int) -> None:
        """Do them."""
        self.done += steps
        for store, port in self.sources:
            store.read[port] += steps
        for store, port in self.goals:
            store.wrote[port] += steps

    def waits(self) -> str:
        """What it waits for."""
        empty = [store.name for store, port in self.sources if store.full(port) < 1]
        full = [store.name for store, port in self.goals if store.free(port) < 1]
        told = [f"{few(empty)} to fill" if empty else "", f"{few(full)} to be left" if full else ""]
        return f"{self.name} waits in step {self.done} of {self.steps} for {' and '.join(filter(None, told))}"


def check_tokens(look: Look) -> int:
    """Refuse a config that stops with work left; the steps that were run."""
    workers = _network(look)
    waiting = deque(workers)
    queued = set(workers)
    while waiting:
        worker = waiting.popleft()
        queued.discard(worker)
        steps = worker.able()
        if steps < 1:
            continue
        worker.move(steps)
        for store, _ in (*worker.sources, *worker.goals):
            for user in store.users:
                if user not in queued:
                    queued.add(user)
                    waiting.append(user)
    stuck = [w for w in workers if w.done < w.steps]
    if stuck:
        first = sorted(stuck, key=lambda w: (not w.done, w.steps - w.done))
        look.bad(
            "deadlock",
            f"stops with work left for {few([w.name for w in stuck])}",
            why="; ".join(w.waits() for w in first[:3]),
            fix="give a buffer on the way more copies",
        )
    return sum(w.done for w in workers)


def _network(look: Look) -> list[Worker]:
    units = look.config.units
    workers = {
        i: Worker(f"@{u.name}") for i, u in enumerate(units)
        if isinstance(u, Compute) or (isinstance(u, Generator) and u.direction in INDEXED)
    }  # fmt: skip
    buffers = {i: Store(f"@{u.name}", u.copies) for i, u in enumerate(units) if isinstance(u, Buffer)}
    movers: list[Worker] = []
    for flow in look.config.flows:
        source, target = workers.get(flow.source), workers.get(flow.target)
        if source is None and target is None:
            mover = Worker(flow.label)
            movers.append(mover)
            source = target = mover
        for worker in filter(None, (source, target)):
            worker.steps = max(worker.steps, flow.stream.steps)
        if source is not None and target is not None and source is not target:
            between = Store(f"the tile of {flow.label}", 1)
            source.goals.append((between, between.writer(source, 1)))
            target.sources.append((between, between.reader(target, 1)))
        if target is not None and (store := buffers.get(flow.source)) is not None:
            target.sources.append((store, store.reader(target, _frame(flow, units[flow.source]))))
        if source is not None and (store := buffers.get(flow.target)) is not None:
            source.goals.append((store, store.writer(source, _frame(flow, units[flow.target]))))
    return [*workers.values(), *movers]


def _frame(flow: Flow, unit: object) -> int:
    assert isinstance(unit, Buffer)
    return prod(x.count for x in flow.stream.time[unit.frames :])
