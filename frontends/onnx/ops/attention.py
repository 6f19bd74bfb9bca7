"""Attention and rotary embeddings (opset 23)."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from headrace.frontends.onnx.node import Node, Refused, Value
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
    if len(n.outputs) > 3 and n.outputs[3]:
        raise Refused("its result qk_matmul_output is not supported", "drop that output")
    if n.get(6) is not None:
        raise Refused("its operand nonpad_kv_seqlen is not supported")
    flat = n[0].rank == 3
    q = _heads(n, n[0], n.int("q_num_heads", None), "Q")
    k, v = (_heads(n, n[i], n.int("kv_num_heads", None), "KV"[i - 1]) for i in (1, 2))
    past = [(n.get(4), k), (n.get(5), v)]
    k, v = (new if old is None else n.op("concat", old, new, axis=2) for old, new in past)
    present = (k, v)
    heads, kv_heads = q.shape[1], k.shape[1]
    if heads != kv_heads:
        if heads % kv_heads:
            raise Refused(f"{kv_heads} key heads do not divide {heads} query heads", code="bad-node")
        k, v = (_repeat(n, x, heads // kv_heads) for x in (k, v))
    scale = n.float("scale", None)
    y = _attend(n, q, k, v, n.get(3), 1 / sqrt(q.shape[-1]) if scale is None else scale)
    if flat:
        b, h, s, d = y.shape
        y = n.reshape(n.transpose(y, (0, 2, 1, 3)), (b, s, h * d))
    return (y, *present)[: max(1, len(n.outputs))]


def _repeat(n: Node, x: Value, times: int) -> Value:
    b, h, s, d = x.shape
    return n.reshape(n.broadcast(n.reshape(x, (b, h, 1, s, d)), (b, h, times, s, d)), (b, h * times, s, d))


def _attend(n: Node, q: Value, k: Value, v: Value, mask: Value | None, scale: float) -> Value:
    softcap, causal = n.float("softcap", 0.0), n.flag("is_causal")
    if mask is not None and mask.shape[-1] < k.shape[2]:  # what the mask does not reach is masked out
        fill = 0.0 if mask.dtype == "i1" else float("-inf")
        missing = k.shape[2] - mask.shape[-1]
        mask = n.op("pad", mask, lo=(0,) * mask.rank, hi=(*((0,) * (mask.rank - 1)), missing), value=fill)
    past = n.get(4)
    offset = 0 if past is None else past.shape[2]
    if causal and (offset or softcap):
        mask = _and_causal(n, mask, q.shape[2], k.shape[2], offset, q.dtype)
        causal = False
    if not softcap:
        operands = (q, k, v) if mask is None else (q, k, v, mask)
        return n.op("attention", *operands, scale=scale, causal=causal)
    scores = n.op("matmul", q, n.transpose(k, (0, 1, 3, 2)))
    scores = n.op("mul", scores, n.scalar(scale, q.dtype))
    cap = n.scalar(softcap, q.dtype)
    scores = n.op("mul", n.op("tanh", n.op("div", scores, cap)), cap)
    if mask is not None and mask.dtype == "i1":
        scores = n.op("select", mask, scores, n.scalar(float("-inf"), q.dtype))
    elif mask is not None:
        scores = n.op("add", scores, mask)
    return n.op("matmul", n.op("softmax", scores, axis=-1), v)


def _and_causal(n: Node, mask: Value | None, queries: int, keys: int, offset: int, dtype: str) -> Value:
    """The mask, and nothing after position query + offset."""
    last = n.op("add", n.op("iota", shape=(queries, 1), dtype="i64", axis=0), n.scalar(offset, "i64"))
    seen = n.op("less_equal", n.op("iota", shape=(1, keys), dtype="i64", axis=1), last)
    if mask is None:
        return seen
    if mask.dtype == "i1":
        return n.op("and", mask, seen)
    return n.op("select", seen, mask, n.scalar(float("-inf"), dtype))


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
    if cos.rank != 3 or cos.shape[-1] < half:
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
