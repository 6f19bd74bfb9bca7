"""Random numbers of ONNX models, and Dropout in training: distributions, and a state that is threaded."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import headrace
from headrace import CompileError

onnx: Any = pytest.importorskip("onnx")
helper: Any = onnx.helper


def model(op: str, *known: Any, like: Any = None, outputs: int = 1, **attributes: Any) -> Any:
    """A model of one op: `like` is its input, `known` are constants behind it."""
    inputs, given = [], []
    if like is not None:
        kind = helper.np_dtype_to_tensor_dtype(like.dtype)
        given.append(helper.make_tensor_value_info("x", kind, like.shape))
        inputs.append("x")
    constants = [onnx.numpy_helper.from_array(np.asarray(x), f"c{i}") for i, x in enumerate(known)]
    names = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, [*inputs, *(x.name for x in constants)], names, **attributes)
    results = [helper.make_empty_tensor_value_info(name) for name in names]
    graph = helper.make_graph([node], "g", given, results, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)])


def drawn(given: Any, like: Any = None) -> dict[str, Any]:
    """Two runs differ, and a reset draws the first again."""
    exe = headrace.compile(given, seed=3)
    inputs = {} if like is None else {"x": like}
    first, second = exe(inputs), exe(inputs)
    exe.reset()
    again = exe(inputs)
    assert "rng.next" not in first
    assert exe.state()["rng"][2] == 3
    assert not np.array_equal(first["y0"], second["y0"])
    np.testing.assert_array_equal(first["y0"], again["y0"])
    return first


def test_uniform_numbers() -> None:
    like = np.zeros((50, 40), np.float16)
    for given, x, dtype in (
        (model("RandomUniform", shape=[50, 40], low=-2.0, high=2.0), None, np.float32),
        (model("RandomUniformLike", like=like, low=-2.0, high=2.0), like, np.float16),
    ):
        found = drawn(given, x)["y0"]
        assert (found.dtype, found.shape) == (dtype, (50, 40))
        assert found.min() >= -2 and found.max() <= 2
        assert abs(found.astype(np.float64).mean()) < 4 * math.sqrt(16 / 12 / 2000)


def test_normal_numbers() -> None:
    like = np.zeros((50, 40), np.float32)
    for given, x, dtype in (
        (model("RandomNormal", shape=[50, 40], mean=3.0, scale=0.5, dtype=11), None, np.float64),
        (model("RandomNormalLike", like=like, mean=3.0, scale=0.5), like, np.float32),
    ):
        found = drawn(given, x)["y0"]
        assert (found.dtype, found.shape) == (dtype, (50, 40))
        assert abs(found.mean() - 3) < 4 * 0.5 / math.sqrt(2000)
        assert abs(found.std() - 0.5) < 4 * 0.5 / math.sqrt(4000)


def test_choices() -> None:
    x = np.full((3, 2000), 0.25, np.float32)
    found = drawn(model("Bernoulli", like=x, dtype=6), x)["y0"]
    assert found.dtype == np.int32
    assert abs(found.mean() - 0.25) < 4 * math.sqrt(0.25 * 0.75 / 6000)
    logits = np.log(np.array([[1, 3, 4], [8, 1, 1]], np.float32))
    found = drawn(model("Multinomial", like=logits, sample_size=3000, dtype=7), logits)["y0"]
    assert (found.dtype, found.shape) == (np.int64, (2, 3000))
    for row, shares in zip(found, ((1 / 8, 3 / 8, 1 / 2), (0.8, 0.1, 0.1)), strict=True):
        for k, p in enumerate(shares):
            assert abs((row == k).mean() - p) < 4 * math.sqrt(p * (1 - p) / 3000)


def test_dropout_in_training() -> None:
    x = np.ones((40, 50), np.float32)
    found = drawn(model("Dropout", np.float32(0.25), np.array(True), like=x, outputs=2), x)
    np.testing.assert_allclose(found["y0"], found["y1"] / np.float32(0.75))
    assert abs(found["y1"].mean() - 0.75) < 4 * math.sqrt(0.25 * 0.75 / 2000)
    exe = headrace.compile(model("Dropout", np.float32(0.25), np.array(False), like=x))
    np.testing.assert_array_equal(exe({"x": x})["y0"], x)


def test_a_model_that_draws_needs_a_seed() -> None:
    with pytest.raises(CompileError, match="draws random numbers"):
        headrace.compile(model("RandomNormal", shape=[3]))
    with pytest.raises(CompileError, match="i64 are not supported"):
        headrace.compile(model("RandomNormal", shape=[3], dtype=7), seed=0)
