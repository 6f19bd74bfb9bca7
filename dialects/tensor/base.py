"""The base of every tensor op: attributes as plain values, one verifier from the shape rules, one builder by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

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
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import AnyAttr, IRDLOperation
from xdsl.pattern_rewriter import RewritePattern
from xdsl.utils.exceptions import VerifyException

from headrace.dialects.support import dtypes
from headrace.dialects.support.locations import Location
from headrace.dialects.tensor import shapes
from headrace.dialects.tensor.shapes import TT, ShapeError

AnyTensor = TensorType.constr(AnyAttr())


def tt(value: SSAValue | Attribute) -> TT:
    """The plain tensor type of an SSA value or IR type; `ShapeError` when it is not a static tensor we know."""
    found = value.type if isinstance(value, SSAValue) else value
    seen = _seen.get(id(found))
    if seen is None or seen[0] is not found:
        if len(_seen) > 1 << 16:
            _seen.clear()
        seen = _seen[id(found)] = (found, _plain(found))
    return seen[1]


_seen: dict[int, tuple[Attribute, TT]] = {}
"""Types met, by identity (hashing a tensor type costs more than reading it); each entry keeps its type alive."""


def _plain(found: Attribute) -> TT:
    if not isinstance(found, TensorType):
        raise ShapeError(f"expected a tensor, found {found}")
    type = cast("TensorType[Attribute]", found)
    shape = type.get_shape()
    if any(n < 0 for n in shape):
        raise ShapeError(f"shapes are static in Headrace, found {type}")
    try:
        return TT(shape, dtypes.from_ir(type.get_element_type()))
    except KeyError:
        raise ShapeError(f"unsupported element type {type.get_element_type()}") from None


@lru_cache(maxsize=1 << 16)
def ir_type(type: TT) -> TensorType[Any]:
    """The IR tensor type of a plain one."""
    return TensorType(dtypes.to_ir(type.dtype), type.shape)


def to_attribute(value: Any) -> Attribute:
    """A plain attribute value as an IR attribute: bool → i1, int → i64, float → f64, str, tuple of int → array<i64>,
    tuple of float → array<f64>."""
    if isinstance(value, int | float | str | tuple):
        return _attribute(value, repr(value))  # 1, 1.0 and True are equal, their texts are not
    return _attribute.__wrapped__(value, "")


@lru_cache(maxsize=1 << 16)
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


@lru_cache(maxsize=1 << 16)
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


class TensorOp(IRDLOperation, HasCanonicalizationPatternsInterface):
    """An op on whole tensors with value semantics. Result types follow from operands and attributes by one rule
    (`shapes.infer`), which the verifier holds the written types against."""

    def attrs(self) -> dict[str, Any]:
        """Properties as plain Python values, defaults filled in."""
        return attributes_of(self)

    @classmethod
    def get_canonicalization_patterns(cls) -> tuple[RewritePattern, ...]:
        """The patterns registered for the op in `canonicalization`."""
        from headrace.dialects.tensor import canonicalization

        return canonicalization.patterns(cls.name)

    def verify_(self) -> None:
        try:
            expected = shapes.infer(self.name, self.attrs(), [tt(x) for x in self.operands])
            found = tuple(tt(x) for x in self.results)
        except ShapeError as error:
            raise VerifyException(f"{self.name}: {error}") from None
        if expected != found:
            wanted, have = ", ".join(map(str, expected)), ", ".join(map(str, found))
            raise VerifyException(f"{self.name}: result type is {have} but operands and attributes give {wanted}")


def attributes_of(op: Operation) -> dict[str, Any]:
    """Properties of a tensor op as plain values, defaults filled in."""
    values = {name: from_attribute(value) for name, value in op.properties.items()}
    for name, definition in type(op).get_irdl_definition().properties.items():  # pyright: ignore
        default = cast("Attribute | None", getattr(definition, "default_value", None))
        if name not in values and default is not None:
            values[name] = from_attribute(default)
    return values


def create(
    name: str,
    operands: Sequence[SSAValue],
    attrs: Mapping[str, Any] | None = None,
    location: Location | None = None,
) -> Operation:
    """A tensor op by name, its result types inferred. `ShapeError` when operands or attributes do not fit.

    `attrs` are plain values; those left out take the op's default.
    """
    from headrace.dialects.tensor import op_class

    cls = op_class(name)
    given = {key: to_attribute(value) for key, value in (attrs or {}).items()}
    properties: dict[str, Attribute] = {}
    plain: dict[str, Any] = {}
    for key, definition in cls.get_irdl_definition().properties.items():
        default = getattr(definition, "default_value", None)
        value = given.pop(key, default)
        if value is not None:
            properties[key] = value
            plain[key] = from_attribute(value)
    if given:
        raise ShapeError(f"{name} has no attribute {', '.join(sorted(given))}")
    types = shapes.infer(name, plain, [tt(x) for x in operands])
    op = cls.create(operands=list(operands), result_types=[ir_type(t) for t in types], properties=properties)
    op.location = location if location is not None else UnknownLoc()
    return op
