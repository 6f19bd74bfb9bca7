"""A system of ours and a group of GPUs on one language model, over batches and lengths of prompts.

    question = Question("llama-3.1-8b", System("sn50", 2), "h200", 2)
    found = compare(question)
    found.ratio("user", batch=8, length=1024)

For a batch B and a length L: a decode step of B sequences with L + output / 2 tokens of context each, the prompt of one
sequence alone, and a server that always has B requests under way. Steps of ours are compiled and timed at a few
batches and lengths, and between them interpolated (in the logarithms; with the length of the context in seconds); each
row says so. Those of the GPUs are all computed, each by the layout that is best for it.
"""

from __future__ import annotations

import hashlib
import json
import os
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import ceil, exp, log
from pathlib import Path
from typing import Any, Literal, cast

from headrace.dialects.support.diagnostics import Collector, CompileError, nearest
from headrace.dialects.support.files import write_text
from headrace.frontends.decoder import PRESETS, DecoderConfig
from headrace.tools.predict.gpu.facts import Gpu, load_gpu
from headrace.tools.predict.gpu.published import layouts
from headrace.tools.predict.gpu.serving import prompt_time, serve
from headrace.tools.predict.gpu.sizes import Sizes, sizes_of
from headrace.tools.predict.gpu.step import NUMBERS, Layout, Step, cache_bytes, room, step_time, weight_bytes
from headrace.tools.predict.system import System

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
LENGTHS = (128, 256, 512, 1024, 2048, 4096, 8192)
COMPILED_BATCHES = (1, 8, 32, 128)
COMPILED_LENGTHS = (128, 2048, 8192)
PRECISIONS = {"bf16": "", "fp8": "f8e4m3"}
"""Precisions that both sides have → how ours stores the weights of products."""
Metric = Literal["user", "system", "first", "served"]
METRICS: dict[Metric, tuple[str, str]] = {
    "user": ("tokens a second that each user sees", "tok/s"),
    "system": ("tokens a second of the system, decode alone", "tok/s"),
    "served": ("output tokens a second of a server, with the prompts", "tok/s"),
    "first": ("time to the first token of one prompt alone", "s"),
}
"""What is compared, in words and its unit. Of `first` less is better, of the others more."""


@dataclass(frozen=True)
class Question:
    """What is compared, and under which conditions. `gpu_numbers` is the precision of the GPUs if it is not ours."""

    model: str
    system: System
    gpu: str
    gpus: int = 8
    precision: str = "bf16"
    gpu_numbers: str = ""
    output: int = 1024
    batches: Sequence[int] = BATCHES
    lengths: Sequence[int] = LENGTHS
    compiled_batches: Sequence[int] = COMPILED_BATCHES
    compiled_lengths: Sequence[int] = COMPILED_LENGTHS
    times: float = 3.0

    def check(self) -> None:
        """Refuse what makes no sense, all at once."""
        found = Collector()
        if self.precision not in PRECISIONS:
            hint = nearest(self.precision, PRECISIONS)
            found.add("bad-option", f"there is no precision '{self.precision}' for both sides", fix=hint)
        if self.gpu_numbers and self.gpu_numbers not in NUMBERS:
            hint = nearest(self.gpu_numbers, NUMBERS)
            found.add("bad-option", f"there is no precision '{self.gpu_numbers}' of GPUs", fix=hint)
        listed = {"batches": self.batches, "lengths": self.lengths}
        listed |= {"compiled batches": self.compiled_batches, "compiled lengths": self.compiled_lengths}
        for label, values in listed.items():
            if not values or min(values) < 1 or list(values) != sorted(set(values)):
                found.add("bad-option", f"{label} {list(values)} do not rise from at least 1")
        if self.output < 1 or self.gpus < 1 or self.times <= 0:
            found.add("bad-option", f"{self.output} tokens out, {self.gpus} GPUs, {self.times:g} times: each above 0")
        found.raise_if_any()

    @property
    def numbers(self) -> str:
        """The precision of the GPUs."""
        return self.gpu_numbers or self.precision


def chosen(values: Sequence[int], usual: Sequence[int]) -> tuple[int, ...]:
    """Which of the batches or lengths are compiled: the first, the last, and the usual ones between them."""
    return tuple(sorted({values[0], values[-1], *(x for x in usual if values[0] < x < values[-1])}))


