"""A profile as one HTML page that needs nothing else: what it is, where the time goes, the roofline, and floorplans."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headrace.runtime.profile import amount, memory_text, time_text
from headrace.runtime.program import Program
from headrace.runtime.times import ConfigTime, Timing
from headrace.tools.views.drawing import safe
from headrace.tools.views.floorplan import floorplan, use_of
from headrace.tools.views.roofline import COLORS, roofline, rooflines

MOST_PLANS = 8
"""Most floorplans on a page: those of the sections that take longest."""
MOST_GROUPS = 12
"""Most groups of units listed under a floorplan."""
STYLE = """
body { font: 15px/1.5 sans-serif; color: #1f2933; max-width: 1080px; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.6em; } h2 { font-size: 1.25em; margin-top: 2em; }
p.about { color: #52606d; }
table { border-collapse: collapse; font-size: 13px; }
th, td { padding: 3px 9px; text-align: right; border-bottom: 1px solid #e4e7eb; white-space: nowrap; }
th { border-bottom: 2px solid #9aa5b1; } td.left, th.left { text-align: left; }
td.op { white-space: normal; overflow-wrap: anywhere; max-width: 30em; }
.bar { display: flex; height: 22px; border-radius: 3px; overflow: hidden; max-width: 900px; }
.bar span { display: block; } .key { font-size: 13px; }
.key i { display: inline-block; width: 11px; height: 11px; margin: 0 4px 0 12px; }
svg { max-width: 100%; height: auto; } details { margin: 0.6em 0; } summary { cursor: pointer; font-weight: bold; }
""".strip()
WAITS = {
    "compute": "the compute units",
    "sram": "ports and banks of the on-chip memories",
    "network": "the on-chip network",
    "agcu": "the address generators at the edge of the chip",
    "hbm": "high-bandwidth memory",
    "ddr": "DDR memory",
    "peer": "other sockets, and the links to them",
    "launch": "launching a section",
}


def page(program: Program, timing: Timing, top: int = 20) -> str:
    """The page; tables have their `top` longest rows."""
    t = timing
    title = f"{program.meta.get('model', '') or 'A program'} on {t.device}"
    parts = [
        f"<h1>{safe(title)}: {safe(time_text(t.seconds))}</h1>",
        '<p class="about">How long one run takes on this chip, by a model of the chip and not by a clock, and what the '
        "time goes to. The chip is a grid of compute units and memory units joined by a network. It holds one "
        "<em>section</em> of the program at a time; data streams through the units of a section, and sections run one "
        "after another.</p>",
        _head(t),
        "<h2>What the time goes to</h2>",
        _bar(t),
        "<h2>Sections</h2>",
        '<p class="about"><em>Waits most for</em>: what sets the pace. <em>Units busy</em>: the part of the chip\'s '
        "compute units that compute. <em>Stall</em>: the part of the time from the first tile of its units to their "
        "last in which they wait. <em>Busiest link</em>: what it carries of what it could. <em>Moves</em>: to and from "
        "off-chip memory.</p>",
        _sections(t, top),
        "<h2>Ops of the model</h2>",
        '<p class="about">The part of the time that each op holds up everything: rows and launches add up to the '
        "whole. An op that takes little here is hidden behind others.</p>",
        _ops(t, top),
        "<h2>Roofline</h2>",
        '<p class="about">How fast each section computes, over how much it computes for each byte that it moves off '
        "chip. None can be above the flat lines (the compute units, by element type) or the slanted ones (memory).</p>",
        roofline(program, t),
        _points(program, t, top),
        "<h2>Floorplans</h2>",
        '<p class="about">Which units of the chip each section takes, how much of the time they work, and how full the '
        "links between them are. Under the pointer a unit says what it belongs to.</p>",
        *_plans(program, t),
        "<h2>Off-chip memory</h2>",
        *(f"<p>{safe(line)}</p>" for line in memory_text(t.memory, top)),
    ]
    head = f'<meta charset="utf-8"><title>{safe(title)}</title><style>{STYLE}</style>'
    body = "\n".join(parts)
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head><body>\n{body}\n</body></html>\n'


def _head(t: Timing) -> str:
    use = t.utilisation
    facts = [
        f"{t.cycles:,.0f} cycles at {t.clock / 1e9:g} GHz, {len(t.launches)} launches of sections",
        f"{amount(t.flops)}FLOP: {use['flops']:.1%} of the peak rate; compute units busy {use['pcu']:.1%}",
    ]
    if "hbm" in use:
        facts.append(f"{amount(t.hbm_bytes)}B to and from HBM: {use['hbm']:.1%} of its bandwidth")
    if t.ddr_bytes:
        facts.append(f"{amount(t.ddr_bytes)}B to and from DDR")
    if "peer" in use:
        facts.append(f"{amount(t.peer_bytes)}B to other sockets: {use['peer']:.1%} of the busiest link to them")
    facts.append(f"model of time: {t.model}")
    return "<ul>" + "".join(f"<li>{safe(x)}</li>" for x in facts) + "</ul>"


def _bar(t: Timing) -> str:
    parts = sorted(t.bounds.items(), key=lambda x: -x[1])
    total = max(t.cycles, 1e-9)
    spans = "".join(
        f'<span style="width:{100 * cycles / total:.3f}%;background:{COLORS[name]}" '
        f'title="{safe(f"{name} {cycles / total:.1%}")}"></span>'
        for name, cycles in parts
    )
    key = "".join(
        f'<i style="background:{COLORS[name]}"></i>{safe(f"{WAITS[name]} ({name}) {cycles / total:.1%}")}'
        for name, cycles in parts
    )
    return f'<div class="bar">{spans}</div><p class="key">waits for{key}</p>'


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], left: Sequence[int]) -> str:
    def cells(row: Sequence[str], tag: str) -> str:
        last = len(row) - 1
        kind = {i: ' class="left op"' if i == last else ' class="left"' for i in left}
        return "".join(f"<{tag}{kind.get(i, '')}>{safe(x)}</{tag}>" for i, x in enumerate(row))

    lines = [f"<tr>{cells(head, 'th')}</tr>", *(f"<tr>{cells(row, 'td')}</tr>" for row in rows)]
    return "<table>\n" + "\n".join(lines) + "\n</table>"


def _sections(t: Timing, top: int) -> str:
    head = (
        "section",
        "runs",
        "a run",
        "share",
        "waits most for",
        "units busy",
        "stall",
        "busiest link",
        "FLOP",
        "moves",
        *(("to peers", "busiest link to them") if t.peer_bytes else ()),
    )
    rows: list[tuple[str, ...]] = []
    found = sorted(zip(t.runs, t.configs, strict=True), key=lambda x: -x[0] * x[1].cycles)
    total = max(t.cycles, 1e-9)
    for n, c in found[:top]:
        bound = max(c.bounds, key=lambda k: c.bounds[k], default="")
        use = f"{t.busy(c.work, c.cycles):.1%}", f"{c.stall:.0%}", f"{c.link_load:.0%}"
        time = time_text(c.cycles / t.clock), f"{n * c.cycles / total:.1%}"
        peers = (f"{amount(c.peer_bytes)}B", f"{c.peer_load:.0%}") if t.peer_bytes else ()
        moves = amount(c.flops).strip(), f"{amount(_moved(c))}B"
        rows.append((f"@{c.name}", str(n), *time, bound, *use, *moves, *peers))
    if rest := found[top:]:
        share = sum(n * c.cycles for n, c in rest) / total
        rows.append((f"{len(rest)} more", "", "", f"{share:.1%}", *[""] * (len(head) - 4)))
    mean = time_text(t.launch_seconds / max(1, len(t.launches)))
    share = t.launch_seconds / max(t.seconds, 1e-30)
    rows.append(("launches", str(len(t.launches)), mean, f"{share:.1%}", "launch", *[""] * (len(head) - 5)))
    return _table(head, rows, (0, 4))


def _moved(c: ConfigTime) -> int:
    return c.hbm_bytes + c.ddr_bytes


def _ops(t: Timing, top: int) -> str:
    head = ("time", "share", "units busy", "stall", "FLOP", "op of the model")
    total = max(t.cycles, 1e-9)
    rows: list[tuple[str, ...]] = []
    for op in t.ops[:top]:
        where = f"{op.location or '(no location)'}{f' ({op.op})' if op.op else ''}"
        use = f"{t.busy(op.work):.1%}" if op.work else "", f"{op.stall:.0%}" if op.present else ""
        flops = amount(op.flops).strip() if op.flops else ""
        rows.append((time_text(op.cycles / t.clock), f"{op.cycles / total:.1%}", *use, flops, where))
    if rest := t.ops[top:]:
        cycles = sum(op.cycles for op in rest)
        rows.append((time_text(cycles / t.clock), f"{cycles / total:.1%}", "", "", "", f"{len(rest)} more"))
    share = t.launch_seconds / max(t.seconds, 1e-30)
    rows.append((time_text(t.launch_seconds), f"{share:.1%}", "", "", "", f"{len(t.launches)} launches"))
    return _table(head, rows, (5,))


def _points(program: Program, t: Timing, top: int) -> str:
    data = rooflines(program, t)
    rows = [
        (
            p.name,
            f"{p.intensity:.4g}",
            f"{amount(p.rate)}FLOP/s",
            f"{amount(p.roof)}FLOP/s",
            f"{p.rate / p.roof:.1%}" if p.roof else "",
        )
        for p in (data.whole, *data.sections[:top])
    ]
    return _table(("", "FLOP per byte", "computes", "could at most", "reaches"), rows, (0,))


def _groups(t: Timing, name: str) -> str:
    """The groups of units of a section that do something, the longest on the critical path first."""
    config = next(c for c in t.configs if c.name == name)
    head = ("group", "kind", "units", "steps", "cycles a step", "holds all up", "bound by", "in use", "stall", "op")
    found = sorted((u for u in config.units if u.present), key=lambda u: -u.cycles)
    rows = [
        (
            *(u.name, u.kind.upper(), str(u.sites), str(u.steps), f"{u.interval:,.0f}"),
            *(time_text(u.cycles / t.clock), u.bound, f"{use_of(u, config.cycles):.1%}", f"{u.stall:.0%}", u.location),
        )
        for u in found[:MOST_GROUPS]
    ]
    return _table(head, rows, (0, 1, 6, 9))


def _plans(program: Program, t: Timing) -> list[str]:
    names: dict[str, float] = {}
    for n, c in zip(t.runs, t.configs, strict=True):
        names[c.name] = names.get(c.name, 0.0) + n * c.cycles
    found = sorted(names, key=lambda name: -names[name])
    total = max(t.cycles, 1e-9)
    parts = [
        f"<details{' open' if not i else ''}><summary>@{safe(name)}, {names[name] / total:.1%} of the time</summary>\n"
        f"{floorplan(program, t, name)}\n{_groups(t, name)}</details>"
        for i, name in enumerate(found[:MOST_PLANS])
    ]
    if found[MOST_PLANS:]:
        parts.append(f"<p>{len(found) - MOST_PLANS} sections that take less are not shown.</p>")
    return parts
