"""What one compute unit can hold of a stage body, and what a tile of it costs there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from headrace.dialects.machine.cost import Cost, body_ops, matmul, reduce, simd
from headrace.dialects.machine.device import Device
from headrace.dialects.tensor.shapes import TT, flops
from headrace.passes.analysis.bodies import Body, NumberedOp

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
# Function counts per element of composites that a unit runs whole: what their decompositions do, by name.
PROGRAMS: dict[str, dict[str, int]] = {
    "gelu": {"mul": 2, "add": 1, "erf": 1},
    "silu": {"mul": 1, "sigmoid": 1},
    "softplus": {"exp": 1, "add": 1, "log": 1},
    "softmax": {"sub": 1, "exp": 1, "mul": 1},
    "log_softmax": {"sub": 2, "exp": 1, "log": 1},
    "layer_norm": {"sub": 1, "mul": 3, "add": 1, "rsqrt": 1},
    "rms_norm": {"mul": 3, "rsqrt": 1},
    "batch_norm": {"sub": 1, "mul": 2, "add": 1, "rsqrt": 1},
    "group_norm": {"sub": 1, "mul": 3, "add": 1, "rsqrt": 1},
}
REDUCTION_PASSES = {"softmax": 2, "log_softmax": 2, "layer_norm": 2, "rms_norm": 1, "group_norm": 2, "attention": 2}
TAIL_BODY_OPS = 2  # bias and scale: what the tail of a systolic unit does besides one transcendental


def stem(op: NumberedOp) -> str:
    """The op's name without the dialect."""
    return op.name.removeprefix("tensor.")


def functions(op: NumberedOp) -> dict[str, int]:
    """Functions per result element, by name."""
    return PROGRAMS.get(stem(op), {stem(op): 1})


@dataclass(frozen=True)
class Piece:
    """Consecutive ops of a body that one unit runs: `mode` systolic or simd."""

    mode: str
    ops: tuple[int, ...]


def pieces(body: Body, device: Device) -> list[Piece]:
    """Cut a body into what one unit holds each: a contraction with what fits its tail; elementwise runs of at most
    `stages` body ops; every reducing op by itself with elementwise ops after it that fit."""
    found: list[Piece] = []
    current: list[int] = []
    mode, left, tail = "simd", device.pcu.stages, 1

    def close() -> None:
        if current:
            found.append(Piece(mode, tuple(current)))
            current.clear()

    for i, op in enumerate(body.ops):
        if not op.operands:
            continue
        need, tails = body_ops(device, functions(op))
        if op.name in CONTRACTIONS:
            close()
            mode, left, tail = "systolic", TAIL_BODY_OPS, 1
            current.append(i)
            continue
        if op.name in REDUCING:
            close()
            mode, left, tail = "simd", device.pcu.stages, 1
            current.append(i)
            left -= need
            tail -= tails
            continue
        if current and (need > left or tails > tail):
            close()
        if not current:
            mode, left, tail = "simd", device.pcu.stages, 1
        current.append(i)
        left -= need
        tail -= tails
    close()
    return found or [Piece("simd", ())]


def op_cost(op: NumberedOp, types: Sequence[TT], device: Device) -> Cost:
    """Cycles of one op on one unit for one tile."""
    ins, outs = [types[v] for v in op.operands], [types[v] for v in op.results]
    out = outs[0]
    if op.name == "tensor.matmul":
        k = ins[0].shape[-1]
        n = out.shape[-1] if len(ins[1].shape) > 1 and out.shape else 1
        m = max(1, (out.shape[-2] if len(out.shape) > 1 and len(ins[0].shape) > 1 else 1))
        return matmul(device, m, n, k, ins[0].dtype, batch=max(1, out.elements // max(1, m * n)))
    if op.name == "tensor.conv":
        k = prod(ins[1].shape[1:])
        return matmul(device, out.shape[0] * prod(out.shape[2:]), out.shape[1], k, ins[0].dtype)
    if op.name in REDUCING:
        passes = REDUCTION_PASSES.get(stem(op), 1)
        size = max(1, flops(op.name, op.attrs, ins, outs)) if "pool" in op.name else ins[0].elements
        across = ins[0].shape[-1:] != out.shape[-1:] or stem(op) in PROGRAMS
        results = max(1, prod(ins[0].shape[:-1]))
        cost = Cost(0.0, 0.0)
        for _ in range(passes):
            extra = reduce(device, size, results, ins[0].dtype, across_lanes=across)
            cost = Cost(cost.interval + extra.interval, cost.latency + extra.latency)
        if stem(op) in PROGRAMS:
            extra = simd(device, ins[0].elements, functions(op), ins[0].dtype)
            cost = Cost(cost.interval + extra.interval, cost.latency + extra.latency)
        return cost
    return simd(device, out.elements, functions(op), _compute_type(ins, out))


def _compute_type(ins: Sequence[TT], out: TT) -> str:
    return ins[0].dtype if ins else out.dtype


def piece_cost(body: Body, piece: Piece, types: Sequence[TT], device: Device) -> Cost:
    """Cycles of one tile through one unit that holds the piece: the contraction or reductions, and the elementwise ops
    beside them as one program."""
    total = Cost(0.0, 0.0)
    program: Counter[str] = Counter()
    elements, dtype = 0, ""
    for i in piece.ops:
        op = body.ops[i]
        if op.name in CONTRACTIONS or op.name in REDUCING:
            extra = op_cost(op, types, device)
            total = Cost(total.interval + extra.interval, total.latency + extra.latency)
            continue
        program.update(functions(op))
        out = types[op.results[0]]
        if out.elements >= elements:
            elements, dtype = out.elements, _compute_type([types[v] for v in op.operands], out)
    if program:
        extra = simd(device, elements, program, dtype)
        if piece.mode == "systolic":  # the tail works on one vector while the body makes the next
            return Cost(max(total.interval, extra.interval), total.latency + extra.latency - extra.interval)
        total = Cost(total.interval + extra.interval, total.latency + extra.latency)
    elif not piece.ops:
        out = types[body.outputs[0]]
        return simd(device, out.elements, {"copy": 1}, out.dtype)
    return total


def body_interval(body: Body, types: Sequence[TT], device: Device) -> float:
    """Cycles between tiles when every piece has one unit: the slowest piece."""
    return max(piece_cost(body, piece, types, device).interval for piece in pieces(body, device))
