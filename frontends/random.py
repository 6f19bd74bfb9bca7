"""Random numbers of a program: words that a counter-based generator makes of a threaded state.

The state (`STATE`) is an input and a result of the program. Each draw takes a range of the counter of its own, known
while importing; the result is the counter behind all of them. Runs in a row draw other numbers, and a state that is set
again draws the same ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from xdsl.ir import Block

from headrace.dialects.support import dtypes
from headrace.dialects.support.locations import named
from headrace.dialects.tensor.base import ir_type
from headrace.dialects.tensor.shapes import TT
from headrace.dialects.tensor.shapes.random import WORDS
from headrace.frontends.base import Port
from headrace.frontends.building import Builder, Refused, Site, Value

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

NAME = "rng"
"""What the state is called; its result is `rng.next`."""
STATE = TT((3,), "ui64")
"""The lower and the upper half of the counter, and the key."""
DIGITS = {"f64": 53, "f32": 24, "f16": 11, "bf16": 8}
"""Random binary digits of a uniform number: those that are exact in its type."""
SHORT = 1024
"""Blocks that are numbered in one row."""


def state(seed: int) -> Array:
    """The state that draws the numbers of a seed, from the first on."""
    import numpy as np

    return np.array([0, 0, seed % 2**64], dtypes.to_numpy(STATE.dtype))


def _split(shape: Sequence[int]) -> tuple[tuple[int, ...], int]:
    """The shape as rows, and the elements of a row: few of the last dims such that whole blocks make a row."""
    for d in reversed(range(len(shape))):
        if prod(shape[d:]) % WORDS == 0:
            return tuple(shape[:d]), prod(shape[d:])
    return ((), prod(shape)) if prod(shape) <= SHORT else (tuple(shape[:-1]), shape[-1])


@dataclass
class Generator:
    """Draws the numbers of a program: those of a seed, which is refused without one. The first draw makes the state an
    input of the program."""

    block: Block
    inputs: list[Port]
    seed: int | None
    state: Value | None = None
    used: int = 0
    """Blocks drawn so far."""

    @property
    def name(self) -> str:
        """What the state is called; empty when nothing is drawn."""
        return self.state.name if self.state is not None else ""

    def initial(self) -> Array:
        """What the state holds at first."""
        return state(self.seed or 0)

    def _started(self) -> Value:
        """The state that the program is given."""
        if self.state is None:
            if self.seed is None:
                raise Refused(
                    "it draws random numbers, and nothing says which",
                    "give a seed (seed=0, or --seed 0), or take the model for inference (model.eval())",
                )
            name = NAME
            while any(port.name == name for port in self.inputs):
                name += "'"
            argument = self.block.insert_arg(ir_type(STATE), len(self.block.args))
            argument.location = named(name)
            self.inputs.append(Port(name, STATE))
            self.state = Value(name, STATE, argument.location, argument)
        return self.state

    def words(self, n: Site, shape: Sequence[int]) -> Value:
        """A word of 32 bits (ui32) for each element of a shape, in order."""
        given = self._started()
        if not prod(shape):
            return n.broadcast(n.scalar(0, "ui32"), shape)
        rows, size = _split(shape)
        blocks = -(-size // WORDS)
        long = not rows and blocks > SHORT
        if long:  # one row becomes several, of which the last may be too long
            rows, blocks = (-(-blocks // SHORT),), SHORT
        first = n.scalar(self.used, "ui64")
        if rows:
            first = n.op("add", n.op("mul", n.op("iota", shape=(prod(rows),), dtype="ui64", axis=0), blocks), first)
            first = n.reshape(first, (*rows, 1))
        self.used += prod(rows) * blocks
        found = n.op("philox", given, first, n.op("iota", shape=(blocks,), dtype="ui64", axis=0))
        found = n.reshape(found, (prod(found.shape),) if long else (*rows, blocks * WORDS))
        if found.shape[-1] != size:
            found = n.slice(found, found.rank - 1, 0, size)
        return n.reshape(found, shape)

    def uniform(self, n: Site, type: TT) -> Value:
        """Numbers of [0, 1), multiples of 2⁻²⁴ in f32: the lower bits of a word (of two in f64), exactly."""
        digits = DIGITS[type.dtype]
        if digits <= 32:
            word = n.op("and", self.words(n, type.shape), (1 << digits) - 1)
            return n.op("mul", n.cast(word, type.dtype), 2.0**-digits)
        low = n.cast(self.words(n, type.shape), type.dtype)
        high = n.cast(n.op("and", self.words(n, type.shape), (1 << digits - 32) - 1), type.dtype)
        return n.op("mul", n.op("add", n.op("mul", high, 2.0**32), low), 2.0**-digits)

    def positive(self, n: Site, type: TT) -> Value:
        """Numbers of (0, 1], whose logarithm is finite."""
        return n.op("sub", n.scalar(1, type.dtype), self.uniform(n, type))

    def normal(self, n: Site, type: TT) -> Value:
        """Numbers of mean 0 and variance 1, by Box and Muller: two uniform numbers make one. f16 and bf16 are computed
        in f32."""
        wide = TT(type.shape, type.dtype if type.dtype == "f64" else "f32")
        radius = n.op("sqrt", n.op("mul", n.op("log", self.positive(n, wide)), -2.0))
        angle = n.op("mul", self.uniform(n, wide), 2 * math.pi)
        return n.cast(n.op("mul", radius, n.op("cos", angle)), type.dtype)

    def chosen(self, n: Site, shape: Sequence[int], probability: float) -> Value:
        """Truth values (i1) that hold with a probability, to 2⁻³²."""
        limit = round(probability * 2**32)
        if not 0 < limit < 2**32:
            return n.broadcast(n.scalar(limit > 0, "i1"), shape)
        return n.op("less", self.words(n, shape), limit)

    def integers(self, n: Site, low: int, high: int, type: TT) -> Value:
        """Integers low, …, high - 1: the remainder of a word, or of two when there are many."""
        count = high - low
        word = self.words(n, type.shape)
        if count > 2**32:
            upper = n.op("mul", n.cast(self.words(n, type.shape), "ui64"), 2**32)
            word = n.op("add", n.cast(word, "ui64"), upper)
        if count not in (2**32, 2**64):
            word = n.op("mod", word, count)
        word = n.cast(word, "i64")
        return n.cast(n.op("add", word, low) if low else word, type.dtype)

    def dropped(self, n: Site, x: Value, probability: float) -> tuple[Value, Value]:
        """x with elements replaced by zero with a probability and the others scaled so that the mean stays; and the
        elements that were kept (i1)."""
        kept = self.chosen(n, x.shape, 1 - probability)
        if probability == 0:
            return x, kept
        scale = 1 / (1 - probability) if probability < 1 else 0.0
        factor = n.op("select", kept, n.scalar(scale, x.dtype), n.scalar(0, x.dtype))
        return n.op("mul", x, factor), kept

    def choices(self, n: Site, logits: Value, count: int, repeated: bool) -> Value:
        """Positions (i64) along the last dim of logits [… classes], as many as said, each as likely as the exponential
        of its logit: the largest of logits with Gumbel noise. Not `repeated`: none is chosen twice."""
        noise = TT((*logits.shape[:-1], *((count,) if repeated else ()), logits.shape[-1]), logits.dtype)
        waits = n.op("neg", n.op("log", self.positive(n, noise)))
        waits = n.op("max", waits, 2.0 ** (-DIGITS[logits.dtype] - 1))
        if repeated:
            logits = n.reshape(logits, (*logits.shape[:-1], 1, logits.shape[-1]))
        perturbed = n.op("sub", logits, n.op("log", waits))
        if repeated:
            return n.op("argmax", perturbed, axis=perturbed.rank - 1, keepdims=False)
        _, order = n.ops("sort", perturbed, axis=perturbed.rank - 1, descending=True)
        return n.slice(order, order.rank - 1, 0, count)

    def after(self, builder: Builder) -> Value | None:
        """The state behind all that is drawn; None when nothing is."""
        if self.state is None:
            return None
        import numpy as np

        n = Site(builder, named(self.name), self.name)
        return n.op("add", self.state, n.constant(np.array([self.used, 0, 0], dtypes.to_numpy(STATE.dtype))))
