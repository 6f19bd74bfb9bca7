"""choose-runs: how many inputs follow each other through each section."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64
from xdsl.ir import SSAValue

from headrace.dialects.dataflow.ops import LoadOp, SectionOp, StageOp, StoreOp, stream_of
from headrace.dialects.machine.attributes import device_of
from headrace.dialects.machine.cost import launch_mode, launch_seconds, memory_bytes_per_cycle
from headrace.dialects.support import dtypes
from headrace.dialects.support.journal import Candidate, count, decide, may
from headrace.dialects.tensor.base import tt
from headrace.dialects.tensor.storage import WeightOp
from headrace.passes.analysis.bodies import Body
from headrace.passes.analysis.phases import moved
from headrace.passes.analysis.pieces import body_interval
from headrace.passes.analysis.runs import RUNS, constants, refuse_states
from headrace.passes.infra.base import Pass, option

LEAST, MOST = 8, 64
"""Bounds of what is chosen: fewer do not fill a pipeline, more make a result wait long for the others."""
OVERHEAD = 0.05
"""How much longer each run may take, at the least that it could, for what is done once for all of them."""


@dataclass(frozen=True)
class ChooseRunsPass(Pass):
    """Decide how many runs of the program follow each other through each section, for throughput.

    Assumes stages, tiled or not, and a device in the module. A section is launched once for all of them, and weights
    that stay on the chip are loaded once. `runs` says how many; 0 takes the fewest (a power of two, 8 to 64) with which
    launches and loads of weights add 5 % to the least time that a run could take, as far as memory has room for inputs,
    results and everything between sections of as many. Programs with states are refused: their runs wait for each
    other.

        builtin.module { … }   =>   builtin.module attributes {dataflow.runs = 16} { … }
    """

    name = "choose-runs"
    runs: int = option(0, "runs that follow each other; 0: chosen", low=0)

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        refuse_states(module)
        runs = self.runs or _chosen(module)
        if not may("choose-runs", module):
            return False
        count("runs", runs)
        module.attributes[RUNS] = IntegerAttr(runs, i64)
        return True


def _chosen(module: ModuleOp) -> int:
    device = device_of(module)
    memory = "hbm" if device.hbm is not None else "ddr"
    rate = memory_bytes_per_cycle(device, memory)
    functions = {f.sym_name.data: f for f in module.body.block.ops if isinstance(f, func.FuncOp)}
    same = constants(module)
    weights: dict[str, int] = {}
    for function in functions.values():
        for op in function.body.ops:
            if isinstance(op, WeightOp):
                type = tt(op.result)
                weights[op.key.data] = type.elements * dtypes.byte_size(type.dtype)
    work = moves = 0.0
    held: dict[str, int] = {}
    sections = 0

    def walk(name: str, times: int) -> None:
        nonlocal work, moves, sections
        between = 0
        for op in functions[name].body.ops:
            if isinstance(op, func.CallOp):
                walk(op.callee.string_value(), times)
            elif isinstance(op, SectionOp):
                sections += times
                for inner in op.body.block.ops:
                    if isinstance(inner, StageOp):
                        body = Body.of(inner.body.block)
                        work += times * stream_of(inner.outs[0]).steps * body_interval(body, body.types, device)
                        between += sum(moved(out) for out in inner.outs)
                    elif isinstance(inner, LoadOp) and inner.tensor not in same:
                        moves += times * moved(inner.out)
                    elif isinstance(inner, StoreOp):
                        moves += times * _bytes(inner.tensor)
        held[name] = between

    if "main" not in functions:
        return 1
    walk("main", 1)
    main = functions["main"].body.block
    last = main.last_op
    ports = sum(map(_bytes, [*main.args, *(last.operands if last is not None else ())]))
    run = max(work / device.count("pcu"), moves / rate, 1.0)
    loaded = sum(weights.values()) / rate
    once = launch_seconds(device, launch_mode(device), loaded=False) * device.clock * sections + loaded
    wanted = min(MOST, max(LEAST, 1 << (ceil(once / (OVERHEAD * run)) - 1).bit_length()))
    capacity = (device.hbm or device.ddr).bytes
    room = max(1, (capacity - sum(weights.values())) // max(1, ports + sum(held.values())))
    runs = min(wanted, room)
    told = f"{once:,.0f} cycles once for all runs, at least {run:,.0f} for each"
    decide("runs", module, str(runs), (Candidate(f"1 ({told})", once + run, "waits for launches and loads"),), "cycles")
    return runs


def _bytes(value: SSAValue) -> int:
    type = tt(value)
    return prod(type.shape) * dtypes.byte_size(type.dtype)
