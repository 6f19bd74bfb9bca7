"""Programs for throughput: what they compute, how long they take from result to result, and what they are refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import workloads

import headrace
from headrace.dialects.support.diagnostics import CompileError
from headrace.runtime.check import check_program
from headrace.runtime.program import Agcu, Pmu, Program
from headrace.runtime.session import Executable
from headrace.runtime.timing import time_program
from headrace.tools.audit import audit_program
from headrace.tools.audit.artifact import read_program

Array = np.ndarray[Any, np.dtype[Any]]
SMALL = ("mlp_b256", "attn", "cnn", "gpt2_b1")


def inputs_of(given: Mapping[str, Array], count: int) -> list[dict[str, Array]]:
    """The inputs of a workload, and others like them."""
    rng = np.random.default_rng(3)

    def like(x: Array) -> Array:
        return x if x.dtype.kind in "iub" else rng.permuted(x.reshape(-1)).reshape(x.shape)

    return [dict(given), *({name: like(x) for name, x in given.items()} for _ in range(count - 1))]


def equal(a: Mapping[str, Array], b: Mapping[str, Array]) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


@pytest.fixture(scope="module")
def compiled() -> dict[str, tuple[Any, Executable, Executable]]:
    found: dict[str, tuple[Any, Executable, Executable]] = {}
    for name in SMALL:
        work = workloads.small(name)
        found[name] = work, headrace.compile(work.model()), headrace.compile(work.model(), opt="throughput", runs=4)
    return found


@pytest.mark.parametrize("name", SMALL)
def test_results_are_those_of_the_program_for_latency(name: str, compiled: Mapping[str, Any]) -> None:
    work, latency, throughput = compiled[name]
    given = inputs_of(work.inputs, 3)
    assert throughput.program.runs == 4
    for one, a, b in zip(given, latency.stream(given), throughput.stream(given), strict=True):
        assert equal(a, b)
        assert equal(throughput(one), b)


@pytest.mark.parametrize("name", ["mlp_b256", "attn"])
def test_runs_follow_each_other_tile_by_tile(name: str, compiled: Mapping[str, Any]) -> None:
    """In memories with frames of several runs, and weights that are loaded in the first; the last batch is short."""
    work, _, throughput = compiled[name]
    given = inputs_of(work.inputs, 6)
    literal = Executable(throughput.program, throughput.weights, literal=True)
    assert any(isinstance(u, Pmu) and u.kept for c in throughput.program.configs for u in c.units)
    for a, b in zip(throughput.stream(given), literal.stream(iter(given)), strict=True):
        for out in a:
            np.testing.assert_allclose(b[out], a[out], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", workloads.NAMES)
def test_results_come_faster_than_runs(name: str) -> None:
    """In both models; and the audit accepts the program."""
    model = workloads.small(name).model()
    alone = headrace.compile(model, shape_only=True).profile()
    done = headrace.compile(model, opt="throughput", shape_only=True)
    stream = done.profile()
    assert alone.inputs == 1 and alone.interval == alone.seconds == pytest.approx(alone.latency)
    assert stream.inputs == done.program.runs > 1
    assert stream.interval * stream.inputs == pytest.approx(stream.seconds)
    assert stream.interval < 0.5 * alone.seconds  # launches alone are more than half of it
    assert stream.interval <= stream.latency <= stream.seconds * (1 + 1e-9)
    assert sum(stream.bounds.values()) == pytest.approx(stream.cycles)
    assert stream.flops == alone.flops * stream.inputs
    assert done.profile(model="analytic").interval == pytest.approx(stream.interval, rel=0.2)


def test_weights_that_are_kept_are_loaded_once(compiled: Mapping[str, Any]) -> None:
    _, latency, throughput = compiled["mlp_b256"]
    alone, stream = latency.profile(), throughput.profile()
    weights = sum(r.type.elements * 4 for r in throughput.program.regions if r.kind == "weight")
    assert 4 * alone.hbm_bytes - stream.hbm_bytes >= 3 * weights


def test_a_profile_tells_interval_and_latency(compiled: Mapping[str, Any]) -> None:
    timing = compiled["attn"][2].profile()
    head = timing.text().splitlines()[0]
    assert "from result to result" in head and "4 at a time" in head
    found = timing.to_json()
    assert found["inputs"] == 4 and found["interval"] == timing.interval and found["latency"] == timing.latency


def test_artifacts_keep_runs(tmp_path: Path, compiled: Mapping[str, Any]) -> None:
    work, _, throughput = compiled["attn"]
    throughput.save(tmp_path / "m.sn")
    loaded = headrace.load(tmp_path / "m.sn")
    assert loaded.program.runs == 4 and loaded.manifest["goal"] == "throughput"
    assert [r.runs for r in loaded.program.regions] == [r.runs for r in throughput.program.regions]
    given = inputs_of(work.inputs, 2)
    assert all(map(equal, loaded.stream(given), throughput.stream(given)))
    assert not audit_program(read_program(loaded.program)).diagnostics


def test_states_are_refused() -> None:
    import onnx

    text = "agraph (float[4] x, float[4] past) => (float[4] present) { present = Add(x, past) }"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    assert headrace.compile(model, opt="throughput", shape_only=True).program.runs > 1
    with pytest.raises(CompileError) as caught:
        headrace.compile(model, opt="throughput", states={"past": "present"}, shape_only=True)
    assert caught.value.code == "runs-depend" and "'past'" in caught.value.what


@pytest.mark.parametrize(
    ("options", "fix"),
    [
        ({"runs": 4}, "--opt throughput"),
        ({"opt": "through"}, "did you mean 'throughput'"),
        ({"opt": "throughput", "runs": -1}, "give how many"),
        ({"opt": "throughput", "pipeline": "default"}, "put choose-runs among the passes"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: Mapping[str, Any], fix: str) -> None:
    with pytest.raises(CompileError) as caught:
        headrace.compile(workloads.small("mlp_b1").model(), shape_only=True, **options)
    assert fix in str(caught.value)


def broken(program: Program, what: str) -> Program:
    """A program in which runs get into each other's way."""
    if what == "written in one place":
        regions = tuple(replace(r, runs=1) if r.kind == "output" else r for r in program.regions)
        return replace(program, regions=regions)
    if what == "another number of tensors":
        return replace(program, regions=tuple(replace(r, runs=3) if r.runs > 1 else r for r in program.regions))
    config = program.configs[0]
    inputs = {r for r, region in enumerate(program.regions) if region.kind == "input"}
    args = program.launches[0].args
    loads = {i for i, u in enumerate(config.units) if isinstance(u, Agcu) and args[u.param][0] in inputs}
    kept = {f.dst for f in config.flows if f.src in loads}
    units = tuple(
        replace(u, kept=True, copies=4096) if i in kept and isinstance(u, Pmu) else u
        for i, u in enumerate(config.units)
    )
    return replace(program, configs=(replace(config, units=units), *program.configs[1:]))


