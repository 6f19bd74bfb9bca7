"""Speed of the runtime against a peer: one process a peer, interleaved bursts, one thread each, CPU time.

The figure of a model is the median over the rounds of the paired ratios (ours ÷ theirs) of CPU seconds a call.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import exp, log
from pathlib import Path
from statistics import median
from typing import Any

THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
FORCED = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")  # would change one peer only


class PeerFailed(Exception):
    """The worker could not load the model or its numbers are wrong; the text is its reason."""


def one_thread(environment: dict[str, str]) -> dict[str, str]:
    """The environment with every thread count 1 and no forced BLAS kernel."""
    fixed = {k: v for k, v in environment.items() if k not in FORCED}
    return fixed | dict.fromkeys(THREADS, "1")


class Worker:
    """A peer's process. `ready` is its first message."""

    def __init__(self, peer: str, model: Path, device: str, tolerance: float) -> None:
        command = [sys.executable, "-m", "headrace.tools.bench.worker", peer, str(model), "--device", device]
        command += ["--tolerance", str(tolerance)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=one_thread(dict(os.environ))
        )
        self.ready = self._receive(peer)

    def _receive(self, peer: str) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        message = json.loads(line) if line else {"failed": f"the process ended with code {self.process.wait()}"}
        if "failed" in message:
            raise PeerFailed(f"{peer}: {message['failed']}")
        return message

    def burst(self, seconds: float) -> dict[str, float]:
        """Run about that many seconds of calls; totals of the burst."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"burst": seconds}) + "\n")
        self.process.stdin.flush()
        return self._receive("burst")

    def close(self) -> None:
        """End the process."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process.wait()


@dataclass(frozen=True)
class Row:
    """Times of one model: milliseconds a call (medians), the median paired ratio, its quartiles and the ratio by
    wall."""

    model: str
    ours_ms: float
    theirs_ms: float
    ratio: float
    low: float
    high: float
    wall_ratio: float
    rounds: int
    ours: dict[str, Any]
    theirs: dict[str, Any]


def quantile(values: Sequence[float], q: float) -> float:
    """The nearest-rank quantile."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


def measure(model: Path, ours: str, theirs: str, device: str, rounds: int, seconds: float, tolerance: float) -> Row:
    """Both peers on one model. Raises PeerFailed when a peer cannot run it or gives wrong numbers."""
    workers: list[Worker] = []
    try:
        for peer in (ours, theirs):
            workers.append(Worker(peer, model, device, tolerance))
        cpu: list[tuple[float, float]] = []
        wall: list[tuple[float, float]] = []
        for round_number in range(rounds):
            order = (0, 1) if round_number % 2 == 0 else (1, 0)
            got: dict[int, dict[str, float]] = {i: workers[i].burst(seconds) for i in order}
            cpu.append((got[0]["cpu"] / got[0]["calls"], got[1]["cpu"] / got[1]["calls"]))
            wall.append((got[0]["wall"] / got[0]["calls"], got[1]["wall"] / got[1]["calls"]))
    finally:
        for worker in workers:
            worker.close()
    ratios = [a / b for a, b in cpu]
    return Row(
        model.stem,
        median(a for a, _ in cpu) * 1e3,
        median(b for _, b in cpu) * 1e3,
        median(ratios),
        quantile(ratios, 0.25),
        quantile(ratios, 0.75),
        median(a / b for a, b in wall),
        rounds,
        workers[0].ready,
        workers[1].ready,
    )


def geometric_mean(values: Sequence[float]) -> float:
    """exp of the mean logarithm."""
    return exp(sum(log(v) for v in values) / len(values))


def cpu_model() -> str:
    """The processor's name, as the system gives it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return "unknown"
    return next((x.split(":", 1)[1].strip() for x in lines if x.startswith("model name")), "unknown")


