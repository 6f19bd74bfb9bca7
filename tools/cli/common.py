"""What the subcommands share: options that bind shapes, progress, JSON, tables, and files of arrays."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from headrace.dialects.support.diagnostics import Collector, CompileError

if TYPE_CHECKING:
    import numpy as np
    from xdsl.dialects.builtin import ModuleOp

    from headrace.compiler import Imported
    from headrace.runtime.artifact import Artifact
    from headrace.runtime.session import Executable
    from headrace.tools.debug import Source, Trial

    Array = np.ndarray[Any, np.dtype[Any]]

Command = TypeVar("Command", bound=Callable[..., Any])


def binding_options(command: Command) -> Command:
    """Adds `--dim` and `--input`."""
    text = "Shape of an input, such as x=1x3x224x224; of a class of a Python file with its element type: ids=1x8xi64."
    command = click.option("--input", "shapes", multiple=True, metavar="NAME=AxBxC", help=text)(command)
    return click.option("--dim", "dims", multiple=True, metavar="NAME=N", help="Size of a named dim: batch=8.")(command)


def precision_option(command: Command) -> Command:
    """Adds `--precision`."""
    text = "Element type of the arithmetic: fp32 (as the model says) or bf16. [default: fp32]"
    return click.option("--precision", default="fp32", metavar="TYPE", help=text)(command)


def precision_options(command: Command) -> Command:
    """Adds `--precision`, `--lower-ports` and `--weights-precision`."""
    ports = click.Choice(["none", "states", "all"])
    text = "With bf16: the ports that are bf16, too. [default: states]"
    command = click.option("--lower-ports", type=ports, default="states", help=text)(command)
    text = "With bf16: f8e4m3 stores weights of products in eight bits, with a scale per column."
    command = click.option("--weights-precision", default="", metavar="TYPE", help=text)(command)
    return precision_option(command)


def mesh_option(command: Command) -> Command:
    """Adds `--mesh`."""
    text = "Sockets that share the work: dp=2,tp=4 (tp cuts weights, dp the batch, ep experts). [default: one socket]"
    return click.option("--mesh", metavar="AXIS=N,…", help=text)(command)


def mesh_of(text: str | None) -> dict[str, int] | None:
    """The axes of `--mesh`; `CompileError` for what is none."""
    if text is None:
        return None
    from headrace.passes.analysis.sharding import mesh_from_text

    return dict(mesh_from_text(text).axes)


def json_option(command: Command) -> Command:
    """Adds `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")(command)


def device_option(default: str | None = None) -> Callable[[Command], Command]:
    """Adds `--device`."""
    shown = f" [default: {default or 'sn40l'}]"
    return click.option(
        "--device", default=default, metavar="NAME|TOML", help=f"A shipped device, or a file that describes one.{shown}"
    )


def failure_options(command: Command) -> Command:
    """Adds what says how a model fails: `--predicate`, `--passes`, `--load-pass-plugin`, `--device`, `--weights`,
    `--inputs`, and `--dim` and `--input`."""
    predicates = "failure, crash, refused[=CODE], execution, digest[=HEX], a kind of bug, or a command"
    for option in (
        click.option("--inputs", metavar="NPZ|random:SEED", help="Inputs that programs run on. [default: random:0]"),
        click.option("--weights", metavar="FILE|random:SEED", help="Weights. [default: the model's own, or random:0]"),
        device_option(),
        click.option(
            "--load-pass-plugin", "plugins", multiple=True, metavar="FILE|MODULE", help="Passes of your own, in Python."
        ),
        click.option("--predicate", default="failure", metavar="WHAT", help=f"What is looked for: {predicates}."),
        click.option("-p", "--passes", metavar="PIPELINE", help="Passes in order: 'a,b{x=1},c'. [default: default]"),
    ):
        command = option(command)
    return binding_options(command)


def most_option(command: Command) -> Command:
    """Adds `--most`."""
    number = click.IntRange(min=1)
    return click.option("--most", default=2000, type=number, metavar="N", help="Programs tried. [default: 2000]")(
        command
    )


def reproducer_option(command: Command) -> Command:
    """Adds `--reproducer`."""
    where = "[default: a folder of the system's for files that may go]"
    return click.option(
        "--reproducer", "place", metavar="FILE|DIR|none", help=f"Where the program that fails goes. {where}"
    )(command)


def reproducers(ctx: click.Context, place: str | None) -> str:
    """Where reproducers go: as told; by default a folder for temporary files, and nowhere in a process that only calls
    the commands."""
    from headrace.tools.debug.reproducer import NONE, default_place

    return place if place is not None else default_place() if ctx.find_root().obj else NONE


class _Port(NamedTuple):
    """An input as `check_inputs` takes it."""

    name: str
    type: tuple[Sequence[int], str]


def read_model(
    ctx: click.Context, model: str, dims: Sequence[str], shapes: Sequence[str], shape_only: bool = False
) -> Imported:
    """The model that MODEL names, imported: a file, or a class of a Python file."""
    from headrace.compiler import import_model
    from headrace.tools.cli.module import is_class, model_of

    if not is_class(model):
        check_model(model, (".onnx", ".pt2", ".mlir"))
    read = model_of(ctx, model, shapes)
    sizes = {} if is_class(model) else shapes_of(shapes)
    return import_model(read.source, **read.options, dims=dims_of(dims), input_shapes=sizes, shape_only=shape_only)


def failing(
    ctx: click.Context,
    model: str,
    predicate: str,
    passes: str | None,
    plugins: Sequence[str],
    device: str | None,
    weights: str | None,
    inputs: str | None,
    dims: Sequence[str],
    shapes: Sequence[str],
) -> tuple[Source, ModuleOp, Trial]:
    """The model, and the passes with what is looked for, as `failure_options` give them. What is not given is taken
    from the RUN line of the file, if it has one."""
    from collections import ChainMap
    from functools import partial

    from headrace.compiler import DEFAULT_DEVICE, with_device
    from headrace.passes import pipelines
    from headrace.passes.infra.registry import available, build, loaded
    from headrace.tools.debug import Numbers, Predicate, Source, Trial, absolute
    from headrace.tools.debug.numbers import RANDOM
    from headrace.tools.debug.reproducer import arguments_in
    from headrace.tools.execution import programs
    from headrace.tools.opt import context

    wanted = Predicate.parse(predicate)
    path = Path(model)
    line = (
        arguments_in(path.read_text(encoding="utf-8", errors="replace"))
        if path.suffix == ".mlir" and path.is_file()
        else None
    )
    if line is not None:
        folder = str(path.parent)
        passes = passes if passes is not None else line.passes
        device = device or line.device
        weights = weights or line.weights.replace("%S", folder)
        inputs = inputs or (line.check_execution or RANDOM).replace("%S", folder)
        plugins = plugins or line.load_pass_plugin
    more, dialects = loaded(plugins)
    known = ChainMap[str, Any](more, dict(available()))
    built = build("default" if passes is None else passes, known, pipelines.PIPELINES)
    module = with_device(read_model(ctx, model, dims, shapes).module, device)
    if inputs is not None and not inputs.startswith("random:"):
        ports = [_Port(name, type) for name, type in programs.input_types(module).items()]
        check_inputs(ports, programs.inputs_of(module, inputs))
    numbers = Numbers(weights or (model if path.suffix == ".onnx" else RANDOM), inputs or RANDOM)
    source = Source(
        path.name, device or DEFAULT_DEVICE, tuple(x for p in plugins for x in ("--load-pass-plugin", absolute(p)))
    )
    return source, module, Trial(built, wanted, numbers, partial(context, more=dialects))


def pairs(given: Sequence[str], flag: str, example: str) -> dict[str, str]:
    """`NAME=VALUE` texts as a dictionary; `CompileError` for what is not one, or is given twice."""
    found: dict[str, str] = {}
    errors = Collector()
    for text in given:
        name, sign, value = text.rpartition("=") if flag != "--state" else text.partition("=")
        if not (name and sign and value):
            errors.add("bad-option", f"{flag} {text}: expected NAME=VALUE", fix=f"{flag} {example}")
        elif name in found:
            errors.add("bad-option", f"{flag} {name} is given twice")
        else:
            found[name] = value
    errors.raise_if_any()
    return found


def dims_of(given: Sequence[str]) -> dict[str, int]:
    """The sizes of `--dim`."""
    found: dict[str, int] = {}
    errors = Collector()
    for name, value in pairs(given, "--dim", "batch=8").items():
        if re.fullmatch(r"\d+(,\d+)+", value):
            errors.add(
                "not-supported",
                f"--dim {name}={value}: several sizes of a dim are not supported",
                why="an artifact holds one program",
                fix=f"compile once for each size: --dim {name}={value.split(',')[0]}",
            )
        elif not value.isdecimal():
            errors.add("bad-option", f"--dim {name}={value}: '{value}' is not a size", fix=f"--dim {name}=8")
        else:
            found[name] = int(value)
    errors.raise_if_any()
    return found


def shapes_of(given: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """The shapes of `--input`."""
    found: dict[str, tuple[int, ...]] = {}
    errors = Collector()
    for name, value in pairs(given, "--input", "x=1x3x224x224").items():
        if not re.fullmatch(r"\d+(x\d+)*", value):
            errors.add("bad-option", f"--input {name}={value}: '{value}' is not a shape", fix=f"--input {name}=1x3")
        else:
            found[name] = tuple(map(int, value.split("x")))
    errors.raise_if_any()
    return found


@contextmanager
def progress(quiet: bool = False) -> Generator[Callable[[int, int, str], None]]:
    """Gives a function that shows (step, of how many, what) on one line of a terminal, and clears it at the end."""
    if quiet or not sys.stderr.isatty():
        yield lambda step, total, text: None
        return

    def show(step: int, total: int, text: str) -> None:
        count = f"[{step + 1:{len(str(total))}}/{total}] " if total else ""
        sys.stderr.write(f"\r\x1b[K{count}{text[:70]}")
        sys.stderr.flush()

    try:
        yield show
    finally:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


def print_json(value: Any) -> None:
    """Print one JSON document."""
    click.echo(json.dumps(value, indent=1))


def table(rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Rows of text in columns; the first `left` columns are aligned left, the others right."""
    if not rows:
        return ""
    widths = [max(len(row[c]) for row in rows) for c in range(len(rows[0]))]

    def line(row: Sequence[str]) -> str:
        cells = [x.ljust(w) if c < left else x.rjust(w) for c, (x, w) in enumerate(zip(row, widths, strict=True))]
        return "  ".join(cells).rstrip()

    return "\n".join(map(line, rows))


def type_text(shape: Sequence[int], dtype: str) -> str:
    """A tensor type for people: `f32[1, 512, 768]`."""
    return f"{dtype}[{', '.join(map(str, shape))}]"


STEP = {
    "mode": ("decode", "Which step: one token more, or a prompt."),
    "batch": (1, "Sequences."),
    "tokens": (1024, "Tokens of a prompt, in prefill."),
    "context": (8192, "Rows of the caches, in decode."),
    "dtype": ("bf16", "Element type of weights, caches and values."),
}
"""What a configuration of a language model does not say about a step: option, default and help."""


def step_options(command: Command) -> Command:
    """Adds the options on a step of a language model that is given by its configuration."""
    for name, (default, text) in reversed(STEP.items()):
        kind: Any = click.Choice(["prefill", "decode"]) if name == "mode" else type(default)
        place = {"batch": "N", "tokens": "N", "context": "N", "dtype": "TYPE"}.get(name)
        text = f"Of a configuration. {text} [{default}]"
        command = click.option(f"--{name}", f"step_{name}", type=kind, metavar=place, help=text)(command)
    return command


def step_of(model: str, options: dict[str, Any]) -> dict[str, Any] | None:
    """Take the options on a step out of a command's; None where MODEL is no configuration of a language model, and then
    there must be none."""
    given = {name: options.pop(f"step_{name}") for name in STEP}
    if names_configuration(model):
        return {name: STEP[name][0] if value is None else value for name, value in given.items()}
    told = [f"--{name}" for name, value in given.items() if value is not None]
    if told:
        raise CompileError(
            "bad-option",
            f"{', '.join(told)} {'are' if len(told) > 1 else 'is'} given for {model}",
            why="they are for a language model that is given by its configuration",
            fix="headrace compile llama-3.1-8b --shape-only --mode decode --context 8192",
        )
    return None


def names_configuration(model: str) -> bool:
    """Whether MODEL is the configuration of a language model, by name or path."""
    from headrace.tools.cli.module import is_class

    if is_class(model) or Path(model).suffix in (".onnx", ".pt2", ".mlir", ".sn", ".py"):
        return False
    from headrace.frontends.torch.models import is_configuration

    return is_configuration(model)


def check_model(path: str, kinds: tuple[str, ...] = (".onnx", ".mlir")) -> None:
    """Refuse a file that by its name is no model of these kinds, with a hint for an artifact."""
    kind = Path(path).suffix
    if kind == ".sn":
        fix = f"it is compiled already: headrace run {path} --random-inputs 0, or --profile"
        raise CompileError("unknown-format", f"{path} is an artifact, not a model", fix=fix)
    if kind == ".py":
        fix = f"name a class, a function or a module of it: {path}:NAME"
        raise CompileError("unknown-format", f"{path} is a Python file, which may hold many models", fix=fix)
    if kind and kind not in kinds:
        fix = "give an .onnx file" if len(kinds) == 1 else f"give a file of kind {' or '.join(kinds)}"
        raise CompileError("unknown-format", f"{path}: models of kind '{kind}' are not read here", fix=fix)


def open_file(path: str) -> Artifact:
    """An artifact, not bound to memory; `CompileError` when it cannot be opened, with a hint for a model."""
    from headrace.runtime.artifact import open_artifact
    from headrace.tools.cli.module import is_class, stem_of

    if Path(path).suffix in (".onnx", ".mlir", ".pt2") or is_class(path):
        raise CompileError(
            "bad-artifact",
            f"{path} is a model, not an artifact",
            fix=f"compile it: headrace compile {path} -o {stem_of(path)}.sn",
        )
    return open_artifact(path)


def open_executable(path: str, literal: bool = False) -> Executable:
    """The executable of an artifact; `CompileError` when it cannot be loaded."""
    from headrace.runtime.session import executable_of

    return executable_of(open_file(path), literal=literal)


def load_arrays(path: str | Path, flag: str = "--inputs") -> dict[str, Array]:
    """The arrays of an .npz (or .npy, .safetensors) file by name; `CompileError` when it cannot be read."""
    from headrace.dialects.support.weights import open_store

    if not Path(path).exists():
        raise CompileError("no-such-file", f"{flag} {path}: there is no such file")
    try:
        store = open_store(path)
        return {name: store.array(name) for name in store}
    except CompileError as error:
        raise CompileError(
            "bad-inputs", f"{flag} {path}: {error.what}", why=error.why, fix="give an .npz file with an array per name"
        ) from None


def random_arrays(ports: Sequence[Any], seed: int) -> dict[str, Array]:
    """Arrays for ports (`name`, `type`) from a seed."""
    return {port.name: random_array(port.name, port.type[0], port.type[1], seed) for port in ports}


def random_array(name: str, shape: Sequence[int], dtype: str, seed: int) -> Array:
    """The array of an input from a seed: floats are standard normal; integers are 0 or 1, which index anything that has
    two elements."""
    import zlib

    import numpy as np

    from headrace.dialects.support.dtypes import is_float, to_numpy

    generator = np.random.default_rng([seed, zlib.crc32(name.encode())])
    values = generator.standard_normal(shape) if is_float(dtype) else generator.integers(0, 2, shape)
    return np.asarray(values).astype(to_numpy(dtype))


def save_arrays(path: str | Path, arrays: Mapping[str, Array]) -> None:
    """Write an .npz file, complete or not at all."""
    import zipfile

    import numpy as np

    from headrace.compiler import check_writable
    from headrace.dialects.support.files import replacing

    check_writable(path)
    with replacing(path) as raw, zipfile.ZipFile(raw, "w") as archive:
        for key, array in arrays.items():  # np.savez refuses some names
            with archive.open(zipfile.ZipInfo(f"{key}.npy"), "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.ascontiguousarray(array), allow_pickle=False)


def one_of(first: bool, second: bool, names: str) -> None:
    """Refuse a command line that gives both of two options, or neither."""
    if first == second:
        raise click.UsageError(f"give {'only one of ' if first else ''}{names}")


def array_summary(name: str, array: Array) -> dict[str, Any]:
    """An array as a few numbers: type, range, mean, and whether all of it is finite."""
    import numpy as np

    from headrace.dialects.support.dtypes import from_numpy

    found: dict[str, Any] = {"name": name, "shape": list(array.shape), "dtype": from_numpy(array.dtype)}
    if array.size:
        values = array.astype(np.float64)
        finite = bool(np.isfinite(values).all())
        found |= {
            "min": float(values.min()),
            "max": float(values.max()),
            "mean": float(values.mean()),
            "finite": finite,
        }
    return found


def array_text(found: Mapping[str, Any]) -> str:
    """A line for people on what `array_summary` gave."""
    line = f"{found['name']}: {type_text(found['shape'], found['dtype'])}"
    if "min" in found:
        line += f"  min {found['min']:.6g}  max {found['max']:.6g}  mean {found['mean']:.6g}"
        line += "" if found["finite"] else "  (not all finite)"
    return line


def check_inputs(ports: Sequence[Any], arrays: Mapping[str, Array]) -> None:
    """Refuse arrays that are missing, unknown, or of another type than their port (`name`, `type`); all at once."""
    from headrace.dialects.support.diagnostics import nearest
    from headrace.dialects.support.dtypes import from_numpy

    found = Collector()
    for port in ports:
        array = arrays.get(port.name)
        want = type_text(*port.type)
        if array is None:
            found.add("bad-input", f"input '{port.name}' of {want} is missing")
        elif (have := type_text(array.shape, from_numpy(array.dtype))) != want:
            found.add("bad-input", f"input '{port.name}' is {have}, expected {want}")
    names = [port.name for port in ports]
    for name in arrays:
        if name not in names:
            found.add("bad-input", f"no input '{name}'", fix=nearest(name, names))
    found.raise_if_any()


def plural(count: int, noun: str) -> str:
    """`1 launch`, `3 launches`."""
    ending = "" if count == 1 else "es" if noun.endswith(("ch", "s", "x")) else "s"
    return f"{count} {noun}{ending}"
