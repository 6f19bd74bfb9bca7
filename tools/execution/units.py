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

from headrace.dialects.dataflow.inside import places_inside
from headrace.dialects.rdu.config import ConfigOp
from headrace.dialects.rdu.program import LaunchOp
from headrace.dialects.rdu.units import PcuOp
from headrace.dialects.support import locations
from headrace.dialects.support.access import row_major
from headrace.dialects.tensor import meaning
from headrace.dialects.tensor.base import tt
from headrace.runtime.geometry import strided
from headrace.runtime.kernels import Scratch, bind_chain
from headrace.runtime.places import Binding, End
from headrace.runtime.plan import Part, run_steps
from headrace.runtime.program import Agcu, Config, Pcu
from headrace.tools.execution.programs import executable, units_of
from headrace.tools.execution.trace import Call, Key, Trace, Value, placed

if TYPE_CHECKING:
    from headrace.dialects.support.locations import Location
    from headrace.dialects.support.weights import WeightStore

    Array = np.ndarray[Any, np.dtype[Any]]

Made = tuple[int, int]
"""A value of a config: its unit, and its number in the unit's body."""


def trace_units(
    module: ModuleOp, store: WeightStore, inputs: Mapping[str, Array], instead: Mapping[Key, Array], inside: bool
) -> Trace:
    """Run a program of units and keep what they put into memory; see `trace`."""
    tracer = _Tracer(module, store, instead, inside)
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
    tracer = _Tracer(module, store, instead, False)
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

    def __init__(self, module: ModuleOp, store: WeightStore, instead: Mapping[Key, Array], inside: bool) -> None:
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
        self.inside = [_ports_inside(config) if inside else {} for config in configs]
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
            origins = self._look(part)
            run_steps(part.steps)
            self._see(part, origins)
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

    def _look(self, part: Part) -> dict[Any, tuple[int, ...]]:
        """Note what goes from op to op in a run, as the ops mean it. Gives the numbers of the nearest known values that
        each value of the run comes from."""
        config = self.of_launch[part.launch]
        origins: dict[Any, tuple[int, ...]] = {}
        if part.run is None or part.plan is None or not self.inside[config]:
            return origins
        known: dict[Any, Array] = {key: np.array(array) for key, array in part.inputs.items()}
        for op in part.ops:
            with np.errstate(all="ignore"):
                results = meaning.evaluate(op.name, op.attrs, *(known[x] for x in op.operands))
            sources = [origins[x] if x in origins else self._sources(part.launch, x[0]) for x in op.operands]
            come = tuple(dict.fromkeys(number for found in sources for number in found))
            for made, array in zip(op.results, results, strict=True):
                known[made] = array
                origins[made] = come
                value, port = self.bodies[config].get(made), self.inside[config].get(made)
                if value is None or (port is None and made not in part.run.outputs):
                    continue
                if made in part.run.outputs:  # what is in memory is what counts
                    binding = part.run.outputs[made]
                else:
                    assert port is not None
                    moves = (part.plan.outputs_moves if port.out else part.plan.inputs_moves)[made[0]][port.number]
                    binding = Binding(End(0, 0, ()), tt(value).shape, moves, made[0])
                    if array.shape != binding.shape(part.plan.counts(made[0], part.run.loops, part.run.block)):
                        continue
                whole = self._whole(part, made, value, binding, array.dtype, come)
                if made not in part.run.outputs:
                    whole.chunk(part.at, array.shape)[...] = array
                origins[made] = (self.numbers[part.launch][made],)
        return origins

    def _see(self, part: Part, origins: Mapping[Any, tuple[int, ...]]) -> None:
        """Take what a run has put into memory."""
        if part.run is None:
            return
        for made, binding in part.run.outputs.items():
            value = self.bodies[self.of_launch[part.launch]].get(made)
            if value is None:
                continue
            chunk = part.outputs[made]
            whole = self._whole(part, made, value, binding, chunk.dtype, origins.get(made))
            whole.chunk(part.at, chunk.shape)[...] = chunk
            given = self.given.get(self._key(part.launch, value))
            if given is not None:
                chunk[...] = whole.chunk(part.at, chunk.shape, given)

    def _whole(
        self,
        part: Part,
        made: Made,
        value: OpResult,
        binding: Binding,
        dtype: np.dtype[Any],
        inputs: tuple[int, ...] | None,
    ) -> _Whole:
        """The whole of a value, which becomes one of the trace when it is first asked for."""
        launch = part.launch
        found = self.wholes.get((launch, made))
        if found is None:
            assert part.plan is not None
            counts = part.plan.domains[binding.unit].counts
            found = _Whole(np.zeros(binding.shape(counts), dtype), binding, counts)
            self.wholes[launch, made] = found
            where, places = self.place(launch, value)
            number = len(self.trace.values)
            if inputs is None:
                inputs = self._sources(launch, made[0])
            seen = self.numbers[launch]
            values = self.bodies[self.of_launch[launch]]
            through = [values[key] for op in part.ops for key in op.results if key in values and key not in seen]
            names = tuple(f"'{x.op.name}' at {self.place(launch, x)[0]}" for x in through if x is not value)
            seen[made] = number
            self.trace.numbers[self._key(launch, value)] = number
            self.trace.values.append(Value(value.op.name, where, places, found.array, inputs, names))
        return found

    def _key(self, launch: int, value: SSAValue) -> Key:
        return (self.launches[launch],), value

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


@dataclass(frozen=True)
class _Port:
    """A port of a unit, and whether it is one that it sends by."""

    out: bool
    number: int


def _ports_inside(config: ConfigOp) -> dict[Made, _Port]:
    """The port of its unit whose places a value in a body shares, where there is one."""
    numbers = {value: made for made, value in _bodies(config).items()}
    found: dict[Made, _Port] = {}
    for unit in config.units:
        if isinstance(unit, PcuOp):
            block = unit.body.block
            assert block.last_op is not None
            inputs: dict[SSAValue, _Port] = {a: _Port(False, a.index) for a in block.args}
            outputs = {value: _Port(True, k) for k, value in enumerate(block.last_op.operands)}
            for value, port in places_inside(block, inputs, outputs).items():
                if isinstance(value, OpResult):
                    found[numbers[value]] = port
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
