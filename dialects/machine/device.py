"""What a device is: plain numbers about one reconfigurable dataflow unit, read from a TOML file.

A device file gives every number as `{ value = 32, unit = "lanes", source = "…" }`, or with `inferred = "why"` in place
of `source`. A file that is all guesswork (a test device, a what-if) may say `basis = "inferred: why"` once at the top
and use bare values; `base = "sn40l"` starts from a shipped device and changes only what the file names.

Nothing here holds a hardware number, and nothing here imports NumPy or xDSL.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass, replace
from functools import cache, cached_property
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar, cast, get_args, get_type_hints

from headrace.dialects.machine.parts import (
    Agcu,
    ElementType,
    Grid,
    Launch,
    Memory,
    Network,
    Pcu,
    Pmu,
    Quantity,
    Sockets,
)
from headrace.dialects.support.diagnostics import Collector, CompileError, nearest

if TYPE_CHECKING:
    from headrace.dialects.machine.attributes import DeviceAttr

Facts = TypeVar("Facts")

UNIT_KINDS = ("pcu", "pmu", "agcu")
"""Kinds of units that have sites on the mesh."""


class Basis(NamedTuple):
    """Why a device file gives a number: `kind` 'source' (published; `text` says where) or 'inferred' (and how)."""

    kind: str
    text: str
    unit: str


class Site(NamedTuple):
    """Coordinates of a unit on the mesh of switches."""

    x: int
    y: int


@dataclass(frozen=True)
class Device:
    """One device. Hashable, comparable, and the same as a dictionary (`to_dict`), a TOML file and `#machine.device`."""

    name: str
    clock: Annotated[float, Quantity("Hz", "of fabric and units", low=1)]
    grid: Grid
    pcu: Pcu
    pmu: Pmu
    agcu: Agcu
    network: Network
    ddr: Memory
    launch: Launch
    sockets: Sockets
    types: tuple[ElementType, ...]
    hbm: Memory | None = None

    # Geometry.

    @property
    def mesh(self) -> tuple[int, int]:
        """Columns and rows of the mesh of switches, edge columns included."""
        return self.grid.columns + 2, self.grid.rows

    @cached_property
    def _sites(self) -> dict[str, tuple[Site, ...]]:
        grid = self.grid
        units = [Site(x, y) for y in range(grid.rows) for x in range(1, grid.columns + 1)]
        paired = grid.pattern == "paired"
        edges = (0, grid.columns + 1)[: grid.agcu_edges]
        ports = [(2 * i + 1) * grid.rows // (2 * grid.agcus_per_edge) for i in range(grid.agcus_per_edge)]
        return {
            "pcu": tuple(s for s in units if paired or (s.x + s.y) % 2),
            "pmu": tuple(s for s in units if paired or not (s.x + s.y) % 2),
            "agcu": tuple(Site(x, y) for x in edges for y in ports),
        }

    def sites(self, kind: str) -> tuple[Site, ...]:
        """Legal sites of the units of `kind` ('pcu', 'pmu' or 'agcu'), row by row (AGCUs: edge by edge)."""
        return self._sites[kind]

    def count(self, kind: str) -> int:
        """How many units of `kind` the device has."""
        return len(self._sites[kind])

    # Rates.

    @cached_property
    def _types(self) -> dict[str, ElementType]:
        return {t.name: t for t in self.types}

    def type(self, dtype: str) -> ElementType:
        """The entry of an element type; CompileError if the device file has none."""
        found = self._types.get(dtype)
        if found is None:
            raise CompileError(
                "unknown-element-type",
                f"device '{self.name}' has no entry for element type '{dtype}'",
                why=f"its file lists {', '.join(self._types)}",
                fix=f"add [types.{dtype}] to the device file, or cast the program to another type",
            )
        return found

    def is_native(self, dtype: str) -> bool:
        """Whether the device computes in this element type itself."""
        return not self.type(dtype).emulated_as

    def systolic_rate(self, dtype: str) -> float:
        """Multiply-accumulates per cycle and functional unit, emulation included."""
        entry = self.type(dtype)
        native = self.type(entry.emulated_as) if entry.emulated_as else entry
        return native.systolic / entry.multiplier

    def simd_rate(self, dtype: str) -> float:
        """Other operations per cycle and functional unit, emulation included."""
        entry = self.type(dtype)
        native = self.type(entry.emulated_as) if entry.emulated_as else entry
        return native.simd / entry.multiplier

    def memory(self, name: str) -> Memory:
        """The off-chip memory 'hbm' or 'ddr'; CompileError if the device has no such memory."""
        found = {"hbm": self.hbm, "ddr": self.ddr}.get(name)
        if found is None:
            known = "hbm and ddr" if self.hbm else "ddr only"
            raise CompileError("no-such-memory", f"device '{self.name}' has no memory '{name}'", why=f"it has {known}")
        return found

    # Other forms.

    def to_dict(self) -> dict[str, Any]:
        """Plain nested dictionary (strings, numbers, booleans, lists); `from_dict` is its inverse."""
        return cast("dict[str, Any]", _plain(asdict(self)))

    @staticmethod
    def from_dict(table: Mapping[str, Any]) -> Device:
        """The device of such a dictionary; CompileError `bad-device` lists everything that is missing or wrong."""
        found = Collector()
        device = _build(Device, table, "", found, str(table.get("name", "device")))
        found.raise_if_any()
        checked = cast(Device, device)
        _check(checked, found)
        found.raise_if_any()
        return checked

    def to_attr(self) -> DeviceAttr:
        """The device as an IR attribute."""
        from headrace.dialects.machine.attributes import DeviceAttr

        return DeviceAttr(self)

    @staticmethod
    def from_attr(attr: DeviceAttr) -> Device:
        """The device of an IR attribute."""
        return attr.data

    def with_values(self, **values: Any) -> Device:
        """A changed copy, `path=value` with dots written as double underscores: `with_values(pmu__bytes=1 << 20)`."""
        changed = self
        for path, value in values.items():
            *heads, last = path.split("__")
            if not heads:
                changed = replace(changed, **{last: value})
                continue
            part = getattr(changed, heads[0])
            changed = replace(changed, **{heads[0]: replace(part, **{last: value})})
        return Device.from_dict(changed.to_dict())


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return {k: _plain(v) for k, v in items if v is not None}
    if isinstance(value, (tuple, list)):
        return [_plain(v) for v in cast("list[Any]", value)]
    return value


class _Spec(NamedTuple):
    """One field of a part: its plain type, its quantity or the part it holds, and whether it must be given."""

    key: str
    type: Any
    quantity: Quantity | None
    part: type[Any] | None
    required: bool


@cache
def _specs(cls: type[Any]) -> tuple[_Spec, ...]:
    hints = get_type_hints(cls, include_extras=True)
    out: list[_Spec] = []
    for entry in fields(cls):
        hint = hints[entry.name]
        arguments: tuple[Any, ...] = get_args(hint)
        quantity = next((a for a in arguments if isinstance(a, Quantity)), None)
        part = next((cast("type[Any]", a) for a in (hint, *arguments) if is_dataclass(a)), None)
        out.append(_Spec(entry.name, arguments[0] if quantity else hint, quantity, part, entry.default is MISSING))
    return tuple(out)


def _leaf(spec: _Spec, value: Any, path: str, found: Collector, name: str) -> Any:
    """`value` as the field's type, or a diagnostic."""
    unit, doc, low = spec.quantity or Quantity("", "")

    def bad(expected: str) -> None:
        found.add("bad-device", f"device '{name}': {path} = {value!r} is not {expected}", why=doc)

    if spec.type is bool:
        return value if isinstance(value, bool) else bad("true or false")
    if spec.type is str:
        return value if isinstance(value, str) else bad("a string")
    if spec.type in (int, float):
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return bad(f"a number ({unit})")
        if not low <= value < float("inf"):  # refuses NaN too
            return bad(f"at least {low} {unit}")
        return spec.type(value) if spec.type(value) == value else bad(f"a whole number ({unit})")
    if spec.type == tuple[str, ...]:
        listed = isinstance(value, (list, tuple)) and all(isinstance(v, str) for v in cast("list[Any]", value))
        return tuple(cast("list[str]", value)) if listed else bad("a list of names")
    pairs = list(cast("Mapping[str, Any]", value).items()) if isinstance(value, Mapping) else value
    try:
        return tuple((str(k), int(v)) for k, v in cast("list[Any]", pairs))
    except (TypeError, ValueError):
        return bad("a table of function = body ops")


