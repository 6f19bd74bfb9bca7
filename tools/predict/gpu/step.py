"""Time of one step of a decoder on GPUs, kernel by kernel.

    gpu = load_gpu("h200")
    found = step_time(config, gpu, Layout(8), NUMBERS["fp8"], Step(decode=32, context=4096))
    found.seconds, found.bounds          # hbm, compute, collective, launch: they sum up

A step is a sequence of kernels on each GPU, one after the other. A kernel takes

    gap + ramp + max(FLOP / rate, bytes / bandwidth)

(with `eager` as its least time where the step is too wide for a graph). The rate of a product follows from its tiles:
what it does not fill of them, and of the last wave of them over the multiprocessors, is lost, and narrow tiles are
held up by shared memory; products with few tiles split their sum. The bandwidth is that of HBM, or what the
multiprocessors that have work can read. Collectives exchange through switches, once with everything (one-shot) or
twice with a share each (two-shot), whichever is faster.

Experts: with B tokens that choose k of E experts independently and evenly, E · (1 - (1 - k / E)^B) are read. Where
experts are dealt out the busiest GPU sets the pace. With attention by sequences a prompt is on one GPU, and those
without one wait at the experts of each layer.

Not modelled: reductions inside the switches (NVLS), overlap of collectives or of weights with other kernels, caches
that keep weights from step to step, clocks that fall under load, and skewed choices of experts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil, log, sqrt
from typing import Literal, NamedTuple

from headrace.dialects.support.diagnostics import CompileError
from headrace.tools.predict.gpu.facts import Gpu
from headrace.tools.predict.gpu.sizes import Sizes

BYTES = {"f32": 4.0, "bf16": 2.0, "f8": 1.0 + 4 / 128**2, "f4": 0.5 + 1 / 32, "f4nv": 0.5 + 1 / 16}
"""Bytes of an element with its share of the scale of its block (128 × 128, 32, 16)."""


@dataclass(frozen=True)
class Numbers:
    """Types: of the weights of projections, of those of experts, of operands of products, and of the cache."""

    name: str
    weights: str
    experts: str
    operands: str
    cache: str = "bf16"

    def with_cache(self, cache: str) -> Numbers:
        """The same with another type of the cache."""
        return replace(self, cache=cache)


NUMBERS = {
    one.name: one
    for one in (
        Numbers("bf16", "bf16", "bf16", "bf16"),
        Numbers("fp8", "f8", "f8", "f8"),
        Numbers("mxfp4", "bf16", "f4", "bf16"),
        Numbers("mxfp4-a8", "bf16", "f4", "f8", "f8"),
        Numbers("nvfp4-experts", "bf16", "f4nv", "f4", "f8"),
        Numbers("nvfp4", "f4nv", "f4nv", "f4", "f8"),
    )
}
"""Precisions by name. In mxfp4 (gpt-oss) and nvfp4-experts only the experts are stored in four bits; -a8: with operands
in eight bits, which needs tensor cores that have both."""


@dataclass(frozen=True)
class Layout:
    """How a model lies on GPUs: attention cut by heads ("tensor") or by sequences ("data"), experts cut inside
    ("tensor") or dealt out ("expert"). The rest of a dense model is cut inside."""

    gpus: int = 1
    attention: Literal["tensor", "data"] = "tensor"
    experts: Literal["tensor", "expert"] = "tensor"

    def __str__(self) -> str:
        if self.gpus == 1:
            return "1 GPU"
        kind = {
            ("tensor", "tensor"): "tensor parallel",
            ("tensor", "expert"): "tensor parallel, experts dealt out",
            ("data", "expert"): "attention by sequences, experts dealt out",
            ("data", "tensor"): "attention by sequences",
        }[self.attention, self.experts]
        return f"{self.gpus} GPUs, {kind}"


@dataclass(frozen=True)
class Step:
    """What one step computes: `decode` sequences by a token each, with `context` rows of cache on average, and
    `prompt` tokens of `prompts` prompts that have `past` rows before them. With attention by sequences that is what one
    GPU has, and on average `ranks` of them have as much."""

    decode: int = 0
    context: int = 0
    prompt: int = 0
    past: int = 0
    prompts: int = 1
    ranks: float = 1.0

    @property
    def rows(self) -> int:
        """Tokens of all sequences."""
        return self.decode + self.prompt


@dataclass(frozen=True)
class StepTime:
    """Seconds of a step, and what they go to (compute, hbm, collective, launch, host), which sums up to them."""

    seconds: float
    bounds: Mapping[str, float]

    @property
    def bound(self) -> str:
        """What takes most of it."""
        return max(self.bounds, key=lambda name: self.bounds[name])


class Kernel(NamedTuple):
    """One kernel on the busiest GPU: seconds of its FLOP, of its bytes, and of what it exchanges."""

    name: str
    compute: float = 0.0
    hbm: float = 0.0
    exchange: float = 0.0


def distinct_experts(experts: int, chosen: int, tokens: int) -> float:
    """Expected number of experts that so many tokens choose, each `chosen` of them."""
    return experts * (1 - (1 - chosen / experts) ** tokens) if experts else 0.0


def busiest(mean: float, parts: int) -> float:
    """Expected most of `parts` equal shares when what is dealt out falls on them by chance, `mean` on each."""
    return mean + sqrt(2 * mean * (1 - 1 / parts) * log(parts)) if parts > 1 else mean


class Machine:
    """Kernels of one GPU of a group."""

    def __init__(self, gpu: Gpu, gpus: int) -> None:
        self.gpu, self.gpus = gpu, gpus
        self.bandwidth = gpu.memory.bandwidth * gpu.memory.efficiency
        self.each = gpu.sm.read * gpu.sm.clock

    def rate(self, operands: str) -> float:
        """FLOP a second of products, from the best type that the tensor cores have."""
        rates = self.gpu.rates
        found = {"f4": rates.f4 or rates.f8, "f8": rates.f8}.get(operands, 0.0) or rates.bf16
        return found * self.gpu.efficiency.products

    def stream(self, nbytes: float, blocks: float = 1e9) -> float:
        """Seconds to move bytes with so many blocks of threads."""
        return nbytes / min(self.bandwidth, self.each * min(blocks, self.gpu.sm.count))

    def product(
        self, name: str, rows: float, columns: float, depth: float, stored: str, operands: str, groups: float = 1.0
    ) -> Kernel:
        """`groups` products of [rows, depth] with [depth, columns] at once."""
        if rows <= 0 or groups <= 0:
            return Kernel(name)
        sms, wide = self.gpu.sm.count, BYTES[operands]
        nbytes = groups * (columns * depth * BYTES[stored] + rows * (depth * wide + columns * 2))
        peak = self.rate(operands) / sms
        best: Kernel | None = None
        for tall in (16, 32, 64, 128, 256):
            if tall > 16 and tall >= 2 * rows:
                continue
            for broad in (64, 128, 256):
                if tall * broad > 128 * 256:
                    continue
                fed = tall * broad / (tall + broad) / wide * self.gpu.sm.shared * self.gpu.sm.clock * 2
                rate = min(peak, fed)
                tiles = groups * ceil(rows / tall) * ceil(columns / broad)
                for split in (1, 2, 4, 8, 16):
                    if split > 1 and (tiles * split > 2 * sms or depth / split < 256):
                        continue
                    waves = ceil(tiles * split / sms)
                    compute = waves * 2 * tall * broad * depth / split / rate
                    moved = nbytes + (8.0 * groups * rows * columns * split if split > 1 else 0)
                    found = Kernel(name, compute, self.stream(moved, tiles * split))
                    if best is None or max(found[1:3]) < max(best[1:3]):
                        best = found
        assert best is not None
        return best

    def lanes(self, name: str, nbytes: float) -> Kernel:
        """Work by element: its bytes."""
        return Kernel(name, 0.0, self.stream(nbytes))

    def all_reduce(self, name: str, nbytes: float) -> list[Kernel]:
        """The sum of `nbytes` of every GPU, on every GPU."""
        n, link = self.gpus, self.gpu.link
        if n == 1:
            return []
        rate = link.bandwidth * link.efficiency
        once = link.latency + (n - 1) * nbytes / rate
        twice = 2 * link.latency + 2 * (n - 1) / n * nbytes / rate
        return [Kernel(name, 0.0, self.stream(2 * nbytes), min(once, twice))]

    def exchange(self, name: str, nbytes: float) -> list[Kernel]:
        """A gather, scatter or all-to-all: `nbytes` leave (or reach) each GPU."""
        if self.gpus == 1:
            return []
        link = self.gpu.link
        return [Kernel(name, 0.0, 0.0, link.latency + nbytes / link.bandwidth / link.efficiency)]


class _Decoder:
    """Kernels of the steps of a decoder."""

    def __init__(self, config: Sizes, gpu: Gpu, layout: Layout, numbers: Numbers) -> None:
        self.config, self.layout, self.numbers = config, layout, numbers
        self.machine = Machine(gpu, layout.gpus)

    @property
    def by_heads(self) -> int:
        """How many GPUs share the heads of a sequence."""
        return self.layout.gpus if self.layout.attention == "tensor" else 1

    def step(self, step: Step) -> Iterator[tuple[int, Kernel]]:
        """Kernels with how often each runs."""
        c, m = self.config, self.machine
        local = step
        if self.layout.attention == "data":
            n = self.layout.gpus
            local = replace(step, decode=ceil(step.decode / n))  # a prompt is whole on one, and the others wait
        width = local.rows * c.hidden * 2.0
        yield 1, m.lanes("embed", 2 * width)
        rows = step.decode + ceil(step.prompt * step.ranks)
        attention = self.latent_attention if c.latent else self.attention
        for kernel in attention(local):
            yield c.layers, kernel
        for layers, window in ((c.windowed, c.window), (c.layers - c.windowed, 0)):
            for kernel in self.attend(local, window) if layers else ():
                yield layers, kernel
        for kernel in self.after(local):
            yield c.layers, kernel
        if c.experts:
            for kernel in self.experts(rows, local.rows):
                yield c.expert_layers, kernel
        plain, width_of = (c.dense, c.dense_width) if c.experts else (c.layers, c.intermediate)
        for kernel in self.dense(rows, width_of) if plain else ():
            yield plain, kernel
        out = local.decode + (local.prompts if local.prompt else 0)
        yield 1, m.lanes("norm", 2 * width)
        yield 1, m.product("head", out, c.vocab / self.by_heads, c.hidden, "bf16", "bf16")
        if self.by_heads > 1:
            for kernel in m.exchange("gather logits", out * c.vocab * 4.0 / self.by_heads):
                yield 1, kernel
        yield 3, m.lanes("sample", out * c.vocab * 4.0)

    def attention(self, step: Step) -> Iterator[Kernel]:
        c, m, share = self.config, self.machine, self.by_heads
        heads, kv = ceil(c.heads / share), max(1, ceil(c.kv_heads / share))
        rows, size, stored, operands = step.rows, c.head_dim, self.numbers.weights, self.operands
        width = rows * c.hidden * 2.0
        joint = (heads + 2 * kv) * size
        if share == 1:  # with tensor parallelism it is part of the all-reduce before
            yield m.lanes("norm", 4 * width)
        yield m.product("qkv", rows, joint, c.hidden, stored, operands)
        if c.qk_norm == "full" and share > 1:
            yield from m.all_reduce("qk norm", rows * 8.0)
        if c.qk_norm:
            yield m.lanes("qk norm", 2 * rows * joint * 2.0)
        yield m.lanes("rotate, keep", 2 * rows * joint * 2.0)

    def latent_attention(self, step: Step) -> Iterator[Kernel]:
        """Projections of latent attention; in decode the heads' own matrices are applied to queries and results."""
        c, m, share = self.config, self.machine, self.by_heads
        heads, rows = ceil(c.heads / share), step.rows
        stored, operands = self.numbers.weights, self.operands
        width = rows * c.hidden * 2.0
        if share == 1:
            yield m.lanes("norm", 4 * width)
        down = c.latent + c.rope + c.query_latent
        yield m.product("down to latent", rows, down, c.hidden, stored, operands)
        yield m.lanes("norms, rotate, keep", 4 * rows * down * 2.0)
        scored = heads * (c.head_dim + c.rope)
        yield m.product("query", rows, scored, c.query_latent or c.hidden, stored, operands)
        if step.decode:
            yield m.product("query to latent", step.decode, c.latent, c.head_dim, stored, "bf16", heads)
            yield m.product("values", step.decode, c.value_dim, c.latent, stored, "bf16", heads)
        if step.prompt:
            both = heads * (c.head_dim + c.value_dim)
            yield m.product("keys, values", step.past + step.prompt, both, c.latent, stored, operands)

    @property
    def operands(self) -> str:
        """The type of operands of products with weights of attention and dense layers."""
        return self.numbers.operands if self.numbers.weights != "bf16" else "bf16"

    def attend(self, step: Step, window: int) -> Iterator[Kernel]:
        """Scores and their products with values, over the whole context or the last `window` rows."""
        c, m, share = self.config, self.machine, self.by_heads
        heads, kv = ceil(c.heads / share), max(1, ceil(c.kv_heads / share))
        scores, values = (c.head_dim, c.head_dim) if not c.latent else (c.head_dim + c.rope, c.value_dim)
        row = (c.latent + c.rope if c.latent else 2 * kv * c.head_dim) * BYTES[self.numbers.cache]
        rate = m.gpu.rates.bf16 * m.gpu.efficiency.attention
        if step.decode:
            context = min(step.context, window or step.context)
            wide = 2 * c.latent + c.rope if c.latent else 2 * c.head_dim
            flop = 2.0 * step.decode * context * heads * wide
            spread = step.decode * (ceil(heads / 64) if c.latent else kv) * ceil(context / 256)
            moved = step.decode * (context * row + heads * (scores + values) * 2)
            yield Kernel("attend", flop / rate, m.stream(moved, spread))
            if context > 256:
                yield m.lanes("combine", step.decode * heads * values * 4.0 * 4)
        if step.prompt:
            past, half = step.past, step.prompt / step.prompts / 2
            if window:
                past, half = min(past, window), min(half, window)
            flop = 2.0 * heads * (scores + values) * step.prompt * (past + half)
            tiles = ceil(step.prompt / 128) * heads
            filled = tiles / (ceil(tiles / m.gpu.sm.count) * m.gpu.sm.count)
            yield Kernel("attend prompt", flop / (rate * filled), m.stream((past + step.prompt) * row, tiles))

    def after(self, step: Step) -> Iterator[Kernel]:
        """The projection of what attention gives."""
        c, m, share = self.config, self.machine, self.by_heads
        wide = ceil(c.heads / share) * (c.value_dim if c.latent else c.head_dim)
        width = step.rows * c.hidden * 2.0
        if self.operands != "bf16":
            yield m.lanes("to eight bits", 3.0 * step.rows * wide)
        yield m.product("o", step.rows, c.hidden, wide, self.numbers.weights, self.operands)
        if share > 1:
            yield from m.all_reduce("sum, norm", width)
        else:
            yield m.lanes("norm", 4 * width)

    def dense(self, rows: int, wide: int) -> Iterator[Kernel]:
        """A feed-forward that is cut inside."""
        c, m, part = self.config, self.machine, wide / self.layout.gpus
        stored = self.numbers.weights
        yield m.product("up, gate", rows, 2 * part, c.hidden, stored, self.operands)
        yield m.lanes("activate", 3 * rows * part * 2.0)
        yield m.product("down", rows, c.hidden, part, stored, self.operands)
        yield from m.all_reduce("sum, norm", rows * c.hidden * 2.0)

    def experts(self, rows: int, local: int) -> Iterator[Kernel]:
        """A mixture of experts for `rows` tokens, of which `local` are on this GPU."""
        c, m = self.config, self.machine
        n, operands = self.layout.gpus, self.numbers.operands
        stored, k = self.numbers.experts, c.experts_per_token
        yield m.product("route", local, c.experts, c.hidden, "bf16", "bf16")
        yield m.lanes("choose", local * c.experts * 8.0)
        if self.layout.attention == "data":
            yield from m.exchange("dispatch", local * (n - 1) * c.hidden * BYTES[operands])
        dealt = self.layout.experts == "expert"
        read = distinct_experts(c.experts, k, rows)
        each = rows * k / read
        groups, part = read, c.intermediate / n
        if dealt:
            groups, part = min(busiest(read / n, n), c.experts / n, busiest(rows * k / n, n)), float(c.intermediate)
            each = max(1.0, busiest(rows * k / n, n) / groups)
        if c.shared:  # whole on each where sequences are shared out, else cut inside
            data = self.layout.attention == "data"
            own, wide = (local, float(c.shared)) if data else (rows, c.shared / n)
            yield m.product("shared up, gate", own, 2 * wide, c.hidden, self.numbers.weights, self.operands)
            yield m.lanes("activate", 3 * own * wide * 2.0)
            yield m.product("shared down", own, c.hidden, wide, self.numbers.weights, self.operands)
        yield m.lanes("sort", rows * k * 16.0)
        yield m.lanes("permute", 2 * groups * each * c.hidden * 2.0)
        yield m.product("experts up, gate", each, 2 * part, c.hidden, stored, operands, groups)
        yield m.lanes("activate", 3 * groups * each * part * 2.0)
        yield m.product("experts down", each, c.hidden, part, stored, operands, groups)
        yield m.lanes("combine", (k + 1) * local * c.hidden * 2.0)
        if self.layout.attention == "data":
            yield from m.exchange("collect", local * (n - 1) * c.hidden * 2.0)
        else:
            yield from m.all_reduce("sum, norm", rows * c.hidden * 2.0)


