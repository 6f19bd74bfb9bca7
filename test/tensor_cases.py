"""Random small applications of every tensor op: `CASES[name]` is a hypothesis strategy of (attributes, operand arrays).

Attributes are complete (defaults filled in). An op that has no entry here fails `test_every_op_has_a_case`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from headrace.dialects.support.dtypes import is_float, to_numpy
from headrace.dialects.tensor import shapes

Array = np.ndarray[Any, np.dtype[Any]]
Case = tuple[dict[str, Any], list[Array]]
Draw = Callable[[Any], Any]

FLOATS = ("f32", "f64", "f16", "bf16")
INTS = ("i8", "i16", "i32", "i64", "ui8", "ui32")
SIGNED = (*FLOATS, "i8", "i32", "i64")
NUMBERS = (*FLOATS, *INTS)
ANY = (*NUMBERS, "i1")

CASES: dict[str, st.SearchStrategy[Case]] = {}


def case(*names: str) -> Callable[[Callable[[Draw, str], Case]], None]:
    """Register a function of (draw, op name) as the generator of ops."""

    def register(make: Callable[[Draw, str], Case]) -> None:
        for name in names:
            CASES[name] = st.composite(lambda draw, name=name: make(draw, name))()

    return register


def array(draw: Draw, shape: tuple[int, ...], dtype: str, low: int = -4, high: int = 5) -> Array:
    """Quarters (floats) or integers in [low, high): sums of few of their products are exact in f32."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    if dtype == "i1":
        return np.asarray(rng.integers(0, 2, shape), bool)
    if is_float(dtype):
        return np.asarray(rng.integers(4 * low, 4 * high, shape) / 4).astype(to_numpy(dtype))
    return np.asarray(rng.integers(0 if dtype.startswith("u") else low, high, shape)).astype(to_numpy(dtype))


def shape(draw: Draw, least: int = 0, most: int = 3, size: int = 4, smallest: int = 1) -> tuple[int, ...]:
    """A small shape."""
    return tuple(draw(st.lists(st.integers(smallest, size), min_size=least, max_size=most)))


def narrowed(draw: Draw, full: tuple[int, ...]) -> tuple[int, ...]:
    """A shape that broadcasts to `full`: some dims 1, some leading dims left out."""
    kept = full[draw(st.integers(0, len(full))) :]
    return tuple(1 if draw(st.booleans()) else n for n in kept)


def one_of(draw: Draw, *options: Any) -> Any:
    """One of the options."""
    return draw(st.sampled_from(options))


def axis(draw: Draw, rank: int) -> int:
    """An axis, counted from the front or the back."""
    return draw(st.integers(-rank, rank - 1))


BINARY_TYPES = {
    **dict.fromkeys(("add", "sub", "mul", "div", "pow", "max", "min", "mod"), NUMBERS),
    **dict.fromkeys(("less", "less_equal", "greater", "greater_equal"), NUMBERS),
    **dict.fromkeys(("equal", "not_equal"), ANY),
    **dict.fromkeys(("and", "or", "xor"), (*INTS, "i1")),
    "atan2": FLOATS,
}


@case(*(f"tensor.{name}" for name in BINARY_TYPES))
def _binary(draw: Draw, name: str) -> Case:
    dtype = one_of(draw, *BINARY_TYPES[name.removeprefix("tensor.")])
    full = shape(draw)
    pair = [narrowed(draw, full), full]
    arrays = [array(draw, s, dtype) for s in (pair if draw(st.booleans()) else pair[::-1])]
    attrs = {"fmod": draw(st.booleans())} if name == "tensor.mod" else {}
    return attrs, arrays


UNARY_TYPES = {
    **dict.fromkeys(
        [
            "exp",
            "log",
            "sqrt",
            "rsqrt",
            "reciprocal",
            "erf",
            "tanh",
            "sigmoid",
            "sin",
            "cos",
            "tan",
            "floor",
            "ceil",
            "round",
            "leaky_relu",
            "elu",
            "gelu",
            "silu",
            "softplus",
            "hard_sigmoid",
            "is_nan",
            "is_inf",
        ],
        FLOATS,
    ),
    **dict.fromkeys(("neg", "abs", "sign"), SIGNED),
    **dict.fromkeys(("relu", "clip"), NUMBERS),
    "not": (*INTS, "i1"),
    "cast": ANY,
}
UNARY_ATTRS: dict[str, Callable[[Draw, str], dict[str, Any]]] = {
    "leaky_relu": lambda draw, dtype: {"alpha": one_of(draw, 0.01, -0.5, 2.0)},
    "elu": lambda draw, dtype: {"alpha": one_of(draw, 1.0, 0.5)},
    "gelu": lambda draw, dtype: {"approximate": one_of(draw, "none", "tanh")},
    "hard_sigmoid": lambda draw, dtype: {"alpha": one_of(draw, 0.2, 1 / 6), "beta": 0.5},
    "cast": lambda draw, dtype: {"to": one_of(draw, *(NUMBERS if dtype == "i1" else ("f32", "f64", "bf16", "i32")))},
}


