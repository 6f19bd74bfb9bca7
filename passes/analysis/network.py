"""A section as a network of processes with bounded buffers, run on token counts alone: does it finish, and if not, why.

Every process runs a number of steps; a step takes one tile from each input and sends one to each output. A buffer lets a
reader start a frame when all writers have finished it, and lets a writer start a frame when at most `copies - 1` frames
are not yet read by all readers. The network is a Kahn network, so the order of the steps does not matter: it either
finishes or always stops in the same state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from xdsl.ir import Operation

from headrace.dialects.dataflow.ops import BufferOp, SectionOp, YieldOp, stream_of
from headrace.dialects.support.access import Stream, View


@dataclass(eq=False)
class Tank:
    """A buffer: frames in all, frames held at most, and the progress of its ports in tiles."""

    op: BufferOp
    frames: int
    copies: int
    written: list[int]
    read: list[int]
    write_frame: list[int]
    read_frame: list[int]

    def may_write(self, port: int) -> bool:
        """Whether writer `port` may send its next tile."""
        frame = self.written[port] // self.write_frame[port]
        done = min(r // f for r, f in zip(self.read, self.read_frame, strict=True))
        return frame < done + self.copies

    def may_read(self, port: int) -> bool:
        """Whether reader `port` may take its next tile."""
        frame = self.read[port] // self.read_frame[port]
        return all(w >= (frame + 1) * f for w, f in zip(self.written, self.write_frame, strict=True))


@dataclass(eq=False)
class Process:
    """A load, stage, gather, scatter or store and how far it is."""

    op: Operation
    steps: int
    takes: list[tuple[Tank, int]] = field(default_factory=list[tuple[Tank, int]])
    sends: list[tuple[Tank, int]] = field(default_factory=list[tuple[Tank, int]])
    done: int = 0

    def blocked_by(self) -> tuple[Tank, str] | None:
        """What stops the next step: a buffer and `empty` or `full`; None when nothing does."""
        for tank, port in self.takes:
            if not tank.may_read(port):
                return tank, "empty"
        for tank, port in self.sends:
            if not tank.may_write(port):
                return tank, "full"
        return None


@dataclass(frozen=True)
class Deadlock:
    """Why a network stops: each process with the buffer it waits for and whether that is empty or full."""

    waits: tuple[tuple[Operation, BufferOp, str, int, int], ...]

    @property
    def full(self) -> list[BufferOp]:
        """The buffers that stop their writers."""
        return list(dict.fromkeys(buffer for _, buffer, state, _, _ in self.waits if state == "full"))


class Network:
    """The processes and buffers of a section."""

    def __init__(self, section: SectionOp) -> None:
        self.tanks: dict[BufferOp, Tank] = {}
        self.processes: list[Process] = []
        for op in section.body.block.ops:
            if isinstance(op, BufferOp):
                frames = op.frames.value.data
                self.tanks[op] = Tank(
                    op,
                    op.frame_count,
                    op.copies.value.data,
                    [0] * len(op.ins),
                    [0] * len(op.outs),
                    [prod(x.count for x in stream_of(v).time[frames:]) for v in op.ins],
                    [prod(x.count for x in stream_of(v).time[frames:]) for v in op.outs],
                )
        for op in section.body.block.ops:
            if not isinstance(op, BufferOp | YieldOp):
                self._add(op)

    def _add(self, op: Operation) -> None:
        streams = [v for v in (*op.operands, *op.results) if v.type.name == "dataflow.stream"]
        process = Process(op, max((stream_of(v).steps for v in streams), default=0))
        for value in op.operands:
            owner = value.owner
            if isinstance(owner, BufferOp):
                port = owner.outs.index(value)  # pyright: ignore[reportArgumentType]
                process.takes.append((self.tanks[owner], port))
        for result in op.results:
            for use in result.uses:
                if isinstance(use.operation, BufferOp):
                    process.sends.append((self.tanks[use.operation], use.index))
        self.processes.append(process)

    def run(self) -> Deadlock | None:
        """Run until nothing moves; None when every process finished."""
        for tank in self.tanks.values():
            tank.written = [0] * len(tank.written)
            tank.read = [0] * len(tank.read)
            tank.copies = tank.op.copies.value.data
        moved = True
        for process in self.processes:
            process.done = 0
        while moved:
            moved = False
            for process in self.processes:
                while process.done < process.steps and process.blocked_by() is None:
                    for tank, port in process.takes:
                        tank.read[port] += 1
                    for tank, port in process.sends:
                        tank.written[port] += 1
                    process.done += 1
                    moved = True
        waits: list[tuple[Operation, BufferOp, str, int, int]] = []
        for process in self.processes:
            if process.done < process.steps:
                found = process.blocked_by()
                assert found is not None
                waits.append((process.op, found[0].op, found[1], process.done, process.steps))
        return Deadlock(tuple(waits)) if waits else None


def footprint(sizes: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """A set of addresses given by (count, stride) pairs, in a form that is equal for equal dense nests: repeats dropped,
    sorted by stride, neighbours merged."""
    live = sorted(((n, s) for n, s in sizes if n > 1 and s), key=lambda x: abs(x[1]))
    found: list[tuple[int, int]] = []
    for n, s in live:
        if found and found[-1][0] * found[-1][1] == s:
            found[-1] = (found[-1][0] * n, found[-1][1])
        else:
            found.append((n, s))
    return tuple(found)


def _inner(stream: Stream, view: View, frames: int) -> tuple[tuple[int, int], ...]:
    """Addresses of one frame as (count, stride) pairs."""
    loops = [(x.count, x.step * view.strides[x.dim]) for x in stream.time[frames:] if x.dim >= 0]
    return footprint([*zip(stream.tile, view.strides, strict=True), *loops])


def common_frames(buffer: BufferOp) -> int:
    """The most outer loops that all ports share, each frame of the readers lying within the same frame of the writer."""
    ports = buffer.ports
    writers = ports[: len(buffer.ins)]
    most = min(len(stream.time) for stream, _ in ports)
    best = 0
    for n in range(1, most + 1):
        steps = {
            tuple((x.count, x.step * view.strides[x.dim] if x.dim >= 0 else 0) for x in stream.time[:n])
            for stream, view in ports
        }
        if len(steps) != 1 or any(s == 0 and c > 1 for c, s in next(iter(steps))):
            break
        if len(writers) == 1 and all(_within(port, writers[0], n) for port in ports[1:]):
            best = n
    return best


def _within(reader: tuple[Stream, View], writer: tuple[Stream, View], frames: int) -> bool:
    mine, theirs = _inner(*reader, frames), _inner(*writer, frames)
    if mine == theirs and reader[1].offset == writer[1].offset:
        return True
    if len(theirs) > 1 or (theirs and theirs[0][1] != 1):
        return False
    length = theirs[0][0] if theirs else 1
    low = reader[1].offset + sum((n - 1) * s for n, s in mine if s < 0)
    high = reader[1].offset + sum((n - 1) * s for n, s in mine if s > 0)
    return low >= writer[1].offset and high < writer[1].offset + length
