"""Canonicalization patterns of the tensor ops: rewrites at one level that terminate and never undo a pass.

`patterns("tensor.add")` gives those registered for an op by `@canonicalizes("tensor.add", …)`, `rules` the same with
what they look for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import NamedTuple

from xdsl.pattern_rewriter import PatternRewriter, RewritePattern


class Rule(NamedTuple):
    """A pattern, and the ops of which one must make an operand for it to apply; None when it needs none."""

    pattern: RewritePattern
    of: frozenset[str] | None


_rules: dict[str, list[Rule]] = {}


def canonicalizes(
    *names: str, of: Sequence[str] | None = None
) -> Callable[[type[RewritePattern]], type[RewritePattern]]:
    """Register a pattern class for ops: the driver tries it on those ops only. A pattern that applies only to operands
    made by certain ops names them in `of`: it need not be tried where no operand is."""

    def register(cls: type[RewritePattern]) -> type[RewritePattern]:
        makers = None if of is None else frozenset(of)
        for name in names:
            _rules.setdefault(name, []).append(Rule(cls(), makers))
        return cls

    return register


def decline(rewriter: PatternRewriter, reason: str) -> None:
    """Say why a pattern does not apply where one might expect it to, to a driver that keeps such reasons."""
    say: Callable[[str], None] | None = getattr(rewriter, "decline", None)
    if say is not None:
        say(reason)


MODULES = ("movement_patterns", "elementwise_patterns")
"""Where patterns are, beside this module."""


@cache
def _load() -> None:
    for module in MODULES:
        import_module(f"headrace.dialects.tensor.{module}")


def rules(name: str) -> tuple[Rule, ...]:
    """The patterns registered for the op `name`, each with the makers of operands that it is about."""
    _load()
    return tuple(_rules.get(name, ()))


def patterns(name: str) -> tuple[RewritePattern, ...]:
    """The patterns registered for the op `name`."""
    return tuple(rule.pattern for rule in rules(name))
