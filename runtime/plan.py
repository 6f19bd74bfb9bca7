"""The merged plan: a routed program as a flat list of NumPy calls on preallocated arrays.

`ConfigPlan` derives, once per config, what its units do on whole arrays: every flow's loops and address program
become a strided view, every PCU body one run of its ops on joined tiles (`merge`), every buffer an array of its whole
logical shape or, where an address generator fills or drains it with a plain copy, a view of the parameter itself.
`bind_program` places all arrays in one arena by liveness over the whole launch sequence and binds every launch. What
cannot be merged runs tile by tile (`literal`), and `Plan.report` says so.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from headrace.dialects.support import dtypes
from headrace.dialects.support.access import Stream, View, row_major
from headrace.dialects.support.diagnostics import CompileError
from headrace.dialects.tensor.shapes import TT
from headrace.runtime import arena, chain, geometry, literal
from headrace.runtime.merge import (
    CONSTANT,
    Domain,
    Merged,
    Move,
    Unmergeable,
    domain_of,
    joined_shape,
    merge_body,
    moves_of,
)
from headrace.runtime.program import Agcu, Config, Flow, Launch, Pcu, Pmu, Program, elements

Array = np.ndarray[Any, np.dtype[Any]]
Step = tuple[Callable[..., Any], tuple[Any, ...]]
Key = tuple[int, int]  # (unit, value of its body)


@dataclass
class Place:
    """Memory that the plan addresses: a parameter (`param` ≥ 0) or an array of its own, live from action `first` to
    `last`. `signature` tells which cells writers leave as `fill`; None when all are written."""

    dtype: str
    elements: int
    param: int = -1
    fill: float = 0.0
    signature: Any = None
    first: int = 1 << 30
    last: int = -1

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.elements * dtypes.byte_size(self.dtype)


@dataclass(frozen=True, slots=True)
class End:
    """An address program resolved to a place: element c of the denoted tensor is at offset + Σ c · strides."""

    place: int
    offset: int
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Home:
    """Where a buffer lives: in `place`, each address mapped through `digits` (extent, buffer stride, place stride)
    from `base`; no digits means address by address."""

    place: int
    base: int = 0
    digits: tuple[tuple[int, int, int], ...] | None = None

    def resolve(self, view: View, shape: Sequence[int]) -> End | None:
        """The address program through the mapping; None when it is no longer affine."""
        if self.digits is None:
            return End(self.place, self.base + view.offset, view.strides)
        offset = self.base
        low: list[int] = []
        high: list[int] = []
        for extent, stride, target in self.digits:
            digit = view.offset // stride % extent
            offset += digit * target
            low.append(digit)
            high.append(digit)
        strides: list[int] = []
        for n, step in zip(shape, view.strides, strict=True):
            if n == 1 or step == 0:
                strides.append(0)
                continue
            sign, step = (1, step) if step > 0 else (-1, -step)
            total = 0
            for k, (extent, stride, target) in enumerate(self.digits):
                digit = step // stride % extent
                total += digit * target
                if sign > 0:
                    high[k] += (n - 1) * digit
                else:
                    low[k] -= (n - 1) * digit
            strides.append(sign * total)
        if any(a < 0 or b >= extent for a, b, (extent, _, _) in zip(low, high, self.digits, strict=True)):
            return None
        return End(self.place, offset, tuple(strides))


def digits_of(
    shape: Sequence[int], strides: Sequence[int], targets: Sequence[int], elements: int
) -> tuple[tuple[int, int, int], ...] | None:
    """A copy of a tensor of `shape` as a mapping from every address of a dense buffer (`strides`) to another memory
    (`targets`); None when the copy does not write each of the `elements` addresses once."""
    found = sorted(((s, n, t) for n, s, t in zip(shape, strides, targets, strict=True) if n > 1), reverse=True)
    joined: list[tuple[int, int, int]] = []
    place = 1
    for stride, n, target in reversed(found):
        if stride != place:
            return None
        place *= n
        if joined and joined[-1][2] * joined[-1][0] == target:
            joined[-1] = (joined[-1][0] * n, joined[-1][1], joined[-1][2])
        else:
            joined.append((n, stride, target))
    if place != elements:
        return None
    return tuple(reversed(joined)) or ((1, 1, 0),)


@dataclass(frozen=True, slots=True)
class Binding:
    """A body value in memory: `end` addresses its joined tiles; `unit` numbers the loops that `moves` speaks of."""

    end: End
    tile: tuple[int, ...]
    moves: tuple[Move, ...]
    unit: int

    def shape(self, counts: Sequence[int]) -> tuple[int, ...]:
        """Shape of the joined tiles of so many iterations."""
        return joined_shape(self.tile, self.moves, counts)

    def shift(self, at: Sequence[int]) -> int:
        """Address shift of the loop indices `at`."""
        return sum(
            i * move[1] * self.end.strides[move[0]]
            for i, move in zip(at, self.moves, strict=True)
            if i and move is not None
        )


@dataclass
class Run:
    """PCUs whose ops run as one chain of calls: keys number values; `bound` are those in memory before or after."""

    units: list[int]
    inputs: dict[Key, Binding] = field(default_factory=dict[Key, Binding])
    outputs: dict[Key, Binding] = field(default_factory=dict[Key, Binding])


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


Action = Run | Copy | Indexed


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
        self._lives()

    # Order

    def _order(self) -> list[int]:
        """Units, producers first: the lowest number that is ready, but a PCU that takes a stream directly from the
        one just placed comes next."""
        waiting = [len({f.src for f in flows if f.src != u}) for u, flows in enumerate(self.into)]
        ready = sorted(u for u, n in enumerate(waiting) if n == 0)
        order: list[int] = []
        while ready:
            last = order[-1] if order else -1
            direct = [
                u for u in ready
                if last >= 0 and isinstance(self.config.units[u], Pcu) and isinstance(self.config.units[last], Pcu)
                and any(f.src == last for f in self.into[u])
            ]  # fmt: skip
            u = direct[0] if direct else ready[0]
            ready.remove(u)
            order.append(u)
            for after in sorted({f.dst for f in self.out_of[u] if f.dst != u}):
                waiting[after] -= 1
                if waiting[after] == 0:
                    ready.append(after)
                    ready.sort()
        if len(order) < len(self.config.units):
            names = [unit.name for u, unit in enumerate(self.config.units) if u not in order]
            raise Unmergeable(f"units feed each other in a cycle: {', '.join(names)}")
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
        self.merged(u, self.domains[u].counts)

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
        last = self.actions[-1] if self.actions else None
        joins = isinstance(last, Run) and any(f.src in last.units for f in self.into[u])
        run = last if joins else Run([])
        assert isinstance(run, Run)
        inside = set(run.units)
        for port, flow in enumerate(self.into[u]):
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
        if not joins:
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

    def _store(self, run: Run, u: int, v: int) -> Binding:
        """Give a value of a run memory of its own unless it has some."""
        key = (u, v)
        if key not in self.storage:
            port = units_of(self.config, u).outputs.index(v)
            moves = self.outputs_moves[u][port]
            tile = units_of(self.config, u).types[v]
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
            reader = units_of(self.config, first.dst)
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
        before = units_of(self.config, flow.src)
        return self._stored(self.source(flow.src, before.outputs[flow.src_port])).end

    # Lives

    def _lives(self) -> None:
        for i, action in enumerate(self.actions):
            for place in self.touches(action):
                found = self.places[place]
                found.first, found.last = min(found.first, i), max(found.last, i)

    def touches(self, action: Action) -> list[int]:
        """Places that an action reads or writes."""
        match action:
            case Run():
                return [b.end.place for b in (*action.inputs.values(), *action.outputs.values())]
            case Copy():
                return [action.source.place, action.target.place]
            case Indexed():
                return [action.table, action.index.source.place, action.target.place]


def units_pcu(config: Config, u: int) -> Pcu | None:
    """The unit if it is a PCU."""
    unit = config.units[u]
    return unit if isinstance(unit, Pcu) else None


def units_of(config: Config, u: int) -> Pcu:
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


# Binding


@dataclass
class Plan:
    """A bound program: `steps` run it. `report` has a line for every config that runs literally and why; `regions`
    are the flat arrays of the program's regions."""

    steps: list[Step]
    regions: list[Array]
    report: list[str]
    arena_bytes: int
    keep: list[Any]

    def run(self) -> None:
        """Run every launch once."""
        with np.errstate(all="ignore"):
            for f, args in self.steps:
                f(*args)


