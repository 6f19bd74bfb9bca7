"""ONNX models → `tensor` modules.

    result = import_onnx("model.onnx", dims={"batch": 1})
    rows = plan_onnx("model.onnx", dims={"batch": 1})

Initializers stay where they are: the result's store holds views of memory maps. Nodes become tensor ops one by one
(ops/), each with the node's name as its location. Everything wrong with a model is reported at once.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region

from headrace.dialects.support.diagnostics import Collector, CompileError, nearest
from headrace.dialects.support.locations import named
from headrace.dialects.support.weights import WeightStore
from headrace.dialects.tensor.base import ir_type
from headrace.dialects.tensor.program import set_signature
from headrace.dialects.tensor.shapes import TT, ShapeError
from headrace.frontends.base import Coverage, CoverageRow, ImportResult, InputSpec, Port, bind_dims, check_states
from headrace.frontends.onnx import ops, wire
from headrace.frontends.onnx.node import Builder, Node, Refused, Value, located
from headrace.frontends.onnx.ops.refused import REASONS
from headrace.frontends.onnx.tensors import ExternalFiles, TensorRef, dtype_of, tensor_ref

OLDEST, NEWEST = 13, 28
STANDARD = ("", "ai.onnx")
Source = Any  # a path, or an onnx.ModelProto


@dataclass(slots=True)
class NodeSpec:
    """A node to be imported, its name made up when the model has none."""

    proto: Any
    name: str
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def op_type(self) -> str:
        """The op type as users write it: with its domain unless that is the standard one."""
        domain = self.proto.domain
        return self.proto.op_type if domain in STANDARD else f"{domain}.{self.proto.op_type}"


@dataclass(slots=True)
class Graph:
    """A checked graph: nodes in an order in which every operand is made before it is used."""

    name: str
    opset: int
    nodes: list[NodeSpec]
    inputs: list[InputSpec]
    outputs: list[str]
    weights: dict[str, TensorRef]


def import_onnx(
    model: Source,
    *,
    dims: Mapping[str, int] | None = None,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    states: Mapping[str, str] | None = None,
    shape_only: bool = False,
) -> ImportResult:
    """Import an ONNX model: a path, or an `onnx.ModelProto` (whose weights must not be in other files).

    `dims` binds named dims, `input_shapes` whole inputs. `states` maps an input to the output that replaces it in the
    next run. With `shape_only`, weight files may be missing. `CompileError` lists everything that is wrong.
    """
    graph = _read(model, shape_only)
    errors = Collector()
    coverage = Coverage()
    shapes = bind_dims(graph.inputs, dims or {}, input_shapes or {}, errors)
    if len(shapes) < len(graph.inputs):
        _refuse_by_table(graph, coverage, errors)
        errors.raise_if_any()
    result = _import(graph, shapes, states or {}, coverage, errors)
    errors.raise_if_any()
    return result


def plan_onnx(
    model: Source, *, dims: Mapping[str, int] | None = None, input_shapes: Mapping[str, Sequence[int]] | None = None
) -> tuple[CoverageRow, ...]:
    """What would become of every node, without weights and without refusing.

    Operand shapes are known when all dims are bound. `CompileError` when the model cannot be read or the bindings are
    wrong; unsupported nodes are rows.
    """
    graph = _read(model, shape_only=True)
    errors, ignored = Collector(), Collector()
    coverage = Coverage()
    shapes = bind_dims(graph.inputs, dims or {}, input_shapes or {}, errors)
    errors.diagnostics = [d for d in errors.diagnostics if d.code != "unbound-dim"]
    errors.raise_if_any()
    if len(shapes) < len(graph.inputs):
        _refuse_by_table(graph, coverage, ignored)
    else:
        _import(graph, shapes, {}, coverage, ignored)
    return coverage.rows()


# Reading and checking


def _read(model: Source, shape_only: bool) -> Graph:
    if isinstance(model, (str, os.PathLike)):
        return _check(wire.read(os.fspath(model)), shape_only)
    if not hasattr(model, "graph") or not hasattr(model, "opset_import"):
        raise CompileError(
            "bad-model", f"cannot import a {type(model).__name__}", fix="give a path or an onnx.ModelProto"
        )
    initializers: list[tuple[Any, wire.Span | None]] = [(x, None) for x in model.graph.initializer]
    return _check(wire.Model(model, initializers, None, model.graph.name), shape_only)


def _check(model: wire.Model, shape_only: bool) -> Graph:
    """The graph of a model, after all checks that need no shapes."""
    errors = Collector()
    proto = model.proto
    _check_text(*(x.name for x in (*proto.graph.input, *proto.graph.output)), *(x.name for x, _ in model.initializers))
    opset = _opset(proto, errors)
    weights = _weights(model, shape_only, errors)
    inputs = [_input_spec(x, errors) for x in proto.graph.input if x.name not in weights]
    nodes = _named_nodes(proto, errors)
    outputs = [x.name for x in proto.graph.output]
    if not outputs:
        errors.add("bad-graph", "the graph has no outputs", fix="export the model again")
    nodes = _sorted(nodes, inputs, outputs, weights, errors)
    if errors.diagnostics:
        graph = Graph(model.name, opset, nodes, [], outputs, weights)
        _refuse_by_table(graph, Coverage(), errors)
    errors.raise_if_any()
    return Graph(Path(model.name).stem, opset, nodes, [x for x in inputs if x is not None], outputs, weights)


def _opset(proto: Any, errors: Collector) -> int:
    versions = [x.version for x in proto.opset_import if x.domain in STANDARD]
    opset = max(versions, default=0)
    if not versions:
        errors.add("unsupported-opset", "the model does not say which opset it uses", fix="export the model again")
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
            f"input '{proto.name}' is {'untyped' if kind is None else 'a ' + kind.removesuffix('_type')}, not a tensor",
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
        d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else (d.dim_param or None) for d in type.shape.dim
    )
    return InputSpec(proto.name, dtype, dims)


def _check_text(*names: Any) -> None:
    """Refuse names that are not text: protobuf gives bytes for those."""
    for name in names:
        if not isinstance(name, str):
            raise CompileError("bad-onnx-file", f"the name {name!r} is not UTF-8 text", fix="export the model again")


def _named_nodes(proto: Any, errors: Collector) -> list[NodeSpec]:
    """The nodes, calls of the model's own functions replaced by their bodies."""
    functions = {(f.domain, f.name): f for f in proto.functions}
    nodes: list[NodeSpec] = []
    for index, node in enumerate(proto.graph.node):
        _check_text(node.op_type, node.name, node.domain, *node.input, *node.output, *(a.name for a in node.attribute))
        spec = NodeSpec(node, node.name or f"{node.op_type}_{index}", {a.name: a for a in node.attribute})
        if (node.domain, node.op_type) in functions:
            nodes += _inlined(spec, functions, (), errors)
        else:
            nodes.append(spec)
    return nodes


