"""`headrace run`: an artifact on inputs."""

from __future__ import annotations

from typing import Any

import click

from headrace.tools.cli import common


@click.command("run")
@click.argument("artifact")
@click.option("--inputs", metavar="NPZ", help="An array per input, by name.")
@click.option("--random-inputs", "seed", type=int, metavar="SEED", help="Inputs from a seed.")
@click.option("-o", "--output", metavar="NPZ", help="Where the outputs go.")
@click.option("--profile", is_flag=True, help="What the run costs on the device, by section and op of the model.")
@click.option("--top", type=int, default=20, metavar="N", help="Rows of the profile. [default: 20]")
@click.option("--literal", is_flag=True, help="Execute tile by tile through the flows (slow).")
@common.json_option
def command(
    artifact: str,
    inputs: str | None,
    seed: int | None,
    output: str | None,
    profile: bool,
    top: int,
    literal: bool,
    as_json: bool,
) -> None:
    """Run ARTIFACT (.sn) once and show the outputs, or write them to a file.

    State starts at zero, or with what --inputs holds for it.
    """
    common.one_of(inputs is not None, seed is not None, "--inputs or --random-inputs")
    if output is not None:
        from headrace.compiler import check_writable

        check_writable(output)
    exe = common.open_executable(artifact, literal)
    arrays = common.load_arrays(inputs) if inputs is not None else common.random_arrays(exe.inputs, seed or 0)
    past = {past for past, _ in exe.program.states}
    exe.reset({name: array for name, array in arrays.items() if name in past})
    results = exe({name: array for name, array in arrays.items() if name not in past})
    if output is not None:
        common.save_arrays(output, results)
    found: dict[str, Any] = {"artifact": artifact, "outputs": [common.array_summary(n, a) for n, a in results.items()]}
    found["not_merged"] = exe.report
    if as_json:
        if profile:
            found["profile"] = exe.profile().to_json()
        common.print_json(found)
        return
    for one in found["outputs"]:
        click.echo(common.array_text(one))
    for line in exe.report:
        click.echo(f"runs tile by tile: {line}", err=True)
    if output is not None:
        click.echo(f"written to {output}")
    if profile:
        from headrace.tools.cli.profile import profile_text

        click.echo("\n" + profile_text(exe.profile(), top))
