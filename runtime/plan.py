"""The merged plan: a routed program as a flat list of NumPy calls on preallocated arrays.

`ConfigPlan` derives, once per config, what its units do on whole arrays: every flow's loops and address program
become a strided view, every PCU body one run of its ops on joined tiles (`merge`), every buffer an array of its whole
logical shape or, where an address generator fills or drains it with a plain copy, a view of the parameter itself.
`bind_program` places all arrays in one arena by liveness over the whole launch sequence and binds every launch. What
cannot be merged runs tile by tile (`literal`), and `Plan.report` says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from headrace.dialects.support import dtypes
from headrace.dialects.support.diagnostics import CompileError
from headrace.dialects.tensor.shapes import TT
from headrace.runtime import arena, chain, geometry, literal
from headrace.runtime.chunks import Group, form_groups
from headrace.runtime.merge import CONSTANT, Unmergeable
from headrace.runtime.places import End, Key
from headrace.runtime.program import Agcu, Config, Launch, Program
from headrace.runtime.schedule import Action, ConfigPlan, Copy, Indexed, Run, pcu_at

Array = np.ndarray[Any, np.dtype[Any]]
Step = tuple[Callable[..., Any], tuple[Any, ...]]


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
                plan = ConfigPlan(program.configs[launch.config], key[1])
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
        match action:
            case Run():
                for at in _chunks(plan, action):
                    steps.extend(self._bind_run(plan, action, at, flats))
            case Group():
                for at in _chunks(plan, action.runs[0]):
                    for run in action.runs:
                        steps.extend(self._bind_run(plan, run, at, flats))
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

    def _bind_run(
        self, plan: ConfigPlan, run: Run, at: Sequence[int], flats: Sequence[tuple[Array, int]]
    ) -> list[Step]:
        """Calls of one chunk of a run; `at` are the indices of its outer loops."""
        self.pool.reset()
        arrays: dict[Key, Array] = {}
        outputs: dict[Key, Array] = {}
        for bindings, target in ((run.inputs, arrays), (run.outputs, outputs)):
            for key, binding in bindings.items():
                counts = plan.counts(binding.unit, run.loops, run.block)
                index = (*at, *(0,) * (len(counts) - len(at)))
                target[key] = _at(flats, binding.end, binding.shape(counts), binding.shift(index))
        ops: list[chain.Op] = []
        for u in run.units:
            unit = pcu_at(plan.config, u)
            merged = plan.merged(u, plan.counts(u, run.loops, run.block))
            for op, attrs in zip(unit.ops, merged.attrs, strict=True):
                if op.name == CONSTANT:
                    arrays[u, op.results[0]] = chain.constant(attrs, unit.types[op.results[0]])
                    continue
                operands = tuple(plan.source(u, v) for v in op.operands)
                results = tuple((u, v) for v in op.results)
                ops.append(chain.Op(op.name, attrs, operands, results, tuple(merged.types[v] for v in op.results)))
        return chain.bind(ops, arrays, outputs, self.pool)


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
