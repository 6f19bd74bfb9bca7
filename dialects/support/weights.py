"""Weight stores: where the bytes of a model's weights are. The IR names a weight by key; nothing in it holds bytes.

A store maps keys to a shape, a dtype and a way to get the array. Importers fill it with views of memory-mapped files,
so that making a store copies nothing. A store may be *shape only*: types without bytes.

    store = open_store("model.safetensors")      # or .npz, .npy, a folder of these
    store.type("encoder.0.weight")               # ((768, 768), "f32")
    store.array("encoder.0.weight")              # read-only, memory-mapped

Arrays of files are read-only and may lie unaligned in memory.
"""

from __future__ import annotations

import json
import lzma
import mmap
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, KeysView, Mapping
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from headrace.dialects.support import dtypes
from headrace.dialects.support.diagnostics import CompileError, nearest

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

SAFETENSORS_DTYPES = {
    "F64": "f64",
    "F32": "f32",
    "F16": "f16",
    "BF16": "bf16",
    "F8_E4M3": "f8e4m3",
    "BOOL": "i1",
    "I8": "i8",
    "I16": "i16",
    "I32": "i32",
    "I64": "i64",
    "U8": "ui8",
    "U16": "ui16",
    "U32": "ui32",
    "U64": "ui64",
}
"""Element types of safetensors files by their name there."""

LARGEST_HEADER = 100_000_000
"""Most bytes that the header of a safetensors file may claim."""


_MALFORMED = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, TokenError),
    *(EOFError, MemoryError, NotImplementedError, OSError, RuntimeError, SyntaxError, ValueError),
)
"""What the zip and NumPy readers raise on a file that is not what it claims to be."""


@dataclass(frozen=True, slots=True)
class Weight:
    """One weight: its type, and `load` which gives its array (read-only, possibly unaligned) or None when the store has
    no bytes for it."""

    shape: tuple[int, ...]
    dtype: str
    load: Callable[[], Array] | None = None

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return prod(self.shape) * dtypes.byte_size(self.dtype)


