"""Rounding faults planted in the meaning of an op, in a kernel of the runtime and in a pass: `headrace compare` names
the level, the op, its place in the model, and the pass; what no op does alone is shown as drift."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import headrace, succeeds
from onnx import helper
from onnx_models import array, info, model
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from headrace.dialects.support import locations
from headrace.dialects.tensor import meaning
from headrace.dialects.tensor.storage import ConstantOp, constant
from headrace.passes.tensor.decompose import DecomposePass
from headrace.runtime.kernels import chain

Array = np.ndarray[Any, np.dtype[Any]]
LAYERS = 6


def truncated(x: Array) -> Array:
    """Numbers as bf16 has them, cut off instead of rounded."""
    return (np.ascontiguousarray(x).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A model of six layers, and inputs for it beside it."""
    nodes: list[Any] = []
    for i in range(LAYERS):
        nodes += [
            helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"m{i}"], name=f"layer.{i}/MatMul"),
            helper.make_node("Tanh", [f"m{i}"], [f"t{i}"], name=f"layer.{i}/Tanh"),
            helper.make_node("Mul", [f"t{i}", f"c{i}"], [f"s{i}"], name=f"layer.{i}/Mul"),
            helper.make_node("Sub", [f"x{i}", f"s{i}"], [f"x{i + 1}"], name=f"layer.{i}/Sub"),
        ]
    weights = {f"w{i}": array(16, 16, seed=i) / 16 for i in range(LAYERS)}
    weights |= {f"c{i}": np.array(0.73 + i / 10, np.float32) for i in range(LAYERS)}
    proto = model(nodes, [info("x0", array(8, 16))], [f"x{LAYERS}"], weights)
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    np.savez(tmp_path / "x.npz", x0=array(8, 16, seed=9))
    return tmp_path / "m.onnx"


def compare(path: Path, *options: object, fails: bool = True) -> Any:
    """What compare says of a model, as JSON."""
    result = headrace("compare", path, "--inputs", path.with_name("x.npz"), "--json", *options)
    assert result.code == int(fails), result.out + result.err
    return result.json


def in_meaning(monkeypatch: pytest.MonkeyPatch, name: str, change: Any) -> None:
    """Plant a fault in what an op means."""
    right = meaning.evaluate

    def wrong(op: str, attrs: Any, *operands: Array) -> tuple[Array, ...]:
        results = right(op, attrs, *operands)
        return tuple(map(change, results)) if op == name else results

    monkeypatch.setattr(meaning, "evaluate", wrong)


@pytest.mark.parametrize("reference", ["onnx", "auto"])
def test_a_fault_in_a_meaning(path: Path, monkeypatch: pytest.MonkeyPatch, reference: str) -> None:
    in_meaning(monkeypatch, "tensor.tanh", truncated)
    found = compare(path, "--reference", reference)
    for level in ("tensor", "dataflow"):
        for how in ("accumulated", "isolated"):
            first = found["ops"][level][how]
            assert (first["op"], first["location"]) == ("tensor.tanh", "layer.0/Tanh"), (level, how)
            assert first["ulp"] > 1000 and 1e-3 < first["max_rel"] < 1e-2 and len(first["worst"]) == 2
    assert "runtime" not in found["ops"]  # its kernels have a meaning of their own
    first = found["first_deviating_op"]
    assert (first["level"], first["isolated"], first["location"]) == ("tensor", True, "layer.0/Tanh")
    assert found["pass"] is None
    shown = headrace("compare", path, "--inputs", path.with_name("x.npz"), "--reference", reference).out
    assert "isolated:    first layer.0/Tanh (tensor.tanh) [" in shown


