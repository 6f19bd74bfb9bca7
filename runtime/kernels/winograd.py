"""Winograd's convolution F(4, 3): four results of a 3-tap filter by six products instead of twelve.

Only where a conv asks for it (`algorithm = "winograd"`), for f32, two spatial dims, 3x3 filters, strides and dilations
of 1 and one group: its rounding error is about ten times that of the direct form (1e-5 of the largest result).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headrace.dialects.tensor.shapes.contraction import Window
from headrace.runtime.kernels.calls import Call, Step, scalar, strided
from headrace.runtime.kernels.contraction import product
from headrace.runtime.kernels.scratch import Array

OUT, IN = 4, 6
TILE_ELEMENTS = 400_000
"""Elements of the transformed input of a band of tiles."""

INPUT = np.array(
    [[4, 0, -5, 0, 1, 0], [0, -4, -4, 1, 1, 0], [0, 4, -4, -1, 1, 0], [0, -2, -1, 2, 1, 0], [0, 2, -1, -2, 1, 0],
     [0, 4, 0, -5, 0, 1]], np.float64)  # fmt: skip
FILTER = np.array(
    [[1 / 4, 0, 0], [-1 / 6, -1 / 6, -1 / 6], [-1 / 6, 1 / 6, -1 / 6], [1 / 24, 1 / 12, 1 / 6],
     [1 / 24, -1 / 12, 1 / 6], [0, 0, 1]], np.float64)  # fmt: skip
RESULT = np.array([[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]], np.float64)


def applies(call: Call, found: Sequence[Window]) -> bool:
    """Whether the algorithm has a form for this convolution."""
    return (
        call.inputs[0].dtype == np.float32
        and len(found) == 2
        and all(w.kernel == 3 and w.stride == 1 and w.dilation == 1 for w in found)
        and call.attrs["groups"] == 1
        and 1 in call.constants
    )


def conv(call: Call, x: Array, w: Array, bias: Array | None, y: Array, found: Sequence[Window]) -> list[Step] | None:
    """y [N, H, W, O] from x [N, H, W, C] and w [O, C, 3, 3]; None where the algorithm has no form."""
    if not applies(call, found):
        return None
    n, height, width, outputs = y.shape
    channels = x.shape[-1]
    down, across = -(-height // OUT), -(-width // OUT)
    filters = call.packs.get("winograd", w, lambda: transformed(w))
    both = call.packs.constant("winograd input", lambda: np.kron(INPUT, INPUT).astype(np.float32))
    back = call.packs.constant("winograd result", lambda: np.kron(RESULT, RESULT).astype(np.float32))
    room = call.scratch.take((down * OUT + 2, across * OUT + 2, channels), x.dtype)
    band = max(1, min(down, TILE_ELEMENTS // (IN * IN * across * channels)))
    tiles = call.scratch.take((IN * IN, band * across * channels), x.dtype)
    changed = call.scratch.take((IN * IN, band * across, channels), x.dtype)
    products = call.scratch.take((IN * IN, band * across, outputs), x.dtype)
    results = call.scratch.take((OUT * OUT, band * across * outputs), x.dtype)
    dense = call.scratch.take((band * OUT, across * OUT, outputs), x.dtype)
    steps: list[Step] = []
    low_y, low_x = found[0].low, found[1].low
    for image in range(n):
        steps.append((np.copyto, (room, scalar(0, x.dtype))))
        steps.append((np.copyto, (room[low_y : low_y + x.shape[1], low_x : low_x + x.shape[2]], x[image])))
        for at in range(0, down, band):
            rows = min(band, down - at)
            count = rows * across
            source = strided(
                room[at * OUT :],
                (IN, IN, rows, across, channels),
                (*room.strides[:2], OUT * room.strides[0], OUT * room.strides[1], room.strides[2]),
            )
            gathered = tiles[:, : count * channels]
            steps.append((np.copyto, (gathered.reshape(IN, IN, rows, across, channels), source)))
            v = changed[:, :count]
            steps.append((np.matmul, (both, gathered, v.reshape(IN * IN, count * channels))))
            m = products[:, :count]
            for k in range(IN * IN):
                steps += product(call, v[k], filters[k], m[k], True)
            flat = results[:, : count * outputs]
            steps.append((np.matmul, (back, m.reshape(IN * IN, count * outputs), flat)))
            square = flat.reshape(OUT, OUT, rows, across, outputs).transpose(2, 0, 3, 1, 4)
            part = dense[: rows * OUT]
            steps.append((np.copyto, (part.reshape(rows, OUT, across, OUT, outputs), square)))
            target = y[image, at * OUT : at * OUT + rows * OUT]
            wanted = part[: target.shape[0], :width]
            steps.append((np.copyto, (target, wanted)) if bias is None else (np.add, (wanted, bias, target)))
    return steps


def transformed(w: Array) -> Array:
    """Filters [O, C, 3, 3] as [36, C, O]."""
    wide = np.einsum("ai,ocij,bj->abco", FILTER, w.astype(np.float64), FILTER)
    return np.ascontiguousarray(wide.reshape(IN * IN, w.shape[1], w.shape[0]), dtype=np.float32)
