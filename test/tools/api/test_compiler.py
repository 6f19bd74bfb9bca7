"""headrace.compile: devices, artifacts, and IR of every phase."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import pytest
from command import headrace as headrace_command
from command import succeeds
from gpt import gpt

import headrace
from headrace.compiler import import_model, lower, translate
from headrace.dialects.machine.device import device_names, load_device
from headrace.dialects.support.diagnostics import CompileError
from headrace.runtime import table
from headrace.runtime.artifact import open_artifact
from headrace.tools.demo import Attention
from headrace.version import VERSION

DEMO = Attention(tokens=32, width=32, heads=2)


def program_of(path: Path) -> tuple[list[bytes], dict[str, str]]:
    """The encoded program of an artifact without the names of model and passes, and the digests of its weights."""
    artifact = open_artifact(path)
    return [array.tobytes() for array in table.encode(replace(artifact.program, meta={}))], artifact.manifest[
        "digests"
    ]["weights"]


def test_the_version_is_that_of_the_package() -> None:
    assert version("headrace") == VERSION


@pytest.mark.parametrize("device", device_names())
def test_the_demo_model_on_every_device(device: str) -> None:
    exe = headrace.compile(DEMO.model(), device=device)
    assert exe.program.device["name"] == device
    found = exe(DEMO.inputs())["y"]
    np.testing.assert_allclose(found, DEMO.reference(**DEMO.inputs()), rtol=1e-4, atol=1e-5)


def test_a_device_may_be_a_value() -> None:
    assert headrace.compile(DEMO.model(), device=load_device("sn10")).program.device["name"] == "sn10"


# Artifacts


def test_nothing_of_this_machine_is_in_an_artifact(tmp_path: Path) -> None:
    model = tmp_path / "m.onnx"
    model.write_bytes(DEMO.model().SerializeToString())
    headrace.compile(model, out=tmp_path / "m.sn")
    assert str(tmp_path).encode() not in (tmp_path / "m.sn").read_bytes()


def test_shared_layers_are_right() -> None:
    proto = gpt(6)
    x = np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32)
    from onnx.reference import ReferenceEvaluator

    (expected,) = ReferenceEvaluator(proto).run(None, {"x": x})  # pyright: ignore
    np.testing.assert_allclose(headrace.compile(proto)({"x": x})["y"], expected, rtol=1e-4, atol=1e-4)


def test_any_safetensors_reader_lists_an_artifact(tmp_path: Path) -> None:
    from safetensors import safe_open

    headrace.compile(DEMO.model(), out=tmp_path / "m.sn")
    with safe_open(tmp_path / "m.sn", "np") as file:  # pyright: ignore
        assert {"query.weight", "query.bias", "headrace/program"} <= set(file.keys())
        np.testing.assert_array_equal(file.get_tensor("query.weight"), DEMO.weights()["query.weight"])
        assert file.metadata()["model"] == "attention"


def test_what_is_saved_is_what_runs(tmp_path: Path) -> None:
    exe = headrace.compile(DEMO.model())
    exe.save(tmp_path / "m.sn")
    np.testing.assert_array_equal(headrace.load(tmp_path / "m.sn")(DEMO.inputs())["y"], exe(DEMO.inputs())["y"])


def test_shape_only(tmp_path: Path) -> None:
    """A model without weights compiles, is saved and gives the same program; it does not run."""
    proto = DEMO.model()
    full = translate(proto)
    for tensor in proto.graph.initializer:
        if tensor.name.endswith((".weight", ".bias")):
            tensor.ClearField("raw_data")
            tensor.data_location = onnx.TensorProto.EXTERNAL
            tensor.external_data.add(key="location", value="not-there.bin")
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    exe = headrace.compile(tmp_path / "m.onnx", shape_only=True, out=tmp_path / "m.sn")
    assert len(exe.program.launches) == len(full.program.launches)
    assert (tmp_path / "m.sn").stat().st_size < 100_000
    with pytest.raises(CompileError, match="missing-weight"):
        exe(DEMO.inputs())
    with pytest.raises(CompileError, match="missing-weight"):
        exe(DEMO.inputs())


def test_a_runtime_runs_what_was_compiled_for_its_device(tmp_path: Path) -> None:
    headrace.compile(DEMO.model(), device="sn50", out=tmp_path / "m.sn")
    runtime = headrace.Runtime(device_type="sn50")
    found = runtime.run(runtime.load_model(tmp_path / "m.sn"), DEMO.inputs())
    np.testing.assert_allclose(found["y"], DEMO.reference(**DEMO.inputs()), rtol=1e-4, atol=1e-5)
    with pytest.raises(CompileError, match="compiled for 'sn50'"):
        headrace.Runtime(device_type="sn10").load_model(tmp_path / "m.sn")


# IR in


def test_ir_of_every_phase_compiles_to_the_same_program(tmp_path: Path) -> None:
    """What --dump-phases writes can be read, and going on from there ends in the same artifact."""
    model = tmp_path / "m.onnx"
    model.write_bytes(DEMO.model().SerializeToString())
    succeeds("compile", model, "-o", tmp_path / "m.sn", "--dump-phases", tmp_path / "phases")
    names = sorted(p.name for p in (tmp_path / "phases").iterdir())
    assert names == ["0.import.mlir", "1.tensor.mlir", "2.dataflow.mlir", "3.rdu.mlir"]
    whole, weights = program_of(tmp_path / "m.sn")
    rest = {"0.import": "tensor,dataflow,rdu", "1.tensor": "dataflow,rdu", "2.dataflow": "rdu", "3.rdu": ""}
    for name, passes in rest.items():
        flags = ["--passes", passes, "--weights", tmp_path / "m.sn"]
        succeeds("compile", tmp_path / "phases" / f"{name}.mlir", "-o", tmp_path / "again.sn", *flags)
        again, same_weights = program_of(tmp_path / "again.sn")
        assert (again, same_weights) == (whole, weights), name


IR = """func.func @main(%x : tensor<2xf32>) -> tensor<2xf32> {
  %w = tensor.weight "w" : tensor<2xf32>
  %y = tensor.add %x, %w : tensor<2xf32>, tensor<2xf32> -> tensor<2xf32>
  func.return %y : tensor<2xf32>
}
"""


def test_ir_and_its_weights(tmp_path: Path) -> None:
    path, weights = tmp_path / "m.mlir", tmp_path / "w.npz"
    path.write_text(IR)
    x, w = np.array([1, 2], np.float32), np.array([3, 5], np.float32)
    np.savez(weights, w=w)
    exe = headrace.compile(path, weights=weights)
    (port,), (result,) = exe.inputs, exe.outputs
    np.testing.assert_array_equal(exe({port.name: x})[result.name], x + w)
    refused = headrace_command("compile", path, "-o", tmp_path / "m.sn")
    assert refused.code == 2 and "--weights FILE" in refused.err and not (tmp_path / "m.sn").exists()
    succeeds("compile", path, "-o", tmp_path / "m.sn", "--shape-only")


def test_compare_ir(tmp_path: Path) -> None:
    (tmp_path / "m.mlir").write_text(IR)
    np.savez(tmp_path / "w.npz", w=np.array([3, 5], np.float32))
    np.savez(tmp_path / "y.npz", y=np.array([4, 7], np.float32))
    (name,) = [port.name for port in headrace.compile(tmp_path / "m.mlir", shape_only=True).program.inputs]
    np.savez(tmp_path / "x.npz", **{name: np.array([1, 2], np.float32)})
    flags = ("--inputs", tmp_path / "x.npz", "--weights", tmp_path / "w.npz")
    assert succeeds("compare", tmp_path / "m.mlir", *flags, "--expected", tmp_path / "y.npz").out.count("  ok") == 3
    shown = succeeds("compare", tmp_path / "m.mlir", *flags).out
    assert shown.startswith("reference: the tensor level\n") and shown.count("  ok") == 2
    assert headrace_command("compare", tmp_path / "m.mlir", *flags, "--level", "tensor").code == 2
    result = headrace_command("compare", tmp_path / "m.mlir", *flags, "--reference", "onnx")
    assert result.code == 2 and "--expected NPZ" in result.err


def test_ir_takes_no_bindings(tmp_path: Path) -> None:
    path = tmp_path / "m.mlir"
    path.write_text("func.func @main(%x : tensor<2xf32>) -> tensor<2xf32> {\n  func.return %x : tensor<2xf32>\n}\n")
    with pytest.raises(CompileError, match="dims"):
        headrace.compile(path, dims={"batch": 1})


def test_a_module_keeps_its_device() -> None:
    """The device that IR names is used unless another is asked for."""
    module = import_model(DEMO.model()).module
    lower(module, "sn10", "tensor")
    from headrace.dialects.machine.attributes import device_of

    lower(module, None, "dataflow")
    assert device_of(module).name == "sn10"
    lower(module, "sn40l", "")
    assert device_of(module).name == "sn40l"
