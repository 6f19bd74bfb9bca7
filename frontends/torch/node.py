"""What an op's conversion sees: one node of the graph with its arguments by name, and the ways to build tensor ops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from headrace.dialects.support import dtypes
from headrace.dialects.support.locations import Location
from headrace.dialects.tensor.shapes import TT
from headrace.frontends.building import Builder, Refused, Site, Value

if TYPE_CHECKING:
    import torch

DTYPES = {
    "float32": "f32",
    "float64": "f64",
    "float16": "f16",
    "bfloat16": "bf16",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "ui8",
    "uint16": "ui16",
    "uint32": "ui32",
    "uint64": "ui64",
    "bool": "i1",
}
COMPLEX = {"complex64": "f32", "complex128": "f64"}
"""Element types of the parts of complex numbers."""
REQUIRED: Any = object()


@dataclass(frozen=True, slots=True)
class Complex:
    """A tensor of complex numbers within a program: its real and its imaginary part. No element type is complex."""

    real: Value
    imaginary: Value

    @property
    def type(self) -> TT:
        """The type of each part."""
        return self.real.type

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of each part."""
        return self.real.shape

    @property
    def rank(self) -> int:
        """Number of dims."""
        return self.real.rank


def dtype_name(dtype: torch.dtype, *, parts: bool = False) -> str:
    """The element type of a torch dtype, or of the parts of its complex numbers; refused when Headrace has none."""
    name = str(dtype).removeprefix("torch.")
    if parts and name in COMPLEX:
        return COMPLEX[name]
    if name not in DTYPES:
        raise Refused(
            f"element type {name} is not supported",
            "keep real and imaginary parts as real tensors: torch.view_as_real"
            if dtype.is_complex
            else "cast it to one that is: .to(torch.float32)",
            code="unknown-element-type",
        )
    return DTYPES[name]


def type_of(fake: Any, *, parts: bool = False) -> TT:
    """The static type of a (fake) tensor, or of the parts of one of complex numbers; refused when a dim is not
    known."""
    shape: list[int] = []
    for size in fake.shape:
        if not isinstance(size, int):
            if "u" in str(size):  # u0: a size that only the elements say
                raise Refused(
                    "how many elements it gives depends on what they are",
                    "shapes are static: mask instead of selecting, as with torch.where",
                    code="dynamic-shape",
                )
            raise Refused(
                f"a dim of its result is the symbol {size}",
                "shapes are static in Headrace: export without dynamic shapes",
                code="dynamic-shape",
            )
        shape.append(size)
    return TT(tuple(shape), dtype_name(fake.dtype, parts=parts))


def _has_complex(x: Any) -> bool:
    if isinstance(x, Complex):
        return True
    return isinstance(x, list | tuple) and any(isinstance(y, Complex) for y in cast("Sequence[Any]", x))


