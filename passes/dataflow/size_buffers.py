"""size-buffers: how much of each tensor a buffer holds at a time."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64

from headrace.dialects.dataflow.network import Network
from headrace.dialects.dataflow.ops import BufferOp, SectionOp
from headrace.dialects.machine.attributes import device_of
from headrace.dialects.machine.device import Device
from headrace.dialects.support.journal import Candidate, count, decide
from headrace.passes.analysis.memory import fitting_frames
from headrace.passes.analysis.sections import sections
from headrace.passes.infra.base import Pass, option


def size(section: SectionOp, device: Device, copies: int) -> bool:
    """Set frames and copies of every buffer; give those that stop the section the least copies that do not."""
    buffers = [op for op in section.body.block.ops if isinstance(op, BufferOp)]
    before = [(op.frames, op.copies) for op in buffers]
    for op in buffers:
        op.frames, op.copies = IntegerAttr(fitting_frames(op, device, copies), i64), IntegerAttr(1, i64)
    network = Network(section)
    start = {op: min(copies, op.frame_count) for op in buffers}
    held = dict(start)
    while (stuck := network.run(held)) is not None:
        grown = {op: min(2 * held[op], op.frame_count) for op in stuck.full if held[op] < op.frame_count}
        if not grown:
            break  # check-deadlock reports it with its witness
        held.update(grown)
    for op in buffers:
        if stuck is None and held[op] > start[op]:
            held[op] = network.least(held, op, start[op]) or held[op]
            if held[op] > start[op]:
                stop = Candidate(f"{start[op]} copies", reason="the section would stop: a path beside it is longer")
                decide("copies", op, f"{held[op]} copies", (stop,))
                count("buffers with more copies")
        count("buffers")
        op.copies = IntegerAttr(held[op], i64)
    return [(op.frames, op.copies) for op in buffers] != before


@dataclass(frozen=True)
class SizeBuffersPass(Pass):
    """Decide for every buffer which outer loops enumerate its frames, and how many frames it holds.

    Assumes tiled stages and a device in the module. A buffer whose reader follows its writer's order holds `copies`
    frames (double buffering); one whose reader needs another order, or whose frames do not spread over memory units,
    holds more. Where paths of different length meet again, the short path's buffers get the least copies with which the
    section runs through.

        dataflow.buffer [512, 768] (…) to (…) : …   =>   dataflow.buffer [512, 768] (…) to (…) {frames = 1, copies = 2}
    """

    name = "size-buffers"
    copies: int = option(2, "frames that a buffer holds where its order allows", low=1)

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        changed = [size(section, device_of(module), self.copies) for section in sections(module)]
        return any(changed)
