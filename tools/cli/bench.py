"""`headrace bench`: latency and throughput of an artifact on this machine, or of a language model against GPUs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from headrace.tools.cli import common

HERE = ("inputs", "seed", "seconds", "runs", "bound")
"""Parameters of measuring here; the others, but for the subject, `--against` and `--json`, are of a comparison."""
SHARED = ("subject", "gpu", "as_json")


@click.command("bench")
@click.argument("subject", metavar="ARTIFACT|MODEL")
@click.option("--inputs", metavar="NPZ", help="An array per input. [default: random ones]")
@click.option(
    "--random-inputs", "seed", type=int, default=0, metavar="SEED", help="Seed of random inputs. [default: 0]"
)
@click.option("--seconds", type=click.FloatRange(0), default=2.0, metavar="S", help="How long to measure. [default: 2]")
@click.option("--runs", type=click.IntRange(1), metavar="N", help="How many runs to measure, instead of --seconds.")
@click.option("--bound", is_flag=True, help="Leave out the copies of inputs and outputs.")
@click.option("--against", "gpu", metavar="GPU|TOML", help="Compare MODEL with GPUs: h100, h200, b200, b300.")
@click.option("--gpus", type=click.IntRange(1), default=8, metavar="N", help="How many GPUs. [default: 8]")
@common.device_option("sn50")
@click.option("--sockets", type=click.IntRange(1), metavar="N", help="How many devices. [default: as --mesh, or 1]")
@click.option("--mesh", metavar="AXIS=N,…", help="How they share the work: tp=16, or dp=2,tp=8. [default: tp]")
@click.option("--precision", default="bf16", metavar="TYPE", help="Weights on both sides: bf16 or fp8. [default: bf16]")
@click.option("--gpu-precision", default="", metavar="TYPE", help="Of the GPUs: bf16, fp8, mxfp4 or nvfp4. [the same]")
@click.option("--batches", default="", metavar="N,…", help="Sequences at a time. [default: 1 to 128]")
@click.option("--lengths", default="", metavar="N,…", help="Tokens of a prompt. [default: 128 to 8192]")
@click.option("--compile-batches", default="", metavar="N,…", help="Those that are compiled. [default: 1,8,32,128]")
@click.option("--compile-lengths", default="", metavar="N,…", help="Those that are compiled. [default: 128,2048,8192]")
@click.option("--output-tokens", type=click.IntRange(1), default=1024, metavar="N", help="Tokens out. [default: 1024]")
@click.option("--times", type=float, default=3.0, metavar="X", help="The ratio that maps mark. [default: 3]")
@click.option("-o", "--output", metavar="FILE", help="The page (.html); pictures and rows go beside it.")
@click.option("--cache", metavar="FILE", help="Keeps what was compiled. [default: beside the page]")
@common.json_option
@click.pass_context
def command(
    ctx: click.Context,
    subject: str,
    inputs: str | None,
    seed: int,
    seconds: float,
    runs: int | None,
    bound: bool,
    gpu: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Run ARTIFACT (.sn) many times and report latency (minimum, median, 90th percentile) and throughput.

    This is the speed of the model of the chip on this machine; `headrace run --profile` has the chip's own time.

    With --against, MODEL (a preset, or the config.json of a Hugging Face model) on a system of devices is compared with
    GPUs, over batches and lengths of prompts: tokens a second, time to the first token, what each side waits for, and
    where ours is how many times better. Steps are compiled in full and without weights.
    """
    for name in ctx.params:
        given = ctx.get_parameter_source(name) == ParameterSource.COMMANDLINE
        if given and name not in SHARED and (name in HERE) == (gpu is not None):
            flag = next(p.opts[-1] for p in ctx.command.params if p.name == name)
            raise click.UsageError(f"{flag} goes {'without' if gpu is not None else 'with'} --against")
    if gpu is not None:
        _against(subject, gpu, as_json, **options)
    else:
        _measure(subject, inputs, seed, seconds, runs, bound, as_json)


def _measure(
    artifact: str, inputs: str | None, seed: int, seconds: float, runs: int | None, bound: bool, as_json: bool
) -> None:
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


def _against(
    model: str,
    gpu: str,
    as_json: bool,
    *,
    gpus: int,
    device: str,
    sockets: int | None,
    mesh: str | None,
    precision: str,
    gpu_precision: str,
    batches: str,
    lengths: str,
    compile_batches: str,
    compile_lengths: str,
    output_tokens: int,
    times: float,
    output: str | None,
    cache: str | None,
) -> None:
    import json

    from headrace.compiler import check_writable
    from headrace.dialects.support.files import write_text
    from headrace.passes.analysis.sharding import mesh_from_text
    from headrace.tools.predict import against
    from headrace.tools.predict.system import System
    from headrace.tools.views.against import against_page, pictures, sentences

    chosen = _whole_numbers(batches, "--batches") or against.BATCHES
    long = _whole_numbers(lengths, "--lengths") or against.LENGTHS
    question = against.Question(
        model,
        System(device, sockets or 0, dict(mesh_from_text(mesh).axes) if mesh else None),
        gpu,
        gpus,
        precision,
        gpu_precision,
        output_tokens,
        chosen,
        long,
        _whole_numbers(compile_batches, "--compile-batches") or against.chosen(chosen, against.COMPILED_BATCHES),
        _whole_numbers(compile_lengths, "--compile-lengths") or against.chosen(long, against.COMPILED_LENGTHS),
        times,
    )
    name = Path(model).parent.name if Path(model).stem == "config" else Path(model).stem if "/" in model else model
    stem = f"{name.removesuffix('.json')}-{question.system.device.name}-against-{Path(gpu).stem}"
    page = Path(output or f"{stem}.html")
    if page.suffix != ".html":
        raise click.UsageError(f"-o {output}: the page is an .html file")
    check_writable(str(page))
    with common.progress(as_json) as show:
        found = against.compare(question, cache or page.with_suffix(".cache.json"), show)
    write_text(str(page), against_page(found))
    written = [str(page)]
    for label, text in pictures(found).items():
        written.append(str(page.with_name(f"{page.stem}-{label}.svg")))
        write_text(written[-1], text)
    written.append(str(page.with_suffix(".json")))
    write_text(written[-1], json.dumps(found.to_json(), indent=1) + "\n")
    if as_json:
        common.print_json(found.to_json() | {"files": written})
        return
    click.echo(f"{model}: {question.system.name}, {precision}, against {gpus} x {gpu}, {question.numbers}")
    for line in sentences(found):
        click.echo(f"  {line}")
    for line in found.refused:
        click.echo(f"  no figure: {line}")
    click.echo(f"{page}: the report; pictures (.svg) and rows (.json) are beside it")


def _whole_numbers(text: str, flag: str) -> tuple[int, ...]:
    """`1,8,32` as numbers; none for an empty text."""
    from headrace.dialects.support.diagnostics import CompileError

    parts = [x.strip() for x in text.split(",")] if text else []
    if any(not x.isdecimal() for x in parts):
        raise CompileError("bad-option", f"{flag} {text}: expected whole numbers", fix=f"{flag} 1,8,32")
    return tuple(map(int, parts))
