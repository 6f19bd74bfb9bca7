"""The subcommands of `headrace`: what they print, write and return."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import headrace, succeeds
from gpt import gpt
from onnx import helper
from onnx_models import array, info, model

from headrace.dialects.machine.device import device_names
from headrace.tools.cli import COMMANDS
from headrace.tools.demo import Attention

DEMO = Attention(tokens=16, width=32, heads=2)


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    """The demo's model and inputs as files, and what is expected."""
    (tmp_path / "m.onnx").write_bytes(DEMO.model().SerializeToString())
    np.savez(tmp_path / "x.npz", **DEMO.inputs())
    np.savez(tmp_path / "y.npz", y=DEMO.reference(**DEMO.inputs()))
    return tmp_path / "m.onnx"


@pytest.fixture
def artifact(demo: Path) -> Path:
    path = demo.with_suffix(".sn")
    succeeds("compile", demo, "-o", path)
    return path


# The command as a whole


def test_help_of_everything() -> None:
    shown = succeeds("--help").out
    assert all(name in shown for name in COMMANDS)
    for name in COMMANDS:
        assert "Usage: headrace " + name in succeeds(name, "--help").out
    assert succeeds("--version").out.startswith("headrace 0.")


def test_help_loads_nothing_large() -> None:
    code = (
        "import sys; from headrace.tools.cli import execute\n"
        "execute(['--help']); execute(['compile', '--help']); execute(['run', '--help'])\n"
        "print(sorted({'xdsl', 'numpy', 'onnx', 'rich'} & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.splitlines()[-1] == "[]"


def test_running_an_artifact_loads_no_compiler(artifact: Path) -> None:
    code = (
        "import sys; from headrace.tools.cli import execute\n"
        f"assert execute(['run', {str(artifact)!r}, '--random-inputs', '0', '--profile']) == 0\n"
        "ours = {'headrace.passes', 'headrace.frontends', 'headrace.backend'}\n"
        "print(sorted((ours | {'xdsl', 'onnx'}) & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.splitlines()[-1] == "[]"


def test_a_reader_that_leaves_is_no_error(artifact: Path) -> None:
    command = f"{sys.executable} -m headrace.tools.headrace devices sn40l --json | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert done.stdout == "{\n" and not done.stderr


# compile


def test_compile_says_what_it_made(demo: Path) -> None:
    result = succeeds("compile", demo, "--device", "sn50", "--json")
    found = result.json
    assert not result.err
    assert found["artifact"] == str(demo.with_suffix(".sn")) and demo.with_suffix(".sn").exists()
    assert found["device"] == "sn50" and found["ops"] == {"supported": 20, "decomposed": 0}
    assert found["units"]["pcu"] > 0 and found["memory"]["hbm"] > 0
    shown = succeeds("compile", demo).out
    assert "20 ops of the model, all on the device" in shown


def test_timing_and_phases(demo: Path) -> None:
    result = succeeds("compile", demo, "--timing", "--dump-phases", demo.with_name("phases"))
    for name in ("import", "place", "route", "encode", "write", "total"):
        assert name in result.err
    assert "tensor.matmul" in (demo.with_name("phases") / "0.import.mlir").read_text()
    assert "rdu.flow" in (demo.with_name("phases") / "3.rdu.mlir").read_text()


def test_every_pass_keeps_its_contract(demo: Path) -> None:
    succeeds("compile", demo, "--verify-each")


def test_dims_and_inputs_bind_shapes(tmp_path: Path) -> None:
    x = helper.make_tensor_value_info("x", 1, ["batch", None, 4])
    proto = model([helper.make_node("Relu", ["x"], ["y"], name="relu")], [x], ["y"])
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    found = succeeds("compile", tmp_path / "m.onnx", "--input", "x=2x3x4", "--json").json
    assert found["outputs"] == [{"name": "y", "shape": [2, 3, 4], "dtype": "f32"}]
    result = headrace("compile", tmp_path / "m.onnx", "--dim", "batch=2")
    assert result.code == 2 and "--input x=2x1x4" in result.err


# run


def test_run_writes_and_shows(demo: Path, artifact: Path) -> None:
    out = demo.with_name("out.npz")
    shown = succeeds("run", artifact, "--inputs", demo.with_name("x.npz"), "-o", out).out
    assert shown.startswith("y: f32[16, 32]  min ")
    with np.load(out) as found:
        np.testing.assert_allclose(found["y"], DEMO.reference(**DEMO.inputs()), rtol=1e-4, atol=1e-5)


def test_literal_agrees(demo: Path, artifact: Path) -> None:
    runs = [succeeds("run", artifact, "--random-inputs", 7, "--json", *flags).json for flags in ([], ["--literal"])]
    (merged,), (literal,) = (run["outputs"] for run in runs)
    for figure in ("min", "max", "mean"):
        assert merged[figure] == pytest.approx(literal[figure], rel=1e-4, abs=1e-6)
    assert merged["finite"] and literal["finite"]


def test_run_profiles(artifact: Path) -> None:
    shown = succeeds("run", artifact, "--random-inputs", 0, "--profile").out
    assert "attention/Softmax" in shown
    profile = succeeds("run", artifact, "--random-inputs", 0, "--profile", "--json").json["profile"]
    assert "attention/Softmax" in json.dumps(profile)


# bench


def test_bench(demo: Path, artifact: Path) -> None:
    found = succeeds("bench", artifact, "--runs", 5, "--json").json
    latency = found["latency_ms"]
    assert found["runs"] == 5 and 0 < latency["min"] <= latency["median"] <= latency["p90"]
    assert found["runs_per_second"] > 0
    shown = succeeds("bench", artifact, "--seconds", 0.01, "--inputs", demo.with_name("x.npz"), "--bound").out
    assert "median" in shown and "throughput" in shown
    assert headrace("bench", artifact, "--runs", 0).code == 2


# plan


def test_plan_says_what_becomes_of_every_op(demo: Path) -> None:
    shown = succeeds("plan", demo).out
    assert "20 supported" in shown and "runs on the device as: matmul 6" in shown
    assert "runs on the host: nothing" in shown
    found = succeeds("plan", demo, "--json").json
    assert sum(row["count"] for row in found["rows"]) == 20
    assert found["device_ops"]["whole"]["softmax"] == 1


def test_plan_counts_calls_of_shared_layers(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(gpt(3).SerializeToString())
    assert succeeds("plan", tmp_path / "m.onnx", "--json").json["device_ops"]["whole"]["softmax"] == 3


def test_plan_without_shapes(tmp_path: Path) -> None:
    x = helper.make_tensor_value_info("x", 1, ["batch", 4])
    proto = model([helper.make_node("Relu", ["x"], ["y"], name="relu")], [x], ["y"])
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    found = succeeds("plan", tmp_path / "m.onnx", "--json").json
    assert found["rows"][0]["op_type"] == "Relu" and "--dim batch=1" in found["note"]


# compare


@pytest.mark.parametrize("reference", ["onnx", "auto"])
def test_compare_at_every_level(demo: Path, reference: str) -> None:
    flags = ("--inputs", demo.with_name("x.npz"), "--reference", reference)
    found = succeeds("compare", demo, *flags, "--all-ops", "--json").json
    assert found["ok"] and set(found["levels"]) == set(found["ops"]) == {"tensor", "dataflow", "runtime"}
    assert all(one["max_rel"] < 1e-5 for outputs in found["levels"].values() for one in outputs.values())
    assert found["first_deviating_op"] is None and found["pass"] is None
    for level, ops in found["ops"].items():
        assert ops["compared"] >= (2 if level == "runtime" else 8), (level, ops)
        assert ops["accumulated"] is ops["isolated"] is None and ops["largest_isolated"]["max_rel"] < 1e-5


def test_compare_with_recorded_outputs(demo: Path) -> None:
    flags = ("--inputs", demo.with_name("x.npz"), "--expected", demo.with_name("y.npz"))
    shown = succeeds("compare", demo, *flags).out
    assert shown.startswith("reference: recorded outputs\n")
    expected = dict(np.load(demo.with_name("y.npz")))
    expected["y"][3, 5] += 1
    np.savez(demo.with_name("y.npz"), **expected)
    result = headrace("compare", demo, *flags, "--reference", "onnx")
    assert result.code == 1 and "DEVIATES at [3, 5]" in result.out and "none deviates" in result.out
    assert "no pass" not in result.out and "pass '" not in result.out  # the reference itself is another
    assert succeeds("compare", demo, *flags, "--tolerance", 2).out.count("  ok") == 3


def test_compare_names_the_first_op_that_deviates(demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong meaning of one op: the op and its place in the model are named, not what depends on it."""
    from headrace.dialects.tensor import meaning

    right = meaning.evaluate

    def wrong(name: str, attrs: Any, *operands: Any) -> Any:
        results = right(name, attrs, *operands)
        return tuple(x + np.float32(0.25) for x in results) if name == "tensor.softmax" else results

    monkeypatch.setattr(meaning, "evaluate", wrong)
    flags = ("--inputs", demo.with_name("x.npz"), "--level", "tensor", "--reference", "onnx", "--json")
    result = headrace("compare", demo, *flags)
    assert result.code == 1
    first = result.json["first_deviating_op"]
    assert first["location"] == "attention/Softmax" and first["op"] == "tensor.softmax"
    assert first["max_abs"] == pytest.approx(0.25, rel=1e-4)


def test_compare_on_integers(tmp_path: Path) -> None:
    proto = model(
        [helper.make_node("Add", ["x", "w"], ["y"], name="add")],
        [info("x", array(3, dtype=np.int64))],
        ["y"],
        {"w": array(3, dtype=np.int64, seed=1)},
    )
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    found = succeeds("compare", tmp_path / "m.onnx", "--random-inputs", 1, "--json").json
    one = found["levels"]["runtime"]["y"]
    assert (one["max_abs"], one["max_rel"], one["ulp"], one["allowed"], one["ok"]) == (0, 0, 0, 0, True)


# devices


def test_devices() -> None:
    shown = succeeds("devices").out
    assert all(name in shown for name in device_names())
    assert [one["name"] for one in succeeds("devices", "--json").json] == list(device_names())


@pytest.mark.parametrize("name", device_names())
def test_every_number_of_a_device_has_its_basis(name: str) -> None:
    found = succeeds("devices", name, "--json").json
    assert len(found["numbers"]) > 40
    for row in found["numbers"]:
        assert row["basis"] in ("source", "inferred") and row["text"], row
    assert "pcu.lanes" in succeeds("devices", name).out


# demo


def test_the_demo(tmp_path: Path) -> None:
    shown = succeeds("demo", "--tokens", 16, "--width", 32, "--heads", 2, "-o", tmp_path / "m.sn").out
    for text in ("self-attention", "placed and routed", "from the artifact", "compare", "ok", "attention/Softmax"):
        assert text in shown
    assert (tmp_path / "m.sn").exists()
    assert headrace("demo", "--width", 30, "--heads", 4).code == 2


@pytest.mark.slow
def test_the_example() -> None:
    example = Path(__file__).parents[3] / "examples" / "attention_demo.py"
    done = subprocess.run([sys.executable, example, "plasticine"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "attention/Softmax" in done.stdout


def test_outputs_of_any_name_are_written(tmp_path: Path) -> None:
    x = array(2, 3)
    nodes = [
        helper.make_node("Relu", ["x"], [name], name=f"n{i}")
        for i, name in enumerate(("file", "a/b.c", "allow_pickle"))
    ]
    (tmp_path / "m.onnx").write_bytes(
        model(nodes, [info("x", x)], ["file", "a/b.c", "allow_pickle"]).SerializeToString()
    )
    succeeds("compile", tmp_path / "m.onnx", "-o", tmp_path / "m.sn")
    np.savez(tmp_path / "x.npz", x=x)
    succeeds("run", tmp_path / "m.sn", "--inputs", tmp_path / "x.npz", "-o", tmp_path / "y.npz")
    with np.load(tmp_path / "y.npz") as found:
        assert found.files == ["file", "a/b.c", "allow_pickle"]
        np.testing.assert_array_equal(found["a/b.c"], np.maximum(x, 0))


def test_a_profile_adds_up(artifact: Path) -> None:
    """The times of the ops and of the launches are the whole; every row has a place in the model."""
    profile = succeeds("run", artifact, "--random-inputs", 0, "--profile", "--json").json["profile"]
    launching = profile["launch_seconds"] * profile["clock"]
    assert sum(op["cycles"] for op in profile["ops"]) + launching == pytest.approx(profile["cycles"])
    assert sum(profile["bounds"].values()) == pytest.approx(profile["cycles"])
    assert all(op["location"] for op in profile["ops"])


def test_a_profile_needs_no_weights(demo: Path) -> None:
    path = demo.with_suffix(".sn")
    succeeds("compile", demo, "-o", path, "--shape-only")
    cycles = succeeds("run", path, "--profile", "--json").json["profile"]["cycles"]
    assert cycles > 0 and "attention/Softmax" in succeeds("run", path, "--profile").out
    import headrace as package

    exe = package.compile(demo, shape_only=True)
    assert exe.profile().cycles == cycles
    closed = succeeds("run", path, "--profile", "--model", "analytic", "--json").json["profile"]
    assert closed["model"] == "analytic" and closed["cycles"] == exe.profile(model="analytic").cycles
