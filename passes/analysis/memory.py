"""How many bytes a buffer holds, and over how many memory units."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod

from headrace.dialects.dataflow.ops import BufferOp
from headrace.dialects.machine.device import Device
from headrace.dialects.support import dtypes
from headrace.dialects.support.access import Stream, View, row_major
from headrace.passes.analysis.network import common_frames


def frame_count(buffer: BufferOp, frames: int) -> int:
    """How many frames the first `frames` loops enumerate."""
    return prod(x.count for x in buffer.ports[0][0].time[:frames])


def held_bytes(buffer: BufferOp, frames: int, copies: int, runs: int = 1) -> int:
    """Bytes that a buffer holds at a time: copies (at most all frames of as many runs as follow each other) × one
    frame."""
    type = buffer.buffer_type
    count = max(1, frame_count(buffer, frames))
    return ceil(type.elements / count) * min(copies, count * runs) * dtypes.byte_size(type.dtype)


def _walked(buffer: BufferOp, frames: int) -> set[int]:
    """The dims that a frame loop advances."""
    shape = buffer.buffer_type.shape
    strides = row_major(shape)
    stream, view = buffer.ports[0]
    steps = {abs(x.step * view.strides[x.dim]) for x in stream.time[:frames] if x.dim >= 0}
    return {d for d, n in enumerate(shape) if any(strides[d] <= w < strides[d] * n for w in steps)}


def free_dims(buffer: BufferOp, frames: int) -> list[int]:
    """The dims that may be cut over units, longest first (the outermost of equals): those that no frame loop advances;
    all when every dim of more than one index is advanced."""
    shape = buffer.buffer_type.shape
    walked = _walked(buffer, frames)
    free = [d for d in range(len(shape)) if d not in walked]
    return sorted(free or range(len(shape)), key=lambda d: (-shape[d], d))


def covered(shape: Sequence[int], stream: Stream, view: View, dim: int) -> tuple[int, int]:
    """The indices of a buffer's dim, from and to before which, that a port comes by."""
    stride, extent = row_major(shape)[dim], shape[dim]
    sizes = [(n - 1, s) for n, s in zip(stream.full_shape, view.strides, strict=True)]
    low = view.offset + sum(n * s for n, s in sizes if s < 0)
    inner = low % stride + sum(n * abs(s) for n, s in sizes if abs(s) < stride)
    along = sum(n * abs(s) // stride for n, s in sizes if stride <= abs(s) < stride * extent)
    first = low // stride % extent
    last = first + along + inner // stride
    return (first, last + 1) if last < extent else (0, extent)


def crowded(parts: Sequence[tuple[tuple[int, int], float]], extent: int) -> float:
    """What a dim of that extent would carry if all of it carried as much as its busiest index does, when each part
    carries the amount beside it."""
    ends = sorted({end for (first, last), _ in parts for end in (first, last)})
    load = [sum(n / (last - first) for (first, last), n in parts if first <= at < last) for at in ends]
    return max(load, default=0.0) * extent


def units_for(buffer: BufferOp, device: Device, frames: int, copies: int, dim: int | None = None, runs: int = 1) -> int:
    """Memory units that a buffer needs for its bytes, in equal blocks of `dim` (default: the longest free one); 0 when
    one index of that dim is more than a unit holds. Frames that lie one after the other along `dim` may all be in one
    unit, so that units that do not hold them together hold their whole blocks."""
    shape = buffer.buffer_type.shape
    if dim is None:
        dim = free_dims(buffer, frames)[0] if shape else 0
    extent = shape[dim] if shape else 1
    held = held_bytes(buffer, frames, copies, runs)
    if held > device.pmu.bytes and dim in _walked(buffer, frames):
        whole = buffer.buffer_type.elements * dtypes.byte_size(buffer.buffer_type.dtype)
        held = whole * (ceil(copies / max(1, frame_count(buffer, frames))) if runs > 1 else 1)
    most = device.pmu.bytes * extent // max(1, held)  # indices of the dim that a unit holds
    return ceil(extent / most) if most else 0


def fitting_frames(buffer: BufferOp, device: Device, copies: int) -> int:
    """The most frame loops with which the buffer spreads over memory units; 0 when it does not even whole."""
    frames = common_frames(buffer)
    while frames and not units_for(buffer, device, frames, copies):
        frames -= 1
    return frames
