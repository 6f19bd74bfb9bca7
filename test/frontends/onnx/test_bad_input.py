"""What is wrong with a model ends in a refusal that names it: all offenders at once, never a traceback."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx_models import FLOAT, Array, array, imported, info, model, single

from headrace.dialects.support.diagnostics import CompileError, Diagnostic
from headrace.frontends.onnx import import_onnx, plan_onnx

X = array(2, 3)


def refusal(source: Any, **options: Any) -> tuple[Diagnostic, ...]:
    """The diagnostics of an import that must fail."""
    with pytest.raises(CompileError) as caught:
        import_onnx(source, **options)
    return caught.value.diagnostics


def codes(source: Any, **options: Any) -> list[str]:
    return [d.code for d in refusal(source, **options)]


def node(op_type: str, inputs: Sequence[str], outputs: Sequence[str], name: str = "", **attributes: Any) -> Any:
    return helper.make_node(op_type, inputs, outputs, name=name, **attributes)


# Files


def test_no_such_file(tmp_path: Path) -> None:
    (found,) = refusal(tmp_path / "gone.onnx")
    assert found.code == "no-such-file" and "gone.onnx" in found.what


@pytest.mark.parametrize("content", [b"", b"\0" * 64, b"hello, this is text\n" * 9, b"\x89PNG\r\n\x1a\n" + b"\1" * 99])
def test_a_file_that_is_no_model(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.onnx"
    path.write_bytes(content)
    (found,) = refusal(path)
    assert found.code == "bad-onnx-file" and "'x.onnx'" in found.what


def weighty() -> tuple[onnx.ModelProto, Array]:
    """A model with a weight of several kilobytes."""
    w = array(32, 32, seed=1)
    return model([node("MatMul", ["x", "w"], ["y"], "mm")], [info("x", array(1, 32))], ["y"], {"w": w}), w


@pytest.mark.parametrize("keep", [0.02, 0.3, 0.9, 0.999])
def test_a_truncated_file(tmp_path: Path, keep: float) -> None:
    data = weighty()[0].SerializeToString()
    path = tmp_path / "cut.onnx"
    path.write_bytes(data[: int(len(data) * keep)])
    (found,) = refusal(path)
    assert found.code == "bad-onnx-file" and found.why


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damaged_files_never_give_a_traceback(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    proto = single("Conv", [array(1, 2, 5, 5), array(3, 2, 3, 3)], known=(1,), pads=[1, 1, 1, 1])[0]
    content = bytearray(proto.SerializeToString())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "damaged.onnx"
    path.write_bytes(content)
    with suppress(CompileError):
        import_onnx(path)


def test_not_a_model_at_all() -> None:
    assert codes(42) == ["bad-model"]


# Versions


@pytest.mark.parametrize(("opset", "word"), [(12, "convert_version"), (99, "opset_version=28")])
def test_opset_out_of_range(opset: int, word: str) -> None:
    (found,) = refusal(model([node("Relu", ["x"], ["y"])], [info("x", X)], ["y"], opset=opset))
    assert found.code == "unsupported-opset" and str(opset) in found.what and word in found.fix


# Graphs


def test_a_cycle_names_its_nodes() -> None:
    nodes = [
        node("Add", ["x", "c"], ["a"], "first"),
        node("Relu", ["a"], ["b"], "second"),
        node("Neg", ["b"], ["c"], "third"),
        node("Exp", ["a"], ["y"], "after"),
    ]
    (found,) = refusal(model(nodes, [info("x", X)], ["y"]))
    assert (found.code, found.why) == ("cyclic-graph", "first → second → third → first")


def test_dangling_inputs_and_outputs_are_all_named() -> None:
    nodes = [node("Add", ["x", "nowhere"], ["a"], "one"), node("Add", ["a", "missing"], ["y"], "two")]
    found = refusal(model(nodes, [info("x", X)], ["y", "z"]))
    assert [d.code for d in found] == ["dangling-input", "dangling-input", "dangling-output"]
    assert "'nowhere'" in found[0].what and found[0].location == "one"
    assert "'missing'" in found[1].what and found[1].location == "two"
    assert "'z'" in found[2].what


def test_names_made_twice() -> None:
    nodes = [node("Relu", ["x"], ["y"], "one"), node("Neg", ["x"], ["y"], "two"), node("Exp", ["x"], ["x"], "three")]
    found = refusal(model(nodes, [info("x", X)], ["y"]))
    assert [(d.code, d.location) for d in found] == [("duplicate-name", "two"), ("duplicate-name", "three")]


def test_outputs_of_one_name() -> None:
    found = refusal(model([node("Relu", ["x"], ["y"])], [info("x", X)], ["y", "y"]))
    assert [(d.code, d.what) for d in found] == [("duplicate-name", "two outputs are called 'y'")]


def test_an_input_that_is_no_tensor() -> None:
    proto = model([node("Relu", ["x"], ["y"])], [info("x", X)], ["y"])
    proto.graph.input.append(helper.make_tensor_sequence_value_info("list", TensorProto.FLOAT, None))
    [found] = refusal(proto)
    assert (found.what, found.why, bool(found.fix)) == (
        "input 'list' is not a tensor",
        "it is of the kind sequence",
        True,
    )


def test_initializers_of_one_name() -> None:
    proto = model([node("Add", ["x", "w"], ["y"])], [info("x", X)], ["y"], {"w": X})
    proto.graph.initializer.append(numpy_helper.from_array(X, "w"))
    assert codes(proto) == ["duplicate-name"]


def test_five_unknown_ops_are_all_listed() -> None:
    names = ["alpha", "beta", "gamma", "delta", "epsilon"]
    nodes, at = [], "x"
    for i, name in enumerate(names):
        nodes.append(node(f"Mystery{i}", [at], [f"v{i}"], name, domain="" if i % 2 else "com.example"))
        at = f"v{i}"
    nodes.append(node("Relu", [at], ["y"], "known"))
    found = refusal(model(nodes, [info("x", X)], ["y"]))
    assert [d.location for d in found] == names
    assert {d.code for d in found} == {"unsupported-op"}
    assert "com.example.Mystery0" in found[0].what and "domain" in found[0].why


def test_unknown_ops_are_listed_beside_unbound_dims() -> None:
    x = helper.make_tensor_value_info("x", FLOAT, ["batch", 3])
    found = refusal(model([node("Mystery", ["x"], ["y"], "who")], [x], ["y"]))
    assert [d.code for d in found] == ["unbound-dim", "unsupported-op"]


@pytest.mark.parametrize("op_type", ["If", "Loop", "Scan"])
def test_control_flow_has_a_reason(op_type: str) -> None:
    body = helper.make_graph([node("Identity", ["x"], ["z"])], "body", [], [onnx.ValueInfoProto(name="z")])
    (found,) = refusal(model([node(op_type, ["x"], ["y"], "flow", body=body)], [info("x", X)], ["y"]))
    assert found.code == "unsupported-op" and "control flow" in found.why and found.fix


def test_an_attribute_that_nobody_knows() -> None:
    (found,) = refusal(single("Relu", [X], color=3)[0])
    assert found.code == "unsupported-op" and "color" in found.why and found.location == "op"


def test_a_function_that_calls_itself() -> None:
    inner = node("F", ["a"], ["b"], domain="own")
    function = helper.make_function("own", "F", ["a"], ["b"], [inner], [helper.make_opsetid("", 17)])
    proto = model([node("F", ["x"], ["y"], domain="own")], [info("x", X)], ["y"], functions=[function])
    assert codes(proto) == ["bad-graph"]


def test_functions_that_multiply_without_end() -> None:
    """Each of 40 functions calls the next one twice: refused by the number of nodes, not by running out of memory."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    functions = []
    for i in range(40):
        calls = [node(f"F{i + 1}", ["a"], ["b"], domain="own"), node(f"F{i + 1}", ["b"], ["c"], domain="own")]
        body = calls if i < 39 else [node("Relu", ["a"], ["c"])]
        functions.append(helper.make_function("own", f"F{i}", ["a"], ["c"], body, opsets))
    proto = model([node("F0", ["x"], ["y"], domain="own")], [info("x", X)], ["y"], functions=functions)
    (found,) = refusal(proto)
    assert found.code == "bad-graph" and "nodes" in found.why


