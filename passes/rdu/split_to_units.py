"""split-to-units: a body that one compute unit cannot hold becomes a chain of units."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, SSAValue

from headrace.dialects.machine.attributes import device_of
from headrace.dialects.machine.device import Device
from headrace.dialects.rdu.ops import ConfigOp, FlowOp, PcuOp, YieldOp
from headrace.dialects.support import locations
from headrace.dialects.support.access import Loop, Stream
from headrace.dialects.support.journal import count, decline, may
from headrace.dialects.tensor.base import ir_type
from headrace.dialects.tensor.shapes import TT
from headrace.passes.analysis.bodies import Body, joined
from headrace.passes.analysis.pieces import Piece, pieces
from headrace.passes.infra.base import Pass


class _Splitter:
    """Splits one unit group of a config."""

    def __init__(self, unit: PcuOp, feeds: list[FlowOp], leaves: list[FlowOp]) -> None:
        self.unit = unit
        self.feeds = {f.dst_port.value.data: f for f in feeds}
        self.leaves = leaves
        self.body = Body.of(unit.body.block)
        self.origins = [*self.body.origins, *(op.location for op in self.body.ops for _ in op.results)]

    def run(self, parts: list[Piece]) -> list[FlowOp]:
        """Put a chain of units in its place; the flows that take the place of the unit's."""
        where: dict[int, int] = {}  # value -> piece that makes it
        sender: dict[int, int] = {}  # value -> piece that sends it
        for n, piece in enumerate(parts):
            for i in piece.ops:
                where.update(dict.fromkeys(self.body.ops[i].results, n))
            sender.update(dict.fromkeys(piece.sends, n))
        constants = {v: i for i, op in enumerate(self.body.ops) if not op.operands for v in op.results}
        made: list[PcuOp] = []
        ports: dict[tuple[int, int], int] = {}  # (piece, value) -> output port
        block = self.unit.parent_block()
        assert block is not None
        flows: list[FlowOp] = []
        for n, piece in enumerate(parts):
            name = self.unit.title if len(parts) == 1 else f"{self.unit.title}.{n}"
            read = [v for i in piece.ops for v in self.body.ops[i].operands]
            inputs = [v for v in dict.fromkeys((*read, *piece.sends)) if v not in constants and where.get(v, -1) != n]
            made.append(self._piece(name, piece, inputs, constants))
            for port, v in enumerate(piece.sends):
                ports[n, v] = port
            for port, v in enumerate(inputs):
                if v < self.body.inputs:
                    flows.append(_moved(self.feeds[v], dst=(name, port)))
                    continue
                source = where[v]
                flow = FlowOp(made[source].title, ports[source, v], name, port, self._stream(v), None, None)
                flow.location = self.unit.location
                flows.append(flow)
        for flow in self.leaves:
            v = self.body.outputs[flow.src_port.value.data]
            flows.append(_moved(flow, src=(made[sender[v]].title, ports[sender[v], v])))
        block.insert_ops_before(made, self.unit)
        last = block.last_op
        assert last is not None
        block.insert_ops_after(flows, last)
        for op in (*self.feeds.values(), *self.leaves, self.unit):
            op.detach()
            op.erase()
        return flows

    def _piece(self, name: str, piece: Piece, inputs: list[int], constants: dict[int, int]) -> PcuOp:
        types = self.body.types
        block = Block(arg_types=[ir_type(types[v]) for v in inputs])
        values: dict[int, SSAValue] = dict(zip(inputs, block.args, strict=True))
        for v, argument in zip(inputs, block.args, strict=True):
            argument.location = self.origins[v]
        needed = {*piece.sends, *(v for i in piece.ops for v in self.body.ops[i].operands)}
        members = sorted({*piece.ops, *(i for v, i in constants.items() if v in needed)})
        for i in members:
            op = self.body.ops[i]
            copy = op.source.clone(dict(zip(op.source.operands, (values[v] for v in op.operands), strict=True)))
            block.add_op(copy)
            values.update(zip(op.results, copy.results, strict=True))
        block.add_op(end := YieldOp([values[v] for v in piece.sends]))
        where = locations.fuse(self.body.ops[i].location for i in piece.ops or members)
        end.location = where
        unit = PcuOp(name, piece.mode, self.unit.size, block)
        unit.location = where if locations.is_known(where) else self.unit.location
        return unit

    def _stream(self, v: int) -> Stream:
        """The stream of a value inside the body, from the loops of the first output and how the value follows it."""
        if not hasattr(self, "full_axes"):
            whole = joined(
                self.body,
                [TT(self.feeds[i].stream.stream.full_shape, self.body.types[i].dtype) for i in range(self.body.inputs)],
            )
            out = self.body.outputs[0]
            self.full_axes = {a.dim_of(out): a for a in whole.axes()}
            self.out = next(f for f in self.leaves if self.body.outputs[f.src_port.value.data] == out).stream.stream
        tile = self.body.types[v]

        def loop(x: Loop) -> Loop:
            axis = self.full_axes.get(x.dim)
            follow = axis.follows.get(v) if axis is not None else None
            return Loop(x.count, -1, 0) if follow is None else Loop(x.count, follow.dim, x.step * follow.scale)

        return Stream(tile.shape, tile.dtype, tuple(map(loop, self.out.time)), tuple(map(loop, self.out.space)))


