"""Running a program over a mesh of sockets.

What one socket runs is an `Executable` of its own, with its own memory and its own blocks of weights. `MeshExecutable`
cuts what a call gives into what each socket takes, runs the sockets, and joins what they return: it takes and gives
whole tensors, as a program of one socket does. Sockets are threads of this process, unless it is one of several.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from headrace.dialects.support import dtypes
from headrace.dialects.support.diagnostics import CompileError
from headrace.dialects.tensor.meaning.collective import Meeting, Socket, on_each, on_socket
from headrace.runtime.artifact import Artifact
from headrace.runtime.check import check_program
from headrace.runtime.plan import plan_configs
from headrace.runtime.program import Port, Program
from headrace.runtime.session import Array, Bound, Executable, Weights

Block = tuple[slice, ...]


class Cuts:
    """Which block of each port a socket has."""

    def __init__(self, program: Program) -> None:
        self.mesh = dict(program.mesh)
        self.count = program.sockets
        self.shardings = program.shardings
        self.stacks = program.stacks

    def names(self, port: str) -> tuple[str, ...]:
        """The ports of the whole program that a port is, by stage."""
        return self.stacks.get(port, (port,))

    def name(self, port: str, socket: int) -> str:
        """The port of the whole program that a port is on a socket."""
        names = self.names(port)
        return names[self.coordinates(socket)["pp"]] if port in self.stacks else port

    def coordinates(self, socket: int) -> dict[str, int]:
        """The place of a socket on each axis of the mesh."""
        found: dict[str, int] = {}
        for axis, size in reversed(self.mesh.items()):
            found[axis] = socket % size
            socket //= size
        return found

    def is_cut(self, name: str) -> bool:
        """Whether sockets have different blocks of a port."""
        return any(self.mesh[axis] > 1 for axes in self.shardings.get(name, ()) for axis in axes)

    def block(self, name: str, shape: tuple[int, ...], socket: int) -> Block:
        """Where the block of a socket lies in a port; `shape` is the block's."""
        at = self.coordinates(socket)
        dims = self.shardings.get(name, ((),) * len(shape))
        found: list[slice] = []
        for size, axes in zip(shape, dims, strict=True):
            place = 0
            for axis in axes:
                place = place * self.mesh[axis] + at[axis]
            found.append(slice(place * size, (place + 1) * size))
        return tuple(found)


