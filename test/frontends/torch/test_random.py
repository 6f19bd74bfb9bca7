"""Random numbers of a module: distributions, dropout, and a state that is threaded. Seeds are fixed, so nothing here
depends on luck; bounds are those that one stream in thousands misses."""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportAttributeAccessIssue=false

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import headrace
from headrace import CompileError
from headrace.dialects.tensor.interpreter import run_function

library = pytest.importorskip("torch")
torch: Any = library
nn: Any = torch.nn


class Draw(nn.Module):
    """A function of x, as a module."""

    def __init__(self, f: Callable[[Any], Any]) -> None:
        super().__init__()
        self.f = f

    def forward(self, x: Any) -> Any:
        return self.f(x)


def made(f: Any, x: Any = None, seed: int = 0) -> Any:
    module = f if isinstance(f, nn.Module) else Draw(f)
    return headrace.compile(module.train(), example_inputs=(torch.zeros(2) if x is None else x,), seed=seed)


def drawn(f: Any, x: Any = None, seed: int = 0) -> Any:
    x = torch.zeros(2) if x is None else x
    return made(f, x, seed)(x)


def differs(sample: Any, distribution: Callable[[Any], Any]) -> float:
    """Kolmogorov and Smirnov's distance from a distribution, times √n: above 2 once in 3000 samples."""
    x = np.sort(np.asarray(sample, np.float64).ravel())
    steps = np.arange(x.size + 1) / x.size
    at = np.asarray(distribution(x))
    return float(max((steps[1:] - at).max(), (at - steps[:-1]).max()) * math.sqrt(x.size))


def phi(x: Any) -> Any:
    return 0.5 * (1 + np.array([math.erf(v / math.sqrt(2)) for v in x]))


CONTINUOUS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "rand": (lambda x: torch.rand(128, 64), lambda v: v),
    "rand-odd": (lambda x: torch.rand(37, 3, 17), lambda v: v),
    "rand-f64": (lambda x: torch.rand(100, 30, dtype=torch.float64), lambda v: v),
    "rand-long": (lambda x: torch.rand(9001), lambda v: v),
    "uniform": (lambda x: torch.empty(3000).uniform_(-1, 3), lambda v: (v + 1) / 4),
    "randn": (lambda x: torch.randn(64, 64), phi),
    "randn-f64": (lambda x: torch.randn(3000, dtype=torch.float64), phi),
    "normal": (lambda x: torch.empty(3000).normal_(2, 3), lambda v: phi((v - 2) / 3)),
    "normal-tensors": (lambda x: torch.normal(torch.full((3000,), -1.0), torch.tensor(0.5)), lambda v: phi(2 * v + 2)),
    "exponential": (lambda x: torch.empty(3000).exponential_(2), lambda v: 1 - np.exp(-2 * v)),
    "cauchy": (lambda x: torch.empty(3000).cauchy_(1, 2), lambda v: np.arctan((v - 1) / 2) / math.pi + 0.5),
    "log_normal": (lambda x: torch.empty(3000).log_normal_(0, 1), lambda v: phi(np.log(v))),
}


@pytest.mark.parametrize("name", CONTINUOUS)
def test_numbers_are_distributed_as_they_should_be(name: str) -> None:
    draw, distribution = CONTINUOUS[name]
    exe = made(draw)
    first, second = exe(torch.zeros(2)), exe(torch.zeros(2))
    want = draw(torch.zeros(2))
    assert (first.shape, first.dtype) == (want.shape, want.dtype)
    assert differs(first, distribution) < 2
    assert differs(second, distribution) < 2
    a, b = (np.argsort(np.argsort(v.numpy().ravel())) for v in (first, second))
    assert abs(np.corrcoef(a, b)[0, 1]) * math.sqrt(a.size) < 4  # of one run and the next
    assert abs(np.corrcoef(a[:-1], a[1:])[0, 1]) * math.sqrt(a.size) < 4  # of neighbours


@pytest.mark.parametrize(("dtype", "digits"), [("float32", 24), ("float64", 53), ("float16", 11), ("bfloat16", 8)])
def test_uniform_numbers_are_multiples_of_one_step(dtype: str, digits: int) -> None:
    found = drawn(lambda x: torch.rand(64, 64, dtype=getattr(torch, dtype))).double() * 2.0**digits
    assert torch.equal(found, found.round())
    assert found.min() >= 0
    assert found.max() < 2.0**digits
    assert found.unique().numel() > 0.8 * min(4096, 2**digits)


