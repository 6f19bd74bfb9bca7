"""Pictures of a profile: the roofline, floorplans, a trace, and a page with all of them.

    timing = exe.profile()
    write(roofline(exe.program, timing), "roofline.svg")
    write(floorplan(exe.program, timing), "floorplan.svg")
    write(page(exe.program, timing), "profile.html")
    write(trace(exe.program, timing), "profile.json")      # for ui.perfetto.dev

Each takes the program and its `Timing`, and gives text: SVG 1.1, an HTML page that needs nothing else, or Chrome's
trace events. The same profile gives the same bytes.
"""

from __future__ import annotations

from headrace.dialects.support.files import write_text as _write_text
from headrace.tools.views.floorplan import Floor, floor, floorplan
from headrace.tools.views.page import page
from headrace.tools.views.roofline import Point, Roofline, roofline, rooflines
from headrace.tools.views.trace import trace, trace_events

__all__ = [
    "Floor",
    "Point",
    "Roofline",
    "floor",
    "floorplan",
    "page",
    "roofline",
    "rooflines",
    "trace",
    "trace_events",
    "write",
]


def write(text: str, path: str) -> None:
    """Write a view, complete or not at all. `CompileError` when it cannot be written."""
    _write_text(path, text)
