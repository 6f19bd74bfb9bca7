"""Legality sets: which ops a pass or a phase accepts and which it leaves, checked with all offenders at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

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
    inside: Mapping[str, Legality] = field(default_factory=dict[str, "Legality"], compare=False)
    """Full name of an op → what may stand directly inside such an op, where that is less."""
    fault: Callable[[Operation], str] | None = None
    """What an op that is legal by its name still lacks, empty for nothing."""

    def allows(self, name: str) -> bool:
        """Whether an op of this full name is legal."""
        if name in self.illegal:
            return False
        anything = not self.dialects and not self.ops
        return anything or name in self.ops or name.partition(".")[0] in self.dialects

    def allows_op(self, op: Operation) -> bool:
        """Whether this op is legal where it stands."""
        return not self._wrong(op)

    def accepts(self, module: ModuleOp) -> bool:
        """Whether every op of `module` is legal."""
        return not any(self._wrong(op) for op in module.walk())

    def check(self, module: ModuleOp, when: str, fix: str = "") -> None:
        """Raise `CompileError` with every illegal op of `module`; `when` says whose rule it is, `fix` what to do.

        Ops of one name and location are one diagnostic, and only the first says what to do.
        """
        wrong = Counter((reason, locations.of(op)) for op in module.walk() if (reason := self._wrong(op)))
        found = Collector()
        for (reason, where), times in wrong.items():
            more = f" ({times} ops)" if times > 1 else ""
            found.add("illegal-op", f"{when}: {reason}{more}", fix=fix, location=where)
            fix = ""
        found.raise_if_any()

    def _wrong(self, op: Operation) -> str:
        name = op.name
        if not self.allows(name):
            return f"'{name}' is not legal here"
        if self.inside and (parent := op.parent_op()) is not None:
            rule = self.inside.get(parent.name)
            if rule is not None and not rule.allows(name):
                return f"'{name}' is not legal directly inside '{parent.name}'"
        lacks = self.fault(op) if self.fault is not None else ""
        return f"'{name}' {lacks}" if lacks else ""


def legal(
    *names: str,
    illegal: tuple[str, ...] = (),
    inside: Mapping[str, Legality] | None = None,
    fault: Callable[[Operation], str] | None = None,
) -> Legality:
    """`legal("builtin", "func", "tensor.add", illegal=("func.call",))`: names with a dot are ops, others dialects."""
    return Legality(
        frozenset(n for n in names if "." not in n),
        frozenset(n for n in names if "." in n),
        frozenset(illegal),
        inside or {},
        fault,
    )
