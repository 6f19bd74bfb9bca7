"""The numbers that a program is run on while it is bisected and reduced: weights by key, inputs by name.

A program that is reduced gets inputs that it did not have, and other sizes. Seeds have an array for everything. Of
files and arrays, a new input is what the value in its place was when the whole program ran, if that was recorded, and
an array for a larger shape is cut.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass

from headrace.dialects.support.diagnostics import CompileError
from headrace.dialects.support.weights import WeightStore
from headrace.passes.infra.manager import PassBug
from headrace.tools.cli.common import random_array
from headrace.tools.debug import edits

if TYPE_CHECKING:
    import numpy as np

    from headrace.dialects.tensor.shapes import TT
    from headrace.tools.execution import Execution

    Array = np.ndarray[Any, np.dtype[Any]]

RANDOM = "random:0"
"""Weights and inputs unless told otherwise."""
LARGEST = 1 << 24
"""Most elements of a value that is recorded."""


@dataclass(frozen=True)
class Numbers:
    """Weights and inputs: a seed or a file, as headrace-opt takes them, or the arrays themselves."""

    weights: str | WeightStore = RANDOM
    inputs: str | Mapping[str, Array] = RANDOM
    tolerance: float | None = None
    """Allowed error over the largest magnitude; by element type when None."""

    @property
    def seeded(self) -> bool:
        """Whether seeds say everything."""
        return all(isinstance(x, str) and x.startswith("random:") for x in (self.weights, self.inputs))

    def execution(self, module: ModuleOp, explain: bool) -> Execution:
        """A check of results of a program, silent; it looks for the op at fault when it is to `explain`."""
        from headrace.tools.execution import Execution

        class Verdict(Execution):
            """Says only that results differ: looking for the op takes several runs."""

            def _blame(
                self, one: ModulePass, before: ModuleOp, module: ModuleOp, wrong: dict[str, Any], after: dict[str, Any]
            ) -> None:
                raise PassBug("changed-results", str(one), "changes the results")

        kind = Execution if explain else Verdict
        store, arrays = self.store(module), self.arrays(module)
        return kind(tolerance=self.tolerance, say=quiet, store=store, arrays=arrays)

    def store(self, module: ModuleOp) -> WeightStore:
        """The weights of a program."""
        from headrace.dialects.tensor.storage import weight_types
        from headrace.tools.execution import programs

        if isinstance(self.weights, str):
            found = programs.weights_of(module, self.weights)
            if self.weights.startswith("random:"):
                return found
        else:
            found = self.weights
        other = {key: type for key, type in weight_types(module).items() if _cut(found, key, type)}
        if not other:
            return found
        fitted = WeightStore()
        for key in found:
            if key in other:
                fitted.add(key, *other[key], lambda key=key: _fit(found.array(key), other[key]))
            else:
                fitted.add(key, found[key].shape, found[key].dtype, lambda key=key: found.array(key))
        return fitted

    def arrays(self, module: ModuleOp) -> dict[str, Array]:
        """The inputs of a program."""
        from headrace.tools.execution import programs

        if isinstance(self.inputs, str) and self.inputs.startswith("random:"):
            return programs.inputs_of(module, self.inputs)
        given = programs.inputs_of(module, self.inputs) if isinstance(self.inputs, str) else self.inputs
        found: dict[str, Array] = {}
        for name, type in programs.input_types(module).items():
            array = given.get(name)
            fits = array is not None and fitting(array, type)
            found[name] = _fit(array, type) if fits and array is not None else random_array(name, *type, 0)
        return found

    def recording(self, module: ModuleOp) -> Numbers:
        """These numbers with the values that ops of `module` have when it runs on them, by the names that the reducer
        gives. From seeds, and where nothing can be recorded, they stay as they are."""
        from headrace.dialects.tensor.interpreter import Interpreter
        from headrace.tools.execution import programs

        if self.seeded or not edits.is_tensor_program(module):
            return self
        named = module.clone()
        edits.name_values(named)
        found: dict[str, Array] = {}

        def record(op: Operation, results: tuple[Array, ...], calls: Sequence[Any]) -> None:
            for value, array in zip(op.results, results, strict=True):
                if not calls and value.name_hint is not None and array.size <= LARGEST:
                    found[value.name_hint] = array

        inputs = self.arrays(named)
        try:
            name = programs.entry_of(named).sym_name.data
            Interpreter(named, self.store(named), [record]).run(name, inputs)
        except CompileError:
            return self
        return replace(self, inputs={**found, **inputs})


def _cut(store: WeightStore, key: str, type: TT) -> bool:
    """Whether a weight has another shape in the store than a program wants, one that can be cut."""
    return key in store and store[key].shape != type.shape and store[key].dtype == type.dtype


def fitting(array: Array, type: TT) -> bool:
    """Whether an array has elements for a type."""
    from headrace.dialects.support.dtypes import from_numpy

    same = array.ndim == len(type.shape) and from_numpy(array.dtype) == type.dtype
    return same and all(have >= want for have, want in zip(array.shape, type.shape, strict=True))


def _fit(array: Array, type: TT) -> Array:
    """The first elements of an array in each dim."""
    return array[tuple(slice(n) for n in type.shape)]


def quiet(text: str) -> None:
    """Takes a line on what is going on, and says nothing."""
