"""Reading `.sn` artifacts: one safetensors file with the weights, the program table and a manifest.

Layout (any safetensors reader can list it):

* tensor `headrace/program` (bytes) and `headrace/tables` (32-bit integers): the program table of `runtime.table`; *
one tensor per weight, named by its key; * `headrace/state/NAME` for each state that begins at something else than zero,
named by the input that it stands for; * metadata: `format` "headrace", `schema`, `compiler`, `model`, `device`,
`precision`, `inputs`, `outputs`, `pipeline` and what else the compiler wrote, and `digests`: SHA-256 of the header
without that field, of both table arrays, of every weight and state, and of these digests together.

Opening maps the file into memory and copies nothing. Header and table are always verified. Weights and states are
verified when `verify` is true, and by default when they are at most `CHEAP` bytes together (tens of milliseconds); pass
false to skip.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from headrace.dialects.support import dtypes
from headrace.dialects.support.diagnostics import CompileError, nearest
from headrace.dialects.tensor.meaning.collective import current_socket
from headrace.dialects.tensor.shapes import TT
from headrace.runtime import table
from headrace.runtime.program import Program

Array = np.ndarray[Any, np.dtype[Any]]
PROGRAM, TABLES = "headrace/program", "headrace/tables"
STATE = "headrace/state/"
FORMAT = "headrace"
VARIANTS = "blocks"
"""The manifest field that says, for each weight that is cut over sockets, whose block in the file each socket has."""
CHEAP = 64 << 20
"""Weights of at most so many bytes together are verified by default."""
MAX_HEADER = 100 << 20
NAMES = {
    "f64": "F64", "f32": "F32", "f16": "F16", "bf16": "BF16", "i1": "BOOL", "i8": "I8", "i16": "I16", "i32": "I32",
    "i64": "I64", "ui8": "U8", "ui16": "U16", "ui32": "U32", "ui64": "U64", "f8e4m3": "F8_E4M3",
}  # fmt: skip
DTYPES = {name: dtype for dtype, name in NAMES.items()}


@dataclass(frozen=True)
class Entry:
    """Where a tensor lies: type, and byte offsets within the data part."""

    type: TT
    start: int
    end: int


@dataclass
class Artifact:
    """An open artifact: its program, its manifest and its weights by key (read-only views of the mapped file)."""

    path: Path
    program: Program
    manifest: Mapping[str, Any]
    entries: Mapping[str, Entry]
    data: Array

    def array(self, key: str) -> Array:
        """The weight of that key; `CompileError` when the artifact has none (it was compiled shape-only)."""
        entry = self.entries.get(self._stored(key))
        if entry is None or reserved(key):
            raise CompileError(
                "missing-weight",
                f"{self.path}: no bytes for weight '{key}'",
                why="the model was compiled without its weights" if entry is None else "",
                fix="compile it with its weights to run it",
            )
        return _view(self.data, entry)

    def _stored(self, key: str) -> str:
        """The name in the file of a weight: of one that is cut over sockets, that of the block of the socket that
        runs."""
        blocks = self.variants(key, self.program.sockets)
        return variant(key, blocks[current_socket().index]) if blocks else key

    def variants(self, key: str, sockets: int) -> tuple[int, ...]:
        """For each socket the first one that has the same block of a weight; empty when all have all of it."""
        table = self.manifest.get(VARIANTS)
        found: Any = cast("dict[str, Any]", table).get(key, ()) if isinstance(table, dict) else ()
        if not found:
            return ()
        blocks = cast("list[Any]", found) if isinstance(found, list) else []
        if len(blocks) != sockets or not all(isinstance(x, int) and 0 <= x < sockets for x in blocks):
            raise _bad(self.path, f"blocks of weight '{key}' are not of {sockets} sockets")
        return tuple(blocks)

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys of the weights in the file, in file order."""
        return tuple(key for key in self.entries if not reserved(key))

    @property
    def states(self) -> dict[str, Array]:
        """What states hold at first, by the input that they stand for; those that are left out are zero."""
        found = {key.removeprefix(STATE): entry for key, entry in self.entries.items() if key.startswith(STATE)}
        return {name: _view(self.data, entry) for name, entry in found.items()}


def variant(key: str, socket: int) -> str:
    """The name in the file of the block of a weight that a socket has."""
    return f"{key}@{socket}"


