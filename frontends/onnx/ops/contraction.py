"""Matrix products, convolutions and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from headrace.frontends.building import Refused, Value
from headrace.frontends.convolution import transposed
from headrace.frontends.onnx.node import Node
from headrace.frontends.onnx.ops import converts


@converts("MatMul")
def _matmul(n: Node) -> Value:
    return n.op("matmul", n[0], n[1])


@converts("Gemm")
def _gemm(n: Node) -> Value:
    """alpha · A' · B' + beta · C, where ' is an optional transposition."""
    a, b, c = n[0], n[1], n.get(2)
    if a.rank != 2 or b.rank != 2:
        raise Refused(f"its operands have {a.rank} and {b.rank} dims, not 2", code="bad-node")
    a = n.transpose(a, (1, 0)) if n.flag("transA") else a
    b = n.transpose(b, (1, 0)) if n.flag("transB") else b
    y = _scaled(n, n.op("matmul", a, b), n.float("alpha", 1.0))
    beta = n.float("beta", 1.0)
    return y if c is None or beta == 0 else n.op("add", y, _scaled(n, c, beta))


def _scaled(n: Node, x: Value, factor: float) -> Value:
    return x if factor == 1 else n.op("mul", x, n.scalar(factor, x.dtype))


# Sliding windows


def _per_dim(n: Node, name: str, dims: int, default: int) -> tuple[int, ...]:
    values = n.int_list(name, (default,) * dims)
    if len(values) != dims or any(v < 1 for v in values):
        raise Refused(f"{name} is {list(values)} for {dims} spatial dims", code="bad-node")
    return values


def _spatial(n: Node) -> int:
    """How many spatial dims the operand [N, C, spatial…] has."""
    if n[0].rank < 3:
        raise Refused(f"its operand has {n[0].rank} dims; it needs a batch, channels and spatial dims", code="bad-node")
    return n[0].rank - 2


