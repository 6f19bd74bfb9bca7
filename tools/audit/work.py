"""Cycles of a config's units in a run, from bodies, tiles and the numbers of the device: the slowest of them sets the
rate at which the links are loaded."""

from __future__ import annotations

from collections import Counter
from math import ceil, log2, prod

from headrace.dialects.machine.collectives import Collective, collective
from headrace.dialects.machine.device import Device
from headrace.dialects.support.access import Stream
from headrace.dialects.support.dtypes import byte_size
from headrace.dialects.tensor.shapes import TT
from headrace.tools.audit.program import BodyOp, Buffer, Compute, Config, Flow, Generator
from headrace.tools.audit.words import CONTRACTIONS, blocks, product_of, words_of_site

FUNCTIONS = {
    "gelu": Counter(mul=2, add=1, erf=1),
    "silu": Counter(mul=1, sigmoid=1),
    "softplus": Counter(exp=1, add=1, log=1),
    "philox": Counter({"mul": 5, "shift": 5, "and": 5, "xor": 10}),
    "softmax": Counter(sub=1, exp=1, mul=1),
    "log_softmax": Counter(sub=2, exp=1, log=1),
    "layer_norm": Counter(sub=1, mul=3, add=1, rsqrt=1),
    "rms_norm": Counter(mul=3, rsqrt=1),
    "batch_norm": Counter(sub=1, mul=2, add=1, rsqrt=1),
    "group_norm": Counter(sub=1, mul=3, add=1, rsqrt=1),
}
"""What a unit computes for each element of an op that it runs as several functions."""
REDUCTIONS = {"softmax": 2, "log_softmax": 2, "layer_norm": 2, "rms_norm": 1, "group_norm": 2, "batch_norm": 0}
"""How often such an op combines the elements of its rows."""
COMBINING = ("reduce_", "arg", "cumsum", "sort", "max_pool", "avg_pool", "attention")


BETWEEN_SOCKETS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "permute")
"""Ops that sockets do together."""


def stem(op: BodyOp) -> str:
    """The name of an op without its dialect."""
    return op.name.removeprefix("tensor.")


def combines(op: BodyOp) -> bool:
    """Whether an op combines elements across lanes, words or sockets, without being a contraction."""
    return stem(op) in REDUCTIONS or stem(op) in BETWEEN_SOCKETS or stem(op).startswith(COMBINING)


def functions_of(op: BodyOp) -> Counter[str]:
    """Functions for each element, by name."""
    return FUNCTIONS.get(stem(op), Counter({stem(op): 1}))


def passes(functions: Counter[str], device: Device) -> tuple[int, int]:
    """Stages of the body and passes through the tail that functions take for an element."""
    cost = dict(device.pcu.expansion)
    tail = sum(n for name, n in functions.items() if name in device.pcu.tail)
    body = sum(n * cost.get(name, 0 if name in device.pcu.tail else 1) for name, n in functions.items())
    return body, tail


def interval(unit: Compute, device: Device, steps: int) -> float:
    """Cycles from tile to tile of a unit, the links to other sockets apart."""
    ops = [op for op in unit.ops if op.operands]
    if not ops:  # what it takes is sent on
        return ceil(max((unit.types[v].elements for v in unit.outputs), default=0) / device.pcu.lanes)
    size = steps, unit.size
    heavy = sum(_combining(op, unit.types, device, size) for op in ops if op.name in CONTRACTIONS or combines(op))
    light = [op for op in ops if op.name not in CONTRACTIONS and not combines(op)]
    if not light:
        return heavy
    widest = max(unit.types[op.results[0]].elements for op in light)
    last = [op for op in light if unit.types[op.results[0]].elements == widest][-1]
    program = sum((functions_of(op) for op in light), Counter[str]())
    beside = _elementwise(program, widest, unit.types[last.operands[0]].dtype, device)
    return max(heavy, beside) if unit.mode == "systolic" else heavy + beside


def _elementwise(functions: Counter[str], elements: int, dtype: str, device: Device) -> float:
    body, tail = passes(functions, device)
    rounds = max(1, ceil(body / device.pcu.stages)) / device.simd_rate(dtype)
    return ceil(elements / device.pcu.lanes) * max(rounds, tail / device.pcu.tail_rate if tail else 0)


def _reduce(elements: int, results: int, across: bool, dtype: str, device: Device) -> float:
    """`across` lanes every result takes whole words; else the lanes hold results, and each element is a step."""
    lanes = device.pcu.lanes
    length = ceil(elements / max(1, results))
    words = results * ceil(length / lanes) if across else ceil(results / lanes) * length
    return words / device.simd_rate(dtype)


def _product(batch: int, m: int, n: int, k: int, count: int, dtype: str, device: Device) -> float:
    """Blocks that are drained while the next one is computed."""
    return count * batch * max(k / device.systolic_rate(dtype), device.pcu.stages) if m and n else 0.0


