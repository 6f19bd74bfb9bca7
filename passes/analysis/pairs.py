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
    if all(s < size or s % size == 0 for _, s in moves) and bool(np.all(bases % size + low < size)):
        run, rest = _run((c, s // size) for c, s in moves if s >= size)
        first = bases[:, None] // size + _reach(rest)
        last = first + run - 1
    else:
        run, rest = _run(moves)
        at = bases[:, None] + _reach(rest)
        first, last = at // size, (at + run - 1) // size
    return _blocks(first, last, length, unit.size)


def _run(moves: Iterable[tuple[int, int]]) -> tuple[int, list[tuple[int, int]]]:
    """How many numbers in a row the smallest terms reach, and the other terms."""
    run = 1
    rest: list[tuple[int, int]] = []
    for count, stride in sorted(moves, key=lambda move: move[1]):
        if stride <= run and not rest:
            run += (count - 1) * stride
        else:
            rest.append((count, stride))
    return run, rest


def _reach(moves: Iterable[tuple[int, int]]) -> Ints:
    """Every sum of the terms, each once."""
    found = np.zeros(1, np.int64)
    for move in moves:
        found = np.unique((found[:, None] + sums([move])).ravel())
    return found


def _blocks(first: Ints, last: Ints, length: int, units: int) -> list[Ints]:
    """For every row, the units whose blocks of a dim of `length` hold some index from first to last; indices beyond the
    dim belong to the next dims, where it begins again."""
    block = -(-length // units)
    rows = np.broadcast_to(np.arange(len(first))[:, None], first.shape)
    low, high = first % length, first % length + np.minimum(last - first, length - 1)
    edges = np.zeros((len(first), units + 1), np.int64)
    for begin, end in ((low, np.minimum(high, length - 1)), (np.zeros_like(low), high - length)):
        there = end >= begin
        np.add.at(edges, (rows[there], begin[there] // block), 1)
        np.add.at(edges, (rows[there], end[there] // block + 1), -1)
    return [np.flatnonzero(row) for row in edges.cumsum(1)[:, :units] > 0]


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
