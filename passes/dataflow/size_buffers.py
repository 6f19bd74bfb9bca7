"""size-buffers: how much of each tensor a buffer holds at a time."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from xdsl.context import Context
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64
from xdsl.ir import SSAValue

from headrace.dialects.dataflow.network import Network
from headrace.dialects.dataflow.ops import BufferOp, GatherOp, LoadOp, ScatterOp, SectionOp, StageOp, stream_of
from headrace.dialects.machine.attributes import device_of
from headrace.dialects.machine.cost import memory_bytes_per_cycle
from headrace.dialects.machine.device import Device
from headrace.dialects.support.journal import Candidate, count, decide
from headrace.passes.analysis.bodies import Body
from headrace.passes.analysis.memory import fitting_frames, held_bytes, units_for
from headrace.passes.analysis.phases import phases
from headrace.passes.analysis.pieces import peers, piece_cost, pieces
from headrace.passes.analysis.runs import Overlap, constants, overlap, runs_of
from headrace.passes.analysis.sections import sections
from headrace.passes.infra.base import Pass, option

SHARE = 0.9
"""Share of the memory units up to which buffers hold what is on its way between sockets."""


def size(section: SectionOp, device: Device, copies: int, held_over: Overlap | None = None) -> bool:
    """Set frames and copies of every buffer; give those that stop the section the least copies that do not. With
    `held_over` they hold what they do of several runs."""
    buffers = [op for op in section.body.block.ops if isinstance(op, BufferOp)]
    before = [(op.frames, op.copies) for op in buffers]
    for op in buffers:
        op.frames, op.copies = IntegerAttr(fitting_frames(op, device, copies), i64), IntegerAttr(1, i64)
    network = Network(section)
    start = {op: min(max(copies, held), op.frame_count) for op, held in overlaps(section, device).items()}
    start |= {op: ahead(op, device, start[op]) for op in buffers if all(isinstance(v.owner, LoadOp) for v in op.ins)}
    _while_messages_travel(section, device, start)
    if held_over is not None:
        for op in held_over.kept:
            op.frames = IntegerAttr(fitting_frames(op, device, 1), i64)
            start[op] = max(1, op.frame_count)
            count("buffers that are kept")
        for op, frames in held_over.copies.items():
            if op not in held_over.kept and frames > start[op]:
                start[op] = frames
                count("buffers of several runs")
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


def _while_messages_travel(section: SectionOp, device: Device, held: dict[BufferOp, int]) -> None:
    """Add the frames that are on their way between sockets at a time: of the buffer behind a collective, which has the
    room before the messages come, and of buffers beside it; as far as there are memory units."""
    processes = [op for op in section.body.block.ops if isinstance(op, StageOp | GatherOp | ScatterOp)]
    flying = {op: frames for op in processes if isinstance(op, StageOp) and (frames := in_flight(op, device))}
    if not flying:
        return
    place = phases(processes, device)
    left = int(SHARE * device.count("pmu"))
    left -= sum(units_for(op, device, op.frames.value.data, copies) for op, copies in held.items())
    for op, copies in held.items():
        ends = [place[v.owner] for v in op.ins if v.owner in place]  # pyright: ignore[reportArgumentType]
        readers = [place[use.operation] for out in op.outs for use in out.uses if use.operation in place]
        first, last = min(ends or readers, default=None), max(readers, default=None)
        if first is None or last is None or first.phase != last.phase:
            continue
        more = [n for stage, n in flying.items() if first <= place[stage] < last]
        frames, now = op.frames.value.data, units_for(op, device, op.frames.value.data, copies)
        most = min(copies + max(more, default=0), op.frame_count)
        while most > copies and units_for(op, device, frames, most) - now > left:
            most -= 1
        if most > copies:
            left -= units_for(op, device, frames, most) - now
            held[op] = most
            count("buffers that hold what is between sockets")


def in_flight(stage: StageOp, device: Device) -> int:
    """Tiles that the collective of a stage has on the way at a time: those that its units begin while one waits."""
    body, steps = Body.of(stage.body.block), stream_of(stage.outs[0]).steps
    each, wait = peers(body, body.types, device, steps=steps)
    if not wait:
        return 0
    pace = max(each, *(piece_cost(body, x, body.types, device).interval / stage.units for x in pieces(body, device)))
    return ceil(wait / max(pace, 1.0))


def overlaps(section: SectionOp, device: Device) -> dict[BufferOp, int]:
    """Frames that each buffer holds while all stages of a phase work on frames of their own: from the stage that writes
    one to the last that reads it, so that no path waits for a longer one beside it."""
    processes = [op for op in section.body.block.ops if isinstance(op, StageOp | GatherOp | ScatterOp)]
    place = phases(processes, device)
    found: dict[BufferOp, int] = {}
    for op in section.body.block.ops:
        if not isinstance(op, BufferOp):
            continue
        readers = [place[use.operation] for out in op.outs for use in out.uses if use.operation in place]
        writers = [place[v.owner] for v in op.ins if v.owner in place]  # pyright: ignore[reportArgumentType]
        last = max(readers, default=None)
        first = min(writers, default=min(readers, default=None))
        found[op] = 1
        if first is not None and last is not None and first.phase == last.phase:
            found[op] = last.depth - first.depth + (1 if writers else 2)
    return found


def ahead(op: BufferOp, device: Device, least: int) -> int:
    """Frames that a buffer of what is loaded holds, so that loads go on while the memory answers the first: what the
    memory sends in that time, as far as the memory units that the buffer takes anyway have room."""
    frames = op.frames.value.data
    memory = "hbm" if device.hbm is not None else "ddr"
    sent = device.memory(memory).latency * device.clock * memory_bytes_per_cycle(device, memory)
    most = max(least, min(op.frame_count, 1 + ceil(sent / max(1, held_bytes(op, frames, 1)))))
    units = units_for(op, device, frames, least)
    while most > least and units_for(op, device, frames, most) > units:
        most = max(least, most // 2)
    if most > least:
        count("buffers that load ahead")
    return most


@dataclass(frozen=True)
class SizeBuffersPass(Pass):
    """Decide for every buffer which outer loops enumerate its frames, and how many frames it holds.

    Assumes tiled stages and a device in the module. A buffer whose reader follows its writer's order holds `copies`
    frames (double buffering); one whose reader needs another order, or whose frames do not spread over memory units,
    holds more. Loads go ahead by as much as the memory sends while it answers, where that takes no more memory units.
    Where paths of different length meet again, the short path's buffers get the least copies with which the section
    runs through; a collective's hold what is on its way between sockets. Where several runs follow each other
    (`dataflow.runs`), a buffer between phases holds a frame of each run that is between them, and one of weights all of
    them, as far as there are memory units.

        dataflow.buffer [512, 768] (…) to (…) : …   =>   dataflow.buffer [512, 768] (…) to (…) {frames = 1, copies = 2}
    """

    name = "size-buffers"
    copies: int = option(2, "frames that a buffer holds where its order allows", low=1)
    share: float = option(0.95, "share of the memory units for what several runs hold", low=0.0, high=1.0)

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        device, runs = device_of(module), runs_of(module)
        same = constants(module) if runs > 1 else set[SSAValue]()
        changed = [
            size(section, device, self.copies, overlap(section, device, same, runs, self.share) if runs > 1 else None)
            for section in sections(module)
        ]
        return any(changed)
