"""The eight workloads: ONNX models as torch's exporter writes them, inputs, and references in plain NumPy.

    small("attn")    small sizes and seeds of its own; needs nothing but this file
    full("attn")     the real sizes, with weights and inputs from ../shared/workloads/workloads.py

Nodes, their names and their order are those of `torch.onnx.export(..., opset_version=17, dynamo=False)`; references
follow the torch code in double precision.
"""

from __future__ import annotations

import math
import runpy
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

Array = np.ndarray[Any, np.dtype[Any]]
Params = Mapping[str, Array]

NAMES = ("mlp_b1", "mlp_b256", "attn", "bert", "llama", "cnn", "gpt2_b1", "gpt2_b8")
SOURCE = Path(__file__).resolve().parents[2] / "shared" / "workloads" / "workloads.py"
"""Where the weights and inputs of the real sizes come from."""
END = np.iinfo(np.int64).max


class Missing(Exception):
    """The folder with the real workloads is not there."""


@dataclass(frozen=True)
class Workload:
    """A model with weights and inputs. `heads` is its number of attention heads."""

    name: str
    params: Params
    inputs: Mapping[str, Array]
    heads: int = 1

    @property
    def family(self) -> str:
        """The name without the batch size."""
        return self.name.split("_")[0]

    def model(self) -> onnx.ModelProto:
        """The model; it names its outputs by the numbers that torch gave them."""
        return _EXPORTS[self.family](_Trace(self))

    @cached_property
    def reference(self) -> tuple[Array, ...]:
        """The expected outputs, in order, computed in double precision."""
        found = _REFERENCES[self.family](self)
        return found if isinstance(found, tuple) else (found,)

    def errors(self, found: Iterable[Array]) -> list[float]:
        """The largest error of each output over the largest magnitude of its reference."""
        return [error(one, reference) for one, reference in zip(found, self.reference, strict=True)]


def error(found: Array, reference: Array) -> float:
    """The largest error over the largest magnitude of the reference; NaN counts as infinite."""
    assert found.shape == reference.shape, (found.shape, reference.shape)
    distance = np.nan_to_num(np.abs(found.astype(np.float64) - reference), nan=np.inf)
    return float(distance.max() / np.abs(reference).max())


def full(name: str) -> Workload:
    """A workload in its real size; `Missing` when their folder is not there."""
    if not SOURCE.exists():
        raise Missing(f"the real workloads are not there: no {SOURCE.name} in {'/'.join(SOURCE.parts[-3:-1])}")
    real = runpy.run_path(str(SOURCE))
    params: dict[str, Array] = real["params"](name)
    if name == "llama":
        params["mask"] = np.triu(np.full((128, 128), -1e9, np.float32), 1)
    names = real["input_names"](name)
    return Workload(name, params, dict(zip(names, real["inputs"](name), strict=True)), 16 if name == "llama" else 12)


def small(name: str, layers: int = 2, seed: int = 0) -> Workload:
    """A workload of the same structure that compiles in no time. `layers` counts the layers of a gpt2."""
    rng = np.random.default_rng([seed, NAMES.index(name)])
    return _SMALL[name.split("_")[0]](name, _Random(rng), layers)


# Small sizes


@dataclass(frozen=True)
class _Random:
    rng: np.random.Generator

    def __call__(self, *shape: int, scale: float = 1.0) -> Array:
        return (self.rng.standard_normal(shape) * scale).astype(np.float32)

    def linear(self, *sizes: tuple[str, int, int], bias: bool = True) -> dict[str, Array]:
        """Weights w<name> of rows by columns that keep magnitudes, and biases b<name>."""
        found: dict[str, Array] = {}
        for name, rows, columns in sizes:
            found[f"w{name}"] = self(rows, columns, scale=rows**-0.5)
            if bias:
                found[f"b{name}"] = self(columns, scale=0.1)
        return found

    def norm(self, width: int, *names: str) -> dict[str, Array]:
        """Scales near 1 for names that begin with g or n, shifts for others."""
        return {name: self(width, scale=0.1) + np.float32(name[0] in "gn") for name in names}


def _small_mlp(name: str, random: _Random, _: int) -> Workload:
    batch = 1 if name == "mlp_b1" else 16
    params = random.linear(("0", 48, 32), ("1", 32, 24), ("2", 24, 10))
    return Workload(name, params, {"x": random(batch, 48)})


