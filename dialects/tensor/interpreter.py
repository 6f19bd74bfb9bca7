"""The reference interpreter of the tensor level: runs a program op by op with the ops' NumPy meaning.

    results = run_function(module, "main", {"x": array}, store)

A value is dropped after its last use, so that a model needs memory for its live values only. Weights come from a store
by memory map; recipes are evaluated when first needed, and once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Block, Operation, SSAValue

from headrace.dialects.support import locations
from headrace.dialects.support.diagnostics import CompileError, nearest
from headrace.dialects.support.dtypes import from_numpy, to_numpy
from headrace.dialects.tensor import meaning
from headrace.dialects.tensor.base import TensorOp, attributes_of, tt
from headrace.dialects.tensor.meaning.collective import current_socket
from headrace.dialects.tensor.program import signature
from headrace.dialects.tensor.shapes import TT
from headrace.dialects.tensor.shapes.collective import PER_SOCKET, Group, group_of
from headrace.dialects.tensor.storage import ConstantOp, RecipeOp, WeightOp, YieldOp, order

if TYPE_CHECKING:
    from headrace.dialects.support.locations import Location
    from headrace.dialects.tensor.meaning import Array

    class Store(Protocol):
        """What the interpreter asks of a weight store."""

        def array(self, key: str) -> Array: ...


Observer = Callable[[Operation, "tuple[Array, ...]", "Sequence[Location]"], None]
"""Called after every op with its results and the locations of the calls around it, outermost first."""


@dataclass
class _Plan:
    """The ops of a block and, per op, the values that nobody uses after it."""

    ops: list[Operation]
    dead: list[list[SSAValue]]


def _plan(block: Block) -> _Plan:
    ops = list(block.ops)
    last: dict[SSAValue, int] = dict.fromkeys(block.args, -1)
    for i, op in enumerate(ops):
        for value in (*op.results, *op.operands):
            last[value] = i
    dead: list[list[SSAValue]] = [[] for _ in ops]
    for value, i in last.items():
        if i >= 0:
            dead[i].append(value)
    return _Plan(ops, dead)


@dataclass
class Interpreter:
    """Runs functions and recipes of one module. Keep it to run a program again: derived weights are kept."""

    module: ModuleOp
    store: Store | None = None
    observers: Sequence[Observer] = ()
    checked: bool = True
    """Whether each result is held against the op's type (cheap: shape and dtype only)."""
    _functions: dict[str, FuncOp] = field(init=False)
    _recipes: dict[str, RecipeOp] = field(init=False)
    _derived: dict[tuple[str, tuple[int, ...]], Array] = field(
        init=False, default_factory=dict[tuple[str, tuple[int, ...]], "Array"]
    )
    _groups: dict[str, frozenset[Group]] = field(init=False, default_factory=dict[str, "frozenset[Group]"])
    _plans: dict[Block, _Plan] = field(init=False, default_factory=dict[Block, _Plan])
    _calls: list[Location] = field(init=False, default_factory=list["Location"])

    def __post_init__(self) -> None:
        self._functions = {op.sym_name.data: op for op in self.module.body.block.ops if isinstance(op, FuncOp)}
        self._recipes = {recipe.key: recipe for recipe in order(self.module)}

    def run(self, name: str, inputs: Mapping[str, Array] | Sequence[Array]) -> dict[str, Array]:
        """Results of a function by name (`tensor.result_names`, else `result0`, …).

        `CompileError` when the module has no such function, or inputs are missing, unknown or of another type.
        """
        func = self._function(name)
        names = signature(func)
        arrays = _bind(names.inputs, [tt(a) for a in func.body.block.args], inputs)
        return dict(zip(names.results, self._block(func.body.block, arrays), strict=True))

    def weight(self, key: str) -> Array:
        """The array of a weight: of its recipe, or of the store. A recipe that cuts gives the block of the socket that
        runs."""
        recipe = self._recipes.get(key)
        if recipe is not None:
            groups = self.groups(key)
            which = (key, places(groups, current_socket().index) if groups else ())
            if which not in self._derived:
                self._derived[which] = self._recipe(recipe)
            return self._derived[which]
        if self.store is None:
            raise CompileError("missing-weight", f"weight '{key}' is needed but there is no weight store")
        return self.store.array(key)

    def groups(self, key: str) -> frozenset[Group]:
        """The groups of sockets over which the recipe of a weight cuts; none for a weight that all sockets have
        alike."""
        found = self._groups.get(key)
        if found is None:
            found = frozenset[Group]()
            recipe = self._recipes.get(key)
            for op in recipe.body.block.ops if recipe is not None else ():
                if isinstance(op, WeightOp):
                    found |= self.groups(op.key.data)
                elif op.name in PER_SOCKET and (group := group_of(attributes_of(op))).sockets > 1:
                    found |= {group}
            self._groups[key] = found
        return found

    def _recipe(self, recipe: RecipeOp) -> Array:
        calls, self._calls = self._calls, [recipe.location]
        try:
            (array,) = self._block(recipe.body.block, [])
        finally:
            self._calls = calls
        return array

    def _function(self, name: str, location: str = "") -> FuncOp:
        if name not in self._functions:
            raise CompileError(
                "unknown-function",
                f"the module has no function '{name}'",
                fix=nearest(name, self._functions),
                location=location,
            )
        return self._functions[name]

    def _block(self, block: Block, arguments: list[Array]) -> tuple[Array, ...]:
        """What a block returns. Empties `arguments`: the caller lets go of them."""
        plan = self._plans.get(block)
        if plan is None:
            plan = self._plans[block] = _plan(block)
        values: dict[SSAValue, Array] = dict(zip(block.args, arguments, strict=True))
        arguments.clear()
        for op, dead in zip(plan.ops, plan.dead, strict=True):
            operands = [values[value] for value in op.operands]
            if isinstance(op, ReturnOp | YieldOp):
                return tuple(operands)
            for value in dead:
                values.pop(value, None)
            results = self._op(op, operands)
            del operands
            for value, array in zip(op.results, results, strict=True):
                values[value] = array
            for observer in self.observers:
                observer(op, results, tuple(self._calls))
            for value in dead:
                values.pop(value, None)
        raise CompileError("no-terminator", "a block ends without returning values")

    def _op(self, op: Operation, operands: list[Array]) -> tuple[Array, ...]:
        if isinstance(op, WeightOp):
            found = (self._locate(op, self.weight, op.key.data),)
        elif isinstance(op, ConstantOp):
            return (op.array(),)
        elif isinstance(op, CallOp):
            callee = self._function(op.callee.string_value(), locations.of(op))
            self._calls.append(op.location)
            try:
                return self._block(callee.body.block, operands)
            finally:
                self._calls.pop()
        elif isinstance(op, TensorOp):
            found = self._locate(op, meaning.evaluate, op.name, op.attrs(), *operands)
        else:
            raise CompileError(
                "not-interpretable",
                f"{op.name} is not a tensor op",
                why="this interpreter runs the tensor level only",
                location=self._where(op),
            )
        if self.checked:
            self._check(op, found)
        return found

    def _locate(self, op: Operation, call: Callable[..., Any], *arguments: Any) -> Any:
        """Call, giving errors the location of the op."""
        try:
            return call(*arguments)
        except CompileError as error:
            if error.location:
                raise
            raise CompileError(
                error.code, error.what, why=error.why, fix=error.fix, location=self._where(op)
            ) from error
        except Exception as error:
            error.add_note(f"while evaluating {op.name} at {self._where(op) or 'an unknown location'}")
            raise

    def _where(self, op: Operation) -> str:
        here = locations.of(op)
        for call in reversed(self._calls):
            around = locations.text(call)
            here = f"{here} in {around}" if here and around else here or around
        return here

    def _check(self, op: Operation, arrays: tuple[Array, ...]) -> None:
        for value, array in zip(op.results, arrays, strict=True):
            wanted, found = tt(value), TT(array.shape, from_numpy(array.dtype))
            if wanted == found:
                continue
            if isinstance(op, WeightOp):
                raise CompileError(
                    "weight-type",
                    f"weight '{op.key.data}' is {found} in the store but the program wants {wanted}",
                    location=self._where(op),
                )
            raise AssertionError(f"{op.name} at {self._where(op)}: its meaning gives {found} but its type is {wanted}")


