"""Code that no result needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, cast

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import CallOp, FuncOp
from xdsl.ir import Block, Operation

from headrace.dialects.tensor.storage import RecipeOp, WeightOp
from headrace.passes.infra.base import Pass
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
    return _graph.erase_dead([op for op in _graph.ops(block) if not _graph.is_terminator(op)])


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
        for op in live.pop().walk():
            found = symbols.get(_named(op))
            if found is not None and id(found) not in kept:
                kept.add(id(found))
                live.append(found)
    dead = [op for op in symbols.values() if id(op) not in kept]
    for op in dead:
        _graph.erase(op)
    return bool(dead)


def _named(op: Operation) -> str:
    kind = type(op)
    if kind is CallOp:
        return cast("CallOp", op).callee.root_reference.data
    if kind is WeightOp:
        return cast("WeightOp", op).key.data
    return ""
