"""Compiling models: what `import headrace` gives.

    exe = headrace.compile("model.onnx", device="sn40l", dims={"batch": 8})
    out = exe({"x": x})
    exe.save("model.sn"); exe = headrace.load("model.sn")

`translate` does the same work for the command line: it stops at the routed program, binds no memory and evaluates no
weight.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard, cast

from headrace.dialects.support.diagnostics import Collector, CompileError, Diagnostic, nearest
from headrace.version import VERSION

if TYPE_CHECKING:
    import numpy as np
    from xdsl.dialects.builtin import ModuleOp
    from xdsl.passes import ModulePass

    from headrace.dialects.machine.device import Device
    from headrace.dialects.support.weights import WeightStore
    from headrace.frontends.base import CoverageRow, ImportResult
    from headrace.frontends.torch import ImportedProgram
    from headrace.modules import ModuleExecutable
    from headrace.passes.infra.manager import Record, Stage, Watch
    from headrace.runtime.program import Program
    from headrace.runtime.session import Executable

    Array = np.ndarray[Any, np.dtype[Any]]

DEFAULT_DEVICE = "sn40l"
PRECISIONS = ("fp32", "bf16")
PORTS = ("none", "states", "all")
"""Which of the program's ports take the type of the precision."""
STORED = ("", "f8e4m3")
"""What weights are stored in, when that is narrower than the precision."""
GOALS = ("latency", "throughput")
"""What is made least: the time of a run, or the time from result to result when inputs stream in."""
OnPhase = Callable[[str, "ModuleOp"], None]
Progress = Callable[[int, int, str], None]


class Weights(Protocol):
    """Where the bytes of weights come from."""

    def array(self, key: str) -> Array:
        """The weight of that key; `CompileError` when there are no bytes for it."""
        ...

    def variants(self, key: str, sockets: int) -> tuple[int, ...]:
        """For each socket the first one that has the same block of a weight; empty when all have all of it."""
        ...


class ModelWeights:
    """The weights of a compiled model by key: those of its store, and derived ones, evaluated once when asked for."""

    def __init__(self, module: ModuleOp, store: WeightStore) -> None:
        from headrace.dialects.tensor.interpreter import Interpreter

        self.store = store
        self._interpreter = Interpreter(module, store)

    def array(self, key: str) -> Array:
        """The weight of that key; `CompileError` when the store has no bytes for it or for what it derives from."""
        try:
            return self._interpreter.weight(key)
        except CompileError as error:
            if len(self.store):
                raise
            raise CompileError(
                error.code,
                f"no bytes for weight '{key}'",
                why="no weights were given with the IR",
                fix="give them (--weights FILE), or compile without weights (--shape-only)",
                location=error.location,
            ) from None

    def variants(self, key: str, sockets: int) -> tuple[int, ...]:
        """For each socket the first one that has the same block of a weight; empty when all have all of it."""
        from headrace.dialects.tensor.interpreter import places

        groups = self._interpreter.groups(key)
        first: dict[tuple[int, ...], int] = {}
        return tuple(first.setdefault(places(groups, i), i) for i in range(sockets)) if groups else ()


