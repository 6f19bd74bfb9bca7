"""Exported programs → `tensor` modules.

    program = export(module, (x,))
    imported = import_program(program)

Parameters and buffers stay where they are: the store holds views of them. Calls of the graph become tensor ops one by
one (ops/), each at its module path and the user's line. Buffers that the program changes are threaded as states.
Everything wrong with a program is reported at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region

from headrace.dialects.support import dtypes
from headrace.dialects.support.diagnostics import Collector, CompileError
from headrace.dialects.support.locations import Location, named
from headrace.dialects.support.weights import WeightStore
from headrace.dialects.tensor.base import ir_type
from headrace.dialects.tensor.program import set_signature
from headrace.dialects.tensor.shapes import TT, ShapeError
from headrace.frontends.base import Coverage, CoverageRow, ImportResult, Port
from headrace.frontends.building import Builder, Refused, TensorRef, Value, located
from headrace.frontends.random import Generator
from headrace.frontends.torch import ops
from headrace.frontends.torch.dims import bound
from headrace.frontends.torch.experts import unsort
from headrace.frontends.torch.lines import is_ours, is_own
from headrace.frontends.torch.node import Complex, Node, dtype_name, type_of
from headrace.frontends.torch.program import lowered
from headrace.frontends.torch.weights import matched, read

if TYPE_CHECKING:
    import numpy as np
    from torch.export import ExportedProgram

    Array = np.ndarray[Any, np.dtype[Any]]

IGNORED = frozenset(
    {
        "aten._assert_tensor_metadata.default",
        "aten._assert_async.msg",
        "aten._assert_scalar.default",
        "aten.sym_constrain_range_for_size.default",
    }
)
"""Calls that check what is known here already."""


@dataclass(frozen=True)
class Output:
    """A result of the module: the name of the program's output, or a plain value. A `number` is the only element of
    its output."""

    name: str = ""
    value: Any = None
    number: bool = False


@dataclass
class ImportedProgram:
    """An imported program, and what its caller needs to run it as the module is run."""

    result: ImportResult
    inputs: tuple[str | None, ...]
    """For each flat argument of the module the program's input; None for one that is not used as a tensor."""
    outputs: tuple[Output, ...]
    """The flat results of the module, in order."""
    changed: Mapping[str, str]
    """Arguments that the module changes in place: input name to the output that replaces it."""
    initial: Mapping[str, Callable[[], Array]]
    """What states hold at first, by input name."""
    constants: tuple[tuple[int, Any], ...] = ()
    """Arguments that are no tensors: position, and the value for which the program is specialised."""
    in_spec: Any = None
    out_spec: Any = None
    names: Mapping[str, TT] = field(default_factory=dict[str, TT])
    random: str = ""
    """The state of the random numbers; empty when none are drawn."""


def import_program(
    program: ExportedProgram,
    *,
    name: str = "model",
    shape_only: bool = False,
    seed: int | None = None,
    dims: Mapping[str, int] | None = None,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    weights: Any = None,
    constants: Mapping[str, Any] | None = None,
) -> ImportedProgram:
    """Import an exported program. Random numbers are those of a seed, and refused without one. `dims` binds dynamic
    dims by name, `input_shapes` those of whole inputs; `weights` is a state dict, or a file of one, in place of the
    program's own, `constants` has elements of buffers that are on the meta device. `CompileError` lists everything that
    is wrong with it."""
    given = matched(program.state_dict, read(weights)) if weights is not None else {}
    given = {**given, **(constants or {})}
    return _Importer(lowered(bound(program, dims or {}, input_shapes or {})), name, shape_only, seed, given).run()


@dataclass(frozen=True)
class State:
    """An input that a result of the graph replaces for the next run: which result, and what it holds at first."""

    result: int
    tensor: Any


