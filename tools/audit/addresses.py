"""Addresses: every flow stays in its memory, every pair of sites that needs to talk does, frames agree, cells are
written once and before they are read, and buffers fit their units."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headrace.dialects.support.access import View
from headrace.dialects.support.dtypes import byte_size
from headrace.dialects.tensor.shapes import TT
from headrace.tools.audit.cells import NONE, Cells, elements_moved, owned, shifts, touched, union
from headrace.tools.audit.looking import Look, few, numbers, rows
from headrace.tools.audit.program import AnyUnit, Buffer, Compute, Floats, Flow, Generator, Ints

INDEXED = ("gather", "scatter")


@dataclass(frozen=True)
class End:
    """A flow at a memory: what is there and how it is addressed."""

    flow: Flow
    unit: Buffer | Generator
    view: View


def ends(look: Look, index: int, sends: bool) -> list[End]:
    """The sound flows that leave a memory, or that come to it."""
    found: list[End] = []
    unit = look.config.units[index]
    assert not isinstance(unit, Compute)
    for flow in look.sound:
        at, view = flow.ends[0 if sends else 1]
        if at == index and view is not None:
            found.append(End(flow, unit, view))
    return found


def check_streams(look: Look) -> None:
    """Tiles and site counts fit what stands at the ends of a flow, and addresses stay inside the memory."""
    for flow in look.config.flows:
        for side, (index, view) in enumerate(flow.ends):
            _check_end(look, flow, look.config.units[index], view, side == 0)
    for index, unit in enumerate(look.config.units):
        if isinstance(unit, Compute):
            _check_ports(look, index, unit)


def _check_end(look: Look, flow: Flow, unit: AnyUnit, view: View | None, sends: bool) -> None:
    stream = flow.stream
    if isinstance(unit, Compute):
        ports = unit.outputs if sends else tuple(range(unit.inputs))
        port = flow.source_port if sends else flow.target_port
        if not 0 <= port < len(ports) or unit.types[ports[port]] != TT(stream.tile, stream.dtype):
            have = unit.types[ports[port]] if 0 <= port < len(ports) else "not there"
            look.bad("wrong-tile", f"{flow.label} carries {TT(stream.tile, stream.dtype)}, its port is {have}", flow)
        if stream.sites != unit.size:
            look.bad("wrong-sites", f"{flow.label} is for {stream.sites} sites, @{unit.name} has {unit.size}", flow)
        return
    if isinstance(unit, Generator) and unit.direction in INDEXED:
        return
    type = _held(look, unit)
    if view is None or len(view.strides) != len(stream.tile):
        look.bad("no-addresses", f"{flow.label} has no address program at @{unit.name}", flow)
        return
    if type is None:
        look.unsound.add(flow)
        return
    if type.dtype != stream.dtype:
        look.bad("wrong-tile", f"{flow.label} carries {stream.dtype}, @{unit.name} holds {type.dtype}", flow)
    low, high = touched(stream, view, stream.loops).bounds
    if low < 0 or high >= type.elements:
        what = f"{flow.label} touches addresses {low} to {high} of @{unit.name}, which has {type.elements}"
        look.bad("out-of-bounds", what, flow)


def _held(look: Look, unit: Buffer | Generator) -> TT | None:
    if isinstance(unit, Buffer):
        return unit.type
    return look.config.params[unit.param].type if 0 <= unit.param < len(look.config.params) else None


def _check_ports(look: Look, index: int, unit: Compute) -> None:
    fed = Counter(f.target_port for f in look.config.flows if f.target == index)
    for port in range(unit.inputs):
        if fed[port] != 1:
            look.bad("port-not-fed", f"{fed[port]} flows feed port {port} of @{unit.name}", unit)
    sent = {f.source_port for f in look.config.flows if f.source == index}
    if missing := sorted(set(range(len(unit.outputs))) - sent):
        look.bad("port-not-read", f"no flow leaves port {few(missing)} of @{unit.name}", unit)
    steps = {f.stream.steps: f.label for f in look.config.flows if index in (f.source, f.target)}
    if len(steps) > 1:
        told = "; ".join(f"{label}: {n}" for n, label in sorted(steps.items()))
        look.bad("steps-differ", f"the flows of @{unit.name} have different numbers of steps: {told}", unit)


# Who talks to whom.


def shares(flow: Flow, buffer: Buffer, view: View) -> Ints:
    """For every site of the stream and unit of the buffer, how many cells of the site's tiles the unit owns."""
    return owned(buffer, touched(flow.stream, view, flow.stream.time), shifts(flow.stream.space, view))


