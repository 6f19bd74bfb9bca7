"""Small random tensor programs: `random_program(seed)` is a pure function of its arguments.

    module, inputs, store = random_program(7)
    results = run_function(module, "main", inputs, store)

Programs mix elementwise ops, matmuls, norms, reductions, movement, gathers, convolutions, composites written out in
primitives as exporters do, and repeated layers. Each op is evaluated as it is added: one that overflows, loses digits
or is near a discontinuity is not taken, so that any right implementation agrees to rounding (`disagreement`).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region, SSAValue

from headrace.dialects.support.dtypes import to_numpy
from headrace.dialects.support.locations import named
from headrace.dialects.support.weights import WeightStore
from headrace.dialects.tensor import meaning
from headrace.dialects.tensor.base import attributes_of, create, ir_type
from headrace.dialects.tensor.program import set_signature
from headrace.dialects.tensor.shapes import TT, ShapeError
from headrace.dialects.tensor.storage import constant, weight

Array = np.ndarray[Any, np.dtype[Any]]
SIZES = (1, 2, 3, 4, 4, 6, 8, 8, 12)
LARGEST = 4096  # elements of a value
TAME = 50.0  # largest magnitude
TOLERANCE = {"f64": 1e-10, "f32": 2e-5, "f16": 2e-2, "bf16": 1e-1}
"""Largest error of a result over its largest magnitude, by element type."""


class Program(NamedTuple):
    """A program, arrays for its inputs by name, and its weights."""

    module: ModuleOp
    inputs: dict[str, Array]
    store: WeightStore


class _Declined(Exception):
    """A step that does not fit what is there."""


@dataclass
class _Maker:
    """Builds one program; `values` are those that steps may use, with their arrays."""

    random: random.Random
    dtype: str
    block: Block = field(default_factory=Block)
    store: WeightStore = field(default_factory=WeightStore)
    arrays: dict[SSAValue, Array] = field(default_factory=dict[SSAValue, Array])
    values: list[SSAValue] = field(default_factory=list[SSAValue])
    prefix: str = ""
    count: int = 0

    # Making ops

    def op(self, name: str, *operands: SSAValue | float, **attrs: Any) -> SSAValue:
        """The first result of a new op; numbers stand for scalar constants."""
        return self.ops(name, *operands, **attrs)[0]

    def ops(self, name: str, *operands: SSAValue | float, **attrs: Any) -> Sequence[SSAValue]:
        values = [x if isinstance(x, SSAValue) else self.scalar(x) for x in operands]
        self.count += 1
        try:
            op = create(f"tensor.{name}", values, attrs, named(f"{self.prefix}/{name}_{self.count}"))
        except ShapeError as error:
            raise _Declined(str(error)) from None
        with np.errstate(all="ignore"):
            found = meaning.evaluate(op.name, attributes_of(op), *(self.arrays[x] for x in values))
        for array in found:
            size = np.abs(array.astype(np.float64)).max(initial=0.0)
            if array.size > LARGEST or not array.size or not np.isfinite(size) or size > TAME:
                op.erase()
                raise _Declined("out of hand")
        self.block.add_op(op)
        self.arrays.update(zip(op.results, found, strict=True))
        return op.results

    def scalar(self, value: float) -> SSAValue:
        return self.constant(np.asarray(value, to_numpy(self.dtype)))

    def constant(self, array: Array) -> SSAValue:
        op = constant(array, named(f"{self.prefix}/constant"))
        self.block.add_op(op)
        self.arrays[op.result] = array
        return op.result

    def array(self, shape: Sequence[int], scale: float = 1.0) -> Array:
        rng = np.random.default_rng(self.random.getrandbits(32))
        return (rng.standard_normal(tuple(shape)) * scale).astype(to_numpy(self.dtype))

    def weight(self, shape: Sequence[int], scale: float = 1.0, around: float = 0.0) -> SSAValue:
        key = f"{self.prefix.strip('/').replace('/', '.')}.w{len(self.store)}".lstrip(".")
        array = (self.array(shape, scale) + np.asarray(around, to_numpy(self.dtype))).astype(to_numpy(self.dtype))
        self.store.add_array(key, array)
        op = weight(key, TT(tuple(shape), self.dtype), named(key))
        self.block.add_op(op)
        self.arrays[op.result] = array
        return op.result

    def argument(self, array: Array, dtype: str) -> SSAValue:
        value = self.block.insert_arg(ir_type(TT(array.shape, dtype)), len(self.block.args))
        value.location = named(f"x{value.index}")
        self.arrays[value] = array
        return value

    # Choosing

    def shape(self, value: SSAValue) -> tuple[int, ...]:
        return self.arrays[value].shape

    def pick(self, fits: Callable[[tuple[int, ...]], bool] = lambda shape: True) -> SSAValue:
        """A value of the program's type whose shape fits; later ones are likelier."""
        found = [x for x in self.values if fits(self.shape(x)) and self.arrays[x].dtype == to_numpy(self.dtype)]
        if not found:
            raise _Declined("no value fits")
        return found[max(self.random.randrange(len(found)), self.random.randrange(len(found)))]

    def axis(self, value: SSAValue) -> int:
        return self.random.randrange(len(self.shape(value)))

    def partner(self, value: SSAValue) -> SSAValue | float:
        """Something that broadcasts against a value: another value, a weight or a number."""
        shape = self.shape(value)
        match self.random.randrange(4):
            case 0:
                return round(self.random.uniform(-2, 2), 2) or 0.5
            case 1 if shape:
                kept = shape[self.random.randrange(len(shape)) :]
                return self.weight([n if self.random.random() < 0.8 else 1 for n in kept])
            case _:
                return self.pick(lambda other: _broadcasts(shape, other))

    def clear_of(self, values: Array, points: Array | float, margin: float = 1e-2) -> None:
        """Decline when a value is so near to a jump that rounding may carry it over."""
        if np.abs(values.astype(np.float64) - points).min(initial=1.0) < margin:
            raise _Declined("near a jump")


