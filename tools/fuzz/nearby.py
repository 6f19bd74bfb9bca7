"""Ops evaluated twice, on values and on values a rounding away from them, so that programs come out well behaved.

Tiles, units and passes round and add up in other orders. A program is a fair test only when every right implementation
gives the same results within a tolerance: no op may blow roundings up, and no comparison, index or floor may depend on
them, nor anything on the sign of a zero. `evaluate` follows each value with a second one that every op has moved by
some roundings, and declines an op where the two part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from headrace.dialects.support.diagnostics import CompileError
from headrace.dialects.support.dtypes import from_numpy, highest, lowest, to_numpy
from headrace.dialects.tensor import meaning

Array = np.ndarray[Any, np.dtype[Any]]

TOLERANCE = {"f64": 1e-10, "f32": 2e-5, "f16": 2e-2, "bf16": 1e-1, "f8e4m3": 1.3e-1}
"""Largest error of a result over its largest magnitude, by element type; other types agree exactly."""
HALVES = ("f16", "bf16")
"""Types that composites round to once, at their end."""
MARGIN = 4
"""How many times closer than the tolerance the values of a program stay to their neighbours."""
MOST = 1000.0
"""Largest magnitude of a tame float."""

_ROUNDING = {"f64": 8 * 2.0**-53, "f32": 8 * 2.0**-24, "f16": 2 * 2.0**-11, "bf16": 2 * 2.0**-8}
"""How far an op moves its result, by element type: some roundings."""
_EXACT = frozenset((
    "neg", "abs", "sign", "floor", "ceil", "round", "relu", "max", "min", "clip", "select", "cast", "and", "or",
    "xor", "not", "is_nan", "is_inf", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal",
    "max_pool", "reduce_max", "reduce_min", "argmax", "argmin", "sort", "reshape", "transpose", "broadcast",
    "slice", "concat", "split", "pad", "gather", "gather_elements", "gather_nd", "iota", "philox",
))  # fmt: skip
"""Ops whose result is one of their operands' elements, or is exact but for the sign of a zero."""
_KEPT = frozenset((
    "select", "cast", "and", "or", "xor", "not", "reshape", "transpose", "broadcast", "slice", "concat", "split",
    "pad", "sort", "gather", "gather_elements", "gather_nd", "iota",
))  # fmt: skip
"""Ops that keep elements as they are, zeros with their sign."""
_SUMS = frozenset((
    "matmul", "conv", "avg_pool", "reduce_sum", "reduce_mean", "reduce_prod", "cumsum", "softmax", "log_softmax",
    "layer_norm", "rms_norm", "batch_norm", "group_norm", "attention",
))  # fmt: skip
"""Ops that round inside; a sum in another order is the sum of slightly other operands."""
_STEPS = frozenset(("floor", "ceil", "round", "sign", "mod", "atan2"))
"""Ops that jump, besides those whose results are integers or truth values."""
_COMPARED = frozenset(("argmax", "argmin", "sort"))
"""Ops that compare elements of an operand with each other."""
_MOVES_ELEMENTS = frozenset(("scatter_elements", "scatter_nd"))


class Declined(Exception):
    """An op or a step that does not fit what is there."""


class Value(NamedTuple):
    """A value's elements, and those of a neighbour that differs by roundings (the same array when none was made)."""

    array: Array
    near: Array


