"""Checks folds to the bit: a constant that takes the place of an op on constants must be what the op means.

An error of one rounding in a constant is within every tolerance of a program's results, and still a wrong fold.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Operation, OpResult, SSAValue

from headrace.dialects.support import locations
from headrace.dialects.tensor.base import TensorOp, attributes_of
from headrace.dialects.tensor.storage import ConstantOp, WeightOp
from headrace.tools.execution.deviation import Deviation, deviation

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

Place = tuple[Attribute, Attribute]
"""Location and type of a value."""


@dataclass(frozen=True)
class WrongFold:
    """A constant that is not what the op means whose place it takes."""

    op: str
    location: str
    deviation: Deviation


def wrong_fold(before: ModuleOp, after: ModuleOp) -> WrongFold | None:
    """The first constant of a program that takes the place (location and type) of an op on constants of the program
    before and is equal to the result of none such; None when all folds are right. Evaluates only what was folded."""
    was, now = _on_constants(before), _on_constants(after)
    places = {place for place, found in was.items() if len(found) > len(now.get(place, ()))}
    if not places:
        return None
    known = _constants(before, places)
    values: dict[Operation, tuple[Array, ...]] = {}
    for place, constants in _constants(after, places).items():
        folded = was[place]
        right = [_evaluate(value, values) for value in folded]
        for constant in constants:
            array = constant.array()
            if any(_equal(array, x) for x in (*right, *(c.array() for c in known.get(place, ())))):
                continue
            nearest = min(range(len(right)), key=lambda k: deviation(array, right[k]).absolute)
            op = folded[nearest].owner
            assert isinstance(op, Operation)
            return WrongFold(op.name, locations.of(op), deviation(array, right[nearest]))
    return None


def _on_constants(module: ModuleOp) -> dict[Place, list[SSAValue]]:
    """Results of ops that depend on constants alone, by place."""
    found: dict[Place, list[SSAValue]] = defaultdict(list)
    fixed: set[Operation] = set()
    for op in module.walk():
        if type(op) is ConstantOp:
            fixed.add(op)
        elif isinstance(op, TensorOp) and type(op) is not WeightOp and all(x.owner in fixed for x in op.operands):
            fixed.add(op)
            for result in op.results:
                found[op.location, result.type].append(result)
    return found


def _constants(module: ModuleOp, places: set[Place]) -> dict[Place, list[ConstantOp]]:
    found: dict[Place, list[ConstantOp]] = defaultdict(list)
    for op in module.walk():
        if type(op) is ConstantOp and (op.location, op.result.type) in places:
            found[op.location, op.result.type].append(op)
    return found


def _evaluate(value: SSAValue, values: dict[Operation, tuple[Array, ...]]) -> Array:
    """What a value that depends on constants alone means."""
    import numpy as np

    from headrace.dialects.tensor import meaning

    todo = [value.owner]
    while todo:
        op = todo[-1]
        assert isinstance(op, Operation)
        missing = [x.owner for x in op.operands if x.owner not in values]
        if missing:
            todo += missing
            continue
        todo.pop()
        if isinstance(op, ConstantOp):
            values[op] = (op.array(),)
        elif op not in values:
            operands = [_of(x, values) for x in op.operands]
            with np.errstate(all="ignore"):
                values[op] = meaning.evaluate(op.name, attributes_of(op), *operands)
    return _of(value, values)


def _of(value: SSAValue, values: Mapping[Operation, tuple[Array, ...]]) -> Array:
    assert isinstance(value, OpResult)
    return values[value.op][value.index]


def _equal(a: Array, b: Array) -> bool:
    import numpy as np

    return a.dtype == b.dtype and bool(np.array_equal(a, b, equal_nan=a.dtype.kind not in "iub"))
