"""What every importer shares: the result of an import, binding of dynamic dims, and the coverage report.

An importer makes a `tensor` module whose `@main` has static shapes, named arguments and results, and a location on
every op; it fills a weight store; and it says of each model op whether it was supported, decomposed or refused, with
the reason. All offenders are reported at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from operator import index
from typing import TYPE_CHECKING, Any, Literal, cast

from xdsl.dialects.builtin import ModuleOp

from headrace.dialects.support.diagnostics import Collector, nearest
from headrace.dialects.support.weights import WeightStore
from headrace.dialects.tensor.shapes import MOST_ELEMENTS, TT

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

Shape = tuple[int, ...]
OperandTypes = tuple[TT | None, ...]
"""The types of a node's operands; None where one is left out or not known."""
Status = Literal["supported", "decomposed", "refused"]
STATUSES: tuple[Status, ...] = ("supported", "decomposed", "refused")


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of a program: its name and type."""

    name: str
    type: TT


@dataclass(frozen=True, slots=True)
class CoverageRow:
    """How one kind of model op fares: `shapes` are the distinct operand types of its nodes (empty when not known),
    `nodes` the node names."""

    op_type: str
    count: int
    status: Status
    reason: str
    nodes: tuple[str, ...]
    shapes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The fields as a JSON-ready dictionary."""
        return {
            "op_type": self.op_type,
            "count": self.count,
            "status": self.status,
            "reason": self.reason,
            "nodes": list(self.nodes),
            "shapes": list(self.shapes),
        }


@dataclass(slots=True)
class ImportResult:
    """An imported model: the `tensor` module, where its weights are, its ports, its states and its coverage."""

    module: ModuleOp
    store: WeightStore
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    states: tuple[tuple[str, str], ...] = ()
    coverage: tuple[CoverageRow, ...] = ()
    name: str = ""
    initial: Mapping[str, Callable[[], Array]] = field(default_factory=dict[str, "Callable[[], Array]"])
    """What states hold at first, by input name, where that is not zero."""


@dataclass(slots=True)
class Coverage:
    """Collects what became of each node, in model order; `rows` groups them by op, status and reason."""

    _seen: dict[tuple[str, Status, str], list[tuple[str, OperandTypes]]] = field(
        default_factory=dict[tuple[str, Status, str], list[tuple[str, OperandTypes]]]
    )

    def add(self, op_type: str, node: str, status: Status, reason: str = "", operands: OperandTypes = ()) -> None:
        """Record one node and the types of its operands, where they are known."""
        self._seen.setdefault((op_type, status, reason), []).append((node, operands))

    def rows(self) -> tuple[CoverageRow, ...]:
        """One row per (op, status, reason); refused ones first, then by op."""
        rows = [
            CoverageRow(
                op_type,
                len(nodes),
                status,
                reason,
                tuple(node for node, _ in nodes),
                tuple(_types_text(operands) for operands in dict.fromkeys(x for _, x in nodes) if operands),
            )
            for (op_type, status, reason), nodes in self._seen.items()
        ]
        return tuple(sorted(rows, key=lambda row: (-STATUSES.index(row.status), row.op_type, row.reason)))


def _types_text(operands: OperandTypes) -> str:
    return ", ".join("-" if type is None else str(type) for type in operands)


def coverage_text(rows: Sequence[CoverageRow], most: int = 3) -> str:
    """The coverage report as a table for people: at most `most` shapes and node names a row."""

    def few(items: Sequence[str]) -> str:
        more = f" +{len(items) - most}" if len(items) > most else ""
        return "; ".join(items[:most]) + more

    lines = [("op", "nodes", "status", "reason", "operands", "names")]
    lines += [(r.op_type, str(r.count), r.status, r.reason, few(r.shapes), few(r.nodes)) for r in rows]
    keep = [c for c in range(len(lines[0])) if any(line[c] for line in lines[1:])]
    width = {c: max(len(line[c]) for line in lines) for c in keep}
    table = ["  ".join(line[c].ljust(width[c]) for c in keep).rstrip() for line in lines]
    totals = {status: sum(r.count for r in rows if r.status == status) for status in STATUSES}
    table.append(", ".join(f"{count} {status}" for status, count in totals.items() if count))
    return "\n".join(table)


@dataclass(frozen=True, slots=True)
class InputSpec:
    """An input as the model declares it: each dim is a size, a symbolic name, or None when it has neither; `dims` is
    None when the model gives no rank."""

    name: str
    dtype: str
    dims: tuple[int | str | None, ...] | None


