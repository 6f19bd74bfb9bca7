"""Rows with their predictions: as JSON, Markdown, and a page with plots that needs no other file."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from html import escape
from statistics import median
from typing import Any

from headrace.dialects.support.diagnostics import CompileError
from headrace.tools.validate.constants import Constant, constants
from headrace.tools.validate.plots import agreement, rooflines
from headrace.tools.validate.predictions import FILES, FUNCTIONS, Answer, Study
from headrace.tools.validate.rows import KINDS, ROWS, Kind, Range, Row

COMMAND = "headrace validate"


@dataclass(frozen=True)
class Outcome:
    """A row and what became of it: an answer, or why there is none. `seconds` of CPU."""

    row: Row
    answer: Answer | None
    why: str = ""
    seconds: float = 0.0

    @property
    def error(self) -> float | None:
        """(predicted - published) / published."""
        return None if self.answer is None else self.row.error(self.answer.value)

    @property
    def within(self) -> bool | None:
        """Whether the prediction is as near as the row asks for."""
        return None if self.answer is None else self.row.within(self.answer.value)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        row, published = self.row, self.row.published
        return {
            "id": row.id,
            "workload": row.workload,
            "metric": row.metric,
            "unit": row.unit,
            "published": [published.low, published.high] if isinstance(published, Range) else published,
            "predicted": None if self.answer is None else self.answer.value,
            "error": self.error,
            "kind": row.kind,
            "source": row.source,
            "conditions": row.conditions,
            "tolerance": row.tolerance,
            "within": self.within,
            "vintage": row.vintage,
            "note": self.why if self.answer is None else self.answer.note,
        }


@dataclass(frozen=True)
class Report:
    """All rows that were asked for, and the constants that predictions were made with."""

    kinds: tuple[Kind, ...]
    outcomes: tuple[Outcome, ...]
    constants: tuple[Constant, ...]

    def of(self, kind: Kind) -> tuple[Outcome, ...]:
        """The rows of a kind."""
        return tuple(x for x in self.outcomes if x.row.kind == kind)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "kinds": list(self.kinds),
            "rows": [x.to_json() for x in self.outcomes],
            "constants": [x.to_json() for x in self.constants],
        }

    def markdown(self) -> str:
        """A page of tables."""
        parts = [_head(self.kinds)]
        for kind in self.kinds:
            found = self.of(kind)
            if found:
                parts += [f"## {kind}: {KINDS[kind].partition(':')[0]}", _table(found), summary(kind, found)]
        parts += ["## Constants", _CONSTANTS, _constants_table(self.constants)]
        return "\n\n".join(parts) + "\n"

    def html(self) -> str:
        """A page with plots, in one file."""
        parts = ["<h1>Predictions against published results</h1>", f"<p>{escape(_INTRODUCTION)}</p>"]
        parts.append(agreement([(x.row, x.answer.value) for x in self.outcomes if x.answer is not None]))
        for kind in self.kinds:
            if found := self.of(kind):
                parts.append(f"<h2>{kind}: {escape(KINDS[kind].partition(':')[0])}</h2>")
                parts.append(_html_table(_TABLE, [_cells(x) for x in found]))
                parts.append(f"<p>{escape(summary(kind, found))}</p>")
        parts.append("<h2>Rooflines</h2>")
        steps = {step.conditions: step for x in self.outcomes if x.answer is not None for step in x.answer.steps}
        parts.append(rooflines(tuple(steps.values())))
        parts.append(f"<h2>Constants</h2><p>{escape(_CONSTANTS)}</p>")
        parts.append(_html_table(_CONSTANT, [_constant_cells(x) for x in self.constants]))
        body = "\n".join(parts)
        head = f'<meta charset="utf-8"><title>Validation</title><style>{_STYLE}</style>'
        return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head><body>\n{body}\n</body></html>\n'


def validate(
    kinds: Sequence[Kind] = tuple(KINDS),
    only: Collection[str] = (),
    study: Study = FILES,
    progress: Callable[[Row], None] | None = None,
) -> Report:
    """Predict the rows of some kinds, or only those with some ids among them. A row that the compiler refuses is
    reported with its reason."""
    found: list[Outcome] = []
    for row in ROWS:
        if row.kind not in kinds or (only and row.id not in only):
            continue
        if row.missing or row.id not in FUNCTIONS:
            found.append(Outcome(row, None, row.missing or "there is no model of it"))
            continue
        if progress is not None:
            progress(row)
        begin = time.process_time()
        try:
            answer = FUNCTIONS[row.id](study)
        except CompileError as error:
            found.append(Outcome(row, None, f"refused: {error.code}: {error.what}", time.process_time() - begin))
            continue
        found.append(Outcome(row, answer, "", time.process_time() - begin))
    return Report(tuple(kinds), tuple(found), constants())


def summary(kind: Kind, outcomes: Sequence[Outcome]) -> str:
    """What the rows of one kind say together: never how many of all kinds pass."""
    errors = [abs(x.error) for x in outcomes if x.error is not None]
    none = sum(x.answer is None for x in outcomes)
    left = f" Without a prediction: {none}." if none else ""
    if not errors:
        return f"No row of this kind has a prediction.{left}"
    if kind == "RANGE":
        outside = [x.row.id for x in outcomes if x.within is False]
        return (f"Outside of their range: {', '.join(outside)}." if outside else "All are inside their range.") + left
    return f"Median absolute error {median(errors):.1%}, largest {max(errors):.1%}.{left}"


_INTRODUCTION = (
    "Each row is predicted by compiling its workload for its system and timing the routed program. Kinds are reported "
    "by themselves: identities test that inputs and units are right, fitted rows cannot count as a pass, of ranges "
    "only the ends are known, and held-out rows had no part in setting a number."
)


def _head(kinds: Sequence[Kind]) -> str:
    """The head of the page, with the command that makes it."""
    command = COMMAND + (f" --kinds {','.join(kinds)}" if tuple(kinds) != tuple(KINDS) else "")
    return f"""# Predictions against published results

