"""The reference interpreter of the dataflow level: sections run as Kahn networks, tile by tile, without time.

    results = run_dataflow(module, {"x": array}, store)

A buffer really holds `copies` frames: frame f lies where frame f - copies lay. Reads and writes block; a section that
stops before its end is a `CompileError` that says who waits for whom. With `debug`, a frame that is overwritten is
poisoned first, and it is an error that two writers write one cell or that a reader meets another frame than its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.lib.stride_tricks import as_strided
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from headrace.dialects.dataflow.inside import streams_inside
from headrace.dialects.dataflow.network import Network, Process, Tank, explain
from headrace.dialects.dataflow.ops import (
    BufferOp,
    GatherOp,
    LoadOp,
    MergeOp,
    ScatterOp,
    SectionOp,
    StageOp,
    StoreOp,
    YieldOp,
    stream_of,
    views,
)
from headrace.dialects.support.access import Loop, Stream, View, identity
from headrace.dialects.support.diagnostics import CompileError
from headrace.dialects.support.dtypes import to_numpy
from headrace.dialects.tensor import meaning
from headrace.dialects.tensor.base import TensorOp, tt
from headrace.dialects.tensor.interpreter import Interpreter, Observer
from headrace.dialects.tensor.storage import ConstantOp

if TYPE_CHECKING:
    from headrace.dialects.tensor.interpreter import Store
    from headrace.dialects.tensor.meaning import Array

Kind = TypeVar("Kind", bound=Operation)


@dataclass(frozen=True)
class _Window:
    """Where the tiles of one port lie in a flat memory: an origin per step, and strides."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    origins: Array

    @classmethod
    def of(cls, stream: Stream, view: View, shift: int = 0) -> _Window:
        return cls(stream.tile, view.strides, _offsets(stream.time, view) + (view.offset + shift))

    def at(self, memory: Array, step: int) -> Array:
        """The tile of a step, as a view of the memory."""
        size = memory.itemsize
        start = memory[int(self.origins[step]) :] if prod(self.shape) else memory
        return as_strided(start, self.shape, tuple(s * size for s in self.strides))


def _offsets(loops: Sequence[Loop], view: View) -> Array:
    """How far each step is from the first, in elements."""
    found = np.zeros(1, np.int64)
    for loop in loops:
        stride = loop.step * view.strides[loop.dim] if loop.dim >= 0 else 0
        found = (found[:, None] + np.arange(loop.count) * stride).reshape(-1)
    return found


class _Layout:
    """How the frames of a buffer lie in its slots: every port's window, relative to its frame."""

    def __init__(self, op: BufferOp) -> None:
        frames = op.frames.value.data
        windows: list[_Window] = []
        low = high = None
        for stream, view in op.ports:
            rest = Stream(stream.tile, stream.dtype, stream.time[frames:])
            windows.append(_Window.of(rest, view))
            bounds = view.bounds(rest.full_shape)
            low = min(bounds[0], bounds[0] if low is None else low)
            high = max(bounds[1], bounds[1] if high is None else high)
        assert low is not None and high is not None
        self.size = max(0, high - low + 1)
        self.windows = [_Window(w.shape, w.strides, w.origins - low) for w in windows]
        self.outs: dict[SSAValue, int] = {value: len(op.ins) + i for i, value in enumerate(op.outs)}


class _Whole:
    """A whole tensor that a stream carries in tiles."""

    def __init__(self, window: _Window, flat: Array, shape: tuple[int, ...]) -> None:
        self.window, self.flat, self.array = window, flat, flat.reshape(shape)

    @classmethod
    def of(cls, stream: Stream, array: Array | None = None) -> _Whole:
        shape = stream.full_shape
        flat = (
            np.zeros(prod(shape), to_numpy(stream.dtype)) if array is None else np.ascontiguousarray(array).reshape(-1)
        )
        return cls(_Window.of(stream, identity(shape)), flat, shape)

    def at(self, step: int) -> Array:
        """The tile of a step, as a view."""
        return self.window.at(self.flat, step)


def _poison(dtype: np.dtype[Any]) -> Any:
    """A value that no program means: NaN, the least integer, true."""
    if dtype.kind == "b":
        return True
    return np.iinfo(dtype).min if dtype.kind in "iu" else np.nan


