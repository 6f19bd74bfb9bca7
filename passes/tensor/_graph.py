"""What the tensor passes share: the blocks they work on, small constants, building and replacing ops in place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from xdsl.dialects.builtin import LocationAttr, ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block, Operation, OpResult, SSAValue
from xdsl.traits import IsTerminator

from headrace.dialects.support import locations
from headrace.dialects.tensor.base import create
from headrace.dialects.tensor.shapes import TT
from headrace.dialects.tensor.storage import ConstantOp, LiteralAttr, filled
from headrace.passes.infra.legality import legal

TENSOR = legal("builtin", "func", "tensor")
"""What a program on this level is made of."""
Scalar = bool | int | float


def functions(module: ModuleOp) -> list[FuncOp]:
    """The functions of a module that have a body, in order."""
    found: list[FuncOp] = []
    for op in module.body.block.ops:
        if isinstance(op, FuncOp) and op.body.blocks:
            found.append(op)
    return found


def blocks(module: ModuleOp) -> Iterator[Block]:
    """The body of each function, in order. Tensor programs have one block per function."""
    for func in functions(module):
        yield func.body.block


class Numbers:
    """Numbers attributes so that equal ones have equal numbers, from 0. Attributes are slow to hash, and equal ones are
    mostly one object: it hashes an object once."""

    def __init__(self) -> None:
        self._of_equal: dict[Attribute, int] = {}
        self._of_object: dict[int, tuple[int, Attribute]] = {}  # holds the object, so that its id stays its own

    def __call__(self, attribute: Attribute) -> int:
        found = self._of_object.get(id(attribute))
        if found is None:
            number = self._of_equal.setdefault(attribute, len(self._of_equal))
            found = self._of_object[id(attribute)] = (number, attribute)
        return found[0]


def ops(block: Block) -> list[Operation]:
    """The ops of a block as they stand, for a loop that changes them; in a third of the time of `list(block.ops)`."""
    found: list[Operation] = []
    op = block.first_op
    while op is not None:
        found.append(op)
        op = op.next_op
    return found


@cache
def _ends_block(cls: type[Operation]) -> bool:
    return cls.has_trait(IsTerminator)


def is_terminator(op: Operation) -> bool:
    """Whether an op ends its block."""
    return _ends_block(type(op))


def producer(value: SSAValue) -> Operation | None:
    """The op that makes a value; None for an argument."""
    return value.op if type(value) is OpResult else None  # isinstance of an abstract class is slow


def made_by(value: SSAValue, name: str) -> Operation | None:
    """The op that makes a value when it is called `name`."""
    op = producer(value)
    return op if op is not None and op.name == name else None


def literal(value: SSAValue) -> LiteralAttr | None:
    """The elements of a value that is a constant."""
    op = producer(value)
    return op.value if isinstance(op, ConstantOp) else None


def insert(
    before: Operation,
    name: str,
    operands: Sequence[SSAValue],
    attrs: Mapping[str, Any] | None = None,
    location: LocationAttr | None = None,
) -> SSAValue:
    """Build a tensor op in front of `before`, at its location unless told otherwise; the first result."""
    op = create(name, operands, attrs, before.location if location is None else location)
    block = before.parent
    assert block is not None
    block.insert_op_before(op, before)
    return op.results[0]


def number(before: Operation, value: Scalar, dtype: str, location: LocationAttr) -> SSAValue:
    """A scalar constant in front of `before`."""
    op = filled(TT((), dtype), value, location)
    block = before.parent
    assert block is not None
    block.insert_op_before(op, before)
    return op.result


def replace(op: Operation, values: Sequence[SSAValue]) -> None:
    """Give the users of `op` other values and erase it."""
    for old, new in zip(op.results, values, strict=True):
        old.replace_all_uses_with(new)
    erase(op)


def erase(op: Operation) -> None:
    """Erase an op that nobody uses."""
    assert unused(op)
    op.detach()
    op.drop_all_references()  # as op.erase() does, which then makes a value for each result to give to its users


def unused(op: Operation) -> bool:
    """Whether no result of `op` has a user."""
    for result in op.results:  # noqa: SIM110 - asked of every op by every pass: a generator takes twice the time
        if result.first_use is not None:
            return False
    return True


def erase_dead(ops: Iterable[Operation]) -> bool:
    """Erase those of `ops`, last first, that nobody uses; True if any."""
    changed = False
    for op in reversed(list(ops)):
        if op.parent is not None and unused(op):
            erase(op)
            changed = True
    return changed


def only_user(value: SSAValue) -> Operation | None:
    """The op of a value's single use."""
    return value.get_user_of_unique_use()


def where(op: Operation) -> str:
    """The model location of an op, for a reason."""
    return locations.of(op)
