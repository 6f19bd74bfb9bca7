"""Random words: a counter-based generator. Same key and counter, same words; who draws keeps count of what is used."""

from __future__ import annotations

from xdsl.irdl import ParsePropInAttrDict, irdl_op_definition, operand_def, result_def, traits_def
from xdsl.traits import Pure

from headrace.dialects.tensor.base import AnyTensor, TensorOp


@irdl_op_definition
class PhiloxOp(TensorOp):
    """Random words by Philox 4x32-10: the four 32-bit words of block counter + rows + columns, in the last dim of the
    result.

    The state is the counter, a number of 128 bits with its lower half first that wraps, and behind it the key. Rows and
    columns broadcast to each other, so that the places of a large result are two small operands.

        %r = tensor.philox %state, %rows, %columns
          : tensor<3xui64>, tensor<3x1xui64>, tensor<2xui64> -> tensor<3x2x4xui32>

    Refused: element types other than ui64; a state that is not [3]; rows and columns that do not broadcast.
    """

    name = "tensor.philox"
    state = operand_def(AnyTensor)
    rows = operand_def(AnyTensor)
    columns = operand_def(AnyTensor)
    result = result_def(AnyTensor)

    traits = traits_def(Pure())
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = (
        "$state `,` $rows `,` $columns attr-dict `:` type($state) `,` type($rows) `,` type($columns) `->` type($result)"
    )


OPS = [PhiloxOp]
