"""Bound kernels against the plain meaning of the ops: layouts, in-place use, narrow types, both BLAS forms, chains,
and that running a bound chain allocates nothing."""

from __future__ import annotations

import itertools
import math
import tracemalloc
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from headrace.dialects.support.diagnostics import CompileError
from headrace.dialects.tensor.meaning import evaluate
from headrace.runtime.kernels import Packs, Scratch, allocating, bind, bind_chain, blas, calls
from headrace.runtime.kernels import random as random_kernel
from headrace.runtime.program import BodyOp

F32 = np.float32
EPS = float(np.finfo(F32).eps)
Array = np.ndarray[Any, np.dtype[Any]]


def random(*shape: int, seed: int = 0, dtype: Any = F32) -> Array:
    """Normal values."""
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(dtype)


def laid_out(x: Array, layout: str) -> Array:
    """The same values with other strides."""
    if layout == "dense" or x.ndim == 0:
        return x.copy()
    if layout == "reversed dims":
        return np.ascontiguousarray(x.T).T
    if layout == "channels last" and x.ndim > 2:
        return np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)
    room = np.zeros([n + 3 for n in x.shape], x.dtype)
    part = room[tuple(slice(1, n + 1) for n in x.shape)]
    part[...] = x
    return part


LAYOUTS = ("dense", "reversed dims", "channels last", "inside")


def run(steps: Iterable[tuple[Callable[..., Any], tuple[Any, ...]]]) -> None:
    """One run."""
    with np.errstate(all="ignore"):
        for f, args in steps:
            f(*args)


def check(
    name: str,
    attrs: Mapping[str, Any],
    *inputs: Array,
    tolerance: float = 8 * EPS,
    constants: Sequence[int] = (),
    layouts: Sequence[str] = ("dense",),
    quick: bool = True,
) -> None:
    """The kernel's results are the meaning's, to a tolerance relative to the largest result; `quick` means that it is
    no fallback."""
    expected = evaluate(name, attrs, *inputs)
    for layout in layouts:
        given = [laid_out(x, layout) for x in inputs]
        results = [laid_out(np.full(x.shape, 3).astype(x.dtype), layout) for x in expected]
        scratch = Scratch()
        steps = bind(name, attrs, given, results, scratch, constants)
        assert scratch.mark() == (0, 0)
        assert not quick or not allocating(steps), name
        for _ in range(2):
            run(steps)
            for got, want in zip(results, expected, strict=True):
                close(got, want, tolerance, f"{name} {layout}")
        for x, before in zip(given, inputs, strict=True):
            np.testing.assert_array_equal(x, before, f"{name} changed an input")


def close(got: Array, want: Array, tolerance: float, what: str = "") -> None:
    """Equal within a tolerance relative to the largest finite value."""
    if want.dtype.kind not in "fV":
        np.testing.assert_array_equal(got, want, what)
        return
    a, b = got.astype(np.float64), want.astype(np.float64)
    scale = float(np.abs(b[np.isfinite(b)]).max(initial=0)) or 1.0
    np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * scale, err_msg=what)


