"""A run of ops bound as one: chunks of the dims that all ops have in common, so that values between ops stay in cache.

Ops are cut with the tiling rules of `dialects.tensor.shapes`, so a chunked run computes what the whole one does.
Products by constant weights take part in it where the machine's BLAS runs a block of rows as fast as all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product as combinations
from math import prod
from typing import Any, Protocol

import numpy as np

from headrace.dialects.support import dtypes
from headrace.dialects.tensor import shapes
from headrace.dialects.tensor.shapes import TT, Follow, Tiling
from headrace.runtime.kernels import blas
from headrace.runtime.kernels.blas import Packs
from headrace.runtime.kernels.calls import (
    CACHE_ELEMENTS,
    REARRANGED,
    Call,
    Kept,
    Step,
    bind_call,
    contiguous_rows,
    merge_dims,
)
from headrace.runtime.kernels.movement import VIEWS, views_of
from headrace.runtime.kernels.rowwise import softmax_rows
from headrace.runtime.kernels.scratch import Array, Scratch, aligned_copy

Key = Hashable
PRODUCT_ELEMENTS = 200_000
"""Elements of the largest value of a chunk that has matrix products: more rows share what is read of the weights."""
PRODUCT_ROWS = 64
"""Fewest rows of a chunk of such a product."""
SOFTMAX = "kernel.softmax"
"""softmax of `factor`·x over the last dim; with a second result, undivided, and the inverse sums [..., 1] there."""
INPLACE = frozenset(
    f"tensor.{name}"
    for name in (
        *(
            "add",
            "sub",
            "mul",
            "div",
            "pow",
            "max",
            "min",
            "mod",
            "atan2",
            "and",
            "or",
            "xor",
            "neg",
            "abs",
            "exp",
            "log",
        ),
        *(
            "sqrt",
            "rsqrt",
            "reciprocal",
            "erf",
            "tanh",
            "sigmoid",
            "sin",
            "cos",
            "tan",
            "floor",
            "ceil",
            "round",
            "sign",
        ),
        *("not", "relu", "leaky_relu", "elu", "clip", "gelu", "silu", "softplus", "hard_sigmoid"),
        *("softmax", "log_softmax", "layer_norm", "rms_norm", "batch_norm"),
    )
) | {SOFTMAX}
"""Ops whose result may take the place of operand 0."""
BINARY = frozenset(f"tensor.{name}" for name in ("add", "sub", "mul", "div", "max", "min"))
"""Ops whose result may take the place of operand 1."""


class Op(Protocol):
    """A tensor op on values with hashable keys."""

    @property
    def name(self) -> str:
        """Full op name."""
        ...

    @property
    def attrs(self) -> Mapping[str, Any]:
        """Plain attributes."""
        ...

    @property
    def operands(self) -> Sequence[Any]:
        """Keys of the operands."""
        ...

    @property
    def results(self) -> Sequence[Any]:
        """Keys of the results."""
        ...


@dataclass(frozen=True, slots=True)
class _Op:
    name: str
    attrs: Mapping[str, Any]
    operands: tuple[Key, ...]
    results: tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class _New:
    """A value that this module adds."""

    op: int
    what: str


@dataclass
class _Body:
    """Ops with the types of all values, the arrays of those in memory and which of these are constant."""

    ops: list[_Op]
    types: dict[Key, TT]
    arrays: dict[Key, Array]
    outputs: dict[Key, Array]
    constants: set[Key]
    uses: dict[Key, list[tuple[int, int]]] = field(default_factory=dict[Key, "list[tuple[int, int]]"])

    def count_uses(self) -> None:
        """Note where each value is used, as (op, operand)."""
        self.uses = {}
        for i, op in enumerate(self.ops):
            for p, v in enumerate(op.operands):
                self.uses.setdefault(v, []).append((i, p))

    def once(self, v: Key) -> bool:
        """Whether v is made here, used once and no output."""
        return v not in self.arrays and v not in self.outputs and len(self.uses.get(v, ())) == 1


def bind_chain(
    ops: Sequence[Op],
    inputs: Mapping[Any, Array],
    outputs: Mapping[Any, Array],
    scratch: Scratch,
    constants: Collection[Any] = (),
    packs: Packs | None = None,
) -> list[Step]:
    """Steps that run `ops` on the arrays of `inputs` and leave the values of `outputs` in their arrays.

    `constants` are the inputs whose contents never change after this call: products by them use copies laid out for it,
    which `packs` keeps and shares. An output must not overlap an input in memory, except that it may be the same view
    as operand 0 of the elementwise, softmax or norm op that makes it. Scratch is free again when this returns.
    """
    packs = packs if packs is not None else Packs()
    body = _Body(
        [_Op(op.name, op.attrs, tuple(op.operands), tuple(op.results)) for op in ops],
        {},
        dict(inputs),
        dict(outputs),
        set(constants),
    )
    _expand_attention(body)
    _infer(body)
    _alias_views(body)
    body.count_uses()
    _align(body, packs)
    _fold_softmax(body)
    steps: list[Step] = []
    mark = scratch.mark()
    for start, stop, classes in _segments(body):
        steps += _Segment(body, start, stop, classes, scratch, packs).bind()
    scratch.release(mark)
    return steps


def _type(x: Array) -> TT:
    return TT(tuple(x.shape), dtypes.from_numpy(x.dtype))


def _infer(body: _Body) -> None:
    for key, x in body.arrays.items():
        body.types[key] = _type(x)
    for op in body.ops:
        results = shapes.infer(op.name, op.attrs, [body.types[v] for v in op.operands])
        body.types.update(zip(op.results, results, strict=True))


def _expand_attention(body: _Body) -> None:
    """tensor.attention as products and a softmax."""
    if not any(op.name == "tensor.attention" for op in body.ops):
        return
    types: dict[Key, TT] = {key: _type(x) for key, x in body.arrays.items()}
    ops: list[_Op] = []
    for i, op in enumerate(body.ops):
        results = shapes.infer(op.name, op.attrs, [types[v] for v in op.operands])
        types.update(zip(op.results, results, strict=True))
        if op.name != "tensor.attention" or types[op.operands[0]].dtype not in ("f32", "f64"):
            ops.append(op)
            continue
        q, k, v = op.operands[:3]
        dtype = dtypes.to_numpy(types[q].dtype)

        def made(what: str, i: int = i) -> _New:
            return _New(i, what)

        def constant(what: str, value: Any, dtype: Any = dtype, i: int = i) -> _New:
            body.arrays[made(what, i)] = np.asarray(value, dtype)
            body.constants.add(made(what, i))
            return made(what, i)

        scale = op.attrs.get("scale")
        scale = types[q].shape[-1] ** -0.5 if scale is None else scale
        rank = len(types[k].shape)
        ops.append(_Op("tensor.transpose", {"perm": (*range(rank - 2), rank - 1, rank - 2)}, (k,), (made("kT"),)))
        ops.append(_Op("tensor.matmul", {}, (q, made("kT")), (made("scores"),)))
        ops.append(_Op("tensor.mul", {}, (made("scores"), constant("scale", scale)), (made("scaled"),)))
        last: Key = made("scaled")
        if len(op.operands) > 3:
            mask = op.operands[3]
            if types[mask].dtype == "i1":
                ops.append(_Op("tensor.select", {}, (mask, last, constant("never", -np.inf)), (made("masked"),)))
            else:
                ops.append(_Op("tensor.add", {}, (last, mask), (made("masked"),)))
            last = made("masked")
        if op.attrs["causal"]:
            seen = constant("causal", np.tri(types[q].shape[-2], types[k].shape[-2], dtype=bool), bool)
            ops.append(_Op("tensor.select", {}, (seen, last, constant("unseen", -np.inf)), (made("causal masked"),)))
            last = made("causal masked")
        ops.append(_Op("tensor.softmax", {"axis": -1}, (last,), (made("weights"),)))
        ops.append(_Op("tensor.matmul", {}, (made("weights"), v), op.results))
    body.ops = ops


def _alias_views(body: _Body) -> None:
    """Movement ops on arrays in memory become views, unless an output wants the values in its own memory."""
    ops: list[_Op] = []
    for op in body.ops:
        source = body.arrays.get(op.operands[0]) if op.name in VIEWS else None
        if source is not None and not any(r in body.outputs for r in op.results):
            views = views_of(op.name, op.attrs, source)
            if views is not None:
                body.arrays.update(zip(op.results, views, strict=True))
                if op.operands[0] in body.constants:
                    body.constants.update(op.results)
                continue
        ops.append(op)
    body.ops = ops


def _align(body: _Body, packs: Packs) -> None:
    """Aligned copies of constants that no kernel lays out anew: whole, so that all chunks share one."""
    for v in body.constants:
        x = body.arrays.get(v)
        if x is None or x.flags.aligned or any((body.ops[i].name, p) in REARRANGED for i, p in body.uses.get(v, ())):
            continue
        body.arrays[v] = packs.get("aligned", x, lambda x=x: aligned_copy(x))


def _constant_scalar(body: _Body, v: Key) -> float | None:
    x = body.arrays.get(v) if v in body.constants else None
    if (
        x is None
        or x.size == 0
        or x.dtype.kind != "f"
        or any(s for n, s in zip(x.shape, x.strides, strict=True) if n > 1)
    ):
        return None
    return float(x[(0,) * x.ndim])


def _fold_softmax(body: _Body) -> None:
    """softmax(c · x) · v: the constant goes into the exponential, the division after the product."""
    maker = {r: i for i, op in enumerate(body.ops) for r in op.results}
    dropped: set[int] = set()
    replaced: dict[int, list[_Op]] = {}
    for i, op in enumerate(body.ops):
        if op.name != "tensor.softmax":
            continue
        x, (p,) = op.operands[0], op.results
        type = body.types[x]
        if type.dtype not in ("f32", "f64") or op.attrs["axis"] % len(type.shape) != len(type.shape) - 1:
            continue
        factor, at = 1.0, maker.get(x)
        if at is not None and body.ops[at].name == "tensor.mul" and body.once(x):
            a, b = body.ops[at].operands
            for scaled, by in ((a, b), (b, a)):
                c = _constant_scalar(body, by)
                if c is not None and c > 0 and body.types[scaled] == type:
                    factor, x = c, scaled
                    dropped.add(at)
                    break
        source = body.ops[maker[x]] if x in maker else None
        attrs = {"factor": factor, "bounded": source is not None and source.name == "tensor.matmul"}
        uses = body.uses.get(p, [])
        follower = body.ops[uses[0][0]] if body.once(p) and uses[0][1] == 0 else None
        if follower is not None and follower.name == "tensor.matmul" and len(type.shape) >= 2:
            (y,) = follower.results
            if body.types[y].shape[:-1] == type.shape[:-1] and body.types[y].shape[-1] < type.shape[-1]:
                inverse, undivided = _New(i, "inverse sums"), _New(i, "undivided product")
                body.types[inverse] = TT((*type.shape[:-1], 1), type.dtype)
                body.types[undivided] = body.types[y]
                replaced[i] = [_Op(SOFTMAX, attrs, (x,), (p, inverse))]
                product = _Op(follower.name, follower.attrs, follower.operands, (undivided,))
                replaced[uses[0][0]] = [product, _Op("tensor.mul", {}, (undivided, inverse), (y,))]
                continue
        replaced[i] = [_Op(SOFTMAX, attrs, (x,), (p,))]
    body.ops = [new for i, op in enumerate(body.ops) if i not in dropped for new in replaced.get(i, [op])]
    body.count_uses()


# Segments


class _Classes:
    """Dims that are cut together: a union of (value, dim) of the values made in a segment and (op, parallel dim)."""

    def __init__(self) -> None:
        self._parent: dict[Any, Any] = {}
        self.barred: set[Any] = set()

    def find(self, node: Any) -> Any:
        """The representative of a node's class."""
        root = node
        while (up := self._parent.get(root, root)) != root:
            root = up
        while (up := self._parent.get(node, node)) != root:
            self._parent[node] = root
            node = up
        return root

    def join(self, a: Any, b: Any) -> None:
        """Make one class of two."""
        a, b = self.find(a), self.find(b)
        if a != b:
            self._parent[b] = a
            if b in self.barred:
                self.barred.add(a)

    def bar(self, node: Any) -> None:
        """The node's class is not to be cut."""
        self.barred.add(self.find(node))

    def is_barred(self, node: Any) -> bool:
        """Whether the node's class is not to be cut."""
        return self.find(node) in {self.find(b) for b in self.barred}


