"""Errors that a test announces in comments: `// expected-error @+1 {{text}}`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from headrace.dialects.support.diagnostics import CompileError
from headrace.tools.opt.parsing import Refusal

EXPECTED = re.compile(r"//.*?expected-(error|warning|note)(-re)?(?:\s*@([+-]\d+|above|below|\*))?\s*\{\{(.*?)\}\}")


class Expectation(NamedTuple):
    """One `expected-error {{…}}`: the line it is for (0: any line), the text or pattern, and where it stands."""

    line: int
    text: str
    is_pattern: bool
    stands: int

    def matches(self, refusal: Refusal) -> bool:
        """Whether this is the refusal that was expected."""
        if self.line not in (0, refusal.line):
            return False
        return bool(re.search(self.text, refusal.message)) if self.is_pattern else self.text in refusal.message


def expectations(text: str, first_line: int = 0) -> list[Expectation]:
    """The expected errors that the comments of `text` announce."""
    lines = text.splitlines()
    found: list[Expectation] = []
    for number, line in enumerate(lines, 1 + first_line):
        for kind, is_pattern, offset, message in EXPECTED.findall(line):
            if kind != "error":
                raise CompileError("bad-test", f"expected-{kind}: only errors are reported", location=f"line {number}")
            target = number
            if offset == "*":
                target = 0
            elif offset in ("above", "below"):
                target += _to_code(lines, number - 1 - first_line, -1 if offset == "above" else 1)
            elif offset:
                target += int(offset)
            found.append(Expectation(target, message, bool(is_pattern), number))
    return found


def _to_code(lines: Sequence[str], at: int, step: int) -> int:
    """The distance to the next line that is no expectation itself."""
    distance = step
    while 0 <= at + distance < len(lines) and EXPECTED.search(lines[at + distance]):
        distance += step
    return distance


def mismatches(expected: Iterable[Expectation], refusals: Iterable[Refusal]) -> list[Refusal]:
    """What differs between the expected and the real errors, as refusals; empty when they agree one to one."""
    left = list(refusals)
    wrong: list[Refusal] = []
    for one in expected:
        hit = next((r for r in left if one.matches(r)), None)
        if hit is None:
            wrong.append(Refusal(one.stands, 1, f'expected error "{one.text}" was not produced'))
        else:
            left.remove(hit)
    return wrong + [Refusal(r.line, r.column, f"unexpected error: {r.message}") for r in left]
