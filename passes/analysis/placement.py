"""Placement: which site each unit of each group takes. Problem, solver and checker in plain NumPy, no IR.

A *group* is a number of like units (one `rdu` op with a list of sites). A *net* joins units of two groups pair by pair
and weighs them by bandwidth (vector words per cycle). The cost of a placement is Σ weight × Manhattan distance over all
pairs, in words · hops per cycle: the switches' total work.

The solver makes several constructive starts, keeps the best, and refines it by annealing: batches of proposed moves
(one unit to a free site, or two units of a kind swapped) are evaluated at once, and of the accepted ones those that
touch neither each other's sites nor each other's neighbours are made, so that the cost stays exact. Seeded; the budget
is a number of moves; the same problem, seed and budget give the same placement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from heapq import heapify, heappop, heappush
from itertools import product

import numpy as np
import numpy.typing as npt

from headrace.dialects.machine.device import UNIT_KINDS, Device
from headrace.dialects.support.diagnostics import Collector

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

DEFAULT_MOVES = 200
"""Default budget: proposed moves per unit."""


@dataclass(frozen=True)
class Group:
    """`count` like units of a kind ('pcu', 'pmu', 'agcu')."""

    name: str
    kind: str
    count: int


@dataclass(frozen=True)
class Net:
    """Connections from units of group `source` to units of group `target`.

    `pairs` [n, 2] are unit numbers within the groups; `weight` is the bandwidth of one pair, in vector words per cycle.
    """

    source: int
    target: int
    pairs: Ints
    weight: float = 1.0


@dataclass(frozen=True, eq=False)
class PlacementProblem:
    """Groups and nets to be placed on a mesh whose legal sites are listed per kind, as an array [n, 2] of (x, y)."""

    mesh: tuple[int, int]
    sites: Mapping[str, Ints]
    groups: tuple[Group, ...]
    nets: tuple[Net, ...]

    @staticmethod
    def on(device: Device, groups: Sequence[Group], nets: Sequence[Net]) -> PlacementProblem:
        """The problem on all sites of a device."""
        sites = {kind: np.array(device.sites(kind), np.int64).reshape(-1, 2) for kind in UNIT_KINDS}
        return PlacementProblem(device.mesh, sites, tuple(groups), tuple(nets))

    @cached_property
    def offsets(self) -> Ints:
        """First unit number of each group, and the number of units at the end."""
        return np.cumsum([0, *(g.count for g in self.groups)])

    @cached_property
    def edges(self) -> tuple[Ints, Ints, Floats]:
        """All pairs as unit numbers (source, target) and weight, net by net."""
        a = [self.offsets[n.source] + n.pairs[:, 0] for n in self.nets]
        b = [self.offsets[n.target] + n.pairs[:, 1] for n in self.nets]
        w = [np.full(len(n.pairs), n.weight, np.float64) for n in self.nets]
        none = np.zeros(0, np.int64)
        return np.concatenate([none, *a]), np.concatenate([none, *b]), np.concatenate([np.zeros(0), *w])

    def check(self) -> None:
        """Refuse a problem that no placement can solve: CompileError `too-many-units` lists every kind that is short,
        `bad-placement-problem` every net whose pairs name no unit."""
        found = Collector()
        for kind in sorted({g.kind for g in self.groups}):
            members = sorted((g for g in self.groups if g.kind == kind), key=lambda g: -g.count)
            need, have = sum(g.count for g in members), len(self.sites.get(kind, ()))
            if need > have:
                largest = ", ".join(f"'{g.name}' {g.count}" for g in members[:3])
                found.add(
                    "too-many-units",
                    f"{need} units of kind {kind} do not fit {have} sites",
                    why=f"largest groups: {largest}",
                    fix="cut the section, lower the parallel factors, or choose a larger device",
                )
        for index, net in enumerate(self.nets):
            known = 0 <= net.source < len(self.groups) and 0 <= net.target < len(self.groups)
            counts = [self.groups[net.source].count, self.groups[net.target].count] if known else [0, 0]
            pairs = net.pairs
            if not known or pairs.ndim != 2 or pairs.shape[1] != 2 or (pairs < 0).any() or (pairs >= counts).any():
                found.add(
                    "bad-placement-problem", f"net {index} ({net.source} → {net.target}) names units that are not"
                )
            elif not 0 <= net.weight < np.inf:
                found.add("bad-placement-problem", f"net {index} has weight {net.weight}")
        found.raise_if_any()


@dataclass(frozen=True, eq=False)
class Placement:
    """A solution: for each group an array [count, 2] of (x, y), its cost and how it came about.

    `starts` are the costs of the constructive starts by name, the winner first; `moves` the number of moves tried.
    """

    problem: PlacementProblem
    positions: tuple[Ints, ...]
    cost: float
    starts: tuple[tuple[str, float], ...] = field(default=())
    moves: int = 0

    @cached_property
    def lower_bound(self) -> float:
        """A cost that no placement can beat."""
        return lower_bound(self.problem)

    @property
    def ratio(self) -> float:
        """Cost over lower bound (1 = proven optimal; 1 when there is nothing to connect)."""
        return self.cost / self.lower_bound if self.lower_bound else 1.0


# The problem as flat arrays.


class _Flat:
    """Units and sites as flat arrays; units of all groups in a row, sites of all kinds in a row."""

    def __init__(self, problem: PlacementProblem) -> None:
        kinds = [k for k in problem.sites if any(g.kind == k for g in problem.groups)]
        self.columns, self.rows = problem.mesh
        self.units = int(problem.offsets[-1])
        counts = [g.count for g in problem.groups]
        self.kind = np.repeat([kinds.index(g.kind) for g in problem.groups], counts).astype(np.int64)
        self.group = np.repeat(np.arange(len(counts)), counts)
        listed = [problem.sites[k] for k in kinds] or [np.zeros((0, 2), np.int64)]
        self.first = np.cumsum([0, *map(len, listed)])
        self.x, self.y = np.concatenate(listed).T.copy()
        self.site_kind = np.repeat(np.arange(len(listed)), [len(s) for s in listed])
        self.kinds = len(listed)
        self.near = np.stack([self._nearest(k) for k in range(self.kinds)])
        self.kind_at = np.full(problem.mesh, -1)
        self.kind_at[self.x[::-1], self.y[::-1]] = self.site_kind[::-1]
        inner = [kind != "agcu" for kind in kinds] or [False]
        self.is_inner = np.array(inner)[self.kind]
        self._neighbours(*problem.edges)
        self.profiles: dict[tuple[int, int, bool], Ints] = {}

    def _nearest(self, kind: int) -> Ints:
        """[columns, rows]: a site of the kind nearest to each switch, by two sweeps along each axis."""
        xs, ys = (v[self.first[kind] : self.first[kind + 1]] for v in (self.x, self.y))
        site = np.full((self.columns, self.rows), -1)
        site[xs, ys] = np.arange(self.first[kind], self.first[kind + 1])
        far = np.where(site >= 0, 0, self.columns + self.rows)
        for there, table in ((far, site), (far.T, site.T)):
            for lines in (range(1, len(there)), range(len(there) - 2, -1, -1)):
                step = -1 if lines.step > 0 else 1
                for line in lines:
                    better = there[line + step] + 1 < there[line]
                    np.copyto(there[line], there[line + step] + 1, where=better)
                    np.copyto(table[line], table[line + step], where=better)
        return site

    def _neighbours(self, a: Ints, b: Ints, w: Floats) -> None:
        """Both directions of every pair, parallel pairs merged, as rows of a compressed matrix."""
        keep = (a != b) & (w > 0)
        a, b, w = a[keep], b[keep], w[keep]
        self.scale = float(w.mean()) if len(w) else 1.0
        key, inverse = np.unique(np.minimum(a, b) * self.units + np.maximum(a, b), return_inverse=True)
        self.weight = np.bincount(inverse, w, len(key)) / self.scale
        self.low, self.high = key // max(self.units, 1), key % max(self.units, 1)
        ends = np.concatenate([self.low, self.high])
        order = np.argsort(ends, kind="stable")
        self.to = np.concatenate([self.high, self.low])[order]
        self.to_weight = np.concatenate([self.weight, self.weight])[order]
        self.begin = np.searchsorted(ends[order], np.arange(self.units + 1))
        self.degree = np.diff(self.begin)

    def profile(self, kind: int, friend: int, length: int, *, half: bool = False) -> Ints:
        """Least distance from a site of `kind` to its i-th nearest site of `friend`, over all sites of `kind`, for the
        first `length` at least. `half`: sites with a smaller x + y do not count."""
        known = self.profiles.get((kind, friend, half))
        if known is not None and len(known) >= length:
            return known
        size = self.columns + self.rows
        # In coordinates x + y and x - y a Manhattan ball is a square: sums over squares by an integral image.
        u, v = self.x + self.y + 1, self.x - self.y + self.rows + 1
        image = np.zeros((2 * size + 1, 2 * size + 1), np.int64)
        span = slice(int(self.first[friend]), int(self.first[friend + 1]))
        np.add.at(image, (u[span], v[span]), 1)
        image, wide = image.cumsum(0).cumsum(1).ravel(), image.shape[1]
        span = slice(int(self.first[kind]), int(self.first[kind + 1]))
        u, v = u[span], v[span]
        count = int(min(length, self.first[friend + 1] - self.first[friend] - (kind == friend)))
        found = np.zeros(count, np.int64)
        reached = 0
        for distance in range(size + 1):
            top = u - 1 if half else np.maximum(u - distance - 1, 0)
            bottom = np.minimum(u + distance, 2 * size)
            left, right = np.maximum(v - distance - 1, 0), np.minimum(v + distance, 2 * size)
            low, high = top * wide, bottom * wide
            inside = image.take(high + right) - image.take(low + right) - image.take(high + left)
            inside += image.take(low + left)
            most = int(inside.max(initial=0)) - (kind == friend)
            found[reached:most] = distance
            reached = max(reached, most)
            if reached >= count:
                break
        self.profiles[kind, friend, half] = found
        return found

    def cost(self, at: Ints) -> float:
        """Σ weight × distance of the placement `at` (site of each unit), weights scaled."""
        x, y = self.x[at], self.y[at]
        far = np.abs(x[self.low] - x[self.high]) + np.abs(y[self.low] - y[self.high])
        return float(self.weight @ far)


# Constructive starts.


def _levels(problem: PlacementProblem) -> Ints:
    """Topological order of the groups (a cycle is cut where it closes): the rank of each group."""
    count = len(problem.groups)
    after: list[list[int]] = [[] for _ in range(count)]
    waits = [0] * count
    for source, target in dict.fromkeys((n.source, n.target) for n in problem.nets if n.source != n.target):
        after[source].append(target)
        waits[target] += 1
    ready = [g for g in range(count) if not waits[g]]
    heapify(ready)
    rank, left = np.zeros(count, np.int64), dict.fromkeys(range(count))
    for position in range(count):
        group = heappop(ready) if ready else next(iter(left))  # in a cycle: the first group that is left
        if group not in left:
            group = next(iter(left))
        del left[group]
        rank[group] = position
        for target in after[group]:
            waits[target] -= 1
            if not waits[target] and target in left:
                heappush(ready, target)
    return rank


@dataclass(frozen=True, eq=False)
class _Start:
    """Where a constructive start wants each unit: a point of the mesh, and the cost if all units could sit there."""

    name: str
    x: Ints
    y: Ints
    estimate: float


def _lane_starts(flat: _Flat, problem: PlacementProblem, rank: Ints) -> list[_Start]:
    """Groups cut into lanes, each lane folded into a block of the mesh; the blocks stacked on the left edge, or half of
    them on the right edge.

    Unit i of a group of c belongs to lane ⌊(i + ½) · lanes / c⌋. A lane's units, in topological order, follow a path
    through a block of `fold` rows that runs either along the rows or along the columns, so neighbours in a pipeline are
    neighbours on the mesh. A lane may hold several strands, one after the other, which are to the units what lanes are:
    so that all that one AGCU feeds stands before it. All sensible numbers and folds are tried; AGCUs go to the edge
    nearest to their friends.
    """
    inner = np.flatnonzero(flat.is_inner)
    if not len(inner):
        return []
    index = np.arange(flat.units) - problem.offsets[flat.group]
    counts = np.array([g.count for g in problem.groups])

    def popular(units: Ints) -> list[int]:
        sizes, how_often = np.unique(counts[flat.group[units]], return_counts=True)
        return sizes[np.argsort(-how_often, kind="stable")][:3].tolist()

    starts: list[_Start] = []
    tried: set[tuple[int, int]] = set()
    outer = np.flatnonzero(~flat.is_inner & (flat.degree > 0))
    most = counts[flat.group[inner]]
    numbers = dict.fromkeys([*popular(inner), int(most.max()), int(most.min()), 1])
    for lanes, strands in (*zip(numbers, numbers, strict=True), *product(popular(outer)[:2], popular(inner))):
        if lanes > strands or (lanes, strands) in tried:
            continue
        tried.add((lanes, strands))
        lane, strand = ((2 * index + 1) * n // (2 * counts[flat.group]) for n in (lanes, strands))
        order = inner[np.lexsort((index[inner], rank[flat.group[inner]], strand[inner], lane[inner]))]
        first = np.concatenate([[True], lane[order][1:] != lane[order][:-1]])
        # Kinds alternate along a path over the checkerboard: a unit after one of its own kind skips a site.
        step = np.concatenate([[0], 1 + (flat.kind[order][1:] == flat.kind[order][:-1])])
        along = np.cumsum(step)
        head = np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))
        along = along - along[head]
        length = int(along.max()) + 1
        for fold in dict.fromkeys([1, 2, 3, 4, 5, 6, 8, 10, 12, 16, flat.rows, flat.rows // max(1, lanes)]):
            if not 1 <= fold <= flat.rows:
                continue
            for by_column, both in product((False, True) if fold > 1 else (False,), (False, True)):
                if both and (lanes == 1 or not len(outer)):
                    continue
                found = _folded(flat, order, lane[order], head, along, length, fold, by_column, both)
                if found:
                    cost = _estimate(flat, *found)
                    what = f"{lanes} lanes" + (f" of {strands} strands" if strands != lanes else "")
                    name = f"{what} in {fold} rows{' by column' * by_column}{' on both edges' * both}"
                    starts.append(_Start(name, *found, cost))
    return starts


def _folded(
    flat: _Flat, order: Ints, lane: Ints, head: Ints, along: Ints, length: int, fold: int, by_column: bool, both: bool
) -> tuple[Ints, Ints] | None:
    """Points of a folding, or None when the mesh has too few columns for it. `both`: every other stack is at the right
    edge, and the lanes are dealt out so that the edges have the same number."""
    stacked = flat.rows // fold
    lanes = int(lane.max()) + 1
    if both:
        stacked = min(stacked, -(-lanes // 2))
    stacks = -(-lanes // stacked)
    available = flat.columns - 2
    width = -(-length // fold)
    if width * stacks > available:
        return None
    stack, top = lane // stacked, lane % stacked * fold
    right = (stack % 2 == 1) & both

    def left_of(width: int) -> Ints:
        return np.where(right, flat.columns - 1 - (stack // 2 + 1) * width, 1 + (stack // (1 + both)) * width)

    left = left_of(width)
    # A lane whose first unit is not of the kind of its block's first site is mirrored, or starts one site later.
    # At the right edge it is laid from right to left.
    wrong = flat.kind_at[np.where(right, left + width - 1, left)[head], top[head]] != flat.kind[order[head]]
    longer = -(-(length + 1) // fold)
    flip_rows = wrong & (fold % 2 == 0)
    flip_columns = wrong & ~flip_rows & (longer * stacks > available) & (width % 2 == 0)
    shift = wrong & ~flip_rows & ~flip_columns
    if shift.any():
        width = min(longer, available // stacks)
        left = left_of(width)
    place: Ints = np.minimum(along + shift, width * fold - 1)
    inner = fold if by_column else width
    outer, within = place // inner, place % inner
    within = np.where(outer % 2, inner - 1 - within, within)
    row, column = (within, outer) if by_column else (outer, within)
    row = np.where(flip_rows, fold - 1 - row, row)
    column = np.where(flip_columns ^ right, width - 1 - column, column)
    x, y = np.zeros(flat.units, np.int64), np.zeros(flat.units, np.int64)
    x[order], y[order] = left + column, top + row
    edge = np.flatnonzero(~flat.is_inner)
    if len(edge):
        where, owner = _spread(flat, edge)
        weight = flat.to_weight[where] * flat.is_inner[flat.to[where]]
        total = np.maximum(np.bincount(owner, weight, len(edge)), 1e-30)
        mean_x = np.bincount(owner, weight * x[flat.to[where]], len(edge)) / total
        mean_y = np.bincount(owner, weight * y[flat.to[where]], len(edge)) / total
        site = flat.near[
            flat.kind[edge], np.where(mean_x * 2 >= flat.columns, flat.columns - 1, 0), np.rint(mean_y).astype(int)
        ]
        x[edge], y[edge] = flat.x[site], flat.y[site]
    return x, y


def _estimate(flat: _Flat, x: Ints, y: Ints) -> float:
    far = np.abs(x[flat.low] - x[flat.high]) + np.abs(y[flat.low] - y[flat.high])
    return float(flat.weight @ far)


def _settle(flat: _Flat, start: _Start, rank: Ints) -> Ints:
    """Legal sites near the points of a start: units whose point is a free site of their kind take it, the others one by
    one the free site that is nearest to their point and their placed neighbours."""
    at = np.full(flat.units, -1)
    wanted = flat.near[flat.kind, start.x, start.y]
    exact = (flat.x[wanted] == start.x) & (flat.y[wanted] == start.y)
    _, chosen = np.unique(np.where(exact, wanted, len(flat.x)), return_index=True)
    chosen = chosen[exact[chosen]]
    at[chosen] = wanted[chosen]
    free = np.ones(len(flat.x), bool)
    free[at[chosen]] = False
    rest = np.flatnonzero(at < 0)
    rest = rest[np.lexsort((rest, rank[flat.group[rest]], flat.kind[rest]))]
    sites = [np.flatnonzero(free & (flat.site_kind == k)) for k in range(flat.kinds)]
    blocked = [np.zeros(len(s)) for s in sites]
    columns, rows = np.arange(flat.columns), np.arange(flat.rows)
    for unit in rest.tolist():
        kind = int(flat.kind[unit])
        near = slice(int(flat.begin[unit]), int(flat.begin[unit + 1]))
        friends = flat.to[near]
        w = np.where(at[friends] >= 0, flat.to_weight[near], 0.0)
        pull = 1e-3 + 0.5 * float(w.sum()) if at[friends].max(initial=-1) < 0 else 0.5 * float(w.max())
        across = pull * np.abs(columns - start.x[unit]) + w @ np.abs(columns - flat.x[at[friends]][:, None])
        along = pull * np.abs(rows - start.y[unit]) + w @ np.abs(rows - flat.y[at[friends]][:, None])
        best = int((across[flat.x[sites[kind]]] + along[flat.y[sites[kind]]] + blocked[kind]).argmin())
        blocked[kind][best] = np.inf
        at[unit] = sites[kind][best]
    return at


def _grown_start(flat: _Flat, rank: Ints) -> Ints:
    """One unit after the other, always the one most strongly tied to those placed, on the free site nearest to them."""
    at = np.full(flat.units, -1)
    x, y = flat.x, flat.y
    # With nothing else to decide: from the middle of the left edge, with room around the first unit for its friends.
    side = np.sqrt(2 * np.bincount(flat.kind[flat.is_inner], minlength=1).max())
    middle_x, middle_y = min(1 + side / 2, flat.columns / 2), flat.rows / 2
    fill = np.abs(x - middle_x) + np.abs(y - middle_y)
    fill = fill * (1e-3 * float(flat.weight.min(initial=1.0)) / (flat.columns + flat.rows))
    spans = [slice(int(flat.first[k]), int(flat.first[k + 1])) for k in range(flat.kinds)]
    xs, ys, cost = [x[s] for s in spans], [y[s] for s in spans], [fill[s].copy() for s in spans]
    columns, rows = np.arange(flat.columns), np.arange(flat.rows)
    order = np.lexsort((np.arange(flat.units), rank[flat.group]))
    turn = np.empty(flat.units, np.int64)
    turn[order] = np.arange(flat.units)
    tie = [0.0] * flat.units
    turns: list[int] = turn.tolist()
    heap: list[tuple[float, int, int]] = []
    for seed in order.tolist():
        if at[seed] < 0:
            heap.append((0.0, 0, seed))
        while heap:
            strength, _, unit = heappop(heap)
            if at[unit] >= 0 or -strength < tie[unit]:
                continue
            near = slice(int(flat.begin[unit]), int(flat.begin[unit + 1]))
            to, kind = flat.to[near], int(flat.kind[unit])
            placed = at[to] >= 0
            total = cost[kind]
            if placed.any():
                w, there = flat.to_weight[near][placed], at[to[placed]]
                total = total + (w @ np.abs(columns - x[there][:, None]))[xs[kind]]
                total += (w @ np.abs(rows - y[there][:, None]))[ys[kind]]
            best = int(total.argmin())
            cost[kind][best] = np.inf
            at[unit] = spans[kind].start + best
            friends: list[int] = to.tolist()
            weights: list[float] = flat.to_weight[near].tolist()
            for friend, weight in zip(friends, weights, strict=True):
                if at[friend] < 0:
                    tie[friend] += weight
                    heappush(heap, (-tie[friend], turns[friend], friend))
    return at


# Refinement.


def _anneal(flat: _Flat, at: Ints, seed: int, moves: int) -> tuple[Ints, int]:
    """Refine a placement; the best one met and the number of moves tried. A move goes near a neighbour, or near the
    middle of all neighbours."""
    movable = np.flatnonzero(flat.degree)
    if not len(movable) or moves <= 0:
        return at, 0
    rng = np.random.default_rng(seed)
    batch = int(np.clip(len(movable) // 2, 16, 1024))
    rounds = max(1, moves // batch)
    at, best = at.copy(), at.copy()
    owner = np.full(len(flat.x), -1)
    owner[at] = np.arange(flat.units)
    cost = lowest = flat.cost(at)
    mean = cost / max(1, len(flat.weight))
    hot, cold = 0.5 * max(mean, 0.3), 0.1  # in mean weights × hops
    owned = np.repeat(np.arange(flat.units), flat.degree)
    carried = np.maximum(np.bincount(owned, flat.to_weight, flat.units), 1e-30)
    middle = np.zeros((2, flat.units), np.int64)
    nobody = len(flat.x)
    claim = np.full(len(flat.x) + 1, nobody)
    mover = np.full(flat.units + 1, nobody)
    for step in range(rounds):
        progress = step / rounds
        heat = hot * (cold / hot) ** progress
        reach = max(1, round((1 - progress) * 12))
        unit = movable[rng.integers(0, len(movable), batch)]
        edge = flat.begin[unit] + (rng.random(batch) * flat.degree[unit]).astype(np.int64)
        friend = at[flat.to[edge]]
        goal = np.stack([flat.x[friend], flat.y[friend]])
        if step % 8 == 0:
            middle = np.stack(
                [np.bincount(owned, flat.to_weight * v[at[flat.to]], flat.units) for v in (flat.x, flat.y)]
            )
            middle = np.rint(middle / carried).astype(np.int64)
        goal[:, ::2] = middle[:, unit[::2]]
        goal += rng.integers(-reach, reach + 1, (2, batch))
        goal_x = np.minimum(np.maximum(goal[0], 0), flat.columns - 1)
        goal_y = np.minimum(np.maximum(goal[1], 0), flat.rows - 1)
        source, target = at[unit], flat.near[flat.kind[unit], goal_x, goal_y]
        other = owner[target]
        both, sites = np.concatenate([unit, other, unit]), np.concatenate([source, target, source])
        gains = _gain(flat, at, both[: 2 * batch], sites[: 2 * batch], sites[batch:], both[batch:])
        gain = gains[:batch] + gains[batch:]
        accept = (gain < heat * -np.log(rng.random(batch))) & (source != target)
        chosen = np.flatnonzero(accept)
        if not len(chosen):
            continue
        # Of the accepted moves keep those that are first on both their sites and have no neighbour that moves too.
        first, second = source[chosen], target[chosen]
        claim[first[::-1]] = chosen[::-1]
        np.minimum.at(claim, second, chosen)
        np.minimum.at(claim, first, chosen)
        chosen = chosen[(claim[first] == chosen) & (claim[second] == chosen)]
        claim[first] = nobody
        claim[second] = nobody
        mover[unit[chosen]] = chosen
        mover[other[chosen]] = chosen
        mover[-1] = nobody
        moved = np.concatenate([unit[chosen], other[chosen]])
        first_of_all = _earliest(flat, mover, moved, np.concatenate([chosen, chosen]))
        mover[moved] = nobody
        chosen = chosen[first_of_all[: len(chosen)] & first_of_all[len(chosen) :]]
        moving, swapped = unit[chosen], other[chosen]
        owner[source[chosen]] = swapped
        owner[target[chosen]] = moving
        at[moving] = target[chosen]
        back = swapped >= 0
        at[swapped[back]] = source[chosen][back]
        cost += float(gain[chosen].sum())
        if cost < lowest - 1e-9:
            lowest = cost
            best[:] = at
    return best, rounds * batch


def _spread(flat: _Flat, units: Ints) -> tuple[Ints, Ints]:
    """Positions in the neighbour lists of all `units` (-1 has none), and which entry of `units` each belongs to."""
    count = flat.degree.take(units) * (units >= 0)
    owner = np.arange(len(units)).repeat(count)
    start = flat.begin.take(units) - (count.cumsum() - count)
    return start.take(owner) + np.arange(len(owner)), owner


def _gain(flat: _Flat, at: Ints, units: Ints, old: Ints, new: Ints, partner: Ints) -> Floats:
    """Change of cost when each unit moves from `old` to `new`, edges to its swap partner apart."""
    where, owner = _spread(flat, units)
    friend = flat.to.take(where)
    there, o, n = at.take(friend), old.take(owner), new.take(owner)
    fx, fy = flat.x.take(there), flat.y.take(there)
    farther = abs(flat.x.take(n) - fx) + abs(flat.y.take(n) - fy) - abs(flat.x.take(o) - fx) - abs(flat.y.take(o) - fy)
    change = farther * flat.to_weight.take(where) * (friend != partner.take(owner))
    return np.bincount(owner, change, len(units)).astype(np.float64, copy=False)


def _earliest(flat: _Flat, mover: Ints, units: Ints, index: Ints) -> npt.NDArray[np.bool_]:
    """Whether no neighbour of each unit belongs to an earlier move than the unit's own."""
    where, owner = _spread(flat, units)
    late = mover.take(flat.to.take(where)) < index.take(owner)
    return np.bincount(owner, late, len(units)) == 0


