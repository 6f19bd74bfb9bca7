"""allocate-memory: every region gets a memory and an address."""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr

from headrace.dialects.machine.attributes import device_of
from headrace.dialects.machine.device import Device
from headrace.dialects.rdu.ops import ProgramOp, RegionOp
from headrace.dialects.rdu.syntax import integer
from headrace.dialects.support import dtypes, locations
from headrace.dialects.support.diagnostics import CompileError
from headrace.dialects.support.journal import Candidate, count, decide
from headrace.dialects.tensor.base import tt
from headrace.passes.infra.base import Pass, option

ALWAYS = (0, 1 << 60)


@dataclass(frozen=True)
class Tenant:
    """A region with its bytes, the launches over which it lives (first, last), and the bytes that launches move."""

    op: RegionOp
    nbytes: int
    life: tuple[int, int]
    traffic: int

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
        type = tt(op.type)
        nbytes = -(-type.elements * dtypes.byte_size(type.dtype) // align) * align
        at = uses.get(op.sym_name.data, [])
        life = (at[0], at[-1]) if op.kind.data == "temp" and at else ALWAYS
        found.append(Tenant(op, nbytes, life, nbytes * len(at)))
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
                found[t.op] = permanent
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
            found[t.op] = address
            placed.append((address, address + t.nbytes, t.life))
        else:
            left.append(t)
    return found, left


def allocate(program: ProgramOp, device: Device, align: int) -> list[Tenant]:
    """Set memory and address of every region; return what went to DDR although there is HBM, busiest first."""
    everyone = tenants(program, align)
    # the busiest bytes first, so that what spills is what moves least (weights before activations of equal use)
    order = sorted(
        everyone,
        key=lambda t: (-(t.traffic / t.nbytes) if t.nbytes else 0.0, t.op.kind.data != "weight", -t.nbytes),
    )
    spilled = order
    if device.hbm is not None:
        at, spilled = fit(order, device.hbm.bytes)
        _write(at, "hbm")
        for t in spilled:
            full = Candidate("hbm", reason="busier tensors fill it")
            decide("memory", t.op, f"ddr: {t.nbytes} bytes that move {t.traffic} bytes a run", (full,))
    at, left = fit(spilled, device.ddr.bytes)
    _write(at, "ddr")
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
    return [t for t in spilled if device.hbm is not None]


def _write(at: dict[RegionOp, int], memory: str) -> None:
    name = StringAttr(memory)
    for op, address in at.items():
        op.memory = name
        op.address = integer(address)


@dataclass(frozen=True)
class AllocateMemoryPass(Pass):
    """Give every off-chip region a memory and an address; temporaries share space when their lives do not meet.

    Assumes a program and a device in the module. High-bandwidth memory first; on overflow the regions that move fewest
    bytes per byte held go to DDR, weights last. A program that fits neither is refused with its largest tensors.

        rdu.region @x input tensor<4xf32>   =>   rdu.region @x input tensor<4xf32> in hbm at 0
    """

    name = "allocate-memory"
    align: int = option(64, "alignment of regions", unit="bytes", low=1)

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        programs = [op for op in module.body.block.ops if isinstance(op, ProgramOp)]
        for program in programs:
            allocate(program, device_of(module), self.align)
        return bool(programs)
