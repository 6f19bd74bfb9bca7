"""Ops that only move elements: other shapes, other orders, parts and wholes."""

from __future__ import annotations

from xdsl.dialects.builtin import DenseArrayBase, FloatAttr, StringAttr, f64, i64
from xdsl.irdl import (
    ParsePropInAttrDict,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.traits import Pure

from headrace.dialects.tensor.base import AnyTensor, TensorOp
from headrace.dialects.tensor.reduction import Int

Ints = DenseArrayBase.constr(i64)


class Movement(TensorOp):
    """An op that gives each result element one operand element (or a fill value)."""

    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(Pure())


class Unary(Movement):
    """A movement op of one operand and one result."""

    input = operand_def(AnyTensor)
    result = result_def(AnyTensor)
    assembly_format = "$input attr-dict `:` type($input) `->` type($result)"


@irdl_op_definition
class ReshapeOp(Unary):
    """The same elements in row-major order under another shape.

        %1 = tensor.reshape %0 {shape = array<i64: 3, 2>} : tensor<2x3xf32> -> tensor<3x2xf32>

    `shape` gives every size. Refused: another number of elements, a negative size.
    """

    name = "tensor.reshape"
    shape = prop_def(Ints)


@irdl_op_definition
class TransposeOp(Unary):
    """Dims in another order: result dim i is operand dim perm[i].

        %1 = tensor.transpose %0 {perm = array<i64: 1, 0>} : tensor<2x3xf32> -> tensor<3x2xf32>

    Refused: a `perm` that is not a permutation of the operand's dims.
    """

    name = "tensor.transpose"
    perm = prop_def(Ints)


@irdl_op_definition
class BroadcastOp(Unary):
    """Dims of size 1, and new dims in front, repeated to `shape` (NumPy's broadcasting rule).

        %1 = tensor.broadcast %0 {shape = array<i64: 4, 2, 3>} : tensor<2x1xf32> -> tensor<4x2x3xf32>

    Refused: fewer dims than the operand has, a size other than 1 that changes.
    """

    name = "tensor.broadcast"
    shape = prop_def(Ints)


@irdl_op_definition
class SliceOp(Unary):
    """Per dim d, the indices starts[d], starts[d]+steps[d], … before stops[d]. One entry per dim, nothing counted from
    the back: 0 ≤ start ≤ size and 0 ≤ stop ≤ size when the step is positive; -1 ≤ start < size and -1 ≤ stop < size
    when it is negative, where stop -1 takes the first element in.

        %1 = tensor.slice %0 {starts = array<i64: 0, 1>, steps = array<i64: 1, 1>, stops = array<i64: 2, 3>}
             : tensor<2x3xf32> -> tensor<2x2xf32>

    Refused: a bound out of range, a step of 0.
    """

    name = "tensor.slice"
    starts = prop_def(Ints)
    stops = prop_def(Ints)
    steps = prop_def(Ints)


@irdl_op_definition
class ConcatOp(Movement):
    """The operands one after the other along `axis`.

        %2 = tensor.concat %0, %1 {axis = 1 : i64} : tensor<2x3xf32>, tensor<2x4xf32> -> tensor<2x7xf32>

    Refused: operands whose element types, ranks or other sizes differ.
    """

    name = "tensor.concat"
    inputs = var_operand_def(AnyTensor)
    axis = prop_def(Int)
    result = result_def(AnyTensor)
    assembly_format = "$inputs attr-dict `:` type($inputs) `->` type($result)"


@irdl_op_definition
class SplitOp(Movement):
    """Consecutive parts along `axis`, one result per entry of `sizes`.

        %1, %2 = tensor.split %0 {axis = 1 : i64, sizes = array<i64: 1, 2>}
                 : tensor<2x3xf32> -> tensor<2x1xf32>, tensor<2x2xf32>

    Refused: sizes that do not add up to the dim, an empty `sizes`.
    """

    name = "tensor.split"
    input = operand_def(AnyTensor)
    axis = prop_def(Int)
    sizes = prop_def(Ints)
    outputs = var_result_def(AnyTensor)
    assembly_format = "$input attr-dict `:` type($input) `->` type($outputs)"


@irdl_op_definition
class PadOp(Unary):
    """lo[d] elements before and hi[d] after each dim d: `value` (mode "constant"), the mirrored operand without its
    border ("reflect") or the border itself ("edge").

        %1 = tensor.pad %0 {hi = array<i64: 0, 1>, lo = array<i64: 0, 1>} : tensor<2x3xf32> -> tensor<2x5xf32>

    Refused: negative padding (a slice says that), more than size-1 with "reflect", an unknown mode.
    """

    name = "tensor.pad"
    lo = prop_def(Ints)
    hi = prop_def(Ints)
    mode = prop_def(StringAttr, default_value=StringAttr("constant"))
    value = prop_def(FloatAttr.constr(f64), default_value=FloatAttr(0.0, f64))


OPS = [ReshapeOp, TransposeOp, BroadcastOp, SliceOp, ConcatOp, SplitOp, PadOp]