class _Memory:
    """The slots of a buffer in one run."""

    def __init__(self, op: BufferOp, layout: _Layout, debug: bool) -> None:
        self.layout = layout
        self.copies = op.copies.value.data
        self.fill = op.fill.value.data
        dtype = to_numpy(op.buffer_type.dtype)
        self.slots = np.full((self.copies, layout.size), self.fill, dtype)
        self.owner = np.zeros(self.slots.shape, np.int8) if debug else None
        self.frame = [-1] * self.copies  # the frame that a slot holds
        self.open = [False] * self.copies  # whether it is still written

    def write(self, port: int, step: int, tile: Array) -> None:
        window = self.layout.windows[port]
        frame, inner = divmod(step, len(window.origins))
        slot = frame % self.copies
        if self.owner is not None:
            if self.frame[slot] != frame:
                self.slots[slot] = _poison(self.slots.dtype)
                self.owner[slot] = 0
                self.frame[slot], self.open[slot] = frame, True
            assert self.open[slot], f"frame {frame} is written after it was read"
            _claim(window.at(self.owner[slot], inner), port)
        window.at(self.slots[slot], inner)[...] = tile

    def read(self, port: int, step: int) -> Array:
        window = self.layout.windows[port]
        frame, inner = divmod(step, len(window.origins))
        slot = frame % self.copies
        if self.owner is not None:
            assert self.frame[slot] == frame, f"frame {frame} is read where frame {self.frame[slot]} lies"
            if self.open[slot]:
                self.slots[slot][self.owner[slot] == 0] = self.fill
                self.open[slot] = False
        return window.at(self.slots[slot], inner)


def _claim(cells: Array, port: int) -> None:
    """Note who writes cells; an error when somebody else did."""
    if cells.size and not np.isin(cells, (0, port + 1)).all():
        raise CompileError(
            "overlapping-writes",
            f"streams {int(cells[(cells != 0) & (cells != port + 1)][0]) - 1} and {port} write the same cells",
            why="what is read would depend on who is last",
            fix="give the streams views that do not overlap",
        )
    cells[...] = port + 1


class _Target:
    """A tensor in off-chip memory that streams write."""

    def __init__(self, op: StoreOp, windows: Sequence[_Window], debug: bool) -> None:
        self.type = tt(op.tensor)
        self.flat = np.zeros(self.type.elements, to_numpy(self.type.dtype))
        self.owner = np.zeros(self.flat.shape, np.int8) if debug else None
        self.windows = windows

    def write(self, port: int, step: int, tile: Array) -> None:
        window = self.windows[port]
        if self.owner is not None:
            _claim(window.at(self.owner, step), port)
        window.at(self.flat, step)[...] = tile

    @property
    def array(self) -> Array:
        return self.flat.reshape(self.type.shape)


@dataclass(frozen=True)
class _BodyOp:
    op: Operation
    attrs: Mapping[str, Any]
    operands: tuple[int, ...]
    constant: Array | None = None


@dataclass(frozen=True)
class _Body:
    """The ops of a stage with numbered values: inputs first, then results."""

    ops: tuple[_BodyOp, ...]
    outputs: tuple[int, ...]
    numbers: dict[SSAValue, int]

    @classmethod
    def of(cls, stage: StageOp) -> _Body:
        block = stage.body.block
        numbers: dict[SSAValue, int] = {a: i for i, a in enumerate(block.args)}
        ops: list[_BodyOp] = []
        for op in block.ops:
            operands = tuple(numbers[v] for v in op.operands)
            if isinstance(op, YieldOp):
                return cls(tuple(ops), operands, numbers)
            for result in op.results:
                numbers[result] = len(numbers)
            if isinstance(op, ConstantOp):
                ops.append(_BodyOp(op, {}, (), op.array()))
            elif isinstance(op, TensorOp):
                ops.append(_BodyOp(op, op.attrs(), operands))
            else:
                raise CompileError("not-interpretable", f"{op.name} is not a tensor op, but stands in a stage")
        raise AssertionError("a stage ends in dataflow.yield")


@dataclass
class _Section:
    """What stays the same from run to run of a section."""

    network: Network
    bodies: dict[StageOp, _Body] = field(default_factory=dict[StageOp, _Body])
    layouts: dict[BufferOp, _Layout] = field(default_factory=dict[BufferOp, _Layout])
    loads: dict[LoadOp, _Window] = field(default_factory=dict[LoadOp, _Window])
    stores: dict[StoreOp, list[_Window]] = field(default_factory=dict[StoreOp, "list[_Window]"])

    @classmethod
    def of(cls, section: SectionOp) -> _Section:
        found = cls(Network(section))
        for op in section.body.block.ops:
            if isinstance(op, StageOp):
                found.bodies[op] = _Body.of(op)
            elif isinstance(op, BufferOp):
                found.layouts[op] = _Layout(op)
            elif isinstance(op, LoadOp):
                found.loads[op] = _Window.of(stream_of(op.out), op.view.view)
            elif isinstance(op, StoreOp):
                found.stores[op] = [
                    _Window.of(stream_of(v), view) for v, view in zip(op.ins, views(op.in_views), strict=True)
                ]
        return found