def check_pairs(look: Look) -> dict[Flow, Floats]:
    """The pairs of every flow are those that its addresses need. What each pair carries, as a share of the tiles of a
    site (of the whole stream where no compute unit is at an end)."""
    found: dict[Flow, Floats] = {}
    for flow in look.sound:
        source, target = look.config.units[flow.source], look.config.units[flow.target]
        pairs = flow.pairs
        inside = (pairs >= 0).all() and (pairs < [source.size, target.size]).all()
        if not inside or len(np.unique(pairs @ [target.size, 1])) != len(pairs):
            look.bad("bad-pair", f"{flow.label} lists a pair twice, or a site that is not there", flow)
            continue
        found[flow] = _carried(look, flow, source, target)
    return found


def _carried(look: Look, flow: Flow, source: AnyUnit, target: AnyUnit) -> Floats:
    pairs = flow.pairs
    match source, target:
        case Compute(), Compute():
            each = np.arange(target.size)
            _compare(look, flow, np.stack([each, each], axis=1))
            return np.ones(len(pairs))
        case (Compute(), Buffer() as buffer) | (Buffer() as buffer, Compute()):
            outward = isinstance(source, Compute)
            view = flow.target_view if outward else flow.source_view
            assert view is not None
            have = shares(flow, buffer, view)
            site, unit = np.nonzero(have)
            _compare(look, flow, np.stack([site, unit] if outward else [unit, site], axis=1))
            share = have / have.sum(axis=1, keepdims=True)
            columns = (pairs[:, 0], pairs[:, 1]) if outward else (pairs[:, 1], pairs[:, 0])
            return share[columns]
        case (Compute(), Generator()) | (Generator(), Compute()):
            side = 0 if isinstance(source, Compute) else 1
            _reaches(look, flow, side, np.arange(flow.stream.sites))
            _spreads(look, flow, 1 - side)
            times = np.bincount(pairs[:, side], minlength=1)
            return 1 / times[pairs[:, side]]
        case Buffer(), Buffer():
            return _between(look, flow, source, target)
        case _:
            for side, (unit, view) in enumerate(((source, flow.source_view), (target, flow.target_view))):
                if isinstance(unit, Buffer) and view is not None:
                    _reaches(look, flow, side, np.flatnonzero(_whole(flow, unit, view)))
                elif isinstance(unit, Generator):
                    _reaches(look, flow, side, np.arange(unit.size))
            return _dealt(flow, source, target)


def _whole(flow: Flow, buffer: Buffer, view: View) -> Ints:
    """How many cells of the whole stream each unit owns."""
    return owned(buffer, touched(flow.stream, view, flow.stream.loops), np.zeros(1, np.int64))[0]


def _dealt(flow: Flow, source: AnyUnit, target: AnyUnit) -> Floats:
    """What a buffer's unit holds goes evenly over its pairs with address generators."""
    pairs = flow.pairs
    if not len(pairs):
        return np.zeros(0)
    for side, (unit, view) in enumerate(((source, flow.source_view), (target, flow.target_view))):
        if isinstance(unit, Buffer) and view is not None:
            have = _whole(flow, unit, view)
            return have[pairs[:, side]] / have.sum() / np.bincount(pairs[:, side], minlength=unit.size)[pairs[:, side]]
    return np.full(len(pairs), 1 / len(pairs))


