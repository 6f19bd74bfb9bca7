"""Weights from files and mappings: by the module's names, all that is wrong with them at once, and never copied."""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from command import headrace as command
from command import succeeds

import headrace
from headrace import CompileError
from headrace.compiler import import_model

torch: Any = pytest.importorskip("torch")
nn: Any = torch.nn


class Tied(nn.Module):
    """A table of words that is read and written with."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(8, 4)
        self.norm = nn.BatchNorm1d(4)
        self.head = nn.Linear(4, 8, bias=False)
        self.head.weight = self.table.weight

    def forward(self, x: Any) -> Any:
        return self.head(self.norm(self.table(x)))


def tied(seed: int) -> Any:
    torch.manual_seed(seed)
    module = Tied().eval()
    module.norm.running_mean.normal_()
    return module


def write_safetensors(path: Path, tensors: dict[str, Any]) -> None:
    header: dict[str, Any] = {}
    data = b""
    for name, tensor in tensors.items():
        part = tensor.contiguous().view(torch.uint8).numpy().tobytes() if tensor.dim() else tensor.numpy().tobytes()
        kind = {"torch.float32": "F32", "torch.int64": "I64", "torch.bfloat16": "BF16"}[str(tensor.dtype)]
        span = [len(data), len(data) + len(part)]
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": span}
        data += part
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def saved(module: Any, folder: Path, kind: str) -> Any:
    """The state dict of a module as it is given: a mapping or a file."""
    state = module.state_dict()
    path = folder / f"weights{kind}"
    if kind == "mapping":
        return state
    if kind == "folder":  # as large models come
        for part, names in enumerate((list(state)[:2], list(state)[2:])):
            write_safetensors(folder / f"model-{part}.safetensors", {name: state[name] for name in names})
        return folder
    if kind == ".safetensors":
        write_safetensors(path, {name: x for name, x in state.items() if name != "head.weight"})
    else:
        torch.save({"model": state, "epoch": 3} if kind == ".pth" else state, path)
    return path


@pytest.mark.parametrize("kind", ["mapping", ".pt", ".pth", ".safetensors", "folder"])
def test_weights_are_those_that_are_given(kind: str, tmp_path: Path) -> None:
    own, other, x = tied(0), tied(1), torch.randint(0, 8, (5,))
    before = own.table.weight.clone()
    executable = headrace.compile(own, example_inputs=(x,), weights=saved(other, tmp_path, kind))
    with torch.no_grad():
        torch.testing.assert_close(executable(x), other(x), rtol=1e-4, atol=1e-5)
    assert torch.equal(own.table.weight, before)


@pytest.mark.parametrize("kind", [".pt", ".safetensors"])
def test_weights_of_a_file_are_mapped(kind: str, tmp_path: Path) -> None:
    """What the program holds lies where the file is mapped, whatever made the mapping."""
    path = saved(tied(1), tmp_path, kind)
    store = import_model(tied(0), example_inputs=(torch.zeros(5, dtype=torch.int64),), weights=path).store
    arrays = {name: store.array(name) for name in store}
    spans = [
        line.split()[0].split("-") for line in Path("/proc/self/maps").read_text().splitlines() if str(path) in line
    ]
    assert spans and {"table.weight", "norm.running_mean"} <= set(arrays)
    for name, array in arrays.items():
        begin = array.__array_interface__["data"][0]
        assert any(int(a, 16) <= begin < begin + array.nbytes <= int(b, 16) for a, b in spans), name


def test_weights_of_a_mapping_are_views() -> None:
    state = tied(1).state_dict()
    store = import_model(tied(0), example_inputs=(torch.zeros(5, dtype=torch.int64),), weights=state).store
    assert all(store.array(name).__array_interface__["data"][0] == state[name].data_ptr() for name in store)


def test_a_module_on_the_meta_device_takes_weights(tmp_path: Path) -> None:
    other, x = tied(1), torch.randint(0, 8, (5,))
    with torch.device("meta"):
        module = Tied().eval()
    executable = headrace.compile(module, example_inputs=(x,), weights=saved(other, tmp_path, ".pt"))
    with torch.no_grad():
        torch.testing.assert_close(executable(x), other(x), rtol=1e-4, atol=1e-5)
    assert module.table.weight.device.type == "meta"
    assert headrace.compile(module, example_inputs=(x,), shape_only=True).profile().seconds > 0

    class Position(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("steps", torch.arange(4), persistent=False)

        def forward(self, x: Any) -> Any:
            return x + self.steps

    with torch.device("meta"):
        position = Position()
    with pytest.raises(CompileError, match="buffer 'steps' is on the meta device, and no state dict holds it"):
        headrace.compile(position, example_inputs=(torch.ones(4),), weights={})


def test_everything_wrong_is_said_at_once(tmp_path: Path) -> None:
    state = tied(1).state_dict()
    state["tabel.weight"] = state.pop("table.weight")
    del state["head.weight"]
    state["norm.bias"] = torch.ones(5)
    state["norm.weight"] = torch.ones(4, dtype=torch.int64)
    with pytest.raises(CompileError) as caught:
        headrace.compile(tied(0), example_inputs=(torch.zeros(5, dtype=torch.int64),), weights=state)
    text = str(caught.value)
    assert [one.code for one in caught.value.diagnostics] == [
        *["missing-weight"] * 2,
        "unknown-weight",
        *["bad-weight"] * 2,
    ]
    assert "the module has no 'tabel.weight'\n  fix: did you mean 'table.weight'?" in text
    assert "'norm.bias' is float32[5] and the module has float32[4]" in text
    assert "'norm.weight' is int64[4] and the module has float32[4]" in text


def test_names_with_something_before_them() -> None:
    state = {f"module.{name}": x for name, x in tied(1).state_dict().items()}
    with pytest.raises(CompileError) as caught:
        headrace.compile(tied(0), example_inputs=(torch.zeros(5, dtype=torch.int64),), weights=state)
    assert "did they call it 'module.table.weight'?" in str(caught.value)


def test_files_that_are_no_state_dict(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return print, ("ran",)

    torch.save({"w": Evil()}, tmp_path / "evil.pt")
    torch.save([torch.ones(2)], tmp_path / "list.pt")
    torch.save(tied(0).state_dict(), tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    (tmp_path / "text.pt").write_text("no")
    (tmp_path / "w.txt").write_text("no")
    for name in ("evil.pt", "list.pt", "old.pt", "text.pt", "w.txt", "none.pt"):
        with pytest.raises(CompileError) as caught:
            headrace.compile(tied(0), example_inputs=(torch.zeros(5, dtype=torch.int64),), weights=tmp_path / name)
        assert caught.value.code in ("bad-weights-file", "no-such-file") and name in str(caught.value)


FILE = """\
import torch


class Net(torch.nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.linear = torch.nn.Linear(width, width)

    def forward(self, x):
        return self.linear(x)
"""


def test_on_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text(FILE)
    linear = nn.Linear(3, 3)
    torch.save({f"linear.{name}": x for name, x in linear.state_dict().items()}, tmp_path / "w.pt")
    model = f"{tmp_path / 'nets.py'}:Net"
    succeeds("compile", model, "--width", 3, "--input", "x=2x3", "--weights", tmp_path / "w.pt")
    x = torch.randn(2, 3)
    found = headrace.load(tmp_path / "Net.sn")({"x": x.numpy()})
    with torch.no_grad():
        torch.testing.assert_close(torch.from_numpy(next(iter(found.values()))), linear(x), rtol=1e-4, atol=1e-5)
    result = command("compile", model, "--width", 4, "--input", "x=2x4", "--weights", tmp_path / "w.pt")
    assert result.code == 2 and "'linear.weight' is float32[3, 3] and the module has float32[4, 4]" in result.err
