"""size-buffers: how much of each tensor a buffer holds at a time."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64

from headrace.dialects.dataflow.ops import BufferOp, SectionOp
from headrace.passes.analysis.network import Network, common_frames
from headrace.passes.analysis.sections import sections
from headrace.passes.infra.base import Pass, option


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
