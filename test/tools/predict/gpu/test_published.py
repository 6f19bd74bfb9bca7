"""The model of GPUs against published figures: which set a constant, and how far the others are met."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from headrace.tools.predict.gpu import gpu_names, load_gpu
from headrace.tools.predict.gpu.published import (
    BOUNDS,
    error_of,
    fit,
    median_error,
    predicted,
    published_rows,
    table,
)


def test_each_constant_is_set_by_one_row_and_no_other_row_sets_any() -> None:
    rows = published_rows()
    assert Counter(row.sets for row in rows if row.kind == "FIT") == dict.fromkeys(BOUNDS, 1)
    assert all(row.kind == "HO" and not row.sets for row in rows if row.kind != "FIT")
    assert all(row.source for row in rows)


def test_the_files_have_what_the_rows_set() -> None:
    for path, value in fit().items():
        part, _, name = path.partition(".")
        for gpu in gpu_names():
            assert getattr(getattr(load_gpu(gpu), part), name) == pytest.approx(value, rel=0.01), (gpu, path)
    for row in published_rows():
        if row.kind == "FIT":
            assert abs(error_of(row, predicted(row))) < 0.01


def test_rows_that_are_held_out() -> None:
    rows = table(published_rows())
    held = [row for row in rows if row["kind"] == "HO"]
    assert len(held) > 30
    assert median_error(rows) < 0.3
    dense = [abs(row["error"]) for row in held if row["model"].startswith("llama") and row["metric"] == "share"]
    assert max(dense) < 0.3


def test_the_command_prints_a_row_for_each() -> None:
    command = [sys.executable, "-m", "headrace.tools.predict.gpu"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert shown.count("| HO |") == sum(row.kind == "HO" for row in published_rows())
    assert "median absolute error" in shown


def test_the_guide_has_the_table_as_it_is() -> None:
    guide = (Path(__file__).parents[4] / "docs" / "guides" / "against-gpus.md").read_text("utf-8")
    shown = subprocess.run(
        [sys.executable, "-m", "headrace.tools.predict.gpu"], capture_output=True, text=True, check=True
    ).stdout
    assert shown.strip() in guide
