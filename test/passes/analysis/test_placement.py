"""Placement: legal, deterministic, near its lower bound where the problem is regular, and corrupt answers refused."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, pairwise, permutations, product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.dialects.machine import Device, load_device
from headrace.dialects.support.diagnostics import CompileError
from headrace.passes.analysis.placement import (
    Group,
    Ints,
    Net,
    Placement,
    PlacementProblem,
    check_placement,
    lower_bound,
    solve_placement,
    wirelength,
)

TINY = load_device(Path(__file__).parents[2] / "dialects" / "machine" / "data" / "tiny.toml")
SN40L = load_device("sn40l")
SN40L_PMUS = np.array(SN40L.sites("pmu"))


def one_to_one(count: int) -> Ints:
    return np.stack([np.arange(count)] * 2, axis=1)


def pipeline(device: Device, lanes: int, length: int) -> PlacementProblem:
    """AGCU → (PMU → PCU)* → AGCU, `lanes` wide."""
    kinds = ["agcu", *(("pmu", "pcu")[i % 2] for i in range(length)), "agcu"]
    groups = [Group(f"g{i}", kind, lanes) for i, kind in enumerate(kinds)]
    return PlacementProblem.on(device, groups, [Net(i, i + 1, one_to_one(lanes)) for i in range(len(groups) - 1)])


def stages(count: int, width: int) -> PlacementProblem:
    """AGCUs → (`width` PMUs → `width` PCUs) × `count` → AGCUs, as many as there are on an edge at most."""
    edge = min(width, 40)
    kinds = [("agcu", edge), *[("pmu", width), ("pcu", width)] * count, ("agcu", edge)]
    groups = [Group(f"g{i}", kind, size) for i, (kind, size) in enumerate(kinds)]
    nets: list[Net] = []
    for i, (a, b) in enumerate(pairwise(groups)):
        most = max(a.count, b.count)
        at = np.arange(most)
        nets.append(Net(i, i + 1, np.stack([at * a.count // most, at * b.count // most], 1)))
    return PlacementProblem.on(SN40L, groups, nets)


def all_to_all(rows: int, columns: int, kind: str = "pmu") -> PlacementProblem:
    """Every PMU of one group with every unit of another."""
    at = np.arange(rows * columns)
    pairs = np.stack([at // columns, at % columns], 1)
    return PlacementProblem.on(SN40L, [Group("a", "pmu", rows), Group("b", kind, columns)], [Net(0, 1, pairs)])


def matmul(device: Device, rows: int, columns: int) -> PlacementProblem:
    """Row buffers and column buffers feed a grid of PCUs, whose results are gathered by row."""
    cell = np.arange(rows * columns)
    groups = [Group("a", "pmu", rows), Group("b", "pmu", columns), Group("mm", "pcu", rows * columns)]
    groups.append(Group("c", "pmu", rows))
    nets = [
        Net(0, 2, np.stack([cell // columns, cell], 1)),
        Net(1, 2, np.stack([cell % columns, cell], 1)),
        Net(2, 3, np.stack([cell, cell // columns], 1), 0.25),
    ]
    return PlacementProblem.on(device, groups, nets)


@pytest.mark.parametrize(("lanes", "length"), [(1, 100), (4, 60), (8, 10), (16, 24), (40, 52), (10, 208)])
def test_a_regular_pipeline_is_placed_near_its_lower_bound(lanes: int, length: int):
    problem = pipeline(SN40L, lanes, length)
    placement = solve_placement(problem)
    assert 1 <= placement.ratio <= 1.3
    assert placement.cost == wirelength(problem, placement.positions)


@pytest.mark.parametrize(("count", "width"), [(4, 16), (8, 32), (12, 40), (25, 20), (100, 5), (2, 256), (1, 500)])
def test_stages_with_buffers_between_are_placed_near_the_lower_bound(count: int, width: int):
    problem = stages(count, width)
    placement = solve_placement(problem)
    assert placement.ratio <= 1.3
    assert placement.cost < 0.8 * solve_placement(problem, moves=0, start="rows").cost


@pytest.mark.parametrize("units", [16, 100, 1000])
def test_a_broadcast_is_placed_at_its_lower_bound(units: int):
    assert solve_placement(all_to_all(1, units, "pcu")).ratio <= 1.05


@pytest.mark.parametrize(("rows", "columns"), [(4, 4), (32, 32), (64, 64), (8, 64), (2, 300)])
def test_split_buffers_that_all_talk_are_placed_near_the_lower_bound(rows: int, columns: int):
    assert solve_placement(all_to_all(rows, columns)).ratio <= 1.3


def test_strands_of_one_address_generator_stand_before_it():
    problem = stages(1, 500)
    placement = solve_placement(problem, moves=0)
    assert "40 lanes of 500 strands" in placement.starts[0][0] and "on both edges" in placement.starts[0][0]
    far = np.abs(placement.positions[1] - placement.positions[0][np.arange(500) * 40 // 500]).sum(1)
    assert far.max() <= 16


@pytest.mark.parametrize("device", ["plasticine", "sn10", "sn40l", "sn50"])
def test_a_chip_filled_to_the_last_unit_is_placed(device: str):
    target = load_device(device)
    half = target.count("pcu") // 2
    groups = [Group(f"{kind}{i}", kind, half) for i in range(2) for kind in ("pmu", "pcu")]
    problem = PlacementProblem.on(target, groups, [Net(i, i + 1, one_to_one(half)) for i in range(3)])
    assert solve_placement(problem, moves=5000).ratio < 3


def test_refinement_helps_an_irregular_problem():
    problem = matmul(SN40L, 4, 8)
    start, refined = solve_placement(problem, moves=0), solve_placement(problem)
    assert refined.cost < 0.95 * start.cost
    assert start.moves == 0 and refined.moves > 0
    assert start.cost == min(cost for _, cost in start.starts)


def test_a_larger_budget_is_not_worse_by_much_and_the_trace_names_the_losers():
    problem = matmul(SN40L, 4, 8)
    small, large = solve_placement(problem, moves=20_000), solve_placement(problem, moves=100_000)
    assert large.cost <= small.cost * 1.02
    assert len(large.starts) > 1 and len({name for name, _ in large.starts}) == len(large.starts)


def test_the_same_seed_gives_the_same_placement():
    problem = matmul(SN40L, 4, 4)
    first, second, other = (solve_placement(problem, seed=s) for s in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(first.positions, second.positions, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first.positions, other.positions, strict=True))


def test_heavy_nets_are_shorter_than_light_ones():
    groups = [Group("hub", "pmu", 1), Group("near", "pcu", 4), Group("far", "pcu", 12)]
    hub = [np.stack([np.zeros(n, np.int64), np.arange(n)], 1) for n in (4, 12)]
    problem = PlacementProblem.on(SN40L, groups, [Net(0, 1, hub[0], 1.0), Net(0, 2, hub[1], 0.01)])
    placement = solve_placement(problem)
    assert (np.abs(placement.positions[1] - placement.positions[0]).sum(1) == 1).all()
    assert placement.ratio == pytest.approx(1.0)


def test_the_lower_bound_counts_what_fits_around_a_unit():
    # On the inner checkerboard a PMU has four PCUs at distance 1 and twelve at distance 3.
    hub = np.stack([np.zeros(10, np.int64), np.arange(10)], 1)
    problem = PlacementProblem.on(SN40L, [Group("m", "pmu", 1), Group("c", "pcu", 10)], [Net(0, 1, hub)])
    assert lower_bound(problem) == 4 * 1 + 6 * 3


@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_the_lower_bound_holds_for_the_best_of_all_placements(data: st.DataObject):
    sites = {"pcu": np.array([[0, 0], [2, 0], [1, 1], [0, 2]]), "pmu": np.array([[1, 0], [0, 1], [2, 1]])}
    pair = st.tuples(st.integers(0, 2), st.integers(0, 1))
    nets = []
    for a, b in ((0, 1), (0, 0), (1, 1)):
        pairs = [p for p in data.draw(st.lists(pair, max_size=4)) if p[0] < (3, 2)[a] and p[1] < (3, 2)[b]]
        nets.append(Net(a, b, np.array(pairs, np.int64).reshape(-1, 2), data.draw(st.sampled_from([0.5, 1.0, 2.0]))))
    problem = PlacementProblem((3, 3), sites, (Group("c", "pcu", 3), Group("m", "pmu", 2)), tuple(nets))
    best = min(
        wirelength(problem, (sites["pcu"][list(c)], sites["pmu"][list(m)]))
        for c, m in product(permutations(range(4), 3), permutations(range(3), 2))
    )
    assert lower_bound(problem) <= best * (1 + 1e-9)
    assert best * (1 - 1e-9) <= solve_placement(problem).cost


@pytest.mark.parametrize(("rows", "columns"), [(1, 3), (2, 2), (2, 3), (3, 3), (1, 5)])
def test_the_lower_bound_of_a_complete_net_holds_for_the_best_of_all_placements(rows: int, columns: int):
    sites = np.array([[0, 0], [2, 0], [1, 1], [3, 1], [0, 2], [2, 2], [4, 0]])
    at = np.arange(rows * columns)
    net = Net(0, 1, np.stack([at // columns, at % columns], 1))
    problem = PlacementProblem((5, 3), {"pmu": sites}, (Group("a", "pmu", rows), Group("b", "pmu", columns)), (net,))
    best = min(
        wirelength(problem, (sites[list(a)], sites[list(b)]))
        for a in combinations(range(7), rows)
        for b in combinations(sorted(set(range(7)) - set(a)), columns)
    )
    assert 0.6 * best <= lower_bound(problem) <= best


@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_the_lower_bound_by_levels_holds_for_the_best_of_all_placements(data: st.DataObject):
    sites = {
        "pcu": np.array([[1, 0], [3, 0], [2, 1], [1, 2]]),
        "pmu": np.array([[2, 0], [1, 1], [3, 1], [2, 2]]),
        "agcu": np.array([[0, 0], [0, 1], [5, 2]]),
    }
    groups = Group("c", "pcu", 3), Group("m", "pmu", 3), Group("a", "agcu", 2)
    nets = []
    for a, b in ((0, 1), (1, 2), (0, 2)):
        pair = st.tuples(st.integers(0, groups[a].count - 1), st.integers(0, groups[b].count - 1))
        pairs = np.array(data.draw(st.lists(pair, max_size=5)), np.int64).reshape(-1, 2)
        nets.append(Net(a, b, pairs, data.draw(st.sampled_from([0.5, 1.0, 2.0]))))
    problem = PlacementProblem((6, 3), sites, groups, tuple(nets))
    at = [np.array(list(permutations(sites[g.kind].tolist(), g.count))) for g in groups]
    grid = np.meshgrid(*(np.arange(len(a)) for a in at), indexing="ij")
    chosen = [a[g.ravel()] for a, g in zip(at, grid, strict=True)]
    cost = np.zeros(len(chosen[0]))
    for net in nets:
        far = np.abs(chosen[net.source][:, net.pairs[:, 0]] - chosen[net.target][:, net.pairs[:, 1]])
        cost += net.weight * far.sum(axis=(1, 2))
    assert lower_bound(problem) <= cost.min() * (1 + 1e-9)


def test_the_lower_bound_knows_that_loads_and_stores_share_the_sites_near_the_edges():
    # 256 strands of four units, both ends at an AGCU: twelve columns at each edge whatever the order within a strand.
    problem = stages(2, 256)
    by_edges = 2 * sum(40 * d for d in range(1, 7)) + 2 * 16 * 7 + 3 * 256
    assert lower_bound(problem) > 1.4 * by_edges
    assert solve_placement(problem).ratio <= 1.1


def test_the_lower_bound_counts_the_sites_near_the_edges():
    # 80 PMUs at most are next to an AGCU's column: the others that load are a column further in, and so on.
    pairs = np.stack([np.arange(400) % 80, np.arange(400)], 1)
    problem = PlacementProblem.on(SN40L, [Group("load", "agcu", 80), Group("m", "pmu", 400)], [Net(0, 1, pairs)])
    near = np.sort(np.minimum(*(np.abs(SN40L_PMUS[:, 0] - edge) for edge in (0, 53))))[:400]
    assert lower_bound(problem) >= near.sum()


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_any_problem_that_fits_is_placed_legally(data: st.DataObject):
    device = TINY.with_values(grid__pattern=data.draw(st.sampled_from(["checkerboard", "paired"])))
    left = {kind: device.count(kind) for kind in ("pcu", "pmu", "agcu")}
    groups: list[Group] = []
    for index in range(data.draw(st.integers(0, 5))):
        kind = data.draw(st.sampled_from(sorted(left)))
        count = data.draw(st.integers(0, left[kind]))
        left[kind] -= count
        groups.append(Group(f"g{index}", kind, count))
    nets: list[Net] = []
    for _ in range(data.draw(st.integers(0, 6)) if groups else 0):
        a, b = (data.draw(st.integers(0, len(groups) - 1)) for _ in range(2))
        if groups[a].count and groups[b].count:
            pair = st.tuples(st.integers(0, groups[a].count - 1), st.integers(0, groups[b].count - 1))
            pairs = np.array(data.draw(st.lists(pair, max_size=12)), np.int64).reshape(-1, 2)
            nets.append(Net(a, b, pairs, data.draw(st.sampled_from([0.0, 0.25, 1.0]))))
    problem = PlacementProblem.on(device, groups, nets)
    placement = solve_placement(problem, moves=500)  # passes its own checker
    assert [len(p) for p in placement.positions] == [g.count for g in groups]
    assert placement.cost >= placement.lower_bound * (1 - 1e-9)


def test_too_many_units_are_refused_by_kind_with_the_largest_groups():
    groups = [Group("a", "pcu", 1000), Group("b", "pcu", 50), Group("m", "pmu", 1041)]
    with pytest.raises(CompileError) as error:
        solve_placement(PlacementProblem.on(SN40L, groups, []))
    assert [d.code for d in error.value.diagnostics] == ["too-many-units"] * 2
    assert "1050 units of kind pcu do not fit 1040 sites" in str(error.value)
    assert "'a' 1000, 'b' 50" in error.value.why


def test_nets_of_units_that_are_not_there_are_refused():
    groups = [Group("a", "pcu", 2), Group("b", "pmu", 2)]
    nets = [Net(0, 1, np.array([[0, 2]])), Net(0, 2, np.array([[0, 0]])), Net(0, 1, one_to_one(2), float("nan"))]
    with pytest.raises(CompileError) as error:
        solve_placement(PlacementProblem.on(TINY, groups, nets))
    assert len(error.value.diagnostics) == 3


def corrupt(placement: Placement, how: str) -> Placement:
    positions = [p.copy() for p in placement.positions]
    if how == "two units on one site":
        positions[1][0] = positions[1][1]
    elif how == "a unit on a site of the other kind":
        positions[1][0] = positions[2][0]
    elif how == "a unit off the mesh":
        positions[1][0] = (99, 99)
    elif how == "a unit is missing":
        positions[1] = positions[1][1:]
    elif how == "a group is missing":
        positions.pop()
    else:
        positions[2] = np.roll(positions[2], 1, axis=0)  # legal, but the cost is another
    return replace(placement, positions=tuple(positions))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("two units on one site", "has taken"),
        ("a unit on a site of the other kind", "which is no pmu site"),
        ("a unit off the mesh", r"\(99, 99\), which is no pmu site"),
        ("a unit is missing", "sites of shape"),
        ("a group is missing", "3 positions for 4 groups"),
        ("lanes are rotated", "the cost is"),
    ],
)
def test_a_corrupt_placement_is_refused(how: str, message: str):
    problem = pipeline(TINY, 2, 2)
    placement = solve_placement(problem)
    check_placement(problem, placement)
    with pytest.raises(CompileError, match=message):
        check_placement(problem, corrupt(placement, how))
