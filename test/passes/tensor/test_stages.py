"""Layers divided among sockets along axis pp: the numbers of one socket, whose ports they are, and refusals."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace
from headrace.dialects.support.diagnostics import CompileError
from headrace.frontends.decoder import TINY, build_decoder
from headrace.runtime.session import load

CONFIG = dataclasses.replace(TINY, layers=4)


@pytest.fixture(scope="module", params=["prefill", "decode"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stages") / f"{request.param}.mlir"
    path.write_text(str(build_decoder(CONFIG, mode=request.param, tokens=8, context=16).module))
    return path


@pytest.fixture(scope="module")
def one(model: Path) -> Any:
    return headrace.compile(model, weights="random:0")


def inputs(exe: Any, step: int) -> dict[str, Any]:
    rng = np.random.default_rng(step)
    tokens = {p.name: rng.integers(0, CONFIG.vocab, p.type.shape).astype(np.int32) for p in exe.inputs}
    return tokens | {p.name: np.full(p.type.shape, step, np.int32) for p in exe.inputs if p.name == "position"}


@pytest.mark.parametrize("mesh", [{"pp": 2}, {"pp": 4}, {"pp": 2, "tp": 2}])
def test_the_numbers_and_states_are_those_of_one_socket(
    model: Path, one: Any, mesh: dict[str, int], tmp_path: Path
) -> None:
    exe = headrace.compile(model, weights="random:0", mesh=mesh)
    exe.save(tmp_path / "m.sn")
    loaded = load(tmp_path / "m.sn")
    exact = "tp" not in mesh  # the same sums in the same order
    one.reset()
    for step in range(3):
        given = inputs(one, step)
        wanted, found, again = one(given), exe(given), loaded(given)
        assert sorted(found) == sorted(wanted)
        for name, array in wanted.items():
            np.testing.assert_allclose(found[name], array, rtol=0, atol=0 if exact else 1e-5)
            np.testing.assert_array_equal(again[name], found[name])
    wanted, found = one.state(), exe.state()
    assert sorted(found) == sorted(wanted)
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, rtol=0, atol=0 if exact else 1e-5)
    exe.reset(wanted)
    given = inputs(one, 3)
    for name, array in one(given).items():
        np.testing.assert_allclose(exe(given)[name], array, rtol=0, atol=0 if exact else 1e-5)


def test_a_socket_holds_the_weights_of_its_own_layers(model: Path, one: Any) -> None:
    exe = headrace.compile(model, weights="random:0", mesh={"pp": 4})

    def held(program: Any) -> int:
        return sum(region.type.elements for region in program.regions if region.kind == "weight")

    ends = 2 * CONFIG.vocab * CONFIG.hidden
    assert held(exe.program) - ends < (held(one.program) - ends) / 3
    assert [names for names in exe.program.stacks.values() if len(names) != 4] == []


@pytest.mark.parametrize(
    ("mesh", "says"),
    [
        ({"pp": 3}, "4 layers are not shared evenly by pp=3 sockets"),
        ({"tp": 2, "pp": 2}, "axis 'pp' of the mesh is behind 'tp'"),
    ],
)
def test_what_cannot_be_divided_is_refused(model: Path, mesh: dict[str, int], says: str) -> None:
    with pytest.raises(CompileError, match=says):
        headrace.compile(model, shape_only=True, mesh=mesh)


def test_a_program_without_layers_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "one.mlir"
    path.write_text(
        'func.func @main(%x: tensor<2x2xf32> {tensor.name = "x"}) -> tensor<2x2xf32> {\n'
        "  %0 = tensor.relu %x : tensor<2x2xf32> -> tensor<2x2xf32>\n  func.return %0 : tensor<2x2xf32>\n}\n"
    )
    with pytest.raises(CompileError, match="there are no layers to divide among pp=2 sockets"):
        headrace.compile(path, mesh={"pp": 2})
