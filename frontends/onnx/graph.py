"""The graph of an ONNX model, checked and in order: everything that can be said before shapes are known.

Opset, initializers, declared inputs, names, dangling operands, cycles; calls of the model's own functions are replaced
by their bodies.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.dialects.support.diagnostics import Collector, CompileError, nearest
from headrace.dialects.tensor.shapes import TT
from headrace.frontends.base import InputSpec
from headrace.frontends.building import TensorRef
from headrace.frontends.onnx import wire
from headrace.frontends.onnx.tensors import ExternalFiles, dtype_of, tensor_ref

OLDEST, NEWEST = 13, 28
STANDARD = ("", "ai.onnx")
MOST_NODES = 1 << 20
DEEPEST = 50  # functions that call functions
GRAPH_ATTRIBUTE = 5  # AttributeProto.GRAPH
Source = Any  # a path, or an onnx.ModelProto


@dataclass(slots=True)
class NodeSpec:
    """A node to be imported, its name made up when the model has none. Reading protobuf is slow: it is done once."""

    name: str
    kind: str
    """The op type without its domain."""
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]

    @staticmethod
    def of(proto: Any, prefix: str, index: int) -> NodeSpec:
        """Node `index` of a graph or function, its name behind `prefix`."""
        kind, name, domain = proto.op_type, proto.name, proto.domain
        inputs, outputs = tuple(proto.input), tuple(proto.output)
        attributes = {a.name: a for a in proto.attribute}
        _check_text(kind, name, domain, *inputs, *outputs, *attributes)
        return NodeSpec(prefix + (name or f"{kind}_{index}"), kind, domain, inputs, outputs, attributes)

    @property
    def op_type(self) -> str:
        """The op type as users write it: with its domain unless that is the standard one."""
        return self.kind if self.domain in STANDARD else f"{self.domain}.{self.kind}"

    @property
    def graphs(self) -> list[Any]:
        """The graphs among its attributes (branches, loop bodies)."""
        return [a.g for a in self.attributes.values() if a.type == GRAPH_ATTRIBUTE]

    def needs(self) -> list[str]:
        """Names of the values it uses, those of the graphs inside it included."""
        found = [name for name in self.inputs if name]
        if self.attributes:
            for graph in self.graphs:
                found += _captured(graph)
        return found


def _captured(graph: Any) -> Iterator[str]:
    """Names that a graph inside a node takes from outside."""
    inside = {x.name for x in (*graph.input, *graph.initializer)}
    inside |= {name for node in graph.node for name in node.output}
    for index, node in enumerate(graph.node):
        yield from (name for name in NodeSpec.of(node, "", index).needs() if name not in inside)
    yield from (x.name for x in graph.output if x.name not in inside)


@dataclass(slots=True)
class Graph:
    """A checked graph: nodes in an order in which every operand is made before it is used."""

    name: str
    opset: int
    nodes: list[NodeSpec]
    inputs: list[InputSpec]
    outputs: list[str]
    weights: dict[str, TensorRef]
    functions: dict[tuple[str, str], Any] = field(default_factory=dict[tuple[str, str], Any])


def read(model: Source, shape_only: bool, errors: Collector) -> Graph:
    """The graph of a model given by path or as a ModelProto.

    What is wrong with the graph goes to `errors`; `CompileError` when there is no model to speak of.
    """
    if isinstance(model, (str, os.PathLike)):
        return _check(wire.read(os.fspath(model)), shape_only, errors)
    if not hasattr(model, "graph") or not hasattr(model, "opset_import"):
        raise CompileError(
            "bad-model", f"cannot import a {type(model).__name__}", fix="give a path or an onnx.ModelProto"
        )
    initializers: list[tuple[Any, wire.Span | None]] = [(x, None) for x in model.graph.initializer]
    return _check(wire.Model(model, initializers, None, model.graph.name), shape_only, errors)


def _check(model: wire.Model, shape_only: bool, errors: Collector) -> Graph:
    """The graph of a model, after all checks that need no shapes."""
    proto = model.proto
    _check_text(*(x.name for x in (*proto.graph.input, *proto.graph.output)), *(x.name for x, _ in model.initializers))
    opset = _opset(proto, errors)
    weights = _weights(model, shape_only, errors)
    inputs = [_input_spec(x, errors) for x in proto.graph.input if x.name not in weights]
    functions = {(f.domain, f.name): f for f in proto.functions}
    nodes = expand(proto.graph.node, functions, "", errors)
    outputs = [x.name for x in proto.graph.output]
    if not outputs:
        errors.add("bad-graph", "the graph has no outputs", fix="export the model again")
    known = [x for x in inputs if x is not None]
    given = [*weights, *(x.name for x in known)]
    for name in sorted({name for name in given if given.count(name) > 1} if len(set(given)) < len(given) else ()):
        errors.add("duplicate-name", f"two inputs are called '{name}'", location=name)
    for name in sorted(
        {name for name in outputs if outputs.count(name) > 1} if len(set(outputs)) < len(outputs) else ()
    ):
        errors.add("duplicate-name", f"two outputs are called '{name}'", fix="declare it once", location=name)
    if len(known) == len(inputs):  # else what uses a refused input would be reported too
        nodes = ordered(nodes, given, outputs, errors)
    return Graph(Path(model.name).stem, opset, nodes, known, outputs, weights, functions)


def _opset(proto: Any, errors: Collector) -> int:
    versions = [x.version for x in proto.opset_import if x.domain in STANDARD]
    opset = max(versions, default=0)
    if not versions:
        other = ", ".join(f"'{x.domain}'" for x in proto.opset_import)
        errors.add(
            "unsupported-opset",
            "the model does not say which opset it uses",
            why=f"it names only the domain{'s' if len(proto.opset_import) > 1 else ''} {other}" if other else "",
            fix="export the model with ops of the standard domain",
        )
    elif opset < OLDEST:
        errors.add(
            "unsupported-opset",
            f"the model uses opset {opset}, the oldest supported is {OLDEST}",
            fix=f"convert it: onnx.version_converter.convert_version(onnx.load(path), {OLDEST + 4})",
        )
    elif opset > NEWEST:
        errors.add(
            "unsupported-opset",
            f"the model uses opset {opset}, the newest known is {NEWEST}",
            why="ops may have changed their meaning",
            fix=f"export it with opset_version={NEWEST} or lower",
        )
    return opset


def _weights(model: wire.Model, shape_only: bool, errors: Collector) -> dict[str, TensorRef]:
    files = ExternalFiles(model.folder)
    found: dict[str, TensorRef] = {}
    for proto, span in model.initializers:
        if proto.name in found:
            errors.add("duplicate-name", f"two initializers are called '{proto.name}'", location=proto.name)
            continue
        try:
            found[proto.name] = tensor_ref(proto, span, files, shape_only=shape_only)
        except CompileError as error:
            errors.diagnostics.extend(error.diagnostics)
            found[proto.name] = TensorRef(proto.name, TT((), "f32"), None)  # so that its users are not reported too
    for proto in model.proto.graph.sparse_initializer:
        name = proto.values.name
        errors.add("unsupported-dtype", f"initializer '{name}' is sparse", fix="store it dense", location=name)
        found[name] = TensorRef(name, TT((), "f32"), None)
    return found


def _input_spec(proto: Any, errors: Collector) -> InputSpec | None:
    kind = proto.type.WhichOneof("value")
    if kind != "tensor_type":
        errors.add(
            "unsupported-dtype",
            f"input '{proto.name}' is not a tensor",
            why=f"it is {'untyped' if kind is None else 'of the kind ' + kind.removesuffix('_type')}",
            fix="export the model with tensors only",
            location=proto.name,
        )
        return None
    type = proto.type.tensor_type
    try:
        dtype = dtype_of(type.elem_type, f"input '{proto.name}'", proto.name)
    except CompileError as error:
        errors.diagnostics.extend(error.diagnostics)
        return None
    if not type.HasField("shape"):
        return InputSpec(proto.name, dtype, None)
    _check_text(*(d.dim_param for d in type.shape.dim))
    dims = tuple(
        d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else _symbol(d.dim_param) for d in type.shape.dim
    )
    return InputSpec(proto.name, dtype, dims)


def _symbol(name: str) -> str | None:
    """The name of a dim; None for what exporters write when it has none."""
    return None if name in ("", "?") else name


def _check_text(*names: Any) -> None:
    """Refuse names that are not text: protobuf gives bytes for those."""
    try:
        "".join(names)  # the fastest way to look at all of them
    except TypeError:
        name = next(x for x in names if not isinstance(x, str))
        raise CompileError(
            "bad-onnx-file", f"the name {name!r} is not UTF-8 text", fix="export the model again"
        ) from None


def expand(
    protos: Iterable[Any], functions: Mapping[tuple[str, str], Any], prefix: str, errors: Collector
) -> list[NodeSpec]:
    """Nodes with names (behind `prefix`), calls of the model's own functions replaced by their bodies."""
    nodes: list[NodeSpec] = []
    sizes: dict[tuple[str, str], int] = {}
    for index, node in enumerate(protos):
        spec = NodeSpec.of(node, prefix, index)
        key = (spec.domain, spec.kind)
        if key in functions:
            if len(nodes) + _size(key, functions, sizes) > MOST_NODES:
                why = f"it calls itself, nests deeper than {DEEPEST} or makes more than {MOST_NODES} nodes"
                what = f"function '{spec.op_type}' cannot be inlined"
                raise CompileError("bad-graph", what, why=why, location=spec.name)
            _inline(spec, functions, nodes, errors)
        else:
            nodes.append(spec)
    return nodes