# Types and shapes


@pytest.mark.parametrize(
    ("op_type", "operands", "attributes", "word"),
    [
        ("MatMul", [array(2, 3), array(4, 5)], {}, "3 columns"),
        ("Add", [array(2, 3), array(4, 5)], {}, "broadcast"),
        ("Transpose", [array(2, 3)], {"perm": [0, 0]}, "permutation"),
        ("Concat", [array(2, 3), array(2, 4)], {"axis": 0}, "size"),
        ("Softmax", [array(2, 3)], {"axis": 5}, "axis 5"),
        ("Conv", [array(1, 2, 5), array(3, 9, 3)], {}, "channels"),
    ],
)
def test_operands_that_do_not_fit(op_type: str, operands: list[Array], attributes: dict[str, Any], word: str) -> None:
    (found,) = refusal(single(op_type, operands, **attributes)[0])
    assert found.code in ("bad-shape", "bad-node") and word in found.why and found.location == "op"


def test_every_bad_node_is_reported_and_what_follows_is_not() -> None:
    nodes = [
        node("MatMul", ["x", "x"], ["a"], "one"),
        node("Relu", ["a"], ["b"], "fine"),
        node("Concat", ["x", "w"], ["c"], "two", axis=0),
        node("Add", ["b", "c"], ["y"], "follows"),
    ]
    found = refusal(model(nodes, [info("x", X)], ["y"], {"w": array(2, 4)}))
    assert [d.location for d in found] == ["one", "two"]


