"""size-buffers: how much of each tensor a buffer holds at a time."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64

from headrace.dialects.dataflow.ops import BufferOp, SectionOp
from headrace.dialects.support.access import Stream, View
from headrace.passes.analysis.network import Network, footprint
from headrace.passes.analysis.sections import sections
from headrace.passes.infra.base import Pass, option


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


def size(section: SectionOp, copies: int) -> bool:
    """Set frames and copies of every buffer; grow copies until the section runs through."""
    changed = False
    buffers = [op for op in section.body.block.ops if isinstance(op, BufferOp)]

    def put(op: BufferOp, frames: int, held: int) -> None:
        nonlocal changed
        wanted = IntegerAttr(frames, i64), IntegerAttr(held, i64)
        if (op.frames, op.copies) != wanted:
            op.frames, op.copies = wanted
            changed = True

    for op in buffers:
        frames = common_frames(op)
        put(op, frames, 1)
        put(op, frames, min(copies, op.frame_count))
    network = Network(section)
    while (stuck := network.run()) is not None:
        grown = False
        for op in stuck.full:
            held, count = op.copies.value.data, op.frame_count
            if held < count:
                put(op, op.frames.value.data, min(2 * held, count))
                grown = True
        if not grown:
            break  # check-deadlock reports it with its witness
    return changed


@dataclass(frozen=True)
class SizeBuffersPass(Pass):
    """Decide for every buffer which outer loops enumerate its frames, and how many frames it holds.

    Assumes tiled stages. A buffer whose reader follows its writer's order holds `copies` frames (double buffering); one
    whose reader needs another order holds the whole tensor. Where paths of different length meet again, the short
    path's buffers grow until the section runs through.

        dataflow.buffer [512, 768] (…) to (…) : …   =>   dataflow.buffer [512, 768] (…) to (…) {frames = 1, copies = 2} : …
    """

    name = "size-buffers"
    copies: int = option(2, "frames that a buffer holds where its order allows", low=1)

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        changed = [size(section, self.copies) for section in sections(module)]
        return any(changed)
