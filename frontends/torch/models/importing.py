"""A language model's configuration → the `tensor` program of one step, without weights.

    found = import_model("llama-3.1-405b", "decode", batch=1, context=8192)
    headrace.compile(found, device="sn40l", shape_only=True)

transformers makes the model on the meta device, where tensors have shapes and no elements. Layers that are the same
but for their weights are imported twice and no more: `repeat.py` makes the whole model of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module as library
from typing import TYPE_CHECKING, Any, Literal, cast

from headrace.dialects.support.diagnostics import Collector, CompileError, nearest
from headrace.dialects.support.weights import WeightStore
from headrace.frontends.base import ImportResult
from headrace.frontends.torch.importer import import_program, to_array
from headrace.frontends.torch.models.configurations import configuration
from headrace.frontends.torch.models.repeat import Layers, Role, repeat
from headrace.frontends.torch.node import DTYPES
from headrace.frontends.torch.program import export

if TYPE_CHECKING:
    import numpy as np

Mode = Literal["prefill", "decode"]
MODES: tuple[Mode, ...] = ("prefill", "decode")
FLOATS = ("bf16", "f16", "f32")
SAMPLES = 2
"""Layers of a kind that are imported: one to stand for all, and one more to see that it may."""
PREFIX = "model."
"""What names of the module of a step begin with, before the model's own."""


@dataclass(slots=True)
class ModelImport(ImportResult):
    """The program of a step, and how its model is made of layers."""

    kinds: tuple[int, ...] = ()
    """The kind of each layer."""
    parameters: int = 0
    """Numbers in all parameters, whichever of them a step reads."""


def import_model(
    model: str | os.PathLike[str] | Mapping[str, Any],
    mode: str = "decode",
    *,
    batch: int = 1,
    tokens: int = 1024,
    context: int = 8192,
    dtype: str = "bf16",
    distinct: bool = True,
    calls: bool = True,
) -> ModelImport:
    """The program of a step of a language model, shapes only.

    `model`: a name (`NAMES`), the path of a `config.json`, or a configuration as a mapping. `mode`: "prefill" (a prompt
    of `tokens` tokens: the logits of the last one, and the keys and values of each layer) or "decode" (one token more,
    at any position, with caches of `context` rows as states). `batch` sequences go side by side. `dtype` is the element
    type of weights, caches and activations, whatever a checkpoint stores. `distinct` imports each distinct layer once
    and makes the others calls; without it every layer is imported.

    `CompileError` lists what is wrong: an unknown model, an option, what the front end does not take.
    """
    check_options(mode, batch, tokens, context, dtype)
    name, given = configuration(model)
    made = build(given, dtype)
    sizes = {"batch": batch, "tokens": tokens, "context": context}
    return import_built(made, name, mode, **sizes, distinct=distinct, calls=calls)


def check_options(mode: str, batch: int, tokens: int, context: int, dtype: str) -> None:
    """Refuse options that are wrong, all at once."""
    errors = Collector()
    if mode not in MODES:
        errors.add("bad-option", f"there is no mode '{mode}'", fix=nearest(mode, MODES))
    for label, size in (("batch", batch), ("tokens", tokens), ("context", context)):
        if size < 1:
            errors.add("bad-option", f"{label} is {size}, must be at least 1")
    if dtype not in FLOATS:
        errors.add("bad-option", f"dtype '{dtype}' is none that models are made in", fix=nearest(dtype, FLOATS))
    errors.raise_if_any()


def build(given: Mapping[str, Any], dtype: str = "bf16", device: str = "meta") -> Any:
    """The model of a configuration in inference mode; on the meta device it holds no bytes."""
    for package in ("torch", "transformers"):
        try:
            library(package)
        except ImportError:
            what = f"building a model from its configuration needs {package}"
            raise CompileError("missing-extra", what, fix="install headrace[models]") from None
    import torch as library_of_tensors
    import transformers as library_of_models

    torch: Any = library_of_tensors
    transformers: Any = library_of_models
    kind = str(given["model_type"])
    known = [str(key) for key in getattr(transformers, "CONFIG_MAPPING", {})]
    dropped = ("model_type", "architectures", "auto_map", "dtype", "quantization_config", "torch_dtype")
    options = {key: value for key, value in given.items() if key not in dropped and not key.startswith("_")}
    try:
        config = transformers.AutoConfig.for_model(kind, **options)
    except ValueError as error:
        unknown = "Unrecognized model" in str(error)
        what = f"transformers {transformers.__version__} has no model type '{kind}'" if unknown else first_line(error)
        raise CompileError("bad-config", what, fix=nearest(kind, known) if unknown and known else "") from None
    except Exception as error:
        raise CompileError("bad-config", f"'{kind}' is not configured so: {first_line(error)}") from error
    mapping: Any = transformers.MODEL_FOR_CAUSAL_LM_MAPPING
    if type(config) not in mapping:
        raise CompileError("bad-config", f"model type '{kind}' is no language model", why="it has no causal form")
    try:
        with torch.device(device):
            model = transformers.AutoModelForCausalLM.from_config(
                config, dtype=getattr(torch, _torch_name(dtype)), attn_implementation="eager"
            )
    except Exception as error:
        raise CompileError("bad-config", f"'{kind}' cannot be built: {first_line(error)}") from error
    model.config.use_cache = True
    return model.eval()