@dataclass(frozen=True)
class GraphProgram:
    """A graph without an exported program around it: tensors of those of its inputs that are weights, names, and states
    by the positions of inputs. The caller gives the first `arguments` inputs, in the structure `spec`."""

    graph: Any
    weights: Mapping[int, Any] = field(default_factory=dict[int, Any])
    names: Mapping[int, str] = field(default_factory=dict[int, str])
    states: Mapping[int, State] = field(default_factory=dict[int, State])
    arguments: int | None = None
    constants: tuple[tuple[int, Any], ...] = ()
    """Arguments of the caller that are no tensors: position among all arguments, and value."""
    spec: Any = None


def import_graph(given: GraphProgram, *, name: str = "graph", seed: int | None = None) -> ImportedProgram:
    """Import a graph of core ATen: flat inputs, flat outputs. Random numbers are those of a seed, which is PyTorch's
    when none is given. `CompileError` lists everything that is wrong with it."""
    return _GraphImporter(given, name, seed).run()


def plan_program(
    program: ExportedProgram,
    *,
    dims: Mapping[str, int] | None = None,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
) -> tuple[CoverageRow, ...]:
    """What would become of each op of an exported program; needs no weights. Dims are bound as by `import_program`, or
    have the sizes of the export."""
    return _Importer(lowered(bound(program, dims or {}, input_shapes or {}, guess=True)), "model", True, None).rows()