def _moved(flow: FlowOp, src: tuple[str, int] | None = None, dst: tuple[str, int] | None = None) -> FlowOp:
    source = src or (flow.ends[0], flow.src_port.value.data)
    target = dst or (flow.ends[1], flow.dst_port.value.data)
    new = FlowOp(
        *source,
        *target,
        flow.stream.stream,
        flow.src_view.view if flow.src_view is not None else None,
        flow.dst_view.view if flow.dst_view is not None else None,
    )
    new.location = flow.location
    return new


def split(config: ConfigOp, device: Device) -> bool:
    """Split the compute units of a config; whether any was."""
    changed = False
    leaves: defaultdict[str, dict[FlowOp, None]] = defaultdict(dict)
    feeds: defaultdict[str, dict[FlowOp, None]] = defaultdict(dict)
    for flow in config.flows:
        leaves[flow.ends[0]][flow] = feeds[flow.ends[1]][flow] = None
    for unit in config.units:
        if not isinstance(unit, PcuOp):
            continue
        parts = pieces(Body.of(unit.body.block), device)
        if len(parts) == 1:
            if unit.body.block.first_op is not unit.body.block.last_op:
                decline("split-unit", unit, f"one {parts[0].mode} unit holds its ops")
            continue
        if not may("split-unit", unit):
            break
        count("units made", len(parts))
        old = [*feeds[unit.title], *leaves[unit.title]]
        splitter = _Splitter(unit, list(feeds[unit.title]), list(leaves[unit.title]))
        for flow in old:
            del leaves[flow.ends[0]][flow], feeds[flow.ends[1]][flow]
        for flow in splitter.run(parts):
            leaves[flow.ends[0]][flow] = feeds[flow.ends[1]][flow] = None
        changed = True
    return changed


@dataclass(frozen=True)
class SplitToUnitsPass(Pass):
    """Cut bodies into what one compute unit holds: a contraction with its tail, elementwise runs, one reduction each.

    Assumes phase virtual and a device in the module. The pieces run as a chain, joined by flows of the values between
    them; a stage input that a later piece needs flows straight to it.

        rdu.pcu @ffn { matmul; add; gelu; mul }   =>   rdu.pcu @ffn.0 { matmul; add }   rdu.pcu @ffn.1 { gelu; mul }
                                                       rdu.flow @ffn.0 -> @ffn.1 …
    """

    name = "split-to-units"

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        device = device_of(module)
        configs = [op for op in module.body.block.ops if isinstance(op, ConfigOp)]
        changed = [split(config, device) for config in configs]
        return any(changed)