def _size(
    key: tuple[str, str], functions: Mapping[tuple[str, str], Any], sizes: dict[tuple[str, str], int], depth: int = 0
) -> int:
    """How many nodes a function makes when everything in it is inlined; more than `MOST_NODES` when it calls itself or
    nests too deeply."""
    if key in sizes:
        return sizes[key]
    sizes[key] = MOST_NODES + 1  # while it is open: a call of it from inside never ends
    if depth > DEEPEST:
        return sizes[key]
    calls = ((node.domain, node.op_type) for node in functions[key].node)
    total = sum(_size(call, functions, sizes, depth + 1) if call in functions else 1 for call in calls)
    sizes[key] = min(total, MOST_NODES + 1)
    return sizes[key]


def _inline(call: NodeSpec, functions: Mapping[tuple[str, str], Any], nodes: list[NodeSpec], errors: Collector) -> None:
    """Append the body of a model function in place of a call of it: values and nodes are named after the call."""
    function = functions[call.domain, call.kind]
    names = dict(zip(function.input, call.inputs, strict=False))
    names |= dict.fromkeys(function.input[len(call.inputs) :], "")
    names |= {inner: outer for inner, outer in zip(function.output, call.outputs, strict=False) if outer}
    names[""] = ""
    defaults = {a.name: a for a in function.attribute_proto}
    for index, node in enumerate(function.node):
        inner = NodeSpec.of(node, f"{call.name}/", index)
        inputs = tuple(names.get(x, f"{call.name}/{x}") for x in inner.inputs)
        outputs = tuple(names.get(x, f"{call.name}/{x}") for x in inner.outputs)
        attributes: dict[str, Any] = {}
        for attribute in node.attribute:
            given = attribute
            if attribute.ref_attr_name:
                given = call.attributes.get(attribute.ref_attr_name, defaults.get(attribute.ref_attr_name))
            if given is not None:
                attributes[attribute.name] = given
        spec = NodeSpec(inner.name, inner.kind, inner.domain, inputs, outputs, attributes)
        if spec.graphs:
            errors.add("unsupported-op", f"{spec.op_type} in a function is not supported", location=spec.name)
        if (spec.domain, spec.kind) in functions:
            _inline(spec, functions, nodes, errors)
        else:
            nodes.append(spec)


