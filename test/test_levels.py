"""A random program gives the same results at every level: tensor, dataflow, and the routed program, merged and literal.

    python test/test_levels.py 1000 2000     tries those seeds and lists what fails, grouped

Integers and booleans are equal; floats are within `random_programs.TOLERANCE` of their largest magnitude (2e-5 for
f32, 1e-1 for bf16): tiles and units add up in other orders, which costs a few units in the last place per sum.
"""

from __future__ import annotations

import random
import re
import sys
import traceback
import warnings
from collections import defaultdict
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from level_programs import level_program
from random_programs import Array, Program, disagreement
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from headrace.backend.encode import encode
from headrace.dialects.dataflow.interpreter import run_dataflow
from headrace.dialects.machine.attributes import set_device
from headrace.dialects.machine.device import Device, load_device
from headrace.dialects.support.diagnostics import CompileError
from headrace.dialects.support.dtypes import FLOATS, to_numpy
from headrace.dialects.support.weights import WeightStore
from headrace.dialects.tensor.base import tt
from headrace.dialects.tensor.interpreter import evaluate_recipe, run_function
from headrace.dialects.tensor.program import signature
from headrace.dialects.tensor.shapes import TT
from headrace.dialects.tensor.storage import weight_types
from headrace.passes import pipelines
from headrace.passes.infra.manager import PassManager, Watch
from headrace.passes.infra.registry import build
from headrace.runtime.program import Program as Runnable
from headrace.runtime.session import Executable
from headrace.tools.opt import context, parse

SEEDS = 60
TINY = Path(__file__).parent / "dialects" / "machine" / "data" / "tiny.toml"
REFUSALS = frozenset({"stage-too-large", "too-many-units", "buffer-too-large"})
"""What a device with tiny memories may say."""
DEVICES = ("small", "tight", "sn40l", "small", "plasticine", "tight", "sn50")


@cache
def device(name: str) -> Device:
    """A shipped device, or one of a few units with memories of 4096 (`small`) or 1024 bytes (`tight`)."""
    if name not in ("small", "tight"):
        return load_device(name)
    tiny = load_device(TINY)
    grid = replace(tiny.grid, columns=6, rows=6, agcus_per_edge=6)
    return replace(tiny, grid=grid, pmu=replace(tiny.pmu, bytes=4096 if name == "small" else 1024))


def phases(seed: int) -> tuple[str, str, str]:
    """The pipelines of a seed: passes on tensors (none for some), on sections with options of its own, and on units."""
    rng = random.Random(seed)
    options = {
        "fuse-stages": rng.choice(("", "{most=2}", "")),
        "tile": f"{{rows={rng.choice((1, 2, 64))} steps={rng.choice((2, 4, 64))} chunk={rng.choice((64, 65536))}"
        f" resident={rng.choice((0.75, 0.0))}}}",
        "parallelize": rng.choice(("", "{share=0.2}", "{most=1}")),
        "size-buffers": f"{{copies={rng.choice((1, 2, 2, 3))}}}",
    }
    dataflow = ",".join(name + options.get(name, "") for name in pipelines.DATAFLOW)
    return pipelines.PIPELINES["tensor"] if rng.random() < 0.6 else "", dataflow, pipelines.PIPELINES["rdu"]


class _Weights:
    def __init__(self, module: ModuleOp, program: Program) -> None:
        self.module, self.store = module, program.store

    def array(self, key: str) -> Array:
        return evaluate_recipe(self.module, key, self.store)


def _agree(expected: dict[str, Array], found: dict[str, Array], level: str) -> None:
    why = disagreement(expected, found)
    assert not why, f"{level}: {why}"


def _run(exe: Executable, program: Runnable, inputs: dict[str, Array], reset: bool = True) -> dict[str, Array]:
    """One run from the state that `inputs` gives, or (`reset` false) from the state that the run before left."""
    states = dict(program.states)
    if reset:
        exe.reset({name: inputs[name] for name in states})
    found = exe({name: array for name, array in inputs.items() if name not in states})
    state = exe.state()
    found.update((present, state[past]) for past, present in states.items())
    return {port.name: found[port.name] for port in program.outputs}


def check_levels(seed: int, name: str = "") -> None:
    """Map the program of a seed and run it at every level. `CompileError` when the device has no room for it."""
    program = level_program(seed, dtype={3: "bf16", 7: "f64"}.get(seed % 10, "f32"))
    check_program(program, name or DEVICES[seed % len(DEVICES)], phases(seed))


