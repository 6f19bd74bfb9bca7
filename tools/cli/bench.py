"""`headrace bench`: latency and throughput of an artifact on this machine."""

from __future__ import annotations

import time
from typing import Any

import click

from headrace.tools.cli import common


@click.command("bench")
@click.argument("artifact")
@click.option("--inputs", metavar="NPZ", help="An array per input. [default: random ones]")
@click.option(
    "--random-inputs", "seed", type=int, default=0, metavar="SEED", help="Seed of random inputs. [default: 0]"
)
@click.option("--seconds", type=click.FloatRange(0), default=2.0, metavar="S", help="How long to measure. [default: 2]")
@click.option("--runs", type=click.IntRange(1), metavar="N", help="How many runs to measure, instead of --seconds.")
@click.option("--bound", is_flag=True, help="Leave out the copies of inputs and outputs.")
@common.json_option
def command(
    artifact: str, inputs: str | None, seed: int, seconds: float, runs: int | None, bound: bool, as_json: bool
) -> None:
    """Run ARTIFACT (.sn) many times and report latency (minimum, median, 90th percentile) and throughput.

    This is the speed of the model of the chip on this machine; `headrace run --profile` has the chip's own time.
    """
    import numpy as np

    from headrace.runtime.profile import time_text

    exe = common.open_executable(artifact)
    arrays = common.load_arrays(inputs) if inputs is not None else common.random_arrays(exe.inputs, seed)
    exe(arrays)
    call = exe.run if bound else lambda: exe(arrays)
    call()
    wall: list[float] = []
    begin, cpu = time.perf_counter(), time.process_time()
    with common.progress(as_json) as show:
        while len(wall) < (runs or 1) or (runs is None and time.perf_counter() - begin < seconds):
            start = time.perf_counter()
            call()
            wall.append(time.perf_counter() - start)
            if len(wall) % 50 == 0:
                show(0, 0, f"{len(wall)} runs")
    timing = exe.profile()
    cpu_each = (time.process_time() - cpu) / len(wall)
    milliseconds = np.array(wall) * 1e3
    found: dict[str, Any] = {
        "artifact": artifact,
        "runs": len(wall),
        "latency_ms": {
            "min": float(milliseconds.min()),
            "median": float(np.median(milliseconds)),
            "p90": float(np.percentile(milliseconds, 90)),
        },
        "cpu_ms": cpu_each * 1e3,
        "runs_per_second": len(wall) / sum(wall),
        "device": timing.device,
        "device_seconds": timing.latency,
        "device_interval_seconds": timing.interval,
    }
    if as_json:
        common.print_json(found)
        return
    latency = found["latency_ms"]
    click.echo(f"{artifact}: {len(wall)} runs on this machine")
    click.echo(f"  latency     min {latency['min']:.3f}  median {latency['median']:.3f}  p90 {latency['p90']:.3f} ms")
    click.echo(f"  CPU time    {found['cpu_ms']:.3f} ms a run")
    click.echo(f"  throughput  {found['runs_per_second']:.1f} runs a second")
    first, each = time_text(timing.latency), time_text(timing.interval)
    click.echo(f"{timing.device} itself would take {first} to a result and {each} to each further one", nl=False)
    click.echo(" (headrace run --profile)")
