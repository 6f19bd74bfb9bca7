"""`headrace compare`: a model at every level against a reference, and the first op that deviates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import click

from headrace.tools.cli import common

if TYPE_CHECKING:
    import numpy as np
    from xdsl.dialects.builtin import ModuleOp
    from xdsl.ir import Operation

    from headrace.dialects.support.locations import Location
    from headrace.tools.cli.references import Reference

    Array = np.ndarray[Any, np.dtype[Any]]

LEVELS = ("tensor", "dataflow", "runtime")
TOLERANCE = {"f64": 1e-9, "f32": 1e-4, "f16": 2e-2, "bf16": 1e-1}
"""Largest error over the largest magnitude of the reference, by element type; integers agree exactly."""


@dataclass(frozen=True)
class Error:
    """How far an array is from its reference: the largest error, the same over the reference's largest magnitude, where
    it is, and what is allowed (of the relative one)."""

    absolute: float
    relative: float
    worst: tuple[int, ...]
    allowed: float
    problem: str = ""

    @property
    def ok(self) -> bool:
        """Whether it is within what is allowed."""
        return not self.problem and self.relative <= self.allowed

    def to_json(self) -> dict[str, Any]:
        """The fields as a JSON-ready dictionary."""
        found = {"max_abs": self.absolute, "max_rel": self.relative, "worst": list(self.worst), "allowed": self.allowed}
        return {**found, "ok": self.ok, **({"problem": self.problem} if self.problem else {})}


def error_of(found: Array, reference: Array, tolerance: float | None) -> Error:
    """Compare two arrays. NaN agrees with NaN, and an infinity with itself."""
    import numpy as np

    from headrace.dialects.support.dtypes import from_numpy

    allowed = tolerance if tolerance is not None else TOLERANCE.get(from_numpy(reference.dtype), 0.0)
    if found.shape != reference.shape or found.dtype != reference.dtype:
        ours, theirs = (common.type_text(a.shape, from_numpy(a.dtype)) for a in (found, reference))
        return Error(float("inf"), float("inf"), (), allowed, f"is {ours}, the reference is {theirs}")
    if not reference.size:
        return Error(0.0, 0.0, (), allowed)
    kind = np.complex128 if reference.dtype.kind == "c" else np.float64
    have, want = found.astype(kind), reference.astype(kind)
    with np.errstate(invalid="ignore"):
        same = (have == want) | (np.isnan(have) & np.isnan(want))
        distance = np.where(same, 0.0, np.nan_to_num(np.abs(have - want), nan=np.inf, posinf=np.inf))
    at = np.unravel_index(int(np.argmax(distance)), distance.shape)
    absolute = float(distance[at])
    scale = float(np.max(np.abs(want), where=np.isfinite(want), initial=0.0)) or 1.0
    return Error(absolute, absolute / scale, tuple(map(int, at)), allowed)


@dataclass
class Watcher:
    """Compares the results of ops with a reference's intermediate values, by location; an observer of the tensor
    interpreter. The last op of a node decides, since a node may become several ops."""

    reference: Reference
    tolerance: float | None
    errors: dict[str, Error] = field(default_factory=dict[str, Error])
    ops: dict[str, str] = field(default_factory=dict[str, str])

    def __call__(self, op: Operation, results: tuple[Array, ...], calls: Any) -> None:
        """Called after every op."""
        from headrace.dialects.support import locations

        where: Location = op.location
        node = locations.text(where)
        values = [self.reference.values[name] for name in self.reference.nodes.get(node, ())]
        for result, value in zip(results, values, strict=False):
            if result.shape == value.shape and result.dtype == value.dtype:
                self.errors[node] = error_of(result, value, self.tolerance)
                self.ops[node] = op.name

    def first(self) -> tuple[str, str, Error] | None:
        """Node, op and error of the first node, in the model's order, that deviates."""
        for node in self.reference.nodes:
            if node in self.errors and not self.errors[node].ok:
                return node, self.ops[node], self.errors[node]
        return None


