"""One table of decompositions: how a composite op is built from primitives.

`decompose(op, insert)` builds the replacement of one op from ops that each carry its location, handing them to
`insert` in order, and returns the values that replace its results. Composites of f16 and bf16 are computed in f32 and
rounded once, with explicit casts, so that a decomposition means what the composite means: within the rounding of its
own steps in f32 (or f64), which are those of the composite's meaning up to the order of sums and a cancelling exp(x) -
1 or log(1 + x).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from xdsl.ir import Operation, SSAValue

from headrace.dialects.support.dtypes import lowest
from headrace.dialects.support.locations import Location
from headrace.dialects.tensor.base import attributes_of, create, tt
from headrace.dialects.tensor.shapes import TT
from headrace.dialects.tensor.shapes.contraction import Window, windows
from headrace.dialects.tensor.shapes.random import FACTORS, ROUNDS, STEPS
from headrace.dialects.tensor.storage import ConstantOp, LiteralAttr


class Emit:
    """Builds primitives at one place and location: `e.mul(x, y)`, `e.reduce_sum(x, axes=(1,))`. A float operand stands
    for a scalar constant of the last tensor operand's element type."""

    def __init__(self, insert: Callable[[Operation], object], location: Location) -> None:
        self.insert = insert
        self.location = location

    def op(self, name: str, *operands: SSAValue | float, **attrs: Any) -> SSAValue:
        """The result of a new op `tensor.<name>`."""
        dtypes = [tt(x).dtype for x in operands if isinstance(x, SSAValue)]
        values = [x if isinstance(x, SSAValue) else self.scalar(x, dtypes[-1]) for x in operands]
        new = create(f"tensor.{name}", values, attrs, self.location)
        self.insert(new)
        return new.results[0]

    def __getattr__(self, name: str) -> Callable[..., SSAValue]:
        return lambda *operands, **attrs: self.op(name.rstrip("_"), *operands, **attrs)

    def literal(self, value: LiteralAttr) -> SSAValue:
        """A constant."""
        new = ConstantOp.create(result_types=[value.type], properties={"value": value})
        new.location = self.location
        self.insert(new)
        return new.results[0]

    def scalar(self, value: float, dtype: str) -> SSAValue:
        """A 0-d constant."""
        return self.filled(TT((), dtype), value)

    def filled(self, type: TT, value: float) -> SSAValue:
        """A constant whose elements all are `value`."""
        return self.literal(LiteralAttr.filled(type, value))

    def numbers(self, type: TT, values: Sequence[float]) -> SSAValue:
        """A constant of the given elements."""
        data = b"".join(LiteralAttr.filled(TT((), type.dtype), value).data.data for value in values)
        return self.literal(LiteralAttr.of(type, data))

    def cast_to(self, x: SSAValue, dtype: str) -> SSAValue:
        """x in the element type, itself when it has it."""
        return x if tt(x).dtype == dtype else self.op("cast", x, to=dtype)

    def wide(self, x: SSAValue) -> SSAValue:
        """f16 and bf16 in f32, anything else as it is."""
        return self.cast_to(x, "f32") if tt(x).dtype in ("f16", "bf16") else x

    def reshape_to(self, x: SSAValue, shape: Sequence[int]) -> SSAValue:
        """x in the shape, itself when it has it."""
        return x if tt(x).shape == tuple(shape) else self.op("reshape", x, shape=tuple(shape))


Attrs = dict[str, Any]
Decomposition = Callable[[Emit, Attrs, Sequence[SSAValue]], SSAValue]
_table: dict[str, Decomposition] = {}


def decomposes(name: str) -> Callable[[Decomposition], Decomposition]:
    """Register the decomposition of an op: a function of (emit, attributes, operands) that builds it in the operands'
    wide type; the operands come widened and the value returned is rounded back to the result's type."""

    def register(rule: Decomposition) -> Decomposition:
        _table[name] = rule
        return rule

    return register


def names() -> list[str]:
    """Ops that have a decomposition."""
    return list(_table)


def decompose(op: Operation, insert: Callable[[Operation], object]) -> list[SSAValue] | None:
    """Build the primitives of `op`, hand each to `insert`, and give the values that replace its results; None when the
    op has no decomposition. `op` itself stays where it is."""
    rule = _table.get(op.name)
    if rule is None:
        return None
    emit = Emit(insert, op.location)
    result = rule(emit, attributes_of(op), [emit.wide(x) for x in op.operands])
    return [emit.cast_to(result, tt(op.results[0]).dtype)]


