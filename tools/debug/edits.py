"""Edits that make a program smaller and keep it valid: what the reducer tries. Each works in place.

An edit finds its place by position, so that it can be made on a copy. It raises `Unfit` where it makes no sense.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import cast

from xdsl.dialects.builtin import (
    ArrayAttr,
    DictionaryAttr,
    FunctionType,
    ModuleOp,
    StringAttr,
    SymbolRefAttr,
)
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, BlockArgument, Operation, OpResult, SSAValue
from xdsl.traits import IsTerminator

from headrace.dialects.support import dtypes
from headrace.dialects.tensor.base import TensorOp, tt
from headrace.dialects.tensor.program import NAME, RESULT_NAMES, STATES, Signature, signature
from headrace.dialects.tensor.shapes import ShapeError
from headrace.dialects.tensor.storage import ConstantOp, RecipeOp, WeightOp, filled


class Unfit(Exception):
    """The edit makes no sense here."""


# --------------------------------------------------------------------------------------------------------- functions


def functions(module: ModuleOp) -> list[FuncOp]:
    """The functions of a module that have a body of one block."""
    return [op for op in module.body.block.ops if isinstance(op, FuncOp) and len(op.body.blocks) == 1]


def called(module: ModuleOp) -> set[str]:
    """Names of the functions that are called."""
    return {op.callee.string_value() for op in module.walk() if isinstance(op, CallOp)}


def roots(module: ModuleOp) -> list[FuncOp]:
    """The functions that nobody calls: their signature is free."""
    inner = called(module)
    return [func for func in functions(module) if func.sym_name.data not in inner]


def is_tensor_program(module: ModuleOp) -> bool:
    """Whether a module has ops on whole tensors only."""
    return all(isinstance(op, ModuleOp | FuncOp | CallOp | ReturnOp | TensorOp) for op in module.walk())


def body(block: Block) -> list[Operation]:
    """The ops of a block but the one that ends it."""
    ops = list(block.ops)
    return ops[:-1] if ops and ops[-1].has_trait(IsTerminator, value_if_unregistered=False) else ops


def name_values(module: ModuleOp) -> None:
    """Give every value of the functions a name of its own, so that what is printed of it, and the argument that takes
    its place, are called the same whatever else goes."""
    for func in functions(module):
        taken: set[str] = set()
        count = 0
        for block in _blocks(func):
            for value in (*block.args, *(x for op in block.ops for x in op.results)):
                if value.name_hint is None or value.name_hint in taken:
                    while f"v{count}" in taken:
                        count += 1
                    value.name_hint = f"v{count}"
                taken.add(value.name_hint)


def _blocks(op: Operation) -> Iterator[Block]:
    for inner in op.walk():
        for region in inner.regions:
            yield from region.blocks


def keep_ops(func: FuncOp, kept: Collection[int]) -> None:
    """Cut the ops at these positions out of their function: values of other ops become arguments, and values that
    other ops used become results."""
    block = func.body.block
    ops = body(block)
    stay = {ops[i] for i in kept}
    gone = [op for op in ops if op not in stay]
    last = _last(func)
    told = signature(func)
    resigned = Resigned(func, told)
    results: list[tuple[SSAValue, str]] = [
        (value, name)
        for value, name in zip(last.operands, told.results, strict=True)
        if isinstance(value, OpResult) and value.op in stay
    ]
    returned = {value for value, _ in results}
    taken = {name for _, name in results}
    for op in ops:
        if op not in stay:
            continue
        for value in op.results:
            if value not in returned and any(
                use.operation not in stay and use.operation is not last for use in value.uses
            ):
                results.append((value, unique(value.name_hint or "r", taken)))
    last.operands = [value for value, _ in results]
    for op in gone:
        for value in op.results:
            if any(use.operation in stay for use in value.uses):
                fresh = resigned.add_argument(value)
                value.replace_uses_with_if(fresh, lambda use: use.operation in stay)
    for op in reversed(gone):
        op.detach()
    for op in gone:
        op.drop_all_references()
    resigned.finish([name for _, name in results])


def around(func: FuncOp, place: Attribute) -> Iterator[list[int]]:
    """Positions of the ops of a place; of these and the ops next to them; and so on, four times."""
    ops = body(func.body.block)
    numbers = {op: i for i, op in enumerate(ops)}
    found = {i for i, op in enumerate(ops) if op.location == place}
    for _ in range(4):
        if not found:
            return
        yield sorted(found)
        values = [x for i in found for x in (*ops[i].operands, *ops[i].results)]
        near = [op for x in values for op in (x.owner, *(use.operation for use in x.uses))]
        found |= {numbers[op] for op in near if isinstance(op, Operation) and op in numbers}


def keep_results(func: FuncOp, kept: Collection[int]) -> None:
    """Return only the results at these positions, and drop what nobody needs any more."""
    last, told = _last(func), signature(func)
    resigned = Resigned(func, told)
    positions = sorted(kept)
    last.operands = [last.operands[i] for i in positions]
    erase_dead(func.body.block)
    resigned.finish([told.results[i] for i in positions])


def merge_arguments(func: FuncOp, kept: int, gone: int) -> None:
    """Let one argument stand for another of its type."""
    args = func.body.block.args
    if kept == gone or args[kept].type != args[gone].type or args[gone].first_use is None:
        raise Unfit
    resigned = Resigned(func, signature(func))
    args[gone].replace_all_uses_with(args[kept])
    resigned.finish(resigned.told.results)


def drop_arguments(func: FuncOp) -> None:
    """Drop the arguments that nobody uses."""
    resigned = Resigned(func, signature(func))
    if not resigned.idle:
        raise Unfit
    resigned.idle.clear()
    resigned.finish(resigned.told.results)


def _last(func: FuncOp) -> Operation:
    last = func.body.block.last_op
    if not isinstance(last, ReturnOp):
        raise Unfit
    return last


def unique(name: str, taken: set[str]) -> str:
    """A name that is not taken, like the given one; takes it."""
    found, n = name, 0
    while found in taken:
        n += 1
        found = f"{name}.{n}"
    taken.add(found)
    return found


class Resigned:
    """The signature of a function whose arguments and results change."""

    def __init__(self, func: FuncOp, told: Signature) -> None:
        self.func, self.told = func, told
        count = len(func.function_type.inputs)
        attributes = list(func.arg_attrs) if func.arg_attrs else [DictionaryAttr({})] * count
        self.attributes: dict[BlockArgument, DictionaryAttr] = {}
        for value, name, old in zip(func.body.block.args, told.inputs, attributes, strict=True):
            self.attributes[value] = DictionaryAttr({**old.data, NAME: StringAttr(name)})
        self.taken = set(told.inputs)
        self.idle = {x for x in func.body.block.args if x.first_use is None}

    def add_argument(self, like: SSAValue, type: Attribute | None = None) -> BlockArgument:
        """A new argument with type (unless given), name and location of a value."""
        block = self.func.body.block
        location = like.owner.location if isinstance(like.owner, Operation) else None
        fresh = block.insert_arg(type or like.type, len(block.args), location)
        fresh.name_hint = like.name_hint
        name = unique(like.name_hint or f"x{len(block.args)}", self.taken)
        self.attributes[fresh] = DictionaryAttr({NAME: StringAttr(name)})
        return fresh

    def finish(self, results: Sequence[str]) -> None:
        """Drop the arguments that nobody uses any more, and write names, types and states."""
        func, block = self.func, self.func.body.block
        for value in [x for x in block.args if x.first_use is None and x not in self.idle]:
            block.erase_arg(value)
        func.arg_attrs = ArrayAttr([self.attributes[x] for x in block.args])
        func.function_type = FunctionType.from_lists(
            [x.type for x in block.args], [x.type for x in _last(func).operands]
        )
        func.res_attrs = None
        func.attributes[RESULT_NAMES] = ArrayAttr([StringAttr(name) for name in results])
        inputs = {self.told_name(x) for x in block.args}
        pairs = [pair for pair in self.told.states if pair[0] in inputs and pair[1] in results]
        func.attributes.pop(STATES, None)
        if pairs:
            func.attributes[STATES] = ArrayAttr([ArrayAttr([StringAttr(a), StringAttr(b)]) for a, b in pairs])

    def told_name(self, value: BlockArgument) -> str:
        """The name of an argument."""
        name = self.attributes[value].data[NAME]
        assert isinstance(name, StringAttr)
        return name.data


def inline(module: ModuleOp, name: str) -> None:
    """Put the body of a function in the place of every call of it, and drop it."""
    func = next((f for f in functions(module) if f.sym_name.data == name), None)
    calls = [op for op in module.walk() if isinstance(op, CallOp) and op.callee.string_value() == name]
    if func is None or not calls or any(_inside(call, func) for call in calls):
        raise Unfit
    for call in calls:
        block = call.parent
        assert block is not None
        mapper: dict[SSAValue, SSAValue] = dict(zip(func.body.block.args, call.operands, strict=True))
        for op in body(func.body.block):
            copy = op.clone(mapper)
            for value in copy.results:
                value.name_hint = None
            block.insert_op_before(copy, call)
        for old, new in zip(call.results, _last(func).operands, strict=True):
            old.replace_all_uses_with(mapper.get(new, new))
        call.detach()
        call.drop_all_references()
    func.detach()
    func.drop_all_references()
    name_values(module)


def _inside(op: Operation, func: FuncOp) -> bool:
    parent = op.parent_op()
    while parent is not None and parent is not func:
        parent = parent.parent_op()
    return parent is func


# ----------------------------------------------------------------------------------------------------------- any block


def blocks(module: ModuleOp) -> list[Block]:
    """All blocks of a module, outer before inner; the module's own first."""
    return list(_blocks(module))


