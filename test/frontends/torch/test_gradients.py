"""Gradients of norms, pools, pads, resampling and embeddings, as the graphs of training steps hold them."""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false

from collections.abc import Sequence
from typing import Any

import pytest

library = pytest.importorskip("torch")

from torch_programs import check  # noqa: E402

torch: Any = library
F: Any = torch.nn.functional
aten: Any = torch.ops.aten


def test_norms() -> None:
    torch.manual_seed(0)
    x, dy, w = torch.randn(2, 4, 3, 6), torch.randn(2, 4, 3, 6), torch.randn(6)
    layer = aten.native_layer_norm(x, [6], w, w, 1e-5)[1:]
    group = aten.native_group_norm(x, w[:4], None, 2, 4, 18, 2, 1e-5)[1:]
    batch = aten._native_batch_norm_legit.no_stats(x, w[:4], None, True, 0.1, 1e-5)[1:]
    every, only = [True, True, True], [True, False, False]
    check(
        {
            "layer": lambda x, dy, w, m, r, *_: aten.native_layer_norm_backward(dy, x, [6], m, r, w, w, every),
            "plain": lambda x, dy, w, m, r, *_: aten.native_layer_norm_backward(dy, x, [6], m, r, None, None, only)[0],
            "group": lambda x, dy, w, *all_: aten.native_group_norm_backward(
                dy, x, *all_[2:4], w[:4], 2, 4, 18, 2, every
            ),
            "batch": lambda x, dy, w, *all_: aten.native_batch_norm_backward(
                dy, x, w[:4], w[:4], w[:4], *all_[4:], True, 1e-5, every
            ),
        },
        x,
        dy,
        w,
        *layer,
        *group,
        *batch,
        rtol=1e-4,
        atol=1e-4,
    )


def _pools(x: Any, *given: tuple[Sequence[int], Sequence[int], Sequence[int], bool, bool, int | None]) -> None:
    rank = len(given[0][0])
    forward, backward = getattr(aten, f"avg_pool{rank}d"), getattr(aten, f"avg_pool{rank}d_backward")
    inputs = [x, *(torch.randn(forward(x, *windows).shape) for windows in given)]
    check(
        {
            str(windows): lambda x, *dy, i=i, windows=windows: backward(dy[i], x, *windows)
            for i, windows in enumerate(given)
        },
        *inputs,
        rtol=1e-4,
        atol=1e-5,
    )


def test_mean_pools() -> None:
    torch.manual_seed(0)
    _pools(
        torch.randn(2, 3, 7, 6),
        ([3, 3], [2, 2], [1, 1], False, True, None),
        ([3, 2], [2, 2], [1, 1], True, False, None),
        ([3, 2], [2, 1], [0, 1], True, True, 5),
        ([2, 2], [2, 2], [0, 0], False, True, None),  # elements that no window has
        ([2, 3], [2, 3], [1, 1], True, False, None),
    )
    _pools(torch.randn(2, 3, 3, 4), ([3, 2, 2], [2, 2, 2], [1, 0, 1], True, True, None))


def test_adaptive_pools() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 7, 6)
    for size in ((4, 3), (7, 2), (1, 1), (9, 8)):
        at = F.adaptive_max_pool2d(x, size, return_indices=True)[1]
        check(
            {
                "mean": lambda x, dy, at: aten._adaptive_avg_pool2d_backward(dy, x),
                "mean 3d": lambda x, dy, at: aten._adaptive_avg_pool3d_backward(dy, x),
                "max": lambda x, dy, at: aten.adaptive_max_pool2d_backward(dy, x, at),
                "places": lambda x, dy, at, size=size: F.adaptive_max_pool2d(x, size, return_indices=True),
            },
            x,
            torch.randn(at.shape),
            at,
            rtol=1e-4,
            atol=1e-5,
        )


def test_max_pools() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 5, 6, 7)
    planes = [2, 2], [2, 1], [1, 0], [1, 2], True
    solids = [2, 3, 2], [2, 1, 2], [1, 1, 0], [1, 1, 2], True
    at, inside = aten.max_pool2d_with_indices(x, *planes)[1], aten.max_pool3d_with_indices(x, *solids)[1]
    check(
        {
            "2d": lambda x, dy, at, d3, inside: aten.max_pool2d_with_indices_backward(dy, x, *planes, at),
            "3d": lambda x, dy, at, d3, inside: aten.max_pool3d_with_indices_backward(d3, x, *solids, inside),
        },
        x,
        torch.randn(at.shape),
        at,
        torch.randn(inside.shape),
        inside,
    )


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_pads(rank: int) -> None:
    torch.manual_seed(0)
    replicated = getattr(aten, f"replication_pad{rank}d_backward")
    reflected = getattr(aten, f"reflection_pad{rank}d_backward")
    x = torch.randn(2, *(5, 4, 7)[:rank])
    functions: dict[str, Any] = {}
    inputs: list[Any] = []
    for i, pads in enumerate([[2, 1], [0, 3], [-1, 2], [1, -3]][: 4 if rank < 3 else 2]):
        inputs.append(torch.randn([2, *(size + sum(pads) for size in x.shape[1:])]))
        functions[f"replicated {pads}"] = lambda x, *dy, i=i, pads=pads * rank: replicated(dy[i], x, pads)
        functions[f"reflected {pads}"] = lambda x, *dy, i=i, pads=pads * rank: reflected(dy[i], x, pads)
    check(functions, x, *inputs)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "linear", "bicubic"])
