"""Sections that fill the chip: CPU time of placing and routing, and how good they are beside what nothing can beat.

Each section is a pipeline, from address generators through stages of a buffer and a group of compute units, all of the
same width, to address generators. In some, the columns of a row are turned between two stages, as a transpose does, so
that most words change their lane. Simple rules are measured beside the passes: units placed row by row, routes in
dimension order, and both.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass
from typing import Any

from headrace.dialects.support.journal import Journal, recording
from headrace.passes.infra.registry import build
from headrace.tools.opt import context, parse

SECTIONS = (
    (26, 40, 1),
    (13, 80, 1),
    (5, 200, 1),
    (2, 520, 1),
    (1, 1040, 1),
    (13, 80, 8),
    (4, 256, 16),
)
"""Stages, width, and how many parts of a row are turned with the others between two stages (1: none)."""


def section(stages: int, width: int, turned: int = 1, device: str = "sn40l", edge: int = 40) -> str:
    """A config in phase virtual, and a program that launches it once."""
    columns, edge = 32 * width, min(width, edge)
    whole, tile = f"tensor<4x{columns}xf32>", "tensor<1x32xf32>"
    view = f"at 0 [{columns}, 1]"
    straight = f"time [4 on 0 by 1] space [{width} on 1 by 32]"
    turn = f"time [4 on 0 by 1] space [{width // turned} on 1 by 32, {turned} on 1 by {columns // turned}]"
    lines = [f"rdu.agcu @load load param 0 x {edge}"]
    before = f"@load -> @b0 carries tensor<1x{columns}xf32> time [4 on 0 by 1] from {view}"
    for stage in range(stages):
        order = turn if stage and turned > 1 else straight
        lines += [
            f"rdu.pmu @b{stage} {whole} x {width} split 1 frames 1 copies 2",
            f"rdu.flow {before} to {view}",
            f"rdu.pcu @s{stage} simd x {width} (%a: {tile}) {{",
            f"  %0 = tensor.neg %a : {tile} -> {tile}",
            f"  rdu.yield %0 : {tile}",
            "}",
            f"rdu.flow @b{stage} -> @s{stage} carries {tile} {order} from {view}",
        ]
        before = f"@s{stage} -> @{f'b{stage + 1}' if stage + 1 < stages else 'store'} carries {tile} {order}"
    lines += [f"rdu.agcu @store store param 1 x {edge}", f"rdu.flow {before} to {view}"]
    ports = f'"x" in {whole}, "y" out {whole}'
    program = [
        f"rdu.region @x input {whole}",
        f"rdu.region @y output {whole}",
        f'rdu.port input "x" {whole} in @x',
        f'rdu.port output "y" {whole} in @y',
        "rdu.launch @c (@x, @y) sw",
    ]
    return "\n".join(
        [
            f'builtin.module attributes {{machine.device = #machine.device<"{device}">}} {{',
            f"rdu.config @c virtual ({ports}) {{",
            *(f"  {line}" for line in lines),
            "}",
            "rdu.program @main {",
            *(f"  {line}" for line in program),
            "}",
            "}",
            "",
        ]
    )


@dataclass(frozen=True)
class Row:
    """A section: units, CPU seconds of both passes, wirelength over its lower bound, and words a cycle on the busiest
    link in percent of what it carries: as routed, the bound of every routing, and by simple rules."""

    name: str
    units: int
    place: float
    route: float
    ratio: float
    row_by_row: float
    busiest: int
    bound: int
    one_order: int
    both_rules: int


def measure(stages: int, width: int, turned: int = 1, device: str = "sn40l") -> Row:
    """Place and route one section, by the passes and by the rules."""
    text = section(stages, width, turned, device)

    def run(*passes: str) -> tuple[list[float], dict[str, int]]:
        """CPU seconds of each pass, and the statistics of all."""
        seconds: list[float] = []
        journal = Journal()
        for watched in (False, True):
            ctx = context()
            module, _ = parse(ctx, text, "bench")
            for one in build(f"allocate-memory,{','.join(passes)}"):
                start = time.process_time()
                if watched:
                    journal.pass_name = one.name
                    with recording(journal):
                        one.apply(ctx, module)
                else:
                    one.apply(ctx, module)
                    seconds.append(time.process_time() - start)
        return seconds[1:], {**journal.statistics_of("place"), **journal.statistics_of("route")}

    (place, route), found = run("place", "route")
    _, simple = run("place{start=rows moves=0}", "route{reroutes=0}")
    wires, least = "wirelength of the placement", "wirelength of the placement, at least"
    return Row(
        f"{stages} x {width}" + (f", turned by {turned}" if turned > 1 else ""),
        found["units placed"],
        place,
        route,
        found[wires] / found[least],
        simple[wires] / simple[least],
        found["busiest link, % of its words"],
        found["busiest link, % at least"],
        found["busiest link, % in dimension order"],
        simple["busiest link, % of its words"],
    )


def table(rows: list[Row]) -> str:
    """A line a section."""
    lines = [
        "| section | units | place | route | wires / bound | row by row | busiest link | bound | one order | both |",
        "|---" * 10 + "|",
    ]
    lines += [
        f"| {r.name} | {r.units} | {r.place:.2f} s | {r.route:.2f} s | {r.ratio:.2f} | {r.row_by_row:.2f} "
        f"| {r.busiest} % | {r.bound} % | {r.one_order} % | {r.both_rules} % |"
        for r in rows
    ]
    return "\n".join(lines)


def add_command(commands: Any) -> None:
    """Register `place`."""
    parser = commands.add_parser("place", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="sn40l")
    parser.add_argument("--gate", type=float, help="fail when placing and routing a section takes more CPU seconds")
    parser.add_argument("--json", action="store_true", help="rows as JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Measure and print. Exit code 1 when the gate fails."""
    rows = [measure(*shape, device=options.device) for shape in SECTIONS]
    print(json.dumps([asdict(row) for row in rows], indent=1) if options.json else table(rows))
    return int(options.gate is not None and max(row.place + row.route for row in rows) > options.gate)
