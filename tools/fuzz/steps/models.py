"""Steps of what models and their exporters write: composites in primitives, layers, shared functions, derived weights,
caches."""

from __future__ import annotations

import math
from collections.abc import Sequence

from xdsl.ir import SSAValue

from headrace.dialects.support.dtypes import FLOATS
from headrace.tools.fuzz.maker import Maker
from headrace.tools.fuzz.nearby import Array, Declined
from headrace.tools.fuzz.steps import step, steps

MOST_CALLS = 2
"""How deep functions call functions."""


@step(3)
def written_out(m: Maker) -> Sequence[SSAValue]:
    """A composite in primitives."""
    x = m.pick(lambda s: len(s) >= 1 and s[-1] > 1)
    last, dtype = len(m.shape(x)) - 1, m.dtype_of(x)
    match m.random.randrange(7):
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
        case 4:
            y = m.op("sub", x, m.op("reduce_max", x, axes=(last,)))
            return [m.op("sub", y, m.op("log", m.op("reduce_sum", m.op("exp", y), axes=(last,))))]
        case 5:
            square = m.op("reduce_mean", m.op("mul", x, x), axes=(last,))
            y = m.op("mul", x, m.op("rsqrt", m.op("add", square, 1e-5)))
            return [m.op("mul", y, m.weight(m.shape(x)[-1:], 0.1, 1.0, dtype=dtype))]
        case _:
            d = m.op("sub", x, m.op("reduce_mean", x, axes=(last,)))
            variance = m.op("reduce_mean", m.op("pow", d, 2.0), axes=(last,))
            normal = m.op("div", d, m.op("sqrt", m.op("add", variance, 1e-5)))
            scaled = m.op("mul", normal, m.weight(m.shape(x)[-1:], 0.1, 1.0, dtype=dtype))
            return [m.op("add", scaled, m.weight(m.shape(x)[-1:], dtype=dtype))]


@step(1)
def scores(m: Maker) -> Sequence[SSAValue]:
    """Attention of a value with itself, written out."""
    x = m.pick(lambda s: len(s) >= 2 and math.prod(s) <= 512)
    rank, d = len(m.shape(x)), m.shape(x)[-1]
    key = m.op("transpose", x, perm=(*range(rank - 2), rank - 1, rank - 2))
    weights = m.op("softmax", m.op("mul", m.op("matmul", x, key), (d or 1) ** -0.5), axis=rank - 1)
    return [m.op("matmul", weights, x)]


@step(1)
def layers(m: Maker) -> Sequence[SSAValue]:
    """Two to four equal residual layers, one after another."""
    x = m.pick(lambda s: len(s) >= 2 and s[-1] > 1)
    d, dtype, hidden = m.shape(x)[-1], m.dtype_of(x), m.choose(4, 8)
    norm, act = m.chance(0.6), m.choose("relu", "gelu", "tanh", "silu")
    before = m.prefix
    try:
        for layer in range(m.random.randint(2, 4)):
            m.prefix = f"{before}/layers.{layer}"
            y = x
            if norm:
                y = m.op("layer_norm", x, m.weight((d,), 0.1, 1.0, dtype=dtype), m.weight((d,), 0.1, dtype=dtype))
            y = m.op("matmul", y, m.weight((d, hidden), d**-0.5, dtype=dtype))
            y = m.op("add", y, m.weight((hidden,), dtype=dtype))
            y = m.op("matmul", m.op(act, y), m.weight((hidden, d), hidden**-0.5, dtype=dtype))
            x = m.op("add", x, y)
    finally:
        m.prefix = before
    return [x]


