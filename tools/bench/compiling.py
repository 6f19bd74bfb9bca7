"""Cold compile time against IREE: whole processes run in turn, CPU seconds of the process and its children.

Ours: `headrace compile model.onnx -o x.sn --device NAME`. IREE: `iree-import-onnx model.onnx -o x.mlir` and then
`iree-compile x.mlir -o x.vmfb` with the flags below; their sum is the figure. IREE lives in an environment of its own,
named by its Python interpreter.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from headrace.tools.bench.executing import environment, geometric_mean, models_in, one_thread, quantile

IREE_FLAGS: dict[str, tuple[str, ...]] = {
    "O3-data-tiling": ("--iree-opt-level=O3", "--iree-opt-data-tiling"),
    "O3": ("--iree-opt-level=O3",),
    "O2": ("--iree-opt-level=O2",),
    "default": (),
}
"""Flag sets for the host's processor, those that give the fastest programs first."""
IREE_COMMON = (
    "--iree-hal-target-device=local",
    "--iree-hal-local-target-device-backends=llvm-cpu",
    "--iree-llvmcpu-target-cpu=host",
)


class CommandFailed(Exception):
    """A timed command ended with another code than 0; the text is the end of its error output."""


def cpu_seconds(command: Sequence[str], threads: int) -> float:
    """CPU seconds (user and system) of a command and of the children it waited for.

    Raises CommandFailed when it does not end with code 0.
    """
    environment = one_thread(dict(os.environ)) if threads == 1 else dict(os.environ)
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            errors.seek(0)
            raise CommandFailed(f"{Path(command[0]).name}: code {process.returncode}: {errors.read()[-400:].strip()}")
    return usage.ru_utime + usage.ru_stime


@dataclass(frozen=True)
class Iree:
    """IREE's tools beside an interpreter, with the names of the flag sets to try in order."""

    python: Path
    sets: tuple[str, ...]

    def tool(self, name: str) -> str:
        """Path of one of its commands."""
        return str(self.python.parent / name)

    def problem(self) -> str | None:
        """Why it cannot be timed, or None."""
        missing = [n for n in ("iree-import-onnx", "iree-compile") if not (self.python.parent / n).exists()]
        return f"{', '.join(missing)} not found beside {self.python}" if missing else None

    def version(self) -> str:
        """What iree-compile says about itself, one line."""
        text = subprocess.run(
            [self.tool("iree-compile"), "--version"], capture_output=True, text=True, check=False
        ).stdout
        return next((x.strip() for x in text.splitlines() if "version" in x.lower()), "unknown")

    def compile(self, model: Path, folder: Path, flags: str) -> dict[str, float]:
        """CPU seconds of the import and of the compilation of one model with a flag set."""
        text, module = folder / "model.mlir", folder / "model.vmfb"
        importing = [self.tool("iree-import-onnx"), str(model), "-o", str(text), "--opset-version", "17"]
        times = {"import": cpu_seconds(importing, 1)}
        compiling = [self.tool("iree-compile"), str(text), "-o", str(module), *IREE_COMMON, *IREE_FLAGS[flags]]
        times["compile"] = cpu_seconds(compiling, 1)
        return times

    def usable(self, model: Path) -> str:
        """The first flag set that compiles the model. Raises CommandFailed with the last reason when none does."""
        reason = CommandFailed("no flag set to try")
        for name in self.sets:
            with tempfile.TemporaryDirectory() as folder:
                try:
                    self.compile(model, Path(folder), name)
                    return name
                except CommandFailed as failure:
                    reason = failure
        raise reason


@dataclass(frozen=True)
class Row:
    """CPU seconds of one model (medians), the median paired ratio ours ÷ theirs and its quartiles."""

    model: str
    ours: float | None
    theirs: float | None
    import_seconds: float | None
    ratio: float | None
    low: float | None
    high: float | None
    flags: str = ""
    problem: str = ""


