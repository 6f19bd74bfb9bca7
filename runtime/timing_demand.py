"""What a config asks of the device, before anything is said about when: the ground that both models of time stand on.

Groups that hand tiles on directly form one pipeline with one pace (a *cluster* of *members*); memory units stand
between clusters. A member's step takes as long as the slowest of what it needs: its own cycles, ports and banks of
memory units, ports, links and credits of the network, the address generator, off-chip memory. A cluster is one process
of `runtime.pipeline`; what several clusters ask of the same resource is a row of `resources`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import lcm
from typing import Any

import numpy as np

from headrace.dialects.machine.collectives import Collective
from headrace.dialects.machine.cost import agcu_rate, memory_bytes_per_cycle, memory_cycles
from headrace.dialects.machine.device import Device
from headrace.dialects.rdu.cost import ALONE, body_communication, body_cost
from headrace.runtime.pipeline import Access, Buffer, Process, Span
from headrace.runtime.program import Agcu, Config, Pcu, Pmu
from headrace.runtime.sharing import Resources
from headrace.runtime.traffic import Traffic, layout, off_chip_bytes

Array = np.ndarray[Any, np.dtype[Any]]
MOST_CHUNKS = 4096
"""Most parts that a pipeline's run is cut into; a finer division would change nothing that shows."""


@dataclass
class Member:
    """A group of units (or one flow of it) as a part of a pipeline: cycles a step by resource.

    `latency`: cycles from the last word of a tile in to the last result out; `first`: from the first word in to the
    first result out. `lead` and `done`: when its first tile begins and is out, from the start of the cluster.
    """

    unit: int
    steps: int
    parts: dict[str, float]
    into: list[Traffic]
    out: list[Traffic]
    latency: float = 0.0
    first: float = 0.0
    cluster: int = 0
    lead: float = 0.0
    done: float = 0.0
    memory: str = ""
    sites: int = 1
    moved: int = 0  # bytes off chip a step
    peers: Collective | None = None  # what each site asks of the links to other sockets a step
    sent: int = 0  # bytes to other sockets a step
    awaited: float = 0.0  # cycles of its latency that other sockets take

    @property
    def interval(self) -> float:
        """Cycles from step to step when nothing is shared."""
        return max(self.parts.values())

    @property
    def bound(self) -> str:
        """The resource that takes longest."""
        return max(self.parts, key=lambda k: self.parts[k])


@dataclass
class Cluster:
    """Members that hand tiles on directly: they move at one pace, that of `owner`. `work` is the cycles of the whole
    run when nothing is shared with other clusters, `bound` what sets it."""

    members: list[int] = field(default_factory=list[int])
    chunks: int = 1
    work: float = 0.0
    bound: str = ""
    owner: int = 0
    runs: int = 1


@dataclass(frozen=True)
class Course:
    """What a model says of a config: when each cluster's first chunk begins and its last one ends, its cycles of work
    when resources are shared and what bounds it then, the critical path, and the end of everything; and when each of
    its runs has ended."""

    begin: Sequence[float]
    end: Sequence[float]
    length: Sequence[float]
    bound: Sequence[str]
    spans: Sequence[Span]
    total: float
    settled: bool = True
    ends: Sequence[float] = ()


