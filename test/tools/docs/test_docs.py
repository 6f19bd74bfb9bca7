"""The generated pages: every example is run, and help on the command line is the same text."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from xml.etree import ElementTree

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Dialect
from xdsl.passes import ModulePass

from headrace.dialects.support.diagnostics import CompileError
from headrace.passes.infra.base import Pass, option
from headrace.passes.pipelines import PHASES
from headrace.tools import docs, opt
from headrace.tools.docs import examples, ops, passes
from headrace.tools.opt import Refused

ROOT = Path(__file__).parents[3]


def help(*arguments: str) -> str:
    out, err = io.StringIO(), io.StringIO()
    assert opt.run(arguments, io.StringIO(), out, err) == 0, err.getvalue()
    return out.getvalue()


def test_everything_is_documented_and_every_example_runs() -> None:
    assert ops.faults() == []
    assert passes.faults() == []


@pytest.mark.parametrize(
    ("docstring", "fault"),
    [
        ("%r = tensor.neg %x : tensor<4xf32> -> tensor<5xf32>", "result type is tensor<5xf32>"),
        ("%r = tensor.neg %x : tensor<4xui8> -> tensor<4xui8>", "tensor.neg"),
        ("%r = tensor.neg %x …", "Unexpected character"),
        ("%r = tensor.abs %x : tensor<4xf32> -> tensor<4xf32>", "no example: tensor.neg"),
    ],
)
def test_a_wrong_example_is_a_fault(docstring: str, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dialect: Dialect = ops.load("tensor")
    negation = next(op for op in dialect.operations if op.name == "tensor.neg")
    monkeypatch.setattr(negation, "__doc__", f"Minus.\n\n        {docstring}\n    ")
    (found,) = ops.faults()
    assert "tensor.neg" in found and fault in found


def test_values_of_an_example_are_what_the_op_computes() -> None:
    module = examples.parse_fragment("%1 = tensor.mul %a, %b : tensor<2x2xf32>, tensor<f32> -> tensor<2x2xf32>")
    assert examples.evaluated(module) == [
        "%a = [[ -3, 0.5],",
        "      [ -1, 2.5]]",
        "%b = 2",
        "%1 = [[-6,  1],",
        "      [-2,  5]]",
    ]
    assert examples.evaluated(examples.parse_fragment("rdu.region @x input tensor<4xf32>")) == []


def test_all_that_is_wrong_with_a_fragment_is_said() -> None:
    one = "%r = tensor.relu %a : tensor<4xi1> -> tensor<4xi1>\n"
    with pytest.raises(Refused) as caught:
        examples.parse_fragment(one + one.replace("%r", "%s"))
    assert [refusal.line for refusal in caught.value.refusals] == [1, 2]


def test_help_of_an_op_is_its_part_of_the_page() -> None:
    page = ops.page("tensor")
    text = help("--help-op", "tensor.softmax")
    for line in text.splitlines()[1:]:
        assert line.strip() in page
    assert "* element types: floats" in text
    assert "The example computes" in text


def test_help_of_a_pass_is_its_part_of_the_page() -> None:
    page = (ROOT / "docs" / "passes.md").read_text(encoding="utf-8")
    text = help("--help-pass", "decompose")
    for line in text.splitlines()[1:]:
        assert line.strip() in page
    assert "Before `decompose`:" in text and "After:" in text
    assert help("--help-pass", "tensor").startswith("tensor is a pipeline:\ncanonicalize,")


@dataclass(frozen=True)
class AddOps(Pass):
    """Adds ops."""

    name: ClassVar[str] = "add-ops"
    count: int = option(1, "how many", low=0, high=9, unit="ops")
    kind: str = option("x", "which", choices=("x", "y"))

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        return False


def test_help_tells_type_default_range_and_unit_of_options(tmp_path: Path) -> None:
    lines = list(passes.pass_lines(AddOps, tmp_path))
    assert "* `count` (int, default 1, 0..9, ops): how many" in lines
    assert "* `kind` (str, default x, one of x | y): which" in lines


def test_every_pass_has_an_executed_example() -> None:
    def without() -> Iterator[str]:
        for name, factory in passes.available().items():
            kind: type[ModulePass] = factory()
            if passes.example(kind, ROOT) is None:
                yield name

    assert list(without()) == []


@pytest.mark.parametrize(
    ("arguments", "near"),
    [
        (["--help-op", "tensor.sofmax"], "did you mean 'tensor.softmax'?"),
        (["--help-op", "softmax"], "did you mean 'tensor.softmax'?"),
        (["--help-pass", "decompos"], "did you mean 'decompose'?"),
        (["--print-ir-after-chang"], "did you mean '--print-ir-after-change'?"),
        (["--helppass=cse"], "did you mean '--help-pass'?"),
        (["-p", "tile{step=3}"], "did you mean 'steps'?"),
    ],
)
def test_a_misspelt_name_is_answered_with_the_nearest(arguments: list[str], near: str) -> None:
    err = io.StringIO()
    assert opt.run(arguments, io.StringIO(), io.StringIO(), err) == 2
    assert near in err.getvalue()


def test_a_stale_page_fails_the_check(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    (tmp_path / "docs").mkdir()
    monkeypatch.setattr(docs, "pages", lambda root: {"one.md": "as the code says\n"})
    assert docs.run(tmp_path, check=True) == 1
    assert "+as the code says" in capsys.readouterr().out
    assert docs.run(tmp_path, check=False) == 0
    assert docs.run(tmp_path, check=True) == 0


def test_an_unknown_op_is_refused() -> None:
    with pytest.raises(CompileError, match="unknown op 'nonsense'"):
        ops.op_help("nonsense")


def test_the_picture_shows_every_pass_of_every_phase() -> None:
    root = ElementTree.fromstring(passes.diagram())
    texts = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    for phase in PHASES.values():
        assert phase.name in texts
        for name in phase.passes:
            assert texts.count(name) == sum(one.passes.count(name) for one in PHASES.values())
