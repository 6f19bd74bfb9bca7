"""Small ONNX models for the tests of the importer, and what runs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from headrace.dialects.tensor.interpreter import run_function
from headrace.frontends.base import ImportResult
from headrace.frontends.onnx import import_onnx

Array = np.ndarray[Any, np.dtype[Any]]


def array(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Array:
    """Numbers around 0, the same every time."""
    values = np.random.default_rng(seed).standard_normal(shape) * 2
    return (values * 2).astype(dtype) if np.dtype(dtype).kind in "iu" else values.astype(dtype)


def info(name: str, value: Array) -> onnx.ValueInfoProto:
    """The declaration of an input that holds `value`."""
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[str],
    weights: Mapping[str, Array] | None = None,
    opset: int = 17,
    functions: Sequence[onnx.FunctionProto] = (),
) -> onnx.ModelProto:
    """A model; its outputs are declared without a type."""
    declared = [onnx.ValueInfoProto(name=name) for name in outputs]
    initializers = [numpy_helper.from_array(value, name) for name, value in (weights or {}).items()]
    graph = helper.make_graph(list(nodes), "test", list(inputs), declared, initializers)
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(f.domain, 1) for f in functions)]
    return helper.make_model(graph, opset_imports=opsets, functions=list(functions), ir_version=10)


def single(
    op_type: str,
    operands: Sequence[Array | None],
    known: Sequence[int] = (),
    opset: int = 17,
    outputs: int = 1,
    **attributes: Any,
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A model of one node called `op`, and what to feed it: operands numbered in `known` are initializers, None is left
    out."""
    names = ["" if x is None else f"x{i}" for i, x in enumerate(operands)]
    results = [f"y{i}" for i in range(outputs)]
    given = {f"x{i}": x for i, x in enumerate(operands) if x is not None}
    weights = {name: x for name, x in given.items() if int(name[1:]) in known}
    feeds = {name: x for name, x in given.items() if name not in weights}
    node = helper.make_node(op_type, names, results, name="op", **attributes)
    return model([node], [info(name, x) for name, x in feeds.items()], results, weights, opset), feeds


def run(imported: ImportResult, feeds: Mapping[str, Array]) -> list[Array]:
    """The results of an imported model, in order."""
    imported.module.verify()
    return list(run_function(imported.module, "main", feeds, imported.store).values())


def imported(proto: onnx.ModelProto, **options: Any) -> ImportResult:
    """Import a model in memory."""
    return import_onnx(proto, **options)


def op_names(result: ImportResult) -> list[str]:
    """The tensor ops of `@main`, in order, without `tensor.`."""
    ops = [op.name for op in result.module.walk() if op.name.startswith("tensor.")]
    return [name.removeprefix("tensor.") for name in ops]


FLOAT = TensorProto.FLOAT
INT64 = TensorProto.INT64
