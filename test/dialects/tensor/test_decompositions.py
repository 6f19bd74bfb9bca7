"""Every decomposition means what the composite means, keeps its location and ends in primitives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tensor_cases import CASES, types
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region

from headrace.dialects.support import locations
from headrace.dialects.tensor import create, decompositions, ir_type, tt
from headrace.dialects.tensor.interpreter import run_function
from headrace.dialects.tensor.meaning import evaluate
from headrace.dialects.tensor.shapes import tiling

HERE = locations.named("node")
# Absolute and relative error allowed to the decomposition: its steps round in f32 (f64), then once to the type. A
# cancelling exp(x) - 1 or log(1 + x) costs an absolute error of one step.
TOLERANCE = {"f64": 1e-12, "f32": 4e-6, "f16": 2e-3, "bf16": 1.6e-2}


def program(name: str, attrs: dict[str, Any], arrays: list[Any]) -> tuple[ModuleOp, Block, Any]:
    """A module whose function applies one op to its arguments."""
    block = Block(arg_types=[ir_type(t) for t in types(arrays)])
    op = create(name, block.args, attrs, HERE)
    block.add_ops([op, ReturnOp(*op.results)])
    region = Region(block)
    signature = ([a.type for a in block.args], [r.type for r in op.results])
    return ModuleOp([FuncOp("main", signature, region)]), block, op


@pytest.mark.parametrize("name", decompositions.names())
@settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_decomposition_means_the_composite(name: str, data: st.DataObject) -> None:
    check(name, *data.draw(CASES[name]))


def check(name: str, attrs: dict[str, Any], arrays: list[Any]) -> None:
    """The decomposition of an op means the op."""
    module, block, op = program(name, attrs, arrays)
    composites = set(decompositions.names())
    (wanted,) = evaluate(name, attrs, *arrays)
    replace(block, op)
    for inner in [new for new in block.ops if new.name in composites]:  # attention is made of a softmax
        assert inner.name != name
        replace(block, inner)
    assert not {new.name for new in block.ops} & composites
    module.verify()
    (found,) = run_function(module, "main", arrays).values()
    assert found.dtype == wanted.dtype
    tolerance = TOLERANCE.get(types([found])[0].dtype, 0)
    np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=tolerance, atol=tolerance)


def replace(block: Block, op: Any) -> None:
    """Put the decomposition of an op in its place."""
    made: list[Any] = []

    def insert(new: Any) -> None:
        block.insert_op_before(new, op)
        made.append(new)

    values = decompositions.decompose(op, insert)
    assert values is not None
    assert [tt(v) for v in values] == [tt(r) for r in op.results]
    assert all(new.location == HERE for new in made)
    for old, new in zip(op.results, values, strict=True):
        old.replace_all_uses_with(new)
    block.erase_op(op)


EMPTY: list[tuple[str, dict[str, Any], list[tuple[int, ...]]]] = [
    *((f"tensor.{name}", {"axis": axis}, [shape]) for name in ("softmax", "log_softmax")
      for shape in ((2, 0), (0, 3), (0, 0)) for axis in (0, 1)),
    *((f"tensor.{name}", {"axis": -1, "epsilon": 0.1}, [shape, *[shape[1:]] * count])
      for name, count in (("layer_norm", 1), ("layer_norm", 2), ("rms_norm", 1)) for shape in ((2, 0), (0, 3))),
    *(("tensor.batch_norm", {"epsilon": 0.1}, [shape, *[(2,)] * 4]) for shape in ((0, 2), (0, 2, 3), (1, 2, 0))),
    *(("tensor.group_norm", {"epsilon": 0.1, "groups": 2}, [shape, (2,), (2,)]) for shape in ((0, 2, 3), (1, 2, 0))),
    *(("tensor.attention", {"causal": causal}, [(2, t, d), (s, d), (s, e)]) for causal in (False, True)
      for t, s, d, e in ((0, 3, 2, 2), (3, 0, 2, 2), (3, 2, 0, 2), (3, 2, 2, 0))),
]  # fmt: skip


@pytest.mark.parametrize(("name", "attrs", "shapes"), EMPTY)
def test_of_tensors_without_elements(name: str, attrs: dict[str, Any], shapes: list[tuple[int, ...]]) -> None:
    check(name, attrs, [np.ones(shape, np.float32) for shape in shapes])


def test_an_op_without_a_decomposition_gives_none() -> None:
    _, _, op = program("tensor.neg", {}, [np.ones(2, np.float32)])
    assert decompositions.decompose(op, lambda new: None) is None


def test_a_narrow_composite_is_computed_in_f32_and_rounded_once() -> None:
    _, block, op = program("tensor.softmax", {"axis": 0}, [np.ones(4, np.float16)])
    made: list[Any] = []
    decompositions.decompose(op, lambda new: (block.insert_op_before(new, op), made.append(new)))
    assert [new.name for new in made if new.name == "tensor.cast"] == ["tensor.cast"] * 2
    assert {tt(r).dtype for new in made[:-1] for r in new.results} == {"f32"}


@pytest.mark.parametrize("name", ["tensor.conv", "tensor.max_pool", "tensor.avg_pool"])
@settings(max_examples=50, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_explicit_pads_mean_the_same_and_leave_space_to_cut(name: str, data: st.DataObject) -> None:
    attrs, arrays = data.draw(CASES[name])
    module, block, op = program(name, attrs, arrays)
    values = decompositions.pad_explicitly(op, lambda new: block.insert_op_before(new, op))
    if values is None:
        return
    for old, new in zip(op.results, values, strict=True):
        old.replace_all_uses_with(new)
    block.erase_op(op)
    module.verify()
    (window,) = (new for new in block.ops if new.name == name)
    types_of = [[tt(v) for v in vs] for vs in (window.operands, window.results)]
    parallel = tiling(name, window.attrs(), *types_of)
    assert all(follow is not None for follow in parallel.results[0][2:])
    (found,) = run_function(module, "main", arrays).values()
    (wanted,) = evaluate(name, attrs, *arrays)
    tolerance = TOLERANCE.get(types([found])[0].dtype, 0)
    np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=tolerance, atol=tolerance)
