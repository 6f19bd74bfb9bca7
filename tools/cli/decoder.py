"""`headrace decoder`: a decoder-only transformer from a configuration, as IR."""

from __future__ import annotations

import io
import json
from math import prod
from pathlib import Path
from typing import Any, cast

import click

from headrace.tools.cli import common


@click.command("decoder")
@click.argument("config")
@click.option("-o", "--output", metavar="FILE", help="The IR. [default: NAME-MODE.mlir]")
@click.option("--mode", type=click.Choice(["prefill", "decode"]), default="prefill", help="Which step. [prefill]")
@click.option("--batch", type=int, default=1, metavar="N", help="Sequences. [1]")
@click.option("--tokens", type=int, default=16, metavar="N", help="Tokens of a sequence in prefill. [16]")
@click.option("--context", type=int, default=16, metavar="N", help="Rows of the caches in decode. [16]")
@click.option("--dtype", default="f32", metavar="TYPE", help="Element type of weights and values. [f32]")
@click.option("--logits", type=click.Choice(["last", "all"]), default="last", help="Of which tokens. [last]")
@click.option("--dispatch", type=click.Choice(["dense", "indexed"]), help="How tokens get to experts. [by mode]")
@common.json_option
def command(
    config: str,
    output: str | None,
    mode: Any,
    batch: int,
    tokens: int,
    context: int,
    dtype: str,
    logits: Any,
    dispatch: Any,
    as_json: bool,
) -> None:
    """Write one step of the decoder CONFIG as IR: a preset (tiny, tiny-moe, llama-2-7b, llama-3.1-8b) or the
    config.json of a Hugging Face model.

    The IR names its weights and has no bytes: compile it with --shape-only or with --weights random:0.
    """
    from xdsl.printer import Printer

    from headrace.compiler import check_writable
    from headrace.dialects.support.files import write_text
    from headrace.frontends.decoder import build_decoder

    found = build_decoder(
        _config(config),
        mode,
        batch=batch,
        tokens=tokens,
        context=context,
        dtype=dtype,
        logits=logits,
        dispatch=dispatch,
    )
    target = output or f"{found.name}.mlir"
    check_writable(target)
    out = io.StringIO()
    Printer(out).print_op(found.module)
    write_text(target, f"{out.getvalue()}\n")
    parameters = sum(prod(found.store[key].shape) for key in found.store)
    summary: dict[str, Any] = {
        "ir": target,
        "model": found.name,
        "parameters": parameters,
        "weight_bytes": found.store.nbytes,
        "inputs": [{"name": p.name, "shape": list(p.type.shape), "dtype": p.type.dtype} for p in found.inputs],
        "outputs": [{"name": p.name, "shape": list(p.type.shape), "dtype": p.type.dtype} for p in found.outputs],
        "states": [list(pair) for pair in found.states],
    }
    if as_json:
        common.print_json(summary)
    else:
        size = f"{parameters / 1e6:,.1f} M parameters, {found.store.nbytes / 1e9:.2f} GB of {dtype}"
        click.echo(f"{target}: {found.name}, {size}; {common.plural(len(found.states), 'state')}")
        click.echo(f"  next: headrace compile {target} --shape-only, or with --weights random:0")


def _config(text: str) -> Any:
    """The configuration of a preset or a file."""
    from headrace.dialects.support.diagnostics import CompileError
    from headrace.frontends.decoder import DecoderConfig, preset

    path = Path(text)
    if path.suffix != ".json":
        return preset(text)
    try:
        given = json.loads(path.read_bytes())
    except OSError as error:
        raise CompileError("no-such-file", f"cannot read '{path}': {error.strerror}") from None
    except ValueError as error:
        raise CompileError("bad-config", f"{path}: not JSON: {error}") from None
    if not isinstance(given, dict):
        raise CompileError("bad-config", f"{path}: a configuration is a JSON object")
    return DecoderConfig.from_json(
        cast("dict[str, Any]", given), path.parent.name if path.stem == "config" else path.stem
    )
