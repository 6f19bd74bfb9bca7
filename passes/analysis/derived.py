"""Names for values computed from weights alone: the keys of derived weights.

A key reads as a chain from the first weight on: `wte|transpose`, `b|reshape(1x768)`, `w|mul(0.125)`,
`q|concat(k,v;axis=0)`. It depends on nothing but what is computed, so that equal values have equal keys in every
module.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from hashlib import sha256
from typing import Any

from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Operation, OpResult, SSAValue

from headrace.dialects.support import dtypes
from headrace.dialects.support.journal import count
from headrace.dialects.tensor.base import attributes_of, tt
from headrace.dialects.tensor.shapes import TT
from headrace.dialects.tensor.storage import ConstantOp, LiteralAttr, RecipeOp, WeightOp, recipes

LONGEST = 120  # characters of a key; a longer one is cut and gets a digest
DIGEST = 10


def bytes_of(type: TT) -> int:
    """Size of a tensor in memory."""
    return type.elements * dtypes.byte_size(type.dtype)


def key(value: SSAValue) -> str:
    """The key of a value computed from weights and constants alone."""
    text = _text(value, {})
    return text if len(text) <= LONGEST else f"{text[: LONGEST - DIGEST - 1]}#{digest(text)}"


def digest(text: str) -> str:
    """A short digest that makes a key unique."""
    return sha256(text.encode()).hexdigest()[:DIGEST]


def _text(value: SSAValue, known: dict[SSAValue, str]) -> str:
    found = known.get(value)
    if found is None:
        found = known[value] = _spelt(value, known)
    return found


def _spelt(value: SSAValue, known: dict[SSAValue, str]) -> str:
    assert isinstance(value, OpResult), "only ops make derived values"
    op = value.op
    if isinstance(op, WeightOp):
        return op.key.data
    if isinstance(op, ConstantOp):
        return _literal(op)
    name = op.name.removeprefix("tensor.")
    first, *others = [_text(operand, known) for operand in op.operands] or [""]
    arguments = ",".join(f"[{x}]" if "|" in x or "," in x else x for x in others)
    attrs = _attributes(name, attributes_of(op), op)
    inside = ";".join(x for x in (arguments, attrs) if x)
    part = f"[{value.index}]" if len(op.results) > 1 else ""
    link = "|" if first else ""
    return f"{first}{link}{name}{f'({inside})' if inside else ''}{part}"


def _literal(op: ConstantOp) -> str:
    literal = op.value
    if literal.is_splat:
        shape = "x".join(map(str, literal.tt().shape))
        return _number(literal) + (f":{shape}" if shape else "")
    return "#" + digest(f"{literal.tt()}{literal.data.data.hex()}")


def _number(literal: LiteralAttr) -> str:
    """The shortest text that reads back as the element of a splat."""
    value, type = literal.values()[0], literal.tt()
    if isinstance(value, float):
        for digits in range(1, 17):
            text = f"{value:.{digits}g}"
            with suppress(OverflowError):  # rounded to more than the type holds
                if LiteralAttr.filled(TT((), type.dtype), float(text)).data == literal.data:
                    return text
    return repr(value)


def _attributes(name: str, attrs: Mapping[str, Any], op: Operation) -> str:
    if name == "transpose":
        perm = attrs["perm"]
        return "" if tuple(perm) == tuple(reversed(range(len(perm)))) else ",".join(map(str, perm))
    if name in ("reshape", "broadcast"):
        return "x".join(map(str, attrs["shape"]))
    if name == "cast":
        return str(attrs["to"])
    if name == "slice":
        shape = tt(op.operands[0]).shape
        bounds = zip(attrs["starts"], attrs["stops"], attrs["steps"], shape, strict=True)
        return ",".join(_bounds(*x) for x in bounds)
    return ",".join(f"{k}={_value(v)}" for k, v in sorted(attrs.items()))


def _bounds(start: int, stop: int, step: int, size: int) -> str:
    if step == 1:
        return ":" if (start, stop) == (0, size) else f"{start}:{stop}"
    return f"{start}:{stop}:{step}"


def _value(value: Any) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


class Keys:
    """The keys of a module that are taken."""

    def __init__(self, module: ModuleOp) -> None:
        self.module = module

    @cached_property
    def recipes(self) -> dict[str, RecipeOp]:
        """The recipes of the module, those that are added included."""
        return recipes(self.module)

    @cached_property
    def weights(self) -> set[str]:
        """Keys of the weights that no recipe makes."""
        return {op.key.data for op in self.module.walk() if type(op) is WeightOp} - self.recipes.keys()

    def add(self, made: RecipeOp, before: Operation) -> str:
        """Put a recipe in front of an op of the module, unless it is there; the key under which it is."""
        name = made.key
        while not self._free_for(name, made):
            name = f"{name}#{digest(name)}"
        if name not in self.recipes:
            made.sym_name = StringAttr(name)
            self.recipes[name] = made
            self.module.body.block.insert_op_before(made, before)
            count("bytes of derived weights", bytes_of(made.tt()))
        return name

    def _free_for(self, name: str, made: RecipeOp) -> bool:
        """Whether a key is free, or taken by a recipe of the same value."""
        there = self.recipes.get(name)
        if there is not None:
            return there.body.is_structurally_equivalent(made.body)
        return name not in self.weights
