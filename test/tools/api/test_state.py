"""State: a KV cache lives in the executable and is updated in place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from command import succeeds
from gpt import Decoder

import headrace

STATES = {"past_key": "present_key", "past_value": "present_value"}


@pytest.mark.parametrize("scatter", ["ScatterND", "ScatterElements"])
def test_sixteen_steps_in_place_equal_the_recomputed_sequence(tmp_path: Path, scatter: str) -> None:
    decoder = Decoder(scatter=scatter)
    (tmp_path / "step.onnx").write_bytes(decoder.model().SerializeToString())
    flags = [word for past, present in STATES.items() for word in ("--state", f"{past}={present}")]
    succeeds("compile", tmp_path / "step.onnx", "-o", tmp_path / "step.sn", *flags)
    exe = headrace.load(tmp_path / "step.sn")
    assert [port.name for port in exe.inputs] == ["x", "position"]
    assert [port.name for port in exe.outputs] == ["y"]
    base = {name: view.ctypes.data for name, view in exe._states.items()}
    xs = np.random.default_rng(1).standard_normal((16, decoder.width)).astype(np.float32)
    for step in range(16):
        y = exe({"x": xs[step : step + 1], "position": np.array([step])})["y"]
        np.testing.assert_allclose(y, decoder.recomputed(xs[: step + 1]), rtol=1e-4, atol=1e-5)
    assert base == {name: view.ctypes.data for name, view in exe._states.items()}
    keys = xs @ decoder.weights()["k"]
    np.testing.assert_allclose(exe.state()["past_key"], keys, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("scatter", ["ScatterND", "ScatterElements"])
def test_the_cache_is_one_buffer(scatter: str) -> None:
    """Past and present share an address in the program, and no launch and no step of the runtime copies the cache."""
    decoder = Decoder(scatter=scatter)
    program = headrace.compile(decoder.model(), states=STATES).program
    places = {port.name: (port.region, port.offset) for port in (*program.inputs, *program.outputs)}
    for past, present in STATES.items():
        assert places[past] == places[present]
        region = places[past][0]
        for launch in program.launches:
            config = program.configs[launch.config]
            for number, (at, _) in enumerate(launch.args):
                if at == region:
                    stores = [u for u in config.units if u.kind == "agcu" and u.param == number]
                    assert [u for u in stores if u.direction == "store"] == [], "the whole cache is written"


def test_state_is_set_and_read_by_name() -> None:
    decoder = Decoder()
    exe = headrace.compile(decoder.model(), states=STATES)
    xs = np.random.default_rng(2).standard_normal((3, decoder.width)).astype(np.float32)
    cache = {f"past_{n}": np.zeros((decoder.room, decoder.width), np.float32) for n in ("key", "value")}
    for name, rows in cache.items():
        rows[:2] = xs[:2] @ decoder.weights()[name.removeprefix("past_")[0]]
    exe.reset(cache)
    y = exe({"x": xs[2:], "position": np.array([2])})["y"]
    np.testing.assert_allclose(y, decoder.recomputed(xs), rtol=1e-4, atol=1e-5)
    exe.reset()
    assert all(not view.any() for view in exe.state().values())


def test_run_takes_the_state_from_the_inputs(tmp_path: Path) -> None:
    decoder = Decoder()
    xs = np.random.default_rng(3).standard_normal((4, decoder.width)).astype(np.float32)
    headrace.compile(decoder.model(), states=STATES, out=tmp_path / "step.sn")
    cache = {f"past_{n}": np.zeros((decoder.room, decoder.width), np.float32) for n in ("key", "value")}
    for name, rows in cache.items():
        rows[:3] = xs[:3] @ decoder.weights()[name.removeprefix("past_")[0]]
    np.savez(tmp_path / "x.npz", x=xs[3:], position=np.array([3]), **cache)
    succeeds("run", tmp_path / "step.sn", "--inputs", tmp_path / "x.npz", "-o", tmp_path / "y.npz")
    with np.load(tmp_path / "y.npz") as found:
        np.testing.assert_allclose(found["y"], decoder.recomputed(xs), rtol=1e-4, atol=1e-5)
