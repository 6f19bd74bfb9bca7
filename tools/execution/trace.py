"""Every value that a program makes when it runs, with its op, its model location and what it was made from.

At the tensor level these are the results of ops, at the dataflow level whole tensors put together from the tiles of
stages and of the ops inside them, at the rdu level those of the units.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import CallOp
from xdsl.ir import BlockArgument, Operation, SSAValue

from headrace.dialects.dataflow.interpreter import DataflowInterpreter
from headrace.dialects.dataflow.ops import ScatterOp, SectionOp, StageOp, StoreOp, YieldOp
from headrace.dialects.support import locations
from headrace.dialects.tensor.storage import WeightOp
from headrace.tools.execution.programs import entry_of, units_of

if TYPE_CHECKING:
    import numpy as np

    from headrace.dialects.support.locations import Location
    from headrace.dialects.support.weights import WeightStore

    Array = np.ndarray[Any, np.dtype[Any]]

Place = str
"""One place in the model: the name of a node."""


@dataclass(frozen=True)
class Value:
    """One array that an op made. `inputs` are numbers of the values before that it was made from; program inputs have
    none. `places` are those in the model that its op stands for, in order: the last one is the one whose result it
    is."""

    op: str
    location: str
    places: tuple[Place, ...]
    array: Array
    inputs: tuple[int, ...]
    within: tuple[str, ...] = ()
    """The ops whose chain makes it, with their places, where what goes from one to the next is not seen."""


MOST = 3
"""Places that are shown of an op that stands for many."""
Key = tuple[tuple[Operation, ...], SSAValue]
"""A value of a program in the calls around it."""


@dataclass
class Trace:
    """The values of one run in the order in which they were made."""

    values: list[Value] = field(default_factory=list[Value])
    numbers: dict[Key, int] = field(default_factory=dict[Key, int])
    results: dict[str, int | None] = field(default_factory=dict[str, "int | None"])
    """The number of each result by name; None when it is an input as it came."""
    arrays: dict[str, Array] = field(default_factory=dict[str, "Array"])
    """The results themselves."""

    def key(self, number: int) -> Key | None:
        """A key of a value; None of one that stands for several."""
        return next((key for key, found in self.numbers.items() if found == number), None)


def trace(
    module: ModuleOp,
    store: WeightStore,
    inputs: Mapping[str, Array],
    instead: Mapping[Key, Array] | None = None,
    inside: bool = False,
) -> Trace:
    """Run a program at whatever level it is and keep every value. Those that use a value which is in `instead` get what
    is given there, while the trace keeps what was made. `inside` adds what goes from op to op inside of units, as the
    ops mean it: the runtime puts it nowhere."""
    if units_of(module) is not None:
        from headrace.tools.execution.units import trace_units

        return trace_units(module, store, inputs, instead or {}, inside)
    tracer = _Tracer(module, store, instead or {})
    found = tracer.trace
    found.arrays = tracer.run(entry_of(module).sym_name.data, inputs)
    found.results = {name: tracer.number(array) for name, array in found.arrays.items()}
    return found


@dataclass(frozen=True)
class Call:
    """A call that runs: its location, and the places in the model that it stands for."""

    op: Operation
    text: str
    places: frozenset[Place]

    @classmethod
    def of(cls, op: Operation, location: Location) -> Call:
        """A call that `op` makes."""
        return cls(op, locations.text(location), frozenset(locations.nodes(location)))


def placed(location: Location, around: Sequence[Call]) -> tuple[str, tuple[Place, ...]]:
    """A location in calls, outermost first: as text, and the places in the model that it stands for. An op of a
    function that stands for several layers has the places of all, and a call those of its layer."""
    places = tuple(dict.fromkeys(locations.nodes(location)))
    if not around:
        return locations.text(location), places
    for call in reversed(around):
        here = tuple(x for x in places if x in call.places)
        places = here or tuple(f"{x} in {call.text}" for x in places)
    return " + ".join(places[:MOST]) + (f" + {len(places) - MOST} more" if len(places) > MOST else ""), places


class _Tracer(DataflowInterpreter):
    """Runs tensor and dataflow programs. Arrays go from op to op as they are, so that an array tells who made it."""

    def __init__(self, module: ModuleOp, store: WeightStore, instead: Mapping[Key, Array]) -> None:
        super().__init__(module, store)
        self.trace = Trace()
        self._given = instead
        self._makers: dict[int, int] = {}  # id of an array, which the trace keeps → number of its value
        self._around: list[Call] = []
        self._inside: dict[SSAValue, tuple[int, ...]] = {}  # values of the section that runs → numbers

    def number(self, array: Array) -> int | None:
        """The number of the value that an array is."""
        return self._makers.get(id(array))

    # What the interpreter asks

    @property
    def watched(self) -> bool:
        return True

    def instead(self, value: SSAValue) -> Array | None:
        return self._given.get(self._key(value))

    def _op(self, op: Operation, operands: list[Array]) -> tuple[Array, ...]:
        if isinstance(op, CallOp):
            self._around.append(Call.of(op, op.location))
            try:
                return super()._op(op, operands)
            finally:
                self._around.pop()
        if isinstance(op, SectionOp):
            return self._section(op, operands)
        inputs = self._numbers(operands)
        results = super()._op(op, operands)
        if isinstance(op, WeightOp):
            inputs = self._numbers(results)  # of its recipe
        return tuple(self._add(op, value, x, inputs) for value, x in zip(op.results, results, strict=True))

    def _section(self, op: SectionOp, operands: list[Array]) -> tuple[Array, ...]:
        outer = self._inside
        self._inside = {a: self._numbers([x]) for a, x in zip(op.body.block.args, operands, strict=True)}
        results = super()._op(op, operands)
        end = op.body.block.last_op
        assert isinstance(end, YieldOp)
        made: dict[SSAValue, tuple[int, ...]] = {}
        for inner in op.body.block.ops:
            if isinstance(inner, StoreOp | ScatterOp):
                made[inner.tensor] = self._sources(inner.operands)
        inputs = [made.get(value, self._inside.get(value, ())) for value in end.values]
        self._inside = outer
        return tuple(self._add(op, v, x, i) for v, x, i in zip(op.results, results, inputs, strict=True))

    def observe(self, op: Operation, arrays: tuple[Array, ...]) -> None:
        """Take the whole tensors of a stage, or of an op inside one."""
        inputs = self._sources(op.operands)
        for k, (value, array) in enumerate(zip(op.results, arrays, strict=True)):
            inner = _sent(op, k) if isinstance(op, StageOp) else value
            if inner is not value and inner in self._inside:  # what the stage sends is what an op inside made
                (self.trace.numbers[self._key(value)],) = self._inside[value] = self._inside[inner]
                continue
            maker = inner.owner
            self._add(maker if isinstance(maker, Operation) else op, value, array, inputs)
            self._inside[value] = (len(self.trace.values) - 1,)

    # The graph

    def _numbers(self, arrays: Iterable[Array]) -> tuple[int, ...]:
        found = [self._makers.get(id(array)) for array in arrays]
        return tuple(dict.fromkeys(x for x in found if x is not None))

    def _sources(self, values: Iterable[SSAValue]) -> tuple[int, ...]:
        """Numbers of the nearest known values that values of a section come from."""
        found: dict[int, None] = {}
        todo, seen = list(values), set[SSAValue]()
        while todo:
            value = todo.pop()
            if value in seen:
                continue
            seen.add(value)
            if value in self._inside:
                found.update(dict.fromkeys(self._inside[value]))
            elif isinstance(value, BlockArgument):
                stage = value.block.parent_op()
                if isinstance(stage, StageOp):
                    todo.append(stage.ins[value.index])
            elif isinstance(value.owner, Operation):
                todo += value.owner.operands
        return tuple(sorted(found))

    def _add(self, op: Operation, result: SSAValue, array: Array, inputs: tuple[int, ...]) -> Array:
        """Note a value that `op` made; what stands for it from now on."""
        where, places = placed(op.location, self._around)
        if isinstance(op, SectionOp):  # what it writes was made by an op inside
            places = ()
        number = len(self.trace.values)
        self.trace.values.append(Value(op.name, where or self._where(op), places, array, inputs))
        key = self._key(result)
        self.trace.numbers[key] = self._makers[id(array)] = number
        instead = self._given.get(key, array)
        self._makers[id(instead)] = number
        return instead

    def _key(self, value: SSAValue) -> Key:
        return tuple(call.op for call in self._around), value


def _sent(stage: StageOp, number: int) -> SSAValue:
    """The value inside a stage that one of its results is."""
    end = stage.body.block.last_op
    assert isinstance(end, YieldOp)
    return end.values[number]
