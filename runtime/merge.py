"""Merging the steps and sites of a compute unit into one computation on whole arrays.

A PCU runs its body once a step and site, on tiles that its loops move. `merge_body` pushes every loop through the ops
with their tiling rules: where an op is parallel along the dim that a loop moves, running it on the joined tiles is
the same as running it tile by tile. The result is the same list of ops with the types and attributes of the joined
tiles. Where the loops of an output do not come out as its flow says, `Unmergeable` tells why, and the unit runs
literally.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from headrace.dialects.support.access import Loop, Stream
from headrace.dialects.tensor import shapes
from headrace.dialects.tensor.shapes import TT, ShapeError
from headrace.runtime.program import BodyOp, Flow, Pcu

CONSTANT = "tensor.constant"
Move = tuple[int, int] | None  # (dim, step) of a loop on a value; None when the loop does not move it


class Unmergeable(Exception):
    """Why steps cannot be joined into one array operation."""


@dataclass(frozen=True)
class Domain:
    """The loops that a PCU runs: `time` counts, then `space` counts, loops of one iteration left out. `time_at[i]` is
    the place in a port's time loops of domain loop i."""

    time: tuple[int, ...]
    space: tuple[int, ...]

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Counts of all loops."""
        return self.time + self.space


@dataclass(frozen=True)
class Merged:
    """A body on joined tiles: `types[v]` and the attributes of every op; `moves[v][i]` is how domain loop i moves
    value v of the unmerged body."""

    types: tuple[TT, ...]
    attrs: tuple[Mapping[str, Any], ...]
    moves: tuple[tuple[Move, ...], ...]


def domain_loops(stream: Stream, sites: int) -> tuple[tuple[Loop, ...], tuple[Loop, ...]]:
    """Time and space loops of a flow as a PCU of `sites` sites at its end sees them, loops of one iteration left
    out."""
    time = tuple(x for x in stream.time if x.count > 1)
    space = tuple(x for x in stream.space if x.count > 1)
    if stream.sites != sites:
        space = tuple(x for x in space if x.dim >= 0)
    return time, space


def domain_of(pcu: Pcu, inputs: Sequence[Flow], outputs: Sequence[Flow]) -> Domain:
    """The loops that all ports of a PCU share; `Unmergeable` when their counts differ."""
    found: set[tuple[tuple[int, ...], tuple[int, ...]]] = set()
    for flow in (*inputs, *outputs):
        time, space = domain_loops(flow.stream, len(pcu.sites))
        found.add((tuple(x.count for x in time), tuple(x.count for x in space)))
    if len(found) != 1:
        raise Unmergeable(f"the ports of '{pcu.name}' number steps or sites differently: {sorted(found)}")
    time_counts, space_counts = found.pop()
    return Domain(time_counts, space_counts)


def moves_of(stream: Stream, sites: int) -> tuple[Move, ...]:
    """How every domain loop moves the tile of a flow."""
    time, space = domain_loops(stream, sites)
    return tuple((x.dim, x.step) if x.dim >= 0 else None for x in time + space)


def joined_shape(tile: Sequence[int], moves: Sequence[Move], counts: Sequence[int]) -> tuple[int, ...]:
    """Extent of the tiles of all loop indices together."""
    found = list(tile)
    for move, count in zip(moves, counts, strict=True):
        if move is not None:
            found[move[0]] += (count - 1) * move[1]
    return tuple(found)


def merge_body(
    pcu: Pcu, inputs: Sequence[tuple[Move, ...]], outputs: Sequence[tuple[Move, ...]], counts: Sequence[int]
) -> Merged:
    """The body on the joined tiles of `counts` iterations of the domain loops; a loop of count 1 is not joined.

    `inputs` and `outputs` are the moves of the flows at each port. `Unmergeable` when an op couples what a loop
    moves.
    """
    idle: tuple[Move, ...] = (None,) * len(counts)
    types: list[TT] = list(pcu.types)
    moves: list[tuple[Move, ...]] = [idle] * len(pcu.types)
    for v, move in enumerate(inputs):
        moves[v] = move
        types[v] = TT(joined_shape(pcu.types[v].shape, move, counts), pcu.types[v].dtype)
    attrs: list[Mapping[str, Any]] = []
    for op in pcu.ops:
        if op.name == CONSTANT:
            attrs.append(op.attrs)
            continue
        try:
            attrs.append(_push(pcu, op, types, moves, counts))
        except ShapeError as error:
            raise Unmergeable(f"{op.name} in '{pcu.name}' on joined tiles: {error}") from None
    for port, move in enumerate(outputs):
        v = pcu.outputs[port]
        for i, count in enumerate(counts):
            if count > 1 and moves[v][i] != move[i]:
                raise Unmergeable(
                    f"loop {i} moves output {port} of '{pcu.name}' by {move[i]} but its ops give {moves[v][i]}"
                )
    return Merged(tuple(types), tuple(attrs), tuple(moves))


def _push(
    pcu: Pcu, op: BodyOp, types: list[TT], moves: list[tuple[Move, ...]], counts: Sequence[int]
) -> Mapping[str, Any]:
    """Joined types and moves of the results of one op; returns its attributes on joined tiles."""
    operands = [types[v] for v in op.operands]
    if all(move is None or counts[i] == 1 for v in op.operands for i, move in enumerate(moves[v])):
        return op.attrs  # the same in every step
    attrs = op.attrs
    match op.name:
        case "tensor.reshape":
            attrs = {**attrs, "shape": _reshape(pcu, op, types, moves, counts)}
        case "tensor.broadcast":
            shape = list(attrs["shape"])
            for d, (tile, joined) in enumerate(zip(pcu.types[op.operands[0]].shape, operands[0].shape, strict=True)):
                at = d + len(shape) - len(operands[0].shape)
                if joined != tile and tile != shape[at]:
                    raise Unmergeable(f"tensor.broadcast in '{pcu.name}' stretches a dim that a loop moves")
                if joined != tile:
                    shape[at] = joined
            attrs = {**attrs, "shape": tuple(shape)}
        case "tensor.slice":
            stops = list(attrs["stops"])
            for d, (tile, joined) in enumerate(zip(pcu.types[op.operands[0]].shape, operands[0].shape, strict=True)):
                if joined != tile:
                    if attrs["starts"][d] != 0 or attrs["steps"][d] != 1 or stops[d] != tile:
                        raise Unmergeable(f"tensor.slice in '{pcu.name}' cuts a dim that a loop moves")
                    stops[d] = joined
            attrs = {**attrs, "stops": tuple(stops)}
        case _:
            attrs = shapes.joined_attrs(op.name, attrs, [pcu.types[v] for v in op.operands], operands)
    results = shapes.infer(op.name, attrs, operands)
    if op.name == "tensor.reshape":
        types[op.results[0]] = results[0]
        return attrs
    tiling = shapes.tiling(op.name, attrs, operands, results)
    found: list[list[Move]] = [[None] * len(counts) for _ in op.results]
    for i, count in enumerate(counts):
        if count == 1:
            continue
        along: set[tuple[int, int]] = set()
        for v, follows in zip(op.operands, tiling.operands, strict=True):
            move = moves[v][i]
            if move is None:
                continue
            follow = follows[move[0]]
            if follow is None or follow.offset != 0 or move[1] % follow.scale:
                raise Unmergeable(f"{op.name} in '{pcu.name}' couples dim {move[0]}, which loop {i} moves")
            along.add((follow.dim, move[1] // follow.scale))
        if not along:
            continue
        if len(along) > 1:
            raise Unmergeable(f"loop {i} moves operands of {op.name} in '{pcu.name}' along different dims")
        dim, step = along.pop()
        for v, follows in zip(op.operands, tiling.operands, strict=True):
            if moves[v][i] is None and any(f is not None and f.dim == dim for f in follows):
                raise Unmergeable(f"loop {i} moves some operands of {op.name} in '{pcu.name}' and not others")
        for k, follows in enumerate(tiling.results):
            for d, follow in enumerate(follows):
                if follow is not None and follow.dim == dim:
                    found[k][i] = (d, step)
            if found[k][i] is None:
                raise Unmergeable(f"result {k} of {op.name} in '{pcu.name}' does not follow loop {i}")
    for v, type, move in zip(op.results, results, found, strict=True):
        tile = pcu.types[v]
        if joined_shape(tile.shape, move, counts) != type.shape:
            raise Unmergeable(f"{op.name} in '{pcu.name}' gives {type} on joined tiles, not tiles of {tile}")
        types[v], moves[v] = type, tuple(move)
    for v, follows in zip(op.operands, tiling.operands, strict=True):
        _enough(pcu, op, v, follows, moves, tiling.results, counts)
    return attrs


def _enough(
    pcu: Pcu,
    op: BodyOp,
    v: int,
    follows: Sequence[shapes.Follow | None],
    moves: Sequence[tuple[Move, ...]],
    results: Sequence[Sequence[shapes.Follow | None]],
    counts: Sequence[int],
) -> None:
    """Every tile of an operand holds what its block of the result needs (no implied padding inside the joined
    array)."""
    for move, count in zip(moves[v], counts, strict=True):
        if move is None or count == 1:
            continue
        follow = follows[move[0]]
        if follow is None or (follow.scale, follow.extent) == (1, 1):
            continue
        for k, result in enumerate(results):
            for d, other in enumerate(result):
                if other is not None and other.dim == follow.dim:
                    block = pcu.types[op.results[k]].shape[d]
                    if (block - 1) * follow.scale + follow.extent > pcu.types[v].shape[move[0]]:
                        raise Unmergeable(f"{op.name} in '{pcu.name}' pads its tiles along dim {move[0]}")


def _digits(shape: Sequence[int], strides: Sequence[int], cuts: Sequence[int]) -> list[int] | None:
    """Strides of the digits of a row-major number of `shape` cut at the given place values (descending, last 1); None
    when a dim is not cut by them."""
    found: dict[int, int] = {}
    place = 1
    for n, stride in zip(reversed(shape), reversed(strides), strict=True):
        inside = [c for c in cuts if place <= c < place * n]
        if n > 1 and place not in inside:
            return None
        for c in inside:
            if c % place:
                return None
            found[c] = stride * (c // place)
        place *= n
    return [found[c] for c in cuts] if len(found) == len(cuts) else None


def _reshape(
    pcu: Pcu, op: BodyOp, types: Sequence[TT], moves: list[tuple[Move, ...]], counts: Sequence[int]
) -> tuple[int, ...]:
    """Result shape of a reshape on joined tiles, and its moves: each loop moves the one result dim for which the
    elements keep their row-major order."""
    v, r = op.operands[0], op.results[0]
    source, target = pcu.types[v].shape, pcu.types[r].shape
    joined = types[v].shape
    from_strides = _row_major(joined)
    cuts = sorted({p for shape in (source, target) for p in _places(shape)}, reverse=True)
    left = _digits(source, from_strides, cuts)
    order = [i for i, move in enumerate(moves[v]) if move is not None and counts[i] > 1]
    order.reverse()  # innermost first

    def search(
        k: int, shape: list[int], found: dict[int, tuple[int, int]]
    ) -> tuple[list[int], dict[int, tuple[int, int]]] | None:
        if k == len(order):
            strides = _row_major(shape)
            for i, (d, step) in found.items():
                move = moves[v][i]
                assert move is not None
                if move[1] * from_strides[move[0]] != step * strides[d]:
                    return None
            return (shape, found) if left is not None and _digits(target, strides, cuts) == left else None
        i = order[k]
        for d in range(len(shape)):
            larger = list(shape)
            larger[d] *= counts[i]
            done = search(k + 1, larger, {**found, i: (d, shape[d])})
            if done is not None:
                return done
        return None

    done = search(0, list(target), {})
    if done is None:
        raise Unmergeable(f"tensor.reshape in '{pcu.name}' mixes dims that loops move")
    shape, found = done
    moves[r] = tuple(found.get(i) for i in range(len(counts)))
    return tuple(shape)


def _row_major(shape: Sequence[int]) -> tuple[int, ...]:
    strides = [1] * len(shape)
    for d in range(len(shape) - 2, -1, -1):
        strides[d] = strides[d + 1] * shape[d + 1]
    return tuple(strides)


def _places(shape: Sequence[int]) -> list[int]:
    """Place values at which the row-major number of a shape has digits (dims of size 1 have none)."""
    found: list[int] = []
    place = 1
    for n in reversed(shape):
        if n > 1:
            found.append(place)
        place *= n
    return found
