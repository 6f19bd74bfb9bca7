"""Language models that transformers knows, as programs of one step."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from xdsl.dialects.builtin import ModuleOp


def step_of(
    config: str | os.PathLike[str] | Mapping[str, Any], mode: str, *, batch: int, tokens: int, context: int, dtype: str
) -> ModuleOp:
    """A step of a model by its name or configuration, shapes only; `CompileError` for what is not known."""
    from headrace.frontends.torch.models import import_model

    return import_model(
        config, mode, batch=batch, tokens=tokens, context=context, dtype=dtype, calls=dtype != "f32"
    ).module
