"""Building tensor ops: by name, and without xDSL's checks of what is known."""

from __future__ import annotations

from dataclasses import fields

import pytest
from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Block, Operation

from headrace.dialects.support.locations import named
from headrace.dialects.tensor import op_class
from headrace.dialects.tensor.base import attributes_of, create, ir_type, make, to_attribute
from headrace.dialects.tensor.shapes import TT, ShapeError

TYPE = ir_type(TT((2, 3), "f32"))


def test_a_made_op_is_as_xdsl_makes_it() -> None:
    """`make` sets the fields of xDSL's operations by itself: every one must be as `create` of the class leaves it."""
    cls, where = op_class("tensor.softmax"), named("here")
    block = Block(arg_types=[TYPE])
    properties = {"axis": to_attribute(1)}
    ops = [
        make(cls, block.args, [TYPE], dict(properties), where),
        cls.create(operands=block.args, result_types=[TYPE], properties=properties, location=where),
    ]
    made, usual = ops
    assert made.is_structurally_equivalent(usual)
    for field in fields(Operation):
        assert type(getattr(made, field.name)) is type(getattr(usual, field.name)), field.name
    assert made.location == usual.location and made.properties == usual.properties
    assert [(use.operation, use.index) for use in block.args[0].uses] == [(usual, 0), (made, 0)]
    assert [(x.op, x.index, x.type) for x in made.results] == [(made, 0, TYPE)]
    block.add_ops(ops)
    block.erase_op(made)
    assert [use.operation for use in block.args[0].uses] == [usual]


def test_ops_of_one_kind_share_no_attributes() -> None:
    block = Block(arg_types=[TYPE])
    first, second = (create("tensor.softmax", block.args, {"axis": -1}) for _ in range(2))
    first.attributes["note"] = StringAttr("x")
    first.properties["axis"] = to_attribute(0)
    assert not second.attributes and attributes_of(second) == {"axis": -1}


def test_equal_numbers_of_different_types_are_different_attributes() -> None:
    block = Block(arg_types=[TYPE])
    zero, negative = (create("tensor.leaky_relu", block.args, {"alpha": x}) for x in (0.0, -0.0))
    assert str(attributes_of(zero)["alpha"]) == "0.0" and str(attributes_of(negative)["alpha"]) == "-0.0"
    kept, dropped = (create("tensor.reduce_sum", block.args, {"axes": (1,), "keepdims": x}) for x in (True, False))
    assert kept.results[0].type == ir_type(TT((2, 1), "f32")) and dropped.results[0].type == ir_type(TT((2,), "f32"))


def test_what_does_not_fit_is_refused_each_time() -> None:
    block = Block(arg_types=[TYPE])
    for _ in range(2):
        with pytest.raises(ShapeError, match="has no attribute sideways"):
            create("tensor.softmax", block.args, {"sideways": 1})
        with pytest.raises(ShapeError):
            create("tensor.softmax", block.args, {"axis": 7})
    assert block.args[0].first_use is None
