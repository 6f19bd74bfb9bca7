"""A step of a language model on a system: compiled, timed, and what its time and memory go to."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from math import ceil, prod
from pathlib import Path
from typing import Any, Literal

from xdsl.dialects.builtin import ModuleOp

from headrace.dialects.support import dtypes
from headrace.dialects.support.diagnostics import Collector, nearest
from headrace.frontends.decoder import PRESETS, DecoderConfig, build_decoder
from headrace.runtime.program import Config, Pmu, Program
from headrace.runtime.timing import Timing, time_program
from headrace.tools.predict.system import System

Mode = Literal["prefill", "decode"]
Model = DecoderConfig | str | os.PathLike[str] | Mapping[str, Any]
PRECISIONS = {"bf16": "bf16", "fp32": "f32"}
STORED = ("", "f8e4m3")


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes on one socket. `hbm` and `ddr` are what lies there at the same time (`capacity` what fits), by kind in
    `kinds`: weights, states, inputs, outputs and temporaries. `sram` is what the largest section holds on chip, with
    the copies of its buffers. `spilled` are tensors in DDR although the device has HBM, largest first."""

    sram: int
    hbm: int
    ddr: int
    capacity: dict[str, int]
    kinds: dict[str, int]
    spilled: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Prediction:
    """A step of a model on a system, with the conditions that it holds for.

    `seconds` are those of the step; `bounds` the seconds by what they are waited for, which sum to it: compute, sram,
    network, agcu, hbm, ddr, peer (other sockets) and launch. A loop that the chip repeats by itself is one of
    `launches`; `runs` counts its rounds, and `host_launches` what the host launches. `sections` are the distinct
    configurations. FLOP and bytes are those of one socket. `batch` counts all sequences of the system.
    """

    model: str
    system: System
    mode: Mode
    batch: int
    context: int
    tokens: int
    precision: str
    weights: str
    seconds: float
    bounds: dict[str, float]
    launches: int
    host_launches: int
    runs: int
    sections: int
    flops: int
    hbm_bytes: int
    ddr_bytes: int
    peer_bytes: int
    utilisation: dict[str, float]
    memory: MemoryPlan
    compile_seconds: float
    timing: Timing = field(repr=False, compare=False)
    program: Program = field(repr=False, compare=False)

    @property
    def tokens_per_second(self) -> float:
        """Of the system: tokens of all sequences. In prefill those of the prompts."""
        return self.batch * (self.tokens if self.mode == "prefill" else 1) / self.seconds

    @property
    def tokens_per_second_per_user(self) -> float:
        """Of one sequence."""
        return self.tokens_per_second / self.batch

    @property
    def bound(self) -> str:
        """What most of the time is waited for."""
        return max(self.bounds, key=lambda name: self.bounds[name], default="")

    @property
    def conditions(self) -> str:
        """What the numbers hold for, in one line."""
        stored = f" with weights in {self.weights}" if self.weights else ""
        length = f"{self.tokens} tokens" if self.mode == "prefill" else f"{self.context} tokens of context"
        return f"{self.model} {self.mode}, {self.system.name}, batch {self.batch}, {length}, {self.precision}{stored}"

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        plain = ("model", "mode", "batch", "context", "tokens", "precision", "weights", "seconds", "bounds", "launches")
        counts = ("host_launches", "runs", "sections", "flops", "hbm_bytes", "ddr_bytes", "peer_bytes", "utilisation")
        return {
            "system": {
                "device": self.system.device.name,
                "sockets": self.system.sockets,
                "mesh": dict(self.system.mesh),
                "changed": self.system.changed,
            },
            **{name: getattr(self, name) for name in (*plain, *counts)},
            "tokens_per_second": self.tokens_per_second,
            "tokens_per_second_per_user": self.tokens_per_second_per_user,
            "memory": asdict(self.memory),
            "compile_seconds": self.compile_seconds,
        }

    def __str__(self) -> str:
        parts = sorted(((x, s) for x, s in self.bounds.items()), key=lambda x: -x[1])
        told = ", ".join(f"{name} {seconds * 1e6:,.0f}" for name, seconds in parts)
        rate = f"{self.tokens_per_second_per_user:,.1f} tokens/s per user, {self.tokens_per_second:,.1f} of the system"
        return f"{self.conditions}: {self.seconds * 1e6:,.0f} us, {rate}; us by bound: {told}"


