"""Analytic costs on a device: cycles of units and links, seconds of memories and launches.

Pure functions of a `Device` and sizes; no fitted per-layer cost, no NumPy. Cycles are device clock cycles and may be
fractional where a rate is (round up once, at the end, if at all). Where two forms are possible the docstring states
the formula. `Cost` has both numbers that a pipeline needs: the interval between tiles and the latency of one tile.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, gcd, log2
from typing import NamedTuple

from headrace.dialects.machine.device import Device
from headrace.dialects.support.diagnostics import CompileError


class Cost(NamedTuple):
    """Cost of one tile on a pipelined unit, in cycles.

    `interval`: from one tile to the next in steady state. `latency`: from a tile's first input word to its last output
    word. n tiles take `cycles(n)` = latency + (n - 1) · interval.
    """

    interval: float
    latency: float

    def cycles(self, tiles: int) -> float:
        """Cycles for `tiles` tiles, one after another through the same units (0 tiles: 0)."""
        return self.latency + (tiles - 1) * self.interval if tiles else 0.0

    def then(self, other: Cost) -> Cost:
        """Two units in a row, tile by tile: the slower sets the interval, latencies add."""
        return Cost(max(self.interval, other.interval), self.latency + other.latency)


# Compute units.


def vectors(device: Device, elements: int) -> int:
    """Vector words that hold `elements`: ⌈elements / lanes⌉."""
    return ceil(elements / device.pcu.lanes)


def matmul(device: Device, m: int, n: int, k: int, dtype: str, *, batch: int = 1, units: int = 1) -> Cost:
    """`batch` products [m, k] × [k, n] on `units` PCUs that share the output blocks.

    The body is output-stationary: an array of lanes × stages functional units holds one block of the result, and takes
    one column of the one operand and one row of the other per cycle. Either operand may lie along the lanes; the
    better orientation counts. With R = multiply-accumulates per functional unit and cycle (`Device.systolic_rate`):

        blocks   = min(⌈m / lanes⌉ · ⌈n / stages⌉, ⌈m / stages⌉ · ⌈n / lanes⌉) · batch
        per block = max(k / R, stages)        (the block drains one lane vector per stage while the next one fills)
        interval = ⌈blocks / units⌉ · per block
        latency  = interval + (lanes + stages - 2) skew + stages drain

    A device whose body is not systolic keeps the accumulators in pipeline registers, broadcasts scalars to the stages
    and has no skew over the lanes: latency = interval + 2 · stages.
    """
    lanes, stages = device.pcu.lanes, device.pcu.stages
    rows, columns, _ = matmul_blocks(device, m, n)
    blocks = rows * columns * batch
    interval = ceil(blocks / units) * max(k / device.systolic_rate(dtype), stages)
    skew = lanes + stages - 2 if device.pcu.systolic else stages
    return Cost(interval, interval + skew + stages) if blocks else Cost(0.0, 0.0)


def matmul_blocks(device: Device, m: int, n: int) -> tuple[int, int, bool]:
    """(blocks along m, blocks along n, whether m lies along the lanes) of a result [m, n], the better orientation."""
    lanes, stages = device.pcu.lanes, device.pcu.stages
    wide = ceil(m / lanes), ceil(n / stages), True
    tall = ceil(m / stages), ceil(n / lanes), False
    return wide if wide[0] * wide[1] <= tall[0] * tall[1] else tall


def matmul_occupancy(device: Device, m: int, n: int) -> float:
    """Share of the functional units that a result of [m, n] keeps busy, the better orientation, 0 < share ≤ 1."""
    lanes, stages = device.pcu.lanes, device.pcu.stages
    rows, columns, _ = matmul_blocks(device, m, n)
    return m * n / (rows * columns * lanes * stages)


def body_ops(device: Device, functions: Mapping[str, int]) -> tuple[int, int]:
    """(body stages, tail passes) that one element takes for functions by name and count.

    A function in the device's tail is one tail pass plus its `expansion`, if the file has one. One that only has an
    `expansion` is that many body ops. Any other (add, mul, compare, …) is one body op.
    """
    expansion = dict(device.pcu.expansion)
    body = sum(count * expansion.get(name, 0 if name in device.pcu.tail else 1) for name, count in functions.items())
    return body, sum(count for name, count in functions.items() if name in device.pcu.tail)


def simd(device: Device, elements: int, functions: Mapping[str, int], dtype: str, *, units: int = 1) -> Cost:
    """An elementwise program over `elements` results on `units` PCUs, `functions` = ops per element by name.

    A body op takes a stage, so a pass through the body does `stages` of them; a longer program recirculates. With
    R = ops per functional unit and cycle (`Device.simd_rate`), T = `tail_rate`, V = ⌈⌈elements / units⌉ / lanes⌉:

        passes   = max(1, ⌈body ops / stages⌉)
        interval = V · max(passes / R, tail passes / T)
        latency  = interval + passes · stages + tail passes · tail_latency
    """
    body, tail = body_ops(device, functions)
    passes = max(1, ceil(body / device.pcu.stages))
    rate = passes / device.simd_rate(dtype)
    interval = vectors(device, ceil(elements / units)) * max(rate, tail / device.pcu.tail_rate if tail else 0.0)
    return Cost(interval, interval + passes * device.pcu.stages + tail * device.pcu.tail_latency)


def reduce(device: Device, elements: int, results: int, dtype: str, *, across_lanes: bool, units: int = 1) -> Cost:
    """A reduction of `elements` to `results` on `units` PCUs (each reduces whole results).

    Within a vector word (`across_lanes`) the reduction tree takes one word per cycle and ⌈log2 lanes⌉ cycles of
    latency; each result then takes ⌈(elements / results) / lanes⌉ words. Across words the lanes accumulate on their
    own, which needs ⌈elements / lanes⌉ words and no tree. Both divide by R = `Device.simd_rate`.
    """
    share = ceil(results / units)
    length = ceil(elements / max(1, results))
    words = share * vectors(device, length) if across_lanes else vectors(device, share) * length
    tree = ceil(log2(device.pcu.lanes)) if across_lanes and device.pcu.lanes > 1 else 0
    interval = words / device.simd_rate(dtype)
    return Cost(interval, interval + device.pcu.stages + tree)


# Memory units.


def sram_cycles(device: Device, nbytes: int, *, write: bool = False, conflict: int = 1, units: int = 1) -> float:
    """Cycles of `units` PMUs to read or write `nbytes` through all their ports of that direction.

    A port moves one vector word (`network.link_bytes`) per cycle. `conflict` = accesses that fall on the busiest bank
    in one word (1 = conflict-free, `banks` = a column of a row-major array), which divides the rate.
    """
    ports = device.pmu.write_ports if write else device.pmu.read_ports
    return ceil(nbytes / units / device.network.link_bytes) * conflict / ports


def bank_conflict(device: Device, stride_bytes: int, *, lanes: int = 0, pitch_bytes: int = 0) -> int:
    """Accesses on the busiest bank when `lanes` (0: as many as banks) are `stride_bytes` apart: with
    g = gcd(steps over the banks, banks), the lanes share banks / g banks.

    In plain interleaving a lane steps over stride / word banks. With `pitch_bytes` the buffer's rows, that long, lie in
    diagonal stripes: each row starts one bank further, so a stride of whole rows steps over one bank a row.
    """
    size, banks = device.pmu.word_bytes, device.pmu.banks
    words, pitch = abs(stride_bytes) // size, pitch_bytes // size
    if pitch:
        words = words // pitch + words % pitch
    return ceil((lanes or banks) * gcd(max(1, words), banks) / banks)


def gather_cycles(device: Device, addresses: int, *, units: int = 1) -> float:
    """Cycles of `units` PMUs to serve `addresses` data-dependent accesses, `pmu.addresses` per cycle each."""
    return ceil(addresses / units) / device.pmu.addresses


# The network.


def words_of(device: Device, nbytes: int) -> int:
    """Vector words on a link that carry `nbytes`."""
    return ceil(nbytes / device.network.link_bytes)


def link_cycles(device: Device, nbytes: int) -> float:
    """Cycles that `nbytes` of one flow take on a link: a flow moves one vector word per cycle at best, whatever the
    number of lanes of the link."""
    return float(words_of(device, nbytes))


def route_latency(device: Device, hops: int) -> int:
    """Cycles of one vector word from unit to unit over `hops` links: hops + 1 switches, and the two ends."""
    return (hops + 1) * device.network.hop_latency + device.network.inject_latency


def credits_for(device: Device, hops: int, words_per_cycle: float = 1.0) -> int:
    """Credits (vector words in flight) that a flow needs to sustain `words_per_cycle` over `hops` links: the data's way
    there and the credit's way back."""
    return max(1, ceil(2 * route_latency(device, hops) * words_per_cycle))


