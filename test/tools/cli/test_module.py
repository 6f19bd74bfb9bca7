"""PyTorch models on the command line: a class of a file, and `.pt2` files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from command import headrace, succeeds

torch = pytest.importorskip("torch")

FILE = '''\
from __future__ import annotations

import enum
from typing import Literal, Optional

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


class Kind(enum.Enum):
    MEAN = "mean"
    MAX = "max"


class Typed(torch.nn.Module):
    """Pools what its layers give.

    It has a parameter of each kind.
    """

    def __init__(
        self,
        width: int,
        sizes: list[int] = [4],
        span: tuple[float, float] = (0.0, 1.0),
        bias: bool = True,
        act: Literal["relu", "gelu"] = "relu",
        kind: Kind = Kind.MEAN,
        limit: Optional[float] = None,
        dtype: torch.dtype = torch.float32,
        scale=1.5,
    ):
        super().__init__()
        given = (width, sizes, span, bias, act, kind.name, limit, str(dtype), scale)
        if given != (3, [2, 5], (-1.0, 2.0), False, "gelu", "MAX", 0.5, "torch.bfloat16", -2.0):
            raise ValueError(str(given))
        self.linear = torch.nn.Linear(width, sizes[0], bias, dtype=dtype)

    def forward(self, x, *, mask=None, double: bool = False):
        y = self.linear(x)
        y = y if mask is None else y * mask
        return y + y if double else y


class Config:
    pass


class Configured(torch.nn.Module):
    def __init__(self, config: Config):
        super().__init__()


def tiny(width: int = 4, device: str = "cpu"):
    """A small one."""
    return torch.nn.Linear(width, width, device=device)


ready = torch.nn.Linear(3, 3)


class Solver(torch.nn.Module):
    def forward(self, x):
        return torch.linalg.eigh(x)[0]
'''


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
        (["--hidden-size", 4, "--input", "x=3x5"], "mixers.py:16: Mixer cannot be exported"),
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


TYPED = (
    *("--width", 3, "--sizes", "2,5", "--span", "[-1, 2]", "--no-bias", "--act", "gelu", "--kind", "MAX"),
    *("--limit=0.5", "--dtype", "bf16", "--scale", "-2"),
)


def test_flags_have_the_types_of_the_parameters(file: Path) -> None:
    inputs = "--input", "x=2x3xbf16", "--input", "mask=bf16", "--input", "double=true"
    found = succeeds("compile", f"{file}:Typed", *TYPED, *inputs, "--json").json
    assert [(x["shape"], x["dtype"]) for x in found["inputs"]] == [([2, 3], "bf16"), ([], "bf16")]


def test_all_flags_that_are_wrong_are_said_at_once(file: Path) -> None:
    flags = "--sizes", "2,b", "--act", "gel", "--kind", "MIN", "--dtype", "bf17", "--bias", "maybe", "--span", "1,2,3"
    result = headrace("compile", f"{file}:Typed", *flags, "--nme", "x", "--input", "x=2x3")
    assert result.code == 2
    for part in (
        "'b' is not of type int",
        "did you mean 'gelu'?",
        "MEAN|MAX",
        "did you mean 'bf16'?",
        "'maybe' is not of type bool",
        "3 values are given for 2",
        "no parameter for --nme",
        "Typed takes --width, --sizes, --span, --bias, --act, --kind, --limit, --dtype, --scale",
        "needs --width",
    ):
        assert part in result.err, part
    result = headrace("compile", f"{file}:Configured")
    assert result.code == 2 and "no flag makes a Config: write a function in the file" in result.err


def test_help_shows_the_parameters_of_the_class(file: Path) -> None:
    for command in ("compile", "plan"):
        text = succeeds(command, f"{file}:Typed", "--help").out
        for part in ("--input", "Pools what its layers give.", "--bias / --no-bias", "--act relu|gelu", "[required]"):
            assert part in text
    assert "A small one." in succeeds("compile", f"{file}:tiny", "--help").out
    assert "takes no flags" in succeeds("compile", f"{file}:ready", "--help").out
    assert headrace("compile", f"{file}:Type", "--help").code == 2


def test_functions_and_modules_are_models_too(file: Path) -> None:
    found = succeeds("compile", f"{file}:tiny", "--width", 2, "--input", "input=5x2", "--json").json
    assert found["model"] == "Linear" and found["inputs"][0]["shape"] == [5, 2]
    text = succeeds("compile", f"{file}:tiny", "--help").out
    assert "--model-device STR" in text  # as --device is the command's
    result = headrace("plan", f"{file}:tiny", "--model-device", "meta", "--input", "input=5x4")
    assert "parameter 'weight', parameter 'bias' are on device meta" in result.err or result.code == 0
    succeeds("plan", f"{file}:ready", "--input", "input=5x3")
    assert "is made already" in headrace("plan", f"{file}:ready", "--width", 2, "--input", "input=5x3").err
    assert "gives a Kind, no torch.nn.Module" in headrace("plan", f"{file}:Kind", "--value", "mean").err


def test_files_that_hold_models_are_told_from_models(file: Path) -> None:
    for name in ("compile", "plan", "audit"):
        result = headrace(name, file)
        assert result.code == 2 and f"name a class, a function or a module of it: {file}:NAME" in result.err
    result = headrace("run", f"{file}:tiny", "--random-inputs", 0)
    assert result.code == 2 and f"compile it: headrace compile {file}:tiny -o {file.with_name('tiny.sn')}" in result.err


def test_a_plan_lists_what_is_refused(file: Path) -> None:
    result = headrace("plan", f"{file}:Solver", "--input", "x=3x3")
    assert result.code == 2 and "refused" in result.out and "eigh" in result.out


def test_an_exported_program(tmp_path: Path) -> None:
    program = torch.export.export(torch.nn.Embedding(8, 4), (torch.zeros(3, dtype=torch.int64),))
    torch.export.save(program, tmp_path / "e.pt2")
    assert succeeds("plan", tmp_path / "e.pt2", "--json").json["totals"]["supported"] == 1
    succeeds("compile", tmp_path / "e.pt2")
    assert "embedding" in succeeds("run", tmp_path / "e.sn", "--random-inputs", 0).out


def test_every_level_is_compared_with_pytorch(file: Path, tmp_path: Path) -> None:
    flags = "--hidden-size", 4, "--gate", "--input", "x=3x4", "--input", "ids=2xi64"
    found = succeeds("compare", f"{file}:Mixer", *flags, "--random-inputs", 0, "--all-ops", "--json").json
    assert found["reference"] == "PyTorch" and found["ok"] and set(found["levels"]) == {"tensor", "dataflow", "runtime"}
    assert all(found["ops"][level]["compared"] for level in found["levels"])
    result = headrace(
        "compare", f"{file}:Mixer", *flags, "--random-inputs", 0, "--tolerance", 1e-12, "--level", "tensor"
    )
    assert result.code == 1 and "accumulated: first proj/linear (mixers.py:" in result.out
    batch = torch.export.Dim("batch")
    program = torch.export.export(torch.nn.Linear(4, 3), (torch.zeros(3, 4),), dynamic_shapes={"input": {0: batch}})
    torch.export.save(program, tmp_path / "l.pt2")
    torch.save(torch.nn.Linear(4, 3).state_dict(), tmp_path / "w.pt")
    given = "--input", "input=5x4", "--weights", tmp_path / "w.pt", "--random-inputs", 0
    assert "PyTorch" in succeeds("compare", tmp_path / "l.pt2", *given).out
    result = headrace("compare", tmp_path / "l.pt2", "--random-inputs", 0)
    assert result.code == 2 and "unbound dim" in result.err


def test_states_are_compared_from_where_they_begin(file: Path) -> None:
    file.write_text(
        "import torch\n\n\nclass Counts(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.register_buffer('calls', torch.tensor(2.0))\n\n    def forward(self, x):\n"
        "        self.calls += 1\n        return x * self.calls\n"
    )
    found = succeeds("compare", f"{file}:Counts", "--input", "x=3", "--random-inputs", 0, "--json").json
    assert found["ok"] and "calls.next" in found["levels"]["runtime"]
