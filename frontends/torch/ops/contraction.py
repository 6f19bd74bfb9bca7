"""Products and convolutions."""

from __future__ import annotations

from headrace.frontends.building import Refused, Value
from headrace.frontends.convolution import transposed
from headrace.frontends.torch.node import Node
from headrace.frontends.torch.ops import converts


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
    if n.number("dropout_p", 0.0):
        raise Refused("it drops out attention weights", "call model.eval() before inference")
    if k.shape[-3:-2] != q.shape[-3:-2] and n.get("enable_gqa"):
        k, v = (_repeated(n, x, q.shape[-3] // x.shape[-3]) for x in (k, v))
    scale = n.number("scale", None)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
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
