"""Programs over several sockets: whole tensors in and out, one process or several, artifacts, state."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import succeeds

import headrace
from headrace.dialects.support.diagnostics import CompileError
from headrace.dialects.support.weights import from_arrays
from headrace.runtime.session import load

MLP = """
builtin.module attributes {tensor.mesh = {dp = 2 : i64, tp = 2 : i64}} {
  func.func @main(%x: tensor<6x16xf32> {tensor.name = "x"}, %s: tensor<6x4xf32> {tensor.name = "past"})
      -> (tensor<6x8xf32>, tensor<6x4xf32>) attributes {
      tensor.result_names = ["y", "present"], tensor.states = [["past", "present"]],
      tensor.shardings = {x = [["dp"], []], y = [["dp"], []], past = [["dp"], ["tp"]], present = [["dp"], ["tp"]]}} {
    %w = tensor.weight "w" : tensor<16x8xf32>
    %v = tensor.weight "v" : tensor<8x8xf32>
    %0 = tensor.socket_slice %w {axis = 1 : i64, axes = ["tp"], sizes = array<i64: 2>, strides = array<i64: 1>}
      : tensor<16x8xf32> -> tensor<16x4xf32>
    %1 = tensor.socket_slice %v {axis = 0 : i64, axes = ["tp"], sizes = array<i64: 2>, strides = array<i64: 1>}
      : tensor<8x8xf32> -> tensor<4x8xf32>
    %2 = tensor.matmul %x, %0 : tensor<6x16xf32>, tensor<16x4xf32> -> tensor<6x4xf32>
    %3 = tensor.add %2, %s : tensor<6x4xf32>, tensor<6x4xf32> -> tensor<6x4xf32>
    %4 = tensor.matmul %3, %1 : tensor<6x4xf32>, tensor<4x8xf32> -> tensor<6x8xf32>
    %5 = tensor.all_reduce %4 {axes = ["tp"], sizes = array<i64: 2>, strides = array<i64: 1>}
      : tensor<6x8xf32> -> tensor<6x8xf32>
    func.return %5, %3 : tensor<6x8xf32>, tensor<6x4xf32>
  }
}
"""
Array = np.ndarray[Any, np.dtype[Any]]
RNG = np.random.default_rng(0)
W, V, X = (RNG.normal(size=shape).astype(np.float32) for shape in ((16, 8), (8, 8), (12, 16)))


def wanted(times: int) -> Array:
    return times * (X @ W) @ V


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mesh") / "mlp.mlir"
    path.write_text(MLP)
    return path


@pytest.fixture(scope="module")
def exe(model: Path) -> Any:
    return headrace.compile(model, weights=from_arrays({"w": W, "v": V}))


@pytest.fixture(scope="module")
def artifact(exe: Any, model: Path) -> Path:
    exe.save(path := model.with_suffix(".sn"))
    return path


def test_whole_tensors_in_and_out_and_state(exe: Any) -> None:
    assert [str(p.type) for p in (*exe.inputs, *exe.outputs)] == ["tensor<12x16xf32>", "tensor<12x8xf32>"]
    exe.reset()
    for times in (1, 2):
        np.testing.assert_allclose(exe({"x": X})["y"], wanted(times), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(exe.state()["past"], 2 * X @ W, rtol=1e-5, atol=1e-5)
    exe.reset({"past": -(X @ W)})
    np.testing.assert_allclose(exe({"x": X})["y"], wanted(0), atol=1e-4)
    with pytest.raises(CompileError, match=r"state 'past' is f32\[6, 4\], expected f32\[12, 8\]"):
        exe.reset({"past": np.zeros((6, 4), np.float32)})
    with pytest.raises(CompileError, match=r"input 'x' is f32\[6, 16\], expected f32\[12, 16\]"):
        exe({"x": X[:6]})


def test_a_clone_has_its_own_state(exe: Any) -> None:
    exe.reset()
    exe({"x": X})
    other = exe.clone()
    np.testing.assert_allclose(other({"x": X})["y"], wanted(1), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(exe({"x": X})["y"], wanted(2), rtol=1e-5, atol=1e-5)


def test_no_views_of_several_memories(exe: Any) -> None:
    with pytest.raises(CompileError, match="no views of the memory of 4 sockets"):
        exe.bind()
    assert {p.name: p.type.shape for p in exe.sockets[3].inputs} == {"x": (6, 16)}


def test_the_artifact_has_each_block_once(artifact: Path) -> None:
    from safetensors import safe_open

    with safe_open(artifact, "numpy") as file:
        names = [name for name in list(file.keys()) if not name.startswith("headrace/")]
        assert sorted(name.rsplit("@", 1)[1] for name in names) == ["0", "0", "1", "1"]  # over tp, not over dp
        assert sum(file.get_tensor(name).size for name in names) == W.size + V.size


@pytest.mark.parametrize("literal", [False, True])
def test_loaded_it_gives_the_same_bits(artifact: Path, exe: Any, literal: bool) -> None:
    exe.reset()
    np.testing.assert_array_equal(load(artifact, literal=literal)({"x": X})["y"], exe({"x": X})["y"])


LAYERS = """
func.func @main(%x: tensor<6x16xf32> {tensor.name = "x"}) -> tensor<6x8xf32> attributes {tensor.result_names = ["y"]} {
  %w = tensor.weight "w" : tensor<16x8xf32>
  %v = tensor.weight "v" : tensor<8x8xf32>
  %0 = tensor.matmul %x, %w : tensor<6x16xf32>, tensor<16x8xf32> -> tensor<6x8xf32>
  %1 = tensor.tanh %0 : tensor<6x8xf32> -> tensor<6x8xf32>
  %2 = tensor.matmul %1, %v : tensor<6x8xf32>, tensor<8x8xf32> -> tensor<6x8xf32>
  func.return %2 : tensor<6x8xf32>
}
"""


def test_runs_follow_each_other_on_all_sockets(tmp_path: Path) -> None:
    (tmp_path / "m.mlir").write_text(LAYERS)
    store = from_arrays({"w": W, "v": V})
    made = headrace.compile(tmp_path / "m.mlir", weights=store, mesh={"tp": 2}, opt="throughput", runs=3)
    made.save(tmp_path / "m.sn")
    inputs = [X[i : i + 6] for i in range(5)]
    for exe in (made, load(tmp_path / "m.sn", literal=True)):
        found = list(exe.stream({"x": x} for x in inputs))
        assert len(found) == 5
        for x, out in zip(inputs, found, strict=True):
            np.testing.assert_allclose(out["y"], np.tanh(x @ W) @ V, rtol=1e-5, atol=1e-5)


def test_blocks_that_do_not_fit_are_refused(artifact: Path, tmp_path: Path) -> None:
    raw = artifact.read_bytes()
    assert raw.count(b"[0,1,0,1]") == 2
    broken = tmp_path / "broken.sn"
    broken.write_bytes(raw.replace(b"[0,1,0,1]", b"[0,1,0,9]"))
    with pytest.raises(CompileError) as found:
        load(broken)
    assert found.value.code == "bad-artifact"


def test_groups_that_do_not_divide_the_mesh_are_refused(tmp_path: Path) -> None:
    (tmp_path / "m.mlir").write_text(
        MLP.replace(
            "sizes = array<i64: 2>, strides = array<i64: 1>}\n      : tensor<6x8xf32>",
            "sizes = array<i64: 8>, strides = array<i64: 1>}\n      : tensor<6x8xf32>",
        )
    )
    made = headrace.compile(tmp_path / "m.mlir", weights=from_arrays({"w": W, "v": V}))
    with pytest.raises(CompileError, match=r"between sockets 0, 1, 2, 3, 4, 5, 6, 7 of 4") as found:
        made({"x": X})
    assert found.value.code == "bad-group"
    made.save(tmp_path / "m.sn")
    with pytest.raises(CompileError, match=r"tensor\.all_reduce is over groups that do not divide 4 sockets"):
        load(tmp_path / "m.sn")


@pytest.mark.parametrize("literal", [(), ("--literal",)])
def test_the_command_line_runs_all_sockets(tmp_path: Path, exe: Any, artifact: Path, literal: tuple[str, ...]) -> None:
    np.savez(tmp_path / "x.npz", x=X)
    succeeds("run", artifact, "--inputs", tmp_path / "x.npz", "-o", tmp_path / "y.npz", *literal)
    exe.reset()
    np.testing.assert_array_equal(np.load(tmp_path / "y.npz")["y"], exe({"x": X})["y"])


@pytest.mark.parametrize("mesh", ["{dp = 2 : i64, tp = 0 : i64}", '{dp = 2 : i64, tp = "2"}', "{}", '"tp"'])
def test_a_mesh_that_is_none_is_refused(tmp_path: Path, mesh: str) -> None:
    (tmp_path / "m.mlir").write_text(MLP.replace("{dp = 2 : i64, tp = 2 : i64}", mesh))
    with pytest.raises(CompileError, match="is a dictionary of axes and their sizes"):
        headrace.compile(tmp_path / "m.mlir", shape_only=True)


RANKS = """
import sys, numpy as np, torch.distributed as dist
from headrace.runtime.session import load
exe = load(sys.argv[1], ranks="gloo")
x = np.load(sys.argv[2])
exe({"x": x})
out = {**exe({"x": x}), **exe.state()}
np.savez(f"{sys.argv[3]}/{dist.get_rank()}.npz", **out)
dist.destroy_process_group()
"""


def test_processes_give_the_bits_of_one(artifact: Path, exe: Any, tmp_path: Path) -> None:
    (tmp_path / "ranks.py").write_text(RANKS)
    np.save(tmp_path / "x.npy", X)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4"]
    subprocess.run(
        [*launch, tmp_path / "ranks.py", artifact, tmp_path / "x.npy", tmp_path],
        check=True,
        capture_output=True,
        timeout=240,
    )
    exe.reset()
    exe({"x": X})
    one = {**exe({"x": X}), **exe.state()}
    for rank in range(4):
        found = np.load(tmp_path / f"{rank}.npz")
        assert sorted(found) == sorted(one)
        for name, array in one.items():
            np.testing.assert_array_equal(found[name], array)


def test_ranks_without_processes_are_refused(artifact: Path) -> None:
    with pytest.raises(CompileError, match="there are no ranks 'mpi'"):
        load(artifact, ranks="mpi")
    with pytest.raises(CompileError, match="there is no group of processes") as found:
        load(artifact, ranks="gloo")
    assert "torchrun" in found.value.fix


@pytest.mark.parametrize(
    ("cut", "says"),
    [
        ('{z = [["tp"]]}', "names 'z', which is no port"),
        ('{x = [["tp"]]}', "of 'x' has 1 dims, it has 2"),
        ('{x = [["ep"], []]}', "names axis 'ep'; the mesh has dp, tp"),
        ('{x = [["tp"], ["tp"]]}', "names axis 'tp' 2 times"),
        ('{past = [["tp"], []]}', "are cut in different ways"),
        ('{x = ["tp", "dp"]}', "is a dictionary of ports"),
        ("3 : i64", "is a dictionary of ports"),
    ],
)
def test_shardings_that_fit_no_port_are_refused(tmp_path: Path, cut: str, says: str) -> None:
    start = MLP.index("{x = [[")
    end = MLP.index("}} {", start)
    path = tmp_path / "bad.mlir"
    path.write_text(MLP[:start] + cut + MLP[end + 1 :])
    with pytest.raises(CompileError, match=says):
        headrace.compile(path, shape_only=True)
