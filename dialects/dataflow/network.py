"""A section as a network of processes joined by bounded memories, run on token counts: does it finish, and if not, why.

Every process runs a number of steps; a step takes one tile from each input and sends one to each output, and blocks
until all of them can. A buffer lets a reader start a frame when all writers have finished it, and lets a writer start a
frame when at most `copies - 1` frames are not yet read by all readers. A stream without a buffer holds one tile. A
stream that several ops take is forked: each gets every tile. This is a Kahn network, so the order of the steps does not
matter: it finishes, or it always stops in the same state.

    stuck = Network(section).run()              # None, or who waits for whom
    Network(section).run(copies, fire)          # `fire(process, n)` does the work of the next n steps
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from xdsl.ir import Operation, SSAValue

from headrace.dialects.dataflow.ops import BufferOp, MergeOp, SectionOp, StageOp, StoreOp, YieldOp, stream_of
from headrace.dialects.dataflow.types import StreamType
from headrace.dialects.support import dtypes, locations
from headrace.dialects.support.diagnostics import Diagnostic


@dataclass(eq=False)
class Tank:
    """A buffer, or the one tile that a stream without a buffer holds. Progress of its ports is counted in tiles."""

    op: BufferOp | None
    frames: int
    copies: int
    writers: list[Process] = field(default_factory=list["Process"])
    write_frame: list[int] = field(default_factory=list[int])
    """Tiles of a frame, for each writer."""
    readers: list[Process] = field(default_factory=list["Process"])
    read_frame: list[int] = field(default_factory=list[int])
    values: list[SSAValue] = field(default_factory=list[SSAValue])
    """The stream that each reader takes."""
    written: list[int] = field(default_factory=list[int])
    read: list[int] = field(default_factory=list[int])

    def start(self, copies: int) -> None:
        """Empty it."""
        self.copies = copies
        self.written = [0] * len(self.write_frame)
        self.read = [0] * len(self.read_frame)

    def done(self) -> int:
        """Frames that every reader has left."""
        return min((r // f for r, f in zip(self.read, self.read_frame, strict=True)), default=self.frames)

    def ready(self) -> int:
        """Frames that every writer has finished."""
        return min((w // f for w, f in zip(self.written, self.write_frame, strict=True)), default=self.frames)

    def room(self, port: int) -> int:
        """How many tiles writer `port` may send now."""
        return (self.done() + self.copies) * self.write_frame[port] - self.written[port]

    def stock(self, port: int) -> int:
        """How many tiles reader `port` may take now."""
        return self.ready() * self.read_frame[port] - self.read[port]

    @property
    def held(self) -> int:
        """Frames that are begun and not yet left by every reader."""
        begun = max((-(-w // f) for w, f in zip(self.written, self.write_frame, strict=True)), default=0)
        return begun - self.done()

    def blockers(self, state: str) -> list[Process]:
        """The processes that keep it `empty` (writers behind) or `full` (readers behind)."""
        if state == "empty":
            low = self.ready()
            behind = zip(self.writers, self.written, self.write_frame, strict=True)
        else:
            low = self.done()
            behind = zip(self.readers, self.read, self.read_frame, strict=True)
        return list(dict.fromkeys(p for p, n, frame in behind if n // frame == low))

    @property
    def title(self) -> str:
        """How it is named in a message."""
        if self.op is None:
            return f"the stream from {self.writers[0].title} to {self.readers[0].title}"
        where = locations.of(self.op)
        return f"buffer {self.op.buffer_type}" + (f" ({where})" if where else "")


@dataclass(eq=False)
class Process:
    """An op of a section (of a store: one of its streams; of a buffer: what another buffer sends it) and how far it
    is."""

    op: Operation
    steps: int
    takes: list[tuple[Tank, int]] = field(default_factory=list[tuple[Tank, int]])
    """Where each stream operand comes from: memory and reader number."""
    sends: list[list[tuple[Tank, int]]] = field(default_factory=list[list[tuple[Tank, int]]])
    """For each stream result, where it goes: memory and writer number."""
    port: int = 0
    """The operand of a store or buffer that this is about."""
    done: int = 0

    @property
    def in_turn(self) -> bool:
        """Whether a step takes one tile from one input, each in its turn."""
        return isinstance(self.op, MergeOp)

    def next_takes(self) -> list[tuple[Tank, int]]:
        """What the next step takes from."""
        return [self.takes[self.done % len(self.takes)]] if self.in_turn else self.takes

    def able(self) -> int:
        """How many steps it can do now."""
        most = 1 if self.in_turn else self.steps
        most = min(most, self.steps - self.done)
        for tank, port in self.next_takes():
            most = min(most, tank.stock(port))
        for goals in self.sends:
            for tank, port in goals:
                most = min(most, tank.room(port))
        return most

    def move(self, steps: int) -> None:
        """Count that many steps."""
        for tank, port in self.next_takes():
            tank.read[port] += steps
        for goals in self.sends:
            for tank, port in goals:
                tank.written[port] += steps
        self.done += steps

    def waits(self) -> Wait:
        """What stops the next step."""
        for tank, port in self.next_takes():
            if tank.stock(port) < 1:
                return Wait(self, tank, "empty", self.done, tank.held, tank.copies, tuple(tank.blockers("empty")))
        for goals in self.sends:
            for tank, port in goals:
                if tank.room(port) < 1:
                    return Wait(self, tank, "full", self.done, tank.held, tank.copies, tuple(tank.blockers("full")))
        raise AssertionError(f"{self.title} waits for nothing")

    @property
    def title(self) -> str:
        """How it is named in a message."""
        where = locations.of(self.op)
        name = f'stage "{self.op.sym.data}"' if isinstance(self.op, StageOp) else self.op.name.split(".")[-1]
        return f"{name} ({where})" if where else name


@dataclass(frozen=True, eq=False)
class Wait:
    """A process that stopped at step `done` because `tank` is `empty` or `full`, holding `held` of at most `copies`
    frames; the processes `on` could change that."""

    process: Process
    tank: Tank
    state: str
    done: int
    held: int
    copies: int
    on: tuple[Process, ...]

    def __str__(self) -> str:
        tank, process = self.tank, self.process
        text = f"{process.title} stops at step {self.done} of {process.steps}: {tank.title} is {self.state}"
        if tank.op is not None and self.state == "full":
            text += f" ({self.held} frames held of {self.copies}, {tank.frames} in all)"
        return text + f" until {' and '.join(p.title for p in self.on[:2])} go{'es' * (len(self.on) == 1)} on"


@dataclass(frozen=True)
class Deadlock:
    """Why a network stops: what every unfinished process waits for."""

    waits: tuple[Wait, ...]

    @property
    def full(self) -> list[BufferOp]:
        """The buffers that stop their writers."""
        found = (w.tank.op for w in self.waits if w.state == "full")
        return list(dict.fromkeys(op for op in found if op is not None))

    @property
    def cycle(self) -> tuple[Wait, ...]:
        """Processes of which each waits for the next, and the last for the first."""
        by_process = {w.process: w for w in self.waits}
        path: dict[Process, Wait] = {}
        wait = self.waits[0]
        while wait.process not in path:
            path[wait.process] = wait
            wait = next(by_process[p] for p in wait.on if p in by_process)
        found = list(path.values())
        return tuple(found[found.index(path[wait.process]) :])

    def __str__(self) -> str:
        return "; ".join(map(str, self.cycle))


Fire = Callable[[Process, int], None]


class Network:
    """The processes and memories of a section. It may be run again, with other copies."""

    def __init__(self, section: SectionOp) -> None:
        self.tanks: list[Tank] = []
        self.processes: list[Process] = []
        self._buffers: dict[BufferOp, Tank] = {}
        self._makers: dict[SSAValue, tuple[Process, list[tuple[Tank, int]]]] = {}
        for op in section.body.block.ops:
            places = [i for i, v in enumerate(op.operands) if isinstance(v.type, StreamType)]
            if isinstance(op, BufferOp):
                tank = self._buffers[op] = Tank(op, op.frame_count, op.copies.value.data)
                self.tanks.append(tank)
                for place in places:
                    self._fill(tank, op, place)
            elif isinstance(op, StoreOp):
                for place in places:
                    self._take(self._process(op, [op.operands[place]], place), op.operands[place])
            elif not isinstance(op, YieldOp):
                process = self._process(op, [v for v in (*op.operands, *op.results) if isinstance(v.type, StreamType)])
                for place in places:
                    self._take(process, op.operands[place])
                for result in op.results:
                    if isinstance(result.type, StreamType):
                        process.sends.append([])
                        self._makers[result] = process, process.sends[-1]

    def _process(self, op: Operation, streams: Sequence[SSAValue], port: int = 0) -> Process:
        found = Process(op, max((stream_of(v).steps for v in streams), default=0), port=port)
        self.processes.append(found)
        return found

    def _fill(self, tank: Tank, op: BufferOp, place: int) -> None:
        """Join an input of a buffer to what makes it; out of another buffer, a process of its own moves the tiles."""
        value = op.operands[place]
        if isinstance(value.owner, BufferOp):
            maker = self._process(op, [value], place)
            self._take(maker, value)
            maker.sends.append([])
            self._makers[value] = maker, maker.sends[-1]
        process, goals = self._makers[value]
        goals.append((tank, len(tank.writers)))
        tank.writers.append(process)
        tank.write_frame.append(_inner(value, op))

    def _take(self, process: Process, value: SSAValue) -> None:
        """Join an input of a process to what makes it."""
        if isinstance(op := value.owner, BufferOp):
            tank, frame = self._buffers[op], _inner(value, op)
        else:
            maker, goals = self._makers[value]
            tank, frame = Tank(None, stream_of(value).steps, 1, [maker], [1]), 1
            self.tanks.append(tank)
            goals.append((tank, 0))
        process.takes.append((tank, len(tank.readers)))
        tank.readers.append(process)
        tank.values.append(value)
        tank.read_frame.append(frame)

    def tank(self, op: BufferOp) -> Tank:
        """The memory of a buffer."""
        return self._buffers[op]

    def run(self, copies: Mapping[BufferOp, int] | None = None, fire: Fire | None = None) -> Deadlock | None:
        """Run until nothing moves; None when every process finished. `copies` overrides those of the buffers."""
        for tank in self.tanks:
            held = tank.op.copies.value.data if tank.op is not None else 1
            tank.start(copies.get(tank.op, held) if copies and tank.op is not None else held)
        for process in self.processes:
            process.done = 0
        moved = True
        while moved:
            moved = False
            for process in self.processes:
                while (n := process.able()) > 0:
                    if fire is not None:
                        fire(process, n)
                    process.move(n)
                    moved = True
        waits = [p.waits() for p in self.processes if p.done < p.steps]
        return Deadlock(tuple(waits)) if waits else None

    def cure(self, stuck: Deadlock) -> dict[BufferOp, int]:
        """The least copies, of as few buffers as it can find, with which a section that got stuck runs through; empty
        when no copies help."""
        now = {op: op.copies.value.data for op in self._buffers}
        singles = [{op: least} for op in stuck.full if (least := self.least(now, op, now[op])) is not None]
        if singles:
            return min(singles, key=lambda one: sum(_bytes(op) * (n - now[op]) for op, n in one.items()))
        held = {op: max(op.frame_count, now[op]) for op in self._buffers}
        if self.run(held) is not None:
            return {}
        for op in held:
            held[op] = self.least(held, op, now[op]) or held[op]
        return {op: n for op, n in held.items() if n != now[op]}

    def least(self, held: Mapping[BufferOp, int], op: BufferOp, low: int) -> int | None:
        """The least copies of one buffer, from `low` up, with which the section runs through while the others hold
        `held`; None when all of its frames are too few."""
        high = max(op.frame_count, low)
        if self.run({**held, op: high}) is not None:
            return None
        while low < high:
            middle = (low + high) // 2
            if self.run({**held, op: middle}) is None:
                high = middle
            else:
                low = middle + 1
        return low


def explain(section: SectionOp, network: Network, stuck: Deadlock) -> Diagnostic:
    """What a user is told about a section that does not run to its end."""
    cure = network.cure(stuck)
    more = [
        f"{network.tank(op).title} {copies} copies (it holds {op.copies.value.data} of {op.frame_count} frames)"
        for op, copies in cure.items()
    ]
    return Diagnostic(
        "deadlock",
        f'section "{section.sym.data}" stops before its end',
        str(stuck),
        f"give {' and '.join(more)}" if more else "no number of copies helps: break the cycle of streams",
        locations.of(stuck.cycle[0].process.op),
    )


def _inner(value: SSAValue, op: BufferOp) -> int:
    """Tiles of one frame of a buffer's port."""
    return prod(x.count for x in stream_of(value).time[op.frames.value.data :])


def _bytes(op: BufferOp) -> int:
    return dtypes.byte_size(op.buffer_type.dtype) * -(-op.buffer_type.elements // max(1, op.frame_count))
