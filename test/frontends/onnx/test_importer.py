"""What an imported module looks like: names, locations, weights, shapes computed while importing, coverage."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx_models import FLOAT, INT64, Array, array, imported, info, model, op_names, run, single

from headrace.dialects.support import locations
from headrace.dialects.support.diagnostics import CompileError
from headrace.dialects.tensor.program import entry, signature
from headrace.frontends.base import coverage_text
from headrace.frontends.onnx import import_onnx, plan_onnx

X = array(2, 3)


def node(op_type: str, inputs: Sequence[str], outputs: Sequence[str], name: str = "", **attributes: Any) -> Any:
    return helper.make_node(op_type, inputs, outputs, name=name, **attributes)


def symbolic(name: str, dims: Sequence[int | str | None], dtype: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, dims)


def mlp(batch: int | str = 2) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Two layers: the way exporters write them."""
    weights = {
        "w1": array(8, 16, seed=1),
        "b1": array(16, seed=2),
        "w2": array(4, 16, seed=3),
        "b2": array(4, seed=4),
    }
    nodes = [
        node("Constant", [], ["half"], "/half", value=numpy_helper.from_array(np.float32(0.5))),
        node("Gemm", ["x", "w1", "b1"], ["h"], "/0/Gemm"),
        node("Mul", ["h", "half"], ["s"], "/0/Mul"),
        node("Relu", ["s"], ["r"], "/0/Relu"),
        node("Gemm", ["r", "w2", "b2"], ["y"], "/1/Gemm", transB=1),
    ]
    return model(nodes, [symbolic("x", [batch, 8])], ["y"], weights), weights


def expected(weights: dict[str, Array], x: Array) -> Array:
    hidden = np.maximum((x @ weights["w1"] + weights["b1"]) * np.float32(0.5), 0)
    return hidden @ weights["w2"].T + weights["b2"]


def test_a_model_from_a_file(tmp_path: Path) -> None:
    proto, weights = mlp()
    path = tmp_path / "mlp.onnx"
    path.write_bytes(proto.SerializeToString())
    result = import_onnx(path)
    assert result.name == "mlp"
    assert op_names(result) == [
        "weight", "matmul", "weight", "add", "constant", "mul", "relu",
        "weight", "transpose", "matmul", "weight", "add",
    ]  # fmt: skip
    x = array(2, 8, seed=9)
    np.testing.assert_allclose(run(result, {"x": x})[0], expected(weights, x), rtol=1e-5, atol=1e-5)


def test_file_and_memory_give_the_same_module(tmp_path: Path) -> None:
    proto, _ = mlp()
    path = tmp_path / "mlp.onnx"
    path.write_bytes(proto.SerializeToString())
    assert str(import_onnx(path).module) == str(import_onnx(proto).module) == str(import_onnx(str(path)).module)


def test_every_op_has_the_location_of_its_node() -> None:
    result = imported(mlp()[0])
    found = [locations.text(op.location) for op in result.module.walk()]
    assert all(found)
    assert found[2:-1] == [
        "w1", "/0/Gemm", "b1", "/0/Gemm", "/half", "/0/Mul", "/0/Relu", "w2", "/1/Gemm", "/1/Gemm", "b2", "/1/Gemm",
    ]  # fmt: skip


def test_nodes_without_a_name_get_one() -> None:
    result = imported(model([node("Relu", ["x"], ["a"]), node("Neg", ["a"], ["y"])], [info("x", X)], ["y"]))
    names = [locations.text(op.location) for op in result.module.walk() if op.name.startswith("tensor.")]
    assert names == ["Relu_0", "Neg_1"]


def test_names_and_states() -> None:
    nodes = [node("Add", ["past", "x"], ["present"]), node("Neg", ["present"], ["y"])]
    proto = model(nodes, [info("past", X), info("x", X)], ["y", "present"])
    result = imported(proto, states={"past": "present"})
    names = signature(entry(result.module))
    assert (names.inputs, names.results) == (("past", "x"), ("y", "present"))
    assert names.states == result.states == (("past", "present"),)
    assert [str(p.type) for p in result.outputs] == ["tensor<2x3xf32>"] * 2


