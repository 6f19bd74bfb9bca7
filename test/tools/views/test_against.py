"""The page of a comparison: well formed, conditions beside every picture, marks where ours is enough better."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from headrace.tools.predict import System
from headrace.tools.predict.against import Comparison, Question, compare
from headrace.tools.views.against import MAPPED, against_page, brief, pictures, sentences, shade
from headrace.tools.views.lines import Curve, curves, short, tokens

SVG = "{http://www.w3.org/2000/svg}"
QUESTION = Question(
    "tiny", System("sn50"), "h200", 1, output=8, batches=(1, 2, 4), lengths=(16, 32), compiled_batches=(1, 4),
    compiled_lengths=(16, 32), times=2.0,
)  # fmt: skip


@pytest.fixture(scope="module")
def found() -> Comparison:
    return compare(QUESTION)


def test_pictures_are_well_formed_and_show_every_point(found: Comparison) -> None:
    made = pictures(found)
    trees = {name: ElementTree.fromstring(text) for name, text in made.items()}
    assert len(trees["user"].findall(f"{SVG}circle")) == 2 * 2 * 3  # sides, lengths, batches
    hollow = [c for c in trees["user"].findall(f"{SVG}circle") if c.get("fill") == "#ffffff"]
    assert len(hollow) == 2  # ours at batch 2 is interpolated
    assert len(trees["first"].findall(f"{SVG}circle")) == 2 * 2


@pytest.mark.parametrize("times", [0.01, 2.0, 1e9])
def test_cells_are_marked_where_ours_is_enough_better(found: Comparison, times: float) -> None:
    there = replace(found, question=replace(QUESTION, times=times))
    for metric in MAPPED:
        text = pictures(there)[f"times-{metric}"]
        assert text.count('stroke-width="2.5"') == len(there.region(metric))
        assert text.count("waits most for") == 6


def test_the_page_needs_nothing_else_and_has_all_conditions(found: Comparison) -> None:
    page = against_page(found)
    assert not re.search(r'(?:src|href)="', page)
    assert page.count(brief(QUESTION)) == len(pictures(found))
    for words in ("cache bf16", "one node", "8 tokens; a decode step", "no speculative decoding"):
        assert words in page
    rows = re.search(r'<script type="application/json" id="rows">(.*?)</script>', page)
    assert rows and json.loads(rows[1])["rows"] == found.rows()
    assert all(f"<li>{line[:20]}" in page for line in sentences(found))


def test_sentences_say_what_is_for_a_chip() -> None:
    found = compare(replace(QUESTION, system=System("sn50", 2)))
    assert "2 sockets against 1 GPUs" in sentences(found)[-1]


def test_numbers_and_shades() -> None:
    assert [short(x) for x in (0.0341, 8, 850, 8192, 1.2e6, 3e9)] == ["0.0341", "8", "850", "8.19k", "1.2M", "3G"]
    assert [tokens(x) for x in (128, 1024, 1500, 8192)] == ["128", "1k", "1500", "8k"]
    assert shade(1.0) == "#ffffff" and shade(100.0) == shade(8.0) != shade(0.01)
    assert "no figures" in curves("t", "x", "y", [Curve("none", [], "#000000")], [1.0, 2.0])
