"""stream-runs: a program takes several inputs at a time, which follow each other through each of its configs."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, UnitAttr

from headrace.dialects.rdu.ops import AgcuOp, ConfigOp, FlowOp, PmuOp, ProgramOp
from headrace.dialects.rdu.syntax import integer
from headrace.dialects.support import locations
from headrace.dialects.support.diagnostics import CompileError
from headrace.dialects.support.journal import count, decline, may
from headrace.passes.analysis.runs import runs_of
from headrace.passes.infra.base import Pass


@dataclass(frozen=True)
class StreamRunsPass(Pass):
    """Let each launch run its config for as many inputs as the module says (`dataflow.runs`), one behind the other.

    Assumes a program whose regions have no addresses yet. Inputs, outputs and temporaries become regions of as many
    tensors, and the program launches each config once for all runs before it launches the next. Memories that hold all
    of what is loaded from weights are kept: they are filled in the first run of a launch. States are refused, since
    each run needs what the one before leaves.

        rdu.pmu @b tensor<4xf32>                        rdu.pmu @b tensor<4xf32> kept
        rdu.region @x input tensor<4xf32>        =>     rdu.region @x input tensor<4xf32> runs 8
        rdu.launch @s0 (@x, @w, @y) sw                  rdu.launch @s0 (@x, @w, @y) sw runs 8
    """

    name = "stream-runs"

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        runs = runs_of(module)
        if runs == 1:
            return False
        ops = list(module.body.block.ops)
        changed = False
        for program in [op for op in ops if isinstance(op, ProgramOp)]:
            if program.states.data:
                raise CompileError(
                    "runs-depend",
                    f"stream-runs: {runs} runs at a time, but each needs the state that the one before leaves",
                    fix="compile for latency",
                    location=locations.of(program),
                )
            same = {r.sym_name.data for r in program.regions_ if r.kind.data == "weight"}
            fixed: dict[str, set[int]] = {}
            for launch in program.launches:
                mine = {i for i, (name, _) in enumerate(launch.places) if name in same}
                config = launch.config.string_value()
                fixed[config] = fixed.get(config, mine) & mine
            if may("stream-runs", program):
                changed = True
                for op in program.regions_:
                    if op.sym_name.data not in same:
                        op.runs = integer(runs)
                for launch in program.launches:
                    launch.runs = integer(runs)
                count("launches", len(program.launches))
                for config in [op for op in ops if isinstance(op, ConfigOp)]:
                    _keep(config, fixed.get(config.sym_name.data, set()))
        return changed


def _keep(config: ConfigOp, fixed: set[int]) -> None:
    """Mark the memories that are filled in the first run only: all that fills them is the same in every run, and they
    hold all of it. What is loaded for one of them and for something else as well is loaded in each run."""
    units = {u.title: u for u in config.units}
    into: dict[str, list[FlowOp]] = {}
    out_of: dict[str, list[FlowOp]] = {}
    for flow in config.flows:
        out_of.setdefault(flow.ends[0], []).append(flow)
        into.setdefault(flow.ends[1], []).append(flow)
    found: set[str] = set()
    for name, unit in units.items():
        if not isinstance(unit, PmuOp) or name not in into:
            continue
        sources = [units[flow.ends[0]] for flow in into[name]]
        if not all(
            isinstance(s, AgcuOp) and s.direction.data == "load" and s.param.value.data in fixed for s in sources
        ):
            continue
        frames = max(prod(x.count for x in f.stream.stream.time[: unit.frames.value.data]) for f in into[name])
        if frames > unit.copies.value.data:
            decline("keep", unit, f"it holds {unit.copies.value.data} of {frames} frames: they are loaded in each run")
        else:
            found.add(name)
    while shared := {n for n in found if any(f.ends[1] not in found for g in into[n] for f in out_of[g.ends[0]])}:
        found -= shared
    for name in found:
        unit = units[name]
        if isinstance(unit, PmuOp) and may("keep", unit):
            unit.kept = UnitAttr()
            count("memories kept")
