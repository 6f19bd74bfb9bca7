"""The tensor level: whole tensors, value semantics, static shapes.

`Tensor` is the dialect; `create(name, operands, attrs, location)` builds any op. Both load the op classes on first use,
so that `headrace.dialects.tensor.meaning` and `.shapes` can be used without the IR.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xdsl.ir import Dialect

    from headrace.dialects.tensor.base import TensorOp, attributes_of, create, ir_type, tt

    Tensor: Dialect

__all__ = ["Tensor", "TensorOp", "attributes_of", "create", "ir_type", "op_class", "op_classes", "tt"]

FAMILIES = (
    "elementwise",
    "contraction",
    "reduction",
    "movement",
    "indexing",
    "random",
    "collective",
    "composite",
    "storage",
)


@cache
def op_classes() -> dict[str, type[Any]]:
    """Every op class of the dialect by op name: each family module lists its classes in `OPS`."""
    found: dict[str, type[Any]] = {}
    for family in FAMILIES:
        for cls in import_module(f"{__name__}.{family}").OPS:
            found[cls.name] = cls
    return found


def op_class(name: str) -> type[Any]:
    """The class of a tensor op; `ShapeError` when there is none of that name."""
    classes = op_classes()
    if name not in classes:
        from headrace.dialects.support.diagnostics import nearest
        from headrace.dialects.tensor.shapes import ShapeError

        raise ShapeError(f"no op {name}; {nearest(name, classes)}")
    return classes[name]


@cache
def _dialect() -> Dialect:
    from xdsl.ir import Dialect

    from headrace.dialects.tensor.storage import ATTRIBUTES

    return Dialect("tensor", list(op_classes().values()), list(ATTRIBUTES))


def __getattr__(name: str) -> Any:
    if name == "Tensor":
        return _dialect()
    if name in ("TensorOp", "attributes_of", "create", "ir_type", "tt"):
        return getattr(import_module(f"{__name__}.base"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