def _broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    try:
        np.broadcast_shapes(a, b)
    except ValueError:
        return False
    return True


# Steps: each adds ops and gives the values that later steps may use


def _binary(m: _Maker) -> Sequence[SSAValue]:
    x = m.pick()
    y = m.partner(x)
    name = m.random.choice(("add", "add", "mul", "mul", "sub", "max", "min", "div"))
    if name == "div" and isinstance(y, SSAValue):
        m.clear_of(m.arrays[y], 0.0, 0.3)
    return [m.op(name, *((x, y) if m.random.random() < 0.7 else (y, x)))] if name != "div" else [m.op(name, x, y)]


def _unary(m: _Maker) -> Sequence[SSAValue]:
    x = m.pick()
    smooth = ("neg", "abs", "exp", "erf", "tanh", "sigmoid", "sin", "cos", "relu", "gelu", "silu", "softplus")
    name = m.random.choice((*smooth, "sqrt", "rsqrt", "reciprocal", "log", "clip", "leaky_relu", "elu"))
    if name in ("sqrt", "rsqrt", "reciprocal", "log"):
        x = m.op("add", m.op("abs", x), 0.5)
    if name == "clip":
        return [m.op(name, x, min=-1.0, max=1.5)]
    if name == "gelu":
        return [m.op(name, x, approximate=m.random.choice(("none", "tanh")))]
    return [m.op(name, x)]


def _compare(m: _Maker) -> Sequence[SSAValue]:
    x, number = m.pick(), round(m.random.uniform(-1, 1), 2)
    m.clear_of(m.arrays[x], number)
    mask = m.op(m.random.choice(("less", "greater", "less_equal", "greater_equal")), x, number)
    if m.random.random() < 0.3:
        mask = m.op("not", mask)
    return [m.op("select", mask, x, m.partner(x))]


def _integers(m: _Maker) -> Sequence[SSAValue]:
    """A round trip through integers, clear of the points where rounding jumps."""
    x = m.pick()
    a = m.arrays[x].astype(np.float64) * 4
    m.clear_of(a - np.floor(a), 0.0)
    m.clear_of(a - np.floor(a), 1.0)
    whole = m.op("cast", m.op("floor", m.op("mul", x, 4.0)), to="i32")
    return [m.op("mul", m.op("cast", m.op("add", whole, whole), to=m.dtype), 0.125)]


def _matmul(m: _Maker) -> Sequence[SSAValue]:
    x = m.pick(lambda s: len(s) >= 1)
    k, n = m.shape(x)[-1], m.random.choice(SIZES)
    y = m.op("matmul", x, m.weight((k, n), k**-0.5))
    return [m.op("add", y, m.weight((n,)))] if m.random.random() < 0.5 else [y]


def _transposed_weight(m: _Maker) -> Sequence[SSAValue]:
    x = m.pick(lambda s: len(s) >= 2)
    k, n = m.shape(x)[-1], m.random.choice(SIZES)
    w = m.op("transpose", m.weight((n, k), k**-0.5), perm=(1, 0))
    return [m.op("matmul", x, w)]


