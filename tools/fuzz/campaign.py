"""Runs many seeds, in one process or several, and says what came of them."""

from __future__ import annotations

import gc
import random
import signal
import sys
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from headrace.dialects.machine.device import Device, load_device
from headrace.dialects.support.diagnostics import CompileError
from headrace.tools.fuzz.check import check
from headrace.tools.fuzz.generator import DEFAULT, Distribution, random_program
from headrace.tools.fuzz.maker import Program
from headrace.tools.fuzz.settings import (
    SMALL,
    Setting,
    all_passes,
    one_pass,
    random_device,
    small_device,
    whole_pipeline,
)

MODES = ("pipeline", "pass")
EACH = 50
"""Seeds that a worker takes at once."""
FRESH = 20
"""Such parts that a process does before another takes its place."""
MENTIONED = 8
"""Seeds and ops that a line of the summary names."""
KEPT = 2
"""Failures of one cause that are reduced."""


@dataclass(frozen=True)
class Plan:
    """What every seed of a campaign does. A seed and a plan give the same program, device, options and outcome."""

    mode: str = "pipeline"
    like: Distribution = DEFAULT
    device: str = ""
    """A device by name or file, `small` for small ones, or empty for any."""
    passes: tuple[str, ...] = ()
    """In mode "pass", what runs: one after the other from seed to seed; all when empty."""
    level: str = ""
    """In mode "pipeline", a mode of the compiler (`pipelines.MODES`), or empty for sections cut in any way."""
    precision: str = "fp32"
    """In mode "pipeline", what f32 is computed in."""
    artifacts: int = 10
    """Every such seed also goes through an artifact."""
    seconds: int = 60
    """After so much time of the processor a program counts as endless."""


@dataclass
class Outcome:
    """What came of one seed: `kind` is "" when all levels agree, "refused" or "failed"."""

    seed: int
    kind: str = ""
    code: str = ""
    """Of a refusal; of a failure, what failures of one cause have in common."""
    text: str = ""
    device: str = ""
    ops: Counter[str] = field(default_factory=Counter[str])


@dataclass(frozen=True)
class Case:
    """What a seed stands for."""

    seed: int
    program: Program
    setting: Setting
    artifact: bool = False

    def check(self, program: Program | None = None) -> None:
        """Compile and run the program, or another one in its place; raises what goes wrong."""
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            check(program or self.program, self.setting, self.artifact)


