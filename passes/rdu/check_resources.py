"""check-resources: a routed program uses no more than the device has."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from headrace.dialects.machine.attributes import device_of
from headrace.dialects.machine.device import Device
from headrace.dialects.rdu.ops import ConfigOp, FlowOp, PcuOp, PmuOp, ProgramOp, UnitOp
from headrace.dialects.support import dtypes, locations
from headrace.dialects.support.diagnostics import Collector
from headrace.dialects.support.journal import count
from headrace.dialects.tensor.base import tt
from headrace.passes.analysis.bodies import Body
from headrace.passes.analysis.pieces import pieces
from headrace.passes.infra.base import Pass

KINDS = ("pcu", "pmu", "agcu")


def unit_bytes(unit: PmuOp, frames: int) -> int:
    """Bytes that the fullest unit of a buffer holds: its block of the split dim, one frame, times the copies."""
    type = tt(unit.type)
    shape = list(type.shape)
    if shape:
        dim = unit.split_dim.value.data
        shape[dim] = ceil(shape[dim] / unit.size)
    return ceil(prod(shape) / max(1, frames)) * unit.copies.value.data * dtypes.byte_size(type.dtype)


def check(config: ConfigOp, device: Device, found: Collector) -> None:
    """Report what a config takes beyond the device."""
    name = config.sym_name.data
    units = config.units
    for kind in KINDS:
        members = [u for u in units if kind == u.KIND]
        need, have = sum(u.size for u in members), device.count(kind)
        count(f"{kind} taken", need)
        if need > have:
            largest = sorted(members, key=lambda u: -u.size)[:3]
            found.add(
                "too-many-units",
                f"check-resources: config @{name} takes {need} {kind} units of {have}",
                why="largest: " + ", ".join(f"@{u.title} {u.size}" for u in largest),
                fix="cut the section, or lower the parallel factors",
                location=locations.of(config),
            )
    flows: dict[str, FlowOp] = {}  # a flow of each unit
    for flow in config.flows:
        for title in flow.ends:
            flows.setdefault(title, flow)
    for unit in units:
        if isinstance(unit, PmuOp):
            _check_memory(unit, flows.get(unit.title), device, found)
        if isinstance(unit, PcuOp):
            _check_body(unit, device, found)
    _check_sites(config, device, found)


def _check_body(unit: PcuOp, device: Device, found: Collector) -> None:
    if len(parts := pieces(Body.of(unit.body.block), device)) > 1:
        found.add(
            "unit-too-small",
            f"check-resources: the body of @{unit.title} needs {len(parts)} units in a chain",
            fix="run split-to-units",
            location=locations.of(unit),
        )
        return
    ports = (("takes", unit.input_tiles, device.pcu.inputs), ("sends", unit.output_tiles, device.pcu.outputs))
    for verb, tiles, have in ports:
        if len(tiles) > have:
            found.add(
                "unit-too-small",
                f"check-resources: @{unit.title} {verb} {len(tiles)} values, and a unit has ports for {have}",
                fix="run decompose on whole tensors, which makes several ops of one",
                location=locations.of(unit),
            )


def _check_memory(unit: PmuOp, flow: FlowOp | None, device: Device, found: Collector) -> None:
    frames = prod(x.count for x in flow.stream.stream.time[: unit.frames.value.data]) if flow is not None else 1
    need = unit_bytes(unit, frames)
    if need > device.pmu.bytes:
        found.add(
            "buffer-too-large",
            f"check-resources: a unit of @{unit.title} ({tt(unit.type)}) holds {need} bytes of {device.pmu.bytes}",
            why=f"{unit.size} units, {unit.copies.value.data} copies of 1 of {frames} frames",
            fix="run bank-memories, or give the buffer more units",
            location=locations.of(unit),
        )
    if unit.banks.value.data > device.pmu.banks:
        found.add(
            "too-many-banks",
            f"check-resources: @{unit.title} takes {unit.banks.value.data} banks of {device.pmu.banks}",
            location=locations.of(unit),
        )


def _check_sites(config: ConfigOp, device: Device, found: Collector) -> None:
    taken: dict[tuple[str, int, int], UnitOp] = {}
    for unit in config.units:
        if unit.sites is None:
            continue
        flat = [int(x) for x in unit.sites.get_values()]
        legal = set(device.sites(unit.KIND))
        for x, y in zip(flat[::2], flat[1::2], strict=True):
            other = taken.setdefault((unit.KIND, x, y), unit)
            if (x, y) not in legal or other is not unit:
                what = f"@{other.title} is there too" if other is not unit else f"there is no {unit.KIND}"
                found.add(
                    "bad-site",
                    f"check-resources: @{unit.title} stands at ({x}, {y}), where {what}",
                    fix="run place",
                    location=locations.of(unit),
                )


@dataclass(frozen=True)
class CheckResourcesPass(Pass):
    """Refuse a program that takes more units, scratchpad bytes, banks, sites or memory than the device has.

    Assumes a device in the module; works in every phase, on what is decided so far. Changes nothing.
    """

    name = "check-resources"

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        device = device_of(module)
        found = Collector()
        for op in module.body.block.ops:
            if isinstance(op, ConfigOp):
                count("configs checked")
                check(op, device, found)
            elif isinstance(op, ProgramOp):
                _check_regions(op, device, found)
        found.raise_if_any()
        return False


def _check_regions(program: ProgramOp, device: Device, found: Collector) -> None:
    for region in program.regions_:
        if region.memory is None or region.address is None:
            continue
        type = tt(region.type)
        end = region.address.value.data + type.elements * dtypes.byte_size(type.dtype)
        memory = device.hbm if region.memory.data == "hbm" else device.ddr
        if memory is None or end > memory.bytes:
            have = "no such memory" if memory is None else f"{memory.bytes} bytes"
            found.add(
                "out-of-memory",
                f"check-resources: region @{region.sym_name.data} ends at byte {end} of {region.memory.data} ({have})",
                fix="run allocate-memory",
                location=locations.of(region),
            )
