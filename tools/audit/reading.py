"""Reads a routed module into the tables of the audit. Nothing but ops, properties and attributes is used."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr, ModuleOp
from xdsl.ir import SSAValue

from headrace.dialects.machine.attributes import device_of
from headrace.dialects.rdu.ops import (
    AgcuOp,
    ConfigOp,
    FlowOp,
    LaunchOp,
    LoopOp,
    PcuOp,
    PmuOp,
    ProgramOp,
    RegionOp,
    UnitOp,
)
from headrace.dialects.support import locations
from headrace.dialects.support.diagnostics import Collector
from headrace.dialects.tensor.base import attributes_of, tt
from headrace.dialects.tensor.shapes import TT
from headrace.tools.audit.program import (
    AnyUnit,
    BodyOp,
    Buffer,
    Compute,
    Config,
    Flow,
    Generator,
    Ints,
    Launch,
    Param,
    Port,
    Region,
    Repeat,
    Routed,
    no_ints,
)

LETTERS = "ewsn"
STEP_X = np.array([1, -1, 0, 0])
STEP_Y = np.array([0, 0, 1, -1])


def read_module(module: ModuleOp) -> Routed:
    """The routed program of a module; `CompileError` when there is none, or a config is not routed."""
    found = Collector()
    configs: list[Config] = []
    programs: list[ProgramOp] = []
    for op in module.body.block.ops:
        if isinstance(op, ProgramOp):
            programs.append(op)
        elif isinstance(op, ConfigOp) and op.phase.data == "routed":
            configs.append(_config(op, found))
        elif isinstance(op, ConfigOp):
            found.add(
                "not-routed",
                f"audit: config @{op.sym_name.data} is in phase {op.phase.data}",
                fix="run place and route",
                location=locations.of(op),
            )
    if not configs and not programs and not found.diagnostics:  # a program that computes nothing has no config
        found.add("not-routed", "audit: there is no config in this module", fix="lower it to phase rdu")
    found.raise_if_any()
    regions: list[Region] = []
    launches: list[Launch] = []
    loops: list[Repeat] = []
    ports: list[Port] = []
    for program in programs:
        regions += [_region(r) for r in program.regions_]
        for op in program.body.block.ops:
            inner = list(op.body.block.ops) if isinstance(op, LoopOp) else [op]
            first = len(launches)
            launches += [_launch(x) for x in inner if isinstance(x, LaunchOp)]
            if isinstance(op, LoopOp):
                loops.append(Repeat(first, len(launches), op.times.value.data))
        ports += [
            Port(p.kind.data, p.title.data, tt(p.type), p.region_name.string_value(), p.offset.value.data)
            for p in program.ports
        ]
    parts = tuple(configs), tuple(regions), tuple(launches), tuple(ports), (), tuple(loops)
    return Routed(device_of(module), *parts, _sockets(module))


def _sockets(module: ModuleOp) -> int:
    """How many sockets the mesh of a module has; 1 without one."""
    mesh = module.attributes.get("tensor.mesh")
    sizes = mesh.data.values() if isinstance(mesh, DictionaryAttr) else ()
    return prod(n.value.data for n in sizes if isinstance(n, IntegerAttr))


def _launch(op: LaunchOp) -> Launch:
    args = tuple((name, int(offset)) for name, offset in op.places)
    return Launch(op.config.string_value(), args, locations.of(op), op.mode.data == "sw", op.runs.value.data)


def _config(op: ConfigOp, found: Collector) -> Config:
    units = [_unit(u) for u in op.units]
    index = {u.name: i for i, u in enumerate(units)}
    name = op.sym_name.data
    flows: list[Flow] = []
    for flow in op.flows:
        if missing := [end for end in flow.ends if end not in index]:
            what = f"config @{name}: {flow.label} has no unit @{missing[0]}"
            found.add("unknown-unit", what, location=locations.of(flow))
        else:
            flows.append(_flow(flow, index, units))
    params = tuple(Param(p.title.data, tt(p.type), p.direction.data) for p in op.params)
    load = None if op.link_load is None else op.link_load.value.data
    return Config(name, params, tuple(units), tuple(flows), load, locations.of(op))


def _unit(op: UnitOp) -> AnyUnit:
    flat = op.sites.get_values() if op.sites is not None else ()
    head = op.title, np.array(flat, np.int64).reshape(-1, 2), locations.of(op)
    match op:
        case PcuOp():
            return _compute(op, *head)
        case PmuOp():
            numbers = (op.frames, op.copies, op.split_dim, op.banks)
            return Buffer(*head, tt(op.type), *(n.value.data for n in numbers), kept=op.kept is not None)
        case AgcuOp():
            return Generator(*head, op.direction.data, op.param.value.data)
        case _:
            raise TypeError(f"{op.name} is no unit")


def _compute(op: PcuOp, name: str, sites: Ints, location: str) -> Compute:
    block = op.body.block
    number: dict[SSAValue, int] = {}
    types: list[TT] = []

    def new(values: Sequence[SSAValue]) -> tuple[int, ...]:
        for value in values:
            number[value] = len(types)
            types.append(tt(value))
        return tuple(number[v] for v in values)

    new(block.args)
    ops: list[BodyOp] = []
    outputs: tuple[int, ...] = ()
    for one in block.ops:
        operands = tuple(number[v] for v in one.operands)
        if one is block.last_op:
            outputs = operands
        else:
            ops.append(BodyOp(one.name, attributes_of(one), operands, new(one.results)))
    return Compute(name, sites, location, op.mode.data, len(block.args), tuple(ops), tuple(types), outputs)


def _flow(op: FlowOp, index: dict[str, int], units: Sequence[AnyUnit]) -> Flow:
    source, target = (index[name] for name in op.ends)
    routes = op.routes.data if op.routes is not None else None
    pairs = np.array(routes.pairs if routes else (), np.int64).reshape(-1, 2)
    sites = units[source].sites
    starts = sites[np.clip(pairs[:, 0], 0, len(sites) - 1)] if len(sites) else no_ints(len(pairs), 2)
    first, x, y, way = _links(routes.ways if routes else (), starts)
    return Flow(
        source,
        op.ports[0],
        target,
        op.ports[1],
        op.stream.stream,
        op.src_view.view if op.src_view is not None else None,
        op.dst_view.view if op.dst_view is not None else None,
        op.credits.value.data if op.credits is not None else 0,
        pairs,
        first,
        x,
        y,
        way,
        np.array(routes.channels if routes else (), np.int64),
        op.label,
        locations.of(op),
    )


def _links(ways: Sequence[str], starts: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Where each way's links begin, and switch and direction of every link, walking from the source's switch."""
    lengths = np.array([len(way) for way in ways], np.int64)
    first = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    code = np.full(256, -1, np.int64)
    code[np.frombuffer(LETTERS.encode(), np.uint8)] = np.arange(4)
    way = code[np.frombuffer("".join(ways).encode(), np.uint8)]
    at: list[Ints] = []
    for axis, step in enumerate((STEP_X, STEP_Y)):
        walked = np.concatenate([[0], np.cumsum(step[way])]).astype(np.int64)
        at.append(walked[:-1] + np.repeat(starts[:, axis] - walked[first[:-1]], lengths))
    return first, at[0], at[1], way


def _region(op: RegionOp) -> Region:
    return Region(
        op.sym_name.data,
        op.kind.data,
        tt(op.type),
        op.memory.data if op.memory is not None else None,
        op.address.value.data if op.address is not None else 0,
        locations.of(op),
        op.runs.value.data,
    )
