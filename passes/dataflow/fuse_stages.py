"""fuse-stages: elementwise and row-wise stages join the stage that makes their input."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, Region, SSAValue

from headrace.dialects.dataflow.ops import BufferOp, SectionOp, StageOp, YieldOp, stream_of, views
from headrace.dialects.dataflow.types import StreamType
from headrace.dialects.machine.attributes import DEVICE_ATTRIBUTE, device_of
from headrace.dialects.support import locations
from headrace.dialects.support.access import identity
from headrace.dialects.support.journal import count, decline, may
from headrace.dialects.tensor.elementwise import OPS as ELEMENTWISE_OPS
from headrace.passes.analysis.sections import Order, sections, sort_block, transfers
from headrace.passes.infra.base import Pass, option

ELEMENTWISE = frozenset(cls.name for cls in ELEMENTWISE_OPS)
ROWWISE = frozenset(f"tensor.{n}" for n in ("softmax", "log_softmax", "layer_norm", "rms_norm"))


def _body(stage: StageOp) -> list[Operation]:
    return [op for op in stage.body.block.ops if op.operands and not isinstance(op, YieldOp)]


def _behind(value: SSAValue) -> tuple[BufferOp, StageOp] | None:
    """The buffer and the stage behind a stage input when that stage alone fills the buffer."""
    buffer = value.owner
    if not isinstance(buffer, BufferOp) or len(buffer.ins) != 1:
        return None
    maker = buffer.ins[0].owner
    return (buffer, maker) if isinstance(maker, StageOp) else None


def _passes_on(buffer: BufferOp, value: SSAValue) -> bool:
    """Whether a buffer merely passes on to a reader what its one writer makes."""
    shape = buffer.buffer_type.shape
    index = buffer.outs.index(value)  # pyright: ignore[reportArgumentType]
    made, read = stream_of(buffer.ins[0]), stream_of(value)
    if made.time or read.time or made.tile != read.tile or made.tile != shape:
        return False
    whole = identity(shape)
    return views(buffer.in_views)[0] == whole and views(buffer.out_views)[index] == whole


class _Fuser:
    def __init__(self, section: SectionOp, limit: int, agcus: int, inputs: int) -> None:
        self.section = section
        self.limit = limit
        self.agcus = agcus
        self.inputs = inputs
        self.changed = False

    def run(self) -> bool:
        block = self.section.body.block
        self.order = Order(block.ops)
        for stage in [op for op in block.ops if isinstance(op, StageOp)]:
            self._join(stage)
        if self.changed:
            sort_block(block)
        return self.changed

    def _join(self, stage: StageOp) -> None:
        for value in stage.ins:
            found = _behind(value)
            if found is None:
                continue
            buffer, maker = found
            reason = self._refusal(maker, stage, buffer, value)
            if not reason and not self._apart(maker, stage, value):
                reason = "another path leads from it to here"
            if reason:
                decline("join-stage", stage, f'not with "{maker.sym.data}": {reason}')
                continue
            if not may("join-stage", stage):
                return
            self._merge(maker, stage, buffer, value)
            return

    def _refusal(self, maker: StageOp, stage: StageOp, buffer: BufferOp, value: SSAValue) -> str:
        """Why a stage does not join the one that makes an input of it, if that is plain to see."""
        if not _passes_on(buffer, value):
            return "the buffer between them moves or repeats elements"
        ops, tail = _body(maker), _body(stage)
        other = next((op for op in tail if op.name not in ELEMENTWISE), None)
        if not tail or not (ops or other):
            return "one of them only copies"
        if len(ops) + len(tail) > self.limit:
            return f"together they have {len(ops) + len(tail)} ops, and {self.limit} are allowed"
        shape = stream_of(value).tile
        if any(stream_of(out).tile != shape for out in stage.outs):
            return "its results have another shape than what it reads"
        if other is not None and any(op.name not in ELEMENTWISE | ROWWISE for op in tail):
            return f"{other.name} is neither elementwise nor row-wise"
        heavy = next((op for op in ops if op.name not in ELEMENTWISE), None)
        if other is not None and heavy is not None:
            return f"{other.name} would keep {heavy.name} from being cut by columns"
        takes = len({*maker.ins, *stage.ins} - {value})
        if heavy is not None and takes > self.inputs:
            return f"together they take {takes} values, and a unit that holds {heavy.name} has {self.inputs} inputs"
        shared = len(buffer.outs) > 1  # others read what the maker makes, out of the same buffer
        kept = [out for out in maker.outs if shared or any(use.operation is not buffer for use in out.uses)]
        needed = transfers({*maker.ins, *stage.ins} - {value}, [*kept, *stage.outs])
        if needed > self.agcus:
            return f"together they take {needed} address generators, and the chip has {self.agcus}"
        return ""

    def _apart(self, maker: StageOp, stage: StageOp, direct: SSAValue) -> bool:
        """Whether no path leads from `maker` to `stage` besides `direct`: with one, fusing the two would close a
        circle. If so, `maker` is put after all that `stage` needs. Looks from both ends in turn, so that it takes no
        longer than the nearer one says."""
        ahead, behind = self._ahead(maker, stage, direct), self._behind(maker, stage, direct)
        while True:
            step = next(ahead)
            if step is not None:
                if stage not in step:
                    self.order.move([maker, *self.order.sorted(step)], stage)
                return stage not in step
            step = next(behind)
            if step is not None:
                if maker not in step:
                    self.order.move(self.order.sorted(step), maker)
                return maker not in step

    def _ahead(self, maker: StageOp, stage: StageOp, direct: SSAValue) -> Iterator[set[Operation] | None]:
        """A step at a time, None after each: in the end what needs `maker` and stands before `stage`, or with `stage`
        as soon as it is met."""
        found: set[Operation] = set()
        work: list[Operation] = [maker]
        while work:
            for out in work.pop().results:
                for use in out.uses:
                    op = use.operation
                    yield None
                    if op is stage and out is not direct:
                        yield {stage}
                    if op is not stage and op not in found and self.order.is_before(op, stage):
                        found.add(op)
                        work.append(op)
        yield found

    def _behind(self, maker: StageOp, stage: StageOp, direct: SSAValue) -> Iterator[set[Operation] | None]:
        """The same backwards: what `stage` needs besides `direct` and stands after `maker`, or with `maker`."""
        found: set[Operation] = set()
        work = [v.owner for v in stage.ins if v is not direct]
        while work:
            op = work.pop()
            yield None
            if op is maker:
                yield {maker}
            if isinstance(op, Operation) and op not in found and self.order.is_before(maker, op):
                found.add(op)
                work.extend(v.owner for v in op.operands)
        yield found

    def _merge(self, maker: StageOp, stage: StageOp, buffer: BufferOp, value: SSAValue) -> None:
        joined = {v for v in stage.ins if v is value}
        ins = list(dict.fromkeys([*maker.ins, *(v for v in stage.ins if v not in joined)]))
        block = Block(arg_types=[t.tile for v in ins if isinstance(t := v.type, StreamType)])
        args = dict(zip(ins, block.args, strict=True))
        for old in (stage, maker):
            for argument, v in zip(old.body.block.args, old.ins, strict=True):
                if v in args:
                    args[v].location = argument.location
        mapping: dict[SSAValue, SSAValue] = {a: args[v] for a, v in zip(maker.body.block.args, maker.ins, strict=True)}
        made = self._copy(maker, block, mapping)
        mapping.update(
            (a, made[maker.outs.index(buffer.ins[0])] if v in joined else args[v])  # pyright: ignore
            for a, v in zip(stage.body.block.args, stage.ins, strict=True)
        )
        last = self._copy(stage, block, mapping)
        kept = self._release(buffer, value, maker)
        block.add_op(end := YieldOp([*(made[i] for i in kept), *last]))
        where = locations.fuse([maker.location, buffer.location, stage.location])
        end.location = where
        outs = [maker.outs[i].type for i in kept] + [r.type for r in stage.outs]
        merged = StageOp(maker.sym.data, ins, outs, Region(block))  # pyright: ignore[reportArgumentType]
        merged.location = where
        self.section.body.block.insert_op_before(merged, stage)
        for new, old in zip(merged.outs, [*(maker.outs[i] for i in kept), *stage.outs], strict=True):
            old.replace_all_uses_with(new)
        self.order.replace(maker, merged)
        self.order.remove(stage)
        for op in (stage, maker):
            op.detach()
            op.erase()
        self.changed = True
        count("stages joined")

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
            self.order.replace(buffer, smaller)
            for (old, _), new in zip(rest, smaller.outs, strict=True):
                old.replace_all_uses_with(new)
        else:
            self.order.remove(buffer)
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
    that together read and write more tensors than the module's device has address generators, or where the unit of a
    contraction would need more inputs than it has.

        %t = dataflow.stage "matmul_0" … { tensor.matmul }           %t = dataflow.stage "matmul_0" …
        %b = dataflow.buffer … (%t …) to (…)                    =>     { tensor.matmul; tensor.add }
        %u = dataflow.stage "add_0"(%b, %c) … { tensor.add }
    """

    name = "fuse-stages"
    most: int = option(16, "most ops in a fused body", low=1)

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        agcus = inputs = sys.maxsize
        if DEVICE_ATTRIBUTE in module.attributes:
            device = device_of(module)
            agcus, inputs = device.count("agcu"), device.pcu.inputs
        changed = [_Fuser(section, self.most, agcus, inputs).run() for section in sections(module)]
        return any(changed)
