"""The benchmark harness on peers that cost nothing: protocol, interleaving, wrong numbers, absent peers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import workloads

from headrace.tools.bench.__main__ import main
from headrace.tools.bench.compiling import CommandFailed, cpu_seconds
from headrace.tools.bench.executing import geometric_mean, one_thread, quantile
from headrace.tools.bench.mapping import put
from headrace.tools.bench.placing import measure, table

PEER = "def load(model):\n    return lambda inputs: [inputs['x'] * {factor}]\n"


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A folder with a model's inputs and reference, and peers that double or triple."""
    x = np.arange(4, dtype=np.float32)
    (tmp_path / "m.onnx").write_bytes(b"")
    np.savez(tmp_path / "m_inputs.npz", x=x)
    np.savez(tmp_path / "m_reference.npz", 2 * x)
    for name, factor in (("good", 2), ("bad", 3)):
        (tmp_path / f"{name}.py").write_text(PEER.format(factor=factor))
    return tmp_path


def run(models: Path, ours: str, *more: str) -> int:
    """The command on two peer files."""
    peers = ["--ours", str(models / f"{ours}.py"), "--peer", str(models / "good.py")]
    return main(["execute", "--models", str(models), *peers, "--rounds", "2", "--burst", "1", *more])


def test_execute_reports_the_median_of_paired_ratios(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(models, "good", "--json", str(models / "out.json")) == 0
    assert "geometric mean" in capsys.readouterr().out
    record = json.loads((models / "out.json").read_text())
    (row,) = record["rows"]
    assert row["model"] == "m" and row["rounds"] == 2 and row["ratio"] > 0 and row["ours"]["error"] == 0
    assert record["mean"] == pytest.approx(row["ratio"])


def test_execute_fails_on_wrong_numbers_and_on_a_missed_gate(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(models, "bad") == 1
    assert "outputs are off" in capsys.readouterr().out
    assert run(models, "good", "--gate-mean", "0.0001") == 1


def test_a_folder_without_models_is_bad_usage(tmp_path: Path) -> None:
    assert main(["execute", "--models", str(tmp_path)]) == 2


def test_compile_says_that_a_peer_is_absent(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["compile", "--models", str(models), "--peer-only", "--rounds", "1"]
    main(arguments)
    main([*arguments, "--iree-python", str(models / "python")])
    told = capsys.readouterr().out
    assert "was not named" in told and "iree-compile not found" in told


def test_a_failing_command_gives_its_reason() -> None:
    with pytest.raises(CommandFailed, match="code 3: no"):
        cpu_seconds(["sh", "-c", "echo no >&2; exit 3"], 1)
    assert cpu_seconds(["true"], 1) < 5


def test_statistics() -> None:
    assert geometric_mean([1, 4]) == pytest.approx(2)
    assert quantile([3, 1, 2, 4], 0.25) == 2
    fixed = one_thread({"OPENBLAS_CORETYPE": "Prescott", "HOME": "/"})
    assert fixed["OMP_NUM_THREADS"] == "1" and "OPENBLAS_CORETYPE" not in fixed


def test_depth_compares_with_the_first(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = models / "out.json"
    assert main(["depth", "--layers", "1,2", "--rounds", "1", "--json", str(out), "--gate", "0.01"]) == 1
    assert "net ratio" in capsys.readouterr().out
    shallow, deep = json.loads(out.read_text())
    assert shallow["ratio"] == 1 and deep["layers"] == 2 and deep["nodes"] > shallow["nodes"] and deep["ratio"] > 0.01


def test_ir_compares_every_level_with_plain_xdsl(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = models / "out.json"
    assert main(["ir", "--ops", "60", "--rounds", "1", "--json", str(out), "--gate", "0.0001"]) == 1
    rows = json.loads(out.read_text())
    assert len(capsys.readouterr().out.splitlines()) == 1 + len(rows)
    assert [(row["level"], row["what"]) for row in rows] == [
        (level, what) for level in ("tensor", "dataflow", "rdu") for what in ("parse", "print", "verify")
    ]
    assert all(row["ops"] >= 60 and row["ours"] > 0 and row["ratio"] > 0 for row in rows)


def test_growth_of_every_pass(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = models / "out.json"
    passes = "cse,convert-tensor-to-dataflow,fuse-stages"
    arguments = ["growth", "--passes", passes, "--json", str(out)]
    assert main([*arguments, "--ops", "40,400", "--gate", "1e-9"]) == 1
    rows = json.loads(out.read_text())
    assert [row["spec"] for row in rows] == [*["parse", *passes.split(",")] * 3] and all(row["large"] for row in rows)
    assert "fuse-stages" in capsys.readouterr().out
    assert main([*arguments, "--ops", "400,40"]) == 2


def test_place_measures_a_section_beside_its_bounds_and_the_rules() -> None:
    row = measure(2, 8, 4)
    assert row.units == 2 * 2 * 8 + 16
    assert 1 <= row.ratio < row.row_by_row
    assert row.bound <= row.busiest <= row.one_order and row.busiest < row.both_rules
    assert "| 2 x 8, turned by 4 | 48 |" in table([row])


def test_mapping_writes_its_table_between_markers(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (models / "m.onnx").write_bytes(workloads.small("mlp_b1").model().SerializeToString())
    page = models / "page.md"
    page.write_text("before\n<!-- mapping -->\nold\n<!-- /mapping -->\nafter\n")
    only = ["--models", str(models), "--only", "m", "--without", "row by row", "--without", "one order"]
    assert main(["mapping", *only, "--write", str(page)]) == 0
    head, rule, row = capsys.readouterr().out.splitlines()
    assert head.startswith("| model | time | launches | peak | HBM | link |")
    assert len(rule.split("|")) == len(head.split("|")) == len(row.split("|"))
    cells = [cell.strip() for cell in row.split("|")]
    assert cells[1] == "m" and cells[9:11] == ["not measured"] * 2
    assert float(cells[6].rstrip("%")) > 0
    assert page.read_text() == f"before\n<!-- mapping -->\n{head}\n{rule}\n{row}\n<!-- /mapping -->\nafter\n"


def test_a_page_without_markers_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- mapping -->\nno end\n")
    with pytest.raises(SystemExit, match="/mapping"):
        put(page, "mapping", "table")
    assert page.read_text() == "<!-- mapping -->\nno end\n"
