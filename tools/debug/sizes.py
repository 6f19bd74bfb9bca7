"""Smaller shapes for a whole tensor program: which dims go together, and the program with other sizes of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Block, Operation, SSAValue

from headrace.dialects.tensor import shapes
from headrace.dialects.tensor.base import TensorOp, create, ir_type, tt
from headrace.dialects.tensor.shapes import TT, Follow, ShapeError
from headrace.dialects.tensor.storage import ConstantOp, LiteralAttr, RecipeOp, WeightOp, YieldOp, constant, weight
from headrace.tools.debug.edits import Unfit

Dim = tuple[int, int]
"""A dim of a value: the value's number in `values`, and the dim."""


def values(module: ModuleOp) -> list[SSAValue]:
    """All values of a module in order; the same numbers on a copy."""
    found: list[SSAValue] = []
    for op in module.walk():
        found += op.results
        for region in op.regions:
            for block in region.blocks:
                found += block.args
    return found


class Classes:
    """The dims of a program, in classes that can only change together. `Unfit` for one that is not of whole tensors."""

    def __init__(self, module: ModuleOp) -> None:
        self.numbers = {value: i for i, value in enumerate(values(module))}
        self.sizes: dict[Dim, int] = {}
        self._parent: dict[Dim, Dim] = {}
        for value, i in self.numbers.items():
            for d, size in enumerate(_type(value).shape):
                self.sizes[i, d] = size
        recipes = {op.key: op.value for op in module.body.block.ops if isinstance(op, RecipeOp)}
        functions = {op.sym_name.data: op for op in module.body.block.ops if isinstance(op, FuncOp)}
        stored: dict[str, SSAValue] = dict(recipes)
        for op in module.walk():
            if isinstance(op, WeightOp):
                self._join(stored.setdefault(op.key.data, op.result), op.result)
            elif isinstance(op, CallOp):
                self._call(op, functions)
            elif isinstance(op, TensorOp) and op.results and not isinstance(op, ConstantOp):
                self._op(op)
            elif not isinstance(op, ModuleOp | FuncOp | ReturnOp | TensorOp):
                raise Unfit

    def classes(self) -> list[tuple[int, list[Dim]]]:
        """Size and dims of each class, the largest size first."""
        found: dict[Dim, list[Dim]] = {}
        for dim in self.sizes:
            found.setdefault(self._find(dim), []).append(dim)
        return sorted(((self.sizes[root], dims) for root, dims in found.items()), key=lambda one: -one[0])

    def _op(self, op: TensorOp) -> None:
        operands, results = [tt(x) for x in op.operands], [tt(x) for x in op.results]
        tiling = shapes.tiling(op.name, op.attrs(), operands, results)
        first: dict[tuple[str, int], Dim] = {}
        sides = (zip(op.operands, tiling.operands, strict=True), zip(op.results, tiling.results, strict=True))
        for value, follows in (pair for side in sides for pair in side):
            for d, follow in enumerate(follows):
                dim = self.numbers[value], d
                if follow is None:
                    key = ("coupled", self.sizes[dim])
                elif follow == Follow(follow.dim):
                    key = ("parallel", follow.dim)
                else:
                    continue
                self._merge(first.setdefault(key, dim), dim)

    def _call(self, op: CallOp, functions: Mapping[str, FuncOp]) -> None:
        func = functions[op.callee.string_value()]
        last = func.body.block.last_op
        for a, b in zip(op.operands, func.body.block.args, strict=True):
            self._join(a, b)
        if last is not None:
            for a, b in zip(op.results, last.operands, strict=True):
                self._join(a, b)

    def _join(self, a: SSAValue, b: SSAValue) -> None:
        for d in range(len(_type(a).shape)):
            self._merge((self.numbers[a], d), (self.numbers[b], d))

    def _find(self, dim: Dim) -> Dim:
        while (above := self._parent.get(dim, dim)) != dim:
            self._parent[dim] = self._parent.get(above, above)
            dim = above
        return dim

    def _merge(self, a: Dim, b: Dim) -> None:
        a, b = self._find(a), self._find(b)
        if a != b and self.sizes[a] == self.sizes[b]:
            self._parent[max(a, b)] = min(a, b)


def _type(value: SSAValue) -> TT:
    try:
        return tt(value)
    except ShapeError as error:
        raise Unfit from error