@dataclass(frozen=True)
class Cost:
    """Seconds, and what they go to; `exact` unless they are interpolated."""

    seconds: float
    bounds: Mapping[str, float]
    exact: bool = True
    how: str = ""

    @property
    def bound(self) -> str:
        """What takes most of it."""
        return max(self.bounds, key=lambda name: self.bounds[name], default="")


@dataclass(frozen=True)
class Point:
    """One side at a batch and a length. `served` is the output rate of a server, by its best layout. Without a time of
    the prompt there are figures of decode only."""

    batch: int
    length: int
    decode: Cost
    first: Cost | None
    served: float | None

    def value(self, metric: Metric) -> float | None:
        """A metric in its unit."""
        if metric == "first":
            return self.first.seconds if self.first else None
        if metric == "served":
            return self.served
        return (1 if metric == "user" else self.batch) / self.decode.seconds

    def cost(self, metric: Metric) -> Cost:
        """What a metric mostly hangs on."""
        return self.first if metric == "first" and self.first else self.decode


Grid = dict[tuple[int, int], Point]


@dataclass(frozen=True)
class Comparison:
    """Both sides by (batch, length); what could not be had is missing and has its reason in `refused`."""

    question: Question
    config: Sizes
    ours: Grid
    theirs: Grid
    refused: tuple[str, ...]
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def ratio(self, metric: Metric, batch: int, length: int) -> float | None:
        """How many times better ours is; None where a side has no figure."""
        at = batch, length
        if at not in self.ours or at not in self.theirs:
            return None
        ours, theirs = self.ours[at].value(metric), self.theirs[at].value(metric)
        if ours is None or theirs is None:
            return None
        return theirs / ours if metric == "first" else ours / theirs

    def region(self, metric: Metric) -> list[tuple[int, int]]:
        """Where ours is at least so many times better as the question says."""
        found: list[tuple[int, int]] = []
        for batch in self.question.batches:
            for length in self.question.lengths:
                if (ratio := self.ratio(metric, batch, length)) is not None and ratio >= self.question.times:
                    found.append((batch, length))
        return found

    def rows(self) -> list[dict[str, Any]]:
        """A row for each side, batch and length, as plain data."""
        found: list[dict[str, Any]] = []
        q = self.question
        sides = (("rdu", q.system.name, self.ours), ("gpu", f"{q.gpus} x {q.gpu}", self.theirs))
        for side, name, grid in sides:
            for (batch, length), point in sorted(grid.items()):
                found.append(
                    {
                        "side": side,
                        "on": name,
                        "model": q.model,
                        "precision": q.precision if side == "rdu" else q.numbers,
                        "batch": batch,
                        "length": length,
                        "output": q.output,
                        **{metric: point.value(metric) for metric in METRICS},
                        "between": point.decode.seconds,
                        "decode_bounds": dict(point.decode.bounds),
                        "first_bounds": dict(point.first.bounds) if point.first else None,
                        "interpolated": not point.decode.exact,
                        "first_interpolated": not point.first.exact if point.first else None,
                        "layout": point.decode.how,
                        "first_layout": point.first.how if point.first else None,
                    }
                )
        return found

    def to_json(self) -> dict[str, Any]:
        """Everything, as plain data."""
        q = self.question
        return {
            "conditions": conditions(q, self.config),
            "rows": self.rows(),
            "times": q.times,
            "region": {metric: self.region(metric) for metric in METRICS},
            "refused": list(self.refused),
            "facts": dict(self.facts),
        }


