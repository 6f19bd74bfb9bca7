"""The base of every tensor op: attributes as plain values, one verifier from the shape rules, one builder by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, ClassVar, NamedTuple, TypeVar, cast

from xdsl.dialects import builtin
from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseArrayBase,
    FloatAttr,
    IntegerAttr,
    StringAttr,
    TensorType,
    UnknownLoc,
)
from xdsl.interfaces import HasCanonicalizationPatternsInterface
from xdsl.ir import Attribute, BlockArgument, Operation, OpResult, SSAValue, SSAValues, Use
from xdsl.irdl import AnyAttr, IRDLOperation
from xdsl.pattern_rewriter import RewritePattern
from xdsl.utils.exceptions import VerifyException

from headrace.dialects.support import dtypes
from headrace.dialects.support.attributes import MOST_REMEMBERED, by_identity
from headrace.dialects.support.diagnostics import nearest
from headrace.dialects.support.formats import LateFormat
from headrace.dialects.support.locations import Location
from headrace.dialects.tensor import op_class, shapes
from headrace.dialects.tensor.shapes import TT, ShapeError

AnyTensor = TensorType.constr(AnyAttr())


UNKNOWN = UnknownLoc()
OpT = TypeVar("OpT", bound=Operation)


def tt(value: SSAValue | Attribute) -> TT:
    """The plain tensor type of an SSA value or IR type; `ShapeError` when it is not a static tensor we know."""
    kind = type(value)  # asked first: isinstance of an abstract class is slow
    if kind is TensorType:
        return _plain(cast("Attribute", value))
    if kind is OpResult or kind is BlockArgument or isinstance(value, SSAValue):
        return _plain(cast("SSAValue", value).type)
    return _plain(value)


@by_identity
def _plain(found: Attribute) -> TT:
    if not isinstance(found, TensorType):
        raise ShapeError(f"expected a tensor, found {found}")
    type = cast("TensorType[Attribute]", found)
    shape = type.get_shape()
    if any(n < 0 for n in shape):
        raise ShapeError(f"shapes are static in Headrace, found {type}")
    try:
        return shapes.sized(TT(shape, dtypes.from_ir(type.get_element_type())))
    except KeyError:
        raise ShapeError(f"unsupported element type {type.get_element_type()}") from None


@lru_cache(maxsize=MOST_REMEMBERED)
def ir_type(type: TT) -> TensorType[Any]:
    """The IR tensor type of a plain one."""
    return TensorType(dtypes.to_ir(type.dtype), type.shape)


def to_attribute(value: Any) -> Attribute:
    """A plain attribute value as an IR attribute: bool → i1, int → i64, float → f64, str, tuple of int → array<i64>,
    tuple of float → array<f64>."""
    if type(value) in (bool, int, float, str, tuple):
        return _attribute(value, repr(value))  # 1, 1.0 and True are equal, their texts are not
    return _attribute.__wrapped__(value, "")


@lru_cache(maxsize=MOST_REMEMBERED)
def _attribute(value: Any, text: str) -> Attribute:
    match value:
        case Attribute():
            return value
        case bool():
            return IntegerAttr.from_bool(value)
        case int():
            return IntegerAttr(value, 64)
        case float():
            return FloatAttr(value, 64)
        case str():
            return StringAttr(value)
        case tuple() | list():
            items = cast("Sequence[Any]", value)
            if items and isinstance(items[0], float):
                return DenseArrayBase.from_list(builtin.f64, list(items))
            if items and isinstance(items[0], str):
                return ArrayAttr([StringAttr(x) for x in items])
            return DenseArrayBase.from_list(builtin.i64, [int(x) for x in items])
        case _:
            raise TypeError(f"no IR attribute for {value!r}")


@by_identity
def from_attribute(attribute: Attribute) -> Any:
    """The plain value of an IR attribute; attributes without one (types, dense constants) stay as they are."""
    match attribute:
        case IntegerAttr():
            value = attribute.value.data
            return bool(value) if attribute.type == builtin.i1 else value
        case FloatAttr():
            return attribute.value.data
        case StringAttr():
            return attribute.data
        case DenseArrayBase():
            return tuple(cast("DenseArrayBase[Any]", attribute).get_values())
        case ArrayAttr():
            return tuple(from_attribute(x) for x in attribute)
        case _:
            return attribute


def operands(op: Operation) -> tuple[SSAValue, ...]:
    """The operands of an op, to read: `op.operands` makes a view for writing first, at ten times the cost."""
    return op._operands  # pyright: ignore[reportPrivateUsage]


class TensorOp(LateFormat, HasCanonicalizationPatternsInterface):
    """An op on whole tensors with value semantics. Result types follow from operands and attributes by one rule
    (`shapes.infer`), which the verifier holds the written types against."""

    VERIFIES_ALONE: ClassVar[bool] = True
    """Whether the verifier looks at nothing but properties, attributes and types."""

    def attrs(self) -> dict[str, Any]:
        """Properties as plain Python values, defaults filled in."""
        return attributes_of(self)

    @classmethod
    def get_canonicalization_patterns(cls) -> tuple[RewritePattern, ...]:
        """The patterns registered for the op in `canonicalization`."""
        from headrace.dialects.tensor import canonicalization

        return canonicalization.patterns(cls.name)

    def verify_(self) -> None:
        if self.attributes:
            _refuse_unknown(self)
        try:
            expected = shapes.infer(self.name, self.attrs(), [tt(x) for x in operands(self)])
            found = tuple(tt(x) for x in self.results)
        except ShapeError as error:
            raise VerifyException(f"{self.name}: {error}") from None
        if expected != found:
            wanted, have = ", ".join(map(str, expected)), ", ".join(map(str, found))
            raise VerifyException(f"{self.name}: result type is {have} but operands and attributes give {wanted}")


def _refuse_unknown(op: TensorOp) -> None:
    """Refuse attributes that the op does not have; those of a dialect (`dialect.name`) may be on any op."""
    known = _properties(type(op))
    for name in op.attributes:
        if "." not in name:
            hint = nearest(name, known) if known else "it has none"
            raise VerifyException(f"{op.name}: there is no attribute '{name}'; {hint}")


def attributes_of(op: Operation) -> dict[str, Any]:
    """Properties of a tensor op as plain values, defaults filled in."""
    values = {name: from_attribute(value) for name, value in op.properties.items()}
    for name, default in _properties(cast("type[IRDLOperation]", type(op))).items():
        if default is not None and name not in values:
            values[name] = from_attribute(default)
    return values


@cache
def _properties(cls: type[IRDLOperation]) -> dict[str, Attribute | None]:
    """The properties of an op class in order, with their defaults."""
    return {name: getattr(x, "default_value", None) for name, x in cls.get_irdl_definition().properties.items()}


def create(
    name: str,
    operands: Sequence[SSAValue],
    attrs: Mapping[str, Any] | None = None,
    location: Location | None = None,
) -> Operation:
    """A tensor op by name, its result types inferred. `ShapeError` when operands or attributes do not fit.

    `attrs` are plain values; those left out take the op's default.
    """
    given = {key: to_attribute(value) for key, value in attrs.items()} if attrs else {}
    key = (name, *given, *map(id, given.values()), *[id(x.type) for x in operands])
    template = _templates.get(key)
    if template is None:
        if len(_templates) >= MOST_REMEMBERED:
            _templates.clear()
        template = _templates[key] = _template(name, given, operands)
    return make(template.cls, operands, template.types, template.properties.copy(), location)


class _Template(NamedTuple):
    """What `create` finds out for a name, attributes and operand types. It holds them, so that ids in keys of
    `_templates` stay theirs."""

    cls: type[TensorOp]
    properties: dict[str, Attribute]
    operands: tuple[Attribute, ...]
    types: tuple[Attribute, ...]


_templates: dict[tuple[str | int, ...], _Template] = {}


def _template(name: str, given: Mapping[str, Attribute], operands: Sequence[SSAValue]) -> _Template:
    cls = op_class(name)
    table = _properties(cls)
    unknown = sorted(given.keys() - table.keys())
    if unknown:
        raise ShapeError(f"{name} has no attribute {', '.join(unknown)}")
    found = {key: given.get(key, default) for key, default in table.items()}
    properties = {key: value for key, value in found.items() if value is not None}
    plain = {key: from_attribute(value) for key, value in properties.items()}
    types = tuple(ir_type(t) for t in shapes.infer(name, plain, [tt(x) for x in operands]))
    return _Template(cls, properties, tuple(x.type for x in operands), types)


def make(
    cls: type[OpT],
    operands: Sequence[SSAValue],
    types: Sequence[Attribute],
    properties: dict[str, Attribute],
    location: Location | None = None,
) -> OpT:
    """An op without regions and successors and with all of its properties, which it takes over. The same as
    `cls.create` makes, at a third of the cost: models have thousands."""
    op = cls.__new__(cls)
    uses = tuple([Use(op, i) for i in range(len(operands))])
    for value, use in zip(operands, uses, strict=True):
        value.add_use(use)
    op._operands = SSAValues(operands)  # pyright: ignore[reportPrivateUsage]
    op._operand_uses = uses  # pyright: ignore[reportPrivateUsage]
    op.results = SSAValues([OpResult(type, op, i) for i, type in enumerate(types)])
    op.properties, op.attributes = properties, {}
    op.location = UNKNOWN if location is None else location
    op.regions = ()
    return op
