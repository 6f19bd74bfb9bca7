"""A GPT-like model for the tests: equal layers with weights of their own, and a decode step with a static KV cache."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass
class Graph:
    """Collects nodes and initializers."""

    seed: int = 0
    nodes: list[onnx.NodeProto] = field(default_factory=list[onnx.NodeProto])
    weights: dict[str, Array] = field(default_factory=dict[str, Array])

    def __call__(self, op: str, *operands: str, name: str, **attributes: Any) -> str:
        """Add a node; the name of its result."""
        self.nodes.append(helper.make_node(op, operands, [f"{name}.out"], name=name, **attributes))
        return f"{name}.out"

    def constant(self, name: str, value: Any, dtype: Any = np.int64) -> str:
        """Add an initializer of small numbers, once."""
        self.weights.setdefault(name, np.array(value, dtype))
        return name

    def weight(self, name: str, *shape: int) -> str:
        """Add a random initializer."""
        generator = np.random.default_rng([self.seed, len(self.weights)])
        self.weights[name] = (generator.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)
        return name

    def model(self, inputs: dict[str, Any], outputs: dict[str, str]) -> onnx.ModelProto:
        """The model; `inputs` gives (dtype, shape) by name, `outputs` the value by name."""
        for name, value in outputs.items():
            self.nodes.append(helper.make_node("Identity", [value], [name], name=f"output/{name}"))
        graph = helper.make_graph(
            self.nodes,
            "gpt",
            [helper.make_tensor_value_info(name, dtype, shape) for name, (dtype, shape) in inputs.items()],
            [onnx.ValueInfoProto(name=name) for name in outputs],
            [numpy_helper.from_array(array, name) for name, array in self.weights.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def gpt(layers: int, tokens: int = 8, width: int = 16, heads: int = 2, seed: int = 0) -> onnx.ModelProto:
    """`layers` equal transformer layers over an input `x`."""
    g = Graph(seed)
    size = width // heads
    x = "x"
    for i in range(layers):
        at = f"h.{i}"

        def linear(value: str, name: str, rows: int, columns: int, at: str = at) -> str:
            product = g("MatMul", value, g.weight(f"{at}.{name}.weight", rows, columns), name=f"{at}/{name}/MatMul")
            return g("Add", product, g.weight(f"{at}.{name}.bias", columns), name=f"{at}/{name}/Add")

        def norm(value: str, name: str, at: str = at) -> str:
            scale, bias = g.weight(f"{at}.{name}.weight", width), g.weight(f"{at}.{name}.bias", width)
            return g("LayerNormalization", value, scale, bias, name=f"{at}/{name}", axis=-1)

        def split(value: str, name: str, order: list[int], at: str = at) -> str:
            shape = g.constant("split", [tokens, heads, size])
            return g("Transpose", g("Reshape", value, shape, name=f"{at}/{name}/r"), name=f"{at}/{name}/t", perm=order)

        normed = norm(x, "ln_1")
        q = split(linear(normed, "q", width, width), "q", [1, 0, 2])
        k = split(linear(normed, "k", width, width), "k", [1, 2, 0])
        v = split(linear(normed, "v", width, width), "v", [1, 0, 2])
        scores = g(
            "Mul", g("MatMul", q, k, name=f"{at}/qk"), g.constant("scale", size**-0.5, np.float32), name=f"{at}/s"
        )
        context = g("MatMul", g("Softmax", scores, name=f"{at}/softmax", axis=-1), v, name=f"{at}/av")
        merged = g("Transpose", context, name=f"{at}/merge", perm=[1, 0, 2])
        joined = g("Reshape", merged, g.constant("joined", [tokens, width]), name=f"{at}/join")
        x = g("Add", x, linear(joined, "proj", width, width), name=f"{at}/residual_1")
        hidden = g("Relu", linear(norm(x, "ln_2"), "fc", width, 4 * width), name=f"{at}/relu")
        x = g("Add", x, linear(hidden, "out", 4 * width, width), name=f"{at}/residual_2")
    return g.model({"x": (TensorProto.FLOAT, [tokens, width])}, {"y": x})


@dataclass(frozen=True)
class Decoder:
    """One attention layer that decodes token by token. The caches of keys and values are [heads, room, size]; a step
    writes its rows at `position` and attends over the rows up to it. `scatter` names the op that writes."""

    room: int = 16
    width: int = 16
    heads: int = 1
    scatter: str = "ScatterND"
    seed: int = 0

    @property
    def size(self) -> int:
        """Numbers per head."""
        return self.width // self.heads

    def weights(self) -> dict[str, Array]:
        """The projections."""
        generator = np.random.default_rng(self.seed)
        shape = (self.width, self.width)
        return {
            name: (generator.standard_normal(shape) / np.sqrt(self.width)).astype(np.float32)
            for name in ("q", "k", "v", "o")
        }

    def split(self, rows: Array) -> Array:
        """[tokens, width] by heads: [heads, tokens, size]."""
        return rows.reshape(len(rows), self.heads, self.size).transpose(1, 0, 2)

    def model(self) -> onnx.ModelProto:
        """Inputs `x` [1, width], `position` [1] and the pasts; outputs `y` and the presents."""
        g = Graph()
        g.weights.update(self.weights())
        by_head = g.constant("by_head", [self.heads, 1, self.size])
        rows = {
            name: g("Reshape", g("MatMul", "x", name, name=f"attn/{name}"), by_head, name=f"attn/{name}/split")
            for name in ("q", "k", "v")
        }
        key, value = (self._write(g, f"past_{name}", rows[name[0]], name) for name in ("key", "value"))
        scores = g("MatMul", rows["q"], g("Transpose", key, name="attn/kT", perm=[0, 2, 1]), name="attn/qk")
        scaled = g("Mul", scores, g.constant("scale", self.size**-0.5, np.float32), name="attn/scale")
        later = g("Greater", g.constant("rows", np.arange(self.room)[None]), "position", name="attn/later")
        masked = g("Where", later, g.constant("low", -1e9, np.float32), scaled, name="attn/mask")
        context = g("MatMul", g("Softmax", masked, name="attn/softmax", axis=-1), value, name="attn/av")
        joined = g("Reshape", context, g.constant("joined", [1, self.width]), name="attn/join")
        y = g("MatMul", joined, "o", name="attn/o")
        cache = (TensorProto.FLOAT, [self.heads, self.room, self.size])
        inputs = {"x": (TensorProto.FLOAT, [1, self.width]), "position": (TensorProto.INT64, [1])}
        return g.model(
            {**inputs, "past_key": cache, "past_value": cache}, {"y": y, "present_key": key, "present_value": value}
        )

    def _write(self, g: Graph, past: str, rows: str, name: str) -> str:
        """The cache with the rows written at the position."""
        at = g("Reshape", "position", g.constant("one", [1, 1, 1]), name=f"attn/{name}/at")
        if self.scatter == "ScatterElements":
            wide = g("Expand", at, g.constant("by_head", []), name=f"attn/{name}/wide")
            return g("ScatterElements", past, wide, rows, name=f"attn/{name}/write", axis=1)
        places = g("Expand", at, g.constant("heads_one", [self.heads, 1, 1]), name=f"attn/{name}/places")
        heads = g.constant("heads", np.arange(self.heads).reshape(-1, 1, 1))
        where = g("Concat", heads, places, name=f"attn/{name}/where", axis=-1)
        return g("ScatterND", past, where, rows, name=f"attn/{name}/write")

    def recomputed(self, xs: Array) -> Array:
        """The last step's `y`, from all tokens at once, in double precision."""
        w = {name: array.astype(np.float64) for name, array in self.weights().items()}
        x = xs.astype(np.float64)
        q, k, v = self.split(x[-1:] @ w["q"]), self.split(x @ w["k"]), self.split(x @ w["v"])
        scores = q @ k.transpose(0, 2, 1) * self.size**-0.5
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        return (weights @ v).transpose(1, 0, 2).reshape(1, self.width) @ w["o"]
