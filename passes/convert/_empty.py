"""Tensors without elements are no streams: what makes or reads them is settled before the mapping."""

from __future__ import annotations

from collections.abc import Callable

from xdsl.ir import Block, Operation, SSAValue

from headrace.dialects.support import locations
from headrace.dialects.support.diagnostics import Collector
from headrace.dialects.tensor.base import TensorOp, attributes_of, create, tt
from headrace.dialects.tensor.storage import Storage, constant, constant_array, filled


def is_empty(value: SSAValue) -> bool:
    """Whether a tensor has no elements."""
    return tt(value).elements == 0


def drop_unused(block: Block) -> bool:
    """Erase tensor ops that nothing needs; whether there were any."""
    found = False
    for op in reversed(list(block.ops)):
        if isinstance(op, TensorOp) and all(r.first_use is None for r in op.results):
            op.detach()
            op.erase()
            found = True
    return found


def settle_empty(block: Block, found: Collector) -> bool:
    """Give arguments and results without elements as constants, and results of ops that read tensors without elements
    as what those ops make of nothing; whether there were any. What depends on other values as well is refused."""
    ops = [op for op in block.ops if isinstance(op, TensorOp) and not isinstance(op, Storage)]
    about = [op for op in ops if any(is_empty(v) for v in (*op.operands, *op.results))]
    for op in about:
        _settle(op, block, found)
    used = [a for a in block.args if is_empty(a) and a.first_use is not None]
    for argument in used:
        made = filled(tt(argument), 0, locations.of_value(argument))
        block.insert_op_before(made, block.first_op)  # pyright: ignore[reportArgumentType]
        argument.replace_all_uses_with(made.result)
    return bool(about or used)


def _settle(op: Operation, block: Block, found: Collector) -> None:
    def replace(old: SSAValue, made: Operation) -> None:
        made.location = op.location
        block.insert_op_before(made, op)
        old.replace_all_uses_with(made.results[0])

    for result in op.results:
        if is_empty(result):
            replace(result, filled(tt(result), 0))
    empty = [v for v in op.operands if is_empty(v)]
    if not empty or all(is_empty(r) for r in op.results):
        return
    if op.name == "tensor.concat":
        rest = [v for v in op.operands if not is_empty(v)]
        replace(op.results[0], create(op.name, rest, attributes_of(op), op.location))
        return
    if op.name.startswith("tensor.scatter"):
        op.results[0].replace_all_uses_with(op.operands[0])
        return
    _evaluate(op, replace, found)


def _evaluate(op: Operation, replace: Callable[[SSAValue, Operation], None], found: Collector) -> None:
    """Fold an op whose operands are constants or have no elements."""
    import numpy as np

    from headrace.dialects.support.dtypes import to_numpy
    from headrace.dialects.tensor.meaning import evaluate

    arrays = [np.zeros(tt(v).shape, to_numpy(tt(v).dtype)) if is_empty(v) else constant_array(v) for v in op.operands]
    if any(array is None for array in arrays):
        types = ", ".join(str(tt(v)) for v in op.operands)
        found.add(
            "empty-operand",
            f"convert-tensor-to-dataflow: {op.name} of {types} reads a tensor without elements",
            fix="give the dim a size, or leave the op out",
            location=locations.of(op),
        )
        return
    with np.errstate(all="ignore"):
        made = evaluate(op.name, attributes_of(op), *(a for a in arrays if a is not None))
    for result, array in zip(op.results, made, strict=True):
        same = array.size and (array == array.flat[0]).all()
        replace(result, filled(tt(result), array.flat[0].item()) if same else constant(array))
