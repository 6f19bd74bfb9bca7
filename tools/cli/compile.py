"""`headrace compile`: model in, artifact out."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headrace.tools.cli import common
from headrace.tools.cli.module import TakesFlags, is_class, model_of, stem_of

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from headrace.compiler import Translation
    from headrace.passes.infra.manager import Record

Command = TypeVar("Command", bound=Callable[..., Any])


FLAGS = {
    "--verify-each": "Audit the IR after each pass (slow; for authors of passes).",
    "--timing": "CPU seconds by step and pass, to standard error.",
    "--statistics": "What each pass counted, rewrote and changed, to standard error.",
    "--print-ir-after-change": "What each pass changed, as a diff, to standard error.",
    "--print-ir-before-all": "IR before every pass, to standard error.",
    "--print-ir-after-all": "IR after every pass, to standard error.",
    "--print-pipeline": "The passes as text that --passes and headrace-opt -p take, to standard error.",
}
PASSES = {
    "--print-ir-before": "IR before this pass, to standard error.",
    "--print-ir-after": "IR after this pass, to standard error.",
}
PLACES = {
    "--dump-phases": ("DIR", "Write the IR after each phase to this folder."),
    "--dump-passes": ("DIR", "Write the IR after each pass that changed it to this folder."),
    "--trace": ("FILE", "Write a trace of steps and passes, for ui.perfetto.dev."),
}
"""The options on looking at passes, which `tools.watching.Watching` takes."""


def watching_options(command: Command) -> Command:
    """Adds the options on looking at passes."""
    for name, (place, text) in reversed(PLACES.items()):
        command = click.option(name, metavar=place, help=text)(command)
    for name, text in reversed(PASSES.items()):
        command = click.option(name, multiple=True, metavar="PASS", help=text)(command)
    for name, text in reversed(FLAGS.items()):
        command = click.option(name, is_flag=True, help=text)(command)
    return command


class Grouped(TakesFlags):
    """Lists the options on looking at passes apart."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {"Options": [], "Looking at the passes": []}
        for one in self.get_params(ctx):
            record = one.get_help_record(ctx) if isinstance(one, click.Option) else None
            if record is not None:
                apart = {*FLAGS, *PASSES, *PLACES} & set(one.opts)
                groups["Looking at the passes" if apart else "Options"].append(record)
        for title, records in groups.items():
            with formatter.section(title):
                formatter.write_dl(records)


