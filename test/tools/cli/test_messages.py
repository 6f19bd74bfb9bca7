"""What the commands say to someone who mistypes, and what they add up for someone who reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from command import headrace, succeeds

import headrace as package

PROGRAM = """\
func.func @main(%x: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %0 = tensor.exp %x : tensor<8x4xf32> -> tensor<8x4xf32>
  func.return %0 : tensor<8x4xf32>
}
"""


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    (tmp_path / "m.mlir").write_text(PROGRAM)
    succeeds("compile", tmp_path / "m.mlir", "-o", tmp_path / "m.sn")
    return tmp_path / "m.sn"


def test_no_command_shows_the_commands() -> None:
    result = headrace()
    assert result.code == 2 and not result.out
    assert result.err.startswith("Usage: headrace") and "error" not in result.err


@pytest.mark.parametrize("command", ["plan", "compile", "compare"])
def test_an_artifact_is_no_model(command: str, artifact: Path) -> None:
    result = headrace(command, artifact, *(["--random-inputs", 0] if command == "compare" else []))
    assert result.code == 2 and "is an artifact, not a model" in result.err and "headrace run" in result.err


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        (["run", "--random-inputs", 0, "--units"], "--units is about --profile"),
        (["run", "--profile", "--top", 0], "not in the range"),
        (["bench", "--seconds", -1], "not in the range"),
    ],
)
def test_numbers_out_of_range(flags: list[object], part: str, artifact: Path) -> None:
    result = headrace(flags[0], artifact, *flags[1:])
    assert result.code == 2 and part in result.err


def test_the_device_time_is_the_same_everywhere(artifact: Path, tmp_path: Path) -> None:
    compiled = succeeds("compile", tmp_path / "m.mlir", "-o", artifact, "--json").json
    seconds = compiled["device_seconds"]
    assert seconds > 0
    assert succeeds("bench", artifact, "--runs", 1, "--json").json["device_seconds"] == seconds
    exe = package.load(artifact)
    assert exe.profile().seconds == seconds
    assert 0 < compiled["busiest_link"] == max(c.link_load for c in exe.profile().configs) <= 1
    assert str(exe.profile()) == succeeds("run", artifact, "--profile").out.rstrip("\n")
    assert repr(exe) == "<Executable m for sn40l: arg0 tensor<8x4xf32> -> result0 tensor<8x4xf32>>"


def test_a_profile_of_units(artifact: Path) -> None:
    shown = succeeds("run", artifact, "--profile", "--units").out
    assert "cycles a step" in shown and "@main_0/" in shown
    assert "cycles a step" not in succeeds("run", artifact, "--profile").out


def test_literal_execution_that_was_asked_for_is_no_news(artifact: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", arg0=np.zeros((8, 4), np.float32))
    result = succeeds("run", artifact, "--inputs", tmp_path / "x.npz", "--literal")
    assert not result.err and "mean 1" in result.out


def test_a_device_adds_up() -> None:
    shown = succeeds("devices", "sn40l").out.splitlines()
    assert shown[0].startswith("sn40l: 1040 PCU") and "bf16 639 TFLOP/s" in shown[1] and "64 GiB HBM" in shown[2]
    assert succeeds("devices", "sn40l", "--json").json["overview"]["pcus"] == 1040