class WeightStore:
    """Weights by key, in the order they were added.

    >>> store = WeightStore(); store.add("w", (2,), "f32"); store["w"].nbytes
    8
    """

    def __init__(self) -> None:
        self._weights: dict[str, Weight] = {}
        self._files: dict[Path, mmap.mmap] = {}

    # Filling a store.

    def add(self, key: str, shape: tuple[int, ...], dtype: str, load: Callable[[], Array] | None = None) -> None:
        """Add a weight, shape only without `load`; `ValueError` when the key is taken."""
        if key in self._weights:
            raise ValueError(f"weight key {key!r} is taken")
        self._weights[key] = Weight(tuple(shape), dtype, load)

    def add_array(self, key: str, array: Array) -> None:
        """Add a weight that is in memory. It is not copied; what the store gives out is a read-only view."""
        view = array.view()
        view.flags.writeable = False
        self.add(key, tuple(array.shape), dtypes.from_numpy(array.dtype), lambda: view)

    def add_random(self, key: str, shape: tuple[int, ...], dtype: str, seed: int = 0) -> None:
        """Add a weight made from its key and a seed: the same everywhere, whatever else the store holds.

        Floats of one dim lie in 0.5..1.5 (scales, biases, variances); of more dims they are normal with a spread that
        keeps products near 1. Integers and truth values are 0 or 1.
        """
        self.add(key, shape, dtype, partial(_random, key, tuple(shape), dtype, seed))

    def add_file(
        self, key: str, shape: tuple[int, ...], dtype: str, path: str | Path, offset: int = 0, length: int | None = None
    ) -> None:
        """Add a weight whose little-endian bytes start at `offset` of a file, `length` bytes when that is known.

        `CompileError` when the length is not that of the type, or the file is missing or ends too soon.
        """
        path = Path(path)
        weight = Weight(tuple(shape), dtype)
        if length is not None and length != weight.nbytes:
            raise CompileError(
                "weight-size", f"weight '{key}' has {length} bytes in {path.name} but its type takes {weight.nbytes}"
            )
        _check_extent(key, path, offset, weight.nbytes, _size(key, path))
        self.add(key, weight.shape, dtype, partial(self._mapped, key, path, offset, weight))

    def add_npy(self, key: str, path: str | Path) -> None:
        """Add the array of a .npy file, by memory map. `CompileError` when it is not one, or cut short."""
        path = Path(path)
        with _opened(key, path) as file:
            header = _read_npy_header(key, path.name, file)
            start = file.tell()
        self._add_numpy(key, path, header, start)

    def add_npz(self, path: str | Path, prefix: str = "") -> None:
        """Add the arrays of a .npz file under `prefix` + name: by memory map where they are stored uncompressed, else
        read when asked for. `CompileError` when it is not one, or cut short."""
        path = Path(path)
        members: list[tuple[zipfile.ZipInfo, _NpyHeader, int]] = []
        try:
            with _opened(path.name, path) as raw, zipfile.ZipFile(raw) as archive:
                for member in archive.infolist():
                    with archive.open(member) as file:
                        name = f"{path.name}/{member.filename}"
                        header = _read_npy_header(member.filename, name, cast("BinaryIO", file))
                        start = file.tell()
                    if member.compress_type == zipfile.ZIP_STORED:
                        start += _member_start(raw, member)
                    members.append((member, header, start))
        except _MALFORMED as error:
            raise CompileError("bad-weights-file", f"{path.name} is not a readable .npz file: {error}") from None
        for member, header, start in members:
            key = prefix + member.filename.removesuffix(".npy")
            if member.compress_type == zipfile.ZIP_STORED:
                self._add_numpy(key, path, header, start)
            else:
                weight = Weight(header.shape, header.dtype)
                _check_extent(key, path, start, weight.nbytes, member.file_size)
                self.add(key, weight.shape, weight.dtype, partial(_read_member, key, path, member.filename))

    def add_safetensors(self, path: str | Path, prefix: str = "") -> None:
        """Add the tensors of a safetensors file under `prefix` + name, by memory map. `CompileError` when it is not
        one, or cut short."""
        path = Path(path)
        size = _size(path.name, path)
        header, start = _read_safetensors_header(path, size)
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            shape, dtype, begin, end = _safetensors_entry(path, name, entry)
            weight = Weight(shape, dtype)
            if end - begin != weight.nbytes:
                raise CompileError(
                    "weight-size",
                    f"tensor '{name}' has {end - begin} bytes in {path.name} but its type takes {weight.nbytes}",
                )
            _check_extent(name, path, start + begin, weight.nbytes, size)
            self.add(prefix + name, shape, dtype, partial(self._mapped, name, path, start + begin, weight))

    # Asking a store.

    def type(self, key: str) -> tuple[tuple[int, ...], str]:
        """Shape and dtype of a weight (equal to a `TT`); `CompileError` when there is none of that key."""
        weight = self._find(key)
        return weight.shape, weight.dtype

    def array(self, key: str) -> Array:
        """The bytes of a weight as an array of its shape and dtype; never write to it.

        `CompileError` when there is no such weight or the store has only its shape.
        """
        weight = self._find(key)
        if weight.load is None:
            raise CompileError(
                "missing-weight",
                f"weight '{key}' has a shape but no bytes",
                why="the model was imported shape-only",
                fix="import it with its weights to run it",
            )
        return weight.load()

    def keys(self) -> KeysView[str]:
        """All keys, in the order they were added."""
        return self._weights.keys()

    @property
    def shape_only(self) -> bool:
        """Whether some weight has no bytes."""
        return any(weight.load is None for weight in self._weights.values())

    @property
    def nbytes(self) -> int:
        """Size of all weights in bytes."""
        return sum(weight.nbytes for weight in self._weights.values())

    def __getitem__(self, key: str) -> Weight:
        return self._weights[key]

    def __contains__(self, key: object) -> bool:
        return key in self._weights

    def __iter__(self) -> Iterator[str]:
        return iter(self._weights)

    def __len__(self) -> int:
        return len(self._weights)

    def _find(self, key: str) -> Weight:
        weight = self._weights.get(key)
        if weight is None:
            hint = nearest(key, self._weights) if self._weights else "the store is empty"
            raise CompileError("missing-weight", f"no weight '{key}' in the store", fix=hint)
        return weight

    def _mapped(self, key: str, path: Path, offset: int, weight: Weight) -> Array:
        """A read-only view of a part of a file; the file is mapped once."""
        import numpy as np

        dtype = dtypes.to_numpy(weight.dtype)
        if not weight.nbytes:
            return np.empty(weight.shape, dtype)
        mapped = self._files.get(path)
        if mapped is None:
            with _opened(key, path) as file:
                mapped = self._files[path] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        _check_extent(key, path, offset, weight.nbytes, len(mapped))  # the file may have changed since it was added
        return np.frombuffer(mapped, dtype, prod(weight.shape), offset).reshape(weight.shape)

    def _add_numpy(self, key: str, path: Path, header: _NpyHeader, start: int) -> None:
        weight = Weight(header.shape, header.dtype)
        _check_extent(key, path, start, weight.nbytes, _size(key, path))
        if not header.fortran_order:
            self.add(key, weight.shape, weight.dtype, partial(self._mapped, key, path, start, weight))
            return
        turned = Weight(weight.shape[::-1], weight.dtype)
        self.add(key, weight.shape, weight.dtype, lambda: self._mapped(key, path, start, turned).transpose())


