"""Runs many seeds, in one process or several, and says what came of them."""

from __future__ import annotations

import gc
import random
import re
import signal
import sys
import time
import traceback
import warnings
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from headrace.dialects.machine.device import Device, load_device
from headrace.dialects.support.diagnostics import CompileError
from headrace.tools.fuzz.check import Disagreement, all_passes, check_pass, check_pipeline, phases
from headrace.tools.fuzz.generator import DEFAULT, Distribution, random_program
from headrace.tools.fuzz.maker import Program
from headrace.tools.fuzz.settings import SMALL, random_device, small_device

MODES = ("pipeline", "pass")
EACH = 50
"""Seeds that a worker takes at once."""


@dataclass(frozen=True)
class Plan:
    """What every seed of a campaign does. A seed and a plan give the same program, device, options and outcome."""

    mode: str = "pipeline"
    like: Distribution = DEFAULT
    device: str = ""
    """A device by name or file, `small` for small ones, or empty for any."""
    passes: tuple[str, ...] = ()
    """In mode "pass", what runs: one after the other from seed to seed; all when empty."""
    artifacts: int = 10
    """Every such seed also goes through an artifact."""
    seconds: int = 120
    """After so long a program counts as endless."""


@dataclass
class Outcome:
    """What came of one seed: `kind` is "" when all levels agree, "refused", or how it failed."""

    seed: int
    kind: str = ""
    code: str = ""
    """Of a refusal; of a failure, what failures of one cause have in common."""
    text: str = ""
    device: str = ""
    ops: Counter[str] = field(default_factory=Counter[str])


def case(seed: int, plan: Plan) -> tuple[Program, Device, random.Random]:
    """The program of a seed, the device that it is compiled for, and what the options are drawn from."""
    rng = random.Random(f"{plan.mode} {seed}")
    like = plan.like
    if like.size == "small" and rng.random() < 0.04:
        like = replace(like, size=rng.choice(("medium", "large")), ops=max(1, like.ops // 2))
    program = random_program(seed, like)
    return program, _device(rng, plan.device), rng


def _device(rng: random.Random, name: str) -> Device:
    if not name:
        return random_device(rng)
    return small_device(rng) if name == SMALL else load_device(name)


def check_seed(seed: int, plan: Plan) -> Device:
    """Do with a seed what the plan says; raises what goes wrong."""
    program, device, rng = case(seed, plan)
    check(program, device, rng, seed, plan)
    return device


def check(program: Program, device: Device, rng: random.Random, seed: int, plan: Plan) -> None:
    """Run a program as the plan does with one of this seed."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if plan.mode == "pass":
            names = plan.passes or all_passes()
            check_pass(program, device, names[seed % len(names)], rng)
        else:
            check_pipeline(program, device, phases(rng), artifact=seed % plan.artifacts == 0)


def outcome(seed: int, plan: Plan) -> Outcome:
    """What comes of a seed."""
    found = Outcome(seed)
    try:
        with _limit(plan.seconds):
            program, device, rng = case(seed, plan)
            found.device = device.name
            found.ops = Counter(op.name for op in program.module.walk())
            check(program, device, rng, seed, plan)
    except CompileError as error:
        found.kind, found.code, found.text = "refused", error.code, str(error)
    except Exception as error:
        found.kind, found.code = _cause(error)
        found.text = f"{type(error).__name__}: {error}" + "".join(f"\n  {note}" for note in _notes(error))
    return found


def _notes(error: BaseException) -> list[str]:
    return getattr(error, "__notes__", [])


class Endless(Exception):
    """A program took too long."""


@contextmanager
def _limit(seconds: int) -> Generator[None]:
    """Raise `Endless` when the block takes longer, where the system can say so."""
    if not hasattr(signal, "SIGALRM"):
        yield
        return

    def stop(*_: Any) -> None:
        raise Endless(f"after {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _cause(error: Exception) -> tuple[str, str]:
    """The kind of a failure, and a text that those of one cause share."""
    if isinstance(error, Disagreement):
        return "disagreement", re.sub(r"\{.*?\}|[\d.e+-]+", "#", str(error))[:80]
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "/site-packages/" not in f.filename]
    at = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    kind = type(error).__name__
    return kind, f"{kind} at {at}: {re.sub(r'[0-9.e+-]+', '#', str(error))[:80]}"


def outcomes(seeds: Iterable[int], plan: Plan) -> list[Outcome]:
    """What comes of some seeds, in order."""
    found = [outcome(seed, plan) for seed in seeds]
    gc.collect()
    return found


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
        refused = sum(map(len, self.refused.values()))
        lines = [
            f"{self.programs} programs in {self.seconds:.0f} s: {self.programs - refused - len(self.failed)} agree at "
            f"every level, {refused} refused, {len(self.failed)} failed",
            f"{len(every) - len(missing)} of {len(every)} tensor ops made{': not ' * bool(missing)}"
            + ", ".join(missing),
        ]
        for (code, device), found in sorted(self.refused.items(), key=lambda item: -len(item[1])):
            lines.append(f"refused {len(found):5} x {code} on {device}  seeds {_seeds(found)}")
        causes: dict[str, list[Outcome]] = defaultdict(list)
        for one in self.failed:
            causes[one.code].append(one)
        for code, found in sorted(causes.items(), key=lambda item: -len(item[1])):
            lines += [f"FAILED {len(found):5} x {code}  seeds {_seeds(found)}", f"    {found[0].text[:600]}"]
        return "\n".join(lines)


def _seeds(found: list[Outcome]) -> str:
    shown = ", ".join(str(one.seed) for one in found[:8])
    return f"{shown}, …" if len(found) > 8 else shown


def run(seeds: range, plan: Plan, jobs: int = 1, minutes: float = 0.0, every: int = 500) -> Summary:
    """Try seeds, `jobs` at a time, until all are done or the minutes are over (0: no limit)."""
    summary, start = Summary(plan), time.monotonic()
    chunks = [seeds[i : i + EACH] for i in range(0, len(seeds), EACH)]

    def over() -> bool:
        return bool(minutes) and time.monotonic() - start > 60 * minutes

    for found in _chunks(chunks, plan, jobs, over):
        for one in found:
            summary.add(one)
            if one.kind and one.kind != "refused":
                print(f"seed {one.seed}: {one.text[:300]}", file=sys.stderr, flush=True)
        summary.seconds = time.monotonic() - start
        if summary.programs % every < EACH:
            print(f"… {summary.programs} programs, {len(summary.failed)} failed", file=sys.stderr, flush=True)
    return summary


def _chunks(chunks: list[range], plan: Plan, jobs: int, over: Any) -> Iterator[list[Outcome]]:
    if jobs <= 1:
        for chunk in chunks:
            if over():
                return
            yield outcomes(chunk, plan)
        return
    with ProcessPoolExecutor(jobs, max_tasks_per_child=20) as pool:
        pending = [pool.submit(outcomes, chunk, plan) for chunk in chunks]
        for one in pending:
            yield one.result()
            if over():
                for other in pending:
                    other.cancel()
                return