def predict(
    config: Model,
    system: System,
    mode: Mode = "decode",
    *,
    batch: int = 1,
    context: int = 8192,
    tokens: int = 1024,
    precision: str = "bf16",
    weights: str = "",
    compiler_mode: str = "O3",
    launch: Literal["chip", "host"] | None = None,
    model: str = "analytic",
) -> Prediction:
    """One step of a language model: in "prefill" a prompt of `tokens` tokens for each of `batch` sequences, in "decode"
    a token more for each, with caches of `context` rows.

    `config` is a `DecoderConfig`, the name of a known model, or a configuration of Hugging Face (a mapping or a path of
    config.json). `precision` is that of arithmetic, caches and activations ("bf16", "fp32"), `weights` what weights of
    products are stored in when that is narrower ("f8e4m3"). `compiler_mode` is how much shares a section ("O0": every
    op is one), `launch` who launches sections instead of what the mode says. `model` is that of time: "analytic", or
    "event".

    The same step of the same system is compiled once in a process. `CompileError` as `headrace.compile`, with what the
    compiler does not take.
    """
    errors = Collector()
    for label, size in (("batch", batch), ("context", context), ("tokens", tokens)):
        if size < 1:
            errors.add("bad-option", f"{label} is {size}, must be at least 1")
    if mode not in ("prefill", "decode"):
        errors.add("bad-option", f"there is no mode '{mode}'", fix=nearest(mode, ("prefill", "decode")))
    if precision not in PRECISIONS:
        errors.add("bad-option", f"there is no precision '{precision}'", fix=nearest(precision, tuple(PRECISIONS)))
    if weights not in STORED or (weights and precision != "bf16"):
        errors.add("bad-option", f"weights '{weights}' with precision '{precision}'", fix="'' or f8e4m3 with bf16")
    errors.raise_if_any()
    how = _How(batch, context if mode == "decode" else 0, tokens if mode == "prefill" else 1, precision, weights)
    title, key = named(config)
    made = _compiled(key, config, system, mode, how, compiler_mode, launch or "")
    return predict_program(
        made.program, system, title, mode, how.batch, how.context, how.tokens, precision, weights, made.seconds, model
    )


def predict_program(
    program: Program,
    system: System,
    name: str = "",
    mode: Mode = "prefill",
    batch: int = 1,
    context: int = 0,
    tokens: int = 1,
    precision: str = "bf16",
    weights: str = "",
    compile_seconds: float = 0.0,
    model: str = "analytic",
) -> Prediction:
    """What a routed program that was compiled for a system takes; the names and sizes are only noted."""
    if system.compiled_for != system.device:
        program = replace(program, device=system.device.to_dict())
    timing = time_program(program, model)
    return Prediction(
        name or str(program.meta.get("model", "")),
        system,
        mode,
        batch,
        context,
        tokens,
        precision,
        weights,
        timing.seconds,
        {bound: cycles / timing.clock for bound, cycles in timing.bounds.items()},
        timing.calls,
        timing.host_launches,
        len(timing.launches),
        len(program.configs),
        timing.flops,
        timing.hbm_bytes,
        timing.ddr_bytes,
        timing.peer_bytes,
        timing.utilisation,
        memory_plan(program, timing),
        compile_seconds,
        timing,
        program,
    )


def memory_plan(program: Program, timing: Timing) -> MemoryPlan:
    """What lies where."""
    ends: dict[str, int] = {"hbm": 0, "ddr": 0}
    kinds: dict[str, int] = {}
    main = "hbm" if "hbm" in timing.memory.capacity else "ddr"
    for region, use in zip(program.regions, timing.memory.regions, strict=True):
        memory = region.memory or main
        ends[memory] = max(ends[memory], region.address + use.bytes)
        kinds[region.kind] = kinds.get(region.kind, 0) + use.bytes
    sizes = {use.name: use.bytes for use in timing.memory.regions}
    spilled = tuple((name, sizes[name]) for name in timing.memory.spilled)
    sram = max(map(on_chip, program.configs), default=0)
    return MemoryPlan(sram, ends["hbm"], ends["ddr"], timing.memory.capacity, kinds, spilled)