def _small_attn(name: str, random: _Random, _: int) -> Workload:
    return Workload(name, random.linear(("qkv", 16, 48), ("o", 16, 16)), {"x": random(1, 16, 16)}, 2)


def _small_bert(name: str, random: _Random, _: int) -> Workload:
    params = random.linear(("qkv", 16, 48), ("o", 16, 16), ("1", 16, 64), ("2", 64, 16))
    return Workload(name, params | random.norm(16, "g1", "h1", "g2", "h2"), {"x": random(2, 8, 16)}, 2)


def _small_llama(name: str, random: _Random, _: int) -> Workload:
    width, tokens, heads, inner = 32, 8, 4, 48
    params = random.linear(
        *((one, width, width) for one in "qkvo"), ("g", width, inner), ("u", width, inner), ("d", inner, width),
        bias=False,
    )  # fmt: skip
    size = width // heads
    angles = np.arange(tokens)[:, None] / 10000 ** (np.arange(0, size, 2) / size)
    angles = np.concatenate([angles, angles], -1)
    params |= random.norm(width, "n1", "n2")
    params |= {"cos": np.cos(angles).astype(np.float32), "sin": np.sin(angles).astype(np.float32)}
    params["mask"] = np.triu(np.full((tokens, tokens), -1e9, np.float32), 1)
    return Workload(name, params, {"x": random(1, tokens, width)}, heads)


def _small_cnn(name: str, random: _Random, _: int) -> Workload:
    params: dict[str, Array] = {}

    def conv(key: str, out: int, channels: int, size: int) -> None:
        params[f"{key}w"] = random(out, channels, size, size, scale=(2 / (channels * size * size)) ** 0.5 * 0.7)
        params[f"{key}b"] = random(out, scale=0.1)

    conv("stem", 4, 3, 7)
    for i, (channels, out, stride) in enumerate([(4, 4, 1), (4, 8, 2), (8, 8, 1)]):
        conv(f"l{i}a", out, channels, 3)
        conv(f"l{i}b", out, out, 3)
        if stride == 2:
            conv(f"l{i}d", out, channels, 1)
    params |= {"fcw": random(8, 10, scale=8**-0.5), "fcb": random(10, scale=0.1)}
    return Workload(name, params, {"x": random(1, 3, 32, 32)})


