"""What each search of the mapping is worth: the modelled time of models with it, and with a simple rule in its place.

The rules: sections that take all that fits; equal shares of the units for all stages; units placed row by row; routes
in dimension order only. With `--modes` the modes instead (`-O 0`, which the host launches section by section, `-O 1`,
`-O 3`), the launches that each takes, and how much faster `-O 3` is. With `--goals` the goals: the time of a run
compiled for latency, and for throughput the time from result to result and that to the first result. The models are
decoders of published sizes, shape only, and the ONNX files of a folder.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headrace.dialects.support.files import write_text

DECODERS = (
    ("llama-2-7b prefill", "llama-2-7b", {"mode": "prefill", "tokens": 4096, "dtype": "bf16"}),
    ("llama-2-7b decode", "llama-2-7b", {"mode": "decode", "context": 4096, "dtype": "bf16"}),
    ("llama-3.1-8b decode", "llama-3.1-8b", {"mode": "decode", "context": 4096, "dtype": "bf16"}),
)
RULES: dict[str, tuple[str, dict[str, str]]] = {
    "as it is": ("O3", {}),
    "greedy cut": ("O3", {"cut-sections": "by=order"}),
    "equal shares": ("O3", {"parallelize": "by=equal"}),
    "row by row": ("O3", {"place": "start=rows moves=0"}),
    "one order": ("O3", {"route": "reroutes=0"}),
}
"""Name of a rule → the mode, and options of passes that it puts in the place of a search."""
MODES: dict[str, tuple[str, dict[str, str]]] = {
    "O0": ("O0", {}),
    "O0 by the chip": ("O0", {"convert-dataflow-to-rdu": "launch=chip"}),
    "O1": ("O1", {}),
    "as it is": ("O3", {}),
}
"""The same for the modes."""
GOALS = ("latency", "throughput")


def pipeline(mode: str, options: Mapping[str, str], goal: str = GOALS[0]) -> str:
    """The passes of a mode with other options, for a goal."""
    from headrace.passes.pipelines import TENSOR, dataflow, rdu

    passes = {x.partition("{")[0]: x for x in (*dataflow(mode, goal=goal), *rdu(mode, goal))}
    mapped = (f"{x}{{{options[x]}}}" if x in options else whole for x, whole in passes.items())
    return ",".join((*TENSOR, *mapped))


def module_of(model: str) -> Any:
    """The imported module of a decoder or a file."""
    from headrace.compiler import import_model
    from headrace.frontends.decoder import build_decoder, preset

    for title, name, sizes in DECODERS:
        if model == title:
            given: dict[str, Any] = dict(sizes)
            return build_decoder(preset(name), given.pop("mode"), **given).module
    return import_model(model, shape_only=True).module


def measure(model: str, device: str, rule: str) -> dict[str, Any]:
    """Modelled seconds, launches, shares of the peak rate, of the bandwidth and of the busiest link of a model under a
    rule, or why it cannot be mapped. A loop is one launch; `runs` counts its rounds."""
    from headrace.backend.encode import encode
    from headrace.compiler import lower
    from headrace.dialects.support.diagnostics import CompileError
    from headrace.runtime.timing import time_program

    module = module_of(model)
    row: dict[str, Any] = {"model": Path(model).stem if model.endswith(".onnx") else model, "rule": rule}
    try:
        lower(module, device, pipeline("O3", {}, rule) if rule in GOALS else pipeline(*{**RULES, **MODES}[rule]))
    except CompileError as error:
        return {**row, "refused": f"{error.code}: {error.what}"}
    found = time_program(encode(module))
    peak = found.flops / found.seconds / found.peak_flops if found.seconds else 0.0
    moved = found.hbm_bytes / found.seconds / found.hbm_bandwidth if found.hbm_bandwidth and found.seconds else 0.0
    link = max((found.configs[launch.config].link_load for launch in found.launches), default=0.0)
    launches = {"launches": found.calls, "host": found.host_launches, "runs": len(found.launches)}
    stream = {"inputs": found.inputs, "interval": found.interval, "latency": found.latency}
    return {**row, "seconds": found.seconds, **launches, **stream, "peak": peak, "hbm": moved, "link": link}


def modes_table(rows: Sequence[dict[str, Any]]) -> str:
    """A line a model: the time in each mode, with its launches, those of them by the host, and runs of a section in
    brackets; and how much faster the last mode is than the first, and than the first with launches by the chip."""

    def cell(row: dict[str, Any]) -> str:
        if "refused" in row:
            return row["refused"]
        return f"{row['seconds'] * 1e6:,.0f} us ({row['launches']}, {row['host']}, {row['runs']})"

    lines = ["| model | " + " | ".join(x.replace("as it is", "O3") for x in MODES) + " | O3 over O0 | by the chip |"]
    lines.append("|---" * (len(MODES) + 3) + "|")
    for model in dict.fromkeys(row["model"] for row in rows):
        mine = {row["rule"]: row for row in rows if row["model"] == model}
        base = mine["as it is"].get("seconds")
        gains = [mine[x].get("seconds") for x in list(MODES)[:2]]
        told = [f"{x / base:.2f} x" if x and base else "" for x in gains]
        lines.append(f"| {model} | " + " | ".join([*(cell(mine[x]) for x in MODES), *told]) + " |")
    return "\n".join(lines)


def goals_table(rows: Sequence[dict[str, Any]]) -> str:
    """A line a model: the time of a run compiled for latency, and for throughput the interval, how many times shorter
    that is, the time to the first result, the runs at a time, and results a second."""
    titles = ("model", "latency", "interval", "shorter", "first result", "at a time", "results a second")
    lines = ["| " + " | ".join(titles) + " |", "|---" * len(titles) + "|"]
    for model in dict.fromkeys(row["model"] for row in rows):
        mine = {row["rule"]: row for row in rows if row["model"] == model}
        one, many = mine["latency"], mine["throughput"]
        cells = [one.get("refused") or f"{one['seconds'] * 1e6:,.1f} us"]
        if "refused" in many:
            cells.append(many["refused"])
        else:
            cells += [f"{many['interval'] * 1e6:,.1f} us", f"{one['seconds'] / many['interval']:.1f} x"]
            cells += [f"{many['latency'] * 1e6:,.1f} us", str(many["inputs"]), f"{1 / many['interval']:,.0f}"]
        lines.append(f"| {model} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _slower(row: dict[str, Any], base: dict[str, Any]) -> str:
    return "refused" if "refused" in row else f"{row['seconds'] / base['seconds']:.2f} x"


def table(rows: Sequence[dict[str, Any]]) -> str:
    """A line a model: the time as it is, its share of peak rate, HBM bandwidth and the busiest link, and how much
    slower each rule is."""
    models = list(dict.fromkeys(row["model"] for row in rows))
    rules = [rule for rule in RULES if rule != "as it is"]
    lines = [
        "| model | time | launches | peak | HBM | link | " + " | ".join(rules) + " |",
        "|---" * (6 + len(rules)) + "|",
    ]
    for model in models:
        mine = {row["rule"]: row for row in rows if row["model"] == model}
        base = mine["as it is"]
        if "refused" in base:
            lines.append(f"| {model} | {base['refused']} |")
            continue
        cells = [f"{base['seconds'] * 1e6:,.1f} us", str(base["launches"]), f"{base['peak']:.1%}"]
        cells += [f"{base[x]:.1%}" for x in ("hbm", "link")]
        for rule in rules:
            row = mine.get(rule)
            cells.append("not measured" if row is None else _slower(row, base))
        lines.append(f"| {model} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def put(page: Path, name: str, text: str) -> None:
    """Put a text between the markers of that name in a page, instead of what stands there; all of it or nothing."""
    begin, end = f"<!-- {name} -->\n", f"\n<!-- /{name} -->"
    old = page.read_text(encoding="utf-8")
    before, found, rest = old.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise SystemExit(f"{page} has no lines '{begin.strip()}' and '{end.strip()}' to put the table between")
    write_text(page, before + begin + text + end + after)


def add_command(commands: Any) -> None:
    """Add the command `mapping`."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "mapping", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=Path, help="folder of .onnx files")
    parser.add_argument("--device", default="sn40l")
    parser.add_argument("--only", action="append", help="only this model (name of a decoder or stem of a file)")
    parser.add_argument("--modes", action="store_true", help="compare modes, not rules")
    parser.add_argument("--goals", action="store_true", help="compare goals, not rules")
    parser.add_argument("--without", action="append", default=[], help="leave a rule out: not measured")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the table between the markers of a page, too")
    parser.add_argument("--json", action="store_true", help="rows as JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Measure and print. Exit code 1 when a model cannot be mapped as it is."""
    base = "latency" if options.goals else "as it is"
    files = sorted(options.models.glob("*.onnx")) if options.models else []
    models = [title for title, _, _ in DECODERS] + [str(file) for file in files]
    if options.only:
        models = [model for model in models if model in options.only or Path(model).stem in options.only]
    rules, show, name = tuple(RULES), table, "mapping"
    if options.modes:
        rules, show, name = tuple(MODES), modes_table, "mapping modes"
    elif options.goals:
        rules, show, name = GOALS, goals_table, "mapping goals"
    rows = [
        measure(model, options.device, rule)
        for model in models
        for rule in rules
        if rule == base or rule not in options.without
    ]
    print(json.dumps(rows, indent=1) if options.json else show(rows))
    if options.write is not None:
        put(options.write, name, show(rows))
    return int(any("refused" in row for row in rows if row["rule"] == base))
