"""Rewriting keeps locations, records reasons and ends."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence

import pytest
from xdsl.context import Context
from xdsl.dialects.arith import AddiOp, Arith, MuliOp
from xdsl.dialects.builtin import Builtin, IntegerAttr, ModuleOp, StringAttr, i32, i64
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.dialects.test import Test, TestOp, TestPureOp, TestTermOp
from xdsl.ir import Block, Operation, Region
from xdsl.parser import Parser
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern
from xdsl.rewriter import InsertPoint

from headrace.dialects.support import locations
from headrace.dialects.support.journal import Journal, recording
from headrace.dialects.tensor.base import create, ir_type
from headrace.dialects.tensor.canonicalization import Rule
from headrace.dialects.tensor.shapes import TT
from headrace.passes.infra.rewriting import EndlessRewrite, LocatingRewriter, lower, rewrite
from headrace.passes.tensor import canonicalize


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
    with pytest.raises(EndlessRewrite, match=r"Swap on 'test.op' at here") as caught:
        rewrite(module, [Swap()])
    found = caught.value
    assert (found.pattern, found.op, found.location, found.patterns) == ("Swap", "test.op", "here", ("Swap",))


# Endless sets of patterns on a large module


def chain(length: int, kinds: Sequence[type[AddiOp | MuliOp]] = (AddiOp,)) -> ModuleOp:
    """A chain of ops at `op0`, `op1`, …, in stretches of each kind."""
    block = Block(arg_types=[i32, i32])
    value = block.args[0]
    for i in range(length):
        op = kinds[i * len(kinds) // length](value, block.args[1])
        op.location = locations.named(f"op{i}")
        block.add_op(op)
        value = op.results[0]
    block.add_op(TestTermOp([value]))
    return ModuleOp([FuncOp("main", ([i32, i32], []), Region(block))])


class Counted(RewritePattern):
    """Counts how often it rewrote."""

    def __init__(self) -> None:
        self.calls = 0

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if isinstance(op, AddiOp):
            self.calls += 1
            self.change(op, rewriter)

    @abstractmethod
    def change(self, op: AddiOp, rewriter: PatternRewriter) -> None: ...


class Flip(Counted):
    """b + a for a + b."""

    def change(self, op: AddiOp, rewriter: PatternRewriter) -> None:
        rewriter.replace(op, AddiOp(op.rhs, op.lhs))


class FlipInPlace(Counted):
    def change(self, op: AddiOp, rewriter: PatternRewriter) -> None:
        op.operands = [op.rhs, op.lhs]
        rewriter.notify_op_modified(op)


class FlipUnsaid(Counted):
    """Asks the driver to look at the op again, without the word for a change."""

    def change(self, op: AddiOp, rewriter: PatternRewriter) -> None:
        op.operands = [op.rhs, op.lhs]
        rewriter.handle_operation_modification(op)


class Number(Counted):
    """Never the same state twice."""

    def change(self, op: AddiOp, rewriter: PatternRewriter) -> None:
        op.attributes["n"] = IntegerAttr(self.calls, i64)
        rewriter.notify_op_modified(op)


class Grow(Counted):
    """One op more each time."""

    def change(self, op: AddiOp, rewriter: PatternRewriter) -> None:
        more = AddiOp(op.lhs, op.rhs)
        rewriter.replace(op, [more, AddiOp(more.result, op.rhs)])


class Ripple(Counted):
    """Changes the op behind: each op has its turn before one is at its second, and is never the same twice."""

    def change(self, op: AddiOp, rewriter: PatternRewriter) -> None:
        use = op.result.first_use
        behind = use.operation if use is not None else None
        if not isinstance(behind, AddiOp):
            behind = next(op for op in op.parent.ops if isinstance(op, AddiOp)) if op.parent is not None else op
        self.touch(behind, rewriter)
        rewriter.notify_op_modified(behind)

    @abstractmethod
    def touch(self, op: AddiOp, rewriter: PatternRewriter) -> None: ...


class RippleNumber(Ripple):
    """A new attribute each time."""

    def touch(self, op: AddiOp, rewriter: PatternRewriter) -> None:
        op.attributes["n"] = IntegerAttr(self.calls, i64)


class RippleGrow(Ripple):
    """One op more each time, of a kind that is there."""

    def touch(self, op: AddiOp, rewriter: PatternRewriter) -> None:
        more = MuliOp(op.rhs, op.rhs)
        rewriter.insert(more, InsertPoint.before(op))
        op.operands = [op.lhs, more.result]


class RightToLeft(Counted):
    """a + (b + c) for (a + b) + c."""

    def change(self, op: AddiOp, rewriter: PatternRewriter) -> None:
        if isinstance(inner := op.lhs.owner, AddiOp):
            more = AddiOp(inner.rhs, op.rhs)
            rewriter.replace(op, [more, AddiOp(inner.lhs, more.result)])


class LeftToRight(Counted):
    """And back."""

    def change(self, op: AddiOp, rewriter: PatternRewriter) -> None:
        if isinstance(inner := op.rhs.owner, AddiOp):
            more = AddiOp(op.lhs, inner.lhs)
            rewriter.replace(op, [more, AddiOp(more.result, inner.rhs)])


@pytest.mark.parametrize(
    "kinds", [(Flip,), (FlipInPlace,), (FlipUnsaid,), (Number,), (Grow,), (RightToLeft, LeftToRight)]
)
@pytest.mark.parametrize("reverse", [False, True])
def test_an_endless_set_is_found_soon_in_a_large_module(kinds: Sequence[type[Counted]], reverse: bool) -> None:
    patterns = [kind() for kind in kinds]
    with pytest.raises(EndlessRewrite) as caught:
        rewrite(chain(500), patterns, reverse=reverse)
    assert {kind.__name__ for kind in kinds} == set(caught.value.patterns)
    assert caught.value.op == "arith.addi"
    assert caught.value.location.startswith("op")
    assert max(pattern.calls for pattern in patterns) < 5000, "a module of 500 ops takes a fraction of a second"


class MulFirst(RewritePattern):
    """A mul moves before the add that feeds it: in a chain, each passes each other one."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: MuliOp, rewriter: PatternRewriter, /) -> None:
        if isinstance(inner := op.lhs.owner, AddiOp):
            first = MuliOp(inner.lhs, op.rhs)
            rewriter.replace(op, [first, AddiOp(first.result, inner.rhs)])


