"""Values that come from outside the computation: weights by key, recipes of derived weights, small constants."""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from math import copysign, isfinite, nan
from typing import TYPE_CHECKING, Any, ClassVar

from xdsl.dialects.builtin import BytesAttr, ModuleOp, StringAttr, SymbolNameConstraint, TensorType, UnknownLoc
from xdsl.ir import Attribute, Block, Operation, ParametrizedAttribute, Region, SSAValue
from xdsl.irdl import (
    AnyAttr,
    ParsePropInAttrDict,
    irdl_attr_definition,
    irdl_op_definition,
    operand_def,
    param_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
)
from xdsl.parser import AttrParser, Parser
from xdsl.printer import Printer
from xdsl.traits import IsolatedFromAbove, IsTerminator, Pure, SymbolOpInterface
from xdsl.utils.exceptions import VerifyException

from headrace.dialects.support import dtypes
from headrace.dialects.support.attributes import string
from headrace.dialects.support.diagnostics import CompileError
from headrace.dialects.support.locations import Location, text
from headrace.dialects.tensor.base import AnyTensor, TensorOp, ir_type, make, tt
from headrace.dialects.tensor.shapes import TT, ShapeError

if TYPE_CHECKING:
    from headrace.dialects.tensor.meaning import Array

LISTED = 64
"""Most elements that a literal prints as a list; larger ones print as one hexadecimal string of their bytes."""

_CODES = {
    "f64": "d",
    "f32": "f",
    "f16": "e",
    "i1": "?",
    "i8": "b",
    "i16": "h",
    "i32": "i",
    "i64": "q",
    "ui8": "B",
    "ui16": "H",
    "ui32": "I",
    "ui64": "Q",
}


