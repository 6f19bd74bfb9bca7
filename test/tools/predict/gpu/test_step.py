"""Time of a step on GPUs: what bounds it, and how it moves with its sizes."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product
from math import inf

import pytest

from headrace.dialects.support.diagnostics import CompileError
from headrace.frontends.decoder import LLAMA_3_1_8B
from headrace.tools.predict.gpu import NUMBERS, Layout, Sizes, Step, load_gpu, sizes_of, step_kernels, step_time
from headrace.tools.predict.gpu.step import (
    Machine,
    cache_bytes,
    distinct_experts,
    room,
    weight_bytes,
)

H200 = load_gpu("h200")
DENSE = sizes_of(LLAMA_3_1_8B)
MOE = Sizes("moe", 8, 2048, 16, 8, 128, 768, 32000, experts=64, experts_per_token=4)


@pytest.mark.parametrize("layout", [Layout(1), Layout(8), Layout(8, "tensor", "expert"), Layout(8, "data", "expert")])
@pytest.mark.parametrize("step", [Step(1, 512), Step(64, 4096), Step(0, 0, 2048), Step(32, 1024, 512, 512)])
def test_parts_sum_up_and_none_is_negative(layout: Layout, step: Step) -> None:
    found = step_time(MOE, H200, layout, NUMBERS["fp8"], step)
    assert found.seconds == pytest.approx(sum(found.bounds.values()))
    assert all(seconds >= 0 for seconds in found.bounds.values())
    assert found.bound in found.bounds


def test_a_step_is_not_faster_than_memory_and_tensor_cores() -> None:
    for batch in (1, 16, 256):
        found = step_time(DENSE, H200, Layout(1), NUMBERS["bf16"], Step(batch, 2048))
        embedding = DENSE.vocab * DENSE.hidden * 2  # of which a step reads a few rows
        caches = batch * 2048 * cache_bytes(DENSE, NUMBERS["bf16"])
        least = (weight_bytes(DENSE, NUMBERS["bf16"]) - embedding + caches) / H200.memory.bandwidth
        assert found.seconds > least
    prompt = step_time(DENSE, H200, Layout(1), NUMBERS["bf16"], Step(0, 0, 8192))
    flop = 2.0 * 8192 * (DENSE.parameters - 2 * DENSE.vocab * DENSE.hidden)
    assert flop / prompt.seconds < H200.rates.bf16
    assert flop / prompt.seconds > 0.3 * H200.rates.bf16


def test_decode_waits_for_memory_and_a_prompt_for_arithmetic() -> None:
    assert step_time(DENSE, H200, Layout(1), NUMBERS["bf16"], Step(8, 1024)).bound == "hbm"
    assert step_time(DENSE, H200, Layout(1), NUMBERS["bf16"], Step(0, 0, 8192)).bound == "compute"


def test_small_models_wait_for_kernels() -> None:
    tiny = replace(DENSE, hidden=256, heads=4, kv_heads=4, head_dim=64, intermediate=512, vocab=1000)
    assert step_time(tiny, H200, Layout(1), NUMBERS["bf16"], Step(1, 128)).bound == "launch"


def test_times_rise_with_batch_context_and_prompt() -> None:
    def seconds(*sizes: int) -> float:
        return step_time(MOE, H200, Layout(4), NUMBERS["fp8"], Step(*sizes)).seconds

    for sizes in ([(b, 1024) for b in (1, 4, 16, 64, 256)], [(8, n) for n in (128, 1024, 8192, 65536)]):
        times = [seconds(*one) for one in sizes]
        assert times == sorted(times)
    prompts = [seconds(0, 0, n) for n in (16, 256, 1024, 8192)]
    assert prompts == sorted(prompts)


def test_without_graphs_the_host_sets_the_pace_of_small_kernels() -> None:
    with_graphs = step_time(MOE, H200, Layout(1), NUMBERS["bf16"], Step(1, 128))
    without = step_time(MOE, H200, Layout(1), NUMBERS["bf16"], Step(1, 128), graphs=False)
    kernels = sum(times for times, _ in step_kernels(MOE, H200, Layout(1), NUMBERS["bf16"], Step(1, 128)))
    assert without.seconds >= kernels * H200.kernel.eager
    assert with_graphs.seconds < without.seconds


@pytest.mark.parametrize(("experts", "chosen", "tokens"), [(4, 2, 1), (4, 2, 2), (5, 1, 3), (4, 3, 2)])
def test_experts_that_are_read(experts: int, chosen: int, tokens: int) -> None:
    every = list(combinations(range(experts), chosen))
    counts = [len(set().union(*one)) for one in product(every, repeat=tokens)]
    assert distinct_experts(experts, chosen, tokens) == pytest.approx(sum(counts) / len(counts))


def test_more_tokens_read_more_experts_until_all_are_read() -> None:
    def experts_seconds(batch: int) -> float:
        kernels = step_kernels(MOE, H200, Layout(1), NUMBERS["bf16"], Step(batch, 128))
        return sum(kernel.hbm for _, kernel in kernels if kernel.name.startswith("experts"))

    one, two, many = experts_seconds(1), experts_seconds(2), experts_seconds(512)
    assert one < two < 2 * one
    assert many == pytest.approx(MOE.experts / MOE.experts_per_token * one, rel=0.25)


def test_a_product_reaches_the_rate_when_tiles_come_out_even() -> None:
    m = Machine(H200, 1)
    big = m.product("x", 8192, 132 * 128, 8192, "bf16", "bf16")
    assert big.compute == pytest.approx(2.0 * 8192 * 132 * 128 * 8192 / m.rate("bf16"), rel=0.05)
    uneven = m.product("x", 8192 + 1, 132 * 128, 8192, "bf16", "bf16")
    assert uneven.compute > big.compute


def test_a_product_with_a_few_rows_takes_what_its_weights_take() -> None:
    m = Machine(H200, 1)
    found = m.product("x", 4, 8192, 8192, "bf16", "bf16")
    assert found.compute < found.hbm
    assert found.hbm == pytest.approx(8192 * 8192 * 2 / m.bandwidth, rel=0.05)
    small = m.product("x", 4, 128, 8192, "bf16", "bf16")  # too few tiles for all multiprocessors
    assert 128 * 8192 * 2 / small.hbm < 0.9 * m.bandwidth


def test_all_reduce_is_one_shot_for_few_bytes_and_two_shot_for_many() -> None:
    m, link = Machine(H200, 8), H200.link
    (few,) = m.all_reduce("x", 1024)
    (many,) = m.all_reduce("x", 1 << 28)
    assert link.latency < few.exchange < 2 * link.latency
    assert many.exchange == pytest.approx(2 * 7 / 8 * (1 << 28) / (link.bandwidth * link.efficiency), rel=0.01)
    assert Machine(H200, 1).all_reduce("x", 1 << 20) == []


def test_weights_are_those_of_the_configuration() -> None:
    for config in (DENSE, MOE):
        assert weight_bytes(config, NUMBERS["bf16"]) == pytest.approx(2 * config.parameters, rel=0.001)
    assert weight_bytes(MOE, NUMBERS["fp8"]) < 0.6 * weight_bytes(MOE, NUMBERS["bf16"])


def test_room_for_caches() -> None:
    numbers = NUMBERS["bf16"]
    tokens = room(DENSE, H200, Layout(1), numbers)
    held = tokens * cache_bytes(DENSE, numbers) + weight_bytes(DENSE, numbers)
    assert held == pytest.approx(H200.memory.bytes * H200.memory.usable)
    large = replace(DENSE, layers=400)
    assert room(large, H200, Layout(1), numbers) < 0
    copies = replace(DENSE, kv_heads=4)  # eight GPUs keep each head twice
    assert room(copies, H200, Layout(8), numbers) < 2 * room(DENSE, H200, Layout(8), numbers)


def test_more_than_a_node_is_refused() -> None:
    with pytest.raises(CompileError, match="NVLink joins 8"):
        step_time(DENSE, H200, Layout(16), NUMBERS["bf16"], Step(1, 128))
    assert room(DENSE, H200, Layout(8), NUMBERS["bf16"]) < inf
