"""place: every unit gets a site of the device."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import DenseArrayBase, ModuleOp, StringAttr, i32

from headrace.dialects.machine.attributes import device_of
from headrace.dialects.machine.device import Device
from headrace.dialects.rdu.ops import ConfigOp, UnitOp
from headrace.dialects.support import locations
from headrace.dialects.support.diagnostics import CompileError, Diagnostic
from headrace.dialects.support.journal import Candidate, count, current, decide
from headrace.passes.analysis.pairs import flow_pairs
from headrace.passes.analysis.placement import Group, Net, Placement, PlacementProblem, solve_placement
from headrace.passes.analysis.unit_cost import ConfigCost
from headrace.passes.infra.base import Pass, option


def problem_of(config: ConfigOp, device: Device) -> PlacementProblem:
    """Groups and nets of a config; a net's weight is the words per cycle that each pair carries."""
    units = config.units
    index = {u.title: i for i, u in enumerate(units)}
    named: dict[str, UnitOp] = {u.title: u for u in units}
    cost = ConfigCost(config, device)
    nets: list[Net] = []
    for flow in config.flows:
        pairs = flow_pairs(flow, named)
        weight = cost.words_per_cycle(flow, len(pairs))
        nets.append(Net(index[flow.ends[0]], index[flow.ends[1]], pairs, weight))
    return PlacementProblem.on(device, [Group(u.title, u.KIND, u.size) for u in units], nets)


def place(config: ConfigOp, device: Device, seed: int, moves: int, start: str) -> Placement:
    """Place one config; a refusal names the config."""
    try:
        found = solve_placement(problem_of(config, device), seed, None if moves < 0 else moves, start)
    except CompileError as error:
        raise CompileError.many(
            Diagnostic(
                d.code,
                f"place: config @{config.sym_name.data}: {d.what}",
                d.why,
                d.fix,
                d.location or locations.of(config),
            )
            for d in error.diagnostics
        ) from None
    for unit, at in zip(config.units, found.positions, strict=True):
        unit.sites = DenseArrayBase.from_list(i32, [int(c) for c in at.ravel()])
    config.phase = StringAttr("placed")
    count("units placed", sum(map(len, found.positions)))
    count("moves tried", found.moves)
    if current() is not None:
        _report(config, found)
    return found


def _report(config: ConfigOp, found: Placement) -> None:
    """Write how good the placement is into the journal: beside what no placement can do better."""
    count("wirelength of the placement", round(found.cost))
    count("wirelength of the placement, at least", round(found.lower_bound))
    starts = [Candidate(name, cost, "longer wires" if i else "") for i, (name, cost) in enumerate(found.starts)]
    chosen = (
        f"{starts[0].name if starts else 'none'}, then {found.moves} moves: {found.cost:.4g}, "
        f"{found.ratio:.2f} x the lower bound"
    )
    decide("start", config, chosen, starts, "words x links a cycle")


@dataclass(frozen=True)
class PlacePass(Pass):
    """Give every unit a site of its kind, close to the units that it talks to.

    Assumes phase virtual and a device in the module. Wirelength × bandwidth is minimised: constructive starts, then
    annealing over moves of whole groups and of single units, seeded and bounded in moves; the checker always runs.

        rdu.pcu @gemm systolic x 2 … { … }   =>   rdu.pcu @gemm systolic x 2 at [3 4, 5 4] … { … }
    """

    name = "place"
    seed: int = option(0, "seed of the annealing", low=0)
    moves: int = option(-1, "proposed moves in all; -1: in proportion to the units", low=-1)
    start: str = option("best", "placement to begin with: the best of several, or row by row", choices=("best", "rows"))

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        device = device_of(module)
        changed = False
        for config in module.body.block.ops:
            if isinstance(config, ConfigOp) and config.phase.data == "virtual":
                place(config, device, self.seed, self.moves, self.start)
                changed = True
        return changed