@pytest.mark.parametrize("kind", [RippleNumber, RippleGrow])
def test_growth_all_over_a_module_is_found_in_a_number_of_rewrites_that_goes_with_its_ops(kind: type[Ripple]) -> None:
    calls: list[int] = []
    for length in (50, 500):
        pattern = kind()
        with pytest.raises(EndlessRewrite) as caught:
            rewrite(chain(length), [pattern])
        assert caught.value.patterns == (kind.__name__,)
        assert caught.value.location.startswith("op")
        calls.append(pattern.calls)
    assert calls[1] < 40 * 500, "half a second"
    assert calls[1] < 10 * calls[0]


@pytest.mark.parametrize("reverse", [False, True])
def test_a_long_way_to_rest_is_no_circle(reverse: bool) -> None:
    module = chain(100, (AddiOp, MuliOp))
    assert rewrite(module, [MulFirst()], dce=True, reverse=reverse)
    names = [op.name for op in module.walk() if op.name.startswith("arith")]
    assert names == ["arith.muli"] * 50 + ["arith.addi"] * 50
    module = chain(1500)
    assert rewrite(module, [RightToLeft()], dce=True, reverse=True)
    assert sum(op.name == "arith.addi" for op in module.walk()) == 1500


def test_canonicalize_stops_an_endless_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    class TurnAround(RewritePattern):
        def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
            op.operands = [op.operands[1], op.operands[0]]
            rewriter.notify_op_modified(op)

    block = Block(arg_types=[ir_type(TT((4,), "f32"))] * 2)
    value = block.args[0]
    for i in range(500):
        op = create("tensor.sub", [value, block.args[1]], {}, locations.named(f"op{i}"))
        block.add_op(op)
        value = op.results[0]
    block.add_op(ReturnOp(value))
    module = ModuleOp([FuncOp("main", ([x.type for x in block.args], [value.type]), Region(block))])
    faulty = (Rule(TurnAround(), None),)
    monkeypatch.setattr(canonicalize, "rules", lambda name: faulty if name == "tensor.sub" else ())  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    with pytest.raises(EndlessRewrite) as caught:
        canonicalize.canonicalize(module)
    assert (caught.value.pattern, caught.value.op) == ("TurnAround", "tensor.sub")
    assert caught.value.location.startswith("op")


# Fuel


def test_without_fuel_no_pattern_is_run_any_more() -> None:
    for fuel in range(5):
        module = chain(4)
        pattern = Replace()
        with recording(Journal(fuel=fuel)) as journal:
            assert rewrite(module, [pattern]) == (fuel > 0)
        assert pattern.calls == len(journal.applied) == fuel
        assert [op.name for op in module.walk()].count("arith.muli") == fuel
        module.verify()


class Replace(Counted):
    def change(self, op: AddiOp, rewriter: PatternRewriter) -> None:
        rewriter.replace(op, MuliOp(op.lhs, op.rhs))


def test_erasing_and_folding_take_fuel_too() -> None:
    ctx = Context()
    for dialect in (Builtin, Arith, Test):
        ctx.load_dialect(dialect)
    text = """
        %a = arith.constant 1 : i32
        %b = arith.addi %a, %a : i32
        %c = arith.addi %b, %b : i32
        "test.op"(%c) : (i32) -> ()"""
    patterns: list[str] = []
    for fuel in range(9):
        module = Parser(ctx, text).parse_module()
        with recording(Journal(fuel=fuel)) as journal:
            rewrite(module, [], ctx=ctx, fold=True, dce=True)
        module.verify()
        assert len(journal.applied) <= fuel
        patterns = [one.pattern for one in journal.applied]
    assert Counter(patterns) == {"fold": 2, "dead": 2}


def test_lowering_takes_fuel() -> None:
    module = parse(PAIR)

    def handle(op: TestOp, rewriter: LocatingRewriter) -> None:
        rewriter.replace(op, TestPureOp(op.operands, result_types=[x.type for x in op.results]))

    with recording(Journal(fuel=2)) as journal:
        assert lower(module, {TestOp: handle})
    assert [op.name for op in ops(module)] == ["test.pureop", "test.pureop", "test.op"]
    assert [str(one) for one in journal.applied] == ["handle on 'test.op' at first", "handle on 'test.op' at second"]


def test_what_a_pattern_raises_says_which_pattern_and_where() -> None:
    class Wrong(RewritePattern):
        def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
            raise KeyError("oh")

    with pytest.raises(KeyError) as caught:
        rewrite(parse(PAIR), [Wrong()])
    assert caught.value.__notes__ == ["in Wrong on 'test.op' at first"]


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
