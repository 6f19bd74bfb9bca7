"""Canonicalization patterns of the tensor ops: rewrites at one level that terminate and never undo a pass.

`patterns("tensor.add")` gives those registered for an op by `@canonicalizes("tensor.add", …)`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module

from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

_patterns: dict[str, list[RewritePattern]] = {}


def canonicalizes(*names: str) -> Callable[[type[RewritePattern]], type[RewritePattern]]:
    """Register a pattern class for ops: the driver tries it on those ops only."""

    def register(cls: type[RewritePattern]) -> type[RewritePattern]:
        for name in names:
            _patterns.setdefault(name, []).append(cls())
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


def patterns(name: str) -> tuple[RewritePattern, ...]:
    """The patterns registered for the op `name`."""
    _load()
    return tuple(_patterns.get(name, ()))
