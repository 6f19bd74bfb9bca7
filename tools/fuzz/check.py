"""Compiles a program and compares the results of every level with those of the tensor program.

`check` runs passes, with the interpreters after each one, then the audit and the runtime: merged and literal, twice and
from the state that a run left, and through an artifact. `Disagreement` says which level computes something else,
`Unsound` what audit or runtime refuse; a `CompileError` is a refusal; anything else is a crash.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from headrace.backend.encode import encode
from headrace.backend.writer import write_artifact
from headrace.dialects.dataflow.interpreter import run_dataflow
from headrace.dialects.machine.attributes import set_device
from headrace.dialects.support.diagnostics import CompileError, Diagnostic
from headrace.dialects.tensor.interpreter import evaluate_recipe, run_function
from headrace.passes.infra.manager import PassManager, Watch
from headrace.passes.infra.registry import build
from headrace.runtime.artifact import open_artifact
from headrace.runtime.program import Program as Runnable
from headrace.runtime.session import Executable
from headrace.tools.audit import audit
from headrace.tools.fuzz.maker import Program
from headrace.tools.fuzz.nearby import Array, disagreement
from headrace.tools.fuzz.settings import UNITS, Setting
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


def check(program: Program, setting: Setting, artifact: bool = False) -> None:
    """Run the passes of a setting on a program, and the program at every level. `artifact` takes it through a file."""
    inputs, store = program.inputs, program.store
    expected = run_function(program.module, "main", inputs, store)
    module = program.module.clone()
    set_device(module, setting.device)
    passes = build(setting.pipeline)
    names = [one.name for one in passes]
    interpreted = names.index(UNITS) if UNITS in names else len(names)
    done = 0

    def compare(one: ModulePass, module: ModuleOp) -> None:
        nonlocal done
        done += 1
        changed = manager.records[-1].changed is not False  # an audit holds passes to what they say
        if setting.compared <= done <= interpreted and (changed or done == setting.compared):
            agree(expected, run_dataflow(module, inputs, store, debug=True), f"after {one}")

    manager = PassManager(context(), passes, Watch(verify_each=setting.audited, check=compare))
    manager.run(module)
    if interpreted < len(names):
        try:
            _check_units(program, expected, module, artifact)
        except CompileError as error:
            raise Unsound(error.diagnostics) from error


class Unsound(Exception):
    """The audit or the runtime refuses a program that the passes made: unlike a refusal of a pass that is a bug."""

    def __init__(self, found: Sequence[Diagnostic]) -> None:
        self.codes = sorted({one.code for one in found})
        super().__init__("; ".join(f"{one.code}: {one.what}" for one in found))


def audit_units(module: ModuleOp) -> None:
    """Raise `Unsound` when the audit refuses a routed program."""
    if found := audit(module).diagnostics:
        raise Unsound(found)


def _check_units(program: Program, expected: Results, module: ModuleOp, artifact: bool) -> None:
    """Audit a routed program, run it and compare."""
    audit_units(module)
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


def _run(exe: Executable, program: Runnable, inputs: Results, reset: bool = True) -> Results:
    """One run from the state that `inputs` gives, or (`reset` false) from the state that the run before left."""
    states = dict(program.states)
    if reset:
        exe.reset({name: inputs[name] for name in states})
    found = exe({name: array for name, array in inputs.items() if name not in states})
    state = exe.state()
    found.update((present, state[past]) for past, present in states.items())
    return {port.name: found[port.name] for port in program.outputs}
