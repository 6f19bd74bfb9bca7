"""Curves over logarithmic axes, and maps of cells: pictures of figures that hang on two sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

from headrace.tools.views.drawing import GRID, INK, PALE, Svg, number, width_of

WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 76, 200, 46, 56


@dataclass(frozen=True)
class Curve:
    """Points (x, y, exact) that are joined; those that are not exact are drawn hollow."""

    name: str
    points: Sequence[tuple[float, float, bool]]
    color: str
    dashed: bool = False


def short(value: float) -> str:
    """A number in few characters: 850, 8.5k, 1.2M, 0.034."""
    for limit, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.3g}{sign}"
    return f"{value:.3g}"


def tokens(count: float) -> str:
    """A number of tokens in few characters: 512, 8k for 8,192, 1500."""
    return f"{count / 1024:g}k" if count >= 1024 and count % 1024 == 0 else f"{count:g}"


def curves(
    title: str,
    across: str,
    up: str,
    drawn: Sequence[Curve],
    ticks: Sequence[float],
    told: Callable[[float], str] = short,
) -> str:
    """A picture of curves; the axis across has the given ticks, written as `told`, the one up 1, 2 and 5 of decades."""
    svg = Svg(WIDTH, HEIGHT, title)
    values = [y for curve in drawn for _, y, _ in curve.points if y > 0]
    svg.text(LEFT, 26, title, 15, font_weight="bold")
    if not values:
        svg.text(LEFT, 60, "no figures", 12, PALE)
        return str(svg)
    left, right = log10(ticks[0]), max(log10(ticks[-1]), log10(ticks[0]) + 0.1)
    low, high = _ends(min(values), max(values))
    bottom, edge = HEIGHT - BOTTOM, WIDTH - RIGHT

    def x(value: float) -> float:
        return LEFT + (log10(value) - left) / (right - left) * (edge - LEFT)

    def y(value: float) -> float:
        return bottom - (log10(value) - low) / (high - low) * (bottom - TOP)

    for tick in ticks:
        svg.line(x(tick), TOP, x(tick), bottom, GRID)
        svg.text(x(tick), bottom + 17, told(tick), 12, PALE, text_anchor="middle")
    for tick in _marks(low, high):
        svg.line(LEFT, y(tick), edge, y(tick), GRID)
        svg.text(LEFT - 7, y(tick) + 4, short(tick), 12, PALE, text_anchor="end")
    svg.line(LEFT, bottom, edge, bottom)
    svg.line(LEFT, TOP, LEFT, bottom)
    svg.text((LEFT + edge) / 2, HEIGHT - 14, across, 13, text_anchor="middle")
    middle = (TOP + bottom) / 2
    svg.text(20, middle, up, 13, text_anchor="middle", transform=f"rotate(-90 20 {middle:g})")
    for place, curve in enumerate(drawn):
        points = [(x(a), y(b), a, b, exact) for a, b, exact in curve.points if b > 0]
        path = "".join(f"{'L' if i else 'M'}{number(p[0])} {number(p[1])}" for i, p in enumerate(points))
        dash = "6 4" if curve.dashed else ""
        svg.add("path", d=path, fill="none", stroke=curve.color, stroke_width=2, stroke_dasharray=dash)
        for px, py, a, b, exact in points:
            about = f"{curve.name}: {short(b)} at {told(a)}{'' if exact else ' (interpolated)'}"
            fill = curve.color if exact else "#ffffff"
            svg.add("circle", "", about, cx=px, cy=py, r=3.5, fill=fill, stroke=curve.color, stroke_width=1.5)
        row = TOP + 8 + 20 * place
        svg.line(edge + 14, row, edge + 42, row, curve.color, stroke_width=2, stroke_dasharray=dash)
        svg.text(edge + 48, row + 4, curve.name)
    return str(svg)


def _ends(low: float, high: float) -> tuple[float, float]:
    """Ends of an axis in decades, at a half of one."""
    begin, end = floor(log10(low) * 2 - 0.2) / 2, ceil(log10(high) * 2 + 0.2) / 2
    return begin, max(end, begin + 0.5)


def _marks(low: float, high: float) -> list[float]:
    """Ticks of an axis: 1, 2 and 5 of each decade, or 1 alone when there are many decades."""
    steps = (1, 2, 5) if high - low <= 3 else (1,)
    found = [step * 10.0**power for power in range(floor(low), ceil(high) + 1) for step in steps]
    return [value for value in found if low - 1e-9 <= log10(value) <= high + 1e-9]


@dataclass(frozen=True)
class Cell:
    """One cell of a map: its text, its colour, what shows under the pointer, and whether it is marked."""

    text: str
    color: str
    about: str = ""
    marked: bool = False


NO_CELL = Cell("", "#f0f2f4", "no figure")
SIDE, TALL = 96, 34


def cells(title: str, across: str, up: str, columns: Sequence[str], rows: Sequence[str], grid: dict[str, Cell]) -> str:
    """A map of cells by "column|row"; the first row is the lowest. Marked cells have a heavy rim."""
    room = max([width_of(row) for row in rows] + [40.0]) + 40
    wide = max(room + SIDE * len(columns) + 24, width_of(title, 15) + room)
    tall = 46 + TALL * len(rows) + 52
    svg = Svg(wide, tall, title)
    svg.text(room, 26, title, 15, font_weight="bold")
    marked: list[tuple[float, float, Cell]] = []
    for j, row in enumerate(reversed(rows)):
        y = 46.0 + TALL * j
        svg.text(room - 8, y + TALL / 2 + 4, row, 12, PALE, text_anchor="end")
        for i, column in enumerate(columns):
            cell = grid.get(f"{column}|{row}", NO_CELL)
            x = room + SIDE * i
            svg.add("rect", "", cell.about, x=x, y=y, width=SIDE, height=TALL, fill=cell.color, stroke="#ffffff")
            if cell.marked:
                marked.append((x, y, cell))
            svg.text(x + SIDE / 2, y + TALL / 2 + 4, cell.text, 12, INK, text_anchor="middle", pointer_events="none")
    for x, y, _ in marked:
        look = {"fill": "none", "stroke": INK, "stroke_width": 2.5, "pointer_events": "none"}
        svg.add("rect", x=x + 1.5, y=y + 1.5, width=SIDE - 3, height=TALL - 3, **look)
    bottom = 46 + TALL * len(rows)
    for i, column in enumerate(columns):
        svg.text(room + SIDE * (i + 0.5), bottom + 17, column, 12, PALE, text_anchor="middle")
    svg.text(room + SIDE * len(columns) / 2, tall - 12, across, 13, text_anchor="middle")
    middle = 46 + TALL * len(rows) / 2
    svg.text(16, middle, up, 13, text_anchor="middle", transform=f"rotate(-90 16 {middle:g})")
    return str(svg)


__all__ = ["Cell", "Curve", "cells", "curves", "short", "tokens"]
