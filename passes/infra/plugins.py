"""Passes and dialects from outside: entry points of installed distributions, and Python files.

A distribution offers them in its `pyproject.toml`; the name of an entry is the name of the pass or the dialect:

    [project.entry-points."headrace.passes"]
    swap-operands = "my_package.swap:SwapOperandsPass"
    [project.entry-points."headrace.dialects"]
    my = "my_package.dialect:My"

Distributions are looked at only when a name is not one of ours, and when passes are listed. What cannot be used is told
by the distribution that offers it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeGuard

from xdsl.ir import Dialect
from xdsl.passes import ModulePass

from headrace.dialects.support.diagnostics import CompileError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

PASSES = "headrace.passes"
DIALECTS = "headrace.dialects"
KINDS = {PASSES: "pass", DIALECTS: "dialect"}
OURS = "headrace"


@dataclass(frozen=True)
class Plugin:
    """A pass or dialect of others: its name, where it comes from, and what imports it (`CompileError` when it cannot
    be used)."""

    name: str
    source: str
    load: Callable[[], Any]

    def __call__(self) -> Any:
        return self.load()


def plugins(group: str, ours: Callable[[str], bool]) -> dict[str, Plugin]:
    """What installed distributions offer as `PASSES` or `DIALECTS`, by name. A name that several offer, or that is one
    of ours, is there too, and refused when it is used."""
    from importlib.metadata import distributions

    found: dict[str, list[tuple[str, EntryPoint]]] = {}
    unreadable: dict[str, Plugin] = {}
    seen: set[str] = set()
    for one in distributions():
        source = ""
        try:
            source = f"{one.name} {one.version}" if one.metadata["Name"] else str(one.locate_file(""))
            if source in seen:  # a folder that is on the path twice, or one that another hides
                continue
            seen.add(source)
            for entry in one.entry_points.select(group=group):
                found.setdefault(entry.name, []).append((source, entry))
        except Exception as error:  # whatever is wrong with its files
            source = source or str(one.locate_file(""))
            name = f"entry points of {source}"
            unreadable[name] = Plugin(name, source, partial(_refuse_unreadable, name, error))
    return {name: _plugin(group, entries, ours(name)) for name, entries in sorted(found.items())} | unreadable


def _refuse_unreadable(name: str, error: Exception) -> None:
    raise CompileError("broken-plugin", f"{name} cannot be read", why=f"{type(error).__name__}: {error}")


def _plugin(group: str, entries: list[tuple[str, EntryPoint]], taken: bool) -> Plugin:
    source, entry = entries[0]
    name = entry.name
    sources = [*([OURS] if taken else []), *(source for source, _ in entries)]
    if len(sources) > 1:
        return Plugin(name, " and ".join(sources), lambda: _refuse_clash(group, name, sources))
    return Plugin(name, source, lambda: _load(group, source, entry))


def _refuse_clash(group: str, name: str, sources: list[str]) -> None:
    others = [source for source in sources if source != OURS]
    raise CompileError(
        "plugin-clash",
        f"{KINDS[group]} '{name}' is offered by {' and by '.join(sources)}",
        fix=f"uninstall {' or '.join(one.partition(' ')[0] for one in others)}",
    )


def _load(group: str, source: str, entry: EntryPoint) -> Any:
    """The class of a pass, or the dialect. `CompileError` names the distribution."""
    kind, name = KINDS[group], entry.name

    def broken(why: str) -> CompileError:
        fix = f"mend or uninstall {source.partition(' ')[0]}"
        return CompileError("broken-plugin", f"{kind} '{name}' of {source} cannot be used", why=why, fix=fix)

    if entry.pattern.match(entry.value) is None:
        raise broken(f"its entry point '{entry.value}' is not of the form package.module:Name")
    try:
        loaded: Any = entry.load()
    except (Exception, SystemExit) as error:  # whatever its modules do when they are imported
        raise broken(f"loading {entry.value} raised {type(error).__name__}: {error}") from error
    wanted = _is_pass(loaded) if group == PASSES else isinstance(loaded, Dialect)
    if not wanted:
        raise broken(f"{entry.value} is no {'class of a pass' if group == PASSES else 'Dialect'}: {loaded!r}")
    if loaded.name != name:
        raise broken(f"{entry.value} calls itself '{loaded.name}'; the entry must have that name")
    return loaded


def _is_pass(value: object) -> TypeGuard[type[ModulePass]]:
    return isinstance(value, type) and issubclass(value, ModulePass) and isinstance(getattr(value, "name", None), str)


def of_file(place: str) -> tuple[dict[str, Plugin], dict[str, Plugin]]:
    """The passes and the dialects that a Python file, or a module by name, defines. `CompileError` when it cannot be
    loaded or defines none."""
    module = _imported(place)
    passes: dict[str, Plugin] = {}
    dialects: dict[str, Plugin] = {}
    for value in list(vars(module).values()):
        if _is_pass(value) and value.__module__ == module.__name__:
            _add(passes, PASSES, Plugin(value.name, place, partial(_itself, value)))
        elif isinstance(value, Dialect):
            _add(dialects, DIALECTS, Plugin(value.name, place, partial(_itself, value)))
    if not passes and not dialects:
        raise CompileError(
            "broken-plugin",
            f"{place} defines no pass and no dialect",
            fix="a pass is a class with a `name` that derives from headrace.passes.infra.base.Pass",
        )
    return passes, dialects


def _itself(value: Any) -> Any:
    return value


def _add(found: dict[str, Plugin], group: str, one: Plugin) -> None:
    if one.name in found:
        raise CompileError(
            "plugin-clash", f"{KINDS[group]} '{one.name}' is there twice in {one.source}", fix="rename one of them"
        )
    found[one.name] = one


def _imported(place: str) -> ModuleType:
    from importlib.util import module_from_spec, spec_from_file_location

    path = Path(place)
    if path.suffix == ".py" and not path.is_file():
        raise CompileError("cannot-read", f"plugin {place}: there is no such file")
    try:
        if path.suffix != ".py":
            return import_module(place)
        spec = spec_from_file_location(f"headrace_plugin_{path.stem}", path)
        assert spec is not None and spec.loader is not None
        module = module_from_spec(spec)
        sys.modules[spec.name] = module  # dataclasses look their module up
        spec.loader.exec_module(module)
        return module
    except (Exception, SystemExit) as error:  # whatever it does when it is imported
        line = error.__traceback__
        while line is not None and line.tb_next is not None:
            line = line.tb_next
        at = f"{line.tb_frame.f_code.co_filename}:{line.tb_lineno}" if line is not None else ""
        raise CompileError(
            "broken-plugin", f"{place} cannot be loaded", why=f"{type(error).__name__}: {error}", location=at
        ) from error
