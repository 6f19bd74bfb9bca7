"""Language models token by token: what they remember is threaded state, and the tokens are PyTorch's.

Some models run by default; all of them with

    pytest test/frontends/torch/test_zoo.py test/frontends/torch/test_decode.py -m "full or not full"
    PYTHONPATH=test python test/frontends/torch/test_decode.py [KIND …]     prints how many tokens agree
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from torch_zoo_models import need_transformers, zoo

import headrace

torch: Any = pytest.importorskip("torch")

PROMPT, TOKENS = 8, 32
ROWS = 48
"""Rows of the caches."""
KINDS = (
    *("gpt2", "llama", "mistral", "qwen2", "qwen3", "phi3", "gemma2", "gemma3_text", "gpt_oss"),
    *("mixtral", "qwen3_moe", "minimax_m2"),
)
QUICK = {"llama", "mixtral"}
"""What runs by default."""


def some(kinds: Any) -> list[Any]:
    """Parameters of a test: what is quick, and the rest marked."""
    return [pytest.param(kind, marks=() if kind in QUICK else pytest.mark.full) for kind in kinds]


def greedy(step: Callable[[Any, int], Any], prompt: Any) -> tuple[list[int], Any]:
    """The tokens that follow a prompt, each the likeliest, and their logits. `step` gives those of a token at a
    position."""
    tokens, seen = prompt[0].tolist(), []
    for position in range(PROMPT + TOKENS - 1):
        logits = step(torch.tensor([[tokens[position]]]), position)
        if position >= PROMPT - 1:
            seen.append(logits[0, -1])
            tokens.append(int(logits[0, -1].argmax()))
    return tokens[PROMPT:], torch.stack(seen)


def expected(model: Any, prompt: Any) -> tuple[list[int], Any]:
    """The same by PyTorch, without a cache."""
    tokens = prompt
    with torch.no_grad():
        for _ in range(TOKENS):
            logits = model(input_ids=tokens, use_cache=False).logits
            tokens = torch.cat([tokens, logits[:, -1].argmax(-1, keepdim=True)], 1)
    return tokens[0, PROMPT:].tolist(), logits[0, PROMPT - 1 :]


def stepped(kind: str) -> tuple[int, float, float]:
    """How many tokens are PyTorch's, with the caches of a step as buffers that it changes; the largest error of their
    logits, and the CPU seconds of compiling."""
    need_transformers()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module, example, _ = zoo().decode(kind, ROWS)
        model = zoo().causal(kind, "eager" if kind in zoo().EAGER else "sdpa")
    begin = time.process_time()
    executable = headrace.compile(module, example_inputs=example)
    seconds = time.process_time() - begin
    prompt = zoo().ids(PROMPT)

    def step(token: Any, position: int) -> Any:
        return executable(token, torch.tensor([position]))

    tokens, logits = greedy(step, prompt)
    executable.reset()  # forgets
    assert greedy(step, prompt)[0] == tokens
    wanted, reference = expected(model, prompt)
    error = (logits - reference).abs().max().item()
    return sum(x == y for x, y in zip(tokens, wanted, strict=True)), error, seconds


@pytest.mark.parametrize("kind", some(KINDS))
def test_tokens_are_those_of_pytorch(kind: str) -> None:
    equal, error, _ = stepped(kind)
    assert (equal, error < 1e-4) == (TOKENS, True)


def test_generate_compiles_a_graph_for_the_prompt_and_one_for_a_step() -> None:
    need_transformers()
    from headrace import dynamo

    class Counted(dynamo.Graph):
        compiled: ClassVar[list[int]] = []

        def _lowered(self, weights: Any) -> Any:
            self.compiled.append(len(weights))
            return super()._lowered(weights)

    model, prompt = zoo().causal("llama"), zoo().ids(PROMPT)
    weights = len(list(model.parameters())) + len(list(model.buffers()))
    asked = {"max_new_tokens": TOKENS, "min_new_tokens": TOKENS, "do_sample": False}
    wanted = [model.generate(ids, **asked).tolist() for ids in (prompt, prompt.flip(1))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dynamo, "Graph", Counted)
        model.compile(backend=dynamo.backend, dynamic=False)
        for _ in range(2):  # nothing is compiled again
            found = [model.generate(x, cache_implementation="static", **asked) for x in (prompt, prompt.flip(1))]
            assert [tokens.tolist() for tokens in found] == wanted
    assert len(Counted.compiled) == 2 and max(Counted.compiled) <= weights  # caches are none


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=pytest.mark.full) for kind in ("llama", "deepseek_v3")])
def test_caches_that_are_arguments_are_changed(kind: str) -> None:
    need_transformers()
    exporters: Any = pytest.importorskip(
        "transformers.exporters.exporter_dynamo", reason="transformers has no exporter"
    )
    from transformers import StaticCache

    def fresh() -> Any:
        cache = StaticCache(config=model.config, max_cache_len=ROWS)
        with torch.no_grad():
            model(input_ids=prompt[:, :1], past_key_values=cache)  # it gets its shapes from a call
        cache.reset()
        return cache

    model, prompt = zoo().causal(kind), zoo().ids(PROMPT)
    example = {"input_ids": prompt[:, :1], "past_key_values": fresh()}
    exported = exporters.DynamoExporter().export(model, example, config=exporters.DynamoConfig())
    executable, cache = headrace.compile(exported.program), fresh()

    def step(token: Any, position: int) -> Any:
        del position  # the cache counts
        return executable(input_ids=token, past_key_values=cache)["logits"]

    tokens, logits = greedy(step, prompt)
    wanted, reference = expected(model, prompt)
    assert tokens == wanted
    torch.testing.assert_close(logits, reference, rtol=0, atol=1e-4)


def main(kinds: list[str]) -> None:
    """Print a table of models."""
    print(f"{'kind':12}  tokens equal     error  compile")
    for kind in kinds or KINDS:
        equal, error, seconds = stepped(kind)
        print(f"{kind:12} {equal:8} of {TOKENS} {error:9.1e} {seconds:6.1f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