def _build_types(listed: Any, found: Collector, name: str) -> tuple[ElementType, ...]:
    """Element types from a list of rows or from a table by name, in the order of their names."""
    if isinstance(listed, Mapping):
        named = cast("Mapping[str, Any]", listed).items()
        listed = [{"name": k, **cast("dict[str, Any]", v)} if isinstance(v, Mapping) else v for k, v in named]
    if not isinstance(listed, (list, tuple)):
        found.add("bad-device", f"device '{name}': types = {listed!r} is not a table of element types")
        return ()
    rows = list(cast("list[Any]", listed))
    built = [_build(ElementType, row, f"types.{_row_name(row)}.", found, name) for row in rows]
    types = tuple(sorted((t for t in built if t), key=lambda t: t.name))
    if len({t.name for t in types}) != len(types):
        found.add("bad-device", f"device '{name}': an element type is listed twice")
    return types


def _row_name(row: Any) -> str:
    return str(cast("Mapping[str, Any]", row).get("name", "?")) if isinstance(row, Mapping) else "?"


def _build(cls: type[Any], table: Any, path: str, found: Collector, name: str) -> Any:
    """An instance of the dataclass from a nested dictionary; problems go to `found` and the answer is then None."""
    if not isinstance(table, Mapping):
        found.add("bad-device", f"device '{name}': [{path}] is {table!r}, not a table")
        return None
    entries = cast("Mapping[str, Any]", table)
    before = len(found.diagnostics)
    specs = {spec.key: spec for spec in _specs(cls)}
    for key in entries:
        if key not in specs:
            found.add("bad-device", f"device '{name}': unknown key '{path}{key}'", fix=nearest(key, specs))
    values: dict[str, Any] = {}
    for key, spec in specs.items():
        if key not in entries:
            if spec.required:
                why = f"{spec.quantity.doc} ({spec.quantity.unit})" if spec.quantity else f"the table [{key}]"
                found.add("bad-device", f"device '{name}': missing {path}{key}", why=why)
        elif key == "name":
            values[key] = str(entries[key])
        elif spec.part is ElementType:
            values[key] = _build_types(entries[key], found, name)
        elif spec.part:
            values[key] = _build(spec.part, entries[key], f"{path}{key}.", found, name)
        else:
            values[key] = _leaf(spec, entries[key], f"{path}{key}", found, name)
    return cls(**values) if len(found.diagnostics) == before else None


