"""What a config does on whole arrays: runs of ops, copies, gathers and scatters, in order, on places in memory.

Every buffer becomes an array of its whole logical shape, or, where an address generator fills or drains it with a
plain copy, a view of the parameter itself. PCUs that feed each other directly form one run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from headrace.dialects.support.access import Stream, View, row_major
from headrace.runtime import geometry
from headrace.runtime.merge import Domain, Merged, Move, Unmergeable, domain_of, joined_shape, merge_body, moves_of
from headrace.runtime.places import Binding, End, Home, Key, Place, digits_of
from headrace.runtime.program import Agcu, Config, Flow, Pcu, Pmu, elements

Ops = tuple[tuple[str, dict[str, Any]], ...]
Movement = tuple[Key, Ops]
"""A value, and the ops that bring its elements into another shape or order."""


@dataclass
class Run:
    """PCUs whose ops run as one chain of calls on the values in memory before and after.

    `moved` are inputs that are another value of the run after some movement ops (name, attributes).

    The first `loops` time loops that its units share run one iteration after the other, but the last of them in
    blocks of `block`; the other loops, and the sites, are joined. No loops: everything at once."""

    units: list[int]
    inputs: dict[Key, Binding] = field(default_factory=dict[Key, Binding])
    outputs: dict[Key, Binding] = field(default_factory=dict[Key, Binding])
    moved: dict[Key, Movement] = field(default_factory=dict[Key, "Movement"])
    loops: int = 0
    block: int = 1

    def key(self, key: Key) -> Key:
        """The value itself, where a key stands for one that takes no movement."""
        while key in self.moved and not self.moved[key][1]:
            key = self.moved[key][0]
        return key


@dataclass
class Group:
    """Runs that go together through the iterations of their outer loops, so that what they hand to each other stays
    in cache; all have the same `loops` and `block`."""

    runs: list[Run]


@dataclass(frozen=True)
class Copy:
    """Elements from one address program to another, in order."""

    shape: tuple[int, ...]
    source: End
    target: End


@dataclass(frozen=True)
class Indexed:
    """A gather (`target` = table[index]) or scatter (table[index] = `target`) of rows of parameter place `table`."""

    scatter: bool
    table: int
    rows: tuple[int, ...]  # shape of the table
    index: Copy  # only shape and source are used
    index_dtype: str
    target: End
    shape: tuple[int, ...]
    name: str


Action = Run | Group | Copy | Indexed

MOST_ITERATIONS = 4096
"""Most iterations of loops that run one after the other; beyond, a config runs literally."""


class ConfigPlan:
    """What one config does on whole arrays. `late` are the parameters whose stores must wait until the launch has
    read everything, because the launch also reads the memory behind them. Raises `Unmergeable`."""

    def __init__(self, config: Config, late: frozenset[int]) -> None:
        self.config = config
        self.late = late
        self.places: list[Place] = [Place(p.type.dtype, p.type.elements, param=i) for i, p in enumerate(config.params)]
        self.actions: list[Action] = []
        self.into: list[list[Flow]] = [[] for _ in config.units]
        self.out_of: list[list[Flow]] = [[] for _ in config.units]
        for flow in config.flows:
            self.into[flow.dst].append(flow)
            self.out_of[flow.src].append(flow)
        for flows in self.into:
            flows.sort(key=lambda f: f.dst_port)
        self.order = self._order()
        self.domains: dict[int, Domain] = {}
        self.needs: dict[int, int] = {}
        self.inputs_moves: dict[int, list[tuple[Move, ...]]] = {}
        self.outputs_moves: dict[int, list[tuple[Move, ...]]] = {}
        self._merged: dict[tuple[int, tuple[int, ...]], Merged] = {}
        for u in self.order:
            unit = config.units[u]
            if isinstance(unit, Pcu):
                self._compute(u, unit)
        self.homes: dict[int, Home] = {}
        self._settle()
        self.storage: dict[Key, Binding] = {}
        self._schedule()
        self._drop_unread()
        for action in self.actions:
            if isinstance(action, Run):
                action.loops = max(self.needs[u] for u in action.units)

    # Order

    def _order(self) -> list[int]:
        """Units, producers first, depth first from those that nothing reads. What a unit can use as it is made (a
        direct stream, else frames of a buffer) is placed last before it, so that the two can form one run."""
        units = self.config.units

        def rank(before: int) -> tuple[int, int]:
            unit = units[before]
            if isinstance(unit, Pcu):
                return 3, before
            if not isinstance(unit, Pmu) or not any(isinstance(units[f.src], Pcu) for f in self.into[before]):
                return 0, before
            return 2 if unit.frames and len(self.into[before]) == 1 else 1, before

        order: list[int] = []
        state = [0] * len(units)  # 1: on the way, 2: placed
        ends = [u for u, flows in enumerate(self.out_of) if not flows]
        for root in [*ends, *range(len(units))]:
            stack = [(root, False)]
            while stack:
                u, done = stack.pop()
                if done:
                    state[u] = 2
                    order.append(u)
                    continue
                if state[u] == 2:
                    continue
                if state[u] == 1:
                    names = [unit.name for v, unit in enumerate(units) if state[v] == 1]
                    raise Unmergeable(f"units feed each other in a cycle: {', '.join(names)}")
                state[u] = 1
                stack.append((u, True))
                stack.extend((v, False) for v in sorted({f.src for f in self.into[u]}, key=rank, reverse=True))
        return order

    # Compute units

    def _compute(self, u: int, unit: Pcu) -> None:
        inputs = self.into[u]
        outputs = [next(f for f in self.out_of[u] if f.src_port == p) for p in range(len(unit.outputs))]
        self.domains[u] = domain_of(unit, inputs, self.out_of[u])
        sites = len(unit.sites)
        self.inputs_moves[u] = [moves_of(f.stream, sites) for f in inputs]
        self.outputs_moves[u] = [moves_of(f.stream, sites) for f in outputs]
        for flow in self.out_of[u]:
            if moves_of(flow.stream, sites) != self.outputs_moves[u][flow.src_port]:
                raise Unmergeable(f"flows of output {flow.src_port} of '{unit.name}' move its tile differently")
        domain = self.domains[u]
        for loops in range(len(domain.time) + 1):  # outer loops that cannot be joined run one after the other
            try:
                self.merged(u, self.counts(u, loops, 1))
            except Unmergeable:
                if loops == len(domain.time) or prod(domain.time[: loops + 1]) > MOST_ITERATIONS:
                    raise
            else:
                self.needs[u] = loops
                return

    def counts(self, u: int, loops: int, block: int) -> tuple[int, ...]:
        """Iterations of each domain loop of a PCU that are joined when `loops` outer ones are not."""
        counts = self.domains[u].counts
        return (*(1,) * (loops - 1), block, *counts[loops:]) if loops else counts

    def merged(self, u: int, counts: tuple[int, ...]) -> Merged:
        """The body of a PCU on the joined tiles of `counts` iterations."""
        found = self._merged.get((u, counts))
        if found is None:
            unit = self.config.units[u]
            assert isinstance(unit, Pcu)
            found = self._merged[u, counts] = merge_body(unit, self.inputs_moves[u], self.outputs_moves[u], counts)
        return found

    def source(self, u: int, v: int) -> Key:
        """The key under which a body value is known: that of the PCU which makes it."""
        unit = self.config.units[u]
        while isinstance(unit, Pcu) and v < unit.inputs:
            flow = self.into[u][v]
            before = self.config.units[flow.src]
            if not isinstance(before, Pcu):
                break
            u, v, unit = flow.src, before.outputs[flow.src_port], before
        return u, v

    # Buffers

    def _settle(self) -> None:
        """Decide where every buffer lives."""
        units = self.config.units
        for u in self.order:
            unit = units[u]
            if not isinstance(unit, Pmu):
                continue
            home = self._loaded(u, unit)
            if home is None:
                self.places.append(
                    Place(unit.dtype, elements(unit.shape), fill=unit.fill, signature=self._unwritten(u, unit))
                )
                home = Home(len(self.places) - 1)
            self.homes[u] = home
        for u in self.order:
            unit = units[u]
            if isinstance(unit, Pmu) and self.homes[u].digits is None and self.places[self.homes[u].place].param < 0:
                self._drained(u, unit)

    def _unwritten(self, u: int, unit: Pmu) -> Any:
        """Which cells of a buffer nobody writes, as a comparable value; None when there are none."""
        spans: list[tuple[geometry.Terms, int]] = []
        for f in self.into[u]:
            assert f.dst_view is not None
            spans.append(geometry.normal(zip(f.stream.full_shape, f.dst_view.strides, strict=True), f.dst_view.offset))
        if sum(geometry.size(terms) for terms, _ in spans) == elements(unit.shape):
            return None
        return tuple(sorted(spans))

    def _loaded(self, u: int, unit: Pmu) -> Home | None:
        """The home of a buffer that one plain copy from other memory fills: that memory, if all uses stay affine."""
        if len(self.into[u]) != 1:
            return None
        flow = self.into[u][0]
        before = self.config.units[flow.src]
        if isinstance(before, Pcu) or (isinstance(before, Agcu) and before.direction != "load"):
            return None
        source = self.end(flow, False)
        assert source is not None and flow.dst_view is not None
        shape = flow.stream.full_shape
        digits = digits_of(shape, flow.dst_view.strides, source.strides, elements(unit.shape))
        if digits is None or flow.dst_view.offset != 0:
            return None
        home = Home(source.place, source.offset, digits)
        for reader in self.out_of[u]:
            assert reader.src_view is not None
            if home.resolve(reader.src_view, reader.stream.full_shape) is None:
                return None
        return home

    def _drained(self, u: int, unit: Pmu) -> None:
        """Move a buffer that one plain copy empties into a parameter to that parameter, if all uses stay affine."""
        for flow in self.out_of[u]:
            after = self.config.units[flow.dst]
            if not isinstance(after, Agcu) or after.direction != "store" or after.param in self.late:
                continue
            assert flow.src_view is not None and flow.dst_view is not None
            digits = digits_of(
                flow.stream.full_shape, flow.src_view.strides, flow.dst_view.strides, elements(unit.shape)
            )
            if digits is None or flow.src_view.offset != 0:
                continue
            home = Home(after.param, flow.dst_view.offset, digits)
            uses = [(f.dst_view, f.stream) for f in self.into[u]] + [(f.src_view, f.stream) for f in self.out_of[u]]
            if all(view is not None and home.resolve(view, stream.full_shape) is not None for view, stream in uses):
                self.homes[u] = home
                return

    def end(self, flow: Flow, at_destination: bool) -> End | None:
        """The resolved address program at one end of a flow; None at a PCU, gather or scatter."""
        u, view = (flow.dst, flow.dst_view) if at_destination else (flow.src, flow.src_view)
        unit = self.config.units[u]
        match unit:
            case Pcu():
                return None
            case Agcu():
                if unit.direction in ("gather", "scatter"):
                    return None
                assert view is not None
                return End(unit.param, view.offset, view.strides)
            case Pmu():
                assert view is not None
                end = self.homes[u].resolve(view, flow.stream.full_shape)
                assert end is not None  # homes are chosen so
                return end

    # Schedule

    def _schedule(self) -> None:
        units = self.config.units
        late: list[Action] = []
        for u in self.order:
            unit = units[u]
            match unit:
                case Pcu():
                    self._run(u, unit, late)
                case Agcu(direction="gather" | "scatter"):
                    self._indexed(u, unit, late)
                case Agcu() | Pmu():
                    for flow in self.out_of[u]:
                        source, target = self.end(flow, False), self.end(flow, True)
                        if source is None or target is None:
                            continue
                        copy = Copy(flow.stream.full_shape, source, target)
                        if self._same(copy):
                            continue
                        (late if self._is_late(flow.dst) else self.actions).append(copy)
        self.actions.extend(late)

    def _same(self, copy: Copy) -> bool:
        """Whether source and target are the same cells in the same order, so there is nothing to do."""
        a, b = copy.source, copy.target
        return (a.place, a.offset) == (b.place, b.offset) and all(
            n == 1 or s == t for n, s, t in zip(copy.shape, a.strides, b.strides, strict=True)
        )

    def _is_late(self, u: int) -> bool:
        unit = self.config.units[u]
        return isinstance(unit, Agcu) and unit.direction in ("store", "scatter") and unit.param in self.late

    def _run(self, u: int, unit: Pcu, late: list[Action]) -> None:
        last = self._joined(u)
        run = last or Run([])
        inside = set(run.units)
        for port, flow in enumerate(self.into[u]):
            moved = self._forwarded(u, port, run)
            if moved is not None:
                run.moved[u, port] = moved
                continue
            end = self.end(flow, False)
            if end is not None:
                run.inputs[u, port] = Binding(end, flow.stream.tile, self.inputs_moves[u][port], u)
                continue
            before = units_pcu(self.config, flow.src)
            if before is None:  # rows of a gather, taken directly
                run.inputs[u, port] = Binding(
                    self.storage[flow.src, 0].end, flow.stream.tile, self.inputs_moves[u][port], u
                )
                continue
            key = self.source(u, port)
            if key[0] not in inside:
                run.inputs[key] = self._stored(key)
        run.units.append(u)
        if last is None:
            self.actions.append(run)
        made = {r for op in unit.ops for r in op.results}
        copies: list[Copy] = []
        for port, v in enumerate(unit.outputs):
            for flow in self.out_of[u]:
                if flow.src_port != port:
                    continue
                target = self.end(flow, True)
                if target is None:
                    if units_pcu(self.config, flow.dst) is None:  # a gather or scatter takes it directly
                        self._store(run, u, v)
                    continue
                key = (u, v)
                if v in made and key not in run.outputs and not self._is_late(flow.dst):
                    run.outputs[key] = Binding(target, flow.stream.tile, self.outputs_moves[u][port], u)
                    self.storage[key] = run.outputs[key]
                    continue
                if v in made:
                    source = self._store(run, u, v).end
                else:
                    origin = self.source(u, v)
                    found = run.inputs.get(origin)
                    source = (found if found is not None else self._stored(origin)).end
                copy = Copy(flow.stream.full_shape, source, target)
                (late if self._is_late(flow.dst) else copies).append(copy)
        self.actions.extend(copies)

    def _joined(self, u: int) -> Run | None:
        """The last run, when a PCU takes what it makes, directly or through buffers that it reads as they were written,
        and may run before what was placed after it."""
        if any(v < pcu_at(self.config, u).inputs for v in pcu_at(self.config, u).outputs):
            return None  # it passes an input on, which has to lie in memory
        needs = self.needs[u]
        written: set[int] = set()
        for action in reversed(self.actions):
            if not isinstance(action, Run):
                written.update(self.touches(action))
                continue
            joins = False
            written.update(b.end.place for b in action.outputs.values())
            for port, flow in enumerate(self.into[u]):
                if flow.src in action.units or self._forwarded(u, port, action) is not None:
                    joins = True
                elif (end := self.end(flow, False)) is not None and end.place in written:
                    return None
            return action if joins and not (needs and action.moved) else None
        return None

    def _forwarded(self, u: int, port: int, run: Run) -> Movement | None:
        """The value of the run that a port reads through a buffer, when the buffer has one writer and the port reads
        all that it wrote, so that the value may be used as it is made."""
        flow = self.into[u][port]
        if not isinstance(self.config.units[flow.src], Pmu) or len(self.into[flow.src]) != 1:
            return None
        writer = self.into[flow.src][0]
        if writer.src not in run.units or any(self.needs[x] for x in (u, *run.units)):
            return None
        before = pcu_at(self.config, writer.src)
        v = before.outputs[writer.src_port]
        if not any(v in op.results for op in before.ops):
            return None
        ops = self.movement(u, port, 0, 1)
        return None if ops is None else ((writer.src, v), ops)

    def movement(self, u: int, port: int, loops: int, block: int) -> Ops | None:
        """The ops between a value and a port that reads it through a buffer, when the outer `loops` of both are not
        joined but in blocks of the last."""
        flow = self.into[u][port]
        writer = self.into[flow.src][0]
        assert flow.src_view is not None and writer.dst_view is not None
        moves = self.outputs_moves[writer.src][writer.src_port]
        made = joined_shape(writer.stream.tile, moves, self.counts(writer.src, loops, block))
        read = joined_shape(flow.stream.tile, self.inputs_moves[u][port], self.counts(u, loops, block))
        return movement_between(made, writer.dst_view, read, flow.src_view)

    def frames(self, u: int) -> int:
        """How many of the outer loops of what fills a buffer keep its frames apart."""
        unit = self.config.units[u]
        assert isinstance(unit, Pmu)
        stream = (self.into[u] or self.out_of[u])[0].stream
        return sum(1 for x in stream.time[: unit.frames] if x.count > 1)

    def _store(self, run: Run, u: int, v: int) -> Binding:
        """Give a value of a run memory of its own unless it has some."""
        key = (u, v)
        if key not in self.storage:
            port = pcu_at(self.config, u).outputs.index(v)
            moves = self.outputs_moves[u][port]
            tile = pcu_at(self.config, u).types[v]
            shape = joined_shape(tile.shape, moves, self.domains[u].counts)
            self.places.append(Place(tile.dtype, prod(shape)))
            self.storage[key] = Binding(End(len(self.places) - 1, 0, row_major(shape)), tile.shape, moves, u)
        run.outputs.setdefault(key, self.storage[key])
        return self.storage[key]

    def _stored(self, key: Key) -> Binding:
        """Where a value made by an earlier run lies."""
        if key in self.storage:
            return self.storage[key]
        for action in self.actions:
            if isinstance(action, Run):
                if key in action.inputs:
                    return action.inputs[key]
                if key[0] in action.units:
                    return self._store(action, *key)
        raise Unmergeable(f"value {key[1]} of '{self.config.units[key[0]].name}' is used before it is made")

    def _indexed(self, u: int, unit: Agcu, late: list[Action]) -> None:
        index_flow = self.into[u][0]
        table = self.config.params[unit.param].type
        index = self._taken(index_flow)
        index_shape = index_flow.stream.full_shape
        if unit.direction == "scatter":
            rows = self.into[u][1]
            _check_indexed(unit.name, index_flow.stream, rows.stream)
            action = Indexed(True, unit.param, table.shape, Copy(index_shape, index, index), index_flow.stream.dtype,
                             self._taken(rows), rows.stream.full_shape, unit.name)  # fmt: skip
            (late if unit.param in self.late else self.actions).append(action)
            return
        target: End | None = None
        copies: list[Copy] = []
        stream = self.out_of[u][0].stream
        for flow in self.out_of[u]:
            _check_indexed(unit.name, index_flow.stream, flow.stream)
            end = self.end(flow, True)
            if end is not None and target is None and not self._is_late(flow.dst):
                target = end
            elif end is not None:
                copies.append(Copy(flow.stream.full_shape, end, end))
        shape = stream.full_shape
        direct = any(self.end(f, True) is None for f in self.out_of[u])
        if target is None:
            self.places.append(Place(table.dtype, prod(shape)))
            target = End(len(self.places) - 1, 0, row_major(shape))
        if direct:
            first = next(f for f in self.out_of[u] if self.end(f, True) is None)
            reader = pcu_at(self.config, first.dst)
            self.storage[u, 0] = Binding(
                target, first.stream.tile, moves_of(first.stream, len(reader.sites)), first.dst
            )
        self.actions.append(
            Indexed(
                False,
                unit.param,
                table.shape,
                Copy(index_shape, index, index),
                index_flow.stream.dtype,
                target,
                shape,
                unit.name,
            )
        )
        for copy in copies:
            self.actions.append(Copy(copy.shape, target, copy.target))

    def _taken(self, flow: Flow) -> End:
        """Where the tensor that a flow brings lies in memory."""
        end = self.end(flow, False)
        if end is not None:
            return end
        before = pcu_at(self.config, flow.src)
        return self._stored(self.source(flow.src, before.outputs[flow.src_port])).end

    # Places

    def _drop_unread(self) -> None:
        """Forget values in places of the config's own that nothing reads: they are used as they are made."""
        read = {b.end.place for a in self.actions if isinstance(a, Run) for b in a.inputs.values()}
        read |= {p for a in self.actions if not isinstance(a, Run) for p in self.touches(a)}
        for action in self.actions:
            if isinstance(action, Run):
                for key, binding in list(action.outputs.items()):
                    place = binding.end.place
                    if place not in read and self.places[place].param < 0:
                        del action.outputs[key]

    def find_lives(self) -> None:
        """Set the first and last action that touches each place."""
        for i, action in enumerate(self.actions):
            for place in self.touches(action):
                found = self.places[place]
                found.first, found.last = min(found.first, i), max(found.last, i)

    def touches(self, action: Action) -> list[int]:
        """Places that an action reads or writes."""
        match action:
            case Group():
                return [place for run in action.runs for place in self.touches(run)]
            case Run():
                return [b.end.place for b in (*action.inputs.values(), *action.outputs.values())]
            case Copy():
                return [action.source.place, action.target.place]
            case Indexed():
                return [action.table, action.index.source.place, action.target.place]