_F8_SIZES = [(x / 8 if x < 8 else 1 + x % 8 / 8) * 2.0 ** (max(x // 8, 1) - 7) for x in range(127)]
"""The numbers that f8e4m3 has from 0 up, by their bits."""
_F8 = [sign * x for sign in (1, -1) for x in (*_F8_SIZES, nan)]


def _f8(value: float) -> int:
    """The bits of a number in f8e4m3, rounded to nearest even; what rounds beyond 448 is a NaN."""
    size, sign = abs(value), 128 * (copysign(1, value) < 0)
    if not size <= 464:
        return sign | 127
    above = bisect_left(_F8_SIZES, size)
    if above < len(_F8_SIZES) and _F8_SIZES[above] == size:
        return sign | above
    low, high = _F8_SIZES[above - 1], _F8_SIZES[above] if above < 127 else 480.0
    nearer = above - 1 if size - low < high - size else above
    return sign | (nearer if size - low != high - size else above - above % 2)


def _pack(dtype: str, value: int | float | bool) -> bytes:
    """The little-endian bytes of one element."""
    if dtype == "bf16":
        (bits,) = struct.unpack("<I", struct.pack("<f", value))
        if value == value:  # round to nearest even; a NaN keeps its upper half
            bits += 0x7FFF + (bits >> 16 & 1)
        return struct.pack("<H", bits >> 16)
    if dtype == "f8e4m3":
        return bytes([_f8(float(value))])
    if dtypes.is_float(dtype):
        return struct.pack("<" + _CODES[dtype], float(value))
    return struct.pack("<" + _CODES[dtype], value)


def _unpack(dtype: str, data: bytes) -> list[int | float | bool]:
    if dtype == "f8e4m3":
        return [_F8[byte] for byte in data]
    if dtype == "bf16":
        halves = struct.unpack(f"<{len(data) // 2}H", data)
        return [struct.unpack("<f", struct.pack("<I", half << 16))[0] for half in halves]
    return list(struct.unpack(f"<{len(data) // dtypes.byte_size(dtype)}{_CODES[dtype]}", data))


@irdl_attr_definition
class LiteralAttr(ParametrizedAttribute):
    """The elements of a small tensor: little-endian bytes in row-major order, an i1 in a whole byte. A tensor whose
    elements are equal holds one of them, whatever its size.

        #tensor.literal<[[1, 2], [3, 4]] : tensor<2x2xi32>>   #tensor.literal<1.0 : tensor<64x64xf32>>
    """

    name = "tensor.literal"
    type: TensorType[Attribute] = param_def(TensorType.constr(AnyAttr()))
    data: BytesAttr = param_def()

    @staticmethod
    def of(type: TT, data: bytes) -> LiteralAttr:
        """A literal from all of its bytes, or those of one element that all share."""
        size = dtypes.byte_size(type.dtype)
        if len(data) > size and data == data[:size] * (len(data) // size):
            data = data[:size]
        return LiteralAttr(ir_type(type), BytesAttr(data))

    @staticmethod
    def filled(type: TT, value: int | float | bool) -> LiteralAttr:
        """A literal whose elements all are `value`."""
        return LiteralAttr(ir_type(type), BytesAttr(_pack(type.dtype, value) if type.elements else b""))

    @staticmethod
    def from_array(array: Array) -> LiteralAttr:
        """A literal with the elements of an array."""
        type = TT(tuple(array.shape), dtypes.from_numpy(array.dtype))
        if array.dtype.byteorder == ">":
            array = array.astype(array.dtype.newbyteorder("<"))
        return LiteralAttr.of(type, array.tobytes())

    def tt(self) -> TT:
        """Its tensor type."""
        return tt(self.type)

    @property
    def is_splat(self) -> bool:
        """Whether all elements are equal (one is held)."""
        return len(self.data.data) == dtypes.byte_size(self.tt().dtype)

    def values(self) -> list[int | float | bool]:
        """The elements held, in row-major order: one when all are equal."""
        return _unpack(self.tt().dtype, self.data.data)

    def array(self) -> Array:
        """The elements as a read-only array; equal ones share memory."""
        import numpy as np

        type = self.tt()
        held = np.frombuffer(self.data.data, dtypes.to_numpy(type.dtype))
        return np.broadcast_to(held.reshape(()), type.shape) if self.is_splat else held.reshape(type.shape)

    def verify(self) -> None:
        try:
            type = self.tt()
        except ShapeError as error:
            raise VerifyException(f"tensor.literal: {error}") from None
        size, held = dtypes.byte_size(type.dtype), len(self.data.data)
        if held != type.elements * size and not (held == size and type.elements):
            raise VerifyException(f"tensor.literal: {type} takes {type.elements * size} bytes, found {held}")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            body: _Body = b""
            if parser.parse_optional_punctuation(":") is None:
                body = _parse_body(parser)
                parser.parse_punctuation(":")
            literal = _finish(parser, body)
        return [literal.type, literal.data]

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            self.print_body(printer)
            printer.print_string(" : ")
            printer.print_attribute(self.type)

    def print_body(self, printer: Printer) -> None:
        """Print the elements: a number, nested lists, a string of bytes, or nothing when there is none."""
        type, data = self.tt(), self.data.data
        element = dtypes.to_ir(type.dtype)
        size = dtypes.byte_size(type.dtype)

        def number(at: int) -> None:
            value = values[at]
            if not dtypes.is_float(type.dtype):
                printer.print_string(str(value).lower())
            elif isfinite(value):
                printer.print_float(value, element)  # pyright: ignore[reportArgumentType]
            else:
                bits = int.from_bytes(data[at * size : (at + 1) * size], "little")
                printer.print_string(f"0x{bits:0{2 * size}X}")

        def nested(numbers: Sequence[int], shape: Sequence[int]) -> None:
            with printer.in_square_brackets():
                if len(shape) == 1:
                    printer.print_list(numbers, number)
                else:
                    step = len(numbers) // shape[0]
                    parts = [numbers[i : i + step] for i in range(0, len(numbers), step)]
                    printer.print_list(parts, lambda part: nested(part, shape[1:]))

        if not data:
            return
        if type.elements > LISTED and not self.is_splat:
            printer.print_string_literal(f"0x{data.hex().upper()}")
            return
        values = self.values()
        if self.is_splat:
            number(0)
        else:
            nested(range(type.elements), type.shape)


_Body = tuple[list[tuple[Any, str]], tuple[int, ...]] | bytes


def _parse_body(parser: AttrParser) -> _Body:
    """Elements with their source text and the shape they are nested in (() for a single one), or raw bytes."""
    string = parser.parse_optional_str_literal()
    if string is not None:
        try:
            return bytes.fromhex(string.removeprefix("0x"))
        except ValueError:
            parser.raise_error("expected hexadecimal digits in the bytes of a literal")
    values: list[tuple[Any, str]] = []

    def nested() -> tuple[int, ...]:
        if parser.parse_optional_punctuation("[") is None:
            start = parser.pos
            value = parser.parse_optional_boolean()
            if value is None:
                value = parser.parse_number()
            values.append((value, parser.lexer.input.content[start : parser.pos].strip()))
            return ()
        if parser.parse_optional_punctuation("]") is not None:
            return (0,)
        shapes = parser.parse_comma_separated_list(parser.Delimiter.NONE, nested)
        parser.parse_punctuation("]")
        if len(set(shapes)) > 1:
            parser.raise_error("the lists of a literal differ in length")
        return (len(shapes), *shapes[0])

    return values, nested()


def _finish(parser: AttrParser, body: _Body) -> LiteralAttr:
    """Parse the type and fit the elements to it."""
    start = parser.pos
    try:
        type = tt(parser.parse_type())
    except ShapeError as error:
        parser.raise_error(str(error), start, parser.pos)
    if isinstance(body, bytes):
        size = dtypes.byte_size(type.dtype)
        if len(body) != type.elements * size and not (len(body) == size and type.elements):
            parser.raise_error(f"{type} takes {type.elements * size} bytes, found {len(body)}", start, parser.pos)
        return LiteralAttr.of(type, body)
    values, shape = body
    if shape not in ((), type.shape):
        parser.raise_error(f"elements are nested as {list(shape)} but the type is {type}", start, parser.pos)
    try:
        data = b"".join(_element(type.dtype, value, source) for value, source in values)
    except (struct.error, OverflowError, TypeError):
        parser.raise_error(f"an element does not fit {type.dtype}", start, parser.pos)
    return LiteralAttr.of(type, data)


def _element(dtype: str, value: Any, source: str) -> bytes:
    if dtypes.is_float(dtype) and source.startswith("0x"):
        return int(source, 16).to_bytes(dtypes.byte_size(dtype), "little")  # bits of an infinity or a NaN
    if source.startswith("-0x") or (dtype == "i1" and value not in (0, 1, True, False)):
        raise TypeError
    return _pack(dtype, value)


class Storage(TensorOp):
    """An op without operands that gives a tensor of a written type."""

    result = result_def(AnyTensor)
    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(Pure())

    def tt(self) -> TT:
        """Type of the result."""
        return tt(self.result)


def _known_type(op: Operation, value: SSAValue) -> TT:
    try:
        return tt(value)
    except ShapeError as error:
        raise VerifyException(f"{op.name}: {error}") from None


@irdl_op_definition
class WeightOp(Storage):
    """The weight that the model's store, or a `tensor.recipe` of the module, has under `key`.

        %0 = tensor.weight "encoder.0.query.weight" : tensor<768x768xf32>

    Refused: an empty key; a type other than the recipe's.
    """

    name = "tensor.weight"
    key = prop_def(StringAttr)
    assembly_format = "$key attr-dict `:` type($result)"

    def verify_(self) -> None:
        _known_type(self, self.result)
        if not self.key.data:
            raise VerifyException("tensor.weight: the key is empty")


@irdl_op_definition
class ConstantOp(Storage):
    """A small tensor held in the program. Large ones are weights.

        %0 = tensor.constant dense<[1, 2, 3]> : tensor<3xi64>
        %1 = tensor.constant dense<0.0> : tensor<64x64xf32>

    One element stands for all; floats may be written as their bits (`0x7F800000`). Refused: elements that do not fit
    the type.
    """

    name = "tensor.constant"
    value = prop_def(LiteralAttr)

    def array(self) -> Array:
        """The elements as a read-only array."""
        return self.value.array()

    def verify_(self) -> None:
        if self.value.type != self.result.type:
            raise VerifyException(
                f"tensor.constant: result type is {self.result.type} but the elements are {self.value.type}"
            )

    @classmethod
    def parse(cls, parser: Parser) -> ConstantOp:
        parser.parse_keyword("dense")
        parser.parse_punctuation("<")
        body: _Body = b""
        if parser.parse_optional_punctuation(">") is None:
            body = _parse_body(parser)
            parser.parse_punctuation(">")
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        literal = _finish(parser, body)
        return cls.create(result_types=[literal.type], properties={"value": literal}, attributes=attributes)

    def print(self, printer: Printer) -> None:
        printer.print_string(" dense")
        with printer.in_angle_brackets():
            self.value.print_body(printer)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.result.type)


@irdl_op_definition
class YieldOp(TensorOp):
    """Ends a recipe: the value that it gives.

        tensor.yield %0 : tensor<3xf32>

    Refused: the type is no tensor with an element type of ours.
    """

    name = "tensor.yield"
    VERIFIES_ALONE: ClassVar[bool] = False
    value = operand_def(AnyTensor)
    traits = traits_def(IsTerminator(), Pure())
    assembly_format = "$value attr-dict `:` type($value)"

    def verify_(self) -> None:
        _known_type(self, self.value)


@irdl_op_definition
class RecipeOp(TensorOp):
    """A derived weight: `tensor.weight` of its key is what the body yields. The body is evaluated once, when the
    artifact is written; it may use other weights and recipes.

        tensor.recipe @"query.weight.transposed" {
          %0 = tensor.weight "query.weight" : tensor<4x2xf32>
          %1 = tensor.transpose %0 {perm = array<i64: 1, 0>} : tensor<4x2xf32> -> tensor<2x4xf32>
          tensor.yield %1 : tensor<2x4xf32>
        }

    Refused: ops of other dialects, recipes that need one another in a circle, two recipes of one key, a weight of
    another type than its recipe gives.
    """

    name = "tensor.recipe"
    VERIFIES_ALONE: ClassVar[bool] = False
    sym_name = prop_def(SymbolNameConstraint())
    body = region_def("single_block")
    traits = traits_def(SymbolOpInterface(), IsolatedFromAbove())
    assembly_format = "$sym_name attr-dict-with-keyword $body"

    @property
    def key(self) -> str:
        """The key it defines."""
        return self.sym_name.data

    @property
    def value(self) -> SSAValue:
        """What its body yields."""
        last = self.body.block.last_op
        assert isinstance(last, YieldOp), "verified"
        return last.value

    def tt(self) -> TT:
        """Type of the weight it defines."""
        return tt(self.value)

    def weights(self) -> Iterator[WeightOp]:
        """The weights its body uses."""
        return (op for op in self.body.block.ops if isinstance(op, WeightOp))

    def verify_(self) -> None:
        block = self.body.block
        if block.args:
            raise VerifyException("tensor.recipe: the body takes no arguments")
        if not isinstance(block.last_op, YieldOp):
            raise VerifyException("tensor.recipe: the body ends in tensor.yield")
        for op in block.ops:
            if not op.name.startswith("tensor.") or isinstance(op, RecipeOp):
                raise VerifyException(f"tensor.recipe: {op.name} is not a tensor op")
        # The recipes of a module are checked together, once, by the first of them.
        module = self.parent_op()
        if isinstance(module, ModuleOp) and next(_recipes(module)) is self:
            try:
                order(module)
            except CompileError as error:
                raise VerifyException(f"tensor.recipe: {error.what}") from None


def _recipes(module: ModuleOp) -> Iterator[RecipeOp]:
    return (op for op in module.body.block.ops if isinstance(op, RecipeOp))


def recipes(module: ModuleOp) -> dict[str, RecipeOp]:
    """The recipes of a module by key."""
    return {op.key: op for op in _recipes(module)}


def order(module: ModuleOp) -> list[RecipeOp]:
    """The recipes of a module, each after those it uses. `CompileError` on a circle, on two recipes of one key and on a
    weight whose type is not its recipe's."""
    table: dict[str, RecipeOp] = {}
    for op in _recipes(module):
        if op.key in table:
            raise CompileError("duplicate-recipe", f"two recipes define '{op.key}'", location=text(op.location))
        table[op.key] = op
    for op in module.walk():
        if isinstance(op, WeightOp) and op.key.data in table:
            wanted = table[op.key.data].value.type
            if op.result.type != wanted:
                raise CompileError(
                    "recipe-type",
                    f"weight '{op.key.data}' has type {op.result.type} but its recipe gives {wanted}",
                    location=text(op.location),
                )
    done: dict[str, RecipeOp] = {}
    for root in table:
        path: dict[str, Iterator[WeightOp]] = {}
        pending = [root]
        while pending:
            key = pending[-1]
            if key in done:
                pending.pop()
                continue
            uses = path.setdefault(key, table[key].weights())
            needed = next((w.key.data for w in uses if w.key.data in table and w.key.data not in done), None)
            if needed is None:
                done[key] = table[key]
                del path[key]
                pending.pop()
            elif needed in path:
                circle = [*list(path)[list(path).index(needed) :], needed]
                raise CompileError(
                    "recipe-circle",
                    f"recipes need one another: {' -> '.join(circle)}",
                    location=text(table[needed].location),
                )
            else:
                pending.append(needed)
    return list(done.values())


def weight_types(module: ModuleOp) -> dict[str, TT]:
    """The types of the weights that a module asks a store for (those of no recipe), in order of first use."""
    derived = recipes(module)
    found: dict[str, TT] = {}
    for op in module.walk():
        if isinstance(op, WeightOp) and op.key.data not in derived:
            found.setdefault(op.key.data, op.tt())
    return found


def weight(key: str, type: TT, location: Location | None = None) -> WeightOp:
    """A `tensor.weight`."""
    return make(WeightOp, (), [ir_type(type)], {"key": string(key)}, location)


def constant(value: Array | LiteralAttr, location: Location | None = None) -> ConstantOp:
    """A `tensor.constant` of an array's elements, or of a literal."""
    literal = value if isinstance(value, LiteralAttr) else LiteralAttr.from_array(value)
    return make(ConstantOp, (), [literal.type], {"value": literal}, location)


def filled(type: TT, value: int | float | bool, location: Location | None = None) -> ConstantOp:
    """A `tensor.constant` whose elements all are `value`."""
    return constant(LiteralAttr.filled(type, value), location)


def recipe(key: str, ops: Sequence[Operation], value: SSAValue, location: Location | None = None) -> RecipeOp:
    """A `tensor.recipe` whose body is `ops` (detached, in order) and yields `value`."""
    last = YieldOp.create(operands=[value])
    last.location = location if location is not None else UnknownLoc()
    body = Region(Block([*ops, last]))
    op = RecipeOp.create(properties={"sym_name": StringAttr(key)}, regions=[body])
    op.location = location if location is not None else UnknownLoc()
    return op


def constant_array(value: SSAValue) -> Array | None:
    """The elements of a value that is a `tensor.constant`, else None."""
    op = value.owner
    return op.array() if isinstance(op, ConstantOp) else None


OPS = [WeightOp, ConstantOp, RecipeOp, YieldOp]
ATTRIBUTES = [LiteralAttr]
