"""Makes one random program: values that steps may use, the function or recipe that ops go into, and a way to run it."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple, TypeVar

import numpy as np
from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Block, Operation, Region, SSAValue

from headrace.dialects.support.dtypes import BITS, FLOATS, STORED, from_numpy, to_numpy
from headrace.dialects.support.locations import named
from headrace.dialects.support.weights import WeightStore
from headrace.dialects.tensor.base import attributes_of, create, ir_type, tt
from headrace.dialects.tensor.shapes import TT, ShapeError
from headrace.dialects.tensor.storage import ConstantOp, WeightOp, YieldOp, constant, recipe, weight
from headrace.tools.fuzz.nearby import Array, Declined, Nearby, Value, sample

T = TypeVar("T")
DTYPES = tuple(BITS)
INTS = tuple(dtype for dtype in DTYPES if dtype not in (*FLOATS, *STORED, "i1"))
GROUPS = {
    "float": FLOATS,
    "int": INTS,
    "signed": (*FLOATS, *(dtype for dtype in INTS if not dtype.startswith("ui"))),
    "number": (*FLOATS, *INTS),
    "bits": (*INTS, "i1"),
    "any": DTYPES,
    **{dtype: (dtype,) for dtype in DTYPES},
}
"""Element types by what an op takes."""


class Program(NamedTuple):
    """A program, arrays for its inputs by name, and its weights."""

    module: ModuleOp
    inputs: dict[str, Array]
    store: WeightStore


@dataclass(frozen=True)
class Size:
    """How large the values of a program are."""

    dims: tuple[int, ...]
    """What the sizes of dims are drawn from."""
    most: int
    """Elements of a value."""


SIZES = {
    "small": Size((1, 2, 3, 4, 4, 6, 8, 8, 12), 2048),
    "medium": Size((1, 3, 8, 16, 17, 24, 32, 64), 1 << 14),
    "large": Size((1, 5, 32, 64, 96, 130, 256), 1 << 17),
}


@dataclass
class Scope:
    """What ops go into: the main function, another function, or a recipe. `values` are those that steps may use."""

    kind: str
    block: Block = field(default_factory=Block)
    values: list[SSAValue] = field(default_factory=list[SSAValue])
    passed: list[Array | None] = field(default_factory=list["Array | None"])
    """For each argument of a function, what its first call passes if that is not a value of the caller."""


@dataclass
class Maker:
    """The program so far. Steps choose values with `pick` and add ops with `op`."""

    random: random.Random
    dtype: str
    """What most values are made of."""
    dtypes: tuple[str, ...]
    size: Size
    empty: bool
    """Whether dims may have no elements."""
    nearby: Nearby
    scope: Scope = field(default_factory=lambda: Scope("main"))
    outer: list[Scope] = field(default_factory=list[Scope])
    store: WeightStore = field(default_factory=WeightStore)
    module: list[Operation] = field(default_factory=list[Operation])
    """Functions and recipes beside the main function."""
    known: dict[SSAValue, Value] = field(default_factory=dict[SSAValue, Value])
    derived: dict[str, Value] = field(default_factory=dict[str, Value])
    """Values of recipes by key."""
    prefix: str = ""
    count: int = 0

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.random.getrandbits(32))

    # Making ops

    def op(self, name: str, *operands: SSAValue | float, **attrs: Any) -> SSAValue:
        """The first result of a new op; numbers stand for scalar constants of the other operand's type."""
        return self.ops(name, *operands, **attrs)[0]

    def ops(self, name: str, *operands: SSAValue | float, **attrs: Any) -> Sequence[SSAValue]:
        """The results of a new op; `Declined` when it does not fit or depends on roundings."""
        dtype = next((self.array(x).dtype for x in operands if isinstance(x, SSAValue)), to_numpy(self.dtype))
        values = [x if isinstance(x, SSAValue) else self.constant(np.asarray(x, dtype)) for x in operands]
        self.count += 1
        location = named(f"{self.prefix}/{name}_{self.count}")
        try:
            op = create(f"tensor.{name}", values, attrs, location)
        except ShapeError as error:
            raise Declined(str(error)) from None
        try:
            if not self.empty and any(not tt(x).elements for x in op.results):
                raise Declined("no elements")
            found = self.nearby.evaluate(op.name, attributes_of(op), [self.known[x] for x in values])
        except Declined:
            op.erase()
            raise
        self.scope.block.add_op(op)
        self.known.update(zip(op.results, found, strict=True))
        return op.results

    def constant(self, array: Array) -> SSAValue:
        """A constant in the program."""
        return self._leaf(constant(array, named(f"{self.prefix}/constant")), self.nearby.leaf(array))

    def weight(self, shape: Sequence[int], scale: float = 1.0, around: float = 0.0, dtype: str = "") -> SSAValue:
        """A weight of that shape: one of the store, one derived by a recipe, or a function's argument."""
        array = self.sample(shape, dtype or self.dtype, scale)
        if around:
            array = np.asarray(array + np.asarray(around, array.dtype), array.dtype)
        if self.scope.kind == "function" and self.random.random() < 0.6:
            return self._argument(array)
        if self.scope.kind != "recipe" and array.ndim and self.random.random() < 0.15:
            return self._derived(array)
        return self.stored(array)

    def stored(self, array: Array) -> SSAValue:
        """A weight of the store with these elements."""
        key = f"{self.prefix.strip('/').replace('/', '.')}.w{len(self.store)}".lstrip(".")
        if self.random.random() < 0.05:
            key += self.random.choice((" of a", "|x", '"', "/é"))
        self.store.add_array(key, array)
        return self._weight(key, self.nearby.leaf(array))

    def _derived(self, array: Array) -> SSAValue:
        """A weight with these elements that a recipe moves out of another one."""
        with self.inside("recipe") as scope:
            perm = list(range(array.ndim))
            self.random.shuffle(perm)
            kept = np.ascontiguousarray(np.transpose(array, np.argsort(perm)))
            moved = self.op("transpose", self.stored(kept), perm=tuple(perm))
        return self.recipe(scope, moved)

    def recipe(self, scope: Scope, value: SSAValue) -> SSAValue:
        """The weight that a recipe gives which yields `value` of `scope`."""
        ops = [op for op in scope.block.ops if isinstance(op, WeightOp)]
        key = f"{ops[0].key.data if ops else ''}|{self.count}"
        self.count += 1
        last = YieldOp.create(operands=[value])
        scope.block.add_op(last)
        erase_dead(scope.block)
        last.detach()
        last.erase()
        found = self.known[value]
        body = list(scope.block.ops)
        for op in body:
            op.detach()
        self.module.append(recipe(key, body, value, named(key)))
        self.derived[key] = found
        return self._weight(key, found)

    def again(self, key: str) -> SSAValue:
        """Another use of a weight."""
        found = self.derived.get(key)
        if found is None:
            array = self.store.array(key)
            found = self.nearby.leaf(array)
        return self._weight(key, found)

    def _weight(self, key: str, value: Value) -> SSAValue:
        return self._leaf(weight(key, _type(value.array), named(key)), value)

    def _leaf(self, op: ConstantOp | WeightOp, value: Value) -> SSAValue:
        self.scope.block.add_op(op)
        self.known[op.result] = value
        return op.result

    def argument(self, array: Array) -> SSAValue:
        """An input of the program, or of the function that is made."""
        if self.scope.kind == "recipe":
            raise Declined("a recipe takes no arguments")
        return self._argument(array)

    def _argument(self, array: Array, of: SSAValue | None = None) -> SSAValue:
        block = self.scope.block
        value = block.insert_arg(ir_type(_type(array)), len(block.args))
        value.location = named(f"x{value.index}")
        self.known[value] = self.known[of] if of is not None else self.nearby.leaf(array)
        self.scope.passed.append(None if of is not None else array)
        return value

    # Functions and recipes

    @contextmanager
    def inside(self, kind: str) -> Generator[Scope]:
        """Steps go into a new function or recipe for a while."""
        self.outer.append(self.scope)
        self.scope = Scope(kind)
        try:
            yield self.scope
        finally:
            self.scope = self.outer.pop()

    def parameter(self, of: SSAValue) -> SSAValue:
        """The argument of the function that is made for a value of its caller."""
        value = self._argument(self.array(of), of)
        self.scope.values.append(value)
        return value

    def function(self, scope: Scope, results: Sequence[SSAValue]) -> FuncOp:
        """A private function of what is in `scope`."""
        last = ReturnOp(*results)
        last.location = named("return")
        scope.block.add_op(last)
        erase_dead(scope.block)
        name = f"layer{sum(isinstance(op, FuncOp) for op in self.module)}"
        types = [x.type for x in scope.block.args], [x.type for x in results]
        func = FuncOp(name, types, Region(scope.block), "private")
        func.location = named(name)
        self.module.append(func)
        return func

    def call(self, func: FuncOp, operands: Sequence[SSAValue]) -> Sequence[SSAValue]:
        """The results of a call; `Declined` when an op in the function does not fit these operands."""
        found = self.replay(func.body.block, [self.known[x] for x in operands])
        self.count += 1
        op = CallOp(func.sym_name.data, list(operands), list(func.function_type.outputs))
        op.location = named(f"{self.prefix}/call_{self.count}")
        self.scope.block.add_op(op)
        self.known.update(zip(op.results, found, strict=True))
        return op.results

    def replay(self, block: Block, arguments: Sequence[Value]) -> list[Value]:
        """What a block returns for other arguments; `Declined` when one of its ops does not fit them."""
        known: dict[SSAValue, Value] = dict(zip(block.args, arguments, strict=True))
        functions = {op.sym_name.data: op for op in self.module if isinstance(op, FuncOp)}
        for op in block.ops:
            operands = [known[x] for x in op.operands]
            match op:
                case ReturnOp():
                    return operands
                case CallOp():
                    found = self.replay(functions[op.callee.string_value()].body.block, operands)
                case WeightOp() | ConstantOp():
                    found = [self.known[op.result]]
                case _:
                    found = self.nearby.evaluate(op.name, attributes_of(op), operands)
            known.update(zip(op.results, found, strict=True))
        raise AssertionError("a block ends in a return")

    # Choosing

    def array(self, value: SSAValue) -> Array:
        """The elements of a value."""
        return self.known[value].array

    def shape(self, value: SSAValue) -> tuple[int, ...]:
        """The shape of a value."""
        return self.array(value).shape

    def dtype_of(self, value: SSAValue) -> str:
        """The element type of a value."""
        return from_numpy(self.array(value).dtype)

    def pick(self, fits: Callable[[tuple[int, ...]], bool] = lambda shape: True, of: str = "float") -> SSAValue:
        """A value of the element types `of` (a key of `GROUPS`) whose shape fits; later ones are likelier."""
        wanted = GROUPS[of]
        found = [x for x in self.scope.values if self.dtype_of(x) in wanted and fits(self.shape(x))]
        if not found:
            raise Declined("no value fits")
        return found[max(self.random.randrange(len(found)), self.random.randrange(len(found)))]

    def chance(self, probability: float) -> bool:
        """True as often as that."""
        return self.random.random() < probability

    def choose(self, *options: T) -> T:
        """One of the options."""
        return self.random.choice(options)

    def axis(self, value: SSAValue) -> int:
        """One of the dims of a value, counted from the front."""
        return self.random.randrange(len(self.shape(value)))

    def signed_axis(self, value: SSAValue) -> int:
        """One of the dims of a value, counted from the front or the back."""
        return self.axis(value) - (len(self.shape(value)) if self.chance(0.3) else 0)

    def dim(self) -> int:
        """A size of a dim."""
        return 0 if self.empty and self.chance(0.1) else self.random.choice(self.size.dims)

    def new_shape(self, ranks: Sequence[int] = (0, 1, 1, 2, 2, 2, 3, 3, 4, 4, 5, 6)) -> tuple[int, ...]:
        """A shape of few enough elements."""
        shape = [self.dim() for _ in range(self.random.choice(ranks))]
        while prod(shape) > self.size.most // 2:
            shape[shape.index(max(shape))] = self.random.choice((1, 2, 3))
        return tuple(shape)

    def sample(self, shape: Sequence[int], dtype: str = "", scale: float = 1.0) -> Array:
        """Random elements."""
        return sample(self.rng, shape, dtype or self.dtype, scale, self.nearby.wild and self.chance(0.5))

    def indices(self, shape: Sequence[int], size: int | Array, counted_back: bool = False) -> Array:
        """Positions below `size` (one, or one per element of the last dim) as i32 or i64, some counted from the end."""
        if np.any(np.asarray(size) < 1) and prod(shape):
            raise Declined("nothing to index")
        low = -np.asarray(size) if counted_back and self.chance(0.3) else 0
        found = self.rng.integers(low, np.maximum(size, 1), tuple(shape))
        return np.asarray(found, self.choose(np.int64, np.int64, np.int32))

    def given(self, array: Array) -> SSAValue:
        """A value with these elements: an argument, a constant or a weight."""
        kind = self.choose("argument", "argument", "constant", "weight")
        if kind == "argument" and self.scope.kind != "recipe":
            return self._argument(array)
        return self.constant(array) if kind == "constant" and array.size <= 256 else self.stored(array)


def erase_dead(block: Block) -> None:
    """Erase the ops whose results nobody uses."""
    for op in reversed(list(block.ops)):
        if op.results and all(x.first_use is None for x in op.results):
            block.erase_op(op)


def set_results(func: FuncOp, results: Sequence[SSAValue]) -> None:
    """Make a function return other values."""
    last = func.body.block.last_op
    assert isinstance(last, ReturnOp)
    last.operands = list(results)
    func.function_type = FunctionType.from_lists([x.type for x in func.body.block.args], [x.type for x in results])


def functions(module: ModuleOp) -> Iterator[FuncOp]:
    """The functions of a module."""
    return (op for op in module.body.block.ops if isinstance(op, FuncOp))


def _type(array: Array) -> TT:
    return TT(array.shape, from_numpy(array.dtype))