def _tiling(body: _Body, op: _Op) -> Tiling:
    operands = [body.types[v] for v in op.operands]
    results = [body.types[v] for v in op.results]
    if op.name != SOFTMAX:
        return shapes.tiling(op.name, op.attrs, operands, results)
    lead = tuple(Follow(d) for d in range(len(operands[0].shape) - 1))
    return Tiling(operands[0].shape[:-1], ((*lead, None),), tuple((*lead, None) for _ in results))


def _is_identity(follow: Follow) -> bool:
    return follow.scale == 1 and follow.extent == 1 and follow.offset == 0


def _classes(body: _Body, start: int, stop: int, tilings: Mapping[int, Tiling]) -> tuple[_Classes, list[Any]]:
    """The classes of a segment, and those that every op of it has: what may be cut."""
    found = _Classes()
    internal = {r for op in body.ops[start:stop] for r in op.results}
    for i in range(start, stop):
        op, tiling = body.ops[i], tilings[i]
        sides = [(op.operands, tiling.operands), (op.results, tiling.results)]
        for keys, follows in sides:
            for v, dims in zip(keys, follows, strict=True):
                if v not in internal:
                    continue
                for d, follow in enumerate(dims):
                    if follow is None:
                        if body.types[v].shape[d] != 1:
                            found.bar((v, d))
                    elif _is_identity(follow):
                        found.join((i, "parallel", follow.dim), (v, d))
                    else:
                        found.bar((i, "parallel", follow.dim))
                        found.bar((v, d))
    common: list[Any] | None = None
    for i in range(start, stop):
        roots: list[Any] = []
        for d, n in enumerate(tilings[i].dims):
            root = found.find((i, "parallel", d))
            if n > 1 and root not in roots and not found.is_barred(root):
                roots.append(root)
        common = roots if common is None else [c for c in common if c in roots]
    return found, common or []


