"""The generator of random programs: what it makes, and that campaigns find planted faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import CallOp

from headrace.dialects.rdu.ops import FlowOp
from headrace.dialects.rdu.syntax import integer
from headrace.dialects.support.dtypes import BITS, from_numpy
from headrace.dialects.tensor import collective, op_classes
from headrace.dialects.tensor.base import tt
from headrace.dialects.tensor.interpreter import run_function
from headrace.dialects.tensor.program import entry, signature
from headrace.passes.dataflow.cut_sections import CutSectionsPass
from headrace.passes.dataflow.tile import TilePass
from headrace.passes.infra.manager import PassManager, Watch
from headrace.passes.infra.registry import build
from headrace.passes.infra.verify import offences, unlocated
from headrace.passes.rdu.route import RoutePass
from headrace.passes.tensor.cse import CsePass
from headrace.passes.tensor.lower_precision import LowerPrecisionPass
from headrace.tools.fuzz import DEFAULT, Distribution, Program, campaign, disagreement, random_program
from headrace.tools.fuzz.__main__ import main
from headrace.tools.fuzz.campaign import Plan, case, outcome, run
from headrace.tools.fuzz.nearby import Declined, Nearby, Value, differs
from headrace.tools.opt import context

SEEDS = 250
PROGRAMS = [random_program(seed) for seed in range(SEEDS)]


def count(fits: Callable[[Program], bool]) -> int:
    return sum(map(fits, PROGRAMS))


def test_programs_are_a_function_of_the_seed() -> None:
    for seed in range(20):
        again = random_program(seed)
        assert str(again.module) == str(PROGRAMS[seed].module)
        for name, array in PROGRAMS[seed].inputs.items():
            np.testing.assert_array_equal(array, again.inputs[name])
    assert len({str(program.module) for program in PROGRAMS}) == SEEDS


def test_programs_are_valid_and_located() -> None:
    for program in PROGRAMS:
        assert not offences(program.module)
        assert not unlocated(program.module)


def test_every_op_is_made() -> None:
    made = Counter(op.name for program in PROGRAMS for op in program.module.walk())
    between_sockets = {n for n, c in op_classes().items() if c.__module__ == collective.__name__}
    assert set(op_classes()) - between_sockets <= set(made)
    assert made["func.call"] > 20


def test_every_element_type_is_an_input_and_a_result() -> None:
    inputs = {from_numpy(array.dtype) for program in PROGRAMS for array in program.inputs.values()}
    results = {tt(x).dtype for p in PROGRAMS for x in entry(p.module).function_type.outputs}
    assert inputs == set(BITS)
    assert results == set(BITS)


def test_programs_have_what_compilers_stumble_over() -> None:
    def calls_in_calls(program: Program) -> bool:
        functions = [op for op in program.module.body.block.ops if op is not entry(program.module)]
        return any(isinstance(op, CallOp) for function in functions for op in function.walk())

    def shapes(program: Program) -> set[tuple[int, ...]]:
        return {tt(x).shape for op in entry(program.module).walk() for x in op.results}

    def returns_argument(program: Program) -> bool:
        main = entry(program.module)
        last = main.body.block.last_op
        assert last is not None
        return any(x in main.body.block.args for x in last.operands)

    assert count(lambda p: len(signature(entry(p.module)).states) == 1) > 10
    assert count(lambda p: len(signature(entry(p.module)).states) > 1) > 5
    assert count(calls_in_calls) > 3
    assert count(lambda p: any(0 in shape for shape in shapes(p))) > 10
    assert count(lambda p: () in shapes(p)) > 10
    assert count(lambda p: max(map(len, shapes(p)), default=0) >= 6) > 5
    assert count(returns_argument) > 20
    assert count(lambda p: any(not np.all(np.isfinite(a.astype(float))) for a in p.inputs.values())) > 3


def test_options_shape_the_programs() -> None:
    only = Distribution(ops=3, dtypes=("bf16", "i8"), kinds=("matmul", "cast"), plain=True)
    for seed in range(10):
        program = random_program(seed, only)
        found = {tt(x).dtype for op in program.module.walk() for x in op.results}
        assert found <= {"bf16", "i8", "i32", "i64"}  # products of i8 may be summed in wider types
    large = max(a.size for seed in range(20) for a in random_program(seed, Distribution(size="large")).inputs.values())
    assert large > max(array.size for program in PROGRAMS for array in program.inputs.values())


def test_what_depends_on_roundings_is_declined() -> None:
    nearby = Nearby(0, wild=False, most=100)
    x = Value(np.float32([1.0, 3.0]), np.float32([1.0, 3.0000005]))
    (y,) = nearby.evaluate("tensor.exp", {}, [x])
    assert differs(y.array, y.near, 1e-5) is None
    one = Value(*[np.float32([1.0, 3.0])] * 2)
    (difference,) = nearby.evaluate("tensor.sub", {}, [one, one])
    assert not difference.array.any()
    with pytest.raises(Declined, match="depends on roundings"):
        nearby.evaluate("tensor.sub", {}, [x, Value(*[np.float32([1.0, 2.999999])] * 2)])  # little but the rounding
    with pytest.raises(Declined, match="depends on roundings"):
        nearby.evaluate("tensor.less", {}, [one, x])  # 3 is not less than 3, but than its neighbour
    with pytest.raises(Declined, match="depends on roundings"):
        zeros = Value(*[np.zeros(40, np.float32)] * 2)
        (maximum,) = nearby.evaluate("tensor.max", {}, [zeros, zeros])
        nearby.evaluate("tensor.atan2", {}, [maximum, Value(*[np.full(40, -1, np.float32)] * 2)])  # π or -π
    with pytest.raises(Declined, match="too large"):
        nearby.evaluate("tensor.reciprocal", {}, [difference])
    with pytest.raises(Declined, match="range"):
        nearby.evaluate("tensor.cast", {"to": "i8"}, [Value(*[np.float32([200.0])] * 2)])
    with pytest.raises(Declined, match="overflows"):
        large = Value(*[np.float16([-8188.0, np.inf])] * 2)
        Nearby(0, wild=True, most=100).evaluate("tensor.mul", {}, [large, large])
    with pytest.raises(Declined, match="factor is not finite"):
        row, one, infinite = (Value(*[np.float32([[n]])] * 2) for n in (-0.0, 1.0, np.inf))
        scale, bias = (Value(*[x.array[0]] * 2) for x in (infinite, one))
        Nearby(0, wild=True, most=100).evaluate("tensor.batch_norm", {"epsilon": 1e-5}, [row, scale, *[bias] * 3])


@pytest.mark.parametrize("rounds", ["", "bf16"])
def test_what_jumps_at_a_value_that_is_rounded_is_declined(rounds: str) -> None:
    """erf of a large number is 1 or just less, so floor of it is anything; whatever the neighbour drawn."""
    axis = {"axis": 0, "keepdims": False, "select_last": False}
    for seed in range(20):
        nearby = Nearby(seed, wild=False, most=100, rounds=rounds)
        (ones,) = nearby.evaluate("tensor.erf", {}, [nearby.leaf(np.float32([4.0, 4.0]))])
        (half,) = nearby.evaluate("tensor.erf", {}, [nearby.leaf(np.float32([0.5, 1.0]))])
        exact = nearby.leaf(np.float32([1.0, 1.0]))
        for name, attrs, operands in (
            ("floor", {}, [ones]),
            ("cast", {"to": "i32"}, [ones]),
            ("less", {}, [ones, exact]),
            ("equal", {}, [exact, ones]),
            ("mod", {"fmod": False}, [exact, ones]),
            ("argmax", axis, [ones]),
        ):
            with pytest.raises(Declined, match="depends on"):
                nearby.evaluate(f"tensor.{name}", attrs, operands)
            if name != "mod":  # 1 is a multiple of 1
                nearby.evaluate(f"tensor.{name}", attrs, [half if x is ones else x for x in operands])
        (whole,) = nearby.evaluate("tensor.round", {}, [half])  # 1 and 1, whatever the neighbour
        nearby.evaluate("tensor.floor", {}, [whole])
        nearby.evaluate("tensor.argmax", axis, [whole])
        nearby.evaluate("tensor.floor", {}, [exact])


def test_disagreement_knows_infinities_and_integers() -> None:
    inf, nan = np.float32([np.inf, 1]), np.float32([np.nan, 1])
    assert not disagreement({"y": inf}, {"y": inf})
    assert not disagreement({"y": nan}, {"y": nan})
    assert disagreement({"y": inf}, {"y": -inf})
    assert disagreement({"y": inf}, {"y": nan})
    assert disagreement({"y": np.int8([1, 2])}, {"y": np.int8([1, 3])}) == "y: 1 of 2 elements differ"
    assert "error" in disagreement({"y": np.float32([1, 2])}, {"y": np.float32([1, 2.001])})
    assert "int32" in disagreement({"y": np.int8([1])}, {"y": np.int32([1])})


def swap_operands(self: CsePass, ctx: Context, module: ModuleOp) -> bool:
    """A fault: the operands of subtractions change places."""
    found = [op for op in module.walk() if op.name == "tensor.sub" and op.operands[0].type == op.operands[1].type]
    for op in found:
        op.operands = list(op.operands)[::-1]
    return any(op.operands[0] is not op.operands[1] for op in found)


@pytest.mark.parametrize("mode", ["pipeline", "pass"])
def test_a_planted_fault_is_found(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CsePass, "run", swap_operands)
    like = Distribution(kinds=("arithmetic", "written_out", "reshape"), plain=True)
    summary = run(range(20), Plan(mode, like, passes=("cse",)))
    assert any(one.code.startswith("disagreement: after ") for one in summary.failed)
    assert "FAILED" in summary.text()


@pytest.mark.parametrize(("level", "cut"), [("O0", "op"), ("O1", "rule"), ("O3", "time")])
def test_a_level_cuts_sections_as_the_compiler_does(level: str, cut: str) -> None:
    for seed in range(10):
        pipeline = case(seed, Plan(level=level)).setting.pipeline
        assert [one.by for one in build(pipeline) if isinstance(one, CutSectionsPass)] == [cut]
        assert level != "O0" or "fuse-stages" not in pipeline
    assert not outcome(1, Plan(level=level, device="sn40l")).text


def test_programs_for_a_precision_bear_it() -> None:
    """Every program lowers f32 to bf16, and its results are as near as the compiler is held to."""
    plan = Plan(precision="bf16", like=Distribution(dtypes=("f32", "i32", "i1"), plain=True), device="sn40l")
    lowered = 0
    for seed in range(8):
        one = case(seed, plan)
        module = one.program.module.clone()
        PassManager(context(), build("lower-precision"), Watch()).run(module)
        lowered += any("bf16" in str(x.type) for op in module.walk() for x in op.results)
        assert "lower-precision{weights=bf16" in one.setting.pipeline
        assert not outcome(seed, plan).text
    assert lowered > 5


def test_what_depends_on_roundings_to_bf16_is_declined() -> None:
    x, y = np.float32([1.0, 3.0]), np.float32([1.01, 3.01])
    for rounds in ("", "bf16"):
        nearby = Nearby(0, wild=False, most=100, rounds=rounds)
        given = [nearby.leaf(x), nearby.leaf(y)]
        with pytest.raises(Declined, match="depends on") if rounds else nullcontext():
            nearby.evaluate("tensor.sub", {}, given)
    whole = np.int32([1, 3])
    assert nearby.leaf(whole).near is whole
    equal_in_bf16 = nearby.leaf(np.float32([1.0, 1.001]))
    with pytest.raises(Declined, match="depends on"):
        nearby.evaluate("tensor.argmax", {"axis": 0, "keepdims": False, "select_last": False}, [equal_in_bf16])


def test_a_planted_fault_of_a_precision_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lowering that computes something else, and a pass after it that does."""
    like = Distribution(kinds=("arithmetic", "reshape"), plain=True)
    original = LowerPrecisionPass.run

    def lower_and_swap(self: LowerPrecisionPass, ctx: Context, module: ModuleOp) -> bool:
        original(self, ctx, module)
        for op in module.walk():
            if op.name == "tensor.sub" and op.operands[0].type == op.operands[1].type:
                op.operands = list(op.operands)[::-1]
        return True

    with monkeypatch.context() as fault:
        fault.setattr(LowerPrecisionPass, "run", lower_and_swap)
        codes = {one.code for one in run(range(8), Plan(like=like, precision="bf16")).failed}
    assert any("after lower-precision" in code for code in codes)
    monkeypatch.setattr(CsePass, "run", swap_operands)
    codes = {one.code for one in run(range(8), Plan(like=like, precision="bf16")).failed}
    assert any("after cse" in code for code in codes)


