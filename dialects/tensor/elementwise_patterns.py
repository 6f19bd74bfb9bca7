"""Canonicalization patterns of elementwise and contraction ops.

Constants go to the right and become scalars where broadcasting allows it, identities and repeated idempotent ops go,
negations and powers become the op that says it. Float patterns keep NaN and infinity (of zeros the sign may change, of
a power the last bit); nothing here reassociates floats or makes a composite out of primitives.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from headrace.dialects.support import dtypes, locations
from headrace.dialects.tensor.base import attributes_of, create, tt
from headrace.dialects.tensor.canonicalization import canonicalizes, decline
from headrace.dialects.tensor.shapes import TT
from headrace.dialects.tensor.shapes.broadcasting import broadcast_shape
from headrace.dialects.tensor.shapes.contraction import accumulate_type
from headrace.dialects.tensor.shapes.elementwise import BINARY
from headrace.dialects.tensor.storage import ConstantOp, constant, filled

COMMUTATIVE = tuple(f"tensor.{name}" for name in ("add", "mul", "max", "min", "and", "or", "xor", "equal", "not_equal"))
MIRRORED = {
    "tensor.less": "greater",
    "tensor.less_equal": "greater_equal",
    "tensor.greater": "less",
    "tensor.greater_equal": "less_equal",
}
EXACT_INTEGERS = {"f64": 53, "f32": 24, "f16": 11, "bf16": 8, "f8e4m3": 4}
"""Bits of an integer's magnitude that every value of a float type holds exactly."""


def splat(value: SSAValue) -> int | float | bool | None:
    """The number that all elements of a constant are; None for anything else."""
    maker = value.owner
    return maker.value.values()[0] if isinstance(maker, ConstantOp) and maker.value.is_splat else None


def made_by(value: SSAValue, *names: str) -> Operation | None:
    """The op that makes a value, when it has one of these names (without `tensor.`)."""
    maker = value.owner
    return maker if isinstance(maker, Operation) and maker.name.removeprefix("tensor.") in names else None


def _make(name: str, operands: Sequence[SSAValue], merged: Sequence[Operation], **attrs: object) -> Operation:
    return create(f"tensor.{name}", operands, attrs, locations.fuse(op.location for op in merged))


def _become(op: Operation, value: SSAValue, rewriter: PatternRewriter) -> None:
    """Replace the op by a value, broadcast to the op's shape where it is smaller."""
    if value.type == op.results[0].type:
        rewriter.replace(op, [], [value])
    else:
        rewriter.replace(op, create("tensor.broadcast", [value], {"shape": tt(op.results[0]).shape}, op.location))


def _fill(op: Operation, value: int | float | bool, rewriter: PatternRewriter) -> None:
    """Replace the op by a constant."""
    rewriter.replace(op, filled(tt(op.results[0]), value, op.location))


def _is_float(value: SSAValue) -> bool:
    return dtypes.is_float(tt(value).dtype)


@canonicalizes(*COMMUTATIVE, *MIRRORED, of=["tensor.constant"])
class ConstantToTheRight(RewritePattern):
    """A constant is the second operand: `c + x` → `x + c`, `c < x` → `x > c`."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        lhs, rhs = op.operands
        if not made_by(lhs, "constant") or made_by(rhs, "constant"):
            return
        if op.name in MIRRORED:
            rewriter.replace(op, _make(MIRRORED[op.name], [rhs, lhs], [op]))
        else:
            op.operands = [rhs, lhs]
            rewriter.notify_op_modified(op)


@canonicalizes(*BINARY, "tensor.select", of=["tensor.broadcast", "tensor.constant"])
class NarrowOperands(RewritePattern):
    """An operand that is broadcast, or a constant of one number, comes as it was before, where the others give the
    result its shape."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        for i, value in enumerate(op.operands):
            maker = made_by(value, "broadcast", "constant")
            if maker is None:
                continue
            narrow = maker.operands[0] if maker.operands else None
            if narrow is None and (splat(value) is None or not tt(value).shape):
                continue
            others = [tt(x).shape for k, x in enumerate(op.operands) if k != i]
            shape = tt(narrow).shape if narrow is not None else ()
            if broadcast_shape([*others, shape], [""] * len(op.operands)) != tt(op.results[0]).shape:
                decline(rewriter, f"operand {i} gives the result its shape")
                continue
            new: list[Operation] = []
            if narrow is None:
                number = splat(value)
                assert number is not None
                new.append(filled(TT((), tt(value).dtype), number, maker.location))
                narrow = new[0].results[0]
            operands = [narrow if k == i else x for k, x in enumerate(op.operands)]
            new.append(create(op.name, operands, attributes_of(op), locations.fuse([maker.location, op.location])))
            rewriter.replace(op, new)
            return


