"""Device files: every number has a basis, shipped devices match what is published, bad files are refused whole."""

from __future__ import annotations

import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from headrace.dialects.machine import Device, device_bases, device_names, load_device
from headrace.dialects.machine.cost import peak_flops, sram_bandwidth
from headrace.dialects.support.diagnostics import CompileError

TINY = Path(__file__).parent / "data" / "tiny.toml"

# Published: PCU, PMU, peak FLOP/s and its type, SRAM bytes.
PUBLISHED = {
    "plasticine": (64, 64, 12.3e12, "f32", 16 << 20),
    "sn10": (640, 640, 307.2e12, "bf16", 320 << 20),
    "sn40l": (1040, 1040, 638e12, "bf16", 520 << 20),
    "sn50": (864, 864, 1593e12, "bf16", 432 << 20),
}


def numbers(table: dict[str, Any], path: str = "") -> list[str]:
    """Dotted paths of everything in a device's dictionary but names."""
    paths: list[str] = []
    for key, value in table.items():
        if key == "types":
            rows = {row["name"]: row for row in value}
            for name, row in rows.items():
                given = ("emulated_as", "multiplier") if row["emulated_as"] else ("systolic", "simd")
                paths += [f"types.{name}.{k}" for k in given]
        elif isinstance(value, dict) and key != "expansion":
            paths += numbers(value, f"{path}{key}.")
        elif key != "name":
            paths.append(f"{path}{key}")
    return paths


@pytest.mark.parametrize("name", device_names())
def test_every_number_has_its_source_or_is_marked_as_inferred(name: str):
    bases = device_bases(name)
    assert sorted(bases) == sorted(numbers(load_device(name).to_dict()))
    assert all(b.kind in ("source", "inferred") and len(b.text) > 3 and b.unit for b in bases.values())
    raw = tomllib.loads((resources.files("headrace.dialects.machine") / "devices" / f"{name}.toml").read_text())
    assert "basis" not in raw and "base" not in raw  # no blanket basis in a shipped file


@pytest.mark.parametrize("name", device_names())
def test_shipped_devices_match_the_published_figures(name: str):
    pcus, pmus, flops, dtype, sram = PUBLISHED[name]
    device = load_device(name)
    assert (device.count("pcu"), device.count("pmu")) == (pcus, pmus)
    assert peak_flops(device, dtype) == pytest.approx(flops, rel=0.005)
    assert device.count("pmu") * device.pmu.bytes == sram


def test_sn10_on_chip_bandwidth_is_near_the_published_150_terabytes():
    assert sram_bandwidth(load_device("sn10")) == pytest.approx(150e12, rel=0.05)


def test_fp8_is_twice_bf16_on_sn50_and_storage_on_sn40l():
    assert peak_flops(load_device("sn50"), "f8e4m3") == pytest.approx(3200e12, rel=0.005)
    assert not load_device("sn40l").is_native("f8e4m3")


@pytest.mark.parametrize("device", [*map(load_device, device_names()), load_device(TINY)], ids=lambda d: d.name)
def test_sites_are_distinct_and_on_the_mesh(device: Device):
    columns, rows = device.mesh
    sites = {kind: device.sites(kind) for kind in ("pcu", "pmu", "agcu")}
    everything = [s for group in sites.values() for s in group]
    assert len(set(everything)) == len(everything)
    assert all(0 <= s.x < columns and 0 <= s.y < rows for s in everything)
    assert all(s.x in (0, columns - 1) for s in sites["agcu"])


def test_paired_units_share_a_switch():
    device = load_device(TINY).with_values(grid__pattern="paired")
    assert device.sites("pcu") == device.sites("pmu") and device.count("pcu") == 16


@pytest.mark.parametrize("name", device_names())
def test_a_device_is_its_dictionary(name: str):
    device = load_device(name)
    assert Device.from_dict(device.to_dict()) == device
    assert hash(Device.from_dict(device.to_dict())) == hash(device)


def test_unknown_device_names_the_nearest():
    with pytest.raises(CompileError) as error:
        load_device("sn40")
    assert error.value.code == "unknown-device"
    assert "sn40l" in error.value.fix and "plasticine" in error.value.why


def test_a_missing_file_is_refused(tmp_path: Path):
    with pytest.raises(CompileError, match="cannot be read"):
        load_device(tmp_path / "none.toml")


def test_a_malformed_file_is_refused(tmp_path: Path):
    (tmp_path / "bad.toml").write_text("clock = = 3")
    with pytest.raises(CompileError, match="is not TOML"):
        load_device(tmp_path / "bad.toml")


def test_all_offenders_are_reported_at_once():
    table = load_device(TINY).to_dict()
    table["pcu"]["lanes"] = 0
    table["pmu"]["bytes"] = "many"
    table["network"]["hop_latency"] = 1.5
    table["grid"]["colums"] = table["grid"].pop("columns")
    with pytest.raises(CompileError) as error:
        Device.from_dict(table)
    text = str(error.value)
    for part in ("pcu.lanes = 0", "pmu.bytes = 'many'", "network.hop_latency = 1.5", "grid.colums", "grid.columns"):
        assert part in text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"grid__tile_columns": 3}, "does not divide into 3 parts"),
        ({"grid__agcus_per_edge": 5}, "agcus_per_edge = 5 in 4 rows"),
        ({"grid__pattern": "hexagons"}, "'hexagons' is unknown"),
        ({"ddr__efficiency": 1.2}, r"not in \(0, 1\]"),
        ({"clock": float("nan")}, "clock"),
        ({"clock": float("inf")}, "clock"),
    ],
)
def test_numbers_that_contradict_each_other_are_refused(change: dict[str, Any], message: str):
    with pytest.raises(CompileError, match=message):
        load_device(TINY).with_values(**change)


@pytest.mark.parametrize("types", [3, [3], {"f32": 3}, [{"systolic": 1}], [{"name": "f32"}]])
def test_bad_tables_of_types_are_refused(types: Any):
    with pytest.raises(CompileError):
        Device.from_dict({**load_device(TINY).to_dict(), "types": types})


def test_a_number_without_a_basis_is_refused(tmp_path: Path):
    text = TINY.read_text().replace('basis = "inferred: made up for tests"', "")
    (tmp_path / "bare.toml").write_text(text)
    with pytest.raises(CompileError, match=r"pcu\.lanes = 4 has no basis"):
        load_device(tmp_path / "bare.toml")


def test_a_wrong_unit_is_refused(tmp_path: Path):
    text = 'base = "sn40l"\nclock = { value = 1.6, unit = "GHz", inferred = "guess" }'
    (tmp_path / "slow.toml").write_text(text)
    with pytest.raises(CompileError, match="clock is in 'GHz'"):
        load_device(tmp_path / "slow.toml")


def test_a_file_may_start_from_a_shipped_device(tmp_path: Path):
    text = 'base = "sn40l"\nbasis = "inferred: what if"\n[pmu]\nbytes = 1048576\n[types.f32]\nsimd = 1\n'
    (tmp_path / "big.toml").write_text(text)
    device = load_device(tmp_path / "big.toml")
    assert device.name == "big" and device.pmu.bytes == 1 << 20 and device.pmu.banks == 32
    assert device.simd_rate("f32") == 1.0 and device.systolic_rate("f32") == 0.5
    assert device_bases(tmp_path / "big.toml")["pmu.bytes"].text == "what if"


def test_emulated_types_divide_the_native_rate():
    device = load_device(TINY)
    assert device.simd_rate("i64") == 0.25 and not device.is_native("i64")
    with pytest.raises(CompileError, match="no entry for element type 'f16'"):
        device.simd_rate("f16")
