"""What a program's entry function says about its arguments and results: names, and which of them are the same state.

`func.func @main(%x : tensor<1xf32> {tensor.name = "x"}) -> tensor<1xf32>` with the function attributes
`tensor.result_names = ["y"]` and `tensor.states = [["past", "present"]]`.

A program over several sockets says what one of them runs. Its module has the mesh, `tensor.mesh = {dp = 2, tp = 4}`
(sockets are numbered row-major over it), and its entry function which dims of its ports are cut over which axes,
`tensor.shardings = {x = [["dp"], []]}`; a port that is not named is the same on every socket. Where layers are divided
along axis `pp`, `tensor.stacks = {past0 = ["past0", "past2"]}` says which ports of the whole program a port is, on the
sockets of each stage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, IntegerAttr, ModuleOp, StringAttr, i64
from xdsl.dialects.func import CallOp, FuncOp
from xdsl.ir import Attribute, Operation

from headrace.dialects.tensor.base import tt
from headrace.dialects.tensor.shapes import ShapeError

NAME = "tensor.name"
RESULT_NAMES = "tensor.result_names"
STATES = "tensor.states"
MESH = "tensor.mesh"
SHARDINGS = "tensor.shardings"
STACKS = "tensor.stacks"
STAGES = "pp"
"""The axis of a mesh along which layers are divided."""
Sharding = tuple[tuple[str, ...], ...]
"""For each dim of a port the axes of the mesh that it is cut over, major first."""


@dataclass(frozen=True, slots=True)
class Signature:
    """Names of a program's inputs and results, in order; `states` pairs an input with the result that replaces it."""

    inputs: tuple[str, ...]
    results: tuple[str, ...]
    states: tuple[tuple[str, str], ...] = ()
    shardings: Mapping[str, Sharding] = field(default_factory=dict[str, Sharding])
    stacks: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])


def set_mesh(module: ModuleOp, mesh: Mapping[str, int]) -> None:
    """Write the mesh of sockets that a module is for: sizes of its axes by name, major first."""
    module.attributes[MESH] = DictionaryAttr({name: IntegerAttr(size, i64) for name, size in mesh.items()})


def mesh_of(module: ModuleOp) -> dict[str, int]:
    """The mesh of a module; empty for a program of one socket."""
    found = module.attributes.get(MESH)
    if not isinstance(found, DictionaryAttr):
        return {}
    return {name: x.value.data for name, x in found.data.items() if isinstance(x, IntegerAttr)}


def set_shardings(op: Operation, shardings: Mapping[str, Sharding]) -> None:
    """Write how the ports of an entry function, or of what became of it, are cut."""

    def axes(names: Sequence[str]) -> ArrayAttr[StringAttr]:
        return ArrayAttr([StringAttr(name) for name in names])

    cut = {name: ArrayAttr([axes(dim) for dim in dims]) for name, dims in shardings.items() if any(dims)}
    if cut:
        op.attributes[SHARDINGS] = DictionaryAttr(cut)
    else:
        op.attributes.pop(SHARDINGS, None)


def shardings_of(op: Operation) -> dict[str, Sharding]:
    """How the ports of an entry function, or of what became of it, are cut; those that are not are left out."""
    found = op.attributes.get(SHARDINGS)
    if not isinstance(found, DictionaryAttr):
        return {}
    return {
        name: tuple(tuple(_string(x, "") for x in _items(dim) or ()) for dim in _items(dims) or ())
        for name, dims in found.data.items()
    }


def set_stacks(op: Operation, stacks: Mapping[str, Sequence[str]]) -> None:
    """Write which ports of the whole program a port of an entry function is, by stage."""
    if stacks:
        op.attributes[STACKS] = DictionaryAttr(
            {name: ArrayAttr([StringAttr(x) for x in names]) for name, names in stacks.items()}
        )
    else:
        op.attributes.pop(STACKS, None)


def stacks_of(op: Operation) -> dict[str, tuple[str, ...]]:
    """Which ports of the whole program a port of an entry function, or of what became of it, is, by stage."""
    found = op.attributes.get(STACKS)
    if not isinstance(found, DictionaryAttr):
        return {}
    return {name: tuple(_string(x, "") for x in _items(names) or ()) for name, names in found.data.items()}


