"""Groups of symmetric units of a config: compute units, memory units and address generators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import StringAttr, SymbolNameConstraint, UnitAttr
from xdsl.ir import Block, Region, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    ParsePropInAttrDict,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    region_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import IsolatedFromAbove, IsTerminator, Pure, SymbolOpInterface
from xdsl.utils.exceptions import VerifyException

from headrace.dialects.rdu import syntax
from headrace.dialects.rdu.syntax import SITES, AnyTensor, Int, Real, integer, real
from headrace.dialects.support.definitions import properties_op_definition
from headrace.dialects.support.formats import LateFormat
from headrace.dialects.tensor.base import ir_type, tt
from headrace.dialects.tensor.shapes import TT

MODES = ("systolic", "simd")
TRANSFERS = ("load", "store", "gather", "scatter")


@irdl_op_definition
class YieldOp(LateFormat):
    """Ends a unit's body: one tile per output port.

        rdu.yield %0, %1 : tensor<4xf32>, tensor<8xf32>

    The tiles must be those of the flows that leave the ports.
    """

    name = "rdu.yield"
    values = var_operand_def()
    assembly_format = "attr-dict ($values^ `:` type($values))?"
    traits = traits_def(IsTerminator(), Pure())

    def __init__(self, values: Sequence[SSAValue]) -> None:
        super().__init__(operands=[list(values)])


class UnitOp(IRDLOperation):
    """A group of symmetric units: `count` of them, at `sites` (column, row, column, row, …) once placed."""

    sym_name = prop_def(SymbolNameConstraint())
    count = prop_def(Int, default_value=integer(1))
    sites = opt_prop_def(SITES)
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

    def _finish(self, parser: Parser) -> None:
        """Parse what ends every unit: its sites, and attributes that are no part of it."""
        if (sites := syntax.parse_sites(parser)) is not None:
            self.sites = sites

    def _print_head(self, printer: Printer, *words: str) -> None:
        syntax.print_symbol(printer, self.title)
        for word in words:
            printer.print_string(f" {word}")

    def _print_count(self, printer: Printer) -> None:
        syntax.print_optional_count(printer, "x", self.count, 1)


def _parse_input(parser: Parser) -> Parser.Argument:
    """An input of a unit: `%x: type`, and its location where one is written."""
    argument = parser.parse_argument()
    argument.location = parser.parse_optional_location()
    return argument


@irdl_op_definition
class PcuOp(UnitOp):
    """Compute units that all run one body on the tiles of their site. Input ports are the body's arguments, output
    ports what it yields. `systolic`: one contraction and its tail; `simd`: elementwise ops and reductions. `x N` units
    (1 if left out), in phases placed and routed `at` column and row of each.

        rdu.pcu @gemm systolic x 2 at [3 4, 5 4] (%a: tensor<64x768xf32>, %w: tensor<768x64xf32>) {
          %0 = tensor.matmul %a, %w : tensor<64x768xf32>, tensor<768x64xf32> -> tensor<64x64xf32>
          rdu.yield %0 : tensor<64x64xf32>
        }

    Refused: another mode, a body without `rdu.yield`, coordinates that are not two for each unit.
    """

    name = "rdu.pcu"
    mode = prop_def(StringAttr)
    body = region_def("single_block")
    traits = traits_def(SymbolOpInterface(), IsolatedFromAbove())
    KIND: ClassVar[str] = "pcu"

    def __init__(self, name: str, mode: str, count: int, block: Block | Region) -> None:
        super().__init__(
            regions=[block if isinstance(block, Region) else Region(block)],
            properties={"sym_name": StringAttr(name), "mode": StringAttr(mode), "count": integer(count)},
        )

    @classmethod
    def parse(cls, parser: Parser) -> PcuOp:
        name = parser.parse_symbol_name().data
        mode = parser.parse_identifier()
        count = syntax.parse_optional_count(parser, "x", 1).value.data
        sites = syntax.parse_sites(parser)
        args = parser.parse_optional_comma_separated_list(parser.Delimiter.PAREN, lambda: _parse_input(parser)) or []
        other = parser.parse_optional_attr_dict_with_keyword()
        region = parser.parse_region(args)
        op = PcuOp(name, mode, count, region)
        if sites is not None:
            op.sites = sites
        op.attributes.update(other.data if other is not None else {})
        return op

    def print(self, printer: Printer) -> None:
        self._print_head(printer, self.mode.data)
        self._print_count(printer)
        syntax.print_sites(printer, self.sites)
        args = self.body.block.args
        if args:
            printer.print_string(" (")
            printer.print_list(args, printer.print_block_argument)
            printer.print_string(")")
        syntax.print_other(printer, self)
        printer.print_string(" ")
        printer.print_region(self.body, print_entry_block_args=False, print_empty_block=False)

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
        if self.mode.data not in MODES:
            raise VerifyException(f"rdu.pcu: mode is systolic or simd, found {self.mode.data}")
        if not isinstance(self.body.block.last_op, YieldOp):
            raise VerifyException("rdu.pcu: the body ends in rdu.yield")


@properties_op_definition
class PmuOp(UnitOp):
    """Memory units that hold one buffer of row-major logical shape. `x N` units (1 if left out) hold equal blocks of
    dim `split`; all run the same address programs and take the addresses that are theirs.

    The first `frames` time loops of every flow at the buffer enumerate frames (0: the whole buffer is one): a reader's
    frame may start when every writer has finished it, and a writer waits while `copies` frames are not yet read by all
    readers. Elements that no writer writes hold `fill`. `banks`: over how many banks the words of a unit lie. One that
    is `kept` is filled in the first run of a launch and holds that for the others.

        rdu.pmu @b tensor<1x512x768xf32> x 2 split 2 frames 1 copies 2 banks 32 at [2 4, 4 4]

    Refused: a split dim that the buffer does not have, more units than indices of it, no copy, no bank.
    """

    name = "rdu.pmu"
    type = prop_def(AnyTensor)
    frames = prop_def(Int, default_value=integer(0))
    copies = prop_def(Int, default_value=integer(1))
    fill = prop_def(Real, default_value=real(0.0))
    split_dim = prop_def(Int, default_value=integer(0))
    banks = prop_def(Int, default_value=integer(1))
    kept = opt_prop_def(UnitAttr)
    traits = traits_def(SymbolOpInterface())
    KIND: ClassVar[str] = "pmu"

    def __init__(
        self, name: str, type: TT, count: int, frames: int, copies: int, fill: float, split_dim: int, banks: int
    ) -> None:
        numbers = {"count": count, "frames": frames, "copies": copies, "split_dim": split_dim, "banks": banks}
        super().__init__(
            properties={"sym_name": StringAttr(name), "type": ir_type(type), "fill": real(fill)}
            | {key: integer(value) for key, value in numbers.items()}
        )

    @classmethod
    def parse(cls, parser: Parser) -> PmuOp:
        name = parser.parse_symbol_name().data
        type = tt(syntax.parse_tensor(parser))
        numbers = [
            syntax.parse_optional_count(parser, word, default).value.data
            for word, default in (("x", 1), ("split", 0), ("frames", 0), ("copies", 1), ("banks", 1))
        ]
        count, split_dim, frames, copies, banks = numbers
        fill = syntax.parse_real(parser) if parser.parse_optional_keyword("fill") else real(0.0)
        op = PmuOp(name, type, count, frames, copies, 0.0, split_dim, banks)
        op.fill = fill
        op.kept = UnitAttr() if parser.parse_optional_keyword("kept") else None
        op._finish(parser)
        syntax.parse_other(parser, op)
        return op

    def print(self, printer: Printer) -> None:
        self._print_head(printer)
        printer.print_string(" ")
        printer.print_attribute(self.type)
        self._print_count(printer)
        for word, value, default in (
            ("split", self.split_dim, 0),
            ("frames", self.frames, 0),
            ("copies", self.copies, 1),
            ("banks", self.banks, 1),
        ):
            syntax.print_optional_count(printer, word, value, default)
        if self.fill != real(0.0):
            printer.print_string(f" fill {syntax.real_text(self.fill.value.data)}")
        if self.kept is not None:
            printer.print_string(" kept")
        syntax.print_sites(printer, self.sites)
        syntax.print_other(printer, self)

    def verify_(self) -> None:
        super().verify_()
        shape = tt(self.type).shape
        dim = self.split_dim.value.data
        if shape and not 0 <= dim < len(shape):
            raise VerifyException(f"rdu.pmu: split dim {dim} of a buffer of {len(shape)} dims")
        if self.size > (shape[dim] if shape else 1):
            raise VerifyException(
                f"rdu.pmu: {self.size} units cannot share {shape[dim] if shape else 1} indices of dim {dim}"
            )
        if self.frames.value.data < 0 or self.copies.value.data < 1 or self.banks.value.data < 1:
            raise VerifyException(
                f"rdu.pmu: {self.frames.value.data} frame loops, {self.copies.value.data} copies, "
                f"{self.banks.value.data} banks; at least 0, 1 and 1"
            )


@properties_op_definition
class AgcuOp(UnitOp):
    """Address generators between the fabric and parameter `param` of the config.

    `load` sends tiles of it, `store` writes tiles into it; `gather` takes row indices on port 0 and sends those rows;
    `scatter` takes row indices on port 0 and rows on port 1 and writes them.

        rdu.agcu @x load param 0 x 2 at [0 3, 0 5]

    Refused: another direction. That the parameter exists is the config's rule.
    """

    name = "rdu.agcu"
    direction = prop_def(StringAttr)
    param = prop_def(Int)
    traits = traits_def(SymbolOpInterface())
    KIND: ClassVar[str] = "agcu"

    def __init__(self, name: str, direction: str, param: int, count: int = 1) -> None:
        super().__init__(
            properties={
                "sym_name": StringAttr(name),
                "direction": StringAttr(direction),
                "param": integer(param),
                "count": integer(count),
            }
        )

    @classmethod
    def parse(cls, parser: Parser) -> AgcuOp:
        name = parser.parse_symbol_name().data
        direction = parser.parse_identifier()
        parser.parse_keyword("param")
        param = syntax.parse_count(parser)
        op = AgcuOp(name, direction, param, syntax.parse_optional_count(parser, "x", 1).value.data)
        op._finish(parser)
        syntax.parse_other(parser, op)
        return op

    def print(self, printer: Printer) -> None:
        self._print_head(printer, self.direction.data, f"param {self.param.value.data}")
        self._print_count(printer)
        syntax.print_sites(printer, self.sites)
        syntax.print_other(printer, self)

    def verify_(self) -> None:
        super().verify_()
        if self.direction.data not in TRANSFERS:
            raise VerifyException(f"rdu.agcu: direction is load, store, gather or scatter, found {self.direction.data}")


OPS = [PcuOp, PmuOp, AgcuOp, YieldOp]
