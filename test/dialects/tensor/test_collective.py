"""Collectives by their meaning, on sockets that are threads: who gets what, the order of sums, and errors."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from headrace.dialects.support.diagnostics import CompileError
from headrace.dialects.tensor.meaning import evaluate
from headrace.dialects.tensor.meaning.collective import current_socket, on_each
from headrace.dialects.tensor.shapes.collective import Group

TP = {"axes": ("tp",), "sizes": (4,), "strides": (1,)}
DP_OF_8 = {"axes": ("dp",), "sizes": (2,), "strides": (4,)}
Array = np.ndarray[Any, np.dtype[Any]]


def each(count: int, name: str, attrs: dict[str, Any], arrays: list[Array]) -> list[Array]:
    """What an op gives on each socket when socket i has `arrays[i]`."""
    return on_each(count, lambda i: evaluate(name, attrs, arrays[i])[0])


def held(count: int, shape: tuple[int, ...], dtype: Any = np.float32) -> list[Array]:
    rng = np.random.default_rng(count)
    return [rng.normal(size=shape).astype(dtype) for _ in range(count)]


def test_groups_follow_the_mesh() -> None:
    group = Group(("dp", "tp"), (2, 2), (4, 1))
    assert [group.members(s) for s in (0, 2, 7)] == [(0, 1, 4, 5), (2, 3, 6, 7), (2, 3, 6, 7)]
    assert [group.rank(s) for s in (2, 3, 6, 7)] == [0, 1, 2, 3]
    assert Group(("dp",), (2,), (4,)).members(6) == (2, 6)


@pytest.mark.parametrize("kind", ["add", "max", "min", "mul"])
def test_every_socket_gets_what_all_have_combined(kind: str) -> None:
    arrays = held(8, (3, 5))
    found = each(8, "tensor.all_reduce", {**DP_OF_8, "kind": kind}, arrays)
    function = {"add": np.add, "max": np.maximum, "min": np.minimum, "mul": np.multiply}[kind]
    for i, array in enumerate(found):
        np.testing.assert_array_equal(array, function(arrays[i % 4], arrays[i % 4 + 4]))


def test_sums_are_in_the_order_of_sockets_and_rounded_once() -> None:
    values = [1.0, 2.0**-8, 2.0**-8, -1.0]
    (one, *_) = each(4, "tensor.all_reduce", {**TP, "kind": "add"}, [np.full(2, v, ml_dtypes.bfloat16) for v in values])
    np.testing.assert_array_equal(one.astype(np.float32), [2.0**-7] * 2)  # 0 when each sum is rounded to bf16
    values = [1e8, 1.0, -1e8, 1.0]
    (one, *_) = each(4, "tensor.all_reduce", {**TP, "kind": "add"}, [np.full(2, v, np.float32) for v in values])
    np.testing.assert_array_equal(one, [1.0, 1.0])


def test_gather_and_scatter_are_the_two_halves_of_reduce() -> None:
    arrays = held(4, (2, 8))
    parts = each(4, "tensor.reduce_scatter", {**TP, "kind": "add", "axis": -1}, arrays)
    whole = each(4, "tensor.all_gather", {**TP, "axis": -1}, parts)
    for got, wanted in zip(whole, each(4, "tensor.all_reduce", {**TP, "kind": "add"}, arrays), strict=True):
        np.testing.assert_array_equal(got, wanted)
    for i, part in enumerate(each(4, "tensor.socket_slice", {**TP, "axis": 1}, [whole[0]] * 4)):
        np.testing.assert_array_equal(part, parts[i])


def test_all_to_all_turns_rows_into_columns() -> None:
    arrays = held(4, (8, 3))
    found = each(4, "tensor.all_to_all", {**TP, "split": 0, "concat": 1}, arrays)
    for i, array in enumerate(found):
        np.testing.assert_array_equal(array, np.concatenate([a[2 * i : 2 * i + 2] for a in arrays], 1))
    back = each(4, "tensor.all_to_all", {**TP, "split": 1, "concat": 0}, found)
    for got, wanted in zip(back, arrays, strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_permute_passes_on_in_a_circle() -> None:
    arrays = held(4, (2,))
    for i, array in enumerate(each(4, "tensor.permute", {**TP, "by": 1}, arrays)):
        np.testing.assert_array_equal(array, arrays[i - 1])


def test_a_socket_knows_its_place() -> None:
    found = on_each(8, lambda i: int(evaluate("tensor.socket_index", DP_OF_8)[0]))
    assert found == [0, 0, 0, 0, 1, 1, 1, 1]
    assert on_each(3, lambda i: current_socket().index) == [0, 1, 2]


def test_outside_of_a_mesh_there_is_no_socket() -> None:
    with pytest.raises(CompileError, match="without saying as which socket"):
        evaluate("tensor.all_reduce", {**TP, "kind": "add"}, np.ones(2))


def test_an_error_of_one_socket_ends_all() -> None:
    def run(index: int) -> Array:
        if index == 2:
            raise ValueError("socket 2 is unwell")
        return evaluate("tensor.all_reduce", {**TP, "kind": "add"}, np.ones(2))[0]

    with pytest.raises(ValueError, match="socket 2 is unwell"):
        on_each(4, run)


def test_a_socket_that_does_not_come_is_named() -> None:
    def run(index: int) -> None:
        if index != 1:
            evaluate("tensor.all_reduce", {**TP, "kind": "add"}, np.ones(2))

    with pytest.raises(CompileError, match="waits at a collective for a socket that has ended"):
        on_each(4, run)
