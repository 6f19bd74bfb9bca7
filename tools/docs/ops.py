"""The page of a dialect and the help of an op, from docstrings and definitions; examples are executed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from importlib import import_module
from inspect import getdoc, getsourcefile
from pathlib import Path
from typing import Any

from xdsl.ir import Dialect, Operation
from xdsl.irdl import IRDLOperation, OptionalDef, VariadicDef

from headrace.dialects.support.diagnostics import CompileError, nearest
from headrace.tools.docs import examples
from headrace.tools.opt.parsing import Refused

DIALECTS = {
    "tensor": "headrace.dialects.tensor:Tensor",
    "dataflow": "headrace.dialects.dataflow:Dataflow",
    "rdu": "headrace.dialects.rdu:Rdu",
    "machine": "headrace.dialects.machine:Machine",
}
UNDOCUMENTED = "(undocumented)"


def load(name: str) -> Dialect:
    """A dialect of ours."""
    module, _, attribute = DIALECTS[name].partition(":")
    return getattr(import_module(module), attribute)


@cache
def op_classes() -> dict[str, type[Operation]]:
    """Every op of ours by name."""
    return {op.name: op for name in DIALECTS for op in load(name).operations}


def page(name: str) -> str:
    """The page of one dialect: its ops in the order of its files, then its types and attributes."""
    dialect = load(name)
    about = getdoc(import_module(DIALECTS[name].partition(":")[0])) or ""
    lines = [f"# The `{name}` dialect", "", about, ""]
    families: dict[str, list[type[Operation]]] = {}
    for op in dialect.operations:
        families.setdefault(Path(getsourcefile(op) or "").stem, []).append(op)
    for family, ops in families.items():
        links = ", ".join(f"[{op.name.partition('.')[2]}](#{op.name.replace('.', '')})" for op in ops)
        lines.append(f"* {family.capitalize()}: {links}" if len(families) > 1 else f"Ops: {links}")
    lines += [""] if families else []
    for family, ops in families.items():
        lines += [f"## {family.capitalize()}", ""] if len(families) > 1 else ["## Ops", ""]
        for op in ops:
            lines += [f"### `{op.name}`", "", *fenced(op_lines(op))]
    attributes = list(dialect.attributes)
    if attributes:
        lines += ["## Types and attributes", ""]
        for attribute in attributes:
            lines += [f"### `{attribute.name}`", "", *fenced([*docstring(attribute), ""])]
    return "\n".join(lines).rstrip() + "\n"


def op_help(name: str) -> str:
    """What the page says about one op, as text. `CompileError` for an unknown name."""
    known = op_classes()
    if name not in known:
        short = [one for one in known if one.partition(".")[2] == name]
        fix = f"did you mean '{short[0]}'?" if short else nearest(name, known)
        raise CompileError("unknown-op", f"unknown op '{name}'", fix=fix)
    return "\n".join([name, "", *op_lines(known[name])]).rstrip()


def op_lines(op: type[Operation]) -> Iterator[str]:
    """One op: docstring, definition, element types, and what its example computes. Indented lines are IR or values."""
    yield from (*docstring(op), "")
    if not issubclass(op, IRDLOperation):
        return
    definition = op.get_irdl_definition()
    rows = [
        ("operands", [_named(n, d) for n, d in definition.operands]),
        ("results", [_named(n, d) for n, d in definition.results]),
        ("properties", [_named(n, d) for n, d in sorted(definition.properties.items())]),
        ("attributes", [_named(n, d) for n, d in sorted(definition.attributes.items())]),
        ("regions", [_named(n, d) for n, d in definition.regions]),
        ("traits", sorted({_trait(t) for t in definition.traits.traits})),
    ]
    shown = [f"* {title}: {', '.join(f'`{x}`' for x in items)}" for title, items in rows if items]
    types = element_types(op)
    shown += [f"* element types: {'; '.join(types)}"] if types else []
    yield from [*shown, ""] if shown else []
    values: list[str] = []
    for block in _examples(op):
        with suppress(Refused, CompileError):  # `faults` reports it
            values += examples.evaluated(examples.parse_fragment(block))
    if values:
        yield from ("The example computes", "", *(f"    {line}" for line in values), "")


def faults() -> list[str]:
    """Each op, type or attribute without a docstring, each op without an example, and each example that fails."""
    found: list[str] = []
    for dialect in map(load, DIALECTS):
        for one in (*dialect.operations, *dialect.attributes):
            if docstring(one) == [UNDOCUMENTED]:
                found.append(f"undocumented: {one.name}")
        for op in dialect.operations:
            if not any(re.search(rf"\b{re.escape(op.name)}\b", block) for block in _examples(op)):
                found.append(f"no example: {op.name}")
            for block in _examples(op):
                try:
                    examples.evaluated(examples.parse_fragment(block))
                except (Refused, CompileError) as error:
                    found.append(f"example of {op.name}: {error}")
        for attribute in dialect.attributes:
            for text in re.findall(
                rf"[!#]{re.escape(attribute.name)}<[^`…]*(?=`|$)", "\n".join(docstring(attribute)), re.M
            ):
                try:
                    examples.parse_attributes(text)
                except Refused as error:
                    found.append(f"example of {attribute.name}: {error}")
    return found


def element_types(op: type[Operation]) -> list[str]:
    """The element types that the rules of a tensor op accept, tried on its example: `lhs, rhs: floats`."""
    from headrace.dialects.support.dtypes import BITS
    from headrace.dialects.tensor import shapes
    from headrace.dialects.tensor.base import TensorOp, attributes_of, tt
    from headrace.dialects.tensor.shapes import TT, ShapeError

    if not issubclass(op, TensorOp):
        return []
    found: list[str] = []
    (block, *_) = [*_examples(op), ""]
    one = None
    with suppress(Refused):
        one = next((x for x in examples.parse_fragment(block).walk() if isinstance(x, op)), None) if block else None
    if one is None or not one.operands or not one.results:
        return []
    types = [tt(value) for value in one.operands]
    defaults = attributes_of(op.create(operands=one.operands))
    names = [name for name, _ in op.get_irdl_definition().operands]
    for dtype in dict.fromkeys(type.dtype for type in types):
        accepted: list[str] = []
        for other in BITS:
            tried = [TT(t.shape, other if t.dtype == dtype else t.dtype) for t in types]
            for attrs in (one.attrs(), defaults):
                with suppress(ShapeError, KeyError):
                    shapes.infer(op.name, attrs, tried)
                    accepted.append(other)
                    break
        who = [name for name, type in zip(names, types, strict=False) if type.dtype == dtype]
        found.append(
            f"{', '.join(who)}: {summary(accepted)}" if len({t.dtype for t in types}) > 1 else summary(accepted)
        )
    return found


def summary(accepted: list[str]) -> str:
    """Element types, by the name of their set where it has one."""
    from headrace.dialects.support.dtypes import BITS, FLOATS, STORED

    integers = [name for name in BITS if name not in (*FLOATS, *STORED) and name != "i1"]
    signed = [name for name in integers if name.startswith("i")]
    sets = {
        "any": [*BITS],
        "numbers": [*FLOATS, *integers],
        "signed numbers": [*FLOATS, *signed],
        "floats": [*FLOATS],
        "integers and i1": ["i1", *integers],
        "integers": integers,
    }
    return next((name for name, members in sets.items() if set(members) == set(accepted)), ", ".join(accepted))


def docstring(thing: type) -> list[str]:
    """The docstring of a class as dedented lines."""
    doc = vars(thing).get("__doc__") or ""
    if not doc.strip() or doc.startswith(f"{thing.__name__}("):  # dataclass makes one of its own
        return [UNDOCUMENTED]
    return [line.removeprefix("    ").rstrip() for line in doc.strip().splitlines()]


def fenced(lines: Iterable[str]) -> Iterator[str]:
    """Markdown in which indented blocks are fenced, with the language that they are in."""
    block: list[str] = []
    for line in (*lines, None):
        if line is not None and (line.startswith("    ") or (block and not line)):
            block.append(line.removeprefix("    "))
            continue
        if block:
            text = "\n".join(block).rstrip()
            yield from (f"```{_language(text)}", *text.split("\n"), "```", "")
            block.clear()
        if line is not None:
            yield line


def _language(text: str) -> str:
    if text.startswith("@@"):
        return "diff"
    return "text" if re.match(r"error\[|%\w+ = (\[|[-\w.]+$)", text) else "mlir"


def _examples(op: type[Operation]) -> list[str]:
    return examples.blocks("\n".join(docstring(op)))


def _trait(trait: Any) -> str:
    name = type(trait).__name__
    if "CanonicalizationPatterns" in name:
        return "canonicalizes"
    return "folds" if "Folder" in name else name.strip("_")


def _named(name: str, definition: Any) -> str:
    if isinstance(definition, OptionalDef):
        return name + "?"
    default = getattr(definition, "default_value", None)
    if default is not None:
        number = re.fullmatch(r"(\S+) : [if]\d+", str(default))
        return f"{name} = {float(number[1]):g}" if number else f"{name} = {default}"
    return name + "…" if isinstance(definition, VariadicDef) else name
