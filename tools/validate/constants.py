"""The free constants: numbers of device files that nothing published gives, and on which rows they were set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.dialects.machine.device import device_bases, load_device

DEVICES = ("sn10", "sn40l", "sn50")
FREE: dict[str, tuple[str, ...]] = {
    "launch.software": ("6", "7.decode", "7.prefill"),
    "launch.hardware": ("7.decode", "7.prefill"),
    "launch.reconfigure": (),
    "sockets.latency": (),
    "sockets.link_latency": (),
    "sockets.link_bandwidth": (),
    "sockets.efficiency": (),
    "sockets.header": (),
    "hbm.efficiency": (),
    "ddr.efficiency": (),
}
"""Entry of a device file → the rows that it is set by; those without are inferred from other facts, and fitted to
nothing. Row 10 does not set `sockets.latency`: it is missed by more than all time that sockets wait for each other, and
row 19 does not set `launch.reconfigure`: no section of its program finds itself loaded."""


@dataclass(frozen=True)
class Constant:
    """A free constant of a device."""

    path: str
    device: str
    value: float
    unit: str
    basis: str
    rows: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "entry": self.path,
            "device": self.device,
            "value": self.value,
            "unit": self.unit,
            "basis": self.basis,
            "fitted_on": list(self.rows),
        }


def constants() -> tuple[Constant, ...]:
    """All of them that are not published, as the device files have them."""
    found: list[Constant] = []
    for path, rows in FREE.items():
        for name in DEVICES:
            basis = device_bases(name).get(path)
            if basis is None or basis.kind == "source":
                continue
            # the rows are of one device; the others take over its value, or scale it
            mine = rows if name == "sn40l" else ()
            found.append(Constant(path, name, value_of(name, path), basis.unit, f"{basis.kind}: {basis.text}", mine))
    return tuple(found)


def value_of(device: str, path: str) -> float:
    """A number of a shipped device."""
    at: Any = load_device(device)
    for part in path.split("."):
        at = getattr(at, part)
    return float(at)


__all__ = ["DEVICES", "FREE", "Constant", "constants", "value_of"]
