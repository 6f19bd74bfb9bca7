"""Shape, tiling and work rules of the elementwise ops."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.dialects.support import dtypes
from headrace.dialects.tensor.shapes import TT, Attrs, ShapeError, Tiling, counts_flops, infers, tiles
from headrace.dialects.tensor.shapes.broadcasting import (
    INTEGERS,
    NUMERIC,
    SIGNED,
    broadcast_shape,
    follow_all,
    follow_broadcast,
    one_dtype,
    require_dtype,
    require_float,
)

ARITHMETIC = ("tensor.add", "tensor.sub", "tensor.mul", "tensor.div", "tensor.pow", "tensor.max", "tensor.min",
              "tensor.mod")  # fmt: skip
BITWISE = ("tensor.and", "tensor.or", "tensor.xor")
EQUALITY = ("tensor.equal", "tensor.not_equal")
ORDER = ("tensor.less", "tensor.less_equal", "tensor.greater", "tensor.greater_equal")
BINARY = (*ARITHMETIC, "tensor.atan2", *BITWISE, *EQUALITY, *ORDER)

FLOAT_UNARY = (
    "tensor.exp", "tensor.log", "tensor.sqrt", "tensor.rsqrt", "tensor.reciprocal", "tensor.erf", "tensor.tanh",
    "tensor.sigmoid", "tensor.sin", "tensor.cos", "tensor.tan", "tensor.floor", "tensor.ceil", "tensor.round",
    "tensor.leaky_relu", "tensor.elu", "tensor.gelu", "tensor.silu", "tensor.softplus", "tensor.hard_sigmoid",
)  # fmt: skip
SIGNED_UNARY = ("tensor.neg", "tensor.abs", "tensor.sign")
NUMERIC_UNARY = ("tensor.relu", "tensor.clip")
CLASSIFY = ("tensor.is_nan", "tensor.is_inf")
UNARY = (*FLOAT_UNARY, *SIGNED_UNARY, *NUMERIC_UNARY, *CLASSIFY, "tensor.not", "tensor.cast")

LHS_RHS = ("lhs", "rhs")


def _binary_shape(operands: Sequence[TT]) -> tuple[int, ...]:
    return broadcast_shape([t.shape for t in operands], LHS_RHS)


@infers(*ARITHMETIC)
def _arithmetic(attrs: Attrs, operands: Sequence[TT]) -> TT:
    dtype = one_dtype(operands, LHS_RHS)
    require_dtype(dtype, NUMERIC, "a number type, not i1", "lhs")
    return TT(_binary_shape(operands), dtype)


@infers("tensor.atan2")
def _atan2(attrs: Attrs, operands: Sequence[TT]) -> TT:
    dtype = one_dtype(operands, LHS_RHS)
    require_float(dtype, "lhs")
    return TT(_binary_shape(operands), dtype)


@infers(*BITWISE)
def _bitwise(attrs: Attrs, operands: Sequence[TT]) -> TT:
    dtype = one_dtype(operands, LHS_RHS)
    require_dtype(dtype, INTEGERS, "i1 or an integer type", "lhs")
    return TT(_binary_shape(operands), dtype)


@infers(*EQUALITY)
def _equality(attrs: Attrs, operands: Sequence[TT]) -> TT:
    one_dtype(operands, LHS_RHS)
    return TT(_binary_shape(operands), "i1")


@infers(*ORDER)
def _order(attrs: Attrs, operands: Sequence[TT]) -> TT:
    require_dtype(one_dtype(operands, LHS_RHS), NUMERIC, "a number type, not i1", "lhs")
    return TT(_binary_shape(operands), "i1")


@infers(*FLOAT_UNARY)
def _float_unary(attrs: Attrs, operands: Sequence[TT]) -> TT:
    require_float(operands[0].dtype)
    if "approximate" in attrs and attrs["approximate"] not in ("none", "tanh"):
        raise ShapeError(f'approximate is "{attrs["approximate"]}" but must be "none" or "tanh"')
    return operands[0]


@infers(*SIGNED_UNARY)
def _signed_unary(attrs: Attrs, operands: Sequence[TT]) -> TT:
    require_dtype(operands[0].dtype, SIGNED, "a signed number type")
    return operands[0]


@infers("tensor.relu")
def _relu(attrs: Attrs, operands: Sequence[TT]) -> TT:
    require_dtype(operands[0].dtype, NUMERIC, "a number type, not i1")
    return operands[0]


@infers("tensor.clip")
def _clip(attrs: Attrs, operands: Sequence[TT]) -> TT:
    dtype = operands[0].dtype
    require_dtype(dtype, NUMERIC, "a number type, not i1")
    low, high = attrs.get("min"), attrs.get("max")
    for name, bound in (("min", low), ("max", high)):
        if bound is None or dtypes.is_float(dtype):
            continue
        if not isinstance(bound, int):
            raise ShapeError(f"{name} is {bound} but the operand has element type {dtype}; write an integer")
        bits = dtypes.BITS[dtype]
        lowest, highest = (0, 2**bits - 1) if dtype.startswith("ui") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        if not lowest <= bound <= highest:
            raise ShapeError(f"{name} is {bound}, outside the range [{lowest}, {highest}] of {dtype}")
    if low is not None and high is not None and low > high:
        raise ShapeError(f"min {low} is above max {high}")
    return operands[0]


@infers(*CLASSIFY)
def _classify(attrs: Attrs, operands: Sequence[TT]) -> TT:
    require_float(operands[0].dtype)
    return TT(operands[0].shape, "i1")


@infers("tensor.not")
def _not(attrs: Attrs, operands: Sequence[TT]) -> TT:
    require_dtype(operands[0].dtype, INTEGERS, "i1 or an integer type")
    return operands[0]


@infers("tensor.cast")
def _cast(attrs: Attrs, operands: Sequence[TT]) -> TT:
    to = attrs["to"]
    if to not in dtypes.BITS:
        raise ShapeError(f'to is "{to}" but must be one of {", ".join(dtypes.BITS)}')
    return TT(operands[0].shape, to)


@infers("tensor.select")
def _select(attrs: Attrs, operands: Sequence[TT]) -> TT:
    cond, on_true, on_false = operands
    require_dtype(cond.dtype, ("i1",), "i1", "condition")
    dtype = one_dtype((on_true, on_false), ("on_true", "on_false"))
    return TT(broadcast_shape([t.shape for t in operands], ("condition", "on_true", "on_false")), dtype)


@tiles(*BINARY, *UNARY, "tensor.select")
def _tile(attrs: Attrs, operands: Sequence[TT], results: Sequence[TT]) -> Tiling:
    shape = results[0].shape
    return Tiling(shape, tuple(follow_broadcast(t.shape, shape) for t in operands), (follow_all(len(shape)),))


# Operations per element of ops that are more than one hardware operation; the others count one. They are the
# operations of the decomposition, an exponential or another transcendental counting one.
_WORK = {
    "tensor.sigmoid": 3, "tensor.leaky_relu": 2, "tensor.elu": 3, "tensor.clip": 2, "tensor.gelu": 5, "tensor.silu": 4,
    "tensor.softplus": 3, "tensor.hard_sigmoid": 4, "tensor.rsqrt": 2,
}  # fmt: skip


def _register_work() -> None:
    for name, per_element in _WORK.items():

        @counts_flops(name)
        def _work(attrs: Attrs, operands: Sequence[TT], results: Sequence[TT], each: int = per_element) -> int:
            return each * results[0].elements


_register_work()