@case(*(f"tensor.{name}" for name in UNARY_TYPES))
def _unary(draw: Draw, name: str) -> Case:
    short = name.removeprefix("tensor.")
    dtype = one_of(draw, *UNARY_TYPES[short])
    attrs = UNARY_ATTRS[short](draw, dtype) if short in UNARY_ATTRS else {}
    if short == "clip":
        bounds = (-1.5, 2.25) if is_float(dtype) else (1, 3)
        attrs = {k: v for k, v in zip(("min", "max"), bounds, strict=True) if draw(st.booleans())}
    return attrs, [array(draw, shape(draw), dtype)]


@case("tensor.select")
def _select(draw: Draw, name: str) -> Case:
    full, dtype = shape(draw), one_of(draw, *ANY)
    three = draw(st.permutations([full, narrowed(draw, full), narrowed(draw, full)]))
    return {}, [array(draw, s, d) for s, d in zip(three, ("i1", dtype, dtype), strict=True)]


@case("tensor.matmul")
def _matmul(draw: Draw, name: str) -> Case:
    batch, dtype = shape(draw, most=2, size=3), one_of(draw, "f32", "f64", "f16", "bf16", "i8", "i32", "ui8")
    m, k, n = (draw(st.integers(1, 4)) for _ in range(3))
    lhs, rhs = (*batch, m, k), (*narrowed(draw, batch), k, n)
    if draw(st.booleans()):
        lhs, rhs = (*rhs[:-2], m, k), (*batch, k, n)
    if draw(st.integers(0, 5)) == 0:
        lhs = (k,)
    if draw(st.integers(0, 5)) == 0:
        rhs = (k,)
    attrs: dict[str, Any] = {}
    accumulate = {"f16": "f32", "bf16": "f32", "i8": "i32", "ui8": "i32", "f32": "f64"}
    if dtype in accumulate and draw(st.booleans()):
        attrs["accumulate"] = accumulate[dtype]
    return attrs, [array(draw, lhs, dtype), array(draw, rhs, dtype)]


def _windows(draw: Draw, spatial: tuple[int, ...], kernel: tuple[int, ...], pool: bool) -> dict[str, Any] | None:
    rank = len(spatial)
    attrs: dict[str, Any] = {}
    if draw(st.booleans()):
        attrs["strides"] = tuple(draw(st.integers(1, 3)) for _ in range(rank))
    if draw(st.booleans()):
        attrs["dilations"] = tuple(draw(st.integers(1, 2)) for _ in range(rank))
    if draw(st.booleans()):
        attrs["pads"] = tuple(draw(st.integers(0, 1)) for _ in range(2 * rank))
    extent = [(k - 1) * d + 1 for k, d in zip(kernel, attrs.get("dilations", (1,) * rank), strict=True)]
    pads = attrs.get("pads", (0,) * (2 * rank))
    if any(e > n + a + b for e, n, a, b in zip(extent, spatial, pads[:rank], pads[rank:], strict=True)):
        return None
    if pool and any(max(a, b) >= e for e, a, b in zip(extent, pads[:rank], pads[rank:], strict=True)):
        return None
    return attrs


def _spatial(draw: Draw, pool: bool) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]:
    rank = one_of(draw, 1, 1, 2, 2, 3)
    spatial = tuple(draw(st.integers(1, 7 if rank < 3 else 4)) for _ in range(rank))
    kernel = tuple(draw(st.integers(1, min(3, n))) for n in spatial)
    attrs = _windows(draw, spatial, kernel, pool)
    return spatial, kernel, attrs if attrs is not None else {}


