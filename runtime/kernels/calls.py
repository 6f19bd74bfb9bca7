"""What a kernel is: a function that turns one op on given arrays into a list of NumPy calls, once, before any run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from math import prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from headrace.dialects.tensor.meaning import evaluate
from headrace.dialects.tensor.meaning.special import NARROW
from headrace.runtime.kernels.blas import Packs
from headrace.runtime.kernels.scratch import Array, Scratch, aligned_copy

Step = tuple[Callable[..., Any], tuple[Any, ...]]
"""A call f(*args) of a bound program."""

CACHE_ELEMENTS = 40_000
"""Elements of one operand in a pass over a tile that several passes use: with two or three operands it stays in L2."""


class Kept:
    """Operands of one op of a chain that stay the same over many of its blocks, in the layout that the op wants.

    `stable` are the operands that the chain itself does not write; `uses` is about how many blocks share one.
    """

    def __init__(self, slot: int, stable: Iterable[int], uses: int) -> None:
        self.slot = slot
        self.stable = frozenset(stable)
        self.uses = uses
        self._have: Any = None

    def holds(self, x: Array, layout: Any) -> bool:
        """Whether the slot holds this operand in this layout already; from now on it does."""
        key = (x.ctypes.data, x.shape, x.strides, layout)
        have, self._have = self._have, key
        return have == key


class Call:
    """One op to bind: its name, attributes and arrays, the scratch memory, and which inputs never change after binding.

    An output may be the same view as input 0 of an elementwise, softmax or norm op; other overlaps are not allowed.
    """

    __slots__ = ("attrs", "constants", "inputs", "kept", "name", "outputs", "packs", "scratch")

    def __init__(
        self,
        name: str,
        attrs: Mapping[str, Any],
        inputs: Sequence[Array],
        outputs: Sequence[Array],
        scratch: Scratch,
        constants: Iterable[int] = (),
        packs: Packs | None = None,
        kept: Kept | None = None,
    ) -> None:
        self.name = name
        self.attrs = attrs
        self.inputs = list(inputs)
        self.outputs = list(outputs)
        self.scratch = scratch
        self.constants = frozenset(constants)
        self.packs = packs if packs is not None else Packs()
        self.kept = kept

    @property
    def output(self) -> Array:
        """The first output."""
        return self.outputs[0]

    def derive(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Call:
        """The same op on other arrays."""
        return Call(self.name, self.attrs, inputs, outputs, self.scratch, self.constants, self.packs, self.kept)


REARRANGED = frozenset({("tensor.matmul", 1), ("tensor.conv", 1)})
"""Operands whose kernels lay them out anew when they are constant, and so may start at any byte."""


def align_constants(call: Call) -> None:
    """Constant inputs that start at an odd byte (of a mapped file, say) become aligned copies, made once: NumPy would
    copy them at every call."""
    for p in call.constants:
        x = call.inputs[p]
        if not x.flags.aligned and (call.name, p) not in REARRANGED:
            call.inputs[p] = call.packs.get("aligned", x, lambda x=x: aligned_copy(x))


Binder = Callable[[Call], "list[Step] | None"]
_binders: dict[str, Binder] = {}
_narrow_directly: set[str] = set()
FAMILIES = ("elementwise", "reduction", "rowwise", "contraction", "convolution", "movement", "random")


def binds(*names: str, any_dtype: bool = False) -> Callable[[Binder], Binder]:
    """Register the binder of ops; it answers None for a case that it does not cover. Unless `any_dtype`, f16 and bf16
    operands are widened to f32 for it and its results rounded."""

    def register(binder: Binder) -> Binder:
        _binders.update(dict.fromkeys(names, binder))
        if any_dtype:
            _narrow_directly.update(names)
        return binder

    return register


@cache
def _load() -> None:
    for family in FAMILIES:
        import_module(f"headrace.runtime.kernels.{family}")


class Fallback:
    """Runs the op's meaning and copies the results: correct for every op, but it allocates."""

    allocates = True

    def __init__(self, name: str, attrs: Mapping[str, Any]) -> None:
        self.name = name
        self.attrs = attrs

    def __call__(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Evaluate into the outputs."""
        for target, value in zip(outputs, evaluate(self.name, self.attrs, *inputs), strict=True):
            np.copyto(target, value)


def allocating(steps: Iterable[Step]) -> list[str]:
    """Names of the ops among these steps that run through their meaning and so allocate, in order."""
    return [f.name for f, _ in steps if isinstance(f, Fallback)]


def fallback(call: Call) -> list[Step]:
    """The op through its meaning."""
    return [(Fallback(call.name, call.attrs), (call.inputs, call.outputs))]


def bind_call(call: Call) -> list[Step]:
    """Steps of one op."""
    _load()
    align_constants(call)
    binder = _binders.get(call.name)
    if binder is None:
        return fallback(call)
    mark = call.scratch.mark()
    narrow = any(x.dtype in NARROW for x in (*call.inputs, *call.outputs))
    if narrow and call.name not in _narrow_directly:
        from headrace.runtime.kernels.halves import table_steps

        steps = table_steps(call)
        if steps is None:
            steps = _widened(call, binder)
    else:
        steps = binder(call)
    call.scratch.release(mark)
    return fallback(call) if steps is None else steps


def _widened(call: Call, binder: Binder) -> list[Step] | None:
    """The op in f32 on widened copies, rounded once at the end. Constants are widened once."""
    before: list[Step] = []
    after: list[Step] = []
    inputs: list[Array] = []
    for p, x in enumerate(call.inputs):
        if x.dtype in NARROW and p in call.constants:
            inputs.append(call.packs.get("wide", x, lambda x=x: _wide_constant(x)))
        elif x.dtype in NARROW:
            wide, held = _wide_like(call.scratch, x)
            before.append((np.copyto, (wide, held)))
            inputs.append(np.broadcast_to(wide, x.shape))
        else:
            inputs.append(x)
    outputs: list[Array] = []
    for x in call.outputs:
        if x.dtype in NARROW:
            wide, _ = _wide_like(call.scratch, x)
            after.append((round_to, (x, wide)))
            outputs.append(wide)
        else:
            outputs.append(x)
    steps = binder(Call(call.name, call.attrs, inputs, outputs, call.scratch, call.constants, call.packs))
    return None if steps is None else [*before, *steps, *after]


def _once(x: Array) -> Array:
    """The elements of an array that is repeated along some dims, with these dims of size 1."""
    index = [slice(0, 1 if step == 0 and n else None) for n, step in zip(x.shape, x.strides, strict=True)]
    return x[(*index, ...)]  # with no index a view too, not a scalar


def _wide_like(scratch: Scratch, x: Array) -> tuple[Array, Array]:
    """An f32 array whose dims lie in memory as those of an array do, and the elements of that which it is to take."""
    held = _once(x)
    order = sorted(range(held.ndim), key=lambda d: -abs(held.strides[d]))
    made = scratch.take([held.shape[d] for d in order], np.float32)
    return made.transpose([order.index(d) for d in range(held.ndim)]), held


def _wide_constant(x: Array) -> Array:
    """An f32 copy; what is repeated stays so."""
    return np.broadcast_to(aligned_copy(_once(x).astype(np.float32)), x.shape)


def round_to(target: Array, source: Array) -> None:
    """Copy with any conversion: floats round to nearest even, floats to integers truncate."""
    np.copyto(target, source, "unsafe")


# Helpers for binders


@cache
def _scalar(value: float | int | bool, dtype: str) -> Array:
    made = np.array(value, np.dtype(dtype))
    made.flags.writeable = False
    return made


def scalar(value: float | int | bool, dtype: np.dtype[Any]) -> Array:
    """A constant array without dims: as an operand it neither promotes nor is converted at each call."""
    return _scalar(value, dtype.str)


def is_float(*arrays: Array) -> bool:
    """Whether all are f32 or all f64."""
    return arrays[0].dtype.kind == "f" and all(x.dtype == arrays[0].dtype for x in arrays)


def strided(x: Array, shape: Sequence[int], strides: Sequence[int]) -> Array:
    """A view from x's first element with strides in bytes."""
    return as_strided(x, tuple(shape), tuple(strides))


def coalesce(arrays: Sequence[Array], outputs: Sequence[Array]) -> tuple[list[Array], list[Array]]:
    """Views of the same elements with as few dims as the strides allow, ordered as the first output lies in memory.

    Operands that broadcast become scalars or lose leading dims. NumPy takes its short way through operands without dims
    to iterate over.
    """
    shape = outputs[0].shape
    views = [x if x.shape == shape else np.broadcast_to(x, shape) for x in arrays] + list(outputs)
    lead = outputs[0].strides
    order = sorted((d for d in range(len(shape)) if shape[d] != 1), key=lambda d: -abs(lead[d]))
    sizes: list[int] = []
    strides: list[list[int]] = [[] for _ in views]
    for d in order:
        steps = [x.strides[d] for x in views]
        if sizes and all(s[-1] == step * shape[d] for s, step in zip(strides, steps, strict=True)):
            sizes[-1] *= shape[d]
            for s, step in zip(strides, steps, strict=True):
                s[-1] = step
        else:
            sizes.append(shape[d])
            for s, step in zip(strides, steps, strict=True):
                s.append(step)
    found = [
        _drop_broadcast(x, sizes, s) if i < len(arrays) else strided(x, sizes, s)
        for i, (x, s) in enumerate(zip(views, strides, strict=True))
    ]
    return found[: len(arrays)], found[len(arrays) :]


def _drop_broadcast(x: Array, sizes: Sequence[int], steps: Sequence[int]) -> Array:
    first = next((d for d, step in enumerate(steps) if step), len(sizes))
    kept = [1 if step == 0 else n for n, step in zip(sizes[first:], steps[first:], strict=True)]
    return strided(x, kept, steps[first:])


def tiles(arrays: Sequence[Array], limit: int = CACHE_ELEMENTS) -> Iterator[list[Array]]:
    """Blocks along the leading dim of the last array so that it has at most about `limit` elements; the others are cut
    with it where they have that dim."""
    whole = arrays[-1]
    if whole.size <= limit or whole.ndim == 0 or whole.shape[0] == 1:
        yield list(arrays)
        return
    inner = whole.size // whole.shape[0]
    count = -(-whole.shape[0] // max(1, limit // inner))
    rows = -(-whole.shape[0] // count)
    for at in range(0, whole.shape[0], rows):
        block = slice(at, at + rows)
        yield [x[block] if x.ndim == whole.ndim and x.shape[0] == whole.shape[0] else x for x in arrays]


def merge_dims(x: Array, start: int, stop: int) -> Array | None:
    """A view with dims start … stop-1 as one; None when the strides do not allow it."""
    size, step = 1, x.itemsize
    for d in reversed(range(start, stop)):
        if x.shape[d] == 1:
            continue
        if size != 1 and x.strides[d] != step * size:
            return None
        if size == 1:
            step = x.strides[d]
        size *= x.shape[d]
    shape = (*x.shape[:start], size, *x.shape[stop:])
    return strided(x, shape, (*x.strides[:start], step, *x.strides[stop:]))


def rows_of(x: Array, axis: int) -> Array | None:
    """A view [rows, columns] whose columns are the dims from `axis` on and lie without gaps; None when there is
    none."""
    columns = merge_dims(x, axis, x.ndim)
    if columns is None:
        return None
    both = merge_dims(columns, 0, axis)
    if both is None or both.ndim != 2 or not (both.shape[1] == 1 or both.strides[1] == x.itemsize):
        return None
    return both


def same_view(a: Array, b: Array) -> bool:
    """Whether both are the same elements in the same order."""
    return a.shape == b.shape and a.strides == b.strides and a.dtype == b.dtype and a.ctypes.data == b.ctypes.data


def contiguous_rows(x: Array) -> bool:
    """Whether the last dim lies without gaps, so that BLAS takes the array as it is."""
    return x.ndim > 0 and (x.shape[-1] == 1 or x.strides[-1] == x.itemsize)


def elements(shape: Sequence[int]) -> int:
    """Number of elements."""
    return prod(shape)
