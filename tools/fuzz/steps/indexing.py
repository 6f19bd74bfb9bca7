"""Steps of ops that read or write elements at positions that are held in a tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from xdsl.ir import SSAValue

from headrace.tools.fuzz.maker import Maker
from headrace.tools.fuzz.nearby import Declined
from headrace.tools.fuzz.steps import step

REDUCTIONS = ("none", "none", "add", "mul", "min", "max")


def data(m: Maker) -> SSAValue:
    """Something to index: a value, a weight, or an argument of its own."""
    kind = m.random.randrange(6)
    if kind > 1:
        return m.pick(lambda s: len(s) >= 1, of=m.choose("float", "float", "any"))
    shape, dtype = (m.choose(3, 4, 6, 16), *m.new_shape((0, 1, 1, 2))), m.choose(m.dtype, *m.dtypes)
    if math.prod(shape) > m.size.most:
        raise Declined("too many elements")
    if not kind:
        return m.weight(shape, dtype=dtype)
    value = m.argument(m.sample(shape, dtype))
    m.scope.values.append(value)
    return value


@step(3)
def gather(m: Maker) -> Sequence[SSAValue]:
    """Rows, also a single one, at constant or run-time positions."""
    x = data(m)
    axis = m.axis(x)
    index = m.indices(m.choose((), (1,), (2,), (4,), (2, 2), (1, 4)), m.shape(x)[axis], counted_back=True)
    return [m.op("gather", x, m.given(index), axis=axis - (len(m.shape(x)) if m.chance(0.2) else 0))]


def _covered(m: Maker, shape: Sequence[int], axis: int) -> tuple[int, ...]:
    """A shape of indices: any size along the axis, some or all of the other dims."""
    return tuple(m.choose(1, 2, n) if d == axis else m.choose(n, n, min(1, n)) for d, n in enumerate(shape))


@step(1)
def gather_elements(m: Maker) -> Sequence[SSAValue]:
    x = data(m)
    axis = m.axis(x)
    index = m.indices(_covered(m, m.shape(x), axis), m.shape(x)[axis], counted_back=True)
    return [m.op("gather_elements", x, m.given(index), axis=axis)]


@step(1)
def gather_nd(m: Maker) -> Sequence[SSAValue]:
    x = data(m)
    shape = m.shape(x)
    batch = m.random.randrange(len(shape)) if m.chance(0.3) else 0
    depth = m.random.randint(1, len(shape) - batch)
    sizes = np.array(shape[batch : batch + depth])
    index = m.indices((*shape[:batch], *m.choose((), (2,), (2, 3)), depth), sizes, counted_back=True)
    return [m.op("gather_nd", x, m.given(index), batch_dims=batch)]


@step(2)
def scatter_elements(m: Maker) -> Sequence[SSAValue]:
    x = data(m)
    axis, shape = m.axis(x), m.shape(x)
    if m.chance(0.4):
        index = np.argsort(m.rng.random(shape), axis=axis).astype(np.int64)
    else:
        index = m.indices(_covered(m, shape, axis), shape[axis], counted_back=True)
    same = [v for v in m.scope.values if m.shape(v) == index.shape and m.dtype_of(v) == m.dtype_of(x)]
    updates = m.choose(*same) if same and m.chance(0.7) else m.given(m.sample(index.shape, m.dtype_of(x)))
    reduction = "none" if m.dtype_of(x) == "i1" else m.choose(*REDUCTIONS)
    return [m.op("scatter_elements", x, m.given(index), updates, axis=axis, reduction=reduction)]


@step(2)
def scatter_nd(m: Maker) -> Sequence[SSAValue]:
    """Any parts, with any reduction, at positions that may meet."""
    x = data(m)
    shape = m.shape(x)
    depth = m.random.randint(1, len(shape))
    index = m.indices((*m.choose((), (1,), (3,), (2, 2)), depth), np.array(shape[:depth]), counted_back=True)
    reduction = "none" if m.dtype_of(x) == "i1" else m.choose(*REDUCTIONS)
    updates = m.given(m.sample((*index.shape[:-1], *shape[depth:]), m.dtype_of(x)))
    return [m.op("scatter_nd", x, m.given(index), updates, reduction=reduction)]


@step(3)
def scatter_rows(m: Maker) -> Sequence[SSAValue]:
    """Some rows are replaced, as in a cache."""
    x = data(m)
    rows, *rest = m.shape(x)
    if not rows:
        raise Declined("no rows")
    count = m.random.randint(1, rows)
    index = m.rng.permutation(rows)[:count].reshape(count, 1).astype(np.int64)
    if m.chance(0.3):
        index = index - rows
    new = m.given(m.sample((count, *rest), m.dtype_of(x)))
    if m.chance(0.5):
        bounds = {"starts": (0,) * (1 + len(rest)), "stops": (count, *rest), "steps": (1,) * (1 + len(rest))}
        new = m.op("slice", x, **bounds)
        if m.dtype_of(x) in ("f64", "f32", "f16", "bf16"):
            new = m.op("neg", new)
    return [m.op("scatter_nd", x, m.given(index), new)]


@step(2)
def iota(m: Maker) -> Sequence[SSAValue]:
    shape = m.new_shape((1, 1, 2, 3))
    dtype = m.choose(m.dtype, *m.dtypes, "i32")
    if dtype == "i1":
        raise Declined("no numbers")
    return [m.op("iota", shape=shape, dtype=dtype, axis=m.random.randrange(len(shape)))]


@step(1)
def positions(m: Maker) -> Sequence[SSAValue]:
    """Numbers counted along the last dim, added to a value."""
    x = m.pick(lambda s: len(s) >= 1)
    dtype = m.dtype_of(x)
    numbers = m.op("cast", m.op("iota", shape=m.shape(x)[-1:], dtype="i32", axis=0), to=dtype)
    return [m.op("add", x, m.op("mul", numbers, 0.125))]


@step(1)
def computed_index(m: Maker) -> Sequence[SSAValue]:
    """A gather of rows at positions that the program computes."""
    x, y = m.pick(lambda s: len(s) >= 1, of="any"), m.pick(lambda s: len(s) >= 1 and s[-1] > 0)
    at = m.op("argmax", y, axis=-1, keepdims=False)
    rows = m.shape(x)[0]
    if rows < 1:
        raise Declined("no rows")
    return [m.op("gather", x, m.op("mod", at, rows), axis=0)]
