"""NumPy meaning of collectives, and the sockets that a program runs on.

A program over a mesh is run once for each socket. `on_each` runs it in one process, a thread a socket, that meet at
each collective; another transport joins processes. Either way a socket gets what all have, and combines it itself in
the order of the sockets: results do not depend on the transport.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import reduce
from typing import Any, Protocol, TypeVar

import numpy as np

from headrace.dialects.support.diagnostics import CompileError
from headrace.dialects.tensor.meaning import Array, Attrs, means
from headrace.dialects.tensor.meaning.special import NARROW
from headrace.dialects.tensor.shapes.collective import Group, group_of

T = TypeVar("T")
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


class Transport(Protocol):
    """What carries arrays between sockets."""

    def exchange(self, socket: int, members: tuple[int, ...], array: Array) -> Sequence[Array]:
        """What each of `members` gives, in their order, once all have given. All members call it in the same order.
        The arrays are read only, and stay as they are until the caller's next exchange."""
        ...


@dataclass(frozen=True)
class Socket:
    """The socket that runs, and how it reaches the others."""

    index: int
    transport: Transport | None = None


_current: ContextVar[Socket | None] = ContextVar("headrace.socket", default=None)


@contextmanager
def on_socket(socket: Socket) -> Generator[None]:
    """Run what is inside as this socket."""
    token = _current.set(socket)
    try:
        yield
    finally:
        _current.reset(token)


def current_socket() -> Socket:
    """The socket that runs; `CompileError` outside of a mesh."""
    found = _current.get()
    if found is None:
        raise CompileError(
            "no-mesh",
            "a program over several sockets is run without saying as which socket",
            why="what it computes depends on the socket and on what the others have",
            fix="run all sockets of its mesh",
        )
    return found


class Left(Exception):
    """A socket waits for one that has stopped."""


class Meeting:
    """The transport of sockets that are threads of one process: they meet at each collective."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._change = threading.Condition()
        self._given: dict[tuple[tuple[int, ...], int], dict[int, Array]] = {}
        self._turn: dict[tuple[int, tuple[int, ...]], int] = {}
        self._left: set[int] = set()

    def exchange(self, socket: int, members: tuple[int, ...], array: Array) -> Sequence[Array]:
        """See `Transport`. What is given is copied, so that nobody waits for the others to have read it."""
        if max(members) >= self._count:
            raise CompileError(
                "bad-group",
                f"a collective is between sockets {', '.join(map(str, members))} of {self._count}",
                why="its sizes and strides do not divide the mesh",
                fix="give tensor.mesh the axes that collectives are over",
            )
        turn = self._turn.get((socket, members), 0)
        key = (members, turn)
        with self._change:
            self._turn[socket, members] = turn + 1
            given = self._given.setdefault(key, {})
            given[socket] = array.copy()
            if len(given) == len(members):
                self._given.pop(key)
                self._change.notify_all()
            while len(given) < len(members):
                if any(m in self._left for m in members if m not in given):
                    raise Left
                self._change.wait()
        return [given[m] for m in members]

    def leave(self, socket: int) -> None:
        """Say that a socket will give nothing more."""
        with self._change:
            self._left.add(socket)
            self._change.notify_all()


def on_each(count: int, run: Callable[[int], T], transport: Callable[[int], Meeting] = Meeting) -> list[T]:
    """What `run` gives on each of `count` sockets, in one process. The first error of a socket is raised; the others
    stop at their next collective with it."""
    meeting = transport(count)
    results: dict[int, T] = {}
    errors: dict[int, BaseException] = {}

    def work(index: int) -> None:
        try:
            with on_socket(Socket(index, meeting)):
                results[index] = run(index)
        except BaseException as error:
            errors[index] = error
        finally:
            meeting.leave(index)

    threads = [threading.Thread(target=work, args=(i,), name=f"socket {i}", daemon=True) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        own = [error for _, error in sorted(errors.items()) if not isinstance(error, Left)]
        if own:
            raise own[0]
        raise CompileError(
            "uneven-collectives",
            f"socket {min(errors)} waits at a collective for a socket that has ended",
            why="all sockets of a group must come to the same collectives",
        )
    return [results[i] for i in range(count)]


def exchanged(attrs: Attrs, array: Array) -> tuple[Sequence[Array], int]:
    """What the sockets of the group have, in order, and the place of this one among them."""
    group = group_of(attrs)
    if group.sockets == 1:
        return [array], 0
    socket = current_socket()
    rank = group.rank(socket.index)
    if socket.transport is None:
        raise CompileError("no-mesh", f"socket {socket.index} has no way to the others of its group")
    return socket.transport.exchange(socket.index, group.members(socket.index), array), rank


def place(attrs: Attrs) -> tuple[Group, int]:
    """The group of a collective, and the place of this socket in it."""
    group = group_of(attrs)
    return group, 0 if group.sockets == 1 else group.rank(current_socket().index)


def block(array: Array, axis: int, count: int, rank: int) -> Array:
    """The block of a rank along an axis that `count` share."""
    size = array.shape[axis] // count
    index: list[slice] = [slice(None)] * array.ndim
    index[axis] = slice(rank * size, (rank + 1) * size)
    return array[tuple(index)]


def combined(kind: str, arrays: Sequence[Array]) -> Array:
    """The arrays combined in their order; narrow floats in f32, rounded once."""
    dtype = arrays[0].dtype
    if dtype in NARROW:
        arrays = [x.astype(np.float32) for x in arrays]
    with np.errstate(all="ignore"):
        return np.asarray(reduce(FUNCTIONS[kind], arrays)).astype(dtype, copy=False)


@means("tensor.all_reduce")
def all_reduce(attrs: Attrs, x: Array) -> Array:
    arrays, _ = exchanged(attrs, x)
    return combined(attrs["kind"], arrays)


@means("tensor.all_gather")
def all_gather(attrs: Attrs, x: Array) -> Array:
    arrays, _ = exchanged(attrs, x)
    return np.concatenate(arrays, attrs["axis"])


@means("tensor.reduce_scatter")
def reduce_scatter(attrs: Attrs, x: Array) -> Array:
    arrays, rank = exchanged(attrs, x)
    return combined(attrs["kind"], [block(a, attrs["axis"], len(arrays), rank) for a in arrays])


@means("tensor.all_to_all")
def all_to_all(attrs: Attrs, x: Array) -> Array:
    arrays, rank = exchanged(attrs, x)
    return np.concatenate([block(a, attrs["split"], len(arrays), rank) for a in arrays], attrs["concat"])


@means("tensor.permute")
def permute(attrs: Attrs, x: Array) -> Array:
    arrays, rank = exchanged(attrs, x)
    return np.array(arrays[(rank - int(attrs["by"])) % len(arrays)])


@means("tensor.socket_slice")
def socket_slice(attrs: Attrs, x: Array) -> Array:
    group, rank = place(attrs)
    return block(x, attrs["axis"], group.sockets, rank)


@means("tensor.socket_choose")
def socket_choose(attrs: Attrs, *operands: Array) -> Array:
    return operands[place(attrs)[1]]


@means("tensor.socket_index")
def socket_index(attrs: Attrs) -> Array:
    return np.asarray(place(attrs)[1], np.int32)
