"""Verifies a whole module and reports every op that is wrong, each with its location."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from xdsl.dialects.builtin import ModuleOp, UnknownLoc
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, ErasedSSAValue, Operation, OpResult
from xdsl.utils.exceptions import VerifyException

from headrace.dialects.support.faults import InnerFault

MOST = 20  # offenders reported; each failing op prints the module once inside xDSL


class Offence(NamedTuple):
    """One op that does not verify, and why."""

    op: Operation
    message: str


def offences(module: Operation, most: int = MOST) -> list[Offence]:
    """All ops of `module` that do not verify (at most `most`), inner ops before the ops that hold them."""
    found: list[Offence] = []
    sound: set[tuple[object, ...]] = set()
    for op in _inner_first(module):
        look = _look(op)
        if look in sound:
            continue
        fault = _fault(op)
        if fault is not None:
            found.append(fault)
        elif look is not None:
            sound.add(look)
        if len(found) == most:
            break
    return found


def unlocated(module: ModuleOp) -> list[Operation]:
    """The ops of `module` that have no location; the module op itself does not count."""
    return [op for op in module.walk() if isinstance(op.location, UnknownLoc) and op is not module]


def _inner_first(op: Operation) -> Iterator[Operation]:
    for region in op.regions:
        for block in region.blocks:
            for inner in block.ops:
                yield from _inner_first(inner)
    yield op


def _look(op: Operation) -> tuple[object, ...] | None:
    """Equal for ops of which all are sound when one is: of one class, with the very same properties and types, when
    the class says that nothing else matters (`VERIFIES_ALONE`). None for others, and for ops that end a block."""
    if op.attributes or op.next_op is None or not getattr(op, "VERIFIES_ALONE", False):
        return None
    given = op._operands  # pyright: ignore[reportPrivateUsage] - `op.operands` makes a view for writing first
    if ErasedSSAValue in map(type, given):
        return None
    properties = op.properties
    types = [id(x.type) for x in given]
    return type(op), *properties, *map(id, properties.values()), None, *types, None, *[id(x.type) for x in op.results]


def _fault(op: Operation) -> Offence | None:
    try:
        for region in op.regions:
            for block in region.blocks:
                _check_empty(op, block, len(region.blocks))
        op.verify(verify_nested_ops=False)
        if isinstance(op, FuncOp):
            _check_order(op)
    except VerifyException as error:
        return _offence(op, error)
    except ValueError as error:  # xDSL reports broken links between ops, blocks and values this way
        return Offence(op, str(error))
    return None


def _check_empty(op: Operation, block: Block, blocks: int) -> None:
    if block.first_op is None and blocks == 1:
        block.verify()


def _check_order(func: FuncOp) -> None:
    """Every value is defined before it is used; xDSL does not check it."""
    for block in func.body.blocks:
        order = {op: i for i, op in enumerate(block.ops)}
        for op, i in order.items():
            for n, operand in enumerate(op.operands):
                if isinstance(operand, OpResult) and order.get(operand.op, -1) >= i:
                    raise VerifyException(f"operand {n} of '{op.name}' is used before '{operand.op.name}' defines it")


def _offence(op: Operation, error: VerifyException) -> Offence:
    """What the verifier of the op said, without xDSL's print of the module around it, of the op that is at fault."""
    inner: BaseException = error
    while inner.__cause__ is not None:
        inner = inner.__cause__
    at = inner.op if isinstance(inner, InnerFault) else op
    return Offence(at, str(inner).strip().removeprefix("Operation does not verify: "))
