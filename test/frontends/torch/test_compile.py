"""`torch.compile(backend="headrace")`: inference, training, shapes and mistakes."""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false

from collections.abc import Callable
from typing import Any

import pytest

from headrace import CompileError
from headrace.dynamo import backend

library = pytest.importorskip("torch")
torch: Any = library
nn: Any = torch.nn


def compiled(model: Any, **options: Any) -> Any:
    return torch.compile(model, backend=backend, **options)


class Attention(nn.Module):
    """One head."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.register_buffer("scale", torch.tensor(0.5))

    def forward(self, x: Any) -> Any:
        q, k, v = self.qkv(x).chunk(3, -1)
        return nn.functional.scaled_dot_product_attention(q, k, v) * self.scale


def perceptron() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(12, 16), nn.GELU(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4))


def test_inference_reads_weights_until_they_change() -> None:
    torch.manual_seed(0)
    model, x = Attention().eval(), torch.randn(2, 6, 16)
    function = compiled(model, dynamic=False)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(function(x), model(x), rtol=1e-4, atol=1e-5)
            model.qkv.weight.mul_(2)


def test_each_shape_is_a_program() -> None:
    model = perceptron()
    function = compiled(model)
    for rows in (2, 3, 5, 3):  # PyTorch makes sizes symbols at the second
        x = torch.randn(rows, 12)
        torch.testing.assert_close(function(x), model(x), rtol=1e-4, atol=1e-5)


def test_training_follows_pytorch() -> None:
    torch.manual_seed(1)
    x, y = torch.randn(8, 12), torch.randint(0, 4, (8,))
    losses: list[list[float]] = []
    for compile in (False, True):
        model = perceptron()
        called = compiled(model, dynamic=False) if compile else model
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        losses.append([])
        for _ in range(5):
            loss = nn.functional.cross_entropy(called(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses[-1].append(loss.item())
    assert losses[0][0] - losses[0][-1] > 0.01
    assert losses[1] == pytest.approx(losses[0], abs=1e-5)


class Windows(nn.Module):
    """Windows that shrink and grow planes, of uneven sizes; norms over groups, over planes and over a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(2, 8, 3, stride=2, groups=2, padding=1, padding_mode="replicate")
        self.up = nn.ConvTranspose2d(8, 4, 3, stride=2, groups=2, output_padding=1)
        self.group, self.batch, self.layer = nn.GroupNorm(2, 8), nn.BatchNorm2d(4), nn.LayerNorm([5, 4])

    def forward(self, x: Any) -> Any:
        y = nn.functional.silu(self.group(self.down(x)))
        y = nn.functional.interpolate(nn.functional.avg_pool2d(y, 3, 2, 1), scale_factor=1.5, mode="bilinear")
        y = self.layer(nn.functional.adaptive_avg_pool2d(self.batch(self.up(y)), (5, 4)))
        return nn.functional.adaptive_max_pool2d(nn.functional.max_pool2d(y, 2, 1), (2, 2))


def test_windows_are_trained() -> None:
    torch.manual_seed(0)
    x, model = torch.randn(2, 2, 10, 8), Windows()
    twin = Windows()
    twin.load_state_dict(model.state_dict())
    for called, owner in ((model, model), (compiled(twin, dynamic=False), twin)):
        y = called(x)
        (y * torch.arange(y.numel()).reshape(y.shape).cos()).sum().backward()
        assert owner.up.weight.grad is not None
    for (name, given), expected in zip(twin.named_parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(given.grad, expected.grad, rtol=1e-3, atol=1e-4, msg=lambda text, n=name: n + text)
    torch.testing.assert_close(twin.batch.running_var, model.batch.running_var, rtol=1e-4, atol=1e-5)


OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=1e-2),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=1e-2),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
}


def train(make: Callable[[Any], Any], seed: int) -> tuple[list[float], Any]:
    """The losses of a classifier with dropout and batch norm that is compiled, and the model."""
    torch.manual_seed(seed)
    model = nn.Sequential(
        *(nn.Linear(16, 64), nn.GELU(), nn.Dropout(0.3)),
        *(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 4)),
    ).train()
    function = compiled(model, dynamic=False)
    x = torch.randn(32, 16)
    y = x[:, :4].argmax(1)
    optimizer = make(model.parameters())
    losses: list[float] = []
    for _ in range(20):
        loss = nn.functional.cross_entropy(function(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, model


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_model_with_dropout_learns(name: str) -> None:
    """And learns the same after the same seed; another seed drops other elements."""
    losses, model = train(OPTIMIZERS[name], 0)
    assert losses[-1] < 0.3 * losses[0]
    assert model[4].num_batches_tracked == 20
    assert model[4].running_mean.abs().min() > 0
    if name == "adam":
        assert train(OPTIMIZERS[name], 0)[0] == losses
        assert train(OPTIMIZERS[name], 1)[0] != losses


def test_gradients_go_through_the_mask_of_the_forward_pass() -> None:
    """The slope along a line, between two calls of one seed, is what the gradient says."""
    torch.manual_seed(0)
    attention = Attention().train()

    def dropped(x: Any) -> Any:
        q, k, v = attention.qkv(x).chunk(3, -1)
        y = nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=0.4, is_causal=True)
        return nn.functional.dropout(y, 0.5).sum()

    function = compiled(dropped, dynamic=False)
    x, line = torch.randn(2, 8, 16), torch.randn(2, 8, 16)

    def at(t: float) -> Any:
        torch.manual_seed(1)
        given = (x + t * line).requires_grad_()
        return given, function(given)

    given, y = at(0.0)
    y.backward()
    slope = (at(0.01)[1] - at(-0.01)[1]).item() / 0.02
    assert slope == pytest.approx((given.grad * line).sum().item(), rel=1e-2)


def test_random_numbers_follow_the_seed_of_pytorch() -> None:
    function = compiled(lambda x: (torch.rand_like(x), torch.randn(5)), dynamic=False)
    x = torch.zeros(3, 4)
    torch.manual_seed(0)
    first, second = function(x), function(x)
    torch.manual_seed(0)
    again = function(x)
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])
    assert not torch.equal(first[0], second[0])


def test_mistakes_are_explained() -> None:
    x = torch.randn(2, 4)
    with pytest.raises(CompileError, match=r"test_compile\.py:\d+\): aten._linalg_eigh"):
        compiled(lambda a: torch.linalg.eigh(a)[0])(torch.eye(3))
    with pytest.raises(Exception, match="no option 'devise'"):
        compiled(lambda a: a + 1, options={"devise": "sn40l"})(x)


def test_the_backend_is_found_by_name() -> None:
    import tomllib
    from importlib import import_module
    from pathlib import Path

    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    module, _, name = project["entry-points"]["torch_dynamo_backends"]["headrace"].partition(":")
    assert getattr(import_module(module), name) is backend
