"""The pass manager watches passes: change, time, op counts, validity, locations; the registry finds and builds them."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp, StringAttr, i64
from xdsl.dialects.func import Func
from xdsl.dialects.test import Test, TestOp
from xdsl.ir import Operation
from xdsl.parser import Parser
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern
from xdsl.printer import Printer
from xdsl.rewriter import Rewriter
from xdsl.transforms.dead_code_elimination import DeadCodeElimination
from xdsl.utils.exceptions import PassFailedException

from headrace.dialects.support import journal, locations
from headrace.dialects.support.diagnostics import CompileError
from headrace.passes.infra.base import Pass, option
from headrace.passes.infra.legality import Legality, legal
from headrace.passes.infra.manager import (
    ALL,
    HISTORY_ATTRIBUTE,
    PassBug,
    PassManager,
    Stage,
    Watch,
    statistics_table,
    timing_table,
)
from headrace.passes.infra.registry import build, passes_in
from headrace.passes.infra.rewriting import rewrite


def parse(text: str) -> tuple[Context, ModuleOp]:
    ctx = Context()
    for dialect in (Builtin, Func, Test):
        ctx.load_dialect(dialect)
    return ctx, Parser(ctx, text).parse_module()


ONE = '"test.op"() : () -> () loc("here")'


@dataclass(frozen=True)
class AddOps(Pass):
    """Add ops.

    Assumes nothing.
    """

    name = "add-ops"
    count: int = option(1, "how many", unit="ops", low=0, high=9)
    located: bool = option(True, "give them a location")
    kind: str = option("x", "the tag", choices=("x", "y"))
    lie: bool = option(False, "say that nothing changed")
    broken: bool = option(False, "leave a block without a terminator")

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        first = module.body.block.first_op
        assert first is not None
        for _ in range(self.count):
            new = TestOp([], [], {"tag": StringAttr(self.kind)})
            if self.located:
                new.location = first.location
            module.body.block.add_op(new)
        if self.broken:
            for op in module.walk():
                if op.name == "func.return":
                    op.detach()
        return bool(self.count) != self.lie


@dataclass(frozen=True)
class RefuseAll(Pass):
    """Refuse everything."""

    name = "refuse-all"

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        raise CompileError("no", "not this one")


def do(what: Callable[[ModuleOp], bool], leaves: Legality | None = None) -> Pass:
    """A pass that does what a test says."""

    class Do(Pass):
        name = "do"
        ensures = leaves

        def run(self, ctx: Context, module: ModuleOp) -> bool:
            return what(module)

    return Do()


def bug_of(text: str, what: Callable[[ModuleOp], bool]) -> PassBug:
    """The bug that a pass that does this has on this program."""
    ctx, module = parse(text)
    for op in module.walk():
        if op.name == "func.return":
            op.location = op.parent_op().location  # pyright: ignore
    with pytest.raises(PassBug) as caught:
        PassManager(ctx, [do(what)], Watch(verify_each=True)).run(module)
    return caught.value


PASSES = {"add-ops": lambda: AddOps, "refuse-all": lambda: RefuseAll}


def test_records_say_what_each_pass_did() -> None:
    ctx, module = parse(ONE)
    seen: list[tuple[int, int, str]] = []
    watch = Watch(verify_each=True, measure=True, progress=lambda i, n, p: seen.append((i, n, p.name)))
    manager = PassManager(ctx, [AddOps(2), AddOps(0), DeadCodeElimination()], watch)
    assert manager.run(module)
    two, none, dce = manager.records
    assert (two.spec, two.changed, two.ops_before, two.ops_after, two.delta) == (
        "add-ops{count=2}",
        True,
        2,
        4,
        {"test.op": 2},
    )
    assert (none.changed, none.delta) == (False, {})
    assert dce.changed is False, "found by comparing, the pass does not say"
    assert seen == [(0, 3, "add-ops"), (1, 3, "add-ops"), (2, 3, "dce")]
    assert "add-ops{count=0} (no change)" in timing_table(manager.records)


def test_without_watching_a_foreign_pass_is_unknown() -> None:
    ctx, module = parse(ONE)
    manager = PassManager(ctx, [DeadCodeElimination()])
    assert manager.run(module), "unknown counts as changed"
    assert manager.records[0].changed is None


@pytest.mark.parametrize(
    ("one", "message"),
    [
        (
            AddOps(located=False),
            "made 1 op without a location: 'test.op' [lost-location]\n  op: 'test.op'\n  at: here",
        ),
        (AddOps(lie=True), "says that it changed nothing"),
        (AddOps(0, lie=True), "says that it changed something, and nothing did"),
        (AddOps(broken=True), "left invalid IR [invalid-ir]\n  op: 'func.func'\n  at: f"),
    ],
)
def test_a_pass_that_breaks_its_contract_is_named(one: AddOps, message: str) -> None:
    ctx, module = parse('func.func @f() { func.return } loc("f")\n' + ONE)
    for op in module.walk():
        if op.name == "func.return":
            op.location = next(iter(module.ops)).location
    with pytest.raises(PassBug) as caught:
        PassManager(ctx, [one], Watch(verify_each=True)).run(module)
    assert message in str(caught.value)


PROGRAM = """
func.func @a() {
  %0 = "test.op"() : () -> i32 loc("first")
  %1 = "test.op"() : () -> i32 loc("second")
  "test.op"(%0, %1) : (i32, i32) -> () loc("sub")
  func.return
} loc("a")
func.func @b() {
  func.return
} loc("b")
"""


def at(module: ModuleOp, location: str) -> Operation:
    """The op of this location."""
    return next(op for op in module.walk() if locations.of(op) == location)


def swap(module: ModuleOp) -> bool:
    sub = at(module, "sub")
    sub.operands = tuple(reversed(sub.operands))
    return False


def drop(module: ModuleOp) -> bool:
    at(module, "sub").detach()
    return False


def add(module: ModuleOp) -> bool:
    new = TestOp([])
    new.location = at(module, "second").location
    func = next(iter(module.ops))
    func.regions[0].block.insert_op_before(new, at(module, "sub"))
    return False


def retag(module: ModuleOp) -> bool:
    at(module, "sub").attributes["tag"] = StringAttr("new")
    return False


def retype(module: ModuleOp) -> bool:
    sub = at(module, "second")
    Rewriter.replace_value_with_new_type(sub.results[0], i64)
    return False


def reorder(module: ModuleOp) -> bool:
    first = next(iter(module.ops))
    first.detach()
    module.body.block.add_op(first)
    return False


@pytest.mark.parametrize(
    ("what", "op", "location", "says"),
    [
        (swap, "test.op", "sub", "but 'test.op' has another operand 0"),
        (drop, "test.op", "sub", "but 'test.op' is gone"),
        (add, "test.op", "second", "but 'test.op' is new"),
        (retag, "test.op", "sub", "has another attribute 'tag'"),
        (retype, "test.op", "second", "has another type of result 0"),
        (reorder, "func.func", "b", "stands elsewhere"),
    ],
)
def test_a_change_that_a_pass_denies_is_found_by_op_and_location(
    what: Callable[[ModuleOp], bool], op: str, location: str, says: str
) -> None:
    bug = bug_of(PROGRAM, what)
    assert (bug.kind, bug.pass_name, bug.op, bug.location) == ("false-claim", "do", op, location), str(bug)
    assert says in str(bug)
    assert f"op: '{op}'\n  at: {location}\n  in func.func @" in str(bug), "the text says what the fields say"


def test_a_change_that_did_not_happen_is_told_with_the_rewrite_that_claimed_it() -> None:
    def claim(module: ModuleOp) -> bool:
        return journal.may("nothing-at-all", at(module, "sub"))

    bug = bug_of(PROGRAM, claim)
    assert (bug.kind, bug.op, bug.location) == ("false-claim", "test.op", "sub")
    assert "it notes a rewrite: nothing-at-all on 'test.op' at sub" in str(bug)


def test_an_op_that_lost_its_location_is_told_by_its_neighbours() -> None:
    def lose(module: ModuleOp) -> bool:
        sub = at(module, "sub")
        new = TestOp(sub.operands)
        sub.parent.insert_op_before(new, sub)  # pyright: ignore
        sub.detach()
        return True

    bug = bug_of(PROGRAM, lose)
    assert (bug.kind, bug.op, bug.location) == ("lost-location", "test.op", "sub")
    assert "stands for 'test.op' at sub; takes a value of 'test.op' at first; takes a value of 'te" in str(bug)


def test_a_crash_is_told_with_the_op_at_hand() -> None:
    def inner(op: Operation) -> None:
        raise ValueError("no good")

    def crash(module: ModuleOp) -> bool:
        for op in module.walk():
            if op.operands:
                inner(op)
        return False

    bug = bug_of(PROGRAM, crash)
    assert (bug.kind, bug.op, bug.location) == ("crash", "test.op", "sub")
    assert "raised ValueError: no good" in str(bug) and "in test_a_crash" in str(bug)
    trace = bug.trace()
    assert trace.startswith("Traceback") and trace.endswith("ValueError: no good") and "infra/manager.py" not in trace


def test_a_pattern_without_end_is_told_with_its_op() -> None:
    class Turn(RewritePattern):
        def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
            if op.name == "test.op" and op.operands:
                op.operands = tuple(reversed(op.operands))
                rewriter.notify_op_modified(op)

    bug = bug_of(PROGRAM, lambda module: rewrite(module, [Turn()]))
    assert (bug.kind, bug.op, bug.location) == ("endless-rewrite", "test.op", "sub")
    assert "Turn on 'test.op' at sub" in str(bug)


def test_an_op_that_a_pass_must_not_leave_is_its_bug() -> None:
    leaving = do(lambda module: False, legal("builtin", "func"))
    ctx, module = parse(PROGRAM)
    for op in module.walk():
        op.location = locations.named("x")
    with pytest.raises(PassBug) as caught:
        PassManager(ctx, [leaving], Watch(verify_each=True)).run(module)
    assert (caught.value.kind, caught.value.op, caught.value.location) == ("illegal-op", "test.op", "x")
    PassManager(ctx, [leaving]).run(module)


def test_a_refusal_of_a_pass_of_xdsl_is_a_refusal() -> None:
    def refuse(module: ModuleOp) -> bool:
        raise PassFailedException("cannot be done")

    ctx, module = parse(ONE)
    with pytest.raises(CompileError, match="do: cannot be done"):
        PassManager(ctx, [do(refuse)]).run(module)


def test_statistics_and_rewrites_are_measured() -> None:
    def count(module: ModuleOp) -> bool:
        journal.count("looked at", 3)
        journal.may("pattern", next(iter(module.ops)))
        return False

    ctx, module = parse(ONE)
    manager = PassManager(ctx, [do(count), AddOps(), do(count)], Watch(measure=True))
    manager.run(module)
    first, _, last = manager.records
    assert first.statistics == last.statistics == {"looked at": 3}, "each run for itself"
    assert first.rewrites == last.rewrites == {"pattern": 1}
    assert (last.ops, last.wall >= 0) == ({"builtin.module": 1, "test.op": 2}, True)
    table = statistics_table(manager.records).splitlines()
    assert table[1:] == ["   3  looked at", "   1  rewrites: pattern", "2 add-ops", "  +1  ops: test.op", *table[5:]]
    assert table[5].startswith("3 do")
    assert journal.current() is None


def test_a_journal_that_is_on_is_written_into() -> None:
    ctx, module = parse(ONE)
    with journal.recording(journal.Journal()) as mine:
        PassManager(ctx, [do(lambda m: not journal.may("p", next(iter(m.ops))))], Watch(measure=True)).run(module)
    assert [(one.pass_name, one.pattern) for one in mine.applied] == [("do", "p")]


def test_off_nothing_is_counted_or_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    from headrace.passes.infra import manager as watched

    def never(*_: object) -> None:
        raise AssertionError("off costs nothing")

    for name in ("_count", "Snapshot", "unlocated", "offences"):
        monkeypatch.setattr(watched, name, never)
    monkeypatch.setattr(Printer, "print_op", never)
    monkeypatch.setattr(journal, "Journal", never)
    ctx, module = parse(ONE)
    manager = PassManager(ctx, [AddOps()])
    assert manager.run(module)
    assert (manager.records[0].ops, manager.records[0].changed) == ({}, True)


def test_nothing_is_printed_to_find_that_nothing_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("printed")

    ctx, module = parse(PROGRAM)
    stream = io.StringIO()
    monkeypatch.setattr(Printer, "print_op", never)
    PassManager(ctx, [AddOps(0)], Watch(after_change=True, stream=stream)).run(module)
    assert stream.getvalue() == ""


def test_stages_say_what_they_take_and_give() -> None:
    ctx, module = parse(ONE)
    seen: list[str] = []
    tests, nothing = legal("builtin", "test"), legal("builtin")
    watch = Watch(on_stage=lambda name, _: seen.append(name))
    manager = PassManager(ctx, [Stage("one", (AddOps(), AddOps()), tests, tests), AddOps(0)], watch)
    manager.run(module)
    assert seen == ["one"] and [record.stage for record in manager.records] == ["one", "one", ""]
    with pytest.raises(CompileError, match=r"phase two does not take it: 'test.op' is not legal here \(3 ops\)") as no:
        PassManager(ctx, [Stage("two", (), nothing, None, lambda _: "do this")]).run(module)
    assert [d.fix for d in no.value.diagnostics] == ["do this"]
    with pytest.raises(CompileError, match=r"phase three left it: 'test.op'"):
        PassManager(ctx, [Stage("three", (AddOps(),), None, nothing)]).run(module)


def test_a_module_keeps_the_passes_that_it_has_been_through_if_asked() -> None:
    ctx, module = parse(ONE)
    PassManager(ctx, [AddOps()]).run(module)
    assert HISTORY_ATTRIBUTE not in module.attributes
    module.attributes[HISTORY_ATTRIBUTE] = StringAttr("")
    PassManager(ctx, [AddOps(), AddOps(2)], Watch(verify_each=True)).run(module)
    PassManager(ctx, [AddOps(0)]).run(module)
    assert module.attributes[HISTORY_ATTRIBUTE] == StringAttr("add-ops,add-ops{count=2},add-ops{count=0}")


def test_a_pass_to_print_must_be_there() -> None:
    ctx, module = parse(ONE)
    with pytest.raises(CompileError, match="pass 'ad-ops' is not in the pipeline") as caught:
        PassManager(ctx, [AddOps()], Watch(after=frozenset({"ad-ops"}))).run(module)
    assert caught.value.fix == "did you mean 'add-ops'?"


def test_changed_ir_is_dumped() -> None:
    ctx, module = parse(ONE)
    seen: list[tuple[int, str]] = []
    watch = Watch(dump=lambda number, one, _: seen.append((number, str(one))))
    PassManager(ctx, [AddOps(0), AddOps(), AddOps(0)], watch).run(module)
    assert seen == [(2, "add-ops")]


def test_a_refusal_names_the_pass() -> None:
    ctx, module = parse(ONE)
    with pytest.raises(CompileError) as caught:
        PassManager(ctx, [AddOps(), RefuseAll()]).run(module)
    assert caught.value.__notes__ == ["while running pass 'refuse-all'"]


def test_ir_is_printed_when_asked() -> None:
    ctx, module = parse(ONE)
    stream = io.StringIO()
    PassManager(ctx, [AddOps(), AddOps(0)], Watch(before=frozenset({ALL}), after_change=True, stream=stream)).run(
        module
    )
    text = stream.getvalue()
    assert text.count("IR before") == 2
    assert text.count("change by") == 1, "the pass that changed nothing prints nothing"
    assert '--- before test.op\n+++ after test.op\n@@ -0,0 +1 @@\n+"test.op"() {tag = "x"} : () -> ()' in text


def test_legality_reports_all_offenders() -> None:
    _, module = parse('%0 = "test.op"() : () -> i32 loc("a")\n"test.pureop"() : () -> () loc("b")')
    legal("builtin", "test").check(module, "x")
    with pytest.raises(CompileError) as caught:
        legal("builtin", illegal=("builtin.unrealized_conversion_cast",)).check(module, "after x")
    assert [(d.location, d.code) for d in caught.value.diagnostics] == [("a", "illegal-op"), ("b", "illegal-op")]


def test_build_reports_all_mistakes() -> None:
    with pytest.raises(CompileError) as caught:
        build("ad-ops,add-ops{count=12 kind=z},add-ops{nothing=1},refuse-all{x=1}", PASSES)
    assert [(d.code, d.what.partition(":")[0]) for d in caught.value.diagnostics] == [
        ("unknown-pass", "unknown pass 'ad-ops'"),
        ("bad-option", "add-ops"),
        ("bad-option", "add-ops"),
        ("bad-option", "add-ops"),
        ("bad-option", "refuse-all"),
    ]
    assert caught.value.fix == "did you mean 'add-ops'?"


def test_pipelines_are_expanded() -> None:
    pipelines = {"all": "add-ops, some,\n add-ops{count=2}", "some": "refuse-all", "loop": "loop"}
    assert [str(p) for p in build("all", PASSES, pipelines)] == ["add-ops", "refuse-all", "add-ops{count=2}"]
    with pytest.raises(CompileError, match="contains itself"):
        build("loop", PASSES, pipelines)
    with pytest.raises(CompileError, match="cannot read the pipeline"):
        build("add-ops{", PASSES)


def test_passes_are_found_by_their_file(tmp_path: Path) -> None:
    (tmp_path / "add_ops.py").write_text('class A:\n    name = "add-ops"\n')
    (tmp_path / "other_name.py").write_text('class A:\n    name = "something-else"\n')
    (tmp_path / "_helper.py").write_text('class A:\n    name = "-helper"\n')
    assert list(passes_in(tmp_path, "x")) == ["add-ops"]
