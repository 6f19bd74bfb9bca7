"""How many bytes a buffer holds, and over how many memory units."""

from __future__ import annotations

from math import ceil, prod

from headrace.dialects.dataflow.ops import BufferOp
from headrace.dialects.machine.device import Device
from headrace.dialects.support import dtypes
from headrace.dialects.support.access import row_major


def frame_count(buffer: BufferOp, frames: int) -> int:
    """How many frames the first `frames` loops enumerate."""
    return prod(x.count for x in buffer.ports[0][0].time[:frames])


def held_bytes(buffer: BufferOp, frames: int, copies: int) -> int:
    """Bytes that a buffer holds at a time: copies (at most all frames) × one frame."""
    type = buffer.buffer_type
    count = max(1, frame_count(buffer, frames))
    return ceil(type.elements / count) * min(copies, count) * dtypes.byte_size(type.dtype)


def split_dim(buffer: BufferOp, frames: int) -> int:
    """The dim to cut over units: the largest one that no frame loop advances (the outermost of equals)."""
    shape = buffer.buffer_type.shape
    strides = row_major(shape)
    stream, view = buffer.ports[0]
    walked = {abs(x.step * view.strides[x.dim]) for x in stream.time[:frames] if x.dim >= 0}
    free = [d for d, n in enumerate(shape) if not any(strides[d] <= w < strides[d] * n for w in walked)]
    dims = free or list(range(len(shape)))
    return max(dims, key=lambda d: (shape[d], -d)) if dims else 0


def units_for(buffer: BufferOp, device: Device, frames: int, copies: int) -> int:
    """Memory units that a buffer needs for its bytes, in equal blocks of its split dim; 0 when one index of that dim is
    more than a unit holds."""
    shape = buffer.buffer_type.shape
    extent = shape[split_dim(buffer, frames)] if shape else 1
    held = held_bytes(buffer, frames, copies)
    most = device.pmu.bytes * extent // max(1, held)  # indices of the dim that a unit holds
    return ceil(extent / most) if most else 0
