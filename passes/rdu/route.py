"""route: every flow gets its way through the mesh."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, ModuleOp, StringAttr, i32, i64

from headrace.dialects.machine.attributes import device_of
from headrace.dialects.machine.cost import credits_for
from headrace.dialects.machine.device import Device
from headrace.dialects.rdu.ops import ConfigOp, UnitOp
from headrace.dialects.support.diagnostics import CompileError, Diagnostic
from headrace.passes.analysis.pairs import flow_pairs, words_per_cycle
from headrace.passes.analysis.routing import Flow, Routing, RoutingProblem, solve_routing
from headrace.passes.analysis.unit_cost import config_cycles
from headrace.passes.infra.base import Pass, option


def route(config: ConfigOp, device: Device, reroutes: int) -> Routing:
    """Route one placed config; a refusal names the config."""
    units: dict[str, UnitOp] = {u.title: u for u in config.units}
    at = {
        name: np.array(u.sites.get_values() if u.sites is not None else (), np.int64).reshape(-1, 2)
        for name, u in units.items()
    }
    cycles = config_cycles(config, device)
    flows = config.flows
    pairs = [flow_pairs(flow, units) for flow in flows]
    demands = [
        Flow(
            f"{flow.ends[0]} -> {flow.ends[1]}",
            at[flow.ends[0]][p[:, 0]],
            at[flow.ends[1]][p[:, 1]],
            words_per_cycle(flow, p, cycles, device),
        )
        for flow, p in zip(flows, pairs, strict=True)
    ]
    try:
        found = solve_routing(RoutingProblem.on(device, demands), None if reroutes < 0 else reroutes)
    except CompileError as error:
        raise CompileError.many(
            Diagnostic(d.code, f"route: config @{config.sym_name.data}: {d.what}", d.why, d.fix, d.location)
            for d in error.diagnostics
        ) from None
    for number, (flow, p) in enumerate(zip(flows, pairs, strict=True)):
        first, last = int(found.offsets[number]), int(found.offsets[number + 1])
        begin = found.begin[first : last + 1]
        links = found.links[int(begin[0]) : int(begin[-1])]
        flow.pairs = DenseArrayBase.from_list(i32, p.ravel().tolist())
        flow.starts = DenseArrayBase.from_list(i32, (begin - begin[0]).tolist())
        flow.links = DenseArrayBase.from_list(i32, links.tolist())
        longest = int(np.diff(begin).max(initial=0))
        flow.credits = IntegerAttr(max(2, credits_for(device, longest)), i64)
    config.phase = StringAttr("routed")
    return found


@dataclass(frozen=True)
class RoutePass(Pass):
    """Give every pair of sites of every flow its links, and every flow the credits that cover its longest way.

    Assumes phase placed and a device in the module. Dimension order first; overloaded links are negotiated: flows are
    ripped up and routed around them at rising prices. Each route obeys a turn rule with its own virtual channel, so that
    no cycle of waiting links can arise; the checker rebuilds loads, paths and dependencies from the result.

        rdu.flow @b -> @gemm carries <…>   =>   … {pairs = array<i32: 0, 0>, starts = array<i32: 0, 3>, links = …}
    """

    name = "route"
    reroutes: int = option(-1, "flows that may be routed again after dimension order; -1: the default", low=-1)

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        device = device_of(module)
        changed = False
        for config in module.body.block.ops:
            if isinstance(config, ConfigOp) and config.phase.data == "placed":
                route(config, device, self.reroutes)
                changed = True
        return changed
