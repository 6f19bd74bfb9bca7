"""Our prediction of each row, by the compiler and the models of time. Each function takes the sizes of its row as
arguments with defaults, so that it can be tested on others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.dialects.machine.cost import peak_flops
from headrace.dialects.machine.device import Device
from headrace.frontends.decoder import DecoderConfig
from headrace.frontends.torch.models.configurations import configuration
from headrace.runtime.pipeline import Access, Buffer, Pipeline, Process
from headrace.runtime.timing import Timing
from headrace.tools.predict import Prediction, System, predict
from headrace.tools.predict.predicting import Model
from headrace.tools.validate import programs


@dataclass(frozen=True)
class Answer:
    """A predicted value, what there is to say about it, and the steps that it came from."""

    value: float
    note: str = ""
    steps: tuple[Prediction, ...] = ()


@dataclass(frozen=True)
class Study:
    """What predictions are made with: entries of devices that differ from the files, by device (fits try others), and
    whether programs are only timed with them and not compiled anew."""

    changed: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    retimed: bool = False

    def system(self, device: str, sockets: int = 1, mesh: Mapping[str, int] | None = None) -> System:
        """A system of a shipped device."""
        return System(device, sockets if mesh is None else 0, mesh, self.changed.get(device), self.retimed)

    def device(self, name: str) -> Device:
        """A shipped device."""
        return self.system(name).device


Function = Callable[[Study], Answer]
FILES = Study()
"""The devices as their files have them."""


# Identities.


def peak(study: Study, device: str) -> Answer:
    """TFLOP/s of all compute units in the type that they are made for."""
    found = study.device(device)
    return Answer(peak_flops(found, "f32" if device == "plasticine" else "bf16") / 1e12)


def intensity(study: Study, way: str) -> Answer:
    """FLOP for each byte that the compiled transform moves off chip, in a way of fusing it."""
    timing = programs.fourier(study.device("sn40l"), way)
    note = f"{len(timing.launches)} sections; the sizes were chosen by these three figures (docs/mapping.md)"
    return Answer(timing.flops / (timing.hbm_bytes + timing.ddr_bytes), note)


def stages(seconds: float = 85e-6, depth: int = 21, samples: int = 256) -> tuple[float, float]:
    """Seconds from sample to sample, and of the first one, of `depth` stages behind each other, by the model of time
    that follows every tile."""
    chain = [Process(samples, seconds) for _ in range(depth)]
    for i in range(depth - 1):
        chain[i].writes.append(Access(i, 0.0, 0.0, 0.0))
        chain[i + 1].reads.append(Access(i, 0.0, 0.0, 0.0))
    solved = Pipeline(chain, [Buffer(samples, 2) for _ in range(depth - 1)]).solve()
    last = solved.start[-1]
    return float(last[-1] - last[0]) / (samples - 1), float(last[0]) + seconds


def switch(config: Model, sockets: int, rate: float) -> tuple[float, int]:
    """Seconds to bring the weights of a model, as compiled for one socket, from DDR to HBM at a rate of the system, and
    their bytes."""
    step = predict(config, System("sn40l", changed={"hbm.bytes": 1 << 40}), "decode", context=16)
    moved = step.memory.kinds["weight"]
    return moved / (rate * sockets), moved


def switch_ratio(study: Study, host: float) -> Answer:
    """How much longer a GPU takes to get a model from its host."""
    seconds, moved = switch("llama-2-7b", 8, 1e12 / 8)
    own = 8 * _ddr(study.device("sn40l"))
    note = f"{moved / 1e9:.2f} GB; at the {own / 1e9:,.0f} GB/s of the device file it would be {own / host:.1f}"
    return Answer(moved / host / seconds, note)


def switch_time(study: Study) -> Answer:
    """Milliseconds of a switch over 16 sockets."""
    seconds, moved = switch("llama-3.1-8b", 16, 1.6e12 / 16)
    own = 16 * _ddr(study.device("sn40l"))
    note = (
        f"{moved / 1e9:.2f} GB; at the {own / 1e9:,.0f} GB/s of the device file it would be {moved / own * 1e3:.1f} ms"
    )
    return Answer(seconds * 1e3, note)


def _ddr(device: Device) -> float:
    return device.ddr.bandwidth * device.ddr.efficiency


# Fusion and launches.


def fusion_gain(study: Study, mode: Any, config: Model = "llama-2-7b", sockets: int = 8, length: int = 4096) -> Answer:
    """Every op a section, over sections cut where the time is least; the host launches both."""
    system, sizes = study.system("sn40l", sockets), _length(length)
    apart = predict(config, system, mode, **sizes, compiler_mode="O0", launch="host")
    fused = predict(config, system, mode, **sizes, launch="host")
    return Answer(apart.seconds / fused.seconds, f"{_us(apart)} over {_us(fused)}", (apart, fused))


def launch_gain(study: Study, mode: Any, config: Model = "llama-2-7b", sockets: int = 8, length: int = 4096) -> Answer:
    """Sections launched by the host, over launched by the chip."""
    system, sizes = study.system("sn40l", sockets), _length(length)
    host = predict(config, system, mode, **sizes, launch="host")
    chip = predict(config, system, mode, **sizes)
    note = f"{host.launches} launches by the host, {chip.host_launches} with {chip.runs - 1} by the chip"
    return Answer(host.seconds / chip.seconds, f"{_us(host)} over {_us(chip)}: {note}", (host, chip))


def launches_saved(study: Study, config: Model = "llama-2-7b", sockets: int = 8, length: int = 4096) -> Answer:
    """Launches when every op is a section, over launches when they are fused; a loop counts each round, as the
    published figure is of a launch per kernel."""
    system = study.system("sn40l", sockets)
    apart = predict(config, system, "prefill", tokens=length, compiler_mode="O0", launch="host")
    fused = predict(config, system, "prefill", tokens=length, launch="host")
    return Answer(apart.launches / fused.launches, f"{apart.launches} over {fused.launches}", (apart, fused))


def launches(study: Study, config: Model = "llama-3.1-8b", sockets: int = 16, context: int = 8192) -> Answer:
    """Launches of a decoded token, a loop of the chip being one."""
    step = predict(config, study.system("sn40l", sockets), context=context)
    return Answer(step.launches, f"{step.runs} runs of sections", (step,))


def looping_gain(study: Study, config: Model = "llama-3.1-8b", sockets: int = 16, context: int = 4096) -> Answer:
    """Every section loaded and launched by the chip anew, over loops, in which what is loaded stays."""
    system = study.system("sn40l", sockets)
    step = predict(config, system, context=context)
    hardware = system.device.launch.hardware
    full = sum(hardware if x.mode == "hw" else x.seconds for x in step.timing.launches)
    apart = step.seconds - step.timing.launch_seconds + full
    loaded = sum(x.loaded for x in step.timing.launches)
    return Answer(apart / step.seconds, f"{loaded} of {step.runs} runs find their section loaded", (step,))


# Tokens per second.


def decode_rate(
    study: Study, config: Model, device: str, sockets: int, context: int, weights: str = "", batch: int = 1
) -> Answer:
    """Tokens per second of a user."""
    step = predict(config, study.system(device, sockets), context=context, weights=weights, batch=batch)
    return Answer(step.tokens_per_second_per_user, _bounds(step), (step,))


def tokens_per_step(study: Study, config: Model, published: float, sockets: int = 16, context: int = 8192) -> Answer:
    """Tokens that a step must have given, were the published rate that of our steps."""
    step = predict(config, study.system("sn40l", sockets), context=context)
    note = f"{step.tokens_per_second_per_user:.1f} steps/s; {_bounds(step)}"
    return Answer(published / step.tokens_per_second_per_user, note, (step,))


def data_parallel(
    study: Study, config: Model | None = None, context: int = 10240, tensor: int = 8, data: int = 8, wide: int = 16
) -> Answer:
    """Tokens per second of a user with data and tensor parallelism, over tensor parallelism alone (of MiniMax-M2 unless
    another model is given)."""
    config = config or minimax()
    sizes: dict[str, Any] = {"context": context, "weights": "f8e4m3"}
    many = predict(config, study.system("sn50", mesh={"dp": data, "tp": tensor}), batch=data, **sizes)
    one = predict(config, study.system("sn50", wide), **sizes)
    return Answer(many.tokens_per_second_per_user / one.tokens_per_second_per_user, "", (many, one))


# Products, and other programs.


def product(
    study: Study, sockets: int, rows: int = 16 * 24576, inner: int = 131072, columns: int = 8192, device: str = "sn50"
) -> Answer:
    """Percent of the peak of a product whose inner dim is cut over the sockets."""
    timing = programs.product(study.device(device), sockets, rows, inner, columns)
    ideal = 2 * rows * inner * columns / sockets / timing.peak_flops
    return Answer(100 * ideal / timing.seconds, _timing_bounds(timing))


def convolution_gain(study: Study, channels: int = 64, first: int = 1024, second: int = 1024) -> Answer:
    """A long convolution with every op a section, over as few sections as are fastest."""
    device = study.device("sn40l")
    apart, fused = (programs.convolution(device, x, channels, first, second) for x in (False, True))
    note = f"{len(apart.launches)} launches over {len(fused.launches)}; {channels} channels and two factors are assumed"
    return Answer(apart.seconds / fused.seconds, f"{note}; {_timing_bounds(fused)}")


def inner_product(study: Study, elements: int = 1 << 24, rate: float = 37.5e9) -> Answer:
    """The time of an FPGA that reads at a rate, over ours."""
    timing = programs.inner_product(study.device("plasticine"), elements)
    return Answer(8 * elements / rate / timing.seconds, _timing_bounds(timing))


def _length(tokens: int) -> dict[str, Any]:
    return {"context": tokens, "tokens": tokens}


def _us(step: Prediction) -> str:
    return f"{step.seconds * 1e6:,.0f} us"


def _bounds(step: Prediction) -> str:
    parts = sorted(step.bounds.items(), key=lambda x: -x[1])
    return f"{_us(step)}: " + ", ".join(f"{name} {seconds * 1e6:,.0f}" for name, seconds in parts if seconds > 5e-7)


def _timing_bounds(timing: Timing) -> str:
    parts = sorted(timing.bounds.items(), key=lambda x: -x[1])
    told = ", ".join(f"{name} {cycles / timing.clock * 1e6:,.0f}" for name, cycles in parts)
    return f"{timing.seconds * 1e6:,.0f} us: {told}"


def _throughput(_: Study) -> Answer:
    return Answer(1 / stages()[0])


def _latency(_: Study) -> Answer:
    return Answer(stages()[1] * 1e3)


def minimax() -> DecoderConfig:
    """MiniMax-M2, at full size."""
    name, given = configuration("minimax-m2")
    return DecoderConfig.from_json(given, name)


def mixture(
    study: Study, device: str, config: DecoderConfig | None = None, sockets: int = 16, context: int = 10240
) -> Answer:
    """Tokens per second of a user of a mixture of experts (MiniMax-M2 unless another is given), whose weights are
    stored in eight bits."""
    return decode_rate(study, config or minimax(), device, sockets, context, "f8e4m3")


R1 = "deepseek-v3"
FUNCTIONS: dict[str, Function] = {
    **{f"1.{name}": lambda s, name=name: peak(s, name) for name in ("plasticine", "sn10", "sn40l", "sn50")},
    **{f"2.{way}": lambda s, way=way: intensity(s, way) for way in programs.WAYS},
    "3.throughput": _throughput,
    "3.latency": _latency,
    "4.innerproduct": inner_product,
    "5": convolution_gain,
    "6": lambda s: fusion_gain(s, "prefill"),
    "6.decode": lambda s: fusion_gain(s, "decode"),
    "7.decode": lambda s: launch_gain(s, "decode"),
    "7.prefill": lambda s: launch_gain(s, "prefill"),
    "8.prefill": launches_saved,
    "8.decode": launches,
    "9.a100": lambda s: switch_ratio(s, 32e9),
    "9.h100": lambda s: switch_ratio(s, 64e9),
    "9.8b": switch_time,
    "10": lambda s: decode_rate(s, "llama-3.1-8b", "sn40l", 16, 8192),
    "11": lambda s: decode_rate(s, "llama-3-8b", "sn40l", 8, 4096),
    "12.70b": lambda s: tokens_per_step(s, "llama-3.1-70b", 457),
    "12.405b": lambda s: tokens_per_step(s, "llama-3.1-405b", 129),
    **{f"13.{n}": lambda s, n=n: product(s, n) for n in (8, 16, 32)},
    "14": lambda s: decode_rate(s, R1, "sn40l", 16, 8192, "f8e4m3"),
    "15a": lambda s: mixture(s, "sn40l"),
    "15b": lambda s: mixture(s, "sn50"),
    "16": data_parallel,
    "19": looping_gain,
}
"""Id of a row → its prediction."""


__all__ = ["FILES", "FUNCTIONS", "Answer", "Function", "Study"]