@decomposes("tensor.leaky_relu")
def _leaky_relu(e: Emit, attrs: Attrs, operands: Sequence[SSAValue]) -> SSAValue:
    (x,) = operands
    return e.select(e.less(x, 0.0), e.mul(x, attrs["alpha"]), x)


@decomposes("tensor.elu")
def _elu(e: Emit, attrs: Attrs, operands: Sequence[SSAValue]) -> SSAValue:
    (x,) = operands
    below = e.mul(e.sub(e.exp(e.min(x, 0.0)), 1.0), attrs["alpha"])
    return e.select(e.greater(x, 0.0), x, below)


@decomposes("tensor.clip")
def _clip(e: Emit, attrs: Attrs, operands: Sequence[SSAValue]) -> SSAValue:
    (x,) = operands
    if (low := attrs.get("min")) is not None:
        x = e.max(x, low)
    if (high := attrs.get("max")) is not None:
        x = e.min(x, high)
    return x


@decomposes("tensor.gelu")
def _gelu(e: Emit, attrs: Attrs, operands: Sequence[SSAValue]) -> SSAValue:
    (x,) = operands
    if attrs["approximate"] == "tanh":
        cube = e.mul(e.mul(x, x), x)
        gate = e.tanh(e.mul(e.add(x, e.mul(cube, 0.044715)), math.sqrt(2 / math.pi)))
    else:
        gate = e.erf(e.mul(x, math.sqrt(0.5)))
    return e.mul(e.mul(x, 0.5), e.add(gate, 1.0))


@decomposes("tensor.silu")
def _silu(e: Emit, attrs: Attrs, operands: Sequence[SSAValue]) -> SSAValue:
    (x,) = operands
    return e.mul(x, e.sigmoid(x))


@decomposes("tensor.softplus")
def _softplus(e: Emit, attrs: Attrs, operands: Sequence[SSAValue]) -> SSAValue:
    (x,) = operands
    return e.add(e.max(x, 0.0), e.log(e.add(e.exp(e.neg(e.abs(x))), 1.0)))


@decomposes("tensor.hard_sigmoid")
def _hard_sigmoid(e: Emit, attrs: Attrs, operands: Sequence[SSAValue]) -> SSAValue:
    (x,) = operands
    return e.min(e.max(e.add(e.mul(x, attrs["alpha"]), attrs["beta"]), 0.0), 1.0)


def _exponentials(e: Emit, x: SSAValue, axis: int) -> tuple[SSAValue, SSAValue, SSAValue]:
    """x - max, its exponential, and the sum of those along the axis (where there is nothing there is no max)."""
    shifted = e.sub(x, e.reduce_max(x, axes=(axis,), keepdims=True)) if tt(x).shape[axis] else x
    exponential = e.exp(shifted)
    return shifted, exponential, e.reduce_sum(exponential, axes=(axis,), keepdims=True)


@decomposes("tensor.softmax")
def _softmax(e: Emit, attrs: Attrs, operands: Sequence[SSAValue]) -> SSAValue:
    _, exponential, total = _exponentials(e, operands[0], attrs["axis"])
    return e.div(exponential, total)


@decomposes("tensor.log_softmax")
def _log_softmax(e: Emit, attrs: Attrs, operands: Sequence[SSAValue]) -> SSAValue:
    shifted, _, total = _exponentials(e, operands[0], attrs["axis"])
    return e.sub(shifted, e.log(total))


def _normalized(e: Emit, x: SSAValue, axes: tuple[int, ...], epsilon: float) -> SSAValue:
    """x with mean 0 and variance 1 over the axes."""
    centred = e.sub(x, e.reduce_mean(x, axes=axes, keepdims=True))
    variance = e.reduce_mean(e.mul(centred, centred), axes=axes, keepdims=True)
    return e.mul(centred, e.rsqrt(e.add(variance, epsilon)))


def _axes_from(axis: int, x: SSAValue) -> tuple[int, ...]:
    rank = len(tt(x).shape)
    return tuple(range(axis % rank, rank))


