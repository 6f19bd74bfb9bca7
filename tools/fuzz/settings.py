"""What a program is compiled for, and how: random devices, pipelines and pass options."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from xdsl.passes import ModulePass

from headrace.dialects.machine.device import Device, device_names, load_device
from headrace.passes import pipelines
from headrace.passes.infra.registry import available

UNITS = "convert-dataflow-to-rdu"
"""From this pass on no interpreter runs the program, until units are routed."""
SMALL = "small"
"""A device of a few units with small memories, some other one for each seed."""


def random_device(rng: random.Random) -> Device:
    """A shipped device, or more often a small one."""
    if rng.random() < 0.3:
        return _shipped(rng.choice(device_names()))
    return small_device(rng)


def small_device(rng: random.Random) -> Device:
    """A variant of a shipped device with few units and small memories."""
    rows, columns = rng.choice((4, 6, 6, 8)), rng.choice((4, 6, 6, 8))
    values: dict[str, Any] = {
        "grid__columns": columns,
        "grid__rows": rows,
        "grid__tile_columns": 1,
        "grid__tile_rows": 1,
        "grid__dies": 1,
        "grid__agcu_edges": 2,
        "grid__agcus_per_edge": rng.choice((rows, rows // 2, max(rows // 2, 3))),
        "pmu__banks": rng.choice((4, 16)),
        "pmu__bytes": rng.choice((1024, 4096, 4096, 16384)),
        "pcu__lanes": rng.choice((4, 8, 16)),
        "pcu__stages": rng.choice((2, 6)),
        "pcu__systolic": rng.random() < 0.5,
        "network__flow_ids": rng.choice((16, 64)),
        "name": SMALL,
    }
    return _small(rng.choice(("sn40l", "plasticine")), tuple(values.items()))


@cache
def _shipped(name: str) -> Device:
    return load_device(name)


@cache
def _small(base: str, values: tuple[tuple[str, Any], ...]) -> Device:
    return _shipped(base).with_values(**dict(values))


def random_options(kind: type[ModulePass], rng: random.Random, often: float = 0.3, fixed: str = "") -> str:
    """Options of a pass as text, `{a=1 b=2}`: those that are fixed, and each other one that often, within its range or
    choices."""
    given = fixed.split()
    taken = {one.partition("=")[0] for one in given}
    for field in dataclasses.fields(kind):
        if field.name == "name" or not field.init or rng.random() >= often or field.name in taken:
            continue
        value = _value(field.default, field.metadata, rng)
        if value is not None:
            given.append(f"{field.name.replace('_', '-')}={_spelt(value)}")
    return f"{{{' '.join(given)}}}" if given else ""


def _value(default: Any, about: Mapping[str, Any], rng: random.Random) -> Any:
    """A value of an option; None to leave it out."""
    low, high = about.get("low"), about.get("high")
    if choices := about.get("choices"):
        return rng.choice(choices)
    match default:
        case bool():
            return rng.random() < 0.5
        case int():
            least = int(low) if low is not None else 0
            values = [n for n in (least, least + 1, least + 3, default // 4, default, 2 * default) if n >= least]
            return rng.choice([n for n in values if high is None or n <= high])
        case float():
            least, most = low or 0.0, high if high is not None else 2 * default
            return round(rng.uniform(max(least, default / 8), most), 3)
        case tuple():
            kept: list[str] = [x for x in default if rng.random() < 0.5]  # pyright: ignore[reportUnknownVariableType]
            return tuple(kept) or None
        case _:
            return None


def _spelt(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(f'"{x}"' for x in value) if isinstance(value, tuple) else str(value)  # pyright: ignore[reportUnknownVariableType]


def random_pipeline(names: Sequence[str], rng: random.Random, often: float) -> list[str]:
    """The passes with options at random beside those that they have."""
    passes = available()
    parts = [name.partition("{") for name in names]
    return [name + random_options(passes[name](), rng, often, given.rstrip("}")) for name, _, given in parts]


@dataclass(frozen=True)
class Setting:
    """What is done with a program."""

    device: Device
    pipeline: str
    compared: int = 0
    """How many passes run before results are compared after each one."""
    audited: bool = True
    """Whether the IR is audited after each pass."""


def whole_pipeline(rng: random.Random, device: Device, mode: str = "", precision: str = "fp32") -> Setting:
    """From whole tensors to units, in a mode of the compiler (sections are cut in any way when that is empty) and at a
    precision. Programs meet the dataflow passes optimized, as they are, or after a few tensor passes in any order;
    passes on sections that only make things better are left out now and then."""
    tensor: list[str] = list(pipelines.TENSOR)
    if rng.random() < 0.4:
        tensor = [name for name in tensor if rng.random() < 0.4] if rng.random() < 0.5 else []
        rng.shuffle(tensor)
        if rng.random() < 0.8:  # else ops that read more tensors than a unit has inputs are refused
            tensor.append("decompose")
    if precision != "fp32":  # weights in eight bits lose more than programs are made to bear
        lower = f"{pipelines.LOWER}{{weights={precision}}}"
        before = "decompose" if "decompose" in tensor else ""
        tensor.insert(tensor.index(before) if before else rng.randint(0, len(tensor)), lower)
    optional = ("fuse-stages", "narrow-joins", "choose-layouts")
    order: tuple[str, ...] = pipelines.dataflow(mode) if mode else pipelines.DATAFLOW
    if mode:  # the rule is the mode's, the other options any
        order = tuple("cut-sections{by=time}" if name == "cut-sections" else name for name in order)
    dataflow = [name for name in order if name not in optional or rng.random() < 0.8]
    names = [*tensor, *dataflow, *pipelines.RDU]
    often = rng.choice((0.0, 0.2, 0.4))
    return Setting(device, ",".join(random_pipeline(names, rng, often)), audited=rng.random() < 0.4)


def one_pass(name: str, rng: random.Random, device: Device) -> Setting:
    """One pass with options at random, after what it needs: for a tensor pass, which runs twice, that is nothing, and
    a few others come first; a pass on units is followed by those that units need to run. A pass that is not in the
    default pipeline comes at the end of its level, before units are placed."""
    kind = available()[name]()
    text = name + random_options(kind, rng, 0.5)
    order = [*(pipelines.TENSOR if rng.random() < 0.5 else ()), *pipelines.DATAFLOW, *pipelines.RDU]
    level = kind.__module__.split(".")[-2]
    if name in pipelines.TENSOR or (name not in order and level not in ("dataflow", "rdu")):
        before = [one for one in pipelines.TENSOR if rng.random() < 0.2]
        rng.shuffle(before)
        return Setting(device, ",".join([*before, text, text]), len(before))
    if name not in order:
        order.insert(order.index("place" if level == "rdu" else UNITS), name)
    at = order.index(name)
    behind = order[at + 1 :] if at >= order.index(UNITS) else []
    return Setting(device, ",".join([*order[:at], text, *behind]), at)


def all_passes() -> tuple[str, ...]:
    """The passes of the default pipeline."""
    return tuple(dict.fromkeys((*pipelines.TENSOR, *pipelines.DATAFLOW, *pipelines.RDU)))