def test_a_mapping_that_the_audit_refuses_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer credits than a round trip change no result and break no rule of the IR."""
    original = RoutePass.run

    def run_short(self: RoutePass, ctx: Context, module: ModuleOp) -> bool:
        changed = original(self, ctx, module)
        for op in module.walk():
            if isinstance(op, FlowOp):
                op.credits = integer(1)
        return changed

    monkeypatch.setattr(RoutePass, "run", run_short)
    found = outcome(0, Plan(device="sn40l"))
    assert (found.kind, found.code) == ("failed", "unsound: too-few-credits"), found


def test_a_failure_is_reduced_and_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The program has the one op that is needed, and headrace-opt fails on it as the RUN line says."""
    original = TilePass.run

    def refuse_tanh(self: TilePass, ctx: Context, module: ModuleOp) -> bool:
        if any(op.name == "tensor.tanh" for op in module.walk()):
            raise ValueError("planted")
        return original(self, ctx, module)

    monkeypatch.setattr(TilePass, "run", refuse_tanh)
    summary = run(range(40), Plan("pass", passes=("tile",), device="sn40l"), failures=tmp_path)
    assert summary.failed
    assert {one.code for one in summary.failed} == {"crash tile ValueError in " + refuse_tanh.__qualname__}
    text = next(iter(tmp_path.glob("*.mlir"))).read_text()
    assert text.startswith("// RUN: headrace-opt %s -p 'tile")
    assert "--count 1" in text
    assert text.count(" = tensor.") <= 2  # tanh, and what it is taken of


