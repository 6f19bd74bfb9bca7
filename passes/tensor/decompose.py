"""Composite ops in primitives."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import ClassVar

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation

from headrace.dialects.support.diagnostics import Collector, nearest
from headrace.dialects.support.journal import count, current, decline, may
from headrace.dialects.tensor import decompositions
from headrace.passes.infra.base import Pass, option
from headrace.passes.tensor import _graph

WHOLE = (
    *("softmax", "log_softmax", "layer_norm", "rms_norm"),
    *("gelu", "silu", "softplus", "leaky_relu", "elu", "clip", "hard_sigmoid"),
    *("avg_pool", "philox"),
)
"""The composites that the mapping to dataflow takes as they are."""
NONE = "none"


@dataclass(frozen=True)
class DecomposePass(Pass):
    """Replace composite ops by primitives, by the table in `dialects/tensor/decompositions`.

    Assumes nothing. Ops in `keep` stay whole, `keep=none` decomposes every op that has a decomposition; what a
    decomposition is built of is decomposed in turn. The primitives have the location of the composite. f16 and bf16 are
    computed in f32 between explicit casts, as the composite does.

    Before: `%1 = tensor.silu %0`. After, with `keep=none`: `%1 = tensor.sigmoid %0`, `%2 = tensor.mul %0, %1`.
    """

    name: ClassVar[str] = "decompose"
    requires = ensures = _graph.TENSOR

    keep: tuple[str, ...] = option(WHOLE, "composites to leave whole, by name without the dialect; none: no one")

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        known = [name.removeprefix("tensor.") for name in decompositions.names()]
        wrong = Collector()
        for name in self.keep:
            if name not in known and self.keep != (NONE,):
                wrong.add("bad-option", f"decompose: no composite is called '{name}'", fix=nearest(name, known))
        wrong.raise_if_any()
        table = {f"tensor.{name}" for name in known if name not in self.keep}
        changed = False
        for block in _graph.blocks(module):
            changed |= decompose(block, table)
            _explain(block, {f"tensor.{name}" for name in known if name in self.keep})
        return changed


def _explain(block: Block, kept: Container[str]) -> None:
    if current() is None:
        return
    for op in _graph.ops(block):
        if op.name in kept:
            decline("decompose", op, f"a unit runs {op.name.removeprefix('tensor.')} whole: `keep` names it")


def decompose(block: Block, table: Container[str]) -> bool:
    """Decompose the ops of a block that `table` names; True if any was."""
    pending = [op for op in block.ops if op.name in table]
    changed = False
    while pending:
        op = pending.pop()
        if not may("decompose", op):
            break
        changed = True
        made: list[Operation] = []
        values = decompositions.decompose(op, made.append)
        assert values is not None, "the table holds ops that have a decomposition"
        count("primitives made", len(made))
        block.insert_ops_before(made, op)
        _graph.replace(op, values)
        pending += [new for new in made if new.name in table]
    return changed
