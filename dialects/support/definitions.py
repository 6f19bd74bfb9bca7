"""Definitions of ops that a program has thousands of, verified in a fraction of the time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from xdsl.ir import Attribute
from xdsl.irdl import (
    AnyAttr,
    AttrConstraint,
    BaseAttr,
    IRDLOperation,
    MessageConstraint,
    OptPropertyDef,
    ParamAttrConstraint,
    irdl_op_definition,
)
from xdsl.irdl.constraints import VerificationContext
from xdsl.utils.exceptions import VerifyException

Op = TypeVar("Op", bound=IRDLOperation)
Fits = Callable[[Attribute], bool]


def properties_op_definition(cls: type[Op]) -> type[Op]:
    """`irdl_op_definition` for ops that hold properties and nothing else. Its checks, made once into questions of what
    class an attribute has, are gone through; only an op that does not pass them is verified by xDSL, which says why."""
    rules = cls.verify_
    cls = irdl_op_definition(cls)
    definition = cls.get_irdl_definition()
    if definition.operands or definition.results or definition.regions or definition.successors:
        raise TypeError(f"{cls.__name__} holds more than properties")
    if definition.attributes:
        raise TypeError(f"{cls.__name__} has attributes that it defines")
    table = [(name, _fits(one.constr), isinstance(one, OptPropertyDef)) for name, one in definition.properties.items()]
    traits = tuple(definition.traits)

    def is_sound(op: Op) -> bool:
        if op.operands or op.results or op.regions or op.successors:
            return False
        given = op.properties
        found = 0
        for name, fits, optional in table:
            attribute = given.get(name)
            if attribute is None:
                if not optional:
                    return False
            elif fits(attribute):
                found += 1
            else:
                return False
        return found == len(given)

    def verify_(self: Op) -> None:
        if is_sound(self):
            for trait in traits:
                trait.verify(self)
        else:
            definition.verify(self)
        rules(self)

    cls.verify_ = verify_
    return cls


def _fits(constraint: AttrConstraint[Any]) -> Fits:
    """Whether an attribute satisfies a constraint that stands alone."""
    if constraint.variables():
        raise TypeError(f"{constraint} does not stand alone")
    if type(constraint) is MessageConstraint:
        return _fits(constraint.constr)
    if type(constraint) is AnyAttr:
        return lambda attribute: True
    if type(constraint) is BaseAttr:
        cls: Any = constraint.attr
        return lambda attribute: isinstance(attribute, cls)
    if type(constraint) is ParamAttrConstraint:
        base: Any = cast(Any, constraint).base_attr
        names = [name for name, _ in base.get_irdl_definition().parameters]
        parts = [(n, _fits(c)) for n, c in zip(names, constraint.param_constrs, strict=True) if type(c) is not AnyAttr]

        def each(attribute: Attribute) -> bool:
            if not isinstance(attribute, base):
                return False
            for name, fits in parts:  # noqa: SIM110 - a generator costs more than the loop
                if not fits(getattr(attribute, name)):
                    return False
            return True

        return each

    last: list[Attribute | None] = [None]  # often the very same, and attributes never change

    def other(attribute: Attribute) -> bool:
        if attribute is last[0]:
            return True
        try:
            constraint.verify(attribute, VerificationContext())
        except VerifyException:
            return False
        last[0] = attribute
        return True

    return other
