"""What each search of the mapping is worth: the modelled time of models with it, and with a simple rule in its place.

The rules: sections that take all that fits; equal shares of the units for all stages; units placed row by row; routes
in dimension order only. Beside them the modes (`-O 0` and `-O 1`) and the launches that each takes. The models are
decoders of published sizes, shape only, and the ONNX files of a folder.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

DECODERS = (
    ("llama-2-7b prefill", "llama-2-7b", {"mode": "prefill", "tokens": 4096, "dtype": "bf16"}),
    ("llama-2-7b decode", "llama-2-7b", {"mode": "decode", "context": 4096, "dtype": "bf16"}),
)
RULES = {
    "as it is": {},
    "greedy cut": {"cut-sections": "by=order"},
    "equal shares": {"parallelize": "by=equal"},
    "row by row": {"place": "start=rows moves=0"},
    "one order": {"route": "reroutes=0"},
    "O1": {"cut-sections": "by=rule"},
    "O0": {"cut-sections": "by=op", "fuse-stages": "-"},
}
"""Name of a rule → options of passes that it puts in the place of a search; `-` leaves a pass out."""


def pipeline(options: dict[str, str]) -> str:
    """The default passes with other options."""
    from headrace.passes.pipelines import DATAFLOW, RDU, TENSOR

    kept = [x for x in (*TENSOR, *DATAFLOW, *RDU) if options.get(x) != "-"]
    return ",".join(f"{x}{{{options[x]}}}" if x in options else x for x in kept)


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
    """Modelled seconds, launches and share of the peak rate of a model under a rule, or why it cannot be mapped."""
    from headrace.backend.encode import encode
    from headrace.compiler import lower
    from headrace.dialects.support.diagnostics import CompileError
    from headrace.runtime.timing import time_program

    module = module_of(model)
    row: dict[str, Any] = {"model": Path(model).stem if model.endswith(".onnx") else model, "rule": rule}
    try:
        lower(module, device, pipeline(RULES[rule]))
    except CompileError as error:
        return {**row, "refused": f"{error.code}: {error.what}"}
    found = time_program(encode(module))
    peak = found.flops / found.seconds / found.peak_flops if found.seconds else 0.0
    moved = found.hbm_bytes / found.seconds / found.hbm_bandwidth if found.hbm_bandwidth and found.seconds else 0.0
    return {**row, "seconds": found.seconds, "launches": len(found.launches), "peak": peak, "hbm": moved}


def table(rows: Sequence[dict[str, Any]]) -> str:
    """A line a model: the time as it is, its share of peak rate and HBM bandwidth, and how much slower each rule is."""
    models = list(dict.fromkeys(row["model"] for row in rows))
    rules = [rule for rule in RULES if rule != "as it is"]
    lines = [
        "| model | time | launches | peak | HBM | " + " | ".join(rules) + " |",
        "|---" * (5 + len(rules)) + "|",
    ]
    for model in models:
        mine = {row["rule"]: row for row in rows if row["model"] == model}
        base = mine["as it is"]
        if "refused" in base:
            lines.append(f"| {model} | {base['refused']} |")
            continue
        cells = [f"{base['seconds'] * 1e6:,.1f} us", str(base["launches"]), f"{base['peak']:.1%}", f"{base['hbm']:.1%}"]
        for rule in rules:
            row = mine[rule]
            slower = f"{row['seconds'] / base['seconds']:.2f} x" if "refused" not in row else "refused"
            cells.append(slower + (f" ({row['launches']})" if rule in ("O0", "O1") and "refused" not in row else ""))
        lines.append(f"| {model} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def add_command(commands: Any) -> None:
    """Add the command `mapping`."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "mapping", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=Path, help="folder of .onnx files")
    parser.add_argument("--device", default="sn40l")
    parser.add_argument("--only", action="append", help="only this model (name of a decoder or stem of a file)")
    parser.add_argument("--json", action="store_true", help="rows as JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Measure and print. Exit code 1 when a model cannot be mapped as it is."""
    files = sorted(options.models.glob("*.onnx")) if options.models else []
    models = [title for title, _, _ in DECODERS] + [str(file) for file in files]
    if options.only:
        models = [model for model in models if model in options.only or Path(model).stem in options.only]
    rows = [measure(model, options.device, rule) for model in models for rule in RULES]
    print(json.dumps(rows, indent=1) if options.json else table(rows))
    return int(any("refused" in row for row in rows if row["rule"] == "as it is"))
