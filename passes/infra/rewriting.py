"""Rewriting that keeps locations, explains itself and ends.

* Every op that a pattern inserts without a location gets the location of the op that was matched; the ops that replace
  another op get that op's; a pattern that merges several ops calls `rewriter.merging(…)` first, and the new op gets all
  of theirs, fused.
* A pattern that does not apply says why: `return rewriter.decline("…")`. What applied and what declined goes into the
  journal (`dialects/support/journal`) when one is on. Each rewrite, erasure and fold takes one of its fuel, and without
  fuel no pattern is run any more.
* A set of patterns that never comes to rest is stopped with the names of the patterns that turned in the circle.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.context import Context
from xdsl.dialects.builtin import LocationAttr, ModuleOp, UnknownLoc
from xdsl.folder import Folder
from xdsl.ir import Operation, OpResult, Region, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, PatternRewriterListener, PatternRewriteWalker, RewritePattern
from xdsl.rewriter import InsertPoint
from xdsl.traits import ConstantLike, HasCanonicalizationPatternsTrait, HasFolder
from xdsl.transforms.dead_code_elimination import is_trivially_dead

from headrace.dialects.support import journal, locations

REWRITES_PER_OP = 64
"""A set of patterns that needs more rewrites than this per op of the module is taken for a circle."""
REWRITES_AT_LEAST = 1024
PAIRS_MOST = 125_000
"""Rewrites granted beyond that, half the square of the ops, where each op may have to pass each other one: to patterns
that move ops, and make neither more nor others."""
SUSPICIOUS = 256
"""Rewrites, beside two per op, after which it is watched whether the patterns get anywhere."""
DEAD = "dead"
"""Stands for a pattern where an op goes that nothing needs."""
RETURNS_MOST = 8
"""An op that comes back to a state so often was rewritten in a circle."""


class EndlessRewrite(Exception):
    """A set of patterns that did not come to rest: a bug in them. Carries the pattern that applied most at the end, and
    where: name and model location of the op."""

    def __init__(self, why: str, last: Iterable[tuple[str, str, LocationAttr]]) -> None:
        turns = Counter((pattern, op, locations.text(where)) for pattern, op, where in last)
        self.patterns = tuple(dict.fromkeys(pattern for (pattern, _, _), _ in turns.most_common()))
        """The patterns that applied at the end, the most frequent first."""
        (self.pattern, self.op, self.location), _ = turns.most_common(1)[0]
        shown = "; ".join(
            f"{pattern} on '{op}' at {where or 'an unknown location'} ({n}×)"
            for (pattern, op, where), n in turns.most_common(4)
        )
        super().__init__(f"{why}; the last {turns.total()}: {shown}")


class Watchdog:
    """Tells patterns that turn in a circle from a long way to rest.

    It sleeps until there were many rewrites. From then on it follows what becomes of each op: an op that has the state
    it had before (name, attributes, types, and operands up to what replaced them) was rewritten for nothing, and one
    that was rewritten more often than there are ops to merge it with grows or counts without end. What neither catches
    ends at a limit of all rewrites. With a `region` growth all over it is looked for from half the limit on, stretch by
    stretch: a quarter of the rewrites may leave one op more, or an op such as was never there. Patterns that only move
    ops about get `more` rewrites.
    """

    def __init__(self, size: int, limit: int, region: Region | None = None, more: int = 0) -> None:
        self.limit = limit
        self.growth_at = limit // 2 if more else limit
        self.most = limit + (more if region is not None else 0)
        self.region = region
        self.stretch = SUSPICIOUS + 4 * size
        self.ops = 0
        """How many ops something needs, at the start of a stretch."""
        self.kinds: set[Hashable] = set()
        """Names, attributes and types of ops that are or were there."""
        self.news = 0
        """How many were added in the stretch."""
        self.awake_at = min(SUSPICIOUS + 2 * size, limit)
        self.deepest = SUSPICIOUS + 4 * size
        self.awake = False
        self.spent = 0
        self.last: deque[tuple[str, str, LocationAttr]] = deque(maxlen=64)
        self.returns: Counter[Hashable] = Counter()
        self.states: dict[Hashable, int] = {}
        self.same: dict[SSAValue, SSAValue] = {}
        """Values made since it woke → the older value that they replaced."""
        self.root: dict[Operation, Operation] = {}
        """Ops made since it woke → the older op that they replaced."""
        self.depth: dict[Operation, int] = {}
        """How many rewrites, one after the other, led to an op."""
        self.made: set[Operation] = set()

    def state(self, op: Operation) -> Hashable:
        """The state of an op before a pattern is tried on it; None for ops with regions, whose inside may change. It
        costs more than many a pattern, and is taken for a quarter of the rewrites when they are many."""
        often = self.depth.get(op, 0) % 256 < 64 and (self.spent < self.growth_at // 2 or self.spent & 768 == 0)
        if op.regions or not often:
            return None
        return self.root.get(op, op), self._state(op, 4, {})

    def _state(self, op: Operation, depth: int, seen: dict[tuple[SSAValue, int], Hashable]) -> int:
        """The number of a state; `seen` has the values that were met on the way to it."""
        attributes = *op.properties.items(), *op.attributes.items()
        types = tuple([result.type for result in op.results])
        operands = tuple([self._value(value, depth, seen) for value in op.operands])
        return self.states.setdefault((op.name, attributes, types, operands), len(self.states))

    def _value(self, value: SSAValue, depth: int, seen: dict[tuple[SSAValue, int], Hashable]) -> Hashable:
        value = self.same.get(value, value)
        if not (depth and isinstance(value, OpResult) and value.op in self.made):
            return value
        if (value, depth) not in seen:
            seen[value, depth] = self._state(value.op, depth - 1, seen), value.index
        return seen[value, depth]

    def inserted(self, op: Operation, matched: Operation | None) -> None:
        """An op was made while a pattern ran on `matched`."""
        self.made.add(op)
        self._note_kind(op)
        if matched is not None:
            self.depth[op] = self.depth.get(matched, 0) + 1

    def replaced(self, old: Operation, new: Operation) -> None:
        """An op without results took the place of another."""
        if new in self.made:
            self.root.setdefault(new, self.root.get(old, old))

    def stands_for(self, new: SSAValue, old: SSAValue) -> None:
        """A value took the place of another."""
        if isinstance(new, OpResult) and new.op in self.made and new not in self.same:
            self.same[new] = self.same.get(old, old)
            if isinstance(old, OpResult):
                self.replaced(old.op, new.op)

    def count(self, pattern: str, op: Operation, name: str, where: LocationAttr, state: Hashable) -> None:
        """A pattern rewrote `op`, which had this name, location and state. Raises `EndlessRewrite`."""
        self.spent += 1
        if self.spent < self.awake_at:
            return
        self.last.append((pattern, name, where))
        if not self.awake:
            self.awake = True
            return
        if self.spent > self.most:
            raise EndlessRewrite(f"no rest after {self.most} rewrites", self.last)
        if self.spent > self.growth_at and self.region is not None:
            self._look_for_growth(op)
        depth = self.depth[op] = self.depth.get(op, 0) + 1
        if depth > self.deepest:
            raise EndlessRewrite(f"no rest after {depth} rewrites one after the other at one op", self.last)
        if state is not None:
            self.returns[state] += 1
            if self.returns[state] >= RETURNS_MOST:
                raise EndlessRewrite(
                    f"no rest after {self.spent} rewrites: an op came back to the same state {RETURNS_MOST} times",
                    self.last,
                )

    def _look_for_growth(self, op: Operation) -> None:
        """After a rewrite of `op` when there were many."""
        region = self.region
        assert region is not None
        if self.kinds and op.parent is not None:
            self._note_kind(op)
        if (self.spent - self.growth_at - 1) % self.stretch:
            return
        ops = sum(1 for one in region.walk() if not is_trivially_dead(one))
        if self.kinds:
            for many, what in (
                (ops - self.ops, "there are more ops"),
                (self.news, "there are ops such as never before"),
            ):
                if 4 * many >= self.stretch:
                    raise EndlessRewrite(
                        f"no rest after {self.spent} rewrites: {what}, {many} of the last {self.stretch} made one",
                        self.last,
                    )
        else:
            self.kinds.update(_kind(one) for one in region.walk())
        self.ops, self.news = ops, 0

    def _note_kind(self, op: Operation) -> None:
        if self.kinds and not op.regions and (kind := _kind(op)) not in self.kinds:
            self.kinds.add(kind)
            self.news += 1


def _kind(op: Operation) -> Hashable:
    """Equal for ops of one name, attributes and types."""
    types = tuple([result.type for result in op.results])
    return op.name, *op.properties.items(), *op.attributes.items(), None, types


class LocatingRewriter(PatternRewriter):
    """The rewriter that patterns get: stamps locations, takes reasons."""

    location: LocationAttr = UnknownLoc()
    """Stamped on inserted ops that have no location."""
    pattern: str = ""
    matched: Operation | None = None
    watchdog: Watchdog | None = None
    """Set while it is awake."""

    def decline(self, reason: str) -> None:
        """Say why the running pattern does not apply to the matched op."""
        if self.matched is not None:
            journal.decline(self.pattern, self.matched, reason)

    def merging(self, *ops: Operation) -> None:
        """From here to the end of this match, inserted ops stand for all of `ops` (and the matched op)."""
        mine = [] if self.matched is None else [self.matched.location]
        self.location = locations.fuse([*(op.location for op in ops), *mine])

    def insert(self, op: Any, insertion_point: InsertPoint | None = None) -> Any:
        for new in (op,) if isinstance(op, Operation) else op:
            stamp(new, self.location)
            if self.watchdog is not None:
                self.watchdog.inserted(new, self.matched)
        return super().insert(op, insertion_point)

    def replace(
        self,
        op: Operation,
        new_ops: Operation | Sequence[Operation],
        new_results: Sequence[SSAValue | None] | None = None,
        safe_erase: bool = True,
    ) -> None:
        news = (new_ops,) if isinstance(new_ops, Operation) else new_ops
        if self.matched is None or op is not self.matched:
            for new in news:
                stamp(new, op.location)
        old = None if op.results else op
        super().replace(op, new_ops, new_results, safe_erase)
        if self.watchdog is not None and old is not None and news:
            self.watchdog.replaced(old, news[-1])

    def handle_operation_modification(self, op: Operation) -> None:
        self.has_done_action = True  # a pattern that calls it changed the op, and would turn unseen
        super().handle_operation_modification(op)

    def replace_all_uses_with(self, from_value: SSAValue, to_value: SSAValue | None, safe_erase: bool = True) -> None:
        if self.watchdog is not None and to_value is not None:
            self.watchdog.stands_for(to_value, from_value)
        super().replace_all_uses_with(from_value, to_value, safe_erase)


def stamp(op: Operation, location: LocationAttr) -> None:
    """Give `op` and the ops inside it `location` where they have none."""
    if not locations.is_known(op.location):
        op.location = location
    if op.regions:
        for inner in op.walk():
            if not locations.is_known(inner.location):
                inner.location = location


def attempt(pattern: RewritePattern, op: Operation, rewriter: LocatingRewriter) -> bool:
    """Run one pattern on `op`, for which the rewriter was set up; whether it did anything. An exception of the pattern
    gets a note that says which one it was, and where."""
    rewriter.pattern = type(pattern).__name__
    try:
        pattern.match_and_rewrite(op, rewriter)
    except Exception as error:
        _blame(error, rewriter, op)
        raise
    return rewriter.has_done_action


def _blame(error: Exception, rewriter: LocatingRewriter, op: Operation) -> None:
    where = locations.text(rewriter.location) or "an unknown location"
    error.add_note(f"in {rewriter.pattern} on '{op.name}' at {where}")


@dataclass(eq=False, repr=False)
class _Walker(PatternRewriteWalker):
    """xDSL's worklist driver with our rewriter, fuel, and an end."""

    watchdog: Watchdog | None = None

    def _process_worklist(self, listener: PatternRewriterListener) -> bool:
        changed = False
        watchdog = self.watchdog
        assert watchdog is not None
        rewriter: LocatingRewriter | None = None
        while self._worklist:
            op = self._worklist.pop()
            if journal.out_of_fuel():
                continue
            if rewriter is None:
                rewriter = LocatingRewriter(op)
                rewriter.extend_from_listener(listener)
            rewriter.has_done_action = False
            rewriter.matched = op
            rewriter.location = op.location
            rewriter.insertion_point = InsertPoint.before(op)
            rewriter.name_hint = None
            name, where = op.name, op.location
            state = None
            if watchdog.awake:
                rewriter.watchdog = watchdog
                state = watchdog.state(op)
            self.pattern.match_and_rewrite(op, rewriter)
            if rewriter.has_done_action:
                changed = True
                journal.made(rewriter.pattern, name, where)
                if rewriter.pattern != DEAD:  # what erases comes to rest
                    watchdog.count(rewriter.pattern, op, name, where, state)
        return changed


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
            rewriter.pattern = DEAD
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
        rewriter.pattern = "fold"
        try:
            folded = Folder(self.ctx).try_fold(op)
        except Exception as error:
            _blame(error, rewriter, op)
            raise
        if folded is None:
            return False
        values, ops = folded
        rewriter.replace(op, ops, values)
        return True

    @staticmethod
    def _first(patterns: Iterable[RewritePattern], op: Operation, rewriter: LocatingRewriter) -> bool:
        return any(attempt(pattern, op, rewriter) for pattern in patterns)


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
) -> bool:
    """Apply patterns to everything in `module` until nothing changes (or in a single walk: `once`); True if changed.

    `fold` runs the ops' folders (needs `ctx`), `dce` erases ops that are pure and unused, `canonical` runs the ops' own
    canonicalization patterns before the given ones. Raises `EndlessRewrite` for patterns that turn in a circle.
    """
    region = module.body if isinstance(module, ModuleOp) else module
    assert not fold or ctx is not None, "folding makes constants, for which it needs the context"
    size = sum(1 for _ in region.walk())
    limit = REWRITES_AT_LEAST + REWRITES_PER_OP * size
    walker = _Walker(
        _Patterns(tuple(patterns), ctx, fold, dce, canonical),
        apply_recursively=not once,
        walk_reverse=reverse,
        watchdog=Watchdog(size, limit, region, min(size * size // 2, PAIRS_MOST)),
    )
    return walker.rewrite_region(region)


def canonicalize(ctx: Context, module: ModuleOp) -> bool:
    """Folders, canonicalization patterns and dead code, to rest; True if changed."""
    return rewrite(module, (), ctx=ctx, fold=True, dce=True, canonical=True)


def lower(module: ModuleOp, handlers: Mapping[type[Operation], Callable[[Any, LocatingRewriter], None]]) -> bool:
    """One walk over the ops as they stand, each given to the handler of its class: for one-shot lowerings.

    Faster than `rewrite` (no worklist, no pattern matching); ops that a handler makes are not visited.
    """
    changed = False
    for op in list(module.walk()):
        handler = handlers.get(type(op))
        if handler is None or (op.parent is None and op is not module):
            continue
        if journal.out_of_fuel():
            break
        rewriter = LocatingRewriter(op)
        rewriter.matched, rewriter.location = op, op.location
        rewriter.pattern = getattr(handler, "__name__", type(handler).__name__)
        name, where = op.name, op.location
        try:
            handler(op, rewriter)
        except Exception as error:
            _blame(error, rewriter, op)
            raise
        if rewriter.has_done_action:
            changed = True
            journal.made(rewriter.pattern, name, where)
    return changed
