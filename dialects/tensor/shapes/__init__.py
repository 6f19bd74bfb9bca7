"""Shape, tiling and work rules of every tensor op: plain Python, no IR and no NumPy.

Each family file registers, per op name, a function that infers result types, one that says which dims may be cut into
blocks, and one that counts floating-point work. Verifiers, builders, importers, the mapping passes and the runtime all
ask here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from math import prod
from typing import Any, NamedTuple

FAMILIES = ("elementwise", "contraction", "reduction", "movement", "indexing", "random", "collective", "composite")
Attrs = Mapping[str, Any]


class TT(NamedTuple):
    """A tensor type: static shape and element type name."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def elements(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    def __str__(self) -> str:
        return f"tensor<{''.join(f'{n}x' for n in self.shape)}{self.dtype}>"


class ShapeError(Exception):
    """Operands or attributes that an op does not accept; the text says which and why."""


MOST_ELEMENTS = 1 << 42
"""More elements than any memory of a device holds: what has more is a mistake, and numbers derived from it overflow."""


def sized(type: TT) -> TT:
    """The type itself; `ShapeError` when it has more than `MOST_ELEMENTS` elements."""
    if type.elements > MOST_ELEMENTS:
        raise ShapeError(f"{type} has {type.elements} elements; at most {MOST_ELEMENTS} make sense")
    return type


@dataclass(frozen=True, slots=True)
class Follow:
    """An operand dim that follows parallel dim `dim`: the block [i, i+n) of that dim needs operand indices
    [i·scale + offset, (i+n-1)·scale + extent + offset)."""

    dim: int
    scale: int = 1
    extent: int = 1
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Tiling:
    """Which dims of an op may be cut into independent blocks.

    `dims` are the sizes of the parallel dims. For each operand and result dim there is a `Follow`, or None when the op
    needs (or makes) all of that dim in every block. Result dims follow with scale 1 and extent 1.
    """

    dims: tuple[int, ...]
    operands: tuple[tuple[Follow | None, ...], ...]
    results: tuple[tuple[Follow | None, ...], ...]


Infer = Callable[[Attrs, Sequence[TT]], "TT | tuple[TT, ...]"]
Tile = Callable[[Attrs, Sequence[TT], Sequence[TT]], Tiling]
Work = Callable[[Attrs, Sequence[TT], Sequence[TT]], int]
Adapt = Callable[[Attrs, Sequence[TT], Sequence[TT]], Attrs]
Join = Callable[[Attrs, Sequence[TT], Sequence[TT]], Attrs]

_infer: dict[str, Infer] = {}
_tiling: dict[str, Tile] = {}
_flops: dict[str, Work] = {}
_adapt: dict[str, Adapt] = {}
_join: dict[str, Join] = {}
_loaded = False


def _load() -> None:
    global _loaded
    if not _loaded:
        _loaded = True
        for family in FAMILIES:
            import_module(f"{__name__}.{family}")


def infers(*names: str) -> Callable[[Infer], Infer]:
    """Register the result-type rule of ops."""

    def register(rule: Infer) -> Infer:
        _infer.update(dict.fromkeys(names, rule))
        return rule

    return register


def tiles(*names: str) -> Callable[[Tile], Tile]:
    """Register the tiling rule of ops."""

    def register(rule: Tile) -> Tile:
        _tiling.update(dict.fromkeys(names, rule))
        return rule

    return register


def counts_flops(*names: str) -> Callable[[Work], Work]:
    """Register the work rule of ops (a multiply-add counts two)."""

    def register(rule: Work) -> Work:
        _flops.update(dict.fromkeys(names, rule))
        return rule

    return register


def adapts(*names: str) -> Callable[[Adapt], Adapt]:
    """Register the rule that gives the attributes of ops on a block (those that hold sizes)."""

    def register(rule: Adapt) -> Adapt:
        _adapt.update(dict.fromkeys(names, rule))
        return rule

    return register


def joins(*names: str) -> Callable[[Join], Join]:
    """Register the rule that gives the attributes of ops on the whole from those on a block (those that count what a
    block has less of)."""

    def register(rule: Join) -> Join:
        _join.update(dict.fromkeys(names, rule))
        return rule

    return register


def known(name: str) -> bool:
    """Whether there is a tensor op of this name."""
    _load()
    return name in _infer


def names() -> list[str]:
    """All op names that have a shape rule, in registration order."""
    _load()
    return list(_infer)


def infer(name: str, attrs: Attrs, operands: Sequence[TT]) -> tuple[TT, ...]:
    """Result types of an op; `ShapeError` says what is wrong with its operands or attributes."""
    _load()
    found = _infer[name](attrs, operands)
    return (sized(found),) if isinstance(found, TT) else tuple(map(sized, found))


def opaque_tiling(operands: Sequence[TT], results: Sequence[TT]) -> Tiling:
    """The tiling of an op that couples everything: no parallel dim."""
    return Tiling((), tuple((None,) * len(t.shape) for t in operands), tuple((None,) * len(t.shape) for t in results))


def tiling(name: str, attrs: Attrs, operands: Sequence[TT], results: Sequence[TT]) -> Tiling:
    """Which dims of the op may be cut; an op without a rule couples everything."""
    _load()
    rule = _tiling.get(name)
    return rule(attrs, operands, results) if rule else opaque_tiling(operands, results)


def flops(name: str, attrs: Attrs, operands: Sequence[TT], results: Sequence[TT]) -> int:
    """Floating-point operations; an op without a rule does one per result element."""
    _load()
    rule = _flops.get(name)
    return rule(attrs, operands, results) if rule else sum(t.elements for t in results)


def block_attrs(name: str, attrs: Attrs, operands: Sequence[TT], results: Sequence[TT]) -> Attrs:
    """Attributes of the same op on a block cut as `tiling` says; `operands` and `results` are types of the block. Most
    ops keep theirs; a reshape, a broadcast, a slice and an iota hold sizes."""
    _load()
    rule = _adapt.get(name)
    return rule(attrs, operands, results) if rule else attrs


def joined_attrs(name: str, attrs: Attrs, tiles: Sequence[TT], operands: Sequence[TT]) -> Attrs:
    """Attributes of the same op on whole `operands` when `attrs` are those on `tiles`, blocks of them: the way back
    from `block_attrs` for ops that have operands and spell no shape."""
    _load()
    rule = _join.get(name)
    return rule(attrs, tiles, operands) if rule else attrs
