"""Cost formulas against numbers worked out by hand on the tiny device (4 lanes × 2 stages, 1 GHz)."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.dialects.machine import cost, device_names, load_device
from headrace.dialects.support.diagnostics import CompileError

TINY = load_device(Path(__file__).parent / "data" / "tiny.toml")


def test_a_block_of_the_array_takes_k_cycles_and_the_skew():
    assert cost.matmul(TINY, 4, 2, 100, "f32") == (100, 100 + 4 + 2)


def test_the_better_orientation_counts():
    assert cost.matmul(TINY, 2, 4, 100, "f32").interval == 100
    assert cost.matmul(TINY, 4, 4, 100, "f32").interval == 200


def test_a_short_k_is_bound_by_the_drain():
    assert cost.matmul(TINY, 8, 2, 1, "f32").interval == 4  # two blocks, two stages to drain each


def test_blocks_are_shared_by_units_and_rates_differ_per_type():
    assert cost.matmul(TINY, 8, 8, 64, "f32").interval == 8 * 64
    assert cost.matmul(TINY, 8, 8, 64, "f32", units=3).interval == 3 * 64
    assert cost.matmul(TINY, 8, 8, 64, "bf16").interval == 8 * 32
    assert cost.matmul(TINY, 8, 8, 64, "f64").interval == 8 * 64 * 16


def test_occupancy_is_the_share_of_busy_units():
    assert cost.matmul_occupancy(TINY, 4, 2) == 1.0
    assert cost.matmul_occupancy(TINY, 1, 1) == 1 / 8


@given(m=st.integers(1, 300), n=st.integers(1, 300), k=st.integers(1, 300), units=st.integers(1, 50))
def test_no_matmul_beats_the_peak(m: int, n: int, k: int, units: int):
    for name in device_names():
        device = load_device(name)
        peak = device.pcu.lanes * device.pcu.stages * device.systolic_rate("f32") * units
        got = cost.matmul(device, m, n, k, "f32", units=units)
        assert got.latency >= got.interval >= m * n * k / peak * (1 - 1e-12)


def test_elementwise_takes_a_pass_for_every_two_ops():
    assert cost.simd(TINY, 16, {"add": 1}, "f32") == (4, 4 + 2)
    assert cost.simd(TINY, 16, {"add": 3}, "f32") == (8, 8 + 4)
    assert cost.simd(TINY, 16, {"add": 3}, "f32", units=4).interval == 2


def test_tail_functions_are_free_of_the_body_and_others_expand():
    assert cost.body_ops(TINY, {"exp": 2, "div": 1, "add": 1}) == (6, 2)
    assert cost.simd(TINY, 16, {"exp": 1}, "f32") == (4, 4 + 2 + 3)
    assert cost.simd(TINY, 16, {"exp": 3}, "f32").interval == 12
    assert cost.simd(TINY, 16, {"tanh": 1}, "f32").interval == 12


def test_reductions_take_a_word_per_cycle_and_the_tree():
    assert cost.reduce(TINY, 64, 4, "f32", across_lanes=True) == (16, 16 + 2 + 2)
    assert cost.reduce(TINY, 64, 4, "f32", across_lanes=False) == (16, 16 + 2)
    assert cost.reduce(TINY, 64, 4, "f32", across_lanes=True, units=4).interval == 4
    assert cost.reduce(TINY, 40, 8, "f32", across_lanes=True).interval == 16  # five elements are two words


def test_tiles_in_a_row_pipeline():
    first, second = cost.Cost(10, 15), cost.Cost(4, 30)
    assert first.then(second) == (10, 45)
    assert first.cycles(0) == 0 and first.cycles(3) == 35


def test_scratchpad_ports_banks_and_addresses():
    assert cost.sram_cycles(TINY, 160) == 10
    assert cost.sram_cycles(TINY, 160, units=2) == 5
    assert cost.sram_cycles(TINY, 160, conflict=4) == 40
    assert [cost.bank_conflict(TINY, 4 * s) for s in (1, 2, 3, 4, 6)] == [1, 2, 1, 4, 2]
    assert cost.gather_cycles(TINY, 10, units=2) == 5
    sn40l = load_device("sn40l")
    assert cost.sram_cycles(sn40l, 1280) == 10 and cost.sram_cycles(sn40l, 1280, write=True) == 20


def test_network_words_hops_and_credits():
    assert cost.link_cycles(TINY, 17) == 2
    assert cost.route_latency(TINY, 0) == 3 and cost.route_latency(TINY, 5) == 8
    assert cost.credits_for(TINY, 5) == 16 and cost.credits_for(TINY, 5, 0.25) == 4


def test_memories_use_their_efficiency_and_whole_bursts():
    assert cost.memory_seconds(TINY, "hbm", 5000) == pytest.approx(1e-7 + 1e-6)
    assert cost.memory_cycles(TINY, "hbm", 5000) == pytest.approx(1100)
    assert cost.memory_seconds(TINY, "hbm", 40, accesses=10) == pytest.approx(1e-7 + 160 / 5e9)
    assert cost.memory_seconds(TINY, "ddr", 0) == 0
    with pytest.raises(CompileError, match="has no memory 'hbm'"):
        cost.memory_seconds(load_device("sn10"), "hbm", 1)


def test_launches():
    assert cost.launch_seconds(TINY, "sw") == 1e-5
    assert cost.launch_seconds(TINY, "hw", loaded=True) == pytest.approx(5e-7)
    assert cost.launch_mode(TINY) == "hw" and cost.launch_mode(load_device("sn10")) == "sw"
    with pytest.raises(CompileError, match="no launch mode 'hw'"):
        cost.launch_seconds(load_device("sn10"), "hw")


def test_published_switch_times_come_out():
    # Llama-3.1-8B, 16.06 GB: 10 ms from 16 × 100 GB/s of DDR; the file's 200 GB/s is the other published figure.
    node = load_device("sn40l").with_values(ddr__bandwidth=100e9, ddr__efficiency=1.0)
    assert cost.memory_seconds(node, "ddr", 16_060_000_000 // 16) == pytest.approx(10.04e-3, rel=0.01)


def test_diagonal_stripes_spread_columns() -> None:
    sn40l = load_device("sn40l")
    row = 512 * 4
    assert cost.bank_conflict(sn40l, row, lanes=16) == 16
    assert cost.bank_conflict(sn40l, row, lanes=16, pitch_bytes=row) == 1
    assert cost.bank_conflict(sn40l, 2 * row, lanes=16, pitch_bytes=row) == 1  # 16 lanes on 16 of 32 banks
    assert cost.bank_conflict(sn40l, 4, lanes=16, pitch_bytes=row) == 1


def test_bursts_in_flight_bound_an_address_generator() -> None:
    sn40l = load_device("sn40l")
    assert cost.agcu_rate(sn40l, "hbm") == 64
    few = sn40l.with_values(agcu__outstanding=64)
    assert cost.agcu_rate(few, "hbm") == pytest.approx(64 * 64 / (4e-7 * 1.6e9))
    assert cost.agcu_cycles(few, 6400, units=2, memory="hbm") == pytest.approx(3200 / cost.agcu_rate(few, "hbm"))


def test_blocks_take_the_better_orientation() -> None:
    sn40l = load_device("sn40l")
    assert cost.matmul_blocks(sn40l, 64, 36) == (2, 6, True)
    assert cost.matmul_blocks(sn40l, 1, 64) == (1, 2, False)
