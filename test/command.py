"""Runs the `headrace` command inside this process."""

from __future__ import annotations

import contextlib
import io
import json
from typing import Any, NamedTuple


class Result(NamedTuple):
    """What one run gave."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The document on standard output."""
        return json.loads(self.out)


def headrace(*arguments: object) -> Result:
    """Run `headrace` with these arguments."""
    from headrace.tools.cli import execute

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = execute([str(one) for one in arguments])
    return Result(code, out.getvalue(), err.getvalue())


def succeeds(*arguments: object) -> Result:
    """Run `headrace`; it must end with 0."""
    result = headrace(*arguments)
    assert result.code == 0, result.err
    return result
