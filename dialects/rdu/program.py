"""The whole program: off-chip regions, named ports, and launches of configs in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseArrayBase,
    FlatSymbolRefAttrConstr,
    ModuleOp,
    StringAttr,
    SymbolNameConstraint,
    SymbolRefAttr,
    i64,
)
from xdsl.ir import Block, Operation, Region
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
from headrace.dialects.rdu.config import ConfigOp
from headrace.dialects.rdu.syntax import AnyTensor, Int, integer, symbol
from headrace.dialects.support import dtypes
from headrace.dialects.support.attributes import string
from headrace.dialects.support.faults import InnerFault
from headrace.dialects.tensor.base import ir_type, tt
from headrace.dialects.tensor.shapes import TT

KINDS = ("input", "output", "weight", "state", "temp")
MEMORIES = ("hbm", "ddr")
LAUNCH_MODES = ("sw", "hw")
Kind = TypeVar("Kind", bound=Operation)


@irdl_op_definition
class RegionOp(IRDLOperation):
    """Off-chip memory of one tensor: `input`, `output`, `weight` (with its key), `state` or `temp`. Once allocated,
    `in` a memory (`hbm`, `ddr`) `at` an address in bytes. A program that takes several inputs at a time has `runs`
    tensors there, densely one behind the other, one for each of its runs.

        rdu.region @w weight tensor<4xf32> key "encoder.w" in hbm at 256
        rdu.region @x input tensor<4xf32> runs 8 in hbm at 512

    Refused: another kind or memory, a weight without a key, a key of something else, a negative address, fewer than one
    run, several of a weight or a state.
    """

    name = "rdu.region"
    sym_name = prop_def(SymbolNameConstraint())
    kind = prop_def(StringAttr)
    type = prop_def(AnyTensor)
    key = prop_def(StringAttr, default_value=StringAttr(""))
    runs = prop_def(Int, default_value=integer(1))
    memory = opt_prop_def(StringAttr)
    address = opt_prop_def(Int)
    irdl_options = (ParsePropInAttrDict(),)

    def __init__(self, name: str, kind: str, type: TT, key: str = "") -> None:
        Operation.__init__(  # no operands or regions, which IRDLOperation would look for
            self,
            properties={
                "sym_name": string(name),
                "kind": string(kind),
                "type": ir_type(type),
                "key": string(key),
            },
        )

    @classmethod
    def parse(cls, parser: Parser) -> RegionOp:
        name = parser.parse_symbol_name().data
        kind = parser.parse_identifier()
        type = tt(syntax.parse_tensor(parser))
        key = parser.parse_str_literal() if parser.parse_optional_keyword("key") else ""
        op = RegionOp(name, kind, type, key)
        op.runs = syntax.parse_optional_count(parser, "runs", 1)
        if parser.parse_optional_keyword("in"):
            op.memory = syntax.parse_word(parser)
            parser.parse_keyword("at")
            op.address = integer(parser.parse_integer(allow_boolean=False))
        syntax.parse_other(parser, op)
        return op

    def print(self, printer: Printer) -> None:
        syntax.print_symbol(printer, self.sym_name.data)
        printer.print_string(f" {self.kind.data} ")
        printer.print_attribute(self.type)
        if self.key.data:
            printer.print_string(" key ")
            printer.print_string_literal(self.key.data)
        syntax.print_optional_count(printer, "runs", self.runs, 1)
        if self.memory is not None and self.address is not None:
            printer.print_string(f" in {self.memory.data} at {self.address.value.data}")
        syntax.print_other(printer, self)

    def verify_(self) -> None:
        name = self.sym_name.data
        if self.kind.data not in KINDS:
            raise VerifyException(f"rdu.region: kind is {', '.join(KINDS)}, found {self.kind.data}")
        if bool(self.key.data) != (self.kind.data == "weight"):
            raise VerifyException(f"rdu.region: weights have a key and nothing else has; @{name} is {self.kind.data}")
        if (self.memory is None) != (self.address is None):
            raise VerifyException(f"rdu.region: memory and address go together; @{name} has one of them")
        if self.memory is not None and self.memory.data not in MEMORIES:
            raise VerifyException(f"rdu.region: memory is hbm or ddr, found {self.memory.data}")
        if self.address is not None and self.address.value.data < 0:
            raise VerifyException(f"rdu.region: @{name} lies at {self.address.value.data}")
        runs = self.runs.value.data
        if runs < 1 or (runs > 1 and self.kind.data in ("weight", "state")):
            raise VerifyException(f"rdu.region: {self.kind.data} @{name} has {runs} tensors")

    @property
    def nbytes(self) -> int:
        """Bytes of the tensors of all runs."""
        type = tt(self.type)
        return self.runs.value.data * type.elements * dtypes.byte_size(type.dtype)


@irdl_op_definition
class PortOp(IRDLOperation):
    """A named input or output of the program: a dense tensor in a region, `at` an offset in elements unless that is 0.

        rdu.port input "x" tensor<4xf32> in @x
        rdu.port output "y" tensor<4xf32> in @z at 8

    Refused: another kind. That the tensor lies within the region is the program's rule.
    """

    name = "rdu.port"
    kind = prop_def(StringAttr)
    title = prop_def(StringAttr)
    region_name = prop_def(FlatSymbolRefAttrConstr)
    type = prop_def(AnyTensor)
    offset = prop_def(Int, default_value=integer(0))
    irdl_options = (ParsePropInAttrDict(),)

    def __init__(self, kind: str, title: str, region: str, type: TT, offset: int = 0) -> None:
        Operation.__init__(
            self,
            properties={
                "kind": StringAttr(kind),
                "title": StringAttr(title),
                "region_name": symbol(region),
                "type": ir_type(type),
                "offset": integer(offset),
            },
        )

    @classmethod
    def parse(cls, parser: Parser) -> PortOp:
        kind = parser.parse_identifier()
        title = parser.parse_str_literal()
        type = tt(syntax.parse_tensor(parser))
        parser.parse_keyword("in")
        region, offset = _parse_place(parser)
        op = PortOp(kind, title, region, type, offset)
        syntax.parse_other(parser, op)
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {self.kind.data} ")
        printer.print_string_literal(self.title.data)
        printer.print_string(" ")
        printer.print_attribute(self.type)
        printer.print_string(" in ")
        _print_place(printer, self.region_name.string_value(), self.offset.value.data)
        syntax.print_other(printer, self)

    def verify_(self) -> None:
        if self.kind.data not in ("input", "output"):
            raise VerifyException(f"rdu.port: kind is input or output, found {self.kind.data}")


def _parse_place(parser: Parser) -> tuple[str, int]:
    name = parser.parse_symbol_name().data
    return name, parser.parse_integer(allow_boolean=False) if parser.parse_optional_keyword("at") else 0


def _print_place(printer: Printer, name: str, offset: int) -> None:
    printer.print_symbol_name(name)
    if offset:
        printer.print_string(f" at {offset}")


@irdl_op_definition
class LaunchOp(IRDLOperation):
    """Runs a config once, `sw` (by the host) or `hw` (by the chip itself). Each parameter lies in a region, `at` an
    offset in elements unless that is 0. With `runs` it runs it that many times, one run behind the other and without
    waiting for the one before to leave the chip: a parameter in a region of as many tensors lies in the next of them in
    each run, others stay where they are.

        rdu.launch @s0 (@x, @w at 768, @y) hw
        rdu.launch @s0 (@x, @w at 768, @y) hw runs 8

    Refused: another mode, fewer than one run. Number and extent of the parameters are the program's rules.
    """

    name = "rdu.launch"
    config = prop_def(FlatSymbolRefAttrConstr)
    args = prop_def(ArrayAttr[SymbolRefAttr])
    offsets = prop_def(DenseArrayBase.constr(i64))
    mode = prop_def(StringAttr, default_value=StringAttr("sw"))
    runs = prop_def(Int, default_value=integer(1))
    irdl_options = (ParsePropInAttrDict(),)

    def __init__(self, config: str, args: Sequence[tuple[str, int]], mode: str = "sw") -> None:
        Operation.__init__(
            self,
            properties={
                "config": symbol(config),
                "args": ArrayAttr([symbol(name) for name, _ in args]),
                "offsets": DenseArrayBase.from_list(i64, [offset for _, offset in args]),
                "mode": StringAttr(mode),
            },
        )

    @classmethod
    def parse(cls, parser: Parser) -> LaunchOp:
        config = parser.parse_symbol_name().data
        args = parser.parse_comma_separated_list(parser.Delimiter.PAREN, lambda: _parse_place(parser))
        op = LaunchOp(config, args, parser.parse_identifier())
        op.runs = syntax.parse_optional_count(parser, "runs", 1)
        syntax.parse_other(parser, op)
        return op

    def print(self, printer: Printer) -> None:
        syntax.print_symbol(printer, self.config.string_value())
        printer.print_string(" (")
        printer.print_list(self.places, lambda place: _print_place(printer, *place))
        printer.print_string(f") {self.mode.data}")
        syntax.print_optional_count(printer, "runs", self.runs, 1)
        syntax.print_other(printer, self)

    @property
    def places(self) -> list[tuple[str, int]]:
        """(region, element offset) of every parameter."""
        names = [x.string_value() for x in self.args]
        return list(zip(names, self.offsets.get_values(), strict=True))

    def verify_(self) -> None:
        if len(self.args) != len(self.offsets):
            raise VerifyException("rdu.launch: one offset for each argument")
        if self.mode.data not in LAUNCH_MODES:
            raise VerifyException(f"rdu.launch: mode is sw or hw, found {self.mode.data}")
        if self.runs.value.data < 1:
            raise VerifyException(f"rdu.launch: at least one run, found {self.runs.value.data}")


@irdl_op_definition
class LoopOp(IRDLOperation):
    """Launches that the chip repeats by itself, `times` rounds of them, all written out in order. A round launches the
    configs of the first, and each of its parameters lies a constant number of bytes after where it lay in the round
    before: the chip holds an address and a step. The host may launch the first (`sw`), never what follows.

        rdu.loop 2 {
          rdu.launch @layer (@x, @w0, @y) hw
          rdu.launch @layer (@y, @w1, @z) hw
        }

    Refused: fewer than two rounds, rounds of other configs, a launch by the host after the first, and, once regions
    have addresses, parameters in another memory or at another step than before.
    """

    name = "rdu.loop"
    times = prop_def(Int)
    body = region_def("single_block")
    traits = traits_def(NoTerminator())
    irdl_options = (ParsePropInAttrDict(),)

    def __init__(self, times: int, body: Block | Region) -> None:
        super().__init__(
            regions=[body if isinstance(body, Region) else Region(body)], properties={"times": integer(times)}
        )

    @classmethod
    def parse(cls, parser: Parser) -> LoopOp:
        times = parser.parse_integer(allow_boolean=False)
        other = parser.parse_optional_attr_dict_with_keyword()
        region = parser.parse_region()
        op = LoopOp(times, region if region.blocks else Region(Block()))
        op.attributes.update(other.data if other is not None else {})
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {self.times.value.data}")
        syntax.print_other(printer, self)
        printer.print_string(" ")
        printer.print_region(self.body, print_empty_block=False)

    @property
    def launches(self) -> list[LaunchOp]:
        """The launches of all rounds, in order."""
        return [op for op in self.body.block.ops if isinstance(op, LaunchOp)]

    @property
    def rounds(self) -> list[list[LaunchOp]]:
        """The launches of each round; none when they do not make equal rounds."""
        found, times = self.launches, self.times.value.data
        if times < 1 or not found or len(found) % times:
            return []
        period = len(found) // times
        return [found[i : i + period] for i in range(0, len(found), period)]

    def verify_(self) -> None:
        for op in self.body.block.ops:
            if not isinstance(op, LaunchOp):
                raise InnerFault(op, "rdu.loop holds launches")
        times, rounds = self.times.value.data, self.rounds
        if times < 2:
            raise VerifyException(f"rdu.loop: at least two rounds, found {times}")
        if not rounds:
            raise VerifyException(f"rdu.loop: {len(self.launches)} launches are not {times} equal rounds")
        for launch in self.launches[1:]:
            if launch.mode.data != "hw":
                raise InnerFault(launch, "the host launches only the first of a loop")
        first, *others = rounds
        for number, one in enumerate(others, 1):
            for launch, before in zip(one, first, strict=True):
                if launch.config != before.config:
                    found, wanted = launch.config.string_value(), before.config.string_value()
                    raise InnerFault(launch, f"round {number} launches {found}, the first {wanted}")
                if launch.runs != before.runs:
                    found, wanted = launch.runs.value.data, before.runs.value.data
                    raise InnerFault(launch, f"round {number} has {found} runs, the first {wanted}")


@irdl_op_definition
class ProgramOp(IRDLOperation):
    """The whole program: regions, ports, and launches in order, some in loops. `states` pairs names of an input and an
    output that are one state.

        rdu.config @s0 virtual ("x" in tensor<4xf32>, "y" out tensor<4xf32>) {
          rdu.agcu @load load param 0
          rdu.agcu @store store param 1
          rdu.flow @load -> @store carries tensor<4xf32> from at 0 [1] to at 0 [1]
        }
        rdu.program @main states [["past", "present"]] {
          rdu.region @x input tensor<4xf32>
          rdu.region @s state tensor<4xf32>
          rdu.port input "x" tensor<4xf32> in @x
          rdu.port input "past" tensor<4xf32> in @s
          rdu.port output "present" tensor<4xf32> in @s
          rdu.launch @s0 (@x, @s) sw
        }

    Refused: two regions of one name, ports and parameters without a region or past its end, launches of configs that
    are not there or take other parameters, states that are no ports; of several runs: launches and regions of other
    numbers of them, results of all runs in one place, states.
    """

    name = "rdu.program"
    sym_name = prop_def(SymbolNameConstraint())
    states = prop_def(ArrayAttr[ArrayAttr[StringAttr]], default_value=ArrayAttr([]))
    body = region_def("single_block")
    traits = traits_def(SymbolOpInterface(), NoTerminator(), IsolatedFromAbove())
    irdl_options = (ParsePropInAttrDict(),)

    def __init__(self, name: str, block: Block | Region, states: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(
            regions=[block if isinstance(block, Region) else Region(block)],
            properties={
                "sym_name": StringAttr(name),
                "states": ArrayAttr([ArrayAttr([StringAttr(a), StringAttr(b)]) for a, b in states]),
            },
        )

    @classmethod
    def parse(cls, parser: Parser) -> ProgramOp:
        name = parser.parse_symbol_name().data
        states: list[list[str]] = []
        if parser.parse_optional_keyword("states"):
            square = parser.Delimiter.SQUARE
            states = parser.parse_comma_separated_list(
                square, lambda: parser.parse_comma_separated_list(square, parser.parse_str_literal)
            )
        other = parser.parse_optional_attr_dict_with_keyword()
        region = parser.parse_region()
        op = ProgramOp(name, region if region.blocks else Region(Block()))
        op.states = ArrayAttr([ArrayAttr([StringAttr(x) for x in pair]) for pair in states])
        op.attributes.update(other.data if other is not None else {})
        return op

    def print(self, printer: Printer) -> None:
        syntax.print_symbol(printer, self.sym_name.data)
        if self.states.data:
            printer.print_string(" states ")
            printer.print_attribute(self.states)
        syntax.print_other(printer, self)
        printer.print_string(" ")
        printer.print_region(self.body, print_empty_block=False)

    def of(self, kind: type[Kind]) -> list[Kind]:
        """The ops of one class (not of its subclasses), in order."""
        return [op for op in self.body.block.ops if type(op) is kind]

    @property
    def regions_(self) -> list[RegionOp]:
        """The regions, in order."""
        return self.of(RegionOp)

    @property
    def launches(self) -> list[LaunchOp]:
        """The launches, in order, those of loops among them."""
        found: list[LaunchOp] = []
        for op in self.body.block.ops:
            if type(op) is LaunchOp:
                found.append(op)
            elif type(op) is LoopOp:
                found += op.launches
        return found

    @property
    def loops(self) -> list[LoopOp]:
        """The loops, in order."""
        return self.of(LoopOp)

    @property
    def ports(self) -> list[PortOp]:
        """The ports, in order."""
        return self.of(PortOp)

    def verify_(self) -> None:
        sizes: dict[str, TT] = {}
        for region in self.regions_:
            if region.sym_name.data in sizes:
                raise InnerFault(region, f"two regions are called {region.sym_name.data}")
            sizes[region.sym_name.data] = tt(region.type)
        for op in self.body.block.ops:
            if not isinstance(op, RegionOp | PortOp | LaunchOp | LoopOp):
                raise InnerFault(op, "rdu.program holds regions, ports, launches and loops")
        for port in self.ports:
            what = f'port "{port.title.data}"'
            _verify_place(port, what, tt(port.type), (port.region_name.string_value(), port.offset.value.data), sizes)
        self._verify_states()
        parent = self.parent_op()
        if isinstance(parent, ModuleOp):
            configs = {op.sym_name.data: op for op in parent.body.block.ops if isinstance(op, ConfigOp)}
            for launch in self.launches:
                _verify_launch(launch, configs, sizes)
        regions = {op.sym_name.data: op for op in self.regions_}
        for loop in self.loops:
            _verify_steps(loop, regions)
        self._verify_runs(regions)

    @property
    def runs(self) -> int:
        """How many inputs the program takes at a time."""
        return max((launch.runs.value.data for launch in self.launches), default=1)

    def _verify_runs(self, regions: Mapping[str, RegionOp]) -> None:
        runs = self.runs
        if runs > 1 and self.states.data:
            raise VerifyException("rdu.program: runs wait for each other's state, so there are not several at a time")
        for region in self.regions_:
            if (mine := region.runs.value.data) not in (1, runs):
                raise InnerFault(region, f"@{region.sym_name.data} has {mine} tensors, the program {runs} runs")
        parent = self.parent_op()
        configs = (
            {op.sym_name.data: op for op in parent.body.block.ops if isinstance(op, ConfigOp)}
            if isinstance(parent, ModuleOp)
            else {}
        )
        for launch in self.launches if runs > 1 else ():
            if (mine := launch.runs.value.data) != runs:
                raise InnerFault(launch, f"a launch of {mine} runs in a program of {runs}")
            config = configs.get(launch.config.string_value())
            for param, (name, _) in zip(config.params if config is not None else (), launch.places, strict=False):
                if param.direction.data != "in" and regions[name].runs.value.data == 1:
                    raise InnerFault(launch, f"{runs} runs write @{name}, which has room for one")

    def _verify_states(self) -> None:
        names = {kind: {p.title.data for p in self.ports if p.kind.data == kind} for kind in ("input", "output")}
        for pair in self.states:
            if len(pair) != 2:
                raise VerifyException("rdu.program: a state is a pair of an input and an output")
            for kind, title in zip(("input", "output"), pair, strict=True):
                if title.data not in names[kind]:
                    raise VerifyException(f'rdu.program: state "{title.data}" is no {kind}')


def _verify_place(op: Operation, what: str, type: TT, place: tuple[str, int], sizes: dict[str, TT]) -> None:
    name, offset = place
    region = sizes.get(name)
    if region is None:
        raise InnerFault(op, f"{what}: no region {name}")
    if region.dtype != type.dtype:
        raise InnerFault(op, f"{what} is {type} but @{name} is {region}")
    if offset < 0 or offset + type.elements > region.elements:
        last = offset + type.elements - 1
        raise InnerFault(op, f"{what} takes elements {offset} to {last} of {region.elements} of @{name}")


def _verify_launch(launch: LaunchOp, configs: dict[str, ConfigOp], sizes: dict[str, TT]) -> None:
    name = launch.config.string_value()
    config = configs.get(name)
    if config is None:
        raise InnerFault(launch, f"a launch of {name}, which is no config")
    if len(launch.args) != len(config.params):
        given, taken = len(launch.args), len(config.params)
        raise InnerFault(launch, f"a launch of {name} gives {given} parameters, it takes {taken}")
    if len(launch.args) != len(launch.offsets):
        return  # the launch's own rule
    for param, place in zip(config.params, launch.places, strict=True):
        _verify_place(launch, f'parameter "{param.title.data}" of {name}', tt(param.type), place, sizes)


Address = tuple[str, int]
"""A memory and a byte of it."""


def addresses(launch: LaunchOp, regions: Mapping[str, RegionOp]) -> list[Address] | None:
    """Where each parameter of a launch begins; None as long as regions have no addresses."""
    found: list[Address] = []
    for name, offset in launch.places:
        region = regions.get(name)
        if region is None or region.memory is None or region.address is None:
            return None
        at = region.address.value.data + offset * dtypes.byte_size(tt(region.type).dtype)
        found.append((region.memory.data, at))
    return found


def _verify_steps(loop: LoopOp, regions: Mapping[str, RegionOp]) -> None:
    rounds = loop.rounds
    for i in range(len(rounds[0]) if rounds else 0):
        at = [addresses(one[i], regions) for one in rounds]
        for number in range(1, len(rounds)):
            now, before = at[number], at[number - 1]
            if now is None or before is None:
                return
            earlier = at[number - 2] if number > 1 else None
            for param, (here, last) in enumerate(zip(now, before, strict=True)):
                what = f"parameter {param} in round {number}"
                if here[0] != last[0]:
                    raise InnerFault(rounds[number][i], f"{what} lies in {here[0]}, before in {last[0]}")
                if earlier is not None and (step := here[1] - last[1]) != last[1] - earlier[param][1]:
                    was = last[1] - earlier[param][1]
                    raise InnerFault(rounds[number][i], f"{what} lies {step} bytes after round {number - 1}, not {was}")


OPS = [ProgramOp, RegionOp, PortOp, LaunchOp, LoopOp]
