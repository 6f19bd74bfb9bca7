"""The roofline of a program: FLOP rates of its sections over what each computes a byte that it moves off chip.

A section cannot run faster than the compute units (flat ceilings, one for each rate of an element type), nor faster
than off-chip memory feeds it (slanted ceilings). How far a point lies below the lower of the two is what the mapping
leaves on the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import atan2, ceil, degrees, floor, log10

from headrace.dialects.machine.cost import peak_flops
from headrace.dialects.machine.device import Device
from headrace.dialects.rdu.cost import CONTRACTIONS
from headrace.runtime.profile import amount, time_text
from headrace.runtime.program import Config, Pcu, Program
from headrace.runtime.times import Timing
from headrace.tools.views.drawing import GRID, INK, PALE, Svg, number, width_of

WIDTH, HEIGHT = 1040, 580
LEFT, RIGHT, TOP, BOTTOM = 80, 240, 60, 90
LISTED = 12
"""Sections that have a number in their point and are listed beside the picture."""
COLORS = {
    "compute": "#2f6fb7",
    "sram": "#3a9d5d",
    "network": "#8a5cc2",
    "agcu": "#b58a00",
    "hbm": "#d9712b",
    "ddr": "#b3392f",
    "peer": "#c2478f",
    "launch": "#7b8794",
    "": "#7b8794",
}
"""What something waits for → the colour that it is drawn in."""


@dataclass(frozen=True)
class Point:
    """A section (all runs of it), or the whole program. `roof` is the FLOP rate that the ceilings allow it; `rate` is
    that of its own time, for the whole with launches."""

    name: str
    flops: int
    hbm_bytes: int
    ddr_bytes: int
    seconds: float
    roof: float
    bound: str

    @property
    def bytes(self) -> int:
        """What it moves off chip."""
        return self.hbm_bytes + self.ddr_bytes

    @property
    def intensity(self) -> float:
        """FLOP for each byte that crosses the chip's edge."""
        return self.flops / self.bytes if self.bytes else 0.0

    @property
    def rate(self) -> float:
        """FLOP a second."""
        return self.flops / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class Roofline:
    """Ceilings (FLOP/s by element types, B/s by memory) and points: the sections, longest first, and the whole."""

    compute: Mapping[str, float]
    memory: Mapping[str, float]
    sections: Sequence[Point]
    whole: Point


def rooflines(program: Program, timing: Timing) -> Roofline:
    """The numbers of the picture."""
    device = Device.from_dict(program.device)
    peaks: dict[float, list[str]] = {}
    for entry in device.types:
        if device.is_native(entry.name) and entry.name != "i1":
            peaks.setdefault(peak_flops(device, entry.name), []).append(entry.name)
    memories = {"hbm": device.hbm, "ddr": device.ddr}
    memory = {name: m.bandwidth * m.efficiency for name, m in memories.items() if m is not None}
    peak = {config.name: peak_of(config, device) for config in program.configs}

    def point(name: str, flops: int, hbm: int, ddr: int, seconds: float, ceiling: float, bound: str) -> Point:
        least = max(hbm / memory.get("hbm", 1.0), ddr / memory.get("ddr", 1.0))
        return Point(name, flops, hbm, ddr, seconds, min(ceiling, flops / least) if least else ceiling, bound)

    found = [
        point(
            f"@{c.name}",
            n * c.flops,
            n * c.hbm_bytes,
            n * c.ddr_bytes,
            n * c.cycles / timing.clock,
            peak[c.name],
            max(c.bounds, key=lambda k: c.bounds[k], default=""),
        )
        for n, c in zip(timing.runs, timing.configs, strict=True)
    ]
    bound = max(timing.bounds, key=lambda k: timing.bounds[k], default="")
    moved = timing.hbm_bytes, timing.ddr_bytes
    whole = point("whole program", timing.flops, *moved, timing.seconds, timing.peak_flops, bound)
    compute = {", ".join(names): value for value, names in sorted(peaks.items(), reverse=True)}
    return Roofline(compute, memory, sorted(found, key=lambda p: (-p.seconds, p.name)), whole)


def peak_of(config: Config, device: Device) -> float:
    """The peak FLOP rate for the widest element type that products of a section compute in; without products that of
    lane-wise work."""
    units = [unit for unit in config.units if isinstance(unit, Pcu)]
    types = {u.types[op.operands[0]].dtype for u in units for op in u.ops if op.name in CONTRACTIONS}
    if types:
        return min(peak_flops(device, dtype) for dtype in types)
    others = {u.types[op.operands[0]].dtype for u in units for op in u.ops if op.operands}
    return min((peak_flops(device, dtype, "simd") for dtype in others), default=peak_flops(device, "f32", "simd"))