def in_kernel(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Plant a fault in the kernel of an op."""
    right = chain.bind_call

    def wrong(call: Any) -> list[Any]:
        steps = right(call)
        if call.name == name:
            target = call.outputs[0]
            steps = [*steps, (lambda: np.copyto(target, truncated(target)), ())]
        return steps

    monkeypatch.setattr(chain, "bind_call", wrong)


def test_a_fault_in_a_kernel(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The op is named, also inside a chain of ops of which only the last result is in memory."""
    in_kernel(monkeypatch, "tensor.tanh")
    found = compare(path)
    assert list(found["ops"]) == ["runtime"] and found["pass"] is None
    assert found["levels"]["dataflow"][f"x{LAYERS}"]["ok"] and found["levels"]["tensor"][f"x{LAYERS}"]["ok"]
    first = found["first_deviating_op"]
    assert (first["level"], first["isolated"]) == ("runtime", True)
    assert (first["op"], first["location"]) == ("tensor.tanh", "layer.0/Tanh")
    assert any("kernel of 'tensor.tanh'" in note for note in found["notes"])


def test_a_fault_in_a_kernel_of_a_program_in_ir(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tensor level is the reference."""
    succeeds("compile", path, "-o", path.with_name("m.sn"), "--dump-phases", path.with_name("phases"))
    in_kernel(monkeypatch, "tensor.tanh")
    found = compare(path.with_name("phases") / "0.import.mlir", "--weights", path.with_name("m.sn"), "--inputs",
                    path.with_name("x.npz"))  # fmt: skip
    first = found["first_deviating_op"]
    assert (first["level"], first["op"], first["location"]) == ("runtime", "tensor.tanh", "layer.0/Tanh")
    assert found["reference"] == "the tensor level" and list(found["levels"]) == ["dataflow", "runtime"]


def test_a_fault_in_a_pass(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = DecomposePass.run

    def wrong(self: DecomposePass, ctx: Context, module: ModuleOp) -> bool:
        """Rounds a constant as it comes by."""
        changed = right(self, ctx, module)
        for op in list(module.walk()):
            if isinstance(op, ConstantOp) and any(
                "layer.3/Mul" in locations.origins(u.operation) for u in op.result.uses
            ):
                new = constant(truncated(op.array()), op.location)
                op.parent_block().insert_op_before(new, op)  # pyright: ignore
                op.result.replace_all_uses_with(new.result)
                op.detach()
                op.erase()
                changed = True
        return changed

    monkeypatch.setattr(DecomposePass, "run", wrong)
    found = compare(path)
    assert found["levels"]["tensor"][f"x{LAYERS}"]["ok"]
    assert list(found["ops"]) == ["dataflow", "runtime"]
    for how in ("accumulated", "isolated"):
        first = found["ops"]["dataflow"][how]
        assert (first["op"], first["location"]) == ("tensor.mul", "c3 + layer.3/Mul")
    assert found["pass"]["pass"] == "decompose" and "layer.3/Mul" in found["pass"]["text"]


def test_drift(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each op is right within the tolerance, their errors together are not: nothing deviates isolated."""
    in_meaning(monkeypatch, "tensor.sub", lambda x: x * np.float32(1 + 4e-5))
    found = compare(path, "--level", "tensor")
    ops = found["ops"]["tensor"]
    assert ops["drifts"] and ops["isolated"] is None
    assert ops["accumulated"]["op"] == "tensor.sub" and ops["accumulated"]["location"] in ("layer.2/Sub", "layer.3/Sub")
    assert ops["largest_isolated"]["op"] == "tensor.sub" and 3e-5 < ops["largest_isolated"]["max_rel"] < 1e-4
    assert not found["first_deviating_op"]["isolated"]
    shown = headrace("compare", path, "--inputs", path.with_name("x.npz"), "--level", "tensor").out
    assert "errors add up from op to op, none deviates by itself" in shown
    assert "isolated:    none deviates; largest layer." in shown


def test_values_inside_the_model_may_be_recorded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the names of values or of nodes; no framework is asked."""
    from headrace.tools.cli import references

    inputs = {"x0": array(8, 16, seed=9)}
    inner = references.intermediates_of(str(path), inputs, "onnx")
    recorded = {name: inner.values[name] for name in (f"x{LAYERS}", "t1", "t2", "x3")}
    recorded["layer.4/Tanh"] = inner.values["t4"]
    np.savez(path.with_name("y.npz"), **recorded)
    monkeypatch.setattr(references, "_framework", lambda which: pytest.fail("a framework is asked"))
    right = compare(path, "--expected", path.with_name("y.npz"), "--all-ops", fails=False)
    assert right["ops"]["tensor"]["compared"] == 5 and right["notes"] == ["ops are compared with recorded values"]
    in_meaning(monkeypatch, "tensor.tanh", truncated)
    found = compare(path, "--expected", path.with_name("y.npz"), "--level", "tensor")
    assert found["ops"]["tensor"]["isolated"]["location"] == "layer.1/Tanh"
