"""Ops of the dataflow level: sections, stages, buffers and off-chip transfers, joined by streams of tiles.

Inside a section every op is a process of a Kahn network: it blocks on empty inputs and on full outputs, so results do
not depend on the order in which processes run.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from math import isfinite, prod
from typing import cast

from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseArrayBase,
    Float64Type,
    FloatAttr,
    IntegerAttr,
    StringAttr,
    TensorType,
    f64,
    i64,
)
from xdsl.dialects.builtin import IntegerType as IT
from xdsl.ir import Attribute, Region, SSAValue
from xdsl.irdl import (
    AnyAttr,
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.irdl.declarative_assembly_format import (
    AttributeVariable,
    CustomDirective,
    ParsingState,
    PrintingState,
    irdl_custom_directive,
)
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer
from xdsl.traits import IsolatedFromAbove, IsTerminator, Pure, RecursiveMemoryEffect
from xdsl.utils.exceptions import VerifyException

from headrace.dialects.dataflow.types import StreamType, ViewAttr
from headrace.dialects.support.access import Stream, View
from headrace.dialects.support.faults import InnerFault
from headrace.dialects.support.formats import LateFormat
from headrace.dialects.support.syntax import ints, parse_view, view_text
from headrace.dialects.tensor.base import TensorOp, tt
from headrace.dialects.tensor.shapes import TT

AnyTensor = TensorType.constr(AnyAttr())


def stream_of(value: SSAValue) -> Stream:
    """The plain stream of a stream-typed value."""
    return cast(StreamType, value.type).stream


def views(array: ArrayAttr[ViewAttr]) -> tuple[View, ...]:
    """Plain views of an array attribute."""
    return tuple(x.view for x in array)


def view_array(items: Sequence[View]) -> ArrayAttr[ViewAttr]:
    """The array attribute of plain views."""
    return ArrayAttr([ViewAttr.of(x) for x in items])


def _check_view(what: str, view: View, stream: Stream, size: int) -> None:
    shape = stream.full_shape
    if len(view.strides) != len(shape):
        raise VerifyException(f"{what}: the view has {len(view.strides)} strides but tiles have {len(shape)} dims")
    low, high = view.bounds(shape)
    if low < 0 or high >= size:
        raise VerifyException(f"{what}: the view reaches elements {low} to {high} of {size}")


def _check_counts(what: str, *streams: Stream) -> None:
    counts = [tuple(x.count for x in stream.time) for stream in streams]
    if len(set(counts)) > 1:
        raise VerifyException(f"{what}: all streams must have the same loop counts, found {sorted(set(counts))}")


_BUFFER_NUMBERS = ("frames", "copies", "split_dim", "units", "banks")


def _parse_writers(parser: Parser) -> tuple[list[UnresolvedOperand], list[View]]:
    pairs = parser.parse_comma_separated_list(
        parser.Delimiter.PAREN, lambda: (parser.parse_unresolved_operand(), parse_view(parser))
    )
    return [operand for operand, _ in pairs], [view for _, view in pairs]


def _print_writers(printer: Printer, ins: Sequence[SSAValue], in_views: Sequence[View]) -> None:
    printer.print_string(" (")
    for i, (value, view) in enumerate(zip(ins, in_views, strict=True)):
        if i:
            printer.print_string(", ")
        printer.print_operand(value)
        printer.print_string(f" {view_text(view)}")
    printer.print_string(")")


def _parse_numbers(parser: Parser, kinds: Mapping[str, Attribute]) -> dict[str, Attribute]:
    found: dict[str, Attribute] = {}
    for name, value in parser.parse_optional_dictionary_attr_dict().items():
        if name not in kinds or not isinstance(value, IntegerAttr | FloatAttr):
            parser.raise_error(f"unknown property {name}; known: {', '.join(kinds)}")
        number = value.value.data
        found[name] = FloatAttr(float(number), 64) if kinds[name] == f64 else IntegerAttr(int(number), i64)
    return found


def _print_numbers(printer: Printer, op: IRDLOperation, names: Sequence[str]) -> None:
    defaults = {name: op.get_irdl_definition().properties[name].default_value for name in names}
    shown = {n: op.properties[n] for n in names if n in op.properties and op.properties[n] != defaults[n]}
    if shown:
        texts = [f"{n} = {_number(v.value.data)}" for n, v in shown.items() if isinstance(v, IntegerAttr | FloatAttr)]
        printer.print_string(f" {{{', '.join(texts)}}}")


def _number(value: int | float) -> str:
    """A number as the parser reads it back, to the last bit."""
    if isinstance(value, int):
        return str(value)
    if not isfinite(value):
        return f"0x{struct.pack('>d', value).hex()} : f64"
    mantissa, e, exponent = repr(value).partition("e")
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}{e}{exponent}"


@irdl_op_definition
class YieldOp(LateFormat):
    """Ends a section (yields its result tensors) or a stage body (yields one tile per output stream).

        dataflow.yield %y : tensor<4x6xf32>

    Refused: values of other types than what the op around it gives.
    """

    name = "dataflow.yield"
    values = var_operand_def()
    assembly_format = "attr-dict ($values^ `:` type($values))?"
    traits = traits_def(IsTerminator(), Pure())

    def __init__(self, values: Sequence[SSAValue]) -> None:
        super().__init__(operands=[list(values)])


@irdl_op_definition
class SectionOp(LateFormat):
    """What is resident on the chip together: one configuration, run once per execution of the op.

    Operands and results are whole tensors in off-chip memory. The body is a Kahn network of stages and buffers between
    loads and stores; it sees only its arguments.

        %y = dataflow.section "s0"(%x) : (tensor<4xf32>) -> tensor<4xf32> {
        ^bb0(%a: tensor<4xf32>):
          %s = dataflow.load %a at 0 [1] : tensor<4xf32> -> !dataflow.stream<tensor<2xf32>, [2 on 0 by 2]>
          %t = dataflow.store (%s at 3 [-1]) : (!dataflow.stream<tensor<2xf32>, [2 on 0 by 2]>) -> tensor<4xf32>
          dataflow.yield %t : tensor<4xf32>
        }
    """

    name = "dataflow.section"
    sym = prop_def(StringAttr)
    ins = var_operand_def(AnyTensor)
    outs = var_result_def(AnyTensor)
    body = region_def("single_block")
    traits = traits_def(IsolatedFromAbove(), RecursiveMemoryEffect())
    assembly_format = "$sym `(` $ins `)` attr-dict-with-keyword `:` functional-type($ins, $outs) $body"

    def __init__(self, name: str, ins: Sequence[SSAValue], outs: Sequence[Attribute], body: Region) -> None:
        super().__init__(
            operands=[list(ins)], result_types=[list(outs)], regions=[body], properties={"sym": StringAttr(name)}
        )

    def verify_(self) -> None:
        block = self.body.block
        if [a.type for a in block.args] != [v.type for v in self.ins]:
            raise VerifyException("dataflow.section: body arguments must have the types of the operands")
        last = block.last_op
        if not isinstance(last, YieldOp) or [v.type for v in last.values] != [r.type for r in self.outs]:
            raise VerifyException("dataflow.section: must end in dataflow.yield of the result types")
        for op in block.ops:
            if not isinstance(op, PROCESSES) and op is not last:
                raise InnerFault(op, "is no process of a dataflow.section; put it into a stage")
        for value in last.values:
            if not isinstance(value.owner, StoreOp | ScatterOp):
                raise InnerFault(last, "results of a section are what a dataflow.store or dataflow.scatter makes")


@irdl_op_definition
class LoadOp(IRDLOperation):
    """Reads a tensor from off-chip memory as a stream of tiles, through a view of its row-major elements.

    The stream may take part of the tensor, go backwards, or repeat tiles.

        %s = dataflow.load %x at 0 [8, 1] : tensor<4x8xf32> -> !dataflow.stream<tensor<2x8xf32>, [2 on 0 by 2]>
    """

    name = "dataflow.load"
    tensor = operand_def(AnyTensor)
    view = prop_def(ViewAttr)
    out = result_def(StreamType)
    traits = traits_def(Pure())

    def __init__(self, tensor: SSAValue, view: View, out: StreamType) -> None:
        super().__init__(operands=[tensor], result_types=[out], properties={"view": ViewAttr.of(view)})

    @classmethod
    def parse(cls, parser: Parser) -> LoadOp:
        tensor = parser.parse_unresolved_operand()
        view = parse_view(parser)
        parser.parse_punctuation(":")
        type = parser.parse_type()
        parser.parse_punctuation("->")
        start = parser.pos
        out = parser.parse_type()
        if not isinstance(out, StreamType):
            parser.raise_error("expected a stream type", start, parser.pos)
        return LoadOp(parser.resolve_operand(tensor, type), view, out)

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_operand(self.tensor)
        printer.print_string(f" {view_text(self.view.view)} : ")
        printer.print_attribute(self.tensor.type)
        printer.print_string(" -> ")
        printer.print_attribute(self.out.type)

    def verify_(self) -> None:
        _check_view("dataflow.load", self.view.view, stream_of(self.out), tt(self.tensor).elements)
        if tt(self.tensor).dtype != stream_of(self.out).dtype:
            raise VerifyException("dataflow.load: tiles have the element type of the tensor")


@irdl_op_definition
class StoreOp(IRDLOperation):
    """Writes streams into a tensor in off-chip memory, each through its view. Together they write every element.

    One stream may be stored several times, and through several views.

        %t = dataflow.store (%s at 0 [8, 1]) : (!dataflow.stream<tensor<2x8xf32>, [2 on 0 by 2]>) -> tensor<4x8xf32>
    """

    name = "dataflow.store"
    ins = var_operand_def(StreamType)
    in_views = prop_def(ArrayAttr[ViewAttr])
    tensor = result_def(AnyTensor)
    traits = traits_def(Pure())

    def __init__(self, ins: Sequence[SSAValue], in_views: Sequence[View], type: Attribute) -> None:
        super().__init__(operands=[list(ins)], result_types=[type], properties={"in_views": view_array(in_views)})

    @classmethod
    def parse(cls, parser: Parser) -> StoreOp:
        operands, in_views = _parse_writers(parser)
        parser.parse_punctuation(":")
        types = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type)
        parser.parse_punctuation("->")
        result = parser.parse_type()
        return StoreOp(parser.resolve_operands(operands, types, parser.pos), in_views, result)

    def print(self, printer: Printer) -> None:
        _print_writers(printer, self.ins, views(self.in_views))
        printer.print_string(" : (")
        printer.print_list(self.ins.types, printer.print_attribute)
        printer.print_string(") -> ")
        printer.print_attribute(self.tensor.type)

    def verify_(self) -> None:
        if len(self.ins) != len(self.in_views):
            raise VerifyException("dataflow.store: one view for each stream")
        whole = tt(self.tensor)
        for value, view in zip(self.ins, views(self.in_views), strict=True):
            _check_view("dataflow.store", view, stream_of(value), whole.elements)
            if stream_of(value).dtype != whole.dtype:
                raise VerifyException("dataflow.store: tiles have the element type of the tensor")
        written = sum(prod(stream_of(v).full_shape) for v in self.ins)
        if written != whole.elements:
            raise VerifyException(f"dataflow.store: streams write {written} of {whole.elements} elements")


@irdl_op_definition
class BufferOp(IRDLOperation):
    """On-chip memory of a row-major logical shape between streams of different order, tile or repetition.

    The first `frames` loops of every stream enumerate frames: a reader's frame may start when every writer finished it,
    and a writer waits while `copies` frames are not yet read by all readers. `frames = 0` means one frame, the whole
    buffer. Elements that no writer writes hold `fill`. `split_dim` and `units` say how the buffer is spread over memory
    units and `banks` how many banks of a unit it takes (0: not decided yet).

        %b = dataflow.buffer [4, 8] (%s at 0 [8, 1]) to (at 0 [1, 8]) {frames = 0}
          : (!dataflow.stream<tensor<4x8xf32>>) -> !dataflow.stream<tensor<8x4xf32>>
    """

    name = "dataflow.buffer"
    ins = var_operand_def(StreamType)
    shape = prop_def(DenseArrayBase)
    in_views = prop_def(ArrayAttr[ViewAttr])
    out_views = prop_def(ArrayAttr[ViewAttr])
    frames = prop_def(IntegerAttr[IT], default_value=IntegerAttr(0, i64))
    copies = prop_def(IntegerAttr[IT], default_value=IntegerAttr(1, i64))
    fill = prop_def(FloatAttr[Float64Type], default_value=FloatAttr(0.0, f64))
    split_dim = prop_def(IntegerAttr[IT], default_value=IntegerAttr(0, i64))
    units = prop_def(IntegerAttr[IT], default_value=IntegerAttr(0, i64))
    banks = prop_def(IntegerAttr[IT], default_value=IntegerAttr(0, i64))
    outs = var_result_def(StreamType)
    traits = traits_def(Pure())

    def __init__(
        self,
        ins: Sequence[SSAValue],
        in_views: Sequence[View],
        shape: Sequence[int],
        outs: Sequence[StreamType],
        out_views: Sequence[View],
        fill: float = 0.0,
    ) -> None:
        super().__init__(
            operands=[list(ins)],
            result_types=[list(outs)],
            properties={
                "shape": DenseArrayBase.from_list(i64, list(shape)),
                "in_views": view_array(in_views),
                "out_views": view_array(out_views),
                "fill": FloatAttr(fill, f64),
            },
        )

    @property
    def buffer_type(self) -> TT:
        """Logical shape and element type."""
        value = self.ins[0] if self.ins else self.outs[0]
        return TT(ints(self.shape), stream_of(value).dtype)

    @property
    def ports(self) -> tuple[tuple[Stream, View], ...]:
        """Stream and view of every port, writers first."""
        values = (*self.ins, *self.outs)
        return tuple(zip((stream_of(v) for v in values), (*views(self.in_views), *views(self.out_views)), strict=True))

    @property
    def frame_count(self) -> int:
        """How many frames pass in one run of the section."""
        return prod(x.count for x in self.ports[0][0].time[: self.frames.value.data])

    @classmethod
    def parse(cls, parser: Parser) -> BufferOp:
        shape = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer)
        operands, in_views = _parse_writers(parser)
        parser.parse_keyword("to")
        out_views = parser.parse_comma_separated_list(parser.Delimiter.PAREN, lambda: parse_view(parser))
        properties = _parse_numbers(parser, dict.fromkeys(_BUFFER_NUMBERS, i64) | {"fill": f64})
        parser.parse_punctuation(":")
        type = parser.parse_function_type()
        outs = list(type.outputs)
        op = BufferOp(
            parser.resolve_operands(operands, list(type.inputs), parser.pos),
            in_views,
            shape,
            cast("list[StreamType]", outs),
            out_views,
        )
        op.properties.update(properties)
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {list(ints(self.shape))}")
        _print_writers(printer, self.ins, views(self.in_views))
        printer.print_string(f" to ({', '.join(view_text(v) for v in views(self.out_views))})")
        _print_numbers(printer, self, (*_BUFFER_NUMBERS, "fill"))
        printer.print_string(" : ")
        printer.print_function_type(self.ins.types, self.outs.types)

    def verify_(self) -> None:
        if len(self.ins) != len(self.in_views) or len(self.outs) != len(self.out_views):
            raise VerifyException("dataflow.buffer: one view for each stream")
        if not self.ins or not self.outs:
            raise VerifyException("dataflow.buffer: at least one stream in and one out")
        size = self.buffer_type.elements
        frames = self.frames.value.data
        counts: set[tuple[tuple[int, int], ...]] = set()
        for stream, view in self.ports:
            _check_view("dataflow.buffer", view, stream, size)
            if stream.dtype != self.buffer_type.dtype:
                raise VerifyException("dataflow.buffer: all streams have one element type")
            if frames > len(stream.time):
                raise VerifyException(f"dataflow.buffer: {frames} frame loops but a stream has {len(stream.time)}")
            counts.add(
                tuple((x.count, x.step * view.strides[x.dim] if x.dim >= 0 else 0) for x in stream.time[:frames])
            )
        if len(counts) != 1:
            raise VerifyException("dataflow.buffer: the frame loops of all streams must advance alike")
        if self.copies.value.data < 1:
            raise VerifyException("dataflow.buffer: at least one copy")


@irdl_custom_directive
class Parts(CustomDirective):
    """`par [2 by 64, 1 by 2]`: dims of the output tiles and the parts that each is cut into; nothing when uncut."""

    par: AttributeVariable

    def parse(self, parser: Parser, state: ParsingState) -> None:
        if not parser.parse_optional_keyword("par"):
            return

        def one() -> tuple[int, int]:
            dim = parser.parse_integer(allow_boolean=False, allow_negative=False)
            parser.parse_keyword("by")
            return dim, parser.parse_integer(allow_boolean=False, allow_negative=False)

        pairs = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, one)
        self.par.set(state, _parts_attr(pairs))

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        if (par := self.par.get(op)) is None:
            return
        pairs = ", ".join(f"{dim} by {parts}" for dim, parts in _parts(cast(DenseArrayBase, par)))
        state.print_whitespace(printer)
        printer.print_string(f"par [{pairs}]")
        state.should_emit_space = True
        state.last_was_punctuation = False


def _parts_attr(pairs: Sequence[tuple[int, int]]) -> DenseArrayBase:
    return DenseArrayBase.from_list(i64, [n for pair in pairs for n in pair])


def _parts(par: DenseArrayBase) -> tuple[tuple[int, int], ...]:
    flat = ints(par)
    return tuple(zip(flat[::2], flat[1::2], strict=True))


@irdl_op_definition
class StageOp(LateFormat):
    """Computes one tile per output from one tile per input, at every step of its domain (the loops of its streams).

    The body holds tensor ops on tiles and sees only its arguments. All streams have equal loop counts; output loops
    never repeat. `par` lists (dim, parts): how output tiles are cut over symmetric compute units.

        %t = dataflow.stage "matmul_0"(%a, %b) par [1 by 2]
          : (!dataflow.stream<tensor<4x8xf32>, [2 on 0 by 4]>, !dataflow.stream<tensor<8x6xf32>, [2 repeat]>)
          -> !dataflow.stream<tensor<4x6xf32>, [2 on 0 by 4]> {
        ^bb0(%x: tensor<4x8xf32>, %w: tensor<8x6xf32>):
          %y = tensor.matmul %x, %w : tensor<4x8xf32>, tensor<8x6xf32> -> tensor<4x6xf32>
          dataflow.yield %y : tensor<4x6xf32>
        }
    """

    name = "dataflow.stage"
    sym = prop_def(StringAttr)
    ins = var_operand_def(StreamType)
    par = opt_prop_def(DenseArrayBase)
    outs = var_result_def(StreamType)
    body = region_def("single_block")
    traits = traits_def(IsolatedFromAbove(), RecursiveMemoryEffect())
    custom_directives = (Parts,)
    assembly_format = (
        "$sym `(` $ins `)` custom<Parts>($par) attr-dict-with-keyword `:` functional-type($ins, $outs) $body"
    )

    def __init__(self, name: str, ins: Sequence[SSAValue], outs: Sequence[StreamType], body: Region) -> None:
        super().__init__(
            operands=[list(ins)], result_types=[list(outs)], regions=[body], properties={"sym": StringAttr(name)}
        )

    @property
    def parts(self) -> tuple[tuple[int, int], ...]:
        """Pairs (output dim, parts)."""
        return _parts(self.par) if self.par is not None else ()

    @parts.setter
    def parts(self, value: Sequence[tuple[int, int]]) -> None:
        self.par = _parts_attr(value) if value else None

    @property
    def units(self) -> int:
        """How many symmetric compute units the stage takes for each piece of its body."""
        return prod(p for _, p in self.parts)

    def verify_(self) -> None:
        block = self.body.block
        tiles = [cast(StreamType, v.type).tile for v in self.ins]
        if [a.type for a in block.args] != tiles:
            raise VerifyException("dataflow.stage: body arguments must have the tile types of the inputs")
        for op in block.ops:
            if not isinstance(op, TensorOp) and op is not block.last_op:
                raise InnerFault(op, "the body of a dataflow.stage holds tensor ops")
        last = block.last_op
        made = [r.type.tile for r in self.outs]
        if not isinstance(last, YieldOp) or [v.type for v in last.values] != made:
            raise VerifyException("dataflow.stage: must end in dataflow.yield of the output tiles")
        if not self.outs:
            raise VerifyException("dataflow.stage: at least one output")
        _check_counts("dataflow.stage", *map(stream_of, (*self.ins, *self.outs)))
        for value in self.outs:
            if not stream_of(value).partitions:
                raise VerifyException("dataflow.stage: output loops must tile the result without repeats or gaps")
        if len({dim for dim, _ in self.parts}) != len(self.parts):
            raise VerifyException("dataflow.stage: par names a dim twice")
        tile = stream_of(self.outs[0]).tile
        for dim, parts in self.parts:
            if dim >= len(tile):
                raise VerifyException(f"dataflow.stage: par names dim {dim} but tiles have {len(tile)} dims")
            if parts < 1 or tile[dim] % parts:
                raise VerifyException(f"dataflow.stage: {parts} parts do not divide dim {dim} of extent {tile[dim]}")


@irdl_op_definition
class GatherOp(LateFormat):
    """Reads rows of an off-chip table at indices that arrive as a stream: tile `i` of the output is the table's rows at
    index tile `i`. Rows are along dim 0; negative indices count from the end; an index out of range is a run-time
    error.

        %rows = dataflow.gather %table[%i] : tensor<100x8xf32>, !dataflow.stream<tensor<4xi64>>
          -> !dataflow.stream<tensor<4x8xf32>>
    """

    name = "dataflow.gather"
    table = operand_def(AnyTensor)
    indices = operand_def(StreamType)
    out = result_def(StreamType)
    traits = traits_def(Pure())
    assembly_format = "$table `[` $indices `]` attr-dict `:` type($table) `,` type($indices) `->` type($out)"

    def __init__(self, table: SSAValue, indices: SSAValue, out: StreamType) -> None:
        super().__init__(operands=[table, indices], result_types=[out])

    def verify_(self) -> None:
        table, index, out = tt(self.table), stream_of(self.indices), stream_of(self.out)
        if out.tile != index.tile + table.shape[1:]:
            raise VerifyException(
                f"dataflow.gather: rows of {table} at {index.tile} indices make tiles {index.tile + table.shape[1:]}, "
                f"found {out.tile}"
            )
        if not index.dtype.startswith(("i", "ui")) or out.dtype != table.dtype:
            raise VerifyException("dataflow.gather: indices are integers and rows have the table's element type")
        _check_counts("dataflow.gather", index, out)


@irdl_op_definition
class ScatterOp(LateFormat):
    """The tensor `base` with rows replaced: row `index` (dim 0) becomes the tile that arrives with that index. The
    runtime updates in place when base and result are the same state.

        %n = dataflow.scatter %base[%i] = %rows
          : tensor<9x2xf32>, !dataflow.stream<tensor<2xi64>, [2 on 0 by 2]>,
            !dataflow.stream<tensor<2x2xf32>, [2 on 0 by 2]> -> tensor<9x2xf32>
    """

    name = "dataflow.scatter"
    base = operand_def(AnyTensor)
    indices = operand_def(StreamType)
    rows = operand_def(StreamType)
    tensor = result_def(AnyTensor)
    traits = traits_def(Pure())
    assembly_format = (
        "$base `[` $indices `]` `=` $rows attr-dict `:` type($base) `,` type($indices) `,` type($rows)"
        " `->` type($tensor)"
    )

    def __init__(self, base: SSAValue, indices: SSAValue, rows: SSAValue) -> None:
        super().__init__(operands=[base, indices, rows], result_types=[base.type])

    def verify_(self) -> None:
        base, index, rows = tt(self.base), stream_of(self.indices), stream_of(self.rows)
        if rows.tile != index.tile + base.shape[1:]:
            raise VerifyException("dataflow.scatter: row tiles must be index tile shape followed by the row shape")
        if not index.dtype.startswith(("i", "ui")) or rows.dtype != base.dtype:
            raise VerifyException("dataflow.scatter: indices are integers and rows have the base's element type")
        if self.tensor.type != self.base.type:
            raise VerifyException("dataflow.scatter: the result has the type of the base")
        _check_counts("dataflow.scatter", index, rows)


@irdl_op_definition
class ForkOp(LateFormat):
    """Sends every tile of a stream to several consumers (each blocks the others when it is full).

        %a, %b = dataflow.fork %s
          : !dataflow.stream<tensor<4xf32>> -> !dataflow.stream<tensor<4xf32>>, !dataflow.stream<tensor<4xf32>>

    Refused: no output; an output of another type than the input.
    """

    name = "dataflow.fork"
    input = operand_def(StreamType)
    outs = var_result_def(StreamType)
    traits = traits_def(Pure())
    assembly_format = "$input attr-dict `:` type($input) `->` type($outs)"

    def __init__(self, input: SSAValue, count: int) -> None:
        super().__init__(operands=[input], result_types=[[input.type] * count])

    def verify_(self) -> None:
        if not self.outs:
            raise VerifyException("dataflow.fork: at least one output")
        if any(r.type != self.input.type for r in self.outs):
            raise VerifyException("dataflow.fork: every output has the type of the input")


@irdl_op_definition
class MergeOp(LateFormat):
    """Takes one tile from each input in turn: the output's innermost loop runs over the inputs.

    `N` streams of tile T and loops L give one stream of tile T and loops L + [N on D by S].

        %m = dataflow.merge %a, %b
          : !dataflow.stream<tensor<1x2xf32>, [2 on 1 by 2]>, !dataflow.stream<tensor<1x2xf32>, [2 on 1 by 2]>
          -> !dataflow.stream<tensor<1x2xf32>, [2 on 1 by 2, 2 on 0 by 1]>
    """

    name = "dataflow.merge"
    ins = var_operand_def(StreamType)
    out = result_def(StreamType)
    traits = traits_def(Pure())
    assembly_format = "$ins attr-dict `:` type($ins) `->` type($out)"

    def __init__(self, ins: Sequence[SSAValue], out: StreamType) -> None:
        super().__init__(operands=[list(ins)], result_types=[out])

    def verify_(self) -> None:
        out = stream_of(self.out)
        if not out.time or out.time[-1].count != len(self.ins):
            raise VerifyException("dataflow.merge: the innermost loop of the output runs over the inputs")
        for value in self.ins:
            stream = stream_of(value)
            if stream.dtype != out.dtype:
                raise VerifyException("dataflow.merge: inputs have the output's element type")
            if stream.tile != out.tile or [x.count for x in stream.time] != [x.count for x in out.time[:-1]]:
                raise VerifyException("dataflow.merge: inputs have the output's tile and all but its innermost loop")


PROCESSES = (LoadOp, StoreOp, BufferOp, StageOp, GatherOp, ScatterOp, ForkOp, MergeOp)
"""What a section holds."""

OPS = [SectionOp, LoadOp, StoreOp, BufferOp, StageOp, GatherOp, ScatterOp, ForkOp, MergeOp, YieldOp]
