"""Sizes of a decoder as far as the time of a step on GPUs depends on them, also of kinds that we do not compile.

`sizes_of` reads a `DecoderConfig` or the configuration of a Hugging Face model: grouped-query attention in full or in
windows, latent attention (DeepSeek, Kimi), dense feed-forwards, and mixtures of experts with shared ones and with
leading dense layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from headrace.dialects.support.diagnostics import CompileError
from headrace.frontends.decoder import DecoderConfig


@dataclass(frozen=True)
class Sizes:
    """Layers, widths and counts.

    `windowed` layers attend to the last `window` tokens, the others to all. `latent` > 0 is latent attention: a row of
    the cache is `latent + rope` wide, for all heads; queries come from `query_latent` (0: straight), and heads are
    `head_dim + rope` wide in scores and `value_dim` in values. The first `dense` layers have a feed-forward
    `dense_width` wide in place of experts; `shared` is the width of what each token goes through beside the experts.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    tied: bool = False
    qk_norm: Literal["", "head", "full"] = ""
    experts: int = 0
    experts_per_token: int = 0
    windowed: int = 0
    window: int = 0
    latent: int = 0
    query_latent: int = 0
    rope: int = 0
    value_dim: int = 0
    dense: int = 0
    dense_width: int = 0
    shared: int = 0

    @property
    def attention_parameters(self) -> int:
        """Of the projections of one layer."""
        if not self.latent:
            return self.hidden * (2 * self.heads + 2 * self.kv_heads) * self.head_dim
        query = self.heads * (self.head_dim + self.rope)
        query = self.query_latent * (self.hidden + query) if self.query_latent else self.hidden * query
        key_value = self.hidden * (self.latent + self.rope) + self.latent * self.heads * (
            self.head_dim + self.value_dim
        )
        return query + key_value + self.heads * self.value_dim * self.hidden

    @property
    def expert_layers(self) -> int:
        """Layers that have experts."""
        return self.layers - self.dense if self.experts else 0

    @property
    def parameters(self) -> int:
        """Numbers in all weights but those of norms and biases."""
        feed = 3 * self.hidden
        routed = self.expert_layers * (self.experts * (feed * self.intermediate + self.hidden) + feed * self.shared)
        plain = self.dense * feed * self.dense_width if self.experts else self.layers * feed * self.intermediate
        ends = (1 if self.tied else 2) * self.vocab * self.hidden
        return self.layers * self.attention_parameters + routed + plain + ends


def sizes_of(given: DecoderConfig | Sizes | Mapping[str, Any], name: str = "") -> Sizes:
    """The sizes of a model. `CompileError` for attention or layers of another kind."""
    if isinstance(given, Sizes):
        return given
    if isinstance(given, DecoderConfig):
        c = given
        return Sizes(
            *(c.name, c.layers, c.hidden, c.heads, c.kv_heads, c.head_dim, c.intermediate, c.vocab),
            *(c.tied, c.qk_norm, c.experts, c.experts_per_token),
        )
    plain = {key: value for key, value in given.items() if key not in TAKEN}
    more: dict[str, Any] = {}
    if given.get("sliding_window") and given.get("use_sliding_window", True):
        kinds = given.get("layer_types")
        layers = int(given["num_hidden_layers"])
        every = given.get("model_type") == "gpt_oss"
        if kinds is None and not every:
            raise CompileError(
                "not-supported", "'sliding_window' without 'layer_types' does not say which layers have it"
            )
        windowed = sum(kind == "sliding_attention" for kind in kinds) if kinds is not None else (layers + 1) // 2
        more |= {"windowed": windowed, "window": int(given["sliding_window"])}
    if latent := given.get("kv_lora_rank"):
        more |= {
            "latent": int(latent),
            "query_latent": int(given.get("q_lora_rank") or 0),
            "rope": int(given["qk_rope_head_dim"]),
            "head_dim": int(given["qk_nope_head_dim"]),
            "value_dim": int(given["v_head_dim"]),
        }
        plain |= {"head_dim": int(given["qk_nope_head_dim"])}
    if routed := given.get("n_routed_experts"):
        width = int(given["moe_intermediate_size"])
        plain |= {"num_local_experts": int(routed)}
        more |= {"dense": int(given.get("first_k_dense_replace") or 0), "dense_width": int(given["intermediate_size"])}
        more |= {"shared": width * int(given.get("n_shared_experts") or 0)}
    found = sizes_of(DecoderConfig.from_json(plain, name))
    return Sizes(**{key: getattr(found, key) for key in found.__dataclass_fields__} | more)


TAKEN = ("kv_lora_rank", "first_k_dense_replace", "n_shared_experts", "attention_bias", "use_sliding_window")
"""Entries that a `DecoderConfig` refuses, and that are read here (biases take no time)."""

__all__ = ["Sizes", "sizes_of"]
