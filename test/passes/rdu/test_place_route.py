"""Placing and routing whole configs: the same text every time, legal by every checker, close where units talk."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from xdsl.dialects.builtin import ModuleOp

from headrace.dialects.rdu.ops import FlowOp
from headrace.dialects.support.journal import Journal, recording
from headrace.passes.infra.registry import build
from headrace.tools.audit import audit
from headrace.tools.bench.placing import section
from headrace.tools.opt import context, parse

SMALL = (
    '#machine.device<"small", {base = "sn40l", grid = {columns = 8, rows = 8, tile_columns = 1, tile_rows = 1, '
    "dies = 1, agcus_per_edge = 4}}>"
)
CHAIN = """
builtin.module attributes {{machine.device = {device}}} {{
rdu.config @chain virtual ("x" in tensor<64x64xf32>, "y" out tensor<64x64xf32>) {{
  rdu.agcu @load_x load param 0
  rdu.pmu @a tensor<64x64xf32> x 4 frames 1 copies 2
  rdu.flow @load_x -> @a carries tensor<16x64xf32> time [4 on 0 by 16] from at 0 [64, 1] to at 0 [64, 1]
  rdu.pcu @f simd x 8 (%x: tensor<2x64xf32>) {{
    %0 = tensor.softmax %x : tensor<2x64xf32> -> tensor<2x64xf32>
    rdu.yield %0 : tensor<2x64xf32>
  }}
  rdu.flow @a -> @f carries tensor<2x64xf32> time [4 on 0 by 16] space [8 on 0 by 2] from at 0 [64, 1]
  rdu.pcu @g simd x 8 (%x: tensor<2x64xf32>) {{
    %0 = tensor.neg %x : tensor<2x64xf32> -> tensor<2x64xf32>
    rdu.yield %0 : tensor<2x64xf32>
  }}
  rdu.flow @f -> @g carries tensor<2x64xf32> time [4 on 0 by 16] space [8 on 0 by 2]
  rdu.agcu @store store param 1 x 2
  rdu.flow @g -> @store carries tensor<2x64xf32> time [4 on 0 by 16] space [8 on 0 by 2] to at 0 [64, 1]
}}
}}
"""
Opt = Callable[..., Any]


def sites(text: str, unit: str) -> list[tuple[int, int]]:
    """Column and row of every unit of a group."""
    found = re.search(rf"rdu\.\w+ @{unit} .*? at \[([^\]]*)\]", text)
    assert found is not None, unit
    return [(int(a), int(b)) for a, b in (pair.split() for pair in found[1].split(", "))]


def routed(opt: Opt, *more: str, passes: str = "place,route,check-resources") -> str:
    result = opt(CHAIN.format(device=SMALL), "-p", passes, *more)
    assert result.code == 0, result.err
    return result.out


def test_the_same_input_gives_the_same_text(opt: Opt) -> None:
    assert routed(opt) == routed(opt)


def test_another_seed_may_differ_and_is_legal_too(opt: Opt) -> None:
    texts = {routed(opt, passes=f"place{{seed={seed}}},route,check-resources") for seed in range(3)}
    assert all("routed" in text for text in texts)


def test_no_two_units_share_a_site(opt: Opt) -> None:
    text = routed(opt)
    compute = sites(text, "f") + sites(text, "g")
    assert len(set(compute)) == 16 and all((x + y) % 2 == 1 and 1 <= x <= 8 for x, y in compute)
    assert all((x + y) % 2 == 0 for x, y in sites(text, "a"))
    assert all(x in (0, 9) for x, _ in sites(text, "load_x") + sites(text, "store"))


def test_units_that_talk_stand_close(opt: Opt) -> None:
    text = routed(opt)
    apart = [abs(a - c) + abs(b - d) for (a, b), (c, d) in zip(sites(text, "f"), sites(text, "g"), strict=True)]
    assert sum(apart) / len(apart) < 4


def test_every_pair_that_needs_a_way_has_one(opt: Opt) -> None:
    text = routed(opt)
    pairs = {
        (a, b): [tuple(map(int, p)) for p in re.findall(r"(\d+) -> (\d+) ", ways)]
        for a, b, ways in re.findall(r"rdu\.flow @(\w+) -> @(\w+) .*? routes \[([^\]]*)\]", text)
    }
    assert pairs["f", "g"] == [(i, i) for i in range(8)]
    assert {b for _, b in pairs["a", "f"]} == set(range(8))
    assert {a for a, _ in pairs["g", "store"]} == set(range(8))
    assert {b for _, b in pairs["load_x", "a"]} == set(range(4))


def test_moves_bound_the_search(opt: Opt) -> None:
    still = routed(opt, passes="place{moves=0},route,check-resources")
    assert sites(still, "f")


def placed_and_routed(text: str, place: str = "place", route: str = "route") -> tuple[ModuleOp, dict[str, int]]:
    """The program, legal by the checkers of the passes, and the statistics of both."""
    journal, ctx = Journal(), context()
    module, _ = parse(ctx, text, "section")
    with recording(journal):
        for one in build(f"allocate-memory,{place},{route},check-resources"):
            journal.pass_name = one.name
            one.apply(ctx, module)
    return module, {**journal.statistics_of("place"), **journal.statistics_of("route")}


@pytest.mark.parametrize(
    ("stages", "width", "turned"),
    [(26, 40, 1), (13, 80, 1), (5, 200, 1), (2, 520, 1), (1, 1040, 1), (4, 256, 16)],
)
def test_a_section_that_fills_the_chip_is_placed_near_its_bound_and_routed(stages: int, width: int, turned: int):
    module, found = placed_and_routed(section(stages, width, turned))
    assert audit(module).diagnostics == ()
    assert found["units placed"] == 2 * stages * width + 80
    least = found["wirelength of the placement, at least"]
    assert least <= found["wirelength of the placement"] <= (1.3 if turned == 1 else 1.5) * least
    assert (
        found["wirelength of the routes"] <= (1.3 if turned == 1 else 1.5) * found["wirelength of the routes, at least"]
    )
    assert found["links overloaded"] == 0
    assert found["busiest link, % at least"] <= found["busiest link, % of its words"] <= 100
    assert found["busiest link, % of its words"] <= found["busiest link, % in dimension order"]


@pytest.mark.parametrize(("stages", "width", "turned"), [(6, 16, 1), (3, 64, 8), (2, 200, 1)])
def test_simple_rules_are_beaten(stages: int, width: int, turned: int):
    text = section(stages, width, turned)
    _, ours = placed_and_routed(text)
    _, rows = placed_and_routed(text, "place{start=rows moves=0}", "route{reroutes=0}")
    assert ours["wirelength of the placement"] < 0.5 * rows["wirelength of the placement"]
    assert ours["wirelength of the routes"] < 0.5 * rows["wirelength of the routes"]
    assert ours["busiest link, % of its words"] < rows["busiest link, % of its words"]


def test_routes_keep_to_the_turn_rule_of_their_channel() -> None:
    # West-first, north-first, east-first and south-first: no turn into the first direction. That is why none can wait
    # for itself; that none does is what the checkers of the pass and of the audit find from the routes.
    text = section(2, 32, 8).replace('"sn40l">', '"narrow", {base = "sn40l", network = {links = 1}}>')
    module, found = placed_and_routed(text)
    assert found["nets routed again"] > 0
    channels: set[int] = set()
    for flow in (op for op in module.walk() if isinstance(op, FlowOp)):
        assert flow.routes is not None
        for way, channel in zip(flow.routes.data.ways, flow.routes.data.channels, strict=True):
            channels.add(channel)
            first = "wnes"[channel]
            assert first not in way.lstrip(first)
    assert len(channels) > 1
    assert audit(module).diagnostics == ()


def test_hashing_does_not_change_what_is_chosen(tmp_path: Path) -> None:
    program = tmp_path / "chain.mlir"
    program.write_text(section(3, 24, 4))
    texts = set[str]()
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-m", "headrace.tools.opt", str(program), "-p", "allocate-memory,place,route"],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        texts.add(done.stdout)
    assert len(texts) == 1 and " routes [" in texts.pop()
