"""parallelize: spread stages over symmetric units so that their rates balance."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from typing import Any

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from headrace.dialects.dataflow.ops import (
    BufferOp,
    GatherOp,
    ScatterOp,
    SectionOp,
    StageOp,
    StoreOp,
    YieldOp,
    stream_of,
    views,
)
from headrace.dialects.dataflow.types import StreamType
from headrace.dialects.machine.attributes import device_of
from headrace.dialects.machine.device import Device
from headrace.dialects.support.access import View
from headrace.dialects.support.journal import Candidate, count, current, decide, decline, may
from headrace.dialects.tensor.shapes.bodies import cut
from headrace.passes.analysis.bodies import Body
from headrace.passes.analysis.phases import Grid, Memories, Place, divisible, options, phases
from headrace.passes.analysis.pieces import Split
from headrace.passes.analysis.runs import constants, overlap, runs_of
from headrace.passes.analysis.sections import sections
from headrace.passes.infra.base import Pass, option

WORTH = 0.2
"""What a unit has to save when it hastens a tile, relative to what units do on average. Chosen by trying: from 0 to
1 the times of docs/mapping.md differ by 2 % at most."""


def spread(section: SectionOp, device: Device, share: float, most: int, by: str, across: bool = False) -> bool:
    """Choose the parts of every stage of a section: the times of its phases with the least sum that the units allow, or
    (`by` equal) the same share of the units for all. With phases that work at the same time, `across` runs, all stages
    have the same time."""
    processes = [op for op in section.body.block.ops if isinstance(op, StageOp | GatherOp | ScatterOp)]
    memories = Memories(device)
    place = phases(processes, device, memories)
    if across:
        place = dict.fromkeys(place, Place(0, 0))
    ways = {op: options(op, memories, most) for op in processes if isinstance(op, StageOp)}
    if not ways:
        return False
    grid = Grid(min(x[-1][2] for x in ways.values()), sum(x[0][2] for x in ways.values()))
    demand: dict[int, Any] = {}
    for op, some in ways.items():
        phase = place[op].phase
        demand[phase] = demand.get(phase, 0.0) + grid.units([(units, cycles) for _, units, cycles in some])
    budget = max(int(device.count("pcu") * share), 1)
    chosen = grid.share(list(demand.values()), budget) if by == "time" else None
    times = dict(zip(demand, chosen, strict=True)) if chosen else {}
    targets: dict[StageOp, float] = {}
    taken: dict[StageOp, int] = {}
    for op, some in ways.items():
        target = float(grid.times[times[place[op].phase]]) * (1 + 1e-9) if times else float("inf")
        if by == "equal":
            target = min((way[2] for way in some if way[1] <= budget // len(ways)), default=target)
        targets[op] = target
        taken[op] = next(i for i, way in enumerate(some) if way[2] <= target)
    if times and not across:
        _hasten(taken, ways, place, budget)
    changed = False
    for op, some in ways.items():
        target = targets[op]
        split, units, cycles = some[taken[op]]
        count("compute units", units)
        if split.parts == op.parts and split.rest is None:
            decline("spread", op, f"it takes {cycles:,.0f} cycles as it is; its phase may take {target:,.0f}")
        elif may("spread", op):
            _explain(op, split, some, target)
            if split.rest is None:
                op.parts = split.parts
            else:
                main, rest = divide(op, split.rest[1])
                main.parts, rest.parts = split.parts, split.rest_parts
                count("stages of a rest")
            changed = True
    return changed


def _hasten(
    taken: dict[StageOp, int],
    ways: Mapping[StageOp, Sequence[tuple[Split, int, float]]],
    place: Mapping[Operation, Place],
    budget: int,
) -> None:
    """Spend the units that are left on the first tile, which passes the stages of a phase one after the other: where
    they have few tiles that takes longer than the phase's pace says. Of all stages that a tile passes at a time the
    slowest counts; what saves most cycles a unit comes first, for as long as that is `WORTH` of what units do on
    average."""
    steps = {op: stream_of(op.outs[0]).steps for op in ways}
    ranks: dict[Place, list[StageOp]] = {}
    for op in ways:
        ranks.setdefault(place[op], []).append(op)

    def longest(some: Sequence[StageOp]) -> float:
        return max(ways[op][taken[op]][2] / steps[op] for op in some)

    def better(some: Sequence[StageOp]) -> tuple[float, int, dict[StageOp, int]] | None:
        """Cycles saved a unit, the units, and the ways, when the slowest of stages takes its next way and the others
        are no slower than that; None when there is none."""
        slowest = max(some, key=lambda op: ways[op][taken[op]][2] / steps[op])
        if taken[slowest] + 1 == len(ways[slowest]):
            return None
        least = ways[slowest][taken[slowest] + 1][2] / steps[slowest]
        chosen: dict[StageOp, int] = {}
        units = 0
        for op in some:
            i = next((i for i in range(taken[op], len(ways[op])) if ways[op][i][2] / steps[op] <= least), None)
            if i is None:
                return None
            chosen[op] = i
            units += ways[op][i][1] - ways[op][taken[op]][1]
        return (longest(some) - least) / max(units, 1), units, chosen

    left = budget - sum(ways[op][i][1] for op, i in taken.items())
    enough = WORTH * sum(longest(some) for some in ranks.values()) / max(budget, 1)
    queue = [(-found[0], n) for n, some in enumerate(ranks.values()) if (found := better(some)) is not None]
    members = list(ranks.values())
    heapify(queue)
    while queue:
        _, n = heappop(queue)
        found = better(members[n])
        assert found is not None
        gain, units, chosen = found
        if gain < enough:
            break
        if units > left:
            continue
        left -= units
        taken.update(chosen)
        if (found := better(members[n])) is not None:
            heappush(queue, (-found[0], n))


def divide(stage: StageOp, rest: int) -> tuple[StageOp, StageOp]:
    """Make a stage two, of which the second has the last `rest` columns (see `divisible`): both read and write the
    same buffers, through views of their own."""
    body = Body.of(stage.body.block)
    axis = divisible(stage, body)
    assert axis is not None
    blocks: tuple[tuple[int, int], tuple[int, int]] = (0, axis.size - rest), (axis.size - rest, rest)
    read: dict[BufferOp, list[int]] = {}
    for i, value in enumerate(stage.ins):
        assert isinstance(value.owner, BufferOp)
        read.setdefault(value.owner, []).append(i)
    streams: tuple[list[SSAValue], list[SSAValue]] = [*stage.ins], [*stage.ins]
    for buffer, positions in read.items():
        there = dict(zip(buffer.outs, views(buffer.out_views), strict=True))
        more: list[tuple[StreamType, View]] = []
        for i in positions:
            value, dim = stage.ins[i], axis.dim_of(i)
            for start, size in blocks:
                type = _narrow(value, dim, size) if dim >= 0 else _type(value)
                more.append((type, _shift(there[value], dim, start) if dim >= 0 else there[value]))  # pyright: ignore[reportArgumentType]
        gone = {v for v in there if v.uses and all(use.operation is stage for use in v.uses)}
        made = _with_readers(buffer, more, gone)
        for n, i in enumerate(positions):
            streams[0][i], streams[1][i] = made[2 * n : 2 * n + 2]
    stages: list[StageOp] = []
    for (_, size), name, ins in zip(blocks, (stage.sym.data, f"{stage.sym.data}_rest"), streams, strict=True):
        block, values = body.block(cut(body.ops, body.types, [(axis, size)]))
        block.add_op(end := YieldOp(values))
        outs = [_narrow(out, axis.dim_of(v), size) for v, out in zip(body.outputs, stage.outs, strict=True)]
        stages.append(StageOp(name, ins, outs, Region(block)))
        end.location = stages[-1].location = stage.location
    Rewriter.insert_op(stages, InsertPoint.before(stage))
    for position, v in enumerate(body.outputs):
        old, new = stage.outs[position], [made.outs[position] for made in stages]
        for user in list(dict.fromkeys(use.operation for use in old.uses)):
            assert isinstance(user, BufferOp | StoreOp)
            _with_writers(
                user, old, axis.dim_of(v), [(made, start) for made, (start, _) in zip(new, blocks, strict=True)]
            )
    Rewriter.erase_op(stage)
    return stages[0], stages[1]


def _type(value: SSAValue) -> StreamType:
    """The type of a stream."""
    assert isinstance(value.type, StreamType)
    return value.type


def _narrow(value: SSAValue, dim: int, size: int) -> StreamType:
    """The type of a stream of which each tile has `size` indices of `dim`."""
    stream = stream_of(value)
    return StreamType.from_stream(replace(stream, tile=(*stream.tile[:dim], size, *stream.tile[dim + 1 :])))


def _shift(view: View, dim: int, start: int) -> View:
    return View(view.offset + start * view.strides[dim], view.strides)


def _with_readers(
    buffer: BufferOp, more: Sequence[tuple[StreamType, View]], gone: Collection[SSAValue]
) -> Sequence[SSAValue]:
    """Put a buffer with `more` readers, and without those that are `gone`, in the place of one; the new streams."""
    ports = list(zip(buffer.outs, views(buffer.out_views), strict=True))
    kept = [(out, view) for out, view in ports if out not in gone]
    made = BufferOp(
        buffer.ins,
        views(buffer.in_views),
        buffer.buffer_type.shape,
        [*(out.type for out, _ in kept), *(type for type, _ in more)],
        [*(view for _, view in kept), *(view for _, view in more)],
        buffer.fill.value.data,
    )
    made.location = buffer.location
    Rewriter.insert_op(made, InsertPoint.before(buffer))
    new = dict(zip((out for out, _ in kept), made.outs, strict=False))
    for out, _ in ports:
        out.replace_all_uses_with(new.get(out, made.outs[-1]))  # the op that takes what is gone goes with it
    Rewriter.erase_op(buffer)
    return made.outs[len(kept) :]


def _with_writers(user: BufferOp | StoreOp, old: SSAValue, dim: int, new: Sequence[tuple[SSAValue, int]]) -> None:
    """Let streams that each start at an index of `dim` write what one stream wrote."""
    ins: list[SSAValue] = []
    placed: list[View] = []
    for value, view in zip(user.ins, views(user.in_views), strict=True):
        some = [(made, _shift(view, dim, start)) for made, start in new] if value is old else [(value, view)]
        ins += [made for made, _ in some]
        placed += [moved for _, moved in some]
    if isinstance(user, StoreOp):
        made = StoreOp(ins, placed, user.tensor.type)
    else:
        made = BufferOp(
            ins,
            placed,
            user.buffer_type.shape,
            [out.type for out in user.outs],
            views(user.out_views),
            user.fill.value.data,
        )
    made.location = user.location
    Rewriter.replace_op(user, made)


def _explain(stage: StageOp, chosen: Split, ways: Sequence[tuple[Split, int, float]], target: float) -> None:
    if current() is None:
        return
    candidates: list[Candidate] = []
    for split, _, cycles in ways:
        slow = "slower than the other stages of its phase" if cycles > target else "more units than it needs"
        candidates.append(Candidate(_spelt(split), cycles, "" if split is chosen else slow))
    decide("parts", stage, _spelt(chosen), candidates, "cycles")


def _spelt(split: Split) -> str:
    rest = f" and a rest of {split.rest[1]} on dim {split.rest[0]}" if split.rest is not None else ""
    return (" x ".join(f"{n} on dim {dim}" for dim, n in split.parts) or "whole") + rest


@dataclass(frozen=True)
class ParallelizePass(Pass):
    """Give each stage as many symmetric units as its work needs, so that all stages of a phase take about as long.

    Assumes tiled stages and a device in the module. Output tiles are cut along one or two axes of the body, by what the
    parts cost on a unit and its ports; where that is the same, a contraction by columns, other bodies by rows. Stages
    that wait for a whole buffer work in a later phase; the times of all phases are chosen such that their sum is least
    for the units that the section may take. Units that are left go to stages that a tile passes one after the other,
    where they save most on its way through. Where several runs follow each other (`dataflow.runs`), all phases work at
    the same time, on runs of their own, and have one time.

    Columns that no number of parts divides well have parts that fill lanes or stages, and a rest: a stage of its own
    that reads and writes the same buffers beside the others.

        dataflow.stage "matmul_0"(…) : …   =>   dataflow.stage "matmul_0"(…) par [2 by 36] : …
    """

    name = "parallelize"
    share: float = option(0.95, "share of the compute units that a section may take", low=0.0, high=1.0)
    most: int = option(512, "most units for one piece of a stage", low=1)

    by: str = option("time", "what decides: the modelled time, or equal shares of the units", choices=("time", "equal"))

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        device = device_of(module)
        runs, same = runs_of(module), constants(module) if runs_of(module) > 1 else set[SSAValue]()
        changed = [
            spread(
                section,
                device,
                self.share,
                self.most,
                self.by,
                runs > 1 and overlap(section, device, same, runs, self.share).across,
            )
            for section in sections(module)
        ]
        return any(changed)