class _Importer:
    """Imports one program."""

    def __init__(
        self,
        program: ExportedProgram,
        name: str,
        shape_only: bool,
        seed: int | None,
        weights: Mapping[str, Any] | None = None,
    ) -> None:
        self.program = program
        unsort(program.graph)
        self.weights = weights or {}
        self.name = name
        self.shape_only = shape_only
        self.errors = Collector()
        self.coverage = Coverage()
        self.block = Block()
        self.store = WeightStore()
        self.inputs: list[Port] = []
        self.generator = Generator(self.block, self.inputs, seed)
        self.builder = Builder(self.block, self.store, self.generator)
        self.values: dict[Any, Any] = {}
        self.initial: dict[str, Callable[[], Array]] = {}
        self.shared: dict[Any, str] = {}

    def run(self) -> ImportedProgram:
        """The imported program."""
        arguments, constants = self._arguments()
        self._calls()
        self.errors.raise_if_any()
        return self._finish(self.program.graph.output_node(), arguments, constants)

    def rows(self) -> tuple[CoverageRow, ...]:
        """What became of each op, whatever is wrong."""
        self._arguments()
        self._calls()
        return self.coverage.rows()

    def _calls(self) -> None:
        for node in self.program.graph.nodes:
            if node.op == "call_function":
                self._call(node)
            elif node.op == "get_attr":
                self._constant(node)

    def _constant(self, node: Any) -> None:
        self.errors.add("unsupported-op", f"'{node.target}' is a graph within the graph", fix="write it without")
        self.values[node] = None

    # Inputs

    def _arguments(self) -> tuple[list[str | None], list[tuple[int, Any]]]:
        from torch.export.graph_signature import InputKind

        signature = self.program.graph_signature
        mutated = set(signature.buffers_to_mutate.values())
        placeholders = {node.name: node for node in self.program.graph.nodes if node.op == "placeholder"}
        arguments: list[str | None] = []
        constants: list[tuple[int, Any]] = []
        for spec in signature.input_specs:
            node = placeholders.get(getattr(spec.arg, "name", ""))
            if spec.kind == InputKind.USER_INPUT:
                if node is None or not hasattr(node.meta.get("val"), "shape"):
                    constants.append((len(arguments), getattr(spec.arg, "value", None)))
                    arguments.append(None)
                else:
                    arguments.append(self._input(node, node.name))
            elif spec.kind in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
                assert node is not None and spec.target is not None
                if spec.target in mutated:
                    self._input(node, spec.target)
                    self.initial[spec.target] = _loader(self._tensor(spec.target))
                else:
                    self._weight(node, spec.target, self._tensor(spec.target))
            elif spec.kind != InputKind.TOKEN:  # the order of effects, of which there are none
                self.errors.add("unsupported-op", f"an input of kind {spec.kind.name} is not supported")
        return arguments, constants

    def _input(self, node: Any, name: str) -> str | None:
        try:
            type = type_of(node.meta["val"])
        except Refused as refused:
            self.errors.add(
                refused.code, f"input '{name}' is not supported", why=refused.why, fix=refused.fix, location=name
            )
            return None
        argument = self.block.insert_arg(ir_type(type), len(self.block.args))
        argument.location = named(name)
        argument.name_hint = name if name.isidentifier() else None
        self.inputs.append(Port(name, type))
        self.values[node] = Value(name, type, argument.location, argument)
        return name

    def _tensor(self, target: str) -> Any:
        if target in self.weights:
            return self.weights[target]
        state = self.program.state_dict
        return state[target] if target in state else self.program.constants[target]

    def _weight(self, node: Any, target: str, tensor: Any) -> None:
        try:
            type = type_of(tensor)
        except Refused as refused:
            self.errors.add(
                refused.code, f"'{target}' is not supported", why=refused.why, fix=refused.fix, location=target
            )
            return
        same = (tensor.untyped_storage()._cdata, tensor.storage_offset(), tensor.shape, tensor.stride())
        if tensor.device.type == "meta" or self.shape_only:
            same = target
        key = self.shared.setdefault(same, target)  # tied weights are one
        load = None if self.shape_only or tensor.device.type == "meta" else _loader(tensor)
        parameter = TensorRef(key, type, load)
        self.values[node] = Value(key, type, named(key), ref=parameter, parameter=True)

    # Calls

    def _call(self, node: Any) -> None:
        kind = _kind(node.target)
        if kind in IGNORED:
            return
        if kind == "getitem":
            source, index = node.args
            found = self.values.get(source)
            self.values[node] = found[index] if isinstance(found, tuple) else None
            if isinstance(found, tuple) and found[index] is None and node.users:
                self.errors.add(
                    "unsupported-op",
                    f"result {index} of {_kind(source.target)} is not supported",
                    fix="use its other results only",
                    location=named_text(node_location(source)),
                )
            return
        location = node_location(node)
        missing = False

        def plain(x: Any) -> Any:
            nonlocal missing
            if hasattr(x, "op") and hasattr(x, "meta"):
                found = self.values.get(x)
                missing |= found is None
                return found
            if isinstance(x, list | tuple):
                return [plain(y) for y in x]  # pyright: ignore[reportUnknownVariableType]
            return x

        named = _named(node)
        arguments = {name: plain(x) for name, x in named.items()}
        types = tuple(x.type for x in arguments.values() if isinstance(x, Value))
        text = named_text(location)
        if missing:
            self.coverage.add(kind, node.name, "supported", "operands not known")
            self.values[node] = None
            return
        made: list[str] = []
        try:
            fakes = {key: x.meta["val"] for key, x in named.items() if hasattr(x, "meta") and "val" in x.meta}
            used = frozenset(user.args[1] for user in node.users if _kind(user.target) == "getitem" and user.users)
            at = Node(self.builder, kind, node.name, location, arguments, node.meta.get("val"), fakes, used)
            convert = ops.conversion(kind, complex=at.takes_complex)
            if convert is None and at.takes_complex:
                raise Refused(
                    "no conversion for this op on complex numbers",
                    "compute with their parts: torch.view_as_real(x)",
                    code="unknown-element-type",
                )
            if convert is None:
                raise Refused("no conversion for this op", "write it with ops that the support table lists")
            found = convert(at)
            made = at.made
            results = (found,) if isinstance(found, Value | Complex) else tuple(found)
            _check(results, at)
        except (Refused, ShapeError) as error:
            refused = error if isinstance(error, Refused) else Refused(str(error), code="bad-shape")
            self.coverage.add(kind, node.name, "refused", refused.why, types)
            self.errors.add(refused.code, f"{kind} is not supported", why=refused.why, fix=refused.fix, location=text)
            self.values[node] = None
            return
        except CompileError as error:
            self.coverage.add(kind, node.name, "refused", error.what, types)
            self.errors.diagnostics.extend(located(error, text).diagnostics)
            self.values[node] = None
            return
        reason = f"as {', '.join(made)}" if len(made) > 1 else ""
        self.coverage.add(kind, node.name, "decomposed" if reason else "supported", reason, types)
        several = isinstance(node.meta.get("val"), tuple | list)
        self.values[node] = results if several else results[0]

    # Results

    def _kinds(self, count: int) -> Sequence[tuple[Any, str]]:
        """What each result of the graph is, and the buffer or argument that it replaces."""
        return [(spec.kind, str(spec.target)) for spec in self.program.graph_signature.output_specs]

    def _structures(self) -> tuple[Any, Any]:
        """The structure of arguments and of results."""
        spec = self.program.call_spec
        return spec.in_spec, spec.out_spec

    def _finish(
        self, last: Any, arguments: Sequence[str | None], constants: Sequence[tuple[int, Any]]
    ) -> ImportedProgram:
        from torch.export.graph_signature import OutputKind

        returned = list(last.args[0])
        outputs: list[Port] = []
        results: list[Any] = []
        flat: list[Output] = []
        states: list[tuple[str, str]] = []
        changed: dict[str, str] = {}
        seen: dict[str, int] = {}

        def give(value: Value | Complex, name: str) -> str:
            if isinstance(value, Complex):
                raise CompileError(
                    "unknown-element-type",
                    f"result '{name}' is of complex numbers",
                    why="no element type of Headrace is complex",
                    fix="return its parts: torch.view_as_real(x)",
                    location=named_text(value.real.location),
                )
            while name in seen or any(port.name == name for port in self.inputs):
                seen[name] = seen.get(name, 0) + 1
                name = f"{name}.{seen[name]}"
            seen[name] = 0
            outputs.append(Port(name, value.type))
            results.append(self.builder.ssa(value))
            return name

        for (kind, target), x in zip(self._kinds(len(returned)), returned, strict=True):
            if kind == OutputKind.USER_OUTPUT:
                if hasattr(x, "op"):
                    flat.append(Output(give(self.values[x], x.name), number=not hasattr(x.meta.get("val"), "shape")))
                else:
                    flat.append(Output(value=x))
            elif kind == OutputKind.BUFFER_MUTATION:
                states.append((target, give(self.values[x], f"{target}.next")))
            elif kind == OutputKind.USER_INPUT_MUTATION:
                changed[target] = give(self.values[x], f"{target}.next")
            elif kind != OutputKind.TOKEN:
                raise CompileError("unsupported-op", f"an output of kind {kind.name} is not supported")
        drawn = self.generator.name
        after = self.generator.after(self.builder)
        if after is not None:
            states.append((drawn, give(after, f"{drawn}.next")))
            self.initial[drawn] = self.generator.initial
        end = ReturnOp(*results)
        end.location = named(", ".join(port.name for port in outputs) or "nothing")
        self.block.add_op(end)
        func = FuncOp("main", ([a.type for a in self.block.args], [r.type for r in results]), Region(self.block))
        func.location = named("main")
        set_signature(func, [p.name for p in self.inputs], [p.name for p in outputs], states)
        module = ModuleOp([func])
        module.location = named(self.name)
        result = ImportResult(
            module,
            self.store,
            tuple(self.inputs),
            tuple(outputs),
            tuple(states),
            self.coverage.rows(),
            self.name,
        )
        in_spec, out_spec = self._structures()
        return ImportedProgram(
            result,
            tuple(arguments),
            tuple(flat),
            changed,
            self.initial,
            tuple(constants),
            in_spec,
            out_spec,
            {port.name: port.type for port in self.inputs},
            drawn,
        )


