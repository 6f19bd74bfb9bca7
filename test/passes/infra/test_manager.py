"""The pass manager watches passes: change, time, op counts, validity, locations; the registry finds and builds them."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp, StringAttr
from xdsl.dialects.func import Func
from xdsl.dialects.test import Test, TestOp
from xdsl.parser import Parser
from xdsl.transforms.dead_code_elimination import DeadCodeElimination

from headrace.dialects.support.diagnostics import CompileError
from headrace.passes.infra.base import Pass, option
from headrace.passes.infra.legality import legal
from headrace.passes.infra.manager import ALL, PassBug, PassManager, Watch, timing_table
from headrace.passes.infra.registry import build, passes_in


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
        (AddOps(located=False), "pass 'add-ops{located=false}' made 1 op without a location: 'test.op' [lost-location]\n  op: 'test.op'\n  at: here"),
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
