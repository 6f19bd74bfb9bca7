"""From a module to a graph of core ATen ops: `torch.export`, and the decompositions of PyTorch but for composites that
`tensor` has."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.dialects.support.diagnostics import Collector, CompileError, nearest
from headrace.frontends.torch.effects import assigned, watched
from headrace.frontends.torch.lines import user_line

if TYPE_CHECKING:
    from torch.export import ExportedProgram

KEPT = (
    "aten.layer_norm.default",
    "aten.rms_norm.default",
    "aten.silu.default",
    "aten.softplus.default",
    "aten.hardsigmoid.default",
    "aten.hardswish.default",
    "aten.scaled_dot_product_attention.default",
    "aten.linear.default",
    "aten.matmul.default",
    "aten.take.default",
)
"""Composites that are imported whole, as they map better than what they decompose into."""

ASKED = (
    "aten._native_batch_norm_legit.no_stats",
    "aten._native_batch_norm_legit_functional.default",
    "aten.batch_norm_backward.default",
    "aten.max_pool2d_with_indices_backward.default",
    "aten.upsample_nearest1d.vec",
    "aten.upsample_nearest2d.vec",
    "aten.upsample_nearest3d.vec",
    "aten.upsample_nearest1d.default",
    "aten.upsample_nearest2d.default",
    "aten.upsample_nearest3d.default",
    "aten.upsample_linear1d.vec",
    "aten.upsample_linear1d.default",
    "aten.upsample_bilinear2d.vec",
    "aten.upsample_bilinear2d.default",
    "aten.upsample_bicubic2d.vec",
    "aten.upsample_bicubic2d.default",
    "aten.grid_sampler_2d.default",
)
"""Ops that PyTorch decomposes when asked: resampling into positions that are known here and what is gathered at them,
batch norms of training into statistics."""


def export(
    module: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    strict: bool = False,
    grad: bool = False,
    on_meta: bool = False,
) -> ExportedProgram:
    """Export a module on example inputs, as it is called where gradients are recorded if `grad` says so; all on the
    meta device if `on_meta` does, where no tensor has elements. `CompileError` says what in the module cannot be
    exported, and on which line of it."""
    import torch

    if not isinstance(module, torch.nn.Module):
        raise CompileError("bad-model", f"a {type(module).__name__} is no torch.nn.Module")
    if isinstance(module, torch.jit.ScriptModule):
        what, fix = f"{type(module).__name__} is a scripted module", "give the module that it was made of"
        raise CompileError("bad-model", what, why="it holds no Python to export", fix=fix)
    args, kwargs = _examples(module, args, dict(kwargs or {}), on_meta)
    try:
        with torch.set_grad_enabled(grad), quiet(), assigned(module):
            with watched(module) as seen:
                program = torch.export.export(module, args, kwargs, strict=strict)
            if seen.written:
                with seen.kept(), watched(module, again=True) as more, suppress(Exception):
                    torch.export.export(module, args, kwargs, strict=strict)
                seen.errors.diagnostics.extend(more.errors.diagnostics)
        seen.errors.raise_if_any()
        return program
    except CompileError:
        raise
    except Exception as error:
        raise _not_exported(module, error) from error


def _examples(module: Any, args: Any, kwargs: dict[str, Any], on_meta: bool) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The example inputs, each a tensor of its own: one that is given twice would be one input to PyTorch.
    `CompileError` lists what is missing, too much, or no tensor that can be read here."""
    import torch
    from torch.utils._pytree import tree_map

    _check_examples(module, args, kwargs, on_meta)
    seen: set[int] = set()

    def apart(x: Any) -> Any:
        if not isinstance(x, torch.Tensor) or id(x) not in seen:
            seen.add(id(x))
            return x
        return x.clone()

    return tree_map(apart, (tuple(args), kwargs))


def _check_examples(module: Any, args: Any, kwargs: Mapping[str, Any], on_meta: bool) -> None:
    errors = Collector()
    name = type(module).__name__
    if isinstance(args, Mapping):
        fix = "give a tuple, and what is given by name as example_kwargs"
        raise CompileError("bad-option", "example_inputs are a mapping, not a sequence", fix=fix)
    parameters = inspect.signature(module.forward).parameters.values()
    places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    takes = f"{name}.forward takes {', '.join(str(p) for p in parameters) or 'nothing'}"
    if len(args) > len(places) and not any(p.kind == p.VAR_POSITIONAL for p in parameters):
        errors.add("bad-option", f"{name} is given {len(args)} example inputs and takes {len(places)}", why=takes)
    given = {p.name for p in places[: len(args)]}
    known = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    for key in kwargs:
        if key in given:
            errors.add("bad-option", f"example input '{key}' of {name} is given twice")
        elif key not in known and not any(p.kind == p.VAR_KEYWORD for p in parameters):
            errors.add("bad-option", f"{name} has no input '{key}'", fix=nearest(key, known) if known else takes)
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [p.name for p in parameters if p.default is p.empty and p.kind not in optional]
    missing = [x for x in needed if x not in given and x not in kwargs]
    if missing:
        errors.add(
            "missing-inputs",
            f"{name} needs example inputs: {', '.join(missing)}",
            why="shapes and types of a module are those of its inputs",
            fix="give example_inputs=(...), one tensor for each",
        )
    errors.raise_if_any()
    given_by_name = dict(zip((p.name for p in places), args, strict=False)) | dict(kwargs)
    _check_tensors(module, given_by_name, errors, ("cpu", "meta") if on_meta else ("cpu",))
    errors.raise_if_any()