def credit_rate(device: Device, hops: int, credits: int, wait: float = 0.0) -> float:
    """Vector words per cycle that a flow's credits allow over `hops` links, at most 1. A credit is back after the
    word's way there, the `wait` until the receiver takes it, and the way back: credits / (2 · route latency + wait)."""
    return min(1.0, credits / (2 * route_latency(device, hops) + wait))


# Off chip.


def memory_seconds(device: Device, memory: str, nbytes: int, *, accesses: int = 0) -> float:
    """Seconds that 'hbm' or 'ddr' takes to move `nbytes`: latency (once) + bytes / (bandwidth · efficiency).

    `accesses` > 0 says that the bytes are scattered over that many separate places: each moves whole bursts
    (`agcu.burst_bytes`).
    """
    entry = device.memory(memory)
    if not nbytes:
        return 0.0
    if accesses:
        burst = device.agcu.burst_bytes
        nbytes = accesses * ceil(nbytes / accesses / burst) * burst
    return entry.latency + nbytes / (entry.bandwidth * entry.efficiency)


def memory_cycles(device: Device, memory: str, nbytes: int, *, accesses: int = 0) -> float:
    """`memory_seconds` in device cycles."""
    return memory_seconds(device, memory, nbytes, accesses=accesses) * device.clock


