"""Ops in the order in which they follow from one another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation

from headrace.dialects.support.journal import may
from headrace.dialects.tensor.base import operands
from headrace.passes.infra.base import Pass
from headrace.passes.tensor import _graph

STAY = frozenset(("tensor.matmul", "tensor.conv", "func.call"))
"""Ops that stay in the order in which they were written."""


@dataclass(frozen=True)
class OrderOpsPass(Pass):
    """Put each op right behind what it needs, but for products and calls, which stay in their order.

    Assumes that ops are pure, as tensor ops are. Sections are runs of this order: what belongs to a product is then
    beside it whichever way the model was written.

        %1 = tensor.matmul %x, %a              %1 = tensor.matmul %x, %a
        %2 = tensor.matmul %x, %b        =>    %3 = tensor.relu %1
        %3 = tensor.relu %1                    %2 = tensor.matmul %x, %b
        %4 = tensor.relu %2                    %4 = tensor.relu %2
    """

    name: ClassVar[str] = "order-ops"
    requires = ensures = _graph.TENSOR

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        changed = [_order(block) for block in _graph.blocks(module)]
        return any(changed)


def _order(block: Block) -> bool:
    """Order the ops of a block; True if any moves."""
    ops = [op for op in _graph.ops(block) if not _graph.is_terminator(op)]
    number = {op: i for i, op in enumerate(ops)}
    waits = [0] * len(ops)
    users: list[list[int]] = [[] for _ in ops]
    for i, op in enumerate(ops):
        found = (_graph.producer(value) for value in operands(op))
        makers = {number[maker] for maker in found if maker is not None}
        waits[i] = len(makers)
        for maker in makers:
            users[maker].append(i)
    order: list[int] = []
    placed = [False] * len(ops)
    for start in range(len(ops)):
        path = [start]
        while path:
            at = path.pop()
            if placed[at] or waits[at]:
                continue
            placed[at] = True
            order.append(at)
            for user in reversed(users[at]):
                waits[user] -= 1
                if not waits[user] and ops[user].name not in STAY:
                    path.append(user)
    if order == sorted(order) or not may("order-ops", ops[0]):
        return False
    _arrange(block, [ops[i] for i in order])
    return True


def _arrange(block: Block, ops: list[Operation]) -> None:
    for op in ops:
        op.detach()
    last = block.last_op
    assert last is not None
    for op in ops:
        block.insert_op_before(op, last)
