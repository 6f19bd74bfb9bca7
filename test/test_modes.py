"""The modes of mapping: numbers are the same in all of them, and more on the chip at a time is no slower."""

from __future__ import annotations

from pathlib import Path

import pytest
import workloads

import headrace
from headrace.compiler import CompileError
from headrace.passes.pipelines import MODES
from headrace.tools.cli import execute


@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-4), ("bf16", 3e-2)])
@pytest.mark.parametrize("name", ["mlp_b256", "attn", "llama", "cnn", "gpt2_b1"])
def test_numbers_are_right_in_every_mode(name: str, precision: str, tolerance: float) -> None:
    workload = workloads.small(name)
    launches: dict[str, int] = {}
    seconds: dict[str, float] = {}
    for mode in MODES:
        exe = headrace.compile(workload.model(), precision=precision, mode=mode)
        results = exe(workload.inputs)
        assert max(workload.errors(results.values())) < tolerance, mode
        profile = exe.profile()
        launches[mode], seconds[mode] = len(profile.launches), profile.seconds
    assert launches["O0"] >= launches["O1"] >= launches["O3"]
    assert seconds["O0"] >= seconds["O1"] * 0.999 and seconds["O1"] >= seconds["O3"] * 0.999


def test_rules_of_the_user_decide_what_shares_a_section(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import onnx

    model, rules, out = tmp_path / "m.onnx", tmp_path / "rules.yaml", str(tmp_path / "m.sn")
    onnx.save(workloads.small("attn").model(), model)
    rules.write_text("- name: all\n  pattern:\n    a: {op_type: matmul, child: a2}\n    a2: {op_type: any}\n")
    assert execute(["compile", str(model), "-o", out, "-O", "1", "--fusion-rules", str(rules)]) == 0
    assert execute(["compile", str(model), "-o", out, "-O", "3", "--fusion-rules", str(rules)]) == 2
    assert "-O 1 takes them" in capsys.readouterr().err
    rules.write_text("- {name: x}")
    assert execute(["compile", str(model), "-o", out, "-O", "1", "--fusion-rules", str(rules)]) == 2
    assert "has no pattern" in capsys.readouterr().err


def test_refusals() -> None:
    model = workloads.small("mlp_b1").model()
    with pytest.raises(CompileError, match="there is no mode 'O2'"):
        headrace.compile(model, mode="O2")
    with pytest.raises(CompileError, match="beside a mode"):
        headrace.compile(model, mode="O0", pipeline="default")
