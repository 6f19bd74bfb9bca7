"""Assembly formats that are compiled when they are first needed.

xDSL compiles the format of an op when its class is made, which is a third of the cost of making it; a compiler that
reads no text needs few of them or none.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Self

from xdsl.irdl import IRDLOperation
from xdsl.irdl.declarative_assembly_format import FormatProgram
from xdsl.parser import Parser
from xdsl.printer import Printer

_texts: dict[type[IRDLOperation], str] = {}


class LateFormat(IRDLOperation):
    """Base of ops that write `assembly_format` as any op does; it is compiled when one of them is first parsed or
    printed. An op without one has the generic form."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        text = vars(cls).get("assembly_format")
        if text is not None:
            _texts[cls] = text
            del cls.assembly_format  # out of the sight of irdl_op_definition, which would compile it

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        program = _program(cls)
        return super().parse(parser) if program is None else program.parse(parser, cls)

    def print(self, printer: Printer) -> None:
        program = _program(type(self))
        if program is None:
            super().print(printer)
        else:
            program.print(printer, self)


@cache
def _program(cls: type[IRDLOperation]) -> FormatProgram | None:
    """The format of a class or of the nearest base that has one."""
    text = next((_texts[base] for base in cls.mro() if base in _texts), None)
    return None if text is None else FormatProgram.from_str(text, cls.get_irdl_definition())