def test_an_input_or_a_weight_may_be_an_output() -> None:
    w = array(3, seed=1)
    result = imported(model([node("Relu", ["x"], ["y"])], [info("x", X)], ["y", "x", "w"], {"w": w}))
    y, x, found = run(result, {"x": X})
    np.testing.assert_array_equal(y, np.maximum(X, 0))
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(found, w)


# Weights


def test_weights_stay_in_the_file(tmp_path: Path) -> None:
    """The arrays are views of the memory map, and the IR has none of their bytes."""
    proto, weights = mlp()
    path = tmp_path / "mlp.onnx"
    path.write_bytes(proto.SerializeToString())
    store = import_onnx(path).store
    assert list(store) == ["w1", "b1", "w2", "b2"]
    for key, value in weights.items():
        found = store.array(key)
        np.testing.assert_array_equal(found, value)
        assert (store[key].shape, store[key].dtype) == (value.shape, "f32")
    assert not store.array("w1").flags.owndata
    assert not store.array("w1").flags.writeable


def test_initializers_in_typed_fields(tmp_path: Path) -> None:
    """float_data and the like: packed little-endian fields are views too, the others are converted."""
    values = np.arange(96).reshape(8, 12)
    kinds = {
        "f": (onnx.TensorProto.FLOAT, np.float32),
        "d": (onnx.TensorProto.DOUBLE, np.float64),
        "i": (onnx.TensorProto.INT64, np.int64),
        "s": (onnx.TensorProto.INT32, np.int32),
        "u": (onnx.TensorProto.UINT64, np.uint64),
        "b": (onnx.TensorProto.UINT8, np.uint8),
        "h": (onnx.TensorProto.FLOAT16, np.float16),
    }
    proto = model([node("Identity", [k], [f"{k}_out"]) for k in kinds], [], [f"{k}_out" for k in kinds])
    for key, (kind, dtype) in kinds.items():
        data = values.astype(dtype).reshape(-1)
        proto.graph.initializer.append(helper.make_tensor(key, kind, values.shape, data))
    path = tmp_path / "typed.onnx"
    path.write_bytes(proto.SerializeToString())
    for found, (_, dtype) in zip(run(import_onnx(path), {}), kinds.values(), strict=True):
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, values.astype(dtype))