def case(seed: int, plan: Plan) -> Case:
    """The program of a seed, and what is done with it."""
    rng = random.Random(f"{plan.mode} {seed}")
    like = plan.like
    if like.size == "small" and rng.random() < 0.06:
        like = replace(like, size=rng.choice(("medium", "large")), ops=max(1, like.ops // 2))
    elif rng.random() < 0.2:
        like = replace(like, ops=max(1, like.ops * rng.choice((1, 2, 5)) // 2))
    if plan.precision != "fp32":
        like = replace(like, rounds=plan.precision)
    program = random_program(seed, like)
    device = _device(rng, plan.device)
    if plan.mode == "pass":
        names = plan.passes or all_passes()
        return Case(seed, program, one_pass(names[seed % len(names)], rng, device))
    setting = whole_pipeline(rng, device, plan.level, plan.precision)
    return Case(seed, program, setting, artifact=seed % plan.artifacts == 0)


def _device(rng: random.Random, name: str) -> Device:
    if not name:
        return random_device(rng)
    return small_device(rng) if name == SMALL else load_device(name)


def outcome(seed: int, plan: Plan) -> Outcome:
    """What comes of a seed."""
    found = Outcome(seed)
    try:
        with limit(plan.seconds):
            one = case(seed, plan)
            found.device = one.setting.device.name
            found.ops = Counter(op.name for op in one.program.module.walk())
            one.check()
    except CompileError as error:
        found.kind, found.code, found.text = "refused", error.code, str(error)
    except (Exception, Endless) as error:
        from headrace.tools.fuzz.failures import cause

        found.kind, found.code = "failed", cause(error)
        found.text = f"{type(error).__name__}: {error}" + "".join(f"\n  {note}" for note in _notes(error))
    return found


def _notes(error: BaseException) -> list[str]:
    return getattr(error, "__notes__", [])


class Endless(BaseException):
    """A program took too long. No exception that a pass manager would take for the pass's own."""


@contextmanager
def limit(seconds: int) -> Generator[None]:
    """Raise `Endless` when the block takes more time of the processor, where the system can say so."""
    if not hasattr(signal, "SIGPROF"):
        yield
        return

    def stop(*_: Any) -> None:
        raise Endless(f"after {seconds} s")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def outcomes(seeds: Iterable[int], plan: Plan) -> list[Outcome]:
    """What comes of some seeds, in order. The circles that they leave behind are collected at the end."""
    gc.disable()
    try:
        return [outcome(seed, plan) for seed in seeds]
    finally:
        gc.enable()
        gc.collect()


@dataclass
class Summary:
    """What came of a campaign."""

    plan: Plan
    programs: int = 0
    ops: Counter[str] = field(default_factory=Counter[str])
    refused: dict[tuple[str, str], list[Outcome]] = field(default_factory=lambda: defaultdict(list))
    """By code and device."""
    failed: list[Outcome] = field(default_factory=list[Outcome])
    seconds: float = 0.0

    def add(self, found: Outcome) -> None:
        """Count one outcome."""
        self.programs += 1
        self.ops.update(found.ops)
        if found.kind == "refused":
            self.refused[found.code, found.device].append(found)
        elif found.kind:
            self.failed.append(found)

    def text(self) -> str:
        """The summary for people."""
        from headrace.dialects.tensor import op_classes

        every = set(op_classes())
        missing = sorted(every - set(self.ops))
        listed = ", ".join(missing[:MENTIONED]) + ", …" * (len(missing) > MENTIONED)
        refused = sum(map(len, self.refused.values()))
        lines = [
            f"{self.programs} programs in {self.seconds:.0f} s: {self.programs - refused - len(self.failed)} agree at "
            f"every level, {refused} refused, {len(self.failed)} failed",
            f"{len(every) - len(missing)} of {len(every)} tensor ops made" + f": not {listed}" * bool(missing),
        ]
        for (code, device), found in sorted(self.refused.items(), key=lambda item: -len(item[1])):
            lines.append(f"refused {len(found):5} x {code} on {device}  seeds {_seeds(found)}")
        causes: dict[str, list[Outcome]] = defaultdict(list)
        for one in self.failed:
            causes[one.code].append(one)
        for code, found in sorted(causes.items(), key=lambda item: -len(item[1])):
            lines += [f"FAILED {len(found):5} x {code}  seeds {_seeds(found)}", f"    {found[0].text}"]
        return "\n".join(lines)


def _seeds(found: list[Outcome]) -> str:
    shown = ", ".join(str(one.seed) for one in found[:MENTIONED])
    return f"{shown}, …" if len(found) > MENTIONED else shown


def run(
    seeds: range, plan: Plan, jobs: int = 1, minutes: float = 0.0, failures: Path | None = None, every: int = 500
) -> Summary:
    """Try seeds, `jobs` at a time, until all are done or the minutes are over (0: no limit). The first failures of each
    cause are reduced into a folder `failures`."""
    summary, start = Summary(plan), time.monotonic()
    chunks = [seeds[i : i + EACH] for i in range(0, len(seeds), EACH)]

    def over() -> bool:
        return bool(minutes) and time.monotonic() - start > 60 * minutes

    for found in _chunks(chunks, plan, jobs, over):
        for one in found:
            summary.add(one)
            if one.kind == "failed":
                print(f"seed {one.seed}: {one.text[:300]}", file=sys.stderr, flush=True)
                if failures is not None and sum(other.code == one.code for other in summary.failed) <= KEPT:
                    _keep(one, plan, failures)
        summary.seconds = time.monotonic() - start
        if summary.programs % every < EACH:
            print(f"… {summary.programs} programs, {len(summary.failed)} failed", file=sys.stderr, flush=True)
    return summary


def _keep(one: Outcome, plan: Plan, folder: Path) -> None:
    from headrace.tools.fuzz.failures import keep

    try:
        path = keep(case(one.seed, plan), folder)
    except Exception as error:  # the failure is the news, not that it cannot be reduced
        print(f"seed {one.seed}: not reduced: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    else:
        one.text += f"\n    reduced: {path}"


def _chunks(chunks: list[range], plan: Plan, jobs: int, over: Any) -> Iterator[list[Outcome]]:
    if jobs <= 1:
        for chunk in chunks:
            if over():
                return
            yield outcomes(chunk, plan)
        return
    spawn = get_context("spawn")
    for i in range(0, len(chunks), FRESH * jobs):  # what workers keep goes with them
        with ProcessPoolExecutor(jobs, spawn) as pool:
            pending = [pool.submit(outcomes, chunk, plan) for chunk in chunks[i : i + FRESH * jobs]]
            for one in pending:
                yield one.result()
                if over():
                    for other in pending:
                        other.cancel()
                    return
