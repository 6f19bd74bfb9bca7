"""bank-memories: spread every buffer over memory units and their banks."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from xdsl.context import Context
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64

from headrace.dialects.dataflow.ops import BufferOp
from headrace.dialects.machine.attributes import device_of
from headrace.dialects.machine.device import Device
from headrace.dialects.support import dtypes, locations
from headrace.dialects.support.access import row_major
from headrace.dialects.support.diagnostics import Collector
from headrace.passes.analysis.sections import sections
from headrace.passes.infra.base import Pass


def held_bytes(buffer: BufferOp) -> int:
    """Bytes that a buffer holds at a time: copies × one frame."""
    type = buffer.buffer_type
    frame = ceil(type.elements / max(1, buffer.frame_count))
    return frame * buffer.copies.value.data * dtypes.byte_size(type.dtype)


def split_dim(buffer: BufferOp) -> int:
    """The dim to cut over units: the largest one that no frame loop advances (the outermost of equals)."""
    shape = buffer.buffer_type.shape
    strides = row_major(shape)
    stream, view = buffer.ports[0]
    walked = {abs(x.step * view.strides[x.dim]) for x in stream.time[: buffer.frames.value.data] if x.dim >= 0}
    free = [d for d, n in enumerate(shape) if not any(w >= strides[d] and w < strides[d] * n for w in walked)]
    dims = free or list(range(len(shape)))
    return max(dims, key=lambda d: (shape[d], -d)) if dims else 0


def units_for(buffer: BufferOp, device: Device) -> int:
    """Memory units that a buffer needs for its bytes, in equal blocks of its split dim; 0 when one index of that dim is
    more than a unit holds."""
    shape = buffer.buffer_type.shape
    extent = shape[split_dim(buffer)] if shape else 1
    most = device.pmu.bytes * extent // max(1, held_bytes(buffer))  # indices of the dim that a unit holds
    return ceil(extent / most) if most else 0


@dataclass(frozen=True)
class BankMemoriesPass(Pass):
    """Give every buffer the memory units that its bytes need, the dim along which they share it, and its banks.

    Assumes sized buffers and a device in the module. A buffer that has more bytes than its longest dim can spread over
    units is refused with the numbers. Banks are interleaved by words; a reader whose lanes are an even stride apart
    meets fewer banks, which the timing model counts.

        dataflow.buffer [768, 2304] …   =>   dataflow.buffer [768, 2304] … {units = 18, split_dim = 1, banks = 32}
    """

    name = "bank-memories"

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        device = device_of(module)
        found = Collector()
        changed = False
        for section in sections(module):
            for op in section.body.block.ops:
                if isinstance(op, BufferOp):
                    changed |= self._bank(op, device, found)
        found.raise_if_any()
        return changed

    def _bank(self, op: BufferOp, device: Device, found: Collector) -> bool:
        units, dim = units_for(op, device), split_dim(op)
        extent = op.buffer_type.shape[dim] if op.buffer_type.shape else 1
        if not units:
            found.add(
                "buffer-too-large",
                f"bank-memories: a buffer of {op.buffer_type} does not spread over memory units of {device.pmu.bytes} bytes",
                why=f"it holds {held_bytes(op)} bytes and its longest free dim has {extent} indices to share",
                fix="make tiles smaller, or cut the section",
                location=locations.of(op),
            )
            return False
        wanted = IntegerAttr(units, i64), IntegerAttr(dim, i64), IntegerAttr(device.pmu.banks, i64)
        if (op.units, op.split_dim, op.banks) == wanted:
            return False
        op.units, op.split_dim, op.banks = wanted
        return True