# op → the constant on the right that leaves the left operand as it is
_NEUTRAL: dict[str, int] = {"add": 0, "sub": 0, "mul": 1, "div": 1, "pow": 1, "or": 0, "xor": 0}


@canonicalizes(*(f"tensor.{name}" for name in (*_NEUTRAL, "and", "max", "min")), of=["tensor.constant"])
class NeutralConstant(RewritePattern):
    """`x + 0`, `x - 0`, `x · 1`, `x / 1`, `x ** 1`, `x | 0`, `x ^ 0`, `x & -1`, `max(x, -inf)`, `min(x, inf)` are x."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        number = splat(op.operands[1])
        if number is None:
            return
        name, dtype = op.name.removeprefix("tensor."), tt(op.operands[1]).dtype
        if name == "and":
            neutral = number is True or number == _all_ones(dtype)
        elif name in ("max", "min"):
            neutral = number == (dtypes.lowest(dtype) if name == "max" else dtypes.highest(dtype))
        else:
            neutral = number == _NEUTRAL[name]
        if neutral:
            _become(op, op.operands[0], rewriter)


def _all_ones(dtype: str) -> int:
    return 2 ** dtypes.BITS[dtype] - 1 if dtype.startswith("ui") else -1


@canonicalizes("tensor.and", "tensor.or", "tensor.mul", of=["tensor.constant"])
class DecidingConstant(RewritePattern):
    """Integer `x · 0`, `x & 0` are 0, and `x | -1` is -1."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        number = splat(op.operands[1])
        dtype = tt(op.operands[1]).dtype
        if number is None:
            return
        if dtypes.is_float(dtype):
            if number == 0:
                decline(rewriter, "0 times an infinity or NaN is not 0")
            return
        decided = number is True or number == _all_ones(dtype) if op.name == "tensor.or" else number == 0
        if decided:
            _fill(op, number, rewriter)


@canonicalizes("tensor.and", "tensor.or", "tensor.max", "tensor.min")
class SameOperands(RewritePattern):
    """`x & x`, `x | x`, `max(x, x)`, `min(x, x)` are x."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if op.operands[0] is op.operands[1]:
            _become(op, op.operands[0], rewriter)


@canonicalizes("tensor.sub", "tensor.xor")
class DifferenceWithItself(RewritePattern):
    """Integer `x - x` and `x ^ x` are 0 (a float x may be infinite or NaN)."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if op.operands[0] is not op.operands[1]:
            return
        if _is_float(op.operands[0]):
            decline(rewriter, "an infinity or NaN less itself is not 0")
            return
        _fill(op, 0, rewriter)


