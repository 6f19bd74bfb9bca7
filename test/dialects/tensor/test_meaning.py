"""What elementwise, contraction and composite ops compute: against ONNX's reference evaluator, and at the edges."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from headrace.dialects.support.dtypes import to_numpy
from headrace.dialects.tensor import op_class
from headrace.dialects.tensor.base import from_attribute
from headrace.dialects.tensor.meaning import evaluate

RNG = np.random.default_rng(7)
BF16 = np.dtype(ml_dtypes.bfloat16)


def run(name: str, *arrays: Any, **attrs: Any) -> Any:
    """The first result of `tensor.<name>`, attributes left out at their defaults."""
    cls = op_class(f"tensor.{name}")
    defaults = {
        key: from_attribute(definition.default_value)
        for key, definition in cls.get_irdl_definition().properties.items()
        if getattr(definition, "default_value", None) is not None
    }
    return evaluate(f"tensor.{name}", defaults | attrs, *(np.asarray(a) for a in arrays))[0]


def onnx(kind: str, *arrays: Any, opset: int = 22, outputs: int = 1, **attrs: Any) -> Any:
    """The first output of an ONNX op by the reference evaluator."""
    names = [f"x{i}" if a is not None else "" for i, a in enumerate(arrays)]
    values = {n: np.asarray(a) for n, a in zip(names, arrays, strict=True) if n}
    node = helper.make_node(kind, names, [f"y{i}" for i in range(outputs)], **attrs)
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in values.items()
    ]
    out = [helper.make_tensor_value_info("y0", TensorProto.UNDEFINED, None)]
    graph = helper.make_graph([node], "g", inputs, out)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    return ReferenceEvaluator(model).run(["y0"], values)[0]


def close(found: Any, wanted: Any, tolerance: float = 2e-6) -> None:
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


UNARY = {
    "neg": "Neg", "abs": "Abs", "exp": "Exp", "log": "Log", "sqrt": "Sqrt", "reciprocal": "Reciprocal", "erf": "Erf",
    "tanh": "Tanh", "sigmoid": "Sigmoid", "sin": "Sin", "cos": "Cos", "tan": "Tan", "floor": "Floor", "ceil": "Ceil",
    "round": "Round", "sign": "Sign", "relu": "Relu", "is_nan": "IsNaN", "is_inf": "IsInf", "leaky_relu": "LeakyRelu",
    "elu": "Elu", "gelu": "Gelu", "softplus": "Softplus", "hard_sigmoid": "HardSigmoid",
}  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
def test_unary_against_onnx(name: str) -> None:
    x = np.concatenate([normal(64) * 3, np.float32([0, 0.5, 1.5, 2.5, -0.5])])
    x = np.abs(x) if name in ("log", "sqrt") else x
    with np.errstate(all="ignore"):
        close(run(name, x), onnx(UNARY[name], x))


BINARY = {
    "add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "pow": "Pow", "max": "Max", "min": "Min", "equal": "Equal",
    "less": "Less", "less_equal": "LessOrEqual", "greater": "Greater", "greater_equal": "GreaterOrEqual",
}  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
@pytest.mark.parametrize("name", BINARY)
def test_binary_against_onnx(name: str, dtype: Any) -> None:
    a = (np.abs(normal(4, 1, 5)) * 4 + 1).astype(dtype)
    b = (np.abs(normal(3, 5)) * 4 + 1).astype(dtype)
    close(run(name, a, b), onnx(BINARY[name], a, b))


@pytest.mark.parametrize("fmod", [False, True])
def test_mod_against_onnx(fmod: bool) -> None:
    a, b = np.int32([7, -7, 7, -7]), np.int32([3, 3, -3, -3])
    close(run("mod", a, b, fmod=fmod), onnx("Mod", a, b, fmod=int(fmod)))
    close(run("mod", a, b, fmod=fmod), np.int32([1, -1, 1, -1] if fmod else [1, 2, -2, -1]))


def test_integers_divide_toward_zero_and_give_0_for_a_zero_divisor() -> None:
    a, b = np.int32([7, -7, 7, -7, 5, 6, -6]), np.int32([2, 2, -2, -2, 0, 3, 3])
    assert run("div", a, b).tolist() == [3, -3, -3, 3, 0, 2, -2]
    assert run("div", np.uint8([200]), np.uint8([3])).tolist() == [66]


def test_integers_wrap() -> None:
    assert run("add", np.int8([127]), np.int8([1])).tolist() == [-128]
    assert run("neg", np.int8([-128])).tolist() == [-128]
    assert run("mul", np.uint8([16]), np.uint8([17])).tolist() == [16]


def test_an_integer_to_a_negative_power_truncates() -> None:
    a, b = np.int32([1, -1, -1, 2, -3, 0, 3]), np.int32([-5, -2, -3, -1, -1, -1, 3])
    assert run("pow", a, b).tolist() == [1, 1, -1, 0, 0, 0, 27]


def test_nan_goes_through_extremes_and_clips() -> None:
    x = np.float32([np.nan, 1.0])
    for name, other in (("max", 0.0), ("min", 2.0)):
        assert np.isnan(run(name, x, np.float32(other))[0])
        assert np.isnan(run(name, np.float32(other), x)[0])
    assert np.isnan(run("relu", x)[0])
    assert np.isnan(run("clip", x, min=0.0, max=6.0)[0])
    assert np.isnan(run("sign", x)[0])
    assert run("equal", x, x).tolist() == [False, True]


def test_halves_round_to_even() -> None:
    assert run("round", np.float32([0.5, 1.5, 2.5, -0.5])).tolist() == [0, 2, 2, 0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_erf_is_exact_to_an_ulp(dtype: Any) -> None:
    x = np.concatenate([np.linspace(-6.5, 6.5, 20001), [0.0, -0.0, 1e-30, 0.84375, 1.25, 1 / 0.35, 6.0, 30]]).astype(
        dtype
    )
    wanted = np.array([math.erf(v) for v in x.tolist()])
    error = np.abs(run("erf", x).astype(np.float64) - wanted) / np.spacing(np.abs(wanted).astype(dtype))
    assert error.max() <= 1.01
    assert np.isnan(run("erf", dtype(np.nan)))


def test_wide_arguments_do_not_overflow() -> None:
    x = np.float32([-1000, -100, 100, 1000])
    assert run("softplus", x).tolist() == [0, run("softplus", x)[1], 100, 1000]
    assert run("sigmoid", x).tolist() == [0, run("sigmoid", x)[1], 1, 1]
    assert run("softmax", np.float32([1000, 1000, -1000])).tolist() == [0.5, 0.5, 0]
    assert run("log_softmax", np.float32([0, -1000])).tolist() == [0, -1000]


@pytest.mark.parametrize("dtype", [np.float16, BF16])
def test_narrow_floats_are_computed_in_f32_and_rounded_once(dtype: Any) -> None:
    x = normal(50).astype(dtype)
    for name in ("exp", "gelu", "silu", "tanh", "softmax"):
        np.testing.assert_array_equal(run(name, x), run(name, x.astype(np.float32)).astype(dtype))


@pytest.mark.parametrize("to", ["f32", "f64", "f16", "bf16", "i8", "i64", "ui8", "i1"])
def test_casts(to: str) -> None:
    kinds = {"f16": np.float16, "bf16": BF16, "f32": np.float32, "f64": np.float64}
    kinds |= {"i8": np.int8, "i64": np.int64, "ui8": np.uint8, "i1": np.bool_}
    x = np.float32([0, 1.75, 100.5, 2.5])
    assert run("cast", x, to=to).dtype == kinds[to]
    if to[0] in "iu" and to != "i1":
        assert run("cast", x, to=to).tolist() == [0, 1, 100, 2]
    if to == "i1":
        assert run("cast", np.float32([0, 0.5, np.nan]), to=to).tolist() == [False, True, True]
    assert run("cast", np.int32([300, -1]), to="ui8").tolist() == [44, 255]


def test_matmul_against_numpy() -> None:
    shapes = [((3, 4), (4, 5)), ((4,), (4,)), ((4,), (2, 4, 5)), ((2, 3, 4), (4,)), ((2, 1, 3, 4), (6, 4, 5))]
    for a, b in shapes:
        x, y = normal(*a), normal(*b)
        close(run("matmul", x, y), np.asarray(np.matmul(x, y)))


@pytest.mark.parametrize("dtype", [np.float16, BF16])
def test_narrow_matmuls_accumulate_in_f32(dtype: Any) -> None:
    a, b = np.full((1, 4096), 1, dtype), np.full((4096, 1), 1, dtype)
    assert run("matmul", a, b).astype(np.float32) == 4096
    assert run("matmul", a, b).dtype == dtype


def test_integer_matmuls_are_exact_and_wrap() -> None:
    a = RNG.integers(-128, 128, (5, 300)).astype(np.int8)
    b = RNG.integers(-128, 128, (300, 7)).astype(np.int8)
    exact = a.astype(np.int64) @ b.astype(np.int64)
    np.testing.assert_array_equal(run("matmul", a, b, accumulate="i32"), exact.astype(np.int32))
    np.testing.assert_array_equal(run("matmul", a, b), exact.astype(np.int8))
    big = np.full((2, 2), 2**62, np.int64)
    np.testing.assert_array_equal(run("matmul", big, big), big @ big)


CONVS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 9), (4, 3, 3), {}),
    ((2, 4, 9), (6, 2, 3), {"groups": 2, "strides": (2,), "pads": (1, 2)}),
    ((1, 3, 8, 7), (4, 3, 3, 2), {"pads": (1, 0, 1, 1), "strides": (2, 1), "dilations": (2, 1)}),
    ((1, 4, 8, 7), (4, 1, 3, 3), {"groups": 4}),
    ((1, 2, 5, 4, 6), (3, 2, 2, 2, 3), {"pads": (1, 0, 0, 0, 1, 1), "strides": (1, 2, 1)}),
]


@pytest.mark.parametrize(("x", "w", "attrs"), CONVS)
def test_conv_against_onnx(x: Any, w: Any, attrs: dict[str, Any]) -> None:
    arrays = normal(*x), normal(*w), normal(w[0])
    theirs = {"group" if k == "groups" else k: v for k, v in attrs.items()}
    close(run("conv", *arrays, **attrs), onnx("Conv", *arrays, **theirs), 2e-5)
    close(run("conv", *arrays[:2], **attrs), onnx("Conv", *arrays[:2], **theirs), 2e-5)


POOLS: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 9), {"kernel": (3,)}),
    ((2, 3, 9), {"kernel": (2,), "strides": (2,), "pads": (1, 1)}),
    ((1, 2, 8, 7), {"kernel": (3, 2), "strides": (2, 2), "pads": (1, 0, 1, 1)}),
    ((1, 2, 8, 7), {"kernel": (2, 3), "dilations": (2, 1)}),
    ((1, 2, 8, 8), {"kernel": (3, 3), "strides": (2, 2), "ceil": True}),
    ((1, 2, 8, 8), {"kernel": (3, 3), "strides": (3, 3), "pads": (1, 1, 1, 1), "ceil": True}),
    ((1, 2, 4, 5, 6), {"kernel": (2, 2, 2), "strides": (1, 2, 2)}),
]


def _theirs(attrs: dict[str, Any]) -> dict[str, Any]:
    renamed = {"kernel": "kernel_shape", "ceil": "ceil_mode"}
    return {renamed.get(k, k): int(v) if isinstance(v, bool) else v for k, v in attrs.items()}


@pytest.mark.parametrize(("x", "attrs"), POOLS)
def test_max_pool_against_onnx(x: Any, attrs: dict[str, Any]) -> None:
    array = normal(*x) - 3
    close(run("max_pool", array, **attrs), onnx("MaxPool", array, **_theirs(attrs)))


@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize(("x", "attrs"), POOLS)
def test_avg_pool_against_onnx(x: Any, attrs: dict[str, Any], include: bool) -> None:
    array = normal(*x)
    wanted = onnx("AveragePool", array, **_theirs(attrs), count_include_pad=int(include))
    close(run("avg_pool", array, **attrs, count_include_pad=include), wanted)


def test_a_window_past_the_padded_input_does_not_count() -> None:
    x = np.float32([[[1, 2, 3]]])
    attrs = {"kernel": (2,), "strides": (2,), "ceil": True, "count_include_pad": True}
    assert run("avg_pool", x, **attrs).tolist() == [[[1.5, 3]]]
    assert run("max_pool", x, kernel=(2,), strides=(2,), ceil=True).tolist() == [[[2, 3]]]


def test_padding_never_wins_a_max_pool_of_integers() -> None:
    x = np.int8([[[-5, -7]]])
    assert run("max_pool", x, kernel=(2,), pads=(1, 1)).tolist() == [[[-5, -5, -7]]]


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_softmax_and_norms_against_onnx(axis: int) -> None:
    x = normal(3, 4, 5)
    close(run("softmax", x, axis=axis), onnx("Softmax", x, axis=axis))
    close(run("log_softmax", x, axis=axis), onnx("LogSoftmax", x, axis=axis))
    s, b = normal(*x.shape[axis:]), normal(*x.shape[axis:])
    close(run("layer_norm", x, s, b, axis=axis), onnx("LayerNormalization", x, s, b, axis=axis), 1e-5)
    wanted = onnx("RMSNormalization", x, s, axis=axis, epsilon=0.1, opset=23)
    close(run("rms_norm", x, s, axis=axis, epsilon=0.1), wanted, 1e-5)


def test_channel_norms_against_onnx() -> None:
    x, s, b, m, v = normal(2, 6, 3, 4), normal(6), normal(6), normal(6), np.abs(normal(6))
    wanted = onnx("BatchNormalization", x, s, b, m, v, epsilon=1e-3)
    close(run("batch_norm", x, s, b, m, v, epsilon=1e-3), wanted, 1e-5)
    for groups in (1, 2, 6):
        wanted = onnx("GroupNormalization", x, s, b, num_groups=groups, opset=21)
        close(run("group_norm", x, s, b, groups=groups), wanted, 1e-5)
    close(run("group_norm", x, s, b, groups=6), onnx("InstanceNormalization", x, s, b), 1e-5)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", [None, "i1", "f32"])
def test_attention_against_onnx(causal: bool, mask: str | None) -> None:
    q, k, v = normal(2, 3, 4, 8), normal(2, 3, 4, 8), normal(2, 3, 4, 6)
    masks = {"i1": np.tril(np.ones((4, 4), bool)), "f32": normal(4, 4)}
    operands = [q, k, v, *([masks[mask]] if mask else [])]
    wanted = onnx("Attention", *operands, is_causal=int(causal), opset=23)
    close(run("attention", *operands, causal=causal), wanted, 1e-5)


def test_operands_are_not_changed() -> None:
    x, s, b = normal(3, 4), normal(4), normal(4)
    copies = x.copy(), s.copy(), b.copy()
    for name, operands in (("layer_norm", (x, s, b)), ("softmax", (x,)), ("relu", (x,)), ("erf", (x,)), ("cast", (x,))):
        run(name, *operands, **({"to": "f32"} if name == "cast" else {}))
    for array, copy in zip((x, s, b), copies, strict=True):
        np.testing.assert_array_equal(array, copy)


def sort(x: Any, descending: bool) -> tuple[Any, Any]:
    values, indices = evaluate("tensor.sort", {"axis": 0, "descending": descending}, x)
    assert values.dtype == x.dtype
    assert indices.dtype == np.int64
    np.testing.assert_array_equal(values.astype(np.float64), x[indices].astype(np.float64))
    return values, indices


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "f64"])
def test_a_sort_takes_nan_for_the_largest(dtype: str) -> None:
    x = np.array([1, np.nan, -np.inf, np.inf, np.nan, 1], to_numpy(dtype))
    np.testing.assert_array_equal(sort(x, False)[1], [2, 0, 5, 3, 1, 4])
    np.testing.assert_array_equal(sort(x, True)[1], [1, 4, 3, 0, 5, 2])


def test_a_sort_keeps_the_order_of_equals() -> None:
    x = np.random.default_rng(0).integers(0, 3, 200).astype(np.int8)
    for descending in (False, True):
        _, indices = sort(x, descending)
        for value in range(3):
            assert (np.diff(indices[x[indices] == value]) > 0).all()
    np.testing.assert_array_equal(sort(np.array([False, True, False]), True)[1], [1, 0, 2])
    assert sort(np.zeros(0, np.float32), True)[1].shape == (0,)


def philox(words: tuple[int, ...], key: tuple[int, int]) -> tuple[int, ...]:
    """Philox 4x32-10 of one block, on Python's integers."""
    a, b, c, d = words
    k, j = key
    for _ in range(10):
        first, second = a * 0xD2511F53, c * 0xCD9E8D57
        a, b, c, d = (second >> 32) ^ b ^ k, second % 2**32, (first >> 32) ^ d ^ j, first % 2**32
        k, j = (k + 0x9E3779B9) % 2**32, (j + 0xBB67AE85) % 2**32
    return a, b, c, d


KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
     (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
]  # fmt: skip
"""Counter, key and words of the generator's authors (Random123, kat_vectors)."""


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_philox_gives_known_answers(counter: tuple[int, ...], key: tuple[int, int], words: tuple[int, ...]) -> None:
    halves = [low | high << 32 for low, high in (counter[:2], counter[2:], key)]
    zero = np.zeros((), np.uint64)
    assert run("philox", np.array(halves, np.uint64), zero, zero).tolist() == list(words)
    assert philox(counter, key) == words


def test_philox_counts_in_128_bits() -> None:
    """Places are added to the counter with a carry, and the counter wraps."""
    for start in (5, 2**64 - 3, 2**128 - 3):
        state = np.array([start % 2**64, start >> 64, 0x0123456789ABCDEF], np.uint64)
        rows, columns = np.array([[0], [2], [2**40]], np.uint64), np.arange(4, dtype=np.uint64)
        found = run("philox", state, rows, columns)
        for index in np.ndindex(3, 4):
            place = (start + int(rows[index[0], 0]) + int(columns[index[1]])) % 2**128
            counter = tuple(place >> 32 * i & 0xFFFFFFFF for i in range(4))
            assert tuple(found[index].tolist()) == philox(counter, (0x89ABCDEF, 0x01234567))
