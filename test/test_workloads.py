"""The eight workloads end to end: compiled, placed and routed with every checker passing, and right at every level.

Small variants run on three devices. The real sizes need ../shared/workloads; those that need gigabytes or much time are
marked `full` and deselected by default:

    pytest test/test_workloads.py -m full
    python test/test_workloads.py [NAME …]     prints the table of errors
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
import workloads
from workloads import NAMES, Workload

import headrace
from headrace.backend.encode import encode
from headrace.compiler import ModelWeights, import_model, lower, translate
from headrace.dialects.dataflow.interpreter import run_dataflow
from headrace.dialects.tensor.interpreter import run_function
from headrace.passes.analysis import placement, routing
from headrace.passes.infra.manager import Watch
from headrace.runtime.check import check_program
from headrace.runtime.session import Executable
from headrace.tools import audit as independent

TOLERANCE = {"fp32": 1e-4, "bf16": 3e-2}
"""Allowed error over the largest magnitude of an output. bf16 has 8 significant bits: an op rounds by up to 2^-9 of its
result. A layer has about ten roundings on the way of a value, and those of a hundred ops that are independent add up to
some 2^-9 · √100, or 2 %; the largest of all elements is at most about that."""
SPREAD = 1e-2
"""The same for two levels at bf16: a sum in another order rounds to the next number now and then."""
LARGE = {"gpt2_b1", "gpt2_b8"}
"""Their real sizes take some gigabytes of memory."""
QUICK_LITERAL = {"mlp_b1", "mlp_b256"}
"""The real sizes that run tile by tile in about a second."""
CHECKERS = {"check-deadlock", "check-resources"}


@lru_cache(maxsize=1)
def real(name: str) -> Workload:
    """A workload in its real size, the last one kept; skips the test when it is not there."""
    try:
        return workloads.full(name)
    except workloads.Missing as missing:
        pytest.skip(str(missing))


def errors(
    workload: Workload,
    device: str,
    levels: str = "dataflow",
    literal: bool = False,
    audit: bool = False,
    precision: str = "fp32",
) -> dict[str, float]:
    """The largest error at every level. `levels`: `dataflow` runs tensor and dataflow programs too, `runtime` does not.
    `audit` holds every pass and every on-chip buffer to its contract."""
    found: dict[str, float] = {}
    imported = import_model(workload.model())

    def note(level: str, outputs: dict[str, Any]) -> None:
        found[level] = max(workload.errors(outputs.values()))

    def on_phase(phase: str, module: Any) -> None:
        if levels == "runtime":
            return
        if phase in ("import", "tensor"):
            note(
                "tensor" if phase == "import" else "tensor, lowered",
                run_function(module, "main", workload.inputs, imported.store),
            )
        elif phase == "dataflow":
            note(phase, run_dataflow(module, workload.inputs, imported.store, debug=audit))

    watch = Watch(verify_each=audit)
    passes = lower(imported.module, device, on_phase=on_phase, watch=watch, precision=precision)
    assert set(passes.split(",")) >= CHECKERS
    independent.audit(imported.module).raise_if_any()
    program = encode(imported.module)
    check_program(program)
    assert program.device["name"] == device
    weights = ModelWeights(imported.module, imported.store)
    exe = Executable(program, weights)
    assert exe.report == [], "a config runs tile by tile"
    note("runtime", exe(workload.inputs))
    if literal:
        note("literal", Executable(program, weights, literal=True)(workload.inputs))
    return found


def all_within(found: dict[str, float], precision: str = "fp32") -> None:
    assert max(found.values()) < TOLERANCE[precision], found
    if precision != "fp32":
        lowered = [error for level, error in found.items() if level != "tensor"]
        assert min(lowered) > TOLERANCE["fp32"], "nothing was rounded"
        assert max(lowered) - min(lowered) < SPREAD, found


# Small


@pytest.mark.parametrize("device", ["sn40l", "sn50", "plasticine"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("precision", TOLERANCE)
def test_small_at_every_level(name: str, device: str, precision: str) -> None:
    found = errors(workloads.small(name), device, literal=True, audit=True, precision=precision)
    all_within(found, precision)


@pytest.mark.parametrize("name", NAMES)
def test_every_config_passes_the_checkers_of_place_and_route(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: Counter[str] = Counter()

    def spy(module: Any, checker: str) -> None:
        check: Callable[..., None] = getattr(module, checker)

        def checked(*arguments: Any, **options: Any) -> None:
            check(*arguments, **options)
            seen[checker] += 1

        monkeypatch.setattr(module, checker, checked)

    spy(placement, "check_placement")
    spy(routing, "check_routing")
    program = translate(workloads.small(name).model()).program
    assert seen == {"check_placement": len(program.configs), "check_routing": len(program.configs)}


@pytest.mark.parametrize("name", NAMES)
def test_a_second_run_and_other_inputs(name: str) -> None:
    """Nothing is left over from an earlier run."""
    first, second = workloads.small(name), workloads.small(name, seed=1)
    other = Workload(name, first.params, second.inputs, first.heads)
    exe = headrace.compile(first.model())
    for workload in (first, other, first, first):
        assert max(workload.errors(exe(workload.inputs).values())) < TOLERANCE["fp32"]


def test_the_references_tell_models_apart() -> None:
    """Other weights or inputs are far beyond the tolerance: the comparisons above mean something."""
    for name in NAMES:
        one, other = workloads.small(name), workloads.small(name, seed=1)
        assert min(one.errors(other.reference)) > 100 * TOLERANCE["fp32"]
        nothing = [np.zeros_like(array) for array in one.reference]
        assert min(one.errors(nothing)) > 100 * TOLERANCE["fp32"]


# Real


@pytest.mark.slow
@pytest.mark.parametrize("device", ["sn40l", "sn50"])
@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.full if n in LARGE else ()) for n in NAMES])
def test_real_at_every_level(name: str, device: str) -> None:
    all_within(errors(real(name), device, literal=name in QUICK_LITERAL and device == "sn40l"))


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.full if n in LARGE else ()) for n in NAMES])
def test_real_in_bf16(name: str) -> None:
    all_within(errors(real(name), "sn40l", precision="bf16"), "bf16")


@pytest.mark.full
@pytest.mark.parametrize("name", [name for name in NAMES if name not in LARGE | QUICK_LITERAL])
def test_real_tile_by_tile(name: str) -> None:
    all_within(errors(real(name), "sn40l", levels="runtime", literal=True))


def main(names: list[str]) -> None:
    """Print the errors of the real sizes at every level."""
    for name in names or NAMES:
        for device in ("sn40l", "sn50"):
            start = time.process_time()
            found = errors(real(name), device, literal=name not in LARGE and device == "sn40l")
            told = "  ".join(f"{level} {worst:.1e}" for level, worst in found.items())
            print(f"{name:9} {device:6} {told}  {time.process_time() - start:.1f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
