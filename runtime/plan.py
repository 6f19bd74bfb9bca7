"""The merged plan: a routed program as a flat list of NumPy calls on preallocated arrays.

`ConfigPlan` derives, once per config, what its units do on whole arrays: every flow's loops and address program
become a strided view, every PCU body one run of its ops on joined tiles (`merge`), every buffer an array of its whole
logical shape or, where an address generator fills or drains it with a plain copy, a view of the parameter itself.
`bind_program` places all arrays in one arena by liveness over the whole launch sequence and binds every launch. What
cannot be merged runs tile by tile (`literal`), and `Plan.report` says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from headrace.dialects.support import dtypes
from headrace.dialects.support.diagnostics import CompileError
from headrace.dialects.tensor.shapes import TT
from headrace.runtime import arena, chain, geometry, literal
from headrace.runtime.beside import joined
from headrace.runtime.chunks import Group, form_groups
from headrace.runtime.kernels import Packs, Scratch, bind_chain
from headrace.runtime.merge import CONSTANT, Unmergeable
from headrace.runtime.places import End, Key, Place
from headrace.runtime.program import Agcu, Config, Launch, Program
from headrace.runtime.schedule import Action, ConfigPlan, Copy, Indexed, Run, pcu_at

Array = np.ndarray[Any, np.dtype[Any]]
Step = tuple[Callable[..., Any], tuple[Any, ...]]


@dataclass
class Part:
    """Some steps of a launch that belong together. Those of a run have the iterations `at` of its outer loops, the ops
    in order, and the arrays of values in memory: what it reads, what of that never changes, and what it writes."""

    launch: int
    steps: list[Step]
    plan: ConfigPlan | None = None
    run: Run | None = None
    at: tuple[int, ...] = ()
    ops: list[chain.Op] = field(default_factory=list[chain.Op])
    inputs: dict[Key, Array] = field(default_factory=dict[Key, Array])
    outputs: dict[Key, Array] = field(default_factory=dict[Key, Array])
    fixed: set[Key] = field(default_factory=set[Key])


class Plan:
    """A bound program: `run` executes every launch. `report` has a line for every config that runs literally and why;
    `regions` are the flat arrays of the program's regions."""

    def __init__(self, binder: _Binder, regions: list[Array], own: dict[tuple[int, int], Array], nbytes: int) -> None:
        self.regions = regions
        self.arena_bytes = nbytes
        self.packs = binder.packs
        self._binder = binder
        self._own = own
        self._launches = [binder.bind_launch(i, regions, own) for i in range(len(binder.plans))]
        self.steps = [step for steps in self._launches for step in steps]
        configs = binder.program.configs
        self.report = list(
            dict.fromkeys(
                f"config '{configs[launch.config].name}' runs literally: {plan}"
                for launch, plan in binder.plans
                if isinstance(plan, str)
            )
        )

    @property
    def scratch_bytes(self) -> int:
        """Bytes of the memory that single calls use."""
        return self._binder.scratch.nbytes

    def run(self) -> None:
        """Run every launch once."""
        run_steps(self.steps)

    def parts(self) -> Iterator[Part]:
        """What a run does, part by part, bound anew: for tools that look at the values in memory. The steps of a part
        are to be run before the next part is asked for."""
        for i in range(len(self._binder.plans)):
            yield from self._binder.parts(i, self.regions, self._own)
        yield Part(-1, self.steps[sum(map(len, self._launches)) :])

    def steps_on(self, replaced: Mapping[int, Array]) -> list[Step]:
        """The steps with other flat arrays in place of some regions that are only read; all else is shared."""
        regions = list(self.regions)
        for r, array in replaced.items():
            regions[r] = array
        found: list[Step] = []
        for i, (launch, _) in enumerate(self._binder.plans):
            touched = any(r in replaced for r, _ in launch.args)
            found += self._binder.bind_launch(i, regions, self._own) if touched else self._launches[i]
        return found


def run_steps(steps: Sequence[Step]) -> None:
    """Run bound calls. Exponentials overflow on purpose, so no floating-point warnings."""
    with np.errstate(all="ignore"):
        for f, args in steps:
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
                plan = ConfigPlan(joined(program.configs[launch.config]), key[1])
                form_groups(plan)
                plan.find_lives()
                known[key] = plan
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
    shared: Plan | None = None,
) -> Plan:
    """Allocate all memory and bind every launch. `weights` gives a weight's array by key; `plans` are those of
    `plan_configs` if at hand; `shared` (another plan of the same program) lends its weights."""
    if literal_only:
        plans = [(launch, "literal execution was asked for") for launch in program.launches]
    elif plans is None:
        plans = plan_configs(program)
    binder = _Binder(program, plans, shared.packs if shared is not None else None)
    regions, own, nbytes = binder.allocate(weights, shared.regions if shared is not None else None)
    return Plan(binder, regions, own, nbytes)