COUNTS: dict[str, tuple[Callable[[Any], Any], list[float]]] = {
    "randint": (lambda x: torch.randint(-2, 3, (5000,)), [0.2] * 5),
    "randint_like": (lambda x: torch.randint_like(torch.zeros(5000), 4) - 2, [0.25] * 4 + [0]),
    "random": (lambda x: torch.empty(5000).random_(2) - 1, [0, 0.5, 0.5, 0, 0]),
    "bernoulli": (lambda x: torch.bernoulli(torch.zeros(5000), 0.3), [0, 0, 0.7, 0.3, 0]),
    "bernoulli-tensor": (lambda x: torch.bernoulli(torch.full((5000,), 0.3)), [0, 0, 0.7, 0.3, 0]),
    "bernoulli-always": (lambda x: torch.zeros(5000).bernoulli_(1.0), [0, 0, 0, 1, 0]),
    "geometric": (lambda x: torch.empty(5000).geometric_(0.5).clamp(max=4) - 2, [0, 0.5, 0.25, 0.125, 0.125]),
}


@pytest.mark.parametrize("name", COUNTS)
def test_integers_come_as_often_as_they_should(name: str) -> None:
    draw, often = COUNTS[name]
    found, want = drawn(draw), draw(torch.zeros(2))
    assert (found.shape, found.dtype) == (want.shape, want.dtype)
    share = [(found == k).float().mean().item() for k in range(-2, 3)]
    assert sum(share) == pytest.approx(1)
    for a, p in zip(share, often, strict=True):
        assert abs(a - p) <= 4 * math.sqrt(p * (1 - p) / 5000)


@pytest.mark.parametrize("repeated", [True, False])
def test_positions_are_as_likely_as_their_weights(repeated: bool) -> None:
    weights = torch.tensor([0.0, 1.0, 2.0, 5.0, 0.0, 2.0])
    shape = (3, 2000) if repeated else (3000, 1)
    found = drawn(lambda w: torch.multinomial(w, shape[1], repeated), weights.expand(shape[0], 6))
    assert (found.shape, found.dtype) == (shape, torch.int64)
    for k, p in enumerate((weights / 10).tolist()):
        share = (found == k).float().mean().item()
        assert abs(share - p) <= 4 * math.sqrt(p * (1 - p) / found.numel())
    all_four = drawn(lambda w: torch.multinomial(w, 4), weights)
    assert sorted(all_four.tolist()) == [1, 2, 3, 5]


def test_large_integers_use_every_bit() -> None:
    found = drawn(lambda x: torch.randint(-(2**62), 2**62, (4096,)))
    assert ((found >= -(2**62)) & (found < 2**62)).all()
    assert differs(found.double() / 2.0**63 + 0.5, lambda v: v) < 2
    assert differs((found % 2**20).double() / 2.0**20, lambda v: v) < 2


def test_a_permutation_has_every_index() -> None:
    exe = made(lambda x: torch.randperm(300))
    first, second = exe(torch.zeros(2)), exe(torch.zeros(2))
    assert torch.equal(first.sort().values, torch.arange(300))
    assert torch.equal(second.sort().values, torch.arange(300))
    assert (first != second).sum() > 250


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("shape", [(64, 128), (7, 11, 13)])
def test_dropout_keeps_and_scales(p: float, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape)
    y = drawn(nn.Dropout(p), x)
    kept = y != 0
    torch.testing.assert_close(y[kept], x[kept] / (1 - p if p < 1 else 1))
    assert abs(kept.float().mean().item() - (1 - p)) <= 4 * math.sqrt(p * (1 - p) / x.numel())


CHANNELS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "dropout1d": (nn.Dropout1d(0.5), (40, 50, 3)),
    "dropout2d": (nn.Dropout2d(0.5), (40, 50, 2, 3)),
    "dropout3d": (nn.Dropout3d(0.5), (40, 50, 2, 2, 2)),
}


@pytest.mark.parametrize("name", CHANNELS)
def test_channels_are_dropped_whole(name: str) -> None:
    module, shape = CHANNELS[name]
    y = drawn(module, torch.ones(shape)).reshape(40 * 50, -1)
    assert ((y == 0).all(1) | (y == 2).all(1)).all()
    assert abs((y[:, 0] == 0).float().mean().item() - 0.5) < 4 * 0.5 / math.sqrt(2000)


@pytest.mark.parametrize("name", ["AlphaDropout", "FeatureAlphaDropout"])
def test_alpha_dropout_keeps_mean_and_variance(name: str) -> None:
    y = drawn(getattr(nn, name)(0.3), torch.randn(100, 80, generator=torch.Generator().manual_seed(0)))
    assert abs(y.mean().item()) < 0.05
    assert abs(y.var().item() - 1) < 0.1


def test_random_slopes_lie_between_their_bounds() -> None:
    y = drawn(nn.RReLU(0.2, 0.6), torch.cat([-torch.ones(2000), torch.ones(10)]))
    assert differs(-y[:2000], lambda v: (v - 0.2) / 0.4) < 2
    assert (y[2000:] == 1).all()


