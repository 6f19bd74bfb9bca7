"""cut-sections: a section that does not fit the chip becomes several, joined by tensors in off-chip memory."""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, Region, SSAValue

from headrace.dialects.dataflow.ops import (
    BufferOp,
    GatherOp,
    LoadOp,
    ScatterOp,
    SectionOp,
    StageOp,
    StoreOp,
    YieldOp,
    stream_of,
    views,
)
from headrace.dialects.dataflow.types import StreamType
from headrace.dialects.machine.attributes import device_of
from headrace.dialects.machine.cost import launch_mode, launch_seconds
from headrace.dialects.machine.device import Device
from headrace.dialects.support import locations
from headrace.dialects.support.access import identity
from headrace.dialects.support.diagnostics import CompileError
from headrace.dialects.support.journal import Candidate, count, current, decide, decline, may
from headrace.dialects.tensor.base import ir_type
from headrace.passes.analysis.bodies import Body
from headrace.passes.analysis.fusion_rules import FusionRules, fusion_rules
from headrace.passes.analysis.memory import fitting_frames, free_dims, held_bytes, units_for
from headrace.passes.analysis.phases import (
    Grid,
    Load,
    Memories,
    Peers,
    Run,
    StreamTally,
    Tally,
    load_of,
    moved,
    options,
    peers_of,
    phases,
)
from headrace.passes.analysis.pieces import pieces
from headrace.passes.analysis.runs import constants, copies_across, kept, runs_of
from headrace.passes.analysis.sections import relaunched, sections
from headrace.passes.infra.base import Pass, option

Process = StageOp | GatherOp | ScatterOp
MOST_CUTS = 32
"""Most places in a section of the chip's size at which a cut is tried; where there are more processes, those count that
least crosses."""


def is_stream(value: SSAValue) -> bool:
    """Whether a value is a stream, not a tensor off chip."""
    return isinstance(value.type, StreamType)


def _loaded(stream: SSAValue) -> bool:
    """Whether a stream comes from off-chip memory."""
    return isinstance(stream.owner, LoadOp)


@dataclass(frozen=True)
class Budget:
    """Units of each kind that one section may take."""

    pcu: int
    pmu: int
    agcu: int


@dataclass(frozen=True)
class _Block:
    """Consecutive processes that no cut parts: what they add to a group that ends with the process before them."""

    runs: tuple[Run, ...]
    needed: dict[SSAValue, int]
    """Streams that its buffers take, and which of the runs takes each first."""
    held: dict[BufferOp, None]
    chain: int
    transfers: int
    kept: int
    """Bytes that it makes and that processes behind it take."""
    taken: tuple[tuple[int, int], ...]
    """Number of the process that makes what none behind the block takes any more, and bytes."""