def erase_dead(block: Block) -> None:
    """Erase the ops of a block whose results nobody uses. Ops without results stay."""
    for op in reversed(body(block)):
        if op.results and all(x.first_use is None for x in op.results):
            op.detach()
            op.drop_all_references()


def erase(module: ModuleOp, block: int, gone: Collection[int]) -> None:
    """Erase ops without results (units, flows, functions, recipes, …) by position in their block, with the ops without
    results that name them."""
    found = blocks(module)[block]
    ops = _free(found)
    leaving = [ops[i] for i in gone]
    names = {name.data for op in leaving if isinstance(name := op.properties.get("sym_name"), StringAttr)}
    for op in found.ops:
        if names and op not in leaving and any(names & _named(inner) for inner in op.walk()):
            if op.results or (op is found.last_op and op.has_trait(IsTerminator, value_if_unregistered=False)):
                raise Unfit
            leaving.append(op)
            names |= {name.data for name in [op.properties.get("sym_name")] if isinstance(name, StringAttr)}
    for op in leaving:
        op.detach()
        op.drop_all_references()


def _named(op: Operation) -> set[str]:
    """The symbols that an op names."""
    found: set[str] = set()
    todo: list[Attribute] = list(op.properties.values())
    while todo:
        one = todo.pop()
        if isinstance(one, SymbolRefAttr):
            found.add(one.root_reference.data)
        elif isinstance(one, ArrayAttr):
            todo += cast("ArrayAttr[Attribute]", one)
    return found


