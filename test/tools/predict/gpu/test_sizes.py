"""Sizes of models from configurations, of all kinds that the model of GPUs knows."""

from __future__ import annotations

import pytest

from headrace.dialects.support.diagnostics import CompileError
from headrace.frontends.decoder import PRESETS
from headrace.frontends.torch.models.configurations import NAMES, configuration
from headrace.tools.predict.gpu import NUMBERS, Layout, Sizes, Step, load_gpu, sizes_of, step_time
from headrace.tools.predict.gpu.published import published_models
from headrace.tools.predict.gpu.step import cache_bytes, step_kernels

PARAMETERS = {  # as published, in billions
    "llama-3.1-8b": 8.03,
    "llama-3.1-70b": 70.6,
    "llama-3.1-405b": 405.9,
    "minimax-m2": 228.7,
    "gpt-oss-120b": 116.8,
    "deepseek-v3": 671.0,
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_are_those_that_are_published(name: str) -> None:
    assert sizes_of(configuration(name)[1]).parameters / 1e9 == pytest.approx(PARAMETERS[name], rel=0.005)


@pytest.mark.parametrize("name", NAMES)
def test_every_configuration_has_a_time(name: str) -> None:
    sizes = sizes_of(configuration(name)[1], name)
    for step in (Step(4, 2048), Step(0, 0, 1024)):
        assert 0 < step_time(sizes, load_gpu("b200"), Layout(8), NUMBERS["fp8"], step).seconds < 1


def test_presets_and_published_models() -> None:
    for config in PRESETS.values():
        assert sizes_of(config).parameters == pytest.approx(config.parameters, rel=0.05)
    ours, theirs = published_models()["minimax-m2"], sizes_of(configuration("minimax-m2")[1])
    assert ours == sizes_of({**configuration("minimax-m2")[1]}, "minimax-m2") and theirs.experts == 256
    assert published_models()["gpt-oss-120b"] == sizes_of(configuration("gpt-oss-120b")[1], "gpt-oss-120b")
    assert published_models()["deepseek-r1"] == sizes_of(configuration("deepseek-r1")[1], "deepseek-r1")


def test_latent_attention_keeps_a_small_cache_and_windows_read_little() -> None:
    latent = published_models()["deepseek-r1"]
    assert cache_bytes(latent, NUMBERS["bf16"]) == 61 * (512 + 64) * 2
    gpt = published_models()["gpt-oss-120b"]
    kernels = step_kernels(gpt, load_gpu("h200"), Layout(1), NUMBERS["mxfp4"], Step(64, 8192))
    short, long = (kernel for times, kernel in kernels if kernel.name == "attend" and times == 18)
    assert short.hbm < long.hbm / 30


def test_what_is_not_known_is_refused() -> None:
    given = configuration("llama-3.1-8b")[1]
    with pytest.raises(CompileError, match="does not say which layers"):
        sizes_of({**given, "sliding_window": 4096})
    assert sizes_of({**given, "sliding_window": 4096, "use_sliding_window": False}) == sizes_of(given)
    with pytest.raises(CompileError, match="hidden_act"):
        sizes_of({**given, "hidden_act": "relu"})
    assert isinstance(sizes_of(sizes_of(given)), Sizes)
