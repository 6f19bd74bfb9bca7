"""linearize-scatters: writes into a state become writes of its rows."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from headrace.dialects.support.dtypes import highest
from headrace.dialects.support.journal import decline, may
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


def _refusal(op: Operation) -> str:
    """Why a scatter stays."""
    if _row_form(op):
        return "it writes whole rows already"
    if attributes_of(op).get("reduction", "none") != "none":
        return "it combines what it writes with what is there"
    if not tt(op.operands[0]).elements:
        return "its tensor has no elements, so no row to write"
    return "" if _of_argument(op.operands[0]) else "it writes into a computed tensor, not into an argument"


@dataclass(frozen=True)
class LinearizeScattersPass(Pass):
    """Write a scatter into a function argument (a cache, a variable) as a scatter of rows of a reshaped argument.

    Assumes nothing; scatters that combine (`reduction`) or go into computed tensors are left, as are those into tensors
    without elements. An index tuple becomes one row number, so that the mapping can store rows where they belong and
    leave the rest of the state untouched.

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
        reason = _refusal(op)
        if reason:
            decline("linearize-scatter", op, reason)
            continue
        if not may("linearize-scatter", op):
            break
        made: list[Operation] = []
        value = (_tuples if op.name == "tensor.scatter_nd" else _elements)(op, Emit(made.append, op.location))
        block.insert_ops_before(made, op)
        _graph.replace(op, [value])
        changed = True
    return changed


def _term(e: Emit, index: SSAValue, size: int, step: int, rows: int) -> SSAValue:
    """What an index into a dim adds to the row number: `step` for each, counted from the front; so much that there is
    no such row where the index is out of range, which the scatter then reports. `rows` is how many there are."""
    dtype = tt(index).dtype
    zero, length = e.scalar(0, dtype), e.scalar(size, dtype)
    index = e.select(e.less(index, zero), e.add(index, length), index)
    outside = e.or_(e.less(index, zero), e.greater_equal(index, length))
    index = e.select(outside, e.scalar(-(-rows // step), dtype), index)
    return index if step == 1 else e.mul(index, e.scalar(step, dtype))


def _write(e: Emit, op: Operation, row: SSAValue, rows: int, rest: tuple[int, ...]) -> SSAValue:
    data, _, updates = op.operands
    count = tt(row).elements
    flat = e.reshape(data, shape=(rows, *rest))
    made = e.scatter_nd(flat, e.reshape(row, shape=(count, 1)), e.reshape(updates, shape=(count, *rest)))
    return e.reshape(made, shape=tt(data).shape)


def _wide(e: Emit, index: SSAValue, rows: int) -> SSAValue:
    """The indices in a type that holds row numbers, and what `_term` makes of two of them."""
    return index if 2 * rows <= highest(tt(index).dtype) else e.cast(index, to="i64")


def _columns(indices: SSAValue, e: Emit, rows: int) -> list[SSAValue]:
    """The indices into each dim: as they were before they were put side by side, so that those that are constants stay
    that."""
    depth = tt(indices).shape[-1]
    value = indices
    while (op := _graph.made_by(value, "tensor.reshape")) is not None and tt(op.operands[0]).shape[-1:] == (depth,):
        value = op.operands[0]
    op = _graph.made_by(value, "tensor.concat")
    rank = len(tt(value).shape)
    if (
        op is not None
        and attributes_of(op)["axis"] % rank == rank - 1
        and all(tt(x).shape[-1] == 1 for x in op.operands)
    ):
        return [_wide(e, x, rows) for x in op.operands]
    count = tt(indices).elements // depth
    flat = e.reshape(_wide(e, indices, rows), shape=(count, depth))
    return [e.slice(flat, starts=(0, j), stops=(count, j + 1), steps=(1, 1)) for j in range(depth)]


def _tuples(op: Operation, e: Emit) -> SSAValue:
    shape, (*lead, depth) = tt(op.operands[0]).shape, tt(op.operands[1]).shape
    count = prod(lead)
    rows = prod(shape[:depth])
    if depth == 1:  # the scatter itself counts from the end, and knows what is out of range
        return _write(e, op, _wide(e, op.operands[1], rows), rows, shape[1:])
    row: SSAValue | None = None
    for j, one in enumerate(_columns(op.operands[1], e, rows)):
        term = _term(e, e.reshape(one, shape=(count,)), shape[j], prod(shape[j + 1 : depth]), rows)
        row = term if row is None else e.add(row, term)
    assert row is not None, "verified: an index tuple has at least one index"
    return _write(e, op, row, rows, shape[depth:])


def _elements(op: Operation, e: Emit) -> SSAValue:
    type = tt(op.operands[0])
    axis: int = attributes_of(op)["axis"] % len(type.shape)
    along = _wide(e, op.operands[1], type.elements)
    index = tt(along)
    if len(type.shape) == 1:
        return _write(e, op, along, type.elements, ())
    total: SSAValue | None = None
    for d, size in enumerate(type.shape):
        step = prod(type.shape[d + 1 :])
        if d == axis:
            term = _term(e, along, size, step, type.elements)
        else:
            at = e.iota(shape=index.shape, dtype=index.dtype, axis=d)
            term = at if step == 1 else e.mul(at, e.scalar(step, index.dtype))
        total = term if total is None else e.add(total, term)
    assert total is not None, "verified: an axis needs a dim"
    return _write(e, op, e.reshape(total, shape=(index.elements,)), type.elements, ())
