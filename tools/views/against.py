"""A comparison of our system with GPUs as pictures and as one HTML page that needs nothing else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import log2

from headrace.tools.predict.against import METRICS, Comparison, Metric, Question, conditions
from headrace.tools.predict.gpu.facts import gpu_bases
from headrace.tools.predict.gpu.published import median_error, published_rows, table
from headrace.tools.views.drawing import safe
from headrace.tools.views.lines import Cell, Curve, cells, curves, short, tokens
from headrace.tools.views.page import STYLE
from headrace.tools.views.roofline import COLORS

OURS = ("#14406b", "#2f6fb7", "#7fb0e0")
GPUS = ("#8a3c0a", "#d9712b", "#f0b284")
BOUNDS = {
    "compute": "arithmetic",
    "sram": "on-chip memories",
    "network": "the on-chip network",
    "agcu": "the address generators at the edge of the chip",
    "hbm": "high-bandwidth memory",
    "ddr": "DDR memory",
    "peer": "the links between sockets",
    "collective": "exchange over NVLink",
    "launch": "starting sections or kernels",
    "host": "the server's own work",
}
"""What holds a step up, in words."""
SHADES = COLORS | {"peer": "#c2588f", "collective": "#c2588f", "host": "#b3392f"}
MAPPED: tuple[Metric, ...] = ("user", "served", "first")
"""What has a map; that of the system's rate of decode would be that of its users'."""
TITLES: dict[Metric, str] = {
    "user": "Decode: tokens a second for each user",
    "system": "Decode: tokens a second of the system",
    "served": "Server: output tokens a second, prompts included",
    "first": "Time to the first token of a prompt (seconds)",
}


def some(values: Sequence[int]) -> list[int]:
    """The first, the middle one and the last."""
    return sorted({values[0], values[len(values) // 2], values[-1]})


def pictures(found: Comparison) -> dict[str, str]:
    """The pictures by name, as SVG."""
    q = found.question
    made: dict[str, str] = {}
    for metric in ("user", "system", "served"):
        drawn: list[Curve] = []
        for side, grid, colors in ((q.system.name, found.ours, OURS), (f"{q.gpus} x {q.gpu}", found.theirs, GPUS)):
            for length, color in zip(some(q.lengths), colors, strict=False):
                at = [grid[b, length] for b in q.batches if (b, length) in grid]
                values = [(p, p.value(metric)) for p in at]
                points = [(float(p.batch), value, p.decode.exact) for p, value in values if value is not None]
                drawn.append(Curve(f"{side}, {tokens(length)}", points, color, grid is found.theirs))
        made[metric] = curves(
            TITLES[metric], "batch (sequences)", "tokens a second", drawn, list(map(float, q.batches))
        )
    drawn = []
    for side, grid, color in ((q.system.name, found.ours, OURS[1]), (f"{q.gpus} x {q.gpu}", found.theirs, GPUS[1])):
        batch = next((b for b in q.batches if any((b, n) in grid for n in q.lengths)), q.batches[0])
        at = [grid[batch, n] for n in q.lengths if (batch, n) in grid]
        points = [(float(p.length), p.first.seconds, p.first.exact) for p in at if p.first]
        drawn.append(Curve(side, points, color, grid is found.theirs))
    made["first"] = curves(
        TITLES["first"], "tokens of the prompt", "seconds", drawn, list(map(float, q.lengths)), tokens
    )
    for metric in MAPPED:
        made[f"times-{metric}"] = times_map(found, metric)
    for side in ("ours", "gpu"):
        made[f"bounds-{side}"] = bounds_map(found, side)
    return made


def times_map(found: Comparison, metric: Metric) -> str:
    """How many times better ours is, by length and batch; at least `times` is marked."""
    q = found.question
    grid: dict[str, Cell] = {}
    for batch in q.batches:
        for length in q.lengths:
            ratio = found.ratio(metric, batch, length)
            if ratio is None:
                continue
            ours, gpu = found.ours[batch, length], found.theirs[batch, length]
            inexact = not ours.cost(metric).exact
            figures = [short(point.value(metric) or 0.0) for point in (ours, gpu)]
            waits = [point.cost(metric).bound for point in (ours, gpu)]
            about = (
                f"batch {batch}, {length} tokens: {figures[0]} against {figures[1]} {METRICS[metric][1]}; "
                f"ours waits most for {waits[0]}, the GPUs for {waits[1]}"
            )
            text = f"{'~' if inexact else ''}{ratio:.2g}x" if ratio < 10 else f"{'~' if inexact else ''}{ratio:.0f}x"
            grid[f"{tokens(length)}|{batch}"] = Cell(text, shade(ratio), about, ratio >= q.times)
    title = f"How many times better than {q.gpus} x {q.gpu}: {METRICS[metric][0]}"
    return cells(title, "tokens of the prompt", "batch", list(map(tokens, q.lengths)), list(map(str, q.batches)), grid)


def bounds_map(found: Comparison, side: str) -> str:
    """What a decode step waits for most, by length and batch."""
    q = found.question
    points = found.ours if side == "ours" else found.theirs
    grid: dict[str, Cell] = {}
    for (batch, length), point in points.items():
        cost = point.decode
        parts = sorted(cost.bounds.items(), key=lambda item: -item[1])
        about = ", ".join(f"{name} {seconds / cost.seconds:.0%}" for name, seconds in parts if seconds > 0)
        share = cost.bounds[cost.bound] / cost.seconds
        key = f"{tokens(length)}|{batch}"
        text = f"{'collect' if cost.bound == 'collective' else cost.bound} {share:.0%}"
        grid[key] = Cell(text, f"{SHADES.get(cost.bound, '#7b8794')}66", f"{about}; {cost.how}")
    name = q.system.name if side == "ours" else f"{q.gpus} x {q.gpu}"
    title = f"What a decode step waits for most: {name}"
    return cells(title, "tokens of the prompt", "batch", list(map(tokens, q.lengths)), list(map(str, q.batches)), grid)


def shade(ratio: float) -> str:
    """From orange (the GPUs are better) over white to blue."""
    part = max(-1.0, min(1.0, log2(ratio) / 3))
    ends = ((217, 113, 43), (47, 111, 183))
    red, green, blue = (round(255 + (end - 255) * abs(part) * 0.75) for end in ends[part > 0])
    return f"#{red:02x}{green:02x}{blue:02x}"


def sentences(found: Comparison) -> list[str]:
    """What the figures come to, in words."""
    q = found.question
    said: list[str] = []
    both = [at for at in found.ours if at in found.theirs]
    for metric in MAPPED:
        words, unit = METRICS[metric]
        ratios = {at: r for at in both if (r := found.ratio(metric, *at)) is not None}
        if not ratios:
            continue
        low, high = min(ratios, key=lambda at: ratios[at]), max(ratios, key=lambda at: ratios[at])
        region = found.region(metric)
        where = f"in {len(region)} of {len(ratios)} points" if region else "nowhere"
        best = found.ours[high].value(metric) or 0.0, found.theirs[high].value(metric) or 0.0
        said.append(
            f"{words[0].upper()}{words[1:]}: {ratios[low]:.2g} to {ratios[high]:.2g} times, at least {q.times:g} times "
            f"{where}. Most at batch {high[0]} and {high[1]} tokens: {short(best[0])} against {short(best[1])} {unit}; "
            f"least at batch {low[0]} and {low[1]} tokens."
        )
    per = q.system.sockets / q.gpus
    if per != 1:
        said.append(
            f"These are systems, not chips: {q.system.sockets} sockets against {q.gpus} GPUs. For each chip divide the "
            f"rates' ratios by {per:g}."
        )
    return said


def against_page(found: Comparison) -> str:
    """The page."""
    q = found.question
    made = pictures(found)
    title = f"{q.model}: {q.system.name} against {q.gpus} x {q.gpu}"
    told = conditions(q, found.config)
    list_ = "".join(
        f"<tr><td class='left'>{safe(k)}</td><td class='left op'>{safe(v)}</td></tr>" for k, v in told.items()
    )
    box = f"<details open><summary>Conditions of every figure here</summary><table>{list_}</table></details>"
    short_box = f'<p class="about">{safe(brief(q))}</p>'
    parts = [
        f"<h1>{safe(title)}</h1>",
        '<p class="about">How fast a language model would be on two systems. Neither was measured: ours is a program '
        "that was compiled in full for the chip and timed by a model of it, the GPUs are a model of their kernels. "
        "Hollow points and figures with ~ are interpolated between steps that were compiled.</p>",
        "<ul>" + "".join(f"<li>{safe(x)}</li>" for x in sentences(found)) + "</ul>",
        box,
        f"<h2>Where it is {q.times:g} times</h2>",
        f'<p class="about">Cells with a heavy rim are at least {q.times:g} times better. Under the pointer a cell '
        "shows both figures, and what each side waits for.</p>",
    ]
    for metric in MAPPED:
        parts += [made[f"times-{metric}"], short_box]
    parts += ["<h2>Curves</h2>"]
    for metric in METRICS:
        parts += [made[metric], short_box]
    key = "".join(
        f'<i style="background:{SHADES[name]}"></i>{safe(f"{words} ({name})")}' for name, words in BOUNDS.items()
    )
    parts += ["<h2>What each side waits for</h2>", f'<p class="key">{key}</p>']
    parts += [made["bounds-ours"], short_box, made["bounds-gpu"], short_box]
    parts += ["<h2>How far to trust it</h2>", trust(q)]
    if found.refused:
        lines = "".join(f"<li>{safe(x)}</li>" for x in found.refused)
        parts += ["<h2>What has no figure</h2>", f"<ul>{lines}</ul>"]
    parts += ["<h2>What was compiled</h2>", compiled(found)]
    parts += ["<h2>Numbers of the GPU</h2>", facts(q)]
    rows = json.dumps(found.to_json()).replace("<", "\\u003c")
    parts += [f'<script type="application/json" id="rows">{rows}</script>']
    head = f'<meta charset="utf-8"><title>{safe(title)}</title><style>{STYLE}</style>'
    body = "\n".join(parts)
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head><body>\n{body}\n</body></html>\n'


def brief(q: Question) -> str:
    """The conditions in a line, beside every picture."""
    return (
        f"{q.model}; {q.system.name}, {q.precision}, against {q.gpus} x {q.gpu}, {q.numbers}; {q.output} tokens out, "
        f"decode with length + {q.output // 2} tokens of context; no speculative decoding"
    )


def trust(q: Question) -> str:
    """The model of GPUs against what is published."""
    rows = table(published_rows())
    head = ("model", "metric", "conditions", "published", "predicted", "error", "kind")
    lines = ["<tr>" + "".join(f"<th class='left'>{x}</th>" for x in head) + "</tr>"]
    for row in rows:
        values = f"{row['published']:.4g}", f"{row['predicted']:.4g}", f"{row['error']:+.0%}"
        kind = f"sets {row['sets']}" if row["sets"] else "held out"
        texts = row["model"], row["metric"], row["conditions"], *values, kind
        lines.append("<tr>" + "".join(f"<td class='left'>{safe(x)}</td>" for x in texts) + "</tr>")
    held = sum(row["kind"] == "HO" for row in rows)
    return (
        f'<p class="about">Of {held} published figures of GPUs that set nothing in the model, half are met within '
        f"{median_error(rows):.0%}. Mixtures of experts are mostly slower in what is published than in the model, so "
        "the GPUs look better here than they were measured. How our side is held against published figures is what "
        "<code>headrace validate</code> prints.</p>"
        f"<details><summary>All rows</summary><table>{''.join(lines)}</table></details>"
    )


def compiled(found: Comparison) -> str:
    """The steps of ours that were compiled."""
    head = ("step", "compiled in", "launches", "on chip", "HBM of a socket", "DDR of a socket", "tensors that spill")
    lines = ["<tr>" + "".join(f"<th>{x}</th>" for x in head) + "</tr>"]
    for name, one in found.facts.items():
        sizes = [f"{one[key] / 1e9:.3g} GB" for key in ("sram", "hbm", "ddr")]
        texts = name, f"{one['compile_seconds']:.0f} s", f"{one['launches']:,}", *sizes, str(len(one["spilled"]))
        lines.append("<tr>" + "".join(f"<td>{safe(x)}</td>" for x in texts) + "</tr>")
    return f"<table>{''.join(lines)}</table>"


def facts(q: Question) -> str:
    """Every number of the GPU with its source."""
    bases = gpu_bases(q.gpu)
    lines = [
        f"<tr><td class='left'>{safe(path)}</td><td class='left'>{safe(value_of(q, path))} {safe(basis.unit)}</td>"
        f"<td class='left op'>{safe(f'{basis.kind}: {basis.text}')}</td></tr>"
        for path, basis in bases.items()
    ]
    return f"<details><summary>{safe(q.gpu)}</summary><table>{''.join(lines)}</table></details>"


def value_of(q: Question, path: str) -> str:
    """A number of the GPU by its dotted path."""
    from headrace.tools.predict.gpu.facts import load_gpu

    part, _, name = path.partition(".")
    return f"{getattr(getattr(load_gpu(q.gpu), part), name):.6g}"


__all__ = ["against_page", "pictures", "sentences"]