def roofline(program: Program, timing: Timing) -> str:
    """The picture, as SVG."""
    data = rooflines(program, timing)
    shown = [p for p in data.sections if p.intensity and p.rate]
    points = [*shown, *([data.whole] if data.whole.intensity and data.whole.rate else [])]
    top = max(data.compute.values(), default=1.0)
    ridges = [top / bandwidth for bandwidth in data.memory.values()]
    xs = [p.intensity for p in points] + ridges
    ys = [p.rate for p in points] + [min(data.compute.values(), default=top)]
    axes = _Axes(floor(log10(min(xs) / 2)), ceil(log10(max(xs) * 2)), floor(log10(min(ys) / 2)), ceil(log10(top * 1.5)))
    svg = Svg(WIDTH, HEIGHT, f"Roofline on {timing.device}")
    svg.text(LEFT, 26, f"Roofline on {timing.device}: {time_text(timing.seconds)}", 17, font_weight="bold")
    svg.text(
        LEFT, 44, "A point lies as far below its ceiling as it could be faster. Area: share of the time.", 12, PALE
    )
    axes.draw(svg)
    _ceilings(svg, axes, data)
    for rank, p in reversed(list(enumerate(shown, 1))):
        _point(svg, axes, p, timing, str(rank) if rank <= LISTED else "")
    if len(points) > len(shown):
        _whole(svg, axes, data.whole)
    _names(svg, axes, data)
    _list(svg, max(map(axes.y, data.compute.values())) + 34, shown, timing)
    _legend(svg, points, len(data.sections) - len(shown))
    return str(svg)


class _Axes:
    """Logarithmic axes over whole decades."""

    def __init__(self, left: int, right: int, low: int, high: int) -> None:
        self.left, self.right, self.low, self.high = left, max(right, left + 1), low, max(high, low + 1)

    def x(self, value: float) -> float:
        return LEFT + (log10(value) - self.left) / (self.right - self.left) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - (log10(value) - self.low) / (self.high - self.low) * (HEIGHT - TOP - BOTTOM)

    def draw(self, svg: Svg) -> None:
        floor_, right = HEIGHT - BOTTOM, WIDTH - RIGHT
        for power in range(self.left, self.right + 1):
            x = self.x(10.0**power)
            svg.line(x, TOP, x, floor_, GRID)
            svg.text(x, floor_ + 18, f"{10.0**power:g}", 12, PALE, text_anchor="middle")
        for power in range(self.low, self.high + 1):
            y = self.y(10.0**power)
            svg.line(LEFT, y, right, y, GRID)
            svg.text(LEFT - 8, y + 4, f"{amount(10.0**power)}".strip(), 12, PALE, text_anchor="end")
        svg.line(LEFT, floor_, right, floor_)
        svg.line(LEFT, TOP, LEFT, floor_)
        middle = (LEFT + right) / 2
        svg.text(middle, HEIGHT - 48, "FLOP per byte moved off chip", 13, text_anchor="middle")
        at = (TOP + floor_) / 2
        svg.text(22, at, "FLOP/s", 13, text_anchor="middle", transform=f"rotate(-90 22 {at:g})")


def _ceilings(svg: Svg, axes: _Axes, data: Roofline) -> None:
    left, right = 10.0**axes.left, 10.0**axes.right
    top = max(data.compute.values())
    fastest = max(data.memory.values())
    for names, peak in data.compute.items():
        start = max(left, peak / fastest)
        y = axes.y(peak)
        svg.line(axes.x(start), y, WIDTH - RIGHT, y, INK, stroke_width=2, data_compute=names, data_rate=float(peak))
    for name, bandwidth in data.memory.items():
        begin = max(left, 10.0**axes.low / bandwidth)
        end = min(right, top / bandwidth)
        color = COLORS[name]
        x1, y1, x2, y2 = axes.x(begin), axes.y(begin * bandwidth), axes.x(end), axes.y(end * bandwidth)
        svg.line(x1, y1, x2, y2, color, stroke_width=2, data_memory=name, data_rate=float(bandwidth))


