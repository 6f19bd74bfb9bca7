"""Ops with a decomposition into primitives (`decompositions`), worth keeping whole: softmax, norms, attention."""

from __future__ import annotations

from xdsl.dialects.builtin import FloatAttr, IntegerAttr, f64, i1, i64
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

Float = FloatAttr.constr(f64)
Bool = IntegerAttr.constr(i1)
Int = IntegerAttr.constr(i64)
LAST = IntegerAttr(-1, 64)
EPSILON = FloatAttr(1e-5, 64)


class AlongAxisOp(TensorOp):
    """Base of the ops that normalize along one axis."""

    input = operand_def(AnyTensor)
    axis = prop_def(Int, default_value=LAST)
    result = result_def(AnyTensor)

    traits = traits_def(Pure())
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "$input attr-dict `:` type($input) `->` type($result)"


@irdl_op_definition
class SoftmaxOp(AlongAxisOp):
    """exp(x - max) / Σ exp(x - max) along `axis` (negative ones count from the back). f16 and bf16 are computed in
    f32. A row of nothing but -inf gives NaN.

        %r = tensor.softmax %x {axis = 1 : i64} : tensor<2x4xf32> -> tensor<2x4xf32>

    Refused: an axis out of range; an element type that is not a float.
    """

    name = "tensor.softmax"


@irdl_op_definition
class LogSoftmaxOp(AlongAxisOp):
    """(x - max) - log Σ exp(x - max) along `axis` (negative ones count from the back). f16 and bf16 are computed in
    f32.

        %r = tensor.log_softmax %x : tensor<2x4xf32> -> tensor<2x4xf32>

    Refused: an axis out of range; an element type that is not a float.
    """

    name = "tensor.log_softmax"


@irdl_op_definition
class LayerNormOp(TensorOp):
    """(x - mean) / √(variance + epsilon) · scale + bias over the dims from `axis` on, whose shape scale and bias have.
    f16 and bf16 are computed in f32.

        %r = tensor.layer_norm %x, %s, %b : tensor<2x4xf32>, tensor<4xf32>, tensor<4xf32> -> tensor<2x4xf32>

    Refused: an axis out of range; scale or bias of another shape or element type; an element type that is not a float.
    """

    name = "tensor.layer_norm"
    input = operand_def(AnyTensor)
    scale = operand_def(AnyTensor)
    bias = opt_operand_def(AnyTensor)
    axis = prop_def(Int, default_value=LAST)
    epsilon = prop_def(Float, default_value=EPSILON)
    result = result_def(AnyTensor)

    traits = traits_def(Pure())
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = (
        "$input `,` $scale (`,` $bias^)? attr-dict "
        "`:` type($input) `,` type($scale) (`,` type($bias)^)? `->` type($result)"
    )


@irdl_op_definition
class RmsNormOp(TensorOp):
    """x / √(mean(x²) + epsilon) · scale over the dims from `axis` on, whose shape scale has. f16 and bf16 are computed
    in f32.

        %r = tensor.rms_norm %x, %s {epsilon = 1.000000e-06 : f64} : tensor<2x4xf32>, tensor<4xf32> -> tensor<2x4xf32>

    Refused: an axis out of range; a scale of another shape or element type; an element type that is not a float.
    """

    name = "tensor.rms_norm"
    input = operand_def(AnyTensor)
    scale = operand_def(AnyTensor)
    axis = prop_def(Int, default_value=LAST)
    epsilon = prop_def(Float, default_value=EPSILON)
    result = result_def(AnyTensor)

    traits = traits_def(Pure())
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "$input `,` $scale attr-dict `:` type($input) `,` type($scale) `->` type($result)"


@irdl_op_definition
class BatchNormOp(TensorOp):
    """(x - mean) / √(variance + epsilon) · scale + bias per channel (dim 1 of the input), with the statistics given:
    the inference form. f16 and bf16 are computed in f32.

        %r = tensor.batch_norm %x, %s, %b, %m, %v
          : tensor<1x2x3xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32> -> tensor<1x2x3xf32>

    Refused: an input of less than two dims; per-channel operands that are not [C] or have another element type; an
    element type that is not a float.
    """

    name = "tensor.batch_norm"
    input = operand_def(AnyTensor)
    scale = operand_def(AnyTensor)
    bias = operand_def(AnyTensor)
    mean = operand_def(AnyTensor)
    variance = operand_def(AnyTensor)
    epsilon = prop_def(Float, default_value=EPSILON)
    result = result_def(AnyTensor)

    traits = traits_def(Pure())
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = (
        "$input `,` $scale `,` $bias `,` $mean `,` $variance attr-dict `:` type($input) `,` type($scale) `,` "
        "type($bias) `,` type($mean) `,` type($variance) `->` type($result)"
    )


@irdl_op_definition
class GroupNormOp(TensorOp):
    """(x - mean) / √(variance + epsilon) · scale + bias, with the statistics of each sample's `groups` equal groups of
    channels (dim 1 of the input) over all spatial dims, and scale and bias per channel. f16 and bf16 are computed in
    f32. With as many groups as channels it is instance norm.

        %r = tensor.group_norm %x, %s, %b {groups = 2 : i64}
          : tensor<1x4x2xf32>, tensor<4xf32>, tensor<4xf32> -> tensor<1x4x2xf32>

    Refused: an input of less than two dims; groups that do not divide the channels; scale or bias that is not [C] or
    has another element type; an element type that is not a float.
    """

    name = "tensor.group_norm"
    input = operand_def(AnyTensor)
    scale = operand_def(AnyTensor)
    bias = operand_def(AnyTensor)
    groups = prop_def(Int)
    epsilon = prop_def(Float, default_value=EPSILON)
    result = result_def(AnyTensor)

    traits = traits_def(Pure())
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = (
        "$input `,` $scale `,` $bias attr-dict `:` type($input) `,` type($scale) `,` type($bias) `->` type($result)"
    )


@irdl_op_definition
class AttentionOp(TensorOp):
    """softmax(query · keyᵀ · scale + mask) · value over query [… T, d], key [… S, d], value [… S, e], giving [… T, e];
    leading dims broadcast. f16 and bf16 are computed in f32.

    `scale` is 1/√d when left out. The mask broadcasts to [… T, S] and is added, or, when i1, keeps where true. With
    `causal`, query i sees the keys up to i only (aligned at the start). A query that sees no key gives NaN.

        %r = tensor.attention %q, %k, %v : tensor<2x3xf32>, tensor<4x3xf32>, tensor<4x2xf32> -> tensor<2x2xf32>

    Refused: operands of less than two dims; d of query and key or S of key and value that differ; leading dims or a
    mask that do not broadcast; different element types or no floats.
    """

    name = "tensor.attention"
    query = operand_def(AnyTensor)
    key = operand_def(AnyTensor)
    value = operand_def(AnyTensor)
    mask = opt_operand_def(AnyTensor)
    scale = opt_prop_def(Float)
    causal = prop_def(Bool, default_value=IntegerAttr.from_bool(False))
    result = result_def(AnyTensor)

    traits = traits_def(Pure())
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = (
        "$query `,` $key `,` $value (`,` $mask^)? attr-dict "
        "`:` type($query) `,` type($key) `,` type($value) (`,` type($mask)^)? `->` type($result)"
    )


OPS = (
    SoftmaxOp,
    LogSoftmaxOp,
    LayerNormOp,
    RmsNormOp,
    BatchNormOp,
    GroupNormOp,
    AttentionOp,
)
