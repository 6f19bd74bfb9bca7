"""How compile time grows with the depth of a model: decode steps of a GPT-2-like model with 2, 12 and 48 equal layers.

Whole processes of `headrace compile` run in turn, CPU seconds. Each layer has weights of its own, which must be read,
hashed and written: the CPU time of that alone is measured beside and left out of the ratios.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from headrace.tools.bench.compiling import CommandFailed, cpu_seconds

LAYERS = (2, 12, 48)
WIDTH, HEADS, VOCABULARY, PAST = 192, 12, 1000, 64


@dataclass
class Graph:
    """Collects nodes and weights as an exporter writes them: constants are nodes, names count up."""

    nodes: list[Any] = field(default_factory=list[Any])
    weights: dict[str, Any] = field(default_factory=dict[str, Any])

    def __call__(self, op: str, *operands: str, **attributes: Any) -> str:
        """Add a node; the name of its result."""
        from onnx import helper

        name = f"/{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, operands, [f"{name}_output_0"], name=name, **attributes))
        return f"{name}_output_0"

    def constant(self, value: Any, dtype: str = "int64") -> str:
        """Add a constant."""
        import numpy as np
        from onnx import numpy_helper

        return self("Constant", value=numpy_helper.from_array(np.array(value, dtype)))

    def weight(self, name: str, *shape: int) -> str:
        """Add a random weight."""
        import numpy as np

        generator = np.random.default_rng(len(self.weights))
        self.weights[name] = generator.standard_normal(shape, np.float32) * np.float32(0.02)
        return name


def decode_step(layers: int) -> Any:
    """The model: one token on a cache of `PAST` tokens, which comes and goes as one tensor for all layers."""
    from onnx import TensorProto, helper, numpy_helper

    g = Graph()
    size = WIDTH // HEADS
    ids = g("Reshape", "ids", g.constant([-1]))
    x = g("Add", g("Gather", g.weight("wte", VOCABULARY, WIDTH), ids), g.weight("wpe", WIDTH))
    numbers = [g.constant(i) for i in range(max(layers, 3))]
    keys: list[str] = []
    values: list[str] = []

    def linear(value: str, at: str, name: str, rows: int, columns: int) -> str:
        return g("Gemm", value, g.weight(f"{at}_w{name}", rows, columns), g.weight(f"{at}_b{name}", columns))

    for layer in range(layers):
        at = f"{layer}"
        normed = g("LayerNormalization", x, g.weight(f"{at}_g1", WIDTH), g.weight(f"{at}_h1", WIDTH), axis=-1)
        parts = g("Reshape", linear(normed, at, "qkv", WIDTH, 3 * WIDTH), g.constant([1, 3, HEADS, size]))
        q, k, v = (g("Unsqueeze", g("Gather", parts, numbers[i], axis=1), g.constant([2])) for i in range(3))
        past = g("Transpose", g("Gather", "pk", numbers[layer]), perm=[0, 1, 3, 2])
        scores = [g("MatMul", q, past), g("MatMul", q, g("Transpose", k, perm=[0, 1, 3, 2]))]
        scaled = g("Mul", g("Concat", *scores, axis=-1), g.constant(size**-0.5, "float32"))
        weights = g("Softmax", scaled, axis=-1)
        old, new = (
            g("Slice", weights, g.constant([low]), g.constant([high]), g.constant([3]), g.constant([1]))
            for low, high in ((0, PAST), (PAST, 2**63 - 1))
        )
        context = g("Add", g("MatMul", old, g("Gather", "pv", numbers[layer])), g("Mul", new, v))
        x = g("Add", x, linear(g("Reshape", context, g.constant([1, WIDTH])), at, "o", WIDTH, WIDTH))
        normed = g("LayerNormalization", x, g.weight(f"{at}_g2", WIDTH), g.weight(f"{at}_h2", WIDTH), axis=-1)
        x = g("Add", x, linear(_gelu(g, linear(normed, at, "1", WIDTH, 4 * WIDTH)), at, "2", 4 * WIDTH, WIDTH))
        keys.append(g("Unsqueeze", k, g.constant([0])))
        values.append(g("Unsqueeze", v, g.constant([0])))
    outputs = {
        "logits": g("MatMul", x, g.weight("head", WIDTH, VOCABULARY)),
        "nk": g("Concat", *keys, axis=0),
        "nv": g("Concat", *values, axis=0),
    }
    cache = [layers, 1, HEADS, PAST, size]
    inputs = {"ids": (TensorProto.INT64, [1, 1]), "pk": (TensorProto.FLOAT, cache), "pv": (TensorProto.FLOAT, cache)}
    for name, value in outputs.items():
        g.nodes.append(helper.make_node("Identity", [value], [name], name=f"/{name}"))
    graph = helper.make_graph(
        g.nodes,
        f"layers{layers}",
        [helper.make_tensor_value_info(name, dtype, shape) for name, (dtype, shape) in inputs.items()],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in g.weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _gelu(g: Graph, x: str) -> str:
    """gelu by tanh, written out."""
    cube = g("Mul", x, g("Mul", x, x))
    inner = g("Add", x, g("Mul", g.constant(0.044715, "float32"), cube))
    curve = g("Tanh", g("Mul", g.constant(0.7978846, "float32"), inner))
    return g("Mul", g.constant(0.5, "float32"), g("Mul", x, g("Add", g.constant(1, "float32"), curve)))


def weight_seconds(path: Path, folder: Path) -> float:
    """CPU seconds of reading, hashing and writing as many bytes as a model file has: nearly all are weights."""
    start = time.process_time()
    with path.open("rb") as source, (folder / "copy").open("wb") as target:
        while chunk := source.read(1 << 20):
            target.write(chunk)
            hashlib.sha256(chunk).digest()
    return time.process_time() - start


@dataclass(frozen=True)
class Row:
    """One model: nodes, megabytes, CPU seconds (medians) of compiling and of its weights alone, and how often the
    compile time net of weights is that of the first model."""

    layers: int
    nodes: int
    megabytes: float
    seconds: float
    weights: float
    ratio: float


def measure(layers: Sequence[int], device: str, rounds: int) -> list[Row]:
    """Compile models of these depths in turn, `rounds` times each."""
    taken: dict[int, list[float]] = {n: [] for n in layers}
    weights: dict[int, list[float]] = {n: [] for n in layers}
    sizes: dict[int, tuple[int, float]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for n in layers:
            model = decode_step(n)
            path = folder / f"layers{n}.onnx"
            path.write_bytes(model.SerializeToString())
            sizes[n] = len(model.graph.node), path.stat().st_size / 1e6
        for _ in range(rounds):
            for n in layers:
                path = folder / f"layers{n}.onnx"
                command = [sys.executable, "-m", "headrace.tools.headrace", "compile", str(path)]
                taken[n].append(cpu_seconds([*command, "-o", str(folder / "out.sn"), "--device", device], 1))
                weights[n].append(weight_seconds(path, folder))
    net = {n: median(taken[n]) - median(weights[n]) for n in layers}
    first = net[layers[0]]
    return [Row(n, *sizes[n], median(taken[n]), median(weights[n]), net[n] / first) for n in layers]


def add_command(commands: Any) -> None:
    """Register `depth`."""
    parser = commands.add_parser("depth", help="growth of compile time with the number of equal layers, CPU time")
    parser.add_argument("--layers", default=",".join(map(str, LAYERS)), help="comma-separated depths")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="sn40l")
    parser.add_argument("--gate", type=float, default=None, help="fail when the last ratio is above this")
    parser.add_argument("--json", type=Path, default=None, help="write the figures to this file")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Measure every depth and print a row each."""
    try:
        rows = measure([int(n) for n in options.layers.split(",")], options.device, options.rounds)
    except CommandFailed as failure:
        print(f"bench: {failure}", file=sys.stderr)
        return 1
    print(f"{'layers':>6} {'nodes':>6} {'MB':>7} {'CPU s':>7} {'weights':>8} {'net ratio':>10}")
    for row in rows:
        print(
            f"{row.layers:6} {row.nodes:6} {row.megabytes:7.1f} {row.seconds:7.2f} {row.weights:8.2f} {row.ratio:10.2f}"
        )
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    return 1 if options.gate is not None and rows[-1].ratio > options.gate else 0
