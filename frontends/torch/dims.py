"""Binding the dynamic dims of an exported program: `dims={"batch": 8}`, or the shape of an input.

A dim goes by the name that the export gave it (`Dim("batch")`), which a `.pt2` file does not keep: there it goes by its
symbol, as the error for an unbound dim says. The graph is then that of the given sizes: symbols are replaced in the
types of its nodes, and what only computes sizes becomes numbers. It is so before PyTorch takes ops apart, which may
take a way that holds for some sizes only.
"""

from __future__ import annotations

import ast
import copy
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headrace.dialects.support.diagnostics import Collector, CompileError
from headrace.frontends.base import InputSpec, bind_dims
from headrace.frontends.torch.program import quiet

Sizes = Mapping[Any, int]
"""What symbols stand for."""


def bound(program: Any, dims: Mapping[str, int], shapes: Mapping[str, Sequence[int]], guess: bool = False) -> Any:
    """The program with every dynamic dim of its inputs bound; by `guess` to what it was in the export. `CompileError`
    lists those that are not bound, and sizes for which it was not exported."""
    inputs = {node.name: node.meta["val"] for node in _inputs(program)}
    symbols = {x for tensor in inputs.values() for size in tensor.shape for x in _symbols(size)}
    if not symbols and not dims and not shapes:
        return program
    names = _names(inputs, symbols)
    sizes = _sizes(program, inputs, names, dims, shapes, guess)
    with quiet():
        module = copy.deepcopy(program.graph_module)
        for node, old in zip(module.graph.nodes, program.graph.nodes, strict=True):
            node.name = old.name  # the signature goes by it, and copies have others for names of Python
        numbers = _specialise(module.graph, sizes)
        module.recompile()
        return program._update(module, _signature(program.graph_signature, numbers))


def _inputs(program: Any) -> list[Any]:
    user = set(program.graph_signature.user_inputs)
    return [
        node
        for node in program.graph.nodes
        if node.op == "placeholder" and node.name in user and hasattr(node.meta.get("val"), "shape")
    ]


def _symbols(size: Any) -> set[Any]:
    """Symbols of a size that its caller chooses; not those that elements of tensors decide."""
    expression = getattr(getattr(size, "node", None), "expr", None)
    return {x for x in expression.free_symbols if not str(x).startswith("u")} if expression is not None else set()


def _names(inputs: Mapping[str, Any], symbols: set[Any]) -> dict[Any, str]:
    """What each symbol is called: as its export named it, else as it is written."""
    found = {symbol: str(symbol) for symbol in symbols}
    sizes = (size for tensor in inputs.values() for size in tensor.shape if _symbols(size))
    env = next((size.node.shape_env for size in sizes), None)
    for source, name in getattr(env, "source_name_to_debug_name", {}).items():
        variable = getattr(env, "source_to_var", {}).get(source)
        symbol = env.replace(variable) if env is not None and variable is not None else None
        if symbol in found and name.isidentifier():
            found[symbol] = name
    return found


