"""Routing: which links of the mesh each flow takes. Problem, solver and checker in plain NumPy, no IR.

A link is one direction between two neighbouring switches: id = 4 · (y · columns + x) + direction, for the link that
leaves switch (x, y) to the east (+x), west (-x), south (+y) or north (-y). A *net* is what one site sends to one site
or, multicast, to several: its routes form a tree that carries every word once.

**Identifiers.** A switch forwards a word to one unit by its destination, along x and then along y. Only a net that
branches, or that goes any other way, takes one of the flow identifiers that a link can tell apart.

The solver routes all nets in dimension order at once; if links are overloaded it negotiates: it rips up nets on
overloaded links and lays them another way, with prices that rise where the overload stays. Another way is the cheapest
comb (stem, trunk and branches), and where all are full a search through the mesh. The budget is a number of re-routed
nets; the same problem and budget give the same routes.

**Bounds.** What must leave, or enter, a set of switches shares the links at its border (`worst_cut`): no routing has a
busiest link with less. A refusal names such a cut where there is one.

**No deadlock, by construction.** Each net is routed under one of four turn rules, and each rule has its own virtual
channel: *west-first* (no turn into west, holds every x-then-y route), *north-first* (no turn into north, holds every
y-then-x route), *east-first* and *south-first*. Under each rule, and without U-turns, the dependencies between channels
are acyclic. A packet is one word, so a switch that replicates a word holds one channel and waits for later ones in that
order only; and a unit puts a word into the network only with a credit from every target, so the last channel of a route
always drains. By induction over the order, all do. The checker rebuilds the dependencies from the routes, replication
included, and refuses a cycle, so the argument does not rest on the solver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush
from itertools import product
from typing import NamedTuple

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

DEFAULT_REROUTES = 10_000
"""Default budget: nets that are laid another way, after dimension order."""
EASY = 500
"""Of these, those that are tried before the cuts are looked at that may forbid it."""
SEARCHES = 4000
"""Ways, one for each target and turn rule, that are searched through the whole mesh at most."""
PATIENCE = 6
"""Rounds of the negotiation without improvement before it is given up."""
NEAR = 1.05
"""Times the load that no routing gets below: where links are overloaded in any case, less is not looked for."""


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
    """Flows on a mesh. `capacity` is in words per cycle and link; `flow_ids` bounds the nets on a link that take an
    identifier; `virtual_channels` bounds the turn rules in use."""

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

    @cached_property
    def branching(self) -> npt.NDArray[np.bool_]:
        """The nets with more than one target: those that take an identifier whatever their way."""
        switches = self.mesh[0] * self.mesh[1]
        net, _, bandwidth = self.nets
        ends = np.unique(net * switches + self.pairs[1])
        return np.bincount(ends // switches, minlength=len(bandwidth)) > 1

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
    (words per cycle) and `flows` (nets that take an identifier) are per link. `rerouted`: nets that were tried after
    dimension order, whose busiest link has `ordered` words per cycle."""

    links: Ints
    begin: Ints
    channel: Ints
    load: Floats
    flows: Ints
    offsets: Ints
    rerouted: int = 0
    ordered: float = 0.0

    @property
    def max_load(self) -> float:
        """Words per cycle on the busiest link."""
        return float(self.load.max(initial=0.0))

    @property
    def max_flows(self) -> int:
        """Identifiers taken on the link where they are most."""
        return int(self.flows.max(initial=0))

    @property
    def wirelength(self) -> float:
        """Words per cycle over all links: the switches' total work."""
        return float(self.load.sum())

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


def _dimension_order(columns: int, source: Ints, target: Ints) -> tuple[Ints, Ints]:
    """Links and begins of the routes that go along x and then y."""
    sx, sy, tx, ty = source % columns, source // columns, target % columns, target // columns
    dx, dy = tx - sx, ty - sy
    row, at, begin = _ragged(np.abs(dx) + np.abs(dy))
    dx, dy = dx[row], dy[row]
    ahead = np.abs(dx)
    along_y = at >= ahead
    x = np.where(along_y, tx[row], sx[row] + np.sign(dx) * at)
    y = np.where(along_y, sy[row] + np.sign(dy) * (at - ahead), sy[row])
    direction = np.where(along_y, np.where(dy > 0, SOUTH, NORTH), np.where(dx > 0, EAST, WEST))
    return 4 * (y * columns + x) + direction, begin


def _straight(links: Ints, begin: Ints) -> npt.NDArray[np.bool_]:
    """Whether each route goes along x, then along y, and nowhere else: the way of a word without an identifier."""
    back = (links[:-1] % 4 >= SOUTH) & (links[1:] % 4 < SOUTH)
    row = np.repeat(np.arange(len(begin) - 1), np.diff(begin))
    back &= row[:-1] == row[1:]
    return np.bincount(row[:-1][back], minlength=len(begin) - 1) == 0


