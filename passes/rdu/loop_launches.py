"""loop-launches: launches that repeat at constant steps become loops of the chip."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block

from headrace.dialects.rdu.ops import LaunchOp, LoopOp, ProgramOp, RegionOp
from headrace.dialects.rdu.program import addresses
from headrace.dialects.support import locations
from headrace.dialects.support.journal import count, decline, may
from headrace.passes.analysis.rounds import Rounds, rounds
from headrace.passes.infra.base import Pass, option

Round = tuple[LaunchOp, ...]


@dataclass(frozen=True)
class LoopLaunchesPass(Pass):
    """Let the chip repeat launches by itself: rounds of the same configs become a loop where each parameter advances by
    a constant number of bytes.

    Assumes regions with addresses; allocate-memory puts what rounds take one after the other at equal distance. The
    host may launch the first of a loop; what else it launches stays outside. Rounds whose parameters do not advance so,
    or lie in several memories, are cut into runs that do.

        rdu.launch @layer (@x, @w0, @y0) hw            rdu.loop 2 {
        rdu.launch @layer (@y0, @w1, @y1) hw     =>      rdu.launch @layer (@x, @w0, @y0) hw
                                                         rdu.launch @layer (@y0, @w1, @y1) hw
                                                       }
    """

    name = "loop-launches"

    min_times: int = option(2, "fewest rounds that a loop must have", unit="rounds", low=2)

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        changed = False
        for program in [op for op in module.body.block.ops if isinstance(op, ProgramOp)]:
            regions = {op.sym_name.data: op for op in program.regions_}
            free = program.of(LaunchOp)
            for found in rounds(free):
                for run in _runs(found, regions):
                    first = run[0][0]
                    if len(run) < self.min_times:
                        decline("loop-launches", first, _reason(found, regions))
                    elif may("loop-launches", first):
                        _loop(run)
                        count("loops")
                        count("rounds in loops", len(run))
                        changed = True
        return changed


def _steps(before: Round, after: Round, regions: Mapping[str, RegionOp]) -> tuple[int, ...] | None:
    """By how many bytes each parameter advances from one round to the next; None when one has no address, or lies in
    another memory."""
    found: list[int] = []
    for a, b in zip(before, after, strict=True):
        ours, theirs = addresses(a, regions), addresses(b, regions)
        if ours is None or theirs is None or any(x[0] != y[0] for x, y in zip(ours, theirs, strict=True)):
            return None
        found += [y[1] - x[1] for x, y in zip(ours, theirs, strict=True)]
    return tuple(found)


def _runs(found: Rounds, regions: Mapping[str, RegionOp]) -> list[list[Round]]:
    """The rounds cut where a parameter advances by another step than before."""
    steps = [_steps(a, b, regions) for a, b in pairwise(found.rounds)]
    runs: list[list[Round]] = [[found.rounds[0]]]
    for i, one in enumerate(found.rounds[1:]):
        run = runs[-1]
        if steps[i] is None:
            runs.append([one])
        elif len(run) == 1 or steps[i] == steps[i - 1]:
            run.append(one)
        else:  # two rounds have a constant step whatever it is: the second belongs to what follows
            runs.append([run.pop(), one] if len(run) == 2 else [one])
    return runs


def _reason(found: Rounds, regions: Mapping[str, RegionOp]) -> str:
    if _steps(found.rounds[0], found.rounds[0], regions) is None:
        return "regions have no addresses yet: run allocate-memory first"
    return f"the parameters of {len(found.rounds)} rounds do not advance by constant steps within one memory"


def _loop(run: list[Round]) -> None:
    launches = [launch for one in run for launch in one]
    block = launches[0].parent_block()
    assert block is not None
    body = Block()
    loop = LoopOp(len(run), body)
    loop.location = locations.fuse(launch.location for launch in launches)
    block.insert_op_before(loop, launches[0])
    for launch in launches:
        launch.detach()
    body.add_ops(launches)
