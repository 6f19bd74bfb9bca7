"""What an artifact promises, on compiled workloads: the same bytes every time, weights apart from the program, a run
without the compiler, a layer compiled once, and a program that is really what runs."""

from __future__ import annotations

import hashlib
import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import workloads
from onnx import numpy_helper
from workloads import Workload

import headrace
from headrace.compiler import translate
from headrace.dialects.support.access import View
from headrace.dialects.support.diagnostics import CompileError
from headrace.runtime.check import check_program
from headrace.runtime.program import Config, Flow, Program
from headrace.runtime.session import Executable


def workload(name: str) -> Workload:
    """A workload by name; `real attn` is that of ../shared, and skips when it is not there."""
    if not name.startswith("real "):
        return workloads.small(name)
    try:
        return workloads.full(name.removeprefix("real "))
    except workloads.Missing as missing:
        pytest.skip(str(missing))


def written(path: Path, model: onnx.ModelProto) -> Path:
    path.write_bytes(model.SerializeToString())
    return path


# The same bytes


@pytest.mark.parametrize("name", ["attn", "gpt2_b1", "real attn"])
def test_the_same_bytes_in_every_process(tmp_path: Path, name: str) -> None:
    """Whatever the hash seed, and whatever was compiled before."""
    model = written(tmp_path / "m.onnx", workload(name).model())
    for number in range(2):
        headrace.compile(model, out=tmp_path / f"{number}.sn")
    for seed in ("2", "3"):
        command = [sys.executable, "-m", "headrace.tools.headrace", "compile", model, "-o", tmp_path / f"{seed}.sn"]
        environment = {"PYTHONHASHSEED": seed, "OMP_NUM_THREADS": "1", "PATH": ""}
        subprocess.run(command, env=environment, check=True, capture_output=True)
    assert len({hashlib.sha256((tmp_path / f"{i}.sn").read_bytes()).hexdigest() for i in range(4)}) == 1


def header_of(path: Path) -> tuple[dict[str, Any], bytes]:
    """Header and data part of a safetensors file."""
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + size]), data[8 + size :]


@pytest.mark.parametrize(("name", "weight"), [("attn", "wo"), ("gpt2_b1", "1_w1"), ("gpt2_b1", "0_bo")])
def test_a_changed_weight_changes_its_bytes_and_digests_only(tmp_path: Path, name: str, weight: str) -> None:
    proto = workload(name).model()
    headrace.compile(proto, out=tmp_path / "a.sn")
    tensor = next(t for t in proto.graph.initializer if t.name == weight)
    tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) + np.float32(1), weight))
    headrace.compile(proto, out=tmp_path / "b.sn")
    (a, data_a), (b, data_b) = header_of(tmp_path / "a.sn"), header_of(tmp_path / "b.sn")
    digests_a, digests_b = (json.loads(h["__metadata__"].pop("digests")) for h in (a, b))
    assert a == b
    weights_a, weights_b = digests_a.pop("weights"), digests_b.pop("weights")
    assert {key for key in weights_a if weights_a[key] != weights_b[key]} == {weight}
    assert digests_a.pop("all") != digests_b.pop("all")
    assert digests_a == digests_b
    a.pop("__metadata__")
    for key, entry in a.items():
        start, end = entry["data_offsets"]
        assert (data_a[start:end] == data_b[start:end]) == (key != weight), key


# A run without the compiler


ALONE = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        blocked = ("passes", "frontends", "backend", "tools")
        if name.startswith((*(f"headrace.{one}" for one in blocked), "onnx", "torch", "xdsl")):
            raise ImportError(name + " is blocked")
sys.meta_path.insert(0, Block())
import numpy as np, headrace
exe = headrace.load(sys.argv[1])
np.savez(sys.argv[3], **exe(dict(np.load(sys.argv[2]))))
for name in ("onnx", "xdsl", "headrace.passes", "headrace.frontends", "headrace.backend", "headrace.tools"):
    assert name not in sys.modules, name
