"""Binding of dims and states, coverage rows: what all importers share."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.dialects.support.diagnostics import Collector
from headrace.dialects.tensor.shapes import TT
from headrace.frontends.base import Coverage, InputSpec, Port, bind_dims, check_states, coverage_text

IDS = InputSpec("ids", "i64", ("batch", "seq"))
MASK = InputSpec("mask", "f32", ("batch", 1, None))
ANY = InputSpec("any", "f32", None)


def test_bound_by_name_shape_or_both() -> None:
    errors = Collector()
    found = bind_dims([IDS, MASK, ANY], {"batch": 2}, {"ids": (2, 7), "mask": (2, 1, 9), "any": (3,)}, errors)
    assert found == {"ids": (2, 7), "mask": (2, 1, 9), "any": (3,)}
    assert not errors.diagnostics


def test_a_shape_binds_the_names_of_other_inputs() -> None:
    found = bind_dims([IDS, InputSpec("x", "f32", ("seq", 4))], {}, {"ids": (2, 7)}, Collector())
    assert found == {"ids": (2, 7), "x": (7, 4)}


@pytest.mark.parametrize(
    ("dims", "shapes", "code", "words"),
    [
        ({"bach": 2}, {}, "unknown-dim", "did you mean 'batch'?"),
        ({"batch": -2}, {}, "bad-dim", "--dim batch=1"),
        ({"batch": 1.5}, {}, "bad-dim", "bound to 1.5"),
        ({"batch": True}, {}, "bad-dim", "bound to True"),
        ({"batch": 10**30}, {}, "bad-dim", "bound to 1000"),
        ({"batch": 1 << 30, "seq": 1 << 30}, {}, "bad-input-shape", "has 1152921504606846976 elements"),
        ({}, {"ids": (1, -2)}, "bad-input-shape", "the shape (1, -2)"),
        ({}, {"ids": (1, 2.5)}, "bad-input-shape", "the shape (1, 2.5)"),
        ({}, {"ids": 5}, "bad-input-shape", "the shape 5"),
        ({}, {"idz": (1, 2)}, "unknown-input", "did you mean 'ids'?"),
        ({}, {"ids": (1, 2, 3)}, "bad-input-shape", "rank 2"),
        ({"batch": 3}, {"ids": (1, 2)}, "bad-input-shape", "dim 0 ('batch') is 3"),
        ({}, {"mask": (1, 2, 3)}, "bad-input-shape", "dim 1 is 1"),
    ],
)
def test_bindings_that_are_wrong(dims: Any, shapes: Any, code: str, words: str) -> None:
    errors = Collector()
    bind_dims([IDS, MASK], dims, shapes, errors)
    found = next(d for d in errors.diagnostics if d.code == code)
    assert words in f"{found.what} {found.fix}"


def test_unbound_dims_are_reported_together() -> None:
    errors = Collector()
    assert bind_dims([IDS, MASK, ANY], {"seq": 4}, {}, errors) == {}
    assert [d.fix for d in errors.diagnostics] == [
        "--dim batch=1",
        "--dim batch=1",
        "--input mask=1x1x1",
        "--input any=1x3x224x224 (its shape)",
    ]


def test_states() -> None:
    kv, other = TT((2, 8), "f32"), TT((2, 9), "f32")
    inputs, outputs = [Port("past", kv), Port("q", kv)], [Port("present", kv), Port("grown", other)]
    errors = Collector()
    assert check_states({"past": "present"}, inputs, outputs, errors) == (("past", "present"),)
    assert not errors.diagnostics
    check_states({"past": "grown", "q": "presnt", "kew": "present"}, inputs, outputs, errors)
    assert [d.code for d in errors.diagnostics] == ["bad-state", "unknown-output", "unknown-input"]
    errors = Collector()
    check_states({"past": "present", "q": "present"}, inputs, outputs, errors)
    assert "two states" in errors.diagnostics[0].what


def test_coverage_rows() -> None:
    coverage = Coverage()
    coverage.add("Relu", "a", "supported", operands=(TT((2,), "f32"),))
    coverage.add("Relu", "b", "supported", operands=(TT((2,), "f32"),))
    coverage.add("TopK", "c", "refused", "sorting")
    rows = coverage.rows()
    assert [(r.op_type, r.count, r.nodes, r.shapes) for r in rows] == [
        ("TopK", 1, ("c",), ()),
        ("Relu", 2, ("a", "b"), ("tensor<2xf32>",)),
    ]
    assert coverage_text(rows).splitlines() == [
        "op    nodes  status     reason   operands       names",
        "TopK  1      refused    sorting                 c",
        "Relu  2      supported           tensor<2xf32>  a; b",
        "2 supported, 1 refused",
    ]
