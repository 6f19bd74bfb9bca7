"""Which dims contraction and composite ops let be cut: as many as their meaning allows, and how operands follow."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.dialects.tensor.shapes import TT, Follow, Tiling, block_attrs, flops, infer, tiling


def tile(name: str, *shapes: tuple[int, ...], **attrs: Any) -> Tiling:
    operands = [TT(s, "f32") for s in shapes]
    return tiling(f"tensor.{name}", attrs, operands, infer(f"tensor.{name}", attrs, operands))


def test_elementwise_follows_by_broadcasting() -> None:
    found = tile("add", (4, 1, 5), (3, 1))
    assert found.dims == (4, 3, 5)
    assert found.operands == ((Follow(0), None, Follow(2)), (Follow(1), None))
    assert found.results == ((Follow(0), Follow(1), Follow(2)),)


@pytest.mark.parametrize(
    ("lhs", "rhs", "dims", "of_lhs", "of_rhs"),
    [
        ((4, 5), (5, 6), (4, 6), (Follow(0), None), (None, Follow(1))),
        ((5,), (5,), (), (None,), (None,)),
        ((5,), (2, 5, 6), (2, 6), (None,), (Follow(0), None, Follow(1))),
        ((2, 4, 5), (5,), (2, 4), (Follow(0), Follow(1), None), (None,)),
        ((2, 1, 4, 5), (3, 5, 6), (2, 3, 4, 6), (Follow(0), None, Follow(2), None), (Follow(1), None, Follow(3))),
    ],
)
def test_matmul(lhs: Any, rhs: Any, dims: Any, of_lhs: Any, of_rhs: Any) -> None:
    found = tile("matmul", lhs, rhs)
    assert (found.dims, *found.operands) == (dims, of_lhs, of_rhs)
    assert found.results == (tuple(Follow(d) for d in range(len(dims))),)


def test_conv_is_cut_over_batch_channels_and_unpadded_space() -> None:
    found = tile(
        "conv", (2, 3, 9, 8), (4, 3, 3, 3), (4,), groups=1, strides=(2, 1), pads=(0, 1, 0, 1), dilations=(2, 1)
    )
    assert found.dims == (2, 4, 3)
    assert found.operands == (
        (Follow(0), None, Follow(2, scale=2, extent=5), None),
        (Follow(1), None, None, None),
        (Follow(1),),
    )
    assert found.results == ((Follow(0), Follow(1), Follow(2), None),)


def test_grouped_conv_is_cut_over_channels_only_where_a_group_makes_one() -> None:
    assert tile("conv", (2, 4, 9), (6, 2, 3), groups=2).dims == (2, 7)
    found = tile("conv", (2, 6, 9), (3, 2, 3), groups=3)
    assert found.dims == (2, 3, 7)
    assert found.operands[0] == (Follow(0), Follow(1, scale=2, extent=2), Follow(2, extent=3))
    block = [TT((2, 4, 9), "f32"), TT((2, 2, 3), "f32")]
    assert block_attrs("tensor.conv", {"groups": 3}, block, [TT((2, 2, 7), "f32")]) == {"groups": 2}


def test_pools() -> None:
    attrs = {"kernel": (2, 3), "strides": (2, 2), "pads": (0, 1, 0, 0), "ceil": False}
    found = tile("max_pool", (2, 3, 8, 8), **attrs)
    assert found.dims == (2, 3, 4)
    assert found.operands == ((Follow(0), Follow(1), Follow(2, scale=2, extent=2), None),)
    reaching = tile("max_pool", (2, 3, 8), kernel=(3,), strides=(2,), ceil=True)
    assert reaching.dims == (2, 3)


def test_softmax_and_norms_couple_what_they_normalize() -> None:
    assert tile("softmax", (2, 3, 4), axis=1).operands == ((Follow(0), None, Follow(1)),)
    found = tile("layer_norm", (2, 3, 4), (3, 4), (3, 4), axis=-2, epsilon=0.1)
    assert (found.dims, found.operands) == ((2,), ((Follow(0), None, None), (None, None), (None, None)))
    found = tile("batch_norm", (2, 3, 4), (3,), (3,), (3,), (3,), epsilon=0.1)
    assert found.dims == (2, 3, 4)
    assert found.operands[1:] == ((Follow(1),),) * 4
    assert tile("group_norm", (2, 4, 5), (4,), (4,), groups=2, epsilon=0.1).dims == (2,)
    assert tile("group_norm", (2, 4, 5), (4,), (4,), groups=4, epsilon=0.1).dims == (2, 4)


def test_attention_is_cut_over_queries_unless_causal() -> None:
    shapes = ((2, 7, 8), (7, 8), (7, 6), (1, 7))
    found = tile("attention", *shapes, causal=False)
    assert found.dims == (2, 7, 6)
    assert found.operands == (
        (Follow(0), Follow(1), None),
        (None, None),
        (None, Follow(2)),
        (None, None),
    )
    assert tile("attention", *shapes, causal=True).dims == (2, 6)


@pytest.mark.parametrize(
    ("name", "shapes", "attrs", "wanted"),
    [
        ("add", ((4, 5), (5,)), {}, 20),
        ("matmul", ((2, 4, 5), (5, 6)), {}, 2 * 2 * 4 * 5 * 6),
        ("matmul", ((5,), (5,)), {}, 10),
        ("conv", ((1, 4, 9), (6, 2, 3)), {"groups": 2}, 2 * 6 * 7 * 2 * 3),
        ("conv", ((1, 4, 9), (6, 4, 3), (6,)), {"groups": 1}, 2 * 6 * 7 * 4 * 3 + 6 * 7),
        ("avg_pool", ((1, 2, 9),), {"kernel": (3,), "count_include_pad": False}, 2 * 7 * 3),
        ("softmax", ((4, 5),), {"axis": 1}, 5 * 20),
        ("attention", ((2, 4, 8), (2, 5, 8), (2, 5, 6)), {"causal": False}, 2 * 4 * 5 * (16 + 12 + 6)),
    ],
)
def test_work(name: str, shapes: Any, attrs: dict[str, Any], wanted: int) -> None:
    operands = [TT(s, "f32") for s in shapes]
    results = infer(f"tensor.{name}", attrs, operands)
    assert flops(f"tensor.{name}", attrs, operands, results) == wanted
