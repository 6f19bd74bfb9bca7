"""`new pass`: a pass that does one true thing, and the test that holds it to it.

The body is the rewrite of a double negation, which is exact for every element type and may be done on each level: an
author replaces the pattern, the docstring, the program of the test, and runs update_tests.
"""

from __future__ import annotations

import re
from pathlib import Path
from string import Template

from headrace.dialects.support.diagnostics import CompileError, nearest
from headrace.passes.infra.registry import LEVELS, available
from headrace.passes.pipelines import PIPELINES

PASS = Template('''\
"""$name: negations of negations go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from headrace.dialects.support import journal
from headrace.passes.infra.base import Pass
from headrace.passes.infra.rewriting import LocatingRewriter, rewrite


@dataclass(frozen=True)
class ${camel}Pass(Pass):
    """Replace a negation of a negation by what was negated.

    Assumes nothing; exact for every element type. A negation that others use stays.

    Before: `%1 = tensor.neg %0`, `%2 = tensor.neg %1`. After: `%0` in the place of `%2`.
    """

    name: ClassVar[str] = "$name"

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        return rewrite(module, [DoubleNegation()])


class DoubleNegation(RewritePattern):
    """-(-x) is x."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        assert isinstance(rewriter, LocatingRewriter)
        if op.name != "tensor.neg":
            return
        inner = op.operands[0].owner
        if not isinstance(inner, Operation) or inner.name != "tensor.neg":
            rewriter.decline("what it negates is no negation")
            return
        rewriter.replace(op, [], [inner.operands[0]])
        journal.count("double negations")
        if not inner.results[0].uses:
            rewriter.erase(inner)
''')

TESTS = {
    "tensor": Template("""\
// RUN: headrace-opt %s -p $name --check-execution | filecheck %s

// A negation of a negation is what was negated; a negation that others use stays.
// BEGIN CHECK
// END CHECK
func.func @main(%x: tensor<4x8xf32>, %y: tensor<4xi32>) -> (tensor<4x8xf32>, tensor<4xi32>, tensor<4xi32>) {
  %0 = tensor.neg %x : tensor<4x8xf32> -> tensor<4x8xf32>
  %1 = tensor.neg %0 : tensor<4x8xf32> -> tensor<4x8xf32>
  %used = tensor.neg %y : tensor<4xi32> -> tensor<4xi32>
  %3 = tensor.neg %used : tensor<4xi32> -> tensor<4xi32>
  func.return %1, %used, %3 : tensor<4x8xf32>, tensor<4xi32>, tensor<4xi32>
}
"""),
    "dataflow": Template("""\
// RUN: headrace-opt %s -p $name --check-execution | filecheck %s

// In a stage a negation of a negation is what was negated; a negation that others use stays.
// BEGIN CHECK
// END CHECK
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = dataflow.section "main_0"(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32> {
  ^bb0(%a: tensor<4x8xf32>):
    %1 = dataflow.load %a at 0 [8, 1] : tensor<4x8xf32> -> !dataflow.stream<tensor<4x8xf32>>
    %2 = dataflow.stage "neg_0"(%1) : (!dataflow.stream<tensor<4x8xf32>>) -> !dataflow.stream<tensor<4x8xf32>> {
    ^bb1(%t: tensor<4x8xf32>):
      %used = tensor.neg %t : tensor<4x8xf32> -> tensor<4x8xf32>
      %3 = tensor.neg %used : tensor<4x8xf32> -> tensor<4x8xf32>
      %4 = tensor.mul %used, %3 : tensor<4x8xf32>, tensor<4x8xf32> -> tensor<4x8xf32>
      dataflow.yield %4 : tensor<4x8xf32>
    }
    %5 = dataflow.store (%2 at 0 [8, 1]) : (!dataflow.stream<tensor<4x8xf32>>) -> tensor<4x8xf32>
    dataflow.yield %5 : tensor<4x8xf32>
  }
  func.return %0 : tensor<4x8xf32>
}
"""),
    "rdu": Template("""\
// RUN: headrace-opt %s -p $name --check-execution | filecheck %s

// In a compute unit a negation of a negation is what was negated; a negation that others use stays.
// BEGIN CHECK @main_0
// END CHECK
builtin.module attributes {machine.device = #machine.device<"sn40l">} {
rdu.config @main_0 virtual ("x" in tensor<4x8xf32>, "y" out tensor<4x8xf32>) {
  rdu.agcu @load_x load param 0
  rdu.pcu @neg_0 simd (%t: tensor<4x8xf32>) {
    %used = tensor.neg %t : tensor<4x8xf32> -> tensor<4x8xf32>
    %0 = tensor.neg %used : tensor<4x8xf32> -> tensor<4x8xf32>
    %1 = tensor.mul %used, %0 : tensor<4x8xf32>, tensor<4x8xf32> -> tensor<4x8xf32>
    rdu.yield %1 : tensor<4x8xf32>
  }
  rdu.agcu @store store param 1
  rdu.flow @load_x -> @neg_0 carries tensor<4x8xf32> from at 0 [8, 1]
  rdu.flow @neg_0 -> @store carries tensor<4x8xf32> to at 0 [8, 1]
}
rdu.program @main {
  rdu.region @x input tensor<4x8xf32>
  rdu.region @y output tensor<4x8xf32>
  rdu.port input "x" tensor<4x8xf32> in @x
  rdu.port output "y" tensor<4x8xf32> in @y
  rdu.launch @main_0 (@x, @y) hw
}
}
"""),
}
NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


def plan(root: Path, name: str, level: str) -> dict[Path, str]:
    """The files of a new pass and what they hold. `CompileError` for a bad or taken name, or a wrong level."""
    if level not in TESTS:
        what = f"no template for level '{level}'"
        why = "a conversion has two levels, and what it does depends on both" if level == "convert" else ""
        fix = "start from passes/convert/convert_dataflow_to_rdu.py" if level == "convert" else nearest(level, TESTS)
        raise CompileError("bad-level", what, why=why, fix=fix or f"one of {', '.join(TESTS)}")
    if not NAME.fullmatch(name):
        suggestion = re.sub(r"[^a-z0-9]+", "-", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower()).strip("-")
        fix = f"'{suggestion}'" if NAME.fullmatch(suggestion) else "a verb and an object, such as 'hoist-casts'"
        why = "a name is lower-case words joined by hyphens"
        raise CompileError("bad-name", f"'{name}' is no name of a pass", why=why, fix=fix)
    stem = name.replace("-", "_")
    places = {f"{one}/{stem}.py": root / "passes" / one / f"{stem}.py" for one in LEVELS}
    there = [where for where, path in places.items() if path.exists()]
    if there or name in available() or name in PIPELINES:
        what = f"there is a pass '{name}' (passes/{there[0]})" if there else f"the name '{name}' is taken"
        raise CompileError("taken-name", what, fix="choose another name")
    test = root / "test" / "passes" / level / f"{stem}.mlir"
    if test.exists():
        raise CompileError("taken-name", f"{test.relative_to(root)} is the test of another pass")
    camel = "".join(word.capitalize() for word in name.split("-"))
    return {
        places[f"{level}/{stem}.py"]: PASS.substitute(name=name, camel=camel),
        test: TESTS[level].substitute(name=name),
    }