def step_kernels(config: Sizes, gpu: Gpu, layout: Layout, numbers: Numbers, step: Step) -> list[tuple[int, Kernel]]:
    """The kernels of a step on the busiest GPU, each with how often it runs."""
    if layout.attention == "data" and layout.gpus > 1 and not config.experts:
        raise CompileError("not-supported", "attention by sequences is for mixtures of experts")
    if layout.gpus > gpu.link.gpus:
        raise CompileError(
            "too-many-gpus", f"{layout.gpus} {gpu.name} are not joined", why=f"NVLink joins {gpu.link.gpus} of a node"
        )
    return list(_Decoder(config, gpu, layout, numbers).step(step))


def step_time(config: Sizes, gpu: Gpu, layout: Layout, numbers: Numbers, step: Step, graphs: bool = True) -> StepTime:
    """Seconds of a step, by what holds its kernels up."""
    parts: dict[str, float] = dict.fromkeys(("compute", "hbm", "collective", "launch", "host"), 0.0)
    graph = graphs and step.rows <= gpu.kernel.graph
    for times, kernel in step_kernels(config, gpu, layout, numbers, step):
        work = max(kernel.compute, kernel.hbm)
        parts["compute" if kernel.compute > kernel.hbm else "hbm"] += times * work
        parts["collective"] += times * kernel.exchange
        busy = gpu.kernel.gap + gpu.kernel.ramp + work + kernel.exchange
        least = 0.0 if graph else gpu.kernel.eager
        parts["launch"] += times * (max(busy, least) - work - kernel.exchange)
    parts["host"] = gpu.host.step + step.decode * gpu.host.sequence
    return StepTime(sum(parts.values()), parts)