class Node(Site):
    """One call of the graph. Arguments are those of the op's schema: tensors are `Value`s, the rest plain Python."""

    __slots__ = ("_arguments", "_fakes", "_used", "is_complex", "kind", "name", "results")

    def __init__(
        self,
        builder: Builder,
        kind: str,
        name: str,
        location: Location,
        arguments: Mapping[str, Any],
        fakes: Any,
        given: Mapping[str, Any],
        used: frozenset[int] = frozenset(),
    ) -> None:
        super().__init__(builder, location, name)
        self.kind = kind
        self.name = name
        self._arguments = arguments
        self._fakes = given
        self._used = used
        several = cast("Sequence[Any]", fakes if isinstance(fakes, tuple | list) else (fakes,))
        self.results: tuple[TT | None, ...] = tuple(
            type_of(x, parts=True) if hasattr(x, "shape") and hasattr(x, "dtype") else None for x in several
        )
        """Types of the results (of their parts when complex); None for one that is no tensor."""
        self.is_complex = tuple(str(getattr(x, "dtype", ""))[6:] in COMPLEX for x in several)
        """Whether each result is of complex numbers."""

    @property
    def takes_complex(self) -> bool:
        """Whether an operand or a result is of complex numbers."""
        return any(self.is_complex) or any(_has_complex(x) for x in self._arguments.values())

    def part(self, name: str) -> Node:
        """The same call on the "real" or the "imaginary" parts of its operands."""

        def of(x: Any) -> Any:
            if isinstance(x, list | tuple):
                return [of(y) for y in cast("Sequence[Any]", x)]
            return getattr(x, name) if isinstance(x, Complex) else x

        found = copy(self)
        found._arguments = {key: of(x) for key, x in self._arguments.items()}
        found.is_complex = (False,) * len(self.results)
        return found

    @property
    def stem(self) -> str:
        """The op's name without namespace and overload: `add` of `aten.add.Tensor`."""
        return self.kind.split(".")[1]

    @property
    def type(self) -> TT:
        """The type of the first result."""
        first = self.results[0]
        assert first is not None
        return first

    def replaced(self, **arguments: Any) -> Node:
        """The same call with other arguments."""
        found = copy(self)
        found._arguments = {**self._arguments, **arguments}
        return found

    # Arguments

    def __getitem__(self, name: str) -> Value:
        """A tensor argument."""
        found = self._arguments.get(name)
        if not isinstance(found, Value):
            raise Refused(f"argument '{name}' is no tensor", code="bad-node")
        return found

    def get(self, name: str, default: Any = None) -> Any:
        """An argument as it is: a `Value`, a list of them, or plain Python; `default` when left out."""
        found = self._arguments.get(name, default)
        return default if found is None else found

    def has(self, name: str) -> bool:
        """Whether an argument is given and is not None."""
        return self._arguments.get(name) is not None

    def is_dense(self, name: str) -> bool:
        """Whether PyTorch has a tensor argument's elements in order and alone in its memory."""
        fake = self._fakes[name]
        return bool(fake.is_contiguous()) and fake.storage_offset() == 0

    @property
    def device(self) -> str:
        """Where the first tensor argument is: on the CPU, or on the meta device as the whole program."""
        return next((str(x.device) for x in self._fakes.values() if hasattr(x, "device")), "cpu")

    def tensors(self, name: str) -> tuple[Value, ...]:
        """An argument that is a list of tensors."""
        found = self.get(name, ())
        if not all(isinstance(x, Value) for x in found):
            raise Refused(f"argument '{name}' is no list of tensors", code="bad-node")
        return tuple(found)

    def number(self, name: str, default: Any = REQUIRED) -> Any:
        """A number; a tensor argument that is known while importing counts as its only element."""
        found = self.get(name)
        if found is None:
            if default is REQUIRED:
                raise Refused(f"argument '{name}' is missing", code="bad-node")
            return default
        if isinstance(found, Value):
            array = self.builder.array(found)
            if array is None or array.size != 1:
                raise Refused(f"argument '{name}' is computed when the model runs", code="dynamic-shape")
            return array.reshape(-1)[0].item()
        if not isinstance(found, int | float | bool):
            raise Refused(f"argument '{name}' is {found!r}, not a number", code="bad-node")
        return found

    def ints(self, name: str, default: Any = REQUIRED) -> tuple[int, ...]:
        """A list of integers; one integer counts as a list of one."""
        found = self.get(name)
        if found is None:
            if default is REQUIRED:
                raise Refused(f"argument '{name}' is missing", code="bad-node")
            return default
        found = (found,) if isinstance(found, int) else tuple(found)
        if not all(isinstance(x, int) for x in found):
            raise Refused(f"argument '{name}' is {found!r}, not integers", "shapes are static", code="dynamic-shape")
        return found

    def spread(self, name: str, rank: int, default: Any = REQUIRED) -> tuple[int, ...]:
        """A list of `rank` integers; one stands for all."""
        found = self.ints(name, default)
        return found * rank if len(found) == 1 else found

    def dim(self, name: str, rank: int, default: Any = REQUIRED) -> int:
        """A dim counted from the front; 0-d tensors count as having one."""
        dim = self.number(name, default)
        rank = max(rank, 1)
        if not -rank <= dim < rank:
            raise Refused(f"dim {dim} is out of range for {rank} dims", code="bad-node")
        return dim % rank

    def dims(self, name: str, rank: int) -> tuple[int, ...]:
        """Dims counted from the front, sorted; all when the argument is left out or empty."""
        found = self.ints(name, ())
        return tuple(sorted({d % max(rank, 1) for d in found})) if found else tuple(range(rank))

    def uses(self, result: int) -> bool:
        """Whether the model uses a result of several."""
        return result in self._used

    # Building

    def tensor(self, name: str, dtype: str) -> Value:
        """A tensor argument, or a number as a scalar, in an element type."""
        found = self.get(name)
        return self.cast(found, dtype) if isinstance(found, Value) else self.scalar(found, dtype)

    def done(self, value: Value, result: int = 0) -> Value:
        """A value in the element type and the shape of a result."""
        type = self.results[result]
        assert type is not None
        value = self.cast(value, type.dtype)
        if value.shape != type.shape:
            if value.type.elements == type.elements:
                return self.reshape(value, type.shape)
            return self.broadcast(value, type.shape)
        return value

    def filled(self, x: float | bool, type: TT) -> Value:
        """A tensor of one number."""
        return self.broadcast(self.scalar(x, type.dtype), type.shape)

    def common(self, *names: str) -> str:
        """The element type in which an op computes with these arguments, by PyTorch's promotion: tensors with dims
        before those without, those before numbers; floats before integers before booleans."""
        import torch

        known = {ours: theirs for theirs, ours in DTYPES.items()}
        found: Any = None
        for scalars in (False, True):
            here: Any = None
            for x in (self.get(name) for name in names):
                if isinstance(x, Value) and (x.rank == 0) == scalars:
                    type = getattr(torch, known[x.dtype])
                    here = type if here is None else torch.promote_types(here, type)
            found = _wider(found, here)
        plain: Any = None
        for x in (self.get(name) for name in names):
            if isinstance(x, bool | int | float):
                type = torch.bool if isinstance(x, bool) else torch.int64 if isinstance(x, int) else torch.float32
                plain = type if plain is None else torch.promote_types(plain, type)
        return dtype_name(_wider(found, plain))


def _wider(first: Any, second: Any) -> Any:
    """The type of a higher kind; the first of equals."""
    if first is None or second is None:
        return second if first is None else first

    def kind(dtype: Any) -> int:
        return 2 if dtype.is_floating_point else 0 if str(dtype) == "torch.bool" else 1

    return second if kind(second) > kind(first) else first


def is_float(value: Value) -> bool:
    """Whether a value has a floating-point type."""
    return dtypes.is_float(value.dtype)


Result = Value | Complex | Sequence[Value | Complex | None]
