"""Attributes of the rdu level: streams with space loops, views, parameters, routes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from xdsl.dialects.builtin import DenseArrayBase, IntegerType, StringAttr, TensorType, i64
from xdsl.ir import Attribute, Data, ParametrizedAttribute
from xdsl.irdl import irdl_attr_definition, param_def
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from headrace.dialects.rdu.routes import Routes, parse_way, way_text
from headrace.dialects.rdu.syntax import AnyTensor, Sites
from headrace.dialects.support.access import Stream, View
from headrace.dialects.support.attributes import by_identity
from headrace.dialects.support.syntax import (
    loops_from_array,
    loops_text,
    loops_to_array,
    parse_loops,
    parse_view,
    view_text,
)
from headrace.dialects.tensor.base import ir_type, tt
from headrace.dialects.tensor.shapes import TT

DIRECTIONS = ("in", "out", "inout")


@irdl_attr_definition
class StreamAttr(ParametrizedAttribute):
    """What a flow carries: the tile of one site and step, time loops, and space loops over the sites.

    `#rdu.stream<tensor<1x64x64xf32> time [8 on 1 by 64] space [36 on 2 by 64]>`
    """

    name = "rdu.stream"
    tile: TensorType[Attribute] = param_def(AnyTensor)
    time: DenseArrayBase = param_def()
    space: DenseArrayBase = param_def()

    @classmethod
    def of(cls, stream: Stream) -> StreamAttr:
        """The attribute of a plain stream."""
        return cls(ir_type(TT(stream.tile, stream.dtype)), loops_to_array(stream.time), loops_to_array(stream.space))

    @property
    def stream(self) -> Stream:
        """The plain form."""
        return _stream(self)

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            return cls.parse_plain(parser).parameters

    @classmethod
    def parse_plain(cls, parser: AttrParser) -> StreamAttr:
        """Parse what stands between the angle brackets."""
        tile = parser.parse_type()
        time = loops_to_array(parse_loops(parser) if parser.parse_optional_keyword("time") else ())
        space = loops_to_array(parse_loops(parser) if parser.parse_optional_keyword("space") else ())
        if not isinstance(tile, TensorType):
            parser.raise_error("expected the tensor type of a tile")
        return cls(tile, time, space)  # pyright: ignore[reportUnknownArgumentType]

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            self.print_plain(printer)

    def print_plain(self, printer: Printer) -> None:
        """Print what stands between the angle brackets."""
        printer.print_attribute(self.tile)
        for word, loops in (("time", self.stream.time), ("space", self.stream.space)):
            if loops:
                printer.print_string(f" {word} {loops_text(loops)}")

    def verify(self) -> None:
        rank = len(self.tile.get_shape())
        for loop in (*loops_from_array(self.time), *loops_from_array(self.space)):
            if loop.count < 1 or not -1 <= loop.dim < rank:
                raise VerifyException(f"rdu.stream: loop {loop.count} on {loop.dim} does not fit tiles of {rank} dims")


@by_identity
def _stream(attribute: StreamAttr) -> Stream:
    tile = tt(attribute.tile)
    return Stream(tile.shape, tile.dtype, loops_from_array(attribute.time), loops_from_array(attribute.space))


@irdl_attr_definition
class ViewAttr(ParametrizedAttribute):
    """The address program's offset and strides at one end of a flow: `#rdu.view<at 768 [2304, 1]>`, in elements."""

    name = "rdu.view"
    flat: DenseArrayBase[IntegerType] = param_def(DenseArrayBase.constr(i64))

    @classmethod
    def of(cls, view: View) -> ViewAttr:
        """The attribute of a plain view."""
        return cls(DenseArrayBase.from_list(i64, [view.offset, *view.strides]))

    @property
    def view(self) -> View:
        """The plain form."""
        offset, *strides = self.flat.get_values()
        return View(offset, tuple(strides))

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            view = parse_view(parser)
        return [DenseArrayBase.from_list(i64, [view.offset, *view.strides])]

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(view_text(self.view))


@irdl_attr_definition
class ParamAttr(ParametrizedAttribute):
    """A tensor that a config takes at launch: `#rdu.param<"x" in tensor<4xf32>>`, direction in, out or inout."""

    name = "rdu.param"
    title: StringAttr = param_def()
    direction: StringAttr = param_def()
    type: TensorType[Attribute] = param_def(AnyTensor)

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            return cls.parse_plain(parser).parameters

    @classmethod
    def parse_plain(cls, parser: AttrParser) -> ParamAttr:
        """Parse what stands between the angle brackets."""
        title = parser.parse_str_literal()
        direction = parser.parse_identifier()
        type = parser.parse_type()
        if not isinstance(type, TensorType):
            parser.raise_error("expected a tensor type")
        return cls(StringAttr(title), StringAttr(direction), type)  # pyright: ignore[reportUnknownArgumentType]

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            self.print_plain(printer)

    def print_plain(self, printer: Printer) -> None:
        """Print what stands between the angle brackets."""
        printer.print_string_literal(self.title.data)
        printer.print_string(f" {self.direction.data} ")
        printer.print_attribute(self.type)

    def verify(self) -> None:
        if self.direction.data not in DIRECTIONS:
            raise VerifyException(f"rdu.param: direction is in, out or inout, found {self.direction.data}")


@irdl_attr_definition
class RoutesAttr(Data[Routes]):
    """How the pairs of sites of a flow reach each other: `#rdu.routes<[0 -> 0 e3s2, 0 -> 1 e3 on 1, 1 -> 1 stay]>`.

    Each is source site, destination site, the way from switch to switch, and its virtual channel unless that is 0.
    """

    name = "rdu.routes"

    @cached_property
    def joined(self) -> list[tuple[Sites, Sites]]:
        """The sites at both ends that the ways are known to join. Attributes never change: what has been looked at once
        is not looked at after every pass."""
        return []

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Routes:
        with parser.in_angle_brackets():
            return cls.parse_plain(parser).data

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            self.print_plain(printer)

    @classmethod
    def parse_plain(cls, parser: AttrParser) -> RoutesAttr:
        """Parse what stands between the angle brackets."""

        def one() -> tuple[int, int, str, int]:
            source = parser.parse_integer(allow_boolean=False, allow_negative=False)
            parser.parse_punctuation("->")
            target = parser.parse_integer(allow_boolean=False, allow_negative=False)
            at = parser.pos
            way = parse_way(text := parser.parse_identifier())
            if way is None:
                parser.raise_error(f"'{text}' is no way: expected steps such as e3s2 (e, w, s, n), or stay", at)
            channel = parser.parse_integer(allow_boolean=False) if parser.parse_optional_keyword("on") else 0
            return source, target, way, channel

        rows = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, one)
        return cls(Routes(tuple(r[:2] for r in rows), tuple(r[2] for r in rows), tuple(r[3] for r in rows)))

    def print_plain(self, printer: Printer) -> None:
        """Print what stands between the angle brackets."""
        rows = [
            f"{a} -> {b} {way_text(way)}{f' on {channel}' if channel else ''}"
            for (a, b), way, channel in zip(*self.data, strict=True)
        ]
        printer.print_string(f"[{', '.join(rows)}]")

    def verify(self) -> None:
        if len({len(x) for x in self.data}) != 1:
            raise VerifyException("rdu.routes: one way and one channel for each pair")
        if any(channel < 0 for channel in self.data.channels):
            raise VerifyException("rdu.routes: virtual channels are counted from 0")


ATTRIBUTES = [ParamAttr, RoutesAttr, StreamAttr, ViewAttr]