def weight_bytes(config: Sizes, numbers: Numbers) -> float:
    """Bytes of all weights, once."""
    c = config
    ends = (1 if c.tied else 2) * c.vocab * c.hidden
    routers = c.expert_layers * c.experts * c.hidden
    routed = c.expert_layers * c.experts * 3 * c.hidden * c.intermediate
    rest = c.parameters - ends - routers - routed
    return (ends + routers) * 2.0 + routed * BYTES[numbers.experts] + rest * BYTES[numbers.weights]


def cache_bytes(config: Sizes, numbers: Numbers) -> float:
    """Bytes of the cache for one token of one sequence. Windows are not counted: they hold a few tokens only."""
    row = config.latent + config.rope if config.latent else 2 * config.kv_heads * config.head_dim
    return float((config.layers - config.windowed) * row) * BYTES[numbers.cache]


def room(config: Sizes, gpu: Gpu, layout: Layout, numbers: Numbers) -> float:
    """Tokens that the caches of all GPUs hold beside the weights; negative if these do not fit."""
    n = layout.gpus
    held = weight_bytes(config, numbers)
    copies = 1.0
    if layout.attention == "data":
        own = config.layers * config.attention_parameters + config.expert_layers * 3 * config.hidden * config.shared
        held += (n - 1) * (own * BYTES[numbers.weights] + 2 * config.vocab * config.hidden * 2)
    else:
        copies = float(n) if config.latent else max(1.0, n / config.kv_heads)
    free = n * gpu.memory.bytes * gpu.memory.usable - held
    return free / (cache_bytes(config, numbers) * copies)


__all__ = [
    "NUMBERS",
    "Layout",
    "Numbers",
    "Step",
    "StepTime",
    "cache_bytes",
    "distinct_experts",
    "room",
    "step_kernels",
]
__all__ += ["step_time", "weight_bytes"]
