"""Shared assembly of loops and views, so that streams read the same at every level.

[8 on 1 by 64, 12 repeat]      eight steps along dim 1 of 64 elements each, inside them twelve repeats
at 768 [2304, 1]               offset 768, strides 2304 and 1, in elements
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from xdsl.dialects.builtin import DenseArrayBase, IntegerType, i64
from xdsl.parser import AttrParser
from xdsl.printer import Printer

from headrace.dialects.support.access import Loop, View


def parse_loops(parser: AttrParser) -> tuple[Loop, ...]:
    """Parse a bracketed list of loops."""

    def one() -> Loop:
        count = parser.parse_integer(allow_boolean=False, allow_negative=False)
        if parser.parse_optional_keyword("repeat"):
            return Loop(count, -1, 0)
        parser.parse_keyword("on")
        dim = parser.parse_integer(allow_boolean=False, allow_negative=False)
        parser.parse_keyword("by")
        return Loop(count, dim, parser.parse_integer(allow_boolean=False))

    return tuple(parser.parse_comma_separated_list(parser.Delimiter.SQUARE, one))


def loops_text(loops: Sequence[Loop]) -> str:
    """The text that `parse_loops` reads."""
    return (
        "[" + ", ".join(f"{x.count} repeat" if x.dim < 0 else f"{x.count} on {x.dim} by {x.step}" for x in loops) + "]"
    )


def parse_view(parser: AttrParser) -> View:
    """Parse `at OFFSET [STRIDE, …]`."""
    parser.parse_keyword("at")
    offset = parser.parse_integer(allow_boolean=False)
    strides = parser.parse_comma_separated_list(
        parser.Delimiter.SQUARE, lambda: parser.parse_integer(allow_boolean=False)
    )
    return View(offset, tuple(strides))


def view_text(view: View) -> str:
    """The text that `parse_view` reads."""
    return f"at {view.offset} [{', '.join(map(str, view.strides))}]"


def print_text(printer: Printer, text: str) -> None:
    """Print plain text (printer methods differ between versions; one place to change)."""
    printer.print_string(text)


def loops_to_array(loops: Sequence[Loop]) -> DenseArrayBase:
    """Loops as a flat array attribute (count, dim, step)."""
    return DenseArrayBase.from_list(i64, [n for x in loops for n in (x.count, x.dim, x.step)])


def ints(array: DenseArrayBase | None) -> tuple[int, ...]:
    """The elements of an integer array attribute; none when there is none."""
    return () if array is None else tuple(cast("DenseArrayBase[IntegerType]", array).get_values())


def loops_from_array(array: DenseArrayBase) -> tuple[Loop, ...]:
    """Loops from a flat array attribute."""
    flat = ints(array)
    return tuple(Loop(*flat[i : i + 3]) for i in range(0, len(flat), 3))
