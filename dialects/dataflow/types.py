"""Types and attributes of the dataflow level."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from xdsl.dialects.builtin import DenseArrayBase, TensorType, i64
from xdsl.ir import Attribute, ParametrizedAttribute, TypeAttribute
from xdsl.irdl import AnyAttr, irdl_attr_definition, param_def
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from headrace.dialects.support import dtypes
from headrace.dialects.support.access import Loop, Stream, View
from headrace.dialects.support.attributes import by_identity
from headrace.dialects.support.syntax import (
    ints,
    loops_from_array,
    loops_text,
    loops_to_array,
    parse_loops,
    parse_view,
    view_text,
)
from headrace.dialects.tensor.base import ir_type, tt
from headrace.dialects.tensor.shapes import TT


@irdl_attr_definition
class StreamType(ParametrizedAttribute, TypeAttribute):
    """A sequence of tiles: `!dataflow.stream<tensor<1x64x768xf32>, [8 on 1 by 64]>`.

    Loops are outermost first; `N on D by S` advances the tile by S elements along dim D in each of N iterations,
    `N repeat` sends the same tile N times.
    """

    name = "dataflow.stream"
    tile: TensorType[Attribute] = param_def(TensorType.constr(AnyAttr()))
    flat: DenseArrayBase = param_def()

    @classmethod
    def of(cls, tile: TT, loops: Sequence[Loop] = ()) -> StreamType:
        """The type of a stream of plain tile type and loops."""
        return cls(ir_type(tile), loops_to_array(loops))

    @classmethod
    def from_stream(cls, stream: Stream) -> StreamType:
        """The type of a stream (its space loops are not part of this level)."""
        return cls.of(TT(stream.tile, stream.dtype), stream.time)

    @property
    def loops(self) -> tuple[Loop, ...]:
        """Time loops, outermost first."""
        return _stream(self).time

    @property
    def stream(self) -> Stream:
        """The plain form."""
        return _stream(self)

    @property
    def counts(self) -> tuple[int, ...]:
        """Iterations of each loop."""
        return tuple(x.count for x in self.loops)

    @property
    def full(self) -> TT:
        """Type of the whole tensor that the stream denotes."""
        return TT(self.stream.full_shape, self.stream.dtype)

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            tile = parser.parse_type()
            loops: tuple[Loop, ...] = ()
            if parser.parse_optional_punctuation(","):
                loops = parse_loops(parser)
        if not isinstance(tile, TensorType):
            parser.raise_error("a stream carries tensor tiles")
        return [cast("TensorType[Attribute]", tile), loops_to_array(loops)]

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_attribute(self.tile)
            if self.loops:
                printer.print_string(f", {loops_text(self.loops)}")

    def verify(self) -> None:
        rank = len(self.tile.get_shape())
        if len(self.flat) % 3:
            raise VerifyException(f"stream: loops are triples of numbers, found {len(self.flat)} numbers")
        for loop in loops_from_array(self.flat):
            if loop.count < 1:
                raise VerifyException(f"stream: a loop runs at least once, found {loop.count}")
            if not -1 <= loop.dim < rank:
                raise VerifyException(f"stream: loop on dim {loop.dim} but tiles have {rank} dims")
            if loop.dim >= 0 and loop.step < 1:
                raise VerifyException(f"stream: a loop advances by at least one element, found {loop.step}")


@irdl_attr_definition
class ViewAttr(ParametrizedAttribute):
    """An address program's view: `#dataflow.view<at 768 [2304, 1]>`, offset and strides in elements."""

    name = "dataflow.view"
    flat: DenseArrayBase = param_def()

    @classmethod
    def of(cls, view: View) -> ViewAttr:
        """The attribute of a plain view."""
        return cls(DenseArrayBase.from_list(i64, [view.offset, *view.strides]))

    @property
    def view(self) -> View:
        """The plain form."""
        return _view(self)

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            view = parse_view(parser)
        return [DenseArrayBase.from_list(i64, [view.offset, *view.strides])]

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(view_text(self.view))

    def verify(self) -> None:
        if not len(self.flat):
            raise VerifyException("view: an offset and strides, found nothing")


@by_identity
def _stream(type: StreamType) -> Stream:
    tile = tt(type.tile)
    return Stream(tile.shape, tile.dtype, loops_from_array(type.flat))


@by_identity
def _view(attribute: ViewAttr) -> View:
    offset, *strides = ints(attribute.flat)
    return View(offset, tuple(strides))


def element_bytes(type: StreamType) -> int:
    """Bytes of one element of a stream."""
    return dtypes.byte_size(type.stream.dtype)
