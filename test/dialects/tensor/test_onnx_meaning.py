"""The meaning of reductions, movement and indexing is that of the ONNX op, by ONNX's reference evaluator."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from tensor_cases import CASES

from headrace.dialects.support.diagnostics import CompileError
from headrace.dialects.tensor.meaning import evaluate

OPSET = 18
QUICK = settings(max_examples=30, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
Node = tuple[str, dict[str, Any], list[Any]]


def ints(*values: int) -> Any:
    return np.array(values, np.int64)


def reduction(kind: str) -> Any:
    def node(attrs: dict[str, Any], arrays: list[Any]) -> Node:
        keep = {"keepdims": int(attrs["keepdims"]), "noop_with_empty_axes": 1}
        return kind, keep, [*arrays, ints(*attrs["axes"])]

    return node


def arg(kind: str) -> Any:
    def node(attrs: dict[str, Any], arrays: list[Any]) -> Node:
        names = {"axis": "axis", "keepdims": "keepdims", "select_last": "select_last_index"}
        return kind, {onnx: int(attrs[ours]) for ours, onnx in names.items()}, arrays

    return node


def slicing(attrs: dict[str, Any], arrays: list[Any]) -> Node:
    (x,) = arrays
    stops = [stop if stop >= 0 else -n - 1 for stop, n in zip(attrs["stops"], x.shape, strict=True)]
    return "Slice", {}, [x, ints(*attrs["starts"]), ints(*stops), ints(*range(x.ndim)), ints(*attrs["steps"])]


def padding(attrs: dict[str, Any], arrays: list[Any]) -> Node:
    (x,) = arrays
    return "Pad", {"mode": attrs["mode"]}, [x, ints(*attrs["lo"], *attrs["hi"]), np.array(attrs["value"], x.dtype)]


def gathering(attrs: dict[str, Any], arrays: list[Any]) -> Node:
    """ONNX's evaluator wants indices as large as the data on the other dims, and the axis from the front."""
    data, indices = arrays
    axis = attrs["axis"] % data.ndim
    part = data[tuple(slice(None if d == axis else n) for d, n in enumerate(indices.shape))]
    return "GatherElements", {"axis": axis}, [part, indices]


NODES: dict[str, Any] = {
    "tensor.reduce_sum": reduction("ReduceSum"),
    "tensor.reduce_mean": reduction("ReduceMean"),
    "tensor.reduce_max": reduction("ReduceMax"),
    "tensor.reduce_min": reduction("ReduceMin"),
    "tensor.reduce_prod": reduction("ReduceProd"),
    "tensor.argmax": arg("ArgMax"),
    "tensor.argmin": arg("ArgMin"),
    "tensor.cumsum": lambda attrs, arrays: (
        "CumSum",
        {"exclusive": int(attrs["exclusive"]), "reverse": int(attrs["reverse"])},
        [*arrays, ints(attrs["axis"])[0]],
    ),
    "tensor.reshape": lambda attrs, arrays: ("Reshape", {}, [*arrays, ints(*attrs["shape"])]),
    "tensor.transpose": lambda attrs, arrays: ("Transpose", {"perm": attrs["perm"]}, arrays),
    "tensor.broadcast": lambda attrs, arrays: ("Expand", {}, [*arrays, ints(*attrs["shape"])]),
    "tensor.slice": slicing,
    "tensor.concat": lambda attrs, arrays: ("Concat", attrs, arrays),
    "tensor.split": lambda attrs, arrays: ("Split", {"axis": attrs["axis"]}, [*arrays, ints(*attrs["sizes"])]),
    "tensor.pad": padding,
    "tensor.gather": lambda attrs, arrays: ("Gather", attrs, arrays),
    "tensor.gather_elements": gathering,
    "tensor.gather_nd": lambda attrs, arrays: ("GatherND", attrs, arrays),
    "tensor.scatter_elements": lambda attrs, arrays: ("ScatterElements", attrs, arrays),
    "tensor.scatter_nd": lambda attrs, arrays: ("ScatterND", attrs, arrays),
}


def reference(node: Node, outputs: int) -> list[Any]:
    """What ONNX's reference evaluator gives for one node."""
    kind, attrs, arrays = node
    inputs = [f"i{k}" for k in range(len(arrays))]
    results = [f"o{k}" for k in range(outputs)]
    untyped = [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in (*inputs, *results)]
    made = helper.make_node(kind, inputs, results, **attrs)
    graph = helper.make_graph([made], "one", untyped[: len(inputs)], untyped[len(inputs) :])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ReferenceEvaluator(model).run(None, dict(zip(inputs, arrays, strict=True)))


