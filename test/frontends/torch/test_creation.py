"""Tensors that are made of numbers."""

from collections.abc import Callable
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
import torch_programs  # noqa: E402

MADE: dict[str, Callable[[Any], Any]] = {
    "arange": lambda x: x.sum() + torch.arange(7),
    "arange from": lambda x: torch.arange(3, -9, -4) + x[0, 0],
    "arange of floats": lambda x: torch.arange(0.5, 3, 0.3) * x[0, 0],
    "arange in floats": lambda x: torch.arange(5, dtype=torch.float16),
    "long arange": lambda x: torch.arange(3000) * 2,
    "full": lambda x: torch.full((2, 3), 1.5) + x,
    "full of booleans": lambda x: torch.full((2,), True),
    "infinite": lambda x: torch.full_like(x, float("-inf")),
    "zeros": lambda x: torch.zeros(2, 0, dtype=torch.int8),
    "ones": lambda x: x.new_ones(3),
    "eye": lambda x: torch.eye(3, 4) + x[0, 0],
    "linspace": lambda x: torch.linspace(-1, 1, 7) * x[0, 0],
    "logspace": lambda x: torch.logspace(0, 2, 5),
    "scalar": lambda x: torch.scalar_tensor(3, dtype=torch.int32),
    "fill": lambda x: x.clone().fill_(2.5),
    "fill by a tensor": lambda x: x.clone().fill_(x[1, 2]),
    "zeroed": lambda x: x.clone().zero_(),
    "lower": lambda x: torch.tril_indices(3, 4, 1),
    "window": lambda x: torch.signal.windows.kaiser(9, beta=7.5) * x[0, 0],
    "upper": lambda x: torch.triu_indices(4, 3, -1),
}


def test_what_is_made_is_what_pytorch_makes() -> None:
    torch_programs.check(MADE, torch.tensor([[0.5, 2.0, -1.0], [4.0, 5.0, 6.0]]))
