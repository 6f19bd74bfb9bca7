"""tile: every stage gets loops, every stream tiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, Region, SSAValue

from headrace.dialects.dataflow.ops import (
    BufferOp,
    GatherOp,
    LoadOp,
    ScatterOp,
    SectionOp,
    StageOp,
    StoreOp,
    YieldOp,
    stream_of,
    views,
)
from headrace.dialects.dataflow.types import StreamType
from headrace.dialects.machine.attributes import device_of
from headrace.dialects.support import dtypes
from headrace.dialects.support.access import Loop, Stream, View, identity
from headrace.dialects.support.journal import count, current, decide, decline, may
from headrace.dialects.tensor.shapes import TT
from headrace.dialects.tensor.shapes.bodies import Axis, cut
from headrace.passes.analysis.bodies import Body
from headrace.passes.analysis.network import Port, shared_frames
from headrace.passes.analysis.phases import moved
from headrace.passes.analysis.runs import runs_of
from headrace.passes.analysis.sections import sections
from headrace.passes.infra.base import Pass, option

CONTRACTIONS = frozenset({"tensor.matmul", "tensor.conv"})
MOST_COLUMNS = 4096
"""Most iterations of a stage whose columns are looped because a tile of whole rows is too large."""


def largest_divisor(n: int, most: int) -> int:
    """The largest divisor of n that is at most `most` (at least 1)."""
    best = 1
    d = 1
    while d * d <= n:
        if n % d == 0:
            for x in (d, n // d):
                if best < x <= most:
                    best = x
        d += 1
    return best


def least_divisor(n: int, least: int) -> int:
    """The least divisor of n that is at least `least`; n when there is none."""
    return min((d for d in _divisors(n) if d >= least), default=n)


@dataclass(frozen=True)
class Choice:
    """How a stage is tiled: for each looped axis, outermost first, the count and the block."""

    loops: tuple[tuple[Axis, int, int], ...]

    def stream(self, value: int, type: TT, tile: TT) -> Stream:
        """The stream of a body value under these loops."""
        time = [
            Loop(count, follow.dim, block * follow.scale)
            if (follow := axis.follows.get(value)) is not None
            else Loop(count, -1, 0)
            for axis, count, block in self.loops
        ]
        return Stream(tile.shape, type.dtype, tuple(time))


def choose(
    body: Body, steps: int, rows: int, resident: int, passing: int, prefer: Prefer | None = None, block: int = 0
) -> Choice:
    """Loops of a stage: outer dims first until `steps` iterations; the innermost keeps `rows` indices a tile.

    The last dim (columns) is not looped, unless the second operand of a contraction has more than `resident` bytes:
    then the columns are the outermost loop, so that it streams through in blocks, two of which have `passing` bytes.
    One that is many matrices, of which few are held at a time, streams through by matrices as it is. A convolution
    loops over its outer spatial dims, and over output channels for the same reason. Where there is no contraction, the
    columns are the innermost loop if two tiles had more than `passing` bytes otherwise.

    `prefer` gives the outermost loop (axis and count) that follows what feeds the stage best, if any; other dims are
    then looped inside it until a tile of the result has at most `block` bytes.
    """
    out = body.types[body.outputs[0]]
    found = body.axes()
    contraction = next((op for op in body.ops if op.name in CONTRACTIONS), None)
    last = len(out.shape) - 1
    if contraction is None:
        others = [a for a in found if a.dim_of(body.outputs[0]) != last]
        loops = _split(others, steps, rows)
        followed = prefer(others, loops) if prefer is not None else None
        if followed is not None:
            loops = [followed, *_inside(body, followed, others, block)]
        nbytes = out.elements * dtypes.byte_size(out.dtype)
        if len(found) > len(others) and 2 * nbytes // prod(count for _, count, _ in loops) > passing:
            columns = next(a for a in found if a.dim_of(body.outputs[0]) == last)
            single = [(axis, axis.size, 1) for axis in others]  # memory is shared along columns, one row at a time
            lines = prod(axis.size for axis in others)
            count = least_divisor(columns.size, -(-2 * nbytes // (lines * max(1, passing))))
            if lines * count <= MOST_COLUMNS:  # a prime number of columns would go one by one
                loops = [*single, (columns, count, columns.size // count)]
        return Choice(tuple(loops))
    conv = contraction.name == "tensor.conv"
    across = 1 if conv else last
    held = contraction.operands[1]
    nbytes = body.types[held].elements * dtypes.byte_size(body.types[held].dtype)
    streamed: list[tuple[Axis, int, int]] = []
    columns = next((a for a in found if a.dim_of(body.outputs[0]) == across and held in a.follows), None)
    spared = (across, last)
    others = [a for a in found if a.dim_of(body.outputs[0]) not in spared]
    matrices = prod(count for axis, count, _ in _split(others, steps, rows) if held in axis.follows)
    if nbytes // matrices > resident and columns is not None:
        count = least_divisor(columns.size, -(-2 * nbytes // max(1, passing)))  # two blocks are held at a time
        streamed = [(columns, count, columns.size // count)] if count > 1 else []
    left = max(1, steps // max(1, *(count for _, count, _ in streamed), 1))
    loops = _split(others, left, 1 if conv else rows)
    followed = prefer(others, loops) if prefer is not None and not streamed else None
    if followed is not None:
        loops = [followed, *_inside(body, followed, others, block)]
    return Choice((*streamed, *loops))


def _inside(
    body: Body, outer: tuple[Axis, int, int], others: Sequence[Axis], block: int
) -> list[tuple[Axis, int, int]]:
    """Loops inside an outer one, outer dims first, until a tile of whatever they cut has at most `block` bytes."""
    ends = {*range(body.inputs), *body.outputs}
    nbytes = {v: body.types[v].elements * dtypes.byte_size(body.types[v].dtype) for v in ends}

    def shrink(axis: Axis, count: int) -> None:
        for v in ends & axis.follows.keys():
            nbytes[v] //= count

    shrink(outer[0], outer[1])
    loops: list[tuple[Axis, int, int]] = []
    for axis in others:
        if axis is outer[0] or axis.size == 1:
            continue
        largest = max((nbytes[v] for v in ends & axis.follows.keys()), default=0)
        if largest <= block:
            continue
        count = least_divisor(axis.size, -(-largest // max(1, block)))
        loops.append((axis, count, axis.size // count))
        shrink(axis, count)
    return loops


Prefer = Callable[[Sequence[Axis], list[tuple[Axis, int, int]]], "tuple[Axis, int, int] | None"]


def _split(found: Sequence[Axis], steps: int, rows: int) -> list[tuple[Axis, int, int]]:
    loops: list[tuple[Axis, int, int]] = []
    left = steps
    for i, axis in enumerate(found):
        most = left if i + 1 < len(found) else max(1, min(left, axis.size // rows))
        count = largest_divisor(axis.size, most)
        if count > 1:
            loops.append((axis, count, axis.size // count))
            left //= count
        if count < axis.size or left <= 1:
            break
    return loops


class _Tiler:
    """Rebuilds a section with the loops chosen for each stage."""

    def __init__(
        self, section: SectionOp, steps: int, rows: int, chunk: int, resident: int, passing: int, block: int
    ) -> None:
        self.section = section
        self.steps, self.rows, self.chunk, self.resident, self.passing = steps, rows, chunk, resident, passing
        self.block = block
        self.streams: dict[SSAValue, Stream] = {}
        self.bodies: dict[Operation, tuple[Body, tuple[TT, ...]]] = {}

    def run(self) -> bool:
        old = self.section.body.block
        if any(isinstance(r.type, StreamType) and r.type.loops for op in old.ops for r in op.results):
            decline("tile", self.section, "it is tiled already")
            return False
        for op in old.ops:
            self._decide(op)
        for op in old.ops:
            if isinstance(op, LoadOp):
                self.streams[op.out] = self._load(op)
        if all(not s.time for s in self.streams.values()):
            decline("tile", self.section, "every tensor in it is one tile")
            return False
        if not may("tile", self.section):
            return False
        self._explain()
        new = Block(arg_types=[a.type for a in old.args])
        for argument, before in zip(new.args, old.args, strict=True):
            argument.location = before.location
        mapping: dict[SSAValue, SSAValue] = dict(zip(old.args, new.args, strict=True))
        for op in old.ops:
            made = self._rebuild(op, mapping)
            made.location = op.location
            new.add_op(made)
            mapping.update(zip(op.results, made.results, strict=True))
        self.section.body.detach_block(old)
        for op in reversed(list(old.ops)):
            op.drop_all_references()
        self.section.body.add_block(new)
        return True

    def _explain(self) -> None:
        if current() is None:
            return
        for op, (body, types) in self.bodies.items():
            out = body.outputs[0]
            loops = self.streams[op.results[0]].time
            if loops:
                steps = prod(loop.count for loop in loops)
                count("stages tiled")
                count("tiles", steps)
                decide("loops", op, f"{steps} steps of {types[out]}: {', '.join(map(_spelt, loops))}", ())
            elif body.axes():
                decline("tile", op, f"{body.types[out]} is one tile: a tile has at least {self.rows} rows")
            else:
                decline("tile", op, "its ops couple every dim of the result, so that none may be cut")

    def _decide(self, op: Operation) -> None:
        if isinstance(op, StageOp):
            body = Body.of(op.body.block)
            choice = choose(
                body,
                self.steps,
                self.rows,
                self.resident,
                self.passing,
                lambda others, loops: self._prefer(op, body, others, loops),
                self.block,
            )
            types = cut(body.ops, body.types, [(axis, block) for axis, _, block in choice.loops])
            self.bodies[op] = (body, types)
            for i, value in enumerate(op.ins):
                self.streams[value] = choice.stream(i, body.types[i], types[i])
            for v, out in zip(body.outputs, op.outs, strict=True):
                self.streams[out] = choice.stream(v, body.types[v], types[v])
        elif isinstance(op, GatherOp | ScatterOp):
            index = stream_of(op.indices)
            rows = op.out if isinstance(op, GatherOp) else op.rows
            lead = index.tile[0] if index.tile else 1
            count = largest_divisor(lead, self.steps)
            self.streams[op.indices] = _rows(index, count)
            self.streams[rows] = _rows(stream_of(rows), count)

    def _prefer(
        self, op: StageOp, body: Body, others: Sequence[Axis], loops: list[tuple[Axis, int, int]]
    ) -> tuple[Axis, int, int] | None:
        """The outermost loop with which a stage follows most of what other stages hand it, so that they overlap."""
        feeds: list[tuple[int, list[Port], View, int]] = []
        for i, value in enumerate(op.ins):
            buffer = value.owner
            if isinstance(buffer, BufferOp):
                writers = [
                    (self.streams[v], view)
                    for v, view in zip(buffer.ins, views(buffer.in_views), strict=True)
                    if v in self.streams
                ]
                if writers and len(writers) == len(buffer.ins):
                    out = buffer.outs.index(value)  # pyright: ignore[reportArgumentType]
                    nbytes = body.types[i].elements * dtypes.byte_size(body.types[i].dtype)
                    feeds.append((i, writers, views(buffer.out_views)[out], nbytes))
        if not feeds:
            return None

        def followed(loop: tuple[Axis, int, int]) -> int:
            axis, _, block = loop
            types = cut(body.ops, body.types, [(axis, block)])
            choice = Choice((loop,))
            return sum(
                nbytes
                for i, writers, view, nbytes in feeds
                if shared_frames(writers, [(choice.stream(i, body.types[i], types[i]), view)])
            )

        counts = {w.time[0].count for _, writers, _, _ in feeds for w, _ in writers if w.time}
        candidates = [
            (axis, count, axis.size // count)
            for axis in others
            for count in sorted(counts)
            if count > 1 and axis.size % count == 0
        ]
        best = max(candidates, key=followed, default=None)
        if best is None or not followed(best):
            return None
        if loops and followed(loops[0]) >= followed(best):
            return None if len(loops) == 1 else loops[0]
        return best

    def _load(self, op: LoadOp) -> Stream:
        """A load goes by chunks; inside the outer loops of its only reader where that reader takes each block in order,
        so that blocks stream through."""
        stream = stream_of(op.out)
        most = max(1, self.chunk // dtypes.byte_size(stream.dtype))
        outer = self._followed(op)
        if outer is None:
            return chunks(stream, most, self.steps)
        inner = chunks(Stream(outer.tile, outer.dtype), most, self.steps)
        return Stream(inner.tile, inner.dtype, outer.time + inner.time)

    def _followed(self, op: LoadOp) -> Stream | None:
        """The stream of a load's only reader without the repeats inside its loops; None when it reads another order."""
        uses = [use.operation for use in op.out.uses]
        if len(uses) != 1 or not isinstance(buffer := uses[0], BufferOp) or len(buffer.outs) != 1:
            return None
        whole = identity(buffer.buffer_type.shape)
        if views(buffer.out_views)[0] != whole or views(buffer.in_views)[0] != whole:
            return None
        read = self.streams.get(buffer.outs[0], stream_of(buffer.outs[0]))
        time = list(read.time)
        while time and time[-1].dim < 0:
            time.pop()
        found = Stream(read.tile, read.dtype, tuple(time))
        return found if found.partitions and found.full_shape == stream_of(op.out).tile else None

    def _type(self, value: SSAValue) -> StreamType:
        return StreamType.from_stream(self.streams.get(value, stream_of(value)))

    def _rebuild(self, op: Operation, mapping: dict[SSAValue, SSAValue]) -> Operation:
        if isinstance(op, LoadOp):
            return LoadOp(mapping[op.tensor], op.view.view, self._type(op.out))
        if isinstance(op, BufferOp):
            return BufferOp(
                [mapping[v] for v in op.ins],
                views(op.in_views),
                op.buffer_type.shape,
                [self._type(r) for r in op.outs],
                views(op.out_views),
                op.fill.value.data,
            )
        if isinstance(op, StageOp):
            body, types = self.bodies[op]
            block, values = body.block(types)
            block.add_op(end := YieldOp(values))
            end.location = op.location
            ins = [mapping[v] for v in op.ins]
            return StageOp(op.sym.data, ins, [self._type(r) for r in op.outs], Region(block))
        if isinstance(op, GatherOp):
            return GatherOp(mapping[op.table], mapping[op.indices], self._type(op.out))
        assert isinstance(op, StoreOp | ScatterOp | YieldOp), f"tile runs before ops such as {op.name} are made"
        return op.clone(mapping)