class _GraphImporter(_Importer):
    """Imports a graph that stands alone."""

    def __init__(self, given: GraphProgram, name: str, seed: int | None) -> None:
        import torch

        super().__init__(given.graph, name, False, torch.initial_seed() if seed is None else seed)
        self.given = given

    def _arguments(self) -> tuple[list[str | None], list[tuple[int, Any]]]:
        arguments: list[str | None] = []
        for position, node in enumerate(self.program.graph.find_nodes(op="placeholder")):
            name = self.given.names.get(position, node.name)
            found = None
            if position in self.given.weights:
                self._weight(node, name, self.given.weights[position])
            elif hasattr(node.meta.get("val"), "shape"):
                found = self._input(node, name)
            if position in self.given.states:
                self.initial[name] = _loader(self.given.states[position].tensor)
            arguments.append(found)
        arguments = arguments[: self.given.arguments]
        for position, _ in self.given.constants:
            arguments.insert(position, None)
        return arguments, list(self.given.constants)

    def _constant(self, node: Any) -> None:
        tensor = getattr(self.program, node.target)
        if hasattr(tensor, "dtype"):
            self._weight(node, node.target, tensor)
        else:
            super()._constant(node)

    def _kinds(self, count: int) -> Sequence[tuple[Any, str]]:
        from torch.export.graph_signature import OutputKind

        found = [(OutputKind.USER_OUTPUT, "")] * count
        for position, state in self.given.states.items():
            found[state.result] = OutputKind.BUFFER_MUTATION, self.given.names[position]
        return found

    def _structures(self) -> tuple[Any, Any]:
        return self.given.spec, None


