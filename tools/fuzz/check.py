"""Compiles a program and compares the results of every level with those of the tensor program.

`check` runs passes, with the interpreters after each one, then the audit and the runtime: merged and literal, twice and
from the state that a run left, and through an artifact. What is computed in a lower precision agrees to that precision
with the tensor program, and is what later levels are compared with. `Disagreement` says which level computes something
else, `Unsound` what audit or runtime refuse; a `CompileError` is a refusal; anything else is a crash.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
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
from headrace.tools.execution.programs import in_types
from headrace.tools.fuzz.maker import Program
from headrace.tools.fuzz.nearby import TOLERANCE, Array, disagreement
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

    def variants(self, key: str, sockets: int) -> tuple[int, ...]:
        """None: random programs are for one socket."""
        return ()


@dataclass(frozen=True)
class _Reference:
    """A tensor program and its results: what every level is compared with. `least` is the tolerance of any float in a
    program that was lowered."""

    program: Program
    results: Results
    least: float = 0.0

    @staticmethod
    def of(program: Program, least: float = 0.0) -> _Reference:
        """A program as its ops mean it."""
        return _Reference(program, run_function(program.module, "main", program.inputs, program.store), least)

    def agree(self, found: Results, level: str, expected: Results | None = None) -> None:
        """Raise `Disagreement` when other results differ from these, or from those of another run."""
        if why := disagreement(self.results if expected is None else expected, found, self.least):
            raise Disagreement(f"{level}: {why}")

    def lowered(self, module: ModuleOp, one: ModulePass, rounds: str) -> _Reference:
        """The program as a pass lowered it, which is as near as its element type allows."""
        inputs = in_types(self.program.inputs, module)
        lowered = _Reference.of(self.program._replace(module=module.clone(), inputs=inputs), TOLERANCE[rounds])
        expected = {name: array.astype(lowered.results[name].dtype) for name, array in self.results.items()}
        lowered.agree(lowered.results, f"after {one}", expected)
        return lowered


def check(program: Program, setting: Setting, artifact: bool = False) -> None:
    """Run the passes of a setting on a program, and the program at every level. `artifact` takes it through a file."""
    reference = _Reference.of(program)
    module = program.module.clone()
    set_device(module, setting.device)
    passes = build(setting.pipeline)
    names = [one.name for one in passes]
    interpreted = names.index(UNITS) if UNITS in names else len(names)
    done = 0

    def compare(one: ModulePass, module: ModuleOp) -> None:
        nonlocal done, reference
        done += 1
        if rounds := getattr(one, "rounds", ""):
            reference = reference.lowered(module, one, rounds)
        changed = manager.records[-1].changed is not False  # an audit holds passes to what they say
        if setting.compared <= done <= interpreted and (changed or done == setting.compared):
            inputs, store = reference.program.inputs, reference.program.store
            reference.agree(run_dataflow(module, inputs, store, debug=True), f"after {one}")

    manager = PassManager(context(), passes, Watch(verify_each=setting.audited, check=compare))
    manager.run(module)
    if interpreted < len(names):
        try:
            _check_units(reference, module, artifact)
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


def _check_units(reference: _Reference, module: ModuleOp, artifact: bool) -> None:
    """Audit a routed program, run it and compare."""
    audit_units(module)
    program, inputs = reference.program, reference.program.inputs
    routed, weights = encode(module), _Weights(module, program)
    merged = Executable(routed, weights)
    for _ in range(2):  # the second run meets what the first left in memory
        reference.agree(_run(merged, routed, inputs), "merged")
    if routed.states:
        later = {**inputs, **{past: reference.results[present] for past, present in routed.states}}
        expected = run_function(program.module, "main", later, program.store)
        reference.agree(_run(merged, routed, inputs, reset=False), "merged, from the state that it left", expected)
    reference.agree(_run(Executable(routed, weights, literal=True), routed, inputs), "literal")
    if artifact:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "fuzz.sn"
            write_artifact(path, routed, weights, compiler=VERSION)
            found = open_artifact(path)
            reference.agree(_run(Executable(found.program, found), found.program, inputs), "read from an artifact")


def _run(exe: Executable, program: Runnable, inputs: Results, reset: bool = True) -> Results:
    """One run from the state that `inputs` gives, or (`reset` false) from the state that the run before left."""
    states = dict(program.states)
    if reset:
        exe.reset({name: inputs[name] for name in states})
    found = exe({name: array for name, array in inputs.items() if name not in states})
    state = exe.state()
    found.update((present, state[past]) for past, present in states.items())
    return {port.name: found[port.name] for port in program.outputs}
