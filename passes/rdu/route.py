"""route: every flow gets its way through the mesh."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, ModuleOp, StringAttr, f64, i64

from headrace.dialects.machine.attributes import device_of
from headrace.dialects.machine.cost import credits_for
from headrace.dialects.machine.device import Device
from headrace.dialects.rdu.attributes import RoutesAttr
from headrace.dialects.rdu.ops import ConfigOp, FlowOp, PcuOp, UnitOp
from headrace.dialects.rdu.routes import Routes, ways_of
from headrace.dialects.support import locations
from headrace.dialects.support.diagnostics import CompileError, Diagnostic
from headrace.dialects.support.journal import Candidate, count, current, decide, highest
from headrace.passes.analysis.pairs import Ints, flow_pairs
from headrace.passes.analysis.routing import (
    Flow,
    Routing,
    RoutingProblem,
    least_wirelength,
    solve_routing,
    worst_cut,
)
from headrace.passes.analysis.unit_cost import ConfigCost
from headrace.passes.infra.base import Pass, option


def route(config: ConfigOp, device: Device, reroutes: int, overload: bool) -> Routing:
    """Route one placed config; a refusal names the config."""
    units: dict[str, UnitOp] = {u.title: u for u in config.units}
    at = {
        name: np.array(u.sites.get_values() if u.sites is not None else (), np.int64).reshape(-1, 2)
        for name, u in units.items()
    }
    cost = ConfigCost(config, device)
    flows = config.flows
    pairs = [flow_pairs(flow, units) for flow in flows]
    demands: list[Flow] = []
    members: list[tuple[int, Ints]] = []  # flow number and pair numbers of every demand
    for number, (flow, p) in enumerate(zip(flows, pairs, strict=True)):
        width = cost.words_per_cycle(flow, len(p))
        for rows, shared in _same_words(flow, p, units):
            name = f"{flow.ends[0]} -> {flow.ends[1]}"
            source, target = at[flow.ends[0]][p[rows, 0]], at[flow.ends[1]][p[rows, 1]]
            demands.append(Flow(name, source, target, width, shared))
            members.append((number, rows))
    try:
        problem = RoutingProblem.on(device, demands)
        found = solve_routing(problem, None if reroutes < 0 else reroutes, allow_overload=overload)
    except CompileError as error:
        raise CompileError.many(
            Diagnostic(
                d.code,
                f"route: config @{config.sym_name.data}: {d.what}",
                d.why,
                d.fix,
                d.location or locations.of(config),
            )
            for d in error.diagnostics
        ) from None
    ways: list[list[Ints]] = [[np.zeros(0, np.int64)] * len(p) for p in pairs]
    channels: list[list[int]] = [[0] * len(p) for p in pairs]
    for demand, (number, rows) in enumerate(members):
        first = int(found.offsets[demand])
        for i, row in enumerate(rows.tolist()):
            begin, end = int(found.begin[first + i]), int(found.begin[first + i + 1])
            ways[number][row] = found.links[begin:end]
            channels[number][row] = int(found.channel[first + i])
    for flow, p, way, channel in zip(flows, pairs, ways, channels, strict=True):
        lengths = [len(w) for w in way]
        steps = ways_of(np.concatenate([np.zeros(0, np.int64), *way]), np.cumsum([0, *lengths]).tolist())
        ends = tuple((int(a), int(b)) for a, b in p.tolist())
        flow.routes = RoutesAttr(Routes(ends, steps, tuple(channel)))
        flow.credits = IntegerAttr(max(2, credits_for(device, max(lengths, default=0))), i64)
    config.link_load = FloatAttr(float(found.max_load) / device.network.links, f64)
    config.phase = StringAttr("routed")
    count("routes", sum(map(len, pairs)))
    count("nets routed again", found.rerouted)
    count("links overloaded", int((found.load > device.network.links * (1 + 1e-9)).sum()))
    if current() is not None:
        _report(config, problem, found)
    return found


def _report(config: ConfigOp, problem: RoutingProblem, found: Routing) -> None:
    """Write how good the routes are into the journal: beside what no routing can do better."""
    cut = worst_cut(problem)
    count("wirelength of the routes", round(found.wirelength))
    count("wirelength of the routes, at least", round(least_wirelength(problem)))
    highest("busiest link, % of its words", round(100 * found.max_load / problem.capacity))
    highest("busiest link, % at least", round(100 * (cut.per_link if cut is not None else 0.0) / problem.capacity))
    highest("busiest link, % in dimension order", round(100 * found.ordered / problem.capacity))
    highest("identifiers on a link", found.max_flows)
    candidates = [Candidate("as routed", found.max_load)]
    if found.rerouted:
        candidates.append(Candidate("dimension order", found.ordered, "more words on the busiest link"))
    if cut is not None:
        candidates.append(Candidate("any", cut.per_link, f"a bound: {cut.demand:.4g} words must {cut.where}"))
    chosen = f"{found.max_load:.4g} of {problem.capacity:.4g} words on the busiest link, {found.max_flows} of "
    chosen += f"{problem.flow_ids} identifiers; {found.rerouted} nets routed again"
    decide("routes", config, chosen, candidates, "words a cycle on the busiest link")


def _same_words(flow: FlowOp, pairs: Ints, units: dict[str, UnitOp]) -> list[tuple[Ints, bool]]:
    """Pairs of a flow in groups (row numbers) that may share a multicast tree: destinations at the same place among the
    space loops that move the tile get the same words from a memory; whatever else a source sends differs by target."""
    everyone = np.arange(len(pairs))
    if not isinstance(units[flow.ends[1]], PcuOp) or isinstance(units[flow.ends[0]], PcuOp):
        return [(everyone, False)]
    place = np.zeros(1, np.int64)
    for loop in flow.stream.stream.space:
        step = np.arange(loop.count, dtype=np.int64) if loop.dim >= 0 else np.zeros(loop.count, np.int64)
        place = (place[:, None] * (loop.count if loop.dim >= 0 else 1) + step).ravel()
    mine = place[pairs[:, 1]]
    order = np.argsort(mine, kind="stable")
    cuts = np.flatnonzero(np.diff(mine[order])) + 1
    return [(rows, True) for rows in np.split(everyone[order], cuts)]


@dataclass(frozen=True)
class RoutePass(Pass):
    """Give every pair of sites of every flow its links, and every flow the credits that cover its longest way.

    Assumes phase placed and a device in the module. Dimension order first; overloaded links are negotiated: flows are
    ripped up and routed around them at rising prices. What no routing can do is refused with the cut that is too full.
    Each route obeys a turn rule with its own virtual channel, so that no cycle of waiting links can arise; the checker
    rebuilds loads, paths and dependencies from the result.

        rdu.flow @b -> @gemm carries …   =>   rdu.flow @b -> @gemm carries … credits 12 routes [0 -> 0 e3s2, …]
    """

    name = "route"
    reroutes: int = option(-1, "flows that may be routed again after dimension order; -1: the default", low=-1)

    overload: bool = option(True, "accept links that carry more than they can: the config runs slower by that much")

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        device = device_of(module)
        changed = False
        for config in module.body.block.ops:
            if isinstance(config, ConfigOp) and config.phase.data == "placed":
                route(config, device, self.reroutes, self.overload)
                changed = True
        return changed