def on_chip(config: Config) -> int:
    """Bytes that a section holds in memory units at a time: of each buffer a frame, or as many as it has copies of."""
    found = 0
    for index, unit in enumerate(config.units):
        if isinstance(unit, Pmu):
            times = next((f.stream.time for f in config.flows if index in (f.src, f.dst)), ())
            frames = max(1, prod(loop.count for loop in times[: unit.frames]))
            found += ceil(prod(unit.shape) / frames) * min(unit.copies, frames) * dtypes.byte_size(unit.dtype)
    return found


# Compiling, once for each step and system.


@dataclass(frozen=True)
class _How:
    """Sizes and types of a step."""

    batch: int
    context: int
    tokens: int
    precision: str
    weights: str


@dataclass(frozen=True)
class _Made:
    """A routed program, and the CPU seconds of making it."""

    program: Program
    seconds: float


_known: dict[tuple[Any, ...], _Made] = {}
MOST = 256
"""Programs that are kept in a process."""


def forget() -> None:
    """Drop the programs that were compiled."""
    _known.clear()


def named(config: Model) -> tuple[str, Any]:
    """The name of a model and what tells it apart."""
    if isinstance(config, DecoderConfig):
        return config.name, config
    if isinstance(config, Mapping):
        return str(config.get("_name_or_path") or config.get("model_type") or "model"), repr(sorted(config.items()))
    path = Path(config)
    return (path.parent.name if path.stem == "config" else path.stem) if path.suffix == ".json" else str(config), str(
        config
    )


def _compiled(key: Any, config: Model, system: System, mode: Mode, how: _How, level: str, launch: str) -> _Made:
    at = (key, system.compiled_for, system.mesh, mode, how, level, launch)
    if at not in _known:
        begin = time.process_time()
        program = _lowered(module_of(config, mode, how), system, how, level, launch)
        if len(_known) >= MOST:
            _known.pop(next(iter(_known)))
        _known[at] = _Made(program, time.process_time() - begin)
    return _known[at]


def module_of(config: Model, mode: Mode, how: Any) -> ModuleOp:
    """The program of a step, of one socket. Weights that are stored narrower are narrowed by the compiler, which wants
    them wide."""
    dtype = "f32" if how.weights else PRECISIONS[how.precision]
    sizes: dict[str, Any] = {"batch": how.batch, "tokens": how.tokens, "context": how.context or 1, "dtype": dtype}
    if isinstance(config, str) and config in PRESETS:
        config = PRESETS[config]
    if isinstance(config, DecoderConfig):
        return build_decoder(config, mode, **sizes).module
    from headrace.tools.predict.models import step_of

    return step_of(config, mode, **sizes)


def _lowered(module: ModuleOp, system: System, how: _How, level: str, launch: str) -> Program:
    """The routed program of a step on each socket of a system."""
    from headrace.backend.encode import encode
    from headrace.compiler import lower

    text = passes(system, level, launch, how.weights)
    lower(module, system.compiled_for, text)
    return encode(module, {"pipeline": text})


def passes(system: System, level: str = "O3", launch: str = "", weights: str = "") -> str:
    """The passes of a mode for a system."""
    from headrace.passes import pipelines

    first = [*pipelines.tensor("bf16", "all", weights)] if weights else [*pipelines.tensor()]
    if system.mesh:
        first.append(f'partition{{mesh="{system.axes}"}}')
    last = list(pipelines.rdu(level))
    if launch:
        last = [f"{x.partition('{')[0]}{{launch={launch}}}" if x.startswith("convert-dataflow") else x for x in last]
    return ",".join((*first, *pipelines.dataflow(level), *last))


__all__ = ["MemoryPlan", "Prediction", "forget", "memory_plan", "predict", "predict_program"]
