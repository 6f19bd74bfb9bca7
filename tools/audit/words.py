"""Vector words that flows carry, from tiles, bodies and the numbers of the device."""

from __future__ import annotations

from math import ceil, prod

from headrace.dialects.machine.device import Device
from headrace.dialects.support.dtypes import byte_size
from headrace.dialects.tensor.shapes import TT
from headrace.tools.audit.program import BodyOp, Compute, Config, Flow

CONTRACTIONS = frozenset({"tensor.matmul", "tensor.conv"})


def words_of_site(config: Config, flow: Flow, device: Device) -> int:
    """Vector words of one site in a step. A memory sends a systolic unit each operand as often as the array asks."""
    stream = flow.stream
    tile = TT(stream.tile, stream.dtype)
    source, target = config.units[flow.source], config.units[flow.target]
    words = _words(device, tile.elements, tile.dtype)
    if isinstance(target, Compute) and not isinstance(source, Compute):
        asked = (_asked(op, target.types, flow.target_port, device) for op in target.ops)
        words = max(words, *asked, 0)
    return words


def _words(device: Device, elements: int, dtype: str) -> int:
    return ceil(elements * byte_size(dtype) / device.network.link_bytes)


def _asked(op: BodyOp, types: tuple[TT, ...], value: int, device: Device) -> int:
    """Words of an operand of a contraction. The array holds one block of the result, lanes × stages or the other way
    round, whichever takes fewer blocks. Every block takes its rows and its columns once for each k: the operand along
    the lanes as a vector of lanes for each k, the other one in full words."""
    if op.name not in CONTRACTIONS or value not in op.operands[:2]:
        return 0
    batch, _, _, k = product_of(op, types)
    rows, columns, tall = blocks(op, types, device)
    again = columns if value == op.operands[0] else rows
    if (value == op.operands[0]) == tall:
        return rows * columns * k * batch * _words(device, device.pcu.lanes, types[value].dtype)
    return again * _words(device, types[value].elements, types[value].dtype)


def blocks(op: BodyOp, types: tuple[TT, ...], device: Device) -> tuple[int, int, bool]:
    """Blocks of a product along its rows and its columns, and whether the rows lie along the lanes."""
    _, m, n, _ = product_of(op, types)
    lanes, stages = device.pcu.lanes, device.pcu.stages
    tall, wide = (ceil(m / lanes), ceil(n / stages), True), (ceil(m / stages), ceil(n / lanes), False)
    return tall if tall[0] * tall[1] <= wide[0] * wide[1] else wide


def product_of(op: BodyOp, types: tuple[TT, ...]) -> tuple[int, int, int, int]:
    """A contraction as `batch` products [m, k] × [k, n]."""
    a, b = (types[v].shape for v in op.operands[:2])
    out = types[op.results[0]].shape
    if op.name == "tensor.conv":  # [batch, channels, …] with [outputs, channels of a group, …]
        groups = int(op.attrs.get("groups", 1))
        return groups, out[0] * prod(out[2:]), out[1] // groups, prod(b[1:])
    m, n = (a[-2] if len(a) > 1 else 1), (b[-1] if len(b) > 1 else 1)
    batch = prod(out) // max(1, m * n)
    if prod(b[:-2]) == 1:  # one matrix for all: the batch is more rows
        m, batch = m * batch, 1
    return batch, m, n, (a[-1] if a else 1)


def lane_dim(flow: Flow, target: Compute | None, device: Device) -> int | None:
    """The dim of a tile along which the lanes of a vector word lie: the last one, but of an operand of a contraction
    that of its rows (of its columns), or any (None) where it does not lie along the lanes of the array."""
    tile = flow.stream.tile
    for op in target.ops if target is not None else ():
        if op.name in CONTRACTIONS and flow.target_port in op.operands[:2]:
            assert target is not None
            rows = flow.target_port == op.operands[0]
            if rows != blocks(op, target.types, device)[2]:
                return None
            dim = (len(tile) - 1 if rows else 0) if op.name == "tensor.conv" else len(tile) - (2 if rows else 1)
            return dim if dim >= 0 and tile[dim] > 1 else None
    return max((d for d, n in enumerate(tile) if n > 1), default=None)
