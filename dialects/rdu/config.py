"""Flows between units, and the config that holds both in one of three phases.

*virtual*: units have a number of sites, flows have streams and address programs. *placed*: units have coordinates.
*routed*: flows have routes and credits, and the config the load of its busiest link. Each of these stands exactly in
its phases.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import add

from xdsl.dialects.builtin import ArrayAttr, FlatSymbolRefAttrConstr, StringAttr, SymbolNameConstraint, SymbolRefAttr
from xdsl.ir import Attribute, Block, Region
from xdsl.irdl import (
    IRDLOperation,
    ParsePropInAttrDict,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    region_def,
    traits_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import IsolatedFromAbove, NoTerminator, SymbolOpInterface
from xdsl.utils.exceptions import VerifyException

from headrace.dialects.rdu import syntax
from headrace.dialects.rdu.attributes import ParamAttr, RoutesAttr, StreamAttr, ViewAttr
from headrace.dialects.rdu.routes import move_of, numbers_of, switch_at
from headrace.dialects.rdu.syntax import Int, Real, Sites, integer
from headrace.dialects.rdu.units import AgcuOp, PcuOp, PmuOp, UnitOp, YieldOp
from headrace.dialects.support.access import Stream, View
from headrace.dialects.support.definitions import properties_op_definition
from headrace.dialects.support.faults import InnerFault
from headrace.dialects.support.syntax import parse_view, view_text
from headrace.dialects.tensor.shapes import TT

PHASES = ("virtual", "placed", "routed")
Tiles = dict[str, tuple[list[TT], list[TT]]]  # what each compute unit takes and yields, by its name


@properties_op_definition
class FlowOp(IRDLOperation):
    """One stream from a port to a port; port 0 may be left out.

    `from` and `to` are the address programs at ends that are memories (PMU, AGCU). Phase routed: `credits`, the number
    of vector words in flight, and `routes`, for each pair of sites that talk the way over the mesh and its virtual
    channel.

        rdu.flow @b -> @gemm:1 carries tensor<64x64xf32> time [8 on 0 by 64] space [2 repeat] from at 0 [64, 1]
        rdu.flow @b -> @gemm carries tensor<4xf32> from at 0 [1] credits 12 routes [0 -> 0 e3s2, 0 -> 1 e3s1 on 1]

    Refused: views of another rank than the tiles, no credit.
    """

    name = "rdu.flow"
    src = prop_def(FlatSymbolRefAttrConstr)
    dst = prop_def(FlatSymbolRefAttrConstr)
    src_port = prop_def(Int, default_value=integer(0))
    dst_port = prop_def(Int, default_value=integer(0))
    stream = prop_def(StreamAttr)
    src_view = opt_prop_def(ViewAttr, prop_name="from")
    dst_view = opt_prop_def(ViewAttr, prop_name="to")
    credits = opt_prop_def(Int)
    routes = opt_prop_def(RoutesAttr)
    irdl_options = (ParsePropInAttrDict(),)

    def __init__(
        self, src: str, src_port: int, dst: str, dst_port: int, stream: Stream, src_view: View | None,
        dst_view: View | None,
    ) -> None:  # fmt: skip
        properties: dict[str, Attribute] = {
            "src": SymbolRefAttr(src),
            "dst": SymbolRefAttr(dst),
            "src_port": integer(src_port),
            "dst_port": integer(dst_port),
            "stream": StreamAttr.of(stream),
        }
        if src_view is not None:
            properties["from"] = ViewAttr.of(src_view)
        if dst_view is not None:
            properties["to"] = ViewAttr.of(dst_view)
        super().__init__(properties=properties)

    @classmethod
    def parse(cls, parser: Parser) -> FlowOp:
        src = parser.parse_symbol_name().data
        src_port = syntax.parse_count(parser) if parser.parse_optional_punctuation(":") else 0
        parser.parse_punctuation("->")
        dst = parser.parse_symbol_name().data
        dst_port = syntax.parse_count(parser) if parser.parse_optional_punctuation(":") else 0
        parser.parse_keyword("carries")
        stream = StreamAttr.parse_plain(parser).stream
        src_view = parse_view(parser) if parser.parse_optional_keyword("from") else None
        dst_view = parse_view(parser) if parser.parse_optional_keyword("to") else None
        op = FlowOp(src, src_port, dst, dst_port, stream, src_view, dst_view)
        if parser.parse_optional_keyword("credits"):
            op.credits = integer(syntax.parse_count(parser))
        if parser.parse_optional_keyword("routes"):
            op.routes = RoutesAttr.parse_plain(parser)
        syntax.parse_other(parser, op)
        return op

    def print(self, printer: Printer) -> None:
        for name, port, after in ((self.ends[0], self.src_port, " ->"), (self.ends[1], self.dst_port, " carries ")):
            syntax.print_symbol(printer, name)
            printer.print_string(f"{f':{port.value.data}' if port.value.data else ''}{after}")
        self.stream.print_plain(printer)
        for word, view in (("from", self.src_view), ("to", self.dst_view)):
            if view is not None:
                printer.print_string(f" {word} {view_text(view.view)}")
        if self.credits is not None:
            printer.print_string(f" credits {self.credits.value.data}")
        if self.routes is not None:
            printer.print_string(" routes ")
            self.routes.print_plain(printer)
        syntax.print_other(printer, self)

    @property
    def ends(self) -> tuple[str, str]:
        """Names of the source and the destination."""
        return self.src.string_value(), self.dst.string_value()

    @property
    def ports(self) -> tuple[int, int]:
        """Ports at the source and the destination."""
        return self.src_port.value.data, self.dst_port.value.data

    @property
    def label(self) -> str:
        """The flow in messages."""
        return f"flow @{self.ends[0]}:{self.ports[0]} -> @{self.ends[1]}:{self.ports[1]}"

    def verify_(self) -> None:
        rank = len(self.stream.stream.tile)
        for word, view in (("from", self.src_view), ("to", self.dst_view)):
            if view is not None and len(view.flat) - 1 != rank:
                raise VerifyException(f"rdu.flow: `{word}` has {len(view.flat) - 1} strides but tiles have {rank} dims")
        if self.credits is not None and self.credits.value.data < 1:
            raise VerifyException("rdu.flow: at least one credit")


@irdl_op_definition
class ConfigOp(IRDLOperation):
    """One section's configuration of the chip: units and the flows between them, in one phase, and the tensors that it
    takes at launch. `link_load` (phase routed) is the traffic of the busiest mesh link over its capacity, when all
    units run at the rate of the slowest.

        rdu.config @s0 virtual ("x" in tensor<4xf32>, "y" out tensor<4xf32>) {
          rdu.agcu @load load param 0
          rdu.pcu @neg simd (%a: tensor<4xf32>) {
            %0 = tensor.neg %a : tensor<4xf32> -> tensor<4xf32>
            rdu.yield %0 : tensor<4xf32>
          }
          rdu.agcu @store store param 1
          rdu.flow @load -> @neg carries tensor<4xf32> from at 0 [1]
          rdu.flow @neg -> @store carries tensor<4xf32> to at 0 [1]
        }
        rdu.config @s1 routed ("x" in tensor<4xf32>, "y" out tensor<4xf32>) link_load 0.25 {
          rdu.agcu @load load param 0 at [0 1]
          rdu.agcu @store store param 1 at [2 1]
          rdu.flow @load -> @store carries tensor<4xf32> from at 0 [1] to at 0 [1] credits 10 routes [0 -> 0 e2]
        }

    Refused: two units of one name, flows between ports that do not exist or carry other tiles, input ports of compute
    units that no flow or two flows feed, streams of a unit that do not step together, memories without address
    programs, sites, routes and credits in another phase than theirs, ways that do not end at their site.
    """

    name = "rdu.config"
    sym_name = prop_def(SymbolNameConstraint())
    phase = prop_def(StringAttr)
    params = prop_def(ArrayAttr[ParamAttr])
    link_load = opt_prop_def(Real)
    body = region_def("single_block")
    traits = traits_def(SymbolOpInterface(), NoTerminator(), IsolatedFromAbove())
    irdl_options = (ParsePropInAttrDict(),)

    def __init__(self, name: str, params: Sequence[ParamAttr], block: Block | Region, phase: str = "virtual") -> None:
        super().__init__(
            regions=[block if isinstance(block, Region) else Region(block)],
            properties={"sym_name": StringAttr(name), "phase": StringAttr(phase), "params": ArrayAttr(params)},
        )

    @classmethod
    def parse(cls, parser: Parser) -> ConfigOp:
        name = parser.parse_symbol_name().data
        phase = parser.parse_identifier()
        params = parser.parse_comma_separated_list(parser.Delimiter.PAREN, lambda: ParamAttr.parse_plain(parser))
        load = syntax.parse_real(parser) if parser.parse_optional_keyword("link_load") else None
        other = parser.parse_optional_attr_dict_with_keyword()
        region = parser.parse_region()
        op = ConfigOp(name, params, region if region.blocks else Region(Block()), phase)
        if load is not None:
            op.link_load = load
        op.attributes.update(other.data if other is not None else {})
        return op

    def print(self, printer: Printer) -> None:
        syntax.print_symbol(printer, self.sym_name.data)
        printer.print_string(f" {self.phase.data} (")
        printer.print_list(self.params.data, lambda p: p.print_plain(printer))
        printer.print_string(")")
        if self.link_load is not None:
            printer.print_string(f" link_load {syntax.real_text(self.link_load.value.data)}")
        syntax.print_other(printer, self)
        printer.print_string(" ")
        printer.print_region(self.body, print_empty_block=False)

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
        flows: list[tuple[FlowOp, tuple[str, str]]] = []
        for op in self.body.block.ops:
            if type(op) is FlowOp:
                flows.append((op, op.ends))
            elif isinstance(op, UnitOp):
                if op.title in units:
                    raise InnerFault(op, f"two units are called {op.title}")
                units[op.title] = op
            else:
                raise InnerFault(op, "rdu.config holds units and flows")
        tiles: Tiles = {}
        for name, unit in units.items():
            if type(unit) is PcuOp:
                if type(unit.body.block.last_op) is not YieldOp:
                    return  # the unit's own rule
                tiles[name] = unit.input_tiles, unit.output_tiles
        fed: set[tuple[str, int]] = set()
        steps: dict[str, tuple[FlowOp, tuple[int, ...]]] = {}
        for flow, ends in flows:
            _verify_flow(flow, ends, units, tiles, fed, steps)
        for name, unit in units.items():
            self._verify_unit(unit, name, tiles, fed)
        routed = self.phase.data == "routed"
        for flow, ends in flows:
            for word, value in (("routes", flow.routes), ("credits", flow.credits)):
                if (value is not None) != routed:
                    raise InnerFault(flow, f"{flow.label} has {word} exactly in phase routed")
            if routed:
                _verify_routes(flow, units[ends[0]], units[ends[1]])
        if (self.link_load is not None) != routed:
            raise VerifyException(f"rdu.config: @{self.sym_name.data} has link_load exactly in phase routed")

    def _verify_unit(self, unit: UnitOp, name: str, tiles: Tiles, fed: set[tuple[str, int]]) -> None:
        if (unit.sites is not None) != (self.phase.data != "virtual"):
            raise InnerFault(unit, f"{name} has sites exactly in phases placed and routed")
        if name in tiles:
            for port in range(len(tiles[name][0])):
                if (name, port) not in fed:
                    raise InnerFault(unit, f"no flow feeds port {port} of {name}")
        elif type(unit) is AgcuOp and not 0 <= unit.param.value.data < len(self.params):
            raise InnerFault(unit, f"{name} names parameter {unit.param.value.data} of {len(self.params)}")


def _verify_flow(
    flow: FlowOp,
    ends: tuple[str, str],
    units: dict[str, UnitOp],
    tiles: Tiles,
    fed: set[tuple[str, int]],
    steps: dict[str, tuple[FlowOp, tuple[int, ...]]],
) -> None:
    stream, ports = flow.stream.stream, flow.ports
    counts = tuple([loop.count for loop in stream.time])
    for side, (name, port, view) in enumerate(zip(ends, ports, (flow.src_view, flow.dst_view), strict=True)):
        unit = units.get(name)
        if unit is None:
            raise InnerFault(flow, f"{flow.label}: no unit {name}")
        if name in tiles:
            _verify_compute_end(flow, stream, unit, tiles[name][1 - side], port)
            other, found = steps.setdefault(name, (flow, counts))
            if found != counts:
                raise InnerFault(
                    flow, f"{flow.label} steps {list(counts)} at {name}, where {other.label} steps {list(found)}"
                )
            if view is not None:
                raise InnerFault(flow, f"{flow.label}: compute units have no address program")
        elif view is None and not (type(unit) is AgcuOp and unit.direction.data in ("gather", "scatter")):
            word = ("source", "destination")[side]
            raise InnerFault(flow, f"{flow.label}: its {word} {name} needs an address program")
        elif type(unit) is PmuOp and unit.frames.value.data > len(counts):
            raise InnerFault(
                flow,
                f"{flow.label} has {len(counts)} time loops, but {unit.frames.value.data} enumerate the "
                f"frames of {name}",
            )
    key = ends[1], ports[1]
    if ends[1] in tiles and key in fed:
        raise InnerFault(flow, f"port {key[1]} of {key[0]} is fed twice")
    fed.add(key)


def _verify_compute_end(flow: FlowOp, stream: Stream, unit: UnitOp, tiles: Sequence[TT], port: int) -> None:
    have = tiles[port] if port < len(tiles) else None
    if have is None or have.shape != stream.tile or have.dtype != stream.dtype:
        raise InnerFault(
            flow,
            f"{flow.label} carries {TT(stream.tile, stream.dtype)} but port {port} of {unit.title} is "
            f"{have or 'no such port'}",
        )
    if stream.sites != unit.size:
        raise InnerFault(flow, f"{flow.label} is for {stream.sites} sites but {unit.title} has {unit.size}")


def _verify_routes(flow: FlowOp, source: UnitOp, target: UnitOp) -> None:
    routes, begin, stop = flow.routes, source.sites, target.sites
    assert routes is not None and begin is not None and stop is not None, "verified"
    if any(a is begin and b is stop for a, b in routes.joined):
        return
    sources, targets = _numbers(begin), _numbers(stop)
    a = b = 0
    try:
        firsts, seconds = zip(*routes.data.pairs, strict=True) if routes.data.pairs else ((), ())
        ends = map(add, map(sources.__getitem__, firsts), map(move_of, routes.data.ways))
        if len(firsts) == len(routes.data.ways) and [*ends] == [*map(targets.__getitem__, seconds)]:
            routes.joined.append((begin, stop))
            return
    except IndexError:
        pass  # said below
    try:
        for (a, b), way in zip(routes.data.pairs, routes.data.ways, strict=True):
            end = sources[a] + move_of(way)
            if end != targets[b]:
                places = [switch_at(number) for number in (sources[a], end, targets[b])]
                raise InnerFault(
                    flow,
                    f"{flow.label}: the way of {a} -> {b} goes from {places[0]} to {places[1]}, but {target.title} "
                    f"stands at {places[2]}",
                )
    except IndexError:
        many = f"{len(sources)} and {len(targets)}"
        raise InnerFault(flow, f"{flow.label} has a route {a} -> {b} but {many} sites") from None


def _numbers(sites: Sites) -> list[int]:
    """The numbers of the switches at sites."""
    flat = sites.get_values()
    return numbers_of(flat[::2], flat[1::2])


OPS = [ConfigOp, FlowOp]
