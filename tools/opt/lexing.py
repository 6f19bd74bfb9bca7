"""A lexer of IR that reads a token in one match. Lexing is half of parsing, and xDSL's looks at each character."""

from __future__ import annotations

import re
from typing import Any, cast

from xdsl.utils.lexer import Span, Token
from xdsl.utils.mlir_lexer import MLIRLexer, MLIRToken, MLIRTokenKind, StringLiteral

_KINDS = MLIRTokenKind
_SPELT: dict[str, MLIRTokenKind] = {
    ":": _KINDS.COLON,
    ",": _KINDS.COMMA,
    "(": _KINDS.L_PAREN,
    ")": _KINDS.R_PAREN,
    "{": _KINDS.L_BRACE,
    "}": _KINDS.R_BRACE,
    "[": _KINDS.L_SQUARE,
    "]": _KINDS.R_SQUARE,
    "<": _KINDS.LESS,
    ">": _KINDS.GREATER,
    "=": _KINDS.EQUAL,
    "->": _KINDS.ARROW,
}
_PREFIXED = {
    "%": _KINDS.PERCENT_IDENT,
    "^": _KINDS.CARET_IDENT,
    "!": _KINDS.EXCLAMATION_IDENT,
    "#": _KINDS.HASH_IDENT,
    "@": _KINDS.AT_IDENT,
}
_TOKEN = re.compile(
    r"""(?:\s+|//[^\n]*+)*+
    (?:
      (?P<bare>[a-zA-Z_][a-zA-Z0-9_$.]*)
    | (?P<spelt>->|[:,()}\[\]<>=]|\{(?!-\#))
    | (?P<prefixed>(?!\#-\})[%^!\#](?:[0-9]+|[a-zA-Z$._-][a-zA-Z0-9$._-]*)|@[a-zA-Z_][a-zA-Z0-9_$.]*)
    | (?P<number>[0-9]+(?![0-9xX.]))
    )""",
    re.ASCII | re.VERBOSE,
)
"""The tokens that IR is nearly made of; anything else is left to xDSL's lexer."""


class Lexer(MLIRLexer):
    """Gives the tokens that xDSL's lexer gives, but for strings that it writes with escapes and then takes for bytes:
    names with letters outside of ASCII."""

    def lex(self) -> MLIRToken:
        match = _TOKEN.match(self.input.content, self.pos)
        if match is None:
            return super().lex()
        group = cast("str", match.lastgroup)
        start, self.pos = match.span(group)
        if group == "bare":
            kind = _KINDS.BARE_IDENT
        elif group == "spelt":
            kind = _SPELT[match[group]]
        elif group == "prefixed":
            kind = _PREFIXED[self.input.content[start]]
        else:
            kind = _KINDS.INTEGER_LIT
        span: Span[str] = Span.__new__(Span)
        fields: dict[str, Any] = vars(span)  # a frozen class is slow to make
        fields.update(start=start, end=self.pos, input=self.input)
        return Token(kind, span)

    def _lex_string_literal(self, start_pos: int) -> MLIRToken:
        token = super()._lex_string_literal(start_pos)
        if token.kind is _KINDS.BYTES_LIT:
            literal = cast("StringLiteral", token.span)
            try:
                literal.bytes_contents.decode()
            except UnicodeDecodeError:
                return token
            return Token(_KINDS.STRING_LIT, literal)
        return token
