"""Activations, and trigonometric ops made of others."""

from __future__ import annotations

from headrace.frontends.building import Refused, Value
from headrace.frontends.onnx.node import Node
from headrace.frontends.onnx.ops import converts

SELU_ALPHA, SELU_GAMMA = 1.67326319217681884765625, 1.05070102214813232421875
PLAIN = {"Relu": "relu", "Tanh": "tanh", "Sigmoid": "sigmoid", "Softplus": "softplus"}


@converts(*PLAIN)
def _plain(n: Node) -> Value:
    return n.op(PLAIN[n.op_type], n[0])


@converts("LeakyRelu")
def _leaky_relu(n: Node) -> Value:
    return n.op("leaky_relu", n[0], alpha=n.float("alpha", 0.01))


@converts("Elu")
def _elu(n: Node) -> Value:
    return n.op("elu", n[0], alpha=n.float("alpha", 1.0))


@converts("Selu")
def _selu(n: Node) -> Value:
    x = n.op("elu", n[0], alpha=n.float("alpha", SELU_ALPHA))
    return n.op("mul", x, n.scalar(n.float("gamma", SELU_GAMMA), x.dtype))


@converts("Celu")
def _celu(n: Node) -> Value:
    """max(0, x) + min(0, alpha · (exp(x / alpha) - 1)), which is alpha · elu(x / alpha)."""
    x, alpha = n[0], n.float("alpha", 1.0)
    if alpha <= 0:
        raise Refused(f"alpha is {alpha} but must be positive", code="bad-node")
    scale = n.scalar(alpha, x.dtype)
    return n.op("mul", n.op("elu", n.op("div", x, scale), alpha=1.0), scale)


@converts("PRelu")
def _prelu(n: Node) -> Value:
    x, slope = n[0], n[1]
    zero = n.scalar(0, x.dtype)
    return n.op("select", n.op("less", x, zero), n.op("mul", x, slope), x)


@converts("ThresholdedRelu")
def _thresholded_relu(n: Node) -> Value:
    x = n[0]
    above = n.op("greater", x, n.scalar(n.float("alpha", 1.0), x.dtype))
    return n.op("select", above, x, n.scalar(0, x.dtype))


@converts("Shrink")
def _shrink(n: Node) -> Value:
    x, bias, lambd = n[0], n.float("bias", 0.0), n.float("lambd", 0.5)
    low, high = n.scalar(-lambd, x.dtype), n.scalar(lambd, x.dtype)
    offset, zero = n.scalar(bias, x.dtype), n.scalar(0, x.dtype)
    above = n.op("select", n.op("greater", x, high), n.op("sub", x, offset), zero)
    return n.op("select", n.op("less", x, low), n.op("add", x, offset), above)


@converts("Softsign")
def _softsign(n: Node) -> Value:
    x = n[0]
    return n.op("div", x, n.op("add", n.op("abs", x), n.scalar(1, x.dtype)))


@converts("HardSigmoid")
def _hard_sigmoid(n: Node) -> Value:
    return n.op("hard_sigmoid", n[0], alpha=n.float("alpha", 0.2), beta=n.float("beta", 0.5))


@converts("HardSwish")
def _hard_swish(n: Node) -> Value:
    return n.op("mul", n[0], n.op("hard_sigmoid", n[0], alpha=1 / 6, beta=0.5))


@converts("Mish")
def _mish(n: Node) -> Value:
    return n.op("mul", n[0], n.op("tanh", n.op("softplus", n[0])))


@converts("Swish")
def _swish(n: Node) -> Value:
    x, alpha = n[0], n.float("alpha", 1.0)
    if alpha == 1:
        return n.op("silu", x)
    return n.op("mul", x, n.op("sigmoid", n.op("mul", x, n.scalar(alpha, x.dtype))))


@converts("SwiGLU")
def _swiglu(n: Node) -> Value:
    return n.op("mul", _swish(n), n[1])


@converts("Gelu")
def _gelu(n: Node) -> Value:
    return n.op("gelu", n[0], approximate=n.string("approximate", "none"))


# What has no op of its own


@converts("Atan")
def _atan(n: Node) -> Value:
    return n.op("atan2", n[0], n.scalar(1, n[0].dtype))


def _other_side(n: Node, x: Value) -> Value:
    """√(1 - x²), as √((1 - x)(1 + x)), which stays exact near ±1."""
    one = n.scalar(1, x.dtype)
    return n.op("sqrt", n.op("mul", n.op("sub", one, x), n.op("add", one, x)))


@converts("Asin")
def _asin(n: Node) -> Value:
    return n.op("atan2", n[0], _other_side(n, n[0]))


@converts("Acos")
def _acos(n: Node) -> Value:
    return n.op("atan2", _other_side(n, n[0]), n[0])


@converts("Sinh", "Cosh")
def _hyperbolic(n: Node) -> Value:
    x = n[0]
    up, down = n.op("exp", x), n.op("exp", n.op("neg", x))
    both = n.op("sub" if n.op_type == "Sinh" else "add", up, down)
    return n.op("mul", both, n.scalar(0.5, x.dtype))


@converts("Asinh")
def _asinh(n: Node) -> Value:
    """sign(x) · log(|x| + √(x² + 1)): by magnitude, so that negative operands do not cancel."""
    x = n[0]
    size = n.op("abs", x)
    root = n.op("sqrt", n.op("add", n.op("mul", x, x), n.scalar(1, x.dtype)))
    return n.op("mul", n.op("sign", x), n.op("log", n.op("add", size, root)))


@converts("Acosh")
def _acosh(n: Node) -> Value:
    x = n[0]
    one = n.scalar(1, x.dtype)
    root = n.op("sqrt", n.op("mul", n.op("sub", x, one), n.op("add", x, one)))
    return n.op("log", n.op("add", x, root))


@converts("Atanh")
def _atanh(n: Node) -> Value:
    x = n[0]
    one = n.scalar(1, x.dtype)
    ratio = n.op("div", n.op("add", one, x), n.op("sub", one, x))
    return n.op("mul", n.op("log", ratio), n.scalar(0.5, x.dtype))
