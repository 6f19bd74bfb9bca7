"""`#machine.device<"name", {…}>`: a whole device in the module, so that a test is one text file.

The dictionary is `Device.to_dict` with bare numbers. `#machine.device<"sn40l">` is short for a shipped device, and
`#machine.device<"small", {base = "sn40l", pmu = {bytes = 4096}}>` for one that changes a few of its numbers; both
print in full.
"""

from __future__ import annotations

from typing import Any, cast

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Data, Dialect
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer

from headrace.dialects.machine.device import Device, device_names, load_device, merged
from headrace.dialects.support.diagnostics import CompileError, nearest

DEVICE_ATTRIBUTE = "machine.device"
"""Name of the module attribute that holds the device."""


def _parse_value(parser: AttrParser) -> Any:
    if (text := parser.parse_optional_str_literal()) is not None:
        return text
    if (flag := parser.parse_optional_boolean()) is not None:
        return flag
    if (number := parser.parse_optional_number()) is not None:
        return number
    delimiter = parser.Delimiter
    rows = parser.parse_optional_comma_separated_list(delimiter.SQUARE, lambda: _parse_value(parser))
    if rows is not None:
        return rows
    return dict(parser.parse_comma_separated_list(delimiter.BRACES, lambda: _parse_entry(parser)))


def _parse_entry(parser: AttrParser) -> tuple[str, Any]:
    key = parser.parse_identifier_or_str_literal()
    parser.parse_punctuation("=")
    return key, _parse_value(parser)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, float):
        mantissa, e, exponent = repr(value).partition("e")
        return f"{mantissa if '.' in mantissa else mantissa + '.0'}{e}{exponent}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_text, cast("list[Any]", value))) + "]"
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return "{" + ", ".join(f"{k} = {_text(v)}" for k, v in items) + "}"
    return str(value)


def _shipped(name: str) -> Device:
    """A shipped device only: parsing a module never reads a path that the module names."""
    if name not in device_names():
        raise CompileError("unknown-device", f"there is no device '{name}'", fix=nearest(name, device_names()))
    return load_device(name)


def _changed(name: str, table: dict[str, Any]) -> Device:
    """The device of a whole table, or of one that names a shipped `base` and what differs from it."""
    if (base := table.pop("base", None)) is not None:
        table = merged(_shipped(str(base)).to_dict(), table)
    return Device.from_dict({**table, "name": name})


@irdl_attr_definition
class DeviceAttr(Data[Device]):
    """A device, all of it.

    Example: `builtin.module attributes {machine.device = #machine.device<"tiny", {clock = 1.0e9, grid = {…}, …}>} {…}`

    Errors: a parse error that lists every key that is missing, unknown or out of range.
    """

    name = "machine.device"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Device:
        with parser.in_angle_brackets():
            at = parser.pos
            name = parser.parse_str_literal()
            table = _parse_value(parser) if parser.parse_optional_punctuation(",") else None
            try:
                device = _shipped(name) if table is None else _changed(name, table)
            except CompileError as error:
                parser.raise_error(str(error), at)
            return device

    def print_parameter(self, printer: Printer) -> None:
        table = self.data.to_dict()
        name = table.pop("name")
        printer.print_string(f"<{_text(name)}, {_text(table)}>")


def device_of(module: ModuleOp) -> Device:
    """The device of the module; CompileError `no-device` if it has none."""
    attr = module.attributes.get(DEVICE_ATTRIBUTE)
    if not isinstance(attr, DeviceAttr):
        raise CompileError(
            "no-device",
            "the module has no device",
            why=f"no attribute '{DEVICE_ATTRIBUTE}'",
            fix="give --device NAME, or write it in the module",
        )
    return attr.data


def set_device(module: ModuleOp, device: Device) -> None:
    """Put the device in the module, in place of one that is there."""
    module.attributes[DEVICE_ATTRIBUTE] = DeviceAttr(device)


Machine = Dialect("machine", [], [DeviceAttr])
