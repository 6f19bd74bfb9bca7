"""Programs lowered to bf16: rounding to the bit, the same numbers at every level, errors against f32, and IR that says
all of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
import workloads
from gpt import Decoder
from hypothesis import given
from hypothesis import strategies as st

import headrace
from headrace.backend.encode import encode
from headrace.compiler import CompileError, ModelWeights, lowered, translate
from headrace.dialects.machine.attributes import set_device
from headrace.dialects.machine.device import load_device
from headrace.dialects.tensor import meaning, storage
from headrace.dialects.tensor.interpreter import run_function
from headrace.dialects.tensor.shapes import TT
from headrace.passes import pipelines
from headrace.passes.infra.manager import PassManager, Watch
from headrace.passes.infra.registry import build
from headrace.runtime.session import Executable, load
from headrace.tools.cli import execute
from headrace.tools.fuzz.check import check
from headrace.tools.fuzz.generator import Distribution, random_program
from headrace.tools.fuzz.maker import Program
from headrace.tools.fuzz.settings import Setting
from headrace.tools.opt import context, run
from headrace.tools.watching import text_of

BF16 = np.dtype(ml_dtypes.bfloat16)
PATTERNS = st.integers(0, 2**32 - 1)
ELEMENTWISE = (
    *("weight", "number", "shifted", "arithmetic", "angle", "compare", "classify", "select", "smooth", "signed"),
    *("limited", "whole", "reshape", "transpose", "slice", "concat", "split", "pad", "broadcast"),
)
"""Kinds of steps that sum nothing, and make nothing of integers: that stays f32."""


def half_even(bits: np.ndarray) -> np.ndarray:
    """bf16 bits of f32 bits by the definition: the nearer neighbour, the even one of two that are as near."""
    low, rest = bits >> 16, bits & 0xFFFF
    up = (rest > 0x8000) | ((rest == 0x8000) & (low % 2 == 1))
    return (low + up).astype(np.uint16)


@given(st.lists(PATTERNS, min_size=1, max_size=64))
def test_a_cast_rounds_to_nearest_even(bits: list[int]) -> None:
    words = np.array([*bits, 0x3F808000, 0x3F818000, 0x7F7F8000, 0x00008000, 0x80018000], np.uint32)
    numbers = words.view(np.float32)
    (found,) = meaning.evaluate("tensor.cast", {"to": "bf16"}, numbers)
    real = ~np.isnan(numbers)
    np.testing.assert_array_equal(found.view(np.uint16)[real], half_even(words)[real])
    np.testing.assert_array_equal(np.isnan(found), ~real)
    for number in numbers[real]:
        held = storage.filled(TT((), "bf16"), float(number)).array()
        assert held.view(np.uint16) == half_even(number.view(np.uint32))


def test_a_cast_rounds_as_torch_does() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    numbers = rng.integers(0, 2**32, 1 << 16, np.uint32).view(np.float32)
    theirs = torch.from_numpy(numbers).bfloat16().view(torch.int16).numpy().view(np.uint16)
    (ours,) = meaning.evaluate("tensor.cast", {"to": "bf16"}, numbers)
    real = ~np.isnan(numbers)
    np.testing.assert_array_equal(ours.view(np.uint16)[real], theirs[real])


def in_bf16(seed: int, ports: str, kinds: tuple[str, ...] = ()) -> Program:
    """A random program in bf16."""
    dtypes = ("f32",) if kinds else ("f32", "i64", "i1")
    program = random_program(seed, Distribution(ops=5, dtypes=dtypes, kinds=kinds, plain=True))
    module = program.module.clone()
    PassManager(context(), build(f"lower-precision{{ports={ports}}}"), Watch(verify_each=True)).run(module)
    inputs = program.inputs
    if ports == "all":
        inputs = {k: v.astype(BF16) if v.dtype == np.float32 else v for k, v in inputs.items()}
    return program._replace(module=module, inputs=inputs)


def counted(program: Program) -> int:
    return sum("bf16" in str(r.type) for op in program.module.walk() for r in op.results)


ALL = ",".join((*pipelines.TENSOR, *pipelines.DATAFLOW, *pipelines.RDU))


@pytest.mark.parametrize("seed", range(20))
def test_random_programs_agree_at_every_level(seed: int) -> None:
    """With bf16 ports: a sum in another order may round to the other neighbour, which the tolerance of bf16 allows."""
    program = in_bf16(seed, "all")
    with np.errstate(all="ignore"):
        check(program, Setting(load_device("sn40l"), ALL))


@pytest.mark.parametrize("seed", range(20))
def test_elementwise_programs_agree_to_the_bit(seed: int) -> None:
    """Merged and tile by tile, with what the tensor program means; each op rounds once."""
    program = in_bf16(seed, "none", ELEMENTWISE)
    with np.errstate(all="ignore"):
        expected = run_function(program.module, "main", program.inputs, program.store)
        module = program.module.clone()
        set_device(module, load_device("sn40l"))
        PassManager(context(), build(ALL), Watch()).run(module)
        weights = ModelWeights(module, program.store)
        for literal in (False, True):
            exe = Executable(encode(module), weights, literal=literal)
            exe.reset({name: program.inputs[name] for name, _ in exe.program.states})
            found = exe({port.name: program.inputs[port.name] for port in exe.inputs})
            for name, array in found.items():
                np.testing.assert_array_equal(array, expected[name], f"{name}, literal {literal}")


def test_random_programs_are_of_bf16() -> None:
    """The comparisons above mean something."""
    assert sum(counted(in_bf16(seed, "none")) > 2 for seed in range(20)) > 15


# The option


@pytest.mark.parametrize("name", ["attn", "gpt2_b1"])
def test_an_artifact_says_its_precision_and_keeps_its_numbers(name: str, tmp_path: Path) -> None:
    workload = workloads.small(name)
    exe = headrace.compile(workload.model(), precision="bf16", out=tmp_path / "m.sn")
    assert exe.manifest["precision"] == "bf16"
    assert {port.type.dtype for port in exe.outputs} == {"f32"}
    again = load(tmp_path / "m.sn")
    assert again.manifest["precision"] == "bf16"
    regions = [region for region in again.program.regions if region.kind == "weight"]
    assert regions and {region.type.dtype for region in regions} == {"bf16"}
    expected = exe(workload.inputs)
    for key, array in again(workload.inputs).items():
        np.testing.assert_array_equal(array, expected[key])
    wide = headrace.compile(workload.model())(workload.inputs)
    assert any((wide[key] != array).any() for key, array in expected.items())


def test_ports_of_bf16() -> None:
    workload = workloads.small("attn")
    exe = headrace.compile(workload.model(), precision="bf16", lower_ports="all")
    found = exe({name: array.astype(BF16) for name, array in workload.inputs.items()})
    assert {array.dtype for array in found.values()} == {BF16}
    assert max(workload.errors(found.values())) < 2e-2


@pytest.mark.parametrize(("ports", "dtype"), [("none", np.dtype(np.float32)), ("states", BF16), ("all", BF16)])
def test_states_of_bf16(ports: str, dtype: np.dtype[Any]) -> None:
    """A cache stays on the device: by default it is bf16, and takes and gives arrays of that."""
    states = {"past_key": "present_key", "past_value": "present_value"}
    model = Decoder()
    exe = headrace.compile(model.model(), precision="bf16", lower_ports=ports, states=states)
    rows = np.random.default_rng(0).standard_normal((5, model.width)).astype(np.float32)
    for i, row in enumerate(rows):
        found = exe({"x": row[None].astype(BF16 if ports == "all" else np.float32), "position": np.array([i])})
    want = model.recomputed(rows)
    assert np.abs(found["y"].astype(np.float64) - want).max() < 2e-2 * np.abs(want).max()
    assert {array.dtype for array in exe.state().values()} == {dtype}
    exe.reset({"past_key": np.full((1, 16, 16), 0.1, np.float32)})
    assert (exe.state()["past_key"] == np.array(0.1, np.float32).astype(dtype)).all()
    with pytest.raises(CompileError, match="state 'past_key' is i32"):
        exe.reset({"past_key": np.zeros((1, 16, 16), np.int32)})


def test_it_goes_on_from_ir(tmp_path: Path) -> None:
    """IR that was lowered says so; IR that was not is not lowered later."""
    workload = workloads.small("mlp_b1")
    narrow, wide = tmp_path / "narrow.mlir", tmp_path / "wide.mlir"
    narrow.write_text(text_of(lowered(workload.model(), "tensor", precision="bf16")))
    wide.write_text(text_of(lowered(workload.model(), "tensor")))
    assert translate(narrow, shape_only=True).manifest["precision"] == "bf16"
    assert translate(narrow, precision="bf16", shape_only=True).manifest["precision"] == "bf16"
    assert translate(wide, shape_only=True).manifest["precision"] == "fp32"
    with pytest.raises(CompileError, match="comes too late"):
        translate(wide, precision="bf16", shape_only=True)


def test_refusals() -> None:
    model = workloads.small("mlp_b1").model()
    with pytest.raises(CompileError, match="no precision 'bf17'"):
        headrace.compile(model, precision="bf17")
    with pytest.raises(CompileError, match="no lower_ports 'some'"):
        headrace.compile(model, precision="bf16", lower_ports="some")
    with pytest.raises(CompileError, match="beside a precision"):
        headrace.compile(model, precision="bf16", pipeline="default")
    device = load_device("sn40l")
    old = replace(device, types=tuple(one for one in device.types if one.name != "bf16"))
    with pytest.raises(CompileError, match="no entry for element type 'bf16'"):
        headrace.compile(model, old, precision="bf16")


def test_results_are_checked_across_the_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rounding is no bug of the pass, and those behind it are held to the lowered program."""
    (tmp_path / "m.mlir").write_text(text_of(lowered(workloads.small("attn").model(), "import")))
    for ports in ("none", "all"):
        pipeline = f"canonicalize,fuse,lower-precision{{ports={ports}}},decompose,fold-constants,dce"
        assert run([str(tmp_path / "m.mlir"), "-p", pipeline, "--check-execution"]) == 0
        assert "execution after lower-precision: rel " in capsys.readouterr().err


