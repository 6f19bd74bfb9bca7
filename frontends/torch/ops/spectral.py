"""Complex numbers within a program, and Fourier transforms.

No element type is complex: a value of complex numbers is its real and its imaginary part (`Complex`), each a tensor.
An op that takes or gives one is converted here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod, sqrt

from headrace.dialects.support import dtypes
from headrace.frontends.building import Refused, Value
from headrace.frontends.torch.node import Complex, Node, Result
from headrace.frontends.torch.ops import conversion, converts_complex
from headrace.frontends.torch.ops.elementwise import hypot

DIRECT = 128
"""Length up to which a transform is one product; longer ones are split by their factors."""
LONGEST = 4096
"""Length of the longest transform that is one product because it has no factors."""

PARTWISE = (
    "view",
    "_unsafe_view",
    "reshape",
    "unsqueeze",
    "squeeze",
    "permute",
    "transpose",
    "t",
    "expand",
    "slice",
    "select",
    "flip",
    "repeat",
    "split_with_sizes",
    "unbind",
    "diagonal",
    "unfold",
    "clone",
    "alias",
    "detach",
    "lift_fresh_copy",
    "index_select",
    "gather",
    "index",
    "neg",
    "sum",
    "mean",
    "cumsum",
)
"""Ops that do the same to both parts."""

Term = Value | Complex


@converts_complex(*PARTWISE)
def _partwise(n: Node) -> Result:
    convert = conversion(n.kind)
    assert convert is not None
    real, imaginary = convert(n.part("real")), convert(n.part("imaginary"))
    if isinstance(real, Value) and isinstance(imaginary, Value):
        return Complex(real, imaginary)
    assert not isinstance(real, Term) and not isinstance(imaginary, Term)
    return tuple(
        Complex(a, b) if isinstance(a, Value) and isinstance(b, Value) else None
        for a, b in zip(real, imaginary, strict=True)
    )


def _term(n: Node, x: object) -> Term:
    """An operand in the element type of the result: complex, real, or a number."""
    dtype = n.type.dtype
    if isinstance(x, Complex):
        return Complex(n.cast(x.real, dtype), n.cast(x.imaginary, dtype))
    if isinstance(x, Value):
        return n.cast(x, dtype)
    if isinstance(x, complex):
        return Complex(n.scalar(x.real, dtype), n.scalar(x.imag, dtype))
    if isinstance(x, int | float):
        return n.scalar(x, dtype)
    raise Refused(f"{x!r} is no number", code="bad-node")


def _whole(n: Node, x: Term) -> Complex:
    """A real operand with an imaginary part of zero."""
    return x if isinstance(x, Complex) else Complex(x, n.broadcast(n.scalar(0, x.dtype), x.shape))


def _full(n: Node, x: Complex) -> Complex:
    """In the shape of the result."""
    return Complex(n.done(x.real), n.done(x.imaginary))


# Numbers and their parts


@converts_complex("_to_copy")
def _cast(n: Node) -> Term:
    """From and to real numbers, too; those lose the imaginary part."""
    x = _term(n, n.get("self"))
    if n.is_complex[0]:
        return _whole(n, x)
    return x.real if isinstance(x, Complex) else x


@converts_complex("full", "full_like", "scalar_tensor")
def _filled(n: Node) -> Complex:
    x = n.get("fill_value", n.get("s"))
    return _full(n, _whole(n, _term(n, x)))


@converts_complex("view_as_real")
def _view_as_real(n: Node) -> Value:
    x = _whole(n, _term(n, n.get("self")))
    parts = [n.reshape(part, (*x.shape, 1)) for part in (x.real, x.imaginary)]
    return n.op("concat", *parts, axis=x.rank)


@converts_complex("view_as_complex")
def _view_as_complex(n: Node) -> Complex:
    x = n["self"]
    real, imaginary = (n.done(n.slice(x, x.rank - 1, i, i + 1)) for i in (0, 1))
    return Complex(real, imaginary)


@converts_complex("complex")
def _complex(n: Node) -> Complex:
    return _full(n, Complex(n["real"], n["imag"]))


@converts_complex("polar")
def _polar(n: Node) -> Complex:
    size, angle = n["abs"], n["angle"]
    return _full(n, Complex(n.op("mul", size, n.op("cos", angle)), n.op("mul", size, n.op("sin", angle))))


@converts_complex("_conj", "_conj_physical", "conj_physical")
def _conj(n: Node) -> Complex:
    x = _whole(n, _term(n, n.get("self")))
    return Complex(x.real, n.op("neg", x.imaginary))


@converts_complex("abs")
def _abs(n: Node) -> Value:
    x = _whole(n, _term(n, n.get("self")))
    return hypot(n, x.real, x.imaginary)


@converts_complex("angle")
def _angle(n: Node) -> Value:
    x = _whole(n, _term(n, n.get("self")))
    return n.op("atan2", x.imaginary, x.real)


# Arithmetic


@converts_complex("add", "sub")
def _add(n: Node) -> Complex:
    x, y = (_whole(n, _term(n, n.get(name))) for name in ("self", "other"))
    alpha = n.get("alpha", 1)
    if alpha != 1:
        y = _product(n, "mul", y, _term(n, alpha))
    return _full(n, Complex(n.op(n.stem, x.real, y.real), n.op(n.stem, x.imaginary, y.imaginary)))


@converts_complex("mul")
def _mul(n: Node) -> Complex:
    return _full(n, _product(n, "mul", _term(n, n.get("self")), _term(n, n.get("other"))))


@converts_complex("mm", "bmm", "matmul")
def _matmul(n: Node) -> Complex:
    x, y = n.get("self"), n.get("mat2", n.get("other"))
    return _full(n, _product(n, "matmul", _term(n, x), _term(n, y)))


def _product(n: Node, op: str, x: Term, y: Term) -> Complex:
    """A product, of elements or of matrices; a real factor multiplies both parts."""
    if isinstance(x, Complex) and isinstance(y, Complex):
        real = n.op("sub", n.op(op, x.real, y.real), n.op(op, x.imaginary, y.imaginary))
        return Complex(real, n.op("add", n.op(op, x.real, y.imaginary), n.op(op, x.imaginary, y.real)))
    if isinstance(x, Complex):
        assert isinstance(y, Value)
        return Complex(n.op(op, x.real, y), n.op(op, x.imaginary, y))
    y = _whole(n, y)
    return Complex(n.op(op, x, y.real), n.op(op, x, y.imaginary))


@converts_complex("div.Tensor", "div.Scalar")
def _div(n: Node) -> Complex:
    """By a complex number as by its larger part, so that its square does not overflow."""
    x, y = _term(n, n.get("self")), _term(n, n.get("other"))
    if not isinstance(y, Complex):
        x = _whole(n, x)
        return _full(n, Complex(n.op("div", x.real, y), n.op("div", x.imaginary, y)))
    size = n.op("max", n.op("abs", y.real), n.op("abs", y.imaginary))
    c, d = n.op("div", y.real, size), n.op("div", y.imaginary, size)
    y = _product(n, "mul", x, Complex(c, n.op("neg", d)))
    square = n.op("mul", n.op("add", n.op("mul", c, c), n.op("mul", d, d)), size)
    return _full(n, Complex(n.op("div", y.real, square), n.op("div", y.imaginary, square)))


@converts_complex("exp")
def _exp(n: Node) -> Complex:
    x = _whole(n, _term(n, n.get("self")))
    size = n.op("exp", x.real)
    return Complex(
        n.op("mul", size, n.op("cos", x.imaginary)),
        n.op("mul", size, n.op("sin", x.imaginary)),
    )


# Selection and joins


@converts_complex("cat", "stack")
def _joined(n: Node) -> Complex:
    convert = conversion(n.kind)
    assert convert is not None
    whole = n.replaced(tensors=[_whole(n, _term(n, x)) for x in n.get("tensors")])
    real, imaginary = convert(whole.part("real")), convert(whole.part("imaginary"))
    assert isinstance(real, Value) and isinstance(imaginary, Value)
    return Complex(real, imaginary)


@converts_complex("where.self")
def _where(n: Node) -> Complex:
    x, y = (_whole(n, _term(n, n.get(name))) for name in ("self", "other"))
    mask = n["condition"]
    return _full(n, Complex(n.op("select", mask, x.real, y.real), n.op("select", mask, x.imaginary, y.imaginary)))


@converts_complex("constant_pad_nd")
def _pad(n: Node) -> Complex:
    """With real numbers."""
    convert = conversion(n.kind)
    assert convert is not None
    real, imaginary = convert(n.part("real")), convert(n.part("imaginary").replaced(value=0))
    assert isinstance(real, Value) and isinstance(imaginary, Value)
    return Complex(real, imaginary)


# Fourier transforms


def _waves(n: Node, dtype: str, rows: int, columns: int, size: int, sign: int) -> Complex:
    """exp(sign · 2πi · row · column / size) of all rows and columns."""
    import numpy as np

    steps = np.outer(np.arange(rows), np.arange(columns)) % size
    turn = steps * (2 * np.pi / size)
    sine = np.where(2 * steps % size, sign * np.sin(turn), 0.0)  # half turns are exact
    kind = dtypes.to_numpy(dtype)
    return Complex(n.constant(np.cos(turn).astype(kind)), n.constant(sine.astype(kind)))


def _line(n: Node, x: Term, sign: int) -> Complex:
    """The transform of the last dim: a product where it is short, else transforms of the factors of its length
    (Cooley and Tukey)."""
    size = x.shape[-1]
    first = max((a for a in range(2, int(sqrt(size)) + 1) if size % a == 0), default=1)
    if size <= DIRECT or first == 1:
        if size > LONGEST:
            raise Refused(f"its length {size} has no factors", f"pad to a length with factors, such as {size + 1}")
        return _product(n, "matmul", x, _waves(n, x.type.dtype, size, size, size, sign))
    second = size // first
    lead = x.shape[:-1]
    dims = tuple(range(len(lead)))
    swap = (*dims, len(lead) + 1, len(lead))

    def each(y: Term, do: Callable[[Value], Value]) -> Term:
        return Complex(do(y.real), do(y.imaginary)) if isinstance(y, Complex) else do(y)

    rows = each(x, lambda v: n.transpose(n.reshape(v, (*lead, first, second)), swap))
    inner = _product(n, "mul", _line(n, rows, sign), _waves(n, x.type.dtype, second, first, size, sign))
    outer = _line(n, each(inner, lambda v: n.transpose(v, swap)), sign)
    found = each(outer, lambda v: n.reshape(n.transpose(v, swap), (*lead, size)))
    return _whole(n, found)


def _along(n: Node, x: Term, dim: int, do: Callable[[Term], Term]) -> Term:
    """What is done to the last dim, done to another."""
    rank = x.rank
    perm = (*(d for d in range(rank) if d != dim), dim)
    back = tuple(perm.index(d) for d in range(rank))
    there = Complex(n.transpose(x.real, perm), n.transpose(x.imaginary, perm)) if isinstance(x, Complex) else None
    y = do(there if there is not None else n.transpose(x.real if isinstance(x, Complex) else x, perm))
    if isinstance(y, Complex):
        return Complex(n.transpose(y.real, back), n.transpose(y.imaginary, back))
    return n.transpose(y, back)


def _scaled(n: Node, x: Term, sizes: Sequence[int]) -> Term:
    """Over the number of elements, over its root, or as it is."""
    count = prod(sizes)
    factor: float = (1.0, 1 / sqrt(count), 1 / count)[int(n.number("normalization"))]
    if factor == 1.0:
        return x
    scale = n.scalar(factor, x.type.dtype)
    return _product(n, "mul", x, scale) if isinstance(x, Complex) else n.op("mul", x, scale)


def _transform(n: Node) -> tuple[Term, tuple[int, ...]]:
    """The operand, and the dims that are transformed."""
    x = _term(n, n.get("self"))
    return x, tuple(d % x.rank for d in n.ints("dim"))


@converts_complex("_fft_r2c")
def _forward(n: Node) -> Complex:
    """Of real numbers; the last of the dims keeps one of each pair of conjugates if `onesided`."""
    x, dims = _transform(n)
    if not n.type.elements:
        return _full(n, _whole(n, n.scalar(0, n.type.dtype)))
    sizes = [x.shape[d] for d in dims]
    for i, dim in enumerate(reversed(dims)):
        x = _along(n, x, dim, lambda y: _line(n, y, -1))
        if i == 0 and n.get("onesided"):
            half = x.shape[dim] // 2 + 1
            x = _whole(n, x)
            x = Complex(n.slice(x.real, dim, 0, half), n.slice(x.imaginary, dim, 0, half))
    return _whole(n, _scaled(n, x, sizes))


@converts_complex("_fft_c2c")
def _both(n: Node) -> Complex:
    x, dims = _transform(n)
    if not n.type.elements:
        return _full(n, _whole(n, n.scalar(0, n.type.dtype)))
    for dim in dims:
        x = _along(n, x, dim, lambda y: _line(n, y, -1 if n.get("forward") else 1))
    return _whole(n, _scaled(n, x, [x.shape[d] for d in dims]))


@converts_complex("_fft_c2r")
def _backward(n: Node) -> Value:
    """To real numbers: the last of the dims has one of each pair of conjugates."""
    x, dims = _transform(n)
    if not n.type.elements:
        return n.filled(0, n.type)
    for dim in dims[:-1]:
        x = _along(n, x, dim, lambda y: _line(n, y, 1))
    size = n.number("last_dim_size")

    def real(y: Term) -> Term:
        y, last = _whole(n, y), y.rank - 1
        pairs = size - y.shape[-1]  # the conjugates of elements `pairs` … 1
        if pairs:
            tail = [n.slice(part, last, pairs, 0, -1) for part in (y.real, y.imaginary)]
            y = Complex(
                n.op("concat", y.real, tail[0], axis=last), n.op("concat", y.imaginary, n.op("neg", tail[1]), axis=last)
            )
        return _line(n, y, 1).real

    y = _scaled(n, _along(n, x, dims[-1], real), [n.type.shape[d] for d in dims])
    assert isinstance(y, Value)
    return y
