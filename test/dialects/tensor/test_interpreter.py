"""The reference interpreter: names, calls, weights and recipes, what it keeps in memory, and how its errors read."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.dialects.func import Func
from xdsl.dialects.test import Test
from xdsl.parser import Parser

from headrace.dialects.support import locations, weights
from headrace.dialects.support.diagnostics import CompileError
from headrace.dialects.tensor import Tensor
from headrace.dialects.tensor.interpreter import Interpreter, evaluate_recipe, run_function

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def parse(text: str) -> ModuleOp:
    ctx = Context()
    for dialect in (Builtin, Func, Tensor, Test):
        ctx.load_dialect(dialect)
    module = Parser(ctx, text).parse_module()
    module.verify()
    return module


TWO = """
func.func @main(%x: tensor<2x3xf32> {tensor.name = "x"}, %s: tensor<f32> {tensor.name = "s"})
    -> (tensor<2x3xf32>, tensor<3x2xf32>) attributes {tensor.result_names = ["scaled", "turned"]} {
  %0 = tensor.mul %x, %s : tensor<2x3xf32>, tensor<f32> -> tensor<2x3xf32>
  %1 = tensor.transpose %x {perm = array<i64: 1, 0>} : tensor<2x3xf32> -> tensor<3x2xf32>
  func.return %0, %1 : tensor<2x3xf32>, tensor<3x2xf32>
}
"""


def test_inputs_by_name_or_in_order() -> None:
    two = np.float32(2)
    for inputs in ({"s": two, "x": X}, [X, two]):
        results = run_function(parse(TWO), "main", inputs)
        assert list(results) == ["scaled", "turned"]
        np.testing.assert_array_equal(results["scaled"], X * 2)
        np.testing.assert_array_equal(results["turned"], X.T)


@pytest.mark.parametrize(
    ("inputs", "code", "reason"),
    [
        ({"x": X}, "missing-input", "no value for input 's'"),
        ([X], "missing-input", "1 inputs given but the program takes 2: x, s"),
        ({"x": X, "s": X, "z": X}, "unknown-input", "no input 'z'"),
        ({"x": X.T, "s": np.float32(1)}, "input-type", r"'x' is float32\[3, 2\] but the program takes tensor<2x3xf32>"),
        ({"x": X, "s": np.float64(1)}, "input-type", r"'s' is float64\[\] but the program takes tensor<f32>"),
    ],
)
def test_other_inputs_are_refused(inputs: Any, code: str, reason: str) -> None:
    with pytest.raises(CompileError, match=reason) as refusal:
        run_function(parse(TWO), "main", inputs)
    assert refusal.value.code == code


def test_an_unknown_function_names_the_nearest() -> None:
    with pytest.raises(CompileError, match="no function 'mian'") as refusal:
        run_function(parse(TWO), "mian", [])
    assert refusal.value.fix == "did you mean 'main'?"


LAYERS = """
func.func private @layer(%x: tensor<4xf32>, %w: tensor<4xf32>) -> tensor<4xf32> {
  %0 = tensor.mul %x, %w : tensor<4xf32>, tensor<4xf32> -> tensor<4xf32>
  %1 = tensor.add %0, %x : tensor<4xf32>, tensor<4xf32> -> tensor<4xf32>
  func.return %1 : tensor<4xf32>
}
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %w0 = tensor.weight "0.w" : tensor<4xf32>
  %0 = func.call @layer(%x, %w0) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %w1 = tensor.weight "1.w" : tensor<4xf32>
  %1 = func.call @layer(%0, %w1) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  func.return %1 : tensor<4xf32>
}
"""
STORE = weights.from_arrays({"0.w": np.full(4, 2, np.float32), "1.w": np.arange(4, dtype=np.float32)})


def test_calls_and_observers() -> None:
    module = parse(LAYERS)
    for i, op in enumerate(module.walk()):
        op.location = locations.named(f"n{i}:{op.name}")
    seen: list[str] = []
    found = run_function(
        module,
        "main",
        [np.ones(4, np.float32)],
        STORE,
        [lambda op, results, calls: seen.append(f"{op.name}{len(results)}@{'/'.join(map(locations.text, calls))}")],
    )
    np.testing.assert_array_equal(found["result0"], 3 * (np.arange(4) + 1))
    layer = [x for x in seen if "@n" in x]
    assert len(layer) == 4
    assert all("func.call" in x and "/" not in x for x in layer)
    assert seen.count("tensor.weight1@") == 2


def test_values_are_dropped_after_their_last_use() -> None:
    """At most the operand and the result of the running op are alive in a chain, through a call as well."""
    chain = "\n".join(
        f"%{i + 1} = tensor.add %{i}, %{i} : tensor<4xf32>, tensor<4xf32> -> tensor<4xf32>" for i in range(20)
    )
    module = parse(f"""
      func.func private @f(%0: tensor<4xf32>) -> tensor<4xf32> {{ {chain} func.return %20 : tensor<4xf32> }}
      func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {{
        %0 = tensor.neg %x : tensor<4xf32> -> tensor<4xf32>
        %1 = func.call @f(%0) : (tensor<4xf32>) -> tensor<4xf32>
        func.return %1 : tensor<4xf32>
      }}""")
    alive: list[weakref.ref[Any]] = []
    most = 0

    def watch(op: Any, results: tuple[Any, ...], calls: Any) -> None:
        nonlocal most
        if op.name != "func.call":
            alive.extend(weakref.ref(x) for x in results)
        most = max(most, sum(x() is not None for x in alive))

    run_function(module, "main", [np.ones(4, np.float32)], observers=[watch])
    assert len(alive) == 21
    assert most <= 2


RECIPES = """
tensor.recipe @double {
  %0 = tensor.weight "w" : tensor<2xf32>
  %1 = tensor.add %0, %0 : tensor<2xf32>, tensor<2xf32> -> tensor<2xf32>
  tensor.yield %1 : tensor<2xf32>
}
tensor.recipe @quadruple {
  %0 = tensor.weight "double" : tensor<2xf32>
  %1 = tensor.add %0, %0 : tensor<2xf32>, tensor<2xf32> -> tensor<2xf32>
  tensor.yield %1 : tensor<2xf32>
}
func.func @main() -> (tensor<2xf32>, tensor<2xf32>) {
  %0 = tensor.weight "quadruple" : tensor<2xf32>
  %1 = tensor.weight "quadruple" : tensor<2xf32>
  func.return %0, %1 : tensor<2xf32>, tensor<2xf32>
}
"""


class Counting:
    """A store that counts what is asked of it."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def array(self, key: str) -> Any:
        self.asked.append(key)
        return np.array([1, 2], np.float32)


