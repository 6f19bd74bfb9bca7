"""The course of a config as a report: its time divided along the critical path; the rows of groups sum to it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from headrace.dialects.rdu.cost import body_flops, op_shares
from headrace.dialects.support import dtypes
from headrace.runtime.program import Agcu, Pcu, Pmu
from headrace.runtime.times import BOUNDS, ConfigTime, OpTime, UnitTime
from headrace.runtime.timing_demand import Course, Demand, Member


class Report:
    """Rows of the groups of one config."""

    def __init__(self, demand: Demand, course: Course) -> None:
        self.demand = demand
        self.course = course
        self.config = demand.config
        self.share: list[dict[str, float]] = [{} for _ in self.config.units]
        self.total = course.total
        self._divide()

    def _give(self, member: Member, bound: str, cycles: float) -> None:
        row = self.share[member.unit]
        row[bound] = row.get(bound, 0.0) + cycles

    def _give_tail(self, part: int, cycles: float) -> None:
        """The latency of a chain of groups that ends with a member: what other sockets take of it to those that wait
        for them, the rest to the member."""
        members = self.demand.members
        for i in self.demand.ahead(part) if self.demand.waits_for_peers else ():
            if (awaited := min(members[i].awaited, cycles)) > 0:
                self._give(members[i], "peer", awaited)
                cycles -= awaited
        self._give(members[part], members[part].memory or "compute", cycles)

    def _divide(self) -> None:
        demand, course = self.demand, self.course
        members = demand.members
        for span in course.spans:
            cluster = demand.clusters[span.process]
            if span.kind == "tail":
                self._give_tail(span.part, span.cycles)
            elif span.kind == "latency":
                self._give(members[span.part], "network", span.cycles)
            else:
                bound = cluster.bound if span.kind == "pace" else course.bound[span.process]
                self._give(members[cluster.owner], bound, span.cycles)
        # no resource can have done more than the time allows
        most, resource = demand.busiest
        if most > self.total:
            asked, kind = demand.asked(resource)
            for cluster, cycles in zip(demand.clusters, asked.tolist(), strict=True):
                self._give(members[cluster.owner], kind, (most - self.total) * cycles / most)
            self.total = most

    def time(self) -> ConfigTime:
        """The report."""
        config, total = self.config, self.total
        rows = [self._row(index) for index in range(len(config.units))]
        bounds: dict[str, float] = dict.fromkeys(BOUNDS, 0.0)
        for row in rows:
            for bound, cycles in row.bounds.items():
                bounds[bound] += cycles
        moved = {"hbm": 0, "ddr": 0}
        for m in self.demand.members:
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
            self.demand.busiest_link / total if total else 0.0,
            self.course.settled,
            sum(m.sent * m.steps for m in self.demand.members),
            self.demand.busiest_peer / total if total else 0.0,
            self.demand.runs,
            min(total, self.course.ends[0]) if self.course.ends else total,
        )

    def _row(self, index: int) -> UnitTime:
        unit, share, course = self.config.units[index], self.share[index], self.course
        mine = [m for m in self.demand.members if m.unit == index]
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
            start = min(course.begin[m.cluster] for m in mine)
            end = max(course.end[m.cluster] for m in mine)
            busy = sum(m.interval * m.steps for m in mine)
            slowest = max(mine, key=lambda m: m.interval * m.steps)
            owns = self.demand.members[self.demand.clusters[slowest.cluster].owner] is slowest
            bound = course.bound[slowest.cluster] if owns else slowest.bound
            if owns:
                busy = max(busy, course.length[slowest.cluster])
        ops, flops = self._ops(index, cycles, parts.get("compute", 0.0), steps)
        waits = max(0.0, end - start - busy)
        ops = tuple(replace(op, present=end - start, waits=waits) for op in ops)
        nbytes = sum((m.moved + m.sent) * m.steps for m in mine)
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
        for t in self.demand.flows:
            for side, at in ((0, t.flow.src), (1, t.flow.dst)):
                if at == index:
                    cycles = self.demand.sram(t, side)[1] * t.steps
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
            return (OpTime(unit.location, "copy", cycles, compute, work=compute * len(unit.sites)),), 0
        shares = op_shares(live, unit.types, self.demand.device)
        found = tuple(
            OpTime(
                op.location or unit.location,
                op.name.removeprefix("tensor."),
                cycles * share,
                compute * share,
                body_flops([op], unit.types) * runs,
                compute * share * len(unit.sites),
            )
            for op, share in zip(live, shares, strict=True)
        )
        return found, sum(x.flops for x in found)
