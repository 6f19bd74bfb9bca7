"""Models from their configurations: what they compute, and that each distinct layer is imported once."""

import copy
import json
from math import prod
from typing import Any

import numpy as np
import pytest
from command import headrace, succeeds
from torch_zoo_models import need_transformers

from headrace.dialects.support.diagnostics import CompileError
from headrace.dialects.tensor.interpreter import Interpreter
from headrace.frontends.torch.models import NAMES, import_model
from headrace.frontends.torch.models.importing import build, import_built

torch: Any = pytest.importorskip("torch")
need_transformers()

PROMPT, ROWS, BATCH = 6, 12, 2
SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "pad_token_id": None,
    "bos_token_id": 0,
    "eos_token_id": 1,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"num_hidden_layers": 3},
    "minimax_m2": {"num_local_experts": 8, "num_experts_per_tok": 2, "rotary_dim": 4, "num_hidden_layers": 3},
    "gpt_oss": {"num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": 4},
    "deepseek_v3": {
        "num_hidden_layers": 5,
        "num_key_value_heads": 4,
        "first_k_dense_replace": 2,
        "moe_intermediate_size": 16,
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "n_shared_experts": 1,
        "n_group": 2,
        "topk_group": 1,
        "q_lora_rank": 16,
        "kv_lora_rank": 16,
        "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 4,
        "v_head_dim": 8,
    },
}


def small(kind: str, **changes: Any) -> Any:
    """A small model with weights and buffers drawn at random."""
    given = {**SIZES, **FAMILIES[kind], **changes}
    if kind == "deepseek_v3":
        del given["head_dim"]
    torch.manual_seed(0)
    model = build({"model_type": kind, **given}, "f32", "cpu")
    with torch.no_grad():
        for name, x in (*model.named_parameters(), *model.named_buffers()):
            if "inv_freq" not in name:
                x.copy_(torch.randn(x.shape) * (0.5 if x.ndim < 2 else 0.2) + ("norm" in name))
    return model


def run(found: Any, **inputs: Any) -> dict[str, Any]:
    return Interpreter(found.module, found.store).run("main", inputs)


def functions(found: Any) -> int:
    return sum(op.name == "func.func" for op in found.module.body.block.ops)


