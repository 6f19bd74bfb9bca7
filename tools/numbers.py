"""Runs a program before and after each pass and compares the results: which pass changed the numbers?

Inputs and weights come from files or from a seed. A level is run by its reference interpreter; a module that none of
them can run is passed over and named, so that nobody takes it for checked.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from headrace.dialects.support.diagnostics import CompileError
from headrace.passes.infra.manager import PassBug

if TYPE_CHECKING:
    import numpy as np
    from xdsl.dialects.func import FuncOp

    from headrace.dialects.rdu.program import ProgramOp

    Array = np.ndarray[Any, np.dtype[Any]]

TOLERANCE = {"f64": 1e-9, "f32": 1e-4, "f16": 2e-2, "bf16": 1e-1}
"""Largest error over the largest magnitude of the reference, by element type; integers agree exactly."""


@dataclass
class Numbers:
    """The inputs and weights of a program, and its results before the first pass."""

    weights: str = "random:0"
    """A weight file or an artifact, or `random:SEED`."""
    inputs: str = "random:0"
    """An .npz file with an array per input, or `random:SEED`."""
    say: Callable[[str], None] = print
    """Takes one line on what was compared."""
    store: Any = None
    arrays: dict[str, Array] = field(default_factory=dict[str, "Array"])
    before: dict[str, Array] = field(default_factory=dict[str, "Array"])

    def start(self, module: ModuleOp) -> None:
        """Run the program as it stands; `CompileError` when it cannot be run."""
        self.store = self._weights(module)
        self.arrays = self._inputs(module)
        self.before = self._run(module)

    def check(self, one: ModulePass, module: ModuleOp) -> None:
        """Run the program after pass `one`; `PassBug` when the results differ."""
        try:
            after = self._run(module)
        except CompileError as error:
            if error.code != "not-interpretable":
                raise
            self.say(f"numbers after {one.name}: not checked, {error.what}")
            return
        if set(after) != set(self.before):
            was, now = sorted(self.before), sorted(after)
            raise PassBug("changed-results", str(one), f"changed the results: {was} became {now}")
        worst = max((difference(self.before[name], after[name], name, str(one)) for name in after), default=0.0)
        self.say(f"numbers after {one.name}: largest error {worst:.1e}")

    def _run(self, module: ModuleOp) -> dict[str, Array]:
        from headrace.dialects.dataflow.interpreter import DataflowInterpreter  # runs tensor programs as well

        if _program(module) is not None:
            return self._run_units(module)
        name = _entry(module).sym_name.data
        return DataflowInterpreter(module, self.store).run(name, self.arrays)

    def _run_units(self, module: ModuleOp) -> dict[str, Array]:
        """The results of a routed program, in the runtime; states under the names of their results."""
        from headrace.backend.encode import encode
        from headrace.compiler import ModelWeights
        from headrace.runtime.session import Executable

        try:
            program = encode(module)
        except CompileError as error:
            if error.code != "not-routed":
                raise
            raise CompileError(
                "not-interpretable",
                "units run once they are routed",
                fix="begin with IR of the tensor or the dataflow level",
            ) from None
        exe = Executable(program, ModelWeights(module, self.store))
        states = dict(program.states)
        exe.reset({name: array for name, array in self.arrays.items() if name in states})
        results = dict(exe({name: array for name, array in self.arrays.items() if name not in states}))
        return results | {states[past]: array for past, array in exe.state().items()}

    def _weights(self, module: ModuleOp) -> Any:
        from headrace.compiler import weight_store
        from headrace.dialects.support import weights
        from headrace.dialects.tensor.base import tt
        from headrace.dialects.tensor.storage import RecipeOp, WeightOp

        seed = _seed(self.weights, "--weights")
        if seed is None:
            return weight_store(self.weights)
        derived = {op.key for op in module.walk() if isinstance(op, RecipeOp)}
        used = {op.key.data: tt(op.results[0]) for op in module.walk() if isinstance(op, WeightOp)}
        program = _program(module)
        if program is not None:
            used |= {op.key.data: tt(op.type) for op in program.regions_ if op.kind.data == "weight"}
        return weights.random({key: (of.shape, of.dtype) for key, of in used.items() if key not in derived}, seed)

    def _inputs(self, module: ModuleOp) -> dict[str, Array]:
        from headrace.dialects.tensor.base import tt
        from headrace.dialects.tensor.program import signature

        seed = _seed(self.inputs, "--inputs")
        if seed is None:
            return _load(self.inputs)
        program = _program(module)
        if program is not None:
            types = {op.title.data: tt(op.type) for op in program.ports if op.kind.data == "input"}
        else:
            func = _entry(module)
            types = dict(zip(signature(func).inputs, map(tt, func.body.block.args), strict=True))
        return {name: _random(*of, zlib.crc32(name.encode()) + seed) for name, of in types.items()}


def _program(module: ModuleOp) -> ProgramOp | None:
    """The program of a module at the rdu level."""
    from headrace.dialects.rdu.program import ProgramOp

    return next((op for op in module.body.block.ops if isinstance(op, ProgramOp)), None)


def _entry(module: ModuleOp) -> FuncOp:
    """The function to run; `CompileError` when there is none."""
    from headrace.dialects.tensor.program import entry

    try:
        return entry(module)
    except KeyError:
        raise CompileError(
            "no-entry", "there is nothing to run", why="the module has no function @main", fix="name the function @main"
        ) from None


def difference(reference: Array, found: Array, name: str, after: str) -> float:
    """The error of one result over the reference's largest magnitude; `PassBug` when it is out of tolerance."""
    import numpy as np

    from headrace.dialects.support.dtypes import from_numpy

    if reference.shape != found.shape or reference.dtype != found.dtype:
        was, now = (f"{from_numpy(a.dtype)}{list(a.shape)}" for a in (reference, found))
        raise PassBug("changed-results", after, f"changed the type of result '{name}' from {was} to {now}")
    if not reference.size:
        return 0.0
    limit = TOLERANCE.get(from_numpy(reference.dtype), 0.0)
    want, have = reference.astype(np.float64), found.astype(np.float64)
    with np.errstate(invalid="ignore"):
        error = np.where((want == have) | (np.isnan(want) & np.isnan(have)), 0.0, np.abs(want - have))
    scale = float(np.max(np.abs(want), where=np.isfinite(want), initial=0.0)) or 1.0
    worst = np.unravel_index(int(np.argmax(np.nan_to_num(error, nan=np.inf))), error.shape)
    relative = float(np.nan_to_num(error[worst], nan=np.inf)) / scale
    if relative > limit:
        place = ", ".join(map(str, worst))
        raise PassBug(
            "changed-results",
            after,
            f"changes the numbers: result '{name}'[{place}] was {want[worst]:.9g} and is {have[worst]:.9g}; "
            f"error over largest magnitude {relative:.1e}, allowed {limit:.0e}",
        )
    return relative


def _seed(text: str, flag: str) -> int | None:
    """The seed of `random:SEED`, None for anything else."""
    if not text.startswith("random:"):
        return None
    number = text.removeprefix("random:")
    if not number.isdecimal():
        raise CompileError("bad-option", f"{flag} {text}: the seed is not a number", fix=f"{flag} random:0")
    return int(number)


def _load(path: str) -> dict[str, Array]:
    import numpy as np

    try:
        with np.load(Path(path), allow_pickle=False) as file:
            loaded: Mapping[str, Array] = dict(file)
    except (OSError, ValueError) as error:
        raise CompileError("cannot-read", f"{path}: {error}", fix="--inputs takes an .npz file") from None
    return dict(loaded)


def _random(shape: tuple[int, ...], dtype: str, seed: int) -> Array:
    """Floats are standard normal; integers are 0 or 1, which are indices into anything that has two elements."""
    import numpy as np

    from headrace.dialects.support.dtypes import to_numpy

    generator = np.random.default_rng(seed)
    if dtype.startswith(("f", "bf")):
        return generator.standard_normal(shape).astype(to_numpy(dtype))
    return generator.integers(0, 2, shape).astype(to_numpy(dtype))
