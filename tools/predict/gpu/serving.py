"""A server with continuous batching: what users and the system get when so many requests are always there.

`requests` requests of `prompt` tokens in and `output` tokens out are under way at any time; as many of them run as the
caches have room for, the others wait. A prompt is computed in chunks beside the tokens of the sequences that run, so
that a request costs the server

    cost of its prompt + output · step(B) / B

seconds, where the cost of a prompt is what its chunks add to the steps that they are part of. From Little's law the B
sequences that run see a token every B · (cost) / output seconds, and a request waits (requests - B) · (cost) for room.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil

from headrace.dialects.support.diagnostics import CompileError
from headrace.tools.predict.gpu.facts import Gpu
from headrace.tools.predict.gpu.sizes import Sizes
from headrace.tools.predict.gpu.step import Layout, Numbers, Step, StepTime, room, step_time, weight_bytes

CHUNK = 8192
"""Most tokens of prompts in a step."""


@dataclass(frozen=True)
class Served:
    """What a server gives: seconds to the first token and between tokens of a user, tokens a second of a user (by the
    time between them) and of the system, output and all. `running` sequences are under way."""

    running: int
    first: float
    between: float
    output_rate: float
    total_rate: float
    decode: StepTime
    prefill: StepTime

    @property
    def user_rate(self) -> float:
        """Tokens a second that one user sees."""
        return 1 / self.between


def prompt_time(
    config: Sizes,
    gpu: Gpu,
    layout: Layout,
    numbers: Numbers,
    prompt: int,
    beside: int = 0,
    context: int = 0,
    ranks: float = 1.0,
) -> StepTime:
    """Seconds of a prompt in chunks; with `beside` sequences that decode, what it adds to their steps, shared by
    the prompts that `ranks` GPUs have at the same time."""
    parts: dict[str, float] = {}
    done = 0
    alone = step_time(config, gpu, layout, numbers, Step(beside, context)) if beside else None
    while done < prompt:
        now = min(CHUNK, prompt - done)
        found = step_time(config, gpu, layout, numbers, Step(beside, context, now, done, 1, ranks))
        for name, seconds in found.bounds.items():
            parts[name] = parts.get(name, 0.0) + (seconds - (alone.bounds[name] if alone else 0.0)) / ranks
        done += now
    return StepTime(sum(parts.values()), parts)


def ranks_with_prompts(layout: Layout, running: int, prompt: int, output: int) -> float:
    """Of the GPUs that share out sequences, how many have a prompt in a step that has one at all: prompts come whenever
    one of the sequences has ended, to each GPU by itself."""
    if layout.attention == "tensor":
        return 1.0
    n = layout.gpus
    chance = min(1.0, running / n / output * ceil(prompt / CHUNK))
    return n * chance / (1 - (1 - chance) ** n)


@lru_cache(1 << 14)
def serve(config: Sizes, gpu: Gpu, layout: Layout, numbers: Numbers, requests: int, prompt: int, output: int) -> Served:
    """The steady state of a server. `CompileError` when the weights do not fit, or not even one sequence."""
    tokens = room(config, gpu, layout, numbers)
    most = int(tokens // (prompt + output))
    if most < 1:
        raise CompileError(
            "does-not-fit",
            f"{config.name} in {numbers.name} with {prompt} + {output} tokens does not fit {layout.gpus} × {gpu.name}",
            why=f"weights are {weight_bytes(config, numbers) / 1e9:,.0f} GB",
            fix="more GPUs, or narrower types",
        )
    running = min(requests, most)
    context = prompt + ceil(output / 2)
    decode = step_time(config, gpu, layout, numbers, Step(running, context))
    ranks = ranks_with_prompts(layout, running, prompt, output)
    alone = prompt_time(config, gpu, layout, numbers, prompt)
    added = prompt_time(config, gpu, layout, numbers, prompt, max(1, running - 1), context, ranks)
    cost = max(0.0, added.seconds) + output * decode.seconds / running
    between = running * cost / output if running > 1 else decode.seconds
    if running == 1:
        cost = alone.seconds + output * decode.seconds
    first = alone.seconds + (requests - running) * cost
    return Served(running, first, between, output / cost, (prompt + output) / cost, decode, alone)


__all__ = ["CHUNK", "Served", "prompt_time", "serve"]
