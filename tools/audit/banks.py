"""Banks: how many lanes of a vector word meet in the busiest bank of a memory unit."""

from __future__ import annotations

import numpy as np

from headrace.dialects.support.access import View, row_major
from headrace.dialects.support.dtypes import byte_size
from headrace.tools.audit.looking import Look
from headrace.tools.audit.program import Buffer, Compute, Flow
from headrace.tools.audit.words import lane_dim


def bank_conflicts(look: Look) -> dict[str, int]:
    """For every flow that meets a bank more than once in a word how often, with the layout of its buffer (rows one
    after another, or in diagonal stripes of rows of any of its dims) that has the fewest such accesses in all."""
    found: dict[str, int] = {}
    for index, unit in enumerate(look.config.units):
        if not isinstance(unit, Buffer):
            continue
        users = [(f, view) for f in look.sound for at, view in f.ends if at == index and view is not None]
        item = byte_size(unit.type.dtype)
        pitches = [0]
        if look.device.pmu.diagonal:
            pitches += sorted({s * item for s in row_major(unit.type.shape) if s > 1})
        layouts = [[_conflict(look, unit, flow, view, pitch) for flow, view in users] for pitch in pitches]
        best = min(
            layouts, key=lambda times: sum((n - 1) * f.stream.steps for n, (f, _) in zip(times, users, strict=True))
        )
        found.update({f.label: n for n, (f, _) in zip(best, users, strict=True) if n > 1})
    return found


def _conflict(look: Look, unit: Buffer, flow: Flow, view: View, pitch: int) -> int:
    """Distinct words of the busiest bank among the lanes of one vector word."""
    pmu = look.device.pmu
    target = look.config.units[flow.target]
    dim = lane_dim(flow, target if isinstance(target, Compute) else None, look.device)
    item = byte_size(unit.type.dtype)
    if dim is None:
        return 1
    lanes = min(flow.stream.tile[dim], max(1, look.device.network.link_bytes // item))
    at = np.arange(lanes) * abs(view.strides[dim]) * item
    word = np.unique(at // pmu.word_bytes)
    bank = word + (word * pmu.word_bytes // pitch if pitch else 0)
    return int(np.bincount(bank % unit.banks).max())
