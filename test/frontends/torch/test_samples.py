"""Kinds of operands that PyTorch's own samples of its ops have, through the whole compiler, the runtime and an
artifact."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch")
from torch_programs import Calls  # noqa: E402

import headrace  # noqa: E402
from headrace import CompileError  # noqa: E402

F: Any = torch.nn.functional
X = torch.tensor([[0.5, -2.0, 3.0], [-0.0, 1.5, -7.0]])
OPERANDS: dict[str, Any] = {
    "matrix": X,
    "scalar": torch.tensor(-1.5),
    "no rows": torch.zeros(0, 3),
    "no columns": torch.zeros(2, 0),
    "transposed": X.t(),
    "every other": torch.arange(12.0).reshape(2, 6)[:, 1::2] - 5,
    "expanded": torch.tensor([[2.0], [-3.0]]).expand(2, 3),
    "integers": X.long(),
    "small integers": X.abs().to(torch.uint8),
    "truth": X > 0,
}
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "itself": lambda x: x,
    "arithmetic": lambda x: x * 2 + x,
    "quotient": lambda x: x / 4,
    "compared": lambda x: x > 0,
    "chosen": lambda x: torch.where(x > 0, x, x * 0),
    "sum": torch.sum,
    "sum along": lambda x: x.sum(-1, keepdim=True),
    "product": torch.prod,
    "any": torch.any,
    "all along": lambda x: torch.all(x, -1),
    "running": lambda x: torch.cumsum(x, -1),
    "order": lambda x: torch.sort(x, -1),
    "flat": torch.ravel,
    "flipped": lambda x: x.flip(0) if x.dim() else x,
    "turned": lambda x: x.mT if x.dim() else x.T,
    "joined": lambda x: torch.stack((x, x), -1),
    "parts": lambda x: torch.chunk(x, 2, -1) if x.dim() else (x,),
    "repeated": lambda x: x.repeat(2, 1, 2),
    "looked up": lambda x: x[..., [0, 0]] if x.dim() and x.shape[-1] else x,
    "written": lambda x: torch.fill(x, 1),
    "exp": torch.exp,
    "softmax": lambda x: torch.softmax(x, -1, dtype=torch.float32),
    "gram": lambda x: x.float() @ x.float().mT if x.dim() else x,
}


@pytest.mark.parametrize("name", OPERANDS)
def test_operands_of_every_kind(name: str, tmp_path: Any) -> None:
    """In this process and from an artifact, elements and types are PyTorch's."""
    x = OPERANDS[name]
    module = Calls(FUNCTIONS)
    want = module(x)
    executable = headrace.compile(module, example_inputs=(x,))
    got = executable(x)
    for key, y in want.items():
        torch.testing.assert_close(got[key], y, msg=lambda text, key=key: f"{key}: {text}", check_stride=False)
    executable.save(tmp_path / "m.sn")
    loaded = headrace.load(tmp_path / "m.sn")
    again = loaded({"inputs_0": x.numpy()})
    for a, b in zip(torch.utils._pytree.tree_leaves(got), again.values(), strict=True):
        np.testing.assert_array_equal(a.numpy(), b)


WINDOWS: dict[str, Callable[[Any], Any]] = {
    "largest": lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True),
    "largest of uneven windows": lambda x: F.adaptive_max_pool2d(x, (2, 3), return_indices=True),
    "put back": lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2, output_size=(5, 6)),
    "means": lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
    "means of uneven windows": lambda x: F.adaptive_avg_pool2d(x, (2, 4)),
    "convolution": lambda x: F.conv2d(x, torch.ones(2, 3, 2, 2), padding=1),
    "transposed": lambda x: F.conv_transpose2d(x, torch.ones(3, 2, 2, 2), stride=2),
    "around": lambda x: F.pad(x, (2, -1, 1, 0), mode="replicate"),
    "bigger": lambda x: F.interpolate(x, scale_factor=1.5, mode="bilinear"),
    "distances": lambda x: F.pdist(x.reshape(-1, 6)),
}


@pytest.mark.parametrize("batch", [(2,), (0,), ()])
def test_windows_of_batches_of_every_kind(batch: tuple[int, ...]) -> None:
    """One without a batch dim, and batches of none where PyTorch takes them."""
    torch.manual_seed(0)
    x = torch.randn(*batch, 3, 5, 6)
    functions = {name: f for name, f in WINDOWS.items() if x.dim() == 4 or name not in ("around", "bigger")}
    if not x.numel():
        functions = {name: f for name, f in functions.items() if name not in ("put back", "around")}
    want = Calls(functions)(x)
    got = headrace.compile(Calls(functions), example_inputs=(x,))(x)
    for key, y in want.items():
        torch.testing.assert_close(got[key], y, rtol=1e-4, atol=1e-5, msg=f"{key} differs", check_stride=False)


def test_a_number_is_given_as_a_number() -> None:
    class Numbers(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            most, least = x.max().item(), x.argmin().item()
            return most, least, x[0].tolist(), (x > 0).all().item(), most / 3, 2 - least, -most + least * 2, x * -most

    x = torch.tensor([0.5, 2.3, -1.0])
    want = Numbers()(x)
    found = headrace.compile(Numbers(), example_inputs=(x,))(x)
    assert found[:-1] == want[:-1] and [type(y) for y in found[:-1]] == [type(y) for y in want[:-1]]
    torch.testing.assert_close(found[-1], want[-1])

    class Roots(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x * (x.min().item() ** 0.5)

    with pytest.raises(CompileError, match=r"\(test_samples.py:\d+\): _operator.pow is not supported"):
        headrace.compile(Roots(), example_inputs=(x,))


def test_a_position_that_is_computed_is_refused_where_a_size_depends_on_it() -> None:
    class Narrow(torch.nn.Module):
        def forward(self, x: Any, start: Any) -> Any:
            return x.narrow(0, start, 2)

    with pytest.raises(CompileError, match="depends on the elements of a tensor") as caught:
        headrace.compile(Narrow(), example_inputs=(X.t(), torch.tensor(1)))
    assert caught.value.diagnostics[0].code == "dynamic-shape"
