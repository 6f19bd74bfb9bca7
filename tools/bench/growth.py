"""How the time of each pass grows with the size of a program, CPU seconds without the collection of garbage.

Three families of programs, each made small and large, go through the passes of the tensor and dataflow phases:

* `equal`: layers of ten ops that differ in their weights alone, one after the other;
* `different`: ops of seven kinds one after the other, no two layers alike;
* `wide`: branches that all read the input and are added up.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headrace.dialects.machine.attributes import set_device
from headrace.dialects.machine.device import load_device
from headrace.passes.infra.registry import build
from headrace.tools.bench.ir import tensor_text
from headrace.tools.opt import context, parse, pipelines

SIZES = (2_000, 20_000)
TYPE = "tensor<64x64xf32>"
LEAST = 0.05
"""Seconds on the large program below which growth is not told apart from the noise."""


class _Program:
    """Collects ops of one function; `%0` is its input."""

    def __init__(self) -> None:
        self.lines = [f"func.func @main(%0: {TYPE}) -> {TYPE} {{"]
        self.count = 0

    def __call__(self, name: str, *operands: int, attributes: str = "") -> int:
        """Add an op; the number of its result."""
        self.count += 1
        given = ", ".join(f"%{n}" for n in operands)
        types = f"{', '.join([TYPE] * len(operands))} -> {TYPE}" if operands else TYPE
        self.lines.append(f"  %{self.count} = tensor.{name} {given}{attributes} : {types}")
        return self.count

    def weight(self) -> int:
        """Add a weight of its own key."""
        return self("weight", attributes=f'"w.{self.count}"')

    def text(self, result: int) -> str:
        """The program that returns a value."""
        return "\n".join([*self.lines, f"  func.return %{result} : {TYPE}", "}", ""])


def different(ops: int) -> str:
    """Ops of seven kinds in an order that has no period."""
    rng, p, x = random.Random(0), _Program(), 0
    steps: list[Callable[[], int]] = [
        lambda: p("matmul", x, p.weight()),
        lambda: p("exp", x),
        lambda: p("tanh", x),
        lambda: p("softmax", x),
        lambda: p("add", x, 0),
        lambda: p("transpose", x, attributes=" {perm = array<i64: 1, 0>}"),
    ]
    while p.count < ops:
        x = rng.choice(steps)()
    return p.text(x)


def wide(ops: int) -> str:
    """Branches of a matmul and an exp, and the sum of all."""
    p = _Program()
    branches = [p("exp", p("matmul", 0, p.weight())) for _ in range(max(1, ops // 4))]
    x = branches[0]
    for branch in branches[1:]:
        x = p("add", x, branch)
    return p.text(x)


FAMILIES: dict[str, Callable[[int], str]] = {"equal": tensor_text, "different": different, "wide": wide}


@dataclass(frozen=True)
class Row:
    """One pass: its seconds on the small and the large program, and how often the second is what the size explains."""

    family: str
    number: int
    spec: str
    small: float
    large: float
    growth: float


def seconds(family: str, ops: int, passes: str, device: str) -> list[tuple[str, float]]:
    """CPU seconds of parsing and of each pass on one program."""
    ctx = context()
    text = FAMILIES[family](ops)
    found: list[tuple[str, float]] = []

    def timed(name: str, run: Callable[[], Any]) -> Any:
        gc.collect()
        gc.disable()
        try:
            start = time.process_time()
            result = run()
            found.append((name, time.process_time() - start))
        finally:
            gc.enable()
        return result

    module, _ = timed("parse", lambda: parse(ctx, text, "bench"))
    set_device(module, load_device(device))
    for one in build(passes, pipelines=pipelines()):
        timed(str(one), lambda one=one: one.apply(ctx, module))
    return found


def measure(family: str, sizes: tuple[int, int], passes: str, device: str) -> list[Row]:
    """All passes on a small and a large program."""
    seconds(family, 20, passes, device)  # loads what passes import when they run
    small, large = (seconds(family, ops, passes, device) for ops in sizes)
    return [
        Row(family, number, name, a, b, b / max(a, 1e-4) * sizes[0] / sizes[1])
        for number, ((name, a), (_, b)) in enumerate(zip(small, large, strict=True))
    ]


def default_passes() -> str:
    """The tensor and dataflow phases."""
    named = pipelines()
    return f"{named['tensor']},{named['dataflow']}"


def add_command(commands: Any) -> None:
    """Register `growth`."""
    parser = commands.add_parser("growth", help="growth of the time of each pass with the size of a program, CPU time")
    parser.add_argument("--ops", default=",".join(map(str, SIZES)), help="two sizes of programs, in ops")
    parser.add_argument("--families", default=",".join(FAMILIES), help="comma-separated: equal, different, wide")
    parser.add_argument("--passes", default=None, help="pipeline; by default the tensor and dataflow phases")
    parser.add_argument("--device", default="sn40l")
    parser.add_argument("--gate", type=float, default=None, help="fail when a pass grows by more than this")
    parser.add_argument("--json", type=Path, default=None, help="write the figures to this file")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Measure every family and print a row for each pass that takes time."""
    sizes = [int(n) for n in options.ops.split(",")]
    if len(sizes) != 2 or not 0 < sizes[0] < sizes[1]:
        print(f"bench: --ops takes two sizes, the small one first; found {options.ops}", file=sys.stderr)
        return 2
    rows: list[Row] = []
    print(f"{'family':10} {sizes[0]:>9} {sizes[1]:>9} {'growth':>7}  pass")
    for family in options.families.split(","):
        for row in measure(family, (sizes[0], sizes[1]), options.passes or default_passes(), options.device):
            rows.append(row)
            told = f"{row.growth:7.2f}" if row.large >= LEAST else f"{'-':>7}"
            print(f"{family:10} {row.small:9.3f} {row.large:9.3f} {told}  {row.spec}", flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    worst = max((row.growth for row in rows if row.large >= LEAST), default=0.0)
    return int(options.gate is not None and worst > options.gate)