@canonicalizes("tensor.add", "tensor.mul", "tensor.and", "tensor.or", "tensor.xor", of=["tensor.constant"])
class IntegerConstantsTogether(RewritePattern):
    """Integer `(x + a) + b` is `x + (a + b)`, and so for products and bits."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        inner, outer = made_by(op.operands[0], op.name.removeprefix("tensor.")), op.operands[1]
        if inner is None or not made_by(outer, "constant") or not made_by(inner.operands[1], "constant"):
            return
        if _is_float(outer):
            decline(rewriter, "floats are not added or multiplied in another order: that rounds otherwise")
            return
        both = create(op.name, [inner.operands[1], outer], {}, locations.fuse([inner.location, op.location]))
        name = op.name.removeprefix("tensor.")
        value = _evaluated(both)
        rewriter.replace(op, [value, _make(name, [inner.operands[0], value.results[0]], [inner, op])])


def _evaluated(op: Operation) -> ConstantOp:
    """The constant that an op on constants makes; the op itself is dropped."""
    from headrace.dialects.tensor.meaning import evaluate

    arrays = [x.owner.array() for x in op.operands if isinstance(x.owner, ConstantOp)]
    (array,) = evaluate(op.name, attributes_of(op), *arrays)
    location = op.location
    op.drop_all_references()
    return constant(array, location)


# inner → outer ops that change nothing after it
_IDEMPOTENT = {
    "abs": ("abs",),
    "sign": ("sign",),
    "relu": ("relu", "abs"),
    "floor": ("floor", "ceil", "round"),
    "ceil": ("floor", "ceil", "round"),
    "round": ("floor", "ceil", "round"),
    "sigmoid": ("relu", "abs"),
    "exp": ("relu", "abs"),
    "sqrt": ("relu", "abs"),
}
_OUTER = sorted({f"tensor.{outer}" for outers in _IDEMPOTENT.values() for outer in outers})


@canonicalizes(*_OUTER, of=[f"tensor.{name}" for name in _IDEMPOTENT])
class NothingLeftToDo(RewritePattern):
    """`relu(relu(x))` is `relu(x)`, `abs(exp(x))` is `exp(x)`, `ceil(floor(x))` is `floor(x)`, …"""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        inner = made_by(op.operands[0], *_IDEMPOTENT)
        if inner is not None and op.name.removeprefix("tensor.") in _IDEMPOTENT[inner.name.removeprefix("tensor.")]:
            _become(op, op.operands[0], rewriter)


@canonicalizes("tensor.neg", "tensor.not", of=["tensor.neg", "tensor.not"])
class Involution(RewritePattern):
    """`-(-x)` and `not(not(x))` are x."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        inner = made_by(op.operands[0], op.name.removeprefix("tensor."))
        if inner is not None:
            _become(op, inner.operands[0], rewriter)


@canonicalizes("tensor.abs", "tensor.cos", of=["tensor.neg"])
class EvenOfNegation(RewritePattern):
    """`abs(-x)` is `abs(x)`; so for the cosine."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        inner = made_by(op.operands[0], "neg")
        if inner is not None:
            rewriter.replace(op, _make(op.name.removeprefix("tensor."), inner.operands, [inner, op]))


@canonicalizes("tensor.not", of=["tensor.equal", "tensor.not_equal"])
class NegatedEquality(RewritePattern):
    """`not(a = b)` is `a ≠ b`, and the reverse."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        inner = made_by(op.operands[0], "equal", "not_equal")
        if inner is not None:
            name = "not_equal" if inner.name == "tensor.equal" else "equal"
            rewriter.replace(op, _make(name, inner.operands, [inner, op]))


@canonicalizes("tensor.add", "tensor.sub", of=["tensor.neg", "tensor.constant"])
class AddOfNegation(RewritePattern):
    """`x + (-y)` and `(-y) + x` are `x - y`; `x - (-y)` is `x + y`; `0 - x` is `-x`."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        lhs, rhs = op.operands
        adds = op.name == "tensor.add"
        if (inner := made_by(rhs, "neg")) is not None:
            rewriter.replace(op, _make("sub" if adds else "add", [lhs, inner.operands[0]], [inner, op]))
        elif adds and (inner := made_by(lhs, "neg")) is not None:
            rewriter.replace(op, _make("sub", [rhs, inner.operands[0]], [inner, op]))
        elif not adds and splat(lhs) == 0 and _is_negatable(rhs, op, rewriter):
            rewriter.replace(op, _make("neg", [rhs], [op]))


def _is_negatable(value: SSAValue, op: Operation, rewriter: PatternRewriter) -> bool:
    """Whether `op` may become the negation of a value."""
    if tt(value).dtype.startswith("ui"):
        decline(rewriter, "an unsigned number has no negation")
        return False
    return _has_type_of(value, op, rewriter)


def _has_type_of(value: SSAValue, op: Operation, rewriter: PatternRewriter) -> bool:
    """Whether a value has the type of the op's result, as an op of one operand would."""
    if value.type != op.results[0].type:
        decline(rewriter, "the constant gives the result its shape")
        return False
    return True


