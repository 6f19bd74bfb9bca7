"""Cache-sized chunks: runs that hand large arrays to each other go through their outer loops together.

Attention is the case in point: scores of all heads are large, those of one head stay in cache while they are made,
normalised and used. The buffers between the units say what is allowed: a reader's frame needs only the same frame of
the writer, so frames may run one after the other, and an array between the runs needs to hold one chunk only.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from headrace.dialects.support import dtypes
from headrace.runtime.places import Binding, Place
from headrace.runtime.schedule import MOST_ITERATIONS, Action, ConfigPlan, Group, Run, pcu_at

TARGET = 512 << 10
"""Bytes that the arrays between the ops of a chunk may take: what a core's own cache holds."""
ROWS = 128
"""Fewest rows of a matrix product that reuses an operand from chunk to chunk: smaller ones pay for reading it
again."""


def form_groups(plan: ConfigPlan) -> None:
    """Rewrite the actions of a plan: neighbouring runs become groups where that keeps their traffic in cache."""
    actions: list[Action] = []
    rest = list(plan.actions)
    while rest:
        action = rest.pop(0)
        if not isinstance(action, Run):
            actions.append(action)
            continue
        runs, loops = _extend(plan, action, rest)
        chunk = _choose(plan, runs, loops)
        while chunk is None and len(runs) > 1:  # without the last run more loops may be shared
            runs = runs[:-1]
            loops = _shared(plan, runs)
            chunk = _choose(plan, runs, loops)
        if chunk is None or len(runs) == 1:
            if chunk is not None:
                action.loops, action.block = chunk
            actions.append(action)
            continue
        for run in runs:
            run.loops, run.block = chunk
        passed = rest[: next(i for i, a in enumerate(rest) if a is runs[-1]) + 1]
        actions.extend(a for a in passed if not isinstance(a, Run))  # these need nothing of the group
        actions.append(Group(runs))
        del rest[: len(passed)]
    plan.actions = actions
    _shrink(plan)


def _extend(plan: ConfigPlan, first: Run, rest: Sequence[Action]) -> tuple[list[Run], int]:
    """The longest sequence of runs from `first` that share outer loops, each using what an earlier one made. Between
    them may lie copies that use nothing of theirs: those can go first."""
    runs, loops = [first], _shared(plan, [first])
    for action in rest:
        used = {p for run in runs for p in plan.touches(run)}
        if not isinstance(action, Run):
            if used & set(plan.touches(action)):
                break
            continue
        longer = _shared(plan, [*runs, action])
        if longer == 0 or not _made(runs) & {b.end.place for b in action.inputs.values()}:
            break
        runs, loops = [*runs, action], longer
    return runs, loops


def _made(runs: Sequence[Run]) -> set[int]:
    return {b.end.place for run in runs for b in run.outputs.values()}


def _shared(plan: ConfigPlan, runs: Sequence[Run]) -> int:
    """How many outer time loops the runs can go through together."""
    times = [plan.domains[u].time for run in runs for u in run.units]
    loops = 0
    while all(len(t) > loops for t in times) and len({t[loops] for t in times}) == 1:
        loops += 1
    for run in runs:
        for u, port in run.moved:
            loops = min(loops, plan.frames(plan.into[u][port].src))
    written = _made(runs)
    for place in sorted(written):
        users = [run for run in runs if place in plan.touches(run)]
        if len(users) > 1:
            loops = min(loops, _aligned(plan, place, loops))
    return loops


def _aligned(plan: ConfigPlan, place: int, loops: int) -> int:
    """How many of the outer loops keep frames of a place apart."""
    homes = [u for u, home in plan.homes.items() if home.place == place]
    if not homes:
        return loops if plan.places[place].param < 0 else 0
    if len(homes) > 1 or plan.homes[homes[0]].digits is not None or plan.places[place].param >= 0:
        return 0
    return plan.frames(homes[0])