def test_resampling(mode: str) -> None:
    torch.manual_seed(0)
    exact = "_upsample_nearest_exact" if mode == "nearest-exact" else "upsample_nearest"
    for rank in (1, 2, 3):
        if mode == "bicubic" and rank != 2:
            continue
        stem = {"linear": ("linear", "bilinear", "trilinear")[rank - 1], "bicubic": "bicubic"}.get(mode)
        backward = getattr(aten, f"upsample_{stem}{rank}d_backward" if stem else f"{exact}{rank}d_backward")
        functions: dict[str, Any] = {}
        inputs: list[Any] = []
        for scale in (None, 1.7, 0.6):
            for corners in (False, True) if stem else (None,):
                given = {} if corners is None else {"align_corners": corners}
                size = (5, 9, 4)[:rank] if scale is None else None
                x = torch.randn(2, 3, *(7, 6, 5)[:rank])
                y = F.interpolate(x, size, scale, mode=f"{stem}" if stem else mode, **given)
                rest = list(y.shape[2:]), list(x.shape), *given.values(), *(scale,) * rank
                i = len(inputs)
                functions[f"{scale} {corners}"] = lambda *dy, i=i, rest=rest, op=backward: op(dy[i], *rest)
                inputs.append(torch.randn(y.shape))
        check(functions, *inputs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("padding", [0, 1, 2])
def test_samples_at_points(padding: int) -> None:
    torch.manual_seed(0)
    x, at = torch.randn(2, 3, 4, 5), 3 * torch.rand(2, 2, 4, 2) - 1.5
    solid, points = torch.randn(2, 2, 3, 1, 4), 3 * torch.rand(2, 1, 2, 4, 3) - 1.5
    functions: Any = {}
    for mode in (0, 1):
        for corners in (False, True):
            rest = mode, padding, corners, [True, True]
            functions[f"2d {mode} {corners}"] = lambda x, at, dy, solid, points, d3, rest=rest: (
                aten.grid_sampler_2d_backward(dy, x, at, *rest)
            )
            functions[f"3d {mode} {corners}"] = lambda x, at, dy, solid, points, d3, rest=rest: (
                aten.grid_sampler_3d_backward(d3, solid, points, *rest)
            )
    inputs = x, at, torch.randn(2, 3, 2, 4), solid, points, torch.randn(2, 2, 1, 2, 4)
    check(functions, *inputs, rtol=1e-4, atol=1e-5)


def test_embeddings() -> None:
    torch.manual_seed(0)
    index = torch.randint(0, 5, (3, 4))
    check(
        {
            "rows": lambda dy, at: aten.embedding_dense_backward(dy, at, 5, -1, False),
            "but one": lambda dy, at: aten.embedding_dense_backward(dy, at, 6, 2, False),
            "by how often": lambda dy, at: aten.embedding_dense_backward(dy, at, 5, -1, True),
        },
        torch.randn(3, 4, 2),
        index,
        rtol=1e-4,
        atol=1e-5,
    )


@pytest.mark.parametrize(("mode", "padding"), [(0, -1), (0, 2), (1, -1), (1, 2)])
def test_bags(mode: int, padding: int) -> None:
    torch.manual_seed(0)
    index, offsets = torch.tensor([1, 2, 3, 4, 2]), torch.tensor([0, 2, 2])
    bags = aten._embedding_bag(torch.randn(6, 2), index, offsets, False, mode, False, None, False, padding)[1:]
    check(
        {
            "rows": lambda dy, at, offsets, bag, sizes, most: (
                aten._embedding_bag_dense_backward(dy, at, bag, sizes, most, 6, False, mode, None, padding)
                if bag.numel()
                else aten._embedding_bag_backward(
                    dy, at, offsets, bag, sizes, most, 6, False, mode, False, None, padding
                )
            )
        },
        torch.randn(3, 2),
        index,
        offsets,
        *bags,
        rtol=1e-4,
        atol=1e-5,
    )
