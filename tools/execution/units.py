"""The values that units make: those that the runtime puts into memory, by unit and op of the model.

A unit runs a chain of ops; what goes from op to op in registers or in cache is not seen. `chain_fault` looks into a
chain: it runs longer and longer parts of it on the same inputs and holds each against the meaning of its ops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from xdsl.dialects.builtin import CallSiteLoc, ModuleOp
from xdsl.ir import OpResult, SSAValue

from headrace.dialects.rdu.config import ConfigOp
from headrace.dialects.rdu.program import LaunchOp
from headrace.dialects.rdu.units import PcuOp
from headrace.dialects.support import locations
from headrace.dialects.support.access import row_major
from headrace.dialects.tensor import meaning
from headrace.runtime.geometry import strided
from headrace.runtime.kernels import Scratch, bind_chain
from headrace.runtime.plan import Part, run_steps
from headrace.runtime.program import Agcu, Config, Pcu
from headrace.tools.execution.programs import executable, units_of
from headrace.tools.execution.trace import Call, Key, Trace, Value, placed

if TYPE_CHECKING:
    from headrace.dialects.support.locations import Location
    from headrace.dialects.support.weights import WeightStore
    from headrace.runtime.places import Binding

    Array = np.ndarray[Any, np.dtype[Any]]

Made = tuple[int, int]
"""A value of a config: its unit, and its number in the unit's body."""


def trace_units(
    module: ModuleOp, store: WeightStore, inputs: Mapping[str, Array], instead: Mapping[Key, Array]
) -> Trace:
    """Run a program of units and keep what they put into memory; see `trace`."""
    tracer = _Tracer(module, store, instead)
    for _ in tracer.run(inputs):
        pass
    return tracer.trace


def chain_fault(
    module: ModuleOp,
    store: WeightStore,
    inputs: Mapping[str, Array],
    key: Key,
    instead: Mapping[Key, Array],
    agree: Callable[[Array, Array], bool],
) -> tuple[str, str] | None:
    """Name and place in the model of the op by which the chain that makes a value goes wrong, on the inputs that it has
    in this run; None when the chain does what its ops mean."""
    tracer = _Tracer(module, store, instead)
    (launch,), value = key
    for part in tracer.run(inputs):
        if part.run is None or tracer.launches[part.launch] is not launch:
            continue
        values = tracer.bodies[tracer.of_launch[part.launch]]
        if value not in [values[made] for made in part.run.outputs if made in values]:
            continue
        fault = _first_wrong(part, agree)
        if fault is not None:
            return values[fault].op.name, tracer.place(part.launch, values[fault])[0]
    return None


def _first_wrong(part: Part, agree: Callable[[Array, Array], bool]) -> Made | None:
    """The first op result of a chain that the kernels make otherwise than the ops mean."""
    known: dict[Any, Array] = {key: np.array(array) for key, array in part.inputs.items()}
    for number, op in enumerate(part.ops):
        with np.errstate(all="ignore"):
            results = meaning.evaluate(op.name, op.attrs, *(known[x] for x in op.operands))
        known.update(zip(op.results, results, strict=True))
        made: dict[Any, Array] = {key: np.zeros_like(known[key], order="C") for key in op.results}
        given = {key: known[key] for key in part.inputs}
        run_steps(bind_chain(part.ops[: number + 1], given, made, Scratch(), set(part.fixed) & set(given)))
        for key in op.results:
            if not agree(made[key], known[key]):
                return key[:2]
    return None


@dataclass
class _Whole:
    """A value put together from the chunks in which a run makes it."""

    array: Array
    binding: Binding
    counts: tuple[int, ...]

    def chunk(self, at: tuple[int, ...], shape: tuple[int, ...], of: Array | None = None) -> Array:
        """The place of a chunk in the whole, or in another array of its shape."""
        whole = self.array if of is None else np.ascontiguousarray(of)
        index = (*at, *(0,) * (len(self.counts) - len(at)))
        strides = row_major(self.array.shape)
        shift = sum(
            i * move[1] * strides[move[0]] for i, move in zip(index, self.binding.moves, strict=True) if i and move
        )
        return strided(whole.reshape(-1), shift, shape, strides)