def reserved(key: str) -> bool:
    """Whether a tensor of that name is no weight."""
    return key in (PROGRAM, TABLES) or key.startswith(STATE)


def open_artifact(path: str | os.PathLike[str], verify: bool | None = None) -> Artifact:
    """Open a `.sn` file. `CompileError` (`bad-artifact`, `artifact-schema`) when it is missing, truncated, altered,
    not an artifact, or of another schema version."""
    path = Path(path)
    raw = _map(path)
    header, start = _header(path, raw)
    metadata = header.pop("__metadata__", None)
    if not isinstance(metadata, dict) or cast("dict[str, Any]", metadata).get("format") != FORMAT:
        raise _bad(path, "a safetensors file, but not an artifact of Headrace", fix="compile a model to make one")
    found = cast("dict[str, str]", metadata)
    _check_schema(path, found)
    data = raw[start:]
    entries = _entries(path, header, len(data))
    digests = _check_header(path, found, header)
    for name in (PROGRAM, TABLES):
        if name not in entries:
            raise _bad(path, f"no tensor '{name}'")
        if _sha(_view(data, entries[name])) != digests.get(name):
            raise _bad(path, f"the program table ('{name}') does not match its digest")
    weights = cast("Mapping[str, str]", digests["weights"])
    named = {name for name in entries if name not in (PROGRAM, TABLES)}
    if named != set(weights):
        raise _bad(path, f"tensors without a digest, or digests without a tensor: {sorted(named ^ set(weights))[:4]}")
    if verify is None:
        verify = sum(entries[name].end - entries[name].start for name in named) <= CHEAP
    if verify:
        wrong = [name for name in entries if name in named and _sha(_view(data, entries[name])) != weights[name]]
        if wrong:
            raise _bad(path, f"weights or states do not match their digests: {', '.join(wrong[:8])}")
    try:
        program = table.decode(_view(data, entries[PROGRAM]), _view(data, entries[TABLES]))
    except table.BadTable as error:
        raise _bad(path, f"the program table is broken: {error}") from None
    _check_states(path, program, entries)
    made = Artifact(path, program, _decoded(found), entries, data)
    for region in program.regions:
        if region.kind != "weight":
            continue
        blocks = dict.fromkeys(made.variants(region.key, program.sockets))
        for name in [variant(region.key, i) for i in blocks] or [region.key]:
            if name in entries and entries[name].type != region.type:
                raise _bad(path, f"weight '{name}' is {entries[name].type} but the program has {region.type}")
    return made


def _check_states(path: Path, program: Program, entries: Mapping[str, Entry]) -> None:
    """What states hold at first is of states that the program has, and of their types."""
    past = {name for name, _ in program.states}
    ports = [port for port in program.inputs if port.name in past]
    types = {name: program.whole(port) for port in ports for name in program.stacks.get(port.name, (port.name,))}
    for key, entry in entries.items():
        name = key.removeprefix(STATE)
        if name != key and entry.type != types.get(name):
            raise _bad(
                path, f"state '{name}' is {entry.type} but the program has {types.get(name, 'none of that name')}"
            )


