"""Shared assembly of the rdu ops: words, numbers and names beside their properties."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseArrayBase,
    Float64Type,
    FloatAttr,
    IntAttr,
    IntegerAttr,
    IntegerType,
    StringAttr,
    SymbolRefAttr,
    TensorType,
    f64,
    i32,
    i64,
)
from xdsl.ir import Attribute, Operation
from xdsl.irdl import AnyAttr
from xdsl.parser import Parser
from xdsl.printer import Printer

from headrace.dialects.support.attributes import fitting, string

Int = IntegerAttr[IntegerType]
Real = FloatAttr[Float64Type]
Sites = DenseArrayBase[IntegerType]
AnyTensor = TensorType.constr(AnyAttr())
NOT_NESTED: ArrayAttr[StringAttr] = ArrayAttr(())
SITES = DenseArrayBase.constr(i32)


def integer(value: int) -> Int:
    """A 64-bit integer attribute."""
    if 0 <= value < 1 << 63:
        return cast("Int", fitting(IntegerAttr, value=IntAttr(value), type=i64))
    return IntegerAttr(value, i64)


def symbol(name: str) -> SymbolRefAttr:
    """A reference to a symbol."""
    return fitting(SymbolRefAttr, root_reference=string(name), nested_references=NOT_NESTED)


def real(value: float) -> Real:
    """A double attribute."""
    return FloatAttr(value, f64)


def coordinates(sites: Sequence[tuple[int, int]]) -> Sites:
    """Sites as the flat attribute: column, row, column, row, …"""
    return DenseArrayBase.from_list(i32, [int(c) for site in sites for c in site])


def parse_word(parser: Parser) -> StringAttr:
    """A bare word."""
    return StringAttr(parser.parse_identifier())


def parse_tensor(parser: Parser) -> TensorType[Attribute]:
    """A tensor type."""
    at = parser.pos
    type = parser.parse_type()
    if not isinstance(type, TensorType):
        parser.raise_error("expected a tensor type", at)
    return type  # pyright: ignore[reportUnknownVariableType]


def parse_count(parser: Parser) -> int:
    """A whole number."""
    return parser.parse_integer(allow_boolean=False, allow_negative=False)


def parse_optional_count(parser: Parser, word: str, default: int) -> Int:
    """`word N`, or the default."""
    return integer(parse_count(parser) if parser.parse_optional_keyword(word) else default)


def print_optional_count(printer: Printer, word: str, value: Int, default: int) -> None:
    """` word N`, unless it is the default."""
    if value.value.data != default:
        printer.print_string(f" {word} {value.value.data}")


def parse_real(parser: Parser) -> Real:
    """A number; infinities and NaN are strings: "-inf"."""
    at = parser.pos
    text = parser.parse_optional_str_literal()
    if text is None:
        return real(float(parser.parse_number()))
    if text not in ("inf", "-inf", "nan"):
        parser.raise_error(f'"{text}" is no number', at)
    return real(float(text))


def real_text(value: float) -> str:
    """The text that `parse_real` reads: the shortest that gives the value back."""
    if value != value or value in (float("inf"), float("-inf")):
        return f'"{value}"'
    mantissa, e, exponent = repr(float(value)).partition("e")
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}{e}{exponent}"


def parse_symbol(parser: Parser) -> SymbolRefAttr:
    """A reference `@name`."""
    return SymbolRefAttr(parser.parse_symbol_name())


def print_symbol(printer: Printer, name: str) -> None:
    """` @name`."""
    printer.print_string(" ")
    printer.print_symbol_name(name)


def parse_sites(parser: Parser) -> Sites | None:
    """`at [3 4, 5 4]`: column and row of every unit; None when it is not there."""
    if not parser.parse_optional_keyword("at"):
        return None
    rows = parser.parse_comma_separated_list(
        parser.Delimiter.SQUARE, lambda: (parse_count(parser), parse_count(parser))
    )
    return coordinates(rows)


def print_sites(printer: Printer, sites: Sites | None) -> None:
    """` at [3 4, 5 4]`, if there are any."""
    if sites is not None:
        flat = sites.get_values()
        printer.print_string(f" at [{', '.join(f'{x} {y}' for x, y in zip(flat[::2], flat[1::2], strict=True))}]")


def parse_other(parser: Parser, op: Operation) -> None:
    """Attributes that are no part of the op: `attributes {…}`."""
    found = parser.parse_optional_attr_dict_with_keyword()
    if found is not None:
        op.attributes.update(found.data)


def print_other(printer: Printer, op: Operation) -> None:
    """Attributes that are no part of the op."""
    printer.print_op_attributes(op.attributes, print_keyword=True)
