"""The device: an attribute in the module, read from a TOML file, and the cost formulas on it.

The attribute (`Machine`, `DeviceAttr`, `device_of`, `set_device`) is imported when first used, so that the runtime can
read a device without loading the IR.

Between sockets a device has links (`sockets` of its file): those of a node, in which each pair has a link or neighbours
of a torus have, and those to switches between nodes. `collectives.py` says how long all_reduce, all_gather,
reduce_scatter, all_to_all and permute take on them. Modelled are

* algorithms (direct, rings one way and both ways, halving and doubling, hierarchical over nodes or rows) as rounds of
  messages on the links that they take, all groups of the mesh at once; the cheapest is chosen;
* the latency of a message: its protocol, every link, AGCU and switch on its way, and a pass through a PCU where it is
  combined; its bytes: whole bursts and a header over what the busiest link achieves;
* what a socket sends and takes through its AGCUs (their width, and bursts in flight over the way there and back, all
  AGCUs of the device together), and what a PCU combines;
* tiles behind each other, which overlap on the links, and collectives of one section that share them.

Not modelled are messages that go around by a third socket or inside a node by the switches; a switch that is short of
bandwidth; the routes on the chip from a unit to the AGCUs whose ports its messages take, and which AGCUs these are
(beside the bound by all of them); sockets that are not ready at the same time.
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
