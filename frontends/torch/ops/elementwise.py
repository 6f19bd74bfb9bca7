"""Arithmetic, functions, comparisons, logic, casts and selection."""

from __future__ import annotations

from headrace.dialects.support import dtypes
from headrace.frontends.building import Refused, Value
from headrace.frontends.torch.node import Node
from headrace.frontends.torch.ops import converts

BINARY = {"mul": "mul", "maximum": "max", "minimum": "min", "atan2": "atan2"}
FLOAT_UNARY = {
    "exp": "exp",
    "log": "log",
    "sqrt": "sqrt",
    "rsqrt": "rsqrt",
    "reciprocal": "reciprocal",
    "erf": "erf",
    "tanh": "tanh",
    "sigmoid": "sigmoid",
    "sin": "sin",
    "cos": "cos",
    "tan": "tan",
    "silu": "silu",
}
UNARY = {"abs": "abs", "neg": "neg", "sign": "sign", "relu": "relu", "floor": "floor", "ceil": "ceil"}
COMPARE = {"eq": "equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "ne": "not_equal"}
LOGIC = {"logical_and": "and", "logical_or": "or", "logical_xor": "xor"}
BITWISE = {"bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor"}


@converts(*BINARY)
def _binary(n: Node) -> Value:
    dtype = n.type.dtype
    return n.op(BINARY[n.stem], n.tensor("self", dtype), n.tensor("other", dtype))


@converts("add", "sub")
def _add(n: Node) -> Value:
    """With `alpha` times the second operand."""
    dtype, alpha = n.type.dtype, n.get("alpha", 1)
    other = n.tensor("other", dtype)
    if alpha != 1:
        other = n.op("mul", other, n.scalar(alpha, dtype))
    return n.op("or" if dtype == "i1" else n.stem, n.tensor("self", dtype), other)


@converts("div")
def _div(n: Node) -> Value:
    """True division of integers is one of floats; with `rounding_mode`, down or towards zero."""
    mode, dtype = n.get("rounding_mode"), n.type.dtype
    if mode is None:
        return n.op("div", n.tensor("self", dtype), n.tensor("other", dtype))
    a, b = n.tensor("self", dtype), n.tensor("other", dtype)
    if dtypes.is_float(dtype):
        if mode == "floor":
            return _floor_divide(n, a, b)
        y = n.op("div", a, b)
        return n.op("select", n.op("less", y, n.scalar(0, dtype)), n.op("ceil", y), n.op("floor", y))
    if mode == "trunc":
        return n.op("div", a, b)
    rest = n.op("mod", a, b)
    return n.op("div", n.op("sub", a, rest), b)


def _floor_divide(n: Node, a: Value, b: Value) -> Value:
    """Rounded down without losing to the rounding of the quotient, as PyTorch does it."""
    rest = n.op("mod", a, b)
    y = n.op("div", n.op("sub", a, rest), b)
    down = n.op("floor", y)
    close = n.op("greater", n.op("sub", y, down), n.scalar(0.5, a.dtype))
    return n.op("select", close, n.op("add", down, n.scalar(1, a.dtype)), down)


@converts(*FLOAT_UNARY)
def _float_unary(n: Node) -> Value:
    return n.op(FLOAT_UNARY[n.stem], n.cast(n["self"], n.type.dtype))


@converts(*UNARY)
def _unary(n: Node) -> Value:
    x = n["self"]
    if n.stem in ("floor", "ceil") and not dtypes.is_float(x.dtype):
        return x
    if n.stem == "abs" and (x.dtype.startswith("ui") or x.dtype == "i1"):
        return x
    return n.op(UNARY[n.stem], x)


@converts(*COMPARE)
def _compare(n: Node) -> Value:
    dtype = n.common("self", "other")
    return n.op(COMPARE[n.stem], n.tensor("self", dtype), n.tensor("other", dtype))


def truth(n: Node, x: Value) -> Value:
    """Whether each element is not zero."""
    return x if x.dtype == "i1" else n.op("not_equal", x, n.scalar(0, x.dtype))


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


@converts("pow")
def _pow(n: Node) -> Value:
    dtype, exponent = n.type.dtype, n.get("exponent")
    x = n.tensor("self", dtype)
    if exponent == 2:
        return n.op("mul", x, x)
    if exponent == 0.5 and dtypes.is_float(dtype):
        return n.op("sqrt", x)
    if exponent == -0.5 and dtypes.is_float(dtype):
        return n.op("rsqrt", x)
    if exponent == 1:
        return x
    return n.op("pow", x, n.tensor("exponent", dtype))


@converts("gelu")
def _gelu(n: Node) -> Value:
    return n.op("gelu", n["self"], approximate=n.get("approximate", "none"))


@converts("clamp")
def _clamp(n: Node) -> Value:
    y, dtype = n.cast(n["self"], n.type.dtype), n.type.dtype
    if n.has("min"):
        y = n.op("max", y, n.tensor("min", dtype))
    if n.has("max"):
        y = n.op("min", y, n.tensor("max", dtype))
    return y


@converts("where.self")
def _where(n: Node) -> Value:
    dtype = n.type.dtype
    return n.op("select", truth(n, n["condition"]), n.tensor("self", dtype), n.tensor("other", dtype))


@converts("_to_copy", "clone", "alias", "detach", "contiguous", "lift_fresh_copy")
def _same(n: Node) -> Value:
    x, dtype = n["self"], n.type.dtype
    if dtype == "i1" and x.dtype != "i1":
        return truth(n, x)
    if n.has("device") and "cpu" not in str(n.get("device")):
        raise Refused(f"it moves a tensor to device {n.get('device')}", "keep the program on one device")
    return n.cast(x, dtype)
