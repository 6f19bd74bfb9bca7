"""What a body of tensor ops costs on one compute unit: cycles of a tile, and the vector words that its ports take.

Plain Python over (name, attributes, operand and result numbers) and tile types, so that the compiler asks about bodies
in the IR and the runtime about those of a program, with one answer. `dialects.machine.cost` has the formulas.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import ceil, prod
from typing import Any, NamedTuple, Protocol

from headrace.dialects.machine.collectives import Collective, collective
from headrace.dialects.machine.cost import Cost, body_ops, matmul, matmul_blocks, reduce, simd, words_of
from headrace.dialects.machine.device import Device
from headrace.dialects.support import dtypes
from headrace.dialects.tensor.shapes import TT, flops
from headrace.dialects.tensor.shapes.collective import COMMUNICATING, group_of
from headrace.dialects.tensor.shapes.reduction import sort_steps

CONTRACTIONS = frozenset({"tensor.matmul", "tensor.conv"})
REDUCING = frozenset(
    f"tensor.{n}"
    for n in [
        "reduce_sum",
        "reduce_mean",
        "reduce_max",
        "reduce_min",
        "reduce_prod",
        "argmax",
        "argmin",
        "cumsum",
        "sort",
        "max_pool",
        "avg_pool",
        "softmax",
        "log_softmax",
        "layer_norm",
        "rms_norm",
        "batch_norm",
        "group_norm",
        "attention",
    ]
)
"""Ops that combine elements across words or lanes: a unit holds one of them."""
ALONE = CONTRACTIONS | REDUCING | COMMUNICATING
"""Ops of which a unit holds one; elementwise ops behind it run as one program."""
PROGRAMS: dict[str, dict[str, int]] = {
    "gelu": {"mul": 2, "add": 1, "erf": 1},
    "silu": {"mul": 1, "sigmoid": 1},
    "softplus": {"exp": 1, "add": 1, "log": 1},
    "philox": {"mul": 5, "shift": 5, "and": 5, "xor": 10},
    "softmax": {"sub": 1, "exp": 1, "mul": 1},
    "log_softmax": {"sub": 2, "exp": 1, "log": 1},
    "layer_norm": {"sub": 1, "mul": 3, "add": 1, "rsqrt": 1},
    "rms_norm": {"mul": 3, "rsqrt": 1},
    "batch_norm": {"sub": 1, "mul": 2, "add": 1, "rsqrt": 1},
    "group_norm": {"sub": 1, "mul": 3, "add": 1, "rsqrt": 1},
}
"""Functions per element of the composites that a unit runs whole: what their decompositions do, by name."""
ROW_PASSES = {"softmax": 2, "log_softmax": 2, "layer_norm": 2, "rms_norm": 1, "group_norm": 2, "batch_norm": 0}
"""How often such a composite reduces its rows."""


class Op(Protocol):
    """An op of a body whose values are numbers: inputs first, then results in op order."""

    @property
    def name(self) -> str: ...
    @property
    def attrs(self) -> Mapping[str, Any]: ...
    @property
    def operands(self) -> tuple[int, ...]: ...
    @property
    def results(self) -> tuple[int, ...]: ...


class Contraction(NamedTuple):
    """A matmul or convolution as `batch` products of [m, k] × [k, n]."""

    m: int
    n: int
    k: int
    batch: int
    dtype: str


def stem(op: Op) -> str:
    """The op's name without the dialect."""
    return op.name.removeprefix("tensor.")


def functions(op: Op) -> dict[str, int]:
    """Functions per result element, by name."""
    return PROGRAMS.get(stem(op), {stem(op): 1})


def contraction(op: Op, types: Sequence[TT]) -> Contraction:
    """The products that a matmul or a convolution of these tile types makes."""
    a, b = types[op.operands[0]], types[op.operands[1]]
    out = types[op.results[0]]
    if op.name == "tensor.conv":
        groups = int(op.attrs.get("groups", 1))
        return Contraction(
            out.shape[0] * prod(out.shape[2:]), out.shape[1] // groups, prod(b.shape[1:]), groups, a.dtype
        )
    k = a.shape[-1] if a.shape else 1
    m = a.shape[-2] if len(a.shape) > 1 else 1
    n = b.shape[-1] if len(b.shape) > 1 else 1
    batch = out.elements // max(1, m * n)
    if all(size == 1 for size in b.shape[:-2]):  # one matrix for the whole batch: its products are rows of one
        m, batch = m * batch, 1
    return Contraction(max(1, m), max(1, n), k, max(1, batch), a.dtype)


