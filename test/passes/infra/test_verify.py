"""The verifier finds every op that is wrong, though it looks once at ops that look the same."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Operation

from headrace.dialects.tensor.storage import YieldOp
from headrace.passes.infra.verify import offences
from headrace.tools.opt import context, parse

PROGRAM = """
tensor.recipe @r {
  %w = tensor.weight "w" : tensor<4xf32>
  tensor.yield %w : tensor<4xf32>
}
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = tensor.exp %x : tensor<4xf32> -> tensor<4xf32>
  %1 = tensor.exp %0 : tensor<4xf32> -> tensor<4xf32>
  %2 = tensor.exp %1 : tensor<4xf32> -> tensor<4xf32>
  func.return %2 : tensor<4xf32>
}
"""


def program() -> tuple[ModuleOp, list[Operation]]:
    """The module and its three ops of one look."""
    module, _ = parse(context(), PROGRAM, "p")
    assert offences(module) == []
    return module, [op for op in module.walk() if op.name == "tensor.exp"]


def test_an_attribute_that_is_none_of_the_op_is_found_behind_a_sound_twin() -> None:
    module, ops = program()
    ops[2].attributes["what"] = StringAttr("is this")
    assert [op for op, _ in offences(module)] == [ops[2]]


def test_other_properties_are_another_look() -> None:
    module, ops = program()
    ops[1].properties["what"] = StringAttr("is this")
    assert [op for op, _ in offences(module)] == [ops[1]]


def test_an_erased_operand_is_found_behind_a_sound_twin() -> None:
    module, ops = program()
    ops[1].detach()
    ops[1].erase(safe_erase=False)
    assert ops[2] in [op for op, message in offences(module) if "rased" in message]


def test_a_terminator_in_the_middle_is_found_behind_a_sound_twin() -> None:
    module, _ = program()
    recipe = next(op for op in module.walk() if op.name == "tensor.recipe")
    first = recipe.regions[0].block.first_op
    assert first is not None
    recipe.regions[0].block.insert_op_after(YieldOp.create(operands=[first.results[0]]), first)
    assert len(offences(module)) == 1


def test_a_block_that_ends_in_no_terminator_is_found() -> None:
    module, _ = program()
    last = next(op for op in module.walk() if op.name == "func.return")
    last.detach()
    last.erase()
    assert any("terminat" in message for _, message in offences(module))
