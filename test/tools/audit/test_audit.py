"""The audit: what it accepts, what it counts, and that it asks nobody else."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import workloads
from routed_programs import DIAMOND, routed

from headrace.backend.encode import encode
from headrace.compiler import lower
from headrace.dialects.machine.attributes import device_of, set_device
from headrace.dialects.machine.device import load_device
from headrace.dialects.rdu.ops import AgcuOp, ConfigOp
from headrace.dialects.rdu.syntax import integer
from headrace.dialects.support.diagnostics import CompileError
from headrace.dialects.tensor.shapes import TT
from headrace.frontends.decoder import build_decoder, preset
from headrace.passes import pipelines
from headrace.passes.infra.manager import PassManager
from headrace.passes.infra.registry import build
from headrace.tools.audit import audit, audit_program
from headrace.tools.audit.artifact import read_program
from headrace.tools.audit.cells import owned, sums, union
from headrace.tools.audit.network import find_cycle
from headrace.tools.audit.program import Buffer, Flow, Routed
from headrace.tools.audit.reading import read_module
from headrace.tools.cli import execute
from headrace.tools.opt import context, parse


def test_no_pass_verifier_or_runtime_is_asked() -> None:
    """Not even by what the audit imports."""
    text = str(routed("diamond"))
    code = (
        "import sys\n"
        "from xdsl.context import Context\n"
        "from xdsl.dialects.builtin import Builtin\n"
        "from xdsl.parser import Parser\n"
        "from headrace.dialects.machine import Machine\n"
        "from headrace.dialects.rdu import Rdu\n"
        "from headrace.dialects.tensor import Tensor\n"
        "from headrace.tools.audit import audit\n"
        "ctx = Context()\n"
        "for dialect in (Builtin, Machine, Rdu, Tensor): ctx.load_dialect(dialect)\n"
        "assert audit(Parser(ctx, sys.stdin.read()).parse_module()).diagnostics == ()\n"
        "others = ('headrace.passes', 'headrace.runtime', 'headrace.backend', 'headrace.dialects.dataflow',\n"
        "          'headrace.dialects.rdu.cost', 'headrace.dialects.machine.cost')\n"
        "print([m for m in sys.modules if m.startswith(others)])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], input=text, capture_output=True, text=True, check=False)
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.parametrize("name", ["diamond", *workloads.NAMES])
def test_routed_programs_are_accepted(name: str) -> None:
    module = routed(name)
    report = audit(module)
    report.raise_if_any()
    assert len(report.configs) == sum(isinstance(op, ConfigOp) for op in module.walk())
    again = audit_program(read_program(encode(module)))
    again.raise_if_any()
    for one, other in zip(report.configs, again.configs, strict=True):
        assert replace(one, link_load=0) == replace(other, link_load=0)


@pytest.mark.parametrize("mode", ["O0", "O1", "O3"])
@pytest.mark.parametrize("step", ["prefill", "decode"])
def test_a_decoder_is_accepted_in_every_mode(step: Literal["prefill", "decode"], mode: str) -> None:
    """States, caches that are scattered into, experts, many launches of a few configs."""
    module = build_decoder(preset("tiny-moe"), step, tokens=8, context=8).module
    lower(module, "sn50", mode=mode)
    audit(module).raise_if_any()


def test_what_a_program_uses_is_counted() -> None:
    (one,) = audit(routed("diamond")).configs
    assert one.units == {"pcu": 4, "pmu": 3, "agcu": 2}
    assert (one.flows, one.pairs) == (6, 11)
    # a step takes four words to @rows, and two from site to site of the units behind it
    assert one.busiest == 4 * 4
    assert one.fullest == 4 * 64 * 4 / device_of(routed("diamond")).pmu.bytes
    # what comes from @load, @neg and @add takes four steps each; @store takes what @add gives
    assert one.steps == 4 + 4 + 4


def test_memory_is_counted_to_its_last_byte() -> None:
    assert audit(routed("diamond")).memory["hbm"][0] == 4 * 4 * 64 * 4


def test_everything_that_is_wrong_is_reported() -> None:
    module = routed("attn")
    config = next(op for op in module.walk() if isinstance(op, ConfigOp))
    for flow in config.flows:
        flow.credits = None
    found = audit(module).diagnostics
    assert Counter(one.code for one in found) == {"too-few-credits": len(config.flows)}
    with pytest.raises(CompileError) as raised:
        audit(module).raise_if_any()
    assert raised.value.diagnostics == found


def test_a_finding_says_where_it_is_in_the_model() -> None:
    module = routed("attn")
    config = next(op for op in module.walk() if isinstance(op, ConfigOp))
    config.flows[-1].credits = None
    (one,) = audit(module).diagnostics
    assert one.location and "@store" in one.what and "@main_0" in one.what


def test_a_module_that_is_not_routed_is_refused() -> None:
    module, _ = parse(context(), DIAMOND, "diamond.mlir")
    with pytest.raises(CompileError, match="phase virtual"):
        audit(module)
    with pytest.raises(CompileError, match="no config"):
        audit(parse(context(), "builtin.module {}", "empty.mlir")[0])


# Tables that no way of the IR can say.


def changed(program: Routed, flow: Flow, now: Flow) -> Routed:
    (config,) = program.configs
    flows = tuple(now if one is flow else one for one in config.flows)
    return replace(program, configs=(replace(config, flows=flows),))


def test_a_route_with_a_gap_is_refused() -> None:
    program = read_module(routed("diamond"))
    flow = max(program.configs[0].flows, key=lambda f: int(np.diff(f.first).max()))
    pair = int(np.diff(flow.first).argmax())
    middle = int(flow.first[pair]) + 1
    assert flow.first[pair + 1] - flow.first[pair] > 2
    first = flow.first - (np.arange(len(flow.first)) > pair)
    links = {name: np.delete(getattr(flow, name), middle) for name in ("x", "y", "way")}
    found = audit_program(changed(program, flow, replace(flow, first=first, **links))).diagnostics
    assert [one.code for one in found] == ["broken-route"]


def test_a_pair_without_a_route_is_refused() -> None:
    program = read_module(routed("diamond"))
    flow = program.configs[0].flows[0]
    found = audit_program(changed(program, flow, replace(flow, first=flow.first[:-1]))).diagnostics
    assert "broken-route" in [one.code for one in found]


def test_an_artifact_with_other_sites_is_refused() -> None:
    program = read_program(encode(routed("diamond")))
    (config,) = program.configs
    unit = next(u for u in config.units if u.name == "all")
    units = tuple(replace(u, sites=u.sites[::-1]) if u is unit else u for u in config.units)
    found = audit_program(replace(program, configs=(replace(config, units=units),))).diagnostics
    assert {one.code for one in found} == {"wrong-end", "broken-route"}


# Address sets, against sets.


def _random_set(rng: random.Random) -> tuple[int, list[tuple[int, int]], set[int]]:
    offset, terms = rng.randint(0, 30), [(rng.randint(1, 6), rng.randint(-9, 20)) for _ in range(rng.randint(0, 4))]
    found = {offset}
    for count, stride in terms:
        found = {at + i * stride for at in found for i in range(count)}
    return offset, terms, found


@pytest.mark.parametrize("seed", range(20))
def test_runs_are_the_set_of_addresses(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(50):
        (a, a_terms, first), (b, b_terms, second) = _random_set(rng), _random_set(rng)
        one, other = sums(a, a_terms), sums(b, b_terms)
        assert one.count == len(first) and one.bounds == (min(first), max(first))
        assert union([one, other]).count == len(first | second)
        assert one.minus(other).count == len(first - second)
        assert one.meets(other) == bool(first & second)
        shape = tuple(rng.randint(1, 5) for _ in range(rng.randint(1, 3)))
        split = rng.randrange(len(shape))
        units = rng.randint(1, shape[split])
        buffer = Buffer("b", np.zeros((units, 2), np.int64), "", TT(shape, "f32"), 0, 1, split, 1)
        moves = np.array([rng.randint(0, 40) for _ in range(rng.randint(1, 4))])
        inner = int(np.prod(shape[split + 1 :]))
        block = -(-shape[split] // units)
        for move, have in zip(moves.tolist(), owned(buffer, one, moves).tolist(), strict=True):
            owners = Counter((at + move) // inner % shape[split] // block for at in first)
            assert have == [owners[unit] for unit in range(units)]


@pytest.mark.parametrize("seed", range(20))
def test_a_cycle_is_found_when_there_is_one(seed: int) -> None:
    rng = random.Random(seed)
    order = rng.sample(range(12), 12)
    edges = {(a, b) if order[a] < order[b] else (b, a) for a, b in (rng.sample(range(12), 2) for _ in range(20))}
    before, after = np.array(sorted(edges)).T
    assert find_cycle(before, after) == []
    ring = rng.sample(range(12), rng.randint(2, 6))
    edges |= set(zip(ring, [*ring[1:], ring[0]], strict=True))
    found = find_cycle(*np.array(sorted(edges)).T)
    assert len(found) > 1 and set(zip(found, [*found[1:], found[0]], strict=True)) <= edges


# The command.


def test_the_command_reports_and_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = tmp_path / "good.mlir", tmp_path / "bad.mlir"
    module = routed("diamond")
    good.write_text(str(module))
    for flow in next(op for op in module.walk() if isinstance(op, ConfigOp)).flows:
        flow.credits = integer(2)
    bad.write_text(str(module))
    assert execute(["audit", str(good)]) == 0
    out = capsys.readouterr().out
    assert "@c" in out and "4/1040" in out and out.endswith("nothing is wrong\n")
    assert execute(["audit", str(bad)]) == 2
    assert capsys.readouterr().err.count("error[too-few-credits]") == 6
    assert execute(["audit", str(bad), "--json"]) == 2
    found = json.loads(capsys.readouterr().out)
    assert len(found["errors"]) == 6 and found["configs"][0]["units"]["pcu"] == 4


def test_the_command_compiles_what_is_not_routed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import onnx

    import headrace

    model, artifact = tmp_path / "mlp.onnx", tmp_path / "mlp.sn"
    onnx.save(workloads.small("mlp_b1").model(), model)
    assert execute(["audit", str(model), "--device", "plasticine"]) == 0
    assert "/64" in capsys.readouterr().out
    headrace.compile(model, out=artifact)
    assert execute(["audit", str(artifact)]) == 0
    assert "note: an artifact holds no virtual channels" in capsys.readouterr().out


def test_a_program_that_computes_nothing_is_accepted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "identity.mlir"
    model.write_text("func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n  return %x : tensor<4xf32>\n}\n")
    assert execute(["audit", str(model)]) == 0
    assert capsys.readouterr().out.endswith("nothing is wrong\n")


def test_few_sites_of_a_stage_use_few_of_a_generator(tmp_path: Path) -> None:
    """One element beside many in a result: its stage has one site, the generator that stores both has more."""
    model = tmp_path / "beside.mlir"
    model.write_text(
        "func.func @main(%v: tensor<65xbf16>, %w: tensor<65x1xbf16>) -> tensor<196xbf16> {\n"
        "  %0 = tensor.add %v, %v : tensor<65xbf16>, tensor<65xbf16> -> tensor<65xbf16>\n"
        "  %1 = tensor.matmul %0, %w : tensor<65xbf16>, tensor<65x1xbf16> -> tensor<1xbf16>\n"
        "  %2 = tensor.concat %0, %v, %v, %1 {axis = 0 : i64} : tensor<65xbf16>, tensor<65xbf16>, tensor<65xbf16>, "
        "tensor<1xbf16> -> tensor<196xbf16>\n"
        "  return %2 : tensor<196xbf16>\n}\n"
    )
    module = parse(context(), model.read_text(), str(model))[0]
    set_device(module, load_device("sn50"))
    options = {"tile": "{steps=4 rows=1 chunk=65 resident=0.1}", "parallelize": "{share=0.222}"}
    names = (*pipelines.DATAFLOW, *pipelines.RDU)
    PassManager(context(), build(",".join(name + options.get(name, "") for name in names))).run(module)
    generators = [op for op in module.walk() if isinstance(op, AgcuOp)]
    assert max(op.size for op in generators) > 1
    assert audit(module).diagnostics == ()