class DataflowInterpreter(Interpreter):
    """Runs modules whose functions hold tensor ops, calls and sections. Keep it to run a program again."""

    def __init__(
        self,
        module: ModuleOp,
        store: Store | None = None,
        observers: Sequence[Observer] = (),
        *,
        debug: bool = False,
    ) -> None:
        """`debug` poisons frames before they are overwritten and watches who writes what. Observers are called after
        every function-level op, and with the whole tensors that each stage made and, where they can be put together,
        the ops inside it."""
        super().__init__(module, store, observers)
        self.debug = debug
        self.steps = 0
        """Steps of all processes so far."""
        self._sections: dict[Operation, _Section] = {}

    def _op(self, op: Operation, operands: list[Array]) -> tuple[Array, ...]:
        if not isinstance(op, SectionOp):
            return super()._op(op, operands)
        if op not in self._sections:
            self._sections[op] = _Section.of(op)
        return _Run(self, op, self._sections[op], operands).run()

    def body(self, body: _Body, tiles: list[Array]) -> list[Array]:
        """What a stage body makes of tiles."""
        for one in body.ops:
            if one.constant is not None:
                tiles.append(one.constant)
                continue
            operands = [tiles[v] for v in one.operands]
            found = self.evaluate(one.op, one.op.name, one.attrs, *operands)
            if self.checked:
                self._check(one.op, found)
            tiles.extend(found)
        return [tiles[v] for v in body.outputs]

    def evaluate(self, op: Operation, name: str, attrs: Mapping[str, Any], *operands: Array) -> tuple[Array, ...]:
        """The results of a tensor op called `name`; errors get the location of `op`."""
        return self._locate(op, meaning.evaluate, name, attrs, *operands)

    def observe(self, op: Operation, arrays: tuple[Array, ...]) -> None:
        """Tell the observers what an op in a section made."""
        for observer in self.observers:
            observer(op, arrays, tuple(self._calls))

    @property
    def watched(self) -> bool:
        """Whether somebody wants to see the values of stages."""
        return bool(self.observers)

    def instead(self, value: SSAValue) -> Array | None:
        """The whole tensor that a result of a stage is to be, whatever the stage makes; None for what it makes."""
        return None

    def where(self, op: Operation) -> str:
        """The model location of an op in the call that runs."""
        return self._where(op)


