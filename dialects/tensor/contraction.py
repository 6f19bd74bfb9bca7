"""The ops that multiply and sum over dims of their operands, and the sliding-window ops."""

from __future__ import annotations

from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, StringAttr, i1, i64
from xdsl.irdl import (
    ParsePropInAttrDict,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.traits import Pure

from headrace.dialects.tensor.base import AnyTensor, TensorOp

Bool = IntegerAttr.constr(i1)
Int = IntegerAttr.constr(i64)
Ints = DenseArrayBase.constr(i64)


@irdl_op_definition
class MatmulOp(TensorOp):
    """Matrix product by the rules of `np.matmul`: leading dims are batch dims and broadcast; a 1-d lhs is a row and a
    1-d rhs a column, whose dim goes away in the result.

    `accumulate` is the element type that products are summed in. Left out, it is f32 for f16 and bf16 and the
    operands' own type otherwise. Float results are rounded once to the operands' type; integer results have the
    accumulate type and wrap.

        %r = tensor.matmul %a, %b : tensor<2x2x3xf32>, tensor<3x2xf32> -> tensor<2x2x2xf32>

    Refused: a 0-d operand; different element types, or i1; columns of lhs ≠ rows of rhs; batch dims that do not
    broadcast; an accumulate type of the other kind or narrower than the operands.
    """

    name = "tensor.matmul"
    lhs = operand_def(AnyTensor)
    rhs = operand_def(AnyTensor)
    accumulate = opt_prop_def(StringAttr)
    result = result_def(AnyTensor)

    traits = traits_def(Pure())
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "$lhs `,` $rhs attr-dict `:` type($lhs) `,` type($rhs) `->` type($result)"


@irdl_op_definition
class ConvOp(TensorOp):
    """Convolution (without flipping the kernel) of input [N, C, spatial…] with filter [O, C/groups, kernel…], plus
    bias [O] when given; one to three spatial dims. The result is [N, O, spatial…].

    `strides` and `dilations` are per spatial dim and 1 when left out; `pads` are the zeros before each spatial dim,
    then those after each, 0 when left out. Output channel o reads the input channels of group o // (O / groups).
    `accumulate` as in `tensor.matmul`; the bias is added before rounding.

        %r = tensor.conv %x, %w {pads = array<i64: 1, 1>} : tensor<1x1x5xf32>, tensor<2x1x3xf32> -> tensor<1x2x5xf32>

    Refused: ranks that differ or are not 3 to 5; different element types, or i1; channels that do not match the
    filter; groups that do not divide C and O; attributes of the wrong length; a kernel larger than the padded input.
    """

    name = "tensor.conv"
    input = operand_def(AnyTensor)
    filter = operand_def(AnyTensor)
    bias = opt_operand_def(AnyTensor)
    strides = opt_prop_def(Ints)
    pads = opt_prop_def(Ints)
    dilations = opt_prop_def(Ints)
    groups = prop_def(Int, default_value=IntegerAttr(1, 64))
    accumulate = opt_prop_def(StringAttr)
    result = result_def(AnyTensor)

    traits = traits_def(Pure())
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = (
        "$input `,` $filter (`,` $bias^)? attr-dict "
        "`:` type($input) `,` type($filter) (`,` type($bias)^)? `->` type($result)"
    )


class PoolOp(TensorOp):
    """Base of the pooling ops over the spatial dims of [N, C, spatial…]."""

    input = operand_def(AnyTensor)
    kernel = prop_def(Ints)
    strides = opt_prop_def(Ints)
    pads = opt_prop_def(Ints)
    dilations = opt_prop_def(Ints)
    ceil = prop_def(Bool, default_value=IntegerAttr.from_bool(False))
    result = result_def(AnyTensor)

    traits = traits_def(Pure())
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "$input attr-dict `:` type($input) `->` type($result)"


@irdl_op_definition
class MaxPoolOp(PoolOp):
    """The largest element of each window over the spatial dims of [N, C, spatial…]; padding never wins, NaN always
    does.

    `strides`, `pads` and `dilations` as in `tensor.conv`. With `ceil` the result size rounds up, and the last window
    may reach past the padded input, but must start inside the input or its leading pad.

        %r = tensor.max_pool %x {kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>} : tensor<1x1x4x4xf32>
          -> tensor<1x1x2x2xf32>

    Refused: a rank that is not 3 to 5; an i1 operand; attributes of the wrong length; a pad not smaller than its
    kernel; a kernel larger than the padded input.
    """

    name = "tensor.max_pool"


@irdl_op_definition
class AvgPoolOp(PoolOp):
    """The mean of each window over the spatial dims of [N, C, spatial…]. The divisor counts the window's elements
    inside the input, and with `count_include_pad` those in the padding too (never those past it, which `ceil` may
    reach).

    Other attributes as in `tensor.max_pool`.

        %r = tensor.avg_pool %x {kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>} : tensor<1x1x4x4xf32>
          -> tensor<1x1x2x2xf32>

    Refused: as `tensor.max_pool`; an element type that is not a float.
    """

    name = "tensor.avg_pool"
    count_include_pad = prop_def(Bool, default_value=IntegerAttr.from_bool(False))


OPS = (MatmulOp, ConvOp, MaxPoolOp, AvgPoolOp)