@case("tensor.conv")
def _conv(draw: Draw, name: str) -> Case:
    spatial, kernel, attrs = _spatial(draw, False)
    groups = one_of(draw, 1, 1, 2, 3)
    inputs, outputs = draw(st.integers(1, 2)), one_of(draw, 1, 2, 3)
    dtype = one_of(draw, "f32", "bf16", "f16", "f64", "i8")
    x = array(draw, (draw(st.integers(1, 3)), inputs * groups, *spatial), dtype)
    w = array(draw, (outputs * groups, inputs, *kernel), dtype)
    bias = [array(draw, (outputs * groups,), dtype)] if draw(st.booleans()) else []
    if dtype == "i8":
        attrs["accumulate"] = "i32"
    return {**attrs, "groups": groups}, [x, w, *bias]


@case("tensor.max_pool", "tensor.avg_pool")
def _pool(draw: Draw, name: str) -> Case:
    spatial, kernel, attrs = _spatial(draw, True)
    attrs |= {"kernel": kernel, "ceil": draw(st.booleans())}
    dtype = one_of(draw, *FLOATS)
    if name == "tensor.avg_pool":
        attrs["count_include_pad"] = draw(st.booleans())
    else:
        dtype = one_of(draw, *NUMBERS)
    return attrs, [array(draw, (draw(st.integers(1, 2)), draw(st.integers(1, 3)), *spatial), dtype)]


@case("tensor.softmax", "tensor.log_softmax")
def _softmax(draw: Draw, name: str) -> Case:
    s = shape(draw, least=1)
    return {"axis": axis(draw, len(s))}, [array(draw, s, one_of(draw, *FLOATS))]


@case("tensor.layer_norm", "tensor.rms_norm")
def _norm(draw: Draw, name: str) -> Case:
    s = shape(draw, least=1)
    at, dtype = axis(draw, len(s)), one_of(draw, *FLOATS)
    count = 1 if name == "tensor.rms_norm" else one_of(draw, 1, 2)
    operands = [array(draw, s[at % len(s) :], dtype) for _ in range(count)]
    return {"axis": at, "epsilon": one_of(draw, 1e-5, 0.1)}, [array(draw, s, dtype), *operands]


@case("tensor.batch_norm", "tensor.group_norm")
def _channel_norm(draw: Draw, name: str) -> Case:
    groups, dtype = draw(st.integers(1, 3)), one_of(draw, *FLOATS)
    s = (draw(st.integers(1, 3)), groups * draw(st.integers(1, 2)), *shape(draw, most=2))
    attrs: dict[str, Any] = {"epsilon": one_of(draw, 1e-5, 0.1)}
    channel = [array(draw, (s[1],), dtype) for _ in range(2)]
    if name == "tensor.group_norm":
        attrs["groups"] = groups
    else:
        channel += [array(draw, (s[1],), dtype), array(draw, (s[1],), dtype, 0)]
    return attrs, [array(draw, s, dtype), *channel]


@case("tensor.attention")
def _attention(draw: Draw, name: str) -> Case:
    batch, dtype = shape(draw, most=2, size=3), one_of(draw, *FLOATS)
    t, s, d, e = (draw(st.integers(1, 4)) for _ in range(4))
    leads = draw(st.permutations([batch, batch, narrowed(draw, batch)]))
    arrays = [array(draw, (*lead, *tail), dtype) for lead, tail in zip(leads, ((t, d), (s, d), (s, e)), strict=True)]
    if draw(st.booleans()):
        arrays.append(array(draw, narrowed(draw, (*batch, t, s)), one_of(draw, "i1", dtype)))
    attrs: dict[str, Any] = {"causal": draw(st.booleans())}
    if draw(st.booleans()):
        attrs["scale"] = 0.5
    return attrs, arrays


@case(*(f"tensor.reduce_{kind}" for kind in ("sum", "mean", "max", "min", "prod")))
def _reduce(draw: Draw, name: str) -> Case:
    s = shape(draw)
    axes = tuple(d - draw(st.sampled_from((0, len(s)))) for d in range(len(s)) if draw(st.booleans()))
    return {"axes": axes, "keepdims": draw(st.booleans())}, [array(draw, s, one_of(draw, *NUMBERS))]


@case("tensor.argmax", "tensor.argmin")
def _arg(draw: Draw, name: str) -> Case:
    s = shape(draw, least=1)
    attrs = {"axis": axis(draw, len(s)), "keepdims": draw(st.booleans()), "select_last": draw(st.booleans())}
    return attrs, [array(draw, s, one_of(draw, *NUMBERS))]


