"""Cycles and words of a config by the analytic model: what bounds a section, and how much each flow carries."""

from __future__ import annotations

from functools import cached_property
from math import prod

from headrace.dialects.machine.cost import agcu_cycles, words_of
from headrace.dialects.machine.device import Device
from headrace.dialects.rdu.cost import body_communication, body_cost, feed
from headrace.dialects.rdu.ops import AgcuOp, ConfigOp, FlowOp, PcuOp, PmuOp, UnitOp
from headrace.dialects.support import dtypes
from headrace.dialects.support.access import Stream
from headrace.passes.analysis.bodies import Body


def tile_bytes(stream: Stream) -> int:
    """Bytes of one tile."""
    return stream.tile_elements * dtypes.byte_size(stream.dtype)


def distinct_tiles(stream: Stream) -> int:
    """Tiles that differ in one step: sites along loops that move the tile."""
    return prod(x.count for x in stream.space if x.dim >= 0 and x.step)


class ConfigCost:
    """Costs of one config on a device, from its units and flows alone (no sites, no routes)."""

    def __init__(self, config: ConfigOp, device: Device) -> None:
        self.config = config
        self.device = device
        self.units: dict[str, UnitOp] = {u.title: u for u in config.units}
        self.flows = config.flows
        self._sent: dict[str, list[FlowOp]] = {name: [] for name in self.units}
        self._taken: dict[str, list[FlowOp]] = {name: [] for name in self.units}
        for flow in self.flows:
            source, target = flow.ends
            self._sent[source].append(flow)
            self._taken[target].append(flow)
        self.bodies = {u.title: Body.of(u.body.block) for u in config.units if isinstance(u, PcuOp)}

    def words(self, flow: FlowOp) -> int:
        """Vector words that one site of the flow takes in a step: of a tile, as often as its unit asks for it."""
        source, target = (self.units[name] for name in flow.ends)
        stream = flow.stream.stream
        if isinstance(target, PcuOp) and not isinstance(source, PcuOp):
            body = self.bodies[target.title]
            return feed(body.ops, body.types, flow.ports[1], self.device).words
        return words_of(self.device, tile_bytes(stream))

    def steps(self, unit: UnitOp) -> int:
        """Steps of a unit in a run of the config."""
        return max((f.stream.stream.steps for f in self._flows_at(unit)), default=1)

    def _flows_at(self, unit: UnitOp) -> list[FlowOp]:
        return self._sent[unit.title] + self._taken[unit.title]

    def pcu_cycles(self, unit: PcuOp) -> float:
        """Cycles that a compute unit needs for all its steps."""
        body = self.bodies[unit.title]
        copied = max((body.types[v].elements for v in body.outputs), default=0)
        size = {"steps": self.steps(unit), "units": unit.size}
        cost = body_cost(body.ops, body.types, unit.mode.data, self.device, copied=copied, **size)
        return self.steps(unit) * cost.interval

    def peer_cycles(self) -> float:
        """Cycles of the links to other sockets that all collectives of the config need."""
        total = 0.0
        for unit in self.units.values():
            if isinstance(unit, PcuOp):
                body, size = self.bodies[unit.title], {"steps": self.steps(unit), "units": unit.size}
                found = body_communication(body.ops, body.types, self.device, **size)
                total += found.interval * size["steps"] * size["units"] if found is not None else 0.0
        return total * self.device.clock

    def _memory_cycles(self, unit: PmuOp) -> float:
        """Cycles that the memory units need to write and to read everything, if they share it evenly."""
        read = sum((self._moved(flow) / self.device.pmu.read_ports for flow in self._sent[unit.title]), 0.0)
        write = sum((self._moved(flow) / self.device.pmu.write_ports for flow in self._taken[unit.title]), 0.0)
        return max(read, write) / unit.size

    def _moved(self, flow: FlowOp) -> int:
        """Vector words that a flow carries in a run of the config."""
        stream = flow.stream.stream
        return self.words(flow) * stream.steps * distinct_tiles(stream)

    def _transfer_cycles(self, unit: AgcuOp) -> float:
        flows = [f.stream.stream for f in self._flows_at(unit)]
        nbytes = sum(s.steps * distinct_tiles(s) * tile_bytes(s) for s in flows)
        return agcu_cycles(self.device, nbytes, units=unit.size)

    @cached_property
    def cycles(self) -> float:
        """Cycles of the slowest group of units: the least time that a run of the config can take."""
        slowest = max(1.0, self.peer_cycles())
        for unit in self.units.values():
            if isinstance(unit, PcuOp):
                slowest = max(slowest, self.pcu_cycles(unit))
            elif isinstance(unit, AgcuOp):
                slowest = max(slowest, self._transfer_cycles(unit))
            elif isinstance(unit, PmuOp):
                slowest = max(slowest, self._memory_cycles(unit))
        return slowest

    def words_per_cycle(self, flow: FlowOp, pairs: int) -> float:
        """Vector words that one of the flow's `pairs` of sites carries per cycle on average, when all units run at the
        rate of the slowest; what a site takes is shared by the memory units that hold it."""
        stream = flow.stream.stream
        share = stream.sites / max(1, pairs)
        return min(1.0, self.words(flow) * stream.steps * min(1.0, share) / self.cycles)
