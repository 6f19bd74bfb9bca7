"""Reads IR: contexts, ops that know where they stand in the text, and everything that is wrong with a text."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any, NamedTuple

from xdsl.context import Context
from xdsl.dialects.builtin import (
    FileLineColLoc,
    FusedLoc,
    IntAttr,
    LocationAttr,
    ModuleOp,
    NoneAttr,
    StringAttr,
    UnknownLoc,
)
from xdsl.ir import Attribute, BlockArgument, Dialect, Operation, SSAValue, TypeAttribute
from xdsl.parser import Parser, ParserState
from xdsl.utils.exceptions import DiagnosticException, ParseError, VerifyException
from xdsl.utils.lexer import Input, Span
from xdsl.utils.mlir_lexer import KIND_BY_PUNCTUATION_SPELLING, PunctuationSpelling

from headrace.dialects.support.attributes import MOST_REMEMBERED
from headrace.dialects.support.diagnostics import CompileError
from headrace.passes.infra.plugins import DIALECTS as PLUGIN_DIALECTS
from headrace.passes.infra.plugins import plugins
from headrace.passes.infra.verify import offences
from headrace.tools.opt.lexing import Lexer

DIALECTS = {
    "builtin": "xdsl.dialects.builtin:Builtin",
    "func": "xdsl.dialects.func:Func",
    "test": "xdsl.dialects.test:Test",
    "tensor": "headrace.dialects.tensor:Tensor",
    "dataflow": "headrace.dialects.dataflow:Dataflow",
    "rdu": "headrace.dialects.rdu:Rdu",
    "machine": "headrace.dialects.machine:Machine",
}


_TENSOR = re.compile(r"tensor<(?:[0-9]+x)*[a-z]+[0-9]+>")
_tensors: dict[str, TypeAttribute] = {}


class Refusal(NamedTuple):
    """One thing wrong with the input: where (line and column from 1; line 0: nowhere), and what."""

    line: int
    column: int
    message: str


class Refused(Exception):
    """The input is bad; the driver reports the refusals and goes on with the next chunk."""

    def __init__(self, *refusals: Refusal) -> None:
        super().__init__(*refusals)
        self.refusals = refusals


class LocatingParser(Parser):
    """Gives every op and argument without `loc(…)` its file:line:col, and remembers where each op stood."""

    def __init__(self, ctx: Context, text: str, name: str, first_line: int = 0) -> None:
        super().__init__(ctx, text, name)
        self._parser_state = ParserState(Lexer(Input(text, name)))
        self.first_line = first_line
        self.starts = [-1, *(m.start() for m in re.finditer("\n", text))]
        self.positions: dict[Operation, tuple[int, int]] = {}
        self.placed: ParseError | None = None

    def line_column(self, pos: int) -> tuple[int, int]:
        """Line (of the whole file) and column of an offset into this chunk, both from 1."""
        line = bisect_right(self.starts, pos - 1)
        return line + self.first_line, pos - self.starts[line - 1]

    def parse_operation(self) -> Operation:
        pos = self.pos
        try:
            op = super().parse_operation()
        except ParseError as error:
            if error.msg.endswith("is not registered") and error is not self.placed:
                error.span = Span(pos, self.pos, self.lexer.input)  # xDSL points at the token after the op's name
                self.placed = error
            raise
        except (VerifyException, CompileError, ValueError) as error:
            self.raise_error(plain(error), pos, self.pos)
        line, column = self.line_column(pos)
        self.positions[op] = (line, column)
        if isinstance(op.location, UnknownLoc):
            op.location = self._location(line, column)
        return op

    def parse_optional_type(self) -> TypeAttribute | None:
        """A type; a tensor that was met before is the same object, which what is remembered of it relies on."""
        state = self._parser_state
        match = _TENSOR.match(state.lexer.input.content, state.current_token.span.start)
        if match is None:
            return super().parse_optional_type()
        found = _tensors.get(match[0])
        if found is None:
            found = super().parse_optional_type()
            if found is not None and len(_tensors) < MOST_REMEMBERED:
                _tensors[match[0]] = found
        else:
            state.lexer.pos = match.end()
            state.current_token = state.lexer.lex()
        return found

    def parse_optional_punctuation(self, punctuation: PunctuationSpelling) -> PunctuationSpelling | None:
        state = self._parser_state
        if state.current_token.kind is not KIND_BY_PUNCTUATION_SPELLING[punctuation]:
            return None
        state.current_token = state.lexer.lex()
        return punctuation

    def parse_punctuation(self, punctuation: PunctuationSpelling, context_msg: str = "") -> PunctuationSpelling:
        if self.parse_optional_punctuation(punctuation) is None:
            self.raise_error(f"Expected '{punctuation}'{context_msg}", self._current_token.span)
        return punctuation

    def _location(self, line: int, column: int) -> LocationAttr:
        return FileLineColLoc(StringAttr(self.lexer.input.name), IntAttr(line), IntAttr(column))

    def _parse_location(self) -> LocationAttr:
        if self.parse_optional_keyword("fused") is None:
            return super()._parse_location()
        metadata = NoneAttr()  # which xDSL prints and does not read
        if self.parse_optional_punctuation("<") is not None:
            metadata = self.parse_attribute()
            self.parse_punctuation(">")
        parts = self.parse_comma_separated_list(self.Delimiter.SQUARE, self._parse_location)
        return FusedLoc(tuple(parts), metadata)

    def _register_ssa_definition(self, name: str, values: Sequence[SSAValue], span: Span) -> None:
        super()._register_ssa_definition(name, values, span)
        for value in values:
            if isinstance(value, BlockArgument) and isinstance(value.location, UnknownLoc):
                value.location = self._location(*self.line_column(span.start))


class _Context(Context):
    """Asks other distributions for dialects that are not ours (`passes.infra.plugins`), once, when it meets one."""

    asked = False

    def get_optional_op(self, name: str, *, dialect_stack: Sequence[str] = ()) -> type[Operation] | None:
        self._ask(name)
        return super().get_optional_op(name, dialect_stack=dialect_stack)

    def get_optional_type(self, name: str) -> type[TypeAttribute] | None:
        self._ask(name)
        return super().get_optional_type(name)

    def get_optional_attr(self, name: str) -> type[Attribute] | None:
        self._ask(name)
        return super().get_optional_attr(name)

    def _ask(self, name: str) -> None:
        dialect, dot, _ = name.partition(".")
        if self.asked or not dot or dialect in self._registered_dialects:
            return
        self.asked = True
        for other, one in plugins(PLUGIN_DIALECTS, lambda name: name in DIALECTS).items():
            if other not in self._registered_dialects:
                self.register_dialect(other, one)


def context(allow_unregistered: bool = False, more: Mapping[str, Callable[[], Dialect]] | None = None) -> Context:
    """A context with all dialects registered; each is imported when its first op or type is met. `more` are dialects
    beside ours, by name."""
    ctx = _Context(allow_unregistered=allow_unregistered)
    for name, path in DIALECTS.items():
        ctx.register_dialect(name, _lazy_dialect(path))
    for name, factory in (more or {}).items():
        if name in DIALECTS:
            raise CompileError("plugin-clash", f"dialect '{name}' is one of ours", fix="rename it")
        ctx.register_dialect(name, factory)
    return ctx


def parse(ctx: Context, text: str, name: str, first_line: int = 0) -> tuple[ModuleOp, dict[Operation, tuple[int, int]]]:
    """The verified module of `text` and where each of its ops stood (line, column). Raises `Refused`."""
    if not re.sub(r"//[^\n]*", "", text).strip():
        empty = ModuleOp([])
        empty.location = _at(name, first_line + 1)
        return empty, {}
    parser = LocatingParser(ctx, text, name, first_line)
    try:
        module = parser.parse_module()
    except ParseError as error:
        line, column = parser.line_column(_position(error, text))
        raise Refused(Refusal(line, column, clearer(ctx, error, text))) from error
    if isinstance(module.location, UnknownLoc):
        module.location = _at(name, first_line + 1)
    wrong: list[tuple[Operation, str]] = [*offences(module)] or program_faults(module)
    if wrong:
        where = parser.positions
        raise Refused(*(Refusal(*where.get(op, (0, 0)), with_name(op, message)) for op, message in wrong))
    return module, parser.positions


def program_faults(module: ModuleOp) -> list[tuple[Operation, str]]:
    """What is wrong with a module of functions as a program, when its ops are valid."""
    if not any(op.name == "func.func" for op in module.body.block.ops):
        return []
    return import_module("headrace.dialects.tensor.program").faults(module)


def with_name(op: Operation, message: str) -> str:
    """A verifier's message with the name of its op, once."""
    return message if message.startswith(f"{op.name}:") else f"'{op.name}': {message}"


