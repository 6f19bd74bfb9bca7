"""`headrace bench --against`: files, JSON and refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import headrace, succeeds

SMALL = ("--gpus", 2, "--mesh", "tp=2", "--batches", "1,2,4", "--lengths", "16,32", "--output-tokens", 8)


def test_a_comparison_writes_its_page_pictures_and_rows(tmp_path: Path) -> None:
    page = tmp_path / "tiny.html"
    shown = succeeds("bench", "tiny", "--against", "h200", *SMALL, "-o", page).out
    assert "tiny: 2 x sn50 (tp=2), bf16, against 2 x h200, bf16" in shown and "times" in shown
    rows = json.loads((tmp_path / "tiny.json").read_text())
    assert len(rows["rows"]) == 12 and rows["conditions"]["ours"].startswith("2 x sn50 (tp=2)")
    assert {p.name for p in tmp_path.glob("*.svg")} >= {"tiny-user.svg", "tiny-times-first.svg", "tiny-bounds-gpu.svg"}
    kept = tmp_path / "tiny.cache.json"
    before = kept.read_bytes()
    again = succeeds("bench", "tiny", "--against", "h200", *SMALL, "-o", page, "--json").json
    assert again["rows"] == rows["rows"] and str(page) in again["files"] and kept.read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tiny", "--against", "h20"), "did you mean 'h200'"),
        (("tin", "--against", "h200"), "did you mean 'tiny'"),
        (("tiny", "--against", "h200", "--runs", 3), "--runs goes without --against"),
        (("tiny", "--gpus", 3), "--gpus goes with --against"),
        (("tiny", "--against", "h200", "--batches", "1,x"), "expected whole numbers"),
        (("tiny", "--against", "h200", "--mesh", "tp=x"), "is no axis and its size"),
        (("tiny", "--against", "h200", "--device", "sn51"), "did you mean 'sn50'"),
        (("tiny", "--against", "h200", "--precision", "fp32"), "no precision 'fp32'"),
        (("tiny", "--against", "h200", "-o", "x.svg"), "the page is an .html file"),
        (("llama-3.1-405b", "--against", "h100", "--gpus", 2), "does not fit"),
    ],
)
def test_refusals(arguments: tuple[object, ...], message: str) -> None:
    result = headrace("bench", *arguments)
    assert result.code == 2 and message in result.err


def test_devices_shows_the_numbers_of_a_gpu() -> None:
    shown = succeeds("devices", "h200").out
    assert "memory.bandwidth" in shown and "4800 GB/s" in shown and "source: NVIDIA H200 datasheet" in shown
    rows = succeeds("devices", "b200", "--json").json["numbers"]
    assert {row["basis"] for row in rows} == {"source", "inferred"}
    assert "there is no device 'h20'" in headrace("devices", "h20").err
