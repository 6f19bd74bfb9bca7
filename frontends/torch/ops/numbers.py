"""Python numbers that are computed from tensors (`x.max().item() + 1`).

A number is a tensor without dims: integers are i64, floats f64, as Python has them, truth values i1. Where Python would
raise, as in a division by zero, the result is that of the element type.
"""

from __future__ import annotations

from headrace.dialects.support import dtypes
from headrace.frontends.building import Refused, Value
from headrace.frontends.torch.node import Node
from headrace.frontends.torch.ops import converts
from headrace.frontends.torch.ops.elementwise import COMPARE

ARITHMETIC = {"add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "sym_max": "max", "sym_min": "min"}
LOGIC = {"and_": "and", "or_": "or"}


def _number(n: Node, name: str) -> Value:
    """An operand as Python has it."""
    x = n.get(name)
    if isinstance(x, bool):
        return n.scalar(x, "i1")
    if isinstance(x, int | float):
        return n.scalar(x, "i64" if isinstance(x, int) else "f64")
    if not isinstance(x, Value):
        raise Refused(f"{x!r} is no number", code="bad-node")
    if x.dtype == "i1":
        return x
    return n.cast(x, "f64" if dtypes.is_float(x.dtype) else "i64")


def _pair(n: Node, names: tuple[str, str] = ("0", "1"), *, least: str = "i1") -> tuple[Value, Value]:
    """Two operands in the wider of their types."""
    order = ("i1", "i64", "f64")
    x, y = (_number(n, name) for name in names)
    wide = max(x.dtype, y.dtype, least, key=order.index)
    return n.cast(x, wide), n.cast(y, wide)


@converts(*(f"_operator.{name}" for name in ("add", "sub", "mul", "truediv")), "torch.sym_max", "torch.sym_min")
def _arithmetic(n: Node) -> Value:
    least = "f64" if n.stem == "truediv" else "i64"
    return n.op(ARITHMETIC[n.stem], *_pair(n, least=least))


@converts("_operator.neg")
def _neg(n: Node) -> Value:
    x = _number(n, "0")
    return n.op("neg", n.cast(x, "i64") if x.dtype == "i1" else x)


@converts(*(f"_operator.{name}" for name in COMPARE))
def _compare(n: Node) -> Value:
    return n.op(COMPARE[n.stem], *_pair(n, least="i64"))


@converts(*(f"_operator.{name}" for name in LOGIC))
def _logic(n: Node) -> Value:
    return n.op(LOGIC[n.stem], *_pair(n))


@converts("torch.sym_not")
def _not(n: Node) -> Value:
    return n.op("not", _number(n, "0"))


@converts("torch.sym_float")
def _float(n: Node) -> Value:
    return n.cast(_number(n, "0"), "f64")


@converts("torch.sym_ite")
def _choice(n: Node) -> Value:
    return n.op("select", _number(n, "0"), *_pair(n, ("1", "2")))
