"""The network: every route is a path over the mesh between the sites of its pair, links carry what they can, credits
cover the way there and back, and no channels wait for each other in a cycle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from headrace.tools.audit.cells import Bools
from headrace.tools.audit.looking import Look, few, numbers, rows
from headrace.tools.audit.program import Compute, Floats, Flow, Ints, no_ints
from headrace.tools.audit.reading import STEP_X, STEP_Y
from headrace.tools.audit.words import words_of_site
from headrace.tools.audit.work import cycles

NAMES = ("east", "west", "south", "north")


@dataclass(frozen=True, eq=False)
class Hops:
    """The links of all sound flows, one row for each link of each route: link number (4 · switch + direction), route,
    net and channel. A net is what one site sends as the same words; `words` of a net in a run of the config."""

    link: Ints
    route: Ints
    net_of_route: Ints
    channel_of_route: Ints
    flow_of_net: Ints
    words: Floats
    flows: tuple[Flow, ...]

    @property
    def net(self) -> Ints:
        """The net of every row."""
        return self.net_of_route[self.route]

    @cached_property
    def carried(self) -> tuple[Ints, Ints]:
        """Every link of every net, once: nets and links."""
        size = int(self.link.max(initial=0)) + 1
        key = np.unique(self.net * size + self.link)
        return key // size, key % size

    def told_apart(self, columns: int) -> Bools:
        """Whether each net needs an identifier: it has several targets, or a link along x after one along y."""
        apart = np.zeros(len(self.words), bool)
        along_y = self.link % 4 >= 2
        inner = self.route[1:] == self.route[:-1]
        apart[self.net[1:][inner & along_y[:-1] & ~along_y[1:]]] = True
        step = np.array([1, -1, columns, -columns])
        after = self.link // 4 + step[self.link % 4]
        last = np.ones(len(self.link), bool)
        last[:-1] = ~inner
        ends = np.unique(np.stack([self.net[last], after[last]]), axis=1)
        targets = np.bincount(ends[0], minlength=len(apart))
        stay = np.ones(len(self.net_of_route), bool)
        stay[self.route] = False
        here = np.unique(self.net_of_route[stay])
        targets[here] += 1
        return apart | (targets > 1)

    def flows_of(self, nets: Ints) -> list[Flow]:
        """The flows of some nets, each once."""
        return [self.flows[f] for f in numbers(np.unique(self.flow_of_net[nets]))]


def check_routes(look: Look) -> None:
    """Every route leads from link to link, on the mesh, from its source's switch to its target's."""
    columns, height = look.device.mesh
    for flow in look.sound:
        pairs, first = flow.pairs, flow.first
        count = len(pairs)
        if len(first) != count + 1 or (flow.channel is not None and len(flow.channel) != count):
            look.bad("broken-route", f"{flow.label} has {count} pairs, {len(first) - 1} routes", flow)
            continue
        source, target = (look.config.units[i].sites for i in (flow.source, flow.target))
        begin, end = source[pairs[:, 0]], target[pairs[:, 1]]
        hops = np.diff(first)
        route = np.repeat(np.arange(count), hops)
        next_x, next_y = flow.x + STEP_X[flow.way], flow.y + STEP_Y[flow.way]
        off = np.zeros(len(route), bool)
        for x, y in ((flow.x, flow.y), (next_x, next_y)):
            off |= (x < 0) | (x >= columns) | (y < 0) | (y >= height)
        if off.any():
            told = few(rows(pairs[np.unique(route[off])]))
            look.bad(
                "off-the-mesh", f"the routes of pairs {told} of {flow.label} leave the {columns}x{height} mesh", flow
            )
            continue
        at = np.stack([flow.x, flow.y], axis=1)
        after = np.stack([next_x, next_y], axis=1)
        inner = np.flatnonzero(route[1:] == route[:-1]) if len(route) else no_ints()
        gap = np.zeros(count, bool)
        gap[route[inner][(at[inner + 1] != after[inner]).any(axis=1)]] = True
        some = hops > 0
        gap[some] |= (at[first[:-1][some]] != begin[some]).any(axis=1)
        if gap.any():
            told = few(rows(pairs[gap]))
            look.bad("broken-route", f"the routes of pairs {told} of {flow.label} have a gap", flow)
            continue
        last = begin.copy()
        last[some] = after[first[1:][some] - 1]
        wrong = (last != end).any(axis=1)
        if wrong.any():
            told = few([f"{pair} at {at}" for pair, at in zip(rows(pairs[wrong]), rows(last[wrong]), strict=True)])
            where = few(rows(end[wrong]))
            unit = look.config.units[flow.target].name
            look.bad("wrong-end", f"routes of {flow.label} end for pairs {told}, but @{unit} is at {where}", flow)


def hops_of(look: Look, shares: Mapping[Flow, Floats]) -> Hops:
    """The links of all flows that nothing is wrong with."""
    columns, _ = look.device.mesh
    flows = tuple(f for f in look.sound if f in shares)
    links: list[Ints] = [no_ints()]
    nets: list[Ints] = [no_ints()]
    lengths: list[Ints] = [no_ints()]
    channels: list[Ints] = [no_ints()]
    owner: list[Ints] = [no_ints()]
    words: list[Floats] = [np.zeros(0)]
    count = 0
    for number, flow in enumerate(flows):
        net = _nets(look, flow)
        each = int(net.max(initial=-1)) + 1
        total = words_of_site(look.config, flow, look.device) * flow.stream.steps
        widest = np.zeros(each)
        np.maximum.at(widest, net, total * shares[flow])
        links.append(4 * (flow.y * columns + flow.x) + flow.way)
        lengths.append(np.diff(flow.first))
        nets.append(net + count)
        channels.append(flow.channel if flow.channel is not None else np.zeros(len(net), np.int64))
        owner.append(np.full(each, number))
        words.append(widest)
        count += each
    length = np.concatenate(lengths)
    route = np.repeat(np.arange(len(length)), length)
    return Hops(
        np.concatenate(links), route, np.concatenate(nets), np.concatenate(channels), np.concatenate(owner),
        np.concatenate(words), flows,
    )  # fmt: skip


def _nets(look: Look, flow: Flow) -> Ints:
    """A number for each pair; pairs of one number carry the same words from one site, which branch on the way: what a
    memory sends to compute units whose tiles begin at the same coordinate of the tensor."""
    source, target = look.config.units[flow.source], look.config.units[flow.target]
    if isinstance(source, Compute) or not isinstance(target, Compute):
        return np.arange(len(flow.pairs))
    stream = flow.stream
    counts = [loop.count for loop in stream.space]
    at = np.indices(counts).reshape(len(counts), -1) if counts else np.zeros((0, 1), np.int64)
    origin = np.zeros((len(stream.tile), at.shape[1]), np.int64)
    for loop, index in zip(stream.space, at, strict=True):
        if loop.dim >= 0:
            origin[loop.dim] += index * loop.step
    key = np.concatenate([flow.pairs[:, :1], origin[:, flow.pairs[:, 1]].T], axis=1)
    return np.unique(key, axis=0, return_inverse=True)[1].ravel()


def check_trees(look: Look, hops: Hops) -> None:
    """The routes of a net are one tree in one channel: no switch gets a word twice."""
    columns, height = look.device.mesh
    switches = columns * height
    net, link = hops.net, hops.link
    step = np.array([1, -1, columns, -columns])
    of_net, on = hops.carried
    entered = of_net * switches + on // 4 + step[on % 4]
    starts = hops.route[1:] != hops.route[:-1] if len(hops.route) else np.zeros(0, bool)
    begin = np.flatnonzero(np.concatenate([[True], starts])) if len(hops.route) else no_ints()
    root = np.unique(net[begin] * switches + link[begin] // 4)
    every, times = np.unique(np.concatenate([entered, root]), return_counts=True)
    again = np.unique(every[times > 1] // switches)
    lowest = np.full(len(hops.words), np.iinfo(np.int64).max)
    highest = np.full(len(hops.words), -1)
    np.minimum.at(lowest, hops.net_of_route, hops.channel_of_route)
    np.maximum.at(highest, hops.net_of_route, hops.channel_of_route)
    for code, nets, what in (
        ("no-tree", again, "has routes of the same words that part and meet again"),
        ("channels-differ", np.flatnonzero(lowest < highest), "sends the same words over several channels"),
    ):
        for flow in hops.flows_of(nets):
            look.bad(code, f"{flow.label} {what}", flow)
    most = look.device.network.virtual_channels
    for flow in hops.flows:
        if flow.channel is not None and ((flow.channel < 0) | (flow.channel >= most)).any():
            told = few(sorted(set(flow.channel.tolist())))
            look.bad("unknown-channel", f"{flow.label} takes channels {told} of {most}", flow)


def check_links(look: Look, hops: Hops) -> tuple[float, int]:
    """No link has more flows than it can tell apart: those that branch, or do not go along x and then along y; other
    words are forwarded by their destination. The words of a run over the busiest link, and the most flows."""
    columns, height = look.device.mesh
    of_net, on = hops.carried
    size = 4 * columns * height
    words = np.bincount(on, hops.words[of_net], size)
    told_apart = hops.told_apart(columns)
    nets = np.bincount(on[told_apart[of_net]], minlength=size)
    limit = look.device.network.flow_ids
    for link in np.argsort(-nets, kind="stable")[: int((nets > limit).sum())][:4].tolist():
        told = few([flow.label for flow in hops.flows_of(of_net[(on == link) & told_apart[of_net]])])
        look.bad("too-many-flows", f"{_link(link, columns)} carries {nets[link]} flows of {limit}", why=f"from {told}")
    return float(words.max(initial=0.0)), int(nets.max(initial=0))


def check_load(look: Look, hops: Hops) -> float:
    """The config's claim of the busiest link is true; the load as it follows from the program.

    The claim deals what a flow carries evenly over its pairs, at most a word a cycle each, and takes the rate at which
    the slowest units work. `check_links` has the words that really go over each link.
    """
    columns, height = look.device.mesh
    config, device = look.config, look.device
    time = cycles(config, device)
    rates: list[float] = []
    for flow in hops.flows:
        share = min(1.0, flow.stream.sites / max(1, len(flow.pairs)))
        rates.append(min(1.0, words_of_site(config, flow, device) * flow.stream.steps * share / time))
    of_net, on = hops.carried
    load = np.bincount(on, np.array(rates, np.float64)[hops.flow_of_net[of_net]], 4 * columns * height)
    found = float(load.max(initial=0.0)) / device.network.links
    if config.link_load is not None and not np.isclose(config.link_load, found, rtol=1e-6, atol=1e-9):
        what = f"claims a load of {config.link_load:.6g} of its busiest link, the routes give {found:.6g}"
        look.bad("link-load", what, why=f"the slowest units take {time:.6g} cycles")
    return found


def _link(link: int, columns: int) -> str:
    switch = link // 4
    return f"the link {NAMES[link % 4]} of switch ({switch % columns}, {switch // columns})"


def check_credits(look: Look) -> None:
    """The credits of a flow cover its longest route there and back: a word crosses hops + 1 switches and both ends."""
    network = look.device.network
    for flow in look.sound:
        hops = int(np.diff(flow.first).max(initial=0))
        trip = 2 * ((hops + 1) * network.hop_latency + network.inject_latency)
        if flow.credits < trip:
            what = f"{flow.label} has {flow.credits} credits, a word and its credit take {trip} cycles"
            look.bad("too-few-credits", what, flow, why=f"its longest route has {hops} links")


def check_channels(look: Look, hops: Hops) -> None:
    """A word that holds one link of a route waits for the next: no cycle among (link, channel)."""
    columns, height = look.device.mesh
    size = 4 * columns * height
    node = hops.channel_of_route[hops.route] * size + hops.link
    inner = np.flatnonzero(hops.route[1:] == hops.route[:-1]) if len(node) else no_ints()
    most = int(node.max(initial=0)) + 1
    edges = np.unique(node[inner] * most + node[inner + 1])
    cycle = find_cycle(edges // most, edges % most)
    if not cycle:
        return
    told = few([f"{_link(n % size, columns)} (channel {n // size})" for n in cycle])
    flows = hops.flows_of(hops.net[np.isin(node, cycle)])
    look.bad(
        "channel-cycle",
        f"{len(cycle)} channels wait for each other: {told}",
        why=f"on them are {few([flow.label for flow in flows])}",
    )


def find_cycle(before: Ints, after: Ints) -> list[int]:
    """Nodes of one cycle of a directed graph, in order; empty when it has none."""
    alive: Bools = np.ones(len(before), bool)
    while alive.any():  # peel off what nobody waits behind, until only cycles and what they wait for is left
        left = alive & np.isin(before, after[alive])
        if (left == alive).all():
            break
        alive = left
    if not alive.any():
        return []
    behind = dict(zip(after[alive].tolist(), before[alive].tolist(), strict=True))
    node = int(before[alive][0])
    path: dict[int, None] = {}
    while node not in path:
        path[node] = None
        node = behind[node]
    order = list(path)
    return order[order.index(node) :][::-1]
