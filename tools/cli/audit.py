"""`headrace audit`: an independent check of a routed program."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.tools.cli import common
from headrace.tools.cli.module import TakesFlags

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from headrace.tools.audit import Report


@click.command("audit", cls=TakesFlags)
@click.argument("model")
@common.device_option()
@click.option("-O", "mode", type=click.Choice(["0", "1", "3"]), default="3", help="As in `headrace compile`.")
@common.binding_options
@common.json_option
@click.pass_context
def command(
    ctx: click.Context,
    model: str,
    device: str | None,
    mode: str,
    dims: tuple[str, ...],
    shapes: tuple[str, ...],
    as_json: bool,
) -> int:
    """Check the routed program of MODEL from its units, flows and routes alone.

    MODEL is an .onnx, .pt2, .mlir or .sn file, or FILE.py:CLASS, a class of a Python file.

    Recomputes which sites are taken, what every address program touches, which pairs of sites must talk, routes, link
    loads, credits and channels, buffers, banks and off-chip memory, and runs the config on token counts; no pass or
    verifier is asked. A model that is not routed yet is compiled first, without weights. Exit code 2 when something is
    wrong; everything that is wrong is reported.
    """

    report = _report(ctx, model, device, mode, dims, shapes)
    if as_json:
        common.print_json(report.to_json())
        return 2 if report.diagnostics else 0
    click.echo(report.text())
    for one in report.diagnostics:
        click.echo(f"headrace: {one}", err=True)
    if not report.diagnostics:
        click.echo("nothing is wrong")
    return 2 if report.diagnostics else 0


def _report(
    ctx: click.Context, model: str, device: str | None, mode: str, dims: tuple[str, ...], shapes: tuple[str, ...]
) -> Report:
    from headrace.tools.audit import audit, audit_program

    if Path(model).suffix == ".sn":
        from headrace.tools.audit.artifact import read_program

        return audit_program(read_program(common.open_file(model).program))
    from headrace.compiler import lower

    module = common.read_model(ctx, model, dims, shapes, shape_only=True).module
    if not _is_routed(module):
        lower(module, device, mode=f"O{mode}")
    return audit(module)


def _is_routed(module: ModuleOp) -> bool:
    from headrace.dialects.rdu.ops import ConfigOp

    return any(isinstance(op, ConfigOp) and op.phase.data == "routed" for op in module.body.block.ops)
