"""narrow-joins: a memory that more streams fill than the chip has address generators for is filled in steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Region, SSAValue

from headrace.dialects.dataflow.ops import (
    BufferOp,
    SectionOp,
    StageOp,
    StoreOp,
    YieldOp,
    stream_of,
    view_array,
    views,
)
from headrace.dialects.dataflow.types import StreamType
from headrace.dialects.machine.attributes import device_of
from headrace.dialects.support.access import View, identity, row_major
from headrace.dialects.support.journal import decline, may
from headrace.dialects.tensor.base import ir_type
from headrace.dialects.tensor.shapes import TT
from headrace.passes.analysis.sections import sections, transfers
from headrace.passes.infra.base import Pass

Writer = tuple[SSAValue, View]


def run_along(writers: Sequence[Writer], dim: int) -> int:
    """How many writers, from the first on, fill one block of memory one after the other along a dim of theirs."""
    first, view = writers[0]
    shape = stream_of(first).full_shape
    at, count = view.offset, 0
    for value, other in writers:
        found = stream_of(value).full_shape
        if len(found) != len(shape) or other != View(at, view.strides):
            break
        if any(a != b for d, (a, b) in enumerate(zip(found, shape, strict=True)) if d != dim):
            break
        at += found[dim] * view.strides[dim]
        count += 1
    return count


class _Narrower:
    """Narrows the joins of one section."""

    def __init__(self, section: SectionOp, agcus: int) -> None:
        self.block = section.body.block
        self.agcus = agcus
        self.most = max(2, agcus // 2)
        self.count = 0

    def run(self) -> bool:
        for op in list(self.block.ops):
            if isinstance(op, BufferOp | StoreOp):
                while self._too_wide(op) and self._narrow(op):
                    pass
        return self.count > 0

    def _too_wide(self, op: BufferOp | StoreOp) -> bool:
        if len(op.ins) <= 2 or any(stream_of(v).time for v in op.ins):
            return False
        if isinstance(op, StoreOp):
            needed = len(op.ins) + 1
        else:
            stages = {use.operation for out in op.outs for use in out.uses if isinstance(use.operation, StageOp)}
            needed = max((transfers(stage.ins, stage.outs) for stage in stages), default=0)
        if needed <= self.agcus:
            decline("narrow-join", op, f"it takes {needed} of {self.agcus} address generators")
        return needed > self.agcus

    def _narrow(self, op: BufferOp | StoreOp) -> bool:
        """Let neighbours among the writers fill a buffer of their own, which a copy reads; whether any could."""
        left = list(zip(op.ins, views(op.in_views), strict=True))
        parts: list[tuple[list[Writer], int]] = []
        while left:
            lengths = [run_along(left, d) for d in range(len(left[0][1].strides))]
            longest = max(lengths, default=1)
            count = min(longest, self.most)
            parts.append((left[:count], lengths.index(longest) if count > 1 else 0))
            left = left[count:]
        if len(parts) == len(op.ins):
            decline("narrow-join", op, f"none of its {len(op.ins)} writers fill one block one after the other")
            return False
        if not may("narrow-join", op):
            return False
        found = [(self._joined(op, part, dim), part[0][1]) if len(part) > 1 else part[0] for part, dim in parts]
        op.operands = [v for v, _ in found]
        op.in_views = view_array([view for _, view in found])
        return True

    def _joined(self, op: BufferOp | StoreOp, part: Sequence[Writer], dim: int) -> SSAValue:
        """A stream of the block that some writers fill, out of a copying stage."""
        streams = [stream_of(v) for v, _ in part]
        shape = list(streams[0].full_shape)
        shape[dim] = sum(s.full_shape[dim] for s in streams)
        type = TT(tuple(shape), streams[0].dtype)
        strides = row_major(shape)
        at = 0
        targets: list[View] = []
        for stream in streams:
            targets.append(View(at, strides))
            at += stream.full_shape[dim] * strides[dim]
        whole = StreamType.of(type)
        buffer = BufferOp([v for v, _ in part], targets, shape, [whole], [identity(type.shape)])
        body = Block(arg_types=[ir_type(type)])
        body.add_op(end := YieldOp([body.args[0]]))
        stage = StageOp(f"join_{self.count}", [buffer.outs[0]], [whole], Region(body))
        for made in (buffer, end, stage, body.args[0]):
            made.location = op.location
        self.block.insert_ops_before([buffer, stage], op)
        self.count += 1
        return stage.outs[0]


@dataclass(frozen=True)
class NarrowJoinsPass(Pass):
    """Fill a memory in steps when more streams fill it than the chip has address generators for.

    Assumes untiled stages (before `tile`) and a device in the module. Neighbouring parts of a concatenation, at most
    half as many as there are address generators, are joined in a buffer of their own and copied from there. Memories
    that are filled from off chip without running out of address generators stay as they are.

        %t = dataflow.store (%0 at 0 [1], %1 at 4 [1], … 100 streams)
          =>  %b = dataflow.buffer [160] (%0 at 0 [1], %1 at 4 [1], … 40) to (at 0 [1])
              %c = dataflow.stage "join_0"(%b) { dataflow.yield %arg }
              …
              %t = dataflow.store (%c at 0 [1], %d at 160 [1], %e at 320 [1])
    """

    name = "narrow-joins"

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        agcus = device_of(module).count("agcu")
        changed = [_Narrower(section, agcus).run() for section in sections(module)]
        return any(changed)