def _inlined(
    call: NodeSpec, functions: Mapping[tuple[str, str], Any], within: tuple[tuple[str, str], ...], errors: Collector
) -> list[NodeSpec]:
    """The body of a model function in place of a call of it: values and nodes are named after the call."""
    key = (call.proto.domain, call.proto.op_type)
    if key in within:
        errors.add("bad-graph", f"function '{call.op_type}' calls itself", location=call.name)
        return []
    function = functions[key]
    make = wire.protobuf().NodeProto
    names = dict(zip(function.input, call.proto.input, strict=False))
    names |= dict.fromkeys(function.input[len(call.proto.input) :], "")
    names |= {inner: outer for inner, outer in zip(function.output, call.proto.output, strict=False) if outer}
    defaults = {a.name: a for a in function.attribute_proto}
    found: list[NodeSpec] = []
    for index, node in enumerate(function.node):
        name = f"{call.name}/{node.name or f'{node.op_type}_{index}'}"
        inputs = [names.get(x, f"{call.name}/{x}") if x else "" for x in node.input]
        outputs = [names.get(x, f"{call.name}/{x}") if x else "" for x in node.output]
        copy = make(op_type=node.op_type, domain=node.domain, input=inputs, output=outputs)
        attributes: dict[str, Any] = {}
        for attribute in node.attribute:
            given = attribute
            if attribute.ref_attr_name:
                given = call.attributes.get(attribute.ref_attr_name, defaults.get(attribute.ref_attr_name))
            if given is not None:
                attributes[attribute.name] = given
        spec = NodeSpec(copy, name, attributes)
        if (node.domain, node.op_type) in functions:
            found += _inlined(spec, functions, (*within, key), errors)
        else:
            found.append(spec)
    return found