def plan_configs(program: Program) -> list[tuple[Launch, ConfigPlan | str]]:
    """The plan of every launch, shared by launches of the same config with the same hazards; the reason where there
    is none."""
    known: dict[tuple[int, frozenset[int]], ConfigPlan | str] = {}
    found: list[tuple[Launch, ConfigPlan | str]] = []
    for launch in program.launches:
        key = (launch.config, hazards(program.configs[launch.config], launch))
        if key not in known:
            try:
                known[key] = ConfigPlan(program.configs[launch.config], key[1])
            except Unmergeable as reason:
                known[key] = str(reason)
        found.append((launch, known[key]))
    return found


def hazards(config: Config, launch: Launch) -> frozenset[int]:
    """Parameters that a launch writes and whose memory it also reads through a parameter: their stores come last, so
    a launch reads what was there when it began."""
    spans = [(region, at, at + p.type.elements) for p, (region, at) in zip(config.params, launch.args, strict=True)]
    read = {u.param for u in config.units if isinstance(u, Agcu) and u.direction in ("load", "gather")}
    written = {u.param for u in config.units if isinstance(u, Agcu) and u.direction in ("store", "scatter")}
    return frozenset(
        w for w in written
        if any(spans[r][0] == spans[w][0] and spans[r][1] < spans[w][2] and spans[w][1] < spans[r][2] for r in read)
    )  # fmt: skip