def ordered(nodes: list[NodeSpec], given: Collection[str], outputs: Sequence[str], errors: Collector) -> list[NodeSpec]:
    """The nodes in dependency order (the model's, when it is one); `given` names are there from the start. Adds names
    made twice, operands that nothing makes and cycles to `errors`."""
    if _is_ordered(nodes, given, outputs):
        return nodes
    made: dict[str, int] = dict.fromkeys(given, -1)
    for index, node in enumerate(nodes):
        for name in node.outputs:
            if name and name in made:
                errors.add(
                    "duplicate-name", f"'{name}' is made twice", why="names are unique in a graph", location=node.name
                )
            elif name:
                made[name] = index
    for node in nodes:
        for name in node.needs():
            if name not in made:
                errors.add(
                    "dangling-input", f"nothing makes '{name}', an operand of {node.op_type}", location=node.name
                )
    for name in outputs:
        if name not in made:
            errors.add("dangling-output", f"nothing makes the output '{name}'", fix=nearest(name, made), location=name)
    return _sorted(nodes, made, errors)


def _is_ordered(nodes: Iterable[NodeSpec], given: Iterable[str], outputs: Iterable[str]) -> bool:
    """Whether every value is made once, and before it is needed."""
    made = set(given)
    for node in nodes:
        if not made.issuperset(node.needs()):
            return False
        for name in node.outputs:
            if name in made:
                return False
            if name:
                made.add(name)
    return made.issuperset(outputs)


def _sorted(nodes: list[NodeSpec], made: Mapping[str, int], errors: Collector) -> list[NodeSpec]:
    """The nodes, each after those it needs, else in the order they have; `made` says which one makes a value."""
    users: list[list[int]] = [[] for _ in nodes]
    waits = [0] * len(nodes)
    for index, node in enumerate(nodes):
        for name in node.needs():
            maker = made.get(name, -1)
            if maker >= 0:
                users[maker].append(index)
                waits[index] += 1
    ready = [i for i, count in enumerate(waits) if count == 0]
    order: list[int] = []
    while ready:
        index = heapq.heappop(ready)
        order.append(index)
        for user in users[index]:
            waits[user] -= 1
            if waits[user] == 0:
                heapq.heappush(ready, user)
    if len(order) < len(nodes):
        names = _cycle(nodes, users, waits)
        errors.add("cyclic-graph", "the graph has a cycle", why=" → ".join(names), location=names[0])
    return [nodes[i] for i in order]


def _cycle(nodes: Sequence[NodeSpec], users: Sequence[Sequence[int]], waits: Sequence[int]) -> list[str]:
    """Node names along one cycle, the first again at the end."""
    makers: dict[int, int] = {}
    for maker, of in enumerate(users):
        for user in of:
            if waits[maker] and waits[user]:
                makers.setdefault(user, maker)
    at = next(i for i, count in enumerate(waits) if count)
    seen: dict[int, int] = {}
    path: list[int] = []
    while at not in seen:
        seen[at] = len(path)
        path.append(at)
        at = makers[at]
    loop = path[seen[at] :][::-1]
    start = loop.index(min(loop))
    loop = loop[start:] + loop[:start]
    return [nodes[i].name for i in (*loop, loop[0])]