def check_program(program: Program, name: str, pipelines: tuple[str, str, str]) -> None:
    """Map a program for the device of that name by three pipelines, and run it at every level."""
    inputs = program.inputs
    expected = run_function(program.module, "main", inputs, program.store)
    module = program.module.clone()
    set_device(module, device(name))
    tensor, dataflow, rdu = pipelines

    def after(one: Any, module: ModuleOp) -> None:
        _agree(expected, run_dataflow(module, inputs, program.store, debug=True), f"dataflow after {one}")

    if tensor:
        PassManager(context(), build(tensor)).run(module)
        _agree(expected, run_function(module, "main", inputs, program.store), "tensor")
    PassManager(context(), build(dataflow), Watch(verify_each=True, check=after)).run(module)
    PassManager(context(), build(rdu)).run(module)
    routed = encode(module)
    weights = _Weights(module, program)
    merged = Executable(routed, weights)
    for _ in range(2):  # the second run meets what the first left in memory
        _agree(expected, _run(merged, routed, inputs), "merged")
    if routed.states:
        later = {**inputs, **{past: expected[present] for past, present in routed.states}}
        expected_later = run_function(program.module, "main", later, program.store)
        _agree(expected_later, _run(merged, routed, inputs, reset=False), "merged, from the state that it left")
    _agree(expected, _run(Executable(routed, weights, literal=True), routed, inputs), "literal")


@pytest.mark.parametrize("seed", range(SEEDS))
def test_levels_agree(seed: int) -> None:
    with np.errstate(all="ignore"):
        try:
            check_levels(seed)
        except CompileError as error:
            assert error.code in REFUSALS and DEVICES[seed % len(DEVICES)] == "tight", str(error)


def case(text: str) -> Program:
    """A program in text, with inputs and weights at random; integers are 0 or 1, so that they may be indices."""
    module, _ = parse(context(), text, "levels.mlir")
    func = next(op for op in module.body.block.ops if isinstance(op, FuncOp) and op.sym_name.data == "main")
    rng = np.random.default_rng(0)

    def array(type: TT) -> Array:
        numbers = rng.standard_normal(type.shape) if type.dtype in FLOATS else rng.integers(0, 2, type.shape)
        return numbers.astype(to_numpy(type.dtype))

    names = signature(func).inputs
    inputs = {n: array(tt(a)) for n, a in zip(names, func.body.block.args, strict=True)}
    store = WeightStore()
    for key, type in weight_types(module).items():
        store.add_array(key, array(type))
    return Program(module, inputs, store)


def _cases() -> dict[str, str]:
    parts = (Path(__file__).parent / "data" / "levels.mlir").read_text(encoding="utf-8").split("// -----\n")
    return {re.findall(r"^// (.*)$", part, re.M)[-1]: part for part in parts}


@pytest.mark.parametrize("name", _cases())
def test_levels_agree_on(name: str) -> None:
    with np.errstate(all="ignore"):
        check_program(case(_cases()[name]), "small", ("", *phases(len(name))[1:]))


def main(start: int, stop: int, name: str = "") -> int:
    """Try seeds and list the failures by kind; the number of those that are no refusals."""
    kinds: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for seed in range(start, stop):
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                check_levels(seed, name)
        except Exception as error:
            frames = [f for f in traceback.extract_tb(error.__traceback__) if "/site-packages/" not in f.filename]
            text = f"{type(error).__name__} {Path(frames[-1].filename).name}:{frames[-1].lineno} {error}"
            refused = isinstance(error, CompileError) and error.code in REFUSALS
            key = f"refused: {error.code}" if refused else re.sub(r"[\d.e+-]+", "#", text)[:110]  # pyright: ignore
            kinds[key].append((seed, text[:600]))
        if seed % 100 == 99:
            print(f"… {seed}: {sum(map(len, kinds.values()))} failed or refused", flush=True)
    for key, found in sorted(kinds.items(), key=lambda x: -len(x[1])):
        print(f"{len(found)} × {key}  seeds {[seed for seed, _ in found[:8]]}\n      {found[0][1]}")
    failed = sum(len(found) for key, found in kinds.items() if not key.startswith("refused"))
    print(f"{stop - start} seeds, {failed} failed")
    return failed


if __name__ == "__main__":
    sys.exit(bool(main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])))
