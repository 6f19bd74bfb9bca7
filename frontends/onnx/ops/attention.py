"""Attention, rotary embeddings and caches (opset 23 and 24)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import sqrt

from headrace.frontends.building import Refused, Value
from headrace.frontends.onnx.node import Node
from headrace.frontends.onnx.ops import converts


def _heads(n: Node, x: Value, count: int | None, what: str) -> Value:
    """[B, S, heads·D] as [B, heads, S, D]; four dims stay as they are."""
    if x.rank == 4:
        return x
    if x.rank != 3 or not count or x.shape[2] % count:
        raise Refused(f"{what} is {x.type}, which {count} heads do not divide", code="bad-node")
    b, s, width = x.shape
    return n.transpose(n.reshape(x, (b, s, count, width // count)), (0, 2, 1, 3))


@converts("Attention")
def _attention(n: Node) -> Sequence[Value | None]:
    """softmax(Q·Kᵀ·scale + mask)·V over [B, heads, S, D], with past keys and values in front and grouped heads."""
    n.ignore("qk_matmul_output_mode", "softmax_precision")
    if len(n.outputs) > 3 and n.outputs[3]:
        raise Refused("its result qk_matmul_output is not supported", "drop that output")
    flat = n[0].rank == 3
    q = _heads(n, n[0], n.int("q_num_heads", None), "Q")
    k, v = (_heads(n, n[i], n.int("kv_num_heads", None), "QKV"[i]) for i in (1, 2))
    k, v = (new if old is None else n.op("concat", old, new, axis=2) for old, new in ((n.get(4), k), (n.get(5), v)))
    present = (k, v)
    heads, kv_heads = q.shape[1], k.shape[1]
    if heads != kv_heads:
        if not kv_heads or heads % kv_heads:
            raise Refused(f"{kv_heads} key heads do not divide {heads} query heads", code="bad-node")
        k, v = (_repeat(n, x, heads // kv_heads) for x in (k, v))
    y = _attend(n, q, k, v)
    if flat:
        b, h, s, d = y.shape
        y = n.reshape(n.transpose(y, (0, 2, 1, 3)), (b, s, h * d))
    return (y, *present)[: max(1, len(n.outputs))]


def _repeat(n: Node, x: Value, times: int) -> Value:
    b, h, s, d = x.shape
    return n.reshape(n.broadcast(n.reshape(x, (b, h, 1, s, d)), (b, h, times, s, d)), (b, h * times, s, d))


def _attend(n: Node, q: Value, k: Value, v: Value) -> Value:
    softcap, scale = n.float("softcap", 0.0), n.float("scale", None)
    scale = 1 / sqrt(max(q.shape[-1], 1)) if scale is None else scale
    keep, mask = _masks(n, q.shape[2], k.shape[2], q.dtype)
    causal = n.flag("is_causal") and keep is None and softcap <= 0
    if causal:
        keys = None
    else:
        keys = keep
        if n.flag("is_causal") and keep is None:
            keys = _ordered(n, q.shape[2], k.shape[2], n.scalar(0, "i64"), None, 0)
    if keys is not None and mask is not None:
        mask = n.op("select", keys, mask, n.scalar(float("-inf"), q.dtype))
    elif keys is not None:
        mask = keys
    if softcap > 0:
        y = _capped(n, q, k, v, mask, scale, softcap)
    else:
        operands = (q, k, v) if mask is None else (q, k, v, mask)
        y = n.op("attention", *operands, scale=scale, causal=causal)
    return y if keys is None or _all_see(n, keys) else _zero_unseen(n, y, keys)


def _masks(n: Node, queries: int, keys: int, dtype: str) -> tuple[Value | None, Value | None]:
    """Which keys a query may see (i1), and what is added to its scores. Causality alone is left to the op."""
    mask, past, valid = n.get(3), n.get(4), n.get(6)
    if mask is not None and mask.rank and mask.shape[-1] < keys:  # what the mask does not reach is masked out
        fill = 0.0 if mask.dtype == "i1" else float("-inf")
        hi = (*((0,) * (mask.rank - 1)), keys - mask.shape[-1])
        mask = n.op("pad", mask, lo=(0,) * mask.rank, hi=hi, value=fill)
    parts = [mask] if mask is not None and mask.dtype == "i1" else []
    offset = n.scalar(0 if past is None else past.shape[2], "i64")
    if valid is not None:
        valid = n.reshape(n.cast(valid, "i64"), (valid.type.elements, 1, 1, 1))
        parts.append(n.op("less", n.op("iota", shape=(1, keys), dtype="i64", axis=1), valid))
        if past is None:
            offset = n.op("sub", valid, n.scalar(queries, "i64"))
    causal, left, right = n.flag("is_causal"), n.int("left_window_size", -1), n.int("right_window_size", -1)
    if left >= 0 or right >= 0 or (causal and (past is not None or valid is not None or parts)):
        after = 0 if causal else right if right >= 0 else None
        parts.append(_ordered(n, queries, keys, offset, left if left >= 0 else None, after))
    keep = reduce(lambda a, b: n.op("and", a, b), parts) if parts else None
    return keep, None if mask is None or mask.dtype == "i1" else mask


def _ordered(n: Node, queries: int, keys: int, offset: Value, before: int | None, after: int | None) -> Value:
    """Keys at most `before` before and `after` after the position query + offset of each query."""
    at = n.op("add", n.op("iota", shape=(queries, 1), dtype="i64", axis=0), offset)
    key = n.op("iota", shape=(1, keys), dtype="i64", axis=1)
    parts: list[Value] = []
    if before is not None:
        parts.append(n.op("greater_equal", key, n.op("sub", at, n.scalar(before, "i64"))))
    if after is not None:
        parts.append(n.op("less_equal", key, n.op("add", at, n.scalar(after, "i64")) if after else at))
    return reduce(lambda a, b: n.op("and", a, b), parts)


def _all_see(n: Node, keys: Value) -> bool:
    """Whether every query is known to see some key."""
    array = n.builder.array(keys) if keys.known else None
    return array is not None and bool(array.any(axis=-1).all())


def _zero_unseen(n: Node, y: Value, keys: Value) -> Value:
    """A query that sees no key gives zeros."""
    some = n.op("reduce_max", keys, axes=(keys.rank - 1,), keepdims=True)
    return n.op("select", some, y, n.scalar(0, y.dtype))


def _capped(n: Node, q: Value, k: Value, v: Value, mask: Value | None, scale: float, softcap: float) -> Value:
    """Attention whose scores are limited to ±softcap by tanh, before the mask."""
    scores = n.op("matmul", q, n.transpose(k, (0, 1, 3, 2)))
    cap = n.scalar(softcap, q.dtype)
    scores = n.op("mul", n.op("tanh", n.op("mul", scores, n.scalar(scale / softcap, q.dtype))), cap)
    if mask is not None and mask.dtype == "i1":
        scores = n.op("select", mask, scores, n.scalar(float("-inf"), q.dtype))
    elif mask is not None:
        scores = n.op("add", scores, mask)
    return n.op("matmul", n.op("softmax", scores, axis=-1), v)


@converts("TensorScatter")
def _tensor_scatter(n: Node) -> Value:
    """Writes an update into a cache, per batch element from its write index on (around the end when circular)."""
    cache, update, start = n[0], n[1], n.get(2)
    axis, mode = n.axis(n.int("axis", -2), cache.rank), n.string("mode", "linear")
    if axis == 0 or update.rank != cache.rank:
        raise Refused(f"update {update.type} does not fit cache {cache.type} along dim {axis}", code="bad-node")
    shape = tuple(s if d == axis else 1 for d, s in enumerate(update.shape))
    at = n.op("iota", shape=shape, dtype="i64", axis=axis)
    if start is not None:
        at = n.op("add", at, n.reshape(n.cast(start, "i64"), (cache.shape[0], *((1,) * (cache.rank - 1)))))
    if mode == "circular":
        at = n.op("mod", at, n.scalar(cache.shape[axis], "i64"))
    elif mode != "linear":
        raise Refused(f"mode is '{mode}'", code="bad-node")
    return n.op("scatter_elements", cache, n.broadcast(at, update.shape), update, axis=axis)


@converts("RotaryEmbedding")
def _rotary(n: Node) -> Value:
    """Rotates pairs of features by the angles of their position."""
    x, cos, sin, positions = n[0], n[1], n[2], n.get(3)
    flat = x.rank == 3
    x = _heads(n, x, n.int("num_heads", None), "X")
    d = n.int("rotary_embedding_dim", 0) or x.shape[-1]
    half = d // 2
    if positions is not None:
        cos, sin = (n.op("gather", c, positions, axis=0) for c in (cos, sin))
    if x.rank != 4 or cos.rank != 3 or sin.rank != 3 or min(cos.shape[-1], sin.shape[-1]) < half:
        raise Refused(f"its cache is {cos.type}, for {half} pairs of features", code="bad-node")
    cos, sin = (n.slice(c, 2, 0, half) if c.shape[-1] > half else c for c in (cos, sin))
    cos, sin = (n.reshape(c, (c.shape[0], 1, *c.shape[1:])) for c in (cos, sin))
    head = n.slice(x, 3, 0, d) if d < x.shape[-1] else x
    b, h, s = x.shape[:3]
    if n.flag("interleaved"):
        pairs = n.reshape(head, (b, h, s, half, 2))
        a, c = (n.reshape(n.slice(pairs, 4, i, i + 1), (b, h, s, half)) for i in (0, 1))
    else:
        a, c = n.slice(head, 3, 0, half), n.slice(head, 3, half, d)
    real = n.op("sub", n.op("mul", a, cos), n.op("mul", c, sin))
    imaginary = n.op("add", n.op("mul", a, sin), n.op("mul", c, cos))
    if n.flag("interleaved"):
        parts = [n.reshape(v, (b, h, s, half, 1)) for v in (real, imaginary)]
        y = n.reshape(n.op("concat", *parts, axis=4), (b, h, s, d))
    else:
        y = n.op("concat", real, imaginary, axis=3)
    if d < x.shape[-1]:
        y = n.op("concat", y, n.slice(x, 3, d, x.shape[-1]), axis=3)
    return n.reshape(n.transpose(y, (0, 2, 1, 3)), n[0].shape) if flat else y
