"""Timing of one config: pipelines of unit groups, what each asks of shared resources, and the schedule that follows.

Groups that hand tiles on directly form one pipeline with one pace (a *cluster* of *members*); memory units stand
between clusters. A member's pace is the slowest of what it needs for a step. What several clusters use at the same time
is shared: a cluster's pace is at least what all that is asked of the resource while it works takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import lcm
from typing import Any

import numpy as np

from headrace.dialects.machine.cost import agcu_rate, memory_bytes_per_cycle, memory_cycles
from headrace.dialects.machine.device import Device
from headrace.dialects.rdu.cost import body_cost, body_flops, op_shares
from headrace.dialects.support import dtypes
from headrace.runtime.pipeline import Access, Buffer, Pipeline, Process, Schedule
from headrace.runtime.program import Agcu, Config, Pcu, Pmu
from headrace.runtime.times import BOUNDS, ConfigTime, OpTime, UnitTime
from headrace.runtime.traffic import Traffic, layout, off_chip_bytes

Array = np.ndarray[Any, np.dtype[Any]]
MOST_CHUNKS = 4096
"""Most parts that a pipeline's run is cut into; a finer division would change nothing that shows."""
SHARING_ROUNDS = 3
"""How often the windows in which resources are shared are computed anew."""


@dataclass
class _Member:
    """A group of units (or one flow of it) as a part of a pipeline: cycles a step by resource, latency of a tile."""

    unit: int
    steps: int
    parts: dict[str, float]
    latency: float
    into: list[Traffic]
    out: list[Traffic]
    cluster: int = 0
    lead: float = 0.0
    memory: str = ""
    moved: int = 0  # bytes off chip a step

    @property
    def interval(self) -> float:
        """Cycles from step to step when nothing is shared."""
        return max(self.parts.values())

    @property
    def bound(self) -> str:
        """The resource that takes longest."""
        return max(self.parts, key=lambda k: self.parts[k])


@dataclass
class _Cluster:
    """Members that hand tiles on directly: they move at one pace."""

    members: list[int] = field(default_factory=list[int])
    chunks: int = 1
    work: float = 0.0  # cycles of the whole run at its own pace
    owner: int = 0
    shared: float = 0.0  # cycles of the whole run when resources are shared
    shared_bound: str = ""


