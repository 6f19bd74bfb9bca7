"""`headrace compare`: a model at every level against a reference, and the first op of each level that deviates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from headrace.tools.cli import common
from headrace.tools.cli.module import Model, TakesFlags, is_class, model_of

if TYPE_CHECKING:
    import numpy as np
    from xdsl.dialects.builtin import ModuleOp

    from headrace.passes.infra.manager import PassBug
    from headrace.tools.cli.references import Reference
    from headrace.tools.execution.deviation import Deviation
    from headrace.tools.execution.levels import Places, Steps

    Array = np.ndarray[Any, np.dtype[Any]]

LEVELS = ("tensor", "dataflow", "runtime")
PORTS = "none"
"""Ports are compared in the types that the reference has."""


@click.command("compare", cls=TakesFlags)
@click.argument("model")
@click.option("--inputs", metavar="NPZ", help="An array per input, by name.")
@click.option("--random-inputs", "seed", type=int, metavar="SEED", help="Inputs from a seed.")
@click.option(
    "--expected", metavar="NPZ", help="Recorded outputs, by name (or in order), and values inside the model by name."
)
@click.option(
    "--reference",
    type=click.Choice(["auto", "onnxruntime", "onnx", "tensor"]),
    default="auto",
    help="What to compare with when no outputs are recorded; tensor: the tensor level of the model itself. "
    "[default: onnxruntime if installed, else onnx; for PyTorch models PyTorch; for .mlir tensor]",
)
@click.option("--level", "levels", type=click.Choice(LEVELS), multiple=True, help="Only this level; may be repeated.")
@click.option(
    "--tolerance",
    type=float,
    help="Allowed error over the largest magnitude. [default: by type, f32 1e-4; with --precision bf16 1e-1]",
)
@click.option("--all-ops", is_flag=True, help="Compare the ops, not only where an output deviates.")
@click.option("--weights", metavar="FILE", help="Weights of a .mlir model, or of a PyTorch one by its names.")
@common.device_option()
@common.precision_option
@common.binding_options
@common.json_option
@click.pass_context
def command(
    ctx: click.Context,
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
    precision: str,
    dims: tuple[str, ...],
    shapes: tuple[str, ...],
    as_json: bool,
) -> int:
    """Run MODEL (.onnx, .pt2, or .mlir at the tensor level) at every level and compare the outputs with a reference.

    MODEL may be a class of a Python file, FILE.py:CLASS, as for headrace compile; then PyTorch is the reference.

    Where a level deviates, names its first op that does: accumulated (the level runs by itself) and isolated (each op
    gets the reference's values), and the pass that is to blame. --expected may hold values inside the model, too. Exit
    code 1 on a deviation. With --precision bf16 the reference stays f32 and the tensor level is that of the lowered
    program, so that the errors are those of the precision.
    """
    common.one_of(inputs is not None, seed is not None, "--inputs or --random-inputs")
    from headrace.compiler import check_options
    from headrace.tools.execution.deviation import TOLERANCE, deviation

    if not is_class(model):
        common.check_model(model, (".onnx", ".pt2", ".mlir"))
    check_options(precision)
    if tolerance is None and precision != "fp32":
        tolerance = TOLERANCE[precision]
    wanted = levels or LEVELS
    own = expected is None and (reference == "tensor" or (reference == "auto" and model.endswith(".mlir")))
    if own and set(wanted) == {"tensor"} and precision == "fp32":
        raise click.UsageError("the tensor level is the reference itself; give --expected or another --level")
    itself = own and precision == "fp32"
    wanted = tuple(x for x in LEVELS if x in wanted and not (itself and x == "tensor"))
    with common.progress(as_json) as show:
        read = model_of(ctx, model, shapes)
        given = {} if is_class(model) else common.shapes_of(shapes)
        run = Comparison(read, device, common.dims_of(dims), given, weights, tolerance, show, precision)
        run.feed(inputs, seed)
        recorded = common.load_arrays(expected, "--expected") if expected is not None else None
        against = run.refer(recorded, reference, own)
        results = run.results(wanted, against, all_ops)
    errors = {
        level: {name: deviation(found[name], against.values[name], tolerance) for name in run.outputs}
        for level, found in results.items()
    }
    deviates = [level for level, outputs in errors.items() if not all(one.ok for one in outputs.values())]
    notes = list(run.notes)
    kernel = next((one.isolated for one in run.steps.values() if one.kernel), None)
    passes = deviates and ("tensor" not in deviates or precision != "fp32")
    bug = run.blame() if passes and kernel is None else None
    if kernel is not None:
        notes.append(f"the kernel of '{kernel.op}' in the runtime does something else than the op means")
    if as_json:
        first = next(((level, run.steps[level]) for level in deviates if level in run.steps), None)
        common.print_json(
            {
                "model": model,
                "reference": against.source,
                "levels": {
                    level: {name: one.to_json() for name, one in outputs.items()} for level, outputs in errors.items()
                },
                "ops": {level: one.to_json() for level, one in run.steps.items()},
                "first_deviating_op": _first(*first) if first is not None else None,
                "pass": {"pass": bug.spec, "op": bug.op, "location": bug.location, "text": str(bug)} if bug else None,
                "notes": notes,
                "ok": not deviates,
            }
        )
    else:
        click.echo(report(against.source, errors, run.steps, bug, notes))
    return 1 if deviates else 0


@dataclass
class Comparison:
    """Runs a model at the levels that are asked for, and compares their ops where results deviate."""

    model: Model
    device: str | None
    dims: Mapping[str, int]
    shapes: Mapping[str, tuple[int, ...]]
    weights: str | None
    tolerance: float | None
    show: Any
    precision: str
    outputs: list[str] = field(default_factory=list[str])
    arrays: Mapping[str, Array] = field(default_factory=dict[str, "Array"])
    steps: dict[str, Steps] = field(default_factory=dict[str, "Steps"])
    notes: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        from headrace.compiler import import_model

        self._imported = import_model(
            self.model.source, **self.model.options, dims=self.dims, input_shapes=self.shapes, weights=self.weights
        )
        self._original: ModuleOp = self._imported.module.clone()  # the passes work in place
        self._recorded: Mapping[str, Array] = {}
        self._reference = "auto"
        self._places: Places | None = None
        self._inner: Places = {}

    def feed(self, inputs: str | None, seed: int | None) -> None:
        """Take the arrays to run on, from a file or a seed."""
        from headrace.dialects.tensor.base import tt
        from headrace.dialects.tensor.program import entry, signature
        from headrace.frontends.base import Port

        func = entry(self._imported.module)
        names = signature(func)
        self.outputs = list(names.results)
        ports = [Port(name, tt(a)) for name, a in zip(names.inputs, func.body.block.args, strict=True)]
        if inputs is not None:
            self.arrays = common.load_arrays(inputs)
        else:
            call = self._imported.call
            begin = {name: load() for name, load in call.initial.items()} if call is not None else {}
            self.arrays = {**common.random_arrays(ports, seed or 0), **begin}
        common.check_inputs(ports, self.arrays)

    def refer(self, recorded: Mapping[str, Array] | None, reference: str, own: bool) -> Reference:
        """The expected outputs: recorded ones, else those of a framework, or of the tensor level itself (`own`)."""
        from headrace.dialects.support.diagnostics import CompileError
        from headrace.tools.cli import references
        from headrace.tools.execution.programs import run

        self._recorded, self._reference = recorded or {}, "tensor" if own else reference
        self.show(0, 0, "running the reference")
        if own:
            return references.Reference("the tensor level", run(self._original, self._imported.store, self.arrays))
        if self._imported.call is not None and reference != "auto":
            raise CompileError("no-reference", f"{reference} does not run PyTorch models", fix="--reference auto")
        if self._imported.call is not None and recorded is None:
            return self._pytorch()
        return references.outputs_of(str(self.model.source), self.arrays, recorded, reference, self.outputs)

    def _pytorch(self) -> Reference:
        """The outputs that PyTorch gives; what its ops give is kept."""
        from headrace.modules import run_torch
        from headrace.tools.cli.references import Reference

        flat, self._inner = run_torch(
            self.model.source,
            self.model.inputs,
            self.model.kwargs,
            dims=self.dims,
            input_shapes=self.shapes,
            weights=self.weights,
            arrays=self.arrays,
        )
        return Reference("PyTorch", dict(zip(self.outputs, flat, strict=True)))

    def results(self, levels: tuple[str, ...], against: Reference, all_ops: bool) -> dict[str, dict[str, Array]]:
        """The outputs by level, then by name; where they deviate, or with `all_ops`, the level's ops are compared."""
        from headrace.backend.encode import encode
        from headrace.compiler import ModelWeights, Translation, executable, lower
        from headrace.tools.execution.deviation import deviation
        from headrace.tools.execution.programs import run

        module, store = self._imported.module, self._imported.store
        found: dict[str, dict[str, Array]] = {}

        def take(level: str, module: ModuleOp, results: dict[str, Array]) -> None:
            found[level] = results
            right = all(deviation(results[x], against.values[x], self.tolerance).ok for x in self.outputs)
            if all_ops or not right:
                self._compare(level, module)

        def on_phase(phase: str, module: ModuleOp) -> None:
            tensor = "import" if self.precision == "fp32" else "tensor"
            level = {tensor: "tensor", "dataflow": "dataflow"}.get(phase)
            if level in levels:
                self.show(0, 0, f"running the {level} level")
                take(level, module, run(module, store, self.arrays))

        lower(module, self.device, on_phase=on_phase, progress=self.show, precision=self.precision, lower_ports=PORTS)
        if "runtime" in levels:
            self.show(0, 0, "running the routed program")
            exe = executable(Translation(encode(module), ModelWeights(module, store), {}))
            past = {name for name, _ in exe.program.states}
            exe.reset({name: array for name, array in self.arrays.items() if name in past})
            results = exe({name: array for name, array in self.arrays.items() if name not in past})
            results |= {present: exe.state()[name] for name, present in exe.program.states if present in self.outputs}
            take("runtime", module, results)
        return found

    def blame(self) -> PassBug | None:
        """The pass that changes the results, if one does."""
        from headrace.compiler import lower
        from headrace.passes.infra.manager import PassBug, Watch
        from headrace.tools.execution import Execution

        self.show(0, 0, "looking for the pass")
        execution = Execution(tolerance=self.tolerance, say=lambda _: None)
        execution.store, execution.arrays = self._imported.store, self.arrays
        module = self._original.clone()
        execution.start(module)
        try:
            lower(
                module,
                self.device,
                progress=self.show,
                watch=Watch(check=execution.check),
                precision=self.precision,
                lower_ports=PORTS,
            )
        except PassBug as bug:
            if bug.kind != "changed-results":
                raise
            return bug
        return None

    def _compare(self, level: str, module: ModuleOp) -> None:
        """Compare the ops of a level."""
        from headrace.dialects.support.diagnostics import CompileError
        from headrace.tools.execution.levels import compare_steps

        self.show(0, 0, f"comparing the ops of the {level} level")
        if self._places is None:
            try:
                source, self._places = self._known()
                self.notes.append(f"ops are compared with {source}")
            except CompileError as error:
                self._places = {}
                self.notes.append(f"no op was compared: {error.what}")
        if self._places:
            store = self._imported.store
            self.steps[level] = compare_steps(module, store, self.arrays, self._places, self.tolerance)

    def _known(self) -> tuple[str, Places]:
        """What is known of places in the model, and from whom."""
        from headrace.dialects.support import locations
        from headrace.tools.cli import references
        from headrace.tools.execution.levels import places_of
        from headrace.tools.execution.trace import trace

        name = str(self.model.source) if self._imported.call is None else ""
        if self._imported.call is not None and self._reference != "tensor":
            if not self._inner:
                self._pytorch()
            return "PyTorch", self._inner
        if not name.endswith(".onnx"):
            places = dict.fromkeys(x for op in self._original.walk() for x in locations.nodes(op.location))
            recorded = {x: [self._recorded[x]] for x in places if x in self._recorded}
        else:
            recorded = references.places_of(name, self._recorded)
        if recorded:
            return "recorded values", recorded
        if self._reference == "tensor" or not name.endswith(".onnx"):
            return "the tensor level", places_of(trace(self._original, self._imported.store, self.arrays))
        inner = references.intermediates_of(name, self.arrays, self._reference)
        return inner.source, references.by_node(inner)


def _first(level: str, steps: Steps) -> dict[str, Any] | None:
    """The op that a level goes wrong by: one that deviates by itself, else the first that deviates."""
    one = steps.isolated or steps.accumulated
    return None if one is None else {"level": level, "isolated": steps.isolated is not None, **one.to_json()}


def report(
    source: str,
    errors: Mapping[str, Mapping[str, Deviation]],
    steps: Mapping[str, Steps],
    bug: PassBug | None,
    notes: list[str],
) -> str:
    """The comparison for people."""
    rows = [("level", "output", "max abs", "max rel", "ulp", "allowed", "")]
    for level, outputs in errors.items():
        for name, one in outputs.items():
            verdict = "ok" if one.ok else f"DEVIATES {one.problem}" if one.problem else f"DEVIATES at {list(one.worst)}"
            size = (f"{one.absolute:.2e}", f"{one.relative:.2e}", f"{one.ulp:,}", f"{one.allowed:.0e}")
            rows.append((level, name, *size, verdict))
    lines = [f"reference: {source}", common.table(rows, 2), *notes]
    for level, one in steps.items():
        lines.append(f"{level}: {one.compared} ops compared{_verdict(one)}")
        if one.accumulated is not None:
            lines.append(f"  accumulated: first {one.accumulated}")
        if one.isolated is not None:
            lines.append(f"  isolated:    first {one.isolated}")
        elif one.largest is not None:
            lines.append(f"  isolated:    none deviates; largest {one.largest}")
    if bug is not None:
        lines.append(str(bug))
    return "\n".join(lines)


def _verdict(steps: Steps) -> str:
    if steps.accumulated is None:
        return ", none deviates" if steps.isolated is None else ""
    return ": errors add up from op to op, none deviates by itself" if steps.drifts else ""