{_INTRODUCTION}

Made by `{command} --write FILE.md`; `--html FILE.html` makes a page with plots. Errors are (predicted - published) /
published; those of ranges are against the nearer end, and 0 inside."""


_CONSTANTS = (
    "Numbers of device files that are not published. Those with rows were set by these rows alone, by "
    "`python -m headrace.tools.validate.fit`; the others are inferred from other facts, which the file gives."
)
_TABLE = ("row", "workload", "metric", "published", "predicted", "error", "asked", "conditions", "source", "remarks")
_CONSTANT = ("entry", "device", "value", "set by rows", "basis")


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _cells(x: Outcome) -> list[str]:
    row = x.row
    published = str(row.published) if isinstance(row.published, Range) else _number(row.published)
    predicted = "-" if x.answer is None else _number(x.answer.value)
    error = "-" if x.error is None else f"{x.error:+.1%}"
    verdict = {True: f"{row.tolerance}: yes", False: f"{row.tolerance}: no", None: row.tolerance}[x.within]
    note = x.why if x.answer is None else x.answer.note
    unit = f" {row.unit}" if row.unit not in ("x", "") else ""
    source = f"{row.source}; software of {row.vintage}"
    return [row.id, row.workload, row.metric, published + unit, predicted, error, verdict, row.conditions, source, note]


def _constant_cells(x: Constant) -> list[str]:
    return [x.path, x.device, f"{x.value:g} {x.unit}", ", ".join(x.rows) or "none", x.basis]


def _table(outcomes: Sequence[Outcome]) -> str:
    return _markdown(_TABLE, [_cells(x) for x in outcomes])


def _constants_table(found: Sequence[Constant]) -> str:
    return _markdown(_CONSTANT, [_constant_cells(x) for x in found])


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows)])


def _html_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    titles = "".join(f"<th>{escape(x)}</th>" for x in head)
    lines = ("".join(f"<td>{escape(x)}</td>" for x in row) for row in rows)
    return f"<table><tr>{titles}</tr>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"


_STYLE = (
    "body{font:14px/1.5 system-ui,sans-serif;margin:2em auto;max-width:1200px;padding:0 1em;color:#1d2733}"
    "table{border-collapse:collapse;font-size:12px}td,th{border-bottom:1px solid #dde3ea;padding:4px 8px;"
    "text-align:left;vertical-align:top}svg{max-width:100%;height:auto}"
)
