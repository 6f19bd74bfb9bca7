"""The parts of the plan against brute force: address sets, owners, views through copies, joined tiles, the arena."""

from __future__ import annotations

import random
from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import Body

from headrace.dialects.support.access import Loop, View, row_major
from headrace.dialects.tensor.meaning import evaluate
from headrace.dialects.tensor.shapes import TT
from headrace.runtime import arena, geometry
from headrace.runtime.merge import Unmergeable, joined_shape, merge_body
from headrace.runtime.places import Home, digits_of
from headrace.runtime.program import Pcu
from headrace.runtime.schedule import movement_between

TERMS = st.lists(st.tuples(st.integers(1, 5), st.integers(-7, 24)), max_size=4)
FAST = settings(max_examples=60, deadline=None, derandomize=True)


def all_sums(terms: list[tuple[int, int]], offset: int) -> list[int]:
    return [
        offset + sum(i * s for i, (_, s) in zip(at, terms, strict=True))
        for at in product(*(range(n) for n, _ in terms))
    ]


@FAST
@given(TERMS, st.integers(0, 50))
def test_normal_terms_denote_the_same_addresses(terms: list[tuple[int, int]], offset: int) -> None:
    found, start = geometry.normal(terms, offset)
    assert set(all_sums(list(found), start)) == set(all_sums(terms, offset))
    assert all(n > 1 and s > 0 for n, s in found)
    if geometry.injective(found):
        assert len(set(all_sums(list(found), start))) == geometry.size(found)


