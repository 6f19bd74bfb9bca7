"""Executables: what they take, give, keep and share; and that a saved artifact runs without the compiler."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from programs import CASES, Case, cache, ffn

from headrace.backend.writer import write_artifact
from headrace.dialects.support.diagnostics import CompileError
from headrace.runtime import session
from headrace.runtime.session import LARGE, Executable, Runtime, load

Array = np.ndarray[Any, np.dtype[Any]]


def executable(case: Case, *, literal: bool = False) -> Executable:
    return Executable(case.program, case, literal=literal)


def test_results_are_fresh_arrays() -> None:
    case = ffn()
    exe = executable(case)
    first = exe(case.inputs)
    second = exe({"x": case.inputs["x"] * 2})
    np.testing.assert_allclose(first["y"], case.expected["y"], rtol=1e-5, atol=1e-5)
    assert not np.shares_memory(first["y"], second["y"]) and not np.array_equal(first["y"], second["y"])


def test_bound_views_need_no_copies() -> None:
    case = ffn()
    bound = executable(case).bind()
    bound.inputs["x"][...] = case.inputs["x"]
    bound.run()
    np.testing.assert_allclose(bound.outputs["y"], case.expected["y"], rtol=1e-5, atol=1e-5)


def test_all_wrong_inputs_are_listed() -> None:
    case = CASES["concat"]()
    exe = executable(case)
    with pytest.raises(CompileError) as caught:
        exe({"x": np.zeros((5, 6), np.float32), "zz": np.zeros(3), "z": np.zeros((12, 3))})
    told = [d.what for d in caught.value.diagnostics]
    assert told == [
        "input 'x' is f32[5, 6], expected f32[6, 5]",
        "input 'z' is f64[12, 3], expected f32[12, 3]",
        "no input 'zz'",
    ]
    with pytest.raises(CompileError, match=r"input 'z' of f32.* is missing"):
        exe({"x": case.inputs["x"]})


@pytest.mark.parametrize(
    ("inputs", "told"),
    [
        (None, "inputs are given as NoneType"),
        ([1.0], "inputs are given as list"),
        ({"x": [[1.0], [2.0, 3.0]]}, "input 'x' is no array"),
        ({"x": "text"}, "input 'x' is <U4\\[\\], expected f32\\[6, 5\\]"),
        ({"x": np.zeros((6, 5), ">f4")}, "input 'x' is >f4\\[6, 5\\], expected f32\\[6, 5\\]"),
        ({"x": None}, "input 'x' is object\\[\\]"),
        ({1: np.zeros(3)}, "no input '1'"),
    ],
)
def test_what_is_no_input_is_told(inputs: Any, told: str) -> None:
    with pytest.raises(CompileError, match=told):
        executable(CASES["concat"]())(inputs)


def odd(array: Array, kind: str) -> Any:
    """The same numbers, lying in memory in an odd way."""
    match kind:
        case "fortran":
            return np.asfortranarray(array)
        case "backwards":
            return array[..., ::-1].copy()[..., ::-1]
        case "gaps":
            return np.repeat(array, 2, axis=-1)[..., ::2]
        case "unaligned":
            found = np.ndarray(array.shape, array.dtype, bytearray(array.nbytes + 1), 1)
            found[...] = array
            return found
        case "masked":
            return np.ma.masked_array(array, array > 0)
        case _:
            found = array.copy()
            found.flags.writeable = False
            return found


@pytest.mark.parametrize("kind", ["fortran", "backwards", "gaps", "unaligned", "masked", "read only"])
@pytest.mark.parametrize("large", [1, LARGE])
def test_inputs_may_lie_anyhow(kind: str, large: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "LARGE", large)
    case = CASES["concat"]()
    exe = executable(case)
    plain = exe(case.inputs)["y"]
    for _ in range(3):
        found = exe({name: odd(array, kind) for name, array in case.inputs.items()})
        np.testing.assert_array_equal(found["y"], plain)


def test_lists_are_taken_as_arrays() -> None:
    case = CASES["gathered"]()
    exe = executable(case)
    np.testing.assert_array_equal(exe({"ids": case.inputs["ids"].tolist()})["y"], case.expected["y"])


@pytest.mark.parametrize("literal", [False, True])
def test_a_row_outside_the_table_is_refused(literal: bool) -> None:
    case = CASES["gathered"]()
    with pytest.raises(CompileError, match="index-out-of-range"):
        executable(case, literal=literal)({"ids": np.full((4, 1), 10)})


def test_clones_share_weights_and_nothing_else() -> None:
    case = ffn()
    exe = executable(case)
    other = exe.clone()
    a, b = exe._plan.regions, other._plan.regions
    assert np.shares_memory(a[1], b[1]) and not np.shares_memory(a[0], b[0]) and not np.shares_memory(a[3], b[3])
    other({"x": case.inputs["x"] * 2})
    np.testing.assert_allclose(exe(case.inputs)["y"], case.expected["y"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("literal", [False, True])
def test_state_lives_in_the_executable(literal: bool) -> None:
    case = cache()
    exe = executable(case, literal=literal)
    assert [p.name for p in exe.inputs] == ["new", "at"] and [p.name for p in exe.outputs] == ["y"]
    expected = np.zeros((8, 4), np.float32)
    for step in range(8):
        row = np.full((1, 4), step + 1, np.float32)
        out = exe({"new": row, "at": np.array([step])})
        np.testing.assert_array_equal(out["y"], expected.sum(0))  # a launch reads what was there when it began
        expected[step] = row
        np.testing.assert_array_equal(exe.state()["cache"], expected)
    other = exe.clone()
    assert not other.state()["cache"].any()
    exe.reset({"cache": expected * 2})
    np.testing.assert_array_equal(exe.state()["cache"], expected * 2)
    exe.reset()
    assert not exe.state()["cache"].any()
    with pytest.raises(CompileError, match="no state 'cash'"):
        exe.reset({"cash": expected})
    with pytest.raises(CompileError, match="set it with reset"):
        exe({"cache": expected, "new": row, "at": np.array([0])})


def test_steady_state_allocates_nothing_of_note() -> None:
    import tracemalloc

    case = CASES["gathered"]()
    bound = executable(case).bind()
    bound.inputs["ids"][...] = case.inputs["ids"]
    bound.run()
    tracemalloc.start()
    bound.run()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8192


def test_devices(tmp_path: Path) -> None:
    case = ffn()
    path = tmp_path / "m.sn"
    write_artifact(path, case.program, case, compiler="0.1.0")
    runtime = Runtime()
    model = runtime.load_model(path)
    np.testing.assert_allclose(runtime.run(model, case.inputs)["y"], case.expected["y"], rtol=1e-5, atol=1e-5)
    with pytest.raises(CompileError, match="compiled for 'toy', this runtime is 'sn50'"):
        Runtime(device_type="sn50").load_model(path)
    with pytest.raises(CompileError, match="no device 'sn5'"):
        Runtime(device_type="sn5")


def test_a_loaded_artifact_saves_as_itself(tmp_path: Path) -> None:
    case = ffn()
    write_artifact(tmp_path / "a.sn", case.program, case, compiler="0.1.0")
    load(tmp_path / "a.sn").save(tmp_path / "b.sn")
    assert (tmp_path / "a.sn").read_bytes() == (tmp_path / "b.sn").read_bytes()
    with pytest.raises(CompileError, match="has no writer"):
        executable(case).save(tmp_path / "c.sn")


ALONE = """
import sys

