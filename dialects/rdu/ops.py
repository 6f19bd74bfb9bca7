"""Ops of the rdu level: configs of units and flows, and the launches that run them.

One dialect, three phases. *virtual*: units have a number of sites, flows have streams and address programs. *placed*:
units have coordinates (`sites`). *routed*: flows have the site pairs that talk (`pairs`) and the mesh links they take
(`starts`, `links`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, cast

from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseArrayBase,
    FlatSymbolRefAttrConstr,
    Float64Type,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    StringAttr,
    SymbolNameConstraint,
    SymbolRefAttr,
    TensorType,
    f64,
    i32,
    i64,
)
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.irdl import (
    AnyAttr,
    IRDLOperation,
    ParsePropInAttrDict,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    region_def,
    traits_def,
    var_operand_def,
)
from xdsl.traits import IsolatedFromAbove, IsTerminator, NoTerminator, Pure, SymbolOpInterface
from xdsl.utils.exceptions import VerifyException

from headrace.dialects.rdu.attributes import ParamAttr, StreamAttr, ViewAttr
from headrace.dialects.support.access import Stream, View
from headrace.dialects.tensor.base import ir_type, tt
from headrace.dialects.tensor.shapes import TT

Int = IntegerAttr[IntegerType]
PHASES = ("virtual", "placed", "routed")


def _int(value: int) -> IntegerAttr[IntegerType]:
    return IntegerAttr(value, i64)


@irdl_op_definition
class YieldOp(IRDLOperation):
    """Ends a unit's body: one tile per output port."""

    name = "rdu.yield"
    values = var_operand_def()
    assembly_format = "attr-dict ($values^ `:` type($values))?"
    traits = traits_def(IsTerminator(), Pure())

    def __init__(self, values: Sequence[SSAValue]) -> None:
        super().__init__(operands=[list(values)])


class UnitOp(IRDLOperation):
    """A group of symmetric units: `count` of them, at `sites` (column, row, column, row, …) once placed."""

    sym_name = prop_def(SymbolNameConstraint())
    count = prop_def(Int, default_value=_int(1))
    sites = opt_prop_def(DenseArrayBase)
    irdl_options = (ParsePropInAttrDict(),)

    KIND: ClassVar[str] = ""

    @property
    def title(self) -> str:
        """The unit's name."""
        return self.sym_name.data

    @property
    def size(self) -> int:
        """How many units."""
        return self.count.value.data

    def verify_(self) -> None:
        if self.size < 1:
            raise VerifyException(f"{self.name}: at least one unit")
        if self.sites is not None and len(self.sites) != 2 * self.size:
            raise VerifyException(
                f"{self.name}: {self.size} units have {2 * self.size} coordinates, {len(self.sites)} given"
            )


@irdl_op_definition
class PcuOp(UnitOp):
    """Compute units that all run one body on the tiles of their site. Input ports are the body's arguments, output ports
    what it yields. `mode`: `systolic` or `simd`.

        rdu.pcu @gemm "systolic" attributes {count = 36} {
        ^bb0(%a: tensor<64x768xf32>, %w: tensor<768x64xf32>):
          %0 = tensor.matmul %a, %w : …
          rdu.yield %0 : tensor<64x64xf32>
        }
    """

    name = "rdu.pcu"
    mode = prop_def(StringAttr)
    body = region_def("single_block")
    traits = traits_def(SymbolOpInterface(), IsolatedFromAbove())
    assembly_format = "$sym_name $mode attr-dict-with-keyword $body"
    KIND: ClassVar[str] = "pcu"

    def __init__(self, name: str, mode: str, count: int, block: Block) -> None:
        super().__init__(
            regions=[Region(block)],
            properties={"sym_name": StringAttr(name), "mode": StringAttr(mode), "count": _int(count)},
        )

    @property
    def input_tiles(self) -> list[TT]:
        """Tile type of each input port."""
        return [tt(a) for a in self.body.block.args]

    @property
    def output_tiles(self) -> list[TT]:
        """Tile type of each output port."""
        last = self.body.block.last_op
        assert isinstance(last, YieldOp), "verified"
        return [tt(v) for v in last.values]

    def verify_(self) -> None:
        super().verify_()
        if self.mode.data not in ("systolic", "simd"):
            raise VerifyException(f"rdu.pcu: mode is systolic or simd, found {self.mode.data}")
        if not isinstance(self.body.block.last_op, YieldOp):
            raise VerifyException("rdu.pcu: the body ends in rdu.yield")