def _check(device: Device, found: Collector) -> None:
    """Rules between the numbers of a device."""

    def need(holds: bool, what: str, why: str = "") -> None:
        if not holds:
            found.add("bad-device", f"device '{device.name}': {what}", why=why)

    grid, patterns = device.grid, ("checkerboard", "paired")
    need(grid.pattern in patterns, f"grid.pattern '{grid.pattern}' is unknown", f"known: {', '.join(patterns)}")
    for dim, parts in (("columns", grid.tile_columns), ("rows", grid.tile_rows), ("columns", grid.dies)):
        need(getattr(grid, dim) % parts == 0, f"grid.{dim} = {getattr(grid, dim)} does not divide into {parts} parts")
    need(grid.agcu_edges <= 2, f"grid.agcu_edges = {grid.agcu_edges}; the mesh has two edge columns")
    need(grid.agcus_per_edge <= grid.rows, f"grid.agcus_per_edge = {grid.agcus_per_edge} in {grid.rows} rows")
    need(device.pmu.bytes % device.pmu.banks == 0, "pmu.bytes does not divide into pmu.banks")
    for memory in filter(None, (device.hbm, device.ddr)):
        need(0 < memory.efficiency <= 1, f"efficiency {memory.efficiency} is not in (0, 1]")
    sockets, topologies = device.sockets, ("none", "torus", "all-to-all")
    need(
        sockets.topology in topologies,
        f"sockets.topology '{sockets.topology}' is unknown",
        f"known: {', '.join(topologies)}",
    )
    linked = sockets.topology != "none"
    need(linked or sockets.node == 1, f"sockets.node = {sockets.node} devices and topology 'none'")
    need(
        not linked or (sockets.links > 0 and sockets.link_bandwidth > 0),
        f"sockets.topology '{sockets.topology}' without links or their bandwidth",
    )
    if sockets.topology == "torus":
        need(
            0 < sockets.columns <= sockets.node and sockets.node % sockets.columns == 0,
            f"sockets.columns = {sockets.columns} do not divide a node of {sockets.node} devices",
        )
    need(
        sockets.count <= sockets.node or sockets.switch_bandwidth > 0,
        f"sockets.count = {sockets.count} devices are more than one node of {sockets.node}, and there are no switches",
        "sockets.switch_bandwidth is 0",
    )
    need(0 < sockets.efficiency <= 1, f"sockets.efficiency {sockets.efficiency} is not in (0, 1]")
    need(device.pcu.tail_rate > 0 or not device.pcu.tail, "pcu.tail names functions and pcu.tail_rate is 0")
    known = {t.name: t for t in device.types}
    for entry in device.types:
        if entry.emulated_as:
            native = known.get(entry.emulated_as)
            is_native = native is not None and not native.emulated_as
            need(is_native, f"types.{entry.name} is emulated as '{entry.emulated_as}', not a native type of the device")
            need(entry.multiplier > 0, f"types.{entry.name}.multiplier must be positive")
        else:
            need(entry.systolic > 0 and entry.simd > 0, f"types.{entry.name} is native and has no rates")


