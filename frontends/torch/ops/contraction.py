"""Products and convolutions."""

from __future__ import annotations

from headrace.frontends.building import Refused, Value
from headrace.frontends.convolution import padded_or_cropped, transposed
from headrace.frontends.torch.node import Node
from headrace.frontends.torch.ops import converts
from headrace.frontends.torch.ops.random import generator, probability


@converts("mm", "bmm", "matmul")
def _product(n: Node) -> Value:
    name = "self" if n.has("self") else "input"
    other = "mat2" if n.has("mat2") else "other"
    return n.op("matmul", n[name], n[other])


@converts("linear")
def _linear(n: Node) -> Value:
    y = n.op("matmul", n["input"], n.transpose(n["weight"], (1, 0)) if n["weight"].rank == 2 else n["weight"])
    return n.op("add", y, n["bias"]) if n.has("bias") else y


@converts("addmm", "baddbmm")
def _addmm(n: Node) -> Value:
    names = ("mat1", "mat2") if n.stem == "addmm" else ("batch1", "batch2")
    y = n.op("matmul", n[names[0]], n[names[1]])
    alpha, beta = n.number("alpha", 1), n.number("beta", 1)
    if alpha != 1:
        y = n.op("mul", y, n.scalar(alpha, y.dtype))
    if beta == 0:
        return y
    bias = n["self"]
    if beta != 1:
        bias = n.op("mul", bias, n.scalar(beta, bias.dtype))
    return n.op("add", y, bias)


