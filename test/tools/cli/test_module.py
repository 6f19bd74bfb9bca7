"""PyTorch models on the command line: a class of a file, and `.pt2` files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from command import headrace, succeeds

torch = pytest.importorskip("torch")

FILE = """\
import torch


class Mixer(torch.nn.Module):
    def __init__(self, hidden_size: int, scale=1.0, gate: bool = False):
        super().__init__()
        self.proj = torch.nn.Linear(hidden_size, hidden_size)
        self.scale, self.gate = scale, gate

    def forward(self, x, ids=None):
        y = self.proj(x) * self.scale
        y = torch.sigmoid(y) if self.gate else y
        return y if ids is None else y[ids]


class Solver(torch.nn.Module):
    def forward(self, x):
        return torch.linalg.eigh(x)[0]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "mixers.py").write_text(FILE)
    return tmp_path / "mixers.py"


def test_flags_are_the_constructors(file: Path) -> None:
    flags = "--hidden-size", 4, "--gate", "--scale=2", "--input", "x=3x4", "--input", "ids=2xi64"
    found = succeeds("compile", f"{file}:Mixer", *flags, "--json").json
    assert found["artifact"] == str(file.with_name("Mixer.sn")) and found["model"] == "Mixer"
    assert [(x["name"], x["shape"], x["dtype"]) for x in found["inputs"]] == [("x", [3, 4], "f32"), ("ids", [2], "i64")]
    plan = succeeds("plan", f"{file}:Mixer", *flags, "--json").json
    assert plan["totals"]["refused"] == 0 and any("sigmoid" in row["op_type"] for row in plan["rows"])


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        (["--hiden-size", 4, "--input", "x=3x4"], "did you mean '--hidden-size'?"),
        (["--input", "x=3x4"], "needs --hidden-size"),
        (["--hidden-size", "wide", "--input", "x=3x4"], "'wide' is not of type int"),
        (["--hidden-size", 4], "needs the shape of input 'x'"),
        (["--hidden-size", 4, "--input", "y=3x4"], "has no input 'y'"),
        (["--hidden-size", 4, "--input", "x=3x4xf31"], "did you mean"),
        (["--hidden-size", 4, "--input", "x=3x5"], "mixers.py:11: Mixer cannot be exported"),
        (["--hidden-size", 4, "--input", "x=3x4", "--dim", "n=3"], "beside a PyTorch program"),
    ],
)
def test_mistakes_are_explained(flags: list[Any], part: str, file: Path) -> None:
    result = headrace("compile", f"{file}:Mixer", *flags)
    assert result.code == 2 and part in result.err


def test_what_is_no_model_is_said(file: Path) -> None:
    assert "did you mean 'Mixer'?" in headrace("compile", f"{file}:Mixr").err
    assert "there is no file" in headrace("plan", f"{file.with_name('none.py')}:Mixer").err
    file.write_text("1 / 0\n")
    result = headrace("compile", f"{file}:Mixer")
    assert result.code == 2 and "cannot be run: ZeroDivisionError" in result.err and "mixers.py:1" in result.err


def test_a_plan_lists_what_is_refused(file: Path) -> None:
    result = headrace("plan", f"{file}:Solver", "--input", "x=3x3")
    assert result.code == 2 and "refused" in result.out and "eigh" in result.out


def test_an_exported_program(tmp_path: Path) -> None:
    program = torch.export.export(torch.nn.Embedding(8, 4), (torch.zeros(3, dtype=torch.int64),))
    torch.export.save(program, tmp_path / "e.pt2")
    assert succeeds("plan", tmp_path / "e.pt2", "--json").json["totals"]["supported"] == 1
    succeeds("compile", tmp_path / "e.pt2")
    assert "embedding" in succeeds("run", tmp_path / "e.sn", "--random-inputs", 0).out
