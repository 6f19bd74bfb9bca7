"""Stage and unit bodies as plain numbered ops, and back: what tiling, spreading and encoding work on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from xdsl.ir import Block, Operation, SSAValue

from headrace.dialects.support.locations import Location
from headrace.dialects.tensor.base import attributes_of, create, ir_type, tt
from headrace.dialects.tensor.shapes import TT, infer, joined_attrs
from headrace.dialects.tensor.shapes.bodies import Axis, axes, fit


@dataclass(frozen=True)
class NumberedOp:
    """A body op whose values are numbers (block arguments first, then results in op order)."""

    name: str
    attrs: Mapping[str, Any]
    operands: tuple[int, ...]
    results: tuple[int, ...]
    location: Location
    source: Operation


@dataclass(frozen=True)
class Body:
    """A block of tensor ops in numbered form. `outputs` are the values that its terminator yields."""

    inputs: int
    ops: tuple[NumberedOp, ...]
    types: tuple[TT, ...]
    outputs: tuple[int, ...]
    origins: tuple[Location, ...] = ()
    """Where the inputs come from."""

    @classmethod
    def of(cls, block: Block) -> Body:
        """The numbered form of a block that ends in a yield."""
        numbers: dict[SSAValue, int] = {a: i for i, a in enumerate(block.args)}
        types = [tt(a) for a in block.args]
        ops: list[NumberedOp] = []
        outputs: tuple[int, ...] = ()
        last = block.last_op
        for op in block.ops:
            operands = tuple(numbers[v] for v in op.operands)
            if op is last:
                outputs = operands
                break
            for r in op.results:
                numbers[r] = len(types)
                types.append(tt(r))
            results = tuple(numbers[r] for r in op.results)
            ops.append(NumberedOp(op.name, attributes_of(op), operands, results, op.location, op))
        return cls(len(block.args), tuple(ops), tuple(types), outputs, tuple([a.location for a in block.args]))

    def axes(self) -> list[Axis]:
        """The axes along which the body may be cut."""
        return axes(self.ops, self.types, self.outputs)

    def block(self, types: Sequence[TT]) -> tuple[Block, list[SSAValue]]:
        """A new block (without terminator) of the same ops on values of other `types`, and what it should yield."""
        block = Block(arg_types=[ir_type(t) for t in types[: self.inputs]])
        for argument, origin in zip(block.args, self.origins, strict=True):
            argument.location = origin
        values: list[SSAValue] = list(block.args)
        for op in self.ops:
            if not op.operands:
                made = op.source.clone()
            elif all(types[v] == self.types[v] for v in (*op.operands, *op.results)):
                made = op.source.clone(dict(zip(op.source.operands, (values[v] for v in op.operands), strict=True)))
            else:
                attrs = fit(op.name, op.attrs, [types[v] for v in op.operands], [types[v] for v in op.results])
                made = create(op.name, [values[v] for v in op.operands], attrs, op.location)
            block.add_op(made)
            values.extend(made.results)
        return block, [values[v] for v in self.outputs]


def joined(body: Body, inputs: Sequence[TT]) -> Body:
    """A body of tiles on the whole tensors that its `inputs` are tiles of. Bodies hold no op whose attributes spell a
    shape (those are folded into address programs), so types follow from the inputs."""
    types = list(inputs)
    ops: list[NumberedOp] = []
    for op in body.ops:
        attrs = op.attrs
        if op.operands:
            operands = [types[v] for v in op.operands]
            attrs = joined_attrs(op.name, attrs, [body.types[v] for v in op.operands], operands)
            types.extend(infer(op.name, attrs, operands))
        else:
            types.extend(body.types[v] for v in op.results)
        ops.append(replace(op, attrs=attrs))
    return replace(body, ops=tuple(ops), types=tuple(types))
