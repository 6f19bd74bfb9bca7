"""Unmodified modules: compiled, run, and compared with PyTorch."""

from collections.abc import Callable
from typing import Any

import command
import numpy as np
import pytest

import headrace
from headrace import CompileError

torch = pytest.importorskip("torch")
nn: Any = torch.nn


class SelfAttention(nn.Module):
    """Attention over heads that are cut out of one projection."""

    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Any) -> Any:
        batch, rows, width = x.shape
        q, k, v = self.qkv(x).reshape(batch, rows, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        weights = torch.softmax(q @ k.transpose(-2, -1) / (width // self.heads) ** 0.5, -1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, rows, width))


class Counter(nn.Module):
    """Counts its calls in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.tensor([3.0]))

    def forward(self, x: Any) -> Any:
        self.calls += 1
        return x * self.calls


class Structured(nn.Module):
    """Takes and gives more than tensors."""

    def forward(self, pair: Any, *, scale: float = 2.0, names: Any = None) -> Any:
        a, b = pair
        return {"sum": a + b, "scaled": [a * scale, None], "n": 3}


def cnn() -> Any:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 10)
    ).eval()


MODULES: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "attention": (SelfAttention, (2, 8, 32)),
    "mlp": (
        lambda: nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Dropout(), nn.Linear(32, 4), nn.Softmax(-1)).eval(),
        (5, 16),
    ),
    "cnn": (cnn, (2, 3, 8, 8)),
    "encoder": (lambda: nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval(), (2, 6, 32)),
}


@pytest.mark.parametrize("name", MODULES)
def test_a_module_computes_what_pytorch_does(name: str) -> None:
    torch.manual_seed(0)
    make, shape = MODULES[name]
    module, x = make(), torch.randn(shape)
    executable = headrace.compile(module, example_inputs=(x,))
    for _ in range(2):
        x = torch.randn(shape)
        with torch.no_grad():
            torch.testing.assert_close(executable(x), module(x), rtol=1e-4, atol=1e-5)


def test_a_buffer_that_changes_is_a_state() -> None:
    module = Counter()
    executable = headrace.compile(module, example_inputs=(torch.ones(2),))
    assert module.calls.item() == 3.0
    assert [executable(torch.ones(2))[0].item() for _ in range(3)] == [4.0, 5.0, 6.0]
    executable.reset()
    assert executable(torch.ones(2))[0].item() == 4.0
    assert executable.state()["calls"].item() == 4.0


def test_structures_go_in_and_out() -> None:
    a, b = torch.ones(2), torch.full((2,), 3.0)
    executable = headrace.compile(Structured(), example_inputs=((a, b),), example_kwargs={"scale": 4.0})
    found = executable((a, b), scale=4.0)
    assert found["sum"].tolist() == [4.0, 4.0] and found["scaled"][0].tolist() == [4.0, 4.0]
    assert found["scaled"][1] is None and found["n"] == 3
    with pytest.raises(CompileError, match="compiled for 4"):
        executable((a, b), scale=5.0)


class Remembers(torch.nn.Module):
    """Assigns a buffer, and uses what it held before."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("last", torch.zeros(4))

    def forward(self, x: Any) -> Any:
        before = self.last
        self.last = before * 0.5 + x
        return before - self.last


def test_buffers_that_parts_of_a_module_assign_are_states() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(Remembers(), torch.nn.Linear(4, 4), Remembers())
    x = torch.randn(4)
    exe = headrace.compile(model, example_inputs=(x,))
    for _ in range(3):
        torch.testing.assert_close(exe(x), model(x).detach(), rtol=1e-5, atol=1e-6)
    assert set(exe.state()) == {"0.last", "2.last"}


def test_keywords_come_in_any_order_and_structures_must_match() -> None:
    class Keywords(nn.Module):
        def forward(self, x: Any, *, a: Any, b: Any) -> Any:
            return x + a - b

    one, five, zero = torch.ones(2), torch.full((2,), 5.0), torch.zeros(2)
    executable = headrace.compile(Keywords(), example_inputs=(one,), example_kwargs={"a": one, "b": one})
    assert executable(one, b=zero, a=five).tolist() == [6.0, 6.0]
    with pytest.raises(CompileError, match="structured otherwise"):
        executable(one, a=five, c=zero)
    with pytest.raises(CompileError, match="compiled for 3 values and is given 2"):
        executable(one, a=five)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_an_artifact_keeps_what_a_buffer_holds_at_first(tmp_path: Any, precision: str) -> None:
    executable = headrace.compile(Counter(), example_inputs=(torch.ones(2),), precision=precision)
    executable(torch.ones(2))
    executable.save(tmp_path / "m.sn")
    loaded = headrace.load(tmp_path / "m.sn")
    x, (y,) = {loaded.inputs[0].name: torch.ones(2).numpy()}, loaded.outputs
    assert [loaded(x)[y.name][0] for _ in range(2)] == [4.0, 5.0]
    assert loaded.clone()(x)[y.name][0] == 4.0
    loaded.reset()
    assert loaded.state()["calls"] == [3.0]
    loaded.reset({"calls": torch.tensor([7.0]).numpy()})
    assert loaded(x)[y.name][0] == 8.0
    loaded.save(tmp_path / "copy.sn")
    assert headrace.load(tmp_path / "copy.sn")(x)[y.name][0] == 4.0
    command.succeeds("audit", tmp_path / "copy.sn")
    np.savez(tmp_path / "x.npz", **x)
    command.succeeds("run", tmp_path / "copy.sn", "--inputs", tmp_path / "x.npz", "-o", tmp_path / "y.npz")
    assert np.load(tmp_path / "y.npz")[y.name][0] == 4.0


def test_an_argument_changed_in_place_is_changed() -> None:
    class Adds(nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            x.add_(y)
            return x.sum()

    x, y = torch.ones(3), torch.ones(3)
    executable = headrace.compile(Adds(), example_inputs=(x.clone(), y))
    assert executable(x, y).item() == 6.0 and x.tolist() == [2.0, 2.0, 2.0]


def test_ops_are_at_their_module_and_line() -> None:
    from headrace.dialects.support.locations import origins
    from headrace.frontends.torch import export, import_program

    imported = import_program(export(SelfAttention(), (torch.randn(1, 4, 32),)))
    found = {text for op in imported.result.module.walk() for text in origins(op)}
    assert any(text.startswith("qkv/linear (test_modules.py:") for text in found)
    assert any(text.startswith("out/linear") for text in found)


def test_mistakes_are_explained() -> None:
    with pytest.raises(CompileError, match="needs example inputs: x"):
        headrace.compile(SelfAttention())

    class Unknown(nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.linalg.inv(x) + torch.special.bessel_j0(x)

    with pytest.raises(CompileError) as caught:
        headrace.compile(Unknown(), example_inputs=(torch.eye(3),))
    assert len(caught.value.diagnostics) == 2  # all at once
    assert all("test_modules.py:" in d.location for d in caught.value.diagnostics)

    class Branches(nn.Module):
        def forward(self, x: Any) -> Any:
            return x if x.sum() > 0 else -x

    with pytest.raises(CompileError, match="Branches cannot be exported") as caught:
        headrace.compile(Branches(), example_inputs=(torch.ones(2),))
    assert "test_modules.py" in str(caught.value)
    with pytest.raises(CompileError, match="beside a PyTorch program"):
        headrace.compile(SelfAttention(), example_inputs=(torch.randn(1, 4, 32),), dims={"n": 1})
