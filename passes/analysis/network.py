"""Which frames a buffer between streams can work in: the outer loops that all of its streams share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headrace.dialects.dataflow.ops import BufferOp
from headrace.dialects.support.access import Stream, View


def footprint(sizes: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """A set of addresses given by (count, stride) pairs, in a form that is equal for equal dense nests: repeats
    dropped, sorted by stride, neighbours merged."""
    live = sorted(((n, s) for n, s in sizes if n > 1 and s), key=lambda x: abs(x[1]))
    found: list[tuple[int, int]] = []
    for n, s in live:
        if found and found[-1][0] * found[-1][1] == s:
            found[-1] = (found[-1][0] * n, found[-1][1])
        else:
            found.append((n, s))
    return tuple(found)


def _inner(stream: Stream, view: View, frames: int) -> tuple[tuple[int, int], ...]:
    """Addresses of one frame as (count, stride) pairs."""
    loops = [(x.count, x.step * view.strides[x.dim]) for x in stream.time[frames:] if x.dim >= 0]
    return footprint([*zip(stream.tile, view.strides, strict=True), *loops])


Port = tuple[Stream, View]


def common_frames(buffer: BufferOp) -> int:
    """The most outer loops that all ports of a buffer share (`shared_frames`)."""
    ports = buffer.ports
    return shared_frames(ports[: len(buffer.ins)], ports[len(buffer.ins) :])


def shared_frames(writers: Sequence[Port], readers: Sequence[Port]) -> int:
    """The most outer loops that all ports share, each frame of the readers lying within the same frame of the
    writers."""
    writers = joined(writers)
    ports = [*writers, *readers]
    most = min(len(stream.time) for stream, _ in ports)
    best = 0
    for n in range(1, most + 1):
        steps = {
            tuple((x.count, x.step * view.strides[x.dim] if x.dim >= 0 else 0) for x in stream.time[:n])
            for stream, view in ports
        }
        if len(steps) != 1 or any(s == 0 and c > 1 for c, s in next(iter(steps))):
            break
        if len(writers) == 1:
            fits = all(_within(port, writers[0], n) for port in readers)
        else:
            fits = _apart(writers, readers, n, next(iter(steps)))
        if fits:
            best = n
    return best


def joined(ports: Sequence[Port]) -> list[Port]:
    """Ports with those made one that do the same side by side: tiles that differ in one dim, along which no loop runs,
    each beginning where the one before ends."""
    found: list[Port] = []
    for port in sorted(ports, key=lambda x: x[1].offset):
        stream, view = port
        for i, (other, at) in enumerate(found):
            dims = [d for d, (n, m) in enumerate(zip(other.tile, stream.tile, strict=False)) if n != m]
            if other.time != stream.time or at.strides != view.strides or len(dims) > 1:
                continue
            dims = dims or range(len(stream.tile))
            dim = next((d for d in dims if view.offset == at.offset + other.tile[d] * at.strides[d]), None)
            if dim is not None and all(loop.dim != dim for loop in stream.time):
                tile = list(other.tile)
                tile[dim] += stream.tile[dim]
                found[i] = replace(other, tile=tuple(tile)), at
                break
        else:
            found.append(port)
    return found


def _apart(writers: Sequence[Port], readers: Sequence[Port], frames: int, steps: Sequence[tuple[int, int]]) -> bool:
    """Whether a frame of several writers is a range of addresses of its own that its readers stay in."""
    low, high = _range(writers, frames)
    length = high - low
    for count, step in sorted(steps, key=lambda x: abs(x[1])):
        if count > 1:
            if abs(step) < length:
                return False
            length = abs(step) * (count - 1) + length
    first, last = _range(readers, frames)
    return low <= first and last <= high


def _range(ports: Sequence[Port], frames: int) -> tuple[int, int]:
    """The addresses of the ports' first frame: from, to (exclusive)."""
    low: list[int] = []
    high: list[int] = []
    for stream, view in ports:
        ends = [(n - 1) * s for n, s in _inner(stream, view, frames)]
        low.append(view.offset + sum(x for x in ends if x < 0))
        high.append(view.offset + sum(x for x in ends if x > 0) + 1)
    return min(low), max(high)


def _within(reader: Port, writer: Port, frames: int) -> bool:
    mine, theirs = _inner(*reader, frames), _inner(*writer, frames)
    if mine == theirs and reader[1].offset == writer[1].offset:
        return True
    if len(theirs) > 1 or (theirs and theirs[0][1] != 1):
        return False
    length = theirs[0][0] if theirs else 1
    low = reader[1].offset + sum((n - 1) * s for n, s in mine if s < 0)
    high = reader[1].offset + sum((n - 1) * s for n, s in mine if s > 0)
    return low >= writer[1].offset and high < writer[1].offset + length
