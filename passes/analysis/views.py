"""Movement ops as address arithmetic: where the elements of a reshaped, transposed, sliced or broadcast tensor lie in
the row-major memory of the tensor that they come from.

A chain of movement ops is never executed when a strided view expresses it; what it reads or writes becomes part of an
address program. `resolve` goes from a value up to its *root*; `reshape_strides` is the arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.ir import Operation, OpResult, SSAValue

from headrace.dialects.support.access import View, row_major
from headrace.dialects.tensor.base import attributes_of, tt

MOVEMENT = frozenset(
    f"tensor.{name}" for name in ("reshape", "transpose", "slice", "broadcast", "concat", "split", "pad")
)


def is_movement(op: Operation) -> bool:
    """Whether an op only moves elements (a pad counts when it fills with a constant)."""
    if op.name not in MOVEMENT:
        return False
    return op.name != "tensor.pad" or attributes_of(op).get("mode", "constant") == "constant"


def producer(value: SSAValue) -> Operation | None:
    """The op that makes a value, or None for a block argument."""
    return value.op if type(value) is OpResult else None  # isinstance of an abstract class is slow


def reshape_strides(shape: Sequence[int], strides: Sequence[int], target: Sequence[int]) -> tuple[int, ...] | None:
    """Strides that address the same elements, in row-major order, under another shape; None when no strides do.

    >>> reshape_strides((4, 6), (6, 1), (2, 2, 6))
    (12, 6, 1)
    """
    old = [(n, s) for n, s in zip(shape, strides, strict=True) if n != 1]
    found: list[int] = []
    i = 0
    new = list(target)
    j = 0
    while j < len(new):
        if new[j] == 1:
            found.append(0)
            j += 1
            continue
        if i >= len(old):
            return None
        have, want = old[i][0], new[j]
        last_i, last_j = i, j
        while have != want:
            if have < want:
                last_i += 1
                if last_i >= len(old):
                    return None
                have *= old[last_i][0]
            else:
                last_j += 1
                if last_j >= len(new):
                    return None
                want *= new[last_j]
        for k in range(i, last_i):
            if old[k][1] != old[k + 1][0] * old[k + 1][1]:
                return None
        stride = old[last_i][1]
        group: list[int] = []
        for k in range(last_j, j - 1, -1):
            group.append(stride)
            stride *= new[k]
        found.extend(reversed(group))
        i, j = last_i + 1, last_j + 1
    return tuple(found) if i == len(old) else None


@dataclass(frozen=True)
class Ref:
    """A value as a strided view of the row-major elements of `root`."""

    root: SSAValue
    view: View
    shape: tuple[int, ...]

    @property
    def contiguous(self) -> bool:
        """Whether the elements are dense and in order."""
        dense = row_major(self.shape)
        return all(n == 1 or s == d for n, s, d in zip(self.shape, self.view.strides, dense, strict=True))


def move(op: Operation, attrs: dict[str, Any], index: int, ref: Ref, result: tuple[int, ...]) -> Ref | None:
    """The view of result `index` of a movement op, given the view of its operand; None when no view expresses it."""
    offset, strides = ref.view.offset, ref.view.strides
    match op.name:
        case "tensor.transpose":
            perm: tuple[int, ...] = attrs["perm"]
            return Ref(ref.root, View(offset, tuple(strides[p] for p in perm)), result)
        case "tensor.reshape":
            found = reshape_strides(ref.shape, strides, result)
            return None if found is None else Ref(ref.root, View(offset, found), result)
        case "tensor.slice":
            starts: tuple[int, ...] = attrs["starts"]
            steps: tuple[int, ...] = attrs["steps"]
            offset += sum(start * stride for start, stride in zip(starts, strides, strict=True))
            moved = tuple(s * k for s, k in zip(strides, steps, strict=True))
            return Ref(ref.root, View(offset, moved), result)
        case "tensor.split":
            axis: int = attrs["axis"] % len(result)
            before: tuple[int, ...] = attrs["sizes"][:index]
            offset += sum(before) * strides[axis]
            return Ref(ref.root, View(offset, strides), result)
        case "tensor.broadcast":
            lead = len(result) - len(ref.shape)
            moved = tuple(
                0 if d < lead or ref.shape[d - lead] != n else strides[d - lead] for d, n in enumerate(result)
            )
            return Ref(ref.root, View(offset, moved), result)
        case _:
            return None


def resolve(value: SSAValue, is_root: Callable[[SSAValue], bool] | None = None) -> Ref:
    """The value as a view of its root: the nearest value up its chain that is not made by a movement op, or that
    `is_root` holds for, or whose elements no view of anything above expresses (concat, pad, some reshapes)."""
    shape = tt(value).shape
    op = producer(value)
    whole = Ref(value, View(0, row_major(shape)), shape)
    if op is None or op.name in ("tensor.concat", "tensor.pad") or not is_movement(op):
        return whole
    if is_root is not None and is_root(value):
        return whole
    source = op.operands[0]
    inner = resolve(source, is_root)
    attrs = attributes_of(op)
    index = op.results.index(value)  # pyright: ignore[reportArgumentType]
    found = move(op, attrs, index, inner, shape)
    if found is None:
        below = tt(source).shape
        found = move(op, attrs, index, Ref(source, View(0, row_major(below)), below), shape)
    return found if found is not None else whole


def passed(value: SSAValue, root: SSAValue) -> list[Operation]:
    """The movement ops between a value and its root, which a view takes the place of, from the root down."""
    found: list[Operation] = []
    while value is not root:
        op = producer(value)
        if op is None:
            break
        found.append(op)
        value = op.operands[0]
    return found[::-1]


def bases(value: SSAValue) -> list[SSAValue]:
    """The values that a chain of movement ops takes its elements from, in order and once each."""
    found: dict[SSAValue, None] = {}
    seen: set[SSAValue] = set()
    work = [value]
    while work:
        one = work.pop()
        if one in seen:
            continue
        seen.add(one)
        op = producer(one)
        if op is None or not is_movement(op):
            found[one] = None
        else:
            work.extend(reversed(op.operands))
    return list(found)
