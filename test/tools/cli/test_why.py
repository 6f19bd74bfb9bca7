"""`headrace why` and `headrace-opt --why`: what became of an op, and the reasons."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from command import headrace, succeeds
from onnx import NodeProto, helper
from onnx_models import array, info, model

from headrace.tools.opt import run

GELU = """func.func @main(%x: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  %c = tensor.constant dense<CONSTANT> : tensor<f32>
  %half = tensor.constant dense<0.5> : tensor<f32>
  %one = tensor.constant dense<1.0> : tensor<f32>
  %s = tensor.mul %c, %x : tensor<f32>, tensor<4x8xf32> -> tensor<4x8xf32> loc("act/Mul")
  %e = tensor.erf %s : tensor<4x8xf32> -> tensor<4x8xf32> loc("act/Erf")
  %p = tensor.add %e, %one : tensor<4x8xf32>, tensor<f32> -> tensor<4x8xf32> loc("act/Add")
  %g = tensor.mul %x, %p : tensor<4x8xf32>, tensor<4x8xf32> -> tensor<4x8xf32> loc("act/Gate")
  %r = tensor.mul %g, %half : tensor<4x8xf32>, tensor<f32> -> tensor<4x8xf32> loc("act/Half")
  %a = tensor.sigmoid %x : tensor<4x8xf32> -> tensor<4x8xf32> loc("swish/Sigmoid")
  %m = tensor.mul %x, %a : tensor<4x8xf32>, tensor<4x8xf32> -> tensor<4x8xf32> loc("swish/Mul")
  %q = tensor.add %m, %a : tensor<4x8xf32>, tensor<4x8xf32> -> tensor<4x8xf32> loc("swish/Add")
  return %r, %q : tensor<4x8xf32>, tensor<4x8xf32>
}
"""


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    """A gelu whose constant is not √½, and a silu whose sigmoid is read twice."""
    path = tmp_path / "m.mlir"
    path.write_text(GELU.replace("CONSTANT", "0.7"))
    return path


@pytest.fixture
def right(tmp_path: Path) -> Path:
    path = tmp_path / "right.mlir"
    path.write_text(GELU.replace("CONSTANT", "0.70710678"))
    return path


def test_why_it_was_not_fused(wrong: Path) -> None:
    shown = succeeds("why", wrong, "--op", "gelu", "--pass", "fuse").out
    assert (
        "declined  gelu on tensor.erf at act/Erf: the constants inside tensor.erf are not those of tensor.gelu" in shown
    )
    assert "0.699999988·x, not 0.707106781·x" in shown
    assert "after tensor                tensor.erf : tensor<4x8xf32> in func @main" in shown


def test_a_reason_is_told_at_every_op_that_it_names(wrong: Path) -> None:
    for name in ("swish/Sigmoid", "swish/Mul", "%m", "silu"):
        shown = succeeds("why", wrong, "--op", name, "--pass", "fuse").out
        assert "declined  silu on tensor.sigmoid at swish/Sigmoid" in shown
        assert "is read by tensor.add at swish/Add, tensor.mul at swish/Mul" in shown
    assert "silu" not in succeeds("why", wrong, "--op", "act/Erf", "--pass", "fuse").out


def test_what_became_of_it_down_to_the_units(right: Path) -> None:
    shown = succeeds("why", right, "--op", "act/Erf").out
    assert "applied   gelu on tensor.erf at act/Erf" in shown
    assert "now       tensor.gelu" in shown
    assert "after tensor                tensor.gelu : tensor<4x8xf32> in func @main" in shown
    assert 'in stage "gelu_0" of section "main_0" of func @main' in shown
    assert "after rdu                   tensor.gelu : tensor<4x8xf32> in pcu @gelu_0" in shown


def test_canonicalize_says_what_it_tried(wrong: Path) -> None:
    shown = succeeds("why", wrong, "--op", "act/Mul", "--pass", "canonicalize").out
    assert "applied   ConstantToTheRight on tensor.mul at act/Mul" in shown
    assert "no match  " in shown


def test_json_has_the_same(wrong: Path, right: Path) -> None:
    found = succeeds("why", wrong, "--op", "act", "--json").json
    assert found["nodes"] == ["act/Mul", "act/Erf", "act/Add", "act/Gate", "act/Half"]
    assert [one["pass"] for one in found["passes"]][:4] == ["canonicalize", "cse", "fold-constants", "fuse"]
    assert [phase["phase"] for phase in found["phases"]] == ["tensor", "dataflow", "rdu"]
    fuse = next(one for one in found["passes"] if one["pass"] == "fuse")
    (declined,) = fuse["declined"]
    assert (declined["pattern"], declined["op"], declined["location"]) == ("gelu", "tensor.erf", "act/Erf")
    assert fuse["phase"] == "tensor"
    parallelize = next(one for one in found["passes"] if one["pass"] == "parallelize")
    assert parallelize["declined"] or parallelize["decisions"]
    found = succeeds("why", right, "--op", "act", "--pass", "fuse", "--json").json
    (fuse,) = found["passes"]
    assert [one["pattern"] for one in fuse["applied"]] == ["gelu"]
    assert fuse["ops"] == {"tensor.gelu": 1}


def test_a_layer_in_a_shared_function_is_found(tmp_path: Path) -> None:
    """Ops of an outlined layer still stand for the node of each layer."""
    kinds = ("Tanh", "Abs", "Exp", "Neg", "Sqrt")
    nodes: list[NodeProto] = []
    value = "x"
    for i in range(4):
        nodes.append(helper.make_node("MatMul", [value, f"w{i}"], [f"m{i}"], f"/layer{i}/MatMul"))
        value = f"m{i}"
        for kind in kinds:
            nodes.append(helper.make_node(kind, [value], [f"{kind}{i}"], f"/layer{i}/{kind}"))
            value = f"{kind}{i}"
    weights = {f"w{i}": array(4, 4, seed=i) for i in range(4)}
    path = tmp_path / "m.onnx"
    path.write_bytes(model(nodes, [info("x", array(2, 4))], [value], weights).SerializeToString())
    shown = succeeds("why", path, "--op", "/layer2/Tanh", "--passes", "tensor").out
    assert "tensor.tanh : tensor<2x4xf32> in func @layer" in shown
    assert "declined  gelu on tensor.tanh at /layer2/Tanh" in shown
    assert "call 3 of 4 of @layer" in shown and "call 2" not in shown


def test_a_name_that_is_not_there(wrong: Path) -> None:
    for name, hint in (("act/Erff", "'act/Erf'"), ("gelus", "'gelu'"), ("tensor.errf", "'tensor.erf'")):
        result = headrace("why", wrong, "--op", name)
        assert result.code == 2
        assert f"error[no-such-op]: the model has no op '{name}'" in result.err
        assert f"did you mean {hint}" in result.err
    result = headrace("why", wrong, "--op", "act/Erf", "--pass", "fsue")
    assert result.code == 2
    assert "did you mean 'fuse'?" in result.err


def test_what_is_refused_ends_the_story(right: Path) -> None:
    tiny = Path(__file__).parents[2] / "dialects" / "machine" / "data" / "tiny.toml"
    right.write_text(right.read_text().replace("4x8", "64x4096"))
    result = headrace("why", right, "--op", "act/Erf", "--device", tiny)
    assert result.code == 2
    assert "applied   gelu on tensor.erf" in result.out
    assert "after tensor" in result.out and "after dataflow" not in result.out
    assert "error[stage-too-large]" in result.err
    found = headrace("why", right, "--op", "act/Erf", "--device", tiny, "--json").json
    assert [one["code"] for one in found["errors"]] == ["stage-too-large"]
    assert found["passes"][-1]["pass"] == "cut-sections"


def test_headrace_opt_tells_the_same(wrong: Path) -> None:
    out, err = io.StringIO(), io.StringIO()
    assert run([str(wrong), "-p", "canonicalize,fuse", "--why", "act/Erf"], stdout=out, stderr=err) == 0
    assert "declined  gelu on tensor.erf at act/Erf" in err.getvalue()
    assert "tensor.erf" in out.getvalue()
    err = io.StringIO()
    assert run([str(wrong), "-p", "canonicalize,fuse", "--why", "act/Eff"], stdout=out, stderr=err) == 2
    assert "did you mean 'act/Erf'" in err.getvalue()
