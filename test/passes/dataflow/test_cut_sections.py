"""Cuts by time: against all cuts there are, against a simple rule by the event model, and the work that they take."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
import workloads

from headrace.backend.encode import encode
from headrace.compiler import import_model, lower
from headrace.dialects.dataflow.ops import BufferOp, SectionOp, StageOp
from headrace.dialects.machine.attributes import device_of, set_device
from headrace.dialects.machine.device import load_device
from headrace.frontends.decoder import build_decoder, preset
from headrace.passes.analysis.fusion_rules import fusion_rules
from headrace.passes.analysis.phases import Tally
from headrace.passes.analysis.sections import sections
from headrace.passes.dataflow import cut_sections
from headrace.passes.dataflow.cut_sections import Budget, _Cutter  # pyright: ignore[reportPrivateUsage]
from headrace.passes.infra.registry import build
from headrace.runtime.timing import time_program
from headrace.tools.bench.growth import different
from headrace.tools.bench.mapping import pipeline
from headrace.tools.opt import context, parse, pipelines


def tiled(text: str, device: str = "sn40l") -> list[SectionOp]:
    """The sections of a program right before they are cut."""
    ctx = context()
    module, _ = parse(ctx, text, "test")
    set_device(module, load_device(device))
    named = pipelines()
    passes = f"{named['tensor']},{named['dataflow'].split(',cut-sections')[0]}"
    for one in build(passes, pipelines=named):
        one.apply(ctx, module)
    return list(sections(module))


def cutter(section: SectionOp, share: float, by: str = "time") -> _Cutter:
    """The cutter of a section that may take a share of the device."""
    module = section.get_toplevel_object()
    device = device_of(module)  # pyright: ignore[reportArgumentType]
    budget = Budget(*(max(1, int(device.count(kind) * share)) for kind in ("pcu", "pmu", "agcu")))
    return _Cutter(section, device, budget, 512, by, fusion_rules(""), 0.0)


CHAIN = """func.func @main(%x: tensor<512x1024xf32>) -> tensor<512x1024xf32> {
  %a = tensor.weight "a" : tensor<1024x1024xf32>
  %b = tensor.weight "b" : tensor<1024x1024xf32>
  %0 = tensor.matmul %x, %a : tensor<512x1024xf32>, tensor<1024x1024xf32> -> tensor<512x1024xf32>
  %1 = tensor.softmax %0 {axis = 0 : i64} : tensor<512x1024xf32> -> tensor<512x1024xf32>
  %2 = tensor.matmul %1, %b : tensor<512x1024xf32>, tensor<1024x1024xf32> -> tensor<512x1024xf32>
  %3 = tensor.softmax %2 {axis = 1 : i64} : tensor<512x1024xf32> -> tensor<512x1024xf32>
  %4 = tensor.matmul %3, %a : tensor<512x1024xf32>, tensor<1024x1024xf32> -> tensor<512x1024xf32>
  func.return %4 : tensor<512x1024xf32>
}
"""


@pytest.mark.parametrize("share", [0.1, 0.3, 0.9])
def test_no_cut_is_modelled_as_faster(share: float) -> None:
    (section,) = tiled(CHAIN)
    one = cutter(section, share)
    found = one.ways["time"]()
    count = len(one.processes)
    assert count >= 4
    times: dict[tuple[int, ...], float] = {}
    for number in range(count):
        for middle in combinations(range(1, count), number):
            ends = (*middle, count)
            each = [one.cycles(first, last) for first, last in pairwise((0, *ends))]
            if None not in each:
                times[ends] = sum(x for x in each if x is not None)
    assert tuple(found) in times
    assert times[tuple(found)] <= min(times.values()) * (1 + 1e-6)


@pytest.mark.parametrize("most", [3, 8, 32])
def test_no_cut_is_slower_than_what_fits(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a cut is tried at a few places only, those of the simple rule are among them."""
    monkeypatch.setattr(cut_sections, "MOST_CUTS", most)
    (section,) = tiled(different(300))
    one = cutter(section, 0.2)
    assert len(one.processes) > 2 * most
    greedy = one.ways["order"]()
    assert len(greedy) > 1
    assert one.modelled(one.ways["time"]()) <= one.modelled(greedy) * (1 + 1e-6)


def test_the_work_grows_with_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """The groups that are costed, for three times as many processes: not nine times as many."""
    asked = 0
    plain = Tally.cycles

    def counted(tally: Tally, stored: int, launch: float) -> float:
        nonlocal asked
        asked += 1
        return plain(tally, stored, launch)

    monkeypatch.setattr(Tally, "cycles", counted)
    monkeypatch.setattr(cut_sections, "MOST_CUTS", 8)
    found: list[int] = []
    for ops in (300, 900):
        asked = 0
        (section,) = tiled(different(ops))
        assert len(cutter(section, 0.2).ways["time"]()) > 1
        found.append(asked)
    assert found[0] > 0 and found[1] < 4.5 * found[0]


@pytest.mark.parametrize("name", ["attn", "bert", "llama", "cnn", "gpt2_b8"])
def test_time_beats_the_simple_rule_on_the_event_model(name: str) -> None:
    seconds: dict[str, float] = {}
    for by in ("time", "order"):
        module = import_model(workloads.small(name).model(), shape_only=True).module
        lower(module, "sn40l", pipeline("O3", {"cut-sections": f"by={by}"}))
        seconds[by] = time_program(encode(module)).seconds
    assert seconds["time"] <= seconds["order"] * 1.001


@pytest.mark.parametrize("rule", ["cut-sections: by=order", "parallelize: by=equal"])
def test_decode_is_no_slower_than_a_simple_rule(rule: str) -> None:
    """All of its weights are loaded at once, those of the last products arrive last, and each product works once, on
    all of its words."""
    name, _, option = rule.partition(": ")
    seconds: list[float] = []
    for options in ({}, {name: option}):
        module = build_decoder(preset("llama-2-7b"), "decode", context=4096, dtype="bf16").module
        lower(module, "sn40l", pipeline("O3", options))
        seconds.append(time_program(encode(module)).seconds)
    assert seconds[0] <= seconds[1] * 1.001


def test_a_layer_that_follows_itself_stays_whole() -> None:
    """Its launches need no program load; cut in two, each part would take one every time."""
    module = import_model(workloads.small("gpt2_b8").model(), shape_only=True).module
    lower(module, "sn40l", pipeline("O3", {}))
    assert len({launch.config for launch in encode(module).launches}) <= 3


def test_buffers_read_by_many_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    (section,) = tiled(different(200))
    asked = 0
    plain = cut_sections.Memories.frames

    def counted(self: cut_sections.Memories, buffer: BufferOp) -> int:
        nonlocal asked
        asked += buffer not in self._frames  # pyright: ignore[reportPrivateUsage]
        return plain(self, buffer)

    monkeypatch.setattr(cut_sections.Memories, "frames", counted)
    cutter(section, 0.9).fit()
    buffers = sum(isinstance(op, BufferOp) for op in section.body.block.ops)
    assert asked <= buffers
    assert any(isinstance(op, StageOp) for op in section.body.block.ops)
