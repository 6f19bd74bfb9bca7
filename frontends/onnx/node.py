"""What an op's conversion sees: values of the graph, one node with its attributes, and the ways to build tensor ops.

A `Value` is a tensor of the model. It may be an SSA value, an initializer whose bytes are still in the file, or an
array known while importing. What shapes, axes and indices are made of (`Shape`, `Gather` of a shape, `Concat`, `Range`
…) is computed here, on arrays, by the meanings of the same tensor ops; everything else becomes ops of the program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from xdsl.ir import Block, Operation, SSAValue

from headrace.dialects.support import dtypes
from headrace.dialects.support.diagnostics import CompileError
from headrace.dialects.support.locations import Location, named, text
from headrace.dialects.support.weights import WeightStore
from headrace.dialects.tensor import op_class, shapes, storage
from headrace.dialects.tensor.base import create, from_attribute, tt
from headrace.dialects.tensor.shapes import TT, ShapeError
from headrace.frontends.onnx.tensors import NO_FILES, TensorRef, dtype_of, tensor_ref

if TYPE_CHECKING:
    import numpy as np

    from headrace.frontends.onnx.graph import NodeSpec

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


FLOAT, INT, STRING, TENSOR, GRAPH, FLOATS, INTS = 1, 2, 3, 4, 5, 6, 7  # AttributeProto.AttributeType


REQUIRED: Any = object()

# Attributes about precision, rounding to types that Headrace lacks, or training.
MEANINGLESS = ("stash_type", "saturate", "round_mode", "storage_order", "seed", "momentum", "chunk_size")


class Node:
    """One node of the model: its operands and attributes, and the ways to build what it means.

    `made` lists the tensor ops it became.
    """

    __slots__ = ("_attributes", "_constants", "_read", "builder", "inputs", "location", "made", "name", "op_type",
                 "opset", "outputs")  # fmt: skip

    def __init__(self, builder: Builder, spec: NodeSpec, opset: int, inputs: tuple[Value | None, ...]) -> None:
        self.builder = builder
        self.op_type = spec.kind
        self.name = spec.name
        self.location = named(spec.name)
        self.opset = opset
        self.inputs = inputs
        self.outputs = spec.outputs
        self.made: list[str] = []
        self._attributes: Mapping[str, Any] = spec.attributes
        self._read: set[str] = set()
        self._constants = 0

    # Operands

    def __getitem__(self, index: int) -> Value:
        """A required operand."""
        value = self.get(index)
        if value is None:
            raise Refused(f"operand {index} is missing", code="bad-node")
        return value

    def get(self, index: int) -> Value | None:
        """An optional operand: None when left out."""
        return self.inputs[index] if index < len(self.inputs) else None

    @property
    def operands(self) -> tuple[Value, ...]:
        """All operands of an op that takes any number of them."""
        if not self.inputs:
            raise Refused("it has no operands", code="bad-node")
        return tuple(self[i] for i in range(len(self.inputs)))

    def array(self, value: Value, what: str) -> Array:
        """The elements of an operand that must be known while importing."""
        array = self.builder.array(value)
        if array is None:
            raise Refused(
                f"its {what} is computed when the model runs",
                "shapes are static in Headrace: export the model with fixed shapes, or bind its dims with --dim",
                code="dynamic-shape",
            )
        return array

    def ints(self, value: Value, what: str) -> tuple[int, ...]:
        """The elements of an integer operand that must be known while importing (a shape, axes, pads …)."""
        if dtypes.is_float(value.dtype):
            raise Refused(f"its {what} is a {value.dtype} tensor, not integers", code="bad-node")
        return tuple(map(int, self.array(value, what).reshape(-1).tolist()))

    def one_int(self, value: Value, what: str) -> int:
        """The only element of an integer operand that must be known while importing."""
        found = self.ints(value, what)
        if len(found) != 1:
            raise Refused(f"its {what} has {len(found)} elements, not 1", code="bad-node")
        return found[0]

    def one(self, value: Value, what: str) -> Any:
        """The only element of an operand that must be known while importing, as a plain Python value."""
        array = self.array(value, what)
        if array.size != 1:
            raise Refused(f"its {what} has {array.size} elements, not 1", code="bad-node")
        return array.reshape(-1)[0].item()

    # Attributes

    def has(self, name: str) -> bool:
        """Whether the node has an attribute."""
        self._read.add(name)
        return name in self._attributes

    def ignore(self, *names: str) -> None:
        """Attributes that mean nothing for what is built."""
        self._read.update(names)

    def unread(self) -> list[str]:
        """Attributes that nobody asked for: their meaning would be lost."""
        return [name for name in self._attributes if name not in self._read and name not in MEANINGLESS]

    def _attribute(self, name: str, kind: int, field: str, default: Any) -> Any:
        self._read.add(name)
        proto = self._attributes.get(name)
        if proto is None:
            if default is REQUIRED:
                raise Refused(f"attribute {name} is missing", code="bad-node")
            return default
        if proto.type != kind:
            raise Refused(f"attribute {name} has the wrong type", code="bad-node")
        return getattr(proto, field)

    def int(self, name: str, default: Any = REQUIRED) -> Any:
        """An integer attribute."""
        return self._attribute(name, INT, "i", default)

    def float(self, name: str, default: Any = REQUIRED) -> Any:
        """A float attribute."""
        return self._attribute(name, FLOAT, "f", default)

    def flag(self, name: str, default: bool = False) -> bool:
        """An integer attribute that means yes or no."""
        return bool(self._attribute(name, INT, "i", default))

    def string(self, name: str, default: Any = REQUIRED) -> Any:
        """A string attribute."""
        found = self._attribute(name, STRING, "s", default)
        return found.decode("utf-8", "replace") if isinstance(found, bytes) else found

    def int_list(self, name: str, default: Any = REQUIRED) -> Any:
        """An attribute that lists integers, as a tuple."""
        found = self._attribute(name, INTS, "ints", default)
        return found if found is None else tuple(found)

    def float_list(self, name: str, default: Any = REQUIRED) -> Any:
        """An attribute that lists floats, as a tuple."""
        found = self._attribute(name, FLOATS, "floats", default)
        return found if found is None else tuple(found)

    def tensor(self, name: str) -> TensorRef:
        """A tensor attribute."""
        proto = self._attribute(name, TENSOR, "t", REQUIRED)
        return tensor_ref(proto, None, NO_FILES)

    def graph(self, name: str) -> Any:
        """A graph attribute."""
        return self._attribute(name, GRAPH, "g", REQUIRED)

    def dtype(self, data_type: int) -> str:
        """The dtype name of an ONNX element type number."""
        return dtype_of(data_type, f"{self.op_type} '{self.name}'", self.name)

    def axis(self, axis: int, rank: int) -> int:
        """An axis counted from the front."""
        if not -rank <= axis < rank:
            raise Refused(f"axis {axis} is out of range for {rank} dims", code="bad-node")
        return axis % rank

    # Building

    def op(self, name: str, *operands: Value, **attrs: Any) -> Value:
        """The result of tensor op `name` (without `tensor.`)."""
        return self.ops(name, *operands, **attrs)[0]

    def ops(self, name: str, *operands: Value, **attrs: Any) -> tuple[Value, ...]:
        """All results of tensor op `name`."""
        self.made.append(name)
        return self.builder.emit(f"tensor.{name}", operands, attrs, self.location, self.outputs[0])

    def constant(self, array: Array) -> Value:
        """A value known while importing."""
        self._constants += 1
        name = f"{self.outputs[0]}.constant{self._constants}"
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