@decomposes("tensor.layer_norm")
def _layer_norm(e: Emit, attrs: Attrs, operands: Sequence[SSAValue]) -> SSAValue:
    x, scale, *bias = operands
    y = e.mul(_normalized(e, x, _axes_from(attrs["axis"], x), attrs["epsilon"]), scale)
    return e.add(y, bias[0]) if bias else y


@decomposes("tensor.rms_norm")
def _rms_norm(e: Emit, attrs: Attrs, operands: Sequence[SSAValue]) -> SSAValue:
    x, scale = operands
    square = e.reduce_mean(e.mul(x, x), axes=_axes_from(attrs["axis"], x), keepdims=True)
    return e.mul(e.mul(x, e.rsqrt(e.add(square, attrs["epsilon"]))), scale)


def _channel(e: Emit, v: SSAValue, x: SSAValue) -> SSAValue:
    """A per-channel vector in the shape that broadcasts against dim 1 of x."""
    (size,) = tt(v).shape
    return e.reshape_to(v, (size, *(1,) * (len(tt(x).shape) - 2)))


@decomposes("tensor.batch_norm")
def _batch_norm(e: Emit, attrs: Attrs, operands: Sequence[SSAValue]) -> SSAValue:
    x, scale, bias, mean, variance = operands
    factor = e.mul(scale, e.rsqrt(e.add(variance, attrs["epsilon"])))
    return e.add(e.mul(e.sub(x, _channel(e, mean, x)), _channel(e, factor, x)), _channel(e, bias, x))