@case("tensor.cumsum")
def _cumsum(draw: Draw, name: str) -> Case:
    s = shape(draw, least=1)
    attrs = {"axis": axis(draw, len(s)), "exclusive": draw(st.booleans()), "reverse": draw(st.booleans())}
    return attrs, [array(draw, s, one_of(draw, *NUMBERS))]


@case("tensor.sort")
def _sort(draw: Draw, name: str) -> Case:
    s = shape(draw, least=1)
    attrs = {"axis": axis(draw, len(s)), "descending": draw(st.booleans())}
    return attrs, [array(draw, s, one_of(draw, *ANY))]


@case("tensor.reshape")
def _reshape(draw: Draw, name: str) -> Case:
    factors = draw(st.lists(st.sampled_from((1, 2, 3)), max_size=5))
    order = draw(st.permutations(factors)) if draw(st.booleans()) else factors

    def merged(parts: list[int]) -> tuple[int, ...]:
        found: list[int] = []
        for n in parts:
            if found and draw(st.booleans()):
                found[-1] *= n
            else:
                found.append(n)
        return tuple(found)

    return {"shape": merged(list(order))}, [array(draw, merged(factors), one_of(draw, *ANY))]


@case("tensor.transpose")
def _transpose(draw: Draw, name: str) -> Case:
    s = shape(draw, most=4)
    return {"perm": tuple(draw(st.permutations(range(len(s)))))}, [array(draw, s, one_of(draw, *ANY))]


@case("tensor.broadcast")
def _broadcast(draw: Draw, name: str) -> Case:
    s = shape(draw)
    return {"shape": s}, [array(draw, narrowed(draw, s), one_of(draw, *ANY))]


@case("tensor.slice")
def _slice(draw: Draw, name: str) -> Case:
    s = shape(draw, size=6)
    starts, stops, steps = [], [], []
    for n in s:
        a, b = sorted((draw(st.integers(0, n - 1)), draw(st.integers(0, n - 1))))
        if draw(st.booleans()):
            starts, stops, steps = [*starts, a], [*stops, b + 1], [*steps, draw(st.integers(1, 3))]
        else:
            starts, stops, steps = [*starts, b], [*stops, a - 1], [*steps, -draw(st.integers(1, 3))]
    attrs = {"starts": tuple(starts), "stops": tuple(stops), "steps": tuple(steps)}
    return attrs, [array(draw, s, one_of(draw, *ANY))]


@case("tensor.concat")
def _concat(draw: Draw, name: str) -> Case:
    s, dtype = shape(draw, least=1), one_of(draw, *ANY)
    at = axis(draw, len(s))
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    parts = [tuple(n if d == at % len(s) else m for d, m in enumerate(s)) for n in sizes]
    return {"axis": at}, [array(draw, part, dtype) for part in parts]


@case("tensor.split")
def _split(draw: Draw, name: str) -> Case:
    s = list(shape(draw, least=1))
    at = axis(draw, len(s))
    sizes = tuple(draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)))
    s[at] = sum(sizes)
    return {"axis": at, "sizes": sizes}, [array(draw, tuple(s), one_of(draw, *ANY))]


@case("tensor.pad")
def _pad(draw: Draw, name: str) -> Case:
    s, mode = shape(draw), one_of(draw, "constant", "reflect", "edge")
    most = [n - 1 if mode == "reflect" else 2 for n in s]
    lo, hi = (tuple(draw(st.integers(0, m)) if draw(st.booleans()) else 0 for m in most) for _ in range(2))
    return {"lo": lo, "hi": hi, "mode": mode, "value": 2.0}, [array(draw, s, one_of(draw, *NUMBERS))]


def _indices(draw: Draw, s: tuple[int, ...], limit: int) -> Array:
    return array(draw, s, one_of(draw, "i32", "i64"), 0, limit)


@case("tensor.gather")
def _gather(draw: Draw, name: str) -> Case:
    s = shape(draw, least=1)
    at = axis(draw, len(s))
    return {"axis": at}, [array(draw, s, one_of(draw, *ANY)), _indices(draw, shape(draw, most=2), s[at])]


def _covered(draw: Draw, s: tuple[int, ...], at: int) -> tuple[int, ...]:
    return tuple(
        draw(st.integers(1, 4)) if d == at % len(s) else draw(st.sampled_from((1, n))) for d, n in enumerate(s)
    )