@click.command("compile", cls=Grouped)
@click.argument("model")
@click.option("-o", "--output", metavar="FILE", help="The artifact (with --to: the IR). [default: the model's name]")
@common.device_option()
@common.precision_options
@click.option("--native-types", is_flag=True, help="Refuse ops that compute in types that the device emulates.")
@common.mesh_option
@click.option(
    "--opt", default="latency", metavar="GOAL", help="What is least: latency of a run, or throughput's interval."
)
@click.option(
    "--runs", type=click.IntRange(0), default=0, metavar="N", help="For throughput: inputs at a time. [chosen]"
)
@click.option(
    "-O", "mode", type=click.Choice(["0", "1", "3"]), default="3", help="On the chip at a time: op, rule, all."
)
@click.option("--fusion-rules", metavar="FILE", help="YAML rules on which ops share a section, for -O 1.")
@common.binding_options
@common.step_options
@click.option("--state", "states", multiple=True, metavar="PAST=PRESENT", help="Input and output that are one state.")
@click.option("--seed", type=int, metavar="SEED", help="Whose random numbers a model draws, if it does.")
@click.option("--shape-only", is_flag=True, help="Compile without weights: to be planned and timed, not run.")
@click.option(
    "--weights",
    metavar="FILE",
    help="Weights of a .mlir model (.safetensors, .npz, .sn, .onnx or a folder), or of a PyTorch one by its names "
    "(.safetensors, .pt, .pth).",
)
@click.option("--passes", metavar="PIPELINE", help="Passes in place of the default ones: 'a,b{x=1},c'.")
@click.option("--to", "stop", metavar="PHASE", help="Stop after import, tensor, dataflow or rdu, and write the IR.")
@click.option("--from", "start", metavar="PHASE", help="The phase that made a .mlir model. [default: read off it]")
@watching_options
@common.reproducer_option
@common.json_option
@click.pass_context
def command(
    ctx: click.Context,
    model: str,
    output: str | None,
    device: str | None,
    precision: str,
    lower_ports: str,
    weights_precision: str,
    native_types: bool,
    mesh: str | None,
    opt: str,
    runs: int,
    mode: str,
    fusion_rules: str | None,
    dims: tuple[str, ...],
    shapes: tuple[str, ...],
    states: tuple[str, ...],
    seed: int | None,
    shape_only: bool,
    weights: str | None,
    passes: str | None,
    stop: str | None,
    start: str | None,
    place: str | None,
    as_json: bool,
    **watching: Any,
) -> None:
    """Compile MODEL (.onnx, .pt2, or .mlir with IR of any level) and write an artifact.

    MODEL may be a language model by its configuration: the config.json of a Hugging Face model, or the name of one
    (llama-3.1-405b, minimax-m2, ...), which has no weights: headrace compile llama-3.1-8b --shape-only --mode decode
    --context 8192.

    MODEL may be a class of a Python file, FILE.py:CLASS. Its file is run; the parameters of its constructor are flags,
    and --input gives shape and element type (f32 unless told) of each input:
    headrace compile model.py:GPT --layers 2 --input tokens=1x8xi64. So may a function that gives a module be, or a
    module. Its weights are those of --weights, by its names; else those that it draws from seed 0. With --help, the
    parameters of the class are listed, too.

    The artifact appears complete or not at all. Everything that is wrong with the model is reported at once. What a
    compilation that was stopped wrote (--to, --dump-phases, --dump-passes) can be gone on from: headrace compile x.mlir
    --weights m.onnx.
    """
    from headrace.compiler import Clock, check_writable, lowered, translate
    from headrace.tools.watching import Watching

    begin = time.perf_counter()
    step = common.step_of(model, watching)
    if step is not None and weights_precision:
        step["calls"] = False  # what is stored narrow is seen where a product reads it
    named = step is not None or is_class(model)
    if not named:
        common.check_model(model, (".onnx", ".pt2", ".mlir"))
    target = output or stem_of(model, step) + (f".{stop}.mlir" if stop else ".sn")
    if stop and Path(target).suffix == ".sn":
        raise click.UsageError(f"--to={stop} writes IR, not an artifact: -o {Path(target).with_suffix('.mlir')}")
    if stop and passes is not None:
        raise click.UsageError("--to stops the default passes; with --passes give the passes to stop after")
    if target != "-" or not stop:
        check_writable(target, *([] if named else [model]), *([weights] if weights else []))
    clock = Clock()
    look = Watching(**watching)
    watch = look.watch
    read = model_of(ctx, model, shapes, step)
    given: dict[str, Any] = {
        **read.options,
        "dims": common.dims_of(dims),
        "input_shapes": {} if is_class(model) else common.shapes_of(shapes),
        "states": common.pairs(states, "--state", "past=present"),
        "seed": seed,
        "shape_only": shape_only,
        "start": start,
        "mode": f"O{mode}",
        "fusion_rules": fusion_rules,
        "lower_ports": lower_ports,
        "weights_precision": weights_precision,
        "native_types": native_types,
        "mesh": common.mesh_of(mesh),
        "opt": opt,
        "runs": runs,
        "watch": watch,
        "on_phase": look.on_phase,
        "clock": clock,
    }
    try:
        with common.progress(as_json) as show:
            given["progress"] = show
            if stop:
                module = lowered(read.source, stop, device, precision, **given)
                _write_ir(target, module)
                clock.lap("write")
                ops = sum(1 for _ in module.walk())
                found: dict[str, Any] = {"ir": target, "phase": stop, "ops": ops}
                text = f"{target}: after phase {stop}, {common.plural(ops, 'op')}"
            else:
                done = translate(read.source, device, precision, weights=weights, pipeline=passes, **given)
                show(0, 0, f"writing {target}")
                done.write(target)
                clock.lap("write")
                found = summary(done, target, time.perf_counter() - begin)
                text = summary_text(found)
    except Exception as error:
        from headrace.compiler import import_model

        names = (*read.options, "dims", "input_shapes", "states", "seed", "shape_only")
        bound: dict[str, Any] = {name: given[name] for name in names}
        bound["weights"] = weights
        _reproduce(ctx, error, place, model, lambda: import_model(read.source, **bound).module, device, clock.records)
        raise
    finally:
        look.report(clock.steps, clock.spans, clock.records)
        if look.print_pipeline:
            click.echo(",".join(record.spec for record in clock.records), err=True)
    if as_json:
        common.print_json(found)
    elif target != "-":
        click.echo(text)


