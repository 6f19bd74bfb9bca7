"""Floorplans: which unit of the chip does what in a section, how much each is in use, and how full the links are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.dialects.machine.device import UNIT_KINDS, Device
from headrace.dialects.support.diagnostics import CompileError, nearest
from headrace.runtime.profile import amount, time_text
from headrace.runtime.program import Config, Program
from headrace.runtime.times import ConfigTime, Timing, UnitTime
from headrace.runtime.traffic import Traffic
from headrace.tools.views.drawing import PALE, Svg, number, width_of

Array = np.ndarray[Any, np.dtype[Any]]

PITCH, SIDE = 18, 10
"""Distance of two switches and side of a unit, in points."""
LEFT, TOP, BOTTOM = 20, 64, 82
SHADES = {
    "pcu": ("#d6e6f7", "#a9ccee", "#78aee0", "#4389cf", "#15549a"),
    "pmu": ("#d5eedb", "#a8dab6", "#75c18c", "#41a160", "#146b34"),
    "agcu": ("#fbe8cc", "#f6cf97", "#eeb05a", "#d98a25", "#985708"),
}
"""Colours of a kind by use, from little to all of the time."""
USES = (0.02, 0.1, 0.3, 0.6, 1.0)
"""Most use → the colour of that place."""
KINDS = {"pcu": "compute unit", "pmu": "memory unit", "agcu": "address generator"}
LOADS = ((0.1, "#c9d1d9"), (0.25, "#f2d16b"), (0.5, "#f0a030"), (0.75, "#e0602a"), (1.0, "#c02020"), (1e9, "#5a0a6e"))
"""Most load → colour of a link."""


@dataclass(frozen=True)
class Floor:
    """A section on the chip: `use` of each group of units, as a part of the section's time, and `links`, the load of
    each link that carries anything, by its number: words over what it could carry in that time."""

    config: Config
    time: ConfigTime
    runs: int
    use: Mapping[str, float]
    links: Mapping[int, float]


def floor(program: Program, timing: Timing, section: str = "") -> Floor:
    """The numbers of a section's floorplan; of the one that takes most of the time when none is named. `CompileError`
    when there is none of that name."""
    names = [c.name for c in timing.configs]
    if section.removeprefix("@") not in ("", *names):
        raise CompileError("no-section", f"there is no section '{section}'", fix=nearest(section, names))
    name = (
        section.removeprefix("@")
        or max(zip(timing.runs, timing.configs, strict=True), key=lambda x: x[0] * x[1].cycles)[1].name
    )
    time = next(c for c in timing.configs if c.name == name)
    config = next(c for c in program.configs if c.name == name)
    runs = sum(n for n, c in zip(timing.runs, timing.configs, strict=True) if c.name == name)
    loads = link_loads(config, Device.from_dict(program.device), time.cycles)
    return Floor(config, time, runs, {u.name: use_of(u, time.cycles) for u in time.units}, loads)


def use_of(unit: UnitTime, cycles: float) -> float:
    """The part of a section's time in which a unit of a group works: computes, serves its busier port, or moves."""
    parts = unit.parts
    work = {
        "pcu": parts.get("compute", 0.0),
        "pmu": max(parts.get("read", 0.0), parts.get("write", 0.0)),
        "agcu": parts.get("agcu", 0.0),
    }[unit.kind]
    return min(1.0, work / cycles) if cycles else 0.0


def link_loads(config: Config, device: Device, cycles: float) -> dict[int, float]:
    """The load of each link that carries anything in a run of that many cycles."""
    columns, rows = device.mesh
    words = np.zeros(4 * columns * rows)
    for flow in config.flows:
        traffic = Traffic(config, flow, device)
        on, each = traffic.links
        words[on] += each * traffic.steps
    used: list[int] = np.flatnonzero(words).tolist()
    return {link: float(words[link]) / device.network.links / cycles for link in used} if cycles else {}


def floorplan(program: Program, timing: Timing, section: str = "") -> str:
    """The picture of a section (`floor`), as SVG."""
    device = Device.from_dict(program.device)
    data = floor(program, timing, section)
    return str(_Picture(device, timing, data).drawn())