def from_arrays(arrays: Mapping[str, Array]) -> WeightStore:
    """A store of arrays in memory, which are not copied."""
    store = WeightStore()
    for key, array in arrays.items():
        store.add_array(key, array)
    return store


def shape_only(types: Mapping[str, tuple[tuple[int, ...], str]]) -> WeightStore:
    """A store of (shape, dtype) without bytes: a model can be compiled and timed with it, not run."""
    store = WeightStore()
    for key, (shape, dtype) in types.items():
        store.add(key, shape, dtype)
    return store


def random(types: Mapping[str, tuple[tuple[int, ...], str]], seed: int = 0) -> WeightStore:
    """A store of weights made from their keys and a seed; see `WeightStore.add_random`."""
    store = WeightStore()
    for key, (shape, dtype) in types.items():
        store.add_random(key, shape, dtype, seed)
    return store


def open_store(path: str | Path) -> WeightStore:
    """The weights of a file (.safetensors, .npz, .npy: its key is the file's stem), or of all such files in a folder.

    `CompileError` when there is no such file, or it is of another kind, malformed or cut short.
    """
    path, store = Path(path), WeightStore()
    if path.is_dir():
        files = sorted(x for x in path.iterdir() if x.suffix in READERS)
        if not files:
            raise CompileError("missing-weights", f"no weight files in {path}", fix=f"known: {', '.join(READERS)}")
    elif path.suffix in READERS:
        files = [path]
    else:
        raise CompileError(
            "bad-weights-file", f"{path.name} is no known kind of weight file", fix=f"known: {', '.join(READERS)}"
        )
    for file in files:
        try:
            READERS[file.suffix](store, file)
        except ValueError as error:
            raise CompileError("bad-weights-file", f"{file.name}: {error}") from None
    return store


READERS: dict[str, Callable[[WeightStore, Path], None]] = {
    ".safetensors": WeightStore.add_safetensors,
    ".npz": WeightStore.add_npz,
    ".npy": lambda store, path: store.add_npy(path.stem, path),
}


