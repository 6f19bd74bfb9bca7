"""The executable of a PyTorch module: it takes and gives what the module does."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from headrace.dialects.support import dtypes
from headrace.dialects.support.diagnostics import CompileError
from headrace.runtime.session import Executable

if TYPE_CHECKING:
    from headrace.frontends.base import CoverageRow
    from headrace.frontends.torch import ImportedProgram
    from headrace.frontends.torch.importer import Output

EXAMPLES = "example_inputs"


def is_program(model: Any) -> bool:
    """Whether a model is a module or an exported program of PyTorch. PyTorch is not imported to find out."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    exported = getattr(getattr(torch, "export", None), "ExportedProgram", ())
    graph = getattr(sys.modules.get("headrace.frontends.torch"), "GraphProgram", ())
    return isinstance(model, tuple(kind for kind in (torch.nn.Module, exported, graph) if kind))


def import_torch(
    model: Any,
    inputs: Sequence[Any] | None,
    kwargs: Mapping[str, Any] | None,
    shape_only: bool,
    seed: int | None,
    dims: Mapping[str, int] | None = None,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    weights: Any = None,
) -> ImportedProgram:
    """Import a module (on example inputs), an exported program, a graph or a `.pt2` file. `dims` and `input_shapes`
    bind the dynamic dims of an exported program; `weights` take the place of its own."""
    graph = getattr(sys.modules.get("headrace.frontends.torch"), "GraphProgram", ())
    if graph and isinstance(model, graph):
        from headrace.frontends.torch import import_graph

        return import_graph(model, seed=seed)
    program, name = _exported(model, inputs, kwargs, shape_only, weights is not None)
    from headrace.frontends import torch as frontend

    return frontend.import_program(
        program, name=name, shape_only=shape_only, seed=seed, dims=dims, input_shapes=input_shapes, weights=weights
    )


def plan_torch(
    model: Any,
    inputs: Sequence[Any] | None,
    kwargs: Mapping[str, Any] | None,
    dims: Mapping[str, int] | None = None,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
) -> tuple[CoverageRow, ...]:
    """What would become of each op of the program."""
    program, _ = _exported(model, inputs, kwargs, True)
    from headrace.frontends import torch as frontend

    return frontend.plan_program(program, dims=dims, input_shapes=input_shapes)


def run_torch(
    model: Any,
    inputs: Sequence[Any] | None,
    kwargs: Mapping[str, Any] | None,
    dims: Mapping[str, int],
    input_shapes: Mapping[str, Sequence[int]],
    weights: Any,
    arrays: Mapping[str, Any],
) -> tuple[list[Any], dict[str, list[Any]]]:
    """What PyTorch computes on arrays by the names of the imported program's inputs: the flat results, and what each
    call gives by its place."""
    program, _ = _exported(model, inputs, kwargs, False, weights is not None)
    from headrace.frontends.torch import reference

    return reference.run(program, dims, input_shapes, weights, arrays)


def _exported(
    model: Any, inputs: Sequence[Any] | None, kwargs: Mapping[str, Any] | None, shape_only: bool, filled: bool = False
) -> tuple[Any, str]:
    """The exported program of a model, and its name. A module whose bytes are not asked for (`shape_only`), or come
    from elsewhere (`filled`), may be on the meta device."""
    needs_torch("reading PyTorch programs")
    import torch

    from headrace.frontends import torch as frontend
    from headrace.frontends.torch.weights import on_host

    if isinstance(model, torch.nn.Module):
        if isinstance(inputs, torch.Tensor):
            inputs = (inputs,)
        module = on_host(model, shape_only) if shape_only or filled else model
        return frontend.export(module, inputs or (), kwargs), type(model).__name__
    if inputs is not None or kwargs:
        raise CompileError("bad-option", f"{EXAMPLES} are given beside a program that is exported already")
    if isinstance(model, str) or hasattr(model, "__fspath__"):
        return frontend.load(model), os.path.splitext(os.path.basename(model))[0]
    return model, "program"


def needs_torch(what: str) -> None:
    """Refuse what needs PyTorch where it is not installed."""
    try:
        import_module("torch")
    except ImportError:
        raise CompileError("missing-extra", f"{what} needs PyTorch", fix="install headrace[torch]") from None


def refuse_beside_program(model: Any, *, dims: Any, input_shapes: Any, **options: Any) -> None:
    """Refuse options that say what a PyTorch program says itself: the dims of a module are those of its examples."""
    if _is_module(model):
        options |= {"dims": dims, "input_shapes": input_shapes}
    given = [name for name, value in options.items() if value]
    if given:
        raise CompileError(
            "bad-option",
            f"{', '.join(given)} are given beside a PyTorch program",
            why="shapes are those of the example inputs, states the buffers that the module changes",
        )


