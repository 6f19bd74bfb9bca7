"""What bodies cost on a unit, and what their ports take, against formulas worked by hand."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from headrace.dialects.machine import cost as formulas
from headrace.dialects.machine.device import load_device
from headrace.dialects.rdu import cost
from headrace.dialects.tensor.shapes import TT, infer

DEVICE = load_device("sn40l")  # 32 lanes, 6 stages, half rate at fp32, words of 64 bytes


class Op(NamedTuple):
    """An op of a body."""

    name: str
    attrs: dict[str, Any]
    operands: tuple[int, ...]
    results: tuple[int, ...]


def body(types: list[tuple[int, ...]], *ops: tuple[Any, ...]) -> tuple[list[Op], list[TT]]:
    """Ops given as (name, operands…, attributes) on fp32 inputs."""
    found = [TT(shape, "f32") for shape in types]
    made: list[Op] = []
    for name, *rest in ops:
        attrs = rest.pop() if rest and isinstance(rest[-1], dict) else {}
        (out,) = infer(f"tensor.{name}", attrs, [found[v] for v in rest])
        found.append(out)
        made.append(Op(f"tensor.{name}", attrs, tuple(rest), (len(found) - 1,)))
    return made, found


def interval(types: list[tuple[int, ...]], *ops: tuple[Any, ...], mode: str = "simd") -> float:
    return cost.body_cost(*body(types, *ops), mode, DEVICE).interval


def test_a_matmul_is_its_blocks() -> None:
    # 2 × 6 blocks of 32 × 6 results, 768 / 0.5 cycles each
    assert interval([(64, 768), (768, 36)], ("matmul", 0, 1), mode="systolic") == 12 * 1536


def test_a_batch_that_shares_its_matrix_is_one_tall_matmul() -> None:
    shared = interval([(8, 4, 64), (64, 32)], ("matmul", 0, 1), mode="systolic")
    own = interval([(8, 4, 64), (8, 64, 32)], ("matmul", 0, 1), mode="systolic")
    assert shared == formulas.matmul(DEVICE, 32, 32, 64, "f32").interval < own
    assert own == 8 * formulas.matmul(DEVICE, 4, 32, 64, "f32").interval


def test_vectors_are_matrices_of_one_row_or_column() -> None:
    assert interval([(64,), (64, 32)], ("matmul", 0, 1)) == formulas.matmul(DEVICE, 1, 32, 64, "f32").interval
    assert interval([(32, 64), (64,)], ("matmul", 0, 1)) == formulas.matmul(DEVICE, 32, 1, 64, "f32").interval


def test_groups_of_a_convolution_share_nothing() -> None:
    attrs = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "accumulate": "f32"}
    whole = interval([(1, 32, 6, 10), (32, 32, 3, 3)], ("conv", 0, 1, {**attrs, "groups": 1}), mode="systolic")
    depth = interval([(1, 32, 6, 10), (32, 1, 3, 3)], ("conv", 0, 1, {**attrs, "groups": 32}), mode="systolic")
    assert whole == formulas.matmul(DEVICE, 32, 32, 288, "f32").interval
    assert depth == 32 * formulas.matmul(DEVICE, 32, 1, 9, "f32").interval


def test_the_tail_of_a_systolic_unit_is_hidden_behind_its_body() -> None:
    plain = interval([(64, 768), (768, 36)], ("matmul", 0, 1), mode="systolic")
    bias = interval([(64, 768), (768, 36), (36,)], ("matmul", 0, 1), ("add", 3, 2), mode="systolic")
    assert plain == bias
    short = interval([(64, 2), (2, 36), (36,)], ("matmul", 0, 1), ("add", 3, 2), mode="systolic")
    assert short == formulas.simd(DEVICE, 64 * 36, {"add": 1}, "f32").interval


def test_elementwise_ops_are_one_program() -> None:
    # 6 body ops are one pass through 6 stages
    ops = [("neg", i) for i in range(6)]
    assert interval([(32, 32)], *ops) == interval([(32, 32)], ops[0])


def test_a_softmax_reduces_twice_and_computes_once() -> None:
    twice = 2 * formulas.reduce(DEVICE, 1024, 2, "f32", across_lanes=True).interval
    once = formulas.simd(DEVICE, 1024, {"sub": 1, "exp": 1, "mul": 1}, "f32").interval
    assert interval([(2, 512)], ("softmax", 0, {"axis": 1})) == twice + once


def test_a_normalization_by_given_numbers_reduces_nothing() -> None:
    types = [(1, 8, 4, 4), (8,), (8,), (8,), (8,)]
    found = interval(types, ("batch_norm", 0, 1, 2, 3, 4, {"epsilon": 1e-5}))
    assert found == formulas.simd(DEVICE, 128, cost.PROGRAMS["batch_norm"], "f32").interval


def test_a_unit_without_ops_passes_words_on() -> None:
    assert cost.body_cost([], [TT((64, 8), "f32")], "simd", DEVICE, copied=512).interval == 16


def test_operands_come_once_for_each_block_that_needs_them() -> None:
    ops, types = body([(64, 768), (768, 36), (36,)], ("matmul", 0, 1), ("add", 3, 2))
    # rows lie along the lanes: 12 blocks of 768 steps, 32 fp32 lanes are two words; columns come again for each of 2
    assert cost.feed(ops, types, 0, DEVICE) == (12 * 768 * 2, 0)
    assert cost.feed(ops, types, 1, DEVICE) == (2 * 768 * 36 * 4 // 64, None)
    assert cost.feed(ops, types, 2, DEVICE) == (3, 0)


def test_a_row_against_a_matrix_takes_the_matrix_once() -> None:
    ops, types = body([(1, 256), (256, 64)], ("matmul", 0, 1))
    assert cost.feed(ops, types, 1, DEVICE) == (256 * 64 * 4 // 64, 1)  # columns along the lanes
    assert cost.feed(ops, types, 0, DEVICE).words == 2 * 256 * 4 // 64


def test_the_feed_keeps_up_with_the_array() -> None:
    for m, n in ((64, 36), (1, 64), (32, 6), (7, 100)):
        ops, types = body([(m, 128), (128, n)], ("matmul", 0, 1))
        words = max(cost.feed(ops, types, v, DEVICE).words for v in (0, 1))
        assert words <= cost.body_cost(ops, types, "systolic", DEVICE).interval


def test_shares_divide_the_whole() -> None:
    ops, types = body([(64, 768), (768, 36), (36,)], ("matmul", 0, 1), ("add", 3, 2))
    shares = cost.op_shares(ops, types, DEVICE)
    assert sum(shares) == pytest.approx(1) and shares[0] > shares[1] > 0


def test_pieces_are_what_one_unit_holds() -> None:
    ops, _ = body(
        [(8, 16), (16, 8), (8,)],
        ("matmul", 0, 1), ("add", 3, 2), ("gelu", 4, {"approximate": "none"}), ("softmax", 5, {"axis": 1}), ("neg", 6),
    )  # fmt: skip
    assert cost.pieces(ops, [7], DEVICE) == [
        ("systolic", (0, 1), (4,)),
        ("simd", (2,), (5,)),
        ("simd", (3, 4), (7,)),
    ]


def test_a_unit_takes_no_more_values_than_it_has_inputs() -> None:
    bias_and_residual = [(8, 16), (16, 8), (8,), (8, 8)], ("matmul", 0, 1), ("add", 4, 2), ("add", 5, 3), ("neg", 6)
    ops, _ = body(*bias_and_residual)
    assert DEVICE.pcu.inputs == 3
    assert cost.pieces(ops, [7], DEVICE) == [("systolic", (0, 1), (5,)), ("simd", (2, 3), (7,))]
    assert cost.pieces(ops, [7], DEVICE.with_values(pcu__inputs=4)) == [
        ("systolic", (0, 1, 2), (6,)),
        ("simd", (3,), (7,)),
    ]


def test_a_unit_sends_no_more_values_than_it_has_outputs() -> None:
    ops, _ = body([(8, 16)], ("neg", 0), ("abs", 1), ("exp", 2), ("add", 1, 3))
    assert DEVICE.pcu.outputs == 3
    assert cost.pieces(ops, [4], DEVICE) == [("simd", (0, 1, 2, 3), (4,))]
    assert cost.pieces(ops, [1, 2, 4], DEVICE) == [("simd", (0, 1, 2, 3), (1, 2, 4))]
    assert cost.pieces(ops, [1, 2, 3, 4], DEVICE) == [("simd", (0, 1, 2), (1, 2, 3)), ("simd", (3,), (4,))]
    one = DEVICE.with_values(pcu__outputs=1)
    assert cost.pieces(ops, [4], one) == [("simd", (0,), (1,)), ("simd", (1, 2, 3), (4,))]


def test_constants_and_inputs_that_leave_take_ports_of_a_unit_that_has_some() -> None:
    iota = ("iota", {"shape": (4,), "dtype": "f32", "axis": 0})
    ops, _ = body([(4,)], iota, ("softmax", 1, {"axis": 0}), ("softmax", 0, {"axis": 0}))
    assert cost.pieces(ops, [1, 2, 0, 3], DEVICE) == [("simd", (1,), (2, 1)), ("simd", (2,), (3, 0))]
    one = DEVICE.with_values(pcu__outputs=1)
    assert cost.pieces(ops, [1, 2, 0, 3], one) == [
        ("simd", (1,), (2,)),
        ("simd", (2,), (3,)),
        ("simd", (), (1,)),
        ("simd", (), (0,)),
    ]
    assert cost.pieces(ops[:1], [1, 0], DEVICE) == [("simd", (), (1, 0))]
    assert cost.pieces([], [0], DEVICE) == [("simd", (), (0,))]


def test_the_cost_of_bodies_needs_no_ir() -> None:
    import subprocess
    import sys

    code = "import sys, headrace.dialects.rdu.cost; sys.exit('xdsl' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
