"""A product whose columns no number of units divides: parts and a rest, from the pass to the numbers."""

import random
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

import headrace.passes.dataflow.parallelize as parallelize
from headrace.dialects.dataflow.ops import SectionOp, StageOp
from headrace.dialects.machine.device import load_device
from headrace.passes.analysis.bodies import Body
from headrace.passes.analysis.phases import divisible
from headrace.passes.analysis.pieces import splits
from headrace.runtime import beside
from headrace.tools.fuzz.campaign import Plan, outcome
from headrace.tools.opt import context, parse

SEEDS = range(7000, 7018)


@pytest.fixture
def everywhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """Every product that can be divided is, anywhere; counts how often, and how often the runtime joins two."""
    found = {"divided": 0, "joined": 0}
    spread, join = parallelize.spread, beside._join  # pyright: ignore[reportPrivateUsage]

    def divide_all(section: SectionOp, *rest: Any) -> bool:
        changed = spread(section, *rest)
        for op in [op for op in section.body.block.ops if isinstance(op, StageOp)]:
            axis = divisible(op, Body.of(op.body.block))
            if axis is not None and axis.size > 1:
                parallelize.divide(op, random.Random(axis.size).randint(1, axis.size - 1))
                found["divided"] += 1
                changed = True
        return changed

    def counted(config: Any, pairs: Any) -> Any:
        found["joined"] += 1
        return join(config, pairs)

    monkeypatch.setattr(parallelize, "spread", divide_all)
    monkeypatch.setattr(beside, "_join", counted)
    yield found


def test_divided_products_compute_the_same(everywhere: dict[str, int]) -> None:
    for seed in SEEDS:
        found = outcome(seed, Plan("pipeline"))
        assert found.kind in ("", "refused"), found.text
    assert everywhere["divided"] > 5 and everywhere["joined"] > 5


def _product(rows: int, depth: int, columns: int) -> Body:
    text = f"""
func.func @main(%x: tensor<{rows}x{depth}xbf16>, %w: tensor<{depth}x{columns}xbf16>) -> tensor<{rows}x{columns}xbf16> {{
  %y = tensor.matmul %x, %w
    : tensor<{rows}x{depth}xbf16>, tensor<{depth}x{columns}xbf16> -> tensor<{rows}x{columns}xbf16>
  func.return %y : tensor<{rows}x{columns}xbf16>
}}"""
    main: Any = parse(context(), text, "product.mlir")[0].body.block.first_op
    return Body.of(main.body.block)


def test_uneven_parts_fill_the_stages() -> None:
    """11,008 columns divide into 16 or 32 a unit, which leave stages idle; parts of 24 do not."""
    device = load_device("sn40l")
    body = _product(64, 128, 11008)
    even, uneven = splits(body, device, 512), splits(body, device, 512, uneven=True)
    best = [min(s.interval for s in found if s.units <= 480) for found in (even, uneven)]
    assert best[0] > 1.3 * best[1]
    work = 64 * 128 * 11008 / (device.pcu.lanes * device.pcu.stages)
    assert max(work / (s.units * s.interval) for s in uneven if s.units > 400) > 0.99
    for split in uneven:
        if split.rest is not None:
            ((_, count),) = [p for p in split.parts if p[0] == split.rest[0]]
            width, left = divmod(11008 - split.rest[1], count)
            assert left == 0 and 0 < split.rest[1] < width  # the rest is less work than a part
            assert split.units <= 512


def test_units_fall_as_time_rises() -> None:
    found = splits(_product(64, 128, 1000), load_device("sn40l"), 512, uneven=True)
    assert [s.units for s in found] == sorted(s.units for s in found)
    assert all(a.interval > b.interval for a, b in pairwise(found))
