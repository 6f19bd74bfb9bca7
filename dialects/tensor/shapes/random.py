"""Shape, tiling and work rules of random words."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.dialects.tensor.shapes import TT, Attrs, ShapeError, Tiling, counts_flops, infers, tiles
from headrace.dialects.tensor.shapes.broadcasting import broadcast_shape, follow_all, follow_broadcast

WORDS = 4
"""Words of a block."""
ROUNDS = 10
FACTORS = (0xD2511F53, 0xCD9E8D57)
STEPS = (0x9E3779B9, 0xBB67AE85)
"""Of Philox 4x32-10: what words of the counter are multiplied by, and what is added to those of the key, in each
round."""
OPERATIONS = 10 * ROUNDS
"""Operations of a block: in each round two products, both halves of either, and four exclusive ors."""


@infers("tensor.philox")
def _philox(attrs: Attrs, operands: Sequence[TT]) -> TT:
    for name, type in zip(("state", "rows", "columns"), operands, strict=True):
        if type.dtype != "ui64":
            raise ShapeError(f"{name} is {type} but must be of ui64")
    state, rows, columns = operands
    if state.shape != (3,):
        raise ShapeError(f"state is {state} but must be tensor<3xui64>: the counter's halves and the key")
    return TT((*broadcast_shape((rows.shape, columns.shape), ("rows", "columns")), WORDS), "ui32")


@tiles("tensor.philox")
def _tile_philox(attrs: Attrs, operands: Sequence[TT], results: Sequence[TT]) -> Tiling:
    """Every block is by itself; its words are together."""
    blocks = results[0].shape[:-1]
    places = tuple(follow_broadcast(x.shape, blocks) for x in operands[1:])
    return Tiling(blocks, ((None,), *places), ((*follow_all(len(blocks)), None),))


@counts_flops("tensor.philox")
def _philox_work(attrs: Attrs, operands: Sequence[TT], results: Sequence[TT]) -> int:
    return OPERATIONS * results[0].elements // WORDS