def _between(look: Look, flow: Flow, source: Buffer, target: Buffer) -> Floats:
    """Two buffers: the unit that owns an element at the one end talks to the one that owns it at the other."""
    assert flow.source_view is not None and flow.target_view is not None
    shape = flow.stream.full_shape
    table = np.zeros((source.size, target.size))
    last = len(shape) - 1
    inner = max(1, shape[last]) if shape else 1
    heads = np.indices(shape[:-1]).reshape(len(shape[:-1]), -1) if len(shape) > 1 else np.zeros((0, 1), np.int64)
    along = np.arange(inner)
    sides: list[Ints] = []
    for buffer, view in ((source, flow.source_view), (target, flow.target_view)):
        base = view.offset + np.array(view.strides[:-1], np.int64) @ heads
        at = base[:, None] + along * (view.strides[-1] if shape else 0)
        block, period = buffer.block
        sides.append((at % period // block).ravel())
    np.add.at(table, tuple(sides), 1)
    _compare(look, flow, np.stack(np.nonzero(table), axis=1))
    return table[flow.pairs[:, 0], flow.pairs[:, 1]] / table.sum()


def _compare(look: Look, flow: Flow, needed: Ints) -> None:
    need, have = set(rows(needed)), set(rows(flow.pairs))
    if missing := sorted(need - have):
        look.bad(
            "missing-pair",
            f"{flow.label} lacks the pairs {few(missing)}",
            flow,
            why="the address programs move words between these sites",
        )
    if needless := sorted(have - need):
        look.bad("needless-pair", f"{flow.label} has the pairs {few(needless)}, which carry nothing", flow)


def _spreads(look: Look, flow: Flow, side: int) -> None:
    """The sites of a compute unit share the sites of an address generator, any of which reaches all addresses: a flow
    of fewer sites than the generator has uses as many, and others the rest."""
    unit = look.config.units[flow.ends[side][0]]
    have, need = len(np.unique(flow.pairs[:, side])), min(flow.stream.sites, unit.size)
    if have < need:
        look.bad("missing-pair", f"{flow.label} has pairs with {have} of {need} sites of @{unit.name}", flow)


def _reaches(look: Look, flow: Flow, side: int, needed: Ints) -> None:
    missing = np.setdiff1d(needed, flow.pairs[:, side])
    if len(missing):
        unit = look.config.units[flow.ends[side][0]]
        look.bad("missing-pair", f"{flow.label} has no pair with site {few(numbers(missing))} of @{unit.name}", flow)
    if len(needless := np.setdiff1d(flow.pairs[:, side], needed)):
        told = few(numbers(needless))
        look.bad("needless-pair", f"{flow.label} has pairs of sites {told} that hold nothing of it", flow)


# Buffers.


def check_buffers(look: Look) -> float:
    """Frames, cells and capacity; the fullest memory unit as a share of its bytes."""
    fullest = 0.0
    for index, unit in enumerate(look.config.units):
        if isinstance(unit, Buffer):
            writers, readers = ends(look, index, False), ends(look, index, True)
            if not any(f.source == index for f in look.config.flows):
                look.bad("never-read", f"nothing reads @{unit.name}", unit)
            everything = _written_once(look, unit.name, writers)
            if _agree(look, unit, [*writers, *readers]):
                _check_reads(look, unit, writers, readers, everything)
                fullest = max(fullest, _check_room(look, unit, writers, readers))
        elif isinstance(unit, Generator) and unit.direction == "store":
            _check_store(look, index, unit)
    return fullest


def _agree(look: Look, unit: Buffer, users: Sequence[End]) -> bool:
    """Whether the frame loops mean the same to all flows of a buffer."""
    seen: dict[tuple[tuple[int, int], ...], str] = {}
    for end in users:
        loops = end.flow.stream.time[: unit.frames]
        if len(loops) < unit.frames:
            what = f"{end.flow.label} has {len(loops)} time loops, @{unit.name} {unit.frames} frame loops"
            look.bad("frames-differ", what, end.flow)
            return False
        terms = ((x.count, x.step * end.view.strides[x.dim] if x.dim >= 0 else 0) for x in loops)
        seen.setdefault(tuple(t for t in terms if t[0] > 1), end.flow.label)
    if len(seen) > 1:
        told = "; ".join(f"{label}: {list(loops)}" for loops, label in seen.items())
        look.bad("frames-differ", f"the frames of @{unit.name} (count, addresses) differ: {told}", unit)
    return len(seen) <= 1


def _frame(end: End, frames: int) -> Cells:
    stream = end.flow.stream
    return touched(stream, end.view, (*stream.time[frames:], *stream.space))


def _written_once(look: Look, name: str, writers: Sequence[End]) -> Cells:
    """All cells that the flows write, once it is sure that none is written twice."""
    everything = NONE
    for end in writers:
        stream = end.flow.stream
        cells = touched(stream, end.view, stream.loops)
        if cells.count != elements_moved(stream):
            what = f"{end.flow.label} writes {elements_moved(stream)} elements to {cells.count} cells of @{name}"
            look.bad("written-twice", what, end.flow)
        if cells.meets(everything):
            look.bad("written-twice", f"{end.flow.label} writes cells of @{name} that another flow writes", end.flow)
        everything = union([everything, cells])
    return everything


def _check_reads(look: Look, unit: Buffer, writers: Sequence[End], readers: Sequence[End], everything: Cells) -> None:
    """What a frame reads is what the same frame has written, or no frame writes."""
    written = union(_frame(end, unit.frames) for end in writers)
    for end in readers:
        missing = _frame(end, unit.frames).minus(written)
        if not missing.count:
            continue
        moves = shifts(end.flow.stream.time[: unit.frames], end.view)
        if late := [f for f, by in enumerate(moves.tolist()) if missing.moved(by).meets(everything)]:
            what = f"{end.flow.label} reads in frame {few(late)} of @{unit.name} cells that another frame writes"
            look.bad("read-too-early", what, end.flow)


def _check_store(look: Look, index: int, unit: Generator) -> None:
    writers = ends(look, index, False)
    type = _held(look, unit)
    if type is None or len(writers) != sum(f.target == index for f in look.config.flows):
        return
    written = _written_once(look, unit.name, writers)
    if written.count < type.elements:
        what = f"@{unit.name} writes {written.count} of the {type.elements} elements of parameter {unit.param}"
        look.bad("never-written", what, unit)


def _check_room(look: Look, unit: Buffer, writers: Sequence[End], readers: Sequence[End]) -> float:
    """Bytes that the fullest unit of a buffer holds: `copies` frames that follow each other, whatever lies in them."""
    users = [*writers, *readers]
    if not users:
        return 0.0
    cells = union(_frame(end, unit.frames) for end in users)
    moves = shifts(users[0].flow.stream.time[: unit.frames], users[0].view)
    have = owned(unit, cells, moves)
    frames = len(moves)
    if look.config.runs > 1 and not unit.kept:  # frames of the next run follow
        have = np.concatenate([have] * (-(-unit.copies // frames) + 1))[: frames + unit.copies - 1]
    copies = min(unit.copies, len(have))
    total = np.cumsum(np.concatenate([np.zeros((1, unit.size), np.int64), have]), axis=0)
    bytes_held = int((total[copies:] - total[:-copies]).max()) * byte_size(unit.type.dtype)
    room = look.device.pmu.bytes
    if bytes_held > room:
        what = f"a unit of @{unit.name} ({unit.type}) holds {bytes_held} bytes of {room}"
        look.bad("buffer-too-large", what, unit, why=f"{unit.size} units, {copies} of {frames} frames at a time")
    return bytes_held / room