@click.command("compare")
@click.argument("model")
@click.option("--inputs", metavar="NPZ", help="An array per input, by name.")
@click.option("--random-inputs", "seed", type=int, metavar="SEED", help="Inputs from a seed.")
@click.option("--expected", metavar="NPZ", help="Recorded outputs, by name (or in order).")
@click.option(
    "--reference",
    type=click.Choice(["auto", "onnxruntime", "onnx", "tensor"]),
    default="auto",
    help="What to compare with when no outputs are recorded; tensor: the tensor level of the model itself. "
    "[default: onnxruntime if installed, else onnx; for .mlir tensor]",
)
@click.option("--level", "levels", type=click.Choice(LEVELS), multiple=True, help="Only this level; may be repeated.")
@click.option("--tolerance", type=float, help="Allowed error over the largest magnitude. [default: by type, f32 1e-4]")
@click.option("--all-ops", is_flag=True, help="Compare every op, not only when an output deviates.")
@click.option("--weights", metavar="FILE", help="Weights of a .mlir model.")
@common.device_option()
@common.binding_options
@common.json_option
def command(
    model: str,
    inputs: str | None,
    seed: int | None,
    expected: str | None,
    reference: str,
    levels: tuple[str, ...],
    tolerance: float | None,
    all_ops: bool,
    weights: str | None,
    device: str | None,
    dims: tuple[str, ...],
    shapes: tuple[str, ...],
    as_json: bool,
) -> int:
    """Run MODEL (.onnx, or .mlir at the tensor level) at every level and compare the outputs with a reference.

    When the tensor level deviates, names the first op of the model that does. Exit code 1 on a deviation.
    """
    common.one_of(inputs is not None, seed is not None, "--inputs or --random-inputs")
    from headrace.tools.cli import references

    common.check_model(model)
    wanted = levels or LEVELS
    own = expected is None and (reference == "tensor" or (reference == "auto" and model.endswith(".mlir")))
    if own and set(wanted) == {"tensor"}:
        raise click.UsageError("the tensor level is the reference itself; give --expected or another --level")
    with common.progress(as_json) as show:
        run = Levels(model, device, common.dims_of(dims), common.shapes_of(shapes), weights, show)
        arrays = run.feed(inputs, seed)
        recorded = common.load_arrays(expected, "--expected") if expected is not None else None
        if own:
            results = run.results(("tensor", *wanted))
            against = references.Reference("the tensor level", results["tensor"])
            results = {level: found for level, found in results.items() if level != "tensor"}
        else:
            show(0, 0, "running the reference")
            against = references.outputs_of(model, arrays, recorded, reference, run.outputs)
            results = run.results(wanted)
    errors = {
        level: {name: error_of(found[name], against.values[name], tolerance) for name in run.outputs}
        for level, found in results.items()
    }
    deviates = {level: not all(one.ok for one in outputs.values()) for level, outputs in errors.items()}
    first: dict[str, Any] | None = None
    note = ""
    if all_ops or deviates.get("tensor"):
        first, note = run.first_op(arrays, reference, tolerance)
    if not note and any(deviates.values()) and not deviates.get("tensor"):
        note = (
            "some pass or the runtime changes the numbers; to find the pass:\n"
            f"  headrace compile {model} -o m.sn --dump-phases phases\n"
            "  headrace-opt phases/0.import.mlir -p default --check-numbers --weights m.sn"
            + (f" --inputs {inputs}" if inputs else "")
        )
    if as_json:
        document = {
            "model": model,
            "reference": against.source,
            "levels": {
                level: {name: one.to_json() for name, one in outputs.items()} for level, outputs in errors.items()
            },
            "skipped": run.skipped,
            "first_deviating_op": first,
            "note": note,
            "ok": not any(deviates.values()),
        }
        common.print_json(document)
    else:
        click.echo(report(against.source, errors, run.skipped, first, note))
    return 1 if any(deviates.values()) else 0


