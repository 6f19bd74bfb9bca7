"""Elementwise ops, comparisons, logic, casts and selection."""

from __future__ import annotations

from functools import reduce

from headrace.dialects.support import dtypes
from headrace.frontends.building import Refused, Value
from headrace.frontends.onnx.node import Node
from headrace.frontends.onnx.ops import converts

BINARY = {
    "Add": "add",
    "Sub": "sub",
    "Mul": "mul",
    "Div": "div",
    "And": "and",
    "Or": "or",
    "Xor": "xor",
    "Equal": "equal",
    "Less": "less",
    "LessOrEqual": "less_equal",
    "Greater": "greater",
    "GreaterOrEqual": "greater_equal",
    "BitwiseAnd": "and",
    "BitwiseOr": "or",
    "BitwiseXor": "xor",
}
UNARY = {
    "Neg": "neg",
    "Exp": "exp",
    "Log": "log",
    "Sqrt": "sqrt",
    "Reciprocal": "reciprocal",
    "Erf": "erf",
    "Sin": "sin",
    "Cos": "cos",
    "Tan": "tan",
    "Floor": "floor",
    "Ceil": "ceil",
    "Round": "round",
    "Not": "not",
    "BitwiseNot": "not",
    "IsNaN": "is_nan",
}


@converts(*BINARY)
def _binary(n: Node) -> Value:
    return n.op(BINARY[n.op_type], n[0], n[1])


@converts(*UNARY)
def _unary(n: Node) -> Value:
    return n.op(UNARY[n.op_type], n[0])


@converts("Abs")
def _abs(n: Node) -> Value:
    return n[0] if n[0].dtype.startswith("ui") else n.op("abs", n[0])


@converts("Sign")
def _sign(n: Node) -> Value:
    x = n[0]
    return n.op("min", x, n.scalar(1, x.dtype)) if x.dtype.startswith("ui") else n.op("sign", x)


@converts("IsInf")
def _is_inf(n: Node) -> Value:
    x, positive, negative = n[0], n.flag("detect_positive", True), n.flag("detect_negative", True)
    if not dtypes.is_float(x.dtype):
        raise Refused(f"{x.type} has no infinities", code="bad-node")
    if positive and negative:
        return n.op("is_inf", x)
    if positive or negative:
        return n.op("equal", x, n.scalar(float("inf" if positive else "-inf"), x.dtype))
    return n.broadcast(n.scalar(False, "i1"), x.shape)


@converts("Pow")
def _pow(n: Node) -> Value:
    """The exponent may have another element type; the result has the base's."""
    base, exponent = n[0], n[1]
    if dtypes.is_float(exponent.dtype) and not dtypes.is_float(base.dtype):
        return n.cast(n.op("pow", n.cast(base, exponent.dtype), exponent), base.dtype)
    return n.op("pow", base, n.cast(exponent, base.dtype))


@converts("Mod")
def _mod(n: Node) -> Value:
    if not n.flag("fmod") and dtypes.is_float(n[0].dtype) and n.opset < 28:
        raise Refused("floats need fmod=1", code="bad-node")
    return n.op("mod", n[0], n[1], fmod=n.flag("fmod"))


VARIADIC = {"Max": "max", "Min": "min", "Sum": "add"}


@converts(*VARIADIC)
def _variadic(n: Node) -> Value:
    return reduce(lambda a, b: n.op(VARIADIC[n.op_type], a, b), n.operands)


@converts("Mean")
def _mean(n: Node) -> Value:
    total = reduce(lambda a, b: n.op("add", a, b), n.operands)
    return n.op("div", total, n.scalar(len(n.operands), total.dtype)) if len(n.operands) > 1 else total


@converts("Clip")
def _clip(n: Node) -> Value:
    """Bounds known while importing are attributes; others, and bounds that cross (the upper one wins), are operands."""
    x, bounds = n[0], {"min": n.get(1), "max": n.get(2)}
    known = {key: n.one(v, key) for key, v in bounds.items() if v is not None and v.known}
    given = [v for v in bounds.values() if v is not None]
    if not given:
        return x
    if len(known) == len(given) and known.get("min", float("-inf")) <= known.get("max", float("inf")):
        return n.op("clip", x, **known)
    if bounds["min"] is not None:
        x = n.op("max", x, bounds["min"])
    return n.op("min", x, bounds["max"]) if bounds["max"] is not None else x


@converts("Cast")
def _cast(n: Node) -> Value:
    return n.cast(n[0], n.dtype(n.int("to")))


@converts("CastLike")
def _cast_like(n: Node) -> Value:
    return n.cast(n[0], n[1].dtype)


@converts("Where")
def _where(n: Node) -> Value:
    return n.op("select", n[0], n[1], n[2])


@converts("Identity")
def _identity(n: Node) -> Value:
    return n[0]
