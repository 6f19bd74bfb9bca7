"""Whose memory is whose: what may be written in place, and what can be told where to write its result."""

from __future__ import annotations

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import BlockArgument, Operation, SSAValue

from headrace.dialects.tensor.base import attributes_of, tt
from headrace.dialects.tensor.program import signature
from headrace.dialects.tensor.storage import ConstantOp, WeightOp
from headrace.passes.analysis.views import Ref, bases, is_movement, producer, resolve


def is_row_write(op: Operation) -> bool:
    """Whether an op replaces rows of a tensor at run-time indices: `scatter_nd` with one index per row of dim 0."""
    if op.name != "tensor.scatter_nd" or attributes_of(op).get("reduction", "none") != "none":
        return False
    whole, index, rows = (tt(v).shape for v in op.operands)
    return len(index) == 2 and index[1] == 1 and rows == (index[0], *whole[1:])


def all_of(value: SSAValue) -> Ref | None:
    """What a value is a dense view of, all of it and in order; None when it is not."""
    ref = resolve(value)
    return ref if ref.contiguous and tt(ref.root).elements == tt(value).elements else None


def is_part(value: SSAValue) -> bool:
    """Whether a value is a piece of a computed one or out of its order: a shared function stores it by itself, so that
    its callers can say where."""
    op = producer(value)
    return op is not None and is_movement(op) and all_of(value) is None


class Ownership:
    """Answers for the values of one module of tensor ops."""

    def __init__(self, module: ModuleOp) -> None:
        functions = [op for op in module.body.block.ops if isinstance(op, func.FuncOp) and op.body.blocks]
        self.functions = {f.sym_name.data: f for f in functions}
        self.calls: dict[str, list[func.CallOp]] = {}
        self._placeable: dict[tuple[str, int], bool] = {}
        self.masked: dict[Operation, Operation] = {}
        """Ops that read a tensor but for the row that a row write replaces, and that write."""
        for function in functions:
            for op in function.body.block.ops:
                if isinstance(op, func.CallOp):
                    self.calls.setdefault(op.callee.string_value(), []).append(op)

    def may_overwrite(self, root: SSAValue, op: Operation) -> bool:
        """Whether `op` may write into the memory of `root`, because it is the program's own and nobody reads it later.

        Inputs are the caller's and weights are shared; a state is the program's own, and so is what a section makes.
        """
        if self._is_read_by(root, op):
            return False
        if isinstance(root, BlockArgument):
            return self._owns_argument(root, op)
        return self._is_fresh(root)

    def _is_read_by(self, root: SSAValue, op: Operation) -> bool:
        """Whether `op` reads `root` besides overwriting it (by its first operand, or once in a call), or a later op
        reads it."""
        direct = sum(root in bases(v) for v in op.operands)
        if direct > 1:
            return True
        later = op.next_op
        while later is not None:
            spared = self.masked.get(later) is op
            if not spared and not is_movement(later) and any(root in bases(v) for v in later.operands):
                return True
            later = later.next_op
        return False

    def _owns_argument(self, argument: BlockArgument, op: Operation) -> bool:
        function = argument.block.parent_op()
        assert isinstance(function, func.FuncOp)
        name = function.sym_name.data
        if name == "main":
            names = signature(function)
            present = dict(names.states).get(names.inputs[argument.index])
            last = argument.block.last_op
            return (
                present is not None
                and last is not None
                and self._replaces(last.operands[names.results.index(present)], argument, op)
            )
        calls = self.calls.get(name, [])
        for call in calls:
            ref = all_of(call.operands[argument.index])
            if ref is None or not self.may_overwrite(ref.root, call):
                return False
        return bool(calls)

    def _replaces(self, present: SSAValue, past: SSAValue, op: Operation) -> bool:
        """Whether `present` is what `op` makes of the memory of `past`, or rows written into that afterwards, and
        nothing between the two is a result of its own: the memory becomes `present` when the program ends."""
        last = op.parent_block().last_op  # pyright: ignore[reportOptionalMemberAccess]
        assert last is not None
        ref = all_of(present)
        while ref is not None:
            maker, before = producer(ref.root), self._written(ref.root)
            if before is None:
                return False
            if maker is op:
                return before is past
            ref = all_of(before)
            if ref is not None and any(ref.root in bases(value) for value in last.operands):
                return False
        return False

    def _written(self, value: SSAValue) -> SSAValue | None:
        """The value of whose rows some are replaced to make `value`, here or in the function that is called."""
        op = producer(value)
        if op is None:
            return None
        if is_row_write(op):
            ref = all_of(op.operands[0])
            return ref.root if ref is not None else None
        inner = self._returned(op, value) if isinstance(op, func.CallOp) else None
        while inner is not None and not isinstance(inner, BlockArgument):
            inner = self._written(inner)
        if inner is None:
            return None
        ref = all_of(op.operands[inner.index])
        return ref.root if ref is not None else None

    def _is_fresh(self, value: SSAValue) -> bool:
        """Whether a value's memory was made for it."""
        op = producer(value)
        if op is None or isinstance(op, WeightOp | ConstantOp) or is_movement(op):
            return False
        if isinstance(op, func.CallOp):
            inner = self._returned(op, value)
            return inner is not None and (is_part(inner) or self._is_fresh(inner))
        return True

    def placeable(self, value: SSAValue) -> bool:
        """Whether what makes a value can write it anywhere, so that it may be a part of a larger memory."""
        op = producer(value)
        if op is None or isinstance(op, WeightOp | ConstantOp) or is_movement(op) or is_row_write(op):
            return False
        if isinstance(op, func.CallOp):
            key = op.callee.string_value(), op.results.index(value)  # pyright: ignore[reportArgumentType]
            if key not in self._placeable:
                inner = self._returned(op, value)
                self._placeable[key] = inner is not None and (is_part(inner) or self.placeable(inner))
            return self._placeable[key]
        return True

    def _returned(self, call: func.CallOp, result: SSAValue) -> SSAValue | None:
        """What the callee makes for one result of a call, a part of something else included; None when it also serves
        another result."""
        function = self.functions.get(call.callee.string_value())
        last = function.body.block.last_op if function is not None else None
        if last is None:
            return None
        index = call.results.index(result)  # pyright: ignore[reportArgumentType]
        if is_part(last.operands[index]):
            return last.operands[index]
        ref = all_of(last.operands[index])
        if ref is None or sum(ref.root in bases(v) for v in last.operands) > 1:
            return None
        return ref.root
