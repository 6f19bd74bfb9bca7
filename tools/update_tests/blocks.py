"""CHECK lines from printed IR, and the blocks of a test that hold them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from headrace.dialects.support.diagnostics import CompileError, nearest

BEGIN = re.compile(r"^(?P<indent>\s*)// BEGIN (?P<prefix>[A-Z][A-Z0-9_]*)(?P<symbols>(?: @[\w$.-]+)*)(?P<rest>.*)$")
END = re.compile(r"^\s*// END (?P<prefix>[A-Z][A-Z0-9_]*)\s*$")
ABOUT = "(generated: `python -m headrace.tools.update_tests`)"
CHECK = re.compile(r"//\s*(?P<prefix>[A-Z][A-Z0-9_]*)(?:-(?P<kind>[A-Z]+))?:(?P<text>.*)$")
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|(?P<value>%[\w$.-]+)(?P<typed>:(?!:))?')
VARIABLE = re.compile(r"%\[\[(?P<name>[A-Za-z_]\w*)(?P<defines>:\.\*)?\]\]")
INNER = "  "
"""Indentation of the ops of a module."""


class Block(NamedTuple):
    """A region of a test that is generated: the lines between `// BEGIN PREFIX @symbol …` and `// END PREFIX`."""

    first: int
    """Index of the BEGIN line; the END line is at `last`."""
    last: int
    prefix: str
    symbols: tuple[str, ...]
    """The top-level ops to check; all where there are none."""
    part: int
    """Which part between `// -----` lines it is in."""


class Line(NamedTuple):
    """One CHECK line: its kind (empty: plain) and its pattern."""

    kind: str
    text: str


def marked(lines: Sequence[str]) -> list[Block]:
    """The generated blocks of a test, in order. `CompileError` for one that does not end, or that ends another."""
    found: list[Block] = []
    part, opened = 0, None
    for at, line in enumerate(lines):
        part += line.startswith("// -----")
        begin, end = BEGIN.match(line), END.match(line)
        if begin is not None:
            if opened is not None:
                raise CompileError(
                    "bad-block", f"BEGIN in the block of line {opened.first + 1}", location=f"line {at + 1}"
                )
            opened = Block(at, at, begin["prefix"], tuple(begin["symbols"].split()), part)
        if end is not None:
            if opened is None or opened.prefix != end["prefix"] or opened.part != part:
                raise CompileError(
                    "bad-block", f"END {end['prefix']} ends no block of its part", location=f"line {at + 1}"
                )
            found.append(opened._replace(last=at))
            opened = None
    if opened is not None:
        what = f"no END {opened.prefix}"
        raise CompileError(
            "bad-block", what, location=f"line {opened.first + 1}", fix=f"write '// END {opened.prefix}'"
        )
    return found


def read(lines: Sequence[str], block: Block) -> list[Line]:
    """The CHECK lines that a block holds now."""
    found = (CHECK.search(line) for line in lines[block.first + 1 : block.last])
    return [Line(one["kind"] or "", one["text"].strip()) for one in found if one and one["prefix"] == block.prefix]


def written(lines: Sequence[str], block: Block, checks: Sequence[Line]) -> list[str]:
    """The text of a block with these CHECK lines, from its BEGIN to its END."""
    begin = BEGIN.match(lines[block.first])
    assert begin is not None
    start = f"{begin['indent']}//"
    width = max((len(f"{block.prefix}-{one.kind}:") for one in checks), default=0)
    body = (f"{block.prefix}{'-' * bool(one.kind)}{one.kind}:".ljust(width) + f" {one.text}" for one in checks)
    head = " ".join([f"{start} BEGIN {block.prefix}", *block.symbols, ABOUT])
    return [head, *(f"{start} {line}" for line in body), f"{start} END {block.prefix}"]


def top_level(text: str) -> Iterator[tuple[str, list[str]]]:
    """The top-level ops of a printed module: symbol (empty for none) and lines."""
    lines: list[str] = []
    for line in text.splitlines()[1:]:
        starts = line.startswith(INNER) and line[len(INNER) :][:1] not in ("", " ", "}")
        if (starts or not line.startswith(INNER)) and lines:
            yield _symbol(lines[0]), lines
            lines = []
        if line.startswith(INNER):
            lines.append(line.removeprefix(INNER))
    if lines:
        yield _symbol(lines[0]), lines


def _symbol(line: str) -> str:
    match = re.match(r'[^%({"]*?(@[\w$.-]+)', line)
    return match[1] if match else ""


def generated(text: str, symbols: Sequence[str], hidden: Sequence[str]) -> list[Line]:
    """The CHECK lines of a printed module: of the top-level ops with these symbols, or of all of them.

    Values become variables named after their hints, or after the ops that make them. Places in the files `hidden` match
    anything: they move whenever the test does.
    """
    ops = list(top_level(text))
    there = [symbol for symbol, _ in ops]
    for symbol in symbols:
        if symbol not in there:
            raise CompileError("bad-block", f"the output has no {symbol}", fix=nearest(symbol, [s for s in there if s]))
    found: list[Line] = []
    for symbol, lines in ops:
        if not symbols or symbol in symbols:
            found += _op_lines(lines, symbol, hidden)
    return found


def _op_lines(lines: Sequence[str], symbol: str, hidden: Sequence[str]) -> Iterator[Line]:
    names = _Variables()
    for at, line in enumerate(lines):
        shown = _pattern(line, names, hidden)
        if at:
            yield Line("NEXT", shown)
        elif symbol:
            head = re.match(rf".*?{re.escape(symbol)}(?:\(| \S+)?", shown)
            assert head is not None
            yield Line("LABEL", head[0])
            if shown[head.end() :].strip():
                yield Line("SAME", shown[head.end() :].strip())
        else:
            yield Line("", shown)


def _pattern(line: str, names: _Variables, hidden: Sequence[str]) -> str:
    results = re.match(r"\s*(?:%[\w$.-]+(?:, )?)+ = ", line)
    until = results.end() if results else 0
    op = re.match(r'"?(?:[\w-]+\.)?(\w+)', line[until:]) if results else None
    maker = op[1] if op else "arg"
    pieces: list[str] = []
    end = 0
    for token in TOKEN.finditer(line):
        pieces.append(_escaped(line[end : token.start()]))
        end = token.end()
        if token["value"] is None:
            place = re.match(r":\d+:\d+", line[end:]) if token[0][1:-1] in hidden else None
            pieces.append("{{.*}}" if place else _escaped(token[0]))
            end += place.end() if place else 0
            continue
        defines = token.start() < until or token["typed"] is not None or line.lstrip().startswith("^")
        pieces.append(f"%[[{names.pattern(token['value'], maker, defines)}]]{token['typed'] or ''}")
    return "".join(pieces) + _escaped(line[end:])


def _escaped(text: str) -> str:
    """Text that matches itself: filecheck gives a meaning to doubled brackets."""
    text = re.sub(r"\{\{+", lambda m: "{{" + "[{]" * len(m[0]) + "}}", text)
    return re.sub(r"\[\[+", lambda m: "{{" + r"\[" * len(m[0]) + "}}", text)


class _Variables:
    """The variables of one top-level op by the value names that stand for them; a name may come to mean another."""

    def __init__(self) -> None:
        self.current: dict[str, str] = {}
        self.taken: set[str] = set()

    def pattern(self, value: str, maker: str, defines: bool) -> str:
        if value in self.current and not defines:
            return self.current[value]
        hint = value[1:]
        stem = re.sub(r"\W", "_", maker if hint.isdigit() else hint).upper()
        stem = stem if stem[:1].isalpha() else f"V{stem}"
        name, number = stem, 1
        while name in self.taken:
            number += 1
            name = f"{stem}_{number}"
        self.taken.add(name)
        self.current[value] = name
        return f"{name}:.*"
