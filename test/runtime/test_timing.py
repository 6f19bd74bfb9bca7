"""The analytic model: bounds that can be computed by hand, rows that add up, and what must make a program slower."""

from __future__ import annotations

from dataclasses import replace

import pytest
from programs import CASES, ffn

from headrace.dialects.machine.cost import launch_seconds, matmul, memory_seconds
from headrace.dialects.machine.device import Device, load_device
from headrace.dialects.support.diagnostics import CompileError
from headrace.runtime.program import Program
from headrace.runtime.timing import Profile, profile

DEVICE = load_device("sn40l")


def on(program: Program, device: Device = DEVICE) -> Program:
    return replace(program, device=device.to_dict())


def timed(program: Program, device: Device = DEVICE) -> Profile:
    return profile(on(program, device))


def test_bounds_by_hand() -> None:
    found = timed(ffn().program)
    (section,) = found.sections
    steps = 128 // 32
    assert section.bounds["compute"] == steps * matmul(DEVICE, 16, 48, 64, "f32").interval
    nbytes = 4 * (128 * 64 + 64 * 96 + 96 + 128 * 96)
    assert section.bounds["hbm"] == pytest.approx(memory_seconds(DEVICE, "hbm", nbytes) * DEVICE.clock)
    assert section.bounds["agcu"] == 4 * 128 * 96 / 64  # the store moves most
    assert section.bounds["ddr"] == section.bounds["network"] == 0  # no routes in this program
    assert section.bounds[section.bound] == max(section.bounds.values())
    assert section.cycles == pytest.approx(section.bounds[section.bound] + section.fill)
    assert section.launch_seconds == launch_seconds(DEVICE, "sw")


@pytest.mark.parametrize("name", list(CASES))
def test_rows_add_up_and_have_locations(name: str) -> None:
    found = timed(CASES[name]().program)
    assert sum(row.seconds for row in found.rows) == pytest.approx(found.seconds)
    assert sum(s.seconds for s in found.sections) == pytest.approx(found.seconds)
    assert all(row.location and row.bound for row in found.rows)
    assert all(s.cycles >= max(s.bounds.values()) for s in found.sections)
    assert found.to_json()["cycles"] == found.cycles
    assert found.device in found.text() and found.sections[0].config in found.text(1)


def test_last_tiles_leave_after_first_ones_and_after_their_sources() -> None:
    (section,) = timed(ffn().program).sections
    times = {u.name: u for u in section.units}
    assert all(u.last >= u.first > 0 for u in section.units)
    for before, after in (("load_x", "mx"), ("mx", "dot"), ("dot", "act"), ("act", "my"), ("my", "store_y")):
        assert times[before].first < times[after].first and times[before].last < times[after].last


def test_a_loaded_configuration_is_launched_for_less() -> None:
    case = CASES["concat"]()
    (section,) = timed(case.program).sections
    assert section.launches == 2
    assert section.launch_seconds == launch_seconds(DEVICE, "sw") + launch_seconds(DEVICE, "sw", loaded=True)
    assert all(len(row.calls) == 2 for row in timed(case.program).rows)


def test_slower_parts_make_it_slower() -> None:
    base = timed(ffn().program)
    slower = DEVICE.with_values(hbm__bandwidth=1e9)
    assert timed(ffn().program, slower).sections[0].bound == "hbm"
    assert timed(ffn().program, slower).seconds > base.seconds
    in_ddr = ffn().program
    in_ddr = replace(in_ddr, regions=tuple(replace(r, memory="ddr") for r in in_ddr.regions))
    (section,) = timed(in_ddr).sections
    assert section.bounds["hbm"] == 0 and section.bounds["ddr"] > 0
    assert timed(ffn(rows=256).program).sections[0].bounds["compute"] == 2 * base.sections[0].bounds["compute"]


def test_one_frame_more_overlaps_what_one_frame_less_cannot() -> None:
    """With one frame a buffer is read when all of it is written; with many, tile by tile."""
    framed = ffn().program
    config = framed.configs[0]
    whole = tuple(replace(u, frames=0) if u.name in ("mx", "my") else u for u in config.units)
    unframed = replace(framed, configs=(replace(config, units=whole),))
    assert timed(unframed).sections[0].fill > timed(framed).sections[0].fill


def test_a_device_without_the_memory_is_refused() -> None:
    with pytest.raises(CompileError, match="has no memory 'hbm'"):
        timed(ffn().program, load_device("sn10"))