def _names(svg: Svg, axes: _Axes, data: Roofline) -> None:
    """What the ceilings are, over everything else."""
    for names, peak in data.compute.items():
        text = f"{names}: {amount(peak)}FLOP/s"
        svg.text(WIDTH - RIGHT + 6, axes.y(peak) + 4, text)
    top = max(data.compute.values())
    for name, bandwidth in data.memory.items():
        begin = max(10.0**axes.left, 10.0**axes.low / bandwidth)
        x1, y1, x2, y2 = axes.x(begin), axes.y(begin * bandwidth), axes.x(top / bandwidth), axes.y(top)
        x, y = x1 + 0.15 * (x2 - x1), y1 + 0.15 * (y2 - y1)
        turn = f"rotate({degrees(atan2(y2 - y1, x2 - x1)):.1f} {x:.1f} {y:.1f})"
        svg.label(x, y - 6, f"{name.upper()}: {amount(bandwidth)}B/s", 12, COLORS[name], transform=turn)


def _point(svg: Svg, axes: _Axes, p: Point, timing: Timing, label: str) -> None:
    share = p.seconds / max(timing.seconds, 1e-30)
    x, y = axes.x(p.intensity), axes.y(p.rate)
    if p.roof > p.rate:
        svg.line(x, y, x, axes.y(p.roof), PALE, stroke_dasharray="2 3")
    look = {"fill": COLORS.get(p.bound, PALE), "fill_opacity": 0.8, "stroke": "#ffffff"}
    svg.add("circle", "", about(p, share), cx=x, cy=y, r=5 + 13 * share**0.5, **look, **_told(p))
    if label:
        svg.text(x, y + 3.5, label, 10, "#ffffff", text_anchor="middle")


def _whole(svg: Svg, axes: _Axes, p: Point) -> None:
    x, y = axes.x(p.intensity), axes.y(p.rate)
    shape = f"M{number(x)} {number(y - 8)}l8 8l-8 8l-8 -8Z"
    svg.add("path", "", about(p, 1.0), d=shape, fill=INK, stroke="#ffffff", **_told(p))


def _told(p: Point) -> dict[str, object]:
    """The numbers of a point, for who reads the picture with a program."""
    return {"data_name": p.name, "data_intensity": p.intensity, "data_rate": p.rate, "data_roof": p.roof}


def _list(svg: Svg, y: float, sections: Sequence[Point], timing: Timing) -> None:
    """The sections by number, beside the picture."""
    x = WIDTH - RIGHT + 24
    svg.text(x, y, "Sections", 12, font_weight="bold")
    for rank, p in enumerate(sections[:LISTED], 1):
        y += 20
        name = p.name if len(p.name) <= 18 else p.name[:17] + "…"
        svg.add("circle", cx=x + 7, cy=y - 4, r=8, fill=COLORS.get(p.bound, PALE))
        svg.text(x + 7, y, str(rank), 10, "#ffffff", text_anchor="middle")
        svg.text(x + 20, y, f"{name}  {p.seconds / max(timing.seconds, 1e-30):.1%}")
    if sections[LISTED:]:
        svg.text(x, y + 20, f"{len(sections) - LISTED} more, without a number", 12, PALE)


def about(p: Point, share: float) -> str:
    """A point in words."""
    reach = f", {p.rate / p.roof:.1%} of what its ceiling allows" if p.roof else ""
    return (
        f"{p.name}: {p.intensity:.4g} FLOP/B, {amount(p.rate)}FLOP/s{reach}; {time_text(p.seconds)}, "
        f"{share:.1%} of the time, waits most for {p.bound or 'nothing'}"
    )


def _legend(svg: Svg, points: Sequence[Point], hidden: int) -> None:
    names = [name for name in COLORS if name and any(p.bound == name for p in points[:-1])]
    x, y = float(LEFT), HEIGHT - 16.0
    svg.add("path", d=f"M{x:g} {y - 10:g}l6 6l-6 6l-6 -6Z", fill=INK)
    text = "whole program, launches included"
    svg.text(x + 12, y, text)
    x += 24 + width_of(text)
    if names:
        text = "sections, by what they wait for most:"
        svg.text(x, y, text)
        x += 4 + width_of(text)
    for name in names:
        svg.add("circle", cx=x, cy=y - 4, r=5, fill=COLORS[name])
        svg.text(x + 9, y, name)
        x += 20 + width_of(name)
    if hidden:
        svg.text(WIDTH - RIGHT, 44, f"{hidden} without FLOP or traffic not shown", 12, PALE, text_anchor="end")