@pytest.mark.parametrize("what", ["written in one place", "another number of tensors", "inputs that are kept"])
def test_runs_that_get_into_each_others_way_are_refused(what: str, compiled: Mapping[str, Any]) -> None:
    program = compiled["mlp_b256"][2].program
    with pytest.raises(CompileError):
        check_program(broken(program, what))
    assert {d.code for d in audit_program(read_program(broken(program, what))).diagnostics} == {"bad-runs"}
    assert not audit_program(read_program(program)).diagnostics


def test_ir_for_throughput_is_gone_on_from(tmp_path: Path) -> None:
    model = workloads.small("attn").model()
    path = tmp_path / "attn.mlir"
    path.write_text(str(headrace.lowered(model, "dataflow", opt="throughput", runs=4, shape_only=True)))
    assert headrace.compile(path, shape_only=True).program.runs == 4
    late = tmp_path / "late.mlir"
    late.write_text(str(headrace.lowered(model, "dataflow", shape_only=True)))
    with pytest.raises(CompileError, match="comes too late"):
        headrace.compile(late, opt="throughput", shape_only=True)


def test_more_runs_at_a_time_never_make_results_come_slower() -> None:
    model = workloads.small("gpt2_b1").model()
    found = [
        headrace.compile(model, opt="throughput", runs=runs, shape_only=True).profile().interval for runs in (2, 8, 32)
    ]
    assert found == sorted(found, reverse=True)


def test_a_model_without_launches_has_no_rate() -> None:
    program = headrace.compile(workloads.small("mlp_b1").model(), shape_only=True).program
    assert time_program(Program(program.device, (), (), (), (), ())).rate == 0.0