@irdl_op_definition
class PmuOp(UnitOp):
    """Memory units that hold one buffer of row-major logical shape, in equal blocks of `split_dim`.

    All run the same address programs and take the addresses that are theirs. `frames`, `copies` and `fill` are as in
    `dataflow.buffer`.

        rdu.pmu @weights tensor<768x2304xf32> {count = 14, split_dim = 1}
    """

    name = "rdu.pmu"
    type = prop_def(TensorType.constr(AnyAttr()))
    frames = prop_def(Int, default_value=_int(0))
    copies = prop_def(Int, default_value=_int(1))
    fill = prop_def(FloatAttr[Float64Type], default_value=FloatAttr(0.0, f64))
    split_dim = prop_def(Int, default_value=_int(0))
    banks = prop_def(Int, default_value=_int(1))
    traits = traits_def(SymbolOpInterface())
    assembly_format = "$sym_name $type attr-dict"
    KIND: ClassVar[str] = "pmu"

    def __init__(
        self, name: str, type: TT, count: int, frames: int, copies: int, fill: float, split_dim: int, banks: int
    ) -> None:
        numbers = {"count": count, "frames": frames, "copies": copies, "split_dim": split_dim, "banks": banks}
        super().__init__(
            properties={"sym_name": StringAttr(name), "type": ir_type(type), "fill": FloatAttr(fill, f64)}
            | {key: _int(value) for key, value in numbers.items()}
        )

    def verify_(self) -> None:
        super().verify_()
        shape = tt(self.type).shape
        dim = self.split_dim.value.data
        if shape and not 0 <= dim < len(shape):
            raise VerifyException(f"rdu.pmu: split_dim {dim} of a buffer of {len(shape)} dims")
        if self.size > (shape[dim] if shape else 1):
            raise VerifyException(
                f"rdu.pmu: {self.size} units cannot share {shape[dim] if shape else 1} indices of dim {dim}"
            )


@irdl_op_definition
class AgcuOp(UnitOp):
    """An address generator between the fabric and parameter `param` of the config.

    `load` sends tiles of it, `store` writes tiles into it; `gather` takes row indices on port 0 and sends those rows;
    `scatter` takes row indices on port 0 and rows on port 1 and writes them.

        rdu.agcu @x "load" {param = 0}
    """

    name = "rdu.agcu"
    direction = prop_def(StringAttr)
    param = prop_def(Int)
    traits = traits_def(SymbolOpInterface())
    assembly_format = "$sym_name $direction attr-dict"
    KIND: ClassVar[str] = "agcu"

    def __init__(self, name: str, direction: str, param: int, count: int = 1) -> None:
        super().__init__(
            properties={
                "sym_name": StringAttr(name),
                "direction": StringAttr(direction),
                "param": _int(param),
                "count": _int(count),
            }
        )

    def verify_(self) -> None:
        super().verify_()
        if self.direction.data not in ("load", "store", "gather", "scatter"):
            raise VerifyException(f"rdu.agcu: direction is load, store, gather or scatter, found {self.direction.data}")


