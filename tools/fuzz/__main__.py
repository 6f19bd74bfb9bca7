"""`python -m headrace.tools.fuzz --seed 0 --count 1000 --jobs 2 --mode pipeline`: exit code 1 on a failure."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from headrace.dialects.machine.device import load_device
from headrace.dialects.support.diagnostics import CompileError, nearest
from headrace.passes import pipelines
from headrace.passes.infra.registry import available
from headrace.tools.fuzz.campaign import MODES, Plan, run
from headrace.tools.fuzz.generator import DEFAULT, Distribution
from headrace.tools.fuzz.maker import DTYPES, SIZES
from headrace.tools.fuzz.settings import SMALL
from headrace.tools.fuzz.steps import steps


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a campaign and print its summary."""
    parser = argparse.ArgumentParser(prog="python -m headrace.tools.fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=500, help="how many seeds")
    parser.add_argument("--minutes", type=float, default=0.0, help="stop after so long")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--mode", choices=MODES, default="pipeline", help="the whole pipeline, or one pass a seed")
    parser.add_argument("--failures", type=Path, default=Path("fuzz-failures"), help="where reduced failures go")
    parser.add_argument("--passes", default="", help="with --mode pass: which, separated by commas; all when left out")
    parser.add_argument("--device", default="", help="a device by name or file, or 'small'; any when left out")
    levels = [name.removeprefix("O") for name in pipelines.MODES]
    parser.add_argument(
        "-O", dest="level", choices=levels, default="", help="how sections are cut; anyhow when left out"
    )
    parser.add_argument(
        "--precision", choices=tuple(pipelines.PRECISIONS), default="fp32", help="what f32 is computed in"
    )
    parser.add_argument("--ops", type=int, default=DEFAULT.ops, help="about how many steps a program has")
    parser.add_argument("--dtypes", default=",".join(DTYPES), help="element types, separated by commas")
    parser.add_argument("--size", choices=tuple(SIZES), default=DEFAULT.size, help="how large values are")
    parser.add_argument("--kinds", default="", help="kinds of steps, separated by commas")
    given = parser.parse_args(arguments)
    dtypes, kinds, passes = (_names(text) for text in (given.dtypes, given.kinds, given.passes))
    try:
        for flag, names, known in (
            ("dtypes", dtypes, DTYPES),
            ("kinds", kinds, steps()),
            ("passes", passes, available()),
        ):
            for name in names:
                if name not in known:
                    parser.error(f"--{flag}: there is no '{name}'; {nearest(name, known)}")
        if given.device not in ("", SMALL):
            load_device(given.device)
    except CompileError as error:
        parser.error(f"--device: {error}")
    if given.mode == "pass" and (given.level or given.precision != "fp32"):
        parser.error("-O and --precision go with --mode pipeline")
    level = f"O{given.level}" if given.level else ""
    like = Distribution(given.ops, dtypes, given.size, kinds)
    plan = Plan(given.mode, like, given.device, passes, level, given.precision)
    summary = run(range(given.seed, given.seed + given.count), plan, given.jobs, given.minutes, given.failures)
    print(summary.text())
    return 1 if summary.failed else 0


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


if __name__ == "__main__":
    sys.exit(main())
