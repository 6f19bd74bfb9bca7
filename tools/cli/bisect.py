"""`headrace bisect`: the pass and the one rewrite after which something is wrong."""

from __future__ import annotations

import gc

import click

from headrace.tools.cli import common
from headrace.tools.cli.module import TakesFlags


@click.command("bisect", cls=TakesFlags)
@click.argument("model")
@common.failure_options
@common.reproducer_option
@click.option("--reduce", "smaller", is_flag=True, help="Reduce the reproducer, as `headrace reduce` does.")
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
    place: str | None,
    smaller: bool,
    most: int,
    as_json: bool,
) -> None:
    """Find the pass of a pipeline with which MODEL fails, and in it the one rewrite, by running it with ever less of
    them.

    MODEL is an .onnx or .pt2 file, .mlir with IR of any level, or FILE.py:CLASS, a class of a Python file.

    Without --predicate it is the failure that the passes have; if they have none, a change of results. For a file with
    a RUN line, pipeline and numbers are those of the line.
    """
    from dataclasses import replace

    from headrace.dialects.support import locations
    from headrace.tools.debug.bisection import bisect
    from headrace.tools.debug.edits import is_tensor_program
    from headrace.tools.debug.reduction import count, reduce_failure
    from headrace.tools.debug.reproducer import said, write

    gc.enable()  # programs come and go
    source, module, trial = common.failing(
        ctx, model, predicate, passes, plugins, device, weights, inputs, dims, shapes
    )
    where = common.reproducers(ctx, place)
    with common.progress(as_json) as show:
        found = bisect(module, trial, lambda text: show(0, 0, text))
        kept, small = found.before, found.trial
        if smaller:
            if not is_tensor_program(kept) and is_tensor_program(module):  # the program that is the shorter to read
                kept, small = module, replace(small, passes=trial.passes[: found.number + 1])
            near = found.rewrite.location if found.rewrite else None
            kept, small = reduce_failure(kept, small, most=most, progress=lambda text: show(0, 0, text), near=near)
    line = ""
    if where != "none":
        notes = str(replace(found, difference="")).splitlines()
        path = write(small, kept, source, where, notes)
        line = said(path) if path else "reproducer: none; the program read back does not fail"
    rewrite = found.rewrite
    if as_json:
        common.print_json(
            {
                "pass": found.spec,
                "number": found.number,
                "kind": found.failure.kind if found.failure else found.trial.predicate.kind,
                "rewrites": found.rewrites,
                "fuel": found.fuel,
                "pattern": rewrite.pattern if rewrite else "",
                "op": rewrite.op if rewrite else "",
                "location": locations.text(rewrite.location) if rewrite else "",
                "diff": found.difference,
                "reproducer": line.removeprefix("reproducer: ").partition(";")[0],
                "ops": count(kept),
            }
        )
        return
    click.echo(str(found))
    if line:
        click.echo(f"\n{common.plural(count(kept), 'op')}; {line}")
