"""Functions of one float: exponentials, logarithms, trigonometry and activations.

What `tensor` has no op for is built in a form that is accurate over the whole range: near zero, where the textbook form
cancels, and for large arguments, where it overflows.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from headrace.dialects.support import dtypes
from headrace.frontends.building import Refused, Value
from headrace.frontends.torch.node import Node
from headrace.frontends.torch.ops import converts
from headrace.frontends.torch.ops.elementwise import NARROW

OPS = {
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
"""Functions that `tensor` has."""

Formula = Callable[[Node, Value], Value]


@converts(*OPS)
def _function(n: Node) -> Value:
    return n.op(OPS[n.stem], n.cast(n["self"], n.type.dtype))


def widened(formula: Formula) -> Callable[[Node], Value]:
    """The conversion that computes a formula of `self` in the float type of the result; f16 and bf16 in f32, rounded
    once."""

    def convert(n: Node) -> Value:
        dtype = n.type.dtype
        x = n.cast(n.cast(n["self"], dtype), "f32" if dtype in NARROW else dtype)
        return n.cast(formula(n, x), dtype)

    return convert


# Exponentials and logarithms


def expm1(n: Node, x: Value) -> Value:
    """exp(x) - 1 = tanh(x/2) · (exp(x) + 1), which does not cancel."""
    return n.op("mul", n.op("tanh", n.op("mul", x, 0.5)), n.op("add", n.op("exp", x), 1.0))


def log1p(n: Node, x: Value) -> Value:
    """log(y) · x / (y - 1) where y is 1 + x rounded: the rounding errors of both factors cancel. An x that y loses is
    the result itself; one that loses the 1 takes log(x)."""
    y = n.op("add", x, 1.0)
    apart, log = n.op("sub", y, 1.0), n.op("log", y)
    far = n.op("select", n.op("equal", apart, x), log, n.op("mul", log, n.op("div", x, apart)))
    return n.op("select", n.op("equal", apart, 0.0), x, far)


def sinh(n: Node, x: Value) -> Value:
    """tanh(x) · cosh(x)."""
    return n.op("mul", n.op("tanh", x), cosh(n, x))


def cosh(n: Node, x: Value) -> Value:
    """exp(x)/2 + exp(-x)/2, each as the square of a half: the result overflows, not its terms."""
    half = n.op("mul", x, 0.5)
    up, down = n.op("exp", half), n.op("exp", n.op("neg", half))
    return n.op("add", *(n.op("mul", n.op("mul", part, 0.5), part) for part in (up, down)))


def _is_large(n: Node, x: Value) -> Value:
    """Whether x² + 1 is x² in the element type."""
    return n.op("greater", x, 2.0**28 if x.dtype == "f64" else 2.0**14)


def _log_of_twice(n: Node, x: Value) -> Value:
    return n.op("add", n.op("log", x), math.log(2))


def _odd(n: Node, x: Value, positive: Value) -> Value:
    """The value of an odd function at x from that at |x|."""
    return n.op("select", n.op("less", x, 0.0), n.op("neg", positive), positive)


def asinh(n: Node, x: Value) -> Value:
    """log1p(a + a² / (1 + √(a² + 1))) of a = |x|, and log(2a) where a² + 1 is a²."""
    a = n.op("abs", x)
    square = n.op("mul", a, a)
    root = n.op("sqrt", n.op("add", square, 1.0))
    small = log1p(n, n.op("add", a, n.op("div", square, n.op("add", root, 1.0))))
    return _odd(n, x, n.op("select", _is_large(n, a), _log_of_twice(n, a), small))


def acosh(n: Node, x: Value) -> Value:
    """log1p(t + √t · √(t + 2)) of t = x - 1, and log(2x) where x² - 1 is x²."""
    t = n.op("sub", x, 1.0)
    roots = n.op("mul", n.op("sqrt", t), n.op("sqrt", n.op("add", t, 2.0)))
    return n.op("select", _is_large(n, x), _log_of_twice(n, x), log1p(n, n.op("add", t, roots)))


def atanh(n: Node, x: Value) -> Value:
    """½ log1p(2a / (1 - a)) of a = |x|."""
    a = n.op("abs", x)
    ratio = n.op("div", n.op("mul", a, 2.0), n.op("sub", n.scalar(1, a.dtype), a))
    return _odd(n, x, n.op("mul", log1p(n, ratio), 0.5))


def log2(n: Node, x: Value) -> Value:
    """log(x) / log(2)."""
    return n.op("mul", n.op("log", x), 1 / math.log(2))


def log10(n: Node, x: Value) -> Value:
    """log(x) / log(10)."""
    return n.op("mul", n.op("log", x), 1 / math.log(10))


def exp2(n: Node, x: Value) -> Value:
    """2 to the power x."""
    return n.op("pow", 2.0, x)


# Trigonometry


def _across(n: Node, x: Value) -> Value:
    """√(1 - x²) without cancellation; NaN beyond ±1."""
    one = n.scalar(1, x.dtype)
    return n.op("sqrt", n.op("mul", n.op("sub", one, x), n.op("add", x, one)))


def asin(n: Node, x: Value) -> Value:
    """The angle whose sine is x."""
    return n.op("atan2", x, _across(n, x))


def acos(n: Node, x: Value) -> Value:
    """The angle whose cosine is x."""
    return n.op("atan2", _across(n, x), x)


def atan(n: Node, x: Value) -> Value:
    """The angle whose tangent is x."""
    return n.op("atan2", x, 1.0)


for formula in (expm1, log1p, sinh, cosh, asinh, acosh, atanh, log2, log10, exp2, asin, acos, atan):
    converts(formula.__name__)(widened(formula))


# Activations


@converts("gelu")
def _gelu(n: Node) -> Value:
    return n.op("gelu", n["self"], approximate=n.get("approximate", "none"))


@converts("leaky_relu")
def _leaky_relu(n: Node) -> Value:
    return n.op("leaky_relu", n["self"], alpha=float(n.number("negative_slope", 0.01)))


@converts("elu")
@widened
def _elu(n: Node, x: Value) -> Value:
    """x · scale above zero, (exp(x · input_scale) - 1) · alpha · scale below."""
    alpha, scale, inner = (float(n.number(name, 1)) for name in ("alpha", "scale", "input_scale"))
    if scale == inner == 1:
        return n.op("elu", x, alpha=alpha)
    below = x if inner == 1 else n.op("mul", x, inner)
    curve = n.op("mul", expm1(n, below), alpha * scale) if inner < 0 else n.op("elu", below, alpha=alpha * scale)
    above = x if scale == 1 else n.op("mul", x, scale)
    return n.op("select", n.op("greater", x, 0.0), above, curve)


@converts("softplus")
@widened
def _softplus(n: Node, x: Value) -> Value:
    """log(1 + exp(beta · x)) / beta, and x itself where beta · x is above the threshold."""
    beta, threshold = float(n.number("beta", 1)), float(n.number("threshold", 20))
    inner = x if beta == 1 else n.op("mul", x, beta)
    y = n.op("softplus", inner)
    if beta != 1:
        y = n.op("div", y, beta)
    if threshold >= 20 and x.dtype == "f32":  # there softplus(x) is x rounded
        return y
    return n.op("select", n.op("greater", inner, threshold), x, y)


@converts("hardsigmoid")
def _hardsigmoid(n: Node) -> Value:
    return n.op("hard_sigmoid", n["self"], alpha=1 / 6, beta=0.5)


@converts("hardswish")
@widened
def _hardswish(n: Node, x: Value) -> Value:
    return n.op("mul", x, n.op("hard_sigmoid", x, alpha=1 / 6, beta=0.5))


@converts("round.decimals")
@widened
def _round_decimals(n: Node, x: Value) -> Value:
    """The nearest multiple of a power of ten; halves go to the even multiple."""
    decimals = n.number("decimals")
    if not dtypes.is_float(x.dtype):
        return x
    power = 10.0 ** abs(decimals)
    there, back = ("mul", "div") if decimals > 0 else ("div", "mul")
    return n.op(back, n.op("round", n.op(there, x, power)), power)


@converts("i0")
def _i0(n: Node) -> Value:
    """The modified Bessel function of order 0 of what is known here, such as the positions of a Kaiser window."""
    import numpy as np

    x = n.builder.array(n["self"])
    if x is None:
        raise Refused("it is computed when the model runs", "make windows of constants: torch.kaiser_window")
    return n.constant(np.i0(x.astype(np.float64)).astype(dtypes.to_numpy(n.type.dtype)))