# Bound, solver, checker.


def lower_bound(problem: PlacementProblem) -> float:
    """A cost that no placement can beat.

    By kinds of pairs: at most M(d) units of a kind lie within distance d of any one unit, so the neighbours of a unit,
    heaviest first, are at least as far as that allows; pairs are charged to their lower end, to their upper end, or
    half to each. Or each unit of one kind is at least as far from the nearest site of the other kind as the site that
    it takes, and of the near ones there are few. What gives the most counts. Where all units of one group talk to all
    of another of its kind, their distances are no less than half of all distances among the units of both. And all
    pairs together: sites near the address generators are few for all units that hang on them (`_levelled`).
    """
    flat = _Flat(problem)
    return max(_bound(flat, problem), _levelled(flat, problem)) * flat.scale


def _bound(flat: _Flat, problem: PlacementProblem) -> float:
    if not len(flat.weight):
        return 0.0
    best, _ = _charged(flat, flat.weight)
    full = [net for net in problem.nets if _complete(problem, net)]
    if full:
        group = flat.group[flat.low] * len(problem.groups) + flat.group[flat.high]
        apart = [[n.source * len(problem.groups) + n.target, n.target * len(problem.groups) + n.source] for n in full]
        rest = np.where(np.isin(group, np.array(apart).ravel()), 0.0, flat.weight)
        best = max(best, _charged(flat, rest)[0] + sum(_among_all(flat, problem, net) for net in full))
    return best