@case("tensor.gather_elements")
def _gather_elements(draw: Draw, name: str) -> Case:
    s = shape(draw, least=1)
    at = axis(draw, len(s))
    return {"axis": at}, [array(draw, s, one_of(draw, *ANY)), _indices(draw, _covered(draw, s, at), s[at])]


@case("tensor.scatter_elements")
def _scatter_elements(draw: Draw, name: str) -> Case:
    s, dtype = shape(draw, least=1), one_of(draw, *NUMBERS)
    at = axis(draw, len(s))
    indices = _indices(draw, _covered(draw, s, at), s[at])
    attrs = {"axis": at, "reduction": one_of(draw, "none", "add", "mul", "min", "max")}
    return attrs, [array(draw, s, dtype), indices, array(draw, indices.shape, dtype)]


@case("tensor.gather_nd")
def _gather_nd(draw: Draw, name: str) -> Case:
    s = shape(draw, least=1)
    batch = draw(st.integers(0, len(s) - 1))
    k = draw(st.integers(1, len(s) - batch))
    indices = _indices(draw, (*s[:batch], *shape(draw, most=2, size=3), k), min(s[batch : batch + k]))
    return {"batch_dims": batch}, [array(draw, s, one_of(draw, *ANY)), indices]


@case("tensor.scatter_nd")
def _scatter_nd(draw: Draw, name: str) -> Case:
    s, dtype = shape(draw, least=1), one_of(draw, *NUMBERS)
    k = draw(st.integers(1, len(s)))
    indices = _indices(draw, (*shape(draw, most=2, size=3), k), min(s[:k]))
    updates = array(draw, (*indices.shape[:-1], *s[k:]), dtype)
    return {"reduction": one_of(draw, "none", "add", "mul", "min", "max")}, [array(draw, s, dtype), indices, updates]


@case("tensor.philox")
def _philox(draw: Draw, name: str) -> Case:
    """Counters that carry into their upper half, and places that broadcast."""
    full = shape(draw, most=3)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    state = rng.integers(0, 2**64, 3, np.uint64)
    state[0] = one_of(draw, state[0], np.uint64(2**64 - 2))
    return {}, [state, *(array(draw, s, "ui64") for s in draw(st.permutations([full, narrowed(draw, full)])))]


ALONE: dict[str, Any] = {"axes": ("tp",), "sizes": (1,), "strides": (1,)}
"""A group of one socket; `test_collective` has more."""


@case("tensor.all_reduce", "tensor.reduce_scatter")
def _combine(draw: Draw, name: str) -> Case:
    s = shape(draw, least=1)
    attrs = {**ALONE, "kind": one_of(draw, "add", "max", "min", "mul")}
    return attrs | ({"axis": axis(draw, len(s))} if "scatter" in name else {}), [array(draw, s, one_of(draw, *NUMBERS))]


@case("tensor.all_gather", "tensor.socket_slice")
def _blocks(draw: Draw, name: str) -> Case:
    s = shape(draw, least=1)
    return {**ALONE, "axis": axis(draw, len(s))}, [array(draw, s, one_of(draw, *ANY))]


@case("tensor.all_to_all")
def _all_to_all(draw: Draw, name: str) -> Case:
    s = shape(draw, least=1)
    return {**ALONE, "split": axis(draw, len(s)), "concat": axis(draw, len(s))}, [array(draw, s, one_of(draw, *ANY))]


@case("tensor.permute")
def _permute(draw: Draw, name: str) -> Case:
    return {**ALONE, "by": draw(st.integers(-2, 2))}, [array(draw, shape(draw), one_of(draw, *ANY))]


@case("tensor.socket_choose")
def _socket_choose(draw: Draw, name: str) -> Case:
    return ALONE, [array(draw, shape(draw), one_of(draw, *ANY))]


@case("tensor.socket_index")
def _socket_index(draw: Draw, name: str) -> Case:
    return ALONE, []


@case("tensor.iota")
def _iota(draw: Draw, name: str) -> Case:
    s = shape(draw, least=1)
    return {"shape": s, "dtype": one_of(draw, *NUMBERS), "axis": axis(draw, len(s))}, []


def types(arrays: list[Array]) -> list[shapes.TT]:
    """The tensor types of arrays."""
    from headrace.dialects.support.dtypes import from_numpy

    return [shapes.TT(tuple(a.shape), from_numpy(a.dtype)) for a in arrays]
