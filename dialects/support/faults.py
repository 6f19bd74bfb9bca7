"""Faults that an op finds in an op inside it."""

from __future__ import annotations

from xdsl.ir import Operation
from xdsl.utils.exceptions import VerifyException


class InnerFault(VerifyException):
    """A rule of an op that one of the ops inside it breaks: that one is reported, where it stands."""

    def __init__(self, op: Operation, message: str) -> None:
        super().__init__(f"{op.name}: {message}")
        self.op = op