class MeshExecutable(Executable):
    """A program over several sockets, bound to memory. Called as the executable of one socket is.

    With `socket` this process runs that one alone and reaches the others, which other processes run, by its transport;
    each of them gets all results. Without, all sockets run here. Results are the same to the bit.
    """

    def __init__(
        self,
        program: Program,
        weights: Weights,
        *,
        literal: bool = False,
        check: bool = True,
        manifest: Mapping[str, Any] | None = None,
        initial: Mapping[str, Array] | None = None,
        save: Callable[[Executable, str | os.PathLike[str]], None] | None = None,
        socket: Socket | None = None,
        _like: MeshExecutable | None = None,
    ) -> None:
        if check:
            check_program(program)
        self.program = program
        self.weights = weights
        self.literal = literal
        self.manifest = manifest or {}
        self._save = save
        self._cuts = Cuts(program)
        self._socket = socket
        if initial is None and isinstance(weights, Artifact):
            initial = weights.states
        self._initial = dict(initial or {})
        past, present = dict(program.states), {name for _, name in program.states}
        self._inputs = self._stand_ins(p for p in program.inputs if p.name not in past)
        self._outputs = self._stand_ins(p for p in program.outputs if p.name not in present)
        self._states = self._stand_ins(p for p in program.inputs if p.name in past)
        configs = _like._configs if _like else (None if literal else plan_configs(program))
        self._configs = configs
        self.sockets: dict[int, Executable] = {}
        for index in range(program.sockets) if socket is None else (socket.index,):
            with on_socket(Socket(index)):
                own = self._own(past, self._initial, index)
                self.sockets[index] = Executable(
                    program, weights, literal=literal, check=False, manifest=manifest, initial=own, plans=configs,
                    _like=_like.sockets[index] if _like else None,
                )  # fmt: skip

    def _stand_ins(self, ports: Iterable[Port]) -> dict[str, Array]:
        """For each port of the whole program an array of its type that holds one element."""
        found: dict[str, Array] = {}
        for port in self._wholes(ports):
            found[port.name] = np.broadcast_to(np.zeros((), dtypes.to_numpy(port.type.dtype)), port.type.shape)
        return found

    def _wholes(self, ports: Iterable[Port]) -> tuple[Port, ...]:
        """The ports of the whole program that ports of a socket are."""
        return tuple(
            Port(name, self.program.whole(port), port.region, port.offset)
            for port in ports
            for name in self._cuts.names(port.name)
        )

    def _own(self, ports: Iterable[str], arrays: Mapping[str, Array], socket: int) -> dict[str, Array]:
        """What a socket has of what ports hold."""
        shapes = {p.name: p.type.shape for p in (*self.program.inputs, *self.program.outputs)}
        found: dict[str, Array] = {}
        for port in ports:
            array = arrays.get(self._cuts.name(port, socket))
            if array is not None:
                found[port] = array[self._cuts.block(port, shapes[port], socket)] if self._cuts.is_cut(port) else array
        return found

    @property
    def inputs(self) -> tuple[Port, ...]:
        """Inputs that a call must give, whole."""
        past = dict(self.program.states)
        return self._wholes(p for p in self.program.inputs if p.name not in past)

    @property
    def outputs(self) -> tuple[Port, ...]:
        """Outputs that a call returns, whole."""
        present = {name for _, name in self.program.states}
        return self._wholes(p for p in self.program.outputs if p.name not in present)

    @property
    def report(self) -> list[str]:
        """Which configs run tile by tile, and why."""
        return next(iter(self.sockets.values())).report

    @property
    def arena_bytes(self) -> int:
        """Bytes of the arenas of all sockets that run here."""
        return sum(part.arena_bytes for part in self.sockets.values())

    # Running

    def _each(self, run: Callable[[int], Any]) -> dict[int, Any]:
        """What `run` gives on each socket of this process."""
        if self._socket is None:
            return dict(enumerate(on_each(self._cuts.count, run, Meeting)))
        with on_socket(self._socket):
            return {self._socket.index: run(self._socket.index)}

    def __call__(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """Run once on all sockets; takes and gives whole tensors."""
        arrays = self._checked(inputs)
        return self._joined(self._each(lambda index: self.sockets[index](self._given(arrays, index))))

    def _given(self, arrays: Mapping[str, Array], socket: int) -> dict[str, Array]:
        """What a socket is given of what a call gives."""
        own = self._own([p.name for p in self.program.inputs], arrays, socket)
        return {name: np.asarray(array, order="C") for name, array in own.items()}

    def _together(self, batch: Sequence[Mapping[str, Array]]) -> list[dict[str, Array]]:
        """Run tile by tile for several inputs at a time."""
        found = self._each(lambda i: list(self.sockets[i].stream([self._given(one, i) for one in batch])))
        return [self._joined({i: outputs[run] for i, outputs in found.items()}) for run in range(len(batch))]

    def _joined(self, found: Mapping[int, Mapping[str, Array]]) -> dict[str, Array]:
        """Whole tensors of what the sockets hold."""
        results: dict[str, Array] = {}
        types = self._inputs | self._outputs | self._states
        for name in next(iter(found.values())):
            blocks = {index: one[name] for index, one in found.items()}
            if not self._cuts.is_cut(name) and len(self._cuts.names(name)) == 1:
                results[name] = next(iter(blocks.values()))
                continue
            if self._socket is not None:
                assert self._socket.transport is not None
                own, every = blocks[self._socket.index], tuple(range(self._cuts.count))
                blocks = dict(enumerate(self._socket.transport.exchange(self._socket.index, every, own)))
            for index, block in blocks.items():
                whole = self._cuts.name(name, index)
                if whole not in results:
                    results[whole] = np.empty(types[whole].shape, types[whole].dtype)
                results[whole][self._cuts.block(name, block.shape, index)] = block
        return results

    def run(self) -> None:
        """Run once on what the sockets' own memory holds (`sockets[i].bind()`)."""
        self._each(lambda index: self.sockets[index].run())

    def bind(self) -> Bound:
        """Refused: no one memory holds what several sockets have."""
        raise CompileError(
            "several-sockets",
            f"there are no views of the memory of {self._cuts.count} sockets",
            why="each has its own blocks of inputs and outputs",
            fix="exe.sockets[socket].bind() has those of one; exe.run() runs all",
        )

    def clone(self) -> MeshExecutable:
        """Another executable of the same program with its own memory and state; weights are shared."""
        return MeshExecutable(
            self.program, self.weights, literal=self.literal, check=False, manifest=self.manifest,
            initial=self._initial, save=self._save, socket=self._socket, _like=self,
        )  # fmt: skip

    # State

    def state(self) -> dict[str, Array]:
        """A copy of the state, whole, by the name of the input that it stands for."""
        return self._joined({index: part.state() for index, part in self.sockets.items()})

    def reset(self, state: Mapping[str, Any] | None = None) -> None:
        """Set the state: whole arrays by input name; see `Executable.reset`."""
        given = {name: np.asarray(array) for name, array in (state or {}).items()}
        self._check_state(given)
        for index, part in self.sockets.items():
            part.reset(self._own(dict(self.program.states), given, index))