"""


@pytest.mark.parametrize("name", ["attn", "gpt2_b8", "cnn", "real attn"])
def test_an_artifact_runs_without_the_compiler(tmp_path: Path, name: str) -> None:
    """Passes, frontends, backend, tools, onnx, torch and even xDSL cannot be imported in the process that runs it."""
    given = workload(name)
    exe = headrace.compile(given.model(), out=tmp_path / "m.sn")
    np.savez(tmp_path / "x.npz", **given.inputs)  # pyright: ignore[reportArgumentType]
    command = [sys.executable, "-c", ALONE, tmp_path / "m.sn", tmp_path / "x.npz", tmp_path / "y.npz"]
    environment = dict(os.environ) | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    expected = exe(given.inputs)
    with np.load(tmp_path / "y.npz") as found:
        assert list(found) == list(expected)
        for key, array in expected.items():
            np.testing.assert_array_equal(found[key], array)
        assert max(given.errors(found.values())) < 1e-4


# A layer once


def test_equal_layers_are_compiled_once() -> None:
    few, more, many = (translate(workloads.small("gpt2_b1", layers=n).model()).program for n in (2, 3, 48))
    for other in (more, many):
        assert len(other.configs) == len(few.configs)
        assert sum(len(c.units) for c in other.configs) == sum(len(c.units) for c in few.configs)
    assert len(more.launches) == len(few.launches) + 1
    assert len(many.launches) == len(few.launches) + 46


def test_many_layers_are_right() -> None:
    deep = workloads.small("gpt2_b1", layers=48)
    exe = headrace.compile(deep.model())
    assert exe.report == []
    assert max(deep.errors(exe(deep.inputs).values())) < 1e-4


# What is compiled is what runs


def with_config(program: Program, number: int, **changes: Any) -> Program:
    configs = list(program.configs)
    configs[number] = replace(configs[number], **changes)
    return replace(program, configs=tuple(configs))


def with_flows(program: Program, number: int, changed: dict[int, Flow | None]) -> Program:
    """The program with some flows of a config replaced, or dropped (None)."""
    flows = [changed.get(i, flow) for i, flow in enumerate(program.configs[number].flows)]
    return with_config(program, number, flows=tuple(flow for flow in flows if flow is not None))


def dropped_flows(program: Program, number: int, config: Config) -> Iterator[tuple[str, Program]]:
    for i, flow in enumerate(config.flows):
        yield named(config, flow), with_flows(program, number, {i: None})


def swapped_sites(program: Program, number: int, config: Config) -> Iterator[tuple[str, Program]]:
    """Two sources of a flow send to each other's destination."""
    for i, flow in enumerate(config.flows):
        for a in range(len(flow.pairs)):
            for b in range(a):
                if (flow.pairs[a] == flow.pairs[b]).any():
                    continue
                pairs = flow.pairs.copy()
                pairs[[a, b], 1] = pairs[[b, a], 1]
                if {tuple(p) for p in pairs.tolist()} != {tuple(p) for p in flow.pairs.tolist()}:
                    changed = with_flows(program, number, {i: replace(flow, pairs=pairs)})
                    yield f"{named(config, flow)}, pairs {a} and {b}", changed


def swapped_flows(program: Program, number: int, config: Config) -> Iterator[tuple[str, Program]]:
    """Two flows end where the other one ended. (Ports of one memory are alike: a flow has its own address program.)"""
    for i in range(1, len(config.flows)):
        one, other = config.flows[i - 1 : i + 1]
        if one.dst != other.dst:
            changed: dict[int, Flow | None] = {
                i - 1: replace(one, dst=other.dst, dst_port=other.dst_port),
                i: replace(other, dst=one.dst, dst_port=one.dst_port),
            }
            yield f"{named(config, one)} and {named(config, other)}", with_flows(program, number, changed)


def shifted_addresses(program: Program, number: int, config: Config) -> Iterator[tuple[str, Program]]:
    for i, flow in enumerate(config.flows):
        for side in ("src_view", "dst_view"):
            view: View | None = getattr(flow, side)
            if view is None:
                continue
            others = [View(view.offset + by, view.strides) for by in (-1, 1)]
            for dim, size in enumerate(flow.stream.full_shape):
                if size > 1:  # the stride of a dim of size 1 addresses nothing
                    strides = (*view.strides[:dim], view.strides[dim] + 1, *view.strides[dim + 1 :])
                    others.append(View(view.offset, strides))
            for other in others:
                changed = with_flows(program, number, {i: replace(flow, **{side: other})})
                yield f"{named(config, flow)}, {side} {other}", changed


def removed_sites(program: Program, number: int, config: Config) -> Iterator[tuple[str, Program]]:
    for i, unit in enumerate(config.units):
        for site in range(len(unit.sites)):
            units = list(config.units)
            units[i] = replace(unit, sites=np.delete(unit.sites, site, 0))
            yield f"site {site} of {unit.name}", with_config(program, number, units=tuple(units))


def bent_routes(program: Program, number: int, config: Config) -> Iterator[tuple[str, Program]]:
    """The last link of a route points the other way."""
    for i, flow in enumerate(config.flows):
        if len(flow.links):
            links = np.concatenate([flow.links[:-1], flow.links[-1:] ^ 1])
            yield named(config, flow), with_flows(program, number, {i: replace(flow, links=links)})


def named(config: Config, flow: Flow) -> str:
    return f"{config.units[flow.src].name} -> {config.units[flow.dst].name}"


MUTATIONS = (dropped_flows, swapped_sites, swapped_flows, shifted_addresses, removed_sites, bent_routes)
NO_SWAPS = {"cnn"}
"""Every pair of their flows shares its source or its destination with the others."""


@pytest.mark.parametrize("name", ["mlp_b256", "attn", "cnn", "gpt2_b8"])
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda one: one.__name__)
def test_a_changed_program_is_refused_or_computes_something_else(name: str, mutation: Any) -> None:
    """Merged and tile by tile; and neither way comes to grief over what the checker lets through."""
    given = workload(name)
    done = translate(given.model())
    assert done.weights is not None
    check_program(done.program)
    tried = 0
    for number, config in enumerate(done.program.configs):
        for what, program in mutation(done.program, number, config):
            tried += 1
            try:
                check_program(program)
            except CompileError:
                continue
            for literal in (False, True):
                found = Executable(program, done.weights, literal=literal, check=False)(given.inputs)
                wrong = max(given.errors(found.values()))
                assert wrong > 1e-4, f"{config.name}, {what}: {'literal' if literal else 'merged'} is off by {wrong}"
    assert tried or (mutation is swapped_sites and name in NO_SWAPS)
