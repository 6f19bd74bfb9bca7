"""The device attribute: exact round trip, and a refusal when a module has none."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.parser import Parser

from headrace.dialects.machine import Device, DeviceAttr, Machine, device_names, device_of, load_device, set_device
from headrace.dialects.support.diagnostics import CompileError

TINY = load_device(Path(__file__).parent / "data" / "tiny.toml")


def parse(text: str) -> ModuleOp:
    context = Context()
    context.load_dialect(Builtin)
    context.load_dialect(Machine)
    return Parser(context, text).parse_module()


@pytest.mark.parametrize("device", [*map(load_device, device_names()), TINY], ids=lambda d: d.name)
def test_a_device_survives_text(device: Device):
    module = ModuleOp([])
    set_device(module, device)
    again = parse(str(module))
    assert device_of(again) == device and str(again) == str(module)
    assert Device.from_attr(device.to_attr()) == device and device.to_attr() == DeviceAttr(device)


@given(
    clock=st.floats(1, 1e300),
    latency=st.floats(0, 1),
    name=st.text(st.characters(codec="ascii", categories=["L", "P"])),
)
def test_any_number_and_name_survives_text(clock: float, latency: float, name: str):
    device = TINY.with_values(name=name, clock=clock, ddr__latency=latency)
    module = ModuleOp([])
    set_device(module, device)
    assert device_of(parse(str(module))) == device


def test_a_module_without_a_device_is_refused():
    with pytest.raises(CompileError, match="the module has no device"):
        device_of(ModuleOp([]))