def _scores(m: _Maker) -> Sequence[SSAValue]:
    """Attention written out, of a value with itself."""
    x = m.pick(lambda s: len(s) >= 2 and math.prod(s) <= 512)
    rank, d = len(m.shape(x)), m.shape(x)[-1]
    key = m.op("transpose", x, perm=(*range(rank - 2), rank - 1, rank - 2))
    weights = m.op("softmax", m.op("mul", m.op("matmul", x, key), d**-0.5), axis=rank - 1)
    return [m.op("matmul", weights, x)]


def _attention(m: _Maker) -> Sequence[SSAValue]:
    x = m.pick(lambda s: len(s) >= 2 and math.prod(s) <= 512)
    return [m.op("attention", x, x, x, causal=m.random.random() < 0.5)]


def _softmax(m: _Maker) -> Sequence[SSAValue]:
    x = m.pick(lambda s: len(s) >= 1)
    return [m.op(m.random.choice(("softmax", "softmax", "log_softmax")), x, axis=m.axis(x))]


def _norm(m: _Maker) -> Sequence[SSAValue]:
    x = m.pick(lambda s: len(s) >= 1 and s[-1] > 1)
    _spread(m, x)
    d = m.shape(x)[-1]
    scale = m.weight((d,), 0.1, 1.0)
    if m.random.random() < 0.4:
        return [m.op("rms_norm", x, scale, epsilon=1e-5)]
    return [m.op("layer_norm", x, scale, m.weight((d,), 0.1), epsilon=1e-5)]


def _spread(m: _Maker, x: SSAValue) -> None:
    """Decline to normalize rows that hardly vary: dividing by their deviation loses digits."""
    if np.std(m.arrays[x].astype(np.float64), axis=-1).min() < 0.1:
        raise _Declined("rows hardly vary")


def _channel_norm(m: _Maker) -> Sequence[SSAValue]:
    x = m.pick(lambda s: len(s) >= 3 and math.prod(s[2:]) > 2)
    c = m.shape(x)[1]
    if m.random.random() < 0.5:
        if np.std(m.arrays[x].astype(np.float64), axis=tuple(range(2, len(m.shape(x))))).min() < 0.1:
            raise _Declined("channels hardly vary")
        return [m.op("group_norm", x, m.weight((c,), 0.1, 1.0), m.weight((c,)), groups=c)]
    return [_batch_norm(m, x)]


def _batch_norm(m: _Maker, x: SSAValue) -> SSAValue:
    c = m.shape(x)[1]
    variance = m.constant(np.abs(m.array((c,))) + np.asarray(0.5, to_numpy(m.dtype)))
    return m.op("batch_norm", x, m.weight((c,), 0.1, 1.0), m.weight((c,)), m.weight((c,)), variance)


def _reduce(m: _Maker) -> Sequence[SSAValue]:
    x = m.pick(lambda s: len(s) >= 1)
    rank = len(m.shape(x))
    axes = tuple(sorted(m.random.sample(range(rank), m.random.randint(1, min(rank, 2)))))
    name = m.random.choice(("sum", "mean", "max", "min"))
    return [m.op(f"reduce_{name}", x, axes=axes, keepdims=m.random.random() < 0.6)]


def _cumsum(m: _Maker) -> Sequence[SSAValue]:
    x = m.pick(lambda s: len(s) >= 1)
    flags = {"exclusive": m.random.random() < 0.3, "reverse": m.random.random() < 0.3}
    return [m.op("cumsum", x, axis=m.axis(x), **flags)]


def _argmax(m: _Maker) -> Sequence[SSAValue]:
    """The position of the largest element, when no other comes near it, as a number."""
    x = m.pick(lambda s: len(s) >= 1 and s[-1] > 1)
    top = np.sort(m.arrays[x].astype(np.float64), axis=-1)
    m.clear_of(top[..., -1] - top[..., -2], 0.0)
    return [m.op("cast", m.op("argmax", x, axis=len(m.shape(x)) - 1, keepdims=True), to=m.dtype)]


