"""What timing says: plain dataclasses of a program's time on its device."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from headrace.runtime.program import LaunchLoop

BOUNDS = ("compute", "sram", "network", "agcu", "hbm", "ddr", "peer", "launch")
"""What can set a pace: cycles of compute units, ports and banks of memory units, ports and links of the network, the
width and bursts in flight of address generators, bandwidth and latency of off-chip memory, those of links to other
sockets, and launches."""


@dataclass(frozen=True)
class OpTime:
    """Time of one model op, by its location, in all launches: cycles of its share of the critical path, and the cycles
    that its units work.

    `work` is the cycles that its compute units compute, summed over the units; `present` the cycles from the first
    start of its units to their last end, `waits` those of them in which the units wait.
    """

    location: str
    op: str
    cycles: float
    busy: float
    flops: int = 0
    work: float = 0.0
    present: float = 0.0
    waits: float = 0.0

    @property
    def stall(self) -> float:
        """The part of the time from its first tile to its last in which it waits."""
        return self.waits / self.present if self.present else 0.0


@dataclass(frozen=True)
class UnitTime:
    """One group of units in one config.

    `cycles` is its share of the config's time along the critical path; the shares of all groups sum to the time of the
    config. `bound` says what sets its pace, `interval` the cycles from step to step, `busy` the cycles that it works;
    `parts` the cycles that each resource alone would take for all steps; `start` and `end` when it works. `bytes` are
    what a memory unit holds, what an address generator moves off chip, and what a compute unit sends to other sockets.
    """

    name: str
    kind: str
    mode: str
    location: str
    sites: int
    steps: int
    interval: float
    busy: float
    start: float
    end: float
    cycles: float
    bound: str
    parts: dict[str, float]
    bounds: dict[str, float]
    flops: int = 0
    bytes: int = 0
    ops: tuple[OpTime, ...] = ()

    @property
    def present(self) -> float:
        """Cycles from its first start to its last end."""
        return self.end - self.start

    @property
    def waits(self) -> float:
        """Those of them in which it waits: for tiles, for room, or for what it shares."""
        return max(0.0, self.present - self.busy)

    @property
    def stall(self) -> float:
        """The part of the time from its first tile to its last in which it waits."""
        return self.waits / self.present if self.present else 0.0

    @property
    def work(self) -> float:
        """Cycles that its units compute, summed over the units."""
        return self.sites * self.parts.get("compute", 0.0) if self.kind == "pcu" else 0.0


@dataclass(frozen=True)
class ConfigTime:
    """One launch of a config, without launching it: cycles, rows of its groups, and how much of the device it uses. It
    runs for `inputs` inputs, one behind the other; the `first` is through after so many cycles.

    `link_load` is the busiest link's words over what it could carry in the time, `hbm_bytes` and `ddr_bytes` what
    moves off chip, `bounds` the cycles by what they wait for. `peer_bytes` go to other sockets, and `peer_load` is the
    part of the time for which the busiest of the links to them is taken.
    """

    name: str
    cycles: float
    units: tuple[UnitTime, ...]
    bounds: dict[str, float]
    used: dict[str, int]
    flops: int
    hbm_bytes: int
    ddr_bytes: int
    link_load: float
    settled: bool = True
    peer_bytes: int = 0
    peer_load: float = 0.0
    inputs: int = 1
    first: float = 0.0

    @property
    def work(self) -> float:
        """Cycles that its units compute, summed over the units."""
        return sum(u.work for u in self.units)

    @property
    def stall(self) -> float:
        """The part of the time that units are present, from their first tile to their last, in which they wait."""
        present = sum(u.sites * u.present for u in self.units)
        return sum(u.sites * u.waits for u in self.units) / present if present else 0.0


@dataclass(frozen=True)
class LaunchTime:
    """One launch: which timed config it runs (`Timing.configs`), and the seconds of launching it."""

    config: int
    mode: str
    loaded: bool
    seconds: float
    location: str


@dataclass(frozen=True)
class RegionUse:
    """A tensor off chip: which memory holds it, and how much its launches read and write."""

    name: str
    kind: str
    memory: str
    bytes: int
    launches: int


@dataclass(frozen=True)
class MemoryUse:
    """What is resident off chip. `spilled` are the tensors in DDR although the device has HBM, largest first."""

    regions: tuple[RegionUse, ...]
    capacity: dict[str, int]
    spilled: tuple[str, ...]


@dataclass(frozen=True, repr=False)
class Timing:
    """How long a program takes, by a `model`. `configs` holds each config once for every set of memories that its
    launches use."""

    device: str
    model: str
    clock: float
    launches: tuple[LaunchTime, ...]
    configs: tuple[ConfigTime, ...]
    peak_flops: float
    hbm_bandwidth: float
    unit_counts: dict[str, int]
    memory: MemoryUse
    loops: tuple[LaunchLoop, ...] = ()
    inputs: int = 1
    """How many inputs the program takes at a time."""

    @property
    def interval(self) -> float:
        """Seconds from result to result when inputs come one after the other: the time of the program for all inputs
        that it takes at a time, over their number."""
        return self.seconds / self.inputs

    @property
    def latency(self) -> float:
        """Seconds from the first input to its result: the time up to the last launch, and of the first run in that."""
        if not self.launches:
            return 0.0
        last = self.configs[self.launches[-1].config]
        return self.seconds - (last.cycles - last.first) / self.clock

    @property
    def rate(self) -> float:
        """Results a second."""
        return 1 / self.interval if self.interval else 0.0

    @property
    def calls(self) -> int:
        """Launches, where a loop that the chip repeats by itself counts once."""
        return len(self.launches) - sum(loop.period * loop.times - 1 for loop in self.loops)

    @property
    def host_launches(self) -> int:
        """Launches that the host makes."""
        return sum(launch.mode == "sw" for launch in self.launches)

    @cached_property
    def runs(self) -> tuple[int, ...]:
        """How often each config is launched."""
        count = [0] * len(self.configs)
        for launch in self.launches:
            count[launch.config] += 1
        return tuple(count)

    @cached_property
    def launch_seconds(self) -> float:
        """Seconds of launching."""
        return sum(launch.seconds for launch in self.launches)

    @cached_property
    def cycles(self) -> float:
        """Cycles of the whole program, launches included."""
        return (
            sum(n * c.cycles for n, c in zip(self.runs, self.configs, strict=True)) + self.launch_seconds * self.clock
        )

    @property
    def seconds(self) -> float:
        """Seconds of the whole program."""
        return self.cycles / self.clock

    @cached_property
    def flops(self) -> int:
        """Floating-point operations of the whole program."""
        return sum(n * c.flops for n, c in zip(self.runs, self.configs, strict=True))

    @cached_property
    def hbm_bytes(self) -> int:
        """Bytes to and from HBM."""
        return sum(n * c.hbm_bytes for n, c in zip(self.runs, self.configs, strict=True))

    @cached_property
    def ddr_bytes(self) -> int:
        """Bytes to and from DDR."""
        return sum(n * c.ddr_bytes for n, c in zip(self.runs, self.configs, strict=True))

    @cached_property
    def peer_bytes(self) -> int:
        """Bytes to other sockets."""
        return sum(n * c.peer_bytes for n, c in zip(self.runs, self.configs, strict=True))

    @cached_property
    def bounds(self) -> dict[str, float]:
        """Cycles by what they wait for; they sum to `cycles`."""
        found: dict[str, float] = dict.fromkeys(BOUNDS, 0.0)
        for n, c in zip(self.runs, self.configs, strict=True):
            for bound, cycles in c.bounds.items():
                found[bound] += n * cycles
        found["launch"] += self.launch_seconds * self.clock
        return {k: v for k, v in found.items() if v}

    @cached_property
    def ops(self) -> tuple[OpTime, ...]:
        """Time by model op over all launches, longest first; with the launches it sums to `cycles`."""
        rows: dict[tuple[str, str], list[float]] = {}
        for n, c in zip(self.runs, self.configs, strict=True):
            for unit in c.units:
                for op in unit.ops:
                    row = rows.setdefault((op.location, op.op), [0.0] * 6)
                    parts = (op.cycles, op.busy, op.flops, op.work, op.present, op.waits)
                    for i, part in enumerate(parts):
                        row[i] += n * part
        found = [OpTime(where, op, a, b, int(f), *rest) for (where, op), (a, b, f, *rest) in rows.items()]
        return tuple(sorted(found, key=lambda x: (-x.cycles, -x.busy)))

    @property
    def utilisation(self) -> dict[str, float]:
        """Shares of the device, over the whole time: `flops` of the peak of the widest type in use, `pcu` of the
        compute units' cycles, `hbm` of the achievable bandwidth, `peer` of the busiest links to other sockets."""
        seconds = max(self.seconds, 1e-30)  # a program may launch nothing
        found = {
            "flops": self.flops / (self.peak_flops * seconds) if self.peak_flops else 0.0,
            "pcu": self.busy(sum(n * c.work for n, c in zip(self.runs, self.configs, strict=True))),
        }
        if self.hbm_bandwidth:
            found["hbm"] = self.hbm_bytes / (self.hbm_bandwidth * seconds)
        if self.peer_bytes:
            taken = sum(n * c.cycles * c.peer_load for n, c in zip(self.runs, self.configs, strict=True))
            found["peer"] = taken / max(self.cycles, 1e-9)
        return found

    def busy(self, work: float, cycles: float | None = None) -> float:
        """Cycles of work of all units as a part of what the device's compute units could do in `cycles` (None: in all
        of the time)."""
        time = self.cycles if cycles is None else cycles
        return work / (max(1, self.unit_counts.get("pcu", 0)) * max(time, 1e-9))

    def to_json(self) -> dict[str, Any]:
        """Everything as plain data, with the totals. `stall` is the part of the time from first to last tile in which
        units wait; `utilisation` that of the device's compute units (of a group: its own) in use."""
        return {
            "device": self.device,
            "model": self.model,
            "clock": self.clock,
            "cycles": self.cycles,
            "seconds": self.seconds,
            "inputs": self.inputs,
            "interval": self.interval,
            "latency": self.latency,
            "launch_seconds": self.launch_seconds,
            "flops": self.flops,
            "hbm_bytes": self.hbm_bytes,
            "ddr_bytes": self.ddr_bytes,
            "peer_bytes": self.peer_bytes,
            "bounds": self.bounds,
            "utilisation": self.utilisation,
            "memory": asdict(self.memory),
            "calls": self.calls,
            "host_launches": self.host_launches,
            "loops": [asdict(x) for x in self.loops],
            "launches": [asdict(x) for x in self.launches],
            "configs": [self._config_json(n, c) for n, c in zip(self.runs, self.configs, strict=True)],
            "ops": [{**asdict(x), "stall": x.stall, "utilisation": self.busy(x.work)} for x in self.ops],
        }

    def _config_json(self, runs: int, config: ConfigTime) -> dict[str, Any]:
        total = max(config.cycles, 1e-9)
        rows = [
            {**asdict(u), "stall": u.stall, "utilisation": u.work / (u.sites * total) if u.work else 0.0}
            for u in config.units
        ]
        use = self.busy(config.work, config.cycles)
        return {"runs": runs, **asdict(config), "units": rows, "stall": config.stall, "utilisation": use}

    def text(self, top: int = 20, units: bool = False) -> str:
        """Tables for people; `profile_text`."""
        from headrace.runtime.profile import profile_text

        return profile_text(self, top, units)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"<Timing: {self.cycles:,.0f} cycles on {self.device}>"