class Nearby:
    """Evaluates ops on `Value`s. `wild`: infinities, NaNs and large numbers are taken too. `rounds`: an element type
    that f32 may be rounded to, so that f32 is no more exact than that."""

    def __init__(self, seed: int, wild: bool, most: int, rounds: str = "") -> None:
        self._rng = np.random.default_rng(seed)
        self.wild = wild
        self.most = most
        self._rounding = {**_ROUNDING, "f32": _ROUNDING[rounds or "f32"]}
        self._least = TOLERANCE[rounds] if rounds else 0.0
        self._rounds = rounds

    def leaf(self, array: Array) -> Value:
        """An input, weight or constant: exact, but for f32 that may be rounded."""
        return Value(array, self._rounded(array))

    def evaluate(self, name: str, attrs: Mapping[str, Any], operands: Sequence[Value]) -> list[Value]:
        """The results of an op; `Declined` when they are too large or depend on roundings."""
        short = name.removeprefix("tensor.")
        if short == "cast":
            self._check_cast(attrs["to"], operands[0].array)
        if short == "batch_norm":
            self._check_factor(attrs["epsilon"], *(x.array for x in operands[1:]))
        moves = short in _MOVES_ELEMENTS
        kept = short in _KEPT or (moves and attrs["reduction"] == "none")
        exact = kept or short in _EXACT or (moves and attrs["reduction"] in ("min", "max"))
        with np.errstate(all="ignore"):
            try:
                found = meaning.evaluate(name, attrs, *(x.array for x in operands))
            except CompileError as error:
                raise Declined(error.what) from None  # an index out of range
            for array in found:
                self._check_size(array)
            if self.wild and any(from_numpy(x.dtype) in HALVES for x in found):
                self._check_overflow(name, attrs, operands)
            others = found
            if not exact or any(x.near is not x.array for x in operands):
                near = [x.near for x in operands]
                if not exact and (short in _SUMS or moves):
                    near = [self._moved(x) for x in near]
                others = meaning.evaluate(name, attrs, *near)
            if not exact:
                others = tuple(self._moved(x) for x in others)
            if not kept:
                others = tuple(self._flipped(x) for x in others)
            for array, other in zip(found, others, strict=True):
                self._check_near(array, other)
            if short in _STEPS or not all(from_numpy(x.dtype) in TOLERANCE for x in found):
                self._check_jumps(name, attrs, operands, found)
        return [Value(array, other) for array, other in zip(found, others, strict=True)]

    def _check_jumps(
        self, name: str, attrs: Mapping[str, Any], operands: Sequence[Value], found: Sequence[Array]
    ) -> None:
        """A value at a jump is as likely to be moved off as over it, so what jumps is tried on the ends of what its
        operands may be: one of them low and the others high, and the other way round, and with any two elements apart
        that an op compares."""
        ends = [self._ends(x) for x in operands]
        if all(low is high for low, high in ends):
            return
        size = max(low.size for low, _ in ends)
        ways = [[np.full(size, n == m) for n in range(len(ends))] for m in range(len(ends))]
        if name.removeprefix("tensor.") in _COMPARED:
            ways += [[np.arange(size) >> bit & 1 != 0] * len(ends) for bit in range(size.bit_length())]
        for way in ways:
            for flip in (False, True):
                picks = [
                    np.where(pick[: low.size].reshape(low.shape) != flip, high, low)
                    for pick, (low, high) in zip(way, ends, strict=True)
                ]
                for array, other in zip(found, meaning.evaluate(name, attrs, *picks), strict=True):
                    self._check_near(array, other)

    def _ends(self, value: Value) -> tuple[Array, Array]:
        """The least and the largest that a value's elements may be; the array itself, twice, when it is exact. Errors
        are those of an element and some of the largest one's, as where a sum cancels or an exponential underflows."""
        array, near = value
        rounding = self._rounding.get(from_numpy(array.dtype))
        if rounding is None or near is array:
            return array, array
        a, b = np.asarray(array, np.float64), np.asarray(near, np.float64)
        moved = np.isfinite(a) & np.isfinite(b) & (a != b)
        if not moved.any():
            return array, array
        margin = rounding * np.where(moved, np.abs(a), 0).max()
        low = np.where(moved, np.minimum(a, b) - margin, a).astype(array.dtype)
        high = np.where(moved, np.maximum(a, b) + margin, a).astype(array.dtype)
        return self._rounded(low), self._rounded(high)

    def _rounded(self, array: Array) -> Array:
        """An array as it is lowered; itself when it is not f32 or nothing is lowered."""
        if not self._rounds or from_numpy(array.dtype) != "f32":
            return array
        return np.asarray(array.astype(to_numpy(self._rounds)), array.dtype)

    def _moved(self, array: Array) -> Array:
        """A neighbour of an array: each element some roundings away, and none where it was."""
        rounding = self._rounding.get(from_numpy(array.dtype))
        if rounding is None:
            return array
        shape: tuple[int, ...] = array.shape
        by = self._rng.uniform(rounding / 2, rounding, shape) * self._rng.choice([-1, 1], shape)
        return self._rounded(np.asarray(np.multiply(array, 1 + by, dtype=np.float64)).astype(array.dtype))

    def _flipped(self, array: Array) -> Array:
        """The array with some of its zeros as the other zero; itself when it has none."""
        if from_numpy(array.dtype) not in _ROUNDING or not (zeros := np.asarray(array == 0)).any():
            return array
        shape: tuple[int, ...] = array.shape
        return np.where(zeros & np.asarray(self._rng.integers(0, 2, shape), bool), np.negative(array), array)

    def _check_size(self, array: Array) -> None:
        if array.size > self.most:
            raise Declined("too many elements")
        if from_numpy(array.dtype) in TOLERANCE and not self.wild and array.size:
            size = np.abs(array.astype(np.float64)).max()
            if not size <= MOST:
                raise Declined("too large")

    @staticmethod
    def _check_overflow(name: str, attrs: Mapping[str, Any], operands: Sequence[Value]) -> None:
        """What overflows between two ops does not where one does the work of both and rounds once."""
        finite = [
            np.where(np.isfinite(x.array.astype(np.float64)), x.array, np.ones_like(x.array))
            if from_numpy(x.array.dtype) in TOLERANCE
            else x.array
            for x in operands
        ]
        if any(from_numpy(x.dtype) in HALVES and np.isinf(x).any() for x in meaning.evaluate(name, attrs, *finite)):
            raise Declined("overflows a narrow type")

    def _check_near(self, array: Array, other: Array) -> None:
        if array is other:
            return
        if (fault := differs(array, other, _tolerance(array, self._least) / MARGIN)) is not None:
            raise Declined(f"depends on roundings: {fault}")

    @staticmethod
    def _check_factor(epsilon: float, scale: Array, bias: Array, mean: Array, variance: Array) -> None:
        """A batch norm may be folded into the filters before it, which takes what multiplies them to be finite."""
        with np.errstate(all="ignore"):
            factor = scale / np.sqrt(variance + np.asarray(epsilon, variance.dtype))
        if not all(np.isfinite(np.asarray(x, np.float64)).all() for x in (factor, bias, mean)):
            raise Declined("a batch norm's factor is not finite")

    @staticmethod
    def _check_cast(to: str, array: Array) -> None:
        """Floats that an integer type cannot hold become unspecified integers."""
        if from_numpy(array.dtype) not in TOLERANCE or to in TOLERANCE or to == "i1":
            return
        wide = array.astype(np.float64)
        if wide.size and not (np.all(wide > float(lowest(to)) - 1) and np.all(wide < float(highest(to)))):
            raise Declined("out of the integer's range")


