"""Fewer reshapes and transposes around elementwise ops, and slices put together again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue

from headrace.dialects.support import locations
from headrace.dialects.support.journal import decline, may
from headrace.dialects.tensor.base import attributes_of, create, tt
from headrace.dialects.tensor.elementwise import OPS as ELEMENTWISE
from headrace.passes.infra.base import Pass
from headrace.passes.tensor import _graph

ROUNDS = 16  # each round moves a reshape past one more op of a chain
MOVES = ("tensor.reshape", "tensor.transpose")


@dataclass(frozen=True)
class SimplifyViewsPass(Pass):
    """Move reshapes and transposes past elementwise ops where that leaves fewer of them, and make one slice of slices
    that a concat puts side by side again.

    Assumes canonical form (canonicalize), which merges chains. A move past an op is taken only when it removes ops: two
    operands moved alike, or an operand and the result. Chains that are left are what the mapping folds into addresses.

    Before: `%1 = tensor.reshape %0 …`, `%2 = tensor.relu %1`, `%3 = tensor.reshape %2 …` back to the shape of %0.
    After: `%3 = tensor.relu %0`.
    """

    name: ClassVar[str] = "simplify-views"
    requires = ensures = _graph.TENSOR

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        changed = False
        for block in _graph.blocks(module):
            for _ in range(ROUNDS):
                if not _round(block):
                    break
                changed = True
        return changed


@cache
def _elementwise() -> frozenset[str]:
    return frozenset(op.name for op in ELEMENTWISE)


def _round(block: Block) -> bool:
    changed = False
    names = _elementwise()
    for op in _graph.ops(block):
        if op.parent is None:
            continue
        if op.name in names:
            changed |= _move_past(op)
        elif op.name == "tensor.concat":
            changed |= _join(op)
    return changed


def _move_past(op: Operation) -> bool:
    """Apply an elementwise op before the moves of its operands, when that leaves fewer moves."""
    moves = [_move_of(x, op) for x in op.operands]
    found = list(dict.fromkeys([move for move in moves if move is not None]))
    if not found:
        return False
    reason = _refusal(op, moves, found)
    if reason:
        decline("move-past", op, reason)
        return False
    after = _graph.only_user(op.results[0])
    after = after if after is not None and after.name == found[0].name else None
    last = _last(op, found[0], after)
    gone = sum(all(use.operation is op for use in move.results[0].uses) for move in found) + (after is not None)
    gain = gone - (last is not None)
    if gain < 0 or (gain == 0 and not _reaches(op, found[0].name)):
        decline(
            "move-past", op, f"that would leave no fewer moves: {gone} would go, {int(last is not None)} would come"
        )
        return False
    if not may("move-past", op):
        return False
    operands = [x if move is None else move.operands[0] for x, move in zip(op.operands, moves, strict=True)]
    attrs = {key: value for key, value in attributes_of(op).items() if value is not None}
    value = _graph.insert(op, op.name, operands, attrs)
    if last is not None:
        merged = [*found, after] if after is not None else found
        value = _graph.insert(op, found[0].name, [value], last, locations.fuse(x.location for x in merged))
    if after is not None:
        _graph.replace(after, [value])
        _graph.erase(op)
    else:
        _graph.replace(op, [value])
    _graph.erase_dead(found)
    return True


def _move_of(value: SSAValue, op: Operation) -> Operation | None:
    """The move that makes an operand of `op` in the shape of its result."""
    maker = _graph.producer(value)
    moved = maker is not None and maker.name in MOVES and tt(value).shape == tt(op.results[0]).shape
    return maker if moved else None


def _refusal(op: Operation, moves: Sequence[Operation | None], found: Sequence[Operation]) -> str:
    """Why an elementwise op stays behind the moves of its operands."""
    rank = len(tt(found[0].operands[0]).shape)
    for i, (x, move) in enumerate(zip(op.operands, moves, strict=True)):
        if move is None and tt(x).elements != 1:
            return f"operand {i} is not moved, others are"
        if move is None and len(tt(x).shape) > rank:
            return f"operand {i} has more dims than what is moved"
        if move is not None and not _alike(found[0], move):
            return "its operands are moved in different ways"
    return ""


def _reaches(op: Operation, name: str) -> bool:
    """Whether what is left behind `op` can be moved on, op by op, to another move of its kind."""
    user = _graph.only_user(op.results[0])
    while user is not None and user.name in _elementwise():
        rest = [x for x in user.operands if x is not op.results[0]]
        if tt(user.results[0]).shape != tt(op.results[0]).shape or any(tt(x).shape for x in rest):
            return False
        op, user = user, _graph.only_user(user.results[0])
    return user is not None and user.name == name


def _alike(a: Operation, b: Operation) -> bool:
    """Whether two moves are of one kind, from one shape to one shape."""
    same = a.name == b.name and tt(a.operands[0]).shape == tt(b.operands[0]).shape
    return same and a.properties == b.properties


def _last(op: Operation, move: Operation, after: Operation | None) -> dict[str, tuple[int, ...]] | None:
    """Attributes of the move that is left behind the op; None when there is none."""
    source = tt(move.operands[0]).shape
    if move.name == "tensor.reshape":
        shape = tt((after or op).results[0]).shape
        return None if shape == source else {"shape": shape}
    perm: tuple[int, ...] = attributes_of(move)["perm"]
    if after is not None:
        second: tuple[int, ...] = attributes_of(after)["perm"]
        perm = tuple(perm[p] for p in second)
    return None if perm == tuple(range(len(perm))) else {"perm": perm}


def _join(op: Operation) -> bool:
    """Make one slice of neighbours in a concat that are neighbours in their source."""
    axis = attributes_of(op)["axis"] % len(tt(op.results[0]).shape)
    operands: list[SSAValue] = []
    joined: list[Operation] = []
    for value in op.operands:
        both = _neighbours(operands[-1], value, axis) if operands else None
        if both is None or not (joined or may("join-slices", op)):
            operands.append(value)
            continue
        left, right = both
        operands[-1] = _whole(op, left, right, axis)
        joined += [left, right]
    if not joined:
        return False
    location = locations.fuse(x.location for x in (*joined, op))
    if len(operands) == 1:
        _graph.replace(op, operands)
    else:
        new = create(op.name, operands, {"axis": axis}, location)
        assert op.parent is not None
        op.parent.insert_op_before(new, op)
        _graph.replace(op, new.results)
    _graph.erase_dead(dict.fromkeys(joined))
    return True


def _neighbours(left: SSAValue, right: SSAValue, axis: int) -> tuple[Operation, Operation] | None:
    a, b = _graph.made_by(left, "tensor.slice"), _graph.made_by(right, "tensor.slice")
    if a is None or b is None or a.operands[0] is not b.operands[0]:
        return None
    first, second = attributes_of(a), attributes_of(b)
    for d, bounds in enumerate(
        zip(*(x[k] for k in ("starts", "stops", "steps") for x in (first, second)), strict=True)
    ):
        start, next_start, stop, next_stop, step, next_step = bounds
        if step != next_step or (d != axis and (start, stop) != (next_start, next_stop)):
            return None
        if d == axis and (step != 1 or stop != next_start):
            return None
    return a, b


def _whole(before: Operation, left: Operation, right: Operation, axis: int) -> SSAValue:
    attrs = attributes_of(left)
    stops: Sequence[int] = attrs["stops"]
    attrs["stops"] = tuple(attributes_of(right)["stops"][d] if d == axis else n for d, n in enumerate(stops))
    location = locations.fuse((left.location, right.location))
    return _graph.insert(before, "tensor.slice", [left.operands[0]], attrs, location)
