"""Canonicalization patterns of reductions, movement and indexing ops.

They shorten chains, drop what moves nothing, and prefer the op that says least: a reshape to a transpose of unit dims,
a slice to a gather of known positions or to a split of which one part is used. Each either removes an op, or replaces
one by an op that no pattern turns back, so they come to rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeVar

from xdsl.dialects.builtin import BytesAttr
from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from headrace.dialects.support import locations
from headrace.dialects.tensor import shapes
from headrace.dialects.tensor.base import attributes_of, create, ir_type, tt
from headrace.dialects.tensor.canonicalization import canonicalizes, decline
from headrace.dialects.tensor.indexing import GatherOp
from headrace.dialects.tensor.movement import (
    BroadcastOp,
    ConcatOp,
    PadOp,
    ReshapeOp,
    SliceOp,
    SplitOp,
    TransposeOp,
)
from headrace.dialects.tensor.shapes import TT
from headrace.dialects.tensor.storage import ConstantOp, LiteralAttr, constant

OpT = TypeVar("OpT", bound=Operation)


def _maker(value: SSAValue, cls: type[OpT]) -> OpT | None:
    """The op that makes `value`, when it is of a class."""
    return value.owner if isinstance(value.owner, cls) else None


def _make(name: str, operand: SSAValue, attrs: Mapping[str, Any], *merged: Operation) -> Operation:
    """An op that stands for all of `merged`."""
    return create(f"tensor.{name}", [operand], attrs, locations.fuse(op.location for op in merged))


def _forward(op: Operation, value: SSAValue, rewriter: PatternRewriter) -> None:
    """Replace a one-result op by a value of its type."""
    rewriter.replace(op, [], [value])


def _reshape(value: SSAValue, shape: Sequence[int], *merged: Operation) -> tuple[list[Operation], SSAValue]:
    """`value` under another shape; no op when it has it."""
    if tt(value).shape == tuple(shape):
        return [], value
    op = _make("reshape", value, {"shape": tuple(shape)}, *merged)
    return [op], op.results[0]


def _bounds(start: int, step: int, count: int) -> tuple[int, int, int]:
    """Start, stop and step of the slice that takes `count` > 0 indices from `start` on."""
    last = start + (count - 1) * step
    return start, last + (1 if step > 0 else -1), step


def _slice(value: SSAValue, takes: Sequence[tuple[int, int, int]], *merged: Operation) -> Operation:
    """A slice that takes (start, step, count) of every dim; no count is 0."""
    bounds = [_bounds(*take) for take in takes]
    starts, stops, steps = (tuple(b[i] for b in bounds) for i in range(3))
    return _make("slice", value, {"starts": starts, "stops": stops, "steps": steps}, *merged)


def _takes(op: SliceOp) -> list[tuple[int, int, int]] | None:
    """(start, step, count) of every dim; None when the slice is empty."""
    attrs, counts = op.attrs(), tt(op.result).shape
    if 0 in counts:
        return None
    return list(zip(attrs["starts"], attrs["steps"], counts, strict=True))


def _whole(shape: Sequence[int]) -> list[tuple[int, int, int]]:
    return [(0, 1, n) for n in shape]


# Ops that give their operand back


@canonicalizes("tensor.reshape", "tensor.broadcast")
class SameShape(RewritePattern):
    """A reshape or broadcast to the operand's own shape is the operand."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if op.operands[0].type == op.results[0].type:
            _forward(op, op.operands[0], rewriter)


@canonicalizes("tensor.transpose")
class UnitTranspose(RewritePattern):
    """A transpose that keeps the order of all dims larger than 1 is the operand, or a reshape of it."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        x = op.operands[0]
        shape = tt(x).shape
        moved = [p for p in attributes_of(op)["perm"] if shape[p] != 1]
        if moved == sorted(moved):
            ops, value = _reshape(x, tt(op.results[0]).shape, op)
            rewriter.replace(op, ops, [value])


@canonicalizes("tensor.slice")
class WholeSlice(RewritePattern):
    """A slice of everything, in order, is the operand."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        x = op.operands[0]
        if x.type != op.results[0].type:
            return
        # Equal sizes leave only one choice of indices, which a negative step takes in reverse.
        if all(step > 0 or n <= 1 for step, n in zip(attributes_of(op)["steps"], tt(x).shape, strict=True)):
            _forward(op, x, rewriter)
        else:
            decline(rewriter, "it reverses a dim")


