"""ONNX models → `tensor` modules.

    result = import_onnx("model.onnx", dims={"batch": 1})
    rows = plan_onnx("model.onnx", dims={"batch": 1})

Initializers stay where they are: the result's store holds views of memory maps. Nodes become tensor ops one by one
(ops/), each with the node's name as its location. Everything wrong with a model is reported at once.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region

from headrace.dialects.support.diagnostics import Collector, CompileError
from headrace.dialects.support.locations import named
from headrace.dialects.support.weights import WeightStore
from headrace.dialects.tensor.base import ir_type
from headrace.dialects.tensor.program import set_signature
from headrace.dialects.tensor.shapes import TT, ShapeError
from headrace.frontends.base import Coverage, CoverageRow, ImportResult, OperandTypes, Port, bind_dims, check_states
from headrace.frontends.building import Builder, Refused, Value, located
from headrace.frontends.onnx import ops
from headrace.frontends.onnx.graph import STANDARD, Graph, NodeSpec, Source, expand, ordered, read
from headrace.frontends.onnx.node import TENSOR, Node
from headrace.frontends.onnx.ops.refused import REASONS
from headrace.frontends.onnx.tensors import NO_FILES, tensor_ref
from headrace.frontends.random import Generator

Values = MutableMapping[str, "Value | None"]  # None: its node was refused


def import_onnx(
    model: Source,
    *,
    dims: Mapping[str, int] | None = None,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    states: Mapping[str, str] | None = None,
    shape_only: bool = False,
    seed: int | None = None,
) -> ImportResult:
    """Import an ONNX model: a path, or an `onnx.ModelProto` (whose weights must not be in other files).

    `dims` binds named dims, `input_shapes` whole inputs. `states` maps an input to the output that replaces it in the
    next run. With `shape_only`, weight files may be missing. Random numbers are those of a seed, and refused without
    one. `CompileError` lists everything that is wrong.
    """
    errors = Collector()
    coverage = Coverage()
    graph = _read(model, shape_only, errors)
    shapes = bind_dims(graph.inputs, dims or {}, input_shapes or {}, errors)
    if len(shapes) < len(graph.inputs):
        _refuse_by_table(graph, coverage, errors)
        errors.raise_if_any()
    result = _import(graph, shapes, states or {}, coverage, errors, seed)
    errors.raise_if_any()
    return result


def plan_onnx(
    model: Source, *, dims: Mapping[str, int] | None = None, input_shapes: Mapping[str, Sequence[int]] | None = None
) -> tuple[CoverageRow, ...]:
    """What would become of every node, without weights and without refusing.

    Operand shapes are known when all dims are bound. `CompileError` when the model cannot be read or the bindings are
    wrong; unsupported nodes are rows.
    """
    errors, ignored = Collector(), Collector()
    coverage = Coverage()
    graph = _read(model, True, errors)
    shapes = bind_dims(graph.inputs, dims or {}, input_shapes or {}, errors)
    errors.diagnostics = [d for d in errors.diagnostics if d.code != "unbound-dim"]
    errors.raise_if_any()
    if len(shapes) < len(graph.inputs):
        _refuse_by_table(graph, coverage, ignored)
    else:
        _import(graph, shapes, {}, coverage, ignored)
    return coverage.rows()


def _read(model: Source, shape_only: bool, errors: Collector) -> Graph:
    """The checked graph; raises with everything wrong, unsupported ops included, when it is not sound."""
    graph = read(model, shape_only, errors)
    if errors.diagnostics:
        _refuse_by_table(graph, Coverage(), errors)
    errors.raise_if_any()
    return graph


def _refuse_by_table(graph: Graph, coverage: Coverage, errors: Collector) -> None:
    """Coverage and refusals by op type alone, for a graph whose shapes are not known."""
    for node in graph.nodes:
        reason = _unsupported(node)
        if node.op_type == "If":
            coverage.add(node.op_type, node.name, "supported", "if its condition follows from shapes")
        elif reason is None:
            coverage.add(node.op_type, node.name, "supported")
        else:
            _refuse(node, Refused(*reason), coverage, errors)


def _unsupported(node: NodeSpec) -> tuple[str, str] | None:
    """Why an op type is not supported, and what to do; None when it is."""
    if node.domain not in STANDARD:
        return f"ops of domain '{node.domain}' are not known", "export the model with standard ops only"
    if node.kind in ops.table():
        return None
    if node.kind in REASONS:
        return REASONS[node.kind]
    return "no conversion for this op", "write it with ops that 'headrace plan' calls supported"


def _refuse(
    node: NodeSpec, refused: Refused, coverage: Coverage, errors: Collector, operands: OperandTypes = ()
) -> None:
    what = {
        "unsupported-op": f"{node.op_type} is not supported",
        "bad-shape": f"{node.op_type} has operands that do not fit",
        "dynamic-shape": f"{node.op_type} has a shape that depends on data",
    }.get(refused.code, f"{node.op_type} is not valid")
    coverage.add(node.op_type, node.name, "refused", refused.why, operands)
    errors.add(refused.code, what, why=refused.why, fix=refused.fix, location=node.name)


def _import(
    graph: Graph,
    shapes: Mapping[str, tuple[int, ...]],
    states: Mapping[str, str],
    coverage: Coverage,
    errors: Collector,
    seed: int | None = None,
) -> ImportResult:
    """Build the module. Nodes that are refused go to `errors`, and what depends on them is left out."""
    inputs = [Port(x.name, TT(shapes[x.name], x.dtype)) for x in graph.inputs]
    block = Block(arg_types=[ir_type(port.type) for port in inputs])
    store = WeightStore()
    generator = Generator(block, [*inputs], seed)
    builder = Builder(block, store, generator)
    values: dict[str, Value | None] = {}
    for name, ref in graph.weights.items():
        values[name] = Value(name, ref.type, named(name), ref=ref, parameter=True)
    for port, argument in zip(inputs, block.args, strict=True):
        argument.name_hint, argument.location = _hint(port.name), named(port.name)
        values[port.name] = Value(port.name, port.type, argument.location, argument)
    _Run(builder, graph, coverage, errors).nodes(graph.nodes, values)
    results = [values.get(name) for name in graph.outputs]
    if errors.diagnostics or any(x is None for x in results):
        return ImportResult(ModuleOp([]), store, tuple(inputs), (), coverage=coverage.rows(), name=graph.name)
    outputs = [Port(name, x.type) for name, x in zip(graph.outputs, results, strict=True) if x is not None]
    pairs = check_states(states, inputs, outputs, errors)
    after = generator.after(builder)
    if after is not None:
        inputs, name = generator.inputs, f"{generator.name}.next"
        while any(port.name == name for port in outputs):
            name += "'"
        outputs.append(Port(name, after.type))
        results.append(after)
        pairs = (*pairs, (generator.name, name))
    module = _finish(builder, inputs, outputs, [x for x in results if x is not None], pairs)
    initial = {} if after is None else {generator.name: generator.initial}
    return ImportResult(module, store, tuple(inputs), tuple(outputs), pairs, coverage.rows(), graph.name, initial)


@dataclass(slots=True)
class _Run:
    """Imports nodes one after the other. `values` holds what is known by name."""

    builder: Builder
    graph: Graph
    coverage: Coverage
    errors: Collector

    def nodes(self, nodes: Sequence[NodeSpec], values: Values) -> None:
        """Import nodes; their results go to `values`."""
        table = ops.table()
        for spec in nodes:
            constant = _constant(spec)
            if constant is not None:
                self.coverage.add(spec.op_type, spec.name, "supported")
                values[constant.name] = constant
                continue
            operands = tuple([values.get(name) if name else None for name in spec.inputs])
            types = tuple([x and x.type for x in operands])
            reason = _unsupported(spec)
            if reason is not None and spec.op_type != "If":
                _refuse(spec, Refused(*reason), self.coverage, self.errors, types)
                values.update(dict.fromkeys(spec.outputs))
            elif None in operands and any(x is None and name for x, name in zip(operands, spec.inputs, strict=True)):
                self.coverage.add(spec.op_type, spec.name, "supported", "operands not known")
                values.update(dict.fromkeys(spec.outputs))
            else:
                node = Node(self.builder, spec, self.graph.opset, operands)
                values.update(self._results(node, spec, values, table.get(spec.kind), types))

    def _results(
        self, node: Node, spec: NodeSpec, values: Values, convert: ops.Convert | None, types: OperandTypes
    ) -> Mapping[str, Value | None]:
        """The results of one node by name; None for each when it is refused."""
        wanted = [name for name in spec.outputs if name]
        if not wanted:
            return {}
        try:
            found = self._branch(node, values) if convert is None else convert(node)
            unread = node.unread()
            if unread:
                raise Refused(f"attribute {', '.join(unread)} is not known")
            results = (found,) if isinstance(found, Value) else found
            made = {name: x for name, x in zip(spec.outputs, results, strict=False) if name}
            if len(made) < len(wanted):
                missing = next(name for name in wanted if name not in made)
                raise Refused(f"its result '{missing}' is not supported")
        except (Refused, ShapeError) as error:
            refused = error if isinstance(error, Refused) else Refused(str(error), code="bad-shape")
            _refuse(spec, refused, self.coverage, self.errors, types)
            return dict.fromkeys(wanted)
        except CompileError as error:
            self.coverage.add(spec.op_type, spec.name, "refused", error.what, types)
            self.errors.diagnostics.extend(located(error, spec.name).diagnostics)
            return dict.fromkeys(wanted)
        if len(node.made) <= 1:
            self.coverage.add(spec.op_type, spec.name, "supported", "", types)
        else:
            self.coverage.add(spec.op_type, spec.name, "decomposed", f"as {', '.join(node.made)}", types)
        for name, value in made.items():
            if value is not None and value.ssa is None and value.ref is None:
                value.name = name
        return made

    def _branch(self, node: Node, values: Values) -> Sequence[Value | None]:
        """The results of an `If` whose condition is known while importing: the nodes of the branch it takes."""
        node.ignore("then_branch", "else_branch")
        condition = node[0]
        array = self.builder.array(condition) if condition.known else None
        if array is None or array.size != 1:
            raise Refused(*REASONS["If"])
        graph = node.graph("then_branch" if array.reshape(-1)[0] else "else_branch")
        prefix = f"{node.name}/"
        inner: Values = ChainMap({}, values)
        for proto in graph.initializer:
            ref = tensor_ref(proto, None, NO_FILES)
            name = prefix + proto.name
            inner[proto.name] = Value(name, ref.type, named(name), ref=ref, parameter=True)
        problems = Collector()
        outputs = [x.name for x in graph.output]
        nodes = ordered(expand(graph.node, self.graph.functions, prefix, problems), [*inner], outputs, problems)
        problems.raise_if_any()
        self.nodes(nodes, inner)
        return [inner.get(name) for name in outputs]


def _constant(spec: NodeSpec) -> Value | None:
    """What a `Constant` gives that is nothing but a tensor, as most are: every third node of a model may be one, and
    they need no `Node`. None for anything else, and for one that is not well-formed."""
    if spec.kind != "Constant" or spec.domain not in STANDARD or len(spec.attributes) != 1 or len(spec.outputs) != 1:
        return None
    attribute = spec.attributes.get("value")
    if attribute is None or attribute.type != TENSOR or not spec.outputs[0]:
        return None
    try:
        ref = tensor_ref(attribute.t, None, NO_FILES)
    except CompileError:
        return None
    return Value(spec.outputs[0], ref.type, named(spec.name), ref=ref)


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
