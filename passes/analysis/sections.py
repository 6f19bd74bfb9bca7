"""What passes over sections share: finding them, keeping their ops in order, and what a stage moves off chip."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from xdsl.dialects.builtin import ModuleOp
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


def transfers(ins: Iterable[SSAValue], outs: Iterable[SSAValue]) -> int:
    """Address generators that a stage of these inputs and outputs takes when it is alone in a section: one for each
    stream that fills its buffers, for each result off chip, and for each output that others read."""
    loads = {made for v in ins for made in (v.owner.ins if isinstance(v.owner, BufferOp) else (v,))}
    stores: set[SSAValue] = set()
    for out in outs:
        for use in out.uses:
            stores.add(use.operation.tensor if isinstance(use.operation, StoreOp) else out)
    return len(loads) + len(stores)
