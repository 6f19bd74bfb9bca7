"""Bad input, through the command line: exit code 2, no traceback, a message that says what, where and what to do, and
nothing left behind."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from command import Result, headrace, succeeds
from onnx import helper
from onnx_models import FLOAT, array, info, model

X = array(2, 8)
W = array(8, 4, seed=1)


def node(op: str, inputs: list[str], outputs: list[str], name: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs, outputs, name=name, **attributes)


def small() -> onnx.ModelProto:
    """y = relu(x @ w)"""
    nodes = [node("MatMul", ["x", "w"], ["xw"], "layer/MatMul"), node("Relu", ["xw"], ["y"], "layer/Relu")]
    return model(nodes, [info("x", X)], ["y"], {"w": W})


def save(folder: Path, proto: onnx.ModelProto, name: str = "m.onnx") -> Path:
    path = folder / name
    path.write_bytes(proto.SerializeToString())
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in which no artifact, and no part of one, may be left."""
    yield tmp_path
    left = [p.name for p in tmp_path.rglob("*") if p.suffix in (".sn", ".tmp") or p.name == "out.npz"]
    assert left == [n for n in left if n in ("good.sn", "bad.sn")]


def refused(*arguments: object, says: tuple[str, ...]) -> Result:
    """A run that must be refused; the message holds all of `says`."""
    result = headrace(*arguments)
    assert result.code == 2, result
    assert "Traceback" not in result.err and "internal error" not in result.err
    for text in says:
        assert text in result.err, f"{text!r} is not in:\n{result.err}"
    return result


def refused_compile(path: Path, *options: object, says: tuple[str, ...]) -> Result:
    return refused("compile", path, "-o", path.parent / "m.sn", *options, says=says)


# Models


def test_no_such_file(folder: Path) -> None:
    refused_compile(folder / "gone.onnx", says=("no-such-file", "gone.onnx"))


@pytest.mark.parametrize(
    "content", [b"", b"hello\n" * 99, b"\x89PNG\r\n\x1a\n" + bytes(99)], ids=["empty", "text", "png"]
)
def test_not_onnx(folder: Path, content: bytes) -> None:
    path = folder / "m.onnx"
    path.write_bytes(content)
    refused_compile(path, says=("error[bad-onnx-file]", "'m.onnx' is not a complete ONNX model", "why:", "fix:"))


def test_truncated(folder: Path) -> None:
    path = save(folder, small())
    path.write_bytes(path.read_bytes()[:-40])
    refused_compile(path, says=("error[bad-onnx-file]", "why:", "fix: check that the file was fully written"))


def test_another_kind_of_file(folder: Path) -> None:
    path = folder / "model.pb"
    path.write_bytes(b"x")
    refused_compile(path, says=("unknown-format", ".pb", "fix: give a file of kind .onnx"))


def test_cycle(folder: Path) -> None:
    nodes = [
        node("Add", ["x", "b"], ["a"], "first"),
        node("Relu", ["a"], ["b"], "second"),
        node("Relu", ["b"], ["y"], "third"),
    ]
    path = save(folder, model(nodes, [info("x", X)], ["y"]))
    refused_compile(path, says=("error[cyclic-graph] at first", "first → second → first"))


def test_dangling_input(folder: Path) -> None:
    path = save(folder, model([node("Add", ["x", "ghost"], ["y"], "sum")], [info("x", X)], ["y"]))
    refused_compile(path, says=("error[dangling-input] at sum", "nothing makes 'ghost'"))


def five_unknown() -> onnx.ModelProto:
    ops = ("Foo", "Bar", "Baz", "Qux", "Quux")
    names = ["x", *(f"v{i}" for i in range(4)), "y"]
    nodes = [node(op, [names[i]], [names[i + 1]], f"block/{op.lower()}") for i, op in enumerate(ops)]
    return model(nodes, [info("x", X)], ["y"])


def test_five_unknown_ops(folder: Path) -> None:
    path = save(folder, five_unknown())
    said = tuple(f"error[unsupported-op] at block/{op}" for op in ("foo", "bar", "baz", "qux", "quux"))
    refused_compile(path, says=said)
    plan = headrace("plan", path, "--json")
    assert plan.code == 2
    rows = plan.json["rows"]
    assert [(row["status"], row["nodes"]) for row in rows] == [
        ("refused", [f"block/{name}"]) for name in sorted(("foo", "bar", "baz", "qux", "quux"))
    ]
    shown = headrace("plan", path)
    assert shown.code == 2 and "5 refused" in shown.out


