"""Reads the program of an artifact into the tables of the audit. An artifact has no virtual channels: the runtime does
not need them, so what depends on them is not looked at."""

from __future__ import annotations

import numpy as np

from headrace.dialects.machine.device import Device
from headrace.runtime import program as runtime
from headrace.tools.audit.program import (
    AnyUnit,
    BodyOp,
    Buffer,
    Compute,
    Config,
    Flow,
    Generator,
    Launch,
    Param,
    Port,
    Region,
    Repeat,
    Routed,
)


def read_program(program: runtime.Program) -> Routed:
    """The tables of a program."""
    device = Device.from_dict(program.device)
    configs = tuple(_config(one, device) for one in program.configs)
    regions = tuple(Region(r.name, r.kind, r.type, r.memory, r.address, "", r.runs) for r in program.regions)

    def launch(one: runtime.Launch) -> Launch:
        args = tuple((program.regions[region].name, offset) for region, offset in one.args)
        return Launch(program.configs[one.config].name, args, one.location, one.mode == "sw", one.runs)

    ports = tuple(
        Port(kind, p.name, p.type, program.regions[p.region].name, p.offset)
        for kind, some in (("input", program.inputs), ("output", program.outputs))
        for p in some
    )
    note = "an artifact holds no virtual channels and claims no link load; audit the IR for these"
    loops = tuple(Repeat(one.first, one.end, one.times) for one in program.loops)
    return Routed(
        device, configs, regions, tuple(map(launch, program.launches)), ports, (note,), loops, program.sockets
    )


def _config(config: runtime.Config, device: Device) -> Config:
    units = tuple(map(_unit, config.units))
    params = tuple(Param(p.name, p.type, p.direction) for p in config.params)
    flows = tuple(_flow(flow, units, device.mesh[0]) for flow in config.flows)
    return Config(config.name, params, units, flows, None, "")


def _unit(unit: runtime.Unit) -> AnyUnit:
    head = unit.name, np.asarray(unit.sites, np.int64).reshape(-1, 2), unit.location
    match unit:
        case runtime.Pcu():
            ops = tuple(BodyOp(op.name, op.attrs, op.operands, op.results) for op in unit.ops)
            return Compute(*head, unit.mode, unit.inputs, ops, unit.types, unit.outputs)
        case runtime.Pmu():
            type = runtime.TT(unit.shape, unit.dtype)
            return Buffer(*head, type, unit.frames, unit.copies, unit.split_dim, unit.banks, unit.kept)
        case runtime.Agcu():
            return Generator(*head, unit.direction, unit.param)


def _flow(flow: runtime.Flow, units: tuple[AnyUnit, ...], columns: int) -> Flow:
    links = np.asarray(flow.links, np.int64)
    switch = links // 4
    return Flow(
        flow.src,
        flow.src_port,
        flow.dst,
        flow.dst_port,
        flow.stream,
        flow.src_view,
        flow.dst_view,
        flow.credits,
        np.asarray(flow.pairs, np.int64).reshape(-1, 2),
        np.asarray(flow.starts, np.int64),
        switch % columns,
        switch // columns,
        links % 4,
        None,
        f"flow @{units[flow.src].name}:{flow.src_port} -> @{units[flow.dst].name}:{flow.dst_port}",
        units[flow.src].location,
    )
