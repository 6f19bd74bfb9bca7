"""Elementwise ops: each pass writes into the output or into scratch of a tile's size."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from headrace.dialects.tensor.meaning.special import NARROW
from headrace.runtime.kernels import blas
from headrace.runtime.kernels.calls import Call, Step, binds, coalesce, is_float, round_to, same_view, scalar, tiles
from headrace.runtime.kernels.scratch import Array

LOG2_E = math.log2(math.e)

GELU = (3.61123719e-09, -2.66893014e-07, 7.9382221e-06, -1.1048034e-04, -6.62599105e-05, 7.26685669e-02, 1.59576843)
"""log(Φ(x) / Φ(-x)) / x as a polynomial in x², highest power first, positive everywhere: x·Φ(x) = x / (1 +
exp(-x·P(x²))) has an absolute error of at most 6e-7 in f32 (7e-8 by the fit, the rest by rounding)."""
ERF = (1.4185315e-07, -5.66849242e-06, 8.76374345e-05, -6.19784956e-04, -1.91830441e-04, 1.02769056e-01, 1.12837927)
"""atanh(erf(x)) / x as a polynomial in x²: erf(x) = tanh(x·P(x²)) has an error of at most 1.8e-7 absolute, 2.7e-7
relative."""
TANH_GELU = (-2 * math.sqrt(2 / math.pi) * 0.044715, -2 * math.sqrt(2 / math.pi))


def clip_ufunc() -> Callable[..., Any]:
    """NumPy's clip as a ufunc (x, low, high, out); three times faster than maximum with a scalar. It has no public
    name."""
    try:
        return import_module("numpy._core.umath").clip
    except (ImportError, AttributeError):
        return _clip_slowly


def _clip_slowly(x: Array, low: Array, high: Array, out: Array) -> None:
    np.clip(x, low, high, out=out)


clip = clip_ufunc()


def maximum(a: Array, b: Array, out: Array) -> None:
    """np.maximum, which deprecates a positional output."""
    np.maximum(a, b, out=out)


def minimum(a: Array, b: Array, out: Array) -> None:
    """np.minimum, which deprecates a positional output."""
    np.minimum(a, b, out=out)


def limits(dtype: np.dtype[Any]) -> tuple[Array, Array]:
    """The lowest and the highest value of a dtype, infinities for floats."""
    if dtype.kind == "f":
        return scalar(-math.inf, dtype), scalar(math.inf, dtype)
    if dtype.kind == "b":
        return scalar(False, dtype), scalar(True, dtype)
    return scalar(int(np.iinfo(dtype).min), dtype), scalar(int(np.iinfo(dtype).max), dtype)


def exp_form(dtype: np.dtype[Any]) -> tuple[Callable[..., Any], float]:
    """The faster of exp and exp2, and the factor that its argument needs: f(x · factor) = exp(x)."""
    if dtype == np.float32 and blas.has_fast_exp2():
        return np.exp2, LOG2_E
    return np.exp, 1.0


# One pass


def _ufunc(name: str, f: Callable[..., Any], kinds: str) -> None:
    @binds(name)
    def bind(call: Call) -> list[Step] | None:
        if any(x.dtype.kind not in kinds for x in call.inputs) or any(
            x.dtype != call.inputs[0].dtype for x in call.inputs
        ):
            return None
        inputs, (out,) = coalesce(call.inputs, call.outputs)
        return [(f, (*inputs, out))]


for _name, _f in {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "atan2": np.arctan2,
}.items():
    _ufunc(f"tensor.{_name}", _f, "fiu" if _name != "atan2" else "f")
for _name, _f in {
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
}.items():
    _ufunc(f"tensor.{_name}", _f, "fiub")
for _name, _f in {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert}.items():
    _ufunc(f"tensor.{_name}", _f, "iub")
for _name, _f in {"abs": np.absolute, "sign": np.sign, "neg": np.negative}.items():
    _ufunc(f"tensor.{_name}", _f, "fiu")
for _name, _f in {
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "tanh": np.tanh,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "is_nan": np.isnan,
    "is_inf": np.isinf,
    "div": np.divide,
    "reciprocal": np.reciprocal,
}.items():
    _ufunc(f"tensor.{_name}", _f, "f")


@binds("tensor.mod")
def mod(call: Call) -> list[Step] | None:
    """Remainder of floats."""
    if not is_float(*call.inputs):
        return None
    inputs, (out,) = coalesce(call.inputs, call.outputs)
    return [(np.fmod if call.attrs["fmod"] else np.mod, (*inputs, out))]


def _extreme(name: str, f: Callable[..., Any], lower: bool) -> None:
    @binds(name)
    def bind(call: Call) -> list[Step] | None:
        (a, b), (out,) = coalesce(call.inputs, call.outputs)
        if a.ndim == 0 and out.ndim:
            a, b = b, a
        if b.ndim == 0 and a.dtype.kind in "fiu":
            low, high = limits(a.dtype)
            return [(clip, (a, b, high, out) if lower else (a, low, b, out))]
        return [(f, (a, b, out))]


_extreme("tensor.max", maximum, True)
_extreme("tensor.min", minimum, False)


@binds("tensor.relu")
def relu(call: Call) -> list[Step] | None:
    """Clip at zero."""
    (x,), (out,) = coalesce(call.inputs, call.outputs)
    return [(clip, (x, scalar(0, x.dtype), limits(x.dtype)[1], out))]


@binds("tensor.clip")
def bind_clip(call: Call) -> list[Step] | None:
    """Both bounds in one pass."""
    (x,), (out,) = coalesce(call.inputs, call.outputs)
    low, high = limits(x.dtype)
    if (given := call.attrs.get("min")) is not None:
        low = scalar(given if x.dtype.kind == "f" else int(given), x.dtype)
    if (given := call.attrs.get("max")) is not None:
        high = scalar(given if x.dtype.kind == "f" else int(given), x.dtype)
    if low > high:
        return None
    return [(clip, (x, low, high, out))]


@binds("tensor.cast", any_dtype=True)
def cast(call: Call) -> list[Step] | None:
    """A converting copy."""
    (x,), (out,) = coalesce(call.inputs, call.outputs)
    if out.dtype == np.bool_:
        return None if x.dtype in NARROW else [(np.not_equal, (x, scalar(0, x.dtype), out))]
    return [(round_to, (out, x))]


def _select(condition: Array, a: Array, b: Array, out: Array) -> None:
    np.copyto(out, b)
    np.copyto(out, a, where=condition)


def _keep_where(condition: Array, a: Array, out: Array) -> None:
    np.copyto(out, a, where=condition)


@binds("tensor.select", any_dtype=True)
def select(call: Call) -> list[Step] | None:
    """Copies under the condition."""
    (condition, a, b), (out,) = coalesce(call.inputs, call.outputs)
    if same_view(b, out):
        return [(_keep_where, (condition, a, out))]
    if np.may_share_memory(a, out) or np.may_share_memory(condition, out):
        return None
    return [(_select, (condition, a, b, out))]


def _cube(x: Array, o: Array, t: Array) -> list[Step]:
    return [(np.square, (x, t)), (np.multiply, (t, x, o))]


@binds("tensor.pow")
def power(call: Call) -> list[Step] | None:
    """Products for small constant exponents."""
    if not is_float(*call.inputs):
        return None
    (x, y), (out,) = coalesce(call.inputs, call.outputs)
    if y.ndim == 0 and 1 in call.constants:
        exponent = float(y)
        if exponent == 2:
            return [(np.square, (x, out))]
        if exponent == 1:
            return [] if same_view(x, out) else [(np.copyto, (out, x))]
        if exponent == 0.5:
            return [(np.sqrt, (x, out))]
        if exponent == -1:
            return [(np.divide, (scalar(1, x.dtype), x, out))]
        if exponent == 3:
            return _tiled([x, out], _cube, call)
    return [(np.power, (x, y, out))]


# Several passes


def _tiled(arrays: Sequence[Array], steps: Callable[..., list[Step]], call: Call, scratch: int = 1) -> list[Step]:
    """`steps(*tile, *temporaries)` for every tile of the arrays, the last of which is the output."""
    found: list[Step] = []
    for tile in tiles(arrays):
        mark = call.scratch.mark()
        out = tile[-1]
        found += steps(*tile, *(call.scratch.take(out.shape, out.dtype) for _ in range(scratch)))
        call.scratch.release(mark)
    return found


def _unary(name: str, passes: Callable[..., list[Step]], scratch: int = 1) -> None:
    @binds(name)
    def bind(call: Call) -> list[Step] | None:
        if not is_float(call.inputs[0]):
            return None
        (x,), (out,) = coalesce(call.inputs, call.outputs)
        return _tiled([x, out], passes, call, scratch)


def _rsqrt(x: Array, o: Array) -> list[Step]:
    return [(np.sqrt, (x, o)), (np.divide, (scalar(1, x.dtype), o, o))]


def _one_plus_exp_minus(x: Array, t: Array) -> list[Step]:
    """t = 1 + exp(-x)."""
    exp, factor = exp_form(x.dtype)
    negated: Step = (np.negative, (x, t)) if factor == 1 else (np.multiply, (x, scalar(-factor, x.dtype), t))
    return [negated, (exp, (t, t)), (np.add, (t, scalar(1, x.dtype), t))]


def _sigmoid(x: Array, o: Array) -> list[Step]:
    return [*_one_plus_exp_minus(x, o), (np.divide, (scalar(1, x.dtype), o, o))]


def _silu(x: Array, o: Array, t: Array) -> list[Step]:
    return [*_one_plus_exp_minus(x, t), (np.divide, (x, t, o))]


def _softplus(x: Array, o: Array, t: Array) -> list[Step]:
    low = scalar(0, x.dtype)
    return [
        (np.absolute, (x, t)),
        (np.negative, (t, t)),
        (np.exp, (t, t)),
        (np.log1p, (t, t)),
        (clip, (x, low, limits(x.dtype)[1], o)),
        (np.add, (o, t, o)),
    ]


_unary("tensor.rsqrt", _rsqrt, 0)
_unary("tensor.sigmoid", _sigmoid, 0)
_unary("tensor.silu", _silu)
_unary("tensor.softplus", _softplus)


def polynomial(t: Array, coefficients: Sequence[float], u: Array) -> list[Step]:
    """u = the polynomial at t, highest power first."""
    constants = [scalar(c, t.dtype) for c in coefficients]
    steps: list[Step] = [(np.multiply, (t, constants[0], u))]
    for c in constants[1:-1]:
        steps += [(np.add, (u, c, u)), (np.multiply, (u, t, u))]
    return [*steps, (np.add, (u, constants[-1], u))]


@binds("tensor.erf")
def erf(call: Call) -> list[Step] | None:
    """tanh of an odd polynomial."""
    if call.inputs[0].dtype != np.float32:
        return None

    def passes(x: Array, o: Array, t: Array, u: Array) -> list[Step]:
        return [(np.square, (x, t)), *polynomial(t, ERF, u), (np.multiply, (u, x, u)), (np.tanh, (u, o))]

    (x,), (out,) = coalesce(call.inputs, call.outputs)
    return _tiled([x, out], passes, call, 2)


@binds("tensor.gelu")
def gelu(call: Call) -> list[Step] | None:
    """x over one plus an exponential, which may overflow to infinity on purpose."""
    if call.inputs[0].dtype != np.float32:
        return None
    exp, factor = exp_form(call.inputs[0].dtype)
    one = scalar(1, call.inputs[0].dtype)
    tanh = call.attrs["approximate"] == "tanh"
    coefficients = [c * factor for c in TANH_GELU] if tanh else [-c * factor for c in GELU]

    def passes(x: Array, o: Array, t: Array, u: Array) -> list[Step]:
        steps: list[Step] = [(np.square, (x, t)), *polynomial(t, coefficients, u)]
        steps += [(np.multiply, (u, x, u)), (exp, (u, u)), (np.add, (u, one, u))]
        return [*steps, (np.divide, (x, u, o))]

    (x,), (out,) = coalesce(call.inputs, call.outputs)
    return _tiled([x, out], passes, call, 2)


@binds("tensor.leaky_relu")
def leaky_relu(call: Call) -> list[Step] | None:
    """The larger (alpha ≤ 1) or smaller of x and alpha·x."""
    alpha = float(call.attrs["alpha"])
    if not is_float(call.inputs[0]) or alpha == 0:
        return None
    pick = maximum if alpha <= 1 else minimum

    def passes(x: Array, o: Array, t: Array) -> list[Step]:
        return [(np.multiply, (x, scalar(alpha, x.dtype), t)), (pick, (x, t, o))]

    (x,), (out,) = coalesce(call.inputs, call.outputs)
    return _tiled([x, out], passes, call)


@binds("tensor.elu")
def elu(call: Call) -> list[Step] | None:
    """max(x, 0) + alpha·(exp(min(x, 0)) - 1): one of the terms is zero."""
    if not is_float(call.inputs[0]):
        return None
    alpha = float(call.attrs["alpha"])

    def passes(x: Array, o: Array, t: Array) -> list[Step]:
        low, high = limits(x.dtype)
        zero = scalar(0, x.dtype)
        steps: list[Step] = [(clip, (x, low, zero, t)), (np.expm1, (t, t))]
        if alpha != 1:
            steps.append((np.multiply, (t, scalar(alpha, x.dtype), t)))
        return [*steps, (clip, (x, zero, high, o)), (np.add, (o, t, o))]

    (x,), (out,) = coalesce(call.inputs, call.outputs)
    return _tiled([x, out], passes, call)


@binds("tensor.hard_sigmoid")
def hard_sigmoid(call: Call) -> list[Step] | None:
    """alpha·x + beta limited to [0, 1]."""
    if not is_float(call.inputs[0]):
        return None
    (x,), (out,) = coalesce(call.inputs, call.outputs)
    alpha, beta = scalar(call.attrs["alpha"], x.dtype), scalar(call.attrs["beta"], x.dtype)
    zero, one = scalar(0, x.dtype), scalar(1, x.dtype)
    return [(np.multiply, (x, alpha, out)), (np.add, (out, beta, out)), (clip, (out, zero, one, out))]
