"""A test of a pass fails without the pass: otherwise it tests nothing.

A test that is meant to show that a pass leaves a program alone says so in a line `// Unchanged: why`, or, of the RUN
lines with certain prefixes, `// Unchanged (ONE, OTHER): why`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from xdsl.passes import ModulePass

from headrace.passes.infra import registry
from headrace.tools import run_lines
from headrace.tools.opt import pipelines

ROOT = Path(__file__).parents[2]
PASSES = re.compile(r" (?:-p|--passes)[= ](?:'[^']*'|\"[^\"]*\"|\S+)")
FILES = [
    path
    for path in sorted((ROOT / "test").rglob("*.mlir"))
    if not run_lines.IGNORED & set(path.parts) and PASSES.search(path.read_text(encoding="utf-8"))
]


def may_stay_unchanged(path: Path, line: str) -> bool:
    """Whether a test says of a RUN line that it shows a program that the pass leaves alone."""
    said = re.search(r"^// Unchanged(?: \(([\w, -]+)\))?: \S", path.read_text(encoding="utf-8"), re.M)
    if said is None or said[1] is None:
        return said is not None
    prefixes = {one for names in re.findall(r"--check-prefix(?:es)?[= ](\S+)", line) for one in names.split(",")}
    return prefixes <= {one.strip() for one in said[1].split(",")} and bool(prefixes)


def runs_of(name: str) -> Iterator[tuple[Path, str]]:
    """The RUN lines that run a pass in the files that are named after it."""
    stem = name.replace("-", "_")
    stems = sorted((one.replace("-", "_") for one in registry.available()), key=len, reverse=True)
    for path in FILES:
        whose = next((one for one in stems if path.stem == one or path.stem.startswith(f"{one}_")), "")
        if "passes" not in path.parts or whose != stem:
            continue
        for line in run_lines.substituted(path):
            texts = [run_lines.pipeline(command) for command in run_lines.commands(line) or ()]
            if any(one.name == name for text in texts for one in registry.build(text, pipelines=pipelines())):
                yield path, line


def make_idle(kind: type[ModulePass], monkeypatch: pytest.MonkeyPatch) -> None:
    """Turn a pass into one that does nothing, and of which nobody expects anything."""
    monkeypatch.setattr(kind, "run", lambda self, ctx, module: False)
    monkeypatch.setattr(kind, "ensures", None)


def test_there_are_tests() -> None:
    assert len(FILES) > 30


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.relative_to(ROOT / "test").as_posix())
def test_a_pass_test_fails_without_its_passes(path: Path) -> None:
    for line in run_lines.substituted(path):
        if PASSES.search(line) and not may_stay_unchanged(path, line):
            code, _ = run_lines.run_line(PASSES.sub("", line))
            assert code, f"passes without its pass: {line}"


@pytest.mark.parametrize("name", registry.available())
def test_the_tests_of_a_pass_fail_when_it_does_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = list(runs_of(name))
    assert found, "no RUN line of its tests runs it"
    make_idle(registry.available()[name](), monkeypatch)
    failed = 0
    for path, line in found:
        code, shown = run_lines.run_line(line)
        failed += code != 0
        assert code or may_stay_unchanged(path, line), f"passes although {name} does nothing: {line}"
        assert "Traceback" not in shown, f"{name} does nothing, and another pass crashes: {shown}"
    assert failed, f"no test of {name} fails when it does nothing"
