"""A profile as tables for people: the whole, the sections, and the ops of the model, costliest first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.tools.cli.common import plural, table

if TYPE_CHECKING:
    from headrace.runtime.timing import Timing

SHARES = {"flops": "of the peak rate", "pcu": "of the compute units' cycles", "hbm": "of the HBM bandwidth"}
"""What the entries of `Timing.utilisation` are shares of."""
HIDDEN = 0.0005
"""Ops of a smaller share are summed up: others hide their time."""


def profile_text(timing: Timing, top: int = 20) -> str:
    """The tables, with at most `top` ops. The times of all ops and of the launches add up to the whole."""
    return "\n\n".join((whole(timing), sections(timing, top), ops(timing, top)))


def whole(timing: Timing) -> str:
    """Time, what it waits for, and how much of the device it uses."""
    uses = ", ".join(f"{share:.1%} {SHARES[name]}" for name, share in timing.utilisation.items() if name in SHARES)
    return (
        f"{time_text(timing.seconds)} on {timing.device}: {timing.cycles:,.0f} cycles at {timing.clock / 1e9:g} GHz\n"
        f"waits for {shares(timing.bounds, timing.cycles)}\n"
        f"uses {uses}"
    )


def sections(timing: Timing, top: int) -> str:
    """A row per configured section: how often it runs, cycles of one run, what they wait for, units, traffic."""
    rows: list[tuple[str, ...]] = [
        ("section", "runs", "cycles", "bound", "PCU", "PMU", "AGCU", "link", "Mflop", "HBM", "DDR")
    ]
    for runs, one in zip(timing.runs[:top], timing.configs, strict=False):
        rows.append(
            (
                one.name,
                str(runs),
                f"{one.cycles:,.0f}",
                max(one.bounds, key=lambda bound: one.bounds[bound], default=""),
                *(str(one.used.get(kind, 0)) for kind in ("pcu", "pmu", "agcu")),
                f"{one.link_load:.0%}",
                f"{one.flops / 1e6:,.1f}",
                bytes_text(one.hbm_bytes),
                bytes_text(one.ddr_bytes),
            )
        )
    more = f"\nand {len(timing.configs) - top} more sections" if len(timing.configs) > top else ""
    return table(rows) + more


def ops(timing: Timing, top: int) -> str:
    """A row per op of the model: its share of the time, the cycles that its units work, and what it waits for."""
    rows = [("time", "share", "busy cycles", "bound", "place in the model")]
    total = timing.cycles or 1.0
    bound = bounds_by_op(timing)
    shown = [one for one in timing.ops[:top] if one.cycles >= total * HIDDEN]
    for one in shown:
        where = f"{one.location or '(no location)'}{f' ({one.op})' if one.op else ''}"
        time = time_text(one.cycles / timing.clock)
        rows.append((time, f"{one.cycles / total:.1%}", f"{one.busy:,.0f}", bound[one.location, one.op], where))
    if rest := timing.ops[len(shown) :]:
        cycles = sum(one.cycles for one in rest)
        rows.append((time_text(cycles / timing.clock), f"{cycles / total:.1%}", "", "", f"{len(rest)} more"))
    launching = timing.launch_seconds
    share = launching * timing.clock / total
    rows.append((time_text(launching), f"{share:.1%}", "", "launch", plural(len(timing.launches), "launch")))
    widths = [max(len(row[c]) for row in rows) for c in range(4)]
    return "\n".join("  ".join([*(x.rjust(w) for x, w in zip(row, widths, strict=False)), row[4]]) for row in rows)


def bounds_by_op(timing: Timing) -> dict[tuple[str, str], str]:
    """What the units of each op wait for most, by location and op."""
    waits: dict[tuple[str, str], dict[str, float]] = {}
    for runs, config in zip(timing.runs, timing.configs, strict=True):
        for unit in config.units:
            for op in unit.ops:
                mine = waits.setdefault((op.location, op.op), {})
                mine[unit.bound] = mine.get(unit.bound, 0.0) + runs * op.cycles
    return {key: max(mine, key=lambda bound: mine[bound]) for key, mine in waits.items()}


def shares(parts: Mapping[str, float], total: float) -> str:
    """`sram 62%, compute 30%, …`, largest first."""
    ordered = sorted(parts.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {value / (total or 1.0):.0%}" for name, value in ordered if value)


def time_text(seconds: float) -> str:
    """Seconds with a fitting unit."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= scale:
            return f"{seconds / scale:.2f} {unit}"
    return f"{seconds * 1e9:.1f} ns"


def bytes_text(count: int) -> str:
    """Bytes with a fitting unit."""
    for scale, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count} B"
