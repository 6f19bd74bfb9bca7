"""Composite ops where exporters wrote them out in primitives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from headrace.dialects.support import locations
from headrace.dialects.support.journal import count, decline, may
from headrace.dialects.tensor.base import tt
from headrace.dialects.tensor.storage import LiteralAttr, constant
from headrace.passes.analysis.chains import HALVES, Chain, Reshaped, anchors, recognise, sought
from headrace.passes.infra.base import Pass, option
from headrace.passes.tensor import _graph


@dataclass(frozen=True)
class FusePass(Pass):
    """Recover gelu, silu, sigmoid, softmax, log-softmax, layer norm and rms norm from chains of primitives.

    Assumes canonical form and merged constants (canonicalize, cse), and fires only where nothing else uses what is
    inside a chain. The composite computes the same formula, so that results agree within the rounding of the steps; in
    f16 and bf16 the chain rounds after each step and the composite once, which is done only with `round-once`. The
    composite has the locations of all ops it replaces.

    Before: `%1 = tensor.sigmoid %x`, `%2 = tensor.mul %x, %1`. After: `%2 = tensor.silu %x`.
    """

    name: ClassVar[str] = "fuse"
    requires = ensures = _graph.TENSOR

    round_once: bool = option(False, "fuse chains of f16 and bf16 too: composites round once, chains at each step")

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        return fuse(module, round_once=self.round_once)


def fuse(module: ModuleOp, *, round_once: bool = False) -> bool:
    """Fuse all chains of a module; True if any was fused."""
    changed = False
    names = anchors()
    for block in _graph.blocks(module):
        order = {op: i for i, op in enumerate(_graph.ops(block))}
        for op in [op for op in order if op.name in names]:
            anchor: Operation | None = op
            while anchor is not None and anchor.parent is not None:
                anchor = _fuse_at(anchor, order, round_once)
                changed |= anchor is not None
    return changed


def _fuse_at(anchor: Operation, order: dict[Operation, int], round_once: bool) -> Operation | None:
    """Fuse the chain of one anchor; the composite, which may be the anchor of the next."""
    found = recognise(anchor)
    if isinstance(found, Chain) and not round_once and tt(found.root.results[0]).dtype in HALVES:
        found = f"{tt(found.root.results[0]).dtype} chains round after each step; round-once lets them go"
    if isinstance(found, str):
        decline(sought(anchor.name), anchor, found)
    if not isinstance(found, Chain) or not may(found.name.removeprefix("tensor."), anchor):
        return None
    count("ops fused", len(found.inside) + 1)
    order[new := apply(found, order)] = order[found.root]
    return new


def apply(chain: Chain, order: dict[Operation, int]) -> Operation:
    """Put the composite in the place of its chain; `order` numbers the ops of the block."""
    root = chain.root
    block = root.parent
    assert block is not None
    inside = sorted(chain.inside, key=lambda op: order.get(op, 0))
    location = locations.fuse(op.location for op in (*inside, root))
    operands: list[SSAValue] = []
    for operand in chain.operands:
        if isinstance(operand, LiteralAttr):
            new = constant(operand, location)
            block.insert_op_before(new, root)
            operand = new.result
        elif isinstance(operand, Reshaped):
            operand = _graph.insert(root, "tensor.reshape", [operand.value], {"shape": operand.shape}, location)
        operands.append(operand)
    result = _graph.insert(root, chain.name, operands, chain.attrs, location)
    _graph.replace(root, [result])
    _graph.erase_dead(inside)
    new = _graph.producer(result)
    assert new is not None
    return new