def _sorted(
    nodes: list[NodeSpec],
    inputs: Sequence[InputSpec | None],
    outputs: Sequence[str],
    weights: Mapping[str, TensorRef],
    errors: Collector,
) -> list[NodeSpec]:
    """The nodes in dependency order (the model's, when it is one). Adds names made twice, operands that nothing makes
    and cycles to `errors`."""
    made: dict[str, int | None] = dict.fromkeys(weights)
    for spec in inputs:
        if spec is not None:
            if spec.name in made:
                errors.add("duplicate-name", f"two inputs are called '{spec.name}'", location=spec.name)
            made[spec.name] = None
    for index, node in enumerate(nodes):
        for name in node.proto.output:
            if name and name in made:
                errors.add(
                    "duplicate-name", f"'{name}' is made twice", why="names are unique in a graph", location=node.name
                )
            elif name:
                made[name] = index
    bad_inputs = any(spec is None for spec in inputs)
    users: list[list[int]] = [[] for _ in nodes]
    waits = [0] * len(nodes)
    for index, node in enumerate(nodes):
        for name in node.proto.input:
            if not name:
                continue
            if name not in made:
                if not bad_inputs:
                    errors.add(
                        "dangling-input", f"nothing makes '{name}', an operand of {node.op_type}", location=node.name
                    )
                continue
            maker = made[name]
            if maker is not None:
                users[maker].append(index)
                waits[index] += 1
    for name in outputs:
        if name not in made and not bad_inputs:
            errors.add("dangling-output", f"nothing makes the output '{name}'", fix=nearest(name, made), location=name)
    if all(made.get(name) is None or made[name] < i for i, n in enumerate(nodes) for name in n.proto.input):  # pyright: ignore
        return nodes
    import heapq

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


# Importing


def _refuse_by_table(graph: Graph, coverage: Coverage, errors: Collector) -> None:
    """Coverage and refusals by op type alone, for a graph whose shapes are not known."""
    for node in graph.nodes:
        reason = _unsupported(node)
        if reason is None:
            coverage.add(node.op_type, node.name, "supported")
        else:
            _refuse(node, Refused(*reason), coverage, errors)


def _unsupported(node: NodeSpec) -> tuple[str, str] | None:
    """Why an op type is not supported, and what to do; None when it is."""
    proto = node.proto
    if proto.domain not in STANDARD:
        return f"ops of domain '{proto.domain}' are not known", "export the model with standard ops only"
    if proto.op_type in ops.table():
        return None
    if proto.op_type in REASONS:
        return REASONS[proto.op_type]
    return "no conversion for this op", ""


def _refuse(node: NodeSpec, refused: Refused, coverage: Coverage, errors: Collector, shapes: str = "") -> None:
    what = {
        "unsupported-op": f"{node.op_type} is not supported",
        "bad-shape": f"{node.op_type} has operands that do not fit",
        "dynamic-shape": f"{node.op_type} has a shape that depends on data",
    }.get(refused.code, f"{node.op_type} is not valid")
    coverage.add(node.op_type, node.name, "refused", refused.why, shapes)
    errors.add(refused.code, what, why=refused.why, fix=refused.fix, location=node.name)


