"""convert-dataflow-to-rdu: sections become configs of virtual units and flows, functions launches over regions."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp

from headrace.dialects.dataflow.ops import (
    SectionOp,
)
from headrace.dialects.machine.attributes import device_of
from headrace.dialects.support.journal import count
from headrace.passes.convert._config import ConfigBuilder, param_names
from headrace.passes.convert._program import ProgramBuilder
from headrace.passes.infra.base import Pass, option


@dataclass(frozen=True)
class ConvertDataflowToRduPass(Pass):
    """Turn sections into configs of virtual units and flows, and functions into launches over off-chip regions.

    Assumes tiled stages and sized buffers. A stage becomes one group of compute units with its whole body
    (split-to-units cuts it), a buffer a group of memory units, loads and stores address generators. Calls are followed:
    a shared function is one config launched once per call. The host launches the first config; the chip goes on from
    launch to launch by itself where the device can and `launch=host` does not say otherwise. Dense slices and reshapes
    between sections become element offsets of regions; a concatenation's parts are written in place.

        %b = dataflow.buffer … (%s …) to (…)       =>   rdu.pmu @buffer …
        %t = dataflow.stage "gemm"(%b, %w) …            rdu.pcu @gemm "systolic" { … }
                                                        rdu.flow @buffer -> @gemm carries <…> {from = …}
    """

    name = "convert-dataflow-to-rdu"
    launch: str = option("chip", "who launches what follows the first config", choices=("chip", "host"))

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        top = module.body.block
        functions = [op for op in top.ops if isinstance(op, func.FuncOp)]
        if not functions:
            return False
        device = device_of(module)
        program = ProgramBuilder(module, by_host=self.launch == "host").run()
        configs = [
            ConfigBuilder(op, param_names(op), device).run()
            for f in functions
            for op in f.body.block.ops
            if isinstance(op, SectionOp)
        ]
        count("launches", len(program.launches))
        count("regions", len(program.regions_))
        used = {launch.config.string_value() for launch in program.launches}
        top.insert_ops_before([c for c in configs if c.sym_name.data in used] + [program], functions[0])
        for f in functions:
            f.detach()  # nothing that stays uses a value of theirs
        return True