def test_external_data(tmp_path: Path) -> None:
    proto, weights = mlp()
    path = tmp_path / "big.onnx"
    onnx.save_model(proto, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    assert not onnx.load(path, load_external_data=False).graph.initializer[0].raw_data
    x = array(2, 8, seed=9)
    np.testing.assert_allclose(run(import_onnx(path), {"x": x})[0], expected(weights, x), rtol=1e-5, atol=1e-5)
    (tmp_path / "w.bin").unlink()
    shapes = import_onnx(path, shape_only=True)
    assert shapes.store.shape_only and shapes.store["w1"].nbytes == 8 * 16 * 4
    with pytest.raises(CompileError, match="missing-weight"):
        shapes.store.array("w1")


def test_changing_a_weight_changes_no_program() -> None:
    first, second = mlp()[0], mlp()[0]
    second.graph.initializer[1].CopyFrom(numpy_helper.from_array(array(16, seed=99), "b1"))
    assert str(imported(first).module) == str(imported(second).module)


def test_unused_weights_are_left_out() -> None:
    result = imported(model([node("Relu", ["x"], ["y"])], [info("x", X)], ["y"], {"unused": array(99)}))
    assert list(result.store) == []


def test_initializers_that_are_inputs_too_are_weights() -> None:
    """Old exporters list initializers among the inputs."""
    w = array(3, seed=1)
    result = imported(model([node("Add", ["x", "w"], ["y"])], [info("x", X), info("w", w)], ["y"], {"w": w}))
    assert [port.name for port in result.inputs] == ["x"]


def test_weights_have_no_second_copy_in_memory(tmp_path: Path) -> None:
    """Importing a model with 64 MB of weights raises the process's peak memory by a fraction of that."""
    w = np.zeros((4096, 4096), np.float32)
    path = tmp_path / "wide.onnx"
    proto = model([node("MatMul", ["x", "w"], ["y"])], [symbolic("x", [1, 4096])], ["y"], {"w": w})
    path.write_bytes(proto.SerializeToString())
    code = (
        "import resource, sys\n"
        "from headrace.frontends.onnx import import_onnx\n"
        "from headrace.dialects.tensor import op_classes; op_classes(); import numpy\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        f"import_onnx({str(path)!r})\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    kilobytes = int(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout)
    assert kilobytes < 24 * 1024


# Shapes computed while importing


def test_shapes_of_shapes_are_computed() -> None:
    """x.reshape(x.shape[0], -1), as exporters write it, leaves one reshape."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["n"]),
        node("Unsqueeze", ["n", "axes"], ["n1"]),
        node("Concat", ["n1", "rest"], ["shape"], axis=0),
        node("Reshape", ["x", "shape"], ["y"]),
    ]
    constants = {"zero": np.array(0), "axes": np.array([0]), "rest": np.array([-1])}
    result = imported(model(nodes, [symbolic("x", [2, 3, 4])], ["y"], constants))
    assert op_names(result) == ["reshape"]
    assert result.outputs[0].type.shape == (2, 12)


def test_positions_are_computed() -> None:
    """Range over a size, compared with itself: a causal mask that needs no run-time work but one small constant."""
    nodes = [
        node("Shape", ["x"], ["s"], start=0, end=1),
        node("Squeeze", ["s"], ["n"]),
        node("Range", ["zero", "n", "one"], ["at"]),
        node("Unsqueeze", ["at", "axes"], ["column"]),
        node("LessOrEqual", ["at", "column"], ["mask"]),
        node("Where", ["mask", "x", "low"], ["y"]),
    ]
    constants = {"zero": np.array(0), "one": np.array(1), "axes": np.array([1]), "low": np.float32(-9)}
    result = imported(model(nodes, [symbolic("x", [3, 3])], ["y"], constants))
    assert op_names(result) == ["constant", "constant", "select"]
    x = array(3, 3)
    np.testing.assert_array_equal(run(result, {"x": x})[0], np.where(np.tri(3) > 0, x, np.float32(-9)))


def test_float_algebra_is_left_to_the_passes() -> None:
    """A scale made of a size: computed by ops of the program, which passes fold."""
    nodes = [
        node("Shape", ["x"], ["s"], start=1, end=2),
        node("Cast", ["s"], ["f"], to=1),
        node("Sqrt", ["f"], ["r"]),
        node("Mul", ["x", "r"], ["y"]),
    ]
    result = imported(model(nodes, [info("x", X)], ["y"]))
    assert op_names(result) == ["constant", "cast", "sqrt", "mul"]
    np.testing.assert_allclose(run(result, {"x": X})[0], X * np.sqrt(np.float32(3)))


def test_large_index_tensors_are_weights() -> None:
    """No big constants in the IR: 1500 indices are a weight, 15 are a constant."""
    table = array(2000, 2)
    for count, kind in ((15, "constant"), (1500, "weight")):
        index = np.random.default_rng(0).integers(0, 2000, count)
        result = imported(model([node("Gather", ["x", "i"], ["y"])], [info("x", table)], ["y"], {"i": index}))
        assert op_names(result) == [kind, "gather"]
        np.testing.assert_array_equal(run(result, {"x": table})[0], table[index])


def test_a_large_filled_tensor_is_a_broadcast() -> None:
    result = imported(single("ConstantOfShape", [np.array([300, 400])], known=(0,))[0])
    assert op_names(result) == ["constant", "broadcast"]


def test_gather_along_a_line_is_a_slice() -> None:
    for index, names in ((np.array(1), ["slice", "reshape"]), (np.array([0, 2]), ["slice"]), (np.array([2, 0]), None)):
        proto, feeds = single("Gather", [array(4, 3), index], known=(1,))
        result = imported(proto)
        assert op_names(result) == (names or ["constant", "gather"])
        np.testing.assert_array_equal(run(result, feeds)[0], array(4, 3)[index])


# Graphs


def test_nodes_out_of_order_are_sorted() -> None:
    nodes = [node("Neg", ["a"], ["y"], "last"), node("Relu", ["x"], ["a"], "first")]
    assert op_names(imported(model(nodes, [info("x", X)], ["y"]))) == ["relu", "neg"]


def test_functions_of_the_model_are_inlined() -> None:
    inner = [node("Mul", ["a", "a"], ["t"], "square"), node("LeakyRelu", ["t"], ["b"])]
    inner[1].attribute.append(onnx.AttributeProto(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT))
    opsets = [helper.make_opsetid("", 17)]
    function = helper.make_function("own", "F", ["a"], ["b"], inner, opsets, attributes=["slope"])
    calls = [
        node("F", ["x"], ["m"], "one", domain="own", slope=0.5),
        node("F", ["m"], ["y"], "two", domain="own", slope=0.25),
    ]
    result = imported(model(calls, [info("x", X)], ["y"], functions=[function]))
    assert op_names(result) == ["mul", "leaky_relu"] * 2
    names = [locations.text(op.location) for op in result.module.walk() if op.name.startswith("tensor.")]
    assert names == ["one/square", "one/LeakyRelu_1", "two/square", "two/LeakyRelu_1"]
    np.testing.assert_allclose(run(result, {"x": X})[0], X**4, rtol=1e-5)


@pytest.mark.parametrize("opset", [13, 14, 15, 17, 18, 21, 23, 28])
def test_every_opset_from_13(opset: int) -> None:
    axes = {} if opset < 18 else {"axes": np.array([1])}
    reduce = node("ReduceMean", ["x"], ["m"], axes=[1]) if opset < 18 else node("ReduceMean", ["x", "axes"], ["m"])
    proto = model([reduce, node("Sub", ["x", "m"], ["y"])], [info("x", X)], ["y"], axes, opset)
    np.testing.assert_allclose(run(imported(proto), {"x": X})[0], X - X.mean(1, keepdims=True), atol=1e-6)


def branches(condition: str) -> onnx.ModelProto:
    """Squeezes dim 0 when it is 1, as exporters write it; the branches use a value from outside and own weights."""
    squeeze = helper.make_graph(
        [node("Squeeze", ["twice", "zero"], ["s"], "squeeze"), node("Mul", ["s", "w"], ["out"], "scale")],
        "then",
        [],
        [onnx.ValueInfoProto(name="out")],
        [numpy_helper.from_array(np.array([0]), "zero"), numpy_helper.from_array(array(3, seed=5), "w")],
    )
    keep = helper.make_graph([node("Identity", ["twice"], ["out"])], "else", [], [onnx.ValueInfoProto(name="out")])
    nodes = [
        node("If", [condition], ["y"], "choose", then_branch=squeeze, else_branch=keep),
        node("Add", ["x", "x"], ["twice"], "twice"),
        node("Shape", ["x"], ["shape"], end=1),
        node("Equal", ["shape", "one"], ["single"]),
    ]
    inputs = [symbolic("x", ["n", 3]), symbolic("runtime", [1], onnx.TensorProto.BOOL)]
    return model(nodes, inputs, ["y"], {"one": np.array([1])})


def test_a_branch_whose_condition_follows_from_shapes_is_taken() -> None:
    for n, names in ((1, ["add", "reshape", "weight", "mul"]), (2, ["add"])):
        result = import_onnx(branches("single"), dims={"n": n})
        assert op_names(result) == names
        x = array(n, 3)
        wanted = 2 * x[0] * array(3, seed=5) if n == 1 else 2 * x
        np.testing.assert_allclose(run(result, {"x": x, "runtime": np.array([True])})[0], wanted, rtol=1e-6)
    result = import_onnx(branches("single"), dims={"n": 1})
    assert list(result.store) == ["choose/w"]
    assert "choose/scale" in [locations.text(op.location) for op in result.module.walk()]


def test_a_branch_whose_condition_is_data_is_refused() -> None:
    with pytest.raises(CompileError, match="control flow") as caught:
        import_onnx(branches("runtime"), dims={"n": 1})
    assert caught.value.location == "choose"


# Dims


def test_a_question_mark_is_no_name() -> None:
    proto = model([node("Relu", ["x"], ["y"])], [symbolic("x", ["?", "?"])], ["y"])
    assert import_onnx(proto, input_shapes={"x": (2, 3)}).inputs[0].type.shape == (2, 3)


def test_dims_by_name_and_by_shape() -> None:
    proto, weights = mlp("batch")
    x = array(5, 8)
    for options in ({"dims": {"batch": 5}}, {"input_shapes": {"x": (5, 8)}}):
        result = import_onnx(proto, **options)
        assert result.inputs[0].type.shape == (5, 8)
        np.testing.assert_allclose(run(result, {"x": x})[0], expected(weights, x), rtol=1e-5, atol=1e-5)


def test_unbound_dims_are_all_named_with_their_flag() -> None:
    inputs = [symbolic("ids", ["batch", "seq"], INT64), symbolic("mask", [None, 4]), onnx.ValueInfoProto(name="z")]
    inputs[2].type.tensor_type.elem_type = FLOAT
    with pytest.raises(CompileError) as caught:
        import_onnx(model([node("Identity", ["ids"], ["y"])], inputs, ["y"]))
    found = [(d.code, d.location, d.fix) for d in caught.value.diagnostics]
    assert found == [
        ("unbound-dim", "ids", "--dim batch=1"),
        ("unbound-dim", "ids", "--dim seq=1"),
        ("unbound-dim", "mask", "--input mask=1x4"),
        ("unbound-dim", "z", "--input z=1x3x224x224 (its shape)"),
    ]


# Coverage


def test_coverage_says_what_became_of_each_node() -> None:
    rows = imported(mlp()[0]).coverage
    found = [(r.op_type, r.count, r.status, r.reason) for r in rows]
    assert found == [
        ("Gemm", 1, "decomposed", "as matmul, add"),
        ("Gemm", 1, "decomposed", "as transpose, matmul, add"),
        ("Constant", 1, "supported", ""),
        ("Mul", 1, "supported", ""),
        ("Relu", 1, "supported", ""),
    ]
    assert rows[0].shapes == ("tensor<2x8xf32>, tensor<8x16xf32>, tensor<16xf32>",)


def test_a_plan_lists_every_node() -> None:
    nodes = [
        node("Relu", ["x"], ["a"], "fine"),
        node("Det", ["a"], ["b"], "det"),
        node("Mystery", ["b"], ["d"], "who"),
        node("Neg", ["d"], ["y"], "after"),
    ]
    proto = model(nodes, [symbolic("x", ["n", 3])], ["y"])
    for options in ({}, {"dims": {"n": 2}}):
        rows = plan_onnx(proto, **options)
        assert [(r.op_type, r.status, r.nodes) for r in rows] == [
            ("Det", "refused", ("det",)),
            ("Mystery", "refused", ("who",)),
            ("Neg", "supported", ("after",)),
            ("Relu", "supported", ("fine",)),
        ]
    text = coverage_text(rows)
    assert "determinants are not supported" in text
    assert text.splitlines()[-1] == "2 supported, 2 refused"
    with pytest.raises(CompileError, match="unknown-dim"):
        plan_onnx(proto, dims={"m": 2})
    assert rows[0].to_json()["nodes"] == ["det"]