def resize(module: ModuleOp, wanted: Mapping[Dim, int]) -> None:
    """Give these dims other sizes; the types of all results are inferred anew. `Unfit` where an op refuses them."""
    types: dict[SSAValue, TT] = {}
    for i, value in enumerate(values(module)):
        type = _type(value)
        types[value] = TT(tuple(wanted.get((i, d), n) for d, n in enumerate(type.shape)), type.dtype)
    try:
        for block in _blocks(module):
            _resize_block(block, types)
    except ShapeError as error:
        raise Unfit from error
    for op in module.body.block.ops:
        if isinstance(op, FuncOp) and isinstance(last := op.body.block.last_op, ReturnOp):
            op.function_type = FunctionType.from_lists(
                [x.type for x in op.body.block.args], [x.type for x in last.operands]
            )


def _blocks(module: ModuleOp) -> Iterator[Block]:
    for op in module.body.block.ops:
        if not isinstance(op, FuncOp | RecipeOp) or len(op.regions[0].blocks) != 1:
            raise Unfit
        yield op.regions[0].block


def _resize_block(block: Block, types: Mapping[SSAValue, TT]) -> None:
    for value in list(block.args):
        fresh = block.insert_arg(ir_type(types[value]), value.index, value.location)
        fresh.name_hint = value.name_hint
        value.replace_all_uses_with(fresh)
        block.erase_arg(value)
    for op in list(block.ops):
        if isinstance(op, ReturnOp | YieldOp):
            continue
        new = _resized(op, [types[x] for x in op.results])
        block.insert_op_before(new, op)
        for old, value in zip(op.results, new.results, strict=True):
            value.name_hint = old.name_hint
            old.replace_all_uses_with(value)
        op.detach()
        op.drop_all_references()


def _resized(op: Operation, results: Sequence[TT]) -> Operation:
    """An op on its operands as they are now, with these results where they do not follow from those."""
    if isinstance(op, WeightOp):
        return weight(op.key.data, results[0], op.location)
    if isinstance(op, ConstantOp):
        return constant(_literal(op.value, results[0]), op.location)
    if isinstance(op, CallOp):
        call = CallOp(op.callee, list(op.operands), [ir_type(x) for x in results])
        call.location = op.location
        return call
    if not isinstance(op, TensorOp) or op.regions:
        raise Unfit
    attrs, operands = op.attrs(), [tt(x) for x in op.operands]
    given = {name: attrs[name] for name in op.properties}
    adapted = shapes.block_attrs(op.name, attrs, operands, results)
    fitted = {name: adapted.get(name, value) for name, value in given.items()}
    match op.name:
        case "tensor.reshape":
            fitted["shape"] = _of_size(fitted["shape"], operands[0].elements)
        case "tensor.slice":
            sizes = operands[0].shape
            fitted["stops"] = tuple(map(min, fitted["stops"], sizes))
            fitted["starts"] = tuple(min(start, n - 1) for start, n in zip(fitted["starts"], sizes, strict=True))
        case "tensor.split":
            fitted["sizes"] = _parts(fitted["sizes"], operands[0].shape[int(attrs["axis"])])
        case _:
            pass
    try:
        return create(op.name, op.operands, fitted, op.location)
    except ShapeError:
        return create(op.name, op.operands, given, op.location)


def _of_size(shape: Sequence[int], elements: int) -> tuple[int, ...]:
    """A shape of so many elements that differs from the given one in one dim at most."""
    whole = TT(tuple(shape), "f32").elements
    if whole == elements:
        return tuple(shape)
    for d, n in enumerate(shape):
        rest = whole // n if n else 0
        if rest and elements % rest == 0:
            return (*shape[:d], elements // rest, *shape[d + 1 :])
    raise ShapeError(f"no dim of {list(shape)} makes it {elements} elements")


def _parts(sizes: Sequence[int], whole: int) -> tuple[int, ...]:
    """The sizes of as many parts of a dim that has another size now."""
    over = sum(sizes) - whole
    found = list(sizes)
    for i, size in enumerate(sizes):
        less = min(max(over, 0), size - 1)
        found[i], over = size - less, over - less
    if over:
        raise ShapeError(f"no {len(sizes)} parts of {whole}")
    return tuple(found)


def _literal(old: LiteralAttr, type: TT) -> LiteralAttr:
    """The elements of a constant that a smaller one has too."""
    if old.is_splat:
        return LiteralAttr(ir_type(type), old.data)
    array: Any = old.array()
    return LiteralAttr.of(type, array[tuple(slice(n) for n in type.shape)].tobytes())
