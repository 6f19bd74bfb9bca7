"""The zoo of PyTorch models: small, random, unmodified; a folder beside the repository has them (`../shared/tools`).

Those of `transformers` need that package (extra `test` has it). Tests that need what is not there are skipped and say
so.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "shared" / "tools" / "torch_zoo.py"
"""Where the models come from."""
PLAIN = ("attention", "mlp", "cnn", "lstm", "gru", "mha", "transformer_encoder")
"""Modules of PyTorch alone."""
HUGGING = (
    *("gpt2", "llama", "mistral", "qwen2", "qwen3", "phi3", "gemma2", "gemma3_text", "gpt_oss", "mixtral", "qwen3_moe"),
    *("minimax_m2", "deepseek_v3", "mamba", "bert", "t5", "vit", "resnet", "convnext", "whisper", "clip"),
)
"""Models of transformers."""
NAMES = (*(f"nn_{name}" for name in PLAIN), *(f"hf_{name}" for name in HUGGING))


@cache
def zoo() -> Any:
    """The module that makes the models."""
    if not SOURCE.exists():
        pytest.skip(f"the zoo is not there: no {SOURCE.name} in {'/'.join(SOURCE.parts[-3:-1])}")
    spec = importlib.util.spec_from_file_location("torch_zoo", SOURCE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def need_transformers() -> None:
    """Skip the test where transformers is not installed."""
    pytest.importorskip("transformers", reason="models of transformers need it: pip install 'headrace[test]'")


def model(name: str) -> tuple[Any, tuple[Any, ...], Mapping[str, Any]]:
    """A model of the zoo, ready to be called with the arguments beside it."""
    import torch

    made = zoo()
    if name.startswith("hf_"):
        need_transformers()
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return made.ZOO[name]()
