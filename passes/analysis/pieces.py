"""What one compute unit can hold of a stage body, and what a tile of it costs there: `dialects.rdu.cost` on bodies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.dialects.machine.cost import Cost
from headrace.dialects.machine.device import Device
from headrace.dialects.rdu import cost
from headrace.dialects.rdu.cost import CONTRACTIONS, REDUCING
from headrace.dialects.tensor.shapes import TT
from headrace.passes.analysis.bodies import Body

__all__ = ["CONTRACTIONS", "REDUCING", "Piece", "body_interval", "piece_cost", "pieces"]


@dataclass(frozen=True)
class Piece:
    """Consecutive ops of a body that one unit runs: `mode` systolic or simd."""

    mode: str
    ops: tuple[int, ...]


def pieces(body: Body, device: Device) -> list[Piece]:
    """Cut a body into what one unit holds each (`dialects.rdu.cost.pieces`)."""
    return [Piece(mode, ops) for mode, ops in cost.pieces(body.ops, device)]


def piece_cost(body: Body, piece: Piece, types: Sequence[TT], device: Device) -> Cost:
    """Cycles of one tile through one unit that holds the piece; `types` are those of the tiles of one unit."""
    copied = max((types[v].elements for v in body.outputs), default=0)
    return cost.body_cost((body.ops[i] for i in piece.ops), types, piece.mode, device, copied=copied)


def body_interval(body: Body, types: Sequence[TT], device: Device) -> float:
    """Cycles between tiles when every piece has one unit: the slowest piece."""
    return max(piece_cost(body, piece, types, device).interval for piece in pieces(body, device))
