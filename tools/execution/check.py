"""Runs a program before and after each pass and compares: which pass, and which op of it, changes the results?

    execution = Execution(weights="model.sn", inputs="x.npz")
    execution.start(module)
    PassManager(ctx, passes, Watch(check=execution.check)).run(module)

A pass that leaves the program as it is, or only decides where units stand and words travel, needs no run; that is found
out, not believed, and routes are held to the runtime's rules. A module that nothing can run is passed over and named,
so that nobody takes it for checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from headrace.dialects.support.diagnostics import CompileError
from headrace.passes.infra.manager import PassBug
from headrace.tools.execution.deviation import TOLERANCE, Deviation, deviation
from headrace.tools.execution.folds import wrong_fold
from headrace.tools.execution.programs import check_routes, in_types, inputs_of, run, unplaced, weights_of

if TYPE_CHECKING:
    import numpy as np

    from headrace.dialects.support.weights import WeightStore
    from headrace.tools.execution.first import First

    Array = np.ndarray[Any, np.dtype[Any]]


@dataclass
class Execution:
    """The inputs and weights of a program, the program before the pass that runs, and the results of it and of the
    program before the first pass."""

    weights: str = "random:0"
    """A weight file, an artifact, an .onnx model, or `random:SEED`."""
    inputs: str = "random:0"
    """An .npz file with an array per input, or `random:SEED`."""
    tolerance: float | None = None
    """Allowed error over the largest magnitude; by element type when None."""
    say: Callable[[str], None] = print
    """Takes one line on what was compared."""
    store: WeightStore | None = None
    """The weights themselves, if at hand."""
    arrays: Mapping[str, Array] | None = None
    """The inputs themselves, if at hand."""
    first: dict[str, Array] = field(default_factory=dict[str, "Array"])
    last: dict[str, Array] = field(default_factory=dict[str, "Array"])
    before: ModuleOp | None = None

    def start(self, module: ModuleOp) -> None:
        """Run the program as it stands; `CompileError` when it cannot be run."""
        self.store = self.store if self.store is not None else weights_of(module, self.weights)
        self.arrays = self.arrays if self.arrays is not None else inputs_of(module, self.inputs)
        self.first = self.last = run(module, self.store, self.arrays)
        self.before = unplaced(module)

    def check(self, one: ModulePass, module: ModuleOp) -> None:
        """Run the program after pass `one`; `PassBug` when the results differ, which names the op."""
        before, store, arrays = self._started()
        try:
            check_routes(module)
        except CompileError as error:
            lines = [x.what for x in error.diagnostics]
            raise PassBug("invalid-ir", str(one), "makes a program that the runtime refuses", details=lines) from error
        computed = unplaced(module)
        if _same(before, computed):
            self.say(f"execution after {one.name}: the program is the same")
            return
        self._check_folds(one, before, module)
        rounds = getattr(one, "rounds", "")
        if rounds:  # from here on sums in another order may round to another neighbour of that type
            self.tolerance = TOLERANCE[rounds] if self.tolerance is None else self.tolerance
            arrays = self.arrays = in_types(arrays, module)
        try:
            after = run(module, store, arrays)
        except CompileError as error:
            if error.code != "not-interpretable":
                raise
            self.say(f"execution after {one.name}: not checked, {error.what}")
            self.before = computed
            return
        if set(after) != set(self.first):
            raise PassBug("changed-results", str(one), f"makes results {sorted(after)} of {sorted(self.first)}")
        if rounds:  # the program's ports may have another type, too
            self.first = {name: array.astype(after[name].dtype) for name, array in self.first.items()}
        found = {name: deviation(after[name], self.first[name], self.tolerance) for name in after}
        wrong = {name: one for name, one in found.items() if not one.ok}
        if wrong:
            self._blame(one, before, module, wrong, after)
        worst = max(found.values(), key=lambda x: x.relative, default=None)
        self.say(
            f"execution after {one.name}: "
            + (f"rel {worst.relative:.1e}, {worst.ulp} ulp" if worst and worst.absolute else "the results are the same")
        )
        self.last, self.before = after, computed
        if rounds:
            self.first = after

    def _started(self) -> tuple[ModuleOp, WeightStore, Mapping[str, Array]]:
        assert self.before is not None and self.store is not None and self.arrays is not None, "started"
        return self.before, self.store, self.arrays

    def _check_folds(self, one: ModulePass, before: ModuleOp, module: ModuleOp) -> None:
        fold = wrong_fold(before, module)
        if fold is not None:
            raise PassBug(
                "changed-results",
                str(one),
                f"folds '{fold.op}' to another value than it has",
                op=fold.op,
                location=fold.location,
                details=[f"constant {fold.deviation}"],
            )

    def _blame(
        self,
        one: ModulePass,
        before: ModuleOp,
        module: ModuleOp,
        wrong: dict[str, Deviation],
        after: dict[str, Array],
    ) -> None:
        """Raise with the op that deviates first."""
        details = [f"result '{name}'{found}" for name, found in wrong.items()]
        alone = [deviation(after[name], self.last[name], self.tolerance) for name in wrong]
        if all(x.ok for x in alone):
            most = max(x.relative for x in alone)
            details.append(f"the error has grown over several passes; rel {most:.1e} of it is of this one")
        first = self._first(before, module, list(wrong)) if any(not x.ok for x in alone) else None
        op = location = ""
        if first is not None:
            details += self._kernel(module, first)
            op, location = first.value.op, first.value.location
            others = (first.reference.op, first.reference.location)
            was = "" if others == (op, location) or not others[0] else f" (before: '{others[0]}' at {others[1]})"
            details.append(f"first op that deviates: '{op}' at {location}{was}{first.deviation}")
            if first.value.within:
                details.append(f"it is made through ops whose values are not seen: {', '.join(first.value.within)}")
        raise PassBug("changed-results", str(one), "changes the results", op=op, location=location, details=details)

    def _kernel(self, module: ModuleOp, first: First) -> list[str]:
        """A line where not the pass is wrong, but what the runtime does with a unit."""
        from headrace.tools.execution.levels import kernel_fault

        _, store, arrays = self._started()
        fault = kernel_fault(module, store, arrays, first.key, {}, self.tolerance) if first.key is not None else None
        if fault is None:
            return []
        return [
            f"not the pass is wrong but the runtime: it computes '{fault[0]}' at {fault[1]} otherwise than it means"
        ]

    def _first(self, before: ModuleOp, module: ModuleOp, wrong: list[str]) -> First | None:
        from headrace.tools.execution.first import first_deviation
        from headrace.tools.execution.trace import trace

        _, store, arrays = self._started()
        reference, found = (trace(x, store, arrays, inside=True) for x in (before, module))
        return first_deviation(reference, found, wrong, self.tolerance)


def _same(before: ModuleOp, after: ModuleOp) -> bool:
    """Whether two programs are the same but for locations and what stands on the module (the passes that ran, say)."""
    types = ([result.type for op in module.walk() for result in op.results] for module in (before, after))
    return before.body.is_structurally_equivalent(after.body) and next(types) == next(types)
