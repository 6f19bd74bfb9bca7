"""Hand-written programs: the merged plan, the literal executor and NumPy agree."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from programs import CASES, Case, batched_heads, ffn

from headrace.compiler import import_model, translate
from headrace.dialects.tensor.interpreter import run_function
from headrace.executable import CompiledExecutable
from headrace.runtime import chunks
from headrace.runtime.check import check_program
from headrace.runtime.plan import Plan, bind_program, plan_configs
from headrace.runtime.schedule import ConfigPlan, Group


@pytest.mark.parametrize("literal", [False, True], ids=["merged", "literal"])
@pytest.mark.parametrize("name", list(CASES))
def test_agrees_with_numpy(name: str, literal: bool) -> None:
    case = CASES[name]()
    check_program(case.program)
    plan = bind_program(case.program, case.array, literal_only=literal)
    for _ in range(2):  # nothing is left over from an earlier run
        for port in case.program.inputs:
            plan.regions[port.region][...] = case.inputs[port.name].ravel()
        plan.run()
        for port in case.program.outputs:
            found = plan.regions[port.region].reshape(port.type.shape)
            np.testing.assert_allclose(found, case.expected[port.name], rtol=1e-5, atol=1e-5)


def outputs_of(case: Case, plan: Plan) -> list[np.ndarray]:
    for port in case.program.inputs:
        plan.regions[port.region][...] = case.inputs[port.name].ravel()
    plan.run()
    return [plan.regions[p.region].reshape(p.type.shape) for p in case.program.outputs]


@pytest.mark.parametrize("target", [1, 1500, 3000])
def test_units_go_through_their_frames_in_chunks(target: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through buffers that are not read as they were written, runs share outer loops, and buffers hold a chunk."""
    case = batched_heads()
    whole = bind_program(case.program, case.array)
    monkeypatch.setattr(ConfigPlan, "_forwarded", lambda *_: None)
    apart = bind_program(case.program, case.array)
    monkeypatch.setattr(chunks, "TARGET", target)
    monkeypatch.setattr(chunks, "ROWS", 1)
    ((_, plan),) = plan_configs(case.program)
    assert isinstance(plan, ConfigPlan)
    (group,) = [a for a in plan.actions if isinstance(a, Group)]
    assert [len(run.units) for run in group.runs] == [1, 1]
    chunked = bind_program(case.program, case.array)
    assert chunked.arena_bytes < apart.arena_bytes and len(chunked.steps) > len(whole.steps)
    for plan in (whole, apart, chunked):
        for found, port in zip(outputs_of(case, plan), case.program.outputs, strict=True):
            np.testing.assert_allclose(found, case.expected[port.name], rtol=1e-5, atol=1e-5)


MOVES = {
    "reshape": "tensor.reshape %{} {{shape = array<i64: 1024, 32>}}",
    "transpose": "tensor.transpose %{} {{perm = array<i64: 0, 2, 1>}}",
    "rows": "tensor.transpose %{} {{perm = array<i64: 2, 1, 0>}}",
}


@pytest.mark.parametrize("move", MOVES)
def test_values_are_moved_in_chunks(move: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a run reads in another shape than it made it is moved chunk by chunk, where chunks are the same rows."""
    to = {"reshape": "1024x32", "transpose": "1024x4x8", "rows": "4x8x1024"}[move]
    text = f"""func.func @main(%x: tensor<1024x8x4xf32>, %y: tensor<1024x8x4xf32>) -> tensor<{to}xf32> {{
      %0 = tensor.softmax %x {{axis = 1 : i64}} : tensor<1024x8x4xf32> -> tensor<1024x8x4xf32>
      %1 = {MOVES[move].format(0)} : tensor<1024x8x4xf32> -> tensor<{to}xf32>
      %2 = tensor.softmax %y {{axis = 1 : i64}} : tensor<1024x8x4xf32> -> tensor<1024x8x4xf32>
      %3 = {MOVES[move].format(2)} : tensor<1024x8x4xf32> -> tensor<{to}xf32>
      %4 = tensor.softmax %3 {{axis = 1 : i64}} : tensor<{to}xf32> -> tensor<{to}xf32>
      %5 = tensor.mul %1, %4 : tensor<{to}xf32>, tensor<{to}xf32> -> tensor<{to}xf32>
      func.return %5 : tensor<{to}xf32>
    }}"""
    (tmp_path / "x.mlir").write_text(text)
    rng = np.random.default_rng(0)
    inputs = {f"arg{i}": rng.standard_normal((1024, 8, 4)).astype(np.float32) for i in range(2)}
    done = translate(tmp_path / "x.mlir", "sn40l")
    results = [CompiledExecutable(done)(inputs)["result0"]]
    monkeypatch.setattr(chunks, "TARGET", 1)
    ((_, plan),) = plan_configs(done.program)
    assert isinstance(plan, ConfigPlan)
    grouped = [run for a in plan.actions if isinstance(a, Group) for run in a.runs if run.moved]
    assert bool(grouped) == (move != "rows")
    results.append(CompiledExecutable(done)(inputs)["result0"])
    (expected,) = run_function(import_model(tmp_path / "x.mlir").module, "main", inputs).values()
    for found in results:
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_plain_copies_are_views() -> None:
    """Weights, inputs and outputs that buffers only pass on are used where they are, without memory of their own."""
    case = ffn()
    plan = bind_program(case.program, case.array)
    assert not any(f is np.copyto for f, _ in plan.steps)
    regions = sum(r.type.elements * 4 for r in case.program.regions if r.kind in ("input", "output"))
    assert plan.arena_bytes == regions


def test_literal_configs_are_reported() -> None:
    """A loop over the lanes of an op that couples them cannot be joined, nor run alone when it is over sites."""
    case = ffn()
    config = case.program.configs[0]
    units = list(config.units)
    at = next(i for i, u in enumerate(units) if u.name == "act")
    act = units[at]
    units[at] = replace(act, ops=(replace(act.ops[0], name="tensor.softmax", attrs={"axis": -1}),))
    program = replace(case.program, configs=(replace(config, units=tuple(units)),))
    check_program(program)
    plan = bind_program(program, case.array)
    assert plan.report == ["config 'ffn' runs literally: tensor.softmax in 'act' couples dim 1, which loop 2 moves"]
    z = case.inputs["x"] @ case.weights["w"] + case.weights["b"]
    e = np.exp(z.reshape(128, 2, 48) - z.reshape(128, 2, 48).max(-1, keepdims=True))
    (found,) = outputs_of(replace(case, program=program), plan)
    np.testing.assert_allclose(found, (e / e.sum(-1, keepdims=True)).reshape(128, 96), rtol=1e-5, atol=1e-6)
