"""Tile by tile: what waits, what is delivered, and deadlocks with their cycle."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from programs import Body, Builder, ffn, program, rand, region

from headrace.dialects.support.access import identity
from headrace.dialects.support.diagnostics import CompileError
from headrace.dialects.tensor.shapes import TT
from headrace.runtime.check import check_program
from headrace.runtime.literal import run_config
from headrace.runtime.plan import bind_program
from headrace.runtime.program import Pmu, Program


def diamond(credits: int) -> Program:
    """x goes to `sum` twice: directly, and through a unit that needs the whole of it first; the direct way must hold
    everything meanwhile."""
    n = 6
    b = Builder("diamond")
    x, y = b.param("x", (n, 4)), b.param("y", (n, 4), "out")
    whole = b.pmu("whole", (n, 4))
    body = Body([TT((1, 4), "f32")])
    first = b.pcu("first", body, [body.op("exp", 0)])
    join = Body([TT((1, 4), "f32"), TT((1, 4), "f32")])
    total = b.pcu("sum", join, [join.op("add", 0, 1)])
    load, store = b.agcu("load", x), b.agcu("store", y)
    rows = [(n, 0, 1)]
    b.flow(load, first, (1, 4), rows, from_=identity((n, 4)))
    b.flow(first, whole, (1, 4), rows, to=identity((n, 4)))
    b.flow(first, total, (1, 4), rows, credits=credits)
    b.flow(whole, total, (1, 4), rows, from_=identity((n, 4)))
    b.flow(total, store, (1, 4), rows, to=identity((n, 4)))
    return program([b.config()], [region("x", "input", (n, 4)), region("y", "output", (n, 4))], [(0, [0, 1])])


def test_a_flow_without_room_deadlocks_and_says_who_waits_for_whom() -> None:
    x, y = rand(0, 24), np.zeros(24, np.float32)
    run_config(diamond(6).configs[0], [x, y])
    np.testing.assert_allclose(y, 2 * np.exp(x), rtol=1e-6)
    check_program(diamond(2))  # sound, but it stops
    with pytest.raises(CompileError) as caught:
        run_config(diamond(2).configs[0], [x, y])
    assert caught.value.code == "deadlock"
    assert "'first' waits for a credit of 'first' -> 'sum'" in caught.value.why
    assert "'sum' waits for data of 'whole' -> 'sum'" in caught.value.why


def test_a_buffer_holds_as_many_frames_as_it_has_copies() -> None:
    """What a frame leaves behind in a copy is never seen by another, whatever the copies and credits."""
    case = ffn()
    config = case.program.configs[0]
    for copies in (1, 2, 3):
        for credits in (1, 2, 8):
            units = tuple(replace(u, copies=copies) if isinstance(u, Pmu) else u for u in config.units)
            flows = tuple(replace(f, credits=credits) for f in config.flows)
            changed = replace(case.program, configs=(replace(config, units=units, flows=flows),))
            plan = bind_program(changed, case.array, literal_only=True)
            plan.regions[0][...] = case.inputs["x"].ravel()
            plan.run()
            np.testing.assert_allclose(plan.regions[3], case.expected["y"].ravel(), rtol=1e-5, atol=1e-5)


def test_what_no_pair_of_sites_carries_does_not_arrive() -> None:
    case = ffn()
    config = case.program.configs[0]
    index = next(i for i, f in enumerate(config.flows) if config.units[f.src].name == "mx")
    flow = config.flows[index]
    flows = list(config.flows)
    flows[index] = replace(flow, pairs=flow.pairs[1:])
    params = [case.inputs["x"].ravel(), case.weights["w"].ravel(), case.weights["b"], np.zeros(128 * 96, np.float32)]
    with pytest.raises(CompileError, match="a site of 'mx' -> 'dot' lacks elements of its tile in step 0"):
        run_config(replace(config, flows=tuple(flows)), params)
