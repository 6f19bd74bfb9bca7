"""Outlining of whole models: how many layers, what is left, and that cost is linear in depth."""

from __future__ import annotations

import time
from collections import Counter

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Block, Region, SSAValue

from headrace.dialects.support.locations import named, origins, text
from headrace.dialects.support.weights import WeightStore
from headrace.dialects.tensor.base import create, ir_type
from headrace.dialects.tensor.interpreter import run_function
from headrace.dialects.tensor.program import set_signature
from headrace.dialects.tensor.shapes import TT
from headrace.dialects.tensor.storage import weight
from headrace.passes.infra.manager import PassManager, Watch
from headrace.passes.infra.registry import build

DIM, HEADS, PAST, ROWS = 16, 2, 4, 11
PIPELINE = "canonicalize,cse,fold-constants,fuse,canonicalize,cse,dce,outline-repeated-layers"


class Decoder:
    """A decode step of a small GPT: stacked caches in and out, tied embedding."""

    def __init__(self, layers: int) -> None:
        cache = TT((layers, HEADS, PAST, DIM // HEADS), "f32")
        self.block = Block(arg_types=[ir_type(TT((1,), "i64")), ir_type(cache), ir_type(cache)])
        self.store = WeightStore()
        self.rng = np.random.default_rng(layers)
        self.path, self.count = "", 0
        ids, past_k, past_v = self.block.args
        table = self.weight("wte", ROWS, DIM)
        x = self.op("gather", table, ids, axis=0)
        keys: list[SSAValue] = []
        values: list[SSAValue] = []
        for layer in range(layers):
            self.path, self.count = f"/h.{layer}", 0
            x, k, v = self.layer(layer, x, past_k, past_v)
            keys.append(k)
            values.append(v)
        self.path = ""
        y = self.op("matmul", x, self.op("transpose", table, perm=(1, 0)))
        last = ReturnOp(y, self.op("concat", *keys, axis=0), self.op("concat", *values, axis=0))
        last.location = named("return")
        self.block.add_op(last)
        types = [a.type for a in self.block.args], [x.type for x in last.operands]
        func = FuncOp("main", types, Region(self.block))
        func.location = named("main")
        set_signature(func, ["ids", "pk", "pv"], ["y", "nk", "nv"])
        self.module = ModuleOp([func])
        self.inputs = {
            "ids": np.array([3]),
            "pk": self.rng.standard_normal(cache.shape).astype(np.float32),
            "pv": self.rng.standard_normal(cache.shape).astype(np.float32),
        }

    def op(self, name: str, *operands: SSAValue, **attrs: object) -> SSAValue:
        self.count += 1
        op = create(f"tensor.{name}", operands, attrs, named(f"{self.path}/{name}_{self.count}"))
        self.block.add_op(op)
        return op.results[0]

    def weight(self, key: str, *shape: int) -> SSAValue:
        if key not in self.store:
            self.store.add_array(key, (self.rng.standard_normal(shape) * 0.3).astype(np.float32))
        op = weight(key, TT(shape, "f32"), named(key))
        self.block.add_op(op)
        return op.result

    def layer(self, layer: int, x: SSAValue, *caches: SSAValue) -> tuple[SSAValue, SSAValue, SSAValue]:
        def own(name: str, *shape: int) -> SSAValue:
            return self.weight(f"h.{layer}.{name}", *shape)

        d = DIM // HEADS
        h = self.op("layer_norm", x, own("scale", DIM), own("bias", DIM), axis=-1, epsilon=1e-5)
        parts: list[SSAValue] = []
        for name in "qkv":
            y = self.op("matmul", h, self.op("transpose", own(name, DIM, DIM), perm=(1, 0)))
            parts.append(self.op("reshape", y, shape=(1, HEADS, 1, d)))
        q, *new = parts
        joined: list[SSAValue] = []
        for cache, fresh in zip(caches, new, strict=True):
            starts, stops = (layer, 0, 0, 0), (layer + 1, HEADS, PAST, d)
            part = self.op("slice", cache, starts=starts, stops=stops, steps=(1, 1, 1, 1))
            joined.append(self.op("concat", part, fresh, axis=2))
        scores = self.op("matmul", q, self.op("transpose", joined[0], perm=(0, 1, 3, 2)))
        o = self.op("matmul", self.op("softmax", scores, axis=-1), joined[1])
        o = self.op("matmul", self.op("reshape", o, shape=(1, DIM)), own("o", DIM, DIM))
        return self.op("add", x, o), new[0], new[1]


@pytest.mark.parametrize("layers", [2, 3, 12])
def test_each_layer_is_a_call(layers: int) -> None:
    model = Decoder(layers)
    expected = run_function(model.module, "main", model.inputs, model.store)
    PassManager(Context(), build(PIPELINE), Watch(verify_each=True)).run(model.module)
    main, *functions = [op for op in model.module.body.block.ops if isinstance(op, FuncOp)]
    assert [f.sym_name.data for f in functions] == ["layer"]
    calls = [op for op in main.body.block.ops if isinstance(op, CallOp)]
    assert len(calls) == layers
    left = Counter(op.name for op in main.body.block.ops)
    assert left["tensor.matmul"] == 1 and left["tensor.softmax"] == 0
    found = run_function(model.module, "main", model.inputs, model.store)
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)


def test_locations_of_calls_and_of_what_is_inside() -> None:
    module = Decoder(3).module
    PassManager(Context(), build(PIPELINE)).run(module)
    main, layer = [op for op in module.body.block.ops if isinstance(op, FuncOp)]
    calls = [op for op in main.body.block.ops if isinstance(op, CallOp)]
    assert [text(call.location) for call in calls] == ["/h.0", "/h.1", "/h.2"]
    softmax = next(op for op in layer.body.block.ops if op.name == "tensor.softmax")
    assert text(softmax.location) == "softmax_17"
    assert origins(softmax) == [f"/h.{k}/softmax_17" for k in range(3)]
    assert [f"/h.{k}/softmax_17" in origins(call) for k, call in enumerate(calls)] == [True] * 3


def test_outlining_twice_changes_nothing_and_is_the_same_each_time() -> None:
    texts: list[str] = []
    for _ in range(2):
        module = Decoder(4).module
        PassManager(Context(), build(PIPELINE)).run(module)
        assert not PassManager(Context(), build("outline-repeated-layers")).run(module)
        texts.append(str(module))
    assert texts[0] == texts[1]


def test_cost_is_linear_in_depth() -> None:
    spent: list[float] = []
    for layers in (12, 96):
        module = Decoder(layers).module
        start = time.process_time()
        PassManager(Context(), build("outline-repeated-layers")).run(module)
        spent.append(time.process_time() - start)
    assert spent[1] < 8 * 3 * spent[0] + 0.1, spent
