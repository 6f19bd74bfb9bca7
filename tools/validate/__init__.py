"""Predictions held against published results: rows, kinds, errors, and the constants that were set by which rows."""

from headrace.tools.validate.predictions import Answer, Study
from headrace.tools.validate.report import Outcome, Report, validate
from headrace.tools.validate.rows import KINDS, ROWS, Kind, Range, Row, kinds_from_text, row_of

__all__ = [
    "KINDS",
    "ROWS",
    "Answer",
    "Kind",
    "Outcome",
    "Range",
    "Report",
    "Row",
    "Study",
    "kinds_from_text",
    "row_of",
    "validate",
]
