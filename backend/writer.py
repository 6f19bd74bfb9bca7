"""Writing `.sn` artifacts: the only code that does. The layout is described in `runtime.artifact`.

Bytes are deterministic: the program table is, the header is JSON with sorted keys, and tensors come in a fixed order
(table, then weights that keep every later one on a 64-byte boundary, in program order, then the others, then states). A
changed weight changes its own bytes and the `digests` field.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from headrace.dialects.support import dtypes
from headrace.dialects.support.diagnostics import CompileError
from headrace.dialects.support.files import replacing
from headrace.dialects.tensor.meaning.collective import Socket, on_socket
from headrace.dialects.tensor.meaning.special import rounds_to
from headrace.dialects.tensor.shapes import TT
from headrace.runtime import table
from headrace.runtime.artifact import (
    FORMAT,
    NAMES,
    PROGRAM,
    STATE,
    TABLES,
    VARIANTS,
    canonical,
    digest_of_digests,
    header_digest,
    reserved,
    variant,
)
from headrace.runtime.program import Port, Program

Array = np.ndarray[Any, np.dtype[Any]]
CHUNK = 8 << 20
"""Bytes of a weight that are hashed and written at once."""


class Weights(Protocol):
    """What the writer needs of a weight store or an open artifact."""

    def array(self, key: str) -> Array:
        """The weight of that key, of the socket that runs; `CompileError` when there are no bytes for it."""
        ...

    def variants(self, key: str, sockets: int) -> tuple[int, ...]:
        """For each socket the first one that has the same block of a weight; empty when all have all of it."""
        ...


def write_artifact(
    path: str | os.PathLike[str],
    program: Program,
    weights: Weights | None,
    *,
    compiler: str,
    manifest: Mapping[str, Any] | None = None,
    states: Mapping[str, Array] | None = None,
) -> None:
    """Write a program and its weights. `weights` None writes the program alone, to be planned and timed but not run.

    `compiler` is the version that made the program; `manifest` adds fields (model, precision, goal, pipeline, …) to
    those that the program gives; `states` is what states hold at first, by the input that they stand for, and zeros are
    left out. The file appears complete or not at all. `CompileError` when a weight is missing or
    not of the type that the program has, or when the file cannot be written.
    """
    path = Path(path)
    tables: dict[str, Array] = dict(zip((PROGRAM, TABLES), table.encode(program), strict=True))
    cut = _variants(program, weights)
    held = _weights(program, weights, cut) | _states(program, states or {})
    header: dict[str, Any] = {}
    at = 0
    types = {PROGRAM: TT(tables[PROGRAM].shape, "ui8"), TABLES: TT(tables[TABLES].shape, "i32")}
    for name, type in (types | {key: type for key, (type, _) in held.items()}).items():
        end = at + type.elements * dtypes.byte_size(type.dtype)
        header[name] = {"data_offsets": [at, end], "dtype": NAMES[type.dtype], "shape": list(type.shape)}
        at = end
    metadata = _manifest(program, compiler, {**(manifest or {}), **({VARIANTS: cut} if cut else {})})
    digests: dict[str, Any] = {name: hashlib.sha256(array.data).hexdigest() for name, array in tables.items()}
    digests["header"] = header_digest(metadata, header)
    digests["weights"] = dict.fromkeys(held, "0" * 64)
    digests["all"] = "0" * 64
    _stream(path, header, metadata, digests, tables, {key: array for key, (_, array) in held.items()})


def _stream(
    path: Path,
    header: Mapping[str, Any],
    metadata: dict[str, str],
    digests: dict[str, Any],
    tables: Mapping[str, Array],
    weights: Mapping[str, Array],
) -> None:
    """Write everything into a file beside `path` and move it there. The header is written again when all is
    hashed."""
    head = _header_bytes(header, metadata, digests)
    with replacing(path) as file:
        file.write(head)
        for array in tables.values():
            file.write(array.data)
        for key, array in weights.items():
            digests["weights"][key] = _write_weight(file, array)
        digests["all"] = digest_of_digests(digests)
        file.seek(0)
        again = _header_bytes(header, metadata, digests)
        assert len(again) == len(head)
        file.write(again)


def _write_weight(file: Any, array: Array) -> str:
    """Write a weight piece by piece; returns its digest."""
    digest = hashlib.sha256()
    flat = array.reshape(-1) if array.flags.c_contiguous else np.ascontiguousarray(array).reshape(-1)
    data = flat.view(np.uint8)
    for start in range(0, len(data), CHUNK):
        piece = np.ascontiguousarray(data[start : start + CHUNK])
        digest.update(piece.data)
        file.write(piece.data)
    return digest.hexdigest()


def _header_bytes(header: Mapping[str, Any], metadata: Mapping[str, str], digests: Mapping[str, Any]) -> bytes:
    """Length and JSON, padded with spaces so that the data starts on a 64-byte boundary."""
    import json

    fields = dict(sorted({**metadata, "digests": canonical(digests)}.items()))
    text = json.dumps({"__metadata__": fields, **header}, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-(8 + len(text)) % 64)
    return struct.pack("<Q", len(text)) + text


def _variants(program: Program, weights: Weights | None) -> dict[str, tuple[int, ...]]:
    """The weights that are cut over sockets, each with the socket whose block each socket has."""
    if weights is None or program.sockets == 1:
        return {}
    keys = dict.fromkeys(region.key for region in program.regions if region.kind == "weight")
    return {key: found for key in keys if (found := weights.variants(key, program.sockets))}


def _weights(
    program: Program, weights: Weights | None, cut: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[TT, Array]]:
    """Types and arrays of all weights by name in the file, in file order. Of those that are cut each block is there
    once."""
    found: dict[str, TT] = {}
    wrong: list[str] = []
    for region in program.regions:
        if region.kind != "weight":
            continue
        if found.setdefault(region.key, region.type) != region.type:
            wrong.append(f"'{region.key}' is {found[region.key]} and {region.type}")
        if reserved(region.key):
            wrong.append(f"'{region.key}' is a reserved name")
    if weights is None:
        return {}
    arrays: dict[str, Array] = {}
    types, found = found, {}
    for key, type in types.items():
        for socket in dict.fromkeys(cut.get(key, (0,))):
            name = variant(key, socket) if key in cut else key
            found[name] = type
            with on_socket(Socket(socket)):
                arrays[name] = weights.array(key)
    for key, type in found.items():
        array = arrays[key]
        if tuple(array.shape) != type.shape or array.dtype != dtypes.to_numpy(type.dtype):
            wrong.append(f"'{key}' is {array.dtype}{list(array.shape)} in the store but {type} in the program")
    if wrong:
        raise CompileError("bad-weight", f"weights do not fit the program: {'; '.join(wrong)}")

    def place(key: str) -> tuple[bool, int]:
        size = dtypes.byte_size(found[key].dtype)
        return (found[key].elements * size % 64 != 0, -size)

    return {key: (found[key], arrays[key]) for key in sorted(found, key=place)}


def _states(program: Program, states: Mapping[str, Array]) -> dict[str, tuple[TT, Array]]:
    """Types and arrays of the states that do not begin at zero, in order of the program's inputs. Floats are rounded to
    a narrower type that a state has."""
    past = {name for name, _ in program.states}
    ports = [port for port in program.inputs if port.name in past]
    types = {name: program.whole(port) for port in ports for name in program.stacks.get(port.name, (port.name,))}
    found: dict[str, tuple[TT, Array]] = {}
    wrong: list[str] = [f"there is no state '{name}'" for name in states if name not in types]
    for name, type in types.items():
        array = states.get(name)
        if array is None or not array.any():
            continue
        dtype = dtypes.to_numpy(type.dtype)
        if tuple(array.shape) != type.shape or not rounds_to(array.dtype, dtype):
            wrong.append(f"state '{name}' is {array.dtype}{list(array.shape)}, the program has {type}")
        else:
            found[STATE + name] = (type, array.astype(dtype, copy=False))
    if wrong:
        raise CompileError("bad-input", f"states do not fit the program: {'; '.join(wrong)}")
    return found


def _manifest(program: Program, compiler: str, extra: Mapping[str, Any]) -> dict[str, str]:
    """Metadata as text: strings as they are, other values as JSON."""
    meta = {key: program.meta[key] for key in ("model", "precision", "goal", "pipeline") if key in program.meta}
    fields: dict[str, Any] = {
        **meta,
        "device": program.device.get("name", ""),
        "inputs": [_port(p) for p in program.inputs],
        "outputs": [_port(p) for p in program.outputs],
        "states": [list(pair) for pair in program.states],
        **extra,
        "format": FORMAT,
        "schema": str(table.SCHEMA),
        "compiler": compiler,
    }
    return {key: value if isinstance(value, str) else canonical(value) for key, value in sorted(fields.items())}


def _port(port: Port) -> dict[str, Any]:
    return {"name": port.name, "shape": list(port.type.shape), "dtype": port.type.dtype}
