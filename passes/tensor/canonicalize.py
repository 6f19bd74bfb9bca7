"""The canonical form of tensor programs."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import ClassVar

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, OpResult, SSAValue
from xdsl.rewriter import InsertPoint

from headrace.dialects.support import journal
from headrace.dialects.tensor.base import operands
from headrace.dialects.tensor.canonicalization import Rule, rules
from headrace.passes.infra.base import Pass
from headrace.passes.infra.rewriting import DEAD, LocatingRewriter, Watchdog, attempt
from headrace.passes.tensor import _graph

REWRITES_PER_OP, REWRITES_AT_LEAST = 16, 1024
"""A block that needs more rewrites than this is taken for a circle of patterns."""


@dataclass(frozen=True)
class CanonicalizePass(Pass):
    """Apply the canonicalization patterns of the tensor ops to rest, and erase what becomes dead.

    Assumes nothing. Patterns are those of `dialects/tensor/canonicalization`; each op is looked at once, and again when
    its operands change. Ops that replace another have its location, ops that merge several have all of theirs.

    Before: `%1 = tensor.reshape %0 …`, `%2 = tensor.reshape %1 …`. After: `%2 = tensor.reshape %0 …`.
    """

    name: ClassVar[str] = "canonicalize"
    requires = ensures = _graph.TENSOR

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        return canonicalize(module)


def canonicalize(module: ModuleOp) -> bool:
    """Bring all functions into canonical form; True if anything changed."""
    changed = False
    table: dict[str, tuple[Rule, ...]] = {}
    for block in _graph.blocks(module):
        changed |= _Worklist(block, table).run()
    return changed


class _Worklist:
    """Ops of one block that patterns may apply to. Each op is in it once at a time."""

    def __init__(self, block: Block, table: dict[str, tuple[Rule, ...]]) -> None:
        self.block = block
        self.table = table
        self.queue: deque[Operation] = deque()
        self.queued: set[int] = set()
        """The ids of the ops in the queue."""
        self.changed = False

    def run(self) -> bool:
        ops = _graph.ops(self.block)
        self.watchdog = Watchdog(len(ops), REWRITES_AT_LEAST + REWRITES_PER_OP * len(ops))
        self.queue.extend([op for op in ops if self.rules(op.name) or _graph.unused(op)])
        self.queued.update([id(op) for op in self.queue])
        if not self.queue:
            return False
        rewriter = LocatingRewriter(self.queue[0])
        rewriter.operation_insertion_handler = [self.push]
        rewriter.operation_modification_handler = [self.push]
        rewriter.operation_removal_handler = [self.release]
        while self.queue and not journal.out_of_fuel():
            op = self.queue.popleft()
            self.queued.discard(id(op))
            if op.parent is not self.block:
                continue
            if _graph.unused(op) and not _graph.is_terminator(op):
                self.bury(op)
            else:
                self.rewrite(op, rewriter)
        return self.changed

    def rules(self, name: str) -> tuple[Rule, ...]:
        found = self.table.get(name)
        if found is None:
            found = self.table[name] = rules(name)
        return found

    def push(self, op: Operation) -> None:
        if id(op) in self.queued or op.parent is not self.block:
            return
        if self.rules(op.name) or _graph.unused(op):
            self.queued.add(id(op))
            self.queue.append(op)

    def rewrite(self, op: Operation, rewriter: LocatingRewriter) -> None:
        makers = {x.op.name for x in operands(op) if type(x) is OpResult}
        name, where, state = op.name, op.location, None
        ready = False
        for pattern, of in self.rules(op.name):
            if of is not None and of.isdisjoint(makers):
                continue
            if not ready:
                rewriter.matched, rewriter.location = op, where
                rewriter.insertion_point = InsertPoint.before(op)
                if self.watchdog.awake:
                    rewriter.watchdog = self.watchdog
                    state = self.watchdog.state(op)
                ready = True
            rewriter.has_done_action = False
            if attempt(pattern, op, rewriter):
                self.changed = True
                journal.made(rewriter.pattern, name, where)
                self.watchdog.count(rewriter.pattern, op, name, where, state)
                self.push(op)  # when it was changed in place
                return

    def release(self, op: Operation) -> None:
        """What `op` reads may be dead once it is gone; and what shares that with it may see it alone."""
        for value in operands(op):
            maker = _graph.producer(value)
            if maker is None:
                continue
            if id(maker) not in self.queued:
                self.queued.add(id(maker))
                self.queue.append(maker)
            last = _last_user(value, op)
            if last is not None:
                self.push(last)

    def bury(self, op: Operation) -> None:
        if not journal.may(DEAD, op):
            return
        self.changed = True
        self.release(op)
        _graph.erase(op)


def _last_user(value: SSAValue, but: Operation) -> Operation | None:
    """The one op that uses `value` besides `but`, when there is just one."""
    found: Operation | None = None
    for use in value.uses:
        if use.operation is but:
            continue
        if found is not None:
            return None
        found = use.operation
    return found