def test_compare_reports_the_error_of_the_precision(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    workload = workloads.small("bert")
    onnx.save(workload.model(), tmp_path / "m.onnx")
    args = ["compare", str(tmp_path / "m.onnx"), "--random-inputs", "0", "--precision", "bf16", "--json"]
    assert execute(args) == 0
    found = json.loads(capsys.readouterr().out)
    errors = [one["max_rel"] for level in found["levels"].values() for one in level.values()]
    assert list(found["levels"]) == ["tensor", "dataflow", "runtime"]
    assert all(1e-4 < error < 5e-2 for error in errors)
    assert execute([*args, "--tolerance", "1e-5"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["pass"]["pass"].startswith("lower-precision")


def linear(rows: int, columns: int) -> str:
    return f"""func.func @main(%x: tensor<4x{rows}xf32>) -> tensor<4x{columns}xf32> {{
      %w = tensor.weight "w" : tensor<{rows}x{columns}xf32>
      %0 = tensor.matmul %x, %w : tensor<4x{rows}xf32>, tensor<{rows}x{columns}xf32> -> tensor<4x{columns}xf32>
      func.return %0 : tensor<4x{columns}xf32>
    }}"""


def test_weights_of_eight_bits(tmp_path: Path) -> None:
    """Scales are powers of two and dequantisation is exact: what is computed is the product of the rounded weights."""
    rng = np.random.default_rng(0)
    w = (rng.standard_normal((96, 64)) * np.exp2(rng.integers(-20, 20, 64))).astype(np.float32)
    w[:, 0], w[:, 1], w[3, 2] = 0, 0.25, 1e-30
    (tmp_path / "m.mlir").write_text(linear(96, 64))
    np.savez(tmp_path / "w.npz", w=w)
    exe = headrace.compile(
        tmp_path / "m.mlir",
        precision="bf16",
        weights_precision="f8e4m3",
        weights=tmp_path / "w.npz",
        out=tmp_path / "m.sn",
    )
    held = {region.key: exe.weights.array(region.key) for region in exe.program.regions if region.kind == "weight"}
    quotient, scale = held["w|f8e4m3"], held["w|scale(f8e4m3)"].astype(np.float64)
    assert quotient.dtype == ml_dtypes.float8_e4m3fn
    mantissas, _ = np.frexp(scale)
    assert (mantissas == 0.5).all()
    np.testing.assert_array_equal(quotient, (w / scale.astype(np.float32)).astype(ml_dtypes.float8_e4m3fn))
    largest = np.abs(quotient.astype(np.float64)).max(0)
    assert (largest[1:] >= 128).all() and (largest <= 256).all()
    x = rng.standard_normal((4, 96)).astype(np.float32)
    found = exe({"arg0": x})["result0"]
    rounded = quotient.astype(np.float64) * scale
    want = x.astype(BF16).astype(np.float64) @ rounded
    assert (np.abs(found - want) <= np.abs(want) * 2.0**-8 + np.abs(rounded).max(0) * 1e-5).all()
    assert (np.abs(rounded - w) <= np.abs(w) * 2.0**-4 + scale * 2.0**-10).all()
    np.testing.assert_array_equal(load(tmp_path / "m.sn")({"arg0": x})["result0"], found)
    np.testing.assert_array_equal(load(tmp_path / "m.sn", literal=True)({"arg0": x})["result0"], found)


def test_eight_bits_are_refused_where_a_device_has_none() -> None:
    model = workloads.small("mlp_b1").model()
    with pytest.raises(CompileError, match="no entry for element type 'f8e4m3'"):
        headrace.compile(model, "sn10", precision="bf16", weights_precision="f8e4m3")
    with pytest.raises(CompileError, match="given with precision fp32"):
        headrace.compile(model, weights_precision="f8e4m3")
    with pytest.raises(CompileError, match="no weights_precision 'fp8'"):
        headrace.compile(model, precision="bf16", weights_precision="fp8")
