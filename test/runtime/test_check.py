"""Broken programs are refused, with every offender named; what is not refused changes the result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from programs import CASES, Case, ffn

from headrace.dialects.support.access import Loop, View
from headrace.dialects.support.diagnostics import CompileError
from headrace.runtime.check import check_program
from headrace.runtime.plan import bind_program
from headrace.runtime.program import Config, Flow, LaunchLoop, Program


def with_config(program: Program, **changes: object) -> Program:
    return replace(program, configs=(replace(program.configs[0], **changes), *program.configs[1:]))


def with_flow(program: Program, index: int, **changes: object) -> Program:
    flows = list(program.configs[0].flows)
    flows[index] = replace(flows[index], **changes)
    return with_config(program, flows=tuple(flows))


def flow_index(config: Config, src: str, dst: str) -> int:
    names = [(config.units[f.src].name, config.units[f.dst].name) for f in config.flows]
    return names.index((src, dst))


def refused(program: Program) -> CompileError:
    with pytest.raises(CompileError) as caught:
        check_program(program)
    return caught.value


def differs(case: Case, program: Program) -> bool:
    """Whether the outputs of a changed program are not those expected."""
    plan = bind_program(program, case.array)
    for port in program.inputs:
        plan.regions[port.region][...] = case.inputs[port.name].ravel()
    plan.run()
    return not all(
        np.allclose(plan.regions[p.region].reshape(p.type.shape), case.expected[p.name], atol=1e-5)
        for p in program.outputs
    )


def refused_or_different(case: Case, program: Program) -> None:
    try:
        check_program(program)
    except CompileError:
        return
    assert differs(case, program)


@pytest.mark.parametrize("name", list(CASES))
def test_a_dropped_flow_is_noticed(name: str) -> None:
    case = CASES[name]()
    flows = case.program.configs[0].flows
    for i in range(len(flows)):
        refused_or_different(case, with_config(case.program, flows=flows[:i] + flows[i + 1 :]))


@pytest.mark.parametrize("name", list(CASES))
def test_a_removed_unit_is_noticed(name: str) -> None:
    case = CASES[name]()
    config = case.program.configs[0]
    for u in range(len(config.units)):

        def moved(k: int, u: int = u) -> int:
            return k - (k > u)

        flows = tuple(replace(f, src=moved(f.src), dst=moved(f.dst)) for f in config.flows if u not in (f.src, f.dst))
        refused(with_config(case.program, units=config.units[:u] + config.units[u + 1 :], flows=flows))


@pytest.mark.parametrize("name", list(CASES))
def test_a_shifted_stride_or_offset_is_noticed(name: str) -> None:
    case = CASES[name]()
    for i, flow in enumerate(case.program.configs[0].flows):
        for side in ("src_view", "dst_view"):
            view: View | None = getattr(flow, side)
            if view is None:
                continue
            for d in range(len(view.strides)):
                if flow.stream.full_shape[d] == 1:
                    continue  # a stride that nothing uses
                strides = (*view.strides[:d], view.strides[d] + 1, *view.strides[d + 1 :])
                refused_or_different(case, with_flow(case.program, i, **{side: View(view.offset, strides)}))
            refused_or_different(case, with_flow(case.program, i, **{side: View(view.offset + 1, view.strides)}))


@pytest.mark.parametrize("name", list(CASES))
def test_a_changed_loop_is_noticed(name: str) -> None:
    case = CASES[name]()
    for i, flow in enumerate(case.program.configs[0].flows):
        for k, loop in enumerate(flow.stream.time):
            for other in (Loop(loop.count - 1, loop.dim, loop.step), Loop(loop.count + 1, loop.dim, loop.step),
                          Loop(loop.count, loop.dim, loop.step + 1)):  # fmt: skip
                if other.count < 1 or (loop.dim < 0 and other.count == loop.count):
                    continue
                if other.step != loop.step and flow.src_view is None and flow.dst_view is None:
                    continue  # between compute units a step is no address
                time = (*flow.stream.time[:k], other, *flow.stream.time[k + 1 :])
                refused_or_different(case, with_flow(case.program, i, stream=replace(flow.stream, time=time)))


@pytest.mark.parametrize("name", list(CASES))
def test_swapped_destinations_are_noticed(name: str) -> None:
    case = CASES[name]()
    tried = 0
    for i, flow in enumerate(case.program.configs[0].flows):
        pairs = np.array(flow.pairs)
        for a in range(len(pairs)):
            for b in range(a):
                if pairs[a, 0] == pairs[b, 0] or pairs[a, 1] == pairs[b, 1]:
                    continue
                swapped = pairs.copy()
                swapped[[a, b], 1] = pairs[[b, a], 1]
                if {tuple(p) for p in swapped.tolist()} == {tuple(p) for p in pairs.tolist()}:
                    continue
                refused(with_flow(case.program, i, pairs=swapped))
                tried += 1
    assert tried or name in ("transposed", "batched_heads", "padded_conv", "gathered", "concat", "cache")


def test_two_flows_with_swapped_ends_are_noticed() -> None:
    case = ffn()
    flows = list(case.program.configs[0].flows)
    for i in range(len(flows)):
        for k in range(i):
            changed = list(flows)
            changed[i] = replace(flows[i], dst=flows[k].dst, dst_port=flows[k].dst_port)
            changed[k] = replace(flows[k], dst=flows[i].dst, dst_port=flows[i].dst_port)
            if (flows[i].dst, flows[i].dst_port) == (flows[k].dst, flows[k].dst_port):
                continue
            refused_or_different(case, with_config(case.program, flows=tuple(changed)))


def test_all_offenders_are_listed() -> None:
    case = ffn()
    config = case.program.configs[0]
    first, second = flow_index(config, "dot", "act"), flow_index(config, "mb", "dot")
    broken = with_flow(case.program, first, credits=0)
    broken = with_flow(broken, second, src_view=View(90, (1,)))
    broken = replace(broken, launches=(replace(broken.launches[0], args=((0, 0), (1, 8), (2, 0), (3, 0))),))
    error = refused(broken)
    told = str(error)
    assert len(error.diagnostics) == 3
    assert "has 0 credits" in told
    assert "touches addresses 90 to 185 of 'mb', which holds 96" in told
    assert "'w' takes 6144 elements from 8" in told


CHANGES: dict[str, tuple[Callable[[Flow], dict[str, object]], str]] = {
    "tile": (lambda f: {"stream": replace(f.stream, tile=(8, 48))}, "carries tiles (8, 48) of f32 but the port has"),
    "dtype": (lambda f: {"stream": replace(f.stream, dtype="f64")}, "of f64 but the port has"),
    "space": (lambda f: {"stream": replace(f.stream, space=())}, "spreads over 1 sites but 'dot' has 4"),
    "view": (lambda f: {"src_view": View(0, (48, 1))}, "has an address program at a compute unit"),
    "unit": (lambda f: {"dst": 77}, "joins units"),
}


@pytest.mark.parametrize("what", list(CHANGES))
def test_refusals_of_a_flow(what: str) -> None:
    case = ffn()
    change, text = CHANGES[what]
    index = flow_index(case.program.configs[0], "dot", "act")
    flow = case.program.configs[0].flows[index]
    assert text in str(refused(with_flow(case.program, index, **change(flow))))


def test_a_frame_must_be_written_before_it_is_read() -> None:
    case = CASES["concat"]()
    config = case.program.configs[0]
    index = flow_index(config, "joined", "softmax")
    view = config.flows[index].src_view
    assert view is not None
    stream = replace(config.flows[index].stream, time=(Loop(5, 0, 1),))  # one frame less: counts differ
    assert "disagree on its frames" in str(refused(with_flow(case.program, index, stream=stream)))
    shifted = with_flow(case.program, index, src_view=View(1, view.strides))
    assert "touches addresses" in str(refused(shifted))


def test_launch_rules() -> None:
    case = ffn()
    program = case.program
    nothing = replace(program, launches=())
    assert "which nothing writes" in str(refused(nothing))
    swapped = replace(program, launches=(replace(program.launches[0], args=((0, 0), (1, 0), (2, 0), (0, 0))),))
    assert "writes input 'x'" in str(refused(swapped))
    regions = (program.regions[0], replace(program.regions[1], address=64), *program.regions[2:])
    assert "overlap in hbm" in str(refused(replace(program, regions=regions)))


def test_loop_rules() -> None:
    """Rounds follow each other, are the chip's own, launch the same configs, and advance by constant steps."""
    program = CASES["looped"]().program
    check_program(program)
    for loop in (LaunchLoop(0, 1, 4), LaunchLoop(1, 0, 2), LaunchLoop(2, 1, 1), LaunchLoop(-1, 1, 2)):
        assert "rounds of" in str(refused(replace(program, loops=(loop,))))
    twice = replace(program, loops=(LaunchLoop(0, 1, 2), LaunchLoop(1, 1, 2)))
    assert "loop 1 takes 2 rounds of 1 launches from launch 1" in str(refused(twice))
    by_host = replace(program, launches=tuple(replace(launch, mode="sw") for launch in program.launches))
    assert "the host launches more than the first" in str(refused(by_host))
    a, b, c = program.launches
    other = replace(program, configs=(*program.configs, program.configs[0]), launches=(a, replace(b, config=1), c))
    assert "rounds launch different configs" in str(refused(other))
    for change in ({"address": 1 << 20}, {"memory": "ddr"}):
        moved = tuple(replace(r, **change) if r.name == "w2" else r for r in program.regions)
        assert "parameter 1 of launch 0 does not advance" in str(refused(replace(program, regions=moved)))


