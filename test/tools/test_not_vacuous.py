"""A test of a pass fails without the pass: otherwise it tests nothing.

A file that is meant to show that a pass leaves a program alone says so in a line `// Unchanged: why`.
"""

from __future__ import annotations

import re
from pathlib import Path

import inproc
import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "test" / "passes").rglob("*.mlir"))
PASSES = re.compile(r" (?:-p|--passes)[= ](?:'[^']*'|\"[^\"]*\"|\S+)")


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.relative_to(ROOT / "test").as_posix())
def test_a_pass_test_fails_without_its_pass(path: Path) -> None:
    if re.search(r"^// Unchanged: \S", path.read_text(encoding="utf-8"), re.M):
        return
    lines = [line for line in inproc.run_lines(path) if PASSES.search(line)]
    assert lines, "runs no pass"
    for line in lines:
        code, _ = inproc.run_line(PASSES.sub("", line))
        assert code, f"passes without its pass: {line}"
