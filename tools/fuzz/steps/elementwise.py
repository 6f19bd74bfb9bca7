"""Steps of elementwise ops, over all the element types that they take."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from headrace.dialects.support.dtypes import FLOATS, highest, lowest
from headrace.dialects.tensor.shapes import elementwise as kinds
from headrace.tools.fuzz.maker import DTYPES, GROUPS, Maker
from headrace.tools.fuzz.nearby import Declined
from headrace.tools.fuzz.steps import narrowed, partner, step

ARITHMETIC = tuple(name.removeprefix("tensor.") for name in kinds.ARITHMETIC)
FLOAT_UNARY = tuple(name.removeprefix("tensor.") for name in kinds.FLOAT_UNARY)


def positive(m: Maker, x: SSAValue) -> SSAValue:
    """A value of the same shape, well above zero."""
    return m.op("add", m.op("abs", x), 0.5)


@step(8)
def arithmetic(m: Maker) -> Sequence[SSAValue]:
    x = m.pick(of=m.choose("float", "float", "float", "number"))
    y = partner(m, x)
    name = m.choose("add", "add", "sub", "mul", "mul", *ARITHMETIC)
    is_float = m.dtype_of(x) in FLOATS
    if name == "mod":
        return [m.op(name, x, y, fmod=m.chance(0.5))]
    if name == "pow" and is_float:
        return [m.op(name, positive(m, x), m.choose(2.0, 0.5, 3.0, -1.0, 1.3, y))]
    if name == "div" and is_float and isinstance(y, SSAValue) and m.chance(0.7):
        y = positive(m, y)
    return [m.op(name, y, x) if isinstance(y, SSAValue) and m.chance(0.3) else m.op(name, x, y)]


@step(1)
def angle(m: Maker) -> Sequence[SSAValue]:
    x = m.pick()
    return [m.op("atan2", x, partner(m, x))]


@step(2)
def bitwise(m: Maker) -> Sequence[SSAValue]:
    x = m.pick(of="bits")
    if m.chance(0.3):
        return [m.op("not", x)]
    return [m.op(m.choose("and", "or", "xor"), x, partner(m, x))]


@step(2)
def compare(m: Maker) -> Sequence[SSAValue]:
    """Truth values, which later steps may select by."""
    x = m.pick(of=m.choose("float", "number", "any"))
    names = ("equal", "not_equal") if m.dtype_of(x) == "i1" else ("less", "less_equal", "greater", "greater_equal")
    name = m.choose(*names, *(("equal", "not_equal") if m.dtype_of(x) not in FLOATS or m.nearby.wild else ()))
    return [m.op(name, x, partner(m, x))]


@step(2)
def classify(m: Maker) -> Sequence[SSAValue]:
    return [m.op(m.choose("is_nan", "is_inf"), m.pick())]


@step(3)
def select(m: Maker) -> Sequence[SSAValue]:
    x = m.pick(of="any")
    shape = m.shape(x)
    try:
        mask = m.pick(lambda other: other == shape[len(shape) - len(other) :], of="i1")
    except Declined:
        mask = m.weight(narrowed(m, shape), dtype="i1")
    y = partner(m, x)
    return [m.op("select", mask, *((x, y) if m.chance(0.5) or not isinstance(y, SSAValue) else (y, x)))]


@step(6)
def smooth(m: Maker) -> Sequence[SSAValue]:
    """A function of floats."""
    x = m.pick()
    name = m.choose(*FLOAT_UNARY)
    match name:
        case "log" | "sqrt" | "rsqrt" | "reciprocal" if not m.nearby.wild:
            x = positive(m, x)
        case "gelu":
            return [m.op(name, x, approximate=m.choose("none", "tanh"))]
        case "leaky_relu":
            return [m.op(name, x, alpha=m.choose(0.01, -0.5, 2.0))]
        case "elu":
            return [m.op(name, x, alpha=m.choose(1.0, 0.5))]
        case "hard_sigmoid":
            return [m.op(name, x, alpha=m.choose(0.2, 1 / 6), beta=m.choose(0.5, 0.25))]
        case _:
            pass
    return [m.op(name, x)]


@step(2)
def signed(m: Maker) -> Sequence[SSAValue]:
    return [m.op(m.choose("neg", "abs", "sign"), m.pick(of="signed"))]


@step(2)
def limited(m: Maker) -> Sequence[SSAValue]:
    x = m.pick(of="number")
    if m.chance(0.4):
        return [m.op("relu", x)]
    dtype = m.dtype_of(x)
    bounds: tuple[float, float] = (-1.0, 1.5)
    if dtype not in FLOATS:
        bounds = (max(-3, int(lowest(dtype))), min(m.choose(2, 5, 2**40), int(highest(dtype)), 2**62))
    low, high = bounds
    attrs = {"both": {"min": low, "max": high}, "min": {"min": low}, "max": {"max": high}, "none": {}}
    return [m.op("clip", x, **attrs[m.choose("both", "both", "min", "max", "none")])]


@step(4)
def cast(m: Maker) -> Sequence[SSAValue]:
    x = m.pick(of="any")
    to = m.choose(*m.dtypes, m.dtype, m.dtype)
    return [m.op("cast", x, to=to)]


@step(1)
def whole(m: Maker) -> Sequence[SSAValue]:
    """To integers and back."""
    x = m.pick()
    to = m.choose(*[dtype for dtype in DTYPES if dtype in GROUPS["int"]])
    y = m.op("cast", m.op(m.choose("floor", "round", "ceil"), m.op("mul", x, 4.0)), to=to)
    return [m.op("mul", m.op("cast", m.op("add", y, y), to=m.dtype_of(x)), 0.125)]
