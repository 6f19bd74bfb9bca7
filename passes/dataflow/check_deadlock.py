"""check-deadlock: every section runs to its end with the buffers it has."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from headrace.dialects.dataflow.ops import SectionOp, StageOp
from headrace.dialects.support import locations
from headrace.dialects.support.diagnostics import Collector
from headrace.passes.analysis.network import Deadlock, Network
from headrace.passes.analysis.sections import sections
from headrace.passes.infra.base import Pass


def title(op: Operation) -> str:
    """How a process is named in a message."""
    where = locations.of(op)
    name = f'stage "{op.sym.data}"' if isinstance(op, StageOp) else op.name.removeprefix("dataflow.")
    return f"{name} ({where})" if where else name


def describe(stuck: Deadlock) -> str:
    """The witness: who waits for which buffer, how far it got."""
    lines: list[str] = []
    for op, buffer, state, done, steps in stuck.waits[:6]:
        held = f"{buffer.copies.value.data} of {buffer.frame_count} frames"
        lines.append(f"{title(op)} stops at step {done} of {steps}: buffer {buffer.buffer_type} ({held}) is {state}")
    more = len(stuck.waits) - 6
    return "; ".join(lines) + (f"; and {more} more" if more > 0 else "")


def check(section: SectionOp, found: Collector) -> None:
    """Report a section that does not run through."""
    stuck = Network(section).run()
    if stuck is None:
        return
    cure = [
        f"buffer {b.buffer_type} holds {b.copies.value.data} frames and needs up to {b.frame_count}"
        for b in stuck.full
        if b.copies.value.data < b.frame_count
    ]
    found.add(
        "deadlock",
        f'check-deadlock: section "{section.sym.data}" stops before its end',
        why=describe(stuck),
        fix="run size-buffers, or give more copies: " + "; ".join(cure) if cure else "break the cycle of streams",
        location=locations.of(stuck.waits[0][0]),
    )


@dataclass(frozen=True)
class CheckDeadlockPass(Pass):
    """Refuse sections that cannot run to their end, with the processes and buffers that wait for each other.

    Assumes tiled stages and sized buffers. Changes nothing.
    """

    name = "check-deadlock"

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        found = Collector()
        for section in sections(module):
            check(section, found)
        found.raise_if_any()
        return False
