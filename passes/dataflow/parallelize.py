"""parallelize: spread stages over symmetric units so that their rates balance."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from headrace.dialects.dataflow.ops import SectionOp, StageOp, stream_of
from headrace.dialects.machine.attributes import device_of
from headrace.dialects.machine.device import Device
from headrace.dialects.support.journal import Candidate, count, current, decide, decline, may
from headrace.passes.analysis.bodies import Body
from headrace.passes.analysis.pieces import Split, pieces, splits
from headrace.passes.analysis.sections import sections
from headrace.passes.infra.base import Pass, option


@dataclass
class Work:
    """A stage to spread: its steps, how many units in a chain its body takes, and the splits that are worth it."""

    stage: StageOp
    steps: int
    pieces: int
    splits: list[Split]

    def fit(self, target: float) -> Split:
        """The least split that brings the stage down to `target` cycles, or the fastest there is."""
        return next((s for s in self.splits if self.steps * s.interval <= target), self.splits[-1])

    def units(self, target: float) -> int:
        """Units that this split takes."""
        return self.pieces * self.fit(target).units


def spread(section: SectionOp, device: Device, share: float, most: int) -> bool:
    """Choose the parts of every stage of a section: the smallest common target time that the units allow."""
    works: list[Work] = []
    for stage in section.body.block.ops:
        if isinstance(stage, StageOp):
            body = Body.of(stage.body.block)
            steps = stream_of(stage.outs[0]).steps
            works.append(Work(stage, steps, len(pieces(body, device)), splits(body, device, most)))
    if not works:
        return False
    budget = max(int(device.count("pcu") * share), 1)
    low, high = 0.0, max(w.steps * w.splits[0].interval for w in works)
    for _ in range(40):
        middle = (low + high) / 2
        if sum(w.units(middle) for w in works) <= budget:
            high = middle
        else:
            low = middle
    changed = False
    for work in works:
        parts = work.fit(high).parts
        count("compute units", work.units(high))
        if parts == work.stage.parts:
            cycles = work.steps * work.fit(high).interval
            why = f"the section may take {high:,.0f}" if cycles <= high else "no split is faster"
            decline("spread", work.stage, f"it takes {cycles:,.0f} cycles as it is; {why}")
        elif may("spread", work.stage):
            _explain(work, high)
            work.stage.parts = parts
            changed = True
    return changed


def _explain(work: Work, target: float) -> None:
    if current() is None:
        return
    chosen = work.fit(target)
    candidates: list[Candidate] = []
    for split in work.splits:
        cycles = work.steps * split.interval
        slow = "slower than the other stages" if cycles > target else "more units than it needs"
        candidates.append(Candidate(_spelt(split), cycles, "" if split is chosen else slow))
    decide("parts", work.stage, _spelt(chosen), candidates, "cycles")


def _spelt(split: Split) -> str:
    return " x ".join(f"{n} on dim {dim}" for dim, n in split.parts) or "whole"


@dataclass(frozen=True)
class ParallelizePass(Pass):
    """Give each stage as many symmetric units as its work needs, so that all stages of a section take about as long.

    Assumes tiled stages and a device in the module. Output tiles are cut along one or two axes of the body, by what the
    parts cost on a unit; where that is the same, a contraction by columns, other bodies by rows. The target time is
    found by bisection over the units that the section may take.

        dataflow.stage "matmul_0"(…) : …   =>   dataflow.stage "matmul_0"(…) par [2 by 36] : …
    """

    name = "parallelize"
    share: float = option(0.75, "share of the compute units that a section may take", low=0.0, high=1.0)
    most: int = option(128, "most units for one piece of a stage", low=1)

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        device = device_of(module)
        changed = [spread(section, device, self.share, self.most) for section in sections(module)]
        return any(changed)
