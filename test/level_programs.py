"""Random programs that go further than `random_programs` where a mapping may go wrong: rows written and read at run
time, states, integers and booleans as results, values moved backwards, side by side twice or from nothing, plain
results.

    module, inputs, store = level_program(7)
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence

import numpy as np
from random_programs import Program, Step, _Maker, random_program  # pyright: ignore[reportPrivateUsage]
from xdsl.dialects.builtin import FunctionType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import BlockArgument, SSAValue

from headrace.dialects.support.locations import named
from headrace.dialects.tensor.base import create
from headrace.dialects.tensor.program import set_signature, signature


def _backwards(m: _Maker) -> Sequence[SSAValue]:
    x = m.pick(lambda s: len(s) >= 1)
    bounds = [
        (n - 1, -1, -m.random.choice((1, 1, 2))) if m.random.random() < 0.6 else (0, n, 1) for n in m.shape(x)
    ]  # a stop of -1 lies before the first index
    starts, stops, steps = (tuple(b[i] for b in bounds) for i in range(3))
    return [m.op("slice", x, starts=starts, stops=stops, steps=steps)]


def _rng(m: _Maker) -> np.random.Generator:
    return np.random.default_rng(m.random.getrandbits(32))


def _scatter_rows(m: _Maker) -> Sequence[SSAValue]:
    """Rows of an argument, a weight or a value are replaced, at indices of an argument."""
    match m.random.randrange(4):
        case 0:
            data = m.pick(lambda s: len(s) >= 1)
        case 1:
            data = m.weight([m.random.choice((3, 4, 6)), m.random.choice((1, 4, 5))])
        case _:
            data = m.argument(m.array([m.random.choice((3, 4, 6)), m.random.choice((1, 4, 5))]), m.dtype)
            m.values.append(data)
    rows, *rest = m.shape(data)
    count = m.random.randint(1, rows)
    index = _rng(m).permutation(rows)[:count].reshape(count, 1)
    if m.random.random() < 0.3:
        index = index - rows
    at = m.argument(index.astype(np.int64), "i64")
    if m.random.random() < 0.5:
        part = m.op("slice", data, starts=(0,) * (1 + len(rest)), stops=(count, *rest), steps=(1,) * (1 + len(rest)))
        new = m.op("neg", part)
    else:
        new = m.argument(m.array((count, *rest)), m.dtype)
    return [m.op("scatter_nd", data, at, new)]


def _scatter(m: _Maker) -> Sequence[SSAValue]:
    x = m.pick(lambda s: len(s) >= 1)
    shape = m.shape(x)
    if m.random.random() < 0.5:
        axis = m.axis(x)
        index = np.argsort(_rng(m).random(shape), axis=axis)
        return [m.op("scatter_elements", x, m.constant(index.astype(np.int64)), m.op("neg", x), axis=axis)]
    count = m.random.randint(1, 3)
    index = np.stack([_rng(m).integers(0, n, count) for n in shape], axis=-1)
    updates = m.weight((count,))
    return [m.op("scatter_nd", x, m.argument(index.astype(np.int64), "i64"), updates, reduction="add")]


def _gather_some(m: _Maker) -> Sequence[SSAValue]:
    x = m.pick(lambda s: len(s) >= 1)
    shape = m.shape(x)
    if m.random.random() < 0.5:
        axis = m.axis(x)
        index = _rng(m).integers(-shape[axis], shape[axis], shape)
        return [m.op("gather_elements", x, m.argument(index.astype(np.int64), "i64"), axis=axis)]
    depth = m.random.randint(1, len(shape))
    index = np.stack([_rng(m).integers(0, n, (2, 3)) for n in shape[:depth]], axis=-1)
    return [m.op("gather_nd", x, m.argument(index.astype(np.int64), "i64"))]


def _gather_value(m: _Maker) -> Sequence[SSAValue]:
    """Rows of a value or an argument at run-time positions, also a single one."""
    x = m.pick(lambda s: len(s) >= 1)
    axis = m.axis(x)
    index = _rng(m).integers(-m.shape(x)[axis], m.shape(x)[axis], m.random.choice(((), (1,), (4,), (2, 2))))
    return [m.op("gather", x, m.argument(np.asarray(index, np.int64), "i64"), axis=axis)]


def _twice(m: _Maker) -> Sequence[SSAValue]:
    x = m.pick(lambda s: len(s) >= 1)
    return [m.op("concat", x, x, axis=m.axis(x))]


def _positions(m: _Maker) -> Sequence[SSAValue]:
    """Integers as a result."""
    x = m.pick(lambda s: len(s) >= 1)
    axis = m.axis(x)
    top = np.sort(m.arrays[x].astype(np.float64), axis=axis)
    if m.shape(x)[axis] > 1:
        m.clear_of(np.diff(top, axis=axis), 0.0)
    return [m.op(m.random.choice(("argmax", "argmin")), x, axis=axis, keepdims=m.random.random() < 0.5)]


def _mask(m: _Maker) -> Sequence[SSAValue]:
    """Booleans as a result, moved."""
    x = m.pick(lambda s: len(s) >= 1)
    m.clear_of(m.arrays[x], 0.25)
    mask = m.op("less", x, 0.25)
    perm = list(range(len(m.shape(x))))
    m.random.shuffle(perm)
    mask = m.op("transpose", mask, perm=tuple(perm))
    return [m.op("pad", mask, lo=(1,) * len(perm), hi=(0,) * len(perm), value=1.0)]


def _margin(m: _Maker) -> Sequence[SSAValue]:
    """Padding of padding, mirrored, or of a moved value."""
    x = m.pick(lambda s: len(s) >= 1 and min(s) >= 2)
    rank = len(m.shape(x))
    if m.random.random() < 0.4:
        mode = m.random.choice(("reflect", "edge"))
        return [m.op("pad", x, lo=(1,) * rank, hi=(0,) * rank, mode=mode)]
    y = m.op("pad", x, lo=(1,) * rank, hi=(0,) * rank, value=-1.5)
    return [m.op("pad", y, lo=(0,) * rank, hi=(1,) * rank, value=0.5)]


def _total(m: _Maker) -> Sequence[SSAValue]:
    x = m.pick(lambda s: len(s) >= 1)
    axes = tuple(range(len(m.shape(x))))
    return [m.op(f"reduce_{m.random.choice(('sum', 'mean', 'max'))}", x, axes=axes, keepdims=False)]


def _outer(m: _Maker) -> Sequence[SSAValue]:
    """Both operands broadcast, each in dims of its own."""
    x = m.pick(lambda s: 1 <= len(s) <= 3 and math.prod(s) <= 128)
    n = m.random.choice((1, 3, 4))
    column = m.op("reshape", x, shape=(*m.shape(x), 1))
    return [m.op(m.random.choice(("add", "mul")), column, m.weight((n,)))]


def _products(m: _Maker) -> Sequence[SSAValue]:
    """Vectors, and batches of two values."""
    x = m.pick(lambda s: len(s) >= 1)
    k = m.shape(x)[-1]
    if m.random.random() < 0.5:
        y = m.op("matmul", x, m.weight((k,), k**-0.5))
        return [m.op("matmul", m.weight((3, k), k**-0.5), m.weight((k,)))] if m.random.random() < 0.2 else [y]
    y = m.pick(lambda s: len(s) >= 2 and s[-2] == k and len(s) <= 4)
    return [m.op("matmul", x, m.op("mul", y, 1 / k))]


def _grouped(m: _Maker) -> Sequence[SSAValue]:
    x = m.pick(lambda s: 3 <= len(s) <= 4 and s[1] % 2 == 0 and min(s[2:]) >= 2)
    channels, spatial = m.shape(x)[1], m.shape(x)[2:]
    w = m.weight((m.random.choice((2, 4)), channels // 2, *(2 for _ in spatial)), channels**-0.5)
    dilations = tuple(m.random.choice((1, 1, 2)) if n > 2 else 1 for n in spatial)
    return [m.op("conv", x, w, groups=2, dilations=dilations, strides=tuple(m.random.choice((1, 2)) for _ in spatial))]


def _nothing(m: _Maker) -> Sequence[SSAValue]:
    """A value beside a part of it that has no elements, and a sum of that part."""
    x = m.pick(lambda s: len(s) >= 1)
    axis, rank = m.axis(x), len(m.shape(x))
    stops = tuple(0 if d == axis else n for d, n in enumerate(m.shape(x)))
    bounds = {"starts": (0,) * rank, "stops": stops, "steps": (1,) * rank}
    none = create("tensor.slice", [x], bounds, named("none"))  # by hand: `op` declines what has no elements
    m.block.add_op(none)
    m.arrays[none.results[0]] = m.arrays[x][tuple(slice(0, n) for n in stops)]
    y = m.op("concat", none.results[0], x, axis=axis)
    if m.random.random() < 0.5:
        return [y]
    return [y, m.op("reduce_sum", none.results[0], axes=(axis,), keepdims=False)] if rank > 1 else [y]


def _literal(m: _Maker) -> Sequence[SSAValue]:
    x = m.pick(lambda s: len(s) >= 1)
    return [m.op("mul", x, m.constant(m.array(m.shape(x)[-1:])))]


def _count(m: _Maker) -> Sequence[SSAValue]:
    x = m.pick(lambda s: len(s) >= 1)
    n = m.shape(x)[-1]
    numbers = m.op("cast", m.op("iota", shape=(n,), dtype="i32", axis=0), to=m.dtype)
    return [m.op("add", x, m.op("mul", numbers, 0.125))]


def _weight(m: _Maker) -> Sequence[SSAValue]:
    return [m.weight((m.random.choice((1, 3)), 4))]


def _one(m: _Maker) -> Sequence[SSAValue]:
    """A scalar spread out."""
    return [m.op("broadcast", m.scalar(0.75), shape=(m.random.choice((2, 3)), 4))]


MORE: Mapping[str, Step] = {
    "backwards": (_backwards, 2),
    "scatter_rows": (_scatter_rows, 2),
    "scatter": (_scatter, 1),
    "gather_some": (_gather_some, 1),
    "gather_value": (_gather_value, 1),
    "twice": (_twice, 1),
    "positions": (_positions, 1),
    "mask": (_mask, 1),
    "margin": (_margin, 1),
    "total": (_total, 1),
    "outer": (_outer, 1),
    "products": (_products, 2),
    "grouped": (_grouped, 1),
    "nothing": (_nothing, 1),
    "literal": (_literal, 1),
    "count": (_count, 1),
    "weight": (_weight, 1),
    "one": (_one, 1),
}
"""Kinds of steps beside those of `random_programs.STEPS`."""


def level_program(seed: int, *, steps: int = 8, dtype: str = "f32") -> Program:
    """A program of any kind of step; some return a value twice or an argument, some have states."""
    program = random_program(seed, steps=steps, dtype=dtype, more=MORE, dead=seed % 3 == 0)
    rng = random.Random(seed)
    func = next(op for op in program.module.body.block.ops if isinstance(op, FuncOp))
    last = func.body.block.last_op
    assert isinstance(last, ReturnOp)
    results = list(last.operands)
    if rng.random() < 0.2:
        results.append(rng.choice(results))
    if rng.random() < 0.2:
        results.append(rng.choice(list(func.body.block.args)))
    states: dict[int, int] = {}
    for op in func.body.block.ops:
        written = op.operands[0] if op.name == "tensor.scatter_nd" else None
        if isinstance(written, BlockArgument) and written.index not in states and rng.random() < 0.6:
            states[written.index] = len(results)
            results.append(op.results[0])
    last.operands = results
    func.function_type = FunctionType.from_lists([a.type for a in func.body.block.args], [v.type for v in results])
    names = [f"y{i}" for i in range(len(results))]
    inputs = list(signature(func).inputs)
    set_signature(func, inputs, names, [(inputs[a], names[b]) for a, b in states.items()])
    return program
