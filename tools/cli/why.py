"""`headrace why`: what became of an op of a model, pass by pass, and why."""

from __future__ import annotations

import click

from headrace.tools.cli import common
from headrace.tools.cli.module import TakesFlags


def last_phase(name: str) -> str:
    """The last phase that runs a pass; `CompileError` when none does."""
    from headrace.dialects.support.diagnostics import CompileError, nearest
    from headrace.passes.pipelines import EXTRA, PHASES

    found = [phase for phase in PHASES.values() if name in (*phase.passes, *EXTRA.get(phase.name, ()))]
    if not found:
        known = [one for phase in PHASES.values() for one in phase.passes]
        raise CompileError("unknown-pass", f"no phase runs a pass '{name}'", fix=nearest(name, known))
    return found[-1].name


@click.command("why", cls=TakesFlags)
@click.argument("model")
@click.option("--op", "wanted", required=True, metavar="NAME", help="A node, a path, a part of a name, a kind, %value.")
@click.option("--pass", "only", metavar="PASS", help="Only what this pass did.")
@click.option("--passes", metavar="PIPELINE", help="Passes in place of the default ones: 'a,b{x=1},c'.")
@common.device_option()
@common.mesh_option
@common.binding_options
@common.json_option
@click.pass_context
def command(
    ctx: click.Context,
    model: str,
    wanted: str,
    only: str | None,
    passes: str | None,
    device: str | None,
    mesh: str | None,
    dims: tuple[str, ...],
    shapes: tuple[str, ...],
    as_json: bool,
) -> int:
    """Say what became of an op of MODEL: the patterns that were tried on it, those that applied, why others did not,
    what searches decided, and the ops that stand for it after each phase.

    MODEL is an .onnx or .pt2 file, .mlir with IR of any level, or FILE.py:CLASS, a class of a Python file.

    NAME is a node of the model ('/encoder/gelu/Erf'), a path ('/encoder/gelu'), a part of a name ('gelu'), a kind of op
    ('tensor.erf') or a value ('%x'). Needs no weights and writes nothing. What is refused on the way ends the story.
    """
    from headrace.compiler import lower
    from headrace.dialects.support.diagnostics import CompileError
    from headrace.dialects.support.journal import recording
    from headrace.passes.infra.manager import Watch
    from headrace.tools.why import Follow

    axes = common.mesh_of(mesh)
    stop = last_phase(only) if only and passes is None else None
    module = common.read_model(ctx, model, dims, shapes, shape_only=True).module
    follow = Follow(module, wanted)

    def on_phase(name: str, at: object) -> None:
        if follow.turns:
            follow.phase(name, module)

    refused: CompileError | None = None
    with recording(follow.journal), common.progress(as_json) as show:
        try:
            lower(module, device, passes, on_phase, show, watch=Watch(check=follow.after), stop=stop, mesh=axes)
        except CompileError as error:
            follow.failed(follow.journal.pass_name)
            refused = error
    if as_json:
        errors = [one.to_json() for one in refused.diagnostics] if refused else []
        common.print_json(follow.to_json(only) | {"errors": errors})
        return 2 if refused else 0
    click.echo(follow.text(only))
    if refused:
        raise refused
    return 0