def routed(links: list[list[int]]) -> Program:
    """The program with a device mesh of 16×16 (edge columns included) and these routes from `dot` to `act`."""
    case = ffn()
    index = flow_index(case.program.configs[0], "dot", "act")
    starts = np.cumsum([0, *map(len, links)]).astype(np.int32)
    flat = np.array([x for path in links for x in path], np.int32)
    program = with_flow(case.program, index, starts=starts, links=flat)
    return replace(program, device={"name": "toy", "grid": {"columns": 14, "rows": 16}})


def test_routes_are_paths_between_the_switches() -> None:
    # sites are handed out along row 0: dot sits at x = 9 … 12, act at x = 13 … 15 and at (0, 1)
    config = ffn().program.configs[0]
    names = [u.name for u in config.units]
    dot, act = config.units[names.index("dot")].sites, config.units[names.index("act")].sites
    paths: list[list[int]] = []
    for (x, y), (p, q) in zip(dot.tolist(), act.tolist(), strict=True):
        path = [4 * (y * 16 + i) for i in range(x, p)] + [4 * (y * 16 + i) + 1 for i in range(x, p, -1)]
        paths.append(path + [4 * (j * 16 + p) + 2 for j in range(y, q)])
    check_program(routed(paths))
    for change in range(len(paths)):
        for broken in (paths[change][:-1], paths[change][1:], [*paths[change], 4 * 200], paths[change - 1]):
            told = str(refused(routed([*paths[:change], broken, *paths[change + 1 :]])))
            assert "are no path between their switches" in told
    assert "does not have" in str(refused(routed([[5000], *paths[1:]])))
