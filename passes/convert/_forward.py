"""A row just written, forwarded on the chip: what reads a tensor after one of its rows was replaced takes the old
tensor from memory and the new row as it is made, so that reading need not wait for a section that writes."""

from __future__ import annotations

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import BlockArgument, Operation, SSAValue, Use

from headrace.dialects.support import dtypes
from headrace.dialects.support.journal import decline, may
from headrace.dialects.tensor.base import create, tt
from headrace.dialects.tensor.decompositions import Emit
from headrace.dialects.tensor.shapes import TT
from headrace.dialects.tensor.storage import RecipeOp, recipe, weight
from headrace.passes.analysis.views import is_movement
from headrace.passes.convert._ownership import Ownership, all_of, is_row_write


def forward_rows(function: func.FuncOp, module: ModuleOp, ownership: Ownership, most: int) -> None:
    """Let ops of a function that read a tensor, of at most `most` bytes, after one row was written in place read the
    old tensor with that row put in its place. What they see does not depend on when the row is written, so that writing
    and reading may be in one section."""
    for op in [op for op in function.body.block.ops if is_row_write(op)]:
        ref = all_of(op.operands[0])
        if ref is None or not isinstance(ref.root, BlockArgument):
            continue
        reads: list[Use] = []
        if not _reads(op.results[0], reads):
            decline("forward-row", op, "what reads the tensor is also returned, or writes more rows")
        elif not reads:
            decline("forward-row", op, "nothing here reads the tensor afterwards")
        elif tt(op.operands[1]).shape[0] != 1:
            decline("forward-row", op, "more than one row is written")
        elif tt(op.results[0]).elements * dtypes.byte_size(tt(op.results[0]).dtype) > most:
            decline("forward-row", op, "the tensor is large, and all of it would pass another stage")
        elif not ownership.may_overwrite(ref.root, op):
            decline("forward-row", op, "the row is not written in place")
        elif may("forward-row", op):
            made = _forwarded(op, function, module)
            ownership.masked[made] = op
            for use in reads:
                use.operation.operands[use.index] = made.results[0]


def _reads(value: SSAValue, found: list[Use]) -> bool:
    """Gather the uses of a written tensor by which ops read it; False when one of them cannot read anything else."""
    for use in value.uses:
        user = use.operation
        if isinstance(user, func.CallOp | func.ReturnOp):
            continue
        if is_movement(user):
            below: list[Use] = []
            ends = [_reads(result, below) for result in user.results]
            if not all(ends) or (below and any(_leaves(result) for result in user.results)):
                return False
            if below:
                found.append(use)
        elif is_row_write(user) and use.index == 0:
            return False
        else:
            found.append(use)
    return True


def _leaves(value: SSAValue) -> bool:
    """Whether a call or the return takes a value, or a view of it."""
    users = [use.operation for use in value.uses]
    return any(
        isinstance(user, func.CallOp | func.ReturnOp) or (is_movement(user) and any(map(_leaves, user.results)))
        for user in users
    )


def _forwarded(op: Operation, function: func.FuncOp, module: ModuleOp) -> Operation:
    """The op, put after a write of one row, that makes the written tensor of the old one and the row."""
    data, index, row = op.operands
    type, dtype = tt(data), tt(index).dtype
    rows, *rest = type.shape
    made: list[Operation] = []
    e = Emit(made.append, op.location)
    at = e.reshape(index, shape=())
    at = e.select(e.less(at, e.scalar(0, dtype)), e.add(at, e.scalar(rows, dtype)), at)
    here = e.equal(_numbers(e, rows, dtype, function, module), at)
    e.select(e.reshape(here, shape=(rows, *[1] * len(rest))), row, data)
    function.body.block.insert_ops_after(made, op)
    return made[-1]


def _numbers(e: Emit, rows: int, dtype: str, function: func.FuncOp, module: ModuleOp) -> SSAValue:
    """The row numbers, a weight that a recipe makes."""
    key = f"rows|{rows}|{dtype}"
    type = TT((rows,), dtype)
    if all(op.key != key for op in module.body.block.ops if isinstance(op, RecipeOp)):
        iota = create("tensor.iota", [], {"shape": (rows,), "dtype": dtype, "axis": 0}, e.location)
        module.body.block.insert_op_before(recipe(key, [iota], iota.results[0], e.location), function)
    op = weight(key, type, e.location)
    e.insert(op)
    return op.result
