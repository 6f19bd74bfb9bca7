"""Compute units that do the same side by side as one: what the mapping cut into unequal parts is one call on arrays.

Two PCUs lie side by side when they run the same ops on neighbouring blocks of one dim: what they read and write lies
side by side in the same buffers, and what follows no such dim is the same. The joined config has one PCU of one site
for both; its streams have no space loops.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from headrace.dialects.support.access import Stream
from headrace.dialects.tensor import shapes
from headrace.dialects.tensor.shapes import TT, ShapeError
from headrace.dialects.tensor.shapes.bodies import axes
from headrace.runtime.merge import CONSTANT
from headrace.runtime.program import BodyOp, Config, Flow, Pcu


def joined(config: Config) -> Config:
    """The config with units that lie side by side made one; itself when there are none."""
    while (pairs := _pairs(config)) is not None:
        config = _join(config, pairs)
    return config


@dataclass(frozen=True)
class _Pair:
    """Two PCUs that lie side by side: the joined one, and the dim along which each value has both blocks."""

    first: int
    second: int
    unit: Pcu
    dims: Mapping[int, int]


def _pairs(config: Config) -> dict[int, _Pair] | None:
    """Pairs of units that may be joined at once, by the number of both; None when there are none."""
    alike: defaultdict[Any, list[int]] = defaultdict(list)
    for u, unit in enumerate(config.units):
        if isinstance(unit, Pcu):
            body = tuple((op.name, op.operands, op.results) for op in unit.ops)
            alike[unit.mode, unit.inputs, unit.outputs, unit.location, body].append(u)
    if all(len(some) < 2 for some in alike.values()):
        return None
    into: defaultdict[int, list[Flow]] = defaultdict(list)
    out_of: defaultdict[int, list[Flow]] = defaultdict(list)
    for flow in config.flows:
        into[flow.dst].append(flow)
        out_of[flow.src].append(flow)
    pairs: dict[int, _Pair] = {}
    for some in alike.values():
        for a in some:
            for b in some:
                if a != b and a not in pairs and b not in pairs:
                    pair = _pair(config, a, b, into, out_of)
                    if pair is not None:
                        pairs[a] = pairs[b] = pair
    while True:
        wrong = {u for u, pair in pairs.items() if not _agrees(config, pair, pairs, into, out_of)}
        if not wrong:
            return pairs or None
        pairs = {u: pair for u, pair in pairs.items() if u not in wrong}


def _whole(stream: Stream) -> Stream | None:
    """A stream whose tile is that of all sites; None when sites do not lie side by side."""
    tile = list(stream.tile)
    for loop in sorted((x for x in stream.space if x.dim >= 0 and x.count > 1), key=lambda x: x.step):
        if loop.step != tile[loop.dim]:
            return None
        tile[loop.dim] *= loop.count
    return Stream(tuple(tile), stream.dtype, stream.time)


def _beside(a: Stream, b: Stream) -> int | None:
    """The one dim in which two tiles differ; -1 when they do not, None when they differ in more or by their loops."""
    if a.time != b.time or a.dtype != b.dtype or len(a.tile) != len(b.tile):
        return None
    found = [d for d, (n, m) in enumerate(zip(a.tile, b.tile, strict=True)) if n != m]
    return None if len(found) > 1 else found[0] if found else -1


def _shift(before: Flow, after: Flow, source: bool) -> int | None:
    """How much later in memory the one flow begins; None when they go through it differently."""
    a, b = (before.src_view, after.src_view) if source else (before.dst_view, after.dst_view)
    if a is None or b is None:
        return 0 if a is b else None
    return b.offset - a.offset if a.strides == b.strides else None


def _inputs(unit: Pcu, flows: Iterable[Flow]) -> list[tuple[Flow, Stream]] | None:
    found = sorted(flows, key=lambda f: f.dst_port)
    streams = [_whole(f.stream) for f in found]
    if len(found) != unit.inputs or any(s is None for s in streams):
        return None
    return [(f, s) for f, s in zip(found, streams, strict=True) if s is not None]


def _pair(
    config: Config, a: int, b: int, into: Mapping[int, list[Flow]], out_of: Mapping[int, list[Flow]]
) -> _Pair | None:
    """The pair of units a and b, if b's blocks begin where a's end, as far as these two alone tell."""
    first, second = config.units[a], config.units[b]
    assert isinstance(first, Pcu) and isinstance(second, Pcu)
    left, right = _inputs(first, into[a]), _inputs(second, into[b])
    if left is None or right is None:
        return None
    types: list[TT] = []
    moved: dict[int, int] = {}
    for i, ((f, s), (g, t)) in enumerate(zip(left, right, strict=True)):
        dim = _beside(s, t)
        if dim is None:
            return None
        if dim < 0 and f.src == g.src and (shift := _shift(f, g, True)) and f.src_view is not None:  # equal blocks
            dim = next((d for d, n in enumerate(s.tile) if n * f.src_view.strides[d] == shift), -1)
        tile = list(s.tile)
        if dim >= 0:
            moved[i] = dim
            tile[dim] += t.tile[dim]
        types.append(TT(tuple(tile), s.dtype))
    try:
        ops, types = _on(first, [TT(s.tile, s.dtype) for _, s in left], types)
        follows = next(
            axis.follows
            for axis in axes(ops, types, first.outputs)
            if {i: f.dim for i, f in axis.follows.items() if i < first.inputs} == moved
            and all((f.scale, f.extent, f.offset) == (1, 1, 0) for f in axis.follows.values())
        )
    except (ShapeError, StopIteration):
        return None
    dims = {v: follow.dim for v, follow in follows.items()}
    unit = replace(first, ops=tuple(ops), types=tuple(types), sites=first.sites[:1])
    return _Pair(a, b, unit, dims) if moved and out_of[a] and out_of[b] else None


def _on(unit: Pcu, tiles: list[TT], inputs: list[TT]) -> tuple[list[BodyOp], list[TT]]:
    """The ops of a unit, whose inputs are `tiles` of all its sites, on larger `inputs`, and the types of all values."""
    types = list(inputs) + list(unit.types[unit.inputs :])
    before = list(unit.types)
    before[: unit.inputs] = tiles
    ops: list[BodyOp] = []
    for op in unit.ops:
        attrs = op.attrs
        if op.name != CONSTANT and op.operands:
            operands = [types[v] for v in op.operands]
            attrs = shapes.joined_attrs(op.name, attrs, [unit.types[v] for v in op.operands], operands)
            for v, type in zip(op.results, shapes.infer(op.name, attrs, operands), strict=True):
                types[v] = type
        ops.append(replace(op, attrs=attrs))
    return ops, types


def _agrees(
    config: Config,
    pair: _Pair,
    pairs: Mapping[int, _Pair],
    into: Mapping[int, list[Flow]],
    out_of: Mapping[int, list[Flow]],
) -> bool:
    """Whether everything at the ends of a pair lies side by side, given the other pairs."""
    if pairs.get(pair.first) is not pair or pairs.get(pair.second) is not pair:
        return False
    first, second = config.units[pair.first], config.units[pair.second]
    assert isinstance(first, Pcu) and isinstance(second, Pcu)
    for f, g in zip(
        sorted(into[pair.first], key=lambda f: f.dst_port),
        sorted(into[pair.second], key=lambda f: f.dst_port),
        strict=True,
    ):
        if not _side(pair, f, g, pairs, f.dst_port, source=True):
            return False
    left, right = _ends(out_of[pair.first]), _ends(out_of[pair.second])
    return len(left) == len(right) and all(
        f.src_port == g.src_port and _side(pair, f, g, pairs, pair.unit.outputs[f.src_port], source=False)
        for f, g in zip(left, right, strict=True)
    )


def _ends(flows: Iterable[Flow]) -> list[Flow]:
    return sorted(flows, key=lambda f: (f.src_port, f.dst, f.dst_port, f.dst_view.offset if f.dst_view else 0))


def _side(pair: _Pair, f: Flow, g: Flow, pairs: Mapping[int, _Pair], value: int, *, source: bool) -> bool:
    """Whether two flows at the same port of a pair are neighbouring blocks of one."""
    s, t = _whole(f.stream), _whole(g.stream)
    shift = _shift(f, g, source)
    if s is None or t is None or shift is None or s.time != t.time:
        return False
    here, there = (f.src, g.src) if source else (f.dst, g.dst)
    dim = pair.dims.get(value, -1)
    if here != there:
        other = pairs.get(here)
        ports = (f.src_port, g.src_port) if source else (f.dst_port, g.dst_port)
        return other is not None and (other.first, other.second) == (here, there) and ports[0] == ports[1]
    view = f.src_view if source else f.dst_view
    if view is None:
        return dim < 0
    return shift == (s.tile[dim] * view.strides[dim] if dim >= 0 else 0)


def _join(config: Config, pairs: Mapping[int, _Pair]) -> Config:
    """The config with the second unit of each pair left out, and the first one in the place of both."""
    gone = {pair.second for pair in pairs.values()}
    number = {u: i for i, u in enumerate(u for u in range(len(config.units)) if u not in gone)}
    units = [pairs[u].unit if u in pairs else config.units[u] for u in number]
    flows: list[Flow] = []
    for flow in config.flows:
        if flow.src in gone or flow.dst in gone:
            continue
        if flow.src in pairs:
            pair = pairs[flow.src]
            type = pair.unit.types[pair.unit.outputs[flow.src_port]]
        elif flow.dst in pairs:
            type = pairs[flow.dst].unit.types[flow.dst_port]
        else:
            flows.append(replace(flow, src=number[flow.src], dst=number[flow.dst]))
            continue
        stream = Stream(type.shape, type.dtype, flow.stream.time)
        flows.append(replace(flow, src=number[flow.src], dst=number[flow.dst], stream=stream))
    return replace(config, units=tuple(units), flows=tuple(flows))
