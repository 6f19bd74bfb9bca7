"""Which memory units a stream meets, against brute force; and that it is told without going through every index."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.dialects.rdu.ops import PmuOp
from headrace.dialects.support.access import Loop, Stream, View
from headrace.dialects.tensor.shapes import TT
from headrace.passes.analysis.pairs import owners


def memory(shape: tuple[int, ...], dim: int, units: int) -> PmuOp:
    return PmuOp("m", TT(shape, "f32"), units, 0, 1, 0.0, dim, 1)


@st.composite
def cases(draw: st.DrawFn) -> tuple[PmuOp, Stream, View]:
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
    dim = draw(st.integers(0, len(shape) - 1))
    units = draw(st.integers(1, shape[dim]))
    tile = tuple(draw(st.lists(st.integers(1, 3), max_size=2)))
    view = View(draw(st.integers(0, 20)), tuple(draw(st.integers(-4, 20)) for _ in tile))

    def loop() -> Loop:
        dim = draw(st.integers(-1, len(tile) - 1))
        return Loop(draw(st.integers(1, 3)), dim, draw(st.integers(1, 3)) if dim >= 0 else 0)

    time, space = (tuple(loop() for _ in range(draw(st.integers(0, 2)))) for _ in range(2))
    return memory(shape, dim, units), Stream(tile, "f32", time, space), view


def reached(unit: PmuOp, shape: tuple[int, ...], stream: Stream, view: View) -> list[set[int]]:
    """The units by space index, address by address."""
    dim, found = unit.split_dim.value.data, []
    size, length = prod(shape[dim + 1 :]), shape[dim]
    for space in product(*(range(x.count) for x in stream.space)):
        held: set[int] = set()
        for time in product(*(range(x.count) for x in stream.time)):
            for tile in product(*map(range, stream.tile)):
                at = view.offset + sum(i * s for i, s in zip(tile, view.strides, strict=True))
                for i, x in (*zip(space, stream.space, strict=True), *zip(time, stream.time, strict=True)):
                    at += i * x.step * view.strides[x.dim] if x.dim >= 0 else 0
                held.add(at // size % length // -(-length // unit.size))
        found.append(held)
    return found


@settings(max_examples=400, deadline=None, derandomize=True)
@given(cases())
def test_owners(case: tuple[PmuOp, Stream, View]) -> None:
    unit, stream, view = case
    shape = tuple(unit.type.get_shape())
    found = owners(unit, stream, view)
    assert [set(x.tolist()) for x in found] == reached(unit, shape, stream, view)


def test_owners_of_a_long_dim_are_told_at_once() -> None:
    unit = memory((1 << 40,), 0, 8)
    stream = Stream((1 << 20,), "f32", (Loop(1 << 16, 0, 1 << 20),), (Loop(2, 0, 1 << 36),))
    found = owners(unit, stream, View(0, (1,)))
    np.testing.assert_array_equal(found, [[0], [0]])
    halves = Stream((1 << 39,), "f32", (), (Loop(2, 0, 1 << 39),))
    np.testing.assert_array_equal(owners(unit, halves, View(0, (1,))), [[0, 1, 2, 3], [4, 5, 6, 7]])
