"""TensorProto → a typed reference to its bytes: in the model file, in an external file, or in the message itself.

Nothing is copied and nothing is trusted: shapes, element types, byte counts, file names and offsets are checked before
a byte is read, and every offender is reported.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from math import prod
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Any

from headrace.dialects.support import dtypes
from headrace.dialects.support.diagnostics import CompileError
from headrace.dialects.tensor.shapes import TT
from headrace.frontends.building import TensorRef
from headrace.frontends.onnx.wire import TENSOR_DOUBLE_DATA, TENSOR_FLOAT_DATA, TENSOR_RAW_DATA, Span, open_map

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

# TensorProto.DataType
DTYPES = {
    1: "f32",
    2: "ui8",
    3: "i8",
    4: "ui16",
    5: "i16",
    6: "i32",
    7: "i64",
    9: "i1",
    10: "f16",
    11: "f64",
    12: "ui32",
    13: "ui64",
    16: "bf16",
}
UNSUPPORTED = {
    8: "string",
    14: "complex64",
    15: "complex128",
    17: "float8e4m3fn",
    18: "float8e4m3fnuz",
    19: "float8e5m2",
    20: "float8e5m2fnuz",
    21: "uint4",
    22: "int4",
    23: "float4e2m1",
    24: "float8e8m0",
    25: "uint2",
    26: "int2",
}
_FIELD_OF = {
    "f32": "float_data",
    "f64": "double_data",
    "i64": "int64_data",
    "ui32": "uint64_data",
    "ui64": "uint64_data",
}
EXTERNAL = 1
MAX_ELEMENTS = 1 << 48


def dtype_of(data_type: int, what: str, location: str = "") -> str:
    """The dtype name of an ONNX element type; a refusal that names `what` when Headrace has none."""
    found = DTYPES.get(data_type)
    if found is None:
        name = UNSUPPORTED.get(data_type, f"number {data_type}" if data_type else "undefined")
        raise CompileError(
            "unsupported-dtype",
            f"{what} has element type {name}",
            why=f"Headrace has {', '.join(DTYPES.values())}",
            fix="convert it to one of these in the model",
            location=location,
        )
    return found


class ExternalFiles:
    """Files with tensor bytes: opened once each, by memory map, inside the model's folder only."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._open: dict[str, memoryview] = {}

    def span(self, name: str, entries: dict[str, str], nbytes: int) -> Span:
        """Where tensor `name` of `nbytes` bytes lies, from its external_data entries."""
        location = entries.get("location", "")
        offset, length = (
            self._number(name, entries, key, default) for key, default in (("offset", 0), ("length", nbytes))
        )
        data = self._file(name, location)
        if length != nbytes:
            raise _external(name, location, f"its length is {length} bytes but shape and dtype need {nbytes}")
        if offset + length > len(data):
            raise _external(
                name, location, f"bytes {offset} to {offset + length} lie past the end of the file ({len(data)} bytes)"
            )
        return Span(data, offset, offset + length)

    @staticmethod
    def _number(name: str, entries: dict[str, str], key: str, default: int) -> int:
        text = entries.get(key)
        if text is None:
            return default
        if not (text.isascii() and text.isdigit() and len(text) <= 18):
            raise _external(name, entries.get("location", ""), f"its {key} is {text[:40]!r}, not a byte count")
        return int(text)

    def _file(self, name: str, location: str) -> memoryview:
        if location in self._open:
            return self._open[location]
        if self.folder is None:
            raise _external(
                name, location, "the model was given in memory, so it has no folder", "give the path of the model file"
            )
        inside = "keep the model's data files in the folder of the model"
        windows = PureWindowsPath(location)
        if not location or "\0" in location or PurePosixPath(location).is_absolute() or windows.drive or windows.root:
            raise _external(name, location, "the location is not a relative path", inside)
        if ".." in windows.parts:
            raise _external(name, location, "the location leaves the model's folder", inside)
        root = os.path.realpath(self.folder)
        path = os.path.realpath(os.path.join(root, location))
        if os.path.commonpath([root, path]) != root:
            raise _external(name, location, "a symbolic link leaves the model's folder", inside)
        try:
            if not stat.S_ISREG(os.stat(path).st_mode):
                raise _external(name, location, "it is not a regular file", inside)
            data = open_map(path)
        except OSError as error:
            raise _external(
                name,
                location,
                f"{error.strerror or error}",
                "put the file beside the model, under this name",
                missing=True,
            ) from None
        self._open[location] = data
        return data


