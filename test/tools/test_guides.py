"""The examples of docs/guides.md do what the guide says."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from types import ModuleType

import onnx
import pytest

from headrace.passes.infra import registry
from headrace.tools import opt, run_lines
from headrace.tools.cli import execute
from headrace.tools.demo import Attention
from headrace.tools.opt import driver
from headrace.tools.opt.arguments import arguments

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "guides.md").read_text(encoding="utf-8")


def block(before: str, language: str) -> str:
    """The code block of a language that follows a line of the guide."""
    found = re.search(rf"```{language}\n(.*?)^```", GUIDE[GUIDE.index(before) :], re.S | re.M)
    assert found is not None
    return found[1]


@pytest.fixture
def the_pass(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The pass of the guide, known to the driver."""
    (tmp_path / "multiply_by_inverse.py").write_text(block("`passes/tensor/multiply_by_inverse.py`:", "python"))
    package = "headrace_guide"
    module = ModuleType(package)
    module.__path__ = [str(tmp_path)]
    monkeypatch.setitem(sys.modules, package, module)
    known = {**registry.available(), **registry.passes_in(tmp_path, package)}
    assert "multiply-by-inverse" in known
    monkeypatch.setattr(registry, "available", lambda: known)
    monkeypatch.setattr(driver, "available", lambda: known)


@pytest.mark.usefixtures("the_pass")
def test_the_pass_and_its_test(tmp_path: Path) -> None:
    path = tmp_path / "multiply_by_inverse.mlir"
    path.write_text(block("`test/passes/tensor/multiply_by_inverse.mlir`:", "mlir"))
    lines = run_lines.substituted(path)
    assert len(lines) == 2
    for line in lines:
        code, shown = run_lines.run_line(line)
        assert code == 0, shown
        assert run_lines.run_line(re.sub(r"-p \S+", "", line))[0] != 0, f"passes without its pass: {line}"


def test_look_inside_a_compilation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its commands run, and the last one ends in the artifact that the first one wrote."""
    monkeypatch.chdir(tmp_path)
    onnx.save(Attention(tokens=16, width=16, heads=2).model(), "m.onnx")
    artifacts: list[bytes] = []
    for line in block("## Look inside", "").splitlines():
        name, *words = shlex.split(line)
        code = opt.run(words) if name == "headrace-opt" else execute(words)
        assert code == 0, line
        artifacts += [Path("m.sn").read_bytes()]
    assert len(artifacts) == 5 and len(set(artifacts)) == 1
    assert Path("passes/16.fuse-stages.mlir").exists() and Path("trace.json").exists()


def test_when_a_pass_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its commands do what it shows."""
    title = "## When a pass is wrong"
    section = GUIDE[GUIDE.index(title) : GUIDE.index("## Read a failure")]
    monkeypatch.chdir(tmp_path)
    Path("swap.py").write_text(block(title, "python"))
    Path("x.mlir").write_text(block(title, "mlir"))
    for line in re.findall(r"```\n(headrace.*?)\n```\n", section):
        name, *words = shlex.split(line)
        code = opt.run(words) if name == "headrace-opt" else execute(words)
        assert code == (name == "headrace-opt"), line
    shown = capsys.readouterr()
    shown_lines = {" ".join(line.split()) for line in (shown.out + shown.err).splitlines()}
    for line in re.findall(r"^    (?! )(.+)$", re.sub(r"```.*?```", "", section, flags=re.S), re.M):
        part = " ".join(line.removesuffix("…").split())
        assert part == "" or any(part in one for one in shown_lines), line
    assert Path("small.mlir").read_text().count(" = tensor.") == 2


def test_files_and_flags_that_it_names_are_there() -> None:
    for name in set(re.findall(r"`((?:dialects|passes|frontends|runtime|test|docs)/[\w./]+?\.(?:py|md|mlir))`", GUIDE)):
        assert (ROOT / name).exists() or "multiply_by_inverse" in name, name
    flags = set(re.findall(r"--[a-z][a-z-]+", GUIDE))
    texts = "".join(p.read_text() for p in (ROOT / "tools").rglob("*.py")) + "--check-prefixes --fix"
    assert [flag for flag in flags if flag not in texts] == []


def test_commands_parse() -> None:
    """The lines that call the driver have flags that it knows."""
    for text in re.findall(r"^headrace-opt .*", GUIDE, re.M):
        arguments().parse_args(shlex.split(text.partition("  #")[0])[1:])
