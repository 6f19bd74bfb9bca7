"""Every `// RUN:` line of every .mlir file under test/ is a pytest item, run in this process."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from headrace.tools import run_lines

for _threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):  # before NumPy is loaded
    os.environ.setdefault(_threads, "1")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect .mlir files."""
    if file_path.suffix != ".mlir" or run_lines.IGNORED & set(file_path.parts):
        return None
    return MlirFile.from_parent(parent, path=file_path)


class MlirFile(pytest.File):
    """One lit test."""

    def collect(self) -> Iterator[pytest.Item]:
        lines = run_lines.substituted(self.path)
        if not lines:
            raise self.CollectError(f"{self.path}: no RUN line")
        for number, line in enumerate(lines):
            yield RunLine.from_parent(self, name=f"RUN{number}", line=line)


class RunFailure(Exception):
    """A RUN line that failed; shown without a traceback."""


class RunLine(pytest.Item):
    """One RUN line of a lit test."""

    def __init__(self, *, line: str, **others: Any) -> None:
        super().__init__(**others)
        self.line = line

    def runtest(self) -> None:
        code, text = run_lines.run_line(self.line)
        if code:
            raise RunFailure(f"RUN: {self.line}\nexit {code}\n{text}")

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, RunFailure):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, f"{self.path.name}::{self.name}"


class Result(NamedTuple):
    """What one run of headrace-opt gave."""

    code: int
    out: str
    err: str


@pytest.fixture
def opt() -> Callable[..., Result]:
    """`opt(text, *arguments)` runs headrace-opt on text, in this process."""

    def call(text: str, *arguments: str) -> Result:
        from headrace.tools import opt as driver

        out, err = io.StringIO(), io.StringIO()
        code = driver.run(["-", *arguments], io.StringIO(text), out, err)
        return Result(code, out.getvalue(), err.getvalue())

    return call
