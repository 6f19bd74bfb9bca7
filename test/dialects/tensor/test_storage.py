"""Literals keep every bit through text; recipes are ordered and checked together."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp, TensorType, f32
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from headrace.dialects.support import weights
from headrace.dialects.support.diagnostics import CompileError
from headrace.dialects.support.dtypes import BITS, byte_size, to_numpy
from headrace.dialects.tensor import Tensor, storage
from headrace.dialects.tensor.interpreter import evaluate_recipe
from headrace.dialects.tensor.shapes import TT
from headrace.dialects.tensor.storage import LiteralAttr


def parse(text: str) -> Any:
    ctx = Context()
    for dialect in (Builtin, Tensor):
        ctx.load_dialect(dialect)
    return Parser(ctx, text).parse_module()


@settings(max_examples=150, deadline=None, derandomize=True)
@given(data=st.data())
def test_every_bit_survives_text(data: st.DataObject) -> None:
    """Any bits of any type, NaN payloads of floats too, in custom and generic form, short and long."""
    dtype = data.draw(st.sampled_from(list(BITS)))
    shape = tuple(data.draw(st.lists(st.integers(0, 3), max_size=3)))
    if data.draw(st.integers(0, 9)) == 0:
        shape = (storage.LISTED + 1,)
    size = byte_size(dtype) * int(np.prod(shape))
    raw = np.frombuffer(data.draw(st.binary(min_size=size, max_size=size)), np.uint8)
    if data.draw(st.booleans()) and size:
        raw = np.tile(raw[: byte_size(dtype)], int(np.prod(shape)))
    array = (raw & 1 if dtype == "i1" else raw).view(to_numpy(dtype)).reshape(shape)
    op = storage.constant(array)
    op.verify()
    for generic in (False, True):
        text = io.StringIO()
        Printer(text, print_generic_format=generic).print_op(op)
        assert ("#tensor.literal" in text.getvalue()) == generic
        (again,) = parse(text.getvalue()).body.block.ops
        again.verify()
        found = again.array()
        assert found.dtype == array.dtype
        assert found.shape == array.shape
        assert found.tobytes() == array.tobytes()


def test_equal_elements_take_the_room_of_one() -> None:
    op = storage.filled(TT((1 << 20, 1 << 20), "f32"), 0.5)
    op.verify()
    assert op.value.is_splat
    assert op.value.values() == [0.5]
    assert op.array().strides == (0, 0)
    assert op.array().shape == (1 << 20, 1 << 20)
    assert "dense<5.000000e-01> : tensor<1048576x1048576xf32>" in str(op)
    assert storage.constant(np.full((2, 3), 0.5, np.float32)).value == storage.filled(TT((2, 3), "f32"), 0.5).value
    assert storage.filled(TT((0,), "f32"), 0.5).array().shape == (0,)


@given(
    st.floats(-600, 600) | st.sampled_from([2.0**-10, 2.0**-10 * 1.0001, -0.0, 464, 464.001, -448, 1e30, 3.75 / 512])
)
def test_f8e4m3_rounds_as_ml_dtypes(value: float) -> None:
    value = float(np.float32(value))
    found = storage.filled(TT((), "f8e4m3"), value).array()
    wanted = np.array(value, np.float32).astype(to_numpy("f8e4m3"))
    assert found.tobytes() == wanted.tobytes() or (np.isnan(found) and np.isnan(wanted))


@pytest.mark.parametrize("value", [1.0, 1.00390625, 1.01171875, -3.3895314e38, 1e-45, float("inf"), 0.1])
def test_bf16_rounds_as_numpy(value: float) -> None:
    found = storage.filled(TT((), "bf16"), value).array()
    with np.errstate(over="ignore"):
        assert found == np.array(value, np.float32).astype(to_numpy("bf16"))


def test_a_literal_of_the_wrong_size_is_refused() -> None:
    with pytest.raises(VerifyException, match=r"tensor<3xf32> takes 12 bytes, found 8"):
        LiteralAttr.of(TT((3,), "f32"), np.arange(2, dtype=np.float32).tobytes())
    assert storage.constant_array(storage.filled(TT((2,), "i8"), 3).result) is not None
    weight = storage.weight("w", TT((2,), "f32"))
    assert weight.result.type == TensorType(f32, [2])
    assert storage.constant_array(weight.result) is None


def chain(count: int) -> ModuleOp:
    """Recipes 0 … count-1, listed backwards; each uses the one before."""
    ops: list[Any] = []
    for i in reversed(range(count)):
        used = storage.weight(f"r{i - 1}", TT((2,), "f32"))
        ops.append(storage.recipe(f"r{i}", [used], used.result))
    return ModuleOp(ops)


def test_a_recipe_comes_after_those_it_uses() -> None:
    module = chain(3000)
    module.verify()
    assert [op.key for op in storage.order(module)] == [f"r{i}" for i in range(3000)]
    assert list(storage.recipes(module)) == [f"r{i}" for i in reversed(range(3000))]


def test_a_store_can_be_made_for_a_module() -> None:
    module = chain(3)
    assert storage.weight_types(module) == {"r-1": TT((2,), "f32")}
    store = weights.random(storage.weight_types(module), 1)
    np.testing.assert_array_equal(evaluate_recipe(module, "r2", store), store.array("r-1"))


def test_two_recipes_of_one_key_are_refused() -> None:
    module = chain(2)
    module.body.block.add_op(next(iter(storage.recipes(module).values())).clone())
    with pytest.raises(CompileError, match="two recipes define 'r1'"):
        storage.order(module)
    with pytest.raises(Exception, match="r1"):
        module.verify()
