"""What a pass is: a named, frozen dataclass; its fields are options, and `run` says whether it changed anything."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from headrace.dialects.support.diagnostics import Collector, CompileError
from headrace.passes.infra.legality import Legality


@dataclass(frozen=True)
class Pass(ModulePass):
    """Base of all passes.

    A pass is one file; `cut-sections` is `passes/<level>/cut_sections.py` with one class whose `name` is the file's
    stem with hyphens (that is how the registry finds it). Its docstring has one line, then what it assumes, then before
    and after. Options are fields made by `option`.

    `requires` and `ensures` say which ops may be in the module before and after; the pass manager checks them when it
    verifies after each pass.
    """

    requires: ClassVar[Legality | None] = None
    ensures: ClassVar[Legality | None] = None
    rounds: ClassVar[str] = ""
    """The element type that the pass rounds values to on purpose, if it does so: results change by as much."""

    def __post_init__(self) -> None:
        found = Collector()
        for field in dataclasses.fields(self):
            _check_range(self.name, field, getattr(self, field.name), found)
        found.raise_if_any()

    @abstractmethod
    def run(self, ctx: Context, module: ModuleOp) -> bool:
        """Rewrite `module` in place; return whether anything changed. Raise `CompileError` to refuse the program."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        self.run(ctx, op)


def option(
    default: Any,
    help: str,
    *,
    unit: str = "",
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
) -> Any:
    """A pass option: a dataclass field with a default, a help line, and the unit, inclusive range or choices it has."""
    metadata = {"help": help, "unit": unit, "low": low, "high": high, "choices": choices}
    return dataclasses.field(default=default, metadata=metadata)


def _check_range(name: str, field: dataclasses.Field[Any], value: Any, found: Collector) -> None:
    low, high = field.metadata.get("low"), field.metadata.get("high")
    choices = field.metadata.get("choices") or ()
    flag = field.name.replace("_", "-")
    for item in cast("tuple[Any, ...]", value) if isinstance(value, tuple) else (value,):
        if item is None:
            continue
        if choices and item not in choices:
            found.add("bad-option", f"{name}: {flag}={item} is not one of {', '.join(choices)}")
        if (low is not None and item < low) or (high is not None and item > high):
            allowed = " and ".join([f"at least {low}"] * (low is not None) + [f"at most {high}"] * (high is not None))
            found.add("bad-option", f"{name}: {flag}={item} must be {allowed}")


__all__ = ["CompileError", "Legality", "Pass", "option"]
