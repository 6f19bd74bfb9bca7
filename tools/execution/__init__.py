"""Execution as the check: programs of every level run, compared, and the first op that deviates found."""

from headrace.tools.execution.check import Execution
from headrace.tools.execution.deviation import Deviation, deviation

__all__ = ["Deviation", "Execution", "deviation"]