@canonicalizes("tensor.pad")
class NoPad(RewritePattern):
    """A pad by nothing is the operand."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if op.operands[0].type == op.results[0].type:
            _forward(op, op.operands[0], rewriter)


@canonicalizes("tensor.concat")
class ConcatOfOne(RewritePattern):
    """A concat of one operand is the operand; operands without elements go."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if len(op.operands) == 1:
            _forward(op, op.operands[0], rewriter)
            return
        filled = [x for x in op.operands if tt(x).elements]
        if filled and len(filled) < len(op.operands):
            rewriter.replace(op, create(op.name, filled, attributes_of(op), op.location))


@canonicalizes("tensor.split")
class SplitInOne(RewritePattern):
    """A split in one part is the operand."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if len(op.results) == 1:
            _forward(op, op.operands[0], rewriter)


@canonicalizes(*(f"tensor.reduce_{name}" for name in ("sum", "mean", "max", "min", "prod")))
class ReductionOfUnits(RewritePattern):
    """A reduction over dims of size 1 is a reshape."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        x = op.operands[0]
        axes: tuple[int, ...] = attributes_of(op)["axes"]
        if all(tt(x).shape[axis] == 1 for axis in axes):
            ops, value = _reshape(x, tt(op.results[0]).shape, op)
            rewriter.replace(op, ops, [value])


@canonicalizes("tensor.scatter_elements", "tensor.scatter_nd")
class ScatterOfNothing(RewritePattern):
    """A scatter of no updates is the data."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if not tt(op.operands[2]).elements:
            _forward(op, op.operands[0], rewriter)


# Chains


@canonicalizes("tensor.reshape", of=["tensor.reshape"])
class ReshapeOfReshape(RewritePattern):
    """Of two reshapes the last decides."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        inner = _maker(op.operands[0], ReshapeOp)
        if inner is None:
            return
        x = inner.input
        if x.type == op.results[0].type:
            _forward(op, x, rewriter)
            return
        op.operands[0] = x
        op.location = locations.fuse((inner.location, op.location))
        if inner.result.first_use is None:
            rewriter.erase(inner)
        rewriter.notify_op_modified(op)


@canonicalizes("tensor.transpose", of=["tensor.transpose"])
class TransposeOfTranspose(RewritePattern):
    """Two transposes are one."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        inner = _maker(op.operands[0], TransposeOp)
        if inner is not None:
            first, second = attributes_of(inner)["perm"], attributes_of(op)["perm"]
            perm = tuple(first[p] for p in second)
            rewriter.replace(op, _make("transpose", inner.input, {"perm": perm}, inner, op))


@canonicalizes("tensor.broadcast", of=["tensor.broadcast"])
class BroadcastOfBroadcast(RewritePattern):
    """Two broadcasts are one."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        inner = _maker(op.operands[0], BroadcastOp)
        if inner is not None:
            rewriter.replace(op, _make("broadcast", inner.input, attributes_of(op), inner, op))


@canonicalizes("tensor.slice", of=["tensor.slice"])
class SliceOfSlice(RewritePattern):
    """Two slices are one."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        inner = _maker(op.operands[0], SliceOp)
        if inner is None or not isinstance(op, SliceOp):
            return
        first, second = _takes(inner), _takes(op)
        if first is None or second is None:
            return
        takes = [(a + b * s, s * t, n) for (a, s, _), (b, t, n) in zip(first, second, strict=True)]
        rewriter.replace(op, _slice(inner.input, takes, inner, op))


@canonicalizes("tensor.slice", of=["tensor.split", "tensor.concat"])
class SliceOfParts(RewritePattern):
    """A slice of one part of a split is a slice of the whole; a slice of a concat that lies in one operand is a slice
    of that operand."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if not isinstance(op, SliceOp):
            return
        takes = _takes(op)
        if takes is None:
            return
        split, concat = _maker(op.input, SplitOp), _maker(op.input, ConcatOp)
        if split is not None:
            attrs = split.attrs()
            axis: int = attrs["axis"] % len(takes)
            part = next(i for i, value in enumerate(split.outputs) if value == op.input)
            start, step, count = takes[axis]
            takes[axis] = (start + sum(attrs["sizes"][:part]), step, count)
            rewriter.replace(op, _slice(split.input, takes, split, op))
        elif concat is not None:
            axis: int = concat.attrs()["axis"] % len(takes)
            start, step, count = takes[axis]
            low, high = sorted((start, start + (count - 1) * step))
            begin = 0
            for operand in concat.inputs:
                end = begin + tt(operand).shape[axis]
                if begin <= low and high < end:
                    takes[axis] = (start - begin, step, count)
                    rewriter.replace(op, _slice(operand, takes, concat, op))
                    return
                begin = end
            decline(rewriter, f"it reaches over more than one operand of the concat at {locations.of(concat)}")