def _external(name: str, location: str, why: str, fix: str = "", *, missing: bool = False) -> CompileError:
    return CompileError(
        "missing-external-data" if missing else "bad-external-data",
        f"tensor '{name}' has its data in '{location[:200]}', which cannot be used",
        why=why,
        fix=fix or "export the model again, together with its data files",
        location=name,
    )


NO_FILES = ExternalFiles(None)
"""For tensors that are part of a graph."""


def tensor_ref(proto: Any, span: Span | None, files: ExternalFiles, *, shape_only: bool = False) -> TensorRef:
    """A checked reference to a TensorProto (whose big payload may have been cut out as `span`).

    `CompileError` when its type is not ours or its bytes are missing, too few or too many.
    """
    name: str = proto.name
    dtype = dtype_of(proto.data_type, f"tensor '{name}'", name)
    shape = tuple(proto.dims)
    if any(n < 0 for n in shape) or prod(shape) > MAX_ELEMENTS:
        raise _bad(name, f"its shape is {shape}")
    type = TT(shape, dtype)
    nbytes = type.elements * dtypes.byte_size(dtype)
    if proto.data_location == EXTERNAL:
        entries = {entry.key: entry.value for entry in proto.external_data}
        if not all(isinstance(x, str) for x in (*entries, *entries.values())):
            raise _bad(name, "its external_data entries are not UTF-8 text")
        try:
            span = files.span(name, entries, nbytes)
        except CompileError as error:
            if shape_only and error.code == "missing-external-data":
                return TensorRef(name, type, None)
            raise
    if span is not None:
        wanted = {TENSOR_FLOAT_DATA: "f32", TENSOR_DOUBLE_DATA: "f64", TENSOR_RAW_DATA: dtype}[span.field]
        if wanted != dtype:
            raise _bad(name, f"it is a {dtype} tensor but its data are in the field for {wanted}")
        if span.nbytes != nbytes:
            raise _bad(name, f"{type} needs {nbytes} bytes of data and has {span.nbytes}")
        return TensorRef(name, type, lambda: _view(span, type))
    return TensorRef(name, type, _inline(proto, name, type, nbytes, shape_only))


def _view(span: Span, type: TT) -> Array:
    import numpy as np

    flat = np.frombuffer(span.buffer, dtypes.to_numpy(type.dtype), type.elements, span.start)
    return flat.reshape(type.shape)


def _inline(proto: Any, name: str, type: TT, nbytes: int, shape_only: bool) -> Callable[[], Array] | None:
    if proto.HasField("raw_data"):
        found, unit, need = len(proto.raw_data), "bytes of raw data", nbytes
        if found == nbytes:
            return lambda: _from_raw(proto, type)
    else:
        values = getattr(proto, _FIELD_OF.get(type.dtype, "int32_data"))
        found, unit, need = len(values), "values", type.elements
        if found == type.elements:
            return lambda: _from_values(values, type)
        if found == 0 and shape_only:
            return None
    raise _bad(name, f"{type} needs {need} {unit} and has {found}")


def _from_raw(proto: Any, type: TT) -> Array:
    import numpy as np

    return np.frombuffer(proto.raw_data, dtypes.to_numpy(type.dtype)).reshape(type.shape)


def _from_values(values: Any, type: TT) -> Array:
    import numpy as np

    target = dtypes.to_numpy(type.dtype)
    if type.dtype in ("f16", "bf16"):  # stored as bit patterns
        array = np.array(values, np.int64).astype(np.uint16).view(target)
    else:
        array = np.array(values, target if type.dtype in _FIELD_OF else np.int64).astype(target)
    array.flags.writeable = False
    return array.reshape(type.shape)


def _bad(name: str, why: str) -> CompileError:
    return CompileError(
        "bad-tensor", f"tensor '{name}' is malformed", why=why, fix="export the model again", location=name
    )