class _Margins:
    """Arrays with cells that nobody writes. They are set once, here; such an array serves several places in turn if
    those leave the same cells alone."""

    def __init__(self) -> None:
        self._arrays: dict[Any, list[tuple[int, Array]]] = {}  # (last step in use, array)

    def take(self, place: Place, first: int, last: int) -> Array:
        """The array of a place that is live from step `first` to `last`; steps come in ascending order."""
        slots = self._arrays.setdefault((place.signature, place.dtype, place.fill, place.elements), [])
        for n, (busy, array) in enumerate(slots):
            if busy < first:
                slots[n] = (last, array)
                return array
        array = arena.aligned(place.nbytes).view(dtypes.to_numpy(place.dtype))
        array[...] = place.fill
        slots.append((last, array))
        return array


class _Binder:
    """Binds one program."""

    def __init__(self, program: Program, plans: Sequence[tuple[Launch, ConfigPlan | str]], packs: Packs | None) -> None:
        self.program = program
        self.plans = plans
        self.scratch = Scratch()
        self.packs = packs if packs is not None else Packs()

    def bind_launch(self, i: int, regions: Sequence[Array], own: Mapping[tuple[int, int], Array]) -> list[Step]:
        """Steps of launch i on the arrays of the regions and of its own places."""
        return [step for part in self.parts(i, regions, own) for step in part.steps]

    def parts(self, i: int, regions: Sequence[Array], own: Mapping[tuple[int, int], Array]) -> Iterator[Part]:
        """What launch i does, in order."""
        launch, plan = self.plans[i]
        config = self.program.configs[launch.config]
        if isinstance(plan, str):
            views = [
                regions[r][at : at + p.type.elements] for p, (r, at) in zip(config.params, launch.args, strict=True)
            ]
            yield Part(i, [(literal.run_config, (config, views))])
            return
        none = (np.empty(0, np.uint8), 0)
        flats = [
            (regions[launch.args[p.param][0]], launch.args[p.param][1])
            if p.param >= 0
            else (own[i, k], 0)
            if (i, k) in own
            else none
            for k, p in enumerate(plan.places)
        ]
        constant = frozenset(k for k, (r, _) in enumerate(launch.args) if self.program.regions[r].kind == "weight")
        for action in plan.actions:
            yield from self._parts_of(i, plan, action, flats, constant)

    # Memory

    def allocate(
        self, weights: Callable[[str], Array], shared: Sequence[Array] | None
    ) -> tuple[list[Array], dict[tuple[int, int], Array], int]:
        """Arrays of all regions and of each launch's own places (launch, place), and the arena's size in bytes."""
        starts: list[int] = []
        end = 0
        for _, plan in self.plans:
            starts.append(end)
            end += 1 if isinstance(plan, str) else len(plan.actions) + 1
        requests: list[arena.Request] = []
        wanted: list[tuple[int, int, int, str]] = []  # (launch or -1, place or region, elements, dtype)
        regions: list[Array | None] = [None] * len(self.program.regions)
        lives = self._region_lives(starts, end)
        for r, region in enumerate(self.program.regions):
            if region.kind == "weight":
                given = shared[r] if shared is not None else None
                regions[r] = given if given is not None else _weight(region.key, region.type, weights)
            elif region.kind == "state":
                regions[r] = np.zeros(region.type.elements, dtypes.to_numpy(region.type.dtype))
            else:
                nbytes = region.type.elements * dtypes.byte_size(region.type.dtype)
                requests.append(arena.Request(nbytes, *lives[r]))
                wanted.append((-1, r, region.type.elements, region.type.dtype))
        own: dict[tuple[int, int], Array] = {}
        margins = _Margins()
        for i, (_, plan) in enumerate(self.plans):
            if isinstance(plan, str):
                continue
            for k, place in enumerate(plan.places):
                if place.param >= 0 or place.last < 0:
                    continue
                first, last = starts[i] + place.first, starts[i] + place.last
                if place.signature is None:
                    requests.append(arena.Request(place.nbytes, first, last))
                    wanted.append((i, k, place.elements, place.dtype))
                else:
                    own[i, k] = margins.take(place, first, last)
        offsets, nbytes = arena.pack(requests)
        block = arena.aligned(nbytes)
        for (launch, which, count, dtype), offset in zip(wanted, offsets, strict=True):
            array = np.ndarray((count,), dtypes.to_numpy(dtype), block, offset)
            if launch >= 0:
                own[launch, which] = array
            else:
                regions[which] = array
                if self.program.regions[which].kind == "output":
                    array[...] = 0
        found = [r for r in regions if r is not None]
        assert len(found) == len(regions)
        return found, own, nbytes

    def _region_lives(self, starts: Sequence[int], end: int) -> list[tuple[int, int]]:
        """First and last step at which each region holds something: temporary ones from the first use to the last,
        those that the caller sees all the time."""
        lives = [(1 << 30, -1)] * len(self.program.regions)
        for start, (launch, plan) in zip(starts, self.plans, strict=True):
            for k, (r, _) in enumerate(launch.args):
                first, last = (0, 0) if isinstance(plan, str) else (plan.places[k].first, plan.places[k].last)
                if last >= 0:
                    lives[r] = min(lives[r][0], start + first), max(lives[r][1], start + last)
        seen = {port.region for port in (*self.program.inputs, *self.program.outputs)}
        for r, region in enumerate(self.program.regions):
            if region.kind != "temp" or r in seen or lives[r][1] < 0:
                lives[r] = (0, end)
        return lives

    # Actions

    def _parts_of(
        self,
        launch: int,
        plan: ConfigPlan,
        action: Action,
        flats: Sequence[tuple[Array, int]],
        constant: frozenset[int],
    ) -> Iterator[Part]:
        match action:
            case Run():
                for at in _chunks(plan, action):
                    yield self._bind_run(launch, plan, action, at, flats, constant)
            case Group():
                for at in _chunks(plan, action.runs[0]):
                    for run in action.runs:
                        yield self._bind_run(launch, plan, run, at, flats, constant)
            case Copy():
                arrays = _at(flats, action.target, action.shape), _at(flats, action.source, action.shape)
                yield Part(launch, [(np.copyto, arrays)])
            case Indexed():
                table, base = flats[action.table]
                rows = table[base : base + prod(action.rows)].reshape(action.rows)
                index = _at(flats, action.index.source, action.index.shape)
                other = _at(flats, action.target, action.shape)
                f = _scatter if action.scatter else _gather
                yield Part(launch, [(f, (rows, index, other, action.name))])

    def _bind_run(
        self,
        launch: int,
        plan: ConfigPlan,
        run: Run,
        at: tuple[int, ...],
        flats: Sequence[tuple[Array, int]],
        constant: frozenset[int],
    ) -> Part:
        """Calls of one chunk of a run; `at` are the indices of its outer loops, `constant` the places that never
        change."""
        arrays: dict[Key, Array] = {}
        outputs: dict[Key, Array] = {}
        fixed: set[Key] = set()
        for bindings, target in ((run.inputs, arrays), (run.outputs, outputs)):
            for key, binding in bindings.items():
                counts = plan.counts(binding.unit, run.loops, run.block)
                index = (*at, *(0,) * (len(counts) - len(at)))
                target[key] = _at(flats, binding.end, binding.shape(counts), binding.shift(index))
                if binding.end.place in constant:
                    fixed.add(key)
        ops: list[chain.Op] = []
        for u in run.units:
            unit = pcu_at(plan.config, u)
            merged = plan.merged(u, plan.counts(u, run.loops, run.block))
            for port in range(unit.inputs):
                if (u, port) in run.moved:
                    ops.extend(_moved(plan, run, u, port))
            for op, attrs in zip(unit.ops, merged.attrs, strict=True):
                if op.name == CONSTANT:
                    key = (u, op.results[0])
                    arrays[key] = chain.constant(attrs, unit.types[op.results[0]])
                    fixed.add(key)
                    continue
                operands = tuple(run.key(plan.source(u, v)) for v in op.operands)
                ops.append(chain.Op(op.name, attrs, operands, tuple((u, v) for v in op.results)))
        steps = bind_chain(ops, arrays, outputs, self.scratch, fixed, self.packs)
        return Part(launch, steps, plan, run, at, ops, arrays, outputs, fixed)


def _moved(plan: ConfigPlan, run: Run, u: int, port: int) -> list[chain.Op]:
    """Ops that make an input out of another value of its run; none where it is that value."""
    key, movement = run.moved[u, port]
    if movement and run.loops:  # of what is joined in a block
        shape = plan.merged(u, plan.counts(u, run.loops, run.block)).types[port].shape
        movement = plan.movement(u, port, run.loops, run.block) or (("tensor.reshape", {"shape": shape}),)
    found: list[chain.Op] = []
    before: Any = run.key(key)
    for i, (name, attrs) in enumerate(movement):
        after: Any = (u, port) if i == len(movement) - 1 else (u, port, i)
        found.append(chain.Op(name, attrs, (before,), (after,)))
        before = after
    return found


def _chunks(plan: ConfigPlan, run: Run) -> list[tuple[int, ...]]:
    """First indices of the outer loops of every chunk, in order."""
    counts = plan.domains[run.units[0]].time[: run.loops]
    steps = [1] * (run.loops - 1) + [run.block] if run.loops else []
    found: list[tuple[int, ...]] = [()]
    for count, step in zip(counts, steps, strict=True):
        found = [(*at, i) for at in found for i in range(0, count, step)]
    return found


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
    table[index] = rows
