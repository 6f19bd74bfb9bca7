"""An independent check of routed programs: everything that a chip would trip over, recomputed from the routed IR alone.

    report = audit(module)
    report.raise_if_any()          # CompileError with everything that is wrong
    print(report.text())

Nothing of the passes, of the verifiers or of the runtime is used: units, addresses, pairs of sites, link loads,
channels and token counts are derived here once more, so that a mistake in a pass and the same mistake in its checker do
not cancel out. (How long a collective takes is asked of the device, `dialects.machine.collectives`.) The parts: `units`
(sites, bodies and groups of sockets), `addresses` (cells, pairs, frames, capacity), `network` (routes, links, credits,
channels), `tokens` (deadlock), `banks` (conflicts, which are reported only) and `memory` (off chip).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.dialects.support.diagnostics import CompileError, Diagnostic

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from headrace.dialects.support.diagnostics import Collector
    from headrace.tools.audit.program import Config, Routed


@dataclass(frozen=True)
class ConfigUse:
    """What a config takes of the chip. `link_load` is the rate of the busiest
    link over its capacity, `busiest` are the words of a run over the busiest link, `nets` the most flows
    that share a link, `fullest` the share of its bytes that the fullest memory unit holds, `conflicts` the flows whose
    words meet a bank more than once, and how often."""

    name: str
    units: dict[str, int]
    flows: int
    pairs: int
    hops: int
    link_load: float
    busiest: float
    nets: int
    fullest: float
    conflicts: dict[str, int]
    steps: int


@dataclass(frozen=True)
class Report:
    """What an audit found and what the program uses."""

    diagnostics: tuple[Diagnostic, ...]
    device: str
    units: dict[str, int]
    """How many of each kind the device has."""
    configs: tuple[ConfigUse, ...]
    memory: dict[str, tuple[int, int]]
    """Bytes up to which each memory is used, and those that it has."""
    notes: tuple[str, ...] = ()

    def raise_if_any(self) -> None:
        """`CompileError` with everything that is wrong, or nothing."""
        if self.diagnostics:
            raise CompileError.many(self.diagnostics)

    def to_json(self) -> dict[str, Any]:
        """The report as one JSON document."""
        return {
            "device": self.device,
            "units": self.units,
            "configs": [vars(one) for one in self.configs],
            "memory": {name: {"used": used, "bytes": have} for name, (used, have) in self.memory.items()},
            "notes": list(self.notes),
            "errors": [one.to_json() for one in self.diagnostics],
        }

    def text(self) -> str:
        """The report for people: a line for each config and each memory."""
        rows: list[tuple[str, ...]] = [("config", *self.units, *_COLUMNS)]
        for c in self.configs:
            taken = (f"{c.units[kind]}/{have}" for kind, have in self.units.items())
            numbers = f"{c.link_load:.2f}", f"{c.nets}", f"{c.fullest:.0%}", f"{len(c.conflicts)}"
            rows.append((f"@{c.name}", *taken, f"{c.flows}", f"{c.pairs}", *numbers))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.rjust, row, widths)) for row in rows]
        lines += [f"{name}: {used:,} of {have:,} bytes" for name, (used, have) in self.memory.items()]
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines)


_COLUMNS = ("flows", "routes", "link load", "flows on a link", "fullest pmu", "bank conflicts")


def audit(module: ModuleOp) -> Report:
    """Audit a routed module; `CompileError` `not-routed` when it is none."""
    from headrace.tools.audit.reading import read_module

    return audit_program(read_module(module))


def audit_program(program: Routed) -> Report:
    """Audit a program in the audit's own tables."""
    from headrace.dialects.support.diagnostics import Collector
    from headrace.tools.audit.memory import check_memory

    found = Collector()
    uses = tuple(_config(config, program, found) for config in program.configs)
    have = program.device.sockets.count
    if program.sockets > have:
        what = f"the mesh has {program.sockets} sockets, '{program.device.name}' {have}"
        found.add("too-many-sockets", what, why="sockets.count of the device")
    used = check_memory(program, found)
    device = program.device
    memories = {"hbm": device.hbm, "ddr": device.ddr}
    holds = {name: memory.bytes for name, memory in memories.items() if memory is not None}
    return Report(
        tuple(found.diagnostics),
        device.name,
        {kind: device.count(kind) for kind in ("pcu", "pmu", "agcu")},
        uses,
        {name: (used[name], holds[name]) for name in holds},
        program.notes,
    )


def _config(config: Config, program: Routed, found: Collector) -> ConfigUse:
    from headrace.tools.audit import addresses, network
    from headrace.tools.audit.banks import bank_conflicts
    from headrace.tools.audit.looking import Look
    from headrace.tools.audit.tokens import check_tokens
    from headrace.tools.audit.units import check_units

    look = Look(config, program.device, found, program.sockets)
    units = check_units(look)
    addresses.check_streams(look)
    shares = addresses.check_pairs(look)
    network.check_routes(look)
    network.check_credits(look)
    fullest = addresses.check_buffers(look)
    steps = check_tokens(look)
    hops = network.hops_of(look, shares)
    network.check_trees(look, hops)
    if all(flow.channel is not None for flow in hops.flows):
        network.check_channels(look, hops)
    busiest, nets = network.check_links(look, hops)
    load = 0.0 if look.unsound or look.untimed else network.check_load(look, hops)
    return ConfigUse(
        config.name,
        units,
        len(config.flows),
        sum(len(f.pairs) for f in config.flows),
        len(hops.link),
        load,
        busiest,
        nets,
        fullest,
        bank_conflicts(look),
        steps,
    )
