"""Refusals with reasons: the one error type a user of Headrace sees.

A refusal says its code (a kebab-case slug such as `unsupported-op`), the model location, what is wrong, why, and what
to do about it. Several offenders travel together in one `CompileError`, so that a user sees all of them at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One refusal. `location` is model text (node name, file:line) and may be empty; `why` and `fix` may be empty."""

    code: str
    what: str
    why: str = ""
    fix: str = ""
    location: str = ""

    def __str__(self) -> str:
        at = f" at {self.location}" if self.location else ""
        lines = [f"error[{self.code}]{at}: {self.what}"]
        if self.why:
            lines.append(f"  why: {self.why}")
        if self.fix:
            lines.append(f"  fix: {self.fix}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, str]:
        """The fields as a JSON-ready dictionary."""
        return {
            "code": self.code,
            "location": self.location,
            "what": self.what,
            "why": self.why,
            "fix": self.fix,
        }


class CompileError(Exception):
    """A refusal of the user's program, input or option; never a bug of ours. Command-line tools exit with code 2.

    >>> raise CompileError("unbound-dim", "input 'x' has an unbound dim 'batch'", fix="--dim batch=1")
    """

    diagnostics: tuple[Diagnostic, ...]

    def __init__(self, code: str, what: str, *, why: str = "", fix: str = "", location: str = "") -> None:
        self.diagnostics = (Diagnostic(code, what, why, fix, location),)
        super().__init__(str(self.diagnostics[0]))

    @classmethod
    def many(cls, diagnostics: Iterable[Diagnostic]) -> CompileError:
        """One error that carries all of `diagnostics`, in the order given."""
        found = tuple(diagnostics)
        error = cls.__new__(cls)
        error.diagnostics = found
        Exception.__init__(error, "\n".join(str(d) for d in found))
        return error

    @property
    def code(self) -> str:
        """Code of the first diagnostic."""
        return self.diagnostics[0].code

    @property
    def location(self) -> str:
        """Model location of the first diagnostic."""
        return self.diagnostics[0].location

    @property
    def what(self) -> str:
        """What is wrong, of the first diagnostic."""
        return self.diagnostics[0].what

    @property
    def why(self) -> str:
        """Why, of the first diagnostic."""
        return self.diagnostics[0].why

    @property
    def fix(self) -> str:
        """What to do, of the first diagnostic."""
        return self.diagnostics[0].fix


class Collector:
    """Gathers diagnostics so that all offenders are reported at once.

    >>> found = Collector(); found.add("x", "…"); found.raise_if_any()
    """

    def __init__(self) -> None:
        self.diagnostics: list[Diagnostic] = []

    def add(self, code: str, what: str, *, why: str = "", fix: str = "", location: str = "") -> None:
        """Record one offender."""
        self.diagnostics.append(Diagnostic(code, what, why, fix, location))

    def raise_if_any(self) -> None:
        """Raise one `CompileError` with everything recorded, or do nothing."""
        if self.diagnostics:
            raise CompileError.many(self.diagnostics)


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint `did you mean 'x'?` or the list of known names, for a misspelt `name`."""
    names = sorted(known)
    close = get_close_matches(name, names, n=1, cutoff=0.5)
    return f"did you mean '{close[0]}'?" if close else f"known: {', '.join(names)}"
