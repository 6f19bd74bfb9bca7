"""Routing: paths, trees, capacity and freedom from deadlock, and corrupt answers refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.dialects.machine import load_device
from headrace.dialects.support.diagnostics import CompileError
from headrace.passes.analysis.routing import (
    EAST,
    NORTH,
    SOUTH,
    WEST,
    Flow,
    Routing,
    RoutingProblem,
    check_routing,
    least_wirelength,
    link_ends,
    solve_routing,
    worst_cut,
)

TINY = load_device(Path(__file__).parents[2] / "dialects" / "machine" / "data" / "tiny.toml")
SN40L = load_device("sn40l")


def flow(*pairs: tuple[int, int, int, int], name: str = "f", bandwidth: float = 1.0, multicast: bool = True) -> Flow:
    """A flow of pairs (source x, source y, target x, target y)."""
    table = np.array(pairs, np.int64).reshape(-1, 4)
    return Flow(name, table[:, :2], table[:, 2:], bandwidth, multicast)


def problem(*flows: Flow, mesh: tuple[int, int] = (4, 4), **limits: Any) -> RoutingProblem:
    return RoutingProblem(mesh, flows, **{"capacity": 1.0, "flow_ids": 8, "virtual_channels": 4, **limits})


def turns(routing: Routing, flow_index: int) -> list[list[int]]:
    """Directions of the routes of a flow."""
    return [(route % 4).tolist() for route in routing.routes(flow_index)]


def test_dimension_order_goes_along_x_and_then_y():
    routing = solve_routing(problem(flow((0, 0, 2, 1)), flow((3, 3, 1, 1))))
    assert turns(routing, 0) == [[EAST, EAST, SOUTH]]
    assert turns(routing, 1) == [[WEST, WEST, NORTH, NORTH]]
    assert routing.rerouted == 0 and routing.max_load == 1.0 and routing.hops.tolist() == [3, 4]
    start, end = link_ends((4, 4), routing.routes(0)[0])
    assert start.tolist() == [0, 1, 2] and end.tolist() == [1, 2, 6]


def test_a_multicast_loads_a_shared_link_once():
    shared = solve_routing(problem(flow((0, 0, 3, 0), (0, 0, 3, 1), (0, 0, 2, 2))))
    assert shared.max_load == 1.0 and shared.max_flows == 1
    apart = solve_routing(problem(flow((0, 0, 3, 0), (0, 0, 3, 1), multicast=False), capacity=2.0))
    assert apart.max_load == 2.0


def test_only_nets_that_branch_or_leave_dimension_order_take_an_identifier():
    straight = [flow((0, 0, 3, 2), name=f"f{i}", bandwidth=0.01) for i in range(4)]
    assert solve_routing(problem(*straight, flow_ids=1)).max_flows == 0
    tree = flow((0, 0, 3, 0), (0, 0, 3, 1), bandwidth=0.01)
    assert solve_routing(problem(*straight, tree, flow_ids=1)).flows.sum() == 4
    # One link holds one of the two; the other goes along y first, and its words are told apart there.
    routing = solve_routing(problem(flow((0, 0, 2, 2), name="a"), flow((0, 0, 2, 1), name="b")))
    other = 0 if turns(routing, 0)[0][0] == SOUTH else 1
    assert routing.flows.sum() == len(routing.routes(other)[0])


def test_units_at_one_switch_need_no_links():
    routing = solve_routing(problem(flow((1, 1, 1, 1), (1, 1, 2, 1))))
    assert [len(r) for r in routing.routes(0)] == [0, 1]


def test_no_flows_and_empty_flows_are_routed():
    assert len(solve_routing(problem()).links) == 0
    assert solve_routing(problem(flow(), flow((0, 0, 1, 0)), flow())).routes(1)[0].tolist() == [EAST]


def test_the_other_order_relieves_an_overloaded_link():
    routing = solve_routing(problem(flow((0, 0, 2, 2), name="a"), flow((0, 0, 2, 1), name="b")))
    assert routing.max_load == 1.0 and routing.rerouted > 0
    assert sorted({turns(routing, i)[0][0] for i in range(2)}) == [EAST, SOUTH]


def test_a_detour_is_found_where_both_orders_are_full():
    # Three flows from one column to another, side by side: the rows between are shared with straight flows.
    flows = [flow((0, y, 3, y), name=f"row{y}") for y in (0, 1)]
    routing = solve_routing(problem(*flows, flow((0, 0, 3, 1), name="third")))
    assert routing.max_load == 1.0
    assert len(routing.routes(2)[0]) > 4


def test_the_number_of_flows_on_a_link_is_bounded():
    flows = [flow((0, 0, 3, 0), (0, 0, 2, 0), name=f"f{i}", bandwidth=0.01) for i in range(4)]
    assert solve_routing(problem(*flows, flow_ids=2)).max_flows == 2


def test_a_spread_scatter_needs_no_identifiers():
    # One memory sends other words to each of 1,000 units: more ways than its links have identifiers left.
    sites = np.array(SN40L.sites("pcu"))[:1000]
    sources = np.tile(SN40L.sites("pmu")[500], (1000, 1))
    routing = solve_routing(RoutingProblem.on(SN40L, [Flow("scatter", sources, sites, 0.001, multicast=False)]))
    assert len(routing.hops) == 1000 and routing.max_flows <= SN40L.network.flow_ids


def test_identifiers_are_given_back_where_they_are_short():
    # Overloaded whatever the way, so that nets leave dimension order; with one identifier a link few of them may.
    flows = [flow((0, 0, 3, 3), name=f"f{i}", bandwidth=0.6) for i in range(12)]
    routing = solve_routing(problem(*flows, flow_ids=1), allow_overload=True)
    assert routing.max_flows <= 1 and routing.rerouted > 0
    assert routing.max_load < 12 * 0.6


@pytest.mark.parametrize(
    ("flows", "where", "per_link"),
    [
        ([(0, y, 3, y) for y in range(4)] * 2, "pass from x = 0 to x = 1", 2.0),
        ([(1, 1, 3, 1)] * 6, "enter switch (3, 1)", 2.0),
        ([(0, 0, 2, 0), (0, 1, 3, 1), (0, 2, 3, 2)] * 2, "pass from x = 0 to x = 1", 1.5),
        ([(0, y, 3, 2 * y) for y in (0, 1)] * 6, "leave the 1 x 2 switches from (0, 0)", 4.0),
    ],
)
def test_the_worst_cut_is_named(flows: list[tuple[int, int, int, int]], where: str, per_link: float):
    cut = worst_cut(problem(*(flow(pair, name=f"f{i}") for i, pair in enumerate(flows))))
    assert cut is not None and (cut.where, cut.per_link) == (where, per_link)
    assert cut.nets.all() and cut.demand == len(flows)


@pytest.mark.parametrize("seed", range(12))
def test_random_chips_are_routed_or_refused_with_a_proof(seed: int):
    rng = np.random.default_rng(seed)
    device = load_device(("plasticine", "sn10")[seed % 2])
    columns, rows = device.mesh
    flows = []
    for index in range(int(rng.integers(2, 8))):
        at, to = rng.integers(0, (columns, rows), (2, int(rng.integers(1, 200)), 2))
        at = np.resize(at[: rng.integers(1, 9)], to.shape)  # few sources, so that nets branch
        flows.append(Flow(f"f{index}", at, to, float(rng.choice([0.01, 0.1, 0.5])), bool(rng.integers(0, 2))))
    chip = RoutingProblem.on(device, flows)
    words, names = worst_cut(chip), worst_cut(chip, identifiers=True)
    assert words is not None
    try:
        routing = solve_routing(chip, allow_overload=True)
        assert words.per_link - 1e-9 <= routing.max_load <= 1.5 * max(chip.capacity, words.per_link)
    except CompileError as error:
        assert names is not None and names.per_link > chip.flow_ids, error
    if words.per_link > chip.capacity:
        with pytest.raises(CompileError, match=r"must (pass|leave|enter|take)"):
            solve_routing(chip)


def test_a_full_cut_is_refused_with_its_flows():
    flows = [flow((0, y, 3, y), (1, y, 2, y), name=f"row{y}", multicast=False) for y in range(4)]
    with pytest.raises(CompileError) as error:
        solve_routing(problem(*flows))
    assert error.value.code == "congestion"
    assert "8 words per cycle must pass from x = 1 to x = 2" in error.value.what
    assert "the 4 links there carry 4" in error.value.why and "'row0' (2 nets, 2 words/cycle)" in error.value.why


def test_a_net_is_not_divided():
    wide = problem(flow((1, 1, 3, 1), bandwidth=1.5), flow((0, 0, 3, 3), name="g", bandwidth=0.1))
    cut = worst_cut(wide)
    assert cut is not None and cut.per_link == 1.5 and cut.nets.tolist() == [True, False]
    with pytest.raises(CompileError, match=r"1.5 words per cycle must leave switch \(1, 1\) undivided, as one net"):
        solve_routing(wide)
    assert solve_routing(wide, allow_overload=True).max_load == 1.5
    assert worst_cut(problem(flow((1, 1, 1, 1), bandwidth=1.5))) is None


def test_a_switch_that_cannot_take_its_words_is_refused():
    flows = [flow((x, y, 1, 1), name=f"from{x}{y}") for x, y in ((0, 0), (2, 2), (3, 3), (0, 3), (3, 0))]
    with pytest.raises(CompileError, match=r"5 words per cycle must enter switch \(1, 1\)"):
        solve_routing(problem(*flows))


def test_more_branching_flows_than_a_cut_tells_apart_are_refused_with_them():
    flows = [flow((0, 0, 3, 0), (0, 0, 2, 0), name=name, bandwidth=0.5) for name in "ab"]
    with pytest.raises(CompileError, match="2 flows that branch must pass from x = 0 to x = 1") as error:
        solve_routing(problem(*flows, mesh=(4, 1), flow_ids=1, capacity=4.0), allow_overload=True)
    assert "the one link there tells 1 flows apart; the flows are 'a' (1 nets, 0.5 words/cycle), 'b'" in error.value.why


def test_links_that_stay_overloaded_are_refused_with_their_flows():
    # Each cut has room for both, but a word does not split: of the two ways out of the corner one takes 0.6, and 0.6.
    flows = [flow((0, 0, 1, 1), name=name, bandwidth=0.6) for name in "abc"]
    with pytest.raises(CompileError, match="no way was found: the link from switch") as error:
        solve_routing(problem(*flows, mesh=(2, 2)))
    assert "on it are 'b' (1 nets, 0.6 words/cycle), 'c'" in error.value.why
    assert "the tightest cut, which does not forbid it: 0.9 words per cycle and link must" in error.value.why


def test_overload_may_be_allowed_and_is_then_kept_small():
    flows = [flow((0, y, 3, y), (1, y, 2, y), name=f"row{y}", multicast=False) for y in range(4)]
    routing = solve_routing(problem(*flows), allow_overload=True)
    assert routing.max_load == 2.0
    with pytest.raises(CompileError, match="has 2 of 1 words per cycle"):
        check_routing(problem(*flows), routing)


def test_a_switch_that_many_words_enter_is_loaded_evenly():
    rng = np.random.default_rng(0)
    sites: list[int] = rng.choice(20 * 20, 18, replace=False).tolist()
    flows = [flow((s % 20, s // 20, 11, 9), name=f"f{s}", bandwidth=b) for s in sites for b in (1.0, 0.45)]
    crowded = problem(*flows, mesh=(20, 20), capacity=2.0)
    cut = worst_cut(crowded)
    assert cut is not None and cut.per_link > 6
    assert solve_routing(crowded, allow_overload=True).max_load < cut.per_link + 0.25


def test_one_channel_is_enough_for_dimension_order():
    routing = solve_routing(problem(flow((0, 0, 2, 2)), flow((3, 3, 0, 1)), virtual_channels=1))
    assert set(routing.channel.tolist()) == {0}


def test_sites_off_the_mesh_are_refused():
    with pytest.raises(CompileError, match="'off' has sites off the"):
        solve_routing(problem(flow((0, 0, 4, 0), name="off")))


def test_the_same_problem_gives_the_same_routes():
    rng = np.random.default_rng(3)
    flows = [flow(*map(tuple, rng.integers(0, 4, (6, 4)).tolist()), name=f"f{i}", bandwidth=0.3) for i in range(4)]
    first, second = (solve_routing(problem(*flows), allow_overload=True) for _ in range(2))
    assert np.array_equal(first.links, second.links) and np.array_equal(first.channel, second.channel)


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_any_routing_is_legal_and_free_of_deadlock(data: st.DataObject):
    columns, rows = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 5))
    site = st.tuples(st.integers(0, columns - 1), st.integers(0, rows - 1))
    flows = []
    for index in range(data.draw(st.integers(1, 8))):
        pairs = [(*a, *b) for a, b in data.draw(st.lists(st.tuples(site, site), max_size=8, unique=True))]
        width = data.draw(st.sampled_from([0.0, 0.2, 0.5, 1.0]))
        flows.append(flow(*pairs, name=f"f{index}", bandwidth=width, multicast=data.draw(st.booleans())))
    channels = data.draw(st.integers(1, 4))
    tight = problem(*flows, mesh=(columns, rows), virtual_channels=channels, flow_ids=64)
    # The checker runs inside, cycles of waiting channels included.
    routing = solve_routing(tight, reroutes=60, allow_overload=True)
    ordered = solve_routing(replace(tight, capacity=np.inf))
    cut = worst_cut(tight)
    least = cut.per_link if cut is not None else 0.0
    limit = max(1.0, least) + 1e-9
    assert least - 1e-9 <= routing.max_load
    assert np.maximum(routing.load - limit, 0).sum() <= np.maximum(ordered.load - limit, 0).sum()
    assert least_wirelength(tight) - 1e-9 <= min(routing.wirelength, ordered.wirelength)


def test_thousands_of_pairs_are_routed_on_a_whole_chip():
    rng = np.random.default_rng(0)
    sources = np.array(SN40L.sites("pcu"))[rng.integers(0, SN40L.count("pcu"), 4000)]
    targets = np.clip(sources + rng.integers(-6, 7, (4000, 2)), (1, 0), (52, 39))
    routing = solve_routing(RoutingProblem.on(SN40L, [Flow("random", sources, targets, 0.2, multicast=False)]))
    assert routing.max_load <= SN40L.network.links and routing.max_flows <= SN40L.network.flow_ids
    distance = np.abs(sources - targets).sum(axis=1)
    assert (routing.hops >= distance).all() and routing.hops.sum() <= 1.02 * distance.sum()


def corrupt(routing: Routing, how: str) -> Routing:
    links, channel, begin = routing.links.copy(), routing.channel.copy(), routing.begin.copy()
    if how == "a link is cut":
        links = np.delete(links, 1)
        begin[1:] -= 1
    elif how == "a link goes elsewhere":
        links[1] += 1
    elif how == "two routes are swapped":
        links = np.concatenate([links[begin[1] :], links[: begin[1]]])
    elif how == "a channel that is not there":
        channel[0] = 7
    elif how == "loads are too low":
        return replace(routing, load=routing.load * 0.5)
    elif how == "a link that is not there":
        links[0] = 4000
    return replace(routing, links=links, begin=begin, channel=channel)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("a link is cut", "no path from source to target"),
        ("a link goes elsewhere", "no path from source to target"),
        ("two routes are swapped", "no path from source to target"),
        ("a channel that is not there", "one that is not there"),
        ("loads are too low", "loads given"),
        ("a link that is not there", "do not fit"),
    ],
)
def test_a_corrupt_routing_is_refused(how: str, message: str):
    given_problem = problem(flow((0, 0, 2, 1), name="a"), flow((3, 3, 1, 2), name="b"))
    routing = solve_routing(given_problem)
    with pytest.raises(CompileError, match=message):
        check_routing(given_problem, corrupt(routing, how))


def by_hand(given_problem: RoutingProblem, routes: list[list[int]]) -> Routing:
    """A routing from links, in channel 0, with the loads that belong to it."""
    links = np.array([link for route in routes for link in route], np.int64)
    begin = np.cumsum([0, *map(len, routes)])
    net, _, bandwidth = given_problem.nets
    used = {(int(net[pair]), link) for pair, route in enumerate(routes) for link in route}
    bent = {int(net[pair]) for pair, route in enumerate(routes) if sorted(route, key=lambda x: x % 4 >= SOUTH) != route}
    several = {n for n in range(len(bandwidth)) if (net == n).sum() > 1}
    load, flows = np.zeros(given_problem.link_count), np.zeros(given_problem.link_count, np.int64)
    for n, link in used:
        load[link] += bandwidth[n]
        flows[link] += n in bent | several
    return Routing(links, begin, np.zeros(len(routes), np.int64), load, flows, given_problem.offsets)


def test_routes_that_wait_for_each_other_are_refused():
    # Four flows around the square (0,0) (1,0) (1,1) (0,1), each turning the same way: the classic deadlock.
    corners = [(0, 0, 1, 1), (1, 0, 0, 1), (1, 1, 0, 0), (0, 1, 1, 0)]
    ring = problem(*(flow(c, name=f"corner{i}") for i, c in enumerate(corners)), mesh=(2, 2), capacity=2.0)
    around = [4 * 0 + EAST, 4 * 1 + SOUTH, 4 * 3 + WEST, 4 * 2 + NORTH]
    routing = by_hand(ring, [[around[i], around[(i + 1) % 4]] for i in range(4)])
    with pytest.raises(CompileError, match="4 channels wait for each other"):
        check_routing(ring, routing)
    check_routing(ring, solve_routing(ring))


def test_a_multicast_that_meets_itself_is_refused():
    square = problem(flow((0, 0, 1, 1), (0, 0, 2, 1)), mesh=(3, 2))
    routing = by_hand(square, [[4 * 0 + EAST, 4 * 1 + SOUTH], [4 * 0 + SOUTH, 4 * 3 + EAST, 4 * 4 + EAST]])
    with pytest.raises(CompileError, match="they are no tree"):
        check_routing(square, routing)