@pytest.fixture(params=["panels", "whole products"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both forms of products on any machine, with exp2 or with exp."""
    monkeypatch.setattr(blas, "has_small_kernels", lambda: request.param == "panels")
    monkeypatch.setattr(blas, "has_fast_exp2", lambda: request.param == "panels")
    return request.param


# Elementwise

UNARY = ["neg", "abs", "exp", "tanh", "sigmoid", "sin", "cos", "tan", "floor", "ceil", "round", "sign", "relu", "erf",
"silu", "softplus", "is_nan", "is_inf"]  # fmt: skip
POSITIVE = ["log", "sqrt", "rsqrt", "reciprocal"]
BINARY = ["add", "sub", "mul", "div", "max", "min", "atan2"]
COMPARE = ["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"]
PARAMETERS: list[tuple[str, dict[str, Any]]] = [
    ("leaky_relu", {"alpha": 0.1}),
    ("leaky_relu", {"alpha": 1.5}),
    ("leaky_relu", {"alpha": -0.5}),
    ("elu", {"alpha": 1.3}),
    ("clip", {"min": -0.3, "max": 0.4}),
    ("clip", {"max": 0.4}),
    ("gelu", {"approximate": "none"}),
    ("gelu", {"approximate": "tanh"}),
    ("hard_sigmoid", {"alpha": 0.2, "beta": 0.5}),
]


@pytest.mark.parametrize("name", UNARY)
def test_unary_ops_in_every_layout(name: str, form: str) -> None:
    check(f"tensor.{name}", {}, random(3, 5, 7), layouts=LAYOUTS)


@pytest.mark.parametrize("name", POSITIVE)
def test_unary_ops_of_positive_values(name: str) -> None:
    check(f"tensor.{name}", {}, np.abs(random(3, 5, 7)) + F32(0.1), layouts=LAYOUTS)


@pytest.mark.parametrize(("name", "attrs"), PARAMETERS)
def test_ops_with_parameters(name: str, attrs: dict[str, Any], form: str) -> None:
    check(f"tensor.{name}", attrs, 3 * random(4, 5, 6), layouts=LAYOUTS)


@pytest.mark.parametrize("name", [*BINARY, *COMPARE])
def test_binary_ops_broadcast(name: str) -> None:
    a = random(2, 3, 4)
    for b in (random(2, 3, 4, seed=1), random(4), random(3, 1), random(2, 1, 4), np.array(0.5, F32), random(1, 1, 1)):
        check(f"tensor.{name}", {}, a, b, layouts=LAYOUTS)
        check(f"tensor.{name}", {}, b, a)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "max", "min", "and", "or", "xor", "less", "equal"])
def test_binary_ops_of_integers(name: str) -> None:
    a, b = np.arange(12, dtype=np.int32).reshape(3, 4), np.arange(4, dtype=np.int32)
    check(f"tensor.{name}", {}, a, b, layouts=LAYOUTS)


def test_powers_select_casts_and_remainders() -> None:
    x = np.abs(random(5, 6)) + F32(0.1)
    for exponent in (2.0, 3.0, 0.5, -1.0, 1.0, 2.5):
        check("tensor.pow", {}, x, np.array(exponent, F32), constants=(1,), layouts=LAYOUTS)
    check("tensor.pow", {}, x, random(5, 6))
    check("tensor.select", {}, random(5, 6) > 0, x, random(6), layouts=LAYOUTS)
    check("tensor.mod", {"fmod": False}, random(5, 6), x, layouts=LAYOUTS)
    for to in ("f64", "i32", "i1", "f16", "bf16"):
        check("tensor.cast", {"to": to}, 9 * random(5, 6), layouts=LAYOUTS)


def test_gelu_and_erf_over_their_whole_range(form: str) -> None:
    """The stated errors; far values saturate, infinities and NaN pass."""
    x = np.concatenate([np.linspace(-14, 14, 400_001), [-3e38, -1e19, -50, 50, 1e19, 3e38]]).astype(F32)
    wide = x.astype(np.float64)
    erf = np.array([math.erf(v) for v in wide[::100]])
    tests = (("tensor.erf", {}, erf, 1.8e-7), ("tensor.gelu", {"approximate": "none"}, None, 6e-7))
    for name, attrs, _, bound in tests:
        (want,) = evaluate(name, attrs, wide)
        got = np.empty_like(x)
        run(bind(name, attrs, [x], [got], Scratch()))
        inside = np.abs(wide) < 14
        assert np.abs(got - want)[inside].max() <= bound
        np.testing.assert_allclose(got[~inside], want[~inside], rtol=1e-6, atol=1e-30)
    special = np.array([np.inf, np.nan, 0.0], F32)
    for name, attrs, _, _ in tests:
        got = np.empty_like(special)
        run(bind(name, attrs, [special], [got], Scratch()))
        (want,) = evaluate(name, attrs, special)
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", [*UNARY[:-2], "gelu", "softmax", "log_softmax", "layer_norm", "add", "mul"])
def test_the_result_may_take_the_place_of_operand_0(name: str, form: str) -> None:
    x = random(6, 70)
    others = {"layer_norm": [random(70), random(70)], "add": [random(70)], "mul": [random(6, 70, seed=3)]}.get(name, [])
    attributes: dict[str, dict[str, Any]] = {
        "gelu": {"approximate": "none"},
        "layer_norm": {"axis": -1, "epsilon": 1e-5},
    }
    attrs = attributes.get(name, {"axis": -1})
    (want,) = evaluate(f"tensor.{name}", attrs, x, *others)
    for layout in LAYOUTS:
        place = laid_out(x, layout)
        run(bind(f"tensor.{name}", attrs, [place, *others], [place], Scratch()))
        close(place, want, 8 * EPS, layout)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats_are_computed_in_f32_and_rounded_once(dtype: Any, form: str) -> None:
    ulp = 2.0**-10 if dtype == np.float16 else 2.0**-7
    x, y = random(6, 40, dtype=dtype), random(40, dtype=dtype)
    for name in ("add", "mul", "max", "less"):
        check(f"tensor.{name}", {}, x, y, tolerance=0)
    check("tensor.gelu", {"approximate": "none"}, x, tolerance=ulp)
    check("tensor.softmax", {"axis": -1}, x, tolerance=ulp)
    check("tensor.layer_norm", {"axis": -1, "epsilon": 1e-5}, x, y, y, tolerance=ulp)
    check("tensor.matmul", {}, x, random(40, 9, dtype=dtype), tolerance=ulp)
    check("tensor.transpose", {"perm": (1, 0)}, x, tolerance=0)


def test_large_arrays_go_through_tiles() -> None:
    steps = bind("tensor.silu", {}, [random(1000, 300)], [np.empty((1000, 300), F32)], scratch := Scratch())
    assert scratch.nbytes <= 1 << 20
    assert len(steps) > 4
    check("tensor.silu", {}, random(1000, 300), layouts=("dense", "inside"))


# Softmax, norms, reductions


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize("shape", [(7, 33), (1, 10), (2, 3, 50), (400, 300)])
def test_softmax(name: str, shape: tuple[int, ...], form: str) -> None:
    for axis in range(len(shape)):
        check(f"tensor.{name}", {"axis": axis}, 4 * random(*shape), tolerance=32 * EPS, layouts=LAYOUTS)


def test_softmax_of_masked_rows() -> None:
    x = random(5, 40)
    x[:, 20:] = -1e9
    x[2, :39] = -np.inf
    check("tensor.softmax", {"axis": -1}, x)


@pytest.mark.parametrize("shape", [(7, 33), (1, 64), (2, 3, 50), (200, 384)])
def test_norms(shape: tuple[int, ...], form: str) -> None:
    for axis in range(len(shape)):
        inner = shape[axis:]
        x, scale, bias = random(*shape), random(*inner, seed=1), random(*inner, seed=2)
        check("tensor.layer_norm", {"axis": axis, "epsilon": 1e-5}, x, scale, bias, layouts=LAYOUTS, quick=False)
        check("tensor.layer_norm", {"axis": axis, "epsilon": 1e-5}, x, scale)
        check("tensor.rms_norm", {"axis": axis, "epsilon": 1e-6}, x, scale, layouts=("dense", "inside"), quick=False)


def test_batch_and_group_norm() -> None:
    x, c = random(2, 6, 5, 4), [random(6, seed=k) for k in range(3)]
    variance = np.abs(random(6)) + F32(0.1)
    for constants in ((), (1, 2, 3, 4)):
        check("tensor.batch_norm", {"epsilon": 1e-5}, x, *c, variance, constants=constants, layouts=LAYOUTS)
    check("tensor.group_norm", {"groups": 3, "epsilon": 1e-5}, x, c[0], c[1], layouts=LAYOUTS)


@pytest.mark.parametrize("name", ["reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod"])
def test_reductions(name: str) -> None:
    x = random(3, 4, 5, 6)
    for axes in [(), (3,), (0,), (1,), (2, 3), (0, 2), (0, 1, 2), (0, 1, 2, 3), (-1,)]:
        for keepdims in (True, False):
            layouts = LAYOUTS if axes else ("dense",)
            attrs = {"axes": axes, "keepdims": keepdims}
            check(f"tensor.{name}", attrs, x, tolerance=64 * EPS, layouts=layouts, quick=False)
    if name != "reduce_mean":
        check(f"tensor.{name}", {"axes": (1,), "keepdims": False}, np.arange(24, dtype=np.int64).reshape(2, 3, 4))


def test_argument_reductions_and_running_sums() -> None:
    x = random(3, 4, 5)
    for axis, keepdims in itertools.product((0, 1, 2, -1), (True, False)):
        for name in ("argmax", "argmin"):
            check(f"tensor.{name}", {"axis": axis, "keepdims": keepdims, "select_last": False}, x, layouts=LAYOUTS)
    for axis, exclusive, reverse in itertools.product((0, 2), (True, False), (True, False)):
        check("tensor.cumsum", {"axis": axis, "exclusive": exclusive, "reverse": reverse}, x, layouts=LAYOUTS)


# Products


def product_close(got: Array, a: Array, b: Array) -> None:
    """|error| ≤ 4·eps·Σ|terms|."""
    want = a.astype(np.float64) @ b.astype(np.float64)
    bound = 4 * EPS * (np.abs(a).astype(np.float64) @ np.abs(b)) + 1e-30
    assert (np.abs(got - want) <= bound).all()


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 8, 16, 17, 49, 100, 128])
@pytest.mark.parametrize(("k", "n"), [(64, 64), (30, 100), (768, 130), (4700, 70), (20_000, 33), (9, 5)])
def test_products_by_weights(rows: int, k: int, n: int, form: str) -> None:
    a, b = random(rows, k), random(k, n)
    for constants, turned in itertools.product(((), (1,)), (False, True)):
        weights = np.ascontiguousarray(b.T).T if turned else b
        room = np.full((rows, n + 7), 5, F32)
        run(bind("tensor.matmul", {}, [laid_out(a, "inside"), weights], [room[:, 3 : n + 3]], Scratch(), constants))
        product_close(room[:, 3 : n + 3], a, b)
        assert (room[:, :3] == 5).all() and (room[:, n + 3 :] == 5).all()


@pytest.mark.parametrize(
    ("lhs", "rhs"),
    [
        ((2, 3, 40, 16), (2, 3, 16, 24)),
        ((2, 3, 200, 64), (2, 3, 64, 256)),
        ((2, 1, 20, 16), (3, 16, 8)),
        ((4, 33, 64), (64, 48)),
        ((5,), (5, 3)),
        ((4, 5), (5,)),
        ((5,), (5,)),
        ((2, 4, 5), (5,)),
        ((2, 1, 7), (2, 7, 9)),
    ],
)
def test_batched_products(lhs: tuple[int, ...], rhs: tuple[int, ...], form: str) -> None:
    a, b = random(*lhs), random(*rhs)
    for constants in ((), (1,)):
        check("tensor.matmul", {}, a, b, tolerance=64 * EPS, constants=constants, layouts=LAYOUTS)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("constants", [(), (1,)])
@pytest.mark.parametrize("k", [1, 2, 3, 40])
def test_zeros_do_not_hide_infinities_and_nans(k: int, constants: tuple[int, ...], dtype: Any, form: str) -> None:
    for rows, n in itertools.product((1, 2, 5, 20), (1, 2, 6, 40, 100)):
        b = np.full((k, n), np.inf).astype(dtype)
        b[:, ::2] = np.nan
        for zero in (0.0, -0.0):
            a = np.full((rows, k), zero).astype(dtype)
            check("tensor.matmul", {}, a, b, constants=constants, quick=False)
            check("tensor.matmul", {}, a[0], b, constants=constants, quick=False)
            check("tensor.matmul", {}, b.T.copy(), a.T.copy(), quick=False)


def test_products_of_integers_and_wide_floats() -> None:
    a, b = np.arange(12, dtype=np.int32).reshape(3, 4), np.arange(8, dtype=np.int32).reshape(4, 2)
    check("tensor.matmul", {}, a, b, quick=False)
    check("tensor.matmul", {}, a.astype(np.float64), b.astype(np.float64), tolerance=1e-15)


def test_weights_may_start_at_any_byte(form: str) -> None:
    """As they do in mapped model files: no call copies them."""

    def odd(x: Array) -> Array:
        raw = np.zeros(x.nbytes + 1, np.uint8)
        made = raw[1:].view(x.dtype).reshape(x.shape)
        made[...] = x
        assert not made.flags.aligned
        return made

    for rows, k, n in ((1, 64, 64), (1, 800, 800), (1, 1100, 600), (2, 200, 200), (40, 64, 70), (100, 3, 5)):
        a, b = random(rows, k), random(k, n)
        for weights in (odd(b), odd(np.ascontiguousarray(b.T)).T):
            out = np.empty((rows, n), F32)
            steps = bind("tensor.matmul", {}, [a, weights], [out], Scratch(), (1,))
            run(steps)
            product_close(out, a, b)
            assert all(x.flags.aligned for _, args in steps for x in args if isinstance(x, np.ndarray))
    ops, inputs, constants = feed_forward(300)
    inputs = {k: odd(x) if k in constants else x for k, x in inputs.items()}
    for _, args in check_chain(ops, inputs, {7: None}, constants):
        assert all(x.flags.aligned for x in args if isinstance(x, np.ndarray))
    attrs = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "groups": 1}
    check("tensor.conv", attrs, random(1, 3, 9, 9), odd(random(4, 3, 3, 3)), odd(random(4)), constants=(1, 2))
    check("tensor.matmul", {}, random(3, 4, 5), odd(random(3, 5, 6)), constants=(1,))
    check("tensor.matmul", {}, random(3, 4, 5), odd(random(3, 5, 6)))


def test_packed_weights_are_shared_and_not_repeated(form: str) -> None:
    packs, b = Packs(), random(256, 256)
    outputs = [np.empty((64, 256), F32) for _ in range(3)]
    for out in outputs:
        run(bind("tensor.matmul", {}, [random(64, 256), b], [out], Scratch(), (1,), packs))
    assert packs.nbytes == (b.nbytes if form == "panels" else 0)


# Convolution and pooling

CONVS = [
    ((2, 8, 14, 15), (16, 8, 3, 3), {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "groups": 1}),
    ((1, 3, 30, 29), (8, 3, 7, 7), {"strides": (2, 2), "pads": (3, 3, 3, 3), "dilations": (1, 1), "groups": 1}),
    ((2, 8, 9, 9), (16, 8, 1, 1), {"strides": (2, 2), "pads": (0, 0, 0, 0), "dilations": (1, 1), "groups": 1}),
    ((2, 8, 9, 9), (16, 8, 1, 1), {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "groups": 1}),
    ((2, 8, 14, 14), (8, 1, 3, 3), {"strides": (1, 1), "pads": (1, 0, 0, 1), "dilations": (1, 1), "groups": 8}),
    ((1, 8, 14, 14), (12, 4, 3, 3), {"strides": (1, 2), "pads": (2, 2, 2, 2), "dilations": (2, 2), "groups": 2}),
    ((2, 5, 20), (6, 5, 3), {"strides": (2,), "pads": (1, 1), "dilations": (1,), "groups": 1}),
    ((1, 3, 6, 7, 8), (4, 3, 2, 3, 3), {"strides": (1, 2, 1), "pads": (1,) * 6, "dilations": (1, 1, 1), "groups": 1}),
]


@pytest.mark.parametrize(("shape", "kernel", "attrs"), CONVS)
def test_convolution(shape: tuple[int, ...], kernel: tuple[int, ...], attrs: dict[str, Any], form: str) -> None:
    x, w, bias = random(*shape), random(*kernel), random(kernel[0])
    for constants in ((), (1, 2)):
        check("tensor.conv", attrs, x, w, bias, tolerance=32 * EPS, constants=constants, layouts=LAYOUTS)
        check("tensor.conv", attrs, x, w, tolerance=32 * EPS, constants=constants[:1])


@pytest.mark.parametrize("size", [7, 14, 30, 57])
@pytest.mark.parametrize("channels", [(8, 12), (64, 64)])
def test_winograd_is_an_explicit_algorithm(size: int, channels: tuple[int, int]) -> None:
    inputs, outputs = channels
    x, w, bias = random(2, inputs, size, size + 1), random(outputs, inputs, 3, 3) / 24, random(outputs)
    attrs = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "groups": 1, "algorithm": "winograd"}
    check("tensor.conv", attrs, x, w, bias, tolerance=3e-5, constants=(1, 2), layouts=LAYOUTS)
    plain = bind("tensor.conv", {**attrs, "algorithm": "winograd", "strides": (2, 2)}, [x, w, bias],
                 [np.empty((2, outputs, -(-size // 2), (size + 2) // 2), F32)], Scratch(), (1, 2))  # fmt: skip
    assert plain  # another stride: the ordinary form


POOLS = [
    {"kernel": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1), "dilations": (1, 1), "ceil": False},
    {"kernel": (2, 2), "strides": (2, 2), "pads": (0, 0, 0, 0), "dilations": (1, 1), "ceil": True},
    {"kernel": (3, 2), "strides": (1, 2), "pads": (1, 0, 0, 1), "dilations": (2, 1), "ceil": False},
    {"kernel": (1, 3), "strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "ceil": False},
]


@pytest.mark.parametrize("attrs", POOLS)
def test_pooling(attrs: dict[str, Any]) -> None:
    for include in (True, False):
        full = {**attrs, "count_include_pad": include}
        x = random(2, 5, 15, 13)
        check("tensor.max_pool", full, x, layouts=LAYOUTS)
        check("tensor.avg_pool", full, x, tolerance=16 * EPS, layouts=LAYOUTS)


# Movement


def test_movement() -> None:
    x = random(4, 6, 5)
    check("tensor.reshape", {"shape": (8, 15)}, x, layouts=LAYOUTS)
    check("tensor.transpose", {"perm": (2, 0, 1)}, x, layouts=LAYOUTS)
    check("tensor.broadcast", {"shape": (3, 4, 6, 5)}, x, layouts=LAYOUTS)
    check("tensor.slice", {"starts": (1, 5, 0), "stops": (3, -1, 5), "steps": (1, -2, 2)}, x, layouts=LAYOUTS)
    check("tensor.split", {"axis": 1, "sizes": (2, 4)}, x, layouts=LAYOUTS)
    check("tensor.concat", {"axis": -1}, x, random(4, 6, 2), x, layouts=LAYOUTS)
    check("tensor.pad", {"lo": (1, 0, 2), "hi": (0, 3, 1), "mode": "constant", "value": 1.5}, x, layouts=LAYOUTS)
    check("tensor.pad", {"lo": (1, 0, 2), "hi": (0, 3, 1), "mode": "edge", "value": 0.0}, x, quick=False)
    check("tensor.gather", {"axis": 1}, x, np.array([[0, -1], [3, 2]]), layouts=("dense", "reversed dims"), quick=False)
    check("tensor.iota", {"shape": (3, 4), "dtype": "f32", "axis": 1})


@pytest.mark.parametrize("places", [1, 7, 24, 1000])
def test_random_words(places: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In blocks of any size, of places that broadcast either way, with a counter that carries."""
    monkeypatch.setattr(random_kernel, "PLACES", places)
    state = np.array([2**64 - 5, 1, 0x89ABCDEF01234567], np.uint64)
    shapes: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
        ((), ()), ((3, 1), (5,)), ((2, 3, 1), (8,)), ((4,), (3, 1)), ((2, 3, 4), ()), ((0, 1), (3,)), ((1, 1), (9,)),
    ]  # fmt: skip
    for rows, columns in shapes:
        one, other = (np.arange(np.prod(x, dtype=int), dtype=np.uint64).reshape(x) for x in (rows, columns))
        check("tensor.philox", {}, state, one * np.uint64(2**33), other, layouts=LAYOUTS)


def test_gather_refuses_an_index_out_of_range() -> None:
    steps = bind("tensor.gather", {"axis": 0}, [random(4, 3), np.array([1, 4])], [np.empty((2, 3), F32)], Scratch())
    with pytest.raises(CompileError, match="index 4"):
        run(steps)


def test_ops_without_a_kernel_run_through_their_meaning_and_say_so() -> None:
    x, index, updates = random(4, 3), np.array([[0], [2]]), random(2, 3)
    out = np.empty_like(x)
    steps = bind("tensor.scatter_nd", {"reduction": "none"}, [x, index, updates], [out], Scratch())
    assert allocating(steps) == ["tensor.scatter_nd"]
    run(steps)
    np.testing.assert_array_equal(out, evaluate("tensor.scatter_nd", {"reduction": "none"}, x, index, updates)[0])


# Chains


def op(name: str, operands: Sequence[Any], result: Any, **attrs: Any) -> BodyOp:
    """A body op."""
    return BodyOp(f"tensor.{name}", attrs, tuple(operands), (result,))


def reference(ops: Sequence[BodyOp], inputs: Mapping[Any, Array]) -> dict[Any, Array]:
    """All values by the meanings."""
    values = dict(inputs)
    for o in ops:
        values.update(zip(o.results, evaluate(o.name, o.attrs, *(values[v] for v in o.operands)), strict=True))
    return values


def check_chain(
    ops: Sequence[BodyOp],
    inputs: Mapping[Any, Array],
    outputs: Mapping[Any, Array | None],
    constants: Sequence[Any] = (),
    tolerance: float = 64 * EPS,
) -> list[Any]:
    """Bind, run twice, compare; the steps."""
    values = reference(ops, inputs)
    arrays = {k: np.full(values[k].shape, 9, values[k].dtype) if x is None else x for k, x in outputs.items()}
    scratch = Scratch()
    steps = bind_chain(ops, inputs, arrays, scratch, constants)
    assert scratch.mark() == (0, 0)
    for _ in range(2):
        run(steps)
        for k, x in arrays.items():
            close(x, values[k], tolerance, str(k))
    return steps


def feed_forward(rows: int) -> tuple[list[BodyOp], dict[str, Array], list[str]]:
    """Linear, gelu, linear, residual, layer norm."""
    d, h = 96, 384
    inputs = {"x": random(rows, d), "w1": random(d, h) / 10, "b1": random(h), "w2": random(h, d) / 20, "b2": random(d)}
    inputs |= {"g": random(d, seed=1), "b": random(d, seed=2)}
    ops = [
        op("matmul", ["x", "w1"], 1),
        op("add", [1, "b1"], 2),
        op("gelu", [2], 3, approximate="none"),
        op("matmul", [3, "w2"], 4),
        op("add", [4, "b2"], 5),
        op("add", [5, "x"], 6),
        op("layer_norm", [6, "g", "b"], 7, axis=-1, epsilon=1e-5),
    ]
    return ops, inputs, ["w1", "b1", "w2", "b2", "g", "b"]


@pytest.mark.parametrize("rows", [1, 7, 64, 1000])
def test_chain_of_a_feed_forward_layer(rows: int, form: str) -> None:
    ops, inputs, constants = feed_forward(rows)
    check_chain(ops, inputs, {7: None}, constants)
    check_chain(ops, inputs, {7: None, 3: None, 5: None}, constants)
    check_chain(ops, inputs, {7: None})


@pytest.mark.parametrize("time", [16, 130, 512])
def test_chain_of_attention_on_strided_views(time: int, form: str) -> None:
    heads, d = 3, 32
    z = random(2 * time, 3 * heads * d).reshape(2, time, 3, heads, d).transpose(2, 0, 3, 1, 4)
    future = np.triu(np.full((time, time), -1e9, F32), 1)
    inputs = {"q": z[0], "k": z[1], "v": z[2], "c": np.array(d**-0.5, F32), "mask": future}
    ops = [
        op("transpose", ["k"], 0, perm=(0, 1, 3, 2)),
        op("matmul", ["q", 0], 1),
        op("mul", [1, "c"], 2),
        op("softmax", [2], 3, axis=-1),
        op("matmul", [3, "v"], 4),
    ]
    out = np.zeros((2 * time, heads * d), F32).reshape(2, time, heads, d).transpose(0, 2, 1, 3)
    check_chain(ops, inputs, {4: out}, ["c"])
    check_chain(ops, inputs, {4: None, 3: None}, ["c"])
    masked = [*ops[:3], op("add", [2, "mask"], 5), op("softmax", [5], 3, axis=-1), ops[4]]
    check_chain(masked, inputs, {4: out}, ["c", "mask"])


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("causal", [False, True])
def test_chain_of_the_attention_op(causal: bool, form: str) -> None:
    q, k, v = random(2, 3, 40, 16), random(2, 3, 56, 16), random(2, 3, 56, 8)
    if causal:
        k[:, :, 45:] = np.inf  # what no query sees may be anything
    keep = random(40, 56) > -1
    keep[:, 0] = True
    for mask in (None, random(40, 56), keep):
        inputs = {"q": q, "k": k, "v": v} | ({} if mask is None else {"m": mask})
        ops = [op("attention", list(inputs), 0, scale=None, causal=causal)]
        assert not allocating(check_chain(ops, inputs, {0: None}))


@pytest.mark.parametrize("channels_last", [True, False])
@pytest.mark.parametrize("stride", [1, 2])
def test_chain_of_a_residual_convolution(channels_last: bool, stride: int, form: str) -> None:
    def image(h: int, c: int, pad: int, seed: int = 0) -> tuple[Array, Array]:
        if channels_last:
            room = np.zeros((1, h + 2 * pad, h + 2 * pad, c), F32).transpose(0, 3, 1, 2)
        else:
            room = np.zeros((1, c, h + 2 * pad, h + 2 * pad), F32)
        inside = room[:, :, pad : pad + h, pad : pad + h]
        inside[...] = random(1, c, h, h, seed=seed)
        return room, inside

    x, _ = image(56, 16, 1)
    _, residual = image(56 // stride, 32, 1, seed=4)
    _, out = image(56 // stride, 32, 1)
    attrs = {"strides": (stride, stride), "pads": (0, 0, 0, 0), "dilations": (1, 1), "groups": 1}
    ops = [op("conv", ["x", "w", "b"], 0, **attrs), op("add", [0, "r"], 1), op("relu", [1], 2)]
    used = 56 + 2 - (stride - 1)
    inputs = {"x": x[:, :, :used, :used], "w": random(32, 16, 3, 3), "b": random(32), "r": residual}
    check_chain(ops, inputs, {2: out}, ["w", "b"])


def test_chain_with_views_inside_and_a_reduction() -> None:
    ops = [
        op("add", ["x", "y"], 0),
        op("reshape", [0], 1, shape=(64, 16, 32)),
        op("transpose", [1], 2, perm=(1, 0, 2)),
        op("mul", [2, "z"], 3),
        op("reduce_mean", [3], 4, axes=(2,), keepdims=False),
        op("exp", [4], 5),
    ]
    inputs = {"x": random(64, 512), "y": random(512), "z": random(16, 64, 32)}
    check_chain(ops, inputs, {5: None})
    check_chain(ops, inputs, {5: None, 2: None, 1: None})


def test_a_value_used_twice_is_not_overwritten() -> None:
    ops = [
        op("exp", ["x"], 0),
        op("add", [0, "x"], 1),
        op("mul", [1, 1], 2),
        op("sub", [0, 2], 3),
        op("tanh", [3], 4),
        op("add", [4, 0], 5),
    ]
    check_chain(ops, {"x": random(700, 300)}, {5: None})
    check_chain(ops, {"x": random(3, 5)}, {5: None, 2: None})


@pytest.mark.parametrize("seed", range(40))
def test_random_chains(seed: int, form: str) -> None:
    """Any order of ops, uses and outputs."""
    rng = np.random.default_rng(seed)
    rows, columns = (int(n) for n in rng.choice([1, 5, 48, 300], 2))
    inputs: dict[Any, Array] = {"x": random(rows, columns), "v": random(columns), "w": random(columns, columns) / 8}
    inputs |= {"column": random(rows, 1), "s": np.array(0.5, F32)}
    wide: list[Any] = ["x"]
    ops: list[BodyOp] = []
    for i in range(int(rng.integers(2, 9))):
        a = wide[int(rng.integers(len(wide)))]
        b = [*wide, "v", "column", "s"][int(rng.integers(len(wide) + 3))]
        kind = rng.choice(["add", "mul", "tanh", "sigmoid", "softmax", "matmul", "layer_norm", "max", "neg", "turn"])
        if kind in ("add", "mul", "max"):
            ops.append(op(kind, [a, b], i))
        elif kind == "matmul":
            ops.append(op("matmul", [a, "w"], i))
            ops.append(op("tanh", [i], ("t", i)))
            wide.append(("t", i))
        elif kind == "softmax":
            ops.append(op("softmax", [a], i, axis=int(rng.integers(2))))
        elif kind == "layer_norm":
            ops.append(op("layer_norm", [a, "v", "v"], i, axis=-1, epsilon=1e-3))
        elif kind == "turn":
            ops.append(op("transpose", [a], ("t", i), perm=(1, 0)))
            ops.append(op("transpose", [("t", i)], i, perm=(1, 0)))
        else:
            ops.append(op(kind, [a], i))
        wide.append(i)
    outputs = {ops[-1].results[0]: None} | {v: None for v in wide[1:] if rng.random() < 0.2}
    constants = ["v", "w", "s"] if rng.random() < 0.7 else []
    check_chain(ops, inputs, outputs, constants, tolerance=1e-4)


# Memory


def test_a_steady_run_allocates_nothing(form: str) -> None:
    """No array. NumPy's iterators keep a buffer for small broadcast operands: it is made small here to see the rest."""
    ops, inputs, constants = feed_forward(1000)
    time = 256
    z = random(time, 288).reshape(1, time, 3, 3, 32).transpose(2, 0, 3, 1, 4)
    attention = [op("attention", ["q", "k", "v"], 0, scale=None, causal=False)]
    window = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "groups": 1}
    conv = [op("conv", ["x", "w", "b"], 0, **window), op("relu", [0], 1)]
    image = random(1, 28, 28, 16).transpose(0, 3, 1, 2)
    runs = [
        (ops, inputs, 7, constants),
        (attention, {"q": z[0], "k": z[1], "v": z[2]}, 0, []),
        (conv, {"x": image, "w": random(16, 16, 3, 3), "b": random(16)}, 1, ["w", "b"]),
    ]
    for body, arrays, result, constant in runs:
        out = np.empty(reference(body, arrays)[result].shape, F32)
        scratch = Scratch()
        steps = bind_chain(body, arrays, {result: out}, scratch, constant)
        run(steps)
        usual = np.setbufsize(16)
        tracemalloc.start()
        run(steps)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        np.setbufsize(usual)
        assert peak < 4096, f"{peak} bytes"
        assert scratch.nbytes < 16 << 20


def test_scratch_is_a_stack_of_aligned_memory() -> None:
    scratch = Scratch(block=1024)
    first = scratch.take((10,), F32)
    mark = scratch.mark()
    second, third = scratch.take((5, 7), np.float64), scratch.take((2000,), np.uint8)
    assert not np.may_share_memory(first, second) and not np.may_share_memory(second, third)
    scratch.release(mark)
    again = scratch.take((5, 7), np.float64)
    assert again.ctypes.data == second.ctypes.data
    assert all(x.ctypes.data % 64 == 0 for x in (first, second, third))
    kept = scratch.slot(0, (4, 4), F32)
    assert scratch.slot(0, (4,), F32).ctypes.data == kept.ctypes.data


def test_views_have_as_few_dims_as_their_strides_allow() -> None:
    x, out = random(4, 1, 5, 6), np.empty((4, 1, 5, 6), F32)
    (a,), (b,) = calls.coalesce([x], [out])
    assert a.shape == b.shape == (120,)
    (a, bias), (b,) = calls.coalesce([x, random(6)], [out])
    assert a.shape == (20, 6) and bias.shape == (6,)
    turned = np.empty((6, 5, 4), F32).transpose(2, 1, 0)
    (a, scalar), (b,) = calls.coalesce([turned, np.array(1, F32)], [turned])
    assert a.shape == (120,) and scalar.shape == ()


def test_the_blas_of_this_machine_can_be_told() -> None:
    assert isinstance(blas.core_name(), str)
    for rows, k in itertools.product((1, 2, 3, 7, 16, 49, 128, 1000), (10, 768, 3072, 5000, 100_000)):
        found = blas.block_of(rows, k)
        assert found is None or (found[0] <= max(rows, 1) and found[0] * found[1] * k <= blas.SMALL_PRODUCT)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 5), (300, 200)])
def test_a_table_gives_what_the_op_means_to_the_bit(dtype: Any, shape: tuple[int, ...]) -> None:
    """Dense, with gaps, repeated, and of no dims."""
    rng = np.random.default_rng(0)
    every = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    dense = rng.choice(every, shape)
    cases = [dense, np.repeat(dense, 2, -1)[..., ::2], np.broadcast_to(dense[..., :1], shape)] if shape else [dense]
    for x in map(np.asarray, cases):
        for name, attrs in (
            ("exp", {}),
            ("silu", {}),
            ("gelu", {"approximate": "none"}),
            ("leaky_relu", {"alpha": 0.1}),
        ):
            (want,) = evaluate(f"tensor.{name}", attrs, x)
            for out in (np.empty(shape, dtype), np.empty((*shape, 2), dtype)[..., 0]):
                with np.errstate(all="ignore"):
                    for f, arguments in bind(f"tensor.{name}", attrs, [x], [out], Scratch()):
                        f(*arguments)
                same = out.view(np.uint16) == want.view(np.uint16)
                assert (same | (np.isnan(out.astype(np.float32)) & np.isnan(want.astype(np.float32)))).all()
