"""Reductions, positions, norms and running combinations."""

from collections.abc import Callable
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
import torch_programs  # noqa: E402

INF, NAN = float("inf"), float("nan")
ALONG: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: x.sum(0),
    "sum keeps": lambda x: x.sum((0, -1), keepdim=True),
    "mean": lambda x: x.mean(-1),
    "mean in doubles": lambda x: x.mean(0, dtype=torch.float64),
    "prod": lambda x: x.prod(-1, keepdim=True),
    "any": lambda x: x.any(0),
    "any of several": lambda x: torch.any(x, (0, -1)),
    "all": lambda x: torch.all(x, -1, keepdim=True),
    "var": lambda x: x.var(-1),
    "var of all": lambda x: x.var(-1, correction=0, keepdim=True),
    "std": lambda x: x.std((0, -1), correction=2),
    "var and mean": lambda x: torch.var_mean(x, -1, keepdim=True),
    "logsumexp": lambda x: x.logsumexp(0),
    **{f"norm {p}": (lambda x, p=p: torch.linalg.vector_norm(x, p, -1)) for p in (0, 1, 2, 3)},
    "nansum": lambda x: x.nansum(0),
    "count": lambda x: torch.count_nonzero(x, -1),
    "softmax": lambda x: x.softmax(-1),
    "log softmax": lambda x: torch.log_softmax(x, 0),
    "softmax in doubles": lambda x: torch.softmax(x, -1, dtype=torch.float64),
    "cumsum": lambda x: x.cumsum(0),
    "cumprod": lambda x: x.cumprod(-1),
    "logcumsumexp": lambda x: x.logcumsumexp(-1),
}
OVERALL: dict[str, Callable[[Any], Any]] = {
    "sum": torch.sum,
    "mean": torch.mean,
    "prod": torch.prod,
    "any": torch.any,
    "all": torch.all,
    "var": torch.var,
    "norm": lambda x: x.norm(),
    "norm 3": lambda x: x.norm(3),
    "dist": lambda x: torch.dist(x, x * 0.5 + 1),
    "dist 0": lambda x: torch.dist(x, x.abs(), 0),
}
EXTREMES: dict[str, Callable[[Any], Any]] = {
    "amax": lambda x: x.amax(0),
    "amin": lambda x: x.amin(-1, keepdim=True),
    "aminmax": lambda x: torch.aminmax(x, dim=-1),
    "max": lambda x: tuple(x.max(-1)),
    "min": lambda x: tuple(x.min(0, keepdim=True)),
    "largest": torch.max,
    "smallest": torch.min,
    "argmax": lambda x: x.argmax(),
    "argmin": lambda x: x.argmin(-1, keepdim=True),
    "argmax of all, kept": lambda x: x.argmax(keepdim=True),
    "norm": lambda x: torch.linalg.vector_norm(x, INF, -1),
    "norm of a negative order": lambda x: torch.linalg.vector_norm(x, -1.5, -1),
    "least": lambda x: torch.linalg.vector_norm(x, -INF, 0),
    "cummax": lambda x: tuple(torch.cummax(x, -1)),
    "cummin": lambda x: tuple(torch.cummin(x, 0)),
}
MATRIX = [[1.5, -2.0, 0.5, 2.0, -0.25], [0.0, 3.0, 3.0, -1.0, -1.0], [-4.0, 1.25, 0.0, 7.0, 7.0]]


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "uint8", "bool"])
def test_reductions_of_a_matrix(dtype: str) -> None:
    x = torch.tensor(MATRIX).abs() if dtype == "uint8" else torch.tensor(MATRIX)
    x = x.to(getattr(torch, dtype))
    for functions in (ALONG, OVERALL, EXTREMES):
        torch_programs.check(torch_programs.accepted(functions, x), x)


def test_reductions_of_a_scalar() -> None:
    x = torch.tensor(-1.5)
    for functions in (ALONG, OVERALL, EXTREMES):
        torch_programs.check(torch_programs.accepted(functions, x), x)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1, 1)])
def test_reductions_of_nothing_and_of_one(shape: tuple[int, ...]) -> None:
    x = torch.full(shape, 0.5)
    torch_programs.check(torch_programs.accepted(OVERALL, x), x)
    torch_programs.check(torch_programs.accepted(ALONG, x), x)


def test_nan_and_infinities_go_through() -> None:
    x = torch.tensor([[1.0, NAN, 3.0, NAN], [INF, 2.0, INF, -INF], [-INF, -INF, 0.0, 1.0], [-INF] * 4])
    along = {name: f for name, f in ALONG.items() if name != "var and mean"}  # a running mean gives NaN for -inf
    for functions in (along, OVERALL, EXTREMES):
        torch_programs.check(functions, x)


@pytest.mark.parametrize("rows", [4, 30])
def test_distances_of_rows(rows: int) -> None:
    """From many rows on, Euclidean distances are computed by a product."""
    a, b = torch.randn(2, 1, rows, 3), torch.randn(2, 5, 3)
    functions: dict[str, Callable[[Any, Any], Any]] = {
        str(p): (lambda a, b, p=p: torch.cdist(a, b, p)) for p in (0.0, 1.0, 2.0, 3.5, INF)
    }
    modes = ("use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist")
    functions |= {mode: (lambda a, b, mode=mode: torch.cdist(a, b, compute_mode=mode)) for mode in modes}
    functions["of no columns"] = lambda a, b: torch.cdist(a[..., :0], b[..., :0])
    functions["of no rows"] = lambda a, b: torch.cdist(a[..., :0, :], b)
    torch_programs.check(functions, a, b)
