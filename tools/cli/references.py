"""References to compare a model with: recorded outputs, ONNX Runtime, or ONNX's own evaluator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from headrace.dialects.support.diagnostics import CompileError

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Reference:
    """Values by name and who made them; `nodes` lists the value names that each node makes, in the model's order."""

    source: str
    values: Mapping[str, Array]
    nodes: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])


def outputs_of(
    model: str,
    inputs: Mapping[str, Array],
    recorded: Mapping[str, Array] | None,
    which: str,
    names: Sequence[str],
) -> Reference:
    """The expected outputs: the recorded ones, else those of a framework."""
    if recorded is None:
        _check_kind(model)
        source, run = _framework(which)
        return Reference(source, dict(zip(names, run(model, inputs, list(names)), strict=True)))
    if set(names) <= set(recorded):
        return Reference("recorded outputs", {name: recorded[name] for name in names})
    if len(recorded) != len(names):
        missing = [name for name in names if name not in recorded]
        raise CompileError(
            "bad-inputs",
            f"--expected has no output {', '.join(map(repr, missing))}",
            why=f"it has {', '.join(map(repr, recorded))}",
        )
    return Reference("recorded outputs, in order", dict(zip(names, recorded.values(), strict=True)))


def intermediates_of(model: str, inputs: Mapping[str, Array], which: str) -> Reference:
    """Every value that the nodes of the model make. `CompileError` when no framework can say."""
    _check_kind(model)
    nodes = _nodes(_load(model, weights=False).graph)
    names = list(dict.fromkeys(name for made in nodes.values() for name in made))
    source, run = _framework(which)
    return Reference(source, dict(zip(names, run(model, inputs, names), strict=True)), nodes)


def by_node(reference: Reference) -> dict[str, list[Array]]:
    """The values of a reference by the node that makes them."""
    found = {
        node: [reference.values[x] for x in made if x in reference.values] for node, made in reference.nodes.items()
    }
    return {node: values for node, values in found.items() if values}


def places_of(model: str, recorded: Mapping[str, Array]) -> dict[str, list[Array]]:
    """Recorded values inside an .onnx model by the node that makes them, in the model's order. They go by their own
    name or by that of the node. Empty when only outputs are recorded."""
    graph = _load(model, weights=False).graph
    if set(recorded) <= {one.name for one in graph.output}:
        return {}
    nodes = _nodes(graph)
    return by_node(Reference("recorded values", recorded, {x: [*made, x] for x, made in nodes.items()}))


def _nodes(graph: Any) -> dict[str, list[str]]:
    """The values that each node makes, by name as the importer names it."""
    return {
        node.name or f"{node.op_type}_{index}": [name for name in node.output if name]
        for index, node in enumerate(graph.node)
    }


def _check_kind(model: str) -> None:
    if not model.endswith(".onnx"):
        raise CompileError("no-reference", f"no framework runs {model}", fix="record the outputs: --expected NPZ")


def _framework(which: str) -> tuple[str, Any]:
    """The name of a framework and what runs it: (model, inputs, value names) → arrays."""
    if which == "onnxruntime" and find_spec("onnxruntime") is None:
        raise CompileError(
            "no-reference", "onnxruntime is not installed", fix="install it, or --reference onnx, or --expected NPZ"
        )
    if which != "onnx" and find_spec("onnxruntime") is not None:
        return "ONNX Runtime", _onnxruntime
    return "ONNX's reference evaluator", _onnx


def _load(model: str, weights: bool = True) -> Any:
    import onnx

    library: Any = onnx  # partly typed
    return library.load(model, load_external_data=weights)


def _onnx(model: str, inputs: Mapping[str, Array], names: list[str]) -> list[Array]:
    from onnx.reference import ReferenceEvaluator

    evaluator: Any = ReferenceEvaluator(_load(model))
    found = evaluator.run(None, dict(inputs), intermediate=True)
    return [found[name] for name in names]


def _onnxruntime(model: str, inputs: Mapping[str, Array], names: list[str]) -> list[Array]:
    onnxruntime: Any = import_module("onnxruntime")  # need not be installed, so no checker knows its types
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    provider = ["CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(model, options, providers=provider)
    if not set(names) <= {one.name for one in session.get_outputs()}:
        session = onnxruntime.InferenceSession(_with_outputs(model, names), options, providers=provider)
    return session.run(names, dict(inputs))


def _with_outputs(model: str, names: Sequence[str]) -> bytes:
    """The model with more outputs."""
    import onnx

    proto: Any = _load(model)
    there = {one.name for one in proto.graph.output}
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in there)
    try:
        return proto.SerializeToString()
    except ValueError as error:  # protobuf's limit of 2 GB
        raise CompileError("no-reference", f"the model is too large to watch its ops: {error}") from None