class Demand:
    """Clusters of a config with its parameters in given memories, in an order in which buffers flow. Of several `runs`
    one follows the other: what passes through a buffer are the frames of all of them, and what is kept is loaded in the
    first."""

    def __init__(self, config: Config, memories: Sequence[str], device: Device, runs: int = 1) -> None:
        self.config = config
        self.device = device
        self.memories = memories
        self.runs = runs
        self.flows = [Traffic(config, flow, device, 1 if self._keeps(flow.dst) else runs) for flow in config.flows]
        self.pmus = [i for i, u in enumerate(config.units) if isinstance(u, Pmu)]
        self.number = {u: n for n, u in enumerate(self.pmus)}
        self.layout = {
            i: layout(unit, [t for t in self.flows if i in (t.flow.src, t.flow.dst)], device)
            for i in self.pmus
            if isinstance(unit := config.units[i], Pmu)
        }
        self.members: list[Member] = []
        self.sender: dict[int, int] = {}  # flow -> member that sends it
        self.taker: dict[int, int] = {}
        self._members()
        self.clusters: list[Cluster] = []
        self._join()

    def _keeps(self, index: int) -> bool:
        """Whether a unit is a memory that is filled in the first run only."""
        unit = self.config.units[index]
        return isinstance(unit, Pmu) and unit.kept

    def works_again(self, cluster: Cluster) -> bool:
        """Whether a cluster works in each run, not in the first alone."""
        around = [t for i in cluster.members for t in self._around(i)]
        return any(not self._keeps(t.flow.dst) for t in around)

    def asked_by(self, clusters: Array) -> Array:
        """Cycles that some of the clusters together ask of each resource."""
        return self._asked[0][clusters].sum(0)

    # Members

    def _members(self) -> None:
        into: list[list[int]] = [[] for _ in self.config.units]
        out: list[list[int]] = [[] for _ in self.config.units]
        for i, flow in enumerate(self.config.flows):
            out[flow.src].append(i)
            into[flow.dst].append(i)
        for index, unit in enumerate(self.config.units):
            match unit:
                case Pcu():
                    self._add(index, into[index], out[index])
                case Agcu(direction="store"):
                    for i in into[index]:
                        self._add(index, [i], [])
                case Agcu():
                    self._add(index, into[index], out[index])
                case Pmu():
                    for i in out[index]:
                        if isinstance(self.flows[i].target, Pmu):
                            self._add(index, [], [i])

    def _add(self, index: int, into: list[int], out: list[int]) -> None:
        number = len(self.members)
        for i in into:
            self.taker[i] = number
        for i in out:
            self.sender[i] = number
        ins, outs = [self.flows[i] for i in into], [self.flows[i] for i in out]
        steps = max((t.steps for t in (*outs, *ins)), default=1)
        member = Member(index, steps, {}, ins, outs)
        unit = self.config.units[index]
        if isinstance(unit, Pcu):
            copied = max((unit.types[v].elements for v in unit.outputs), default=0)
            size = {"steps": steps, "units": len(unit.sites)}
            cost = body_cost(unit.ops, unit.types, unit.mode, self.device, copied=copied, **size)
            member.parts["compute"] = cost.interval
            member.latency = member.first = cost.latency - cost.interval
            if any(op.name in ALONE for op in unit.ops):
                member.first = cost.latency  # results come when the tile is through
            member.peers = body_communication(unit.ops, unit.types, self.device, **size)
        elif isinstance(unit, Agcu):
            self._off_chip(member, unit)
        self._ports(member, unit)
        if member.peers is not None:
            self._peers(member, member.peers)
        self.members.append(member)

    def _off_chip(self, member: Member, unit: Agcu) -> None:
        memory = self.memories[unit.param]
        data = (member.out or member.into)[:1] if unit.direction != "scatter" else member.into[1:2]
        member.memory = memory
        member.moved = sum(off_chip_bytes(t, unit, self.device) for t in data)
        member.sites = max(1, len(unit.sites))
        member.parts["agcu"] = member.moved / agcu_rate(self.device, memory) / member.sites
        member.parts[memory] = member.moved / memory_bytes_per_cycle(self.device, memory)
        member.latency = member.first = self.device.agcu.latency + memory_cycles(self.device, memory, 1)

    def _peers(self, member: Member, peers: Collective) -> None:
        """A collective on every site: the tiles of all of them share the links. What comes in is combined as it
        comes."""
        member.sites = len(self.config.units[member.unit].sites)
        member.sent = round(peers.sent * member.sites)
        member.parts["peer"] = peers.interval * self.device.clock * member.sites
        alone = (peers.seconds - peers.interval) * self.device.clock + member.parts["peer"]
        member.awaited = max(peers.latency * self.device.clock, alone - member.interval)
        member.latency += member.awaited
        member.first = member.interval + member.latency

    def _ports(self, member: Member, unit: Pcu | Agcu | Pmu) -> None:
        """Cycles a step of the network ports, links and credits and of the memory ports that a member drives."""
        pcu, steps = self.device.pcu, member.steps
        network = [0.0]
        for flows, ports in ((member.into, pcu.inputs), (member.out, pcu.outputs)):
            each = [t.words * t.steps / steps for t in flows]
            if isinstance(unit, Pcu):
                network += [max(each, default=0.0), sum(each) / ports]
            else:
                network.append(sum(each) / max(1, len(unit.sites)))
        for t in (*member.into, *member.out):
            load = float(t.links[1].max(initial=0.0)) / self.device.network.links
            network.append(max(load, t.credited()) * t.steps / steps)
        member.parts["network"] = max(network)
        member.parts["sram"] = max(
            (self.sram(t, side)[0] * t.steps / steps for t in (*member.into, *member.out) for side in (0, 1)),
            default=0.0,
        )

    def sram(self, t: Traffic, side: int) -> tuple[float, float, int]:
        """Cycles a step of a flow at its source's (0) or target's (1) memory unit, bank conflicts included: what it
        takes alone (a stream is one word a cycle), its share of all ports, and which unit that is."""
        index = t.flow.dst if side else t.flow.src
        unit = self.config.units[index]
        if not isinstance(unit, Pmu):
            return 0.0, 0.0, -1
        busiest, most = t.writes if side else t.reads
        ports = self.device.pmu.write_ports if side else self.device.pmu.read_ports
        conflict = t.conflict(unit, t.flow.dst_view if side else t.flow.src_view, self.layout[index])
        return conflict * max(busiest / ports, most), conflict * busiest / ports, index

    # Clusters

    def _join(self) -> None:
        """Members joined by flows without a memory between them become clusters, in an order in which the writers of a
        buffer come before its readers, as far as there is one."""
        root = list(range(len(self.members)))

        def find(i: int) -> int:
            while root[i] != i:
                i = root[i]
            return i

        direct = [i for i in self.sender if i in self.taker]
        for i in direct:
            a, b = find(self.sender[i]), find(self.taker[i])
            root[max(a, b)] = min(a, b)
        groups: dict[int, list[int]] = {}
        for i in range(len(self.members)):
            groups.setdefault(find(i), []).append(i)
        for n, members in enumerate(groups.values()):
            for i in members:
                self.members[i].cluster = n
        listed = list(groups.values())
        self.clusters = [Cluster(listed[n]) for n in self._order(len(listed))]
        for n, cluster in enumerate(self.clusters):
            for i in cluster.members:
                self.members[i].cluster = n
        self._lead(direct)
        asked = np.zeros((len(self.clusters), 0)) if not self.clusters else self._asked[0]
        for n, cluster in enumerate(self.clusters):
            cluster.runs = max((t.runs for i in cluster.members for t in self._around(i)), default=1)
            frames = [1]
            for i in cluster.members:
                for t in self._around(i):
                    for index in (t.flow.src, t.flow.dst):
                        if isinstance(self.config.units[index], Pmu):
                            frames.append(self._frames(index) // (1 if self._keeps(index) else cluster.runs))
            chunks, most = lcm(*frames), max(1, MOST_CHUNKS // cluster.runs)
            cluster.chunks = cluster.runs * (chunks if chunks <= most else min(max(frames), most))
            cluster.owner = max(cluster.members, key=lambda i: self.members[i].interval * self.members[i].steps)
            best = self.members[cluster.owner]
            cluster.work, cluster.bound = best.interval * best.steps, best.bound
            if asked.shape[1] and float(asked[n].max()) > cluster.work:  # its members together ask more of something
                worst = int(np.argmax(asked[n]))
                cluster.work, cluster.bound = float(asked[n, worst]), self._asked[2][worst]

    def _lead(self, direct: Sequence[int]) -> None:
        """When members begin and are done with their first tile, along the longest paths, and what credits allow where
        paths meet again: a word on the short side waits for those of the long one and keeps its credit."""
        for m in self.members:
            m.done = m.interval + m.latency
        for _ in range(len(self.members)):  # a chain is short
            moved = False
            for i in direct:
                a, b, way = self.members[self.sender[i]], self.members[self.taker[i]], self.flows[i].latency
                lead = a.lead + a.first + way
                done = max(lead + b.interval, a.done + way) + b.latency
                if a is not b and (lead > b.lead + 1e-9 or done > b.done + 1e-9):
                    b.lead, b.done, moved = max(b.lead, lead), max(b.done, done), True
            if not moved:
                break
        for i in direct:
            a, b, t = self.members[self.sender[i]], self.members[self.taker[i]], self.flows[i]
            wait = b.lead - (a.lead + a.first + t.latency)
            if a is not b and wait > 1e-9:
                for m in (a, b):
                    m.parts["network"] = max(m.parts["network"], t.credited(wait) * t.steps / m.steps)

    def _frames(self, index: int) -> int:
        """How many frames pass through a memory in all runs."""
        unit = self.config.units[index]
        assert isinstance(unit, Pmu)
        runs = 1 if unit.kept else self.runs
        counts = [t.flow.stream.time[: unit.frames] for t in self.flows if index in (t.flow.src, t.flow.dst)]
        return runs * max((int(np.prod([x.count for x in loops], dtype=np.int64)) for loops in counts), default=1)

    def _around(self, member: int) -> list[Traffic]:
        return [*self.members[member].into, *self.members[member].out]

    def _order(self, count: int) -> list[int]:
        after: list[set[int]] = [set() for _ in range(count)]
        waits = [0] * count
        for index in self.pmus:
            writers = {self.members[self.sender[i]].cluster for i in self.sender if self.config.flows[i].dst == index}
            readers = {self.members[self.taker[i]].cluster for i in self.taker if self.config.flows[i].src == index}
            readers |= {self.members[self.sender[i]].cluster for i in self.sender if self.config.flows[i].src == index}
            for w in writers:
                for r in readers - {w} - after[w]:
                    after[w].add(r)
                    waits[r] += 1
        ready = [i for i, n in enumerate(waits) if not n]
        order: list[int] = []
        while ready:
            i = ready.pop(0)
            order.append(i)
            for r in sorted(after[i]):
                waits[r] -= 1
                if not waits[r]:
                    ready.append(r)
        done = set(order)
        return order + [i for i in range(count) if i not in done]

    # What the models take

    @cached_property
    def buffers(self) -> list[Buffer]:
        """The memories between clusters."""
        return [
            Buffer(self._frames(i), unit.copies, self.runs if unit.kept else 1)
            for i in self.pmus
            if isinstance(unit := self.config.units[i], Pmu)
        ]

    @cached_property
    def processes(self) -> list[Process]:
        """The clusters."""
        found: list[Process] = []
        for c, cluster in enumerate(self.clusters):
            p = Process(cluster.chunks, cluster.work / cluster.chunks, runs=cluster.runs)
            for i in cluster.members:
                m = self.members[i]
                tail = m.done - cluster.work / max(1, m.steps)
                if tail > p.tail or i == cluster.members[0]:
                    p.tail, p.part = tail, i
                for t in m.into:
                    if isinstance(t.source, Pmu) and not self._inner(t.flow.src, c):
                        p.reads.append(Access(self.number[t.flow.src], m.lead, tail, t.latency, i))
                for t in m.out:
                    if isinstance(t.source, Pmu):  # a copy from memory to memory
                        p.reads.append(Access(self.number[t.flow.src], m.lead, tail, 0.0, i))
                    if isinstance(t.target, Pmu):
                        p.writes.append(Access(self.number[t.flow.dst], m.lead, tail, t.latency, i))
            found.append(p)
        return found

    def _inner(self, index: int, cluster: int) -> bool:
        """Whether a memory's writers are all in the cluster that reads it: its order is then the cluster's own."""
        writers = {self.members[self.sender[i]].cluster for i in self.sender if self.config.flows[i].dst == index}
        return writers == {cluster}

    @cached_property
    def resources(self) -> Resources:
        """What clusters take, a cycle of work, of all that more than one of them use; each flow has one part of links
        and memory ports, each address generator one of off-chip memory."""
        asked, weights, kinds = self._asked
        used = np.flatnonzero((asked > 0).sum(0) > 1)
        work = np.array([max(c.work, 1e-9) for c in self.clusters])[:, None]
        return Resources(asked[:, used] / work, weights[:, used], tuple(kinds[r] for r in used.tolist()))

    @cached_property
    def _asked(self) -> tuple[Array, Array, list[str]]:
        """Cycles and parts [cluster, resource] that a whole run asks of each resource, and what each resource is."""
        device, count = self.device, len(self.clusters)
        columns: dict[tuple[str, int, int], tuple[Array, Array]] = {}

        def ask(cluster: int, cycles: float, parts: int, kind: str, index: int = 0, side: int = 0) -> None:
            if cycles > 0:
                column = columns.setdefault((kind, index, side), (np.zeros(count), np.zeros(count)))
                column[0][cluster] += cycles
                column[1][cluster] += parts

        size = 4 * device.mesh[0] * device.mesh[1]
        links, flows = np.zeros((count, size)), np.zeros((count, size))
        for i, t in enumerate(self.flows):
            cluster = self.members[self.sender[i] if i in self.sender else self.taker[i]].cluster
            on, words = t.links
            if len(on) and int(on[-1]) < size:
                links[cluster, on] += words * t.steps / device.network.links
                flows[cluster, on] += 1
            for side in (0, 1):
                _, cycles, unit = self.sram(t, side)
                ask(cluster, cycles * t.steps, 1, "sram", unit, side)
        for m in self.members:
            if m.memory:
                ask(m.cluster, m.parts[m.memory] * m.steps, m.sites, m.memory)
                ask(m.cluster, m.parts["agcu"] * m.steps, 1, "agcu", m.unit)
            if m.peers is not None:
                for index, seconds in enumerate((m.peers.node, m.peers.switch, m.peers.agcu)):
                    ask(m.cluster, seconds * device.clock * m.sites * m.steps, m.sites, "peer", index)
        used = np.flatnonzero(links.any(0))
        cycles = [a for a, _ in columns.values()]
        parts = [b for _, b in columns.values()]
        kinds = [kind for kind, _, _ in columns] + ["network"] * len(used)
        if not kinds:
            return np.zeros((count, 0)), np.zeros((count, 0)), []
        return np.stack([*cycles, *links[:, used].T], 1), np.stack([*parts, *flows[:, used].T], 1), kinds

    @cached_property
    def busiest_link(self) -> float:
        """Cycles that the busiest link takes to carry all its words."""
        asked, _, kinds = self._asked
        links = [r for r, kind in enumerate(kinds) if kind == "network"]
        return float(asked[:, links].sum(0).max(initial=0.0)) if links else 0.0

    @cached_property
    def waits_for_peers(self) -> bool:
        """Whether something is sent to other sockets."""
        return any(m.peers is not None for m in self.members)

    @cached_property
    def busiest_peer(self) -> float:
        """Cycles that the busiest of the links to other sockets takes for all that it carries."""
        asked, _, kinds = self._asked
        links = [r for r, kind in enumerate(kinds) if kind == "peer"]
        return float(asked[:, links].sum(0).max(initial=0.0)) if links else 0.0

    def ahead(self, member: int) -> list[int]:
        """The members of its cluster whose tiles a member's come from, and itself."""
        found, left = {member}, [member]
        while left:
            last = left.pop()
            for i, taker in self.taker.items():
                if taker == last and i in self.sender and self.sender[i] not in found:
                    found.add(self.sender[i])
                    left.append(self.sender[i])
        return sorted(found)

    @cached_property
    def busiest(self) -> tuple[float, int]:
        """Cycles of the resource that takes longest for all that is asked of it, and its number in `asked`."""
        sums = self._asked[0].sum(0)
        return (float(sums.max()), int(np.argmax(sums))) if len(sums) else (0.0, -1)

    def asked(self, resource: int) -> tuple[Array, str]:
        """What each cluster asks of a resource, in cycles, and what it is."""
        return self._asked[0][:, resource], self._asked[2][resource]
