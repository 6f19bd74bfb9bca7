"""Properties that every tensor op has, checked on random small operands."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tensor_cases import CASES, types

from headrace.dialects.support.dtypes import is_float, to_numpy
from headrace.dialects.tensor import op_class, shapes
from headrace.dialects.tensor.meaning import evaluate

OPS = shapes.names()
SPELL_SHAPES = ("tensor.reshape", "tensor.broadcast", "tensor.slice", "tensor.iota")


def examples(count: int) -> settings:
    """So many random cases per op, the same in every run."""
    return settings(max_examples=count, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def assert_close(found: Any, wanted: Any) -> None:
    """Equal for integers; within the rounding of the type for floats."""
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    kind = types([found])[0].dtype
    if not is_float(kind):
        np.testing.assert_array_equal(found, wanted)
        return
    tolerance = {"f64": 1e-12, "f32": 2e-6, "f16": 2e-3, "bf16": 1.6e-2}[kind]
    np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=tolerance, atol=tolerance)


def test_every_op_has_a_case() -> None:
    assert sorted(CASES) == sorted(OPS)


@pytest.mark.parametrize("name", OPS)
@examples(8)
@given(data=st.data())
def test_the_meaning_has_the_inferred_type(name: str, data: st.DataObject) -> None:
    attrs, arrays = data.draw(CASES[name])
    inferred = shapes.infer(name, attrs, types(arrays))
    assert types(list(evaluate(name, attrs, *arrays))) == list(inferred)


@pytest.mark.parametrize("name", OPS)
@examples(20)
@given(data=st.data())
def test_blocks_give_the_whole(name: str, data: st.DataObject) -> None:
    """Cut one parallel dim into blocks, evaluate each on the operand slices its `Follow` describes, and join."""
    attrs, arrays = data.draw(CASES[name])
    operands = types(arrays)
    whole = evaluate(name, attrs, *arrays)
    results = shapes.infer(name, attrs, operands)
    tiling = shapes.tiling(name, attrs, operands, results)
    assert [len(f) for f in tiling.operands] == [len(t.shape) for t in operands]
    assert [len(f) for f in tiling.results] == [len(t.shape) for t in results]
    for follows, type in zip(tiling.results, results, strict=True):
        for follow, size in zip(follows, type.shape, strict=True):
            assert follow is None or (size, 1, 1, 0) == (
                tiling.dims[follow.dim],
                follow.scale,
                follow.extent,
                follow.offset,
            )
    if not tiling.dims:
        return
    dim = data.draw(st.integers(0, len(tiling.dims) - 1))
    size = tiling.dims[dim]
    block = data.draw(st.integers(1, size)) if size else 0
    joined = [np.empty(t.shape, to_numpy(t.dtype)) for t in results]
    for start in range(0, size, max(block, 1)):
        n = min(block, size - start)

        def cut(follows: Any, start: int = start, n: int = n) -> tuple[slice, ...]:
            return tuple(
                slice(f.offset + start * f.scale, f.offset + (start + n - 1) * f.scale + f.extent)
                if f is not None and f.dim == dim
                else slice(None)
                for f in follows
            )

        parts: list[Any] = []
        for x, follows in zip(arrays, tiling.operands, strict=True):
            at = cut(follows)
            for s, length in zip(at, x.shape, strict=True):
                assert s == slice(None) or 0 <= s.start < s.stop <= length
            parts.append(x[at])
        wanted = [y[cut(follows)] for y, follows in zip(whole, tiling.results, strict=True)]
        block_attrs = shapes.block_attrs(name, attrs, types(parts), types(wanted))
        assert list(shapes.infer(name, block_attrs, types(parts))) == types(wanted)
        if name not in SPELL_SHAPES:
            assert shapes.joined_attrs(name, block_attrs, types(parts), operands) == attrs
        found = evaluate(name, block_attrs, *parts)
        for y, z, follows in zip(joined, found, tiling.results, strict=True):
            y[cut(follows)] = z
    for found, wanted in zip(joined, whole, strict=True):
        assert_close(found, wanted)


@pytest.mark.parametrize("name", OPS)
def test_every_op_is_documented_with_an_example_and_what_it_refuses(name: str) -> None:
    text = op_class(name).__doc__ or ""
    assert f"{name} " in text or f"{name}:" in text
    assert "Refused:" in text
