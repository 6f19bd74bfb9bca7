"""expose-padding: windows that touch padding become a pad and windows that do not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation

from headrace.dialects.support.journal import decline, made, out_of_fuel
from headrace.dialects.tensor.decompositions import pad_explicitly
from headrace.passes.infra.base import Pass
from headrace.passes.tensor import _graph

WINDOWED = frozenset({"tensor.conv", "tensor.max_pool", "tensor.avg_pool"})


@dataclass(frozen=True)
class ExposePaddingPass(Pass):
    """Turn convolutions and pools with padding into `tensor.pad` and the op without.

    Assumes nothing. The op's spatial dims can then be cut into tiles, and the mapping folds the pad into the buffer
    that the op reads: the margin is filled once and the producer writes the inside.

        %1 = tensor.conv %0, %w {pads = 1 …}   =>   %p = tensor.pad %0 {lo = …, hi = …}   %1 = tensor.conv %p, %w
    """

    name: ClassVar[str] = "expose-padding"

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        changed = [_expose(block) for block in _graph.blocks(module)]
        return any(changed)


def _expose(block: Block) -> bool:
    changed = False
    for op in [op for op in block.ops if op.name in WINDOWED]:
        if out_of_fuel():
            break
        new: list[Operation] = []
        values = pad_explicitly(op, new.append)
        if values is None:
            decline("expose-padding", op, "no window touches padding")
            continue
        made("expose-padding", op.name, op.location)
        block.insert_ops_before(new, op)
        _graph.replace(op, values)
        changed = True
    return changed
