"""Steps of ops that move elements without computing."""

from __future__ import annotations

import math
from collections.abc import Sequence

from xdsl.ir import SSAValue

from headrace.tools.fuzz.maker import Maker
from headrace.tools.fuzz.nearby import Declined
from headrace.tools.fuzz.steps import step

MOST_DIMS = 6


def moved(m: Maker) -> SSAValue:
    """Something to move: mostly floats."""
    return m.pick(lambda s: len(s) >= 1, of=m.choose("float", "float", "any"))


@step(3)
def reshape(m: Maker) -> Sequence[SSAValue]:
    x = m.pick(of=m.choose("float", "float", "any"))
    shape = list(m.shape(x))
    match m.random.randrange(5):
        case 0 if len(shape) >= 2:
            at = m.random.randrange(len(shape) - 1)
            shape[at : at + 2] = [shape[at] * shape[at + 1]]
        case 1 if shape:
            at = m.random.randrange(len(shape))
            factor = m.choose(*[n for n in range(1, shape[at] + 1) if shape[at] % n == 0], *[1] * (not shape[at]))
            shape[at : at + 1] = [factor, shape[at] // factor]
        case 2:
            shape.insert(m.random.randint(0, len(shape)), 1)
        case 3 if 1 in shape:
            shape.remove(1)
        case _:
            shape = [math.prod(shape)]
    if len(shape) > MOST_DIMS:
        raise Declined("too many dims")
    return [m.op("reshape", x, shape=tuple(shape))]


@step(3)
def transpose(m: Maker) -> Sequence[SSAValue]:
    x = m.pick(lambda s: len(s) >= 2, of=m.choose("float", "float", "any"))
    perm = list(range(len(m.shape(x))))
    m.random.shuffle(perm)
    return [m.op("transpose", x, perm=tuple(perm))]


@step(4)
def slice(m: Maker) -> Sequence[SSAValue]:
    """Parts, also every other element, backwards, or none."""
    x = moved(m)
    bounds: list[tuple[int, int, int]] = []
    backwards = m.chance(0.25)
    for n in m.shape(x):
        first, last = sorted((m.random.randrange(n + 1), m.random.randrange(n + 1)))
        if m.chance(0.5) or (first == last and not m.empty):
            first, last = 0, n
        step = m.choose(1, 1, 1, 2)
        if backwards and n and m.chance(0.6):
            bounds.append((last - 1, first - 1, -step) if last else (0, 0, -step))
        else:
            bounds.append((first, last, step))
    starts, stops, steps = (tuple(b[i] for b in bounds) for i in range(3))
    return [m.op("slice", x, starts=starts, stops=stops, steps=steps)]


@step(2)
def concat(m: Maker) -> Sequence[SSAValue]:
    x = moved(m)
    axis, shape, dtype = m.axis(x), m.shape(x), m.dtype_of(x)

    def fits(other: tuple[int, ...]) -> bool:
        pairs = enumerate(zip(shape, other, strict=False))
        return len(other) == len(shape) and all(a == b for d, (a, b) in pairs if d != axis)

    parts = [x]
    for _ in range(m.choose(1, 1, 2, 3)):
        parts.append(m.pick(fits, of=dtype) if m.chance(0.7) else m.weight(shape, dtype=dtype))
    m.random.shuffle(parts)
    return [m.op("concat", *parts, axis=axis - (len(shape) if m.chance(0.2) else 0))]


@step(1)
def split(m: Maker) -> Sequence[SSAValue]:
    x = m.pick(lambda s: max(s, default=0) > 1, of=m.choose("float", "any"))
    axis = m.choose(*[d for d, n in enumerate(m.shape(x)) if n > 1])
    n, sizes = m.shape(x)[axis], list[int]()
    while sum(sizes) < n:
        sizes.append(m.random.randint(0 if m.empty else 1, n - sum(sizes)))
    return m.ops("split", x, axis=axis, sizes=tuple(sizes))


@step(2)
def pad(m: Maker) -> Sequence[SSAValue]:
    x = moved(m)
    mode = m.choose("constant", "constant", "constant", "reflect", "edge")
    if m.dtype_of(x) == "i1":
        mode = "constant"
    most = [max(n - 1, 0) if mode == "reflect" else 2 if n or mode == "constant" else 0 for n in m.shape(x)]
    lo, hi = (tuple(m.random.randint(0, n) if m.chance(0.5) else 0 for n in most) for _ in range(2))
    return [m.op("pad", x, lo=lo, hi=hi, mode=mode, value=m.choose(0.0, 1.0))]


@step(2)
def broadcast(m: Maker) -> Sequence[SSAValue]:
    x = m.pick(lambda s: len(s) <= MOST_DIMS - 1, of=m.choose("float", "any"))
    shape = [m.choose(1, 2, 3) if n == 1 else n for n in m.shape(x)]
    lead = m.choose((), (1,), (2,)) if len(shape) < MOST_DIMS else ()
    return [m.op("broadcast", x, shape=(*lead, *shape))]


@step(2)
def cancelled(m: Maker) -> Sequence[SSAValue]:
    """Elementwise ops between moves that cancel or are alike, or slices put together again."""
    x = m.pick(lambda s: len(s) >= 2)
    shape = m.shape(x)
    rank = len(shape)
    match m.random.randrange(4):
        case 0:
            y = m.op("relu", m.op("mul", m.op("reshape", x, shape=(*shape, 1)), 0.5))
            return [m.op("reshape", y, shape=shape)]
        case 1:
            perm = (*range(1, rank), 0)
            y, z = m.op("transpose", x, perm=perm), m.op("transpose", m.op("abs", x), perm=perm)
            return [m.op("transpose", m.op("add", y, z), perm=perm)]
        case 2:
            return [m.op("concat", x, x, axis=m.axis(x))]
        case _:
            half, steps = shape[0] // 2, (1,) * rank
            low = m.op("slice", x, starts=(0,) * rank, stops=(half, *shape[1:]), steps=steps)
            high = m.op("slice", x, starts=(half, *(0,) * (rank - 1)), stops=shape, steps=steps)
            return [m.op("concat", low, high, axis=0)]


@step(1)
def outer(m: Maker) -> Sequence[SSAValue]:
    """Both operands broadcast, each in dims of its own."""
    x = m.pick(lambda s: 1 <= len(s) <= 4 and math.prod(s) <= 128)
    column = m.op("reshape", x, shape=(*m.shape(x), 1))
    return [m.op(m.choose("add", "mul"), column, m.weight((m.choose(1, 3, 4),), dtype=m.dtype_of(x)))]


@step(1)
def beside_nothing(m: Maker) -> Sequence[SSAValue]:
    """A value beside a part of it that has no elements, and a sum of that part."""
    x = m.pick(lambda s: len(s) >= 1)
    axis, rank = m.axis(x), len(m.shape(x))
    stops = tuple(0 if d == axis else n for d, n in enumerate(m.shape(x)))
    before, m.empty = m.empty, True
    try:
        none = m.op("slice", x, starts=(0,) * rank, stops=stops, steps=(1,) * rank)
    finally:
        m.empty = before
    y = m.op("concat", none, x, axis=axis)
    return [y, m.op("reduce_sum", none, axes=(axis,), keepdims=False)] if m.chance(0.5) and rank > 1 else [y]