def _reshape(m: _Maker) -> Sequence[SSAValue]:
    x = m.pick(lambda s: len(s) >= 1)
    shape = list(m.shape(x))
    match m.random.randrange(4):
        case 0 if len(shape) >= 2:
            at = m.random.randrange(len(shape) - 1)
            shape[at : at + 2] = [shape[at] * shape[at + 1]]
        case 1:
            at = m.random.randrange(len(shape))
            factor = m.random.choice([n for n in range(1, shape[at] + 1) if shape[at] % n == 0])
            shape[at : at + 1] = [factor, shape[at] // factor]
        case 2:
            shape.insert(m.random.randint(0, len(shape)), 1)
        case _:
            shape = [math.prod(shape)]
    if len(shape) > 5:
        raise _Declined("too many dims")
    return [m.op("reshape", x, shape=tuple(shape))]


def _transpose(m: _Maker) -> Sequence[SSAValue]:
    x = m.pick(lambda s: len(s) >= 2)
    perm = list(range(len(m.shape(x))))
    m.random.shuffle(perm)
    return [m.op("transpose", x, perm=tuple(perm))]


def _slice(m: _Maker) -> Sequence[SSAValue]:
    x = m.pick(lambda s: len(s) >= 1)
    bounds: list[tuple[int, int, int]] = []
    for n in m.shape(x):
        start = m.random.randrange(n) if m.random.random() < 0.5 else 0
        bounds.append((start, m.random.randint(start + 1, n), m.random.choice((1, 1, 1, 2))))
    starts, stops, steps = (tuple(b[i] for b in bounds) for i in range(3))
    return [m.op("slice", x, starts=starts, stops=stops, steps=steps)]


def _concat(m: _Maker) -> Sequence[SSAValue]:
    x = m.pick(lambda s: len(s) >= 1)
    axis, shape = m.axis(x), m.shape(x)

    def fits(other: tuple[int, ...]) -> bool:
        return len(other) == len(shape) and all(a == b for d, (a, b) in enumerate(zip(shape, other)) if d != axis)  # noqa: B905

    parts = [x, m.pick(fits) if m.random.random() < 0.7 else m.weight(shape)]
    m.random.shuffle(parts)
    return [m.op("concat", *parts, axis=axis)]


def _split(m: _Maker) -> Sequence[SSAValue]:
    x = m.pick(lambda s: max(s, default=0) > 1)
    axis = m.random.choice([d for d, n in enumerate(m.shape(x)) if n > 1])
    first = m.random.randint(1, m.shape(x)[axis] - 1)
    return m.ops("split", x, axis=axis, sizes=(first, m.shape(x)[axis] - first))


def _moved(m: _Maker) -> Sequence[SSAValue]:
    """Elementwise ops between moves that cancel or are alike, or slices put together again."""
    x = m.pick(lambda s: len(s) >= 2)
    shape = m.shape(x)
    rank = len(shape)
    match m.random.randrange(3):
        case 0:
            y = m.op("relu", m.op("mul", m.op("reshape", x, shape=(*shape, 1)), 0.5))
            return [m.op("reshape", y, shape=shape)]
        case 1:
            perm = (*range(1, rank), 0)
            y, z = m.op("transpose", x, perm=perm), m.op("transpose", m.op("abs", x), perm=perm)
            return [m.op("transpose", m.op("add", y, z), perm=perm)]
        case _:
            half, steps = shape[0] // 2, (1,) * rank
            low = m.op("slice", x, starts=(0,) * rank, stops=(half, *shape[1:]), steps=steps)
            high = m.op("slice", x, starts=(half, *(0,) * (rank - 1)), stops=shape, steps=steps)
            return [m.op("concat", low, high, axis=0)]


def _pad(m: _Maker) -> Sequence[SSAValue]:
    x = m.pick(lambda s: len(s) >= 1)
    lo, hi = (tuple(m.random.choice((0, 0, 1, 2)) for _ in m.shape(x)) for _ in range(2))
    return [m.op("pad", x, lo=lo, hi=hi, value=m.random.choice((0.0, 1.5)))]


def _broadcast(m: _Maker) -> Sequence[SSAValue]:
    x = m.pick(lambda s: len(s) <= 3)
    shape = [m.random.choice((2, 3)) if n == 1 else n for n in m.shape(x)]
    return [m.op("broadcast", x, shape=(m.random.choice((1, 2)), *shape))]


def _gather(m: _Maker) -> Sequence[SSAValue]:
    """A lookup by constant positions, or by those of an argument in a table of weights."""
    rng = np.random.default_rng(m.random.getrandbits(32))
    if m.random.random() < 0.5:
        x = m.pick(lambda s: len(s) >= 1)
        axis = m.axis(x)
        index = rng.integers(0, m.shape(x)[axis], [(), (2,), (2, 3)][m.random.randrange(3)])
        return [m.op("gather", x, m.constant(np.asarray(index, np.int64)), axis=axis)]
    rows = m.random.choice((5, 16, 33))
    index = m.argument(rng.integers(0, rows, m.random.choice(((3,), (2, 2), (1, 4)))), "i64")
    return [m.op("gather", m.weight((rows, m.random.choice(SIZES))), index, axis=0)]


def _conv(m: _Maker) -> Sequence[SSAValue]:
    x = m.pick(lambda s: 3 <= len(s) <= 4)
    channels, spatial = m.shape(x)[1], m.shape(x)[2:]
    kernel = tuple(m.random.choice((1, 2, 3)) for _ in spatial)
    groups = channels if m.random.random() < 0.2 else 1
    out = channels if groups > 1 else m.random.choice((1, 2, 4, 6))
    w = m.weight((out, channels // groups, *kernel), (channels * math.prod(kernel)) ** -0.5)
    bias = [m.weight((out,))] if m.random.random() < 0.5 else []
    attrs = {
        "strides": tuple(m.random.choice((1, 1, 2)) for _ in spatial),
        "pads": tuple(m.random.choice((0, 1)) for _ in (*spatial, *spatial)),
        "groups": groups,
    }
    y = m.op("conv", x, w, *bias, **attrs)
    return [_batch_norm(m, y)] if m.random.random() < 0.3 else [y]


def _pool(m: _Maker) -> Sequence[SSAValue]:
    x = m.pick(lambda s: 3 <= len(s) <= 4 and min(s[2:]) >= 2)
    spatial = m.shape(x)[2:]
    kernel = tuple(m.random.choice((2, 3)) if n > 2 else 2 for n in spatial)
    strides = tuple(m.random.choice((1, 2)) for _ in spatial)
    pads = tuple(m.random.choice((0, 1)) for _ in (*spatial, *spatial))
    return [m.op(m.random.choice(("max_pool", "avg_pool")), x, kernel=kernel, strides=strides, pads=pads)]


def _written_out(m: _Maker) -> Sequence[SSAValue]:
    """A composite in primitives, as exporters write it."""
    x = m.pick(lambda s: len(s) >= 1 and s[-1] > 1)
    last = len(m.shape(x)) - 1
    match m.random.randrange(5):
        case 0:
            gate = m.op("add", m.op("erf", m.op("div", x, math.sqrt(2))), 1.0)
            return [m.op("mul", m.op("mul", x, gate), 0.5)]
        case 1:
            cube = m.op("mul", x, m.op("mul", x, x))
            inner = m.op("mul", m.op("add", x, m.op("mul", cube, 0.044715)), math.sqrt(2 / math.pi))
            return [m.op("mul", m.op("mul", x, 0.5), m.op("add", m.op("tanh", inner), 1.0))]
        case 2:
            return [m.op("mul", x, m.op("sigmoid", x))]
        case 3:
            e = m.op("exp", m.op("sub", x, m.op("reduce_max", x, axes=(last,))))
            return [m.op("div", e, m.op("reduce_sum", e, axes=(last,)))]
        case _:
            _spread(m, x)
            d = m.op("sub", x, m.op("reduce_mean", x, axes=(last,)))
            variance = m.op("reduce_mean", m.op("pow", d, 2.0), axes=(last,))
            normal = m.op("div", d, m.op("sqrt", m.op("add", variance, 1e-5)))
            scaled = m.op("mul", normal, m.weight(m.shape(x)[-1:], 0.1, 1.0))
            return [m.op("add", scaled, m.weight(m.shape(x)[-1:]))]


def _layers(m: _Maker) -> Sequence[SSAValue]:
    """Two to four equal residual layers."""
    x = m.pick(lambda s: len(s) >= 2 and s[-1] > 1)
    d, hidden = m.shape(x)[-1], m.random.choice((4, 8))
    norm, act = m.random.random() < 0.6, m.random.choice(("relu", "gelu", "tanh"))
    for layer in range(m.random.randint(2, 4)):
        m.prefix = f"/layers.{layer}"
        y = x
        if norm:
            _spread(m, x)
            y = m.op("layer_norm", x, m.weight((d,), 0.1, 1.0), m.weight((d,), 0.1))
        y = m.op("add", m.op("matmul", y, m.weight((d, hidden), d**-0.5)), m.weight((hidden,)))
        y = m.op("matmul", m.op(act, y), m.weight((hidden, d), hidden**-0.5))
        x = m.op("add", x, y)
    return [x]


Step = tuple[Callable[[_Maker], Sequence[SSAValue]], int]
STEPS: Mapping[str, Step] = {
    "binary": (_binary, 6),
    "unary": (_unary, 5),
    "compare": (_compare, 2),
    "integers": (_integers, 1),
    "matmul": (_matmul, 5),
    "transposed_weight": (_transposed_weight, 1),
    "scores": (_scores, 2),
    "attention": (_attention, 1),
    "softmax": (_softmax, 2),
    "norm": (_norm, 2),
    "channel_norm": (_channel_norm, 1),
    "reduce": (_reduce, 3),
    "cumsum": (_cumsum, 1),
    "argmax": (_argmax, 1),
    "reshape": (_reshape, 3),
    "transpose": (_transpose, 3),
    "slice": (_slice, 3),
    "concat": (_concat, 2),
    "split": (_split, 1),
    "moved": (_moved, 2),
    "pad": (_pad, 1),
    "broadcast": (_broadcast, 1),
    "gather": (_gather, 2),
    "conv": (_conv, 2),
    "pool": (_pool, 1),
    "written_out": (_written_out, 2),
    "layers": (_layers, 1),
}
"""Kinds of steps and how often they are tried."""


def random_program(
    seed: int,
    *,
    steps: int = 10,
    kinds: Sequence[str] = (),
    dtype: str = "f32",
    dead: bool = False,
    more: Mapping[str, Step] | None = None,
) -> Program:
    """A program of about `steps` steps of the given `kinds` (keys of `STEPS` and `more`; all when none is given). With
    `dead`, ops that no result needs stay."""
    m = _Maker(random.Random(seed), dtype)
    for _ in range(m.random.randint(1, 2)):
        shape = [m.random.choice(SIZES) for _ in range(m.random.choice((1, 2, 2, 3, 3, 4)))]
        m.values.append(m.argument(m.array(shape), dtype))
    all_steps = {**STEPS, **(more or {})}
    names = list(kinds or all_steps)
    weights = [all_steps[name][1] for name in names]
    done = tried = 0
    while done < steps and tried < 20 * steps:
        tried += 1
        m.prefix = ""
        try:
            m.values += all_steps[m.random.choices(names, weights)[0]][0](m)
            done += 1
        except _Declined:
            continue
    return _finish(m, dead)


def _finish(m: _Maker, dead: bool) -> Program:
    """Return what nothing uses (at most four values, and sometimes one that is used), drop what that leaves dead."""
    free = [x for x in m.values if x.first_use is None] or m.values[-1:]
    results = free[-4:]
    used = [x for x in m.values if x.first_use is not None]
    if used and m.random.random() < 0.3:
        results.append(m.random.choice(used))
    for op in reversed(list(m.block.ops)):
        if not dead and all(x.first_use is None and x not in results for x in op.results):
            m.block.erase_op(op)
    last = ReturnOp(*results)
    last.location = named("return")
    m.block.add_op(last)
    types = [x.type for x in m.block.args], [x.type for x in results]
    func = FuncOp("main", types, Region(m.block))
    func.location = named("main")
    inputs = {f"x{i}": m.arrays[x] for i, x in enumerate(m.block.args)}
    set_signature(func, list(inputs), [f"y{i}" for i in range(len(results))])
    return Program(ModuleOp([func]), inputs, m.store)


def disagreement(expected: Mapping[str, Array], found: Mapping[str, Array]) -> str:
    """What two sets of results disagree in; empty when integers are equal and floats are within `TOLERANCE`."""
    if list(expected) != list(found):
        return f"results are {list(found)}, not {list(expected)}"
    for name, a in expected.items():
        b = found[name]
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"{name} is {b.dtype}{list(b.shape)}, not {a.dtype}{list(a.shape)}"
        kind = {to_numpy(key): tolerance for key, tolerance in TOLERANCE.items()}.get(a.dtype)
        if kind is None:
            if not np.array_equal(a, b):
                return f"{name}: {np.count_nonzero(a != b)} of {a.size} elements differ"
            continue
        x, y = a.astype(np.float64), b.astype(np.float64)
        if not np.array_equal(np.isfinite(x), np.isfinite(y)):
            return f"{name}: infinities or NaNs are elsewhere"
        finite = np.isfinite(x)
        error = np.abs(x - y)[finite].max(initial=0.0)
        scale = max(np.abs(x)[finite].max(initial=0.0), 1.0)
        if error > kind * scale:
            return f"{name}: error {error:.3g} of {scale:.3g}, more than {kind * scale:.3g}"
    return ""