def bind_dims(
    inputs: Sequence[InputSpec],
    dims: Mapping[str, int],
    input_shapes: Mapping[str, Sequence[int]],
    errors: Collector,
) -> dict[str, Shape]:
    """The static shape of every input, from `dims` by symbolic name and `input_shapes` by input.

    Adds to `errors`: an unbound dim (with the input and the flag that binds it), names that no input has, and shapes
    that contradict the model or each other. Inputs with an error are left out of the result.
    """
    by_name = {spec.name: spec for spec in inputs}
    symbols = {d for spec in inputs for d in spec.dims or () if isinstance(d, str)}
    bound: dict[str, int] = {}
    for name, size in dims.items():
        if name not in symbols:
            known = nearest(name, symbols) if symbols else "the model has no named dims"
            errors.add("unknown-dim", f"no input has a dim '{name}'", fix=known)
        elif (checked := _size(size)) is None:
            why = f"a size is an integer from 0 to {MOST_ELEMENTS}"
            errors.add("bad-dim", f"dim '{name}' is bound to {size!r}", why=why, fix=f"--dim {name}=1")
        else:
            bound[name] = checked
    given: dict[str, Shape] = {}
    for name, shape in input_shapes.items():
        if name not in by_name:
            errors.add("unknown-input", f"the model has no input '{name}'", fix=nearest(name, by_name))
            continue
        sizes = [_size(n) for n in shape] if isinstance(cast("object", shape), Iterable) else [None]
        if None in sizes:
            errors.add(
                "bad-input-shape",
                f"input '{name}' is given the shape {shape!r}",
                why=f"a size is an integer from 0 to {MOST_ELEMENTS}",
                fix=f"--input {name}=1x3x224x224 (its shape)",
                location=name,
            )
            continue
        given[name] = tuple(n for n in sizes if n is not None)
        _bind_from_shape(by_name[name], given[name], bound, errors)
    found: dict[str, Shape] = {}
    for spec in inputs:
        shape = given.get(spec.name, ()) if spec.name in given or spec.dims is None else _resolve(spec, bound, errors)
        if spec.dims is None and spec.name not in given:
            errors.add(
                "unbound-dim",
                f"input '{spec.name}' has no shape in the model",
                why="shapes are static in Headrace",
                fix=f"--input {spec.name}=1x3x224x224 (its shape)",
                location=spec.name,
            )
        elif shape is not None and prod(shape) > MOST_ELEMENTS:
            errors.add(
                "bad-input-shape",
                f"input '{spec.name}' of shape {'x'.join(map(str, shape))} has {prod(shape)} elements",
                why=f"at most {MOST_ELEMENTS} make sense",
                location=spec.name,
            )
        elif shape is not None:
            found[spec.name] = shape
    return found


def _size(given: object) -> int | None:
    """A size that was given for a dim; None when it is none."""
    try:
        size = index(given)  # pyright: ignore[reportArgumentType]
    except TypeError:
        return None
    return size if 0 <= size <= MOST_ELEMENTS and not isinstance(given, bool) else None


def _bind_from_shape(spec: InputSpec, shape: Shape, bound: dict[str, int], errors: Collector) -> None:
    """Check a shape given for an input and bind the symbolic dims that it fixes."""
    declared = spec.dims if spec.dims is not None else (None,) * len(shape)
    text = "x".join(map(str, shape))
    if len(declared) != len(shape):
        errors.add(
            "bad-input-shape",
            f"input '{spec.name}' has rank {len(declared)}, the given shape is {text}",
            location=spec.name,
        )
        return
    for axis, (dim, size) in enumerate(zip(declared, shape, strict=True)):
        wanted = bound.setdefault(dim, size) if isinstance(dim, str) else dim
        if wanted is not None and wanted != size:
            name = f" ('{dim}')" if isinstance(dim, str) else ""
            errors.add(
                "bad-input-shape",
                f"input '{spec.name}' is given as {text}, but its dim {axis}{name} is {wanted}",
                location=spec.name,
            )


def _resolve(spec: InputSpec, bound: Mapping[str, int], errors: Collector) -> Shape | None:
    """The shape of an input whose dims are all bound, or None after reporting those that are not."""
    assert spec.dims is not None
    sizes = [bound.get(d) if isinstance(d, str) else d for d in spec.dims]
    for axis, (dim, size) in enumerate(zip(spec.dims, sizes, strict=True)):
        if size is not None:
            continue
        if isinstance(dim, str):
            what, fix = f"input '{spec.name}' has an unbound dim '{dim}' (axis {axis})", f"--dim {dim}=1"
        else:
            example = "x".join(str(1 if n is None else n) for n in sizes)
            what, fix = (
                f"input '{spec.name}' has an unbound dim without a name (axis {axis})",
                f"--input {spec.name}={example}",
            )
        errors.add("unbound-dim", what, why="shapes are static in Headrace", fix=fix, location=spec.name)
    return None if None in sizes else tuple(n for n in sizes if n is not None)


def check_states(
    states: Mapping[str, str], inputs: Iterable[Port], outputs: Iterable[Port], errors: Collector
) -> tuple[tuple[str, str], ...]:
    """The (input, output) pairs that are the same state; adds to `errors` names that do not exist, names used twice and
    pairs whose types differ."""
    ins = {port.name: port for port in inputs}
    outs = {port.name: port for port in outputs}
    used: set[str] = set()
    for past, present in states.items():
        if past not in ins:
            errors.add("unknown-input", f"state '{past}={present}': no input '{past}'", fix=nearest(past, ins))
        if present not in outs:
            errors.add("unknown-output", f"state '{past}={present}': no output '{present}'", fix=nearest(present, outs))
        if past not in ins or present not in outs:
            continue
        if present in used:
            errors.add("bad-state", f"output '{present}' is named by two states", location=present)
        used.add(present)
        if ins[past].type != outs[present].type:
            errors.add(
                "bad-state",
                f"state '{past}={present}' changes its type from {ins[past].type} to {outs[present].type}",
                why="a state is one buffer, updated in place",
                fix="export the model with a cache of fixed length",
                location=past,
            )
    return tuple(states.items())
