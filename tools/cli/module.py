"""PyTorch models on the command line: a class of the user's file, made by flags that are its constructor's parameters.

    headrace compile attention.py:Attention --hidden-size 768 --num-heads 12 --input x=1x512x768

The file is run, as Python runs it. Nothing else of Headrace runs code that it is given.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from headrace.dialects.support.diagnostics import Collector, CompileError, nearest
from headrace.tools.cli.parameters import Parameters

CLASS = re.compile(r"(?P<file>.+\.py):(?P<name>\w+)")
FLAGS = "headrace.module.flags"
HELP = "headrace.module.help"
NUMBER = re.compile(r"-\d.*|-\.\d.*|-inf")
SHAPE = re.compile(r"((?P<shape>\d+(x\d+)*)(x(?=[a-z])|$))?(?P<dtype>[a-z]+\d+)?")
PLAIN = {"True": True, "False": False, "None": None}
"""Values of inputs that are no tensors."""


@dataclass(frozen=True)
class Model:
    """What is compiled: a path, or a module and the inputs on which it is exported."""

    source: Any
    inputs: tuple[Any, ...] | None = None
    kwargs: Mapping[str, Any] | None = None

    @property
    def options(self) -> dict[str, Any]:
        """What `compile` takes beside the model."""
        return {} if self.inputs is None else {"example_inputs": self.inputs, "example_kwargs": self.kwargs}


def of_configuration(one: click.Parameter) -> bool:
    """Whether an option is about a step of a model that is given by its configuration: a class has none of them."""
    return (one.name or "").startswith("step_")


class TakesFlags(click.Command):
    """A command whose MODEL may be a class: flags that it does not know are then parameters of the constructor."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        model = next((x for x in args if CLASS.fullmatch(x)), None)
        if model is not None:
            args, ctx.meta[FLAGS] = self._apart(args)
            if any(x in ctx.help_option_names for x in args):
                ctx.meta[HELP] = model
        return super().parse_args(ctx, args)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """With a class, what it is and takes."""
        if HELP in ctx.meta:
            _describe(ctx, ctx.meta[HELP], formatter)

    def _apart(self, args: Sequence[str]) -> tuple[list[str], dict[str, str]]:
        known = {
            name: one
            for one in self.params
            if isinstance(one, click.Option) and not of_configuration(one)
            for name in (*one.opts, *one.secondary_opts)
        }
        own: list[str] = []
        flags: dict[str, str] = {}
        rest = list(args)
        while rest:
            one = rest.pop(0)
            name, equals, value = one.partition("=")
            if one.startswith("--") and len(one) > 2 and name not in (*known, "--help"):
                if not equals and rest and (not rest[0].startswith("-") or NUMBER.fullmatch(rest[0])):
                    value = rest.pop(0)
                elif not equals:
                    value = "True"
                flags[name] = value
                continue
            own.append(one)
            option = known.get(name)
            if option is not None and not equals and not option.is_flag and rest:
                own.append(rest.pop(0))
        return own, flags


def is_class(model: str) -> bool:
    """Whether MODEL is a class of a file."""
    return CLASS.fullmatch(model) is not None


def stem_of(model: str, step: Mapping[str, Any] | None = None) -> str:
    """A path without suffix for what is made of MODEL: of a class its name, in the folder of its file; of the
    configuration of a language model its name and the step."""
    if step is not None:
        from headrace.frontends.torch.models import configuration

        return f"{configuration(model)[0]}-{step['mode']}"
    found = CLASS.fullmatch(model)
    return str(Path(found["file"]).parent / found["name"]) if found else str(Path(model).with_suffix(""))


def model_of(ctx: click.Context, model: str, inputs: Sequence[str], step: Mapping[str, Any] | None = None) -> Model:
    """The model that MODEL names. A class is made and its module put into inference mode; the weights it draws are
    those of seed 0. The configuration of a language model gives the program of a `step`. `CompileError` lists every
    flag and input that is wrong."""
    if step is not None:
        from headrace.frontends.torch.models import import_model

        return Model(import_model(model, **step))
    found = CLASS.fullmatch(model)
    if found is None:
        return Model(model)
    _torch(model)
    import torch

    made = _class(_run(found["file"]), found["name"], model)
    if _is_module(made):
        if ctx.meta[FLAGS]:
            flags = ", ".join(ctx.meta[FLAGS])
            raise CompileError("bad-option", f"{found['name']} is made already and takes no {flags}")
        module = made
    else:
        given = Parameters(made, found["name"], _options(ctx)).given(ctx.meta[FLAGS])
        torch.manual_seed(0)  # pyright: ignore[reportUnknownMemberType]
        try:
            module = made(**given)
        except Exception as error:
            raise _failed(f"{found['name']} cannot be made", error) from error
    if not isinstance(module, torch.nn.Module):
        raise CompileError("bad-model", f"{model} gives a {type(module).__name__}, no torch.nn.Module")
    args, kwargs = _examples(module, found["name"], inputs)
    return Model(module.eval(), args, kwargs)