@canonicalizes("tensor.mul", "tensor.div", of=["tensor.constant"])
class TimesMinusOne(RewritePattern):
    """`x · -1` and `x / -1` are `-x`."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        x = op.operands[0]
        if splat(op.operands[1]) == -1 and _is_negatable(x, op, rewriter):
            rewriter.replace(op, _make("neg", [x], [op]))


@canonicalizes("tensor.div", of=["tensor.constant"])
class ExactReciprocal(RewritePattern):
    """A float `1 / x` is `reciprocal(x)`; a division by a power of two is the multiplication by its exact inverse."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        lhs, rhs = op.operands
        if not _is_float(rhs):
            return
        if splat(lhs) == 1 and _has_type_of(rhs, op, rewriter):
            rewriter.replace(op, _make("reciprocal", [rhs], [op]))
            return
        number = splat(rhs)
        if not number:
            return
        if not math.isfinite(number) or abs(math.frexp(number)[0]) != 0.5 or not 2**-10 <= abs(number) <= 2**10:
            decline(rewriter, f"{number:g} has no exact inverse (it is no power of two from 2^-10 to 2^10)")
        else:
            inverse = filled(tt(rhs), 1 / number, op.location)
            rewriter.replace(op, [inverse, _make("mul", [lhs, inverse.results[0]], [op])])


@canonicalizes("tensor.reciprocal", of=["tensor.sqrt"])
class ReciprocalOfRoot(RewritePattern):
    """`1 / √x` is `rsqrt(x)`."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        inner = made_by(op.operands[0], "sqrt")
        if inner is not None:
            rewriter.replace(op, _make("rsqrt", inner.operands, [inner, op]))


@canonicalizes("tensor.pow", of=["tensor.constant"])
class SmallPower(RewritePattern):
    """`x ** 2` is `x · x`, `x ** 3` is `x · x · x` (but for f16 and bf16, where that would round twice), and a float `x
    ** -1` is `reciprocal(x)`."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        x, exponent = op.operands[0], splat(op.operands[1])
        if exponent is None or not _has_type_of(x, op, rewriter):
            return
        if exponent == 2:
            rewriter.replace(op, _make("mul", [x, x], [op]))
        elif exponent == 3 and tt(x).dtype in ("f16", "bf16"):
            decline(rewriter, f"x · x · x of {tt(x).dtype} rounds twice, a power once")
        elif exponent == 3:
            square = _make("mul", [x, x], [op])
            rewriter.replace(op, [square, _make("mul", [square.results[0], x], [op])])
        elif exponent == -1 and _is_float(x):
            rewriter.replace(op, _make("reciprocal", [x], [op]))
        else:
            decline(rewriter, f"the exponent is {exponent:g}, not 2, 3 or (for floats) -1")


