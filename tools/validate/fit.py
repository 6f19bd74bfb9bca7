"""The free constants from rows of kinds FIT and RANGE: for each, what a row says when the constant takes other values.

    python -m headrace.tools.validate.fit                       # every constant
    python -m headrace.tools.validate.fit --only launch.software

Prints, for each value that is tried, the prediction of each of its rows and whether it is as near as the row asks, and
then which value is best: that of the smallest miss (the sum of what FIT rows are off by, as a logarithm, and of what
RANGE rows lie outside of their range): the one in the device file if none misses less, else the middle of those.
Programs are compiled once, with the values of the device file; with --anew for each value. Nothing is written. Rows
that are held out are refused.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log

from headrace.dialects.support.diagnostics import CompileError
from headrace.tools.validate.constants import FREE, value_of
from headrace.tools.validate.predictions import FUNCTIONS, Study
from headrace.tools.validate.rows import Row, row_of

DEVICE = "sn40l"
TRIED: dict[str, tuple[tuple[str, ...], tuple[float, ...]]] = {
    "launch.software": (FREE["launch.software"], (10e-6, 15e-6, 18e-6, 20e-6, 22e-6, 25e-6, 30e-6, 40e-6)),
    "launch.hardware": (FREE["launch.hardware"], (2e-6, 3e-6, 5e-6, 8e-6)),
    "launch.reconfigure": (("19",), (1e-6, 2e-6, 2.5e-6)),
    "sockets.latency": (("10",), (0.0, 0.2e-6, 0.4e-6, 0.8e-6, 1.6e-6)),
}
"""Constant → rows that could say something about it, and the values that are tried."""
SAME = 1e-3
"""Misses that differ by less are alike."""


@dataclass(frozen=True)
class Trial:
    """What the rows of a constant are predicted at when it has a value."""

    value: float
    predicted: Mapping[str, float]

    @property
    def miss(self) -> float:
        """How far off its rows are together, as a logarithm."""
        return sum(abs(log(1 + row_of(name).error(value))) for name, value in self.predicted.items())


def fitted(path: str, values: Sequence[float], rows: Sequence[Row], retimed: bool = True) -> Iterator[Trial]:
    """The rows at each value, of programs that are compiled once (`retimed`), or anew.

    `CompileError` for a row that is held out or an identity.
    """
    for row in rows:
        if row.kind not in ("FIT", "RANGE"):
            raise CompileError("bad-option", f"row {row.id} is of kind {row.kind}, and constants are not set by it")
    for value in values:
        study = Study({DEVICE: {path: value}}, retimed)
        yield Trial(value, {row.id: FUNCTIONS[row.id](study).value for row in rows})


def best(trials: Sequence[Trial], now: float) -> Trial:
    """The trial that misses least: that of the value now if it is among them, else the one in the middle."""
    least = min(x.miss for x in trials)
    alike = sorted((x for x in trials if x.miss <= least + SAME), key=lambda x: x.value)
    return next((x for x in alike if x.value == now), alike[len(alike) // 2])


def _cell(row: Row, trial: Trial) -> str:
    value = trial.predicted[row.id]
    return f"{row.id}: {value:.4g} ({row.published}, {row.tolerance}: {'yes' if row.within(value) else 'no'})"


def main(argv: Sequence[str] | None = None) -> int:
    """Print what each constant's rows say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=TRIED, help="only this constant; may be repeated")
    parser.add_argument("--anew", action="store_true", help="compile for each value")
    parser.add_argument("--json", action="store_true", help="as JSON")
    options = parser.parse_args(argv)
    told: dict[str, object] = {}
    for path in options.only or TRIED:
        now = value_of(DEVICE, path)
        names, tried = TRIED[path]
        rows = [row_of(name) for name in names]
        values = sorted({*tried, now})
        trials: list[Trial] = []
        if not options.json:
            print(f"{DEVICE} {path}, now {now:g}", flush=True)
        for x in fitted(path, values, rows, not options.anew):
            trials.append(x)
            if not options.json:
                print(f"  {x.value:<8g} miss {x.miss:.3f}   {'   '.join(_cell(r, x) for r in rows)}", flush=True)
        chosen = best(trials, now)
        told[path] = {
            "now": now,
            "best": chosen.value,
            "trials": [{"value": x.value, "miss": x.miss, "predicted": dict(x.predicted)} for x in trials],
        }
        if not options.json:
            print(f"  best {chosen.value:g}", flush=True)
    if options.json:
        print(json.dumps(told, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
