"""Batch norm taken into the convolution before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from headrace.dialects.support import locations
from headrace.dialects.support.journal import decline, may
from headrace.dialects.tensor.base import attributes_of, tt
from headrace.dialects.tensor.storage import ConstantOp, WeightOp
from headrace.passes.infra.base import Pass
from headrace.passes.tensor import _graph

HALVES = ("f16", "bf16")


@dataclass(frozen=True)
class FoldBatchNormPass(Pass):
    """Scale the filters of a convolution instead of its result: conv and batch norm become conv with a bias.

    Assumes that fold-constants runs afterwards, which makes derived weights of the arithmetic on weights that this pass
    writes, and that the factor f and the bias are finite, as trained ones are: ∞ · 0 in a filter would be NaN.
    Fires when the convolution has no other user and filters, bias and statistics are weights or constants.
    Results change within the rounding of the sums; in f16 and bf16 the new filters would round as well, so those are
    left alone.

    Before: `%1 = tensor.conv %x, %w`, `%2 = tensor.batch_norm %1, %s, %b, %m, %v`. After, with f = s / √(v + ε):
    `%2 = tensor.conv %x, (%w · f), (%b - %m · f)`.
    """

    name: ClassVar[str] = "fold-batch-norm"
    requires = ensures = _graph.TENSOR

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        return fold(module)


def fold(module: ModuleOp) -> bool:
    """Fold all batch norms of a module; True if any was folded."""
    changed = False
    for block in _graph.blocks(module):
        for op in _graph.ops(block):
            if op.name != "tensor.batch_norm":
                continue
            reason = _refusal(op)
            if reason:
                decline("fold-batch-norm", op, reason)
            elif may("fold-batch-norm", op):
                _fold(op)
                changed = True
    return changed


def _refusal(op: Operation) -> str:
    """Why a batch norm stays."""
    conv = _graph.made_by(op.operands[0], "tensor.conv")
    if conv is None:
        return "what it normalizes is not made by a convolution"
    if not conv.results[0].has_one_use():
        return "the convolution has other users"
    if tt(op.results[0]).dtype in HALVES:
        return f"filters in {tt(op.results[0]).dtype} would round once more"
    for value in (*conv.operands[1:], *op.operands[1:]):
        if not isinstance(_graph.producer(value), WeightOp | ConstantOp):
            return "an operand is computed while the program runs"
    return ""


def _fold(op: Operation) -> None:
    conv = _graph.made_by(op.operands[0], "tensor.conv")
    assert conv is not None
    location = locations.fuse((conv.location, op.location))
    x, filters, *old = conv.operands
    _, scale, bias, mean, variance = op.operands
    dtype = tt(filters).dtype

    def make(name: str, *operands: SSAValue, **attrs: object) -> SSAValue:
        return _graph.insert(op, f"tensor.{name}", operands, attrs, location)

    epsilon = _graph.number(op, float(attributes_of(op)["epsilon"]), dtype, location)
    factor = make("div", scale, make("sqrt", make("add", variance, epsilon)))
    columns = make("reshape", factor, shape=(tt(factor).elements, *(1,) * (len(tt(filters).shape) - 1)))
    shifted = make("sub", old[0], mean) if old else make("neg", mean)
    new_bias = make("add", make("mul", shifted, factor), bias)
    attrs = {k: v for k, v in attributes_of(conv).items() if v is not None}
    result = make("conv", x, make("mul", filters, columns), new_bias, **attrs)
    _graph.replace(op, [result])
    _graph.erase(conv)