def _small_gpt2(name: str, random: _Random, layers: int) -> Workload:
    width, heads, past, words, batch = 16, 2, 8, 40, 1 if name == "gpt2_b1" else 3
    params = {"wte": random(words, width), "wpe": random(past + 4, width)}
    for i in range(layers):
        layer = random.linear(("qkv", width, 3 * width), ("o", width, width), ("1", width, 64), ("2", 64, width))
        layer |= random.norm(width, "g1", "h1", "g2", "h2")
        params |= {f"{i}.{key}": value for key, value in layer.items()}
    params |= random.norm(width, "gf", "hf")
    cache = (layers, batch, heads, past, width // heads)
    ids = random.rng.integers(0, words, (batch, 1)).astype(np.int64)
    return Workload(name, params, {"ids": ids, "pk": random(*cache), "pv": random(*cache)}, heads)


_SMALL: dict[str, Callable[[str, _Random, int], Workload]] = {
    "mlp": _small_mlp,
    "attn": _small_attn,
    "bert": _small_bert,
    "llama": _small_llama,
    "cnn": _small_cnn,
    "gpt2": _small_gpt2,
}


# Models


class _Trace:
    """Collects nodes under the names that torch's exporter gives: /Add, /Add_1, … and /Add_output_0, …"""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.shape = {name: array.shape for name, array in workload.inputs.items()}
        self.weights: dict[str, Array] = {key.replace(".", "_"): value for key, value in workload.params.items()}
        self.nodes: list[onnx.NodeProto] = []
        self._counts: Counter[str] = Counter()

    def __call__(self, op: str, *operands: str, result: str = "", **attributes: Any) -> str:
        """Add a node; the name of its result."""
        number = self._counts[op]
        self._counts[op] += 1
        name = f"/{op}_{number}" if number else f"/{op}"
        result = result or f"{name}_output_0"
        self.nodes.append(helper.make_node(op, operands, [result], name, **attributes))
        return result

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        """Add a node with a small number or a list of them."""
        return self("Constant", value=numpy_helper.from_array(np.array(value, dtype)))

    def number(self, value: float) -> str:
        """Add a node with a float."""
        return self.constant(value, np.float32)

    def reshape(self, value: str, shape: str) -> str:
        """Reshape to the sizes that `shape` names."""
        return self("Reshape", value, shape, allowzero=0)

    def transpose(self, value: str, *perm: int) -> str:
        """Reorder dims."""
        return self("Transpose", value, perm=perm)

    def slice(self, value: str, start: int, stop: int) -> str:
        """A part of the last of four dims."""
        axes, start_, stop_, step = (self.constant([one]) for one in (3, start, stop, 1))
        return self("Slice", value, start_, stop_, axes, step)

    def linear(self, value: str, weight: str, bias: str = "", result: str = "") -> str:
        """A matrix product, and a bias if one is named."""
        if not bias:
            return self("MatMul", value, weight, result=result)
        return self("Add", self("MatMul", value, weight), bias, result=result)

    def gemm(self, value: str, weight: str, bias: str) -> str:
        """A matrix product with its bias in one node."""
        return self("Gemm", value, weight, bias, alpha=1.0, beta=1.0)

    def layer_norm(self, value: str, scale: str, shift: str, result: str = "") -> str:
        """Layer norm over the last dim."""
        return self("LayerNormalization", value, scale, shift, result=result, axis=-1, epsilon=1e-5)

    def gelu(self, x: str) -> str:
        """The exact gelu, in primitives."""
        erf = self("Erf", self("Div", x, self.number(2**0.5)))
        return self("Mul", self("Mul", x, self("Add", erf, self.number(1))), self.number(0.5))

    def gelu_tanh(self, x: str) -> str:
        """The gelu with tanh, in primitives."""
        cube = self("Mul", x, self("Mul", x, x))
        inner = self("Add", x, self("Mul", self.number(0.044714998453855515), cube))
        tanh = self("Tanh", self("Mul", self.number(0.7978845834732056), inner))
        product = self("Mul", x, self("Add", self.number(1), tanh))
        return self("Mul", self.number(0.5), product)

    def model(self, **outputs: tuple[int, ...]) -> onnx.ModelProto:
        """The model; `outputs` gives the shape by name, after a letter that makes the number a Python name."""
        graph = helper.make_graph(
            self.nodes,
            "main_graph",
            [
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
                for name, array in self.workload.inputs.items()
            ],
            [helper.make_tensor_value_info(name[1:], onnx.TensorProto.FLOAT, s) for name, s in outputs.items()],
            [numpy_helper.from_array(array, name) for name, array in self.weights.items()],
        )
        opset = [helper.make_opsetid("", 17)]
        return helper.make_model(graph, opset_imports=opset, ir_version=8, producer_name="pytorch")


def _export_mlp(t: _Trace) -> onnx.ModelProto:
    x = t.gelu(t.gemm("x", "w0", "b0"))
    x = t.gelu(t.gemm(x, "w1", "b1"))
    t("Softmax", t.gemm(x, "w2", "b2"), result="26", axis=-1)
    return t.model(y26=(t.shape["x"][0], t.workload.params["b2"].size))


def _attention(t: _Trace, result: str = "") -> str:
    batch, tokens, width = t.shape["x"]
    heads = t.workload.heads
    which = [t.constant(i) for i in range(3)]
    qkv = t.linear("x", "wqkv", "bqkv")
    qkv = t.reshape(qkv, t.constant([batch, tokens, 3, heads, width // heads]))
    qkv = t.transpose(qkv, 2, 0, 3, 1, 4)
    q, k, v = (t("Gather", qkv, one, axis=0) for one in which)
    scores = t("MatMul", q, t.transpose(k, 0, 1, 3, 2))
    scores = t("Mul", scores, t.number((width // heads) ** -0.5))
    out = t.transpose(t("MatMul", t("Softmax", scores, axis=-1), v), 0, 2, 1, 3)
    return t.linear(t.reshape(out, t.constant([batch, tokens, width])), "wo", "bo", result)


def _export_attn(t: _Trace) -> onnx.ModelProto:
    _attention(t, "48")
    return t.model(y48=t.shape["x"])


def _export_bert(t: _Trace) -> onnx.ModelProto:
    y = t.layer_norm(t("Add", "x", _attention(t)), "g1", "h1")
    z = t.linear(t.gelu(t.linear(y, "w1", "b1")), "w2", "b2")
    t.layer_norm(t("Add", y, z), "g2", "h2", "72")
    return t.model(y72=t.shape["x"])


def _export_llama(t: _Trace) -> onnx.ModelProto:
    batch, tokens, width = t.shape["x"]
    heads = t.workload.heads
    size = width // heads

    def rms(x: str, scale: str) -> str:
        square = t("ReduceMean", t("Pow", x, t.number(2)), axes=[-1], keepdims=1)
        root = t("Sqrt", t("Add", square, t.number(1e-6)))
        return t("Mul", t("Mul", x, t("Div", t.number(1), root)), scale)

    def rope(x: str) -> str:
        a, b = t.slice(x, 0, size // 2), t.slice(x, size // 2, END)
        straight = t("Mul", x, "cos")
        turned = t("Concat", t("Neg", b), a, axis=-1)
        return t("Add", straight, t("Mul", turned, "sin"))

    h = rms("x", "n1")
    shapes: list[str] = []

    def split(weight: str, number: int) -> str:
        rows = t.linear(h, weight)
        if not shapes:
            shapes.extend(t.constant([batch, tokens, heads, size]) for _ in range(3))
        return t.transpose(t.reshape(rows, shapes[number]), 0, 2, 1, 3)

    q = rope(split("wq", 0))
    k = rope(split("wk", 1))
    v = split("wv", 2)
    scores = t("Mul", t("MatMul", q, t.transpose(k, 0, 1, 3, 2)), t.number(size**-0.5))
    scores = t("Add", scores, "mask")
    out = t.transpose(t("MatMul", t("Softmax", scores, axis=-1), v), 0, 2, 1, 3)
    out = t.reshape(out, t.constant([batch, tokens, width]))
    x = t("Add", "x", t.linear(out, "wo"))
    h = rms(x, "n2")
    gate = t.linear(h, "wg")
    gate = t("Mul", gate, t("Sigmoid", gate))
    t("Add", x, t.linear(t("Mul", gate, t.linear(h, "wu")), "wd"), result="149")
    return t.model(y149=t.shape["x"])


def _blocks(params: Params) -> list[bool]:
    """The residual blocks of the CNN; true for those that halve the image."""
    return [f"l{i}dw" in params for i in range(sum(key.endswith("aw") for key in params))]


def _export_cnn(t: _Trace) -> onnx.ModelProto:
    def conv(x: str, key: str, stride: int, pad: int) -> str:
        size = t.weights[f"{key}w"].shape[2:]
        attributes: dict[str, Any] = {"dilations": [1, 1], "group": 1, "kernel_shape": size}
        return t("Conv", x, f"{key}w", f"{key}b", **attributes, pads=[pad] * 4, strides=[stride] * 2)

    x = t("Relu", conv("x", "stem", 2, 3))
    window: dict[str, Any] = {
        "ceil_mode": 0,
        "dilations": [1, 1],
        "kernel_shape": [3, 3],
        "pads": [1] * 4,
        "strides": [2, 2],
    }
    x = t("MaxPool", x, **window)
    for i, halved in enumerate(_blocks(t.weights)):
        y = conv(t("Relu", conv(x, f"l{i}a", 1 + halved, 1)), f"l{i}b", 1, 1)
        x = t("Relu", t("Add", y, conv(x, f"l{i}d", 2, 0) if halved else x))
    t.linear(t("ReduceMean", x, axes=[2, 3], keepdims=0), "fcw", "fcb", "91")
    return t.model(y91=(1, t.weights["fcb"].size))


def _export_gpt2(t: _Trace) -> onnx.ModelProto:
    layers, batch, heads, past, size = t.shape["pk"]
    width = heads * size
    # The exporter folds what depends on weights only, and makes a number once, when it first needs it.
    t.weights["onnx::Add_1151"] = t.weights.pop("wpe")[past]
    t.weights["onnx::MatMul_1344"] = np.ascontiguousarray(t.weights["wte"].T)
    index = cache(t.constant)
    index(0)
    x = t("Gather", "wte", t.reshape("ids", t.constant([-1])), axis=0)
    index(1)
    x = t("Add", x, "onnx::Add_1151")
    shapes: list[str] = []
    joined: list[str] = []
    keys: list[str] = []
    values: list[str] = []
    for i in range(layers):
        h = t.layer_norm(x, f"{i}_g1", f"{i}_h1")
        qkv = t.gemm(h, f"{i}_wqkv", f"{i}_bqkv")
        if not i:
            index(3)
            shapes = [t.constant([batch, 3, heads, size]) for _ in range(layers)]
        qkv = t.reshape(qkv, shapes[i])
        parts: list[str] = []
        for which in range(3):
            part = t("Gather", qkv, index(which), axis=1)
            index(2)
            parts.append(t("Unsqueeze", part, t.constant([2])))
        q, k, v = parts
        old = t("MatMul", q, t.transpose(t("Gather", "pk", index(i), axis=0), 0, 1, 3, 2))
        new = t("MatMul", q, t.transpose(k, 0, 1, 3, 2))
        scores = t("Mul", t("Concat", old, new, axis=-1), t.number(size**-0.5))
        weights = t("Softmax", scores, axis=-1)
        out = t.slice(weights, 0, past)
        out = t("MatMul", out, t("Gather", "pv", index(i), axis=0))
        out = t("Add", out, t("Mul", t.slice(weights, past, END), v))
        if not i:
            joined = [t.constant([batch, width]) for _ in range(layers)]
        x = t("Add", x, t.gemm(t.reshape(out, joined[i]), f"{i}_wo", f"{i}_bo"))
        h = t.gelu_tanh(t.gemm(t.layer_norm(x, f"{i}_g2", f"{i}_h2"), f"{i}_w1", f"{i}_b1"))
        x = t("Add", x, t.gemm(h, f"{i}_w2", f"{i}_b2"))
        keys.append(k)
        values.append(v)
    words = t.weights["wte"].shape[0]
    t("MatMul", t.layer_norm(x, "gf", "hf"), "onnx::MatMul_1344", result="1100")
    for stacked, result in ((keys, "1125"), (values, "1150")):
        t("Concat", *[t("Unsqueeze", one, t.constant([0])) for one in stacked], result=result, axis=0)
    rows = (layers, batch, heads, 1, size)
    return t.model(y1100=(batch, words), y1125=rows, y1150=rows)


_EXPORTS: dict[str, Callable[[_Trace], onnx.ModelProto]] = {
    "mlp": _export_mlp,
    "attn": _export_attn,
    "bert": _export_bert,
    "llama": _export_llama,
    "cnn": _export_cnn,
    "gpt2": _export_gpt2,
}


# References


def _double(array: Array) -> Array:
    return array.astype(np.float64)


def _linear(x: Array, p: Params, name: str) -> Array:
    y = x @ _double(p[f"w{name}"])
    return y + p[f"b{name}"] if f"b{name}" in p else y


def _softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _gelu(x: Array) -> Array:
    erf = np.fromiter(map(math.erf, (x * 0.5**0.5).flat), np.float64, x.size)
    return x * 0.5 * (1 + erf.reshape(x.shape))


def _gelu_tanh(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3)))


def _layer_norm(x: Array, scale: Array, shift: Array) -> Array:
    centered = x - x.mean(-1, keepdims=True)
    return centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-5) * scale + shift


def _reference_mlp(w: Workload) -> Array:
    x = _double(w.inputs["x"])
    for name in "01":
        x = _gelu(_linear(x, w.params, name))
    return _softmax(_linear(x, w.params, "2"))


def _reference_attn(w: Workload) -> Array:
    x = _double(w.inputs["x"])
    batch, tokens, width = x.shape
    qkv = _linear(x, w.params, "qkv").reshape(batch, tokens, 3, w.heads, -1)
    q, k, v = qkv.transpose(2, 0, 3, 1, 4)
    out = _softmax(q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5) @ v
    return _linear(out.swapaxes(1, 2).reshape(batch, tokens, width), w.params, "o")


def _reference_bert(w: Workload) -> Array:
    p = w.params
    y = _layer_norm(w.inputs["x"] + _reference_attn(w), p["g1"], p["h1"])
    z = _linear(_gelu(_linear(y, p, "1")), p, "2")
    return _layer_norm(y + z, p["g2"], p["h2"])


def _reference_llama(w: Workload) -> Array:
    p, x = w.params, _double(w.inputs["x"])
    batch, tokens, width = x.shape

    def rms(x: Array, scale: Array) -> Array:
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * scale

    def split(x: Array) -> Array:
        return x.reshape(batch, tokens, w.heads, -1).swapaxes(1, 2)

    def rope(x: Array) -> Array:
        a, b = np.split(x, 2, -1)
        return x * p["cos"] + np.concatenate([-b, a], -1) * p["sin"]

    h = rms(x, p["n1"])
    q, k, v = (split(_linear(h, p, name)) for name in "qkv")
    q, k = rope(q), rope(k)
    out = _softmax(q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5 + p["mask"]) @ v
    x = x + _linear(out.swapaxes(1, 2).reshape(batch, tokens, width), p, "o")
    h = rms(x, p["n2"])
    gate = _linear(h, p, "g")
    return x + _linear(gate / (1 + np.exp(-gate)) * _linear(h, p, "u"), p, "d")


def _windows(x: Array, size: int, stride: int, pad: int, fill: float) -> Array:
    """[batch, channels, rows, columns, size, size]"""
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)), constant_values=fill)
    return np.lib.stride_tricks.sliding_window_view(x, (size, size), (2, 3))[:, :, ::stride, ::stride]


def _reference_cnn(w: Workload) -> Array:
    p = w.params

    def conv(x: Array, key: str, stride: int, pad: int) -> Array:
        weight = _double(p[f"{key}w"])
        windows = _windows(x, weight.shape[2], stride, pad, 0)
        y = np.tensordot(windows, weight, ((1, 4, 5), (1, 2, 3)))
        return np.moveaxis(y + p[f"{key}b"], -1, 1)

    def relu(x: Array) -> Array:
        return np.maximum(x, 0)

    x = relu(conv(_double(w.inputs["x"]), "stem", 2, 3))
    x = _windows(x, 3, 2, 1, -np.inf).max((4, 5))
    for i, halved in enumerate(_blocks(p)):
        y = conv(relu(conv(x, f"l{i}a", 1 + halved, 1)), f"l{i}b", 1, 1)
        x = relu(y + (conv(x, f"l{i}d", 2, 0) if halved else x))
    return x.mean((2, 3)) @ _double(p["fcw"]) + p["fcb"]


def _reference_gpt2(w: Workload) -> tuple[Array, ...]:
    layers, batch, heads, past, size = w.inputs["pk"].shape
    x = _double(w.params["wte"][w.inputs["ids"].reshape(-1)]) + w.params["wpe"][past]
    keys: list[Array] = []
    values: list[Array] = []
    for i in range(layers):
        start = f"{i}."
        p = {key.removeprefix(start): value for key, value in w.params.items() if key.startswith(start)}
        qkv = _linear(_layer_norm(x, p["g1"], p["h1"]), p, "qkv").reshape(batch, 3, heads, 1, size)
        q, k, v = np.moveaxis(qkv, 1, 0)
        all_k = np.concatenate([w.inputs["pk"][i], k], -2)
        all_v = np.concatenate([w.inputs["pv"][i], v], -2)
        out = _softmax(q @ all_k.swapaxes(-1, -2) * size**-0.5) @ all_v
        x = x + _linear(out.reshape(batch, -1), p, "o")
        h = _linear(_layer_norm(x, p["g2"], p["h2"]), p, "1")
        x = x + _linear(_gelu_tanh(h), p, "2")
        keys.append(k)
        values.append(v)
    x = _layer_norm(x, w.params["gf"], w.params["hf"])
    return x @ _double(w.params["wte"]).T, np.stack(keys), np.stack(values)


_REFERENCES: dict[str, Callable[[Workload], Array | tuple[Array, ...]]] = {
    "mlp": _reference_mlp,
    "attn": _reference_attn,
    "bert": _reference_bert,
    "llama": _reference_llama,
    "cnn": _reference_cnn,
    "gpt2": _reference_gpt2,
}