def _times(cost: Cost, count: int) -> Cost:
    return Cost(cost.interval * count, cost.latency * count)


def _plus(a: Cost, b: Cost) -> Cost:
    return Cost(a.interval + b.interval, a.latency + b.latency)


def op_cost(op: Op, types: Sequence[TT], device: Device, *, steps: int = 1, units: int = 1) -> Cost:
    """Cycles of one op alone on one unit, for one tile. For a collective (`communication`): of what the unit combines,
    the links apart."""
    ins, outs = [types[v] for v in op.operands], [types[v] for v in op.results]
    if op.name in CONTRACTIONS:
        c = contraction(op, types)
        return matmul(device, c.m, c.n, c.k, c.dtype, batch=c.batch)
    if op.name == "tensor.attention":
        return _attention(ins, device)
    if op.name in REDUCING:
        return _reducing(op, ins, outs[0], device)
    if op.name in COMMUNICATING:
        combined = int(communication(op, types, device, steps=steps, units=units).combined * ins[0].elements)
        return simd(device, max(ins[0].elements, outs[0].elements, combined), {"add": 1}, compute_type(op, types))
    return simd(device, outs[0].elements, functions(op), compute_type(op, types))


def communication(op: Op, types: Sequence[TT], device: Device, *, steps: int = 1, units: int = 1) -> Collective:
    """What a collective takes of the links to other sockets for one tile on one unit, by the algorithm that is cheapest
    when so many units do so many steps each."""
    x, group = types[op.operands[0]], group_of(op.attrs)
    return collective(
        *(device, stem(op), x.elements, compute_type(op, types), x.elements * dtypes.byte_size(x.dtype)),
        *(group.sizes, group.strides),
        by=int(op.attrs.get("by", 1)),
        tiles=steps * units,
        units=units,
    )


def body_communication(
    ops: Iterable[Op], types: Sequence[TT], device: Device, *, steps: int = 1, units: int = 1
) -> Collective | None:
    """`communication` of the collective in a body of one unit, which holds one at most; None without one."""
    found = (communication(op, types, device, steps=steps, units=units) for op in ops if op.name in COMMUNICATING)
    return next(found, None)


def _attention(ins: Sequence[TT], device: Device) -> Cost:
    q, k, v = ins[:3]
    batch, rows, columns = prod(q.shape[:-2]), q.shape[-2], k.shape[-2]
    scores = matmul(device, rows, columns, q.shape[-1], q.dtype, batch=batch)
    size = batch * rows * columns
    weigh = _plus(
        _times(reduce(device, size, batch * rows, q.dtype, across_lanes=True), ROW_PASSES["softmax"]),
        simd(device, size, {**PROGRAMS["softmax"], "mul": 2}, q.dtype),
    )
    return _plus(_plus(scores, weigh), matmul(device, rows, v.shape[-1], columns, q.dtype, batch=batch))