def test_a_shape_that_is_computed_at_run_time() -> None:
    (found,) = refusal(single("Reshape", [X, np.array([3, 2])])[0])
    assert found.code == "dynamic-shape" and found.location == "op"


def test_strings_and_other_types() -> None:
    text = helper.make_tensor_value_info("text", TensorProto.STRING, [2])
    tiny = helper.make_tensor_value_info("tiny", TensorProto.FLOAT8E4M3FN, [2])
    sequence = helper.make_tensor_sequence_value_info("many", FLOAT, [2])
    proto = model([node("Identity", ["text"], ["y"])], [text, tiny, sequence], ["y"])
    proto.graph.initializer.append(helper.make_tensor("names", TensorProto.STRING, [1], [b"x"]))
    found = refusal(proto)
    assert {d.code for d in found} == {"unsupported-dtype"}
    assert [d.location for d in found] == ["names", "text", "tiny", "many"]
    assert "string" in found[0].what


def test_a_cast_to_a_type_that_we_lack() -> None:
    (found,) = refusal(single("Cast", [X], to=TensorProto.STRING)[0])
    assert found.code == "unsupported-dtype" and "'op'" in found.what


def test_a_missing_operand_and_a_missing_attribute() -> None:
    assert codes(single("MatMul", [X])[0]) == ["bad-node"]
    assert codes(single("Concat", [X, X])[0]) == ["bad-node"]
    assert codes(single("LeakyRelu", [X], alpha="steep")[0]) == ["bad-node"]


def test_an_index_out_of_range_in_a_constant() -> None:
    shape = node("Shape", ["x"], ["s"], "shape")
    pick = node("Gather", ["s", "seven"], ["n"], "pick")
    fill = node("ConstantOfShape", ["n"], ["y"], "fill")
    proto = model([shape, pick, fill], [info("x", X)], ["y"], {"seven": np.array([7], np.int64)})
    (found,) = refusal(proto)
    assert "7" in f"{found.what} {found.why}" and found.location


# Initializers


def with_tensor(tensor: onnx.TensorProto) -> onnx.ModelProto:
    proto = model([node("Add", ["x", "w"], ["y"])], [info("x", X)], ["y"])
    proto.graph.initializer.append(tensor)
    return proto


def test_initializers_with_the_wrong_amount_of_data() -> None:
    short = onnx.TensorProto(name="w", data_type=FLOAT, dims=[2, 3], raw_data=b"\0" * 20)
    few = onnx.TensorProto(name="w", data_type=FLOAT, dims=[2, 3], float_data=[1, 2])
    none = onnx.TensorProto(name="w", data_type=FLOAT, dims=[2, 3])
    negative = onnx.TensorProto(name="w", data_type=FLOAT, dims=[-2, 3])
    huge = onnx.TensorProto(name="w", data_type=FLOAT, dims=[2**40, 2**40])
    for tensor in (short, few, none, negative, huge):
        (found,) = refusal(with_tensor(tensor))
        assert found.code == "bad-tensor" and found.location == "w"