LEVELLED = 200
"""Steps towards the best of the bounds that `_levelled` knows."""


def _levelled(flat: _Flat, problem: PlacementProblem) -> float:
    """A bound for all pairs together, from the level of a site: its distance to the nearest AGCU.

    Levels differ by no more than distances do, so a pair of weight w between units u and v costs no less than
    (w - |f|) · distance + f · (level of v - level of u), whatever f in [-w, w]. Summed up, each level counts with what
    flows into its unit, and of each level there are few sites: the least such sum has the units of a kind in the order
    of what flows into them. Every choice of f is a bound. It starts with all that AGCUs carry, and is passed on along
    the pairs step by step to where that gives more.
    """
    kinds = [kind for kind in problem.sites if any(g.kind == kind for g in problem.groups)]
    outer = kinds.index("agcu") if "agcu" in kinds else -1
    if outer < 0 or not len(flat.weight):
        return 0.0
    site = flat.near[outer, flat.x, flat.y]
    level = np.abs(flat.x[site] - flat.x) + np.abs(flat.y[site] - flat.y)
    levels = [np.sort(level[flat.first[k] : flat.first[k + 1]]) for k in range(flat.kinds)]
    units = [np.flatnonzero(flat.kind == k) for k in range(flat.kinds)]

    def raised(f: Floats) -> tuple[float, Floats]:
        """The least sum of levels, and the mean level of each unit where it is reached."""
        into = np.bincount(flat.high, f, flat.units) - np.bincount(flat.low, f, flat.units)
        total, at = 0.0, np.zeros(flat.units)
        for mine, rising in zip(units, levels, strict=True):
            most = np.zeros(len(rising))
            most[: len(mine)] = into[mine]
            order = np.argsort(-most, kind="stable")
            total += float(most[order] @ rising)
            like = np.round(most[order], 9)
            first = np.flatnonzero(np.concatenate([[True], like[1:] != like[:-1]]))
            size = np.diff(np.concatenate([first, [len(like)]]))
            spread = np.empty(len(rising))
            spread[order] = np.repeat(np.add.reduceat(rising, first) / size, size)
            at[mine] = spread[: len(mine)]
        return total, at

    weight = flat.weight
    _, far = _charged(flat, weight)
    hops = _hops(flat)
    best, chosen = -1.0, weight
    for share in (np.where(hops > 0, 0.0, 1.0), 1 - np.minimum(hops, hops.max()) / max(1, hops.max())):
        f = weight * share[flat.low] * (hops[flat.low] < hops[flat.high])
        f = f - weight * share[flat.high] * (hops[flat.low] > hops[flat.high])
        for step in range(LEVELLED // 2):
            total, at = raised(f)
            total += float((weight - np.abs(f)) @ far)
            if total > best:
                best, chosen = total, f
            rise = at[flat.high] - at[flat.low]
            none = np.abs(f) <= 1e-9 * weight
            slope = np.where(none, np.sign(rise) * np.maximum(np.abs(rise) - far, 0), rise - np.sign(f) * far)
            moved = f + 0.3 / (1 + step) ** 0.7 * weight * slope
            f = np.clip(np.where(moved * f < 0, 0.0, moved), -weight, weight)
    return raised(chosen)[0] + _charged(flat, weight - np.abs(chosen))[0]


def _hops(flat: _Flat) -> Ints:
    """Pairs between each unit and the nearest AGCU; where there is no way, one more than anywhere else."""
    hops = np.where(flat.is_inner, flat.units, 0)
    for _ in range(flat.units):
        before = hops.copy()
        np.minimum.at(hops, flat.low, before[flat.high] + 1)
        np.minimum.at(hops, flat.high, before[flat.low] + 1)
        if (hops == before).all():
            break
    reached = hops < flat.units
    return np.where(reached, hops, hops[reached].max(initial=0) + 1)


def _complete(problem: PlacementProblem, net: Net) -> bool:
    """Whether a net joins every unit of a group with every unit of another of its kind."""
    a, b = problem.groups[net.source], problem.groups[net.target]
    if net.source == net.target or a.kind != b.kind or len(net.pairs) != a.count * b.count or net.weight <= 0:
        return False
    return len(np.unique(net.pairs[:, 0] * b.count + net.pairs[:, 1])) == len(net.pairs)


def _among_all(flat: _Flat, problem: PlacementProblem, net: Net) -> float:
    """Bound of a complete net between p and q units of a kind. Along an axis Σ |aᵢ - bⱼ| / pq is no less than
    Σ |aᵢ - aₖ| / p² + Σ |bⱼ - bₖ| / q² (unordered pairs), so with m = min(p, q) / max(p, q) the net takes m / (1 + m)
    of all distances among its units."""
    p, q = problem.groups[net.source].count, problem.groups[net.target].count
    kind = int(flat.kind[problem.offsets[net.source]])
    share = min(p, q) / max(p, q)
    return share / (1 + share) * _spread_out(flat, kind, p + q) * net.weight / flat.scale


def _spread_out(flat: _Flat, kind: int, count: int) -> int:
    """The least sum of the distances among `count` units of a kind. One more unit than n: the one with the least x + y
    has the others on one side of it, and n are left without it; each unit has the others around it; and the n + 1 sets
    without one of them count each distance n - 1 times."""
    around = flat.profile(kind, kind, count - 1).cumsum().tolist()
    beside = flat.profile(kind, kind, count - 1, half=True).cumsum().tolist()
    total = 0
    for n in range(1, count):
        shared = -(-total * (n + 1) // (n - 1)) if n > 1 else 0
        total = max(total + beside[n - 1], -(-(n + 1) * around[n - 1] // 2), shared)
    return total


def _charged(flat: _Flat, weight: Floats) -> tuple[float, Floats]:
    """The bound by kinds of pairs, for pairs of these weights, and how far apart the units of each pair are in it."""
    total, far = 0.0, np.zeros(len(weight))
    kinds = np.sort(np.stack([flat.kind[flat.low], flat.kind[flat.high]]), axis=0)
    for one, other in np.unique(kinds[:, weight > 0], axis=1).T.tolist():
        mine = np.flatnonzero((kinds[0] == one) & (kinds[1] == other) & (weight > 0))
        low, high, carried = flat.low[mine], flat.high[mine], weight[mine]
        swap = flat.kind[low] != one
        low, high = np.where(swap, high, low), np.where(swap, low, high)  # low is of kind `one`
        ways = [_by_rank(flat, low, high, carried), _by_rank(flat, high, low, carried)]
        sited = 0.0
        if one == other:
            both = np.concatenate([low, high]), np.concatenate([high, low]), np.tile(carried, 2)
            ways.append(_by_rank(flat, *both).reshape(2, -1).mean(axis=0))
        else:
            sited = max(_by_site(flat, low, carried, one, other), _by_site(flat, high, carried, other, one))
        far[mine] = max(ways, key=lambda way: float(carried @ way))
        total += max(float(carried @ far[mine]), sited)
    return total, far


def _by_rank(flat: _Flat, unit: Ints, friend: Ints, weight: Floats) -> Floats:
    """Distances: each unit's friends, heaviest first, on the sites nearest to it. All units are of one kind, all
    friends too."""
    order = np.lexsort((-weight, unit))
    key = unit[order]
    start = np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]]))
    size = np.diff(np.concatenate([start, [len(key)]]))
    rank = np.arange(len(key)) - np.repeat(start, size)
    profile = flat.profile(int(flat.kind[unit[0]]), int(flat.kind[friend[0]]), int(size.max()))
    far = np.empty(len(key))
    far[order] = profile[rank]
    return far