@irdl_op_definition
class FlowOp(IRDLOperation):
    """One stream from a port to a port.

    `from` and `to` are the address programs at ends that are memories (PMU, AGCU). Routed: `pairs` lists (source site,
    destination site), pair i takes mesh links `links[starts[i]:starts[i+1]]` on virtual channel `channels[i]`. `credits`
    is the number of vector words in flight.

        rdu.flow @x -> @b carries <tensor<1x64x768xf32>, time [8 on 1 by 64]>
          {from = #rdu.view<at 0 [393216, 768, 1]>, to = #rdu.view<at 0 [393216, 768, 1]>}
    """

    name = "rdu.flow"
    src = prop_def(FlatSymbolRefAttrConstr)
    dst = prop_def(FlatSymbolRefAttrConstr)
    src_port = prop_def(Int, default_value=_int(0))
    dst_port = prop_def(Int, default_value=_int(0))
    stream = prop_def(StreamAttr)
    src_view = opt_prop_def(ViewAttr, prop_name="from")
    dst_view = opt_prop_def(ViewAttr, prop_name="to")
    credits = prop_def(Int, default_value=_int(2))
    pairs = opt_prop_def(DenseArrayBase)
    starts = opt_prop_def(DenseArrayBase)
    links = opt_prop_def(DenseArrayBase)
    channels = opt_prop_def(DenseArrayBase)
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "$src `->` $dst `carries` $stream attr-dict"

    def __init__(
        self,
        src: str,
        src_port: int,
        dst: str,
        dst_port: int,
        stream: Stream,
        src_view: View | None,
        dst_view: View | None,
        credits: int = 2,
    ) -> None:
        properties: dict[str, Attribute] = {
            "src": SymbolRefAttr(src),
            "dst": SymbolRefAttr(dst),
            "src_port": _int(src_port),
            "dst_port": _int(dst_port),
            "stream": StreamAttr.of(stream),
            "credits": _int(credits),
        }
        if src_view is not None:
            properties["from"] = ViewAttr.of(src_view)
        if dst_view is not None:
            properties["to"] = ViewAttr.of(dst_view)
        super().__init__(properties=properties)

    @property
    def ends(self) -> tuple[str, str]:
        """Names of the source and the destination."""
        return self.src.string_value(), self.dst.string_value()

    def verify_(self) -> None:
        rank = len(self.stream.stream.tile)
        for word, view in (("from", self.src_view), ("to", self.dst_view)):
            if view is not None and len(view.view.strides) != rank:
                raise VerifyException(
                    f"rdu.flow: `{word}` has {len(view.view.strides)} strides but tiles have {rank} dims"
                )
        routed = [x is not None for x in (self.pairs, self.starts, self.links)]
        if any(routed) and not all(routed):
            raise VerifyException("rdu.flow: pairs, starts and links go together")
        if self.pairs is not None and self.starts is not None and self.links is not None:
            starts = [int(x) for x in self.starts.get_values()]
            if len(starts) != len(self.pairs) // 2 + 1 or starts[0] != 0 or starts[-1] != len(self.links):
                raise VerifyException("rdu.flow: starts must bracket the links of every pair")
        if self.credits.value.data < 1:
            raise VerifyException("rdu.flow: at least one credit")


@irdl_op_definition
class ConfigOp(IRDLOperation):
    """One section's configuration of the chip: units and the flows between them, in one phase. `link_load` (routed) is
    the traffic of the busiest mesh link over its capacity, when all units run at the rate of the slowest.

    rdu.config @s0 "virtual" [#rdu.param<"x" in tensor<4xf32>>, #rdu.param<"y" out tensor<4xf32>>] { … }
    """

    name = "rdu.config"
    sym_name = prop_def(SymbolNameConstraint())
    phase = prop_def(StringAttr)
    params = prop_def(ArrayAttr[ParamAttr])
    link_load = opt_prop_def(FloatAttr[Float64Type])
    body = region_def("single_block")
    traits = traits_def(SymbolOpInterface(), NoTerminator(), IsolatedFromAbove())
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "$sym_name $phase $params attr-dict-with-keyword $body"

    def __init__(self, name: str, params: Sequence[ParamAttr], block: Block, phase: str = "virtual") -> None:
        super().__init__(
            regions=[Region(block)],
            properties={
                "sym_name": StringAttr(name),
                "phase": StringAttr(phase),
                "params": ArrayAttr(params),
            },
        )

    @property
    def units(self) -> list[UnitOp]:
        """The units, in order."""
        return [op for op in self.body.block.ops if isinstance(op, UnitOp)]

    @property
    def flows(self) -> list[FlowOp]:
        """The flows, in order."""
        return [op for op in self.body.block.ops if isinstance(op, FlowOp)]

    def verify_(self) -> None:
        if self.phase.data not in PHASES:
            raise VerifyException(f"rdu.config: phase is {', '.join(PHASES)}, found {self.phase.data}")
        units: dict[str, UnitOp] = {}
        for op in self.body.block.ops:
            if isinstance(op, UnitOp):
                if op.title in units:
                    raise VerifyException(f"rdu.config: two units are called {op.title}")
                units[op.title] = op
            elif not isinstance(op, FlowOp):
                raise VerifyException(f"rdu.config: holds units and flows, found {op.name}")
        fed: set[tuple[str, int]] = set()
        for flow in self.flows:
            _verify_flow(flow, units, fed)
        for unit in units.values():
            _verify_phase(unit, self.phase.data, fed)
            if isinstance(unit, AgcuOp) and not 0 <= unit.param.value.data < len(self.params):
                raise VerifyException(
                    f"rdu.config: {unit.title} names parameter {unit.param.value.data} of {len(self.params)}"
                )
        for flow in self.flows:
            if (flow.pairs is not None) != (self.phase.data == "routed"):
                raise VerifyException(f"rdu.config: flow {flow.ends} has routes exactly in phase routed")


