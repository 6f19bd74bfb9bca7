"""What it costs to watch passes, CPU seconds: the whole default pipeline over a decode step, in one process, in turn.

`bare` calls the passes in a loop, without a manager; the others are the manager with more and more switched on.
"""

from __future__ import annotations

import argparse
import gc
import io
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from headrace.compiler import import_model
from headrace.dialects.machine.attributes import set_device
from headrace.dialects.machine.device import load_device
from headrace.passes import pipelines
from headrace.passes.infra.base import Pass
from headrace.passes.infra.manager import PassManager, Watch, statistics_table, timing_table
from headrace.passes.infra.registry import build
from headrace.tools.bench.depth import decode_step
from headrace.tools.opt import context
from headrace.tools.watching import write_trace

LAYERS = 6
MOST = {"off": 1.05, "measured": 1.10}
"""Allowed CPU time over that of `bare`; off there is nothing to do, and rounds differ by some percent."""


def bare(module: ModuleOp) -> None:
    """The passes alone."""
    ctx = context()
    for one in build("default", pipelines=pipelines.PIPELINES):
        assert isinstance(one, Pass)
        one.run(ctx, module)


def watched(watch: Watch, folder: Path | None = None) -> Callable[[ModuleOp], None]:
    """The passes in a manager; with `folder` the tables and the trace are made too."""

    def run(module: ModuleOp) -> None:
        manager = PassManager(context(), build("default", pipelines=pipelines.PIPELINES), watch)
        manager.run(module)
        if folder is not None:
            write_trace(str(folder / "trace.json"), [], manager.records)
            timing_table(manager.records)
            statistics_table(manager.records)

    return run


def measure(rounds: int, layers: int = LAYERS) -> dict[str, list[float]]:
    """CPU seconds by mode, one per round."""
    given = import_model(decode_step(layers), shape_only=True).module
    set_device(given, load_device("sn40l"))
    with tempfile.TemporaryDirectory() as folder:
        modes: dict[str, Callable[[ModuleOp], None]] = {
            "bare": bare,
            "off": watched(Watch()),
            "measured": watched(Watch(measure=True), Path(folder)),
            "diffs": watched(Watch(after_change=True, stream=io.StringIO())),
            "audited": watched(Watch(verify_each=True)),
        }
        found: dict[str, list[float]] = {name: [] for name in modes}
        for number in range(rounds + 1):  # the first round imports and fills caches
            for name, run in modes.items():
                module = given.clone()
                gc.collect()
                start = time.process_time()
                run(module)
                if number:
                    found[name].append(time.process_time() - start)
    return found


def table(found: dict[str, list[float]]) -> str:
    """Median and best of each mode, and the median of its share of `bare` in the same round."""
    lines = [f"{'mode':10} {'median s':>9} {'best s':>9} {'of bare':>9}"]
    for name, seconds in found.items():
        lines.append(f"{name:10} {median(seconds):9.3f} {min(seconds):9.3f} {ratio(found, name):9.3f}")
    return "\n".join(lines)


def ratio(found: dict[str, list[float]], name: str) -> float:
    """CPU time of a mode over that of the passes alone: the median over rounds."""
    return median(a / b for a, b in zip(found[name], found["bare"], strict=True))


def missed(found: dict[str, list[float]]) -> Sequence[str]:
    """Gates that failed."""
    return [
        f"{name} takes {ratio(found, name):.3f} of the passes alone, allowed {most}"
        for name, most in MOST.items()
        if ratio(found, name) > most
    ]


def add_command(commands: Any) -> None:
    """Add `watch`."""
    parser = commands.add_parser("watch", help="what it costs to watch passes", description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="rounds to take the median of (default 9)")
    parser.add_argument("--layers", type=int, default=LAYERS, help=f"layers of the model (default {LAYERS})")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    found = measure(options.rounds, options.layers)
    print(table(found))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    wrong = missed(found)
    for line in wrong:
        print(f"FAILED: {line}")
    return 1 if wrong else 0