class _Snapshot(NamedTuple):
    excess: float
    paths: dict[int, list[Ints]]
    channel: Ints
    takes: npt.NDArray[np.bool_]
    load: Floats
    flows: Ints
    trees: list[Ints]


class _State:
    """Routes under way: the links of every net, loads, and what is still overloaded."""

    def __init__(self, problem: RoutingProblem) -> None:
        self.problem = problem
        self.columns, self.rows = problem.mesh
        self.source, self.target = problem.pairs
        self.net, _, self.bandwidth = problem.nets
        self.count = len(self.bandwidth)
        self.branching = problem.branching
        self.takes = self.branching.copy()  # an identifier on each link
        self.limit = problem.capacity  # words per cycle and link that the search is content with
        order = np.argsort(self.net, kind="stable")
        self.members = np.split(order, np.searchsorted(self.net[order], np.arange(1, self.count)))
        self.channel = np.zeros(self.count, np.int64)
        self.paths: dict[int, list[Ints]] = {}
        switches = np.arange(self.columns * self.rows)
        self.xs: list[int] = (switches % self.columns).tolist()
        self.ys: list[int] = (switches // self.columns).tolist()
        self.after: list[int] = []
        self.into: list[list[int]] = []
        self.turns: list[list[list[int]]] = []
        self.tolerance = 1e-9 * max(1.0, problem.capacity if problem.capacity < np.inf else 1.0)
        links, begin = self.ordered()
        key = np.unique(np.repeat(self.net, np.diff(begin)) * problem.link_count + links)
        of_net, on = key // problem.link_count, key % problem.link_count
        self.load = np.bincount(on, self.bandwidth[of_net], problem.link_count).astype(np.float64)
        self.flows = np.bincount(on[self.takes[of_net]], minlength=problem.link_count)
        self.trees = np.split(on, np.searchsorted(of_net, np.arange(1, self.count)))

    def prepare(self) -> None:
        """Tables for the search: the switch that each link enters, the links into each switch, the legal next
        directions after each direction."""
        self.after = link_ends(self.problem.mesh, np.arange(self.problem.link_count))[1].tolist()
        self.into = [[] for _ in self.xs]
        for link, entered in enumerate(self.after):
            if entered >= 0:
                self.into[entered].append(link)
        self.turns = [
            [[d for d in range(4) if d != heading ^ 1 and (d != first or heading == first)] for heading in range(4)]
            + [list(range(4))]
            for first in _FIRST
        ]

    def excess(self) -> float:
        """Words per cycle and flows beyond what the links should have, over all links."""
        flows = np.maximum(self.flows - self.problem.flow_ids, 0).sum()
        return float(np.maximum(self.load - self.limit - self.tolerance, 0).sum() + flows)

    def ordered(self) -> tuple[Ints, Ints]:
        """Dimension-order routes of all pairs."""
        return _dimension_order(self.columns, self.source, self.target)

    def over(self) -> npt.NDArray[np.bool_]:
        """Links with more load or more nets than they should have."""
        return (self.load > self.limit + self.tolerance) | (self.flows > self.problem.flow_ids)

    def lift(self, net: int) -> None:
        """Take a net off its links."""
        tree = self.trees[net]
        self.load[tree] -= self.bandwidth[net]
        self.flows[tree] -= self.takes[net]

    def lay(self, net: int, tree: Ints, takes: bool) -> None:
        """Put a net, lifted before, on other links, on which it takes an identifier or not."""
        self.trees[net], self.takes[net] = tree, takes
        self.load[tree] += self.bandwidth[net]
        self.flows[tree] += takes

    def snapshot(self) -> _Snapshot:
        """The overload and the routes that give it."""
        kept = dict(self.paths), self.channel.copy(), self.takes.copy(), self.load.copy(), self.flows.copy()
        return _Snapshot(self.excess(), *kept, list(self.trees))

    def is_near(self, kept: _Snapshot) -> bool:
        """Whether links must be overloaded, and are hardly more than that."""
        if self.limit <= self.problem.capacity or kept.load.max(initial=0.0) > NEAR * self.limit:
            return False
        return bool((kept.flows <= self.problem.flow_ids).all())

    def restore(self, kept: _Snapshot) -> None:
        """Back to the routes of a snapshot."""
        _, self.paths, self.channel, self.takes, self.load, self.flows, self.trees = kept

    def offends(self, net: int) -> bool:
        """Whether a net lies on an overloaded link."""
        tree = self.trees[net]
        return bool(
            (self.load[tree] > self.limit + self.tolerance).any() or (self.flows[tree] > self.problem.flow_ids).any()
        )

    def offenders(self, over: npt.NDArray[np.bool_]) -> list[int]:
        """Nets on overloaded links, widest first."""
        touched = [n for n in range(self.count) if over[self.trees[n]].any()]
        return sorted(touched, key=lambda n: -self.bandwidth[n])


def _straighten(state: _State) -> None:
    """Where more identifiers are taken than a link has, lay nets to one unit along x and then y, the narrowest first:
    they take none there."""
    over = state.flows > state.problem.flow_ids
    for net in reversed(state.offenders(over)) if over.any() else ():
        tree = state.trees[net]
        if state.takes[net] and not state.branching[net] and (state.flows[tree] > state.problem.flow_ids).any():
            paths = _ordered(state, net)
            state.lift(net)
            state.paths[net], state.channel[net] = paths, 0
            state.lay(net, paths[0], False)


class _Found(NamedTuple):
    """A way for a net: the route of each of its pairs, their links, and whether it takes an identifier."""

    cost: float
    paths: list[Ints]
    rule: int
    tree: Ints
    takes: bool


def _negotiate(state: _State, budget: int) -> int:
    """Rip up nets on overloaded links and lay them another way, dearer where overload stays; nets tried.

    A net takes the cheapest comb, and is searched through the whole mesh only if that is overloaded too. A net that
    branches, or leaves the order of x and then y, pays for identifiers as well. The state is left as it was after the
    round with the least overload.
    """
    problem = state.problem
    rules = range(min(problem.virtual_channels, len(RULES)))
    history = np.ones(problem.link_count)
    state.prepare()
    tried, searched, sharpness, stalled = 0, 0, 1.0, 0
    best = state.snapshot()
    rounds = 0
    while tried < budget and best.excess > 0 and stalled < PATIENCE and not state.is_near(best):
        rounds += 1
        for net in state.offenders(state.over()):
            if tried >= budget:
                break
            width = float(state.bandwidth[net])
            if not state.offends(net):
                continue
            tried += 1
            state.lift(net)
            room = np.maximum(state.load + width - state.limit, 0) / max(width, 1e-12)
            names = np.maximum(state.flows + 1 - problem.flow_ids, 0)
            plain = history + sharpness * room
            marked = plain + sharpness * names
            lay = _comb if state.branching[net] else _bends
            found = lay(state, net, plain, marked, rules)
            crowded = room[found.tree].any() or (found.takes and names[found.tree].any())
            if rounds > 2 and crowded and searched < SEARCHES:
                searched += len(rules) * len(state.members[net])
                price: list[float] = marked.tolist()
                for rule in rules:
                    found = min(found, _search(state, net, rule, price, found.cost), key=_cost_of)
            state.paths[net] = found.paths
            state.channel[net] = found.rule
            state.lay(net, found.tree, found.takes)
        stalled += 1
        if state.excess() < best.excess:
            best, stalled = state.snapshot(), 0
        history += 0.5 * state.over()
        sharpness *= 1.6
    state.restore(best)
    return tried


def _cost_of(found: _Found) -> float:
    return found.cost


def _bends(state: _State, net: int, plain: Floats, marked: Floats, rules: Sequence[int]) -> _Found:
    """The cheapest comb for a net to one switch: it has at most two bends. `plain` is the price of a link, `marked` the
    price with an identifier, which dimension order does without."""
    columns, rows = state.columns, state.rows
    pairs = state.members[net]
    source, target = int(state.source[pairs[0]]), int(state.target[pairs[0]])
    (sy, sx), (ty, tx) = divmod(source, columns), divmod(target, columns)
    price = marked.reshape(rows, columns, 4)
    path = np.concatenate([_along_x(columns, sy, sx, tx), _along_y(columns, tx, sy, ty)])
    found = _Found(float(plain[path].sum()), [path], 0, path, False)
    for flip in (False, True):
        # As if the line between both bends were along x: [place of the line, place along it].
        grid = price.transpose(1, 0, 2) if flip else price
        east, west, south, north = (SOUTH, NORTH, EAST, WEST) if flip else (EAST, WEST, SOUTH, NORTH)
        (x, y), (start_x, start_y) = ((ty, tx), (sy, sx)) if flip else ((tx, ty), (sx, sy))
        if x == start_x:  # a straight line: the other way round it may leave it
            continue
        place = np.arange(len(grid))
        down, up = _sums(grid[:, start_x, south]), _sums(grid[:, start_x, north], back=True)
        cost = np.maximum(down - down[start_y], 0) + np.maximum(up[start_y] - up, 0)
        ahead = grid[:, start_x:x, east] if x > start_x else grid[:, x + 1 : start_x + 1, west]
        cost += ahead.sum(axis=1)
        down, up = _sums(grid[:, x, south]), _sums(grid[:, x, north], back=True)
        cost += np.maximum(down[y] - down, 0) + np.maximum(up - up[y], 0)
        turned = {east if x > start_x else west: place != start_y, south: place < y, north: place > y}
        cheapest = int(cost.argmin())
        for rule in rules:
            bad = turned.get(_FIRST[rule])
            free = bad is None or not bad[cheapest]
            legal = cost if bad is None or free else np.where(bad, np.inf, cost)
            at = cheapest if free else int(legal.argmin())
            if legal[at] < found.cost - 1e-12:
                path = (
                    [_along_x(columns, sy, sx, at), _along_y(columns, at, sy, ty), _along_x(columns, ty, at, tx)]
                    if flip
                    else [_along_y(columns, sx, sy, at), _along_x(columns, at, sx, tx), _along_y(columns, tx, at, ty)]
                )
                way = np.concatenate(path)
                found = _Found(float(cost[at]), [way], rule, way, bool(len(path[2])) if flip else bool(len(path[0])))
            if free:  # no other rule has a cheaper one
                break
    return found._replace(paths=found.paths * len(pairs), tree=np.sort(found.tree))


def _along_x(columns: int, y: int, first: int, last: int) -> Ints:
    """The links from one column to another in a row."""
    if first <= last:
        return np.arange(4 * (y * columns + first) + EAST, 4 * (y * columns + last) + EAST, 4)
    return np.arange(4 * (y * columns + first) + WEST, 4 * (y * columns + last) + WEST, -4)


def _along_y(columns: int, x: int, first: int, last: int) -> Ints:
    """The links from one row to another in a column."""
    step = 4 * columns
    if first <= last:
        return np.arange(first * step + 4 * x + SOUTH, last * step + 4 * x + SOUTH, step)
    return np.arange(first * step + 4 * x + NORTH, last * step + 4 * x + NORTH, -step)


def _comb(state: _State, net: int, plain: Floats, marked: Floats, rules: Sequence[int]) -> _Found:
    """The cheapest comb for a net that branches: a stem through its source along one axis, a trunk across it, and from
    the trunk a branch to the targets of each line along the stem. `marked` is the price of a link."""
    columns, rows = state.columns, state.rows
    pairs = state.members[net]
    source = int(state.source[pairs[0]])
    target = state.target[pairs]
    best: tuple[float, int, bool, int] | None = None  # cost, rule, whether the trunk is along y, place of the trunk
    price = marked.reshape(rows, columns, 4)
    for flip in (False, True):
        # As if the trunk were along x and the stem along y: [place of the trunk, place along it].
        grid = price.transpose(1, 0, 2) if flip else price
        east, west, south, north = (SOUTH, NORTH, EAST, WEST) if flip else (EAST, WEST, SOUTH, NORTH)
        x, y = (target // columns, target % columns) if flip else (target % columns, target // columns)
        sx, sy = (source // columns, source % columns) if flip else (source % columns, source // columns)
        size = len(grid)
        place = np.arange(size)
        low = np.full(grid.shape[1], size)
        high = np.full(grid.shape[1], -1)
        np.minimum.at(low, x, y)
        np.maximum.at(high, x, y)
        stem_low, stem_high = np.minimum(place, min(low[sx], sy)), np.maximum(place, max(high[sx], sy))
        lines = np.flatnonzero(high >= 0)
        lines = lines[lines != sx]
        low, high = low[lines], high[lines]
        down, up = _sums(grid[:, sx, south]), _sums(grid[:, sx, north], back=True)
        cost = down[stem_high] - down[sy] + up[sy] - up[stem_low]
        if len(lines):
            first, last = min(int(lines[0]), sx), max(int(lines[-1]), sx)
            cost += grid[:, sx:last, east].sum(axis=1) + grid[:, first + 1 : sx + 1, west].sum(axis=1)
            down, up = _sums(grid[:, lines, south]), _sums(grid[:, lines, north], back=True)
            across = np.arange(len(lines))
            cost += np.maximum(down[high, across] - down, 0).sum(axis=1)
            cost += np.maximum(up - up[low, across], 0).sum(axis=1)
            # Directions that a word turns into, by place of the trunk; out of its source it goes where it likes.
            turned = {
                east: (place != sy) & (last > sx),
                west: (place != sy) & (first < sx),
                south: place < high.max(),
                north: place > low.min(),
            }
        else:
            turned = {}
        for rule in rules:
            bad = turned.get(_FIRST[rule])
            legal = cost if bad is None else np.where(bad, np.inf, cost)
            at = int(legal.argmin())
            if legal[at] < (np.inf if best is None else best[0] - 1e-12):
                best = float(legal[at]), rule, flip, at
    if best is None:  # no comb is legal: the routes stay
        paths = state.paths.get(net) or _ordered(state, net)
        return _Found(float("inf"), paths, int(state.channel[net]), state.trees[net], bool(state.takes[net]))
    total, rule, flip, at = best
    paths = _toothed(columns, source, target, flip, at)
    return _Found(total, paths, rule, np.unique(np.concatenate(paths)), True)


def _sums(price: Floats, *, back: bool = False) -> Floats:
    """Prices of the way along axis 0 from place 0 to each place, or `back` to 0, given the price of leaving each."""
    total = np.zeros_like(price)
    total[1:] = (price[1:] if back else price[:-1]).cumsum(axis=0)
    return total


def _toothed(columns: int, source: int, targets: Ints, flip: bool, at: int) -> list[Ints]:
    """The routes to targets over a trunk: along the stem to the trunk, along the trunk, and along the branch. What lies
    on the line of the stem is reached along it."""
    (sy, sx), ty, tx = divmod(source, columns), targets // columns, targets % columns
    straight = ty == sy if flip else tx == sx
    leaves = np.full(len(targets), sy * columns + at if flip else at * columns + sx)
    turns = ty * columns + at if flip else at * columns + tx
    stops = np.stack([leaves, np.where(straight, leaves, turns), targets], 1)
    stops[straight] = np.stack([np.full(len(targets), source), targets, targets], 1)[straight]
    ahead = np.column_stack([np.full(len(targets), source), stops])
    links, begin = _dimension_order(columns, ahead[:, :-1].ravel(), ahead[:, 1:].ravel())
    return np.split(links, begin[3:-1:3])


def _ordered(state: _State, net: int) -> list[Ints]:
    """The routes of a net in dimension order."""
    pairs = state.members[net]
    links, begin = _dimension_order(state.columns, state.source[pairs], state.target[pairs])
    return np.split(links, begin[1:-1])


def _is_straight(path: Ints) -> bool:
    return bool(_straight(path, np.array([0, len(path)]))[0])


def _search(state: _State, net: int, rule: int, price: list[float], most: float) -> _Found:
    """The cheapest tree for a net under a turn rule, target by target (A* from the tree so far); given up, at infinite
    cost, where it is not cheaper than `most`."""
    columns = state.columns
    pairs = state.members[net]
    root = int(state.source[pairs[0]])
    targets = state.target[pairs]
    far = np.abs(targets % columns - root % columns) + np.abs(targets // columns - root // columns)
    turns, after = state.turns[rule], state.after
    xs, ys = state.xs, state.ys
    came: dict[int, int] = {root: -1}  # switch -> link by which the tree enters it
    tree = [root]
    total = 0.0
    nearest: list[int] = targets[np.argsort(far, kind="stable")].tolist()
    for target in nearest:
        if target in came:
            continue
        goal_x, goal_y = xs[target], ys[target]
        last = min([price[link] for link in state.into[target]]) - 1.0  # what the last link costs more than others may
        grown = np.array(tree)  # the tree's switches, nearest first: they enter the heap when it is their turn
        away = np.abs(grown % columns - goal_x) + np.abs(grown // columns - goal_y)
        order = np.argsort(away, kind="stable")
        starts: list[int] = grown[order].tolist()
        waits: list[float] = (away[order] + last).tolist()
        at = 0
        heap: list[tuple[float, float, int, int]] = []
        before: dict[int, int] = {}  # link -> link before it
        switch = link = -1
        while heap or at < len(starts):
            while at < len(starts) and (not heap or waits[at] <= heap[0][0]):
                heappush(heap, (waits[at], 0.0, starts[at], came[starts[at]]))
                at += 1
            least, spent, switch, link = heappop(heap)
            if switch == target or total + least >= most:
                break
            for direction in turns[link % 4 if link >= 0 else 4]:
                out = 4 * switch + direction
                entered = after[out]
                if entered < 0 or entered in came or out in before:
                    continue
                before[out] = link
                cost = price[out] - spent
                guess = cost
                if entered != target:
                    guess += abs(xs[entered] - goal_x) + abs(ys[entered] - goal_y) + last
                heappush(heap, (guess, -cost, entered, out))  # the deeper one first among equals
        if switch != target:
            return _Found(float("inf"), [], rule, state.trees[net], bool(state.takes[net]))
        while switch not in came:
            total += price[link]
            came[switch] = link
            tree.append(switch)
            switch, link = link // 4, before[link]
    routes: list[Ints] = []
    for target in targets.tolist():
        path: list[int] = []
        while came[target] >= 0:
            path.append(came[target])
            target = came[target] // 4
        routes.append(np.array(path[::-1], np.int64))
    takes = bool(state.branching[net]) or not _is_straight(routes[0])
    return _Found(total, routes, rule, np.unique(np.concatenate(routes)), takes)


def solve_routing(problem: RoutingProblem, reroutes: int | None = None, *, allow_overload: bool = False) -> Routing:
    """Route all flows. `reroutes`: searches for a way around (None: `DEFAULT_REROUTES`, 0: dimension order only).

    CompileError `congestion` names the cut of the mesh, the switches or the links that cannot carry their flows, and
    those flows. With `allow_overload` the least overloaded routing found is the answer instead (a packet-switched
    network only gets slower: `Routing.max_load` over the capacity); too many flows on a link are refused all the same.
    The answer has passed `check_routing`.
    """
    problem.check()
    state = _State(problem)
    budget = DEFAULT_REROUTES if reroutes is None else reroutes
    busiest = float(state.load.max(initial=0.0))
    ordered = state.snapshot() if state.over().any() else None
    words: Cut | None = None
    if ordered is not None and allow_overload:
        cut = worst_cut(problem, kinds=(_switch_cuts,))
        if cut is not None and cut.per_link > problem.capacity:  # some link is overloaded in every routing
            words = worst_cut(problem)
            state.limit = words.per_link if words is not None else state.limit
    tried = _negotiate(state, min(budget, EASY))
    if ordered is not None and state.over().any():
        words, names = words or worst_cut(problem), worst_cut(problem, identifiers=True)
        _refuse_cuts(problem, None if allow_overload else words, names)
        if allow_overload:  # no routing gets below the worst cut
            state.limit = max(problem.capacity, words.per_link if words is not None else 0.0)
            easy = state.snapshot()
            state.restore(ordered)
            if easy.excess < state.excess():
                state.restore(easy)
        tried += _negotiate(state, budget - tried)
        if allow_overload:
            _straighten(state)
        refused = (state.flows > problem.flow_ids).any() if allow_overload else state.over().any()
        if refused:
            raise _congestion(state, allow_overload, words, names)
    routing = _collect(state, tried, busiest)
    check_routing(problem, routing, allow_overload=allow_overload)
    return routing


def _collect(state: _State, tried: int, ordered: float) -> Routing:
    links, begin = state.ordered()
    if state.paths:
        routes = np.split(links, begin[1:-1])
        for net, paths in state.paths.items():
            for pair, path in zip(state.members[net].tolist(), paths, strict=True):
                routes[pair] = path
        links = np.concatenate(routes)
        begin = np.concatenate([[0], np.cumsum([len(r) for r in routes])])
    channel = state.channel[state.net] if state.count else np.zeros(0, np.int64)
    return Routing(links, begin, channel, state.load, state.flows, state.problem.offsets, tried, ordered)


# Bounds.


@dataclass(frozen=True, eq=False)
class Cut:
    """A set of switches that nets must leave or enter, and the links there: `demand` is words per cycle, or
    identifiers, over `links` links. `where` says it in words; `nets` are those that cross."""

    where: str
    demand: float
    links: int
    nets: npt.NDArray[np.bool_]

    @property
    def per_link(self) -> float:
        """What the busiest of the links has at least."""
        return self.demand / self.links


def worst_cut(problem: RoutingProblem, *, identifiers: bool = False, kinds: Sequence[Kind] | None = None) -> Cut | None:
    """The cut whose links have most to carry, of words or of nets that take an identifier whatever their way: straight
    ones over the whole mesh, around single switches and rectangles of switches, all links together, and the first link
    of each net. None when nothing is to be carried.

    Its `per_link` is a bound for every routing: no busiest link has less. `kinds`: of these only.
    """
    weight = problem.branching.astype(np.float64) if identifiers else problem.nets[2]
    worst: tuple[float, float, int, str, npt.NDArray[np.bool_]] | None = None
    ends = _Ends(problem)
    kinds = kinds or (_straight_cuts, _switch_cuts, _box_cuts, _all_links, _single_nets)
    for demand, links, crossing in (cut for kind in kinds for cut in kind(ends, weight)):
        rate = np.divide(demand, links, out=np.zeros(demand.shape), where=links > 0)
        at = int(rate.argmax()) if rate.size else 0
        if rate.size and rate.ravel()[at] > (worst[0] if worst is not None else 0.0):
            where, nets = crossing(at)
            worst = float(rate.ravel()[at]), float(demand.ravel()[at]), int(links.ravel()[at]), where, nets
    return None if worst is None else Cut(worst[3], worst[1], worst[2], worst[4] & (weight > 0))


Crossing = Callable[[int], tuple[str, npt.NDArray[np.bool_]]]
"""For the number of a cut: where it is in words, and which nets cross it."""
Cuts = Iterator[tuple[Floats, Ints, Crossing]]
Kind = Callable[["_Ends", Floats], Cuts]


class _Ends:
    """Where nets begin and end: the source of each, and the box around its targets, by axis (x, y)."""

    def __init__(self, problem: RoutingProblem) -> None:
        self.mesh = problem.mesh
        source, target = problem.pairs
        self.net, _, bandwidth = problem.nets
        self.switches = source, target
        columns, count = problem.mesh[0], len(bandwidth)
        self.origin = np.zeros((2, count), np.int64)
        self.low = np.full((2, count), max(problem.mesh))
        self.high = np.full((2, count), -1)
        for axis, (begin, end) in enumerate(
            ((source % columns, target % columns), (source // columns, target // columns))
        ):
            self.origin[axis, self.net] = begin
            np.minimum.at(self.low[axis], self.net, end)
            np.maximum.at(self.high[axis], self.net, end)


def _straight_cuts(ends: _Ends, weight: Floats) -> Cuts:
    """Between neighbouring columns, or rows, each way."""
    for axis, name in enumerate("xy"):
        size, across = ends.mesh[axis], ends.mesh[1 - axis]
        origin = ends.origin[axis]
        for step, first, last in (
            (1, origin, np.maximum(origin, ends.high[axis])),
            (-1, np.minimum(origin, ends.low[axis]), origin),
        ):
            edges = np.bincount(first, weight, size + 1) - np.bincount(last, weight, size + 1)

            def crossing(
                at: int, first: Ints = first, last: Ints = last, step: int = step, name: str = name
            ) -> tuple[str, npt.NDArray[np.bool_]]:
                near, far = (at, at + 1) if step > 0 else (at + 1, at)
                return f"pass from {name} = {near} to {name} = {far}", (first <= at) & (last > at)

            yield edges.cumsum()[: size - 1], np.full(size - 1, across), crossing


def _switch_cuts(ends: _Ends, weight: Floats) -> Cuts:
    """Out of, or into, one switch."""
    columns, rows = ends.mesh
    size = columns * rows
    source, target = ends.switches
    apart = source != target
    start, end = link_ends(ends.mesh, np.arange(4 * size))
    degree = np.bincount(start[end >= 0], minlength=size)
    for verb, switch in (("leave", source), ("enter", target)):
        key = np.unique(ends.net[apart] * size + switch[apart])
        net, at_switch = key // size, key % size

        def crossing(
            at: int, verb: str = verb, net: Ints = net, at_switch: Ints = at_switch
        ) -> tuple[str, npt.NDArray[np.bool_]]:
            nets = np.zeros(len(weight), bool)
            nets[net[at_switch == at]] = True
            return f"{verb} switch ({at % columns}, {at // columns})", nets

        yield np.bincount(at_switch, weight[net], size).astype(np.float64), degree.astype(np.int64), crossing


def _box_cuts(ends: _Ends, weight: Floats) -> Cuts:
    """Out of, or into, rectangles of switches, at every place. A net counts where it must cross: its source and all of
    its targets are on different sides."""
    mesh = np.array(ends.mesh)
    around = np.minimum(ends.low, ends.origin), np.maximum(ends.high, ends.origin)
    for sides in product((1, 2, 3, 4, 6, 8, 12, 16, 24), repeat=2):
        size = np.array(sides)
        if (size >= mesh).any() or sides == (1, 1):
            continue
        places = mesh - size + 1
        links = np.full(places, 2 * size.sum())
        links[0] -= size[1]
        links[-1] -= size[1]
        links[:, 0] -= size[0]
        links[:, -1] -= size[0]
        whole = _boxes_around(*around, size, places, weight)
        for verb, low, top in (("leave", ends.origin, ends.origin), ("enter", ends.low, ends.high)):

            def crossing(
                at: int,
                verb: str = verb,
                low: Ints = low,
                top: Ints = top,
                size: Ints = size,
                high: int = int(places[1]),
            ) -> tuple[str, npt.NDArray[np.bool_]]:
                corner = np.array(divmod(at, high))
                nets = _within(low, top, corner, size) & ~_within(*around, corner, size)
                return f"{verb} the {size[0]} x {size[1]} switches from ({corner[0]}, {corner[1]})", nets

            yield _boxes_around(low, top, size, places, weight) - whole, links, crossing


def _within(low: Ints, top: Ints, corner: Ints, size: Ints) -> npt.NDArray[np.bool_]:
    """The nets whose points from `low` to `top` lie in a rectangle."""
    (x, y), (right, bottom) = corner, corner + size
    return (low[0] >= x) & (top[0] < right) & (low[1] >= y) & (top[1] < bottom)


def _boxes_around(low: Ints, top: Ints, size: Ints, places: Ints, weight: Floats) -> Floats:
    """For every rectangle of a size, by its corner: the weight of the nets whose points from `low` to `top` lie in
    it."""
    fits = (top[0] - low[0] < size[0]) & (top[1] - low[1] < size[1]) & (weight > 0)
    first = np.maximum(top[:, fits] - size[:, None] + 1, 0)
    last = np.minimum(low[:, fits] + 1, places[:, None])
    wide, high = places + 1
    total = np.zeros(wide * high)
    for x, y, sign in (
        (first[0], first[1], 1),
        (first[0], last[1], -1),
        (last[0], first[1], -1),
        (last[0], last[1], 1),
    ):
        total += np.bincount(x * high + y, sign * weight[fits], len(total))
    return total.reshape(wide, high).cumsum(axis=0).cumsum(axis=1)[:-1, :-1]


def _all_links(ends: _Ends, weight: Floats) -> Cuts:
    """Each link of the mesh, as far as nets need it."""
    columns, rows = ends.mesh
    links = 2 * (columns * (rows - 1) + rows * (columns - 1))
    every = np.ones(len(weight), bool)
    yield np.array([_least_links(ends) @ weight]), np.array([links]), lambda at: ("take links of the mesh", every)


def _single_nets(ends: _Ends, weight: Floats) -> Cuts:
    """A link that a net leaves its switch by: it carries all of the net's words."""
    source, target = ends.switches
    leaves = np.bincount(ends.net, source != target, len(weight)) > 0

    def crossing(at: int) -> tuple[str, npt.NDArray[np.bool_]]:
        x, y = ends.origin[:, at]
        return f"leave switch ({x}, {y}) undivided, as one net", np.arange(len(weight)) == at

    yield weight * leaves, np.ones(len(weight), np.int64), crossing


def least_wirelength(problem: RoutingProblem) -> float:
    """Words per cycle over all links that no routing can go below."""
    return float(_least_links(_Ends(problem)) @ problem.nets[2])


def _least_links(ends: _Ends) -> Ints:
    """Links that each net takes at least: half the perimeter of the box around its ends, and one into each target."""
    half = np.maximum(ends.high, ends.origin) - np.minimum(ends.low, ends.origin)
    source, target = ends.switches
    size = ends.mesh[0] * ends.mesh[1]
    entered = np.unique((ends.net * size + target)[source != target]) // size
    return np.maximum(half.sum(axis=0), np.bincount(entered, minlength=half.shape[1]))


# Refusals.


def _refuse_cuts(problem: RoutingProblem, words: Cut | None, names: Cut | None) -> None:
    """Refuse what no routing can solve: a cut with more words, or more identifiers, than its links have."""
    _, flow, bandwidth = problem.nets
    found = Collector()
    if words is not None and words.per_link > problem.capacity * (1 + 1e-9):
        found.add(
            "congestion",
            f"{words.demand:.4g} words per cycle must {words.where}",
            why=f"{_links(words.links, 'carry')} {words.links * problem.capacity:.4g}; the flows are "
            f"{_names(problem, flow, bandwidth, words.nets)}",
            fix="lower the parallel factors, spread the buffer over more units, cut the section, or allow the links to "
            "be overloaded",
        )
    if names is not None and names.per_link > problem.flow_ids:
        found.add(
            "congestion",
            f"{names.demand:.0f} flows that branch must {names.where}",
            why=f"{_links(names.links, 'tell')} {names.links * problem.flow_ids} flows apart; the flows are "
            f"{_names(problem, flow, bandwidth, names.nets)}",
            fix="spread the buffer over fewer units, lower the parallel factors, or cut the section",
        )
    found.raise_if_any()


def _links(count: int, verb: str) -> str:
    return f"the {count} links there {verb}" if count > 1 else f"the one link there {verb.replace('y', 'ie')}s"


def _names(problem: RoutingProblem, flow: Ints, bandwidth: Floats, chosen: npt.NDArray[np.bool_]) -> str:
    """The flows of the chosen nets, widest first, with nets and words per cycle."""
    width = np.bincount(flow[chosen], bandwidth[chosen], len(problem.flows))
    nets = np.bincount(flow[chosen], minlength=len(problem.flows))
    order: list[int] = np.argsort(-width, kind="stable")[: int((nets > 0).sum())].tolist()
    text = [f"'{problem.flows[f].name}' ({nets[f]} nets, {width[f]:.4g} words/cycle)" for f in order[:5]]
    return ", ".join(text) + (f" and {len(order) - 5} more" if len(order) > 5 else "")


def _congestion(state: _State, allow_overload: bool, words: Cut | None, names: Cut | None) -> CompileError:
    """Names the worst links, those with too many flows where any number of words is allowed, else the most loaded; and
    the tightest cut, which is not too full: no proof that there is no way."""
    problem = state.problem
    _, flow, bandwidth = problem.nets
    found = Collector()
    over = state.flows > problem.flow_ids if allow_overload else state.over()
    worst = np.argsort(-np.where(over, state.flows if allow_overload else state.load, -1), kind="stable")
    worst = worst[: min(5, int(over.sum()))]
    start, end = link_ends(problem.mesh, worst)
    columns = problem.mesh[0]
    bound: list[str] = []
    if words is not None and not allow_overload:
        bound.append(f"{words.per_link:.4g} words per cycle and link must {words.where}")
    if names is not None and allow_overload:
        bound.append(f"{names.per_link:.4g} flows that branch must, for each link, {names.where}")
    for link, a, b in zip(worst.tolist(), start.tolist(), end.tolist(), strict=True):
        chosen = np.array([link in tree for tree in state.trees])
        found.add(
            "congestion",
            f"no way was found: the link from switch ({a % columns}, {a // columns}) to ({b % columns}, "
            f"{b // columns}) has {state.load[link]:.4g} words per cycle and {state.flows[link]} flows",
            why=f"it carries {problem.capacity:.4g} words and tells {problem.flow_ids} flows apart; on it are "
            f"{_names(problem, flow, bandwidth, chosen)}; the tightest cut, which does not forbid it: "
            f"{'; '.join(bound) or 'none'}",
            fix="give route more `reroutes` or place another `seed`; else lower the parallel factors, or cut the "
            f"section ({int(over.sum())} links {'have too many flows' if allow_overload else 'are overloaded'})",
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
    takes = problem.branching.copy()
    takes[net[~_straight(links, begin)]] = True
    flows = np.bincount(on[takes[of_net]], minlength=size)
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
