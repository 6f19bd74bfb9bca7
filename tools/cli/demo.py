"""`headrace demo`: the whole way on a small attention model that needs no file."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import click

from headrace.tools.cli import common


@click.command("demo")
@common.device_option()
@click.option("--tokens", default=128, show_default=True, type=click.IntRange(1, 4096))
@click.option("--width", default=256, show_default=True, type=click.IntRange(1, 4096))
@click.option("--heads", default=4, show_default=True, type=click.IntRange(1, 64))
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0))
@click.option("-o", "--output", metavar="FILE", help="Keep the artifact.")
@click.option("--model", metavar="FILE", help="Write the model as ONNX, and stop.")
@click.option("--inputs", metavar="FILE", help="Write inputs for it as .npz, and stop.")
@common.json_option
def command(
    device: str | None,
    tokens: int,
    width: int,
    heads: int,
    seed: int,
    output: str | None,
    model: str | None,
    inputs: str | None,
    as_json: bool,
) -> int:
    """Compile a self-attention block, place and route it, run it from its artifact, compare it with NumPy, profile it.

    Exit code 1 when the results deviate.
    """
    from headrace.compiler import check_writable
    from headrace.tools.demo import Attention

    if width % heads:
        raise click.UsageError(f"--width {width} is not a multiple of --heads {heads}")
    if model is not None or inputs is not None:
        return written(Attention(tokens, width, heads, seed), model, inputs)
    if output is not None:
        check_writable(output)
        return demonstrate(Attention(tokens, width, heads, seed), device, Path(output), as_json)
    with tempfile.TemporaryDirectory() as folder:
        return demonstrate(Attention(tokens, width, heads, seed), device, Path(folder) / "attention.sn", as_json)


def written(attention: Any, model: str | None, inputs: str | None) -> int:
    """Write the model and its inputs where they are asked for; the exit code."""
    from headrace.compiler import check_writable

    for path in filter(None, (model, inputs)):
        check_writable(path)
    if model is not None:
        Path(model).write_bytes(attention.model().SerializeToString())
    if inputs is not None:
        import numpy as np

        np.savez(inputs, **attention.inputs())
    return 0


def demonstrate(attention: Any, device: str | None, artifact: Path, as_json: bool) -> int:
    """Run the demo with its artifact in a file; the exit code."""
    from headrace.compiler import translate
    from headrace.runtime.session import load
    from headrace.tools.cli.compile import summary
    from headrace.tools.execution.deviation import deviation

    def say(text: str) -> None:
        if not as_json:
            click.echo(text)

    model = attention.model()
    nodes, weights = len(model.graph.node), sum(array.nbytes for array in attention.weights().values())
    say(
        f"model     self-attention, {attention.tokens} tokens of {attention.width}, {attention.heads} heads; "
        f"{nodes} ONNX nodes, {weights / 1e6:.1f} MB of weights"
    )
    start = time.perf_counter()
    with common.progress(as_json) as show:
        done = translate(model, device, progress=show)
        done.write(artifact)
    compiled = summary(done, str(artifact), time.perf_counter() - start)
    units = ", ".join(f"{count} {kind.upper()}" for kind, count in compiled["units"].items())
    size = f"{common.plural(compiled['configs'], 'configuration')}, {common.plural(compiled['launches'], 'launch')}"
    say(f"compile   for {compiled['device']}, placed and routed: {size}; {units}; {compiled['seconds']:.2f} s")
    exe = load(artifact)
    inputs = attention.inputs()
    exe(inputs)
    start = time.perf_counter()
    results = exe(inputs)
    say(
        f"run       from the artifact ({compiled['bytes'] / 1e6:.1f} MB): "
        f"{(time.perf_counter() - start) * 1e3:.1f} ms on this machine"
    )
    error = deviation(results["y"], attention.reference(inputs["x"]))
    say(
        f"compare   with NumPy in double precision: largest error {error.absolute:.1e}, "
        f"{error.relative:.1e} of the largest value: {'ok' if error.ok else 'DEVIATES'}"
    )
    if as_json:
        common.print_json({"compile": compiled, "compare": error.to_json(), "profile": exe.profile().to_json()})
    else:
        say("")
        say(exe.profile().text())
    return 0 if error.ok else 1
