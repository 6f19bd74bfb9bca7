"""Shape, tiling and work rules of matmul, convolution and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from headrace.dialects.support import dtypes
from headrace.dialects.tensor.shapes import (
    TT,
    Attrs,
    Follow,
    ShapeError,
    Tiling,
    adapts,
    counts_flops,
    infers,
    joins,
    tiles,
)
from headrace.dialects.tensor.shapes.broadcasting import NUMERIC, follow_all, one_dtype, require_dtype, require_float

LHS_RHS = ("lhs", "rhs")


def accumulate_type(attrs: Attrs, dtype: str) -> str:
    """The element type that products of `dtype` are summed in: the op's `accumulate`, else f32 for f16 and bf16 and the
    type itself for others. `ShapeError` for one of the other kind or a narrower one."""
    given = attrs.get("accumulate")
    if given is None:
        return "f32" if dtype in ("f16", "bf16") else dtype
    if given not in dtypes.BITS:
        raise ShapeError(f'accumulate is "{given}" but must be one of {", ".join(dtypes.BITS)}')
    if dtypes.is_float(given) != dtypes.is_float(dtype) or given == "i1":
        kind = "a floating-point type" if dtypes.is_float(dtype) else "an integer type"
        raise ShapeError(f'accumulate is "{given}" but operands of {dtype} need {kind}')
    if given != dtype and (
        dtypes.BITS[given] <= dtypes.BITS[dtype] or (given.startswith("ui") and not dtype.startswith("ui"))
    ):
        raise ShapeError(f'accumulate is "{given}", which does not hold every {dtype}')
    return given


def _result_dtype(attrs: Attrs, dtype: str) -> str:
    accumulate = accumulate_type(attrs, dtype)
    return dtype if dtypes.is_float(dtype) else accumulate


@dataclass(frozen=True, slots=True)
class MatmulDims:
    """Sizes of a matmul: broadcast batch dims, rows (None when lhs is 1-d), contracted size, columns (None when rhs is
    1-d)."""

    batch: tuple[int, ...]
    m: int | None
    k: int
    n: int | None

    @property
    def result(self) -> tuple[int, ...]:
        """Shape of the result."""
        return (*self.batch, *(() if self.m is None else (self.m,)), *(() if self.n is None else (self.n,)))


def matmul_dims(lhs: tuple[int, ...], rhs: tuple[int, ...]) -> MatmulDims:
    """The sizes of lhs · rhs by the rules of `np.matmul`; `ShapeError` names the dims that do not fit."""
    for name, shape in (("lhs", lhs), ("rhs", rhs)):
        if not shape:
            raise ShapeError(f"{name} has no dims; a matmul needs one or more")
    columns, rows = lhs[-1], rhs[-min(len(rhs), 2)]
    if columns != rows:
        raise ShapeError(f"lhs has {columns} columns but rhs has {rows} rows")
    batch_l, batch_r = lhs[:-2], rhs[:-2]
    rank = max(len(batch_l), len(batch_r))
    batch: list[int] = []
    for d in range(rank):
        dl, dr = d - (rank - len(batch_l)), d - (rank - len(batch_r))
        size_l, size_r = batch_l[dl] if dl >= 0 else 1, batch_r[dr] if dr >= 0 else 1
        if size_l != size_r and 1 not in (size_l, size_r):
            raise ShapeError(
                f"lhs batch dim {dl} has size {size_l} but rhs batch dim {dr} has size {size_r}; "
                "broadcasting needs equal sizes or 1"
            )
        batch.append(size_r if size_l == 1 else size_l)
    return MatmulDims(tuple(batch), lhs[-2] if len(lhs) > 1 else None, columns, rhs[-1] if len(rhs) > 1 else None)


@infers("tensor.matmul")
def _matmul(attrs: Attrs, operands: Sequence[TT]) -> TT:
    dtype = one_dtype(operands, LHS_RHS)
    require_dtype(dtype, NUMERIC, "a number type, not i1", "lhs")
    dims = matmul_dims(operands[0].shape, operands[1].shape)
    return TT(dims.result, _result_dtype(attrs, dtype))


@tiles("tensor.matmul")
def _tile_matmul(attrs: Attrs, operands: Sequence[TT], results: Sequence[TT]) -> Tiling:
    lhs, rhs = operands[0].shape, operands[1].shape
    dims = matmul_dims(lhs, rhs)
    result = dims.result
    rank = len(dims.batch)

    def batch(shape: tuple[int, ...]) -> tuple[Follow | None, ...]:
        lead = rank - len(shape)
        return tuple(Follow(lead + d) if size == dims.batch[lead + d] else None for d, size in enumerate(shape))

    of_lhs = (None,) if dims.m is None else (*batch(lhs[:-2]), Follow(rank), None)
    of_rhs = (None,) if dims.n is None else (*batch(rhs[:-2]), None, Follow(len(result) - 1))
    return Tiling(result, (of_lhs, of_rhs), (follow_all(len(result)),))


@counts_flops("tensor.matmul")
def _matmul_flops(attrs: Attrs, operands: Sequence[TT], results: Sequence[TT]) -> int:
    return 2 * results[0].elements * operands[0].shape[-1]


@dataclass(frozen=True, slots=True)
class Window:
    """One spatial dim of a convolution or pooling: sizes of input and kernel, stride, dilation, pads before and after,
    number of windows."""

    size: int
    kernel: int
    stride: int
    dilation: int
    low: int
    high: int
    out: int

    @property
    def extent(self) -> int:
        """Input elements from the first to the last one that a window touches."""
        return (self.kernel - 1) * self.dilation + 1

    @property
    def reach(self) -> int:
        """One past the last padded position (counted from the leading pad's start) that a window touches."""
        return (self.out - 1) * self.stride + self.extent

    @property
    def inside(self) -> bool:
        """Whether there is nothing but input to read: then blocks of windows read plain blocks of input."""
        return self.low == self.high == 0 and self.reach <= self.size

    def counted(self, include_pad: bool) -> list[int]:
        """How many kernel positions of each window count in an average: those in the input, or in it and its pads."""
        start = 0 if include_pad else self.low
        stop = self.low + self.size + (self.high if include_pad else 0)
        return [
            sum(start <= i * self.stride + p * self.dilation < stop for p in range(self.kernel))
            for i in range(self.out)
        ]


def windows(attrs: Attrs, spatial: Sequence[int], kernel: Sequence[int]) -> tuple[Window, ...]:
    """The windows over each spatial dim; attributes left out are 1 (strides, dilations) or 0 (pads)."""
    rank = len(spatial)
    strides = attrs.get("strides", (1,) * rank)
    dilations = attrs.get("dilations", (1,) * rank)
    pads = attrs.get("pads", (0,) * (2 * rank))
    for name, values, wanted, least in (
        ("kernel", kernel, rank, 1),
        ("strides", strides, rank, 1),
        ("dilations", dilations, rank, 1),
        ("pads", pads, 2 * rank, 0),
    ):
        if len(values) != wanted:
            raise ShapeError(f"{name} has {len(values)} entries but {rank} spatial dims need {wanted}")
        if any(v < least for v in values):
            raise ShapeError(f"{name} is {list(values)}; entries must be {least} or more")
    found: list[Window] = []
    for d in range(rank):
        low, high = pads[d], pads[rank + d]
        padded = spatial[d] + low + high
        extent = (kernel[d] - 1) * dilations[d] + 1
        if extent > padded:
            raise ShapeError(f"the kernel spans {extent} elements but spatial dim {d} has {padded} with its pads")
        out = (padded - extent) // strides[d] + 1
        if attrs.get("ceil"):
            out = -(-(padded - extent) // strides[d]) + 1
            if (out - 1) * strides[d] >= spatial[d] + low:
                out -= 1  # a window must start inside the input or its leading pad
        found.append(Window(spatial[d], kernel[d], strides[d], dilations[d], low, high, out))
    return tuple(found)


def _spatial_rank(type: TT, name: str) -> int:
    if not 3 <= len(type.shape) <= 5:
        raise ShapeError(f"{name} has {len(type.shape)} dims but must have 3 to 5: batch, channels and spatial dims")
    return len(type.shape) - 2


@infers("tensor.conv")
def _conv(attrs: Attrs, operands: Sequence[TT]) -> TT:
    names = ("input", "filter", "bias")[: len(operands)]
    dtype = one_dtype(operands, names)
    require_dtype(dtype, NUMERIC, "a number type, not i1", "input")
    x, w = operands[0], operands[1]
    _spatial_rank(x, "input")
    if len(w.shape) != len(x.shape):
        raise ShapeError(f"filter has {len(w.shape)} dims but the input has {len(x.shape)}")
    groups = attrs["groups"]
    channels, outputs = x.shape[1], w.shape[0]
    if groups < 1 or channels % groups or outputs % groups:
        raise ShapeError(f"groups is {groups} but must divide {channels} input and {outputs} output channels")
    if w.shape[1] * groups != channels:
        of = f" in each of {groups} groups" if groups > 1 else ""
        raise ShapeError(f"input has {channels} channels but the filter takes {w.shape[1]}{of}")
    if len(operands) > 2 and operands[2].shape != (outputs,):
        raise ShapeError(f"bias is {operands[2]} but the filter has {outputs} output channels")
    spatial = tuple(window.out for window in windows(attrs, x.shape[2:], w.shape[2:]))
    return TT((x.shape[0], outputs, *spatial), _result_dtype(attrs, dtype))


def _follow_windows(found: Sequence[Window], dims: list[int]) -> list[tuple[Follow | None, Follow | None]]:
    """Per spatial dim, how input and result follow; appends the parallel dims to `dims`. A dim whose windows touch
    padding is coupled: its first and last windows differ from the others."""
    follows: list[tuple[Follow | None, Follow | None]] = []
    for window in found:
        if not window.inside:
            follows.append((None, None))
            continue
        follows.append((Follow(len(dims), window.stride, window.extent), Follow(len(dims))))
        dims.append(window.out)
    return follows


@tiles("tensor.conv")
def _tile_conv(attrs: Attrs, operands: Sequence[TT], results: Sequence[TT]) -> Tiling:
    x, w = operands[0].shape, operands[1].shape
    groups = attrs["groups"]
    dims = [x[0]]
    channel = inputs = None
    if groups in (1, w[0]):
        channel = Follow(1)
        dims.append(w[0])
    if groups > 1 and channel:  # one output channel per group: a block of them reads the input channels of its groups
        inputs = Follow(1, x[1] // groups, x[1] // groups)
    spatial = _follow_windows(windows(attrs, x[2:], w[2:]), dims)
    of_x = (Follow(0), inputs, *(a for a, _ in spatial))
    of_w = (channel, *((None,) * (len(w) - 1)))
    of_bias: tuple[tuple[Follow | None, ...], ...] = ((channel,),) if len(operands) > 2 else ()
    return Tiling(tuple(dims), (of_x, of_w, *of_bias), ((Follow(0), channel, *(b for _, b in spatial)),))


@adapts("tensor.conv")
def _adapt_conv(attrs: Attrs, operands: Sequence[TT], results: Sequence[TT]) -> Attrs:
    each = operands[1].shape[1]
    return {**attrs, "groups": operands[0].shape[1] // each} if each else attrs  # without channels they stay


@joins("tensor.conv")
def _join_conv(attrs: Attrs, tiles: Sequence[TT], operands: Sequence[TT]) -> Attrs:
    return _adapt_conv(attrs, operands, ())


@counts_flops("tensor.conv")
def _conv_flops(attrs: Attrs, operands: Sequence[TT], results: Sequence[TT]) -> int:
    work = 2 * results[0].elements * prod(operands[1].shape[1:])
    return work + results[0].elements if len(operands) > 2 else work


@infers("tensor.max_pool", "tensor.avg_pool")
def _pool(attrs: Attrs, operands: Sequence[TT]) -> TT:
    x = operands[0]
    if "count_include_pad" in attrs:
        require_float(x.dtype)
    require_dtype(x.dtype, NUMERIC, "a number type, not i1")
    _spatial_rank(x, "operand")
    found = windows(attrs, x.shape[2:], attrs["kernel"])
    for d, window in enumerate(found):
        if max(window.low, window.high) >= window.extent:
            raise ShapeError(
                f"pads of spatial dim {d} are {window.low} and {window.high} but must be below {window.extent}, "
                "what the kernel spans"
            )
    return TT((*x.shape[:2], *(window.out for window in found)), x.dtype)


@tiles("tensor.max_pool", "tensor.avg_pool")
def _tile_pool(attrs: Attrs, operands: Sequence[TT], results: Sequence[TT]) -> Tiling:
    x = operands[0].shape
    dims = [x[0], x[1]]
    spatial = _follow_windows(windows(attrs, x[2:], attrs["kernel"]), dims)
    head = (Follow(0), Follow(1))
    return Tiling(tuple(dims), ((*head, *(a for a, _ in spatial)),), ((*head, *(b for _, b in spatial)),))


@counts_flops("tensor.max_pool", "tensor.avg_pool")
def _pool_flops(attrs: Attrs, operands: Sequence[TT], results: Sequence[TT]) -> int:
    return results[0].elements * prod(attrs["kernel"])
