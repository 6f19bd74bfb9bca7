"""Arithmetic, comparisons, logic, bits, casts and selection."""

from __future__ import annotations

import math
from typing import Any

from headrace.dialects.support import dtypes
from headrace.frontends.building import Refused, Value
from headrace.frontends.torch.node import Node, is_float
from headrace.frontends.torch.ops import converts

NARROW = ("f16", "bf16")
"""Floats in which a formula of several steps is not computed: it is in f32, and rounded once."""
ARITHMETIC = {"add": "add", "sub": "sub", "mul": "mul"}
BOOLEAN = {"add": "or", "mul": "and"}
"""What arithmetic is on booleans."""
ROUND = {"floor": "floor", "ceil": "ceil", "round": "round"}
COMPARE = {"eq": "equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "ne": "not_equal"}
LOGIC = {"logical_and": "and", "logical_or": "or", "logical_xor": "xor"}
BITWISE = {"bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor"}


def truth(n: Node, x: Value) -> Value:
    """Whether each element is not zero."""
    return x if x.dtype == "i1" else n.op("not_equal", x, n.scalar(0, x.dtype))


def countable(n: Node, x: Value) -> Value:
    """A tensor that can be ordered: booleans as 0 and 1."""
    return n.cast(x, "i32" if x.dtype == "i1" else x.dtype)


# Arithmetic


def _rounds(x: Any, dtype: str) -> bool:
    """Whether an operand would lose something in a narrow float type before PyTorch lets it."""
    import numpy as np

    if isinstance(x, Value):
        return x.rank == 0 and is_float(x) and x.dtype != dtype
    return isinstance(x, float) and math.isfinite(x) and float(np.array(x).astype(dtypes.to_numpy(dtype))) != x


def _operands(n: Node) -> tuple[Value, Value]:
    """Self and other in the type of the result. A scalar that f16 or bf16 does not hold is not rounded to it when it is
    the second operand: the op is in f32."""
    dtype = n.type.dtype
    x = n.tensor("self", dtype)
    if dtype in NARROW and any(_rounds(n.get(name), dtype) for name in ("other", "alpha")):
        dtype = "f32"
    return n.cast(x, dtype), n.tensor("other", dtype)


@converts(*ARITHMETIC)
def _arithmetic(n: Node) -> Value:
    """With `alpha` times the second operand."""
    x, y = _operands(n)
    dtype, alpha = n.type.dtype, n.get("alpha", 1)
    if dtype == "i1":
        y = y if alpha else n.op("and", y, n.scalar(False, dtype))
        return n.op(BOOLEAN[n.stem], x, y)
    if alpha != 1:
        y = n.op("mul", y, n.tensor("alpha", y.dtype))
    return n.cast(n.op(ARITHMETIC[n.stem], x, y), dtype)


def _better(n: Node, name: str, x: Value, y: Value) -> Value:
    """The larger (max) or smaller (min) of both, of booleans too."""
    return n.op({"max": "or", "min": "and"}[name] if x.dtype == "i1" else name, x, y)


@converts("maximum", "minimum")
def _extreme(n: Node) -> Value:
    return _better(n, n.stem[:3], n.tensor("self", n.type.dtype), n.tensor("other", n.type.dtype))


@converts("fmax", "fmin")
def _number_extreme(n: Node) -> Value:
    """The larger or smaller of both; the other one where one is NaN."""
    x, y = n.tensor("self", n.type.dtype), n.tensor("other", n.type.dtype)
    best = _better(n, n.stem[1:], x, y)
    if not is_float(x):
        return best
    return n.op("select", n.op("is_nan", x), y, n.op("select", n.op("is_nan", y), x, best))


@converts("div")
def _div(n: Node) -> Value:
    """True division of integers is one of floats; with `rounding_mode`, down or towards zero."""
    mode, dtype = n.get("rounding_mode"), n.type.dtype
    if mode is None:
        return n.cast(n.op("div", *_operands(n)), dtype)
    if not dtypes.is_float(dtype):
        a, b = n.tensor("self", dtype), n.tensor("other", dtype)
        return n.op("div", a, b) if mode == "trunc" else floor_divide(n, a, b)
    wide = "f32" if dtype in NARROW else dtype
    a, b = n.tensor("self", wide), n.tensor("other", wide)
    return n.cast(trunc(n, n.op("div", a, b)) if mode == "trunc" else _floor_quotient(n, a, b), dtype)


def floor_divide(n: Node, a: Value, b: Value) -> Value:
    """The quotient of integers, rounded down."""
    return n.op("div", n.op("sub", a, n.op("mod", a, b)), b)


def _floor_quotient(n: Node, a: Value, b: Value) -> Value:
    """The quotient of floats rounded down, without losing to its own rounding."""
    rest = n.op("mod", a, b, fmod=True)
    y = n.op("div", n.op("sub", a, rest), b)
    apart = n.op("xor", n.op("less", rest, 0.0), n.op("less", b, 0.0))
    below = n.op("and", n.op("not_equal", rest, 0.0), apart)
    y = n.op("select", below, n.op("sub", y, 1.0), y)
    down = n.op("floor", y)
    down = n.op("select", n.op("greater", n.op("sub", y, down), 0.5), n.op("add", down, 1.0), down)
    return n.op("select", n.op("equal", b, 0.0), n.op("div", a, b), down)


@converts("fmod", "remainder")
def _remainder(n: Node) -> Value:
    """With the sign of the dividend (fmod) or of the divisor (remainder)."""
    dtype = n.type.dtype
    return n.op("mod", n.tensor("self", dtype), n.tensor("other", dtype), fmod=n.stem == "fmod")


@converts("pow")
def _pow(n: Node) -> Value:
    dtype, exponent = n.type.dtype, n.get("exponent")
    x = n.tensor("self", dtype)
    if not isinstance(exponent, Value):
        if exponent == 0:
            return n.filled(1, n.type)
        if exponent == 1:
            return x
        if exponent == 2:
            return n.op("mul", x, x)
        if dtypes.is_float(dtype) and abs(exponent) == 0.5:
            return n.op("sqrt" if exponent > 0 else "rsqrt", x)
    return n.op("pow", x, n.tensor("exponent", dtype))


@converts("ldexp")
def _ldexp(n: Node) -> Value:
    """self · 2^other."""
    dtype = n.type.dtype
    return n.op("mul", n.tensor("self", dtype), n.op("pow", 2.0, n.tensor("other", dtype)))


@converts("atan2")
def _atan2(n: Node) -> Value:
    return n.op("atan2", n.tensor("self", n.type.dtype), n.tensor("other", n.type.dtype))


@converts("hypot")
def _hypot(n: Node) -> Value:
    dtype = n.type.dtype
    wide = "f32" if dtype in NARROW else dtype
    return n.cast(hypot(n, n.tensor("self", wide), n.tensor("other", wide)), dtype)


def hypot(n: Node, x: Value, y: Value) -> Value:
    """high · √(1 + (low / high)²), which overflows only when the result does; an infinite operand wins over NaN."""
    a, b = n.op("abs", x), n.op("abs", y)
    high, low = n.op("max", a, b), n.op("min", a, b)
    ratio = n.op("div", low, n.op("select", n.op("equal", high, 0.0), 1.0, high))
    y = n.op("mul", high, n.op("sqrt", n.op("add", n.op("mul", ratio, ratio), 1.0)))
    infinite = n.op("or", n.op("is_inf", a), n.op("is_inf", b))
    return n.op("select", infinite, n.scalar(math.inf, x.dtype), y)


# Signs and rounding


@converts("abs")
def _abs(n: Node) -> Value:
    x = n["self"]
    return x if x.dtype.startswith("ui") else n.op("abs", x)


@converts("neg")
def _neg(n: Node) -> Value:
    x = n["self"]
    return n.op("sub", n.scalar(0, x.dtype), x) if x.dtype.startswith("ui") else n.op("neg", x)


@converts("sign")
def _sign(n: Node) -> Value:
    """That of a NaN is 0."""
    x = n["self"]
    if x.dtype == "i1":
        return x
    if x.dtype.startswith("ui"):
        return n.op("min", x, n.scalar(1, x.dtype))
    sign = n.op("sign", x)
    return n.op("select", n.op("is_nan", x), n.scalar(0, x.dtype), sign) if is_float(x) else sign


@converts("relu")
def _relu(n: Node) -> Value:
    return n.op("relu", n["self"])


def _is_negative(n: Node, x: Value) -> Value:
    """Whether the sign is minus, that of -0 too; a NaN has none here."""
    below = n.op("less", x, n.scalar(0, x.dtype))
    return n.op("or", below, n.op("less", n.op("reciprocal", x), 0.0)) if is_float(x) else below


@converts("signbit")
def _signbit(n: Node) -> Value:
    x = n["self"]
    if x.dtype == "i1" or x.dtype.startswith("ui"):
        return n.filled(False, n.type)
    return _is_negative(n, x)


@converts("copysign")
def _copysign(n: Node) -> Value:
    """The magnitude of self with the sign of other."""
    dtype = n.type.dtype
    size = n.op("abs", n.tensor("self", dtype))
    return n.op("select", _is_negative(n, n.tensor("other", dtype)), n.op("neg", size), size)


@converts("angle")
def _angle(n: Node) -> Value:
    """π below zero, 0 elsewhere; NaN stays."""
    x = n.cast(n["self"], n.type.dtype)
    y = n.op("select", n.op("less", x, 0.0), n.scalar(math.pi, x.dtype), n.scalar(0, x.dtype))
    return n.op("select", n.op("is_nan", x), x, y)


@converts(*ROUND)
def _round(n: Node) -> Value:
    x = n["self"]
    return n.op(ROUND[n.stem], x) if is_float(x) else x


def trunc(n: Node, x: Value) -> Value:
    """Rounded towards zero."""
    return n.op("select", n.op("less", x, 0.0), n.op("ceil", x), n.op("floor", x))


@converts("trunc")
def _trunc(n: Node) -> Value:
    return trunc(n, n["self"]) if is_float(n["self"]) else n["self"]


@converts("clamp", "hardtanh")
def _clamp(n: Node) -> Value:
    """The upper bound wins over the lower; NaN stays, and a bound that is NaN gives NaN."""
    dtype = n.type.dtype
    x = n.tensor("self", dtype)
    low, high = (n.get(f"{end}_val" if n.stem == "hardtanh" else end) for end in ("min", "max"))
    bounds = {key: x for key, x in (("min", low), ("max", high)) if x is not None}
    numbers = [b for b in bounds.values() if isinstance(b, int | float) and not math.isnan(b)]
    if is_float(x) and len(numbers) == len(bounds) and numbers == sorted(numbers):
        return n.op("clip", x, **{key: float(b) for key, b in bounds.items()})
    for key, bound in bounds.items():
        bound = n.cast(bound, dtype) if isinstance(bound, Value) else n.scalar(bound, dtype)
        x = _better(n, "max" if key == "min" else "min", x, bound)
    return x


# Comparisons, logic, bits


@converts(*COMPARE)
def _compare(n: Node) -> Value:
    dtype = n.common("self", "other")
    if dtype == "i1" and n.stem not in ("eq", "ne"):
        dtype = "i32"
    return n.op(COMPARE[n.stem], n.tensor("self", dtype), n.tensor("other", dtype))


@converts("isnan", "isinf")
def _is(n: Node) -> Value:
    x = n["self"]
    return n.op(f"is_{n.stem[2:]}", x) if is_float(x) else n.filled(False, n.type)


@converts(*LOGIC)
def _logic(n: Node) -> Value:
    return n.op(LOGIC[n.stem], truth(n, n["self"]), truth(n, n["other"]))


@converts("logical_not")
def _not(n: Node) -> Value:
    return n.op("not", truth(n, n["self"]))


@converts(*BITWISE)
def _bitwise(n: Node) -> Value:
    dtype = n.type.dtype
    return n.op(BITWISE[n.stem], n.tensor("self", dtype), n.tensor("other", dtype))


@converts("bitwise_not")
def _bitwise_not(n: Node) -> Value:
    return n.op("not", n["self"])


@converts("bitwise_left_shift", "__lshift__")
def _left_shift(n: Node) -> Value:
    """self · 2^other; a power that the type does not hold is 0, as is one below 0."""
    dtype = n.type.dtype
    x, by = n.tensor("self", dtype), n.tensor("other", dtype)
    return n.op("mul", x, n.op("pow", n.scalar(2, dtype), by))


@converts("bitwise_right_shift", "__rshift__")
def _right_shift(n: Node) -> Value:
    """self / 2^other, rounded down; by more than the type has bits, only the sign is left."""
    dtype = n.type.dtype
    x, by = n.tensor("self", dtype), n.tensor("other", dtype)
    if dtypes.is_float(dtype):
        return n.op("div", x, n.op("pow", 2.0, by))
    signed = not dtype.startswith("ui")
    most = dtypes.to_numpy(dtype).itemsize * 8 - (2 if signed else 1)
    beyond = n.op("greater", by, n.scalar(most, dtype))
    rest = n.scalar(0, dtype)
    if signed:
        beyond = n.op("or", beyond, n.op("less", by, rest))
        rest = n.op("select", n.op("less", x, rest), n.scalar(-1, dtype), rest)
        by = n.op("max", by, n.scalar(0, dtype))
    power = n.op("pow", n.scalar(2, dtype), n.op("min", by, n.scalar(most, dtype)))
    return n.op("select", beyond, rest, floor_divide(n, x, power))


# Selection and casts


@converts("where.self")
def _where(n: Node) -> Value:
    dtype = n.type.dtype
    return n.op("select", truth(n, n["condition"]), n.tensor("self", dtype), n.tensor("other", dtype))


@converts("_to_copy", "clone", "alias", "detach", "lift_fresh_copy")
def _same(n: Node) -> Value:
    if n.has("device") and str(n.get("device")) not in ("cpu", n.device):
        raise Refused(f"it moves a tensor to device {n.get('device')}", "keep the program on one device")
    return n.cast(n["self"], n.type.dtype)


@converts("copy")
def _copy(n: Node) -> Value:
    """The elements of `src` in the type and shape of self."""
    return n.broadcast(n.cast(n["src"], n.type.dtype), n.type.shape)
