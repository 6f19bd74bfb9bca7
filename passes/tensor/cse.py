"""Common subexpressions computed once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation

from headrace.dialects.support import locations
from headrace.dialects.support.journal import may
from headrace.dialects.tensor.base import operands
from headrace.passes.infra.base import Pass
from headrace.passes.tensor import _graph

COMMUTATIVE = frozenset(
    f"tensor.{name}" for name in ("add", "mul", "and", "or", "xor", "equal", "not_equal")
)  # not min and max: their result for -0 and +0 depends on the order


@dataclass(frozen=True)
class CsePass(Pass):
    """Keep the first of ops that compute the same value from the same operands.

    Assumes nothing. Ops are equal when name, attributes and operands are (operands of commutative ops in any order).
    The op that stays has the locations of all.

    Before: `%1 = tensor.exp %0`, `%2 = tensor.exp %0`, `tensor.add %1, %2`. After: `%1 = tensor.exp %0`,
    `tensor.add %1, %1`.
    """

    name: ClassVar[str] = "cse"
    requires = ensures = _graph.TENSOR

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        changed = False
        for block in _graph.blocks(module):
            changed |= merge_equal(block)
        return changed


def merge_equal(block: Block) -> bool:
    """Merge equal ops of one block; True if any were."""
    first: dict[Any, Operation] = {}
    merged: dict[Operation, list[Operation]] = {}
    number = _graph.Numbers()
    for op in _graph.ops(block):
        if op.regions or _graph.is_terminator(op):
            continue
        kept = first.setdefault(_key(op, number), op)
        if kept is not op and may("merge-equal", op):
            merged.setdefault(kept, []).append(op)
            for old, new in zip(op.results, kept.results, strict=True):
                old.replace_all_uses_with(new)
    for kept, others in merged.items():
        kept.location = locations.fuse([kept.location, *(op.location for op in others)])
        for op in others:
            _graph.erase(op)
    return bool(merged)


def _key(op: Operation, number: _graph.Numbers) -> tuple[Any, ...]:
    """Equal for ops that compute the same."""
    name, properties = op.name, op.properties
    inputs = [id(value) for value in operands(op)]
    if name in COMMUTATIVE:
        inputs.sort()
    attributes: list[Any] = []
    if properties:
        for key in sorted(properties) if len(properties) > 1 else properties:
            attributes.append((key, number(properties[key])))
    if not inputs:  # no operand says what the type is
        attributes += [number(result.type) for result in op.results]
    return name, *attributes, *inputs
