"""Elements at positions, read and written, as PyTorch does."""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false

from collections.abc import Callable
from typing import Any

import pytest

import headrace
from headrace import CompileError

torch = pytest.importorskip("torch")
aten: Any = torch.ops.aten

CASES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "index one": lambda x, i, j: x[:, i],
    "index neighbours": lambda x, i, j: x[:, i, j],
    "index apart": lambda x, i, j: x[:, i, :, j],
    "put": lambda x, i, j: x.index_put((i, j), torch.zeros(())),
    "put and add": lambda x, i, j: x.index_put((i, j), torch.ones(2, 3, 5, 6), accumulate=True),
    "put inside": lambda x, i, j: aten.index_put(x, [None, i], torch.ones(3, 5, 6)),
    "put apart": lambda x, i, j: aten.index_put(x, [None, i, None, j], torch.ones(2, 3, 3, 5)),
    "put masked": lambda x, i, j: aten.index_put(x, [x > 0], torch.tensor(2.0)),
    "put masked rows": lambda x, i, j: aten.index_put(x, [i > 0], torch.ones(6)),
    "flip": lambda x, i, j: x.flip(0, -1),
    "repeat": lambda x, i, j: i.repeat(2, 3),
    "part": lambda x, i, j: torch.slice_scatter(x, torch.zeros(3, 2, 5, 6), 1, 1, 3),
    "part with steps": lambda x, i, j: torch.slice_scatter(x, torch.zeros(3, 2, 5, 6), 1, 1, None, 2),
    "copy": lambda x, i, j: x.clone().copy_(i[:, None, None, None].expand(3, 4, 5, 6)),
}


class Calls(torch.nn.Module):
    """Calls a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *given: Any) -> Any:
        return self.function(*given)


@pytest.mark.parametrize("name", CASES)
def test_positions_are_pytorchs(name: str) -> None:
    torch.manual_seed(0)
    given = torch.randn(3, 4, 5, 6), torch.tensor([0, -1, 2]), torch.tensor([[1], [0]])
    found = headrace.compile(Calls(CASES[name]), example_inputs=given)(*given)
    torch.testing.assert_close(found, CASES[name](*given))


def test_a_mask_of_unknown_count_beside_an_index_is_refused() -> None:
    given = torch.randn(3, 4), torch.tensor([0, 2])
    with pytest.raises(CompileError, match=r"torch\.where"):
        headrace.compile(Calls(lambda x, i: aten.index_put(x, [x[:, 0] > 0, i], x[0, :2])), example_inputs=given)
