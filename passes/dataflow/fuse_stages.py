"""fuse-stages: elementwise and row-wise stages join the stage that makes their input."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, Region, SSAValue

from headrace.dialects.dataflow.ops import BufferOp, SectionOp, StageOp, YieldOp, stream_of, views
from headrace.dialects.dataflow.types import StreamType
from headrace.dialects.machine.attributes import DEVICE_ATTRIBUTE, device_of
from headrace.dialects.support import locations
from headrace.dialects.support.access import identity
from headrace.dialects.tensor.elementwise import OPS as ELEMENTWISE_OPS
from headrace.passes.analysis.sections import sections, sort_block, transfers
from headrace.passes.infra.base import Pass, option

ELEMENTWISE = frozenset(cls.name for cls in ELEMENTWISE_OPS)
ROWWISE = frozenset(f"tensor.{n}" for n in ("softmax", "log_softmax", "layer_norm", "rms_norm"))


def _body(stage: StageOp) -> list[Operation]:
    return [op for op in stage.body.block.ops if op.operands and not isinstance(op, YieldOp)]


def _direct(value: SSAValue) -> tuple[BufferOp, StageOp] | None:
    """The buffer and the stage behind a stage input when the buffer merely passes the stage's output on."""
    buffer = value.owner
    if not isinstance(buffer, BufferOp) or len(buffer.ins) != 1:
        return None
    maker = buffer.ins[0].owner
    if not isinstance(maker, StageOp):
        return None
    shape = buffer.buffer_type.shape
    index = buffer.outs.index(value)  # pyright: ignore[reportArgumentType]
    made, read = stream_of(buffer.ins[0]), stream_of(value)
    if made.time or read.time or made.tile != read.tile or made.tile != shape:
        return None
    whole = identity(shape)
    if views(buffer.in_views)[0] != whole or views(buffer.out_views)[index] != whole:
        return None
    return buffer, maker


