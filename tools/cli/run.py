"""`headrace run`: an artifact on inputs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.tools.cli import common

if TYPE_CHECKING:
    import numpy as np

    from headrace.runtime.program import Program
    from headrace.runtime.session import Executable
    from headrace.runtime.times import Timing

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
@click.option("--page", metavar="HTML", help="Write the profile as a page: tables, roofline and floorplans.")
@click.option("--roofline", metavar="SVG", help="Write the roofline: rates of sections under the device's ceilings.")
@click.option("--floorplan", metavar="SVG", help="Write which units a section takes, their use, and loads of links.")
@click.option("--section", metavar="NAME", help="The section of the floorplan. [default: the longest]")
@click.option("--trace", metavar="JSON", help="Write the profile as a trace, for ui.perfetto.dev.")
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
    page: str | None,
    roofline: str | None,
    floorplan: str | None,
    section: str | None,
    trace: str | None,
    literal: bool,
    as_json: bool,
) -> None:
    """Run ARTIFACT (.sn) once and show the outputs, or write them to a file.

    State starts at zero, or with what --inputs holds for it. --profile alone runs nothing and needs no weights; so do
    its views, --page, --roofline, --floorplan and --trace.
    """
    views = {"page": page, "roofline": roofline, "floorplan": floorplan, "trace": trace}
    places = {name: path for name, path in views.items() if path is not None}
    if units and not profile:
        raise click.UsageError("--units is about --profile")
    if section is not None and floorplan is None:
        raise click.UsageError("--section is about --floorplan")
    check_places(places, artifact)
    shown, profile = profile, profile or bool(places)
    found: dict[str, Any] = {"artifact": artifact}
    if profile and inputs is None and seed is None and output is None:
        from headrace.runtime.timing import time_program

        program = common.open_file(artifact).program
        timing = time_program(program, model)
    else:
        common.one_of(inputs is not None, seed is not None, "--inputs or --random-inputs")
        if output is not None:
            from headrace.compiler import check_writable

            check_writable(output, artifact, *([inputs] if inputs else []))
        exe = common.open_executable(artifact, literal)
        program = exe.program
        results = run(exe, inputs, seed or 0)
        if output is not None:
            common.save_arrays(output, results)
        found["outputs"] = [common.array_summary(name, array) for name, array in results.items()]
        found["not_merged"] = exe.report
        timing = exe.profile(model=model) if profile else None
    if timing is not None:
        write_views(places, program, timing, section or "")
    if as_json:
        if places:
            found["views"] = places
        common.print_json(found | ({"profile": timing.to_json()} if timing is not None and shown else {}))
        return
    for one in found.get("outputs", ()):
        click.echo(common.array_text(one))
    for line in found.get("not_merged", ()) if not literal else ():
        click.echo(f"runs tile by tile: {line}", err=True)
    for path in (*([output] if output is not None else ()), *places.values()):
        click.echo(f"written to {path}")
    if timing is not None and shown:
        click.echo(("\n" if "outputs" in found or places else "") + timing.text(top, units))


ENDINGS = {"page": ".html", "roofline": ".svg", "floorplan": ".svg", "trace": ".json"}
"""How the names of the files of views end."""


def check_places(places: Mapping[str, str], artifact: str) -> None:
    """Refuse files of views that cannot be written, that are one file, or that have the ending of something else."""
    if len({Path(path).absolute() for path in places.values()}) < len(places):
        raise click.UsageError(f"{common.plural(len(places), 'view')} in one file: name one for each")
    for name, path in places.items():
        if Path(path).suffix != ENDINGS[name]:
            fix = "; --page writes one" if Path(path).suffix == ".html" else ""
            raise click.UsageError(f"--{name} {path}: give a name that ends in {ENDINGS[name]}{fix}")
        from headrace.compiler import check_writable

        check_writable(path, artifact)


def write_views(places: Mapping[str, str], program: Program, timing: Timing, section: str) -> None:
    """Write the views of a profile, all or none."""
    if not places:
        return
    from headrace.dialects.support.files import write_texts
    from headrace.tools import views

    draw = {
        "page": lambda: views.page(program, timing),
        "roofline": lambda: views.roofline(program, timing),
        "floorplan": lambda: views.floorplan(program, timing, section),
        "trace": lambda: views.trace(program, timing),
    }
    write_texts({Path(path): draw[name]() for name, path in places.items()})


def run(exe: Executable, inputs: str | None, seed: int) -> dict[str, Array]:
    """The outputs of one run on a file of inputs, or on inputs from a seed."""
    arrays = common.load_arrays(inputs) if inputs is not None else common.random_arrays(exe.inputs, seed)
    past = {past for past, _ in exe.program.states}
    exe.reset({name: array for name, array in arrays.items() if name in past})
    return exe({name: array for name, array in arrays.items() if name not in past})