def _tolerance(array: Array, least: float) -> float:
    """The tolerance of an array's type, and of a float at least as much as said."""
    tolerance = TOLERANCE.get(from_numpy(array.dtype))
    return 0.0 if tolerance is None else max(tolerance, least)


def differs(a: Array, b: Array, tolerance: float) -> str | None:
    """How two arrays of one type differ; None when no element differs by more than `tolerance` of the largest
    magnitude (or at all, for types that are no floats). NaNs agree with NaNs, infinities with those of their sign."""
    if from_numpy(a.dtype) not in TOLERANCE:
        return None if np.array_equal(a, b) else f"{np.count_nonzero(a != b)} of {a.size} elements differ"
    x, y = a.astype(np.float64), b.astype(np.float64)
    finite = np.isfinite(x)
    if not np.array_equal(finite, np.isfinite(y)) or not np.array_equal(x[~finite], y[~finite], equal_nan=True):
        return "infinities or NaNs are elsewhere"
    x, y = x[finite], y[finite]
    error, scale = np.abs(x - y).max(initial=0.0), np.abs(x).max(initial=0.0) or 1.0
    return f"error {error:.3g} of {scale:.3g}, more than {tolerance * scale:.3g}" if error > tolerance * scale else None


def disagreement(expected: Mapping[str, Array], found: Mapping[str, Array], least: float = 0.0) -> str:
    """What two sets of results disagree in; empty when integers are equal and floats are within `TOLERANCE`, or `least`
    where that is more."""
    if list(expected) != list(found):
        return f"results are {list(found)}, not {list(expected)}"
    for name, a in expected.items():
        b = found[name]
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"{name} is {b.dtype}{list(b.shape)}, not {a.dtype}{list(a.shape)}"
        if (fault := differs(a, b, _tolerance(a, least))) is not None:
            return f"{name}: {fault}"
    return ""


def sample(rng: np.random.Generator, shape: Sequence[int], dtype: str, scale: float = 1.0, wild: bool = False) -> Array:
    """Random elements: normal floats, mostly small integers, truth values; with `wild` some that are special."""
    shape, type = tuple(shape), to_numpy(dtype)
    if dtype == "i1":
        return np.asarray(rng.integers(0, 2, shape), bool)
    if dtype not in TOLERANCE:
        low, high = int(lowest(dtype)), int(highest(dtype))
        if rng.random() < 0.75:
            low, high = max(low, -9), 9
        return np.asarray(rng.integers(low, high, shape, dtype=type, endpoint=True), type)
    array = np.asarray(rng.standard_normal(shape) * scale)
    if wild:
        special = rng.choice([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, 1e4, 65504.0], shape)
        array = np.where(rng.random(shape) < 0.2, special, array)
    return array.astype(type)
