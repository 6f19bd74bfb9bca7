"""Code that no result needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, cast

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import CallOp, FuncOp
from xdsl.ir import Block, Operation

from headrace.dialects.support.journal import may
from headrace.dialects.tensor.storage import RecipeOp, WeightOp
from headrace.passes.infra.base import Pass
from headrace.passes.infra.rewriting import DEAD
from headrace.passes.tensor import _graph


@dataclass(frozen=True)
class DcePass(Pass):
    """Erase ops whose results nobody uses, private functions nobody calls and recipes of weights nobody names.

    Assumes that every op is pure, which tensor ops and calls of tensor functions are. Arguments and results of
    functions stay.

    Before: `%1 = tensor.exp %0`, `return %0`. After: `return %0`.
    """

    name: ClassVar[str] = "dce"
    requires = ensures = _graph.TENSOR

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        changed = False
        for block in _graph.blocks(module):
            changed |= erase_dead_ops(block)
        return erase_dead_symbols(module) or changed


def erase_dead_ops(block: Block) -> bool:
    """Erase the ops of a block that nobody uses; True if any."""
    changed = False
    for op in reversed(_graph.ops(block)):
        if _graph.unused(op) and not _graph.is_terminator(op) and may(DEAD, op):
            _graph.erase(op)
            changed = True
    return changed


def erase_dead_symbols(module: ModuleOp) -> bool:
    """Erase private functions and recipes that no public function reaches; True if any."""
    symbols: dict[str, Operation] = {}
    live: list[Operation] = []
    for op in module.body.block.ops:
        if isinstance(op, FuncOp):
            private = op.sym_visibility is not None and op.sym_visibility.data == "private"
            symbols[op.sym_name.data] = op
            if not private:
                live.append(op)
        elif isinstance(op, RecipeOp):
            symbols[op.key] = op
    kept = {id(op) for op in live}
    while live:
        for found in _names(live.pop(), symbols):
            if id(found) not in kept:
                kept.add(id(found))
                live.append(found)
    return _erase([op for op in symbols.values() if id(op) not in kept], symbols)


def _erase(dead: list[Operation], symbols: Mapping[str, Operation]) -> bool:
    """Erase functions and recipes, one that names another before it; True if any."""
    inside = {id(op) for op in dead}
    names = {id(op): [found for found in _names(op, symbols) if id(found) in inside] for op in dead}
    waiting = Counter(id(found) for of_one in names.values() for found in of_one)
    pending = [op for op in dead if not waiting[id(op)]]
    changed = False
    while pending:
        op = pending.pop()
        if not may("unreached", op):
            break
        _graph.erase(op)
        changed = True
        for found in names[id(op)]:
            waiting[id(found)] -= 1
            if not waiting[id(found)]:
                pending.append(found)
    return changed


def _names(op: Operation, symbols: Mapping[str, Operation]) -> list[Operation]:
    """The functions and recipes that the ops inside `op` name."""
    found: list[Operation] = []
    for inner in op.walk():
        named = symbols.get(_named(inner))
        if named is not None:
            found.append(named)
    return found


def _named(op: Operation) -> str:
    kind = type(op)
    if kind is CallOp:
        return cast("CallOp", op).callee.root_reference.data
    if kind is WeightOp:
        return cast("WeightOp", op).key.data
    return ""
