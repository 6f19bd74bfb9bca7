"""Ways as text, as steps and as link numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.dialects.rdu.routes import MOST_STEPS, end_of, links_of, parse_way, way_text, ways_of


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
        x, y = 20, 20
        for link, step in zip(links[starts[i] : starts[i + 1]].tolist(), way, strict=True):
            assert link == 4 * (y * 50 + x) + "ewsn".index(step)
            x, y = end_of(x, y, step)
        assert (x, y) == end_of(20, 20, way)