def external(folder: Path, entries: Mapping[str, str]) -> Path:
    """The small model with its weight in another file."""
    proto = small()
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    return save(folder, proto)


def test_missing_external_data(folder: Path) -> None:
    path = external(folder, {"location": "weights.bin"})
    refused_compile(path, says=("error[", "at w", "weights.bin"))
    succeeds("compile", path, "-o", folder / "good.sn", "--shape-only")


@pytest.mark.parametrize("place", ["../secret.bin", "/etc/passwd"])
def test_external_data_outside(folder: Path, place: str) -> None:
    inside = folder / "inside"
    inside.mkdir()
    (folder / "secret.bin").write_bytes(W.tobytes())
    refused_compile(external(inside, {"location": place}), says=("error[", "at w", place))


def test_external_data_past_the_end(folder: Path) -> None:
    (folder / "weights.bin").write_bytes(W.tobytes())
    path = external(folder, {"location": "weights.bin", "offset": "64", "length": str(W.nbytes)})
    refused_compile(path, says=("error[", "at w", "weights.bin", "128"))


def dynamic() -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", FLOAT, ["batch", 8])
    return model([node("MatMul", ["x", "w"], ["y"], "mm")], [x], ["y"], {"w": W})


def test_unbound_dim(folder: Path) -> None:
    path = save(folder, dynamic())
    refused_compile(path, says=("error[unbound-dim] at x", "'batch'", "fix: --dim batch=1"))
    refused_compile(path, "--dim", "bach=2", says=("unknown-dim", "did you mean 'batch'?"))
    refused_compile(path, "--input", "x=2x9", says=("bad-input-shape", "2x9"))
    refused_compile(path, "--dim", "batch=2,4", says=("not-supported", "--dim batch=2"))
    succeeds("compile", path, "-o", folder / "good.sn", "--dim", "batch=3")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--dim", "batch"], "expected NAME=VALUE"),
        (["--dim", "batch=x"], "is not a size"),
        (["--dim", "batch=1", "--dim", "batch=2"], "given twice"),
        (["--input", "x=2*8"], "is not a shape"),
        (["--state", "x"], "expected NAME=VALUE"),
        (["--state", "z=y"], "no input 'z'"),
        (["--state", "x=y"], "changes its type"),
        (["--precision", "bf16", "--passes", "default"], "beside a precision"),
        (["--precision", "fp33"], "did you mean 'fp32'?"),
        (["--runs", "4"], "fix: --opt throughput"),
        (["--device", "sn4l"], "did you mean 'sn40l'?"),
        (["--device", "none.toml"], "cannot be read"),
        (["--passes", "canonicalise"], "did you mean 'canonicalize'?"),
        (["--passes", "canonicalize"], "run the pipeline to its end"),
        (["--passes", "tile{"], "cannot read the pipeline"),
        (["--weights", "w.npz"], "fix: give weights with .mlir models and PyTorch modules only"),
        (["--nonsense"], "--nonsense"),
    ],
)
def test_bad_options(folder: Path, options: list[str], says: str) -> None:
    refused_compile(save(folder, small()), *options, says=(says,))


def test_unknown_command() -> None:
    refused("comple", says=("did you mean 'compile'?",))


def test_errors_are_json_too(folder: Path) -> None:
    result = refused_compile(save(folder, five_unknown()), "--json", says=())
    errors = json.loads(result.out)["errors"]
    assert [one["code"] for one in errors] == ["unsupported-op"] * 5
    assert {one["location"] for one in errors} == {f"block/{n}" for n in ("foo", "bar", "baz", "qux", "quux")}


# Devices


TINY = """base = "plasticine"
basis = "inferred: made up for a test"
[ddr]
bytes = 1024
"""