def _reproduce(
    ctx: click.Context,
    error: Exception,
    place: str | None,
    model: str,
    read: Callable[[], ModuleOp],
    device: str | None,
    records: Sequence[Record],
) -> None:
    """Write the program on which a pass failed, a refusal only when that was asked for, and note it on the error."""
    from headrace.passes.infra.manager import PassBug

    told = any(note.startswith("while running pass") for note in getattr(error, "__notes__", ()))
    if not (isinstance(error, PassBug) or (told and place is not None)):
        return
    from headrace.compiler import with_device
    from headrace.passes.infra.registry import build
    from headrace.tools.debug import Predicate, Source, Trial, reproduce

    trial = Trial(build(",".join(one.spec for one in records)), Predicate())
    source = Source(Path(model).name, device or "")
    where = common.reproducers(ctx, place)
    error.add_note(reproduce(source, lambda: with_device(read(), device), trial, error, where))


def _write_ir(target: str, module: ModuleOp) -> None:
    from headrace.dialects.support.files import write_text
    from headrace.tools.watching import text_of

    if target == "-":
        click.echo(text_of(module), nl=False)
    else:
        write_text(target, text_of(module))


def summary(done: Translation, target: str, seconds: float) -> dict[str, Any]:
    """What was compiled, as plain data."""
    from headrace.dialects.support.dtypes import byte_size
    from headrace.runtime.timing import time_program

    program = done.program
    timing = time_program(program)
    totals = {kind: [sum(len(u.sites) for u in c.units if u.kind == kind) for c in program.configs] for kind in KINDS}
    memory: dict[str, int] = {}
    for region in program.regions:
        if region.memory:
            memory[region.memory] = memory.get(region.memory, 0) + region.type.elements * byte_size(region.type.dtype)
    return {
        "artifact": target,
        "bytes": os.path.getsize(target),
        "model": done.manifest["model"],
        "device": program.device["name"],
        "precision": done.manifest["precision"],
        "inputs": [{"name": p.name, "shape": list(p.type.shape), "dtype": p.type.dtype} for p in program.inputs],
        "outputs": [{"name": p.name, "shape": list(p.type.shape), "dtype": p.type.dtype} for p in program.outputs],
        "states": [list(pair) for pair in program.states],
        "ops": {
            status: sum(row.count for row in done.coverage if row.status == status)
            for status in ("supported", "decomposed")
        },
        "configs": len(program.configs),
        "launches": len(program.launches),
        "units": {kind: max(counts, default=0) for kind, counts in totals.items()},
        "memory": memory,
        "weights": done.weights is not None,
        "busiest_link": max((c.link_load for c in timing.configs), default=0.0),
        "device_seconds": timing.seconds,
        "seconds": round(seconds, 3),
        "cpu_seconds": {step: round(value, 4) for step, value in done.seconds.items()},
    }


KINDS = ("pcu", "pmu", "agcu")


def summary_text(found: dict[str, Any]) -> str:
    """The summary for people."""
    from headrace.runtime.profile import time_text

    units = ", ".join(f"{count} {kind.upper()}" for kind, count in found["units"].items())
    memory = ", ".join(f"{size / 1e6:.1f} MB in {name.upper()}" for name, size in found["memory"].items())
    ops = found["ops"]
    lines = [f"{found['artifact']}: {found['model']} for {found['device']}, {found['bytes'] / 1e6:.1f} MB"]
    if any(ops.values()):
        decomposed = f" ({ops['decomposed']} decomposed)" if ops["decomposed"] else ""
        lines.append(f"  {sum(ops.values())} ops of the model, all on the device{decomposed}")
    configs, launches = common.plural(found["configs"], "configuration"), common.plural(found["launches"], "launch")
    lines.append(f"  {configs}, {launches}; at most {units}; busiest link {found['busiest_link']:.0%}")
    lines.append(f"  {memory or 'no memory'}; {'weights included' if found['weights'] else 'without weights'}")
    lines.append(f"  {time_text(found['device_seconds'])} a run on {found['device']}: headrace run --profile says why")
    if found["precision"] != "fp32":
        how = f"headrace compare --precision {found['precision']}"
        lines.append(f"  computes in {found['precision']}: {how} says how far results are from fp32")
    lines.append(f"  compiled in {found['seconds']:.2f} s")
    return "\n".join(lines)
