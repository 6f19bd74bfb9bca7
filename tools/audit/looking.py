"""What every part of the audit works on: a config, its device, and the list of what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from headrace.dialects.machine.device import Device
from headrace.dialects.support.diagnostics import Collector
from headrace.tools.audit.program import Config, Flow, Ints, Unit

UNSOUND = frozenset(
    {"wrong-tile", "wrong-sites", "no-addresses", "out-of-bounds", "bad-pair", "broken-route", "off-the-mesh"}
)
"""What keeps addresses, or the links of a flow, from being followed."""
SHOWN = 4
"""So many of a kind are named in a message."""


@dataclass(frozen=True, eq=False)
class Look:
    """One config on its device, one of so many `sockets`. `unsound`: flows that later parts cannot look at, for what is
    wrong with them; `untimed`: units of which nobody can say how long they take."""

    config: Config
    device: Device
    found: Collector
    sockets: int = 1
    unsound: set[Flow] = field(default_factory=set[Flow])
    untimed: set[Unit] = field(default_factory=set[Unit])

    def bad(self, code: str, what: str, at: Unit | Flow | None = None, why: str = "", fix: str = "") -> None:
        """Note something wrong with a unit, a flow or the config."""
        location = at.location if at is not None and at.location else self.config.location
        if isinstance(at, Flow) and code in UNSOUND:
            self.unsound.add(at)
        self.found.add(code, f"config @{self.config.name}: {what}", why=why, fix=fix, location=location)

    @property
    def sound(self) -> list[Flow]:
        """The flows that nothing was wrong with so far."""
        return [flow for flow in self.config.flows if flow not in self.unsound]


def few(items: Sequence[object]) -> str:
    """The first of some, and how many more there are."""
    shown = ", ".join(map(str, items[:SHOWN]))
    return f"{shown} and {len(items) - SHOWN} more" if len(items) > SHOWN else shown


def numbers(table: Ints) -> list[int]:
    """The numbers of a table."""
    return [int(n) for n in table.ravel()]


def rows(table: Ints) -> list[tuple[int, ...]]:
    """The rows of a table."""
    return [tuple(numbers(row)) for row in table]