@FAST
@given(TERMS, st.integers(0, 50), st.lists(st.integers(1, 5), min_size=1, max_size=3), st.data())
def test_owners(terms: list[tuple[int, int]], offset: int, shape: list[int], data: st.DataObject) -> None:
    size = prod(shape)
    at = [x for x in all_sums(terms, offset) if 0 <= x < size]
    if len(at) != len(all_sums(terms, offset)):
        return
    dim = data.draw(st.integers(0, len(shape) - 1))
    sites = data.draw(st.integers(1, 4))
    block = -(-shape[dim] // sites)
    expected = {np.unravel_index(x, shape)[dim] // block for x in at}
    assert set(geometry.owners(tuple(terms), offset, tuple(shape), dim, sites)) == expected
    owners = geometry.owner_of(np.array(at), tuple(shape), dim, sites)
    assert set(owners.tolist()) == expected


def test_owners_of_terms_that_end_within_a_unit() -> None:
    """Address sets inside a shape, of runs and strides that do not divide it."""
    rng = random.Random(0)
    for _ in range(3000):
        shape = [rng.randint(1, 8) for _ in range(rng.randint(1, 4))]
        dim, sites, left = rng.randrange(len(shape)), rng.randint(1, 8), prod(shape) - 1
        terms: list[tuple[int, int]] = []
        for _ in range(rng.randint(0, 4)):
            stride = rng.choice((1, 1, 2, 3, prod(shape[rng.randrange(len(shape)) :]), rng.randint(1, 12)))
            terms.append((rng.randint(1, min(left // stride, 9) + 1), stride))
            left -= (terms[-1][0] - 1) * stride
        offset, block = rng.randint(0, left), -(-shape[dim] // sites)
        expected = {np.unravel_index(x, shape)[dim] // block for x in all_sums(terms, offset)}
        found = geometry.owners(tuple(terms), offset, tuple(shape), dim, sites)
        assert set(found) == expected, (terms, offset, shape, dim, sites)


def test_owners_of_a_long_dim_are_told_at_once() -> None:
    half = ((1 << 19, 1), (1 << 20, 1 << 19))
    assert geometry.owners(half, 1 << 39, (1 << 40,), 0, 8) == (4, 5, 6, 7)
    assert geometry.owners((*half, (2, 1 << 40)), 0, (2, 1 << 40), 1, 8) == (0, 1, 2, 3)


@FAST
@given(st.permutations([0, 1, 2]), st.permutations([0, 1, 2]), st.data())
def test_views_through_a_copy(perm: list[int], other: list[int], data: st.DataObject) -> None:
    """A buffer filled by a permuted copy of a parameter: a box read through the mapping is that of the copy."""
    shape = (2, 3, 4)
    memory = np.arange(24)
    source = memory.reshape(shape).transpose(perm)
    strides = tuple(s // memory.itemsize for s in source.strides)
    buffer = np.ascontiguousarray(source).ravel()
    digits = digits_of(source.shape, row_major(source.shape), strides, 24)
    assert digits is not None
    low = [data.draw(st.integers(0, n - 1)) for n in source.shape]
    size = [data.draw(st.integers(1, n - a)) for n, a in zip(source.shape, low, strict=True)]
    dense = row_major(source.shape)
    view = View(sum(a * s for a, s in zip(low, dense, strict=True)), tuple(dense[d] for d in other))
    box = tuple(size[d] for d in other)
    end = Home(0, 0, digits).resolve(view, box)
    assert end is not None
    expected = geometry.strided(buffer, view.offset, box, view.strides)
    np.testing.assert_array_equal(geometry.strided(memory, end.offset, box, end.strides), expected)


def test_a_view_that_crosses_digits_is_not_affine() -> None:
    digits = digits_of((4, 6), (6, 1), (1, 4), 24)  # a transposing copy
    assert digits is not None
    assert Home(0, 0, digits).resolve(View(0, (6, 1)), (4, 6)) is not None
    assert Home(0, 0, digits).resolve(View(0, (1,)), (24,)) is None
    assert digits_of((4, 3), (6, 1), (1, 4), 24) is None  # leaves cells out


SHAPES = [((2, 3, 4), (6, 4)), ((6, 4), (2, 3, 4)), ((1, 6, 4), (6, 4)), ((2, 3, 4), (2, 3, 4))]


@pytest.mark.parametrize(("shape", "target"), SHAPES)
def test_movement_between_views_of_a_buffer(shape: tuple[int, ...], target: tuple[int, ...]) -> None:
    x = np.arange(24).reshape(shape)
    ops = movement_between(shape, View(0, row_major(shape)), target, View(0, row_major(target)))
    assert ops is not None and len(ops) == (shape != target)
    for name, attrs in ops:
        (x,) = evaluate(name, attrs, x)
    np.testing.assert_array_equal(x, np.arange(24).reshape(target))


def test_movement_transposes() -> None:
    """Written as [2, 1, 3, 4], read as [4, 2, 3, 1] of the same cells."""
    ops = movement_between((2, 1, 3, 4), View(0, (12, 0, 4, 1)), (4, 2, 3, 1), View(0, (1, 12, 4, 0)))
    assert ops is not None
    x = np.arange(24).reshape(2, 1, 3, 4)
    for name, attrs in ops:
        (x,) = evaluate(name, attrs, x)
    np.testing.assert_array_equal(x, np.arange(24).reshape(2, 3, 4).transpose(2, 0, 1)[..., None])
    assert movement_between((4, 6), View(0, (6, 1)), (4, 5), View(0, (6, 1))) is None
    assert movement_between((4, 6), View(0, (6, 1)), (4, 6), View(1, (6, 1))) is None


def unit(body: Body, *outputs: int) -> Pcu:
    sites = np.zeros((1, 2), np.int32)
    return Pcu("u", "simd", body.inputs, tuple(body.ops), outputs, tuple(body.types), sites)


def merged_equals_tiles(
    pcu: Pcu, inputs: list[tuple[tuple[int, int] | None, ...]], outputs: list[tuple[tuple[int, int] | None, ...]],
    counts: tuple[int, ...],
) -> None:  # fmt: skip
    """Evaluate the body tile by tile and at once."""
    found = merge_body(pcu, inputs, outputs, counts)
    rng = np.random.default_rng(0)
    whole = [rng.standard_normal(joined_shape(pcu.types[v].shape, m, counts)).astype("f") for v, m in enumerate(inputs)]

    def tile(
        array: np.ndarray, shape: tuple[int, ...], move: tuple[tuple[int, int] | None, ...], at: tuple[int, ...]
    ) -> np.ndarray:
        low = [0] * len(shape)
        for i, m in zip(at, move, strict=True):
            if m is not None:
                low[m[0]] += i * m[1]
        return array[tuple(slice(a, a + n) for a, n in zip(low, shape, strict=True))]

    def run(values: dict[int, np.ndarray], attrs: list) -> dict[int, np.ndarray]:
        for op, given_attrs in zip(pcu.ops, attrs, strict=True):
            values.update(
                zip(op.results, evaluate(op.name, given_attrs, *(values[v] for v in op.operands)), strict=True)
            )
        return values

    at_once = run(dict(enumerate(whole)), list(found.attrs))
    for at in product(*map(range, counts)):
        tiles = {v: tile(x, pcu.types[v].shape, inputs[v], at) for v, x in enumerate(whole)}
        values = run(tiles, [op.attrs for op in pcu.ops])
        for v, move in zip(pcu.outputs, outputs, strict=True):
            np.testing.assert_allclose(tile(at_once[v], pcu.types[v].shape, move, at), values[v], rtol=1e-5, atol=1e-5)


def test_merging_a_product_with_bias_and_norm() -> None:
    body = Body([TT((4, 6), "f32"), TT((6, 8), "f32"), TT((8,), "f32")])
    out = body.op("add", body.op("matmul", 0, 1, accumulate="f32"), 2)
    # time: 3 blocks of rows; sites: 2 blocks of columns
    merged_equals_tiles(unit(body, out), [((0, 4), None), (None, (1, 8)), (None, (0, 8))], [((0, 4), (1, 8))], (3, 2))
    body.op("softmax", out, axis=-1)
    with pytest.raises(Unmergeable, match="softmax in 'u' couples dim 1"):
        merge_body(unit(body, out + 1), [((0, 4), None), (None, (1, 8)), (None, (0, 8))], [((0, 4), (1, 8))], (3, 2))


def test_merging_heads_into_rows() -> None:
    """Tiles [1, 4, 6] of head and row blocks reshaped to [4, 6]: heads become outer rows."""
    body = Body([TT((1, 4, 6), "f32")])
    out = body.op("exp", body.op("reshape", 0, shape=(4, 6)))
    merged_equals_tiles(unit(body, out), [((0, 1), (1, 4))], [((0, 12), (0, 4))], (2, 3))
    with pytest.raises(Unmergeable, match="but its ops give"):
        merge_body(unit(body, out), [((0, 1), (1, 4))], [((0, 4), (0, 8))], (2, 3))


def test_merging_windows() -> None:
    """Rows of a convolution of stride 2 come as overlapping windows of 3."""
    body = Body([TT((1, 2, 3, 9), "f32"), TT((4, 2, 3, 3), "f32")])
    out = body.op("conv", 0, 1, strides=(2, 2), pads=(0, 0, 0, 0), dilations=(1, 1), groups=1, accumulate="f32")
    merged_equals_tiles(unit(body, out), [((2, 2),), (None,)], [((2, 1),)], (5,))


def test_merging_channels_of_a_grouped_convolution() -> None:
    """Sites hold two channels of a depthwise convolution each."""
    body = Body([TT((1, 2, 5, 5), "f32"), TT((2, 1, 3, 3), "f32")])
    out = body.op("conv", 0, 1, strides=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 1), groups=2, accumulate="f32")
    merged_equals_tiles(unit(body, out), [((1, 2),), ((0, 2),)], [((1, 2),)], (3,))
    with pytest.raises(Unmergeable):  # the same filters for every block of channels
        merge_body(unit(body, out), [((1, 2),), (None,)], [((1, 2),)], (2,))


def test_what_does_not_merge_says_why() -> None:
    body = Body([TT((4, 6), "f32"), TT((4, 6), "f32")])
    out = body.op("add", 0, 1)
    with pytest.raises(Unmergeable, match=r"moves some operands|on joined tiles"):
        merge_body(unit(body, out), [((0, 4),), (None,)], [((0, 4),)], (2,))
    with pytest.raises(Unmergeable, match=r"along different dims|on joined tiles"):
        merge_body(unit(body, out), [((0, 4),), ((1, 6),)], [((0, 4),)], (2,))
    stretched = Body([TT((1, 6), "f32"), TT((4, 6), "f32")])
    out = stretched.op("add", 0, 1)
    with pytest.raises(Unmergeable):  # a row for each of 4 tiles is not one tile of 4 rows
        merge_body(unit(stretched, out), [((0, 1),), (None,)], [((0, 4),)], (4,))


@FAST
@given(st.lists(st.tuples(st.integers(1, 300), st.integers(0, 9), st.integers(0, 4)), max_size=25))
def test_arrays_that_live_together_do_not_overlap(wanted: list[tuple[int, int, int]]) -> None:
    requests = [arena.Request(n, first, first + length) for n, first, length in wanted]
    offsets, size = arena.pack(requests)
    for i, (a, x) in enumerate(zip(requests, offsets, strict=True)):
        assert x % arena.ALIGN == 0 and x + a.nbytes <= size
        for b, y in zip(requests[:i], offsets, strict=False):
            if a.first <= b.last and b.first <= a.last:
                assert x + a.nbytes <= y or y + b.nbytes <= x


def test_loops_are_numbered_as_tiles_move() -> None:
    loops = (Loop(2, 0, 3), Loop(3, -1, 0), Loop(2, 1, 5))
    assert geometry.shifts(loops, View(9, (10, 1))).tolist() == [0, 5, 0, 5, 0, 5, 30, 35, 30, 35, 30, 35]
    assert geometry.indices(loops).tolist() == [list(at) for at in product(range(2), range(3), range(2))]
