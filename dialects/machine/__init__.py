"""The device: an attribute in the module, read from a TOML file, and the cost formulas on it."""

from headrace.dialects.machine.device import (
    UNIT_KINDS,
    Basis,
    Device,
    ElementType,
    Memory,
    Site,
    device_bases,
    device_names,
    load_device,
)

__all__ = [
    "UNIT_KINDS",
    "Basis",
    "Device",
    "ElementType",
    "Memory",
    "Site",
    "device_bases",
    "device_names",
    "load_device",
]
