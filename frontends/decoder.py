"""Decoder-only transformers from a configuration, without a framework: for tests and studies of any size.

    config = DecoderConfig.from_json(json.load(open("config.json")))       # as Hugging Face models have it
    found = build_decoder(config, mode="decode", context=4096, dtype="bf16")  # an ImportResult; no bytes of weights
    found = build_decoder(TINY, mode="prefill", tokens=16, seed=0)          # random weights from a seed

Layers are pre-norm (RMS), with rotary positions, grouped-query attention and a gated (silu) feed-forward, dense or a
mixture of experts. Weights are named as in Hugging Face checkpoints, stored [in, out]. Two programs:

* `prefill`: `tokens` [batch, tokens] of i32 → `logits` of the last token (or of all), and the keys and values of each
  layer, [tokens, batch, kv heads, head dim];
* `decode`: `tokens` [batch] and `position` [1] of i32, and the caches [context, batch, kv heads, head dim], which are
  states: the step writes its rows at `position` and attends over the rows up to it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, Region, SSAValue

from headrace.dialects.support.diagnostics import Collector, CompileError
from headrace.dialects.support.dtypes import BITS, is_float, lowest
from headrace.dialects.support.locations import named
from headrace.dialects.support.weights import WeightStore
from headrace.dialects.tensor.base import ir_type, tt
from headrace.dialects.tensor.decompositions import Emit
from headrace.dialects.tensor.program import set_signature
from headrace.dialects.tensor.shapes import TT
from headrace.dialects.tensor.storage import weight
from headrace.frontends.base import ImportResult, Port

Mode = Literal["prefill", "decode"]
Dispatch = Literal["dense", "indexed"]
Logits = Literal["last", "all"]


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """Sizes of a decoder. `experts` = 0 is a dense feed-forward; otherwise each token goes to `experts_per_token` of
    them, by `router` scores ("softmax" or "sigmoid") that are renormalised over the chosen ones, each `intermediate`
    wide. `rotary` is how many dims of a head rotate (0: all); `qk_norm` puts a norm over each head of queries and keys
    ("head"), or over all heads together ("full")."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    epsilon: float = 1e-5
    rope_theta: float = 10000.0
    rotary: int = 0
    tied: bool = False
    qk_norm: Literal["", "head", "full"] = ""
    experts: int = 0
    experts_per_token: int = 0
    router: Literal["softmax", "sigmoid"] = "softmax"

    def __post_init__(self) -> None:
        found = Collector()
        for label in ("layers", "hidden", "heads", "kv_heads", "head_dim", "intermediate", "vocab"):
            if (size := getattr(self, label)) < 1:
                found.add("bad-config", f"{self.name}: {label} is {size}, must be at least 1")
        if self.kv_heads > 0 and self.heads % self.kv_heads:
            found.add("bad-config", f"{self.name}: {self.heads} heads do not share {self.kv_heads} kv heads evenly")
        if self.rotary_dim % 2 or not 0 < self.rotary_dim <= self.head_dim:
            found.add(
                "bad-config", f"{self.name}: {self.rotary_dim} of {self.head_dim} dims rotate; an even number can"
            )
        if self.experts and not 0 < self.experts_per_token <= self.experts:
            found.add("bad-config", f"{self.name}: a token goes to {self.experts_per_token} of {self.experts} experts")
        found.raise_if_any()

    @property
    def rotary_dim(self) -> int:
        """Dims of a head that rotate with the position."""
        return self.rotary or self.head_dim

    @property
    def parameters(self) -> int:
        """Numbers in all weights."""
        width, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        norms = {"": 0, "head": 2 * self.head_dim, "full": width + kv}[self.qk_norm]
        feed = 3 * self.hidden * self.intermediate
        feed = self.experts * (feed + self.hidden) if self.experts else feed
        layer = self.hidden * (2 * width + 2 * kv) + norms + feed + 2 * self.hidden
        return self.layers * layer + self.hidden + (1 if self.tied else 2) * self.vocab * self.hidden

    @classmethod
    def from_json(cls, given: Mapping[str, Any], name: str = "") -> DecoderConfig:
        """The configuration of a Hugging Face model (Llama, Mistral, Qwen, Mixtral, MiniMax-M2 and their like), read
        from its `config.json`; `CompileError` for what is missing or not built: other attention, activations, …"""
        found = Collector()

        def get(*names: str, default: Any = None) -> Any:
            for one in names:
                if given.get(one) is not None:
                    return given[one]
            if default is None:
                found.add("bad-config", f"the configuration has no '{names[0]}'")
                return 1
            return default

        model = str(get("model_type", default="llama"))
        if (act := get("hidden_act", default="silu")) not in ("silu", "swish"):
            found.add("not-supported", f"hidden_act '{act}' is not built", fix="silu is")
        for key in (
            "kv_lora_rank",
            "first_k_dense_replace",
            "n_shared_experts",
            "attention_bias",
            "use_sliding_window",
        ):
            if given.get(key):
                found.add("not-supported", f"'{key}' of model type '{model}' is not built")
        rope: Mapping[str, Any] = given.get("rope_parameters") or {}
        hidden, heads = int(get("hidden_size")), int(get("num_attention_heads"))
        head_dim = int(get("head_dim", default=hidden // heads))
        experts = int(get("num_local_experts", "num_experts", default=0))
        width = ("moe_intermediate_size", "intermediate_size") if experts else ("intermediate_size",)
        rotary = get("rotary_dim", default=0) or rope.get("partial_rotary_factor", 0) * head_dim
        config: dict[str, Any] = {
            "layers": int(get("num_hidden_layers")),
            "hidden": hidden,
            "heads": heads,
            "kv_heads": int(get("num_key_value_heads", default=heads)),
            "head_dim": head_dim,
            "intermediate": int(get(*width)),
            "vocab": int(get("vocab_size")),
            "epsilon": float(get("rms_norm_eps", default=1e-6)),
            "rope_theta": float(get("rope_theta", default=rope.get("rope_theta", 10000.0))),
            "rotary": int(rotary),
            "tied": bool(given.get("tie_word_embeddings", False)),
            "qk_norm": "full" if model.startswith("minimax") else "head" if model.startswith("qwen3") else "",
            "experts": experts,
            "experts_per_token": int(get("num_experts_per_tok")) if experts else 0,
            "router": "sigmoid" if get("scoring_func", default="softmax") == "sigmoid" else "softmax",
        }
        found.raise_if_any()
        return cls(name or str(given.get("_name_or_path") or model), **config)


TINY = DecoderConfig("tiny", layers=2, hidden=32, heads=4, kv_heads=2, head_dim=8, intermediate=48, vocab=64)
TINY_MOE = DecoderConfig(
    "tiny-moe", 2, 32, 4, 2, 8, intermediate=24, vocab=64, qk_norm="head", experts=4, experts_per_token=2
)
LLAMA_2_7B = DecoderConfig("llama-2-7b", 32, 4096, 32, 32, 128, 11008, 32000)
LLAMA_3_1_8B = DecoderConfig("llama-3.1-8b", 32, 4096, 32, 8, 128, 14336, 128256, rope_theta=500000.0)
PRESETS = {one.name: one for one in (TINY, TINY_MOE, LLAMA_2_7B, LLAMA_3_1_8B)}


def build_decoder(
    config: DecoderConfig,
    mode: Mode = "prefill",
    *,
    batch: int = 1,
    tokens: int = 16,
    context: int = 16,
    dtype: str = "f32",
    seed: int | None = None,
    logits: Logits = "last",
    dispatch: Dispatch | None = None,
) -> ImportResult:
    """The `tensor` program of one step of a decoder; the weights have no bytes, or come from `seed`.

    `tokens` counts in prefill, `context` (rows of the caches) in decode. `dispatch` says how tokens get to experts:
    "dense" computes every expert for every token and masks (costs experts / experts_per_token as much), "indexed"
    gathers the weights of the chosen ones (costs their traffic per token); by default indexed in decode.
    """
    found = Collector()
    for label, size in (("batch", batch), ("tokens", tokens), ("context", context)):
        if size < 1:
            found.add("bad-option", f"{label} is {size}, must be at least 1")
    if dtype not in BITS or not is_float(dtype):
        found.add("bad-option", f"dtype '{dtype}' is no float type", fix="f32, bf16 or f16")
    found.raise_if_any()
    builder = _Builder(config, mode, batch, tokens if mode == "prefill" else 1, context, dtype, seed)
    builder.dispatch = dispatch or ("indexed" if mode == "decode" else "dense")
    return builder.build(logits)


@dataclass
class _Builder:
    """Builds one program; `rows` are the tokens of all sequences, one after the other."""

    config: DecoderConfig
    mode: Mode
    batch: int
    tokens: int
    context: int
    dtype: str
    seed: int | None
    dispatch: Dispatch = "dense"
    block: Block = field(default_factory=Block)
    store: WeightStore = field(default_factory=WeightStore)
    inputs: list[Port] = field(default_factory=list[Port])
    outputs: dict[str, SSAValue] = field(default_factory=dict[str, SSAValue])
    states: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    made: dict[str, SSAValue] = field(default_factory=dict[str, SSAValue])

    @property
    def rows(self) -> int:
        return self.batch * self.tokens

    # Making values

    def at(self, path: str) -> Emit:
        """Builds ops at a path of the model."""
        return Emit(lambda op: self._add(op, path), named(path))

    def _add(self, op: Operation, path: str) -> None:
        if op.name not in ("tensor.constant", "tensor.weight"):
            op.location = named(f"{path}/{op.name.removeprefix('tensor.')}")
        self.block.add_op(op)

    def weight(self, key: str, *shape: int) -> SSAValue:
        """A weight by key, once."""
        if key not in self.made:
            if self.seed is not None:
                self.store.add_random(key, shape, self.dtype, self.seed)
            else:
                self.store.add(key, shape, self.dtype)
            op = weight(key, TT(shape, self.dtype), named(key))
            self.block.add_op(op)
            self.made[key] = op.results[0]
        return self.made[key]

    def argument(self, name: str, *shape: int, dtype: str = "") -> SSAValue:
        port = Port(name, TT(shape, dtype or self.dtype))
        self.inputs.append(port)
        value = self.block.insert_arg(ir_type(port.type), len(self.block.args))
        value.location = named(name)
        return value

    # The model

    def build(self, logits: Logits) -> ImportResult:
        c = self.config
        ids = self.argument(
            "tokens", *((self.batch, self.tokens) if self.mode == "prefill" else (self.batch,)), dtype="i32"
        )
        position = self.argument("position", 1, dtype="i32") if self.mode == "decode" else None
        caches = [
            tuple(
                self.argument(f"past.{i}.{part}", self.context, self.batch, c.kv_heads, c.head_dim)
                for part in ("key", "value")
            )
            for i in range(c.layers if self.mode == "decode" else 0)
        ]
        e = self.at("model.embed_tokens")
        table = self.weight("model.embed_tokens.weight", c.vocab, c.hidden)
        x = e.gather(table, e.reshape_to(ids, (self.rows,)), axis=0)
        cos, sin = self._rotation(position)
        mask = self._mask(position)
        for i in range(c.layers):
            cache = caches[i] if caches else None
            x = self._layer(i, x, cos, sin, mask, position, cache)
        if self.mode == "prefill" and logits == "last" and self.tokens > 1:
            e = self.at("model.last")
            wide = e.reshape(x, shape=(self.batch, self.tokens, c.hidden))
            last = e.slice(
                wide, starts=(0, self.tokens - 1, 0), stops=(self.batch, self.tokens, c.hidden), steps=(1, 1, 1)
            )
            x = e.reshape(last, shape=(self.batch, c.hidden))
        x = self._norm("model.norm", x)
        e = self.at("lm_head")
        if c.tied:
            head = e.transpose(table, perm=(1, 0))
        else:
            head = self.weight("lm_head.weight", c.hidden, c.vocab)
        self.outputs = {"logits": e.matmul(x, head), **self.outputs}
        return self._finish()

    def _finish(self) -> ImportResult:
        end = ReturnOp(*self.outputs.values())
        end.location = named("outputs")
        self.block.add_op(end)
        types = [x.type for x in self.block.args], [x.type for x in self.outputs.values()]
        func = FuncOp("main", types, Region(self.block))
        func.location = named(self.config.name)
        set_signature(func, [p.name for p in self.inputs], list(self.outputs), self.states)
        module = ModuleOp([func])
        module.location = named(self.config.name)
        outputs = tuple(Port(name, tt(value)) for name, value in self.outputs.items())
        name = f"{self.config.name}-{self.mode}"
        return ImportResult(module, self.store, tuple(self.inputs), outputs, tuple(self.states), (), name)

    def _rotation(self, position: SSAValue | None) -> tuple[SSAValue, SSAValue]:
        """Cosines and sines of the rows' positions, [rows, 1, rotary / 2] each. Positions that are known when the
        model is compiled make them constants."""
        half = self.config.rotary_dim // 2
        e = self.at("model.rotary_emb")
        place = position if position is not None else e.iota(shape=(self.tokens,), dtype="i32", axis=0)
        steps = e.cast(e.iota(shape=(1, 1, half), dtype="i32", axis=2), to="f32")
        speeds = e.exp(e.mul(steps, -math.log(self.config.rope_theta) / half))
        rows = tt(place).shape[0]
        angles = e.mul(e.reshape(e.cast(place, to="f32"), shape=(rows, 1, 1)), speeds)

        def rotation(angles: SSAValue) -> SSAValue:
            turned = e.cast_to(angles, self.dtype)
            if self.batch == 1 or rows == 1:
                return turned
            wide = e.broadcast(e.reshape(turned, shape=(1, rows, half)), shape=(self.batch, rows, half))
            return e.reshape(wide, shape=(self.rows, 1, half))

        return rotation(e.cos(angles)), rotation(e.sin(angles))

    def _mask(self, position: SSAValue | None) -> SSAValue:
        """True where a query may see a key: [tokens, tokens] in prefill, [1, context] in decode."""
        e = self.at("model.mask")
        if position is not None:
            keys = e.iota(shape=(1, self.context), dtype="i32", axis=1)
            return e.less_equal(keys, position)
        shape = (self.tokens, self.tokens)
        return e.less_equal(e.iota(shape=shape, dtype="i32", axis=1), e.iota(shape=shape, dtype="i32", axis=0))

    def _layer(
        self,
        index: int,
        x: SSAValue,
        cos: SSAValue,
        sin: SSAValue,
        mask: SSAValue,
        position: SSAValue | None,
        cache: tuple[SSAValue, ...] | None,
    ) -> SSAValue:
        path = f"model.layers.{index}"
        normed = self._norm(f"{path}.input_layernorm", x)
        attended = self._attention(index, normed, cos, sin, mask, position, cache)
        x = self.at(path).add(x, attended)
        normed = self._norm(f"{path}.post_attention_layernorm", x)
        return self.at(path).add(x, (self._experts if self.config.experts else self._mlp)(f"{path}.mlp", normed))

    def _norm(self, path: str, x: SSAValue, size: int = 0) -> SSAValue:
        scale = self.weight(f"{path}.weight", size or self.config.hidden)
        return self.at(path).rms_norm(x, scale, axis=-1, epsilon=self.config.epsilon)

    def _attention(
        self,
        index: int,
        x: SSAValue,
        cos: SSAValue,
        sin: SSAValue,
        mask: SSAValue,
        position: SSAValue | None,
        cache: tuple[SSAValue, ...] | None,
    ) -> SSAValue:
        c, path = self.config, f"model.layers.{index}.self_attn"
        e = self.at(path)
        size, group, b, t = c.head_dim, c.heads // c.kv_heads, self.batch, self.tokens

        def project(name: str, heads: int, norm: bool) -> SSAValue:
            part = f"{path}.{name}_proj"
            y = self.at(part).matmul(x, self.weight(f"{part}.weight", c.hidden, heads * size))
            if norm and c.qk_norm == "full":
                y = self._norm(f"{path}.{name}_norm", y, heads * size)
            y = e.reshape(y, shape=(self.rows, heads, size))
            if norm and c.qk_norm == "head":
                y = self._norm(f"{path}.{name}_norm", y, size)
            return self._rotate(e, y, cos, sin) if norm else y

        query = project("q", c.heads, True)
        key, value = project("k", c.kv_heads, True), project("v", c.kv_heads, False)
        if cache is not None:
            assert position is not None
            rows = [e.reshape(one, shape=(1, b, c.kv_heads, size)) for one in (key, value)]
            at = e.reshape(position, shape=(1, 1))
            key, value = (e.scatter_nd(past, at, new) for past, new in zip(cache, rows, strict=True))
            self._keep(index, key, value, state=True)
        else:
            shape = (b, t, c.kv_heads, size)
            key, value = (e.transpose(e.reshape(one, shape=shape), perm=(1, 0, 2, 3)) for one in (key, value))
            self._keep(index, key, value, state=False)
        # queries by kv head, [batch, kv heads, group · tokens, size]; keys and values are [rows, batch, kv heads, size]
        query = e.transpose(e.reshape(query, shape=(b, t, c.kv_heads, group, size)), perm=(0, 2, 3, 1, 4))
        query = e.reshape(query, shape=(b, c.kv_heads, group * t, size))
        scores = e.matmul(query, e.transpose(key, perm=(1, 2, 3, 0)))
        room = tt(scores).shape[-1]
        scores = e.reshape(e.mul(scores, size**-0.5), shape=(b, c.kv_heads, group, t, room))
        scores = e.select(mask, scores, lowest(self.dtype))
        shares = e.reshape(e.softmax(scores, axis=-1), shape=(b, c.kv_heads, group * t, room))
        context = e.matmul(shares, e.transpose(value, perm=(1, 2, 0, 3)))
        context = e.reshape(context, shape=(b, c.kv_heads, group, t, size))
        joined = e.reshape(e.transpose(context, perm=(0, 3, 1, 2, 4)), shape=(self.rows, c.heads * size))
        part = f"{path}.o_proj"
        return self.at(part).matmul(joined, self.weight(f"{part}.weight", c.heads * size, c.hidden))

    def _keep(self, index: int, key: SSAValue, value: SSAValue, state: bool) -> None:
        for part, rows in (("key", key), ("value", value)):
            self.outputs[f"present.{index}.{part}"] = rows
            if state:
                self.states.append((f"past.{index}.{part}", f"present.{index}.{part}"))

    def _rotate(self, e: Emit, x: SSAValue, cos: SSAValue, sin: SSAValue) -> SSAValue:
        """Rotary positions: the first `rotary_dim` dims of each head, by halves."""
        rows, heads, size = tt(x).shape
        half = self.config.rotary_dim // 2

        def part(low: int, high: int) -> SSAValue:
            return e.slice(x, starts=(0, 0, low), stops=(rows, heads, high), steps=(1, 1, 1))

        first, second = part(0, half), part(half, 2 * half)
        turned = [
            e.sub(e.mul(first, cos), e.mul(second, sin)),
            e.add(e.mul(second, cos), e.mul(first, sin)),
        ]
        if 2 * half < size:
            turned.append(part(2 * half, size))
        return e.concat(*turned, axis=2)

    def _mlp(self, path: str, x: SSAValue) -> SSAValue:
        c = self.config

        def linear(name: str, value: SSAValue, rows: int, columns: int) -> SSAValue:
            part = f"{path}.{name}_proj"
            return self.at(part).matmul(value, self.weight(f"{part}.weight", rows, columns))

        gate = self.at(f"{path}.act_fn").silu(linear("gate", x, c.hidden, c.intermediate))
        hidden = self.at(path).mul(gate, linear("up", x, c.hidden, c.intermediate))
        return linear("down", hidden, c.intermediate, c.hidden)

    def _experts(self, path: str, x: SSAValue) -> SSAValue:
        """A mixture of experts, dispatched densely or by index."""
        c, rows, e = self.config, self.rows, self.at(path)
        wide = e.wide(e.matmul(x, self.weight(f"{path}.gate.weight", c.hidden, c.experts)))
        scores = e.softmax(wide, axis=-1) if c.router == "softmax" else e.sigmoid(wide)
        chosen, hot = self._top(self.at(f"{path}.top_k"), scores)
        up, gate = (
            self.weight(f"{path}.experts.{n}_proj", c.experts, c.hidden, c.intermediate) for n in ("up", "gate")
        )
        down = self.weight(f"{path}.experts.down_proj", c.experts, c.intermediate, c.hidden)
        if self.dispatch == "dense":
            kept = e.select(hot, scores, 0.0)
            share = e.cast_to(e.div(kept, e.reduce_sum(kept, axes=(1,), keepdims=True)), self.dtype)
            tokens = e.reshape(x, shape=(1, rows, c.hidden))
            hidden = e.mul(e.silu(e.matmul(tokens, gate)), e.matmul(tokens, up))
            weighted = e.mul(
                e.matmul(hidden, down), e.reshape(e.transpose(share, perm=(1, 0)), shape=(c.experts, rows, 1))
            )
            return e.reduce_sum(weighted, axes=(0,), keepdims=False)
        k = c.experts_per_token
        kept = e.gather_elements(scores, chosen, axis=1)
        share = e.cast_to(e.div(kept, e.reduce_sum(kept, axes=(1,), keepdims=True)), self.dtype)
        index = e.reshape(chosen, shape=(rows * k,))
        tokens = e.broadcast(e.reshape(x, shape=(rows, 1, 1, c.hidden)), shape=(rows, k, 1, c.hidden))
        tokens = e.reshape(tokens, shape=(rows * k, 1, c.hidden))
        hidden = e.mul(
            e.silu(e.matmul(tokens, e.gather(gate, index, axis=0))), e.matmul(tokens, e.gather(up, index, axis=0))
        )
        each = e.reshape(e.matmul(hidden, e.gather(down, index, axis=0)), shape=(rows, k, c.hidden))
        return e.reduce_sum(e.mul(each, e.reshape(share, shape=(rows, k, 1))), axes=(1,), keepdims=False)

    def _top(self, e: Emit, scores: SSAValue) -> tuple[SSAValue, SSAValue]:
        """The indices [rows, k] of the highest scores, highest first, and where they are, [rows, experts]."""
        c = self.config
        numbers = e.iota(shape=(1, c.experts), dtype="i64", axis=1)
        indices: list[SSAValue] = []
        hot: SSAValue | None = None
        for _ in range(c.experts_per_token):
            best = e.argmax(scores, axis=1, keepdims=True)
            indices.append(best)
            here = e.equal(numbers, best)
            hot = here if hot is None else e.or_(hot, here)
            scores = e.select(here, lowest(tt(scores).dtype), scores)
        assert hot is not None
        return (e.concat(*indices, axis=1) if len(indices) > 1 else indices[0]), hot


def preset(name: str) -> DecoderConfig:
    """A configuration by name; `CompileError` lists those there are."""
    if name not in PRESETS:
        raise CompileError("unknown-model", f"there is no decoder '{name}'", fix=f"known: {', '.join(PRESETS)}")
    return PRESETS[name]


__all__ = ["PRESETS", "TINY", "TINY_MOE", "DecoderConfig", "build_decoder", "preset"]
