"""Weights from elsewhere than the module: a state dict as a file or a mapping, by the module's names, without a copy.

    headrace.compile(module, example_inputs=(x,), weights="model.safetensors")

Files are mapped, not read: what a program holds are views of the mapping. Pickled state dicts are read as data only. A
module on the meta device needs no memory of its own: `with torch.device("meta"): module = GPT()`.
"""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast

from headrace.dialects.support.diagnostics import Collector, CompileError
from headrace.dialects.support.weights import READERS, open_store

PICKLED = (".pt", ".pth", ".bin")
SHOWN = 20
"""Names of a kind that are listed."""


def read(given: Any) -> Mapping[str, Any]:
    """A state dict: tensors by name, of a file, a folder of files, or as given. `CompileError` when it is none."""
    if isinstance(given, Mapping):
        found = cast("Mapping[str, Any]", given)
        wrong = [name for name, x in found.items() if not hasattr(x, "untyped_storage")]
        if wrong:
            raise CompileError("bad-weights-file", f"weights {', '.join(map(repr, wrong[:3]))} are no tensors")
        return found
    if not isinstance(given, str | os.PathLike):
        raise CompileError("bad-option", f"weights are a {type(given).__name__}", fix="give a file or a state dict")
    path = Path(cast("str | os.PathLike[str]", given))
    if not path.exists():
        raise CompileError("no-such-file", f"weights '{path}': there is no such file")
    if path.suffix in PICKLED:
        return _pickled(path)
    if path.is_file() and path.suffix not in READERS:
        raise CompileError(
            "bad-weights-file",
            f"{path.name} is no known kind of weight file",
            fix=f"known: {', '.join((*PICKLED, *READERS))}",
        )
    store = open_store(path)
    return {name: to_tensor(store.array(name)) for name in store}


def _pickled(path: Path) -> Mapping[str, Any]:
    import torch as library

    torch: Any = library
    try:
        found = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:
        text = str(error)
        fix = "save it again with torch.save(module.state_dict(), file)"
        if "mmap" in text:
            why = "it is of the format before PyTorch 1.6, which cannot be mapped"
        else:
            why = "only tensors are read, no Python objects" if "weights_only" in text else text.partition("\n")[0]
        raise CompileError("bad-weights-file", f"{path.name} is no state dict", why=why, fix=fix) from error
    if isinstance(found, Mapping):
        given = cast("Mapping[str, Any]", found)
        if given and all(hasattr(x, "untyped_storage") for x in given.values()):
            return given
        inner = [key for key, x in given.items() if isinstance(x, Mapping) and x and _tensors(cast("Any", x))]
        if len(inner) == 1:  # a checkpoint: the state dict and what goes with it
            return given[inner[0]]
    raise CompileError("bad-weights-file", f"{path.name} is no state dict", fix="save module.state_dict()")


def _tensors(given: Mapping[str, Any]) -> bool:
    return all(hasattr(x, "untyped_storage") for x in given.values())


def to_tensor(array: Any) -> Any:
    """A tensor on the memory of an array."""
    import torch as library

    from headrace.dialects.support import dtypes

    torch: Any = library
    name = dtypes.from_numpy(array.dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # nothing writes to it
        return torch.from_numpy(array.view("int16")).view(torch.bfloat16) if name == "bf16" else torch.from_numpy(array)


def matched(wanted: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The given tensor for each wanted one. Names are the module's; one of several names of one tensor is enough.
    `CompileError` lists all that are missing, unknown, or of another shape."""
    errors = Collector()
    same: dict[Any, list[str]] = {}
    for name, tensor in wanted.items():
        same.setdefault(_place(tensor), []).append(name)
    found: dict[str, Any] = {}
    missing: list[str] = []
    for name, tensor in wanted.items():
        source = next((x for x in (name, *same[_place(tensor)]) if x in given), None)
        if source is None:
            missing.append(name)
        else:
            found[name] = given[source]
    unknown = [name for name in given if name not in wanted]
    prefix = _prefix(missing, unknown)
    for name in missing[:SHOWN]:
        close = get_close_matches(name, unknown, n=1, cutoff=0.6)
        fix = f"did they call it '{prefix}{name}'?" if prefix else f"did they call it '{close[0]}'?" if close else ""
        errors.add("missing-weight", f"the weights lack '{name}'", fix=fix or "add it", location=name)
    _more(errors, "missing-weight", len(missing), "are missing")
    for name in unknown[:SHOWN]:
        close = get_close_matches(name, missing, n=1, cutoff=0.6)
        fix = f"did you mean '{close[0]}'?" if close else "leave it out"
        errors.add("unknown-weight", f"the module has no '{name}'", fix=fix, location=name)
    _more(errors, "unknown-weight", len(unknown), "are not the module's")
    for name, tensor in found.items():
        want, have = wanted[name], tensor
        if tuple(want.shape) != tuple(have.shape):
            what = f"'{name}' is {_type(have)} and the module has {_type(want)}"
            errors.add("bad-weight", what, fix="make the module with the sizes of its weights", location=name)
        elif want.dtype.is_floating_point != have.dtype.is_floating_point:
            what = f"'{name}' is {_type(have)} and the module has {_type(want)}"
            errors.add("bad-weight", what, fix="store it in the type of the module", location=name)
    errors.raise_if_any()
    return {name: x if x.dtype == wanted[name].dtype else x.to(wanted[name].dtype) for name, x in found.items()}


def _place(tensor: Any) -> Any:
    return tensor.untyped_storage()._cdata, tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride())


def _prefix(missing: list[str], unknown: list[str]) -> str:
    """What all unknown names begin with before names that are missing; empty when it is not one text."""
    wanted = set(missing)
    for name in unknown:
        head, dot, tail = name.partition(".")
        if not dot or tail not in wanted or not all(x.startswith(head + dot) for x in unknown):
            return ""
    return unknown[0].partition(".")[0] + "." if unknown else ""


def _more(errors: Collector, code: str, count: int, what: str) -> None:
    if count > SHOWN:
        errors.add(code, f"{count - SHOWN} more weights {what}", fix="compare the names with module.state_dict()")


def _type(tensor: Any) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}[{', '.join(map(str, tensor.shape))}]"


def on_host(module: Any, shape_only: bool) -> Any:
    """The module with memory for what is on the meta device; itself when nothing is. The memory is never written, so it
    takes none of the machine's. `CompileError` for what no state dict will fill, unless shapes are all that is asked
    for."""
    import torch

    if not any(x.device.type == "meta" for x in (*module.parameters(), *module.buffers())):
        return module
    held = module.state_dict()
    errors = Collector()
    for name, x in module.named_buffers():
        if x.device.type == "meta" and name not in held and not shape_only:
            errors.add(
                "wrong-device",
                f"buffer '{name}' is on the meta device, and no state dict holds it",
                why="it is not persistent",
                fix="compute it in forward, make it persistent, or make the module on the CPU",
                location=name,
            )
    errors.raise_if_any()
    made: dict[int, Any] = {}

    def host(x: Any) -> Any:
        if x is None or x.device.type != "meta":
            return x
        if id(x) not in made:
            empty = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype)
            made[id(x)] = torch.nn.Parameter(empty, x.requires_grad) if isinstance(x, torch.nn.Parameter) else empty
        return made[id(x)]

    module = copy.deepcopy(module)
    for one in module.modules():
        for held in (one._parameters, one._buffers):
            held.update({name: host(x) for name, x in held.items()})
    return module
