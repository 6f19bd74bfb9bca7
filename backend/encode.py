"""Routed rdu to the runtime's program: the same units, flows, regions and launches as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from headrace.dialects.machine.attributes import device_of
from headrace.dialects.rdu.ops import (
    AgcuOp,
    ConfigOp,
    FlowOp,
    PcuOp,
    PmuOp,
    ProgramOp,
    UnitOp,
    YieldOp,
)
from headrace.dialects.rdu.routes import Routes, links_of
from headrace.dialects.support import locations
from headrace.dialects.support.diagnostics import CompileError
from headrace.dialects.tensor.base import attributes_of, tt
from headrace.dialects.tensor.program import mesh_of, shardings_of, stacks_of
from headrace.dialects.tensor.shapes import TT
from headrace.runtime.program import (
    Agcu,
    BodyOp,
    Config,
    Flow,
    Launch,
    LaunchLoop,
    Param,
    Pcu,
    Pmu,
    Port,
    Program,
    Region,
    Unit,
)

CREDITS = 2
"""Vector words in flight on a flow that has no route yet: what its longest way takes is not known."""


def encode(module: ModuleOp, meta: Mapping[str, Any] | None = None, *, routed: bool = True) -> Program:
    """The program of a module whose configs are routed and whose regions are allocated.

    `routed` false takes configs that are not placed or not routed yet, too: such a program says what its units compute
    and not where, so that it can be run on whole arrays, and neither written nor timed.
    """
    configs = [op for op in module.body.block.ops if isinstance(op, ConfigOp)]
    program = next((op for op in module.body.block.ops if isinstance(op, ProgramOp)), None)
    unready = [c.sym_name.data for c in configs if c.phase.data != "routed"] if routed else []
    if program is None or unready:
        raise CompileError(
            "not-routed",
            "the module has no program" if program is None else f"configs are not routed: {', '.join(unready)}",
            fix="run the pipeline to its end",
        )
    number = {c.sym_name.data: i for i, c in enumerate(configs)}
    regions: list[Region] = []
    region_number: dict[str, int] = {}
    for op in program.regions_:
        region_number[op.sym_name.data] = len(regions)
        memory = op.memory.data if op.memory is not None else ""
        address = op.address.value.data if op.address is not None else 0
        key, runs = op.key.data, op.runs.value.data
        regions.append(Region(op.sym_name.data, op.kind.data, tt(op.type), memory, address, key, runs))
    launches = tuple(
        Launch(
            number[op.config.string_value()],
            tuple((region_number[name], offset) for name, offset in op.places),
            op.mode.data,
            locations.text(op.location),
            op.runs.value.data,
        )
        for op in program.launches
    )
    device = device_of(module)
    ports: dict[str, list[Port]] = {"input": [], "output": []}
    for op in program.ports:
        region = region_number[op.region_name.string_value()]
        ports[op.kind.data].append(Port(op.title.data, tt(op.type), region, op.offset.value.data))
    return Program(
        device.to_dict(),
        tuple(regions),
        tuple(_config(c, device.mesh[0]) for c in configs),
        launches,
        tuple(ports["input"]),
        tuple(ports["output"]),
        tuple((pair.data[0].data, pair.data[1].data) for pair in program.states),
        dict(meta or {}),
        _loops(program),
        mesh_of(module),
        shardings_of(program),
        stacks_of(program),
    )


def _loops(program: ProgramOp) -> tuple[LaunchLoop, ...]:
    number = {launch: i for i, launch in enumerate(program.launches)}
    return tuple(LaunchLoop(number[op.launches[0]], len(op.rounds[0]), len(op.rounds)) for op in program.loops)


def _config(op: ConfigOp, columns: int) -> Config:
    units = op.units
    number = {u.title: i for i, u in enumerate(units)}
    params = tuple(Param(p.title.data, tt(p.type), p.direction.data) for p in op.params)
    sites = [_sites(u) for u in units]
    flows = tuple(_flow(f, number, sites, columns) for f in op.flows)
    return Config(op.sym_name.data, params, tuple(_unit(u) for u in units), flows)


def _sites(op: UnitOp) -> Any:
    """Column and row of every unit; those that are not placed yet stand nowhere, but count."""
    if op.sites is None:
        return np.full((op.size, 2), -1, np.int32)
    return np.array(op.sites.get_values(), np.int32).reshape(-1, 2)


def _unit(op: UnitOp) -> Unit:
    sites = _sites(op)
    where = locations.text(op.location)
    match op:
        case PcuOp():
            return _pcu(op, sites, where)
        case PmuOp():
            type = tt(op.type)
            return Pmu(
                op.title,
                type.shape,
                type.dtype,
                op.frames.value.data,
                op.copies.value.data,
                op.fill.value.data,
                op.split_dim.value.data,
                op.banks.value.data,
                sites,
                where,
                op.kept is not None,
            )
        case AgcuOp():
            return Agcu(op.title, op.direction.data, op.param.value.data, sites, where)
        case _:
            raise TypeError(op.name)


def _pcu(op: PcuOp, sites: Any, where: str) -> Pcu:
    block = op.body.block
    numbers: dict[SSAValue, int] = {a: i for i, a in enumerate(block.args)}
    types: list[TT] = [tt(a) for a in block.args]
    ops: list[BodyOp] = []
    outputs: tuple[int, ...] = ()
    for inner in block.ops:
        operands = tuple(numbers[v] for v in inner.operands)
        if isinstance(inner, YieldOp):
            outputs = operands
            break
        for result in inner.results:
            numbers[result] = len(types)
            types.append(tt(result))
        ops.append(
            BodyOp(
                inner.name,
                _plain(attributes_of(inner)),
                operands,
                tuple(numbers[r] for r in inner.results),
                locations.text(inner.location),
            )
        )
    return Pcu(op.title, op.mode.data, len(block.args), tuple(ops), outputs, tuple(types), sites, where)


def _plain(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes as plain values; a literal becomes its array."""
    return {k: v.array() if hasattr(v, "array") else v for k, v in attrs.items()}


def _flow(op: FlowOp, number: Mapping[str, int], sites: Sequence[Any], columns: int) -> Flow:
    source = number[op.ends[0]]
    routes = op.routes.data if op.routes is not None else Routes((), (), ())
    pairs = np.array(routes.pairs, np.int32).reshape(-1, 2)
    links, starts = links_of(routes.ways, sites[source][pairs[:, 0]], columns)
    return Flow(
        source,
        op.src_port.value.data,
        number[op.ends[1]],
        op.dst_port.value.data,
        op.stream.stream,
        op.src_view.view if op.src_view is not None else None,
        op.dst_view.view if op.dst_view is not None else None,
        pairs,
        starts.astype(np.int32),
        links.astype(np.int32),
        op.credits.value.data if op.credits is not None else CREDITS,
    )