def _by_site(flat: _Flat, unit: Ints, weight: Floats, kind: int, friend: int) -> float:
    """Units with much to carry on the sites of their kind that are nearest to any site of the other."""
    here = slice(int(flat.first[kind]), int(flat.first[kind + 1]))
    x, y = flat.x[here], flat.y[here]
    site = flat.near[friend, x, y]
    far = np.sort(np.abs(flat.x[site] - x) + np.abs(flat.y[site] - y))
    carried = np.sort(np.bincount(unit, weight))[::-1]
    carried = carried[carried > 0]
    return float(carried @ far[: len(carried)])


def _in_rows(flat: _Flat) -> Ints:
    """Unit by unit onto the sites of its kind, row by row: what placing means without looking at nets."""
    at = np.empty(flat.units, np.int64)
    for kind in range(flat.kinds):
        sites: Ints = np.arange(int(flat.first[kind]), int(flat.first[kind + 1]))
        mine = np.flatnonzero(flat.kind == kind)
        order: Ints = np.lexsort((flat.x[sites], flat.y[sites]))
        at[mine] = sites[order][: len(mine)]
    return at


def solve_placement(
    problem: PlacementProblem, seed: int = 0, moves: int | None = None, start: str = "best"
) -> Placement:
    """Place the groups. `moves`: proposed moves in all (None: `DEFAULT_MOVES` a unit, 0: the start as it is). `start`:
    `best` of the constructive ones, or `rows` (unit by unit, row by row).

    CompileError `too-many-units` or `bad-placement-problem`. The answer has passed `check_placement`.
    """
    problem.check()
    if not problem.offsets[-1]:
        return Placement(problem, tuple(np.zeros((0, 2), np.int64) for _ in problem.groups), 0.0)
    flat = _Flat(problem)
    starts: list[tuple[str, float, Ints]] = []
    if start == "rows":
        simple = _in_rows(flat)
        starts.append(("row by row", flat.cost(simple), simple))
    else:
        rank = _levels(problem)
        grown = _grown_start(flat, rank)
        starts.append(("grown", flat.cost(grown), grown))
        for one in sorted(_lane_starts(flat, problem, rank), key=lambda one: one.estimate)[:2]:
            at = _settle(flat, one, rank)
            starts.append((one.name, flat.cost(at), at))
    starts.sort(key=lambda start: start[1])  # stable: the first of equals wins
    at, tried = starts[0][2], 0
    if starts[0][1] > _bound(flat, problem) * (1 + 1e-9):
        at, tried = _anneal(flat, at, seed, DEFAULT_MOVES * flat.units if moves is None else moves)
    site = np.stack([flat.x[at], flat.y[at]], axis=1)
    positions = tuple(np.split(site, problem.offsets[1:-1]))
    placement = Placement(
        problem,
        positions,
        flat.cost(at) * flat.scale,
        tuple((name, cost * flat.scale) for name, cost, _ in starts),
        tried,
    )
    check_placement(problem, placement)
    return placement


