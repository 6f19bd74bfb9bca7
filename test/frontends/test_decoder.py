"""Decoders built from a configuration: against NumPy, prefill against decode, dispatch against dispatch."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.backend.encode import encode
from headrace.compiler import ModelWeights, lower
from headrace.dialects.support.diagnostics import CompileError
from headrace.dialects.tensor.interpreter import run_function
from headrace.frontends.base import ImportResult
from headrace.frontends.decoder import LLAMA_2_7B, LLAMA_3_1_8B, TINY, TINY_MOE, DecoderConfig, build_decoder
from headrace.passes.infra.verify import unlocated
from headrace.passes.pipelines import PIPELINES
from headrace.runtime.session import Executable
from headrace.runtime.timing import time_program

Array = np.ndarray[Any, np.dtype[Any]]
CONVERT = "convert-tensor-to-dataflow"
CONFIGS = {
    "dense": TINY,
    "tied": replace(TINY, tied=True, rotary=4),
    "one-kv-head": replace(TINY, kv_heads=1, qk_norm="full"),
    "experts": TINY_MOE,
    "sigmoid-router": replace(TINY_MOE, router="sigmoid", experts_per_token=3),
}


def run(found: ImportResult, arrays: dict[str, Array]) -> dict[str, Array]:
    found.module.verify()
    assert not unlocated(found.module)
    return run_function(found.module, "main", arrays, found.store)


def ids(config: DecoderConfig, batch: int, tokens: int) -> Array:
    return np.random.default_rng(1).integers(0, config.vocab, (batch, tokens)).astype(np.int32)


def numpy_logits(c: DecoderConfig, store: Any, tokens: Array) -> Array:
    """Logits of all tokens [batch, tokens, vocab] in double precision, written as the papers have it."""

    def w(key: str) -> Array:
        return store.array(key).astype(np.float64)

    def norm(x: Array, key: str) -> Array:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + c.epsilon) * w(key)

    def softmax(x: Array) -> Array:
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    def silu(x: Array) -> Array:
        return x / (1 + np.exp(-x))

    half = c.rotary_dim // 2
    angles = [[[t * c.rope_theta ** (-i / half) for i in range(half)]] for t in range(tokens.shape[1])]
    angle: Array = np.array(angles)

    def rotate(x: Array) -> Array:
        a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
        turned = a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)
        return np.concatenate([*turned, rest], -1)

    def feed(x: Array, at: str) -> Array:
        if not c.experts:
            return (silu(x @ w(f"{at}.gate_proj.weight")) * (x @ w(f"{at}.up_proj.weight"))) @ w(
                f"{at}.down_proj.weight"
            )
        raw = x @ w(f"{at}.gate.weight")
        score = softmax(raw) if c.router == "softmax" else 1 / (1 + np.exp(-raw))
        result = np.zeros_like(x)
        for t, row in enumerate(x):
            top = np.argsort(-score[t])[: c.experts_per_token]
            for e in top:
                gate, up, down = (w(f"{at}.experts.{n}_proj")[e] for n in ("gate", "up", "down"))
                result[t] += score[t, e] / score[t, top].sum() * ((silu(row @ gate) * (row @ up)) @ down)
        return result

    logits: list[Array] = []
    for sequence in tokens:
        x = w("model.embed_tokens.weight")[sequence]
        count = len(sequence)
        for i in range(c.layers):
            at = f"model.layers.{i}"
            y = norm(x, f"{at}.input_layernorm.weight")
            parts: list[Array] = []
            for name, heads in (("q", c.heads), ("k", c.kv_heads), ("v", c.kv_heads)):
                z = y @ w(f"{at}.self_attn.{name}_proj.weight")
                if c.qk_norm == "full" and name != "v":
                    z = norm(z, f"{at}.self_attn.{name}_norm.weight")
                z = z.reshape(count, heads, c.head_dim)
                if c.qk_norm == "head" and name != "v":
                    z = norm(z, f"{at}.self_attn.{name}_norm.weight")
                parts.append(z if name == "v" else rotate(z))
            q, k, v = parts
            k, v = (np.repeat(z, c.heads // c.kv_heads, 1) for z in (k, v))
            score = np.einsum("thd,shd->hts", q, k) / np.sqrt(c.head_dim)
            score = np.where(np.tri(count, dtype=bool), score, -np.inf)
            y = np.einsum("hts,shd->thd", softmax(score), v).reshape(count, -1)
            x = x + y @ w(f"{at}.self_attn.o_proj.weight")
            x = x + feed(norm(x, f"{at}.post_attention_layernorm.weight"), f"{at}.mlp")
        x = norm(x, "model.norm.weight")
        logits.append(x @ (w("model.embed_tokens.weight").T if c.tied else w("lm_head.weight")))
    return np.stack(logits)


@pytest.mark.parametrize("name", CONFIGS)
def test_prefill_is_what_numpy_computes(name: str) -> None:
    config = CONFIGS[name]
    found = build_decoder(config, tokens=6, batch=2, seed=0, logits="all")
    tokens = ids(config, 2, 6)
    got = run(found, {"tokens": tokens})["logits"].reshape(2, 6, -1)
    want = numpy_logits(config, found.store, tokens)
    assert np.abs(want).max() > 0.1
    np.testing.assert_allclose(got, want, atol=1e-4 * np.abs(want).max())
    last = build_decoder(config, tokens=6, batch=2, seed=0)
    np.testing.assert_array_equal(run(last, {"tokens": tokens})["logits"], got[:, -1])


@pytest.mark.parametrize("dispatch", ["dense", "indexed"])
@pytest.mark.parametrize("name", CONFIGS)
def test_decode_steps_give_what_prefill_gives(name: str, dispatch: Any) -> None:
    config, batch, count = CONFIGS[name], 2, 5
    tokens = ids(config, batch, count)
    whole = run(build_decoder(config, tokens=count, batch=batch, seed=0, logits="all"), {"tokens": tokens})
    step = build_decoder(config, "decode", context=8, batch=batch, seed=0, dispatch=dispatch)
    pasts = {past for past, _ in step.states}
    assert len(pasts) == 2 * config.layers
    state = {p.name: np.zeros(p.type.shape, np.float32) for p in step.inputs if p.name in pasts}
    for t in range(count):
        out = run(step, {"tokens": tokens[:, t], "position": np.array([t], np.int32), **state})
        want = whole["logits"].reshape(batch, count, -1)[:, t]
        np.testing.assert_allclose(out["logits"], want, atol=1e-5 * np.abs(want).max())
        state = {past: out[present] for past, present in step.states}
    for i in range(config.layers):
        np.testing.assert_allclose(
            state[f"past.{i}.key"][:count], whole[f"present.{i}.key"], atol=1e-5, err_msg="what prefill hands on"
        )


@pytest.mark.parametrize("mode", ["prefill", "decode"])
@pytest.mark.parametrize("name", ["dense", "experts"])
def test_it_runs_on_the_device(name: str, mode: Any, tmp_path: Path) -> None:
    import headrace
    from headrace.tools.cli import execute

    config = CONFIGS[name]
    found = build_decoder(config, mode, tokens=4, context=8, seed=0)
    file = tmp_path / "m.mlir"
    assert execute(["decoder", config.name, "--mode", mode, "--tokens", "4", "--context", "8", "-o", str(file)]) == 0
    tokens = ids(config, 1, 4)
    arrays = {"tokens": tokens} if mode == "prefill" else {"tokens": tokens[:, 0], "position": np.zeros(1, np.int32)}
    pasts = {p.name: np.zeros(p.type.shape, np.float32) for p in found.inputs if p.name.startswith("past")}
    want = run(found, {**arrays, **pasts})["logits"]
    exe = headrace.compile(file, weights="random:0")
    np.testing.assert_allclose(exe(arrays)["logits"], want, atol=1e-5 * np.abs(want).max())


def test_published_sizes() -> None:
    assert LLAMA_2_7B.parameters == 6_738_415_616
    assert LLAMA_3_1_8B.parameters == 8_030_261_248
    for config in (LLAMA_2_7B, *CONFIGS.values()):
        found = build_decoder(config, tokens=2)
        assert found.store.shape_only
        total = sum(int(np.prod(found.store[key].shape)) for key in found.store)
        assert total == config.parameters, config


def test_a_configuration_of_a_published_model(tmp_path: Path) -> None:
    given = {
        "model_type": "minimax_m2",
        "hidden_size": 3072,
        "num_hidden_layers": 62,
        "num_attention_heads": 48,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 1536,
        "num_local_experts": 256,
        "num_experts_per_tok": 8,
        "rotary_dim": 64,
        "rope_theta": 5000000,
        "rms_norm_eps": 1e-6,
        "scoring_func": "sigmoid",
        "vocab_size": 200064,
    }
    config = DecoderConfig.from_json(given, "minimax-m2")
    assert (config.experts, config.experts_per_token, config.rotary_dim, config.router) == (256, 8, 64, "sigmoid")
    assert round(config.parameters / 1e9, 2) == 228.69
    from headrace.tools.cli import execute

    (tmp_path / "small.json").write_text(json.dumps({**given, "num_hidden_layers": 1}))
    args = ["decoder", str(tmp_path / "small.json"), "--mode", "decode", "--dtype", "bf16"]
    assert execute([*args, "-o", str(tmp_path / "x.mlir")]) == 0


def test_refusals(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(CompileError) as error:
        DecoderConfig.from_json({"hidden_act": "relu", "kv_lora_rank": 4, "num_attention_heads": 2, "hidden_size": 8})
    codes = [one.code for one in error.value.diagnostics]
    assert codes.count("not-supported") == 2 and codes.count("bad-config") == 3
    with pytest.raises(CompileError, match="evenly"):
        replace(TINY, kv_heads=3)
    with pytest.raises(CompileError, match="dtype 'i8'"):
        build_decoder(TINY, dtype="i8", tokens=0)
    from headrace.tools.cli import execute

    (tmp_path / "x.json").write_text("[1]")
    for config in ("tinny", str(tmp_path / "x.json"), str(tmp_path / "none.json")):
        assert execute(["decoder", config]) == 2
    assert "tiny" in capsys.readouterr().err


@pytest.mark.parametrize("layers", [2, 5])
def test_a_step_is_a_handful_of_launches(layers: int) -> None:
    """The chip repeats the layers by itself: however many there are, the host launches once."""
    module = build_decoder(replace(TINY, layers=layers), "decode", context=8).module
    lower(module, "sn40l")
    found = time_program(encode(module))
    (loop,) = found.loops
    assert loop.times == layers
    assert (found.calls, found.host_launches, len(found.launches)) == (3, 1, loop.period * layers + 2)


def test_a_layer_that_forwards_its_new_rows_stays_loaded() -> None:
    """One section a layer, which is on the chip already from the second round on; it computes what two do."""
    made: list[dict[str, Array]] = []
    for forward in ("0", "1"):
        found = build_decoder(TINY, "decode", context=8, seed=0)
        text = PIPELINES["tensor"], PIPELINES["dataflow"], PIPELINES["rdu"]
        lower(found.module, "sn40l", ",".join(text).replace(CONVERT, f"{CONVERT}{{forward={forward}}}"))
        program = encode(found.module)
        exe = Executable(program, ModelWeights(found.module, found.store))
        for position in (0, 1, -1):
            out = exe({"tokens": np.array([7], np.int32), "position": np.array([position], np.int32)})
        made.append(out | exe.state())  # pyright: ignore[reportPossiblyUnboundVariable]
        (loop,) = program.loops
        loaded = [launch.loaded for launch in time_program(program).launches[loop.first + 1 : loop.end]]
        assert all(loaded) == (forward == "1") and loop.period == (1 if forward == "1" else 2)
    for name, array in made[0].items():
        np.testing.assert_array_equal(made[1][name], array, name)
