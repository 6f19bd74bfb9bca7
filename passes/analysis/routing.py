"""Routing: which links of the mesh each flow takes. Problem, solver and checker in plain NumPy, no IR.

A link is one direction between two neighbouring switches: id = 4 · (y · columns + x) + direction, for the link that
leaves switch (x, y) to the east (+x), west (-x), south (+y) or north (-y). A *net* is what one site sends to one site
or, multicast, to several: its routes form a tree that carries every word once.

The solver routes all nets in dimension order at once; if links are overloaded it chooses between the two orders net by
net, and then negotiates: it rips up nets on overloaded links and searches them a way around, with prices that rise
where the overload stays. The budget is a number of re-routed nets; the same problem and budget give the same routes.

**No deadlock, by construction.** Each net is routed under one of four turn rules, and each rule has its own virtual
channel: *west-first* (no turn into west, holds every x-then-y route), *north-first* (no turn into north, holds every
y-then-x route), *east-first* and *south-first*. Under each rule, and without U-turns, the dependencies between channels
are acyclic. A packet is one word, so a switch that replicates a word holds one channel and waits for later ones in that
order only; and a unit puts a word into the network only with a credit from every target, so the last channel of a route
always drains. By induction over the order, all do. The checker rebuilds the dependencies from the routes, replication
included, and refuses a cycle, so the argument does not rest on the solver.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush

import numpy as np
import numpy.typing as npt

from headrace.dialects.machine.device import Device
from headrace.dialects.support.diagnostics import Collector, CompileError

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

EAST, WEST, SOUTH, NORTH = range(4)
STEP_X = np.array([1, -1, 0, 0])
STEP_Y = np.array([0, 0, 1, -1])
RULES = ("west-first", "north-first", "east-first", "south-first")
"""Turn rules, in the order of their virtual channels."""
_FIRST = (WEST, NORTH, EAST, SOUTH)

DEFAULT_REROUTES = 1000
"""Default budget: nets that the solver searches a new way for, after dimension order."""
PATIENCE = 6
"""Rounds of the negotiation without improvement before it is given up."""


@dataclass(frozen=True, eq=False)
class Flow:
    """One flow: `sources` [n, 2] and `targets` [n, 2] are the (x, y) of its pairs, `bandwidth` the vector words per
    cycle of one net. `multicast`: the pairs that share a source site carry the same words and share a tree; else each
    pair has its own words."""

    name: str
    sources: Ints
    targets: Ints
    bandwidth: float = 1.0
    multicast: bool = True


@dataclass(frozen=True, eq=False)
class RoutingProblem:
    """Flows on a mesh. `capacity` is in words per cycle and link; `flow_ids` bounds the nets on a link;
    `virtual_channels` bounds the turn rules in use."""

    mesh: tuple[int, int]
    flows: tuple[Flow, ...]
    capacity: float
    flow_ids: int
    virtual_channels: int

    @staticmethod
    def on(device: Device, flows: Sequence[Flow], *, overload: float = 1.0) -> RoutingProblem:
        """The problem on a device; links may be loaded to `overload` × their capacity (inf: no limit)."""
        network = device.network
        capacity = network.links * overload
        return RoutingProblem(device.mesh, tuple(flows), capacity, network.flow_ids, network.virtual_channels)

    @property
    def link_count(self) -> int:
        """Link ids are 0 … link_count - 1 (those that would leave the mesh are not used)."""
        return 4 * self.mesh[0] * self.mesh[1]

    @cached_property
    def offsets(self) -> Ints:
        """First pair of each flow among all pairs, and the number of pairs at the end."""
        return np.cumsum([0, *(len(f.sources) for f in self.flows)])

    @cached_property
    def pairs(self) -> tuple[Ints, Ints]:
        """Source and target switch (y · columns + x) of every pair, flow by flow."""
        columns = self.mesh[0]
        none = np.zeros((0, 2), np.int64)
        source = np.concatenate([none, *(f.sources for f in self.flows)])
        target = np.concatenate([none, *(f.targets for f in self.flows)])
        return source[:, 1] * columns + source[:, 0], target[:, 1] * columns + target[:, 0]

    @cached_property
    def nets(self) -> tuple[Ints, Ints, Floats]:
        """Net of every pair; flow and bandwidth of every net."""
        source, _ = self.pairs
        flow = np.repeat(np.arange(len(self.flows)), np.diff(self.offsets))
        multicast = np.array([f.multicast for f in self.flows], bool)[flow] if len(self.flows) else flow.astype(bool)
        switches = self.mesh[0] * self.mesh[1]
        own = flow * (switches + len(source)) + np.where(multicast, source, switches + np.arange(len(source)))
        _, first, net = np.unique(own, return_index=True, return_inverse=True)
        bandwidth = np.array([f.bandwidth for f in self.flows], np.float64)
        return net, flow[first], bandwidth[flow[first]]

    def check(self) -> None:
        """CompileError `bad-routing-problem` lists flows whose sites are not on the mesh or whose bandwidth is no
        number."""
        found = Collector()
        for flow in self.flows:
            shapes = flow.sources.shape == flow.targets.shape and flow.sources.ndim == 2 and flow.sources.shape[1] == 2
            if not shapes:
                found.add("bad-routing-problem", f"flow '{flow.name}': sources and targets are not two arrays [n, 2]")
                continue
            sites = np.concatenate([flow.sources, flow.targets])
            if ((sites < 0) | (sites >= self.mesh)).any():
                found.add("bad-routing-problem", f"flow '{flow.name}' has sites off the {self.mesh} mesh")
            if not 0 <= flow.bandwidth < np.inf:
                found.add("bad-routing-problem", f"flow '{flow.name}' has bandwidth {flow.bandwidth}")
        found.raise_if_any()


@dataclass(frozen=True, eq=False)
class Routing:
    """A solution. The route of pair p (numbered over all flows, `RoutingProblem.offsets`) is
    `links[begin[p]:begin[p+1]]`, from its source's switch to its target's; `channel[p]` is its virtual channel. `load`
    (words per cycle) and `flows` (nets) are per link. `rerouted`: nets that were tried after dimension order."""

    links: Ints
    begin: Ints
    channel: Ints
    load: Floats
    flows: Ints
    offsets: Ints
    rerouted: int = 0

    @property
    def max_load(self) -> float:
        """Words per cycle on the busiest link."""
        return float(self.load.max(initial=0.0))

    @property
    def max_flows(self) -> int:
        """Nets on the link that carries most."""
        return int(self.flows.max(initial=0))

    @property
    def hops(self) -> Ints:
        """Links of each pair's route."""
        return np.diff(self.begin)

    def routes(self, flow: int) -> list[Ints]:
        """The routes of a flow, pair by pair."""
        first, last = int(self.offsets[flow]), int(self.offsets[flow + 1])
        return [self.links[self.begin[p] : self.begin[p + 1]] for p in range(first, last)]