def _reducing(op: Op, ins: Sequence[TT], out: TT, device: Device) -> Cost:
    name, first = stem(op), ins[0]
    if name in ROW_PASSES:
        axis = int(op.attrs.get("axis", -1)) % max(1, len(first.shape))
        last = axis == len(first.shape) - 1 or name == "group_norm"
        length = first.shape[axis] if first.shape and last else 1
        cost = reduce(device, first.elements, max(1, first.elements // max(1, length)), first.dtype, across_lanes=last)
        return _plus(_times(cost, ROW_PASSES[name]), simd(device, first.elements, functions(op), first.dtype))
    if name.endswith("_pool"):
        return reduce(device, flops(op.name, op.attrs, ins, [out]), out.elements, first.dtype, across_lanes=False)
    if name == "sort":  # each step of the network compares an element with its partner and keeps one, with its position
        steps = sort_steps(first.shape[int(op.attrs["axis"])])
        return simd(device, first.elements, {"less": steps, "select": 2 * steps}, first.dtype)
    if name == "cumsum":
        return reduce(device, first.elements, 1, first.dtype, across_lanes=True)
    across = first.shape[-1:] != out.shape[-1:]
    return reduce(device, first.elements, max(1, out.elements), first.dtype, across_lanes=across)


def compute_type(op: Op, types: Sequence[TT]) -> str:
    """The element type that an op computes in: that of its first operand."""
    return types[(op.operands or op.results)[0]].dtype


def body_cost(
    ops: Iterable[Op],
    types: Sequence[TT],
    mode: str,
    device: Device,
    *,
    copied: int = 0,
    steps: int = 1,
    units: int = 1,
) -> Cost:
    """Cycles of one tile through one unit that holds these ops: its contraction or reductions, and the elementwise ops
    beside them as one program, which the tail of a `systolic` unit runs while the body makes the next vector.

    A unit without ops passes `copied` elements on. `steps` and `units`: of the body, for a collective.
    """
    total = Cost(0.0, 0.0)
    program: Counter[str] = Counter()
    elements, dtype = 0, ""
    some = False
    for op in ops:
        if not op.operands:
            continue
        some = True
        if op.name in ALONE:
            total = _plus(total, op_cost(op, types, device, steps=steps, units=units))
            continue
        program.update(functions(op))
        out = types[op.results[0]]
        if out.elements >= elements:
            elements, dtype = out.elements, compute_type(op, types)
    if not some:
        lanes = ceil(copied / device.pcu.lanes)
        return Cost(float(lanes), float(lanes + device.pcu.stages))
    if program:
        extra = simd(device, elements, program, dtype)
        if mode == "systolic":
            return Cost(max(total.interval, extra.interval), total.latency + extra.latency - extra.interval)
        total = _plus(total, extra)
    return total


def op_shares(ops: Sequence[Op], types: Sequence[TT], device: Device) -> list[float]:
    """How a body's time divides over its ops: each op's cycles alone over those of all; constants take none."""
    each = [_alone(op, types, device) if op.operands else 0.0 for op in ops]
    total = sum(each)
    if total <= 0:
        live = [bool(op.operands) for op in ops]
        return [float(x) / max(1, sum(live)) for x in live]
    return [x / total for x in each]


def _alone(op: Op, types: Sequence[TT], device: Device) -> float:
    """Cycles of an op alone, those of its links to other sockets included."""
    cycles = op_cost(op, types, device).interval
    return cycles + communication(op, types, device).seconds * device.clock if op.name in COMMUNICATING else cycles


class Feed(NamedTuple):
    """What a unit asks of an input port for one tile: `words` in all, and the dim of the tile along which the lanes of
    a word lie (None: any)."""

    words: int
    lane_dim: int | None


def feed(ops: Iterable[Op], types: Sequence[TT], value: int, device: Device) -> Feed:
    """The vector words that a body takes of input `value` for one tile.

    An elementwise body takes every element once. A systolic array holds one block of the result and no operand, so an
    operand comes once for each block that needs it: a row of [m, k] again for every block of columns.
    """
    tile = types[value]
    nbytes = dtypes.byte_size(tile.dtype)
    best = Feed(words_of(device, tile.elements * nbytes), _last_dim(tile))
    for op in ops:
        if op.name not in CONTRACTIONS or value not in op.operands[:2]:
            continue
        c = contraction(op, types)
        rows, columns, lanes_on_rows = matmul_blocks(device, c.m, c.n)
        is_rows = value == op.operands[0]
        vector = words_of(device, device.pcu.lanes * nbytes)
        if is_rows == lanes_on_rows:
            words = rows * columns * c.k * c.batch * vector
            dim = _lane_dim(op, tile, is_rows)
        else:
            words = best.words * (columns if is_rows else rows)
            dim = None
        if words > best.words:
            best = Feed(words, dim)
        elif dim is None:
            best = Feed(best.words, None)
    return best


def _last_dim(tile: TT) -> int | None:
    return next((d for d in reversed(range(len(tile.shape))) if tile.shape[d] > 1), None)


def _lane_dim(op: Op, tile: TT, is_rows: bool) -> int | None:
    """The dim that holds rows of the product (of its first operand) or columns (of its second)."""
    rank = len(tile.shape)
    if op.name == "tensor.conv":
        return _last_dim(tile) if is_rows else 0
    dim = rank - 2 if is_rows else rank - 1
    return dim if dim >= 0 and tile.shape[dim] > 1 else None


def body_flops(ops: Iterable[Op], types: Sequence[TT]) -> int:
    """Floating-point operations of one tile."""
    return sum(
        flops(op.name, op.attrs, [types[v] for v in op.operands], [types[v] for v in op.results])
        for op in ops
        if op.operands
    )


TAIL_BODY_OPS = 2
"""Bias and scale: what the tail of a systolic unit does besides one transcendental."""


class Piece(NamedTuple):
    """What one unit holds of a body: `mode` systolic or simd, the numbers of its `ops` (constants, which go with what
    uses them, apart), and the values that it `sends` to others."""

    mode: str
    ops: tuple[int, ...]
    sends: tuple[int, ...]


def pieces(ops: Sequence[Op], outputs: Sequence[int], device: Device) -> list[Piece]:
    """Cut a body that gives the values `outputs` into what one unit holds each: a contraction with what fits its tail;
    elementwise runs of at most `stages` body ops; every reducing op and every collective by itself with elementwise ops
    after it that fit. A unit takes as many values as it has vector inputs, unless one op needs more, and sends as many
    as it has vector outputs. Outputs that no such op makes (constants, and inputs passed on) leave with a unit that has
    ports left.
    """
    found: list[Piece] = []
    current: list[int] = []
    mode, left, tail = "simd", device.pcu.stages, 1
    constants = {v for op in ops if not op.operands for v in op.results}

    def close() -> None:
        if current:
            found.append(Piece(mode, tuple(current), tuple(sent(current))))
            current.clear()

    last = {v: i for i, op in enumerate(ops) for v in op.operands}
    last.update(dict.fromkeys(outputs, len(ops)))

    def sent(members: Sequence[int]) -> list[int]:
        return [v for i in members for v in ops[i].results if last.get(v, -1) > members[-1]]

    def taken(members: Sequence[int]) -> set[int]:
        made = {v for i in members for v in ops[i].results}
        return {v for i in members for v in ops[i].operands} - made - constants

    def has_ports(members: Sequence[int]) -> bool:
        return len(taken(members)) <= device.pcu.inputs and len(sent(members)) <= device.pcu.outputs

    for i, op in enumerate(ops):
        if not op.operands:
            continue
        need, tails = body_ops(device, functions(op))
        if op.name in CONTRACTIONS:
            close()
            mode, left, tail = "systolic", TAIL_BODY_OPS, 1
            current.append(i)
            continue
        if op.name in REDUCING or op.name in COMMUNICATING:
            close()
            mode, left, tail = "simd", device.pcu.stages, 1
        elif current and (need > left or tails > tail or not has_ports([*current, i])):
            close()
        if not current:
            mode, left, tail = "simd", device.pcu.stages, 1
        current.append(i)
        left -= need
        tail -= tails
    close()

    def has_room(part: Piece, v: int) -> bool:
        takes = {*taken(part.ops), *(x for x in (*part.sends, v) if x not in made)}
        return len(takes) <= device.pcu.inputs and len(part.sends) < device.pcu.outputs

    made = {v for op in ops for v in op.results}
    found = found or [Piece("simd", (), ())]
    sent_already = {v for part in found for v in part.sends}
    for v in dict.fromkeys(outputs):
        if v in sent_already:
            continue
        users = [n for n, part in enumerate(found) if any(v in ops[i].operands for i in part.ops)]
        n = next((n for n in (*users, *range(len(found))) if has_room(found[n], v)), len(found))
        if n == len(found):
            found.append(Piece("simd", (), ()))
        found[n] = found[n]._replace(sends=(*found[n].sends, v))
    return found
