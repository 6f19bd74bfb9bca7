"""The elementwise ops: one result element from one element of each operand, broadcast as in NumPy."""

from __future__ import annotations

from xdsl.dialects.builtin import FloatAttr, IntegerAttr, StringAttr
from xdsl.irdl import (
    ParsePropInAttrDict,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.traits import Pure

from headrace.dialects.tensor.base import AnyTensor, TensorOp


class BinaryOp(TensorOp):
    """Base of the ops on two operands of one element type whose shapes broadcast (sizes equal or 1, aligned at the last
    dim)."""

    lhs = operand_def(AnyTensor)
    rhs = operand_def(AnyTensor)
    result = result_def(AnyTensor)

    traits = traits_def(Pure())
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "$lhs `,` $rhs attr-dict `:` type($lhs) `,` type($rhs) `->` type($result)"


class UnaryOp(TensorOp):
    """Base of the ops on one operand; the result has its shape."""

    input = operand_def(AnyTensor)
    result = result_def(AnyTensor)

    traits = traits_def(Pure())
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "$input attr-dict `:` type($input) `->` type($result)"


@irdl_op_definition
class AddOp(BinaryOp):
    """lhs + rhs; integers wrap.

    Error: element types differ or are i1; shapes do not broadcast.

    >>> %r = tensor.add %a, %b : tensor<2x4xf32>, tensor<4xf32> -> tensor<2x4xf32>
    """

    name = "tensor.add"


@irdl_op_definition
class SubOp(BinaryOp):
    """lhs - rhs; integers wrap.

    Error: element types differ or are i1; shapes do not broadcast.

    >>> %r = tensor.sub %a, %b : tensor<2x4xf32>, tensor<4xf32> -> tensor<2x4xf32>
    """

    name = "tensor.sub"


@irdl_op_definition
class MulOp(BinaryOp):
    """lhs · rhs; integers wrap.

    Error: element types differ or are i1; shapes do not broadcast.

    >>> %r = tensor.mul %a, %b : tensor<2x4xf32>, tensor<4xf32> -> tensor<2x4xf32>
    """

    name = "tensor.mul"


@irdl_op_definition
class DivOp(BinaryOp):
    """lhs / rhs. Integers truncate toward zero, as in ONNX and C, and give 0 for a zero divisor.

    Error: element types differ or are i1; shapes do not broadcast.

    >>> %r = tensor.div %a, %b : tensor<2x4xf32>, tensor<4xf32> -> tensor<2x4xf32>
    """

    name = "tensor.div"


@irdl_op_definition
class PowOp(BinaryOp):
    """lhs to the power rhs. Integers wrap; a negative exponent truncates the inverse toward zero.

    Error: element types differ or are i1; shapes do not broadcast.

    >>> %r = tensor.pow %a, %b : tensor<2x4xf32>, tensor<4xf32> -> tensor<2x4xf32>
    """

    name = "tensor.pow"


@irdl_op_definition
class MaxOp(BinaryOp):
    """The larger of both; NaN when either is NaN.

    Error: element types differ or are i1; shapes do not broadcast.

    >>> %r = tensor.max %a, %b : tensor<2x4xf32>, tensor<4xf32> -> tensor<2x4xf32>
    """

    name = "tensor.max"


@irdl_op_definition
class MinOp(BinaryOp):
    """The smaller of both; NaN when either is NaN.

    Error: element types differ or are i1; shapes do not broadcast.

    >>> %r = tensor.min %a, %b : tensor<2x4xf32>, tensor<4xf32> -> tensor<2x4xf32>
    """

    name = "tensor.min"


@irdl_op_definition
class ModOp(BinaryOp):
    """The remainder of lhs / rhs, with the sign of rhs, or with the sign of lhs when `fmod`. A zero divisor gives 0 for
    integers and NaN for floats.

    Error: element types differ or are i1; shapes do not broadcast.

    >>> %r = tensor.mod %a, %b {fmod = true} : tensor<4xi32>, tensor<4xi32> -> tensor<4xi32>
    """

    name = "tensor.mod"
    fmod = prop_def(IntegerAttr, default_value=IntegerAttr.from_bool(False))


@irdl_op_definition
class Atan2Op(BinaryOp):
    """The angle of the point (rhs, lhs) in radians, in [-π, π]. Floats only.

    Error: element types differ or are not floats; shapes do not broadcast.

    >>> %r = tensor.atan2 %a, %b : tensor<2x4xf32>, tensor<4xf32> -> tensor<2x4xf32>
    """

    name = "tensor.atan2"


@irdl_op_definition
class AndOp(BinaryOp):
    """Bitwise and, logical on i1. Integers and i1 only.

    Error: element types differ or are floats; shapes do not broadcast.

    >>> %r = tensor.and %a, %b : tensor<2x4xi1>, tensor<4xi1> -> tensor<2x4xi1>
    """

    name = "tensor.and"


@irdl_op_definition
class OrOp(BinaryOp):
    """Bitwise or, logical on i1. Integers and i1 only.

    Error: element types differ or are floats; shapes do not broadcast.

    >>> %r = tensor.or %a, %b : tensor<2x4xi1>, tensor<4xi1> -> tensor<2x4xi1>
    """

    name = "tensor.or"


@irdl_op_definition
class XorOp(BinaryOp):
    """Bitwise exclusive or, logical on i1. Integers and i1 only.

    Error: element types differ or are floats; shapes do not broadcast.

    >>> %r = tensor.xor %a, %b : tensor<2x4xi1>, tensor<4xi1> -> tensor<2x4xi1>
    """

    name = "tensor.xor"


@irdl_op_definition
class EqualOp(BinaryOp):
    """Whether lhs = rhs; false when either is NaN. Any element type. The result is i1.

    Error: element types differ; shapes do not broadcast.

    >>> %r = tensor.equal %a, %b : tensor<2x4xf32>, tensor<4xf32> -> tensor<2x4xi1>
    """

    name = "tensor.equal"


@irdl_op_definition
class NotEqualOp(BinaryOp):
    """Whether lhs ≠ rhs; true when either is NaN. Any element type. The result is i1.

    Error: element types differ; shapes do not broadcast.

    >>> %r = tensor.not_equal %a, %b : tensor<2x4xf32>, tensor<4xf32> -> tensor<2x4xi1>
    """

    name = "tensor.not_equal"


@irdl_op_definition
class LessOp(BinaryOp):
    """Whether lhs < rhs; false when either is NaN. The result is i1.

    Error: element types differ or are i1; shapes do not broadcast.

    >>> %r = tensor.less %a, %b : tensor<2x4xf32>, tensor<4xf32> -> tensor<2x4xi1>
    """

    name = "tensor.less"


@irdl_op_definition
class LessEqualOp(BinaryOp):
    """Whether lhs ≤ rhs; false when either is NaN. The result is i1.

    Error: element types differ or are i1; shapes do not broadcast.

    >>> %r = tensor.less_equal %a, %b : tensor<2x4xf32>, tensor<4xf32> -> tensor<2x4xi1>
    """

    name = "tensor.less_equal"


@irdl_op_definition
class GreaterOp(BinaryOp):
    """Whether lhs > rhs; false when either is NaN. The result is i1.

    Error: element types differ or are i1; shapes do not broadcast.

    >>> %r = tensor.greater %a, %b : tensor<2x4xf32>, tensor<4xf32> -> tensor<2x4xi1>
    """

    name = "tensor.greater"


@irdl_op_definition
class GreaterEqualOp(BinaryOp):
    """Whether lhs ≥ rhs; false when either is NaN. The result is i1.

    Error: element types differ or are i1; shapes do not broadcast.

    >>> %r = tensor.greater_equal %a, %b : tensor<2x4xf32>, tensor<4xf32> -> tensor<2x4xi1>
    """

    name = "tensor.greater_equal"


@irdl_op_definition
class NegOp(UnaryOp):
    """-x; integers wrap. Signed numbers only.

    Error: the element type is unsigned or i1.

    >>> %r = tensor.neg %x : tensor<2x4xf32> -> tensor<2x4xf32>
    """

    name = "tensor.neg"


@irdl_op_definition
class AbsOp(UnaryOp):
    """The magnitude of x; the lowest integer stays as it is. Signed numbers only.

    Error: the element type is unsigned or i1.

    >>> %r = tensor.abs %x : tensor<2x4xf32> -> tensor<2x4xf32>
    """

    name = "tensor.abs"


@irdl_op_definition
class SignOp(UnaryOp):
    """-1, 0 or 1 by the sign of x; NaN stays. Signed numbers only.

    Error: the element type is unsigned or i1.

    >>> %r = tensor.sign %x : tensor<2x4xf32> -> tensor<2x4xf32>
    """

    name = "tensor.sign"


@irdl_op_definition
class ExpOp(UnaryOp):
    """e to the power x.

    Error: the element type is not a float.

    >>> %r = tensor.exp %x : tensor<2x4xf32> -> tensor<2x4xf32>
    """

    name = "tensor.exp"


@irdl_op_definition
class LogOp(UnaryOp):
    """The natural logarithm; -inf at 0, NaN below.

    Error: the element type is not a float.

    >>> %r = tensor.log %x : tensor<2x4xf32> -> tensor<2x4xf32>
    """

    name = "tensor.log"


@irdl_op_definition
class SqrtOp(UnaryOp):
    """The square root; NaN below 0.

    Error: the element type is not a float.

    >>> %r = tensor.sqrt %x : tensor<2x4xf32> -> tensor<2x4xf32>
    """

    name = "tensor.sqrt"


@irdl_op_definition
class RsqrtOp(UnaryOp):
    """1 / √x; inf at 0, NaN below.

    Error: the element type is not a float.

    >>> %r = tensor.rsqrt %x : tensor<2x4xf32> -> tensor<2x4xf32>
    """

    name = "tensor.rsqrt"


@irdl_op_definition
class ReciprocalOp(UnaryOp):
    """1 / x; inf at 0.

    Error: the element type is not a float.

    >>> %r = tensor.reciprocal %x : tensor<2x4xf32> -> tensor<2x4xf32>
    """

    name = "tensor.reciprocal"


@irdl_op_definition
class ErfOp(UnaryOp):
    """The error function.

    Error: the element type is not a float.

    >>> %r = tensor.erf %x : tensor<2x4xf32> -> tensor<2x4xf32>
    """

    name = "tensor.erf"


@irdl_op_definition
class TanhOp(UnaryOp):
    """The hyperbolic tangent.

    Error: the element type is not a float.

    >>> %r = tensor.tanh %x : tensor<2x4xf32> -> tensor<2x4xf32>
    """

    name = "tensor.tanh"


@irdl_op_definition
class SigmoidOp(UnaryOp):
    """1 / (1 + exp(-x)).

    Error: the element type is not a float.

    >>> %r = tensor.sigmoid %x : tensor<2x4xf32> -> tensor<2x4xf32>
    """

    name = "tensor.sigmoid"


@irdl_op_definition
class SinOp(UnaryOp):
    """The sine of x radians.

    Error: the element type is not a float.

    >>> %r = tensor.sin %x : tensor<2x4xf32> -> tensor<2x4xf32>
    """

    name = "tensor.sin"


@irdl_op_definition
class CosOp(UnaryOp):
    """The cosine of x radians.

    Error: the element type is not a float.

    >>> %r = tensor.cos %x : tensor<2x4xf32> -> tensor<2x4xf32>
    """

    name = "tensor.cos"


@irdl_op_definition
class TanOp(UnaryOp):
    """The tangent of x radians.

    Error: the element type is not a float.

    >>> %r = tensor.tan %x : tensor<2x4xf32> -> tensor<2x4xf32>
    """

    name = "tensor.tan"


@irdl_op_definition
class FloorOp(UnaryOp):
    """The largest integer not above x.

    Error: the element type is not a float.

    >>> %r = tensor.floor %x : tensor<2x4xf32> -> tensor<2x4xf32>
    """

    name = "tensor.floor"


@irdl_op_definition
class CeilOp(UnaryOp):
    """The smallest integer not below x.

    Error: the element type is not a float.

    >>> %r = tensor.ceil %x : tensor<2x4xf32> -> tensor<2x4xf32>
    """

    name = "tensor.ceil"


@irdl_op_definition
class RoundOp(UnaryOp):
    """The nearest integer, halves to even.

    Error: the element type is not a float.

    >>> %r = tensor.round %x : tensor<2x4xf32> -> tensor<2x4xf32>
    """

    name = "tensor.round"


@irdl_op_definition
class ReluOp(UnaryOp):
    """max(x, 0); NaN stays. Any number type.

    Error: the element type is i1.

    >>> %r = tensor.relu %x : tensor<2x4xf32> -> tensor<2x4xf32>
    """

    name = "tensor.relu"


@irdl_op_definition
class SiluOp(UnaryOp):
    """x · sigmoid(x).

    Error: the element type is not a float.

    >>> %r = tensor.silu %x : tensor<2x4xf32> -> tensor<2x4xf32>
    """

    name = "tensor.silu"


@irdl_op_definition
class SoftplusOp(UnaryOp):
    """log(1 + exp(x)), without overflow.

    Error: the element type is not a float.

    >>> %r = tensor.softplus %x : tensor<2x4xf32> -> tensor<2x4xf32>
    """

    name = "tensor.softplus"


@irdl_op_definition
class NotOp(UnaryOp):
    """Bitwise complement, logical on i1.

    Error: the element type is a float.

    >>> %r = tensor.not %x : tensor<4xi1> -> tensor<4xi1>
    """

    name = "tensor.not"


@irdl_op_definition
class IsNanOp(UnaryOp):
    """Whether x is not a number. The result is i1.

    Error: the element type is not a float.

    >>> %r = tensor.is_nan %x : tensor<4xf32> -> tensor<4xi1>
    """

    name = "tensor.is_nan"


@irdl_op_definition
class IsInfOp(UnaryOp):
    """Whether x is +inf or -inf. The result is i1.

    Error: the element type is not a float.

    >>> %r = tensor.is_inf %x : tensor<4xf32> -> tensor<4xi1>
    """

    name = "tensor.is_inf"


@irdl_op_definition
class LeakyReluOp(UnaryOp):
    """x where x ≥ 0, alpha · x elsewhere.

    Error: the element type is not a float.

    >>> %r = tensor.leaky_relu %x {alpha = 2.000000e-01 : f64} : tensor<4xf32> -> tensor<4xf32>
    """

    name = "tensor.leaky_relu"
    alpha = prop_def(FloatAttr, default_value=FloatAttr(0.01, 64))


@irdl_op_definition
class EluOp(UnaryOp):
    """x where x > 0, alpha · (exp(x) - 1) elsewhere.

    Error: the element type is not a float.

    >>> %r = tensor.elu %x {alpha = 5.000000e-01 : f64} : tensor<4xf32> -> tensor<4xf32>
    """

    name = "tensor.elu"
    alpha = prop_def(FloatAttr, default_value=FloatAttr(1.0, 64))


@irdl_op_definition
class ClipOp(UnaryOp):
    """x limited to [min, max]; a bound that is left out does not limit. NaN stays. Bounds round to the element type.

    Error: the element type is i1; a bound on integers is not an integer of their range; min is above max.

    >>> %r = tensor.clip %x {min = 0.000000e+00 : f64, max = 6.000000e+00 : f64} : tensor<4xf32> -> tensor<4xf32>
    """

    name = "tensor.clip"
    min = opt_prop_def(FloatAttr | IntegerAttr)
    max = opt_prop_def(FloatAttr | IntegerAttr)


@irdl_op_definition
class GeluOp(UnaryOp):
    """x · Φ(x), Φ being the normal distribution: ½x(1 + erf(x/√2)), or with `approximate = "tanh"`
    ½x(1 + tanh(√(2/π)(x + 0.044715x³))).

    Error: the element type is not a float; approximate is neither "none" nor "tanh".

    >>> %r = tensor.gelu %x {approximate = "tanh"} : tensor<4xf32> -> tensor<4xf32>
    """

    name = "tensor.gelu"
    approximate = prop_def(StringAttr, default_value=StringAttr("none"))


@irdl_op_definition
class HardSigmoidOp(UnaryOp):
    """alpha · x + beta limited to [0, 1].

    Error: the element type is not a float.

    >>> %r = tensor.hard_sigmoid %x {alpha = 2.500000e-01 : f64} : tensor<4xf32> -> tensor<4xf32>
    """

    name = "tensor.hard_sigmoid"
    alpha = prop_def(FloatAttr, default_value=FloatAttr(0.2, 64))
    beta = prop_def(FloatAttr, default_value=FloatAttr(0.5, 64))


@irdl_op_definition
class CastOp(UnaryOp):
    """x in the element type `to`. Floats round to nearest even; floats to integers truncate toward zero, and what lies
    outside the integer's range is unspecified; integers to narrower integers wrap; anything to i1 is x ≠ 0.

    Error: `to` is no element type of Headrace.

    >>> %r = tensor.cast %x {to = "bf16"} : tensor<4xf32> -> tensor<4xbf16>
    """

    name = "tensor.cast"
    to = prop_def(StringAttr)


@irdl_op_definition
class SelectOp(TensorOp):
    """on_true where the condition holds, on_false elsewhere; all three broadcast.

    Error: the condition is not i1; on_true and on_false have different element types; shapes do not broadcast.

    >>> %r = tensor.select %c, %a, %b : tensor<4x1xi1>, tensor<4x4xf32>, tensor<f32> -> tensor<4x4xf32>
    """

    name = "tensor.select"
    condition = operand_def(AnyTensor)
    on_true = operand_def(AnyTensor)
    on_false = operand_def(AnyTensor)
    result = result_def(AnyTensor)

    traits = traits_def(Pure())
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = (
        "$condition `,` $on_true `,` $on_false attr-dict "
        "`:` type($condition) `,` type($on_true) `,` type($on_false) `->` type($result)"
    )


OPS = (
    AddOp,
    SubOp,
    MulOp,
    DivOp,
    PowOp,
    MaxOp,
    MinOp,
    ModOp,
    Atan2Op,
    AndOp,
    OrOp,
    XorOp,
    EqualOp,
    NotEqualOp,
    LessOp,
    LessEqualOp,
    GreaterOp,
    GreaterEqualOp,
    NegOp,
    AbsOp,
    SignOp,
    ExpOp,
    LogOp,
    SqrtOp,
    RsqrtOp,
    ReciprocalOp,
    ErfOp,
    TanhOp,
    SigmoidOp,
    SinOp,
    CosOp,
    TanOp,
    FloorOp,
    CeilOp,
    RoundOp,
    ReluOp,
    SiluOp,
    SoftplusOp,
    NotOp,
    IsNanOp,
    IsInfOp,
    LeakyReluOp,
    EluOp,
    ClipOp,
    GeluOp,
    HardSigmoidOp,
    CastOp,
    SelectOp,
)
