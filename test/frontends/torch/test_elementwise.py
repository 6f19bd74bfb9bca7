"""Arithmetic, comparisons, logic, bits, casts and selection: the numbers and the types of PyTorch."""

from collections.abc import Callable
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
import torch_programs  # noqa: E402

INF, NAN = float("inf"), float("nan")
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "fmod": torch.fmod,
    "remainder": torch.remainder,
    "pow": torch.pow,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "fmax": torch.fmax,
    "clamp": lambda a, b: torch.clamp(a, min=b),
    "atan2": torch.atan2,
    "hypot": torch.hypot,
    "copysign": torch.copysign,
    "eq": torch.eq,
    "lt": torch.lt,
    "ge": torch.ge,
    "and": torch.logical_and,
    "xor": torch.logical_xor,
    "bits": torch.bitwise_and,
    "left": torch.bitwise_left_shift,
    "right": torch.bitwise_right_shift,
    "where": lambda a, b: torch.where(a > 0, a, b),
    "lerp": lambda a, b: torch.lerp(a, b, 0.3),
    "alpha": lambda a, b: torch.add(a, b, alpha=3),
}
VALUES = {
    "float32": [-3.5, 2.0, 0.5, 7.25, -1.0, 4.0],
    "float16": [1.5, -2.0, 0.25, 3.0, 5.0, -7.0],
    "bfloat16": [1.5, -2.0, 0.25, 3.0, 5.0, -7.0],
    "int64": [-7, 2, 5, 3, -1, 4],
    "int32": [3, -2, 5, 7, 1, 2],
    "int8": [-7, 3, 2, 1, 6, 5],
    "uint8": [7, 2, 5, 3, 1, 4],
    "bool": [True, True, True, True, True, True],
}
PAIRS = [
    *("float32 float32", "float32 int64", "int32 int64", "uint8 int8", "bool int64", "bool bool", "int64 int64"),
    *("float16 float32", "float16 bfloat16", "int64 float16", "uint8 uint8", "int8 int8"),
]
SCALARS: dict[str, Callable[[Any], Any]] = {
    "add": lambda x: x + 0.1,
    "rsub": lambda x: 1.3 - x,
    "mul": lambda x: x * 3,
    "rdiv": lambda x: 2 / x,
    "floor": lambda x: x // 0.3,
    "remainder": lambda x: x % -2.5,
    "from a number": lambda x: torch.remainder(7, x),
    "fmod": lambda x: torch.fmod(x, -2.5),
    **{f"power {p}": (lambda x, p=p: x**p) for p in (0, 1, 2, 3, 0.5, 2.5)},
    "power of a number": lambda x: 2**x,
    "power of a float": lambda x: 1.5**x,
    "compare": lambda x: x > 0.5,
    "equal": lambda x: x == 2,
    "clamp": lambda x: x.clamp(1, 3),
    "clamp to floats": lambda x: x.clamp(-0.5, 2.5),
    "clamp in disorder": lambda x: x.clamp(3, 1),
    "clamp to nan": lambda x: x.clamp(min=NAN),
    "where": lambda x: torch.where(x > 1, x, 0.5),
    "masked": lambda x: x.masked_fill(x > 1, 3),
    "round": torch.round,
    "trunc": torch.trunc,
    "frac": torch.frac,
    "ceil": torch.ceil,
    "sign": torch.sign,
    "abs": torch.abs,
    "neg": torch.neg,
    "relu": torch.relu,
    "signbit": torch.signbit,
    "angle": torch.angle,
    "nan": torch.isnan,
    "finite": torch.isfinite,
    "not": torch.logical_not,
    "complement": torch.bitwise_not,
    "double": lambda x: x.double(),
    "integer": lambda x: x.int(),
    "truth": lambda x: x.bool(),
    "copy": lambda x: torch.zeros(2, *x.shape, dtype=torch.float64).copy_(x),
    "addcmul": lambda x: torch.addcmul(x, x, x, value=2),
}
SHIFTS: dict[str, Callable[[Any], Any]] = {"left": lambda x: x << 3, "right": lambda x: x >> 1}
QUOTIENTS: dict[str, Callable[[Any], Any]] = {"floor": lambda x: torch.floor_divide(x, 0.1), "rest": lambda x: x % 0.1}


def tensor(dtype: str, *shape: int) -> Any:
    return torch.tensor(VALUES[dtype], dtype=getattr(torch, dtype)).reshape(*shape)


@pytest.mark.parametrize("pair", PAIRS)
def test_operands_promote_as_in_pytorch(pair: str) -> None:
    first, second = pair.split()
    a, b = tensor(first, 2, 3), tensor(second, 3, 2).T.contiguous()
    torch_programs.check(torch_programs.accepted(BINARY, a, b), a, b)
    scalar = tensor(second, 6)[1].clone()
    torch_programs.check(torch_programs.accepted(BINARY, a, scalar), a, scalar)


@pytest.mark.parametrize("dtype", VALUES)
def test_numbers_promote_as_in_pytorch(dtype: str) -> None:
    x = tensor(dtype, 2, 3)
    torch_programs.check(torch_programs.accepted(SCALARS, x), x)


def test_values_that_are_no_numbers() -> None:
    a = torch.tensor([1.0, -1.0, 0.0, -0.0, INF, -INF, NAN, 3.0, 2.5])
    x, y = a.repeat(9), a.repeat_interleave(9)
    torch_programs.check(torch_programs.accepted(BINARY, x, y), x, y)
    torch_programs.check(torch_programs.accepted(SCALARS, a), a)


def test_a_shift_beyond_the_bits() -> None:
    for dtype in (torch.int8, torch.uint8, torch.int32, torch.int64):
        x = torch.tensor([1, 100, 127, 3, 5] + ([] if dtype == torch.uint8 else [-1, -100]), dtype=dtype)
        bits = torch.tensor([[0], [1], [6], [7], [8], [31], [63], [64]], dtype=dtype)
        shifts = {"left": torch.bitwise_left_shift, "right": torch.bitwise_right_shift}
        torch_programs.check(shifts, x, bits)
        torch_programs.check(SHIFTS, x)


def test_quotients_rounded_down_do_not_lose_to_rounding() -> None:
    a = torch.arange(-60, 60, dtype=torch.float32) * 0.1
    torch_programs.check(QUOTIENTS, a, rtol=0, atol=0)
