"""Mixtures of experts as transformers writes them: sorted by expert, computed run by run, put back in order."""

from collections.abc import Callable
from typing import Any

import pytest

import headrace
from headrace.frontends.torch import experts, export
from headrace.frontends.torch.program import lowered

torch: Any = pytest.importorskip("torch")
pytest.importorskip("transformers.integrations.moe", reason="experts are an op of transformers")

EXPERTS, CHOSEN, WIDTH, INNER = 5, 2, 8, 6


class Mixture(torch.nn.Module):
    """Routes, sorts, multiplies by group, and puts back. `act` is what happens to rows in between."""

    def __init__(self, act: Callable[..., Any], bias: bool = False, before: bool = False) -> None:
        torch.nn.Module.__init__(self)
        torch.manual_seed(0)
        self.act, self.before = act, before
        self.router = torch.nn.Linear(WIDTH, EXPERTS)
        self.up = torch.nn.Parameter(torch.randn(EXPERTS, 2 * INNER, WIDTH))
        self.down = torch.nn.Parameter(torch.randn(EXPERTS, INNER, WIDTH))
        self.bias = torch.nn.Parameter(torch.randn(EXPERTS, WIDTH)) if bias else None

    def forward(self, x: Any) -> Any:
        weights, index = torch.topk(self.router(x).softmax(-1), CHOSEN)
        expert, order = torch.sort(index.reshape(-1))
        rows, weights = x[order // CHOSEN], weights.reshape(-1)[order].unsqueeze(-1)
        ends = torch.histc(expert.float(), bins=EXPERTS, min=0, max=EXPERTS - 1).cumsum(0, dtype=torch.int32)
        product = torch.ops.transformers.grouped_mm_fallback
        rows = product(rows * weights if self.before else rows, self.up.transpose(1, 2), ends)
        rows = product(self.act(rows), self.down, ends)
        if self.bias is not None:
            rows = rows + self.bias[expert]
        rows = rows if self.before else rows * weights
        back = torch.empty_like(order)
        back[order] = torch.arange(order.shape[0])
        return rows[back].view(x.shape[0], CHOSEN, WIDTH).sum(1)


def gated(rows: Any) -> Any:
    gate, up = rows.chunk(2, -1)
    return torch.nn.functional.silu(gate) * up


def clamped(rows: Any) -> Any:
    gate, up = rows[:, ::2].clamp(max=1.0), rows[..., 1::2].clamp(-1.0, 1.0)
    return gate * torch.sigmoid(gate * 1.7) * (up + 1)


def squared(rows: Any) -> Any:
    return rows[:, :INNER].relu() ** 2 / 3


MIXTURES: dict[str, Callable[[], Any]] = {
    "gated": lambda: Mixture(gated),
    "with biases": lambda: Mixture(clamped, bias=True),
    "weighted before": lambda: Mixture(squared, before=True),
}


@pytest.mark.parametrize("tokens", [1, 2, 3, 7])  # as many rows as experts or fewer, and more
@pytest.mark.parametrize("name", MIXTURES)
def test_nothing_is_sorted(name: str, tokens: int) -> None:
    module, x = MIXTURES[name]().eval(), torch.randn(tokens, WIDTH)
    program = lowered(export(module, (x,)))
    assert experts.unsort(program.graph) == 1
    kinds = {str(node.target) for node in program.graph.nodes}
    assert not any("sort" in kind or "grouped" in kind or "histc" in kind for kind in kinds)
    with torch.no_grad():
        torch.testing.assert_close(program.module()(x), module(x), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(headrace.compile(program)(x), module(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("tokens", [12, 20, 33])
@pytest.mark.parametrize("name", MIXTURES)
def test_many_rows_go_in_blocks(name: str, tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With blocks of some rows, of which experts have none, some or all."""
    monkeypatch.setattr(experts, "ROWS_PER_READ", 1)
    module, x = MIXTURES[name]().eval(), torch.randn(tokens, WIDTH)
    with torch.no_grad():
        module.router.bias.copy_(torch.tensor([2.0, -9.0, 0.0, 0.5, 0.0]))  # one is crowded, one has nobody
        program = lowered(export(module, (x,)))
        assert experts.unsort(program.graph) == 1
        kinds = [str(node.target) for node in program.graph.nodes]
        assert not any("sort" in kind or "grouped" in kind or "histc" in kind for kind in kinds)
        assert "aten.index_put.default" in kinds  # rows are put where they belong
        torch.testing.assert_close(program.module()(x), module(x), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(headrace.compile(program)(x), module(x), rtol=1e-4, atol=1e-5)


def test_dispatch_is_by_what_it_costs() -> None:
    def how(tokens: int, chosen: int, count: int) -> tuple[str, int]:
        found = experts._Mixture(None, None)
        found.tokens, found.chosen, found.experts = tokens, chosen, count
        found._decide()
        return found.how, found.block * found.blocks if found.how == "blocks" else 0

    assert how(1, 8, 256)[0] == "slots"
    assert how(64, 8, 256)[0] == "dense"  # every matrix is read in any case
    kind, rows = how(4096, 8, 256)
    assert kind == "blocks" and rows <= 3 * 4096 * 8  # dense rows are 32 times those that count


def test_what_a_token_did_not_choose_counts_for_nothing() -> None:
    module = Mixture(gated).eval()
    with torch.no_grad():
        module.router.weight.zero_()
        module.router.bias.copy_(torch.tensor([0.0, 1.0, 2.0, -1.0, 0.5]))
        module.up[0], module.down[4] = float("inf"), float("nan")  # nobody goes there
        x = torch.randn(4, WIDTH)
        wanted = module(x)
        assert wanted.isfinite().all()
        torch.testing.assert_close(headrace.compile(module, example_inputs=(x,))(x), wanted, rtol=1e-4, atol=1e-5)


class Other(Mixture):
    """Something happens that depends on the order."""

    def forward(self, x: Any) -> Any:
        weights, index = torch.topk(self.router(x).softmax(-1), CHOSEN)
        expert, order = torch.sort(index.reshape(-1))
        rows = x[order // CHOSEN]
        ends = torch.histc(expert.float(), bins=EXPERTS, min=0, max=EXPERTS - 1).cumsum(0, dtype=torch.int32)
        rows = torch.ops.transformers.grouped_mm_fallback(rows, self.up.transpose(1, 2), ends)
        back = torch.empty_like(order)
        back[order] = torch.arange(order.shape[0])
        return rows.cumsum(0)[back], weights


def test_what_depends_on_the_order_is_left() -> None:
    module, x = Other(gated).eval(), torch.randn(4, WIDTH)
    program = lowered(export(module, (x,)))
    assert experts.unsort(program.graph) == 0
    assert experts.GROUPED[0] in {str(node.target).replace("::", ".") for node in program.graph.nodes}
    with torch.no_grad():
        found, wanted = headrace.compile(program)(x), module(x)
    torch.testing.assert_close(found[0], wanted[0], rtol=1e-4, atol=1e-5)
