"""Programs for meshes of sockets, through the whole compiler: the same numbers as on one socket, states included."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace
from headrace.dialects.support.diagnostics import CompileError
from headrace.frontends.decoder import TINY, TINY_MOE, DecoderConfig, build_decoder

STEPS = 3


def decoder(config: DecoderConfig, mode: Any, batch: int) -> Any:
    return build_decoder(config, mode, batch=batch, tokens=6, context=8, seed=0, dispatch="dense")


def inputs_of(exe: Any, step: int) -> dict[str, Any]:
    rng = np.random.default_rng(step)
    states = dict(exe.program.states)
    found = {p.name: rng.integers(0, 8, p.type.shape).astype(np.int32) for p in exe.inputs if p.name not in states}
    return found | ({"position": np.array([step], np.int32)} if "position" in found else {})


@pytest.mark.parametrize(
    ("config", "mode", "batch", "mesh"),
    [
        (TINY, "decode", 1, {"tp": 2}),
        (TINY, "decode", 4, {"dp": 2, "tp": 4}),
        (TINY, "prefill", 1, {"tp": 4}),
        (TINY_MOE, "decode", 1, {"tp": 2}),
        (TINY_MOE, "prefill", 2, {"ep": 2, "tp": 2}),
    ],
    ids=lambda x: getattr(x, "name", str(x).replace(" ", "")),
)
def test_decoders(config: DecoderConfig, mode: str, batch: int, mesh: dict[str, int]) -> None:
    one = headrace.compile(decoder(config, mode, batch))
    many = headrace.compile(decoder(config, mode, batch), mesh=mesh)
    assert [(p.name, p.type) for p in one.inputs] == [(p.name, p.type) for p in many.inputs], "whole tensors, as ever"
    for step in range(STEPS):
        inputs = inputs_of(one, step)
        expected, found = one(inputs), many(inputs)
        for name, array in expected.items():
            np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-5, err_msg=name)


def test_an_artifact_of_a_mesh_gives_the_same(tmp_path: Path) -> None:
    exe = headrace.compile(decoder(TINY, "decode", 1), mesh={"tp": 2}, out=tmp_path / "m.sn")
    loaded = headrace.load(tmp_path / "m.sn")
    for step in range(STEPS):
        inputs = inputs_of(exe, step)
        np.testing.assert_array_equal(loaded(inputs)["logits"], exe(inputs)["logits"])


@pytest.mark.parametrize("mesh", [{"dp": 2}, {"dp": 2, "tp": 2}], ids=lambda x: str(x).replace(" ", ""))
def test_training_with_statistics_of_a_batch(mesh: dict[str, int]) -> None:
    """Mean and variance are those of the whole batch, gradients and the optimizer's state those of one socket."""
    torch = pytest.importorskip("torch")
    nn = torch.nn
    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2, padding=1)),
        *(nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)),
    )
    reference = copy.deepcopy(model)
    x, y = torch.randn(STEPS, 8, 3, 8, 8), torch.randint(0, 4, (STEPS, 8))
    loss: Callable[..., Any] = nn.functional.cross_entropy

    def optimizer(of: Any) -> Any:
        return torch.optim.SGD(of.parameters(), lr=0.05, momentum=0.9)

    theirs, ours = optimizer(reference), optimizer(model)
    step = headrace.compile_training(
        model, ours, loss, example_inputs=(x[0],), example_targets=(y[0],), device="sn40l", mesh=mesh
    )
    for i in range(STEPS):
        theirs.zero_grad()
        expected = loss(reference(x[i]), y[i])
        expected.backward()
        theirs.step()
        assert step(x[i], y[i]).item() == pytest.approx(expected.item(), abs=1e-5)
    step.sync()
    for (name, found), value in zip(model.state_dict().items(), reference.state_dict().values(), strict=True):
        np.testing.assert_allclose(found.numpy(), value.numpy(), atol=1e-5, err_msg=name)


def test_a_mesh_is_refused_where_it_cannot_be() -> None:
    with pytest.raises(CompileError, match="sizes that fit: 2, 3, 4"):
        headrace.compile(decoder(TINY, "prefill", 1), mesh={"tp": 5})
    with pytest.raises(CompileError, match="passes are given beside a mesh"):
        headrace.compile(decoder(TINY, "prefill", 1), mesh={"tp": 2}, pipeline="default")
    with pytest.raises(CompileError, match="there is no axis 'xp'"):
        headrace.compile(decoder(TINY, "prefill", 1), mesh={"xp": 2})
