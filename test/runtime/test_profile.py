"""Profiles add up: launches, sections, groups of units, ops and what is waited for all sum to the whole."""

from __future__ import annotations

import json
from functools import cache

import pytest
import workloads

import headrace
from headrace.runtime.timing import MODELS, Timing, time_program


@cache
def timed(name: str, model: str) -> Timing:
    return time_program(headrace.compile(workloads.small(name, layers=1).model()).program, model)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", workloads.NAMES)
def test_the_rows_of_a_profile_sum_to_the_whole(name: str, model: str) -> None:
    found = timed(name, model)
    runs = list(zip(found.runs, found.configs, strict=True))
    launching = found.launch_seconds * found.clock
    assert launching + sum(n * c.cycles for n, c in runs) == pytest.approx(found.cycles)
    assert launching + sum(op.cycles for op in found.ops) == pytest.approx(found.cycles)
    assert sum(found.bounds.values()) == pytest.approx(found.cycles)
    assert found.bounds["launch"] == pytest.approx(launching)
    for _, config in runs:
        assert sum(u.cycles for u in config.units) == pytest.approx(config.cycles)
        assert sum(config.bounds.values()) == pytest.approx(config.cycles)
        assert all(sum(op.cycles for op in u.ops) == pytest.approx(u.cycles) for u in config.units if u.ops)
        assert all(u.ops for u in config.units if u.cycles)
    for what in ("flops", "hbm_bytes", "ddr_bytes"):
        assert sum(n * getattr(c, what) for n, c in runs) == getattr(found, what)
    assert sum(op.flops for op in found.ops) == found.flops


@pytest.mark.parametrize("name", workloads.NAMES)
def test_use_of_the_device_is_that_of_sections_and_ops(name: str) -> None:
    found = timed(name, "event")
    whole = found.utilisation["pcu"]
    assert 0 < whole < 1
    assert sum(found.busy(op.work) for op in found.ops) == pytest.approx(whole)
    sections = sum(n * c.cycles * found.busy(c.work, c.cycles) for n, c in zip(found.runs, found.configs, strict=True))
    assert sections == pytest.approx(whole * found.cycles)
    for config in found.configs:
        assert 0 <= config.stall < 1
        for u in config.units:
            assert 0 <= u.stall < 1 and u.work <= u.sites * config.cycles * (1 + 1e-9)
            assert 0 <= u.waits <= u.present <= config.cycles * (1 + 1e-9)


def test_the_json_has_what_the_tables_show() -> None:
    found = timed("bert", "event")
    data = json.loads(json.dumps(found.to_json()))
    assert data["ops"][0]["utilisation"] == found.busy(found.ops[0].work)
    assert [c["stall"] for c in data["configs"]] == [c.stall for c in found.configs]
    unit = next(u for u in data["configs"][0]["units"] if u["mode"] == "systolic")
    total = data["configs"][0]["cycles"]
    assert unit["utilisation"] == pytest.approx(unit["parts"]["compute"] / total)
    text = found.text()
    use = f"{found.busy(found.configs[0].work, found.configs[0].cycles):.1%}"
    assert use in text and f"{found.configs[0].stall:.0%}" in text
