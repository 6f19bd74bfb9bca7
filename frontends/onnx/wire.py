"""Reads an ONNX file without copying its weights.

A protobuf message is a list of (tag, payload) fields. One walk over the file's memory map notes where each
initializer's bytes are, and hands only what is left (the graph, a few kilobytes) to the protobuf library. Every length
is checked against the end of the message it is in, so a truncated or foreign file ends in a refusal. The walk goes
three messages deep and never recurses.
"""

from __future__ import annotations

import importlib
import importlib.util
import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from headrace.dialects.support.diagnostics import CompileError

# Field numbers of onnx.proto.
MODEL_GRAPH = 7
GRAPH_INITIALIZER = 5
TENSOR_FLOAT_DATA, TENSOR_RAW_DATA, TENSOR_DOUBLE_DATA = 4, 9, 10
BYTES_FIELDS = (TENSOR_FLOAT_DATA, TENSOR_RAW_DATA, TENSOR_DOUBLE_DATA)  # little-endian arrays when packed
SMALL = 128  # payloads below this many bytes stay with the message

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes [start, stop) of a buffer: the payload of tensor field `field`."""

    buffer: memoryview
    start: int
    stop: int
    field: int = TENSOR_RAW_DATA

    @property
    def nbytes(self) -> int:
        """Length in bytes."""
        return self.stop - self.start


@dataclass(slots=True)
class Model:
    """A parsed model: its protobuf without initializers, the initializers' headers, and where their bytes are."""

    proto: Any
    initializers: list[tuple[Any, Span | None]]
    folder: Path | None
    name: str = ""
    files: dict[str, memoryview] = field(default_factory=dict[str, memoryview])


class WireError(Exception):
    """The bytes are not a well-formed protobuf message."""


@cache
def protobuf() -> ModuleType:
    """The generated classes of onnx.proto. Loaded without the rest of the onnx package, which costs several times
    as much to import; the classes are the same objects that `import onnx` gives."""
    import sys

    loaded = sys.modules.get("onnx.onnx_ml_pb2")
    if loaded is not None:
        return loaded
    package = importlib.util.find_spec("onnx")
    for folder in (package.submodule_search_locations or ()) if package else ():
        spec = importlib.util.spec_from_file_location("_headrace_onnx_proto", os.path.join(folder, "onnx_ml_pb2.py"))
        if spec is not None and spec.loader is not None and os.path.exists(spec.origin or ""):
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return module
    return importlib.import_module("onnx")


def _varint(data: memoryview, at: int, end: int) -> tuple[int, int]:
    """The varint at `at` and the position after it."""
    value = shift = 0
    while True:
        if at >= end:
            raise WireError(f"ends inside a number at byte {at}")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise WireError(f"a number at byte {at} has more than 64 bits")


def fields(data: memoryview, at: int, end: int) -> Iterator[tuple[int, int, int, int, int]]:
    """The fields of the message in bytes [at, end): number, wire type, start of the field, start and end of its
    payload."""
    while at < end:
        start, tag = at, data[at]
        at += 1
        if tag >= 0x80:  # more than one byte, as few are
            tag, at = _varint(data, start, end)
        number, wire = tag >> 3, tag & 7
        if number == 0:
            raise WireError(f"no field number at byte {start}")
        if wire == BYTES:
            length, at = _varint(data, at, end)
            stop = at + length
        elif wire == VARINT:
            _, stop = _varint(data, at, end)
        elif wire == FIXED64:
            stop = at + 8
        elif wire == FIXED32:
            stop = at + 4
        else:
            raise WireError(f"wire type {wire} at byte {start}")
        if stop > end:
            raise WireError(f"field {number} at byte {start} needs {stop - end} bytes more than there are")
        yield number, wire, start, at, stop
        at = stop


def _without(data: memoryview, at: int, end: int, cuts: list[tuple[int, int]]) -> bytes:
    """Bytes [at, end) without the cut ranges."""
    parts: list[memoryview] = []
    for start, stop in cuts:
        parts.append(data[at:start])
        at = stop
    parts.append(data[at:end])
    return b"".join(parts)


def _tensor(data: memoryview, at: int, end: int) -> tuple[Any, Span | None]:
    """A TensorProto without its bytes, and where they are when they are worth leaving out."""
    cuts: list[tuple[int, int]] = []
    spans: list[Span] = []
    for number, wire, start, payload, stop in fields(data, at, end):
        if number in BYTES_FIELDS and wire == BYTES and stop - payload >= SMALL:
            cuts.append((start, stop))
            spans.append(Span(data, payload, stop, number))
    make = protobuf().TensorProto.FromString
    if len(spans) != 1:  # none, or a payload in several pieces, which protobuf concatenates
        return make(bytes(data[at:end])), None
    return make(_without(data, at, end, cuts)), spans[0]


def parse(data: memoryview) -> tuple[Any, list[tuple[Any, Span | None]]]:
    """The model in a buffer: its protobuf without initializers, and the initializers. `WireError` when malformed."""
    end = len(data)
    top = list(fields(data, 0, end))
    graphs = [(start, payload, stop) for n, wire, start, payload, stop in top if n == MODEL_GRAPH and wire == BYTES]
    if len(graphs) != 1:
        raise WireError("no graph in it" if not graphs else "more than one graph in it")
    start, payload, stop = graphs[0]
    cuts: list[tuple[int, int]] = []
    initializers: list[tuple[Any, Span | None]] = []
    for number, wire, field_start, at, field_stop in fields(data, payload, stop):
        if number == GRAPH_INITIALIZER and wire == BYTES:
            cuts.append((field_start, field_stop))
            initializers.append(_tensor(data, at, field_stop))
    model = protobuf().ModelProto.FromString(_without(data, 0, end, [(start, stop)]))
    model.graph.MergeFromString(_without(data, payload, stop, cuts))
    return model, initializers


def open_map(path: str | Path) -> memoryview:
    """A file as read-only memory; empty when the file is. `OSError` when it cannot be opened."""
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return memoryview(b"")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def read(path: str | Path) -> Model:
    """Open an ONNX file. `CompileError` when there is no such file or it is not a whole ONNX model."""
    file = Path(path)
    name = file.name
    try:
        data = open_map(file)
    except OSError as error:
        raise CompileError("no-such-file", f"cannot read '{file}': {error.strerror or error}") from None
    try:
        proto, initializers = parse(data)
    except WireError as error:
        reason = str(error)
    except Exception as error:  # protobuf's DecodeError, whose module differs between its implementations
        if type(error).__name__ != "DecodeError":
            raise
        reason = str(error) or "protobuf cannot parse it"
    else:
        if proto.ir_version <= 0 and not proto.opset_import:
            raise not_onnx(name, "it has neither an ir_version nor an opset_import")
        return Model(proto, initializers, file.resolve().parent, name)
    raise not_onnx(name, reason)


def not_onnx(name: str, reason: str) -> CompileError:
    """The refusal of a file that is not a whole ONNX model."""
    return CompileError(
        "bad-onnx-file",
        f"'{name}' is not a complete ONNX model",
        why=reason,
        fix="check that the file was fully written or downloaded, and that it is an .onnx file",
    )