def test_a_model_that_does_not_fit(folder: Path) -> None:
    (folder / "tiny.toml").write_text(TINY)
    nodes = [node("MatMul", ["x", "large"], ["h"], "one"), node("MatMul", ["h", "larger"], ["y"], "two")]
    weights = {"large": array(8, 32), "larger": array(32, 64)}
    path = save(folder, model(nodes, [info("x", X)], ["y"], weights))
    says = ("error[out-of-memory]", "1024 bytes of 'tiny'", "largest tensors: larger", "8192 bytes", "large", "fix:")
    refused_compile(path, "--device", folder / "tiny.toml", says=says)


def test_a_device_file_that_is_wrong(folder: Path) -> None:
    (folder / "tiny.toml").write_text(TINY.replace("bytes", "byts"))
    says = ("error[bad-device]", "unknown key 'ddr.byts'", "did you mean 'bytes'?")
    refused_compile(save(folder, small()), "--device", folder / "tiny.toml", says=says)
    refused("devices", folder / "tiny.toml", says=says)
    refused("devices", "sn4l", says=("did you mean 'sn40l'?",))


# IR


def test_malformed_ir(folder: Path) -> None:
    path = folder / "m.mlir"
    path.write_text("func.func @main(%x : tensor<2xf32>) -> tensor<2xf32> {\n  %y = tensor.nonsense %x\n}\n")
    refused_compile(path, says=(f"error[bad-ir] at {path}:2:3:", "tensor.nonsense"))


def test_ir_that_does_not_verify(folder: Path) -> None:
    path = folder / "m.mlir"
    path.write_text("func.func @main(%x : tensor<2xf32>) {\n  func.return %x : tensor<2xf32>\n}\n")
    refused_compile(path, says=(f"{path}:2:3",))
    path.write_bytes(b"\xff\xfe\x00")
    refused_compile(path, says=("is not text",))
    refused_compile(folder / "gone.mlir", says=("no-such-file",))


# Artifacts and runs


@pytest.fixture
def artifact(folder: Path) -> Path:
    path = folder / "good.sn"
    succeeds("compile", save(folder, small()), "-o", path)
    np.savez(folder / "x.npz", x=X)
    return path


def refused_run(path: Path, *options: object, says: tuple[str, ...]) -> Result:
    return refused("run", path, "--inputs", path.parent / "x.npz", "-o", path.parent / "out.npz", *options, says=says)


@pytest.mark.parametrize(
    ("inputs", "says"),
    [
        ({"z": X}, ("no input 'z'", "known: x", "input 'x' of f32[2, 8] is missing")),
        ({"x": X.T}, ("input 'x' is f32[8, 2], expected f32[2, 8]", "fix:")),
        ({"x": X.astype(np.float64)}, ("input 'x' is f64[2, 8], expected f32[2, 8]", "fix: x.astype('float32')")),
        ({"x": X[0]}, ("input 'x' is f32[8], expected f32[2, 8]",)),
    ],
    ids=["name", "shape", "dtype", "rank"],
)
def test_wrong_inputs(artifact: Path, inputs: dict[str, Any], says: tuple[str, ...]) -> None:
    np.savez(artifact.with_name("x.npz"), **inputs)
    refused_run(artifact, says=says)


def test_files_of_inputs_that_cannot_be_read(artifact: Path) -> None:
    refused("run", artifact, "--inputs", artifact.with_name("gone.npz"), says=("no-such-file", "gone.npz"))
    for content in (b"", b"not a zip file", artifact.with_name("x.npz").read_bytes()[:-30]):
        artifact.with_name("x.npz").write_bytes(content)
        refused_run(artifact, says=("error[bad-inputs]", "x.npz", "fix: give an .npz file"))


def test_pickles_are_not_loaded(artifact: Path) -> None:
    np.savez(artifact.with_name("x.npz"), x=np.array([{"a": 1}], dtype=object))
    refused_run(artifact, says=("error[bad-inputs]",))


