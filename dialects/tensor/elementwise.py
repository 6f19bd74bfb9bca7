"""The elementwise ops: one result element from one element of each operand, broadcast as in NumPy."""

from __future__ import annotations

from xdsl.dialects.builtin import FloatAttr, IntegerAttr, StringAttr, f64, i1
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

Float = FloatAttr.constr(f64)
Bool = IntegerAttr.constr(i1)


class BinaryOp(TensorOp):
    """Base of the ops on two operands of one element type whose shapes broadcast (sizes equal or 1, aligned at the
    last dim)."""

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

        %r = tensor.add %a, %b : tensor<2x4xf32>, tensor<4xf32> -> tensor<2x4xf32>

    Refused: element types differ or are i1; shapes do not broadcast.
    """

    name = "tensor.add"


@irdl_op_definition
class SubOp(BinaryOp):
    """lhs - rhs; integers wrap.

        %r = tensor.sub %a, %b : tensor<2x4xf32>, tensor<4xf32> -> tensor<2x4xf32>

    Refused: element types differ or are i1; shapes do not broadcast.
    """

    name = "tensor.sub"


@irdl_op_definition
class MulOp(BinaryOp):
    """lhs · rhs; integers wrap.

        %r = tensor.mul %a, %b : tensor<2x4xf32>, tensor<4xf32> -> tensor<2x4xf32>

    Refused: element types differ or are i1; shapes do not broadcast.
    """

    name = "tensor.mul"


@irdl_op_definition
class DivOp(BinaryOp):
    """lhs / rhs. Integers truncate toward zero, as in ONNX and C, and give 0 for a zero divisor.

        %r = tensor.div %a, %b : tensor<2x4xf32>, tensor<4xf32> -> tensor<2x4xf32>

    Refused: element types differ or are i1; shapes do not broadcast.
    """

    name = "tensor.div"


@irdl_op_definition
class PowOp(BinaryOp):
    """lhs to the power rhs. Integers wrap; a negative exponent truncates the inverse toward zero.

        %r = tensor.pow %a, %b : tensor<2x4xf32>, tensor<4xf32> -> tensor<2x4xf32>

    Refused: element types differ or are i1; shapes do not broadcast.
    """

    name = "tensor.pow"


@irdl_op_definition
class MaxOp(BinaryOp):
    """The larger of both; NaN when either is NaN.

        %r = tensor.max %a, %b : tensor<2x4xf32>, tensor<4xf32> -> tensor<2x4xf32>

    Refused: element types differ or are i1; shapes do not broadcast.
    """

    name = "tensor.max"


@irdl_op_definition
class MinOp(BinaryOp):
    """The smaller of both; NaN when either is NaN.

        %r = tensor.min %a, %b : tensor<2x4xf32>, tensor<4xf32> -> tensor<2x4xf32>

    Refused: element types differ or are i1; shapes do not broadcast.
    """

    name = "tensor.min"


@irdl_op_definition
class ModOp(BinaryOp):
    """The remainder of lhs / rhs, with the sign of rhs, or with the sign of lhs when `fmod`. A zero divisor gives 0
    for integers and NaN for floats.

        %r = tensor.mod %a, %b {fmod = true} : tensor<4xi32>, tensor<4xi32> -> tensor<4xi32>

    Refused: element types differ or are i1; shapes do not broadcast.
    """

    name = "tensor.mod"
    fmod = prop_def(Bool, default_value=IntegerAttr.from_bool(False))


@irdl_op_definition
class Atan2Op(BinaryOp):
    """The angle of the point (rhs, lhs) in radians, in [-π, π]. Floats only.

        %r = tensor.atan2 %a, %b : tensor<2x4xf32>, tensor<4xf32> -> tensor<2x4xf32>

    Refused: element types differ or are not floats; shapes do not broadcast.
    """

    name = "tensor.atan2"


@irdl_op_definition
class AndOp(BinaryOp):
    """Bitwise and, logical on i1. Integers and i1 only.

        %r = tensor.and %a, %b : tensor<2x4xi1>, tensor<4xi1> -> tensor<2x4xi1>

    Refused: element types differ or are floats; shapes do not broadcast.
    """

    name = "tensor.and"


@irdl_op_definition
class OrOp(BinaryOp):
    """Bitwise or, logical on i1. Integers and i1 only.

        %r = tensor.or %a, %b : tensor<2x4xi1>, tensor<4xi1> -> tensor<2x4xi1>

    Refused: element types differ or are floats; shapes do not broadcast.
    """

    name = "tensor.or"


@irdl_op_definition
class XorOp(BinaryOp):
    """Bitwise exclusive or, logical on i1. Integers and i1 only.

        %r = tensor.xor %a, %b : tensor<2x4xi1>, tensor<4xi1> -> tensor<2x4xi1>

    Refused: element types differ or are floats; shapes do not broadcast.
    """

    name = "tensor.xor"


@irdl_op_definition
class EqualOp(BinaryOp):
    """Whether lhs = rhs; false when either is NaN. Any element type. The result is i1.

        %r = tensor.equal %a, %b : tensor<2x4xf32>, tensor<4xf32> -> tensor<2x4xi1>

    Refused: element types differ; shapes do not broadcast.
    """

    name = "tensor.equal"


@irdl_op_definition
class NotEqualOp(BinaryOp):
    """Whether lhs ≠ rhs; true when either is NaN. Any element type. The result is i1.

        %r = tensor.not_equal %a, %b : tensor<2x4xf32>, tensor<4xf32> -> tensor<2x4xi1>

    Refused: element types differ; shapes do not broadcast.
    """

    name = "tensor.not_equal"


@irdl_op_definition
class LessOp(BinaryOp):
    """Whether lhs < rhs; false when either is NaN. The result is i1.

        %r = tensor.less %a, %b : tensor<2x4xf32>, tensor<4xf32> -> tensor<2x4xi1>

    Refused: element types differ or are i1; shapes do not broadcast.
    """

    name = "tensor.less"


@irdl_op_definition
class LessEqualOp(BinaryOp):
    """Whether lhs ≤ rhs; false when either is NaN. The result is i1.

        %r = tensor.less_equal %a, %b : tensor<2x4xf32>, tensor<4xf32> -> tensor<2x4xi1>

    Refused: element types differ or are i1; shapes do not broadcast.
    """

    name = "tensor.less_equal"


@irdl_op_definition
class GreaterOp(BinaryOp):
    """Whether lhs > rhs; false when either is NaN. The result is i1.

        %r = tensor.greater %a, %b : tensor<2x4xf32>, tensor<4xf32> -> tensor<2x4xi1>

    Refused: element types differ or are i1; shapes do not broadcast.
    """

    name = "tensor.greater"


@irdl_op_definition
class GreaterEqualOp(BinaryOp):
    """Whether lhs ≥ rhs; false when either is NaN. The result is i1.

        %r = tensor.greater_equal %a, %b : tensor<2x4xf32>, tensor<4xf32> -> tensor<2x4xi1>

    Refused: element types differ or are i1; shapes do not broadcast.
    """

    name = "tensor.greater_equal"


@irdl_op_definition
class NegOp(UnaryOp):
    """-x; integers wrap. Signed numbers only.

        %r = tensor.neg %x : tensor<2x4xf32> -> tensor<2x4xf32>

    Refused: the element type is unsigned or i1.
    """

    name = "tensor.neg"


@irdl_op_definition
class AbsOp(UnaryOp):
    """The magnitude of x; the lowest integer stays as it is. Signed numbers only.

        %r = tensor.abs %x : tensor<2x4xf32> -> tensor<2x4xf32>

    Refused: the element type is unsigned or i1.
    """

    name = "tensor.abs"


@irdl_op_definition
class SignOp(UnaryOp):
    """-1, 0 or 1 by the sign of x; NaN stays. Signed numbers only.

        %r = tensor.sign %x : tensor<2x4xf32> -> tensor<2x4xf32>

    Refused: the element type is unsigned or i1.
    """

    name = "tensor.sign"


@irdl_op_definition
class ExpOp(UnaryOp):
    """e to the power x.

        %r = tensor.exp %x : tensor<2x4xf32> -> tensor<2x4xf32>

    Refused: the element type is not a float.
    """

    name = "tensor.exp"


@irdl_op_definition
class LogOp(UnaryOp):
    """The natural logarithm; -inf at 0, NaN below.

        %r = tensor.log %x : tensor<2x4xf32> -> tensor<2x4xf32>

    Refused: the element type is not a float.
    """

    name = "tensor.log"


@irdl_op_definition
class SqrtOp(UnaryOp):
    """The square root; NaN below 0.

        %r = tensor.sqrt %x : tensor<2x4xf32> -> tensor<2x4xf32>

    Refused: the element type is not a float.
    """

    name = "tensor.sqrt"


@irdl_op_definition
class RsqrtOp(UnaryOp):
    """1 / √x; inf at 0, NaN below.

        %r = tensor.rsqrt %x : tensor<2x4xf32> -> tensor<2x4xf32>

    Refused: the element type is not a float.
    """

    name = "tensor.rsqrt"


@irdl_op_definition
class ReciprocalOp(UnaryOp):
    """1 / x; inf at 0.

        %r = tensor.reciprocal %x : tensor<2x4xf32> -> tensor<2x4xf32>

    Refused: the element type is not a float.
    """

    name = "tensor.reciprocal"


@irdl_op_definition
class ErfOp(UnaryOp):
    """The error function.

        %r = tensor.erf %x : tensor<2x4xf32> -> tensor<2x4xf32>

    Refused: the element type is not a float.
    """

    name = "tensor.erf"


@irdl_op_definition
class TanhOp(UnaryOp):
    """The hyperbolic tangent.

        %r = tensor.tanh %x : tensor<2x4xf32> -> tensor<2x4xf32>

    Refused: the element type is not a float.
    """

    name = "tensor.tanh"


@irdl_op_definition
class SigmoidOp(UnaryOp):
    """1 / (1 + exp(-x)).

        %r = tensor.sigmoid %x : tensor<2x4xf32> -> tensor<2x4xf32>

    Refused: the element type is not a float.
    """

    name = "tensor.sigmoid"


@irdl_op_definition
class SinOp(UnaryOp):
    """The sine of x radians.

        %r = tensor.sin %x : tensor<2x4xf32> -> tensor<2x4xf32>

    Refused: the element type is not a float.
    """

    name = "tensor.sin"


@irdl_op_definition
class CosOp(UnaryOp):
    """The cosine of x radians.

        %r = tensor.cos %x : tensor<2x4xf32> -> tensor<2x4xf32>

    Refused: the element type is not a float.
    """

    name = "tensor.cos"


@irdl_op_definition
class TanOp(UnaryOp):
    """The tangent of x radians.

        %r = tensor.tan %x : tensor<2x4xf32> -> tensor<2x4xf32>

    Refused: the element type is not a float.
    """

    name = "tensor.tan"


@irdl_op_definition
class FloorOp(UnaryOp):
    """The largest integer not above x.

        %r = tensor.floor %x : tensor<2x4xf32> -> tensor<2x4xf32>

    Refused: the element type is not a float.
    """

    name = "tensor.floor"


@irdl_op_definition
class CeilOp(UnaryOp):
    """The smallest integer not below x.

        %r = tensor.ceil %x : tensor<2x4xf32> -> tensor<2x4xf32>

    Refused: the element type is not a float.
    """

    name = "tensor.ceil"


@irdl_op_definition
class RoundOp(UnaryOp):
    """The nearest integer, halves to even.

        %r = tensor.round %x : tensor<2x4xf32> -> tensor<2x4xf32>

    Refused: the element type is not a float.
    """

    name = "tensor.round"


@irdl_op_definition
class ReluOp(UnaryOp):
    """max(x, 0); NaN stays. Any number type.

        %r = tensor.relu %x : tensor<2x4xf32> -> tensor<2x4xf32>

    Refused: the element type is i1.
    """

    name = "tensor.relu"


@irdl_op_definition
class SiluOp(UnaryOp):
    """x · sigmoid(x).

        %r = tensor.silu %x : tensor<2x4xf32> -> tensor<2x4xf32>

    Refused: the element type is not a float.
    """

    name = "tensor.silu"


@irdl_op_definition
class SoftplusOp(UnaryOp):
    """log(1 + exp(x)), without overflow.

        %r = tensor.softplus %x : tensor<2x4xf32> -> tensor<2x4xf32>

    Refused: the element type is not a float.
    """

    name = "tensor.softplus"


@irdl_op_definition
class NotOp(UnaryOp):
    """Bitwise complement, logical on i1.

        %r = tensor.not %x : tensor<4xi1> -> tensor<4xi1>

    Refused: the element type is a float.
    """

    name = "tensor.not"


@irdl_op_definition
class IsNanOp(UnaryOp):
    """Whether x is not a number. The result is i1.

        %r = tensor.is_nan %x : tensor<4xf32> -> tensor<4xi1>

    Refused: the element type is not a float.
    """

    name = "tensor.is_nan"


@irdl_op_definition
class IsInfOp(UnaryOp):
    """Whether x is +inf or -inf. The result is i1.

        %r = tensor.is_inf %x : tensor<4xf32> -> tensor<4xi1>

    Refused: the element type is not a float.
    """

    name = "tensor.is_inf"


@irdl_op_definition
class LeakyReluOp(UnaryOp):
    """x where x ≥ 0, alpha · x elsewhere.

        %r = tensor.leaky_relu %x {alpha = 2.000000e-01 : f64} : tensor<4xf32> -> tensor<4xf32>

    Refused: the element type is not a float.
    """

    name = "tensor.leaky_relu"
    alpha = prop_def(Float, default_value=FloatAttr(0.01, 64))


@irdl_op_definition
class EluOp(UnaryOp):
    """x where x > 0, alpha · (exp(x) - 1) elsewhere.

        %r = tensor.elu %x {alpha = 5.000000e-01 : f64} : tensor<4xf32> -> tensor<4xf32>

    Refused: the element type is not a float.
    """

    name = "tensor.elu"
    alpha = prop_def(Float, default_value=FloatAttr(1.0, 64))


@irdl_op_definition
class ClipOp(UnaryOp):
    """x limited to [min, max]; a bound that is left out does not limit. NaN stays. Bounds round to the element type.

        %r = tensor.clip %x {min = 0.000000e+00 : f64, max = 6.000000e+00 : f64} : tensor<4xf32> -> tensor<4xf32>

    Refused: the element type is i1; a bound on integers is not an integer of their range; min is above max.
    """

    name = "tensor.clip"
    min = opt_prop_def(FloatAttr | IntegerAttr)
    max = opt_prop_def(FloatAttr | IntegerAttr)


@irdl_op_definition
class GeluOp(UnaryOp):
    """x · Φ(x), Φ being the normal distribution: ½x(1 + erf(x/√2)), or with `approximate = "tanh"`
    ½x(1 + tanh(√(2/π)(x + 0.044715x³))).

        %r = tensor.gelu %x {approximate = "tanh"} : tensor<4xf32> -> tensor<4xf32>

    Refused: the element type is not a float; approximate is neither "none" nor "tanh".
    """

    name = "tensor.gelu"
    approximate = prop_def(StringAttr, default_value=StringAttr("none"))


@irdl_op_definition
class HardSigmoidOp(UnaryOp):
    """alpha · x + beta limited to [0, 1].

        %r = tensor.hard_sigmoid %x {alpha = 2.500000e-01 : f64} : tensor<4xf32> -> tensor<4xf32>

    Refused: the element type is not a float.
    """

    name = "tensor.hard_sigmoid"
    alpha = prop_def(Float, default_value=FloatAttr(0.2, 64))
    beta = prop_def(Float, default_value=FloatAttr(0.5, 64))


@irdl_op_definition
class CastOp(UnaryOp):
    """x in the element type `to`. Floats round to nearest even; floats to integers truncate toward zero, and what lies
    outside the integer's range is unspecified; integers to narrower integers wrap; anything to i1 is x ≠ 0.

        %r = tensor.cast %x {to = "bf16"} : tensor<4xf32> -> tensor<4xbf16>

    Refused: `to` is no element type of Headrace.
    """

    name = "tensor.cast"
    to = prop_def(StringAttr)


@irdl_op_definition
class SelectOp(TensorOp):
    """on_true where the condition holds, on_false elsewhere; all three broadcast.

        %r = tensor.select %c, %a, %b : tensor<4x1xi1>, tensor<4x4xf32>, tensor<f32> -> tensor<4x4xf32>

    Refused: the condition is not i1; on_true and on_false have different element types; shapes do not broadcast.
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
