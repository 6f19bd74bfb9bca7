"""parallelize: spread stages over symmetric units so that their rates balance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from headrace.dialects.dataflow.ops import GatherOp, ScatterOp, SectionOp, StageOp
from headrace.dialects.machine.attributes import device_of
from headrace.dialects.machine.device import Device
from headrace.dialects.support.journal import Candidate, count, current, decide, decline, may
from headrace.passes.analysis.phases import Grid, Memories, options, phases
from headrace.passes.analysis.pieces import Split
from headrace.passes.analysis.sections import sections
from headrace.passes.infra.base import Pass, option


def spread(section: SectionOp, device: Device, share: float, most: int, by: str) -> bool:
    """Choose the parts of every stage of a section: the times of its phases with the least sum that the units allow, or
    (`by` equal) the same share of the units for all."""
    processes = [op for op in section.body.block.ops if isinstance(op, StageOp | GatherOp | ScatterOp)]
    memories = Memories(device)
    place = phases(processes, device, memories)
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
    changed = False
    for op, some in ways.items():
        target = float(grid.times[times[place[op].phase]]) * (1 + 1e-9) if times else float("inf")
        if by == "equal":
            target = min((way[2] for way in some if way[1] <= budget // len(ways)), default=target)
        split, units, cycles = next(way for way in some if way[2] <= target)
        count("compute units", units)
        if split.parts == op.parts:
            decline("spread", op, f"it takes {cycles:,.0f} cycles as it is; its phase may take {target:,.0f}")
        elif may("spread", op):
            _explain(op, split, some, target)
            op.parts = split.parts
            changed = True
    return changed


def _explain(stage: StageOp, chosen: Split, ways: Sequence[tuple[Split, int, float]], target: float) -> None:
    if current() is None:
        return
    candidates: list[Candidate] = []
    for split, _, cycles in ways:
        slow = "slower than the other stages of its phase" if cycles > target else "more units than it needs"
        candidates.append(Candidate(_spelt(split), cycles, "" if split is chosen else slow))
    decide("parts", stage, _spelt(chosen), candidates, "cycles")


def _spelt(split: Split) -> str:
    return " x ".join(f"{n} on dim {dim}" for dim, n in split.parts) or "whole"


@dataclass(frozen=True)
class ParallelizePass(Pass):
    """Give each stage as many symmetric units as its work needs, so that all stages of a phase take about as long.

    Assumes tiled stages and a device in the module. Output tiles are cut along one or two axes of the body, by what the
    parts cost on a unit and its ports; where that is the same, a contraction by columns, other bodies by rows. Stages
    that wait for a whole buffer work in a later phase; the times of all phases are chosen such that their sum is least
    for the units that the section may take.

        dataflow.stage "matmul_0"(…) : …   =>   dataflow.stage "matmul_0"(…) par [2 by 36] : …
    """

    name = "parallelize"
    share: float = option(0.9, "share of the compute units that a section may take", low=0.0, high=1.0)
    most: int = option(512, "most units for one piece of a stage", low=1)

    by: str = option("time", "what decides: the modelled time, or equal shares of the units", choices=("time", "equal"))

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        device = device_of(module)
        changed = [spread(section, device, self.share, self.most, self.by) for section in sections(module)]
        return any(changed)