def clearer(ctx: Context, error: ParseError, text: str) -> str:
    """The parser's message; where xDSL says too little, what was expected or what is near."""
    message = error.msg.strip()
    if message == "in block definition":
        ends = "; the text ends inside a region" if not text[error.span.start :].strip() else ""
        return f"expected an op, a block or '}}'{ends}"
    unknown = re.fullmatch(r"Operation (\S+) is not registered", message)
    if unknown is None:
        return error.msg
    near = _names_near(ctx, unknown[1])
    close = get_close_matches(unknown[1], near, 1, 0.6) if "." in unknown[1] else near
    return f"{message}; did you mean '{close[0]}'?" if close else message


def _names_near(ctx: Context, name: str) -> list[str]:
    """The ops of the dialect that an op's name begins with; without one, ops that are called so in any of ours."""
    dialect, dot, _ = name.partition(".")
    if not dot:
        return [f"{one}.{name}" for one in DIALECTS if ctx.get_optional_op(f"{one}.{name}") is not None]
    if dialect not in DIALECTS:
        return [name.replace(dialect, one, 1) for one in get_close_matches(dialect, DIALECTS, 1)]
    return [op.name for op in _lazy_dialect(DIALECTS[dialect])().operations]


def _position(error: ParseError, text: str) -> int:
    """Where an error is: xDSL reports undefined values at the end of the text, we at their first use."""
    undefined = re.search(r"values used but not defined: \[(%[^,\]]+)", error.msg)
    code = re.sub(r"//[^\n]*", lambda m: " " * len(m[0]), text)
    use = undefined and re.search(rf"{re.escape(undefined[1])}(?![\w.$-])", code)
    return use.start() if use else error.span.start


def _at(name: str, line: int) -> LocationAttr:
    return FileLineColLoc(StringAttr(name), IntAttr(line), IntAttr(1))


def _lazy_dialect(path: str) -> Any:
    module, _, name = path.partition(":")

    def load() -> Dialect:
        return getattr(import_module(module), name)

    return load


def plain(error: BaseException) -> str:
    """The message of an error, without xDSL's print of the module around it."""
    while error.__cause__ is not None and isinstance(error.__cause__, DiagnosticException):
        error = error.__cause__
    if isinstance(error, CompileError):
        return one_line(error.diagnostics[0])
    return str(error).strip().removeprefix("Operation does not verify: ")


def one_line(diagnostic: Any) -> str:
    text = f"{diagnostic.what} [{diagnostic.code}]"
    for label in ("why", "fix"):
        if getattr(diagnostic, label):
            text += f"\n  {label}: {getattr(diagnostic, label)}"
    return text