@step(4)
def shared(m: Maker) -> Sequence[SSAValue]:
    """A function of a few steps, called one to three times with other weights; it may call others."""
    if len(m.outer) >= MOST_CALLS or m.scope.kind == "recipe":
        raise Declined("deep enough")
    sources = [m.pick(of=m.choose("float", "any")) for _ in range(m.choose(1, 1, 2))]
    with m.inside("function") as scope:
        taken = [m.parameter(x) for x in sources]
        take_steps(m, m.random.randint(1, 4))
        if m.chance(0.25):
            take_steps(m, 1, ("shared",))
        free = [x for x in scope.values if x.first_use is None and x not in taken]
        if not free and m.chance(0.9):
            raise Declined("nothing came of it")
        results = (free or taken)[-3:]
        if m.chance(0.2):
            results = [*results, m.choose(*results, taken[0])]
    func = m.function(scope, results)
    passed = list(scope.passed)
    given = iter(sources)
    operands = [next(given) if array is None else m.given(array) for array in passed]
    found = list(m.call(func, operands))
    for _ in range(m.choose(0, 1, 1, 2)):
        try:
            found += m.call(func, [_other(m, x, array) for x, array in zip(operands, passed, strict=True)])
        except Declined:
            break
    return found


def _other(m: Maker, value: SSAValue, passed: Array | None) -> SSAValue:
    """What another call passes in place of a value: one of its type; for what is no value of the caller also new
    elements, if it is no index."""
    shape, dtype = m.shape(value), m.dtype_of(value)
    if passed is not None:
        return m.weight(shape, dtype=dtype) if dtype in FLOATS and m.chance(0.8) else value
    return m.pick(lambda other: other == shape, of=dtype)


@step(2)
def derived(m: Maker) -> Sequence[SSAValue]:
    """A weight that a recipe computes from others."""
    if m.scope.kind == "recipe":
        raise Declined("inside a recipe")
    with m.inside("recipe") as scope:
        for _ in range(m.choose(1, 1, 2)):
            scope.values.append(m.stored(m.sample(m.new_shape((1, 1, 2, 2, 3)))))
        if m.derived and m.chance(0.3):
            scope.values.append(m.again(m.choose(*m.derived)))
        take_steps(m, m.random.randint(1, 3))
        value = scope.values[-1]
    return [m.recipe(scope, value)]


@step(1)
def weight(m: Maker) -> Sequence[SSAValue]:
    """A weight as a value, maybe one that is used already."""
    keys = [*m.derived, *m.store]
    if keys and m.chance(0.5):
        return [m.again(m.choose(*keys))]
    return [m.weight(m.new_shape((0, 1, 2, 3)), dtype=m.choose(m.dtype, *m.dtypes))]


@step(1)
def number(m: Maker) -> Sequence[SSAValue]:
    """A constant as a value, maybe spread out."""
    x = m.constant(m.sample(m.choose((), (), (1,), (4,), (2, 3)), m.choose(m.dtype, *m.dtypes)))
    if m.shape(x) == () and m.chance(0.5):
        return [m.op("broadcast", x, shape=(m.choose(2, 3), 4))]
    return [x]


@step(1)
def shifted(m: Maker) -> Sequence[SSAValue]:
    """A queue: the oldest row leaves, a new one comes."""
    x = m.pick(lambda s: len(s) >= 1 and s[0] > 1, of=m.choose("float", "any"))
    rows, *rest = m.shape(x)
    bounds = {"starts": (1, *(0,) * len(rest)), "stops": (rows, *rest), "steps": (1,) * (1 + len(rest))}
    return [m.op("concat", m.op("slice", x, **bounds), m.given(m.sample((1, *rest), m.dtype_of(x))), axis=0)]


def take_steps(m: Maker, count: int, kinds: Sequence[str] = ()) -> None:
    """Take about so many steps of the given kinds (all when none is given) in the present scope."""
    every = steps()
    names = list(kinds or every)
    often = [every[name].often for name in names]
    prefix = m.prefix
    done = tried = 0
    while done < count and tried < 20 * count:
        tried += 1
        m.prefix = prefix
        try:
            m.scope.values += every[m.random.choices(names, often)[0]].make(m)
            done += 1
        except Declined:
            continue
    m.prefix = prefix
