"""`headrace audit`: an independent check of a routed program."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.tools.cli import common

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from headrace.tools.audit import Report


@click.command("audit")
@click.argument("model")
@common.device_option()
@click.option("-O", "mode", type=click.Choice(["0", "1", "3"]), default="3", help="As in `headrace compile`.")
@common.binding_options
@common.json_option
def command(
    model: str, device: str | None, mode: str, dims: tuple[str, ...], shapes: tuple[str, ...], as_json: bool
) -> int:
    """Check the routed program of MODEL (.onnx, .mlir or .sn) from its units, flows and routes alone.

    Recomputes which sites are taken, what every address program touches, which pairs of sites must talk, routes, link
    loads, credits and channels, buffers, banks and off-chip memory, and runs the config on token counts; no pass or
    verifier is asked. A model that is not routed yet is compiled first, without weights. Exit code 2 when something is
    wrong; everything that is wrong is reported.
    """

    report = _report(model, device, mode, dims, shapes)
    if as_json:
        common.print_json(report.to_json())
        return 2 if report.diagnostics else 0
    click.echo(report.text())
    for one in report.diagnostics:
        click.echo(f"headrace: {one}", err=True)
    if not report.diagnostics:
        click.echo("nothing is wrong")
    return 2 if report.diagnostics else 0


def _report(model: str, device: str | None, mode: str, dims: tuple[str, ...], shapes: tuple[str, ...]) -> Report:
    from headrace.tools.audit import audit, audit_program

    if Path(model).suffix == ".sn":
        from headrace.tools.audit.artifact import read_program

        return audit_program(read_program(common.open_file(model).program))
    from headrace.compiler import import_model, lower

    common.check_model(model)
    module = import_model(
        model, dims=common.dims_of(dims), input_shapes=common.shapes_of(shapes), shape_only=True
    ).module
    if not _is_routed(module):
        lower(module, device, mode=f"O{mode}")
    return audit(module)


def _is_routed(module: ModuleOp) -> bool:
    from headrace.dialects.rdu.ops import ConfigOp

    return any(isinstance(op, ConfigOp) and op.phase.data == "routed" for op in module.body.block.ops)