def _choose(plan: ConfigPlan, runs: Sequence[Run], loops: int) -> tuple[int, int] | None:
    """Number of outer loops to run one after the other and the block of the last; None to run everything at once."""
    need = max(run.loops for run in runs)
    if len(runs) == 1:
        return (need, 1) if need else None  # within a run the kernels cut what goes from op to op
    if need > loops:
        return None
    whole = _traffic(plan, runs)
    if whole <= TARGET and not need:
        return None
    counts = plan.domains[runs[0].units[0]].time
    fits: tuple[float, tuple[int, int]] | None = None
    smallest: tuple[float, tuple[int, int]] | None = None
    for last in range(max(need, 1) - 1, loops):
        for block in range(1, counts[last] + 1):
            if counts[last] % block or (last == need - 1 and block > 1):
                continue
            iterations = prod(counts[:last]) * (counts[last] // block)
            if iterations == 1 or iterations > MOST_ITERATIONS:
                continue
            if not _worth(plan, runs, last + 1, block) or not _moves(plan, runs, last + 1, block):
                continue
            size = whole / iterations
            if size <= TARGET and (fits is None or size > fits[0]):
                fits = size, (last + 1, block)
            if smallest is None or size < smallest[0]:
                smallest = size, (last + 1, block)
    if fits is not None:
        return fits[1]
    if smallest is not None and (need or smallest[0] < whole / 2):
        return smallest[1]
    return None


def _traffic(plan: ConfigPlan, runs: Sequence[Run]) -> int:
    """Bytes of the arrays that the runs hand from op to op: buffers that only they use, and products inside a run."""
    total = 0
    inside = _private(plan, runs)
    total += sum(plan.places[place].nbytes for place in inside)
    for run in runs:
        for u in run.units:
            unit = pcu_at(plan.config, u)
            scale = prod(plan.domains[u].counts)
            for op in unit.ops:
                if op.name in ("tensor.matmul", "tensor.conv") and (u, op.results[0]) not in run.outputs:
                    type = unit.types[op.results[0]]
                    total += type.elements * dtypes.byte_size(type.dtype) * scale
    return total


def _private(plan: ConfigPlan, runs: Sequence[Run]) -> list[int]:
    """Places of the config's own that only these runs touch."""
    flat = [a for action in plan.actions for a in (action.runs if isinstance(action, Group) else [action])]
    others = {p for a in flat if not any(a is r for r in runs) for p in plan.touches(a)}
    touched = {p for run in runs for p in plan.touches(run)}
    return sorted(p for p in touched - others if plan.places[p].param < 0 and plan.places[p].signature is None)


def _worth(plan: ConfigPlan, runs: Sequence[Run], loops: int, block: int) -> bool:
    """Whether no product becomes thin: one that reuses an operand in every chunk keeps `ROWS` rows."""
    for run in runs:
        for u in run.units:
            unit = pcu_at(plan.config, u)
            counts = plan.counts(u, loops, block)
            chunked = [i for i, n in enumerate(plan.domains[u].counts[:loops]) if counts[i] < n]
            products = [op for op in unit.ops if op.name == "tensor.matmul"]
            if not products:
                continue
            merged = plan.merged(u, counts)
            for op in products:
                reused = any(
                    merged.moves[v][i] is None and plan.merged(u, plan.counts(u, plan.needs[u], 1)).moves[v][i] is None
                    for v in op.operands
                    for i in chunked
                )
                shape = merged.types[op.results[0]].shape
                rows = shape[-2] if len(shape) > 1 else 1
                whole = joined_rows(plan, u, op.results[0])
                if reused and rows < min(ROWS, whole):
                    return False
    return True


def _moves(plan: ConfigPlan, runs: Sequence[Run], loops: int, block: int) -> bool:
    """Whether what runs use as it is made can be moved block by block."""
    return all(plan.movement(u, port, loops, block) is not None for run in runs for u, port in run.moved)


def joined_rows(plan: ConfigPlan, u: int, v: int) -> int:
    """Rows of a product when everything that can be joined is."""
    shape = plan.merged(u, plan.counts(u, plan.needs[u], 1)).types[v].shape
    return shape[-2] if len(shape) > 1 else 1


def _shrink(plan: ConfigPlan) -> None:
    """Let places that only one group uses hold one chunk, where the addresses of a chunk lie close together."""
    for action in plan.actions:
        if not isinstance(action, Group):
            continue
        for place in _private(plan, action.runs):
            _shrink_place(plan, action, plan.places[place], place)


def _shrink_place(plan: ConfigPlan, group: Group, found: Place, place: int) -> None:
    low, high = found.elements, 0
    uses: list[tuple[Run, bool, tuple[int, int], Binding]] = []
    shifts: set[tuple[int, ...]] = set()
    for run in group.runs:
        for made, bindings in ((False, run.inputs), (True, run.outputs)):
            for key, binding in bindings.items():
                if binding.end.place != place:
                    continue
                shape = binding.shape(plan.counts(binding.unit, run.loops, run.block))
                reach = [(n - 1) * s for n, s in zip(shape, binding.end.strides, strict=True)]
                low = min(low, binding.end.offset + sum(x for x in reach if x < 0))
                high = max(high, binding.end.offset + sum(x for x in reach if x > 0))
                moves = binding.moves[: run.loops]
                shifts.add(tuple(0 if m is None else m[1] * binding.end.strides[m[0]] for m in moves))
                uses.append((run, made, key, binding))
    if len(shifts) != 1 or high - low + 1 >= found.elements or high < low:
        return
    found.elements = high - low + 1
    for run, made, key, binding in uses:
        (run.outputs if made else run.inputs)[key] = binding.fixed(low, run.loops)
