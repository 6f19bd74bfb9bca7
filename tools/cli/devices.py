"""`headrace devices`: what there is to compile for, and where each number comes from."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import click

from headrace.tools.cli import common

if TYPE_CHECKING:
    from headrace.dialects.machine.device import Device


@click.command("devices")
@click.argument("name", required=False)
@common.json_option
def command(name: str | None, as_json: bool) -> None:
    """List the devices; with NAME (or a .toml file), every number of that one and where it comes from. NAME may also be
    a GPU that `headrace bench --against` knows."""
    from headrace.dialects.machine.device import device_bases, device_names, load_device

    if name is None:
        devices = [load_device(one) for one in device_names()]
        if as_json:
            common.print_json([overview(one) for one in devices])
        else:
            click.echo(overview_text(devices))
        return
    if name not in device_names() and name in (gpus := _gpus()):
        rows = gpus[name]
        if as_json:
            common.print_json({"gpu": name, "numbers": rows})
        else:
            click.echo(f"{name}: a GPU, for `headrace bench --against {name}`\n\n{numbers_text(rows)}")
        return
    device = load_device(name)
    numbers = flat(device.to_dict())
    bases = device_bases(name)
    rows = [
        {"name": path, "value": value, "unit": bases[path].unit, "basis": bases[path].kind, "text": bases[path].text}
        for path, value in numbers.items()
        if path in bases  # what the file does not give has its neutral value
    ]
    if as_json:
        common.print_json({"device": device.name, "overview": overview(device), "numbers": rows})
    else:
        click.echo(f"{summary_text(device)}\n\n{numbers_text(rows)}")


def _gpus() -> dict[str, list[dict[str, Any]]]:
    """The numbers of every GPU, with their bases."""
    from dataclasses import asdict

    from headrace.tools.predict.gpu.facts import gpu_bases, gpu_names, load_gpu

    found: dict[str, list[dict[str, Any]]] = {}
    for name in gpu_names():
        values = flat({key: part for key, part in asdict(load_gpu(name)).items() if key != "name"})
        found[name] = [
            {"name": path, "value": values[path], "unit": basis.unit, "basis": basis.kind, "text": basis.text}
            for path, basis in gpu_bases(name).items()
        ]
    return found


def overview(device: Device) -> dict[str, Any]:
    """The figures by which devices are chosen."""
    from headrace.dialects.machine.cost import peak_flops
    from headrace.dialects.support.dtypes import is_float

    return {
        "name": device.name,
        "pcus": device.count("pcu"),
        "pmus": device.count("pmu"),
        "agcus": device.count("agcu"),
        "clock_hz": device.clock,
        "sram_bytes": device.count("pmu") * device.pmu.bytes,
        "hbm_bytes": device.hbm.bytes if device.hbm else 0,
        "ddr_bytes": device.ddr.bytes,
        "hbm_bandwidth": device.hbm.bandwidth if device.hbm else 0,
        "ddr_bandwidth": device.ddr.bandwidth,
        "types": [one.name for one in device.types if not one.emulated_as],
        "peak_flops": {
            one.name: peak_flops(device, one.name) for one in device.types if not one.emulated_as and is_float(one.name)
        },
    }


def overview_text(devices: list[Device]) -> str:
    """A table, one row a device."""
    rows = [("device", "PCU", "PMU", "AGCU", "clock", "SRAM", "HBM", "DDR", "native types")]
    for one in map(overview, devices):
        rows.append(
            (
                one["name"],
                str(one["pcus"]),
                str(one["pmus"]),
                str(one["agcus"]),
                f"{one['clock_hz'] / 1e9:.2f} GHz",
                size(one["sram_bytes"]),
                f"{size(one['hbm_bytes'])} {one['hbm_bandwidth'] / 1e9:.0f} GB/s" if one["hbm_bytes"] else "-",
                f"{size(one['ddr_bytes'])} {one['ddr_bandwidth'] / 1e9:.0f} GB/s",
                " ".join(one["types"]),
            )
        )
    return common.table(rows) + "\n\n`headrace devices NAME` shows every number of a device and where it comes from."


def summary_text(device: Device) -> str:
    """What the numbers of a device come to: units, peak rates, memories."""
    one = overview(device)
    peaks = ", ".join(f"{name} {rate / 1e12:.4g} TFLOP/s" for name, rate in one["peak_flops"].items())
    memories = [f"{size(one['sram_bytes'])} SRAM"]
    for name in ("hbm", "ddr"):
        if one[f"{name}_bytes"]:
            memories.append(f"{size(one[f'{name}_bytes'])} {name.upper()} at {one[f'{name}_bandwidth'] / 1e9:.0f} GB/s")
    return (
        f"{one['name']}: {one['pcus']} PCU (compute), {one['pmus']} PMU (memory), {one['agcus']} AGCU (off chip), "
        f"{one['clock_hz'] / 1e9:g} GHz\npeak: {peaks}\nmemory: {', '.join(memories)}"
    )


def size(count: int) -> str:
    """Bytes with a binary unit."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:g} {unit}" if value == int(value) else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:g} TiB"


def flat(values: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Nested tables as dotted paths; the element types by their names."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        here = f"{path}{key}"
        if here == "types":
            for one in cast("Sequence[Mapping[str, Any]]", value):
                found |= flat(one, f"types.{one['name']}.")
        elif isinstance(value, Mapping):
            found |= flat(cast("Mapping[str, Any]", value), f"{here}.")
        else:
            found[here] = value
    return found


def numbers_text(rows: list[dict[str, Any]]) -> str:
    """A line per number: name, value, unit and basis; long sources are folded."""
    name_width = max(len(row["name"]) for row in rows)
    value_width = min(max(len(_shown(row)) for row in rows), 26)
    lines: list[str] = []
    for row in rows:
        shown, basis = _shown(row), f"{row['basis']}: {row['text']}"
        head, margin = f"{row['name']:{name_width}}  {shown:{value_width}}  ", " " * (name_width + value_width + 4)
        if len(shown) > value_width:
            lines.append(head.rstrip())
            head = margin
        lines += textwrap.wrap(basis, 118, initial_indent=head, subsequent_indent=margin) or [head.rstrip()]
    return "\n".join(lines)


PREFIXES = (("Hz", 1e9, "G"), ("B/s", 1e9, "G"), ("s", 1e-6, "u"), ("s", 1e-9, "n"))
"""Units that are shown with a prefix, from which value on."""


def _shown(row: dict[str, Any]) -> str:
    value = row["value"]
    if isinstance(value, list | tuple):
        parts = cast("Sequence[Any]", value)
        value = " ".join(
            "=".join(map(str, cast("Sequence[Any]", x))) if isinstance(x, list | tuple) else str(x) for x in parts
        )
    elif row["unit"] == "B" and isinstance(value, int) and value >= 1024:
        return size(value)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        for unit, limit, prefix in PREFIXES:
            if row["unit"] == unit and value >= limit:
                return f"{value / limit:.6g} {prefix}{unit}"
        value = f"{value:.6g}" if isinstance(value, float) else str(value)
    return (
        f"{value} {row['unit']}".strip() if row["unit"] not in ("flag", "name", "functions", "body ops") else str(value)
    )
