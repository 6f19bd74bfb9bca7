"""parallelize: spread stages over symmetric units so that their rates balance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from headrace.dialects.dataflow.ops import SectionOp, StageOp, stream_of
from headrace.dialects.machine.attributes import device_of
from headrace.dialects.machine.device import Device
from headrace.dialects.tensor.shapes.bodies import Axis
from headrace.passes.analysis.bodies import Body
from headrace.passes.analysis.pieces import CONTRACTIONS, body_interval, pieces
from headrace.passes.analysis.sections import sections
from headrace.passes.infra.base import Pass, option


@dataclass
class Work:
    """A stage to spread: cycles of the whole stage on one unit a piece, and the splits it may take, least first."""

    stage: StageOp
    cycles: float
    pieces: int
    splits: list[tuple[tuple[int, int], ...]]

    def fit(self, target: float) -> tuple[tuple[int, int], ...]:
        """The least split that brings the stage down to `target` cycles, or the largest there is."""
        for split in self.splits:
            if self.cycles / prod(p for _, p in split) <= target:
                return split
        return self.splits[-1]

    def units(self, target: float) -> int:
        """Units that this split takes."""
        return self.pieces * prod(p for _, p in self.fit(target))


def splits(axes: Sequence[Axis], body: Body, lanes: int, most: int) -> list[tuple[tuple[int, int], ...]]:
    """Ways to cut the output tile over units, in order of units: columns of a contraction first (each unit keeps its
    share of the weights), rows first elsewhere; a second dim only when the first is used up."""
    out = body.outputs[0]
    contraction = next((op for op in body.ops if op.name in CONTRACTIONS), None)
    last = len(body.types[out].shape) - 1
    ordered = [a for a in axes if a.dim_of(out) != last]
    columns = [a for a in axes if a.dim_of(out) == last]
    if contraction is not None and contraction.name == "tensor.conv":
        ordered = sorted(axes, key=lambda a: (a.dim_of(out) != 1, a.dim_of(out)))
        ordered = [a for a in ordered if a.dim_of(out) != last]
    elif contraction is not None:
        ordered = columns + ordered
    else:
        ordered = ordered + columns
    found: list[tuple[tuple[int, int], ...]] = [()]
    base: tuple[tuple[int, int], ...] = ()
    for axis in ordered:
        dim = axis.dim_of(out)
        size = axis.size
        least = lanes if dim == last else 1
        counts = [d for d in range(2, size + 1) if size % d == 0 and size // d >= least]
        for parts in counts:
            split = (*base, (dim, parts))
            if prod(p for _, p in split) <= most:
                found.append(split)
        if len(base) == 2 or not counts:
            continue
        base = found[-1]
    return sorted(set(found), key=lambda s: (prod(p for _, p in s), len(s), s))


def spread(section: SectionOp, device: Device, share: float, most: int) -> bool:
    """Choose the parts of every stage of a section: the smallest common target time that the units allow."""
    works: list[Work] = []
    for stage in section.body.block.ops:
        if not isinstance(stage, StageOp):
            continue
        body = Body.of(stage.body.block)
        steps = stream_of(stage.outs[0]).steps
        found = splits(body.axes(), body, device.pcu.lanes, most)
        works.append(Work(stage, steps * body_interval(body, body.types, device), len(pieces(body, device)), found))
    if not works:
        return False
    budget = max(int(device.count("pcu") * share), 1)
    low, high = 0.0, max(w.cycles for w in works)
    for _ in range(40):
        middle = (low + high) / 2
        if sum(w.units(middle) for w in works) <= budget:
            high = middle
        else:
            low = middle
    changed = False
    for work in works:
        parts = work.fit(high)
        if parts != work.stage.parts:
            work.stage.parts = parts
            changed = True
    return changed


@dataclass(frozen=True)
class ParallelizePass(Pass):
    """Give each stage as many symmetric units as its work needs, so that all stages of a section take about as long.

    Assumes tiled stages and a device in the module. Output tiles are cut along axes of the body: a contraction by
    columns first, other bodies by rows. The target time is found by bisection over the units that the section may take.

        dataflow.stage "matmul_0"(…) : …   =>   dataflow.stage "matmul_0"(…) par array<i64: 2, 36> : …
    """

    name = "parallelize"
    share: float = option(0.6, "share of the compute units that a section may take", low=0.0, high=1.0)
    most: int = option(64, "most units for one piece of a stage", low=1)

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        device = device_of(module)
        changed = [spread(section, device, self.share, self.most) for section in sections(module)]
        return any(changed)
