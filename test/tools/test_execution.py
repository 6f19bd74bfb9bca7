"""--check-execution names the pass that changes the results, and the op."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
import onnx_models
import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from headrace.dialects.machine.attributes import set_device
from headrace.dialects.machine.device import load_device
from headrace.dialects.rdu.attributes import RoutesAttr
from headrace.dialects.rdu.config import FlowOp
from headrace.dialects.rdu.routes import Routes
from headrace.dialects.support import locations
from headrace.dialects.support.diagnostics import CompileError
from headrace.dialects.tensor.base import create
from headrace.passes import pipelines
from headrace.passes.infra.base import Pass
from headrace.passes.infra.manager import PassBug, PassManager, Watch
from headrace.passes.infra.registry import build
from headrace.passes.infra.rewriting import LocatingRewriter, lower
from headrace.tools import opt as driver
from headrace.tools.execution import Execution, deviation

PROGRAM = """\
func.func @main(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %w = tensor.weight "w" : tensor<3xf32>
  %0 = tensor.add %x, %w : tensor<2x3xf32>, tensor<3xf32> -> tensor<2x3xf32> loc("Add")
  func.return %0 : tensor<2x3xf32>
}
"""
UNCHANGED = "execution after cse: the program is the same\n"


@dataclass(frozen=True)
class AddToSub(Pass):
    """Wrong on purpose."""

    name: ClassVar[str] = "add-to-sub"

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        from headrace.dialects.tensor.elementwise import AddOp, SubOp

        def handle(op: AddOp, rewriter: LocatingRewriter) -> None:
            rewriter.replace(op, SubOp.create(operands=op.operands, result_types=[op.results[0].type]))

        return lower(module, {AddOp: handle})


@dataclass(frozen=True)
class Nothing(Pass):
    """Leaves the program as it is and says that it changed it."""

    name: ClassVar[str] = "nothing"

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        return True


def check(text: str, before: str, *passes: Pass, said: list[str] | None = None, device: str = "") -> None:
    """Run a pipeline, then passes under the check."""
    ctx = driver.context()
    module, _ = driver.parse(ctx, text, "x.mlir")
    if device:
        set_device(module, load_device(device))
    PassManager(ctx, build(before, pipelines=pipelines.PIPELINES)).run(module)
    execution = Execution(say=(said if said is not None else []).append)
    execution.start(module)
    PassManager(ctx, passes, Watch(check=execution.check)).run(module)


def test_the_pass_and_the_op_that_change_the_results_are_named() -> None:
    with pytest.raises(PassBug, match=r"first op that deviates: 'tensor.sub' at Add \(before: 'tensor.add'") as caught:
        check(PROGRAM, "", AddToSub())
    bug = caught.value
    assert (bug.kind, bug.spec, bug.op, bug.location) == ("changed-results", "add-to-sub", "tensor.sub", "Add")


LAYER = """\
func.func @main(%x: tensor<8x16xf32>) -> tensor<8x16xf32> {
  %w = tensor.weight "w" : tensor<16x16xf32> loc("w")
  %b = tensor.weight "b" : tensor<16xf32> loc("b")
  %0 = tensor.matmul %x, %w : tensor<8x16xf32>, tensor<16x16xf32> -> tensor<8x16xf32> loc("MatMul")
  %1 = tensor.tanh %0 : tensor<8x16xf32> -> tensor<8x16xf32> loc("Tanh")
  %2 = tensor.add %1, %b : tensor<8x16xf32>, tensor<16xf32> -> tensor<8x16xf32> loc("Add")
  %3 = tensor.softmax %2 {axis = 1} : tensor<8x16xf32> -> tensor<8x16xf32> loc("Softmax")
  func.return %3 : tensor<8x16xf32>
}
"""


@pytest.mark.parametrize("before", ["", "convert-tensor-to-dataflow", "convert-tensor-to-dataflow,fuse-stages"])
def test_an_op_inside_a_stage_is_named(before: str) -> None:
    """Also one whose value goes nowhere but to the next op of its stage."""
    with pytest.raises(PassBug) as caught:
        check(LAYER, before, AddToSub())
    assert (caught.value.op, caught.value.location) == ("tensor.sub", "Add")


@dataclass(frozen=True)
class Planted(Pass):
    """Runs a pipeline, then makes something else of one op. Wrong on purpose."""

    name: ClassVar[str] = "planted"
    pipeline: str = ""
    which: int = 0

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        PassManager(ctx, build(self.pipeline, pipelines=pipelines.PIPELINES)).run(module)
        others = {"tensor.add": "tensor.sub", "tensor.mul": "tensor.add", "tensor.tanh": "tensor.sigmoid"}
        ops = [op for op in module.walk() if op.name in (*others, "tensor.sub")]
        op = ops[self.which % len(ops)]
        PLACES[:] = locations.nodes(op.location)
        if op.name == "tensor.sub":
            op.operands = list(op.operands)[::-1]
        else:
            new = create(others[op.name], list(op.operands), {}, op.location)
            op.parent_block().insert_op_before(new, op)  # pyright: ignore[reportOptionalMemberAccess]
            op.results[0].replace_all_uses_with(new.results[0])
            op.detach()
            op.erase()
        return True


PLACES: list[str] = []
"""Where the last fault was planted."""


def layers(count: int) -> str:
    """Equal layers, which are outlined."""
    one = "tensor<4x8xf32>"
    lines = [f'func.func @main(%x0: {one} {{tensor.name = "x"}}) -> {one} {{']
    for i in range(count):
        x, at = f"%x{i}", f"layer.{i}"
        lines += [
            f'%w{i} = tensor.weight "w{i}" : tensor<8x8xf32> loc("{at}/w")',
            f'%m{i} = tensor.matmul {x}, %w{i} : {one}, tensor<8x8xf32> -> {one} loc("{at}/MatMul")',
            f'%t{i} = tensor.tanh %m{i} : {one} -> {one} loc("{at}/Tanh")',
            f'%s{i} = tensor.sub {x}, %t{i} : {one}, {one} -> {one} loc("{at}/Sub")',
            f'%u{i} = tensor.mul %s{i}, %t{i} : {one}, {one} -> {one} loc("{at}/Mul")',
            f'%v{i} = tensor.softmax %u{i} {{axis = 1}} : {one} -> {one} loc("{at}/Softmax")',
            f'%x{i + 1} = tensor.add {x}, %v{i} : {one}, {one} -> {one} loc("{at}/Add")',
        ]
    return "\n".join([*lines, f"func.return %x{count} : {one}", "}"])


@pytest.mark.parametrize("which", [3, 7, 12, 18])
@pytest.mark.parametrize(
    "before, inside",
    [
        ("", ""),
        ("", "tensor"),
        ("tensor", "convert-tensor-to-dataflow,fuse-stages"),
        ("", "tensor,dataflow"),
        ("tensor,dataflow", "convert-dataflow-to-rdu"),
        ("tensor", "dataflow,rdu"),
        ("default", ""),
    ],
)
def test_a_fault_is_placed_at_every_level_and_between_two(before: str, inside: str, which: int) -> None:
    """By op and place in the model, inside stages and units, and in the layer of a shared function."""
    with pytest.raises(PassBug) as caught:
        check(layers(4), before, Planted(inside, which), device="sn40l")
    assert caught.value.kind == "changed-results"
    assert set(caught.value.location.split(" + ")) <= set(PLACES), (caught.value, PLACES)


def test_a_fault_of_the_runtime_is_told_from_one_of_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    from headrace.runtime.kernels import chain

    right = chain.bind_call

    def wrong(call: Any) -> list[Any]:
        steps = right(call)
        target = call.outputs[0]
        return [*steps, (lambda: np.multiply(target, 1.5, out=target), ())] if call.name == "tensor.tanh" else steps

    monkeypatch.setattr(chain, "bind_call", wrong)
    ctx = driver.context()
    module, _ = driver.parse(ctx, LAYER, "x.mlir")
    set_device(module, load_device("plasticine"))
    execution = Execution(say=lambda _: None)
    execution.start(module)
    with pytest.raises(PassBug, match=r"the runtime: it computes 'tensor\.tanh' at Tanh otherwise than it means"):
        PassManager(ctx, build("default", pipelines=pipelines.PIPELINES), Watch(check=execution.check)).run(module)


def test_units_run_before_they_are_placed_and_a_fault_of_a_pass_on_them_is_named() -> None:
    """Also the op inside a unit whose value is in no memory."""
    with pytest.raises(PassBug) as caught:
        check(LAYER, "tensor,dataflow,convert-dataflow-to-rdu", AddToSub(), device="plasticine")
    assert (caught.value.op, caught.value.location) == ("tensor.sub", "Add")


@dataclass(frozen=True)
class CutRoute(Pass):
    """Takes a pair of sites out of a flow. Wrong on purpose."""

    name: ClassVar[str] = "cut-route"

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        for op in module.walk():
            if isinstance(op, FlowOp) and op.routes is not None and len(op.routes.data.pairs) > 1:
                pairs, ways, channels = op.routes.data
                op.routes = RoutesAttr(Routes(pairs[1:], ways[1:], channels[1:]))
                return True
        return False


def test_words_that_do_not_arrive_are_found() -> None:
    with pytest.raises(PassBug, match="makes a program that the runtime refuses") as caught:
        check(layers(2).replace("4x8x", "64x64x").replace("8x8x", "64x64x"), "default", CutRoute(), device="sn40l")
    assert (caught.value.kind, caught.value.spec) == ("invalid-ir", "cut-route")


def test_a_program_that_stays_as_it_is_is_not_run_again() -> None:
    said: list[str] = []
    check(LAYER, "", Nothing(), said=said)
    assert said == ["execution after nothing: the program is the same"]


def test_a_right_pass_passes_with_files_and_with_seeds(opt, tmp_path: Path) -> None:
    np.savez(tmp_path / "w.npz", w=np.ones(3, np.float32))
    np.savez(tmp_path / "x.npz", arg0=np.ones((2, 3), np.float32))
    for more in ([], [str(tmp_path / "x.npz"), "--weights", str(tmp_path / "w.npz")], ["random:3"]):
        result = opt(PROGRAM, "-p", "cse", "--check-execution", *more)
        assert (result.code, result.err) == (0, UNCHANGED)
    assert opt(PROGRAM, "-p", "cse", "--check-execution", "--weights", "random:x").code == 2
    assert opt(PROGRAM, "-p", "cse", "--check-execution", str(tmp_path / "none.npz")).code == 2
    wrong = opt(PROGRAM, "-p", "cse", "--check-execution", str(tmp_path / "w.npz"))
    assert wrong.code == 2
    assert "Traceback" not in wrong.err


def test_a_file_after_the_flag_is_the_program(opt, tmp_path: Path) -> None:
    (tmp_path / "p.mlir").write_text(PROGRAM)
    result = opt("", "-p", "cse", "--check-execution", str(tmp_path / "p.mlir"))
    assert (result.code, result.err) == (0, UNCHANGED)


def test_weights_of_an_onnx_model(opt, tmp_path: Path) -> None:
    helper = onnx_models.helper
    array = onnx_models.array
    proto = onnx_models.model(
        [helper.make_node("Add", ["x", "w"], ["y"], name="add")], [onnx_models.info("x", array(2, 3))], ["y"],
        {"w": array(3, seed=1)},
    )  # fmt: skip
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    result = opt(PROGRAM, "-p", "cse", "--check-execution", "--weights", str(tmp_path / "m.onnx"))
    assert (result.code, result.err) == (0, UNCHANGED)


def test_the_tolerance_is_an_option(opt) -> None:
    text = PROGRAM.replace("tensor.add", "tensor.sub")
    assert opt(text, "-p", "default", "--device", "plasticine", "--check-execution", "--tolerance", "0").code == 0
    assert opt(text, "--check-execution", "--tolerance", "much").code == 2


def test_deviations() -> None:
    one = np.array([1.0, np.nan, np.inf, -2.0], np.float32)
    assert deviation(one.copy(), one).absolute == 0.0 and deviation(one.copy(), one).ok
    for wrong in ([1.001, np.nan, np.inf, -2.0], [1.0, 0.0, np.inf, -2.0], [1.0, np.nan, -np.inf, -2.0]):
        assert not deviation(np.array(wrong, np.float32), one).ok
    assert "is f64[4], expected f32[4]" in str(deviation(one.astype(np.float64), one))
    assert not deviation(np.array([1, 3]), np.array([1, 2])).ok
    large = np.array([2**62], np.int64)
    assert not deviation(large + 1, large).ok and deviation(large + 1, large).ulp == 1
    assert deviation(np.zeros((0, 3)), np.zeros((0, 3))).ok
    for dtype in (np.float32, np.int64, np.int32, np.bool_):  # of no dims
        assert deviation(np.array(1, dtype), np.array(1, dtype)).ok
        wrong = deviation(np.array(0, dtype), np.array(1, dtype))
        assert not wrong.ok and wrong.worst == () and wrong.absolute == 1


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
def test_units_in_the_last_place(dtype: type) -> None:
    """Neighbours are one apart, also around zero."""
    tiny = np.finfo(dtype).smallest_subnormal if dtype is not ml_dtypes.bfloat16 else ml_dtypes.finfo(dtype).tiny
    for x in (1.0, -1.0, 1024.0):
        a = np.array([x], dtype)
        assert deviation(np.nextafter(a, dtype(2 * x)), a, 1.0).ulp == 1
    if dtype is not ml_dtypes.bfloat16:
        assert deviation(np.array([-tiny], dtype), np.array([tiny], dtype)).ulp == 2


def test_the_worst_element_is_shown() -> None:
    reference = np.arange(6, dtype=np.float32).reshape(2, 3)
    found = reference.copy()
    found[1, 1] += 0.5
    shown = deviation(found, reference)
    assert (shown.worst, shown.was, shown.found, shown.absolute) == ((1, 1), 4.0, 4.5, 0.5)
    assert str(shown).startswith("[1, 1] was 4, is 4.5: abs 5.00e-01, rel 1.00e-01 (allowed 1e-04)")


def test_what_cannot_run_is_refused() -> None:
    ctx = driver.context()
    module, _ = driver.parse(ctx, 'func.func @main() {\n  "test.op"() : () -> ()\n  func.return\n}', "x.mlir")
    with pytest.raises(CompileError, match=r"test\.op is not a tensor op"):
        Execution().start(module)
