"""Phases: stopping after one and going on from there gives the same artifact; what is out of place is listed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import workloads
from command import headrace as command
from command import succeeds
from xdsl.dialects.builtin import ModuleOp

import headrace
from headrace.compiler import lower, translate
from headrace.dialects.support.diagnostics import CompileError
from headrace.passes import pipelines
from headrace.passes.infra.registry import build
from headrace.tools.demo import Attention
from headrace.tools.opt import context, parse
from headrace.tools.watching import text_of

DEMO = Attention(tokens=16, width=16, heads=2)


def read(text: str) -> ModuleOp:
    return parse(context(), text, "x.mlir")[0]


@pytest.mark.parametrize("name", workloads.NAMES)
def test_stopping_and_going_on_gives_the_same_bytes(name: str, tmp_path: Path) -> None:
    """For each workload and phase: the IR is written and read, and compiled on to the same artifact."""
    model = tmp_path / "m.onnx"
    onnx.save(workloads.small(name).model(), model)
    texts: dict[str, str] = {}
    translate(model, on_phase=lambda phase, module: texts.update({phase: text_of(module)})).write(tmp_path / "m.sn")
    assert tuple(texts) == pipelines.NAMES
    whole = (tmp_path / "m.sn").read_bytes()
    for phase, text in texts.items():
        stopped = tmp_path / f"{phase}.mlir"
        stopped.write_text(text, encoding="utf-8")
        assert pipelines.reached(read(text)) == phase
        headrace.compile(stopped, weights=model, out=tmp_path / "again.sn")
        assert (tmp_path / "again.sn").read_bytes() == whole, phase


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("demo") / "m.onnx"
    onnx.save(DEMO.model(), path)
    return path


def test_the_command_stops_and_goes_on(demo: Path) -> None:
    said = succeeds("compile", demo, "--to=dataflow").out
    stopped = demo.with_name("m.dataflow.mlir")
    assert said.startswith(f"{stopped}: after phase dataflow, ") and "dataflow.section" in stopped.read_text()
    succeeds("compile", demo, "-o", demo.with_name("m.sn"))
    for flags in ((), ("--from=dataflow",)):
        succeeds("compile", stopped, "--weights", demo, "-o", demo.with_name("again.sn"), *flags)
        assert demo.with_name("again.sn").read_bytes() == demo.with_name("m.sn").read_bytes()
    assert succeeds("compile", demo, "--to=tensor", "-o", "-").out.startswith("builtin.module attributes {")


def test_in_python_the_ir_of_a_phase_is_a_module(demo: Path) -> None:
    module = headrace.lowered(demo, "tensor", "sn10")
    assert 'machine.device<"sn10"' in str(module) and {op.name for op in module.body.block.ops} == {"func.func"}
    text = text_of(module)
    stopped = demo.with_name("x.mlir")
    stopped.write_text(text, encoding="utf-8")
    exe = headrace.compile(stopped, weights=demo, start="tensor")
    assert exe.program.device["name"] == "sn10"
    np.testing.assert_allclose(exe(DEMO.inputs())["y"], DEMO.reference(**DEMO.inputs()), rtol=1e-4, atol=1e-5)


def test_weights_of_an_onnx_model_need_its_dims(tmp_path: Path) -> None:
    proto = DEMO.model()
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    onnx.save(proto, tmp_path / "m.onnx")
    succeeds("compile", tmp_path / "m.onnx", "--to=tensor", "--dim", "batch=16")
    stopped = tmp_path / "m.tensor.mlir"
    refused = command("compile", stopped, "--weights", tmp_path / "m.onnx", "-o", tmp_path / "m.sn")
    assert refused.code == 2 and "--dim batch=" in refused.err
    succeeds("compile", stopped, "--weights", tmp_path / "m.onnx", "--dim", "batch=16", "-o", tmp_path / "m.sn")
    assert command("compile", stopped, "--dim", "batch=16", "-o", tmp_path / "m.sn").code == 2


# What is out of place


TENSORS = """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = tensor.neg %x : tensor<4xf32> -> tensor<4xf32> loc("first")
  %1 = tensor.abs %0 : tensor<4xf32> -> tensor<4xf32> loc("second")
  %2 = tensor.neg %1 : tensor<4xf32> -> tensor<4xf32> loc("third")
  func.return %2 : tensor<4xf32>
}
"""


def test_every_offender_is_listed_with_what_to_do() -> None:
    with pytest.raises(CompileError) as caught:
        lower(read(TENSORS), start="dataflow")
    assert [(d.code, d.location) for d in caught.value.diagnostics] == [
        ("illegal-op", "first"),
        ("illegal-op", "second"),
        ("illegal-op", "third"),
    ]
    assert "after phase dataflow: 'tensor.neg' is not legal directly inside 'func.func'" in str(caught.value)
    assert caught.value.fix == "run phase tensor first: --from=import"


def test_a_phase_that_was_run_already_is_told() -> None:
    module = read(TENSORS)
    lower(module)
    for start in ("import", "dataflow"):
        with pytest.raises(CompileError) as caught:
            lower(module.clone(), start=start)
        assert caught.value.fix == "it is through all phases: --from=rdu"
        assert {d.code for d in caught.value.diagnostics} == {"illegal-op"}


@pytest.mark.parametrize(
    ("until", "lacks"),
    [
        ("bank-memories", "'dataflow.buffer' is not spread over memory units yet"),
        ("route", "'rdu.config' is not routed"),
    ],
)
def test_ir_in_the_middle_of_a_phase_is_not_taken_for_its_end(until: str, lacks: str) -> None:
    """The passes before `until` have run."""
    module = read(TENSORS)
    passes = [name for phase in pipelines.PHASES.values() for name in phase.passes]
    lower(module, pipeline=",".join(passes[: passes.index(until)]))
    assert pipelines.reached(module) == ""
    with pytest.raises(CompileError) as caught:
        lower(module.clone(), start="dataflow" if until == "bank-memories" else "rdu")
    assert lacks in caught.value.what and "in the middle of a phase" in caught.value.fix
    with pytest.raises(CompileError, match="illegal-op"):
        lower(module.clone())
    lower(module, pipeline=",".join(passes[passes.index(until) :]))
    assert pipelines.reached(module) == "rdu", "the rest of the passes brings it to the end"


def test_a_program_without_work_is_no_dataflow_yet() -> None:
    module = read("func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n  func.return %x : tensor<4xf32>\n}")
    assert pipelines.reached(module) == "import"


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--to=tensr",), "did you mean 'tensor'"),
        (("--from=nothing",), "--from=nothing: there is no such phase"),
        (("--to=tensor", "--from=rdu"), "--to=tensor comes before --from=rdu"),
        (("--to=tensor", "-o", "x.sn"), "writes IR, not an artifact: -o x.mlir"),
        (("--to=tensor", "--passes", "cse"), "--to stops the default passes"),
        (("--from=tensor", "--passes", "cse"), "name phases in the pipeline"),
    ],
)
def test_bad_phases_are_refused(demo: Path, flags: tuple[str, ...], says: str) -> None:
    result = command("compile", demo, *flags)
    assert result.code == 2 and says in result.err, result.err
    assert "Traceback" not in result.err


# headrace-opt


def test_headrace_opt_runs_phases(opt) -> None:
    device = ("--device", "sn40l")
    dataflow = opt(TENSORS, "--to=dataflow", *device)
    assert dataflow.code == 0, dataflow.err
    assert dataflow.out == opt(TENSORS, "-p", "tensor,dataflow", *device).out
    assert opt(dataflow.out, "--to=rdu").out == opt(TENSORS, "-p", "default", *device).out, "goes on from where it is"
    assert opt(dataflow.out, "--from=dataflow").out == opt(dataflow.out, "--to=rdu").out
    cut = opt(TENSORS, "--to=tensor", "-p", "convert-tensor-to-dataflow")
    assert cut.out == opt(TENSORS, "-p", "tensor,convert-tensor-to-dataflow").out, "then the passes of -p"
    wrong = opt(TENSORS, "--from=dataflow", *device)
    assert wrong.code == 2
    assert [line.partition(": error")[0] for line in wrong.err.splitlines() if "error" in line] == [
        "<stdin>:2:3",
        "<stdin>:3:3",
        "<stdin>:4:3",
    ]
    assert "fix: run phase tensor first: --from=import" in wrong.err
    assert "there is no such phase" in opt(TENSORS, "--to=nothing").err


def test_the_printed_pipeline_pastes_back(opt) -> None:
    """Options of every type, twice the same pass, and pipelines by name: the text gives the same passes and IR."""
    given = (
        "tensor,cse,fold-constants{max-elements=64},convert-tensor-to-dataflow,fuse-stages{most=2},"
        "tile{rows=1 resident=0.5 chunk=64},cut-sections,parallelize{share=0.25},size-buffers{copies=3}"
    )
    names = {one.name for one in build(given, pipelines=pipelines.PIPELINES)}
    first = opt(TENSORS, "-p", given, "--device", "sn40l", "--print-pipeline")
    assert first.code == 0, first.err
    text = first.err.strip()
    assert "tile{rows=1 " in text and "resident=0.5" in text and "tensor," not in text
    again = opt(TENSORS, "-p", text, "--device", "sn40l", "--print-pipeline")
    assert (again.out, again.err.strip()) == (first.out, text)
    assert {one.name for one in build(text)} == names


def test_every_pass_with_every_option_set_pastes_back() -> None:
    """`str` of a pass is text that builds the same pass."""
    from dataclasses import fields, replace

    from headrace.passes.infra.registry import available

    other = {bool: lambda v: not v, int: lambda v: v + 1, float: lambda v: v / 2}
    for name, factory in available().items():
        one = factory()()
        for field in fields(one):
            value = getattr(one, field.name)
            choices = [c for c in field.metadata.get("choices") or () if c != value]
            if isinstance(value, str) and choices:
                one = replace(one, **{field.name: choices[0]})
            elif type(value) in other:
                try:
                    one = replace(one, **{field.name: other[type(value)](value)})
                except CompileError:  # beyond the range
                    one = replace(one, **{field.name: field.metadata.get("low", value)})
        assert build(str(one)) == (one,), name
