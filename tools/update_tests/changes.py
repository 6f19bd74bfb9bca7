"""What differs between two blocks of CHECK lines, in terms of ops: names of values and order of text do not count."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from headrace.tools.update_tests.blocks import VARIABLE, Line

VALUE = re.compile(r"%(\d+)")
OP = re.compile(r'^(?:(?P<results>%\d+(?:, %\d+)*) = )?"?(?P<name>[A-Za-z_][\w-]*\.[\w.]+)"?')

SIGNATURE, BLOCK = "the signature", "a block"
"""Names of what is no op and has values: the line of a top-level op with its arguments, and `^bb0(…):`."""


class Op(NamedTuple):
    """One op of a block."""

    name: str
    attributes: tuple[tuple[str, str], ...]
    rest: str
    """All else that is printed, with `%` for every value."""
    results: tuple[int, ...]
    operands: tuple[int, ...]
    shown: tuple[str, ...]
    """The names of the operands."""

    @property
    def key(self) -> tuple[str, tuple[tuple[str, str], ...], str]:
        """What makes two ops equal, but for the values they work on."""
        return self.name, self.attributes, self.rest


def canonical(lines: Iterable[Line]) -> list[Line]:
    """The lines with values numbered in the order in which they are defined."""
    return [line for line, _ in _numbered(lines)]


def _numbered(lines: Iterable[Line]) -> Iterator[tuple[Line, dict[int, str]]]:
    numbers: dict[str, int] = {}
    names: dict[int, str] = {}

    def number(match: re.Match[str]) -> str:
        if match["defines"] or match["name"] not in numbers:
            numbers[match["name"]] = len(names)
            names[len(names)] = match["name"]
        return f"%{numbers[match['name']]}"

    for line in lines:
        if line.kind == "LABEL":
            numbers, names = {}, {}
        yield Line(line.kind, VARIABLE.sub(number, " ".join(line.text.split()))), names


def difference(old: Sequence[Line], new: Sequence[Line]) -> list[str]:
    """What was added, removed and changed, a line each; empty when only names of values differ."""
    before, after = canonical(old), canonical(new)
    if before == after:
        return []
    found: list[str] = []
    mine, yours = dict(_groups(old)), dict(_groups(new))
    for label in (*mine, *(label for label in yours if label not in mine)):
        lines = _ops_differ(_ops(mine.get(label, [])), _ops(yours.get(label, [])))
        if label not in yours or label not in mine:
            lines = [f"{'-' if label in mine else '+'} {label or 'ops without a symbol'}"]
        elif label and lines:
            lines = [f"in {label}:", *(f"  {line}" for line in lines)]
        found += lines
    return found or ["how it is printed"]


def _groups(lines: Sequence[Line]) -> Iterator[tuple[str, list[Line]]]:
    label, group = "", list[Line]()
    for line in lines:
        if line.kind == "LABEL":
            if group:
                yield label, group
            label, group = line.text.rstrip("("), []
        group.append(line)
    if group:
        yield label, group


def _ops(lines: Sequence[Line]) -> list[Op]:
    found: list[Op] = []
    signature = ""
    for line, names in _numbered(lines):
        if line.kind in ("LABEL", "SAME"):
            signature += f" {line.text}"
            continue
        match = OP.match(line.text)
        name = match["name"] if match else "}" if line.text.startswith("}") else BLOCK
        if name != "}":
            found.append(_op(name, line.text, match["results"] if match else None, names))
    return [*([_op(SIGNATURE, signature, None, {})] if signature else []), *found]


def _op(name: str, text: str, results: str | None, names: dict[int, str]) -> Op:
    text = text[len(results) + 3 :] if results else text
    text, attributes = _attributes(text)
    made, operands = tuple(map(int, VALUE.findall(results or ""))), tuple(map(int, VALUE.findall(text)))
    if name in (SIGNATURE, BLOCK):
        made, operands = operands, ()
    shown = tuple(f"%{names.get(one, one)}" for one in operands)
    return Op(name, attributes, VALUE.sub("%", text), made, operands, shown)


def _attributes(text: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """The text without its attribute dictionary, and the attributes, in the order of their names."""
    for start in (match.start() for match in re.finditer(r"\{(?=[\w.\"-]+ = )", text)):
        pieces = _pieces(text[start + 1 :])
        if pieces is None:
            continue
        items, end = pieces
        pairs = (item.partition(" = ") for item in items)
        return text[:start] + text[start + 1 + end :], tuple(sorted((key.strip(), value) for key, _, value in pairs))
    return text, ()


def _pieces(text: str) -> tuple[list[str], int] | None:
    """The items up to the brace that closes, and where that ends."""
    items, depth, start = list[str](), 0, 0
    for match in re.finditer(r'"(?:[^"\\]|\\.)*"|->|[\[({<>})\],]', text):
        mark = match[0]
        if mark in "[({<":
            depth += 1
        elif mark == "}" and depth == 0:
            return [*items, text[start : match.start()].strip()], match.end()
        elif mark in "])}>":
            depth -= 1
        elif mark == "," and depth == 0:
            items.append(text[start : match.start()].strip())
            start = match.end()
    return None


def _ops_differ(old: list[Op], new: list[Op]) -> list[str]:
    pairs: list[tuple[Op, Op]] = []
    gone: list[Op] = []
    come: list[Op] = []
    matcher = SequenceMatcher(None, [op.key for op in old], [op.key for op in new], autojunk=False)
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag == "equal":
            pairs += zip(old[a:b], new[c:d], strict=True)
            continue
        changed = list(_by_name(old[a:b], new[c:d]))
        pairs += changed
        gone += [op for op in old[a:b] if all(op is not one for one, _ in changed)]
        come += [op for op in new[c:d] if all(op is not one for _, one in changed)]
    moved = list(_moved(gone, come))
    pairs += moved
    found = [f"- {_times(name, n)}" for name, n in Counter(op.name for op in gone).items()]
    found += [f"+ {_times(name, n)}" for name, n in Counter(op.name for op in come).items()]
    found += [f"{_times(name, n)} in another place" for name, n in Counter(one.name for one, _ in moved).items()]
    same = {a: b for one, other in pairs for a, b in zip(one.results, other.results, strict=False)}
    lines = [line for one, other in pairs for line in _changes(one, other, same)]
    return found + [f"~ {line}" + (f" (×{n})" if n > 1 else "") for line, n in Counter(lines).items()]


def _by_name(old: list[Op], new: list[Op]) -> Iterator[tuple[Op, Op]]:
    """Ops of one name in a stretch that differs, in order: the same op with another attribute or type."""
    left = list(new)
    for op in old:
        hit = next((one for one in left if one.name == op.name), None)
        if hit is not None:
            left.remove(hit)
            yield op, hit


def _moved(gone: list[Op], come: list[Op]) -> Iterator[tuple[Op, Op]]:
    for op in list(gone):
        hit = next((one for one in come if one.key == op.key), None)
        if hit is not None:
            gone.remove(op)
            come.remove(hit)
            yield op, hit


def _times(name: str, n: int) -> str:
    return f"{n} × {name}" if n > 1 else name


def _changes(old: Op, new: Op, same: dict[int, int]) -> Iterator[str]:
    before, after = dict(old.attributes), dict(new.attributes)
    for key in sorted({*before, *after}):
        if before.get(key) != after.get(key):
            yield f"{old.name}: {key} {before.get(key, 'absent')} → {after.get(key, 'absent')}"
    if old.rest != new.rest:
        yield f"{old.name}: {' → '.join(_trimmed(old.rest, new.rest))}"
    wired = zip(old.operands, new.operands, strict=False)
    if old.rest == new.rest and any(same.get(one, other) != other for one, other in wired):
        yield f"{old.name}: works on {', '.join(new.shown)} instead of {', '.join(old.shown)}"


def _trimmed(old: str, new: str) -> tuple[str, str]:
    """Both texts without the words with which both begin and end."""
    mine, yours = old.split(" "), new.split(" ")
    while mine and yours and mine[0] == yours[0]:
        mine, yours = mine[1:], yours[1:]
    while mine and yours and mine[-1] == yours[-1]:
        mine, yours = mine[:-1], yours[:-1]
    return " ".join(mine) or "nothing", " ".join(yours) or "nothing"
