"""Reducing: what is looked for stays, everything else goes, and every program that is tried is a valid one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import CallOp, FuncOp

from headrace.dialects.machine.attributes import set_device
from headrace.dialects.machine.device import load_device
from headrace.dialects.support.diagnostics import CompileError
from headrace.dialects.tensor.program import entry, faults, signature
from headrace.dialects.tensor.storage import WeightOp
from headrace.passes import pipelines
from headrace.passes.infra.manager import PassManager
from headrace.passes.infra.registry import build
from headrace.passes.infra.verify import offences
from headrace.tools.debug import count, reduce
from headrace.tools.debug.failures import print_module
from headrace.tools.execution import programs
from headrace.tools.fuzz import random_program
from headrace.tools.opt import context, parse


def module_of(text: str) -> ModuleOp:
    return parse(context(), text, "x.mlir")[0]


def holds(name: str) -> Callable[[ModuleOp], bool]:
    """Whether a program has an op of this name; holds that it is valid, can be read back, and is not changed."""

    def interesting(module: ModuleOp) -> bool:
        assert not offences(module) and not faults(module)
        text = print_module(module)
        assert print_module(module_of(text)) == text
        return any(op.name == name for op in module.walk())

    return interesting


CHAIN = """
func.func @main(%x: tensor<6x8xf32> {tensor.name = "x"}, %p: tensor<6x8xf32> {tensor.name = "past"})
    -> (tensor<6x8xf32>, tensor<6x8xf32>, tensor<48xf32>)
    attributes {tensor.result_names = ["y", "now", "flat"], tensor.states = [["past", "now"]]} {
  %w = tensor.weight "derived" : tensor<8x8xf32>
  %0 = tensor.matmul %x, %w : tensor<6x8xf32>, tensor<8x8xf32> -> tensor<6x8xf32>
  %1 = tensor.tanh %0 : tensor<6x8xf32> -> tensor<6x8xf32>
  %2 = tensor.sub %1, %p : tensor<6x8xf32>, tensor<6x8xf32> -> tensor<6x8xf32>
  %3 = func.call @layer(%2) : (tensor<6x8xf32>) -> tensor<6x8xf32>
  %4 = func.call @layer(%3) : (tensor<6x8xf32>) -> tensor<6x8xf32>
  %5 = tensor.add %4, %p : tensor<6x8xf32>, tensor<6x8xf32> -> tensor<6x8xf32>
  %6 = tensor.reshape %4 {shape = array<i64: 48>} : tensor<6x8xf32> -> tensor<48xf32>
  func.return %4, %5, %6 : tensor<6x8xf32>, tensor<6x8xf32>, tensor<48xf32>
}
func.func private @layer(%a: tensor<6x8xf32>) -> tensor<6x8xf32> {
  %0 = tensor.exp %a : tensor<6x8xf32> -> tensor<6x8xf32>
  %1 = tensor.neg %0 : tensor<6x8xf32> -> tensor<6x8xf32>
  func.return %1 : tensor<6x8xf32>
}
tensor.recipe @derived {
  %0 = tensor.weight "w" : tensor<8x8xf32>
  %1 = tensor.transpose %0 {perm = array<i64: 1, 0>} : tensor<8x8xf32> -> tensor<8x8xf32>
  tensor.yield %1 : tensor<8x8xf32>
}
"""


@pytest.mark.parametrize("name", ["tensor.sub", "tensor.tanh", "tensor.matmul", "tensor.exp", "tensor.reshape"])
def test_one_op_is_left_with_small_shapes(name: str) -> None:
    module = module_of(CHAIN)
    before = print_module(module)
    small = reduce(module, holds(name))
    assert print_module(module) == before
    assert count(small) == 1 and [op.name for op in small.body.block.ops] == ["func.func"]
    main = entry(small)
    assert all(size == 1 for x in (*main.function_type.inputs, *main.function_type.outputs) for size in x.get_shape())
    assert not signature(main).states and len(main.function_type.outputs) == 1


def test_what_belongs_to_it_stays() -> None:
    def shared(module: ModuleOp) -> bool:
        return sum(isinstance(op, CallOp) for op in module.walk()) == 2

    small = reduce(module_of(CHAIN), shared)
    assert sorted(op.name for op in small.body.block.ops) == ["func.func", "func.func"]
    assert holds("func.call")(small) and count(small) <= 3

    def derived(module: ModuleOp) -> bool:
        keys = {op.key.data for op in module.walk() if isinstance(op, WeightOp)}
        return "derived" in keys and holds("tensor.recipe")(module)

    small = reduce(module_of(CHAIN), derived)
    assert [op.name for op in small.walk()].count("tensor.weight") == 1  # of the recipe a constant is left
    assert holds("tensor.yield")(small)

    def state(module: ModuleOp) -> bool:
        return any(isinstance(op, FuncOp) and signature(op).states for op in module.body.block.ops)

    small = reduce(module_of(CHAIN), state)
    assert count(small) == 0 and signature(entry(small)).states == (("past", "now"),)


def test_what_is_not_there_is_refused_and_the_budget_is_kept() -> None:
    with pytest.raises(CompileError, match="not-interesting"):
        reduce(module_of(CHAIN), holds("tensor.softmax"))
    for most in (1, 5, 20):
        tried: list[str] = []

        def interesting(module: ModuleOp, tried: list[str] = tried) -> bool:
            tried.append(print_module(module))
            return holds("tensor.sub")(module)

        small = reduce(module_of(CHAIN), interesting, most=most)
        assert len(tried) == most or count(small) == 1
        assert len(set(tried)) == len(tried), "a program is tried once"


def test_it_is_the_same_every_time() -> None:
    first, second = (print_module(reduce(module_of(CHAIN), holds("tensor.sub")), locations=True) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("seed", range(8))
def test_random_programs_stay_programs(seed: int) -> None:
    """Whatever is tried on the way can be run."""
    program = random_program(seed)
    main = next(op for op in program.module.walk() if isinstance(op, FuncOp))  # a recipe that nothing uses goes at once
    names = sorted({op.name for op in main.walk() if op.name.startswith("tensor.") and len(op.operands) > 1})
    name = names[seed % len(names)]

    def interesting(module: ModuleOp) -> bool:
        if not holds(name)(module):
            return False
        try:
            programs.run(module, programs.weights_of(module, "random:0"), programs.inputs_of(module, "random:0"))
        except CompileError as error:  # an input that is an index is 0 or 1, and a dim may have one element
            assert error.code == "index-out-of-range"
            return False
        return True

    if not interesting(program.module):
        return
    small = reduce(program.module, interesting, most=400)
    assert count(small) <= 4, print_module(small)


@pytest.mark.parametrize(
    ("pipeline", "name", "most"),
    [
        ("canonicalize,dataflow", "tensor.sub", 6),
        ("canonicalize,dataflow", "dataflow.buffer", 4),
        ("default", "tensor.sub", 8),
        ("default", "rdu.flow", 3),
    ],
)
def test_sections_and_units(pipeline: str, name: str, most: int) -> None:
    module = module_of(CHAIN)
    set_device(module, load_device("sn40l"))
    PassManager(context(), build(pipeline, pipelines=pipelines.PIPELINES)).run(module)
    small = reduce(module, holds(name))
    assert count(small) <= most < count(module), print_module(small)
    assert not small.attributes
