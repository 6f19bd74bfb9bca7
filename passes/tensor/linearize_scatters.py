"""linearize-scatters: writes into a state become writes of its rows."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from headrace.dialects.tensor.base import attributes_of, tt
from headrace.dialects.tensor.decompositions import Emit
from headrace.passes.infra.base import Pass
from headrace.passes.tensor import _graph

SCATTERS = frozenset({"tensor.scatter_nd", "tensor.scatter_elements"})


def _of_argument(value: SSAValue) -> bool:
    """Whether a value is a function argument, or one reshaped."""
    while (op := _graph.made_by(value, "tensor.reshape")) is not None:
        value = op.operands[0]
    return isinstance(value, BlockArgument)


def _row_form(op: Operation) -> bool:
    """Whether a scatter has one index per row of dim 0 already."""
    indices = tt(op.operands[1]).shape
    return op.name == "tensor.scatter_nd" and len(indices) == 2 and indices[1] == 1


@dataclass(frozen=True)
class LinearizeScattersPass(Pass):
    """Write a scatter into a function argument (a cache, a variable) as a scatter of rows of a reshaped argument.

    Assumes nothing; scatters that combine (`reduction`) or go into computed tensors are left. An index tuple becomes
    one row number, so that the mapping can store rows where they belong and leave the rest of the state untouched.

        %1 = tensor.scatter_nd %cache, %i, %rows     =>     %r = tensor.reshape %cache
             (indices [m, k] into [d0, …, dk, e])           %s = tensor.scatter_nd %r, %n, %rows   (%n: one row number)
                                                            %1 = tensor.reshape %s
    """

    name: ClassVar[str] = "linearize-scatters"

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        changed = [_linearize(block) for block in _graph.blocks(module)]
        return any(changed)


def _linearize(block: Block) -> bool:
    changed = False
    for op in [op for op in block.ops if op.name in SCATTERS]:
        if attributes_of(op).get("reduction", "none") != "none" or not _of_argument(op.operands[0]) or _row_form(op):
            continue
        made: list[Operation] = []
        value = (_tuples if op.name == "tensor.scatter_nd" else _elements)(op, Emit(made.append, op.location))
        block.insert_ops_before(made, op)
        _graph.replace(op, [value])
        changed = True
    return changed


def _positive(e: Emit, index: SSAValue, size: int) -> SSAValue:
    zero, length = e.scalar(0, tt(index).dtype), e.scalar(size, tt(index).dtype)
    return e.select(e.less(index, zero), e.add(index, length), index)


def _write(e: Emit, op: Operation, row: SSAValue, rows: int, rest: tuple[int, ...]) -> SSAValue:
    data, _, updates = op.operands
    count = tt(row).elements
    flat = e.reshape(data, shape=(rows, *rest))
    made = e.scatter_nd(flat, e.reshape(row, shape=(count, 1)), e.reshape(updates, shape=(count, *rest)))
    return e.reshape(made, shape=tt(data).shape)


def _tuples(op: Operation, e: Emit) -> SSAValue:
    shape, (*lead, depth) = tt(op.operands[0]).shape, tt(op.operands[1]).shape
    count = prod(lead)
    indices = e.reshape(op.operands[1], shape=(count, depth))
    row: SSAValue | None = None
    for j in range(depth):
        one = e.slice(indices, starts=(0, j), stops=(count, j + 1), steps=(1, 1))
        one = _positive(e, e.reshape(one, shape=(count,)), shape[j])
        step = prod(shape[j + 1 : depth])
        term = one if step == 1 else e.mul(one, e.scalar(step, tt(one).dtype))
        row = term if row is None else e.add(row, term)
    assert row is not None, "verified: an index tuple has at least one index"
    return _write(e, op, row, prod(shape[:depth]), shape[depth:])


def _elements(op: Operation, e: Emit) -> SSAValue:
    type, index = tt(op.operands[0]), tt(op.operands[1])
    axis: int = attributes_of(op)["axis"] % len(type.shape)
    row = _positive(e, op.operands[1], type.shape[axis])
    total: SSAValue | None = None
    for d in range(len(type.shape)):
        at = row if d == axis else e.iota(shape=index.shape, dtype=index.dtype, axis=d)
        step = prod(type.shape[d + 1 :])
        term = at if step == 1 else e.mul(at, e.scalar(step, index.dtype))
        total = term if total is None else e.add(total, term)
    assert total is not None, "verified: an axis needs a dim"
    return _write(e, op, e.reshape(total, shape=(index.elements,)), type.elements, ())
