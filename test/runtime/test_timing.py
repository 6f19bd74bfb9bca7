"""The analytic model: bounds that can be computed by hand, rows that add up, and what must make a program slower."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from programs import CASES, Body, Builder, concat, ffn, gathered, padded_conv, program, region, transposed

from headrace.dialects.machine.cost import launch_seconds, matmul, memory_bytes_per_cycle, memory_cycles, peak_flops
from headrace.dialects.machine.device import Device, load_device
from headrace.dialects.support import dtypes
from headrace.dialects.support.access import identity
from headrace.dialects.support.diagnostics import CompileError
from headrace.dialects.tensor.shapes import TT
from headrace.runtime.program import Pmu, Program
from headrace.runtime.timing import ConfigTime, Timing, UnitTime, profile_text, time_program

DEVICE = load_device("sn40l")


def timed(given: Program, device: Device = DEVICE) -> Timing:
    return time_program(replace(given, device=device.to_dict()))


def only(timing: Timing) -> ConfigTime:
    (config,) = timing.configs
    return config


def units(timing: Timing) -> dict[str, UnitTime]:
    return {u.name: u for u in only(timing).units}


def buffers(given: Program, **values: int) -> Program:
    """The program with fields of all its buffers changed."""
    configs = tuple(
        replace(c, units=tuple(replace(u, **values) if isinstance(u, Pmu) else u for u in c.units))
        for c in given.configs
    )
    return replace(given, configs=configs)


def gemm(rows: int, inner: int, columns: int, *, steps: int, parts: int = 1, whole: bool = False) -> Program:
    """x·w in `steps` blocks of rows on `parts` units that share the columns; enough memory units for all of them."""
    b = Builder("gemm")
    x, w, y = b.param("x", (rows, inner)), b.param("w", (inner, columns)), b.param("y", (rows, columns), "out")
    block, share = rows // steps, columns // parts
    mx = b.pmu("mx", (rows, inner), frames=0 if whole else 1, copies=1 if whole else 2)
    mw = b.pmu("mw", (inner, columns), split=1, count=parts)
    my = b.pmu("my", (rows, columns), frames=0 if whole else 1, copies=1 if whole else 2, split=1, count=parts)
    body = Body([TT((block, inner), "f32"), TT((inner, share), "f32")])
    dot = b.pcu("dot", body, [body.op("matmul", 0, 1, accumulate="f32")], parts, "systolic")
    load_x, load_w, store = b.agcu("load", x, 4), b.agcu("load", w, 4), b.agcu("store", y, 4)
    time, space = [(steps, 0, block)], [(parts, 1, share)]
    b.flow(load_x, mx, (block, inner), time, from_=identity((rows, inner)), to=identity((rows, inner)))
    b.flow(load_w, mw, (inner, columns), from_=identity((inner, columns)), to=identity((inner, columns)))
    b.flow(mx, dot, (block, inner), time, [(parts, -1, 0)], from_=identity((rows, inner)))
    b.flow(mw, dot, (inner, share), [(steps, -1, 0)], space, from_=identity((inner, columns)))
    b.flow(dot, my, (block, share), time, space, to=identity((rows, columns)))
    b.flow(my, store, (block, columns), time, from_=identity((rows, columns)), to=identity((rows, columns)))
    regions = [
        region("x", "input", (rows, inner)),
        region("w", "weight", (inner, columns)),
        region("y", "output", (rows, columns)),
    ]
    return program([b.config()], regions, [(0, [0, 1, 2])])


@pytest.mark.parametrize("name", list(CASES))
def test_rows_sum_to_the_total(name: str) -> None:
    found = timed(CASES[name]().program)
    launching = found.launch_seconds * found.clock
    for runs, config in zip(found.runs, found.configs, strict=True):
        assert runs > 0
        assert sum(u.cycles for u in config.units) == pytest.approx(config.cycles)
        assert sum(config.bounds.values()) == pytest.approx(config.cycles)
        assert all(sum(u.bounds.values()) == pytest.approx(u.cycles) for u in config.units)
        assert all(u.end >= u.start >= 0 and u.end <= config.cycles + 1 for u in config.units)
    assert sum(op.cycles for op in found.ops) + launching == pytest.approx(found.cycles)
    assert sum(found.bounds.values()) == pytest.approx(found.cycles)
    assert found.cycles == pytest.approx(found.seconds * DEVICE.clock)


@pytest.mark.parametrize("name", list(CASES))
@pytest.mark.parametrize("device", ["sn10", "sn40l", "sn50", "plasticine"])
def test_no_roofline_is_beaten(name: str, device: str) -> None:
    chip = load_device(device)
    given = CASES[name]().program
    if chip.hbm is None:
        given = replace(given, regions=tuple(replace(r, memory="ddr") for r in given.regions))
    if not chip.launch.hardware:
        given = replace(given, launches=tuple(replace(x, mode="sw") for x in given.launches), loops=())
    found = timed(given, chip)
    for config in found.configs:
        for memory, nbytes in (("hbm", config.hbm_bytes), ("ddr", config.ddr_bytes)):
            if nbytes:
                assert config.cycles >= nbytes / memory_bytes_per_cycle(chip, memory)
        contractions = sum(op.flops for u in config.units for op in u.ops if op.op in ("matmul", "conv"))
        assert config.cycles / chip.clock >= contractions / peak_flops(chip, "f32")
        assert all(config.cycles >= n - 1e-6 for u in config.units if u.kind == "pcu" for n in u.parts.values())


def test_all_bytes_are_counted() -> None:
    config = only(timed(ffn().program))
    assert config.hbm_bytes == 4 * (128 * 64 + 64 * 96 + 96 + 128 * 96)
    assert config.ddr_bytes == 0 and config.flops > 2 * 128 * 64 * 96


def test_a_gemm_that_fills_the_array_runs_near_the_peak_of_its_units() -> None:
    rows, inner, columns, parts = 16 * 32, 128, 4 * 96, 4
    found = timed(gemm(rows, inner, columns, steps=16, parts=parts))
    dot = units(found)["dot"]
    peak = peak_flops(DEVICE, "f32") / DEVICE.count("pcu") * parts
    ideal = 2 * rows * inner * columns / peak * DEVICE.clock
    assert dot.parts["compute"] == pytest.approx(ideal)
    assert dot.bound == "compute" and ideal < only(found).cycles < 1.3 * ideal


def test_intervals_are_those_of_the_cost_formulas() -> None:
    dot = units(timed(ffn().program))["dot"]
    assert dot.parts["compute"] == 4 * matmul(DEVICE, 16, 48, 64, "f32").interval
    assert dot.steps == 4


def test_twice_the_parts_halve_the_compute() -> None:
    one, two = (units(timed(gemm(256, 64, 384, steps=8, parts=n)))["dot"] for n in (2, 4))
    assert one.parts["compute"] == 2 * two.parts["compute"]
    assert one.cycles > 1.5 * two.cycles


def test_twice_the_rows_take_twice_the_steady_state() -> None:
    one, two = (only(timed(gemm(n * 256, 64, 192, steps=8 * n, parts=1))).cycles for n in (1, 2))
    assert 1.8 < two / one < 2.0


def elementwise(stages: int, rows: int = 256, columns: int = 64, *, fused: bool) -> Program:
    """x negated `stages` times: by a chain of units in one config, or by one config launched again and again."""
    b = Builder("chain")
    x, y = b.param("x", (rows, columns)), b.param("y", (rows, columns), "out")
    load, store = b.agcu("load", x, 2), b.agcu("store", y, 2)
    time = [(rows // 16, 0, 16)]
    last, view = load, identity((rows, columns))
    for n in range(stages if fused else 1):
        body = Body([TT((16, columns), "f32")])
        unit = b.pcu(f"neg{n}", body, [body.op("neg", 0)])
        b.flow(last, unit, (16, columns), time, from_=view if last == load else None)
        last = unit
    b.flow(last, store, (16, columns), time, to=view)
    temps = [] if fused else [region(f"t{n}", "temp", (rows, columns)) for n in range(stages - 1)]
    regions = [region("x", "input", (rows, columns)), *temps, region("y", "output", (rows, columns))]
    places = range(len(regions) - 1)
    return program([b.config()], regions, [(0, [n, n + 1]) for n in places])


def test_a_fused_chain_is_faster_than_its_parts_and_moves_less() -> None:
    fused, apart = timed(elementwise(6, fused=True)), timed(elementwise(6, fused=False))
    assert apart.hbm_bytes == 6 * fused.hbm_bytes and apart.flops == fused.flops
    assert apart.seconds > 3 * fused.seconds
    assert apart.seconds - apart.launch_seconds > 2 * (fused.seconds - fused.launch_seconds)
    longer = timed(elementwise(12, fused=True))
    assert fused.seconds < longer.seconds < 1.5 * fused.seconds  # a longer chain is fill, not pace


def test_buffers_of_frames_overlap_and_whole_buffers_do_not() -> None:
    given = gemm(256, 64, 192, steps=8)
    whole = timed(gemm(256, 64, 192, steps=8, whole=True))
    assert only(whole).cycles > only(timed(given)).cycles
    times = units(whole)
    assert times["dot"].start >= times["load_x"].end and times["store_y"].start >= times["dot"].end
    times = units(timed(given))
    assert times["dot"].start < times["load_x"].end or times["dot"].start == pytest.approx(times["load_w"].end, rel=0.2)
    assert times["store_y"].start < times["dot"].end


def test_readers_of_one_copy_take_turns_with_the_writer() -> None:
    double, single = only(timed(transposed().program)), only(timed(buffers(transposed().program, copies=1)))
    assert single.cycles > double.cycles


def test_less_bandwidth_is_slower() -> None:
    slow = timed(ffn().program, DEVICE.with_values(hbm__bandwidth=1e9))
    assert slow.seconds > timed(ffn().program).seconds and max(slow.bounds, key=lambda k: slow.bounds[k]) == "hbm"
    narrow = timed(ffn().program, DEVICE.with_values(network__link_bytes=4))
    assert narrow.seconds > timed(ffn().program).seconds


def test_off_chip_memory_is_shared_by_what_loads_at_the_same_time() -> None:
    """At 1 GB/s every load alone would take the bandwidth; together they cannot be faster than all their bytes."""
    slow = DEVICE.with_values(hbm__bandwidth=1e9, hbm__efficiency=1.0)
    found = units(timed(gemm(128, 64, 384, steps=1), slow))
    nbytes = 4 * (128 * 64 + 64 * 384)
    assert max(found["load_x"].end, found["load_w"].end) >= 0.99 * nbytes / 1e9 * slow.clock
    assert found["dot"].start >= found["load_w"].end


def test_ddr_counts_as_ddr() -> None:
    given = ffn().program
    moved = replace(given, regions=tuple(replace(r, memory="ddr") if r.name == "w" else r for r in given.regions))
    found = timed(moved)
    assert only(found).ddr_bytes == 4 * 64 * 96 and "ddr" in units(found)["load_w"].parts
    assert found.memory.spilled == ("w",)
    assert "spilled to ddr: w" in profile_text(found)


def test_columns_of_a_plain_buffer_meet_on_banks() -> None:
    """k is read along rows of qkv; diagonal stripes keep that at full rate, plain interleaving does not."""
    given = transposed().program
    stripes = timed(given, DEVICE.with_values(pmu__banks=8))
    plain = timed(given, DEVICE.with_values(pmu__banks=8, pmu__diagonal=False))
    assert units(plain)["qk"].parts["sram"] > units(stripes)["qk"].parts["sram"]


def test_a_loaded_configuration_is_launched_for_less() -> None:
    found = timed(concat().program)
    assert [x.loaded for x in found.launches] == [False, True] and found.runs == (2,)
    assert found.launch_seconds == launch_seconds(DEVICE, "sw") + launch_seconds(DEVICE, "sw", loaded=True)
    assert found.bounds["launch"] == pytest.approx(found.launch_seconds * DEVICE.clock)


def test_gathered_rows_move_whole_bursts() -> None:
    found = units(timed(gathered().program))
    rows, burst = 4, DEVICE.agcu.burst_bytes
    assert found["gather_table"].bytes == rows * burst  # 32 bytes of a row each
    assert found["load_ids"].bytes == rows * 8


def test_latency_of_memory_is_paid_once_each_way() -> None:
    config = only(timed(gemm(32, 32, 32, steps=1)))
    assert config.cycles > 2 * memory_cycles(DEVICE, "hbm", 1)
    assert config.bounds["hbm"] >= 2 * memory_cycles(DEVICE, "hbm", 1)


def test_ops_share_the_time_of_their_body() -> None:
    found = timed(padded_conv().program)
    conv = next(op for op in found.ops if op.op == "conv")
    relu = next(op for op in found.ops if op.op == "relu")
    assert conv.cycles > relu.cycles > 0 and conv.flops > relu.flops


def test_text_and_json_say_the_total() -> None:
    found = timed(ffn().program)
    text = found.text(3)
    assert f"{found.seconds * 1e6:.2f} us on sn40l" in text and "@ffn" in text and "bound by" in text
    plain = json.loads(json.dumps(found.to_json()))
    assert plain["cycles"] == found.cycles and plain["configs"][0]["runs"] == 1
    assert [r["bytes"] for r in plain["memory"]["regions"]] == [
        r.type.elements * dtypes.byte_size(r.type.dtype) for r in ffn().program.regions
    ]


def test_a_device_without_the_memory_is_refused() -> None:
    with pytest.raises(CompileError, match="has no memory 'hbm'"):
        timed(ffn().program, load_device("sn10"))