def _verify_flow(flow: FlowOp, units: dict[str, UnitOp], fed: set[tuple[str, int]]) -> None:
    stream = flow.stream.stream
    tile = TT(stream.tile, stream.dtype)
    for word, name, port, view in (
        ("source", flow.ends[0], flow.src_port.value.data, flow.src_view),
        ("destination", flow.ends[1], flow.dst_port.value.data, flow.dst_view),
    ):
        unit = units.get(name)
        if unit is None:
            raise VerifyException(f"rdu.config: flow {flow.ends}: no unit {name}")
        if isinstance(unit, PcuOp):
            tiles = unit.output_tiles if word == "source" else unit.input_tiles
            if port >= len(tiles) or tiles[port] != tile:
                have = tiles[port] if port < len(tiles) else "no such port"
                raise VerifyException(
                    f"rdu.config: flow {flow.ends} carries {tile} but port {port} of {name} is {have}"
                )
            if stream.sites != unit.size:
                raise VerifyException(
                    f"rdu.config: flow {flow.ends} is for {stream.sites} sites but {name} has {unit.size}"
                )
            if view is not None:
                raise VerifyException(f"rdu.config: flow {flow.ends}: compute units have no address program")
        elif view is None and not (isinstance(unit, AgcuOp) and unit.direction.data in ("gather", "scatter")):
            raise VerifyException(f"rdu.config: flow {flow.ends}: its {word} {name} needs an address program")
    key = flow.ends[1], flow.dst_port.value.data
    if isinstance(units[key[0]], PcuOp) and key in fed:
        raise VerifyException(f"rdu.config: port {key[1]} of {key[0]} is fed twice")
    fed.add(key)


def _verify_phase(unit: UnitOp, phase: str, fed: set[tuple[str, int]]) -> None:
    if (unit.sites is not None) != (phase != "virtual"):
        raise VerifyException(f"rdu.config: {unit.title} has sites exactly in phases placed and routed")
    if isinstance(unit, PcuOp):
        missing = [i for i in range(len(unit.input_tiles)) if (unit.title, i) not in fed]
        if missing:
            raise VerifyException(f"rdu.config: no flow feeds port {missing[0]} of {unit.title}")


@irdl_op_definition
class RegionOp(IRDLOperation):
    """Off-chip memory of one tensor: `kind` input, output, weight, state or temp; `memory` hbm or ddr and `address` in
    bytes once allocated; `key` names a weight.

        rdu.region @x "input" tensor<4xf32> {memory = "hbm", address = 0}
    """

    name = "rdu.region"
    sym_name = prop_def(SymbolNameConstraint())
    kind = prop_def(StringAttr)
    type = prop_def(TensorType.constr(AnyAttr()))
    key = prop_def(StringAttr, default_value=StringAttr(""))
    memory = opt_prop_def(StringAttr)
    address = opt_prop_def(Int)
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "$sym_name $kind $type attr-dict"

    def __init__(self, name: str, kind: str, type: TT, key: str = "") -> None:
        super().__init__(
            properties={
                "sym_name": StringAttr(name),
                "kind": StringAttr(kind),
                "type": ir_type(type),
                "key": StringAttr(key),
            }
        )

    def verify_(self) -> None:
        kinds = ("input", "output", "weight", "state", "temp")
        if self.kind.data not in kinds:
            raise VerifyException(f"rdu.region: kind is {', '.join(kinds)}, found {self.kind.data}")
        if self.memory is not None and self.memory.data not in ("hbm", "ddr"):
            raise VerifyException(f"rdu.region: memory is hbm or ddr, found {self.memory.data}")


