"""Runs a program at every level of the compiler and compares the results with those of the tensor interpreter.

`check_pipeline` maps a program to units: interpreters after each pass, then the runtime, merged and literal, twice and
from the state that a run left, and through an artifact. `check_pass` runs one pass with what it needs before it.
`Disagreement` says which level computes something else; a `CompileError` is a refusal; anything else is a crash.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from headrace.backend.encode import encode
from headrace.backend.writer import write_artifact
from headrace.dialects.dataflow.interpreter import run_dataflow
from headrace.dialects.machine.attributes import set_device
from headrace.dialects.machine.device import Device
from headrace.dialects.tensor.interpreter import evaluate_recipe, run_function
from headrace.passes import pipelines
from headrace.passes.infra.manager import PassManager, Watch
from headrace.passes.infra.registry import available, build
from headrace.runtime.artifact import open_artifact
from headrace.runtime.program import Program as Runnable
from headrace.runtime.session import Executable
from headrace.tools.fuzz.maker import Program
from headrace.tools.fuzz.nearby import Array, disagreement
from headrace.tools.fuzz.settings import random_options, random_pipeline
from headrace.tools.opt import context
from headrace.version import VERSION

Results = dict[str, Array]


class Disagreement(Exception):
    """A level computes something else than the tensor program says."""


class _Weights:
    """The weights of a program that was compiled to `module`: those of its store, and derived ones."""

    def __init__(self, module: ModuleOp, program: Program) -> None:
        self.module, self.store = module, program.store

    def array(self, key: str) -> Array:
        return evaluate_recipe(self.module, key, self.store)


def agree(expected: Results, found: Results, level: str) -> None:
    """Raise `Disagreement` when two sets of results differ."""
    if why := disagreement(expected, found):
        raise Disagreement(f"{level}: {why}")


def check_pipeline(program: Program, device: Device, phases: tuple[str, str, str], artifact: bool = False) -> Runnable:
    """Map a program for a device by three pipelines (the first may be empty), and run it at every level."""
    inputs, store = program.inputs, program.store
    expected = run_function(program.module, "main", inputs, store)
    module = program.module.clone()
    set_device(module, device)
    tensor, dataflow, rdu = phases

    def interpret(run: Callable[[ModuleOp], Results]) -> Watch:
        def check(one: ModulePass, module: ModuleOp) -> None:
            agree(expected, run(module), f"after {one}")

        return Watch(verify_each=True, check=check)

    ctx = context()
    at_tensor = interpret(lambda module: run_function(module, "main", inputs, store))
    PassManager(ctx, build(tensor) if tensor else (), at_tensor).run(module)
    at_dataflow = interpret(lambda module: run_dataflow(module, inputs, store, debug=True))
    PassManager(ctx, build(dataflow), at_dataflow).run(module)
    PassManager(ctx, build(rdu), Watch(verify_each=True)).run(module)
    return _check_units(program, expected, module, artifact)


def _check_units(program: Program, expected: Results, module: ModuleOp, artifact: bool) -> Runnable:
    """Run a routed program and compare."""
    inputs = program.inputs
    routed, weights = encode(module), _Weights(module, program)
    merged = Executable(routed, weights)
    for _ in range(2):  # the second run meets what the first left in memory
        agree(expected, _run(merged, routed, inputs), "merged")
    if routed.states:
        later = {**inputs, **{past: expected[present] for past, present in routed.states}}
        expected_later = run_function(program.module, "main", later, program.store)
        agree(expected_later, _run(merged, routed, inputs, reset=False), "merged, from the state that it left")
    agree(expected, _run(Executable(routed, weights, literal=True), routed, inputs), "literal")
    if artifact:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "fuzz.sn"
            write_artifact(path, routed, weights, compiler=VERSION)
            found = open_artifact(path)
            agree(expected, _run(Executable(found.program, found), found.program, inputs), "read from an artifact")
    return routed


def _run(exe: Executable, program: Runnable, inputs: Results, reset: bool = True) -> Results:
    """One run from the state that `inputs` gives, or (`reset` false) from the state that the run before left."""
    states = dict(program.states)
    if reset:
        exe.reset({name: inputs[name] for name in states})
    found = exe({name: array for name, array in inputs.items() if name not in states})
    state = exe.state()
    found.update((present, state[past]) for past, present in states.items())
    return {port.name: found[port.name] for port in program.outputs}


def phases(rng: random.Random) -> tuple[str, str, str]:
    """Pipelines with options at random. Programs meet the dataflow passes optimized, as they are, or after a few
    tensor passes in any order; passes on sections that only make things better are left out now and then."""
    tensor = random_pipeline(pipelines.TENSOR, rng)
    if rng.random() < 0.4:
        names = [name for name in pipelines.TENSOR if rng.random() < 0.4] if rng.random() < 0.5 else []
        rng.shuffle(names)
        tensor = random_pipeline(names, rng)
    optional = ("fuse-stages", "narrow-joins", "choose-layouts")
    dataflow = [name for name in pipelines.DATAFLOW if name not in optional or rng.random() < 0.8]
    return tensor, random_pipeline(dataflow, rng), random_pipeline(pipelines.RDU, rng)


def check_pass(program: Program, device: Device, name: str, rng: random.Random) -> None:
    """Run one pass, with options at random, on a program that has come as far as the pass needs, twice where it stays
    at its level; then to the end where units have to run."""
    inputs, store = program.inputs, program.store
    expected = run_function(program.module, "main", inputs, store)
    module = program.module.clone()
    set_device(module, device)
    ctx, passes = context(), available()
    text = name + random_options(passes[name](), rng, 0.5)
    before, behind = _around(name, rng)
    if name in pipelines.TENSOR:
        before = [one for one in pipelines.TENSOR if rng.random() < 0.2]
        rng.shuffle(before)
        text += f",{text}"
    PassManager(ctx, build(",".join(before)) if before else (), Watch(verify_each=True)).run(module)

    def check(one: ModulePass, module: ModuleOp) -> None:
        agree(expected, run_dataflow(module, inputs, store, debug=True), f"after {one}")

    if name in pipelines.RDU:
        rest = f"{text},{','.join(behind)}" if behind else text
        PassManager(ctx, build(rest), Watch(verify_each=True)).run(module)
        _check_units(program, expected, module, artifact=False)
    else:
        check(build(text)[0], module)
        PassManager(ctx, build(text), Watch(verify_each=True, check=check)).run(module)


def _around(name: str, rng: random.Random) -> tuple[list[str], list[str]]:
    """The passes that the default pipeline runs before the first and behind the last run of one."""
    order = [*(pipelines.TENSOR if rng.random() < 0.5 else ()), *pipelines.DATAFLOW, *pipelines.RDU]
    if name not in order:
        return [], order
    return order[: order.index(name)], order[order.index(name) + 1 :]


def all_passes() -> tuple[str, ...]:
    """The names of all passes that `check_pass` can run: those of the default pipeline."""
    return tuple(dict.fromkeys((*pipelines.TENSOR, *pipelines.DATAFLOW, *pipelines.RDU)))
