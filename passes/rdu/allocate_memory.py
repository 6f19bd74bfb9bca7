"""allocate-memory: every region gets a memory and an address."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import lcm

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr

from headrace.dialects.machine.attributes import device_of
from headrace.dialects.machine.device import Device
from headrace.dialects.rdu.ops import ProgramOp, RegionOp
from headrace.dialects.rdu.syntax import integer
from headrace.dialects.support import dtypes, locations
from headrace.dialects.support.diagnostics import CompileError
from headrace.dialects.support.journal import Candidate, count, decide, decline
from headrace.dialects.tensor.base import tt
from headrace.passes.analysis.rounds import followed, rounds
from headrace.passes.infra.base import Pass, option

ALWAYS = (0, 1 << 60)


@dataclass(frozen=True)
class Tenant:
    """A region with its bytes, the launches over which it lives (first, last), and the bytes that launches move; or
    several regions, each `step` bytes after the one before."""

    ops: tuple[RegionOp, ...]
    nbytes: int
    life: tuple[int, int]
    traffic: int
    step: int = 0

    @property
    def op(self) -> RegionOp:
        """The first region."""
        return self.ops[0]

    @property
    def title(self) -> str:
        """Name for messages: the weight's key or the region's name."""
        return self.op.key.data or self.op.sym_name.data


def tenants(program: ProgramOp, align: int) -> list[Tenant]:
    """All regions, with lifetimes over the launch sequence: temporaries live from first to last use, others always.
    Elements of every type lie at multiples of their size."""
    align = lcm(align, *(dtypes.byte_size(tt(op.type).dtype) for op in program.regions_))
    uses: dict[str, list[int]] = {}
    for i, launch in enumerate(program.launches):
        for name, _ in launch.places:
            uses.setdefault(name, []).append(i)
    found: list[Tenant] = []
    for op in program.regions_:
        nbytes = -(-op.nbytes // align) * align
        at = uses.get(op.sym_name.data, [])
        life = (at[0], at[-1]) if op.kind.data == "temp" and at else ALWAYS
        found.append(Tenant((op,), nbytes, life, nbytes * len(at)))
    return found


def in_step(everyone: list[Tenant], chains: list[list[str]]) -> list[Tenant]:
    """The same with one tenant for each chain of regions, which lie at equal distance: none, where each is done with
    before the next is used."""
    known = {t.op.sym_name.data: t for t in everyone}
    chain_of = {name: tuple(known[x] for x in chain) for chain in chains for name in chain}
    found: list[Tenant] = []
    for t in everyone:
        chain = chain_of.get(t.op.sym_name.data, (t,))
        if t is not chain[0]:
            continue
        lives = [x.life for x in chain]
        size = max(x.nbytes for x in chain)
        apart = all(a[1] < b[0] for a, b in pairwise(lives))
        life = ALWAYS if ALWAYS in lives else (min(first for first, _ in lives), max(last for _, last in lives))
        ops = tuple(op for x in chain for op in x.ops)
        step = 0 if apart else size
        nbytes = size if apart else size * len(chain)
        found.append(Tenant(ops, nbytes, life, sum(x.traffic for x in chain), step))
    return found


def fit(members: list[Tenant], capacity: int) -> tuple[dict[RegionOp, int], list[Tenant]]:
    """Addresses for as many tenants as fit, first fit in the given order; and those that do not."""
    placed: list[tuple[int, int, tuple[int, int]]] = []
    found: dict[RegionOp, int] = {}
    left: list[Tenant] = []
    permanent = 0
    for t in members:
        if t.life == ALWAYS:
            if permanent + t.nbytes <= capacity:
                found |= _places(t, permanent)
                permanent += t.nbytes
            else:
                left.append(t)
    for t in members:
        if t.life == ALWAYS:
            continue
        address = permanent
        for start, end, life in sorted(placed):
            if life[1] < t.life[0] or t.life[1] < life[0]:
                continue
            if start - address >= t.nbytes:
                break
            address = max(address, end)
        if address + t.nbytes <= capacity:
            found |= _places(t, address)
            placed.append((address, address + t.nbytes, t.life))
        else:
            left.append(t)
    return found, left


def _places(tenant: Tenant, address: int) -> dict[RegionOp, int]:
    return {op: address + i * tenant.step for i, op in enumerate(tenant.ops)}


@dataclass(frozen=True)
class Plan:
    """Addresses of tenants in each memory; what went to DDR although there is HBM, busiest first; what has no room."""

    hbm: dict[RegionOp, int]
    ddr: dict[RegionOp, int]
    spilled: list[Tenant]
    left: list[Tenant]

    @property
    def cost(self) -> tuple[int, int]:
        """Bytes without room, and bytes a run that the slower memory moves."""
        return sum(t.nbytes for t in self.left), sum(t.traffic for t in self.spilled)


def plan(everyone: list[Tenant], device: Device) -> Plan:
    """Addresses, the busiest bytes first, so that what spills is what moves least (weights before activations of equal
    use)."""
    order = sorted(
        everyone,
        key=lambda t: (-(t.traffic / t.nbytes) if t.nbytes else 0.0, t.op.kind.data != "weight", -t.nbytes),
    )
    if device.hbm is None:
        at, left = fit(order, device.ddr.bytes)
        return Plan({}, at, [], left)
    fast, spilled = fit(order, device.hbm.bytes)
    slow, left = fit(spilled, device.ddr.bytes)
    return Plan(fast, slow, spilled, left)


def allocate(program: ProgramOp, device: Device, align: int) -> list[Tenant]:
    """Set memory and address of every region; return what went to DDR although there is HBM, busiest first."""
    everyone = tenants(program, align)
    found = plan(everyone, device)
    chains = followed(rounds(program.launches))
    if chains:
        stepped = plan(in_step(everyone, chains), device)
        if stepped.cost <= found.cost:
            found = stepped
            count("regions at equal distance", sum(map(len, chains)))
        else:
            reason = "regions of repeated launches are not at equal distance: more bytes would move from slower memory"
            decline("equal-distance", program, reason)
    _write(found.hbm, "hbm")
    _write(found.ddr, "ddr")
    spilled, left = found.spilled, found.left
    for t in spilled:
        full = Candidate("hbm", reason="busier tensors fill it")
        decide("memory", t.op, f"ddr: {t.nbytes} bytes that move {t.traffic} bytes a run", (full,))
    for t in everyone:
        count(f"bytes of kind {t.op.kind.data}", t.nbytes)
    if left:
        largest = sorted(everyone, key=lambda t: -t.nbytes)[:4]
        total = sum(t.nbytes for t in everyone)
        memories = [m for m in (device.hbm, device.ddr) if m is not None]
        raise CompileError(
            "out-of-memory",
            f"allocate-memory: {total} bytes do not fit {sum(m.bytes for m in memories)} bytes of '{device.name}'",
            why="largest tensors: " + ", ".join(f"{t.title} {tt(t.op.type)} {t.nbytes} bytes" for t in largest),
            fix="choose a device with more memory, or a smaller model or batch",
            location=locations.of(largest[0].op),
        )
    return spilled


def _write(at: dict[RegionOp, int], memory: str) -> None:
    name = StringAttr(memory)
    for op, address in at.items():
        op.memory = name
        op.address = integer(address)


@dataclass(frozen=True)
class AllocateMemoryPass(Pass):
    """Give every off-chip region a memory and an address; temporaries share space when their lives do not meet, and
    what repeated launches take one after the other lies at equal distance.

    Assumes a program and a device in the module. High-bandwidth memory first; on overflow the regions that move fewest
    bytes per byte held go to DDR, weights last; equal distance is given up where it makes more of them go. A program
    that fits neither is refused with its largest tensors.

        rdu.region @x input tensor<4xf32>   =>   rdu.region @x input tensor<4xf32> in hbm at 0
    """

    name = "allocate-memory"
    align: int = option(64, "alignment of regions", unit="bytes", low=1)

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        programs = [op for op in module.body.block.ops if isinstance(op, ProgramOp)]
        for program in programs:
            allocate(program, device_of(module), self.align)
        return bool(programs)
