"""Which site of a flow's source talks to which site of its destination: follows from loops, address programs and the
split of buffers over memory units."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

import numpy as np
import numpy.typing as npt

from headrace.dialects.rdu.ops import AgcuOp, FlowOp, PcuOp, PmuOp, UnitOp
from headrace.dialects.support.access import Loop, Stream, View
from headrace.dialects.tensor.base import tt

Ints = npt.NDArray[np.int64]


def sums(terms: Iterable[tuple[int, int]]) -> Ints:
    """Every sum Σ i·stride with 0 ≤ i < count over (count, stride) terms, first term outermost."""
    found = np.zeros(1, np.int64)
    for count, stride in terms:
        found = (found[:, None] + np.arange(count, dtype=np.int64) * stride).ravel()
    return found


def _terms(loops: Iterable[Loop], view: View) -> list[tuple[int, int]]:
    return [(x.count, x.step * view.strides[x.dim] if x.dim >= 0 else 0) for x in loops]


def owners(unit: PmuOp, stream: Stream, view: View) -> list[Ints]:
    """For every space index of the stream, the memory units that hold addresses of its tiles, in any step."""
    bases = view.offset + sums(_terms(stream.space, view))
    shape = tt(unit.type).shape
    if unit.size == 1 or not shape:
        return [np.zeros(1, np.int64)] * len(bases)
    dim = unit.split_dim.value.data
    size, length = prod(shape[dim + 1 :]), shape[dim]
    block = -(-length // unit.size)
    moves: list[tuple[int, int]] = []
    low = 0
    for count, stride in [*zip(stream.tile, view.strides, strict=True), *_terms(stream.time, view)]:
        if count == 1 or stride == 0 or stride % (size * length) == 0:
            continue
        if stride < 0:
            bases = bases + (count - 1) * stride
            stride = -stride
        moves.append((count, stride))
    for count, stride in moves:
        low += (count - 1) * stride if stride < size else 0
    within = all(s < size or s % size == 0 for _, s in moves) and bool(np.all(bases % size + low < size))
    if within:
        reach = np.unique(sums((c, s // size) for c, s in moves if s >= size))
        at = (bases[:, None] // size + reach[None, :]) % length // block
    else:
        reach = np.unique(sums(moves))
        at = (bases[:, None] + reach[None, :]) // size % length // block
    return [np.unique(row) for row in at]


def flow_pairs(flow: FlowOp, units: dict[str, UnitOp]) -> Ints:
    """Pairs (source site, destination site) of a flow, as an array [n, 2] in order."""
    source, target = (units[name] for name in flow.ends)
    stream = flow.stream.stream
    if isinstance(source, PcuOp) and isinstance(target, PcuOp):
        each = np.arange(source.size, dtype=np.int64)
        return np.stack([each, each], axis=1)
    if isinstance(source, PcuOp) or isinstance(target, PcuOp):
        memory, view = (target, flow.dst_view) if isinstance(source, PcuOp) else (source, flow.src_view)
        if isinstance(memory, PmuOp):
            assert view is not None, "verified"
            held = owners(memory, stream, view.view)
        else:
            assert isinstance(memory, AgcuOp)
            held = [np.array([site % memory.size]) for site in range(stream.sites)]
        inner = np.repeat(np.arange(len(held), dtype=np.int64), [len(x) for x in held])
        outer = np.concatenate(held)
        columns = (inner, outer) if isinstance(source, PcuOp) else (outer, inner)
        return np.stack(columns, axis=1)
    sides: list[Ints] = []
    for unit, view in ((source, flow.src_view), (target, flow.dst_view)):
        if isinstance(unit, PmuOp):
            assert view is not None, "verified"
            sides.append(np.unique(np.concatenate(owners(unit, stream, view.view))))
        else:
            assert isinstance(unit, AgcuOp)
            sides.append(np.arange(unit.size, dtype=np.int64))
    if isinstance(source, PmuOp) and isinstance(target, PmuOp):
        a, b = np.meshgrid(*sides, indexing="ij")
        return np.stack([a.ravel(), b.ravel()], axis=1)
    # any address generator reaches any address: the longer side is dealt out over the shorter
    count = max(len(side) for side in sides)
    return np.stack([np.resize(side, count) for side in sides], axis=1)