def set_signature(
    func: FuncOp, inputs: Sequence[str], results: Sequence[str], states: Iterable[tuple[str, str]] = ()
) -> None:
    """Write the names and states of an entry function."""
    func.arg_attrs = ArrayAttr([DictionaryAttr({NAME: StringAttr(name)}) for name in inputs])
    func.attributes[RESULT_NAMES] = ArrayAttr([StringAttr(name) for name in results])
    pairs = [ArrayAttr([StringAttr(past), StringAttr(present)]) for past, present in states]
    if pairs:
        func.attributes[STATES] = ArrayAttr(pairs)
    else:
        func.attributes.pop(STATES, None)


def signature(func: FuncOp) -> Signature:
    """Read the names and states of an entry function; what has no name is called `arg0`, … and `result0`, …"""
    count = len(func.function_type.inputs)
    none: list[Mapping[str, Attribute]] = [{}] * count
    attributes = [x.data for x in func.arg_attrs] if func.arg_attrs else none
    inputs = tuple(_string(x.get(NAME), f"arg{i}") for i, x in enumerate(attributes))
    results = tuple(f"result{i}" for i in range(len(func.function_type.outputs)))
    names = func.attributes.get(RESULT_NAMES)
    if isinstance(names, ArrayAttr):
        results = tuple(_string(x, results[i]) for i, x in enumerate(cast("ArrayAttr[Attribute]", names)))
    states: list[tuple[str, str]] = []
    pairs = func.attributes.get(STATES)
    if isinstance(pairs, ArrayAttr):
        for past, present in cast("ArrayAttr[ArrayAttr[StringAttr]]", pairs):
            states.append((past.data, present.data))
    return Signature(inputs, results, tuple(states), shardings_of(func), stacks_of(func))


def _string(attribute: Attribute | None, default: str) -> str:
    return attribute.data if isinstance(attribute, StringAttr) else default


def faults(module: ModuleOp) -> list[tuple[FuncOp, str]]:
    """What is wrong with a module as a program, each with its function: calls in a circle; and for the entry function,
    arguments or results that are no static tensors, names that are missing, wrong or used twice, and states that are
    none."""
    functions = {op.sym_name.data: op for op in module.body.block.ops if isinstance(op, FuncOp)}
    found = [
        (functions[name], "it is called while it runs, by itself or what it calls") for name in _circles(functions)
    ]
    if (main := functions.get("main")) is not None and main.body.blocks:
        wrong = list(_entry_faults(main)) or list(_mesh_faults(module, main))
        wrong = wrong or list(_sharding_faults(main, mesh_of(module)))
        found += [(main, message) for message in wrong]
    return found


def _mesh_faults(module: ModuleOp, func: FuncOp) -> Iterator[str]:
    """A mesh, shardings or stacks that are written in another way, which nobody would read."""
    if (mesh := module.attributes.get(MESH)) is not None:
        sizes = mesh_of(module)
        whole = isinstance(mesh, DictionaryAttr) and len(sizes) == len(mesh.data)
        if not whole or not sizes or any(size < 1 for size in sizes.values()):
            yield f"{MESH} is a dictionary of axes and their sizes, at least 1, found {mesh}"
    for name, inner in ((SHARDINGS, True), (STACKS, False)):
        found = func.attributes.get(name)
        if found is None:
            continue
        items = [_items(x) for x in found.data.values()] if isinstance(found, DictionaryAttr) else [None]
        lists = [_items(y) for x in items for y in x or ()] if inner else items
        names = [y for x in lists for y in x or ()]
        if None in items or None in lists or not all(isinstance(x, StringAttr) for x in names):
            what = "for each dim the axes that it is cut over" if inner else "the ports it is by stage"
            yield f"{name} is a dictionary of ports, and of each {what}, found {found}"


