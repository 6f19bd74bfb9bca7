"""Random numbers and what drops elements at random. PyTorch's own stream is not followed: distributions are."""

from __future__ import annotations

from headrace.dialects.support import dtypes
from headrace.dialects.tensor.shapes import TT
from headrace.frontends.building import Refused, Value
from headrace.frontends.random import Generator
from headrace.frontends.torch.node import Node
from headrace.frontends.torch.ops import converts


def generator(n: Node) -> Generator:
    """The generator of the program."""
    if n.has("generator"):
        raise Refused("it draws from a generator of its own", "draw from the default one", code="bad-node")
    found = n.builder.generator
    assert found is not None
    return found


def probability(n: Node, name: str = "p") -> float:
    """An argument that is a probability."""
    p = float(n.number(name, 0.0))
    if not 0 <= p <= 1:
        raise Refused(f"{name} is {p}, not a probability", code="bad-node")
    return p


@converts("native_dropout")
def _dropout(n: Node) -> tuple[Value, Value]:
    """In inference nothing is dropped."""
    x = n["input"]
    return generator(n).dropped(n, x, 0.0 if n.get("train", True) is False else probability(n))


@converts("rand", "rand_like")
def _rand(n: Node) -> Value:
    return generator(n).uniform(n, n.type)


@converts("randn", "randn_like")
def _randn(n: Node) -> Value:
    return generator(n).normal(n, n.type)


@converts("uniform")
def _uniform(n: Node) -> Value:
    low, high = float(n.number("from", 0.0)), float(n.number("to", 1.0))
    return _affine(n, generator(n).uniform(n, n.type), high - low, low)


@converts("normal_functional", "normal")
def _normal(n: Node) -> Value:
    """Mean and deviation are numbers or tensors."""
    found = generator(n).normal(n, n.type)
    return _affine(n, found, n.get("std", 1.0), n.get("mean", 0.0))


def _affine(n: Node, x: Value, factor: Value | float, offset: Value | float) -> Value:
    """x · factor + offset in the type of x."""
    if isinstance(factor, Value) or factor != 1:
        x = n.op("mul", x, n.cast(factor, x.dtype) if isinstance(factor, Value) else float(factor))
    if isinstance(offset, Value) or offset != 0:
        x = n.op("add", x, n.cast(offset, x.dtype) if isinstance(offset, Value) else float(offset))
    return x


@converts("bernoulli")
def _bernoulli(n: Node) -> Value:
    """With one probability `p`, or with one for each element: in the tensor `p`, or in the input itself."""
    p = n.get("p") if n.has("p") else n["self"]
    if isinstance(p, Value):
        type = TT(n.type.shape, p.dtype if dtypes.is_float(p.dtype) else "f32")
        return n.cast(n.op("less", generator(n).uniform(n, type), n.cast(p, type.dtype)), n.type.dtype)
    return n.cast(generator(n).chosen(n, n.type.shape, probability(n)), n.type.dtype)


@converts("randint", "randint_like")
def _randint(n: Node) -> Value:
    return _integers(n, n.number("low", 0), n.number("high"))


@converts("random")
def _random(n: Node) -> Value:
    """Without bounds as many integers as the type tells apart."""
    low, high = n.number("from", 0), n.number("to", None)
    if high is None:
        digits = {"f64": 53, "f32": 24, "f16": 11, "bf16": 8, "i1": 1}.get(n.type.dtype)
        high = 2**digits + (digits > 1) if digits is not None else int(dtypes.highest(n.type.dtype)) + 1
    return _integers(n, low, high)


def _integers(n: Node, low: int, high: int) -> Value:
    if low >= high:
        raise Refused(f"there is no integer from {low} up to {high}", code="bad-node")
    return generator(n).integers(n, low, high, n.type)


@converts("randperm")
def _permutation(n: Node) -> Value:
    """The order that sorts random words."""
    (count,) = n.type.shape
    found = n.ops("sort", generator(n).words(n, (count,)), axis=0)[1] if count else n.filled(0, n.type)
    return n.cast(found, n.type.dtype)


@converts("exponential")
def _exponential(n: Node) -> Value:
    """-log(u) / lambd, never 0."""
    return n.cast(n.op("mul", _waits(n), 1 / float(n.number("lambd", 1.0))), n.type.dtype)


def _waits(n: Node) -> Value:
    """Exponentially distributed numbers of mean 1."""
    type = TT(n.type.shape, n.type.dtype if n.type.dtype == "f64" else "f32")
    found = n.op("neg", n.op("log", generator(n).positive(n, type)))
    return n.op("max", found, 2.0**-54 if type.dtype == "f64" else 2.0**-25)


@converts("geometric")
def _geometric(n: Node) -> Value:
    """Trials until the first success."""
    import math

    p = probability(n)
    if not 0 < p < 1:
        raise Refused(f"p is {p}, not between 0 and 1", code="bad-node")
    waits = _waits(n)
    return n.cast(n.op("ceil", n.op("mul", waits, -1 / math.log1p(-p))), n.type.dtype)


@converts("log_normal")
def _log_normal(n: Node) -> Value:
    found = generator(n).normal(n, n.type)
    return n.op("exp", _affine(n, found, n.number("std", 2.0), n.number("mean", 1.0)))


@converts("cauchy")
def _cauchy(n: Node) -> Value:
    import math

    type = TT(n.type.shape, n.type.dtype if n.type.dtype == "f64" else "f32")
    angle = n.op("mul", n.op("sub", generator(n).uniform(n, type), 0.5), math.pi)
    found = _affine(n, n.op("tan", angle), float(n.number("sigma", 1.0)), float(n.number("median", 0.0)))
    return n.cast(found, n.type.dtype)


@converts("rrelu_with_noise_functional")
def _rrelu(n: Node) -> tuple[Value, Value]:
    """Slopes below zero are random in training; the noise is what each element was multiplied by."""
    x, low, high = n["self"], float(n.number("lower", 1 / 8)), float(n.number("upper", 1 / 3))
    if not n.get("training", False):
        below = n.op("mul", x, (low + high) / 2)
        return n.op("select", n.op("less", x, 0), below, x), n["noise"]
    slopes = _affine(n, generator(n).uniform(n, x.type), high - low, low)
    noise = n.op("select", n.op("less_equal", x, 0), slopes, n.scalar(1, x.dtype))
    return n.op("mul", x, noise), noise


@converts("multinomial")
def _multinomial(n: Node) -> Value:
    """Positions as likely as the numbers there say; those that are zero are not chosen while there are others."""
    x = n["self"]
    x = x if x.dtype == "f64" else n.cast(x, "f32")
    return generator(n).choices(n, n.op("log", x), n.number("num_samples"), bool(n.get("replacement", False)))
