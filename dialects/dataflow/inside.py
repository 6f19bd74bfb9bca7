"""Where the tiles of values inside a stage lie in whole tensors: those that lie as the tiles of an input or a result.

A stage's input and result are streams: each tile has its place in a whole tensor. An op that keeps every element where
it is (an addition, a softmax) hands the places on, from operands to results and back, so that values inside the stage
can be put together to whole tensors, too. A value in another order or of another extent has none here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from xdsl.ir import Block, OpResult, SSAValue

from headrace.dialects.dataflow.ops import StageOp, YieldOp, stream_of
from headrace.dialects.support.access import Stream
from headrace.dialects.tensor import shapes
from headrace.dialects.tensor.base import TensorOp, tt

T = TypeVar("T")


def streams_inside(stage: StageOp) -> dict[SSAValue, Stream]:
    """The stream that each value inside a stage goes like, where one is known."""
    end = stage.body.block.last_op
    assert isinstance(end, YieldOp)
    inputs: dict[SSAValue, Stream] = {a: stream_of(x) for a, x in zip(stage.body.block.args, stage.ins, strict=True)}
    outputs = {value: stream_of(x) for value, x in zip(end.values, stage.outs, strict=True)}
    found = places_inside(stage.body.block, inputs, outputs)
    return {value: Stream(stream.tile, tt(value).dtype, stream.time) for value, stream in found.items()}


def places_inside(block: Block, inputs: Mapping[SSAValue, T], outputs: Mapping[SSAValue, T]) -> dict[SSAValue, T]:
    """The places of the values in a body whose tiles lie as those of an output or an input, whose places are given."""
    found = dict(outputs)
    ops = [op for op in block.ops if isinstance(op, TensorOp)]
    for op in reversed(ops):
        for result in op.results:
            if result in found:
                for operand in kept_operands(op, result):
                    found.setdefault(operand, found[result])
    for argument in block.args:
        found.setdefault(argument, inputs[argument])
    for op in ops:
        for result in op.results:
            if result not in found:
                places = [found[x] for x in kept_operands(op, result) if x in found]
                if places:
                    found[result] = places[0]
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
