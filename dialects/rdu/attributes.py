"""Attributes of the rdu level: streams with space loops, views, parameters."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from xdsl.dialects.builtin import DenseArrayBase, StringAttr, TensorType, i64
from xdsl.ir import Attribute, ParametrizedAttribute
from xdsl.irdl import AnyAttr, irdl_attr_definition, param_def
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from headrace.dialects.support.access import Stream, View
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

AnyTensor = TensorType.constr(AnyAttr())
DIRECTIONS = ("in", "out", "inout")


@irdl_attr_definition
class StreamAttr(ParametrizedAttribute):
    """What a flow carries: the tile of one site and step, time loops, and space loops over the sites.

    `#rdu.stream<tensor<1x64x64xf32>, time [8 on 1 by 64], space [36 on 2 by 64]>`
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
        time = space = loops_to_array(())
        with parser.in_angle_brackets():
            tile = parser.parse_type()
            while parser.parse_optional_punctuation(","):
                if parser.parse_optional_keyword("time"):
                    time = loops_to_array(parse_loops(parser))
                else:
                    parser.parse_keyword("space")
                    space = loops_to_array(parse_loops(parser))
        return [tile, time, space]

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_attribute(self.tile)
            for word, loops in (("time", self.stream.time), ("space", self.stream.space)):
                if loops:
                    printer.print_string(f", {word} {loops_text(loops)}")

    def verify(self) -> None:
        rank = len(self.tile.get_shape())
        for loop in (*loops_from_array(self.time), *loops_from_array(self.space)):
            if loop.count < 1 or not -1 <= loop.dim < rank:
                raise VerifyException(f"rdu.stream: loop {loop.count} on {loop.dim} does not fit tiles of {rank} dims")


@lru_cache(maxsize=8192)
def _stream(attribute: StreamAttr) -> Stream:
    tile = tt(attribute.tile)
    return Stream(tile.shape, tile.dtype, loops_from_array(attribute.time), loops_from_array(attribute.space))


@irdl_attr_definition
class ViewAttr(ParametrizedAttribute):
    """The address program's offset and strides at one end of a flow: `#rdu.view<at 768 [2304, 1]>`, in elements."""

    name = "rdu.view"
    flat: DenseArrayBase = param_def()

    @classmethod
    def of(cls, view: View) -> ViewAttr:
        """The attribute of a plain view."""
        return cls(DenseArrayBase.from_list(i64, [view.offset, *view.strides]))

    @property
    def view(self) -> View:
        """The plain form."""
        offset, *strides = (int(x) for x in self.flat.get_values())
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
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Any]:
        with parser.in_angle_brackets():
            title = parser.parse_str_literal()
            direction = parser.parse_identifier()
            return [StringAttr(title), StringAttr(direction), parser.parse_type()]

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string_literal(self.title.data)
            printer.print_string(f" {self.direction.data} ")
            printer.print_attribute(self.type)

    def verify(self) -> None:
        if self.direction.data not in DIRECTIONS:
            raise VerifyException(f"rdu.param: direction is in, out or inout, found {self.direction.data}")


ATTRIBUTES = [ParamAttr, StreamAttr, ViewAttr]