@irdl_op_definition
class LaunchOp(IRDLOperation):
    """Runs a config once. `args[i]` and `offsets[i]` (elements) say where parameter i lies. `mode`: `sw`, launched by the
    host, or `hw`, by the chip itself.

        rdu.launch @s0 [@x, @y] {offsets = array<i64: 0, 0>}
    """

    name = "rdu.launch"
    config = prop_def(FlatSymbolRefAttrConstr)
    args = prop_def(ArrayAttr[SymbolRefAttr])
    offsets = prop_def(DenseArrayBase)
    mode = prop_def(StringAttr, default_value=StringAttr("sw"))
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "$config $args attr-dict"

    def __init__(self, config: str, args: Sequence[tuple[str, int]], mode: str = "sw") -> None:
        super().__init__(
            properties={
                "config": SymbolRefAttr(config),
                "args": ArrayAttr([SymbolRefAttr(name) for name, _ in args]),
                "offsets": DenseArrayBase.from_list(i64, [offset for _, offset in args]),
                "mode": StringAttr(mode),
            }
        )

    @property
    def places(self) -> list[tuple[str, int]]:
        """(region, element offset) of every parameter."""
        names = [x.string_value() for x in self.args]
        return list(zip(names, (int(x) for x in self.offsets.get_values()), strict=True))

    def verify_(self) -> None:
        if len(self.args) != len(self.offsets):
            raise VerifyException("rdu.launch: one offset for each argument")


@irdl_op_definition
class PortOp(IRDLOperation):
    """A named input or output of the program: a dense tensor `offset` elements into a region.

    rdu.port "input" "x" @x tensor<4xf32>
    """

    name = "rdu.port"
    kind = prop_def(StringAttr)
    title = prop_def(StringAttr)
    region_name = prop_def(FlatSymbolRefAttrConstr)
    type = prop_def(TensorType.constr(AnyAttr()))
    offset = prop_def(Int, default_value=_int(0))
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "$kind $title $region_name $type attr-dict"

    def __init__(self, kind: str, title: str, region: str, type: TT, offset: int = 0) -> None:
        super().__init__(
            properties={
                "kind": StringAttr(kind),
                "title": StringAttr(title),
                "region_name": SymbolRefAttr(region),
                "type": ir_type(type),
                "offset": _int(offset),
            }
        )

    def verify_(self) -> None:
        if self.kind.data not in ("input", "output"):
            raise VerifyException(f"rdu.port: kind is input or output, found {self.kind.data}")


@irdl_op_definition
class ProgramOp(IRDLOperation):
    """The whole program: regions, ports, and launches in order. `states` pairs input and output names that are one state.

    rdu.program @main { rdu.region …  rdu.port …  rdu.launch … }
    """

    name = "rdu.program"
    sym_name = prop_def(SymbolNameConstraint())
    states = prop_def(ArrayAttr[ArrayAttr[StringAttr]], default_value=ArrayAttr([]))
    body = region_def("single_block")
    traits = traits_def(SymbolOpInterface(), NoTerminator(), IsolatedFromAbove())
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "$sym_name attr-dict-with-keyword $body"

    def __init__(self, name: str, block: Block, states: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(
            regions=[Region(block)],
            properties={
                "sym_name": StringAttr(name),
                "states": ArrayAttr([ArrayAttr([StringAttr(a), StringAttr(b)]) for a, b in states]),
            },
        )

    def of(self, kind: type[Operation]) -> list[Operation]:
        """The ops of one class, in order."""
        return [op for op in self.body.block.ops if isinstance(op, kind)]

    @property
    def regions_(self) -> list[RegionOp]:
        """The regions, in order."""
        return cast("list[RegionOp]", self.of(RegionOp))

    @property
    def launches(self) -> list[LaunchOp]:
        """The launches, in order."""
        return cast("list[LaunchOp]", self.of(LaunchOp))

    @property
    def ports(self) -> list[PortOp]:
        """The ports, in order."""
        return cast("list[PortOp]", self.of(PortOp))

    def verify_(self) -> None:
        names: set[str] = set()
        for region in self.regions_:
            if region.sym_name.data in names:
                raise VerifyException(f"rdu.program: two regions are called {region.sym_name.data}")
            names.add(region.sym_name.data)
        for op in self.body.block.ops:
            used = [n for n, _ in op.places] if isinstance(op, LaunchOp) else []
            used += [op.region_name.string_value()] if isinstance(op, PortOp) else []
            for name in used:
                if name not in names:
                    raise VerifyException(f"rdu.program: no region {name}")


OPS = [ProgramOp, RegionOp, PortOp, LaunchOp, ConfigOp, PcuOp, PmuOp, AgcuOp, FlowOp, YieldOp]


def coordinates(sites: Sequence[tuple[int, int]]) -> DenseArrayBase:
    """Sites as the flat attribute."""
    return DenseArrayBase.from_list(i32, [int(c) for site in sites for c in site])
