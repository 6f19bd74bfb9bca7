"""Ops that combine the elements of dims: sums, extremes, their positions, running sums, orders."""

from __future__ import annotations

from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, i1, i64
from xdsl.irdl import ParsePropInAttrDict, irdl_op_definition, operand_def, prop_def, result_def, traits_def
from xdsl.traits import Pure

from headrace.dialects.tensor.base import AnyTensor, TensorOp

KEEP = IntegerAttr.from_bool(True)
FALSE = IntegerAttr.from_bool(False)
Bool = IntegerAttr.constr(i1)
Int = IntegerAttr.constr(i64)


class Reduction(TensorOp):
    """A reduction over `axes` (negative ones count from the back; none reduces nothing); a reduced dim becomes size 1,
    or goes when `keepdims` is false."""

    input = operand_def(AnyTensor)
    axes = prop_def(DenseArrayBase.constr(i64))
    keepdims = prop_def(Bool, default_value=KEEP)
    result = result_def(AnyTensor)
    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(Pure())
    assembly_format = "$input attr-dict `:` type($input) `->` type($result)"


@irdl_op_definition
class ReduceSumOp(Reduction):
    """Sum over `axes`; f16 and bf16 accumulate in f32, integers wrap.

        %1 = tensor.reduce_sum %0 {axes = array<i64: -1>} : tensor<2x3xf32> -> tensor<2x1xf32>

    Refused: an axis out of range or twice, an i1 operand.
    """

    name = "tensor.reduce_sum"


@irdl_op_definition
class ReduceMeanOp(Reduction):
    """Mean over `axes`; of integers, the 64-bit sum divided with truncation towards zero.

        %1 = tensor.reduce_mean %0 {axes = array<i64: 0, 1>, keepdims = false} : tensor<2x3xf32> -> tensor<f32>

    Refused: an axis out of range or twice, an i1 operand.
    """

    name = "tensor.reduce_mean"


@irdl_op_definition
class ReduceMaxOp(Reduction):
    """Largest element over `axes` (i1: any); a NaN wins.

        %1 = tensor.reduce_max %0 {axes = array<i64: 1>} : tensor<2x3xf32> -> tensor<2x1xf32>

    Refused: an axis out of range or twice, a reduced dim of size 0.
    """

    name = "tensor.reduce_max"


@irdl_op_definition
class ReduceMinOp(Reduction):
    """Smallest element over `axes` (i1: all); a NaN wins.

        %1 = tensor.reduce_min %0 {axes = array<i64: 1>} : tensor<2x3xf32> -> tensor<2x1xf32>

    Refused: an axis out of range or twice, a reduced dim of size 0.
    """

    name = "tensor.reduce_min"


@irdl_op_definition
class ReduceProdOp(Reduction):
    """Product over `axes`; f16 and bf16 accumulate in f32, integers wrap.

        %1 = tensor.reduce_prod %0 {axes = array<i64: 1>} : tensor<2x3xf32> -> tensor<2x1xf32>

    Refused: an axis out of range or twice, an i1 operand.
    """

    name = "tensor.reduce_prod"


class ArgReduction(TensorOp):
    """The position along `axis`, as i64, of an extreme element."""

    input = operand_def(AnyTensor)
    axis = prop_def(Int)
    keepdims = prop_def(Bool, default_value=KEEP)
    select_last = prop_def(Bool, default_value=FALSE)
    result = result_def(AnyTensor)
    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(Pure())
    assembly_format = "$input attr-dict `:` type($input) `->` type($result)"


@irdl_op_definition
class ArgmaxOp(ArgReduction):
    """Position of the largest element along `axis`: the first of equals, or the last with `select_last`.

        %1 = tensor.argmax %0 {axis = -1 : i64, keepdims = false} : tensor<2x3xf32> -> tensor<2xi64>

    Refused: an axis out of range, an i1 operand, a dim of size 0.
    """

    name = "tensor.argmax"


@irdl_op_definition
class ArgminOp(ArgReduction):
    """Position of the smallest element along `axis`: the first of equals, or the last with `select_last`.

        %1 = tensor.argmin %0 {axis = -1 : i64, keepdims = false} : tensor<2x3xf32> -> tensor<2xi64>

    Refused: an axis out of range, an i1 operand, a dim of size 0.
    """

    name = "tensor.argmin"


@irdl_op_definition
class CumsumOp(TensorOp):
    """Running sum along `axis`; `exclusive` leaves the element itself out, `reverse` sums from the end.

        %1 = tensor.cumsum %0 {axis = 1 : i64} : tensor<2x3xf32> -> tensor<2x3xf32>

    Refused: an axis out of range, an i1 operand.
    """

    name = "tensor.cumsum"
    input = operand_def(AnyTensor)
    axis = prop_def(Int)
    exclusive = prop_def(Bool, default_value=FALSE)
    reverse = prop_def(Bool, default_value=FALSE)
    result = result_def(AnyTensor)
    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(Pure())
    assembly_format = "$input attr-dict `:` type($input) `->` type($result)"


@irdl_op_definition
class SortOp(TensorOp):
    """The elements in ascending order along `axis`, or in descending order, and the positions, as i64, that they had.
    Equal elements keep their order; a NaN counts as larger than any number.

        %1, %2 = tensor.sort %0 {axis = 1 : i64, descending = true}
                 : tensor<2x3xf32> -> tensor<2x3xf32>, tensor<2x3xi64>

    Refused: an axis out of range.
    """

    name = "tensor.sort"
    input = operand_def(AnyTensor)
    axis = prop_def(Int)
    descending = prop_def(Bool, default_value=FALSE)
    values = result_def(AnyTensor)
    indices = result_def(AnyTensor)
    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(Pure())
    assembly_format = "$input attr-dict `:` type($input) `->` type($values) `,` type($indices)"


OPS = [ReduceSumOp, ReduceMeanOp, ReduceMaxOp, ReduceMinOp, ReduceProdOp, ArgmaxOp, ArgminOp, CumsumOp, SortOp]
