"""Functions of one float: accurate over the whole range."""

from collections.abc import Callable
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
import torch_programs  # noqa: E402

F: Any = torch.nn.functional

NAMES = (
    *("expm1", "log1p", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "log2", "log10", "exp2"),
    *("asin", "acos", "atan", "exp", "log", "sqrt", "sin", "reciprocal"),
)
FUNCTIONS: dict[str, Callable[[Any], Any]] = {name: getattr(torch, name) for name in NAMES}
SPECIAL = torch.tensor([0.0, -0.0, float("inf"), float("nan"), 1.0, 0.999999, 1e-45, 3.4e38, 89.0])
SIZES = torch.cat([torch.logspace(-30, 38, 500), torch.linspace(0, 3, 301), SPECIAL])
RANGE = torch.cat([SIZES, -SIZES])
POINTS = torch.cat([torch.linspace(-30, 30, 121), torch.tensor([float("inf"), -float("inf"), float("nan")])])
ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "elu": lambda x: F.elu(x, 0.5),
    "selu": F.selu,
    "celu": lambda x: F.celu(x, 1.7),
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
    "softplus": F.softplus,
    "softplus steep": lambda x: F.softplus(x, 2.5, 5.0),
    "softplus low threshold": lambda x: F.softplus(x, 1, 2),
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "hardtanh": lambda x: F.hardtanh(x, -0.3, 2),
    "relu6": F.relu6,
    "silu": F.silu,
    "mish": F.mish,
    "gelu": lambda x: F.gelu(x.clamp(-9, 9)),
    "gelu tanh": lambda x: F.gelu(x.clamp(-9, 9), approximate="tanh"),
    "logsigmoid": F.logsigmoid,
    "softsign": F.softsign,
    "hardshrink": F.hardshrink,
    "threshold": lambda x: F.threshold(x, 0.5, -3),
    "round decimals": lambda x: torch.round(x, decimals=1),
    "round tens": lambda x: torch.round(x, decimals=-1),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_a_function_is_accurate_everywhere(dtype: str) -> None:
    x = RANGE.to(getattr(torch, dtype))
    info = torch.finfo(x.dtype)
    got = torch_programs.interpreted(FUNCTIONS, (x,))
    for name, function in FUNCTIONS.items():
        want, y = function(x.double()), got[name]
        rounded = want.to(x.dtype)
        assert y.dtype == x.dtype
        assert torch.equal(y.isnan(), want.isnan()), name
        assert torch.equal(y.isinf(), rounded.isinf()), name
        normal = rounded.isfinite() & (rounded.abs() > info.tiny)
        apart = (y[normal].double() - want[normal]).abs() / want[normal].abs()
        assert apart.max() <= 4 * info.eps, f"{name} at {x[normal][apart.argmax()]}"


def test_functions_of_integers_are_floats() -> None:
    x = torch.tensor([[0, 1, 2], [3, 40, 1]])
    torch_programs.check(FUNCTIONS, x)
    torch_programs.check(FUNCTIONS, x.bool())


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_an_activation_computes_what_pytorch_does(dtype: str) -> None:
    torch_programs.check(ACTIVATIONS, POINTS.to(getattr(torch, dtype)))


def test_functions_of_scalars_and_of_nothing() -> None:
    torch_programs.check(ACTIVATIONS, torch.tensor(0.7))
    torch_programs.check(FUNCTIONS, torch.zeros(0, 3))
