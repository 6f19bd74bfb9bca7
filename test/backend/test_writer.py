"""Written artifacts: deterministic bytes, a layout that any safetensors reader knows, no trace of a failed write."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from programs import Case, ffn

from headrace.backend.writer import write_artifact
from headrace.dialects.support.diagnostics import CompileError


def save(path: Path, case: Case) -> Path:
    write_artifact(path, case.program, case, compiler="0.1.0", manifest={"model": "toy", "precision": "fp32"})
    return path


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return save(tmp_path / "m.sn", ffn())


def test_same_input_same_bytes(tmp_path: Path) -> None:
    assert save(tmp_path / "a.sn", ffn()).read_bytes() == save(tmp_path / "b.sn", ffn()).read_bytes()


def test_a_changed_weight_changes_its_bytes_and_the_digests_alone(tmp_path: Path) -> None:
    one, other = ffn(), ffn()
    other.weights["b"] = other.weights["b"] + 1
    a, b = save(tmp_path / "a.sn", one), save(tmp_path / "b.sn", other)
    x, y = a.read_bytes(), b.read_bytes()
    (size,) = struct.unpack("<Q", x[:8])
    assert len(x) == len(y) and x[:8] == y[:8]
    heads = [json.loads(data[8 : 8 + size]) for data in (x, y)]
    digests = [json.loads(h["__metadata__"].pop("digests")) for h in heads]
    assert heads[0] == heads[1]
    assert {k for k in digests[0] if digests[0][k] != digests[1][k]} == {"weights", "all"}
    assert {k for k in digests[0]["weights"] if digests[0]["weights"][k] != digests[1]["weights"][k]} == {"b"}
    start, end = heads[0]["b"]["data_offsets"]
    differ = np.flatnonzero(np.frombuffer(x[8 + size :], np.uint8) != np.frombuffer(y[8 + size :], np.uint8))
    assert start <= differ.min() and differ.max() < end


def test_any_safetensors_reader_lists_it(saved: Path) -> None:
    from safetensors import safe_open

    with safe_open(saved, "np") as file:
        assert set(file.keys()) == {"headrace/program", "headrace/tables", "w", "b"}
        np.testing.assert_array_equal(file.get_tensor("w"), ffn().weights["w"])
        meta = file.metadata()
    assert (meta["format"], meta["compiler"], meta["model"], meta["device"]) == ("headrace", "0.1.0", "toy", "toy")
    assert json.loads(meta["inputs"]) == [{"name": "x", "shape": [128, 64], "dtype": "f32"}]


def test_a_failed_write_leaves_no_file(tmp_path: Path) -> None:
    case = ffn()
    case.weights["w"] = case.weights["w"][:3]
    with pytest.raises(CompileError, match="weights do not fit the program"):
        save(tmp_path / "m.sn", case)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(CompileError, match="cannot-write"):
        save(tmp_path / "no" / "m.sn", ffn())
