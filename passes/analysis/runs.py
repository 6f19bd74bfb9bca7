"""Several inputs at a time: how many runs of a program follow each other, and what is the same in all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from xdsl.dialects import func
from xdsl.dialects.builtin import IntegerAttr, ModuleOp
from xdsl.ir import Operation, SSAValue

from headrace.dialects.dataflow.ops import BufferOp, GatherOp, LoadOp, ScatterOp, SectionOp, StageOp
from headrace.dialects.machine.device import Device
from headrace.dialects.support.diagnostics import CompileError
from headrace.dialects.support.locations import text
from headrace.dialects.tensor.program import signature
from headrace.dialects.tensor.storage import WeightOp
from headrace.passes.analysis.memory import fitting_frames, frame_count, units_for
from headrace.passes.analysis.phases import Memories, Place, phases
from headrace.passes.analysis.views import is_movement

RUNS = "dataflow.runs"
"""Name of the module attribute that says how many runs follow each other through a section."""


def runs_of(module: ModuleOp) -> int:
    """How many runs of the program follow each other through each of its sections."""
    found = module.attributes.get(RUNS)
    return found.value.data if isinstance(found, IntegerAttr) else 1


def refuse_states(module: ModuleOp) -> None:
    """Refuse a program whose runs wait for each other."""
    main = next((f for f in module.body.block.ops if isinstance(f, func.FuncOp) and f.sym_name.data == "main"), None)
    states = signature(main).states if main is not None else ()
    if main is not None and states:
        names = ", ".join(f"'{past}'" for past, _ in states[:3]) + (", …" if len(states) > 3 else "")
        raise CompileError(
            "runs-depend",
            f"several runs cannot be on the chip at a time: each needs the state ({names}) that the one before leaves",
            why="throughput comes from inputs that do not depend on each other",
            fix="compile for latency, or make the batch larger; without states, caches are inputs and outputs",
            location=text(main.location),
        )


def constants(module: ModuleOp) -> set[SSAValue]:
    """Tensors between sections, and arguments of sections, that are the same in every run: weights, and what views make
    of them, also where every call hands a function such a tensor."""
    functions = {f.sym_name.data: f for f in module.body.block.ops if isinstance(f, func.FuncOp)}
    found: set[SSAValue] = set()
    calls: dict[str, list[func.CallOp]] = {}
    order: dict[func.FuncOp, None] = {}

    def visit(function: func.FuncOp) -> None:
        if function not in order:
            order[function] = None
            for op in function.body.ops:
                if isinstance(op, func.CallOp):
                    name = op.callee.string_value()
                    calls.setdefault(name, []).append(op)
                    visit(functions[name])

    if "main" in functions:
        visit(functions["main"])
    moved = True
    while moved:  # callers may stand behind what they call
        before = len(found)
        for function in order:
            mine = calls.get(function.sym_name.data, [])
            for i, arg in enumerate(function.body.block.args):
                if mine and all(call.operands[i] in found for call in mine):
                    found.add(arg)
            for op in function.body.block.ops:
                if isinstance(op, WeightOp) or (is_movement(op) and all(v in found for v in op.operands)):
                    found.update(op.results)
                elif isinstance(op, SectionOp):
                    found.update(a for a, v in zip(op.body.block.args, op.ins, strict=True) if v in found)
        moved = len(found) > before
    return found


def kept(buffers: Iterable[BufferOp], same: set[SSAValue], device: Device) -> dict[BufferOp, int]:
    """Buffers of a section that can hold all of what is the same in every run, and their memory units. What is loaded
    for one of them and for another buffer as well is loaded in each run."""
    found: dict[BufferOp, int] = {}
    for op in buffers:
        if op.ins and all(isinstance(v.owner, LoadOp) and v.owner.tensor in same for v in op.ins):
            frames = fitting_frames(op, device, 1)
            if units := units_for(op, device, frames, max(1, frame_count(op, frames))):
                found[op] = units
    while shared := [op for op in found if any(u.operation not in found for v in op.ins for u in v.uses)]:
        for op in shared:
            del found[op]
    return found


def copies_across(op: BufferOp, place: Mapping[Operation, Place], memories: Memories) -> int:
    """Frames that a buffer holds while all stages of a section work, each on the frames of a run of its own: from the
    phase that writes one to the last that reads it, a whole run for each."""
    readers = [place[use.operation] for out in op.outs for use in out.uses if use.operation in place]
    writers = [place[v.owner] for v in op.ins if v.owner in place]  # pyright: ignore[reportArgumentType]
    if not readers:
        return 1
    first, last = min(writers or readers), max(readers)
    if first.phase == last.phase:
        return max(2, last.depth - first.depth + (1 if writers else 2))
    return (last.phase - first.phase + 1) * memories.frames(op) + (0 if writers else 1)


@dataclass(frozen=True)
class Overlap:
    """How a section holds what passes through it when runs follow each other: the copies of each buffer, and which
    buffers keep all that they are filled with. Without `across` its phases work one after the other."""

    copies: Mapping[BufferOp, int]
    kept: Mapping[BufferOp, int]
    across: bool


def overlap(section: SectionOp, device: Device, same: set[SSAValue], runs: int, share: float) -> Overlap:
    """What fits of: phases that work on runs of their own, and weights that are kept; the weights give way first."""
    memories = Memories(device)
    buffers = [op for op in section.body.block.ops if isinstance(op, BufferOp)]
    place = phases(
        (op for op in section.body.block.ops if isinstance(op, StageOp | GatherOp | ScatterOp)), device, memories
    )
    copies = {op: copies_across(op, place, memories) for op in buffers}
    across = {op: units_for(op, device, fitting_frames(op, device, 2), copies[op], runs=runs) for op in buffers}
    alone = {op: units_for(op, device, fitting_frames(op, device, 2), 2) for op in buffers}
    held = kept(buffers, same, device)
    budget = int(device.count("pmu") * share)
    for whole in (held, dict[BufferOp, int]()):
        for units, far in ((across, True), (alone, False)):
            if all(units.values()) and sum(({**units, **whole}).values()) <= budget:
                return Overlap(copies if far else {}, whole, far)
    return Overlap({}, {}, False)