def no_module(model: Any) -> CompileError:
    """The error for example inputs beside a model that is no module."""
    name = getattr(model, "__name__", "")
    if isinstance(model, type):
        what, fix = f"{name} is a class", f"make a module of it: {name}(...)"
    elif callable(model):
        what, fix = f"{name or type(model).__name__} is a function, no module", "call it in the forward of a module"
    else:
        return CompileError("bad-option", "example inputs are given beside a model that is no PyTorch module")
    return CompileError("bad-model", what, why="PyTorch exports modules", fix=fix)


def _is_module(model: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)


class ModuleExecutable:
    """Called like the module that it was compiled from: tensors in, the module's structure of tensors out. Buffers that
    the module changes live in the executable (`state`, `reset`); arguments that it changes in place are changed.

    Everything else (`profile`, `save`, `program` …) is that of `executable`."""

    def __init__(self, executable: Executable, call: ImportedProgram) -> None:
        self.executable = executable
        self._call = call
        self._started = not call.initial

    def __getattr__(self, name: str) -> Any:
        """What the executable has."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.executable, name)

    def __repr__(self) -> str:
        return f"<module {self.executable!r}>"

    @property
    def draws(self) -> bool:
        """Whether it draws random numbers."""
        return bool(self._call.random)

    def reset(self, state: Mapping[str, Any] | None = None, *, seed: int | None = None) -> None:
        """Set the buffers to what the module was compiled with, but for those that are given. Random numbers are drawn
        again from the first on: those of a `seed`, or of the one that the module was compiled with."""
        first = self._first()
        if seed is not None and self._call.random:
            from headrace.frontends.random import state as random_state

            first[self._call.random] = random_state(seed)
        self.executable.reset({**first, **(state or {})})
        self._started = True

    def _first(self) -> dict[str, Any]:
        """What states hold at first."""
        return {name: load() for name, load in self._call.initial.items()}

    def _more(self) -> Mapping[str, Any]:
        """Inputs of the program that the caller does not give."""
        return {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run once. `CompileError` when arguments are not those that the module was compiled for."""
        import torch
        from torch.utils._pytree import tree_flatten, tree_unflatten

        if not self._started:
            self.reset()
        call = self._call
        if call.in_spec is not None:  # keywords come in any order
            order = {name: i for i, name in enumerate(call.in_spec.children()[1].context)}
            kwargs = dict(sorted(kwargs.items(), key=lambda one: order.get(one[0], len(order))))
        flat, spec = tree_flatten((args, kwargs))
        if call.in_spec is not None and spec != call.in_spec:
            raise CompileError(
                "bad-input",
                f"it was compiled for {len(call.inputs)} values and is given {len(flat)}"
                if len(flat) != len(call.inputs)
                else "its arguments are structured otherwise than the example inputs",
                why=f"it takes {_spelt(call.in_spec)} and is given {_spelt(spec)}",
                fix="call it as with the example inputs, or compile it for these",
            )
        for position, value in call.constants:
            if flat[position] != value:
                raise CompileError(
                    "bad-input",
                    f"argument {position} is {flat[position]!r} but it was compiled for {value!r}",
                    why="what is no tensor is part of the program",
                    fix="compile it for this value",
                )
        given = {name: _array(name, x) for name, x in zip(call.inputs, flat, strict=False) if name is not None}
        results = self.executable({**given, **self._more()})
        for name, result in call.changed.items():
            position = call.inputs.index(name)
            with torch.no_grad():
                flat[position].copy_(to_tensor(results[result]))
        made = [_result(x, results) for x in call.outputs]
        return tree_unflatten(made, call.out_spec) if call.out_spec is not None else made


def _result(output: Output, results: Mapping[str, Any]) -> Any:
    """A result of the module: a tensor, a number or a plain value."""
    if not output.name:
        return output.value
    return results[output.name].item() if output.number else to_tensor(results[output.name])


def _spelt(spec: Any) -> str:
    """The structure of arguments on one line."""
    return " ".join(str(spec).split())


def _array(name: str, x: Any) -> Any:
    import torch

    if not isinstance(x, torch.Tensor):
        return x
    if x.device.type != "cpu":
        raise CompileError("bad-input", f"input '{name}' is on device {x.device}", fix="move it with .cpu()")
    x = x.detach()
    if x.dtype == torch.bfloat16:
        return x.contiguous().view(torch.int16).numpy().view(dtypes.to_numpy("bf16"))
    return x.numpy()


def to_tensor(array: Any) -> Any:
    """An array as a tensor over the same memory."""
    import torch as library

    torch: Any = library
    if dtypes.from_numpy(array.dtype) == "bf16":
        return torch.from_numpy(array.view("int16")).view(torch.bfloat16)
    return torch.from_numpy(array)
