"""What a program's entry function says about its arguments and results: names, and which of them are the same state.

`func.func @main(%x : tensor<1xf32> {tensor.name = "x"}) -> tensor<1xf32>` with the function attributes
`tensor.result_names = ["y"]` and `tensor.states = [["past", "present"]]`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute

NAME = "tensor.name"
RESULT_NAMES = "tensor.result_names"
STATES = "tensor.states"


@dataclass(frozen=True, slots=True)
class Signature:
    """Names of a program's inputs and results, in order; `states` pairs an input with the result that replaces it."""

    inputs: tuple[str, ...]
    results: tuple[str, ...]
    states: tuple[tuple[str, str], ...] = ()


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
    return Signature(inputs, results, tuple(states))


def _string(attribute: Attribute | None, default: str) -> str:
    return attribute.data if isinstance(attribute, StringAttr) else default


def entry(module: ModuleOp, name: str = "main") -> FuncOp:
    """The entry function of a module; `KeyError` when it has none of that name."""
    for op in module.body.block.ops:
        if isinstance(op, FuncOp) and op.sym_name.data == name:
            return op
    raise KeyError(name)