def _free(block: Block) -> list[Operation]:
    """The ops that may go without a substitute: those that make no value, but none that ends a block."""
    return [op for op in body(block) if not op.results]


def count_free(block: Block) -> int:
    """How many ops `erase` may erase."""
    return len(_free(block))


def forward(module: ModuleOp, block: int, position: int, operand: int) -> None:
    """Let an operand stand for the results of an op of its type, and drop what nobody needs any more."""
    found = blocks(module)[block]
    op = body(found)[position]
    if operand >= len(op.operands) or not op.results:
        raise Unfit
    value = op.operands[operand]
    if any(x.type != value.type for x in op.results) or all(x.first_use is None for x in op.results):
        raise Unfit
    for result in op.results:
        result.replace_all_uses_with(value)
    erase_dead(found)


def make_constant(module: ModuleOp, block: int, position: int) -> None:
    """Let constants, of ones, stand for the results of a tensor op, and drop what nobody needs any more."""
    found = blocks(module)[block]
    op = body(found)[position]
    if isinstance(op, ConstantOp) or not op.results or not isinstance(op, TensorOp | CallOp):
        raise Unfit
    try:
        types = [tt(x) for x in op.results]
    except ShapeError as error:
        raise Unfit from error
    for result, type in zip(op.results, types, strict=True):
        one = filled(type, 1.0 if dtypes.is_float(type.dtype) else True if type.dtype == "i1" else 1, op.location)
        one.result.name_hint = result.name_hint
        found.insert_op_before(one, op)
        result.replace_all_uses_with(one.result)
    op.detach()
    op.drop_all_references()
    erase_dead(found)


def drop_attribute(module: ModuleOp, name: str) -> None:
    """Drop an attribute of the module."""
    if name not in module.attributes:
        raise Unfit
    del module.attributes[name]


def drop_unused(module: ModuleOp) -> None:
    """Drop functions that nobody calls any more (but the entry), and recipes whose weight nobody takes."""
    changed = True
    while changed:
        changed = False
        keys = {op.key.data for op in module.walk() if isinstance(op, WeightOp)}
        names = called(module)
        for op in list(module.body.block.ops):
            dead = isinstance(op, RecipeOp) and op.key not in keys
            private = isinstance(op, FuncOp) and op.sym_visibility is not None and op.sym_visibility.data == "private"
            if dead or (private and isinstance(op, FuncOp) and op.sym_name.data not in names):
                op.detach()
                op.drop_all_references()
                changed = True
