"""From a module to a graph of core ATen ops: `torch.export`, and the decompositions of PyTorch but for composites that
`tensor` has."""

from __future__ import annotations

import os
import traceback
import warnings
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.dialects.support.diagnostics import CompileError

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


def is_own(path: str) -> bool:
    """Whether a file is a model's: not one of PyTorch or of Python."""
    import torch

    return not path.startswith((os.path.dirname(torch.__file__), os.path.dirname(os.__file__), "<"))


def export(
    module: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    strict: bool = False,
    grad: bool = False,
) -> ExportedProgram:
    """Export a module on example inputs, as it is called where gradients are recorded if `grad` says so. `CompileError`
    says what in the module cannot be exported, and on which line of it."""
    import torch

    if not isinstance(module, torch.nn.Module):
        raise CompileError("bad-model", f"a {type(module).__name__} is no torch.nn.Module")
    if not args and not kwargs:
        import inspect

        needed = [
            p.name
            for p in inspect.signature(module.forward).parameters.values()
            if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
        ]
        if needed:
            raise CompileError(
                "missing-inputs",
                f"{type(module).__name__} needs example inputs: {', '.join(needed)}",
                why="shapes and types of a module are those of its inputs",
                fix="give example_inputs=(...), one tensor for each",
            )
    try:
        with torch.set_grad_enabled(grad), quiet():
            args, kwargs = _apart(tuple(args), dict(kwargs or {}))
            return torch.export.export(module, args, kwargs, strict=strict)
    except CompileError:
        raise
    except Exception as error:
        raise _not_exported(module, error) from error


def _apart(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The example inputs, each a tensor of its own: one that is given twice would be one input to PyTorch."""
    import torch
    from torch.utils._pytree import tree_map

    seen: set[int] = set()

    def apart(x: Any) -> Any:
        if not isinstance(x, torch.Tensor) or id(x) not in seen:
            seen.add(id(x))
            return x
        return x.clone()

    return tree_map(apart, (args, kwargs))


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
    return table


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
        raise CompileError("bad-model", f"PyTorch does not decompose the program: {first_line(error)}") from error


@contextmanager
def quiet() -> Generator[None]:
    """Without PyTorch's warnings on its own use of what it will drop."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield


def _not_exported(module: Any, error: Exception) -> CompileError:
    text = str(error)
    code, fix = "not-exportable", "see torch.export's limits: no data-dependent control flow, static shapes"
    if "data-dependent" in text.lower() or "guard on" in text.lower():
        code, fix = "dynamic-shape", "shapes are static in Headrace: bound the size, or mask instead of selecting"
    return CompileError(
        code,
        f"{type(module).__name__} cannot be exported: {first_line(error)}",
        fix=fix,
        location=user_line(error),
    )


def user_line(error: BaseException) -> str:
    """Where in the user's code an error arose: the last frame that is not of a library; empty when there is none."""
    stack = traceback.extract_tb(error.__traceback__)
    root = Path(__file__).resolve().parents[2]
    ours = tuple(f"{root / part}{os.sep}" for part in ("frontends", "tools"))
    own = (frame for frame in reversed(stack) if is_own(frame.filename) and not frame.filename.startswith(ours))
    frame = next(own, None)
    return f"{frame.filename}:{frame.lineno}" if frame is not None else ""


def first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
