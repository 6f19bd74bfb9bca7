"""A profile as a trace: Chrome's trace events, which https://ui.perfetto.dev and chrome://tracing open.

One track has the launches and sections, one each group of units of a section, and counters show how much goes to and
from each off-chip memory, and to other sockets. Times are those of the device, in microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from headrace.runtime.program import Program
from headrace.runtime.times import ConfigTime, Timing

MEMORIES = ("hbm", "ddr")
PEERS = "peer"


def trace(program: Program, timing: Timing) -> str:
    """The trace, as JSON with an event a line."""
    lines = ",\n".join(json.dumps(event) for event in trace_events(program, timing))
    named = {"device": timing.device, "time model": timing.model, "model": str(program.meta.get("model", ""))}
    return f'{{"displayTimeUnit": "ns", "otherData": {json.dumps(named)}, "traceEvents": [\n{lines}\n]}}\n'


def trace_events(program: Program, timing: Timing) -> Iterator[dict[str, Any]]:
    """The events of all launches, one after another."""
    tick = 1e6 / timing.clock
    yield _name(0, 0, "process_name", f"{timing.device}: sections")
    yield _name(0, 0, "thread_name", "launches and sections")
    for number, config in enumerate(timing.configs, 1):
        yield _name(number, 0, "process_name", f"units of @{config.name}")
        for track, unit in enumerate(config.units):
            if unit.present:
                yield _name(number, track, "thread_name", f"{unit.name} ({unit.sites} {unit.kind})")
    at = 0.0
    for launch in timing.launches:
        config = timing.configs[launch.config]
        begin, length = at + launch.seconds * 1e6, config.cycles * tick
        told = {"by": {"sw": "the host", "hw": "the chip"}[launch.mode], "loaded before": launch.loaded}
        yield _slice(0, 0, "launch", at, launch.seconds * 1e6, told)
        yield _slice(0, 0, f"@{config.name}", begin, length, {"location": launch.location, **_section(config)})
        for track, unit in enumerate(config.units):
            if unit.present:
                about = {
                    "op": unit.location,
                    "bound by": unit.bound,
                    "stall": round(unit.stall, 4),
                    "steps": unit.steps,
                    "cycles a step": round(unit.interval, 2),
                    "critical cycles": round(unit.cycles, 2),
                    "flops": unit.flops,
                    "bytes": unit.bytes,
                }
                start = begin + unit.start * tick
                yield _slice(launch.config + 1, track, unit.name, start, unit.present * tick, about)
        for memory in (*MEMORIES, PEERS):
            for time, rate in bandwidth(config, memory):
                value = {"GB/s": round(rate * timing.clock / 1e9, 3)}
                yield {"name": memory, "ph": "C", "pid": 0, "tid": 0, "ts": _time(begin + time * tick), "args": value}
        at = begin + length


def bandwidth(config: ConfigTime, memory: str) -> list[tuple[float, float]]:
    """What address generators move to and from a memory, or compute units to other sockets: bytes a cycle from each
    time on, in cycles from the start of the section. Each moves its bytes evenly from its first tile to its last; the
    last entry is 0."""
    changes: dict[float, float] = {}
    for unit in config.units:
        kind = "pcu" if memory == PEERS else "agcu"
        if unit.kind == kind and memory in unit.parts and unit.present > 0:
            rate = unit.bytes / unit.present
            changes[unit.start] = changes.get(unit.start, 0.0) + rate
            changes[unit.end] = changes.get(unit.end, 0.0) - rate
    found: list[tuple[float, float]] = []
    rate = 0.0
    for time in sorted(changes):
        rate += changes[time]
        found.append((time, max(0.0, rate)))
    return [*found[:-1], (found[-1][0], 0.0)] if found else []


def _section(config: ConfigTime) -> dict[str, Any]:
    peers = {"bytes to peers": config.peer_bytes, "busiest peer link": round(config.peer_load, 4)}
    return {
        "bound by": max(config.bounds, key=lambda k: config.bounds[k], default=""),
        "cycles": round(config.cycles, 2),
        "flops": config.flops,
        "off-chip bytes": config.hbm_bytes + config.ddr_bytes,
        "stall": round(config.stall, 4),
        "busiest link": round(config.link_load, 4),
        **(peers if config.peer_bytes else {}),
    }


def _name(process: int, thread: int, what: str, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}


def _slice(process: int, thread: int, name: str, start: float, length: float, args: dict[str, Any]) -> dict[str, Any]:
    times = {"ts": _time(start), "dur": _time(length)}
    return {"name": name, "ph": "X", "pid": process, "tid": thread, **times, "args": args}


def _time(microseconds: float) -> float:
    """To a picosecond."""
    return round(microseconds, 6)
