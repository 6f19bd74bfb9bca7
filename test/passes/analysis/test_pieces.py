"""Ways to spread a body over units: only those that pay, by what their parts cost."""

from __future__ import annotations

from itertools import pairwise

from xdsl.dialects.builtin import UnknownLoc
from xdsl.ir import Block

from headrace.dialects.dataflow.ops import YieldOp
from headrace.dialects.machine.device import load_device
from headrace.dialects.tensor.base import create, ir_type
from headrace.dialects.tensor.shapes import TT
from headrace.passes.analysis.bodies import Body
from headrace.passes.analysis.pieces import Stored, body_interval, splits

DEVICE = load_device("sn40l")


def body(*shapes: tuple[int, ...], op: str, **attrs: object) -> Body:
    block = Block(arg_types=[ir_type(TT(s, "f32")) for s in shapes])
    block.add_op(made := create(f"tensor.{op}", list(block.args), attrs, UnknownLoc()))
    block.add_op(YieldOp(made.results))
    return Body.of(block)


def test_every_split_is_faster_than_those_that_take_no_more() -> None:
    found = splits(body((64, 96), (96, 384), op="matmul"), DEVICE, 128)
    units = [s.units for s in found]
    assert found[0].parts == () and units == sorted(set(units)) and max(units) <= 128
    assert all(a.interval > b.interval for a, b in pairwise(found))


def test_the_cost_is_that_of_the_parts() -> None:
    whole = body((64, 96), (96, 384), op="matmul")
    for split in splits(whole, DEVICE, 16):
        rows, columns = (dict(split.parts).get(d, 1) for d in (0, 1))
        part = body((64 // rows, 96), (96, 384 // columns), op="matmul")
        assert split.interval == body_interval(part, part.types, DEVICE)


def test_parts_that_leave_stages_idle_do_not_count_as_whole_ones() -> None:
    """64 channels on 6 stages: a unit with 2 channels is no faster than one with 6, so rows are cut instead."""
    conv = {"strides": (1, 1), "pads": (0,) * 4, "dilations": (1, 1), "groups": 1, "accumulate": "f32"}
    found = splits(body((1, 64, 10, 34), (64, 64, 3, 3), op="conv", **conv), DEVICE, 128)
    assert not any(dict(s.parts).get(1) == 32 for s in found)
    best = found[-1]
    assert best.units == 128 and best.interval * best.units < 1.5 * found[0].interval


def test_equal_costs_keep_a_share_of_the_weights_in_each_unit() -> None:
    found = splits(body((384, 96), (96, 384), op="matmul"), DEVICE, 2)
    assert found[-1].parts == ((1, 2),)
    found = splits(body((384, 384), op="neg"), DEVICE, 2)
    assert found[-1].parts == ((0, 2),)


def test_what_an_op_couples_is_not_cut() -> None:
    assert {d for s in splits(body((8, 64), op="softmax", axis=1), DEVICE, 64) for d, _ in s.parts} == {0}


def test_rows_that_are_stored_are_not_cut_shorter_than_a_burst() -> None:
    """A burst is 64 bytes, 16 numbers: of rows of 12 memory would move a quarter in vain."""
    product = body((64, 96), (96, 384), op="matmul")
    assert dict(splits(product, DEVICE, 32)[-1].parts) == {1: 32}
    rows = [Stored(product.outputs[0], (384, 1))]
    assert dict(splits(product, DEVICE, 32, rows)[-1].parts) == {0: 2, 1: 16}
    columns = [Stored(product.outputs[0], (1, 64))]
    assert dict(splits(product, DEVICE, 32, columns)[-1].parts) == {1: 32}


def test_rows_are_cut_shorter_where_nothing_else_is_as_fast() -> None:
    product = body((64, 96), (96, 384), op="matmul")
    found = splits(product, DEVICE, 128, [Stored(product.outputs[0], (384, 1))])
    *others, best = found
    assert dict(best.parts) == {0: 2, 1: 64} and best.interval < min(s.interval for s in others)
    assert all(384 // dict(s.parts).get(1, 1) >= 16 for s in others)
    alone = next(s for s in splits(product, DEVICE, 128) if s.parts == best.parts)
    assert best.interval > alone.interval  # bursts take longer than the product