@decomposes("tensor.group_norm")
def _group_norm(e: Emit, attrs: Attrs, operands: Sequence[SSAValue]) -> SSAValue:
    x, scale, bias = operands
    shape, groups = tt(x).shape, attrs["groups"]
    grouped = e.reshape_to(x, (shape[0], groups, math.prod(shape[1:]) // groups))
    y = e.reshape_to(_normalized(e, grouped, (2,), attrs["epsilon"]), shape)
    return e.add(e.mul(y, _channel(e, scale, x)), _channel(e, bias, x))


def attention_scores(e: Emit, attrs: Attrs, operands: Sequence[SSAValue]) -> SSAValue:
    """What attention takes the softmax of: scaled and masked products of queries and keys."""
    query, key, _, *mask = operands
    rank = len(tt(key).shape)
    scale = attrs.get("scale")
    transposed = e.transpose(key, perm=(*range(rank - 2), rank - 1, rank - 2))
    product = e.matmul(query, transposed)
    scores = e.mul(product, 1 / math.sqrt(max(tt(query).shape[-1], 1)) if scale is None else scale)
    if mask:
        boolean = tt(mask[0]).dtype == "i1"
        scores = e.select(mask[0], scores, -math.inf) if boolean else e.add(scores, mask[0])
    if attrs["causal"]:
        rows, columns = tt(scores).shape[-2:]
        row = e.iota(shape=(rows, 1), dtype="i32", axis=0)
        column = e.iota(shape=(1, columns), dtype="i32", axis=1)
        scores = e.select(e.less_equal(column, row), scores, -math.inf)
    return scores


@decomposes("tensor.attention")
def _attention(e: Emit, attrs: Attrs, operands: Sequence[SSAValue]) -> SSAValue:
    scores = attention_scores(e, attrs, operands)
    if tt(scores).shape[-1]:
        return e.matmul(e.softmax(scores, axis=-1), operands[2])
    _, exponential, total = _exponentials(e, scores, -1)  # a softmax along nothing
    return e.matmul(e.div(exponential, total), operands[2])


@decomposes("tensor.philox")
def _philox(e: Emit, attrs: Attrs, operands: Sequence[SSAValue]) -> SSAValue:
    """Words are held in ui64, where their products fit; a shift by 32 is a division."""
    state, rows, columns = operands
    low, high, key = (e.slice(state, starts=(i,), stops=(i + 1,), steps=(1,)) for i in range(3))
    half, mask = e.scalar(2**32, "ui64"), e.scalar(2**32 - 1, "ui64")

    def words(x: SSAValue) -> tuple[SSAValue, SSAValue]:
        return e.and_(x, mask), e.div(x, half)

    place = e.add(rows, columns)
    low = e.add(low, place)
    carry = e.cast(e.less(low, place), to="ui64")
    high = e.add(high, carry)
    (a, b), (c, d), keys = words(low), words(high), words(key)
    factors, steps = ([e.scalar(x, "ui64") for x in pair] for pair in (FACTORS, STEPS))
    for _ in range(ROUNDS):
        (d_next, left), (b_next, right) = words(e.mul(a, factors[0])), words(e.mul(c, factors[1]))
        a, c = e.xor(e.xor(right, b), keys[0]), e.xor(e.xor(left, d), keys[1])
        b, d = b_next, d_next
        keys = tuple(e.and_(e.add(k, step), mask) for k, step in zip(keys, steps, strict=True))
    blocks = tt(place).shape
    parts = [e.reshape_to(e.cast(x, to="ui32"), (*blocks, 1)) for x in (a, b, c, d)]
    return e.concat(*parts, axis=len(blocks))


def _reaching(window: Window) -> tuple[int, int]:
    """Pads of a spatial dim with the one behind as long as the last window reaches."""
    return window.low, max(0, window.reach - window.size - window.low)


def _divided(e: Emit, total: SSAValue, found: Sequence[Window], include_pad: bool, by: float = 1.0) -> SSAValue:
    """`total`, [N, C, windows…], over what each window counts in an average, times `by`."""
    dtype = tt(total).dtype
    counts = [window.counted(include_pad) for window in found]
    if all(len(set(of_dim)) == 1 for of_dim in counts):
        divisor = math.prod(of_dim[0] for of_dim in counts) / by
        return total if divisor == 1 else e.div(total, divisor)
    for d, of_dim in enumerate(counts):  # a window counts a box: divide dim by dim
        each = found[d].kernel if by != 1 else 1
        shape = tuple(len(of_dim) if k == d else 1 for k in range(len(found)))
        total = e.div(total, e.numbers(TT(shape, dtype), [n / each for n in of_dim]))
    return total


@decomposes("tensor.avg_pool")
def _avg_pool(e: Emit, attrs: Attrs, operands: Sequence[SSAValue]) -> SSAValue:
    (x,) = operands
    type = tt(x)
    spatial, kernel = type.shape[2:], attrs["kernel"]
    found = windows(attrs, spatial, kernel)
    if tuple(kernel) == spatial and all(w.inside for w in found):  # global
        return e.reduce_mean(x, axes=tuple(range(2, len(type.shape))), keepdims=True)
    ones = e.filled(TT((type.shape[1], 1, *kernel), type.dtype), 1.0)
    low, high = zip(*map(_reaching, found), strict=True)
    total = e.conv(
        x,
        ones,
        strides=tuple(w.stride for w in found),
        dilations=tuple(w.dilation for w in found),
        pads=(*low, *high),
        groups=type.shape[1],
    )
    return _divided(e, total, found, attrs["count_include_pad"])


def pad_explicitly(op: Operation, insert: Callable[[Operation], object]) -> list[SSAValue] | None:
    """Build a convolution or pool whose windows touch padding as a `tensor.pad` and the op without pads, whose spatial
    dims can then be cut; None when the op is another or touches none. Values and use as `decompose`."""
    if op.name not in ("tensor.conv", "tensor.max_pool", "tensor.avg_pool"):
        return None
    attrs = attributes_of(op)
    x, *others = op.operands
    type = tt(x)
    kernel = tt(others[0]).shape[2:] if op.name == "tensor.conv" else attrs["kernel"]
    found = windows(attrs, type.shape[2:], kernel)
    if all(window.inside for window in found):
        return None
    e = Emit(insert, op.location)
    low, high = zip(*map(_reaching, found), strict=True)
    if any((*low, *high)):
        value = lowest(type.dtype) if op.name == "tensor.max_pool" else 0.0
        x = e.pad(x, lo=(0, 0, *low), hi=(0, 0, *high), value=float(value))
    changed: Attrs = {key: value for key, value in attrs.items() if key not in ("pads", "ceil")}
    if op.name != "tensor.avg_pool":
        return [e.op(op.name.removeprefix("tensor."), x, *others, **changed)]
    mean = e.avg_pool(e.wide(x), **changed)  # of all elements, padding included
    mean = _divided(e, mean, found, attrs["count_include_pad"], by=float(math.prod(kernel)))
    return [e.cast_to(mean, type.dtype)]