def test_attention_drops_weights() -> None:
    """Of values that are one, the result is the sum of what is kept of the weights, whose mean stays."""
    x = torch.randn(8, 4, 32, 16)
    attention = nn.functional.scaled_dot_product_attention
    y = drawn(lambda q: attention(q * 0, q, torch.ones_like(q), dropout_p=0.25), x)[..., 0]
    kept = y * 32 * 0.75
    torch.testing.assert_close(kept, kept.round(), atol=1e-3, rtol=0)
    assert abs(y.mean().item() - 1) < 4 * math.sqrt(0.25 / 0.75 / (8 * 4 * 32 * 32))
    y = drawn(lambda q: attention(q, q, q, dropout_p=0.25, is_causal=True), x)
    assert torch.equal((y[:, :, 0] == 0).all(-1), (y[:, :, 0] == 0).any(-1))  # the first sees itself or nothing


class Net(nn.Module):
    """Several draws beside a buffer that changes."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 24)
        self.norm = nn.BatchNorm1d(24)
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Any) -> Any:
        y = self.drop(self.norm(self.first(x)))
        return self.drop(y) + torch.rand(24), torch.randn_like(x)


def test_the_state_is_threaded() -> None:
    """Runs in a row draw other numbers, a state that is set draws the same again; so does the artifact."""
    x = torch.randn(6, 8)
    exe = made(Net(), x, seed=5)
    runs = [exe(x) for _ in range(3)]
    assert not torch.equal(runs[0][0], runs[1][0])
    assert not torch.equal(runs[0][1], runs[1][1])
    state = exe.state()
    counter, upper, key = state["rng"].tolist()
    assert (upper, key) == (0, 5)
    assert counter % 3 == 0
    assert counter // 3 >= (2 * 6 * 24 + 24 + 2 * 48) // 4
    exe.reset()
    for run in runs:
        for a, b in zip(exe(x), run, strict=True):
            assert torch.equal(a, b)
    exe.reset({"rng": np.array([counter // 3, 0, 5], np.uint64)})
    torch.testing.assert_close(exe(x)[1], runs[1][1])
    exe.reset(seed=6)
    assert not torch.equal(exe(x)[1], runs[0][1])


def test_every_level_draws_the_same_numbers(tmp_path: Any) -> None:
    """The imported program in the interpreter, the artifact, and the artifact tile by tile."""
    from headrace.compiler import import_model

    x = torch.randn(6, 8)
    imported = import_model(Net().train(), example_inputs=(x,), seed=5)
    module, store, call = imported.module, imported.store, imported.call
    assert call is not None
    state = {name: load() for name, load in call.initial.items()}
    expected = run_function(module, "main", {"x": x.numpy(), **state}, store)
    exe = made(Net(), x, seed=5)
    exe.save(tmp_path / "net.sn")
    for literal in (False, True):
        loaded = headrace.load(tmp_path / "net.sn", literal=literal)
        for _ in range(2):
            found = loaded({"x": x.numpy()})
        loaded.reset()
        found = loaded({"x": x.numpy()})
        second = [name for name in found if found[name].shape == (6, 8)]
        np.testing.assert_array_equal(loaded.state()["rng"], expected["rng.next"])
        np.testing.assert_allclose(found[second[0]], expected[second[0]], rtol=1e-6)


def test_draws_of_one_program_are_apart() -> None:
    """No word is drawn twice: of 2¹⁷ multiples of 2⁻⁵³ no two are equal."""
    found = drawn(
        lambda x: [torch.rand(n, dtype=torch.float64) for n in (3, 4097, 64000)] + [torch.rand(251, 253).double()]
    )
    every = torch.cat([v.reshape(-1) for v in found[:3]])
    assert every.unique().numel() == every.numel()


def test_a_module_that_draws_needs_a_seed() -> None:
    x = torch.zeros(2, 3)
    with pytest.raises(CompileError, match="draws random numbers") as error:
        headrace.compile(nn.Dropout(0.5).train(), example_inputs=(x,))
    assert "model.eval()" in str(error.value)
    assert torch.equal(headrace.compile(nn.Dropout(0.5).eval(), example_inputs=(x + 1,))(x + 1), x + 1)


class Named(nn.Module):
    """Has a buffer of the state's name, which it changes."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rng", torch.zeros(2))

    def forward(self, x: Any) -> Any:
        self.rng.add_(1)
        return torch.rand(2) + self.rng + x


def test_a_buffer_may_have_the_name_of_the_state() -> None:
    exe = made(Named(), seed=7)
    assert (exe(torch.zeros(2)) >= 1).all()
    assert (exe(torch.zeros(2)) >= 2).all()
    assert exe.state()["rng"].tolist() == [2, 2]
    assert exe.state()["rng'"].tolist() == [2, 0, 7]


def test_empty_tensors_are_drawn() -> None:
    assert drawn(lambda x: torch.rand(2, 0)).shape == (2, 0)
    assert drawn(lambda x: torch.randn(())).shape == ()