def wirelength(problem: PlacementProblem, positions: Sequence[Ints]) -> float:
    """Σ weight × Manhattan distance over all pairs, in words · hops per cycle."""
    everything = np.concatenate([np.zeros((0, 2), np.int64), *positions])
    a, b, w = problem.edges
    return float(w @ np.abs(everything[a] - everything[b]).sum(axis=1)) if len(w) else 0.0


def check_placement(problem: PlacementProblem, placement: Placement) -> None:
    """Refuse a placement that is not one: CompileError `bad-placement` lists every group off its kind's sites, every
    site taken twice, and a cost that is not the wirelength."""
    found = Collector()

    def bad(what: str) -> None:
        found.add("bad-placement", what)

    taken: dict[str, dict[tuple[int, int], str]] = {}
    kinds = dict.fromkeys(g.kind for g in problem.groups)
    legal_sites = {kind: {(int(x), int(y)) for x, y in problem.sites[kind].tolist()} for kind in kinds}
    if len(placement.positions) != len(problem.groups):
        bad(f"{len(placement.positions)} positions for {len(problem.groups)} groups")
        found.raise_if_any()
    for group, sites in zip(problem.groups, placement.positions, strict=True):
        if sites.shape != (group.count, 2):
            bad(f"group '{group.name}' has {group.count} units and sites of shape {sites.shape}")
            continue
        legal, used = legal_sites[group.kind], taken.setdefault(group.kind, {})
        for unit, (x, y) in enumerate(sites.tolist()):
            if (x, y) not in legal:
                bad(f"unit {unit} of group '{group.name}' is at ({x}, {y}), which is no {group.kind} site")
            elif (x, y) in used:
                bad(f"unit {unit} of group '{group.name}' is at ({x}, {y}), which {used[x, y]} has taken")
            used.setdefault((x, y), f"unit {unit} of group '{group.name}'")
    found.raise_if_any()
    cost = wirelength(problem, placement.positions)
    if not np.isclose(cost, placement.cost, rtol=1e-9, atol=1e-9):
        bad(f"the cost is {cost}, not {placement.cost}")
    found.raise_if_any()