@pytest.mark.parametrize(
    ("kind", "distinct"),
    [
        *((kind, True) for kind in FAMILIES),
        ("llama", False),
        *(pytest.param(kind, False, marks=pytest.mark.full) for kind in FAMILIES if kind != "llama"),
    ],
)
def test_a_model_of_distinct_layers_is_the_model(kind: str, distinct: bool) -> None:
    """A prompt and two steps: by PyTorch without a cache, with every layer imported, and with each distinct one."""
    model = small(kind)
    count = model.config.num_hidden_layers
    ids = torch.randint(0, 64, (BATCH, PROMPT + 2), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        wanted = [model(input_ids=ids[:, : PROMPT + i], use_cache=False).logits[:, -1].numpy() for i in range(3)]
    sizes: Any = {"batch": BATCH, "tokens": PROMPT, "context": ROWS, "distinct": distinct}
    prompt, step = (import_built(copy.deepcopy(model), "small", mode, **sizes) for mode in ("prefill", "decode"))
    for found in (prompt, step):
        found.module.verify()
        assert functions(found) == 1 + (distinct and len(set(found.kinds)))
        assert len(found.kinds) == count
    given = run(prompt, tokens=ids[:, :PROMPT].numpy().astype(np.int32))
    np.testing.assert_allclose(given["logits"], wanted[0], rtol=0, atol=1e-4)
    states = {name: np.zeros(port.type.shape, np.float32) for port in step.inputs if "." in (name := port.name)}
    for name, rows in states.items():
        kept = given[name.replace("past", "present")]
        for at in range(PROMPT):
            rows[at % len(rows)] = kept[at]
    for i in range(2):
        tokens, position = ids[:, PROMPT + i].numpy(), np.array([PROMPT + i])
        given = run(step, tokens=tokens.astype(np.int32), position=position.astype(np.int32), **states)
        np.testing.assert_allclose(given["logits"], wanted[i + 1], rtol=0, atol=1e-4)
        states = {past: given[present] for past, present in step.states}


PARAMETERS = {
    "llama-2-7b": 6_738_415_616,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "deepseek-v3": 671_026_404_352,
    "minimax-m2": 228_689_748_992,
    "gpt-oss-120b": 116_829_156_672,
}
"""Numbers in the weights."""


@pytest.mark.parametrize("name", PARAMETERS)
def test_models_at_full_size(name: str) -> None:
    found = import_model(name, "decode", context=8192)
    assert found.parameters == PARAMETERS[name]
    held = sum(prod(found.store[key].shape) for key in found.store)
    assert 0 <= held - found.parameters < 1e5  # speeds of rotary positions, and biases of routers
    assert all(found.store[key].load is None for key in found.store if "inv_freq" not in key)
    assert functions(found) == 1 + len(set(found.kinds)) <= 3
    mixed = len([op for op in found.module.body.block.first_op.body.block.ops if op.name == "func.call"])  # type: ignore
    assert mixed == len(found.kinds)


def test_errors_say_what_to_do(tmp_path: Any) -> None:
    with pytest.raises(CompileError, match=r"did you mean 'llama-3\.1-405b'"):
        import_model("llama3.1-405b")
    path = tmp_path / "config.json"
    with pytest.raises(CompileError, match="cannot read"):
        import_model(str(path))
    for given, message in (
        ({"hidden_size": 3}, "model_type"),
        ({"model_type": "lama"}, "model type 'lama'"),
        ({"model_type": "bert"}, "no decoder"),
    ):
        path.write_text(json.dumps(given))
        with pytest.raises(CompileError) as caught:
            import_model(str(path))
        assert message in str(caught.value)
    with pytest.raises(CompileError) as caught:
        import_model("llama-2-7b", "decod", batch=0, dtype="bf6")
    assert len(caught.value.diagnostics) == 3


def test_a_layer_that_differs_is_refused() -> None:
    model = small("llama")
    layer = model.model.layers[1]
    forward = layer.forward
    layer.forward = lambda *args, **kwargs: forward(*args, **kwargs) * 2
    with pytest.raises(CompileError, match="not-repeatable") as caught:
        import_built(model, "small", "prefill", tokens=4)
    assert "differs" in str(caught.value) and "distinct=False" in str(caught.value)


def test_experts_in_f32() -> None:
    found = import_model({"model_type": "minimax_m2", **SIZES, **FAMILIES["minimax_m2"]}, context=ROWS, dtype="f32")
    assert {found.store[key].dtype for key in found.store} == {"f32"}


def test_layers_are_written_out_when_asked() -> None:
    found = [import_built(small("llama"), "small", "prefill", tokens=4, calls=calls) for calls in (True, False)]
    assert [functions(one) for one in found] == [2, 1]
    tokens = np.arange(4, dtype=np.int32)[None]
    called, written = (run(one, tokens=tokens) for one in found)
    assert called.keys() == written.keys()
    for name, value in called.items():
        np.testing.assert_array_equal(value, written[name])


def test_names_are_known() -> None:
    assert {*PARAMETERS, "deepseek-r1", "llama-3.3-70b", "minimax-m2.7"} <= set(NAMES)


def test_commands_take_configurations(tmp_path: Any) -> None:
    given = {"model_type": "llama", **SIZES, **FAMILIES["llama"]}
    path = tmp_path / "small.json"
    path.write_text(json.dumps(given))
    shown = succeeds("plan", path, "--context", 16, "--json").json
    assert shown["size"]["layers"] == 3 and shown["size"]["distinct_layers"] == 1
    assert shown["size"]["state_bytes"] == 3 * 2 * 16 * 2 * 8 * 2  # layers, keys and values, rows, heads, size, bf16
    assert shown["device_ops"]["whole"]["matmul"] == 3 * 9 + 1
    target = tmp_path / "small.sn"
    summary = succeeds("compile", path, "--shape-only", "--mode", "prefill", "--tokens", 8, "-o", target, "--json").json
    assert target.is_file() and summary["model"] == "small-prefill" and not summary["weights"]
    for arguments, message in (
        (["compile", path], "has no weights"),
        (["compile", "lama-3.1-8b", "--shape-only"], "did you mean 'llama-3.1-8b'"),
        (["compile", "model.onnx", "--tokens", 8], "--tokens is given for model.onnx"),
    ):
        refused = headrace(*arguments)
        assert refused.code and message in refused.err
