"""Canonicalization of moves keeps what programs compute, comes to rest, and keeps locations."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.dialects.func import Func, FuncOp, ReturnOp
from xdsl.ir import Block, Region, SSAValue

from headrace.dialects.support import locations
from headrace.dialects.tensor import Tensor, create, ir_type, storage, tt
from headrace.dialects.tensor.interpreter import run_function
from headrace.dialects.tensor.shapes import TT
from headrace.passes.infra.rewriting import canonicalize

MOVES = ("reshape", "transpose", "broadcast", "slice", "concat", "split", "pad", "gather", "reduce", "add", "constant")


def context() -> Context:
    ctx = Context()
    for dialect in (Builtin, Func, Tensor):
        ctx.load_dialect(dialect)
    return ctx


class Program:
    """A function that grows op by op; every op has a location of its own."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.block = Block()
        self.values: list[SSAValue] = []
        self.count = 0

    def pick(self, *options: Any) -> Any:
        return self.draw(st.sampled_from(options))

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def append(self, op: Any) -> SSAValue:
        op.location = locations.named(f"node{self.count}")
        self.count += 1
        self.block.add_op(op)
        self.values.extend(x for x in op.results if 0 < tt(x).elements <= 500 and len(tt(x).shape) <= 5)
        return op.results[0]

    def argument(self, shape: tuple[int, ...]) -> None:
        self.values.append(self.block.insert_arg(ir_type(TT(shape, "i64")), len(self.block.args)))

    def move(self, kind: str) -> None:
        x = self.pick(*self.values)
        shape = tt(x).shape
        if kind not in ("reshape", "broadcast", "constant") and not shape:
            kind = "reshape"
        getattr(self, f"do_{kind}")(x, shape)

    def op(self, name: str, operands: list[SSAValue], **attrs: Any) -> SSAValue:
        return self.append(create(f"tensor.{name}", operands, attrs))

    def axis(self, shape: tuple[int, ...]) -> int:
        return self.number(-len(shape), len(shape) - 1)

    def do_reshape(self, x: SSAValue, shape: tuple[int, ...]) -> None:
        left, found = int(np.prod(shape)), list[int]()
        while left > 1 and len(found) < 3:
            found.append(self.pick(*(n for n in range(1, left + 1) if left % n == 0)))
            left //= found[-1]
        self.op("reshape", [x], shape=(*found, left))

    def do_transpose(self, x: SSAValue, shape: tuple[int, ...]) -> None:
        self.op("transpose", [x], perm=tuple(self.draw(st.permutations(range(len(shape))))))

    def do_broadcast(self, x: SSAValue, shape: tuple[int, ...]) -> None:
        full = tuple(self.number(1, 3) if n == 1 else n for n in shape)
        self.op("broadcast", [x], shape=(2, *full) if self.draw(st.booleans()) else full)

    def do_slice(self, x: SSAValue, shape: tuple[int, ...]) -> None:
        bounds: list[tuple[int, int, int]] = []
        for n in shape:
            low, high = sorted((self.number(0, n - 1), self.number(0, n - 1)))
            step = self.number(1, 2)
            bounds.append(self.pick((0, n, 1), (low, high + 1, step), (high, low - 1, -step)))
        starts, stops, steps = zip(*bounds, strict=True)
        self.op("slice", [x], starts=starts, stops=stops, steps=steps)

    def do_concat(self, x: SSAValue, shape: tuple[int, ...]) -> None:
        same = [v for v in self.values if tt(v).shape == shape]
        operands = [x, *(self.pick(*same) for _ in range(self.number(0, 2)))]
        self.op("concat", operands, axis=self.axis(shape))

    def do_split(self, x: SSAValue, shape: tuple[int, ...]) -> None:
        axis = self.axis(shape)
        first = self.number(0, shape[axis])
        self.op("split", [x], axis=axis, sizes=self.pick((first, shape[axis] - first), (shape[axis],)))
        parts = [v for v in self.values if v.owner is self.block.last_op]
        if len(parts) > 1 and self.draw(st.booleans()):
            self.op("concat", parts, axis=axis)

    def do_pad(self, x: SSAValue, shape: tuple[int, ...]) -> None:
        lo, hi = (tuple(self.number(0, 1) for _ in shape) for _ in range(2))
        self.op("pad", [x], lo=lo, hi=hi, mode=self.pick("constant", "edge"), value=self.pick(0.0, 3.0))

    def do_gather(self, x: SSAValue, shape: tuple[int, ...]) -> None:
        axis = self.axis(shape)
        n = shape[axis]
        count = self.pick((), (1,), (2,), (1, 1), (2, 2))
        at = self.draw(st.lists(st.integers(-n, n - 1), min_size=4, max_size=4))
        indices = np.array(at[: int(np.prod(count))], np.int64).reshape(count)
        self.op("gather", [x, self.append(storage.constant(indices))], axis=axis)

    def do_reduce(self, x: SSAValue, shape: tuple[int, ...]) -> None:
        axes = tuple(d for d in range(len(shape)) if self.draw(st.booleans()))
        self.op("reduce_sum", [x], axes=axes, keepdims=self.draw(st.booleans()))

    def do_add(self, x: SSAValue, shape: tuple[int, ...]) -> None:
        other = self.pick(*(v for v in self.values if tt(v).shape in ((), shape[-1:], shape)))
        self.op("add", [x, other])

    def do_constant(self, x: SSAValue, shape: tuple[int, ...]) -> None:
        self.append(storage.constant(self.pick(np.full(shape, 7), np.arange(np.prod(shape)).reshape(shape))))

    def finish(self) -> ModuleOp:
        results = self.values[-4:]
        self.block.add_op(ReturnOp(*results))
        type = ([a.type for a in self.block.args], [v.type for v in results])
        return ModuleOp([FuncOp("main", type, Region(self.block))])


@settings(max_examples=120, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_programs_of_moves_mean_the_same(data: st.DataObject) -> None:
    program = Program(data.draw)
    for _ in range(2):
        program.argument(tuple(data.draw(st.lists(st.sampled_from((1, 2, 3)), max_size=3))))
    for kind in data.draw(st.lists(st.sampled_from(MOVES), min_size=1, max_size=10)):
        program.move(kind)
    module = program.finish()
    module.verify()
    rng = np.random.default_rng(0)
    inputs: list[Any] = [rng.integers(-99, 99, tt(a).shape) for a in program.block.args]
    wanted = run_function(module, "main", inputs)
    canonicalize(context(), module)  # raises when it does not come to rest
    module.verify()
    found = run_function(module, "main", inputs)
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array)
    before = str(module)
    canonicalize(context(), module)
    assert str(module) == before
    for op in module.walk():
        assert op.name in ("builtin.module", "func.func", "func.return") or locations.is_known(op.location), op


def test_a_merged_op_has_both_locations() -> None:
    block = Block(arg_types=[ir_type(TT((2, 3), "f32"))])
    first = create("tensor.reshape", block.args, {"shape": (6,)}, locations.named("first"))
    second = create("tensor.reshape", first.results, {"shape": (3, 2)}, locations.named("second"))
    block.add_ops([first, second, ReturnOp(*second.results)])
    func = FuncOp("main", ([block.args[0].type], [second.results[0].type]), Region(block))
    canonicalize(context(), ModuleOp([func]))
    (op, _) = func.body.block.ops
    assert locations.text(op.location) == "first + second"
