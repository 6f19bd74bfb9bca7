"""Every op of every level stands in a lit test of its dialect."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from xdsl.ir import Dialect

from headrace.tools.opt import context

FOLDER = Path(__file__).parents[1] / "dialects"


@pytest.mark.parametrize("level", ["tensor", "dataflow", "rdu"])
def test_every_op_is_in_a_lit_test(level: str) -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in (FOLDER / level).glob("*.mlir"))
    ctx = context()
    ctx.load_registered_dialect(level)
    (dialect,) = (one for one in ctx.loaded_dialects if one.name == level)
    assert isinstance(dialect, Dialect)
    names = [op.name for op in dialect.operations]
    assert names
    assert [name for name in names if not re.search(rf"{re.escape(name)}\b", text)] == []
