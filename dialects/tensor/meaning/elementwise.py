"""NumPy meaning of the elementwise ops.

Floats: f32 stays f32 and f64 stays f64; f16 and bf16 are computed in f32 and rounded once. NaN goes through every op
but the comparisons and `is_nan`. Integers wrap; their division truncates toward zero, as ONNX and C say.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from headrace.dialects.support import dtypes
from headrace.dialects.tensor.meaning import Array, Attrs, means, special
from headrace.dialects.tensor.meaning.special import NARROW, is_floating, narrow, wide

_QUIET: dict[str, Any] = {"all": "ignore"}


def _unary(name: str, f: Callable[[Array], Array]) -> None:
    @means(name)
    def meaning(attrs: Attrs, x: Array) -> Array:
        with np.errstate(**_QUIET):
            return narrow(f(wide(x)), x.dtype)


def _binary(name: str, f: Callable[[Array, Array], Array]) -> None:
    @means(name)
    def meaning(attrs: Attrs, a: Array, b: Array) -> Array:
        with np.errstate(**_QUIET):
            return narrow(f(wide(a), wide(b)), a.dtype)


def _compare(name: str, f: Callable[[Array, Array], Array]) -> None:
    @means(name)
    def meaning(attrs: Attrs, a: Array, b: Array) -> Array:
        return f(wide(a), wide(b))


def _divide(a: Array, b: Array) -> Array:
    if is_floating(a.dtype):
        return np.divide(a, b)
    quotient = np.floor_divide(a, b)
    if a.dtype.kind == "u":
        return quotient
    inexact = np.not_equal(quotient * b, a) & (b != 0)
    return quotient + (inexact & ((a < 0) != (b < 0)))


def _power(a: Array, b: Array) -> Array:
    if is_floating(a.dtype) or a.dtype.kind == "u":
        return np.power(a, b)
    a, b = np.broadcast_arrays(a, b)
    result = np.power(a, np.maximum(b, 0))
    one, minus = np.ones((), a.dtype), np.full((), -1, a.dtype)
    inverse = np.where(a == 1, one, np.where(a == -1, np.where(b % 2 == 0, one, minus), np.zeros((), a.dtype)))
    return np.where(b < 0, inverse, result)


_binary("tensor.add", np.add)
_binary("tensor.sub", np.subtract)
_binary("tensor.mul", np.multiply)
_binary("tensor.div", _divide)
_binary("tensor.pow", _power)
_binary("tensor.max", np.maximum)
_binary("tensor.min", np.minimum)
_binary("tensor.atan2", np.arctan2)
_binary("tensor.and", np.bitwise_and)
_binary("tensor.or", np.bitwise_or)
_binary("tensor.xor", np.bitwise_xor)
_compare("tensor.equal", np.equal)
_compare("tensor.not_equal", np.not_equal)
_compare("tensor.less", np.less)
_compare("tensor.less_equal", np.less_equal)
_compare("tensor.greater", np.greater)
_compare("tensor.greater_equal", np.greater_equal)


@means("tensor.mod")
def mod(attrs: Attrs, a: Array, b: Array) -> Array:
    """Remainder with the sign of the divisor, or of the dividend with `fmod`."""
    with np.errstate(**_QUIET):
        return narrow((np.fmod if attrs["fmod"] else np.mod)(wide(a), wide(b)), a.dtype)


def _sigmoid(x: Array) -> Array:
    return np.reciprocal(np.exp(-x) + np.ones((), x.dtype))


_unary("tensor.neg", np.negative)
_unary("tensor.abs", np.abs)
_unary("tensor.exp", np.exp)
_unary("tensor.log", np.log)
_unary("tensor.sqrt", np.sqrt)
_unary("tensor.rsqrt", lambda x: np.reciprocal(np.sqrt(x)))
_unary("tensor.reciprocal", np.reciprocal)
_unary("tensor.erf", special.erf)
_unary("tensor.tanh", np.tanh)
_unary("tensor.sigmoid", _sigmoid)
_unary("tensor.sin", np.sin)
_unary("tensor.cos", np.cos)
_unary("tensor.tan", np.tan)
_unary("tensor.floor", np.floor)
_unary("tensor.ceil", np.ceil)
_unary("tensor.round", np.rint)
_unary("tensor.sign", np.sign)
_unary("tensor.not", np.invert)
_unary("tensor.relu", lambda x: np.maximum(x, np.zeros((), x.dtype)))
_unary("tensor.silu", lambda x: x * _sigmoid(x))
_unary("tensor.softplus", lambda x: np.maximum(x, np.zeros((), x.dtype)) + np.log1p(np.exp(-np.abs(x))))


@means("tensor.is_nan")
def is_nan(attrs: Attrs, x: Array) -> Array:
    """Where x is not a number."""
    return np.isnan(wide(x))


@means("tensor.is_inf")
def is_inf(attrs: Attrs, x: Array) -> Array:
    """Where x is +inf or -inf."""
    return np.isinf(wide(x))


@means("tensor.leaky_relu")
def leaky_relu(attrs: Attrs, x: Array) -> Array:
    """x where x ≥ 0, alpha·x elsewhere."""
    w = wide(x)
    return narrow(np.where(w < 0, w * w.dtype.type(attrs["alpha"]), w), x.dtype)


@means("tensor.elu")
def elu(attrs: Attrs, x: Array) -> Array:
    """x where x > 0, alpha·(exp(x) - 1) elsewhere."""
    w = wide(x)
    with np.errstate(**_QUIET):
        return narrow(np.where(w > 0, w, np.expm1(np.minimum(w, 0)) * w.dtype.type(attrs["alpha"])), x.dtype)


@means("tensor.clip")
def clip(attrs: Attrs, x: Array) -> Array:
    """x limited to [min, max]; a bound that is absent does not limit."""
    w = wide(x)
    if (low := attrs.get("min")) is not None:
        w = np.maximum(w, w.dtype.type(low))
    if (high := attrs.get("max")) is not None:
        w = np.minimum(w, w.dtype.type(high))
    return narrow(w, x.dtype)


@means("tensor.gelu")
def gelu(attrs: Attrs, x: Array) -> Array:
    """x·Φ(x) by erf, or by the tanh approximation."""
    w = wide(x)
    c = w.dtype.type
    if attrs["approximate"] == "tanh":
        inner = c(math.sqrt(2 / math.pi)) * (w + c(0.044715) * (w * w * w))
        gate = np.tanh(inner)
    else:
        gate = special.erf(w * c(math.sqrt(0.5)))
    return narrow(c(0.5) * w * (c(1) + gate), x.dtype)


@means("tensor.hard_sigmoid")
def hard_sigmoid(attrs: Attrs, x: Array) -> Array:
    """alpha·x + beta limited to [0, 1]."""
    w = wide(x)
    c = w.dtype.type
    return narrow(np.minimum(np.maximum(w * c(attrs["alpha"]) + c(attrs["beta"]), c(0)), c(1)), x.dtype)


@means("tensor.select")
def select(attrs: Attrs, condition: Array, on_true: Array, on_false: Array) -> Array:
    """on_true where the condition holds, on_false elsewhere."""
    return np.where(condition, on_true, on_false)


@means("tensor.cast")
def cast(attrs: Attrs, x: Array) -> Array:
    """Another element type: floats round to nearest even, floats to integers truncate, anything to i1 is x ≠ 0."""
    to = dtypes.to_numpy(attrs["to"])
    if to == np.bool_ and x.dtype in NARROW:
        x = wide(x)
    with np.errstate(**_QUIET):
        return x.astype(to)
