"""Ways as text, as steps and as link numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.dialects.rdu.config import ConfigOp
from headrace.dialects.rdu.routes import (
    MOST_STEPS,
    links_of,
    move_of,
    numbers_of,
    parse_way,
    switch_at,
    way_text,
    ways_of,
)
from headrace.dialects.rdu.syntax import coordinates
from headrace.passes.infra.verify import offences
from headrace.tools.opt import context, parse


@given(st.text(alphabet="ewsn", max_size=40))
def test_a_way_survives_its_text(way: str) -> None:
    assert parse_way(way_text(way)) == way


def test_runs_are_counted() -> None:
    assert way_text("eeess") == "e3s2" and way_text("") == "stay" and way_text("ewe") == "ewe"
    assert parse_way("e10") == "e" * 10 and parse_way("stay") == ""


@pytest.mark.parametrize("text", ["", "x", "3e", "e-1", "e3 s2", f"e{MOST_STEPS + 1}", "e99999999999"])
def test_what_is_no_way(text: str) -> None:
    assert parse_way(text) is None


@given(st.lists(st.text(alphabet="ewsn", max_size=8), max_size=6))
def test_links_give_the_ways_back(ways: list[str]) -> None:
    sources = np.array([(20, 20)] * len(ways), np.int64).reshape(-1, 2)
    links, starts = links_of(ways, sources, 50)
    assert ways_of(links, starts.tolist()) == tuple(ways)
    for i, way in enumerate(ways):
        x, y = begin = 20, 20
        for link, step in zip(links[starts[i] : starts[i + 1]].tolist(), way, strict=True):
            assert link == 4 * (y * 50 + x) + "ewsn".index(step)
            x, y = x + (step == "e") - (step == "w"), y + (step == "s") - (step == "n")
        assert switch_at(numbers_of([begin[0]], [begin[1]])[0] + move_of(way)) == (x, y)


@given(st.tuples(*[st.integers(-(2**31), 2**31 - 1)] * 2), st.text(alphabet="ewsn", max_size=8))
def test_the_number_of_a_switch_tells_it_from_every_other(switch: tuple[int, int], way: str) -> None:
    (number,) = numbers_of([switch[0]], [switch[1]])
    assert switch_at(number) == switch
    right, down = way.count("e") - way.count("w"), way.count("s") - way.count("n")
    assert switch_at(number + move_of(way)) == (switch[0] + right, switch[1] + down)


def test_ways_are_looked_at_again_when_a_unit_has_moved() -> None:
    module = parse(
        context(),
        """rdu.config @c routed ("x" in tensor<4xf32>, "y" out tensor<4xf32>) link_load 0.5 {
          rdu.agcu @load load param 0 at [0 1]
          rdu.agcu @store store param 1 at [2 1]
          rdu.flow @load -> @store carries tensor<4xf32> from at 0 [1] to at 0 [1] credits 2 routes [0 -> 0 e2]
        }""",
        "moved",
    )[0]
    (config,) = (op for op in module.walk() if isinstance(op, ConfigOp))
    for _ in range(2):
        assert not offences(module)
    store = config.units[1]
    store.sites = coordinates([(2, 2)])
    assert "goes from (0, 1) to (2, 1), but store stands at (2, 2)" in offences(module)[0].message
    store.sites = coordinates([(2, 1)])
    assert not offences(module)