def link_ends(mesh: tuple[int, int], links: Ints) -> tuple[Ints, Ints]:
    """Switch (y · columns + x) that each link leaves, and the one it enters (-1: off the mesh)."""
    columns, rows = mesh
    start, direction = links // 4, links % 4
    x, y = start % columns + STEP_X[direction], start // columns + STEP_Y[direction]
    inside = (x >= 0) & (x < columns) & (y >= 0) & (y < rows)
    return start, np.where(inside, y * columns + x, -1)


def _ragged(count: Ints) -> tuple[Ints, Ints, Ints]:
    """For rows of the given lengths: row of each entry, its position in the row, and where the rows begin."""
    begin = np.concatenate([[0], np.cumsum(count)])
    row = np.repeat(np.arange(len(count)), count)
    return row, np.arange(len(row)) - begin[row], begin


def _dimension_order(columns: int, source: Ints, target: Ints, y_first: npt.NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """Links and begins of the routes that go along x and then y (or along y first)."""
    sx, sy, tx, ty = source % columns, source // columns, target % columns, target // columns
    dx, dy = tx - sx, ty - sy
    row, at, begin = _ragged(np.abs(dx) + np.abs(dy))
    dx, dy, y_first = dx[row], dy[row], y_first[row]
    leading = np.where(y_first, np.abs(dy), np.abs(dx))
    along_y = (at < leading) == y_first
    walked = np.where(at < leading, at, at - leading)
    x = np.where(along_y, np.where(y_first, sx[row], tx[row]), sx[row] + np.sign(dx) * walked)
    y = np.where(along_y, sy[row] + np.sign(dy) * walked, np.where(y_first, ty[row], sy[row]))
    direction = np.where(along_y, np.where(dy > 0, SOUTH, NORTH), np.where(dx > 0, EAST, WEST))
    return 4 * (y * columns + x) + direction, begin


class _State:
    """Routes under way: the links of every net, loads, and what is still overloaded."""

    def __init__(self, problem: RoutingProblem) -> None:
        self.problem = problem
        self.columns, self.rows = problem.mesh
        self.source, self.target = problem.pairs
        self.net, _, self.bandwidth = problem.nets
        self.count = len(self.bandwidth)
        order = np.argsort(self.net, kind="stable")
        self.members = np.split(order, np.searchsorted(self.net[order], np.arange(1, self.count)))
        self.y_first = np.zeros(self.count, bool)
        self.channel = np.zeros(self.count, np.int64)
        self.paths: dict[int, list[Ints]] = {}
        switches = np.arange(self.columns * self.rows)
        self.xs: list[int] = (switches % self.columns).tolist()
        self.ys: list[int] = (switches // self.columns).tolist()
        self.after: list[int] = []
        self.turns: list[list[list[int]]] = []
        self.tolerance = 1e-9 * max(1.0, problem.capacity if problem.capacity < np.inf else 1.0)
        self._measure()

    def prepare(self) -> None:
        """Tables for the search: the switch that each link enters, the legal next directions after each direction."""
        self.after = link_ends(self.problem.mesh, np.arange(self.problem.link_count))[1].tolist()
        self.turns = [
            [[d for d in range(4) if d != heading ^ 1 and (d != first or heading == first)] for heading in range(4)]
            + [list(range(4))]
            for first in _FIRST
        ]

    def excess(self) -> float:
        """Words per cycle and flows beyond what the links can have, over all links."""
        flows = np.maximum(self.flows - self.problem.flow_ids, 0).sum()
        return float(np.maximum(self.load - self.problem.capacity - self.tolerance, 0).sum() + flows)

    def ordered(self) -> tuple[Ints, Ints]:
        """Dimension-order routes of all pairs."""
        return _dimension_order(self.columns, self.source, self.target, self.y_first[self.net])

    def _measure(self) -> None:
        links, begin = self.ordered()
        key = np.unique(np.repeat(self.net, np.diff(begin)) * self.problem.link_count + links)
        self.of_net, on = key // self.problem.link_count, key % self.problem.link_count
        size = self.problem.link_count
        self.load = np.bincount(on, self.bandwidth[self.of_net], size).astype(np.float64)
        self.flows = np.bincount(on, minlength=size)
        self.trees = np.split(on, np.searchsorted(self.of_net, np.arange(1, self.count)))

    def over(self) -> npt.NDArray[np.bool_]:
        """Links with more load or more nets than they can have."""
        return (self.load > self.problem.capacity + self.tolerance) | (self.flows > self.problem.flow_ids)

    def swap(self, net: int, tree: Ints) -> None:
        """Replace the links of a net."""
        old = self.trees[net]
        self.load[old] -= self.bandwidth[net]
        self.flows[old] -= 1
        self.load[tree] += self.bandwidth[net]
        self.flows[tree] += 1
        self.trees[net] = tree

    def snapshot(self) -> tuple[float, dict[int, list[Ints]], Ints, Floats, Ints, list[Ints]]:
        """The overload and the routes that give it."""
        kept = dict(self.paths), self.channel.copy(), self.load.copy(), self.flows.copy(), list(self.trees)
        return self.excess(), *kept

    def restore(self, kept: tuple[float, dict[int, list[Ints]], Ints, Floats, Ints, list[Ints]]) -> None:
        """Back to the routes of a snapshot."""
        _, self.paths, self.channel, self.load, self.flows, self.trees = kept

    def offenders(self, over: npt.NDArray[np.bool_]) -> list[int]:
        """Nets on overloaded links, widest first."""
        touched = [n for n in range(self.count) if over[self.trees[n]].any()]
        return sorted(touched, key=lambda n: -self.bandwidth[n])


def _choose_orders(state: _State) -> int:
    """Flip nets on overloaded links between x-first and y-first where that lowers the overload, twice over all; nets
    flipped."""
    flipped = 0
    for _ in range(2):
        for net in state.offenders(state.over()):
            own, width, pairs = state.trees[net], state.bandwidth[net], state.members[net]
            if not state.over()[own].any():
                continue
            other = np.full(len(pairs), not state.y_first[net])
            links, _ = _dimension_order(state.columns, state.source[pairs], state.target[pairs], other)
            tree = np.unique(links)
            state.load[own] -= width
            state.flows[own] -= 1
            better = _pressure(state, tree, width) < _pressure(state, own, width)
            state.load[own] += width
            state.flows[own] += 1
            if better:
                flipped += 1
                state.swap(net, tree)
                state.y_first[net] = not state.y_first[net]
                state.channel[net] = int(state.y_first[net])
    return flipped


def _pressure(state: _State, tree: Ints, width: float) -> tuple[float, float, float]:
    """How bad it would be to add a net of `width` on the links of `tree`: overload, excess of flows, fullness."""
    load = state.load[tree] + width
    excess = np.maximum(state.flows[tree] + 1 - state.problem.flow_ids, 0)
    return (
        float(np.maximum(load - state.problem.capacity, 0).sum() + excess.sum()),
        float(load @ load),
        float(len(tree)),
    )


def _negotiate(state: _State, budget: int) -> int:
    """Rip up nets on overloaded links and search them another way, dearer where overload stays; nets tried.

    The state is left as it was after the round with the least overload.
    """
    problem = state.problem
    every = range(min(problem.virtual_channels, len(RULES)))
    history = np.zeros(problem.link_count)
    state.prepare()
    tried, sharpness, stalled = 0, 1.0, 0
    best = state.snapshot()
    rounds = 0
    while tried < budget and best[0] > 0 and stalled < PATIENCE:
        rules = every[:2] if rounds < 2 else every
        rounds += 1
        for net in state.offenders(state.over()):
            if tried >= budget:
                break
            own, width = state.trees[net], float(state.bandwidth[net])
            if not state.over()[own].any():
                continue
            tried += 1
            state.load[own] -= width
            state.flows[own] -= 1
            room = np.maximum(state.load + width - problem.capacity, 0) / max(width, 1e-12)
            room += np.maximum(state.flows + 1 - problem.flow_ids, 0)
            price = (1.0 + history + sharpness * room).tolist()
            found = min((_search(state, net, rule, price) for rule in rules), key=_cost_of)
            state.load[own] += width
            state.flows[own] += 1
            state.paths[net] = found[1]
            state.channel[net] = found[2]
            state.swap(net, np.unique(np.concatenate(found[1])))
        stalled += 1
        if state.excess() < best[0]:
            best, stalled = state.snapshot(), 0
        history += 0.5 * state.over()
        sharpness *= 1.6
    state.restore(best)
    return tried


def _cost_of(found: tuple[float, list[Ints], int]) -> float:
    return found[0]


def _search(state: _State, net: int, rule: int, price: list[float]) -> tuple[float, list[Ints], int]:
    """The cheapest tree for a net under a turn rule, target by target (A* from the tree so far): cost, routes, rule."""
    columns = state.columns
    pairs = state.members[net]
    root = int(state.source[pairs[0]])
    targets = state.target[pairs]
    far = np.abs(targets % columns - root % columns) + np.abs(targets // columns - root // columns)
    turns, after = state.turns[rule], state.after
    xs, ys = state.xs, state.ys
    came: dict[int, int] = {root: -1}  # switch -> link by which the tree enters it
    total = 0.0
    nearest: list[int] = targets[np.argsort(far, kind="stable")].tolist()
    for target in nearest:
        if target in came:
            continue
        goal_x, goal_y = xs[target], ys[target]
        heap: list[tuple[float, float, int, int]] = []
        heap += [(abs(xs[s] - goal_x) + abs(ys[s] - goal_y), 0.0, s, link) for s, link in came.items()]
        heapify(heap)
        before: dict[int, int] = {}  # link -> link before it
        switch = link = -1
        while heap:
            _, spent, switch, link = heappop(heap)
            if switch == target:
                break
            for direction in turns[link % 4 if link >= 0 else 4]:
                out = 4 * switch + direction
                entered = after[out]
                if entered < 0 or entered in came or out in before:
                    continue
                before[out] = link
                cost = price[out] - spent
                guess = cost + abs(xs[entered] - goal_x) + abs(ys[entered] - goal_y)
                heappush(heap, (guess, -cost, entered, out))  # the deeper one first among equals
        if switch != target:
            return float("inf"), [], rule
        while switch not in came:
            total += price[link]
            came[switch] = link
            switch, link = link // 4, before[link]
    routes: list[Ints] = []
    for target in targets.tolist():
        path: list[int] = []
        while came[target] >= 0:
            path.append(came[target])
            target = came[target] // 4
        routes.append(np.array(path[::-1], np.int64))
    return total, routes, rule


def solve_routing(problem: RoutingProblem, reroutes: int | None = None, *, allow_overload: bool = False) -> Routing:
    """Route all flows. `reroutes`: searches for a way around (None: `DEFAULT_REROUTES`, 0: dimension order only).

    CompileError `congestion` names the cut of the mesh, the switches or the links that cannot carry their flows, and
    those flows. With `allow_overload` the least overloaded routing found is the answer instead (a packet-switched
    network only gets slower: `Routing.max_load` over the capacity); too many flows on a link are refused all the same.
    The answer has passed `check_routing`.
    """
    problem.check()
    if not allow_overload:
        _check_cuts(problem)
    state = _State(problem)
    tried = 0
    if state.over().any():
        if problem.virtual_channels > 1:
            tried = _choose_orders(state)
        tried += _negotiate(state, DEFAULT_REROUTES if reroutes is None else reroutes)
        refused = (state.flows > problem.flow_ids).any() if allow_overload else state.over().any()
        if refused:
            raise _congestion(state, allow_overload)
    routing = _collect(state, tried)
    check_routing(problem, routing, allow_overload=allow_overload)
    return routing


def _collect(state: _State, tried: int) -> Routing:
    links, begin = state.ordered()
    if state.paths:
        routes = np.split(links, begin[1:-1])
        for net, paths in state.paths.items():
            for pair, path in zip(state.members[net].tolist(), paths, strict=True):
                routes[pair] = path
        links = np.concatenate(routes)
        begin = np.concatenate([[0], np.cumsum([len(r) for r in routes])])
    channel = state.channel[state.net] if state.count else np.zeros(0, np.int64)
    return Routing(links, begin, channel, state.load, state.flows, state.problem.offsets, tried)


# Refusals.


def _check_cuts(problem: RoutingProblem) -> None:
    """Refuse what no routing can solve: more words across a straight cut of the mesh than its links carry."""
    columns, rows = problem.mesh
    source, target = problem.pairs
    net, flow, bandwidth = problem.nets
    found = Collector()
    for axis, size, across in (("x", columns, rows), ("y", rows, columns)):
        begin = source % columns if axis == "x" else source // columns
        end = target % columns if axis == "x" else target // columns
        origin = np.zeros(len(bandwidth), np.int64)
        origin[net] = begin
        low, high = origin.copy(), origin.copy()
        np.minimum.at(low, net, end)
        np.maximum.at(high, net, end)
        for sign, first, last in (("+", origin, high), ("-", low, origin)):
            demand = np.zeros(size + 1)
            np.add.at(demand, first, bandwidth)
            np.add.at(demand, last, -bandwidth)
            load = demand.cumsum()[: size - 1]
            supply = across * problem.capacity
            for cut in np.flatnonzero(load > supply * (1 + 1e-9)).tolist():
                names = _names(problem, flow, bandwidth, (first <= cut) & (last > cut))
                found.add(
                    "congestion",
                    f"the cut between {axis} = {cut} and {axis} = {cut + 1} cannot carry {load[cut]:.4g} words per "
                    f"cycle towards {sign}{axis}",
                    why=f"its {across} links carry {supply:.4g}; the flows are {names}",
                    fix="lower the parallel factors, cut the section, or allow the links to be overloaded",
                )
    _check_ends(problem, found)
    found.raise_if_any()


def _check_ends(problem: RoutingProblem, found: Collector) -> None:
    """Add the switches that more words must leave, or enter, than their links carry."""
    columns, rows = problem.mesh
    source, target = problem.pairs
    net, flow, bandwidth = problem.nets
    apart = source != target
    starts, ends = link_ends(problem.mesh, np.arange(problem.link_count))
    degree = np.bincount(starts[ends >= 0], minlength=columns * rows)
    for verb, end in (("leave", source), ("enter", target)):
        key = np.unique(net[apart] * (columns * rows) + end[apart])
        of_net, switch = key // (columns * rows), key % (columns * rows)
        load = np.bincount(switch, bandwidth[of_net], columns * rows)
        supply = np.multiply(degree, problem.capacity, out=np.zeros(len(degree)), where=degree > 0)
        for s in np.flatnonzero(load > supply * (1 + 1e-9)).tolist()[:8]:
            chosen = np.zeros(len(bandwidth), bool)
            chosen[of_net[switch == s]] = True
            found.add(
                "congestion",
                f"{load[s]:.4g} words per cycle must {verb} switch ({s % columns}, {s // columns})",
                why=f"its {degree[s]} links carry {supply[s]:.4g}; the flows are "
                f"{_names(problem, flow, bandwidth, chosen)}",
                fix="spread the buffer over more units, or lower the parallel factors",
            )


def _names(problem: RoutingProblem, flow: Ints, bandwidth: Floats, chosen: npt.NDArray[np.bool_]) -> str:
    """The flows of the chosen nets, widest first, with nets and words per cycle."""
    width = np.bincount(flow[chosen], bandwidth[chosen], len(problem.flows))
    nets = np.bincount(flow[chosen], minlength=len(problem.flows))
    order: list[int] = np.argsort(-width, kind="stable")[: int((nets > 0).sum())].tolist()
    text = [f"'{problem.flows[f].name}' ({nets[f]} nets, {width[f]:.4g} words/cycle)" for f in order[:5]]
    return ", ".join(text) + (f" and {len(order) - 5} more" if len(order) > 5 else "")


def _congestion(state: _State, allow_overload: bool) -> CompileError:
    """Names the worst links: those with too many flows where any number of words is allowed, else the most loaded."""
    problem = state.problem
    _, flow, bandwidth = problem.nets
    found = Collector()
    over = state.flows > problem.flow_ids if allow_overload else state.over()
    worst = np.argsort(-np.where(over, state.flows if allow_overload else state.load, -1), kind="stable")
    worst = worst[: min(5, int(over.sum()))]
    start, end = link_ends(problem.mesh, worst)
    columns = problem.mesh[0]
    for link, a, b in zip(worst.tolist(), start.tolist(), end.tolist(), strict=True):
        chosen = np.array([link in tree for tree in state.trees])
        found.add(
            "congestion",
            f"the link from switch ({a % columns}, {a // columns}) to ({b % columns}, {b // columns}) has "
            f"{state.load[link]:.4g} words per cycle and {state.flows[link]} flows",
            why=f"it carries {problem.capacity:.4g} words and {problem.flow_ids} flows; on it are "
            f"{_names(problem, flow, bandwidth, chosen)}",
            fix="place the units further apart, lower the parallel factors, or cut the section "
            f"({int(over.sum())} links {'have too many flows' if allow_overload else 'are overloaded'})",
        )
    return CompileError.many(found.diagnostics)


# Checker.


def check_routing(problem: RoutingProblem, routing: Routing, *, allow_overload: bool = False) -> None:
    """Refuse routes that are none: CompileError `bad-routing` lists pairs whose links are no path from their source's
    switch to their target's, nets whose routes are no tree or use two channels, links over capacity or with too many
    flows, loads that are not the recomputed ones, and channels whose dependencies have a cycle. `allow_overload`: links
    may carry more words than their capacity (they share it), not more flows."""
    found = Collector()
    source, target = problem.pairs
    net, flow_of, bandwidth = problem.nets
    count, size = len(source), problem.link_count
    links, begin, channel = routing.links, routing.begin, routing.channel

    def bad(what: str, why: str = "") -> None:
        found.add("bad-routing", what, why=why)

    def pair_names(pairs: Ints) -> str:
        flows = np.searchsorted(problem.offsets, pairs, side="right") - 1
        ends = zip(flows[:5].tolist(), (pairs - problem.offsets[flows])[:5].tolist(), strict=True)
        text = [f"'{problem.flows[int(f)].name}'[{p}]" for f, p in ends]
        return ", ".join(text) + (f" and {len(pairs) - 5} more" if len(pairs) > 5 else "")

    shape = len(begin) == count + 1 and len(channel) == count and begin[0] == 0 and begin[-1] == len(links)
    if not shape or (np.diff(begin) < 0).any() or ((links < 0) | (links >= size)).any():
        bad("the arrays of routes do not fit the problem's pairs and links")
        found.raise_if_any()
    hops = np.diff(begin)
    start, end = link_ends(problem.mesh, links)
    pair = np.repeat(np.arange(count), hops)

    # Each route is a path between its ends.
    expected = np.concatenate([source[:1] * 0, end])[:-1] if len(links) else np.zeros(0, np.int64)
    moved = hops > 0
    expected[begin[:-1][moved]] = source[moved]
    broken = (expected != start) | (end < 0)
    last = np.where(moved, end[np.maximum(begin[1:] - 1, 0)] if len(links) else 0, source)
    wrong = np.union1d(pair[broken], np.flatnonzero(last != target))
    if len(wrong):
        bad(f"the links of {pair_names(wrong)} are no path from source to target")
        found.raise_if_any()

    # Each net is a tree in one channel.
    lowest = np.full(len(bandwidth), np.iinfo(np.int64).max)
    highest = np.full(len(bandwidth), -1)
    np.minimum.at(lowest, net, channel)
    np.maximum.at(highest, net, channel)
    mixed = (lowest != highest) | (lowest < 0) | (highest >= problem.virtual_channels)
    if mixed.any():
        bad(f"{pair_names(np.flatnonzero(mixed[net]))} use more than one channel, or one that is not there")
    key = np.unique(net[pair] * size + links)
    of_net, on = key // size, key % size
    entry = of_net * size + link_ends(problem.mesh, on)[1]
    root = np.zeros(len(bandwidth), np.int64)
    root[net] = source
    entered, times = np.unique(np.concatenate([entry, np.arange(len(bandwidth)) * size + root]), return_counts=True)
    twice = np.unique(entered[times > 1] // size)
    if len(twice):
        bad(f"the routes of {pair_names(np.flatnonzero(np.isin(net, twice)))} meet again, so they are no tree")

    # Loads.
    load = np.bincount(on, bandwidth[of_net], size)
    flows = np.bincount(on, minlength=size)
    if not np.allclose(load, routing.load, rtol=1e-9, atol=1e-9) or not np.array_equal(flows, routing.flows):
        bad("the loads given are not those of the routes")
    limit = np.inf if allow_overload else problem.capacity * (1 + 1e-9) + 1e-9
    over = np.flatnonzero((load > limit) | (flows > problem.flow_ids))
    for link in over[:5].tolist():
        chosen = np.zeros(len(bandwidth), bool)
        chosen[of_net[on == link]] = True
        bad(f"link {link} has {load[link]:.4g} of {problem.capacity:.4g} words per cycle and {flows[link]} of "
            f"{problem.flow_ids} flows", f"on it are {_names(problem, flow_of, bandwidth, chosen)}")  # fmt: skip

    found.raise_if_any()

    # Dependencies between channels: a word that holds one link of a route waits for the next.
    inner = (
        np.flatnonzero(np.arange(len(links)) + 1 < np.repeat(begin[1:], hops)) if len(links) else np.zeros(0, np.int64)
    )
    held, wanted = channel[pair[inner]] * size + links[inner], channel[pair[inner]] * size + links[inner + 1]
    cycle = _cyclic(held, wanted, size * problem.virtual_channels)
    if cycle.size:
        names = ", ".join(f"link {c % size} of channel {c // size}" for c in cycle[:6].tolist())
        bad(f"{cycle.size} channels wait for each other: {names}", "words in them could block for ever")
    found.raise_if_any()


def _cyclic(held: Ints, wanted: Ints, size: int) -> Ints:
    """Channels that are on a cycle of waiting, or between two: what is left when sources and sinks are peeled off."""
    key = np.unique(held * size + wanted)
    for _ in range(size):
        a, b = key // size, key % size
        blocked = np.zeros(size, bool)
        blocked[b] = True
        waits = np.zeros(size, bool)
        waits[a] = True
        keep = blocked[a] & waits[b]
        if keep.all():
            return np.unique(np.concatenate([a, b]))
        key = key[keep]
    return np.zeros(0, np.int64)