def _pads(
    n: Node, size: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[int, ...]:
    """Padding before each spatial dim, then after each, from `pads` or `auto_pad`."""
    n.ignore("pads")  # says nothing beside an auto_pad
    mode = n.string("auto_pad", "NOTSET")
    if mode in ("NOTSET", ""):
        pads = n.int_list("pads", (0,) * (2 * len(size)))
        if len(pads) != 2 * len(size):
            raise Refused(f"pads is {list(pads)} for {len(size)} spatial dims", code="bad-node")
        return pads
    if mode == "VALID":
        return (0,) * (2 * len(size))
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        raise Refused(f"auto_pad is {mode!r}", code="bad-node")
    small: list[int] = []
    large: list[int] = []
    for length, k, stride, dilation in zip(size, kernel, strides, dilations, strict=True):
        total = max((-(-length // stride) - 1) * stride + (k - 1) * dilation + 1 - length, 0)
        small.append(total // 2)
        large.append(total - total // 2)
    return (*small, *large) if mode == "SAME_UPPER" else (*large, *small)


@converts("Conv")
def _conv(n: Node) -> Value:
    x, w, bias = n[0], n[1], n.get(2)
    dims = _spatial(n)
    if w.rank != x.rank:
        raise Refused(f"its filter has {w.rank} dims, its operand {x.rank}", code="bad-node")
    kernel = w.shape[2:]
    if n.int_list("kernel_shape", kernel) != kernel:
        raise Refused(
            f"kernel_shape is {list(n.int_list('kernel_shape'))} but its filter has {list(kernel)}", code="bad-node"
        )
    strides, dilations = _per_dim(n, "strides", dims, 1), _per_dim(n, "dilations", dims, 1)
    pads = _pads(n, x.shape[2:], kernel, strides, dilations)
    operands = (x, w) if bias is None else (x, w, bias)
    return n.op("conv", *operands, strides=strides, pads=pads, dilations=dilations, groups=n.int("group", 1))


@converts("ConvTranspose")
def _conv_transpose(n: Node) -> Value:
    """A convolution of the operand with zeros between its elements, by the mirrored filter."""
    n.ignore("kernel_shape", "auto_pad", "pads", "output_shape")
    x, w, bias = n[0], n[1], n.get(2)
    dims, groups = _spatial(n), n.int("group", 1)
    if w.rank != x.rank or groups < 1 or w.shape[0] % groups:
        raise Refused(f"filter {w.type} does not fit operand {x.type} in {groups} groups", code="bad-node")
    kernel, size = w.shape[2:], x.shape[2:]
    strides, dilations = _per_dim(n, "strides", dims, 1), _per_dim(n, "dilations", dims, 1)
    extra = n.int_list("output_padding", (0,) * dims)
    if len(extra) != dims:
        raise Refused(f"output_padding is {list(extra)} for {dims} spatial dims", code="bad-node")
    reach = [(k - 1) * d for k, d in zip(kernel, dilations, strict=True)]
    pads = _transposed_pads(n, size, strides, reach, extra)
    return transposed(n, x, w, bias, strides, pads, dilations, extra, groups)


def _transposed_pads(
    n: Node, size: Sequence[int], strides: Sequence[int], reach: Sequence[int], extra: Sequence[int]
) -> tuple[int, ...]:
    """What is cut from the full result, from `output_shape`, `auto_pad` or `pads`."""
    dims = len(size)
    mode = n.string("auto_pad", "NOTSET")
    wanted = n.int_list("output_shape", None)
    full = [(s - 1) * stride + r + 1 + e for s, stride, r, e in zip(size, strides, reach, extra, strict=True)]
    if wanted is None and mode in ("SAME_UPPER", "SAME_LOWER"):
        wanted = tuple(s * stride for s, stride in zip(size, strides, strict=True))
    if wanted is None:
        pads = (0,) * (2 * dims) if mode == "VALID" else n.int_list("pads", (0,) * (2 * dims))
        if len(pads) != 2 * dims:
            raise Refused(f"pads is {list(pads)} for {dims} spatial dims", code="bad-node")
        return pads
    if len(wanted) < dims:
        raise Refused(f"output_shape is {list(wanted)} for {dims} spatial dims", code="bad-node")
    total = [f - o for f, o in zip(full, wanted[-dims:], strict=True)]
    small = [t // 2 for t in total]
    large = [t - s for t, s in zip(total, small, strict=True)]
    return (*small, *large) if mode == "SAME_UPPER" else (*large, *small)


@converts("MaxPool", "AveragePool")
def _pool(n: Node) -> Value:
    if len(n.outputs) > 1 and n.outputs[1]:
        raise Refused("its second result (indices) is not supported", "drop the Indices output")
    dims = _spatial(n)
    kernel = _per_dim(n, "kernel_shape", dims, 0)
    strides, dilations = _per_dim(n, "strides", dims, 1), _per_dim(n, "dilations", dims, 1)
    pads = _pads(n, n[0].shape[2:], kernel, strides, dilations)
    attrs = {"kernel": kernel, "strides": strides, "pads": pads, "dilations": dilations, "ceil": n.flag("ceil_mode")}
    if n.op_type == "MaxPool":
        return n.op("max_pool", n[0], **attrs)
    return n.op("avg_pool", n[0], **attrs, count_include_pad=n.flag("count_include_pad"))


@converts("GlobalAveragePool", "GlobalMaxPool")
def _global_pool(n: Node) -> Value:
    _spatial(n)
    name = "reduce_mean" if n.op_type == "GlobalAveragePool" else "reduce_max"
    return n.op(name, n[0], axes=tuple(range(2, n[0].rank)), keepdims=True)


@converts("LpPool", "GlobalLpPool")
def _lp_pool(n: Node) -> Value:
    """The p-norm of each window: an average of powers, times the window's elements, to the power 1/p."""
    x, p, dims = n[0], n.int("p", 2), _spatial(n)
    if p < 1:
        raise Refused(f"p is {p} but must be 1 or more", code="bad-node")
    powers = n.op("pow", n.op("abs", x), n.scalar(p, x.dtype))
    if n.op_type == "GlobalLpPool":
        total = n.op("reduce_sum", powers, axes=tuple(range(2, x.rank)), keepdims=True)
    else:
        kernel = _per_dim(n, "kernel_shape", dims, 0)
        strides, dilations = _per_dim(n, "strides", dims, 1), _per_dim(n, "dilations", dims, 1)
        if n.flag("ceil_mode"):
            raise Refused("ceil_mode is not supported")
        pads = _pads(n, x.shape[2:], kernel, strides, dilations)
        attrs = {"kernel": kernel, "strides": strides, "pads": pads, "dilations": dilations}
        mean = n.op("avg_pool", powers, **attrs, count_include_pad=True)
        total = n.op("mul", mean, n.scalar(prod(kernel), x.dtype))
    return n.op("pow", total, n.scalar(1 / p, x.dtype))


# Einsum


def _terms(n: Node) -> tuple[list[str], str]:
    """The subscripts of each operand and of the result, an ellipsis spelt out in letters of its own."""
    equation = n.string("equation").replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(n.operands) or not all(ch.isalpha() or ch in ".,->" for ch in equation):
        raise Refused(f"equation '{equation}' does not fit {len(n.operands)} operands", code="bad-node")
    spare = [chr(c) for c in range(0x391, 0x3C9)]
    widths = [x.rank - len(t.replace("...", "")) for t, x in zip(terms, n.operands, strict=True) if "..." in t]
    dots = "".join(spare[: max(widths, default=0)])
    spelt: list[str] = []
    for term, x in zip(terms, n.operands, strict=True):
        width = x.rank - len(term.replace("...", ""))
        spelt.append(term.replace("...", dots[len(dots) - width :] if width > 0 else ""))
        if len(spelt[-1]) != x.rank or "." in spelt[-1]:
            raise Refused(f"subscripts '{term}' do not fit a tensor of {x.rank} dims", code="bad-node")
    if arrow:
        return spelt, right.replace("...", dots)
    letters = sorted({ch for term in spelt for ch in term if "".join(spelt).count(ch) == 1 and ch not in dots})
    return spelt, dots + "".join(letters)


@converts("Einsum")
def _einsum(n: Node) -> Value:
    """Operands are taken in pairs from the left; each pair is one batched matrix product."""
    terms, result = _terms(n)
    if any(len(set(term)) < len(term) for term in (*terms, result)):
        raise Refused(
            "a subscript is repeated in one operand (a diagonal)", "write the diagonal with Gather or Mul and ReduceSum"
        )
    values, subscripts = list(n.operands), list(terms)
    value, have = values[0], subscripts[0]
    if set(result) - set("".join(terms)):
        raise Refused("its result has a subscript that no operand has", code="bad-node")
    for i in range(1, len(values)):
        later = set("".join(subscripts[i + 1 :])) | set(result)
        value, have = _contract(n, value, have, values[i], subscripts[i], later)
    value, have = _sum_out(n, value, have, set(result))
    return n.transpose(value, [have.index(ch) for ch in result])


def _sum_out(n: Node, x: Value, have: str, keep: set[str]) -> tuple[Value, str]:
    axes = tuple(i for i, ch in enumerate(have) if ch not in keep)
    if not axes:
        return x, have
    return n.op("reduce_sum", x, axes=axes, keepdims=False), "".join(ch for ch in have if ch in keep)


def _contract(n: Node, a: Value, sa: str, b: Value, sb: str, later: set[str]) -> tuple[Value, str]:
    """The product of two operands, summed over the subscripts that nothing later needs."""
    a, sa = _sum_out(n, a, sa, set(sb) | later)
    b, sb = _sum_out(n, b, sb, set(sa) | later)
    size_a, size_b = dict(zip(sa, a.shape, strict=True)), dict(zip(sb, b.shape, strict=True))
    batch = [ch for ch in sa if ch in sb and ch in later]
    inner = [ch for ch in sa if ch in sb and ch not in later]
    rows, columns = [ch for ch in sa if ch not in sb], [ch for ch in sb if ch not in sa]
    for ch in inner:
        if size_a[ch] != size_b[ch]:
            raise Refused(f"subscript {ch} has sizes {size_a[ch]} and {size_b[ch]}", code="bad-node")
    left = n.transpose(a, [sa.index(ch) for ch in (*batch, *rows, *inner)])
    right = n.transpose(b, [sb.index(ch) for ch in (*batch, *inner, *columns)])
    m, k, c = (prod(s[ch] for ch in group) for s, group in ((size_a, rows), (size_a, inner), (size_b, columns)))
    y = n.op(
        "matmul",
        n.reshape(left, (*(size_a[ch] for ch in batch), m, k)),
        n.reshape(right, (*(size_b[ch] for ch in batch), k, c)),
    )
    shape = (*y.shape[:-2], *(size_a[ch] for ch in rows), *(size_b[ch] for ch in columns))
    return n.reshape(y, shape), "".join((*batch, *rows, *columns))
