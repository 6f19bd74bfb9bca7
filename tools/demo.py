"""The model of the demo: a self-attention block as exporters write it, its inputs, and its meaning in NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[np.float32]]


@dataclass(frozen=True)
class Attention:
    """Self-attention over `tokens` vectors of `width` numbers, with `heads` heads; weights and inputs from `seed`."""

    tokens: int = 128
    width: int = 256
    heads: int = 4
    seed: int = 0

    def weights(self) -> dict[str, Array]:
        """Weight and bias of the query, key, value and output projections."""
        import numpy as np

        generator = np.random.default_rng(self.seed)
        found: dict[str, Array] = {}
        for name in ("query", "key", "value", "output"):
            matrix = generator.standard_normal((self.width, self.width)) / np.sqrt(self.width)
            found[f"{name}.weight"] = matrix.astype(np.float32)
            found[f"{name}.bias"] = generator.standard_normal(self.width).astype(np.float32) * np.float32(0.1)
        return found

    def inputs(self) -> dict[str, Array]:
        """The input `x`."""
        import numpy as np

        generator = np.random.default_rng(self.seed + 1)
        return {"x": generator.standard_normal((self.tokens, self.width)).astype(np.float32)}

    def model(self) -> Any:
        """The model, an `onnx.ModelProto`."""
        import numpy as np
        from onnx import TensorProto, helper, numpy_helper

        size = self.width // self.heads
        constants: dict[str, Any] = {
            **self.weights(),
            "split": np.array([self.tokens, self.heads, size], np.int64),
            "joined": np.array([self.tokens, self.width], np.int64),
            "scale": np.array(size**-0.5, np.float32),
        }
        nodes: list[Any] = []

        def node(op: str, operands: list[str], result: str, name: str, **attributes: Any) -> str:
            nodes.append(helper.make_node(op, operands, [result], name=f"attention/{name}", **attributes))
            return result

        def projection(x: str, name: str, result: str) -> str:
            product = node("MatMul", [x, f"{name}.weight"], f"{name}.product", f"{name}/MatMul")
            return node("Add", [product, f"{name}.bias"], result, f"{name}/Add")

        def heads_of(name: str, order: list[int]) -> str:
            projected = projection("x", name, f"{name}.projected")
            split = node("Reshape", [projected, "split"], f"{name}.split", f"{name}/Reshape")
            return node("Transpose", [split], f"{name}.heads", f"{name}/Transpose", perm=order)

        query, key, value = (
            heads_of(n, o) for n, o in (("query", [1, 0, 2]), ("key", [1, 2, 0]), ("value", [1, 0, 2]))
        )
        scores = node("MatMul", [query, key], "scores", "scores/MatMul")
        scaled = node("Mul", [scores, "scale"], "scaled", "scores/Mul")
        weights = node("Softmax", [scaled], "attention", "Softmax", axis=-1)
        context = node("MatMul", [weights, value], "context", "context/MatMul")
        merged = node("Transpose", [context], "merged", "context/Transpose", perm=[1, 0, 2])
        joined = node("Reshape", [merged, "joined"], "joined_heads", "context/Reshape")
        projection(joined, "output", "y")
        shape = [self.tokens, self.width]
        graph = helper.make_graph(
            nodes,
            "attention",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
            [numpy_helper.from_array(array, name) for name, array in constants.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)

    def reference(self, x: Array) -> Array:
        """What the model means, in double precision."""
        import numpy as np

        w = {name: array.astype(np.float64) for name, array in self.weights().items()}
        size = self.width // self.heads

        def heads_of(name: str) -> Any:
            projected = x.astype(np.float64) @ w[f"{name}.weight"] + w[f"{name}.bias"]
            return projected.reshape(self.tokens, self.heads, size).transpose(1, 0, 2)

        query, key, value = map(heads_of, ("query", "key", "value"))
        scores = query @ key.transpose(0, 2, 1) * size**-0.5
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        context = (weights @ value).transpose(1, 0, 2).reshape(self.tokens, self.width)
        return (context @ w["output.weight"] + w["output.bias"]).astype(np.float32)
