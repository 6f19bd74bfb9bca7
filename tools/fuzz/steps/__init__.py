"""The steps that random programs are made of: each adds a few ops to a `Maker` and gives the values that later steps
may use. One file per family of ops; `models` has what exporters write: layers, composites in primitives, caches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import NamedTuple

from xdsl.ir import SSAValue

from headrace.tools.fuzz.maker import Maker

FAMILIES = ("elementwise", "contraction", "movement", "indexing", "random", "composite", "models")
Make = Callable[[Maker], Sequence[SSAValue]]


class Step(NamedTuple):
    """One kind of step, and how often it is tried beside the others."""

    make: Make
    often: int


_steps: dict[str, Step] = {}


def step(often: int) -> Callable[[Make], Make]:
    """Register a function as the kind of step of its name."""

    def register(make: Make) -> Make:
        _steps[make.__name__] = Step(make, often)
        return make

    return register


@cache
def steps() -> Mapping[str, Step]:
    """All kinds of steps by name."""
    for family in FAMILIES:
        import_module(f"{__name__}.{family}")
    return _steps


def broadcasts(a: Sequence[int], b: Sequence[int]) -> bool:
    """Whether two shapes broadcast against each other."""
    pairs = zip(reversed(a), reversed(b), strict=False)
    return all(n == m or 1 in (n, m) for n, m in pairs)


def narrowed(m: Maker, shape: Sequence[int]) -> tuple[int, ...]:
    """A shape that broadcasts to `shape`: some dims 1, some leading ones left out."""
    kept = shape[m.random.randint(0, len(shape)) :]
    return tuple(1 if m.chance(0.2) else n for n in kept)


def partner(m: Maker, value: SSAValue) -> SSAValue | float:
    """Something of a value's type that broadcasts against it: another value, a weight, a constant or a number."""
    shape, dtype = m.shape(value), m.dtype_of(value)
    match m.random.randrange(5):
        case 0 if dtype != "i1":
            number = m.random.uniform(-2, 2)
            return (round(number, 2) or 0.5) if dtype in ("f64", "f32", "f16", "bf16") else int(abs(number) * 3)
        case 1:
            return m.weight(narrowed(m, shape), dtype=dtype)
        case 2:
            return m.constant(m.sample(narrowed(m, shape), dtype))
        case _:
            return m.pick(lambda other: broadcasts(shape, other), of=dtype)
