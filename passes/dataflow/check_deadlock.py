"""check-deadlock: every section runs to its end with the buffers it has."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from headrace.dialects.dataflow.network import Network, explain
from headrace.dialects.support.diagnostics import Collector
from headrace.dialects.support.journal import count
from headrace.passes.analysis.sections import sections
from headrace.passes.infra.base import Pass


@dataclass(frozen=True)
class CheckDeadlockPass(Pass):
    """Refuse sections that cannot run to their end, with the processes and buffers that wait for each other in a cycle
    and the least copies that let the section run through.

    Assumes tiled stages and sized buffers. Changes nothing.
    """

    name = "check-deadlock"

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        found = Collector()
        for section in sections(module):
            network = Network(section)
            stuck = network.run()
            count("sections run through", stuck is None)
            if stuck is not None:
                one = explain(section, network, stuck)
                found.add(one.code, f"check-deadlock: {one.what}", why=one.why, fix=one.fix, location=one.location)
        found.raise_if_any()
        return False