def _check(results: Sequence[Value | Complex | None], at: Node) -> None:
    """Results have the types that PyTorch gives them: a conversion that is wrong about that is not to be trusted."""
    for result, type, is_complex in zip(results, at.results, at.is_complex, strict=False):
        if result is None or type is None:
            continue
        parts = (result.real, result.imaginary) if isinstance(result, Complex) else (result,)
        if any(part.type != type for part in parts) or is_complex != isinstance(result, Complex):
            raise Refused(f"its result would be {result.type}, not {type}", code="bad-shape")


def _kind(target: Any) -> str:
    if getattr(target, "__name__", "") == "getitem":
        return "getitem"
    if not hasattr(target, "_schema") and hasattr(target, "__qualname__"):  # arithmetic on numbers
        return f"{getattr(target, '__module__', '')}.{target.__qualname__}"
    return str(target).replace("::", ".")


def _named(node: Any) -> dict[str, Any]:
    """Arguments by their names in the op's schema."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return {str(i): x for i, x in enumerate(node.args)} | dict(node.kwargs)
    found = {argument.name: x for argument, x in zip(schema.arguments, node.args, strict=False)}
    for argument in schema.arguments[len(node.args) :]:
        if argument.name in node.kwargs:
            found[argument.name] = node.kwargs[argument.name]
        elif argument.has_default_value():
            found[argument.name] = argument.default_value
    return found


_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


def node_location(node: Any) -> Location:
    """Module path and op, and the line of the user's file: `layers.0.attn/softmax (model.py:42)`."""
    stack: dict[str, Any] = node.meta.get("nn_module_stack") or {}
    path = ""
    entries: list[Any] = list(stack.values())
    if entries:
        path = str(entries[-1][0])
    path = re.sub(r"^L\['\w+'\]\.?|^self\.?", "", path)
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    own = [f for f in frames if is_own(f[0]) and not is_ours(f[0])]
    line = f" ({Path(own[-1][0]).name}:{own[-1][1]})" if own else ""
    kind = _kind(node.target).split(".")
    return named(f"{path}{'/' if path else ''}{kind[1] if len(kind) > 1 else kind[0]}{line}")


def named_text(location: Location) -> str:
    """The location as text."""
    from headrace.dialects.support.locations import text

    return text(location)


def _loader(tensor: Any) -> Callable[[], Array]:
    """Gives a tensor's elements as an array."""
    return lambda: to_array(tensor)


def to_array(tensor: Any) -> Array:
    """A tensor's elements as an array; no copy where it is dense and in host memory."""
    import torch

    given = tensor.detach()
    if given.device.type != "cpu":
        given = given.cpu()
    given = given.contiguous()
    name = dtype_name(given.dtype)
    if name == "bf16":
        return given.view(torch.int16).numpy().view(dtypes.to_numpy("bf16"))
    return given.numpy()
