"""What a pass changed: found by op, shown as a diff of what it touched, with names that stay."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.dialects.test import TestOp
from xdsl.ir import Operation

from headrace.dialects.support import locations
from headrace.dialects.tensor.base import create
from headrace.passes.infra.changes import Snapshot, difference
from headrace.tools.opt import context, parse

PROGRAM = """
func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = tensor.weight "layer.0/w" : tensor<2xf32>
  %1 = tensor.sub %x, %0 : tensor<2xf32>, tensor<2xf32> -> tensor<2xf32> loc("sub")
  %2 = tensor.neg %1 : tensor<2xf32> -> tensor<2xf32> loc("neg")
  func.return %2 : tensor<2xf32>
}
func.func @other(%x: tensor<2xf32>) -> tensor<2xf32> {
  func.return %x : tensor<2xf32>
}
"""


def program(text: str = PROGRAM) -> ModuleOp:
    return parse(context(), text, "x.mlir")[0]


def op_of(module: ModuleOp, name: str) -> Operation:
    return next(op for op in module.walk() if op.name == name)


def func(module: ModuleOp, name: str) -> FuncOp:
    return next(op for op in module.body.block.ops if isinstance(op, FuncOp) and op.sym_name.data == name)


def insert_abs(module: ModuleOp) -> None:
    neg = op_of(module, "tensor.neg")
    new = create("tensor.abs", [neg.operands[0]], location=locations.named("abs"))
    neg.parent.insert_op_before(new, neg)  # pyright: ignore
    neg.operands = new.results


def test_only_what_was_touched_is_shown() -> None:
    module = program()
    before = Snapshot(module)
    assert before.changes() == []
    insert_abs(module)
    (change,) = before.changes()
    assert change.where() == "func.func @main"
    assert change.text().splitlines() == [
        "--- before func.func @main",
        "+++ after func.func @main",
        "@@ -2,5 +2,6 @@",
        '   %layer.0_w = tensor.weight "layer.0/w" : tensor<2xf32>',
        "   %0 = tensor.sub %x, %layer.0_w : tensor<2xf32>, tensor<2xf32> -> tensor<2xf32>",
        "-  %1 = tensor.neg %0 : tensor<2xf32> -> tensor<2xf32>",
        "+  %2 = tensor.abs %0 : tensor<2xf32> -> tensor<2xf32>",
        "+  %1 = tensor.neg %2 : tensor<2xf32> -> tensor<2xf32>",
        "   func.return %1 : tensor<2xf32>",
        " }",
    ], "values that stay keep their names, whatever comes before them"
    assert change.culprit() == ("tensor.abs", "abs", "is new")


def test_names_stay_from_pass_to_pass() -> None:
    module = program()
    before = Snapshot(module)
    for _ in range(2):
        insert_abs(module)
        changes = before.changes()
        text = changes[0].text()
        before.update(changes)
    assert "+  %3 = tensor.abs %2" in text and "   %2 = tensor.abs %0" in text
    assert before.changes() == []


def test_a_snapshot_copies_again_only_what_was_touched() -> None:
    module = program()
    before = Snapshot(module)
    main, other = (before.copies[func(module, name)] for name in ("main", "other"))
    insert_abs(module)
    before.update(before.changes())
    assert before.copies[func(module, "main")] is not main
    assert before.copies[func(module, "other")] is other
    assert before.changes() == []


def test_a_copy_takes_no_part_in_the_module() -> None:
    module = program('%0 = "test.op"() : () -> i32\n"test.op"(%0) : (i32) -> ()')
    before = Snapshot(module)
    first = module.body.block.first_op
    assert first is not None
    for _ in range(2):
        assert len(list(first.results[0].uses)) == 1
        module.body.block.add_op(TestOp([first.results[0]]))
        changes = before.changes()
        assert [change.culprit()[2] for change in changes] == ["is new"]
        before.update(changes)
        last = module.body.block.last_op
        assert last is not None
        last.detach()
        last.drop_all_references()
        before.update(before.changes())
    assert before.changes() == []


def test_what_is_new_gone_and_moved() -> None:
    module = program()
    before = Snapshot(module)
    other = func(module, "other")
    other.detach()
    (gone,) = before.changes()
    assert gone.culprit() == ("func.func", "x.mlir:8:1", "is gone")
    assert gone.text().splitlines()[:3] == [
        "--- before func.func @other",
        "+++ after func.func @other",
        "@@ -1,3 +0,0 @@",
    ]
    block = module.body.block
    assert block.first_op is not None
    block.insert_op_before(other, block.first_op)
    moved = before.changes()
    assert {(one.culprit()[2], one.text()) for one in moved} == {("stands elsewhere", "")}
    before.update(moved)
    assert before.changes() == []
    copy = other.clone()
    other.detach()
    block.insert_op_before(copy, block.first_op)
    assert before.changes() == [], "an equal function of the same name is the same function"
    module.attributes["x"] = StringAttr("y")
    (attributes,) = before.changes()
    assert '+builtin.module attributes {x = "y"}' in attributes.text()


def test_the_first_difference_and_in_what() -> None:
    one, other = program(), program()
    assert difference(one, other) is None
    sub = op_of(other, "tensor.sub")
    sub.operands = tuple(reversed(sub.operands))
    found = difference(one, other)
    assert found is not None and (found.before, found.after, found.what) == (op_of(one, "tensor.sub"), sub, "operand 0")


def test_differences_that_text_or_xdsl_would_miss() -> None:
    twice = """"test.op"() ({
    ^a(%x: i32):
      "test.termop"(%x)[^b] : (i32) -> ()
    ^b:
      "test.termop"() : () -> ()
    }) : () -> ()"""
    assert difference(program(twice), program(twice)) is None
    assert difference(program(twice), program(twice.replace("[^b]", "[^b, ^b]"))) is not None
    wider = twice.replace("%x: i32", "%x: i64").replace("(i32)", "(i64)")
    assert difference(program(twice), program(wider)) is not None, "types of block arguments"
    same = '"test.op"() : () -> i32'
    assert difference(program(same), program(same.replace("i32", "i64"))) is not None, "types of results"
    named = same + ' loc("x")'
    assert difference(program(same), program(named)) is None, "locations do not count"


def test_long_constants_are_shown_in_short() -> None:
    numbers = ", ".join(map(str, range(100)))
    text = f"""func.func @main() -> tensor<100xi64> {{
      %0 = tensor.constant dense<[{numbers}]> : tensor<100xi64>
      func.return %0 : tensor<100xi64>
    }}"""
    module = program(text)
    before = Snapshot(module)
    other = op_of(program(text.replace("[0, 1", "[1, 1")), "tensor.constant")
    op_of(module, "tensor.constant").properties.update(other.properties)
    (change,) = before.changes()
    shown = change.text()
    assert "…, 1604 characters, checksum " in shown
    old, new = (line for line in shown.splitlines() if "checksum" in line)
    assert old[1:] != new[1:] and max(map(len, shown.splitlines())) < 120


def test_a_pass_of_units_shows_configs(opt) -> None:
    from pathlib import Path

    path = Path(__file__).parents[1] / "rdu" / "place.mlir"
    text = path.read_text(encoding="utf-8").split("// -----")[0]
    found = opt(text, "-p", "place", "--print-ir-after-change")
    assert found.code == 0, found.err
    assert "--- before rdu.config @" in found.err and "--- before rdu.program" not in found.err