def bind_program(
    program: Program,
    weights: Callable[[str], Array],
    *,
    literal_only: bool = False,
    plans: Sequence[tuple[Launch, ConfigPlan | str]] | None = None,
    shared: Sequence[Array | None] | None = None,
) -> Plan:
    """Allocate all memory and bind every launch. `weights` gives a weight's array by key; `plans` are those of
    `plan_configs` if at hand; `shared` (regions of another plan of the same program) lends its weight arrays."""
    if literal_only:
        plans = [(launch, "literal execution was asked for") for launch in program.launches]
    elif plans is None:
        plans = plan_configs(program)
    binder = _Binder(program, plans)
    return binder.bind(weights, shared)


class _Binder:
    """Binds one program."""

    def __init__(self, program: Program, plans: Sequence[tuple[Launch, ConfigPlan | str]]) -> None:
        self.program = program
        self.plans = plans
        self.pool = arena.Pool()

    def bind(self, weights: Callable[[str], Array], shared: Sequence[Array | None] | None) -> Plan:
        regions, own, nbytes, keep = self._allocate(weights, shared)
        steps: list[Step] = []
        report: list[str] = []
        for i, (launch, plan) in enumerate(self.plans):
            config = self.program.configs[launch.config]
            params = [(regions[r], at) for r, at in launch.args]
            if isinstance(plan, str):
                told = f"config '{config.name}' runs literally: {plan}"
                if told not in report:
                    report.append(told)
                views = [
                    regions[r][at : at + p.type.elements] for p, (r, at) in zip(config.params, launch.args, strict=True)
                ]
                steps.append((literal.run_config, (config, views)))
                continue
            flats = [params[p.param] if p.param >= 0 else (own[i, k], 0) for k, p in enumerate(plan.places)]
            for action in plan.actions:
                self._bind_action(plan, action, flats, steps)
        return Plan(steps, regions, report, nbytes, [self.pool, keep])

    # Memory

    def _allocate(
        self, weights: Callable[[str], Array], shared: Sequence[Array | None] | None
    ) -> tuple[list[Array], dict[tuple[int, int], Array], int, list[Any]]:
        """Arrays of all regions, and of each launch's own places."""
        program = self.program
        starts: list[int] = []
        at = 0
        for _, plan in self.plans:
            starts.append(at)
            at += 1 if isinstance(plan, str) else max(len(plan.actions), 1)
        end = at
        requests: list[arena.Request] = []
        wanted: list[tuple[str, Any, int, str]] = []  # (what, which, elements, dtype)
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        for i, (launch, plan) in enumerate(self.plans):
            finish = starts[i] + (1 if isinstance(plan, str) else max(len(plan.actions), 1)) - 1
            for region, _ in launch.args:
                first.setdefault(region, starts[i])
                last[region] = finish
        states = {program.inputs[k].region for k in range(len(program.inputs))} | {p.region for p in program.outputs}
        regions: list[Array | None] = [None] * len(program.regions)
        for r, region in enumerate(program.regions):
            if region.kind == "weight":
                given = shared[r] if shared is not None else None
                regions[r] = given if given is not None else _weight(region.key, region.type, weights)
            elif region.kind == "state":
                regions[r] = np.zeros(region.type.elements, dtypes.to_numpy(region.type.dtype))
            else:
                whole = region.kind != "temp" or r in states
                lives = (0, end) if whole else (first.get(r, 0), last.get(r, 0))
                requests.append(arena.Request(region.type.elements * dtypes.byte_size(region.type.dtype), *lives))
                wanted.append(("region", r, region.type.elements, region.type.dtype))
        own: dict[tuple[int, int], Array] = {}
        keep: list[Any] = []
        filled: list[tuple[Any, list[tuple[int, Array]]]] = []
        for i, (_, plan) in enumerate(self.plans):
            if isinstance(plan, str):
                continue
            for k, place in enumerate(plan.places):
                if place.param >= 0:
                    continue
                lives = (starts[i] + min(place.first, place.last), starts[i] + max(place.last, 0))
                if place.signature is None:
                    requests.append(arena.Request(place.nbytes, *lives))
                    wanted.append(("own", (i, k), place.elements, place.dtype))
                    continue
                # cells that nobody writes are set here, once: such an array is shared only with its equals
                key = (place.signature, place.dtype, place.fill, place.elements)
                slots = next((s for have, s in filled if have == key), None)
                if slots is None:
                    filled.append((key, slots := []))
                for n, (busy, array) in enumerate(slots):
                    if busy < lives[0]:
                        slots[n] = (lives[1], array)
                        own[i, k] = array
                        break
                else:
                    array = arena.aligned(place.nbytes).view(dtypes.to_numpy(place.dtype))
                    array[...] = place.fill
                    slots.append((lives[1], array))
                    own[i, k] = array
        offsets, nbytes = arena.pack(requests)
        block = arena.aligned(nbytes)
        block[...] = 0
        keep.append(block)
        for (what, which, count, dtype), offset in zip(wanted, offsets, strict=True):
            array = np.ndarray((count,), dtypes.to_numpy(dtype), block, offset)
            if what == "region":
                regions[which] = array
            else:
                own[which] = array
        found = [r for r in regions if r is not None]
        assert len(found) == len(regions)
        return found, own, nbytes, keep

    # Actions

    def _bind_action(
        self, plan: ConfigPlan, action: Action, flats: Sequence[tuple[Array, int]], steps: list[Step]
    ) -> None:
        self.pool.reset()
        match action:
            case Run():
                steps.extend(self._bind_run(plan, action, flats))
            case Copy():
                steps.append(
                    (np.copyto, (_at(flats, action.target, action.shape), _at(flats, action.source, action.shape)))
                )
            case Indexed():
                table, base = flats[action.table]
                rows = table[base : base + prod(action.rows)].reshape(action.rows)
                index = _at(flats, action.index.source, action.index.shape)
                other = _at(flats, action.target, action.shape)
                f = _scatter if action.scatter else _gather
                steps.append((f, (rows, index, other, action.name)))

    def _bind_run(self, plan: ConfigPlan, run: Run, flats: Sequence[tuple[Array, int]]) -> list[Step]:
        arrays: dict[Key, Array] = {}
        outputs: dict[Key, Array] = {}
        for bindings, target in ((run.inputs, arrays), (run.outputs, outputs)):
            for key, binding in bindings.items():
                counts = plan.domains[binding.unit].counts
                target[key] = _at(flats, binding.end, binding.shape(counts))
        ops: list[chain.Op] = []
        for u in run.units:
            unit = units_of(plan.config, u)
            merged = plan.merged(u, plan.domains[u].counts)
            for op, attrs in zip(unit.ops, merged.attrs, strict=True):
                if op.name == CONSTANT:
                    arrays[u, op.results[0]] = chain.constant(attrs, unit.types[op.results[0]])
                    continue
                ops.append(
                    chain.Op(
                        op.name,
                        attrs,
                        tuple(plan.source(u, v) for v in op.operands),
                        tuple((u, v) for v in op.results),
                        tuple(merged.types[v] for v in op.results),
                    )
                )
        return chain.bind(ops, arrays, outputs, self.pool)