def environment() -> dict[str, Any]:
    """What the figures depend on besides the code."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return {
        "cpu": cpu_model(),
        "cpus": os.cpu_count(),
        "load": load,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def add_command(commands: Any) -> None:
    """Register `execute`."""
    parser = commands.add_parser(
        "execute", help="runtime speed against ONNX Runtime: one thread, CPU time, interleaved"
    )
    parser.add_argument(
        "--models", type=Path, required=True, help="folder with <name>.onnx, _inputs.npz and _reference.npz"
    )
    parser.add_argument("--only", default="", help="comma-separated model names")
    parser.add_argument("--rounds", type=int, default=9, help="interleaved rounds, at least 7 for a figure to quote")
    parser.add_argument("--burst", type=float, default=80, help="milliseconds a visit")
    parser.add_argument("--device", default="sn40l")
    parser.add_argument("--tolerance", type=float, default=1e-4, help="max |error| over max |reference| of an output")
    parser.add_argument("--peer", default="onnxruntime", help="onnxruntime, or a file that defines load(model)")
    parser.add_argument("--ours", default="headrace", help="headrace, or a file that defines load(model)")
    parser.add_argument("--gate-mean", type=float, default=None, help="fail when the geometric mean is above this")
    parser.add_argument("--gate-each", type=float, default=None, help="fail when a ratio is above this")
    parser.add_argument("--json", type=Path, default=None, help="write the figures to this file")
    parser.set_defaults(run=run)


def models_in(folder: Path, only: str) -> list[Path]:
    """The model files of a folder that have inputs and a reference beside them, smallest first."""
    wanted = {name for name in only.split(",") if name}
    found = [p for p in folder.glob("*.onnx") if p.with_name(p.stem + "_reference.npz").exists()]
    return sorted((p for p in found if not wanted or p.stem in wanted), key=lambda p: (p.stat().st_size, p.stem))


def run(options: argparse.Namespace) -> int:
    """Measure every model, print a row each and the geometric mean, and hold the gates that were given."""
    models = models_in(options.models, options.only)
    if not models:
        print(f"bench: no <name>.onnx with <name>_reference.npz in {options.models}", file=sys.stderr)
        return 2
    around = environment()
    print(f"# {around['cpu']}, {around['cpus']} CPUs, load {around['load']:.2f}; 1 thread each, CPU time, medians")
    print(
        f"# {'model':10} {'ours ms':>9} {'peer ms':>9} {'ratio':>6}  "
        f"{'quartiles':>11} {'wall':>5}  {'error':>7} {'MB':>5} {'peer MB':>7}"
    )
    rows: list[Row] = []
    failed: dict[str, str] = {}
    for model in models:
        try:
            row = measure(
                model,
                options.ours,
                options.peer,
                options.device,
                options.rounds,
                options.burst / 1e3,
                options.tolerance,
            )
        except PeerFailed as problem:
            failed[model.stem] = str(problem)
            print(f"  {model.stem:10} FAILED {problem}", flush=True)
            continue
        rows.append(row)
        print(
            f"  {row.model:10} {row.ours_ms:9.3f} {row.theirs_ms:9.3f} {row.ratio:6.2f}  "
            f"{row.low:5.2f}-{row.high:5.2f} "
            f"{row.wall_ratio:5.2f}  {row.ours['error']:7.1e} {row.ours['peak_rss_kb'] // 1024:5} "
            f"{row.theirs['peak_rss_kb'] // 1024:7}",
            flush=True,
        )
    if not rows:
        return 1
    mean = geometric_mean([row.ratio for row in rows])
    worst = max(rows, key=lambda row: row.ratio)
    print(f"# geometric mean {mean:.3f} over {len(rows)} models, worst {worst.model} {worst.ratio:.2f}")
    print(f"# ours {rows[0].ours['versions']} {rows[0].ours['pools']}")
    print(f"# peer {rows[0].theirs['versions']}")
    if options.json is not None:
        record = {"environment": around, "mean": mean, "rows": [asdict(row) for row in rows], "failed": failed}
        options.json.write_text(json.dumps(record, indent=1) + "\n")
    missed = bool(failed)
    missed |= options.gate_mean is not None and mean > options.gate_mean
    missed |= options.gate_each is not None and worst.ratio > options.gate_each
    return int(missed)