def _sharding_faults(func: FuncOp, mesh: Mapping[str, int]) -> Iterator[str]:
    told = signature(func)
    types: dict[str, Attribute] = dict(zip(told.inputs, func.function_type.inputs, strict=False))
    types.update(zip(told.results, func.function_type.outputs, strict=False))
    for name, dims in told.shardings.items():
        if name not in types:
            yield f"{SHARDINGS} names '{name}', which is no port"
            continue
        try:
            rank = len(tt(types[name]).shape)
        except ShapeError:
            continue
        if len(dims) != rank:
            yield f"{SHARDINGS} of '{name}' has {len(dims)} dims, it has {rank}"
        used = Counter(axis for dim in dims for axis in dim)
        for axis, times in used.items():
            if axis not in mesh:
                yield f"{SHARDINGS} of '{name}' names axis '{axis}'; the mesh has {', '.join(mesh) or 'none'}"
            elif times > 1:
                yield f"{SHARDINGS} of '{name}' names axis '{axis}' {times} times"
    for name, names in told.stacks.items():
        if name not in types:
            yield f"{STACKS} names '{name}', which is no port"
        if len(set(names)) != mesh.get(STAGES, 1):
            yield f"{STACKS} of '{name}' has {len(set(names))} names for {mesh.get(STAGES, 1)} stages"
    for past, present in told.states:
        if told.shardings.get(past) != told.shardings.get(present):
            yield f"state '{past}' and '{present}', which replaces it, are cut in different ways"


def _circles(functions: Mapping[str, FuncOp]) -> list[str]:
    """Functions that call themselves, in a few steps or one."""
    calls = {
        name: {op.callee.string_value() for op in function.walk() if isinstance(op, CallOp)}
        for name, function in functions.items()
    }
    while (ends := [name for name, callees in calls.items() if not callees & calls.keys()]) and calls:
        for name in ends:
            del calls[name]
    return [name for name in calls if name in _reached(name, calls)]


def _reached(name: str, calls: Mapping[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    work = [name]
    while work:
        new = calls.get(work.pop(), set()) - seen
        seen |= new
        work.extend(new)
    return seen


def _entry_faults(func: FuncOp) -> Iterator[str]:
    ins, outs = list(func.function_type.inputs), list(func.function_type.outputs)
    for kind, types in (("argument", ins), ("result", outs)):
        for i, type in enumerate(types):
            try:
                tt(type)
            except ShapeError as error:
                yield f"{kind} {i} of a program is a tensor: {error}"
    for i, x in enumerate(func.arg_attrs or ()):
        if NAME in x.data and not isinstance(x.data[NAME], StringAttr):
            yield f"{NAME} of argument {i} is a string, found {x.data[NAME]}"
    names = func.attributes.get(RESULT_NAMES)
    if names is not None and not _strings(names, len(outs)):
        yield f"{RESULT_NAMES} is a list of {len(outs)} strings, found {names}"
        return
    pairs = func.attributes.get(STATES)
    if pairs is not None and ((items := _items(pairs)) is None or not all(_strings(x, 2) for x in items)):
        yield f"{STATES} is a list of pairs of an input's and a result's name, found {pairs}"
        return
    told = signature(func)
    for kind, of in (("argument", told.inputs), ("result", told.results)):
        for name, times in Counter(of).items():
            if times > 1:
                yield f"{times} {kind}s are called '{name}'"
    used: Counter[str] = Counter()
    for past, present in told.states:
        for name, kind, of in ((past, "argument", told.inputs), (present, "result", told.results)):
            used[f"{kind} '{name}'"] += 1
            if name not in of:
                yield f"{STATES} names {kind} '{name}', which is none"
        if past in told.inputs and present in told.results:
            before, after = ins[told.inputs.index(past)], outs[told.results.index(present)]
            if before != after:
                yield f"state '{past}' is {before} but '{present}', which replaces it, is {after}"
    for name, times in used.items():
        if times > 1:
            yield f"{STATES} names {name} {times} times"


def _items(found: Attribute) -> list[Attribute] | None:
    """The items of a list; None when it is none."""
    return list(cast("ArrayAttr[Attribute]", found)) if isinstance(found, ArrayAttr) else None


def _strings(found: Attribute, count: int) -> bool:
    items = _items(found)
    return items is not None and len(items) == count and all(isinstance(x, StringAttr) for x in items)


def entry(module: ModuleOp, name: str = "main") -> FuncOp:
    """The entry function of a module; `KeyError` when it has none of that name."""
    for op in module.body.block.ops:
        if isinstance(op, FuncOp) and op.sym_name.data == name:
            return op
    raise KeyError(name)
