"""Legality sets: which ops a pass accepts and which it leaves, checked with all offenders at once."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp

from headrace.dialects.support import locations
from headrace.dialects.support.diagnostics import Collector


@dataclass(frozen=True)
class Legality:
    """The ops of `dialects` (and `ops`, by full name) are legal, except those named in `illegal`.

    No `dialects` and no `ops` means that everything not `illegal` is legal.
    """

    dialects: frozenset[str] = frozenset()
    ops: frozenset[str] = frozenset()
    illegal: frozenset[str] = frozenset()

    def allows(self, name: str) -> bool:
        """Whether an op of this full name is legal."""
        if name in self.illegal:
            return False
        anything = not self.dialects and not self.ops
        return anything or name in self.ops or name.partition(".")[0] in self.dialects

    def check(self, module: ModuleOp, when: str) -> None:
        """Raise `CompileError` with every illegal op of `module`; `when` says whose rule it is."""
        found = Collector()
        for op in module.walk():
            if not self.allows(op.name):
                found.add("illegal-op", f"{when}: '{op.name}' is not legal here", location=locations.of(op))
        found.raise_if_any()


def legal(*names: str, illegal: tuple[str, ...] = ()) -> Legality:
    """`legal("builtin", "func", "tensor.add", illegal=("func.call",))`: names with a dot are ops, others dialects."""
    return Legality(
        frozenset(n for n in names if "." not in n), frozenset(n for n in names if "." in n), frozenset(illegal)
    )