def _sizes(
    program: Any,
    inputs: Mapping[str, Any],
    names: Mapping[Any, str],
    dims: Mapping[str, int],
    shapes: Mapping[str, Sequence[int]],
    guess: bool,
) -> dict[Any, int]:
    errors = Collector()
    called = {name: symbol for symbol, name in names.items()}
    sizes: dict[Any, int] = {called[name]: size for name, size in dims.items() if name in called}
    for name, shape in shapes.items():
        for axis, (size, given) in enumerate(zip(inputs[name].shape if name in inputs else (), shape, strict=False)):
            if not _solve(size, given, sizes):
                text = re.sub(r"\w+", lambda x: next((n for s, n in names.items() if str(s) == x[0]), x[0]), str(size))
                what = f"input '{name}' is given as {'x'.join(map(str, shape))}, but its dim {axis} is {text}"
                errors.add("bad-input-shape", what, location=name)
    errors.raise_if_any()
    for size in (x for tensor in inputs.values() if guess for x in tensor.shape):
        whole = getattr(getattr(size, "node", None), "expr", None)
        if whole in names and size.node.hint is not None:
            sizes.setdefault(whole, size.node.hint)
    specs: list[InputSpec] = []
    for name, tensor in inputs.items():
        axes: list[int | str] = []
        for size in tensor.shape:
            free = _symbols(size) - sizes.keys()
            whole = getattr(getattr(size, "node", None), "expr", None)
            plain = isinstance(size, int) or (not free and whole not in names)
            axes.append(_number(size, sizes) if plain else names[next(iter(sorted(free or {whole}, key=str)))])
        specs.append(InputSpec(name, "", tuple(axes)))
    shown = {axis for spec in specs for axis in spec.dims or ()}
    known = {name: size for name, size in dims.items() if name in shown or name not in called}
    known |= {name: sizes[symbol] for symbol, name in names.items() if symbol in sizes and name in shown}
    bind_dims(specs, known, shapes, errors)
    errors.raise_if_any()
    for symbol, size in sizes.items():
        allowed = program.range_constraints.get(symbol)
        if allowed is not None and not allowed.lower <= size <= allowed.upper:
            errors.add(
                "bad-dim",
                f"dim '{names[symbol]}' is bound to {size}",
                why=f"the program was exported for {_range(allowed)}",
                fix="bind it within, or export the program for more sizes",
            )
    for guard in getattr(program, "_guards_code", None) or ():
        if not _holds(guard, {name: tuple(_number(x, sizes) for x in t.shape) for name, t in inputs.items()}):
            errors.add(
                "bad-dim",
                f"the sizes do not fit the program: not {_plain(guard)}",
                why="the export took a way through the module that holds under this condition only",
                fix="bind other sizes, or export the module with example inputs of these sizes",
            )
    errors.raise_if_any()
    return sizes


def _solve(size: Any, given: Any, sizes: dict[Any, int]) -> bool:
    """Bind the one symbol of a size that is not bound so that it is as given; whether it can be."""
    free = sorted(_symbols(size) - sizes.keys(), key=str)
    if len(free) != 1 or not isinstance(given, int):
        return True
    whole = size.node.expr.subs(sizes)
    first, second = (whole.subs({free[0]: x}) for x in (0, 1))
    at = (given - first) / (second - first)  # a size grows evenly with its symbol, or it is not solved
    if not at.is_Integer or whole.subs({free[0]: at}) != given:
        return False
    sizes[free[0]] = int(at)
    return True


def _number(size: Any, sizes: Sizes) -> Any:
    """A size, or another number of the graph, with symbols replaced; itself where some are left."""
    expression = getattr(getattr(size, "node", None), "expr", None)
    if expression is None:
        return size
    found = expression.subs(sizes)
    if found.free_symbols:
        return size
    return size.node.pytype(found)


def _range(allowed: Any) -> str:
    upper = str(allowed.upper)
    return f"{allowed.lower} and more" if upper in ("int_oo", "oo") else f"{allowed.lower} to {upper}"


def _signature(signature: Any, numbers: Mapping[str, Any]) -> Any:
    """The signature of a program some of whose results are numbers now, by the names of their nodes."""
    from torch.export.graph_signature import ConstantArgument, ExportGraphSignature, OutputSpec

    outputs = [
        OutputSpec(spec.kind, ConstantArgument(spec.arg.name, numbers[spec.arg.name]), spec.target)
        if getattr(spec.arg, "name", None) in numbers
        else spec
        for spec in signature.output_specs
    ]
    return ExportGraphSignature(signature.input_specs, outputs)


