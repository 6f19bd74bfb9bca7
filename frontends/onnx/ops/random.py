"""Random numbers, and Dropout in training. A node's own seed is not followed: the program has one state for all."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.dialects.support import dtypes
from headrace.dialects.tensor.shapes import TT
from headrace.frontends.building import Refused, Value
from headrace.frontends.onnx.node import Node
from headrace.frontends.onnx.ops import converts
from headrace.frontends.random import Generator


def _generator(n: Node) -> Generator:
    found = n.builder.generator
    assert found is not None
    return found


def _type(n: Node, shape: Sequence[int], dtype: str = "f32") -> TT:
    """The type of random numbers of a shape: that of the attribute, or the one given."""
    dtype = n.dtype(n.int("dtype")) if n.has("dtype") else dtype
    if not dtypes.is_float(dtype):
        raise Refused(f"random numbers of {dtype} are not supported", "draw floats and cast them")
    return TT(tuple(shape), dtype)


def _scaled(n: Node, x: Value, factor: float, offset: float) -> Value:
    x = n.op("mul", x, factor) if factor != 1 else x
    return n.op("add", x, offset) if offset != 0 else x


@converts("RandomUniform")
def _uniform(n: Node) -> Value:
    return _uniform_of(n, _type(n, n.int_list("shape")))


@converts("RandomUniformLike")
def _uniform_like(n: Node) -> Value:
    return _uniform_of(n, _type(n, n[0].shape, n[0].dtype))


def _uniform_of(n: Node, type: TT) -> Value:
    low, high = n.float("low", 0.0), n.float("high", 1.0)
    return _scaled(n, _generator(n).uniform(n, type), high - low, low)


@converts("RandomNormal")
def _normal(n: Node) -> Value:
    return _normal_of(n, _type(n, n.int_list("shape")))


@converts("RandomNormalLike")
def _normal_like(n: Node) -> Value:
    return _normal_of(n, _type(n, n[0].shape, n[0].dtype))


def _normal_of(n: Node, type: TT) -> Value:
    return _scaled(n, _generator(n).normal(n, type), n.float("scale", 1.0), n.float("mean", 0.0))


@converts("Bernoulli")
def _bernoulli(n: Node) -> Value:
    """One as likely as the operand says."""
    x = n[0]
    dtype = n.dtype(n.int("dtype")) if n.has("dtype") else x.dtype
    return n.cast(n.op("less", _generator(n).uniform(n, x.type), x), dtype)


@converts("Multinomial")
def _multinomial(n: Node) -> Value:
    """Classes drawn again and again, of logits."""
    if n[0].rank != 2:
        raise Refused(f"{n[0].type} is not a matrix", code="bad-node")
    return n.cast(_generator(n).choices(n, n[0], n.int("sample_size", 1), repeated=True), n.dtype(n.int("dtype", 6)))


@converts("Dropout")
def _dropout(n: Node) -> tuple[Value, ...]:
    """In inference the operand, and a mask of nothing but true."""
    n.ignore("ratio")
    training, ratio = n.get(2), n.get(1)
    drops = training is not None and bool(n.one(training, "training_mode"))
    share = 0.0 if not drops else 0.5 if ratio is None else float(n.one(ratio, "ratio"))
    if not 0 <= share <= 1:
        raise Refused(f"ratio is {share}, not a probability", code="bad-node")
    return _generator(n).dropped(n, n[0], share)[: max(1, len(n.outputs))]