class _Picture:
    def __init__(self, device: Device, timing: Timing, data: Floor) -> None:
        self.device, self.timing, self.data = device, timing, data
        self.columns, self.rows = device.mesh
        width = max(760, 2 * LEFT + self.columns * PITCH)
        self.svg = Svg(width, TOP + self.rows * PITCH + BOTTOM, f"Floorplan of @{data.config.name} on {device.name}")
        self.half = device.grid.pattern == "paired"

    def drawn(self) -> Svg:
        c, t, svg = self.data.time, self.timing, self.svg
        svg.text(LEFT, 26, f"@{c.name} on {t.device}", 17, font_weight="bold")
        counts = ", ".join(f"{c.used.get(k, 0)} of {self.device.count(k)} {k.upper()}" for k in UNIT_KINDS)
        share = self.data.runs * c.cycles / max(t.cycles, 1e-9)
        svg.text(
            LEFT,
            44,
            f"{time_text(c.cycles / t.clock)} a run, {self.data.runs} run{'s' if self.data.runs > 1 else ''}, "
            f"{share:.1%} of the time; {counts}; "
            f"busiest link {c.link_load:.0%}",
            12,
            PALE,
        )
        self._dies()
        self._links()
        self._units()
        self._legend()
        return svg

    def _at(self, x: float, y: float) -> tuple[float, float]:
        """The middle of a switch."""
        return LEFT + (x + 0.5) * PITCH, TOP + (y + 0.5) * PITCH

    def _dies(self) -> None:
        share = self.device.grid.columns // self.device.grid.dies
        for die in range(1, self.device.grid.dies):
            x, y = self._at(die * share + 0.5, -0.5)
            self.svg.line(x, y, x, y + self.rows * PITCH, PALE, stroke_dasharray="4 4")

    def _links(self) -> None:
        """A link is a stroke from edge to edge of two units; the two directions lie beside each other."""
        gap, lane = SIDE / 2, 2
        drawn: dict[str, list[str]] = {color: [] for _, color in LOADS}
        for link, load in self.data.links.items():
            color = next(color for most, color in LOADS if load <= most)
            step, switch = link % 4, link // 4
            x, y = self._at(switch % self.columns, switch // self.columns)
            length = PITCH - SIDE
            if step < 2:
                forward = step == 0
                start, offset = x + (gap if forward else -gap - length), lane if forward else -lane
                drawn[color].append(f"M{number(start)} {number(y + offset)}h{length}")
            else:
                forward = step == 2
                start, offset = y + (gap if forward else -gap - length), -lane if forward else lane
                drawn[color].append(f"M{number(x + offset)} {number(start)}v{length}")
        for _, color in LOADS:
            if drawn[color]:
                strokes = "".join(drawn[color])
                self.svg.add("path", d=strokes, stroke=color, stroke_width=2, fill="none", data_links=len(drawn[color]))

    def _squares(self, kind: str, sites: Sequence[tuple[int, int]]) -> str:
        """One outline of all units at sites. Where two share a switch each has half of the square."""
        wide = SIDE // 2 if self.half and kind != "agcu" else SIDE
        shift = SIDE // 2 if self.half and kind == "pmu" else 0
        found: list[str] = []
        for x, y in sites:
            left, top = self._at(x, y)
            found.append(f"M{number(left - SIDE / 2 + shift)} {number(top - SIDE / 2)}h{wide}v{SIDE}h-{wide}z")
        return "".join(found)

    def _units(self) -> None:
        taken: dict[str, set[tuple[int, int]]] = {kind: set() for kind in UNIT_KINDS}
        groups: list[tuple[UnitTime, list[tuple[int, int]]]] = []
        for unit, time in zip(self.data.config.units, self.data.time.units, strict=True):
            sites = [(int(x), int(y)) for x, y in unit.sites.tolist()]
            taken[unit.kind].update(sites)
            groups.append((time, sites))
        for kind in UNIT_KINDS:
            free = [(s.x, s.y) for s in self.device.sites(kind) if (s.x, s.y) not in taken[kind]]
            if free:
                title = f"{KINDS[kind]}, not used"
                self.svg.add("path", "", title, d=self._squares(kind, free), fill="#f7f8fa", stroke="#dde1e6")
        for time, sites in groups:
            use = self.data.use[time.name]
            shade = SHADES[time.kind][next(i for i, most in enumerate(USES) if use <= most)]
            self.svg.add(
                "path",
                "",
                about(time, use, self.timing.clock),
                d=self._squares(time.kind, sites),
                fill=shade,
                stroke=SHADES[time.kind][4],
                stroke_width=0.75,
                data_group=time.name,
                data_sites=len(sites),
                data_use=use,
            )

    def _legend(self) -> None:
        svg, y = self.svg, float(TOP + self.rows * PITCH + 26)
        x = float(LEFT)
        for kind in UNIT_KINDS:
            text = f"{KINDS[kind]} ({kind.upper()})"
            svg.text(x, y, text)
            x += width_of(text)
            for shade in SHADES[kind]:
                svg.add("rect", x=x, y=y - 10, width=12, height=12, fill=shade, stroke=SHADES[kind][4])
                x += 14
            x += 14
        y, x = y + 18, float(LEFT)
        svg.text(
            x, y, f"darker: at work for more of the time (at most {', '.join(f'{u:.0%}' for u in USES)})", 12, PALE
        )
        y += 22
        svg.text(x, y, "link load, each direction")
        x += width_of("link load, each direction")
        for most, color in LOADS:
            svg.line(x, y - 4, x + 16, y - 4, color, stroke_width=3)
            text = f"to {most:.0%}" if most <= 1 else "more than it carries"
            svg.text(x + 20, y, text)
            x += 32 + width_of(text)


def about(unit: UnitTime, use: float, clock: float) -> str:
    """A group of units in words."""
    what = f"{unit.name}: {unit.sites} {KINDS[unit.kind]}s" + (f", {unit.mode}" if unit.mode else "")
    more = f"{amount(unit.bytes).strip()}B held" if unit.kind == "pmu" else f"{unit.steps} steps, bound by {unit.bound}"
    present = f"; at it {time_text(unit.present / clock)}, waits {unit.stall:.0%} of that" if unit.present else ""
    return f"{what}; {unit.location or 'no location'}; in use {use:.1%}; {more}{present}"
