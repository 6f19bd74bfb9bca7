"""State: a KV cache lives in the executable and is updated in place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import succeeds
from gpt import Decoder
from onnx import helper
from onnx_models import info, model

import headrace

STATES = {"past_key": "present_key", "past_value": "present_value"}


def cache_of(decoder: Decoder, xs: Any) -> dict[str, Any]:
    """The caches after the tokens `xs`."""
    found: dict[str, Any] = {}
    for name in ("key", "value"):
        found[f"past_{name}"] = np.zeros((decoder.heads, decoder.room, decoder.size), np.float32)
        found[f"past_{name}"][:, : len(xs)] = decoder.split(xs @ decoder.weights()[name[0]])
    return found


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("scatter", ["ScatterND", "ScatterElements"])
def test_sixteen_steps_in_place_equal_the_recomputed_sequence(tmp_path: Path, scatter: str, heads: int) -> None:
    decoder = Decoder(scatter=scatter, heads=heads)
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
    keys = decoder.split(xs @ decoder.weights()["k"])
    np.testing.assert_allclose(exe.state()["past_key"], keys, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("scatter", ["ScatterND", "ScatterElements"])
def test_the_cache_is_one_buffer(scatter: str, heads: int) -> None:
    """Past and present share an address in the program, and no launch and no step of the runtime copies the cache."""
    decoder = Decoder(scatter=scatter, heads=heads)
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
    cache = cache_of(decoder, xs[:2])
    exe.reset(cache)
    y = exe({"x": xs[2:], "position": np.array([2])})["y"]
    np.testing.assert_allclose(y, decoder.recomputed(xs), rtol=1e-4, atol=1e-5)
    exe.reset()
    assert all(not view.any() for view in exe.state().values())


def test_run_takes_the_state_from_the_inputs(tmp_path: Path) -> None:
    decoder = Decoder()
    xs = np.random.default_rng(3).standard_normal((4, decoder.width)).astype(np.float32)
    headrace.compile(decoder.model(), states=STATES, out=tmp_path / "step.sn")
    np.savez(tmp_path / "x.npz", x=xs[3:], position=np.array([3]), **cache_of(decoder, xs[:3]))
    succeeds("run", tmp_path / "step.sn", "--inputs", tmp_path / "x.npz", "-o", tmp_path / "y.npz")
    with np.load(tmp_path / "y.npz") as found:
        np.testing.assert_allclose(found["y"], decoder.recomputed(xs), rtol=1e-4, atol=1e-5)


def test_state_that_is_computed_anew() -> None:
    """A running sum: nothing in it can be written in place by address, and it is still kept between runs."""
    nodes = [
        helper.make_node("Add", ["past", "x"], ["present"], name="sum"),
        helper.make_node("Mul", ["present", "past"], ["y"], name="product"),
    ]
    x = np.array([1, 2, 3], np.float32)
    exe = headrace.compile(model(nodes, [info("past", x), info("x", x)], ["present", "y"]), states={"past": "present"})
    total = np.zeros(3, np.float32)
    for step in range(4):
        before, total = total, total + x * step
        out = exe({"x": x * step})
        assert list(out) == ["y"]
        np.testing.assert_allclose(out["y"], total * before)
        np.testing.assert_allclose(exe.state()["past"], total)
    twin = exe.clone()
    assert not np.shares_memory(twin.state()["past"], exe.state()["past"])
