"""The device: an attribute in the module, read from a TOML file, and the cost formulas on it.

The attribute (`Machine`, `DeviceAttr`, `device_of`, `set_device`) is imported when first used, so that the runtime can
read a device without loading the IR.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.dialects.machine.device import (
    UNIT_KINDS,
    Basis,
    Device,
    Site,
    device_bases,
    device_names,
    load_device,
)

if TYPE_CHECKING:
    from headrace.dialects.machine.attributes import DEVICE_ATTRIBUTE, DeviceAttr, Machine, device_of, set_device

__all__ = [
    "DEVICE_ATTRIBUTE",
    "UNIT_KINDS",
    "Basis",
    "Device",
    "DeviceAttr",
    "Machine",
    "Site",
    "device_bases",
    "device_names",
    "device_of",
    "load_device",
    "set_device",
]


def __getattr__(name: str) -> Any:
    if name in ("DEVICE_ATTRIBUTE", "DeviceAttr", "Machine", "device_of", "set_device"):
        from headrace.dialects.machine import attributes

        return getattr(attributes, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