def _torch_name(dtype: str) -> str:
    return next(theirs for theirs, ours in DTYPES.items() if ours == dtype)


def first_line(error: Exception) -> str:
    """What an exception says, in one line."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def import_built(
    model: Any,
    name: str,
    mode: str,
    *,
    batch: int = 1,
    tokens: int = 1024,
    context: int = 8192,
    distinct: bool = True,
    calls: bool = True,
) -> ModelImport:
    """The program of a step of a model that is built, on the meta device or with weights; the model is used up."""
    import torch as library_of_tensors

    from headrace.frontends.torch.models.steps import FULL, SLIDING, Decode, Prefill, layer_types

    torch: Any = library_of_tensors
    config = model.config
    if not hasattr(model.get_decoder(), "layers") or not hasattr(config, "num_hidden_layers"):
        raise CompileError(
            "not-supported",
            f"a {type(model).__name__} is no decoder with a list of layers",
            fix="give the module and example inputs: headrace.compile(module, example_inputs=(x,))",
        )
    unknown = sorted({kind for kind in layer_types(config) if kind not in (FULL, SLIDING)})
    if unknown:
        raise CompileError(
            "not-supported",
            f"layers of type {', '.join(unknown)} are not supported",
            why="what they keep from token to token is no cache of keys and values",
        )
    path, kinds = _kinds(model) if distinct else (_path(model), tuple(range(config.num_hidden_layers)))
    held = dict(model.state_dict(keep_vars=True))
    count_of_all = sum(x.numel() for x in model.parameters())
    layers = Layers(path, kinds, _sample(kinds))
    _keep(model, path, layers.sample)
    device = next(model.parameters()).device
    if mode == "prefill":
        step: Any = Prefill(model)
        args = (torch.zeros((batch, tokens), dtype=torch.int32, device=device),)
    else:
        try:
            step = Decode(model, batch, context)
        except Exception as error:
            what = f"a {type(model).__name__} does not take a token as decoders do: {first_line(error)}"
            raise CompileError("not-supported", what) from error
        args = tuple(torch.zeros((size,), dtype=torch.int32, device=device) for size in (batch, 1))
    program = export(step.eval(), args, on_meta=True)
    imported = import_program(program, name=f"{name}-{mode}", constants=_computed(program, step))
    found = imported.result
    count = len(layers.sample)
    inputs = [_role(one.name) for one in found.inputs]
    if mode == "prefill":
        kept: list[Role] = [(f"present.{part}", j) for j in range(count) for part in ("key", "value")]
        states: dict[str, str] = {}
    else:
        kept = [_role(one.removesuffix(".next").replace("past", "present")) for _, one in found.states]
        states = {f"past.{part}": f"present.{part}" for part in ("key", "value")}
    by_name = {port: role for (_, port), role in zip(found.states, kept, strict=False)} if mode == "decode" else {}
    rest = iter([("logits", None), *(kept if mode == "prefill" else [])])
    outputs: list[Role] = [by_name[one.name] if one.name in by_name else next(rest) for one in found.outputs]
    store = _store(held)
    whole = repeat(found, layers, inputs, outputs, states, store, f"{name}-{mode}", PREFIX, calls)
    return ModelImport(
        whole.module,
        whole.store,
        whole.inputs,
        whole.outputs,
        whole.states,
        whole.coverage,
        whole.name,
        kinds=kinds,
        parameters=count_of_all,
    )


def _role(name: str) -> Role:
    """past.3.key → (past.key, 3)."""
    parts = name.split(".")
    return (f"{parts[0]}.{parts[2]}", int(parts[1])) if len(parts) == 3 else (name, None)


# Which layers are the same


def _path(model: Any) -> str:
    from headrace.frontends.torch.models.steps import layers_of

    layers = layers_of(model)
    return next(name for name, one in model.named_modules() if one is layers)


def _kinds(model: Any) -> tuple[str, tuple[int, ...]]:
    """Where the layers are, and a number for each, equal for those that differ in nothing but their weights."""
    from headrace.frontends.torch.models.steps import layers_of

    config = model.config
    count = config.num_hidden_layers
    per_layer = _per_layer(config, count)
    numbers: dict[Any, int] = {}
    kinds = [
        numbers.setdefault((_shape_of(layer), *(repr(x[i]) for x in per_layer.values())), len(numbers))
        for i, layer in enumerate(layers_of(model))
    ]
    return _path(model), tuple(kinds)


def _attributes(x: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", x.__dict__)


def _per_layer(config: Any, count: int) -> dict[str, Sequence[Any]]:
    """What a configuration says of each layer."""
    return {key: x for key, x in _attributes(config).items() if isinstance(x, list | tuple) and _size(x) == count}


def _size(x: Any) -> int:
    return len(x)


PLAIN = (bool, int, float, str, type(None))
OWN = ("layer_idx", "layer_id", "training")


def _shape_of(module: Any) -> Any:
    """What a module is but for the elements of its tensors and its number: classes, plain attributes, shapes."""
    attributes = [(key, repr(x)) for key, x in sorted(_attributes(module).items()) if key not in OWN and _is_plain(x)]
    tensors = [
        (key, tuple(x.shape), str(x.dtype))
        for key, x in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False))
    ]
    children = [(key, _shape_of(child)) for key, child in module.named_children()]
    kind = module.__class__
    return f"{kind.__module__}.{kind.__qualname__}", tuple(attributes), tuple(tensors), tuple(children)


def _is_plain(x: Any) -> bool:
    if isinstance(x, list | tuple):
        return all(map(_is_plain, x))  # pyright: ignore[reportUnknownArgumentType]
    return isinstance(x, PLAIN)


def _sample(kinds: Sequence[int]) -> tuple[int, ...]:
    """The first layers of each kind, in order."""
    seen: dict[int, int] = {}
    found: list[int] = []
    for i, kind in enumerate(kinds):
        seen[kind] = seen.get(kind, 0) + 1
        if seen[kind] <= SAMPLES:
            found.append(i)
    return tuple(found)


def _keep(model: Any, path: str, sample: Sequence[int]) -> None:
    """Leave a model with those layers only, numbered anew."""
    import torch as library_of_tensors

    torch: Any = library_of_tensors
    parent, _, name = path.rpartition(".")
    layers = model.get_submodule(path)
    config = model.config
    count = config.num_hidden_layers
    for key, x in _per_layer(config, count).items() if count != len(sample) else ():
        setattr(config, key, [x[i] for i in sample])
    config.num_hidden_layers = len(sample)
    kept = torch.nn.ModuleList(layers[i] for i in sample)
    for j, layer in enumerate(kept):
        for module in layer.modules():
            for key in OWN[:2]:
                if isinstance(_attributes(module).get(key), int):
                    setattr(module, key, j)
    setattr(model.get_submodule(parent) if parent else model, name, kept)


# Elements of tensors


def _computed(program: Any, step: Any) -> dict[str, Any]:
    """The elements of buffers that no checkpoint has, such as the speeds of rotary positions, where a module on the
    meta device can be made again from the configuration."""
    config = step.model.config
    found: dict[str, Any] = {}
    for name, one in step.model.named_modules():
        lost = {key: x for key, x in one.named_buffers(recurse=False) if x.device.type == "meta"}
        lost = {key: x for key, x in lost.items() if f"{PREFIX}{name}.{key}" in program.constants}
        if not lost or list(one.parameters()):
            continue
        try:
            again = type(one)(config=config)
        except Exception:  # it takes something else: shapes are all there is
            continue
        for key, x in again.named_buffers(recurse=False):
            if key in lost and x.device.type == "cpu" and (x.shape, x.dtype) == (lost[key].shape, lost[key].dtype):
                found[f"{PREFIX}{name}.{key}"] = x
    return found


def _store(held: Mapping[str, Any]) -> WeightStore:
    """The weights of the whole model by name."""
    from headrace.frontends.torch.node import type_of

    store = WeightStore()
    seen: dict[int, str] = {}
    for key, tensor in held.items():
        if id(tensor) in seen:  # tied
            continue
        seen[id(tensor)] = key
        type = type_of(tensor)
        store.add(key, type.shape, type.dtype, _loader(tensor))
    return store


def _loader(tensor: Any) -> Callable[[], np.ndarray[Any, np.dtype[Any]]] | None:
    return None if tensor.device.type == "meta" else partial(to_array, tensor)