def test_recipes_are_evaluated_once_when_needed() -> None:
    store = Counting()
    interpreter = Interpreter(parse(RECIPES), store)
    assert store.asked == []
    for _ in range(2):
        for found in interpreter.run("main", []).values():
            np.testing.assert_array_equal(found, [4, 8])
    assert store.asked == ["w"]
    np.testing.assert_array_equal(evaluate_recipe(parse(RECIPES), "double", store), [2, 4])
    np.testing.assert_array_equal(evaluate_recipe(parse(RECIPES), "plain", store), [1, 2])


def test_weights_are_held_against_the_program() -> None:
    with pytest.raises(CompileError, match="weight 'w' is needed but there is no weight store"):
        run_function(parse(RECIPES), "main", [])
    with pytest.raises(CompileError, match="no weight 'w' in the store"):
        run_function(parse(RECIPES), "main", [], weights.WeightStore())
    other = weights.from_arrays({"w": np.zeros(3, np.float32)})
    with pytest.raises(CompileError, match="'w' is tensor<3xf32> in the store but the program wants tensor<2xf32>"):
        run_function(parse(RECIPES), "main", [], other)


def test_an_error_names_the_op_and_the_calls_around_it() -> None:
    module = parse("""
      func.func private @f(%x: tensor<4xf32>, %i: tensor<1xi64>) -> tensor<1xf32> {
        %0 = tensor.gather %x, %i : tensor<4xf32>, tensor<1xi64> -> tensor<1xf32>
        func.return %0 : tensor<1xf32>
      }
      func.func @main(%x: tensor<4xf32>, %i: tensor<1xi64>) -> tensor<1xf32> {
        %0 = func.call @f(%x, %i) : (tensor<4xf32>, tensor<1xi64>) -> tensor<1xf32>
        func.return %0 : tensor<1xf32>
      }""")
    for op in module.walk():
        op.location = locations.named({"tensor.gather": "embed", "func.call": "layer.3"}.get(op.name, "other"))
    with pytest.raises(CompileError, match="index 4 at position") as refusal:
        run_function(module, "main", [np.zeros(4, np.float32), np.array([4])])
    assert refusal.value.location == "embed in layer.3"


def test_ops_of_other_levels_are_refused() -> None:
    module = parse('func.func @main() { "test.op"() : () -> () func.return }')
    with pytest.raises(CompileError, match=r"test\.op is not a tensor op"):
        run_function(module, "main", [])
