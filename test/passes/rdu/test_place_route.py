"""Placing and routing whole configs: the same text every time, legal by every checker, close where units talk."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

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
