"""Every tensor op survives printing and parsing, in custom and in generic form, and its printed form is what it was."""

from __future__ import annotations

from io import StringIO

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tensor_cases import CASES, types
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.dialects.test import Test, TestOp
from xdsl.parser import Parser
from xdsl.printer import Printer

from headrace.dialects.tensor import Tensor, create, ir_type, shapes


@pytest.mark.parametrize("name", shapes.names())
@settings(max_examples=6, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_text_round_trip(name: str, data: st.DataObject) -> None:
    attrs, arrays = data.draw(CASES[name])
    source = TestOp(result_types=[ir_type(t) for t in types(arrays)])
    module = ModuleOp([source, create(name, source.results, attrs)])
    module.verify()
    context = Context()
    for dialect in (Builtin, Test, Tensor):
        context.load_dialect(dialect)
    for generic in (False, True):
        out = StringIO()
        Printer(out, print_generic_format=generic).print_op(module)
        again = Parser(context, out.getvalue()).parse_module()
        again.verify()
        assert again.is_structurally_equivalent(module), out.getvalue()
        assert list(again.walk())[2].attrs() == attrs
