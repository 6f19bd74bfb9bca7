"""Ops of properties are verified as xDSL verifies them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from xdsl.dialects.builtin import ArrayAttr, FloatAttr, IndexType, IntegerAttr, StringAttr, SymbolRefAttr, f32, i32, i64
from xdsl.ir import Attribute, Block
from xdsl.irdl import AnyAttr, IRDLOperation, operand_def, prop_def
from xdsl.irdl.constraints import VarConstraint
from xdsl.utils.exceptions import VerifyException

from headrace.dialects.rdu.config import FlowOp
from headrace.dialects.rdu.units import AgcuOp, PmuOp
from headrace.dialects.support.definitions import properties_op_definition
from headrace.tools.opt import context, parse

CONFIG = """
rdu.config @c virtual ("x" in tensor<4xf32>, "y" out tensor<4xf32>) {
  rdu.agcu @load load param 0
  rdu.agcu @store store param 1
  rdu.flow @load -> @store carries tensor<4xf32> from at 0 [1] to at 0 [1]
}
"""
OTHERS: tuple[Attribute, ...] = (
    StringAttr("x"),
    StringAttr(""),
    IntegerAttr(1, i64),
    IntegerAttr(1, i32),
    IntegerAttr(1, IndexType()),
    FloatAttr(1.0, f32),
    SymbolRefAttr("x"),
    SymbolRefAttr("x", ArrayAttr([StringAttr("y")])),
    ArrayAttr([]),
    i64,
)


def said(check: Callable[[], None]) -> str:
    try:
        check()
    except VerifyException as error:
        return str(error)
    return ""


def test_properties_are_refused_as_xdsl_refuses_them() -> None:
    ops = [op for op in parse(context(), CONFIG, "c")[0].walk() if isinstance(op, FlowOp | AgcuOp | PmuOp)]
    assert {type(op) for op in ops} == {FlowOp, AgcuOp}
    refused = 0
    for op in ops:
        definition = type(op).get_irdl_definition()
        names = [*definition.properties, "unknown"]
        for name in names:
            kept = dict(op.properties)
            for value in (None, *OTHERS):
                op.properties.pop(name, None)
                if value is not None:
                    op.properties[name] = value
                expected = said(lambda op=op, definition=definition: definition.verify(op))
                if expected:
                    refused += 1
                    assert said(op.verify_) == expected, (op.name, name, value)
            op.properties.clear()
            op.properties.update(kept)
            op.verify_()
    assert refused > 100


def test_an_op_that_holds_more_is_refused_as_xdsl_refuses_it() -> None:
    flow = next(op for op in parse(context(), CONFIG, "c")[0].walk() if isinstance(op, FlowOp))
    flow.operands = [Block(arg_types=[i32]).args[0]]
    with pytest.raises(VerifyException, match="Expected 0 operands, but got 1"):
        flow.verify_()


def test_definitions_that_do_not_fit_are_refused() -> None:
    class Operand(IRDLOperation):
        name = "test.operand"
        value = operand_def()

    class Variable(IRDLOperation):
        name = "test.variable"
        one = prop_def(VarConstraint("T", AnyAttr()))
        other = prop_def(VarConstraint("T", AnyAttr()))

    with pytest.raises(TypeError, match="more than properties"):
        properties_op_definition(Operand)
    with pytest.raises(TypeError, match="does not stand alone"):
        properties_op_definition(Variable)
