"""Random elementwise programs give the same values before and after canonicalization, which comes to rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tensor_cases import array, one_of
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, Region

from headrace.dialects.support import locations
from headrace.dialects.tensor import create, ir_type, tt
from headrace.dialects.tensor.elementwise_patterns import holds
from headrace.dialects.tensor.interpreter import run_function
from headrace.dialects.tensor.shapes import TT
from headrace.dialects.tensor.storage import filled
from headrace.passes.infra.rewriting import Journal
from headrace.passes.tensor.canonicalize import canonicalize

SHAPES = ((2, 3), (3,), (2, 1), (), (1, 3))
# Ops that are exact on the small numbers used, or at most an ulp from each other when rewritten.
BINARY = ("add", "sub", "mul", "max", "min", "div", "pow")
UNARY = ("neg", "abs", "relu", "sign", "clip", "cast")
FLOAT_UNARY = ("floor", "ceil", "round", "sqrt", "reciprocal", "exp", "sigmoid", "cos")
LOGIC = ("and", "or", "xor")
COMPARE = ("equal", "not_equal", "less", "greater_equal")
NUMBERS = {"f32": (0.0, 1.0, -1.0, 2.0, 3.0, 4.0, float("inf"), float("-inf")), "i32": (0, 1, -1, 2, 3), "i1": (0, 1)}


def program(draw: Any) -> tuple[ModuleOp, list[Any]]:
    """A function of a few inputs whose every value is returned."""
    inputs = [array(draw, one_of(draw, *SHAPES), one_of(draw, "f32", "i32", "i1", "f32")) for _ in range(3)]
    block = Block(arg_types=[ir_type(TT(x.shape, {"f": "f32", "i": "i32", "b": "i1"}[x.dtype.kind])) for x in inputs])
    values: list[Any] = list(block.args)

    def constant() -> Any:
        dtype = one_of(draw, "f32", "i32", "i1")
        op = filled(TT(one_of(draw, *SHAPES), dtype), one_of(draw, *NUMBERS[dtype]))
        block.add_op(op)
        values.append(op.result)

    def op(name: str, *operands: Any, **attrs: Any) -> None:
        new = create(f"tensor.{name}", operands, attrs, locations.named(f"{name}{len(values)}"))
        block.add_op(new)
        values.append(new.results[0])

    for _ in range(draw(st.integers(1, 8))):
        if draw(st.booleans()):
            constant()
        a = one_of(draw, *values)
        dtype = tt(a).dtype
        same = [v for v in values if tt(v).dtype == dtype]
        fits = [v for v in same if _broadcasts(tt(a).shape, tt(v).shape)]
        b = one_of(draw, *fits)
        kind = one_of(draw, "unary", "unary", "binary", "binary", "compare", "select", "broadcast")
        if kind == "broadcast":
            op("broadcast", a, shape=(2, *tt(a).shape[-1:]) if tt(a).shape[-1:] == (3,) else tt(a).shape)
        elif kind == "select":
            conditions = [
                v for v in values if tt(v).dtype == "i1" and _broadcasts(tt(v).shape, tt(a).shape, tt(b).shape)
            ]
            if conditions:
                op("select", one_of(draw, *conditions), a, b)
        elif kind == "compare" and dtype != "i1":
            op(one_of(draw, *COMPARE), a, b)
        elif kind == "binary":
            op(one_of(draw, *(LOGIC if dtype == "i1" else BINARY)), a, b)
        elif dtype == "i1":
            op(*one_of(draw, ("not", a)))
        else:
            name = one_of(draw, *UNARY, *(FLOAT_UNARY if dtype == "f32" else ()))
            attrs: dict[str, Any] = {}
            if name == "cast":
                attrs["to"] = one_of(draw, "f32", "f64", "f16") if dtype == "f32" else one_of(draw, "i64", "i32")
            if name == "clip":
                low, high = sorted((draw(st.integers(-2, 3)), draw(st.integers(-2, 3))))
                attrs = {"min": low, "max": high} if draw(st.booleans()) else {"max": high}
            op(name, a, **attrs)
            if name == "cast":
                op("cast", values[-1], to=dtype)
    block.add_op(ReturnOp(*values))
    types = [a.type for a in block.args], [v.type for v in values]
    return ModuleOp([FuncOp("main", types, Region(block))]), inputs


def _broadcasts(*shapes: tuple[int, ...]) -> bool:
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        return False
    return True


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_values_stay(data: st.DataObject) -> None:
    module, inputs = program(data.draw)
    module.verify()
    with np.errstate(all="ignore"):
        wanted = list(run_function(module, "main", inputs).values())
        canonicalize(module)
        module.verify()
        found = list(run_function(module, "main", inputs).values())
    for x, y in zip(found, wanted, strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_allclose(x.astype(np.float64), y.astype(np.float64), rtol=1e-5, atol=1e-6)
    assert not canonicalize(module)


def test_a_merge_has_both_locations_and_a_refusal_its_reason() -> None:
    block = Block(arg_types=[ir_type(TT((3,), "f32"))])
    x = block.args[0]
    negated = create("tensor.neg", [x], {}, locations.named("a"))
    total = create("tensor.add", [x, negated.results[0]], {}, locations.named("b"))
    block.add_ops([negated, total, ReturnOp(*total.results)])
    module = ModuleOp([FuncOp("main", ([x.type], [x.type]), Region(block))])
    journal = Journal()
    canonicalize(module, journal)
    first: Operation | None = block.first_op
    assert first is not None
    assert (first.name, locations.text(first.location)) == ("tensor.sub", "a + b")
    assert any("infinity" in line for line in journal.why("a + b"))


@pytest.mark.parametrize(
    ("wide", "narrow", "yes"),
    [
        ("f32", "f16", True),
        ("f16", "bf16", False),
        ("bf16", "i8", True),
        ("f16", "i16", False),
        ("f32", "i32", False),
        ("f64", "ui32", True),
        ("i32", "ui32", False),
        ("i64", "ui32", True),
        ("ui64", "i8", False),
        ("f16", "i1", True),
        ("i1", "i8", False),
    ],
)
def test_which_casts_lose_nothing(wide: str, narrow: str, yes: bool) -> None:
    assert holds(wide, narrow) is yes
