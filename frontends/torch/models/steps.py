"""One step of a language model of transformers as a module: all tokens of a prompt, or one token more.

* `Prefill`: `tokens` [batch, tokens] → the logits of the last token, and the keys and values of each layer,
  [tokens, batch, heads, size];
* `Decode`: `tokens` [batch] and `position` [1], and caches [rows, batch, heads, size] as buffers: the step writes its
  rows at `position` and attends over the rows up to it. A layer that sees a window has as many rows as the window is
  wide, and writes over the oldest.

All sequences of a batch are at the same position.

Attention that keeps a latent of keys and values instead of them (DeepSeek) is computed on the latents in a step: what
makes keys of them is applied to the query, what makes values to the result. Each is so applied to one token, and not
to all rows of the cache; the sums are the same ones in another order.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch as library
from transformers.cache_utils import Cache, CacheLayerMixin  # pyright: ignore
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

torch: Any = library
ROWS_FIRST, HEADS_FIRST = (2, 0, 1, 3), (1, 2, 0, 3)


class _Layer(CacheLayerMixin):  # pyright: ignore
    """The keys and values of one layer, which only takes note of them, or writes them to `rows` at `index`."""

    is_compileable = True

    def __init__(self, rows: Any = None, index: Any = None) -> None:
        super().__init__()  # pyright: ignore
        self.rows, self.index = rows, index
        self.is_initialized = True

    def lazy_initialization(self, key_states: Any, value_states: Any) -> None:
        """There is nothing to make."""

    def update(self, key_states: Any, value_states: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        """What the layer attends over."""
        if self.rows is None:
            self.keys, self.values = (x.permute(*ROWS_FIRST) for x in (key_states, value_states))
            return key_states, value_states
        kept = self.rows
        kept.key.index_copy_(0, self.index, key_states.permute(*ROWS_FIRST))
        kept.value.index_copy_(0, self.index, value_states.permute(*ROWS_FIRST))
        return kept.key.permute(*HEADS_FIRST), kept.value.permute(*HEADS_FIRST)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Of a prompt; a step is given its masks."""
        return query_length, 0

    def get_seq_length(self) -> int:
        """Of a prompt: nothing came before."""
        return 0

    def get_max_length(self) -> int:
        """There is none."""
        return -1


class Prefill(torch.nn.Module):
    """A prompt."""

    def __init__(self, model: Any) -> None:
        super().__init__()  # pyright: ignore
        self.model = model
        self.layers = len(layers_of(model))

    def forward(self, tokens: Any) -> Any:
        """The logits of the last token, then keys and values by layer."""
        cache = Cache(layers=[_Layer() for _ in range(self.layers)])  # pyright: ignore
        given: Any = self.model(input_ids=tokens, cache=cache, use_cache=True, logits_to_keep=1)
        return given.logits[:, 0], *(x for layer in cache.layers for x in (layer.keys, layer.values))  # pyright: ignore


class _Rows(torch.nn.Module):
    """The cache of a layer."""

    def __init__(self, rows: int, key: Any, value: Any) -> None:
        super().__init__()  # pyright: ignore
        for name, x in (("key", key), ("value", value)):
            self.register_buffer(name, torch.zeros((rows, *x.shape[1:]), dtype=x.dtype, device=x.device))