def memory_bytes_per_cycle(device: Device, memory: str) -> float:
    """Sustained bytes per device cycle of 'hbm' or 'ddr': bandwidth · efficiency / clock."""
    entry = device.memory(memory)
    return entry.bandwidth * entry.efficiency / device.clock


def agcu_rate(device: Device, memory: str) -> float:
    """Bytes per cycle that one AGCU moves between the fabric and 'hbm' or 'ddr': its width, or what its bursts in
    flight give over the memory's latency."""
    wait = max(1.0, device.memory(memory).latency * device.clock)
    return min(float(device.agcu.bytes_per_cycle), device.agcu.outstanding * device.agcu.burst_bytes / wait)


def agcu_cycles(device: Device, nbytes: int, *, units: int = 1, memory: str = "") -> float:
    """Cycles of `units` AGCUs to pass `nbytes` between the fabric and off-chip memory, the memory's own time apart.

    With a `memory`, bursts in flight count too (`agcu_rate`).
    """
    return ceil(nbytes / units) / (agcu_rate(device, memory) if memory else device.agcu.bytes_per_cycle)


def launch_seconds(device: Device, mode: str, *, loaded: bool = False) -> float:
    """Seconds of one launch, mode 'sw' (by the host) or 'hw' (by the AGCUs).

    `loaded`: the configuration is on the chip already, so Program Load (`launch.reconfigure`) falls away.
    """
    seconds = {"sw": device.launch.software, "hw": device.launch.hardware}.get(mode)
    if not seconds:
        raise CompileError(
            "no-such-launch",
            f"device '{device.name}' has no launch mode '{mode}'",
            why="launch.hardware is 0 in its file" if mode == "hw" else "the modes are 'sw' and 'hw'",
            fix="use 'sw'",
        )
    return max(0.0, seconds - device.launch.reconfigure) if loaded else seconds


def launch_mode(device: Device) -> str:
    """The cheaper launch mode that the device has: 'hw' or 'sw'."""
    return "hw" if device.launch.hardware else "sw"


# Rooflines.


def peak_flops(device: Device, dtype: str, mode: str = "systolic") -> float:
    """FLOP/s of all PCUs: 2 per multiply-accumulate ('systolic'), 1 per op ('simd')."""
    rate = 2 * device.systolic_rate(dtype) if mode == "systolic" else device.simd_rate(dtype)
    return device.count("pcu") * device.pcu.lanes * device.pcu.stages * rate * device.clock


def sram_bandwidth(device: Device) -> float:
    """B/s of all PMUs, reads and writes together."""
    ports = device.pmu.read_ports + device.pmu.write_ports
    return device.count("pmu") * ports * device.network.link_bytes * device.clock


def bisection_bandwidth(device: Device) -> float:
    """B/s across the narrower middle cut of the mesh, one direction."""
    columns, rows = device.mesh
    return min(columns, rows) * device.network.links * device.network.link_bytes * device.clock
