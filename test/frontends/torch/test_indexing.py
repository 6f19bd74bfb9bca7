"""Elements looked up and written, as PyTorch does."""

from typing import Any

import pytest
from torch_programs import check

import headrace

torch = pytest.importorskip("torch")
aten: Any = torch.ops.aten

X, INDEX = torch.randn(4, 5, generator=torch.Generator().manual_seed(0)), torch.tensor([[0, 2, 1], [3, 3, 0]])


def test_looked_up() -> None:
    functions: Any = {
        "gather": lambda x, i: x.gather(0, i),
        "gather of nothing": lambda x, i: x.gather(0, i[:0]),
        "gather a scalar": lambda x, i: x[0, 0].gather(0, i[0, 0] * 0),
        "index_select": lambda x, i: x.index_select(1, i[0]),
        "index_select a scalar": lambda x, i: x.sum().index_select(0, i[:1, 0]),
        "take": lambda x, i: x.take(i),
        "take a scalar": lambda x, i: x.take(-i[0, 1]),
        "row at a position": lambda x, i: x[i[0, 1]] + x[:, -i[1, 0]].sum(),
        "take_along_dim": lambda x, i: x[:, :3].take_along_dim(i, 0),
        "embedding": lambda x, i: torch.nn.functional.embedding(i.int(), x, padding_idx=1),
        "index": lambda x, i: x[i, i],
        "index rows": lambda x, i: x[i[0]],
        "index inside": lambda x, i: x[:, None][:, :, i],
        "masked_scatter": lambda x, i: x.masked_scatter(x > 0, torch.arange(20.0)),
        "masked_fill": lambda x, i: x.masked_fill(x > 0, -1.0),
        "where": lambda x, i: torch.where(x > 0, x, 1.0),
        "repeated": lambda x, i: torch.repeat_interleave(x[:, :3], i[0], 1, output_size=3),
    }
    check(functions, X, INDEX)


def test_written() -> None:
    part = torch.arange(1.0, 16.0).reshape(3, 5)
    functions: Any = {
        "scatter": lambda x, i: x.scatter(0, i, part),
        "scatter a number": lambda x, i: x.scatter(1, i, 2.5),
        "scatter and multiply": lambda x, i: x.scatter(0, i, part, reduce="multiply"),
        "scatter and add a number": lambda x, i: x.scatter(0, i, 2, reduce="add"),
        "scatter_add": lambda x, i: x.scatter_add(0, i, part),
        "scatter truth": lambda x, i: (x > 0).scatter_add(0, i, torch.ones(2, 3, dtype=torch.bool)),
        "scatter nothing": lambda x, i: x.scatter(0, i[:0], part),
        "scatter a scalar": lambda x, i: x.sum().scatter(0, i[0, 0] * 0, 3.0),
        "put": lambda x, i: x.put(i, part[:2, :3]),
        "put and add": lambda x, i: x.put(i, part[:2, :3], accumulate=True),
        "truth added": lambda x, i: (x > 0).index_put((i,), part[:1] > 2, accumulate=True),
        "truth put and added": lambda x, i: (x > 0).put(i, part[:2, :3] > 2, accumulate=True),
        "index_add": lambda x, i: x.index_add(0, i[0], part, alpha=2),
        "index_copy": lambda x, i: x.index_copy(0, i[0], part),
        "index_fill": lambda x, i: x.index_fill(1, i[0], 7.0),
    }
    for reduce in ("sum", "prod", "mean", "amax", "amin"):
        for include in (True, False):
            functions[f"{reduce} {include}"] = lambda x, i, r=reduce, s=include: x.scatter_reduce(
                0, i, part, r, include_self=s
            )
            if reduce != "sum":
                functions[f"rows {reduce} {include}"] = lambda x, i, r=reduce, s=include: x.index_reduce(
                    0, i[1], part, r, include_self=s
                )
    functions["mean of integers"] = lambda x, i: x.long().scatter_reduce(0, i, -part.long(), "mean")
    functions["greatest integer"] = lambda x, i: x.long().scatter_reduce(0, i, -part.long(), "amax", include_self=False)
    check(functions, X, INDEX)


def test_written_where_a_mask_is_true() -> None:
    """The mask is computed; there are as many values as elements where it is true, or one for all of them."""
    mask = X > 0
    rows = mask[:, 0]
    many = torch.arange(1.0, 1 + int(mask.sum()))
    some = torch.arange(1.0, 1 + 5 * int(rows.sum())).reshape(-1, 5)
    functions: Any = {
        "one value": lambda x, i: x.index_put((x > 0,), torch.tensor(3.0)),
        "one value, added": lambda x, i: x.index_put((x > 0,), torch.tensor(3.0), accumulate=True),
        "values in order": lambda x, i: x.index_put((x > 0,), many),
        "values in order, added": lambda x, i: x.index_put((x > 0,), many, accumulate=True),
        "rows": lambda x, i: x.index_put((x[:, 0] > 0,), some),
        "one row": lambda x, i: x.index_put((x[:, 0] > 0,), some[0], accumulate=True),
        "one element of each row": lambda x, i: x.index_put((x[:, 0] > 0,), some[:, :1]),
        "truth": lambda x, i: (x > 1).index_put((x[:, 0] > 0,), some[:1] > 2, accumulate=True),
    }
    check(functions, X, INDEX)


@pytest.mark.parametrize("rows", [3, 9])
@pytest.mark.parametrize("last", [0, 2])
def test_rows_times_the_matrix_of_their_group(rows: int, last: int) -> None:
    """With fewer rows than groups, and more; the last rows may belong to none."""
    pytest.importorskip("transformers.integrations.moe")
    product: Any = torch.ops.transformers.grouped_mm_fallback
    ends = torch.tensor([0, 1, 1, rows - last])
    check({"product": product}, torch.randn(rows, 5), torch.randn(4, 5, 6), ends, rtol=1e-5, atol=1e-5)


class Cache(torch.nn.Module):
    """Writes a row of each head at a position, and reads all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(1, 2, 8, 4))

    def forward(self, x: Any, position: Any) -> Any:
        self.rows.index_copy_(2, position, x)
        return self.rows.sum(2)


def test_a_cache_is_written_in_place() -> None:
    module, reference = Cache(), Cache()
    x = torch.randn(1, 2, 1, 4)
    executable = headrace.compile(module, example_inputs=(x, torch.tensor([0])))
    for position in (3, 0, 3):
        given = torch.randn(1, 2, 1, 4), torch.tensor([position])
        torch.testing.assert_close(executable(*given), reference(*given))