def _at(flats: Sequence[tuple[Array, int]], end: End, shape: Sequence[int], shift: int = 0) -> Array:
    flat, base = flats[end.place]
    return geometry.strided(flat, base + end.offset + shift, shape, end.strides)


def _weight(key: str, type: TT, weights: Callable[[str], Array]) -> Array:
    """A weight as a flat array, checked against its region; no copy when the bytes are dense and aligned."""
    array = weights(key)
    if tuple(array.shape) != type.shape or array.dtype != dtypes.to_numpy(type.dtype):
        raise CompileError(
            "bad-weight",
            f"weight '{key}' is {array.dtype}{list(array.shape)} but the program has {type}",
            fix="compile again with these weights",
        )
    flat = array.reshape(-1) if array.flags.c_contiguous else np.ascontiguousarray(array).reshape(-1)
    if flat.ctypes.data % max(flat.itemsize, 1):
        flat = flat.copy()
    return flat


def _bounds(index: Array, rows: int, name: str) -> None:
    low, high = index.min(), index.max()
    if low < -rows or high >= rows:
        raise CompileError(
            "index-out-of-range",
            f"'{name}' is given row {low if low < -rows else high} of a table of {rows} rows",
            fix=f"indices must lie in {-rows}..{rows - 1}",
        )


def _gather(table: Array, index: Array, target: Array, name: str) -> None:
    if index.size == 0:
        return
    _bounds(index, table.shape[0], name)
    if target.flags.c_contiguous:
        np.take(table, index, 0, target, "wrap")
    else:
        np.copyto(target, table[index])


def _scatter(table: Array, index: Array, rows: Array, name: str) -> None:
    if index.size == 0:
        return
    _bounds(index, table.shape[0], name)
    operator.setitem(table, index, rows)