def _spelt(loop: Loop) -> str:
    return f"{loop.count} on dim {loop.dim} by {loop.step}" if loop.dim >= 0 else f"{loop.count} times the same"


def _rows(stream: Stream, count: int) -> Stream:
    if count <= 1 or not stream.tile:
        return stream
    block = stream.tile[0] // count
    return Stream((block, *stream.tile[1:]), stream.dtype, (Loop(count, 0, block),))


def chunks(stream: Stream, most: int, steps: int) -> Stream:
    """A whole-tensor stream cut along its outer dims into at most `steps`² tiles of about `most` elements."""
    tile = list(stream.tile)
    loops: list[Loop] = []
    for dim, size in enumerate(stream.tile):
        need = -(-prod(tile) // most)
        if need <= 1:
            break
        count = largest_divisor(size, max(1, min(least_divisor(size, need), steps)))
        if count > 1:
            tile[dim] = size // count
            loops.append(Loop(count, dim, tile[dim]))
        if len(loops) == 2:
            break
    return Stream(tuple(tile), stream.dtype, tuple(loops))


def _divisors(n: int) -> list[int]:
    small = [d for d in range(1, int(n**0.5) + 1) if n % d == 0]
    return small + [n // d for d in reversed(small) if d * d != n]


@dataclass(frozen=True)
class TilePass(Pass):
    """Give every stage the loops that stream its tensors tile by tile, and its streams tiles of that size.

    Assumes untiled stages and a device in the module. A dim is looped only when the body may be cut along it; the tile
    spans what the ops couple. Loads follow their reader where they can, else they go by chunks. Where several runs
    follow each other (`dataflow.runs`), these keep the stages at work: a tile is a whole tensor where memory units have
    room, so that weights are read once a run.

        (!dataflow.stream<tensor<512x768xf32>>, …)   =>   (!dataflow.stream<tensor<64x768xf32>, [8 on 0 by 64]>, …)
    """

    name = "tile"
    steps: int = option(64, "most iterations of a stage", low=1)
    rows: int = option(64, "fewest rows in a tile, where the tensor has as many", low=1)
    chunk: int = option(65536, "size of the tiles of a load that follows no reader", unit="bytes", low=64)

    resident: float = option(0.75, "share of the on-chip memory up to which weights stay whole on the chip", low=0.0)
    block: float = option(0.0157, "share of the on-chip memory up to which a tile inside a row loop is whole", low=0.0)
    passing: float = option(0.125, "share of the on-chip memory that larger weights take, in two blocks", low=0.0)
    whole: float = option(0.0625, "share up to which all that a section makes in one of several runs is whole", low=0.0)

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        device = device_of(module)
        memory = device.count("pmu") * device.pmu.bytes
        held, passing = int(memory * self.resident), int(memory * self.passing)
        block = int(memory * self.block)
        streams = runs_of(module) > 1
        changed: list[bool] = []
        for section in sections(module):
            whole = streams and _made(section) <= memory * self.whole
            if whole:
                count("sections of whole tensors")
            steps = 1 if whole else self.steps
            changed.append(_Tiler(section, steps, self.rows, self.chunk, held, passing, block).run())
        return any(changed)


def _made(section: SectionOp) -> int:
    """Bytes of all that the stages of a section make."""
    return sum(moved(out) for op in section.body.block.ops if isinstance(op, StageOp) for out in op.outs)
