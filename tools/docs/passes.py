"""The pages of passes and pipelines, the help of a pass, and the picture of the pipeline.

The example of a pass is taken from its lit test and run: the smallest function that the pass changes, before and after;
of a pass that only checks, the first program of its invalid test and what it says.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import io
import re
import shlex
import textwrap
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from inspect import getsource
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass

from headrace import passes as package
from headrace.dialects.support.diagnostics import CompileError, nearest
from headrace.passes import pipelines as named
from headrace.passes.infra.base import Pass
from headrace.passes.infra.legality import Legality
from headrace.passes.infra.manager import PassBug, PassManager
from headrace.passes.infra.registry import LEVELS, Factory, available, build, installed, passes_in
from headrace.tools.docs.ops import UNDOCUMENTED, docstring, fenced
from headrace.tools.opt.driver import SPLIT
from headrace.tools.opt.expectations import EXPECTED
from headrace.tools.opt.parsing import Refused, context, parse

MOST_LINES = 32
"""Lines of an example; a longer one is shown as a difference, and cut."""
ABOUT = {
    "tensor": "whole tensors: simplify, fuse, share layers",
    "convert": "from one level to the next",
    "dataflow": "sections, stages, buffers: tile, cut, spread, size",
    "rdu": "units, flows, launches: split, allocate, place, route",
}


class Example(NamedTuple):
    """An executed example: the pass with its options, what it was run on, and what came out."""

    spec: str
    before: str
    after: str
    refused: bool = False

    def lines(self) -> list[str]:
        """The example as text; IR is indented."""
        size = self.before.count("\n") + self.after.count("\n")
        if self.refused:
            return [*_block(f"`{self.spec}` refuses", self.before), *_block("with", self.after)]
        if size <= MOST_LINES:
            return [*_block(f"Before `{self.spec}`:", self.before), *_block("After:", self.after)]
        lines = difflib.unified_diff(self.before.splitlines(), self.after.splitlines(), lineterm="", n=1)
        shown = [line for line in lines if not line.startswith(("---", "+++"))]
        cut = [*shown[:MOST_LINES], *(["…"] if len(shown) > MOST_LINES else [])]
        return _block(f"What `{self.spec}` changes:", "\n".join(cut))


def _block(title: str, text: str) -> list[str]:
    return [title, "", *(f"    {line}" for line in text.splitlines()), ""]


def page(root: Path) -> str:
    """The list of passes by level."""
    lines = ["# Passes", "", "`headrace-opt --help-pass NAME` prints the same.", ""]
    levels = {level: passes_in(root / "passes" / level, f"headrace.passes.{level}") for level in LEVELS}
    for level, found in levels.items():
        links = ", ".join(f"[{name}](#{name})" for name in found)
        lines.append(f"* {level} ({ABOUT[level]}): {links}")
    lines += ["* in the order in which they run: [the pipeline](pipeline.md)", ""]
    for level, found in levels.items():
        lines += [f"## {level}", ""]
        for name, factory in found.items():
            lines += [f"### `{name}`", "", *fenced(pass_lines(factory(), root))]
    return "\n".join(lines).rstrip() + "\n"


def pass_help(name: str, more: Mapping[str, Factory] | None = None) -> str:
    """What the page says about one pass, as text; for a pipeline its passes. `more` are passes beside ours and those
    of other distributions. `CompileError` for an unknown name."""
    known: dict[str, Factory] = {**available(), **(more or {})}
    if name not in known and name not in named.PIPELINES:
        known |= installed()
    if name in named.PIPELINES:
        return f"{name} is a pipeline:\n{named.PIPELINES[name]}"
    if name not in known:
        raise CompileError("unknown-pass", f"unknown pass '{name}'", fix=nearest(name, [*known, *named.PIPELINES]))
    root = Path(package.__file__ or "").parents[1]
    return "\n".join([name, "", *pass_lines(known[name](), root)]).rstrip()


def pass_lines(kind: type[ModulePass], root: Path) -> Iterator[str]:
    """One pass: docstring, options, which ops may be there before and after, and an example that was run."""
    yield from (*docstring(kind), "")
    fields = [f for f in dataclasses.fields(kind) if f.name != "name" and f.init]
    yield from ("Options:", "", *map(_option, fields), "") if fields else ("It has no options.", "")
    if issubclass(kind, Pass):
        for title, rule in (("Requires", kind.requires), ("Ensures", kind.ensures)):
            if rule is not None:
                yield from (f"{title}: {_rule(rule)}", "")
    found = example(kind, root)
    if found is not None:
        yield from found.lines()


def _option(field: dataclasses.Field[Any]) -> str:
    meta = field.metadata
    kind = field.type if isinstance(field.type, str) else getattr(field.type, "__name__", str(field.type))
    default = "required" if field.default is dataclasses.MISSING else f"default {_spelt(field.default)}"
    low, high = meta.get("low"), meta.get("high")
    span = f", {'' if low is None else low}..{'' if high is None else high}" if (low, high) != (None, None) else ""
    choices = f", one of {' | '.join(meta['choices'])}" if meta.get("choices") else ""
    unit = f", {meta['unit']}" if meta.get("unit") else ""
    about = f": {meta['help']}" if meta.get("help") else ""
    return f"* `{field.name.replace('_', '-')}` ({kind}, {default}{span}{choices}{unit}){about}"


def _spelt(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(map(_spelt, value)) or "none"  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return str(value)


def _rule(rule: Legality) -> str:
    legal = ", ".join(f"`{n}`" for n in sorted({*rule.dialects, *rule.ops})) or "any op"
    return legal + (f", without {', '.join(f'`{n}`' for n in sorted(rule.illegal))}" if rule.illegal else "") + "."


# ----------------------------------------------------------------------------------------------------------- examples


def example(kind: type[ModulePass], root: Path) -> Example | None:
    """An example from the lit test of a pass; None where there is no test (an installed Headrace has none)."""
    stem = kind.name.replace("-", "_")
    for folder in root.joinpath("test", "passes").glob("*"):
        path = folder / f"{stem}.mlir"
        if not path.exists():
            continue
        found = _changed(path, kind.name)
        invalid = folder / f"{stem}_invalid.mlir"
        return found or (_refused(invalid, kind.name) if invalid.exists() else None)
    return None


def _calls(text: str, name: str) -> Iterator[list[ModulePass]]:
    """The pipelines of a test's RUN lines that run a pass, each up to it."""
    for line in re.findall(r"^// RUN:.*?headrace-opt(.*?)(?:\||$)", text, re.M):
        words = shlex.split(line)
        if "-p" not in words:
            continue
        passes = build(words[words.index("-p") + 1], pipelines=named.PIPELINES)
        names = [one.name for one in passes]
        if name in names:
            yield [*passes[: names.index(name) + 1]]