# Device files.


def device_names() -> tuple[str, ...]:
    """Names of the devices that ship with Headrace."""
    folder = resources.files("headrace.dialects.machine") / "devices"
    return tuple(sorted(p.name.removesuffix(".toml") for p in folder.iterdir() if p.name.endswith(".toml")))


def _read(name_or_path: str | Path) -> tuple[str, dict[str, Any]]:
    """Name and raw table of a shipped device or of a user's file."""
    text = str(name_or_path)
    is_path = isinstance(name_or_path, Path) or text.endswith(".toml") or "/" in text
    if not is_path and text not in device_names():
        names = device_names()
        raise CompileError(
            "unknown-device",
            f"there is no device '{text}'",
            why=f"known devices: {', '.join(names)}",
            fix=f"{hint}; or give a path to a .toml file" if "did" in (hint := nearest(text, names)) else
            "give one of them, or a path to a .toml file",
        )  # fmt: skip
    try:
        if is_path:
            data = Path(text).read_bytes()
        else:
            data = (resources.files("headrace.dialects.machine") / "devices" / f"{text}.toml").read_bytes()
        return Path(text).stem if is_path else text, tomllib.loads(data.decode())
    except OSError as error:
        raise CompileError(
            "unknown-device",
            f"device file '{text}' cannot be read: {error.strerror}",
            fix=f"give a readable .toml file or one of {', '.join(device_names())}",
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CompileError("bad-device", f"device file '{text}' is not TOML: {error}", location=text) from error


_ENTRY = {"value", "unit", "source", "inferred"}
_NO_TABLE = {"expansion"}


def _strip(
    table: Mapping[str, Any], path: str, default: Basis | None, basis: dict[str, Basis], found: Collector, where: str
) -> dict[str, Any]:
    """The table with each `{value, unit, source | inferred}` replaced by its value; bases go to `basis`."""
    out: dict[str, Any] = {}
    for key, entry in table.items():
        here = f"{path}{key}"
        if isinstance(entry, Mapping) and "value" not in entry and key not in _NO_TABLE:
            out[key] = _strip(cast("Mapping[str, Any]", entry), f"{here}.", default, basis, found, where)
            continue
        if not isinstance(entry, Mapping) or "value" not in entry:
            out[key] = entry
            if default is None:
                found.add(
                    "bad-device",
                    f"{here} = {entry!r} has no basis",
                    why="each number of a device has its source or is marked as inferred",
                    fix=f'{here} = {{ value = …, unit = "…", source = "…" }}, or basis = "inferred: …" at the top',
                    location=where,
                )
            else:
                basis[here] = default
            continue
        given = cast("Mapping[str, Any]", entry)
        out[key] = given["value"]
        kinds = [k for k in ("source", "inferred") if given.get(k)]
        if len(kinds) != 1 or set(given) - _ENTRY:
            extra = ", ".join(sorted(set(given) - _ENTRY))
            found.add(
                "bad-device",
                f"{here} needs exactly one of source and inferred" + (f" (and does not know {extra})" if extra else ""),
                location=where,
            )
            continue
        basis[here] = Basis(kinds[0], str(given[kinds[0]]), str(given.get("unit", "")))
    return out


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """A device table with the entries of another in place of its own."""
    found = dict(base)
    for key, value in over.items():
        old = found.get(key)
        both = isinstance(old, dict) and isinstance(value, dict) and key not in _NO_TABLE
        found[key] = merged(cast("dict[str, Any]", old), cast("dict[str, Any]", value)) if both else value
    return found


def _units(cls: type[Any], path: str = "") -> dict[str, str]:
    """Unit of every number, by dotted path; `types.*` stands for each element type."""
    units: dict[str, str] = {}
    for spec in _specs(cls):
        if spec.part:
            star = ".*" if spec.part is ElementType else ""
            units |= _units(spec.part, f"{path}{spec.key}{star}.")
        elif spec.quantity:
            units[f"{path}{spec.key}"] = spec.quantity.unit
    return units


def _check_units(cls: type[Any], bases: dict[str, Basis], found: Collector, where: str) -> None:
    """Each basis gets the unit of its number; a file that gives another is wrong."""
    units = _units(cls)
    for path, basis in [*bases.items()]:
        parts = path.split(".")
        expected = units.get(f"types.*.{parts[-1]}" if parts[0] == "types" else path, "")
        if basis.unit and expected and basis.unit != expected:
            found.add("bad-device", f"{path} is in '{basis.unit}'", fix=f"give it in '{expected}'", location=where)
        bases[path] = basis._replace(unit=basis.unit or expected)


def read_facts(cls: type[Facts], raw: Mapping[str, Any], name: str, where: str) -> tuple[Facts, dict[str, Basis]]:
    """A dataclass of quantities from a table that is written like a device file, and the basis of each number.

    For other machines than ours: every number has its source, or why it is inferred, here as well.
    """
    found, bases = Collector(), dict[str, Basis]()
    table = _strip(raw, "", None, bases, found, where)
    _check_units(cls, bases, found, where)
    found.raise_if_any()
    built = _build(cls, {**table, "name": name}, "", found, name)
    found.raise_if_any()
    return cast(Facts, built), bases


def _load(name_or_path: str | Path) -> tuple[dict[str, Any], dict[str, Basis]]:
    name, raw = _read(name_or_path)
    where = str(name_or_path)
    found = Collector()
    base, bases = {}, dict[str, Basis]()
    if "base" in raw:
        base, bases = _load(str(raw.pop("base")))
    default = None
    if "basis" in raw:
        kind, _, text = str(raw.pop("basis")).partition(":")
        if kind not in ("source", "inferred") or not text.strip():
            found.add("bad-device", 'basis must read "inferred: why" or "source: where"', location=where)
        default = Basis(kind, text.strip(), "")
    name = str(raw.pop("name", name))
    table = _strip(raw, "", default, bases, found, where)
    _check_units(Device, bases, found, where)
    found.raise_if_any()
    return {**merged(base, table), "name": name}, bases


def load_device(name_or_path: str | Path) -> Device:
    """The shipped device of that name (`device_names`), or the device of a TOML file (a path, or a name with `.toml`).

    CompileError `unknown-device` (with the nearest known name) or `bad-device` (all offending keys at once).
    """
    return _cached(name_or_path) if str(name_or_path) in device_names() else Device.from_dict(_load(name_or_path)[0])


@cache
def _cached(name: str) -> Device:
    return Device.from_dict(_load(name)[0])


def device_bases(name_or_path: str | Path) -> dict[str, Basis]:
    """For every number of a device file, by dotted path, its source or why it is inferred."""
    return dict(_load(name_or_path)[1])
