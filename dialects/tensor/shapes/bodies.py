"""Which dims of a *body* (a short list of tensor ops) may be cut into independent blocks, and how every value follows.

The mapping passes ask this to tile a stage and to spread it over units; the runtime asks it to merge tiles and units
back into whole-tensor calls. One rule for both, so that what is cut can be joined.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from headrace.dialects.tensor.shapes import TT, Attrs, Follow, Tiling, block_attrs, tiling


class BodyLike(Protocol):
    """An op of a body: values are numbers."""

    @property
    def name(self) -> str: ...
    @property
    def attrs(self) -> Mapping[str, Any]: ...
    @property
    def operands(self) -> tuple[int, ...]: ...
    @property
    def results(self) -> tuple[int, ...]: ...


@dataclass(frozen=True)
class Axis:
    """One direction in which a body may be cut: `size` indices; `follows[v]` says which dim of value v follows, and
    how. A value that is not in `follows` is needed whole by every block."""

    size: int
    follows: Mapping[int, Follow]

    def dim_of(self, value: int) -> int:
        """The dim of `value` that follows this axis, or -1."""
        found = self.follows.get(value)
        return -1 if found is None else found.dim

    def extent(self, value: int, block: int) -> int:
        """How many indices of its dim `value` needs for `block` indices of the axis."""
        follow = self.follows[value]
        return (block - 1) * follow.scale + follow.extent


def _compose(outer: Follow, inner: Follow, dim: int) -> Follow:
    """`inner` follows an op dim that itself follows the axis by `outer`; the result is about operand dim `dim`."""
    return Follow(
        dim,
        outer.scale * inner.scale,
        (outer.extent - 1) * inner.scale + inner.extent,
        outer.offset * inner.scale + inner.offset,
    )


class _Conflict(Exception):
    pass


class _Tracer:
    """Spreads one seed (output value, dim) over a body until every value agrees, or finds that it cannot."""

    def __init__(self, ops: Sequence[BodyLike], rules: Sequence[Tiling]) -> None:
        self.ops = ops
        self.rules = rules
        self.users: dict[int, list[int]] = {}
        self.maker: dict[int, int] = {}
        for i, op in enumerate(ops):
            for v in op.operands:
                self.users.setdefault(v, []).append(i)
            for v in op.results:
                self.maker[v] = i

    def trace(self, value: int, dim: int) -> dict[int, Follow]:
        self.follows: dict[int, Follow] = {}
        self.whole: set[int] = set()
        self.assigned: dict[int, tuple[int, Follow]] = {}
        self.work: list[int] = []
        self._set(value, Follow(dim))
        while self.work:
            v = self.work.pop()
            follow = self.follows[v]
            if v in self.maker:
                i = self.maker[v]
                self._assign(i, self.rules[i].results[self.ops[i].results.index(v)][follow.dim], follow)
            for i in self.users.get(v, ()):
                self._use(i, v, follow)
        return self.follows

    def _set(self, v: int, follow: Follow) -> None:
        if v in self.whole or self.follows.setdefault(v, follow) != follow:
            raise _Conflict
        self.work.append(v) if v not in self.work else None

    def _assign(self, i: int, rule: Follow | None, follow: Follow) -> None:
        if rule is None or not self.ops[i].operands:  # nothing would tell a block of an iota which one it is of
            raise _Conflict
        key = (rule.dim, Follow(0, follow.scale, follow.extent, follow.offset))
        if i in self.assigned:
            if self.assigned[i] != key:
                raise _Conflict
            return
        self.assigned[i] = key
        op, tiles = self.ops[i], self.rules[i]
        for values, rows in ((op.operands, tiles.operands), (op.results, tiles.results)):
            for v, row in zip(values, rows, strict=True):
                dims = [(d, f) for d, f in enumerate(row) if f is not None and f.dim == rule.dim]
                if len(dims) > 1:
                    raise _Conflict
                if dims:
                    self._set(v, _compose(key[1], dims[0][1], dims[0][0]))
                elif v in self.follows:
                    raise _Conflict
                else:
                    self.whole.add(v)

    def _use(self, i: int, v: int, follow: Follow) -> None:
        for position, operand in enumerate(self.ops[i].operands):
            if operand != v:
                continue
            rule = self.rules[i].operands[position][follow.dim]
            if rule is None:
                raise _Conflict
            if i not in self.assigned:
                if (rule.scale, rule.extent, rule.offset) != (1, 1, 0):
                    raise _Conflict
                self._assign(i, Follow(rule.dim), follow)
            elif self.assigned[i][0] != rule.dim or _compose(self.assigned[i][1], rule, follow.dim) != follow:
                raise _Conflict


def axes(ops: Sequence[BodyLike], types: Sequence[TT], outputs: Sequence[int]) -> list[Axis]:
    """The axes along which the body may be cut, in order of the dims of the first output.

    `types[v]` is the type of value v (inputs first). On every axis each output follows with scale 1 and extent 1.
    """
    rules = [tiling(op.name, op.attrs, [types[v] for v in op.operands], [types[v] for v in op.results]) for op in ops]
    tracer = _Tracer(ops, rules)
    first = outputs[0]
    found: list[Axis] = []
    for dim, size in enumerate(types[first].shape):
        if size == 1:
            continue
        try:
            follows = tracer.trace(first, dim)
        except _Conflict:
            continue
        if all((f := follows.get(v)) is not None and (f.scale, f.extent, f.offset) == (1, 1, 0) for v in outputs):
            found.append(Axis(size, follows))
    return found


def fit(name: str, attrs: Attrs, operands: Sequence[TT], results: Sequence[TT]) -> dict[str, Any]:
    """The op's attributes adjusted to blocks of another size; see `block_attrs`."""
    return dict(block_attrs(name, attrs, operands, results))


def cut(ops: Sequence[BodyLike], types: Sequence[TT], blocks: Iterable[tuple[Axis, int]]) -> tuple[TT, ...]:
    """Types of all values when each given axis is cut to a block of the given size."""
    shapes = [list(t.shape) for t in types]
    for axis, block in blocks:
        for v, follow in axis.follows.items():
            shapes[v][follow.dim] = axis.extent(v, block)
    return tuple(TT(tuple(s), t.dtype) for s, t in zip(shapes, types, strict=True))
