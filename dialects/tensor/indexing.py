"""Ops that move elements to or from positions held in a tensor. An index may count from the back; an index out of range
is an error when the program runs."""

from __future__ import annotations

from xdsl.dialects.builtin import IntegerAttr, StringAttr, i64
from xdsl.irdl import ParsePropInAttrDict, irdl_op_definition, operand_def, prop_def, result_def, traits_def
from xdsl.traits import Pure

from headrace.dialects.tensor.base import AnyTensor, TensorOp
from headrace.dialects.tensor.movement import Ints
from headrace.dialects.tensor.reduction import Int

ZERO = IntegerAttr(0, i64)
NONE = StringAttr("none")


class Indexing(TensorOp):
    """An op whose positions are data."""

    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(Pure())


class Gather(Indexing):
    """An op that reads `data` at `indices`."""

    data = operand_def(AnyTensor)
    indices = operand_def(AnyTensor)
    result = result_def(AnyTensor)
    assembly_format = "$data `,` $indices attr-dict `:` type($data) `,` type($indices) `->` type($result)"


@irdl_op_definition
class GatherOp(Gather):
    """The slices of `data` along `axis` that `indices` number; the index dims take the place of `axis`.

        %2 = tensor.gather %0, %1 : tensor<4x2xf32>, tensor<2x2xi64> -> tensor<2x2x2xf32>

    Refused: indices other than i32 and i64, an axis out of range.
    """

    name = "tensor.gather"
    axis = prop_def(Int, default_value=ZERO)


@irdl_op_definition
class GatherElementsOp(Gather):
    """Element c of the result is `data` at c with coordinate `axis` replaced by the index at c.

        %2 = tensor.gather_elements %0, %1 {axis = 1 : i64} : tensor<2x9xf32>, tensor<2x3xi64> -> tensor<2x3xf32>

    Refused: ranks that differ, indices larger than data on a dim other than `axis`.
    """

    name = "tensor.gather_elements"
    axis = prop_def(Int, default_value=ZERO)


@irdl_op_definition
class GatherNdOp(Gather):
    """The parts of `data` at the coordinate tuples in the last dim of `indices`; the first `batch_dims` dims of both go
    along.

        %2 = tensor.gather_nd %0, %1 : tensor<3x3x2xf32>, tensor<2x2xi64> -> tensor<2x2xf32>

    Refused: tuples longer than data has dims, batch dims that differ.
    """

    name = "tensor.gather_nd"
    batch_dims = prop_def(Int, default_value=ZERO)


class Scatter(Indexing):
    """An op that writes `updates` into a copy of `data` at `indices`."""

    data = operand_def(AnyTensor)
    indices = operand_def(AnyTensor)
    updates = operand_def(AnyTensor)
    reduction = prop_def(StringAttr, default_value=NONE)
    result = result_def(AnyTensor)
    assembly_format = (
        "$data `,` $indices `,` $updates attr-dict `:` type($data) `,` type($indices) `,` type($updates)"
        " `->` type($result)"
    )


@irdl_op_definition
class ScatterElementsOp(Scatter):
    """`data` with the update at c written at c with coordinate `axis` replaced by the index at c. `reduction` "add",
    "mul", "min" or "max" combines with what is there; with "none" the last of equal positions stays.

        %3 = tensor.scatter_elements %0, %1, %2 {axis = 1 : i64}
             : tensor<2x9xf32>, tensor<2x3xi64>, tensor<2x3xf32> -> tensor<2x9xf32>

    Refused: shapes of indices and updates that differ, indices larger than data on a dim other than `axis`.
    """

    name = "tensor.scatter_elements"
    axis = prop_def(Int, default_value=ZERO)


@irdl_op_definition
class ScatterNdOp(Scatter):
    """`data` with each part of `updates` written at the coordinate tuple in the last dim of `indices`. `reduction`
    "add", "mul", "min" or "max" combines with what is there; with "none" the last of equal positions stays.

        %3 = tensor.scatter_nd %0, %1, %2
             : tensor<4x5xf32>, tensor<3x1xi64>, tensor<3x5xf32> -> tensor<4x5xf32>

    Refused: updates whose shape is not indices' leading dims and data's trailing dims.
    """

    name = "tensor.scatter_nd"


@irdl_op_definition
class IotaOp(Indexing):
    """0, 1, 2, … along `axis`, the same on every other dim.

        %0 = tensor.iota {dtype = "i64", shape = array<i64: 4>} : tensor<4xi64>

    Refused: an axis out of range, a dtype that is no number type.
    """

    name = "tensor.iota"
    shape = prop_def(Ints)
    dtype = prop_def(StringAttr)
    axis = prop_def(Int, default_value=ZERO)
    result = result_def(AnyTensor)
    assembly_format = "attr-dict `:` type($result)"


OPS = [GatherOp, GatherElementsOp, GatherNdOp, ScatterElementsOp, ScatterNdOp, IotaOp]