def _import(
    graph: Graph,
    shapes: Mapping[str, tuple[int, ...]],
    states: Mapping[str, str],
    coverage: Coverage,
    errors: Collector,
) -> ImportResult:
    """Build the module. Nodes that are refused go to `errors`, and what depends on them is left out."""
    inputs = [Port(x.name, TT(shapes[x.name], x.dtype)) for x in graph.inputs]
    block = Block(arg_types=[ir_type(port.type) for port in inputs])
    store = WeightStore()
    builder = Builder(block, store)
    values: dict[str, Value | None] = {}
    for name, ref in graph.weights.items():
        values[name] = Value(name, ref.type, named(name), ref=ref, parameter=True)
    for port, argument in zip(inputs, block.args, strict=True):
        argument.name_hint = _hint(port.name)
        values[port.name] = Value(port.name, port.type, named(port.name), argument)
    table = ops.table()
    for spec in graph.nodes:
        reason = _unsupported(spec)
        operands = [values.get(name) if name else None for name in spec.proto.input]
        shape_text = ", ".join("-" if x is None else str(x.type) for x in operands)
        if reason is not None:
            _refuse(spec, Refused(*reason), coverage, errors, shape_text)
            values.update(dict.fromkeys(spec.proto.output))
        elif any(x is None and name for x, name in zip(operands, spec.proto.input, strict=True)):
            coverage.add(spec.op_type, spec.name, "supported", "operands not known")
            values.update(dict.fromkeys(spec.proto.output))
        else:
            node = Node(builder, spec.proto, spec.name, graph.opset, operands, spec.attributes)
            values.update(_convert(node, spec, table[spec.proto.op_type], coverage, errors, shape_text))
    results = [values.get(name) for name in graph.outputs]
    if errors.diagnostics or any(x is None for x in results):
        return ImportResult(ModuleOp([]), store, tuple(inputs), (), coverage=coverage.rows(), name=graph.name)
    outputs = [Port(name, x.type) for name, x in zip(graph.outputs, results, strict=True) if x is not None]
    pairs = check_states(states, inputs, outputs, errors)
    module = _finish(builder, inputs, outputs, [x for x in results if x is not None], pairs)
    return ImportResult(module, store, tuple(inputs), tuple(outputs), pairs, coverage.rows(), graph.name)


def _convert(
    node: Node, spec: NodeSpec, convert: ops.Convert, coverage: Coverage, errors: Collector, shapes: str
) -> dict[str, Value | None]:
    """The results of one node by name; None for each when it is refused."""
    nothing: dict[str, Value | None] = {name: None for name in spec.proto.output if name}
    if not nothing:
        return {}
    try:
        found = convert(node)
    except Refused as refused:
        _refuse(spec, refused, coverage, errors, shapes)
        return nothing
    except ShapeError as error:
        _refuse(spec, Refused(str(error), code="bad-shape"), coverage, errors, shapes)
        return nothing
    except CompileError as error:
        coverage.add(spec.op_type, spec.name, "refused", error.what, shapes)
        errors.diagnostics.extend(located(error, spec.name).diagnostics)
        return nothing
    unread = node.unread()
    if unread:
        _refuse(spec, Refused(f"attribute {', '.join(unread)} is not known"), coverage, errors, shapes)
        return nothing
    results = [found] if isinstance(found, Value) else list(found)
    made: dict[str, Value] = {}
    for name, value in zip(spec.proto.output, results, strict=False):
        if name and value is not None:
            made[name] = value
    missing = [name for name in nothing if name not in made]
    if missing:
        _refuse(spec, Refused(f"its result '{missing[0]}' is not supported"), coverage, errors, shapes)
        return nothing
    status = "decomposed" if len(node.made) > 1 else "supported"
    coverage.add(spec.op_type, spec.name, status, f"as {', '.join(node.made)}" if len(node.made) > 1 else "", shapes)
    for name, value in made.items():
        if value.ssa is None and value.ref is None:
            value.name = name
    return {**made}


def _finish(
    builder: Builder,
    inputs: Sequence[Port],
    outputs: Sequence[Port],
    results: Sequence[Value],
    states: Sequence[tuple[str, str]],
) -> ModuleOp:
    """Return the results, and wrap the body in `@main` of a module."""
    returned = [builder.ssa(x) for x in results]
    last = ReturnOp(*returned)
    last.location = named(", ".join(port.name for port in outputs))
    builder.block.add_op(last)
    types = ([x.type for x in builder.block.args], [x.type for x in returned])
    func = FuncOp("main", types, Region(builder.block))
    func.location = named("main")
    set_signature(func, [port.name for port in inputs], [port.name for port in outputs], states)
    module = ModuleOp([func])
    module.location = named("model")
    return module


def _hint(name: str) -> str | None:
    """An input's name as an SSA name, when it can be one."""
    return name if name.isidentifier() else None