def _specialise(graph: Any, sizes: Sizes) -> dict[str, Any]:
    """Replace symbols in a graph; nodes that are numbers then go into the arguments of their users. Those numbers by
    name."""
    from torch.utils._pytree import tree_map

    numbers: dict[Any, Any] = {}

    def replaced(value: Any) -> Any:
        return _tensor(value, sizes) if hasattr(value, "stride") else _number(value, sizes)

    for node in list(graph.nodes):
        if "val" not in node.meta:
            continue
        symbolic = not isinstance(node.meta["val"], int | float)
        node.meta["val"] = tree_map(replaced, node.meta["val"])
        if symbolic and isinstance(node.meta["val"], int | float) and node.op == "call_function":
            numbers[node] = node.meta["val"]

    def number(x: Any) -> Any:
        return numbers.get(x, x) if hasattr(x, "op") else x

    for node in graph.nodes:
        node.args, node.kwargs = tree_map(number, node.args), tree_map(number, node.kwargs)
    for node in reversed(numbers):
        graph.erase_node(node)
    return {node.name: value for node, value in numbers.items()}


def _tensor(fake: Any, sizes: Sizes) -> Any:
    """A fake tensor of static shape and strides."""
    import torch

    shape = [_number(x, sizes) for x in fake.shape]
    if fake.layout != torch.strided or not any(x is not y for x, y in zip(shape, fake.shape, strict=True)):
        return fake
    strides = [_number(x, sizes) for x in fake.stride()]
    offset = _number(fake.storage_offset(), sizes)
    if not all(isinstance(x, int) for x in (*shape, *strides, offset)):
        return fake
    need = offset + sum(max(n - 1, 0) * s for n, s in zip(shape, strides, strict=True)) + 1
    with fake.fake_mode:
        return torch.empty(need, dtype=fake.dtype, device=fake.device).as_strided(shape, strides, offset)


_arithmetic: Any = operator  # partly typed
_OPERATORS: dict[type[Any], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: _arithmetic.floordiv,
    ast.Div: _arithmetic.truediv,
    ast.Mod: operator.mod,
    ast.Pow: _arithmetic.pow,
    ast.USub: operator.neg,
    ast.Not: operator.not_,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {"min": min, "max": max, "int": int, "abs": abs}


def _holds(guard: str, shapes: Mapping[str, Any]) -> bool:
    """Whether a condition on sizes holds. It is read, not run: a file may hold anything."""

    def value(node: ast.AST) -> Any:
        match node:
            case ast.Constant(value=int() | float() as x):
                return x
            case ast.Compare(left=left, ops=ops, comparators=others):
                sides = [value(left), *map(value, others)]
                return all(_OPERATORS[type(x)](*sides[i : i + 2]) for i, x in enumerate(ops))
            case ast.BoolOp(op=op, values=values):
                return (all if isinstance(op, ast.And) else any)(map(value, values))
            case ast.BinOp(left=left, op=op, right=right):
                return _OPERATORS[type(op)](value(left), value(right))
            case ast.UnaryOp(op=op, operand=operand):
                return _OPERATORS[type(op)](value(operand))
            case ast.Call(func=ast.Name(id=name), args=args):
                return _FUNCTIONS[name](*map(value, args))
            case ast.Subscript(value=ast.Call(func=ast.Attribute(value=of, attr="size"), args=[]), slice=axis):
                return shapes[path(of)][value(axis)]
            case _:
                raise KeyError(guard)

    def path(node: ast.AST) -> str:
        """The name of an input as the graph has it: `x_0` of `L['x'][0]`."""
        match node:
            case ast.Subscript(value=ast.Name(id="L"), slice=ast.Constant(value=str() as name)):
                return name
            case ast.Subscript(value=of, slice=ast.Constant(value=key)):
                return f"{path(of)}_{key}"
            case _:
                raise KeyError(guard)

    try:
        return bool(value(ast.parse(guard, mode="eval").body))
    except (KeyError, IndexError, SyntaxError, TypeError, ZeroDivisionError):
        raise CompileError(
            "dynamic-shape",
            f"the program holds under a condition that is not understood: {guard}",
            fix="export it without dynamic shapes",
        ) from None


def _plain(guard: str) -> str:
    """A condition for people: `x.shape[0] > y.shape[0]`."""
    return re.sub(r"L\['(\w+)'\]((?:\[\w+\])*)\.size\(\)", r"\1\2.shape", guard)
