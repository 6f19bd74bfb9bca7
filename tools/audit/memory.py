"""Off-chip memory: regions lie apart while both are needed, aligned and within their memory; launches take what is
there, those that the chip repeats at addresses that advance evenly."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from headrace.dialects.support.diagnostics import Collector
from headrace.dialects.support.dtypes import byte_size
from headrace.tools.audit.looking import few
from headrace.tools.audit.program import Buffer, Generator, Region, Repeat, Routed

ALWAYS = ("weight", "state")
WRITTEN_BEFORE = ("input", "weight", "state")


def check_memory(program: Routed, found: Collector) -> dict[str, int]:
    """Check regions, launches and ports; the bytes that each memory is used up to."""
    regions = {r.name: r for r in program.regions}
    used = _check_regions(program, found)
    _check_launches(program, regions, found)
    for loop in program.loops:
        _check_loop(program, loop, regions, found)
    _check_runs(program, regions, found)
    for port in program.ports:
        region = regions.get(port.region)
        what = f"{port.kind} '{port.name}'"
        if region is None:
            found.add("unknown-region", f"{what} is in region @{port.region}, which is not there")
        elif port.offset < 0 or port.offset + port.type.elements > region.type.elements:
            found.add("out-of-bounds", f"{what} does not lie in @{region.name}", location=region.location)
        elif port.type.dtype != region.type.dtype:
            found.add("wrong-type", f"{what} is {port.type}, @{region.name} is {region.type}")
    return used


def _check_regions(program: Routed, found: Collector) -> dict[str, int]:
    device = program.device
    memories = {name: m for name, m in (("hbm", device.hbm), ("ddr", device.ddr)) if m is not None}
    used = dict.fromkeys(memories, 0)
    placed: dict[str, list[tuple[int, int, Region]]] = {}
    for region in program.regions:
        size = region.runs * region.type.elements * byte_size(region.type.dtype)
        memory = memories.get(region.memory or "")
        if memory is None or region.memory is None:
            where = region.memory or "no memory"
            found.add("not-placed", f"region @{region.name} lies in {where}", location=region.location)
            continue
        end = region.address + size
        if region.address < 0 or end > memory.bytes:
            what = f"region @{region.name} takes bytes {region.address} to {end} of {region.memory} of {memory.bytes}"
            found.add("out-of-memory", what, location=region.location)
        if region.address % byte_size(region.type.dtype):
            what = f"region @{region.name} ({region.type}) lies at {region.address}, between two elements"
            found.add("not-aligned", what, location=region.location)
        used[region.memory] = max(used[region.memory], end)
        if size:
            placed.setdefault(region.memory, []).append((region.address, end, region))
    lives = _lives(program)
    for memory, spans in placed.items():
        open_spans: list[tuple[int, int, Region]] = []
        for low, high, region in sorted(spans, key=lambda span: span[:2]):
            open_spans = [span for span in open_spans if span[1] > low]
            for _, _, other in open_spans:
                (a, b), (c, d) = lives[region.name], lives[other.name]
                if a <= d and c <= b:
                    what = f"regions @{other.name} and @{region.name} overlap in {memory} at byte {low}"
                    why = f"needed in launches {c} to {d} and {a} to {b}"
                    found.add("regions-overlap", what, why=why, location=region.location)
            open_spans.append((low, high, region))
    return used


def _lives(program: Routed) -> dict[str, tuple[int, int]]:
    """The first and the last launch between which the bytes of a region matter. What is there before a run is needed
    from launch -1, what is read after it until one past the last."""
    end = len(program.launches)
    uses: dict[str, list[int]] = {r.name: [] for r in program.regions}
    for i, launch in enumerate(program.launches):
        for name, _ in launch.args:
            uses.setdefault(name, []).append(i)
    for port in program.ports:
        uses.setdefault(port.region, []).append(-1 if port.kind == "input" else end)
    found: dict[str, tuple[int, int]] = {}
    for region in program.regions:
        at = uses[region.name]
        found[region.name] = (-1, end) if region.kind in ALWAYS else (min(at), max(at)) if at else (0, -1)
    return found


def _check_launches(program: Routed, regions: Mapping[str, Region], found: Collector) -> None:
    configs = {c.name: c for c in program.configs}
    ready = {r.name for r in program.regions if r.kind in WRITTEN_BEFORE}
    for i, launch in enumerate(program.launches):
        config = configs.get(launch.config)
        what = f"launch {i} of @{launch.config}"
        if config is None or len(config.params) != len(launch.args):
            have = "no config" if config is None else f"{len(config.params)} parameters, {len(launch.args)} given"
            found.add("bad-launch", f"{what}: {have}", location=launch.location)
            continue
        writes: list[str] = []
        for param, (name, offset) in zip(config.params, launch.args, strict=True):
            region = regions.get(name)
            if region is None:
                found.add("unknown-region", f"{what} names @{name}, which is not there", location=launch.location)
                continue
            if param.type.dtype != region.type.dtype:
                told = f"{what}: '{param.name}' is {param.type}, @{name} is {region.type}"
                found.add("wrong-type", told, location=launch.location)
            if offset < 0 or offset + param.type.elements > region.type.elements:
                told = f"{what}: '{param.name}' ({param.type} from {offset}) does not lie in @{name} ({region.type})"
                found.add("out-of-bounds", told, location=launch.location)
            if param.direction == "in" and name not in ready:
                told = f"{what} reads @{name} before a launch has written it"
                found.add("read-too-early", told, location=launch.location)
            if param.direction != "in":
                writes.append(name)
                if region.kind in ("input", "weight"):
                    found.add("written-input", f"{what} writes {region.kind} @{name}", location=launch.location)
        ready.update(writes)
    unwritten = [p.name for p in program.ports if p.kind == "output" and p.region not in ready]
    if unwritten:
        found.add("never-written", f"no launch writes output {few(unwritten)}")


def _check_loop(program: Routed, loop: Repeat, regions: Mapping[str, Region], found: Collector) -> None:
    """Every round launches what the first does, from addresses that follow from its own and one step each: that is all
    that the chip can do without the host."""
    launches = program.launches[loop.first : loop.end]
    period, rest = divmod(len(launches), max(1, loop.times))
    if loop.times < 2 or rest or not period:
        found.add("bad-loop", f"launches {loop.first} to {loop.end - 1} are not {loop.times} rounds")
        return
    for i, launch in enumerate(launches):
        what = f"launch {loop.first + i} of @{launch.config} in round {i // period}"
        first = launches[i % period]
        if launch.by_host and i:
            found.add("bad-loop", f"{what} is by the host", location=launch.location)
        if launch.config != first.config or len(launch.args) != len(first.args):
            found.add("bad-loop", f"{what} is one of @{first.config} in the first", location=launch.location)
            continue
        if i < period:
            continue
        second = launches[i % period + period]
        for a, b, here in zip(first.args, second.args, launch.args, strict=False):
            at = [_byte(regions[name], offset) for name, offset in (a, b, here) if name in regions]
            if len(at) < 3:
                continue  # told with the launch
            (memory, start), (_, following), (mine, there) = at
            wanted = start + i // period * (following - start)
            if mine != memory or there != wanted:
                told = f"{what} takes @{here[0]} at byte {there} of {mine}, the loop goes on at {wanted} of {memory}"
                found.add("bad-loop", told, location=launch.location)


def _check_runs(program: Routed, regions: Mapping[str, Region], found: Collector) -> None:
    """Runs of one launch overlap: each writes a tensor of its own, and what memories keep is the same for all."""
    runs = max((launch.runs for launch in program.launches), default=1)
    for region in program.regions:
        if region.runs not in (1, runs) or (region.runs > 1 and region.kind in ALWAYS):
            what = f"{region.kind} @{region.name} has {region.runs} tensors in a program of {runs} runs"
            found.add("bad-runs", what, location=region.location)
    configs = {c.name: c for c in program.configs}
    for i, launch in enumerate(program.launches):
        config = configs.get(launch.config)
        if launch.runs != runs:
            what = f"launch {i} of @{launch.config} has {launch.runs} runs, others {runs}"
            found.add("bad-runs", what, location=launch.location)
        if config is None or len(config.params) != len(launch.args):
            continue  # told with the launch
        alone = [name in regions and regions[name].runs == 1 for name, _ in launch.args]
        for n, param in enumerate(config.params):
            if runs > 1 and param.direction != "in" and alone[n]:
                what = f"launch {i} of @{launch.config}: all runs write @{launch.args[n][0]} in one place"
                found.add("bad-runs", what, location=launch.location)
        for flow in config.flows:
            source, target = config.units[flow.source], config.units[flow.target]
            if not isinstance(target, Buffer) or not target.kept:
                continue
            if not isinstance(source, Generator) or source.direction != "load" or not alone[source.param]:
                what = f"launch {i}: @{target.name} of @{config.name} keeps what differs from run to run"
                found.add("bad-runs", what, why=f"@{source.name} fills it", location=launch.location)
            frames = prod(x.count for x in flow.stream.time[: target.frames])
            if frames > target.copies:
                what = f"@{target.name} of @{config.name} keeps {target.copies} of {frames} frames"
                found.add("bad-runs", what, location=target.location)
        for flow in config.flows:
            source, target = config.units[flow.source], config.units[flow.target]
            kept = [
                isinstance(end := config.units[f.target], Buffer) and end.kept
                for f in config.flows
                if f.source == flow.source
            ]
            if isinstance(source, Generator) and any(kept) and not all(kept):
                what = f"@{source.name} of @{config.name} fills memories in the first run and others in each"
                found.add("bad-runs", what, location=source.location)
                break


def _byte(region: Region, offset: int) -> tuple[str, int]:
    return region.memory or "", region.address + offset * byte_size(region.type.dtype)