@canonicalizes("tensor.concat", of=["tensor.concat"])
class ConcatOfConcat(RewritePattern):
    """A concat that nothing else uses is taken into the concat around it, along the same axis."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        rank = len(tt(op.results[0]).shape)
        axis = attributes_of(op)["axis"] % rank
        operands: list[SSAValue] = []
        merged: list[Operation] = []
        for value in op.operands:
            inner = _maker(value, ConcatOp)
            reason = ""
            if inner is not None and attributes_of(inner)["axis"] % rank != axis:
                reason = "is along another axis"
            elif not value.has_one_use():
                reason = "has other users"
            if inner is not None and not reason:
                operands.extend(inner.inputs)
                merged.append(inner)
                continue
            operands.append(value)
            if inner is not None:
                decline(rewriter, f"the concat before it, at {locations.of(inner)}, {reason}")
        if merged:
            location = locations.fuse(x.location for x in (*merged, op))
            rewriter.replace(op, create(op.name, operands, {"axis": axis}, location))


@canonicalizes("tensor.concat", of=["tensor.split"])
class ConcatOfSplit(RewritePattern):
    """All parts of a split put together again in order are the whole."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        split = _maker(op.operands[0], SplitOp)
        if split is None:
            return
        if list(op.operands) != list(split.outputs):
            decline(rewriter, "its operands are not all parts of the split, in order")
            return
        rank = len(tt(split.input).shape)
        if attributes_of(op)["axis"] % rank == attributes_of(split)["axis"] % rank:
            _forward(op, split.input, rewriter)


@canonicalizes("tensor.split")
class SplitOfOneUse(RewritePattern):
    """A split of which one part is used is a slice."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        used = [i for i, value in enumerate(op.results) if value.first_use is not None]
        if len(op.results) < 2 or len(used) != 1 or not tt(op.results[used[0]]).elements:
            return
        attrs, x = attributes_of(op), tt(op.operands[0])
        takes, axis = _whole(x.shape), attrs["axis"] % len(x.shape)
        takes[axis] = (sum(attrs["sizes"][: used[0]]), 1, attrs["sizes"][used[0]])
        new = _slice(op.operands[0], takes, op)
        values: list[SSAValue | None] = [None] * len(op.results)
        values[used[0]] = new.results[0]
        rewriter.replace(op, new, values)


@canonicalizes("tensor.pad", of=["tensor.pad"])
class PadOfPad(RewritePattern):
    """Two pads with the same value are one."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        inner = _maker(op.operands[0], PadOp)
        if inner is None:
            return
        first, second = attributes_of(inner), attributes_of(op)
        if first["mode"] != "constant" or second["mode"] != "constant" or first["value"] != second["value"]:
            decline(rewriter, "the pad before it fills with something else")
            return
        attrs = dict(second)
        for side in ("lo", "hi"):
            attrs[side] = tuple(a + b for a, b in zip(first[side], second[side], strict=True))
        rewriter.replace(op, _make("pad", inner.input, attrs, inner, op))


# Products with what is repeated