def test_a_truncated_artifact(artifact: Path) -> None:
    data = artifact.read_bytes()
    bad = artifact.with_name("bad.sn")
    for keep in (0, 4, 100, len(data) // 2, len(data) - 1):
        bad.write_bytes(data[:keep])
        refused_run(bad, says=("error[bad-artifact]", "bad.sn", "fix:"))


def test_an_altered_artifact(artifact: Path) -> None:
    """A changed byte anywhere is noticed: header, program, weights."""
    data = artifact.read_bytes()
    bad = artifact.with_name("bad.sn")
    for at in (*range(9, len(data), max(1, len(data) // 40)), len(data) - 1):
        changed = bytearray(data)
        changed[at] ^= 0x20
        bad.write_bytes(changed)
        refused_run(bad, says=("error[",))


def test_an_artifact_of_another_schema(artifact: Path) -> None:
    data = artifact.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    bad = artifact.with_name("bad.sn")
    for schema, says in (("9999", "newer"), ("0", "older")):
        header["__metadata__"]["schema"] = schema
        text = json.dumps(header).encode()
        bad.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + size :])
        refused_run(bad, says=("error[artifact-schema]", f"schema {schema}", f"the artifact is {says}", "fix:"))


def test_an_artifact_without_weights(folder: Path) -> None:
    path = folder / "good.sn"
    succeeds("compile", save(folder, small()), "-o", path, "--shape-only")
    np.savez(folder / "x.npz", x=X)
    refused_run(path, says=("error[missing-weight]", "without its weights", "fix:"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written(folder: Path) -> None:
    path = save(folder, small())
    folder.chmod(0o555)
    try:
        refused_compile(path, says=("error[cannot-write]",))
    finally:
        folder.chmod(0o755)


def test_output_paths_that_cannot_be(folder: Path) -> None:
    path = save(folder, small())
    refused("compile", path, "-o", folder / "none" / "m.sn", says=("error[cannot-write]", "there is no folder", "fix:"))
    refused("compile", path, "-o", folder, says=("error[cannot-write]", "is a folder"))
    refused("compile", path, "-o", "/dev/null", says=("error[cannot-write]", "is not a regular file"))
    refused("compile", path, "-o", path, says=("error[cannot-write]", "is also what is read"))
    refused("compile", path, "-o", "/proc/m.sn", says=("error[cannot-write]",))
    (folder / "file").write_text("")
    refused("compile", path, "-o", folder / "file" / "m.sn", says=("error[cannot-write]",))
    succeeds("compile", path, "-o", folder / "good.sn")
    np.savez(folder / "x.npz", x=X)
    out = folder / "none" / "out.npz"
    refused("run", folder / "good.sn", "--inputs", folder / "x.npz", "-o", out, says=("error[cannot-write]",))


def test_an_artifact_survives_a_failed_compile(artifact: Path) -> None:
    before = artifact.read_bytes()
    refused("compile", save(artifact.parent, five_unknown()), "-o", artifact, says=("unsupported-op",))
    assert artifact.read_bytes() == before


def test_a_model_is_no_artifact(artifact: Path) -> None:
    model = artifact.with_name("m.onnx")
    says = ("is a model, not an artifact", f"fix: compile it: headrace compile {model}")
    refused("run", model, "--random-inputs", 0, says=says)
    refused("bench", model, says=says)


def test_phases_that_cannot_be_written(folder: Path) -> None:
    (folder / "file").write_text("")
    for place in ("file", "file/phases"):
        flags = ("--dump-phases", folder / place)
        refused_compile(save(folder, small()), *flags, says=("error[cannot-write]", "--dump-phases"))


def test_run_wants_inputs_once(artifact: Path) -> None:
    refused("run", artifact, says=("give --inputs or --random-inputs",))
    refused("run", artifact, "--inputs", "x.npz", "--random-inputs", 0, says=("give only one of",))


def test_compare_checks_its_files(folder: Path) -> None:
    path = save(folder, small())
    np.savez(folder / "x.npz", x=X, extra=X)
    np.savez(folder / "y.npz", a=X, b=X)
    refused("compare", path, "--inputs", folder / "x.npz", says=("no input 'extra'",))
    np.savez(folder / "x.npz", x=X)
    options = ("--inputs", folder / "x.npz", "--expected", folder / "y.npz")
    refused("compare", path, *options, says=("--expected has no output 'y'",))


def test_the_process_ends_with_the_code(folder: Path) -> None:
    """The installed command, in a process of its own."""
    command = [
        str(Path(sys.executable).with_name("headrace")),
        "compile",
        str(folder / "gone.onnx"),
        "-o",
        str(folder / "m.sn"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "no-such-file" in done.stderr and not done.stdout
    assert "Traceback" not in done.stderr
