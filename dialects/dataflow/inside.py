"""Where the tiles of values inside a stage lie in whole tensors: those that lie as the tiles of an input or a result.

A stage's input and result are streams: each tile has its place in a whole tensor. An op that keeps every element where
it is (an addition, a softmax) hands the places on, from operands to results and back, so that values inside the stage
can be put together to whole tensors, too. A value in another order or of another extent has none here.
"""

from __future__ import annotations

from xdsl.ir import OpResult, SSAValue

from headrace.dialects.dataflow.ops import StageOp, YieldOp, stream_of
from headrace.dialects.support.access import Stream
from headrace.dialects.tensor import shapes
from headrace.dialects.tensor.base import TensorOp, tt


def streams_inside(stage: StageOp) -> dict[SSAValue, Stream]:
    """The stream that each value inside a stage goes like, where one is known."""
    block = stage.body.block
    found: dict[SSAValue, Stream] = {}
    ops = [op for op in block.ops if isinstance(op, TensorOp)]
    end = block.last_op
    assert isinstance(end, YieldOp)
    for value, result in zip(end.values, stage.outs, strict=True):
        found.setdefault(value, _of(stream_of(result), value))
    for op in reversed(ops):
        for result in op.results:
            if result in found:
                for operand in kept_operands(op, result):
                    found.setdefault(operand, _of(found[result], operand))
    for argument, operand in zip(block.args, stage.ins, strict=True):
        found.setdefault(argument, stream_of(operand))
    for op in ops:
        for result in op.results:
            if result not in found:
                places = [found[x] for x in kept_operands(op, result) if x in found]
                if places:
                    found[result] = _of(places[0], result)
    return found


def kept_operands(op: TensorOp, result: OpResult) -> list[SSAValue]:
    """The operands whose elements lie where those of a result lie, tile by tile."""
    types, results = [tt(x) for x in op.operands], [tt(x) for x in op.results]
    tiling = shapes.tiling(op.name, op.attrs(), types, results)
    at = tiling.results[result.index]
    same: list[SSAValue] = []
    for operand, type, follows in zip(op.operands, types, tiling.operands, strict=True):
        if type.shape == tt(result).shape and all(
            a is b is None
            or (a is not None and b is not None and (a.dim, a.scale, a.extent, a.offset) == (b.dim, 1, 1, 0))
            for a, b in zip(follows, at, strict=True)
        ):
            same.append(operand)
    return same


def _of(stream: Stream, value: SSAValue) -> Stream:
    """A stream like this one of tiles of the value's type."""
    return Stream(stream.tile, tt(value).dtype, stream.time)
