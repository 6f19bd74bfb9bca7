"""Views, parts, pads and joins, as PyTorch has them."""

from typing import Any

import pytest
from torch_programs import check

import headrace
from headrace import CompileError

torch = pytest.importorskip("torch")
aten: Any = torch.ops.aten
F: Any = torch.nn.functional


def test_views() -> None:
    functions: Any = {
        "flip": lambda x: x.flip(0, -1),
        "flip of one": lambda x: x[:1].flip(0),
        "roll": lambda x: x.roll((1, -2), (0, 2)),
        "repeat": lambda x: x.repeat(2, 1, 3, 1),
        "repeat never": lambda x: x.repeat(1, 0, 1),
        "tile": lambda x: x.tile(2),
        "rot90": lambda x: x.rot90(1, (0, 2)),
        "diagonal": lambda x: x.diagonal(1, 0, 2),
        "diagonal below": lambda x: x.diagonal(-1, 2, 1),
        "diagonal outside": lambda x: x.diagonal(9),
        "diag_embed": lambda x: torch.diag_embed(x, 1),
        "windows": lambda x: x.unfold(2, 3, 2),
        "windows apart": lambda x: x.unfold(1, 1, 3),
        "windows side by side": lambda x: x.unfold(2, 2, 2),
        "strided": lambda x: torch.as_strided(x, (3, 2), (2, 5), 4),
        "expand": lambda x: x[:, :1].expand(-1, 7, -1),
        "movedim": lambda x: x.movedim(0, -1),
        "narrow": lambda x: x.narrow(-1, 1, 3),
        "slice": lambda x: x[..., -100:100:2],
        "slice of nothing": lambda x: x[:, 3:1],
        "select": lambda x: x.select(-1, -2),
        "unflatten": lambda x: x.unflatten(2, (-1, 3)),
        "view as itself": lambda x: x.view(torch.float32),
        "scalar": lambda x: x.sum().squeeze().unsqueeze(0).expand(3),
    }
    check(functions, torch.randn(3, 4, 6))


def test_parts_and_joins() -> None:
    functions: Any = {
        "split": lambda x: x.split(4, 2)[1],
        "chunk": lambda x: x.chunk(5, 2)[1],
        "unbind": lambda x: x.unbind(1)[-1],
        "stack": lambda x: torch.stack((x, x.neg()), -1),
        "cat": lambda x: torch.cat((x, torch.zeros(3, 0, 6), x), 1),
        "cat of types": lambda x: torch.cat((x.int(), x > 0), 0),
        "cat with an empty vector": lambda x: torch.cat((torch.zeros(0), x)),
        "meshgrid": lambda x: torch.meshgrid(x[0, 0], x[0, :, 0], indexing="xy")[0],
        "tril": lambda x: x.tril(-1),
        "triu": lambda x: x.triu(2),
        "tril of truth": lambda x: (x > 0).tril(),
        "indices": lambda x: torch.tril_indices(3, 4, 1) + 0 * x.long().sum(),
        "slice written": lambda x: torch.slice_scatter(x, x[:, :2], 1, 1, 3),
        "every other one written": lambda x: torch.slice_scatter(x, x[:, :, :3], 2, 0, None, 2),
        "row written": lambda x: torch.select_scatter(x, x[:, 0] + 1, 1, -1),
        "diagonal written": lambda x: torch.diagonal_scatter(x, torch.ones(4, 3), 1, 0, 2),
        "memory written": lambda x: torch.as_strided_scatter(x, torch.zeros(2, 2), (2, 2), (30, 7), 1),
    }
    check(functions, torch.randn(3, 4, 6))


def test_pads() -> None:
    functions: Any = {
        "constant": lambda x: F.pad(x, (1, -2, 0, 3), value=2.5),
        "all cropped": lambda x: F.pad(x, (-3, -3, 1, 1)),
        "of nothing": lambda x: F.pad(x[:0], (1, 1), value=3.0),
        "of integers": lambda x: F.pad(x.long(), (1, 1), value=-1),
        "of truth": lambda x: F.pad(x > 0, (1, 1), value=True),
        "reflect": lambda x: F.pad(x, (2, 1, 1, 2), mode="reflect"),
        "replicate": lambda x: F.pad(x, (2, 1, 3, 0), mode="replicate"),
        "circular": lambda x: F.pad(x, (2, 1, 1, 2), mode="circular"),
        "reflect a line": lambda x: F.pad(x[0], (3, 2), mode="reflect"),
        "replicate a volume": lambda x: F.pad(x[None], (1, 1, 0, 2, 2, 0), mode="replicate"),
        "pixel shuffle": lambda x: F.pixel_shuffle(x.reshape(1, 4, 3, 4), 2),
        "pixel unshuffle": lambda x: F.pixel_unshuffle(x.reshape(1, 3, 4, 4), 2),
        "unfold": lambda x: F.unfold(x[None], (2, 2), padding=1, stride=2),
    }
    check(functions, torch.randn(2, 4, 6))


class Bits(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return x.view(torch.int32)


class Found(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return x[x > 0] * 2, x.nonzero()


class Memory(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.as_strided(x.t(), (2, 2), (1, 1))


@pytest.mark.parametrize(
    ("module", "why"), [(Bits(), "bits"), (Memory(), "memory of a view"), (Found(), "depends on what they are")]
)
def test_what_is_about_memory_or_elements_is_refused(module: Any, why: str) -> None:
    with pytest.raises(CompileError, match=why):
        headrace.compile(module, example_inputs=(torch.randn(3, 4),))