def movement_between(shape: Sequence[int], view: View, target: Sequence[int], other: View) -> Ops | None:
    """Ops that turn a tensor of `shape`, written to memory through `view`, into the tensor of shape `target` that is
    read through `other`; None when the two do not touch the same elements or more than an order of dims lies
    between."""
    if view.offset != other.offset:
        return None
    a = [(n, s) for n, s in zip(shape, view.strides, strict=True) if n > 1]
    b = [(n, s) for n, s in zip(target, other.strides, strict=True) if n > 1]
    reshape = ("tensor.reshape", {"shape": tuple(target)})
    if _joined_dims(a) == _joined_dims(b):
        return () if tuple(shape) == tuple(target) else (reshape,)
    if sorted(a) != sorted(b) or len(set(a)) != len(a):
        return None
    ops: list[tuple[str, dict[str, Any]]] = []
    if len(a) != len(shape):
        ops.append(("tensor.reshape", {"shape": tuple(n for n, _ in a)}))
    ops.append(("tensor.transpose", {"perm": tuple(a.index(x) for x in b)}))
    if len(b) != len(target):
        ops.append(reshape)
    return tuple(ops)


def _joined_dims(dims: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Dims (size, stride) in order, neighbours without a gap made one."""
    found: list[tuple[int, int]] = []
    for n, s in dims:
        if found and found[-1][1] == n * s:
            found[-1] = (found[-1][0] * n, s)
        else:
            found.append((n, s))
    return found


def units_pcu(config: Config, u: int) -> Pcu | None:
    """The unit if it is a PCU."""
    unit = config.units[u]
    return unit if isinstance(unit, Pcu) else None


def pcu_at(config: Config, u: int) -> Pcu:
    """The unit, which is a PCU."""
    unit = config.units[u]
    assert isinstance(unit, Pcu)
    return unit


def _check_indexed(name: str, index: Stream, rows: Stream) -> None:
    """Indices and rows must step together, so that row i belongs to index i of the joined tensors."""
    rank = len(index.tile)
    if tuple(rows.tile[:rank]) != tuple(index.tile) or index.full_shape != rows.full_shape[:rank]:
        raise Unmergeable(f"rows {rows.full_shape} of '{name}' do not line up with its indices {index.full_shape}")
    a = [x for x in index.time if x.count > 1]
    b = [x for x in rows.time if x.count > 1]
    if [x.count for x in a] != [x.count for x in b]:
        raise Unmergeable(f"'{name}' takes indices and rows in different loops")
    for x, y in zip(a, b, strict=True):
        if x != y and not (x.dim < 0 and y.dim >= rank):
            raise Unmergeable(f"'{name}' takes indices and rows in different order")