class _Fuser:
    def __init__(self, section: SectionOp, limit: int, agcus: int) -> None:
        self.section = section
        self.limit = limit
        self.agcus = agcus
        self.changed = False

    def run(self) -> bool:
        block = self.section.body.block
        self.position = {op: i for i, op in enumerate(block.ops)}
        for stage in [op for op in block.ops if isinstance(op, StageOp)]:
            self._join(stage)
        if self.changed:
            sort_block(block)
        return self.changed

    def _join(self, stage: StageOp) -> None:
        for value in stage.ins:
            found = _direct(value)
            if found is None or not self._fits(found[1], stage, value):
                continue
            before = self._before(found[1], stage, value)
            if before is not None:
                self._reorder(found[1], before)
                self._merge(found[1], stage, found[0], value)
                return

    def _fits(self, maker: StageOp, stage: StageOp, value: SSAValue) -> bool:
        ops, tail = _body(maker), _body(stage)
        if len(ops) + len(tail) > self.limit or not tail:
            return False
        shape = stream_of(value).tile
        if any(stream_of(out).tile != shape for out in stage.outs):
            return False
        kept = [out for out in maker.outs if any(use.operation is not value.owner for use in out.uses)]
        if transfers({*maker.ins, *stage.ins} - {value}, [*kept, *stage.outs]) > self.agcus:
            return False
        if all(op.name in ELEMENTWISE for op in tail):
            return bool(ops)
        return all(op.name in ELEMENTWISE | ROWWISE for op in tail) and all(op.name in ELEMENTWISE for op in ops)

    def _before(self, maker: StageOp, stage: StageOp, direct: SSAValue) -> set[Operation] | None:
        """What `stage` needs besides `direct` and stands after `maker`; None when `maker` is part of it (then fusing
        the two would close a circle)."""
        found: set[Operation] = set()
        work = [v.owner for v in stage.ins if v is not direct]
        while work:
            op = work.pop()
            if op is maker:
                return None
            if not isinstance(op, Operation) or op in found or self.position.get(op, -1) < self.position[maker]:
                continue
            found.add(op)
            work.extend(v.owner for v in op.operands)
        return found

    def _reorder(self, maker: StageOp, before: set[Operation]) -> None:
        """Put `maker` after `before`, and what needs it after itself: the positions of all of them are dealt out anew,
        so that every op still stands after what it needs."""
        if not before:
            return
        last = max(self.position[op] for op in before)
        after: set[Operation] = set()
        work: list[Operation] = [maker]
        while work:
            for out in work.pop().results:
                for use in out.uses:
                    op = use.operation
                    if op not in after and self.position.get(op, last) < last:
                        after.add(op)
                        work.append(op)

        def ordered(ops: set[Operation]) -> list[Operation]:
            return sorted(ops, key=self.position.__getitem__)

        order = [*ordered(before), maker, *ordered(after)]
        self.position.update(zip(order, sorted(self.position[op] for op in order), strict=True))

    def _merge(self, maker: StageOp, stage: StageOp, buffer: BufferOp, value: SSAValue) -> None:
        joined = {v for v in stage.ins if v is value}
        ins = list(dict.fromkeys([*maker.ins, *(v for v in stage.ins if v not in joined)]))
        block = Block(arg_types=[t.tile for v in ins if isinstance(t := v.type, StreamType)])
        args = dict(zip(ins, block.args, strict=True))
        mapping: dict[SSAValue, SSAValue] = {a: args[v] for a, v in zip(maker.body.block.args, maker.ins, strict=True)}
        made = self._copy(maker, block, mapping)
        mapping.update(
            (a, made[maker.outs.index(buffer.ins[0])] if v in joined else args[v])  # pyright: ignore
            for a, v in zip(stage.body.block.args, stage.ins, strict=True)
        )
        last = self._copy(stage, block, mapping)
        kept = self._release(buffer, value, maker)
        block.add_op(end := YieldOp([*(made[i] for i in kept), *last]))
        where = locations.fuse([maker.location, stage.location])
        end.location = where
        outs = [maker.outs[i].type for i in kept] + [r.type for r in stage.outs]
        merged = StageOp(maker.sym.data, ins, outs, Region(block))  # pyright: ignore[reportArgumentType]
        merged.location = where
        self.section.body.block.insert_op_before(merged, stage)
        for new, old in zip(merged.outs, [*(maker.outs[i] for i in kept), *stage.outs], strict=True):
            old.replace_all_uses_with(new)
        self.position[merged] = self.position[maker]
        for op in (stage, maker):
            op.detach()
            op.erase()
        self.changed = True

    def _copy(self, stage: StageOp, block: Block, mapping: dict[SSAValue, SSAValue]) -> list[SSAValue]:
        for op in stage.body.block.ops:
            if isinstance(op, YieldOp):
                return [mapping[v] for v in op.values]
            block.add_op(op.clone(mapping))
        return []

    def _release(self, buffer: BufferOp, value: SSAValue, maker: StageOp) -> list[int]:
        """Take one reader off a buffer; return which outputs of the maker are still read."""
        made = buffer.ins[0]
        rest = [(r, v) for r, v in zip(buffer.outs, views(buffer.out_views), strict=True) if r is not value]
        if rest:
            smaller = BufferOp(
                list(buffer.ins),
                views(buffer.in_views),
                buffer.buffer_type.shape,
                [r.type for r, _ in rest],  # pyright: ignore[reportArgumentType]
                [v for _, v in rest],
                buffer.fill.value.data,
            )
            smaller.location = buffer.location
            self.section.body.block.insert_op_before(smaller, buffer)
            self.position[smaller] = self.position[buffer]
            for (old, _), new in zip(rest, smaller.outs, strict=True):
                old.replace_all_uses_with(new)
        value.replace_all_uses_with(buffer.ins[0])  # the stage that read it is erased next
        buffer.detach()
        buffer.erase()
        readers = {out: sum(not self._is_stale(use.operation, made) for use in out.uses) for out in maker.outs}
        return [i for i, out in enumerate(maker.outs) if readers[out]]

    def _is_stale(self, op: Operation, made: SSAValue) -> bool:
        return isinstance(op, StageOp) and made in op.operands


@dataclass(frozen=True)
class FuseStagesPass(Pass):
    """Join an elementwise stage (or a row-wise one: softmax, norms) with the stage that makes its input.

    Assumes untiled stages (before `tile`). A stage joins when its results have the shape of that input, when the buffer
    between passes the tile on unchanged, and when no other path leads from one to the other. A row-wise stage joins
    elementwise ones only: a contraction before it keeps its own freedom to be cut by columns. Two stages stay apart
    that together read and write more tensors than the module's device has address generators.

        %t = dataflow.stage "matmul_0" … { tensor.matmul }           %t = dataflow.stage "matmul_0" …
        %b = dataflow.buffer … (%t …) to (…)                    =>     { tensor.matmul; tensor.add }
        %u = dataflow.stage "add_0"(%b, %c) … { tensor.add }
    """

    name = "fuse-stages"
    most: int = option(16, "most ops in a fused body", low=1)

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        agcus = device_of(module).count("agcu") if DEVICE_ATTRIBUTE in module.attributes else sys.maxsize
        changed = [_Fuser(section, self.most, agcus).run() for section in sections(module)]
        return any(changed)
