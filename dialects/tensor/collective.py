"""Ops between the sockets of a mesh. A program over several sockets is what one of them runs; these ops say what it
gets from the others.

`axes`, `sizes` and `strides` name the axes of the mesh that a group spans, major first: a socket's coordinate on axis i
is `socket // strides[i] % sizes[i]`, and sockets that agree on all other axes are one group. What is combined is
combined in the order of the sockets of a group, f16 and bf16 in f32 and rounded once, so that results depend neither on
the transport nor on the algorithm.
"""

from __future__ import annotations

from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, StringAttr, i64
from xdsl.irdl import (
    ParsePropInAttrDict,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.traits import Pure

from headrace.dialects.tensor.base import AnyTensor, TensorOp
from headrace.dialects.tensor.movement import Ints
from headrace.dialects.tensor.reduction import Int

ADD = StringAttr("add")
ONE = IntegerAttr(1, i64)


class OverGroup(TensorOp):
    """An op that is about the groups of sockets along axes of the mesh."""

    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(Pure())
    axes = prop_def(ArrayAttr[StringAttr])
    sizes = prop_def(Ints)
    strides = prop_def(Ints)
    result = result_def(AnyTensor)


class Collective(OverGroup):
    """An op on what each socket of a group has."""

    input = operand_def(AnyTensor)
    assembly_format = "$input attr-dict `:` type($input) `->` type($result)"


@irdl_op_definition
class AllReduceOp(Collective):
    """The sum (`kind` "add"), or "max", "min", "mul", of what the sockets of a group have; each gets all of it.

        %1 = tensor.all_reduce %0 {axes = ["tp"], sizes = array<i64: 8>, strides = array<i64: 1>}
          : tensor<2x3xf32> -> tensor<2x3xf32>

    Refused: another kind, i1, axes, sizes and strides that name no group.
    """

    name = "tensor.all_reduce"
    kind = prop_def(StringAttr, default_value=ADD)


@irdl_op_definition
class AllGatherOp(Collective):
    """What the sockets of a group have, one behind the other along `axis`; each gets all of it.

        %1 = tensor.all_gather %0 {axis = 1 : i64, axes = ["tp"], sizes = array<i64: 8>, strides = array<i64: 1>}
          : tensor<2x3xf32> -> tensor<2x24xf32>

    Refused: an axis out of range, axes, sizes and strides that name no group.
    """

    name = "tensor.all_gather"
    axis = prop_def(Int)


@irdl_op_definition
class ReduceScatterOp(Collective):
    """As all_reduce, but each socket of a group gets its own block along `axis`.

        %1 = tensor.reduce_scatter %0 {axis = 1 : i64, axes = ["tp"], sizes = array<i64: 8>, strides = array<i64: 1>}
          : tensor<2x24xf32> -> tensor<2x3xf32>

    Refused: a dim that the sockets do not share evenly, and what all_reduce refuses.
    """

    name = "tensor.reduce_scatter"
    axis = prop_def(Int)
    kind = prop_def(StringAttr, default_value=ADD)


@irdl_op_definition
class AllToAllOp(Collective):
    """Each socket of a group cuts what it has into blocks along `split`, one for each, and joins the blocks that it
    gets along `concat`.

        %1 = tensor.all_to_all %0
          {split = 0 : i64, concat = 1 : i64, axes = ["ep"], sizes = array<i64: 4>, strides = array<i64: 1>}
          : tensor<8x3xf32> -> tensor<2x12xf32>

    Refused: a dim that the sockets do not share evenly, axes out of range.
    """

    name = "tensor.all_to_all"
    split = prop_def(Int)
    concat = prop_def(Int)


@irdl_op_definition
class PermuteOp(Collective):
    """What the socket `by` places before in the group has; the last is before the first.

        %1 = tensor.permute %0 {axes = ["pp"], sizes = array<i64: 4>, strides = array<i64: 1>}
          : tensor<2x3xf32> -> tensor<2x3xf32>

    Refused: axes, sizes and strides that name no group.
    """

    name = "tensor.permute"
    by = prop_def(Int, default_value=ONE)


@irdl_op_definition
class SocketSliceOp(Collective):
    """A socket's own block along `axis` of what every socket of the group has alike; nothing is sent. On weights it is
    part of their recipe, so that a socket holds its block alone.

        %1 = tensor.socket_slice %0 {axis = 0 : i64, axes = ["tp"], sizes = array<i64: 8>, strides = array<i64: 1>}
          : tensor<24x3xf32> -> tensor<3x3xf32>

    Refused: a dim that the sockets do not share evenly, an axis out of range.
    """

    name = "tensor.socket_slice"
    axis = prop_def(Int)


@irdl_op_definition
class SocketIndexOp(OverGroup):
    """The place of a socket in its group.

        %0 = tensor.socket_index {axes = ["tp"], sizes = array<i64: 8>, strides = array<i64: 1>} : tensor<i32>

    Refused: axes, sizes and strides that name no group.
    """

    name = "tensor.socket_index"
    assembly_format = "attr-dict `:` type($result)"


@irdl_op_definition
class SocketChooseOp(OverGroup):
    """The operand at a socket's place in its group; nothing is sent. On weights it is part of their recipe, so that a
    socket holds its own alone.

        %2 = tensor.socket_choose %0, %1 {axes = ["pp"], sizes = array<i64: 2>, strides = array<i64: 4>}
          : tensor<2x3xf32>, tensor<2x3xf32> -> tensor<2x3xf32>

    Refused: as many operands as there are not sockets in a group, operands of different types.
    """

    name = "tensor.socket_choose"
    inputs = var_operand_def(AnyTensor)
    assembly_format = "$inputs attr-dict `:` type($inputs) `->` type($result)"


OPS = [AllReduceOp, AllGatherOp, ReduceScatterOp, AllToAllOp, PermuteOp, SocketSliceOp, SocketIndexOp, SocketChooseOp]
