"""`headrace compile`: model in, artifact out."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.tools.cli import common

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from headrace.compiler import Translation


@click.command("compile")
@click.argument("model")
@click.option("-o", "--output", metavar="FILE", help="The artifact. [default: the model's name with .sn]")
@common.device_option()
@click.option("--precision", default="fp32", metavar="TYPE", help="Element type of the arithmetic. [default: fp32]")
@click.option("--opt", default="latency", metavar="GOAL", help="What to optimise. [default: latency]")
@common.binding_options
@click.option("--state", "states", multiple=True, metavar="PAST=PRESENT", help="Input and output that are one state.")
@click.option("--shape-only", is_flag=True, help="Compile without weights: to be planned and timed, not run.")
@click.option("--weights", metavar="FILE", help="Weights of a .mlir model: a file, a folder or random:SEED.")
@click.option("--passes", metavar="PIPELINE", help="Passes in place of the default ones: 'a,b{x=1},c'.")
@click.option("--dump-phases", metavar="DIR", help="Write the IR after each phase to this folder.")
@click.option("--verify-each", is_flag=True, help="Audit the IR after each pass (slow; for authors of passes).")
@click.option("--timing", is_flag=True, help="CPU seconds by step and pass, to standard error.")
@common.json_option
def command(
    model: str,
    output: str | None,
    device: str | None,
    precision: str,
    opt: str,
    dims: tuple[str, ...],
    shapes: tuple[str, ...],
    states: tuple[str, ...],
    shape_only: bool,
    weights: str | None,
    passes: str | None,
    dump_phases: str | None,
    verify_each: bool,
    timing: bool,
    as_json: bool,
) -> None:
    """Compile MODEL (.onnx, or .mlir with IR of any level) and write an artifact.

    The artifact appears complete or not at all. Everything that is wrong with the model is reported at once.
    """
    from headrace.compiler import check_writable, translate

    start = time.perf_counter()
    common.check_model(model)
    target = output or os.path.splitext(model)[0] + ".sn"
    check_writable(target, model, *([weights] if weights else []))
    dump = Dump(dump_phases) if dump_phases else None
    with common.progress(as_json) as show:
        done = translate(
            model,
            device,
            precision,
            opt,
            dims=common.dims_of(dims),
            input_shapes=common.shapes_of(shapes),
            states=common.pairs(states, "--state", "past=present"),
            shape_only=shape_only,
            weights=weights,
            pipeline=passes,
            on_phase=dump,
            progress=show,
            verify_each=verify_each,
        )
        show(0, 0, f"writing {target}")
        before = time.process_time()
        done.write(target)
        done.seconds["write"] = time.process_time() - before
    if timing:
        click.echo(timing_text(done), err=True)
    found = summary(done, target, time.perf_counter() - start)
    if as_json:
        common.print_json(found)
    else:
        click.echo(summary_text(found))


class Dump:
    """Writes the IR after each phase into a folder: `0.import.mlir`, `1.tensor.mlir`, …, with locations."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        self.number = 0
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._refusal(error) from None

    def __call__(self, phase: str, module: ModuleOp) -> None:
        """Write one phase."""
        from xdsl.printer import Printer

        try:
            with (self.folder / f"{self.number}.{phase}.mlir").open("w", encoding="utf-8") as file:
                Printer(file, print_debuginfo=True).print_op(module)
                file.write("\n")
        except OSError as error:
            raise self._refusal(error) from None
        self.number += 1

    def _refusal(self, error: OSError) -> Exception:
        from headrace.dialects.support.diagnostics import CompileError

        return CompileError("cannot-write", f"--dump-phases {self.folder}: {error.strerror}", fix="name another folder")


def timing_text(done: Translation) -> str:
    """CPU seconds by step, then by pass."""
    from headrace.passes.infra.manager import timing_table

    steps = [(name, seconds) for name, seconds in done.seconds.items() if name not in LAPS_OF_PASSES]
    return timing_table(done.records, steps)


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
        "device_seconds": timing.seconds,
        "seconds": round(seconds, 3),
        "cpu_seconds": {step: round(value, 4) for step, value in done.seconds.items()},
    }


LAPS_OF_PASSES = ("tensor passes", "dataflow passes", "rdu passes", "pipeline passes")
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
    lines.append(f"  {configs}, {launches}; at most {units}")
    lines.append(f"  {memory or 'no memory'}; {'weights included' if found['weights'] else 'without weights'}")
    lines.append(f"  {time_text(found['device_seconds'])} a run on {found['device']}: headrace run --profile says why")
    lines.append(f"  compiled in {found['seconds']:.2f} s")
    return "\n".join(lines)