def _check_tensors(module: Any, inputs: Mapping[str, Any], errors: Collector, allowed: Sequence[str]) -> None:
    """Every tensor lies in host memory, or where else it may."""
    import torch
    from torch.utils._pytree import keystr, tree_flatten_with_path

    found: list[tuple[str, Any]] = []
    for name, value in inputs.items():
        found += [(f"input '{name}{keystr(path)}'", x) for path, x in tree_flatten_with_path(value)[0]]
    found += [(f"parameter '{name}'", x) for name, x in module.named_parameters()]
    found += [(f"buffer '{name}'", x) for name, x in module.named_buffers()]
    devices: dict[str, list[str]] = {}
    for name, x in found:
        if not isinstance(x, torch.Tensor):
            if type(x).__module__.partition(".")[0] == "numpy" and hasattr(x, "shape"):
                errors.add("bad-input", f"{name} is an array of NumPy", fix="torch.from_numpy(x) makes a tensor of it")
            continue
        if x.layout != torch.strided:
            errors.add("bad-input", f"{name} has layout {x.layout}", fix="make it dense: x.to_dense()")
        elif x.device.type not in allowed:
            devices.setdefault(str(x.device), []).append(name)
    for device, names in devices.items():
        more = f" and {len(names) - 3} more" if len(names) > 4 else ""
        shown = names if not more else names[:3]
        errors.add(
            "wrong-device",
            f"{', '.join(shown)}{more} {'are' if len(names) > 1 else 'is'} on device {device}",
            why="tensors on the meta device hold no elements"
            if device == "meta"
            else "weights and inputs are read from host memory",
            fix="make it on the CPU" if device == "meta" else "move it there: .cpu()",
        )


def load(path: str | os.PathLike[str]) -> ExportedProgram:
    """The exported program of a `.pt2` file."""
    import torch

    if not Path(path).is_file():
        raise CompileError("no-such-file", f"there is no file '{path}'")
    try:
        with quiet():
            return torch.export.load(path)
    except Exception as error:
        raise CompileError("bad-model", f"'{path}' is no exported program: {first_line(error)}") from error


def decompositions() -> Any:
    """What PyTorch decomposes, by op."""
    import torch

    table: Any = torch.export.default_decompositions()
    for name in KEPT:
        table.pop(_op(name), None)
    table.update(torch._decomp.get_decompositions([_op(name) for name in ASKED]))  # pyright: ignore
    table[_op("aten._weight_norm_interface_backward.default")] = _weight_norm_backward
    return table


def _weight_norm_backward(grad: Any, v: Any, g: Any, norms: Any, dim: int) -> Any:
    """The gradients of `g * v / norm(v)`, the norm over all dims but one, by direction and length."""
    others = [i for i in range(v.ndim) if i != dim]
    norms = norms.to(v.dtype)
    along = (grad * v).sum(others, keepdim=True) / norms
    return g / norms * (grad - v / norms * along), along.to(g.dtype)


@contextmanager
def plain_recurrence() -> Generator[None]:
    """Where PyTorch takes an LSTM apart into ops, and not into one of a library for the host."""
    import torch as library

    torch: Any = library
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


def _op(name: str) -> Any:
    import torch

    _, packet, overload = name.split(".")
    return getattr(getattr(torch.ops.aten, packet), overload)


def lowered(program: Any) -> ExportedProgram:
    """The program in core ATen, composites of `KEPT` whole."""
    try:
        with quiet():
            return program.run_decompositions(decompositions())
    except Exception as error:
        fix = "make it a buffer: self.register_buffer" if "register it as buffer" in str(error) else ""
        raise _explained("the program", error, "bad-model", "PyTorch does not decompose the program", fix) from error


@contextmanager
def quiet() -> Generator[None]:
    """Without PyTorch's warnings on its own use of what it will drop."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        warnings.filterwarnings("ignore", r"The tensor attributes? self\.\S*_flat_weights")  # of PyTorch's own LSTM
        yield


def _not_exported(module: Any, error: Exception) -> CompileError:
    name = type(module).__name__
    fix = "see whether module(*example_inputs) runs; what Python decides must not depend on elements of tensors"
    if any(sign in str(error) for sign in ("not a known type", "Unsupported input type")):
        fix = "take and give tensors in tuples, lists and dicts; torch.utils._pytree.register_pytree_node adds a class"
    return _explained(name, error, "not-exportable", f"{name} cannot be exported", fix)


def _explained(name: str, error: Exception, code: str, what: str, fix: str) -> CompileError:
    """What PyTorch did not do; elements of tensors that decide are the most frequent cause."""
    text, why = str(error).lower(), ""
    if any(sign in text for sign in ("data-dependent", "guard on", "unbacked symbol")):
        code = "dynamic-shape"
        what = f"{name} cannot be exported: what it does depends on the elements of a tensor"
        why = first_line(error)
        fix = "choose between results with torch.where, mask instead of selecting, or give a number as an argument"
    else:
        what = f"{what}: {first_line(error)}"
    return CompileError(code, what, why=why, fix=fix, location=user_line(error))


def first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