def exchange(op: BodyOp, types: tuple[TT, ...], device: Device, steps: int, units: int) -> Collective:
    """What an op between sockets takes for one tile on one unit."""
    x = types[op.operands[0]]
    sizes, strides = ([int(n) for n in op.attrs[name]] for name in ("sizes", "strides"))
    nbytes, by = x.elements * byte_size(x.dtype), int(op.attrs.get("by", 1))
    size = {"tiles": steps * units, "units": units}
    return collective(device, stem(op), x.elements, x.dtype, nbytes, sizes, strides, by=by, **size)


def _combining(op: BodyOp, types: tuple[TT, ...], device: Device, size: tuple[int, int]) -> float:
    ins, out = [types[v] for v in op.operands], types[op.results[0]]
    first, name = ins[0], stem(op)
    if op.name in CONTRACTIONS:
        rows, columns, _ = blocks(op, types, device)
        return _product(*product_of(op, types), rows * columns, first.dtype, device)
    if name in BETWEEN_SOCKETS:
        combined = int(exchange(op, types, device, *size).combined * first.elements)
        return _elementwise(Counter(add=1), max(first.elements, out.elements, combined), first.dtype, device)
    if name == "attention":
        return _attention(ins, device)
    if name in REDUCTIONS:
        rank = len(first.shape)
        axis = int(op.attrs.get("axis", -1)) % max(1, rank)
        across = axis == rank - 1 or name == "group_norm"
        length = first.shape[axis] if rank and across else 1
        once = _reduce(first.elements, max(1, first.elements // max(1, length)), across, first.dtype, device)
        return REDUCTIONS[name] * once + _elementwise(functions_of(op), first.elements, first.dtype, device)
    if name.endswith("_pool"):
        window = prod(op.attrs.get("kernel", ())) or first.elements // max(1, out.elements)
        return _reduce(window * out.elements, out.elements, False, first.dtype, device)
    if name == "sort":  # a bitonic network: merges of 2, 4, … elements, of 1, 2, … steps
        levels = ceil(log2(max(1, first.shape[int(op.attrs["axis"])])))
        steps = sum(range(1, levels + 1))
        return _elementwise(Counter(less=steps, select=2 * steps), first.elements, first.dtype, device)
    if name == "cumsum":
        return _reduce(first.elements, 1, True, first.dtype, device)
    return _reduce(first.elements, max(1, out.elements), first.shape[-1:] != out.shape[-1:], first.dtype, device)


def _attention(ins: list[TT], device: Device) -> float:
    q, k, v = ins[:3]
    batch, rows, columns = prod(q.shape[:-2]), q.shape[-2], k.shape[-2]
    size = batch * rows * columns
    found = 0.0
    for n, depth in ((columns, q.shape[-1]), (v.shape[-1], columns)):
        lanes, stages = device.pcu.lanes, device.pcu.stages
        count = min(ceil(rows / lanes) * ceil(n / stages), ceil(rows / stages) * ceil(n / lanes))
        found += _product(batch, rows, n, depth, count, q.dtype, device)
    weigh = FUNCTIONS["softmax"] + Counter(mul=1)
    found += REDUCTIONS["softmax"] * _reduce(size, batch * rows, True, q.dtype, device)
    return found + _elementwise(weigh, size, q.dtype, device)


def distinct(stream: Stream) -> int:
    """Tiles of a step that are not those of another site."""
    return prod(x.count for x in stream.space if x.dim >= 0 and x.step)


def cycles(config: Config, device: Device) -> float:
    """Cycles of the slowest units in a run of the config, each kind at its full rate."""
    slowest, peers = 1.0, 0.0
    for index, unit in enumerate(config.units):
        into = [f for f in config.flows if f.target == index]
        out_of = [f for f in config.flows if f.source == index]
        match unit:
            case Compute():
                steps = max((f.stream.steps for f in (*into, *out_of)), default=1)
                slowest = max(slowest, steps * interval(unit, device, steps))
                for op in unit.ops:
                    if stem(op) in BETWEEN_SOCKETS:  # all collectives share the links
                        found = exchange(op, unit.types, device, steps, unit.size)
                        peers += steps * unit.size * found.interval * device.clock
            case Buffer():
                read = sum(_words(config, f, device) for f in out_of) / device.pmu.read_ports
                write = sum(_words(config, f, device) for f in into) / device.pmu.write_ports
                slowest = max(slowest, max(read, write) / unit.size)
            case Generator():
                moved = sum(_bytes(f.stream) for f in (*into, *out_of))
                slowest = max(slowest, ceil(moved / unit.size) / device.agcu.bytes_per_cycle)
    return max(slowest, peers)


def _words(config: Config, flow: Flow, device: Device) -> int:
    return words_of_site(config, flow, device) * flow.stream.steps * distinct(flow.stream)


def _bytes(stream: Stream) -> int:
    return stream.steps * distinct(stream) * stream.tile_elements * byte_size(stream.dtype)