@dataclass
class Levels:
    """Runs a model at the levels that are asked for; what cannot be run is in `skipped`, with the reason."""

    model: str
    device: str | None
    dims: Mapping[str, int]
    shapes: Mapping[str, tuple[int, ...]]
    weights: str | None
    show: Any
    skipped: dict[str, str] = field(default_factory=dict[str, str])
    outputs: list[str] = field(default_factory=list[str])
    arrays: Mapping[str, Array] = field(default_factory=dict[str, "Array"])

    def __post_init__(self) -> None:
        from headrace.compiler import import_model

        self._imported = import_model(self.model, dims=self.dims, input_shapes=self.shapes, weights=self.weights)

    def feed(self, inputs: str | None, seed: int | None) -> Mapping[str, Array]:
        """The arrays to run on, from a file or a seed."""
        from headrace.dialects.tensor.base import tt
        from headrace.dialects.tensor.program import entry, signature
        from headrace.frontends.base import Port

        func = entry(self._imported.module)
        names = signature(func)
        self.outputs = list(names.results)
        ports = [Port(name, tt(a)) for name, a in zip(names.inputs, func.body.block.args, strict=True)]
        self.arrays = common.load_arrays(inputs) if inputs is not None else common.random_arrays(ports, seed or 0)
        common.check_inputs(ports, self.arrays)
        return self.arrays

    def results(self, levels: tuple[str, ...]) -> dict[str, dict[str, Array]]:
        """The outputs by level, then by name."""
        from headrace.backend.encode import encode
        from headrace.compiler import ModelWeights, Translation, executable, lower

        module, store = self._imported.module, self._imported.store
        found: dict[str, dict[str, Array]] = {}

        def on_phase(phase: str, module: ModuleOp) -> None:
            if phase == "import" and "tensor" in levels:
                self.show(0, 0, "running the tensor level")
                found["tensor"] = self._tensor(module)
            elif phase == "dataflow" and "dataflow" in levels:
                self.show(0, 0, "running the dataflow level")
                self._dataflow(module, found)

        lower(module, self.device, on_phase=on_phase, progress=self.show)
        if "runtime" in levels:
            self.show(0, 0, "running the routed program")
            exe = executable(Translation(encode(module), ModelWeights(module, store), {}))
            found["runtime"] = exe(self.arrays)
        return found

    def _tensor(self, module: ModuleOp, *observers: Any) -> dict[str, Array]:
        from headrace.dialects.tensor.interpreter import run_function

        return run_function(module, "main", self.arrays, self._imported.store, observers)

    def _dataflow(self, module: ModuleOp, found: dict[str, dict[str, Array]]) -> None:
        if find_spec("headrace.dialects.dataflow.interpreter") is None:
            self.skipped["dataflow"] = "this installation has no interpreter of the dataflow level"
            return
        from headrace.dialects.dataflow.interpreter import run_dataflow

        found["dataflow"] = run_dataflow(module, self.arrays, self._imported.store)

    def first_op(
        self, arrays: Mapping[str, Array], reference: str, tolerance: float | None
    ) -> tuple[dict[str, Any] | None, str]:
        """The first op of the tensor level that deviates, and a note on what was compared."""
        from headrace.compiler import import_model
        from headrace.dialects.support.diagnostics import CompileError
        from headrace.tools.cli import references

        self.show(0, 0, "running the reference op by op")
        try:
            inner = references.intermediates_of(self.model, arrays, reference)
        except CompileError as error:
            return None, f"no op was compared: {error.what}"
        self._imported = import_model(self.model, dims=self.dims, input_shapes=self.shapes)
        watcher = Watcher(inner, tolerance)
        self._tensor(self._imported.module, watcher)
        note = f"{len(watcher.errors)} of {len(inner.nodes)} nodes compared with {inner.source}"
        first = watcher.first()
        if first is None:
            return None, f"{note}: none deviates"
        node, op, error = first
        return {"location": node, "op": op, **error.to_json()}, note


def report(
    source: str,
    errors: Mapping[str, Mapping[str, Error]],
    skipped: Mapping[str, str],
    first: Mapping[str, Any] | None,
    note: str,
) -> str:
    """The comparison for people."""
    rows = [("level", "output", "max abs", "max rel", "allowed", "")]
    for level, outputs in errors.items():
        for name, one in outputs.items():
            verdict = "ok" if one.ok else f"DEVIATES {one.problem}" if one.problem else f"DEVIATES at {list(one.worst)}"
            rows.append((level, name, f"{one.absolute:.2e}", f"{one.relative:.2e}", f"{one.allowed:.0e}", verdict))
    lines = [f"reference: {source}", common.table(rows, 2)]
    lines += [f"{level}: not run, {reason}" for level, reason in skipped.items()]
    if first is not None:
        lines.append(
            f"first op that deviates: {first['location']} ({first['op']}), max abs {first['max_abs']:.2e}, "
            f"max rel {first['max_rel']:.2e} at {first['worst']}"
        )
    if note:
        lines.append(note)
    return "\n".join(lines)