def places(groups: frozenset[Group], socket: int) -> tuple[int, ...]:
    """The places of a socket in groups: sockets with equal ones have the same blocks."""
    return tuple(group.rank(socket) for group in sorted(groups))


def _bind(names: Sequence[str], types: Sequence[TT], inputs: Mapping[str, Array] | Sequence[Array]) -> list[Array]:
    """Inputs in argument order, held against the argument types."""
    if isinstance(inputs, Mapping):
        unknown = [name for name in inputs if name not in names]
        if unknown:
            raise CompileError("unknown-input", f"no input '{unknown[0]}'", fix=nearest(unknown[0], names))
        missing = [name for name in names if name not in inputs]
        if missing:
            raise CompileError("missing-input", f"no value for input {', '.join(map(repr, missing))}")
        found = [np.asarray(inputs[name]) for name in names]
    else:
        found = [np.asarray(x) for x in inputs]
        if len(found) != len(names):
            raise CompileError(
                "missing-input", f"{len(found)} inputs given but the program takes {len(names)}: {', '.join(names)}"
            )
    for name, wanted, array in zip(names, types, found, strict=True):
        if tuple(array.shape) != wanted.shape or array.dtype != to_numpy(wanted.dtype):
            have = f"{array.dtype}[{', '.join(map(str, array.shape))}]"
            raise CompileError("input-type", f"input '{name}' is {have} but the program takes {wanted}")
    return found


def run_function(
    module: ModuleOp,
    name: str,
    inputs: Mapping[str, Array] | Sequence[Array],
    store: Store | None = None,
    observers: Sequence[Observer] = (),
) -> dict[str, Array]:
    """Results of one function of a module by result name; see `Interpreter.run`."""
    return Interpreter(module, store, observers).run(name, inputs)


def evaluate_recipe(module: ModuleOp, key: str, store: Store | None = None) -> Array:
    """The array of a derived weight: what the recipe of `key` yields; of a plain weight what the store holds."""
    return Interpreter(module, store).weight(key)
