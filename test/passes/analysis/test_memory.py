"""What part of a buffer a port comes by, against all addresses of its tiles."""

from __future__ import annotations

import random
from itertools import product
from math import prod

import pytest

from headrace.dialects.dataflow.ops import BufferOp
from headrace.dialects.dataflow.types import StreamType
from headrace.dialects.machine.device import load_device
from headrace.dialects.support.access import Loop, Stream, View, identity, row_major
from headrace.dialects.tensor.shapes import TT
from headrace.passes.analysis.memory import covered, crowded, units_for


@pytest.mark.parametrize("seed", range(200))
def test_a_port_comes_by_no_other_indices(seed: int) -> None:
    """A slice of a buffer in any order of its dims: the indices are those of its addresses, along every dim."""
    rng = random.Random(seed)
    shape = [rng.choice([1, 2, 3, 4, 6]) for _ in range(rng.randint(1, 3))]
    first = [rng.randrange(n) for n in shape]
    size = [rng.randint(1, n - f) for n, f in zip(shape, first, strict=True)]
    strides = row_major(shape)
    order = rng.sample(range(len(shape)), len(shape))
    view = View(sum(f * s for f, s in zip(first, strides, strict=True)), tuple(strides[d] for d in order))
    stream = Stream(tuple(size[d] for d in order), "f32", (), ())
    for dim in range(len(shape)):
        addresses = [
            view.offset + sum(i * s for i, s in zip(index, view.strides, strict=True))
            for index in product(*(range(n) for n in stream.full_shape))
        ]
        indices = {a // strides[dim] % shape[dim] for a in addresses}
        assert covered(shape, stream, view, dim) == (min(indices), max(indices) + 1)


def test_heads_of_a_projection() -> None:
    """Keys are a third of the columns of what makes queries, keys and values; all rows of it."""
    view = View(768, (0, 64, 1, 2304))
    stream = Stream((1, 12, 64, 512), "f32", (), ())
    assert covered((1, 512, 2304), stream, view, 2) == (768, 1536)
    assert covered((1, 512, 2304), stream, view, 1) == (0, 512)


@pytest.mark.parametrize("seed", range(20))
def test_the_busiest_index_decides(seed: int) -> None:
    rng = random.Random(seed)
    extent = rng.randint(2, 12)
    parts: list[tuple[tuple[int, int], float]] = []
    for _ in range(rng.randint(1, 5)):
        low, high = sorted(rng.sample(range(extent + 1), 2))
        parts.append(((low, high), float(prod((rng.randint(1, 9), high - low)))))
    load = [sum(n / (high - low) for (low, high), n in parts if low <= i < high) for i in range(extent)]
    assert crowded(parts, extent) == pytest.approx(max(load) * extent)
    assert crowded(parts, extent) >= sum(n for _, n in parts) - 1e-9


@pytest.mark.parametrize("copies", [1, 2, 3, 4])
def test_frames_that_follow_each_other_along_the_shared_dim_lie_together(copies: int) -> None:
    """Eight frames of a vector: those that are held at a time may all lie in the block of one unit."""
    device = load_device("sn40l")
    frame = device.pmu.bytes // 4 // 3  # three of them fit into a unit, four do not
    shape = (8 * frame,)
    type = StreamType.of(TT((frame,), "f32"), (Loop(8, 0, frame),))
    made = BufferOp([], [], shape, [type], [identity(shape)])
    units = units_for(made, device, 1, copies)
    block = -(-shape[0] // units)
    held = max(
        sum(max(0, min((f + 1) * frame, end) - max(f * frame, start)) for f in range(first, min(first + copies, 8)))
        for start, end in ((u * block, (u + 1) * block) for u in range(units))
        for first in range(8)
    )
    assert held * 4 <= device.pmu.bytes
    assert (units == 1) == (copies < 4)
