"""Weight stores: every kind of file, what is mapped and not copied, and what is refused."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from headrace.dialects.support import weights
from headrace.dialects.support.diagnostics import CompileError
from headrace.dialects.support.dtypes import to_numpy
from headrace.dialects.support.weights import WeightStore, open_store

ARRAYS: dict[str, Any] = {
    "layer.w": np.arange(12, dtype=np.float32).reshape(3, 4),
    "layer.b": np.array([1.5, -2.0], np.float16),
    "scalar": np.array(7, np.int64),
    "mask": np.array([True, False, True]),
    "empty": np.zeros((0, 4), np.float32),
    "narrow": np.array([0.5, 1.0], ml_dtypes.bfloat16),
}


def backing(array: Any) -> Any:
    """The object at the end of a chain of views."""
    while isinstance(array, np.ndarray) and array.base is not None:
        array = array.base
    return array


def check(store: WeightStore, keys: list[str], arrays: dict[str, Any] = ARRAYS) -> None:
    assert list(store.keys()) == keys
    for key in keys:
        wanted = arrays[key]
        found = store.array(key)
        assert to_numpy(store.type(key)[1]) == wanted.dtype == found.dtype
        assert store.type(key)[0] == wanted.shape == found.shape
        np.testing.assert_array_equal(found, wanted)


def safetensors(path: Path, entries: dict[str, Any], data: bytes) -> Path:
    header = json.dumps(entries).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + data)
    return path


def test_arrays_are_not_copied_and_not_writable() -> None:
    store = weights.from_arrays(ARRAYS)
    check(store, list(ARRAYS))
    found = store.array("layer.w")
    assert np.shares_memory(found, ARRAYS["layer.w"])
    assert not found.flags.writeable
    assert ARRAYS["layer.w"].flags.writeable
    assert store.nbytes == sum(a.nbytes for a in ARRAYS.values())
    assert not store.shape_only


def test_safetensors_are_mapped(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    path = tmp_path / "model.safetensors"
    save_file(ARRAYS, path, metadata={"note": "ignored"})
    store = open_store(path)
    check(store, sorted(ARRAYS, key=list(store.keys()).index))
    found = store.array("layer.w")
    assert not found.flags.writeable
    assert type(backing(found)).__name__ in ("mmap", "memoryview")
    assert np.shares_memory(found, store.array("layer.w")), "one mapping for all arrays of a file"


@pytest.mark.parametrize("compressed", [False, True])
def test_npz(tmp_path: Path, compressed: bool) -> None:
    path = tmp_path / "model.npz"
    known = {k: v for k, v in ARRAYS.items() if k != "narrow"}  # NumPy's own format has no bf16
    known["turned"] = np.asfortranarray(ARRAYS["layer.w"])
    (np.savez_compressed if compressed else np.savez)(path, **known)
    store = open_store(path)
    check(store, list(known), known)
    found = store.array("layer.w")
    assert not found.flags.writeable
    assert (type(backing(found)).__name__ in ("mmap", "memoryview")) == (not compressed)


def test_npy_is_named_by_its_file(tmp_path: Path) -> None:
    np.save(tmp_path / "layer.w.npy", ARRAYS["layer.w"])
    check(open_store(tmp_path / "layer.w.npy"), ["layer.w"])


def test_a_folder_holds_all_its_files(tmp_path: Path) -> None:
    np.save(tmp_path / "layer.w.npy", ARRAYS["layer.w"])
    np.savez(tmp_path / "other.npz", scalar=ARRAYS["scalar"])
    (tmp_path / "notes.txt").write_text("not a weight")
    check(open_store(tmp_path), ["layer.w", "scalar"])
    with pytest.raises(CompileError, match="no weight files"):
        (tmp_path / "none").mkdir()
        open_store(tmp_path / "none")
    np.savez(tmp_path / "twice.npz", scalar=ARRAYS["scalar"])
    with pytest.raises(CompileError, match="'scalar' is taken"):
        open_store(tmp_path)


def test_raw_data_at_an_offset(tmp_path: Path) -> None:
    path = tmp_path / "data.bin"
    path.write_bytes(b"\0" * 5 + ARRAYS["layer.w"].tobytes())
    store = WeightStore()
    store.add_file("layer.w", (3, 4), "f32", path, 5, 48)
    check(store, ["layer.w"])  # unaligned
    with pytest.raises(CompileError, match=r"'x' lies at bytes 6 to 54 of data\.bin, which has 53"):
        store.add_file("x", (3, 4), "f32", path, 6)
    with pytest.raises(CompileError, match=r"'x' has 47 bytes in data\.bin but its type takes 48"):
        store.add_file("x", (3, 4), "f32", path, 5, 47)
    with pytest.raises(CompileError, match=r"lies at bytes -1 to 47"):
        store.add_file("x", (3, 4), "f32", path, -1)
    with pytest.raises(CompileError, match=r"gone\.bin of weight 'x' cannot be read"):
        store.add_file("x", (3, 4), "f32", tmp_path / "gone.bin")
    assert "x" not in store


def test_a_file_that_shrinks_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "data.bin"
    path.write_bytes(bytes(48))
    store = WeightStore()
    store.add_file("w", (3, 4), "f32", path)
    path.write_bytes(bytes(40))
    with pytest.raises(CompileError, match="which has 40"):
        store.array("w")


def test_random_weights_depend_on_key_and_seed_only() -> None:
    types: dict[str, tuple[tuple[int, ...], str]] = {
        "a": ((64, 64), "f32"),
        "b": ((64,), "bf16"),
        "i": ((64,), "i32"),
        "m": ((64,), "i1"),
    }
    one, two = weights.random(types, 3), weights.random(dict(reversed(types.items())), 3)
    for key, (shape, dtype) in types.items():
        found = one.array(key)
        assert found.shape == shape
        assert found.dtype == to_numpy(dtype)
        assert not found.flags.writeable
        np.testing.assert_array_equal(found, two.array(key))
    assert not np.array_equal(one.array("a"), weights.random(types, 4).array("a"))
    assert 0.1 < one.array("a").std() * 8 < 2
    assert one.array("b").astype(np.float32).min() >= 0.5


def test_a_shape_only_store_has_types_but_no_arrays() -> None:
    store = weights.shape_only({"w": ((1 << 20, 1 << 20), "bf16")})
    assert store.shape_only
    assert store.nbytes == 2 << 40
    assert store.type("w") == ((1 << 20, 1 << 20), "bf16")
    with pytest.raises(CompileError, match="'w' has a shape but no bytes"):
        store.array("w")


def test_a_missing_key_names_the_nearest() -> None:
    store = weights.from_arrays(ARRAYS)
    for ask in (store.array, store.type):
        with pytest.raises(CompileError, match=r"no weight 'layer\.v'") as refusal:
            ask("layer.v")
        assert refusal.value.fix == "did you mean 'layer.w'?"
    with pytest.raises(CompileError) as refusal:
        WeightStore().array("w")
    assert refusal.value.fix == "the store is empty"
    with pytest.raises(ValueError, match="taken"):
        store.add("layer.w", (1,), "f32")


F32 = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    ("entries", "data", "reason"),
    [
        ({"w": F32}, bytes(4), "'w' lies at bytes .* which has"),
        ({"w": F32 | {"shape": [3]}}, bytes(8), "'w' has 8 bytes in .* but its type takes 12"),
        ({"w": F32 | {"dtype": "F8_E5M2"}}, bytes(8), "element type F8_E5M2"),
        ({"w": F32 | {"shape": [-2]}}, bytes(8), "negative size"),
        ({"w": F32 | {"data_offsets": [-8, 0]}}, bytes(8), "negative size or position"),
        ({"w": {"dtype": "F32"}}, bytes(8), "bad entry for tensor 'w'"),
        ({"w": 3}, bytes(8), "bad entry for tensor 'w'"),
        ([1], b"", "no JSON object"),
    ],
)
def test_malformed_safetensors(tmp_path: Path, entries: Any, data: bytes, reason: str) -> None:
    with pytest.raises(CompileError, match=reason):
        open_store(safetensors(tmp_path / "w.safetensors", entries, data))


def test_every_cut_of_a_file_is_refused(tmp_path: Path) -> None:
    """A file that ends too soon is a refusal with its name, wherever it ends."""
    from safetensors.numpy import save_file

    some = {k: ARRAYS[k] for k in ("layer.w", "scalar")}
    save_file(some, tmp_path / "a.safetensors")
    np.savez(tmp_path / "b.npz", **some)
    np.savez_compressed(tmp_path / "c.npz", **some)
    np.save(tmp_path / "d.npy", ARRAYS["layer.w"])
    for path in sorted(tmp_path.iterdir()):
        whole = path.read_bytes()
        for length in range(len(whole)):
            path.write_bytes(whole[:length])
            with pytest.raises(CompileError, match=path.name):
                open_store(path)
        path.write_bytes(whole)
        open_store(path)


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "w.txt").write_text("")
    with pytest.raises(CompileError, match=r"w\.txt is no known kind of weight file"):
        open_store(tmp_path / "w.txt")
    with pytest.raises(CompileError, match="cannot be read"):
        open_store(tmp_path / "gone.npz")
    np.save(tmp_path / "o.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(CompileError, match="element type object"):
        open_store(tmp_path / "o.npy")
    np.save(tmp_path / "big.npy", np.arange(3, dtype=">i4"))
    with pytest.raises(CompileError, match="element type >i4"):
        open_store(tmp_path / "big.npy")
    safetensors(tmp_path / "h.safetensors", {}, b"")
    (tmp_path / "h.safetensors").write_bytes(struct.pack("<Q", 1 << 60))
    with pytest.raises(CompileError, match=r"its header claims \d+ bytes but the file has 8"):
        open_store(tmp_path / "h.safetensors")