def from_the_back(name: str, attrs: dict[str, Any], arrays: list[Any], rng: np.random.Generator) -> list[Any]:
    """The same indices, some of them counted from the back."""
    if "gather" not in name and "scatter" not in name:
        return arrays
    data, indices, *rest = arrays
    if name.endswith("_nd"):
        batch = attrs.get("batch_dims", 0)
        sizes = np.array(data.shape[batch : batch + indices.shape[-1]])
    else:
        sizes = np.array(data.shape[attrs["axis"]])
    turned = indices - sizes * rng.integers(0, 2, indices.shape)
    return [data, turned.astype(indices.dtype), *rest]


@pytest.mark.parametrize("name", NODES)
@QUICK
@given(data=st.data())
def test_as_onnx(name: str, data: st.DataObject) -> None:
    attrs, arrays = data.draw(CASES[name])
    assume(all(a.dtype.name not in ("bfloat16", "float16") for a in arrays))
    if name == "tensor.reduce_mean":
        assume(arrays[0].dtype.kind == "f")  # of integers NumPy rounds the mean, ONNX Runtime truncates it
    if name in ("tensor.transpose", "tensor.pad"):
        assume(arrays[0].ndim > 0)  # ONNX's evaluator fails on these
    arrays = from_the_back(name, attrs, arrays, np.random.default_rng(len(arrays[0].shape)))
    found = evaluate(name, attrs, *arrays)
    wanted = reference(NODES[name](attrs, arrays), len(found))
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, np.asarray(theirs).astype(ours.dtype), rtol=1e-6, atol=1e-6)
        assert ours.shape == theirs.shape


def test_the_mean_of_integers_truncates() -> None:
    x = np.array([[-7, 2], [3, 4]], np.int8)
    (found,) = evaluate("tensor.reduce_mean", {"axes": (1,), "keepdims": False}, x)
    np.testing.assert_array_equal(found, np.array([-2, 3], np.int8))
    many = np.full(300, 100, np.int8)
    assert evaluate("tensor.reduce_mean", {"axes": (0,), "keepdims": False}, many)[0] == 100


def test_narrow_floats_accumulate_in_f32() -> None:
    x = np.full(4096, 1.0, np.float16) + np.float16(2**-10)
    (found,) = evaluate("tensor.reduce_sum", {"axes": (0,), "keepdims": False}, x)
    assert found == np.float16(4100)
    (found,) = evaluate("tensor.reduce_mean", {"axes": (0,), "keepdims": False}, np.full(100_000, 1.0, np.float16))
    assert found == 1.0


def test_an_empty_sum_is_zero_and_an_empty_product_one() -> None:
    x = np.zeros((2, 0), np.float32)
    for name, value in (("sum", 0), ("prod", 1)):
        (found,) = evaluate(f"tensor.reduce_{name}", {"axes": (1,), "keepdims": False}, x)
        np.testing.assert_array_equal(found, np.full(2, value, np.float32))


X, UPDATES = np.zeros((5, 3), np.float32), np.ones((2, 3), np.float32)
OUT_OF_RANGE: list[tuple[str, dict[str, Any], list[Any], str]] = [
    ("gather", {"axis": 0}, [X, np.array([[0, 5]])], r"index 5 at position \[0, 1\] of .* for dim 0 of size 5"),
    ("gather", {"axis": -1}, [X, np.array(-4)], r"index -4 at position \[\] of .* for dim 1 of size 3"),
    ("gather_elements", {"axis": 0}, [X, np.array([[-6]])], r"index -6 at position \[0, 0\] .* dim 0 of size 5"),
    ("gather_nd", {"batch_dims": 0}, [X, np.array([[4, 3]])], r"index 3 at position \[0\] .* dim 1 of size 3"),
    ("scatter_elements", {"axis": 1, "reduction": "add"}, [X, np.full((2, 3), 3), UPDATES], r"index 3 .* dim 1"),
    ("scatter_nd", {"reduction": "none"}, [X, np.array([[5], [0]]), UPDATES], r"index 5 .* for dim 0 of size 5"),
]


@pytest.mark.parametrize(("name", "attrs", "arrays", "reason"), OUT_OF_RANGE)
def test_an_index_out_of_range_is_named(name: str, attrs: dict[str, Any], arrays: list[Any], reason: str) -> None:
    with pytest.raises(CompileError, match=reason) as refusal:
        evaluate(f"tensor.{name}", attrs, *arrays)
    assert refusal.value.code == "index-out-of-range"
    assert refusal.value.fix.startswith("indices lie in -")


def test_a_scatter_leaves_its_operand_alone() -> None:
    x = X.copy()
    evaluate("tensor.scatter_nd", {"reduction": "add"}, x, np.array([[1], [1]]), UPDATES)
    assert not x.any()


def test_iota_counts_along_its_axis() -> None:
    (found,) = evaluate("tensor.iota", {"shape": (2, 3), "dtype": "f16", "axis": -1})
    np.testing.assert_array_equal(found, np.array([[0, 1, 2], [0, 1, 2]], np.float16))
