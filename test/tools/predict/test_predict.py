"""Predictions of steps of decoders: that their parts sum up, and that more of the system, or less work, takes less."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.dialects.support.diagnostics import CompileError
from headrace.frontends.decoder import DecoderConfig
from headrace.tools.predict import Prediction, System, predict

SMALL = DecoderConfig("small", layers=4, hidden=1024, heads=16, kv_heads=8, head_dim=64, intermediate=4096, vocab=8192)


def step(system: System | None = None, mode: Any = "decode", **options: Any) -> Prediction:
    given = {"context": 1024, "tokens": 256, **options}
    return predict(SMALL, system or System("sn40l"), mode, **given)


@pytest.mark.parametrize("mode", ["prefill", "decode"])
@pytest.mark.parametrize("sockets", [1, 4])
def test_the_bounds_sum_to_the_time(mode: str, sockets: int) -> None:
    found = step(System("sn40l", sockets), mode)
    assert sum(found.bounds.values()) == pytest.approx(found.seconds, rel=1e-9)
    assert found.tokens_per_second == pytest.approx((256 if mode == "prefill" else 1) / found.seconds)
    assert ("peer" in found.bounds) == (sockets > 1) == (found.peer_bytes > 0)
    assert json.loads(json.dumps(found.to_json()))["system"]["sockets"] == sockets


def test_the_memory_of_a_socket() -> None:
    one, four = step(), step(System("sn40l", 4))
    assert one.memory.kinds["weight"] == pytest.approx(2 * SMALL.parameters, rel=1e-4)  # and what turns positions
    assert one.memory.kinds["state"] == 2 * 2 * SMALL.layers * 1024 * SMALL.kv_heads * SMALL.head_dim
    assert four.memory.kinds["state"] * 4 == one.memory.kinds["state"]
    assert 0.25 <= four.memory.kinds["weight"] / one.memory.kinds["weight"] < 0.5  # the table of tokens may be whole
    assert 0 < one.memory.sram <= 1040 * 524288
    assert one.memory.hbm >= one.memory.kinds["weight"] + one.memory.kinds["state"]
    assert not one.memory.spilled and one.memory.ddr == 0


def test_what_does_not_fit_is_said_to_spill() -> None:
    small = System("sn40l", changed={"hbm.bytes": 100_000_000})
    found = step(small)
    assert found.memory.spilled and found.memory.ddr > 0
    assert found.memory.hbm <= 100_000_000
    assert found.seconds > step().seconds


def test_a_step_is_compiled_once() -> None:
    first, second = step(), step()
    assert first.compile_seconds == second.compile_seconds
    assert first == second
    assert step(batch=2).tokens_per_second > first.tokens_per_second


def test_the_models_of_time_agree() -> None:
    assert step(model="event").seconds == pytest.approx(step().seconds, rel=0.1)


def test_launches_by_the_host_take_longer() -> None:
    chip, host = step(), step(launch="host")
    assert host.runs == chip.runs == host.host_launches
    assert host.seconds > chip.seconds


def test_weights_in_eight_bits_are_half_as_large() -> None:
    found = step(weights="f8e4m3")
    assert 0.5 <= found.memory.kinds["weight"] / step().memory.kinds["weight"] < 0.65
    assert "weights in f8e4m3" in found.conditions


def test_mistakes_are_refused_together() -> None:
    with pytest.raises(CompileError) as refused:
        step(mode="decoding", batch=0, precision="bf17")
    assert [one.code for one in refused.value.diagnostics] == ["bad-option"] * 3
    with pytest.raises(CompileError, match="has no entry"):
        System("sn40l", changed={"hbm.byte": 1})
    with pytest.raises(CompileError, match="has 16 sockets, not 8"):
        System("sn40l", 8, {"dp": 2, "tp": 8})
