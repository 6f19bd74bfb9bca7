"""Rewriting keeps locations, records reasons and ends."""

from __future__ import annotations

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp, StringAttr
from xdsl.dialects.test import Test, TestOp, TestPureOp
from xdsl.ir import Operation
from xdsl.parser import Parser
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern

from headrace.dialects.support import locations
from headrace.dialects.support.journal import Journal, recording
from headrace.passes.infra.rewriting import EndlessRewrite, LocatingRewriter, lower, rewrite


def parse(text: str) -> ModuleOp:
    ctx = Context()
    ctx.load_dialect(Builtin)
    ctx.load_dialect(Test)
    return Parser(ctx, text).parse_module()


def ops(module: ModuleOp) -> list[Operation]:
    return list(module.body.block.ops)


PAIR = """
%0 = "test.op"() {tag = "a"} : () -> i32 loc("first")
%1 = "test.op"(%0) {tag = "b"} : (i32) -> i32 loc("second")
"test.op"(%1) {tag = "end"} : (i32) -> () loc("end")
"""


class ToPure(RewritePattern):
    """Replaces test.op with one result by two test.pureop."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: TestOp, rewriter: PatternRewriter, /) -> None:
        assert isinstance(rewriter, LocatingRewriter)
        if not op.results:
            return rewriter.decline("it has no result")
        first = TestPureOp(op.operands, result_types=[op.results[0].type])
        rewriter.replace(op, [first, TestPureOp(first.results, result_types=[op.results[0].type])])


def test_new_ops_get_the_location_of_the_matched_op() -> None:
    module = parse(PAIR)
    with recording(Journal()) as journal:
        assert rewrite(module, [ToPure()])
    assert [locations.text(op.location) for op in ops(module)] == ["first", "first", "second", "second", "end"]
    assert journal.counts()["ToPure"] == 2
    assert journal.why("end") == ["ToPure: it has no result"]


class Merge(RewritePattern):
    """Merges a test.op into the one that feeds it."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: TestOp, rewriter: PatternRewriter, /) -> None:
        assert isinstance(rewriter, LocatingRewriter)
        if not op.operands or not op.results or not isinstance(op.operands[0].owner, TestOp):
            return rewriter.decline("nothing feeds it")
        feeder = op.operands[0].owner
        rewriter.merging(feeder)
        rewriter.replace(op, TestPureOp([], result_types=[op.results[0].type]))
        rewriter.erase(feeder)


def test_merged_ops_get_both_locations() -> None:
    module = parse(PAIR)
    assert rewrite(module, [Merge()])
    assert [locations.text(op.location) for op in ops(module)] == ["first + second", "end"]


def test_a_location_does_not_stick_to_the_next_match() -> None:
    module = parse(PAIR)
    rewrite(module, [Merge(), ToPure()], once=True)
    assert locations.text(ops(module)[-1].location) == "end"


class Swap(RewritePattern):
    """Never at rest."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: TestOp, rewriter: PatternRewriter, /) -> None:
        if len(op.operands) == 2:
            rewriter.replace(op, TestOp([op.operands[1], op.operands[0]], attributes=op.attributes))


def test_patterns_that_turn_in_a_circle_are_named() -> None:
    module = parse('%0, %1 = "test.op"() : () -> (i32, i32)\n"test.op"(%0, %1) : (i32, i32) -> () loc("here")')
    with pytest.raises(EndlessRewrite, match=r"Swap on 'test.op' at here"):
        rewrite(module, [Swap()])


def test_unchanged_is_said_to_be_unchanged() -> None:
    module = parse('"test.op"() : () -> ()')
    assert not rewrite(module, [ToPure()])
    assert not rewrite(module, [ToPure()], dce=True)


def test_lower_visits_each_op_once() -> None:
    module = parse(PAIR)
    seen: list[str] = []

    def handle(op: TestOp, rewriter: LocatingRewriter) -> None:
        seen.append(str(op.attributes["tag"]))
        if op.results:
            rewriter.replace(op, TestOp(op.operands, [op.results[0].type], {"tag": StringAttr("new")}))

    assert lower(module, {TestOp: handle})
    assert seen == ['"a"', '"b"', '"end"']
    assert [locations.text(op.location) for op in ops(module)] == ["first", "second", "end"]
    assert not lower(module, {})