class Blocked:
    names = ("headrace.passes", "headrace.frontends", "headrace.backend", "headrace.tools", "headrace.compiler", "xdsl",
             "onnx", "onnxruntime", "torch", "safetensors")

    def find_spec(self, name, path=None, target=None):
        if any(name == n or name.startswith(n + ".") for n in self.names):
            raise ImportError(f"{name} is blocked")
        return None

sys.meta_path.insert(0, Blocked())
import numpy as np
from headrace.runtime.session import load

for literal in (False, True):
    exe = load(sys.argv[1], literal=literal)
    data = np.load(sys.argv[2])
    inputs = {p.name: data["in_" + p.name] for p in exe.inputs}
    exe.reset({k: data["in_" + k] for k in exe.state()})
    for name, array in exe(inputs).items():
        np.testing.assert_allclose(array, data["out_" + name], rtol=1e-5, atol=1e-5)
print("ran")
"""


@pytest.mark.parametrize("name", ["ffn", "batched_heads", "padded_conv", "gathered", "cache"])
def test_a_saved_artifact_runs_without_the_compiler(name: str, tmp_path: Path) -> None:
    case = CASES[name]()
    write_artifact(tmp_path / "m.sn", case.program, case, compiler="0.1.0")
    arrays = {f"in_{k}": v for k, v in case.inputs.items()} | {f"out_{k}": v for k, v in case.expected.items()}
    np.savez(tmp_path / "data.npz", **arrays)  # pyright: ignore[reportArgumentType]
    command = [sys.executable, "-c", ALONE, str(tmp_path / "m.sn"), str(tmp_path / "data.npz")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "ran\n"


def test_large_inputs_are_read_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "LARGE", 1024)
    case = ffn()
    exe = executable(case)
    x = case.inputs["x"].copy()
    own = exe.bind().inputs["x"]
    own[...] = 7
    np.testing.assert_allclose(exe({"x": x})["y"], case.expected["y"], rtol=1e-5, atol=1e-5)
    assert (own == 7).all()  # not copied
    doubled = exe({"x": x * 2})["y"]  # other memory, copied
    x[...] *= 2  # contents are read anew at each call
    np.testing.assert_array_equal(exe({"x": x})["y"], doubled)
    again = x.copy()
    for _ in range(3):
        np.testing.assert_array_equal(exe({"x": again})["y"], doubled)
        np.testing.assert_array_equal(exe({"x": np.asfortranarray(again)})["y"], doubled)
    np.testing.assert_array_equal(exe.clone()({"x": x})["y"], doubled)
