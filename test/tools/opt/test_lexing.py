"""Our lexer gives the tokens that xDSL's gives."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from xdsl.utils.exceptions import ParseError
from xdsl.utils.lexer import Input
from xdsl.utils.mlir_lexer import MLIRLexer, MLIRTokenKind, StringLiteral

from headrace.tools.opt import context, parse
from headrace.tools.opt.lexing import Lexer

TESTS = Path(__file__).parents[2]
PIECES = (
    *("%0", "%a.b", "%a-b", "^bb0", "!t.x", "#x", "#-}", "{-#", "#-", "@f", '@"q r"', "@", "%", "#", "!"),
    *(
        "-",
        "->",
        "...",
        "..",
        ".",
        ":",
        "::",
        "=",
        "==",
        "{",
        "}",
        "(",
        ")",
        "[",
        "]",
        "<",
        ">",
        "+",
        "/",
        "*",
        "?",
        "|",
    ),
    *("0", "12", "0x1F", "0xi32", "4x8", "1.5", "1.", "1.e5", "1.5e-3", "1e5", "007", "x", "x8", "_a$", "größe", "é"),
    *(
        '"s"',
        '""',
        '"a\\n"',
        '"a\\41"',
        '"open',
        '"\\q"',
        "// c\n",
        "//",
        "/",
        " ",
        "\n",
        "\t",
        "\r\n",
        "\u00a0",
        "'",
        "&",
    ),
)


def tokens(lexer: MLIRLexer) -> list[object]:
    """Kind, span and class of each token; the text of the error where it ends in one."""
    found: list[object] = []
    while True:
        try:
            token = lexer.lex()
        except ParseError as error:
            return [*found, error.msg, error.span.start, error.span.end]
        found.append((token.kind, token.span.start, token.span.end, type(token.span)))
        if token.kind is MLIRTokenKind.EOF:
            return found


def same(text: str) -> None:
    assert tokens(Lexer(Input(text, "t"))) == tokens(MLIRLexer(Input(text, "t"))), repr(text)


@pytest.mark.parametrize("path", sorted(TESTS.rglob("*.mlir")), ids=lambda path: str(path.relative_to(TESTS)))
def test_same_tokens_of_every_test(path: Path) -> None:
    same(path.read_text(encoding="utf-8"))


def test_same_tokens_of_any_pieces() -> None:
    rng = random.Random(0)
    for piece in PIECES:
        for other in PIECES:
            same(piece + other)
    for _ in range(500):
        same("".join(rng.choices(PIECES, k=rng.randint(1, 12))))


def test_names_with_letters_outside_of_ascii_are_names() -> None:
    """xDSL writes them with escapes, and then reads bytes."""
    text = '"gr\\C3\\B6\\C3\\9Fe"'
    token = Lexer(Input(text, "t")).lex()
    assert token.kind is MLIRTokenKind.STRING_LIT and isinstance(token.span, StringLiteral)
    assert token.span.string_contents == "größe"
    assert Lexer(Input('"\\FF\\00"', "t")).lex().kind is MLIRTokenKind.BYTES_LIT
    program = 'func.func @"größe"() { %0 = tensor.weight "größe" : tensor<4xf32> func.return }'
    module, _ = parse(context(), program, "p")
    again, _ = parse(context(), str(module), "again")
    assert again.is_structurally_equivalent(module) and "gr\\C3\\B6" in str(module)
