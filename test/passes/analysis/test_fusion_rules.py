"""Fusion rules: what a file says, what is wrong with one, and what the built-in ones match."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.dialects.dataflow.ops import StageOp
from headrace.dialects.support.diagnostics import CompileError
from headrace.passes.analysis.fusion_rules import BUILT_IN, fusion_rules
from headrace.tools.opt import context, parse


def stages(*ops: str) -> list[StageOp]:
    """Stages of one op each, every one fed by the one before."""
    lines = ["%b0 = dataflow.buffer [4, 4] (%s at 0 [4, 1]) to (at 0 [4, 1]) : (!dataflow.stream<tensor<4x4xf32>>)"]
    lines[0] += " -> !dataflow.stream<tensor<4x4xf32>>"
    for i, op in enumerate(ops):
        two = ", %a" if op == "matmul" else ""
        types = "tensor<4x4xf32>" + (", tensor<4x4xf32>" if two else "") + " -> tensor<4x4xf32>"
        lines += [
            f'%s{i} = dataflow.stage "{op}_{i}"(%b{i}) : (!dataflow.stream<tensor<4x4xf32>>)'
            " -> !dataflow.stream<tensor<4x4xf32>> {",
            "^bb0(%a : tensor<4x4xf32>):",
            f"%r = tensor.{op} %a{two} : {types}",
            "dataflow.yield %r : tensor<4x4xf32>",
            "}",
            f"%b{i + 1} = dataflow.buffer [4, 4] (%s{i} at 0 [4, 1]) to (at 0 [4, 1])"
            " : (!dataflow.stream<tensor<4x4xf32>>) -> !dataflow.stream<tensor<4x4xf32>>",
        ]
    text = "\n".join(
        [
            "func.func @main(%x : tensor<4x4xf32>) -> tensor<4x4xf32> {",
            '%0 = dataflow.section "s"(%x) : (tensor<4x4xf32>) -> tensor<4x4xf32> {',
            "^bb0(%t : tensor<4x4xf32>):",
            "%s = dataflow.load %t at 0 [4, 1] : tensor<4x4xf32> -> !dataflow.stream<tensor<4x4xf32>>",
            *lines,
            f"%y = dataflow.store (%b{len(ops)} at 0 [4, 1]) : (!dataflow.stream<tensor<4x4xf32>>) -> tensor<4x4xf32>",
            "dataflow.yield %y : tensor<4x4xf32>",
            "}",
            "func.return %0 : tensor<4x4xf32>",
            "}",
        ]
    )
    module, _ = parse(context(), text, "test")
    return [op for op in module.walk() if isinstance(op, StageOp)]


@pytest.mark.parametrize(
    ("ops", "matched"),
    [
        (("matmul", "softmax", "matmul"), 3),
        (("matmul", "relu", "matmul", "relu"), 3),
        (("matmul", "relu"), 2),
        (("softmax", "matmul"), 0),
        (("exp",), 0),
    ],
)
def test_built_in_rules(ops: tuple[str, ...], matched: int) -> None:
    assert fusion_rules("").matched(stages(*ops)) == matched


def test_a_rule_of_the_user_comes_first(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(
        "- name: long\n  pattern:\n    a: {op_type: matmul, child: b}\n    b: {op_type: elementwise, children: [c]}\n"
        "    c: {op_type: exp, required: false}\n"
    )
    rules = fusion_rules(str(file))
    assert len(rules.rules) == len(BUILT_IN) + 1
    assert rules.matched(stages("matmul", "relu", "exp", "matmul")) == 3
    assert rules.matched(stages("matmul", "relu", "softmax")) == 2


def test_everything_wrong_with_a_file_is_said_at_once(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(
        "- {name: x, patern: 1}\n- {pattern: {}}\n- pattern:\n    a: {op_type: matmul, chidl: b, child: c}\n    b: {}\n"
    )
    with pytest.raises(CompileError) as error:
        fusion_rules(str(file))
    text = str(error.value)
    for part in ("rule 1 has no pattern", "rule 2 has an empty pattern", "'chidl'", "names 'c'", "'b' has no op_type"):
        assert part in text
    for content in ("x: [", "5"):
        file.write_text(content)
        with pytest.raises(CompileError, match="bad-rules"):
            fusion_rules(str(file))
    with pytest.raises(CompileError, match="no-such-file"):
        fusion_rules(str(tmp_path / "none.yaml"))
