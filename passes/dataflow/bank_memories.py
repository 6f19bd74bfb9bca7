"""bank-memories: spread every buffer over memory units and their banks."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64

from headrace.dialects.dataflow.ops import BufferOp
from headrace.dialects.machine.attributes import device_of
from headrace.dialects.machine.device import Device
from headrace.dialects.support import locations
from headrace.dialects.support.diagnostics import Collector
from headrace.passes.analysis.memory import held_bytes, split_dim, units_for
from headrace.passes.analysis.sections import sections
from headrace.passes.infra.base import Pass


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
        frames, copies = op.frames.value.data, op.copies.value.data
        units, dim = units_for(op, device, frames, copies), split_dim(op, frames)
        extent = op.buffer_type.shape[dim] if op.buffer_type.shape else 1
        if not units:
            found.add(
                "buffer-too-large",
                f"bank-memories: a buffer of {op.buffer_type} does not spread over memory units of {device.pmu.bytes} "
                "bytes",
                why=f"it holds {held_bytes(op, frames, copies)} bytes and its longest free dim has {extent} indices to "
                "share",
                fix="make tiles smaller, or cut the section",
                location=locations.of(op),
            )
            return False
        wanted = IntegerAttr(units, i64), IntegerAttr(dim, i64), IntegerAttr(device.pmu.banks, i64)
        if (op.units, op.split_dim, op.banks) == wanted:
            return False
        op.units, op.split_dim, op.banks = wanted
        return True
