"""`headrace run`: an artifact on inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from headrace.tools.cli import common

if TYPE_CHECKING:
    import numpy as np

    from headrace.runtime.session import Executable

    Array = np.ndarray[Any, np.dtype[Any]]


@click.command("run")
@click.argument("artifact")
@click.option("--inputs", metavar="NPZ", help="An array per input, by name.")
@click.option("--random-inputs", "seed", type=int, metavar="SEED", help="Inputs from a seed.")
@click.option("-o", "--output", metavar="NPZ", help="Where the outputs go.")
@click.option("--profile", is_flag=True, help="What the run costs on the device, by section and op of the model.")
@click.option(
    "--model",
    type=click.Choice(["event", "analytic"]),
    default="event",
    help="How the profile is computed: tile by tile, or in closed form. [default: event]",
)
@click.option("--top", type=click.IntRange(1), default=20, metavar="N", help="Rows of a table. [default: 20]")
@click.option("--units", is_flag=True, help="In the profile, also a table of the longest groups of units.")
@click.option("--literal", is_flag=True, help="Execute tile by tile through the flows (slow).")
@common.json_option
def command(
    artifact: str,
    inputs: str | None,
    seed: int | None,
    output: str | None,
    profile: bool,
    model: str,
    top: int,
    units: bool,
    literal: bool,
    as_json: bool,
) -> None:
    """Run ARTIFACT (.sn) once and show the outputs, or write them to a file.

    State starts at zero, or with what --inputs holds for it. --profile alone runs nothing and needs no weights.
    """
    if units and not profile:
        raise click.UsageError("--units is about --profile")
    found: dict[str, Any] = {"artifact": artifact}
    if profile and inputs is None and seed is None and output is None:
        from headrace.runtime.timing import time_program

        timing = time_program(common.open_file(artifact).program, model)
    else:
        common.one_of(inputs is not None, seed is not None, "--inputs or --random-inputs")
        if output is not None:
            from headrace.compiler import check_writable

            check_writable(output, artifact, *([inputs] if inputs else []))
        exe = common.open_executable(artifact, literal)
        results = run(exe, inputs, seed or 0)
        if output is not None:
            common.save_arrays(output, results)
        found["outputs"] = [common.array_summary(name, array) for name, array in results.items()]
        found["not_merged"] = exe.report
        timing = exe.profile(model=model) if profile else None
    if as_json:
        common.print_json(found | ({"profile": timing.to_json()} if timing is not None else {}))
        return
    for one in found.get("outputs", ()):
        click.echo(common.array_text(one))
    for line in found.get("not_merged", ()) if not literal else ():
        click.echo(f"runs tile by tile: {line}", err=True)
    if output is not None:
        click.echo(f"written to {output}")
    if timing is not None:
        click.echo(("\n" if "outputs" in found else "") + timing.text(top, units))


def run(exe: Executable, inputs: str | None, seed: int) -> dict[str, Array]:
    """The outputs of one run on a file of inputs, or on inputs from a seed."""
    arrays = common.load_arrays(inputs) if inputs is not None else common.random_arrays(exe.inputs, seed)
    past = {past for past, _ in exe.program.states}
    exe.reset({name: array for name, array in arrays.items() if name in past})
    return exe({name: array for name, array in arrays.items() if name not in past})
