"""A server's steady state: rates, waiting, and what does not fit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.dialects.support.diagnostics import CompileError
from headrace.frontends.decoder import LLAMA_3_1_8B
from headrace.tools.predict.gpu import NUMBERS, Layout, load_gpu, prompt_time, serve, sizes_of
from headrace.tools.predict.gpu.serving import ranks_with_prompts

H200 = load_gpu("h200")
BF16 = NUMBERS["bf16"]
LLAMA = sizes_of(LLAMA_3_1_8B)


def test_rates_belong_together() -> None:
    found = serve(LLAMA, H200, Layout(1), BF16, 32, 1024, 256)
    assert found.running == 32
    assert found.output_rate == pytest.approx(found.running / found.between)
    assert found.total_rate == pytest.approx(found.output_rate * (1024 + 256) / 256)
    assert found.between > found.decode.seconds  # prompts of others come between
    assert found.first == pytest.approx(found.prefill.seconds)


def test_more_requests_give_more_to_the_system_and_less_to_each() -> None:
    served = [serve(LLAMA, H200, Layout(1), BF16, n, 512, 512) for n in (1, 4, 16, 64)]
    rates, users = [x.output_rate for x in served], [x.user_rate for x in served]
    assert rates == sorted(rates) and users == sorted(users, reverse=True)


def test_requests_without_room_wait() -> None:
    small = replace(H200, memory=replace(H200.memory, bytes=24_000_000_000))
    most = serve(LLAMA, small, Layout(1), BF16, 10_000, 4096, 1024).running
    full, beyond = (serve(LLAMA, small, Layout(1), BF16, most + n, 4096, 1024) for n in (0, 5))
    assert beyond.running == full.running == most
    assert beyond.output_rate == pytest.approx(full.output_rate)
    assert beyond.first == pytest.approx(full.first + 5 * 1024 / full.output_rate)


def test_a_model_that_does_not_fit_is_refused() -> None:
    with pytest.raises(CompileError, match=r"weights are 1\d\d GB"):
        serve(replace(LLAMA, layers=300), H200, Layout(1), BF16, 1, 128, 128)


def test_a_long_prompt_is_computed_in_chunks_and_costs_at_least_its_parts() -> None:
    def seconds(prompt: int) -> float:
        return prompt_time(LLAMA, H200, Layout(1), BF16, prompt).seconds

    assert seconds(32768) > 4 * seconds(8192)  # later chunks attend to earlier ones


def test_gpus_that_have_prompts_at_the_same_time() -> None:
    assert ranks_with_prompts(Layout(8), 64, 1024, 1024) == 1
    spread = Layout(4, "data", "expert")
    assert ranks_with_prompts(spread, 4, 128, 100_000) == pytest.approx(1, abs=1e-3)
    assert ranks_with_prompts(spread, 1_000_000, 1024, 16) == pytest.approx(4)
    assert 1 < ranks_with_prompts(spread, 1000, 1024, 1024) < 4