class _Run:
    """One run of a section."""

    def __init__(
        self, interpreter: DataflowInterpreter, section: SectionOp, plan: _Section, arrays: Sequence[Array]
    ) -> None:
        self.interpreter = interpreter
        self.section = section
        self.plan = plan
        self.tensors: dict[SSAValue, Array] = dict(zip(section.body.block.args, arrays, strict=True))
        self.flat: dict[SSAValue, Array] = {}
        self.memories = {op: _Memory(op, layout, interpreter.debug) for op, layout in plan.layouts.items()}
        self.targets = {op: _Target(op, plan.stores[op], interpreter.debug) for op in _ops(section, StoreOp)}
        self.tables = {op: self.tensors[op.base].copy() for op in _ops(section, ScatterOp)}
        self.links: dict[Tank, deque[Array]] = {t: deque() for t in plan.network.tanks if t.op is None}
        self.made: dict[SSAValue, _Whole] = {}
        self.given: dict[SSAValue, _Whole] = {}
        if interpreter.watched:
            self._watch()

    def run(self) -> tuple[Array, ...]:
        stuck = self.plan.network.run(fire=self.fire)
        if stuck is not None:
            found = explain(self.section, self.plan.network, stuck)
            raise CompileError(found.code, found.what, why=found.why, fix=found.fix, location=found.location)
        for stage in self.plan.bodies if self.interpreter.watched else ():
            for op in (*stage.body.block.ops, stage):
                if op.results and all(r in self.made for r in op.results):
                    self.interpreter.observe(op, tuple(self.made[r].array for r in op.results))
        for op, target in self.targets.items():
            self.tensors[op.tensor] = target.array
        for op, table in self.tables.items():
            self.tensors[op.tensor] = table
        last = self.section.body.block.last_op
        assert isinstance(last, YieldOp)
        return tuple(self.tensors[v] for v in last.values)

    def fire(self, process: Process, steps: int) -> None:
        """Do the next steps of a process on its tiles."""
        self.interpreter.steps += steps
        for k in range(steps):
            takes = process.next_takes()
            tiles = [self._take(tank, port, tank.read[port] + k) for tank, port in takes]
            made = self._make(process, process.done + k, tiles)
            for goals, tile in zip(process.sends, made, strict=True):
                for tank, port in goals:
                    self._send(tank, port, tank.written[port] + k, tile)

    def _take(self, tank: Tank, port: int, step: int) -> Array:
        if tank.op is None:
            return self.links[tank].popleft()
        return self.memories[tank.op].read(self.plan.layouts[tank.op].outs[tank.values[port]], step)

    def _send(self, tank: Tank, port: int, step: int, tile: Array) -> None:
        if tank.op is None:
            self.links[tank].append(tile.copy())
            return
        try:
            self.memories[tank.op].write(port, step, tile)
        except CompileError as error:
            raise CompileError(
                error.code, error.what, why=error.why, fix=error.fix, location=self.interpreter.where(tank.op)
            ) from None

    def _make(self, process: Process, step: int, tiles: list[Array]) -> list[Array]:
        """The tiles that a step sends, one for each result."""
        op = process.op
        match op:
            case StageOp():
                body = self.plan.bodies[op]
                made = self.interpreter.body(body, tiles)
                if self.interpreter.watched:
                    made = self._seen(op, body, step, tiles, made)
                return made
            case LoadOp():
                return [self.plan.loads[op].at(self._elements(op.tensor), step)]
            case StoreOp():
                self.targets[op].write(process.port, step, tiles[0])
                return []
            case GatherOp():
                return list(self._rows(op, self.tensors[op.table], tiles[0]))
            case ScatterOp():
                self._replace(op, *tiles)
                return []
            case MergeOp():
                return tiles
            case _:  # a fork sends its tile to every result; between two buffers it goes as it is
                return tiles * len(process.sends)

    def _elements(self, value: SSAValue) -> Array:
        """A tensor's elements in row-major order."""
        if value not in self.flat:
            self.flat[value] = np.ascontiguousarray(self.tensors[value]).reshape(-1)
        return self.flat[value]

    def _rows(self, op: GatherOp | ScatterOp, table: Array, index: Array) -> tuple[Array, ...]:
        return self.interpreter.evaluate(op, "tensor.gather", {"axis": 0}, table, index)

    def _replace(self, op: ScatterOp, index: Array, rows: Array) -> None:
        table = self.tables[op]
        self._rows(op, table, index)  # an index out of range is refused
        table[index] = rows

    def _watch(self) -> None:
        for stage in self.plan.bodies:
            inside = streams_inside(stage)
            for op in stage.body.block.ops:
                self.made.update((r, _Whole.of(inside[r])) for r in op.results if r in inside)
            for value in stage.outs:
                self.made[value] = _Whole.of(stream_of(value))
                instead = self.interpreter.instead(value)
                if instead is not None:
                    self.given[value] = _Whole.of(stream_of(value), instead)

    def _seen(self, stage: StageOp, body: _Body, step: int, tiles: list[Array], made: list[Array]) -> list[Array]:
        """Put the tiles of a step into the whole tensors; the tiles to send."""
        for value, number in body.numbers.items():
            if value in self.made:
                self.made[value].at(step)[...] = tiles[number]
        for value, tile in zip(stage.outs, made, strict=True):
            self.made[value].at(step)[...] = tile
        return [self.given[v].at(step) if v in self.given else tile for v, tile in zip(stage.outs, made, strict=True)]


def _ops(section: SectionOp, kind: type[Kind]) -> list[Kind]:
    return [op for op in section.body.block.ops if isinstance(op, kind)]


def run_dataflow(
    module: ModuleOp,
    inputs: Mapping[str, Array] | Sequence[Array],
    store: Store | None = None,
    observers: Sequence[Observer] = (),
    *,
    name: str = "main",
    debug: bool = False,
) -> dict[str, Array]:
    """Results of the entry function of a module by result name; see `DataflowInterpreter`. `CompileError` when inputs
    do not fit, a section deadlocks, or an op cannot be interpreted."""
    return DataflowInterpreter(module, store, observers, debug=debug).run(name, inputs)