def _segments(body: _Body) -> Iterator[tuple[int, int, tuple[_Classes, list[Any], Mapping[int, Tiling]]]]:
    """Ranges of ops to bind together, with their classes."""
    tilings = {i: _tiling(body, op) for i, op in enumerate(body.ops)}
    start = 0
    while start < len(body.ops):
        stop = start + 1
        best = _classes(body, start, stop, tilings)
        while stop < len(body.ops) and not (_whole(body, body.ops[stop - 1]) or _whole(body, body.ops[stop])):
            longer = _classes(body, start, stop + 1, tilings)
            if not longer[1] and not (_fits(body, start, stop + 1)):
                break
            stop += 1
            best = longer
        yield start, stop, (*best, tilings)
        start = stop


def _elements(body: _Body, start: int, stop: int) -> int:
    """Elements of the largest value made."""
    return max((body.types[r].elements for op in body.ops[start:stop] for r in op.results), default=0)


def _fits(body: _Body, start: int, stop: int) -> bool:
    return _elements(body, start, stop) <= CACHE_ELEMENTS


def _has_product(ops: Sequence[_Op]) -> bool:
    return any(op.name in ("tensor.matmul", "tensor.conv") for op in ops)


def _whole(body: _Body, op: _Op) -> bool:
    """Whether the op is best run on all rows at once: a product by weights where BLAS rearranges them at every call."""
    if op.name != "tensor.matmul" or blas.has_small_kernels():
        return False
    rhs = body.types[op.operands[1]].shape
    return prod(rhs[:-2]) == 1 and body.types[op.results[0]].elements > CACHE_ELEMENTS


