"""Recognises composite ops in the chains of primitives that exporters write. Looks only; changes nothing.

Each recogniser starts at the op that gives the composite away (its *anchor*: the erf of a gelu, the square root of a
norm) and gives a `Chain`, or the reason why it is none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from xdsl.ir import Operation, SSAValue

from headrace.dialects.support import locations
from headrace.dialects.tensor.base import attributes_of, tt
from headrace.dialects.tensor.shapes import TT
from headrace.dialects.tensor.storage import ConstantOp, LiteralAttr, WeightOp

HALVES = ("f16", "bf16")
CLOSE = {"f64": 1e-6, "f32": 1e-6, "f16": 2e-3, "bf16": 1e-2}
"""How far a constant may be from the ideal one, relative: a few units in the last place of what exporters print."""
MOVES = ("tensor.reshape", "tensor.transpose", "tensor.broadcast", "tensor.slice")


@dataclass
class Chain:
    """A composite: what it is called, its operands (a literal stands for a constant to be made; a `Reshaped` for an
    operand in another shape) and attributes, the op whose result it gives, and the ops inside that go with it."""

    name: str
    operands: list[SSAValue | LiteralAttr | Reshaped]
    attrs: dict[str, Any]
    root: Operation
    inside: dict[Operation, None] = field(default_factory=dict[Operation, None])


@dataclass(frozen=True)
class Reshaped:
    """An operand that has to be given another shape."""

    value: SSAValue
    shape: tuple[int, ...]


Found = Chain | str
Ops = dict[Operation, None]


def recognise(op: Operation) -> Found | None:
    """The composite whose anchor `op` is, or why it is none; None when the op is no anchor of anything."""
    if op.name not in _ANCHORS:
        return None
    found = _ANCHORS[op.name][1](op)
    return _closed(found) if isinstance(found, Chain) else found


def _closed(chain: Chain) -> Found:
    """Nothing inside may be needed by others, and the result must have the type that the composite gives."""
    chain.inside.pop(chain.root, None)
    for op in chain.inside:
        for result in op.results:
            for use in result.uses:
                if use.operation is not chain.root and use.operation not in chain.inside:
                    return f"{_at(op)} inside the chain has another user, {_at(use.operation)}"
    first = chain.operands[0]
    if isinstance(first, SSAValue) and first.type != chain.root.results[0].type:
        return "a constant or weight of the chain broadcasts its result to another shape"
    return chain


# Reasons


def _at(op: Operation) -> str:
    """An op as reasons name it: by name and model location."""
    where = locations.text(op.location)
    return f"{op.name} at {where}" if where else op.name


def _readers(value: SSAValue) -> str:
    """Who reads a value."""
    users = list(dict.fromkeys(use.operation for use in value.uses))
    shown = ", ".join(map(_at, users[:3])) + (f" and {len(users) - 3} more" if len(users) > 3 else "")
    op = value.owner
    what = _at(op) if isinstance(op, Operation) else "the value"
    return f"{what} is read by {shown}" if users else f"{what} is read by nothing"


# Values


def _producer(value: SSAValue, name: str) -> Operation | None:
    op = value.owner
    return op if isinstance(op, Operation) and op.name == name else None


def _scalar(value: SSAValue) -> float | None:
    op = value.owner
    if isinstance(op, ConstantOp) and op.value.is_splat:
        return float(op.value.values()[0])
    return None


def _close(found: float, wanted: float, value: SSAValue) -> bool:
    return math.isclose(found, wanted, rel_tol=CLOSE.get(tt(value).dtype, 0.0))


def _user(value: SSAValue) -> Operation | None:
    return value.get_user_of_unique_use()


def _other(op: Operation, value: SSAValue) -> SSAValue:
    """The operand of a binary op that is not `value`."""
    left, right = op.operands
    return right if left is value else left


def _parameter(value: SSAValue) -> bool:
    """Whether a value is an argument or a weight, or a view of one."""
    op = value.owner
    if not isinstance(op, Operation) or isinstance(op, WeightOp | ConstantOp):
        return True
    return op.name in MOVES and all(_parameter(x) for x in op.operands)


# Gates: x times a function of x


def polynomial(value: SSAValue, x: SSAValue, inside: Ops) -> dict[int, float] | None:
    """`value` as a polynomial in `x`, power to coefficient, or None; the ops that compute it are added to `inside`."""
    if value is x:
        return {1: 1.0}
    number = _scalar(value)
    if number is not None:
        return {0: number}
    op = value.owner
    if not isinstance(op, Operation) or len(op.operands) > 2 or len(inside) > 16:
        return None
    kind = op.name.removeprefix("tensor.")
    if kind not in ("add", "sub", "mul", "div", "neg", "pow"):
        return None
    terms = [polynomial(operand, x, inside) for operand in op.operands]
    left = terms[0]
    right = terms[-1]
    if left is None or right is None:
        return None
    inside[op] = None
    if kind in ("add", "sub"):
        sign = 1.0 if kind == "add" else -1.0
        return _pruned({k: left.get(k, 0.0) + sign * right.get(k, 0.0) for k in sorted({*left, *right})})
    if kind == "neg":
        return {k: -c for k, c in left.items()}
    if kind == "mul":
        return _product(left, right)
    if set(right) != {0} or right[0] == 0.0:
        return None
    if kind == "div":
        return {k: c / right[0] for k, c in left.items()}
    if right[0] not in (2.0, 3.0):
        return None
    square = _product(left, left)
    return square if right[0] == 2.0 or square is None else _product(square, left)


def _product(left: dict[int, float], right: dict[int, float]) -> dict[int, float] | None:
    found: dict[int, float] = {}
    for i, a in left.items():
        for j, b in right.items():
            found[i + j] = found.get(i + j, 0.0) + a * b
    return _pruned(found) if max(found, default=0) <= 3 else None


def _pruned(found: dict[int, float]) -> dict[int, float]:
    return {k: c for k, c in found.items() if c != 0.0}


def _multiples(value: SSAValue) -> list[SSAValue]:
    """`value`, and what it is a constant multiple of, nearest first."""
    found = [value]
    while isinstance(op := value.owner, Operation) and op.name in ("tensor.mul", "tensor.div", "tensor.neg"):
        left, right = op.operands[0], op.operands[-1]
        if op.name == "tensor.neg" or _scalar(right) is not None:
            value = left
        elif op.name == "tensor.mul" and _scalar(left) is not None:
            value = right
        else:
            break
        found.append(value)
    return found


def _gated(anchor: Operation, wanted: dict[int, float], name: str, attrs: dict[str, Any]) -> Found:
    """x·(½ + ½·g(p(x))), in any order and association: from g upwards, the value is (a + b·g)·x^n times constants."""
    inside: Ops = {anchor: None}
    value, a, b = anchor.results[0], 0.0, 1.0
    x: SSAValue | None = None
    while True:
        op = _user(value)
        if op is None:
            return f"the chain ends before it is x·(1 + …)/2: {_readers(value)}"
        other = _other(op, value) if len(op.operands) == 2 else value
        number = _scalar(other)
        kind = op.name.removeprefix("tensor.")
        if kind == "mul" and number is not None:
            a, b = a * number, b * number
        elif kind == "div" and number and op.operands[0] is value:
            a, b = a / number, b / number
        elif kind == "add" and number is not None and x is None:
            a += number
        elif kind == "mul" and x is None:
            for candidate in _multiples(other):
                tried: Ops = {}
                found = polynomial(anchor.operands[0], candidate, tried)
                factor = polynomial(other, candidate, tried)
                if found is not None and factor is not None and set(found) == set(wanted):
                    break
            else:
                return f"the other factor of {_at(op)} is not the value that {anchor.name} is applied to"
            wrong = next((k for k in wanted if not _close(found[k], wanted[k], candidate)), None)
            if wrong is not None:
                of = "x" if wrong == 1 else f"x^{wrong}"
                return (
                    f"the constants inside {anchor.name} are not those of {name}: "
                    f"{found[wrong]:.9g}·{of}, not {wanted[wrong]:.9g}·{of}"
                )
            x, a, b = candidate, a * factor[1], b * factor[1]
            inside |= tried
        elif kind == "add" and x is not None:
            term = polynomial(other, x, inside)
            if term is None or set(term) != {1}:
                return f"{_at(op)} adds something that is not a multiple of x"
            a += term[1]
        else:
            return f"{_at(op)} is not part of {name}"
        inside[op] = None
        if x is not None and _close(a, 0.5, x) and _close(b, 0.5, x):
            return Chain(name, [x], attrs, op, inside)
        value = op.results[0]


def _gelu_erf(op: Operation) -> Found:
    return _gated(op, {1: math.sqrt(0.5)}, "tensor.gelu", {"approximate": "none"})


def _gelu_tanh(op: Operation) -> Found:
    factor = math.sqrt(2 / math.pi)
    return _gated(op, {1: factor, 3: 0.044715 * factor}, "tensor.gelu", {"approximate": "tanh"})


def _silu(op: Operation) -> Found:
    x, value = op.operands[0], op.results[0]
    user = _user(value)
    if user is None or user.name != "tensor.mul":
        return f"the sigmoid is not only multiplied: {_readers(value)}"
    if _other(user, value) is not x:
        return f"the sigmoid is multiplied with something else than its operand, in {_at(user)}"
    return Chain("tensor.silu", [x], {}, user, {op: None})


# Softmax and sigmoid: both have an exponential


def _exponential(op: Operation) -> Found:
    shifted = _producer(op.operands[0], "tensor.sub")
    return _softmax(op, shifted) if shifted is not None else _sigmoid(op)


def _sigmoid(op: Operation) -> Found:
    """1 / (1 + exp(-x)), or x / (1 + exp(-x)): silu."""
    negated = _multiples(op.operands[0])
    inside: Ops = {op: None}
    x = next((v for v in negated[1:] if polynomial(op.operands[0], v, inside) == {1: -1.0}), None)
    if x is None:
        return "the exponential is neither of x - max(x) nor of -x"
    one = _user(op.results[0])
    if one is None or one.name != "tensor.add" or _scalar(_other(one, op.results[0])) != 1.0:
        return f"1 is not added to the exponential of -x: {_readers(op.results[0])}"
    inside[one] = None
    last = _user(one.results[0])
    if last is not None and last.name == "tensor.reciprocal":
        return Chain("tensor.sigmoid", [x], {}, last, inside)
    if last is None or last.name != "tensor.div" or last.operands[1] is not one.results[0]:
        return f"nothing is divided by 1 + exp(-x): {_readers(one.results[0])}"
    if _scalar(last.operands[0]) == 1.0:
        return Chain("tensor.sigmoid", [x], {}, last, inside)
    if last.operands[0] is x:
        return Chain("tensor.silu", [x], {}, last, inside)
    return "something else than 1 and x is divided by 1 + exp(-x)"


def _reduced(value: SSAValue, name: str, inside: Ops) -> tuple[SSAValue, tuple[int, ...]] | None:
    """The operand and the axes when `value` is a reduction with its dims kept (by keepdims or a reshape)."""
    op = value.owner
    if not isinstance(op, Operation):
        return None
    passed: Ops = {}
    if op.name == "tensor.reshape":
        passed[op] = None
        op = op.operands[0].owner
    if not isinstance(op, Operation) or op.name != name:
        return None
    x = op.operands[0]
    shape = tt(x).shape
    axes = tuple(sorted(axis % len(shape) for axis in attributes_of(op)["axes"]))
    if tt(value).shape != tuple(1 if d in axes else n for d, n in enumerate(shape)):
        return None
    inside.update(passed)
    inside[op] = None
    return x, axes


def _softmax(op: Operation, shifted: Operation) -> Found:
    inside: Ops = {op: None, shifted: None}
    x, e = shifted.operands[0], op.results[0]
    top = _reduced(shifted.operands[1], "tensor.reduce_max", inside)
    if top is None or top[0] is not x:
        return "what is subtracted before the exponential is not the maximum of the same value"
    if len(top[1]) != 1:
        return f"softmax is over one axis, this is over {len(top[1])}"
    total = next((u.operation for u in e.uses if u.operation.name == "tensor.reduce_sum"), None)
    if total is None:
        return "the exponentials are not summed"
    value = total.results[0]
    after = _user(value)
    if after is not None and after.name == "tensor.reshape":
        value = after.results[0]
    summed = _reduced(value, "tensor.reduce_sum", inside)
    if summed is None or summed[1] != top[1]:
        return "sum and maximum are over different axes"
    (axis,) = top[1]
    attrs = {"axis": axis}
    user = _user(value)
    if user is None:
        return f"the sum of exponentials has several users: {_readers(value)}"
    if user.name == "tensor.div" and tuple(user.operands) == (e, value):
        return Chain("tensor.softmax", [x], attrs, user, inside)
    inside[user] = None
    last = _user(user.results[0])
    if last is None:
        return f"the exponentials are not divided by their sum: {_readers(user.results[0])}"
    match user.name, last.name:
        case "tensor.reciprocal", "tensor.mul" if _other(last, user.results[0]) is e:
            return Chain("tensor.softmax", [x], attrs, last, inside)
        case "tensor.log", "tensor.sub" if tuple(last.operands) == (shifted.results[0], user.results[0]):
            return Chain("tensor.log_softmax", [x], attrs, last, inside)
        case _:
            pass
    return "the exponentials are not divided by their sum"


# Norms: all have a square root


def _norm(op: Operation) -> Found | None:
    """From √(mean(d²) + ε): d / √…, times a scale, plus a bias; layer norm when d is x - mean(x), else rms norm."""
    inside: Ops = {op: None}
    inverse = op.name == "tensor.rsqrt"
    if op.name == "tensor.pow":
        exponent = _scalar(op.operands[1])
        if exponent not in (0.5, -0.5):
            return None  # no square root
        inverse = exponent < 0
    spread = _spread(op.operands[0], inside)
    if isinstance(spread, str):
        return spread
    d, axes, epsilon = spread
    rank = len(tt(d).shape)
    if axes != tuple(range(rank - len(axes), rank)):
        return f"the mean is over dims {list(axes)}, not the last ones"
    shape = tt(d).shape[rank - len(axes) :]
    x = _uncentred(d, axes, inside)
    normal = _normalized(op, inverse, d, shape, inside)
    if isinstance(normal, str):
        return normal
    root, scale = normal
    if scale is None:
        user = _user(root.results[0])
        scale = _fitting(_other(user, root.results[0]), shape) if user and user.name == "tensor.mul" else None
        if user is not None and scale is not None:
            inside[root] = None
            root = user
    attrs = {"axis": rank - len(axes), "epsilon": epsilon}
    filled = LiteralAttr.filled(TT(shape, tt(d).dtype), 1.0) if scale is None else scale
    if x is None:
        return Chain("tensor.rms_norm", [d, filled], attrs, root, inside)
    operands: list[SSAValue | LiteralAttr | Reshaped] = [x, filled]
    user = _user(root.results[0])
    bias = _fitting(_other(user, root.results[0]), shape) if user and user.name == "tensor.add" else None
    if user is not None and bias is not None:
        inside[root] = None
        root = user
        operands.append(bias)
    return Chain("tensor.layer_norm", operands, attrs, root, inside)


def _spread(value: SSAValue, inside: Ops) -> tuple[SSAValue, tuple[int, ...], float] | str:
    """d, axes and ε of mean(d²) + ε."""
    epsilon = 0.0
    added = _producer(value, "tensor.add")
    if added is not None:
        left, right = added.operands
        number = _scalar(right)
        if number is None:
            left, number = right, _scalar(left)
        if number is None:
            return "what is added under the square root is not a constant"
        value, epsilon = left, number
        inside[added] = None
    mean = _mean(value, inside)
    if mean is None:
        return "the square root is not of a mean"
    square, axes = mean
    op = square.owner
    squared = isinstance(op, Operation) and (
        (op.name == "tensor.mul" and op.operands[0] is op.operands[1])
        or (op.name == "tensor.pow" and _scalar(op.operands[1]) == 2.0)
    )
    if not squared or not isinstance(op, Operation):
        return "the mean under the square root is not of a square"
    inside[op] = None
    return op.operands[0], axes, epsilon


def _mean(value: SSAValue, inside: Ops) -> tuple[SSAValue, tuple[int, ...]] | None:
    """Operand and axes of a mean, also written as a sum times 1/n or by n."""
    found = _reduced(value, "tensor.reduce_mean", inside)
    if found is not None:
        return found
    for base in _multiples(value)[1:2]:
        found = _reduced(base, "tensor.reduce_sum", inside)
        factor = polynomial(value, base, inside)
        if found is None or factor is None:
            continue
        size = math.prod(tt(found[0]).shape[axis] for axis in found[1])
        if size and _close(factor[1], 1 / size, value):
            return found
    return None


def _uncentred(d: SSAValue, axes: tuple[int, ...], inside: Ops) -> SSAValue | None:
    """x when d is x - mean(x)."""
    op = _producer(d, "tensor.sub")
    if op is None:
        return None
    found: Ops = {}
    mean = _mean(op.operands[1], found)
    if mean is None or mean != (op.operands[0], axes):
        return None
    inside.update(found)
    inside[op] = None
    return op.operands[0]


def _normalized(
    root: Operation, inverse: bool, d: SSAValue, shape: tuple[int, ...], inside: Ops
) -> tuple[Operation, SSAValue | Reshaped | None] | str:
    """The op that gives d / √…, from the root upwards, and the scale when it is multiplied in before d."""
    value = root.results[0]
    user = _user(value)
    if user is None:
        return f"the square root has several users: {_readers(value)}"
    if not inverse:
        if user.name == "tensor.div" and tuple(user.operands) == (d, value):
            return user, None
        one = user.name == "tensor.div" and user.operands[1] is value and _scalar(user.operands[0]) == 1.0
        if not one and user.name != "tensor.reciprocal":
            return f"the value is not divided by the square root: {_readers(value)}"
        inside[user] = None
        value = user.results[0]
        user = _user(value)
    if user is None or user.name != "tensor.mul":
        return f"the value is not multiplied by the inverse square root: {_readers(value)}"
    other = _other(user, value)
    if other is d:
        return user, None
    scale = _fitting(other, shape)
    last = _user(user.results[0])
    if scale is None or last is None or last.name != "tensor.mul" or _other(last, user.results[0]) is not d:
        return "the inverse square root is multiplied with another value than it is of"
    inside[user] = None
    return last, scale


def _fitting(value: SSAValue, shape: Sequence[int]) -> SSAValue | Reshaped | None:
    """A parameter of the normalized shape, possibly behind unit dims."""
    found = tt(value).shape
    if not _parameter(value):
        return None
    if found == tuple(shape):
        return value
    if found[len(found) - len(shape) :] == tuple(shape) and all(n == 1 for n in found[: len(found) - len(shape)]):
        return Reshaped(value, tuple(shape))
    return None


_ANCHORS: dict[str, tuple[str, Callable[[Operation], Found | None]]] = {
    "tensor.erf": ("gelu", _gelu_erf),
    "tensor.tanh": ("gelu", _gelu_tanh),
    "tensor.sigmoid": ("silu", _silu),
    "tensor.exp": ("softmax or sigmoid", _exponential),
    "tensor.sqrt": ("layer_norm or rms_norm", _norm),
    "tensor.rsqrt": ("layer_norm or rms_norm", _norm),
    "tensor.pow": ("layer_norm or rms_norm", _norm),
}


def sought(name: str) -> str:
    """Which composites the recogniser that starts at ops of this name looks for."""
    return _ANCHORS[name][0]


def anchors() -> frozenset[str]:
    """Names of the ops that recognisers start at."""
    return frozenset(_ANCHORS)
