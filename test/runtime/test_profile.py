"""Profiles add up: launches, sections, groups of units, ops and what is waited for all sum to the whole."""

from __future__ import annotations

import json
from functools import cache
from itertools import pairwise

import pytest
import workloads
from routed_programs import routed

import headrace
from headrace.backend.encode import encode
from headrace.runtime.timing import MODELS, Timing, time_program
from headrace.tools.views.trace import bandwidth


@cache
def timed(name: str, model: str) -> Timing:
    if name == SOCKETS:
        return time_program(encode(routed(name)), model)
    return time_program(headrace.compile(workloads.small(name, layers=1).model()).program, model)


SOCKETS = "sockets"


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", [*workloads.NAMES, SOCKETS])
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
    for what in ("flops", "hbm_bytes", "ddr_bytes", "peer_bytes"):
        assert sum(n * getattr(c, what) for n, c in runs) == getattr(found, what)
    assert sum(op.flops for op in found.ops) == found.flops


@pytest.mark.parametrize("name", [*workloads.NAMES, SOCKETS])
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


def test_what_goes_to_other_sockets_is_told() -> None:
    """All_reduce of 16 KiB over 8 sockets, and a permute of it over 2."""
    found = timed(SOCKETS, "event")
    tensor = 64 * 64 * 4
    assert found.peer_bytes in (tensor + 7 * tensor, tensor + 2 * tensor * 7 // 8)
    assert found.bounds["peer"] > 0 and 0 < found.utilisation["peer"] <= 1
    text = found.text(units=True)
    assert "to other sockets" in text and "to peers  peer link" in text
    data = json.loads(json.dumps(found.to_json()))
    assert data["peer_bytes"] == found.peer_bytes == sum(c["peer_bytes"] for c in data["configs"])
    (config,) = found.configs
    sent = {u.name: u.bytes for u in config.units if "peer" in u.parts}
    assert sum(sent.values()) == config.peer_bytes and len(sent) == 2
    steps = bandwidth(config, "peer")
    assert sum(rate * (b - a) for (a, rate), (b, _) in pairwise(steps)) == pytest.approx(config.peer_bytes)
    assert "to peers" not in timed("bert", "event").text()


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