class ConfigModel:
    """Timing of one config with its parameters in given memories."""

    def __init__(self, config: Config, memories: Sequence[str], device: Device) -> None:
        self.config = config
        self.device = device
        self.memories = memories
        self.flows = [Traffic(config, flow, device) for flow in config.flows]
        self.pmus = [i for i, u in enumerate(config.units) if isinstance(u, Pmu)]
        self.number = {u: n for n, u in enumerate(self.pmus)}
        self.layout = {
            i: layout(unit, [t for t in self.flows if i in (t.flow.src, t.flow.dst)], device)
            for i in self.pmus
            if isinstance(unit := config.units[i], Pmu)
        }
        self.members: list[_Member] = []
        self.sender: dict[int, int] = {}  # flow -> member that sends it
        self.taker: dict[int, int] = {}
        self._members()
        self.clusters: list[_Cluster] = []
        self._join()

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
        member = _Member(index, steps, {}, 0.0, ins, outs)
        unit = self.config.units[index]
        if isinstance(unit, Pcu):
            copied = max((unit.types[v].elements for v in unit.outputs), default=0)
            cost = body_cost(unit.ops, unit.types, unit.mode, self.device, copied=copied)
            member.parts["compute"] = cost.interval
            member.latency = cost.latency - cost.interval
        elif isinstance(unit, Agcu):
            self._off_chip(member, unit)
        self._ports(member, unit)
        self.members.append(member)

    def _off_chip(self, member: _Member, unit: Agcu) -> None:
        memory = self.memories[unit.param]
        data = (member.out or member.into)[:1] if unit.direction != "scatter" else member.into[1:2]
        member.memory = memory
        member.moved = sum(off_chip_bytes(t, unit, self.device) for t in data)
        sites = max(1, len(unit.sites))
        member.parts["agcu"] = member.moved / agcu_rate(self.device, memory) / sites
        member.parts[memory] = member.moved / memory_bytes_per_cycle(self.device, memory)
        member.latency = self.device.agcu.latency + memory_cycles(self.device, memory, 1)

    def _ports(self, member: _Member, unit: Pcu | Agcu | Pmu) -> None:
        """Cycles a step of the network ports and memory ports that a member drives."""
        pcu, steps = self.device.pcu, member.steps
        network = [0.0]
        for flows, ports in ((member.into, pcu.inputs), (member.out, pcu.outputs)):
            each = [t.words * t.steps / steps for t in flows]
            if isinstance(unit, Pcu):
                network += [max(each, default=0.0), sum(each) / ports]
            else:
                network.append(sum(each) / max(1, len(unit.sites)))
        for t in (*member.into, *member.out):
            load = t.links[1]
            network.append(float(load.max(initial=0.0)) / self.device.network.links * t.steps / steps)
        member.parts["network"] = max(network)
        member.parts["sram"] = max(
            (self._sram(t, side)[0] * t.steps / steps for t in (*member.into, *member.out) for side in (0, 1)),
            default=0.0,
        )

    def _sram(self, t: Traffic, side: int) -> tuple[float, float, int]:
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
        """Members joined by flows without a memory between them become clusters; leads along their longest paths."""
        root = list(range(len(self.members)))

        def find(i: int) -> int:
            while root[i] != i:
                i = root[i]
            return i

        direct = [i for i in self.sender if i in self.taker]
        for i in direct:
            a, b = find(self.sender[i]), find(self.taker[i])
            root[max(a, b)] = min(a, b)
        number: dict[int, int] = {}
        for i, member in enumerate(self.members):
            member.cluster = number.setdefault(find(i), len(number))
            if member.cluster == len(self.clusters):
                self.clusters.append(_Cluster())
            self.clusters[member.cluster].members.append(i)
        for _ in range(len(self.members)):  # longest paths; a chain is short
            moved = False
            for i in direct:
                a, b = self.members[self.sender[i]], self.members[self.taker[i]]
                lead = a.lead + a.latency + a.interval + self.flows[i].latency
                if lead > b.lead + 1e-9 and a is not b:
                    b.lead, moved = lead, True
            if not moved:
                break
        for cluster in self.clusters:
            frames = [1]
            for i in cluster.members:
                m = self.members[i]
                for t in (*m.into, *m.out):
                    for index, side in ((t.flow.src, t.source), (t.flow.dst, t.target)):
                        if isinstance(side, Pmu):
                            frames.append(self._frames(index))
            chunks = lcm(*frames)
            cluster.chunks = chunks if chunks <= MOST_CHUNKS else min(max(frames), MOST_CHUNKS)
            cluster.owner = max(cluster.members, key=lambda i: self.members[i].interval * self.members[i].steps)
            best = self.members[cluster.owner]
            cluster.work = cluster.shared = best.interval * best.steps
            cluster.shared_bound = best.bound

    def _frames(self, index: int) -> int:
        """How many frames pass through a memory in one run."""
        unit = self.config.units[index]
        assert isinstance(unit, Pmu)
        counts = [t.flow.stream.time[: unit.frames] for t in self.flows if index in (t.flow.src, t.flow.dst)]
        return max((int(np.prod([x.count for x in loops], dtype=np.int64)) for loops in counts), default=1)

    # The schedule

    def _order(self) -> list[int]:
        """Clusters such that a buffer's writers come before its readers, as far as there is such an order."""
        after: list[set[int]] = [set() for _ in self.clusters]
        waits = [0] * len(self.clusters)
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
        return order + [i for i in range(len(self.clusters)) if i not in set(order)]

    def _processes(self, order: Sequence[int]) -> list[Process]:
        found: list[Process] = []
        for c in order:
            cluster = self.clusters[c]
            p = Process(cluster.chunks, cluster.shared / cluster.chunks)
            for i in cluster.members:
                m = self.members[i]
                step = cluster.shared / max(1, m.steps)  # cycles from step to step at the cluster's pace
                stretch = cluster.shared / max(cluster.work, 1e-9)
                tail = m.lead + m.latency + m.interval * stretch - step
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
    def demand(self) -> tuple[Array, list[str]]:
        """Cycles [cluster, resource] that each cluster's run takes of every shared resource, and what each resource
        is."""
        device = self.device
        columns: dict[tuple[str, int, int], Array] = {}

        def column(kind: str, index: int = 0, side: int = 0) -> Array:
            return columns.setdefault((kind, index, side), np.zeros(len(self.clusters)))

        links = np.zeros((len(self.clusters), 4 * device.mesh[0] * device.mesh[1]))
        for i, t in enumerate(self.flows):
            cluster = self.members[self.sender[i] if i in self.sender else self.taker[i]].cluster
            on, words = t.links
            if len(on) and int(on[-1]) < links.shape[1]:
                links[cluster, on] += words * t.steps / device.network.links
            for side in (0, 1):
                _, cycles, unit = self._sram(t, side)
                if cycles:
                    column("sram", unit, side)[cluster] += cycles * t.steps
        for m in self.members:
            if m.memory:
                column(m.memory)[m.cluster] += m.parts[m.memory] * m.steps
                column("agcu", m.unit)[m.cluster] += m.parts["agcu"] * m.steps
        used = np.flatnonzero((links > 0).sum(0) > 1)
        # links with the same users: only the busiest can matter
        kinds = [kind for kind, _, _ in columns] + ["network"] * len(used)
        return np.stack([*columns.values(), *links[:, used].T], 1) if kinds else np.zeros(
            (len(self.clusters), 0)
        ), kinds

    @cached_property
    def busiest_link(self) -> float:
        """Cycles that the busiest link takes to carry all its words."""
        device = self.device
        load = np.zeros(4 * device.mesh[0] * device.mesh[1])
        for t in self.flows:
            on, words = t.links
            if len(on) and int(on[-1]) < len(load):
                load[on] += words * t.steps / device.network.links
        return float(load.max(initial=0.0))

    def solve(self) -> ConfigTime:
        """The schedule, with resources shared among what works at the same time."""
        order = self._order()
        buffers = [
            Buffer(self._frames(i), unit.copies) for i in self.pmus if isinstance(unit := self.config.units[i], Pmu)
        ]
        demand, kinds = self.demand
        position = {c: n for n, c in enumerate(order)}
        settled = True
        for round in range(SHARING_ROUNDS + 1):
            processes = self._processes(order)
            pipeline = Pipeline(processes, buffers)
            schedule = pipeline.solve()
            if not schedule.settled:  # what `check-deadlock` refuses: time it as if there were room
                settled, buffers = False, [Buffer(b.frames, b.frames) for b in buffers]
                pipeline = Pipeline(processes, buffers)
                schedule = pipeline.solve()
            if round == SHARING_ROUNDS or not kinds:
                break
            begin = np.array([schedule.start[position[c]][0] for c in range(len(self.clusters))])
            end = np.array(
                [schedule.start[n][-1] + processes[n].pace for n in (position[c] for c in range(len(self.clusters)))]
            )
            if not self._share(begin, np.maximum(end, begin + 1e-9), demand, kinds):
                break
        return self._report(order, processes, pipeline, schedule, settled)  # pyright: ignore[reportPossiblyUnboundVariable]

    def _share(self, begin: Array, end: Array, demand: Array, kinds: Sequence[str]) -> bool:
        """Slow every cluster to what the resources that it uses take for all that is asked of them while it works."""
        length = end - begin
        overlap = np.minimum(end[:, None], end) - np.maximum(begin[:, None], begin)
        share = np.clip(overlap, 0.0, None) / length[None, :]  # of j's work, what falls into i's time
        np.fill_diagonal(share, 1.0)
        needed = np.where(demand > 0, share @ demand, 0.0)
        changed = False
        for c, cluster in enumerate(self.clusters):
            worst = int(np.argmax(needed[c]))
            need = max(cluster.work, float(needed[c, worst]))
            bound = kinds[worst] if need > cluster.work else self.members[cluster.owner].bound
            if abs(need - cluster.shared) > 1e-3 * cluster.work + 1e-6:
                changed = True
            cluster.shared, cluster.shared_bound = need, bound
        return changed

    # The report

    def _report(
        self,
        order: Sequence[int],
        processes: Sequence[Process],
        pipeline: Pipeline,
        schedule: Schedule,
        settled: bool,
    ) -> ConfigTime:
        config = self.config
        share: list[dict[str, float]] = [{} for _ in config.units]

        def give(member: _Member, bound: str, cycles: float) -> None:
            row = share[member.unit]
            row[bound] = row.get(bound, 0.0) + cycles

        for span in pipeline.critical_path(schedule):
            cluster = self.clusters[order[span.process]]
            if span.kind == "pace":  # what sharing adds goes to the shared resource
                owner = self.members[cluster.owner]
                own = span.cycles * cluster.work / max(cluster.shared, 1e-9)
                give(owner, owner.bound, own)
                give(owner, cluster.shared_bound, span.cycles - own)
            elif span.kind == "tail":
                member = self.members[span.part]
                give(member, member.memory or "compute", span.cycles)
            else:
                give(self.members[span.part], "network", span.cycles)
        total = schedule.end
        # no resource can have done more than the time allows
        demand, kinds = self.demand
        if kinds:
            sums = demand.sum(0)
            worst = int(np.argmax(sums))
            if sums[worst] > total:
                extra = float(sums[worst]) - total
                for c, cluster in enumerate(self.clusters):
                    give(self.members[cluster.owner], kinds[worst], extra * float(demand[c, worst] / sums[worst]))
                total = float(sums[worst])
        rows = [self._row(index, row, order, processes, schedule) for index, row in enumerate(share)]
        bounds: dict[str, float] = dict.fromkeys(BOUNDS, 0.0)
        for row in rows:
            for bound, cycles in row.bounds.items():
                bounds[bound] += cycles
        moved = {"hbm": 0, "ddr": 0}
        for m in self.members:
            if m.memory:
                moved[m.memory] += m.moved * m.steps
        return ConfigTime(
            config.name,
            total,
            tuple(rows),
            {k: v for k, v in bounds.items() if abs(v) > 1e-9},
            {kind: sum(len(u.sites) for u in config.units if u.kind == kind) for kind in ("pcu", "pmu", "agcu")},
            sum(row.flops for row in rows),
            moved["hbm"],
            moved["ddr"],
            self.busiest_link / total if total else 0.0,
            settled,
        )

    def _row(
        self,
        index: int,
        share: dict[str, float],
        order: Sequence[int],
        processes: Sequence[Process],
        schedule: Schedule,
    ) -> UnitTime:
        unit = self.config.units[index]
        mine = [m for m in self.members if m.unit == index]
        cycles = sum(share.values())
        parts: dict[str, float] = {}
        for m in mine:
            for kind, each in m.parts.items():
                parts[kind] = parts.get(kind, 0.0) + each * m.steps
        steps = max((m.steps for m in mine), default=0)
        start = end = busy = 0.0
        bound = ""
        if isinstance(unit, Pmu) and not mine:
            parts, busy = self._memory_parts(index)
            bound = "sram"
        if mine:
            at = [n for n, c in enumerate(order) if any(m.cluster == c for m in mine)]
            start = min(float(schedule.start[n][0]) for n in at)
            end = max(float(schedule.start[n][-1]) + processes[n].pace for n in at)
            busy = sum(m.interval * m.steps for m in mine)
            slowest = max(mine, key=lambda m: m.interval * m.steps)
            cluster = self.clusters[slowest.cluster]
            owns = self.members[cluster.owner] is slowest
            bound = cluster.shared_bound if owns else slowest.bound
            if owns:
                busy = max(busy, cluster.shared)
        ops, flops = self._ops(index, cycles, parts.get("compute", 0.0), steps)
        nbytes = sum(m.moved * m.steps for m in mine)
        if isinstance(unit, Pmu):
            nbytes = int(np.prod(unit.shape, dtype=np.int64)) * dtypes.byte_size(unit.dtype)
        return UnitTime(
            unit.name,
            unit.kind,
            unit.mode if isinstance(unit, Pcu) else unit.direction if isinstance(unit, Agcu) else "",
            unit.location,
            len(unit.sites),
            steps,
            busy / steps if steps else 0.0,
            busy,
            start,
            end,
            cycles,
            bound,
            {k: v for k, v in parts.items() if v},
            share,
            flops,
            nbytes,
            ops,
        )

    def _memory_parts(self, index: int) -> tuple[dict[str, float], float]:
        read = write = 0.0
        for t in self.flows:
            for side, at in ((0, t.flow.src), (1, t.flow.dst)):
                if at == index:
                    cycles = self._sram(t, side)[1] * t.steps
                    read, write = (read, write + cycles) if side else (read + cycles, write)
        return {"read": read, "write": write}, max(read, write)

    def _ops(self, index: int, cycles: float, compute: float, steps: int) -> tuple[tuple[OpTime, ...], int]:
        """The row's time over the ops of its body, and the row's floating-point operations."""
        unit = self.config.units[index]
        if not isinstance(unit, Pcu):
            if isinstance(unit, Pmu) and not cycles:
                return (), 0
            name = unit.direction if isinstance(unit, Agcu) else "copy"
            return (OpTime(unit.location, name, cycles, 0.0),), 0
        runs = steps * len(unit.sites)
        live = [op for op in unit.ops if op.operands]
        if not live:
            return (OpTime(unit.location, "copy", cycles, compute),), 0
        shares = op_shares(live, unit.types, self.device)
        found = tuple(
            OpTime(
                op.location or unit.location,
                op.name.removeprefix("tensor."),
                cycles * share,
                compute * share,
                body_flops([op], unit.types) * runs,
            )
            for op, share in zip(live, shares, strict=True)
        )
        return found, sum(x.flops for x in found)
