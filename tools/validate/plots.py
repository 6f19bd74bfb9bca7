"""Pictures of a validation: predictions against published values, and where steps lie under the ceilings."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import ceil, floor, log10

from headrace.tools.predict import Prediction
from headrace.tools.validate.rows import Range, Row
from headrace.tools.views.drawing import GRID, INK, PALE, Svg
from headrace.tools.views.roofline import roofline

SIZE, MARGIN, ROOM = 640, 70, 320
COLORS = {"ID": "#7b8794", "FIT": "#b58a00", "RANGE": "#3a9d5d", "HO": "#2f6fb7"}


def agreement(found: Sequence[tuple[Row, float]]) -> str:
    """Predicted over published values on logarithmic axes, as SVG: on the line they agree. A range is a bar."""
    shown = [(row, value, *_ends(row)) for row, value in found if value > 0]
    svg = Svg(SIZE + ROOM, SIZE, "Predictions against published values")
    if not shown:
        return str(svg)
    every = [x for _, value, low, high in shown for x in (value, low, high)]
    left, right = floor(log10(min(every))), ceil(log10(max(every)))
    right = max(right, left + 1)

    def x(value: float) -> float:
        return MARGIN + (log10(value) - left) / (right - left) * (SIZE - 2 * MARGIN)

    def y(value: float) -> float:
        return SIZE - x(value)

    for power in range(left, right + 1):
        at = 10.0**power
        svg.line(x(at), y(10.0**left), x(at), y(10.0**right), GRID)
        svg.line(x(10.0**left), y(at), x(10.0**right), y(at), GRID)
        svg.text(x(at), SIZE - MARGIN + 18, f"{at:g}", 12, PALE, text_anchor="middle")
        svg.text(MARGIN - 8, y(at) + 4, f"{at:g}", 12, PALE, text_anchor="end")
    svg.line(x(10.0**left), y(10.0**left), x(10.0**right), y(10.0**right), INK)
    svg.text(SIZE / 2, SIZE - 20, "published", 13, text_anchor="middle")
    svg.text(20, SIZE / 2, "predicted", 13, text_anchor="middle", transform=f"rotate(-90 20 {SIZE / 2:g})")
    listed = [(row, value) for row, value, *_ in shown]
    for number, (row, value, low, high) in enumerate(shown, 1):
        color = COLORS[row.kind]
        if low != high:
            svg.line(x(low), y(value), x(high), y(value), color, stroke_width=3)
        middle = (low * high) ** 0.5
        title = f"{row.id}: {row.workload}, {row.metric}: published {row.published}, predicted {value:.4g}"
        svg.add("circle", "", title, cx=x(middle), cy=y(value), r=8, fill=color, data_row=row.id)
        svg.text(x(middle), y(value) + 3.5, str(number), 9, "#ffffff", text_anchor="middle")
    for number, (row, _) in enumerate(listed, 1):
        at = 20 + number * (SIZE - 40) / max(len(listed), 24)
        svg.add("circle", cx=SIZE + 10, cy=at - 4, r=7, fill=COLORS[row.kind])
        svg.text(SIZE + 10, at - 1, str(number), 9, "#ffffff", text_anchor="middle")
        svg.text(SIZE + 24, at, f"{row.id} {row.workload} ({row.kind})"[:48], 11)
    return str(svg)


def _ends(row: Row) -> tuple[float, float]:
    """The ends of what is published; an open end is where the other is."""
    if not isinstance(row.published, Range):
        return row.published, row.published
    low, high = row.published.low, row.published.high
    ends = [x for x in (low, high) if x]
    return min(ends), max(ends)


def rooflines(steps: Sequence[Prediction]) -> str:
    """The rooflines of steps, as HTML."""
    found = [
        f"<h3>{escape(step.conditions)}</h3>\n{roofline(step.program, step.timing)}"
        for step in steps
        if step.timing.flops
    ]
    return "\n".join(found) or "<p>No step of a model was predicted.</p>"
