"""choose-layouts: in which order a buffer holds its dims, and which buffers are one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from headrace.dialects.dataflow.ops import BufferOp, SectionOp, StageOp, stream_of, views
from headrace.dialects.dataflow.types import StreamType
from headrace.dialects.support import locations
from headrace.dialects.support.access import View, row_major
from headrace.dialects.support.journal import decline, may
from headrace.passes.analysis.sections import sections, sort_block
from headrace.passes.infra.base import Pass

WINDOWED = frozenset({"tensor.conv", "tensor.max_pool", "tensor.avg_pool"})


def coordinates(address: int, shape: Sequence[int]) -> tuple[int, ...]:
    """An address (0 or more) as a coordinate of a dense row-major tensor."""
    found: list[int] = []
    for stride in row_major(shape):
        found.append(address // stride)
        address %= stride
    return tuple(found)


def moved(
    view: View, sizes: Sequence[int], shape: Sequence[int], strides: Sequence[int], offset: int = 0
) -> View | None:
    """A view of a dense row-major tensor of `shape` as a view of memory where that tensor's coordinate c lies at
    offset + Σ c·strides; None when the view does not step along its dims (it carries from one into the next)."""
    if view.offset < 0 or any(s < 0 for s in view.strides):
        return None
    first = coordinates(view.offset, shape)
    steps = [coordinates(s, shape) for s in view.strides]
    for d, n in enumerate(shape):
        reach = first[d] + sum((size - 1) * step[d] for size, step in zip(sizes, steps, strict=True))
        if reach >= n:
            return None
    at = offset + sum(c * s for c, s in zip(first, strides, strict=True))
    return View(at, tuple(sum(c * s for c, s in zip(step, strides, strict=True)) for step in steps))


def _feeds_windows(value: SSAValue) -> bool:
    for use in value.uses:
        stage = use.operation
        if not isinstance(stage, StageOp):
            continue
        argument = stage.body.block.args[use.index]
        if any(u.index == 0 and u.operation.name in WINDOWED for u in argument.uses):
            return True
    return False


def _rebuilt(buffer: BufferOp, shape: Sequence[int], ports: Sequence[View], outs: Sequence[StreamType]) -> BufferOp:
    count = len(buffer.ins)
    new = BufferOp(list(buffer.ins), ports[:count], shape, outs, ports[count:], buffer.fill.value.data)
    new.location = buffer.location
    return new


def _channels_last(buffer: BufferOp) -> bool:
    """Hold [N, C, …] as [N, …, C] where windows read it."""
    shape = buffer.buffer_type.shape
    if len(shape) < 3 or not any(map(_feeds_windows, buffer.outs)):
        return False
    last = (shape[0], *shape[2:], shape[1])
    dense = row_major(last)
    strides = (dense[0], dense[-1], *dense[1:-1])
    ports: list[View] = []
    for stream, view in buffer.ports:
        found = moved(view, stream.full_shape, shape, strides)
        if found is None:
            decline("channels-last", buffer, "a view of it carries from one dim into the next")
            return False
        ports.append(found)
    if last == shape and ports == [view for _, view in buffer.ports]:
        decline("channels-last", buffer, "its channels are innermost")
        return False
    if not may("channels-last", buffer):
        return False
    outs = [r.type for r in buffer.outs]
    new = _rebuilt(buffer, last, ports, outs)  # pyright: ignore[reportArgumentType]
    block = buffer.parent_block()
    assert block is not None
    block.insert_op_before(new, buffer)
    for old, out in zip(buffer.outs, new.outs, strict=True):
        old.replace_all_uses_with(out)
    buffer.detach()
    buffer.erase()
    return True


def _share(section: SectionOp) -> bool:
    """Readers of a tensor that also lies inside another tensor's margin read it there: one buffer, one write."""
    by_writer: dict[SSAValue, list[BufferOp]] = {}
    for op in section.body.block.ops:
        if isinstance(op, BufferOp) and len(op.ins) == 1:
            by_writer.setdefault(op.ins[0], []).append(op)
    changed = False
    for made, buffers in by_writer.items():
        stream = stream_of(made)
        padded = [b for b in buffers if b.buffer_type.elements > stream.tile_elements and not stream.time]
        if not padded:
            continue
        host = padded[0]
        inside = views(host.in_views)[0]
        for guest in buffers:
            if guest is host or guest in padded:
                continue
            if views(guest.in_views)[0] != View(0, row_major(stream.tile)):
                decline("share-buffer", guest, "it holds the tensor in another order")
                continue
            found = [
                moved(view, stream_of(out).full_shape, stream.tile, inside.strides, inside.offset)
                for out, view in zip(guest.outs, views(guest.out_views), strict=True)
            ]
            if any(v is None for v in found):
                decline("share-buffer", guest, "a view of it carries from one dim into the next")
                continue
            if not may("share-buffer", guest):
                continue
            host = _join(host, guest, [v for v in found if v is not None])
            changed = True
    if changed:
        sort_block(section.body.block)
    return changed


def _join(host: BufferOp, guest: BufferOp, added: Sequence[View]) -> BufferOp:
    ports = [*views(host.in_views), *views(host.out_views), *added]
    outs = [r.type for r in (*host.outs, *guest.outs)]
    new = _rebuilt(host, host.buffer_type.shape, ports, outs)  # pyright: ignore[reportArgumentType]
    new.location = locations.fuse([host.location, guest.location])
    block = host.parent_block()
    assert block is not None
    block.insert_op_before(new, host)
    for old, out in zip((*host.outs, *guest.outs), new.outs, strict=True):
        old.replace_all_uses_with(out)
    for op in (guest, host):
        op.detach()
        op.erase()
    return new


@dataclass(frozen=True)
class ChooseLayoutsPass(Pass):
    """Hold what windows read with channels innermost, and read a tensor inside its padded copy where there is one.

    Assumes untiled stages. A convolution multiplies over channels and window, so channels innermost gives the lanes
    consecutive addresses. A tensor that one reader wants padded and another plain is written once, into the padded
    buffer. Address programs change, values do not.

        dataflow.buffer [1, 64, 58, 58] (%s at 59 [215296, 3364, 58, 1]) to (at 0 [215296, 3364, 58, 1])
        =>
        dataflow.buffer [1, 58, 58, 64] (%s at 3776 [215296, 1, 3712, 64]) to (at 0 [215296, 1, 3712, 64])
    """

    name = "choose-layouts"

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        changed = False
        for section in sections(module):
            changed |= _share(section)
            for op in list(section.body.block.ops):
                if isinstance(op, BufferOp):
                    changed |= _channels_last(op)
        return changed