@dataclass
class Translation:
    """A model lowered to a routed program. `weights` is None for a model compiled without them. `seconds` are CPU
    seconds by step, `records` one entry per pass."""

    program: Program
    weights: Weights | None
    manifest: dict[str, Any]
    coverage: tuple[CoverageRow, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    records: list[Record] = field(default_factory=list["Record"])
    call: ImportedProgram | None = None
    states: Mapping[str, Callable[[], Array]] = field(default_factory=dict[str, "Callable[[], Array]"])
    """What states hold at first, where the model says so."""

    def initial(self) -> dict[str, Array]:
        """What states hold at first, where the model says so."""
        if self.weights is None:
            return {}
        return {name: load() for name, load in self.states.items()}

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the artifact; `CompileError` when it cannot be written. The file appears complete or not at all."""
        from headrace.backend.writer import write_artifact

        check_writable(path)
        write_artifact(
            path, self.program, self.weights, compiler=VERSION, manifest=self.manifest, states=self.initial()
        )


@dataclass(frozen=True)
class Imported:
    """A model as a `tensor` module (or, from IR text, of any level) and its weights."""

    module: ModuleOp
    store: WeightStore
    name: str
    coverage: tuple[CoverageRow, ...] = ()
    call: ImportedProgram | None = None
    """How a PyTorch program is called."""
    initial: Mapping[str, Callable[[], Array]] = field(default_factory=dict[str, "Callable[[], Array]"])
    """What states hold at first, where the model says so."""


def compile(
    model: Any,
    device: str | Path | Device | None = None,
    precision: str = "fp32",
    opt: str = "latency",
    *,
    example_inputs: Sequence[Any] | None = None,
    example_kwargs: Mapping[str, Any] | None = None,
    dims: Mapping[str, int] | None = None,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    states: Mapping[str, str] | None = None,
    shape_only: bool = False,
    seed: int | None = None,
    weights: str | Path | WeightStore | Mapping[str, Any] | None = None,
    pipeline: str | None = None,
    mode: str = "O3",
    fusion_rules: str | os.PathLike[str] | None = None,
    lower_ports: str = "states",
    weights_precision: str = "",
    native_types: bool = False,
    mesh: Mapping[str, int] | None = None,
    runs: int = 0,
    start: str | None = None,
    watch: Watch | None = None,
    out: str | os.PathLike[str] | None = None,
) -> Any:
    """Compile a model for a device and give the executable.

    `model`: a path (`.onnx`, `.pt2`, or `.mlir` with IR of any level), an `onnx.ModelProto`, a `torch.nn.Module` (with
    `example_inputs`, and `example_kwargs` if it takes any) or a `torch.export.ExportedProgram`; what is made of a
    module is called as the module is. `device`: a shipped device by name, a path of a TOML file, or a `Device`; by
    default what the IR says, else sn40l. `dims` binds named dims, `input_shapes` whole inputs; `states` maps inputs to
    the outputs that replace them in the next run. `seed`: whose random numbers a model draws (for dropout in
    training, say); one that draws is refused without. `shape_only` compiles without weights: the result can be saved
    and profiled, not run. `weights`: for `.mlir` a weight file (or an artifact, or the model that the IR was made of),
    `random:SEED` or a store; for a PyTorch program a state dict, or a file of one (`.pt`, `.safetensors`), in place of
    its own, of which nothing is copied. `pipeline`: passes instead of the default ones. `mode`: how much is resident
    on the chip at a time, `O0` (an op), `O1` (what fusion rules join: built-in ones and those of the file
    `fusion_rules`) or `O3` (what is fastest by the cost model). `precision`:
    `fp32` (as the model says) or `bf16` (f32 becomes bf16, with casts at inputs and outputs; `lower_ports` says which
    ports become bf16, too: `none`, `states`, which stay on the device, or `all`); `weights_precision`: `f8e4m3` stores
    weights of products in eight bits, with a scale per column. `native_types` refuses ops that compute in types that
    the device emulates, and says how long they would take. `opt`: `latency`, the time of a run, or `throughput`, the
    time from result to result of inputs that stream in (`exe.stream`), of which `runs` (0: chosen) follow each other
    through each section. `mesh`: sizes of the axes of a mesh of sockets that share
    the work, major first: {"dp": 2, "tp": 8} (`tp` cuts dims of weights, `dp` the batch, `ep` experts); the executable
    takes and gives whole tensors as ever. `start`: the phase that made the IR (`import`, `tensor`, `dataflow` or
    `rdu`), after which compilation goes on; by default that is read off the IR. `watch` looks at the passes as they
    run. `out` writes the artifact too.

    The program is bound to memory when it is first run or asked for its ports. `CompileError` lists everything that is
    wrong with model, options or device.
    """
    done = translate(
        model,
        device,
        precision,
        opt,
        example_inputs=example_inputs,
        example_kwargs=example_kwargs,
        dims=dims,
        input_shapes=input_shapes,
        states=states,
        shape_only=shape_only,
        seed=seed,
        weights=weights,
        pipeline=pipeline,
        mode=mode,
        fusion_rules=fusion_rules,
        lower_ports=lower_ports,
        weights_precision=weights_precision,
        native_types=native_types,
        mesh=mesh,
        runs=runs,
        start=start,
        watch=watch,
    )
    if out is not None:
        done.write(out)
    return executable(done)


def translate(
    model: Any,
    device: str | Path | Device | None = None,
    precision: str = "fp32",
    opt: str = "latency",
    *,
    example_inputs: Sequence[Any] | None = None,
    example_kwargs: Mapping[str, Any] | None = None,
    dims: Mapping[str, int] | None = None,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    states: Mapping[str, str] | None = None,
    shape_only: bool = False,
    seed: int | None = None,
    weights: str | Path | WeightStore | Mapping[str, Any] | None = None,
    pipeline: str | None = None,
    mode: str = "O3",
    fusion_rules: str | os.PathLike[str] | None = None,
    lower_ports: str = "states",
    weights_precision: str = "",
    native_types: bool = False,
    mesh: Mapping[str, int] | None = None,
    runs: int = 0,
    start: str | None = None,
    watch: Watch | None = None,
    on_phase: OnPhase | None = None,
    progress: Progress | None = None,
    clock: Clock | None = None,
) -> Translation:
    """Lower a model to a routed program; the arguments are those of `compile`.

    `on_phase` is called with the name of each finished phase (`import` first; `passes` for passes of your own) and the
    module as it stands. `progress` is called before each step with its number, how many there are, and its name.
    `watch` says what to check and measure; the IR is verified at the end in any case. `clock` notes what takes long.
    """
    check_options(precision, opt, lower_ports, weights_precision, runs)
    clock = clock or Clock()
    imported = import_model(
        model,
        example_inputs=example_inputs,
        example_kwargs=example_kwargs,
        dims=dims,
        input_shapes=input_shapes,
        states=states,
        shape_only=shape_only,
        seed=seed,
        weights=weights,
    )
    clock.lap("import")
    module = imported.module
    text = lower(
        module,
        device,
        pipeline,
        on_phase,
        progress,
        clock,
        watch,
        start=start,
        mode=mode,
        fusion_rules=fusion_rules,
        precision=precision,
        lower_ports=lower_ports,
        weights_precision=weights_precision,
        native_types=native_types,
        mesh=mesh,
        opt=opt,
        runs=runs,
    )
    from headrace.backend.encode import encode
    from headrace.passes.analysis.runs import runs_of

    goal = GOALS[runs_of(module) > 1]
    manifest = {"model": imported.name, "precision": precision_of(text), "goal": goal, "pipeline": text}
    program = encode(module, manifest)
    clock.lap("encode")
    return Translation(
        program,
        None if shape_only else ModelWeights(module, imported.store),
        {**manifest, "shape_only": "true"} if shape_only else dict(manifest),
        imported.coverage,
        clock.seconds,
        clock.records,
        imported.call,
        imported.initial,
    )


def lowered(
    model: Any,
    stop: str,
    device: str | Path | Device | None = None,
    precision: str = "fp32",
    *,
    example_inputs: Sequence[Any] | None = None,
    example_kwargs: Mapping[str, Any] | None = None,
    dims: Mapping[str, int] | None = None,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    states: Mapping[str, str] | None = None,
    shape_only: bool = False,
    seed: int | None = None,
    start: str | None = None,
    mode: str = "O3",
    fusion_rules: str | os.PathLike[str] | None = None,
    lower_ports: str = "states",
    weights_precision: str = "",
    native_types: bool = False,
    mesh: Mapping[str, int] | None = None,
    opt: str = GOALS[0],
    runs: int = 0,
    watch: Watch | None = None,
    on_phase: OnPhase | None = None,
    progress: Progress | None = None,
    clock: Clock | None = None,
) -> ModuleOp:
    """The IR of a model after phase `stop` (`import`, `tensor`, `dataflow` or `rdu`); the arguments are those of
    `translate`.

        print(headrace.lowered("model.onnx", "tensor"))
    """
    check_options(precision, opt, lower_ports, weights_precision, runs)
    clock = clock or Clock()
    module = import_model(
        model,
        example_inputs=example_inputs,
        example_kwargs=example_kwargs,
        dims=dims,
        input_shapes=input_shapes,
        states=states,
        shape_only=shape_only,
        seed=seed,
    ).module
    clock.lap("import")
    lower(
        module,
        device,
        None,
        on_phase,
        progress,
        clock,
        watch,
        start=start,
        stop=stop,
        mode=mode,
        fusion_rules=fusion_rules,
        precision=precision,
        lower_ports=lower_ports,
        weights_precision=weights_precision,
        native_types=native_types,
        mesh=mesh,
        opt=opt,
        runs=runs,
    )
    return module


def import_model(
    model: Any,
    *,
    example_inputs: Sequence[Any] | None = None,
    example_kwargs: Mapping[str, Any] | None = None,
    dims: Mapping[str, int] | None = None,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    states: Mapping[str, str] | None = None,
    shape_only: bool = False,
    seed: int | None = None,
    weights: str | Path | WeightStore | Mapping[str, Any] | None = None,
) -> Imported:
    """Read a model; the arguments are those of `compile`. `CompileError` lists everything that is wrong with it."""
    from xdsl.dialects.builtin import StringAttr

    from headrace.frontends.base import ImportResult
    from headrace.modules import import_torch, is_program, no_module, refuse_beside_program
    from headrace.passes.pipelines import MODEL_ATTRIBUTE

    if isinstance(model, ImportResult):
        refuse_beside_program(model, dims=dims, input_shapes=input_shapes, states=states, weights=weights)
        return _imported(model, shape_only)
    path = Path(cast("str | os.PathLike[str]", model)) if isinstance(model, str | os.PathLike) else None
    if (path is not None and path.suffix == ".pt2") or is_program(model):
        refuse_beside_program(model, dims=dims, input_shapes=input_shapes, states=states)
        called = import_torch(model, example_inputs, example_kwargs, shape_only, seed, dims, input_shapes, weights)
        found = called.result
        found.module.attributes[MODEL_ATTRIBUTE] = StringAttr(found.name)
        return Imported(found.module, found.store, found.name, found.coverage, called, called.initial)
    if example_inputs is not None or example_kwargs:
        raise no_module(model)
    if path is not None and path.suffix == ".mlir":
        given: dict[str, Any] = {} if _is_onnx(weights) else {"dims": dims, "input_shapes": input_shapes}
        _refuse_for_ir(
            path, [name for name, value in {**given, "states": states, "seed": seed is not None}.items() if value]
        )
        module = parse_ir(path)
        name = module.attributes.get(MODEL_ATTRIBUTE)
        store = weight_store(weights, module, dims, input_shapes)
        return Imported(module, store, name.data if isinstance(name, StringAttr) else path.stem)
    if path is not None and path.suffix not in ("", ".onnx"):
        raise CompileError(
            "unknown-format",
            f"{path.name}: models of kind '{path.suffix}' are not read",
            fix="export the model to ONNX or with torch.export.save; .onnx, .pt2 and .mlir files are read",
        )
    if weights is not None:
        raise CompileError(
            "bad-option",
            "weights are given beside a model that has its own",
            fix="give weights with .mlir models and PyTorch modules only",
        )
    from headrace.frontends.onnx import import_onnx

    found = import_onnx(model, dims=dims, input_shapes=input_shapes, states=states, shape_only=shape_only, seed=seed)
    found.module.attributes[MODEL_ATTRIBUTE] = StringAttr(found.name)
    return Imported(found.module, found.store, found.name, found.coverage, initial=found.initial)


def _imported(found: ImportResult, shape_only: bool) -> Imported:
    """What was imported already, as it was: the passes work on a copy."""
    from xdsl.dialects.builtin import StringAttr

    from headrace.passes.pipelines import MODEL_ATTRIBUTE

    if not shape_only and any(found.store[key].load is None for key in found.store):
        raise CompileError(
            "missing-weight",
            f"{found.name or 'the model'} has no weights",
            why="it was made from shapes",
            fix="compile it without: shape_only=True, --shape-only",
        )
    module = found.module.clone()
    module.attributes[MODEL_ATTRIBUTE] = StringAttr(found.name)
    return Imported(module, found.store, found.name, found.coverage, initial=found.initial)


def parse_ir(path: Path) -> ModuleOp:
    """The verified module of a file of IR; `CompileError` says the line and column of everything that is wrong."""
    from headrace.tools.opt import Refused, context, parse

    try:
        text = path.read_bytes().decode("utf-8")
    except OSError as error:
        raise CompileError("no-such-file", f"cannot read '{path}': {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise CompileError("bad-ir", f"'{path}' is not text: byte {error.start} is not UTF-8") from None
    try:
        module, _ = parse(context(), text, str(path))
    except Refused as refused:
        raise CompileError.many(
            Diagnostic("bad-ir", one.message, location=f"{path}:{one.line}:{one.column}" if one.line else str(path))
            for one in refused.refusals
        ) from None
    return module


def lower(
    module: ModuleOp,
    device: str | Path | Device | None = None,
    pipeline: str | None = None,
    on_phase: OnPhase | None = None,
    progress: Progress | None = None,
    clock: Clock | None = None,
    watch: Watch | None = None,
    *,
    start: str | None = None,
    stop: str | None = None,
    mode: str = "O3",
    fusion_rules: str | os.PathLike[str] | None = None,
    precision: str = "fp32",
    lower_ports: str = "states",
    weights_precision: str = "",
    native_types: bool = False,
    mesh: Mapping[str, int] | None = None,
    opt: str = GOALS[0],
    runs: int = 0,
) -> str:
    """Run the passes on a module in place, by phases, and verify it at the end; the text of all passes that the module
    has been through.

    `start` and `stop` are phases: what the module has been through already (by default that is read off it), and after
    which one to end. `PassBug` when a pass leaves invalid IR, and as `watch` has it.
    """
    from dataclasses import replace

    from xdsl.dialects.builtin import StringAttr

    from headrace.passes.infra.manager import HISTORY_ATTRIBUTE, PassManager, Watch
    from headrace.passes.pipelines import mesh_text
    from headrace.tools.opt import context

    clock = clock or Clock()
    with_device(module, device)
    divided = mesh_text(mesh or {})
    how = _How(
        mode, str(fusion_rules or ""), precision, lower_ports, weights_precision, native_types, divided, opt, runs
    )
    stages, begin = _stages(module, pipeline, start, stop, how)
    module.attributes.setdefault(HISTORY_ATTRIBUTE, StringAttr(""))
    clock.lap("load passes")

    def finished(name: str, module: ModuleOp) -> None:
        clock.lap(f"{PHASE_LAP}{name}")
        if on_phase is not None:
            on_phase(name, module)
            clock.lap("look at the phases")

    if on_phase is not None:
        on_phase(begin, module)
        clock.lap("look at the phases")
    watch = watch or Watch()
    if progress is not None:
        tell = progress

        def told(number: int, total: int, one: ModulePass) -> None:
            tell(number, total, one.name)

        watch = replace(watch, progress=told)
    manager = PassManager(context(), stages, replace(watch, on_stage=finished))
    manager.records = clock.records
    manager.run(module)
    ran = ",".join(map(str, manager.passes))
    _verify(module, ran)
    clock.lap("verify")
    return history_of(module) or ran


def history_of(module: ModuleOp) -> str:
    """The passes that a module says it has been through."""
    from xdsl.dialects.builtin import StringAttr

    from headrace.passes.infra.manager import HISTORY_ATTRIBUTE

    history = module.attributes.get(HISTORY_ATTRIBUTE)
    return history.data if isinstance(history, StringAttr) else ""


def precision_of(passes: str) -> str:
    """The precision that passes compile for."""
    from headrace.passes.pipelines import LOWER

    return "bf16" if LOWER in passes else "fp32"


def with_device(module: ModuleOp, device: str | Path | Device | None) -> ModuleOp:
    """The module, with a device put into it: the given one, or the default where it has none."""
    from headrace.dialects.machine.attributes import DEVICE_ATTRIBUTE, set_device
    from headrace.dialects.machine.device import Device, load_device

    if device is not None or DEVICE_ATTRIBUTE not in module.attributes:
        set_device(module, device if isinstance(device, Device) else load_device(device or DEFAULT_DEVICE))
    return module


@dataclass(frozen=True)
class _How:
    """Options that phases are built by."""

    mode: str
    rules: str
    precision: str
    ports: str
    weights: str
    native_types: bool
    mesh: str
    goal: str
    runs: int


def _stages(
    module: ModuleOp, pipeline: str | None, start: str | None, stop: str | None, how: _How
) -> tuple[Sequence[Stage], str]:
    """What to run on a module, and the phase after which it stands."""
    from headrace.passes import pipelines
    from headrace.passes.analysis.runs import runs_of
    from headrace.passes.infra.manager import Stage
    from headrace.passes.infra.registry import staged

    if pipeline is not None:
        if start is not None or stop is not None:
            raise CompileError(
                "bad-option",
                "passes are given beside phases",
                fix="name phases in the pipeline: --passes 'dataflow,rdu'",
            )
        if how.precision != "fp32":
            raise CompileError(
                "bad-option",
                "passes are given beside a precision",
                fix=f"put {pipelines.LOWER} among the passes, before decompose",
            )
        if how.native_types:
            raise CompileError(
                "bad-option",
                "passes are given beside native types",
                fix=f"put {pipelines.NATIVE} among the passes, last of phase tensor",
            )
        if how.mesh:
            raise CompileError(
                "bad-option",
                "passes are given beside a mesh",
                fix=f'put {pipelines.PARTITION}{{mesh="{how.mesh}"}} among the passes, last of phase tensor',
            )
        if how.mode != "O3" or how.rules:
            raise CompileError(
                "bad-option", "passes are given beside a mode", fix="give cut-sections its options: by=op, by=rule"
            )
        if how.goal != GOALS[0]:
            raise CompileError(
                "bad-option",
                "passes are given beside a goal",
                fix="put choose-runs among the passes, before cut-sections, and stream-runs before allocate-memory",
            )
        parts = staged(pipeline, pipelines=pipelines.PIPELINES)
        return [Stage(name or OWN, passes) for name, passes in parts], pipelines.reached(module) or pipelines.START
    at = start or pipelines.reached(module)
    streams = runs_of(module) > 1
    if how.goal != GOALS[0] and not streams and at in list(pipelines.PHASES)[1:]:
        raise CompileError(
            "bad-option",
            f"--opt {how.goal} comes too late for IR after phase {at}",
            why="sections are cut for a goal in phase dataflow",
            fix=f"give --opt {how.goal} where that IR is made",
        )
    stages = pipelines.stages(
        at or pipelines.START,
        stop or pipelines.NAMES[-1],
        how.mode,
        how.rules,
        how.precision,
        how.ports,
        how.weights,
        how.native_types,
        how.mesh,
        GOALS[1] if streams else how.goal,
        how.runs,
    )
    if how.mesh and at not in ("", pipelines.START):
        raise CompileError(
            "bad-option",
            f"a mesh is given too late, after phase {at}",
            why="work is divided among sockets in phase tensor",
            fix="give it where that IR is made",
        )
    if how.native_types and at not in ("", pipelines.START):
        raise CompileError(
            "bad-option",
            f"native types are asked for too late, after phase {at}",
            why="types are chosen in phase tensor",
            fix="ask for them where that IR is made",
        )
    if how.precision != "fp32" and at not in ("", pipelines.START) and precision_of(history_of(module)) == "fp32":
        raise CompileError(
            "bad-option",
            f"--precision {how.precision} comes too late for IR after phase {at}",
            why="types are chosen in phase tensor",
            fix=f"give --precision {how.precision} where that IR is made",
        )
    if start is not None or not at:
        pipelines.check_from(module, start or pipelines.START)
    return stages, at


OWN = "passes"
"""The name of the phase that passes of your own make."""
PHASE_LAP = "phase "
"""What the names of steps that are phases begin with."""


def executable(done: Translation) -> Executable | ModuleExecutable:
    """The executable of a translation; of a PyTorch program one that is called like it. It binds its memory when first
    needed."""
    from headrace.executable import compiled

    made = compiled(done)
    if done.call is None:
        return made
    from headrace.modules import ModuleExecutable

    return ModuleExecutable(made, done.call)


def check_options(
    precision: str, opt: str = GOALS[0], lower_ports: str = "states", weights_precision: str = "", runs: int = 0
) -> None:
    """Refuse values of options that are unknown or do not go together, all at once."""
    found = Collector()
    if lower_ports not in PORTS:
        found.add("bad-option", f"there is no lower_ports '{lower_ports}'", fix=nearest(lower_ports, PORTS))
    if weights_precision not in STORED:
        found.add(
            "bad-option",
            f"there is no weights_precision '{weights_precision}'",
            fix=nearest(weights_precision, STORED[1:]),
        )
    elif weights_precision and precision == "fp32":
        found.add(
            "bad-option",
            f"weights in {weights_precision} are given with precision fp32",
            why="they are widened to bf16",
            fix="--precision bf16",
        )
    for name, value, built in (("precision", precision, PRECISIONS), ("opt", opt, GOALS)):
        if value not in built:
            found.add("bad-option", f"there is no {name} '{value}'", fix=nearest(value, built))
    if runs < 0:
        found.add("bad-option", f"{runs} runs at a time", fix="give how many follow each other; 0: chosen")
    if runs and opt == GOALS[0]:
        found.add("bad-option", f"{runs} runs at a time are given with --opt {opt}", fix=f"--opt {GOALS[1]}")
    found.raise_if_any()


def check_writable(path: str | os.PathLike[str], *sources: str | os.PathLike[str]) -> None:
    """Refuse a path that cannot be written or that is one of `sources`, before work is done for it."""
    path = Path(path)
    if any(path.exists() and Path(source).exists() and path.samefile(source) for source in sources):
        raise CompileError("cannot-write", f"{path} is also what is read", fix="name another file")
    folder = path.parent
    if path.exists() and not path.is_file():  # a file is written beside it and takes its place
        what = "a folder" if path.is_dir() else "not a regular file"
        raise CompileError("cannot-write", f"{path} is {what}", fix="name a file")
    if not folder.is_dir():
        raise CompileError("cannot-write", f"{path}: there is no folder {folder}", fix="make it, or name another one")
    if not os.access(folder, os.W_OK):
        raise CompileError("cannot-write", f"{path}: the folder {folder} cannot be written to")


class Clock:
    """What takes how long: CPU seconds of the process by step, when each step began and ended, and what the pass
    manager recorded."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.spans: list[tuple[str, float, float]] = []
        """Step, begin and end on the clock of `time.perf_counter`."""
        self.records: list[Record] = []
        self._last = time.process_time()
        self._begin = time.perf_counter()

    def lap(self, step: str) -> None:
        """Put what has passed since the last lap on the account of `step`."""
        now, end = time.process_time(), time.perf_counter()
        self.seconds[step] = self.seconds.get(step, 0.0) + now - self._last
        self.spans.append((step, self._begin, end))
        self._last, self._begin = now, end

    @property
    def steps(self) -> list[tuple[str, float]]:
        """CPU seconds by step, without those of the passes."""
        return [(step, seconds) for step, seconds in self.seconds.items() if not step.startswith(PHASE_LAP)]


def _verify(module: ModuleOp, pipeline: str) -> None:
    from xdsl.utils.exceptions import VerifyException

    from headrace.dialects.support import locations
    from headrace.passes.infra.manager import PassBug
    from headrace.passes.infra.verify import offences

    try:
        module.verify()
    except (VerifyException, CompileError):
        wrong = offences(module)
        raise PassBug(
            "invalid-ir",
            pipeline,
            "left invalid IR (--verify-each says which pass it was)",
            op=wrong[0].op.name if wrong else "",
            location=locations.of(wrong[0].op) if wrong else "",
            details=[f"'{op.name}': {message}" for op, message in wrong],
        ) from None


def weight_store(
    weights: str | Path | WeightStore | Mapping[str, Any] | None,
    module: ModuleOp | None = None,
    dims: Mapping[str, int] | None = None,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
) -> WeightStore:
    """The weights of a file, an artifact or an ONNX model (whose dims are bound as given); those given as a store; what
    `random:SEED` gives for a module; or none."""
    from headrace.dialects.support.weights import WeightStore, open_store, random

    if module is not None and isinstance(weights, str) and weights.startswith("random:"):
        from headrace.dialects.tensor.storage import weight_types

        seed = weights.removeprefix("random:")
        if not seed.isdecimal():
            raise CompileError("bad-option", f"weights '{weights}': the seed is no number", fix="random:0")
        return random({key: (of.shape, of.dtype) for key, of in weight_types(module).items()}, int(seed))
    if isinstance(weights, WeightStore):
        return weights
    if isinstance(weights, Mapping):
        raise CompileError("bad-option", "a state dict is for PyTorch programs", fix="give IR a file or a WeightStore")
    if weights is not None and not Path(weights).exists():
        raise CompileError("no-such-file", f"weights '{weights}': there is no such file")
    if _is_onnx(weights):
        from headrace.frontends.onnx import import_onnx

        return import_onnx(weights, dims=dims, input_shapes=input_shapes).store
    if weights is not None and Path(weights).suffix != ".sn":
        return open_store(weights)
    store = WeightStore()
    if weights is not None:
        store.add_safetensors(weights)
    return store


def _is_onnx(weights: object) -> TypeGuard[str | Path]:
    return isinstance(weights, str | Path) and Path(weights).suffix == ".onnx"


def _refuse_for_ir(path: Path, given: Sequence[str]) -> None:
    if given:
        raise CompileError(
            "bad-option",
            f"{' and '.join(given)} cannot be given for {path.name}",
            why="IR has static shapes and states of its own",
        )


def __getattr__(name: str) -> Any:
    """The runtime's names, loaded when asked for: the compile command needs none of them."""
    if name in ("Executable", "Runtime", "load"):
        from headrace.runtime import session

        return getattr(session, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
