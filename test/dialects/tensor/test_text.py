"""Every tensor op survives printing and parsing, in custom and in generic form, and its printed form is what it was."""

from __future__ import annotations

import re
from io import StringIO

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tensor_cases import CASES, types
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.dialects.func import Func
from xdsl.dialects.test import Test, TestOp
from xdsl.parser import Parser
from xdsl.printer import Printer

from headrace.dialects.tensor import Tensor, create, ir_type, op_class, shapes


@pytest.mark.parametrize("name", shapes.names())
@settings(max_examples=4, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
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


def examples(name: str) -> list[str]:
    """The indented IR lines of an op's docstring; lines that go on are joined."""
    found: list[str] = []
    for line in (op_class(name).__doc__ or "").splitlines():
        text = line.strip()
        if not line.startswith("     "):
            continue
        if text.startswith("%"):
            found.append(text)
        elif found:
            found[-1] += f" {text}"
    return [text for text in found if name in text]


@pytest.mark.parametrize("name", shapes.names())
def test_the_documented_example_is_valid_and_prints_as_written(name: str) -> None:
    assert examples(name)
    for text in examples(name):
        call, _, of_results = text.partition(" -> ")
        head, _, of_operands = call.partition(" : tensor<")
        operands = re.findall(r"%\w+", head.partition("=")[2].partition("{")[0])
        operand_types = re.findall(r"tensor<[^>]*>", f"tensor<{of_operands}") if operands else []
        arguments = ", ".join(f"{a} : {t}" for a, t in dict(zip(operands, operand_types, strict=True)).items())
        context = Context()
        for dialect in (Builtin, Func, Tensor):
            context.load_dialect(dialect)
        source = f"func.func @f({arguments}) {{\n{text}\nfunc.return\n}}"
        module = Parser(context, source).parse_module()
        module.verify()
        out = StringIO()
        Printer(out).print_op(module)
        wanted = text.partition(" = ")[2]
        assert wanted in out.getvalue(), of_results