def _changed(path: Path, name: str) -> Example | None:
    """The smallest function (or group of ops at the top) of a test that the pass changes."""
    text = path.read_text(encoding="utf-8")
    passes = next(_calls(text, name), None)
    if passes is None:
        return None
    found: list[Example] = []
    for chunk in SPLIT.split(text):
        try:
            module, _ = parse(context(), chunk, path.name)
        except Refused:
            continue
        for part in _parts(module):
            try:
                PassManager(context(), passes[:-1]).run(part)
                before = _text(part)
                PassManager(context(), passes[-1:]).run(part)
            except (CompileError, PassBug):  # what it calls is not in this part
                continue
            after = _text(part)
            if after and after != before:
                found.append(Example(str(passes[-1]), before, after))
    return min(found, key=lambda one: one.before.count("\n") + one.after.count("\n"), default=None)


def _parts(module: ModuleOp) -> list[ModuleOp]:
    """A module for each op at the top alone, and the whole module."""
    found = [module.clone()]
    for number, _ in enumerate(module.body.block.ops):
        part = module.clone()
        ops = [*part.body.block.ops]
        for other in (*ops[:number], *ops[number + 1 :]):
            other.detach()
            other.erase(safe_erase=False)
        found.append(part)
    return found


def _refused(path: Path, name: str) -> Example | None:
    """The first program of a test of refusals, and what the pass says to it."""
    text = path.read_text(encoding="utf-8")
    passes = next(_calls(text, name), None)
    if passes is None:
        return None
    chunk = SPLIT.split(text)[0]
    module, _ = parse(context(), chunk, path.name)
    try:
        PassManager(context(), passes).run(module)
    except CompileError as error:
        code = [line for line in chunk.splitlines() if not line.startswith("// RUN") and not EXPECTED.search(line)]
        shown = "\n".join(map(str, error.diagnostics))
        return Example(str(passes[-1]), "\n".join(code).strip(), shown, refused=True)
    return None


def _text(module: ModuleOp) -> str:
    return "\n".join(map(_op_text, module.body.block.ops))


def _op_text(op: Operation) -> str:
    from xdsl.printer import Printer

    out = io.StringIO()
    Printer(out).print_op(op)
    return out.getvalue()


def faults() -> list[str]:
    """Each pass without a docstring."""
    return [f"undocumented: {name}" for name, factory in available().items() if docstring(factory()) == [UNDOCUMENTED]]


# ----------------------------------------------------------------------------------------------------------- pipeline


