"""Element types: one table between our short names, builtin IR types and NumPy.

Names: f64 f32 f16 bf16 i1 i8 i16 i32 i64 ui8 ui16 ui32 ui64 f8e4m3. Integers are signless in the IR when signed here
(`i32`), and `ui*` are unsigned IR integers. f8e4m3 (`f8E4M3FN` in the IR: no infinities, at most 448) is moved and
cast; no op computes in it.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from xdsl.ir import Attribute

BITS = {
    "f64": 64,
    "f32": 32,
    "f16": 16,
    "bf16": 16,
    "i1": 8,
    "i8": 8,
    "i16": 16,
    "i32": 32,
    "i64": 64,
    "ui8": 8,
    "ui16": 16,
    "ui32": 32,
    "ui64": 64,
    "f8e4m3": 8,
}
FLOATS = ("f64", "f32", "f16", "bf16")
"""Floating-point types that ops compute in."""
STORED = ("f8e4m3",)
"""Floating-point types that are only stored: ops move and cast them."""


def byte_size(dtype: str) -> int:
    """Bytes an element takes in memory (an i1 takes a whole byte)."""
    return BITS[dtype] // 8


def is_float(dtype: str) -> bool:
    """Whether the element type is a floating-point type."""
    return dtype in FLOATS or dtype in STORED


def lowest(dtype: str) -> float | int:
    """The least value of an element type: -inf for floats that have it."""
    if dtype == "f8e4m3":
        return -448.0
    if is_float(dtype):
        return float("-inf")
    return 0 if dtype == "i1" or dtype.startswith("ui") else -(2 ** (BITS[dtype] - 1))


def highest(dtype: str) -> float | int:
    """The greatest value of an element type: inf for floats that have it."""
    if dtype == "f8e4m3":
        return 448.0
    if is_float(dtype):
        return float("inf")
    if dtype == "i1":
        return 1
    return 2 ** (BITS[dtype] - (0 if dtype.startswith("ui") else 1)) - 1


@cache
def to_ir(dtype: str) -> Attribute:
    """The builtin IR type of a dtype name."""
    from xdsl.dialects import builtin

    floats: dict[str, Any] = {"f64": builtin.f64, "f32": builtin.f32, "f16": builtin.f16, "bf16": builtin.bf16}
    floats["f8e4m3"] = builtin.f8E4M3FN
    if dtype in floats:
        return floats[dtype]
    if dtype.startswith("ui"):
        return builtin.IntegerType(int(dtype[2:]), builtin.Signedness.UNSIGNED)
    return builtin.IntegerType(int(dtype[1:]))


@cache
def _ir_names() -> dict[Attribute, str]:
    return {to_ir(name): name for name in BITS}


def from_ir(type: Attribute) -> str:
    """The dtype name of a builtin IR type; KeyError when Headrace has no such element type."""
    return _ir_names()[type]


@cache
def to_numpy(dtype: str) -> np.dtype[Any]:
    """The NumPy dtype that holds elements of a dtype name."""
    import ml_dtypes
    import numpy as np

    table: dict[str, Any] = {"f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
    table |= {"f8e4m3": ml_dtypes.float8_e4m3fn}
    table |= {"i1": np.bool_} | {f"i{n}": f"int{n}" for n in (8, 16, 32, 64)}
    table |= {f"ui{n}": f"uint{n}" for n in (8, 16, 32, 64)}
    return np.dtype(table[dtype])


@cache
def _numpy_names() -> dict[np.dtype[Any], str]:
    return {to_numpy(name): name for name in BITS}


def from_numpy(dtype: Any) -> str:
    """The dtype name of a NumPy dtype; KeyError when Headrace has no such element type."""
    import numpy as np

    return _numpy_names()[np.dtype(dtype)]