@canonicalizes("tensor.max", of=["tensor.constant"])
class MaxWithZero(RewritePattern):
    """`max(x, 0)` is `relu(x)`."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if splat(op.operands[1]) == 0 and _has_type_of(op.operands[0], op, rewriter):
            rewriter.replace(op, _make("relu", [op.operands[0]], [op]))


@canonicalizes("tensor.clip", "tensor.relu")
class ClipOfClip(RewritePattern):
    """A clip or relu of a clip or relu is one clip; a clip without bounds is its operand; with 0 below only, a relu."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        low, high = _bounds(op)
        if op.name == "tensor.clip" and low is None and high is None:
            _become(op, op.operands[0], rewriter)
            return
        if op.name == "tensor.clip" and low == 0 and high is None:
            rewriter.replace(op, _make("relu", [op.operands[0]], [op]))
            return
        inner = made_by(op.operands[0], "clip", "relu")
        if inner is None or (inner.name == op.name == "tensor.relu"):
            return
        inner_low, inner_high = _bounds(inner)
        merged: dict[str, object] = {}
        bound = _limited(inner_low, low, high) if inner_low is not None else low
        if bound is not None:
            merged["min"] = bound
        bound = _limited(inner_high, low, high) if inner_high is not None else high
        if bound is not None:
            merged["max"] = bound
        rewriter.replace(op, _make("clip", inner.operands, [inner, op], **merged))


def _bounds(op: Operation) -> tuple[float | None, float | None]:
    if op.name == "tensor.relu":
        return (0.0 if _is_float(op.operands[0]) else 0), None
    attrs = attributes_of(op)
    return attrs.get("min"), attrs.get("max")


def _limited(value: float, low: float | None, high: float | None) -> float:
    value = value if low is None else max(value, low)
    return value if high is None else min(value, high)


@canonicalizes("tensor.select")
class DecidedSelect(RewritePattern):
    """A select whose condition is constant, or whose choices are one value, is that value; `select(not c, a, b)` is
    `select(c, b, a)`."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        condition, on_true, on_false = op.operands
        decided = splat(condition)
        if decided is not None or on_true is on_false:
            _become(op, on_true if decided or on_true is on_false else on_false, rewriter)
            return
        inner = made_by(condition, "not")
        if inner is not None:
            rewriter.replace(op, _make("select", [inner.operands[0], on_false, on_true], [inner, op]))


def holds(wide: str, narrow: str) -> bool:
    """Whether every value of element type `narrow` is one of `wide`."""
    if wide == narrow or narrow == "i1":
        return True
    if wide == "i1":
        return False
    bits_wide, bits = dtypes.BITS[wide], dtypes.BITS[narrow]
    if dtypes.is_float(narrow):
        return dtypes.is_float(wide) and bits_wide > bits
    magnitude = bits if narrow.startswith("ui") else bits - 1
    if dtypes.is_float(wide):
        return magnitude <= EXACT_INTEGERS[wide]
    if wide.startswith("ui"):
        return narrow.startswith("ui") and bits_wide >= bits
    return magnitude <= bits_wide - 1


@canonicalizes("tensor.cast")
class CastOfCast(RewritePattern):
    """A cast to the operand's own type is the operand; a cast of a cast that kept every value is one cast."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        x = op.operands[0]
        if x.type == op.results[0].type:
            _become(op, x, rewriter)
            return
        inner = made_by(x, "cast")
        if inner is None:
            return
        if not holds(tt(x).dtype, tt(inner.operands[0]).dtype):
            decline(rewriter, f"the cast before it rounds {tt(inner.operands[0]).dtype} to {tt(x).dtype}")
            return
        rewriter.replace(op, _make("cast", inner.operands, [inner, op], to=tt(op.results[0]).dtype))


@canonicalizes("tensor.matmul", "tensor.conv")
class DefaultAccumulate(RewritePattern):
    """An accumulate type that is the default is not written."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if "accumulate" not in op.properties:
            return
        default = accumulate_type({}, tt(op.operands[0]).dtype)
        if attributes_of(op)["accumulate"] != default:
            decline(rewriter, f"it accumulates in {attributes_of(op)['accumulate']}, and the default is {default}")
        else:
            del op.properties["accumulate"]
            rewriter.notify_op_modified(op)


@canonicalizes("tensor.max_pool", "tensor.avg_pool")
class PoolOfOne(RewritePattern):
    """A pool whose windows are single elements, each taken once, is its operand."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if op.operands[0].type == op.results[0].type and all(k == 1 for k in attributes_of(op)["kernel"]):
            _become(op, op.operands[0], rewriter)
