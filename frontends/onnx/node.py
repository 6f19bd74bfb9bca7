"""What an op's conversion sees: one node with its operands and attributes, and the ways to build tensor ops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace.dialects.support import dtypes
from headrace.dialects.support.locations import named
from headrace.frontends.building import Builder, Refused, Site, Value
from headrace.frontends.onnx.tensors import NO_FILES, TensorRef, dtype_of, tensor_ref

if TYPE_CHECKING:
    import numpy as np

    from headrace.frontends.onnx.graph import NodeSpec

    Array = np.ndarray[Any, np.dtype[Any]]

FLOAT, INT, STRING, TENSOR, GRAPH, FLOATS, INTS = 1, 2, 3, 4, 5, 6, 7  # AttributeProto.AttributeType


REQUIRED: Any = object()

# Attributes about precision, rounding to types that Headrace lacks, or training.
MEANINGLESS = ("stash_type", "saturate", "round_mode", "storage_order", "seed", "momentum", "chunk_size")


class Node(Site):
    """One node of the model: its operands and attributes, and the ways to build what it means."""

    __slots__ = ("_attributes", "_read", "inputs", "name", "op_type", "opset", "outputs")

    def __init__(self, builder: Builder, spec: NodeSpec, opset: int, inputs: tuple[Value | None, ...]) -> None:
        super().__init__(builder, named(spec.name), spec.outputs[0] if spec.outputs else spec.name)
        self.op_type = spec.kind
        self.name = spec.name
        self.opset = opset
        self.inputs = inputs
        self.outputs = spec.outputs
        self._attributes: Mapping[str, Any] = spec.attributes
        self._read: set[str] = set()

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
