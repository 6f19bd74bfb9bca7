"""Random elementwise programs give the same values before and after canonicalization, which comes to rest."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, Region

from headrace.dialects.support import locations
from headrace.dialects.support.journal import Journal, recording
from headrace.dialects.tensor import create, ir_type, tt
from headrace.dialects.tensor.elementwise_patterns import holds
from headrace.dialects.tensor.interpreter import run_function
from headrace.dialects.tensor.shapes import TT
from headrace.dialects.tensor.storage import filled
from headrace.passes.tensor.canonicalize import canonicalize

SHAPES = ((2, 3), (3,), (2, 1), (), (1, 3))
# Ops that are exact on the small numbers used, or at most an ulp from each other when rewritten.
BINARY = ("add", "sub", "mul", "max", "min", "div", "pow")
UNARY = ("neg", "abs", "relu", "sign", "clip", "cast")
FLOAT_UNARY = ("floor", "ceil", "round", "sqrt", "reciprocal", "exp", "sigmoid", "cos")
LOGIC = ("and", "or", "xor")
COMPARE = ("equal", "not_equal", "less", "greater_equal")
NUMBERS = {"f32": (0.0, 1.0, -1.0, 2.0, 3.0, 4.0, float("inf"), float("-inf")), "i32": (0, 1, -1, 2, 3), "i1": (0, 1)}


def program(seed: int) -> tuple[ModuleOp, list[Any]]:
    """A function of a few inputs whose every value is returned."""
    rng = random.Random(seed)  # uniform choices: hypothesis prefers the first of each

    def one_of(*options: Any) -> Any:
        return rng.choice(options)

    inputs = [values_of(rng, one_of(*SHAPES), one_of("f32", "i32", "i1", "f32")) for _ in range(3)]
    block = Block(arg_types=[ir_type(TT(x.shape, {"f": "f32", "i": "i32", "b": "i1"}[x.dtype.kind])) for x in inputs])
    values: list[Any] = list(block.args)

    def constant() -> Any:
        dtype = one_of("f32", "i32", "i1")
        op = filled(TT(one_of(*SHAPES), dtype), one_of(*NUMBERS[dtype]))
        block.add_op(op)
        values.append(op.result)

    def op(name: str, *operands: Any, **attrs: Any) -> None:
        new = create(f"tensor.{name}", operands, attrs, locations.named(f"{name}{len(values)}"))
        block.add_op(new)
        values.append(new.results[0])

    for _ in range(rng.randint(1, 8)):
        if one_of(True, False):
            constant()
        a = one_of(*values)
        dtype = tt(a).dtype
        same = [v for v in values if tt(v).dtype == dtype]
        fits = [v for v in same if _broadcasts(tt(a).shape, tt(v).shape)]
        b = one_of(*fits)
        kind = one_of("unary", "unary", "binary", "binary", "compare", "select", "broadcast")
        if kind == "broadcast":
            op("broadcast", a, shape=(2, *tt(a).shape[-1:]) if tt(a).shape[-1:] == (3,) else tt(a).shape)
        elif kind == "select":
            conditions = [
                v for v in values if tt(v).dtype == "i1" and _broadcasts(tt(v).shape, tt(a).shape, tt(b).shape)
            ]
            if conditions:
                op("select", one_of(*conditions), a, b)
        elif kind == "compare" and dtype != "i1":
            op(one_of(*COMPARE), a, b)
        elif kind == "binary":
            op(one_of(*(LOGIC if dtype == "i1" else BINARY)), a, b)
        elif dtype == "i1":
            op("not", a)
        else:
            name = one_of(*UNARY, *(FLOAT_UNARY if dtype == "f32" else ()))
            attrs: dict[str, Any] = {}
            if name == "cast":
                attrs["to"] = one_of("f32", "f64", "f16") if dtype == "f32" else one_of("i64", "i32")
            if name == "clip":
                low, high = sorted((rng.randint(-2, 3), rng.randint(-2, 3)))
                attrs = {"min": low, "max": high} if one_of(True, False) else {"max": high}
            op(name, a, **attrs)
            if name == "cast":
                op("cast", values[-1], to=dtype)
    block.add_op(ReturnOp(*values))
    types = [a.type for a in block.args], [v.type for v in values]
    return ModuleOp([FuncOp("main", types, Region(block))]), inputs


def values_of(rng: random.Random, shape: tuple[int, ...], dtype: str) -> Any:
    """Quarters, small integers or truth values."""
    low, high = (0, 1) if dtype == "i1" else (-12, 12)
    numbers = np.array([rng.randint(low, high) for _ in range(int(np.prod(shape)))]).reshape(shape)
    return {"f32": numbers / np.float32(4), "i32": numbers.astype(np.int32), "i1": numbers == 1}[dtype].astype(
        {"f32": np.float32, "i32": np.int32, "i1": np.bool_}[dtype]
    )


def _broadcasts(*shapes: tuple[int, ...]) -> bool:
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        return False
    return True


@settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32 - 1))
def test_values_stay(seed: int) -> None:
    module, inputs = program(seed)
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
    with recording(Journal()) as journal:
        canonicalize(module)
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
