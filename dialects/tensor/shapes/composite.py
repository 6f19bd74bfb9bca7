"""Shape, tiling and work rules of softmax, the norms and attention."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.dialects.tensor.shapes import (
    TT,
    Attrs,
    Follow,
    ShapeError,
    Tiling,
    adapts,
    counts_flops,
    infers,
    joins,
    tiles,
)
from headrace.dialects.tensor.shapes.axes import axis_of
from headrace.dialects.tensor.shapes.broadcasting import (
    broadcast_shape,
    follow_broadcast,
    follow_except,
    one_dtype,
    require_float,
)


@infers("tensor.softmax", "tensor.log_softmax")
def _softmax(attrs: Attrs, operands: Sequence[TT]) -> TT:
    require_float(operands[0].dtype)
    axis_of(attrs["axis"], len(operands[0].shape))
    return operands[0]


@tiles("tensor.softmax", "tensor.log_softmax")
def _tile_softmax(attrs: Attrs, operands: Sequence[TT], results: Sequence[TT]) -> Tiling:
    shape = operands[0].shape
    dims, follow = follow_except(shape, (axis_of(attrs["axis"], len(shape)),))
    return Tiling(dims, (follow,), (follow,))


@counts_flops("tensor.softmax", "tensor.log_softmax")
def _softmax_flops(attrs: Attrs, operands: Sequence[TT], results: Sequence[TT]) -> int:
    return 5 * operands[0].elements  # max, subtract, exp, sum, divide


@infers("tensor.layer_norm", "tensor.rms_norm")
def _norm(attrs: Attrs, operands: Sequence[TT]) -> TT:
    names = ("input", "scale", "bias")[: len(operands)]
    require_float(one_dtype(operands, names), "input")
    x = operands[0]
    normalized = x.shape[axis_of(attrs["axis"], len(x.shape)) :]
    for name, type in zip(names[1:], operands[1:], strict=True):
        if type.shape != normalized:
            raise ShapeError(f"{name} is {type} but the normalized dims of the input are {list(normalized)}")
    return x


@tiles("tensor.layer_norm", "tensor.rms_norm")
def _tile_norm(attrs: Attrs, operands: Sequence[TT], results: Sequence[TT]) -> Tiling:
    shape = operands[0].shape
    axis = axis_of(attrs["axis"], len(shape))
    dims, follow = follow_except(shape, range(axis, len(shape)))
    return Tiling(dims, (follow, *((None,) * (len(shape) - axis) for _ in operands[1:])), (follow,))


@counts_flops("tensor.layer_norm")
def _layer_norm_flops(attrs: Attrs, operands: Sequence[TT], results: Sequence[TT]) -> int:
    return (6 + len(operands) - 1) * operands[0].elements  # sum, subtract, square, sum, rsqrt·x; scale and bias


@counts_flops("tensor.rms_norm")
def _rms_norm_flops(attrs: Attrs, operands: Sequence[TT], results: Sequence[TT]) -> int:
    return 4 * operands[0].elements  # square, sum, times rsqrt, times scale


def _per_channel(operands: Sequence[TT], names: Sequence[str]) -> TT:
    require_float(one_dtype(operands, names), "input")
    x = operands[0]
    if len(x.shape) < 2:
        raise ShapeError(f"input is {x} but needs a batch dim and a channel dim")
    for name, type in zip(names[1:], operands[1:], strict=True):
        if type.shape != (x.shape[1],):
            raise ShapeError(f"{name} is {type} but the input has {x.shape[1]} channels")
    return x


@infers("tensor.batch_norm")
def _batch_norm(attrs: Attrs, operands: Sequence[TT]) -> TT:
    return _per_channel(operands, ("input", "scale", "bias", "mean", "variance"))


@tiles("tensor.batch_norm")
def _tile_batch_norm(attrs: Attrs, operands: Sequence[TT], results: Sequence[TT]) -> Tiling:
    dims, follow = follow_except(operands[0].shape, ())
    return Tiling(dims, (follow, *((Follow(1),) for _ in operands[1:])), (follow,))


@counts_flops("tensor.batch_norm")
def _batch_norm_flops(attrs: Attrs, operands: Sequence[TT], results: Sequence[TT]) -> int:
    return 3 * operands[0].elements  # subtract, times a factor per channel, add


@infers("tensor.group_norm")
def _group_norm(attrs: Attrs, operands: Sequence[TT]) -> TT:
    x = _per_channel(operands, ("input", "scale", "bias"))
    groups = attrs["groups"]
    if groups < 1 or x.shape[1] % groups:
        raise ShapeError(f"groups is {groups} but must divide {x.shape[1]} channels")
    return x


@tiles("tensor.group_norm")
def _tile_group_norm(attrs: Attrs, operands: Sequence[TT], results: Sequence[TT]) -> Tiling:
    shape = operands[0].shape
    alone = attrs["groups"] == shape[1]  # every channel is a group: then a block of channels is a block of groups
    dims, follow = follow_except(shape, range(2 if alone else 1, len(shape)))
    return Tiling(dims, (follow, *((Follow(1) if alone else None,) for _ in operands[1:])), (follow,))


@adapts("tensor.group_norm")
def _adapt_group_norm(attrs: Attrs, operands: Sequence[TT], results: Sequence[TT]) -> Attrs:
    return {**attrs, "groups": min(attrs["groups"], operands[0].shape[1] or attrs["groups"])}


@joins("tensor.group_norm")
def _join_group_norm(attrs: Attrs, tiles: Sequence[TT], operands: Sequence[TT]) -> Attrs:
    alone = attrs["groups"] == tiles[0].shape[1]  # channels are only cut where each is a group
    return {**attrs, "groups": operands[0].shape[1]} if alone else attrs


@counts_flops("tensor.group_norm")
def _group_norm_flops(attrs: Attrs, operands: Sequence[TT], results: Sequence[TT]) -> int:
    return 8 * operands[0].elements


@infers("tensor.attention")
def _attention(attrs: Attrs, operands: Sequence[TT]) -> TT:
    q, k, v = operands[:3]
    require_float(one_dtype((q, k, v), ("query", "key", "value")), "query")
    for name, type in (("query", q), ("key", k), ("value", v)):
        if len(type.shape) < 2:
            raise ShapeError(f"{name} is {type} but needs two dims or more")
    if q.shape[-1] != k.shape[-1]:
        raise ShapeError(f"query has {q.shape[-1]} features but key has {k.shape[-1]}")
    if k.shape[-2] != v.shape[-2]:
        raise ShapeError(f"key has {k.shape[-2]} positions but value has {v.shape[-2]}")
    batch = broadcast_shape([t.shape[:-2] for t in (q, k, v)], ("query", "key", "value"))
    scores = (*batch, q.shape[-2], k.shape[-2])
    if len(operands) > 3:
        mask = operands[3]
        if mask.dtype not in ("i1", q.dtype):
            raise ShapeError(f"mask has element type {mask.dtype} but must be i1 or {q.dtype}")
        if broadcast_shape((scores, mask.shape), ("scores", "mask")) != scores:
            raise ShapeError(f"mask is {mask} but the scores that it must broadcast to are {list(scores)}")
    return TT((*batch, q.shape[-2], v.shape[-1]), q.dtype)


@tiles("tensor.attention")
def _tile_attention(attrs: Attrs, operands: Sequence[TT], results: Sequence[TT]) -> Tiling:
    q, k, v = (t.shape for t in operands[:3])
    result = results[0].shape
    batch = result[:-2]
    dims = list(batch)
    row: Follow | None = None
    if not attrs["causal"]:  # which keys a causal query sees depends on its position
        row = Follow(len(dims))
        dims.append(result[-2])
    column = Follow(len(dims))
    dims.append(result[-1])

    def lead(shape: tuple[int, ...]) -> tuple[Follow | None, ...]:
        return follow_broadcast(shape, batch)

    follows: list[tuple[Follow | None, ...]] = [
        (*lead(q[:-2]), row, None),
        (*lead(k[:-2]), None, None),
        (*lead(v[:-2]), None, column),
    ]
    if len(operands) > 3:
        mask = operands[3].shape
        tail: list[Follow | None] = [row if len(mask) > 1 and mask[-2] == result[-2] else None, None]
        follows.append((*lead(mask[:-2]), *tail[2 - min(len(mask), 2) :]))
    return Tiling(tuple(dims), tuple(follows), ((*lead(batch), row, column),))


@counts_flops("tensor.attention")
def _attention_flops(attrs: Attrs, operands: Sequence[TT], results: Sequence[TT]) -> int:
    q, k = operands[0].shape, operands[1].shape
    scores = results[0].elements // results[0].shape[-1] * k[-2] if results[0].elements else 0
    return scores * (2 * q[-1] + 2 * results[0].shape[-1] + 6 + (len(operands) > 3))
