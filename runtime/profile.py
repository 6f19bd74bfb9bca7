"""A profile as tables for people: the whole, the sections, the ops of the model, groups of units, and memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.runtime.times import MemoryUse, Timing

HIDDEN = 0.0005
"""Ops with a smaller share of the time are summed up: others hide what they take."""
LEGEND = (
    "A row's time is its part of the critical path: the rows and the launches add up to the whole.\n"
    "'computes' is what its units work, also while something else is waited for; 'bound by' is what sets their pace.\n"
    "'busy' is the part of the device's compute units that compute (of a group: of its own), 'stall' the part of the\n"
    "time from the first tile of its units to their last in which they wait."
)


def profile_text(timing: Timing, top: int = 20, units: bool = False) -> str:
    """Tables for people: the total and what it waits for, sections, the `top` longest ops of the model, with `units`
    also the `top` longest groups of units, and what lies in which memory. Times are those of the device."""
    page = _Page(timing)
    parts = [page.head(), page.sections(top), page.ops(top)]
    if units:
        parts.append(page.units(top))
    parts.append(memory_text(timing.memory, top))
    return "\n\n".join(["\n".join(part) for part in parts] + [LEGEND])


def memory_text(memory: MemoryUse, top: int = 20) -> list[str]:
    """What lies in which memory, and the names of what was spilled to DDR."""
    lines: list[str] = []
    for name, capacity in memory.capacity.items():
        mine = [r for r in memory.regions if r.memory == name]
        kinds: dict[str, int] = {}
        for r in mine:
            kinds[r.kind] = kinds.get(r.kind, 0) + r.bytes
        held = ", ".join(f"{kind} {amount(n)}B" for kind, n in kinds.items()) or "nothing"
        largest = sorted(mine, key=lambda r: -r.bytes)[:3]
        names = ", ".join(f"{r.name} {amount(r.bytes)}B" for r in largest)
        lines.append(f"{name} of {amount(capacity)}B: {held}" + (f"; largest: {names}" if len(mine) > 1 else ""))
    if memory.spilled:
        more = f" and {len(memory.spilled) - top} more" if len(memory.spilled) > top else ""
        lines.append(f"spilled to ddr: {', '.join(memory.spilled[:top])}{more}")
    return lines


def time_text(seconds: float) -> str:
    """Seconds with a fitting unit: 283.57 us."""
    scale, unit = _unit(seconds)
    return f"{seconds * scale:.2f} {unit}"


def amount(value: float) -> str:
    """A number before its unit, with a decimal prefix: `12.3 M`."""
    for limit, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.3g} {prefix}"
    return f"{value:.3g} "


def _unit(seconds: float) -> tuple[float, str]:
    """The unit in which to show times up to `seconds`, and how many of it make a second."""
    for most, scale, unit in ((1e-2, 1e6, "us"), (10.0, 1e3, "ms")):
        if seconds < most:
            return scale, unit
    return 1.0, "s"


def _table(rows: Sequence[Sequence[str]], left: Sequence[int]) -> list[str]:
    """Rows of text in columns; those in `left` are aligned left, the others right."""
    widths = [max(len(row[c]) for row in rows) for c in range(len(rows[0]))]
    return [
        "  ".join(
            x.ljust(w) if c in left else x.rjust(w) for c, (x, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _short(text: str, most: int = 60) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 'es' if noun.endswith('ch') else 's'}"


class _Page:
    """The tables of one timing; all times are in one unit."""

    def __init__(self, timing: Timing) -> None:
        self.timing = timing
        self.total = max(timing.cycles, 1e-9)
        self.scale, self.unit = _unit(timing.seconds)

    def time(self, cycles: float) -> str:
        return f"{cycles * self.scale / self.timing.clock:.2f}"

    def share(self, cycles: float) -> str:
        return f"{100 * cycles / self.total:.1f}%"

    def head(self) -> list[str]:
        t, use = self.timing, self.timing.utilisation
        uses = [
            f"{amount(t.flops)}FLOP: {use['flops']:.1%} of the peak rate",
            f"compute units busy {use['pcu']:.1%}",
        ]
        if "hbm" in use:
            uses.append(f"{amount(t.hbm_bytes)}B of HBM traffic: {use['hbm']:.1%} of its bandwidth")
        if t.ddr_bytes:
            uses.append(f"{amount(t.ddr_bytes)}B of DDR traffic")
        if "peer" in use:
            uses.append(f"{amount(t.peer_bytes)}B to other sockets: {use['peer']:.1%} of the busiest link to them")
        bounds = sorted(t.bounds.items(), key=lambda x: -x[1])
        waits = [f"{name} {cycles / self.total:.0%}" for name, cycles in bounds if cycles >= 0.005 * self.total]
        return [
            *self.stream(),
            f"{t.seconds * self.scale:.2f} {self.unit} on {t.device}: {t.cycles:,.0f} cycles at {t.clock / 1e9:g} GHz, "
            + self.launches(),
            "waits for " + ", ".join(waits),
            "; ".join(uses),
        ]

    def stream(self) -> list[str]:
        """From result to result, of a program that takes several inputs at a time."""
        t = self.timing
        if t.inputs == 1:
            return []
        each = f"{time_text(t.interval)} from result to result, {amount(t.rate).strip()} results a second"
        return [f"{each}, when inputs stream in; the first after {time_text(t.latency)}, {t.inputs} at a time"]

    def launches(self) -> str:
        """How often something is launched, and by whom."""
        t = self.timing
        loops = [f"a loop of {x.times} x {_count(x.period, 'section')}" for x in t.loops]
        return _count(t.calls, "launch") + f" ({', '.join([f'{t.host_launches} by the host', *loops])})"

    def sections(self, top: int) -> list[str]:
        t = self.timing
        time = f"{self.unit} a run"
        rows: list[tuple[str, ...]] = [
            (
                "section",
                "runs",
                time,
                "share",
                "bound by",
                "busy",
                "stall",
                "PCU",
                "PMU",
                "AGCU",
                "link",
                "FLOP",
                "moves",
                *(("to peers", "peer link") if t.peer_bytes else ()),
            )
        ]
        found = sorted(zip(t.runs, t.configs, strict=True), key=lambda x: -x[0] * x[1].cycles)
        for runs, c in found[:top]:
            used = [str(c.used.get(kind, 0)) for kind in ("pcu", "pmu", "agcu")]
            bound = max(c.bounds, key=lambda k: c.bounds[k], default="")
            use = f"{t.busy(c.work, c.cycles):.1%}", f"{c.stall:.0%}"
            first = (f"@{c.name}", str(runs), self.time(c.cycles), self.share(runs * c.cycles), bound, *use)
            moved = f"{amount(c.hbm_bytes + c.ddr_bytes)}B"
            peers = (f"{amount(c.peer_bytes)}B", f"{c.peer_load:.0%}") if t.peer_bytes else ()
            rows.append((*first, *used, f"{c.link_load:.0%}", amount(c.flops).strip(), moved, *peers))
        if len(found) > top:
            more = sum(runs * c.cycles for runs, c in found[top:])
            rows.append((f"{len(found) - top} more", "", "", self.share(more), *[""] * (len(rows[0]) - 4)))
        launching = t.launch_seconds * t.clock
        mean = self.time(launching / max(1, len(t.launches)))
        rest = [""] * (len(rows[0]) - 5)
        rows.append(("launches", str(len(t.launches)), mean, self.share(launching), "launch", *rest))
        return _table(rows, (0, 4))

    def ops(self, top: int) -> list[str]:
        rows: list[tuple[str, ...]] = [
            (self.unit, "share", "computes", "bound by", "busy", "stall", "FLOP", "op of the model")
        ]
        bound = _bounds_by_op(self.timing)
        shown = [op for op in self.timing.ops[:top] if op.cycles >= self.total * HIDDEN]
        for op in shown:
            work = self.time(op.busy) if op.busy else ""
            where = f"{_short(op.location or '(no location)')}{f' ({op.op})' if op.op else ''}"
            flops = amount(op.flops).strip() if op.flops else ""
            by = bound.get((op.location, op.op), "")
            use = f"{self.timing.busy(op.work):.1%}" if op.work else "", f"{op.stall:.0%}" if op.present else ""
            rows.append((self.time(op.cycles), self.share(op.cycles), work, by, *use, flops, where))
        if rest := self.timing.ops[len(shown) :]:
            cycles = sum(op.cycles for op in rest)
            rows.append((self.time(cycles), self.share(cycles), *[""] * 5, f"{len(rest)} more"))
        launching = self.timing.launch_seconds * self.timing.clock
        count = _count(len(self.timing.launches), "launch")
        rows.append((self.time(launching), self.share(launching), "", "launch", *[""] * 3, count))
        return _table(rows, (3, 7))

    def units(self, top: int) -> list[str]:
        t = self.timing
        found = [(runs, c, u) for runs, c in zip(t.runs, t.configs, strict=True) for u in c.units if u.cycles > 0]
        rows: list[tuple[str, ...]] = [
            (
                *(self.unit, "share", "works", "bound by", "busy", "stall"),
                *("sites", "steps", "cycles a step", "units", "op of the model"),
            )
        ]
        for runs, c, u in sorted(found, key=lambda x: -x[0] * x[2].cycles)[:top]:
            times = (self.time(runs * u.cycles), self.share(runs * u.cycles), self.time(runs * u.busy))
            own = u.work / (u.sites * max(c.cycles, 1e-9))
            use = f"{own:.1%}" if u.work else "", f"{u.stall:.0%}"
            size = (str(u.sites), str(u.steps), f"{u.interval:,.0f}")
            rows.append((*times, u.bound, *use, *size, f"@{c.name}/{u.name} {u.mode}", _short(u.location, 40)))
        return _table(rows, (3, 9, 10))


def _bounds_by_op(timing: Timing) -> dict[tuple[str, str], str]:
    """What the units of each op wait for most, by location and op."""
    waits: dict[tuple[str, str], dict[str, float]] = {}
    for runs, config in zip(timing.runs, timing.configs, strict=True):
        for unit in config.units:
            for op in unit.ops:
                mine = waits.setdefault((op.location, op.op), {})
                mine[unit.bound] = mine.get(unit.bound, 0.0) + runs * op.cycles
    return {key: max(mine, key=lambda bound: mine[bound]) for key, mine in waits.items()}