def conditions(q: Question, config: Sizes) -> dict[str, str]:
    """What the figures hold for, by what a reader asks."""
    device, gpu = q.system.device, load_gpu(q.gpu)
    memory = f"{device.hbm.bytes / 1e9:.0f} GB HBM at {device.hbm.bandwidth / 1e12:g} TB/s" if device.hbm else "no HBM"
    numbers = NUMBERS[q.numbers]
    weights = PRECISIONS[q.precision] or "bf16"
    experts = f", {config.experts_per_token} of {config.experts} experts a token" if config.experts else ""
    return {
        "model": f"{q.model}: {config.layers} layers of width {config.hidden}, {config.parameters / 1e9:,.1f} G "
        f"parameters{experts}",
        "ours": f"{q.system.name}, each with {memory}",
        "GPUs": f"{q.gpus} x {gpu.name}, each with {gpu.memory.bytes / 1e9:.0f} GB HBM at "
        f"{gpu.memory.bandwidth / 1e12:g} TB/s; one node",
        "our precision": f"arithmetic, activations and caches bf16, weights of products {weights}",
        "GPU precision": f"weights {numbers.weights}, experts {numbers.experts}, operands of products "
        f"{numbers.operands}, cache {numbers.cache}",
        "batch": "sequences of the whole system that decode at the same time; prompts are given one by one",
        "length": "tokens of a prompt",
        "output": f"{q.output} tokens; a decode step is that in the middle: length + {q.output // 2} tokens of context",
        "served": "a server that always has as many requests under way as the batch is; a prompt takes its time from "
        "the tokens of the others (on GPUs it shares their steps)",
        "layouts": "ours as given; GPUs by the best of tensor parallel, experts dealt out and attention by sequences, "
        "on all of them or on equal groups",
        "no": "speculative decoding, reuse of prompts, or prompts on other machines, on either side",
        "time": "ours from compiled programs by the analytic model of the chip; GPUs from a model of their kernels "
        "that is held against published figures",
    }


# The model


def named_model(text: str) -> tuple[str, Sizes, Any]:
    """The name of a model, its sizes, and what our compiler is given: a configuration of Hugging Face by name or path,
    or a preset that none of them is."""
    from headrace.frontends.torch.models.configurations import NAMES, configuration

    if text in PRESETS and text not in NAMES:
        return text, sizes_of(PRESETS[text]), PRESETS[text]
    if text.lower() not in NAMES and not Path(text).exists() and not text.endswith(".json"):
        known = sorted({*PRESETS, *NAMES})
        raise CompileError(
            "unknown-model",
            f"there is no model '{text}'",
            why=f"known: {', '.join(known)}",
            fix=f"{nearest(text, known)}; or give the path of a config.json",
        )
    name, given = configuration(text)
    return name, sizes_of(given, name), {**given, "_name_or_path": name}


# Our side


