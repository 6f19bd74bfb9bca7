"""`headrace-opt --lint`: everything that is wrong or doubtful with a text of IR, at once, for people and for editors.

After an op that does not parse, reading goes on with the next line that is indented no deeper than that op, so that one
mistake hides no other. What an op that does not parse would have defined is taken for defined.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.parser.core import ForwardDeclaredValue
from xdsl.traits import IsolatedFromAbove, IsTerminator, Pure
from xdsl.utils.exceptions import ParseError
from xdsl.utils.lexer import Input
from xdsl.utils.mlir_lexer import MLIRLexer, MLIRTokenKind

from headrace.dialects.support.diagnostics import nearest
from headrace.passes.infra.verify import offences
from headrace.tools.opt.expectations import Expectation
from headrace.tools.opt.parsing import LocatingParser, Refusal, clearer, program_faults, with_name

if TYPE_CHECKING:
    from headrace.dialects.support.weights import WeightStore

MOST = 1000  # offenders reported
WORD = re.compile(r"[%@#!^]?[\w.$-]+|\S")
RESULTS = re.compile(r"(%[\w.$-]+(?::\d+)?(?:\s*,\s*%[\w.$-]+(?::\d+)?)*)\s*=")


@dataclass(frozen=True, order=True)
class Finding:
    """One thing wrong (`error`) or doubtful (`warning`); lines and columns are from 1, the end is behind the last."""

    file: str
    line: int
    column: int
    end_line: int
    end_column: int
    severity: str
    code: str
    message: str

    def __str__(self) -> str:
        message = "; ".join(line.strip() for line in self.message.splitlines())
        return f"{self.file}:{self.line}:{self.column}: {self.severity}: {message} [{self.code}]"


class _Parser(LocatingParser):
    """Goes on after what it cannot parse."""

    def __init__(self, ctx: Context, text: str, name: str, first_line: int) -> None:
        self.text = text
        self.errors: list[tuple[tuple[int, int], str, str]] = []
        self.ranges: dict[Operation, tuple[int, int]] = {}
        self.broken: set[Operation] = set()
        self.broken_names: set[str] = set()
        super().__init__(ctx, text, name, first_line)

    def module(self) -> ModuleOp:
        """What could be read; the rest is in `errors`."""
        ops: list[Operation] = []
        while (kind := self._current_token.kind) != MLIRTokenKind.EOF:
            start = self.pos
            try:
                if kind in (MLIRTokenKind.HASH_IDENT, MLIRTokenKind.EXCLAMATION_IDENT):
                    self._parse_alias_def()
                elif kind == MLIRTokenKind.FILE_METADATA_BEGIN:
                    self._parse_file_metadata_dictionary()
                elif (op := self.parse_optional_operation()) is not None:
                    ops.append(op)
                else:
                    self.raise_error("expected an op")
            except ParseError as error:
                self._note(error, start)
                self._go_on(start, error.span.start)
        self._note_undefined(0)
        one = ops[0] if len(ops) == 1 else None
        return one if isinstance(one, ModuleOp) else ModuleOp(ops)

    def parse_optional_operation(self) -> Operation | None:
        start, values, size = self.pos, self.ssa_values, len(self.ssa_values)
        blocks, references = self.blocks, self.forward_block_references
        dialects, forward = len(self._parser_state.dialect_stack), set(self.forward_ssa_references)
        names = set(self.broken_names)
        try:
            op = super().parse_optional_operation()
            if op is not None:
                self.ranges[op] = start, self._code_end(start)
                if op.has_trait(IsolatedFromAbove):
                    self._note_undefined(start, forward)
                    self.broken_names = names
            elif self._current_token.kind not in (
                MLIRTokenKind.EOF,
                MLIRTokenKind.R_BRACE,
                MLIRTokenKind.CARET_IDENT,
                MLIRTokenKind.HASH_IDENT,
                MLIRTokenKind.EXCLAMATION_IDENT,
                MLIRTokenKind.FILE_METADATA_BEGIN,
            ):
                self.raise_error("expected an op")
            return op
        except ParseError as error:
            self.ssa_values, self.blocks, self.forward_block_references = values, blocks, references
            for name in [*values][size:]:
                del values[name]
            del self._parser_state.dialect_stack[dialects:]
            self._note(error, start)
            self._go_on(start, error.span.start)
        op = ModuleOp([])  # stands where the op would stand
        self.broken.add(op)
        return op

    def _note(self, error: ParseError, start: int) -> None:
        message = clearer(self.ctx, error, self.text)
        unknown = re.match(r"Operation (\S+) is not registered", message)
        at = self.text.find(unknown[1], start) if unknown else error.span.start
        span = (at, at + len(unknown[1])) if unknown else _readable(at, error.span.end, self.text)
        self.errors.append((span, message, "unknown-op" if unknown else "parse-error"))
        results = RESULTS.match(self.text, start)
        self.broken_names |= set(re.findall(r"%([\w.$-]+)", results[1])) if results else set()

    def _go_on(self, start: int, error: int) -> None:
        """Continue with the first line behind the error that is indented no deeper than the op at `start`."""
        column = start - (self.text.rfind("\n", 0, start) + 1)
        for line in re.finditer(r"^([ \t]*)(?=[^\s/])(?!//)", self.text, re.M):
            if line.end() <= max(start, error) or len(line[1]) > column:
                continue
            closes = self.text[line.end()] == "}" and len(line[1]) == column
            self._resume_from(line.end() + closes)
            return
        self._resume_from(len(self.text))

    def _note_undefined(self, start: int, known: Container[str] = ()) -> None:
        """Report values that the text from `start` on uses and that nothing defines, but for `known` ones."""
        for name in [name for name in self.forward_ssa_references if name not in known]:
            del self.forward_ssa_references[name]
            use = re.compile(rf"%{re.escape(name)}(?![\w.$-])").search(_without_comments(self.text), start)
            if name not in self.broken_names and use is not None:
                self.errors.append((use.span(), f"value %{name} is used but not defined", "undefined-value"))

    def _code_end(self, start: int) -> int:
        """The end of the first line of what was parsed from `start` on."""
        line = self.text.find("\n", start)
        end = min(self.pos, len(self.text) if line < 0 else line)
        return start + len(_without_comments(self.text[start:end]).rstrip())


def _lexable(text: str) -> tuple[str, list[int]]:
    """`text` with blanks where no token begins, and these places."""
    found: list[int] = []
    lexer = MLIRLexer(Input(text, ""))
    while True:
        start = lexer.pos
        try:
            if lexer.lex().kind == MLIRTokenKind.EOF:
                return text, found
        except ParseError as error:
            at = max(start, error.span.start)
            found.append(at)
            text = f"{text[:at]} {text[at + 1 :]}"
            lexer = MLIRLexer(Input(text, ""))
            lexer.pos = start


def _without_comments(text: str) -> str:
    """The text with blanks for comments."""
    return re.sub(r'("(?:\\.|[^"\\\n])*")|//[^\n]*', lambda m: m[1] or " " * len(m[0]), text)


def _readable(start: int, end: int, text: str) -> tuple[int, int]:
    """Start and end, or those of the word at the start where there is nothing between them or the end of a line."""
    if end > start and "\n" not in text[start:end]:
        return start, end
    word = WORD.match(text, start)
    return start, word.end() if word else start + 1


def lint(
    ctx: Context,
    text: str,
    file: str,
    first_line: int = 0,
    store: WeightStore | None = None,
    expected: Sequence[Expectation] = (),
) -> list[Finding]:
    """Everything wrong or doubtful with one text, in its order, but for what is expected. Weights are looked up in
    `store` when there is one."""
    parser = _Parser(ctx, text, file, first_line)
    module = parser.module()
    if parser.errors:
        blanked, places = _lexable(text)
        if places:
            parser = _Parser(ctx, blanked, file, first_line)
            module = parser.module()
            parser.errors += [((at, at + 1), f"unexpected character {text[at]!r}", "parse-error") for at in places]
    found = [_finding(parser, *span, "error", code, message) for span, message, code in parser.errors]
    skipped = {ancestor for op in [*parser.broken, *_dangling(module)] for ancestor in _ancestors(op)}
    lost = [op for op in parser.ranges if op.parent_op() is None and not op.has_trait(IsTerminator)]
    roots = dict.fromkeys([module, *lost])  # lost with an op around them that does not parse
    faulty = [(op, text, "invalid-op") for root in roots for op, text in offences(root, MOST) if op not in skipped]
    if not parser.errors and not faulty:
        faulty = [(op, message, "invalid-program") for op, message in program_faults(module)]
    if not parser.errors:
        found += _doubts(parser, module, store, {op for op, *_ in faulty})
    for op, message, code in faulty:
        start, end = parser.ranges.get(op, (0, 1))
        found.append(_finding(parser, start, end, "error", code, with_name(op, message)))
    return sorted(
        one for one in set(found) if not any(e.matches(Refusal(one.line, one.column, one.message)) for e in expected)
    )


def _dangling(module: ModuleOp) -> Iterator[Operation]:
    """Ops that use a value which nothing defines."""
    for op in module.walk():
        if any(isinstance(value, ForwardDeclaredValue) for value in op.operands):
            yield op


def _ancestors(op: Operation) -> Iterator[Operation]:
    current: Operation | None = op
    while current is not None:
        yield current
        current = current.parent_op()


def _finding(parser: _Parser, start: int, end: int, severity: str, code: str, message: str) -> Finding:
    line, column = parser.line_column(start)
    end_line, end_column = parser.line_column(max(end, start + 1))
    if end_line != line:  # the end of a line
        end_line, end_column = line, column + 1
    return Finding(parser.lexer.input.name, line, column, end_line, end_column, severity, code, message)


def _doubts(
    parser: _Parser, module: ModuleOp, store: WeightStore | None, faulty: Container[Operation]
) -> Iterator[Finding]:
    """Warnings about ops that are valid, and errors about weights."""
    from xdsl.dialects.func import CallOp, FuncOp

    called = {op.callee.string_value() for op in module.walk() if isinstance(op, CallOp)}
    for op in module.walk():
        start, end = parser.ranges.get(op, (0, 1))
        if op.results and op not in faulty and _is_pure(op) and not any(result.uses for result in op.results):
            yield _finding(parser, start, end, "warning", "unused-value", f"nothing uses the result of '{op.name}'")
        if isinstance(op, FuncOp):
            name = op.sym_name.data
            if op.sym_visibility is not None and op.sym_visibility.data == "private" and name not in called:
                yield _finding(parser, start, end, "warning", "uncalled-function", f"nothing calls @{name}")
            for argument in op.body.block.args if op.body.blocks else ():
                if not argument.uses:
                    yield _unused_argument(parser, argument, start, end, name)
        if store is not None and op.name == "tensor.weight":
            yield from _weight(parser, op, store, start, end)


def _is_pure(op: Operation) -> bool:
    return op.has_trait(Pure) and not op.has_trait(IsTerminator)


def _unused_argument(parser: _Parser, argument: SSAValue, start: int, end: int, of: str) -> Finding:
    name = argument.name_hint
    here = re.compile(rf"%{re.escape(name)}(?=\s*:)").search(parser.text, start) if name else None
    start, end = here.span() if here else (start, end)
    what = f"argument %{name}" if name else "an argument"
    return _finding(parser, start, end, "warning", "unused-argument", f"nothing uses {what} of @{of}")


def _weight(parser: _Parser, op: Operation, store: WeightStore, start: int, end: int) -> Iterator[Finding]:
    from headrace.dialects.tensor.base import tt
    from headrace.dialects.tensor.storage import RecipeOp, WeightOp

    assert isinstance(op, WeightOp)
    key, wanted = op.key.data, tt(op.results[0])
    module = [*_ancestors(op)][-1]
    if any(isinstance(one, RecipeOp) and one.key == key for one in module.walk()):
        return
    if key not in store:
        message = f"there is no weight '{key}'; {nearest(key, store)}"
        yield _finding(parser, start, end, "error", "unknown-weight", message)
        return
    have = store[key]
    if (tuple(have.shape), have.dtype) != (wanted.shape, wanted.dtype):
        message = f"weight '{key}' is {have.dtype}{list(have.shape)}, not {wanted}"
        yield _finding(parser, start, end, "error", "weight-type", message)


def to_json(findings: Iterable[Finding]) -> str:
    """The findings as a JSON list of objects with the fields of `Finding`."""
    return json.dumps([asdict(one) for one in findings], indent=2, ensure_ascii=False)
