"""What importers build programs of: values of a model's graph, and the ways to make tensor ops of them.

A `Value` is a tensor of the model. It may be an SSA value, a parameter whose bytes are still where the model has them,
or an array known while importing. What shapes, axes and indices are made of (arithmetic on shapes, ranges, constants)
is computed here, on arrays, by the meanings of the same tensor ops; everything else becomes ops of the program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from xdsl.ir import Block, Operation, SSAValue

from headrace.dialects.support import dtypes
from headrace.dialects.support.diagnostics import CompileError
from headrace.dialects.support.locations import Location, text
from headrace.dialects.support.weights import WeightStore
from headrace.dialects.tensor import op_class, shapes, storage
from headrace.dialects.tensor.base import create, from_attribute, tt
from headrace.dialects.tensor.shapes import TT, ShapeError

if TYPE_CHECKING:
    import numpy as np

    from headrace.frontends.random import Generator

    Array = np.ndarray[Any, np.dtype[Any]]

INLINE = 64  # elements of a float constant of the graph in the IR
INLINE_INITIALIZER = 1  # of a float initializer: one that has more is a parameter, and changing it changes no program
INLINE_INTEGERS = 1024  # elements of a constant used as shape, axes or indices
HOST_LIMIT = 1 << 16  # elements that an importer computes with
HOST_DEPTH = 64  # ops between a value known while importing and the constants it is made of


class Refused(Exception):
    """This node cannot be imported: why, and what the user can do."""

    def __init__(self, why: str, fix: str = "", code: str = "unsupported-op") -> None:
        super().__init__(why)
        self.why, self.fix, self.code = why, fix, code


@dataclass(frozen=True, slots=True)
class TensorRef:
    """A tensor of the model: `load` gives a read-only array, or is None when a shape-only import has no bytes."""

    name: str
    type: TT
    load: Callable[[], Array] | None


@dataclass(frozen=True, slots=True)
class Source:
    """Result `index` of an op on known operands, `depth` ops away from their constants: not built, not computed yet."""

    name: str
    attrs: Mapping[str, Any]
    operands: tuple[Value, ...]
    index: int
    depth: int


@dataclass(eq=False, slots=True)
class Value:
    """A tensor of the model.

    At least one of these says where it comes from: `ssa` (made by an op or an argument), `array` (known), `ref` (bytes
    in a file), `source` (an op on known operands: computed when a shape needs it, built when the program does). A
    `parameter` is an initializer of the model.
    """

    name: str
    type: TT
    location: Location
    ssa: SSAValue | None = None
    array: Array | None = None
    ref: TensorRef | None = None
    source: Source | None = None
    parameter: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """Its static shape."""
        return self.type.shape

    @property
    def dtype(self) -> str:
        """The name of its element type."""
        return self.type.dtype

    @property
    def rank(self) -> int:
        """Number of dims."""
        return len(self.type.shape)

    @property
    def known(self) -> bool:
        """Whether its array can be had while importing."""
        if self.array is not None or self.source is not None:
            return True
        return self.ref is not None and self.ref.load is not None and self.type.elements <= HOST_LIMIT


def located(error: CompileError, location: str) -> CompileError:
    """The error with `location` on each diagnostic that has none."""
    return CompileError.many(d if d.location else replace(d, location=location) for d in error.diagnostics)


@dataclass(slots=True)
class Builder:
    """Builds the body of the program."""

    block: Block
    store: WeightStore
    generator: Generator | None = None
    """Draws random numbers, where the importer threads its state."""
    _defaults: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])

    def plain(self, name: str, attrs: Mapping[str, Any]) -> dict[str, Any]:
        """Attributes of an op with its defaults filled in."""
        found = self._defaults.get(name)
        if found is None:
            found = {}
            for key, definition in op_class(name).get_irdl_definition().properties.items():
                default = getattr(definition, "default_value", None)
                if default is not None:
                    found[key] = from_attribute(default)
            self._defaults[name] = found
        return {**found, **attrs}

    def emit(
        self, name: str, operands: Sequence[Value], attrs: Mapping[str, Any], location: Location, value_name: str
    ) -> tuple[Value, ...]:
        """The results of a tensor op. One on known operands is put off until its elements or its op are needed."""
        unknown = [x for x in operands if not x.known]
        if not unknown:
            found = self._put_off(name, operands, self.plain(name, attrs), location, value_name)
            if found is not None:
                return found
        op = self._create(name, operands, attrs, location)
        self.block.add_op(op)
        return tuple([Value(value_name, tt(r), location, r) for r in op.results])

    def _put_off(
        self, name: str, operands: Sequence[Value], attrs: Mapping[str, Any], location: Location, value_name: str
    ) -> tuple[Value, ...] | None:
        depth = 1 + max((x.source.depth for x in operands if x.source is not None), default=0)
        types = shapes.infer(name, attrs, [x.type for x in operands])
        if depth > HOST_DEPTH or any(t.elements > HOST_LIMIT for t in types):
            return None
        sources = [Source(name, attrs, tuple(operands), index, depth) for index in range(len(types))]
        return tuple(Value(value_name, t, location, source=s) for t, s in zip(types, sources, strict=True))

    def array(self, value: Value) -> Array | None:
        """The elements of a value known while importing, or None."""
        if value.array is None:
            if value.source is not None:
                value.array = self._evaluate(value.source, value.location)
            elif value.known and value.ref is not None and value.ref.load is not None:
                value.array = value.ref.load()
        return value.array

    def _evaluate(self, source: Source, location: Location) -> Array | None:
        import numpy as np

        from headrace.dialects.tensor.meaning import evaluate

        arrays = [a for x in source.operands if (a := self.array(x)) is not None]
        if len(arrays) < len(source.operands):
            return None
        with np.errstate(all="ignore"):
            try:
                return np.asarray(evaluate(source.name, source.attrs, *arrays)[source.index])
            except CompileError as error:
                raise located(error, text(location)) from None
            except (IndexError, ValueError) as error:
                raise CompileError(
                    "bad-constant", f"constants give no value: {error}", location=text(location)
                ) from None

    def ssa(self, value: Value) -> SSAValue:
        """The SSA value of a value; makes the constant, weight or op that gives it on first use."""
        if value.ssa is None:
            value.ssa = self._materialise(value)
        return value.ssa

    def _materialise(self, value: Value) -> SSAValue:
        integers = not dtypes.is_float(value.dtype)
        most = INLINE_INTEGERS if integers else INLINE_INITIALIZER if value.parameter else INLINE
        if value.type.elements <= most and (integers or value.source is None):
            array = self.array(value)
            if array is not None:
                return self._add(storage.constant(array, value.location))
        if value.source is not None:
            source = value.source
            op = self._create(source.name, source.operands, source.attrs, value.location)
            return self._add(op, source.index)
        if value.ref is not None:
            if value.name not in self.store:
                self.store.add(value.name, value.shape, value.dtype, value.ref.load)
        else:
            assert value.array is not None
            while value.name in self.store:  # names of different branches
                value.name += "'"
            self.store.add_array(value.name, value.array)
        return self._add(storage.weight(value.name, value.type, value.location))

    def _create(self, name: str, operands: Sequence[Value], attrs: Mapping[str, Any], location: Location) -> Operation:
        given = [self.ssa(x) for x in operands]
        try:
            return create(name, given, attrs, location)
        except (ValueError, OverflowError) as error:  # a size beyond 64 bits
            raise ShapeError(str(error)) from None

    def _add(self, op: Operation, result: int = 0) -> SSAValue:
        self.block.add_op(op)
        return op.results[result]


class Site:
    """Where ops are made: for one node of a model, at its location. `made` lists the tensor ops that it became."""

    __slots__ = ("_constants", "builder", "label", "location", "made")

    def __init__(self, builder: Builder, location: Location, label: str) -> None:
        self.builder = builder
        self.location = location
        self.label = label
        self.made: list[str] = []
        self._constants = 0

    def op(self, name: str, *operands: Value | float, **attrs: Any) -> Value:
        """The result of tensor op `name` (without `tensor.`). A number stands for a scalar of the element type of the
        last operand that is a tensor."""
        return self.ops(name, *operands, **attrs)[0]

    def ops(self, name: str, *operands: Value | float, **attrs: Any) -> tuple[Value, ...]:
        """All results of tensor op `name`."""
        self.made.append(name)
        given = [x.dtype for x in operands if isinstance(x, Value)]
        values = [x if isinstance(x, Value) else self.scalar(x, given[-1]) for x in operands]
        return self.builder.emit(f"tensor.{name}", values, attrs, self.location, self.label)

    def constant(self, array: Array) -> Value:
        """A value known while importing."""
        self._constants += 1
        name = f"{self.label}.constant{self._constants}"
        return Value(name, TT(tuple(array.shape), dtypes.from_numpy(array.dtype)), self.location, array=array)

    def scalar(self, x: float | bool, dtype: str) -> Value:
        """A scalar of element type `dtype`."""
        import numpy as np

        try:
            return self.constant(np.array(x, dtypes.to_numpy(dtype)))
        except (OverflowError, ValueError):
            raise Refused(f"{x} is not a number of {dtype}", code="bad-node") from None

    def int64s(self, values: Sequence[int]) -> Value:
        """A vector of i64."""
        import numpy as np

        return self.constant(np.array(values, np.int64))

    def cast(self, value: Value, dtype: str) -> Value:
        """The value in another element type; itself when it has it."""
        return value if value.dtype == dtype else self.op("cast", value, to=dtype)

    def reshape(self, value: Value, shape: Sequence[int]) -> Value:
        """The value under another shape; itself when it has it."""
        return value if value.shape == tuple(shape) else self.op("reshape", value, shape=tuple(shape))

    def broadcast(self, value: Value, shape: Sequence[int]) -> Value:
        """The value repeated to a shape; itself when it has it."""
        return value if value.shape == tuple(shape) else self.op("broadcast", value, shape=tuple(shape))

    def transpose(self, value: Value, perm: Sequence[int]) -> Value:
        """The value with its dims in another order; itself when they are in it."""
        perm = tuple(perm)
        return value if perm == tuple(range(value.rank)) else self.op("transpose", value, perm=perm)

    def slice(self, value: Value, axis: int, start: int, stop: int, step: int = 1) -> Value:
        """Indices start, start+step, … before stop of one dim (counted from the front)."""
        starts, stops, steps = [0] * value.rank, list(value.shape), [1] * value.rank
        starts[axis], stops[axis], steps[axis] = start, stop, step
        return self.op("slice", value, starts=tuple(starts), stops=tuple(stops), steps=tuple(steps))