class Decode(torch.nn.Module):
    """A token more."""

    def __init__(self, model: Any, batch: int, context: int) -> None:
        super().__init__()  # pyright: ignore
        self.model = model
        self.context = context
        config = model.config
        self.types = tuple(layer_types(config))
        self.window = window_of(config, context)
        device = next(model.parameters()).device
        asked = Cache(layers=[_Layer() for _ in self.types])  # pyright: ignore
        with torch.no_grad(), _any_type(config):
            token = torch.zeros((batch, 1), dtype=torch.int32, device=device)
            model(input_ids=token, cache=asked, use_cache=True, logits_to_keep=1)
        rows = (self.window if kind == SLIDING else context for kind in self.types)
        _on_latents(model)
        self.past = torch.nn.ModuleList(
            _Rows(size, layer.keys, layer.values)  # pyright: ignore
            for size, layer in zip(rows, asked.layers, strict=True)  # pyright: ignore
        )

    def forward(self, tokens: Any, position: Any) -> Any:
        """The logits of the token that follows."""
        at = {FULL: position, SLIDING: torch.remainder(position, self.window)}
        layers = [_Layer(rows, at[kind]) for rows, kind in zip(self.past, self.types, strict=True)]
        masks = {kind: self._mask(position, self.window if kind == SLIDING else self.context) for kind in at}
        config = self.model.config
        mixed = SLIDING in (getattr(config, "layer_types", None) or ())
        given: Any = self.model(
            input_ids=tokens[:, None],
            position_ids=position[None],
            attention_mask=masks if mixed else masks[self.types[0]],
            cache=Cache(layers=layers),  # pyright: ignore
            use_cache=True,
            logits_to_keep=1,
        )
        return given.logits[:, 0]

    def _mask(self, position: Any, rows: int) -> Any:
        """What is added to the scores of rows: nothing where they hold a token that the new one sees."""
        seen = (torch.arange(rows, device=position.device) <= position)[None, None, None]
        dtype = self.past[0].key.dtype
        least = torch.full((), torch.finfo(dtype).min, dtype=dtype, device=position.device)
        return torch.where(seen, torch.zeros((), dtype=dtype, device=position.device), least)


@contextmanager
def _any_type(config: Any) -> Generator[None]:
    """Where experts are called, not exported: products by group take no f32 on the meta device."""
    before = getattr(config, "_experts_implementation", None)
    config._experts_implementation = "batched_mm"
    try:
        yield
    finally:
        config._experts_implementation = before


LATENT = "headrace-latent"


def _on_latents(model: Any) -> None:
    """Have attention on latents computed without expanding them, where a model has any."""
    found = [one for one in model.modules() if hasattr(one, "expand_kv") and hasattr(one, "kv_b_proj")]
    for one in found:
        one.expand_kv = _as_they_are
    if found:
        ALL_ATTENTION_FUNCTIONS.register(LATENT, _latent_attention)  # pyright: ignore
        model.config._attn_implementation = LATENT


def _as_they_are(latents: Any, rotated: Any) -> tuple[Any, Any]:
    return latents, rotated


def _latent_attention(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, scaling: float, **kwargs: Any
) -> tuple[Any, None]:
    """Attention of one token over latents (`key`) and the rotated parts of keys that heads share (`value`):
    [batch, 1, heads, size]."""
    batch, heads = query.shape[:2]
    plain, rest = module.qk_nope_head_dim, module.qk_rope_head_dim
    weight = module.kv_b_proj.weight.view(heads, plain + module.v_head_dim, -1)
    to_keys, to_values = weight[:, :plain], weight[:, plain:]
    own, turned = query.split([plain, rest], dim=-1)
    asked = torch.matmul(own, to_keys).view(batch, 1, heads, -1)
    scores = torch.matmul(asked, key.transpose(2, 3))
    scores = scores + torch.matmul(turned.reshape(batch, 1, heads, rest), value.transpose(2, 3))
    shares = torch.softmax(scores * scaling + attention_mask, dim=-1, dtype=torch.float32).to(query.dtype)
    mixed = torch.matmul(shares, key).view(batch, heads, 1, -1)
    return torch.matmul(mixed, to_values.transpose(1, 2)).view(batch, 1, heads, -1), None


FULL, SLIDING = "full_attention", "sliding_attention"


def layers_of(model: Any) -> Any:
    """The list of a model's layers."""
    return model.get_decoder().layers


def layer_types(config: Any) -> list[str]:
    """What each layer attends over."""
    types = getattr(config, "layer_types", None)
    if types:
        return list(types)
    slides = getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True)
    return [SLIDING if slides else FULL] * config.num_hidden_layers


def window_of(config: Any, context: int) -> int:
    """How many rows a layer keeps that sees a window."""
    return min(getattr(config, "sliding_window", None) or context, context)