def pipeline_page() -> str:
    """The phases in order, what each takes and gives, and the reason why each pass stands where it stands."""
    reasons = _reasons()
    lines = ["# The pipeline", "", "![The phases and their passes](pipeline.svg)", ""]
    lines += [
        f"`headrace-opt -p default` runs all of it, and `-p {'`, `-p '.join(named.PHASES)}` one phase. Where a phase",
        "ends one may stop and go on: `headrace compile --to=PHASE` and `--from=PHASE`, where PHASE is",
        f"{_either(named.NAMES)}. A text below is what `-p` takes, to be changed and cut at will. A module",
        "that is not what a phase takes is refused with every op that should not be there.",
        "",
    ]
    for phase in named.PHASES.values():
        lines += [f"## {phase.name}", "", f"Takes: {_meaning(phase.takes)}", "", f"Gives: {_meaning(phase.gives)}", ""]
        lines += ["| pass | does | why here |", "|---|---|---|"]
        for number, name in enumerate(phase.passes):
            about = " ".join(docstring(available()[name]())).partition(". ")[0].rstrip(".")
            lines.append(f"| [{name}](passes.md#{name}) | {about} | {reasons[phase.name][number]} |")
        lines += ["", "```text", *textwrap.wrap(phase.text.replace(",", ", "), 100), "```", ""]
    return "\n".join(lines).rstrip() + "\n"


def _either(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names[:-1]) + f" or `{names[-1]}`"


def _meaning(rule: Legality) -> str:
    """A rule of `passes/pipelines.py` as the docstring below it says, and the ops that it allows."""
    where: dict[str, Legality] = {"": rule, **rule.inside}
    about = ""
    names = [name for name, value in vars(named).items() if value is rule]
    body = ast.parse(getsource(named)).body
    for one, after in pairwise(body):
        if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) in names and isinstance(after, ast.Expr):
            about = str(ast.literal_eval(after.value)).rstrip(".") + ": "
    parts = [f"{f'directly in `{op}` ' if op else ''}{_rule(one).rstrip('.')}" for op, one in where.items()]
    return about + "; ".join(parts) + "."


def _reasons() -> dict[str, list[str]]:
    """The comments behind the passes in `passes/pipelines.py`, phase by phase."""
    found: dict[str, list[str]] = {}
    current: list[str] | None = None
    for token in tokenize.generate_tokens(io.StringIO(getsource(named)).readline):
        if token.type == tokenize.NAME and token.string.lower() in named.PHASES and token.start[1] == 0:
            current = found.setdefault(token.string.lower(), [])
        elif current is not None and token.type == tokenize.STRING:
            current.append("")
        elif current and token.type == tokenize.COMMENT:
            current[-1] = token.string.lstrip("# ")
        elif token.type == tokenize.NEWLINE:
            current = None
    return found


WIDTH, ROW, TOP = 300, 26, 96
COLORS = {"tensor": "#2a6fb0", "dataflow": "#2f8f5b", "rdu": "#a8612a"}


def diagram() -> str:
    """The phases side by side, their passes in order, and what each gives, as SVG."""
    height = TOP + ROW * max(len(phase.passes) for phase in named.PHASES.values()) + 60
    total = (WIDTH + 50) * len(named.PHASES) + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total} {height}" font-family="sans-serif" '
        'font-size="14">',
        "<title>The phases of the compiler and their passes</title>",
        '<defs><marker id="tip" markerWidth="9" markerHeight="8" refX="8" refY="4" orient="auto">'
        '<path d="M0,0 L9,4 L0,8 z" fill="#666"/></marker></defs>',
        f'<rect width="{total}" height="{height}" fill="#fff"/>',
    ]
    for number, (name, phase) in enumerate(named.PHASES.items()):
        left, color = 20 + number * (WIDTH + 50), COLORS.get(name, "#555")
        gives = escape(f"gives {', '.join(sorted({*phase.gives.dialects, *phase.gives.ops}))}")
        parts += [
            f'<rect x="{left}" y="20" width="{WIDTH}" height="{height - 40}" rx="8" fill="{color}" fill-opacity="0.07" '
            f'stroke="{color}"/>',
            f'<text x="{left + 16}" y="48" font-size="18" font-weight="bold" fill="{color}">{escape(name)}</text>',
            f'<text x="{left + 16}" y="70" font-size="12" fill="#555">{escape(ABOUT[name])}</text>',
            f'<text x="{left + 16}" y="{height - 32}" font-size="12" fill="#555">{gives}</text>',
        ]
        for row, one in enumerate(phase.passes):
            parts += [
                f'<rect x="{left + 14}" y="{TOP + row * ROW - 16}" width="{WIDTH - 28}" height="22" rx="4" fill="#fff" '
                f'stroke="{color}" stroke-opacity="0.5"/>',
                f'<text x="{left + 22}" y="{TOP + row * ROW}" font-family="monospace">{escape(one)}</text>',
            ]
        if number:
            parts.append(
                f'<path d="M{left - 48},{TOP} H{left - 2}" stroke="#666" stroke-width="2" marker-end="url(#tip)"/>'
            )
    return "\n".join([*parts, "</svg>"]) + "\n"
