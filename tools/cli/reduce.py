"""`headrace reduce`: the smallest program that still fails in the same way."""

from __future__ import annotations

import gc
from pathlib import Path

import click

from headrace.tools.cli import common
from headrace.tools.cli.module import TakesFlags


@click.command("reduce", cls=TakesFlags)
@click.argument("model")
@common.failure_options
@click.option("-o", "--output", metavar="FILE", help="Where the result goes. [default: MODEL.reduced.mlir]")
@common.most_option
@common.json_option
@click.pass_context
def command(
    ctx: click.Context,
    model: str,
    predicate: str,
    passes: str | None,
    plugins: tuple[str, ...],
    device: str | None,
    weights: str | None,
    inputs: str | None,
    dims: tuple[str, ...],
    shapes: tuple[str, ...],
    output: str | None,
    most: int,
    as_json: bool,
) -> None:
    """Make MODEL as small as it gets while it fails in the same way: drop ops, results, arguments, calls and sections,
    and shrink shapes. Every program tried is valid.

    MODEL is an .onnx or .pt2 file, .mlir with IR of any level, or FILE.py:CLASS, a class of a Python file.

    Without --predicate it is the failure that the passes have; if they have none, a change of results. For a file with
    a RUN line, pipeline and numbers are those of the line.
    """
    from headrace.compiler import check_writable
    from headrace.tools.debug.reduction import count, reduce_failure
    from headrace.tools.debug.reproducer import said, write

    gc.enable()  # programs come and go
    target = output or str(Path(model).with_suffix(".reduced.mlir"))
    check_writable(target)
    source, module, trial = common.failing(
        ctx, model, predicate, passes, plugins, device, weights, inputs, dims, shapes
    )
    with common.progress(as_json) as show:
        small, trial = reduce_failure(module, trial, most=most, progress=lambda text: show(0, 0, text))
    path = write(trial, small, source, target, trial.predicate.same.text.splitlines() if trial.predicate.same else [])
    before, after = count(module), count(small)
    if as_json:
        common.print_json({"reproducer": str(path or ""), "ops_before": before, "ops": after, "passes": trial.text})
        return
    click.echo(f"{common.plural(before, 'op')} reduced to {after}")
    click.echo(said(path) if path else "reproducer: none; the program read back does not fail")
