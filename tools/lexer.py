"""A Pygments lexer of IR, for editors, notebooks and the documentation: `mlir`, files `*.mlir`.

Registered by entry point, so that Pygments finds it by name wherever Headrace is installed.
"""

from __future__ import annotations

from pygments.lexer import RegexLexer
from pygments.token import Comment, Keyword, Name, Number, Operator, Punctuation, String, Text


class MlirLexer(RegexLexer):
    """IR of any dialect, in generic or custom syntax."""

    name = "MLIR"
    aliases = ["mlir"]
    filenames = ["*.mlir"]
    mimetypes = ["text/x-mlir"]
    url = "https://mlir.llvm.org/docs/LangRef/"

    tokens = {
        "root": [
            (r"\s+", Text.Whitespace),
            (r"//.*?$", Comment.Single),
            (r'"(?:\\.|[^"\\\n])*"', String.Double),
            (r"%[\w.$-]+(?::\d+|#\d+)?", Name.Variable),
            (r"@(?:[\w.$-]+|\"(?:\\.|[^\"\\\n])*\")", Name.Function),
            (r"\^[\w.$-]+", Name.Label),
            (r"![\w.$-]+", Keyword.Type),
            (r"#[A-Za-z_][\w.$-]*", Name.Decorator),
            (r"(?:\d+x|\?x|\*x)*(?:bf16|f\d+\w*|index|none|(?:[su]?i)\d+)\b", Keyword.Type),
            (r"(?:tensor|memref|vector|complex|tuple)(?=<)", Keyword.Type),
            (r"(?:dense|array|dense_resource|affine_map|loc|unit|true|false)\b", Keyword.Constant),
            (r"0x[0-9A-Fa-f]+", Number.Hex),
            (r"[-+]?\d+\.\d*(?:[eE][-+]?\d+)?", Number.Float),
            (r"[-+]?\d+", Number.Integer),
            (r"[A-Za-z_][\w$-]*\.[A-Za-z_][\w.$-]*(?=\s*=)", Name.Attribute),
            (r"[A-Za-z_][\w$-]*(?=\s*=[^=>])", Name.Attribute),
            (r"[A-Za-z_][\w$-]*\.[A-Za-z_][\w.$-]*", Name.Builtin),
            (r"[A-Za-z_][\w$-]*", Keyword),
            (r"->|=>|==|[=:*+-]", Operator),
            (r"[(){}\[\]<>,.?|/]", Punctuation),
            (r".", Text),
        ]
    }
