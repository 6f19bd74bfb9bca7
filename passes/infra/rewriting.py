"""Rewriting that keeps locations, explains itself and ends.

* Every op that a pattern inserts without a location gets the location of the op that was matched; the ops that replace
  another op get that op's; a pattern that merges several ops calls `rewriter.merging(…)` first, and the new op gets all
  of theirs, fused.
* A pattern that does not apply says why: `return rewriter.decline("…")`.
* A set of patterns that never comes to rest is stopped with the names of the patterns that turned in the circle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from xdsl.context import Context
from xdsl.dialects.builtin import LocationAttr, ModuleOp, UnknownLoc
from xdsl.folder import Folder
from xdsl.ir import Operation, Region, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, PatternRewriterListener, PatternRewriteWalker, RewritePattern
from xdsl.rewriter import InsertPoint
from xdsl.traits import ConstantLike, HasCanonicalizationPatternsTrait, HasFolder
from xdsl.transforms.dead_code_elimination import is_trivially_dead, region_dce

from headrace.dialects.support import locations

REWRITES_PER_OP = 64  # a rewrite set that needs more than this per op of the module is taken for a circle
REWRITES_AT_LEAST = 1024


class EndlessRewrite(Exception):
    """A set of patterns that did not come to rest: a bug in them."""


@dataclass
class Journal:
    """What patterns did: how often each applied, and why it declined where it declined."""

    applied: Counter[str] = field(default_factory=Counter[str])
    declined: Counter[tuple[str, str, str]] = field(default_factory=Counter[tuple[str, str, str]])
    """(pattern, model location of the op, reason) → times."""

    def why(self, location: str) -> list[str]:
        """The reasons given at ops of this location, as lines `pattern: reason`."""
        return [f"{pattern}: {reason}" for pattern, at, reason in self.declined if at == location]


class LocatingRewriter(PatternRewriter):
    """The rewriter that patterns get: stamps locations, takes reasons."""

    location: LocationAttr = UnknownLoc()
    """Stamped on inserted ops that have no location."""
    journal: Journal | None = None
    pattern: str = ""
    matched: Operation | None = None

    def decline(self, reason: str) -> None:
        """Say why the running pattern does not apply to the matched op."""
        if self.journal is not None and self.matched is not None:
            self.journal.declined[self.pattern, locations.of(self.matched), reason] += 1

    def merging(self, *ops: Operation) -> None:
        """From here to the end of this match, inserted ops stand for all of `ops` (and the matched op)."""
        mine = [] if self.matched is None else [self.matched.location]
        self.location = locations.fuse([*(op.location for op in ops), *mine])

    def insert(self, op: Any, insertion_point: InsertPoint | None = None) -> Any:
        for new in (op,) if isinstance(op, Operation) else op:
            stamp(new, self.location)
        return super().insert(op, insertion_point)

    def replace(
        self,
        op: Operation,
        new_ops: Operation | Sequence[Operation],
        new_results: Sequence[SSAValue | None] | None = None,
        safe_erase: bool = True,
    ) -> None:
        if self.matched is None or op is not self.matched:
            for new in (new_ops,) if isinstance(new_ops, Operation) else new_ops:
                stamp(new, op.location)
        super().replace(op, new_ops, new_results, safe_erase)


def stamp(op: Operation, location: LocationAttr) -> None:
    """Give `op` and the ops inside it `location` where they have none."""
    if not locations.is_known(op.location):
        op.location = location
    if op.regions:
        for inner in op.walk():
            if not locations.is_known(inner.location):
                inner.location = location


@dataclass(eq=False, repr=False)
class _Walker(PatternRewriteWalker):
    """xDSL's worklist driver with our rewriter, a journal and an end."""

    journal: Journal | None = None
    limit: int = REWRITES_AT_LEAST
    _spent: int = 0
    _recent: list[str] = field(default_factory=list[str])

    def _process_worklist(self, listener: PatternRewriterListener) -> bool:
        changed = False
        rewriter: LocatingRewriter | None = None
        while self._worklist:
            op = self._worklist.pop()
            if rewriter is None:
                rewriter = LocatingRewriter(op)
                rewriter.extend_from_listener(listener)
                rewriter.journal = self.journal
            rewriter.has_done_action = False
            rewriter.matched = op
            rewriter.location = op.location
            rewriter.insertion_point = InsertPoint.before(op)
            rewriter.name_hint = None
            name, where = op.name, op.location
            self.pattern.match_and_rewrite(op, rewriter)
            if rewriter.has_done_action:
                changed = True
                self._count(rewriter.pattern, name, where)
        return changed

    def _count(self, pattern: str, op: str, where: LocationAttr) -> None:
        if self.journal is not None:
            self.journal.applied[pattern] += 1
        self._spent += 1
        if self._spent > self.limit - 64:
            self._recent.append(f"{pattern} on '{op}' at {locations.text(where) or 'an unknown location'}")
        if self._spent > self.limit:
            turns = "; ".join(f"{what} ({n}×)" for what, n in Counter(self._recent).most_common(4))
            raise EndlessRewrite(f"no rest after {self.limit} rewrites; the last 64: {turns}")


