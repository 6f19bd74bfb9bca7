"""How long a program takes on its device, and what that time goes to.

Launches run one after another. The time of a config comes from one of two models of what it asks of the device
(`runtime.timing_demand`): the *event* model follows every tile, with room in buffers, credits, and bandwidth shared
among what is at work at the same time; the *analytic* model is a closed form of its steady state, for quick answers.
They agree where nothing is contended.

The time of a config is divided along its critical path, so that the rows of groups sum to it. Nothing is fitted: every
number comes from the device and from the program.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.dialects.machine.cost import launch_seconds, peak_flops
from headrace.dialects.machine.device import Device
from headrace.dialects.rdu.cost import CONTRACTIONS
from headrace.dialects.support import dtypes
from headrace.dialects.support.diagnostics import CompileError, nearest
from headrace.runtime.profile import profile_text
from headrace.runtime.program import Config, Pcu, Program
from headrace.runtime.times import (
    BOUNDS,
    ConfigTime,
    LaunchTime,
    MemoryUse,
    OpTime,
    RegionUse,
    Timing,
    UnitTime,
)
from headrace.runtime.timing_report import Report
from headrace.runtime.timing_stream import MODELS, course

__all__ = [
    "BOUNDS",
    "MODELS",
    "ConfigTime",
    "LaunchTime",
    "MemoryUse",
    "OpTime",
    "RegionUse",
    "Timing",
    "UnitTime",
    "profile",
    "profile_text",
    "time_program",
]


def time_program(program: Program, model: str = "event") -> Timing:
    """Time a program on the device that it was compiled for, by a model (`MODELS`). `CompileError` when the device
    description is broken or there is no such model."""
    if model not in MODELS:
        raise CompileError("bad-model", f"there is no model of time '{model}'", fix=nearest(model, MODELS))
    device = Device.from_dict(program.device)
    known: dict[tuple[int, tuple[str, ...]], int] = {}
    configs: list[ConfigTime] = []
    launches: list[LaunchTime] = []
    last = -1
    for launch in program.launches:
        memories = tuple(program.regions[r].memory or _main_memory(device) for r, _ in launch.args)
        key = launch.config, memories
        if key not in known:
            known[key] = len(configs)
            found = course(program.configs[launch.config], memories, device, model, launch.runs)
            configs.append(Report(*found).time())
        loaded = launch.config == last
        seconds = launch_seconds(device, launch.mode, loaded=loaded)
        launches.append(LaunchTime(known[key], launch.mode, loaded, seconds, launch.location))
        last = launch.config
    memory = device.hbm or device.ddr
    return Timing(
        device.name,
        model,
        device.clock,
        tuple(launches),
        tuple(configs),
        _peak(program.configs, device),
        memory.bandwidth * memory.efficiency if device.hbm else 0.0,
        {kind: device.count(kind) for kind in ("pcu", "pmu", "agcu")},
        memory_use(program, device),
        program.loops,
        program.runs,
    )


def memory_use(program: Program, device: Device) -> MemoryUse:
    """What lies in which off-chip memory, and what went to DDR although the device has HBM."""
    count = [0] * len(program.regions)
    for launch in program.launches:
        for region, _ in launch.args:
            count[region] += 1
    regions = tuple(
        RegionUse(
            r.key or r.name,
            r.kind,
            r.memory or _main_memory(device),
            r.runs * r.type.elements * dtypes.byte_size(r.type.dtype),
            count[i],
        )
        for i, r in enumerate(program.regions)
    )
    spilled = sorted((r for r in regions if r.memory == "ddr" and device.hbm is not None), key=lambda r: -r.bytes)
    memories = {"hbm": device.hbm, "ddr": device.ddr}
    capacity = {name: m.bytes for name, m in memories.items() if m is not None}
    return MemoryUse(regions, capacity, tuple(r.name for r in spilled))


def _main_memory(device: Device) -> str:
    return "hbm" if device.hbm is not None else "ddr"


def _peak(configs: Iterable[Config], device: Device) -> float:
    """The peak of the widest element type that a contraction of the program computes in."""
    found = {
        unit.types[op.operands[0]].dtype
        for config in configs
        for unit in config.units
        if isinstance(unit, Pcu)
        for op in unit.ops
        if op.name in CONTRACTIONS
    }
    return min((peak_flops(device, dtype) for dtype in sorted(found)), default=peak_flops(device, "f32"))


profile = time_program