def _random(key: str, shape: tuple[int, ...], dtype: str, seed: int) -> Array:
    from hashlib import sha256

    import numpy as np

    digest = sha256(f"{seed}:{key}".encode()).digest()
    generator = np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "little")))
    if not dtypes.is_float(dtype):
        values = generator.integers(0, 2, shape)
    elif len(shape) < 2:
        values = generator.random(shape, np.float32) + np.float32(0.5)
    else:
        values = generator.standard_normal(shape, np.float32)
        values *= np.float32(max(prod(shape) // max(shape), 1) ** -0.5)
    array = np.asarray(values).astype(dtypes.to_numpy(dtype), copy=False)
    array.flags.writeable = False
    return array


def _opened(key: str, path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise CompileError(
            "missing-weights", f"file {path} of weight '{key}' cannot be read: {error.strerror}"
        ) from None


def _size(key: str, path: Path) -> int:
    with _opened(key, path) as file:
        return file.seek(0, 2)


def _check_extent(key: str, path: Path, offset: int, nbytes: int, size: int) -> None:
    if offset < 0 or offset + nbytes > size:
        raise CompileError(
            "truncated-weights",
            f"weight '{key}' lies at bytes {offset} to {offset + nbytes} of {path.name}, which has {size}",
        )


@dataclass(frozen=True)
class _NpyHeader:
    shape: tuple[int, ...]
    dtype: str
    fortran_order: bool


def _read_npy_header(key: str, name: str, file: BinaryIO) -> _NpyHeader:
    from numpy.lib import format

    try:
        version = format.read_magic(file)
        if version == (1, 0):
            shape, fortran_order, dtype = format.read_array_header_1_0(file)
        elif version == (2, 0):
            shape, fortran_order, dtype = format.read_array_header_2_0(file)
        else:
            raise ValueError(f"format version {version}")
    except _MALFORMED as error:
        raise CompileError("bad-weights-file", f"{name} is not a readable .npy file: {error}") from None
    try:
        known = dtypes.from_numpy(dtype)
    except KeyError:
        raise CompileError("unsupported-dtype", f"weight '{key}' in {name} has element type {dtype}") from None
    return _NpyHeader(tuple(shape), known, bool(fortran_order))


def _member_start(file: BinaryIO, member: zipfile.ZipInfo) -> int:
    """Where the bytes of an uncompressed member start: behind its local header, which has its own name and extra."""
    file.seek(member.header_offset + 26)
    name, extra = struct.unpack("<HH", file.read(4))
    return member.header_offset + 30 + name + extra


def _read_member(key: str, path: Path, name: str) -> Array:
    import numpy as np

    try:
        with _opened(key, path) as raw, zipfile.ZipFile(raw) as archive, archive.open(name) as file:
            array = np.lib.format.read_array(file, allow_pickle=False)
    except _MALFORMED as error:
        raise CompileError("bad-weights-file", f"weight '{key}' in {path.name} cannot be read: {error}") from None
    array.flags.writeable = False
    return array


def _read_safetensors_header(path: Path, size: int) -> tuple[dict[str, Any], int]:
    """The header of a safetensors file and where its data starts."""

    def refuse(why: str) -> CompileError:
        return CompileError("bad-weights-file", f"{path.name} is not a readable safetensors file: {why}")

    with _opened(path.name, path) as file:
        head = file.read(8)
        if len(head) < 8:
            raise refuse(f"it has only {size} bytes")
        (length,) = struct.unpack("<Q", head)
        if length > LARGEST_HEADER or 8 + length > size:
            raise refuse(f"its header claims {length} bytes but the file has {size}")
        try:
            header = json.loads(file.read(length))
        except (ValueError, RecursionError) as error:
            raise refuse(f"its header is no JSON ({error})") from None
    if not isinstance(header, dict):
        raise refuse("its header is no JSON object")
    return cast("dict[str, Any]", header), 8 + length


def _safetensors_entry(path: Path, name: str, entry: Any) -> tuple[tuple[int, ...], str, int, int]:
    try:
        shape = tuple(int(n) for n in entry["shape"])
        begin, end = (int(n) for n in entry["data_offsets"])
        dtype = str(entry["dtype"])
    except (KeyError, TypeError, ValueError):
        raise CompileError(
            "bad-weights-file", f"{path.name} is not a readable safetensors file: bad entry for tensor '{name}'"
        ) from None
    if dtype not in SAFETENSORS_DTYPES:
        raise CompileError("unsupported-dtype", f"tensor '{name}' in {path.name} has element type {dtype}")
    if begin < 0 or any(n < 0 for n in shape):
        raise CompileError("bad-weights-file", f"tensor '{name}' in {path.name} has a negative size or position")
    return shape, SAFETENSORS_DTYPES[dtype], begin, end