@converts("scaled_dot_product_attention")
def _attention(n: Node) -> Value:
    """Groups of query heads share a key head with `enable_gqa`; a mask of booleans says what may be seen."""
    q, k, v = n["query"], n["key"], n["value"]
    if k.shape[-3:-2] != q.shape[-3:-2] and n.get("enable_gqa"):
        k, v = (_repeated(n, x, q.shape[-3] // x.shape[-3]) for x in (k, v))
    scale = n.number("scale", None)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    if p := probability(n, "dropout_p"):
        kept, _ = generator(n).dropped(n, _weights(n, q, k, n.scalar(scale, q.dtype)), p)
        return n.op("matmul", kept, v)
    operands = [q, k, v]
    if n.has("attn_mask"):
        mask = n["attn_mask"]
        if mask.dtype == "i1":
            mask = n.op("select", mask, n.scalar(0, q.dtype), n.scalar(float("-inf"), q.dtype))
        operands.append(n.cast(mask, q.dtype))
    return n.op("attention", *operands, scale=float(scale), causal=bool(n.get("is_causal", False)))


def _repeated(n: Node, x: Value, times: int) -> Value:
    *batch, heads, rows, columns = x.shape
    spread = n.broadcast(n.reshape(x, (*batch, heads, 1, rows, columns)), (*batch, heads, times, rows, columns))
    return n.reshape(spread, (*batch, heads * times, rows, columns))


@converts("convolution")
def _convolution(n: Node) -> Value:
    x, w = n["input"], n["weight"]
    rank = w.rank - 2
    if x.rank == rank + 1:
        x = n.reshape(x, (1, *x.shape))
    bias = n["bias"] if n.has("bias") else None
    strides, pads, dilations = (n.spread(name, rank) for name in ("stride", "padding", "dilation"))
    groups = n.number("groups", 1)
    if n.get("transposed"):
        extra = n.spread("output_padding", rank)
        return n.done(transposed(n, x, w, bias, strides, (*pads, *pads), dilations, extra, groups))
    operands = (x, w) if bias is None else (x, w, bias)
    return n.done(n.op("conv", *operands, strides=strides, pads=(*pads, *pads), dilations=dilations, groups=groups))


@converts("prims.fma.default")
def _fma(n: Node) -> Value:
    """a · b + c; rounded twice."""
    a, b, c = (n.tensor(name, n.type.dtype) for name in ("a", "b", "c"))
    return n.done(n.op("add", n.op("mul", a, b), c))


@converts("convolution_backward")
def _convolution_backward(n: Node) -> tuple[Value | None, ...]:
    """The operand's gradient is the convolution of the result's by the transposed filter, that of the filter the
    convolution of the operand by the result's gradient, with strides and dilations exchanged."""
    dy, x, w = n["grad_output"], n["input"], n["weight"]
    rank, groups = w.rank - 2, n.number("groups")
    strides, pads, dilations = (n.spread(name, rank) for name in ("stride", "padding", "dilation"))
    mask = tuple(n.get("output_mask"))
    back = bool(n.get("transposed"))  # then dy is what a convolution reads, and x what it gives
    read, given = (dy, x) if back else (x, dy)
    reach = [(k - 1) * d for k, d in zip(w.shape[2:], dilations, strict=True)]
    sizes = zip(read.shape[2:], given.shape[2:], strides, pads, reach, strict=True)
    unread = tuple(size + 2 * p - r - 1 - (out - 1) * s for size, out, s, p, r in sizes)  # by no window
    found: list[Value | None] = [None, None, None]
    if mask[0] and back:
        after = [p - left for p, left in zip(pads, unread, strict=True)]
        cut = padded_or_cropped(n, dy, [0] * rank, [min(p, 0) for p in after])
        ends = (*pads, *(max(p, 0) for p in after))
        found[0] = n.done(n.op("conv", cut, w, strides=strides, pads=ends, dilations=dilations, groups=groups), 0)
    elif mask[0]:
        found[0] = n.done(transposed(n, dy, w, None, strides, (*pads, *pads), dilations, unread, groups), 0)
    if mask[1]:
        found[1] = n.done(_filter_gradient(n, given, read, strides, pads, dilations, unread, groups), 1)
    if mask[2]:
        found[2] = n.op("reduce_sum", dy, axes=(0, *range(2, dy.rank)), keepdims=False)
    return tuple(found)


def _filter_gradient(
    n: Node,
    dy: Value,
    x: Value,
    strides: tuple[int, ...],
    pads: tuple[int, ...],
    dilations: tuple[int, ...],
    unread: tuple[int, ...],
    groups: int,
) -> Value:
    """Samples are summed over, so they are the channels: x as [groups · C/groups, N] each by its group of dy."""
    (batch, channels), outs = x.shape[:2], dy.shape[1]
    axes = tuple(range(2, x.rank))
    if any(unread):  # elements at the end that no window reads; pads before them may be among those
        lo, hi = (0, 0, *pads), (0, 0, *pads)
        x = n.op("pad", x, lo=lo, hi=hi) if any(pads) else x
        stops = (*x.shape[:2], *(size - left for size, left in zip(x.shape[2:], unread, strict=True)))
        x = n.op("slice", x, starts=(0,) * x.rank, stops=stops, steps=(1,) * x.rank)
        pads = (0,) * len(pads)
    size, out = x.shape[2:], dy.shape[2:]
    # [N, g, C/g, …] as [C/g, g · N, …], and [N, g, O/g, …] as [g · O/g, N, …]
    rows = n.reshape(x, (batch, groups, channels // groups, *size))
    rows = n.reshape(n.transpose(rows, (2, 1, 0, *(a + 1 for a in axes))), (channels // groups, groups * batch, *size))
    filters = n.transpose(dy, (1, 0, *axes))
    assert filters.shape == (outs, batch, *out)
    y = n.op(
        "conv", rows, filters, strides=dilations, pads=(*pads, *pads), dilations=strides, groups=groups
    )  # [C/g, O, kernel…]
    return n.transpose(y, (1, 0, *axes))


def _weights(n: Node, q: Value, k: Value, scale: Value) -> Value:
    """What attention weighs values with."""
    scores = n.op("mul", n.op("matmul", q, n.transpose(k, (*range(k.rank - 2), k.rank - 1, k.rank - 2))), scale)
    least = n.scalar(float("-inf"), q.dtype)
    if n.get("is_causal"):
        rows, columns = scores.shape[-2:]
        row, column = (n.op("iota", shape=(rows, columns), dtype="i64", axis=axis) for axis in (0, 1))
        scores = n.op("select", n.op("less_equal", column, row), scores, least)
    if n.has("attn_mask"):
        mask = n["attn_mask"]
        seen = mask.dtype == "i1"
        scores = n.op("select", mask, scores, least) if seen else n.op("add", scores, n.cast(mask, q.dtype))
    return n.op("softmax", scores, axis=scores.rank - 1)


@converts("_scaled_dot_product_flash_attention_for_cpu_backward")
def _attention_backward(n: Node) -> tuple[Value, ...]:
    """The weights are computed anew."""
    dy, q, k, v, y = (n[name] for name in ("grad_out", "query", "key", "value", "out"))
    if n.number("dropout_p", 0.0):
        raise Refused("it drops out attention weights", "train without dropout (dropout_p=0)")
    if k.shape[:-2] != q.shape[:-2]:
        raise Refused("groups of query heads share a key head", "repeat keys and values before attention")
    given = n.number("scale", None)
    scale = n.scalar(q.shape[-1] ** -0.5 if given is None else given, q.dtype)
    weights = _weights(n, q, k, scale)
    swap = (*range(q.rank - 2), q.rank - 1, q.rank - 2)
    share = n.op("reduce_sum", n.op("mul", dy, y), axes=(q.rank - 1,), keepdims=True)
    inner = n.op("sub", n.op("matmul", dy, n.transpose(v, swap)), share)
    slope = n.op("mul", n.op("mul", weights, inner), scale)
    dq, dk = n.op("matmul", slope, k), n.op("matmul", n.transpose(slope, swap), q)
    return n.done(dq, 0), n.done(dk, 1), n.done(n.op("matmul", n.transpose(weights, swap), dy), 2)
