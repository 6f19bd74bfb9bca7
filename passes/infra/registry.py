"""Finds the passes: each file of `passes/{tensor,convert,dataflow,rdu}` that holds the pass named like it.

`passes/dataflow/cut_sections.py` with a class whose `name` is "cut-sections" is the pass cut-sections. Files of these
folders that hold no pass start with an underscore. Nothing is imported until a pass is used. Passes of others are
found by `passes.infra.plugins`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from pathlib import Path

from xdsl.passes import ModulePass
from xdsl.utils.arg_spec import ArgSpec, parse_pipeline
from xdsl.utils.exceptions import ArgSpecParseError

from headrace.dialects.support.diagnostics import Collector, CompileError, nearest
from headrace.passes.infra.plugins import DIALECTS, KINDS, PASSES, Plugin, of_file, plugins

LEVELS = ("tensor", "convert", "dataflow", "rdu")
Factory = Callable[[], type[ModulePass]]


class Lazy:
    """Imports a pass class when called."""

    def __init__(self, module: str, name: str) -> None:
        self.module = module
        self.name = name

    def __call__(self) -> type[ModulePass]:
        module = import_module(self.module)
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, ModulePass) and getattr(value, "name", "") == self.name:
                return value
        raise LookupError(f"{self.module} holds no pass named '{self.name}'")


def passes_in(folder: Path, package: str) -> dict[str, Factory]:
    """The passes of the files in one folder, by name, in alphabetical order."""
    found: dict[str, Factory] = {}
    for path in sorted(folder.glob("[!_]*.py")):
        name = path.stem.replace("_", "-")
        if re.search(rf"^    name\b.*= *[\"']{name}[\"']", path.read_text(encoding="utf-8"), re.M):
            found[name] = Lazy(f"{package}.{path.stem}", name)
    return found


@cache
def available() -> Mapping[str, Factory]:
    """All passes by name, level by level."""
    root = Path(__file__).parents[1]
    found: dict[str, Factory] = {}
    for level in LEVELS:
        found |= passes_in(root / level, f"headrace.passes.{level}")
    return found


def installed() -> dict[str, Plugin]:
    """The passes that other distributions offer, by name."""
    ours = available()
    return plugins(PASSES, lambda name: name in ours)


def loaded(places: Iterable[str]) -> tuple[dict[str, Plugin], dict[str, Plugin]]:
    """The passes and the dialects of Python files and modules. `CompileError` for one that cannot be loaded, and for
    names that are taken."""
    passes: dict[str, Plugin] = {}
    dialects: dict[str, Plugin] = {}
    found = Collector()
    for place in places:
        for group, known, new in zip((PASSES, DIALECTS), (passes, dialects), of_file(place), strict=True):
            for name, one in new.items():
                other = known.get(name)
                if other is None and group == PASSES and name in available():
                    other = Plugin(name, "headrace", one.load)
                if other is not None:
                    kind = KINDS[group]
                    what = f"{kind} '{name}' is offered by {other.source} and by {place}"
                    found.add("plugin-clash", what, fix=f"rename the {kind} in {place}")
                known[name] = one
    found.raise_if_any()
    return passes, dialects


def build(
    text: str, passes: Mapping[str, Factory] | None = None, pipelines: Mapping[str, str] | None = None
) -> tuple[ModulePass, ...]:
    """The passes of a pipeline text such as `fold-constants,tile{max-bytes=65536}`; pipeline names are expanded.

    Raises `CompileError` for text that does not parse, unknown names (with the nearest) and bad options, all at once.
    """
    return tuple(one for _, part in staged(text, passes, pipelines) for one in part)


def staged(
    text: str, passes: Mapping[str, Factory] | None = None, pipelines: Mapping[str, str] | None = None
) -> list[tuple[str, tuple[ModulePass, ...]]]:
    """What `build` gives, in parts: the passes of each pipeline that the text names, with its name, and those that
    stand for themselves, with an empty one."""
    passes = available() if passes is None else passes
    pipelines = pipelines or {}
    found = Collector()
    others: Mapping[str, Plugin] | None = None
    parts: list[tuple[str, list[ModulePass]]] = []
    for stage, spec in _expand(text, pipelines, ()):
        if not parts or parts[-1][0] != stage:
            parts.append((stage, []))
        built = parts[-1][1]
        factory: Factory | None = passes.get(spec.name)
        if factory is None:
            others = installed() if others is None else others
            factory = others.get(spec.name)
        if factory is None:
            close = get_close_matches(spec.name, [*passes, *pipelines, *(others or ())], 1, 0.5)
            fix = f"did you mean '{close[0]}'?" if close else "`headrace-opt --list-passes` lists them"
            found.add("unknown-pass", f"unknown pass '{spec.name}'", fix=fix)
            continue
        try:
            kind = factory()
            built.append(kind.from_spec(_widened(kind, spec)))
        except CompileError as error:
            found.diagnostics.extend(error.diagnostics)
        except ValueError as error:
            fix = f"`headrace-opt --help-pass {spec.name}` explains the options"
            what, hint = _bad_option(factory(), spec) or (str(error), fix)
            found.add("bad-option", f"{spec.name}: {what}", fix=hint or fix)
    found.raise_if_any()
    return [(stage, tuple(built)) for stage, built in parts]


def _widened(kind: type[ModulePass], spec: ArgSpec) -> ArgSpec:
    """The spec with whole numbers as floats where the option is a float."""
    floats = {f.name for f in dataclasses.fields(kind) if f.type in (float, "float")}
    parameters = {
        key: tuple(float(x) if type(x) is int else x for x in values) if key.replace("-", "_") in floats else values
        for key, values in spec.parameters.items()
    }
    return ArgSpec(spec.name, parameters)


def _bad_option(kind: type[ModulePass], spec: ArgSpec) -> tuple[str, str] | None:
    """What is wrong with the first bad option of a pass and a hint, in words of the command line; None for a fault
    that is not told apart."""
    fields = {f.name.replace("_", "-"): f for f in dataclasses.fields(kind) if f.name != "name" and f.init}
    for key, values in spec.parameters.items():
        name = key.replace("_", "-")
        if name not in fields:
            return f"there is no option '{name}'", nearest(name, fields) if fields else "it has no options"
        other = {k: v for k, v in spec.parameters.items() if k == key}
        try:
            kind.from_spec(_widened(kind, ArgSpec(spec.name, other)))
        except CompileError:
            continue
        except ValueError:
            shown, wanted = ",".join(map(str, values)), fields[name].type
            wanted = wanted if isinstance(wanted, str) else getattr(wanted, "__name__", str(wanted))
            return f"{name}={shown}: expected {wanted}", ""
    return None


def _expand(text: str, pipelines: Mapping[str, str], inside: tuple[str, ...]) -> list[tuple[str, ArgSpec]]:
    """The passes of a pipeline text, each with the name of the innermost pipeline that it comes from."""
    specs: list[tuple[str, ArgSpec]] = []
    for spec in _parse(text):
        if spec.name not in pipelines:
            specs.append((inside[-1] if inside else "", spec))
            continue
        if spec.name in inside:
            raise CompileError("bad-pipeline", f"pipeline '{spec.name}' contains itself")
        if spec.parameters:
            raise CompileError("bad-option", f"pipeline '{spec.name}' takes no options")
        specs += _expand(pipelines[spec.name], pipelines, (*inside, spec.name))
    return specs


def _parse(text: str) -> list[ArgSpec]:
    text = " ".join(text.split())
    text = re.sub(r"\s*,\s*(?=[A-Za-z])(?![^{]*})", ",", text)  # blanks after the commas between passes
    try:
        return list(parse_pipeline(text))
    except ArgSpecParseError as error:
        raise CompileError("bad-pipeline", f"cannot read the pipeline '{text}'", why=str(error).strip()) from None