class Kept:
    """Predictions in a file, each under its conditions."""

    def __init__(self, path: str | None) -> None:
        self.path = Path(path) if path else None
        self.entries: dict[str, Any] = {}
        if self.path and self.path.exists():
            try:
                self.entries = cast("dict[str, Any]", json.loads(self.path.read_text("utf-8"))["predictions"])
            except (OSError, ValueError, KeyError, TypeError):
                raise CompileError(
                    "bad-cache", f"{self.path} holds no predictions", fix="delete it, or give another --cache"
                ) from None

    def get(self, given: Mapping[str, Any], make: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
        """What is kept under these conditions, or what is made and kept from now on."""
        key = hashlib.sha256(json.dumps(given, sort_keys=True).encode()).hexdigest()[:16]
        if key not in self.entries:
            self.entries[key] = {"conditions": dict(given), **make()}
            if self.path:
                text = json.dumps({"predictions": self.entries}, indent=1)
                write_text(str(self.path), text + "\n")
        return cast("Mapping[str, Any]", self.entries[key])


def compiled_costs(
    q: Question, source: Any, kept: Kept, show: Callable[[int, int, str], None]
) -> tuple[dict[tuple[int, int], Cost], dict[int, Cost], list[str], dict[str, Any]]:
    """Steps of ours that are compiled: decode by (batch, length), prompts by length, what was refused, and what their
    memory is like."""
    from headrace.tools.predict.predicting import predict
    from headrace.version import VERSION

    device = q.system.device
    digest = hashlib.sha256(json.dumps(device.to_dict(), sort_keys=True).encode()).hexdigest()[:12]
    model = asdict(source) if isinstance(source, DecoderConfig) else dict(source)
    shared = {
        "headrace": VERSION,
        "model": model,
        "device": device.name,
        "numbers of the device": digest,
        "mesh": q.system.axes,
        "precision": q.precision,
    }
    decode: dict[tuple[int, int], Cost] = {}
    prompts: dict[int, Cost] = {}
    refused: list[str] = []
    facts: dict[str, Any] = {}
    planned = len(q.compiled_lengths) * (1 + len(q.compiled_batches))
    begun = 0

    def compiled(mode: Literal["prefill", "decode"], batch: int, length: int) -> Cost | None:
        """One step; None when it is refused."""
        nonlocal begun
        context = length + q.output // 2
        label = f"{mode} of {batch} x {length}"
        show(min(begun, planned - 1), planned, f"compiling {label}")
        begun += 1

        def make() -> dict[str, Any]:
            weights = PRECISIONS[q.precision]
            try:
                found = predict(
                    source,
                    q.system,
                    mode,
                    batch=batch,
                    context=context,
                    tokens=length,
                    precision="bf16",
                    weights=weights,
                )
            except CompileError as error:
                return {"refused": error.what}
            return {
                "seconds": found.seconds,
                "bounds": found.bounds,
                "compile_seconds": found.compile_seconds,
                "launches": found.launches,
                "memory": {name: getattr(found.memory, name) for name in ("sram", "hbm", "ddr", "spilled")},
            }

        sizes = {"context": context} if mode == "decode" else {"tokens": length}
        got = kept.get({**shared, "mode": mode, "batch": batch, **sizes}, make)
        if "refused" in got:
            refused.append(f"{q.system.name}: {label}: {got['refused']}")
            return None
        facts[label] = {"compile_seconds": got["compile_seconds"], "launches": got["launches"], **got["memory"]}
        return Cost(got["seconds"], got["bounds"], how=q.system.axes)

    rising(q.compiled_lengths, q.lengths, lambda n: compiled("prefill", 1, n), prompts.__setitem__)
    for n in q.compiled_lengths:
        rising(
            q.compiled_batches,
            q.batches,
            lambda b, n=n: compiled("decode", b, n),
            lambda b, cost, n=n: decode.__setitem__((b, n), cost),
        )
    return decode, prompts, refused, facts


def rising(
    wanted: Sequence[int],
    every: Sequence[int],
    make: Callable[[int], Cost | None],
    keep: Callable[[int, Cost], None],
) -> list[int]:
    """Makes what is wanted, in rising order. Where one is refused, larger ones are not tried, and the largest of
    `every` that is not refused is looked for below it."""
    done: list[int] = []
    for one in wanted:
        cost = make(one)
        if cost is not None:
            keep(one, cost)
            done.append(one)
            continue
        for less in reversed([x for x in every if x < one and (not done or x > done[-1])]):
            cost = make(less)
            if cost is not None:
                keep(less, cost)
                done.append(less)
                break
        break
    return done


def between(values: Sequence[int], at: int) -> tuple[int, int]:
    """The neighbours of a value among others that rise (both the same if it is one of them or outside)."""
    if at in values:
        return at, at
    place = bisect_right(values, at)
    if place in (0, len(values)):
        edge = values[0] if place == 0 else values[-1]
        return edge, edge
    return values[place - 1], values[place]


def blend(low: Cost, high: Cost, part: float, logarithmic: bool) -> Cost:
    """Between two costs, `part` of the way; the shares of their bounds likewise."""
    if logarithmic:
        seconds = exp((1 - part) * log(low.seconds) + part * log(high.seconds))
    else:
        seconds = (1 - part) * low.seconds + part * high.seconds
    names = sorted({*low.bounds, *high.bounds})
    shares = {
        name: (1 - part) * low.bounds.get(name, 0.0) / low.seconds + part * high.bounds.get(name, 0.0) / high.seconds
        for name in names
    }
    return Cost(seconds, {name: share * seconds for name, share in shares.items()}, False, low.how)


def interpolated(decode: Mapping[tuple[int, int], Cost], batch: int, length: int) -> Cost | None:
    """A decode step between those that are compiled; None outside of them."""
    by_length: dict[int, Cost] = {}
    lengths = sorted({n for _, n in decode})
    low, high = between(lengths, length) if lengths else (0, 0)
    if not lengths or not lengths[0] <= length <= lengths[-1]:
        return None
    for n in {low, high}:
        batches = sorted(b for b, at in decode if at == n)
        if not batches[0] <= batch <= batches[-1]:
            return None
        a, b = between(batches, batch)
        if a == b:
            by_length[n] = decode[a, n]
        else:
            by_length[n] = blend(decode[a, n], decode[b, n], log(batch / a) / log(b / a), True)
    if low == high:
        return by_length[low]
    return blend(by_length[low], by_length[high], (length - low) / (high - low), False)


def prompt_at(prompts: Mapping[int, Cost], length: int) -> Cost | None:
    """A prompt between those that are compiled; None outside of them."""
    lengths = sorted(prompts)
    if not lengths or not lengths[0] <= length <= lengths[-1]:
        return None
    low, high = between(lengths, length)
    if low == high:
        return prompts[low]
    return blend(prompts[low], prompts[high], log(length / low) / log(high / low), True)


def ours(q: Question, decode: Mapping[tuple[int, int], Cost], prompts: Mapping[int, Cost]) -> Grid:
    """Our side at every batch and length that lies between what is compiled."""
    found: Grid = {}
    for batch in q.batches:
        for length in q.lengths:
            step, first = interpolated(decode, batch, length), prompt_at(prompts, length)
            if step is not None:
                served = q.output / (first.seconds + q.output * step.seconds / batch) if first else None
                found[batch, length] = Point(batch, length, step, first, served)
    return found


# The GPUs


def groupings(gpus: int, experts: bool) -> list[tuple[int, Layout]]:
    """Equal groups that share out the sequences, and the layout of each."""
    return [(gpus // n, layout) for n in range(1, gpus + 1) if gpus % n == 0 for layout in layouts(n, experts)]


def theirs(q: Question, config: Sizes) -> tuple[Grid, list[str]]:
    """The GPUs at every batch and length, each figure by the layout that is best for it."""
    gpu, numbers = load_gpu(q.gpu), NUMBERS[q.numbers]
    found: Grid = {}
    refused: list[str] = []
    for batch in q.batches:
        for length in q.lengths:
            context = length + q.output // 2
            steps: list[Cost] = []
            prompts: list[Cost] = []
            served = 0.0
            for groups, layout in groupings(q.gpus, bool(config.experts)):
                each = ceil(batch / groups)
                if room(config, gpu, layout, numbers) < each * (length + q.output):
                    continue
                how = f"{groups} groups of {layout}" if groups > 1 else str(layout)
                step = step_time(config, gpu, layout, numbers, Step(each, context))
                steps.append(Cost(step.seconds, step.bounds, how=how))
                prompt = prompt_time(config, gpu, layout, numbers, length)
                prompts.append(Cost(prompt.seconds, prompt.bounds, how=how))
                if batch % groups == 0:
                    rate = serve(config, gpu, layout, numbers, each, length, q.output).output_rate
                    served = max(served, groups * rate)
            if not steps:
                size, cache = weight_bytes(config, numbers), cache_bytes(config, numbers)
                refused.append(
                    f"{q.gpus} x {gpu.name}: {batch} x {length}: does not fit: {size / 1e9:,.0f} GB of weights and "
                    f"{batch * (length + q.output) * cache / 1e9:,.1f} GB of caches"
                )
                continue
            best, first = (min(costs, key=lambda cost: cost.seconds) for costs in (steps, prompts))
            found[batch, length] = Point(batch, length, best, first, served)
    return found, refused


def check_gpus(gpu: Gpu, gpus: int) -> None:
    """Refuse more GPUs than a node has."""
    if gpus > gpu.link.gpus:
        raise CompileError(
            "too-many-gpus",
            f"{gpus} x {gpu.name} are not in one node",
            why=f"NVLink joins {gpu.link.gpus}; the model does not go beyond a node",
        )


def _silent(step: int, total: int, text: str) -> None:
    """Shows nothing."""


def compare(
    q: Question, cache: str | os.PathLike[str] | None = None, show: Callable[[int, int, str], None] | None = None
) -> Comparison:
    """Both sides. `cache` is a file that keeps what was compiled; `show` is told what is done. `CompileError` for what
    is not known or fits nowhere."""
    q.check()
    gpu = load_gpu(q.gpu)
    check_gpus(gpu, q.gpus)
    _, config, source = named_model(q.model)
    gpus, without = theirs(q, config)
    if not gpus:
        raise CompileError("does-not-fit", without[0], fix="more GPUs, another GPU or a narrower precision")
    kept = Kept(os.fspath(cache) if cache else None)
    decode, prompts, refused, facts = compiled_costs(q, source, kept, show or _silent)
    mine = ours(q, decode, prompts)
    if not mine:
        why = refused[0] if refused else "no batch and length lies between those that are compiled"
        raise CompileError("no-figure", f"{q.system.name} has no figure at any batch and length", why=why)
    return Comparison(q, config, mine, gpus, (*refused, *without), facts)


__all__ = ["BATCHES", "LENGTHS", "METRICS", "Comparison", "Cost", "Metric", "Point", "Question", "compare"]
__all__ += ["conditions", "named_model"]
