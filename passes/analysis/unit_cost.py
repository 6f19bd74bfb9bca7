"""Cycles of units and configs, by the analytic model: what bounds a section, from its units alone."""

from __future__ import annotations

from headrace.dialects.machine.cost import agcu_cycles, sram_cycles
from headrace.dialects.machine.device import Device
from headrace.dialects.rdu.ops import AgcuOp, ConfigOp, FlowOp, PcuOp, UnitOp
from headrace.dialects.support import dtypes
from headrace.passes.analysis.bodies import Body
from headrace.passes.analysis.pieces import Piece, piece_cost


def flow_bytes(flow: FlowOp) -> int:
    """Bytes that a flow carries in all, over all sites."""
    stream = flow.stream.stream
    return stream.steps * stream.sites * stream.tile_elements * dtypes.byte_size(stream.dtype)


def pcu_cycles(unit: PcuOp, steps: int, device: Device) -> float:
    """Cycles that a unit needs for all its steps."""
    body = Body.of(unit.body.block)
    members = tuple(i for i, op in enumerate(body.ops) if op.operands)
    return steps * piece_cost(body, Piece(unit.mode.data, members), body.types, device).interval


def config_cycles(config: ConfigOp, device: Device) -> float:
    """Cycles of the slowest unit group of a config: the least time that a run of it can take."""
    units: dict[str, UnitOp] = {u.title: u for u in config.units}
    traffic: dict[str, list[int]] = {name: [0, 0] for name in units}
    steps: dict[str, int] = {}
    for flow in config.flows:
        source, target = flow.ends
        traffic[source][0] += flow_bytes(flow)
        traffic[target][1] += flow_bytes(flow)
        steps[target] = max(steps.get(target, 0), flow.stream.stream.steps)
    slowest = 1.0
    for name, unit in units.items():
        out, into = traffic[name]
        if isinstance(unit, PcuOp):
            slowest = max(slowest, pcu_cycles(unit, steps.get(name, 1), device))
        elif isinstance(unit, AgcuOp):
            slowest = max(slowest, agcu_cycles(device, out + into, units=unit.size))
        else:
            slowest = max(
                slowest,
                sram_cycles(device, out, units=unit.size),
                sram_cycles(device, into, write=True, units=unit.size),
            )
    return slowest