def _run(file: str) -> ModuleType:
    from importlib.util import module_from_spec, spec_from_file_location

    path = Path(file)
    if not path.is_file():
        raise CompileError("no-such-file", f"there is no file '{file}'")
    name = path.stem if path.stem not in sys.modules else f"{path.stem} of {path.resolve().parent}"
    spec = spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.path.insert(0, str(path.resolve().parent))  # as Python does for a script
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise _failed(f"'{file}' cannot be run", error) from error
    return module


def _class(module: ModuleType, name: str, model: str) -> Any:
    import torch

    found = getattr(module, name, None)
    if found is None:
        classes = [key for key, x in vars(module).items() if isinstance(x, type) and issubclass(x, torch.nn.Module)]
        raise CompileError("bad-model", f"{model}: there is no '{name}' in the file", fix=nearest(name, classes))
    if not callable(found):
        raise CompileError("bad-model", f"{model}: '{name}' is no class, function or module")
    return found


def _options(ctx: click.Context) -> set[str]:
    """The flags of the command itself, of which a class takes none."""
    own = (one for one in ctx.command.get_params(ctx) if not of_configuration(one))
    return {name for one in own for name in (*one.opts, *one.secondary_opts)}


def _describe(ctx: click.Context, model: str, formatter: click.HelpFormatter) -> None:
    """What a class is and takes, below the help of the command."""
    found = CLASS.fullmatch(model)
    assert found is not None
    _torch(model)
    made = _class(_run(found["file"]), found["name"], model)
    text = inspect.getdoc(made) if "__doc__" in vars(made) or not isinstance(made, type) else ""
    with formatter.section(model):
        if text:
            for part in text.split("\n\n"):
                formatter.write_paragraph()
                formatter.write_text(part)
            formatter.write_paragraph()
        rows = [] if _is_module(made) else Parameters(made, found["name"], _options(ctx)).flags()
        if rows:
            formatter.write_dl(rows)
        else:
            formatter.write_text("takes no flags")


def _torch(model: str) -> None:
    """Refuse a class where PyTorch is not installed."""
    from headrace.modules import needs_torch

    needs_torch(f"{model}: reading PyTorch programs")


def _is_module(made: Any) -> bool:
    import torch

    return isinstance(made, torch.nn.Module)


def _examples(module: Any, name: str, inputs: Sequence[str]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Tensors for the parameters of `forward`, as `--input` says."""
    import torch as library

    from headrace.frontends.torch.node import DTYPES
    from headrace.tools.cli.common import pairs

    torch: Any = library
    parameters = inspect.signature(module.forward).parameters.values()
    known = [p for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    names = [p.name for p in known]
    types = {ours: theirs for theirs, ours in DTYPES.items()}
    errors = Collector()
    made: dict[str, Any] = {}
    for key, text in pairs(inputs, "--input", "x=1x3x224x224").items():
        shape = SHAPE.fullmatch(text)
        if key not in names and not any(p.kind == p.VAR_KEYWORD for p in parameters):
            fix = nearest(key, names) if names else "it takes none"
            errors.add("bad-option", f"{name}.forward has no input '{key}'", fix=fix)
        elif text.capitalize() in PLAIN:
            made[key] = PLAIN[text.capitalize()]
        elif shape is None:
            errors.add("bad-option", f"--input {key}={text}: '{text}' is not a shape", fix=f"--input {key}=1x3")
        elif (shape["dtype"] or "f32") not in types:
            errors.add("bad-option", f"--input {key}={text}: no element type", fix=nearest(shape["dtype"], types))
        else:
            dtype = getattr(torch, types[shape["dtype"] or "f32"])
            made[key] = torch.zeros([int(size) for size in (shape["shape"] or "").split("x") if size], dtype=dtype)
    errors.raise_if_any()
    for parameter in known:
        if parameter.name not in made and parameter.default is parameter.empty:
            fix = f"--input {parameter.name}=1x3, or with an element type --input {parameter.name}=1x3xi64"
            errors.add("missing-inputs", f"{name} needs the shape of input '{parameter.name}'", fix=fix)
    errors.raise_if_any()
    args: list[Any] = []
    for parameter in known:  # by position up to the first that is left out
        if parameter.name not in made or parameter.kind is parameter.KEYWORD_ONLY:
            break
        args.append(made.pop(parameter.name))
    return tuple(args), made


def _failed(what: str, error: Exception) -> CompileError:
    from headrace.frontends.torch.lines import user_line

    return CompileError("bad-model", f"{what}: {type(error).__name__}: {error}", location=user_line(error))
