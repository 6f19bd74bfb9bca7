"""`headrace plan`: what would become of every op, before anything is compiled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from headrace.tools.cli import common
from headrace.tools.cli.module import Model, TakesFlags, is_class, model_of

if TYPE_CHECKING:
    from headrace.frontends.base import CoverageRow
    from headrace.frontends.torch.models import ModelImport


@click.command("plan", cls=TakesFlags)
@click.argument("model")
@common.device_option()
@common.mesh_option
@common.binding_options
@common.step_options
@common.json_option
@click.pass_context
def command(
    ctx: click.Context,
    model: str,
    device: str | None,
    mesh: str | None,
    dims: tuple[str, ...],
    shapes: tuple[str, ...],
    as_json: bool,
    **options: Any,
) -> int:
    """Say of every op of MODEL (.onnx or .pt2) whether it is supported, decomposed or refused, and why.

    MODEL may be a class of a Python file, FILE.py:CLASS, or a language model by its configuration, as for headrace
    compile. Needs no weights. When all dims are bound and nothing is refused, also says what runs on the device (on
    each of a mesh): whole, or decomposed into which ops. Nothing runs on the host. Exit code 2 when an op is refused.
    """
    step = common.step_of(model, options)
    if step is None and not is_class(model):
        common.check_model(model, (".onnx", ".pt2"))
    axes = common.mesh_of(mesh)
    read = model_of(ctx, model, shapes, step)
    sizes, inputs = common.dims_of(dims), {} if is_class(model) else common.shapes_of(shapes)
    size: dict[str, Any] = {}
    if step is not None:
        from headrace.modules import refuse_beside_program

        refuse_beside_program(read.source, dims=sizes, input_shapes=shapes)
        rows, size = read.source.coverage, size_of(read.source)
    elif read.inputs is not None or model.endswith(".pt2"):
        from headrace.modules import plan_torch, refuse_beside_program

        refuse_beside_program(read.source, dims=sizes, input_shapes=inputs)
        rows = plan_torch(read.source, read.inputs, read.kwargs, sizes, inputs)
    else:
        from headrace.frontends.onnx import plan_onnx

        rows = plan_onnx(model, dims=sizes, input_shapes=inputs)
    refused = sum(row.count for row in rows if row.status == "refused")
    device_ops: dict[str, dict[str, int]] = {}
    note = ""
    if not refused:
        device_ops, note = on_device(read, device, sizes, inputs, axes)
    if as_json:
        common.print_json(
            {
                "model": model,
                "rows": [row.to_json() for row in rows],
                "totals": totals(rows),
                "device_ops": device_ops,
                "note": note,
                **({"size": size} if size else {}),
            }
        )
    else:
        if size:
            click.echo(size_text(size))
        click.echo(text(rows, device_ops, note))
    return 2 if refused else 0


def size_of(found: ModelImport) -> dict[str, Any]:
    """How large a language model is, and of how many layers it is made, as plain data."""
    from math import prod

    from headrace.dialects.support.dtypes import byte_size

    states = {past for past, _ in found.states}
    return {
        "model": found.name,
        "parameters": found.parameters,
        "weight_bytes": found.store.nbytes,
        "state_bytes": sum(prod(p.type.shape) * byte_size(p.type.dtype) for p in found.inputs if p.name in states),
        "layers": len(found.kinds),
        "distinct_layers": len(set(found.kinds)),
    }


def size_text(size: dict[str, Any]) -> str:
    """The size for people."""
    distinct = common.plural(size["distinct_layers"], "distinct one")
    lines = [
        f"{size['model']}: {size['parameters'] / 1e9:,.2f} B parameters, {size['weight_bytes'] / 1e9:,.1f} GB",
        f"  {common.plural(size['layers'], 'layer')}, {distinct}: the ops below are those of two layers of each",
    ]
    if size["state_bytes"]:
        lines.append(f"  {size['state_bytes'] / 1e9:,.2f} GB of caches")
    return "\n".join(lines)


def totals(rows: tuple[CoverageRow, ...]) -> dict[str, int]:
    """How many nodes by status."""
    found = {"supported": 0, "decomposed": 0, "refused": 0}
    for row in rows:
        found[row.status] += row.count
    return found


def on_device(
    model: Model,
    device: str | None,
    dims: dict[str, int],
    shapes: dict[str, tuple[int, ...]],
    mesh: dict[str, int] | None = None,
) -> tuple[dict[str, dict[str, int]], str]:
    """Ops after the tensor passes by name with their number (`whole`), and those that `decompose` replaced; or why
    that is not known."""
    from headrace.compiler import import_model, lower
    from headrace.dialects.support.diagnostics import CompileError

    try:
        module = import_model(model.source, **model.options, dims=dims, input_shapes=shapes, shape_only=True).module
    except CompileError as error:
        if any(one.code != "unbound-dim" for one in error.diagnostics):
            raise
        return {}, "dims are not bound, so shapes are not checked: " + "; ".join(
            f"{one.fix}" for one in error.diagnostics
        )
    from headrace.compiler import Clock
    from headrace.passes.infra.manager import Watch

    clock = Clock()
    lower(module, device, clock=clock, watch=Watch(measure=True), stop="tensor", mesh=mesh)
    decomposed: dict[str, int] = {}
    for record in clock.records:
        if record.spec.startswith("decompose"):
            for name, change in record.delta.items():
                if change < 0:
                    decomposed[name.removeprefix("tensor.")] = -change
    return {"whole": _counts(module), "decomposed": decomposed}, ""


def _counts(module: Any) -> dict[str, int]:
    """Ops of the program by name, an op of a function as often as the function is called."""
    from collections import Counter

    from xdsl.dialects.func import CallOp, FuncOp

    functions = {op.sym_name.data: op for op in module.body.block.ops if isinstance(op, FuncOp)}

    def count(func: FuncOp) -> Counter[str]:
        found: Counter[str] = Counter()
        for op in func.body.block.ops:
            if isinstance(op, CallOp):
                found += count(functions[op.callee.string_value()])
            elif op.name.startswith("tensor.") and op.name not in ("tensor.weight", "tensor.constant"):
                found[op.name.removeprefix("tensor.")] += 1
        return found

    return dict(count(functions["main"]).most_common()) if "main" in functions else {}


def text(rows: tuple[CoverageRow, ...], device_ops: dict[str, dict[str, int]], note: str) -> str:
    """The report for people."""
    lines = [rows_text(rows), ", ".join(f"{count} {status}" for status, count in totals(rows).items() if count)]
    for title, names in (("runs on the device as", "whole"), ("decomposed first", "decomposed")):
        if device_ops.get(names):
            lines.append(f"{title}: " + ", ".join(f"{name} {count}" for name, count in device_ops[names].items()))
    if device_ops:
        lines.append("runs on the host: nothing")
    if note:
        lines.append(note)
    return "\n".join(lines)


def rows_text(rows: tuple[CoverageRow, ...]) -> str:
    """A line per op and fate: a node or two by name, the reason, and the operand types of one node."""
    lines = [("op", "nodes", "status", "where", "reason, operands")]
    for row in rows:
        names = few(row.nodes, 2 if sum(map(len, row.nodes[:2])) <= NAMES else 1)
        about = [row.reason] if row.reason else []
        about += [few(row.shapes, 1)] if row.shapes else []
        lines.append((row.op_type, str(row.count), row.status, names, "; ".join(about)))
    return common.table(lines, 5)


NAMES = 40
"""Characters of node names that a line has room for."""


def few(items: Sequence[str], most: int) -> str:
    """The first ones, and how many more there are."""
    return ", ".join(items[:most]) + (f" +{len(items) - most}" if len(items) > most else "")