def external(location: str, **entries: str) -> onnx.ModelProto:
    """A model whose weight `w` (256 floats) lies in another file."""
    tensor = onnx.TensorProto(name="w", data_type=FLOAT, dims=[256], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=value)
    proto = model([node("Add", ["x", "w"], ["y"])], [info("x", array(256))], ["y"])
    proto.graph.initializer.append(tensor)
    return proto


def saved(folder: Path, proto: onnx.ModelProto) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def test_missing_external_data(tmp_path: Path) -> None:
    (found,) = refusal(saved(tmp_path, external("weights.bin")))
    assert found.code == "missing-external-data" and "'weights.bin'" in found.what and "'w'" in found.what
    assert import_onnx(tmp_path / "model.onnx", shape_only=True).store.shape_only


def test_external_data_of_a_model_in_memory() -> None:
    assert codes(external("weights.bin")) == ["bad-external-data"]


@pytest.mark.parametrize(
    "entries",
    [
        {"offset": "4"},
        {"offset": "0", "length": "2048"},
        {"length": "1000"},
        {"offset": "-8"},
        {"offset": "99999999999999999"},
        {"offset": "0x10"},
        {"length": "1e3"},
    ],
)
def test_external_data_past_its_end_or_of_another_size(tmp_path: Path, entries: dict[str, str]) -> None:
    (tmp_path / "weights.bin").write_bytes(array(256).tobytes())
    assert codes(saved(tmp_path, external("weights.bin", **entries))) == ["bad-external-data"]


@pytest.mark.parametrize("location", ["../secret.bin", "sub/../../secret.bin", "", "c:\\x", "..\\secret.bin", "a\0b"])
def test_external_data_outside_the_folder(tmp_path: Path, location: str) -> None:
    (tmp_path / "secret.bin").write_bytes(array(256).tobytes())
    folder = tmp_path / "model"
    folder.mkdir()
    (found,) = refusal(saved(folder, external(location)))
    assert found.code == "bad-external-data"


def test_absolute_and_linked_external_data(tmp_path: Path) -> None:
    secret = tmp_path / "secret.bin"
    secret.write_bytes(array(256).tobytes())
    folder = tmp_path / "model"
    folder.mkdir()
    assert codes(saved(folder, external(str(secret)))) == ["bad-external-data"]
    os.symlink(secret, folder / "inside.bin")
    (found,) = refusal(saved(folder, external("inside.bin")))
    assert found.code == "bad-external-data" and "link" in found.why
    (folder / "directory").mkdir()
    assert codes(saved(folder, external("directory"))) == ["bad-external-data"]


def test_every_bad_initializer_is_reported(tmp_path: Path) -> None:
    proto = external("weights.bin")
    proto.graph.initializer.append(onnx.TensorProto(name="v", data_type=FLOAT, dims=[2], float_data=[1]))
    assert codes(saved(tmp_path, proto)) == ["missing-external-data", "bad-tensor"]


# States


def test_bad_states() -> None:
    proto = model([node("Concat", ["past", "x"], ["present"], axis=0)], [info("past", X), info("x", X)], ["present"])
    (found,) = refusal(proto, states={"past": "present"})
    assert found.code == "bad-state" and "2x3xf32" in found.what and "4x3xf32" in found.what
    assert codes(proto, states={"pst": "presnt"}) == ["unknown-input", "unknown-output"]


def test_a_plan_refuses_only_what_it_cannot_read() -> None:
    rows = plan_onnx(single("Det", [X])[0])
    assert [(r.op_type, r.status, r.nodes) for r in rows] == [("Det", "refused", ("op",))]
    with pytest.raises(CompileError):
        plan_onnx(model([node("Relu", ["who"], ["y"])], [], ["y"]))


def test_imported_ignores_nothing_silently() -> None:
    """A second result that cannot be made is a refusal, not a hole."""
    assert codes(single("MaxPool", [array(1, 1, 4, 4)], kernel_shape=[2, 2], outputs=2)[0]) == ["unsupported-op"]
    assert imported(single("Relu", [X])[0]).outputs[0].name == "y0"
