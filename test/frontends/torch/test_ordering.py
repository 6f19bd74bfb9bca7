"""Orders and counts, as PyTorch gives them."""

from typing import Any

import pytest
from torch_programs import check

import headrace

torch = pytest.importorskip("torch")
NAN = float("nan")


def test_orders() -> None:
    functions: Any = {
        "sort": lambda x: x.sort(0),
        "sort down": lambda x: x.sort(descending=True),
        "sort equals": lambda x: x.round().sort(dim=1, descending=True, stable=True),
        "sort integers": lambda x: x.long().sort(dim=0, stable=True),
        "sort truth": lambda x: (x > 0).sort(dim=1, stable=True),
        "sort halves": lambda x: x.bfloat16().sort(stable=True),
        "argsort": lambda x: x.argsort(1),
        "topk": lambda x: x.topk(3),
        "topk of the least": lambda x: x.topk(2, 0, largest=False),
        "topk of none": lambda x: x.topk(0),
        "kthvalue": lambda x: x.kthvalue(2, 0),
        "kthvalue kept": lambda x: x.kthvalue(3, 1, keepdim=True),
        "median": lambda x: x.median(),
        "median along": lambda x: x.median(1),
        "median of integers": lambda x: x.long().median(),
        "nanmedian": lambda x: x.nanmedian(1, keepdim=True)[0],
        "msort": lambda x: x.msort(),
        "quantile": lambda x: x.quantile(0.3, 1),
        "scalar": lambda x: x.sum().sort(),
        "scalar topk": lambda x: x.sum().topk(1),
        "nothing": lambda x: x[:0].sort(0),
    }
    check(functions, torch.randn(5, 8))


def test_a_nan_is_the_largest() -> None:
    x = torch.tensor([[1.0, NAN, -2.0, 4.0, NAN], [3.0, 2.0, 1.0, 0.0, -1.0]])
    functions: Any = {
        "up": lambda x: x.sort(dim=1, stable=True),
        "down": lambda x: x.sort(dim=1, descending=True, stable=True),
        "topk": lambda x: x.topk(3)[0],
        "median": lambda x: x.median(1)[0],
        "nanmedian": lambda x: x.nanmedian(1),
        "median of all": lambda x: x.median(),
        "nanmedian of all": lambda x: x.nanmedian(),
    }
    check(functions, x)


def test_counts() -> None:
    line = torch.tensor([-1.0, 0.0, 0.0, 2.0])
    functions: Any = {
        "histc": lambda x: x.histc(4, -1, 1),
        "histc of its range": lambda x: x.histc(5),
        "histc of numbers": lambda x: x.round().histc(4, 0, 3),
        "bucketize": lambda x: torch.bucketize(x.round(), line),
        "bucketize right": lambda x: torch.bucketize(x.round(), line, right=True, out_int32=True),
        "searchsorted": lambda x: torch.searchsorted(x.sort(1)[0], x[:, :3]),
        "with a sorter": lambda x: torch.searchsorted(x, x[:, :3], side="right", sorter=x.argsort(1)),
    }
    check(functions, torch.randn(5, 8))


class Experts(torch.nn.Module):
    """Each token goes to its two best experts."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = torch.nn.Linear(8, 4)
        self.weight = torch.nn.Parameter(torch.randn(4, 8, 8))

    def forward(self, x: Any) -> Any:
        scores, chosen = self.gate(x).softmax(-1).topk(2)
        made = torch.einsum("nd,nkde->nke", x, self.weight[chosen])
        return (made * scores[..., None]).sum(1), chosen


def test_experts_on_a_device() -> None:
    torch.manual_seed(0)
    module, x = Experts(), torch.randn(6, 8)
    found, wanted = headrace.compile(module, example_inputs=(x,))(x), module(x)
    torch.testing.assert_close(found, tuple(wanted), rtol=1e-4, atol=1e-5)