def test_a_seed_gives_the_same_outcome_in_any_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """And processes take each other's place."""
    monkeypatch.setattr(campaign, "EACH", 1)
    monkeypatch.setattr(campaign, "FRESH", 1)
    here = [outcome(seed, Plan()) for seed in range(3)]
    there = run(range(3), Plan(), jobs=2)
    assert there.programs == 3
    assert there.ops == sum((one.ops for one in here), Counter())


def test_command_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert main(["--count", "4", "--ops", "2", "--device", "small"]) == 0
    assert "4 programs" in capsys.readouterr().out
    monkeypatch.setattr(CsePass, "run", lambda *_: True)
    given = ["--count", "2", "--ops", "2", "--mode", "pass", "--passes", "cse", "--failures", str(tmp_path)]
    assert main(given) == 1
    assert "says that it changed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flag", "value", "told"),
    [
        ("--passes", "tiles", "did you mean 'tile'"),
        ("--dtypes", "f32,bf61", "did you mean 'bf16'"),
        ("--kinds", "matmull", "did you mean 'matmul'"),
        ("--device", "sn40", "did you mean 'sn40l'"),
    ],
)
def test_names_that_are_none(flag: str, value: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([flag, value])
    assert told in capsys.readouterr().err


def test_programs_run_with_their_inputs() -> None:
    for program in PROGRAMS[:50]:
        with np.errstate(all="ignore"):
            found = run_function(program.module, "main", program.inputs, program.store)
        assert list(found) == list(signature(entry(program.module)).results)


def test_the_default_distribution_has_every_type() -> None:
    assert set(DEFAULT.dtypes) == set(BITS)