@canonicalizes("tensor.matmul", of=["tensor.reshape", "tensor.transpose"])
class ProductWithRepeats(RewritePattern):
    """A product with matrices that are each repeated some times in a row is one of fewer matrices with the rows of all
    of these times: heads of queries that share keys and values. It is when those rows are few.

        %1 = tensor.reshape (tensor.broadcast %k)      [b, g, 1, n, m] -> [b, g, r, n, m] -> [b, g * r, n, m]
        %2 = tensor.matmul %q, %1                      [b, g * r, t, n]
    =>  %1 = tensor.matmul (tensor.reshape %q), (tensor.reshape %k)     [b, g, r * t, n], [b, g, n, m]
        %2 = tensor.reshape %1
    """

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        left, right = op.operands
        a, b = tt(left).shape, tt(right).shape
        found = _repeated(right)
        if found is None:
            return
        source, times, swapped = found
        if a[:-2] != b[:-2] or not tt(op.results[0]).elements:
            decline(rewriter, "its operands are repeated along other dims")
            return
        *lead, heads, rows, inner = a
        if times * rows >= max(b[-2:]):
            decline(rewriter, f"the {rows} rows of each are as many as what they share: they keep their own dim")
            return
        shape = tt(source).shape
        made, value = _reshape(source, (*lead, heads // times, *shape[-2:]), op)
        if swapped:
            rank = len(a)
            made.append(_make("transpose", value, {"perm": (*range(rank - 2), rank - 1, rank - 2)}, op))
            value = made[-1].results[0]
        before, left = _reshape(left, (*lead, heads // times, times * rows, inner), op)
        product = create(op.name, [left, value], attributes_of(op), op.location)
        after, value = _reshape(product.results[0], tt(op.results[0]).shape, op)
        rewriter.replace(op, [*made, *before, product, *after], [value])


def _repeated(value: SSAValue) -> tuple[SSAValue, int, bool] | None:
    """What a value holds several times in a row, along the dim before its last two: as it was before it was repeated,
    how many times, and whether its last two dims are swapped since."""
    rank = len(tt(value).shape)
    swap = _maker(value, TransposeOp)
    if swap is not None:
        if attributes_of(swap)["perm"] != (*range(rank - 2), rank - 1, rank - 2):
            return None
        value = swap.input
    shape = tt(value).shape
    merge = _maker(value, ReshapeOp)
    spread = None if merge is None else _maker(merge.input, BroadcastOp)
    if spread is None or rank < 3:
        return None
    wide, narrow = tt(spread.result).shape, tt(spread.input).shape
    if len(wide) != rank + 1 or len(narrow) != rank + 1:
        return None
    times = wide[-3]
    if times < 2 or wide != (*shape[:-3], wide[-4], times, *shape[-2:]) or narrow != (*wide[:-3], 1, *wide[-2:]):
        return None
    return spread.input, times, swap is not None


# Known positions


@canonicalizes("tensor.gather", of=["tensor.constant"])
class GatherOfKnown(RewritePattern):
    """A gather at constant positions that are evenly spaced (or one) is a slice, under the shape of the indices."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if not isinstance(op, GatherOp):
            return
        indices = _maker(op.indices, ConstantOp)
        data, count = tt(op.data), tt(op.indices).elements
        if indices is None or not tt(op.result).elements or (indices.value.is_splat and count > 1):
            return
        axis: int = op.attrs()["axis"] % len(data.shape)
        size = data.shape[axis]
        at = [int(i) + size if i < 0 else int(i) for i in indices.value.values()]
        if any(not 0 <= i < size for i in at):
            decline(rewriter, "an index is out of range: an error when the program runs")
            return
        step = at[1] - at[0] if count > 1 else 1
        if step == 0 or any(b - a != step for a, b in pairwise(at)):
            decline(rewriter, "the positions are not evenly spaced")
            return
        takes = _whole(data.shape)
        takes[axis] = (at[0], step, count)
        part = _slice(op.data, takes, op)
        ops, value = _reshape(part.results[0], tt(op.result).shape, op)
        rewriter.replace(op, [part, *ops], [value])


# Constants


@canonicalizes("tensor.reshape", "tensor.broadcast", "tensor.transpose", "tensor.slice", of=["tensor.constant"])
class OfConstant(RewritePattern):
    """A constant of equal elements stays one under another shape; any constant can be reshaped as it is."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        source = _maker(op.operands[0], ConstantOp)
        if source is None:
            return
        type = tt(op.results[0])
        if not type.elements:
            literal = LiteralAttr(ir_type(type), BytesAttr(b""))
        elif source.value.is_splat or op.name == "tensor.reshape":
            literal = LiteralAttr(ir_type(type), source.value.data)
        else:
            decline(rewriter, "the elements differ: fold-constants computes it")
            return
        rewriter.replace(op, constant(literal, locations.fuse((source.location, op.location))))


# Broadcasts that the user does by itself

BROADCASTING = (
    *("add", "sub", "mul", "div", "pow", "max", "min", "mod", "atan2", "and", "or", "xor", "select"),
    *("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"),
)


@canonicalizes(*(f"tensor.{name}" for name in BROADCASTING), of=["tensor.broadcast"])
class ImplicitBroadcast(RewritePattern):
    """An elementwise op repeats its operands by itself: a broadcast goes where another operand gives the shape."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        for i, value in enumerate(op.operands):
            inner = _maker(value, BroadcastOp)
            if inner is None:
                continue
            operands: list[SSAValue] = [*op.operands]
            operands[i] = inner.input
            types: list[TT] = [tt(x) for x in operands]
            if shapes.infer(op.name, attributes_of(op), types) == (tt(op.results[0]),):
                rewriter.replace(op, create(op.name, operands, attributes_of(op), op.location))
                return
            decline(rewriter, f"operand {i} gives the result its shape")