class _Segment:
    """Ops start … stop-1, bound chunk by chunk."""

    def __init__(
        self,
        body: _Body,
        start: int,
        stop: int,
        classes: tuple[_Classes, list[Any], Mapping[int, Tiling]],
        scratch: Scratch,
        packs: Packs,
    ) -> None:
        self.body = body
        self.start = start
        self.ops = body.ops[start:stop]
        self.stop = stop
        self.classes, self.cuttable, self.tilings = classes
        self.scratch = scratch
        self.packs = packs
        self.internal = [r for op in self.ops for r in op.results]
        self.last_use = self._last_uses()
        self.homes = self._homes()
        self.order = self._memory_order()

    # What is decided for all chunks

    def _last_uses(self) -> dict[Key, int]:
        """For each value made here the last op of the segment that uses it; those needed later are not in it."""
        last: dict[Key, int] = {}
        for i, op in enumerate(self.ops):
            for v in op.operands:
                last[v] = i
        outside = {v for op in self.body.ops[self.stop :] for v in op.operands}
        return {r: last.get(r, -1) for r in self.internal if r not in outside and r not in self.body.outputs}

    def _homes(self) -> dict[Key, Key]:
        """Values that live in an output's memory until an op turns them in place into that output."""
        homes: dict[Key, Key] = {}
        for i in reversed(range(len(self.ops))):
            op = self.ops[i]
            r = op.results[0]
            home = r if r in self.body.outputs else homes.get(r)
            if home is None or op.name not in INPLACE:
                continue
            array = self.body.outputs[home]
            if not contiguous_rows(array) or any(np.may_share_memory(array, x) for x in self._external_arrays()):
                continue
            for p in (0, 1) if op.name in BINARY else (0,):
                v = op.operands[p]
                if self.last_use.get(v) == i and self.body.types[v] == self.body.types[r] and op.operands.count(v) == 1:
                    homes[v] = home
                    break
        return homes

    def _external_arrays(self) -> list[Array]:
        found = {v for op in self.ops for v in op.operands if v in self.body.arrays}
        return [self.body.arrays[v] for v in self.body.arrays if v in found]

    def _memory_order(self) -> dict[int, tuple[int, ...]]:
        """For each rank, the order of dims in memory that the outputs of that rank have, outermost first."""
        orders: dict[int, tuple[int, ...]] = {}
        known = [*self.body.outputs.values(), *self._external_arrays()]
        for x in sorted(known, key=lambda x: -x.size):
            if (
                x.ndim > 2
                and x.ndim not in orders
                and all(s > 0 for n, s in zip(x.shape, x.strides, strict=True) if n > 1)
            ):
                orders[x.ndim] = tuple(sorted(range(x.ndim), key=lambda d: (-x.strides[d], d)))
        return orders

    def _blocks(self) -> list[tuple[Any, int, int]]:
        """(class, size, block) of the classes to cut, outermost first."""
        largest = max((self.body.types[r] for r in self.internal), key=lambda t: t.elements)
        products = _has_product(self.ops)
        limit = PRODUCT_ELEMENTS if products else CACHE_ELEMENTS
        if largest.elements <= limit or (len(self.ops) == 1 and not products):
            return []
        sizes: dict[Any, int] = {}
        for i in range(self.start, self.stop):
            for d, n in enumerate(self.tilings[i].dims):
                sizes.setdefault(self.classes.find((i, "parallel", d)), n)
        wanted = -(-largest.elements // limit)  # chunks
        found: list[tuple[Any, int, int]] = []
        for c in self._priority(sizes):
            if wanted <= 1:
                break
            n = sizes[c]
            least = self._least(c)
            parts = min(wanted, max(1, n // least))
            block = -(-n // parts)
            if least > 1 and block > 16:
                block = -(-block // 16) * 16
            if block < n:
                found.append((c, n, block))
                wanted = -(-wanted * block // n)
        return found

    def _priority(self, sizes: Mapping[Any, int]) -> list[Any]:
        """Classes to cut, first those that are batch dims of a product, then as the largest array lies in memory."""
        batch: set[Any] = set()
        for i, op in enumerate(self.ops, self.start):
            if op.name == "tensor.matmul":
                a, b = ({f.dim for f in dims if f is not None} for dims in self.tilings[i].operands)
                batch |= {self.classes.find((i, "parallel", d)) for d in a & b}
        strides: dict[Any, int] = {}
        for r in self.internal:
            array = self.body.outputs.get(r)
            if array is None:
                continue
            for d in range(array.ndim):
                strides.setdefault(self.classes.find((r, d)), abs(array.strides[d]))
        widest = [c for c in self.cuttable if not self._is_column(c)]
        ranked = sorted(range(len(widest)), key=lambda k: (widest[k] not in batch, -strides.get(widest[k], 0), k))
        return [widest[k] for k in ranked]

    def _is_column(self, c: Any) -> bool:
        """Whether cutting the class would cut the columns of a product or the channels of a convolution, or the
        innermost dim of all values."""
        for i, op in enumerate(self.ops, self.start):
            follows = self.tilings[i].results[0]
            rank = len(follows)
            for d, follow in enumerate(follows):
                if follow is None or self.classes.find((i, "parallel", follow.dim)) != c:
                    continue
                if op.name == "tensor.matmul" and d == rank - 1 and len(self.body.types[op.operands[1]].shape) > 1:
                    return True
                if op.name == "tensor.conv" and d != 0 and d != 2:
                    return True
        lasts = [
            self.classes.find((r, len(self.body.types[r].shape) - 1)) for r in self.internal if self.body.types[r].shape
        ]
        return bool(lasts) and all(x == c for x in lasts) and len(self.cuttable) > 1

    def _least(self, c: Any) -> int:
        """Fewest elements of the class in a chunk."""
        least = 1
        for i, op in enumerate(self.ops, self.start):
            if op.name != "tensor.matmul":
                continue
            rank = len(self.body.types[op.results[0]].shape)
            follow = self.tilings[i].results[0][rank - 2] if rank > 1 else None
            if follow is not None and self.classes.find((i, "parallel", follow.dim)) == c:
                least = max(least, PRODUCT_ROWS)
        return least

    # Chunks

    def bind(self) -> list[Step]:
        """All steps of the segment."""
        # values that later segments need and that are no outputs live in scratch for the rest of the run
        for r in self.internal:
            if r not in self.last_use and r not in self.body.outputs:
                type = self.body.types[r]
                self.body.outputs[r] = self._take(type.shape, type.dtype)
        blocks = self._blocks()
        ranges = [range(0, n, block) for _, n, block in blocks]
        slots = {i: Kept(i, self._stable(op), self._sharing(i, op, blocks)) for i, op in enumerate(self.ops)}
        steps: list[Step] = []
        for starts in combinations(*ranges):
            cut = {c: (at, min(at + block, n)) for (c, n, block), at in zip(blocks, starts, strict=True)}
            mark = self.scratch.mark()
            steps += self._bind_chunk(cut, slots)
            self.scratch.release(mark)
        for r in self.internal:
            if r in self.body.outputs:
                self.body.arrays[r] = self.body.outputs[r]
        return steps

    def _take(self, shape: Sequence[int], dtype: str) -> Array:
        """Scratch of a shape, its dims in memory as in the outputs."""
        order = self.order.get(len(shape))
        kind = dtypes.to_numpy(dtype)
        if order is None or order == tuple(range(len(shape))):
            return self.scratch.take(shape, kind)
        made = self.scratch.take([shape[d] for d in order], kind)
        return made.transpose([order.index(d) for d in range(len(shape))])

    def _stable(self, op: _Op) -> list[int]:
        return [p for p, v in enumerate(op.operands) if v in self.body.arrays]

    def _sharing(self, i: int, op: _Op, blocks: Sequence[tuple[Any, int, int]]) -> int:
        """How many chunks use the same part of operand 1."""
        if len(op.operands) < 2:
            return 1
        cut = {
            self.classes.find((self.start + i, "parallel", f.dim))
            for f in self.tilings[self.start + i].operands[1]
            if f is not None
        }
        return prod(-(-n // block) for c, n, block in blocks if c not in cut)

    def _part(self, i: int, x: Array, follows: Sequence[Follow | None], cut: Mapping[Any, tuple[int, int]]) -> Array:
        """The part of an array that op i needs in a chunk."""
        index: list[slice] = []
        for d, follow in enumerate(follows):
            bounds = cut.get(self.classes.find((i, "parallel", follow.dim))) if follow is not None else None
            if bounds is None or follow is None or (x.shape[d] == 1 and _is_identity(follow)):
                index.append(slice(None))
                continue
            low, high = bounds
            index.append(
                slice(low * follow.scale + follow.offset, (high - 1) * follow.scale + follow.extent + follow.offset)
            )
        return x[(*index, ...)]  # with no index a view too, not a scalar

    def _shape(
        self, i: int, v: Key, follows: Sequence[Follow | None], cut: Mapping[Any, tuple[int, int]]
    ) -> tuple[int, ...]:
        shape = list(self.body.types[v].shape)
        for d, follow in enumerate(follows):
            bounds = cut.get(self.classes.find((i, "parallel", follow.dim))) if follow is not None else None
            if bounds is not None:
                shape[d] = bounds[1] - bounds[0]
        return tuple(shape)

    def _bind_chunk(self, cut: Mapping[Any, tuple[int, int]], slots: Mapping[int, Kept]) -> list[Step]:
        values: dict[Key, Array] = {}
        views: set[Key] = set()
        free: dict[tuple[int, str], list[Array]] = {}
        steps: list[Step] = []
        for i, op in enumerate(self.ops):
            tiling = self.tilings[self.start + i]
            at = self.start + i
            inputs = [
                self._part(at, self.body.arrays[v], follows, cut) if v in self.body.arrays else values[v]
                for v, follows in zip(op.operands, tiling.operands, strict=True)
            ]
            made = [self._shape(at, r, f, cut) for r, f in zip(op.results, tiling.results, strict=True)]
            attrs = op.attrs
            if cut and op.name != SOFTMAX:
                types = [TT(tuple(x.shape), self.body.types[v].dtype) for v, x in zip(op.operands, inputs, strict=True)]
                results = [TT(shape, self.body.types[r].dtype) for r, shape in zip(op.results, made, strict=True)]
                attrs = shapes.block_attrs(op.name, op.attrs, types, results)
            if op.name in VIEWS and not any(r in self.body.outputs or r in self.homes for r in op.results):
                found = views_of(op.name, attrs, inputs[0])
                if found is not None:
                    values.update(zip(op.results, found, strict=True))
                    views.update((*op.results, op.operands[0]))
                    continue
            outputs = [
                self._place(i, op, r, shape, f, cut, values, views, free, inputs)
                for r, shape, f in zip(op.results, made, tiling.results, strict=True)
            ]
            values.update(zip(op.results, outputs, strict=True))
            steps += self._bind_op(op, attrs, inputs, outputs, slots[i])
            for v in dict.fromkeys(op.operands):
                if self.last_use.get(v) == i and v not in views and v not in self.homes:
                    x = values[v]
                    if not any(np.may_share_memory(x, y) for y in outputs):
                        free.setdefault((x.size, x.dtype.str), []).append(x)
        return steps

    def _place(
        self,
        i: int,
        op: _Op,
        r: Key,
        shape: tuple[int, ...],
        follows: Sequence[Follow | None],
        cut: Mapping[Any, tuple[int, int]],
        values: Mapping[Key, Array],
        views: Collection[Key],
        free: dict[tuple[int, str], list[Array]],
        inputs: Sequence[Array],
    ) -> Array:
        """Where a result of a chunk goes: an output, an operand's place, memory that is free again, or new scratch."""
        home = r if r in self.body.outputs else self.homes.get(r)
        if home is not None:
            return self._part(self.start + i, self.body.outputs[home], follows, cut)
        dtype = self.body.types[r].dtype
        if op.name in INPLACE and r == op.results[0]:
            for p in (0, 1) if op.name in BINARY else (0,):
                v = op.operands[p]
                x = inputs[p]
                dies = self.last_use.get(v) == i and v not in views and v not in self.homes
                if dies and op.operands.count(v) == 1 and x.shape == shape and self.body.types[v].dtype == dtype:
                    return x
        reusable = free.get((prod(shape), dtypes.to_numpy(dtype).str))
        if reusable:
            for k, x in enumerate(reusable):
                if x.shape == shape:
                    return reusable.pop(k)
        return self._take(shape, dtype)

    def _bind_op(
        self, op: _Op, attrs: Mapping[str, Any], inputs: list[Array], outputs: list[Array], kept: Kept
    ) -> list[Step]:
        constants = [p for p, v in enumerate(op.operands) if v in self.body.constants]
        call = Call(op.name, attrs, inputs, outputs, self.scratch, constants, self.packs, kept)
        if op.name != SOFTMAX:
            return bind_call(call)
        mark = self.scratch.mark()
        inverse = outputs[1] if len(outputs) > 1 else None
        x, o = inputs[0], outputs[0]
        if x.ndim > 2:
            x, o, inverse = _leading(x, o, inverse)
        steps = softmax_rows(call, x, o, attrs["factor"], attrs["bounded"], inverse)
        self.scratch.release(mark)
        return steps


def _leading(x: Array, o: Array, inverse: Array | None) -> tuple[Array, Array, Array | None]:
    """With one leading dim where all of them allow it."""
    merged = [None if a is None else merge_dims(a, 0, a.ndim - 1) for a in (x, o, inverse)]
    if merged[0] is None or merged[1] is None or (inverse is not None and merged[2] is None):
        return x, o, inverse
    return merged[0], merged[1], merged[2]