@dataclass(eq=False, repr=False)
class _Patterns(RewritePattern):
    """Tries, in this order: erase a dead op, fold it, its own canonicalization patterns, the given patterns."""

    patterns: tuple[RewritePattern, ...]
    ctx: Context | None
    fold: bool
    dce: bool
    canonical: bool

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        assert isinstance(rewriter, LocatingRewriter)
        if self.dce and is_trivially_dead(op):
            rewriter.pattern = "dead"
            rewriter.erase(op)
            return
        if self.fold and self._fold(op, rewriter):
            return
        if self.canonical:
            for trait in op.get_traits_of_type(HasCanonicalizationPatternsTrait):
                if self._first(trait.get_patterns(type(op)), op, rewriter):
                    return
        self._first(self.patterns, op, rewriter)

    def _fold(self, op: Operation, rewriter: LocatingRewriter) -> bool:
        if not op.has_trait(HasFolder, value_if_unregistered=False):
            return False
        if op.has_trait(ConstantLike, value_if_unregistered=True) or self.ctx is None:
            return False
        folded = Folder(self.ctx).try_fold(op)
        if folded is None:
            return False
        rewriter.pattern = "fold"
        values, ops = folded
        rewriter.replace(op, ops, values)
        return True

    @staticmethod
    def _first(patterns: Iterable[RewritePattern], op: Operation, rewriter: LocatingRewriter) -> bool:
        for pattern in patterns:
            rewriter.pattern = type(pattern).__name__
            pattern.match_and_rewrite(op, rewriter)
            if rewriter.has_done_action:
                return True
        return False


def rewrite(
    module: ModuleOp | Region,
    patterns: Iterable[RewritePattern],
    *,
    ctx: Context | None = None,
    fold: bool = False,
    dce: bool = False,
    canonical: bool = False,
    once: bool = False,
    reverse: bool = False,
    journal: Journal | None = None,
) -> bool:
    """Apply patterns to everything in `module` until nothing changes (or in a single walk: `once`); True if changed.

    `fold` runs the ops' folders (needs `ctx`), `dce` erases dead ops, `canonical` runs the ops' own canonicalization
    patterns before the given ones. Raises `EndlessRewrite` for patterns that turn in a circle.
    """
    region = module.body if isinstance(module, ModuleOp) else module
    assert not fold or ctx is not None, "folding makes constants, for which it needs the context"
    size = sum(1 for _ in region.walk())
    walker = _Walker(
        _Patterns(tuple(patterns), ctx, fold, dce, canonical),
        apply_recursively=not once,
        walk_reverse=reverse,
        post_walk_func=region_dce if dce and not once else None,
        journal=journal,
        limit=REWRITES_AT_LEAST + REWRITES_PER_OP * size,
    )
    return walker.rewrite_region(region)


def canonicalize(ctx: Context, module: ModuleOp, journal: Journal | None = None) -> bool:
    """Folders, canonicalization patterns and dead code, to rest; True if changed."""
    return rewrite(module, (), ctx=ctx, fold=True, dce=True, canonical=True, journal=journal)


def lower(
    module: ModuleOp,
    handlers: Mapping[type[Operation], Callable[[Any, LocatingRewriter], None]],
    journal: Journal | None = None,
) -> bool:
    """One walk over the ops as they stand, each given to the handler of its class: for one-shot lowerings.

    Faster than `rewrite` (no worklist, no pattern matching); ops that a handler makes are not visited.
    """
    changed = False
    for op in list(module.walk()):
        handler = handlers.get(type(op))
        if handler is None or (op.parent is None and op is not module):
            continue
        rewriter = LocatingRewriter(op)
        rewriter.journal, rewriter.matched, rewriter.location = journal, op, op.location
        rewriter.pattern = getattr(handler, "__name__", type(handler).__name__)
        handler(op, rewriter)
        if rewriter.has_done_action:
            changed = True
            if journal is not None:
                journal.applied[rewriter.pattern] += 1
    return changed
