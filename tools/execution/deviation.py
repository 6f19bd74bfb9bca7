"""How far an array is from its reference: the one place where results are compared.

Integers and booleans agree exactly. Floats agree when the largest error is within a part of the reference's largest
magnitude: tiles and units add up in other orders than the reference, so that an error is a few eps of the sum of the
terms, which no element tells alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.dialects.support.dtypes import from_numpy

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

TOLERANCE = {"f64": 1e-9, "f32": 1e-4, "f16": 2e-2, "bf16": 1e-1}
"""Largest error over the largest magnitude of the reference, by element type; integers agree exactly."""


@dataclass(frozen=True)
class Deviation:
    """The largest error of an array: `absolute`, `relative` to the reference's largest magnitude, and in `ulp`, steps
    between neighbouring numbers of the type; the element where it is, what that `was` and `found` to be, and what is
    `allowed` (of the relative error). `problem` says why two arrays cannot be compared."""

    absolute: float
    relative: float
    ulp: int
    worst: tuple[int, ...]
    was: Any
    found: Any
    allowed: float
    problem: str = ""

    @property
    def ok(self) -> bool:
        """Whether it is within what is allowed."""
        return not self.problem and self.relative <= self.allowed

    def to_json(self) -> dict[str, Any]:
        """The fields as a JSON-ready dictionary."""
        return {
            "max_abs": self.absolute,
            "max_rel": self.relative,
            "ulp": self.ulp,
            "worst": list(self.worst),
            "was": self.was,
            "is": self.found,
            "allowed": self.allowed,
            "ok": self.ok,
            **({"problem": self.problem} if self.problem else {}),
        }

    def __str__(self) -> str:
        if self.problem:
            return self.problem
        place = f"[{', '.join(map(str, self.worst))}]"
        return (
            f"{place} was {_number(self.was)}, is {_number(self.found)}: abs {self.absolute:.2e}, "
            f"rel {self.relative:.2e} (allowed {self.allowed:.0e}), {self.ulp:,} ulp"
        )


def _number(value: Any) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def deviation(found: Array, reference: Array, tolerance: float | None = None) -> Deviation:
    """Compare two arrays. NaN agrees with NaN, and an infinity with itself."""
    import numpy as np

    allowed = tolerance if tolerance is not None else TOLERANCE.get(_name(reference), 0.0)
    if found.shape != reference.shape or found.dtype != reference.dtype:
        ours, theirs = map(_type, (found, reference))
        return Deviation(float("inf"), float("inf"), 0, (), None, None, allowed, f"is {ours}, expected {theirs}")
    if not reference.size:
        return Deviation(0.0, 0.0, 0, (), None, None, allowed)
    integers = reference.dtype.kind in "iu"
    kind = np.dtype(object) if integers and reference.dtype.itemsize == 8 else np.dtype(np.float64)
    kind = np.dtype(np.complex128) if reference.dtype.kind == "c" else kind
    at, absolute, scale = (0,) * reference.ndim, 0.0, 1.0
    if not np.array_equal(found, reference):
        have, want = (np.asarray(x.astype(kind)) for x in (found, reference))
        with np.errstate(invalid="ignore"):
            same = (have == want) if integers else (have == want) | (np.isnan(have) & np.isnan(want))
            error = np.asarray(np.abs(have - want)).astype(np.float64)
            distance = np.where(same, 0.0, np.nan_to_num(error, nan=np.inf, posinf=np.inf))
        at = tuple(map(int, np.unravel_index(int(np.argmax(distance)), distance.shape)))
        absolute = float(distance[at])
        sizes = np.asarray(np.abs(want)).astype(np.float64)
        scale = float(np.max(sizes, where=np.isfinite(sizes), initial=0.0)) or 1.0
    return Deviation(
        absolute, absolute / scale, ulp(found[at], reference[at]), at, _plain(reference[at]), _plain(found[at]), allowed
    )


def ulp(a: Any, b: Any) -> int:
    """How many numbers of their type lie between two scalars; the difference of two integers."""
    import numpy as np

    if a == b or np.dtype(a.dtype).kind == "c" or (a != a and b != b):
        return 0
    return abs(_rank(a) - _rank(b))


def _rank(x: Any) -> int:
    """Consecutive integers for consecutive numbers of a type."""
    import numpy as np

    if x.dtype.kind in "iub":
        return int(x)
    bits = int(np.asarray(x).reshape(1).view(f"u{x.dtype.itemsize}")[0])
    sign = 1 << (8 * x.dtype.itemsize - 1)
    return sign - bits if bits & sign else bits


def _plain(x: Any) -> Any:
    """A scalar as JSON has it."""
    if x.dtype.kind in "iu":
        return int(x)
    if x.dtype.kind == "b":
        return bool(x)
    number = complex(x)
    return float(x) if x.dtype.kind != "c" and abs(number) < float("inf") else str(x)


def _name(array: Array) -> str:
    try:
        return from_numpy(array.dtype)
    except KeyError:
        return str(array.dtype)


def _type(array: Array) -> str:
    return f"{_name(array)}[{', '.join(map(str, array.shape))}]"