def canonical(value: Any) -> str:
    """JSON with sorted keys and no spaces: the same value always gives the same text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def header_digest(metadata: Mapping[str, str], tensors: Mapping[str, Any]) -> str:
    """Digest of everything in the header but `digests`."""
    rest = {key: value for key, value in metadata.items() if key != "digests"}
    return hashlib.sha256(canonical([rest, list(tensors.items())]).encode()).hexdigest()


def digest_of_digests(digests: Mapping[str, Any]) -> str:
    """Digest of all digests but itself."""
    return hashlib.sha256(canonical({k: v for k, v in digests.items() if k != "all"}).encode()).hexdigest()


def _bad(path: Path, what: str, why: str = "", fix: str = "") -> CompileError:
    return CompileError(
        "bad-artifact", f"{path}: {what}", why=why, fix=fix or "compile the model again, or copy the file again"
    )


def _map(path: Path) -> Array:
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size < 10:
                raise _bad(path, "too short for an artifact")
            return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
    except OSError as error:
        raise CompileError("bad-artifact", f"{path}: cannot be read: {error.strerror}", fix="check the path") from None


def _header(path: Path, raw: Array) -> tuple[dict[str, Any], int]:
    (size,) = struct.unpack("<Q", raw[:8].tobytes())
    if size < 2 or size > MAX_HEADER or 8 + size > len(raw):
        raise _bad(
            path,
            f"a header of {size} bytes does not fit a file of {len(raw)} bytes",
            why="truncated, or not an artifact",
        )
    try:
        header = json.loads(raw[8 : 8 + size].tobytes())
    except (ValueError, RecursionError):
        raise _bad(path, "the header is not JSON", why="altered, or not an artifact") from None
    if not isinstance(header, dict):
        raise _bad(path, "the header is not a JSON object")
    return cast("dict[str, Any]", header), 8 + size


def _check_schema(path: Path, metadata: Mapping[str, str]) -> None:
    text = str(metadata.get("schema"))
    if text == str(table.SCHEMA):
        return
    newer = text.isdigit() and int(text) > table.SCHEMA
    raise CompileError(
        "artifact-schema",
        f"{path}: schema {text}, made by compiler {metadata.get('compiler', '?')}; "
        f"this Headrace reads schema {table.SCHEMA}",
        why="the artifact is newer than this Headrace" if newer else "the artifact is older than this Headrace",
        fix="upgrade Headrace, or compile the model with this version"
        if newer
        else "compile the model again with this version",
    )


def _entries(path: Path, header: Mapping[str, Any], size: int) -> dict[str, Entry]:
    """Checked tensor entries, in file order: they fill the data part without gaps or overlaps."""
    found: list[tuple[str, Entry]] = []
    for name, entry in header.items():
        try:
            dtype, shape, (start, end) = DTYPES[entry["dtype"]], tuple(entry["shape"]), entry["data_offsets"]
            sound = all(isinstance(n, int) and n >= 0 for n in (*shape, start, end))
        except (KeyError, TypeError, ValueError):
            raise _bad(path, f"tensor '{name}' has a broken entry") from None
        type = TT(cast("tuple[int, ...]", shape), dtype)
        if not sound or end - start != type.elements * dtypes.byte_size(dtype):
            raise _bad(path, f"tensor '{name}' of {type} lies at {start} to {end}")
        found.append((name, Entry(type, start, end)))
    found.sort(key=lambda item: (item[1].start, item[1].end))
    at = 0
    for name, entry in found:
        if entry.start != at:
            raise _bad(path, f"tensor '{name}' lies at {entry.start}, expected {at}")
        at = entry.end
    if at != size:
        raise _bad(
            path, f"{size} bytes of tensors, expected {at}", why="truncated" if size < at else "something was appended"
        )
    return dict(found)


def _check_header(path: Path, metadata: Mapping[str, str], tensors: Mapping[str, Any]) -> dict[str, Any]:
    """The digests, after the header has been held against them."""
    try:
        digests: Any = json.loads(metadata["digests"])
    except (KeyError, ValueError, TypeError):
        digests = None
    if not isinstance(digests, dict) or not isinstance(cast("dict[str, Any]", digests).get("weights"), dict):
        raise _bad(path, "no digests in the manifest")
    found = cast("dict[str, Any]", digests)
    if digest_of_digests(found) != found.get("all") or header_digest(metadata, tensors) != found.get("header"):
        raise _bad(path, "the header does not match its digest", why="the manifest or the list of tensors was altered")
    return found


def _view(data: Array, entry: Entry) -> Array:
    flat = data[entry.start : entry.end]
    dtype = dtypes.to_numpy(entry.type.dtype)
    if entry.end == entry.start:
        return np.zeros(entry.type.shape, dtype)
    return np.ndarray(entry.type.shape, dtype, flat)


def _sha(array: Array) -> str:
    return hashlib.sha256(array.reshape(-1).view(np.uint8).data if array.size else b"").hexdigest()


def _decoded(metadata: Mapping[str, str]) -> dict[str, Any]:
    """Manifest fields, those in JSON as values."""
    found: dict[str, Any] = {}
    for key, text in metadata.items():
        try:
            found[key] = json.loads(text) if text[:1] in "[{" else text
        except ValueError:
            found[key] = text
    return found


def field(manifest: Mapping[str, Any], name: str) -> Any:
    """A field of the manifest; `CompileError` names the fields there are."""
    if name not in manifest:
        raise CompileError("no-such-field", f"no manifest field '{name}'", fix=nearest(name, manifest))
    return manifest[name]