def measure(model: Path, iree: Iree | None, ours: Sequence[str] | None, rounds: int) -> Row:
    """Run both in turn, a fresh process each time. `ours` holds `{model}` and `{out}`."""
    mine: list[float] = []
    peer: list[dict[str, float]] = []
    problem = flags = ""
    if iree is not None:
        try:
            flags = iree.sets[0] if len(iree.sets) == 1 else iree.usable(model)
        except CommandFailed as failure:
            return Row(model.stem, None, None, None, None, None, None, problem=str(failure))
    for number in range(rounds):
        for side in (0, 1) if number % 2 == 0 else (1, 0):
            with tempfile.TemporaryDirectory() as folder:
                try:
                    if side == 0 and ours is not None:
                        names = {"model": str(model), "out": str(Path(folder) / "model.sn")}
                        mine.append(cpu_seconds([word.format(**names) for word in ours], 1))
                    elif side == 1 and iree is not None:
                        peer.append(iree.compile(model, Path(folder), flags))
                except CommandFailed as failure:
                    problem = str(failure)
        if problem:
            break
    totals = [sum(times.values()) for times in peer]
    ratios = [a / b for a, b in zip(mine, totals, strict=False)]
    return Row(
        model.stem,
        median(mine) if mine else None,
        median(totals) if totals else None,
        median(times["import"] for times in peer) if peer else None,
        median(ratios) if ratios else None,
        quantile(ratios, 0.25) if ratios else None,
        quantile(ratios, 0.75) if ratios else None,
        flags,
        problem,
    )


def add_command(commands: Any) -> None:
    """Register `compile`."""
    parser = commands.add_parser("compile", help="cold compile time against IREE: whole processes, CPU time, in turn")
    parser.add_argument("--models", type=Path, required=True, help="folder with the ONNX files")
    parser.add_argument("--only", default="", help="comma-separated model names")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="sn40l")
    parser.add_argument(
        "--iree-python", type=Path, default=None, help="interpreter of an environment with iree-base-compiler[onnx]"
    )
    parser.add_argument(
        "--iree-flags",
        choices=["auto", *IREE_FLAGS],
        default="auto",
        help="auto: the fastest set that compiles the model",
    )
    parser.add_argument("--peer-only", action="store_true", help="time IREE alone")
    parser.add_argument("--gate", type=float, default=None, help="fail when a ratio is above this")
    parser.add_argument("--json", type=Path, default=None, help="write the figures to this file")
    parser.set_defaults(run=run)


def shown(value: float | None) -> str:
    """A figure, or a dash."""
    return f"{value:8.2f}" if value is not None else f"{'-':>8}"


def run(options: argparse.Namespace) -> int:
    """Measure every model and print a row each."""
    models = models_in(options.models, options.only)
    if not models:
        print(f"bench: no <name>.onnx with <name>_reference.npz in {options.models}", file=sys.stderr)
        return 2
    iree: Iree | None = None
    if options.iree_python is None:
        print("# peer absent: IREE was not named (--iree-python), so only our own time is measured")
    else:
        iree = Iree(options.iree_python, tuple(IREE_FLAGS) if options.iree_flags == "auto" else (options.iree_flags,))
        if (problem := iree.problem()) is not None:
            print(f"# peer absent: {problem}")
            iree = None
    if iree is not None:
        print(f"# {iree.version()}; common flags {' '.join(IREE_COMMON)}")
    ours = None
    if not options.peer_only:
        ours = [
            sys.executable,
            "-m",
            "headrace.tools.headrace",
            "compile",
            "{model}",
            "-o",
            "{out}",
            "--device",
            options.device,
        ]
    around = environment()
    print(
        f"# {around['cpu']}, load {around['load']:.2f}; "
        f"CPU seconds of cold processes and their children, medians of {options.rounds}"
    )
    print(f"# {'model':10} {'ours':>8} {'IREE':>8} {'import':>8} {'ratio':>8}")
    rows: list[Row] = []
    for model in models:
        row = measure(model, iree, ours, options.rounds)
        rows.append(row)
        print(
            f"  {row.model:10} {shown(row.ours)} {shown(row.theirs)} {shown(row.import_seconds)} "
            f"{shown(row.ratio)} {row.flags} {row.problem}",
            flush=True,
        )
    ratios = [row.ratio for row in rows if row.ratio is not None]
    if ratios:
        print(f"# geometric mean {geometric_mean(ratios):.3f}, worst {max(ratios):.2f}")
    if options.json is not None:
        options.json.write_text(
            json.dumps({"environment": around, "rows": [asdict(row) for row in rows]}, indent=1) + "\n"
        )
    if any(row.problem for row in rows):
        return 1
    return int(options.gate is not None and (not ratios or max(ratios) > options.gate))