class _Tracer:
    """One run of a program of units."""

    def __init__(self, module: ModuleOp, store: WeightStore, instead: Mapping[Key, Array]) -> None:
        self.exe = executable(module, store)
        self.program = self.exe.program
        self.given = instead
        self.trace = Trace()
        program = units_of(module)
        assert program is not None
        self.launches = program.launches
        self.of_launch = [launch.config for launch in self.program.launches]
        configs = [op for op in module.body.block.ops if isinstance(op, ConfigOp)]
        self.bodies = [_bodies(config) for config in configs]
        self.around = [_around(launch) for launch in self.launches]
        self.numbers: list[dict[Made, int]] = [{} for _ in self.launches]
        self.wholes: dict[tuple[int, Made], _Whole] = {}
        self.written: dict[int, dict[int, None]] = {}  # region → numbers of the values that were stored there

    def run(self, inputs: Mapping[str, Array]) -> Iterable[Part]:
        """Run once; gives every part before it runs."""
        bound = self.exe.bind()
        states = dict(self.program.states)
        self.exe.reset({name: array for name, array in inputs.items() if name in states})
        for name, view in bound.inputs.items():
            np.copyto(view, inputs[name])
        last = -1
        for part in self.exe.parts():
            if part.launch != last:
                self._ended(last)
                last = part.launch
            yield part
            run_steps(part.steps)
            self._see(part)
        self._ended(last)
        arrays = {name: view.copy() for name, view in bound.outputs.items()}
        self.trace.arrays = arrays | {states[past]: array for past, array in self.exe.state().items()}
        for port in self.program.outputs:
            self.trace.results[port.name] = len(self.trace.values)
            sources = tuple(self.written.get(port.region, ()))
            self.trace.values.append(Value("rdu.port", port.name, (), self.trace.arrays[port.name], sources))

    def place(self, launch: int, value: OpResult) -> tuple[str, tuple[Any, ...]]:
        """Where the op of a value is in the model, as text and as places."""
        return placed(value.op.location, self.around[launch])

    def _see(self, part: Part) -> None:
        if part.run is None or part.plan is None:
            return
        for made, binding in part.run.outputs.items():
            value = self.bodies[self.of_launch[part.launch]].get(made)
            if value is None:
                continue
            whole = self.wholes.get((part.launch, made))
            if whole is None:
                counts = part.plan.domains[binding.unit].counts
                array = np.zeros(binding.shape(counts), part.outputs[made].dtype)
                whole = self.wholes[part.launch, made] = _Whole(array, binding, counts)
                self._add(part, made, value, array)
            chunk = part.outputs[made]
            whole.chunk(part.at, chunk.shape)[...] = chunk
            given = self.given.get(self._key(part.launch, value))
            if given is not None:
                chunk[...] = whole.chunk(part.at, chunk.shape, given)

    def _key(self, launch: int, value: SSAValue) -> Key:
        return (self.launches[launch],), value

    def _add(self, part: Part, made: Made, value: OpResult, array: Array) -> None:
        launch, values = part.launch, self.bodies[self.of_launch[part.launch]]
        where, places = self.place(launch, value)
        number = self.numbers[launch][made] = len(self.trace.values)
        self.trace.numbers[self._key(launch, value)] = number
        inputs = self._sources(launch, made[0])
        chain = [values[key] for op in part.ops for key in op.results if key in values]
        within = tuple(f"'{x.op.name}' at {self.place(launch, x)[0]}" for x in chain) if len(chain) > 1 else ()
        inputs = tuple(x for x in inputs if x != number)
        self.trace.values.append(Value(value.op.name, where, places, array, inputs, within))

    def _sources(self, launch: int, unit: int) -> tuple[int, ...]:
        """Numbers of the nearest known values that come into a unit."""
        config = self.program.configs[self.of_launch[launch]]
        args = self.program.launches[launch].args
        found: dict[int, None] = {}
        todo, seen = [unit], set[int]()
        while todo:
            at = todo.pop()
            if at in seen:
                continue
            seen.add(at)
            into = config.units[at]
            if isinstance(into, Agcu) and into.direction != "store":
                found.update(self.written.get(args[into.param][0], {}))
            for source, made in _feeders(config, at):
                number = self.numbers[launch].get(made) if made is not None else None
                if number is None:
                    todo.append(source)
                else:
                    found[number] = None
        return tuple(sorted(found))

    def _ended(self, launch: int) -> None:
        """Note what a launch has stored, where."""
        if launch < 0:
            return
        config = self.program.configs[self.of_launch[launch]]
        for number, unit in enumerate(config.units):
            if isinstance(unit, Agcu) and unit.direction in ("store", "scatter"):
                region = self.program.launches[launch].args[unit.param][0]
                self.written.setdefault(region, {}).update(dict.fromkeys(self._sources(launch, number)))


def _feeders(config: Config, unit: int) -> list[tuple[int, Made | None]]:
    """The units that send to a unit, and the value that each sends if it is a compute unit."""
    found: list[tuple[int, Made | None]] = []
    for flow in config.flows:
        if flow.dst == unit:
            source = config.units[flow.src]
            found.append((flow.src, (flow.src, source.outputs[flow.src_port]) if isinstance(source, Pcu) else None))
    return found


def _bodies(config: ConfigOp) -> dict[Made, OpResult]:
    """The op results of a config's units by the numbers that the runtime gives them."""
    found: dict[Made, OpResult] = {}
    for number, unit in enumerate(config.units):
        if isinstance(unit, PcuOp):
            count = len(unit.body.block.args)
            for op in unit.body.block.ops:
                for result in op.results:
                    found[number, count] = result
                    count += 1
    return found


def _around(launch: LaunchOp) -> list[Call]:
    """The calls around a launch, outermost first."""
    sites = [x for x in locations.leaves(launch.location) if isinstance(x, CallSiteLoc)]
    found: list[Call] = []
    at: Location | None = sites[0] if sites else None
    while isinstance(at, CallSiteLoc):
        at = cast("Location", at.caller)
        found.insert(0, Call.of(launch, cast("Location", at.callee) if isinstance(at, CallSiteLoc) else at))
    return found
