"""Cycles of tensor ops on the compute units of a device: plain Python on types, no IR.

A unit's body is one contraction with elementwise ops in its tail (`systolic`), or reductions and one elementwise
program (`simd`). Composites that a unit runs whole count the functions of their decomposition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Protocol

from headrace.dialects.machine.cost import Cost, matmul, reduce, simd
from headrace.dialects.machine.device import Device
from headrace.dialects.tensor.shapes import TT, flops

CONTRACTIONS = frozenset({"tensor.matmul", "tensor.conv"})
REDUCING = frozenset(
    {
        "tensor.reduce_sum",
        "tensor.reduce_mean",
        "tensor.reduce_max",
        "tensor.reduce_min",
        "tensor.reduce_prod",
        "tensor.argmax",
        "tensor.argmin",
        "tensor.cumsum",
        "tensor.max_pool",
        "tensor.avg_pool",
        "tensor.softmax",
        "tensor.log_softmax",
        "tensor.layer_norm",
        "tensor.rms_norm",
        "tensor.batch_norm",
        "tensor.group_norm",
        "tensor.attention",
    }
)
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
"""Functions per element of composites, by name."""
REDUCTION_PASSES = {"softmax": 2, "log_softmax": 2, "layer_norm": 2, "rms_norm": 1, "group_norm": 2, "attention": 2}


class BodyOp(Protocol):
    """An op of a body: values are numbers into a list of types."""

    @property
    def name(self) -> str:
        """Full op name."""
        ...

    @property
    def attrs(self) -> Mapping[str, Any]:
        """Plain attributes."""
        ...

    @property
    def operands(self) -> Sequence[int]:
        """Numbers of the operands."""
        ...

    @property
    def results(self) -> Sequence[int]:
        """Numbers of the results."""
        ...


def functions(name: str) -> dict[str, int]:
    """Functions per result element of an elementwise op or composite."""
    stem = name.removeprefix("tensor.")
    return PROGRAMS.get(stem, {stem: 1})


def op_cost(op: BodyOp, types: Sequence[TT], device: Device) -> Cost:
    """Cycles of one op on one unit for one tile."""
    ins, outs = [types[v] for v in op.operands], [types[v] for v in op.results]
    out, stem = outs[0], op.name.removeprefix("tensor.")
    if op.name == "tensor.matmul":
        k = ins[0].shape[-1]
        n = out.shape[-1] if len(ins[1].shape) > 1 and out.shape else 1
        m = out.shape[-2] if len(out.shape) > 1 and len(ins[0].shape) > 1 else 1
        return matmul(device, m, n, k, ins[0].dtype, batch=max(1, out.elements // max(1, m * n)))
    if op.name == "tensor.conv":
        k = prod(ins[1].shape[1:])
        return matmul(device, out.shape[0] * prod(out.shape[2:]), out.shape[1], k, ins[0].dtype)
    if op.name not in REDUCING:
        return simd(device, out.elements, functions(op.name), ins[0].dtype if ins else out.dtype)
    size = max(1, flops(op.name, op.attrs, ins, outs)) if "pool" in op.name else ins[0].elements
    across = ins[0].shape[-1:] != out.shape[-1:] or stem in PROGRAMS
    results = max(1, prod(ins[0].shape[:-1]))
    parts = [reduce(device, size, results, ins[0].dtype, across_lanes=across)] * REDUCTION_PASSES.get(stem, 1)
    if stem in PROGRAMS:
        parts.append(simd(device, ins[0].elements, functions(op.name), ins[0].dtype))
    return Cost(sum(p.interval for p in parts), sum(p.latency for p in parts))


def body_cost(mode: str, ops: Sequence[BodyOp], types: Sequence[TT], outputs: Sequence[int], device: Device) -> Cost:
    """Cycles of one tile through one unit: contraction and reductions one after the other, the elementwise ops beside
    them as one program; in the tail of a systolic unit that program works while the body makes the next vector."""
    total = Cost(0.0, 0.0)
    program: Counter[str] = Counter()
    elements, dtype = 0, ""
    working = [op for op in ops if op.operands]
    for op in working:
        if op.name in CONTRACTIONS or op.name in REDUCING:
            extra = op_cost(op, types, device)
            total = Cost(total.interval + extra.interval, total.latency + extra.latency)
            continue
        program.update(functions(op.name))
        out = types[op.results[0]]
        if out.elements >= elements:
            elements, dtype = out.elements, types[op.operands[0]].dtype
    if not working:
        out = types[outputs[0]]
        return simd(device, out.elements, {"copy": 1}, out.dtype)
    if not program:
        return total
    extra = simd(device, elements, program, dtype)
    if mode == "systolic":
        return Cost(max(total.interval, extra.interval), total.latency + extra.latency - extra.interval)
    return Cost(total.interval + extra.interval, total.latency + extra.latency)
