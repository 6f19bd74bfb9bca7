"""What passes over sections share: finding them, keeping their ops in order, and what a stage moves off chip."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import CallOp, FuncOp
from xdsl.ir import Block, Operation, SSAValue

from headrace.dialects.dataflow.ops import BufferOp, SectionOp, StoreOp


def sections(module: ModuleOp) -> Iterator[SectionOp]:
    """All sections of a module, in order."""
    for top in module.body.block.ops:
        for region in top.regions:
            for block in region.blocks:
                for op in block.ops:
                    if type(op) is SectionOp:  # isinstance of an abstract class is slow
                        yield op


def relaunched(module: ModuleOp) -> dict[SectionOp, float]:
    """Of a section that is all that a function launches: the part of its launches that follow one of its own, so that
    it is on the chip already. Others are not listed."""
    launches = {
        top.sym_name.data: [op for op in top.body.ops if isinstance(op, CallOp | SectionOp)]
        for top in module.body.block.ops
        if isinstance(top, FuncOp) and top.body.blocks
    }
    calls: Counter[str] = Counter()
    again: Counter[str] = Counter()
    for ops in launches.values():
        last = ""
        for op in ops:
            name = op.callee.string_value() if isinstance(op, CallOp) else ""
            calls[name] += 1
            again[name] += name == last
            last = name
    return {
        ops[0]: again[name] / calls[name]
        for name, ops in launches.items()
        if len(ops) == 1 and isinstance(ops[0], SectionOp) and calls[name]
    }


def sort_block(block: Block) -> None:
    """Put the ops of a block into an order in which values are made before they are used; keep it where it is one.
    `ValueError` when ops wait for each other in a circle."""
    ops = list(block.ops)
    inside = set(ops)
    done: set[Operation] = set()
    waiting: set[Operation] = set()
    order: list[Operation] = []
    for first in ops:
        work = [first]
        while work:
            op = work[-1]
            if op in done:
                work.pop()
                continue
            waits = [v.owner for v in op.operands if v.owner in inside and v.owner not in done]
            if waits:
                if op in waiting:
                    raise ValueError(f"{op.name} waits for itself")
                waiting.add(op)
                work.extend(reversed([w for w in waits if isinstance(w, Operation)]))
                continue
            done.add(op)
            order.append(op)
            work.pop()
    for op in ops:
        op.detach()
    block.add_ops(order)


class Order:
    """Ops one after the other, in an order that may be changed: which of two stands first is told at a look, and moving
    some costs a step for each of them."""

    def __init__(self, ops: Iterable[Operation]) -> None:
        self._next: dict[Operation | None, Operation | None] = {None: None}  # None stands before all and after all
        self._last: dict[Operation | None, Operation | None] = {None: None}
        self._label: dict[Operation, int] = {}
        for op in ops:
            self._link(op, None)
        self._relabel()

    def is_before(self, one: Operation, other: Operation) -> bool:
        """Whether an op stands before another; one that is not in the order stands after all."""
        label = self._label
        return one in label and (other not in label or label[one] < label[other])

    def sorted(self, ops: Iterable[Operation]) -> list[Operation]:
        """Some of the ops, in order."""
        return sorted(ops, key=self._label.__getitem__)

    def move(self, ops: Sequence[Operation], before: Operation) -> None:
        """Put ops right before another, in the order in which they are given."""
        for op in ops:
            self._unlink(op)
            self._link(op, before)
        if not ops:
            return
        last = self._last[ops[0]]
        high = self._label[before]
        low = self._label[last] if last is not None else high - _GAP
        if high - low <= len(ops):
            self._relabel()
        else:
            self._label.update((op, low + (high - low) * i // (len(ops) + 1)) for i, op in enumerate(ops, 1))

    def replace(self, old: Operation, new: Operation) -> None:
        """Put an op in the place of another."""
        self._link(new, old)
        self._label[new] = self._label[old]
        self.remove(old)

    def remove(self, op: Operation) -> None:
        """Take an op out."""
        self._unlink(op)
        del self._label[op]

    def _link(self, op: Operation, before: Operation | None) -> None:
        last = self._last[before]
        self._next[last] = self._last[before] = op
        self._last[op], self._next[op] = last, before

    def _unlink(self, op: Operation) -> None:
        last, after = self._last.pop(op), self._next.pop(op)
        self._next[last], self._last[after] = after, last

    def _relabel(self) -> None:
        op, number = self._next[None], 0
        while op is not None:
            self._label[op] = number * _GAP
            op, number = self._next[op], number + 1


_GAP = 1 << 256
"""Between the labels of neighbours, so that many ops find room between them before all are labelled anew."""


def transfers(ins: Iterable[SSAValue], outs: Iterable[SSAValue]) -> int:
    """Address generators that a stage of these inputs and outputs takes when it is alone in a section: one for each
    stream that fills its buffers, for each result off chip, and for each output that others read."""
    loads = {made for v in ins for made in (v.owner.ins if isinstance(v.owner, BufferOp) else (v,))}
    stores: set[SSAValue] = set()
    for out in outs:
        for use in out.uses:
            stores.add(use.operation.tensor if isinstance(use.operation, StoreOp) else out)
    return len(loads) + len(stores)