class _Cutter:
    """Cuts one section into groups of consecutive processes."""

    def __init__(
        self,
        section: SectionOp,
        device: Device,
        budget: Budget,
        most: int,
        by: str,
        rules: FusionRules,
        repeated: float,
        runs: int = 1,
        same: Collection[SSAValue] = (),
    ) -> None:
        self.by = by
        self.runs = runs
        self.rules = rules
        self.ways = {"time": self._by_time, "order": self._by_order, "op": self._by_op, "rule": self._by_rule}
        self.section = section
        self.device = device
        self.budget = budget
        self.ops = list(section.body.block.ops)
        self.processes: list[Operation] = [op for op in self.ops if isinstance(op, Process)]
        self.chain = {
            op: len(pieces(Body.of(op.body.block), device)) if isinstance(op, StageOp) else 0 for op in self.processes
        }
        self.group: dict[Operation, int] = {}
        self.full: dict[int, str] = {}
        """What a group that begins with this process has no more of at its end."""
        self.free: dict[StoreOp, int] = {}
        self.memories = Memories(device)
        self.place = phases(self.processes, device, self.memories)
        buffers = [op for op in self.ops if isinstance(op, BufferOp)]
        self.need = {op: self._units(op, runs) for op in buffers}
        self.kept = kept(buffers, set(same), device) if runs > 1 else {}
        """Memory units of buffers that may hold all of their weights, from run to run."""
        ways: dict[Operation, tuple[tuple[int, float], ...]] = {
            op: tuple((units, cycles) for _, units, cycles in options(op, self.memories, most))
            for op in self.processes
            if isinstance(op, StageOp)
        }
        asks = {op: peers_of(op, device) for op in self.processes if isinstance(op, StageOp)}
        self.peers: dict[Operation, Peers] = {op: asked for op, asked in asks.items() if asked.cycles}
        """What each process asks of the links to other sockets."""
        slowest = sum(found[0][1] for found in ways.values())
        fastest = min((found[-1][1] for found in ways.values()), default=1.0)
        self.grid = Grid(fastest, slowest)
        known = {some: (self.grid.units(some), self.grid.cycles(some)) for some in {(), *ways.values()}}
        self.demand = {op: known[ways.get(op, ())] for op in self.processes}
        """Units and cycles of each process for each time of the grid."""
        full, again = (launch_seconds(device, launch_mode(device), loaded=x) * device.clock for x in (False, True))
        self.launch = (full, full + (again - full) * repeated)
        """Cycles of the launch of a group, and of the whole section: it may be on the chip already."""
        self.blocks: dict[tuple[int, int], _Block] = {}
        self.loads: dict[SSAValue, Load] = {}
        self.processes.sort(key=lambda op: self.place[op].phase)  # a stable sort keeps writers before readers
        self.number = {op: i for i, op in enumerate(self.processes)}
        self.ports = [self._ports(op) for op in self.processes]
        for process, (buffers, _) in zip(self.processes, self.ports, strict=True):
            self._check_alone(process, buffers)
        self.last_use: dict[SSAValue, float] = {
            out: self._last_use(out) for op in self.processes for out in op.results if is_stream(out)
        }
        self.expires: list[list[tuple[int, int]]] = [[] for _ in self.processes]
        """What each process is the last to take: number of the process that makes it, and bytes."""
        for out, last in self.last_use.items():
            if 0 <= last < float("inf"):
                self.expires[int(last)].append((self.number[out.owner], moved(out)))  # pyright: ignore[reportArgumentType]

    def _units(self, buffer: BufferOp, runs: int) -> int:
        frames = fitting_frames(buffer, self.device, 2)
        if runs > 1:
            copies = copies_across(buffer, self.place, self.memories)
            if units := units_for(buffer, self.device, frames, copies, runs=runs):
                return units
        return units_for(buffer, self.device, frames, 2)

    def _ports(self, process: Operation) -> tuple[set[BufferOp], int]:
        """Buffers and off-chip transfers around a process."""
        buffers = {v.owner for v in process.operands if isinstance(v.owner, BufferOp)}
        transfers = 0 if isinstance(process, StageOp) else 1
        for out in process.results:
            for use in out.uses:
                if isinstance(use.operation, BufferOp):
                    buffers.add(use.operation)
                elif isinstance(use.operation, StoreOp):
                    transfers += 1
        return buffers, transfers

    def assign(self) -> int:
        """Put processes into groups of consecutive ones that fit the budget; the number of groups."""
        ends = self.ways[self.by]()
        self.group.clear()
        for number, (first, last) in enumerate(pairwise([0, *ends])):
            self.group.update((op, number) for op in self.processes[first:last])
        return max(1, len(ends))

    def _by_time(self) -> list[int]:
        """Where groups end such that the modelled time of all of them is least: dynamic programming over the ends. A
        process that alone takes more than the budget has no time, so that there are as few groups of that kind as can
        be."""
        count = len(self.processes)
        best: dict[int, tuple[float, float, int]] = {0: (0, 0.0, 0)}
        cuts = self._cuts()
        for at, start in enumerate(cuts):  # which grows where a group has to end between two of them
            if start == count or start not in best:
                continue
            without, before, _ = best[start]
            found = list(self._groups(start, (cuts[i] for i in range(at + 1, len(cuts)))))
            if not found:
                end = self._full(start)
                insort(cuts, end)
                found = list(self._groups(start, [end]))
            for end, cycles in found:
                timed = cycles < float("inf")
                total = (without, before + cycles) if timed else (without + 1, before)
                if end not in best or (total[0], total[1] * (1 + 1e-9)) < best[end][:2]:
                    best[end] = *total, start
        ends: list[int] = []
        at = count
        while at:
            ends.append(at)
            at = best[at][2]
        return ends[::-1]

    def _cuts(self) -> list[int]:
        """The places at which to try a cut, from 0 to the end: everywhere, unless that are more than `MOST_CUTS` in a
        group of what fits. Then where such groups end, and between them the one of some neighbours that the least
        crosses, where a phase begins if there is one."""
        crossing = [0] * (len(self.processes) + 1)
        for out, last in self.last_use.items():
            if 0 <= last < float("inf"):
                crossing[self.number[out.owner] + 1] += moved(out)  # pyright: ignore[reportArgumentType]
                crossing[int(last) + 1] -= moved(out)
        crossing = list(accumulate(crossing))
        phase = [self.place[op].phase for op in self.processes]
        found = [0]
        for first, last in pairwise([0, *self._by_order()]):
            step = -(-(last - first) // MOST_CUTS)
            for low in range(first + 1, last, step):
                near = range(low, min(low + step, last))
                found.append(min(near, key=lambda i: (phase[i] == phase[i - 1], crossing[i], -i)))
            found.append(last)
        return found

    def _by_order(self) -> list[int]:
        """Where groups end when each takes all that fits."""
        ends = [0]
        while ends[-1] < len(self.processes):
            ends.append(self._full(ends[-1]))
        return ends[1:]

    def _by_op(self) -> list[int]:
        """Every process on its own."""
        return list(range(1, len(self.processes) + 1))

    def _by_rule(self) -> list[int]:
        """Where groups end when each is what a rule matches, as far as it fits, or one process."""
        ends = [0]
        while (start := ends[-1]) < len(self.processes):
            ends.append(self._full(start, start + max(1, self.rules.matched(self.processes[start:]))))
        return ends[1:]

    def modelled(self, ends: Sequence[int]) -> float:
        """Cycles of all groups that end there."""
        return sum(self.cycles(first, last) or 0.0 for first, last in pairwise([0, *ends]))

    def cycles(self, first: int, last: int) -> float | None:
        """Modelled cycles of a group, or None when it does not fit."""
        return next((cycles for _, cycles in self._groups(first, [last])), None)

    def explain(self, count: int) -> None:
        """Note what was chosen and what the other ways of cutting would have taken."""
        if current() is None or len(self.processes) < 2:
            return
        candidates: list[Candidate] = []
        whole = self.cycles(0, len(self.processes))
        if whole is None:
            candidates.append(Candidate("one section", None, "takes more units than a section may"))
        elif count > 1:
            candidates.append(Candidate("one section", whole, self._lost(whole)))
        for name, way in (("as much as fits", self._by_order), ("one op a section", self._by_op)):
            ends = way()
            if len(ends) not in (1, count):
                cycles = self.modelled(ends)
                candidates.append(Candidate(f"{name}: {len(ends)} sections", cycles, self._lost(cycles)))
        if count == 1 and (cuts := self._cuts()[1:-1]):
            two = {cut: self.modelled([cut, len(self.processes)]) for cut in cuts}
            cut = min(two, key=lambda cut: two[cut])
            name = f"2 sections, cut before {_name(self.processes[cut])}"
            candidates.append(Candidate(name, two[cut], self._lost(two[cut])))
        chosen = f"{count} sections" if count > 1 else "one section"
        sizes = Counter(self.group.values())
        ends = [sum(sizes[i] for i in range(n + 1)) for n in range(max(self.group.values()) + 1)]
        candidates.insert(0, Candidate(chosen, self.modelled(ends)))
        decide("section cut", self.section, chosen, candidates, "cycles")
        name = self.section.sym.data
        for number, (first, last) in enumerate(pairwise([0, *ends])):
            if last < len(self.processes):
                joined = self.cycles(first, last + 1)
                reason = f"it takes {self.full[first]}" if joined is None else self._lost(joined)
                here, before = f"{name}.{number + 1}", Candidate(f"{name}.{number}", joined, reason)
                decide("section", self.processes[last], here, (before,), "cycles")

    def _lost(self, cycles: float) -> str:
        return "modelled as slower" if self.by == "time" else f"sections are cut by {self.by}"

    def _groups(self, start: int, ends: Iterable[int]) -> Iterator[tuple[int, float]]:
        """The groups that begin with a process and end at one of `ends`, in order, as far as they fit: where each ends,
        and its modelled cycles."""
        group = _Group(self, start)
        tally = (
            Tally(self.device, self.budget.pcu, self.grid)
            if self.runs == 1
            else StreamTally(self.device, self.budget.pcu, self.grid, self.runs)
        )
        stored, at = 0, start
        for end in ends:
            block = self._block(at, end)
            more = group.add(block)
            if group.over and end > start + 1:
                self.full[start] = group.over
                return
            for number, run in enumerate(block.runs):
                tally.add(run)
                for one in more:
                    if block.needed[one] != number:
                        continue
                    if isinstance(tally, StreamTally):
                        tally.load(self._load(one), all(use.operation in self.kept for use in one.uses))
                    else:
                        tally.load(self._load(one))
            stored += block.kept - sum(nbytes for made, nbytes in block.taken if made >= start)
            at = end
            launch = self.launch[int(start == 0 and end == len(self.processes))]
            if isinstance(tally, StreamTally):
                yield end, tally.cycles(stored, launch, group.keeps)
            else:
                yield end, tally.cycles(stored, launch)

    def _full(self, start: int, most: int | None = None) -> int:
        """Where the longest group that begins with a process ends, at `most` or before; at least behind that one."""
        group = _Group(self, start)
        last = len(self.processes) if most is None else min(most, len(self.processes))
        for at in range(start, last):
            group.add(self._block(at, at + 1))
            if group.over and at > start:
                self.full[start] = group.over
                return at
        return last

    def _frames(self, outs: Sequence[SSAValue]) -> int:
        """How many parts of its work a process hands on one after the other."""
        steps = max((stream_of(out).steps for out in outs), default=1)
        buffers = {use.operation: None for out in outs for use in out.uses if isinstance(use.operation, BufferOp)}
        return min([steps, *(n for op in buffers if (n := self.memories.frames(op)) > 1)])

    def _load(self, stream: SSAValue) -> Load:
        if stream not in self.loads:
            self.loads[stream] = load_of(stream, self.memories)
        return self.loads[stream]

    def _block(self, first: int, last: int) -> _Block:
        """The processes from one to before another."""
        if (first, last) in self.blocks:
            return self.blocks[first, last]
        runs: list[Run] = []
        needed: dict[SSAValue, int] = {}
        held: dict[BufferOp, None] = {}
        chain = transfers = kept = 0
        taken: list[tuple[int, int]] = []
        for i in range(first, last):
            process = self.processes[i]
            buffers, moves = self.ports[i]
            outs = [out for out in process.results if is_stream(out)]
            place = self.place[process]
            units, cycles = self.demand[process]
            run = Run(place.phase, units, cycles, {place.depth: cycles / self._frames(outs)})
            if asked := self.peers.get(process):
                run = run._replace(waits={place.depth: asked.wait}, peers=asked.cycles)
            if runs and runs[-1].phase == run.phase:
                runs[-1] = runs[-1].with_(run)
            else:
                runs.append(run)
            for x in process.operands:
                if isinstance(x.owner, BufferOp):
                    for made in x.owner.ins:
                        needed.setdefault(made, len(runs) - 1)
            held.update(dict.fromkeys(buffers))
            chain += self.chain[process]
            transfers += moves
            kept += sum(moved(out) for out in outs if self.last_use[out] >= last)
            taken += [x for x in self.expires[i] if x[0] < first]
        block = _Block(tuple(runs), needed, held, chain, transfers, kept, tuple(taken))
        self.blocks[first, last] = block
        return block

    def _last_use(self, stream: SSAValue) -> float:
        """The number of the last process that takes a stream; infinite for a result of the section."""
        last = -1.0
        for use in stream.uses:
            if isinstance(use.operation, StoreOp):
                return float("inf")
            takers = use.operation.results if isinstance(use.operation, BufferOp) else [stream]
            last = max([last, *(self.number.get(u.operation, -1) for v in takers for u in v.uses)])
        return last

    def before(self, made: SSAValue, start: int) -> bool:
        """Whether a stream is made off chip or by a process before `start`."""
        owner = made.owner
        return not isinstance(owner, Operation) or self.number.get(owner, -1) < start

    def place_stores(self, count: int) -> int:
        """Give every store that is free to move to the first group with address generators left, not before what it
        stores is made, or to a new one when none has; the number of groups then."""
        used = self.transfers(count)
        have = self.device.count("agcu")
        for op in self.free:
            group = max(0, *map(self.home, op.ins))
            while group < len(used) and used[group] and len(used[group] | self._takes(op, group)) > have:
                group += 1
            if group == len(used):
                used.append(set())
            self.free[op] = group
            used[group] |= self._takes(op, group)
            for made in op.ins:
                if 0 <= self.home(made) != group:
                    used[self.home(made)].add(made)
        return len(used)

    def _takes(self, store: StoreOp, group: int) -> set[SSAValue]:
        """What a store moves through address generators of a group."""
        return {store.tensor, *(v for v in store.ins if self.home(v) != group)}

    def transfers(self, count: int) -> list[set[SSAValue]]:
        """What each group moves through address generators: loads, and stores of results and of what later groups need,
        without stores that are free to move."""
        found: list[set[SSAValue]] = [set() for _ in range(count)]

        def bring(made: SSAValue, here: int) -> None:
            if self.home(made) != here:
                found[here].add(made)
                if self.home(made) >= 0:
                    found[self.home(made)].add(made)

        for process in self.processes:
            here = self.group[process]
            for value in process.operands:
                if isinstance(value.owner, BufferOp):
                    for made in value.owner.ins:
                        bring(made, here)
                elif not isinstance(value.type, StreamType):  # the table of a gather or scatter
                    found[here].add(value)
        for op in self.ops:
            if isinstance(op, StoreOp) and op not in self.free:
                last = self.last_group(op)
                found[last].add(op.tensor)
                for made in op.ins:
                    bring(made, last)
        return found

    def last_group(self, store: StoreOp) -> int:
        """The group that stores a result: where it was put, or the last of those that make a part of it."""
        return self.free[store] if store in self.free else max(map(self.home, store.ins))

    def fit(self) -> int:
        """Assign groups so that each has the address generators it takes. Few groups are tried first, then many, then
        results that come from several groups are stored apart from them."""
        have = self.device.count("agcu")
        whole = self.budget
        stores = [op for op in self.ops if isinstance(op, StoreOp)]
        for free in ([op for op in stores if all(map(_loaded, op.ins))], stores):
            self.free = dict.fromkeys(free, 0)
            self.budget = whole
            while True:
                count = self.assign()
                if max(map(len, self.transfers(count))) <= have:
                    return self.place_stores(count)
                if self.budget.agcu < 0:  # every process is alone
                    break
                self.budget = Budget(whole.pcu, whole.pmu, self.budget.agcu * 3 // 4 if self.budget.agcu else -1)
        return self.place_stores(count)

    def _check_alone(self, process: Operation, buffers: set[BufferOp]) -> None:
        alone = self.need if self.runs == 1 else {b: self._units(b, 1) for b in buffers}
        need = sum(alone[b] for b in buffers)
        chain = self.chain[process]
        if all(alone[b] for b in buffers) and need <= self.device.count("pmu") and chain <= self.device.count("pcu"):
            return
        name = _name(process)
        by_size = sorted(buffers, key=lambda b: -held_bytes(b, fitting_frames(b, self.device, 2), 2))
        whole = [b for b in by_size if not alone[b]]
        if whole:
            frames = fitting_frames(whole[0], self.device, 2)
            shape = whole[0].buffer_type.shape
            extent = shape[free_dims(whole[0], frames)[0]] if shape else 1
            raise CompileError(
                "buffer-too-large",
                f"cut-sections: {name} has a buffer of {whole[0].buffer_type}, which does not spread over memory units "
                f"of {self.device.pmu.bytes} bytes",
                why=f"it holds {held_bytes(whole[0], frames, 2)} bytes and its longest free dim has {extent} indices "
                "to share",
                fix="make tiles smaller (tile{steps rows}), or choose a larger device",
                location=locations.of(process),
            )
        raise CompileError(
            "stage-too-large",
            f"cut-sections: {name} alone needs {chain} compute units and {need} memory units; '{self.device.name}' has "
            f"{self.device.count('pcu')} and {self.device.count('pmu')}",
            why="largest buffers: "
            + ", ".join(
                f"{b.buffer_type} holds {held_bytes(b, fitting_frames(b, self.device, 2), 2)} bytes"
                for b in by_size[:3]
            ),
            fix="make tiles smaller (tile{steps rows}), or choose a larger device",
            location=locations.of(process),
        )

    def usage(self) -> str:
        """What the whole section takes."""
        pcu, pmu = sum(self.chain.values()), sum(self.need.values())
        return f"{pcu} compute units of {self.budget.pcu}, {pmu} memory units of {self.budget.pmu}"

    def cut(self, count: int) -> None:
        """Replace the section by `count` sections in order."""
        self.spilled: dict[SSAValue, SSAValue] = {}  # stream -> off-chip tensor that holds what it denotes
        self.outputs: dict[SSAValue, SSAValue] = {}  # result tensor of the old body -> result of a new section
        last = self.section.body.block.last_op
        assert isinstance(last, YieldOp)
        outer: dict[SSAValue, SSAValue] = dict(zip(self.section.body.block.args, self.section.ins, strict=True))
        parent = self.section.parent_block()
        assert parent is not None
        for number in range(count):
            made = _Part(self, number, outer, list(last.values)).build()
            parent.insert_op_before(made, self.section)
        for old, value in zip(self.section.outs, last.values, strict=True):
            old.replace_all_uses_with(self.outputs[value])
        self.section.detach()
        self.section.erase()

    def home(self, value: SSAValue) -> int:
        """The group whose process sends a stream; -1 for a load."""
        owner = value.owner
        return self.group.get(owner, -1) if isinstance(owner, Operation) else -1


def _name(process: Operation) -> str:
    return f'stage "{process.sym.data}"' if isinstance(process, StageOp) else process.name


class _Group:
    """What processes from one on take of the chip, block by block."""

    def __init__(self, cutter: _Cutter, start: int) -> None:
        self.cutter, self.start = cutter, start
        self.pcu = self.pmu = self.transfers = 0
        self.more = 0
        """Memory units that keeping weights takes more."""
        self.held: set[BufferOp] = set()
        self.loads: set[SSAValue] = set()
        self.over = ""
        """What is taken more of than the budget has."""

    def add(self, block: _Block) -> list[SSAValue]:
        """The processes behind those so far; the streams that are loaded for them and for none before."""
        cutter = self.cutter
        more = [v for v in block.needed if v not in self.loads and cutter.before(v, self.start)]
        self.loads.update(more)
        self.pcu += block.chain
        self.pmu += sum(cutter.need[b] for b in block.held if b not in self.held)
        self.more += sum(cutter.kept[b] - cutter.need[b] for b in block.held if b not in self.held and b in cutter.kept)
        self.held.update(block.held)
        self.transfers += block.transfers
        pmu = min(self.pmu, self.pmu + self.more)
        taken, budget = (self.pcu, pmu, len(self.loads) + self.transfers), cutter.budget
        limits = budget.pcu, budget.pmu, budget.agcu
        kinds = zip(("compute", "memory", "address"), taken, limits, strict=True)
        self.over = ", ".join(f"{w} {kind} units of {limit}" for kind, w, limit in kinds if w > limit)
        return more

    @property
    def keeps(self) -> bool:
        """Whether there is room to keep weights from run to run."""
        return self.pmu + self.more <= self.cutter.budget.pmu


class _Part:
    """Builds one of the new sections."""

    def __init__(
        self, cutter: _Cutter, number: int, outer: dict[SSAValue, SSAValue], results: Sequence[SSAValue]
    ) -> None:
        self.cutter, self.number, self.outer, self.results = cutter, number, outer, results
        self.block = Block()
        self.ins: list[SSAValue] = []
        self.inside: dict[SSAValue, SSAValue] = {}
        self.streams: dict[SSAValue, SSAValue] = {}
        self.buffers: dict[BufferOp, None] = {}
        self.made: list[tuple[SSAValue, SSAValue]] = []

    def build(self) -> SectionOp:
        cutter = self.cutter
        for op in cutter.ops:
            if cutter.group.get(op) == self.number:
                self._process(op)
        yields: list[SSAValue] = []
        keys: list[SSAValue] = []
        spills = [out for op in cutter.processes if cutter.group[op] == self.number for out in op.results]
        for out in spills:
            if isinstance(out.type, StreamType) and self._crosses(out):
                stream = stream_of(out)
                store = StoreOp([self.streams[out]], [identity(stream.full_shape)], ir_type(out.type.full))
                self._add(store, out.owner)
                yields.append(store.tensor)
                keys.append(out)
        for value in self.results:
            if self._last_group(value) == self.number:
                yields.append(self._result(value))
                keys.append(value)
        self.block.add_op(end := YieldOp(yields))
        end.location = cutter.section.location
        name = f"{cutter.section.sym.data}.{self.number}"
        section = SectionOp(name, self.ins, [v.type for v in yields], Region(self.block))
        origins = [op.location for op in self.block.ops if isinstance(op, Process)]
        section.location = locations.fuse(origins or [op.location for op in self.block.ops])
        for key, out in zip(keys, section.outs, strict=True):
            if key in self.results:
                cutter.outputs[key] = out
            else:
                cutter.spilled[key] = out
        return section

    def _add(self, op: Operation, like: object) -> None:
        op.location = like.location if isinstance(like, Operation) else self.cutter.section.location
        self.block.add_op(op)

    def _external(self, value: SSAValue) -> SSAValue:
        """A tensor from outside as an argument of this section."""
        if value not in self.inside:
            self.ins.append(value)
            self.inside[value] = self.block.insert_arg(value.type, len(self.block.args), locations.of_value(value))
        return self.inside[value]

    def _crosses(self, stream: SSAValue) -> bool:
        """Whether another section needs what this stream carries."""
        for use in stream.uses:
            op = use.operation
            if isinstance(op, BufferOp):
                if any(self.cutter.group.get(u.operation) != self.number for out in op.outs for u in out.uses):
                    return True
            elif isinstance(op, StoreOp) and self._last_group(op.tensor) != self.number:
                return True
        return False

    def _last_group(self, result: SSAValue) -> int:
        op = result.owner
        if isinstance(op, ScatterOp):
            return self.cutter.group[op]
        assert isinstance(op, StoreOp)
        return self.cutter.last_group(op)

    def _result(self, value: SSAValue) -> SSAValue:
        op = value.owner
        if isinstance(op, ScatterOp):
            return self.streams[value]
        assert isinstance(op, StoreOp)
        store = StoreOp([self._stream(v) for v in op.ins], views(op.in_views), value.type)
        self._add(store, op)
        return store.tensor

    def _stream(self, value: SSAValue) -> SSAValue:
        """A stream of the old section in this one: made here, loaded as before, or loaded from where it was spilled."""
        if value not in self.streams:
            owner = value.owner
            type = value.type
            assert isinstance(type, StreamType)
            if isinstance(owner, LoadOp):
                load = LoadOp(self._external(self.outer[owner.tensor]), owner.view.view, type)
            else:
                tensor = self._external(self.cutter.spilled[value])
                load = LoadOp(tensor, identity(type.stream.full_shape), type)
            self._add(load, owner)
            self.streams[value] = load.out
        return self.streams[value]

    def _input(self, value: SSAValue) -> SSAValue:
        buffer = value.owner
        assert isinstance(buffer, BufferOp)
        if buffer not in self.buffers:
            self.buffers[buffer] = None
            here = [
                (out, view)
                for out, view in zip(buffer.outs, views(buffer.out_views), strict=True)
                if any(self.cutter.group.get(use.operation) == self.number for use in out.uses)
            ]
            types = [out.type for out, _ in here]
            new = BufferOp(
                [self._stream(v) for v in buffer.ins],
                views(buffer.in_views),
                buffer.buffer_type.shape,
                types,  # pyright: ignore[reportArgumentType]
                [view for _, view in here],
                buffer.fill.value.data,
            )
            self._add(new, buffer)
            self.streams.update(zip((out for out, _ in here), new.outs, strict=True))
        return self.streams[value]

    def _process(self, op: Operation) -> None:
        mapping: dict[SSAValue, SSAValue] = {}
        for value in op.operands:
            if isinstance(value.type, StreamType):
                mapping[value] = self._input(value) if isinstance(value.owner, BufferOp) else self._stream(value)
            else:
                mapping[value] = self._external(self.outer[value])
        copy = op.clone(mapping)
        self._add(copy, op)
        self.streams.update(zip(op.results, copy.results, strict=True))


@dataclass(frozen=True)
class CutSectionsPass(Pass):
    """Cut a section that takes more units than the chip has into sections that run one after another.

    Assumes tiled stages and a device in the module. A section is a run of stages whose memory units (what every buffer
    holds with two copies of a frame), compute units (one for each piece of a body) and address generators the chip has.
    `by` says which: `time` finds the cuts with the least modelled time (phases of the section, units shared out among
    their stages, loads that must come first, traffic, launches) by dynamic programming; `order` puts all that fits into
    each; `rule` what a fusion rule matches; `op` one op. What a later section needs is stored off chip and loaded
    again; weights are loaded where they are read. A stage that does not fit alone is refused with the numbers. Copies
    from off-chip memory to off-chip memory go where address generators are left. Where several runs follow each other
    (`dataflow.runs`), `time` is that of one of them: all stages of a section work at the same time, each on a run of
    its own, and launches, first loads and weights that stay on the chip count once for all.

        dataflow.section "main_0" { … }   =>   dataflow.section "main_0.0" { … }  dataflow.section "main_0.1" { … }
    """

    name = "cut-sections"
    share: float = option(0.95, "share of the device's units that a section may take", low=0.05, high=1.0)
    most: int = option(512, "most units for one piece of a stage", low=1)
    by: str = option("time", "what decides", choices=("time", "order", "rule", "op"))
    rules: str = option("", "file of fusion rules (YAML) for by=rule, before the built-in ones")

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        device = device_of(module)
        budget = Budget(*(max(1, int(device.count(kind) * self.share)) for kind in ("pcu", "pmu", "agcu")))
        rules = fusion_rules(self.rules)
        again = relaunched(module)
        runs = runs_of(module)
        same = constants(module) if runs > 1 else set[SSAValue]()
        changed = False
        for section in list(sections(module)):
            repeated = again.get(section, 0.0)
            cutter = _Cutter(section, device, budget, self.most, self.by, rules, repeated, runs, same)
            number = cutter.fit()
            count("sections", number)
            if number == 1:
                decline("cut-section", section, f"it fits the chip: {cutter.usage()}")
                cutter.explain(number)
            elif may("cut-section", section):
                cutter.explain(number)
                cutter.cut(number)
                changed = True
        return changed
